/*
 * eager/borrow.h -- kept handles used by the thread whose context they lie in, without a locked instruction.
 *
 * A kept slot may be freed by any thread while an op of another one uses it; what ops pin (wf_pin) is counted in the
 * slot's state, two locked instructions an operand. The thread that kept a tensor is as a rule the one that uses it. It
 * writes the slot's address down in its context instead, looks at the state, and strikes it out afterwards. Who takes
 * a slot's last pin away after it was marked DEAD asks all processors for a barrier (membarrier) before he reads what is
 * written down: then either he sees the address and leaves the slot to the borrower, or the borrower has seen DEAD.
 *
 * Invariants: a context's list is written by its thread alone, first in, last out; of those who see a slot DEAD, without
 * pins and not borrowed, the one who sets all bits of its pins recycles it. Without membarrier nothing is borrowed.
 */
#ifndef EAGER_BORROW_H
#define EAGER_BORROW_H

#include "eager/tensor.h"

/* Is s on the list of its context o? Called by c after DEAD was set and no pin is left. */
bool wf_is_borrowed(const wf_ctx *c, wf_ctx *o, const wf_slot *s);
/* The context borrows from now on, if the system can. */
void wf_borrow_allow(wf_ctx *c);
/* Once, before there is a second context. */
void wf_borrow_set_up(void);
/* A kept slot that is DEAD and has no pins: recycled, unless it is borrowed or somebody else does it. st: its state. */
void wf_slot_let_go(wf_ctx *c, wf_slot *s, uint64_t st);

/* A slot that has been struck out: recycled, if somebody has left it to us. */
static inline void wf_look_again(wf_ctx *c, wf_slot *s)
{
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    const uint64_t all = WF_STATE_DEAD | WF_STATE_KEPT | WF_STATE_PINS;
    if (__builtin_expect((st & all) == (WF_STATE_DEAD | WF_STATE_KEPT), 0)) {
        wf_slot_let_go(c, s, st);
    }
}

static inline void wf_give_back(wf_ctx *c, wf_slot *s)
{
    atomic_store_explicit(&c->borrowed[--c->nborrowed], (uintptr_t)s + 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    wf_look_again(c, s);
}

/* Does t name what is kept in s? */
static inline bool wf_is_kept_alive(const wf_slot *s, weft_tensor t)
{
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    return WF_STATE_SERIAL(st) == t.serial &&
           (st & (WF_STATE_DEAD | WF_STATE_KEPT)) == WF_STATE_KEPT;
}

/* Borrows s, the slot that t names, if that is kept in it. There is room. */
static inline bool wf_borrow_at(wf_ctx *c, wf_slot *s, weft_tensor t)
{
    atomic_store_explicit(&c->borrowed[c->nborrowed++], (uintptr_t)s, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(wf_is_kept_alive(s, t), 1)) {
        return true;
    }
    wf_give_back(c, s); /* somebody may have left it to us meanwhile */
    return false;
}

/* The slot of a kept handle of this context, to be given back in the reverse order; NULL: pin it. */
static inline wf_slot *wf_borrow(wf_ctx *c, weft_tensor t)
{
    if (!wf_slot_is_here(c, t) || c->nborrowed >= c->most_borrowed) {
        return NULL;
    }
    wf_slot *s = wf_slot_at(c, t.slot);
    return wf_borrow_at(c, s, t) ? s : NULL;
}

/* Something is, and nothing more can be until it has been given back. */
static inline bool wf_lends_some(const wf_ctx *c)
{
    return atomic_load_explicit(&c->lent[0], memory_order_relaxed) != NULL;
}

static inline bool wf_is_lent(const wf_ctx *c, const wf_slot *s)
{
    return atomic_load_explicit(&c->lent[0], memory_order_acquire) == s ||
           atomic_load_explicit(&c->lent[1], memory_order_acquire) == s;
}

/* Borrows s and t, which may be one, slots that this context has borrowed before and that may have been freed since, for a call of
 * the user's function: short ops (eager/quick.h) need not borrow them again until wf_end_lend, which there must be; others would take
 * longer to look than to borrow. Nothing is lent. */
static inline void wf_lend(wf_ctx *c, wf_slot *s, wf_slot *t)
{
    atomic_store_explicit(&c->lent[0], s, memory_order_relaxed);
    atomic_store_explicit(&c->lent[1], t, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* To be lent in place of a slot where there is none: no handle names it. */
extern wf_slot wf_nobody;

/* The last slot but `but` that has been borrowed and given back since wf_forget_loans, of the first ones that an op borrows; wf_nobody: there is none. */
wf_slot *wf_last_loan(wf_ctx *c, const wf_slot *but);
void wf_forget_loans(wf_ctx *c);

/* One of them may have been left to us. */
void wf_lent_gone(wf_ctx *c, wf_slot *s, wf_slot *t);

static inline void wf_end_lend(wf_ctx *c)
{
    wf_slot *s = atomic_load_explicit(&c->lent[0], memory_order_relaxed);
    wf_slot *t = atomic_load_explicit(&c->lent[1], memory_order_relaxed);
    atomic_store_explicit(&c->lent[0], NULL, memory_order_release);
    atomic_store_explicit(&c->lent[1], NULL, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    const uint64_t either = atomic_load_explicit(&s->state, memory_order_acquire) |
                            atomic_load_explicit(&t->state, memory_order_acquire);
    if (__builtin_expect((either & WF_STATE_DEAD) != 0, 0)) {
        wf_lent_gone(c, s, t);
    }
}

/* How a slot is held that must not go while it is used. */
typedef enum wf_hold { WF_HOLD_SCOPE = 0, WF_HOLD_PINNED = 1, WF_HOLD_LENT = 256 } wf_hold;

/* wf_take_hold of a handle that no scope of this thread owns: one below WF_ABSENT_SLOT. *how is WF_HOLD_SCOPE. why: NULL, or filled
 * where there is no slot. */
static inline wf_slot *wf_take_hold_kept(wf_ctx *c, weft_tensor t, wf_hold *how, wf_why *why)
{
    bool pinned = false;
    if (wf_lends_some(c) && wf_slot_is_here(c, t)) {
        wf_slot *lent = wf_slot_at(c, t.slot);
        if (wf_is_lent(c, lent) && wf_is_kept_alive(lent, t)) {
            return lent; /* for longer than this */
        }
    }
    wf_slot *s = wf_borrow(c, t);
    *how = WF_HOLD_LENT;
    if (__builtin_expect(s != NULL, 1)) {
        return s;
    }
    if (t.context == c->id && c->most_borrowed == 0) {
        wf_borrow_allow(c); /* the next one */
    }
    s = wf_pin(c, t, &pinned, why);
    *how = pinned ? WF_HOLD_PINNED : WF_HOLD_SCOPE;
    return s;
}

/* The slot of a handle, lent if that can be, else pinned if that must be; NULL: it is not a live tensor of this thread's or
 * kept. To be let go in the reverse order. */
static inline wf_slot *wf_take_hold(wf_ctx *c, weft_tensor t, wf_hold *how)
{
    wf_slot *s = t.slot < WF_ABSENT_SLOT ? wf_slot_of(c, t) : NULL;
    *how = WF_HOLD_SCOPE;
    return s || t.slot >= WF_ABSENT_SLOT ? s : wf_take_hold_kept(c, t, how, NULL);
}

static inline void wf_end_hold(wf_ctx *c, wf_slot *s, wf_hold how)
{
    if (how == WF_HOLD_LENT) {
        wf_give_back(c, s);
    } else if (how == WF_HOLD_PINNED) {
        wf_unpin(c, s);
    }
}

#endif
