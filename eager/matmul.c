/*
 * eager/matmul.c -- matmul and linear on top of wf_gemm.
 *
 * Operands go to the product as they lie: transposes and other views are strides. Batches that the
 * second operand does not have are folded into the rows, so that they are one large product.
 *
 * Rounding: matmul rounds once. linear rounds once for half types (product and bias in f32, then one
 * rounding); for f32 and f64 the bias is one IEEE addition to the rounded product, which is what
 * composing matmul and add gives.
 */
#include "eager/cpu/gemm.h"
#include "eager/dense.h"
#include "eager/kernels/kernels.h"
#include "eager/product.h"

bool wf_aligned_rows_pay(int dtype, int64_t results, int64_t k, int64_t elements)
{
    /* Seen on an H100: the logits of GPT-2, 50257 wide, and their gradients ran at 95 to 148 TFLOP/s, aligned products of that size at
     * over 500. So an aligned multiply-add is some 15 fs less; copying an element takes 2 ps, a launch 5 us. */
    enum { WORK = 1 << 30, WORK_PER_ELEMENT = 256 };
    const double work = (double)results * (double)k;
    return (dtype == WEFT_BF16 || dtype == WEFT_F16) && elements > 0 && work >= WORK &&
           work >= WORK_PER_ELEMENT * (double)elements;
}

int wf_gemm_status(int rc, int dt, wf_why *why)
{
    if (rc == WF_GEMM_OK || rc == WF_GEMM_DONE) {
        return 0;
    }
    if (rc == WF_GEMM_NOMEM) {
        int code = wf_fail(why, WEFT_ENOMEM, "out of memory inside a matrix product");
        wf_hint(why, "free tensors, end scopes sooner, or work on smaller batches");
        return code;
    }
    return wf_fail(why, WEFT_EUNSUPPORTED, "no matrix product or convolution for %s here",
                   wf_dtype_name(dt));
}

/* One axis of the batch: extent and strides of the two operands and the result. */
typedef struct batch_axis {
    int64_t n, a, b, c;
} batch_axis;

/* Merges neighbours that all three walk with one stride; drops axes of extent 1. */
static int collapse(batch_axis *ax, int n)
{
    int out = 0;
    for (int i = 0; i < n; i++) {
        if (ax[i].n == 1) {
            continue;
        }
        batch_axis *p = out > 0 ? &ax[out - 1] : NULL;
        if (p && p->a == ax[i].a * ax[i].n && p->b == ax[i].b * ax[i].n &&
            p->c == ax[i].c * ax[i].n) {
            int64_t merged = p->n * ax[i].n;
            *p = ax[i];
            p->n = merged;
        } else {
            ax[out++] = ax[i];
        }
    }
    return out;
}

/* Folds batch axes without the second operand into the rows, innermost first. */
static int fold_rows(batch_axis *ax, int n, wf_gemm_desc *d)
{
    while (n > 0 && ax[n - 1].b == 0) {
        const batch_axis *x = &ax[n - 1];
        if (d->m == 1) {
            d->a_rs = x->a;
            d->c_rs = x->c;
        } else if (x->a != d->a_rs * d->m || x->c != d->c_rs * d->m) {
            break;
        }
        d->m *= x->n;
        n--;
    }
    return n;
}

/* The epilogue of a product that is one of several. */
typedef struct row_range {
    const wf_epilogue *after;
    int64_t first, per_batch;
} row_range;

static void finish_rows(void *arg, int64_t batch, int64_t row, int64_t count)
{
    const row_range *r = arg;
    r->after->rows(r->after->arg, r->first + batch * r->per_batch + row, count);
}

/* The first product decides whether the epilogue is called for all of them. *d becomes each of them: a copy would be read back, by
 * wider loads than it was written, before its stores are done. */
