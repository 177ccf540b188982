/*
 * eager/norm.c -- layer_norm and rms_norm forward, batch_norm forward and backward.
 *
 * Everything is computed in the compute type of x and each result is rounded once. Formulas of the
 * rows: eager/kernels/rowwise.h; sums over rows and channels run in the canonical order of
 * docs/reductions.md, over the row-major index of the summed axes.
 */
#include "eager/rows.h"

#include "eager/layout.h"

#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"

static double get(const void *p, int compute, int64_t i)
{
    return compute == WEFT_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static void put(void *p, int compute, int64_t i, double v)
{
    if (compute == WEFT_F64) {
        ((double *)p)[i] = v;
    } else {
        ((float *)p)[i] = (float)v;
    }
}

/* Which of the kernels of planes takes an operand and a result of these types; -1: none. */
static int planes_kernel(int x, int y)
{
    const int which = x != y ? -1 : x == WEFT_F32 ? 0 : x == WEFT_BF16 ? 1 : -1;
    return which >= 0 && wf_plane_kernels_now()->affine[which] != NULL ? which : -1;
}

/* -- layer_norm, rms_norm ----------------------------------------------------------------------------- */

typedef struct norm_job {
    const wf_row_kernels *k;
    int64_t n;
    size_t size;
    double eps;
    bool center;
    const void *w, *b;
    char *mean, *rstd;       /* one value per row; mean NULL for rms_norm */
    int64_t groups, c, each; /* WF_FLAG_CHANNELS: a row is c channels of `each` values */
} norm_job;

static void norm_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const norm_job *j = ctx;
    size_t at = (size_t)row * j->size;
    j->k->norm(out[0], in[0], j->w, j->b, j->n, j->eps, j->center,
               j->mean != NULL ? j->mean + at : NULL, j->rstd + at, nt);
}

static void channels_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const norm_job *j = ctx;
    const size_t at = (size_t)row * j->size, of = (size_t)(row % j->groups * j->c) * j->size;
    const char *w = j->w, *b = j->b;
    j->k->norm_runs(out[0], in[0], w != NULL ? w + of : NULL, b != NULL ? b + of : NULL, j->n,
                    j->each, j->eps, j->mean + at, j->rstd + at, nt);
}

/* Rows of channels of halves, a block after the other in the first cache: a whole row as f32 would leave it. */
enum {
    BLOCKS = 1024,       /* of a row, at most */
    ROW_TASK = 1 << 15,  /* elements worth a task */
    ROW_AWAKE = 1 << 13, /* and a share of a worker that is awake */
};
typedef struct halves {
    const norm_job *j;
    const wf_red_kernels *k;
    const char *x;
    char *y;
    int x_dtype, y_dtype;
    bool planes; /* channels of bf16, which a kernel takes as they are */
} halves;

/* The sum of a row's values, or of the squares of their distances from a mean. */
static float sum_of_halves(const halves *h, const char *x, const float *mean, float *block)
{
    float parts[BLOCKS], total;
    int64_t blocks = 0;
    for (int64_t i = 0; i < h->j->n; i += WF_BLOCK, blocks++) {
        const int64_t n = h->j->n - i < WF_BLOCK ? h->j->n - i : WF_BLOCK;
        wf_rows_load(h->k, block, x + i * 2, h->x_dtype, n);
        if (mean != NULL) {
            h->k->map(WF_MAP_SQDEV, block, block, NULL, mean, NULL, 0, n);
        }
        h->k->run[WF_RED_SUM](&parts[blocks], block, n);
    }
    h->k->run[WF_RED_SUM](&total, parts, blocks);
    return total;
}

