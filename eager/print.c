/*
 * eager/print.c -- tensors as text, by NumPy's rules.
 *
 * The rules (numpy.array2string): all numbers of a tensor share one format. Floats are written with
 * the fewest digits that identify them, cut at 4 after the point; scientific when the largest is 1e8
 * or more, the smallest non-zero one is below 1e-4, or their ratio is above 1000. Columns are aligned
 * at the point. Rows wrap at 75 columns. More than 1000 elements: axes longer than 6 show 3 at each
 * end, and the format is chosen from what is shown. Behind the text stand dtype and shape.
 *
 * Two passes over the shown elements: the first finds the format, the second writes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"
#include "eager/call.h"
#include "eager/pool.h"
#include "jit/ir/plain_numbers.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { PRECISION = 4, THRESHOLD = 1000, EDGE = 3, LINE_WIDTH = 75, WORD = 64 };

/* -- growing text ------------------------------------------------------------------------------------------ */

typedef struct text {
    char *p;
    size_t n, cap;
    bool failed; /* out of memory: what is added is dropped */
} text;

static void add(text *t, const char *s, size_t n)
{
    if (t->failed) {
        return;
    }
    if (t->n + n + 1 > t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 256;
        while (cap < t->n + n + 1) {
            cap *= 2;
        }
        char *p = wf_realloc(t->p, cap);
        if (!p) {
            t->failed = true;
            return;
        }
        t->p = p;
        t->cap = cap;
    }
    memcpy(t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void add_str(text *t, const char *s)
{
    add(t, s, strlen(s));
}

/* -- digits ------------------------------------------------------------------------------------------------- */

static double rounded(double v, int dtype)
{
    return dtype == WEFT_F16    ? (double)wf_f32_of_f16(wf_f16_of_f32((float)v))
           : dtype == WEFT_BF16 ? (double)wf_f32_of_bf16(wf_bf16_of_f32((float)v))
           : dtype == WEFT_F32  ? (double)(float)v
                                : v;
}

static bool reads_back(const char *s, int dtype, double v)
{
    return (dtype == WEFT_F32 ? (double)strtof(s, NULL) : rounded(strtod(s, NULL), dtype)) == v;
}

/* The fewest digits that identify v > 0 in its type (into d, terminated), v = 0.d1d2.. * 10^result. */
static int shortest(double v, int dtype, char d[24])
{
    char s[40];
    int n = 1;
    for (;; n++) {
        snprintf(s, sizeof s, "%.*e", n - 1, v);
        if (n == 17 || reads_back(s, dtype, v)) {
            break;
        }
    }
    d[0] = s[0];
    memcpy(d + 1, s + 2, (size_t)(n - 1));
    while (n > 1 && d[n - 1] == '0') {
        n--;
    }
    d[n] = '\0';
    return atoi(strchr(s, 'e') + 1) + 1;
}

/* Removes zeros at the end of a fraction, down to `least` characters. */
static void trim(char *s, int least)
{
    size_t n = strlen(s);
    while (n > (size_t)least && s[n - 1] == '0') {
        s[--n] = '\0';
    }
}

/* v >= 0 as "12.25" or "3.": at most PRECISION digits after the point, no zeros at the end. */
static void positional(double v, int dtype, char out[WORD])
{
    char d[24];
    if (v == 0) {
        memcpy(out, "0.", 3);
        return;
    }
    int point = shortest(v, dtype, d), n = (int)strlen(d);
    if (n - point > PRECISION) {
        snprintf(out, WORD, "%.*f", PRECISION, v);
        out[strlen(out) - PRECISION - 1] = '.';
        trim(out, 0);
        return;
    }
    if (point > n) { /* the integer part is exact */
        snprintf(out, WORD, "%.0f.", v);
        return;
    }
    int at = 0;
    for (int i = point < 1 ? point - 1 : 0; i < n; i++) {
        if (i == point) {
            out[at++] = '.';
        }
        out[at++] = i >= 0 ? d[i] : '0';
    }
    if (point == n) {
        out[at++] = '.';
    }
    out[at] = '\0';
}

/* v >= 0 as digits "d.ddd" and exponent: at most PRECISION and, in exact decimals, at least `fraction`
 * after the point, no zeros at the end beyond those. */
static int scientific(double v, int dtype, int fraction, char out[WORD])
{
    char d[24], s[40];
    if (v == 0) {
        snprintf(out, WORD, "0.%.*s", fraction, "0000");
        return 0;
    }
    int e = shortest(v, dtype, d) - 1, have = (int)strlen(d) - 1;
    int want = have > PRECISION ? PRECISION : fraction > have ? fraction : have;
    if (want != have) {
        snprintf(s, sizeof s, "%.*e", want, v);
        e = atoi(strchr(s, 'e') + 1);
        d[0] = s[0];
        memcpy(d + 1, s + 2, (size_t)want);
        d[1 + want] = '\0';
    }
    snprintf(out, WORD, "%c.%s", d[0], d + 1);
    trim(out, 2 + fraction);
    return e;
}

/* -- one format for all elements ------------------------------------------------------------------------------ */

typedef struct format {
    int dtype;
    bool exponent;
    bool any, special, negative_inf; /* finite seen; NaN or inf seen */
    double largest, smallest;        /* of |x|, x finite and not 0 */
    int left, right, exp_digits;     /* columns before and after the point */
    int width;                       /* integers and bool */
} format;

typedef struct source {
    const char *data;
    int rank;
    int64_t dims[WF_MAX_RANK], step[WF_MAX_RANK]; /* step in bytes */
    bool summary;
} source;

static bool shown_all(const source *s, int axis)
{
    return !s->summary || s->dims[axis] <= 2 * EDGE;
}

typedef void (*visit_fn)(format *f, const char *p);

static void visit(const source *s, int axis, const char *p, visit_fn fn, format *f)
{
    if (axis == s->rank) {
        fn(f, p);
        return;
    }
    int64_t n = s->dims[axis];
    for (int64_t i = 0; i < n; i++) {
        if (i == EDGE && !shown_all(s, axis)) {
            i = n - EDGE;
        }
        visit(s, axis + 1, p + i * s->step[axis], fn, f);
    }
}

static void look_range(format *f, const char *p)
{
    double v = wf_element_f64(f->dtype, p), a = fabs(v);
    if (!isfinite(v)) {
        f->special = true;
        f->negative_inf |= v < 0;
        return;
    }
    f->any = true;
    if (a != 0) {
        f->largest = a > f->largest ? a : f->largest;
        f->smallest = f->smallest == 0 || a < f->smallest ? a : f->smallest;
    }
}

static void look_width(format *f, const char *p)
{
    double v = wf_element_f64(f->dtype, p);
    char s[WORD];
    if (!isfinite(v)) {
        return;
    }
    if (f->exponent) {
        int e = scientific(fabs(v), f->dtype, 0, s);
        int digits = e > 99 || e < -99 ? 3 : 2;
        f->exp_digits = digits > f->exp_digits ? digits : f->exp_digits;
    } else {
        positional(fabs(v), f->dtype, s);
    }
    int left = (int)(strchr(s, '.') - s) + (signbit(v) != 0),
        right = (int)strlen(strchr(s, '.')) - 1;
    f->left = left > f->left ? left : f->left;
    f->right = right > f->right ? right : f->right;
}

static int integer(int dtype, const char *p, char out[WORD])
{
    if (dtype == WEFT_BOOL) {
        return snprintf(out, WORD, "%s", *(const uint8_t *)p ? "True" : "False");
    }
    long long v =
        dtype == WEFT_I64 ? *(const int64_t *)(const void *)p : (long long)wf_element_f64(dtype, p);
    return snprintf(out, WORD, "%lld", v);
}

static void look_integer(format *f, const char *p)
{
    char s[WORD];
    int n = integer(f->dtype, p, s);
    f->width = n > f->width ? n : f->width;
}

static void choose(format *f, const source *s)
{
    if (wf_dtype_kind(f->dtype) < 2) {
        visit(s, 0, s->data, look_integer, f);
        if (f->dtype == WEFT_BOOL && s->rank > 0) {
            f->width = 5; /* as NumPy: " True" even where no False is */
        }
        return;
    }
    visit(s, 0, s->data, look_range, f);
    /* NumPy compares in the tensor's own type: 1e-4 itself does not count as below 1e-4. */
    f->exponent = f->largest != 0 && (f->largest >= 1e8 || f->smallest < rounded(1e-4, f->dtype) ||
                                      rounded(f->largest / f->smallest, f->dtype) > 1000);
    visit(s, 0, s->data, look_width, f);
    if (f->special) {
        int right = f->exponent ? f->exp_digits + 2 + f->right : f->right;
        int need = 3 + f->negative_inf - (right + 1);
        f->left = need > f->left ? need : f->left;
    }
}

/* One element, as wide as all others. */
static int word(const format *f, const char *p, char out[2 * WORD])
{
    char s[WORD];
    if (wf_dtype_kind(f->dtype) < 2) {
        integer(f->dtype, p, s);
        return snprintf(out, 2 * WORD, "%*s", f->width, s);
    }
    double v = wf_element_f64(f->dtype, p);
    if (!isfinite(v)) {
        int right = f->exponent ? f->exp_digits + 2 + f->right : f->right;
        return snprintf(out, 2 * WORD, "%*s", f->left + right + 1,
                        isnan(v) ? "nan"
                        : v < 0  ? "-inf"
                                 : "inf");
    }
    int e = 0;
    if (f->exponent) {
        e = scientific(fabs(v), f->dtype, f->right, s);
    } else {
        positional(fabs(v), f->dtype, s);
    }
    int left = (int)(strchr(s, '.') - s), right = (int)strlen(s) - left - 1;
    int at = snprintf(out, 2 * WORD, "%*s%s", f->left - left, signbit(v) ? "-" : "", s);
    for (; right < f->right; right++) {
        out[at++] = f->exponent ? '0' : ' ';
    }
    out[at] = '\0';
    if (f->exponent) {
        at += snprintf(out + at, (size_t)(2 * WORD - at), "e%c%0*d", e < 0 ? '-' : '+',
                       f->exp_digits, abs(e));
    }
    return at;
}

/* -- layout ------------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const source *src;
    const format *f;
    text *out;
    size_t line; /* where the current line starts */
} writer;

static void rstrip(text *t)
{
    while (!t->failed && t->n && t->p[t->n - 1] == ' ') {
        t->p[--t->n] = '\0';
    }
}

static void indent(writer *w, int depth)
{
    for (int i = 0; i < depth; i++) {
        add(w->out, " ", 1);
    }
}

/* A word of a row; wraps when it does not fit and more than the indentation is on the line. */
static void put_word(writer *w, const char *s, int depth, int width)
{
    size_t on_line = w->out->n - w->line;
    if (on_line + strlen(s) > (size_t)(width > 0 ? width : 0) && on_line > (size_t)depth) {
        rstrip(w->out);
        add(w->out, "\n", 1);
        w->line = w->out->n;
        indent(w, depth);
    }
    add_str(w->out, s);
}

/* Elements of the last axis; depth = brackets already open, this row's included. */
static void put_row(writer *w, const char *p, int axis, int depth)
{
    const source *s = w->src;
    int64_t n = s->dims[axis];
    int width = LINE_WIDTH - depth;
    char buf[2 * WORD];
    for (int64_t i = 0; i < n; i++) {
        if (i == EDGE && !shown_all(s, axis)) {
            put_word(w, "...", depth, width);
            add(w->out, " ", 1);
            i = n - EDGE;
        }
        word(w->f, p + i * s->step[axis], buf);
        put_word(w, buf, depth, width);
        if (i + 1 < n) {
            add(w->out, " ", 1);
        }
    }
}

static void put_axis(writer *w, const char *p, int axis)
{
    const source *s = w->src;
    int depth = axis + 1;
    add(w->out, "[", 1);
    if (axis == s->rank - 1) {
        put_row(w, p, axis, depth);
        add(w->out, "]", 1);
        return;
    }
    int64_t n = s->dims[axis];
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) {
            for (int k = axis; k < s->rank - 1; k++) {
                add(w->out, "\n", 1);
            }
            w->line = w->out->n;
            indent(w, depth);
        }
        if (i == EDGE && !shown_all(s, axis)) {
            add_str(w->out, "...");
            i = n - EDGE - 1;
            continue;
        }
        put_axis(w, p + i * s->step[axis], axis + 1);
    }
    add(w->out, "]", 1);
}

