/*
 * tests/unit/test_dlpack.c -- DLPack capsules: addresses, strides, types, ownership, refusals.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "weft/weft.h"

typedef struct foreign {
    int deleted;
    float data[24];
    int64_t shape[2], strides[2];
    DLManagedTensorVersioned capsule;
    DLManagedTensor plain;
} foreign;

static void foreign_delete(DLManagedTensorVersioned *self)
{
    ((foreign *)self->manager_ctx)->deleted++;
}

static void foreign_delete_plain(DLManagedTensor *self)
{
    ((foreign *)self->manager_ctx)->deleted++;
}

/* A 3 x 4 matrix, transposed and 2 elements into its buffer. */
static void foreign_make(foreign *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 24; i++) {
        f->data[i] = (float)i;
    }
    f->shape[0] = 4;
    f->shape[1] = 3;
    f->strides[0] = 1;
    f->strides[1] = 4;
    DLTensor t = {.data = f->data,
                  .device = {1, 0},
                  .ndim = 2,
                  .dtype = {2, 32, 1},
                  .shape = f->shape,
                  .strides = f->strides,
                  .byte_offset = 8};
    f->capsule = (DLManagedTensorVersioned){
        .version = {1, 0}, .manager_ctx = f, .deleter = foreign_delete, .dl_tensor = t};
    f->plain = (DLManagedTensor){.dl_tensor = t, .manager_ctx = f, .deleter = foreign_delete_plain};
}

Test(dlpack, in)
{
    foreign f;
    for (int versioned = 0; versioned < 2; versioned++) {
        foreign_make(&f);
        weft_scope s = weft_scope_begin();
        weft_tensor t =
            versioned ? weft_from_dlpack(&f.capsule) : weft_from_dlpack_unversioned(&f.plain);
        cr_assert(weft_ok(t), "%s", weft_error_text(t));
        cr_assert_eq(weft_data(t), f.data + 2);
        cr_assert(weft_dim(t, 0) == 4 && weft_dim(t, 1) == 3 && weft_stride(t, 1) == 4);
        cr_assert_eq(weft_item_f64(weft_select(weft_select(t, 0, 3), 0, 2)), 13);
        cr_assert_eq(weft_fill_(t, -1), WEFT_OK);
        cr_assert(f.data[2] == -1 && f.data[13] == -1 && f.data[1] == 1 && f.data[14] == 14);
        weft_tensor view = weft_scope_give(s, weft_select(t, 0, 1));
        weft_scope_end(s);
        cr_assert_eq(f.deleted, 0, "a view is alive");
        weft_free(view);
        cr_assert_eq(f.deleted, 1);
    }
}

