/*
 * eager/norm_bwd.c -- gradients of layer_norm and rms_norm in one pass over the rows.
 *
 * dweight and dbias are canonical sums over rows (docs/reductions.md): in a block of 4096 rows, lane l adds
 * rows l, l + 64, ... and lanes are combined by halving. Rows are visited lane by lane in the order of
 * that tree, so that a task needs one pair of sums per level; dx of a row is computed on the same visit.
 * Rows that are too long for that give dx first, then the sums in tiles of columns; where the sums are not wanted
 * (WF_FLAG_DX_ONLY) that is all. Weights of channels (WF_FLAG_CHANNELS) have sums of their own: over the values of a
 * channel in every sample, block by block. Nothing of the size of an operand is allocated, but where a channel has few elements
 * or an operand of another type than the compute type has few rows.
 *
 * Invariant: tasks depend on shape only; every way gives the bits of the composition.
 */
#include "eager/rows.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"

enum {
    FUSED_BYTES = 64 << 10, /* longest row whose sums are kept on the way */
    TILE_BYTES = 4096,      /* of longer ones */
    AHEAD = 2048,
    WANTED_TASKS = 8,
    TASK_ELEMENTS = 1 << 15,
    LONG_CHANNEL = 4 * WF_LANES,
    ROWS_BYTES =
        2 << 20 /* aim for converted rows of all tasks together: each task writes its own */
};

typedef struct backward {
    const wf_row_kernels *k;
    const wf_red_kernels *convert;
    int compute, g_dtype, x_dtype, dx_dtype;
    int64_t size;                         /* of a compute value */
    const char *g, *x, *mean, *rstd, *w;  /* mean: layer_norm; w may be NULL */
    char *dx;                             /* NULL: the sums alone */
    int64_t rows, n, tile, tiles, blocks; /* tile: columns a task visits */
    int64_t classes;                      /* tasks that share the lanes of a block */
    int64_t sums;                         /* 2: dweight and dbias; 1: dweight */
    int nt;
    char *parts;    /* [blocks][classes][sums][n] */
    char *scratch;  /* `per_task` bytes each */
    int64_t levels; /* of the tree below a class */
    int64_t per_task;
    int64_t groups, c, each; /* WF_FLAG_CHANNELS: a row is c channels of `each` values */
    int64_t converted;       /* operands of another type than the compute type */
} backward;

typedef struct visit {
    const backward *j;
    int64_t row0, rows; /* of the block */
    int64_t c0, width;
    char *levels, *buffers;
    int64_t order[WF_LANES]; /* lanes as they will be visited */
    int64_t count, at;
} visit;

static int64_t esize(int dtype)
{
    return (int64_t)wf_dtype_size(dtype);
}

/* Asks for a row to come of an operand, or a result, that is converted: the kernel sees its copy only. */
__attribute__((always_inline)) static inline void ask_for(const char *row, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(row + i);
    }
}

/* Adds row r of the block to the sums, or starts them; writes its dx. `next` is a row to come. */
static void visit_row(visit *v, int64_t r, int64_t next, char *dw, char *db, int init)
{
    const backward *j = v->j;
    int64_t row = v->row0 + r, first = row * j->n + v->c0, bytes = v->width * j->size;
    const char *g = j->g + first * esize(j->g_dtype), *x = j->x + first * esize(j->x_dtype);
    char *to = j->dx != NULL ? j->dx + first * esize(j->dx_dtype) : NULL, *dx = to;
    const int64_t ahead = (next - r) * j->n;
    if (j->g_dtype != j->compute) {
        ask_for(g + ahead * esize(j->g_dtype), v->width * esize(j->g_dtype));
        j->convert->load(v->buffers, g, j->g_dtype, 1, v->width);
        g = v->buffers;
    }
    if (j->x_dtype != j->compute) {
        ask_for(x + ahead * esize(j->x_dtype), v->width * esize(j->x_dtype));
        j->convert->load(v->buffers + bytes, x, j->x_dtype, 1, v->width);
        x = v->buffers + bytes;
    }
    if (to != NULL && j->dx_dtype != j->compute) {
        ask_for(to + ahead * esize(j->dx_dtype), v->width * esize(j->dx_dtype));
        dx = v->buffers + 2 * bytes;
    }
    j->k->norm_bwd_sums(dx, dw, db, g, x, j->w, v->width,
                        j->mean != NULL ? j->mean + row * j->size : NULL, j->rstd + row * j->size,
                        ahead, init, j->nt);
    if (dx != to) {
        j->convert->store(to, j->dx_dtype, dx, v->width);
    }
}

