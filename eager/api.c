/*
 * eager/api.c -- argument checks that the public functions share, and the small calls of core.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eager/api.h"
#include "eager/borrow.h"
#include "eager/call.h"
#include "eager/device.h"
#include "eager/alloc.h"
#include "eager/pool.h"
#include "jit/ir/plain_numbers.h"

bool wf_arg_fail(wf_arg *a, int code, const char *hint, const char *fmt, ...)
{
    wf_why why = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    wf_plain_vsnprintf(why.rule, sizeof why.rule, fmt, ap);
    va_end(ap);
    if (hint) {
        snprintf(why.hint, sizeof why.hint, "%s", hint);
    }
    a->error = wf_raise(a->c, a->op, 1, &a->x, &why);
    wf_error_told(a->c, a->error, false);
    return false;
}

/* a->x is not to be used: says why. */
__attribute__((noinline, cold)) static bool refuse_handle(wf_arg *a)
{
    wf_why why = {0};
    bool pinned;
    wf_slot *s = wf_pin(a->c, a->x, &pinned, &why);
    if (s && pinned) { /* another thread has let go of its pin meanwhile */
        wf_unpin(a->c, s);
        wf_fail(&why, WEFT_EHANDLE, "a handle is in use by 65535 calls at once");
    }
    a->error = wf_raise(a->c, a->op, 1, &a->x, &why);
    return false;
}

bool wf_arg_open(wf_arg *a, const char *op, weft_tensor x)
{
    static const uint8_t scalar_dtype[3] = {WEFT_BOOL, WEFT_I64, WEFT_F32};
    a->c = wf_ctx_get();
    a->op = op;
    a->x = x;
    a->type.rank = 0;
    a->device = WF_DEVICE_HOST;
    a->error = x;
    if (!a->c) {
        a->error = wf_raise(NULL, op, 0, NULL, NULL);
        return false;
    }
    if (wf_is_scalar(x)) {
        a->type.dtype = scalar_dtype[x.context % 3];
        return true;
    }
    if (wf_is_error(x)) {
        wf_error_again(a->c, x);
        return false;
    }
    wf_hold how;
    wf_slot *s = wf_take_hold(a->c, x, &how);
    if (!s) {
        return refuse_handle(a);
    }
    wf_note_asked(a->c, s);
    a->type.dtype = s->dtype;
    a->type.rank = s->rank;
    a->device = wf_slot_device(s);
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    for (int i = 0; i < s->rank; i++) {
        a->type.dims[i] = d[i];
        a->strides[i] = st[i];
    }
    wf_end_hold(a->c, s, how);
    return true;
}

bool wf_arg_axis(wf_arg *a, int rank, int64_t axis, int64_t *out)
{
    if (axis < -rank || axis >= rank) {
        char hint[64];
        if (rank == 0) {
            snprintf(hint, sizeof hint, "a tensor of rank 0 has no axes");
        } else {
            snprintf(hint, sizeof hint, "axes run from %d to %d", -rank, rank - 1);
        }
        return wf_arg_fail(a, WEFT_ESHAPE, hint, "axis %lld is out of range for rank %d",
                           (long long)axis, rank);
    }
    *out = axis < 0 ? axis + rank : axis;
    return true;
}

bool wf_arg_axes(wf_arg *a, const weft_axes *axes, int64_t *out, int *n)
{
    unsigned seen = 0;
    if (wf_is_bare(axes)) {
        return wf_arg_fail(a, WEFT_EINVALID, "write .axes = weft_axes(0, -1)",
                           "a bare number stands where a set of axes belongs");
    }
    *n = axes->n < 0 ? 0 : (int)(axes->n > WF_MAX_RANK ? WF_MAX_RANK + 1 : axes->n);
    if (*n > WF_MAX_RANK) {
        return wf_arg_fail(a, WEFT_ESHAPE, "name every axis at most once", "%lld axes are given",
                           (long long)axes->n);
    }
    for (int i = 0; i < *n; i++) {
        if (!wf_arg_axis(a, a->type.rank, axes->v[i], &out[i])) {
            return false;
        }
        if (seen & (1u << out[i])) {
            return wf_arg_fail(a, WEFT_ESHAPE, "name every axis at most once",
                               "axis %lld is given twice", (long long)out[i]);
        }
        seen |= 1u << out[i];
    }
    return true;
}

