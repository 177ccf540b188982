/*
 * autograd/custom.c -- user functions with their own derivative.
 *
 * Invariants: forward runs unrecorded and becomes one node; saved tensors are held as tape values with
 * their versions; `user` is released exactly once, when the record dies or was never made.
 */
#include <string.h>

#include "autograd/backward.h"
#include "autograd/custom.h"
#include "autograd/tape.h"
#include "eager/alloc.h"
#include "weft/grad.h"

enum { MAX_SAVED = 8, MAX_IN = 8 };

struct wf_custom {
    weft_function f;
    void *user;
    int n_saved;
    bool self[MAX_SAVED]; /* the saved tensor is result 0 */
};

struct weft_function_ctx {
    wf_ctx *c;
    weft_tensor saved[MAX_SAVED]; /* forward: what was handed in */
    int n_saved;
    bool tracks;              /* forward: see wf_function_tracks */
    struct wf_custom *custom; /* backward */
    uint32_t node;
};

void wf_custom_release(struct wf_custom *custom);
void wf_custom_release(struct wf_custom *custom)
{
    if (custom->f.release) {
        custom->f.release(custom->user);
    }
    wf_mfree(custom);
}

const char *wf_custom_name(const struct wf_custom *custom)
{
    return custom->f.name;
}

void wf_function_tracks(weft_function_ctx *ctx)
{
    ctx->tracks = true;
}

bool wf_custom_leads_on(const struct wf_custom *custom)
{
    return wf_custom_is_open(&custom->f);
}

weft_status weft_function_save(weft_function_ctx *ctx, const weft_tensor *t, int n)
{
    if (!ctx || !t || n < 0 || n > MAX_SAVED - ctx->n_saved) {
        wf_raise_text(wf_ctx_get(), WEFT_EINVALID, "function_save",
                      "at most %d tensors may be saved, from a non-NULL array", MAX_SAVED);
        return WEFT_EINVALID;
    }
    for (int i = 0; i < n; i++) {
        ctx->saved[ctx->n_saved++] = t[i];
    }
    return WEFT_OK;
}

weft_tensor weft_function_saved(weft_function_ctx *ctx, int i)
{
    if (!ctx || !ctx->custom || i < 0 || i >= ctx->custom->n_saved) {
        return wf_raise_text(wf_ctx_get(), WEFT_EINVALID, "function_saved",
                             "there is no saved tensor %d", i);
    }
    wf_tnode *n = wf_tnode_at(ctx->c->tape, ctx->node);
    wf_ref r = ctx->custom->self[i] ? ctx->node : n->aux->extra[i];
    return wf_tape_value(ctx->c, r, ctx->node, i);
}

int wf_vjp_custom(wf_vjp *v)
{
    wf_tnode *n = wf_tnode_at(v->c->tape, v->node);
    struct wf_custom *k = n->aux->custom;
    bool asked = wf_custom_is_open(&k->f); /* its gradients may go elsewhere */
    for (int i = 0; i < v->nsrc; i++) {
        asked = asked || v->need[i];
    }
    if (!asked) { /* weft_grad_of of its result: what it saved may have changed by now */
        return 0;
    }
    weft_function_ctx ctx = {.c = v->c, .custom = k, .node = v->node};
    weft_tensor g[WF_MAX_DST]; /* handles of its own: it may keep or free them */
    weft_status rc = WEFT_OK;
    for (int i = 0; i < v->ndst; i++) {
        bool pinned;
        wf_slot *s = v->g[i].slot ? wf_pin(v->c, v->g[i], &pinned, NULL) : NULL;
        g[i] = s ? wf_alias(v->c, s) : WEFT_NONE;
        if (s && pinned) {
            wf_unpin(v->c, s);
        }
        if (s && g[i].slot == 0) {
            return (int)weft_error_status(g[i]);
        }
    }
    uint64_t errors = v->c->error_seen;
    rc = k->f.backward(&ctx, k->user, g, v->ndst, v->dsrc, v->need, v->nsrc);
    wf_raise_made_up(v->c, k->f.name, "its backward", (int)rc, errors);
    for (int i = 0; i < v->nsrc && rc == WEFT_OK; i++) {
        if (!v->need[i]) {
            v->dsrc[i] = WEFT_NONE;
            continue;
        }
        if (v->dsrc[i].slot == 0) {
            rc = v->dsrc[i].serial ? (weft_status)wf_error_again(v->c, v->dsrc[i]) : WEFT_OK;
            continue;
        }
        wf_type want, got;
        wf_why why = {0};
        bool pinned;
        wf_slot *s = wf_pin(v->c, v->dsrc[i], &pinned, &why);
        if (s) {
            wf_vjp_src_type(v, i, &want);
            wf_slot_type(s, &got);
            if (!wf_type_same(&want, &got)) {
                wf_fail(&why, wf_gradient_unlike(&want, &got),
                        "its backward gave operand %d a gradient of another shape or dtype", i);
            }
            if (pinned) {
                wf_unpin(v->c, s);
            }
        }
        if (why.code) {
            rc = (weft_status)wf_raise_status(v->c, k->f.name, 1, &v->dsrc[i], &why);
            continue;
        }
        n = wf_tnode_at(v->c->tape, v->node); /* its backward may have grown the tape */
        const wf_tnode *operand = wf_tnode_at(v->c->tape, wf_tnode_src(n)[i]);
        v->dsrc[i] = wf_gradient_given(v->c, k->f.name, v->dsrc[i], operand->device);
        rc = v->dsrc[i].slot ? WEFT_OK : weft_error_status(v->dsrc[i]);
    }
    return (int)rc;
}

