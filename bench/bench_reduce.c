/*
 * bench/bench_reduce.c -- reductions and row-wise ops beside the memory limit of their size.
 *
 * One JSON line a case: bytes moved, GB/s, the limit (the faster of plain and non-temporal read or copy
 * of the same bytes in the same run) and their ratio. Medians of batches of at least 10 ms.
 */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/alloc.h"
#include "eager/exec.h"
#include "eager/pool.h"

WF_EXEC_DECL(reduce);
WF_EXEC_DECL(softmax);
WF_EXEC_DECL(layer_norm);
WF_EXEC_DECL(layer_norm_bwd);
WF_EXEC_DECL(cross_entropy);

enum { BATCHES = 9 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds per call. */
static double timed(void (*fn)(void *), void *arg)
{
    double s[BATCHES];
    fn(arg);
    double t0 = now();
    fn(arg);
    double once = now() - t0;
    int calls = (int)(0.01 / (once + 1e-9)) + 1;
    for (int b = 0; b < BATCHES; b++) {
        t0 = now();
        for (int i = 0; i < calls; i++) {
            fn(arg);
        }
        s[b] = (now() - t0) / calls;
    }
    qsort(s, BATCHES, sizeof s[0], ascending);
    return s[BATCHES / 2];
}

/* -- the limit --------------------------------------------------------------------------------------- */

typedef struct limit {
    const char *from;
    char *to; /* NULL: read only */
    size_t bytes;
    int stream;
} limit;
static volatile float sink;

typedef float vec __attribute__((vector_size(64), aligned(64)));

__attribute__((target_clones("default", "avx2", "avx512f"))) static void read_part(const char *p,
                                                                                   size_t n)
{
    vec a[8] = {{0}};
    for (size_t i = 0; i + 512 <= n; i += 512) {
        for (int k = 0; k < 8; k++) {
            a[k] += *(const vec *)(const void *)(p + i + 64 * (size_t)k);
        }
    }
    for (int k = 1; k < 8; k++) {
        a[0] += a[k];
    }
    sink = a[0][0];
}
static void copy_part(const limit *l, size_t begin, size_t n)
{
    if (!l->stream) {
        memcpy(l->to + begin, l->from + begin, n);
        return;
    }
    for (size_t i = begin; i < begin + n; i += 16) {
        _mm_stream_ps((float *)(void *)(l->to + i),
                      _mm_load_ps((const float *)(const void *)(l->from + i)));
    }
    _mm_sfence();
}
static void limit_task(void *arg, int64_t begin, int64_t end)
{
    const limit *l = arg;
    size_t chunk = 1 << 17;
    for (int64_t i = begin; i < end; i++) {
        size_t at = (size_t)i * chunk, n = l->bytes - at < chunk ? l->bytes - at : chunk;
        if (l->to == NULL) {
            read_part(l->from + at, n);
        } else {
            copy_part(l, at, n);
        }
    }
}
static void run_limit(void *arg)
{
    const limit *l = arg;
    wf_parallel_for((int64_t)((l->bytes + (1 << 17) - 1) >> 17), 1, limit_task, arg);
}

/* -- cases ---------------------------------------------------------------------------------------------- */

typedef struct bench_case {
    wf_exec e;
    wf_exec_fn fn;
} bench_case;
static void run_case(void *arg)
{
    bench_case *c = arg;
    if (c->fn(&c->e) != 0) {
        fprintf(stderr, "a case failed: %s\n", c->e.why->rule);
        exit(1);
    }
}

static wf_view matrix(int64_t rows, int64_t n)
{
    wf_view v = {.dtype = WEFT_F32, .rank = 2, .dims = {rows, n}, .strides = {n, 1}};
    v.data = wf_alloc((size_t)(rows * n) * 4);
    if (v.data == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    for (int64_t i = 0; i < rows * n; i++) {
        ((float *)v.data)[i] = (float)(i * 7919 % 1000) * 0.004f - 2.0f;
    }
    return v;
}
static wf_view vector(int64_t n)
{
    wf_view v = matrix(1, n);
    v.rank = 1;
    v.dims[0] = n;
    v.strides[0] = 1;
    return v;
}

static void report(const char *name, bench_case *c, double bytes, const wf_view *a,
                   const wf_view *b)
{
    size_t size = (size_t)wf_view_numel(a) * 4;
    limit l = {.from = a->data, .to = b != NULL ? b->data : NULL, .bytes = size};
    double best = timed(run_limit, &l);
    if (b != NULL) {
        l.stream = 1;
        double t = timed(run_limit, &l);
        best = t < best ? t : best;
    }
    double gbps = bytes / timed(run_case, c) * 1e-9;
    double limit_gbps = (double)size * (b != NULL ? 2.0 : 1.0) / best * 1e-9;
    printf("{\"bench\":\"reduce\",\"case\":\"%s\",\"bytes\":%.0f,\"threads\":%d,\"gbps\":%.1f,"
           "\"limit_gbps\":%.1f,\"ratio\":%.2f}\n",
           name, bytes, wf_num_threads(), gbps, limit_gbps, gbps / limit_gbps);
    fflush(stdout);
}

static void run_size(int64_t rows, int64_t n)
{
    wf_view x = matrix(rows, n), g = matrix(rows, n), y = matrix(rows, n), w = vector(n),
            b = vector(n);
    wf_view mean = vector(rows), rstd = vector(rows), out = vector(rows), dw = vector(n),
            db = vector(n);
    wf_view target = matrix(1, 2 * rows);
    target.dtype = WEFT_I64;
    target.rank = 1;
    target.dims[0] = rows;
    target.strides[0] = 1;
    for (int64_t i = 0; i < rows; i++) {
        ((int64_t *)target.data)[i] = i % n;
    }
    int64_t axis[2] = {0, 1}, one = 1, ignore = -100;
    double eps = 1e-5, smooth = 0, size = (double)(rows * n) * 4;
    wf_attr inner = {.n_ints = 1, .ints = &axis[1]}, outer = {.n_ints = 1, .ints = &axis[0]};
    wf_attr norm = {.n_ints = 1, .ints = &one, .n_flt = 1, .flt = &eps};
    wf_attr loss = {.n_dyn = 1, .dyn = &ignore, .n_flt = 1, .flt = &smooth};
    wf_why why = {.code = 0};
    wf_view dst[3] = {out}, src[5] = {x};
    bench_case c = {
        .e = {.op = WF_OP_SUM, .nsrc = 1, .ndst = 1, .src = src, .dst = dst, .why = &why}};
    c.fn = wf_exec_reduce;
    c.e.attr = &inner;
    report("sum_inner", &c, size, &x, NULL);
    c.e.op = WF_OP_AMAX;
    report("max_inner", &c, size, &x, NULL);
    c.e.op = WF_OP_SUM;
    dst[0] = dw;
    c.e.attr = &outer;
    report("sum_outer", &c, size, &x, NULL);
    c.e.op = WF_OP_AMAX;
    report("max_outer", &c, size, &x, NULL);
    c.fn = wf_exec_softmax;
    c.e.op = WF_OP_SOFTMAX;
    c.e.attr = &inner;
    dst[0] = y;
    report("softmax", &c, 2 * size, &x, &y);
    c.fn = wf_exec_layer_norm;
    c.e.op = WF_OP_LAYER_NORM;
    c.e.attr = &norm;
    c.e.nsrc = 3;
    src[1] = w;
    src[2] = b;
    dst[1] = mean;
    dst[2] = rstd;
    report("layer_norm", &c, 2 * size, &x, &y);
    c.fn = wf_exec_layer_norm_bwd;
    c.e.op = WF_OP_LAYER_NORM_BWD;
    c.e.nsrc = 5;
    src[0] = g;
    src[1] = x;
    src[2] = mean;
    src[3] = rstd;
    src[4] = w;
    dst[1] = dw;
    dst[2] = db;
    report("layer_norm_bwd", &c, 3 * size, &x, &y);
    c.fn = wf_exec_cross_entropy;
    c.e.op = WF_OP_CROSS_ENTROPY;
    c.e.nsrc = 2;
    c.e.attr = &loss;
    src[0] = x;
    src[1] = target;
    dst[0] = out;
    dst[1] = rstd;
    report("cross_entropy", &c, size, &x, NULL);
    wf_view *all[] = {&x, &g, &y, &w, &b, &mean, &rstd, &out, &dw, &db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        wf_free(all[i]->data, (size_t)wf_view_numel(all[i]) * 4);
    }
    wf_free(target.data, (size_t)rows * 8);
}

int main(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        wf_set_num_threads(threads);
        run_size(128, 1024);   /* 512 KiB: L2 */
        run_size(16384, 1024); /* 64 MiB: memory */
    }
    return 0;
}
