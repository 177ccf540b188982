/*
 * jit/passes/fuse.c -- grouping instructions into steps; see fuse.h.
 *
 * Two passes, each linear in the function.
 *
 * Forward: groups are numbered in running order. Instruction k may join any group that is not before
 * those which make its operands; it tries the one that makes its latest operand (a value less to read),
 * then groups that read the same memory (one reading for two). Otherwise it opens a new group, the last.
 * Since a member's operands never come from a later group, no cycle can arise and none is searched for.
 *
 * Backward: a group goes into the first group that reads it, if that one reads it whole: the forward
 * pass cannot see that the operand of a later group was waiting for something else.
 *
 * Limits of programs cut groups while they grow; outputs are known only at the end, and a group with
 * too many is halved (a prefix never depends on the rest).
 */
#include <stdlib.h>
#include <string.h>

#include "eager/env.h"
#include "eager/program.h"
#include "jit/passes/fuse.h"
#include "jit/passes/pass.h"

const char *const wf_reason_text[WF_REASON_COUNT] = {
#define REASON(NAME, text) [WF_REASON_##NAME] = text,
#include "jit/passes/reasons.def"
};
const char *const wf_reason_name[WF_REASON_COUNT] = {
#define REASON(NAME, text) [WF_REASON_##NAME] = #NAME,
#include "jit/passes/reasons.def"
};

/* Views and leaves are not steps. */
static bool is_step(const wf_layout *l, uint32_t k)
{
    const wf_ins *i = &l->f->ins[k];
    return wf_rows[i->op].kind != WF_KIND_LEAF && l->map[k + 1].root == k + 1;
}

/* -- growing groups ------------------------------------------------------------------------------------ */

typedef struct input {
    wf_map_of map; /* in the space of its group */
    uint32_t next;
} input;

typedef struct open_group {
    uint8_t kind;
    wf_iter space;
    uint32_t head, tail; /* members */
    uint32_t n, insts, inputs, scalars, depth, draws;
    uint32_t input; /* list */
    uint32_t into;  /* the group it went into, or itself */
} open_group;

typedef struct fuser {
    wf_schedule *s;
    wf_layout *l;
    const wf_fn *f;
    open_group *g;
    uint32_t ng;
    uint32_t *next;        /* member after member k */
    uint32_t *last_reader; /* of root v: the last MAP group that reads it from memory */
    input *inputs;
    size_t ninputs, capinputs;
    uint32_t most;
    bool rows, alone, no_memory, cuts;
    uint64_t coin;
} fuser;

enum { NIL = UINT32_MAX };

/* What an instruction adds to a group. */
typedef struct demand {
    wf_map_of in[8];
    int nin;
    uint32_t insts, scalars, depth, draws;
} demand;

static bool is_scalar_read(const fuser *u, wf_val v)
{
    return !u->l->map[v].root || wf_fill_of(u->l, v);
}

/* The group that makes value v, NIL for leaves and fills. */
static uint32_t made_by(const fuser *u, wf_val v)
{
    wf_val maker = wf_maker_of(u->l, v);
    return maker && !wf_fill_of(u->l, v) ? u->s->group_of[maker - 1] : NIL;
}

bool wf_is_made_inside(const wf_schedule *s, wf_layout *l, uint32_t g, const wf_iter *space,
                       uint32_t k, wf_val v)
{
    wf_val maker = wf_maker_of(l, v);
    return maker && !wf_fill_of(l, v) && s->group_of[maker - 1] == g &&
           wf_reads_inside(l, space, k, v, s->level[l->map[v].root]);
}

/* What k would add to group g if it had that space. 0; 1: a copy is needed; WEFT_ENOMEM. */
static int find_demand(fuser *u, uint32_t g, uint32_t k, const wf_iter *space, demand *d)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    const wf_type *t = &u->f->types[i->type];
    bool row = !wf_is_mappable(u->l, k);
    d->nin = 0;
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
        }
    }
    return 0;
}

static bool has_input(const fuser *u, const open_group *g, const wf_map_of *m)
{
    for (uint32_t i = g->input; i != NIL; i = u->inputs[i].next) {
        if (wf_map_same(u->l, &u->inputs[i].map, m)) {
            return true;
        }
    }
    return false;
}

