/*
 * eager/kernels/cast.inc.c -- casting loops between all element types: wf_cast_<isa>[to][from].
 *
 * The rules are those of cast.h. Where the machine converts f16 itself (F16C) it is used: the values
 * are the same, a NaN may carry other bits.
 */
#include "eager/cpuid.h"
#include "eager/kernels/bf16_vec.h"
#include "eager/kernels/cast.h"

#include "eager/kernels/kernels.h"
#include "eager/kernels/loops.h"
#include "eager/kernels/move.h"

#if defined(__F16C__)
#include <immintrin.h>
#include <stdbool.h>
#endif

#define WF_CTYPE_bool uint8_t
#define WF_CTYPE_u8 uint8_t
#define WF_CTYPE_i8 int8_t
#define WF_CTYPE_i16 int16_t
#define WF_CTYPE_i32 int32_t
#define WF_CTYPE_i64 int64_t
#define WF_CTYPE_f16 uint16_t
#define WF_CTYPE_bf16 uint16_t
#define WF_CTYPE_f32 float
#define WF_CTYPE_f64 double

/* Others are made of these: no second copies. */
#define OUT_OF_LINE static __attribute__((noinline))
#define WF_CAST(to, from)                                                                          \
    OUT_OF_LINE void c_##to##_##from(void *dst, const void *src, size_t n)                         \
    {                                                                                              \
        WF_CTYPE_##to *d = dst;                                                                    \
        const WF_CTYPE_##from *s = src;                                                            \
        WF_IVDEP for (size_t i = 0; i < n; i++) d[i] = wf_to_##to##_##from(s[i]);                  \
    }
#define WF_MOVE(width)                                                                             \
    static void c_move##width(void *dst, const void *src, size_t n)                                \
    {                                                                                              \
        wf_move(dst, src, (int64_t)n *width);                                                      \
    }
WF_MOVE(1)
WF_MOVE(2)
WF_MOVE(4)
WF_MOVE(8)

/* Same-width integers are moves, and so is anything without loss of bits. */
#define WF_CASTS_INT(from)                                                                         \
    WF_CAST(bool, from)                                                                            \
    WF_CAST(f64, from)
WF_CASTS_INT(u8)
WF_CASTS_INT(i8)
WF_CASTS_INT(i16)
WF_CASTS_INT(i32)
WF_CASTS_INT(i64)
WF_CAST(i16, u8)
WF_CAST(i32, u8)
WF_CAST(i64, u8)
WF_CAST(i16, i8)
WF_CAST(i32, i8)
WF_CAST(i64, i8)
WF_CAST(u8, i16)
WF_CAST(i32, i16)
WF_CAST(i64, i16)
WF_CAST(u8, i32)
WF_CAST(i16, i32)
WF_CAST(i64, i32)
WF_CAST(u8, i64)
WF_CAST(i16, i64)
WF_CAST(i32, i64)
WF_CAST(f32, u8)
WF_CAST(f32, i8)
WF_CAST(f32, i16)
WF_CAST(f32, i32)
WF_CAST(f32, i64)
#define WF_CASTS_FLOAT(from)                                                                       \
    WF_CAST(bool, from)                                                                            \
    WF_CAST(u8, from)                                                                              \
    WF_CAST(i8, from)                                                                              \
    WF_CAST(i16, from)                                                                             \
    WF_CAST(i32, from)                                                                             \
    WF_CAST(i64, from)
WF_CASTS_FLOAT(f32)
WF_CASTS_FLOAT(f64)
WF_CAST(f64, f32)
WF_CAST(f32, bf16)
WF_CAST(f32, f64)
#if defined(__AVX512BW__)
/* The bf16 of two registers of f32: the sums that round, their upper halves side by side. NaNs, which must not round
 * to infinity, are seen in pairs. */
static inline __m512i bf16_of_32(__m512 x, __m512 y, __m512i upper)
{
    const bool nan = _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q) != 0;
    return _mm512_permutex2var_epi16(wf_bf16_round(x, nan), upper, wf_bf16_round(y, nan));
}
/* Words 1, 3, 5 ...: the upper halves. */
static inline __m512i upper_halves(void)
{
    uint16_t odd[32];
    for (int k = 0; k < 32; k++)
        odd[k] = (uint16_t)(2 * k + 1);
    return _mm512_loadu_si512(odd);
}
/* Steps of 64 by the instruction for it (AVX512_BF16), which has the same bits but where it takes denormal numbers for 0. How many
 * elements that were. */