static void halves_task(void *arg, int64_t begin, int64_t end)
{
    const halves *h = arg;
    const norm_job *j = h->j;
    _Alignas(64) float block[WF_BLOCK];
    /* whole channels, or parts of one */
    const int64_t most = j->each < WF_BLOCK ? WF_BLOCK / j->each * j->each : WF_BLOCK;
    for (int64_t row = begin; row < end; row++) {
        const char *x = h->x + row * j->n * 2;
        const float n = (float)j->n, *w = j->w, *b = j->b;
        const float mean = sum_of_halves(h, x, NULL, block) / n;
        const float rstd = 1.0f / sqrtf(sum_of_halves(h, x, &mean, block) / n + (float)j->eps);
        const int64_t first = row % j->groups * j->c;
        if (h->planes) {
            wf_plane_kernels_now()->affine[1](
                h->y + row * j->n * 2, x, &mean, &rstd, w != NULL ? w + first : NULL,
                b != NULL ? b + first : NULL, j->each, j->c, WF_PLANES_FUSED);
        }
        for (int64_t i = 0, m; i < j->n && !h->planes; i += m) {
            const int64_t ch = first + i / j->each, left = j->each - i % j->each;
            m = j->n - i < most ? j->n - i : most;
            m = j->each > WF_BLOCK && left < m ? left : m;
            wf_rows_load(h->k, block, x + i * 2, h->x_dtype, m);
            j->k->affine_runs(block, block, w != NULL ? w + ch : NULL, b != NULL ? b + ch : NULL, m,
                              j->each, &mean, &rstd, 0);
            h->k->store(h->y + (row * j->n + i) * 2, h->y_dtype, block, m);
        }
        ((float *)(void *)j->mean)[row] = mean;
        ((float *)(void *)j->rstd)[row] = rstd;
    }
}

static void norm_rows(void *ctx, int64_t row, int64_t count, const void *const *in,
                      void *const *out, int nt)
{
    const norm_job *j = ctx;
    size_t at = (size_t)row * j->size;
    j->k->norms(out[0], in[0], j->w, j->b, j->n, j->eps, j->center,
                j->mean != NULL ? j->mean + at : NULL, j->rstd + at, count, nt);
}

/* Rows without values: statistics of nothing. */
__attribute__((noinline)) static void norm_of_nothing(const norm_job *j, int compute, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        put(j->rstd, compute, i, NAN);
        put(j->center ? j->mean : j->rstd, compute, i, NAN);
    }
}

/* Weights of channels of few values, a value for each of theirs: such a row is channels of one. */
typedef struct spread_weights {
    void *w, *b;
    size_t bytes; /* of each */
} spread_weights;

static int spread_over_rows(norm_job *j, int compute, spread_weights *s, wf_why *why)
{
    const int64_t channels = j->groups * j->c;
    s->bytes = (size_t)(channels * j->each) * j->size;
    j->w = s->w = wf_rows_spread(j->w, 1.0, compute, channels, j->each);
    j->b = s->b = wf_rows_spread(j->b, -0.0, compute, channels, j->each);
    j->c *= j->each;
    j->each = 1;
    return j->w == NULL || j->b == NULL ? wf_red_nomem(why, 2 * (int64_t)s->bytes) : 0;
}

/* Rows of channels: what WF_FLAG_CHANNELS makes of the job of whole rows. */
__attribute__((noinline)) static int by_channels(norm_job *j, wf_row_job *r, const wf_view *x,
                                                 spread_weights *s, wf_why *why)
{
    j->groups = x->dims[x->rank - 3];
    j->c = x->dims[x->rank - 2];
    j->each = x->dims[x->rank - 1];
    const int status =
        j->each > 0 && j->each < WF_FEW_EACH ? spread_over_rows(j, r->compute, s, why) : 0;
    r->nt_limit = j->each * (int64_t)j->size % 64 == 0 ? INT64_MAX : 0;
    r->fn = channels_row;
    r->many = NULL;
    return status;
}

/* Long rows of channels of halves: done here. */
__attribute__((noinline)) static bool norm_halves(const norm_job *j, const wf_row_job *r, char *out)
{
    const int x = r->in[0].dtype, y = r->out[0].dtype;
    if (j->each <= 0 || wf_dtype_size(x) != 2 || j->n <= WF_BLOCK / 2 ||
        j->n > (int64_t)BLOCKS * WF_BLOCK) {
        return false;
    }
    halves h = {.j = j,
                .k = wf_red_kernels_of(r->compute),
                .x = r->in[0].data,
                .y = out,
                .x_dtype = x,
                .y_dtype = y};
    h.planes = planes_kernel(x, y) == 1 && j->each > 1;
    wf_parallel_items(r->rows, j->n, ROW_TASK, ROW_AWAKE, halves_task, &h);
    return true;
}

