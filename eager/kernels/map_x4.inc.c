/*
 * eager/kernels/map_x4.inc.c -- the rows of map_x4.h four registers at a time. AVX2 has half as many, which
 * hold two. Some rows run from halves to halves, too.
 */
#if defined(__AVX512F__)
#define WF_REGISTERS 4
#else
#define WF_REGISTERS 2
#endif
#include <stdbool.h>
#include <string.h>

#include "eager/kernels/bf16_vec.h"
#include "eager/kernels/loops.h"
#include "eager/kernels/map_x4_rows.h"

/* Of halves of either type by their bits alone: nothing is widened. */
static void half_COPYSIGN(void *dst, const void *const *src, size_t n, unsigned bcast)
{
    enum { SIGN = 0x8000 };
    uint16_t *d = dst;
    const uint16_t *a = src[0], *b = src[1];
    const uint16_t size = *a & (SIGN - 1), sign = *b & SIGN;
    if (bcast == 0) {
        WF_IVDEP for (size_t i = 0; i < n; i++) d[i] =
            (uint16_t)((a[i] & (SIGN - 1)) | (b[i] & SIGN));
    } else if (bcast == 2) {
        WF_IVDEP for (size_t i = 0; i < n; i++) d[i] = (uint16_t)((a[i] & (SIGN - 1)) | sign);
    } else {
        for (size_t i = 0; i < n; i++)
            d[i] = (uint16_t)(size | (bcast == 1 ? b[i] & SIGN : sign));
    }
}

/* Bits of halves as integers in the order of the values, -0 below +0; every NaN is `nan`, from which one comes back. */
enum {
    BITS_BELOW = 0x7FFF,
    INF_BF16 = 0x7F80,
    INF_F16 = 0x7C00,
    ABOVE_ALL = 0x7FFF,
    BELOW_ALL = -0x8000
};
WF_INLINE int16_t half_key(uint16_t u, int16_t inf, int16_t nan)
{
    const int16_t s = (int16_t)u, size = (int16_t)(u & BITS_BELOW);
    return size > inf ? nan : (int16_t)(s ^ (s >> 15 & BITS_BELOW));
}
WF_INLINE uint16_t half_of_key(int16_t k)
{
    return (uint16_t)(k ^ (k >> 15 & BITS_BELOW));
}
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define HALF_MOST(NAME, type, INF, NONE, OP)                                                       \
    static void half_##NAME##_##type(void *dst, const void *const *src, size_t n, unsigned bcast)  \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const uint16_t *a = src[bcast == 1], *b = src[bcast != 1]; /* b is one, if any is */       \
        const int16_t one = half_key(*b, INF, NONE), first = half_key(*a, INF, NONE);              \
        if (bcast == 0) {                                                                          \
            WF_IVDEP for (size_t i = 0; i < n; i++)                                                \
            {                                                                                      \
                const int16_t x = half_key(a[i], INF, NONE), y = half_key(b[i], INF, NONE);        \
                d[i] = half_of_key(OP(x, y));                                                      \
            }                                                                                      \
        } else if (bcast < 3) {                                                                    \
            WF_IVDEP for (size_t i = 0; i < n; i++)                                                \
            {                                                                                      \
                const int16_t x = half_key(a[i], INF, NONE);                                       \
                d[i] = half_of_key(OP(x, one));                                                    \
            }                                                                                      \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                d[i] = half_of_key(OP(first, one));                                                \
        }                                                                                          \
    }
HALF_MOST(MAXIMUM, BF16, INF_BF16, ABOVE_ALL, LARGER)
HALF_MOST(MAXIMUM, F16, INF_F16, ABOVE_ALL, LARGER)
HALF_MOST(MINIMUM, BF16, INF_BF16, BELOW_ALL, SMALLER)
HALF_MOST(MINIMUM, F16, INF_F16, BELOW_ALL, SMALLER)

/* What is below +0 is +0, but a NaN. */
#define HALF_RELU(type, INF)                                                                       \
    static void half_RELU_##type(void *dst, const void *const *src, size_t n, unsigned bcast)      \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const uint16_t *x = src[0], first = *x;                                                    \
        if (bcast) {                                                                               \
            for (size_t i = 0; i < n; i++)                                                         \
                d[i] = (first & BITS_BELOW) > INF || (int16_t)first >= 0 ? first : 0;              \
            return;                                                                                \
        }                                                                                          \
        WF_IVDEP for (size_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const int16_t s = (int16_t)x[i], size = (int16_t)(s & BITS_BELOW);                     \
            d[i] = size > INF ? x[i] : s < 0 ? 0 : x[i];                                           \
        }                                                                                          \
    }
