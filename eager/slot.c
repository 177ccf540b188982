/*
 * eager/slot.c -- what a slot says of its tensor: extents, strides, memory.
 *
 * Invariants: extents and strides of at most WF_INLINE_RANK axes lie in the slot, those of more in one block of its own;
 * nothing here looks at the slot's state, so the caller holds the slot.
 */
#include "eager/alloc.h"
#include "eager/tensor.h"

int wf_slot_shape(wf_slot *s, int rank, const int64_t *dims, const int64_t *strides)
{
    s->rank = (uint8_t)rank;
    if (rank > WF_INLINE_RANK) {
        s->ext = wf_malloc(2 * (size_t)rank * sizeof(int64_t));
        if (!s->ext) {
            s->rank = 0;
            return WEFT_ENOMEM;
        }
    }
    int64_t *d = wf_dims(s), *st = wf_strides(s);
    int64_t step = 1;
    for (int i = rank; i-- > 0;) {
        d[i] = dims[i];
        st[i] = strides ? strides[i] : step;
        step *= dims[i];
    }
    return 0;
}

int64_t wf_slot_numel(wf_slot *s)
{
    const int64_t *d = wf_dims(s);
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) {
        n *= d[i];
    }
    return n;
}

int wf_slot_is_contiguous(wf_slot *s)
{
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    int64_t expect = 1;
    for (int i = s->rank; i-- > 0;) {
        if (d[i] != 1 && st[i] != expect) {
            return wf_slot_numel(s) == 0;
        }
        expect *= d[i];
    }
    return 1;
}

int wf_slot_is_whole(wf_slot *s)
{
    return s->st && s->offset == 0 && wf_slot_is_contiguous(s) &&
           (size_t)wf_slot_numel(s) * wf_dtype_size(s->dtype) == s->st->nbytes;
}

void wf_slot_view(wf_slot *s, wf_view *v)
{
    v->data = wf_slot_data(s);
    v->dtype = s->dtype;
    v->rank = s->rank;
    v->device = s->st->device;
    const int64_t *d = wf_dims(s), *st = wf_strides(s);
    for (int i = 0; i < s->rank; i++) {
        v->dims[i] = d[i];
        v->strides[i] = st[i];
    }
}

void wf_slot_type(wf_slot *s, wf_type *t)
{
    t->dtype = s->dtype;
    t->rank = s->rank;
    const int64_t *d = wf_dims(s);
    for (int i = 0; i < s->rank; i++) { /* few: a call of memcpy takes longer */
        t->dims[i] = d[i];
    }
}