static int add_input(fuser *u, open_group *g, const wf_map_of *m)
{
    if (has_input(u, g, m)) {
        return 0;
    }
    if (u->ninputs == u->capinputs) {
        size_t cap = u->capinputs ? u->capinputs * 2 : 256;
        input *p = realloc(u->inputs, cap * sizeof *p);
        if (!p) {
            return WEFT_ENOMEM;
        }
        u->inputs = p;
        u->capinputs = cap;
    }
    u->inputs[u->ninputs] = (input){*m, g->input};
    g->input = (uint32_t)u->ninputs++;
    g->inputs++;
    return 0;
}

/* Gives the group another space of as many elements, if its inputs can be read so. */
static bool reshape_group(fuser *u, open_group *g, const wf_iter *to)
{
    wf_map_of t[WF_PROGRAM_INPUTS];
    int n = 0;
    if (g->space.axes) { /* rows have their axes */
        return false;
    }
    for (uint32_t i = g->input; i != NIL; i = u->inputs[i].next) {
        wf_map_of old = u->inputs[i].map;
        int rc = wf_map_reshape(u->l, &old, to->rank, to->dims, &t[n++]);
        if (rc) {
            u->no_memory |= rc != 1;
            return false;
        }
    }
    n = 0;
    for (uint32_t i = g->input; i != NIL; i = u->inputs[i].next) {
        u->inputs[i].map = t[n++];
    }
    g->space = *to;
    return true;
}

static bool same_dims(const wf_iter *a, const wf_iter *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* Do the rows of one space reduce what those of the other do? */
static bool same_axes(const wf_iter *a, const wf_iter *b)
{
    return (same_dims(a, b) && a->axes == b->axes) ||
           (a->count == b->count && a->kept == b->kept && wf_is_trailing(a) && wf_is_trailing(b));
}

static wf_reason check_limits(const fuser *u, const open_group *g, const demand *d)
{
    uint32_t inputs = g->inputs + g->draws + d->draws;
    for (int i = 0; i < d->nin; i++) {
        inputs += !has_input(u, g, &d->in[i]);
    }
    return inputs > WF_PROGRAM_INPUTS                                    ? WF_REASON_INPUTS
           : g->scalars + d->scalars > WF_PROGRAM_SCALARS                ? WF_REASON_SCALARS
           : g->insts + d->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ? WF_REASON_SIZE
           : g->depth + d->depth > WF_PROGRAM_DEPTH - 2                  ? WF_REASON_SIZE
           : u->most && g->n >= u->most                                  ? WF_REASON_SIZE
                                                                         : WF_REASON_NONE;
}

/* Could k be a member of group number n? Fills the demand. */
static wf_reason try_join(fuser *u, uint32_t n, uint32_t k, demand *d)
{
    open_group *g = &u->g[n];
    wf_iter own;
    wf_iter_of(u->l, k, &own);
    bool opened = !wf_is_mappable(u->l, k);
    if (g->kind != WF_STEP_MAP ||
        (opened ? own.count != g->space.count : wf_level_at(u->l, k, &g->space) == WF_AT_NONE)) {
        return WF_REASON_SPACE;
    }
    if (opened && g->space.axes && !same_axes(&own, &g->space)) {
        return WF_REASON_AXES;
    }
    if (opened && g->draws && !wf_is_trailing(&own)) {
        return WF_REASON_AXES;
    }
    if (opened && !g->space.axes && !reshape_group(u, g, &own)) {
        return WF_REASON_SHAPE;
    }
    int rc = find_demand(u, n, k, &g->space, d);
    if (rc == 1 && !opened && own.count == g->space.count && reshape_group(u, g, &own)) {
        rc = find_demand(u, n, k, &g->space, d);
    }
    if (rc) {
        u->no_memory |= rc != 1;
        return WF_REASON_SHAPE;
    }
    return check_limits(u, g, d);
}

static void join(fuser *u, uint32_t n, uint32_t k, const demand *d)
{
    open_group *g = &u->g[n];
    for (int i = 0; i < d->nin; i++) {
        u->no_memory |= add_input(u, g, &d->in[i]) != 0;
        u->last_reader[d->in[i].root] = n;
    }
    g->insts += d->insts;
    g->scalars += d->scalars;
    g->depth += d->depth;
    g->draws += d->draws;
    u->next[k] = NIL;
    if (g->n++) {
        u->next[g->tail] = k;
    } else {
        g->head = k;
    }
    g->tail = k;
    u->s->group_of[k] = n;
    int level = wf_level_at(u->l, k, &g->space);
    for (int r = 0; r < wf_rows[u->f->ins[k].op].ndst; r++) {
        u->s->level[k + 1u + (uint32_t)r] = (uint8_t)wf_level_of_result(u->l, k, r, level);
    }
}

static void open_new(fuser *u, int kind, uint32_t k)
{
    uint32_t n = u->ng++;
    u->g[n] = (open_group){.kind = (uint8_t)kind, .input = NIL, .into = n};
    wf_iter_of(u->l, k, &u->g[n].space);
    demand d = {.nin = 0};
    if (kind == WF_STEP_MAP && find_demand(u, n, k, &u->g[n].space, &d)) {
        u->no_memory = true;
    }
    join(u, n, k, &d);
}

/* -- forward --------------------------------------------------------------------------------------------- */

/* Would k read v inside group g? */
static bool may_be_inside(const fuser *u, uint32_t g, uint32_t k, wf_val v)
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
static uint32_t first_allowed(const fuser *u, uint32_t k, uint32_t *within)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    uint32_t least = 0;
    *within = NIL;
    for (int a = 0; a < i->nsrc; a++) {
        uint32_t g = src[a] ? made_by(u, src[a]) : NIL;
        if (g == NIL) {
            continue;
        }
        bool whole = u->g[g].kind == WF_STEP_MAP && may_be_inside(u, g, k, src[a]);
        uint32_t at = whole ? g : g + 1;
        least = at > least ? at : least;
        if (whole && (*within == NIL || g > *within)) {
            *within = g;
        }
    }
    return least;
}