bool wf_api_shape_ok(const char *op, const weft_shape *s)
{
    if (wf_is_bare(s)) {
        wf_api_error(op, WEFT_EINVALID,
                     "a bare number stands where the shape belongs; write weft_shape(2, 3)");
        return false;
    }
    if (s->n < 0 || s->n > WF_MAX_RANK) {
        wf_api_error(op, WEFT_ESHAPE, "a shape of %lld extents is given; 0 to 16 can be",
                     (long long)s->n);
        return false;
    }
    return true;
}

bool wf_arg_shape(wf_arg *a, const weft_shape *s)
{
    if (s->n < 0 || s->n > WF_MAX_RANK) {
        return wf_arg_fail(a, WEFT_ESHAPE, "a shape has 0 to 16 extents",
                           "a shape of %lld extents is given", (long long)s->n);
    }
    return true;
}

weft_tensor wf_api_error(const char *op, int code, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    wf_plain_vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return wf_raise_text(wf_ctx_get(), code, op, "%s", text);
}

weft_tensor wf_api_null(const char *op, const char *what)
{
    return wf_api_error(op, WEFT_EINVALID, "%s is NULL; pass its address", what);
}

weft_tensor wf_api_last_error(void)
{
    wf_ctx *c = wf_ctx_get();
    return c ? wf_last_error(c) : (weft_tensor){0, 0, UINT64_MAX};
}

int wf_api_dtype(weft_tensor t, bool *weak)
{
    wf_ctx *c = wf_ctx_get();
    *weak = wf_is_scalar(t);
    if (!c || t.slot == 0 || t.slot >= WF_ABSENT_SLOT) {
        return WEFT_DTYPE_DEFAULT;
    }
    wf_hold how;
    wf_slot *s = wf_take_hold(c, t, &how);
    if (!s) {
        return WEFT_DTYPE_DEFAULT;
    }
    int dt = s->dtype;
    wf_end_hold(c, s, how);
    return dt;
}

bool wf_api_alike(int n, const weft_tensor *t)
{
    bool weak;
    const int type = wf_api_dtype(t[0], &weak);
    bool alike = type != WEFT_DTYPE_DEFAULT;
    for (int i = 1; i < n && alike; i++) {
        alike = wf_is_absent(t[i]) || wf_api_dtype(t[i], &weak) == type;
    }
    return alike;
}

bool wf_api_whole(const char *op, double v, int dt, int64_t *out, weft_tensor *error)
{
    if (dt == WEFT_BOOL) {
        *out = v != 0;
        return true;
    }
    *out = wf_f64_to_i64(v);
    bool whole = v == v && v >= -0x1p63 && v < 0x1p63;
    if (whole && wf_dtype_holds(dt, *out)) {
        return true;
    }
    if (whole) {
        wf_why why = {0};
        wf_refuse_number(&why, *out, dt, false);
        *error = wf_raise(wf_ctx_get(), op, 0, NULL, &why);
    } else {
        *error = wf_api_error(op, WEFT_EINVALID, "%g is no integer, and so no %s; ask for WEFT_F32",
                              v, wf_dtype_name(dt));
    }
    return false;
}

weft_tensor wf_api_scalar(weft_tensor t, int dt)
{
    bool real = t.context == WF_SCALAR_FLOAT;
    double d;
    memcpy(&d, &t.serial, sizeof d);
    int64_t i = real ? wf_f64_to_i64(d) : (int64_t)t.serial;
    d = real ? d : (double)i;
    if (dt == WEFT_BOOL) {
        i = d != 0;
    } else if (real && wf_dtype_kind(dt) == 1) {
        i = wf_dtype_clamped(dt, i);
    }
    wf_attr attr = {.dtype = (uint8_t)dt, .n_dyn = 1, .dyn = &i};
    if (wf_dtype_kind(dt) == 2) {
        attr = (wf_attr){.dtype = (uint8_t)dt, .n_flt = 1, .flt = &d};
    }
    return wf_op0(WF_OP_FULL, &attr);
}

