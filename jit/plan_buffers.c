/*
 * jit/plan_buffers.c -- a place for every value: the caller's memory, or an offset in one block.
 *
 * In place: a tile program may write exactly the memory of an operand it reads element by element (one that
 * reduces: what it writes when nothing is read any more), and an update the memory of the value it updates,
 * if that value dies there. So a result takes the block
 * of such an operand; chains of updates to a captured tensor run in the tensor's own memory.
 *
 * Outputs are computed straight into the caller's memory where nothing still reads what they overwrite;
 * others are copied there at the end. All other values share one block of memory by their lifetimes, and
 * with it the memory of results that are written after they have died, or have memory of their own (plan_arena.c).
 * Memory is taken before the launch that first needs it and given back behind the last; so are inputs.
 *
 * Invariant: a buffer's lifetime is the steps from its first to its last access, both included, so a
 * result never shares memory with an operand of its step except in place.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/passes/pass.h"
#include "jit/plan_arena.h"
#include "jit/plan_int.h"

/* Times are launches: the steps of one run side by side. */
typedef struct life {
    uint32_t def, last;           /* launches */
    uint32_t def_step, last_step; /* the first step of the one, the only one of the other */
} life;

enum { SEVERAL = UINT32_MAX };

static void lifetimes(const wf_plan *p, life *t)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        t[i] = (life){UINT32_MAX, 0, 0, SEVERAL};
    }
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_access *a = &p->accesses[p->steps[s].access];
        uint32_t now = p->steps[s].launch;
        for (uint32_t i = 0; i < (uint32_t)p->steps[s].ndst + p->steps[s].nsrc; i++) {
            life *x = a[i].buffer < 0 ? NULL : &t[a[i].buffer];
            if (!x) {
                continue;
            }
            if (x->def == UINT32_MAX) {
                x->def = now;
                x->def_step = s;
                x->last = now;
                x->last_step = s;
            }
            /* the product itself: what else the step before reads is read while the group runs */
            bool product =
                p->steps[s].after && a[i].buffer == p->accesses[p->steps[s - 1].access].buffer;
            x->last_step = x->last == now && x->last_step != s && !product ? SEVERAL : s;
            x->last = now;
        }
    }
}

/* A copy step: destination and source as given. */
static int add_copy(wf_planner *b, uint32_t ins, wf_access dst, wf_access src)
{
    wf_plan *p = b->p;
    if (wf_grow(&p->steps, p->nsteps, 1, &p->capsteps, sizeof *p->steps) ||
        wf_grow(&p->accesses, p->naccesses, 2, &p->capaccesses, sizeof *p->accesses)) {
        return WEFT_ENOMEM;
    }
    p->steps[p->nsteps++] = (wf_plan_step){.kind = WF_STEP_COPY,
                                           .op = WF_OP_COPY,
                                           .ins = ins,
                                           .launch = p->nlaunches++,
                                           .access = p->naccesses,
                                           .ndst = 1,
                                           .nsrc = 1};
    p->accesses[p->naccesses++] = dst;
    p->accesses[p->naccesses++] = src;
    return 0;
}

/* A further buffer; -1: no memory. */
static int32_t add_buffer(wf_plan *p, wf_buffer buffer)
{
    wf_buffer *n = realloc(p->buffers, (p->nbuffers + 1u) * sizeof *n);
    if (!n) {
        return -1;
    }
    p->buffers = n;
    n[p->nbuffers] = buffer;
    return (int32_t)p->nbuffers++;
}

static int32_t written_input(const wf_planner *b, uint32_t k)
{
    return b->opts->writes ? b->opts->writes[k] : -1;
}

static wf_access dense_access(wf_planner *b, int32_t buffer, wf_val v, int *rc)
{
    wf_map_of m;
    *rc = wf_map_dense(&b->l, v, wf_fn_type(b->f, v), &m);
    return (wf_access){.buffer = buffer, .dtype = m.dtype, .rank = m.rank, .shape = m.shape};
}

static wf_access access_of(const wf_planner *b, wf_val v)
{
    const wf_map_of *m = &b->l.map[v];
    return (wf_access){.buffer = b->buffer_of[m->root],
                       .dtype = m->dtype,
                       .rank = m->rank,
                       .nterms = m->nterms,
                       .shape = m->shape,
                       .term = m->term,
                       .offset = m->offset};
}

