/*
 * jit/ir/symbols.c -- extents that are symbols: their numbers, the sizes that they stand for, and inference with them.
 *
 * Inference knows nothing of symbols: it runs with sizes for them, three times, and what goes through all three as of one symbol is
 * the extent; where there is none it runs more often, and what goes through all as of several symbols is it (jit/ir/extents.c). Sizes are such as the symbols have: within their ranges, and multiples, or as much more, where only these are; a range that leaves too
 * few to tell the symbols apart is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

/* -- symbols and ranges ------------------------------------------------------------------------------------------- */

int wf_fn_symbol(wf_fn *f, const char *name, size_t len)
{
    if (len == 0 || len >= sizeof f->symbols[0]) {
        return -1;
    }
    for (uint32_t i = 0; i < f->nsymbols; i++) {
        if (strlen(f->symbols[i]) == len && memcmp(f->symbols[i], name, len) == 0) {
            return (int)i;
        }
    }
    if (f->nsymbols == WF_MAX_SYMBOLS) {
        return -1;
    }
    f->polys = f->polys ? f->polys : calloc(1, sizeof *f->polys);
    char(*p)[32] = f->polys ? realloc(f->symbols, (f->nsymbols + 1u) * sizeof *p) : NULL;
    if (!p) {
        return WF_NO_MEMORY;
    }
    f->symbols = p;
    memcpy(p[f->nsymbols], name, len);
    p[f->nsymbols][len] = '\0';
    f->range[f->nsymbols] = wf_any_size();
    return (int)f->nsymbols++;
}

int wf_fn_copy_symbols(wf_fn *f, const wf_fn *from)
{
    for (uint32_t k = 0; k < from->nsymbols; k++) {
        if (wf_fn_symbol(f, from->symbols[k], strlen(from->symbols[k])) != (int)k) {
            return WEFT_ENOMEM;
        }
        f->range[k] = from->range[k];
    }
    for (uint32_t k = 0; k < (from->nsymbols ? from->polys->n : 0); k++) { /* at the same places */
        wf_polys *all = f->polys;
        if (wf_grow(&all->p, all->n, 1, &all->cap, sizeof *all->p)) {
            return WEFT_ENOMEM;
        }
        all->p[all->n++] = from->polys->p[k];
    }
    return 0;
}

int64_t wf_common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t wf_sym(uint32_t k, int64_t a, int64_t d, int64_t b)
{
    const int64_t half = INT64_C(1) << (WF_TERM_BITS - 1);
    const int64_t common = a < 1 || d < 1 ? 1 : wf_common_divisor(a, d);
    a /= common;
    d /= common;
    if (a < 1 || a > 2 * half || d < 1 || d > WF_MOST_MULTIPLE || b < -half || b >= half) {
        return -1;
    }
    const int64_t folded = b < 0 ? -2 * b - 1 : 2 * b;
    return WF_SYM(k) + ((a - 1) << WF_SYM_BITS) + (folded << (WF_SYM_BITS + WF_TERM_BITS)) +
           ((d - 1) << (WF_SYM_BITS + 2 * WF_TERM_BITS));
}

bool wf_is_sym(const wf_fn *f, int64_t v)
{
    return WF_IS_SYM(v) &&
           (wf_poly_of(f, v) ||
            (wf_sym_of(v) < f->nsymbols && f->range[wf_sym_of(v)].multiple % wf_sym_over(v) == 0 &&
             wf_common_divisor(wf_sym_times(v), wf_sym_over(v)) == 1));
}

int64_t wf_range_to(wf_range r, int64_t x)
{
    return x < r.rest ? -1 : x - (x - r.rest) % r.multiple;
}

int64_t wf_range_from(wf_range r, int64_t x)
{
    const int64_t last = wf_range_to(r, r.most), least = r.least < r.rest ? r.rest : r.least;
    x = x < least ? least : x;
    const int64_t over = (x - r.rest) % r.multiple;
    x = x > last ? last : x + (over ? r.multiple - over : 0);
    return x < least || x > last ? -1 : x;
}

bool wf_range_good(wf_range r)
{
    return r.multiple >= 1 && r.multiple <= WF_MOST_MULTIPLE && r.rest >= 0 &&
           r.rest < r.multiple && r.most >= 1 && r.least <= r.most && r.least >= 0 &&
           wf_range_from(r, 1) >= 1;
}

bool wf_slot_is_extent(int op, const wf_attr *attr, int i)
{
    const int more = op == WF_OP_RANDINT ? 4 : 2;
    return op < WF_OP_RAND || op > WF_OP_RANDPERM || i < attr->n_dyn - more;
}

