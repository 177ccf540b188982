/*
 * jit/ir/kir_rows_f64.c -- elementwise rows and their gradients in f64 as kernel IR.
 */
#include "jit/ir/kir_rows.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/rowfun.h"

#define WF_S f64
#define WF_KT WF_KT_F64
#define WF_FLT 1
#define K(v) wf_kv(kb, wf_kir_f64(kb, (double)(v)))
#include "jit/ir/kir_rows_t.h"
