# script/bench_table.awk -- JSON lines of flat objects as aligned tables, one per value of "bench".
#
# Columns are keys in the order they first appear. Lines that agree in bench, case, size, dtype and threads
# are one row, so that a peer's figures stand beside weft's; keys of a line with "peer" get its name in front. A row with
# "peers_of" is compared with the peers of the row of that case. Columns worked out, for the peers torch, torch.compile, jax and
# llm.c: "times_PEER", how many times faster than PEER_ns, _us or _ms; "times_PEER_below_75", the same where the peer is below
# 75 % of the limit that of_limit counts by; "peak_of_PEER", peak_mb over the peer's. "met": every key X with a key target_X
# reaches it (ratios, "over_", "times_" and "of_limit" at least, all else at most), and weft is not slower than PyTorch, eager or
# compiled, by over 3 % where no target says more. Lines of bench "run" describe the run and come first.
#
# Above a table stands what its rows are, below it what its columns mean: lines of bench/columns (variable captions: another
# file; captions=none: tables alone).
#
# Then every line of bench/targets (variable targets: another file; of: programs, a regular expression; only=targets: nothing
# else): reached, missed and by how much, or not measured and why. Lines of bench "load" say which programs ran and which
# failed, of bench "peer" which peers there are not.

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
        quick = value["quick"] + 0
        for (i = 1; i <= n; i++) {
            if (order[i] != "bench") printf "%s%s: %s", (i > 2 ? ", " : ""), order[i], value[order[i]]
        }
        printf "\n"
        next
    }
    if (bench == "load") {
        ran[value["case"]]
        if ("failed" in value) failed[value["case"]] = value["failed"]
    }
    if (bench == "peer") {
        absent[value["case"]] = value["absent"]
        if (value["case"] == "torch") absent["torch.compile"] = value["absent"]
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
function at_least(figure) { return figure ~ /ratio|over_|^times_|^of_limit$/ }
function is_reached(r, figure) {
    return at_least(figure) ? raw[r, figure] + 0 >= raw[r, "target_" figure] + 0 : raw[r, figure] + 0 <= raw[r, "target_" figure] + 0
}
# Figures that take a peer. Its keys are of the row itself, or of the one that "peers_of" names.
function compare(bench, r,    p, peer, i, unit, of, times, from, key, keys) {
    if ((r, "peers_of") in raw) {
        from = row[bench SUBSEP raw[r, "peers_of"] SUBSEP SUBSEP SUBSEP raw[r, "threads"]]
        split("us ms cpu_ms peak_mb failed", keys, " ")
        for (p = 1; p in peers; p++) for (i = 1; i in keys; i++) {
            key = peers[p] "_" keys[i]
            if ((from, key) in raw) set(bench, r, key, raw[from, key])
        }
    }
    split(((r, "cpu_ms") in raw) && raw[r, "threads"] == 1 ? "cpu_ms" : "ns us ms", unit, " ")
    for (p = 1; p in peers; p++) {
        peer = peers[p]
        for (i = 1; i in unit; i++) {
            of = peer "_" unit[i]
            if (!((r, of) in raw) || !((r, unit[i]) in raw) || raw[r, unit[i]] + 0 <= 0) continue
            times = raw[r, of] / raw[r, unit[i]]
            set(bench, r, "times_" peer, sprintf("%.3g", times))
            if (((r, "of_limit") in raw) && raw[r, "of_limit"] / times < 0.75)
                set(bench, r, "times_" peer "_below_75", sprintf("%.3g", times))
        }
        if (((r, peer "_peak_mb") in raw) && ((r, "peak_mb") in raw))
            set(bench, r, "peak_of_" peer, sprintf("%.3g", raw[r, "peak_mb"] / raw[r, peer "_peak_mb"]))
    }
}
function judge(bench, r,    c, key, of, bad, judged, p) {
    compare(bench, r)
    for (c = 1; c <= n_columns[bench]; c++) {
        key = columns[bench, c]
        of = substr(key, 8)
        if (key !~ /^target_/ || !((r, key) in raw) || !((r, of) in raw)) continue
        judged = 1
        if (!is_reached(r, of)) bad = "NO"
    }
    for (p = 1; peers[p] ~ /^torch/; p++) { # peers that it must not be slower than: 3 % are noise
        key = "times_" peers[p]
        if (!((r, key) in raw) || ((r, "target_" key) in raw)) continue
        judged = 1
        if (raw[r, key] < 0.97) bad = bad ~ /^(|NO \(torch.*)$/ ? "NO (" peers[p] ")" : "NO (both)"
    }
    if (judged) {
        set(bench, r, "met", bad == "" ? "yes" : bad)
        rows_with_targets[bench]++
        if (bad == "") reached[bench]++
    }
}
function row_name(r,    s) {
    s = raw[r, "case"]
    if ((r, "size") in raw) s = s ", " raw[r, "size"]
    if (((r, "dtype") in raw) && raw[r, "dtype"] != "f32") s = s ", " raw[r, "dtype"]
    if ((r, "threads") in raw) s = s ", threads " raw[r, "threads"]
    return s
}
# Why no row of a target has its figure: the program, or the peer.
function why_not(program, bench, figure, n, r,    p, peer, why) {
    if (program in failed) return program " " failed[program]
    if (!(program in ran) && !(bench in known)) return program " was not run"
    if (n == 0) return program " has no such row in this run" (quick ? ", a quick one" : "")
    if (figure !~ /^(times|peak_of)_/) return "not in its rows"
    for (p = 1; p in peers; p++)
        if (index(figure, peers[p]) && (figure ~ ("_" peers[p] "(_below_75)?$"))) peer = peers[p]
    if (figure ~ /_below_75$/ && ("times_" peer) in seen) return peer " is nowhere below 75 % of the limit"
    if (((r, peer "_failed") in raw)) return peer " " raw[r, peer "_failed"]
    return (peer in absent) ? peer ": " absent[peer] : "no " peer " in this run (script/bench --peers)"
}
# One line of bench/targets, and the worst rows of those that miss it.
function conclude(program, bench, which, figure, what,    r, n, got, hit, miss, i, j, by, worst, last, missing, line) {
    for (r = 1; r <= n_rows; r++) {
        if (bench_of[r] != bench || raw[r, "case"] !~ which || !((r, "target_" figure) in raw)) continue
        n++
        last = r
        if (!((r, figure) in raw)) { missing++; last_missing = r; continue }
        got++
        if (is_reached(r, figure)) { hit++; continue }
        by[r] = raw[r, "target_" figure] + 0 ? 100 * (raw[r, figure] / raw[r, "target_" figure] - 1) : 100 * raw[r, figure]
        for (i = ++miss; i > 1 && (by[worst[i - 1]] < 0 ? -by[worst[i - 1]] : by[worst[i - 1]]) < (by[r] < 0 ? -by[r] : by[r]); i--)
            worst[i] = worst[i - 1]
        worst[i] = r
    }
    if (!got) {
        printf "  not measured  %s: %s\n", what, why_not(program, bench, figure, n, last)
        return
    }
    line = sprintf("%s: %d of %d rows", what, hit, got)
    # rows without the figure: their peer was ended, or does not have the case
    if (missing && figure !~ /_below_75$/) line = line sprintf(" (of %d more the peer is missing: %s)", missing, why_not(program, bench, figure, n, last_missing))
    printf "  %-12s  %s\n", miss ? "MISSED" : "reached", line
    for (i = 1; i <= miss && i <= 5; i++) {
        r = worst[i]
        printf "                  %s: %s %s, at %s %s is asked (%+.0f %%)\n", row_name(r), figure, cell[r, figure],
            at_least(figure) ? "least" : "most", cell[r, "target_" figure], by[r]
    }
    if (miss > 5) printf "                  and %d more\n", miss - 5
}
# What stands in bench/columns of a table ("*": of every one), but for columns that it does not have.
function explain(bench,    i, k, names, has) {
    for (i = 1; i <= n_captions; i++) {
        if (caption_of[i] != bench || caption_name[i] == "-") continue
        has = bench == "*"
        split(caption_name[i], names, ", ")
        for (k = 1; k in names; k++) if ((bench, names[k]) in column) has = 1
        if (has) printf "    %-*s  %s\n", caption_width[bench], caption_name[i], caption[i]
    }
}
function read_captions(file,    line, field) {
    while ((getline line < file) > 0) {
        if (line ~ /^(#|$)/ || split(line, field, / +\| +/) != 3) continue
        caption_of[++n_captions] = field[1]
        caption_name[n_captions] = field[2]
        caption[n_captions] = field[3]
        if (field[2] == "-") about[field[1]] = field[3]
        if (length(field[2]) > caption_width[field[1]]) caption_width[field[1]] = length(field[2])
    }
}
BEGIN {
    split("torch torch.compile jax llm.c", peers, " ")
    if (targets == "") targets = "bench/targets"
    if (of == "") of = "."
    if (captions == "") captions = "bench/columns"
    if (captions != "none") read_captions(captions)
}
END {
    for (r = 1; r <= n_rows; r++) judge(bench_of[r], r)
    for (r = 1; r <= n_rows; r++) for (p = 1; p in peers; p++) if ((r, "times_" peers[p]) in raw) seen["times_" peers[p]]
    if (n_captions && only != "targets") {
        printf "\nin every table\n"
        explain("*")
    }
    for (b = 1; b <= n_benches && only != "targets"; b++) {
        bench = benches[b]
        printf "\n%s", bench
        if (rows_with_targets[bench]) printf ": %d of %d rows reach what they should", reached[bench], rows_with_targets[bench]
        printf "\n"
        if (bench in about) printf "  %s\n", about[bench]
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
        explain(bench)
    }
    printf "\ntargets (bench/targets): how many rows reach each; of one that is missed the worst rows, what they have, what is asked\n"
    while ((getline line < targets) > 0)
        if (line !~ /^(#|$)/ && split(line, field, / +\| +/) == 5 && field[1] ~ of)
            conclude(field[1], field[2], field[3], field[4], field[5])
}