static int run_norm(wf_exec *e, bool center)
{
    const wf_view *x = &e->src[0];
    int compute = wf_red_compute(x->dtype), trailing = (int)e->attr->ints[0];
    norm_job j = {.k = wf_row_kernels_of(compute), .n = 1, .size = wf_red_size(compute)};
    for (int i = x->rank - trailing; i < x->rank; i++) {
        j.n *= x->dims[i];
    }
    j.center = center;
    j.eps = e->attr->n_flt > 0 ? e->attr->flt[0] : 1e-5;
    j.mean = center ? e->dst[1].data : NULL;
    j.rstd = e->dst[center ? 2 : 1].data;
    int64_t rows = wf_view_numel(&e->dst[center ? 2 : 1]);
    if (j.n == 0) {
        norm_of_nothing(&j, compute, rows);
        return 0;
    }
    wf_packed px = {.data = NULL}, w = {.data = NULL}, b = {.data = NULL};
    spread_weights spread = {NULL, NULL, 0};
    int status = wf_pack(&px, x, x->dtype, -1, e->why);
    if (status == 0 && e->nsrc > 1) {
        status = wf_pack(&w, &e->src[1], compute, -1, e->why);
    }
    if (status == 0 && e->nsrc > 2) {
        status = wf_pack(&b, &e->src[2], compute, -1, e->why);
    }
    if (status == 0) {
        const bool channels = (e->attr->flags & WF_FLAG_CHANNELS) != 0;
        j.w = w.data;
        j.b = b.data;
        wf_row_job r = {.rows = rows, .n = j.n, .compute = compute, .nin = 1, .nout = 1};
        r.in[0].data = px.data;
        r.in[0].dtype = x->dtype;
        r.out[0].data = e->dst[0].data;
        r.out[0].dtype = e->dst[0].dtype;
        r.nt_limit = INT64_MAX;
        r.fn = norm_row;
        r.many = norm_rows;
        r.ctx = &j;
        status = channels ? by_channels(&j, &r, x, &spread, e->why) : 0;
        const wf_turned_norm turned = {px.data, e->dst[0].data, x->dtype, e->dst[0].dtype,
                                       compute, rows,           j.n,      w.data,
                                       b.data,  j.mean,         j.rstd,   j.eps};
        const bool done = status == 0 && (channels ? norm_halves(&j, &r, e->dst[0].data)
                                                   : wf_norm_turned(&turned));
        status = status != 0 || done ? status : wf_rows_run(&r, e->why);
    }
    wf_scratch_free(spread.w, spread.bytes);
    wf_scratch_free(spread.b, spread.bytes);
    wf_unpack(&px);
    wf_unpack(&w);
    wf_unpack(&b);
    return status;
}

WF_EXEC_DECL(layer_norm)
{
    return run_norm(e, true);
}

WF_EXEC_DECL(rms_norm)
{
    return run_norm(e, false);
}

/* -- batch_norm ------------------------------------------------------------------------------------- */

/* Per channel values are compute-type arrays of c. A row is a channel's plane, or, when planes are
 * single elements or the result lies channels-last, all channels of one pixel; of `repeat` pixels where these are few, each
 * array then holding its values as often. */
enum { LAST_ROW = 1024 /* elements of such a row */ };
typedef struct channel_job {
    const wf_row_kernels *k;
    int64_t c, n, repeat;
    size_t size;
    bool planes;
    const char *mean, *rstd, *w, *b; /* forward; w, b may be NULL */
    const char *s, *da, *dc;         /* backward */
} channel_job;

static const void *channel(const channel_job *j, const char *p, int64_t row)
{
    return p == NULL ? NULL : p + (j->planes ? row % j->c * (int64_t)j->size : 0);
}

static void batch_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const channel_job *j = ctx;
    j->k->affine(out[0], in[0], channel(j, j->mean, row), channel(j, j->rstd, row),
                 channel(j, j->w, row), channel(j, j->b, row), j->planes ? 0 : 1, j->n, nt);
}

static void batch_bwd_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const channel_job *j = ctx;
    j->k->affine_bwd(out[0], in[0], in[1], channel(j, j->mean, row), channel(j, j->rstd, row),
                     channel(j, j->s, row), channel(j, j->da, row), channel(j, j->dc, row),
                     j->planes ? 0 : 1, j->n, nt);
}

