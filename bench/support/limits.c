/*
 * bench/support/limits.c -- how fast this machine moves bytes: copy, triad, read and fill, with plain
 * and with non-temporal stores, on the pool that the ops use.
 */
#include <immintrin.h>
#include <string.h>

#include "bench/support/bench.h"
#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/pool.h"

enum {
    GRAIN = 512, /* bytes of each array in one step of a loop */
    AHEAD = 4096 /* bytes that a prefetch runs ahead */
};

static volatile float sink; /* keeps reads */

/* Written out: eight vectors in flight, whatever a compiler thinks of small loops. */
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define FETCH(k)                                                                                   \
    if (s->ahead && k * w % 64 == 0) {                                                             \
        _mm_prefetch(s->a + i + k * w + AHEAD, _MM_HINT_T0);                                       \
    }
#define FETCH_B(k)                                                                                 \
    if (s->ahead && k * w % 64 == 0) {                                                             \
        _mm_prefetch(s->b + i + k * w + AHEAD, _MM_HINT_T0);                                       \
    }
#define READ_(k) acc[k] = ADD(acc[k], LOAD((const void *)(s->a + i + k * w)));
#define COPY_(k) acc[k] = LOAD((const void *)(s->a + i + k * w));
#define TRIAD_(k) acc[k] = ADD(acc[k], LOAD((const void *)(s->b + i + k * w)));
#define STORE_(k) STORE((void *)(s->d + i + k * w), acc[k]);
#define STREAM_(k) STREAM((void *)(s->d + i + k * w), acc[k]);
#define STEPS for (int64_t i = begin * GRAIN; i < end * GRAIN; i += 8 * w)

#define STREAM_FN(name, isa)                                                                       \
    __attribute__((target(isa))) static void name(void *arg, int64_t begin, int64_t end)           \
    {                                                                                              \
        const bench_stream *s = arg;                                                               \
        const int64_t w = sizeof(V);                                                               \
        V acc[8] = {ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO(), ZERO()};               \
        switch (s->kind) {                                                                         \
        case BENCH_READ:                                                                           \
            STEPS                                                                                  \
            {                                                                                      \
                EACH(READ_) EACH(FETCH)                                                            \
            }                                                                                      \
            for (int k = 1; k < 8; k++) {                                                          \
                acc[0] = ADD(acc[0], acc[k]);                                                      \
            }                                                                                      \
            sink = FIRST(acc[0]);                                                                  \
            break;                                                                                 \
        case BENCH_COPY:                                                                           \
            if (s->nt) {                                                                           \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(COPY_) EACH(FETCH) EACH(STREAM_)                                          \
                }                                                                                  \
            } else {                                                                               \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(COPY_) EACH(FETCH) EACH(STORE_)                                           \
                }                                                                                  \
            }                                                                                      \
            break;                                                                                 \
        case BENCH_TRIAD:                                                                          \
            if (s->nt) {                                                                           \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(COPY_) EACH(TRIAD_) EACH(FETCH) EACH(FETCH_B) EACH(STREAM_)               \
                }                                                                                  \
            } else {                                                                               \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(COPY_) EACH(TRIAD_) EACH(FETCH) EACH(FETCH_B) EACH(STORE_)                \
                }                                                                                  \
            }                                                                                      \
            break;                                                                                 \
        case BENCH_FILL:                                                                           \
            if (s->nt) {                                                                           \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(STREAM_)                                                                  \
                }                                                                                  \
            } else {                                                                               \
                STEPS                                                                              \
                {                                                                                  \
                    EACH(STORE_)                                                                   \
                }                                                                                  \
            }                                                                                      \
            break;                                                                                 \
        }                                                                                          \
        _mm_sfence();                                                                              \
    }

