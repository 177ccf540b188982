/*
 * tests/jit/random_graph.h -- random calls of every row that is not elementwise, alone or inside a
 * random function (random_fn.h makes the rest).
 *
 * An operand of a wanted type is a value the function already has, or a new input. Indices are always
 * inputs, which graph_inputs fills with 0, 1 and 2; now and then an axis is shorter, and the call an error.
 */
#ifndef TESTS_JIT_RANDOM_GRAPH_H
#define TESTS_JIT_RANDOM_GRAPH_H

#include "tests/jit/random_fn.h"

/* A value of type t. */
static inline wf_val graph_operand(random_fn *r, const wf_type *t)
{
    for (int i = 0; r->n > 0 && i < 8 && random_below(r, 2); i++) {
        wf_val v = random_pick(r);
        if (wf_type_same(wf_fn_type(r->f, v), t) && !wf_op_is_weak(wf_fn_at(r->f, v)->op)) {
            return v;
        }
    }
    wf_val v = wf_fn_input(r->f, t);
    if (r->n < 240) {
        r->pool[r->n++] = v;
    }
    return v;
}

/* A value of the dtype and these extents; -1 ends them. */
static inline wf_val graph_want(random_fn *r, int dtype, const int64_t *dims)
{
    wf_type t = {.dtype = (uint8_t)dtype};
    while (dims[t.rank] >= 0) {
        t.dims[t.rank] = dims[t.rank];
        t.rank++;
    }
    return graph_operand(r, &t);
}
#define WANT(dt, ...) graph_want(r, dt, (const int64_t[]){__VA_ARGS__, -1})

/* Small integers: an input, never a computed value. */
static inline wf_val graph_indices(random_fn *r, const wf_type *shape)
{
    wf_type t = *shape;
    t.dtype = WEFT_I64;
    return wf_fn_input(r->f, &t);
}

/* A floating-point (or with `any` numeric) operand of rank >= `rank` with at least one element. */
static inline wf_val graph_pick(random_fn *r, int rank, bool any)
{
    static const uint8_t dts[] = {WEFT_F32, WEFT_F32, WEFT_F16,  WEFT_BF16, WEFT_F64,
                                  WEFT_I64, WEFT_U8,  WEFT_BOOL, WEFT_I32,  WEFT_I8};
    for (int i = 0; i < 6 && r->n; i++) {
        wf_val v = random_pick(r);
        const wf_type *t = wf_fn_type(r->f, v);
        if (t->rank >= rank && wf_type_numel(t) > 0 && wf_type_numel(t) < 500 && t->rank < 5 &&
            (any ? t->dtype != WEFT_BOOL : wf_dtype_kind(t->dtype) == 2)) {
            return v;
        }
    }
    wf_type t = {.dtype = dts[random_below(r, any ? 10 : 5)]};
    t.rank = (uint8_t)(rank + random_below(r, 4 - rank));
    if (any && t.dtype == WEFT_BOOL) {
        t.dtype = WEFT_I16;
    }
    for (int i = 0; i < t.rank; i++) {
        t.dims[i] = 1 + random_below(r, i ? 7 : 4);
    }
    if (random_below(r, 20) == 0 && t.rank) {
        t.dims[random_below(r, t.rank)] = random_below(r, 2) ? 0 : 130;
    }
    return graph_operand(r, &t);
}

