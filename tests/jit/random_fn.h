/*
 * tests/jit/random_fn.h -- random functions: elementwise rows of every type, broadcasts, casts, views,
 * reductions, fused derivatives, in-place updates; reproducible from a seed.
 */
#ifndef TESTS_JIT_RANDOM_FN_H
#define TESTS_JIT_RANDOM_FN_H

#include "jit/ir/ir.h"
#include "jit/ir/kir.h"
#include "tests/jit/values.h"

typedef struct random_fn {
    wf_fn *f;
    uint64_t state;
    wf_val pool[256];
    int n;
    bool few_long; /* of rows with long kernels few: see random_elementwise */
} random_fn;

static inline uint64_t random_next(random_fn *r)
{
    return r->state = values_hash(r->state + 1);
}
static inline int random_below(random_fn *r, int n)
{
    return (int)(random_next(r) % (uint64_t)n);
}

static inline void random_add(random_fn *r, wf_op op, const wf_attr *a, int nsrc, const wf_val *src)
{
    wf_val dst[WF_MAX_DST];
    wf_why why;
    if (r->n + WF_MAX_DST < 256 && wf_fn_append(r->f, op, a, nsrc, src, dst, NULL, &why) == 0) {
        for (int i = 0; i < wf_rows[op].ndst; i++) {
            r->pool[r->n++] = dst[i];
        }
    }
}

static inline wf_val random_pick(random_fn *r)
{ /* recent values more often, so that chains grow */
    return r->pool[random_below(r, 3) ? r->n - 1 - random_below(r, r->n < 6 ? r->n : 6)
                                      : random_below(r, r->n)];
}

/* Another value of v's type that broadcasts with it, a scalar slot, or v. */
static inline wf_val random_partner(random_fn *r, wf_val v)
{
    int dt = wf_fn_type(r->f, v)->dtype;
    if (random_below(r, 6) == 0) {
        int kind = dt == WEFT_BOOL ? 0 : wf_dtype_kind(dt) == 2 ? 2 : 1, n = random_below(r, 5);
        return wf_fn_scalar(r->f, kind, kind ? wf_slot_bits(kind, 0.5 + n) : (uint64_t)(n & 1));
    }
    for (int i = 0; i < 12; i++) {
        wf_val u = random_pick(r);
        wf_type t = *wf_fn_type(r->f, v);
        if (u != v && wf_fn_type(r->f, u)->dtype == dt && !wf_op_is_weak(wf_fn_at(r->f, u)->op) &&
            wf_broadcast(&t, wf_fn_type(r->f, u), NULL) == 0 && wf_type_numel(&t) < 5000) {
            return u;
        }
    }
    return v;
}

/* Whether the kernel of an elementwise row is long: pow, tan, fmod of f64 have hundreds of instructions, most rows a few. */
static inline bool random_is_long(wf_op op, int dtype)
{
    static uint8_t known[WF_OP_COUNT][WEFT_DTYPE_COUNT]; /* 0: not yet; 1: short; 2: long */
    enum { SHORT = 100 };
    if (!known[op][dtype]) {
        const wf_kind kind = (wf_kind)wf_rows[op].kind;
        const uint8_t dt = (uint8_t)dtype;
        const uint8_t src[3] = {kind == WF_KIND_CHOOSE ? WEFT_BOOL : dt, dt, dt};
        const bool test = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
        wf_kir k;
        wf_why why;
        wf_kir_init(&k);
        const int rc = wf_kir_row_program(&k, op, wf_dtype_compute(dtype), wf_rows[op].min_src, src,
                                          test ? WEFT_BOOL : dtype, &why);
        known[op][dtype] = rc == 0 && k.n > SHORT ? 2 : 1;
        wf_kir_free(&k);
    }
    return known[op][dtype] == 2;
}