/* Do a and b name the same elements in the same order, each once? */
static bool same_elements(const wf_access *a, const wf_access *b, const int64_t *words)
{
    const int64_t *x = words + a->shape, *y = words + b->shape;
    int64_t step = 1;
    if (a->rank != b->rank || a->offset || b->offset || a->nterms || b->nterms ||
        wf_dtype_size(a->dtype) != wf_dtype_size(b->dtype)) {
        return false;
    }
    for (int i = a->rank; i-- > 0;) {
        const int64_t own = x[a->rank + i];
        bool one = x[i] == 1;
        if (x[i] != y[i] || (!one && (own < step || y[a->rank + i] != own))) {
            return false;
        }
        step = one ? step : own * x[i];
    }
    return true;
}

/* Does a group that reduces write its destination d in the last phase that reads anything? Then d may be an
 * operand, of which no element is picked. On a device that is not promised. */
static bool is_written_last(const wf_planner *b, const wf_plan_step *s, const wf_access *d)
{
    const wf_plan *p = b->p;
    const wf_program *g = p->programs[s->program].program;
    const int k = (int)(d - &p->accesses[s->access]), v = g->output[k];
    for (int i = 0; i < g->ninst; i++) {
        if (g->inst[i].kind == WF_INST_PICK) {
            return false;
        }
    }
    return !(b->opts->flags & WF_PLAN_ALONE) && g->level[v] == WF_LEVEL_ELEM && g->def[v] >= 0 &&
           g->inst[g->def[v]].phase == g->nphase - 1;
}

/* May destination d of the step be the memory of buffer x, as far as the step's own reads go? */
static bool in_place(const wf_planner *b, const wf_plan_step *s, const wf_access *d, int32_t x)
{
    const wf_plan *p = b->p;
    const wf_access *src = &p->accesses[s->access] + s->ndst;
    const bool update = s->kind == WF_STEP_OP && wf_op_replaces(s->op) &&
                        (s->op == WF_OP_UPDATE || !(b->opts->flags & WF_PLAN_ALONE));
    if (p->buffers[x].bytes != p->buffers[d->buffer].bytes) {
        return false;
    }
    for (int i = 0; i < s->nsrc; i++) {
        if (src[i].buffer != x) {
            continue;
        }
        bool may = s->kind == WF_STEP_MAP ? !s->axes || is_written_last(b, s, d) : update && i == 0;
        if (!may || !same_elements(d, &src[i], b->l.words)) {
            return false;
        }
    }
    return true;
}

static const wf_access *dst_of(const wf_plan *p, const wf_plan_step *s, int32_t buffer)
{
    const wf_access *d = &p->accesses[s->access];
    for (int i = 0; i < s->ndst; i++) {
        if (d[i].buffer == buffer) {
            return &d[i];
        }
    }
    return NULL;
}

/* May buffer u, first written by step t[u].def_step, have the memory of input j from then on? */
static bool may_replace(const wf_planner *b, const life *t, int32_t u, int32_t j)
{
    const wf_plan *p = b->p;
    int32_t x = j < 0 ? -1 : b->buffer_of[b->f->inputs[j]];
    if (x < 0 || t[x].def == UINT32_MAX || t[x].last < t[u].def) {
        return true;
    }
    const wf_plan_step *s = &p->steps[t[u].def_step];
    const wf_access *d = dst_of(p, s, u);
    return t[x].last == t[u].def && t[x].last_step == t[u].def_step && d && in_place(b, s, d, x) &&
           wf_stage_may(WF_STAGE_inplace);
}

/* Outputs whose value can be computed in the caller's memory. */
static void direct_outputs(wf_planner *b, const life *t, uint8_t *done)
{
    wf_plan *p = b->p;
    for (uint32_t k = 0; k < b->f->noutputs; k++) {
        wf_val v = b->f->outputs[k];
        int32_t u = b->buffer_of[b->l.map[v].root];
        wf_buffer *x = &p->buffers[u];
        done[k] = x->place == WF_PLACE_NONE && wf_map_is_whole(&b->l, &b->l.map[v]) &&
                  may_replace(b, t, u, written_input(b, k));
        if (done[k]) {
            x->place = WF_PLACE_OUTPUT;
            x->index = k;
        }
    }
}