/* WEFT_STRESS=order: one instruction in four starts a group of its own. */
static bool is_cut(const fuser *u, uint32_t k)
{
    uint64_t h = (u->coin + k) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return u->cuts && h >> 62 == 0;
}

static void place(fuser *u, uint32_t k)
{
    const wf_ins *i = &u->f->ins[k];
    const wf_val *src = wf_ins_src(u->f, i);
    uint32_t within, least = first_allowed(u, k, &within);
    demand d;
    if (is_cut(u, k)) {
        open_new(u, WF_STEP_MAP, k);
        return;
    }
    if (within != NIL && within >= least && try_join(u, within, k, &d) == WF_REASON_NONE &&
        wf_stage_may(WF_STAGE_fuse)) {
        join(u, within, k, &d);
        return;
    }
    for (int a = 0; wf_is_mappable(u->l, k) && a < i->nsrc; a++) { /* siblings */
        wf_val root = src[a] ? u->l->map[src[a]].root : 0;
        uint32_t g = root ? u->last_reader[root] : NIL;
        if (g != NIL && g >= least && try_join(u, g, k, &d) == WF_REASON_NONE &&
            wf_stage_may(WF_STAGE_fuse)) {
            join(u, g, k, &d);
            return;
        }
    }
    open_new(u, WF_STEP_MAP, k);
}

/* -- backward -------------------------------------------------------------------------------------------- */

static uint32_t final_group(fuser *u, uint32_t g)
{
    while (u->g[g].into != g) {
        g = u->g[g].into = u->g[u->g[g].into].into;
    }
    return g;
}

