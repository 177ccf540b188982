# tests/lint/guards.awk -- the include guard of a/b/c.h is A_B_C_H.
#
# A header meant to be included several times has none and says so: "no include guard", or what "the includer"
# provides, in its comment.

function finish() {
    if (name == "" || guarded || exempt)
        return
    print name ":1: include guard " guard " expected"
}
FNR == 1 {
    finish()
    name = FILENAME
    guard = FILENAME
    sub(/^include\//, "", guard)
    gsub(/[^A-Za-z0-9]/, "_", guard)
    guard = toupper(guard)
    guarded = 0
    exempt = 0
}
FNR < 80 && tolower($0) ~ /no include guard|the includer/ { exempt = 1 }
/^#ifndef / && $2 == guard { guarded = 1 }
END { finish() }
