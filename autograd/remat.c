/*
 * autograd/remat.c -- functions whose inner results are made again for their derivative instead of being kept: Griewank and
 * Walther 2000 (treeverse), Chen et al. 2016 (sublinear memory).
 *
 * The function runs once, recorded, to see whether gradients flow through it, and what it recorded is dropped: one custom
 * node is left that holds the inputs. Its derivative runs the function again, recorded, and hands the gradients of its
 * results to the new nodes of the backward that is going on. These are younger than all that waits there, so they come next,
 * in the order in which they would have come; gradients of tensors that are not among the inputs find their way by themselves.
 *
 * Invariants
 *  - The same bits as without: the ops are the same, and so is the order in which gradients are summed.
 *  - A hook that the function registers on an input is there once, from the first run.
 *  - The generators that the function draws from stand, while it runs again, where they stood the first time, and after it
 *    where they were.
 *  - A trace records the function as it is: its plan decides what is kept.
 */
#include <string.h>

#include "autograd/backward.h"
#include "autograd/custom.h"
#include "eager/alloc.h"
#include "eager/device.h"
#include "weft/tensor.h"

enum { MAX_IN = 8 };

/* What result i is that fn did not make: input at[i], or behind these the earlier result; CAPTURED: the handle here, of what
 * was there before; -1: none of them. */
typedef struct passed {
    int at[WF_MAX_DST];
    weft_tensor captured[WF_MAX_DST];
} passed;
enum { CAPTURED = MAX_IN + WF_MAX_DST };

/* One call; lives as long as its node. */
typedef struct call {
    weft_check_fn fn;
    void *user;
    int n_in, n_out;
    weft_tensor given[MAX_IN]; /* inputs that are not tensors, */
    int saved[MAX_IN];         /* or -1; the others: which saved tensor */
    wf_draws draws;
    int device;   /* the thread's default one */
    passed *same; /* while it runs for the first time: see note_same */
} call;

static weft_status refuse(int code, const char *text)
{
    wf_raise_text(wf_ctx_get(), code, "remat", "%s", text);
    return (weft_status)code;
}

/* fn, whose failure is an error. */
static weft_status run(wf_ctx *c, const call *k, const weft_tensor *in, weft_tensor *out)
{
    for (int i = 0; i < k->n_out; i++) {
        out[i] = WEFT_NONE;
    }
    const uint64_t errors = c->error_seen;
    weft_status s = k->fn(k->user, in, k->n_in, out, k->n_out);
    wf_raise_made_up(c, "remat", "its function", (int)s, errors);
    for (int i = 0; i < k->n_out && s == WEFT_OK; i++) {
        if (out[i].slot == 0) {
            s = out[i].serial ? (weft_status)wf_error_again(c, out[i])
                              : refuse(WEFT_EINVALID, "the function left a result empty");
        }
    }
    return s;
}

/* The tensors among in, and how often each has been written. */
static int find_tensors(call *k, const weft_tensor *in, weft_tensor *tensors, uint32_t *writes)
{
    int n = 0;
    for (int i = 0; i < k->n_in; i++) {
        const bool tensor = weft_ok(in[i]) && in[i].slot < WF_ABSENT_SLOT;
        k->given[i] = in[i];
        k->saved[i] = tensor ? n : -1;
        if (tensor) {
            writes[n] = weft_write_count(in[i]);
            tensors[n++] = in[i];
        }
    }
    return n;
}

/* t is kept, or of a scope outside of the innermost one at `depth`. */
static bool is_older(wf_ctx *c, weft_tensor t, uint32_t depth)
{
    bool pinned;
    wf_slot *s = t.slot < WF_ABSENT_SLOT ? wf_pin(c, t, &pinned, NULL) : NULL;
    const bool yes = s && (pinned || s->scope < depth);
    if (s && pinned) {
        wf_unpin(c, s);
    }
    return yes;
}

/* *apart: is result t a detached view, or a view of one? *written: was its memory written with recording on? */
static void look_at(wf_ctx *c, weft_tensor t, bool *apart, bool *written)
{
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, NULL);
    *apart = s && (s->flags & WF_SLOT_APART) != 0;
    *written = s && s->st->roots != 0;
    if (s && pinned) {
        wf_unpin(c, s);
    }
}

