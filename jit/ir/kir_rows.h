/*
 * jit/ir/kir_rows.h -- the tables kir_rows_*.c make of the op table, one per compute type.
 */
#ifndef JIT_IR_KIR_ROWS_H
#define JIT_IR_KIR_ROWS_H

#include "jit/ir/dict_kir.h"

/* Appends a row's value, or an operand's gradient, for the operands s. */
typedef wf_kval (*wf_kir_row_fn)(const wf_kval *s);

typedef struct wf_kir_row_set {
    wf_kty type;
    wf_kir_row_fn row[WF_OP_ELEMENTWISE];
} wf_kir_row_set;

extern const wf_kir_row_set wf_kir_rows_f32, wf_kir_rows_f64, wf_kir_rows_u8, wf_kir_rows_i8,
    wf_kir_rows_i16, wf_kir_rows_i32, wf_kir_rows_i64;
/* [operand]; f32 or f64, by wf_kv_build */
extern const wf_kir_row_fn wf_kir_vjps[WF_OP_ELEMENTWISE][3];

#endif
