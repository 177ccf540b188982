/*
 * eager/dlpack.c -- DLPack capsules in and out, without copies.
 *
 * Invariants: an exported capsule holds a reference on the storage, so the memory outlives all tensors
 * if it must; its deleter may run on any thread. An imported capsule is owned by the storage made for
 * it, whose release calls the capsule's deleter once; a failed import leaves the capsule to the caller.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* The ABI that other libraries are compiled against. */
_Static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40, "DLTensor");
_Static_assert(sizeof(DLManagedTensor) == 64, "DLManagedTensor");
_Static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32 &&
                   sizeof(DLManagedTensorVersioned) == 80,
               "DLManagedTensorVersioned");

enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };
enum { DL_CPU = 1, DL_CUDA = 2 };
#define DL_READ_ONLY 1u

static const DLDataType dl_types[WEFT_DTYPE_COUNT] = {
    [WEFT_BOOL] = {DL_BOOL, 8, 1},  [WEFT_U8] = {DL_UINT, 8, 1},
    [WEFT_I8] = {DL_INT, 8, 1},     [WEFT_I16] = {DL_INT, 16, 1},
    [WEFT_I32] = {DL_INT, 32, 1},   [WEFT_I64] = {DL_INT, 64, 1},
    [WEFT_F16] = {DL_FLOAT, 16, 1}, [WEFT_BF16] = {DL_BFLOAT, 16, 1},
    [WEFT_F32] = {DL_FLOAT, 32, 1}, [WEFT_F64] = {DL_FLOAT, 64, 1},
};

/* -- out ------------------------------------------------------------------------------------------------ */

typedef struct export
{
    union {
        DLManagedTensorVersioned versioned;
        DLManagedTensor plain;
    };
    wf_storage *st;
    int64_t dims[WF_MAX_RANK], strides[WF_MAX_RANK];
}
export;

static void drop(export *e)
{
    wf_storage_release(e->st);
    wf_mfree(e);
}

static void drop_versioned(DLManagedTensorVersioned *self)
{
    drop(self->manager_ctx);
}

static void drop_plain(DLManagedTensor *self)
{
    drop(self->manager_ctx);
}

/* The block of a capsule and the tensor's description in it; NULL with an error recorded. */
static export *export_new(weft_tensor t, bool versioned, DLTensor *d, bool *read_only)
{
    wf_ctx *c = wf_ctx_get();
    if (!c || wf_is_error(t)) {
        wf_error_again(c, t);
        return NULL;
    }
    wf_why why = {0};
    bool pinned = false;
    wf_slot *s = t.slot >= WF_ABSENT_SLOT ? NULL : wf_pin(c, t, &pinned, &why);
    export *e = NULL;
    if (!s) {
        if (!why.code) {
            wf_fail(&why, WEFT_EINVALID, "a scalar has no memory");
        }
    } else if (wf_need_value(c, s, true, "to_dlpack", &why) || wf_device_wait(s, &why)) {
        ; /* why says it */
    } else if (s->st->read_only && !versioned) {
        wf_fail(&why, WEFT_EINVALID, "the memory is read-only, which this form cannot say");
        wf_hint(&why, "use weft_to_dlpack, or a copy: weft_clone(x)");
    } else if (!(e = wf_malloc(sizeof *e))) {
        wf_fail(&why, WEFT_ENOMEM, "out of memory for the capsule");
    } else {
        memset(e, 0, sizeof *e);
        e->st = s->st;
        wf_storage_retain(s->st);
        memcpy(e->dims, wf_dims(s), (size_t)s->rank * sizeof *e->dims);
        memcpy(e->strides, wf_strides(s), (size_t)s->rank * sizeof *e->strides);
        int device = wf_slot_device(s);
        *d = (DLTensor){.data = wf_slot_data(s),
                        .device = {device ? DL_CUDA : DL_CPU, device ? device - 1 : 0},
                        .ndim = s->rank,
                        .dtype = dl_types[s->dtype],
                        .shape = e->dims,
                        .strides = e->strides};
        *read_only = s->st->read_only;
    }
    c->here = NULL;
    if (s && pinned) {
        wf_unpin(c, s);
    }
    if (!e) {
        wf_raise(c, "to_dlpack", 1, &t, &why);
    }
    return e;
}

