/*
 * jit/record_int.h -- what the files that record share: notes on slots, instructions appended.
 *
 * Included by jit/record.c and jit/record_quick.c only. A note says which value a slot's elements are while its
 * storage has the value that it had then: so reading a tensor again costs two comparisons.
 */
#ifndef JIT_RECORD_INT_H
#define JIT_RECORD_INT_H

#include "jit/trace.h"

static inline wf_trace *wf_trace_of(wf_recorder *r)
{
    return (wf_trace *)(void *)r;
}

static inline bool wf_trace_same_extents(const wf_type *t, wf_slot *s)
{
    const int64_t *d = wf_dims(s);
    bool same = t->rank == s->rank;
    for (int i = 0; i < s->rank && same; i++) { /* few: a call of memcmp takes longer */
        same = t->dims[i] == d[i];
    }
    return same;
}

/* May this trace leave a note in the slot? No other thread can see it then. */
static inline bool wf_trace_is_private(const wf_trace *t, wf_slot *s)
{
    return s->context == t->c->id &&
           !(atomic_load_explicit(&s->state, memory_order_relaxed) & WF_STATE_KEPT);
}

/* What a note is compared with: the value of a virtual storage, or how often storages from outside have been
 * written (SSA numbers stay below). */
static inline uint32_t wf_trace_base(const wf_trace *t, const wf_storage *st)
{
    return atomic_load_explicit(&st->is_virtual, memory_order_relaxed) ? st->value
                                                                       : t->epoch | 1u << 31;
}

/* Notes on kept tensors that are all of their memory, whose value is the storage's: which of them have a note depends on where slots
 * lie, and must not show in what is recorded. */
static inline wf_kept_note *wf_trace_kept_note(wf_trace *t, const wf_slot *s)
{
    return &t->kept[(uintptr_t)s / 8 % WF_KEPT_NOTES]; /* slots are an odd number of words */
}
_Static_assert(sizeof(wf_slot) % 16 == 8, "neighbours have places of their own");

static inline void wf_trace_note(wf_trace *t, wf_slot *s, wf_val v)
{
    if (wf_trace_is_private(t, s)) {
        s->noted = t->serial;
        s->seen_base = wf_trace_base(t, s->st);
        s->seen = v;
    }
}

/* The same of a slot of this thread's context. */
static inline bool wf_trace_is_noted_here(const wf_trace *t, const wf_slot *s)
{
    return s->noted == t->serial && s->seen_base == wf_trace_base(t, s->st);
}

static inline bool wf_trace_is_noted(const wf_trace *t, const wf_slot *s)
{
    return s->context == t->c->id && wf_trace_is_noted_here(t, s);
}

/* The value of a pinned slot without a note of its own; 0: that says nothing. */
static inline wf_val wf_trace_kept_value(wf_trace *t, const wf_slot *s)
{
    const wf_kept_note *n = wf_trace_kept_note(t, s);
    return n->slot == s && n->noted == t->serial && n->st == s->st &&
                   n->seen_base == wf_trace_base(t, s->st) &&
                   n->serial ==
                       WF_STATE_SERIAL(atomic_load_explicit(&s->state, memory_order_relaxed))
               ? n->seen
               : 0;
}

/* The value of the slot's elements, with its extents. 0 or a status with why filled. */
static inline int wf_trace_read(wf_trace *t, wf_slot *s, wf_val *v, wf_why *why)
{
    *v = s->seen;
    return wf_trace_is_noted(t, s) ? 0 : wf_trace_value(t, s, v, why);
}

/* A virtual storage becomes the last of the trace's. */
static inline void wf_trace_link(wf_trace *t, wf_storage *st)
{
    t->address += (st->nbytes | 63) + 1;
    st->prev = t->last;
    *(t->last ? &t->last->next : &t->first) = st;
    t->last = st;
}

/* With the header of a dead one, of which there is one. */
static inline wf_storage *wf_trace_storage_again(wf_trace *t, size_t nbytes)
{
    wf_storage *st = t->spare;
    t->spare = st->next;
    wf_storage_begin_virtual(st, nbytes, t->base.device, (void *)(uintptr_t)t->address);
    wf_trace_link(t, st);
    return st;
}

/* NULL: no memory. */
wf_storage *wf_trace_storage_new(wf_trace *t, size_t nbytes);
/* wf_recorder.storage, .row, .view, .map */
wf_storage *wf_trace_storage(wf_recorder *r, size_t nbytes);
int wf_trace_row(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *src,
                 wf_slot *const *dst, wf_why *why);
int wf_trace_view(wf_recorder *r, wf_op op, const wf_attr *attr, wf_slot *src, wf_slot *dst,
                  wf_why *why);
int wf_trace_map(wf_recorder *r, wf_op op, int join, int nsrc, wf_slot *const *src,
                 const weft_tensor *handles, wf_slot *dst, wf_why *why);
/* Appends an op whose results have the types of the slots dst: dispatch has inferred them. 0 or a status with why
 * filled. */
int wf_trace_push(wf_trace *t, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src, int ndst,
                  wf_slot *const *dst, wf_val *out, wf_why *why);
/* wf_recorder.quick, .quick_into (record_quick.c) */
bool wf_trace_quick(wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                    int ndst, weft_tensor *dst, int *rc);
bool wf_trace_quick_into(wf_recorder *r, wf_op op, int nsrc, const weft_tensor *src,
                         weft_tensor dst, int *rc);

#endif
