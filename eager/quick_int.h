/*
 * eager/quick_int.h -- what the short ways share: operands looked up, memory that needs no thought.
 *
 * Included by short ways only. All of it is inline: a call on a small tensor is a few dozen
 * instructions, and what one function knows the next must not find out again.
 */
#ifndef EAGER_QUICK_INT_H
#define EAGER_QUICK_INT_H

#include <string.h>

#include "eager/borrow.h"
#include "eager/call.h"
#include "eager/quick.h"

#define ALWAYS static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 3")
#endif

enum { MOST_SRC = 3 };

/* A slot, and how it is held: let_go. */
typedef struct found {
    wf_slot *slot;
    unsigned pinned; /* wf_hold */
} found;

/* Of a handle that no scope of this thread owns; s: the slot that it names, or NULL if it is not of this context. NULL: that is for the general way to say. */
__attribute__((noinline, unused)) static found pin(wf_ctx *c, weft_tensor t, wf_slot *s)
{
    wf_hold how = WF_HOLD_SCOPE;
    if (s && c->nborrowed < c->most_borrowed && wf_borrow_at(c, s, t)) {
        return (found){s, WF_HOLD_LENT};
    }
    s = t.slot >= WF_ABSENT_SLOT ? NULL : wf_take_hold_kept(c, t, &how, NULL);
    return (found){s, (unsigned)how};
}

_Static_assert(WF_QUICK_ROW_SRC <= 8, "pins has eight bits for each way to hold an operand");
/* n operands in the reverse order; bit i of pins: the first way to hold one, bit i + 8: the other. */
__attribute__((noinline, unused)) static void let_go(wf_ctx *c, wf_slot *const *slot, int n,
                                                     unsigned pins)
{
    for (int i = n; i-- > 0;) {
        const unsigned how = pins >> i & (WF_HOLD_PINNED | WF_HOLD_LENT);
        if (how) {
            wf_end_hold(c, slot[i], (wf_hold)how);
        }
    }
}

ALWAYS found look_up(wf_ctx *c, weft_tensor t)
{
    wf_slot *s = NULL;
    if (__builtin_expect(wf_slot_is_here(c, t), 1)) {
        s = wf_slot_at(c, t.slot);
        const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
        if (__builtin_expect(
                WF_STATE_SERIAL(st) == t.serial && !(st & (WF_STATE_DEAD | WF_STATE_KEPT)), 1)) {
            return (found){s, 0};
        }
        if (wf_is_lent(c, s) && wf_is_kept_alive(s, t)) {
            return (found){s, 0};
        }
    }
    return pin(c, t, s);
}

/* Memory of the host that holds a value, or will when the trace `mine` has run. */
ALWAYS bool is_plain(const wf_storage *st, const wf_recorder *mine)
{
    const uint64_t odd = atomic_load_explicit(&st->broken, memory_order_acquire) | st->device;
    return mine ? !odd && !wf_storage_is_foreign(st, mine)
                : !(odd | atomic_load_explicit(&st->is_virtual, memory_order_acquire));
}

/* -- results ------------------------------------------------------------------------------------------------------ */

/* A slot of the new storage st, with extents to come. NULL: no memory, st is gone or was NULL. */
ALWAYS wf_slot *put_in_slot(wf_ctx *c, wf_storage *st, int dtype, weft_tensor *h)
{
    wf_slot *r = st ? wf_slot_take(c, h) : NULL;
    if (__builtin_expect(!r, 0)) {
        if (st) {
            wf_storage_release(st);
        }
        return NULL;
    }
    r->dtype = (uint8_t)dtype;
    r->st = st;
    atomic_store_explicit(&st->handles, 1, memory_order_relaxed);
    return r;
}

/* n elements in memory, of extents to be filled in. NULL: no memory. */
ALWAYS wf_slot *make(wf_ctx *c, int dtype, int64_t n, weft_tensor *h)
{
    return put_in_slot(c, wf_storage_new((size_t)n * wf_dtype_size(dtype)), dtype, h);
}

/* A result of n elements with the extents of the row-major slot `like`; NULL: no memory. */
ALWAYS wf_slot *make_as_wide(wf_ctx *c, int dtype, wf_slot *like, int64_t n, weft_tensor *h)
{
    wf_slot *r = make(c, dtype, n, h);
    if (__builtin_expect(r && wf_slot_shape_like(r, like), 0)) {
        wf_slot_destroy(c, r);
        r = NULL;
    }
    return r;
}

/* The same of a slot of any strides, of at most WF_INLINE_RANK axes. */
__attribute__((unused)) static inline wf_slot *make_shaped(wf_ctx *c, int dtype, wf_slot *like,
                                                           int64_t n, weft_tensor *h)
{
    wf_slot *r = make(c, dtype, n, h);
    int64_t step = 1;
    if (__builtin_expect(r != NULL, 1)) {
        r->rank = like->rank;
        for (int i = like->rank; i-- > 0;) {
            r->dims_[i] = like->dims_[i];
            r->strides_[i] = step;
            step *= like->dims_[i];
        }
    }
    return r;
}

/* The view m of s. NULL: no memory. */
ALWAYS wf_slot *put_view_in_slot(wf_ctx *c, wf_slot *s, const wf_quick_map *m, weft_tensor *h)
{
    wf_slot *r = wf_slot_take(c, h);
    if (__builtin_expect(!r, 0)) {
        return NULL;
    }
    r->rank = (uint8_t)m->rank;
    memcpy(r->dims_, m->d, sizeof r->dims_);
    memcpy(r->strides_, m->st, sizeof r->strides_);
    r->dtype = s->dtype;
    r->offset = s->offset + m->at * (int64_t)wf_dtype_size(s->dtype);
    r->st = s->st;
    wf_storage_view(s->st);
    return r;
}

/* A call that failed (eager/quick.c): every dst is the error, and the results made so far go. The status. */
typedef struct failed {
    wf_ctx *c;
    wf_op op;
    int nsrc, ndst, made;
    const weft_tensor *src;
    weft_tensor *dst;
    wf_slot *const *result;
} failed;
int wf_quick_fail(const failed *f, const wf_why *why);
int wf_quick_no_memory(const failed *f, int64_t n);

#endif
