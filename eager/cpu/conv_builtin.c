/*
 * eager/cpu/conv_builtin.c -- convolution as gather + built-in product, in blocks of bounded
 * scratch.
 *
 * Forward and backward-data are one routine: out[q] = sum over taps t and channels of
 * weight[.][t] * in[q * stride + offset_t]. Forward has the taps of the kernel; backward-data runs
 * once per residue of the input position modulo the stride, whose taps are those that hit an output
 * exactly (unit stride in the output), so no work is spent on the holes. Backward-weight is a
 * product over positions, summed in a number of parts that depends on shape alone and then added as
 * a tree.
 *
 * Invariants: everything is computed in f32 (f64 for f64) and rounded once on store; blocks depend
 * on shape only; a task allocates its own scratch and reports failure through the job.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpu/conv_image.h"
#include "eager/cpu/gemm_impl.h"
#include "eager/pool.h"
#include "jit/ir/dtype.h"

/* Elements of gathered input per block; largest number of positions in one. */
enum { COL_ELEMS = 1 << 18, MAX_POSITIONS = 1024, MIN_POSITIONS = 32 };

/* A dense activation tensor of one layout. */
typedef struct image {
    const char *data;
    int dtype;
    int nhwc;
    int64_t channels, h, w;
} image;

static int64_t stride_c(const image *x)
{
    return x->nhwc ? 1 : x->h * x->w;
}
static int64_t stride_y(const image *x)
{
    return x->nhwc ? x->w * x->channels : x->w;
}
static int64_t stride_x(const image *x)
{
    return x->nhwc ? x->channels : 1;
}

/* What one pass over a grid of positions reads: position q looks at q * stride + (ty[t], tx[t]). */
typedef struct taps {
    int64_t count;
    int64_t *ty, *tx; /* offsets */
    int64_t *index;   /* kh * KW + kw of the weight */
    int64_t stride_y, stride_x;
    int64_t grid_h, grid_w;   /* positions of this pass */
    int64_t first_y, first_x; /* where position (0, 0) is stored in the output image ... */
    int64_t step_y, step_x;   /* ... and the distance of its neighbours there */
} taps;

/* A run of elements into the compute type. */
static void load_run(const char *p, int dtype, int64_t i, int64_t step, int64_t n, void *out)
{
    if (dtype == WEFT_F64) {
        const double *s = (const double *)(const void *)p + i;
        for (int64_t x = 0; x < n; x++)
            ((double *)out)[x] = s[x * step];
    } else if (dtype == WEFT_F32) {
        const float *s = (const float *)(const void *)p + i;
        for (int64_t x = 0; x < n; x++)
            ((float *)out)[x] = s[x * step];
    } else {
        for (int64_t x = 0; x < n; x++)
            ((float *)out)[x] = (float)wf_float_load(p, dtype, i + x * step);
    }
}

static size_t compute_size(int dtype)
{
    return dtype == WEFT_F64 ? sizeof(double) : sizeof(float);
}

/* First x >= 0 with x * stride + offset >= 0, and first with >= limit. */
static int64_t first_at_least(int64_t bound, int64_t offset, int64_t stride)
{
    int64_t need = bound - offset;
    return need <= 0 ? 0 : (need + stride - 1) / stride;
}

/*
 * Gathers positions [p0, p1) of sample n, channels [c0, c1). NCHW: rows (tap, channel) of p1 - p0
 * positions each. NHWC: a row per position, (tap, channel) along it. So sums run over both in one order.
 */
