/*
 * eager/api_tensor.c -- tensors on given memory, reading elements, queries (weft/tensor.h).
 *
 * Invariants: reading never changes a tensor; writing through a pointer counts as a write when the
 * pointer is handed out; a value that a running trace has yet to compute is computed first.
 */
#include <math.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"
#include "eager/layout.h"
#include "eager/pool.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* -- looking at one tensor ------------------------------------------------------------------------------- */

typedef struct look {
    wf_ctx *c;
    wf_slot *s;
    bool pinned;
    const char *site; /* of the caller, where a reading function said it (weft_here); or NULL */
} look;

static void raise_at(const look *l, const char *op, weft_tensor t, const wf_why *why)
{
    weft_tensor error = wf_raise(l->c, op, 1, &t, why);
    if (l->site) {
        weft_sited(l->site, error);
    }
}

/* False: an error is recorded (or was when t was made). */
static bool open_at(look *l, const char *op, weft_tensor t, bool reads)
{
    l->c = wf_ctx_get();
    l->site = reads && l->c ? l->c->here : NULL;
    if (!l->c || wf_is_error(t)) {
        wf_error_again(l->c, t);
        if (reads) {
            wf_error_told(l->c, t, true);
        }
        return false;
    }
    wf_why why = {0};
    if (wf_is_scalar(t) || wf_is_absent(t)) {
        wf_fail(&why, WEFT_EINVALID, "a scalar has no memory");
        wf_hint(&why, "make a tensor of it: weft_scalar");
        l->s = NULL;
    } else {
        l->s = wf_pin(l->c, t, &l->pinned, &why);
    }
    if (!l->s) {
        l->c->here = NULL;
        raise_at(l, op, t, &why);
    } else {
        wf_note_asked(l->c, l->s);
    }
    return l->s != NULL;
}

static bool look_open(look *l, const char *op, weft_tensor t)
{
    return open_at(l, op, t, false);
}

static void look_close(look *l)
{
    if (l->pinned) {
        wf_unpin(l->c, l->s);
    }
}

/* The same for reading elements (write: through a pointer that may write them). */
static bool read_open(look *l, const char *op, weft_tensor t, bool write)
{
    if (!open_at(l, op, t, true)) {
        return false;
    }
    wf_why why = {0};
    int rc = wf_need_value(l->c, l->s, write, op, &why);
    l->c->here = NULL;
    if (rc) {
        look_close(l);
        raise_at(l, op, t, &why);
        wf_error_told(l->c, wf_api_last_error(), true);
    }
    return rc == 0;
}

/* -- tensors on given memory ------------------------------------------------------------------------------ */

/* Checks shape and dtype (made f32 if DEFAULT); fills type. */
static bool memory_type(const char *op, const weft_shape *shape, weft_dtype dtype, wf_type *type,
                        weft_tensor *error)
{
    if (!wf_api_shape_ok(op, shape)) {
        *error = wf_api_last_error();
        return false;
    }
    if (!wf_api_dtype_ok(dtype)) {
        *error = wf_api_error(op, WEFT_EDTYPE, "%d is not an element type; use WEFT_F32, ...",
                              (int)dtype);
        return false;
    }
    type->dtype = (uint8_t)(dtype ? dtype : WEFT_F32);
    type->rank = (uint8_t)shape->n;
    memcpy(type->dims, shape->v, sizeof type->dims);
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] < 0) {
            *error = wf_api_error(op, WEFT_ESHAPE, "extent %lld of axis %d is negative",
                                  (long long)type->dims[i], i);
            return false;
        }
    }
    if (wf_type_numel(type) < 0) {
        *error = wf_api_error(op, WEFT_ENOMEM, "the size of the shape overflows 64 bits");
        return false;
    }
    return true;
}

/* A handle on st, which the call takes over. */
static weft_tensor wrap(wf_storage *st, void *data, const wf_type *t, const int64_t *strides)
{
    wf_ctx *c = wf_ctx_get();
    weft_tensor h = c ? wf_wrap_view(c, st, data, t->dtype, t->rank, t->dims, strides)
                      : (weft_tensor){0, 0, UINT64_MAX};
    if (h.slot == 0) {
        st->deleter = NULL; /* the caller keeps the memory when the call fails */
    }
    wf_storage_release(st);
    return h;
}