/* The row to ask memory for while row r of lane l is visited: about AHEAD bytes further on, as rows of a lane are too far
 * apart for the processor to see where it goes. `after`: the lane behind this one. */
static int64_t row_ahead(const visit *v, int64_t l, int64_t r, int64_t after)
{
    const int64_t bytes = v->width * v->j->size, depth = bytes < AHEAD ? AHEAD / bytes : 1;
    const int64_t next = r + depth * WF_LANES;
    if (next < v->rows) {
        return next;
    }
    const int64_t past = (next - l) / WF_LANES - (v->rows - l + WF_LANES - 1) / WF_LANES;
    return after + past * WF_LANES < v->rows ? after + past * WF_LANES : after;
}

static char *second(const visit *v, char *sums, int64_t distance)
{
    return v->j->sums > 1 ? sums + distance * v->j->size : NULL;
}

/* node(step, l) = node(2 step, l) + node(2 step, l + step); lanes without rows are left out. The two
 * sums of a node are `distance` values apart. */
static void visit_node(visit *v, int64_t step, int64_t l, int64_t level, char *sums,
                       int64_t distance)
{
    const backward *j = v->j;
    if (step >= WF_LANES || l + step >= v->rows) {
        v->at++;
        int64_t after = v->at < v->count ? v->order[v->at] : l;
        for (int64_t r = l; r < v->rows; r += WF_LANES) {
            visit_row(v, r, row_ahead(v, l, r, after), sums, second(v, sums, distance), r == l);
        }
        return;
    }
    char *right = v->levels + level * j->sums * v->width * j->size;
    visit_node(v, 2 * step, l, level + 1, sums, distance);
    visit_node(v, 2 * step, l + step, level + 1, right, v->width);
    const void *add[1] = {right};
    j->convert->rows[WF_RED_SUM](sums, add, 1, v->width, 0);
    if (j->sums > 1) {
        add[0] = second(v, right, v->width);
        j->convert->rows[WF_RED_SUM](second(v, sums, distance), add, 1, v->width, 0);
    }
}

static void order_lanes(visit *v, int64_t step, int64_t l)
{
    if (step >= WF_LANES || l + step >= v->rows) {
        v->order[v->count++] = l;
        return;
    }
    order_lanes(v, 2 * step, l);
    order_lanes(v, 2 * step, l + step);
}

static void backward_task(void *arg, int64_t begin, int64_t end)
{
    const backward *j = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t class = i % j->classes, block = i / j->classes % j->blocks;
        visit v = {.j = j, .row0 = block * WF_BLOCK, .c0 = i / j->classes / j->blocks * j->tile};
        v.width = j->n - v.c0 < j->tile ? j->n - v.c0 : j->tile;
        v.rows = j->rows - v.row0 < WF_BLOCK ? j->rows - v.row0 : WF_BLOCK;
        v.levels = j->scratch + begin * j->per_task;
        v.buffers = v.levels + j->levels * j->sums * j->tile * j->size;
        order_lanes(&v, j->classes, class);
        char *sums =
            j->parts +
            ((i / j->classes % j->blocks * j->classes + class) * j->sums * j->n + v.c0) * j->size;
        visit_node(&v, j->classes, class, 0, sums, j->n);
    }
    if (j->nt) {
        __builtin_ia32_sfence();
    }
}

