/*
 * tests/support/trace_file.c -- reads trace-event files; shares no code with what writes them.
 */
#include "tests/support/trace_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const unsigned char *p, *end;
    const char *error;
    trace_file *f;
} reader;

/* Where a value goes: the key path is known to whoever asks for it. */
typedef struct scalar {
    char text[1024]; /* of a string: unescaped, cut if longer */
    bool is_number;
    int64_t thousandths; /* of a number */
} scalar;

static bool fail(reader *r, const char *error)
{
    r->error = r->error ? r->error : error;
    return false;
}

static void space(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\t' || *r->p == '\r')) {
        r->p++;
    }
}

static int peek(reader *r)
{
    space(r);
    return r->p < r->end ? *r->p : -1;
}

static bool take(reader *r, char c)
{
    if (peek(r) != c) {
        return fail(r, "another character was expected");
    }
    r->p++;
    return true;
}

static int hex4(reader *r)
{
    int v = 0;
    for (int i = 0; i < 4; i++, r->p++) {
        int c = r->p < r->end ? *r->p : 0;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) {
            fail(r, "a bad \\u escape");
            return -1;
        }
        v = v * 16 + d;
    }
    return v;
}

static size_t encode(unsigned v, char *out)
{
    if (v < 0x80) {
        out[0] = (char)v;
        return 1;
    }
    if (v < 0x800) {
        out[0] = (char)(0xC0 | v >> 6);
        out[1] = (char)(0x80 | (v & 63));
        return 2;
    }
    out[0] = (char)(0xE0 | v >> 12);
    out[1] = (char)(0x80 | (v >> 6 & 63));
    out[2] = (char)(0x80 | (v & 63));
    return 3;
}