/* All rows, planes of channels, by the kernels of many. */
enum { FEW_PLANE = 1024 /* of f32: what a call a plane costs beside its values */ };
typedef struct planes {
    const channel_job *j;
    const wf_row_job *r;
    int which;
} planes;

static void planes_task(void *arg, int64_t begin, int64_t end)
{
    const planes *p = arg;
    const channel_job *j = p->j;
    const wf_plane_kernels *k = wf_plane_kernels_now();
    const int64_t bytes = j->n * (p->which == 0 ? 4 : 2);
    for (int64_t row = begin, count; row < end; row += count) {
        const int64_t left = j->c - row % j->c;
        count = end - row < left ? end - row : left;
        char *y = (char *)(uintptr_t)p->r->out[0].data + row * bytes;
        const char *x = (const char *)p->r->in[0].data + row * bytes;
        if (p->r->nin == 1) {
            k->affine[p->which](y, x, channel(j, j->mean, row), channel(j, j->rstd, row),
                                channel(j, j->w, row), channel(j, j->b, row), j->n, count,
                                WF_PLANES_OWN);
        } else {
            const void *per[5] = {channel(j, j->mean, row), channel(j, j->rstd, row),
                                  channel(j, j->s, row), channel(j, j->da, row),
                                  channel(j, j->dc, row)};
            k->bwd[p->which](y, x, (const char *)p->r->in[1].data + row * bytes, per, j->n, count);
        }
    }
}

/* r of batch_row or batch_bwd_row. */
static int run_channels(const wf_row_job *r, wf_why *why)
{
    const channel_job *j = r->ctx;
    planes p = {j, r, planes_kernel(r->in[0].dtype, r->out[0].dtype)};
    const bool same = r->nin == 1 || r->in[1].dtype == r->in[0].dtype;
    if (!j->planes || p.which < 0 || !same || (p.which == 0 && j->n >= FEW_PLANE)) {
        return wf_rows_run(r, why);
    }
    wf_parallel_items(r->rows, j->n, ROW_TASK, ROW_AWAKE, planes_task, &p);
    return 0;
}

/* Of the result y. */
static channel_job channels_of(const wf_view *y, int compute)
{
    channel_job j = {.k = wf_row_kernels_of(compute),
                     .c = y->dims[1],
                     .repeat = 1,
                     .size = wf_red_size(compute)};
    int64_t plane = 1;
    for (int i = 2; i < y->rank; i++) {
        plane *= y->dims[i];
    }
    const bool last = wf_view_lies_last(y);
    j.planes = plane > 1 && !last;
    while (last && (y->dims[0] * plane) % (2 * j.repeat) == 0 && 2 * j.repeat * j.c <= LAST_ROW) {
        j.repeat *= 2;
    }
    j.n = j.planes ? plane : j.c * j.repeat;
    return j;
}

/* x as it is read to write y. */
static wf_view in_order_of(const wf_view *y, const wf_view *x)
{
    return wf_view_lies_last(y) ? wf_view_last(x) : *x;
}

/* The values p[c] as often as j says: where they lie if that is once, else in the room, which moves on. NULL stays NULL. */
static const char *put_channels(const channel_job *j, char **room, const void *p)
{
    const size_t one = (size_t)j->c * j->size;
    char *to = *room;
    if (p == NULL || j->repeat == 1) {
        return p;
    }
    for (int64_t i = 0; i < j->repeat; i++, *room += one) {
        memcpy(*room, p, one);
    }
    return to;
}

/* 1 / sqrt(v + eps) in the compute type. */
static double rstd_of(double v, double eps, int compute)
{
    if (compute == WEFT_F64) {
        return 1.0 / sqrt(v + eps);
    }
    float s = (float)v + (float)eps;
    return (double)(1.0f / sqrtf(s));
}

static double quotient(double a, double n, int compute)
{
    return compute == WEFT_F64 ? a / n : (double)((float)a / (float)n);
}

/* rstd[c] of var[c]. */
static void rstd_of_all(const void *var, double eps, int compute, int64_t c, void *rstd)
{
    for (int64_t i = 0; i < c; i++) {
        put(rstd, compute, i, rstd_of(get(var, compute, i), eps, compute));
    }
}

