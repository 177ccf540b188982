# tests/lint/tables.awk -- an array sized by an enum's _COUNT names each element it initialises.

FNR == 1 { waiting = 0 }
{
    line = $0
    sub(/\/\*.*\*\//, "", line)
    if (waiting && line ~ /[^ \t]/) {
        if (line !~ /^[ \t]*(\[|#|\}|\/\*|\*)/ && line !~ /^[ \t]*[A-Z_]+\(/)
            print FILENAME ":" FNR ": positional initialiser of a table indexed by an enum"
        waiting = 0
    }
}
/\[[A-Z_]*_COUNT\]([ \t]*\[[^\]]*\])*[ \t]*=[ \t]*\{/ {
    rest = $0
    sub(/.*=[ \t]*\{/, "", rest)
    if (rest ~ /^[ \t]*$/)
        waiting = 1
    else if (rest !~ /^[ \t]*(\[|0[ \t]*\}|\})/)
        print FILENAME ":" FNR ": positional initialiser of a table indexed by an enum"
}