DLManagedTensorVersioned *weft_to_dlpack(weft_tensor t)
{
    DLTensor d;
    bool read_only;
    export *e = export_new(t, true, &d, &read_only);
    if (!e) {
        return NULL;
    }
    e->versioned = (DLManagedTensorVersioned){.version = {1, 0},
                                              .manager_ctx = e,
                                              .deleter = drop_versioned,
                                              .flags = read_only ? DL_READ_ONLY : 0,
                                              .dl_tensor = d};
    return &e->versioned;
}

DLManagedTensor *weft_to_dlpack_unversioned(weft_tensor t)
{
    DLTensor d;
    bool read_only;
    export *e = export_new(t, false, &d, &read_only);
    if (!e) {
        return NULL;
    }
    e->plain = (DLManagedTensor){.dl_tensor = d, .manager_ctx = e, .deleter = drop_plain};
    return &e->plain;
}

/* -- in --------------------------------------------------------------------------------------------------- */

static void delete_versioned(void *arg)
{
    DLManagedTensorVersioned *m = arg;
    if (m->deleter) {
        m->deleter(m);
    }
}

static void delete_plain(void *arg)
{
    DLManagedTensor *m = arg;
    if (m->deleter) {
        m->deleter(m);
    }
}

static weft_dtype dtype_of(DLDataType t)
{
    for (int i = WEFT_BOOL; i < WEFT_DTYPE_COUNT; i++) {
        if (dl_types[i].code == t.code && dl_types[i].bits == t.bits && t.lanes == 1) {
            return (weft_dtype)i;
        }
    }
    return WEFT_DTYPE_DEFAULT;
}

static weft_tensor import(const DLTensor *d, bool read_only, void (*deleter)(void *), void *capsule)
{
    static const char op[] = "from_dlpack";
    int kind = (int)d->device.device_type;
    int device = kind == DL_CUDA ? wf_device_code(WEFT_CUDA(d->device.device_id)) : WF_DEVICE_HOST;
    if ((kind != DL_CPU && kind != DL_CUDA) || device < 0) {
        return wf_api_error(op, WEFT_EUNSUPPORTED,
                            "the data is on device %d of type %d; CPU memory (1) and a GPU's (2) "
                            "can be shared. Move it to the CPU first",
                            (int)d->device.device_id, kind);
    }
    const char *missing = wf_device_missing(device);
    if (missing) {
        return wf_api_error(op, WEFT_EUNSUPPORTED, "the data is on %s, which cannot be used: %s",
                            wf_device_code_name(device), missing);
    }
    weft_dtype dtype = dtype_of(d->dtype);
    if (dtype == WEFT_DTYPE_DEFAULT) {
        return wf_api_error(op, WEFT_EUNSUPPORTED,
                            "elements of code %d, %d bits and %d lanes have no counterpart here",
                            d->dtype.code, d->dtype.bits, d->dtype.lanes);
    }
    if (d->ndim < 0 || d->ndim > WF_MAX_RANK || (d->ndim > 0 && !d->shape)) {
        return wf_api_error(op, WEFT_ESHAPE, "%d axes are given; 0 to 16 can be", (int)d->ndim);
    }
    weft_blob_args b = {.data = d->data ? (char *)d->data + d->byte_offset : NULL,
                        .shape = weft_shape_from(d->ndim, d->shape),
                        .dtype = dtype,
                        .strides = d->strides,
                        .deleter = deleter,
                        .arg = capsule,
                        .read_only = read_only};
    return wf_api_blob(op, &b, device);
}

weft_tensor(weft_from_dlpack)(DLManagedTensorVersioned *capsule)
{
    if (!capsule) {
        return wf_api_null("from_dlpack", "the capsule");
    }
    if (capsule->version.major != 1) {
        return wf_api_error("from_dlpack", WEFT_EUNSUPPORTED,
                            "the capsule is of DLPack %u.%u; version 1 is understood",
                            capsule->version.major, capsule->version.minor);
    }
    return import(&capsule->dl_tensor, (capsule->flags & DL_READ_ONLY) != 0, delete_versioned,
                  capsule);
}

weft_tensor(weft_from_dlpack_unversioned)(DLManagedTensor *capsule)
{
    if (!capsule) {
        return wf_api_null("from_dlpack", "the capsule");
    }
    return import(&capsule->dl_tensor, false, delete_plain, capsule);
}
