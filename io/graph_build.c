/*
 * io/graph_build.c -- recording a graph.
 *
 * A function with symbols is recorded again, with other sizes, and the recordings become one (graph_bind.c).
 *
 * That recordings at some sizes agree says nothing of others: a host branch (`n == 1 ? ... : ...`) would go unseen. So the function
 * is recorded again at the sizes where one is likely, 1, 2 and far above, and has to be what the symbols say there. Where extents
 * are 1 or 2 it may be written otherwise (a view that is contiguous, nothing to expand) as long as it computes the same bits, which
 * is tried on a few numbers.
 *
 * A function that fails at other sizes may be one for multiples of some integer (n / 4 rows of 4), or for what is as much more. Which
 * is found by asking it, in steps from the example's size; all sizes above are then such, and n / 4 is an extent of symbol n.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "io/graph.h"
#include "jit/passes/oracle.h"
#include "jit/trace.h"

/* -- recording ----------------------------------------------------------------------------------------- */

typedef struct recording {
    wf_fn *fn;
    weft_tensor *captured; /* inputs, then weights; kept */
    int n;
} recording;

static void drop_recording(recording *r)
{
    for (int i = 0; i < r->n; i++) {
        weft_free(r->captured[i]);
    }
    wf_mfree(r->captured);
    wf_fn_free(r->fn);
    *r = (recording){0};
}

/* Makes x the next input of the trace. */
static int trace_input(wf_trace *t, weft_tensor x)
{
    wf_why why = {0};
    bool pinned;
    wf_val v;
    wf_slot *s = wf_pin(t->c, x, &pinned, &why);
    int rc = s ? wf_trace_value(t, s, &v, &why) : why.code;
    if (s && pinned) {
        wf_unpin(t->c, s);
    }
    return rc ? wf_raise_status(t->c, "jit_graph", 1, &x, &why) : 0;
}

/* Room for n tensors, empty handles; to be freed with wf_mfree. NULL, with an error recorded: no memory. */
static weft_tensor *new_tensors(int n)
{
    weft_tensor *x = wf_malloc(((size_t)n + 1) * sizeof *x);
    if (!x) {
        wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for %d tensors", n);
    }
    for (int i = 0; x && i < n; i++) {
        x[i] = WEFT_NONE;
    }
    return x;
}

static int no_memory(void)
{
    wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory");
    return WEFT_ENOMEM;
}

/* x: fresh tensors, one storage each. */
static int record_kept(const weft_graph_args *a, const weft_tensor *x, int n_out, recording *r)
{
    wf_trace *t = wf_trace_begin(a->name ? a->name : "f");
    if (!t) {
        return (int)weft_last_status();
    }
    weft_tensor *out = new_tensors(n_out);
    int rc = out ? 0 : WEFT_ENOMEM;
    for (int i = 0; i < a->n_inputs && !rc; i++) {
        rc = trace_input(t, x[i]);
    }
    rc = rc ? rc
            : wf_run_function(t->c, "jit_graph", a->name ? a->name : "f", a->fn, a->self, x,
                              a->n_inputs, out, n_out);
    rc = rc ? rc : wf_trace_refusal(t, "jit_graph");
    for (int i = 0; i < n_out && !rc; i++) {
        if (out[i].slot == 0 && !out[i].serial) {
            wf_api_error("jit_graph", WEFT_EINVALID, "'%s' returned without setting out[%d]",
                         a->name ? a->name : "f", i);
            rc = WEFT_EINVALID;
        } else {
            rc = wf_trace_output(t, out[i]);
        }
    }
    wf_mfree(out);
    if (rc) {
        wf_trace_abort(t);
        return rc;
    }
    r->fn = wf_trace_end(t, &r->captured, &r->n);
    return r->fn ? 0 : no_memory();
}

/* The same; gradients that the function gives to tensors from outside are a recording's: they go with it. */
static int record(const weft_graph_args *a, const weft_tensor *x, int n_out, recording *r)
{
    wf_gradients before;
    wf_gradients_keep(&before);
    int rc = record_kept(a, x, n_out, r);
    wf_gradients_restore(&before);
    if (!rc && before.failed) {
        wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for gradients to be given back");
        drop_recording(r);
        return WEFT_ENOMEM;
    }
    return rc;
}

#define NAME_CHARACTERS "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* A name as the text form has it, so that what is saved loads. */
static bool good_word(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n < 64 && strspn(s, NAME_CHARACTERS) == n;
}

/* A symbol as a function's text declares it: its name, with its range and its multiples. 0, or an error recorded. */
static int parse_symbol(const weft_graph_args *a, int d, char *name, wf_range *range)
{
    const char *text = a->dims[d].name;
    char whole[WF_RANGE_TEXT + 32];
    wf_why why = {0};
    wf_fn *f = NULL;
    if (strlen(text) < WF_RANGE_TEXT && strspn(text, NAME_CHARACTERS "<=%, ") == strlen(text)) {
        const int n = snprintf(whole, sizeof whole, "fn f symbols(%s) { return }", text);
        f = wf_fn_parse(whole, (size_t)n, &why);
    }
    const bool good = f && f->nsymbols == 1;
    if (good) {
        snprintf(name, WF_SYMBOL_NAME, "%s", f->symbols[0]);
        *range = f->range[0];
    }
    wf_fn_free(f);
    if (good) {
        return 0;
    }
    if (why.code == WEFT_ENOMEM) {
        no_memory();
        return WEFT_ENOMEM;
    }
    wf_api_error(
        "jit_graph", WEFT_EINVALID,
        "dims[%d]: '%s' is no name for an extent: 1 to 31 letters, digits and '_', "
        "not a digit first; it may have a range, as in \"3<=n<=64\", and multiples, or what "
        "is as much more, as in \"n%%4==0\" or \"3<=n, n%%4==1\"",
        d, text);
    return WEFT_EINVALID;
}

