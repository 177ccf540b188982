/*
 * jit/passes/fuse.c -- grouping instructions into steps; see fuse.h.
 *
 * Three passes, each linear in the function but for a sort of what the last one looks at.
 *
 * Forward: groups are numbered in running order. Instruction k may join any group that is not before
 * those which make its operands; it tries the one that makes its latest operand (a value less to write and to read).
 * Otherwise it opens a new group, the last. Since a member's operands never come from a later group,
 * no cycle can arise and none is searched for.
 *
 * Backward, and pairs by what they save: fuse_join.c.
 *
 * Limits of programs cut groups while they grow, and so does the model where a kernel would walk along more tensors
 * than a cache keeps apart (cost.h). Outputs are known only at the end, and a group with
 * too many is halved (a prefix never depends on the rest).
 */
#include <stdlib.h>
#include <string.h>

#include "eager/env.h"
#include "eager/program.h"
#include "jit/passes/cost.h"
#include "jit/passes/fuse_impl.h"
#include "jit/passes/pass.h"

/* Views and leaves are not steps. */
static bool is_step(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    return wf_rows[i->op].kind != WF_KIND_LEAF && l->map[k + 1].root == k + 1;
}

/* -- growing groups ------------------------------------------------------------------------------------ */

/* What an instruction adds to a group. */
typedef struct demand {
    wf_map_of in[8];
    int nin;
    uint32_t insts, scalars, depth, draws;
    int64_t saved; /* weighed bytes of operands that need no reading */
} demand;

static bool is_scalar_read(const wf_fuser *u, wf_val v)
{
    return !u->l->map[v].root || wf_fill_of(u->l, v);
}

uint32_t wf_fuser_made_by(const wf_fuser *u, wf_val v)
{
    wf_val maker = wf_maker_of(u->l, v);
    return maker && !wf_fill_of(u->l, v) ? u->s->group_of[maker - 1] : WF_NIL;
}

bool wf_is_made_inside(const wf_schedule *s, wf_layout *l, uint32_t g, const wf_iter *space,
                       uint32_t k, wf_val v)
{
    wf_val maker = wf_maker_of(l, v);
    return maker && !wf_fill_of(l, v) && s->group_of[maker - 1] == g &&
           wf_reads_inside(l, space, k, v, s->level[l->map[v].root]);
}

int64_t wf_fuser_weigh_map(const wf_fuser *u, const wf_map_of *m)
{
    return wf_weigh_bytes(wf_cost_bytes(m->dtype, m->rank, u->l->words + m->shape));
}

static int64_t weigh_value(const wf_fuser *u, wf_val v)
{
    return wf_fuser_weigh_map(u, &u->l->map[u->l->map[v].root]);
}

/* What k would add to group g if it had that space. 0; 1: a copy is needed; WEFT_ENOMEM. */
static int find_demand(wf_fuser *u, uint32_t g, uint32_t k, const wf_iter *space, demand *d)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    const wf_type *t = &u->f->types[i->type];
    bool row = !wf_is_mappable(u->l, k);
    d->nin = 0;
    d->saved = WF_LAUNCH;
    bool loss = wf_targets_of(u->l, k) != 0;
    d->scalars = !row ? 0 : loss ? 10 : 2; /* counts, eps; of losses: weights, the index left out */
    d->insts = (t->dtype == WEFT_F16 || t->dtype == WEFT_BF16 ? 2u : 1u) + (!row   ? 0u
                                                                            : loss ? 40u
                                                                                   : 20u);
    d->depth = !row ? 0 : loss ? 3 : 2;
    d->draws = wf_is_draw(u->l, k);
    d->scalars += d->draws ? 4 : 0;
    for (int a = 0; a < i->nsrc; a++) {
        if (!src[a]) {
            continue;
        }
        d->insts += wf_fn_type(u->f, src[a])->dtype != wf_dtype_compute(t->dtype);
        if (is_scalar_read(u, src[a])) {
            wf_val fill = wf_fill_of(u->l, src[a]);
            uint32_t made = fill && u->l->uniform ? u->l->uniform[fill] : 0;
            d->scalars += 1 + 2 * made;
            d->insts += 2 * made;
        } else if (!wf_is_made_inside(u->s, u->l, g, space, k, src[a])) {
            bool per_row;
            int rc = wf_read_map(u->l, space, k, src[a], &d->in[d->nin], &per_row);
            if (rc) {
                return rc;
            }
            d->nin++;
        } else {
            d->saved += 2 * weigh_value(u, src[a]); /* nor writing, if nobody else reads it */
        }
    }
    return 0;
}