static inline void graph_reduce(random_fn *r, wf_op op)
{
    bool arg = op == WF_OP_ARGMAX || op == WF_OP_ARGMIN,
         scan = op == WF_OP_CUMSUM || op == WF_OP_CUMPROD;
    wf_val v = graph_pick(r, scan, op != WF_OP_MEAN || random_below(r, 2));
    wf_type t = *wf_fn_type(r->f, v);
    static const double orders[] = {2, 1, 0, INFINITY, -INFINITY, 3, 0.5};
    double flt = op == WF_OP_NORM ? orders[random_below(r, 7)] : random_below(r, 3);
    int64_t axes[WF_MAX_RANK];
    wf_attr a = {.ints = axes, .flags = (uint8_t)(scan ? 0 : random_below(r, 2)), .flt = &flt};
    for (int i = 0; i < t.rank; i++) {
        if (random_below(r, 2) && !((arg || scan) && a.n_ints)) {
            axes[a.n_ints++] = i;
        }
    }
    if (scan && !a.n_ints) {
        axes[a.n_ints++] = 0;
    }
    a.n_flt = op == WF_OP_NORM || op == WF_OP_VAR || op == WF_OP_STD;
    if (op == WF_OP_SUM || op == WF_OP_PROD || op == WF_OP_MEAN || scan) {
        bool flt_in = wf_dtype_kind(t.dtype) == 2;
        int pick = random_below(r, 4);
        a.dtype = pick == 0 ? WEFT_F64 : pick == 1 ? WEFT_F32 : WEFT_DTYPE_DEFAULT;
        if (pick == 2 && !flt_in && op != WF_OP_MEAN) {
            a.dtype = WEFT_I32;
        }
    }
    random_add(r, op, &a, 1, &v);
}

static inline void graph_view(random_fn *r, wf_op op)
{
    wf_val v = graph_pick(r, op == WF_OP_DIAGONAL ? 2 : 1, true);
    wf_type t = *wf_fn_type(r->f, v);
    int64_t ints[2] = {0, t.rank - 1}, n = wf_type_numel(&t);
    int64_t dyn[5] = {(n + 2) / 3, 2, 1, n / 3, 0};
    wf_attr a = {.ints = ints, .dyn = dyn};
    if (op == WF_OP_DIAGONAL) {
        a.n_ints = 2;
        a.n_dyn = 1;
        dyn[0] = random_below(r, 4) - 2;
    } else if (op == WF_OP_AS_STRIDED) {
        ints[0] = 2;
        a.n_ints = 1;
        a.n_dyn = 5;
        dyn[3] = n > 1 ? n - dyn[0] : 0;
        if (random_below(r, 3) == 0) {
            dyn[0] = 1;
            dyn[1] = n;
            dyn[2] = random_below(r, 9);
            dyn[3] = 1;
        }
    } else if (op == WF_OP_RESHAPE) {
        dyn[0] = n;
        a.n_dyn = 1;
    } else if (op == WF_OP_EXPAND) {
        dyn[0] = 2;
        memcpy(dyn + 1, t.dims, (size_t)t.rank * sizeof *dyn);
        a.n_dyn = (uint8_t)(t.rank + 1);
    }
    if (a.n_dyn || op == WF_OP_DETACH) {
        random_add(r, op, &a, 1, &v);
    } else {
        random_view(r);
    }
}