/* The sums of the classes, then of the blocks: the canonical order again. out: [sums][n]. */
static int fold(const backward *j, char *out)
{
    int64_t values = j->sums * j->n, bytes = values * j->size;
    for (int64_t b = 0; b < j->blocks; b++) {
        char *parts = j->parts + b * j->classes * bytes;
        int64_t rows = j->rows - b * WF_BLOCK; /* classes behind the last row are empty */
        for (int64_t h = j->classes / 2; h >= 1; h /= 2) {
            for (int64_t c = 0; c < h && c + h < rows; c++) {
                const void *upper[1] = {parts + (c + h) * bytes};
                j->convert->rows[WF_RED_SUM](parts + c * bytes, upper, 1, values, 0);
            }
        }
    }
    if (j->blocks == 1) {
        memcpy(out, j->parts, (size_t)bytes);
        return 0;
    }
    wf_view v = {.data = j->parts, .dtype = (uint8_t)j->compute, .rank = 2};
    v.dims[0] = j->blocks;
    v.dims[1] = values;
    v.strides[0] = values * j->classes;
    v.strides[1] = 1;
    wf_red_job job = {.op = WF_RED_SUM, .compute = j->compute, .axes = 1, .x = &v, .out = out};
    return wf_red_run(&job);
}

/* dx alone: nobody wants the sums, or rows are too long to keep them. */
static void long_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const backward *j = ctx;
    int64_t at = row * j->size;
    j->k->norm_bwd(out[0], in[0], in[1], j->w, j->n, j->mean != NULL ? j->mean + at : NULL,
                   j->rstd + at, nt);
}
static void channels_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const backward *j = ctx;
    const int64_t at = row * j->size;
    const void *g = in[0];
    if (j->w != NULL) {
        j->k->scale_runs(out[0], g, j->w + row % j->groups * j->c * j->size, j->n, j->each);
        g = out[0];
    }
    j->k->norm_bwd(out[0], g, in[1], NULL, j->n, j->mean + at, j->rstd + at, nt);
}
/* Weights of channels of a few elements become one for every element. */
static int long_rows(backward *j, wf_why *why)
{
    backward of = *j;
    const bool few = j->groups > 0 && j->w != NULL && j->each > 1 && j->each < WF_FEW_EACH;
    const size_t spread = few ? (size_t)(j->groups * j->n * j->size) : 0;
    wf_row_job r = {.rows = j->rows, .n = j->n, .compute = j->compute, .nin = 2, .nout = 1};
    j->dx = NULL;
    if (few) {
        of.w = wf_rows_spread(j->w, 1.0, j->compute, j->groups * j->c, j->each);
        of.c = j->n;
        of.each = 1;
        if (of.w == NULL) {
            return wf_red_nomem(why, (int64_t)spread);
        }
    }
    r.in[0].data = j->g;
    r.in[0].dtype = j->g_dtype;
    r.in[1].data = j->x;
    r.in[1].dtype = j->x_dtype;
    r.out[0].data = of.dx;
    r.out[0].dtype = j->dx_dtype;
    r.nt_limit = j->groups && j->w != NULL ? 0 : INT64_MAX; /* g * w is kept where dx will be */
    r.fn = j->groups ? channels_row : long_row;
    r.ctx = &of;
    const int status = wf_rows_run(&r, why);
    if (few) {
        wf_scratch_free((void *)(uintptr_t)of.w, spread);
    }
    return status;
}

/* Tasks by shape: blocks of rows, shared by classes of lanes while that makes few tasks. */
static void plan(backward *j)
{
    int64_t rows = j->rows < WF_BLOCK ? j->rows : WF_BLOCK, row_bytes = j->n * j->size;
    j->blocks = (j->rows + WF_BLOCK - 1) / WF_BLOCK;
    j->tile = j->dx != NULL ? j->n : TILE_BYTES / j->size;
    j->tiles = (j->n + j->tile - 1) / j->tile;
    j->classes = 1;
    while (j->blocks * j->tiles * j->classes < WANTED_TASKS && j->classes < WF_LANES / 2 &&
           rows / j->classes * j->tile >= 2 * TASK_ELEMENTS && rows / j->classes >= 4) {
        j->classes *= 2;
    }
    j->levels = 0;
    for (int64_t step = j->classes; step < WF_LANES; step *= 2) {
        j->levels++;
    }
    j->per_task = (j->levels * j->sums + 3) * j->tile * j->size;
    j->nt = j->dx != NULL && j->dx_dtype == j->compute && row_bytes % 64 == 0 &&
            (uintptr_t)j->dx % 64 == 0 && j->rows * row_bytes > WF_STREAM_BYTES;
}