void wf_type_bind(const wf_fn *f, wf_type *t, const int64_t *value)
{
    for (int i = 0; i < t->rank; i++) {
        if (WF_IS_SYM(t->dims[i])) {
            t->dims[i] = wf_sym_value(f, t->dims[i], value);
        }
    }
}

int64_t wf_size_below(wf_range r, int64_t most, const int64_t *taken, int n)
{
    int64_t x = wf_range_to(r, most < r.most ? most : r.most);
    for (int i = 0; i < n; i++) {
        if (taken[i] == x) { /* a smaller one, which may be taken in turn */
            x -= r.multiple;
            i = -1;
        }
    }
    return x > 0 && x >= r.least ? x : 0;
}

/* -- inference ---------------------------------------------------------------------------------------------------- */

/* Bindings within the symbols' ranges; no extent of the one is an extent of the other, but where a range has only two sizes. */
enum { BINDINGS = WF_POINTS_APART };

/* As far: so large that more can be taken off. fall: later symbols have smaller sizes, not larger ones. */
static int bind_symbols(const wf_fn *f, int64_t far, bool fall, wf_points *b, wf_why *why)
{
    static const int64_t sizes[BINDINGS][WF_MAX_SYMBOLS] = {
        {11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71},
        {73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151},
        {263, 283, 313, 337, 367, 389, 419, 443, 467, 499, 523, 563, 587, 617, 643, 673},
    };
    int64_t taken[BINDINGS * WF_MAX_SYMBOLS];
    int n = 0;
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        const wf_range r = f->range[k];
        const uint32_t at = fall ? f->nsymbols - 1 - k : k;
        for (int i = 0; i < BINDINGS; i++) {
            int64_t most = 0;
            if (__builtin_add_overflow(wf_range_from(r, r.least + far), sizes[i][at] * r.multiple,
                                       &most)) {
                most = r.most;
            }
            int64_t x = wf_size_below(r, most, taken, n);
            x = x == 0 && i == 2 ? b->size[1][k] : x;
            taken[n++] = b->size[i][k] = x;
            if (x == 0) {
                char text[WF_RANGE_TEXT];
                return wf_fail(why, WEFT_EUNSUPPORTED,
                               "%s leaves too few sizes to tell the symbols apart",
                               wf_range_text(f->symbols[k], r, text));
            }
        }
    }
    return 0;
}

/* Inference with the symbols bound. */
static int infer_bound(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_type *src,
                       const int64_t *value, wf_type *dst, wf_why *why)
{
    wf_type *t = malloc(((size_t)nsrc + 1) * sizeof *t);
    int64_t *dyn = malloc((attr->n_dyn + 1u) * sizeof *dyn);
    int rc = t && dyn ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    if (!rc) {
        wf_attr a = *attr;
        a.dyn = dyn;
        for (int i = 0; i < attr->n_dyn; i++) {
            bool sym = wf_is_sym(f, attr->dyn[i]) && wf_slot_is_extent((int)op, attr, i);
            dyn[i] = sym ? wf_sym_value(f, attr->dyn[i], value) : attr->dyn[i];
        }
        bool fits = true;
        for (int i = 0; i < nsrc; i++) {
            t[i] = src[i];
            wf_type_bind(f, &t[i], value);
            for (int k = 0; k < t[i].rank; k++) {
                fits = fits && t[i].dims[k] >= 0 && !WF_IS_SYM(t[i].dims[k]);
            }
        }
        rc = fits ? wf_infer_sizes(op, &a, nsrc, t, dst, why)
                  : wf_fail(why, WEFT_ESHAPE, "an extent of an operand is negative, or too large");
    }
    free(t);
    free(dyn);
    return rc;
}

int64_t wf_sym_through(uint32_t k, int64_t multiple, const int64_t size[3], const int64_t x[3])
{
    int64_t by, more, part, plus;
    if (__builtin_sub_overflow(size[1], size[0], &by) ||
        __builtin_sub_overflow(x[1], x[0], &more) ||
        (by < 0 &&
         (__builtin_sub_overflow(0, by, &by) || __builtin_sub_overflow(0, more, &more))) ||
        by == 0 || more < 1) {
        return -1;
    }
    const int64_t common = wf_common_divisor(more, by), a = more / common, d = by / common;
    if (multiple % d != 0 || __builtin_mul_overflow(a, size[0], &part) ||
        __builtin_sub_overflow(x[0], part / d, &plus)) {
        return -1;
    }
    const int64_t v = wf_sym(k, a, d, plus);
    const bool pure = v == WF_SYM(k), three = size[2] != size[0] && size[2] != size[1];
    for (int i = 0; i < 3 && v > 0; i++) {
        if (size[i] % d != size[0] % d || __builtin_mul_overflow(a, size[i], &part) ||
            __builtin_add_overflow(part / d, plus, &part) || part != x[i]) {
            return -1;
        }
    }
    return pure || three ? v : -1;
}

