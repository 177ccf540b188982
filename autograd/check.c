/*
 * autograd/check.c -- gradcheck and gradgradcheck: backward against central differences.
 *
 * The function under test is f64 and is probed through sum(out * r) with fixed pseudo-random r, so
 * that one scalar stands for all outputs. Differences step each input element by `step` both ways.
 *
 * Invariant: inputs are perturbed in private copies; the caller's tensors are never written.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/backward.h"
#include "autograd/tape.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "weft/grad.h"

#undef weft_requires_grad_
#undef weft_gradcheck
#undef weft_gradgradcheck
#undef weft_backward
#undef weft_grad_of

enum { MAX_IO = 8 };

typedef struct probe {
    const weft_gradcheck_args *a;
    wf_ctx *c;
    weft_tensor in[MAX_IO];
    double *data[MAX_IO]; /* of in[i] when it is checked, else NULL */
    int64_t n[MAX_IO];
} probe;

/* A fixed sequence in [0.5, 1.5): weights of the outputs. */
static double weight(int64_t i)
{
    uint64_t h = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    return 0.5 + (double)(h >> 11) * 0x1p-53;
}

static weft_tensor weights_like(wf_ctx *c, weft_tensor t, int64_t *at)
{
    bool pinned;
    wf_why why = {0};
    wf_slot *s = wf_pin(c, t, &pinned, &why);
    if (!s) {
        return wf_raise(c, "gradcheck", 1, &t, &why);
    }
    wf_type ty;
    wf_slot_type(s, &ty);
    if (pinned) {
        wf_unpin(c, s);
    }
    wf_attr full = {
        .dtype = WEFT_F64, .n_dyn = ty.rank, .dyn = ty.dims, .n_flt = 1, .flt = &(double){0}};
    int before = wf_device_enter(c, WF_DEVICE_HOST);
    weft_tensor w = wf_op0(WF_OP_FULL, &full);
    wf_device_enter(c, before);
    if (w.slot) {
        double *p = (double *)(void *)wf_slot_data(wf_slot_at(c, w.slot));
        int64_t n = wf_type_numel(&ty);
        for (int64_t i = 0; i < n; i++) {
            p[i] = weight((*at)++);
        }
    }
    return w;
}

/* sum over outputs of sum(out * r), as a 0-d f64 tensor of the current scope. */
static weft_tensor scalar_of(probe *p)
{
    weft_tensor out[MAX_IO], total = WEFT_NONE;
    for (int i = 0; i < MAX_IO; i++) {
        out[i] = WEFT_NONE;
    }
    weft_status st = p->a->fn(p->a->user, p->in, p->a->n_in, out, p->a->n_out);
    if (st != WEFT_OK) {
        return wf_last_error(p->c);
    }
    int64_t at = 0;
    wf_attr all = {.dtype = WEFT_F64};
    wf_attr cast = {.dtype = WEFT_F64};
    for (int i = 0; i < p->a->n_out; i++) {
        weft_tensor w = weights_like(p->c, out[i], &at), o = out[i];
        int64_t ints[2] = {WF_DEVICE_HOST, wf_device_of_handle(p->c, o)};
        if (ints[1] != WF_DEVICE_HOST) { /* the function went there itself */
            o = wf_op1(WF_OP_COPY, &(wf_attr){.n_ints = 2, .ints = ints}, o);
        }
        o = wf_op1(WF_OP_CAST, &cast, o);
        weft_tensor s = wf_op1(WF_OP_SUM, &all, wf_op2(WF_OP_MUL, NULL, o, w));
        total = total.slot ? wf_op2(WF_OP_ADD, NULL, total, s) : s;
    }
    return total;
}

static int value_of(probe *p, double *v)
{
    weft_scope sc = weft_scope_begin();
    weft_no_grad_begin();
    weft_tensor t = scalar_of(p);
    int rc = t.slot ? 0 : (int)weft_error_status(t);
    if (!rc) {
        memcpy(v, wf_slot_data(wf_slot_at(p->c, t.slot)), sizeof *v);
    }
    weft_no_grad_end();
    weft_scope_end(sc);
    return rc;
}

