/*
 * eager/kernels/copy.inc.c -- moving elements: strided pack and unpack with transposes in registers,
 * streaming copies, and the table wf_kernels_<isa> of everything in this folder that map.c uses.
 *
 * A transpose block takes B columns of the source (contiguous along i) and writes B rows. Elements are
 * bit patterns of 1, 2, 4 or 8 bytes; what they mean does not matter here.
 *
 * Invariant: non-temporal stores are followed by the caller's fence before another thread may read.
 */
#include "eager/kernels/kernels.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* -- register transposes: B x B elements, columns of src ld_s apart, rows of dst ld_d apart ------------ */
/* One round of interleaving halves: after log2(B) rounds row i holds column i. */
#define ROUND(B, lo, hi)                                                                           \
    for (int k = 0; k < B / 2; k++) {                                                              \
        t[2 * k] = lo(r[k], r[k + B / 2]);                                                         \
        t[2 * k + 1] = hi(r[k], r[k + B / 2]);                                                     \
    }                                                                                              \
    memcpy(r, t, sizeof r);

#define BLOCK_FN(name, T, B, V, LOAD, STORE, ROUNDS)                                               \
    __attribute__((unused)) static inline void name(T *dst, int64_t ld_d, const T *src,            \
                                                    int64_t ld_s, bool nt)                         \
    {                                                                                              \
        V r[B], t[B];                                                                              \
        (void)nt;                                                                                  \
        for (int k = 0; k < B; k++)                                                                \
            r[k] = LOAD((const void *)(src + k * ld_s));                                           \
        ROUNDS for (int k = 0; k < B; k++) STORE((void *)(dst + k * ld_d), r[k]);                  \
    }

/* 16 x 16 bytes and 8 x 8 16-bit elements with SSE2 */
#define ROUND8 ROUND(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
BLOCK_FN(block_1, uint8_t, 16, __m128i, _mm_loadu_si128, _mm_storeu_si128,
         ROUND8 ROUND8 ROUND8 ROUND8)
#define ROUND16 ROUND(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
BLOCK_FN(block_2, uint16_t, 8, __m128i, _mm_loadu_si128, _mm_storeu_si128, ROUND16 ROUND16 ROUND16)
enum { B1 = 16, B2 = 8 };

