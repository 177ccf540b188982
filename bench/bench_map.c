/*
 * bench/bench_map.c -- elementwise kernels, casts and transposes beside the machine's copy bandwidth.
 *
 *   bench_map [case] [bytes per operand ...]
 *
 * One JSON line per case, size and thread count:
 *   {"bench":"map","case":"exp","bytes":...,"threads":1,"gbps":...,"limit_gbps":...,"ratio":...}
 * bytes is what one run moves; gbps is bytes per time. The limit is the faster of plain and non-temporal
 * copy (one source) or triad (two sources) of as many bytes, by the same threads, measured in turns with
 * the case. Figures are medians; best_* are of the fastest runs, for a machine that others use.
 */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/exec.h"
#include "eager/pool.h"

enum { RUNS = 21 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- limits ------------------------------------------------------------------------------------------------- */
typedef struct stream {
    char *dst;
    const char *a, *b;
    int nt;
} stream;

#define STREAM_FN(name, isa, V, LOAD, ADD, STORE, NT)                                              \
    __attribute__((target(isa))) static void name(void *arg, int64_t begin, int64_t end)           \
    {                                                                                              \
        const stream *s = arg;                                                                     \
        const int64_t w = sizeof(V);                                                               \
        for (int64_t i = begin * 64; i < end * 64; i += 2 * w) {                                   \
            V x = LOAD((const void *)(s->a + i)), y = LOAD((const void *)(s->a + i + w));          \
            if (s->b) {                                                                            \
                x = ADD(x, LOAD((const void *)(s->b + i)));                                        \
                y = ADD(y, LOAD((const void *)(s->b + i + w)));                                    \
            }                                                                                      \
            if (s->nt) {                                                                           \
                NT((void *)(s->dst + i), x);                                                       \
                NT((void *)(s->dst + i + w), y);                                                   \
            } else {                                                                               \
                STORE((void *)(s->dst + i), x);                                                    \
                STORE((void *)(s->dst + i + w), y);                                                \
            }                                                                                      \
        }                                                                                          \
        _mm_sfence();                                                                              \
    }
STREAM_FN(stream_512, "avx512f", __m512, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps,
          _mm512_stream_ps)
STREAM_FN(stream_256, "avx2", __m256, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps,
          _mm256_stream_ps)

/* -- cases -------------------------------------------------------------------------------------------------- */
typedef struct bench_case {
    const char *name;
    wf_op op; /* INVALID: a copy */
    int from, to, nsrc, transpose;
} bench_case;

static const bench_case cases[] = {
    {"add", WF_OP_ADD, WEFT_F32, WEFT_F32, 2, 0},
    {"mul", WF_OP_MUL, WEFT_F32, WEFT_F32, 2, 0},
    {"exp", WF_OP_EXP, WEFT_F32, WEFT_F32, 1, 0},
    {"tanh", WF_OP_TANH, WEFT_F32, WEFT_F32, 1, 0},
    {"gelu", WF_OP_GELU, WEFT_F32, WEFT_F32, 1, 0},
    {"gelu_tanh", WF_OP_GELU_TANH, WEFT_F32, WEFT_F32, 1, 0},
    {"relu", WF_OP_RELU, WEFT_F32, WEFT_F32, 1, 0},
    {"add_bf16", WF_OP_ADD, WEFT_BF16, WEFT_BF16, 2, 0},
    {"exp_bf16", WF_OP_EXP, WEFT_BF16, WEFT_BF16, 1, 0},
    {"exp_f64", WF_OP_EXP, WEFT_F64, WEFT_F64, 1, 0},
    {"copy", WF_OP_INVALID, WEFT_F32, WEFT_F32, 1, 0},
    {"cast_f32_bf16", WF_OP_INVALID, WEFT_F32, WEFT_BF16, 1, 0},
    {"cast_bf16_f32", WF_OP_INVALID, WEFT_BF16, WEFT_F32, 1, 0},
    {"cast_f32_f16", WF_OP_INVALID, WEFT_F32, WEFT_F16, 1, 0},
    {"transpose", WF_OP_INVALID, WEFT_F32, WEFT_F32, 1, 1},
    {"transpose_f64", WF_OP_INVALID, WEFT_F64, WEFT_F64, 1, 1},
    {"transpose_bf16", WF_OP_INVALID, WEFT_BF16, WEFT_BF16, 1, 1},
    {"add_transposed", WF_OP_ADD, WEFT_F32, WEFT_F32, 2, 1},
};

static void run_case(const bench_case *c, const wf_view *dst, const wf_view *src)
{
    if (c->op == WF_OP_INVALID)
        wf_copy(dst, src);
    else
        wf_exec_map(c->op, wf_dtype_compute(c->from), dst, c->nsrc, src);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *t)
{
    qsort(t, RUNS, sizeof *t, by_value);
    return t[RUNS / 2];
}

/* A square matrix of about `bytes` in elements of `size`. */
static wf_view square(void *p, int dtype, int64_t side, int transpose)
{
    wf_view v = {.data = p, .dtype = (uint8_t)dtype, .rank = 2, .dims = {side, side}};
    v.strides[transpose ? 0 : 1] = 1;
    v.strides[transpose ? 1 : 0] = side;
    return v;
}

static void measure(const bench_case *c, int64_t bytes, int threads)
{
    const int64_t in = (int64_t)wf_dtype_size(c->from), out = (int64_t)wf_dtype_size(c->to);
    const int64_t wide = in > out ? in : out;
    int64_t side = 64;
    while ((side + 64) * (side + 64) * wide <= bytes)
        side += 64;
    const int64_t n = side * side;
    const size_t size = (size_t)(n * wide);
    char *a = wf_alloc(size), *b = wf_alloc(size), *d = wf_alloc(size);
    if (!a || !b || !d) {
        fprintf(stderr, "bench_map: out of memory\n");
        exit(1);
    }
    const uint64_t fill = 0x3F003F003F003F00u; /* 0.5 or so in every float type */
    for (size_t i = 0; i < size; i += 8) {
        memcpy(a + i, &fill, 8);
        memcpy(b + i, &fill, 8);
    }
    memset(d, 0, size);
    const wf_view dst = square(d, c->to, side, 0);
    const wf_view src[2] = {square(a, c->from, side, c->transpose && c->nsrc == 1),
                            square(b, c->from, side, c->transpose)};
    const double moved = (double)(n * (in * c->nsrc + out));
    const int64_t lines = (int64_t)(moved / (c->nsrc + 1)) / 64;
    wf_set_num_threads(threads);
    const wf_task_fn stream_fn = wf_isa() == WF_ISA_AVX512 ? stream_512 : stream_256;
    double t[3][RUNS];
    const int reps = moved > 4e6 ? 1 : (int)(4e6 / moved) + 1;
    for (int r = -1; r < RUNS; r++)
        for (int k = 0; k < 3; k++) {
            stream s = {d, a, c->nsrc == 2 ? b : NULL, k == 2};
            double start = now();
            for (int i = reps > 1 ? -1 : 0; i < reps; i++) {
                if (i == 0)
                    start =
                        now(); /* after one run that finds its data where the last way left it */
                if (k == 0)
                    run_case(c, &dst, src);
                else
                    wf_parallel_for(lines / 2 * 2, (lines / threads + 1) / 2 * 2, stream_fn, &s);
            }
            if (r >= 0)
                t[k][r] = (now() - start) / reps;
        }
    const double gbps = moved / median(t[0]) * 1e-9;
    const double plain = (double)lines * 64 * (c->nsrc + 1) / median(t[1]) * 1e-9;
    const double nt = (double)lines * 64 * (c->nsrc + 1) / median(t[2]) * 1e-9;
    const double limit = plain > nt ? plain : nt;
    const double quickest = t[1][0] < t[2][0] ? t[1][0] : t[2][0]; /* sorted by median() */
    const double best = (double)lines * 64 * (c->nsrc + 1) / quickest * 1e-9;
    printf("{\"bench\":\"map\",\"case\":\"%s\",\"bytes\":%.0f,\"threads\":%d,\"gbps\":%.1f,"
           "\"limit_gbps\":%.1f,\"ratio\":%.3f,\"best_gbps\":%.1f,\"best_limit_gbps\":%.1f,"
           "\"ns_per_element\":%.4f}\n",
           c->name, moved, threads, gbps, limit, gbps / limit, moved / t[0][0] * 1e-9, best,
           t[0][RUNS / 2] / (double)n * 1e9);
    fflush(stdout);
    wf_free(a, size);
    wf_free(b, size);
    wf_free(d, size);
}

int main(int argc, char **argv)
{
    int64_t sizes[8] = {256 << 10, 64 << 20};
    int nsizes = 2;
    if (argc > 2) {
        nsizes = 0;
        for (int i = 2; i < argc && nsizes < 8; i++)
            sizes[nsizes++] = atoll(argv[i]);
    }
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int s = 0; s < nsizes; s++)
            for (int threads = 1; threads <= 2; threads++)
                if (argc < 2 || !*argv[1] || strcmp(argv[1], cases[c].name) == 0)
                    measure(&cases[c], sizes[s], threads);
    return 0;
}