/* Channels whose sums are taken before those of the next ones: two sums over what the caches do not hold find it there the second time if
 * they go by as many channels as the last cache has room for beside others. All where a channel's elements are no pieces of a page. */
static int64_t channels_at_once(const wf_view *x)
{
    enum { TOGETHER = 4 << 20, PIECE = 256 };
    const int64_t c = x->dims[1], bytes = wf_view_numel(x) * (int64_t)wf_dtype_size(x->dtype);
    const int64_t most = bytes >= WF_STREAM_BYTES ? TOGETHER / (bytes / c) : c;
    const bool pieces = x->rank > 2 && x->strides[x->rank - 1] == 1 && x->strides[1] >= PIECE;
    return most >= c || !pieces ? c : most > 0 ? most : 1;
}

/* Channels [first, first + count) of x. */
static wf_view some_channels(const wf_view *x, int64_t first, int64_t count)
{
    wf_view v = *x;
    v.data = (char *)v.data + first * v.strides[1] * (int64_t)wf_dtype_size(v.dtype);
    v.dims[1] = count;
    return v;
}

/* mean[count] and var[count] of x, which has some elements a channel. */
static int statistics_of(const wf_view *x, int compute, char *mean, char *var)
{
    const int64_t c = x->dims[1];
    const unsigned axes = ((1u << x->rank) - 1u) & ~2u;
    const double count = (double)(wf_view_numel(x) / c);
    wf_red_job j = {.op = WF_RED_SUM, .compute = compute, .axes = axes, .x = x, .out = mean};
    int status = wf_red_run(&j);
    for (int64_t i = 0; i < c && status == 0; i++) {
        put(mean, compute, i, quotient(get(mean, compute, i), count, compute));
    }
    j.map = WF_MAP_SQDEV;
    j.p = mean;
    j.out = var;
    status = status != 0 ? status : wf_red_run(&j);
    for (int64_t i = 0; i < c && status == 0; i++) {
        put(var, compute, i, quotient(get(var, compute, i), count, compute));
    }
    return status;
}

/* mean and variance per channel from x. */
static int batch_statistics(const wf_view *x, int compute, char *mean, char *var, wf_why *why)
{
    const int64_t c = x->dims[1], size = (int64_t)wf_red_size(compute);
    int status = 0;
    if (wf_view_numel(x) == 0) {
        for (int64_t i = 0; i < c; i++) {
            put(mean, compute, i, NAN);
            put(var, compute, i, NAN);
        }
        return 0;
    }
    const int64_t most = channels_at_once(x);
    for (int64_t i = 0; i < c && status == 0; i += most) {
        const wf_view some = some_channels(x, i, c - i < most ? c - i : most);
        status = statistics_of(&some, compute, mean + i * size, var + i * size);
    }
    return status != 0 ? wf_red_nomem(why, wf_view_numel(x) / WF_BLOCK * 8) : 0;
}

/* The statistics of other batches, in the compute type. */
static int batch_running(wf_exec *e, int compute)
{
    wf_packed m = {.data = NULL}, v = {.data = NULL};
    size_t bytes = (size_t)e->dst[1].dims[0] * wf_red_size(compute);
    int status = wf_pack(&m, &e->src[3], compute, -1, e->why);
    status = status != 0 ? status : wf_pack(&v, &e->src[4], compute, -1, e->why);
    if (status == 0) {
        memcpy(e->dst[1].data, m.data, bytes);
        memcpy(e->dst[2].data, v.data, bytes);
    }
    wf_unpack(&m);
    wf_unpack(&v);
    return status;
}

static double batch_eps(const wf_exec *e)
{
    return e->attr->n_flt > 0 ? e->attr->flt[0] : 1e-5;
}

