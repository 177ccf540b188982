# script/bench_table.awk -- JSON lines of flat objects as aligned tables, one per value of "bench".
#
# Columns are keys in the order they first appear. Lines that agree in bench, case, size, dtype and threads
# are one row, so that a peer's figures stand beside weft's; keys of a line with "peer" get its name in front. Columns
# worked out: "times_PEER", how many times faster than PEER_ns, _us or _ms, for torch, torch.compile, jax and llm.c; and
# "met": every key X with a key target_X reaches it (ratios and "over_" at least, all else at most) and weft is not slower
# than PyTorch, eager or compiled, by over 3 %. Lines of bench "run" describe the run and come first.

function unquote(s) { gsub(/^[ \t]*"?|"?[ \t]*$/, "", s); return s }
function number(s) {
    if (s !~ /^-?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?$/) return s
    s += 0
    return (s >= 1000 || s <= -1000) ? sprintf("%.0f", s) : sprintf("%.4g", s)
}
function set(bench, r, key, text,    width) {
    if (!((bench, key) in column)) { column[bench, key] = 1; columns[bench, ++n_columns[bench]] = key }
    raw[r, key] = text
    cell[r, key] = number(text)
    width = length(cell[r, key])
    if (width < length(key)) width = length(key)
    if (width > widths[bench, key]) widths[bench, key] = width
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
    if (bench == "run") {
        for (i = 1; i <= n; i++) {
            if (order[i] != "bench") printf "%s%s: %s", (i > 2 ? ", " : ""), order[i], value[order[i]]
        }
        printf "\n"
        next
    }
    if (!(bench in known)) { known[bench] = 1; benches[++n_benches] = bench }
    id = bench SUBSEP value["case"] SUBSEP value["size"] SUBSEP value["dtype"] SUBSEP value["threads"]
    if (!(id in row)) { row[id] = ++n_rows; bench_of[n_rows] = bench }
    for (i = 1; i <= n; i++) {
        key = order[i]
        if (key == "bench" || key == "peer") continue
        if (("peer" in value) && key !~ /^(case|size|dtype|threads)$/) key = value["peer"] "_" key
        set(bench, row[id], key, value[order[i]])
    }
}
function judge(bench, r,    c, key, of, bad, judged, unit, i, peer, p) {
    bad = ""
    for (c = 1; c <= n_columns[bench]; c++) {
        key = columns[bench, c]
        if (key !~ /^target_/ || !((r, key) in raw)) continue
        of = substr(key, 8)
        if (!((r, of) in raw)) continue
        judged = 1
        if (of ~ /ratio|over_/ && raw[r, of] + 0 < raw[r, key] + 0) bad = "NO"
        if (of !~ /ratio|over_/ && raw[r, of] + 0 > raw[r, key] + 0) bad = "NO"
    }
    if (((r, "torch_peak_mb") in raw) && ((r, "peak_mb") in raw)) { # at most 1.1 times the peer's memory
        judged = 1
        if (raw[r, "peak_mb"] + 0 > 1.1 * raw[r, "torch_peak_mb"]) bad = "NO"
    }
    split(raw[r, "threads"] == 1 && ((r, "cpu_ms") in raw) ? "cpu_ms" : "ns us ms", unit, " ")
    split("torch torch.compile jax llm.c", peer, " ")
    for (p = 1; p in peer; p++) for (i = 1; i in unit; i++) {
        of = peer[p] "_" unit[i]
        if (((r, of) in raw) && ((r, unit[i]) in raw) && raw[r, unit[i]] + 0 > 0) {
            set(bench, r, "times_" peer[p], sprintf("%.2f", raw[r, of] / raw[r, unit[i]]))
            if (peer[p] == "jax") continue
            judged = 1
            if (raw[r, of] + 0 < 0.97 * raw[r, unit[i]]) # 3 %: noise
                 bad = bad ~ /^(|NO \(torch.*)$/ ? "NO (" peer[p] ")" : "NO (both)"
        }
    }
    if (judged) {
        set(bench, r, "met", bad == "" ? "yes" : bad)
        targets[bench]++
        if (bad == "") reached[bench]++
    }
}
END {
    for (r = 1; r <= n_rows; r++) judge(bench_of[r], r)
    for (b = 1; b <= n_benches; b++) {
        bench = benches[b]
        printf "\n%s", bench
        if (targets[bench]) printf ": %d of %d rows reach what they should", reached[bench], targets[bench]
        printf "\n"
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