/* What an output was updated from in place can be in the output's memory as well. */
static void extend_outputs(wf_planner *b, const life *t)
{
    wf_plan *p = b->p;
    for (uint32_t s = p->nsteps; s-- > 0;) {
        const wf_plan_step *step = &p->steps[s];
        const wf_access *a = &p->accesses[step->access];
        for (int i = 0; i < step->ndst; i++) {
            wf_buffer *d = a[i].buffer < 0 ? NULL : &p->buffers[a[i].buffer];
            if (!d || d->place != WF_PLACE_OUTPUT || t[a[i].buffer].def_step != s) {
                continue;
            }
            for (int j = step->ndst; j < step->ndst + step->nsrc; j++) {
                int32_t x = a[j].buffer;
                if (x >= 0 && p->buffers[x].place == WF_PLACE_NONE && t[x].last == step->launch &&
                    t[x].last_step == s && in_place(b, step, &a[i], x) &&
                    may_replace(b, t, x, written_input(b, d->index)) &&
                    wf_stage_may(WF_STAGE_inplace)) {
                    p->buffers[x].place = WF_PLACE_OUTPUT;
                    p->buffers[x].index = d->index;
                    break;
                }
            }
        }
    }
}

/* All others are copied. What a copy reads from an input that another output overwrites is saved
 * first. */
static int copy_outputs(wf_planner *b, const uint8_t *done)
{
    wf_plan *p = b->p;
    uint32_t n = b->f->noutputs;
    wf_access *from = malloc((n + 1u) * sizeof *from);
    int rc = from ? 0 : WEFT_ENOMEM;
    for (uint32_t k = 0; k < n && !rc; k++) {
        wf_val v = b->f->outputs[k];
        from[k] = access_of(b, v);
        const wf_buffer *u = &p->buffers[from[k].buffer];
        int32_t writer = u->place == WF_PLACE_INPUT ? b->writer[u->index] : -1;
        bool itself = writer == (int32_t)k && wf_map_is_whole(&b->l, &b->l.map[v]);
        bool overwritten = writer >= 0 && !itself;
        if (!done[k] && overwritten) {
            const int64_t bytes = wf_type_bytes(wf_fn_type(b->f, v));
            int32_t tmp = add_buffer(p, (wf_buffer){.bytes = bytes, .v = v});
            wf_access save = dense_access(b, tmp, v, &rc);
            rc = tmp < 0 ? WEFT_ENOMEM : rc ? rc : add_copy(b, v - 1, save, from[k]);
            from[k] = save;
        }
    }
    for (uint32_t k = 0; k < n && !rc; k++) {
        wf_val v = b->f->outputs[k];
        if (!done[k]) {
            const int64_t bytes = wf_type_bytes(wf_fn_type(b->f, v));
            int32_t out = add_buffer(
                p, (wf_buffer){.place = WF_PLACE_OUTPUT, .index = k, .bytes = bytes, .v = v});
            wf_access dst = dense_access(b, out, v, &rc);
            rc = out < 0 ? WEFT_ENOMEM : rc ? rc : add_copy(b, v - 1, dst, from[k]);
        }
    }
    free(from);
    return rc;
}

/* -- temporaries ------------------------------------------------------------------------------------- */

/* A block is one or more buffers in the same memory, one after the other. */
typedef struct blocks {
    wf_arena_block *v;
    uint32_t n;
    uint32_t *of; /* of a buffer; UINT32_MAX none */
    wf_bin *bin;
    uint32_t nbins;
} blocks;

/* A block for temporary buffer d, which step s makes: that of an operand that dies there, or a new one. */
static void take_block(wf_planner *b, const life *t, blocks *k, uint32_t s, const wf_access *d)
{
    const wf_plan *p = b->p;
    const wf_plan_step *step = &p->steps[s];
    const wf_access *src = &p->accesses[step->access] + step->ndst;
    for (int i = 0; i < step->nsrc; i++) {
        int32_t x = src[i].buffer;
        uint32_t o = x < 0 ? UINT32_MAX : k->of[x];
        if (o != UINT32_MAX && k->v[o].taken != s && k->v[o].last == step->launch &&
            t[x].last == step->launch && t[x].last_step == s && in_place(b, step, d, x) &&
            wf_stage_may(WF_STAGE_inplace)) {
            k->of[d->buffer] = o;
            k->v[o].last = t[d->buffer].last;
            k->v[o].taken = s;
            return;
        }
    }
    k->of[d->buffer] = k->n;
    k->v[k->n++] = (wf_arena_block){.first = step->launch,
                                    .last = t[d->buffer].last,
                                    .taken = UINT32_MAX,
                                    .bytes = p->buffers[d->buffer].bytes,
                                    .size = wf_arena_padded(p->buffers[d->buffer].bytes)};
}

