/*
 * eager/program_reduce.c -- reductions of strips in the canonical order; see program_task.h.
 *
 * Tiles [rows][cols] are reduced row by row; of a row in pieces, the lanes are kept (program_canon.h). In a
 * turned tile [cols][rows], 64 columns are one vector of 64 * rows lanes: a piece is added to the lanes
 * that it meets, and a block is folded by halves of whole vectors.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/program_task.h"
#include "eager/reduce.h"

static wf_red red_of(int op)
{
    return op == WF_OP_SUM    ? WF_RED_SUM
           : op == WF_OP_PROD ? WF_RED_PROD
           : op == WF_OP_AMAX ? WF_RED_MAX
                              : WF_RED_MIN;
}

void wf_reduce_nothing(const wf_inst *inst, char *out)
{
    memset(out, 0, wf_dtype_size(inst->compute));
    if (inst->op == WF_OP_ALL || (inst->op == WF_OP_PROD && inst->compute == WEFT_I64))
        *out = 1;
    else if (inst->op == WF_OP_PROD && inst->compute == WEFT_F32)
        *(float *)(void *)out = 1.0f;
    else if (inst->op == WF_OP_PROD)
        *(double *)(void *)out = 1.0;
}

void wf_reduce_rows(const wf_inst *inst, const wf_kernels *k, void *acc, const void *const *rows,
                    int64_t nrows, int64_t ncols, bool init)
{
    if (inst->compute != WEFT_BOOL) {
        wf_red_kernels_of(inst->compute)
            ->rows[red_of(inst->op)](acc, rows, nrows, ncols, init ? 1 : 0);
        return;
    }
    const wf_op op = inst->op == WF_OP_ANY ? WF_OP_BITWISE_OR : WF_OP_BITWISE_AND;
    if (init)
        memcpy(acc, rows[0], (size_t)ncols);
    for (int64_t i = init ? 1 : 0; i < nrows; i++)
        k->map[WF_CT_U8][op](acc, (const void *const[]){acc, rows[i]}, (size_t)ncols, 0);
}

/* -- rows ------------------------------------------------------------------------------------------------- */
static uint8_t truth_of(const wf_inst *inst, const uint8_t *x, int64_t n)
{
    const bool any = inst->op == WF_OP_ANY;
    return (memchr(x, any ? 1 : 0, (size_t)n) != NULL) == any;
}

/* Does the strip begin what is reduced: a row, or a block of a split run? Does it end it? */
static bool begins(const wf_row_task *t)
{
    return t->c0 == 0 || (t->r->blocks > 0 && t->c0 % WF_BLOCK == 0);
}
static bool ends(const wf_row_task *t)
{
    const int64_t end = t->c0 + t->cn;
    return end == t->r->s.n || (t->r->blocks > 0 && end % WF_BLOCK == 0);
}

static void reduce_truths(const wf_row_task *t, const wf_inst *inst, const uint8_t *x, uint8_t *out)
{
    for (int64_t i = 0; i < t->rn; i++) {
        const uint8_t b = truth_of(inst, x + i * t->cn, t->cn);
        const uint8_t old = begins(t) ? b : out[i];
        out[i] = inst->op == WF_OP_ANY ? b | old : b & old;
    }
}

static void reduce_straight(const wf_row_task *t, const wf_inst *inst, const char *x, char *out)
{
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    if (inst->compute == WEFT_BOOL) {
        reduce_truths(t, inst, (const uint8_t *)x, (uint8_t *)out);
        return;
    }
    const wf_red op = red_of(inst->op);
    const wf_red_kernels *k = wf_red_kernels_of(inst->compute);
    if (t->cn == t->r->s.n && t->cn < WF_LANES && t->rn > 1) {
        k->shorts[op](out, x, t->cn, t->cn, t->rn);
    } else if (t->cn == t->r->s.n) {
        for (int64_t i = 0; i < t->rn; i++)
            k->run[op](out + i * size, x + i * t->cn * size, t->cn);
    } else {
        wf_canon *c = (wf_canon *)(void *)(t->mem + t->r->canon +
                                           t->r->plan.red[inst->value] * (int64_t)sizeof *c);
        if (begins(t))
            wf_canon_begin(c, k, op);
        wf_canon_add(c, x, t->cn);
        if (ends(t))
            wf_canon_end(c, out);
    }
}

/* -- turned ------------------------------------------------------------------------------------------------ */
/* acc[0] = the halving tree over count <= 64 vectors of n values, in acc. */
static void halve(const wf_inst *inst, const wf_kernels *k, char *acc, int64_t count, int64_t n)
{
    const int64_t pitch = n * (int64_t)wf_dtype_size(inst->compute);
    for (int64_t h = WF_LANES / 2; h >= 1; h /= 2)
        if (count > h) {
            wf_reduce_rows(inst, k, acc, (const void *const[]){acc + h * pitch}, 1, (count - h) * n,
                           false);
            count = h;
        }
}