static inline void graph_move(random_fn *r, wf_op op)
{
    enum { MANY = 310 };
    wf_val v = graph_pick(r, op == WF_OP_TRIL || op == WF_OP_TRIU ? 2 : 1, true),
           s[MANY] = {v, v, v};
    wf_type t = *wf_fn_type(r->f, v);
    int64_t ints[WF_MAX_RANK] = {random_below(r, t.rank)}, dyn[2 * WF_MAX_RANK + 1];
    double flt = random_below(r, 2) ? -1.5 : 0;
    wf_attr a = {.ints = ints, .dyn = dyn, .flt = &flt};
    int64_t axis = ints[0], n = t.dims[axis], start = n ? random_below(r, (int)n) : 0;
    int ns = 1;
    switch ((int)op) {
    case WF_OP_CONCAT:
        a.n_ints = 1;
        ns = 1 + random_below(r, 3);
        s[1] = graph_operand(r, &t);
        if (random_below(r, 12) == 0 && wf_type_numel(&t) < 16) { /* more than a byte counts */
            ns = MANY - random_below(r, 60);
            for (int i = 2; i < ns; i++) {
                s[i] = random_below(r, 8) ? s[i - 2] : graph_operand(r, &t);
            }
        }
        break;
    case WF_OP_PAD:
        a.n_dyn = (uint8_t)(2 * t.rank);
        a.n_flt = 1;
        for (int i = 0; i < a.n_dyn; i++) {
            dyn[i] = random_below(r, 4) - 1;
        }
        break;
    case WF_OP_PAD_MODE:
        a.n_ints = 1;
        a.n_dyn = (uint8_t)(2 * t.rank);
        ints[0] = random_below(r, 3);
        for (int i = 0; i < a.n_dyn; i++) {
            int64_t most = t.dims[i / 2] - (ints[0] == 0); /* as far as there are elements */
            dyn[i] = most > 0 ? random_below(r, most < 3 ? (int)most + 1 : 3) : 0;
        }
        break;
    case WF_OP_ROLL:
        a.n_ints = a.n_dyn = 1;
        dyn[0] = random_below(r, 9) - 4;
        break;
    case WF_OP_TRIL:
    case WF_OP_TRIU:
        a.n_dyn = 1;
        dyn[0] = random_below(r, 7) - 3;
        break;
    case WF_OP_SLICE_GRAD:
        a.n_ints = 1;
        a.n_dyn = 4;
        dyn[2] = 1 + random_below(r, 2);
        dyn[0] = random_below(r, 3);
        dyn[1] = dyn[0] + (n ? (n - 1) * dyn[2] + 1 : 0);
        dyn[3] = dyn[1] + random_below(r, 3);
        break;
    case WF_OP_STRIDED_GRAD:
        ints[0] = 1;
        a.n_ints = 1;
        a.n_dyn = (uint8_t)(1 + t.rank + 1);
        dyn[0] = 4;
        for (int i = 0; i < t.rank; i++) { /* many elements meet in one place */
            dyn[1 + i] = random_below(r, 2);
            dyn[0] += (t.dims[i] > 0 ? t.dims[i] - 1 : 0) * dyn[1 + i];
        }
        dyn[1 + t.rank] = random_below(r, 4);
        break;
    case WF_OP_UPDATE: {
        int64_t m = wf_type_numel(&t);
        wf_type part = {.dtype = t.dtype, .rank = 1, .dims = {m / 2}};
        ns = 2;
        s[1] = graph_operand(r, &part);
        dyn[0] = m / 2;
        dyn[1] = random_below(r, 3);
        dyn[2] = random_below(r, 2) && m > 1 ? 1 : 0;
        a.n_dyn = 3;
        break;
    }
    case WF_OP_CAST: {
        static const uint8_t to[] = {WEFT_F32, WEFT_F64, WEFT_F16, WEFT_BF16, WEFT_I64,
                                     WEFT_I32, WEFT_I16, WEFT_I8,  WEFT_U8,   WEFT_BOOL};
        a.dtype = to[random_below(r, 10)];
        break;
    }
    }
    (void)start;
    random_add(r, op, &a, ns, s);
}

static inline void graph_index(random_fn *r, wf_op op)
{
    wf_val s[3] = {graph_pick(r, 1, true)};
    wf_type t = *wf_fn_type(r->f, s[0]),
            idx = {.rank = (uint8_t)(1 + random_below(r, 2)), .dims = {3, 2}};
    int64_t axis = random_below(r, t.rank), dyn = 3;
    wf_attr a = {.ints = &axis, .n_ints = 1, .flags = (uint8_t)random_below(r, 2)};
    if (t.dims[axis] < 3 && random_below(r, 9)) { /* mostly in range */
        t.dims[axis] = 3 + random_below(r, 4);
        s[0] = graph_operand(r, &t);
    }
    int ns = 2;
    if (op == WF_OP_SORT || op == WF_OP_TOPK) {
        ns = 1;
        dyn = t.dims[axis] > 1 ? 1 + random_below(r, (int)t.dims[axis]) : t.dims[axis];
        a.dyn = &dyn;
        a.n_dyn = op == WF_OP_TOPK;
    } else if (op == WF_OP_ONE_HOT) {
        ns = 1;
        s[0] = graph_indices(r, &idx);
        a = (wf_attr){.dyn = &dyn, .n_dyn = 1, .dtype = random_below(r, 2) ? WEFT_F16 : WEFT_I64};
    } else if (op == WF_OP_TAKE_ALONG || op == WF_OP_SCATTER_ADD) {
        idx = t;
        idx.dims[axis] = 1 + random_below(r, 5);
        s[1] = graph_indices(r, &idx);
        idx.dtype = t.dtype;
        s[2] = graph_operand(r, &idx);
        ns = op == WF_OP_TAKE_ALONG ? 2 : 3;
    } else {
        s[1] = graph_indices(r, &idx);
        wf_type part = {.dtype = t.dtype};
        for (int i = 0; i < t.rank; i++) {
            for (int k = 0; i == axis && k < idx.rank; k++) {
                part.dims[part.rank++] = idx.dims[k];
            }
            if (i != axis) {
                part.dims[part.rank++] = t.dims[i];
            }
        }
        s[2] = graph_operand(r, &part);
        ns = op == WF_OP_INDEX_SELECT ? 2 : 3;
    }
    random_add(r, op, &a, ns, s);
}