/* dx, and the sums in compute type to out. */
static int run(backward *j, char *out, wf_why *why)
{
    int status = 0;
    if (j->n * j->size > FUSED_BYTES) {
        status = long_rows(j, why);
    }
    plan(j);
    int64_t tasks = j->tiles * j->blocks * j->classes;
    size_t parts = (size_t)(j->blocks * j->classes * j->sums * j->n * j->size);
    size_t scratch = (size_t)(tasks * j->per_task);
    j->parts = wf_scratch(parts);
    j->scratch = wf_scratch(scratch);
    if (status == 0 && (j->parts == NULL || j->scratch == NULL)) {
        status = wf_red_nomem(why, (int64_t)(parts + scratch));
    }
    if (status == 0) {
        int64_t rows = (j->rows < WF_BLOCK ? j->rows : WF_BLOCK) / j->classes;
        int64_t cost = rows * j->tile > 0 ? rows * j->tile : 1;
        wf_parallel_for(tasks, (TASK_ELEMENTS + cost - 1) / cost, backward_task, j);
        status = fold(j, out) != 0 ? wf_red_nomem(why, j->sums * j->n * j->size) : 0;
    }
    wf_scratch_free(j->scratch, scratch);
    wf_scratch_free(j->parts, parts);
    return status;
}

/* The sums, allocated and rounded to their results. */
static int run_sums(wf_exec *e, backward *j)
{
    size_t one = (size_t)(j->n * j->size), bytes = (size_t)j->sums * one;
    char *out = wf_scratch(bytes);
    if (out == NULL) {
        return wf_red_nomem(e->why, (int64_t)bytes);
    }
    int status = 0;
    if (j->rows == 0) {
        memset(out, 0, bytes);
    } else {
        status = run(j, out, e->why);
    }
    for (int s = 0; s < (int)j->sums && status == 0; s++) {
        wf_view *dst = &e->dst[1 + s];
        j->convert->store(dst->data, dst->dtype, out + (size_t)s * one, j->n);
    }
    wf_scratch_free(out, bytes);
    return status;
}

/* -- weights of channels ----------------------------------------------------------------------------------- */

/* Values [at, at + n) of channel ch over all samples, n <= WF_BLOCK: g * xhat to t, and g, to `own` or as it lies. */
static const char *channel_block(const backward *j, int64_t ch, int64_t at, int64_t n, char *t,
                                 char *own)
{
    const bool whole = j->g_dtype == j->compute && at / j->each == (at + n - 1) / j->each;
    const char *terms = own;
    for (int64_t i = 0, run; i < n; i += run) {
        const int64_t sample = (at + i) / j->each, off = (at + i) % j->each;
        const int64_t from = (sample * j->groups * j->c + ch) * j->each + off;
        const int64_t row = (sample * j->groups + ch / j->c) * j->size;
        run = n - i < j->each - off ? n - i : j->each - off;
        const char *g = j->g + from * esize(j->g_dtype), *x = j->x + from * esize(j->x_dtype);
        char *to = t + i * j->size;
        if (whole) {
            terms = g;
        } else {
            j->convert->load(own + i * j->size, g, j->g_dtype, 1, run);
            g = own + i * j->size;
        }
        if (j->x_dtype != j->compute) {
            j->convert->load(to, x, j->x_dtype, 1, run);
            x = to;
        }
        j->convert->map(WF_MAP_XHAT, to, x, g, j->mean + row, j->rstd + row, 0, run);
    }
    return terms;
}

