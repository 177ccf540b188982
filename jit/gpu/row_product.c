/*
 * jit/gpu/row_product.c -- matmul and linear, by cuBLASLt where it is and takes the strides, else by the built-in kernel.
 *
 * There, every element is one chain of fused multiply-adds in ascending order of the summed index, in f32 for half types,
 * then the bias, then one rounding; integers wrap. The order does not depend on shapes, strides or the device; it is not that
 * of the CPU's library.
 */
#include "eager/cuda/blaslt.h"
#include "eager/dense.h"
#include "eager/product.h"
#include "jit/gpu/impl.h"

enum { BATCH_AT = 16, BATCH_AXES = (WF_CU_HAND_WORDS - BATCH_AT) / 4, TILE = 64 };

/* -- rows at multiples of 16 bytes: a matrix whose rows begin elsewhere is copied, where that pays ---------------------------- */

/* The axis along which v's rows lie, one of the last two; -1: neither. */
static int row_axis(const wf_view *v)
{
    const int r = v->rank;
    return v->strides[r - 1] == 1 ? r - 1 : v->strides[r - 2] == 1 ? r - 2 : -1;
}

/* Elements to be copied for it; 0: it lies well, or it is no matrix of rows. */
static int64_t misplaced(const wf_view *v)
{
    const int64_t step = WF_ROW_ALIGN / (int64_t)wf_dtype_size(v->dtype);
    const int row = row_axis(v);
    bool apart = (uintptr_t)v->data % WF_ROW_ALIGN != 0;
    int64_t n = 1;
    if (row < 0 || (v->dtype != WEFT_BF16 && v->dtype != WEFT_F16))
        return 0;
    for (int i = 0; i < v->rank; i++) {
        apart |= i != row && v->dims[i] > 1 && v->strides[i] % step != 0;
        n *= v->strides[i] ? v->dims[i] : 1;
    }
    return apart ? n : 0;
}

/* *out: v in new memory, uninitialised, whose rows begin well. */
static int place(wf_gpu_temps *t, const wf_view *v, wf_view *out, wf_why *why)
{
    const int64_t size = (int64_t)wf_dtype_size(v->dtype);
    const int row = row_axis(v), down = 2 * v->rank - 3 - row;
    int64_t n = wf_aligned_row(v->dims[row], size);
    *out = *v;
    out->strides[down] = n;
    n *= v->dims[down];
    for (int i = v->rank - 3; i >= 0; i--)
        if (v->strides[i]) {
            out->strides[i] = n;
            n *= v->dims[i];
        }
    out->data = wf_gpu_temp(t, (size_t)(n * size), why);
    return out->data ? 0 : WEFT_ENOMEM;
}

/* -- extents that are no multiples of 8 --------------------------------------------------------------------------------------
 * Well placed as its rows may be, of a product of half types with an odd number of columns, or of products to be summed, the library
 * takes the same slow kernels (H100: 6.6 and 6.3 ms for 8192 x 768 x 50257 and 8192 x 50257 x 768, where 50257 rows take 1.3). So the
 * last few are a product of their own: columns beside the others, sums added to the others in f32, before the one rounding. */
enum { EVEN = 8 };

static wf_view part_of(const wf_view *v, int axis, int64_t from, int64_t to)
{
    wf_view w = *v;
    w.data = (char *)w.data + from * w.strides[axis] * (int64_t)wf_dtype_size(w.dtype);
    w.dims[axis] = to - from;
    return w;
}

static int summed(wf_gpu_temps *t, const wf_view *c, const wf_view *a, const wf_view *b,
                  const wf_view *bias, bool odd, wf_why *why)
{
    const int r = c->rank;
    const int64_t k = a->dims[r - 1], even = k / EVEN * EVEN;
    wf_view sum;
    const bool whole = !odd || even == k || even == 0 || bias ||
                       !wf_aligned_rows_pay(a->dtype, wf_view_numel(c), k, wf_view_numel(c));
    if (whole || wf_gpu_temp_view(t, WEFT_F32, r, c->dims, &sum, why)) {
        *why = (wf_why){0};
        return wf_cuda_gemm_views(t->ordinal, c, a, b, bias, false, why);
    }
    for (int rest = 0; rest < 2; rest++) {
        const wf_view x = part_of(a, r - 1, rest ? even : 0, rest ? k : even);
        const wf_view y = part_of(b, r - 2, rest ? even : 0, rest ? k : even);
        const int status = wf_cuda_gemm_views(t->ordinal, &sum, &x, &y, NULL, rest, why);
        if (status)
            return status;
    }
    return wf_gpu_copy(t->ordinal, c, &sum, why);
}