/* Can all of group a go into the later group b? */
static bool can_merge(fuser *u, uint32_t a, uint32_t b)
{
    open_group *x = &u->g[a], *y = &u->g[b];
    if (is_cut(u, y->head)) {
        return false;
    }
    if (y->kind != WF_STEP_MAP || x->space.count != y->space.count ||
        (u->most && x->n + y->n > u->most) || x->scalars + y->scalars > WF_PROGRAM_SCALARS ||
        x->insts + y->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ||
        x->depth + y->depth > WF_PROGRAM_DEPTH - 2) {
        return false;
    }
    if (x->space.axes && y->space.axes && !same_axes(&x->space, &y->space)) {
        return false;
    }
    if (x->draws + y->draws && !(wf_is_trailing(&x->space) && wf_is_trailing(&y->space))) {
        return false;
    }
    if (!same_dims(&x->space, &y->space) || x->space.axes != y->space.axes) {
        if (!reshape_group(u, x, &y->space) && !reshape_group(u, y, &x->space)) {
            return false;
        }
    }
    uint32_t inputs = x->inputs + x->draws + y->draws;
    for (uint32_t i = y->input; i != NIL; i = u->inputs[i].next) {
        const wf_map_of *m = &u->inputs[i].map;
        uint32_t maker = made_by(u, m->root);
        bool inside = maker != NIL && final_group(u, maker) == a;
        inputs += !inside && !has_input(u, x, m);
    }
    return inputs <= WF_PROGRAM_INPUTS;
}

static void merge(fuser *u, uint32_t a, uint32_t b)
{
    open_group *x = &u->g[a], *y = &u->g[b];
    uint32_t list = y->input;
    y->input = NIL;
    y->inputs = 0;
    for (uint32_t i = x->input; i != NIL; i = u->inputs[i].next) {
        wf_map_of m = u->inputs[i].map;
        u->no_memory |= add_input(u, y, &m) != 0;
    }
    for (uint32_t i = list; i != NIL; i = u->inputs[i].next) {
        wf_map_of m = u->inputs[i].map;
        uint32_t g = made_by(u, m.root);
        if (g == NIL || final_group(u, g) != a) {
            u->no_memory |= add_input(u, y, &m) != 0;
        }
    }
    u->next[x->tail] = y->head;
    y->head = x->head;
    y->n += x->n;
    y->insts += x->insts;
    y->scalars += x->scalars;
    y->depth += x->depth;
    y->draws += x->draws;
    x->n = 0;
    x->into = b;
}

typedef struct reading {
    uint32_t k; /* instruction that reads */
    wf_val v;   /* what */
    uint32_t next;
} reading;

/* Readings by producing group, as lists. */
static reading *find_readings(fuser *u, uint32_t *head)
{
    size_t n = 0;
    for (uint32_t k = 0; k < u->f->n; k++) {
        n += u->s->group_of[k] != WF_NO_GROUP ? u->f->ins[k].nsrc : 0;
    }
    reading *r = malloc((n + 1) * sizeof *r);
    uint32_t at = 0;
    for (uint32_t g = 0; r && g < u->ng; g++) {
        head[g] = NIL;
    }
    for (uint32_t k = 0; r && k < u->f->n; k++) {
        const wf_val *src = wf_ins_src(u->f, &u->f->ins[k]);
        for (int a = 0; u->s->group_of[k] != WF_NO_GROUP && a < u->f->ins[k].nsrc; a++) {
            uint32_t g = src[a] ? made_by(u, src[a]) : NIL;
            if (g != NIL && g != u->s->group_of[k]) {
                r[at] = (reading){k, src[a], head[g]};
                head[g] = at++;
            }
        }
    }
    return r;
}

/* Would k of group b read v of group a inside, were the two one? */
static bool stays_inside(fuser *u, uint32_t a, uint32_t b, uint32_t k, wf_val v)
{
    const wf_iter *x = &u->g[a].space, *y = &u->g[b].space;
    if (u->g[b].kind != WF_STEP_MAP || x->count != y->count) {
        return false;
    }
    return wf_reads_inside(u->l, x->axes ? x : y, k, v, u->s->level[u->l->map[v].root]);
}

static int sink(fuser *u)
{
    uint32_t *head = malloc((u->ng + 1u) * sizeof *head);
    reading *r = head ? find_readings(u, head) : NULL;
    for (uint32_t g = u->ng; r && g-- > 0;) {
        uint32_t first = NIL;
        bool whole = u->g[g].kind == WF_STEP_MAP;
        for (uint32_t i = head[g]; whole && i != NIL; i = r[i].next) {
            uint32_t to = final_group(u, u->s->group_of[r[i].k]);
            first = to < first ? to : first;
        }
        for (uint32_t i = head[g]; whole && i != NIL; i = r[i].next) {
            whole = final_group(u, u->s->group_of[r[i].k]) != first ||
                    stays_inside(u, g, first, r[i].k, r[i].v);
        }
        if (whole && first != NIL && can_merge(u, g, first) && wf_stage_may(WF_STAGE_sink)) {
            merge(u, g, first);
        }
    }
    int rc = r ? 0 : WEFT_ENOMEM;
    free(head);
    free(r);
    return rc;
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
static void emit(fuser *u, const open_group *g, uint32_t first, uint32_t n,
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
                                         .scalars = g->scalars};
}