bool wf_fuser_has_input(const wf_fuser *u, const wf_open_group *g, const wf_map_of *m)
{
    for (uint32_t i = g->input; i != WF_NIL; i = u->inputs[i].next) {
        if (wf_map_same(u->l, &u->inputs[i].map, m)) {
            return true;
        }
    }
    return false;
}

int wf_fuser_add_input(wf_fuser *u, wf_open_group *g, const wf_map_of *m)
{
    if (wf_fuser_has_input(u, g, m)) {
        return 0;
    }
    if (u->ninputs == u->capinputs) {
        size_t cap = u->capinputs ? u->capinputs * 2 : 256;
        wf_fuser_input *p = realloc(u->inputs, cap * sizeof *p);
        if (!p) {
            return WEFT_ENOMEM;
        }
        u->inputs = p;
        u->capinputs = cap;
    }
    u->inputs[u->ninputs] = (wf_fuser_input){*m, g->input};
    g->input = (uint32_t)u->ninputs++;
    g->inputs++;
    g->streams += wf_is_stream(u->l, &g->space, m);
    return 0;
}

bool wf_fuser_reshape_group(wf_fuser *u, wf_open_group *g, const wf_iter *to)
{
    wf_map_of t[WF_PROGRAM_INPUTS];
    int n = 0;
    if (g->space.axes) { /* rows have their axes */
        return false;
    }
    for (uint32_t i = g->input; i != WF_NIL; i = u->inputs[i].next) {
        wf_map_of old = u->inputs[i].map;
        int rc = wf_map_reshape(u->l, &old, to->rank, to->dims, &t[n++]);
        if (rc) {
            u->no_memory |= rc != 1;
            return false;
        }
    }
    n = 0;
    for (uint32_t i = g->input; i != WF_NIL; i = u->inputs[i].next) {
        u->inputs[i].map = t[n++];
    }
    g->space = *to;
    return true;
}

bool wf_fuser_is_crowded(const wf_fuser *u, const wf_open_group *g, uint32_t more, int64_t saved)
{
    const uint32_t k = g->head;
    const int64_t stream =
        wf_weigh_bytes(g->space.count * (int64_t)wf_dtype_size(wf_fn_type(u->f, k + 1)->dtype));
    return more && !u->alone &&
           wf_weigh_crowd(g->streams + more + 1, stream) - wf_weigh_crowd(g->streams + 1, stream) >
               saved;
}

static wf_reason check_limits(const wf_fuser *u, const wf_open_group *g, const demand *d)
{
    uint32_t inputs = g->inputs + g->draws + d->draws, streams = 0;
    int64_t saved = d->saved;
    for (int i = 0; i < d->nin; i++) {
        const bool has = wf_fuser_has_input(u, g, &d->in[i]);
        inputs += !has;
        streams += !has && wf_is_stream(u->l, &g->space, &d->in[i]);
        saved += has ? wf_fuser_weigh_map(u, &d->in[i]) : 0;
    }
    return inputs > WF_PROGRAM_INPUTS                                    ? WF_REASON_INPUTS
           : g->scalars + d->scalars > WF_PROGRAM_SCALARS                ? WF_REASON_SCALARS
           : g->insts + d->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ? WF_REASON_SIZE
           : g->depth + d->depth > WF_PROGRAM_DEPTH - 2                  ? WF_REASON_SIZE
           : u->most && g->n >= u->most                                  ? WF_REASON_SIZE
           : wf_fuser_is_crowded(u, g, streams, saved)                   ? WF_REASON_COSTS_MORE
                                                                         : WF_REASON_NONE;
}

/* Does opened row k go over elements more than once? */
static bool has_passes(const wf_fuser *u, uint32_t k)
{
    const wf_op op = (wf_op)u->f->ins[k].op;
    return wf_rows[op].kind != WF_KIND_REDUCE || op == WF_OP_VAR || op == WF_OP_STD ||
           op == WF_OP_LOGSUMEXP;
}

/* Rows too long for a cache: in one kernel, what follows a reduction would go over them once more, with what made them
 * computed again, and with one task a row. As two kernels both are cut as they please. */
