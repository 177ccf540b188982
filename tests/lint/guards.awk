# tests/lint/guards.awk -- the include guard of a/b/c.h is A_B_C_H.
#
# A header that is a part of another, or is included several times, has none; its opening comment says who
# includes it, or what it is the "body of" or "part of".

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
    exempt = FILENAME ~ /\.inc\.h$/ # a part by its name
}
FNR < 16 && $0 !~ /^#/ && tolower($0) ~ /includ|body|part of/ { exempt = 1 }
/^#ifndef / && $2 == guard { guarded = 1 }
END { finish() }