/* The sizes that are in both: multiple 0, if too large a one, or if no size has both remainders. */
static wf_range both_ranges(wf_range a, wf_range b)
{
    int64_t m = a.multiple, rest = a.rest;
    while (m % b.multiple != 0) {
        m += a.multiple;
    }
    while (rest < m && rest % b.multiple != b.rest) {
        rest += a.multiple;
    }
    return (wf_range){.least = a.least > b.least ? a.least : b.least,
                      .most = a.most < b.most ? a.most : b.most,
                      .multiple = m <= WF_MOST_MULTIPLE && rest < m ? m : 0,
                      .rest = rest};
}

/* Puts dims[d] among the symbols. 0, or an error recorded. */
static int add_symbol(const weft_graph_args *a, int d, wf_graph_symbols *s)
{
    const weft_graph_dim *x = &a->dims[d];
    char name[WF_SYMBOL_NAME];
    wf_range range;
    int k = 0;
    if (!x->name || x->input < 0 || x->input >= a->n_inputs || x->axis < 0 ||
        x->axis >= weft_rank(a->inputs[x->input])) {
        wf_api_error("jit_graph", WEFT_EINVALID, "dims[%d] names no axis of an input", d);
        return WEFT_EINVALID;
    }
    const int rc = parse_symbol(a, d, name, &range);
    if (rc) {
        return rc;
    }
    const int64_t size = weft_dim(a->inputs[x->input], x->axis);
    int before = s->first[x->input];
    while (before >= 0 && a->dims[before].axis != x->axis) {
        before = s->next[before];
    }
    while (k < s->n && strcmp(s->name[k], name) != 0) {
        k++;
    }
    if (before >= 0 && s->of[before] != k) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "dims[%d]: axis %d of input %d is '%s' already, and cannot be '%s'", d,
                     x->axis, x->input, s->name[s->of[before]], name);
        return WEFT_EINVALID;
    }
    if (k == WF_MAX_SYMBOLS) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "dims[%d]: '%s' is one symbol too many: at most %d", d, name, WF_MAX_SYMBOLS);
        return WEFT_EINVALID;
    }
    if (k < s->n && s->at.size[0][k] != size) {
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld on one axis and %lld on another", name,
                     (long long)s->at.size[0][k], (long long)size);
        return WEFT_ESHAPE;
    }
    memcpy(s->name[k], name, sizeof name);
    s->at.size[0][k] = size;
    const wf_range r = k == s->n ? range : both_ranges(s->range[k], range);
    s->range[k] = r;
    s->of[d] = k;
    s->next[d] = s->first[x->input];
    s->first[x->input] = d;
    s->n += k == s->n;
    if (r.multiple == 0) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "'%s' would have to be a multiple of more than %d, or leave two remainders",
                     name, WF_MOST_MULTIPLE);
        return WEFT_EINVALID;
    }
    if (!wf_range_has(r, size)) {
        char rule[WF_RANGE_TEXT];
        wf_api_error("jit_graph", WEFT_ESHAPE, "'%s' is %lld in the example, but %s", name,
                     (long long)size, wf_range_rule(r, size, rule));
        return WEFT_ESHAPE;
    }
    return 0;
}

/* Could what has sizes x of symbol k in two recordings be taken for an earlier symbol's multiple, or as much larger? In three:
 * for any extent of it, or for one of a product? */
static bool is_related(const wf_graph_symbols *s, int nth, int k, int64_t x)
{
    const int64_t *a = s->at.size[0], *b = s->at.size[1];
    for (int j = 0; j < k && nth == 1; j++) {
        if (x * a[j] == b[j] * a[k] || x - b[j] == a[k] - a[j]) {
            return true;
        }
    }
    for (int j = 0; j < k && nth == 2; j++) {
        const int64_t by = b[j] - a[j], more = b[k] - a[k], c = s->at.size[2][j];
        const int64_t product = b[j] * b[k] - a[j] * a[k], last = c * x - a[j] * a[k];
        if (more * (c - a[j]) == (x - a[k]) * by || product * (c - a[j]) == last * by ||
            product * (x - a[k]) == last * more) {
            return true;
        }
    }
    return false;
}

/* The size, at most `most` more than the smallest, that symbol k has in another recording: what would be an extent computed from
 * another symbol is taken only where the range leaves no choice. 0: it leaves none at all. */
static int64_t other_size(const wf_graph_symbols *s, int nth, int k, int64_t most)
{
    int64_t taken[WF_MAX_SYMBOLS + WF_POINTS_APART];
    int n = 0;
    for (int i = 0; i < nth; i++) {
        taken[n++] = s->at.size[i][k];
    }
    for (int j = 0; j < k; j++) {
        taken[n++] = s->at.size[nth][j];
    }
    const wf_range r = s->range[k];
    const int64_t least = wf_range_from(r, 1);
    most = most < r.most - least ? most + least : r.most;
    const int64_t first = wf_size_below(r, most, taken, n);
    int64_t x = first;
    while (x > 0 && is_related(s, nth, k, x)) {
        x = wf_size_below(r, x - r.multiple, taken, n);
    }
    return x > 0 ? x : first;
}