/* Where few long rows are wanted, they are drawn one time in four: else they take a third of the time of compiling. */
static inline void random_elementwise(random_fn *r)
{
    wf_val v = random_pick(r), s[3] = {v, random_partner(r, v), random_partner(r, v)};
    for (int i = 0; i < 40; i++) {
        wf_op op = (wf_op)(WF_OP_NEG + random_below(r, WF_OP_LOGICAL_XOR - WF_OP_NEG + 1));
        if (!wf_op_is_elementwise(op) || op == WF_OP_SIGNBIT ||
            op == WF_OP_COPYSIGN || /* they would show the sign of a NaN, which is unspecified */

            !(wf_rows[op].types & WF_BIT(wf_fn_type(r->f, v)->dtype)) ||
            (r->few_long && random_is_long(op, wf_fn_type(r->f, v)->dtype) && random_below(r, 4))) {
            continue;
        }
        if (wf_rows[op].kind == WF_KIND_CHOOSE) {
            for (int k = 0; k < r->n; k++) {
                wf_type t = *wf_fn_type(r->f, v);
                if (wf_fn_type(r->f, r->pool[k])->dtype == WEFT_BOOL &&
                    wf_broadcast(&t, wf_fn_type(r->f, r->pool[k]), NULL) == 0) {
                    random_add(r, op, NULL, 3, (wf_val[]){r->pool[k], v, s[1]});
                    return;
                }
            }
            continue;
        }
        random_add(r, op, NULL, wf_rows[op].min_src, s);
        return;
    }
}

static inline void random_view(random_fn *r)
{
    wf_val v = random_pick(r);
    wf_type t = *wf_fn_type(r->f, v);
    int64_t ints[WF_MAX_RANK], dyn[WF_MAX_RANK * 2 + 1];
    wf_attr a = {.ints = ints, .dyn = dyn};
    int kind = random_below(r, 4), axis = t.rank ? random_below(r, t.rank) : 0;
    if (kind == 0) {
        for (int i = 0; i < t.rank; i++) {
            ints[i] = i;
        }
        for (int i = t.rank - 1; i > 0; i--) {
            int j = random_below(r, i + 1);
            int64_t x = ints[i];
            ints[i] = ints[j];
            ints[j] = x;
        }
        a.n_ints = t.rank;
        random_add(r, WF_OP_PERMUTE, &a, 1, &v);
    } else if (kind == 1 && t.rank) {
        int64_t n = t.dims[axis];
        ints[0] = axis;
        dyn[0] = n > 1 ? random_below(r, (int)n / 2 + 1) : 0;
        dyn[1] = n;
        dyn[2] = 1 + random_below(r, 2);
        if (random_below(r, 4) == 0 && n > 0) {
            dyn[0] = n - 1;
            dyn[1] = -1;
            dyn[2] = -1;
        }
        a.n_ints = 1;
        a.n_dyn = 3;
        random_add(r, WF_OP_SLICE, &a, 1, &v);
    } else if (kind == 2) {
        int64_t n = wf_type_numel(&t);
        int64_t f = n % 3 == 0 && n ? 3 : n % 2 == 0 && n ? 2 : 1;
        dyn[0] = random_below(r, 2) ? f : n / f;
        dyn[1] = n / (dyn[0] ? dyn[0] : 1);
        a.n_dyn = 2;
        random_add(r, WF_OP_RESHAPE, &a, 1, &v);
    } else if (t.rank && t.rank < 4 && wf_type_numel(&t) < 500) {
        dyn[0] = 1 + random_below(r, 3);
        for (int i = 0; i < t.rank; i++) {
            dyn[i + 1] = t.dims[i] == 1 ? 4 : t.dims[i];
        }
        a.n_dyn = (uint8_t)(t.rank + 1);
        random_add(r, WF_OP_EXPAND, &a, 1, &v);
    }
}

