/*
 * jit/ir/kir_rows_flt.c -- elementwise rows in f32 and f64 as kernel IR: one file, for many of f32 go through bodies of f64.
 */
#include "jit/ir/kir_rows.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/rowfun.h"

#define WF_S f32
#define WF_KT WF_KT_F32
#define WF_FLT 1
#define K(v) KF32(v)
#include "jit/ir/kir_rows_t.h"

#define WF_S f64
#define WF_KT WF_KT_F64
#define WF_FLT 1
#define K(v) KF64(v)
#include "jit/ir/kir_rows_t.h"

wf_kref wf_kir_exp_below_zero(wf_kir *k, wf_kref x)
{
    wf_kv_build(k, WF_KT_COUNT);
    return exp_neg_f32(wf_kv(x)).ref;
}