/* Distinct symbols with the example's sizes; s->of is to be freed. 0, or an error recorded. */
static int symbols_of(const weft_graph_args *a, wf_graph_symbols *s)
{
    *s = (wf_graph_symbols){.n = 0};
    s->of = wf_malloc((2 * (size_t)a->n_dims + (size_t)a->n_inputs + 1) * sizeof *s->of);
    if (!s->of) {
        wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for %d dims", a->n_dims);
        return WEFT_ENOMEM;
    }
    s->next = s->of + a->n_dims;
    s->first = s->next + a->n_dims;
    for (int i = 0; i < a->n_inputs; i++) {
        s->first[i] = -1;
    }
    for (int d = 0; d < a->n_dims; d++) {
        int rc = add_symbol(a, d, s);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* Sizes of a further recording, within the ranges, that grow from symbol to symbol: small ones; larger than the example's; or such
 * that fall (n <= m of m and n). */
typedef enum wf_sizes { SIZES_SMALL, SIZES_FAR, SIZES_FALL } wf_sizes;

/* The symbol that has none left, or -1. */
static int choose_sizes(wf_graph_symbols *s, int nth, wf_sizes how)
{
    static const int64_t primes[WF_POINTS_APART][WF_MAX_SYMBOLS] = {
        [1] = {7, 13, 19, 29, 37, 43, 53, 61, 71, 79, 89, 101, 107, 113, 131, 139},
        [2] = {17, 31, 47, 67, 83, 103, 127, 149, 163, 179, 193, 211, 227, 241, 257, 271}};
    for (int k = 0; k < s->n; k++) {
        const int at = how == SIZES_FALL ? s->n - 1 - k : k;
        const int64_t most = (primes[nth][at] - 1) * s->range[k].multiple;
        s->at.size[nth][k] =
            other_size(s, nth, k, most + (how == SIZES_FAR ? s->at.size[0][k] : 0));
        if (s->at.size[nth][k] == 0) {
            return k;
        }
    }
    return -1;
}

/* Memory that nobody has touched: a recording reads no values, and large inputs cost it none. */
static weft_tensor untouched(wf_ctx *c, const weft_shape *shape, weft_dtype dtype)
{
    wf_type t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)shape->n};
    wf_why why = {0};
    void *data;
    memcpy(t.dims, shape->v, (size_t)shape->n * sizeof *shape->v);
    weft_tensor x = wf_graph_memory(c, &t, c->device, &data, &why);
    return x.slot ? x : wf_api_error("jit_graph", WEFT_ENOMEM, "out of memory for an input");
}

/* The shape that input i has with these sizes. */
static weft_shape shape_of(const weft_graph_args *a, const wf_graph_symbols *s, const int64_t *size,
                           int i)
{
    weft_shape shape = weft_shape_of(a->inputs[i]);
    for (int d = s->first[i]; d >= 0; d = s->next[d]) {
        shape.v[a->dims[d].axis] = size[s->of[d]];
    }
    return shape;
}

/* Tensors in the shapes that the inputs have with these sizes, as new_tensors makes them: zeros where `filled`. */
static weft_tensor *inputs_of(const weft_graph_args *a, const wf_graph_symbols *s,
                              const int64_t *size, bool filled)
{
    weft_tensor *x = new_tensors(a->n_inputs);
    for (int i = 0; x && i < a->n_inputs; i++) {
        const weft_shape shape = shape_of(a, s, size, i);
        wf_ctx *c = wf_ctx_get();
        int before = wf_device_enter(c, wf_device_of_handle(c, a->inputs[i]));
        const weft_dtype dtype = weft_dtype_of(a->inputs[i]);
        x[i] = filled ? weft_zeros(shape, dtype) : untouched(c, &shape, dtype);
        wf_device_enter(c, before);
    }
    return x;
}

/* Records with the sizes of one recording. */
static int record_sizes(const weft_graph_args *a, int n_out, const wf_graph_symbols *s, int nth,
                        recording *r)
{
    weft_tensor *x = inputs_of(a, s, s->at.size[nth], false);
    const int rc = x ? record(a, x, n_out, r) : WEFT_ENOMEM;
    wf_mfree(x);
    return rc;
}

/* The elements of a and b, both of that type, one behind the other; to be freed. NULL: they cannot be read. */
static char *read_both(weft_tensor a, weft_tensor b, const wf_type *type, size_t *bytes)
{
    const int64_t n = wf_type_numel(type);
    *bytes = (size_t)n * wf_dtype_size(type->dtype);
    char *p = malloc(2 * *bytes + 1);
    if (p && (weft_to_array(a, p, n, WEFT_DTYPE_DEFAULT) != WEFT_OK ||
              weft_to_array(b, p + *bytes, n, WEFT_DTYPE_DEFAULT) != WEFT_OK)) {
        free(p);
        p = NULL;
    }
    return p;
}

/* Is it one memory, or are the bytes the same (an array of the function's own, made anew by every call)? */
static bool same_weight(weft_tensor a, weft_tensor b)
{
    wf_ctx *c = wf_ctx_get();
    bool pinned_a, pinned_b;
    wf_slot *s = wf_pin(c, a, &pinned_a, NULL), *t = wf_pin(c, b, &pinned_b, NULL);
    bool same = s && t && s->st == t->st;
    wf_type x = {0}, y = {0};
    if (s && t) {
        wf_slot_type(s, &x);
        wf_slot_type(t, &y);
    }
    if (s && pinned_a) {
        wf_unpin(c, s);
    }
    if (t && pinned_b) {
        wf_unpin(c, t);
    }
    if (same || !s || !t || !wf_type_same(&x, &y)) {
        return same;
    }
    size_t bytes;
    char *p = read_both(a, b, &x, &bytes);
    same = p && memcmp(p, p + bytes, bytes) == 0;
    free(p);
    return same;
}

/* Do both read the same tensors from outside? 0, or a status with why filled. */
static int check_weights(const weft_graph_args *a, const recording *r, const recording *other,
                         wf_why *why)
{
    for (int i = a->n_inputs; i < r->n && r->n == other->n; i++) {
        if (!same_weight(r->captured[i], other->captured[i])) {
            const char *name = weft_name(r->captured[i]);
            wf_fail(why, WEFT_EUNSUPPORTED,
                    "the function reads other tensors from outside when sizes change%s%.80s%s",
                    name[0] ? " ('" : "", name, name[0] ? "' for the example)" : "");
            wf_hint(why,
                    "record it without this symbol, or compute from its inputs what depends on "
                    "a size");
            return WEFT_EUNSUPPORTED;
        }
    }
    return 0;
}