static bool is_one_pass_more(wf_fuser *u, uint32_t n, uint32_t k, const wf_iter *own)
{
    const wf_open_group *g = &u->g[n];
    const wf_val *src = wf_ins_src(u->f, &u->f->ins[k]);
    if (u->alone || !(wf_is_long(&g->space) || wf_is_long(own))) {
        return false;
    }
    bool more = g->passes || (!wf_is_mappable(u->l, k) && has_passes(u, k));
    for (int a = 0; a < u->f->ins[k].nsrc && !more; a++) {
        more = src[a] && wf_level_at(u->l, k, &g->space) == WF_AT_ELEM &&
               u->s->level[u->l->map[src[a]].root] == WF_AT_ROW &&
               wf_is_made_inside(u->s, u->l, n, &g->space, k, src[a]);
    }
    return more;
}

/* Could k be a member of group number n? Fills the demand. */
static wf_reason try_join(wf_fuser *u, uint32_t n, uint32_t k, demand *d)
{
    wf_open_group *g = &u->g[n];
    wf_iter own;
    wf_iter_of(u->l, k, &own);
    bool opened = !wf_is_mappable(u->l, k);
    if (g->kind != WF_STEP_MAP ||
        (opened ? own.count != g->space.count : wf_level_at(u->l, k, &g->space) == WF_AT_NONE)) {
        return WF_REASON_SPACE;
    }
    if (opened && g->space.axes && !wf_same_axes(&own, &g->space)) {
        return WF_REASON_AXES;
    }
    if (opened && g->draws && !wf_is_trailing(&own)) {
        return WF_REASON_AXES;
    }
    if (is_one_pass_more(u, n, k, &own)) {
        return WF_REASON_LONG_ROWS;
    }
    if (opened && !g->space.axes && !wf_fuser_reshape_group(u, g, &own)) {
        return WF_REASON_SHAPE;
    }
    int rc = find_demand(u, n, k, &g->space, d);
    if (rc == 1 && !opened && own.count == g->space.count && wf_fuser_reshape_group(u, g, &own)) {
        rc = find_demand(u, n, k, &g->space, d);
    }
    if (rc) {
        u->no_memory |= rc != 1;
        return WF_REASON_SHAPE;
    }
    /* what reduces cannot be halved afterwards (emit) */
    const bool many = (g->space.axes || opened) && g->returned >= WF_PROGRAM_OUTPUTS / 2;
    return many ? WF_REASON_SIZE : check_limits(u, g, d);
}

static void join(wf_fuser *u, uint32_t n, uint32_t k, const demand *d)
{
    wf_open_group *g = &u->g[n];
    for (int i = 0; i < d->nin; i++) {
        u->no_memory |= wf_fuser_add_input(u, g, &d->in[i]) != 0;
        u->last_reader[d->in[i].root] = n;
    }
    g->insts += d->insts;
    g->scalars += d->scalars;
    g->depth += d->depth;
    g->draws += d->draws;
    const wf_ins *i = &u->f->ins[k];
    for (int a = 0; u->wanted && a < i->nsrc; a++) {
        const wf_val v = wf_ins_src(u->f, i)[a];
        u->wanted[u->l->map[v].root] -= v && wf_fuser_made_by(u, v) == n;
    }
    u->next[k] = WF_NIL;
    if (g->n++) {
        u->next[g->tail] = k;
    } else {
        g->head = k;
    }
    g->tail = k;
    u->s->group_of[k] = n;
    int level = wf_level_at(u->l, k, &g->space);
    for (int r = 0; r < wf_rows[i->op].ndst; r++) {
        u->s->level[k + 1u + (uint32_t)r] = (uint8_t)wf_level_of_result(u->l, k, r, level);
        g->returned += u->is_returned[u->l->map[k + 1u + (uint32_t)r].root];
    }
}

static void open_new(wf_fuser *u, int kind, uint32_t k)
{
    uint32_t n = u->ng++;
    u->g[n] = (wf_open_group){.kind = (uint8_t)kind, .input = WF_NIL, .into = n};
    wf_iter_of(u->l, k, &u->g[n].space);
    demand d = {.nin = 0};
    u->g[n].passes = kind == WF_STEP_MAP && !u->alone && wf_is_long(&u->g[n].space) &&
                     !wf_is_mappable(u->l, k) && has_passes(u, k);
    if (kind == WF_STEP_MAP && find_demand(u, n, k, &u->g[n].space, &d)) {
        u->no_memory = true;
    }
    join(u, n, k, &d);
}