/* The elements at data on the thread's default device. */
static weft_tensor upload(wf_ctx *c, const void *data, const wf_type *t, size_t bytes)
{
    wf_why why = {0};
    wf_storage *st = wf_storage_new_on(c->device, bytes, &why);
    wf_view d, s;
    if (st) {
        wf_view_of_type(&d, t, st->data);
        d.device = c->device;
        s = d;
        s.device = WF_DEVICE_HOST;
        memcpy(&s.data, &data, sizeof data); /* only read */
        if (!wf_storage_use(st, true, &why) && !wf_device_write(c->device, &d, &s, &why)) {
            return wrap(st, st->data, t, NULL);
        }
        wf_storage_release(st);
    }
    return why.code ? wf_raise(c, "from_data", 0, NULL, &why)
                    : wf_api_error("from_data", WEFT_ENOMEM, "out of memory for a handle");
}

weft_tensor wf_api_new(wf_ctx *c, const wf_type *t, void **data)
{
    const int64_t n = wf_type_numel(t);
    int64_t bytes;
    const bool fits =
        n >= 0 && !__builtin_mul_overflow(n, (int64_t)wf_dtype_size(t->dtype), &bytes);
    wf_storage *st = fits ? wf_storage_new((size_t)bytes) : NULL;
    if (!st) {
        return WEFT_NONE;
    }
    *data = st->data;
    const weft_tensor h = wf_wrap_view(c, st, st->data, t->dtype, t->rank, t->dims, NULL);
    wf_storage_release(st);
    return h;
}

weft_tensor(weft_from_data)(const void *data, weft_shape shape, weft_dtype dtype)
{
    wf_type t;
    weft_tensor error;
    if (!memory_type("from_data", &shape, dtype, &t, &error)) {
        return error;
    }
    size_t bytes = (size_t)wf_type_numel(&t) * wf_dtype_size(t.dtype);
    if (!data && bytes) {
        return wf_api_null("from_data", "the data");
    }
    wf_ctx *c = wf_ctx_get();
    if (c && c->device != WF_DEVICE_HOST) {
        return upload(c, data, &t, bytes);
    }
    wf_storage *st = wf_storage_new(bytes);
    if (!st) {
        return wf_api_error("from_data", WEFT_ENOMEM,
                            "out of memory for %zu bytes; free tensors, end scopes sooner, or call "
                            "weft_memory_trim",
                            bytes);
    }
    if (bytes) {
        memcpy(st->data, data, bytes);
    }
    return wrap(st, st->data, &t, NULL);
}

/* Offsets in elements of the lowest and one past the highest element; false if they overflow. */
static bool reach(const wf_type *t, const int64_t *strides, int64_t *lo, int64_t *hi)
{
    const int names = wf_map_reach(t->rank, t->dims, strides, lo, hi);
    int64_t size = (int64_t)wf_dtype_size(t->dtype), n, bytes;
    return names >= 0 && !__builtin_add_overflow(*hi, names, hi) &&
           !__builtin_sub_overflow(*hi, *lo, &n) && !__builtin_mul_overflow(n, size, &bytes) &&
           !__builtin_mul_overflow(*lo, size, &bytes);
}

weft_tensor wf_api_blob(const char *op, const weft_blob_args *args, int device)
{
    wf_type t;
    weft_tensor error;
    int64_t strides[WF_MAX_RANK], lo, hi;
    if (!memory_type(op, &args->shape, args->dtype, &t, &error)) {
        return error;
    }
    int64_t size = (int64_t)wf_dtype_size(t.dtype), numel = wf_type_numel(&t);
    if (!args->data && numel) {
        return wf_api_null(op, "the data");
    }
    if ((uintptr_t)args->data % (uintptr_t)size) {
        return wf_api_error(op, WEFT_EINVALID,
                            "the address is not a multiple of the %lld bytes of a %s; copy with "
                            "weft_from_data",
                            (long long)size, wf_dtype_name(t.dtype));
    }
    int64_t step = 1;
    for (int i = t.rank; i-- > 0;) {
        strides[i] = args->strides ? args->strides[i] : step;
        step *= t.dims[i] ? t.dims[i] : 1; /* a zero extent elsewhere keeps this from mattering */
    }
    if (!reach(&t, strides, &lo, &hi)) {
        return wf_api_error(op, WEFT_ESHAPE, "extents and strides overflow 64 bits");
    }
    uintptr_t at = (uintptr_t)args->data, first = at, last;
    if (numel && (__builtin_add_overflow(at, lo * size, &first) ||
                  __builtin_add_overflow(at, hi * size, &last))) {
        return wf_api_error(op, WEFT_ESHAPE, "extents and strides reach outside the address space");
    }
    char *base = (char *)first;
    wf_storage *st = wf_storage_wrap(base, (size_t)((hi - lo) * size), args->deleter, args->arg);
    if (!st) {
        return wf_api_error(op, WEFT_ENOMEM, "out of memory for a handle");
    }
    st->read_only = args->read_only;
    st->device = (uint8_t)device;
    wf_why why = {0};
    if (device != WF_DEVICE_HOST && wf_device_adopt(st, &why)) {
        st->deleter = NULL; /* the caller keeps the memory */
        wf_storage_release(st);
        return wf_raise(wf_ctx_get(), op, 0, NULL, &why);
    }
    return wrap(st, args->data, &t, strides);
}