/* Records the function at the further sizes of `at` that are not recorded yet: n are, the first of them the caller's. */
static int record_points(const weft_graph_args *a, int n_out, const wf_graph_symbols *s, int upto,
                         recording *all, int *n)
{
    int rc = 0;
    while (*n < upto && !rc) {
        rc = record_sizes(a, n_out, s, *n, &all[*n]);
        *n += rc == 0;
    }
    return rc;
}

/* The function with symbols of n recordings. */
static wf_fn *unify_recorded(const recording *all, int n, const wf_graph_symbols *s, bool *untold,
                             wf_why *why)
{
    const wf_fn *fn[WF_POINTS];
    for (int i = 0; i < n; i++) {
        fn[i] = all[i].fn;
    }
    wf_why_clear(why);
    return wf_graph_unify(fn, n, s, untold, why);
}

/* The function with symbols, from r and further recordings, as few as tell its extents: what is a symbol itself can be told from two,
 * what is computed from one only from three, what is computed from several only from those around one (few symbols: each two are moved).
 * 0, or an error recorded; *fails: the function's own. */
static int unify(const weft_graph_args *a, int n_out, wf_graph_symbols *s, wf_sizes how,
                 const recording *r, wf_fn **out, bool *fails)
{
    enum { JOINT = 6 };
    recording all[WF_POINTS] = {*r};
    wf_why why = {0};
    bool untold = false;
    int n = 1, k = choose_sizes(s, 1, how);
    *out = NULL;
    *fails = false;
    s->failed = 0;
    if (k >= 0) {
        char text[WF_RANGE_TEXT];
        wf_api_error("jit_graph", WEFT_EUNSUPPORTED, "'%s' leaves no other size to record with",
                     wf_range_text(s->name[k], s->range[k], text));
        return WEFT_EUNSUPPORTED;
    }
    int rc = record_points(a, n_out, s, 2, all, &n);
    *out = rc ? NULL : unify_recorded(all, n, s, &untold, &why);
    if (!rc && !*out && choose_sizes(s, 2, how) < 0) {
        rc = record_points(a, n_out, s, WF_POINTS_APART, all, &n);
        *out = rc ? NULL : unify_recorded(all, n, s, &untold, &why);
    }
    if (!rc && !*out && untold && n == WF_POINTS_APART && s->n <= JOINT) {
        wf_points_around(s->range, s->n, &s->at);
        rc = record_points(a, n_out, s, s->at.n, all, &n);
        *out = rc ? NULL : unify_recorded(all, n, s, &untold, &why);
    }
    *fails = rc != 0;
    s->failed = rc ? n : 0;
    for (int i = 1; i < n && *out; i++) {
        if (check_weights(a, r, &all[i], &why)) {
            wf_fn_free(*out);
            *out = NULL;
        }
    }
    for (int i = 1; i < n; i++) {
        drop_recording(&all[i]);
    }
    if (!*out && !rc) {
        rc = wf_raise_status(wf_ctx_get(), "jit_graph", 0, NULL, &why);
    }
    return rc;
}

/* -- the same at other sizes ------------------------------------------------------------------------------------------ */

/* Same instructions, numbers included. */
static bool is_same_function(const wf_fn *f, const wf_fn *g)
{
    return wf_fn_equal(f, g) && f->ninputs == g->ninputs &&
           (f->nslots == 0 || memcmp(f->slots, g->slots, f->nslots * sizeof *f->slots) == 0);
}

/* Numbers like those of the example in the shape of x: of floating-point types any, of others some of its own, which may be
 * indices. */
static weft_tensor some_numbers(weft_tensor example, weft_tensor x)
{
    enum { KNOWN = 64 };
    const int64_t n = weft_numel(x);
    const int64_t known = weft_numel(example) < KNOWN ? weft_numel(example) : KNOWN;
    const weft_dtype t = weft_dtype_of(x);
    if (wf_dtype_kind((int)t) == 2) {
        weft_tensor v = weft_mul(weft_sin(weft_arange(1, (double)n + 1, 1, WEFT_F64)), weft_f(2));
        return weft_to(weft_reshape(weft_cast(v, t), weft_shape_of(x)), weft_device_of(x));
    }
    if (known == 0) {
        return x; /* zeros */
    }
    weft_tensor v = weft_narrow(weft_reshape(example, weft_shape(-1)), 0, 0, known);
    weft_tensor at = weft_remainder(weft_arange(0, (double)n, 1, WEFT_I64), weft_i(known));
    at = weft_to(at, weft_device_of(x));
    return weft_reshape(weft_index_select(v, 0, at), weft_shape_of(x));
}

static bool same_tensor(weft_tensor a, weft_tensor b, bool *lost)
{
    wf_ctx *c = wf_ctx_get();
    wf_type type, other;
    size_t bytes;
    if (!weft_ok(a) || !weft_ok(b) || !wf_graph_type_of(c, a, &type) ||
        !wf_graph_type_of(c, b, &other) || !wf_type_same(&type, &other)) {
        return false;
    }
    char *p = read_both(a, b, &type, &bytes);
    *lost = !p;
    const bool same = p && wf_oracle_difference(&type, p, p + bytes) < 0;
    free(p);
    return same;
}