/* Channels [begin, end): parts holds both sums of each of them. */
static void channels_task(void *arg, int64_t begin, int64_t end)
{
    const backward *j = arg;
    const int64_t n = j->rows / j->groups * j->each;
    _Alignas(64) char t[WF_BLOCK * sizeof(double)], own[WF_BLOCK * sizeof(double)];
    char *dw = j->scratch + begin / j->tile * j->per_task, *db = dw + j->blocks * j->size;
    for (int64_t ch = begin; ch < end; ch++) {
        for (int64_t b = 0; b < j->blocks; b++) {
            const int64_t at = b * WF_BLOCK, left = n - at < WF_BLOCK ? n - at : WF_BLOCK;
            const char *g = channel_block(j, ch, at, left, t, own);
            j->convert->run[WF_RED_SUM](dw + b * j->size, t, left);
            j->convert->run[WF_RED_SUM](db + b * j->size, g, left);
        }
        j->convert->run[WF_RED_SUM](j->parts + ch * j->size, dw, j->blocks);
        j->convert->run[WF_RED_SUM](j->parts + (j->groups * j->c + ch) * j->size, db, j->blocks);
    }
}

static void xhat_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const backward *j = ctx;
    const int64_t at = row * j->size;
    (void)nt;
    j->convert->map(WF_MAP_XHAT, out[0], in[1], in[0], j->mean + at, j->rstd + at, 0, j->n);
}

/* Both sums of channels of a few elements each, of which blocks would have thousands of parts: g * xhat is stored first. */
static int few_sums(const backward *j, wf_why *why)
{
    const int64_t channels = j->groups * j->c, all = j->rows * j->n;
    char *t = wf_scratch((size_t)(all * j->size));
    if (t == NULL) {
        return wf_red_nomem(why, all * j->size);
    }
    wf_row_job r = {.rows = j->rows,
                    .n = j->n,
                    .compute = j->compute,
                    .nin = 2,
                    .nout = 1,
                    .in = {{j->g, j->g_dtype}, {j->x, j->x_dtype}},
                    .out = {{t, j->compute}},
                    .fn = xhat_row,
                    .ctx = (void *)(uintptr_t)j};
    int status = wf_rows_run(&r, why);
    wf_view v = {.data = t,
                 .dtype = (uint8_t)j->compute,
                 .rank = 3,
                 .dims = {j->rows / j->groups, channels, j->each},
                 .strides = {channels * j->each, j->each, 1}};
    wf_red_job job = {.op = WF_RED_SUM, .compute = j->compute, .axes = 5, .x = &v, .out = j->parts};
    for (int s = 0; s < 2 && status == 0; s++) {
        status = wf_red_run(&job) != 0 ? wf_red_nomem(why, all * j->size) : 0;
        v.data = (void *)(uintptr_t)j->g;
        v.dtype = (uint8_t)j->g_dtype;
        job.out = j->parts + channels * j->size;
    }
    wf_scratch_free(t, (size_t)(all * j->size));
    return status;
}

/* A group of channels as it is visited: rows of the compute type, and scratch of its own. */
typedef struct group {
    const char *g, *x;
    char *rows;  /* of those of g, x and dx that are of another type */
    char *lanes; /* [channels of the task][2][64] */
    char *sums;  /* [channels of the task][2][blocks] */
} group;

/* dx of a row, and g and x in the compute type. */
static void visit_group(const backward *j, group *v, int64_t row)
{
    const int64_t bytes = j->n * j->size, at = row * j->n;
    char *to = j->dx + at * esize(j->dx_dtype), *dx = to, *row_of = v->rows;
    void *out[1];
    v->g = j->g + at * esize(j->g_dtype);
    v->x = j->x + at * esize(j->x_dtype);
    if (j->g_dtype != j->compute) {
        wf_rows_load(j->convert, row_of, v->g, j->g_dtype, j->n);
        v->g = row_of;
        row_of += bytes;
    }
    if (j->x_dtype != j->compute) {
        wf_rows_load(j->convert, row_of, v->x, j->x_dtype, j->n);
        v->x = row_of;
        row_of += bytes;
    }
    if (j->dx_dtype != j->compute) {
        dx = row_of;
    }
    out[0] = dx;
    channels_row((void *)(uintptr_t)j, row, (const void *const[]){v->g, v->x}, out, 0);
    if (dx != to) {
        j->convert->store(to, j->dx_dtype, dx, j->n);
    }
}

/* Both lanes of a block that begins. */
static void no_lanes(int compute, void *lanes)
{
    for (int i = 0; i < 2 * WF_LANES; i++) {
        if (compute == WEFT_F64) {
            ((double *)lanes)[i] = -0.0;
        } else {
            ((float *)lanes)[i] = -0.0f;
        }
    }
}

