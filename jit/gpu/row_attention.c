/*
 * jit/gpu/row_attention.c -- scaled dot-product attention and its gradient, composed of built-in products.
 *
 * For what cuDNN (row_attention_dnn.c) and row_flash.c, which are asked first, do not take: f64, wide heads, results with
 * gaps. The scores of all heads are in memory, in the compute type. Semantics are those of eager/sdpa.c; the order of
 * sums is the device's (row_product.c, and a warp a row in softmax), the same in every run.
 */
#include <math.h>

#include "eager/dense.h"
#include "jit/gpu/impl.h"

typedef struct attention {
    int ordinal, compute, rank;
    wf_exec *e;
    wf_gpu_temps temps;
    wf_view q, k, v, scores; /* with the batch axes of the result, stride 0 where broadcast */
    const wf_view *mask;
    double scale;
    bool causal;
} attention;

wf_view wf_gpu_over_batch(const wf_view *v, int rank, const int64_t *dims)
{
    wf_view w = {.data = v->data, .dtype = v->dtype, .rank = (uint8_t)rank};
    for (int i = 0; i < rank; i++) {
        const int from = i - (rank - v->rank);
        const bool there = from >= 0 && (v->dims[from] != 1 || i >= rank - 2);
        w.dims[i] = i < rank - 2 ? dims[i] : from >= 0 ? v->dims[from] : 1;
        w.strides[i] = there ? v->strides[from] : 0;
    }
    return w;
}

static wf_view turned(const wf_view *v)
{
    wf_view w = *v;
    w.dims[w.rank - 2] = v->dims[w.rank - 1];
    w.dims[w.rank - 1] = v->dims[w.rank - 2];
    w.strides[w.rank - 2] = v->strides[w.rank - 1];
    w.strides[w.rank - 1] = v->strides[w.rank - 2];
    return w;
}

/* v in the compute type: itself, or a dense copy. */
static int compute_view(attention *t, const wf_view *v, wf_view *out)
{
    *out = *v;
    return v->dtype == t->compute ? 0 : wf_gpu_dense(&t->temps, v, t->compute, out, t->e->why);
}

static int open(attention *t, const wf_view *src, const wf_view *out, const wf_view *mask)
{
    const int rank = out->rank;
    wf_view *to[3] = {&t->q, &t->k, &t->v};
    int64_t dims[WF_MAX_RANK];
    int status = 0;
    t->rank = rank;
    t->compute = wf_dtype_compute(out->dtype);
    t->scale = t->e->attr->flt[0];
    t->causal = (t->e->attr->flags & WF_FLAG_CAUSAL) != 0;
    t->mask = mask && mask->data ? mask : NULL;
    for (int i = 0; i < 3 && status == 0; i++) {
        wf_view v;
        status = compute_view(t, &src[i], &v);
        *to[i] = wf_gpu_over_batch(&v, rank, out->dims);
    }
    memcpy(dims, out->dims, sizeof dims);
    dims[rank - 2] = t->q.dims[rank - 2];
    dims[rank - 1] = t->k.dims[rank - 2];
    return status ? status
                  : wf_gpu_temp_view(&t->temps, t->compute, rank, dims, &t->scores, t->e->why);
}