#define V __m512
#define ZERO _mm512_setzero_ps
#define LOAD _mm512_load_ps
#define ADD _mm512_add_ps
#define STORE _mm512_store_ps
#define STREAM _mm512_stream_ps
#define FIRST(v) _mm_cvtss_f32(_mm512_castps512_ps128(v))
STREAM_FN(stream_512, "avx512f")
#undef V
#undef ZERO
#undef LOAD
#undef ADD
#undef STORE
#undef STREAM
#undef FIRST
#define V __m256
#define ZERO _mm256_setzero_ps
#define LOAD _mm256_load_ps
#define ADD _mm256_add_ps
#define STORE _mm256_store_ps
#define STREAM _mm256_stream_ps
#define FIRST(v) _mm_cvtss_f32(_mm256_castps256_ps128(v))
STREAM_FN(stream_256, "avx2")
#undef V
#undef ZERO
#undef LOAD
#undef ADD
#undef STORE
#undef STREAM
#undef FIRST
#define V __m128
#define ZERO _mm_setzero_ps
#define LOAD _mm_load_ps
#define ADD _mm_add_ps
#define STORE _mm_store_ps
#define STREAM _mm_stream_ps
#define FIRST(v) _mm_cvtss_f32(v)
STREAM_FN(stream_128, "sse2")

static void run_stream(void *arg)
{
    static const wf_task_fn fn[WF_NISA] = {
        [WF_ISA_SSE2] = stream_128, [WF_ISA_AVX2] = stream_256, [WF_ISA_AVX512] = stream_512};
    const bench_stream *s = arg;
    const int64_t steps = s->bytes / GRAIN;
    wf_parallel_for(steps, (steps + s->threads - 1) / s->threads, fn[wf_isa()], arg);
}

void bench_limit_open(bench_limit *l, bench_stream_kind kind, double moved, int threads,
                      bench_side *sides, int *count)
{
    const int arrays = kind == BENCH_TRIAD ? 3 : kind == BENCH_COPY ? 2 : 1;
    bench_stream s = {.kind = kind, .threads = threads};
    s.bytes = ((int64_t)(moved / arrays) + GRAIN - 1) / GRAIN * GRAIN;
    char **memory[3] = {kind == BENCH_READ ? NULL : &s.d, kind == BENCH_FILL ? NULL : &s.a,
                        kind == BENCH_TRIAD ? &s.b : NULL};
    for (int i = 0; i < 3; i++) {
        if (!memory[i]) {
            continue;
        }
        *memory[i] = wf_alloc((size_t)s.bytes);
        if (!*memory[i]) {
            bench_die("out of memory for a limit");
        }
        memset(*memory[i], 0, (size_t)s.bytes);
    }
    l->lent = false;
    l->moved = (double)s.bytes * arrays;
    l->count = kind == BENCH_READ ? 2 : BENCH_LIMIT_SIDES;
    for (int i = 0; i < l->count;
         i++) { /* plain, plain with prefetch, non-temporal with prefetch */
        l->stream[i] = s;
        l->stream[i].ahead = i > 0;
        l->stream[i].nt = i > 1;
        sides[(*count)++] = (bench_side){.run = run_stream, .arg = &l->stream[i]};
    }
}

void bench_limit_read(bench_limit *l, void *memory, double bytes)
{
    if (bytes < (double)l->stream[0].bytes || l->lent) {
        return;
    }
    wf_free(l->stream[0].a, (size_t)l->stream[0].bytes);
    for (int i = 0; i < l->count; i++) {
        l->stream[i].a = memory;
    }
    l->lent = true;
}

double bench_limit_gbps(const bench_limit *l, const bench_side *sides, int first, bool best)
{
    double least = 0;
    for (int i = first; i < first + l->count; i++) {
        const double t = best ? sides[i].best : sides[i].median;
        least = i == first || t < least ? t : least;
    }
    return l->moved / least * 1e-9;
}

void bench_limit_close(bench_limit *l)
{
    const size_t size = (size_t)l->stream[0].bytes;
    wf_free(l->lent ? NULL : l->stream[0].a, size);
    wf_free(l->stream[0].b, size);
    wf_free(l->stream[0].d, size);
    l->count = 0;
}