static void gather(const image *x, const taps *t, int64_t n, int64_t c0, int64_t c1, int64_t p0,
                   int64_t p1, char *out)
{
    size_t es = compute_size(x->dtype);
    int64_t sc = stride_c(x), sy = stride_y(x), sx = stride_x(x);
    int64_t channels = c1 - c0;
    int64_t base = n * x->channels * x->h * x->w + c0 * sc;
    if (x->nhwc) {
        for (int64_t p = p0; p < p1; p++)
            for (int64_t k = 0; k < t->count; k++, out += (size_t)channels * es) {
                int64_t y = p / t->grid_w * t->stride_y + t->ty[k];
                int64_t xx = p % t->grid_w * t->stride_x + t->tx[k];
                if (y < 0 || y >= x->h || xx < 0 || xx >= x->w)
                    memset(out, 0, (size_t)channels * es);
                else
                    load_run(x->data, x->dtype, base + y * sy + xx * sx, 1, channels, out);
            }
        return;
    }
    for (int64_t k = 0; k < t->count; k++) {
        int64_t lo = first_at_least(0, t->tx[k], t->stride_x);
        int64_t hi = first_at_least(x->w, t->tx[k], t->stride_x);
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = p0; p < p1;) {
                int64_t q = p % t->grid_w, y = p / t->grid_w * t->stride_y + t->ty[k];
                int64_t run = t->grid_w - q < p1 - p ? t->grid_w - q : p1 - p;
                int64_t from = lo < q ? q : lo, to = hi < q + run ? hi : q + run;
                if (y < 0 || y >= x->h || from >= to)
                    from = to = q + run;
                memset(out, 0, (size_t)(from - q) * es);
                if (from < to)
                    load_run(x->data, x->dtype,
                             base + c * sc + y * sy + from * t->stride_x + t->tx[k], t->stride_x,
                             to - from, out + (size_t)(from - q) * es);
                memset(out + (size_t)(to - q) * es, 0, (size_t)(q + run - to) * es);
                out += (size_t)run * es;
                p += run;
            }
        }
    }
}

typedef struct conv_job {
    const wf_conv_desc *d;
    const image *in, *out;
    void *result;     /* of out's layout and dtype */
    const taps *t;    /* one pass */
    const char *wt;   /* compute type, [group][out channel][k] in the order of gather's k */
    const void *bias; /* storage type or NULL */
    int64_t in_group, out_group; /* channels of a group */
    int64_t positions, per_block, blocks;
    _Atomic int rc;
} conv_job;

/* Element i := from[j], of the compute type, + bias. */
static void store_any(void *p, int dtype, int64_t i, const void *from, int64_t j, double bias)
{
    if (dtype == WEFT_F64)
        ((double *)p)[i] = ((const double *)from)[j] + bias;
    else
        wf_float_put(p, dtype, i, (double)(((const float *)from)[j] + (float)bias));
}

/* Stores acc ([channel][position], or [position][channel] for NHWC) of one block. */
static void store_block(const conv_job *w, int64_t n, int64_t group, int64_t p0, int64_t p1,
                        const char *acc)
{
    const image *o = w->out;
    const taps *t = w->t;
    int64_t base = n * o->channels * o->h * o->w, c0 = group * w->out_group, count = p1 - p0;
    for (int64_t p = p0; p < p1; p++) {
        int64_t y = t->first_y + p / t->grid_w * t->step_y;
        int64_t x = t->first_x + p % t->grid_w * t->step_x;
        int64_t at = base + c0 * stride_c(o) + y * stride_y(o) + x * stride_x(o);
        for (int64_t c = 0; c < w->out_group; c++) {
            int64_t from = o->nhwc ? (p - p0) * w->out_group + c : c * count + p - p0;
            double b = w->bias ? wf_float_load(w->bias, o->dtype, c0 + c) : 0;
            store_any(w->result, o->dtype, at + c * stride_c(o), acc, from, b);
        }
    }
}

