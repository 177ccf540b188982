/*
 * jit/ir/kir_rows_f32.c -- elementwise rows and their gradients in f32 as kernel IR.
 */
#include "jit/ir/kir_rows.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/rowfun.h"

#define WF_S f32
#define WF_KT WF_KT_F32
#define WF_FLT 1
#define K(v) wf_kv(kb, wf_kir_f32(kb, (float)(v)))
#include "jit/ir/kir_rows_t.h"

wf_kref wf_kir_exp_below_zero(wf_kir *k, wf_kref x)
{
    return exp_neg_f32(k, wf_kv(k, x)).ref;
}