/* The sums of values [at, at + each) of the channel `ch` of the task, which is number k of the row that is visited. */
static void add_channel(const backward *j, const group *v, int64_t row, int64_t k, int64_t ch,
                        int64_t at)
{
    const int64_t end = at + j->each, last = j->rows / j->groups * j->each;
    char *dw = v->lanes + ch * 2 * WF_LANES * j->size, *db = dw + WF_LANES * j->size;
    char *sums = v->sums + ch * 2 * j->blocks * j->size;
    const char *g = v->g + k * j->each * j->size, *x = v->x + k * j->each * j->size;
    while (at < end) {
        const int64_t into = at % WF_BLOCK, room = WF_BLOCK - into;
        const int64_t n = end - at < room ? end - at : room, b = at / WF_BLOCK;
        if (into == 0) {
            no_lanes(j->compute, dw);
        }
        j->k->norm_lanes(dw, db, g, x, j->mean + row * j->size, j->rstd + row * j->size, n,
                         into % WF_LANES);
        at += n;
        g += n * j->size;
        x += n * j->size;
        if (at % WF_BLOCK == 0 || at == last) {
            j->convert->run[WF_RED_SUM](sums + b * j->size, dw, WF_LANES);
            j->convert->run[WF_RED_SUM](sums + (j->blocks + b) * j->size, db, WF_LANES);
        }
    }
}

/* Groups [begin, end) of every sample, a row while it is in a cache. */
static void groups_task(void *arg, int64_t begin, int64_t end)
{
    const backward *j = arg;
    group v = {.rows = j->scratch + begin / j->tile * j->per_task};
    v.lanes = v.rows + j->converted * j->n * j->size;
    v.sums = v.lanes + j->tile * j->c * 2 * WF_LANES * j->size;
    for (int64_t row = begin; row < j->rows; row += j->groups - (end - begin)) {
        for (int64_t i = begin; i < end; i++, row++) {
            visit_group(j, &v, row);
            for (int64_t k = 0; k < j->c; k++) {
                add_channel(j, &v, row, k, (i - begin) * j->c + k, row / j->groups * j->each);
            }
        }
    }
    for (int64_t ch = begin * j->c, i = 0; ch < end * j->c; ch++, i += 2 * j->blocks) {
        j->convert->run[WF_RED_SUM](j->parts + ch * j->size, v.sums + i * j->size, j->blocks);
        j->convert->run[WF_RED_SUM](j->parts + (j->groups * j->c + ch) * j->size,
                                    v.sums + (i + j->blocks) * j->size, j->blocks);
    }
}

/* How many units (groups if `once`, else channels) a task has, and its scratch. n: values of a channel. */
static void plan_channels(backward *j, int64_t units, int64_t n, bool once)
{
    j->blocks = (n + WF_BLOCK - 1) / WF_BLOCK;
    j->tile = TASK_ELEMENTS / (once ? n * j->c : n) + 1;
    j->per_task = 2 * j->blocks;
    if (once) {
        j->converted =
            (j->g_dtype != j->compute) + (j->x_dtype != j->compute) + (j->dx_dtype != j->compute);
        const int64_t row = j->converted * j->n * j->size, fit = row > 0 ? ROWS_BYTES / row : units;
        const int64_t most = fit > WANTED_TASKS ? fit : WANTED_TASKS;
        const int64_t least = (units + most - 1) / most;
        j->tile = j->tile > least ? j->tile : least;
        j->tile = j->tile < units ? j->tile : units;
        j->per_task = j->converted * j->n + j->tile * j->c * 2 * (WF_LANES + j->blocks);
    }
    j->per_task = (j->per_task * j->size + 63) / 64 * 64;
}

/* dx, dweight and dbias of WF_FLAG_CHANNELS: sums while a row is in a cache, where there are groups enough for tasks and channels
 * are whole rounds of lanes or so many that it costs little to take lanes up where the sample before left off; else dx, and what is
 * read again for the sums. */
