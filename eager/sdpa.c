/*
 * eager/sdpa.c -- scaled dot-product attention and its gradient.
 *
 * out = softmax(scale q k^T + mask) v without storing the scores: blocks of ROWS queries walk the
 * keys in blocks of KEYS with an online softmax. The gradient recomputes the probabilities from the
 * saved row logsumexp. Products are wf_gemm on blocks; everything else runs in f32 (f64 for f64),
 * and half types round once, when a result is stored.
 *
 * Semantics
 *  - mask: bool (true: attend) or the operands' type (added to the scaled scores).
 *  - causal: query i sees keys 0..i, aligned at the first ones as PyTorch does.
 *  - A query with nothing to attend to gives 0 and logsumexp -inf, and takes no gradient.
 *  - Batches broadcast; the gradient of a broadcast operand is summed in row-major batch order.
 *
 * Invariants: block sizes are constants, a query block (forward) or a batch item (gradient) belongs
 * to one task and its blocks are added in order, so bits do not depend on the number of threads.
 */
#include <math.h>
#include <stdatomic.h>

#include "eager/cpu/gemm.h"
#include "eager/cpuid.h"
#include "eager/dense.h"
#include "eager/kernels/sdpa.h"
#include "eager/product.h"

enum { ROWS = 128, KEYS = 128 };

/* An operand [batch.., rows, cols] in the compute type, strides as they are. */
typedef struct matrix {
    wf_dense mem;
    char *data;
    int64_t batch[WF_MAX_RANK]; /* strides of the result's batch axes, 0 where broadcast */
    int64_t rs, cs;
} matrix;

typedef struct attention {
    int dt, size;
    const wf_sdpa_kernels *kernels;
    int batch_rank;
    int64_t batch_dims[WF_MAX_RANK];
    int64_t items, l, s, e, ev;
    double scale;
    bool causal;
    matrix q, k, v;
    const wf_view *mask; /* NULL: none */
    int64_t mask_batch[WF_MAX_RANK];
    int64_t mask_rs, mask_cs;
    _Atomic int rc; /* first failure of a product, or WF_GEMM_NOMEM */
} attention;

static const wf_sdpa_kernels *kernels_of(int dt)
{
    static const wf_sdpa_kernels *const f32[WF_NISA] = {&wf_sdpa_f32_sse2, &wf_sdpa_f32_avx2,
                                                        &wf_sdpa_f32_avx512};
    static const wf_sdpa_kernels *const f64[WF_NISA] = {&wf_sdpa_f64_sse2, &wf_sdpa_f64_avx2,
                                                        &wf_sdpa_f64_avx512};
    return (dt == WEFT_F64 ? f64 : f32)[wf_isa()];
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Strides of v's leading axes on the batch axes of the result. */
static void batch_strides(const wf_view *v, int rank, int64_t *out)
{
    int own = v->rank - 2;
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - own);
        out[i] = at >= 0 && v->dims[at] != 1 ? v->strides[at] : 0;
    }
}

/* Takes v as it lies when it has the compute type, else a copy. */
static int open_matrix(const attention *a, const wf_view *v, matrix *m, wf_why *why)
{
    wf_view use = *v;
    m->mem = (wf_dense){.data = v->data};
    if (v->dtype != a->dt) {
        int code = wf_dense_of(v, a->dt, &m->mem, why);
        if (code) {
            return code;
        }
        use = wf_view_dense(m->mem.data, a->dt, v->rank, v->dims);
    }
    m->data = m->mem.data;
    m->rs = use.strides[use.rank - 2];
    m->cs = use.strides[use.rank - 1];
    batch_strides(&use, a->batch_rank, m->batch);
    return 0;
}

static char *item_of(const attention *a, const matrix *m, int64_t item, int64_t row)
{
    int64_t off = wf_offset_of(item, a->batch_rank, a->batch_dims, m->batch) + row * m->rs;
    return m->data + off * a->size;
}

