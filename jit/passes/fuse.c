/*
 * jit/passes/fuse.c -- grouping instructions into steps; see fuse.h.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/passes/fuse.h"

bool wf_is_mappable(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    if (wf_op_is_elementwise((wf_op)i->op) || i->op == WF_OP_CAST || i->op == WF_OP_COPY) {
        return true;
    }
    return i->op == WF_OP_RESHAPE && l->map[k + 1].root == k + 1; /* one that copies */
}

bool wf_is_fill(const wf_fn *f, wf_val v)
{
    return v && wf_fn_at(f, v)->op == WF_OP_FULL;
}

/* Views and leaves are not steps. */
static bool is_step(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    return wf_rows[i->op].kind != WF_KIND_LEAF && l->map[k + 1].root == k + 1;
}

int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, wf_why *why)
{
    const wf_fn *f = l->f;
    (void)flags;
    *s = (wf_schedule){0};
    s->groups = malloc((f->n + 1u) * sizeof *s->groups);
    s->members = malloc((f->n + 1u) * sizeof *s->members);
    s->group_of = malloc((f->n + 1u) * sizeof *s->group_of);
    if (!s->groups || !s->members || !s->group_of) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory for a plan");
    }
    for (uint32_t k = 0; k < f->n; k++) {
        s->group_of[k] = WF_NO_GROUP;
        if (!live[k] || !is_step(l, k)) {
            continue;
        }
        bool map = wf_is_mappable(l, k);
        const wf_map_of *space = &l->map[f->ins[k].op == WF_OP_RESHAPE ? f->ins[k].src[0] : k + 1];
        s->groups[s->ngroups] = (wf_group){.kind = map ? WF_STEP_MAP : WF_STEP_OP,
                                           .rank = space->rank,
                                           .dims = space->shape,
                                           .first = s->ngroups,
                                           .n = 1};
        s->members[s->ngroups] = k;
        s->group_of[k] = s->ngroups++;
    }
    return 0;
}

void wf_schedule_free(wf_schedule *s)
{
    free(s->groups);
    free(s->members);
    free(s->group_of);
}
