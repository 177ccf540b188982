/*
 * bench/bench_reduce.c -- reductions and row-wise ops beside the memory limit of their size.
 *
 *   bench_reduce [case]
 *
 * One JSON line a case, size and thread count: bytes moved, GB/s, the limit (the faster of plain and
 * non-temporal read or copy of the same operand) and their ratio. Limit and case take turns, so that a
 * machine that others use treats them alike; figures are medians of batches of at least 5 ms. gbps,
 * limit_gbps and ratio are by the wall clock; cpu_* (one thread only) by the thread's own CPU time, which
 * does not count what other processes took.
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

enum { BATCHES = 15, RUNS = 3 }; /* the runs: plain limit, non-temporal limit, case */

typedef struct clocks {
    double wall, cpu;
} clocks;

static double read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static clocks now(void)
{
    return (clocks){read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_THREAD_CPUTIME_ID)};
}

static double median(double *v)
{
    for (int i = 1; i < BATCHES; i++) {
        for (int k = i; k > 0 && v[k] < v[k - 1]; k--) {
            double t = v[k];
            v[k] = v[k - 1];
            v[k - 1] = t;
        }
    }
    return v[BATCHES / 2];
}

typedef struct run {
    void (*fn)(void *);
    void *arg;
    int calls;
    double wall[BATCHES], cpu[BATCHES]; /* seconds per call */
} run;

/* All runs in turns; runs without a function are skipped. */
static void take_turns(run *r)
{
    for (int b = -1; b < BATCHES; b++) {
        for (int k = 0; k < RUNS; k++) {
            if (r[k].fn == NULL) {
                continue;
            }
            r[k].fn(r[k].arg); /* finds its data where the run before left it */
            clocks t0 = now();
            int calls = b < 0 ? 1 : r[k].calls;
            for (int i = 0; i < calls; i++) {
                r[k].fn(r[k].arg);
            }
            clocks t1 = now();
            if (b < 0) {
                r[k].calls = (int)(0.005 / (t1.cpu - t0.cpu + 1e-9)) + 1;
            } else {
                r[k].wall[b] = (t1.wall - t0.wall) / calls;
                r[k].cpu[b] = (t1.cpu - t0.cpu) / calls;
            }
        }
    }
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

static const char *only; /* the case asked for, or NULL */

static void report(const char *name, bench_case *c, double bytes, const wf_view *a,
                   const wf_view *b)
{
    if (only != NULL && strcmp(only, name) != 0) {
        return;
    }
    size_t size = (size_t)wf_view_numel(a) * 4;
    limit plain = {.from = a->data, .to = b != NULL ? b->data : NULL, .bytes = size};
    limit stream = plain;
    stream.stream = 1;
    run r[RUNS] = {{.fn = run_limit, .arg = &plain},
                   {.fn = b != NULL ? run_limit : NULL, .arg = &stream},
                   {.fn = run_case, .arg = c}};
    take_turns(r);
    double moved = (double)size * (b != NULL ? 2.0 : 1.0);
    double wall = median(r[0].wall), cpu = median(r[0].cpu);
    if (b != NULL) {
        double w = median(r[1].wall), t = median(r[1].cpu);
        wall = w < wall ? w : wall;
        cpu = t < cpu ? t : cpu;
    }
    double case_wall = median(r[2].wall), case_cpu = median(r[2].cpu);
    printf("{\"bench\":\"reduce\",\"case\":\"%s\",\"size\":%zu,\"threads\":%d,\"bytes\":%.0f,"
           "\"gbps\":%.1f,\"limit_gbps\":%.1f,\"ratio\":%.2f",
           name, size, wf_num_threads(), bytes, bytes / case_wall * 1e-9, moved / wall * 1e-9,
           bytes / case_wall / (moved / wall));
    if (wf_num_threads() == 1) {
        printf(",\"cpu_gbps\":%.1f,\"cpu_limit_gbps\":%.1f,\"cpu_ratio\":%.2f,"
               "\"cpu_ns_per_element\":%.3f",
               bytes / case_cpu * 1e-9, moved / cpu * 1e-9, bytes / case_cpu / (moved / cpu),
               case_cpu / (double)wf_view_numel(a) * 1e9);
    }
    printf("}\n");
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

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    for (int threads = 1; threads <= 2; threads++) {
        wf_set_num_threads(threads);
        run_size(128, 1024);   /* 512 KiB: L2 */
        run_size(16384, 1024); /* 64 MiB: memory */
    }
    return 0;
}