/* Shared head of both rows: geometry from out's dims, operands q, k, v at src. */
static int open_attention(attention *a, const wf_exec *e, const wf_view *src, const wf_view *out,
                          const wf_view *mask)
{
    memset(a, 0, sizeof *a);
    const wf_view *q = &src[0], *k = &src[1], *v = &src[2];
    a->dt = wf_dtype_compute(out->dtype);
    a->size = (int)wf_dtype_size(a->dt);
    a->kernels = kernels_of(a->dt);
    a->batch_rank = out->rank - 2;
    a->items = 1;
    for (int i = 0; i < a->batch_rank; i++) {
        a->batch_dims[i] = out->dims[i];
        a->items *= out->dims[i];
    }
    a->l = q->dims[q->rank - 2];
    a->e = q->dims[q->rank - 1];
    a->s = k->dims[k->rank - 2];
    a->ev = v->dims[v->rank - 1];
    a->scale = e->attr->flt[0];
    a->causal = (e->attr->flags & WF_FLAG_CAUSAL) != 0;
    if (mask && mask->dtype != WEFT_DTYPE_DEFAULT) {
        wf_view m = *mask;
        int add = 2 - m.rank; /* a mask of rank 0 or 1 has broadcast rows and columns */
        if (add > 0) {
            m = (wf_view){.data = mask->data, .dtype = mask->dtype, .rank = 2, .dims = {1, 1}};
            if (mask->rank == 1) {
                m.dims[1] = mask->dims[0];
                m.strides[1] = mask->strides[0];
            }
        }
        batch_strides(&m, a->batch_rank, a->mask_batch);
        a->mask_rs = m.dims[m.rank - 2] == 1 ? 0 : m.strides[m.rank - 2];
        a->mask_cs = m.dims[m.rank - 1] == 1 ? 0 : m.strides[m.rank - 1];
        a->mask = mask;
    }
    int code = open_matrix(a, q, &a->q, e->why);
    if (!code) {
        code = open_matrix(a, k, &a->k, e->why);
    }
    if (!code) {
        code = open_matrix(a, v, &a->v, e->why);
    }
    return code;
}

static void close_attention(attention *a)
{
    wf_dense_free(&a->q.mem);
    wf_dense_free(&a->k.mem);
    wf_dense_free(&a->v.mem);
}

/* -- blocks ---------------------------------------------------------------------------------------- */
/* The mask at query i0, key j0: in place where its columns lie side by side in a type that the kernels read, else a copy
 * in `room`; one row where all queries share it. */
static void set_mask(const attention *a, int64_t item, int64_t i0, int64_t j0, wf_sdpa_block *b,
                     void *room)
{
    const wf_view *mask = a->mask;
    const bool keeps = mask->dtype == WEFT_BOOL;
    int64_t at = wf_offset_of(item, a->batch_rank, a->batch_dims, a->mask_batch) + i0 * a->mask_rs +
                 j0 * a->mask_cs;
    const void *data = (char *)mask->data + at * (int64_t)wf_dtype_size(mask->dtype);
    int64_t rs = a->mask_rs;
    if (a->mask_cs != 1 || (!keeps && mask->dtype != a->dt)) {
        const int64_t dims[2] = {rs ? b->rows : 1, b->cols};
        wf_view from = wf_view_dense((void *)(uintptr_t)data, mask->dtype, 2, dims);
        wf_view to = wf_view_dense(room, keeps ? WEFT_BOOL : a->dt, 2, dims);
        from.strides[0] = rs;
        from.strides[1] = a->mask_cs;
        wf_copy(&to, &from);
        data = room;
        rs = rs ? b->cols : 0;
    }
    b->mask_rs = rs;
    *(keeps ? &b->keep : &b->bias) = data;
}

static void product(attention *a, int64_t m, int64_t n, int64_t k, const void *x, int64_t x_rs,
                    int64_t x_cs, const void *y, int64_t y_rs, int64_t y_cs, void *z, int64_t z_rs)
{
    if (m == 0 || n == 0) {
        return;
    }
    wf_gemm_desc d = {.dtype = a->dt,
                      .m = m,
                      .n = n,
                      .k = k,
                      .batch = 1,
                      .a = x,
                      .a_rs = x_rs,
                      .a_cs = x_cs,
                      .b = y,
                      .b_rs = y_rs,
                      .b_cs = y_cs,
                      .c = z,
                      .c_rs = z_rs};
    int rc = wf_gemm(&d);
    if (rc != WF_GEMM_OK) {
        atomic_store(&a->rc, rc);
    }
}