__attribute__((noinline, target("avx512bf16"))) static size_t
rounded_at_once(uint16_t *d, const float *s, size_t n)
{
    enum { DENORMAL = 0x20 };
    const __m512i upper = upper_halves();
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512 a = _mm512_loadu_ps(s + i), b = _mm512_loadu_ps(s + i + 16);
        const __m512 e = _mm512_loadu_ps(s + i + 32), f = _mm512_loadu_ps(s + i + 48);
        const __mmask16 first =
            _kor_mask16(_mm512_fpclass_ps_mask(a, DENORMAL), _mm512_fpclass_ps_mask(b, DENORMAL));
        const __mmask16 second =
            _kor_mask16(_mm512_fpclass_ps_mask(e, DENORMAL), _mm512_fpclass_ps_mask(f, DENORMAL));
        if (__builtin_expect(_kortestz_mask16_u8(first, second), 1)) {
            _mm512_storeu_si512(d + i, (__m512i)_mm512_cvtne2ps_pbh(b, a));
            _mm512_storeu_si512(d + i + 32, (__m512i)_mm512_cvtne2ps_pbh(f, e));
        } else {
            _mm512_storeu_si512(d + i, bf16_of_32(a, b, upper));
            _mm512_storeu_si512(d + i + 32, bf16_of_32(e, f, upper));
        }
    }
    return i;
}
OUT_OF_LINE void c_bf16_f32(void *dst, const void *src, size_t n)
{
    uint16_t *d = dst;
    const float *s = src;
    size_t i = n >= 64 && wf_bf16_pairs() ? rounded_at_once(d, s, n) : 0;
    const __m512i upper = upper_halves();
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(d + i,
                            bf16_of_32(_mm512_loadu_ps(s + i), _mm512_loadu_ps(s + i + 16), upper));
    for (; i < n; i++)
        d[i] = wf_bf16_of_f32(s[i]);
}
#elif defined(__AVX2__)
/* The bf16 of two registers of f32: lower and upper halves apart, in lanes. (The scalar text's loop is narrowed, widened and narrowed
 * again by gcc.) nan: some may be. */
static inline __m256i bf16_of_16(__m256 x, __m256 y, bool nan)
{
    const __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i u = _mm256_shuffle_epi8(_mm256_castps_si256(x), apart);
    const __m256i v = _mm256_shuffle_epi8(_mm256_castps_si256(y), apart);
    const __m256i low = _mm256_unpacklo_epi64(u, v), high = _mm256_unpackhi_epi64(u, v);
    __m256i r = wf_bf16_round(low, high);
    if (__builtin_expect(nan, 0)) {
        const __m256i is =
            _mm256_packs_epi32(_mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)),
                               _mm256_castps_si256(_mm256_cmp_ps(y, y, _CMP_UNORD_Q)));
        r = wf_bf16_with_nan(r, high, is);
    }
    return _mm256_permute4x64_epi64(r, 0xD8);
}
/* 32 of them, of which NaNs are looked for together. */
static inline void bf16_of_32(uint16_t *d, const float *s)
{
    const __m256 a = _mm256_loadu_ps(s), b = _mm256_loadu_ps(s + 8);
    const __m256 e = _mm256_loadu_ps(s + 16), f = _mm256_loadu_ps(s + 24);
    const bool nan = _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q),
                                                     _mm256_cmp_ps(e, f, _CMP_UNORD_Q))) != 0;
    _mm256_storeu_si256((void *)d, bf16_of_16(a, b, nan));
    _mm256_storeu_si256((void *)(d + 16), bf16_of_16(e, f, nan));
}
OUT_OF_LINE void c_bf16_f32(void *dst, const void *src, size_t n)
{
    uint16_t *d = dst;
    const float *s = src;
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        bf16_of_32(d + i, s + i);
    for (; i < n; i++) {
        d[i] = wf_bf16_of_f32(s[i]);
        __asm__("" : "+r"(i)); /* no loop for vectors */
    }
}
#else
WF_CAST(bf16, f32)
#endif