HALF_RELU(BF16, INF_BF16)
HALF_RELU(F16, INF_F16)

/* Kernels by bits alone, or NULL. */
static wf_map_fn half_bits(wf_op op, bool bf16)
{
    return op == WF_OP_COPYSIGN  ? half_COPYSIGN
           : op == WF_OP_MAXIMUM ? (bf16 ? half_MAXIMUM_BF16 : half_MAXIMUM_F16)
           : op == WF_OP_MINIMUM ? (bf16 ? half_MINIMUM_BF16 : half_MINIMUM_F16)
           : op == WF_OP_RELU    ? (bf16 ? half_RELU_BF16 : half_RELU_F16)
                                 : NULL;
}

/* -- halves to halves -------------------------------------------------------------------------------- */
#ifdef WF_HAS_X4
/* Registers of bf16 as twice as many of f32: even and odd elements of each. */
WF_INLINE wf_x4 load_halves(const uint16_t *p, bool bf16)
{
    if (!bf16) {
#if WF_REGISTERS == 4
        const __m256i *q = (const void *)p;
#define LOAD_F16(k) (wf_vec_f32) _mm512_cvtph_ps(_mm256_loadu_si256(q + (k)))
        return (wf_x4){LOAD_F16(0), LOAD_F16(1), LOAD_F16(2), LOAD_F16(3)};
#else
        const __m128i *q = (const void *)p;
#define LOAD_F16(k) (wf_vec_f32) _mm256_cvtph_ps(_mm_loadu_si128(q + (k)))
        return (wf_x4){LOAD_F16(0), LOAD_F16(1)};
#endif
    }
#if WF_REGISTERS == 4
    const __m512i u = _mm512_loadu_si512(p), v = _mm512_loadu_si512(p + 32);
    return (wf_x4){(wf_vec_f32)wf_bf16_even(u), (wf_vec_f32)wf_bf16_odd(u),
                   (wf_vec_f32)wf_bf16_even(v), (wf_vec_f32)wf_bf16_odd(v)};
#else
    const __m256i u = _mm256_loadu_si256((const void *)p);
    return (wf_x4){(wf_vec_f32)wf_bf16_even(u), (wf_vec_f32)wf_bf16_odd(u)};
#endif
}
WF_INLINE void store_halves(uint16_t *p, wf_x4 y, bool bf16)
{
    if (!bf16) {
#if WF_REGISTERS == 4
        __m256i *q = (void *)p;
#define STORE_F16(k, v) _mm256_storeu_si256(q + (k), _mm512_cvtps_ph((__m512)(v), 0))
        STORE_F16(0, y.a), STORE_F16(1, y.b), STORE_F16(2, y.c), STORE_F16(3, y.d);
#else
        __m128i *q = (void *)p;
#define STORE_F16(k, v) _mm_storeu_si128(q + (k), _mm256_cvtps_ph((__m256)(v), 0))
        STORE_F16(0, y.a), STORE_F16(1, y.b);
#endif
        return;
    }
#if WF_REGISTERS == 4
    _mm512_storeu_si512(p, wf_bf16_of((__m512)y.a, (__m512)y.b));
    _mm512_storeu_si512(p + 32, wf_bf16_of((__m512)y.c, (__m512)y.d));
#else
    _mm256_storeu_si256((void *)p, wf_bf16_of((__m256)y.a, (__m256)y.b));
#endif
}