static bool shares_with(weft_tensor t, const weft_tensor *tensors, int n)
{
    bool yes = false;
    for (int i = 0; i < n && !yes; i++) {
        yes = weft_shares_memory(t, tensors[i]);
    }
    return yes;
}

/* Results that fn did not make are handed out as what they are: a node of their own would gather what they are used for, and
 * gradients would be summed in another order than without. */
static void note_same(wf_ctx *c, const call *k, const weft_tensor *in, const weft_tensor *out)
{
    for (int i = 0; i < k->n_out; i++) {
        int *at = &k->same->at[i];
        *at = -1;
        for (int j = 0; j < k->n_in + i && *at < 0; j++) {
            const weft_tensor t = j < k->n_in ? in[j] : out[j - k->n_in];
            *at = out[i].slot < WF_ABSENT_SLOT && wf_same_handle(out[i], t) ? j : -1;
        }
        if (*at < 0 && is_older(c, out[i], c->depth)) {
            *at = CAPTURED;
            k->same->captured[i] = out[i];
        }
    }
}

static weft_status forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                           weft_tensor *out, int n_out)
{
    call *k = user;
    wf_ctx *c = wf_ctx_get();
    weft_tensor tensors[MAX_IN];
    uint32_t writes[MAX_IN];
    const int n = find_tensors(k, in, tensors, writes);
    (void)n_in;
    k->draws.outer = c->draws;
    k->draws.frame = __builtin_frame_address(0);
    c->draws = &k->draws;
    const uint32_t off = weft_enable_grad_begin();
    weft_status s = run(c, k, in, out);
    weft_enable_grad_end(off);
    c->draws = k->draws.outer;
    k->draws.outer = NULL;
    k->draws.frame = NULL;
    if (s == WEFT_OK && k->draws.more) {
        s = refuse(WEFT_EUNSUPPORTED, "the function draws from more than 8 generators");
    }
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        if (weft_write_count(tensors[i]) != writes[i]) {
            s = refuse(WEFT_EGRAD, "the function writes to its input, which it is to read again; "
                                   "let it write to a weft_clone");
        }
    }
    if (s == WEFT_OK) {
        note_same(c, k, in, out);
    }
    for (int i = 0; i < n_out && s == WEFT_OK; i++) {
        if (weft_requires_grad(out[i])) {
            wf_function_tracks(ctx);
        }
        bool apart, written;
        look_at(c, out[i], &apart, &written);
        /* Memory that fn made and wrote with recording on holds that record: a copy goes out. An input's may have been written before. */
        const bool copied = k->same->at[i] < 0 && written && !shares_with(out[i], tensors, n);
        const char *site = weft_site(out[i]); /* as where it is recorded without */
        out[i] = wf_op1(copied ? WF_OP_COPY : WF_OP_DETACH, NULL, out[i]);
        wf_site_results(*site ? site : NULL, &out[i], 1);
        if (out[i].slot && !apart) { /* what is written to it is the history of its memory */
            wf_slot_at(c, out[i].slot)->flags &= (uint8_t)~WF_SLOT_APART;
        }
        s = weft_error_status(out[i]);
    }
    return s == WEFT_OK && n ? weft_function_save(ctx, tensors, n) : s;
}

/* The function once more, with the generators and the default device as they were before its call; then they are as they
 * were before this one. Who watches draws does not see these. */
static weft_status run_again(wf_ctx *c, const call *k, const weft_tensor *in, weft_tensor *out)
{
    weft_generator now[WF_WATCHED_GENERATORS];
    wf_draws *watching = c->draws;
    for (int i = 0; i < k->draws.n; i++) {
        weft_generator *g = k->draws.from[i].of ? k->draws.from[i].of : &c->rng;
        now[i] = *g;
        *g = k->draws.from[i].at;
    }
    c->draws = NULL;
    const int before = wf_device_enter(c, k->device);
    weft_status s = run(c, k, in, out);
    wf_device_enter(c, before);
    c->draws = watching;
    for (int i = 0; i < k->draws.n; i++) {
        *(k->draws.from[i].of ? k->draws.from[i].of : &c->rng) = now[i];
    }
    return s;
}