weft_tensor(weft_from_blob)(const weft_blob_args *args)
{
    return args ? wf_api_blob("from_blob", args, WF_DEVICE_HOST)
                : wf_api_null("from_blob", "the argument struct");
}

/* -- reading ------------------------------------------------------------------------------------------------- */

static const void *address(const char *op, weft_tensor t)
{
    look l;
    if (!read_open(&l, op, t, false)) {
        return NULL;
    }
    wf_why why = {0};
    const void *p = wf_device_refuse_read(l.s, &why) ? NULL : wf_slot_data(l.s);
    look_close(&l);
    if (why.code) {
        raise_at(&l, op, t, &why);
    }
    return p;
}

const void *weft_data(weft_tensor t)
{
    return address("data", t);
}

/* A function that reads several tensors for one call says where its caller stands at each of them. */
const void *wf_api_read(const char *op, weft_tensor t)
{
    wf_ctx *c = wf_ctx_get();
    const char *here = c ? c->here : NULL;
    const void *p = address(op, t);
    weft_here(here);
    return p;
}

const void *wf_api_data(weft_tensor t)
{
    return wf_api_read("data", t);
}

void *weft_data_mut(weft_tensor t)
{
    look l;
    if (!read_open(&l, "data_mut", t, true)) {
        return NULL;
    }
    wf_why why = {0};
    void *p = NULL;
    if (wf_device_refuse_read(l.s, &why)) {
        wf_hint(&why, "write there with weft_copy_(x, value)");
    } else if (l.s->st->read_only) {
        wf_fail(&why, WEFT_EINVALID, "the memory is read-only");
        wf_hint(&why, "write to a copy: weft_clone(x)");
    } else if (wf_grad_enabled(l.c) && wf_slot_tracked(l.s)) {
        wf_fail(&why, WEFT_EGRAD, "a gradient is recorded for the value");
        wf_hint(&why, "use weft_copy_, or write between weft_no_grad_begin and weft_no_grad_end");
    } else {
        atomic_fetch_add_explicit(&l.s->st->version, 1, memory_order_relaxed);
        l.s->st->write_op = WF_WRITE_DATA_MUT;
        l.s->st->write_site = l.site;
        p = wf_slot_data(l.s);
    }
    look_close(&l);
    if (!p && why.code) {
        raise_at(&l, "data_mut", t, &why);
    }
    return p;
}

double wf_element_f64(int dtype, const void *p)
{
    switch (dtype) {
    case WEFT_BOOL:
    case WEFT_U8:
        return *(const uint8_t *)p;
    case WEFT_I8:
        return *(const int8_t *)p;
    case WEFT_I16:
        return *(const int16_t *)p;
    case WEFT_I32:
        return *(const int32_t *)p;
    case WEFT_I64:
        return (double)*(const int64_t *)p;
    case WEFT_F16:
        return (double)wf_f32_of_f16(*(const uint16_t *)p);
    case WEFT_BF16:
        return (double)wf_f32_of_bf16(*(const uint16_t *)p);
    case WEFT_F32:
        return (double)*(const float *)p;
    default:
        return *(const double *)p;
    }
}

typedef struct element {
    int dtype;
    const void *at;
} element;

static double f64_of(const void *arg)
{
    const element *e = arg;
    return wf_element_f64(e->dtype, e->at);
}