static void conv_task(void *arg, int64_t begin, int64_t end)
{
    conv_job *w = arg;
    const image *in = w->in, *out = w->out;
    size_t es = compute_size(in->dtype);
    int64_t k = w->in_group * w->t->count, m = w->out_group;
    size_t col_bytes = ((size_t)(k * w->per_block) * es + 63) & ~(size_t)63;
    size_t bytes = col_bytes + (size_t)(m * w->per_block) * es;
    char *col = wf_scratch(bytes);
    if (!col) {
        atomic_store_explicit(&w->rc, WF_GEMM_NOMEM, memory_order_relaxed);
        return;
    }
    for (int64_t task = begin; task < end; task++) {
        int64_t n = task / (w->d->groups * w->blocks), group = task / w->blocks % w->d->groups;
        int64_t p0 = task % w->blocks * w->per_block;
        int64_t p1 = p0 + w->per_block < w->positions ? p0 + w->per_block : w->positions;
        int64_t count = p1 - p0;
        gather(in, w->t, n, group * w->in_group, (group + 1) * w->in_group, p0, p1, col);
        int64_t col_k = in->nhwc ? 1 : count, col_p = in->nhwc ? k : 1;
        const char *wt = w->wt + (size_t)(group * m * k) * es;
        wf_gemm_block g = {
            .dtype = in->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32, .k = k, .c = col + col_bytes};
        if (out->nhwc) {
            g.m = count, g.n = m, g.c_rs = m;
            g.a = col, g.a_rs = col_p, g.a_cs = col_k;
            g.b = wt, g.b_rs = 1, g.b_cs = k;
        } else {
            g.m = m, g.n = count, g.c_rs = count;
            g.a = wt, g.a_rs = k, g.a_cs = 1;
            g.b = col, g.b_rs = col_k, g.b_cs = col_p;
        }
        int rc = WF_GEMM_OK;
        if (k > 0)
            rc = wf_gemm_builtin_block(&g);
        else
            memset(g.c, 0, (size_t)(m * count) * es);
        if (rc)
            atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
        else
            store_block(w, n, group, p0, p1, g.c);
    }
    wf_scratch_free(col, bytes);
}

/*
 * The weights of one pass in the order of gather's k. forward: wt[g][o][(t, c)]; otherwise
 * (backward data) the roles of o and c are swapped: wt[g][c][(t, o)].
 */
static void arrange_weight(const conv_job *w, const void *weight, int forward, char *out)
{
    const wf_conv_desc *d = w->d;
    int64_t kernel = d->kh * d->kw, cg = d->c / d->groups, count = w->t->count;
    for (int64_t g = 0; g < d->groups; g++)
        for (int64_t r = 0; r < w->out_group; r++)
            for (int64_t s = 0; s < w->in_group; s++)
                for (int64_t t = 0; t < count; t++) {
                    int64_t o = g * (d->o / d->groups) + (forward ? r : s), c = forward ? s : r;
                    int64_t at = ((g * w->out_group + r) * count + t) * w->in_group + s;
                    load_run(weight, d->dtype, (o * cg + c) * kernel + w->t->index[t], 1, 1,
                             out + (size_t)at * compute_size(d->dtype));
                }
}

static int run_pass(conv_job *w, const void *weight, int forward)
{
    const wf_conv_desc *d = w->d;
    int64_t k = w->in_group * w->t->count;
    w->positions = w->t->grid_h * w->t->grid_w;
    if (w->positions == 0)
        return WF_GEMM_OK;
    int64_t fit = COL_ELEMS / (k + w->out_group);
    fit = fit < MIN_POSITIONS ? MIN_POSITIONS : fit > MAX_POSITIONS ? MAX_POSITIONS : fit;
    int64_t blocks = (w->positions + fit - 1) / fit;
    w->per_block = (w->positions + blocks - 1) / blocks;
    w->blocks = (w->positions + w->per_block - 1) / w->per_block;
    size_t bytes = (size_t)(d->groups * w->out_group * k) * compute_size(d->dtype);
    char *wt = wf_scratch(bytes);
    if (!wt)
        return WF_GEMM_NOMEM;
    arrange_weight(w, weight, forward, wt);
    w->wt = wt;
    int64_t work = w->per_block * w->out_group * (k > 0 ? k : 1);
    wf_parallel_for(d->n * d->groups * w->blocks, work >= 1 << 18 ? 1 : (1 << 18) / work, conv_task,
                    w);
    wf_scratch_free(wt, bytes);
    return atomic_load_explicit(&w->rc, memory_order_relaxed);
}

