# script/timeline.awk -- draws a profile with work on a GPU: see script/timeline.
#
# The profile has one event a line (eager/profile_write.c). Variables: range, launches, queue, steps (files to write), figures (a name: rows are printed), idle (the per cent that the last step may be idle: a target in its row).

function text(key,   a, n) { # the string after "key":
    a = "\"" key "\":\""
    n = index($0, a)
    if (!n) return ""
    a = substr($0, n + length(a))
    n = match(a, /[^\\]"/)
    return n ? substr(a, 1, n) : ""
}
function number(key,   a, n) {
    a = "\"" key "\":"
    n = index($0, a)
    return n ? substr($0, n + length(a)) + 0 : 0
}
function safe(s) {
    gsub(/&/, "\\&amp;", s)
    gsub(/</, "\\&lt;", s)
    gsub(/>/, "\\&gt;", s)
    return s
}
function colour(s,   i, h) { # of an op, wherever it appears
    h = 7
    for (i = 1; i <= length(s); i++) h = (h * 31 + index(letters, substr(s, i, 1))) % 9973
    return palette[h % 8]
}
# A box from a to b on the row at y, named.
function box(file, a, b, y, h, fill, name,   x, w) {
    x = left + (a - from) * scale
    w = (b - a) * scale
    w = w < 0.6 ? 0.6 : w
    printf "<rect x='%.1f' y='%d' width='%.1f' height='%d' fill='%s'><title>%s, %.1f us</title></rect>\n", x, y, w, h, fill, safe(name), b - a > file
    if (w > 7 * length(name) && h > 14)
        printf "<text x='%.1f' y='%d' fill='#fff'>%s</text>\n", x + 3, y + h / 2 + 4, safe(name) > file
}
function words(file, x, y, s) { printf "<text x='%.1f' y='%.1f'>%s</text>\n", x, y, safe(s) > file }
function open_picture(file, height, title) {
    printf "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='11'>\n", left + width + 20, height > file
    printf "<title>%s</title>\n<rect width='100%%' height='100%%' fill='#fff'/>\n", safe(title) > file
    words(file, 10, 18, title)
}
function axis(file, y,   span, step, t) {
    span = to - from
    step = 1
    while (span / step > 10) step *= step ~ /^2/ ? 2.5 : 2
    for (t = 0; t <= span; t += step) {
        printf "<line x1='%.1f' y1='%d' x2='%.1f' y2='%d' stroke='#999'/>\n", left + t * scale, y, left + t * scale, y + 4 > file
        words(file, left + t * scale - 6, y + 16, t >= 10000 ? t / 1000 " ms" : t " us")
    }
}

BEGIN {
    letters = "abcdefghijklmnopqrstuvwxyz_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ .-"
    split("#3b6fb6 #b6563b #4f8f4a #8a5aa8 #b08a2e #2e8f95 #a8456f #6b7280", colours, " ")
    for (i = 0; i < 8; i++) palette[i] = colours[i + 1]
    left = 70
    width = 1100
}

{
    ph = text("ph")
    if (ph == "X") {
        e = ++n
        cat[e] = text("cat")
        name[e] = text("name")
        pid[e] = number("pid")
        tid[e] = number("tid")
        ts[e] = number("ts")
        end[e] = ts[e] + number("dur")
        if (cat[e] == "device") {
            ndevice++
            done_at[pid[e] "," tid[e] "," sprintf("%.3f", ts[e])] = end[e]
        }
    } else if (ph == "s") {
        sent[number("id")] = number("ts")
        sent_by[number("id")] = number("tid")
    } else if (ph == "f") {
        came[number("id")] = number("ts")
        on[number("id")] = number("pid") "," number("tid")
    }
}

# The steps, by time, into step[1 .. nstep] (event numbers).
function find_steps(kind, what,   e, i, k) {
    nstep = 0
    for (e = 1; e <= n; e++) {
        if (cat[e] != kind || (what != "" && name[e] != what)) continue
        for (i = ++nstep; i > 1 && ts[step[i - 1]] > ts[e]; i--) step[i] = step[i - 1]
        step[i] = e
    }
    return nstep
}

# Is launch `id` of step s, and its work known?
function is_of(id, s) {
    return (id in came) && sent_by[id] == tid[s] && sent[id] >= ts[s] && sent[id] <= end[s]
}

# The first launches of step s in the order of time, into order[1 .. norder] (flow numbers).
function find_launches(s, most,   id, best, after) {
    norder = 0
    after = -1
    while (norder < most) {
        best = ""
        for (id in sent)
            if (is_of(id, s) && sent[id] > after && (best == "" || sent[id] < sent[best])) best = id
        if (best == "") return
        order[++norder] = best
        after = sent[best]
    }
}

function device_end(id,   key) { # of the work that a launch caused
    key = on[id] "," sprintf("%.3f", came[id])
    return key in done_at ? done_at[key] : came[id]
}

function draw_queue(s,   i, id, e, x, y, last, ahead) {
    find_launches(s, launches)
    if (!norder) return 0
    from = ts[s]
    for (e = 1; e <= n; e++) # the op that the first launch is part of
        if (tid[e] == tid[s] && cat[e] == "op" && ts[e] <= sent[order[1]] && end[e] >= sent[order[1]]) from = ts[e]
    from = from < sent[order[1]] - 200 ? sent[order[1]] - 20 : from
    to = from
    for (i = 1; i <= norder; i++) {
        last = device_end(order[i])
        to = last > to ? last : to
        to = sent[order[i]] > to ? sent[order[i]] : to
        ahead += came[order[i]] - sent[order[i]]
    }
    to += (to - from) / 50 + 1
    scale = width / (to - from)
    open_picture(queue, 220, sprintf("The host queues work ahead of the device: %d launches, begun %.1f us after they were queued on average", norder, ahead / norder))
    words(queue, 10, 66, "host")
    words(queue, 10, 156, "device")
    printf "<rect x='%d' y='40' width='%d' height='44' fill='#e3e3e3'/>\n", left, width > queue
    for (e = 1; e <= n; e++) # host: ops, and in them launches
        if (tid[e] == tid[s] && pid[e] == pid[s] && (cat[e] == "op" || cat[e] == "kernel") && ts[e] >= from && ts[e] < to)
            box(queue, ts[e], end[e] < to ? end[e] : to, 40, 26, colour(name[e]), name[e])
    for (e = 1; e <= n; e++)
        if (tid[e] == tid[s] && pid[e] == pid[s] && cat[e] == "launch" && ts[e] >= from && ts[e] < to)
            box(queue, ts[e], end[e] < to ? end[e] : to, 68, 14, "#444", name[e])
    for (e = 1; e <= n; e++)
        if (cat[e] == "device" && end[e] > from && ts[e] < to)
            box(queue, ts[e] > from ? ts[e] : from, end[e] < to ? end[e] : to, 136, 30, colour(name[e]), name[e])
    printf "<defs><marker id='tip' markerWidth='6' markerHeight='6' refX='5' refY='3' orient='auto'><path d='M0,0 L6,3 L0,6 z' fill='#333'/></marker></defs>\n" > queue
    for (i = 1; i <= norder; i++) {
        id = order[i]
        printf "<line class='arrow' x1='%.1f' y1='84' x2='%.1f' y2='134' stroke='#333' stroke-width='0.8' marker-end='url(#tip)'/>\n", left + (sent[id] - from) * scale, left + (came[id] - from) * scale > queue
    }
    axis(queue, 180)
    print "</svg>" > queue
    return 1
}

# One step as three rows at y.
function draw_step(s, y, what,   e, a, b, busy, compile, memory, calls, launched) {
    from = ts[s]
    words(steps, left, y - 8, what)
    words(steps, 10, y + 16, "host")
    words(steps, 10, y + 50, "compiler")
    words(steps, 10, y + 80, "device")
    printf "<rect x='%d' y='%d' width='%.1f' height='24' fill='#e3e3e3'/>\n", left, y, (end[s] - from) * scale > steps
    for (e = 1; e <= n; e++) {
        a = ts[e] > from ? ts[e] : from
        b = from + (cat[e] == "device" ? length_of[s] : end[s] - from) # of the next step nothing
        b = end[e] < b ? end[e] : b
        if (b <= a) continue
        if (cat[e] == "device") {
            busy += b - a
            box(steps, a, b, y + 66, 20, "#4f8f4a", name[e])
        } else if (cat[e] == "compile") {
            compile += b - a
            box(steps, a, b, tid[e] == tid[s] ? y : y + 36, 20, "#b6563b", name[e])
        } else if (name[e] ~ /^driver memory/) {
            memory += b - a
            calls++
            box(steps, a, b, y, 24, "#e0a32e", name[e])
        } else if (cat[e] == "launch" && tid[e] == tid[s]) {
            launched++
            box(steps, a, b, y + 4, 16, "#3b6fb6", name[e])
        }
    }
    words(steps, left, y + 104, sprintf("host %.1f us, device busy %.1f us; %d launches, %.1f us of memory calls to the driver, %.1f us of kernels being made", end[s] - from, busy, launched, memory, compile))
    if (figures == "") return
    printf "{\"bench\":\"timeline\",\"case\":\"%s\",\"size\":\"%s\",\"us\":%.1f,\"host_us\":%.1f,\"device_us\":%.1f,\"launches\":%d,", figures, what, length_of[s], end[s] - from, busy, launched
    printf "\"memory_calls\":%d,\"memory_us\":%.1f,\"compile_us\":%.1f,\"queued_ahead_us\":%.1f,\"idle_percent\":%.1f", calls, memory, compile, ahead_of(s), idle_of(s)
    printf "%s}\n", idle != "" && s == late ? ",\"target_idle_percent\":" idle : ""
}

# How long after its launch the work of step s began, on average.
function ahead_of(s,   id, k, sum) {
    for (id in sent)
        if (is_of(id, s)) {
            sum += came[id] - sent[id]
            k++
        }
    return k ? sum / k : 0
}

# Per cent of the time from the first work of step s on the device to its last in which the device did nothing. At most that: the
# times are a profile's, whose events between kernels are part of the gaps.
function idle_of(s,   id, k, i, b, at, until, gaps) {
    for (id in sent) {
        if (!is_of(id, s)) continue
        for (i = ++k; i > 1 && at[i - 1] > came[id]; i--) {
            at[i] = at[i - 1]
            b[i] = b[i - 1]
        }
        at[i] = came[id]
        b[i] = device_end(id)
    }
    until = at[1]
    for (i = 1; i <= k; i++) {
        gaps += at[i] > until ? at[i] - until : 0
        until = b[i] > until ? b[i] : until
    }
    return k && until > at[1] ? 100 * gaps / (until - at[1]) : 0
}

# Until the device has done what the step queued.
function span_of(s,   id, last) {
    length_of[s] = end[s] - ts[s]
    for (id in sent) {
        if (!is_of(id, s)) continue
        last = device_end(id) - ts[s]
        if (last > length_of[s]) length_of[s] = last
    }
    return length_of[s]
}

END {
    if (!ndevice) {
        print "timeline: the trace has no work of a device" > "/dev/stderr"
        exit 1
    }
    if (!find_steps("range", range) && !find_steps("call", "")) {
        print "timeline: the trace has no ranges called " range " and no traced calls" > "/dev/stderr"
        exit 1
    }
    late = step[nstep]
    if (!draw_queue(late)) {
        print "timeline: nothing was launched in the last step" > "/dev/stderr"
        exit 1
    }
    a = span_of(step[1])
    b = span_of(late)
    from = 0
    to = a > b ? a : b
    scale = width / to
    open_picture(steps, 330, sprintf("The first step and step %d, on one scale", nstep))
    draw_step(step[1], 50, "step 1")
    draw_step(late, 190, "step " nstep)
    from = 0
    axis(steps, 304)
    print "</svg>" > steps
    printf "%s, %s: %d steps; the first took %.1f us, the last %.1f us\n", queue, steps, nstep, a, b
}
