/*
 * jit/passes/order.c -- canonical order: depth-first from the outputs, operands first.
 *
 * Two functions that compute the same expressions in another order of calls become equal texts.
 * Plans do not use it: the order of recording is the order the program chose, with its peak of memory;
 * depth-first order of a training step would walk the backward pass once per parameter.
 * Arguments come first, in their order. What no output needs is dropped. Iterative: chains may be long.
 */
#include <stdlib.h>

#include "jit/passes/pass.h"

typedef struct frame {
    wf_val v;
    int next; /* operand to visit */
} frame;

typedef struct walk {
    wf_build *b;
    const wf_fn *in;
    wf_val *map;
    frame *stack;
    uint32_t depth;
} walk;

/* Builds v after its operands. The stack holds at most one frame per instruction. */
static int visit(walk *w, wf_val v, wf_why *why)
{
    w->stack[w->depth++] = (frame){.v = v};
    while (w->depth > 0) {
        frame *top = &w->stack[w->depth - 1];
        const wf_ins *i = wf_fn_at(w->in, top->v);
        if (w->map[top->v]) {
            w->depth--;
        } else if (top->next < i->nsrc) {
            wf_val s = wf_ins_src(w->in, i)[top->next++];
            if (s && w->map[s] == 0) {
                w->stack[w->depth++] = (frame){.v = s};
            }
        } else {
            int rc = wf_build_copy(w->b, w->in, top->v - 1, w->map, why);
            if (rc) {
                return rc;
            }
            w->depth--;
        }
    }
    return 0;
}

/* Some other legal order, under WEFT_STRESS=order: whatever instruction comes up next, its operands before it. */
int wf_pass_shuffle(uint64_t seed, const wf_fn *in, wf_fn **out, wf_why *why)
{
    wf_build b;
    int rc = wf_build_begin(&b, in, 0);
    walk w = {.b = &b, .in = in};
    uint32_t *turn = malloc((in->n + 1u) * sizeof *turn);
    w.map = calloc(in->n + 1u, sizeof *w.map);
    w.stack = malloc((in->n + 1u) * sizeof *w.stack);
    rc = rc || !w.map || !w.stack || !turn ? wf_fail(why, WEFT_ENOMEM, "out of memory") : 0;
    for (uint32_t k = 0; k < in->n && !rc; k++) { /* Fisher and Yates, inside out */
        seed = seed * 0x5851F42D4C957F2Du + 0x14057B7EF767814Fu;
        uint32_t other = (uint32_t)((seed >> 33) % (k + 1u));
        turn[k] = turn[other];
        turn[other] = k + 1;
    }
    for (uint32_t k = 0; k < in->ninputs && !rc; k++) {
        rc = wf_build_copy(&b, in, in->inputs[k] - 1, w.map, why);
    }
    for (uint32_t k = 0; k < in->n && !rc; k++) {
        rc = visit(&w, turn[k], why);
    }
    for (uint32_t k = 0; k < in->noutputs && !rc; k++) {
        if (wf_fn_output(b.f, w.map[in->outputs[k]])) {
            rc = wf_fail(why, WEFT_ENOMEM, "out of memory");
        }
    }
    *out = wf_build_end(&b);
    free(w.map);
    free(w.stack);
    free(turn);
    return rc;
}

int wf_pass_order(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why)
{
    wf_build b;
    (void)p;
    int rc = wf_build_begin(&b, in, 0);
    walk w = {.b = &b, .in = in};
    w.map = calloc(in->n + 1u, sizeof *w.map);
    w.stack = malloc((in->n + 1u) * sizeof *w.stack);
    rc = rc || !w.map || !w.stack ? wf_fail(why, WEFT_ENOMEM, "out of memory") : 0;
    for (uint32_t k = 0; k < in->ninputs && !rc; k++) {
        rc = wf_build_copy(&b, in, in->inputs[k] - 1, w.map, why);
    }
    for (uint32_t k = 0; k < in->noutputs && !rc; k++) {
        rc = visit(&w, in->outputs[k], why);
        if (!rc && wf_fn_output(b.f, w.map[in->outputs[k]])) {
            rc = wf_fail(why, WEFT_ENOMEM, "out of memory");
        }
    }
    *out = wf_build_end(&b);
    free(w.map);
    free(w.stack);
    return rc;
}
