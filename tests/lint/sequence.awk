# tests/lint/sequence.awk -- of the arguments of a call at most one makes something that is recorded.
#
# C leaves it to the compiler which argument is evaluated first, and gcc and clang differ: what is recorded by two of them would
# be numbered, named and kept on disk by the compiler that built the library. Kernel IR is left out but where it is lowered to, since
# wf_kir_finish brings it into an order of its own.
#
# Not seen: two in a list of initialisers, or on both sides of an assignment.
#
# Takes its files twice: first to learn which functions make something, then for their calls.

function learn(line,    name, type, file) {
    if (line !~ /^(static |inline |WF_U |WEFT_API )*(weft_tensor|wf_val|wf_kref|int) \(?[a-z][a-z0-9_]*\)?\(/) return
    file = line ~ /^static / ? FILENAME : ""
    sub(/^(static |inline |WF_U |WEFT_API )*/, "", line)
    type = line; sub(/ .*/, "", type)
    sub(/^[a-z_]+ \(?/, "", line)
    name = line; sub(/[^a-z0-9_].*/, "", name)
    sub(/^[a-z0-9_]+\)?\(/, "", line)
    if (type == "int" && line !~ /^(const )?(rows|writer|wf_program|wf_lowering) \*/) return
    if (type == "int" && line ~ /^const wf_program \*/) return
    if (type == "wf_val" && line ~ /^const /) return
    if (type == "wf_kref" && FILENAME !~ /^jit\/lower/) return
    if (name ~ /^(weft_[fi]|weft_sited.*|wf_vjp_(src|dst)|wf_optional|wf_kv)$/) return
    makes[file, name] = 1
}

function is_maker(name) {
    return name != "" && (("", name) in makes || (FILENAME, name) in makes)
}

# A statement's calls: at a closing bracket it is known how many of the arguments since its opening one make something.
function check(text, line,    depth, mark, before, name, made, named) {
    depth = 0
    current[0] = all[0] = 0
    while (match(text, /[][(){},]/)) {
        mark = substr(text, RSTART, 1)
        before = substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + 1)
        if (mark ~ /[[({]/) {
            name = before
            sub(/^.*[^A-Za-z0-9_]/, "", name)
            depth++
            kind[depth] = mark
            maker[depth] = mark == "(" && (is_maker(name) || (before == "" && named))
            current[depth] = all[depth] = 0
            named = 0
            continue
        }
        all[depth] += current[depth]
        if (mark == ",") {
            current[depth] = 0
            continue
        }
        if (kind[depth] == "(" && all[depth] > 1)
            print FILENAME ":" line ": which of two arguments is recorded first is left to the compiler: make one before the call"
        made = all[depth] > 0 || maker[depth]
        named = mark == ")" && is_maker(before)
        if (depth > 0) depth--
        current[depth] = current[depth] || made
    }
}

FNR == 1 { comment = 0; macro = 0; statement = ""; known = seen[FILENAME]++ }
!known { learn($0); next }
{
    line = $0
    gsub(/\\./, "", line)
    gsub(/"[^"]*"|'[^']*'/, "", line)
    if (comment) {
        if (line !~ /\*\//) next
        sub(/^.*\*\//, "", line)
        comment = 0
    }
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    if (line ~ /\/\*/) { sub(/\/\*.*/, "", line); comment = 1 }
    if (line ~ /^#/ || macro) { macro = $0 ~ /\\$/; next }
    if (line ~ /^[a-zA-Z_].*\(/) next # a definition: parameters
    if (statement == "") first = FNR
    statement = statement line
    if (line ~ /[;{}:][ \t]*$/) {
        check(statement, first)
        statement = ""
    }
}