static inline void graph_create(random_fn *r, wf_op op)
{
    static const uint8_t flts[] = {WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_F64};
    static const uint8_t all[] = {WEFT_F32, WEFT_F16, WEFT_I64, WEFT_U8, WEFT_BF16};
    int64_t dyn[6] = {3, 5, 7 + random_below(r, 90), random_below(r, 1000), -3, 9};
    double flt[2] = {-0.5, 1.25};
    wf_attr a = {.dyn = dyn, .flt = flt, .n_dyn = 4, .n_flt = 2, .dtype = flts[random_below(r, 4)]};
    if (op == WF_OP_FULL) {
        a.n_dyn = 2;
        a.n_flt = (uint8_t)random_below(r, 2);
        a.dtype = all[random_below(r, 5)];
    } else if (op == WF_OP_ARANGE) {
        a.n_dyn = random_below(r, 2) ? 1 : 3;
        a.n_flt = a.n_dyn == 1 ? 2 : 0;
        a.dtype = all[random_below(r, 5)];
    } else if (op == WF_OP_LINSPACE) {
        a.n_dyn = 1;
    } else if (op == WF_OP_EYE) {
        a.n_dyn = 3;
        a.n_flt = 0;
        dyn[2] = random_below(r, 7) - 3;
        a.dtype = all[random_below(r, 5)];
    } else if (op == WF_OP_RANDINT) {
        a.n_dyn = 6;
        a.n_flt = 0;
        a.dtype = WEFT_I64;
    } else if (op == WF_OP_BERNOULLI) {
        a.n_flt = 1;
        flt[0] = 0.5;
    } else if (op == WF_OP_RANDPERM) {
        a.n_dyn = 3;
        a.n_flt = 0;
        a.dtype = WEFT_I64;
    }
    random_add(r, op, &a, 0, NULL);
}

static inline int graph_float(random_fn *r)
{
    static const uint8_t dts[] = {WEFT_F32, WEFT_F32, WEFT_F16, WEFT_BF16, WEFT_F64};
    return dts[random_below(r, 5)];
}

static inline void graph_softmax(random_fn *r, wf_op op)
{
    wf_val s[2] = {graph_pick(r, 1, false)};
    wf_type t = *wf_fn_type(r->f, s[0]);
    int64_t axis = random_below(r, t.rank);
    wf_attr a = {.ints = &axis, .n_ints = 1};
    s[1] = graph_operand(r, &t);
    random_add(r, op, &a, wf_rows[op].min_src, s);
}

/* layer_norm and rms_norm, with their backward row. */
static inline void graph_norm(random_fn *r, bool layer)
{
    wf_val x = graph_pick(r, 1, false), dst[3], s[5] = {x, 0, 0};
    wf_type t = *wf_fn_type(r->f, x), w = {.dtype = t.dtype};
    int64_t k = 1 + random_below(r, t.rank);
    double eps = 1e-5;
    wf_attr a = {.ints = &k, .n_ints = 1, .flt = &eps, .n_flt = 1};
    wf_why why;
    if (layer && t.rank > 2 && random_below(r, 2)) {
        k = 2;
        a.flags = WF_FLAG_CHANNELS;
    }
    const bool channels = a.flags;
    w.rank = (uint8_t)(channels ? 3 : k);
    memcpy(w.dims, t.dims + t.rank - w.rank, w.rank * sizeof *w.dims);
    w.dims[w.rank - 1] = channels ? 1 : w.dims[w.rank - 1];
    w.dtype = (uint8_t)(random_below(r, 2) ? w.dtype : wf_dtype_compute(w.dtype));
    s[1] = random_below(r, 3) ? graph_operand(r, &w) : 0;
    s[2] = random_below(r, 3) ? graph_operand(r, &w) : 0;
    wf_val weight = s[1];
    int ns = layer ? 3 : 2;
    if (wf_fn_append(r->f, layer ? WF_OP_LAYER_NORM : WF_OP_RMS_NORM, &a, ns, s, dst, NULL, &why)) {
        return;
    }
    r->pool[r->n++] = dst[0];
    a.n_flt = 0;
    a.flags |= (uint8_t)(random_below(r, 3) ? 0 : WF_FLAG_DX_ONLY);
    wf_val b[5] = {graph_operand(r, &t), x, dst[1], layer ? dst[2] : weight, weight};
    random_add(r, layer ? WF_OP_LAYER_NORM_BWD : WF_OP_RMS_NORM_BWD, &a, layer ? 5 : 4, b);
}

