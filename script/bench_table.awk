# script/bench_table.awk -- JSON lines of flat objects as aligned tables, one per value of "bench".
#
# Columns are keys in the order they first appear. Lines that agree in bench, case, size, dtype and threads
# are one row, so that a peer's figures stand beside weft's.

function unquote(s) { gsub(/^[ \t]*"?|"?[ \t]*$/, "", s); return s }
function number(s) {
    if (s !~ /^-?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?$/) return s
    s += 0
    return (s >= 1000 || s <= -1000) ? sprintf("%.0f", s) : sprintf("%.4g", s)
}
/^[ \t]*\{/ {
    line = $0
    sub(/^[ \t]*\{/, "", line)
    sub(/\}[ \t]*$/, "", line)
    n = 0
    split("", value)
    while (match(line, /"[^"]*"[ \t]*:[ \t]*("[^"]*"|[^,"]*)/)) {
        pair = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        colon = index(pair, "\":")
        if (colon == 0) colon = index(pair, "\" :")
        key = unquote(substr(pair, 1, colon))
        text = substr(pair, colon + 1)
        sub(/^[ \t]*:/, "", text)
        n++
        order[n] = key
        value[key] = unquote(text)
    }
    bench = ("bench" in value) ? value["bench"] : "bench"
    if (!(bench in known)) { known[bench] = 1; benches[++n_benches] = bench }
    id = bench SUBSEP value["case"] SUBSEP value["size"] SUBSEP value["dtype"] SUBSEP value["threads"]
    if (!(id in row)) { row[id] = ++n_rows; bench_of[n_rows] = bench }
    for (i = 1; i <= n; i++) {
        key = order[i]
        if (key == "bench") continue
        if (!((bench, key) in column)) { column[bench, key] = 1; columns[bench, ++n_columns[bench]] = key }
        cell[row[id], key] = number(value[key])
        width = length(cell[row[id], key])
        if (width < length(key)) width = length(key)
        if (width > widths[bench, key]) widths[bench, key] = width
    }
}
END {
    for (b = 1; b <= n_benches; b++) {
        bench = benches[b]
        printf "\n%s\n", bench
        for (c = 1; c <= n_columns[bench]; c++) {
            key = columns[bench, c]
            printf (c == 1 ? "  %-*s" : "  %*s"), widths[bench, key], key
        }
        printf "\n"
        for (r = 1; r <= n_rows; r++) {
            if (bench_of[r] != bench) continue
            for (c = 1; c <= n_columns[bench]; c++) {
                key = columns[bench, c]
                printf (c == 1 ? "  %-*s" : "  %*s"), widths[bench, key], cell[r, key]
            }
            printf "\n"
        }
    }
}