/* y of the mean and variance in e's results. */
static int batch_y(wf_exec *e, int compute, const void *x, const void *w, const void *b)
{
    const wf_view *y = &e->dst[0];
    channel_job j = channels_of(y, compute);
    const size_t row = (size_t)(j.c * j.repeat) * j.size, bytes = j.repeat > 1 ? 5 * row : row;
    char *arrays = wf_scratch(bytes); /* rstd; and, repeated, mean, rstd, w, b */
    if (arrays == NULL) {
        return wf_red_nomem(e->why, (int64_t)bytes);
    }
    char *room = arrays + row;
    rstd_of_all(e->dst[2].data, batch_eps(e), compute, j.c, arrays);
    j.mean = put_channels(&j, &room, e->dst[1].data);
    j.rstd = put_channels(&j, &room, arrays);
    j.w = put_channels(&j, &room, w);
    j.b = put_channels(&j, &room, b);
    wf_row_job r = {.n = j.n,
                    .compute = compute,
                    .nin = 1,
                    .nout = 1,
                    .fn = batch_row,
                    .ctx = &j,
                    .nt_limit = INT64_MAX};
    r.rows = wf_view_numel(y) / j.n;
    r.in[0].data = x;
    r.in[0].dtype = e->src[0].dtype;
    r.out[0].data = y->data;
    r.out[0].dtype = y->dtype;
    const int status = run_channels(&r, e->why);
    wf_scratch_free(arrays, bytes);
    return status;
}

WF_EXEC_DECL(batch_norm)
{
    const wf_view *x = &e->src[0];
    int compute = wf_red_compute(x->dtype);
    int status = (e->attr->flags & WF_FLAG_TRAINING) != 0
                     ? batch_statistics(x, compute, e->dst[1].data, e->dst[2].data, e->why)
                     : batch_running(e, compute);
    if (status != 0 || wf_view_numel(x) == 0) {
        return status;
    }
    const wf_view from = in_order_of(&e->dst[0], x);
    wf_packed px = {.data = NULL}, w = {.data = NULL}, b = {.data = NULL};
    status = wf_pack(&px, &from, x->dtype, -1, e->why);
    status = status != 0 ? status : wf_pack(&w, &e->src[1], compute, -1, e->why);
    status = status != 0 ? status : wf_pack(&b, &e->src[2], compute, -1, e->why);
    status = status != 0 ? status : batch_y(e, compute, px.data, w.data, b.data);
    wf_unpack(&px);
    wf_unpack(&w);
    wf_unpack(&b);
    return status;
}

/* Of arrays `row` bytes apart, below, the last two for the channels of g and x. */
static int sums_of(const wf_view *g, const wf_view *x, int compute, char *arrays, size_t row)
{
    const unsigned axes = ((1u << x->rank) - 1u) & ~2u;
    wf_red_job j = {
        .op = WF_RED_SUM, .compute = compute, .axes = axes, .x = g, .out = arrays + 3 * row};
    const int status = wf_red_run(&j);
    j.map = WF_MAP_XHAT;
    j.x = x;
    j.y = g;
    j.p = arrays;
    j.q = arrays + row;
    j.out = arrays + 4 * row;
    return status != 0 ? status : wf_red_run(&j);
}

/* arrays[5][c]: mean, rstd, s = w * rstd, sum(g), sum(g * xhat); the last two become the means. */
static int batch_bwd_sums(wf_exec *e, int compute, char *arrays, const void *w)
{
    const wf_view *g = &e->src[0], *x = &e->src[1];
    int64_t c = x->dims[1];
    size_t row = (size_t)c * wf_red_size(compute);
    char *rstd = arrays + row, *s = arrays + 2 * row;
    char *da = arrays + 3 * row, *dc = arrays + 4 * row;
    int64_t count = c > 0 ? wf_view_numel(x) / c : 0;
    for (int64_t i = 0; i < c; i++) {
        double r = get(rstd, compute, i);
        double wi = w != NULL ? get(w, compute, i) : 1.0;
        put(s, compute, i, compute == WEFT_F64 ? wi * r : (double)((float)wi * (float)r));
    }
    memset(da, 0, 2 * row);
    if (count > 0) {
        const int64_t most = channels_at_once(x), size = (int64_t)wf_red_size(compute);
        int status = 0;
        for (int64_t i = 0; i < c && status == 0; i += most) {
            const wf_view some_x = some_channels(x, i, c - i < most ? c - i : most);
            const wf_view some_g = some_channels(g, i, some_x.dims[1]);
            status = sums_of(&some_g, &some_x, compute, arrays + i * size, row);
        }
        if (status != 0) {
            return wf_red_nomem(e->why, wf_view_numel(x) / WF_BLOCK * 8);
        }
    }
    const wf_red_kernels *k = wf_red_kernels_of(compute);
    k->store(e->dst[1].data, e->dst[1].dtype, dc, c);
    k->store(e->dst[2].data, e->dst[2].dtype, da, c);
    for (int64_t i = 0; i < c && count > 0; i++) {
        put(da, compute, i, quotient(get(da, compute, i), (double)count, compute));
        put(dc, compute, i, quotient(get(dc, compute, i), (double)count, compute));
    }
    return 0;
}

