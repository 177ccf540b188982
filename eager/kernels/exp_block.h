/*
 * eager/kernels/exp_block.h -- exp of f32 over four registers at a time.
 *
 * A compiler that vectorises a plain loop emits one register after the other; here every step is done
 * to four, so that four chains of dependent operations overlap. Only where registers have FMA
 * (WF_HAS_X4). Include after reduce_vec.h, dict_c.h and math_f32.h.
 *
 * Invariant: wf_x4_exp gives the bits of exp_f32, lane by lane.
 */
#ifndef EAGER_KERNELS_EXP_BLOCK_H
#define EAGER_KERNELS_EXP_BLOCK_H

#if WF_VBYTES >= 32
#define WF_HAS_X4 1

typedef struct wf_x4 {
    wf_vec_f32 a, b, c, d;
} wf_x4;

enum { WF_X4 = WF_VBYTES }; /* values: 4 registers of WF_VBYTES / 4 */

#define WF_X4_OP1(x, OP)                                                                           \
    (wf_x4)                                                                                        \
    {                                                                                              \
        OP((x).a), OP((x).b), OP((x).c), OP((x).d)                                                 \
    }
#define WF_X4_OP2(x, y, OP)                                                                        \
    (wf_x4)                                                                                        \
    {                                                                                              \
        OP((x).a, (y).a), OP((x).b, (y).b), OP((x).c, (y).c), OP((x).d, (y).d)                     \
    }
#define WF_X4_OP3(x, y, z, OP)                                                                     \
    (wf_x4)                                                                                        \
    {                                                                                              \
        OP((x).a, (y).a, (z).a), OP((x).b, (y).b, (z).b), OP((x).c, (y).c, (z).c),                 \
            OP((x).d, (y).d, (z).d)                                                                \
    }

#if WF_VBYTES == 64
#define WF_V_SPLAT(c) ((wf_vec_f32)_mm512_set1_ps(c))
#define WF_V_FMA(a, b, c) ((wf_vec_f32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define WF_V_SCALE(p, n) ((wf_vec_f32)_mm512_scalef_ps((__m512)(p), (__m512)(n)))
#else
typedef uint32_t wf_bits_f32 __attribute__((vector_size(WF_VBYTES)));
#define WF_V_SPLAT(c) ((wf_vec_f32)_mm256_set1_ps(c))
#define WF_V_FMA(a, b, c) ((wf_vec_f32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#endif
#define WF_V_ADD(a, b) ((a) + (b))
#define WF_V_SUB(a, b) ((a) - (b))
#define WF_V_MUL(a, b) ((a) * (b))

WF_INLINE wf_x4 wf_x4_all(float c)
{
    wf_vec_f32 v = WF_V_SPLAT(c);
    return (wf_x4){v, v, v, v};
}
WF_INLINE wf_x4 wf_x4_add(wf_x4 x, wf_x4 y)
{
    return WF_X4_OP2(x, y, WF_V_ADD);
}
WF_INLINE wf_x4 wf_x4_sub(wf_x4 x, wf_x4 y)
{
    return WF_X4_OP2(x, y, WF_V_SUB);
}
WF_INLINE wf_x4 wf_x4_mul(wf_x4 x, wf_x4 y)
{
    return WF_X4_OP2(x, y, WF_V_MUL);
}
WF_INLINE wf_x4 wf_x4_fma(wf_x4 x, wf_x4 y, wf_x4 z)
{
    return WF_X4_OP3(x, y, z, WF_V_FMA);
}
WF_INLINE wf_x4 wf_x4_load(const float *p)
{
    const wf_mem_f32 *m = (const wf_mem_f32 *)(const void *)p;
    return (wf_x4){(wf_vec_f32)m[0], (wf_vec_f32)m[1], (wf_vec_f32)m[2], (wf_vec_f32)m[3]};
}
WF_INLINE void wf_x4_store(float *p, wf_x4 x)
{
    wf_mem_f32 *m = (wf_mem_f32 *)(void *)p;
    m[0] = (wf_mem_f32)x.a;
    m[1] = (wf_mem_f32)x.b;
    m[2] = (wf_mem_f32)x.c;
    m[3] = (wf_mem_f32)x.d;
}

/* Past the caches; p is aligned to a register. */
WF_INLINE void wf_x4_stream(float *p, wf_x4 x)
{
    WF_STREAM_f32(p, x.a);
    WF_STREAM_f32(p + WF_X4 / 4, x.b);
    WF_STREAM_f32(p + WF_X4 / 2, x.c);
    WF_STREAM_f32(p + WF_X4 / 4 * 3, x.d);
}

/* The steps of exp_f32 (jit/ir/math_f32.h). The register maximum and minimum return their second
 * operand when one is NaN, as the SELECTs there do. */
#pragma push_macro("FMA")
#pragma push_macro("KF32")
#undef FMA
#undef KF32
#define FMA(x, y, z) wf_x4_fma(x, y, z)
#define KF32(c) wf_x4_all((float)(c))
WF_INLINE wf_x4 wf_x4_exp(wf_x4 x)
{
    const wf_x4 magic = KF32(0x1.8p23f + 254.0f);
    wf_x4 c = WF_X4_OP2(KF32(-104.0f), x, WF_VMAX_f32);
    c = WF_X4_OP2(KF32(89.0f), c, WF_VMIN_f32);
    const wf_x4 t = FMA(c, KF32(0x1.715476p+0f), magic);
    const wf_x4 n = wf_x4_sub(t, magic);
    const wf_x4 h = FMA(n, KF32(-0x1.62e43p-1f), c);
    const wf_x4 r = wf_x4_add(h, wf_x4_mul(n, KF32(0x1.05c61p-29f)));
    const wf_x4 p = FMA(r, FMA(r, POLY_exp_f32(r), KF32(1.0f)), KF32(1.0f));
#if WF_VBYTES == 64
    return WF_X4_OP2(p, n, WF_V_SCALE); /* rounds once, as the two factors do */
#else
#define WF_V_S1(t) ((wf_vec_f32)(((wf_bits_f32)(t) >> 1) << 23))
#define WF_V_S2(t) ((wf_vec_f32)(((wf_bits_f32)(t) - ((wf_bits_f32)(t) >> 1)) << 23))
    return wf_x4_mul(wf_x4_mul(p, WF_X4_OP1(t, WF_V_S1)), WF_X4_OP1(t, WF_V_S2));
#undef WF_V_S1
#undef WF_V_S2
#endif
}
#pragma pop_macro("FMA")
#pragma pop_macro("KF32")

#endif
#endif
