# tests/lint/opcode_default.awk -- no `default:` in a switch that has a `case WF_OP_...`.
#
# Braces are counted after strings, characters and comments are blanked, which is enough for this code.

FNR == 1 { depth = 0; top = 0; comment = 0 }
{
    line = $0
    gsub(/\\./, "", line)
    gsub(/"[^"]*"/, "", line)
    gsub(/'[^']*'/, "", line)
    if (comment) {
        if (line !~ /\*\//) next
        sub(/.*\*\//, "", line)
        comment = 0
    }
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    sub(/\/\/.*/, "", line)
    if (line ~ /\/\*/) { sub(/\/\*.*/, "", line); comment = 1 }
    if (line ~ /(^|[^A-Za-z0-9_])switch[ \t]*\(/) pending = 1
    n = length(line)
    if (line ~ /^[ \t]*case[ \t]+WF_OP_/ && top > 0) { opcode[top] = 1 }
    if (line ~ /^[ \t]*default[ \t]*:/ && top > 0 && at[top] == depth) {
        where[top] = FILENAME ":" FNR
    }
    for (i = 1; i <= n; i++) {
        ch = substr(line, i, 1)
        if (ch == "{") {
            depth++
            if (pending) { top++; at[top] = depth; opcode[top] = 0; where[top] = ""; pending = 0 }
        } else if (ch == "}") {
            if (top > 0 && at[top] == depth) {
                if (opcode[top] && where[top] != "")
                    print where[top] ": default: in a switch over opcodes"
                top--
            }
            depth--
        }
    }
}