static int by_columns(wf_gpu_temps *t, const wf_view *c, const wf_view *a, const wf_view *b,
                      const wf_view *bias, bool odd, wf_why *why)
{
    const int r = c->rank;
    const int64_t n = c->dims[r - 1], even = n / EVEN * EVEN;
    if (!odd || even == n || even == 0)
        return summed(t, c, a, b, bias, odd, why);
    for (int rest = 0; rest < 2; rest++) {
        const int64_t from = rest ? even : 0, to = rest ? n : even;
        const wf_view z = part_of(c, r - 1, from, to), y = part_of(b, r - 1, from, to);
        wf_view with = {0};
        if (bias)
            with = part_of(bias, 0, from, to);
        const int status = summed(t, &z, a, &y, bias ? &with : NULL, odd, why);
        if (status)
            return status;
    }
    return 0;
}

static int by_library(int ordinal, const wf_view *c, const wf_view *a, const wf_view *b,
                      const wf_view *bias, wf_why *why)
{
    wf_gpu_temps t = {.ordinal = ordinal};
    const wf_view *v[3] = {a, b, c};
    wf_view w[3];
    int64_t moved = 0, n[3];
    int status = 0;
    for (int i = 0; i < 3; i++)
        moved += n[i] = i == 2 && c->strides[c->rank - 1] != 1 ? 0 : misplaced(v[i]);
    const int64_t results = wf_view_numel(c), k = a->dims[a->rank - 1];
    bool odd = a->dtype == c->dtype && wf_aligned_rows_pay(a->dtype, results, k, 1) &&
               wf_cuda_gemm_there(ordinal);
    const bool pays = odd && wf_aligned_rows_pay(a->dtype, results, k, moved);
    odd &= pays || moved == 0; /* where rows stay as they are there is nothing to gain */
    for (int i = 0; i < 3 && pays && !status; i++)
        if (n[i]) {
            status = place(&t, v[i], &w[i], why);
            if (!status && i < 2)
                status = wf_gpu_copy(ordinal, &w[i], v[i], why);
            v[i] = &w[i];
        }
    if (status == WEFT_ENOMEM) { /* slower, then */
        *why = (wf_why){0};
        v[0] = a, v[1] = b, v[2] = c;
        status = 0;
        odd = false;
    }
    status = status ? status : by_columns(&t, v[2], v[0], v[1], bias, odd, why);
    if (status == WEFT_EUNSUPPORTED && !why->code && odd) /* of a part */
        status = wf_cuda_gemm_views(ordinal, v[2], v[0], v[1], bias, false, why);
    if (!status && v[2] != c)
        status = wf_gpu_copy(ordinal, c, v[2], why);
    wf_gpu_drop(&t);
    return status;
}

/* -- batches that are rows: products of many matrices with one are one product of taller ones, which has larger tiles ------- */

static bool steps_evenly(const wf_view *v, int at)
{
    return v->dims[at + 1] == 1 || v->strides[at] == v->strides[at + 1] * v->dims[at + 1];
}

static void drop_axis(wf_view *v, int at, bool join)
{
    if (join && v->dims[at + 1] == 1)
        v->strides[at + 1] = v->strides[at];
    if (join)
        v->dims[at + 1] *= v->dims[at];
    for (int i = at; i < v->rank - 1; i++) {
        v->dims[i] = v->dims[i + 1];
        v->strides[i] = v->strides[i + 1];
    }
    v->rank--;
}

/* The innermost batch axis becomes one with the rows while b is the same along it and a and c step evenly. */
static void join_rows(wf_view *c, wf_view *a, wf_view *b)
{
    while (c->rank > 2) {
        const int at = c->rank - 3;
        const bool same = c->dims[at] == 1 || b->dims[at] == 1 || b->strides[at] == 0;
        if (!same || a->dims[at] != c->dims[at] ||
            (c->dims[at] != 1 && !(steps_evenly(a, at) && steps_evenly(c, at))))
            return;
        const bool join = c->dims[at] != 1;
        drop_axis(c, at, join);
        drop_axis(a, at, join);
        drop_axis(b, at, false);
    }
}

