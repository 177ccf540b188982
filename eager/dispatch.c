/*
 * eager/dispatch.c -- the choke point of every op.
 *
 * dispatch: check and infer the type -> make the result -> run the row's kernel, or hand it to the trace
 * that is recording -> if a gradient is wanted the tape appends the same node. There is no per-op code here
 * beyond what a row's kind says, and a trace changes nothing but who computes the elements. The ways of the kinds are
 * in elementwise.c and dispatch_rows.c, what they share in call.c.
 *
 * Invariants: a failing call leaves operands as they were, returns empty handles that carry one error
 * number, and an empty operand passes its error on unchanged. Pins are held for the whole call.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "eager/quick.h"

/* clang-format off */
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes)               \
    WF_EXEC_DECL(exec);
#include "jit/ir/ops.def"
static const wf_exec_fn exec_table[WF_OP_COUNT] = {
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) [WF_OP_##NAME] = wf_exec_##exec,
#include "jit/ir/ops.def"
};
/* Rows that gradients flow through. */
#define IS_DIFF(vjp) (sizeof(#vjp) != sizeof("NODIFF") || #vjp[0] != 'N' || \
                      #vjp[sizeof(#vjp) > 3 ? 2 : 0] != 'D')
static const bool differentiable[WF_OP_COUNT] = {
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) [WF_OP_##NAME] = IS_DIFF(vjp),
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) [WF_OP_##NAME] = IS_DIFF(vjp_a),
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) [WF_OP_##NAME] = IS_DIFF(vjp_a),
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) [WF_OP_##NAME] = true,
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) [WF_OP_##NAME] = IS_DIFF(vjp),
#include "jit/ir/ops.def"
};
/* clang-format on */

wf_exec_fn wf_exec_of(wf_op op)
{
    return exec_table[op];
}

/* Views never reach the table's entry: dispatch maps them. */
int wf_exec_view(wf_exec *e)
{
    return wf_fail(e->why, WEFT_EUNSUPPORTED, "a view was sent to a kernel");
}

/* COPY and CAST: the copy converts. */
int wf_exec_copy(wf_exec *e)
{
    wf_copy(&e->dst[0], &e->src[0]);
    return 0;
}

int wf_exec_row(wf_exec *e)
{
    int rc = exec_table[e->op](e);
    if (rc && e->why->rule[0] == '\0') {
        wf_fail(e->why, rc, "out of memory while it ran");
    }
    return rc;
}

/* -- the choke point ------------------------------------------------------------------------------------- */

int wf_op_record(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *slot,
                 const weft_tensor *src, int ndst, wf_slot *const *dst, wf_why *why)
{
    static const wf_attr none;
    bool flt = false, flows = false;
    for (int i = 0; i < ndst; i++) {
        flt |= wf_dtype_kind(dst[i]->dtype) == 2;
    }
    for (int i = 0; i < nsrc; i++) {
        flows |= slot[i] && wf_slot_flows(slot[i]);
    }
    if (!flt || !flows || !wf_tape_api || !differentiable[op]) {
        return 0;
    }
    return wf_tape_api->append(c, op, attr ? attr : &none, nsrc, slot, src, ndst, dst, why);
}

int wf_call_record(wf_call *k, int ndst, wf_slot *const *dst)
{
    return wf_op_record(k->c, k->op, k->attr, k->nsrc, k->slot, k->src, ndst, dst, &k->why);
}

__attribute__((noinline)) static int run_call(wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc,
                                              const weft_tensor *src, int ndst, weft_tensor *dst)
{
    wf_call k;
    weft_tensor failed = {0, 0, 0};
    int rc = wf_call_open(&k, c, op, attr, nsrc, src, &failed);
    if (rc < 0) {
        for (int i = 0; i < ndst; i++) {
            dst[i] = failed;
        }
        rc = (int)weft_error_status(failed);
    } else if (rc > 0 || (__builtin_expect((c->away | k.device) != 0, 0) &&
                          (rc = wf_call_enter_device(&k)) != 0)) {
        rc = wf_call_fail_all(&k, ndst, dst);
    } else {
        /* kernels round to nearest, denormals on, whatever the caller set */
        unsigned mode = c->recorder ? 0 : wf_fpenv_enter();
        if (wf_op_is_elementwise(op)) {
            dst[0] = wf_call_elementwise(&k);
            rc = dst[0].slot == 0 ? (int)weft_error_status(dst[0]) : 0;
        } else {
            rc = wf_call_row(&k, ndst, dst);
        }
        if (!c->recorder) {
            wf_fpenv_leave(mode);
        }
    }
    wf_call_close(&k);
    return rc;
}

