/*
 * eager/kernels/gemm_vector.inc.c -- vector times matrix on one thread, per instruction set: y := x * B.
 *
 * It is bound by reading B, so B is read once, in streams: eight rows at a time where rows are
 * contiguous, four columns at a time where columns are, as a single one always is; of half types in memory eight, which are asked for
 * ahead, as their conversion leaves the processor's own look ahead too short. The order of an element's sum
 * depends on k, on which of the two it is and on whether it is the only one, not on where in a block it lies. Rows are in_order.
 */
#include <stddef.h>
#include <stdint.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/fold4.h"
#include "eager/kernels/gemm_simd.inc.h"

static inline float same_f32(float x)
{
    return x;
}
static inline double same_f64(double x)
{
    return x;
}

/* fma where the instruction set has it, in the tails as in the vectors. */
#if defined(__AVX2__)
#define ONE_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define ONE_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define ONE_FMA_F32(a, b, c) ((a) * (b) + (c))
#define ONE_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

/* y[c] := the sum of the lanes of vector c: columns of 64 terms are read in less time than that of lanes one after the other
 * takes. */
#define DEFINE_SUM4(sfx, T, V, VL, FOLD4)                                                          \
    FOLD4(fold4_##sfx, V)                                                                          \
    static inline __attribute__((always_inline)) void sum4_##sfx(V a, V b, V c, V d, T *y)         \
    {                                                                                              \
        const V s = fold4_##sfx(a, b, c, d);                                                       \
        for (int i = 0; i < 4; i++)                                                                \
            y[i] = s[i * VL / 4];                                                                  \
    }
#define DEFINE_SUM4_PLAIN(sfx, T, V, VL, STORE)                                                    \
    static inline void sum4_##sfx(V a, V b, V c, V d, T *y)                                        \
    {                                                                                              \
        T lanes[4][VL];                                                                            \
        STORE(lanes[0], a);                                                                        \
        STORE(lanes[1], b);                                                                        \
        STORE(lanes[2], c);                                                                        \
        STORE(lanes[3], d);                                                                        \
        for (int i = 0; i < 4; i++) {                                                              \
            for (int gap = VL / 2; gap > 0; gap /= 2)                                              \
                for (int l = 0; l < gap; l++)                                                      \
                    lanes[i][l] += lanes[i][l + gap];                                              \
            y[i] = lanes[i][0];                                                                    \
        }                                                                                          \
    }
#if defined(__AVX512F__)
DEFINE_SUM4(f32, float, vec_f32, VL_F32, WF_FOLD4_16)
DEFINE_SUM4(f64, double, vec_f64, VL_F64, WF_FOLD4_8)
#elif defined(__AVX2__)
DEFINE_SUM4(f32, float, vec_f32, VL_F32, WF_FOLD4_8)
DEFINE_SUM4_PLAIN(f64, double, vec_f64, VL_F64, STORE_F64)
#else
DEFINE_SUM4_PLAIN(f32, float, vec_f32, VL_F32, STORE_F32)
DEFINE_SUM4_PLAIN(f64, double, vec_f64, VL_F64, STORE_F64)
#endif

/* Bytes of B that are not in a cache of a thread's own, and how far ahead of use a column is asked for. */
enum { FAR_BYTES = 4 << 20, AHEAD = 1024 };

#define DEFINE_VECTOR(sfx, S, T, V, VL, LOAD_S, convert, LOAD, STORE, SET1, FMA, ONE_FMA, SUM4)    \
    static inline __attribute__((always_inline)) void rows_##sfx(                                  \
        int count, int64_t n, const T *x, const S *b, int64_t rs, T *restrict y)                   \
    {                                                                                              \
        int64_t j = 0;                                                                             \
        for (; j + VL <= n; j += VL) {                                                             \
            V acc = LOAD(y + j);                                                                   \
            for (int r = 0; r < count; r++)                                                        \
                acc = FMA(SET1(x[r]), LOAD_S(b + r * rs + j), acc);                                \
            STORE(y + j, acc);                                                                     \
        }                                                                                          \
        for (; j < n; j++)                                                                         \
            for (int r = 0; r < count; r++)                                                        \
                y[j] = ONE_FMA(x[r], (T)convert(b[r * rs + j]), y[j]);                             \
    }                                                                                              \
    static void by_rows_##sfx(int64_t n, int64_t k, const T *x, const S *b, int64_t rs, T *y)      \
    {                                                                                              \
        int64_t p = 0;                                                                             \
        for (int64_t j = 0; j < n; j++)                                                            \
            y[j] = 0;                                                                              \
        for (; p + 8 <= k; p += 8)                                                                 \
            rows_##sfx(8, n, x + p, b + p * rs, rs, y);                                            \
        for (; p < k; p++)                                                                         \
            rows_##sfx(1, n, x + p, b + p * rs, rs, y);                                            \
    }                                                                                              \
    static inline __attribute__((always_inline)) void columns_##sfx(                               \
        int count, bool far, int64_t k, const T *x, const S *b, int64_t cs, T *y)                  \
    {                                                                                              \
        V acc[8][2];                                                                               \
        T lanes[VL];                                                                               \
        int64_t p = 0;                                                                             \
        for (int c = 0; c < count; c++)                                                            \
            acc[c][0] = acc[c][1] = SET1(0);                                                       \
        for (; p + 2 * VL <= k; p += 2 * VL) {                                                     \
            V x0 = LOAD(x + p), x1 = LOAD(x + p + VL);                                             \
            for (int c = 0; c < count; c++) {                                                      \
                if (far)                                                                           \
                    __builtin_prefetch((const char *)(b + c * cs + p) + AHEAD);                    \
                acc[c][0] = FMA(x0, LOAD_S(b + c * cs + p), acc[c][0]);                            \
                acc[c][1] = FMA(x1, LOAD_S(b + c * cs + p + VL), acc[c][1]);                       \
            }                                                                                      \
        }                                                                                          \
        for (int c = 0; c < count; c++)                                                            \
            acc[c][0] = acc[c][0] + acc[c][1];                                                     \
        for (int c = 0; c + 4 <= count; c += 4)                                                    \
            SUM4(acc[c][0], acc[c + 1][0], acc[c + 2][0], acc[c + 3][0], y + c);                   \
        for (int c = count / 4 * 4; c < count; c++) {                                              \
            STORE(lanes, acc[c][0]);                                                               \
            for (int gap = VL / 2; gap > 0; gap /= 2)                                              \
                for (int i = 0; i < gap; i++)                                                      \
                    lanes[i] += lanes[i + gap];                                                    \
            y[c] = lanes[0];                                                                       \
        }                                                                                          \
        for (int c = 0; c < count && p < k; c++)                                                   \
            for (int64_t q = p; q < k; q++)                                                        \
                y[c] = ONE_FMA(x[q], (T)convert(b[c * cs + q]), y[c]);                             \
    }                                                                                              \
    static void by_columns_##sfx(int64_t n, int64_t k, const T *x, const S *b, int64_t cs, T *y)   \
    {                                                                                              \
        const bool far = sizeof(S) == 2 && (double)n * (double)k >= FAR_BYTES / 2;                 \
        int64_t j = 0;                                                                             \
        for (; far && j + 8 <= n; j += 8)                                                          \
            columns_##sfx(8, true, k, x, b + j * cs, cs, y + j);                                   \
        for (; j + 4 <= n; j += 4)                                                                 \
            columns_##sfx(4, false, k, x, b + j * cs, cs, y + j);                                  \
        for (; j < n; j++)                                                                         \
            columns_##sfx(1, false, k, x, b + j * cs, cs, y + j);                                  \
    }                                                                                              \
    static T dot_##sfx(int64_t k, const S *x, const S *b)                                          \
    {                                                                                              \
        V acc[4];                                                                                  \
        T lanes[VL];                                                                               \
        int64_t p = 0;                                                                             \
        for (int i = 0; i < 4; i++)                                                                \
            acc[i] = SET1(0);                                                                      \
        for (; p + 4 * VL <= k; p += 4 * VL)                                                       \
            for (int i = 0; i < 4; i++)                                                            \
                acc[i] = FMA(LOAD_S(x + p + i * VL), LOAD_S(b + p + i * VL), acc[i]);              \
        for (; p + VL <= k; p += VL)                                                               \
            acc[0] = FMA(LOAD_S(x + p), LOAD_S(b + p), acc[0]);                                    \
        STORE(lanes, (acc[0] + acc[1]) + (acc[2] + acc[3]));                                       \
        for (int gap = VL / 2; gap > 0; gap /= 2)                                                  \
            for (int i = 0; i < gap; i++)                                                          \
                lanes[i] += lanes[i + gap];                                                        \
        T sum = lanes[0];                                                                          \
        for (; p < k; p++)                                                                         \
            sum = ONE_FMA((T)convert(x[p]), (T)convert(b[p]), sum);                                \
        return sum;                                                                                \
    }                                                                                              \
    static void vector_##sfx(const wf_gemm_block *g)                                               \
    {                                                                                              \
        T *copy = g->scratch, *y = copy + g->k;                                                    \
        const S *a = g->a;                                                                         \
        const T *x = sizeof(S) == sizeof(T) && g->a_cs == 1 ? g->a : g->scratch;                   \
        if (g->n == 1 && g->a_cs == 1 && !g->in_order) {                                           \
            *y = dot_##sfx(g->k, a, g->b);                                                         \
            return;                                                                                \
        }                                                                                          \
        for (int64_t p = 0; p < g->k && x == copy; p++)                                            \
            copy[p] = (T)convert(a[p * g->a_cs]);                                                  \
        if ((g->n > 1 || g->in_order) && g->b_cs == 1)                                             \
            by_rows_##sfx(g->n, g->k, x, g->b, g->b_rs, y);                                        \
        else                                                                                       \
            by_columns_##sfx(g->n, g->k, x, g->b, g->b_cs, y);                                     \
    }
