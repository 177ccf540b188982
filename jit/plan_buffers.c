/*
 * jit/plan_buffers.c -- a place for every value: the caller's memory, or an offset in one block.
 *
 * Outputs are computed straight into the caller's memory where nothing reads what they overwrite;
 * others are copied there at the end. Temporary values share the block by their lifetimes.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/plan_int.h"

enum { ALIGN = 64 };

typedef struct life {
    uint32_t def, last; /* steps */
} life;

static void lifetimes(const wf_plan *p, life *t)
{
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        t[i] = (life){UINT32_MAX, 0};
    }
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_access *a = &p->accesses[p->steps[s].access];
        for (uint32_t i = 0; i < (uint32_t)p->steps[s].ndst + p->steps[s].nsrc; i++) {
            if (a[i].buffer >= 0) {
                life *x = &t[a[i].buffer];
                x->def = s < x->def ? s : x->def;
                x->last = s;
            }
        }
    }
}

/* A copy step: destination and source as given. */
static int add_copy(wf_planner *b, uint32_t origin, wf_access dst, wf_access src)
{
    wf_plan *p = b->p;
    if (wf_grow(&p->steps, p->nsteps, 1, &p->capsteps, sizeof *p->steps) ||
        wf_grow(&p->accesses, p->naccesses, 2, &p->capaccesses, sizeof *p->accesses)) {
        return WEFT_ENOMEM;
    }
    p->steps[p->nsteps++] = (wf_plan_step){.kind = WF_STEP_COPY,
                                           .op = WF_OP_COPY,
                                           .origin = origin,
                                           .access = p->naccesses,
                                           .ndst = 1,
                                           .nsrc = 1};
    p->accesses[p->naccesses++] = dst;
    p->accesses[p->naccesses++] = src;
    p->most_views = p->most_views < 2 ? 2 : p->most_views;
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

/* The last step that reads the memory of input j, or -1. */
static int64_t last_read(const wf_plan *p, const life *t, int32_t j)
{
    int64_t last = -1;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        if (p->buffers[i].place == WF_PLACE_INPUT && p->buffers[i].index == (uint32_t)j &&
            t[i].def != UINT32_MAX && (int64_t)t[i].last > last) {
            last = t[i].last;
        }
    }
    return last;
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

/* Outputs whose value can be computed in the caller's memory. */
static void direct_outputs(wf_planner *b, const life *t, uint8_t *done)
{
    wf_plan *p = b->p;
    for (uint32_t k = 0; k < b->f->noutputs; k++) {
        wf_val v = b->f->outputs[k], root = b->l.map[v].root;
        int32_t j = written_input(b, k);
        wf_buffer *u = &p->buffers[b->buffer_of[root]];
        done[k] = 0;
        if (u->place != WF_PLACE_NONE || !wf_map_is_whole(&b->l, &b->l.map[v]) ||
            (j >= 0 && last_read(p, t, j) >= (int64_t)t[b->buffer_of[root]].def)) {
            continue;
        }
        u->place = WF_PLACE_OUTPUT;
        u->index = k;
        done[k] = 1;
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
        bool overwritten = false;
        for (uint32_t o = 0; b->opts->writes && o < n; o++) {
            const wf_buffer *u = &p->buffers[from[k].buffer];
            overwritten |=
                o != k && u->place == WF_PLACE_INPUT && written_input(b, o) == (int32_t)u->index;
        }
        if (!done[k] && overwritten) {
            int64_t bytes = wf_type_numel(wf_fn_type(b->f, v)) *
                            (int64_t)wf_dtype_size(wf_fn_type(b->f, v)->dtype);
            int32_t tmp = add_buffer(p, (wf_buffer){.bytes = bytes});
            wf_access save = dense_access(b, tmp, v, &rc);
            rc = tmp < 0 ? WEFT_ENOMEM : rc ? rc : add_copy(b, v - 1, save, from[k]);
            from[k] = save;
        }
    }
    for (uint32_t k = 0; k < n && !rc; k++) {
        wf_val v = b->f->outputs[k];
        if (!done[k]) {
            int32_t out = add_buffer(p, (wf_buffer){.place = WF_PLACE_OUTPUT, .index = k});
            wf_access dst = dense_access(b, out, v, &rc);
            rc = out < 0 ? WEFT_ENOMEM : rc ? rc : add_copy(b, v - 1, dst, from[k]);
        }
    }
    free(from);
    return rc;
}

/* -- the arena ------------------------------------------------------------------------------------------ */

typedef struct hole {
    int64_t at, size;
} hole;

typedef struct arena {
    hole *holes; /* sorted by address */
    uint32_t n, cap;
    int64_t end;
} arena;

static int arena_give(arena *a, int64_t at, int64_t size)
{
    uint32_t i = 0;
    while (i < a->n && a->holes[i].at < at) {
        i++;
    }
    if (i > 0 && a->holes[i - 1].at + a->holes[i - 1].size == at) {
        a->holes[--i].size += size;
    } else {
        if (wf_grow(&a->holes, a->n, 1, &a->cap, sizeof *a->holes)) {
            return WEFT_ENOMEM;
        }
        memmove(a->holes + i + 1, a->holes + i, (a->n++ - i) * sizeof *a->holes);
        a->holes[i] = (hole){at, size};
    }
    if (i + 1 < a->n && a->holes[i].at + a->holes[i].size == a->holes[i + 1].at) {
        a->holes[i].size += a->holes[i + 1].size;
        memmove(a->holes + i + 1, a->holes + i + 2, (--a->n - i - 1) * sizeof *a->holes);
    }
    return 0;
}

static int64_t arena_take(arena *a, int64_t size)
{
    uint32_t best = a->n;
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->holes[i].size >= size && (best == a->n || a->holes[i].size < a->holes[best].size)) {
            best = i;
        }
    }
    if (best < a->n) {
        hole *h = &a->holes[best];
        int64_t at = h->at;
        h->at += size;
        h->size -= size;
        if (h->size == 0) {
            memmove(h, h + 1, (--a->n - best) * sizeof *h);
        }
        return at;
    }
    if (a->n && a->holes[a->n - 1].at + a->holes[a->n - 1].size == a->end) {
        int64_t at = a->holes[--a->n].at; /* the last hole grows */
        a->end = at + size;
        return at;
    }
    int64_t at = a->end;
    a->end += size;
    return at;
}