/* A whole reduced axis of at most 64 indices: the first halving reads the tile and writes `acc`. */
static void reduce_at_once(const wf_row_task *t, const wf_inst *inst, const char *x, char *acc,
                           char *out)
{
    const int64_t n = t->rn, pitch = n * (int64_t)wf_dtype_size(inst->compute);
    int64_t h = WF_LANES / 2;
    while (h >= t->cn && h > 1)
        h /= 2;
    if (t->cn <= 2 || h == 1) {
        const void *rows[2] = {x, x + pitch};
        wf_reduce_rows(inst, t->r->k, out, rows, t->cn, n, true);
        return;
    }
    const int64_t pairs = t->cn - h;
    wf_reduce_rows(inst, t->r->k, acc, (const void *const[]){x, x + h * pitch}, 2, pairs * n, true);
    memcpy(acc + pairs * pitch, x + pairs * pitch, (size_t)((h - pairs) * pitch));
    halve(inst, t->r->k, acc, h, n);
    memcpy(out, acc, (size_t)pitch);
}

static void reduce_turned(const wf_row_task *t, const wf_inst *inst, const char *x, char *out)
{
    const wf_row_run *r = t->r;
    const int64_t n = t->rn, pitch = n * (int64_t)wf_dtype_size(inst->compute);
    if (t->cn == r->s.n && t->cn <= WF_LANES) {
        reduce_at_once(t, inst, x, t->mem + r->spread + (WF_SPREADS - 2) * r->pitch, out);
        return;
    }
    char *lanes = t->mem + r->lanes + 2 * r->plan.red[inst->value] * r->lane_pitch;
    const int64_t in = t->c0 % WF_BLOCK, end = t->c0 + t->cn, b = t->c0 / WF_BLOCK;
    wf_reduce_rows(inst, r->k, lanes + in % WF_LANES * pitch, (const void *const[]){x}, 1,
                   t->cn * n, in < WF_LANES);
    if (end % WF_BLOCK != 0 && end != r->s.n)
        return;
    const int64_t filled = end - b * WF_BLOCK;
    halve(inst, r->k, lanes, filled < WF_LANES ? filled : WF_LANES, n);
    if (r->blocks > 0) {
        memcpy(wf_reduce_part(r, inst, b) + t->r0 * (int64_t)wf_dtype_size(inst->compute), lanes,
               (size_t)pitch);
    } else if (r->s.n <= WF_BLOCK) {
        memcpy(out, lanes, (size_t)pitch);
    } else { /* a value of the next level */
        char *above = lanes + r->lane_pitch;
        wf_reduce_rows(inst, r->k, above + b % WF_LANES * pitch, (const void *const[]){lanes}, 1, n,
                       b < WF_LANES);
        if (end != r->s.n)
            return;
        halve(inst, r->k, above, b < WF_LANES ? b + 1 : WF_LANES, n);
        memcpy(out, above, (size_t)pitch);
    }
}

void wf_reduce_strip(wf_row_task *t, const wf_inst *inst, const char *x)
{
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    char *out = wf_row_slot(t, inst->value);
    t->at[inst->value] = out;
    if (t->r->turned)
        reduce_turned(t, inst, x, out);
    else if (t->r->blocks > 0)
        reduce_straight(t, inst, x, wf_reduce_part(t->r, inst, t->c0 / WF_BLOCK) + t->r0 * size);
    else
        reduce_straight(t, inst, x, out + (t->r0 - t->g0) * size);
}

/* -- split runs --------------------------------------------------------------------------------------------- */
char *wf_reduce_part(const wf_row_run *r, const wf_inst *inst, int64_t b)
{
    return r->parts + (r->plan.red[inst->value] * r->blocks + b) * r->s.rows * 8;
}

int wf_reduce_parts(wf_row_run *r)
{
    int status = 0;
    for (int i = 0; i < r->p->ninst && status == 0; i++) {
        const wf_inst *inst = &r->p->inst[i];
        if (inst->kind != WF_INST_REDUCE)
            continue;
        char *first = wf_reduce_part(r, inst, 0);
        if (inst->compute == WEFT_BOOL) { /* no order */
            for (int64_t b = 1; b < r->blocks; b++)
                wf_reduce_rows(inst, r->k, first, (const void *const[]){wf_reduce_part(r, inst, b)},
                               1, r->s.rows, false);
            continue;
        }
        const int64_t size = (int64_t)wf_dtype_size(inst->compute);
        const size_t bytes = (size_t)(r->s.rows * size);
        wf_view v = {.data = first, .dtype = inst->compute, .rank = 2};
        v.dims[0] = r->blocks;
        v.dims[1] = r->s.rows;
        v.strides[0] = r->s.rows * 8 / size;
        v.strides[1] = 1;
        char *out = wf_scratch(bytes);
        const wf_red_job j = {
            .op = red_of(inst->op), .compute = inst->compute, .axes = 1, .x = &v, .out = out};
        status = out == NULL ? WEFT_ENOMEM : wf_red_run(&j);
        if (status == 0)
            memcpy(first, out, bytes);
        wf_scratch_free(out, bytes);
    }
    return status;
}