static inline void graph_batch_norm(random_fn *r)
{
    int dt = graph_float(r);
    int64_t c = 1 + random_below(r, 4), h = 1 + random_below(r, 3);
    wf_val x = WANT(dt, 3, c, h, 2), dst[3];
    wf_val s[5] = {x, WANT(dt, c), WANT(dt, c), WANT(dt, c), WANT(dt, c)};
    double eps = 1e-3;
    wf_attr a = {.flags = (uint8_t)random_below(r, 2), .flt = &eps, .n_flt = 1};
    wf_why why;
    if (wf_fn_append(r->f, WF_OP_BATCH_NORM, &a, 5, s, dst, NULL, &why) == 0) {
        r->pool[r->n++] = dst[0];
        a.n_flt = 0;
        wf_val b[5] = {WANT(dt, 3, c, h, 2), x, s[1], dst[1], dst[2]};
        random_add(r, WF_OP_BATCH_NORM_BWD, &a, 5, b);
    }
}

static inline void graph_loss(random_fn *r)
{
    int dt = graph_float(r);
    int64_t n = 1 + random_below(r, 4), classes = 3 + random_below(r, 6),
            ignore = random_below(r, 4) - 1;
    wf_val x = WANT(dt, n, classes), dst[2];
    wf_type idx = {.rank = 1, .dims = {n}};
    wf_val s[2] = {x, graph_indices(r, &idx)};
    double smooth = random_below(r, 2) ? 0.1 : 0;
    wf_attr a = {.dyn = &ignore, .n_dyn = 1, .flt = &smooth, .n_flt = 1};
    wf_why why;
    if (wf_fn_append(r->f, WF_OP_CROSS_ENTROPY, &a, 2, s, dst, NULL, &why) == 0) {
        r->pool[r->n++] = dst[0];
        wf_val b[4] = {dst[0], x, s[1], dst[1]};
        random_add(r, WF_OP_CROSS_ENTROPY_BWD, &a, 4, b);
    }
}

static inline void graph_pool(random_fn *r, bool max)
{
    int dt = graph_float(r);
    int64_t ints[8] = {
        1 + random_below(r, 3), 2, 1 + random_below(r, 2), 1, 0, random_below(r, 2), 1, 1};
    wf_attr a = {.ints = ints, .n_ints = max ? 8 : 6, .flags = (uint8_t)random_below(r, 4)};
    wf_val x = WANT(dt, 1, 2, 5, 4), dst[2];
    wf_why why;
    if (!max && random_below(r, 3) == 0) {
        memcpy(ints, (int64_t[]){1 + random_below(r, 6), 3, 1, 1, 0, 0}, 6 * sizeof *ints);
        a.flags = WF_FLAG_ADAPTIVE;
    }
    a.flags &= max ? WF_FLAG_CEIL : (WF_FLAG_CEIL | WF_FLAG_COUNT_PAD | WF_FLAG_ADAPTIVE);
    if (wf_fn_append(r->f, max ? WF_OP_MAX_POOL2D : WF_OP_AVG_POOL2D, &a, 1, &x, dst, NULL, &why)) {
        return;
    }
    r->pool[r->n++] = dst[0];
    if (max) {
        r->pool[r->n++] = dst[1];
        return;
    }
    int64_t dyn[2] = {5, 4};
    a.dyn = dyn;
    a.n_dyn = 2;
    random_add(r, WF_OP_AVG_POOL2D_BWD, &a, 1, dst);
}

