/*
 * jit/passes/cost.c -- modelled memory traffic; see cost.h.
 */
#include "jit/passes/cost.h"

#include "jit/ir/flops.h"

int64_t wf_cost_bytes(int dtype, int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= shape[i] == 0 || shape[rank + i] != 0 ? shape[i] : 1;
    }
    return n * (int64_t)wf_dtype_size(dtype);
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
        *writes += wf_cost_bytes(m->dtype, m->rank, l->words + m->shape);
    }
    for (int a = 0; a < i->nsrc && *writes; a++) { /* of no elements, nothing is read */
        const wf_map_of *m = &l->map[src[a]];
        bool again = false;
        for (int b = 0; b < a && a < 8; b++) { /* concat of many: not looked for */
            again |= src[b] == src[a];
        }
        if (m->root && !again) {
            *reads += wf_cost_read((wf_op)i->op, a, m->dtype,
                                   wf_cost_bytes(m->dtype, m->rank, l->words + m->shape),
                                   wf_type_numel(wf_fn_type(l->f, k + 1)));
        }
    }
}

int64_t wf_weigh_bytes(int64_t bytes)
{
    return bytes <= WF_NEAR ? bytes / 2 : bytes;
}

int64_t wf_weigh_crowd(uint32_t streams, int64_t bytes)
{
    return streams > WF_STREAMS ? streams * bytes / 4 : 0;
}