/* Do f, of the recording r, and `now` compute the same of some numbers in the shapes of x? *lost: there was no memory for that. */
static bool same_results(const weft_graph_args *a, const weft_tensor *x, const wf_fn *f,
                         const recording *r, const recording *now, bool *lost)
{
    const size_t all = (size_t)r->n + (size_t)now->n;
    weft_tensor *in = wf_malloc((all + 2 * (size_t)f->noutputs + 1) * sizeof *in);
    weft_tensor *out = in ? in + all : NULL, *out_now = in ? out + f->noutputs : NULL;
    bool same = in && f->noutputs == now->fn->noutputs;
    *lost = !in;
    if (same) {
        weft_tensor *other = in + r->n;
        memcpy(in, r->captured, (size_t)r->n * sizeof *in);
        memcpy(other, now->captured, (size_t)now->n * sizeof *in);
        for (int i = 0; i < a->n_inputs; i++) {
            in[i] = other[i] = some_numbers(a->inputs[i], x[i]);
        }
        weft_no_grad_begin();
        int rc = wf_fn_run(f, in, NULL, out);
        rc = rc ? rc : wf_fn_run(now->fn, other, NULL, out_now);
        weft_no_grad_end();
        same = rc == 0;
        *lost = rc == WEFT_ENOMEM;
    }
    for (uint32_t k = 0; k < f->noutputs && same; k++) {
        same = same_tensor(out[k], out_now[k], lost);
    }
    wf_mfree(in);
    return same;
}

/* Is instruction k of both a number, and another one? */
static bool is_other_number(const wf_fn *f, const wf_fn *g, uint32_t k)
{
    const wf_ins *i = &f->ins[k], *j = &g->ins[k];
    return wf_op_is_weak(i->op) && f->slot_kind[i->attr] == g->slot_kind[j->attr] &&
           f->slots[i->attr] != g->slots[j->attr];
}

/* "'batch' is 1, 'seq' is 1" */
static const char *put_sizes(const wf_graph_symbols *s, const int64_t *size, char where[static 96])
{
    size_t at = 0;
    for (int i = 0; i < s->n; i++) {
        const size_t room = 90 - at; /* and five for dots, which callers show, too */
        const int n = snprintf(where + at, room, "%s'%s' is %lld", i ? ", " : "", s->name[i],
                               (long long)size[i]);
        if (n < 0 || (size_t)n >= room) { /* no part of a size, which reads like another one */
            strcpy(where + at, at ? ", ..." : "...");
            break;
        }
        at += (size_t)n;
    }
    return where;
}

/* "'batch' is 1, 'seq' is 1: %3 relu at a.c:4 is where neg was for the example". f has these sizes, and differs. */
static int say_other(const wf_graph_symbols *s, const int64_t *size, const wf_fn *f,
                     const wf_fn *now, wf_why *why)
{
    char where[96] = "", what[128] = "";
    uint32_t k = 0;
    while (k < f->n && k < now->n && f->ins[k].op == now->ins[k].op &&
           !is_other_number(f, now, k)) {
        k++;
    }
    if (k < f->n && k < now->n && f->ins[k].op == now->ins[k].op) {
        const uint32_t slot = f->ins[k].attr, other = now->ins[k].attr;
        snprintf(what, sizeof what, ": the number %%%u is %.9g, by the symbols %.9g", k + 1,
                 wf_slot_f64(now->slot_kind[other], now->slots[other]),
                 wf_slot_f64(f->slot_kind[slot], f->slots[slot]));
    } else if (k < f->n && k < now->n) {
        const char *site = now->locs[now->ins[k].loc];
        snprintf(what, sizeof what, ": %%%u %s%s%.60s is where %s is for the example", k + 1,
                 wf_rows[now->ins[k].op].name, site ? " at " : "", site ? wf_site_file(site) : "",
                 wf_rows[f->ins[k].op].name);
    }
    wf_fail(why, WEFT_EUNSUPPORTED, "the function does something else where %.95s%s",
            put_sizes(s, size, where), what);
    wf_hint(why, "record it without this symbol, make the function independent of the size, or, if "
                 "it is right for multiples, say so: \"n%%2==0\"");
    return WEFT_EUNSUPPORTED;
}

/* What is asked of a function with symbols: what it does at some sizes, or whether it can be at them. */
typedef struct probe {
    const weft_graph_args *a;
    int n_out;
    const wf_graph_symbols *s;
    wf_fn *f;
    bool refuses; /* the function fails at small sizes, though f does not: it is asked, too */
    bool lost;    /* there was no memory for an answer */
} probe;

/* A recording of the function with inputs that are made for it. */
typedef struct attempt {
    uint64_t last;
    weft_scope scope;
    weft_tensor *x;
    recording now;
    bool good, lost; /* lost: for lack of memory it is not known whether the function goes there */
} attempt;

static void end_attempt(attempt *t)
{
    drop_recording(&t->now);
    wf_mfree(t->x);
    weft_scope_end(t->scope);
    wf_ctx_get()->error_last = t->last; /* what the function refused there is not the caller's */
}

/* Is there some memory? */
static bool has_memory(void)
{
    enum { SOME = 1 << 16 };
    void *some = wf_malloc(SOME);
    wf_mfree(some);
    return some != NULL;
}

/* WEFT_ENOMEM may be for a size that is too large, or since memory had run out, which it need not a second time. */
static void begin_attempt(const probe *p, const int64_t *size, bool filled, attempt *t)
{
    int rc = WEFT_ENOMEM;
    for (int tries = 0; tries < 2 && rc == WEFT_ENOMEM; tries++) {
        if (tries > 0) {
            end_attempt(t);
        }
        t->last = wf_ctx_get()->error_last;
        t->now = (recording){0};
        t->scope = weft_scope_begin();
        t->x = inputs_of(p->a, p->s, size, filled);
        rc = t->x ? record(p->a, t->x, p->n_out, &t->now) : WEFT_ENOMEM;
    }
    t->good = rc == 0;
    t->lost = rc == WEFT_ENOMEM && !has_memory();
}

/* Is it for lack of memory, and not since sizes go past 64 bits? */
static bool ran_out(const wf_why *why)
{
    return why->code == WEFT_ENOMEM && !why->too_large;
}