int wf_gpu_gemm(int ordinal, const wf_view *results, const wf_view *left, const wf_view *right,
                const wf_view *bias, wf_why *why)
{
    wf_view v[] = {*results, *left, *right};
    const wf_view *const c = &v[0], *const a = &v[1], *const b = &v[2];
    join_rows(&v[0], &v[1], &v[2]);
    const int rank = c->rank;
    wf_why refused = {0};
    const int status = by_library(ordinal, c, a, b, bias, &refused);
    if (status != WEFT_EUNSUPPORTED || refused.code) {
        if (status && why)
            *why = refused;
        return status;
    }
    wf_gpu_hand h = {"gemm", 2, {a->dtype, c->dtype}, .per_block = 1};
    const int64_t m = c->dims[rank - 2], n = c->dims[rank - 1], k = a->dims[rank - 1];
    const uint64_t words[] = {wf_gpu_word(c->data),
                              wf_gpu_word(a->data),
                              wf_gpu_word(b->data),
                              bias ? wf_gpu_word(bias->data) : 0,
                              (uint64_t)m,
                              (uint64_t)n,
                              (uint64_t)k,
                              (uint64_t)a->strides[rank - 2],
                              (uint64_t)a->strides[rank - 1],
                              (uint64_t)b->strides[rank - 2],
                              (uint64_t)b->strides[rank - 1],
                              (uint64_t)c->strides[rank - 2],
                              (uint64_t)c->strides[rank - 1],
                              bias ? (uint64_t)bias->strides[0] : 0};
    int64_t batches = 1;
    int axes = 0;
    memcpy(h.w, words, sizeof words);
    for (int i = rank - 3; i >= 0; i--) {
        uint64_t *w = h.w + BATCH_AT + 4 * axes;
        batches *= c->dims[i];
        if (c->dims[i] == 1)
            continue;
        if (axes++ == BATCH_AXES)
            return WEFT_EUNSUPPORTED;
        w[0] = (uint64_t)c->dims[i];
        w[1] = (uint64_t)a->strides[i];
        w[2] = (uint64_t)b->strides[i];
        w[3] = (uint64_t)c->strides[i];
    }
    h.w[14] = (uint64_t)batches;
    h.w[15] = (uint64_t)axes;
    h.work = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE) * batches;
    return wf_gpu_hand_run(ordinal, &h, why);
}

/* v with `rank` axes: its last two (column: the last is a column) and batch axes that broadcast to c's. */
static wf_view widen(const wf_view *v, int rank, bool vector, bool column)
{
    wf_view w = {.data = v->data, .dtype = v->dtype, .rank = (uint8_t)rank};
    const int own = vector ? 2 : v->rank;
    for (int i = 0; i < rank; i++) {
        const int from = i - (rank - own);
        w.dims[i] = 1;
        if (from < 0)
            continue;
        if (vector) {
            const bool long_axis = (from == 0) == column;
            w.dims[i] = long_axis ? v->dims[0] : 1;
            w.strides[i] = long_axis ? v->strides[0] : 0;
        } else {
            w.dims[i] = v->dims[from];
            w.strides[i] = v->dims[from] == 1 && from < own - 2 ? 0 : v->strides[from];
        }
    }
    return w;
}

static int matmul(int ordinal, wf_exec *e)
{
    const wf_view *x = &e->src[0], *y = &e->src[1];
    const bool row = x->rank == 1, col = y->rank == 1;
    wf_view c = e->dst[0];
    int rank = c.rank + row + col;
    if (rank > WF_MAX_RANK)
        return WEFT_EUNSUPPORTED;
    /* the axes that vectors lack, of extent 1 */
    if (row) {
        const int at = c.rank - !col;
        for (int i = c.rank; i > at; i--) {
            c.dims[i] = c.dims[i - 1];
            c.strides[i] = c.strides[i - 1];
        }
        c.dims[at] = 1;
        c.strides[at] = 0;
        c.rank++;
    }
    if (col) {
        c.dims[c.rank] = 1;
        c.strides[c.rank++] = 0;
    }
    const wf_view a = widen(x, rank, row, false), b = widen(y, rank, col, true);
    return wf_gpu_gemm(ordinal, &c, &a, &b, NULL, e->why);
}

/* x [.., in] weight [out, in]: weight turned, every row of x a row. */
static int linear(int ordinal, wf_exec *e)
{
    const wf_view *w = &e->src[1], *bias = e->nsrc > 2 && e->src[2].data ? &e->src[2] : NULL;
    wf_view x = e->src[0], y = e->dst[0], turned = *w;
    if (x.rank == 1) {
        x = widen(&x, 2, true, false);
        y = widen(&y, 2, true, false);
    }
    const int rank = x.rank;
    for (int i = 0; i < rank; i++) {
        turned.dims[i] = 1;
        turned.strides[i] = 0;
    }
    turned.rank = (uint8_t)rank;
    turned.dims[rank - 2] = w->dims[1];
    turned.strides[rank - 2] = w->strides[1];
    turned.dims[rank - 1] = w->dims[0];
    turned.strides[rank - 1] = w->strides[0];
    return wf_gpu_gemm(ordinal, &y, &x, &turned, bias, e->why);
}

int wf_gpu_row_product(int ordinal, wf_exec *e)
{
    const int dt = e->dst[0].dtype;
    if (!(WF_BIT(dt) & WF_DT_FI) || e->src[0].dtype != dt || e->src[1].dtype != dt)
        return WEFT_EUNSUPPORTED;
    if (wf_view_numel(&e->dst[0]) == 0)
        return 0;
    return e->op == WF_OP_MATMUL ? matmul(ordinal, e) : linear(ordinal, e);
}
