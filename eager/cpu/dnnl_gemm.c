/*
 * eager/cpu/dnnl_gemm.c -- one block of a matrix product as a oneDNN matmul on plain layouts.
 */
#include <string.h>

#include "eager/cpu/dnnl.h"

/* key.v: kind, type, m, n, k, strides of A (row, column), of B, row stride of C */
enum { KIND, TYPE, M, N, K, A_RS, A_CS, B_RS, B_CS, C_RS };

static int describe(const dnnl_functions *f, const wf_dnnl_key *key, dnnl_handle *desc)
{
    const int64_t *v = key->v;
    dnnl_sizes da = {v[M], v[K]}, db = {v[K], v[N]}, dc = {v[M], v[N]};
    dnnl_sizes sa = {v[A_RS], v[A_CS]}, sb = {v[B_RS], v[B_CS]}, sc = {v[C_RS], 1};
    dnnl_md a, b, c;
    dnnl_op op;
    int type = (int)v[TYPE], rc = f->memory_desc_init_by_strides(&a, 2, da, type, sa);
    if (!rc)
        rc = f->memory_desc_init_by_strides(&b, 2, db, type, sb);
    if (!rc)
        rc = f->memory_desc_init_by_strides(&c, 2, dc, type, sc);
    if (!rc)
        rc = f->matmul_desc_init(&op, &a, &b, NULL, &c);
    return rc ? rc : f->primitive_desc_create(desc, &op, NULL, f->engine, NULL);
}

/* Brings strides to what oneDNN takes as plain: one of them 1, the other at least the length. */
static int plain(int64_t rows, int64_t columns, int64_t *rs, int64_t *cs)
{
    if (rows == 1)
        *rs = *cs == 1 || columns == 1 ? columns : 1;
    if (columns == 1)
        *cs = *rs == 1 ? rows : 1;
    return (*cs == 1 && *rs >= columns) || (*rs == 1 && *cs >= rows);
}

int wf_dnnl_gemm(const wf_gemm_block *g)
{
    static const wf_dnnl_recipe recipe = {describe,
                                          3,
                                          {DNNL_SRC, DNNL_WEIGHTS, DNNL_DST},
                                          {DNNL_QUERY_SRC, DNNL_QUERY_WEIGHTS, DNNL_QUERY_DST}};
    if (g->dtype != WEFT_F32 && g->dtype != WEFT_BF16)
        return WF_GEMM_UNSUPPORTED;
    wf_dnnl_key key = {{1, g->dtype == WEFT_F32 ? DNNL_F32 : DNNL_BF16, g->m, g->n, g->k, g->a_rs,
                        g->a_cs, g->b_rs, g->b_cs, g->m == 1 ? g->n : g->c_rs}};
    if (!plain(g->m, g->k, &key.v[A_RS], &key.v[A_CS]) ||
        !plain(g->k, g->n, &key.v[B_RS], &key.v[B_CS]) || key.v[C_RS] < g->n)
        return WF_GEMM_UNSUPPORTED;
    wf_dnnl_plan *plan = wf_dnnl_get(&key, &recipe);
    if (!plan)
        return WF_GEMM_NOMEM;
    void *data[] = {(void *)(uintptr_t)g->a, (void *)(uintptr_t)g->b, g->c};
    return wf_dnnl_run(plan, data);
}