static int run_channels(wf_exec *e, backward *j)
{
    const int64_t channels = j->groups * j->c, n = j->rows > 0 ? j->rows / j->groups * j->each : 0;
    const size_t parts = (size_t)(2 * channels * j->size);
    const bool once = n > 0 && (j->each % WF_LANES == 0 || j->each >= LONG_CHANNEL) &&
                      j->groups * 2 >= WANTED_TASKS;
    const bool few = j->each < WF_FEW_EACH;
    const int64_t units = once ? j->groups : channels;
    size_t scratch = 0;
    int status = n > 0 && !once ? long_rows(j, e->why) : 0;
    if (n > 0 && !few) {
        plan_channels(j, units, n, once);
        scratch = (size_t)((units + j->tile - 1) / j->tile * j->per_task);
        j->scratch = wf_scratch(scratch);
    }
    j->parts = wf_scratch(parts);
    if (status == 0 && (j->parts == NULL || (scratch > 0 && j->scratch == NULL))) {
        status = wf_red_nomem(e->why, (int64_t)(parts + scratch));
    }
    if (status == 0) {
        memset(j->parts, 0, parts);
        if (n > 0 && few) {
            status = few_sums(j, e->why);
        } else if (n > 0) {
            wf_parallel_for(units, j->tile, once ? groups_task : channels_task, j);
        }
        for (int s = 0; s < 2 && status == 0; s++) {
            wf_view *dst = &e->dst[1 + s];
            j->convert->store(dst->data, dst->dtype, j->parts + s * channels * j->size, channels);
        }
    }
    wf_scratch_free(j->parts, parts);
    wf_scratch_free(j->scratch, scratch);
    return status;
}

static int run_norm_bwd(wf_exec *e, bool center)
{
    enum { G, X, MEAN, RSTD, W, OPERANDS };
    int at_rstd = center ? 3 : 2, compute = wf_red_compute(e->src[1].dtype);
    const wf_view *of[OPERANDS] = {&e->src[0], &e->src[1], center ? &e->src[2] : NULL,
                                   &e->src[at_rstd],
                                   e->nsrc > at_rstd + 1 ? &e->src[at_rstd + 1] : NULL};
    wf_packed p[OPERANDS];
    memset(p, 0, sizeof p);
    int status = 0;
    for (int i = 0; i < OPERANDS && status == 0; i++) {
        if (of[i] != NULL) {
            status = wf_pack(&p[i], of[i], i <= X ? of[i]->dtype : compute, -1, e->why);
        }
    }
    backward j = {.k = wf_row_kernels_of(compute), .convert = wf_red_kernels_of(compute)};
    j.compute = compute;
    j.size = (int64_t)wf_red_size(compute);
    j.g_dtype = e->src[0].dtype;
    j.x_dtype = e->src[1].dtype;
    j.dx_dtype = e->dst[0].dtype;
    j.g = p[G].data;
    j.x = p[X].data;
    j.mean = p[MEAN].data;
    j.rstd = p[RSTD].data;
    j.w = p[W].data;
    j.dx = e->dst[0].data;
    j.rows = wf_view_numel(&e->src[at_rstd]);
    const bool only = (e->attr->flags & WF_FLAG_DX_ONLY) != 0;
    const bool channels = e->attr->flags & WF_FLAG_CHANNELS;
    j.n = !only && !channels ? wf_view_numel(&e->dst[1])
          : j.rows > 0       ? wf_view_numel(of[X]) / j.rows
                             : 0;
    j.sums = center ? 2 : 1;
    if (channels) {
        const int64_t *d = of[X]->dims + of[X]->rank;
        j.groups = d[-3];
        j.c = d[-2];
        j.each = d[-1];
    }
    if (status == 0 && (channels && !only ? j.groups * j.c > 0 : j.n > 0)) {
        status = only ? long_rows(&j, e->why) : channels ? run_channels(e, &j) : run_sums(e, &j);
    }
    for (int i = 0; i < OPERANDS; i++) {
        wf_unpack(&p[i]);
    }
    return status;
}

WF_EXEC_DECL(layer_norm_bwd)
{
    return run_norm_bwd(e, true);
}

WF_EXEC_DECL(rms_norm_bwd)
{
    return run_norm_bwd(e, false);
}
