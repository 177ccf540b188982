/*
 * autograd/jvp.c -- forward-mode products from the reverse-mode columns.
 *
 * The vector-Jacobian product v(u) = J'u is linear in u; differentiating <v(u), t> by u gives J t. So one
 * column per operand serves both directions, for elementwise rows and all others alike.
 *
 * Invariant: the caller's graph is retained and its gradients are left alone.
 */
#include <string.h>

#include "autograd/backward.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "weft/grad.h"

#undef weft_requires_grad_
#undef weft_jvp
#undef weft_grad_of

/* *ty := the type of t; else its error, or the one that it carries. */
static weft_status type_of(wf_ctx *c, weft_tensor t, wf_type *ty)
{
    const int rc = wf_refuse_others(c, t, "jvp");
    if (rc) {
        return (weft_status)rc;
    }
    wf_why why = {0};
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, &why);
    if (!s) {
        return (weft_status)wf_raise_status(c, "jvp", 1, &t, &why);
    }
    wf_slot_type(s, ty);
    if (pinned) {
        wf_unpin(c, s);
    }
    return WEFT_OK;
}

/* A leaf of t's shape and dtype to differentiate by: zeros will do, the products are linear. */
static weft_tensor seed_like(wf_ctx *c, weft_tensor t)
{
    wf_type ty;
    if (type_of(c, t, &ty) != WEFT_OK) {
        return wf_last_error(c);
    }
    double zero = 0;
    wf_attr full = {.dtype = ty.dtype, .n_dyn = ty.rank, .dyn = ty.dims, .n_flt = 1, .flt = &zero};
    int before = wf_device_enter(c, wf_device_of_handle(c, t));
    weft_tensor u = wf_op0(WF_OP_FULL, &full);
    wf_device_enter(c, before);
    weft_status st = u.slot ? weft_requires_grad_(u, true) : WEFT_OK;
    return st == WEFT_OK ? u : wf_last_error(c);
}

/* A tangent is of its input's type: another one would broadcast with the gradient, and its elements count several times. */
static weft_status tangent_fits(wf_ctx *c, weft_tensor input, weft_tensor tangent)
{
    wf_type of, given;
    weft_status st = type_of(c, input, &of);
    st = st == WEFT_OK ? type_of(c, tangent, &given) : st;
    if (st != WEFT_OK || wf_type_same(&of, &given)) {
        return st;
    }
    weft_tensor both[2] = {input, tangent};
    wf_why why = {0};
    wf_fail(&why, wf_gradient_unlike(&of, &given),
            "the tangent's shape or dtype differs from the input's");
    return (weft_status)wf_raise_status(c, "jvp", 2, both, &why);
}

static weft_status run(wf_ctx *c, const weft_jvp_args *a, weft_tensor *u, weft_tensor *v)
{
    for (int k = 0; k < a->n_outputs; k++) {
        u[k] = seed_like(c, a->outputs[k]);
        if (u[k].slot == 0) {
            return weft_error_status(u[k]);
        }
    }
    for (int i = 0; i < a->n_inputs; i++) {
        weft_status fits = tangent_fits(c, a->inputs[i], a->tangents[i]);
        if (fits != WEFT_OK) {
            return fits;
        }
    }
    weft_grad_of_args back = {.outputs = a->outputs,
                              .n_outputs = a->n_outputs,
                              .inputs = a->inputs,
                              .n_inputs = a->n_inputs,
                              .grads = v,
                              .grad_outputs = u,
                              .create_graph = true,
                              .allow_unused = true};
    weft_status st = weft_grad_of(&back);
    weft_tensor total = WEFT_NONE;
    for (int i = 0; i < a->n_inputs && st == WEFT_OK; i++) {
        if (v[i].slot == 0 || !weft_requires_grad(v[i])) {
            continue; /* no output depends on this input, or only with derivative zero */
        }
        wf_attr all = {.dtype = WEFT_DTYPE_DEFAULT};
        weft_tensor p = wf_op1(WF_OP_SUM, &all, wf_op2(WF_OP_MUL, NULL, v[i], a->tangents[i]));
        total = total.slot ? wf_op2(WF_OP_ADD, NULL, total, p) : p;
        st = total.slot ? WEFT_OK : weft_error_status(total);
    }
    if (st != WEFT_OK || total.slot == 0) {
        return st;
    }
    weft_grad_of_args fwd = {.outputs = &total,
                             .n_outputs = 1,
                             .inputs = u,
                             .n_inputs = a->n_outputs,
                             .grads = a->results,
                             .retain_graph = true,
                             .allow_unused = true};
    return weft_grad_of(&fwd);
}

weft_status weft_jvp(const weft_jvp_args *args)
{
    wf_ctx *c = wf_ctx_get();
    const char *site = wf_take_here(c);
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!args || args->n_outputs < 1 || args->n_inputs < 1 || !args->outputs || !args->inputs ||
        !args->tangents || !args->results) {
        wf_raise_text(
            c, WEFT_EINVALID, "jvp",
            "outputs, inputs, tangents and results must be given, with at least one of each");
        return WEFT_EINVALID;
    }
    for (int k = 0; k < args->n_outputs; k++) {
        args->results[k] = WEFT_NONE;
    }
    size_t n = (size_t)args->n_outputs + (size_t)args->n_inputs;
    weft_tensor *h = wf_malloc(n * sizeof *h);
    if (!h) {
        wf_raise_text(c, WEFT_ENOMEM, "jvp", "out of memory");
        return WEFT_ENOMEM;
    }
    uint32_t mode = weft_enable_grad_begin();
    weft_scope sc = weft_scope_begin();
    weft_status st = run(c, args, h, h + args->n_outputs);
    for (int k = 0; k < args->n_outputs && st == WEFT_OK; k++) {
        if (args->results[k].slot == 0) { /* independent of every input: zero */
            weft_tensor z = seed_like(c, args->outputs[k]);
            args->results[k] = z.slot ? wf_op1(WF_OP_DETACH, NULL, z) : z;
            st = args->results[k].slot ? WEFT_OK : weft_error_status(args->results[k]);
        }
    }
    for (int k = 0; k < args->n_outputs; k++) { /* all, or none: the others end with the scope */
        args->results[k] = st == WEFT_OK ? weft_scope_give(sc, args->results[k]) : wf_last_error(c);
    }
    wf_site_results(site, args->results, st == WEFT_OK ? args->n_outputs : 0);
    weft_scope_end(sc);
    weft_enable_grad_end(mode);
    wf_mfree(h);
    return st;
}
