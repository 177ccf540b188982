/*
 * eager/api_einsum.c -- einsum of weft/ops_array.h: sums of products by subscripts.
 *
 * The equation is read twice: once to check it against all operands, once more operand by operand. The product grows from
 * left to right. A label that no later operand and not the result has is added up as soon as it can be: before the product
 * if one factor alone has it, in a matrix product if both have. So every step is rows that exist: diagonal, sum, permute,
 * reshape, mul, matmul.
 *
 * Invariants: axes of extent 1 meet longer ones by leaving their factor, so that extents of the axes two factors share are
 * equal; axes are merged for matmul only where it has no place for them.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* Labels: 0 to 51 are A to Z and a to z; 52 + k is the axis k from the right under an ellipsis. */
enum { LETTERS = 52, LABELS = LETTERS + WF_MAX_RANK, FEW = 16 };

/* What stands between commas. */
typedef struct term {
    int n, dots; /* letters; how many of them stand before the ellipsis, -1 without one */
    uint8_t label[WF_MAX_RANK];
} term;

/* A tensor whose axes have labels. */
typedef struct factor {
    weft_tensor t;
    int dtype, n;
    uint8_t label[WF_MAX_RANK];
    int64_t dims[WF_MAX_RANK];
} factor;

typedef struct sums {
    const char *text;
    int64_t extent[LABELS]; /* -1: in no operand */
    int times[LABELS];      /* occurrences in operands */
    int uses[LABELS];       /* operands still to come, and the result, that have it */
    int dots;               /* axes under the longest ellipsis */
    factor out;             /* its labels */
} sums;

/* -- reading ------------------------------------------------------------------------------------------------ */

static int label_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

/* What a message calls it. */
static const char *name_of(int label, char name[32])
{
    if (label >= LETTERS) {
        return "an axis under the ellipsis";
    }
    snprintf(name, 32, "subscript '%c'", label < 26 ? 'A' + label : 'a' + label - 26);
    return name;
}

/* From *at up to a comma, an arrow or the end. */
static bool read_term(wf_arg *a, const sums *e, const char **at, term *s)
{
    const char *p = *at;
    *s = (term){.dots = -1};
    for (; *p && *p != ',' && !(p[0] == '-' && p[1] == '>'); p++) {
        if (*p == ' ') {
            continue;
        }
        if (s->dots < 0 && strncmp(p, "...", 3) == 0) {
            s->dots = s->n;
            p += 2;
            continue;
        }
        int label = label_of(*p);
        if (label < 0) {
            return wf_arg_fail(a, WEFT_EINVALID,
                               "subscripts are letters; '...', at most once in a term, stands for "
                               "the axes without one",
                               "character %d of the equation, '%c', is no subscript",
                               (int)(p - e->text) + 1, *p > ' ' && *p < 127 ? *p : '?');
        }
        if (s->n == WF_MAX_RANK) {
            return wf_arg_fail(a, WEFT_ESHAPE, NULL, "a term has more than %d subscripts",
                               WF_MAX_RANK);
        }
        s->label[s->n++] = (uint8_t)label;
    }
    *at = p;
    return true;
}

/* Labels of the n axes that a term with `under` of them beneath its ellipsis stands for. */
static void spread(const term *s, int under, factor *x)
{
    x->n = 0;
    for (int i = 0; i <= s->n; i++) {
        for (int k = under; i == s->dots && k-- > 0;) {
            x->label[x->n++] = (uint8_t)(LETTERS + k);
        }
        if (i < s->n) {
            x->label[x->n++] = s->label[i];
        }
    }
}

static int place_of(const factor *x, int label, int before)
{
    for (int i = 0; i < before; i++) {
        if (x->label[i] == label) {
            return i;
        }
    }
    return -1;
}

/* Operand number i and its term as a factor; a->type is the operand's. */
static bool open_factor(wf_arg *a, const term *s, int i, factor *x)
{
    int under = a->type.rank - s->n;
    if (s->dots < 0 ? under != 0 : under < 0) {
        return wf_arg_fail(a, WEFT_ESHAPE, "give every axis a subscript, or some '...'",
                           "operand %d has %d axes, but %d subscripts", i, a->type.rank, s->n);
    }
    spread(s, under, x);
    x->t = a->x;
    x->dtype = a->type.dtype;
    memcpy(x->dims, a->type.dims, sizeof x->dims);
    return true;
}

