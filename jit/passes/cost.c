/*
 * jit/passes/cost.c -- modelled memory traffic; see cost.h.
 */
#include "jit/passes/cost.h"

#include <stdlib.h>

#include "jit/ir/flops.h"
#include "jit/passes/fuse.h"

/* More than any memory: products with how many tensors there are do not overflow, whatever sizes a file has. */
#define MOST ((int64_t)1 << 48)

int64_t wf_cost_bytes(int dtype, int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= shape[i] == 0 || shape[rank + i] != 0 ? shape[i] : 1;
    }
    n *= (int64_t)wf_dtype_size(dtype);
    return n < MOST ? n : MOST;
}

int64_t wf_cost_read(wf_op op, int operand, int dtype, int64_t bytes, int64_t result)
{
    int64_t picked = result * (int64_t)wf_dtype_size(dtype);
    return operand == 0 && wf_flops_picks(op) && picked < bytes ? picked : bytes;
}

void wf_cost_alone(const wf_layout *l, uint32_t k, int64_t *reads, int64_t *writes)
{
    const wf_ins *i = &l->f->ins[k];
    const wf_val *src = wf_ins_src(l->f, i);
    *reads = *writes = 0;
    for (int r = 0; r < wf_rows[i->op].ndst; r++) {
        const wf_map_of *m = &l->map[k + 1 + (uint32_t)r];
        wf_cost_add(writes, wf_cost_bytes(m->dtype, m->rank, l->words + m->shape));
    }
    for (int a = 0; a < i->nsrc && *writes; a++) { /* of no elements, nothing is read */
        const wf_map_of *m = &l->map[src[a]];
        bool again = false;
        for (int b = 0; b < a && a < 8; b++) { /* concat of many: not looked for */
            again |= src[b] == src[a];
        }
        if (m->root && !again) {
            wf_cost_add(reads, wf_cost_read((wf_op)i->op, a, m->dtype,
                                            wf_cost_bytes(m->dtype, m->rank, l->words + m->shape),
                                            wf_type_numel(wf_fn_type(l->f, k + 1))));
        }
    }
}

/* What is known of each value of a function run op by op: the last row that reads it, and the last run of rows that has read it. */
typedef struct uses {
    const wf_layout *l;
    uint32_t *last, *seen;
} uses;

static int64_t bytes_of(const uses *u, wf_val v)
{
    const wf_map_of *m = &u->l->map[v];
    return m->root ? wf_cost_bytes(m->dtype, m->rank, u->l->words + m->shape) : 0;
}

/* Rows [k, end) in one pass: what of them anything behind reads is written, what they find is read once. */
static void cost_pass(const uses *u, uint32_t k, uint32_t end, int64_t *reads, int64_t *writes)
{
    const wf_fn *f = u->l->f;
    for (uint32_t i = k; i < end; i++) {
        const wf_val *src = wf_ins_src(f, &f->ins[i]);
        wf_cost_add(writes, u->last[i + 1] >= end ? bytes_of(u, i + 1) : 0);
        for (int s = 0; s < f->ins[i].nsrc; s++) {
            const wf_val root = u->l->map[src[s]].root;
            if (root <= k && u->seen[root] != k + 1) {
                u->seen[root] = k + 1;
                wf_cost_add(reads, bytes_of(u, src[s]));
            }
        }
    }
}

/* Where the pass ends that row k begins. None begins with a scalar, so that a run of them is looked through once. */
static uint32_t end_of_pass(const wf_fn *f, uint32_t k)
{
    uint32_t end = k + 1;
    for (uint32_t i = end; i < f->n && !wf_op_is_weak(f->ins[k].op); i++) {
        if (f->ins[i].flags & WF_INS_JOINED) {
            end = i + 1;
        } else if (!wf_op_is_weak(
                       f->ins[i].op)) { /* scalars are appended when they are first used */
            break;
        }
    }
    return end;
}

int wf_cost_eager(const wf_layout *l, const uint32_t *group_of, int64_t *reads, int64_t *writes)
{
    const wf_fn *f = l->f;
    uses u = {.l = l,
              .last = calloc(f->n + 1u, sizeof *u.last),
              .seen = calloc(f->n + 1u, sizeof *u.seen)};
    const int rc = u.last && u.seen ? 0 : WEFT_ENOMEM;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int s = 0; s < f->ins[k].nsrc; s++) {
            u.last[l->map[src[s]].root] = k;
        }
    }
    for (uint32_t o = 0; o < f->noutputs && !rc; o++) {
        u.last[l->map[f->outputs[o]].root] = f->n;
    }
    for (uint32_t k = 0, end; k < f->n && !rc; k = end) {
        int64_t r = 0, w = 0;
        end = end_of_pass(f, k);
        if (end > k + 1) {
            cost_pass(&u, k, end, &r, &w);
        } else if (group_of[k] != WF_NO_GROUP) {
            wf_cost_alone(l, k, &r, &w);
        }
        wf_cost_add(reads, r);
        wf_cost_add(writes, w);
    }
    free(u.last);
    free(u.seen);
    return rc;
}

int64_t wf_weigh_bytes(int64_t bytes)
{
    return bytes <= WF_NEAR ? bytes / 2 : bytes;
}

int64_t wf_weigh_crowd(uint32_t streams, int64_t bytes)
{
    return streams > WF_STREAMS ? streams * bytes / 4 : 0;
}