static inline void graph_unpad(random_fn *r)
{
    int64_t mode = random_below(r, 3), dyn[4] = {random_below(r, 3), 0, 1, random_below(r, 3)};
    wf_val g = WANT(graph_float(r), 3 + dyn[0], 4 + dyn[3]);
    random_add(r, WF_OP_PAD_MODE_BWD,
               &(wf_attr){.n_ints = 1, .ints = &mode, .n_dyn = 4, .dyn = dyn}, 1, &g);
}

static inline void graph_conv(random_fn *r)
{
    int dt = graph_float(r);
    int64_t ints[7] = {1, 1 + random_below(r, 2), random_below(r, 2), 0, 1, 1, 1}, dyn[2] = {5, 4};
    wf_attr a = {.ints = ints, .n_ints = 7};
    wf_val s[3] = {WANT(dt, 2, 3, 5, 4), WANT(dt, 4, 3, 2, 2),
                   random_below(r, 2) ? WANT(dt, 4) : 0},
           y;
    wf_why why;
    if (wf_fn_append(r->f, WF_OP_CONV2D, &a, 3, s, &y, NULL, &why)) {
        return;
    }
    r->pool[r->n++] = y;
    a.dyn = dyn;
    a.n_dyn = 2;
    random_add(r, WF_OP_CONV2D_DX, &a, 2, (wf_val[]){y, s[1]});
    dyn[0] = dyn[1] = 2;
    random_add(r, WF_OP_CONV2D_DW, &a, 2, (wf_val[]){y, s[0]});
}

static inline void graph_sdpa(random_fn *r)
{
    int dt = random_below(r, 2) ? WEFT_F32 : WEFT_BF16;
    double scale = 0.5;
    wf_attr a = {.flt = &scale, .n_flt = 1, .flags = (uint8_t)random_below(r, 2)};
    wf_val s[4] = {WANT(dt, 2, 3, 4), WANT(dt, 2, 5, 4), WANT(dt, 2, 5, 6), 0}, dst[2];
    wf_why why;
    if (wf_fn_append(r->f, WF_OP_SDPA, &a, 4, s, dst, NULL, &why) == 0) {
        r->pool[r->n++] = dst[0];
        wf_val b[7] = {WANT(dt, 2, 3, 6), s[0], s[1], s[2], dst[0], dst[1], 0};
        random_add(r, WF_OP_SDPA_BWD, &a, 7, b);
    }
}

static inline void graph_product(random_fn *r, wf_op op)
{
    wf_val x = graph_pick(r, 1, false), s[3] = {x, 0, 0};
    wf_type t = *wf_fn_type(r->f, x);
    int64_t n = 1 + random_below(r, 6), k = t.dims[t.rank - 1];
    if (op == WF_OP_MATMUL) {
        s[1] = WANT(t.dtype, k, n);
        random_add(r, op, NULL, 2, s);
    } else {
        s[1] = WANT(t.dtype, n, k);
        s[2] = random_below(r, 2) ? WANT(t.dtype, n) : 0;
        random_add(r, op, NULL, 3, s);
    }
}

static inline void graph_rowwise(random_fn *r, wf_op op)
{
    switch ((int)op) {
    case WF_OP_SOFTMAX:
    case WF_OP_SOFTMAX_BWD:
    case WF_OP_LOG_SOFTMAX:
    case WF_OP_LOG_SOFTMAX_BWD:
        graph_softmax(r, op);
        return;
    case WF_OP_LAYER_NORM:
    case WF_OP_LAYER_NORM_BWD:
        graph_norm(r, true);
        return;
    case WF_OP_RMS_NORM:
    case WF_OP_RMS_NORM_BWD:
        graph_norm(r, false);
        return;
    case WF_OP_BATCH_NORM:
    case WF_OP_BATCH_NORM_BWD:
        graph_batch_norm(r);
        return;
    case WF_OP_CROSS_ENTROPY:
    case WF_OP_CROSS_ENTROPY_BWD:
        graph_loss(r);
        return;
    case WF_OP_MAX_POOL2D:
    case WF_OP_AVG_POOL2D:
    case WF_OP_AVG_POOL2D_BWD:
        graph_pool(r, op == WF_OP_MAX_POOL2D);
        return;
    case WF_OP_PAD_MODE_BWD:
        graph_unpad(r);
        return;
    case WF_OP_SDPA:
    case WF_OP_SDPA_BWD:
        graph_sdpa(r);
        return;
    case WF_OP_CONV2D:
    case WF_OP_CONV2D_DX:
    case WF_OP_CONV2D_DW:
        graph_conv(r);
        return;
    case WF_OP_VJP:
        random_vjp(r);
        return;
    }
    graph_product(r, op);
}