/* Enters a factor's labels: extents are equal, or 1 in another operand. */
static bool note_factor(wf_arg *a, sums *e, const factor *x)
{
    char name[32];
    for (int i = 0; i < x->n; i++) {
        int label = x->label[i], first = place_of(x, label, i);
        int64_t *have = &e->extent[label], d = x->dims[i];
        if (first >= 0 ? d != x->dims[first] : *have >= 0 && d != *have && d != 1 && *have != 1) {
            return wf_arg_fail(a, WEFT_ESHAPE,
                               "one subscript has one extent; in another operand it may be 1",
                               "%s has extents %lld and %lld", name_of(label, name),
                               (long long)(first >= 0 ? x->dims[first] : *have), (long long)d);
        }
        *have = *have < 0 || *have == 1 ? d : *have;
        e->times[label]++;
        e->uses[label] += first < 0;
    }
    return true;
}

/* Without an arrow: the axes under the ellipsis, then what occurs once, in the order of the alphabet. */
static int implied(const sums *e, term *s)
{
    int n = 0;
    *s = (term){.dots = 0};
    for (int label = 0; label < LETTERS; label++) {
        if (e->times[label] == 1 && n++ < WF_MAX_RANK) {
            s->label[s->n++] = (uint8_t)label;
        }
    }
    return n + e->dots;
}

/* The result's labels, those after the arrow at p or those that it implies. */
static bool read_result(wf_arg *a, sums *e, const char *p)
{
    factor *out = &e->out;
    term s;
    char name[32];
    int rank;
    if (*p) {
        p += 2;
        if (!read_term(a, e, &p, &s)) {
            return false;
        }
        if (*p) {
            return wf_arg_fail(a, WEFT_EINVALID, "the result is one term, after one '->'",
                               "the equation goes on behind its result, at character %d",
                               (int)(p - e->text) + 1);
        }
        rank = s.n + (s.dots < 0 ? 0 : e->dots);
    } else {
        rank = implied(e, &s);
    }
    if (rank > WF_MAX_RANK) {
        return wf_arg_fail(a, WEFT_ESHAPE, NULL, "the result would have rank %d; 16 is the largest",
                           rank);
    }
    spread(&s, e->dots, out);
    for (int i = 0; i < out->n; i++) {
        int label = out->label[i];
        if (e->extent[label] < 0 || place_of(out, label, i) >= 0) {
            return wf_arg_fail(a, WEFT_EINVALID, "the result names axes of the operands, each once",
                               "%s of the result is %s", name_of(label, name),
                               e->extent[label] < 0 ? "in no operand" : "there twice");
        }
        e->uses[label]++;
    }
    return true;
}

/* The next term of the equation as operand i, at *at, which moves to the one behind it. */
static bool next_factor(wf_arg *a, const sums *e, const char **at, weft_tensor t, int i, factor *x)
{
    term s;
    if (!wf_arg_open(a, "einsum", t) || !read_term(a, e, at, &s) || !open_factor(a, &s, i, x)) {
        return false;
    }
    *at += **at == ',';
    return true;
}

static bool read_equation(wf_arg *a, sums *e, const weft_tensor *t, int n)
{
    const char *at = e->text;
    factor x;
    int terms = 1;
    for (const char *p = e->text; *p; p++) {
        terms += *p == ',';
    }
    if (!wf_arg_open(a, "einsum", t[0])) {
        return false;
    }
    if (terms != n) {
        return wf_arg_fail(a, WEFT_EINVALID, "one term, up to a comma or the arrow, per operand",
                           "the equation has %d terms for %d operands", terms, n);
    }
    for (int i = 0; i < n; i++) {
        if (!next_factor(a, e, &at, t[i], i, &x) || !note_factor(a, e, &x)) {
            return false;
        }
        int under = 0;
        for (int k = 0; k < x.n; k++) {
            under += x.label[k] >= LETTERS;
        }
        e->dots = under > e->dots ? under : e->dots;
    }
    return read_result(a, e, at);
}

/* -- steps of one factor ------------------------------------------------------------------------------------ */