/* The block of scores at query i0, key j0 (products only), with its mask, for which there is `room`. */
static wf_sdpa_block scores(attention *a, int64_t item, int64_t i0, int64_t j0, int64_t rows,
                            int64_t keys, void *s, void *room)
{
    int64_t cols = least(KEYS, keys - j0);
    int64_t ld = (cols + WF_SDPA_LANES - 1) / WF_SDPA_LANES * WF_SDPA_LANES;
    wf_sdpa_block b = {.s = s,
                       .rows = rows,
                       .cols = cols,
                       .ld = ld,
                       .limit = a->causal ? i0 - j0 + 1 : cols,
                       .scale = a->scale};
    product(a, rows, cols, a->e, item_of(a, &a->q, item, i0), a->q.rs, a->q.cs,
            item_of(a, &a->k, item, j0), a->k.cs, a->k.rs, s, ld);
    if (a->mask) {
        set_mask(a, item, i0, j0, &b, room);
    }
    return b;
}

/* Keys that queries before i1 may see. */
static int64_t keys_before(const attention *a, int64_t i1)
{
    return a->causal ? least(a->s, i1) : a->s;
}

/* -- forward --------------------------------------------------------------------------------------- */
typedef struct forward_args {
    attention *a;
    wf_view *out;
    char *lse;
    int64_t blocks; /* query blocks of an item */
} forward_args;

static void forward_block(const forward_args *f, int64_t item, int64_t i0, char *scratch)
{
    attention *a = f->a;
    int64_t rows = least(ROWS, a->l - i0), size = a->size;
    char *s = scratch, *room = s + ROWS * KEYS * size, *acc = room + ROWS * KEYS * size;
    char *add = acc + ROWS * a->ev * size, *m = add + ROWS * a->ev * size;
    char *l = m + ROWS * size, *corr = l + ROWS * size;
    memset(acc, 0, (size_t)(rows * a->ev * size));
    memset(l, 0, (size_t)(rows * size));
    for (int64_t r = 0; r < rows; r++) {
        if (a->dt == WEFT_F64) {
            ((double *)(void *)m)[r] = -(double)INFINITY;
        } else {
            ((float *)(void *)m)[r] = -INFINITY;
        }
    }
    int64_t keys = keys_before(a, i0 + rows);
    for (int64_t j0 = 0; j0 < keys; j0 += KEYS) {
        wf_sdpa_block b = scores(a, item, i0, j0, rows, keys, s, room);
        a->kernels->softmax(&b, m, l, corr);
        product(a, rows, a->ev, b.cols, s, b.ld, 1, item_of(a, &a->v, item, j0), a->v.rs, a->v.cs,
                j0 ? add : acc, a->ev);
        if (j0) {
            a->kernels->rescale(acc, add, corr, rows, a->ev);
        }
    }
    int64_t row = item * a->l + i0;
    char *lse = f->lse + row * size;
    if (f->out->dtype == a->dt) {
        a->kernels->finish((char *)f->out->data + row * a->ev * size, acc, m, l, lse, rows, a->ev);
        return;
    }
    a->kernels->finish(acc, acc, m, l, lse, rows, a->ev);
    if (a->ev > 0) {
        const int64_t n = rows * a->ev;
        uint16_t *at = (uint16_t *)f->out->data + row * a->ev;
        wf_view from = wf_view_dense(acc, a->dt, 1, &n);
        wf_view to = wf_view_dense(at, f->out->dtype, 1, &n);
        wf_copy(&to, &from);
    }
}

static size_t forward_bytes(const attention *a)
{
    int64_t wide, n;
    if (__builtin_mul_overflow(a->ev, 2 * ROWS, &wide) ||
        __builtin_add_overflow(wide, 2 * ROWS * KEYS + 3 * ROWS, &n)) {
        return 0;
    }
    return wf_scratch_bytes(n, (size_t)a->size);
}

