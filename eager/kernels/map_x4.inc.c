/*
 * eager/kernels/map_x4.inc.c -- the rows of map_x4.h four registers at a time. AVX2 has half as many, which
 * hold two. AVX-512 has some of them from bf16 to bf16, too.
 */
#if defined(__AVX512F__)
#define WF_REGISTERS 4
#else
#define WF_REGISTERS 2
#endif
#include <string.h>

#include "eager/kernels/bf16_vec.h"
#include "eager/kernels/map_x4_rows.h"

/* -- bf16 to bf16 ------------------------------------------------------------------------------------ */
#if defined(__AVX512BW__)
/* Two registers of bf16 as four of f32: even and odd elements of each. */
WF_INLINE wf_x4 load_halves(const uint16_t *p)
{
    const __m512i u = _mm512_loadu_si512(p), v = _mm512_loadu_si512(p + 32);
    return (wf_x4){(wf_vec_f32)wf_bf16_even(u), (wf_vec_f32)wf_bf16_odd(u),
                   (wf_vec_f32)wf_bf16_even(v), (wf_vec_f32)wf_bf16_odd(v)};
}
WF_INLINE void store_halves(uint16_t *p, wf_x4 y)
{
    _mm512_storeu_si512(p, wf_bf16_of((__m512)y.a, (__m512)y.b));
    _mm512_storeu_si512(p + 32, wf_bf16_of((__m512)y.c, (__m512)y.d));
}

/* What is left behind whole values, and a broadcast operand, is one more value in memory of its own. */
#define WF_X4_HALF_KERNEL(NAME, expr)                                                              \
    static void half_##NAME(void *dst, const void *const *src, size_t n, unsigned bcast)           \
    {                                                                                              \
        uint16_t *d = dst;                                                                         \
        const uint16_t *s = src[0];                                                                \
        _Alignas(64) uint16_t last[WF_X4] = {0};                                                   \
        const size_t whole = bcast & 1 ? 0 : n / WF_X4 * WF_X4;                                    \
        const size_t left = n - whole;                                                             \
        if (left)                                                                                  \
            memcpy(last, s + whole, (bcast & 1 ? 1 : left) * sizeof *s);                           \
        for (size_t i = 0; i < whole + (left ? WF_X4 : 0); i += WF_X4) {                           \
            const wf_x4 x = load_halves(i < whole ? s + i : last);                                 \
            store_halves(i < whole ? d + i : last, expr);                                          \
        }                                                                                          \
        for (size_t i = whole; i < n; i++)                                                         \
            d[i] = last[bcast & 1 ? 0 : i - whole];                                                \
    }
#undef UNARY
#define WF_KEEP_HALF(NAME) WF_CAT(WF_KEEP_, WF_HALF_ON_X4(NAME))
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(WF_X4_HALF_KERNEL(NAME, expr))
#include "jit/ir/ops.def"

/* The kernel of a row from bf16 to bf16 (declared by copy.inc.c, whose table has it); NULL: there is none. */
wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
#define UNARY(NAME, name, types, rare, ulp, expr, vjp)                                             \
    WF_KEEP_HALF(NAME)(if (op == WF_OP_##NAME) return half_##NAME;)
#include "jit/ir/ops.def"
    return NULL;
}
#else
wf_map_fn WF_SYM(wf_map_half)(wf_op op)
{
    (void)op;
    return NULL;
}
#endif
