# tests/lint/lengths.awk -- how many functions there are and which are longer than 60 lines; information.

/^\{/ { start = FNR; next }
/^\}/ && start > 0 {
    functions++
    length_of = FNR - start
    if (length_of > 60) { long++; if (long <= 15) printf "  %s:%d: function of %d lines\n", FILENAME, start, length_of }
    start = 0
}
FNR == 1 { start = 0 }
END { printf "  %d functions, %d over 60 lines\n", functions, long }
