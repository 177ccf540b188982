/*
 * eager/call.c -- an op on its way through dispatch: operands pinned and checked, the type and the extents they meet
 * in, results made.
 *
 * Invariants: a failing call leaves operands as they were; whatever wf_call_open pinned is unpinned by wf_call_close,
 * whether it succeeded or not; nothing here runs a kernel.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/borrow.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/layout.h"
#include "eager/pool.h"

static const wf_attr no_attr;

/* -- operands ---------------------------------------------------------------------------------------- */

void wf_call_close(wf_call *k)
{
    for (int i = k->nsrc; i-- > 0;) {
        wf_end_hold(k->c, k->slot[i], (wf_hold)k->held[i]);
    }
    if (k->slot != k->slot_) {
        wf_scratch_free(k->held, (size_t)k->most * sizeof *k->held);
        wf_scratch_free(k->slot, (size_t)k->most * sizeof *k->slot);
    }
}

/* A value that another thread's trace has not computed yet. */
static inline bool foreign(const wf_ctx *c, const wf_slot *s)
{
    return wf_storage_is_foreign(s->st, c->recorder);
}

/* Operand i has no value, or none yet: then it is waited for, and 0 is returned. */
__attribute__((noinline, cold)) static int refuse(wf_call *k, wf_slot *s, int i)
{
    if (s->st->broken == WF_ARRIVING) {
        return wf_storage_arrive(s->st, &k->why);
    }
    if (s->st->broken) {
        char text[WF_BROKEN_SIZE];
        wf_fail(&k->why, WEFT_EINVALID, "operand %d holds no valid value: %s", i,
                wf_broken_text(s->st, text));
        wf_hint(&k->why, "write it anew (weft_copy_, weft_fill_) before reading it");
    } else {
        wf_fail(&k->why, WEFT_EUNSUPPORTED,
                "operand %d belongs to a running trace of another thread", i);
        wf_hint(&k->why, "use it after the traced call has returned (of a gradient that threads "
                         "share: let calls return weft_grad_of's, and add those)");
    }
    return k->why.code;
}

/* The slot of operand i, a tensor's handle. NULL with k->why filled. */
static inline wf_slot *hold(wf_call *k, int i)
{
    wf_ctx *c = k->c;
    const weft_tensor t = k->src[i];
    wf_hold how = WF_HOLD_SCOPE;
    bool pinned = false;
    wf_slot *s = wf_take_hold(c, t, &how);
    if (!s) { /* says why not */
        s = wf_pin(c, t, &pinned, &k->why);
        how = pinned ? WF_HOLD_PINNED : WF_HOLD_SCOPE;
    }
    k->held[i] = (uint16_t)how;
    return s;
}

/* Pins operands. Returns 0, a status with why filled, or -1 with *failed set to an operand that is
 * already an error. */
int wf_call_open(wf_call *k, wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc,
                 const weft_tensor *src, weft_tensor *failed)
{
    k->c = c;
    k->op = op;
    k->attr = attr ? attr : &no_attr;
    k->nsrc = 0;
    k->src = src;
    k->slot = k->slot_;
    k->held = k->held_;
    k->tracked = false;
    k->last = false;
    k->why.code = 0;
    k->why.rule[0] = k->why.hint[0] = '\0';
    unsigned away = c->away; /* somebody is not in host memory */
    if (nsrc > SMALL_SRC) {
        if (nsrc > WF_MOST_SRC) {
            return wf_too_many(&k->why, op, nsrc);
        }
        k->most = nsrc;
        k->slot = wf_scratch((size_t)nsrc * sizeof *k->slot);
        k->held = wf_scratch((size_t)nsrc * sizeof *k->held);
        if (!k->slot || !k->held) {
            return wf_fail(&k->why, WEFT_ENOMEM, "out of memory for %d operands", nsrc);
        }
    }
    for (int i = 0; i < nsrc; i++) {
        k->slot[i] = NULL;
        k->held[i] = WF_HOLD_SCOPE;
        k->nsrc = i + 1;
        if (src[i].slot >= WF_ABSENT_SLOT) {
            continue;
        }
        if (wf_is_error(src[i])) {
            *failed = src[i];
            wf_error_again(c, src[i]);
            return -1;
        }
        wf_slot *s = hold(k, i);
        if (!s) {
            return k->why.code;
        }
        k->slot[i] = s;
        if (__builtin_expect(s->st->broken != 0 || foreign(c, s) || wf_storage_spoilt(s->st), 0) &&
            refuse(k, s, i)) {
            return k->why.code;
        }
        k->tracked |= wf_slot_tracked(s);
        away |= s->st->device;
    }
    k->device = WF_DEVICE_HOST;
    return __builtin_expect(away != 0, 0) ? wf_call_settle_device(k) : 0;
}