#if defined(__F16C__)
OUT_OF_LINE void c_f32_f16(void *dst, const void *src, size_t n)
{
    float *d = dst;
    const uint16_t *s = src;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(d + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(s + i))));
#endif
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(s + i))));
    for (; i < n; i++)
        d[i] = wf_f32_of_f16(s[i]);
}
OUT_OF_LINE void c_f16_f32(void *dst, const void *src, size_t n)
{
    uint16_t *d = dst;
    const float *s = src;
    size_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(d + i), _mm512_cvtps_ph(_mm512_loadu_ps(s + i), 0));
#endif
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), 0));
    for (; i < n; i++)
        d[i] = wf_f16_of_f32(s[i]);
}
#else
WF_CAST(f32, f16)
WF_CAST(f16, f32)
#endif

/* -- past the caches ----------------------------------------------------------------------------------------- */
/* Memory is asked for this many bytes ahead, a line at a time: non-temporal stores take the place in which the
 * processor would have looked ahead by itself, and a burst of requests would wait for room. */
enum { AHEAD = 4096 };
#if defined(__AVX2__)
#if defined(__AVX512BW__)
enum { VECTOR = 64 };
#define LOCALS                                                                                     \
    const __m512i upper = upper_halves();                                                          \
    (void)upper;
#define STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define FLT(p) _mm512_loadu_ps(p)
#define HALF(p) _mm256_loadu_si256((const void *)(p))
#define TO_BF16 bf16_of_32(FLT(s + k), FLT(s + k + 16), upper)
#define OF_BF16 _mm512_slli_epi32(_mm512_cvtepu16_epi32(HALF(s + k)), 16)
#define TO_F16                                                                                     \
    _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph(FLT(s + k), 0)),                     \
                       _mm512_cvtps_ph(FLT(s + k + 16), 0), 1)
#define OF_F16 _mm512_castps_si512(_mm512_cvtph_ps(HALF(s + k)))
#else
enum { VECTOR = 32 };
#define LOCALS
#define STREAM(p, v) _mm256_stream_si256((void *)(p), v)
#define FLT(p) _mm256_loadu_ps(p)
#define HALF(p) _mm_loadu_si128((const void *)(p))
#define NAN_OF(x, y) (_mm256_movemask_ps(_mm256_cmp_ps(x, y, _CMP_UNORD_Q)) != 0)
#define TO_BF16 bf16_of_16(FLT(s + k), FLT(s + k + 8), NAN_OF(FLT(s + k), FLT(s + k + 8)))
#define OF_BF16 _mm256_slli_epi32(_mm256_cvtepu16_epi32(HALF(s + k)), 16)
#define TO_F16 _mm256_set_m128i(_mm256_cvtps_ph(FLT(s + k + 8), 0), _mm256_cvtps_ph(FLT(s + k), 0))
#define OF_F16 _mm256_castps_si256(_mm256_cvtph_ps(HALF(s + k)))
#endif
/* Steps of 64 elements; dst is aligned to 64 bytes. */
#define WF_CAST_PAST(to, from, value)                                                              \
    static void past_##to##_##from(void *dst, const void *src, size_t n)                           \
    {                                                                                              \
        WF_CTYPE_##to *d = dst;                                                                    \
        const WF_CTYPE_##from *s = src;                                                            \
        LOCALS                                                                                     \
        size_t i = 0;                                                                              \
        for (; i + 64 <= n; i += 64) {                                                             \
            for (size_t o = 0; o < 64 * sizeof *s; o += 64)                                        \
                __builtin_prefetch((const char *)(s + i) + AHEAD + o);                             \
            _Pragma("GCC unroll 8") for (size_t k = i; k < i + 64; k += VECTOR / sizeof *d)        \
                STREAM(d + k, value);                                                              \
        }                                                                                          \
        c_##to##_##from(d + i, s + i, n - i);                                                      \
    }