#if defined(__AVX512F__)
enum { B4 = 16, B8 = 8 };
static inline void put512(void *p, __m512i v, bool nt)
{
    if (nt)
        _mm512_stream_si512(p, v);
    else
        _mm512_storeu_si512(p, v);
}
/* Columns 8h..8h+7 of rows k and k + 8 side by side, by loads; shuffles are what limits a transpose. */
static inline __m512i halves(const uint32_t *p, int64_t ld)
{
    const __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)p));
    return _mm512_mask_broadcast_i64x4(low, 0xF0, _mm256_loadu_si256((const void *)(p + 8 * ld)));
}
static inline void block_4(uint32_t *dst, int64_t ld_d, const uint32_t *src, int64_t ld_s, bool nt)
{
    for (int h = 0; h < 2; h++) {
        __m512i r[8], t[8];
        for (int k = 0; k < 8; k++)
            r[k] = halves(src + 8 * h + k * ld_s, ld_s);
        for (int k = 0; k < 8; k += 4) {
            t[k] = _mm512_unpacklo_epi32(r[k], r[k + 1]);
            t[k + 1] = _mm512_unpackhi_epi32(r[k], r[k + 1]);
            t[k + 2] = _mm512_unpacklo_epi32(r[k + 2], r[k + 3]);
            t[k + 3] = _mm512_unpackhi_epi32(r[k + 2], r[k + 3]);
        }
        for (int k = 0; k < 8; k += 4) {
            r[k] = _mm512_unpacklo_epi64(t[k], t[k + 2]);
            r[k + 1] = _mm512_unpackhi_epi64(t[k], t[k + 2]);
            r[k + 2] = _mm512_unpacklo_epi64(t[k + 1], t[k + 3]);
            r[k + 3] = _mm512_unpackhi_epi64(t[k + 1], t[k + 3]);
        }
        /* r[c]: columns c and c + 4 of rows 0-3, then of rows 8-11; r[c + 4]: of the other rows */
        for (int c = 0; c < 4; c++) {
            const __m512i x = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
            const __m512i y = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xDD);
            put512(dst + (8 * h + c) * ld_d, _mm512_shuffle_i32x4(x, x, 0xD8), nt);
            put512(dst + (8 * h + c + 4) * ld_d, _mm512_shuffle_i32x4(y, y, 0xD8), nt);
        }
    }
}
/* Four lanes of 128 bits: two columns of rows k, k + 2, k + 4 and k + 6. */
static inline __m512i lanes8(const uint64_t *p, int64_t ld)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
    v = _mm512_mask_broadcast_i64x2(v, 0x0C, _mm_loadu_si128((const void *)(p + 2 * ld)));
    v = _mm512_mask_broadcast_i64x2(v, 0x30, _mm_loadu_si128((const void *)(p + 4 * ld)));
    return _mm512_mask_broadcast_i64x2(v, 0xC0, _mm_loadu_si128((const void *)(p + 6 * ld)));
}
static inline void block_8(uint64_t *dst, int64_t ld_d, const uint64_t *src, int64_t ld_s, bool nt)
{
    for (int q = 0; q < 4; q++) {
        const __m512i a = lanes8(src + 2 * q, ld_s), b = lanes8(src + 2 * q + ld_s, ld_s);
        put512(dst + 2 * q * ld_d, _mm512_unpacklo_epi64(a, b), nt);
        put512(dst + (2 * q + 1) * ld_d, _mm512_unpackhi_epi64(a, b), nt);
    }
}
#elif defined(__AVX2__)
enum { B4 = 8, B8 = 4 };
static inline __m256i lanes2(const void *p, const void *q)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(p)), _mm_loadu_si128(q),
                                   1);
}
static inline void put256(void *p, __m256i v, bool nt)
{
    if (nt)
        _mm256_stream_si256(p, v);
    else
        _mm256_storeu_si256(p, v);
}
static inline void block_4(uint32_t *dst, int64_t ld_d, const uint32_t *src, int64_t ld_s, bool nt)
{
    for (int q = 0; q < 2; q++) {
        const uint32_t *s = src + 4 * q;
        const __m256i a = lanes2(s, s + 4 * ld_s), b = lanes2(s + ld_s, s + 5 * ld_s);
        const __m256i c = lanes2(s + 2 * ld_s, s + 6 * ld_s),
                      d = lanes2(s + 3 * ld_s, s + 7 * ld_s);
        const __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
        const __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);
        uint32_t *o = dst + 4 * q * ld_d;
        put256(o, _mm256_unpacklo_epi64(ab0, cd0), nt);
        put256(o + ld_d, _mm256_unpackhi_epi64(ab0, cd0), nt);
        put256(o + 2 * ld_d, _mm256_unpacklo_epi64(ab1, cd1), nt);
        put256(o + 3 * ld_d, _mm256_unpackhi_epi64(ab1, cd1), nt);
    }
}
static inline void block_8(uint64_t *dst, int64_t ld_d, const uint64_t *src, int64_t ld_s, bool nt)
{
    for (int q = 0; q < 2; q++) {
        const uint64_t *s = src + 2 * q;
        const __m256i a = lanes2(s, s + 2 * ld_s), b = lanes2(s + ld_s, s + 3 * ld_s);
        put256(dst + 2 * q * ld_d, _mm256_unpacklo_epi64(a, b), nt);
        put256(dst + (2 * q + 1) * ld_d, _mm256_unpackhi_epi64(a, b), nt);
    }
}
#else
enum { B4 = 4, B8 = 2 };
#define ROUND32 ROUND(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
BLOCK_FN(block_4, uint32_t, 4, __m128i, _mm_loadu_si128, _mm_storeu_si128, ROUND32 ROUND32)
#define ROUND64 ROUND(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
BLOCK_FN(block_8, uint64_t, 2, __m128i, _mm_loadu_si128, _mm_storeu_si128, ROUND64)
#endif

