/*
 * eager/scan.c -- cumsum and cumprod.
 *
 * Invariants: along the axis the scan is sequential; floats accumulate in f64 (whatever their dtype)
 * and every output is rounded once from the running f64; integers wrap. Nothing depends on tiling.
 */
#include "eager/reduce.h"

#include "eager/pool.h"

enum { SCAN_TILE = 1024, SCAN_TASK = 1 << 15 };

typedef struct scan_job {
    const wf_view *x;
    const wf_view *dst;
    const wf_red_kernels *k; /* of f64 or i64 */
    bool product, floats;
    int axis;
    int64_t n, inner, outer; /* of the contiguous result: [outer][n][inner] */
    int64_t tiles;           /* of inner */
} scan_job;

/* Offset in x of the element with axes before and after the scanned one at flat indices o and i. */
static int64_t offset(const scan_job *j, int64_t o, int64_t i)
{
    int64_t at = 0;
    for (int a = j->x->rank - 1; a > j->axis; a--) {
        at += i % j->x->dims[a] * j->x->strides[a];
        i /= j->x->dims[a];
    }
    for (int a = j->axis - 1; a >= 0; a--) {
        at += o % j->x->dims[a] * j->x->strides[a];
        o /= j->x->dims[a];
    }
    return at;
}

static const char *from(const scan_job *j, int64_t at)
{
    return (const char *)j->x->data + at * (int64_t)wf_dtype_size(j->x->dtype);
}

static char *to(const scan_job *j, int64_t at)
{
    return (char *)j->dst->data + at * (int64_t)wf_dtype_size(j->dst->dtype);
}

typedef union running {
    double f[SCAN_TILE];
    uint64_t u[SCAN_TILE];
} running;

/* v[i] becomes the running value; *last carries over between chunks (first: none yet). */
static void scan_chunk(const scan_job *j, running *v, running *last, bool first, int64_t n)
{
    if (j->floats) {
        double a = first ? v->f[0] : j->product ? last->f[0] * v->f[0] : last->f[0] + v->f[0];
        v->f[0] = a;
        for (int64_t i = 1; i < n; i++) {
            a = j->product ? a * v->f[i] : a + v->f[i];
            v->f[i] = a;
        }
        last->f[0] = a;
    } else {
        uint64_t a = first ? v->u[0] : j->product ? last->u[0] * v->u[0] : last->u[0] + v->u[0];
        v->u[0] = a;
        for (int64_t i = 1; i < n; i++) {
            a = j->product ? a * v->u[i] : a + v->u[i];
            v->u[i] = a;
        }
        last->u[0] = a;
    }
}

/* One line along the axis. */
static void scan_line(const scan_job *j, int64_t line)
{
    running v, last;
    int64_t step = j->x->strides[j->axis], at = offset(j, line / j->inner, line % j->inner);
    for (int64_t r = 0; r < j->n; r += SCAN_TILE) {
        int64_t m = j->n - r < SCAN_TILE ? j->n - r : SCAN_TILE;
        j->k->load(&v, from(j, at + r * step), j->x->dtype, step, m);
        scan_chunk(j, &v, &last, r == 0, m);
        if (j->inner == 1) {
            j->k->store(to(j, line * j->n + r), j->dst->dtype, &v, m);
            continue;
        }
        int64_t out = (line / j->inner * j->n + r) * j->inner + line % j->inner;
        for (int64_t i = 0; i < m; i++) {
            j->k->store(to(j, out + i * j->inner), j->dst->dtype, &v.u[i], 1);
        }
    }
}

static void lines_task(void *arg, int64_t begin, int64_t end)
{
    for (int64_t line = begin; line < end; line++) {
        scan_line(arg, line);
    }
}

/* A tile of contiguous lines side by side: one row of the axis at a time. */
static void tiles_task(void *arg, int64_t begin, int64_t end)
{
    const scan_job *j = arg;
    running v, sum;
    const void *const row[1] = {&v};
    for (int64_t t = begin; t < end; t++) {
        int64_t o = t / j->tiles, c = t % j->tiles * SCAN_TILE;
        int64_t m = j->inner - c < SCAN_TILE ? j->inner - c : SCAN_TILE;
        int64_t step = j->x->strides[j->axis], at = offset(j, o, c);
        for (int64_t r = 0; r < j->n; r++) {
            j->k->load(&v, from(j, at + r * step), j->x->dtype, 1, m);
            j->k->rows[j->product ? WF_RED_PROD : WF_RED_SUM](&sum, row, 1, m, r == 0);
            j->k->store(to(j, (o * j->n + r) * j->inner + c), j->dst->dtype, &sum, m);
        }
    }
}

/* The axes after the scanned one are contiguous in x. */
static bool inner_contiguous(const wf_view *x, int axis)
{
    int64_t expect = 1;
    for (int i = x->rank - 1; i > axis; i--) {
        if (x->dims[i] != 1 && x->strides[i] != expect) {
            return false;
        }
        expect *= x->dims[i];
    }
    return true;
}

/* Do lines along the axis lie in an order that uses few of a cache line's elements, or are they written so? */
static bool is_apart(const wf_view *x, const scan_job *j)
{
    const int64_t step = x->strides[j->axis] * (int64_t)wf_dtype_size(x->dtype);
    return j->inner > 1 || step >= 64 || step <= -64;
}

/* Is every value of x's type one of dst's? */
static bool holds(const wf_view *dst, const wf_view *x)
{
    return dst->dtype == x->dtype || (dst->dtype == WEFT_I64 && (WF_BIT(x->dtype) & WF_DT_F) == 0);
}

WF_EXEC_DECL(scan)
{
    const wf_view *x = &e->src[0];
    scan_job j = {.x = x, .dst = &e->dst[0], .axis = (int)e->attr->ints[0], .inner = 1, .outer = 1};
    j.product = e->op == WF_OP_CUMPROD;
    j.floats = (WF_BIT(e->dst[0].dtype) & WF_DT_F) != 0;
    j.k = wf_red_kernels_of(j.floats ? WEFT_F64 : WEFT_I64);
    j.n = x->dims[j.axis];
    for (int i = 0; i < x->rank; i++) {
        j.outer *= i < j.axis ? x->dims[i] : 1;
        j.inner *= i > j.axis ? x->dims[i] : 1;
    }
    if (j.n * j.outer * j.inner == 0) {
        return 0;
    }
    const bool tiles = j.inner >= 8 && inner_contiguous(x, j.axis);
    if (!tiles && is_apart(x, &j) && holds(j.dst, x)) { /* brought together, scanned in place */
        wf_copy(j.dst, x);
        j.x = x = j.dst;
    }
    if (j.inner >= 8 && inner_contiguous(x, j.axis)) {
        j.tiles = (j.inner + SCAN_TILE - 1) / SCAN_TILE;
        int64_t cost = j.n * (j.inner < SCAN_TILE ? j.inner : SCAN_TILE);
        wf_parallel_for(j.outer * j.tiles, SCAN_TASK / cost + 1, tiles_task, &j);
    } else {
        wf_parallel_for(j.outer * j.inner, SCAN_TASK / j.n + 1, lines_task, &j);
    }
    return 0;
}
