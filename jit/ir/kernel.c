/*
 * jit/ir/kernel.c -- kernels of single rows, and what follows from a kernel's description.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/backend.h"

void wf_kernel_free(wf_kernel *k)
{
    wf_kir_free(&k->body);
    wf_kir_free(&k->fast);
    wf_kir_free(&k->post);
    for (int i = 0; k->rows && i < k->rows->nstage; i++)
        wf_kir_free(&k->rows->stage[i].body);
    if (k->rows)
        free(k->rows->stage);
    free(k->rows);
    k->rows = NULL;
}

void wf_blob_free(wf_blob *b)
{
    free(b->data);
    *b = (wf_blob){0};
}

int wf_kernel_ndst(const wf_kernel *k)
{
    if (k->rows)
        return k->rows->ndst;
    return k->skeleton == WF_SK_MAP ? (int)k->body.nout : 1;
}

int wf_kernel_nsize(const wf_kernel *k)
{
    switch (k->skeleton) {
    case WF_SK_MAP:
        return 1;
    case WF_SK_SUM_INNER:
    case WF_SK_SUM_OUTER:
        return 2;
    case WF_SK_PERMUTE:
        return 8;
    case WF_SK_GATHER:
    case WF_SK_SCATTER:
    case WF_SK_MATMUL:
        return 3;
    case WF_SK_ROW:
        return 1 + k->rows->ndst + k->nsrc;
    }
    return 0;
}

int wf_kernel_nptr(const wf_kernel *k)
{
    if (k->rows)
        return k->rows->ndst + k->nsrc + k->rows->nkeep + 1;
    const int more = k->skeleton == WF_SK_GATHER ? 2 : k->skeleton == WF_SK_SCATTER ? 1 : 0;
    return wf_kernel_ndst(k) + k->nsrc + more;
}

wf_kty wf_kernel_ptr_type(const wf_kernel *k, int i)
{
    const int ndst = wf_kernel_ndst(k);
    if (k->rows) {
        const int keep = i - ndst - k->nsrc;
        return (wf_kty)(i < ndst                ? k->rows->dst_type[i]
                        : keep < 0              ? k->rows->src_type[i - ndst]
                        : keep < k->rows->nkeep ? k->rows->keep_type[keep]
                                                : WF_KT_I64);
    }
    if (i < ndst) {
        const wf_kir *last = k->post.n ? &k->post : &k->body;
        return wf_kir_type(last, last->out[i]);
    }
    return i - ndst < k->nsrc ? (wf_kty)k->body.param_type[i - ndst] : WF_KT_I64;
}

static unsigned widest(const wf_kir *k)
{
    unsigned bits = 8;
    for (uint32_t i = 0; i < k->n; i++) {
        const unsigned b = wf_kty_bits((wf_kty)k->ins[i].type);
        bits = b > bits ? b : bits;
    }
    return bits;
}

unsigned wf_kernel_bits(const wf_kernel *k)
{
    unsigned bits = widest(&k->body);
    for (int i = 0; k->rows && i < k->rows->nstage; i++) {
        const unsigned b =
            k->rows->stage[i].kind == WF_ST_ELEM ? widest(&k->rows->stage[i].body) : 8;
        bits = b > bits ? b : bits;
    }
    return bits;
}

void wf_kernel_init(wf_kernel *k, wf_skeleton skeleton, int nsrc)
{
    memset(k, 0, sizeof *k);
    k->skeleton = skeleton;
    k->nsrc = nsrc;
    wf_kir_init(&k->body);
    wf_kir_init(&k->fast);
    wf_kir_init(&k->post);
}

int wf_kernel_of_row(wf_kernel *k, wf_op op, int which, int compute, int nsrc,
                     const uint8_t *src_dtype, int dst_dtype, wf_why *why)
{
    wf_kernel_init(k, WF_SK_MAP, nsrc);
    k->fast.fast = true;
    wf_kir *const programs[2] = {&k->body, &k->fast};
    for (int p = 0; p < 2; p++) {
        const int status = which < 0 ? wf_kir_row_program(programs[p], op, compute, nsrc, src_dtype,
                                                          dst_dtype, why)
                                     : wf_kir_vjp_program(programs[p], op, which, compute, nsrc,
                                                          src_dtype, dst_dtype, why);
        if (status != 0) {
            wf_kernel_free(k);
            return status;
        }
    }
    if (k->fast.rare == WF_KREF_NONE)
        wf_kir_free(&k->fast);
    snprintf(k->name, sizeof k->name, "%s%.*s_%s_%s", wf_rows[op].name, which < 0 ? 0 : 5,
             which == 0   ? "_vjp0"
             : which == 1 ? "_vjp1"
                          : "_vjp2",
             wf_dtype_name(src_dtype[nsrc - 1]), wf_dtype_name(dst_dtype));
    return 0;
}

/* body: elements as values of type `as`, of nsrc sources multiplied; post: a value as dst_dtype. */
static int reduce_programs(wf_kernel *k, int nsrc, int src_dtype, wf_kty as, int dst_dtype,
                           wf_why *why)
{
    wf_kref x[2] = {WF_KREF_NONE, WF_KREF_NONE};
    for (int s = 0; s < nsrc; s++)
        x[s] =
            wf_kir_load(&k->body, src_dtype, as, wf_kir_param(&k->body, wf_kir_storage(src_dtype)));
    if (nsrc == 2)
        x[0] = wf_kir_op(&k->body, WF_KP_MUL, x[0], x[1], WF_KREF_NONE);
    wf_kir_output(&k->body, x[0]);
    wf_kir_output(&k->post, wf_kir_store(&k->post, dst_dtype, wf_kir_param(&k->post, as)));
    int status = wf_kir_finish(&k->body, why);
    if (status == 0)
        status = wf_kir_finish(&k->post, why);
    if (status != 0)
        wf_kernel_free(k);
    return status;
}

static wf_kty sum_type(int dtype)
{
    const bool is_float = WF_BIT(dtype) & WF_DT_F;
    return dtype == WEFT_F64 ? WF_KT_F64 : is_float ? WF_KT_F32 : WF_KT_I64;
}

int wf_kernel_of_sum(wf_kernel *k, wf_skeleton skeleton, int src_dtype, int dst_dtype, wf_why *why)
{
    wf_kernel_init(k, skeleton, 1);
    snprintf(k->name, sizeof k->name, "sum_%s_%s_%s",
             skeleton == WF_SK_SUM_INNER ? "inner" : "outer", wf_dtype_name(src_dtype),
             wf_dtype_name(dst_dtype));
    return reduce_programs(k, 1, src_dtype, sum_type(src_dtype), dst_dtype, why);
}

int wf_kernel_of_move(wf_kernel *k, wf_skeleton skeleton, int dtype, wf_why *why)
{
    wf_kernel_init(k, skeleton, skeleton == WF_SK_MATMUL ? 2 : 1);
    if (skeleton == WF_SK_SCATTER || skeleton == WF_SK_MATMUL) {
        snprintf(k->name, sizeof k->name, "%s_%s",
                 skeleton == WF_SK_MATMUL ? "matmul" : "scatter_add", wf_dtype_name(dtype));
        return reduce_programs(k, k->nsrc, dtype, sum_type(dtype), dtype, why);
    }
    snprintf(k->name, sizeof k->name, "%s_%s", skeleton == WF_SK_GATHER ? "gather" : "permute",
             wf_dtype_name(dtype));
    wf_kir_output(&k->body, wf_kir_param(&k->body, wf_kir_storage(dtype)));
    const int status = wf_kir_finish(&k->body, why);
    if (status != 0)
        wf_kernel_free(k);
    return status;
}
