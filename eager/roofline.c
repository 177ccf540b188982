/*
 * eager/roofline.c -- measures the machine's limits; see roofline.h.
 *
 * Loops are written with vectors of the width in use, eight of them in flight, so that neither a compiler nor the
 * latency of an add is what is measured. Stores are tried through the caches and past them.
 */
#include "eager/roofline.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/pool.h"
#include "eager/profile.h"

enum {
    GRAIN = 16384,
    FEW = 64,
    MAX_REPEATS = 1 << 20,
    ROUNDS = 9,
    FMA_LOOPS = 4096,
    SMALLEST = 16384
};
#define BATCH 3e-4 /* seconds */

typedef enum stream_kind { READ, READ_AHEAD, COPY, COPY_PAST, FILL, FILL_PAST, KINDS } stream_kind;

typedef struct stream {
    stream_kind kind;
    const char *a;
    char *d;
    int64_t bytes; /* of each array */
} stream;

static volatile double sink; /* keeps results */

#define EIGHT(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define LOAD_(k) x[k] = LOAD((const void *)(s->a + i + (k) * (int64_t)sizeof(V)));
#define AHEAD_(k) _mm_prefetch(s->a + i + 4096 + (k) * (int64_t)sizeof(V), _MM_HINT_T0);
#define ADD_(k) acc[k] = ADD(acc[k], x[k]);
#define STORE_(k) STORE((void *)(s->d + i + (k) * (int64_t)sizeof(V)), x[k]);
#define PAST_(k) PAST((void *)(s->d + i + (k) * (int64_t)sizeof(V)), x[k]);
#define STEPS for (int64_t i = begin * GRAIN; i < end * GRAIN; i += 8 * (int64_t)sizeof(V))
#define ONE(kind, ...)                                                                             \
    case kind:                                                                                     \
        STEPS                                                                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        break;

/* Chunks [begin, end) of a stream; arithmetic: 2 * 8 * lanes operations a loop. */
#define MACHINE(name, isa)                                                                         \
    __attribute__((target(isa))) static void stream_##name(void *arg, int64_t begin, int64_t end)  \
    {                                                                                              \
        const stream *s = arg;                                                                     \
        V x[8] = {ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO()};                 \
        V acc[8] = {ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO()};               \
        switch (s->kind) {                                                                         \
            ONE(READ, EIGHT(LOAD_) EIGHT(ADD_))                                                    \
            ONE(READ_AHEAD, EIGHT(LOAD_) EIGHT(AHEAD_) EIGHT(ADD_))                                \
            ONE(COPY, EIGHT(LOAD_) EIGHT(STORE_))                                                  \
            ONE(COPY_PAST, EIGHT(LOAD_) EIGHT(PAST_))                                              \
            ONE(FILL, EIGHT(STORE_))                                                               \
            ONE(FILL_PAST, EIGHT(PAST_))                                                           \
        case KINDS:                                                                                \
            break;                                                                                 \
        }                                                                                          \
        V sum = acc[0];                                                                            \
        for (int k = 1; k < 8; k++) {                                                              \
            sum = ADD(sum, acc[k]);                                                                \
        }                                                                                          \
        float lanes[sizeof(V) / sizeof(float)];                                                    \
        memcpy(lanes, &sum, sizeof sum);                                                           \
        sink = (double)lanes[0];                                                                   \
        _mm_sfence();                                                                              \
    }
#define ARITHMETIC(name, isa, V, SET, FMA, type)                                                   \
    __attribute__((target(isa))) static void name(void *arg, int64_t begin, int64_t end)           \
    {                                                                                              \
        (void)arg;                                                                                 \
        const V m = SET((type)0.5), a = SET((type)1);                                              \
        V x0 = a, x1 = m, x2 = a, x3 = m, x4 = a, x5 = m, x6 = a, x7 = m, x8 = a, x9 = m;          \
        for (int64_t i = begin * FMA_LOOPS; i < end * FMA_LOOPS; i++) {                            \
            x0 = FMA(x0, m, a);                                                                    \
            x1 = FMA(x1, m, a);                                                                    \
            x2 = FMA(x2, m, a);                                                                    \
            x3 = FMA(x3, m, a);                                                                    \
            x4 = FMA(x4, m, a);                                                                    \
            x5 = FMA(x5, m, a);                                                                    \
            x6 = FMA(x6, m, a);                                                                    \
            x7 = FMA(x7, m, a);                                                                    \
            x8 = FMA(x8, m, a);                                                                    \
            x9 = FMA(x9, m, a);                                                                    \
            __asm__("" : "+x"(x0), "+x"(x1), "+x"(x2), "+x"(x3), "+x"(x4));                        \
            __asm__("" : "+x"(x5), "+x"(x6), "+x"(x7), "+x"(x8), "+x"(x9));                        \
        }                                                                                          \
        V all[10] = {x0, x1, x2, x3, x4, x5, x6, x7, x8, x9};                                      \
        type lane;                                                                                 \
        memcpy(&lane, &all[begin & 7], sizeof lane);                                               \
        sink = (double)lane;                                                                       \
    }