static void put_suffix(text *t, const wf_slot *slot, const wf_type *type)
{
    char s[32];
    snprintf(s, sizeof s, " %s[", wf_dtype_name(type->dtype));
    add_str(t, s);
    for (int i = 0; i < type->rank; i++) {
        snprintf(s, sizeof s, i ? ",%lld" : "%lld", (long long)type->dims[i]);
        add_str(t, s);
    }
    add(t, "]", 1);
    if (slot->st->device != WF_DEVICE_HOST) {
        add_str(t, " ");
        add_str(t, wf_device_code_name(slot->st->device));
    }
    if (slot->flags & WF_SLOT_REQUIRES_GRAD) {
        add_str(t, " requires_grad");
    } else if (wf_slot_tracked(slot)) {
        char name[WF_NAME_SIZE];
        const wf_ctx *c = wf_ctx_get();
        const char *op = wf_slot_root(slot) ? wf_write_name(slot->st->write_op, name)
                         : wf_tape_api && c ? wf_tape_api->maker(c, slot)
                                            : NULL;
        add_str(t, op ? " recorded by " : " recorded");
        add_str(t, op ? op : "");
    }
}

static void render(wf_slot *slot, const wf_view *v, text *t)
{
    const wf_plain_numbers was = wf_plain_numbers_begin();
    const unsigned mode =
        wf_fpenv_enter(); /* where subnormals count as zeros they would print so */
    wf_type type;
    source s = {.data = v->data, .rank = slot->rank};
    wf_slot_type(slot, &type);
    int64_t numel = wf_type_numel(&type), size = (int64_t)wf_dtype_size(type.dtype);
    for (int i = 0; i < s.rank; i++) {
        s.dims[i] = type.dims[i];
        s.step[i] = v->strides[i] * size;
    }
    s.summary = numel > THRESHOLD;
    if (numel == 0) {
        add_str(t, "[]");
    } else {
        format f = {.dtype = type.dtype};
        choose(&f, &s);
        writer w = {.src = &s,
                    .f = &f,
                    .out = t,
                    .line = t->n}; /* the text may hold a line of describe's */
        if (s.rank == 0) {
            char buf[2 * WORD];
            word(&f, s.data, buf);
            add_str(t, buf);
        } else {
            put_axis(&w, s.data, 0);
        }
    }
    put_suffix(t, slot, &type);
    wf_fpenv_leave(mode);
    wf_plain_numbers_end(was);
}