/* Room for the taps of a kernel: three arrays in one block. */
static int taps_new(const wf_conv_desc *d, taps *t)
{
    int64_t kernel = d->kh * d->kw;
    t->ty = wf_malloc((size_t)(3 * kernel + 1) * sizeof *t->ty);
    if (!t->ty)
        return WF_GEMM_NOMEM;
    t->tx = t->ty + kernel;
    t->index = t->tx + kernel;
    t->count = 0;
    return WF_GEMM_OK;
}

static void taps_add(taps *t, int64_t y, int64_t x, int64_t index)
{
    t->ty[t->count] = y;
    t->tx[t->count] = x;
    t->index[t->count++] = index;
}

static void forward_taps(const wf_conv_desc *d, taps *t)
{
    for (int64_t i = 0; i < d->kh; i++)
        for (int64_t j = 0; j < d->kw; j++)
            taps_add(t, i * d->dilation[0] - d->pad[0], j * d->dilation[1] - d->pad[1],
                     i * d->kw + j);
    t->stride_y = d->stride[0], t->stride_x = d->stride[1];
    t->grid_h = d->oh, t->grid_w = d->ow;
    t->first_y = t->first_x = 0;
    t->step_y = t->step_x = 1;
}

static image src_image(const wf_conv_desc *d, const void *data)
{
    return (image){data, d->dtype, (d->layout & WF_CONV_SRC_NHWC) != 0, d->c, d->h, d->w};
}
static image dst_image(const wf_conv_desc *d, const void *data)
{
    return (image){data, d->dtype, (d->layout & WF_CONV_DST_NHWC) != 0, d->o, d->oh, d->ow};
}

int wf_conv_builtin_forward(const wf_conv_desc *d, const void *src, const void *weight,
                            const void *bias, void *dst)
{
    taps t;
    if (taps_new(d, &t))
        return WF_GEMM_NOMEM;
    forward_taps(d, &t);
    image in = src_image(d, src), out = dst_image(d, dst);
    conv_job w = {.d = d, .in = &in, .out = &out, .result = dst, .t = &t, .bias = bias};
    w.in_group = d->c / d->groups;
    w.out_group = d->o / d->groups;
    int rc = run_pass(&w, weight, 1);
    wf_mfree(t.ty);
    return rc;
}

/* Taps of the input positions that are py, px modulo the stride. */
static void residue_taps(const wf_conv_desc *d, int64_t py, int64_t px, taps *t)
{
    t->count = 0;
    for (int64_t i = 0; i < d->kh; i++)
        for (int64_t j = 0; j < d->kw; j++) {
            int64_t y = py + d->pad[0] - i * d->dilation[0];
            int64_t x = px + d->pad[1] - j * d->dilation[1];
            if (y % d->stride[0] == 0 && x % d->stride[1] == 0)
                taps_add(t, y / d->stride[0], x / d->stride[1], i * d->kw + j);
        }
    t->stride_y = t->stride_x = 1;
    t->first_y = py, t->first_x = px;
    t->step_y = d->stride[0], t->step_x = d->stride[1];
    t->grid_h = py < d->h ? (d->h - py + d->stride[0] - 1) / d->stride[0] : 0;
    t->grid_w = px < d->w ? (d->w - px + d->stride[1] - 1) / d->stride[1] : 0;
}

int wf_conv_builtin_backward_data(const wf_conv_desc *d, const void *ddst, const void *weight,
                                  void *dsrc)
{
    taps t;
    if (taps_new(d, &t))
        return WF_GEMM_NOMEM;
    image in = dst_image(d, ddst), out = src_image(d, dsrc);
    int rc = WF_GEMM_OK;
    for (int64_t py = 0; py < d->stride[0] && py < d->h && !rc; py++)
        for (int64_t px = 0; px < d->stride[1] && px < d->w && !rc; px++) {
            residue_taps(d, py, px, &t);
            conv_job w = {.d = d, .in = &in, .out = &out, .result = dsrc, .t = &t};
            w.in_group = d->o / d->groups;
            w.out_group = d->c / d->groups;
            rc = run_pass(&w, weight, 0);
        }
    wf_mfree(t.ty);
    return rc;
}

