/*
 * eager/kernels/copy.inc.c -- moving elements: strided pack and unpack with transposes in registers,
 * streaming copies, and the table wf_kernels_<isa> of everything in this folder that map.c uses.
 *
 * A transpose block takes B columns of the source (contiguous along i) and writes B rows of one register. Elements
 * are bit patterns of 1, 2, 4 or 8 bytes; what they mean does not matter here.
 *
 * Invariant: non-temporal stores are followed by the caller's fence before another thread may read.
 */
#include "eager/kernels/kernels.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* -- register transposes: B x B elements, columns of src ld_s apart, rows of dst ld_d apart ------------ */
/* Loops over registers are unrolled, or the registers would live on the stack. */
#define UNROLLED _Pragma("GCC unroll 16")
/* A lane of 128 bits holds PER = 16 / sizeof(T) neighbours of one source column; a register holds the lanes of columns
 * k, k + PER, k + 2 PER ..., put side by side by loads (shuffles are what limits a transpose). One round of
 * interleaving halves the way to the transpose: after log2(PER) rounds register k holds a row of dst. */
#define ROUND(PER, lo, hi)                                                                         \
    UNROLLED for (int k = 0; k < PER / 2; k++)                                                     \
    {                                                                                              \
        t[2 * k] = lo(r[k], r[k + PER / 2]);                                                       \
        t[2 * k + 1] = hi(r[k], r[k + PER / 2]);                                                   \
    }                                                                                              \
    UNROLLED for (int k = 0; k < PER; k++)                                                         \
    {                                                                                              \
        r[k] = t[k];                                                                               \
    }