/* Is the function at these sizes what f says, which is r's with symbols? small: it may be written otherwise. Where the function
 * fails, or f says that these sizes do not go, there is nothing to compare. 0, or a status with why filled. */
static int check_at(probe *p, const int64_t *size, bool small, const recording *r, wf_why *why)
{
    attempt t;
    wf_fn *bound = wf_graph_bind(p->f, size, why);
    bool lost = false;
    int rc = 0;
    if (!bound && ran_out(why)) {
        return why->code;
    }
    wf_why_clear(why);
    if (!bound) {
        return 0;
    }
    begin_attempt(p, size, small, &t); /* small ones may be read */
    if (t.good) {
        /* the same rows with other numbers are no other way of writing it */
        rc = is_same_function(bound, t.now.fn) ? check_weights(p->a, r, &t.now, why)
             : small && !wf_fn_equal(bound, t.now.fn) &&
                     same_results(p->a, t.x, bound, r, &t.now, &lost)
                 ? 0
                 : say_other(p->s, size, bound, t.now.fn, why);
    } else if (small) {
        p->refuses = true;
    }
    lost |= t.lost;
    wf_fn_free(bound);
    end_attempt(&t);
    return lost ? wf_fail(why, WEFT_ENOMEM, "out of memory") : rc;
}

/* Elements of all inputs with these sizes. */
static double elements(const weft_graph_args *a, const wf_graph_symbols *s, const int64_t *size)
{
    double all = 0;
    for (int i = 0; i < a->n_inputs; i++) {
        const weft_shape shape = shape_of(a, s, size, i);
        double n = 1;
        for (int k = 0; k < shape.n; k++) {
            n *= (double)shape.v[k];
        }
        all += n;
    }
    return all;
}

/* Each of several symbols 1 where the others have the example's sizes, as in a batch of one: what the function does for that
 * alone is not seen where all are 1, where the function, or its graph, may fail for another one of them. */
static int check_each(probe *p, const recording *r, wf_why *why)
{
    const wf_graph_symbols *s = p->s;
    int rc = 0;
    for (int one = 0; one < s->n && s->n > 1 && !rc; one++) {
        int64_t size[WF_MAX_SYMBOLS];
        memcpy(size, s->at.size[0], sizeof size);
        size[one] = wf_range_from(s->range[one], 1);
        rc = size[one] == s->at.size[0][one] ? 0 : check_at(p, size, true, r, why);
    }
    return rc;
}

/* Every symbol 1; 2 (or the first two multiples); one of them 1; and as large as its range and memory for the inputs allow. */
static int check_sizes(probe *p, const recording *r, wf_why *why)
{
    enum { FAR = 65521, LEAST = 300, ELEMENTS = 1 << 24 };
    const wf_graph_symbols *s = p->s;
    int64_t size[WF_MAX_SYMBOLS], far = FAR;
    int rc = 0;
    for (int64_t n = 1; n <= 2 && !rc; n++) {
        for (int k = 0; k < s->n; k++) {
            size[k] = wf_range_from(s->range[k], (n - 1) * s->range[k].multiple + 1);
        }
        rc = check_at(p, size, true, r, why);
    }
    rc = rc ? rc : check_each(p, r, why);
    for (bool fits = false; !fits && !rc; far /= 2) {
        for (int k = 0; k < s->n; k++) { /* of different sizes, but where ranges end */
            const int64_t less = k * s->range[k].multiple;
            size[k] = wf_range_from(s->range[k], less < far ? far - less : 1);
        }
        fits = elements(p->a, s, size) <= (double)ELEMENTS || far < LEAST;
    }
    return rc ? rc : check_at(p, size, false, r, why);
}

/* -- ranges ----------------------------------------------------------------------------------------------------------- */

static bool goes(probe *p, const int64_t *size)
{
    wf_why why = {0};
    wf_fn *bound = wf_graph_bind(p->f, size, &why);
    bool good = bound != NULL;
    p->lost |= ran_out(&why);
    wf_fn_free(bound);
    if (good && p->refuses) {
        attempt t;
        begin_attempt(p, size, false, &t);
        good = t.good;
        p->lost |= t.lost;
        end_attempt(&t);
    }
    return good;
}

enum { SMALL, EXAMPLE, LARGE, SETTINGS, NO_MORE = 65521 };

/* Sizes of the symbols but k, which is x. */
static void others(const probe *p, int setting, int k, int64_t x, int64_t *size)
{
    const wf_graph_symbols *s = p->s;
    for (int j = 0; j < s->n; j++) {
        const int64_t n = setting == SMALL   ? 1
                          : setting == LARGE ? (INT64_C(1) << 24) - j
                                             : s->at.size[0][j];
        size[j] = j == k ? x : wf_range_from(s->range[j], n);
    }
}

/* The size between `from`, where it goes, and `to`, where it might, that is nearest to `to` and goes. */
static int64_t nearest(probe *p, int setting, int k, int64_t from, int64_t to)
{
    const int64_t by = p->s->range[k].multiple;
    int64_t size[WF_MAX_SYMBOLS], good = from, bad = to;
    others(p, setting, k, to, size);
    if (goes(p, size)) {
        return to;
    }
    while (good - bad > by || bad - good > by) {
        const int64_t x = good + (bad - good) / by / 2 * by;
        others(p, setting, k, x, size);
        *(goes(p, size) ? &good : &bad) = x;
    }
    return good;
}

/* Ranges of f's symbols that its rows, and the function, imply: `n` is at least 3 where a kernel of 3 is laid on it, at most 64
 * where it is the length of a slice of 64. A size is outside if it goes with no sizes of the other symbols, of those that are tried:
 * small, the example's, large; without other symbols these are one. */