static inline void random_reduction(random_fn *r)
{
    static const wf_op ops[] = {WF_OP_SUM,         WF_OP_MEAN,     WF_OP_AMAX,
                                WF_OP_AMIN,        WF_OP_SOFTMAX,  WF_OP_LOG_SOFTMAX,
                                WF_OP_VAR,         WF_OP_STD,      WF_OP_LOGSUMEXP,
                                WF_OP_ANY,         WF_OP_ALL,      WF_OP_COUNT_NONZERO,
                                WF_OP_PROD,        WF_OP_SUM,      WF_OP_LAYER_NORM,
                                WF_OP_SOFTMAX_BWD, WF_OP_RMS_NORM, WF_OP_LOG_SOFTMAX_BWD};
    wf_val v = random_pick(r), s[3] = {v, random_pick(r), 0};
    const wf_type t = *wf_fn_type(r->f, v);
    if (t.rank == 0 || wf_type_numel(&t) == 0) {
        return;
    }
    wf_op op = ops[random_below(r, 18)];
    int64_t axes[2] = {random_below(r, t.rank), t.rank - 1};
    double one = random_below(r, 2);
    wf_attr a = {.ints = axes, .n_ints = 1, .flags = (uint8_t)random_below(r, 2)};
    bool flt = wf_dtype_kind(t.dtype) == 2, row = wf_rows[op].kind != WF_KIND_REDUCE;
    int nsrc = 1;
    if (t.rank > 1 && axes[0] < axes[1] && !row && random_below(r, 3) == 0) {
        a.n_ints = 2;
    }
    if (op == WF_OP_SUM || op == WF_OP_MEAN || op == WF_OP_PROD) {
        a.dtype = (uint8_t)(flt ? t.dtype : op == WF_OP_MEAN ? WEFT_F32 : WEFT_I64);
    } else if (op == WF_OP_VAR || op == WF_OP_STD) {
        a.n_flt = 1;
        a.flt = &one;
    } else if (op == WF_OP_LAYER_NORM || op == WF_OP_RMS_NORM) {
        axes[0] = 1 + random_below(r, t.rank);
        one = 1e-3;
        a.flags = 0;
        a.n_flt = 1;
        a.flt = &one;
    } else if (row) {
        a.flags = 0;
        nsrc = op == WF_OP_SOFTMAX_BWD || op == WF_OP_LOG_SOFTMAX_BWD ? 2 : 1;
        if (nsrc == 2 && !wf_type_same(&t, wf_fn_type(r->f, s[1]))) {
            s[1] = v;
        }
    }
    bool any = op == WF_OP_SUM || op == WF_OP_AMAX || op == WF_OP_PROD || op == WF_OP_ANY ||
               op == WF_OP_ALL || op == WF_OP_COUNT_NONZERO || op == WF_OP_MEAN;
    if (flt || (any && t.dtype != WEFT_BOOL) || op == WF_OP_ANY) {
        random_add(r, op, &a, nsrc, s);
    }
}

static inline void random_vjp(random_fn *r)
{
    wf_val v = random_pick(r), g = random_pick(r);
    const wf_type *t = wf_fn_type(r->f, v);
    if (wf_dtype_kind(t->dtype) != 2 || !wf_type_same(t, wf_fn_type(r->f, g))) {
        return;
    }
    static const wf_op ops[] = {WF_OP_EXP,     WF_OP_GELU, WF_OP_MUL,  WF_OP_DIV, WF_OP_SQRT,
                                WF_OP_MAXIMUM, WF_OP_TANH, WF_OP_SIGN, WF_OP_ADD};
    wf_op op = ops[random_below(r, 9)];
    int n = wf_rows[op].min_src;
    int64_t ints[2] = {op, random_below(r, n)};
    wf_attr a = {.ints = ints, .n_ints = 2, .dyn = t->dims, .n_dyn = t->rank, .dtype = t->dtype};
    int64_t dims[WF_MAX_RANK];
    memcpy(dims, t->dims, sizeof dims);
    a.dyn = dims;
    wf_val s[4] = {g, v, n == 2 ? random_pick(r) : v, v};
    if (n == 2 && !wf_type_same(wf_fn_type(r->f, s[2]), wf_fn_type(r->f, v))) {
        s[2] = v;
    }
    random_add(r, WF_OP_VJP, &a, n + 2, s);
}

static inline void random_other(random_fn *r)
{
    wf_val v = random_pick(r);
    wf_type t = *wf_fn_type(r->f, v);
    static const uint8_t types[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16,
                                    WEFT_I64, WEFT_I32, WEFT_U8,  WEFT_BOOL};
    int kind = random_below(r, 4);
    if (kind < 2) {
        wf_attr a = {.dtype = types[random_below(r, kind ? 8 : 2)]};
        random_add(r, WF_OP_CAST, &a, 1, &v);
    } else if (kind == 2) {
        double x = 0.25 * random_below(r, 9);
        wf_attr a = {.dyn = t.dims, .n_dyn = t.rank, .flt = &x, .n_flt = 1, .dtype = t.dtype};
        random_add(r, WF_OP_FULL, &a, 0, NULL);
    } else if (t.rank == 2 && t.dims[0] > 1 && t.dims[1] > 1) {
        wf_val part = random_pick(r);
        const wf_type *p = wf_fn_type(r->f, part);
        if (p->dtype == t.dtype && p->rank == 1 && p->dims[0] <= t.dims[0] && p->dims[0] > 0) {
            int64_t dyn[3] = {p->dims[0], t.dims[1], 1};
            wf_attr a = {.dyn = dyn, .n_dyn = 3};
            random_add(r, WF_OP_UPDATE, &a, 2, (wf_val[]){v, part});
        } else {
            random_add(r, WF_OP_COPY, NULL, 1, &v);
        }
    }
}