static double f64_of_i64(const void *number)
{
    return (double)*(const int64_t *)number;
}

double wf_scalar_f64(weft_tensor t)
{
    double d;
    if (t.context != WF_SCALAR_FLOAT) {
        const int64_t i = (int64_t)t.serial;
        return wf_fpenv_is_plain() ? (double)i : wf_plainly(f64_of_i64, &i);
    }
    memcpy(&d, &t.serial, sizeof d);
    return d;
}

static double f32_of_i64(const void *number)
{
    return (double)(float)*(const int64_t *)number;
}

void wf_scalar_store(weft_tensor t, int dt, void *out)
{
    int64_t i = (int64_t)t.serial;
    double d = wf_scalar_f64(t);
    switch (dt) {
    case WEFT_F64:
        memcpy(out, &d, sizeof d);
        break;
    case WEFT_F32: {
        float f = t.context == WF_SCALAR_FLOAT ? wf_plain_f32(d)
                  : wf_fpenv_is_plain()        ? (float)i
                                               : (float)wf_plainly(f32_of_i64, &i);
        memcpy(out, &f, sizeof f);
        break;
    }
    case WEFT_I64:
        memcpy(out, &i, 8);
        break;
    case WEFT_I32:
        memcpy(out, &i, 4);
        break;
    case WEFT_I16:
        memcpy(out, &i, 2);
        break;
    case WEFT_BOOL: {
        uint8_t b = t.context == WF_SCALAR_FLOAT ? d != 0 : i != 0;
        memcpy(out, &b, 1);
        break;
    }
    default:
        memcpy(out, &i, 1);
        break;
    }
}

/* -- the type and the extents of an elementwise row --------------------------------------------------------- */

static const int kind_default[3] = {WEFT_BOOL, WEFT_I64, WEFT_F32};

int wf_call_settle_type(wf_op op, int strong, int weak)
{
    int join = strong;
    if (weak >= 0 && (join == 0 || wf_dtype_kind(join) < weak)) {
        join = kind_default[weak];
    }
    unsigned mask = wf_rows[op].types;
    bool floats_only = (mask & WF_DT_F) && !(mask & WF_DT_I) && !(mask & WF_BIT(join));
    return floats_only && wf_dtype_kind(join) <= 1 ? WEFT_F32 : join;
}

/* The common type of the value operands under promotion and weak scalars; 0 = error in why. */
int wf_call_join_types(wf_call *k, int first)
{
    int join = 0, weak = -1;
    for (int i = first; i < k->nsrc; i++) {
        if (k->slot[i]) {
            int dt = k->slot[i]->dtype;
            join = join ? (join == dt ? dt : wf_dtype_promote(join, dt)) : dt;
        } else if ((int)k->src[i].context > weak) {
            weak = (int)k->src[i].context;
        }
    }
    join = wf_call_settle_type(k->op, join, weak);
    unsigned mask = wf_rows[k->op].types;
    if (!(mask & WF_BIT(join))) {
        wf_fail(&k->why, WEFT_EDTYPE, "%s operands are not accepted", wf_dtype_name(join));
        const char *logical =
            join != WEFT_BOOL            ? NULL
            : k->op == WF_OP_BITWISE_NOT ? "bool is inverted by weft_logical_not"
            : k->op == WF_OP_MUL
                ? "weft_logical_and is their product; or cast first: weft_cast(x, WEFT_I64)"
            : k->op == WF_OP_ADD
                ? "weft_logical_or is their sum; or cast first: weft_cast(x, WEFT_I64)"
                : NULL;
        if (logical) {
            wf_hint(&k->why, "%s", logical);
            return 0;
        }
        wf_hint(&k->why, "cast first: weft_cast(x, %s)",
                join == WEFT_BOOL  ? "WEFT_I64"
                : (mask & WF_DT_F) ? "WEFT_F32"
                                   : "WEFT_I32 or WEFT_BOOL");
        return 0;
    }
    return join;
}

/* Result extents: all tensor operands broadcast. Sets *same when every tensor has the result's extents
 * and is contiguous. */
