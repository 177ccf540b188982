/*
 * eager/kernels/exp_block.h -- exp of f32 over four registers at a time, beside the scalar dictionary.
 *
 * Include after x4.h, dict_c.h and math_f32.h; where a whole file works on four registers, dict_x4.h
 * says it more simply.
 *
 * Invariant: wf_x4_exp gives the bits of exp_f32, lane by lane.
 */
#ifndef EAGER_KERNELS_EXP_BLOCK_H
#define EAGER_KERNELS_EXP_BLOCK_H

#ifdef WF_HAS_X4
#if WF_VBYTES == 64
WF_X4_FN2(wf_x4, wf_x4_scale, wf_x4, wf_x4, WF_V_SCALE)
#else
#define WF_V_S1(t) ((wf_vec_f32)(((wf_vec_u32)(t) >> 1) << 23))
#define WF_V_S2(t) ((wf_vec_f32)(((wf_vec_u32)(t) - ((wf_vec_u32)(t) >> 1)) << 23))
WF_X4_FN1(wf_x4, wf_x4_s1, wf_x4, WF_V_S1)
WF_X4_FN1(wf_x4, wf_x4_s2, wf_x4, WF_V_S2)
#endif

/* The steps of exp_f32 (jit/ir/math_f32_pure.h). */
#pragma push_macro("FMA")
#pragma push_macro("KF32")
#undef FMA
#undef KF32
#define FMA(x, y, z) wf_x4_fma(x, y, z)
#define KF32(c) wf_x4_all((float)(c))
WF_INLINE wf_x4 wf_x4_exp(wf_x4 x)
{
    const wf_x4 magic = KF32(0x1.8p23f + 254.0f);
    const wf_x4 c = wf_x4_min(KF32(89.0f), wf_x4_max(KF32(-104.0f), x));
    const wf_x4 t = FMA(c, KF32(0x1.715476p+0f), magic);
    const wf_x4 n = wf_x4_sub(t, magic);
    const wf_x4 h = FMA(n, KF32(-0x1.62e43p-1f), c);
    const wf_x4 r = wf_x4_add(h, wf_x4_mul(n, KF32(0x1.05c61p-29f)));
    const wf_x4 p = FMA(r, FMA(r, POLY_exp_f32(r), KF32(1.0f)), KF32(1.0f));
#if WF_VBYTES == 64
    return wf_x4_scale(p, n); /* rounds once, as the two factors do */
#else
    return wf_x4_mul(wf_x4_mul(p, wf_x4_s1(t)), wf_x4_s2(t));
#endif
}
#pragma pop_macro("FMA")
#pragma pop_macro("KF32")

#endif
#endif
