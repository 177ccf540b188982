/*
 * autograd/backward.h -- the engine's entry, and what it needs from hooks and custom functions.
 */
#ifndef AUTOGRAD_BACKWARD_H
#define AUTOGRAD_BACKWARD_H

#include "autograd/vjp.h"
#include "weft/grad.h"

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

/* In a derivative: g is the gradient of a result that it has recorded, and the backward that is going on goes on there. 0 or a
 * status; of a result that takes no part in gradients nothing is done. */
int wf_backward_continue(wf_ctx *c, weft_tensor result, weft_tensor g);

/* Hooks of m on *g (post: after accumulation); a replacement is given to scope `depth`. */
int wf_hooks_run(wf_ctx *c, wf_meta *m, bool post, uint64_t value, weft_tensor *g, uint32_t depth);
bool wf_meta_has_post_hooks(wf_meta *m);
/* The number of the next hook; and removes those of t that this thread has registered with this number or a later one. */
uint64_t wf_hooks_next(void);
void wf_hooks_drop_since(wf_ctx *c, weft_tensor t, uint64_t from);
/* Is the gradient of the node of this order kept? */
bool wf_meta_retains(const wf_meta *m, uint64_t value);
/* Another handle of the current scope on m's gradient; WEFT_NONE: it has none. */
weft_tensor wf_meta_gradient(wf_ctx *c, wf_meta *m);
/* Would a backward add to gradient g in its own memory? Nothing else shares it. */
bool wf_gradient_is_alone(wf_ctx *c, weft_tensor g);
/* weft_keep for a scope-owned handle that becomes a gradient. */
weft_tensor wf_keep_gradient(wf_ctx *c, weft_tensor own);
/* Fills why: a number stands where the tensor of a gradient belongs. */
void wf_not_a_tensor(wf_why *why);
/* What is no tensor at all, an error or a number: records that, and returns the status; else 0. */
int wf_refuse_others(wf_ctx *c, weft_tensor t, const char *op);
/* The meta backward looks at for s's value, which is its node's: aliases share one. NULL: none yet. */
wf_meta *wf_meta_find(wf_ctx *c, wf_slot *s);
/* The same, made and tied to the node on demand. NULL: *why. */
wf_meta *wf_meta_attach(wf_ctx *c, wf_slot *s, uint64_t *value, wf_why *why);
int wf_vjp_custom(wf_vjp *v);

/* A gradient that the engine did not make, for a tensor on `device`: itself, or a copy there of a single number. An error
 * if its elements are on another device. */
weft_tensor wf_gradient_given(wf_ctx *c, const char *op, weft_tensor g, int device);

/* The status of a gradient whose type is b where that of its tensor is a: WEFT_EDTYPE if only the element types differ. */
static inline int wf_gradient_unlike(const wf_type *a, const wf_type *b)
{
    return wf_type_same_dims(a, b) ? WEFT_EDTYPE : WEFT_ESHAPE;
}

/* Another handle of the current scope on s's memory, with its node. */
weft_tensor wf_alias(wf_ctx *c, wf_slot *s);
/* Moves scope-owned t to the scope at `depth`; others pass through. */
weft_tensor wf_give_to(wf_ctx *c, uint32_t depth, weft_tensor t);

#endif