/* -- forward --------------------------------------------------------------------------------------------- */

/* Would k read v inside group g? */
static bool may_be_inside(const wf_fuser *u, uint32_t g, uint32_t k, wf_val v)
{
    if (wf_is_mappable(u->l, k) || wf_reads_rows(u->l, k, v)) {
        return wf_is_made_inside(u->s, u->l, g, &u->g[g].space, k, v);
    }
    /* a row instruction reads elements; whether its axes suit the group is seen when it joins */
    return u->s->level[u->l->map[v].root] == WF_AT_ELEM
               ? wf_reads_whole(u->l, k, v)
               : wf_is_made_inside(u->s, u->l, g, &u->g[g].space, k, v);
}

/* The first group that k may join, and (in *within) the one that makes its latest whole operand. */
static uint32_t first_allowed(const wf_fuser *u, uint32_t k, uint32_t *within)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    uint32_t least = 0;
    *within = WF_NIL;
    for (int a = 0; a < i->nsrc; a++) {
        uint32_t g = src[a] ? wf_fuser_made_by(u, src[a]) : WF_NIL;
        if (g == WF_NIL) {
            continue;
        }
        bool whole = u->g[g].kind == WF_STEP_MAP && may_be_inside(u, g, k, src[a]);
        uint32_t at = whole ? g : g + 1;
        least = at > least ? at : least;
        if (whole && (*within == WF_NIL || g > *within)) {
            *within = g;
        }
    }
    return least;
}

bool wf_fuser_is_cut(const wf_fuser *u, uint32_t k)
{
    uint64_t h = (u->coin + k) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return u->cuts && h >> 62 == 0;
}

/* Would k, run as part of the earlier group g, make more bytes before its turn than it spares of what the group makes? A value
 * that somebody else reads, too, is in memory until then in any case. Notes that it would. */
static bool is_early(const wf_fuser *u, uint32_t g, uint32_t k)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    int64_t made = 0;
    for (int r = 0; u->wanted && g + 1 < u->ng && r < wf_rows[i->op].ndst; r++) {
        made += wf_type_bytes(wf_fn_type(u->f, k + 1 + (wf_val)r));
    }
    for (int a = 0; made > 0 && a < i->nsrc; a++) {
        const wf_val root = u->l->map[src[a]].root;
        uint32_t own = 0, before = 0;
        for (int s = 0; s < i->nsrc; s++) {
            own += u->l->map[src[s]].root == root;
            before += s < a && u->l->map[src[s]].root == root;
        }
        const bool goes = src[a] && wf_fuser_made_by(u, src[a]) == g && !before &&
                          !u->is_returned[root] && u->wanted[root] == own;
        made -= goes ? wf_type_bytes(wf_fn_type(u->f, root)) : 0;
    }
    if (made > 0) {
        u->s->dear[k] = 1;
    }
    return made > 0;
}

static void place(wf_fuser *u, uint32_t k)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    uint32_t within, least = first_allowed(u, k, &within);
    demand d;
    if (wf_fuser_is_cut(u, k)) {
        open_new(u, WF_STEP_MAP, k);
        return;
    }
    if (within != WF_NIL && within >= least && !is_early(u, within, k) &&
        try_join(u, within, k, &d) == WF_REASON_NONE && wf_stage_may(WF_STAGE_fuse)) {
        join(u, within, k, &d);
        return;
    }
    const int64_t count = wf_map_count(u->l, wf_space_of(u->l, k));
    for (int a = 0; wf_is_mappable(u->l, k) && a < i->nsrc;
         a++) { /* once per row; others wait for join_siblings */
        wf_val root = src[a] ? u->l->map[src[a]].root : 0;
        uint32_t g = root ? u->last_reader[root] : WF_NIL;
        if (g != WF_NIL && g >= least && u->g[g].space.count != count && !is_early(u, g, k) &&
            try_join(u, g, k, &d) == WF_REASON_NONE && wf_stage_may(WF_STAGE_fuse)) {
            join(u, g, k, &d);
            return;
        }
    }
    open_new(u, WF_STEP_MAP, k);
}

/* -- the schedule ------------------------------------------------------------------------------------------ */