static void make_blocks(wf_planner *b, const life *t, blocks *k)
{
    const wf_plan *p = b->p;
    memset(k->of, 0xFF, p->nbuffers * sizeof *k->of);
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_access *d = &p->accesses[p->steps[s].access];
        for (int i = 0; i < p->steps[s].ndst; i++) {
            if (d[i].buffer >= 0 && p->buffers[d[i].buffer].place == WF_PLACE_NONE &&
                k->of[d[i].buffer] == UINT32_MAX) {
                take_block(b, t, k, s, &d[i]);
            }
        }
    }
}

/* Memory of results, which no tensor names before they are in it: free, or not there yet, until something is put there. */
static void make_bins(const wf_planner *b, const life *t, blocks *k)
{
    const wf_plan *p = b->p;
    for (uint32_t o = 0; o < b->f->noutputs; o++) {
        k->bin[o] = (wf_bin){.bytes = wf_type_bytes(wf_fn_type(b->f, b->f->outputs[o])),
                             .until = written_input(b, o) < 0 ? p->nlaunches : 0,
                             .id = o};
    }
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        wf_bin *of = p->buffers[i].place == WF_PLACE_OUTPUT ? &k->bin[p->buffers[i].index] : NULL;
        if (of && t[i].def < of->until) {
            of->until = t[i].def;
        }
    }
    for (uint32_t o = 0; o < b->f->noutputs; o++) {
        if (written_input(b, o) < 0) {
            k->bin[k->nbins++] = k->bin[o];
        }
    }
}

static int by_take(const void *a, const void *b)
{
    const wf_take *x = a, *y = b;
    return x->launch != y->launch ? (x->launch > y->launch) - (x->launch < y->launch)
                                  : (x->slot > y->slot) - (x->slot < y->slot);
}

static int by_give(const void *a, const void *b)
{
    const wf_give *x = a, *y = b;
    return x->launch != y->launch ? (x->launch > y->launch) - (x->launch < y->launch)
                                  : (x->slot > y->slot) - (x->slot < y->slot);
}

/* A temporary more, of some bytes, for the launches from first to last. Its number. */
static uint32_t add_temporary(wf_plan *p, uint32_t first, uint32_t last, int64_t bytes)
{
    const uint32_t slot = p->ninputs + p->noutputs + p->ntemporaries;
    p->takes[p->ntakes++] = (wf_take){first, slot, bytes};
    p->gives[p->ngives++] = (wf_give){last, slot};
    p->temporary[p->ntemporaries] = bytes;
    return p->ntemporaries++;
}

/* When the run's memory is taken and given back; `taken` of a block becomes the number of the temporary it lies in. */
static int list_memory(wf_planner *b, const life *t, blocks *k, const wf_arena *arena)
{
    wf_plan *p = b->p;
    p->takes = malloc((k->n + k->nbins + 1u) * sizeof *p->takes);
    p->gives = malloc((k->n + b->f->ninputs + 1u) * sizeof *p->gives);
    p->temporary = malloc((k->n + 1u) * sizeof *p->temporary);
    if (!p->takes || !p->gives || !p->temporary) {
        return WEFT_ENOMEM;
    }
    if (arena->bytes) {
        add_temporary(p, arena->first, arena->last, arena->bytes);
    }
    for (uint32_t i = 0; i < k->n; i++) {
        wf_arena_block *x = &k->v[i];
        x->taken = x->bin == WF_OWN_BIN ? add_temporary(p, x->first, x->last, x->size) : 0;
    }
    for (uint32_t i = 0; i < k->nbins; i++) {
        p->takes[p->ntakes++] =
            (wf_take){k->bin[i].from, p->ninputs + k->bin[i].id, k->bin[i].bytes};
    }
    for (uint32_t j = 0; j < b->f->ninputs; j++) {
        int32_t x = b->buffer_of[b->f->inputs[j]];
        if (b->writer[j] < 0 && x >= 0 && t[x].def != UINT32_MAX) {
            p->gives[p->ngives++] = (wf_give){t[x].last, j};
        }
    }
    qsort(p->takes, p->ntakes, sizeof *p->takes, by_take);
    qsort(p->gives, p->ngives, sizeof *p->gives, by_give);
    return 0;
}