static int report(probe *p, int input, int64_t element, double analytic, double numeric)
{
    char text[256];
    snprintf(text, sizeof text,
             "input %d, element %lld: backward gives %.9g, central differences give %.9g", input,
             (long long)element, analytic, numeric);
    if (p->a->report && p->a->report_size) {
        snprintf(p->a->report, p->a->report_size, "%s", text);
    }
    wf_raise_text(p->c, WEFT_EGRAD, "gradcheck", "%s", text);
    return WEFT_EGRAD;
}

static int compare(probe *p, weft_tensor *grads)
{
    double h = p->a->step > 0 ? p->a->step : 1e-6;
    double rtol = p->a->rtol > 0 ? p->a->rtol : 1e-3, atol = p->a->atol > 0 ? p->a->atol : 1e-5;
    for (int i = 0; i < p->a->n_in; i++) {
        if (!p->data[i]) {
            continue;
        }
        weft_tensor g = grads[i].slot ? wf_op1(WF_OP_COPY, NULL, grads[i]) : WEFT_NONE;
        const double *a =
            g.slot ? (const double *)(void *)wf_slot_data(wf_slot_at(p->c, g.slot)) : NULL;
        for (int64_t k = 0; k < p->n[i]; k++) {
            double x = p->data[i][k], up, down;
            p->data[i][k] = x + h;
            int rc = value_of(p, &up);
            p->data[i][k] = x - h;
            rc = rc ? rc : value_of(p, &down);
            p->data[i][k] = x;
            if (rc) {
                return rc;
            }
            double num = (up - down) / (2 * h), ana = a ? a[k] : 0;
            if (!(fabs(num - ana) <= atol + rtol * fabs(num))) {
                return report(p, i, k, ana, num);
            }
        }
    }
    return 0;
}

/* Private contiguous copies of the inputs; those that require a gradient become checked leaves. */
static int probe_open(probe *p, const weft_gradcheck_args *a)
{
    p->a = a;
    p->c = wf_ctx_get();
    if (!p->c) {
        return WEFT_ENOMEM;
    }
    if (!a || !a->fn || !a->inputs || a->n_in < 1 || a->n_in > MAX_IO || a->n_out < 1 ||
        a->n_out > MAX_IO) {
        wf_raise_text(p->c, WEFT_EINVALID, "gradcheck",
                      "a function, 1 to %d inputs and 1 to %d outputs are needed", MAX_IO, MAX_IO);
        return WEFT_EINVALID;
    }
    for (int i = 0; i < a->n_in; i++) {
        p->data[i] = NULL;
        bool wants = weft_requires_grad(a->inputs[i]);
        weft_no_grad_begin();
        p->in[i] = wf_op1(WF_OP_COPY, NULL, a->inputs[i]);
        weft_no_grad_end();
        if (p->in[i].slot == 0) {
            return (int)weft_error_status(p->in[i]);
        }
        wf_slot *s = wf_slot_at(p->c, p->in[i].slot);
        if (!wants) {
            continue;
        }
        if (s->st->device != WF_DEVICE_HOST) {
            wf_raise_text(p->c, WEFT_EUNSUPPORTED, "gradcheck",
                          "input %d is on %s, where its elements cannot be changed one by one; "
                          "give it on the CPU and let the function move it",
                          i, wf_device_code_name(s->st->device));
            return WEFT_EUNSUPPORTED;
        }
        if (s->dtype != WEFT_F64) {
            wf_raise_text(p->c, WEFT_EDTYPE, "gradcheck",
                          "input %d requires a gradient but is %s; use f64", i,
                          wf_dtype_name(s->dtype));
            return WEFT_EDTYPE;
        }
        weft_requires_grad_(p->in[i], true);
        p->data[i] = (double *)(void *)wf_slot_data(s);
        p->n[i] = wf_slot_numel(s);
    }
    return 0;
}

