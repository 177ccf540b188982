/*
 * eager/cpu/dnnl_gemm.c -- one block of a matrix product as a oneDNN matmul: A and C in plain layouts, B
 * plain too or packed in the panels that oneDNN wants, which blocks of rows then share.
 */
#include <string.h>

#include "eager/cpu/dnnl.h"

/* key.v: kind, type, m, n, k, strides of A (row, column), of B, row stride of C, its type */
enum { KIND, TYPE, M, N, K, A_RS, A_CS, B_RS, B_CS, C_RS, C_TYPE };
enum { PLAIN_B = 1, PACKED_B, ADDED }; /* ADDED: C += A * B, B plain */

static int describe(const dnnl_functions *f, const wf_dnnl_key *key, dnnl_handle *desc)
{
    const int64_t *v = key->v;
    dnnl_sizes da = {v[M], v[K]}, db = {v[K], v[N]}, dc = {v[M], v[N]};
    dnnl_sizes sa = {v[A_RS], v[A_CS]}, sb = {v[B_RS], v[B_CS]}, sc = {v[C_RS], 1};
    dnnl_md a, b, c;
    dnnl_op op;
    int type = (int)v[TYPE], rc = f->memory_desc_init_by_strides(&a, 2, da, type, sa);
    if (!rc)
        rc = v[KIND] == PACKED_B ? f->memory_desc_init_by_tag(&b, 2, db, type, DNNL_TAG_ANY)
                                 : f->memory_desc_init_by_strides(&b, 2, db, type, sb);
    if (!rc)
        rc = f->memory_desc_init_by_strides(&c, 2, dc, (int)v[C_TYPE], sc);
    if (!rc)
        rc = f->matmul_desc_init(&op, &a, &b, NULL, &c);
    if (rc || v[KIND] != ADDED)
        return rc ? rc : f->primitive_desc_create(desc, &op, NULL, f->engine, NULL);
    dnnl_handle ops = NULL, attributes = NULL;
    rc = f->post_ops_create(&ops);
    rc = rc ? rc : f->post_ops_append_sum(ops, 1);
    rc = rc ? rc : f->primitive_attr_create(&attributes);
    rc = rc ? rc : f->primitive_attr_set_post_ops(attributes, ops);
    rc = rc ? rc : f->primitive_desc_create(desc, &op, attributes, f->engine, NULL);
    f->primitive_attr_destroy(attributes);
    f->post_ops_destroy(ops);
    return rc;
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

static const wf_dnnl_recipe recipe = {describe,
                                      3,
                                      {DNNL_SRC, DNNL_WEIGHTS, DNNL_DST},
                                      {DNNL_QUERY_SRC, DNNL_QUERY_WEIGHTS, DNNL_QUERY_DST}};

/* NULL with *rc set: no memory, or nothing that oneDNN could take. */
static wf_dnnl_plan *find_plan(const wf_gemm_block *g, int kind, int *rc)
{
    *rc = WF_GEMM_UNSUPPORTED;
    if (g->dtype != WEFT_F32 && g->dtype != WEFT_BF16)
        return NULL;
    wf_dnnl_key key = {{kind, g->dtype == WEFT_F32 ? DNNL_F32 : DNNL_BF16, g->m, g->n, g->k,
                        g->a_rs, g->a_cs, 0, 0, g->m == 1 ? g->n : g->c_rs}};
    key.v[C_TYPE] = g->wide ? DNNL_F32 : key.v[TYPE];
    if (kind != PACKED_B)
        key.v[B_RS] = g->b_rs, key.v[B_CS] = g->b_cs;
    if (!plain(g->m, g->k, &key.v[A_RS], &key.v[A_CS]) || key.v[C_RS] < g->n ||
        (kind != PACKED_B && !plain(g->k, g->n, &key.v[B_RS], &key.v[B_CS])))
        return NULL;
    wf_dnnl_plan *plan = wf_dnnl_get(&key, &recipe);
    if (!plan)
        *rc = WF_GEMM_NOMEM;
    return plan;
}

static int run(const wf_gemm_block *g, int kind)
{
    int rc;
    wf_dnnl_plan *plan = find_plan(g, kind, &rc);
    if (!plan)
        return rc;
    void *data[] = {(void *)(uintptr_t)g->a, (void *)(uintptr_t)g->b, g->c};
    return wf_dnnl_run(plan, data);
}

int wf_dnnl_gemm(const wf_gemm_block *g)
{
    return run(g, g->add ? ADDED : PLAIN_B);
}

int wf_dnnl_gemm_packed(const wf_gemm_block *g)
{
    return run(g, PACKED_B);
}

int wf_dnnl_gemm_panels(const wf_gemm_block *g, wf_dnnl_panels *out)
{
    int rc;
    *out = (wf_dnnl_panels){0};
    wf_dnnl_plan *plan = find_plan(g, PACKED_B, &rc);
    if (!plan)
        return rc == WF_GEMM_NOMEM ? rc : WF_GEMM_OK;
    const dnnl_md *md = plan->primitive ? wf_dnnl_layout(plan, 1) : NULL;
    if (!md)
        return WF_GEMM_OK;
    dnnl_md_blocked b;
    memcpy(&b, md, sizeof b);
    int64_t width = b.inner[1];
    if (b.kind != DNNL_BLOCKED || b.rank != 2 || b.offset != 0 || b.inner_count != 3 ||
        b.inner_axis[0] != 0 || b.inner_axis[1] != 1 || b.inner_axis[2] != 0 || b.inner[2] != 2 ||
        width < 1 || b.strides[0] != b.inner[0] * width * 2 ||
        b.strides[1] != b.padded[0] * width || b.padded[0] < g->k || b.padded[0] % 2 ||
        b.padded[1] != (g->n + width - 1) / width * width ||
        plan->bytes[1] != (size_t)(b.padded[0] * b.padded[1]) * 2)
        return WF_GEMM_OK;
    *out = (wf_dnnl_panels){.width = width, .depth = b.padded[0]};
    return WF_GEMM_OK;
}