WF_CAST_PAST(bf16, f32, TO_BF16)
WF_CAST_PAST(f32, bf16, OF_BF16)
WF_CAST_PAST(f16, f32, TO_F16)
WF_CAST_PAST(f32, f16, OF_F16)
extern const wf_cast_fn WF_SYM(wf_cast_past)[WF_NDTYPE][WF_NDTYPE];
const wf_cast_fn WF_SYM(wf_cast_past)[WF_NDTYPE][WF_NDTYPE] = {
    [WEFT_BF16] = {[WEFT_F32] = past_bf16_f32},
    [WEFT_F16] = {[WEFT_F32] = past_f16_f32},
    [WEFT_F32] = {[WEFT_BF16] = past_f32_bf16, [WEFT_F16] = past_f32_f16},
};
#else
extern const wf_cast_fn WF_SYM(wf_cast_past)[WF_NDTYPE][WF_NDTYPE];
const wf_cast_fn WF_SYM(wf_cast_past)[WF_NDTYPE][WF_NDTYPE] = {[WEFT_BF16] = {NULL}};
#endif

/* From a half type, or to one from another type: by way of an f32, which has its value or rounds alike, a piece at a time. */
enum { PIECE = 256 };
#define WF_VIA_F32(to, from, load, store)                                                          \
    static void c_##to##_##from(void *dst, const void *src, size_t n)                              \
    {                                                                                              \
        WF_CTYPE_##to *d = dst;                                                                    \
        const WF_CTYPE_##from *s = src;                                                            \
        float t[PIECE];                                                                            \
        for (size_t o = 0; o < n; o += PIECE) {                                                    \
            const size_t m = n - o < PIECE ? n - o : PIECE;                                        \
            load;                                                                                  \
            store(d + o, t, m);                                                                    \
        }                                                                                          \
    }
#define WF_WIDENED(from) c_f32_##from(t, s + o, m)
#define WF_OF_HALF(from)                                                                           \
    WF_VIA_F32(bool, from, WF_WIDENED(from), c_bool_f32)                                           \
    WF_VIA_F32(u8, from, WF_WIDENED(from), c_u8_f32)                                               \
    WF_VIA_F32(i8, from, WF_WIDENED(from), c_i8_f32)                                               \
    WF_VIA_F32(i16, from, WF_WIDENED(from), c_i16_f32)                                             \
    WF_VIA_F32(i32, from, WF_WIDENED(from), c_i32_f32)                                             \
    WF_VIA_F32(i64, from, WF_WIDENED(from), c_i64_f32)                                             \
    WF_VIA_F32(f64, from, WF_WIDENED(from), c_f64_f32)
WF_OF_HALF(f16)
WF_OF_HALF(bf16)
WF_VIA_F32(f16, bf16, WF_WIDENED(bf16), c_f16_f32)
WF_VIA_F32(bf16, f16, WF_WIDENED(f16), c_bf16_f32)
#define WF_ROUNDED(from) WF_IVDEP for (size_t i = 0; i < m; i++) t[i] = wf_half_##from(s[o + i])
#define WF_HALVES(from)                                                                            \
    WF_VIA_F32(f16, from, WF_ROUNDED(from), c_f16_f32)                                             \
    WF_VIA_F32(bf16, from, WF_ROUNDED(from), c_bf16_f32)
WF_HALVES(u8)
WF_HALVES(i8)
WF_HALVES(i16)
WF_HALVES(i32)
WF_HALVES(i64)
WF_HALVES(f64)