/* A call of op, if operands for it can be found. */
static inline void graph_row(random_fn *r, wf_op op)
{
    if (r->n > 230) {
        return;
    }
    if (r->n == 0 && (op == WF_OP_VJP || wf_rows[op].kind == WF_KIND_VIEW)) {
        graph_pick(r, 1, false); /* what the makers of random_fn.h start from */
    }
    switch ((wf_kind)wf_rows[op].kind) {
    case WF_KIND_REDUCE:
        graph_reduce(r, op);
        return;
    case WF_KIND_VIEW:
        graph_view(r, op);
        return;
    case WF_KIND_MOVE:
        graph_move(r, op);
        return;
    case WF_KIND_INDEX:
        graph_index(r, op);
        return;
    case WF_KIND_CREATE:
        graph_create(r, op);
        return;
    case WF_KIND_OPAQUE:
    case WF_KIND_ROWWISE:
    case WF_KIND_GRAD:
        graph_rowwise(r, op);
        return;
    case WF_KIND_UNARY:
    case WF_KIND_BINARY:
    case WF_KIND_TERNARY:
    case WF_KIND_PREDICATE:
    case WF_KIND_COMPARE:
    case WF_KIND_CHOOSE:
        random_elementwise(r);
        return;
    case WF_KIND_LEAF:
        return;
    }
}

static inline wf_op graph_any_row(random_fn *r)
{
    return (wf_op)(WF_OP_SUM + random_below(r, WF_OP_COUNT - WF_OP_SUM));
}

/* One call of a row that is not elementwise, all its values returned; NULL: the draw gave none. */
static inline wf_fn *random_row_function(uint64_t seed)
{
    random_fn r = {.f = wf_fn_new("row"), .state = values_hash(seed)};
    graph_row(&r, (wf_op)(WF_OP_SUM + (int)(seed % (uint64_t)(WF_OP_COUNT - WF_OP_SUM))));
    for (uint32_t k = 0; k < r.f->n; k++) {
        if (r.f->ins[k].op != WF_OP_INPUT && r.f->noutputs < 40) {
            wf_fn_output(r.f, k + 1);
        }
    }
    if (r.f->noutputs == 0) {
        wf_fn_free(r.f);
        return NULL;
    }
    return r.f;
}

/* A function of about `size` calls of all rows; an eighth has large operands. */
static inline wf_fn *random_graph(uint64_t seed, int size)
{
    wf_fn *start = random_function_with(seed, size / 2, values_hash(~seed) % 8 == 0, true, false);
    random_fn r = {.f = start, .state = values_hash(seed ^ 0x5EED), .few_long = true};
    for (wf_val v = 1; v <= start->n && r.n < 200; v++) {
        if (!wf_op_is_weak(wf_fn_at(start, v)->op)) {
            r.pool[r.n++] = v;
        }
    }
    for (int i = 0; i < size - size / 2; i++) {
        if (random_below(&r, 3) == 0) {
            graph_row(&r, graph_any_row(&r));
        } else if (random_below(&r, 4) == 0) {
            random_view(&r);
        } else {
            random_elementwise(&r);
        }
    }
    for (uint32_t k = 0; k < r.f->n; k++) { /* numbers that are part of the function */
        if (r.f->ins[k].op == WF_OP_SCALAR && random_below(&r, 3) == 0) {
            r.f->ins[k].op = WF_OP_CONST;
        }
    }
    for (int i = 0; i < 2; i++) {
        wf_fn_output(r.f, r.pool[i ? random_below(&r, r.n) : r.n - 1]);
    }
    return r.f;
}
#undef WANT

#endif
