# tests/lint/layers.awk -- a file may include files of its own layer and of layers below.
#
# include < jit/ir < eager < autograd < jit/passes < jit < nn, io, data, cli; a codegen folder sees include,
# jit/ir and itself. The four on top see each other only downwards: nn < io < data < cli would be an order
# nobody needs, so they see themselves and what is below, and cli sees all.

function folder(path) {
    if (path ~ /^(include\/)?weft\//) return "include"
    if (path ~ /^jit\/(ir|passes|codegen_cpu|codegen_cuda)\//) { sub(/^jit\//, "", path); sub(/\/.*/, "", path); return "jit/" path }
    if (path !~ /\//) return ""
    sub(/\/.*/, "", path)
    return path
}
function rank(f) { return (f in ranks) ? ranks[f] : -1 }
BEGIN {
    ranks["include"] = 0; ranks["jit/ir"] = 1; ranks["eager"] = 2; ranks["autograd"] = 3
    ranks["jit/passes"] = 4; ranks["jit"] = 5; ranks["nn"] = 6; ranks["io"] = 6; ranks["data"] = 6
    ranks["cli"] = 7; ranks["jit/codegen_cpu"] = 2; ranks["jit/codegen_cuda"] = 2
}
/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    target = $0
    sub(/^[^"<]*["<]/, "", target)
    sub(/[">].*/, "", target)
    own = folder(FILENAME)
    if ($0 ~ /</ && target !~ /^weft\//)
        next
    to = folder(target)
    if (to == "" && target !~ /\//) # a neighbour in the same folder
        next
    if (to == "") {
        print FILENAME ":" FNR ": include \"" target "\" by its path from the root"
        next
    }
    if (to == own)
        next
    if (rank(to) < 0)
        print FILENAME ":" FNR ": " own " may not include \"" target "\""
    else if (own ~ /codegen/ ? rank(to) > 1 : (rank(to) >= rank(own) || to ~ /codegen/))
        print FILENAME ":" FNR ": layer " own " may not include layer " to " (\"" target "\")"
}