static int analytic(probe *p, weft_tensor *grads)
{
    weft_tensor wanted[MAX_IO], got[MAX_IO], out = scalar_of(p);
    int which[MAX_IO], n = 0;
    if (out.slot == 0) {
        return (int)weft_error_status(out);
    }
    for (int i = 0; i < p->a->n_in; i++) {
        grads[i] = WEFT_NONE;
        if (p->data[i]) {
            which[n] = i;
            wanted[n++] = p->in[i];
        }
    }
    if (n == 0) {
        wf_raise_text(p->c, WEFT_EGRAD, "gradcheck", "no input requires a gradient");
        return WEFT_EGRAD;
    }
    if (!weft_requires_grad(out)) { /* constant: all gradients are zero */
        return 0;
    }
    weft_grad_of_args a = {.outputs = &out,
                           .n_outputs = 1,
                           .inputs = wanted,
                           .n_inputs = n,
                           .grads = got,
                           .allow_unused = true};
    weft_status st = weft_grad_of(&a);
    for (int i = 0; i < n && st == WEFT_OK; i++) {
        grads[which[i]] = got[i];
    }
    return (int)st;
}

weft_status weft_gradcheck(const weft_gradcheck_args *args)
{
    probe p;
    weft_tensor grads[MAX_IO];
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    int rc;
    wf_why why = {0};
    wf_recorder *trace = wf_pause(c, "gradcheck", &rc, &why); /* it looks at values all the time */
    if (rc) {
        return (weft_status)wf_raise_status(c, "gradcheck", 0, NULL, &why);
    }
    weft_scope sc = weft_scope_begin();
    rc = probe_open(&p, args);
    rc = rc ? rc : analytic(&p, grads);
    rc = rc ? rc : compare(&p, grads);
    weft_scope_end(sc);
    wf_resume(c, trace);
    return (weft_status)rc;
}

/* -- second order --------------------------------------------------------------------------------- */

typedef struct second {
    const weft_gradcheck_args *a;
    bool wants[MAX_IO];
} second;

/* The gradients of fn's weighted sum, as outputs of a function of the same inputs. */
static weft_status first_gradients(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out)
{
    second *s = user;
    probe p = {.a = s->a, .c = wf_ctx_get()};
    weft_tensor wanted[MAX_IO];
    int n = 0;
    uint32_t mode = weft_enable_grad_begin();
    for (int i = 0; i < n_in; i++) {
        p.in[i] = in[i];
        if (s->wants[i]) {
            wanted[n++] = in[i];
        }
    }
    weft_tensor t = scalar_of(&p);
    weft_status st = t.slot ? WEFT_OK : weft_error_status(t);
    if (st == WEFT_OK && !weft_requires_grad(t)) {
        st = WEFT_EGRAD;
        wf_raise_text(p.c, WEFT_EGRAD, "gradgradcheck", "the outputs do not depend on the inputs");
    }
    if (st == WEFT_OK) {
        weft_grad_of_args a = {.outputs = &t,
                               .n_outputs = 1,
                               .inputs = wanted,
                               .n_inputs = n,
                               .grads = out,
                               .create_graph = true,
                               .allow_unused = true};
        st = weft_grad_of(&a);
    }
    for (int i = 0; i < n_out && st == WEFT_OK; i++) {
        if (out[i].slot == 0) { /* unused input: zero */
            out[i] = wf_op2(WF_OP_MUL, NULL, wanted[i], weft_f(0));
        }
    }
    weft_enable_grad_end(mode);
    return st;
}

weft_status weft_gradgradcheck(const weft_gradcheck_args *args)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!args || !args->fn || !args->inputs || args->n_in < 1 || args->n_in > MAX_IO) {
        wf_raise_text(c, WEFT_EINVALID, "gradgradcheck", "a function and 1 to %d inputs are needed",
                      MAX_IO);
        return WEFT_EINVALID;
    }
    second s = {.a = args};
    weft_gradcheck_args outer = *args;
    outer.fn = first_gradients;
    outer.user = &s;
    outer.n_out = 0;
    for (int i = 0; i < args->n_in; i++) {
        s.wants[i] = weft_requires_grad(args->inputs[i]);
        outer.n_out += s.wants[i];
    }
    return weft_gradcheck(&outer);
}