enum { CHAINS = 10 };

#define MULTIPLY_ADD_PS(x, m, a) _mm_add_ps(_mm_mul_ps(x, m), a)
#define MULTIPLY_ADD_PD(x, m, a) _mm_add_pd(_mm_mul_pd(x, m), a)
ARITHMETIC(f32_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, float)
ARITHMETIC(f64_avx512, "avx512f", __m512d, _mm512_set1_pd, _mm512_fmadd_pd, double)
ARITHMETIC(f32_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, float)
ARITHMETIC(f64_avx2, "avx2,fma", __m256d, _mm256_set1_pd, _mm256_fmadd_pd, double)
ARITHMETIC(f32_sse2, "sse2", __m128, _mm_set1_ps, MULTIPLY_ADD_PS, float)
ARITHMETIC(f64_sse2, "sse2", __m128d, _mm_set1_pd, MULTIPLY_ADD_PD, double)

#define V __m512
#define ZERO _mm512_setzero_ps
#define LOAD _mm512_load_ps
#define ADD _mm512_add_ps
#define STORE _mm512_store_ps
#define PAST _mm512_stream_ps
MACHINE(avx512, "avx512f")
#undef V
#undef ZERO
#undef LOAD
#undef ADD
#undef STORE
#undef PAST
#define V __m256
#define ZERO _mm256_setzero_ps
#define LOAD _mm256_load_ps
#define ADD _mm256_add_ps
#define STORE _mm256_store_ps
#define PAST _mm256_stream_ps
MACHINE(avx2, "avx2")
#undef V
#undef ZERO
#undef LOAD
#undef ADD
#undef STORE
#undef PAST
#define V __m128
#define ZERO _mm_setzero_ps
#define LOAD _mm_load_ps
#define ADD _mm_add_ps
#define STORE _mm_store_ps
#define PAST _mm_stream_ps
MACHINE(sse2, "sse2")

static const wf_task_fn streams[WF_NISA] = {
    [WF_ISA_SSE2] = stream_sse2, [WF_ISA_AVX2] = stream_avx2, [WF_ISA_AVX512] = stream_avx512};
static const wf_task_fn arithmetic[WF_NISA][2] = {[WF_ISA_SSE2] = {f32_sse2, f64_sse2},
                                                  [WF_ISA_AVX2] = {f32_avx2, f64_avx2},
                                                  [WF_ISA_AVX512] = {f32_avx512, f64_avx512}};

/* Chunks on one thread (which small work is faster on) or on all. */
static void run(wf_task_fn fn, void *arg, int64_t chunks, bool all, int threads)
{
    if (all) {
        wf_parallel_for(chunks, (chunks + threads - 1) / threads, fn, arg);
    } else {
        fn(arg, 0, chunks);
    }
}

/* The least seconds of a run: of batches that last a good part of a millisecond, for `enough` seconds. */
static double best_of(wf_task_fn fn, void *arg, int64_t chunks, bool all, int threads,
                      double enough)
{
    double least = INFINITY, spent = 0;
    int repeats = 1;
    for (int round = 0; round < 3 || spent < enough;) {
        int64_t start = wf_prof_clock();
        for (int i = 0; i < repeats; i++) {
            run(fn, arg, chunks, all, threads);
        }
        double s = (double)(wf_prof_clock() - start) * 1e-9;
        if (s < BATCH && repeats < MAX_REPEATS) {
            repeats *= 2;
            continue;
        }
        least = s / repeats < least ? s / repeats : least;
        spent += s;
        round++;
    }
    return least;
}