/* Marks members whose values are read outside [first, first + n) of members, or returned. */
static uint32_t count_outputs(const uint32_t *last_use, uint32_t first, uint32_t n,
                              const uint32_t *members)
{
    uint32_t count = 0;
    for (uint32_t m = first; m < first + n; m++) {
        count += last_use[members[m]] >= first + n;
    }
    return count;
}

/* One group, or its halves while it has too many outputs. */
static void emit(wf_fuser *u, const wf_open_group *g, uint32_t first, uint32_t n,
                 const uint32_t *last_use)
{
    wf_schedule *s = u->s;
    const uint32_t k = s->members[first];
    bool alone = n == 1 && ((!u->alone && !wf_is_mappable(u->l, k)) || wf_is_draw(u->l, k));
    if (g->kind == WF_STEP_MAP && n > 1 && !g->space.axes &&
        count_outputs(last_use, first, n, s->members) > WF_PROGRAM_OUTPUTS) {
        emit(u, g, first, n / 2, last_use);
        emit(u, g, first + n / 2, n - n / 2, last_use);
        return;
    }
    for (uint32_t m = first; m < first + n; m++) {
        s->group_of[s->members[m]] = s->ngroups;
    }
    s->groups[s->ngroups++] = (wf_group){.kind = alone ? (uint8_t)WF_STEP_OP : g->kind,
                                         .space = g->space,
                                         .first = first,
                                         .n = n,
                                         .insts = g->insts,
                                         .inputs = g->inputs,
                                         .streams = g->streams,
                                         .scalars = g->scalars};
}

/* The position in `members` of the last reader of each instruction's value (UINT32_MAX: returned, or
 * read through a view). */
static void find_last_use(const wf_fuser *u, const uint32_t *position, uint32_t *last_use)
{
    const wf_fn *f = u->f;
    memset(last_use, 0, f->n * sizeof *last_use);
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int a = 0; u->s->group_of[k] != WF_NO_GROUP && a < f->ins[k].nsrc; a++) {
            wf_val root = src[a] ? u->l->map[src[a]].root : 0;
            if (root) {
                uint32_t at = wf_reads_whole(u->l, k, src[a]) ? position[k] : WF_NIL;
                uint32_t *last = &last_use[root - 1];
                *last = at > *last ? at : *last;
            }
        }
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        wf_val root = u->l->map[f->outputs[o]].root;
        last_use[root ? root - 1 : 0] = WF_NIL;
    }
}

static int write_schedule(wf_fuser *u)
{
    wf_schedule *s = u->s;
    uint32_t *position = malloc((u->f->n + 1u) * sizeof *position);
    uint32_t *last_use = malloc((u->f->n + 1u) * sizeof *last_use);
    uint32_t *start = malloc((u->ng + 1u) * sizeof *start), at = 0;
    int rc = position && last_use && start ? 0 : WEFT_ENOMEM;
    for (uint32_t g = 0; g < u->ng && !rc; g++) {
        start[g] = at;
        for (uint32_t k = u->g[g].head, m = 0; m < u->g[g].n; k = u->next[k], m++) {
            position[k] = at;
            s->members[at++] = k;
        }
    }
    if (!rc) {
        find_last_use(u, position, last_use);
    }
    for (uint32_t g = 0; g < u->ng && !rc; g++) {
        if (u->g[g].n) {
            emit(u, &u->g[g], start[g], u->g[g].n, last_use);
        }
    }
    free(position);
    free(last_use);
    free(start);
    return rc;
}

enum { TAIL = 4096 }; /* elements */

/* A mean over rows' losses and the like: a launch each takes longer than the numbers do, so these are opened whatever
 * is measured of larger rows. */
static bool is_tail(const wf_fuser *u, uint32_t k)
{
    const wf_op op = (wf_op)u->f->ins[k].op;
    wf_iter s;
    if (u->most || !(op == WF_OP_SUM || op == WF_OP_MEAN || op == WF_OP_COUNT_NONZERO) ||
        !wf_is_openable(u->l, k)) {
        return false;
    }
    wf_iter_of(u->l, k, &s);
    return s.kept == 1 && s.count <= TAIL;
}