/* Axes of which bit i of `gone` is set leave the labels. */
static void forget(factor *x, unsigned gone)
{
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        if (!(gone >> i & 1)) {
            x->label[n] = x->label[i];
            x->dims[n++] = x->dims[i];
        }
    }
    x->n = n;
}

/* Equal labels of one factor: its diagonals. */
static void take_diagonals(factor *x)
{
    for (int j = 1; j < x->n; j++) {
        int i = place_of(x, x->label[j], j);
        if (i < 0) {
            continue;
        }
        int64_t axes[2] = {i, j}, offset = 0, d = x->dims[i];
        uint8_t label = x->label[i];
        x->t = wf_op1(WF_OP_DIAGONAL,
                      &(wf_attr){.n_ints = 2, .ints = axes, .n_dyn = 1, .dyn = &offset}, x->t);
        forget(x, 1u << i | 1u << j);
        x->label[x->n] = label;
        x->dims[x->n++] = d;
        j = 0; /* places have moved */
    }
}

/* The sum over axes of x, in its own type; of bool as weft_sum has it. */
static void add_up(factor *x, unsigned gone)
{
    int64_t axes[WF_MAX_RANK];
    uint8_t n = 0;
    for (int i = 0; i < x->n; i++) {
        if (gone >> i & 1) {
            axes[n++] = i;
        }
    }
    if (n) {
        uint8_t type = x->dtype == WEFT_BOOL ? 0 : (uint8_t)x->dtype;
        x->t = wf_op1(WF_OP_SUM, &(wf_attr){.dtype = type, .n_ints = n, .ints = axes}, x->t);
        forget(x, gone);
    }
}

static void permute(factor *x, const int *places, int n)
{
    int64_t order[WF_MAX_RANK];
    bool moved = false;
    factor y = *x;
    for (int i = 0; i < n; i++) {
        order[i] = places[i];
        moved |= places[i] != i;
        y.label[i] = x->label[places[i]];
        y.dims[i] = x->dims[places[i]];
    }
    if (moved) {
        y.t = wf_op1(WF_OP_PERMUTE, &(wf_attr){.n_ints = (uint8_t)n, .ints = order}, x->t);
    }
    *x = y;
}

/* -- the product of two ---------------------------------------------------------------------------------------- */

/* Axes of extent 1 of x that y has too, and then those that x alone has and nothing later: they leave x. */
static void drop_ones(factor *x, const factor *y)
{
    unsigned gone = 0;
    for (int i = 0; i < x->n; i++) {
        bool meets = place_of(y, x->label[i], y->n) >= 0;
        gone |= (unsigned)(meets && x->dims[i] == 1) << i;
    }
    if (gone) {
        forget(x, gone);
        x->t = wf_api_reshape(x->t, x->n, x->dims);
    }
}

static void add_up_lone(factor *x, const factor *y, const sums *e)
{
    unsigned gone = 0;
    for (int i = 0; i < x->n; i++) {
        bool lone = place_of(y, x->label[i], y->n) < 0;
        gone |= (unsigned)(lone && !e->uses[x->label[i]]) << i;
    }
    add_up(x, gone);
}

/* Places of axes in x and y: shared and kept, shared and added up, of one alone. */
typedef struct plan {
    int n_kept, n_gone, n_x, n_y;
    int x[2 * WF_MAX_RANK], y[2 * WF_MAX_RANK]; /* kept, gone, own */
} plan;

static void put_places(plan *p, const factor *x, const factor *y, const sums *e, bool kept)
{
    for (int i = 0; i < x->n; i++) {
        int j = place_of(y, x->label[i], y->n);
        if (j >= 0 && (e->uses[x->label[i]] > 0) == kept) {
            p->x[p->n_kept + p->n_gone] = i;
            p->y[p->n_kept + p->n_gone] = j;
            p->n_kept += kept;
            p->n_gone += !kept;
        }
    }
}

static void plan_product(plan *p, const factor *x, const factor *y, const sums *e)
{
    *p = (plan){0};
    put_places(p, x, y, e, true);
    put_places(p, x, y, e, false);
    int shared = p->n_kept + p->n_gone;
    for (int i = 0; i < x->n; i++) {
        if (place_of(y, x->label[i], y->n) < 0) {
            p->x[shared + p->n_x++] = i;
        }
    }
    for (int i = 0; i < y->n; i++) {
        if (place_of(x, y->label[i], x->n) < 0) {
            p->y[shared + p->n_y++] = i;
        }
    }
}