/* SIDE blocks side by side, so that whole lines are written. */
#define BLOCK_FN(name, T, PER, SIDE, LANES, V, PUT, ROUNDS)                                        \
    __attribute__((unused)) static inline void name(T *dst, int64_t ld_d, const T *src,            \
                                                    int64_t ld_s, bool nt)                         \
    {                                                                                              \
        enum { WIDTH = sizeof(V) / sizeof(T) };                                                    \
        for (int q = 0; q < (int)(sizeof(V) / 16); q++) {                                          \
            V side[SIDE][PER];                                                                     \
            UNROLLED for (int h = 0; h < SIDE; h++)                                                \
            {                                                                                      \
                V *r = side[h], t[PER];                                                            \
                UNROLLED for (int k = 0; k < PER; k++)                                             \
                {                                                                                  \
                    r[k] = LANES((const char *)(src + q * PER + (h * WIDTH + k) * ld_s),           \
                                 PER * ld_s * (int64_t)sizeof(T));                                 \
                }                                                                                  \
                ROUNDS                                                                             \
            }                                                                                      \
            UNROLLED for (int k = 0; k < PER; k++)                                                 \
            {                                                                                      \
                UNROLLED for (int h = 0; h < SIDE; h++)                                            \
                {                                                                                  \
                    PUT(dst + (q * PER + k) * ld_d + h * WIDTH, side[h][k], nt);                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

static inline __m128i lanes128(const char *p, int64_t ld)
{
    (void)ld;
    return _mm_loadu_si128((const void *)p);
}
static inline void put128(void *p, __m128i v, bool nt)
{
    (void)nt;
    _mm_storeu_si128(p, v);
}
#define ROUND8 ROUND(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
BLOCK_FN(little_1, uint8_t, 16, 1, lanes128, __m128i, put128, ROUND8 ROUND8 ROUND8 ROUND8)
BLOCK_FN(little_2, uint16_t, 8, 1, lanes128, __m128i, put128, ROUND16 ROUND16 ROUND16)
BLOCK_FN(little_4, uint32_t, 4, 1, lanes128, __m128i, put128, ROUND32 ROUND32)
BLOCK_FN(little_8, uint64_t, 2, 1, lanes128, __m128i, put128, ROUND64)
#undef ROUND8
#undef ROUND16
#undef ROUND32
#undef ROUND64

#if defined(__AVX512F__)
enum { VECTOR = 64, SIDE = 1 };
typedef __m512i vector;
static inline vector lanes_of(const char *p, int64_t ld)
{
    vector v = _mm512_castsi128_si512(lanes128(p, 0));
    v = _mm512_mask_broadcast_i64x2(v, 0x0C, lanes128(p + ld, 0));
    v = _mm512_mask_broadcast_i64x2(v, 0x30, lanes128(p + 2 * ld, 0));
    return _mm512_mask_broadcast_i64x2(v, 0xC0, lanes128(p + 3 * ld, 0));
}
static inline void put(void *p, vector v, bool nt)
{
    if (nt)
        _mm512_stream_si512(p, v);
    else
        _mm512_storeu_si512(p, v);
}
#define ROUND8 ROUND(16, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm512_unpacklo_epi16, _mm512_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm512_unpacklo_epi32, _mm512_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm512_unpacklo_epi64, _mm512_unpackhi_epi64)
#elif defined(__AVX2__)
enum { VECTOR = 32, SIDE = 2 };
typedef __m256i vector;
static inline vector lanes_of(const char *p, int64_t ld)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(lanes128(p, 0)), lanes128(p + ld, 0), 1);
}
static inline void put(void *p, vector v, bool nt)
{
    if (nt)
        _mm256_stream_si256(p, v);
    else
        _mm256_storeu_si256(p, v);
}
#define ROUND8 ROUND(16, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm256_unpacklo_epi16, _mm256_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm256_unpacklo_epi32, _mm256_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm256_unpacklo_epi64, _mm256_unpackhi_epi64)
#else
enum { VECTOR = 16, SIDE = 1 };
typedef __m128i vector;
#define lanes_of lanes128
#define put put128
#define ROUND8 ROUND(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
#define ROUND16 ROUND(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
#define ROUND32 ROUND(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
#define ROUND64 ROUND(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
#endif
BLOCK_FN(block_1, uint8_t, 16, 1, lanes_of, vector, put, ROUND8 ROUND8 ROUND8 ROUND8)
BLOCK_FN(line_1, uint8_t, 16, SIDE, lanes_of, vector, put, ROUND8 ROUND8 ROUND8 ROUND8)
BLOCK_FN(block_2, uint16_t, 8, 1, lanes_of, vector, put, ROUND16 ROUND16 ROUND16)
BLOCK_FN(line_2, uint16_t, 8, SIDE, lanes_of, vector, put, ROUND16 ROUND16 ROUND16)
BLOCK_FN(block_4, uint32_t, 4, 1, lanes_of, vector, put, ROUND32 ROUND32)
BLOCK_FN(line_4, uint32_t, 4, SIDE, lanes_of, vector, put, ROUND32 ROUND32)
BLOCK_FN(block_8, uint64_t, 2, 1, lanes_of, vector, put, ROUND64)
BLOCK_FN(line_8, uint64_t, 2, SIDE, lanes_of, vector, put, ROUND64)

/* -- pack and unpack -------------------------------------------------------------------------------------- */
/* Non-temporal stores want rows that start on a line: half a line would be written twice. */
#define ALIGNED_ROWS(T, dst, ldd) (((uintptr_t)(dst) | (uintptr_t)(ldd) * sizeof(T)) % 64 == 0)

/* Rows of dst are written one block after the other, so that lines and pages of it fill up. What is written two lines
 * on is fetched already: stores wait longer for their lines than loads do (but blocks of short elements wait for
 * their shuffles). */
#define PACK(T, width)                                                                             \
    static inline void transpose_##width(T *d, int64_t ldd, const T *s, int64_t s0, size_t m,      \
                                         size_t n, bool nt)                                        \
    {                                                                                              \
        enum { B = VECTOR / sizeof(T), L = 16 / sizeof(T) };                                       \
        const int64_t w = nt ? SIDE * B : B;                                                       \
        const int64_t mb = (int64_t)m / B * B, nb = (int64_t)n / w * w;                            \
        const int64_t ml = (int64_t)(m / L * L), nl = (int64_t)(n / L * L);                        \
        for (int64_t i = 0; i < mb; i += B)                                                        \
            for (int64_t j = 0; j < nb; j += w) {                                                  \
                T *to = d + i * ldd + j;                                                           \
                if (!nt && sizeof(T) >= 4) {                                                       \
                    UNROLLED for (int k = 0; k < B; k++)                                           \
                    {                                                                              \
                        __builtin_prefetch(to + k * ldd + 128 / (int64_t)sizeof(T), 1);            \
                    }                                                                              \
                }                                                                                  \
                (nt ? line_##width : block_##width)(to, ldd, s + i + j * s0, s0, nt);              \
            }                                                                                      \
        for (int64_t i = 0; i < ml; i += L)                                                        \
            for (int64_t j = i < mb ? nb : 0; j < nl; j += L)                                      \
                little_##width(d + i * ldd + j, ldd, s + i + j * s0, s0, false);                   \
        for (int64_t i = 0; i < (int64_t)m; i++)                                                   \
            for (int64_t j = i < ml ? nl : 0; j < (int64_t)n; j++)                                 \
                d[i * ldd + j] = s[i + j * s0];                                                    \
    }                                                                                              \
    static void pack_##width(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,      \
                             size_t m, size_t n)                                                   \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *s = src;                                                                          \
        if (s1 == 1 && s0 != 1) {                                                                  \
            transpose_##width(d, ldd, s, s0, m, n, false);                                         \
            return;                                                                                \
        }                                                                                          \
        for (size_t i = 0; i < m; i++, d += ldd, s += s1) {                                        \
            if (s0 == 1 && n >= 32) {                                                              \
                memcpy(d, s, n * sizeof(T));                                                       \
            } else if (s0 == 1) {                                                                  \
                for (size_t j = 0; j < n; j++)                                                     \
                    d[j] = s[j];                                                                   \
            } else if (s0 == 0) {                                                                  \
                const T v = n ? *s : 0;                                                            \
                for (size_t j = 0; j < n; j++)                                                     \
                    d[j] = v;                                                                      \
            } else {                                                                               \
                for (size_t j = 0; j < n; j++)                                                     \
                    d[j] = s[(int64_t)j * s0];                                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void pack_nt_##width(void *dst, int64_t ldd, const void *src, int64_t s1, int64_t s0,   \
                                size_t m, size_t n)                                                \
    {                                                                                              \
        if (s1 == 1 && s0 != 1 && ALIGNED_ROWS(T, dst, ldd))                                       \
            transpose_##width(dst, ldd, src, s0, m, n, true);                                      \
        else if (s0 == 1)                                                                          \
            for (size_t i = 0; i < m; i++)                                                         \
                stream((T *)dst + (int64_t)i * ldd, (const T *)src + (int64_t)i * s1,              \
                       n * sizeof(T));                                                             \
        else                                                                                       \
            pack_##width(dst, ldd, src, s1, s0, m, n);                                             \
    }                                                                                              \
    static void unpack_##width(void *dst, int64_t s1, int64_t s0, const void *src, size_t m,       \
                               size_t n)                                                           \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *s = src;                                                                          \
        for (size_t i = 0; i < m; i++, d += s1, s += n) {                                          \
            if (s0 == 1 && n >= 32) {                                                              \
                memcpy(d, s, n * sizeof(T));                                                       \
            } else if (s0 == 1) {                                                                  \
                for (size_t j = 0; j < n; j++)                                                     \
                    d[j] = s[j];                                                                   \
            } else {                                                                               \
                for (size_t j = 0; j < n; j++)                                                     \
                    d[(int64_t)j * s0] = s[j];                                                     \
            }                                                                                      \
        }                                                                                          \
    }