/* The one element of t: as an integer (exact) when it has such a type, else as a double. */
static bool item(const char *op, weft_tensor t, bool *whole, int64_t *i, double *d)
{
    if (wf_is_scalar(t)) {
        *whole = t.context != WF_SCALAR_FLOAT;
        *i = (int64_t)t.serial;
        memcpy(d, &t.serial, sizeof *d);
        return true;
    }
    look l;
    if (!read_open(&l, op, t, false)) {
        return false;
    }
    wf_slot *s = l.s;
    bool one = wf_slot_numel(s) == 1;
    if (one) {
        *whole = wf_dtype_kind(s->dtype) < 2;
        int64_t here;
        const void *at = wf_slot_data(s);
        if (__builtin_expect(s->st->device != WF_DEVICE_HOST, 0)) {
            wf_why why = {0};
            wf_view from, to = {.data = &here, .dtype = s->dtype};
            wf_slot_view(s, &from);
            from.rank = 0;
            if (wf_storage_use(s->st, false, &why) ||
                wf_device_read(from.device, &to, &from, &why)) {
                raise_at(&l, op, t, &why);
                look_close(&l);
                return false;
            }
            at = &here;
        }
        /* whatever the caller has set, such as subnormals that count as zeros */
        *d = wf_fpenv_is_plain() ? wf_element_f64(s->dtype, at)
                                 : wf_plainly(f64_of, &(element){s->dtype, at});
        *i = s->dtype == WEFT_I64 ? *(const int64_t *)at : wf_f64_to_i64(*d);
    } else {
        wf_why why = {0};
        wf_fail(&why, WEFT_ESHAPE, "a tensor of %lld elements is not one item",
                (long long)wf_slot_numel(s));
        wf_hint(&why, "reduce or select first, or read them all: weft_to_array");
        raise_at(&l, op, t, &why);
    }
    look_close(&l);
    return one;
}

double weft_item_f64(weft_tensor t)
{
    bool whole;
    int64_t i;
    double d;
    if (!item("item", t, &whole, &i, &d)) {
        return NAN;
    }
    return whole ? (double)i : d;
}

int64_t weft_item_i64(weft_tensor t)
{
    bool whole;
    int64_t i;
    double d;
    if (!item("item", t, &whole, &i, &d)) {
        return INT64_MIN;
    }
    return whole ? i : wf_f64_to_i64(d);
}

static weft_status status_of(weft_tensor t)
{
    return wf_is_error(t) ? weft_error_status(t) : weft_last_status();
}

weft_status(weft_item)(weft_tensor t, double *out)
{
    bool whole;
    int64_t i;
    double d;
    if (!out) {
        return weft_error_status(wf_api_null("item", "the result"));
    }
    if (!item("item", t, &whole, &i, &d)) {
        return status_of(t);
    }
    *out = whole ? (double)i : d;
    return WEFT_OK;
}

weft_status(weft_to_array)(weft_tensor t, void *dst, int64_t n, weft_dtype dtype)
{
    look l;
    if (!wf_api_dtype_ok(dtype)) {
        return weft_error_status(
            wf_api_error("to_array", WEFT_EDTYPE, "%d is not an element type", (int)dtype));
    }
    if (!dst && n != 0) {
        return weft_error_status(wf_api_null("to_array", "the array"));
    }
    if (!read_open(&l, "to_array", t, false)) {
        return status_of(t);
    }
    wf_view s, d;
    int64_t numel = wf_slot_numel(l.s);
    int rc = 0;
    if (numel != n) {
        wf_why why = {0};
        wf_fail(&why, WEFT_ESHAPE, "the array has room for %lld elements, the tensor has %lld",
                (long long)n, (long long)numel);
        wf_hint(&why, "weft_numel tells how many there are");
        rc = wf_raise_status(l.c, "to_array", 1, &t, &why);
    } else if (n > 0) {
        wf_slot_view(l.s, &s);
        d = s;
        d.data = dst;
        d.dtype = (uint8_t)(dtype ? (int)dtype : s.dtype);
        d.device = WF_DEVICE_HOST;
        wf_view_make_dense(&d);
        wf_why why = {0};
        rc = wf_storage_use(l.s->st, false, &why);
        const unsigned mode = wf_fpenv_enter();
        rc = rc ? rc : wf_device_move(&d, &s, &why);
        wf_fpenv_leave(mode);
        rc = rc ? wf_raise_status(l.c, "to_array", 1, &t, &why) : 0;
    }
    look_close(&l);
    return (weft_status)rc;
}