void wf_api_unify(int n, weft_tensor *t)
{
    static const uint8_t kind_dtype[3] = {WEFT_BOOL, WEFT_I64, WEFT_F32};
    int join = 0, kind = -1;
    bool differ = false;
    for (int i = 0; i < n; i++) {
        bool weak;
        int dt = wf_api_dtype(t[i], &weak);
        if (weak) {
            kind = (int)t[i].context > kind ? (int)t[i].context : kind;
            differ = true;
        } else if (dt) {
            differ |= join && dt != join;
            join = join ? wf_dtype_promote(join, dt) : dt;
        }
    }
    if (kind >= 0 && (!join || wf_dtype_kind(join) < kind)) {
        join = kind_dtype[kind];
    }
    wf_ctx *c = differ ? wf_ctx_get() : NULL;
    int device = c ? c->device : WF_DEVICE_HOST;
    for (int i = 0; c && i < n; i++) { /* scalars become tensors beside the tensors */
        int is = wf_device_of_handle(c, t[i]);
        device = is != WF_DEVICE_HOST ? is : device;
    }
    int before = c ? wf_device_enter(c, device) : 0;
    for (int i = 0; differ && i < n; i++) {
        bool weak;
        int dt = wf_api_dtype(t[i], &weak);
        if (weak) {
            t[i] = wf_api_scalar(t[i], join);
        } else if (dt && dt != join) {
            t[i] = wf_op1(WF_OP_CAST, &(wf_attr){.dtype = (uint8_t)join}, t[i]);
        }
    }
    if (c) {
        wf_device_enter(c, before);
    }
}

weft_tensor wf_api_reshape(weft_tensor x, int rank, const int64_t *dims)
{
    return wf_op1(WF_OP_RESHAPE, &(wf_attr){.n_dyn = (uint8_t)rank, .dyn = dims}, x);
}

weft_tensor wf_api_along(wf_op op, weft_tensor x, int axis)
{
    wf_arg a;
    int64_t i = 0, one = 1;
    if (!wf_arg_open(&a, wf_rows[op].name, x)) {
        return a.error;
    }
    wf_attr attr = {.n_ints = 1, .ints = &i};
    if (wf_arg_is_point(&a, axis)) {
        WF_CALLED(w, a.op, x);
        weft_scope sc = weft_scope_begin();
        weft_tensor y = wf_op1(op, &attr, wf_api_reshape(x, 1, &one));
        return wf_called_end(&w, weft_scope_return(sc, wf_api_reshape(y, 0, NULL)));
    }
    return wf_arg_axis(&a, a.type.rank, axis, &i) ? wf_op1(op, &attr, x) : a.error;
}

weft_tensor wf_api_alias(weft_tensor x, const wf_type *type)
{
    return wf_api_reshape(x, type->rank, type->dims);
}

/* -- core.h --------------------------------------------------------------------------------------------- */

const char *weft_dtype_name(weft_dtype dtype)
{
    if (dtype == WEFT_DTYPE_DEFAULT) {
        return "default";
    }
    unsigned i = (unsigned)dtype;
    return i < WEFT_DTYPE_COUNT ? wf_dtype_name((int)dtype) : "invalid";
}

size_t weft_dtype_size(weft_dtype dtype)
{
    unsigned i = (unsigned)dtype;
    return i > 0 && i < WEFT_DTYPE_COUNT ? wf_dtype_size((int)dtype) : 0;
}

weft_dtype weft_promote(weft_dtype a, weft_dtype b)
{
    if (weft_dtype_size(a) == 0 || weft_dtype_size(b) == 0) {
        return WEFT_DTYPE_DEFAULT;
    }
    return (weft_dtype)wf_dtype_promote((int)a, (int)b);
}

const char *weft_version(void)
{
    return WEFT_STR(WEFT_VERSION_MAJOR) "." WEFT_STR(WEFT_VERSION_MINOR) "." WEFT_STR(
        WEFT_VERSION_PATCH);
}

static weft_tensor scalar(uint32_t kind, uint64_t bits)
{
    return (weft_tensor){WF_SCALAR_SLOT, kind, bits};
}

weft_tensor weft_f(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return scalar(WF_SCALAR_FLOAT, bits);
}

weft_tensor weft_i(int64_t value)
{
    return scalar(WF_SCALAR_INT, (uint64_t)value);
}

weft_tensor weft_b(bool value)
{
    return scalar(WF_SCALAR_BOOL, value);
}

weft_status weft_set_num_threads(int n)
{
    if (wf_set_num_threads(n) != 0) {
        wf_api_error("set_num_threads", WEFT_EINVALID, "%d threads are asked for; 1 to 1024 can be",
                     n);
        return WEFT_EINVALID;
    }
    return WEFT_OK;
}

int weft_get_num_threads(void)
{
    return wf_num_threads();
}

void weft_shutdown(void)
{
    if (wf_tls_ctx) {
        wf_ctx_end_scopes(wf_tls_ctx);
    }
    wf_pool_shutdown();
    wf_alloc_trim();
}
