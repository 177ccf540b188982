/*
 * jit/ir/kir_rows.c -- rows as kernel IR: the choice of the compute type, and whole programs of a row.
 */
#include "jit/ir/kir_rows.h"

static const wf_kir_row_set *const sets[WF_NDTYPE] = {
    [WEFT_BOOL] = &wf_kir_rows_u8, [WEFT_U8] = &wf_kir_rows_u8,   [WEFT_I8] = &wf_kir_rows_i8,
    [WEFT_I16] = &wf_kir_rows_i16, [WEFT_I32] = &wf_kir_rows_i32, [WEFT_I64] = &wf_kir_rows_i64,
    [WEFT_F32] = &wf_kir_rows_f32, [WEFT_F64] = &wf_kir_rows_f64,
};

static const wf_kir_row_set *set_of(int compute)
{
    return compute >= 0 && compute < WF_NDTYPE ? sets[compute] : NULL;
}

wf_kty wf_kir_compute_type(int compute)
{
    const wf_kir_row_set *set = set_of(compute);
    return set ? set->type : WF_KT_COUNT;
}

bool wf_kir_has_row(wf_op op, int compute)
{
    const wf_kir_row_set *set = set_of(compute);
    return set && op < WF_OP_ELEMENTWISE && set->row[op] && (wf_rows[op].types & WF_BIT(compute));
}

bool wf_kir_has_vjp(wf_op op, int which, int compute)
{
    return (compute == WEFT_F32 || compute == WEFT_F64) && op < WF_OP_ELEMENTWISE && which >= 0 &&
           which < 3 && wf_kir_vjps[op][which];
}

enum { MAX_VALUES = 5 }; /* g, three operands, y */

static wf_kref append_by(wf_kir *k, wf_kir_row_fn fn, int compute, int nsrc, const wf_kref *src)
{
    wf_kval s[MAX_VALUES];
    for (int i = 0; i < nsrc; i++)
        s[i] = wf_kv(src[i]);
    wf_kv_build(k, wf_kir_compute_type(compute));
    return fn(s).ref;
}

wf_kref wf_kir_row(wf_kir *k, wf_op op, int compute, int nsrc, const wf_kref *src)
{
    if (!wf_kir_has_row(op, compute) || nsrc != wf_rows[op].min_src)
        return WF_KREF_NONE;
    return append_by(k, set_of(compute)->row[op], compute, nsrc, src);
}

wf_kref wf_kir_vjp(wf_kir *k, wf_op op, int which, int compute, int nsrc, const wf_kref *src)
{
    if (!wf_kir_has_vjp(op, which, compute) || nsrc != wf_rows[op].min_src + 2)
        return WF_KREF_NONE;
    return append_by(k, wf_kir_vjps[op][which], compute, nsrc, src);
}

/* Parameters of the dtypes as values: truth where bit i of bools is set, else the compute type. */
static void load_all(wf_kir *k, int compute, int n, const uint8_t *dtype, unsigned bools,
                     wf_kref *value)
{
    for (int i = 0; i < n; i++) {
        const wf_kty to = bools >> i & 1 ? WF_KT_BOOL : wf_kir_compute_type(compute);
        value[i] = wf_kir_load(k, dtype[i], to, wf_kir_param(k, wf_kir_storage(dtype[i])));
    }
}

static int finish_row(wf_kir *k, wf_op op, int compute, int dst_dtype, wf_kref y, wf_why *why)
{
    if (y == WF_KREF_NONE && !k->error)
        return wf_fail(why, WEFT_EDTYPE, "%s has no kernel IR for %s", wf_rows[op].name,
                       wf_dtype_name(compute));
    wf_kir_output(k, wf_kir_store(k, dst_dtype, y));
    return wf_kir_finish(k, why);
}

int wf_kir_row_program(wf_kir *k, wf_op op, int compute, int nsrc, const uint8_t *src_dtype,
                       int dst_dtype, wf_why *why)
{
    wf_kref value[MAX_VALUES];
    if (!wf_kir_has_row(op, compute) || nsrc != wf_rows[op].min_src)
        return finish_row(k, op, compute, dst_dtype, WF_KREF_NONE, why);
    load_all(k, compute, nsrc, src_dtype, wf_rows[op].kind == WF_KIND_CHOOSE ? 1 : 0, value);
    return finish_row(k, op, compute, dst_dtype, wf_kir_row(k, op, compute, nsrc, value), why);
}

int wf_kir_vjp_program(wf_kir *k, wf_op op, int which, int compute, int nsrc,
                       const uint8_t *src_dtype, int dst_dtype, wf_why *why)
{
    wf_kref value[MAX_VALUES];
    if (!wf_kir_has_vjp(op, which, compute) || nsrc != wf_rows[op].min_src + 2)
        return finish_row(k, op, compute, dst_dtype, WF_KREF_NONE, why);
    load_all(k, compute, nsrc, src_dtype, wf_rows[op].kind == WF_KIND_CHOOSE ? 2 : 0, value);
    return finish_row(k, op, compute, dst_dtype, wf_kir_vjp(k, op, which, compute, nsrc, value),
                      why);
}