static uint64_t bits(double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* The scores become probabilities. */
static int attend(attention *t, const void *lse, bool backward)
{
    const wf_view *s = &t->scores;
    const int rank = t->rank;
    const int64_t l = s->dims[rank - 2], n = s->dims[rank - 1];
    const int64_t items = l && n ? wf_view_numel(s) / l / n : 0;
    wf_gpu_hand h = {
        "attend", 2, {t->compute, t->compute}, .work = items * l, .per_block = WF_GPU_THREADS / 32};
    const uint64_t words[] = {
        wf_gpu_word(s->data), (uint64_t)items,  (uint64_t)l, (uint64_t)n, t->causal,
        bits(t->scale),       wf_gpu_word(lse), 0,           backward};
    memcpy(h.w, words, sizeof words);
    if (t->mask) {
        const wf_view m = wf_gpu_over_batch(t->mask, rank, s->dims);
        h.type[1] = m.dtype;
        h.w[7] = wf_gpu_word(m.data);
        h.w[9] = m.dims[rank - 2] == 1 ? 0 : (uint64_t)m.strides[rank - 2];
        h.w[10] = m.dims[rank - 1] == 1 ? 0 : (uint64_t)m.strides[rank - 1];
        h.w[11] = (uint64_t)(rank - 2);
        for (int d = 0; d < rank - 2; d++) {
            h.w[12 + 2 * d] = (uint64_t)s->dims[rank - 3 - d];
            h.w[13 + 2 * d] = (uint64_t)m.strides[rank - 3 - d];
        }
    }
    return wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

static int probabilities(attention *t, const void *lse, bool backward)
{
    const wf_view k = turned(&t->k);
    const int status = wf_gpu_gemm(t->ordinal, &t->scores, &t->q, &k, NULL, t->e->why);
    return status ? status : attend(t, lse, backward);
}

static int forward(attention *t)
{
    wf_exec *e = t->e;
    int status = open(t, e->src, &e->dst[0], e->nsrc > 3 ? &e->src[3] : NULL);
    if (status == 0)
        status = probabilities(t, e->dst[1].data, false);
    if (status == 0 && t->k.dims[t->rank - 2] == 0) { /* no keys: a row adds nothing up */
        const float never32 = -INFINITY;
        const double never64 = -(double)INFINITY;
        const void *never = e->dst[1].dtype == WEFT_F64 ? (const void *)&never64 : &never32;
        status = wf_gpu_fill(t->ordinal, &e->dst[1], never, e->why);
    }
    return status ? status : wf_gpu_gemm(t->ordinal, &e->dst[0], &t->scores, &t->v, NULL, e->why);
}

/* dp := p (dp - sum(g out)) scale */
static int dscores(attention *t, const wf_view *dp, const wf_view *g, const wf_view *out)
{
    const int rank = t->rank;
    const int64_t n = dp->dims[rank - 1], width = g->dims[rank - 1];
    wf_gpu_hand h = {"dscores", 1, {t->compute}, .per_block = WF_GPU_THREADS / 32};
    h.work = n ? wf_view_numel(dp) / n : 0;
    const uint64_t words[] = {wf_gpu_word(dp->data), wf_gpu_word(t->scores.data),
                              wf_gpu_word(g->data),  wf_gpu_word(out->data),
                              (uint64_t)h.work,      (uint64_t)n,
                              (uint64_t)width,       bits(t->scale)};
    memcpy(h.w, words, sizeof words);
    return wf_gpu_hand_run(t->ordinal, &h, t->e->why);
}

/* dst := g added up over the axes of the batch that dst lacks. */
static int add_up(attention *t, const wf_view *dst, const wf_view *g)
{
    wf_program p;
    wf_view to = wf_gpu_over_batch(dst, t->rank, g->dims);
    unsigned axes = 0;
    for (int d = 0; d < t->rank - 2; d++) {
        const int at = d - (t->rank - dst->rank);
        axes |= g->dims[d] != 1 && (at < 0 || dst->dims[at] == 1) ? 1u << d : 0;
    }
    wf_program_init(&p);
    const int sum = wf_program_reduce(&p, WF_OP_SUM, wf_program_input(&p, g->dtype));
    wf_program_output(&p, wf_program_cast(&p, sum, dst->dtype));
    if (wf_program_finish(&p) != 0)
        return WEFT_EUNSUPPORTED;
    return wf_gpu_program_now(t->ordinal, &p,
                              &(wf_program_args){.dst = &to, .src = g, .axes = axes}, t->e->why);
}

/* A gradient is a product over the whole batch, or what batches that share the operand make together. */
static int gradient(attention *t, const wf_view *dst, const wf_view *a, const wf_view *b)
{
    const wf_view *out = &t->e->src[4];
    wf_view whole = *dst;
    bool shared = dst->rank != out->rank;
    for (int d = 0; d < out->rank - 2; d++)
        shared |= !shared && dst->dims[d] != out->dims[d];
    if (!shared)
        return wf_gpu_gemm(t->ordinal, dst, a, b, NULL, t->e->why);
    int64_t dims[WF_MAX_RANK];
    memcpy(dims, out->dims, sizeof dims);
    dims[t->rank - 2] = dst->dims[dst->rank - 2];
    dims[t->rank - 1] = dst->dims[dst->rank - 1];
    int status = wf_gpu_temp_view(&t->temps, t->compute, t->rank, dims, &whole, t->e->why);
    if (status == 0)
        status = wf_gpu_gemm(t->ordinal, &whole, a, b, NULL, t->e->why);
    return status ? status : add_up(t, dst, &whole);
}

static int backward(attention *t)
{
    wf_exec *e = t->e;
    wf_view g, out, dp, lse;
    int status = open(t, e->src + 1, &e->src[4], e->nsrc > 6 ? &e->src[6] : NULL);
    if (status == 0)
        status = wf_gpu_dense(&t->temps, &e->src[0], t->compute, &g, e->why);
    if (status == 0)
        status = wf_gpu_dense(&t->temps, &e->src[4], t->compute, &out, e->why);
    if (status == 0)
        status = wf_gpu_dense(&t->temps, &e->src[5], t->compute, &lse, e->why);
    if (status == 0)
        status = wf_gpu_temp_view(&t->temps, t->compute, t->rank, t->scores.dims, &dp, e->why);
    if (status == 0)
        status = probabilities(t, lse.data, true);
    const wf_view v = turned(&t->v), p = turned(&t->scores);
    if (status == 0)
        status = gradient(t, &e->dst[2], &p, &g);
    if (status == 0)
        status = wf_gpu_gemm(t->ordinal, &dp, &g, &v, NULL, e->why);
    if (status == 0)
        status = dscores(t, &dp, &g, &out);
    if (status == 0)
        status = gradient(t, &e->dst[0], &dp, &t->k);
    const wf_view ds = turned(&dp);
    return status ? status : gradient(t, &e->dst[1], &ds, &t->q);
}

int wf_gpu_row_attention(int ordinal, wf_exec *e)
{
    attention t = {.ordinal = ordinal, .e = e, .temps.ordinal = ordinal};
    int status = wf_gpu_row_attention_dnn(ordinal, e);
    if (status != WEFT_EUNSUPPORTED || e->why->rule[0] != '\0')
        return status;
    status = wf_gpu_row_flash(ordinal, e);
    if (status != WEFT_EUNSUPPORTED || e->why->rule[0] != '\0')
        return status;
    if (wf_view_numel(&e->dst[0]) == 0 && (e->ndst < 2 || wf_view_numel(&e->dst[1]) == 0))
        return 0;
    status = e->op == WF_OP_SDPA ? forward(&t) : backward(&t);
    wf_gpu_drop(&t.temps);
    return status;
}