DEFINE_VECTOR(f32, float, float, vec_f32, VL_F32, LOAD_F32, same_f32, LOAD_F32, STORE_F32, SET1_F32,
              FMA_F32, ONE_FMA_F32, sum4_f32)
DEFINE_VECTOR(f64, double, double, vec_f64, VL_F64, LOAD_F64, same_f64, LOAD_F64, STORE_F64,
              SET1_F64, FMA_F64, ONE_FMA_F64, sum4_f64)
DEFINE_VECTOR(bf16, uint16_t, float, vec_f32, VL_F32, LOAD_BF16, wf_f32_of_bf16, LOAD_F32,
              STORE_F32, SET1_F32, FMA_F32, ONE_FMA_F32, sum4_f32)
DEFINE_VECTOR(f16, uint16_t, float, vec_f32, VL_F32, LOAD_F16, wf_f32_of_f16, LOAD_F32, STORE_F32,
              SET1_F32, FMA_F32, ONE_FMA_F32, sum4_f32)

static size_t vector_scratch(const wf_gemm_block *g)
{
    return (size_t)(g->k + g->n) * (g->dtype == WEFT_F64 ? sizeof(double) : sizeof(float));
}

/* The block has m == 1; its c_rs is the distance of the elements of y. */
static void vector_run(const wf_gemm_block *g)
{
    if (g->dtype == WEFT_F64) {
        vector_f64(g);
        const double *y = (const double *)g->scratch + g->k;
        for (int64_t j = 0; j < g->n; j++)
            ((double *)g->c)[j * g->c_rs] = y[j];
        return;
    }
    if (g->dtype == WEFT_F32)
        vector_f32(g);
    else if (g->dtype == WEFT_BF16)
        vector_bf16(g);
    else
        vector_f16(g);
    const float *y = (const float *)g->scratch + g->k;
    for (int64_t j = 0; j < g->n; j++)
        if (g->dtype == WEFT_F32 || g->wide)
            ((float *)g->c)[j * g->c_rs] = y[j];
        else
            ((uint16_t *)g->c)[j * g->c_rs] =
                g->dtype == WEFT_BF16 ? wf_bf16_of_f32(y[j]) : wf_f16_of_f32(y[j]);
}

const wf_gemm_kernels WF_PASTE(wf_vector_kernels, WF_ISA) = {.scratch = vector_scratch,
                                                             .block = vector_run};