/* What is left of a product whose factors are permuted as planned: the kept axes, those of x, those of y. */
static factor left_of(const plan *p, const factor *x, const factor *y)
{
    factor r = {.dtype = x->dtype};
    int shared = p->n_kept + p->n_gone;
    for (int i = 0; i < p->n_kept + p->n_x; i++) {
        int k = i < p->n_kept ? i : i + p->n_gone;
        r.label[r.n] = x->label[k];
        r.dims[r.n++] = x->dims[k];
    }
    for (int i = shared; i < y->n; i++) {
        r.label[r.n] = y->label[i];
        r.dims[r.n++] = y->dims[i];
    }
    return r;
}

/* `more` axes of extent 1 before axis `at` of f, for those that only the other factor has. */
static void make_room(factor *f, int at, int more)
{
    int64_t dims[WF_MAX_RANK];
    if (more == 0 || f->n == 0) {
        return;
    }
    for (int i = 0; i < f->n + more; i++) {
        dims[i] = i < at ? f->dims[i] : i < at + more ? 1 : f->dims[i - more];
    }
    f->t = wf_api_reshape(f->t, f->n + more, dims);
}

/* Elementwise, x[kept, gone, own, 1..] * y[kept, gone, 1.., own], then the sum over what goes. */
static factor multiply_each(const plan *p, factor x, factor y)
{
    factor r = left_of(p, &x, &y);
    int shared = p->n_kept + p->n_gone;
    make_room(&x, x.n, p->n_y);
    make_room(&y, shared, p->n_x);
    r.t = wf_op2(WF_OP_MUL, NULL, x.t, y.t);
    if (p->n_gone) { /* then no factor has axes of its own */
        factor all = {.t = r.t, .dtype = x.dtype, .n = shared};
        add_up(&all, ((1u << p->n_gone) - 1) << p->n_kept);
        r.t = all.t;
    }
    return r;
}

/* dims[from, to) as one extent (1 if there are none) behind out[n]; returns n + 1. */
static int merge(const int64_t *dims, int from, int to, int64_t *out, int n)
{
    uint64_t all = 1; /* wraps only beside an extent of 0, and then reshape answers */
    for (int i = from; i < to; i++) {
        all *= (uint64_t)dims[i];
    }
    out[n] = (int64_t)all;
    return n + 1;
}

static void reshape_to(factor *x, int n, const int64_t *dims)
{
    if (n != x->n || memcmp(dims, x->dims, (size_t)n * sizeof *dims) != 0) {
        x->t = wf_api_reshape(x->t, n, dims);
    }
}

/* x[kept, own, gone] times y[kept, gone, own] by matmul. */
static factor multiply_matrices(const plan *p, factor x, factor y)
{
    factor r = left_of(p, &x, &y);
    int kept = p->n_kept, shared = kept + p->n_gone, places[WF_MAX_RANK], n = 0, m = 0;
    int64_t xd[WF_MAX_RANK], yd[WF_MAX_RANK];
    for (int i = 0; i < x.n; i++) {
        places[i] = i < kept ? i : i < kept + p->n_x ? i + p->n_gone : i - p->n_x;
    }
    permute(&x, places, x.n);
    if (kept + 2 > WF_MAX_RANK) {
        n = merge(x.dims, 0, kept, xd, 0);
        m = merge(y.dims, 0, kept, yd, 0);
    } else {
        memcpy(xd, x.dims, (size_t)(n = kept) * sizeof *xd);
        memcpy(yd, y.dims, (size_t)(m = kept) * sizeof *yd);
    }
    if (kept == 0 && p->n_x > 1) { /* rows of one matrix, as matmul has them */
        memcpy(xd, x.dims, (size_t)(n = p->n_x) * sizeof *xd);
    } else {
        n = merge(x.dims, kept, kept + p->n_x, xd, n);
    }
    n = merge(x.dims, kept + p->n_x, x.n, xd, n);
    m = merge(y.dims, kept, shared, yd, m);
    m = merge(y.dims, shared, y.n, yd, m);
    reshape_to(&x, n, xd);
    reshape_to(&y, m, yd);
    r.t = wf_op2(WF_OP_MATMUL, NULL, x.t, y.t);
    xd[n - 1] = yd[m - 1];
    if (n != r.n || memcmp(xd, r.dims, (size_t)n * sizeof *xd) != 0) {
        r.t = wf_api_reshape(r.t, r.n, r.dims);
    }
    return r;
}

