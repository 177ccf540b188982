/*
 * eager/borrow.c -- the rare side of borrowed slots: asking the other processors, the first loan. See borrow.h.
 */
#include "eager/borrow.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool can_ask;

void wf_borrow_set_up(void)
{
    atomic_store(&can_ask,
                 syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

/* All threads of the process have passed a full barrier since the call. */
static bool ask_all(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) {
        return true;
    }
    wf_borrow_set_up(); /* a forked child may have to say again that it will ask */
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void wf_borrow_allow(wf_ctx *c)
{
    if (!atomic_load(&can_ask)) {
        return;
    }
    atomic_store(&c->lends, true); /* a full barrier: before the first address is written down */
    c->most_borrowed = WF_BORROWS;
}

bool wf_is_borrowed(const wf_ctx *c, wf_ctx *o, const wf_slot *s)
{
    if (!atomic_load(&o->lends)) {
        return false;
    }
    if (o != c && !ask_all()) {
        return true; /* cannot be known: the memory is lost, not somebody's operand */
    }
    for (int i = 0; i < WF_BORROWS; i++) {
        if (atomic_load_explicit(&o->borrowed[i], memory_order_acquire) == (uintptr_t)s) {
            return true;
        }
    }
    return wf_is_lent(o, s);
}

wf_slot wf_nobody;

enum { LOANS = 2 }; /* of an op: a kept argument, and another */

void wf_forget_loans(wf_ctx *c)
{
    for (uint32_t i = c->nborrowed; i < c->nborrowed + LOANS && i < WF_BORROWS; i++) {
        atomic_store_explicit(&c->borrowed[i], 0, memory_order_relaxed);
    }
}

wf_slot *wf_last_loan(wf_ctx *c, const wf_slot *but)
{
    for (uint32_t i = c->nborrowed; i < c->nborrowed + LOANS && i < WF_BORROWS; i++) {
        const uintptr_t s = atomic_load_explicit(&c->borrowed[i], memory_order_relaxed);
        if (s && s - 1 != (uintptr_t)but) {
            return (wf_slot *)(s - 1); /* of this context, so its memory stays */
        }
    }
    return &wf_nobody;
}

void wf_lent_gone(wf_ctx *c, wf_slot *s, wf_slot *t)
{
    wf_look_again(c, s);
    if (t != s) {
        wf_look_again(c, t);
    }
}