/* The extent that is x[i] under binding i and of one symbol, or of none; -1: there is none. */
static int64_t unbind(const wf_points *b, const wf_fn *f, const int64_t x[BINDINGS])
{
    int64_t found = x[0] == x[1] && x[0] == x[2] ? x[0] : -1;
    for (uint32_t k = 0; k < f->nsymbols && found < 0; k++) {
        const int64_t size[BINDINGS] = {b->size[0][k], b->size[1][k], b->size[2][k]};
        found = wf_sym_through(k, f->range[k].multiple, size, x);
    }
    return found;
}

/* Axis i of a result of op cannot be said. */
static int refuse_extent(wf_op op, int i, wf_why *why)
{
    wf_fail(why, WEFT_EUNSUPPORTED,
            "axis %d of the result of %s is neither constant nor a sum of symbols, products of two "
            "of them and integers",
            i, wf_rows[op].name);
    wf_hint(why, "a quotient can be one where only multiples are sizes: \"n%%4==0\"");
    return WEFT_EUNSUPPORTED;
}

/* Results of an op under bindings. */
typedef struct inferred {
    wf_type dst[WF_MAX_DST];
} inferred;

/* Extents of one symbol, from the bindings apart. False: there are others. */
static bool unbind_single(const wf_fn *f, int ndst, const wf_points *b, const inferred *each,
                          wf_type *dst)
{
    bool all = true;
    for (int r = 0; r < ndst; r++) {
        dst[r] = each[0].dst[r];
        for (int i = 0; i < dst[r].rank; i++) {
            const int64_t x[] = {each[0].dst[r].dims[i], each[1].dst[r].dims[i],
                                 each[2].dst[r].dims[i]};
            dst[r].dims[i] = unbind(b, f, x);
            all = all && dst[r].dims[i] >= 0;
        }
    }
    return all;
}

/* The others, of several symbols, from all bindings. */
static int unbind_joint(const wf_fn *f, wf_op op, const wf_points *b, const inferred *each,
                        wf_type *dst, wf_why *why)
{
    int64_t x[WF_POINTS];
    int rc = 0;
    for (int r = 0; r < wf_rows[op].ndst && !rc; r++) {
        for (int i = 0; i < dst[r].rank && !rc; i++) {
            if (dst[r].dims[i] >= 0) {
                continue;
            }
            for (int k = 0; k < b->n; k++) {
                x[k] = each[k].dst[r].dims[i];
            }
            dst[r].dims[i] = wf_extent_through(f, b, x);
            rc = dst[r].dims[i] < 0 ? refuse_extent(op, i, why) : 0;
        }
    }
    return rc;
}

/* Inference of types t under bindings that are `far` off, or fall. */
static int infer_with(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_type *t,
                      int64_t far, bool fall, wf_type *dst, wf_why *why)
{
    wf_points b;
    inferred apart[BINDINGS];
    int rc = bind_symbols(f, far, fall, &b, why);
    for (int i = 0; i < BINDINGS && !rc; i++) {
        rc = infer_bound(f, op, attr, nsrc, t, b.size[i], apart[i].dst, why);
    }
    if (rc || unbind_single(f, wf_rows[op].ndst, &b, apart, dst)) {
        return rc;
    }
    wf_points_around(f->range, (int)f->nsymbols, &b);
    inferred *each = malloc((size_t)b.n * sizeof *each);
    rc = each ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    for (int i = 0; i < b.n && !rc; i++) {
        rc = infer_bound(f, op, attr, nsrc, t, b.size[i], each[i].dst, why);
    }
    rc = rc ? rc : unbind_joint(f, op, &b, each, dst, why);
    free(each);
    return rc;
}

int wf_infer_symbolic(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_type *src,
                      wf_type *dst, wf_why *why)
{
    enum { FAR = 4096 };
    wf_why other = {0};
    int rc = infer_with(f, op, attr, nsrc, src, 0, false, dst, why);
    if (rc &&
        (infer_with(f, op, attr, nsrc, src, FAR, false, dst, &other) == 0 ||
         (f->nsymbols > 1 && infer_with(f, op, attr, nsrc, src, 0, true, dst, &other) == 0))) {
        wf_why_clear(why);
        rc = 0;
    }
    return rc;
}