static int64_t padded(int64_t bytes)
{
    return bytes == 0 ? ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Temporaries in order of their definition; a step's results never lie on its operands. */
static int place_temporaries(wf_plan *p, const life *t)
{
    arena a = {0};
    uint32_t *dying = malloc((p->naccesses + 1u) * sizeof *dying);
    int rc = dying ? 0 : WEFT_ENOMEM;
    for (uint32_t s = 0; s < p->nsteps && !rc; s++) {
        const wf_access *x = &p->accesses[p->steps[s].access];
        uint32_t n = (uint32_t)p->steps[s].ndst + p->steps[s].nsrc, ndying = 0;
        for (uint32_t i = 0; i < n; i++) {
            wf_buffer *u = x[i].buffer < 0 ? NULL : &p->buffers[x[i].buffer];
            if (u && u->place == WF_PLACE_NONE) {
                u->place = WF_PLACE_ARENA;
                u->offset = arena_take(&a, padded(u->bytes));
            }
            bool again = false;
            for (uint32_t j = 0; j < i; j++) {
                again |= x[j].buffer == x[i].buffer;
            }
            if (u && u->place == WF_PLACE_ARENA && !again && t[x[i].buffer].last == s) {
                dying[ndying++] = (uint32_t)x[i].buffer;
            }
        }
        for (uint32_t i = 0; i < ndying && !rc; i++) {
            rc = arena_give(&a, p->buffers[dying[i]].offset, padded(p->buffers[dying[i]].bytes));
        }
    }
    p->arena_bytes = a.end;
    free(dying);
    free(a.holes);
    return rc;
}

int wf_plan_place(wf_planner *b)
{
    wf_plan *p = b->p;
    life *t = malloc((p->nbuffers + 2u * b->f->noutputs + 1u) * sizeof *t);
    uint8_t *done = malloc(b->f->noutputs + 1u);
    int rc = t && done ? 0 : WEFT_ENOMEM;
    if (!rc) {
        lifetimes(p, t);
        direct_outputs(b, t, done);
        rc = copy_outputs(b, done);
    }
    if (!rc) {
        lifetimes(p, t);
        rc = place_temporaries(p, t);
    }
    free(t);
    free(done);
    return rc;
}
