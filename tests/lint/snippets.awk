# tests/lint/snippets.awk -- cuts the code of a page of documentation into files: see tests/lint/check_docs.
#
#   awk -v dir=FOLDER -v first=N -f tests/lint/snippets.awk PAGE
#
# Prints a line for each block that something is done with: NUMBER KIND PAGE:LINE WORDS. Kinds: program, statements, shell,
# output (of the block before), fragment, and bad for marks that are wrong. The block is FOLDER/NUMBER; what a comment
# `<!-- given` ... `-->` in front of it holds is FOLDER/NUMBER.given. Definitions in the first column among
# statements (static ..., typedef ..., #include) go to FOLDER/NUMBER.given as well. A comment `<!-- inline DECLARATIONS -->`
# makes statements of all calls `weft_f(x)` in the page's text.
BEGIN { n = first }
/^<!-- given/ {
    hidden = 1
    given = $0
    sub(/^<!-- given */, "", given)
    if (sub(/ *-->.*/, "", given))
        hidden = 0
    given = given "\n"
    next
}
hidden {
    if (/-->/)
        hidden = 0
    else
        given = given $0 "\n"
    next
}
/^<!-- inline / {
    inline = $0
    sub(/^<!-- inline /, "", inline)
    sub(/ *-->.*/, "\n", inline)
    next
}
inline != "" && !inside {
    left = $0
    while (match(left, /`weft_[a-z0-9_]+\([^`]*\)`/)) {
        if (!index(substr(left, RSTART, RLENGTH), "..."))
            calls = calls "\n#line " FNR " \"" FILENAME "\"\n" substr(left, RSTART + 1, RLENGTH - 2) ";"
        left = substr(left, RSTART + RLENGTH)
    }
}
/^```/ && !inside {
    inside = 1
    start = FNR
    info = substr($0, 4)
    text = top = ""
    main = outside = 0
    next
}
/^```/ {
    inside = 0
    split(info, word, " ")
    kind = word[1]
    rest = substr(info, length(kind) + 2)
    if (kind == "c")
        kind = word[2] ~ /^fragment/ ? "fragment" : main ? "program" : "statements"
    else if (kind == "sh")
        kind = word[2] ~ /^fragment/ ? "fragment" : "shell"
    else if (kind != "output")
        kind = ""
    if (kind == "fragment" && rest !~ /^fragment: [a-z].*[a-z]/) {
        kind = "bad"
        rest = "a fragment says why: ```" word[1] " fragment: REASON"
    }
    if (kind != "") {
        n++
        if (kind == "statements") {
            given = given top
        } else {
            text = all
        }
        printf "%s", text >(dir "/" n)
        printf "%s", given >(dir "/" n ".given")
        close(dir "/" n)
        close(dir "/" n ".given")
        print n, kind, FILENAME ":" start, rest
    }
    given = all = ""
    next
}
inside {
    all = all $0 "\n"
    if (/^int main\(/)
        main = 1
    if (!outside && /^(static|typedef|#include|#define) ?/)
        outside = 1
    if (outside) {
        top = top $0 "\n"
        if (/^}/ || (/^(static|typedef|#include|#define).*[;>"]$/))
            outside = 0
    } else {
        text = text $0 "\n"
    }
    next
}
/[^ ]/ { given = "" }
END {
    if (calls != "") {
        n++
        print calls >(dir "/" n)
        printf "%s", inline >(dir "/" n ".given")
        print n, "statements", FILENAME ":inline"
    }
    if (inside)
        print n + 1, "bad", FILENAME ":" start, "the block does not end"
}