/* -- queries ---------------------------------------------------------------------------------------------------- */

int weft_rank(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "rank", t) ? a.type.rank : -1;
}

weft_shape weft_shape_of(weft_tensor t)
{
    wf_arg a;
    if (wf_arg_open(&a, "shape_of", t)) {
        return weft_shape_from(a.type.rank, a.type.dims);
    }
    return weft_no_axes_();
}

int64_t weft_dim(weft_tensor t, int axis)
{
    wf_arg a;
    int64_t i;
    return wf_arg_open(&a, "dim", t) && wf_arg_axis(&a, a.type.rank, axis, &i) ? a.type.dims[i]
                                                                               : -1;
}

int64_t weft_stride(weft_tensor t, int axis)
{
    wf_arg a;
    int64_t i;
    return wf_arg_open(&a, "stride", t) && wf_arg_axis(&a, a.type.rank, axis, &i) ? a.strides[i]
                                                                                  : 0;
}

weft_dtype weft_dtype_of(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "dtype_of", t) ? (weft_dtype)a.type.dtype : WEFT_DTYPE_DEFAULT;
}

int64_t weft_numel(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "numel", t) ? wf_type_numel(&a.type) : -1;
}

int64_t weft_nbytes(weft_tensor t)
{
    wf_arg a;
    return wf_arg_open(&a, "nbytes", t)
               ? wf_type_numel(&a.type) * (int64_t)wf_dtype_size(a.type.dtype)
               : -1;
}

int64_t weft_offset(weft_tensor t)
{
    look l;
    if (!look_open(&l, "offset", t)) {
        return -1;
    }
    int64_t bytes = l.s->offset;
    int64_t size = (int64_t)wf_dtype_size(l.s->dtype);
    look_close(&l);
    return bytes / size;
}

bool weft_is_contiguous(weft_tensor t)
{
    look l;
    if (!look_open(&l, "is_contiguous", t)) {
        return false;
    }
    bool yes = wf_slot_is_contiguous(l.s) != 0;
    look_close(&l);
    return yes;
}

bool weft_is_channels_last(weft_tensor t)
{
    look l;
    if (!look_open(&l, "is_channels_last", t)) {
        return false;
    }
    const bool yes = wf_slot_lies_last(l.s);
    look_close(&l);
    return yes;
}

uint32_t weft_write_count(weft_tensor t)
{
    look l;
    if (!look_open(&l, "write_count", t)) {
        return 0;
    }
    uint32_t v = l.s->st ? atomic_load_explicit(&l.s->st->version, memory_order_relaxed) : 0;
    look_close(&l);
    return v;
}

bool weft_shares_memory(weft_tensor a, weft_tensor b)
{
    look la, lb;
    if (!look_open(&la, "shares_memory", a)) {
        return false;
    }
    bool yes = false;
    if (look_open(&lb, "shares_memory", b)) {
        yes = la.s->st && lb.s->st &&
              (la.s->st == lb.s->st || wf_storage_overlap(la.s->st, lb.s->st));
        look_close(&lb);
    }
    look_close(&la);
    return yes;
}

weft_status(weft_set_name)(weft_tensor t, const char *name)
{
    look l;
    if (!look_open(&l, "set_name", t)) {
        return status_of(t);
    }
    int rc = 0;
    wf_meta *m = wf_slot_meta(l.s);
    char *copy = name ? wf_strdup(name) : NULL;
    if (!m || (name && !copy)) {
        wf_why why = {0};
        wf_fail(&why, WEFT_ENOMEM, "out of memory for a name");
        rc = wf_raise_status(l.c, "set_name", 1, &t, &why);
        wf_mfree(copy);
    } else {
        wf_meta_lock(m);
        char *old = m->name;
        m->name = copy;
        wf_meta_unlock(m);
        wf_mfree(old);
    }
    look_close(&l);
    return (weft_status)rc;
}

const char *weft_name(weft_tensor t)
{
    look l;
    if (!look_open(&l, "name", t)) {
        return "";
    }
    const char *name = l.s->meta && l.s->meta->name ? l.s->meta->name : "";
    look_close(&l);
    return name;
}

const char *weft_site(weft_tensor t)
{
    look l;
    if (!look_open(&l, "site", t)) {
        return "";
    }
    const char *site = l.s->site ? l.s->site : "";
    look_close(&l);
    return site;
}
