/*
 * jit/codegen_cpu/llvm_fold.c -- the lanes and blocks of reductions, combined (llvm_fold.h).
 *
 * The rows' own words (dict_c.h) are used, so the bits are those of every other tier; but for the least float, which is written as
 * kernels have it: in vectors no instruction more, and no branch that depends on elements.
 */
#include "jit/codegen_cpu/llvm_fold.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "jit/ir/dict_c.h"

enum { GROUP = WF_LLR_GROUP };

/* Each choice gives its second operand for zeros and NaN, and they differ there only: -0 of two zeros, NaN of a NaN and anything. */
#define LEAST(name, T, U)                                                                          \
    static inline T name(T a, T b)                                                                 \
    {                                                                                              \
        const T x = a < b ? a : b, y = b < a ? b : a;                                              \
        U i, j;                                                                                    \
        T both;                                                                                    \
        memcpy(&i, &x, sizeof i);                                                                  \
        memcpy(&j, &y, sizeof j);                                                                  \
        i |= j;                                                                                    \
        memcpy(&both, &i, sizeof i);                                                               \
        return both;                                                                               \
    }
LEAST(least_f32, float, uint32_t)
LEAST(least_f64, double, uint64_t)

#define X8(x) x, x, x, x, x, x, x, x
#define X64(x) X8(x), X8(x), X8(x), X8(x), X8(x), X8(x), X8(x), X8(x)
/* Bytes of lanes behind those that were seen, from before. Whole registers, to which stores of such are forwarded, and only one
 * of them waits for the lanes that were just written. */
typedef char bytes __attribute__((vector_size(16), may_alias, aligned(1)));
static const char seen_or_not[2 * sizeof(bytes)] = {X8(-1), X8(-1)};
static inline void merge(char *now, const char *before, int64_t seen, int64_t count)
{
    const int64_t n = (int64_t)sizeof(bytes), first = seen & -n;
    const bytes is_seen = *(const bytes *)(seen_or_not + n - seen % n);
    bytes *at = (bytes *)(now + first);
    *at = (*at & is_seen) | (*(const bytes *)(before + first) & ~is_seen);
    for (int64_t i = first + n; i < count; i += n)
        *(bytes *)(now + i) = *(const bytes *)(before + i);
}

#define FOLD(name, T, OP, IDENTITY)                                                                \
    static const _Alignas(64) T name##_start[GROUP] = {X64(IDENTITY)};                             \
    static inline void name##_half(T *x, int n)                                                    \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            x[i] = OP(x[i], x[i + n]);                                                             \
    }                                                                                              \
    static inline uint64_t name##_bits(T value)                                                    \
    {                                                                                              \
        uint64_t bits = 0;                                                                         \
        memcpy(&bits, &value, sizeof value);                                                       \
        return bits;                                                                               \
    }                                                                                              \
    static inline T name##_all(T *x, int64_t count)                                                \
    {                                                                                              \
        if (count > 32)                                                                            \
            name##_half(x, 32);                                                                    \
        if (count > 16)                                                                            \
            name##_half(x, 16);                                                                    \
        name##_half(x, 8);                                                                         \
        name##_half(x, 4);                                                                         \
        const T a = OP(x[0], x[2]), b = OP(x[1], x[3]);                                            \
        return OP(a, b);                                                                           \
    }                                                                                              \
    static uint64_t name(void *now, const void *before, int64_t seen, int64_t count)               \
    {                                                                                              \
        T *x = now;                                                                                \
        if (seen < count)                                                                          \
            merge(now, before, seen *(int64_t)sizeof *x, count *(int64_t)sizeof *x);               \
        return name##_bits(name##_all(x, count));                                                  \
    }                                                                                              \
    static uint64_t name##_block(void *level, uint64_t bits, int64_t b, int64_t blocks)            \
    {                                                                                              \
        T *x = level, part;                                                                        \
        memcpy(&part, &bits, sizeof part);                                                         \
        if (b == 0)                                                                                \
            memcpy(x, name##_start, sizeof name##_start);                                          \
        x[b % GROUP] = OP(x[b % GROUP], part);                                                     \
        return b + 1 < blocks ? bits : name##_bits(name##_all(x, GROUP));                          \
    }
FOLD(add_f32, float, ADD, -0.0F)
FOLD(mul_f32, float, MUL, 1)
FOLD(min_f32, float, least_f32, INFINITY)
FOLD(add_f64, double, ADD, -0.0)
FOLD(mul_f64, double, MUL, 1)
FOLD(min_f64, double, least_f64, (double)INFINITY)
FOLD(add_i64, int64_t, ADD, 0)
FOLD(mul_i64, int64_t, MUL, 1)
FOLD(min_i64, int64_t, MIN, INT64_MAX)
FOLD(max_i64, int64_t, MAX, INT64_MIN)
FOLD(or_bool, bool, BOR, false)
FOLD(and_bool, bool, BAND, true)

/* -- the same of f32 in registers ------------------------------------------------------------------------------------ */
#define QUICK __attribute__((target("avx2"), always_inline)) static inline
QUICK __m128 add_four(__m128 a, __m128 b)
{
    return _mm_add_ps(a, b);
}
QUICK __m256 add_eight(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}
QUICK __m128 least_four(__m128 a, __m128 b)
{
    return _mm_or_ps(_mm_min_ps(a, b), _mm_min_ps(b, a));
}
QUICK __m256 least_eight(__m256 a, __m256 b)
{
    return _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a));
}