/* Two to four values, views and fills among them, one behind the other. */
static inline void random_concat(random_fn *r)
{
    const wf_val v = random_pick(r);
    const wf_type t = *wf_fn_type(r->f, v);
    const int64_t axis = t.rank ? random_below(r, t.rank) : 0;
    const int want = 2 + random_below(r, 3);
    wf_val s[4] = {v};
    int64_t all = wf_type_numel(&t);
    int n = 1;
    for (int i = 0; i < 24 && n < want && t.rank; i++) {
        const wf_val u = random_pick(r);
        const wf_type *o = wf_fn_type(r->f, u);
        bool fits = o->dtype == t.dtype && o->rank == t.rank &&
                    !wf_op_is_weak(wf_fn_at(r->f, u)->op) && (u != v || random_below(r, 4) == 0);
        for (int k = 0; k < t.rank && fits; k++) {
            fits = k == axis || o->dims[k] == t.dims[k];
        }
        if (fits && all + wf_type_numel(o) < 12000) {
            all += wf_type_numel(o);
            s[n++] = u;
        }
    }
    for (int i = n; i > 1; i--) {
        const int k = random_below(r, i);
        const wf_val x = s[i - 1];
        s[i - 1] = s[k];
        s[k] = x;
    }
    if (n > 1) {
        random_add(r, WF_OP_CONCAT, &(wf_attr){.ints = &axis, .n_ints = 1}, n, s);
    }
}

/* A function of about `size` instructions, with a few operands of thousands of elements or none. Free with
 * wf_fn_free. */
static inline wf_fn *random_function_with(uint64_t seed, int size, bool large, bool few_long,
                                          bool concats)
{
    static const wf_type types[] = {
        {WEFT_F32, 2, {6, 10}},  {WEFT_F32, 1, {10}},     {WEFT_F32, 3, {2, 3, 10}},
        {WEFT_F64, 2, {6, 10}},  {WEFT_BF16, 2, {6, 10}}, {WEFT_F16, 1, {10}},
        {WEFT_I64, 2, {6, 10}},  {WEFT_F32, 2, {6, 1}},   {WEFT_F32, 0, {0}},
        {WEFT_BOOL, 2, {6, 10}}, {WEFT_I32, 1, {10}},     {WEFT_F32, 2, {40, 70}},
        {WEFT_F32, 2, {3, 0}},   {WEFT_U8, 2, {6, 10}},   {WEFT_F32, 1, {70}},
        {WEFT_F32, 2, {40, 1}},
    };
    random_fn r = {.f = wf_fn_new("random"), .state = values_hash(seed), .few_long = few_long};
    int n = 2 + random_below(&r, 5);
    for (int i = 0; i < n; i++) {
        wf_type t = types[random_below(&r, random_below(&r, 2) ? 3 : 16)];
        for (int k = 0; k < t.rank && !large; k++) {
            t.dims[k] = t.dims[k] == 70 ? 19 : t.dims[k] == 40 ? 5 : t.dims[k];
        }
        r.pool[r.n++] = wf_fn_input(r.f, &t);
    }
    for (int i = 0; i < size; i++) {
        if (concats && random_below(&r, 5) == 0) {
            random_concat(&r);
        }
        int what = random_below(&r, 20);
        if (what < 11) {
            random_elementwise(&r);
        } else if (what < 14) {
            random_view(&r);
        } else if (what < 16) {
            random_reduction(&r);
        } else if (what < 18) {
            random_vjp(&r);
        } else {
            random_other(&r);
        }
    }
    for (int i = 0; i < 1 + (int)(seed % 4); i++) {
        wf_fn_output(r.f, r.pool[i == 0 ? r.n - 1 : random_below(&r, r.n)]);
    }
    return r.f;
}

static inline wf_fn *random_function_of(uint64_t seed, int size, bool large)
{
    return random_function_with(seed, size, large, false, false);
}

static inline wf_fn *random_function(uint64_t seed, int size)
{
    return random_function_of(seed, size, true);
}

#endif