static inline int dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                           int ndst, weft_tensor *dst)
{
    wf_ctx *c = wf_ctx_get();
    int rc = 0;
    if (__builtin_expect(!c, 0)) {
        for (int i = 0; i < ndst; i++) {
            dst[i] = (weft_tensor){0, 0, UINT64_MAX};
        }
        return WEFT_ENOMEM;
    }
    if (__builtin_expect(c->recorder != NULL, 0)) {
        if (wf_quick_in_trace(c) &&
            c->recorder->quick(c->recorder, op, attr, nsrc, src, ndst, dst, &rc)) {
            return rc;
        }
        return run_call(c, op, attr, nsrc, src, ndst, dst);
    }
    if (wf_quick_may(c, op, nsrc) && wf_quick(c, op, attr, nsrc, src, dst, &rc)) {
        return rc;
    }
    if (wf_quick_may_row(c, op, nsrc) && wf_quick_row(c, op, attr, nsrc, src, ndst, dst, &rc)) {
        return rc;
    }
    return run_call(c, op, attr, nsrc, src, ndst, dst);
}

/* With a profile being taken: the event is the call's, and names it to the pool's workers. */
__attribute__((noinline, cold)) static int dispatch_noted(wf_op op, const wf_attr *attr, int nsrc,
                                                          const weft_tensor *src, int ndst,
                                                          weft_tensor *dst)
{
    const char *outer = wf_prof_label;
    int64_t start = wf_prof_clock();
    wf_prof_label = wf_rows[op].name;
    int rc = dispatch(op, attr, nsrc, src, ndst, dst);
    wf_prof_label = outer;
    wf_prof_op(start, op, false, nsrc, src, ndst, dst);
    return rc;
}

int wf_dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src, int ndst,
                weft_tensor *dst)
{
    if (wf_prof_is_on() && !(wf_tls_ctx && wf_tls_ctx->recorder)) {
        return dispatch_noted(op, attr, nsrc, src, ndst, dst);
    }
    return dispatch(op, attr, nsrc, src, ndst, dst);
}

/* -- values behind dispatch's back ------------------------------------------------------------------------ */

static int need(wf_ctx *c, wf_slot *s, bool write, const char *op, bool later, wf_why *why)
{
    int rc = 0;
    if (c->recorder) {
        rc = c->recorder->need(c->recorder, s, write, op, later, why);
    } else if (atomic_load_explicit(&s->st->is_virtual, memory_order_acquire)) {
        rc = wf_fail(why, WEFT_EUNSUPPORTED, "it belongs to a running trace of another thread");
        wf_hint(why, "read it after the traced call has returned");
    }
    if (!rc && s->st->broken == WF_ARRIVING) {
        rc = wf_storage_arrive(s->st, why);
    } else if (!rc && (s->st->broken || wf_storage_spoilt(s->st))) {
        char text[WF_BROKEN_SIZE];
        rc =
            wf_fail(why, WEFT_EINVALID, "it holds no valid value: %s", wf_broken_text(s->st, text));
        wf_hint(why, "write it anew (weft_copy_, weft_fill_) before reading it");
    }
    return rc;
}

int wf_need_value(wf_ctx *c, wf_slot *s, bool write, const char *op, wf_why *why)
{
    return need(c, s, write, op, false, why);
}

int wf_need_operand(wf_ctx *c, wf_slot *s, const char *op, wf_why *why)
{
    return need(c, s, false, op, true, why);
}

wf_recorder *wf_pause(wf_ctx *c, const char *op, int *rc, wf_why *why)
{
    wf_recorder *r = c->recorder;
    *rc = r ? r->need(r, NULL, true, op, true, why) : 0;
    if (r && !*rc) {
        c->recorder = NULL;
    }
    return *rc ? NULL : r;
}

weft_tensor wf_op0(wf_op op, const wf_attr *attr)
{
    weft_tensor r;
    wf_dispatch(op, attr, 0, NULL, 1, &r);
    return r;
}

weft_tensor wf_op1(wf_op op, const wf_attr *attr, weft_tensor a)
{
    weft_tensor r;
    wf_dispatch(op, attr, 1, &a, 1, &r);
    return r;
}

weft_tensor wf_op2(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b)
{
    weft_tensor s[2] = {a, b}, r;
    wf_dispatch(op, attr, 2, s, 1, &r);
    return r;
}

weft_tensor wf_op3(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b, weft_tensor d)
{
    weft_tensor s[3] = {a, b, d}, r;
    wf_dispatch(op, attr, 3, s, 1, &r);
    return r;
}