/* An operand: whole values, and in memory of its own what is left behind them, or the one element that stands for all. */
typedef struct halves {
    const uint16_t *s;
    size_t mask; /* of an index; 0: all are one */
    uint16_t last[WF_X4];
} halves;
#if WF_REGISTERS == 4
/* n elements, fewer than WF_X4, as registers or from them. */
WF_INLINE void move_halves(uint16_t *to, const uint16_t *from, size_t n, bool all)
{
    const uint64_t which = ~(UINT64_MAX << n), put = all ? UINT64_MAX : which;
    const __m512i u = _mm512_maskz_loadu_epi16((__mmask32)which, from);
    const __m512i v = _mm512_maskz_loadu_epi16((__mmask32)(which >> 32), from + 32);
    _mm512_mask_storeu_epi16(to, (__mmask32)put, u);
    _mm512_mask_storeu_epi16(to + 32, (__mmask32)(put >> 32), v);
}
__attribute__((noinline)) static void repeat_half(uint16_t *to, const uint16_t *one)
{
    const __m512i all = _mm512_set1_epi16((short)*one);
    _mm512_storeu_si512(to, all);
    _mm512_storeu_si512(to + 32, all);
}
WF_INLINE void open_halves(halves *x, const void *s, size_t n, bool one)
{
    const size_t whole = n / WF_X4 * WF_X4;
    x->s = one ? x->last : s;
    x->mask = one ? 0 : SIZE_MAX;
    if (one)
        repeat_half(x->last, s);
    else if (whole < n)
        move_halves(x->last, x->s + whole, n - whole, true);
}
#else
WF_INLINE void move_halves(uint16_t *to, const uint16_t *from, size_t n, bool all)
{
    (void)all;
    memcpy(to, from, n * sizeof *to);
}
__attribute__((noinline)) static void open_halves(halves *x, const void *s, size_t n, bool one)
{
    const size_t whole = n / WF_X4 * WF_X4;
    memset(x->last, 0, sizeof x->last);
    x->s = one ? x->last : s;
    x->mask = one ? 0 : SIZE_MAX;
    if (!one)
        memcpy(x->last, x->s + whole, (n - whole) * sizeof *x->s);
    for (int i = 0; one && i < WF_X4; i++)
        x->last[i] = *(const uint16_t *)s;
}
#endif

#define WF_X4_HALF_KERNEL(NAME, nsrc, bf16, loads, expr)                                           \
    static void NAME(void *dst, const void *const *src, size_t n, unsigned bcast)                  \
    {                                                                                              \
        uint16_t *d = dst, last[WF_X4];                                                            \
        const size_t whole = n / WF_X4 * WF_X4;                                                    \
        halves in[nsrc];                                                                           \
        for (int k = 0; k < nsrc; k++)                                                             \
            open_halves(&in[k], src[k], n, bcast >> k & 1);                                        \
        for (size_t i = 0; i < n; i += WF_X4) {                                                    \
            loads(bf16) store_halves(i < whole ? d + i : last, expr, bf16);                        \
        }                                                                                          \
        if (whole < n)                                                                             \
            move_halves(d + whole, last, n - whole, false);                                        \
    }
#define WF_HALF_AT(k, bf16) load_halves(i < whole ? in[k].s + (i & in[k].mask) : in[k].last, bf16)
#define WF_HALF_1(bf16) const wf_x4 x = WF_HALF_AT(0, bf16);
#define WF_HALF_2(bf16)                                                                            \
    const wf_x4 a = WF_HALF_AT(0, bf16);                                                           \
    const wf_x4 b = WF_HALF_AT(1, bf16);
#define WF_HALF_3(bf16)                                                                            \
    WF_HALF_2(bf16)                                                                                \
    const wf_x4 c = WF_HALF_AT(2, bf16);
#define WF_KEEP_BF16(NAME) WF_CAT(WF_KEEP_, WF_HALF_ON_X4(NAME))
#define WF_KEEP_F16(NAME) WF_CAT(WF_KEEP_, WF_F16_ON_X4(NAME))
#define WF_HALVES_OF(NAME, nsrc, loads, expr)                                                      \
    WF_KEEP_BF16(NAME)                                                                             \
    (WF_X4_HALF_KERNEL(bf16_##NAME, nsrc, true, loads, expr))                                      \
        WF_KEEP_F16(NAME)(WF_X4_HALF_KERNEL(f16_##NAME, nsrc, false, loads, expr))
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_HALVES_OF(NAME, 1, WF_HALF_1, expr)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_HALVES_OF(NAME, 2, WF_HALF_2, expr)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    WF_HALVES_OF(NAME, 3, WF_HALF_3, expr)
#include "jit/ir/ops.def"

/* The kernel of a row from halves of a type to such (declared by copy.inc.c, whose table has it); NULL: there is none. */
wf_map_fn WF_SYM(wf_map_half)(wf_op op, bool bf16)
{
#define WF_HALF_IS(NAME)                                                                           \
    WF_KEEP_BF16(NAME)                                                                             \
    (if (bf16 && op == WF_OP_##NAME) return bf16_##NAME;)                                          \
        WF_KEEP_F16(NAME)(if (!bf16 && op == WF_OP_##NAME) return f16_##NAME;)
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_HALF_IS(NAME)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) WF_HALF_IS(NAME)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) WF_HALF_IS(NAME)
#include "jit/ir/ops.def"
    return half_bits(op, bf16);
}
#else
wf_map_fn WF_SYM(wf_map_half)(wf_op op, bool bf16)
{
    return half_bits(op, bf16);
}
#endif