/* Moves what forward saved onto the node of result 0. */
static int attach_saved(wf_ctx *c, weft_function_ctx *ctx, struct wf_custom *k, wf_slot *out0,
                        wf_why *why)
{
    wf_tape *t = c->tape;
    wf_ref node = out0->node;
    for (int i = 0; i < ctx->n_saved; i++) {
        bool pinned;
        wf_slot *s = wf_pin(c, ctx->saved[i], &pinned, why);
        if (!s) {
            return why->code;
        }
        int rc = 0;
        k->self[i] = s == out0;
        if (k->self[i]) {
            wf_tnode *n = wf_tnode_at(t, node);
            if (!(n->flags & WF_TN_SELF)) {
                rc = wf_tape_save(t, node, node, s);
                n->flags |= rc ? 0 : WF_TN_SELF;
            }
        } else {
            wf_ref r = wf_tape_node_of(c, s, why);
            rc = r ? 0 : why->code;
            if (r) {
                wf_tnode_at(t, r)->refs++;
                rc = wf_tape_save(t, r, node, s);
                if (rc) {
                    wf_tape_release_ref(c, r);
                } else {
                    wf_tnode_at(t, node)->aux->extra[i] = r;
                }
            }
        }
        k->n_saved = i + 1;
        if (pinned) {
            wf_unpin(c, s);
        }
        if (rc) {
            return wf_fail(why, rc, "out of memory for a saved tensor");
        }
    }
    return 0;
}

static int record(wf_ctx *c, weft_function_ctx *ctx, const weft_function *f, void *user,
                  wf_slot **src, const weft_tensor *in, int n_in, const weft_tensor *out, int n_out,
                  wf_why *why)
{
    struct wf_custom *k = wf_malloc(sizeof *k);
    wf_slot *dst[WF_MAX_DST];
    if (!k) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    memset(k, 0, sizeof *k);
    k->f = *f;
    k->f.release = NULL; /* ours only once the node exists */
    k->user = user;
    for (int i = 0; i < n_out; i++) {
        dst[i] = wf_slot_at(c, out[i].slot);
    }
    int rc = wf_tape_append_custom(c, k, n_in, src, in, n_out, dst, why);
    if (rc) {
        wf_mfree(k); /* only a complete node takes it */
        return rc;
    }
    rc = attach_saved(c, ctx, k, dst[0], why);
    if (!rc) {
        k->f.release = f->release;
    }
    return rc;
}

/* Operands that forward freed cannot be recorded. */
static int check_operands(wf_ctx *c, const weft_function *f, const weft_tensor *in, int n_in,
                          wf_slot *const *src, bool *pinned, wf_why *why)
{
    for (int i = 0; i < n_in; i++) {
        if (src[i] && !pinned[i] && wf_pin(c, in[i], &pinned[i], NULL) != src[i]) {
            return wf_fail(why, WEFT_EHANDLE, "the forward of %s freed its operand %d", f->name, i);
        }
    }
    return 0;
}

/* Is a on memory of one of the operands, or of a result before it? */
static bool shows_another(wf_slot *a, wf_slot *const *src, int n_in, wf_ctx *c,
                          const weft_tensor *out, int n_before)
{
    bool yes = false;
    for (int i = 0; i < n_in; i++) {
        yes = yes || (src[i] && (src[i]->st == a->st || wf_storage_overlap(src[i]->st, a->st)));
    }
    for (int k = 0; k < n_before; k++) {
        yes = yes || wf_slot_at(c, out[k].slot)->st == a->st;
    }
    return yes;
}

/*
 * Results must be live tensors made by forward (in scope `depth` or inside it), on memory of their own: others are copied. The
 * record is that of the value, and a write to memory that shows elsewhere, too, would make it that of what shows there, or lose it.
 * What rebuilds its function in backward (wf_custom_is_open) gets a handle instead, and has the history of all its memory.
 */