static int run_batches(wf_gemm_desc *d, const batch_axis *ax, int n, wf_exec *e)
{
    const int64_t size = (int64_t)wf_dtype_size(d->dtype);
    const char *a = d->a, *b = d->b;
    char *c = d->c;
    int64_t loops = 1, dims[WF_MAX_RANK], sa[WF_MAX_RANK], sb[WF_MAX_RANK], sc[WF_MAX_RANK];
    d->batch = 1;
    if (n > 0) {
        n--;
        d->batch = ax[n].n;
        d->a_bs = ax[n].a;
        d->b_bs = ax[n].b;
        d->c_bs = ax[n].c;
    }
    for (int i = 0; i < n; i++) {
        dims[i] = ax[i].n;
        sa[i] = ax[i].a;
        sb[i] = ax[i].b;
        sc[i] = ax[i].c;
        loops *= dims[i];
    }
    for (int64_t i = 0; i < loops; i++) {
        d->a = a + wf_offset_of(i, n, dims, sa) * size;
        d->b = b + wf_offset_of(i, n, dims, sb) * size;
        const int64_t at = wf_offset_of(i, n, dims, sc);
        row_range range = {.after = e->after, .first = at / d->n, .per_batch = d->m};
        d->c = c + at * size;
        d->done = e->after && (i == 0 || e->finished) ? finish_rows : NULL;
        d->done_arg = &range;
        int rc = wf_gemm(d);
        if (rc < 0) {
            return wf_gemm_status(rc, d->dtype, e->why);
        }
        if (e->finished && rc == WF_GEMM_OK) {
            e->after->rows(e->after->arg, range.first, d->batch * d->m);
        }
        e->finished |= rc == WF_GEMM_DONE;
    }
    return 0;
}

WF_EXEC_DECL(matmul)
{
    const wf_view *a = &e->src[0], *b = &e->src[1], *c = &e->dst[0];
    if (wf_view_numel(c) == 0) {
        return 0;
    }
    int ra = a->rank, rb = b->rank;
    wf_gemm_desc d = {.dtype = c->dtype, .a = a->data, .b = b->data, .c = c->data};
    d.m = ra > 1 ? a->dims[ra - 2] : 1;
    d.k = a->dims[ra - 1];
    d.n = rb > 1 ? b->dims[rb - 1] : 1;
    d.a_rs = ra > 1 ? a->strides[ra - 2] : d.k;
    d.a_cs = a->strides[ra - 1];
    d.b_rs = rb > 1 ? b->strides[rb - 2] : b->strides[0];
    d.b_cs = rb > 1 ? b->strides[rb - 1] : 1;
    d.c_rs = d.n;
    int batch_c = c->rank - (ra > 1) - (rb > 1);
    int batch_a = ra > 2 ? ra - 2 : 0, batch_b = rb > 2 ? rb - 2 : 0;
    batch_axis ax[WF_MAX_RANK];
    int64_t step = d.m * d.n;
    for (int i = batch_c - 1; i >= 0; i--) {
        int ia = i - (batch_c - batch_a), ib = i - (batch_c - batch_b);
        ax[i].n = c->dims[i];
        ax[i].a = ia >= 0 && a->dims[ia] != 1 ? a->strides[ia] : 0;
        ax[i].b = ib >= 0 && b->dims[ib] != 1 ? b->strides[ib] : 0;
        ax[i].c = step;
        step *= ax[i].n;
    }
    int n = collapse(ax, batch_c);
    n = fold_rows(ax, n, &d);
    return run_batches(&d, ax, n, e);
}

/* -- linear ---------------------------------------------------------------------------------------- */
/* x as a matrix: row stride of the merged leading axes; 0 rows merged into one when possible. */
static bool rows_of(const wf_view *x, int64_t *rows, int64_t *stride)
{
    *rows = 1;
    *stride = x->dims[x->rank - 1];
    for (int i = x->rank - 2; i >= 0; i--) {
        if (x->dims[i] == 1) {
            continue;
        }
        if (*rows == 1) {
            *stride = x->strides[i];
        } else if (x->strides[i] != *stride * *rows) {
            return false;
        }
        *rows *= x->dims[i];
    }
    return true;
}