/* Bytes of a well-formed character, by the table of the Unicode standard; 0: none. */
static size_t well_formed(const unsigned char *s, const unsigned char *end)
{
    static const struct {
        unsigned char lo, hi, second_lo, second_hi, length;
    } rows[] = {
        {0x20, 0x7F, 0, 0, 1},       {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
        {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
        {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (*s < rows[i].lo || *s > rows[i].hi || end - s < rows[i].length) {
            continue;
        }
        bool good = rows[i].length == 1 || (s[1] >= rows[i].second_lo && s[1] <= rows[i].second_hi);
        for (int k = 2; k < rows[i].length; k++) {
            good &= s[k] >= 0x80 && s[k] <= 0xBF;
        }
        return good ? rows[i].length : 0;
    }
    return 0;
}

static bool string(reader *r, char *out, size_t size)
{
    size_t n = 0;
    if (!take(r, '"')) {
        return false;
    }
    while (r->p < r->end && *r->p != '"') {
        char piece[4];
        size_t length;
        if (*r->p == '\\') {
            static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
            const char *at = r->p + 1 < r->end && r->p[1] ? strchr(from, r->p[1]) : NULL;
            if (at) {
                piece[0] = to[at - from];
                length = 1;
                r->p += 2;
            } else if (r->p + 1 < r->end && r->p[1] == 'u') {
                r->p += 2;
                int v = hex4(r);
                if (v < 0 || (v >= 0xD800 && v < 0xE000)) {
                    return fail(r, "a bad \\u escape");
                }
                length = encode((unsigned)v, piece);
            } else {
                return fail(r, "a bad escape");
            }
        } else {
            length = well_formed(r->p, r->end);
            if (!length) {
                return fail(r, "a control character, or not UTF-8");
            }
            memcpy(piece, r->p, length);
            r->p += length;
        }
        if (out && n + length < size) {
            memcpy(out + n, piece, length);
            n += length;
        }
    }
    if (out) {
        out[n] = 0;
    }
    return take(r, '"');
}

static bool number(reader *r, int64_t *thousandths)
{
    bool negative = *r->p == '-';
    r->p += negative;
    const unsigned char *first = r->p;
    int64_t v = 0;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
        v = v * 10 + (*r->p++ - '0');
    }
    if (r->p == first || (*first == '0' && r->p - first > 1)) {
        return fail(r, "a malformed number");
    }
    v *= 1000;
    if (r->p < r->end && *r->p == '.') {
        first = ++r->p;
        for (int64_t unit = 100; r->p < r->end && *r->p >= '0' && *r->p <= '9'; unit /= 10) {
            v += unit * (*r->p++ - '0');
        }
        if (r->p == first) {
            return fail(r, "a number without digits behind the point");
        }
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) { /* checked, not evaluated */
        r->p++;
        r->p += r->p < r->end && (*r->p == '+' || *r->p == '-');
        for (first = r->p; r->p < r->end && *r->p >= '0' && *r->p <= '9';) {
            r->p++;
        }
        if (r->p == first) {
            return fail(r, "a number without an exponent behind its e");
        }
    }
    *thousandths = negative ? -v : v;
    return true;
}

static bool value(reader *r, scalar *s, int depth);

static bool object(reader *r, trace_event *e, int depth)
{
    scalar s;
    char key[64];
    if (!take(r, '{')) {
        return false;
    }
    for (bool first = true; peek(r) != '}'; first = false) {
        if ((!first && !take(r, ',')) || !string(r, key, sizeof key) || !take(r, ':')) {
            return false;
        }
        if (e && strcmp(key, "args") == 0) {
            if (!object(r, e, depth + 1)) {
                return false;
            }
            continue;
        }
        memset(&s, 0, sizeof s);
        if (!value(r, &s, depth + 1)) {
            return false;
        }
        int64_t whole = s.thousandths / 1000;
        if (depth == 1 && strcmp(key, "events") == 0) {
            r->f->said_events = whole;
        } else if (depth == 1 && strcmp(key, "dropped") == 0) {
            r->f->said_dropped = whole;
        }
        if (!e) {
            continue;
        }
#define TEXT(field)                                                                                \
    if (strcmp(key, #field) == 0) {                                                                \
        snprintf(e->field, sizeof e->field, "%.*s", (int)sizeof e->field - 1, s.text);             \
    }
#define WHOLE(field)                                                                               \
    if (strcmp(key, #field) == 0) {                                                                \
        e->field = whole;                                                                          \
    }
        if (depth == 2 && strcmp(key, "ph") == 0) {
            e->ph = s.text[0];
        }
        TEXT(cat)
        if (depth == 2) {
            TEXT(name)
        }
        TEXT(detail)
        TEXT(site)
        WHOLE(pid)
        WHOLE(tid) WHOLE(bytes) WHOLE(id) e->ts = strcmp(key, "ts") == 0 ? s.thousandths : e->ts;
        e->dur = strcmp(key, "dur") == 0 ? s.thousandths : e->dur;
    }
    return take(r, '}');
}

static bool array(reader *r, bool events, int depth)
{
    scalar s;
    if (!take(r, '[')) {
        return false;
    }
    for (bool first = true; peek(r) != ']'; first = false) {
        if (!first && !take(r, ',')) {
            return false;
        }
        if (!events) {
            if (!value(r, &s, depth + 1)) {
                return false;
            }
            continue;
        }
        trace_file *f = r->f;
        if ((f->n & (f->n - 1)) == 0) { /* full at every power of two */
            size_t room = f->n ? 2 * (size_t)f->n : 1;
            trace_event *grown = realloc(f->events, room * sizeof *grown);
            if (!grown) {
                return fail(r, "no memory");
            }
            f->events = grown;
        }
        memset(&f->events[f->n], 0, sizeof *f->events);
        if (!object(r, &f->events[f->n++], 2)) {
            return false;
        }
    }
    return take(r, ']');
}

static bool word(reader *r, const char *w)
{
    size_t n = strlen(w);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0) {
        return fail(r, "an unknown word");
    }
    r->p += n;
    return true;
}

static bool value(reader *r, scalar *s, int depth)
{
    if (depth > 16) {
        return fail(r, "too deep");
    }
    switch (peek(r)) {
    case '{':
        return object(r, NULL, depth);
    case '[':
        return array(r, false, depth);
    case '"':
        return string(r, s->text, sizeof s->text);
    case 't':
        return word(r, "true");
    case 'f':
        return word(r, "false");
    case 'n':
        return word(r, "null");
    case -1:
        return fail(r, "the text ends early");
    }
    s->is_number = true;
    return number(r, &s->thousandths);
}

/* {"traceEvents":[...], ...} */
static bool top(reader *r)
{
    char key[64];
    scalar s;
    if (!take(r, '{')) {
        return false;
    }
    for (bool first = true; peek(r) != '}'; first = false) {
        if ((!first && !take(r, ',')) || !string(r, key, sizeof key) || !take(r, ':')) {
            return false;
        }
        if (!(strcmp(key, "traceEvents") == 0 ? array(r, true, 1) : value(r, &s, 1))) {
            return false;
        }
    }
    return take(r, '}') && (peek(r) == -1 || fail(r, "text behind the end"));
}

bool trace_is_json(const char *text)
{
    trace_file f = {0};
    scalar s;
    const unsigned char *p = (const unsigned char *)text;
    reader r = {p, p + strlen(text), NULL, &f};
    return value(&r, &s, 0) && peek(&r) == -1;
}

char *trace_file_text(const char *path, size_t *n)
{
    const size_t length = strlen(path);
    const bool zipped = length > 3 && strcmp(path + length - 3, ".gz") == 0;
    char command[512], *text = NULL;
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *in = zipped ? popen(command, "r") : fopen(path, "rb");
    size_t room = 1 << 16;
    bool good = in != NULL;
    for (*n = 0; good; room *= 2) {
        char *more = realloc(text, room + 1);
        good = more != NULL;
        text = more ? more : text;
        *n += good ? fread(text + *n, 1, room - *n, in) : 0;
        if (*n < room) {
            break;
        }
    }
    good = good && !ferror(in);
    if (in) {
        good = (zipped ? pclose(in) : fclose(in)) == 0 && good;
    }
    if (!good) {
        free(text);
        return NULL;
    }
    text[*n] = 0;
    return text;
}

trace_file trace_file_read(const char *path)
{
    trace_file f = {.said_events = -1, .said_dropped = -1};
    size_t size;
    char *text = trace_file_text(path, &size);
    if (text) {
        const unsigned char *start = (const unsigned char *)text;
        reader r = {start, start + size, NULL, &f};
        if (!top(&r)) {
            snprintf(f.error, sizeof f.error, "%s, at byte %ld of %zu", r.error ? r.error : "?",
                     (long)(r.p - start), size);
        }
    } else {
        snprintf(f.error, sizeof f.error, "it cannot be read");
    }
    free(text);
    return f;
}

void trace_file_free(trace_file *f)
{
    free(f->events);
    f->events = NULL;
    f->n = 0;
}

static int by_track_and_time(const void *a, const void *b)
{
    const trace_event *x = a, *y = b;
#define ORDER(p, q)                                                                                \
    if ((p) != (q)) {                                                                              \
        return (p) < (q) ? -1 : 1;                                                                 \
    }
    ORDER(x->pid, y->pid)
    ORDER(x->tid, y->tid)
    ORDER(x->ts, y->ts)
    ORDER(y->dur, x->dur)
    return 0;
}

bool trace_file_nests(trace_file *f)
{
    int64_t open[64];
    int depth = 0;
    const trace_event *before = NULL;
    qsort(f->events, (size_t)f->n, sizeof *f->events, by_track_and_time);
    for (int i = 0; i < f->n; i++) {
        const trace_event *e = &f->events[i];
        if (e->ph != 'X') {
            continue;
        }
        if (!before || before->pid != e->pid || before->tid != e->tid) {
            depth = 0;
        }
        while (depth && open[depth - 1] <= e->ts) {
            depth--;
        }
        if (depth == 64 || e->dur < 0 || (depth && open[depth - 1] < e->ts + e->dur)) {
            return false;
        }
        open[depth++] = e->ts + e->dur;
        before = e;
    }
    return true;
}

const trace_event *trace_find(const trace_file *f, const char *cat, const char *name, int n)
{
    for (int i = 0; i < f->n; i++) {
        const trace_event *e = &f->events[i];
        if (strcmp(e->cat, cat) == 0 && (!name || strcmp(e->name, name) == 0) && n-- == 0) {
            return e;
        }
    }
    return NULL;
}

int trace_count(const trace_file *f, const char *cat, const char *name)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) {
        const trace_event *e = &f->events[i];
        n += strcmp(e->cat, cat) == 0 && (!name || strcmp(e->name, name) == 0);
    }
    return n;
}