/* Lanes 8i to 8i + 7; those from `seen` on are as before. */
QUICK __m256 eight(const float *now, const float *before, int64_t seen, int i)
{
    const __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i is_seen = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)seen - 8 * i), number);
    return _mm256_blendv_ps(_mm256_loadu_ps(before + (ptrdiff_t)8 * i),
                            _mm256_loadu_ps(now + (ptrdiff_t)8 * i), _mm256_castsi256_ps(is_seen));
}

/* n vectors; merged: not all lanes were seen. An array of vectors would go through memory, in halves. */
#define IN_REGISTERS(name, FOUR, EIGHT)                                                            \
    QUICK __m256 name##_two(const float *x, const float *before, int64_t seen, int i,              \
                            int distance, bool merged)                                             \
    {                                                                                              \
        return merged ? EIGHT(eight(x, before, seen, i), eight(x, before, seen, i + distance))     \
                      : EIGHT(_mm256_loadu_ps(x + (ptrdiff_t)8 * i),                               \
                              _mm256_loadu_ps(x + (ptrdiff_t)8 * (i + distance)));                 \
    }                                                                                              \
    QUICK __m256 name##_four(const float *x, const float *before, int64_t seen, int i,             \
                             int distance, bool merged)                                            \
    {                                                                                              \
        return EIGHT(name##_two(x, before, seen, i, 2 * distance, merged),                         \
                     name##_two(x, before, seen, i + distance, 2 * distance, merged));             \
    }                                                                                              \
    QUICK __m256 name##_vectors(const float *x, const float *before, int64_t seen, int64_t count,  \
                                bool merged)                                                       \
    {                                                                                              \
        return count > 32   ? EIGHT(name##_four(x, before, seen, 0, 2, merged),                    \
                                    name##_four(x, before, seen, 1, 2, merged))                    \
               : count > 16 ? name##_four(x, before, seen, 0, 1, merged)                           \
                            : name##_two(x, before, seen, 0, 1, merged);                           \
    }                                                                                              \
    __attribute__((target("avx2"))) static uint64_t name##_avx2(void *now, const void *before,     \
                                                                int64_t seen, int64_t count)       \
    {                                                                                              \
        const __m256 v = seen < count ? name##_vectors(now, before, seen, count, true)             \
                                      : name##_vectors(now, before, seen, count, false);           \
        __m128 y = FOUR(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));                   \
        y = FOUR(y, _mm_movehl_ps(y, y));                                                          \
        y = FOUR(y, _mm_movehdup_ps(y));                                                           \
        return name##_bits(_mm_cvtss_f32(y));                                                      \
    }
IN_REGISTERS(add_f32, add_four, add_eight)
IN_REGISTERS(min_f32, least_four, least_eight)

#define ROW(name, sign, ordered) ROW_BY(name, name, sign, ordered)
#define ROW_BY(lanes, name, sign, ordered)                                                         \
    {                                                                                              \
        lanes, name##_block, name##_start, sign, ordered                                           \
    }
#define ADD_F32(lanes) ROW_BY(lanes, add_f32, UINT64_C(1) << 31, true)
#define MIN_F32(lanes) ROW_BY(lanes, min_f32, UINT64_C(1) << 31, false)
static const wf_llr_folding foldings[WF_LLR_FOLDS] = {
    [WF_LLR_ADD_F32] = ADD_F32(add_f32),
    [WF_LLR_MUL_F32] = ROW(mul_f32, UINT64_C(1) << 31, true),
    [WF_LLR_MIN_F32] = MIN_F32(min_f32),
    [WF_LLR_ADD_F64] = ROW(add_f64, UINT64_C(1) << 63, true),
    [WF_LLR_MUL_F64] = ROW(mul_f64, UINT64_C(1) << 63, true),
    [WF_LLR_MIN_F64] = ROW(min_f64, UINT64_C(1) << 63, false),
    [WF_LLR_ADD_I64] = ROW(add_i64, 0, false),
    [WF_LLR_MUL_I64] = ROW(mul_i64, 0, false),
    [WF_LLR_MIN_I64] = ROW(min_i64, 0, false),
    [WF_LLR_MAX_I64] = ROW(max_i64, 0, false),
    [WF_LLR_OR] = ROW(or_bool, 0, false),
    [WF_LLR_AND] = ROW(and_bool, 0, false),
};

const wf_llr_folding *wf_llr_folding_of(wf_llr_fold fold)
{
    static const wf_llr_folding add = ADD_F32(add_f32_avx2);
    static const wf_llr_folding min = MIN_F32(min_f32_avx2);
    if (fold == WF_LLR_ADD_F32 && __builtin_cpu_supports("avx2"))
        return &add;
    if (fold == WF_LLR_MIN_F32 && __builtin_cpu_supports("avx2"))
        return &min;
    return &foldings[fold];
}
