/*
 * eager/kernels/map_x4.inc.c -- the rows of map_x4.h four registers at a time. AVX2 has half as many, which
 * hold two. Some rows run from bf16 to bf16, too.
 */
#if defined(__AVX512F__)
#define WF_REGISTERS 4
#else
#define WF_REGISTERS 2
#endif
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

/* -- bf16 to bf16 ------------------------------------------------------------------------------------ */
#ifdef WF_HAS_X4
/* Registers of bf16 as twice as many of f32: even and odd elements of each. */
WF_INLINE wf_x4 load_halves(const uint16_t *p)
{
#if WF_REGISTERS == 4
    const __m512i u = _mm512_loadu_si512(p), v = _mm512_loadu_si512(p + 32);
    return (wf_x4){(wf_vec_f32)wf_bf16_even(u), (wf_vec_f32)wf_bf16_odd(u),
                   (wf_vec_f32)wf_bf16_even(v), (wf_vec_f32)wf_bf16_odd(v)};
#else
    const __m256i u = _mm256_loadu_si256((const void *)p);
    return (wf_x4){(wf_vec_f32)wf_bf16_even(u), (wf_vec_f32)wf_bf16_odd(u)};
#endif
}
WF_INLINE void store_halves(uint16_t *p, wf_x4 y)
{
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

#define WF_X4_HALF_KERNEL(NAME, nsrc, loads, expr)                                                 \
    static void half_##NAME(void *dst, const void *const *src, size_t n, unsigned bcast)           \
    {                                                                                              \
        uint16_t *d = dst, last[WF_X4];                                                            \
        const size_t whole = n / WF_X4 * WF_X4;                                                    \
        halves in[nsrc];                                                                           \
        for (int k = 0; k < nsrc; k++)                                                             \
            open_halves(&in[k], src[k], n, bcast >> k & 1);                                        \
        for (size_t i = 0; i < n; i += WF_X4) {                                                    \
            loads store_halves(i < whole ? d + i : last, expr);                                    \
        }                                                                                          \
        if (whole < n)                                                                             \
            memcpy(d + whole, last, (n - whole) * sizeof *d);                                      \
    }
#define WF_HALF_AT(k) load_halves(i < whole ? in[k].s + (i & in[k].mask) : in[k].last)
#define WF_HALF_1 const wf_x4 x = WF_HALF_AT(0);
#define WF_HALF_2                                                                                  \
    const wf_x4 a = WF_HALF_AT(0);                                                                 \
    const wf_x4 b = WF_HALF_AT(1);
#define WF_KEEP_HALF(NAME) WF_CAT(WF_KEEP_, WF_HALF_ON_X4(NAME))
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(WF_X4_HALF_KERNEL(NAME, 1, WF_HALF_1, expr))
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_KEEP_HALF(NAME)(WF_X4_HALF_KERNEL(NAME, 2, WF_HALF_2, expr))
#include "jit/ir/ops.def"

/* The kernel of a row from bf16 to bf16 (declared by copy.inc.c, whose table has it), COPYSIGN's from f16 to f16, too; NULL: there is
 * none. */
wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
    if (op == WF_OP_COPYSIGN)
        return half_COPYSIGN;
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(if (op == WF_OP_##NAME) return half_##NAME;)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    WF_KEEP_HALF(NAME)(if (op == WF_OP_##NAME) return half_##NAME;)
#include "jit/ir/ops.def"
    return NULL;
}
#else
wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
    return op == WF_OP_COPYSIGN ? half_COPYSIGN : NULL;
}
#endif