static void stream(void *dst, const void *src, size_t bytes)
{
    char *d = dst;
    const char *s = src;
    size_t head = (64 - (uintptr_t)d % 64) % 64;
    if (head > bytes)
        head = bytes;
    memcpy(d, s, head);
    size_t i = head;
    for (; i + 64 <= bytes; i += 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512((void *)(d + i), _mm512_loadu_si512((const void *)(s + i)));
#elif defined(__AVX2__)
        _mm256_stream_si256((void *)(d + i), _mm256_loadu_si256((const void *)(s + i)));
        _mm256_stream_si256((void *)(d + i + 32), _mm256_loadu_si256((const void *)(s + i + 32)));
#else
        for (int k = 0; k < 64; k += 16)
            _mm_stream_si128((void *)(d + i + k), _mm_loadu_si128((const void *)(s + i + k)));
#endif
    }
    memcpy(d + i, s + i, bytes - i);
}
static void fence(void)
{
    _mm_sfence();
}

PACK(uint8_t, 1)
PACK(uint16_t, 2)
PACK(uint32_t, 4)
PACK(uint64_t, 8)

static const wf_pack_fn packs[WF_NWIDTH] = {pack_1, pack_2, pack_4, pack_8};
static const wf_pack_fn packs_nt[WF_NWIDTH] = {pack_nt_1, pack_nt_2, pack_nt_4, pack_nt_8};
static const wf_unpack_fn unpacks[WF_NWIDTH] = {unpack_1, unpack_2, unpack_4, unpack_8};

/* -- the table ----------------------------------------------------------------------------------------------- */
extern const wf_map_fn WF_SYM(wf_map_u8)[], WF_SYM(wf_map_i8)[], WF_SYM(wf_map_i16)[],
    WF_SYM(wf_map_i32)[], WF_SYM(wf_map_i64)[], WF_SYM(wf_map_f32)[], WF_SYM(wf_map_f64)[];
extern const bool WF_SYM(wf_map_past)[];
extern const wf_map_fn WF_SYM(wf_vjp_f32)[][WF_VJP_MAX], WF_SYM(wf_vjp_f64)[][WF_VJP_MAX];
extern const wf_cast_fn WF_SYM(wf_cast)[][WF_NDTYPE], WF_SYM(wf_cast_past)[][WF_NDTYPE];

const wf_kernels WF_SYM(wf_kernels) = {
    .map = {[WF_CT_U8] = WF_SYM(wf_map_u8),
            [WF_CT_I8] = WF_SYM(wf_map_i8),
            [WF_CT_I16] = WF_SYM(wf_map_i16),
            [WF_CT_I32] = WF_SYM(wf_map_i32),
            [WF_CT_I64] = WF_SYM(wf_map_i64),
            [WF_CT_F32] = WF_SYM(wf_map_f32),
            [WF_CT_F64] = WF_SYM(wf_map_f64)},
    .past = WF_SYM(wf_map_past),
    .vjp = {WF_SYM(wf_vjp_f32), WF_SYM(wf_vjp_f64)},
    .cast = WF_SYM(wf_cast),
    .cast_past = WF_SYM(wf_cast_past),
    .pack = packs,
    .pack_nt = packs_nt,
    .unpack = unpacks,
    .stream = stream,
    .fence = fence,
};