/*
 * Backward weight. Task (part, group, channel block) sums its share of (sample, position block)
 * pairs in order into partial[part][o][c][t]; the parts are then added pairwise and rounded.
 */
typedef struct weight_job {
    const wf_conv_desc *d;
    const image *src, *ddst;
    const taps *t;
    char *partial;
    int64_t cg, og, channels, channel_blocks;
    int64_t per_block, blocks; /* positions */
    int64_t parts, per_part;   /* (sample, block) pairs */
    void *result;
    _Atomic int rc;
} weight_job;

enum { MAX_PARTS = 8, PARTIAL_ELEMS = 1 << 23 };

static int weight_block(weight_job *w, int64_t group, int64_t c0, int64_t c1, int64_t pair,
                        char *col, char *sum)
{
    const wf_conv_desc *d = w->d;
    size_t es = compute_size(d->dtype);
    int64_t n = pair / w->blocks, p0 = pair % w->blocks * w->per_block, all = d->oh * d->ow;
    int64_t p1 = p0 + w->per_block < all ? p0 + w->per_block : all, count = p1 - p0;
    int64_t k = (c1 - c0) * w->t->count;
    char *grad =
        col + (((size_t)(w->channels * w->t->count * w->per_block) * es + 63) & ~(size_t)63);
    static int64_t zero = 0;
    taps point = {.count = 1, .ty = &zero, .tx = &zero, .stride_y = 1, .stride_x = 1};
    point.grid_h = d->oh, point.grid_w = d->ow;
    gather(w->src, w->t, n, c0, c1, p0, p1, col);
    gather(w->ddst, &point, n, group * w->og, (group + 1) * w->og, p0, p1, grad);
    wf_gemm_block g = {.dtype = d->dtype == WEFT_F64 ? WEFT_F64 : WEFT_F32, .add = 1};
    g.m = w->og, g.n = k, g.k = count;
    g.a = grad, g.a_rs = w->ddst->nhwc ? 1 : count, g.a_cs = w->ddst->nhwc ? w->og : 1;
    g.b = col, g.b_rs = w->src->nhwc ? k : 1, g.b_cs = w->src->nhwc ? 1 : count;
    g.c = sum, g.c_rs = k;
    return wf_gemm_builtin_block(&g);
}

static void weight_task(void *arg, int64_t begin, int64_t end)
{
    weight_job *w = arg;
    const wf_conv_desc *d = w->d;
    size_t es = compute_size(d->dtype);
    int64_t taps_n = w->t->count, row = w->cg * taps_n;
    size_t col = (((size_t)(w->channels * taps_n * w->per_block) * es + 63) & ~(size_t)63);
    size_t grad = (((size_t)(w->og * w->per_block) * es + 63) & ~(size_t)63);
    size_t bytes = col + grad + (size_t)(w->og * w->channels * taps_n) * es;
    char *scratch = wf_scratch(bytes);
    int rc = scratch ? WF_GEMM_OK : WF_GEMM_NOMEM;
    for (int64_t task = begin; task < end && !rc; task++) {
        int64_t part = task / (d->groups * w->channel_blocks);
        int64_t group = task / w->channel_blocks % d->groups;
        int64_t c0 = task % w->channel_blocks * w->channels;
        int64_t c1 = c0 + w->channels < w->cg ? c0 + w->channels : w->cg, k = (c1 - c0) * taps_n;
        int64_t pair = part * w->per_part, last = pair + w->per_part;
        char *sum = scratch + col + grad;
        memset(sum, 0, (size_t)(w->og * k) * es);
        for (; pair < last && pair < d->n * w->blocks && !rc; pair++)
            rc = weight_block(w, group, group * w->cg + c0, group * w->cg + c1, pair, scratch, sum);
        char *out = w->partial + (size_t)((part * d->o + group * w->og) * row) * es;
        for (int64_t o = 0; o < w->og; o++)
            for (int64_t c = 0; c < c1 - c0; c++)
                for (int64_t t = 0; t < taps_n; t++) {
                    int64_t from = o * k + t * (c1 - c0) + c;
                    memcpy(out + (size_t)(o * row + (c0 + c) * taps_n + t) * es,
                           sum + (size_t)from * es, es);
                }
    }
    if (rc)
        atomic_store_explicit(&w->rc, rc, memory_order_relaxed);
    if (scratch)
        wf_scratch_free(scratch, bytes);
}