/* The slot's elements, brought to host memory if they are not there. */
static void show(wf_slot *slot, text *t, wf_why *why)
{
    wf_view v;
    wf_slot_view(slot, &v);
    if (v.device == WF_DEVICE_HOST) {
        render(slot, &v, t);
        return;
    }
    size_t bytes = (size_t)wf_view_numel(&v) * wf_dtype_size(v.dtype);
    wf_view h = v;
    h.device = WF_DEVICE_HOST;
    h.data = wf_alloc(bytes);
    if (!h.data) {
        wf_fail(why, WEFT_ENOMEM, "out of memory for %zu bytes of elements", bytes);
        return;
    }
    wf_view_make_dense(&h);
    if (!wf_storage_use(slot->st, false, why) && !wf_device_read(v.device, &h, &v, why)) {
        render(slot, &h, t);
    }
    wf_free(h.data, bytes);
}

/* The whole text; false: an error is recorded. The caller frees t->p. */
static bool to_text(const char *op, weft_tensor x, text *t)
{
    wf_ctx *c = wf_ctx_get();
    if (!c || wf_is_error(x)) {
        wf_error_again(c, x);
        wf_error_told(c, x, true);
        return false;
    }
    weft_scope sc = weft_scope_begin();
    weft_tensor shown = wf_is_scalar(x) ? wf_scalar_tensor(x) : x;
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = wf_pin(c, shown, &pinned, &why);
    if (s && !wf_need_value(c, s, false, op, &why)) {
        show(s, t, &why);
        if (t->failed) {
            wf_fail(&why, WEFT_ENOMEM, "out of memory for the text");
        }
    }
    c->here = NULL;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    weft_scope_end(sc);
    if (why.code) {
        wf_raise(c, op, 1, &x, &why);
    }
    return why.code == 0;
}