static bool is_alike(weft_tensor a, weft_tensor b)
{
    const weft_shape x = weft_shape_of(a), y = weft_shape_of(b);
    return weft_dtype_of(a) == weft_dtype_of(b) && x.n == y.n &&
           memcmp(x.v, y.v, (size_t)x.n * sizeof *x.v) == 0;
}

static weft_status backward(weft_function_ctx *ctx, void *user, const weft_tensor *grad_out,
                            int n_out, weft_tensor *grad_in, const bool *needs, int n_in)
{
    const call *k = user;
    wf_ctx *c = wf_ctx_get();
    weft_tensor in[MAX_IN], out[WF_MAX_DST];
    weft_status s = WEFT_OK;
    (void)grad_in, (void)needs; /* gradients go where the new nodes lead */
    const uint32_t off = weft_enable_grad_begin();
    for (int i = 0; i < n_in && s == WEFT_OK; i++) {
        in[i] = k->saved[i] < 0 ? k->given[i] : weft_function_saved(ctx, k->saved[i]);
        s = k->saved[i] < 0 || in[i].slot ? WEFT_OK : weft_error_status(in[i]);
    }
    if (s == WEFT_OK) {
        const uint64_t hooks = wf_hooks_next();
        s = run_again(c, k, in, out);
        for (int i = 0; i < n_in; i++) {
            if (k->saved[i] >= 0) { /* the first run's are there */
                wf_hooks_drop_since(c, in[i], hooks);
            }
        }
    }
    weft_enable_grad_end(off);
    for (int i = 0; i < n_out && s == WEFT_OK; i++) {
        if (!grad_out[i].slot) {
            continue;
        }
        s = is_alike(out[i], grad_out[i])
                ? (weft_status)wf_backward_continue(c, out[i], grad_out[i])
                : refuse(WEFT_EGRAD, "the function gave a result of another shape or type when it "
                                     "ran again; it must do the same with the same inputs");
    }
    return s;
}

static void release(void *user)
{
    wf_mfree(user);
}

/* No gradients, or a trace: the function and nothing else. */
static weft_status run_plain(wf_ctx *c, const call *k, const weft_tensor *in, weft_tensor *out)
{
    weft_scope scope = weft_scope_begin();
    weft_status s = run(c, k, in, out);
    for (int i = 0; i < k->n_out && s == WEFT_OK; i++) {
        out[i] = weft_scope_give(scope, out[i]);
    }
    weft_scope_end(scope);
    return s;
}

weft_status(weft_remat)(weft_check_fn fn, void *user, const weft_tensor *in, int n_in,
                        weft_tensor *out, int n_out)
{
    static const weft_function f = {"remat", forward, backward, release};
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!fn || !in || !out || n_in < 1 || n_in > MAX_IN || n_out < 1 || n_out > WF_MAX_DST) {
        return refuse(WEFT_EINVALID,
                      "a function, 1 to 8 inputs and 1 to 3 results are needed; what else the "
                      "function reads is behind `user`");
    }
    const call plain = {.fn = fn, .user = user, .n_in = n_in, .n_out = n_out, .device = c->device};
    weft_tensor given[MAX_IN]; /* in and out may be one array */
    memcpy(given, in, (size_t)n_in * sizeof *in);
    if (c->recorder || !wf_grad_enabled(c)) {
        return run_plain(c, &plain, given, out);
    }
    call *k = wf_malloc(sizeof *k);
    if (!k) {
        return refuse(WEFT_ENOMEM, "out of memory");
    }
    passed same = {.at = {-1, -1, -1}};
    *k = plain;
    k->same = &same;
    const weft_status s = (weft_apply)(&f, k, given, n_in, out, n_out);
    for (int i = 0; i < n_out && s == WEFT_OK; i++) {
        const int at = same.at[i];
        if (at >= 0) {
            weft_free(out[i]);
            out[i] = at == CAPTURED ? same.captured[i] : at < n_in ? given[at] : out[at - n_in];
        }
    }
    return s;
}

bool wf_custom_is_open(const weft_function *f)
{
    return f->backward == backward;
}