int wf_call_join_shapes(wf_call *k, wf_type *out, bool *same)
{
    bool have = false;
    *same = true;
    out->rank = 0;
    for (int i = 0; i < k->nsrc; i++) {
        wf_slot *s = k->slot[i];
        if (!s) {
            continue;
        }
        const int64_t *d = wf_dims(s);
        if (!have) {
            have = true;
            out->rank = s->rank;
            memcpy(out->dims, d, (size_t)s->rank * sizeof *d);
            continue;
        }
        if (s->rank != out->rank || memcmp(d, out->dims, (size_t)s->rank * sizeof *d) != 0) {
            wf_type t;
            wf_slot_type(s, &t);
            *same = false;
            if (wf_broadcast(out, &t, &k->why)) {
                return k->why.code;
            }
        }
    }
    for (int i = 0; *same && i < k->nsrc; i++) {
        if (k->slot[i] && !wf_slot_is_contiguous(k->slot[i])) {
            *same = false;
        }
    }
    return 0;
}

/* Operand i as a view with the result's extents (flat: one axis of n). */
void wf_call_operand_view(wf_call *k, int i, int dt, bool flat, int64_t n, const wf_type *out,
                          wf_view *v, void *scalar)
{
    wf_slot *s = k->slot[i];
    v->rank = flat ? 1 : out->rank;
    v->device = s ? s->st->device : WF_DEVICE_HOST;
    if (flat) {
        v->dims[0] = n;
    } else {
        memcpy(v->dims, out->dims, (size_t)out->rank * sizeof(int64_t));
    }
    if (!s) {
        wf_scalar_store(k->src[i], dt, scalar);
        v->data = scalar;
        v->dtype = (uint8_t)dt;
        for (int a = 0; a < v->rank; a++) {
            v->strides[a] = 0;
        }
        return;
    }
    v->data = wf_slot_data(s);
    v->dtype = s->dtype;
    if (flat) {
        v->strides[0] = 1;
        return;
    }
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    int lead = out->rank - s->rank;
    for (int a = 0; a < out->rank; a++) {
        int b = a - lead;
        v->strides[a] = b >= 0 && (d[b] == out->dims[a]) ? st[b] : 0;
    }
}
weft_tensor wf_call_fail(wf_call *k)
{
    return wf_raise(k->c, wf_rows[k->op].name, k->nsrc, k->src, &k->why);
}

wf_slot *wf_call_result(wf_call *k, const wf_type *t, weft_tensor *h)
{
    int64_t n = wf_type_numel(t);
    if (n < 0) {
        wf_fail(&k->why, WEFT_ENOMEM, "the result's size overflows");
        return NULL;
    }
    size_t bytes = (size_t)n * wf_dtype_size(t->dtype);
    return wf_call_result_in(k, t, wf_result_storage(k->c, bytes, k->device, &k->why), h);
}

wf_slot *wf_call_result_in(wf_call *k, const wf_type *t, wf_storage *st, weft_tensor *h)
{
    wf_slot *s = st ? wf_slot_new(k->c, h) : NULL;
    int64_t last[4];
    const bool turned = k->last && wf_can_lie_last(t->rank, t->dims);
    if (turned) {
        wf_last_strides(t->dims, last);
    }
    if (!s || wf_slot_shape(s, t->rank, t->dims, turned ? last : NULL) != 0) {
        if (s) {
            wf_slot_destroy(k->c, s);
        }
        if (st) {
            wf_storage_release(st);
        }
        if (!k->why.code) {
            wf_fail(&k->why, WEFT_ENOMEM, "out of memory for a result of %zu bytes",
                    (size_t)wf_type_numel(t) * wf_dtype_size(t->dtype));
            wf_hint(&k->why, "free tensors, end scopes sooner, or call weft_memory_trim");
        }
        return NULL;
    }
    s->dtype = t->dtype;
    s->st = st;
    atomic_store_explicit(&st->handles, 1, memory_order_relaxed);
    return s;
}

weft_tensor wf_scalar_tensor(weft_tensor t)
{
    double v = wf_scalar_f64(t);
    int64_t iv = (int64_t)t.serial;
    wf_attr a = {.dtype = (uint8_t)kind_default[t.context], .n_flt = 1, .flt = &v};
    if (t.context == WF_SCALAR_INT) { /* exact: a double does not hold every i64 */
        a = (wf_attr){.dtype = WEFT_I64, .n_dyn = 1, .dyn = &iv};
    }
    return wf_op0(WF_OP_FULL, &a);
}