static void forward_task(void *arg, int64_t begin, int64_t end)
{
    const forward_args *f = arg;
    size_t bytes = forward_bytes(f->a);
    char *scratch = bytes ? wf_scratch(bytes) : NULL;
    if (!scratch) {
        atomic_store(&f->a->rc, WF_GEMM_NOMEM);
        return;
    }
    for (int64_t t = begin; t < end; t++) {
        forward_block(f, t / f->blocks, t % f->blocks * ROWS, scratch);
    }
    wf_scratch_free(scratch, bytes);
}

/* Tasks of about a quarter of a million multiplications, at least one block. */
static int64_t block_grain(const attention *a, int64_t rows)
{
    double work = (double)rows * (double)a->s * (double)(a->e + a->ev);
    return work >= 262144 ? 1 : (int64_t)(262144 / (work > 1 ? work : 1));
}

WF_EXEC_DECL(sdpa)
{
    attention a;
    if (wf_view_numel(&e->dst[1]) == 0) {
        return 0;
    }
    int code = open_attention(&a, e, e->src, &e->dst[0], e->nsrc > 3 ? &e->src[3] : NULL);
    if (!code) {
        forward_args f = {.a = &a, .out = &e->dst[0], .lse = e->dst[1].data};
        f.blocks = (a.l + ROWS - 1) / ROWS;
        wf_parallel_for(a.items * f.blocks, block_grain(&a, least(a.l, ROWS)), forward_task, &f);
        code = wf_gemm_status(atomic_load(&a.rc), a.dt, e->why);
    }
    close_attention(&a);
    return code;
}

/* -- gradient -------------------------------------------------------------------------------------- */
typedef struct backward_args {
    attention *a;
    const char *g, *out, *lse;    /* contiguous, compute type */
    char *d[3];                   /* dq, dk, dv in the compute type, contiguous */
    int64_t step[3][WF_MAX_RANK]; /* their batch strides */
} backward_args;

/* Elements of one task's scratch: two score blocks, the mask, a product, one value a query. */
static size_t backward_bytes(const attention *a)
{
    int64_t widest = a->e > a->ev ? a->e : a->ev, n;
    if (__builtin_mul_overflow(widest, ROWS > KEYS ? ROWS : KEYS, &n) ||
        __builtin_add_overflow(n, 3 * ROWS * KEYS + ROWS, &n)) {
        return 0;
    }
    return wf_scratch_bytes(n, (size_t)a->size);
}

static void backward_block(const backward_args *w, int64_t item, int64_t i0, char *const d[3],
                           char *scratch)
{
    attention *a = w->a;
    int64_t rows = least(ROWS, a->l - i0), size = a->size, row = item * a->l + i0;
    char *p = scratch, *dp = p + ROWS * KEYS * size, *room = dp + ROWS * KEYS * size;
    char *dot = room + ROWS * KEYS * size, *add = dot + ROWS * size;
    const char *g = w->g + row * a->ev * size;
    char *dq = d[0] + i0 * a->e * size;
    a->kernels->row_dot(dot, g, w->out + row * a->ev * size, rows, a->ev);
    int64_t keys = keys_before(a, i0 + rows);
    for (int64_t j0 = 0; j0 < keys; j0 += KEYS) {
        wf_sdpa_block b = scores(a, item, i0, j0, rows, keys, p, room);
        a->kernels->probabilities(&b, w->lse + row * size);
        product(a, b.cols, a->ev, rows, p, 1, b.ld, g, a->ev, 1, add, a->ev);
        a->kernels->accumulate(d[2] + j0 * a->ev * size, add, b.cols * a->ev);
        product(a, rows, b.cols, a->ev, g, a->ev, 1, item_of(a, &a->v, item, j0), a->v.cs, a->v.rs,
                dp, b.ld);
        a->kernels->dscores(&b, dp, dot);
        product(a, rows, a->e, b.cols, dp, b.ld, 1, item_of(a, &a->k, item, j0), a->k.rs, a->k.cs,
                add, a->e);
        a->kernels->accumulate(dq, add, rows * a->e);
        product(a, b.cols, a->e, rows, dp, 1, b.ld, item_of(a, &a->q, item, i0), a->q.rs, a->q.cs,
                add, a->e);
        a->kernels->accumulate(d[1] + j0 * a->e * size, add, b.cols * a->e);
    }
}

