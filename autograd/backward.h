/*
 * autograd/backward.h -- the engine's entry, and what it needs from hooks and custom functions.
 */
#ifndef AUTOGRAD_BACKWARD_H
#define AUTOGRAD_BACKWARD_H

#include <sched.h>

#include "autograd/vjp.h"
#include "weft/grad.h"

/* Guards gradient and hooks of a leaf that several threads share. Held over one accumulation at most. */
static inline void wf_meta_lock(wf_meta *m)
{
    while (atomic_exchange_explicit(&m->lock, 1, memory_order_acquire)) {
        sched_yield();
    }
}
static inline void wf_meta_unlock(wf_meta *m)
{
    atomic_store_explicit(&m->lock, 0, memory_order_release);
}

/* A gradient to hand out instead of accumulating it: of a recorded result (node) or a leaf (meta). */
typedef struct wf_grad_capture {
    wf_ref node;
    wf_meta *meta;
    weft_tensor *result;
} wf_grad_capture;

/* Runs backward from n nodes with their gradients. Leaves accumulate unless n_cap > 0. An error is
 * recorded and its status returned. */
int wf_backward_run(wf_ctx *c, int n, const wf_ref *roots, const weft_tensor *grads, bool retain,
                    bool create, int n_cap, const wf_grad_capture *cap);

/* Hooks of m on *g (post: after accumulation); a replacement is given to scope `depth`. */
int wf_hooks_run(wf_ctx *c, wf_meta *m, bool post, weft_tensor *g, uint32_t depth);
bool wf_meta_retains(const wf_meta *m);
int wf_vjp_custom(wf_vjp *v);

/* Another handle of the current scope on s's memory, with its node. */
weft_tensor wf_alias(wf_ctx *c, wf_slot *s);
/* Moves scope-owned t to the scope at `depth`; others pass through. */
weft_tensor wf_give_to(wf_ctx *c, uint32_t depth, weft_tensor t);

#endif