Test(dlpack, read_only_and_refusals)
{
    foreign f;
    foreign_make(&f);
    f.capsule.flags = 1;
    weft_tensor t = weft_from_dlpack(&f.capsule);
    cr_assert_eq(weft_fill_(t, 0), WEFT_EINVALID);
    cr_assert_null(weft_data_mut(t));
    cr_assert_not_null(weft_data(t));
    cr_assert_null(weft_to_dlpack_unversioned(t), "that form cannot say read-only");
    DLManagedTensorVersioned *again = weft_to_dlpack(t);
    cr_assert_eq(again->flags & 1u, 1);
    weft_free(t);
    cr_assert_eq(f.deleted, 0);
    again->deleter(again);
    cr_assert_eq(f.deleted, 1);

#define REFUSED(change, status)                                                                    \
    do {                                                                                           \
        foreign_make(&f);                                                                          \
        f.capsule.change;                                                                          \
        weft_tensor r = weft_from_dlpack(&f.capsule);                                              \
        cr_assert_eq(weft_error_status(r), status, #change ": %s", weft_error_text(r));            \
        cr_assert_eq(f.deleted, 0, #change ": the capsule stays with the caller");                 \
    } while (0)
    REFUSED(dl_tensor.device.device_type = 2, WEFT_EUNSUPPORTED);
    REFUSED(version.major = 2, WEFT_EUNSUPPORTED);
    REFUSED(dl_tensor.dtype.lanes = 4, WEFT_EUNSUPPORTED);
    REFUSED(dl_tensor.dtype.bits = 128, WEFT_EUNSUPPORTED);
    REFUSED(dl_tensor.dtype.code = 5, WEFT_EUNSUPPORTED);
    REFUSED(dl_tensor.ndim = 17, WEFT_ESHAPE);
    REFUSED(dl_tensor.shape = NULL, WEFT_ESHAPE);
    REFUSED(dl_tensor.shape[0] = -1, WEFT_ESHAPE);
    REFUSED(dl_tensor.strides[1] = INT64_MAX / 2, WEFT_ESHAPE);
    REFUSED(dl_tensor.byte_offset = 3, WEFT_EINVALID);
    REFUSED(dl_tensor.data = NULL, WEFT_EINVALID);
    cr_assert_eq(weft_error_status(weft_from_dlpack(NULL)), WEFT_EINVALID);
    cr_assert_eq(weft_error_status(weft_from_dlpack_unversioned(NULL)), WEFT_EINVALID);
    cr_assert_null(weft_to_dlpack(WEFT_NONE));
    cr_assert_null(weft_to_dlpack(weft_f(1)));
    for (int n = 1; n < 3; n++) {
        foreign_make(&f);
        wf_alloc_fail_after(n, 1);
        weft_tensor r = weft_from_dlpack(&f.capsule);
        wf_alloc_fail_after(0, 0);
        cr_assert(weft_ok(r) || (weft_error_status(r) == WEFT_ENOMEM && f.deleted == 0));
        weft_free(r);
    }
}

Test(dlpack, out_and_back)
{
    static const struct {
        weft_dtype dtype;
        uint8_t code, bits;
    } types[] = {{WEFT_BOOL, 6, 8}, {WEFT_U8, 1, 8},   {WEFT_I8, 0, 8},   {WEFT_I16, 0, 16},
                 {WEFT_I32, 0, 32}, {WEFT_I64, 0, 64}, {WEFT_F16, 2, 16}, {WEFT_BF16, 4, 16},
                 {WEFT_F32, 2, 32}, {WEFT_F64, 2, 64}};
    weft_memory_stats before, after;
    weft_memory_get_stats(&before);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor base = weft_cast(
            weft_reshape(weft_arange(0, 12, 1, WEFT_I64), weft_shape(3, 4)), types[i].dtype);
        weft_tensor t = weft_slice(base, 1, WEFT_OMIT, WEFT_OMIT, -2);
        const void *first = weft_data(t);
        DLManagedTensorVersioned *m = weft_to_dlpack(t);
        cr_assert_not_null(m);
        cr_assert(m->version.major == 1 && m->flags == 0);
        cr_assert(m->dl_tensor.data == first && m->dl_tensor.byte_offset == 0);
        cr_assert(m->dl_tensor.ndim == 2 && m->dl_tensor.shape[1] == 2);
        cr_assert(m->dl_tensor.strides[0] == 4 && m->dl_tensor.strides[1] == -2);
        cr_assert(m->dl_tensor.device.device_type == 1);
        cr_assert(m->dl_tensor.dtype.code == types[i].code &&
                  m->dl_tensor.dtype.bits == types[i].bits && m->dl_tensor.dtype.lanes == 1);
        weft_scope_end(s); /* the capsule alone holds the memory now */
        s = weft_scope_begin();
        weft_tensor r = weft_from_dlpack(m);
        cr_assert_eq(weft_dtype_of(r), types[i].dtype);
        cr_assert_eq(weft_data(r), first);
        double got[6], want[6] = {3, 1, 7, 5, 11, 9};
        cr_assert_eq(weft_to_array(r, got, 6, WEFT_F64), WEFT_OK);
        for (int k = 0; k < 6; k++) {
            cr_assert_eq(got[k], types[i].dtype == WEFT_BOOL ? 1 : want[k]);
        }
        weft_scope_end(s);
    }
    weft_scope s = weft_scope_begin();
    DLManagedTensor *plain = weft_to_dlpack_unversioned(weft_ones(weft_shape(), WEFT_F32));
    cr_assert(plain->dl_tensor.ndim == 0 && *(float *)plain->dl_tensor.data == 1);
    plain->deleter(plain);
    DLManagedTensorVersioned *empty = weft_to_dlpack(weft_zeros(weft_shape(0, 3), WEFT_F32));
    cr_assert(weft_ok(weft_from_dlpack(empty)));
    weft_scope_end(s);
    weft_memory_get_stats(&after);
    cr_assert_eq(after.live_bytes, before.live_bytes);
    cr_assert_eq(after.live_tensors, before.live_tensors);
}