static int check_results(wf_ctx *c, const weft_function *f, uint32_t depth, wf_slot *const *src,
                         int n_in, weft_function_ctx *ctx, weft_tensor *out, int n_out, wf_why *why)
{
    for (int i = 0; i < n_out; i++) {
        if (out[i].slot == 0 && out[i].serial) {
            return -wf_error_again(c, out[i]);
        }
        bool pinned, own = true;
        wf_slot *s = out[i].slot < WF_ABSENT_SLOT ? wf_pin(c, out[i], &pinned, why) : NULL;
        if (!s) {
            return wf_fail(why, WEFT_EINVALID, "%s gave no result %d", f->name, i);
        }
        own = s->scope >= depth && !pinned;
        for (int k = 0; k < i; k++) {
            own = own && out[k].slot != out[i].slot;
        }
        const weft_tensor given = out[i];
        if (wf_custom_is_open(f)) {
            out[i] = own ? given : wf_alias(c, s);
        } else if (!own || (s->flags & WF_SLOT_UNRECORDED) ||
                   shows_another(s, src, n_in, c, out, i)) {
            out[i] = wf_op1(WF_OP_COPY, NULL, given);
            for (int k = 0; k < ctx->n_saved && own; k++) { /* what was saved of it is the result */
                ctx->saved[k] = wf_same_handle(ctx->saved[k], given) ? out[i] : ctx->saved[k];
            }
        }
        if (pinned) {
            wf_unpin(c, s);
        }
        if (out[i].slot == 0) {
            return -(int)weft_error_status(out[i]);
        }
    }
    return 0;
}

/* The operands of a call: handles, and the slots of those that are tensors, pinned if they are kept. */
typedef struct operands {
    weft_tensor in[MAX_IN];
    wf_slot *src[MAX_IN];
    bool pinned[MAX_IN];
    int n;
    bool tracked; /* gradients flow to one */
} operands;

static int open_operands(wf_ctx *c, operands *o, wf_why *why)
{
    for (int i = 0; i < o->n; i++) {
        const weft_tensor t = o->in[i];
        if (t.slot == 0 && t.serial) {
            return -wf_error_again(c, t);
        }
        if (t.slot >= WF_ABSENT_SLOT) {
            continue;
        }
        wf_slot *s = o->src[i] = wf_pin(c, t, &o->pinned[i], why);
        if (!s) {
            return why->code;
        }
        o->tracked |= wf_slot_flows(s);
    }
    return 0;
}

static void close_operands(wf_ctx *c, operands *o)
{
    for (int i = 0; i < o->n; i++) {
        if (o->pinned[i]) {
            wf_unpin(c, o->src[i]);
        }
    }
}

/* Runs f's forward, unrecorded, in the scope of depth `depth`. Below 0: the error is recorded already. */
static int run_forward(wf_ctx *c, weft_function_ctx *ctx, const weft_function *f, void *user,
                       operands *o, weft_tensor *out, int n_out, uint32_t depth, wf_why *why)
{
    for (int i = 0; i < n_out; i++) {
        out[i] = WEFT_NONE;
    }
    const uint64_t errors = c->error_seen;
    c->grad_off++;
    int rc = -(int)f->forward(ctx, user, o->in, o->n, out, n_out);
    wf_raise_made_up(c, f->name, "its forward", -rc, errors);
    rc = rc ? rc : check_operands(c, f, o->in, o->n, o->src, o->pinned, why);
    rc = rc ? rc : check_results(c, f, depth, o->src, o->n, ctx, out, n_out, why);
    c->grad_off--;
    return rc;
}

/* The node of a call stands where weft_apply does: its results were made inside forward. */
static void stamp(wf_ctx *c, const weft_tensor *out, int n_out, const char *site)
{
    for (int i = 0; i < n_out && site; i++) {
        const wf_ref node = wf_slot_at(c, out[i].slot)->node;
        if (node) {
            wf_tnode_at(c->tape, node)->site = site;
        }
    }
}

weft_status(weft_apply)(const weft_function *f, void *user, const weft_tensor *given, int n_in,
                        weft_tensor *out, int n_out)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    if (!f || !f->forward || !f->backward || !f->name || !given || !out || n_in < 1 ||
        n_in > MAX_IN || n_out < 1 || n_out > WF_MAX_DST) {
        wf_raise_text(
            c, WEFT_EINVALID, "apply",
            "a name, forward and backward, 1 to %d operands and 1 to %d results are needed", MAX_IN,
            WF_MAX_DST);
        return WEFT_EINVALID;
    }
    const char *site = c->here;
    c->here = NULL;
    operands o = {.n = n_in};
    memcpy(o.in, given, (size_t)n_in * sizeof *o.in); /* given and out may be one array */
    wf_why why = {0};
    weft_function_ctx ctx = {.c = c};
    bool recorded = false;
    int rc = open_operands(c, &o, &why);
    weft_scope sc = weft_scope_begin();
    rc = rc ? rc : run_forward(c, &ctx, f, user, &o, out, n_out, sc.depth, &why);
    if (!rc && (o.tracked || ctx.tracks) && wf_grad_enabled(c)) {
        rc = record(c, &ctx, f, user, o.src, o.in, n_in, out, n_out, &why);
        recorded = !rc;
        if (recorded) {
            stamp(c, out, n_out, site);
        }
    }
    for (int i = 0; i < n_out && !rc; i++) {
        out[i] = weft_scope_give(sc, out[i]);
    }
    weft_scope_end(sc);
    close_operands(c, &o);
    if (!recorded && f->release) {
        f->release(user);
    }
    if (rc > 0) {
        rc = wf_raise_status(c, f->name, n_in, o.in, &why);
    }
    for (int i = 0; i < n_out && rc; i++) {
        out[i] = wf_last_error(c);
    }
    return (weft_status)(rc < 0 ? -rc : rc);
}