/* The position in `members` of the last reader of each instruction's value (UINT32_MAX: returned, or
 * read through a view). */
static void find_last_use(const fuser *u, const uint32_t *position, uint32_t *last_use)
{
    const wf_fn *f = u->f;
    memset(last_use, 0, f->n * sizeof *last_use);
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int a = 0; u->s->group_of[k] != WF_NO_GROUP && a < f->ins[k].nsrc; a++) {
            wf_val root = src[a] ? u->l->map[src[a]].root : 0;
            if (root) {
                uint32_t at = wf_reads_whole(u->l, k, src[a]) ? position[k] : NIL;
                uint32_t *last = &last_use[root - 1];
                *last = at > *last ? at : *last;
            }
        }
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        wf_val root = u->l->map[f->outputs[o]].root;
        last_use[root ? root - 1 : 0] = NIL;
    }
}

static int write_schedule(fuser *u)
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
static bool is_tail(const fuser *u, uint32_t k)
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

static void group_all(fuser *u, const uint8_t *live, unsigned flags)
{
    const wf_fn *f = u->f;
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

int wf_fuse(wf_schedule *s, wf_layout *l, const uint8_t *live, unsigned flags, uint32_t most,
            wf_why *why)
{
    const wf_fn *f = l->f;
    size_t n = f->n + 1u;
    fuser u = {.s = s,
               .l = l,
               .f = f,
               .most = most,
               .rows = (flags & WF_FUSE_ROWS) != 0,
               .alone = (flags & WF_FUSE_ALONE) != 0};
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
    bool ok = s->groups && s->members && s->group_of && s->level && u.g && u.next && u.last_reader;
    int rc = ok ? 0 : WEFT_ENOMEM;
    l->draws = (flags & WF_FUSE_OFF) == 0;
    rc = rc || flags & WF_FUSE_OFF ? rc : wf_find_uniform(l);
    if (!rc) {
        memset(u.last_reader, 0xFF, n * sizeof *u.last_reader);
        group_all(&u, live, flags);
        rc = flags & WF_FUSE_OFF ? 0 : sink(&u);
        rc = rc ? rc : write_schedule(&u);
    }
    free(u.g);
    free(u.next);
    free(u.last_reader);
    free(u.inputs);
    return rc || u.no_memory ? wf_fail(why, WEFT_ENOMEM, "out of memory for a plan") : 0;
}

/* -- reasons ----------------------------------------------------------------------------------------------- */

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
        return WF_REASON_MOVE;
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
    if (x->kind == WF_STEP_OP) {
        return kernel_reason(l, maker - 1, false);
    }
    if (y->kind == WF_STEP_OP) {
        return kernel_reason(l, k, true);
    }
    if (s->off) {
        return WF_REASON_OFF;
    }
    if (x->space.axes && y->space.axes && !same_axes(&x->space, &y->space)) {
        return WF_REASON_AXES;
    }
    if (!wf_reads_whole(l, k, u)) {
        bool same = wf_map_count(l, &l->map[u]) == wf_map_count(l, wf_space_of(l, k));
        return same ? WF_REASON_VIEW : WF_REASON_SPACE;
    }
    return x->insts + y->insts > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ? WF_REASON_SIZE
           : x->scalars + y->scalars > WF_PROGRAM_SCALARS              ? WF_REASON_SCALARS
           : x->inputs + y->inputs > WF_PROGRAM_INPUTS                 ? WF_REASON_INPUTS
           : same_dims(&x->space, &y->space)                           ? WF_REASON_ORDER
                                                                       : WF_REASON_SHAPE;
}

void wf_schedule_free(wf_schedule *s)
{
    free(s->groups);
    free(s->members);
    free(s->group_of);
    free(s->level);
    free(s->again_of);
    free(s->again);
    free(s->weighed);
}