/* False: no such rank. */
static bool multiply(wf_arg *a, factor *x, factor y, const sums *e)
{
    plan p;
    drop_ones(x, &y);
    drop_ones(&y, x);
    add_up_lone(x, &y, e);
    add_up_lone(&y, x, e);
    plan_product(&p, x, &y, e);
    int rank = p.n_kept + p.n_gone + p.n_x + p.n_y;
    bool half = x->dtype == WEFT_F16 || x->dtype == WEFT_BF16; /* whose products would be rounded */
    bool each = p.n_gone == 0 || (p.n_x + p.n_y == 0 && !half);
    if (rank - (each ? 0 : p.n_gone) > WF_MAX_RANK) {
        return wf_arg_fail(a, WEFT_ESHAPE, "contract fewer operands at once",
                           "a product of operands would have rank %d; 16 is the largest", rank);
    }
    permute(x, p.x, x->n);
    permute(&y, p.y, y.n);
    *x = each ? multiply_each(&p, *x, y) : multiply_matrices(&p, *x, y);
    return true;
}

/* -- all of it --------------------------------------------------------------------------------------------------- */

/* x in the order of the result, without what that does not have. Where nothing was to be done, x is the operand `given`. */
static weft_tensor in_order(factor *x, const sums *e, weft_tensor given)
{
    unsigned gone = 0;
    int places[WF_MAX_RANK];
    for (int i = 0; i < x->n; i++) {
        gone |= (unsigned)!e->uses[x->label[i]] << i;
    }
    add_up(x, gone);
    for (int i = 0; i < e->out.n; i++) {
        places[i] = place_of(x, e->out.label[i], x->n);
    }
    permute(x, places, e->out.n);
    return wf_same_handle(x->t, given) ? wf_api_reshape(x->t, x->n, x->dims) : x->t;
}

static weft_tensor contract(const char *text, const weft_tensor *t, int n)
{
    wf_arg a;
    sums e = {.text = text};
    factor x = {.n = 0}, y;
    for (int i = 0; i < LABELS; i++) {
        e.extent[i] = -1;
    }
    if (!read_equation(&a, &e, t, n)) {
        return a.error;
    }
    weft_tensor given = t[0];
    for (int i = 0; i < n; i++) {
        if (!next_factor(&a, &e, &text, t[i], i, &y)) {
            return a.error;
        }
        take_diagonals(&y);
        for (int k = 0; k < y.n; k++) {
            e.uses[y.label[k]]--;
        }
        if (i == 0) {
            x = y;
            continue;
        }
        weft_scope sc = weft_scope_begin();
        weft_tensor before = x.t;
        if (!multiply(&a, &x, y, &e)) {
            weft_scope_end(sc);
            return a.error;
        }
        x.t = weft_scope_return(sc, x.t);
        if (i > 1 && before.slot != 0) {
            weft_free(before); /* a product that has done its part */
        }
    }
    return in_order(&x, &e, given);
}

weft_tensor(weft_einsum)(const char *equation, const weft_tensor *operands, int n)
{
    if (!equation || (!operands && n > 0)) {
        return wf_api_null("einsum", equation ? "the array of tensors" : "the equation");
    }
    if (n < 1) {
        return wf_api_error("einsum", WEFT_EINVALID, "%d operands are given; 1 or more are needed",
                            n);
    }
    weft_tensor few[FEW], *t = n <= FEW ? few : wf_malloc((size_t)n * sizeof *t);
    if (!t) {
        return wf_api_error("einsum", WEFT_ENOMEM, "out of memory for %d operands", n);
    }
    wf_called w;
    wf_called_begin(&w, "einsum", n, operands);
    weft_scope sc = weft_scope_begin();
    memcpy(t, operands, (size_t)n * sizeof *t);
    wf_api_unify(n, t);
    weft_tensor y = contract(equation, t, n);
    if (t != few) {
        wf_mfree(t);
    }
    return wf_called_end(&w, weft_scope_return(sc, y));
}