/* bias, after: NULL, or what is added, and done with finished rows (WF_GEMM_DONE is returned then, or OK). */
static int linear_product(int dt, const wf_view *x, const wf_view *w, int64_t rows, int64_t stride,
                          void *y, const wf_view *bias, const wf_epilogue *after)
{
    int last = x->rank - 1;
    row_range range = {.after = after};
    wf_gemm_desc d = {.dtype = dt,
                      .m = rows,
                      .n = w->dims[0],
                      .k = w->dims[1],
                      .batch = 1,
                      .a = x->data,
                      .a_rs = stride,
                      .a_cs = x->strides[last],
                      .b = w->data,
                      .b_rs = w->strides[1],
                      .b_cs = w->strides[0],
                      .c = y,
                      .c_rs = w->dims[0],
                      .done = after ? finish_rows : NULL,
                      .done_arg = &range};
    if (bias) {
        d.bias = bias->data;
        d.bias_cs = bias->strides[0];
    }
    return wf_gemm(&d);
}

/* Half types with a bias where the product does not add it: blocks of rows in f32, rounded once after the addition. */
enum { HALF_ROWS = 1024 };
static int linear_half(wf_exec *e, int64_t rows)
{
    const wf_view *w = &e->src[1];
    int64_t in = w->dims[1], out = w->dims[0];
    int64_t block = rows < HALF_ROWS ? rows : HALF_ROWS;
    size_t bytes = wf_scratch_bytes(block, sizeof(float) * (size_t)out);
    wf_dense x = {0}, w32 = {0}, b32 = {0};
    float *y = bytes ? wf_scratch(bytes) : NULL;
    int code = y ? 0 : wf_no_memory(e->why, bytes);
    if (!code && (code = wf_dense_of(&e->src[0], WEFT_F32, &x, e->why)) == 0 &&
        (code = wf_dense_of(w, WEFT_F32, &w32, e->why)) == 0) {
        code = wf_dense_of(&e->src[2], WEFT_F32, &b32, e->why);
    }
    for (int64_t r = 0; !code && r < rows; r += block) {
        int64_t n = rows - r < block ? rows - r : block;
        wf_view xb = wf_view_dense((float *)x.data + r * in, WEFT_F32, 2, (int64_t[]){n, in});
        wf_view wb = wf_view_dense(w32.data, WEFT_F32, 2, w->dims);
        wf_view bb = wf_view_dense(b32.data, WEFT_F32, 1, &out);
        code = wf_gemm_status(linear_product(WEFT_F32, &xb, &wb, n, in, y, &bb, NULL), WEFT_F32,
                              e->why);
        if (!code) {
            wf_view from = wf_view_dense(y, WEFT_F32, 2, (int64_t[]){n, out});
            wf_view to =
                wf_view_dense((uint16_t *)e->dst[0].data + r * out, e->dst[0].dtype, 2, from.dims);
            wf_copy(&to, &from);
            if (e->after) {
                e->after->rows(e->after->arg, r, n);
            }
        }
    }
    e->finished = e->after != NULL;
    wf_dense_free(&b32);
    wf_dense_free(&w32);
    wf_dense_free(&x);
    wf_scratch_free(y, bytes);
    return code;
}

WF_EXEC_DECL(linear)
{
    const wf_view *x = &e->src[0], *w = &e->src[1];
    wf_view *y = &e->dst[0];
    int dt = y->dtype;
    bool bias = e->nsrc > 2 && e->src[2].dtype != WEFT_DTYPE_DEFAULT;
    if (wf_view_numel(y) == 0) {
        return 0;
    }
    int64_t rows = wf_view_numel(y) / w->dims[0];
    const bool half = bias && dt != WEFT_F32 && dt != WEFT_F64;
    if (half && dt != WEFT_BF16 && rows > 1) {
        return linear_half(e, rows);
    }
    int64_t merged, stride;
    wf_dense copy = {0};
    wf_view xv = *x;
    if (!rows_of(x, &merged, &stride)) {
        int code = wf_dense_of(x, dt, &copy, e->why);
        if (code) {
            return code;
        }
        xv = wf_view_dense(copy.data, dt, x->rank, x->dims);
        stride = w->dims[1];
    }
    int rc = linear_product(dt, &xv, w, rows, stride, y->data, bias ? &e->src[2] : NULL, e->after);
    wf_dense_free(&copy);
    if (half && rc == WF_GEMM_UNSUPPORTED) {
        return linear_half(e, rows);
    }
    e->finished = rc == WF_GEMM_DONE;
    return wf_gemm_status(rc, dt, e->why);
}
