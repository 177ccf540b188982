/*
 * jit/ir/kir_rows_int.c -- elementwise rows on integers as kernel IR; bool runs on those of u8.
 */
#include "jit/ir/kir_rows.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/rowfun.h"

#define WF_S u8
#define WF_KT WF_KT_U8
#define WF_FLT 0
#define K(v) KINT(VT_U8, v)
#include "jit/ir/kir_rows_t.h"

#define WF_S i8
#define WF_KT WF_KT_I8
#define WF_FLT 0
#define K(v) KINT(VT_I8, v)
#include "jit/ir/kir_rows_t.h"

#define WF_S i16
#define WF_KT WF_KT_I16
#define WF_FLT 0
#define K(v) KINT(VT_I16, v)
#include "jit/ir/kir_rows_t.h"

#define WF_S i32
#define WF_KT WF_KT_I32
#define WF_FLT 0
#define K(v) KINT(VT_I32, v)
#include "jit/ir/kir_rows_t.h"

#define WF_S i64
#define WF_KT WF_KT_I64
#define WF_FLT 0
#define K(v) KINT(VT_I64, v)
#include "jit/ir/kir_rows_t.h"
