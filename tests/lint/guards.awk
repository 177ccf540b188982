# tests/lint/guards.awk -- the include guard of a/b/c.h is A_B_C_H.
#
# A header meant to be a part of another, or to be included several times, has none and says so in its
# opening comment: "no include guard", "included by ...", "must be included before", or what "the includer"
# provides.

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
FNR < 16 && tolower($0) ~ /no include guard|the includer|must be included before|included( by |$)/ {
    exempt = 1
}
/^#ifndef / && $2 == guard { guarded = 1 }
END { finish() }