static void find_ranges(probe *p)
{
    const wf_graph_symbols *s = p->s;
    int64_t size[WF_MAX_SYMBOLS];
    wf_range range[WF_MAX_SYMBOLS];
    const bool refuses = p->refuses;
    for (int k = 0; k < s->n; k++) {
        const wf_range r = s->range[k];
        const int64_t example = s->at.size[0][k], far = r.most < NO_MORE ? r.most : NO_MORE,
                      end = wf_range_to(r, far), first = wf_range_from(r, 0);
        int64_t least = example, most = example;
        for (int i = s->n > 1 ? SMALL : LARGE - refuses; i < SETTINGS; i++) {
            p->refuses = refuses && i != LARGE; /* recordings cost memory there */
            others(p, i, k, example, size);
            if (!goes(p, size)) {
                continue;
            }
            const bool asks = refuses == p->refuses;
            const int64_t low = asks ? nearest(p, i, k, example, first) : example;
            p->refuses = false;
            const int64_t high = end > example ? nearest(p, i, k, example, end) : example;
            least = low < least ? low : least;
            most = high > most ? high : most;
        }
        least = least == first && r.least == 0 ? 0 : least; /* nothing is said of it */
        range[k] = (wf_range){least, most >= end ? r.most : most, r.multiple, r.rest};
    }
    memcpy(p->f->range, range, (size_t)s->n * sizeof *range);
}

/* -- multiples -------------------------------------------------------------------------------------------------------- */

/* Does the function accept this size of symbol k, with the example's of the others? */
static bool accepts(probe *p, int k, int64_t x)
{
    int64_t size[WF_MAX_SYMBOLS];
    attempt t;
    if (x < 1 || !wf_range_has(p->s->range[k], x)) {
        return false;
    }
    others(p, EXAMPLE, k, x, size);
    begin_attempt(p, size, false, &t);
    const bool good = t.good;
    p->lost |= t.lost;
    end_attempt(&t);
    return good;
}

/* Of a function that fails at other sizes: are these no multiples of what it wants (n / 4 rows of 4), or one more (what is behind
 * the first is 4 to a row)? The least step up or down from the example's size that the function goes with is what n, less the
 * example's remainder, is a multiple of. Large steps are tried only if they divide the example's size. False: there is nothing new. */
static bool find_multiples(probe *p, wf_graph_symbols *s)
{
    enum { ALL_STEPS = 64 };
    bool found = false;
    for (int k = 0; k < s->n; k++) {
        const int64_t example = s->at.size[0][k], by = s->range[k].multiple;
        const int64_t end = example < WF_MOST_MULTIPLE ? example : WF_MOST_MULTIPLE;
        int64_t d = by;
        while (d <= end && ((d > ALL_STEPS && example % d != 0) ||
                            (!accepts(p, k, example + d) && !accepts(p, k, example - d)))) {
            d += by;
        }
        if (d > by && d <= end) {
            s->range[k].multiple = d;
            s->range[k].rest = example % d;
            found = true;
        }
    }
    return found;
}

/* Whether f, which becomes p->f, is the function at the sizes of check_sizes; p->refuses is said. f is freed if it is not. 0, or an
 * error recorded. */
static int take_checked(probe *p, wf_fn *f, const recording *r)
{
    wf_why why = {0};
    p->f = f;
    p->refuses = false;
    if (!check_sizes(p, r, &why)) {
        return 0;
    }
    wf_fn_free(f);
    p->f = NULL;
    return wf_raise_status(wf_ctx_get(), "jit_graph", 0, NULL, &why);
}

/* The function with symbols, which is that at the sizes of check_sizes, as p->f; p->refuses is said. Sizes are small at first, as
 * tables of positions may be; a function that fails for these is recorded with larger ones, then with such as fall. *fails: at some
 * it does. 0, or an error recorded and p->f NULL. */
static int generalise_once(probe *p, const recording *r, wf_graph_symbols *s, bool *fails)
{
    bool again = false;
    p->f = NULL;
    p->refuses = false;
    int rc = unify(p->a, p->n_out, s, SIZES_SMALL, r, &p->f, fails);
    if (*fails && rc != WEFT_ENOMEM) {
        rc = unify(p->a, p->n_out, s, SIZES_FAR, r, &p->f, &again);
    }
    if (again && s->n > 1 && rc != WEFT_ENOMEM) {
        rc = unify(p->a, p->n_out, s, SIZES_FALL, r, &p->f, &again);
    }
    rc = rc ? rc : take_checked(p, p->f, r);
    *fails = *fails || p->refuses;
    return rc;
}

/* Of a function that is refused with different sizes of symbols i and j, which have the example's in common: does it go if they are
 * one? Then that is said, with what it was refused for. */
static bool goes_as_one(const weft_graph_args *a, int n_out, const recording *r,
                        const wf_graph_symbols *s, int i, int j)
{
    weft_graph_dim *dims = wf_malloc((size_t)a->n_dims * sizeof *dims);
    weft_graph_args with = *a;
    wf_graph_symbols one;
    probe p = {.a = &with, .n_out = n_out, .s = &one};
    bool fails = false;
    if (!dims) {
        return false;
    }
    for (int d = 0; d < a->n_dims; d++) {
        dims[d] = a->dims[d];
        dims[d].name = s->name[s->of[d] == j ? i : s->of[d]];
    }
    with.dims = dims;
    const bool good = symbols_of(&with, &one) == 0 && generalise_once(&p, r, &one, &fails) == 0;
    if (good) {
        wf_fn_free(p.f);
    }
    wf_mfree(one.of);
    wf_mfree(dims);
    return good;
}