/* Readings of each root, before anything is in a group. */
static void count_readings(wf_fuser *u, const uint8_t *live)
{
    for (uint32_t k = 0; k < u->f->n; k++) {
        const wf_ins *i = &u->f->ins[k];
        for (int a = 0; live[k + 1] && is_step(u->l, k) && a < i->nsrc; a++) {
            u->wanted[u->l->map[wf_ins_src(u->f, i)[a]].root]++;
        }
    }
}

static void group_all(wf_fuser *u, const uint8_t *live, unsigned flags)
{
    const wf_fn *f = u->f;
    if (u->wanted) {
        count_readings(u, live);
    }
    for (uint32_t k = 0; k < f->n; k++) {
        u->s->group_of[k] = WF_NO_GROUP;
        if (!live[k + 1] || !is_step(u->l, k)) {
            continue;
        }
        bool opened = flags & WF_FUSE_OFF ? false
                      : u->rows           ? wf_is_openable(u->l, k)
                                          : is_tail(u, k);
        if (!opened && !wf_is_mappable(u->l, k)) {
            open_new(u, WF_STEP_OP, k);
        } else if (flags & WF_FUSE_OFF) {
            open_new(u, WF_STEP_MAP, k);
        } else {
            place(u, k);
        }
    }
}

static int sink(wf_fuser *u)
{
    const int before = wf_work_enter(WF_TIMED_sink);
    const int rc = wf_fuser_sink(u);
    wf_work_leave(before);
    return rc;
}

int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, uint32_t most,
            wf_why *why)
{
    const wf_fn *f = l->f;
    size_t n = f->n + 1u;
    wf_fuser u = {.s = s,
                  .l = l,
                  .f = f,
                  .most = most,
                  .rows = (flags & WF_FUSE_ROWS) != 0,
                  .alone = (flags & WF_FUSE_ALONE) != 0,
                  .lean = (flags & WF_FUSE_LEAN) != 0};
    int64_t seed;
    u.cuts = wf_env_stress("order", &seed);
    u.coin = (uint64_t)seed << 32;
    *s = (wf_schedule){.off = (flags & WF_FUSE_OFF) != 0,
                       .rows = (flags & WF_FUSE_ROWS) != 0,
                       .alone = (flags & WF_FUSE_ALONE) != 0};
    s->groups = malloc(n * sizeof *s->groups);
    s->members = malloc(n * sizeof *s->members);
    s->group_of = malloc(n * sizeof *s->group_of);
    s->level = calloc(n + WF_MAX_DST, 1);
    u.g = malloc(n * sizeof *u.g);
    u.next = malloc(n * sizeof *u.next);
    u.last_reader = malloc(n * sizeof *u.last_reader);
    u.is_returned = calloc(n, sizeof *u.is_returned);
    s->dear = flags & WF_FUSE_LEAN ? calloc(n, 1) : NULL;
    u.wanted = flags & WF_FUSE_LATE ? calloc(n, sizeof *u.wanted) : NULL;
    bool ok = s->groups && s->members && s->group_of && s->level && u.g && u.next &&
              u.last_reader && u.is_returned && (s->dear || !(flags & WF_FUSE_LEAN)) &&
              (u.wanted || !(flags & WF_FUSE_LATE));
    int rc = ok ? 0 : WEFT_ENOMEM;
    l->draws = (flags & WF_FUSE_OFF) == 0;
    rc = rc || flags & WF_FUSE_OFF ? rc : wf_find_uniform(l);
    if (!rc) {
        memset(u.last_reader, 0xFF, n * sizeof *u.last_reader);
        for (uint32_t o = 0; o < f->noutputs; o++) {
            u.is_returned[l->map[f->outputs[o]].root] = true;
        }
        group_all(&u, live, flags);
        rc = flags & WF_FUSE_OFF ? 0 : sink(&u);
        rc = rc || flags & WF_FUSE_OFF ? rc : wf_fuser_join(&u);
        rc = rc ? rc : write_schedule(&u);
    }
    free(u.g);
    free(u.next);
    free(u.last_reader);
    free(u.is_returned);
    free(u.wanted);
    free(u.users);
    free(u.first_user);
    free(u.inputs);
    return rc || u.no_memory ? wf_fail(why, WEFT_ENOMEM, "out of memory for a plan") : 0;
}

void wf_schedule_free(wf_schedule *s)
{
    free(s->groups);
    free(s->members);
    free(s->group_of);
    free(s->level);
    free(s->dear);
    free(s->again_of);
    free(s->again);
    free(s->weighed);
}