static void place_blocks(wf_plan *p, const blocks *k)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        wf_buffer *u = &p->buffers[i];
        if (u->place == WF_PLACE_NONE && k->of[i] != UINT32_MAX) {
            const wf_arena_block *x = &k->v[k->of[i]];
            bool result = x->bin < WF_OWN_BIN;
            u->place = result ? WF_PLACE_OUTPUT : WF_PLACE_ARENA;
            u->index = result ? x->bin : x->taken;
            u->offset = x->at;
        }
        u->slot = u->index + (u->place == WF_PLACE_INPUT    ? 0
                              : u->place == WF_PLACE_OUTPUT ? p->ninputs
                                                            : p->ninputs + p->noutputs);
    }
}

static int place_temporaries(wf_planner *b, const life *t)
{
    wf_plan *p = b->p;
    wf_arena arena;
    blocks k = {.v = malloc((p->nbuffers + 1u) * sizeof *k.v),
                .of = malloc((p->nbuffers + 1u) * sizeof *k.of),
                .bin = malloc((b->f->noutputs + 1u) * sizeof *k.bin)};
    int rc = k.v && k.of && k.bin ? 0 : WEFT_ENOMEM;
    if (!rc) {
        const int before = wf_work_enter(WF_TIMED_inplace);
        make_blocks(b, t, &k);
        (void)wf_work_enter(WF_TIMED_arena);
        for (uint32_t i = 0; i < k.n; i++) {
            k.v[i].alone = !wf_stage_may(WF_STAGE_arena);
        }
        make_bins(b, t, &k);
        rc = wf_arena_place(k.v, k.n, k.bin, k.nbins, p->nlaunches, &arena);
        wf_work_leave(before);
    }
    rc = rc ? rc : list_memory(b, t, &k, &arena);
    if (!rc) {
        place_blocks(p, &k);
        p->info.peak_bytes = arena.peak;
        p->info.bound_bytes = arena.bound;
    }
    free(k.v);
    free(k.of);
    free(k.bin);
    return rc;
}

/* Which output writes an input. */
static int find_writers(wf_planner *b)
{
    const wf_fn *f = b->f;
    b->writer = malloc((f->ninputs + 1u) * sizeof *b->writer);
    if (!b->writer) {
        return WEFT_ENOMEM;
    }
    memset(b->writer, 0xFF, f->ninputs * sizeof *b->writer);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        if (written_input(b, k) >= 0) {
            b->writer[written_input(b, k)] = (int32_t)k;
        }
    }
    return 0;
}

int wf_plan_place(wf_planner *b)
{
    wf_plan *p = b->p;
    life *t = malloc((p->nbuffers + 2u * b->f->noutputs + 1u) * sizeof *t);
    uint8_t *done = malloc(b->f->noutputs + 1u);
    int rc = t && done ? find_writers(b) : WEFT_ENOMEM;
    if (!rc) {
        lifetimes(p, t);
        for (uint32_t k = 0; k < b->f->noutputs; k++) { /* what is returned lives to the end */
            life *x = &t[b->buffer_of[b->l.map[b->f->outputs[k]].root]];
            x->last = p->nlaunches;
            x->last_step = SEVERAL;
            x->def = x->def == UINT32_MAX ? 0 : x->def;
        }
        const int before = wf_work_enter(WF_TIMED_inplace);
        direct_outputs(b, t, done);
        extend_outputs(b, t);
        wf_work_leave(before);
        rc = copy_outputs(b, done);
    }
    if (!rc) {
        lifetimes(p, t);
        rc = place_temporaries(b, t);
    }
    free(t);
    free(done);
    return rc;
}
