/*
 * eager/kernels/sdpa.inc.c -- the inner loops of attention, compiled per instruction set (WF_ISA).
 *
 * exp and log are the math bodies of the rows, so attention rounds like the op exp does.
 */
#include <math.h>

#include <string.h>

#include "eager/kernels/sdpa.h"
#include "eager/kernels/reduce_vec.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"
#include "eager/kernels/x4.h"
#include "eager/kernels/exp_block.h"

enum { SPAN = 64 }; /* columns: what is masked is looked at in pieces of so many */

#define EXP_EACH(EXP, s, base, n)                                                                  \
    for (int64_t j = 0; j < (n); j++) {                                                            \
        (s)[j] = EXP((s)[j] - (base));                                                             \
    }

#ifdef WF_HAS_X4
/* x where exp(x) is not 0 for sure, and NaN; else 0. The same lanes of y, the others 0. */
#define KEPT(x) (~(wf_vec_u32)((x) < WF_V_SPLAT(-104.0f)))
#define KEEP(x) ((wf_vec_f32)((wf_vec_u32)(x)&KEPT(x)))
#define KEEP_AS(x, y) ((wf_vec_f32)((wf_vec_u32)(y)&KEPT(x)))
WF_X4_FN1(wf_x4, keep, wf_x4, KEEP)
WF_X4_FN2(wf_x4, keep_as, wf_x4, wf_x4, KEEP_AS)
#undef KEPT
#undef KEEP
#undef KEEP_AS

/* exp(x), without the underflow of what is masked: a hundred cycles each. */
WF_INLINE wf_x4 exp_of(wf_x4 x)
{
    return keep_as(x, wf_x4_exp(keep(x)));
}

/* n whole lanes */
static void exp_row_x4(float *s, float base, int64_t n)
{
    const wf_x4 all = wf_x4_all(base);
    int64_t j = 0;
    for (; j + WF_X4 <= n; j += WF_X4) {
        wf_x4_store(s + j, exp_of(wf_x4_sub(wf_x4_load(s + j), all)));
    }
    if (j < n) { /* whole lanes, so that copies are of sizes known here */
        _Alignas(64) float t[WF_X4] = {0};
        for (int64_t k = 0; k < n - j; k += WF_SDPA_LANES) {
            memcpy(t + k, s + j + k, WF_SDPA_LANES * sizeof *t);
        }
        wf_x4_store(t, exp_of(wf_x4_sub(wf_x4_load(t), all)));
        for (int64_t k = 0; k < n - j; k += WF_SDPA_LANES) {
            memcpy(s + j + k, t + k, WF_SDPA_LANES * sizeof *t);
        }
    }
}
#define EXP_ROW(s, base, n) exp_row_x4(s, base, n)

/* row_max_f32, n whole lanes; which zero it gives where both are largest does not matter to exp and log. */
static float row_max_vec(const float *s, int64_t n, float start)
{
    enum { W = WF_VBYTES / 4 };
    wf_vec_f32 top = WF_V_SPLAT(start);
    for (int64_t j = 0; j < n; j += W) {
        top = WF_VMAX_f32((wf_vec_f32) * (const wf_mem_f32 *)(const void *)(s + j), top);
    }
#if WF_VBYTES == 64
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT16_8), top);
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT16_4), top);
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT16_2), top);
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT16_1), top);
#else
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT8_4), top);
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT8_2), top);
    top = WF_VMAX_f32(WF_SHUF(top, WF_ROT8_1), top);
#endif
    return top[0];
}

/* tree_f32: halves are added to halves in registers. */
WF_INLINE float tree_vec(const float *lane)
{
    const wf_mem_f32 *m = (const wf_mem_f32 *)(const void *)lane;
#if WF_VBYTES == 64
    wf_vec_f32 t = (wf_vec_f32)m[0];
    WF_FOLD_16(t, WF_PLUS);
#else
    wf_vec_f32 t = (wf_vec_f32)m[0] + (wf_vec_f32)m[1];
    WF_FOLD_8(t, WF_PLUS);
#endif
    return t[0];
}
#define TREE tree_vec
#define ROW_MAX row_max_vec
#else
#define ROW_MAX row_max_f32
#define TREE tree_f32
#define EXP_ROW(s, base, n) EXP_EACH(exp_f32, s, base, n)
#endif

#define WF_PASTE2(a, b) a##_##b
#define WF_PASTE(a, b) WF_PASTE2(a, b)

#define T float
#define FN(name) name##_f32
#define EXP(x) exp_f32(x)
#define LOG(x) log_f32(x)
#include "eager/kernels/sdpa_t.h"
#undef T
#undef FN
#undef EXP
#undef EXP_ROW
#undef ROW_MAX
#undef TREE
#undef LOG

#define T double
#define FN(name) name##_f64
#define EXP(x) exp_f64(x)
#define EXP_ROW(s, base, n) EXP_EACH(exp_f64, s, base, n)
#define ROW_MAX row_max_f64
#define TREE tree_f64
#define LOG(x) log_f64(x)
#include "eager/kernels/sdpa_t.h"
#undef T
#undef FN
#undef EXP
#undef EXP_ROW
#undef ROW_MAX
#undef TREE
#undef LOG
#undef EXP_EACH