/* Are two symbols one? An error is recorded then, in place of the last one. */
static bool look_for_one(const weft_graph_args *a, int n_out, const recording *r,
                         const wf_graph_symbols *s, const char *cause)
{
    const uint64_t last = wf_ctx_get()->error_last;
    for (int i = 0; i < s->n; i++) {
        for (int j = i + 1; j < s->n; j++) {
            if (s->at.size[0][i] == s->at.size[0][j] && goes_as_one(a, n_out, r, s, i, j)) {
                wf_api_error("jit_graph", WEFT_EUNSUPPORTED,
                             "'%s' and '%s' have to be one size, so give both axes one name; "
                             "where they differ: %.160s",
                             s->name[i], s->name[j], cause);
                return true;
            }
        }
    }
    wf_ctx_get()->error_last = last;
    return false;
}

/* The sizes in the function's own error are of a recording that the caller does not know of. */
static void say_where(const wf_graph_symbols *s, int rc, const char *cause)
{
    char where[96] = "";
    wf_raise_text(
        wf_ctx_get(), rc, "jit_graph",
        "the function, which is recorded with other sizes, too, fails where %s: %s; say "
        "which it is for, a range as \"3<=n<=64\", multiples as \"n%%2==0\", give axes that "
        "are equal one name, or record it without this symbol",
        put_sizes(s, s->at.size[s->failed], where), cause);
}

/* Makes r->fn the function with symbols, which are *s. One that does something else for other sizes is refused; one that fails for some may be
 * one for multiples. Where too few of these are in range to tell its extents apart, what was found with other sizes, and for all of
 * them, is it, if it is the function at multiples. */
static int generalise(const weft_graph_args *a, int n_out, recording *r, wf_graph_symbols *s)
{
    const uint64_t last = wf_ctx_get()->error_last;
    probe p = {.a = a, .n_out = n_out, .s = s};
    bool fails = false;
    int rc = symbols_of(a, s);
    if (rc) {
        return rc;
    }
    rc = generalise_once(&p, r, s, &fails);
    char cause[900]; /* what is tried after it may overwrite it */
    snprintf(cause, sizeof cause, "%s", weft_last_error());
    const wf_graph_symbols all = *s;
    const bool refuses = p.refuses;
    if (fails && rc != WEFT_ENOMEM && find_multiples(&p, s)) {
        wf_fn *first = p.f;
        rc = generalise_once(&p, r, s, &fails);
        snprintf(cause, sizeof cause, "%s", weft_last_error());
        if (rc && rc != WEFT_ENOMEM && first) {
            rc = take_checked(&p, first, r);
            snprintf(cause, sizeof cause, "%s", weft_last_error());
            first = NULL;
            p.refuses = refuses || p.refuses;
            *s = all;
        }
        wf_fn_free(first);
    }
    if (rc) {
        if (rc != WEFT_ENOMEM && !look_for_one(a, n_out, r, s, cause) && s->failed) {
            say_where(s, rc, cause);
        }
        return rc;
    }
    wf_ctx_get()->error_last = last; /* what it refused at other sizes */
    find_ranges(&p);
    if (p.lost) { /* sizes seem to be outside that are not */
        wf_fn_free(p.f);
        return no_memory();
    }
    wf_fn_free(r->fn);
    r->fn = p.f;
    return 0;
}

static weft_graph *finish(const weft_graph_args *a, int n_out, recording *r)
{
    int n_weights = r->n - a->n_inputs;
    weft_graph *g = wf_graph_new("jit_graph", r->fn, a->n_inputs, n_out);
    r->fn = NULL;
    if (!g) {
        return NULL;
    }
    g->fast_math = a->fast_math;
    for (int i = 0; i < n_weights; i++) {
        g->weights[i] = weft_keep(weft_detach(r->captured[a->n_inputs + i]));
    }
    if (wf_graph_name(g, a, r->captured)) {
        weft_graph_free(g);
        return NULL;
    }
    wf_graph_note_names(g);
    return g;
}

/* The count is one of a graph's. Else an error is recorded. */
static bool good_count(const char *what, int n, int least, int most)
{
    if (n >= least && n <= most) {
        return true;
    }
    wf_api_error("jit_graph", WEFT_EINVALID, "%d %s: a graph has %d to %d", n, what, least, most);
    return false;
}

static bool good_arguments(const weft_graph_args *a, int n_out)
{
    if (!a || !a->fn || (a->n_inputs > 0 && !a->inputs) || (a->n_dims > 0 && !a->dims)) {
        wf_api_null("jit_graph", "the function, or the array of the inputs or dims");
        return false;
    }
    if (!good_count("inputs", a->n_inputs, 0, WF_GRAPH_PORTS) ||
        !good_count("outputs", n_out, 1, WF_GRAPH_PORTS) ||
        !good_count("dims", a->n_dims, 0, WF_GRAPH_PORTS)) {
        return false;
    }
    if (a->name && !good_word(a->name)) {
        wf_api_error("jit_graph", WEFT_EINVALID,
                     "'%s' is no name for a graph: 1 to 63 letters, digits and '_'", a->name);
        return false;
    }
    return true;
}

weft_graph *(weft_jit_graph)(const weft_graph_args *a)
{
    int n_out = a && a->n_outputs ? a->n_outputs : 1;
    if (!good_arguments(a, n_out)) {
        return NULL;
    }
    recording r = {0};
    wf_graph_symbols s = {.n = 0};
    weft_graph *g = NULL;
    weft_scope scope = weft_scope_begin();
    weft_tensor *x = new_tensors(a->n_inputs);
    for (int i = 0; x && i < a->n_inputs; i++) {
        x[i] = weft_clone(weft_detach(a->inputs[i]));
    }
    if (x && record(a, x, n_out, &r) == 0 && (!a->n_dims || generalise(a, n_out, &r, &s) == 0)) {
        g = finish(a, n_out, &r);
    }
    wf_mfree(s.of);
    wf_mfree(x);
    drop_recording(&r);
    weft_scope_end(scope);
    return g;
}