static void backward_task(void *arg, int64_t begin, int64_t end)
{
    const backward_args *w = arg;
    const attention *a = w->a;
    size_t bytes = backward_bytes(a);
    char *scratch = bytes ? wf_scratch(bytes) : NULL;
    if (!scratch) {
        atomic_store(&w->a->rc, WF_GEMM_NOMEM);
        return;
    }
    for (int64_t item = begin; item < end; item++) {
        char *d[3];
        for (int i = 0; i < 3; i++) {
            d[i] = w->d[i] + wf_offset_of(item, a->batch_rank, a->batch_dims, w->step[i]) * a->size;
        }
        for (int64_t i0 = 0; i0 < a->l; i0 += ROWS) {
            backward_block(w, item, i0, d, scratch);
        }
    }
    wf_scratch_free(scratch, bytes);
}

/* dst i as zeros in the compute type: its own memory, or scratch that is rounded into it later. */
static int open_gradient(backward_args *w, wf_view *dst, int i, wf_dense *mem, wf_why *why)
{
    const attention *a = w->a;
    size_t bytes = wf_scratch_bytes(wf_view_numel(dst), (size_t)a->size);
    wf_view v = wf_view_dense(dst->data, dst->dtype, dst->rank, dst->dims);
    mem->data = dst->data;
    if (dst->dtype != a->dt) {
        mem->bytes = bytes;
        mem->data = mem->owned = wf_scratch(bytes);
        if (!mem->owned) {
            return wf_no_memory(why, bytes);
        }
    }
    memset(mem->data, 0, bytes);
    w->d[i] = mem->data;
    batch_strides(&v, a->batch_rank, w->step[i]);
    return 0;
}

/* An operand that several batch items share makes one task walk them all. */
static bool shares_batch(const backward_args *w)
{
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < w->a->batch_rank; k++) {
            if (w->a->batch_dims[k] > 1 && w->step[i][k] == 0) {
                return true;
            }
        }
    }
    return false;
}

static int run_backward(wf_exec *e, attention *a)
{
    backward_args w = {.a = a};
    wf_dense in[3] = {{0}}, grad[3] = {{0}};
    static const int from[3] = {0, 4, 5}; /* g, out, logsumexp */
    int code = 0;
    for (int i = 0; !code && i < 3; i++) {
        code = wf_dense_of(&e->src[from[i]], a->dt, &in[i], e->why);
    }
    w.g = in[0].data;
    w.out = in[1].data;
    w.lse = in[2].data;
    for (int i = 0; !code && i < 3; i++) {
        code = open_gradient(&w, &e->dst[i], i, &grad[i], e->why);
    }
    if (!code && a->items * a->l * a->s > 0) {
        int64_t grain = shares_batch(&w) ? a->items : block_grain(a, a->l);
        wf_parallel_for(a->items, grain, backward_task, &w);
        code = wf_gemm_status(atomic_load(&a->rc), a->dt, e->why);
    }
    for (int i = 0; i < 3; i++) {
        if (!code && grad[i].owned && wf_view_numel(&e->dst[i]) > 0) {
            wf_view v = wf_view_dense(grad[i].data, a->dt, e->dst[i].rank, e->dst[i].dims);
            wf_copy(&e->dst[i], &v);
        }
        wf_dense_free(&grad[i]);
        wf_dense_free(&in[i]);
    }
    return code;
}

WF_EXEC_DECL(sdpa_bwd)
{
    attention a;
    int code = open_attention(&a, e, e->src + 1, &e->src[4], e->nsrc > 6 ? &e->src[6] : NULL);
    if (!code) {
        code = run_backward(e, &a);
    }
    close_attention(&a);
    return code;
}