extern const wf_cast_fn WF_SYM(wf_cast)[WF_NDTYPE][WF_NDTYPE];
/* clang-format off */
const wf_cast_fn WF_SYM(wf_cast)[WF_NDTYPE][WF_NDTYPE] = {
    [WEFT_BOOL] = {[WEFT_BOOL] = c_move1, [WEFT_U8] = c_bool_u8, [WEFT_I8] = c_bool_i8,
                   [WEFT_I16] = c_bool_i16, [WEFT_I32] = c_bool_i32, [WEFT_I64] = c_bool_i64,
                   [WEFT_F16] = c_bool_f16, [WEFT_BF16] = c_bool_bf16, [WEFT_F32] = c_bool_f32,
                   [WEFT_F64] = c_bool_f64},
    [WEFT_U8] = {[WEFT_BOOL] = c_move1, [WEFT_U8] = c_move1, [WEFT_I8] = c_move1,
                 [WEFT_I16] = c_u8_i16, [WEFT_I32] = c_u8_i32, [WEFT_I64] = c_u8_i64,
                 [WEFT_F16] = c_u8_f16, [WEFT_BF16] = c_u8_bf16, [WEFT_F32] = c_u8_f32,
                 [WEFT_F64] = c_u8_f64},
    [WEFT_I8] = {[WEFT_BOOL] = c_move1, [WEFT_U8] = c_move1, [WEFT_I8] = c_move1,
                 [WEFT_I16] = c_u8_i16, [WEFT_I32] = c_u8_i32, [WEFT_I64] = c_u8_i64,
                 [WEFT_F16] = c_i8_f16, [WEFT_BF16] = c_i8_bf16, [WEFT_F32] = c_i8_f32,
                 [WEFT_F64] = c_i8_f64},
    [WEFT_I16] = {[WEFT_BOOL] = c_i16_u8, [WEFT_U8] = c_i16_u8, [WEFT_I8] = c_i16_i8,
                  [WEFT_I16] = c_move2, [WEFT_I32] = c_i16_i32, [WEFT_I64] = c_i16_i64,
                  [WEFT_F16] = c_i16_f16, [WEFT_BF16] = c_i16_bf16, [WEFT_F32] = c_i16_f32,
                  [WEFT_F64] = c_i16_f64},
    [WEFT_I32] = {[WEFT_BOOL] = c_i32_u8, [WEFT_U8] = c_i32_u8, [WEFT_I8] = c_i32_i8,
                  [WEFT_I16] = c_i32_i16, [WEFT_I32] = c_move4, [WEFT_I64] = c_i32_i64,
                  [WEFT_F16] = c_i32_f16, [WEFT_BF16] = c_i32_bf16, [WEFT_F32] = c_i32_f32,
                  [WEFT_F64] = c_i32_f64},
    [WEFT_I64] = {[WEFT_BOOL] = c_i64_u8, [WEFT_U8] = c_i64_u8, [WEFT_I8] = c_i64_i8,
                  [WEFT_I16] = c_i64_i16, [WEFT_I32] = c_i64_i32, [WEFT_I64] = c_move8,
                  [WEFT_F16] = c_i64_f16, [WEFT_BF16] = c_i64_bf16, [WEFT_F32] = c_i64_f32,
                  [WEFT_F64] = c_i64_f64},
    [WEFT_F16] = {[WEFT_BOOL] = c_f16_u8, [WEFT_U8] = c_f16_u8, [WEFT_I8] = c_f16_i8,
                  [WEFT_I16] = c_f16_i16, [WEFT_I32] = c_f16_i32, [WEFT_I64] = c_f16_i64,
                  [WEFT_F16] = c_move2, [WEFT_BF16] = c_f16_bf16, [WEFT_F32] = c_f16_f32,
                  [WEFT_F64] = c_f16_f64},
    [WEFT_BF16] = {[WEFT_BOOL] = c_bf16_u8, [WEFT_U8] = c_bf16_u8, [WEFT_I8] = c_bf16_i8,
                   [WEFT_I16] = c_bf16_i16, [WEFT_I32] = c_bf16_i32, [WEFT_I64] = c_bf16_i64,
                   [WEFT_F16] = c_bf16_f16, [WEFT_BF16] = c_move2, [WEFT_F32] = c_bf16_f32,
                   [WEFT_F64] = c_bf16_f64},
    [WEFT_F32] = {[WEFT_BOOL] = c_f32_u8, [WEFT_U8] = c_f32_u8, [WEFT_I8] = c_f32_i8,
                  [WEFT_I16] = c_f32_i16, [WEFT_I32] = c_f32_i32, [WEFT_I64] = c_f32_i64,
                  [WEFT_F16] = c_f32_f16, [WEFT_BF16] = c_f32_bf16, [WEFT_F32] = c_move4,
                  [WEFT_F64] = c_f32_f64},
    [WEFT_F64] = {[WEFT_BOOL] = c_f64_u8, [WEFT_U8] = c_f64_u8, [WEFT_I8] = c_f64_i8,
                  [WEFT_I16] = c_f64_i16, [WEFT_I32] = c_f64_i32, [WEFT_I64] = c_f64_i64,
                  [WEFT_F16] = c_f64_f16, [WEFT_BF16] = c_f64_bf16, [WEFT_F32] = c_f64_f32,
                  [WEFT_F64] = c_move8},
};
/* clang-format on */
