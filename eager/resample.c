/*
 * eager/resample.c -- see eager/resample.h.
 *
 * A result's slab of an axis is two slabs of the operand, blended; those come from the axes behind it in the same way. The two
 * that were made last are kept, since neighbours share them: so what an axis makes stays in the caches until the one before it
 * has read it.
 *
 * Invariants: y is written once, in order, by tasks cut by shape; what one task reads no other makes.
 */
#include "eager/resample.h"

#include <stdatomic.h>

#include "eager/dense.h"
#include "eager/rows.h"

enum {
    TASK = 1 << 16, /* elements of the result worth a task */
    SHARED =
        4, /* slabs of a task that it makes of each other's neighbours: the next one makes its first again */
    NO_SLAB = -1
};

typedef struct level {
    wf_blend b;
    int64_t in, out; /* elements of one slab in x, in y */
    size_t room;     /* where this level's part of a task's room begins, in bytes */
} level;

typedef struct resample {
    level level[WF_BLENDS];
    int count;
    int first; /* the first axis that changes; those before it are one */
    size_t size, room;
    const wf_row_kernels *k;
    char *y;
    const char *x;
    _Atomic bool failed; /* there was no memory for a task's room */
} resample;

/* What a task has: the room of all levels, and which slab of the source lies in which of a level's two places. */
typedef struct task {
    const resample *r;
    char *room;
    int64_t held[WF_BLENDS][2];
} task;

static void put_level(task *t, int at, const char *x, char *y);

/* Slab k of x behind axis `at`, as the axes behind have it, in one of two places, not in that of slab `keep`. */
static const char *slab(task *t, int at, const char *x, int64_t k, int64_t keep)
{
    const resample *r = t->r;
    const level *l = &r->level[at];
    const char *from = x + k * l->in * (int64_t)r->size;
    int64_t *held = t->held[at];
    int place = held[0] == k ? 0 : held[1] == k ? 1 : -1;
    const bool made = place >= 0;
    place = made ? place : held[0] == keep;
    char *to = t->room + l->room + (size_t)place * (size_t)l->out * r->size;
    if (!made) {
        held[place] = k;
        put_level(t, at + 1, from, to);
    }
    return to;
}

/* Slab j of the result, of an axis that is not the last one. */
static void put_slab(task *t, int at, const char *x, int64_t j, char *y)
{
    const level *l = &t->r->level[at];
    const int64_t k = l->b.below[j], n = l->b.above[j];
    const char *below = slab(t, at, x, k, n), *above = slab(t, at, x, n, k);
    const int64_t own = 0, size = (int64_t)t->r->size;
    t->r->k->blend(y, below, above, &own, &own, (const char *)l->b.near + j * size,
                   (const char *)l->b.far + j * size, 1, l->out);
}

/* The axes from `at` on of x, which they have all of. */
static void put_level(task *t, int at, const char *x, char *y)
{
    const level *l = &t->r->level[at];
    const int64_t in = l->in * (int64_t)t->r->size, out = l->out * (int64_t)t->r->size;
    if (at + 1 == t->r->count) {
        t->r->k->blend(y, x, x, l->b.below, l->b.above, l->b.near, l->b.far, l->b.m, l->out);
        return;
    }
    for (int i = at; i < t->r->count; i++) {
        t->held[i][0] = t->held[i][1] = NO_SLAB;
    }
    if (l->b.m > 0) {
        for (int64_t j = 0; j < l->b.m; j++) {
            put_slab(t, at, x, j, y + j * out);
        }
        return;
    }
    for (int64_t j = 0; j < l->b.n; j++) {
        put_level(t, at + 1, x + j * in, y + j * out);
    }
}

/* A unit is all of an axis that is the only one, else a slab of the first. */
static void run_units(void *arg, int64_t begin, int64_t end)
{
    resample *r = arg;
    const level *l = &r->level[r->first];
    const bool only = r->first + 1 == r->count;
    const int64_t per = only ? 1 : l->b.m, x = l->b.n * l->in * (int64_t)r->size;
    const int64_t y = (only ? l->b.m : 1) * l->out * (int64_t)r->size;
    task t = {.r = r, .room = wf_scratch(r->room)};
    if (!t.room) {
        atomic_store_explicit(&r->failed, true, memory_order_relaxed);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        if (only) {
            put_level(&t, r->first, r->x + i * x, r->y + i * y);
            continue;
        }
        if (i == begin || i % per == 0) {
            t.held[r->first][0] = t.held[r->first][1] = NO_SLAB;
        }
        put_slab(&t, r->first, r->x + i / per * x, i % per, r->y + i * y);
    }
    wf_scratch_free(t.room, r->room);
}

/* Extents of the levels, from the last one on, and what room they take. */
static void measure(resample *r, int count, const wf_blend *b, int64_t inner)
{
    while (b[count - 1].m == 0) {
        inner *= b[--count].n;
    }
    while (b[r->first].m == 0) {
        r->first++;
    }
    r->count = count;
    r->room = r->size; /* never nothing */
    for (int64_t i = count, in = inner, out = inner; i-- > 0;) {
        r->level[i] = (level){.b = b[i], .in = in, .out = out, .room = r->room};
        r->room += b[i].m && i + 1 < count ? 2 * (size_t)out * r->size : 0;
        in *= b[i].n;
        out *= b[i].m ? b[i].m : b[i].n;
    }
}

int wf_resample(void *y, const void *x, int dtype, int count, const wf_blend *b, int64_t inner,
                int64_t elements, wf_why *why)
{
    resample r = {.size = wf_dtype_size(dtype), .k = wf_row_kernels_of(dtype), .y = y, .x = x};
    measure(&r, count, b, inner);
    const level *l = &r.level[r.first];
    const int64_t unit = (r.first + 1 == r.count ? l->b.m : 1) * l->out;
    const int64_t least = unit == l->out && l->b.m > l->b.n ? SHARED : 1, few = TASK / unit + 1;
    wf_parallel_for(elements / unit, few < least ? least : few, run_units, &r);
    return atomic_load(&r.failed) ? wf_no_memory(why, r.room) : 0;
}
