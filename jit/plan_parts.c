/*
 * jit/plan_parts.c -- parts: a group writes its value where the concat that reads it has it.
 *
 * What only a concat reads goes through memory three times: the group writes it, the concat reads it and writes it again. A
 * group's results may lie in any strides, so it writes into the concat's memory instead, and the concat is what is left of it:
 * copies of operands that no group makes, or nothing. Gradients of slices (rotary embeddings, gated units, a projection that is
 * cut into three) are such concats.
 *
 * The value must be the whole of the operand (a reshape at most), of the concat's type, returned by nobody and read from memory by
 * nobody else. Readers in its own group, and groups that compute it again, have it without memory.
 *
 * The concat's memory is there from the first of its parts on, which may be long before the last: plans that take much more for it
 * are made again without parts. Those of devices have none, as their kernels know no such results.
 *
 * Invariants: a buffer is made when all its parts are; parts of one concat share no element, whatever the axis.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/passes/pass.h"
#include "jit/plan_lower.h"

int64_t wf_part_extent(const wf_fn *f, wf_val whole, uint32_t operand)
{
    const wf_ins *i = wf_fn_at(f, whole);
    return wf_fn_type(f, wf_ins_src(f, i)[operand])->dims[wf_ins_attr(f, i)->ints[0]];
}

int wf_part_operand_map(wf_planner *b, const wf_part *at, wf_map_of *out)
{
    const int axis = (int)wf_ins_attr(b->f, wf_fn_at(b->f, at->whole))->ints[0];
    return wf_map_narrow(&b->l, &b->l.map[at->whole], axis, at->start,
                         wf_part_extent(b->f, at->whole, at->operand), out);
}

int wf_part_map(wf_planner *b, const wf_iter *s, wf_val v, int level, wf_map_of *out)
{
    const wf_type *t = wf_fn_type(b->f, v);
    wf_map_of m, own;
    int rc = wf_part_operand_map(b, &b->part[v], &m);
    rc = rc ? rc : wf_map_reshape(&b->l, &m, t->rank, t->dims, &own);
    return rc ? rc : wf_write_map(&b->l, s, &own, level, out);
}

/* Is each operand of a concat, which is memory of its own, of its type? */
static bool has_parts(const wf_planner *b, uint32_t k)
{
    const wf_fn *f = b->f;
    const wf_ins *i = &f->ins[k];
    const wf_map_of *m = &b->l.map[k + 1];
    if (i->op != WF_OP_CONCAT || b->s.group_of[k] == WF_NO_GROUP || b->buffer_of[k + 1] < 0 ||
        m->root != k + 1 || !wf_map_is_whole(&b->l, m) || wf_map_count(&b->l, m) == 0) {
        return false;
    }
    const wf_val *src = wf_ins_src(f, i);
    bool same = true;
    for (int s = 0; s < i->nsrc; s++) {
        same = same && src[s] && b->l.map[src[s]].root && b->l.map[src[s]].dtype == m->dtype;
    }
    return same;
}

/* May that operand of a concat, v, be written in its place by the group that makes it? 0, 1: no; WEFT_ENOMEM. */
static int try_part(wf_planner *b, wf_part at, wf_val v, const uint32_t *reads)
{
    const wf_map_of *m = &b->l.map[v];
    const wf_val root = m->root, maker = wf_maker_of(&b->l, v);
    const uint32_t g = maker ? b->s.group_of[maker - 1] : WF_NO_GROUP;
    wf_map_of place;
    if (g == WF_NO_GROUP || b->s.groups[g].kind != WF_STEP_MAP || wf_fill_of(&b->l, v) ||
        reads[root] != 1 || b->part[root].whole || wf_map_count(&b->l, m) == 0 ||
        !wf_map_is_whole(&b->l, m) || !wf_map_is_whole(&b->l, &b->l.map[root])) {
        return 1;
    }
    b->part[root] = at;
    int rc = wf_part_map(b, &b->s.groups[g].space, root, b->s.level[root], &place);
    rc = rc ? rc : !wf_stage_may(WF_STAGE_parts);
    b->part[root].whole = rc ? 0 : at.whole;
    return rc;
}

static int find_all(wf_planner *b, const uint32_t *reads)
{
    const wf_fn *f = b->f;
    int rc = 0;
    for (uint32_t k = 0; k < f->n && !rc; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        const uint32_t n = has_parts(b, k) ? f->ins[k].nsrc : 0;
        wf_part at = {.whole = k + 1};
        for (uint32_t s = 0; s < n && !rc; s++) {
            at.operand = s;
            if (!b->part) {
                b->part = calloc(f->n + 1u, sizeof *b->part);
            }
            rc = b->part ? try_part(b, at, src[s], reads) : WEFT_ENOMEM;
            if (rc == 0) {
                b->buffer_of[b->l.map[src[s]].root] = WF_BUFFER_ABSENT;
            }
            rc = rc == 1 ? 0 : rc;
            at.start += wf_part_extent(f, k + 1, s);
        }
    }
    return rc;
}

int wf_plan_find_parts(wf_planner *b, const uint32_t *reads)
{
    if (b->whole || b->opts->flags & (WF_PLAN_ALONE | WF_PLAN_NO_FUSE)) {
        return 0;
    }
    const int before = wf_work_enter(WF_TIMED_parts);
    const int rc = find_all(b, reads);
    wf_work_leave(before);
    return rc;
}

wf_part wf_part_of(const wf_planner *b, wf_val root)
{
    return b->part ? b->part[root] : (wf_part){.whole = 0};
}