/* arrays as above. */
static int batch_bwd_dx(wf_exec *e, int compute, const char *arrays)
{
    const wf_view *dx = &e->dst[0];
    bool training = (e->attr->flags & WF_FLAG_TRAINING) != 0;
    channel_job j = channels_of(dx, compute);
    const size_t row = (size_t)j.c * j.size, wide = row * (size_t)j.repeat;
    const wf_view g = in_order_of(dx, &e->src[0]), x = in_order_of(dx, &e->src[1]);
    wf_packed pg = {.data = NULL}, px = {.data = NULL};
    const size_t bytes = j.repeat > 1 ? 6 * wide : wide;
    char *own = wf_scratch(bytes); /* zeros; and, repeated, the arrays */
    int status = own == NULL ? wf_red_nomem(e->why, (int64_t)bytes) : 0;
    status = status != 0 ? status : wf_pack(&pg, &g, g.dtype, -1, e->why);
    status = status != 0 ? status : wf_pack(&px, &x, x.dtype, -1, e->why);
    if (status == 0) {
        wf_row_job r = {.n = j.n,
                        .compute = compute,
                        .nin = 2,
                        .nout = 1,
                        .fn = batch_bwd_row,
                        .ctx = &j,
                        .nt_limit = INT64_MAX};
        char *room = own + wide;
        j.mean = put_channels(&j, &room, arrays);
        j.rstd = put_channels(&j, &room, arrays + row);
        j.s = put_channels(&j, &room, arrays + 2 * row);
        j.da = put_channels(&j, &room, arrays + 3 * row);
        j.dc = put_channels(&j, &room, arrays + 4 * row);
        if (!training) { /* dx = (g - 0) * s */
            j.mean = memset(own, 0, wide);
            j.rstd = j.s;
            r.nin = 1;
            r.fn = batch_row;
        }
        r.rows = wf_view_numel(dx) / j.n;
        r.in[0].data = pg.data;
        r.in[0].dtype = g.dtype;
        r.in[1].data = px.data;
        r.in[1].dtype = x.dtype;
        r.out[0].data = dx->data;
        r.out[0].dtype = dx->dtype;
        status = run_channels(&r, e->why);
    }
    wf_unpack(&pg);
    wf_unpack(&px);
    wf_scratch_free(own, bytes);
    return status;
}

WF_EXEC_DECL(batch_norm_bwd)
{
    const wf_view *x = &e->src[1];
    int compute = wf_red_compute(x->dtype);
    size_t row = (size_t)x->dims[1] * wf_red_size(compute);
    wf_packed w = {.data = NULL}, mean = {.data = NULL}, var = {.data = NULL};
    char *arrays = wf_scratch(5 * row);
    int status = arrays == NULL ? wf_red_nomem(e->why, (int64_t)(5 * row)) : 0;
    status = status != 0 ? status : wf_pack(&w, &e->src[2], compute, -1, e->why);
    status = status != 0 ? status : wf_pack(&mean, &e->src[3], compute, -1, e->why);
    status = status != 0 ? status : wf_pack(&var, &e->src[4], compute, -1, e->why);
    if (status == 0) {
        memcpy(arrays, mean.data, row);
        rstd_of_all(var.data, batch_eps(e), compute, x->dims[1], arrays + row);
        status = batch_bwd_sums(e, compute, arrays, w.data);
    }
    if (status == 0 && wf_view_numel(x) > 0) {
        status = batch_bwd_dx(e, compute, arrays);
    }
    wf_unpack(&w);
    wf_unpack(&mean);
    wf_unpack(&var);
    wf_scratch_free(arrays, 5 * row);
    return status;
}