/* Elements [begin, end): parts added as a tree, then rounded to storage. */
static void add_parts(void *arg, int64_t begin, int64_t end)
{
    weight_job *w = arg;
    int64_t size = w->d->o * w->cg * w->t->count;
    for (int64_t i = begin; i < end; i++) {
        double wide[MAX_PARTS];
        float single[MAX_PARTS];
        int f64 = w->d->dtype == WEFT_F64;
        for (int64_t p = 0; p < w->parts; p++)
            if (f64)
                wide[p] = ((double *)(void *)w->partial)[p * size + i];
            else
                single[p] = ((float *)(void *)w->partial)[p * size + i];
        for (int64_t gap = 1; gap < w->parts; gap *= 2)
            for (int64_t p = 0; p + gap < w->parts; p += 2 * gap)
                if (f64)
                    wide[p] += wide[p + gap];
                else
                    single[p] += single[p + gap];
        store_any(w->result, w->d->dtype, i, f64 ? (void *)wide : (void *)single, 0, 0);
    }
}

int wf_conv_builtin_backward_weight(const wf_conv_desc *d, const void *src, const void *ddst,
                                    void *dweight)
{
    taps t;
    if (taps_new(d, &t))
        return WF_GEMM_NOMEM;
    forward_taps(d, &t);
    image s = src_image(d, src), g = dst_image(d, ddst);
    weight_job w = {.d = d, .src = &s, .ddst = &g, .t = &t, .result = dweight};
    w.cg = d->c / d->groups, w.og = d->o / d->groups;
    w.channels = t.count >= 512 ? 1 : 512 / t.count;
    w.channels = w.channels < w.cg ? w.channels : w.cg;
    w.channel_blocks = (w.cg + w.channels - 1) / w.channels;
    int64_t all = d->oh * d->ow, fit = COL_ELEMS / (w.channels * t.count + w.og);
    fit = fit < MIN_POSITIONS ? MIN_POSITIONS : fit > MAX_POSITIONS ? MAX_POSITIONS : fit;
    int64_t blocks = (all + fit - 1) / fit;
    w.per_block = (all + blocks - 1) / blocks;
    w.blocks = (all + w.per_block - 1) / w.per_block;
    int64_t size = d->o * w.cg * t.count, pairs = d->n * w.blocks;
    w.parts = PARTIAL_ELEMS / size;
    w.parts = w.parts < 1 ? 1 : w.parts > MAX_PARTS ? MAX_PARTS : w.parts;
    w.parts = w.parts < pairs ? w.parts : pairs;
    w.per_part = (pairs + w.parts - 1) / w.parts;
    w.parts = (pairs + w.per_part - 1) / w.per_part;
    size_t bytes = (size_t)(w.parts * size) * compute_size(d->dtype);
    w.partial = wf_scratch(bytes);
    if (!w.partial) {
        wf_mfree(t.ty);
        return WF_GEMM_NOMEM;
    }
    wf_parallel_for(w.parts * d->groups * w.channel_blocks, 1, weight_task, &w);
    wf_parallel_for(size, 16384, add_parts, &w);
    wf_scratch_free(w.partial, bytes);
    wf_mfree(t.ty);
    return atomic_load_explicit(&w.rc, memory_order_relaxed);
}