static weft_status print_failed(weft_tensor x)
{
    return wf_is_error(x) ? weft_error_status(x) : weft_last_status();
}

weft_status(weft_fprint)(FILE *out, weft_tensor x)
{
    text t = {0};
    if (!out) {
        return weft_error_status(wf_api_null("fprint", "the file"));
    }
    if (!to_text("print", x, &t)) {
        wf_mfree(t.p);
        return print_failed(x);
    }
    bool ok = fwrite(t.p, 1, t.n, out) == t.n && fputc('\n', out) != EOF;
    wf_mfree(t.p);
    return ok ? WEFT_OK
              : weft_error_status(wf_api_error("print", WEFT_EIO, "the text cannot be written"));
}

weft_status(weft_print)(weft_tensor x)
{
    return (weft_fprint)(stdout, x);
}

const char *weft_describe(weft_tensor x)
{
    wf_ctx *c = wf_ctx_get();
    char line[512];
    bool pinned = false;
    if (!c) {
        return "(out of memory)";
    }
    wf_describe(c, x, line, sizeof line);
    text t = {0};
    add_str(&t, line);
    if (wf_is_error(x) && !wf_is_scalar(x)) {
        add_str(&t, ": ");
        add_str(&t, weft_error_text(x));
    }
    wf_slot *s = wf_is_scalar(x) || wf_is_absent(x) ? NULL : wf_pin(c, x, &pinned, NULL);
    if (s && s->st && !s->st->device) {
        if (atomic_load_explicit(&s->st->is_virtual, memory_order_acquire)) {
            add_str(&t, ", recorded, not computed yet");
        } else if (s->st->broken &&
                   (s->st->broken != WF_ARRIVING ||
                    wf_storage_arrive(s->st, NULL))) { /* there may be no memory at all */
            char reason[WF_BROKEN_SIZE];
            add_str(&t, ", holds no valid value: ");
            add_str(&t, wf_broken_text(s->st, reason));
        } else {
            wf_view v;
            wf_slot_view(s, &v);
            add_str(&t, "\n");
            render(s, &v, &t);
        }
    }
    if (pinned) {
        wf_unpin(c, s);
    }
    if (t.failed) {
        wf_mfree(t.p);
        return "(out of memory)";
    }
    wf_mfree(c->described);
    return c->described = t.p;
}

int64_t weft_to_string(weft_tensor x, char *buf, size_t size)
{
    text t = {0};
    if (!buf && size) {
        wf_api_null("to_string", "the buffer");
        return -1;
    }
    if (!to_text("to_string", x, &t)) {
        wf_mfree(t.p);
        return -1;
    }
    if (size) {
        size_t n = t.n < size ? t.n : size - 1;
        memcpy(buf, t.p, n);
        buf[n] = '\0';
    }
    wf_mfree(t.p);
    return (int64_t)t.n;
}
