/*
 * jit/passes/reasons.c -- why two steps that share a value are two; see fuse.h and reasons.def.
 *
 * The reason is found when a plan is asked for its edges, from the finished schedule: what would have kept the two apart.
 */
#include "eager/program.h"
#include "jit/passes/cost.h"
#include "jit/passes/fuse.h"

const char *const wf_reason_text[WF_REASON_COUNT] = {
#define REASON(NAME, text) [WF_REASON_##NAME] = text,
#include "jit/passes/reasons.def"
};
const char *const wf_reason_name[WF_REASON_COUNT] = {
#define REASON(NAME, text) [WF_REASON_##NAME] = #NAME,
#include "jit/passes/reasons.def"
};

/* Of the edge at a step of one row, instruction k: what it reads, or makes. */
static wf_reason kernel_reason(const wf_layout *l, uint32_t k, bool reads)
{
    const wf_op op = (wf_op)l->f->ins[k].op;
    if (wf_map_count(l, wf_space_of(l, k)) == 0) {
        return WF_REASON_EMPTY;
    }
    if (wf_is_composite(l, k) && !wf_is_openable(l, k)) {
        return WF_REASON_OPERANDS;
    }
    switch ((wf_kind)wf_rows[op].kind) {
    case WF_KIND_OPAQUE:
        return reads ? WF_REASON_READS_MEMORY : WF_REASON_OPAQUE;
    case WF_KIND_REDUCE:
        return WF_REASON_REDUCTION;
    case WF_KIND_INDEX:
        return WF_REASON_INDEX;
    case WF_KIND_MOVE:
    case WF_KIND_VIEW:
        return op == WF_OP_COPY ? WF_REASON_LAYOUT : WF_REASON_MOVE;
    case WF_KIND_CREATE:
        return WF_REASON_RANDOM;
    case WF_KIND_ROWWISE:
    case WF_KIND_GRAD:
        return op == WF_OP_LAYER_NORM_BWD || op == WF_OP_RMS_NORM_BWD ? WF_REASON_BOTH_WAYS
                                                                      : WF_REASON_ROWWISE;
    case WF_KIND_LEAF:
    case WF_KIND_UNARY:
    case WF_KIND_BINARY:
    case WF_KIND_TERNARY:
    case WF_KIND_PREDICATE:
    case WF_KIND_COMPARE:
    case WF_KIND_CHOOSE:
        break;
    }
    return WF_REASON_READS_MEMORY;
}

/* Do rows that are too long for a cache lie between the two, which could be one otherwise? */
static bool is_across_long(const wf_schedule *s, const wf_layout *l, const wf_group *x,
                           const wf_group *y, uint32_t k, wf_val u)
{
    wf_iter made, read;
    wf_iter_of(l, wf_maker_of(l, u) - 1, &made);
    wf_iter_of(l, k, &read);
    const bool fits = s->level[l->map[u].root] == WF_AT_ROW || wf_reads_whole(l, k, u);
    return fits && (wf_is_long(&made) || wf_is_long(&read) || wf_is_long(&x->space) ||
                    wf_is_long(&y->space));
}

wf_reason wf_edge_reason(const wf_schedule *s, const wf_layout *l, uint32_t k, wf_val u)
{
    wf_val maker = u ? wf_maker_of(l, u) : 0;
    uint32_t c = s->group_of[k], p = maker ? s->group_of[maker - 1] : WF_NO_GROUP;
    if (p == WF_NO_GROUP || c == WF_NO_GROUP || p == c) {
        return WF_REASON_NONE;
    }
    const wf_group *x = &s->groups[p], *y = &s->groups[c];
    if (y->kind == WF_STEP_MAP && wf_fill_of(l, u)) {
        return WF_REASON_NONE; /* a scalar to the group */
    }
    bool closed = !s->rows && !s->off;
    bool x_open = x->kind == WF_STEP_MAP || wf_is_openable(l, maker - 1);
    bool y_open = y->kind == WF_STEP_MAP || wf_is_openable(l, k);
    bool both = x->kind == WF_STEP_MAP && y->kind == WF_STEP_MAP;
    if (!both && x_open && y_open && closed) {
        return WF_REASON_CLOSED;
    }
    if (s->rows && !s->alone && x_open && y_open && is_across_long(s, l, x, y, k, u)) {
        return WF_REASON_LONG_ROWS;
    }
    if (x->kind == WF_STEP_OP) {
        return kernel_reason(l, maker - 1, false);
    }
    if (y->kind == WF_STEP_OP) {
        return kernel_reason(l, k, true);
    }
    if (s->off) {
        return WF_REASON_OFF;
    }
    if (x->space.axes && y->space.axes && !wf_same_axes(&x->space, &y->space)) {
        return WF_REASON_AXES;
    }
    if (!wf_reads_whole(l, k, u)) {
        bool same = wf_map_count(l, &l->map[u]) == wf_map_count(l, wf_space_of(l, k));
        return same ? WF_REASON_VIEW : WF_REASON_SPACE;
    }
    if (s->dear && (s->dear[k] || s->dear[maker - 1])) {
        return WF_REASON_PEAK;
    }
    return x->insts + y->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ? WF_REASON_SIZE
           : x->scalars + y->scalars > WF_PROGRAM_SCALARS              ? WF_REASON_SCALARS
           : x->inputs + y->inputs > WF_PROGRAM_INPUTS                 ? WF_REASON_INPUTS
           : !s->alone && x->streams + y->streams > WF_STREAMS         ? WF_REASON_COSTS_MORE
           : wf_same_dims(&x->space, &y->space)                        ? WF_REASON_ORDER
                                                                       : WF_REASON_SHAPE;
}