/* -- pack and unpack -------------------------------------------------------------------------------------- */
/* Non-temporal stores want rows that start on their own vectors. */
#define ALIGNED_ROWS(T, B, dst, ldd)                                                               \
    (((uintptr_t)(dst) | (uintptr_t)(ldd) * sizeof(T)) % (B * sizeof(T)) == 0)

/* Rows of the source far apart defeat the processor's own looking ahead: each block asks for the one that
 * comes after it along j. Large copies go along i first, which reads longer pieces of rows. */
#define PACK(T, width, B)                                                                          \
    static inline void ahead_##width(const T *s, int64_t s0)                                       \
    {                                                                                              \
        for (int64_t k = B; k < 2 * B; k++)                                                        \
            __builtin_prefetch(s + k * s0);                                                        \
    }                                                                                              \
    static inline void transpose_##width(T *d, int64_t ldd, const T *s, int64_t s0, size_t m,      \
                                         size_t n, bool nt)                                        \
    {                                                                                              \
        const int64_t mb = (int64_t)(m / B * B), nb = (int64_t)(n / B * B);                        \
        if (nt) {                                                                                  \
            for (int64_t j = 0; j < nb; j += B)                                                    \
                for (int64_t i = 0; i < mb; i += B) {                                              \
                    ahead_##width(s + i + j * s0, s0);                                             \
                    block_##width(d + i * ldd + j, ldd, s + i + j * s0, s0, true);                 \
                }                                                                                  \
        } else {                                                                                   \
            for (int64_t i = 0; i < mb; i += B)                                                    \
                for (int64_t j = 0; j < nb; j += B)                                                \
                    block_##width(d + i * ldd + j, ldd, s + i + j * s0, s0, false);                \
        }                                                                                          \
        for (int64_t i = 0; i < mb; i++)                                                           \
            for (int64_t j = nb; j < (int64_t)n; j++)                                              \
                d[i * ldd + j] = s[i + j * s0];                                                    \
        for (int64_t i = mb; i < (int64_t)m; i++)                                                  \
            for (int64_t j = 0; j < (int64_t)n; j++)                                               \
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
        if (s1 == 1 && s0 != 1 && ALIGNED_ROWS(T, B, dst, ldd))                                    \
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

PACK(uint8_t, 1, B1)
PACK(uint16_t, 2, B2)
PACK(uint32_t, 4, B4)
PACK(uint64_t, 8, B8)

static const wf_pack_fn packs[WF_NWIDTH] = {pack_1, pack_2, pack_4, pack_8};
static const wf_pack_fn packs_nt[WF_NWIDTH] = {pack_nt_1, pack_nt_2, pack_nt_4, pack_nt_8};
static const wf_unpack_fn unpacks[WF_NWIDTH] = {unpack_1, unpack_2, unpack_4, unpack_8};

/* -- the table ----------------------------------------------------------------------------------------------- */
extern const wf_map_fn WF_SYM(wf_map_u8)[], WF_SYM(wf_map_i8)[], WF_SYM(wf_map_i16)[],
    WF_SYM(wf_map_i32)[], WF_SYM(wf_map_i64)[], WF_SYM(wf_map_f32)[], WF_SYM(wf_map_f64)[];
extern const bool WF_SYM(wf_map_past)[];
extern const wf_map_fn WF_SYM(wf_vjp_f32)[][WF_VJP_MAX], WF_SYM(wf_vjp_f64)[][WF_VJP_MAX];
extern const wf_cast_fn WF_SYM(wf_cast)[][WF_NDTYPE];

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
    .pack = packs,
    .pack_nt = packs_nt,
    .unpack = unpacks,
    .stream = stream,
    .fence = fence,
};
