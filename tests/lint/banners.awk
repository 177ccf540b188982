# tests/lint/banners.awk -- one of the first four lines reads "<path> -- <purpose>".

FNR == 1 { if (name != "" && !seen) print name ":1: no banner naming the file"; name = FILENAME; seen = 0 }
FNR <= 4 {
    path = FILENAME
    sub(/^include\//, "", path)
    if (index($0, path " -- ") > 0)
        seen = 1
}
END { if (name != "" && !seen) print name ":1: no banner naming the file" }