static double best(wf_task_fn fn, void *arg, int64_t chunks, int threads, double enough)
{
    double one =
        chunks <= FEW || threads == 1 ? best_of(fn, arg, chunks, false, 1, enough) : INFINITY;
    double many = threads > 1 ? best_of(fn, arg, chunks, true, threads, enough) : INFINITY;
    return one < many ? one : many;
}

static double stream_speed(char *memory, double bytes, stream_kind kind, int threads)
{
    bool two = kind == COPY || kind == COPY_PAST;
    int64_t each = ((int64_t)bytes / (two ? 2 : 1) + GRAIN - 1) / GRAIN * GRAIN;
    stream s = {kind, memory, memory + (two ? each : 0), each};
    return (double)each * (two ? 2 : 1) / best(streams[wf_isa()], &s, each / GRAIN, threads, 0.008);
}

static double speed(double a, double b)
{
    return a > b ? a : b;
}

bool wf_roofline_measure(wf_roofline *r, double most)
{
    static const int lanes[WF_NISA] = {[WF_ISA_SSE2] = 4, [WF_ISA_AVX2] = 8, [WF_ISA_AVX512] = 16};
    *r = (wf_roofline){.threads = wf_num_threads()};
    most = most < 1 << 20 ? 1 << 20 : most > 256 << 20 ? 256 << 20 : most;
    size_t room = (size_t)most + 4 * GRAIN;
    char *memory = wf_alloc(room);
    if (!memory) {
        return false;
    }
    memset(memory, 0, room);
    unsigned mode = wf_fpenv_enter();
    int n = 2 + (int)(log2(most / (2 * SMALLEST)) / 2); /* each at most four times the one before */
    double step = pow(most / (2 * SMALLEST), 1.0 / (n - 1)), bytes = 2 * SMALLEST;
    for (r->n = 0; r->n < n && r->n < WF_ROOF_SIZES; r->n++, bytes *= step) {
        wf_roof_point *p = &r->at[r->n];
        p->bytes = bytes;
        p->read = speed(stream_speed(memory, bytes, READ, r->threads),
                        stream_speed(memory, bytes, READ_AHEAD, r->threads));
        p->copy = speed(stream_speed(memory, bytes, COPY, r->threads),
                        stream_speed(memory, bytes, COPY_PAST, r->threads));
        p->fill = speed(stream_speed(memory, bytes, FILL, r->threads),
                        stream_speed(memory, bytes, FILL_PAST, r->threads));
    }
    int64_t chunks = 8 * r->threads;
    double work = (double)(2 * CHAINS * FMA_LOOPS * chunks * lanes[wf_isa()]);
    r->f32 = work / best(arithmetic[wf_isa()][0], NULL, chunks, r->threads, 0.1);
    r->f64 = work / 2 / best(arithmetic[wf_isa()][1], NULL, chunks, r->threads, 0.1);
    wf_fpenv_leave(mode);
    wf_free(memory, room);
    return true;
}

wf_roof_point wf_roofline_at(const wf_roofline *r, double bytes)
{
    int i = 1;
    while (i < r->n - 1 && r->at[i].bytes < bytes) {
        i++;
    }
    const wf_roof_point *a = &r->at[i - 1], *b = &r->at[i];
    double t = log(bytes / a->bytes) / log(b->bytes / a->bytes);
    t = t < 0 ? 0 : t > 1 ? 1 : t;
#define BETWEEN(field) exp(log(a->field) * (1 - t) + log(b->field) * t)
    return (wf_roof_point){bytes, BETWEEN(read), BETWEEN(copy), BETWEEN(fill)};
#undef BETWEEN
}

double wf_roofline_seconds(const wf_roofline *r, int64_t read, int64_t written, int64_t flops,
                           bool is_f64, bool *by_memory)
{
    double least = read < written ? (double)read : (double)written;
    double memory = 0, compute = (double)flops / (is_f64 ? r->f64 : r->f32);
    if (read + written > 0) {
        wf_roof_point p = wf_roofline_at(r, (double)(read + written));
        memory = 2 * least / p.copy + ((double)read - least) / p.read +
                 ((double)written - least) / p.fill;
    }
    *by_memory = memory >= compute;
    return memory > compute ? memory : compute;
}
