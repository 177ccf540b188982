/*
 * eager/move.c -- rows that place elements: concat, pad, roll, tril/triu and scatters into views.
 *
 * Nearly all of it is wf_copy and wf_fill on sub-views of the result, so that every element of the
 * result is written once and the copy's blocking, casts and threads are shared. What adds
 * (strided_grad) starts from +0 and adds in row-major order of the operand; half types add in f32
 * and round once.
 */
#include "eager/dense.h"

static void fill_zero(const wf_view *v)
{
    static const uint64_t zero;
    if (wf_view_numel(v) > 0) {
        wf_fill(v, &zero);
    }
}

static void copy_some(const wf_view *dst, const wf_view *src)
{
    if (wf_view_numel(dst) > 0) {
        wf_copy(dst, src);
    }
}

WF_EXEC_DECL(concat)
{
    int axis = (int)e->attr->ints[0];
    int64_t at = 0;
    for (int i = 0; i < e->nsrc; i++) {
        wf_view part = wf_view_narrow(e->dst[0], axis, at, e->src[i].dims[axis]);
        copy_some(&part, &e->src[i]);
        at += e->src[i].dims[axis];
    }
    return 0;
}

/* An attribute scalar as one element of dtype dt (8 bytes are enough for any). */
static void store_scalar(double value, int dt, void *out)
{
    static const int64_t one = 1;
    wf_view from = wf_view_dense(&value, WEFT_F64, 1, &one);
    wf_view to = wf_view_dense(out, dt, 1, &one);
    wf_copy(&to, &from);
}

WF_EXEC_DECL(pad)
{
    wf_view in = e->src[0], region = e->dst[0];
    uint64_t value;
    store_scalar(e->attr->flt[0], region.dtype, &value);
    /* Axis by axis: fill what lies before and after, then shrink the region to what lies between. */
    for (int i = 0; i < region.rank; i++) {
        int64_t n = region.dims[i], before = e->attr->dyn[2 * i];
        int64_t lo = before < 0 ? 0 : before < n ? before : n;
        int64_t hi = before + in.dims[i];
        hi = hi < lo ? lo : hi < n ? hi : n;
        wf_view head = wf_view_narrow(region, i, 0, lo);
        wf_view tail = wf_view_narrow(region, i, hi, n - hi);
        if (wf_view_numel(&head) > 0) {
            wf_fill(&head, &value);
        }
        if (wf_view_numel(&tail) > 0) {
            wf_fill(&tail, &value);
        }
        region = wf_view_narrow(region, i, lo, hi - lo);
        in = wf_view_narrow(in, i, hi > lo ? lo - before : 0, hi - lo);
    }
    copy_some(&region, &in);
    return 0;
}

/* Rolls the axes from k on: each axis splits into two blocks that change places. */
static void roll_axes(const wf_attr *attr, int k, wf_view dst, wf_view src)
{
    if (k == attr->n_ints) {
        wf_copy(&dst, &src);
        return;
    }
    int axis = (int)attr->ints[k];
    int64_t n = src.dims[axis];
    int64_t shift = attr->dyn[k] % n;
    shift += shift < 0 ? n : 0;
    roll_axes(attr, k + 1, wf_view_narrow(dst, axis, shift, n - shift),
              wf_view_narrow(src, axis, 0, n - shift));
    if (shift > 0) {
        roll_axes(attr, k + 1, wf_view_narrow(dst, axis, 0, shift),
                  wf_view_narrow(src, axis, n - shift, shift));
    }
}

WF_EXEC_DECL(roll)
{
    if (wf_view_numel(&e->dst[0]) > 0) {
        roll_axes(e->attr, 0, e->dst[0], e->src[0]);
    }
    return 0;
}

/* -- tril, triu ------------------------------------------------------------------------------------ */
typedef struct tri_args {
    const wf_view *src;
    char *dst;
    int64_t rows, cols, diagonal;
    size_t size;
    int upper;
} tri_args;

static void tri_rows(void *arg, int64_t begin, int64_t end)
{
    const tri_args *a = arg;
    const wf_view *s = a->src;
    int64_t stride = s->strides[s->rank - 1], cols = a->cols;
    int64_t width = cols * (int64_t)a->size;
    for (int64_t r = begin; r < end; r++) {
        const char *in = (const char *)s->data +
                         wf_offset_of(r, s->rank - 1, s->dims, s->strides) * (int64_t)a->size;
        char *out = a->dst + r * width;
        /* Columns [0, split) are the lower side: column - row <= diagonal (lower) or < (upper). */
        int64_t row = r % a->rows, split;
        if (a->diagonal >= cols) {
            split = cols;
        } else if (a->diagonal < -a->rows) {
            split = 0;
        } else {
            split = row + a->diagonal + (a->upper ? 0 : 1);
            split = split < 0 ? 0 : split > cols ? cols : split;
        }
        int64_t keep = a->upper ? split : 0, n = a->upper ? cols - split : split;
        memset(out, 0, (size_t)(keep * (int64_t)a->size));
        if (in != out) {
            wf_gather_row(out + keep * (int64_t)a->size, in + keep * stride * (int64_t)a->size, n,
                          stride, a->size);
        }
        memset(out + (keep + n) * (int64_t)a->size, 0,
               (size_t)((cols - keep - n) * (int64_t)a->size));
    }
}

WF_EXEC_DECL(tri)
{
    const wf_view *s = &e->src[0];
    int64_t n = wf_view_numel(s);
    if (n > 0) {
        tri_args a = {.src = s,
                      .dst = e->dst[0].data,
                      .rows = s->dims[s->rank - 2],
                      .cols = s->dims[s->rank - 1],
                      .diagonal = e->attr->dyn[0],
                      .size = wf_dtype_size(s->dtype),
                      .upper = e->op == WF_OP_TRIU};
        if (s->strides[s->rank - 1] !=
            1) { /* rows of whose elements none are neighbours: turned first */
            wf_copy(&e->dst[0], s);
            a.src = &e->dst[0];
        }
        wf_parallel_for(n / a.cols, wf_row_grain(a.cols * (int64_t)a.size), tri_rows, &a);
    }
    return 0;
}

/* -- writes through a map -------------------------------------------------------------------------- */
WF_EXEC_DECL(slice_grad)
{
    int axis = (int)e->attr->ints[0];
    int64_t start = e->attr->dyn[0], step = e->attr->dyn[2];
    wf_view dst = e->dst[0];
    int64_t n = e->src[0].dims[axis];
    if (step == 1) {
        wf_view head = wf_view_narrow(dst, axis, 0, start);
        wf_view tail = wf_view_narrow(dst, axis, start + n, dst.dims[axis] - start - n);
        fill_zero(&head);
        fill_zero(&tail);
    } else {
        fill_zero(&dst);
    }
    if (n > 0) {
        wf_view part = wf_view_narrow(dst, axis, start, n);
        part.strides[axis] *= step;
        copy_some(&part, &e->src[0]);
    }
    return 0;
}

/* Adds the operand into acc (+0 before) through strides, in row-major order of the operand. */
#define ADD_THROUGH(suffix, type)                                                                  \
    static void add_through_##suffix(type *acc, const type *src, int rank, const int64_t *dims,    \
                                     const int64_t *strides)                                       \
    {                                                                                              \
        int64_t n = rank > 0 ? dims[rank - 1] : 1, step = rank > 0 ? strides[rank - 1] : 0;        \
        int64_t rows = 1;                                                                          \
        for (int i = 0; i + 1 < rank; i++) {                                                       \
            rows *= dims[i];                                                                       \
        }                                                                                          \
        for (int64_t r = 0; r < rows; r++, src += n) {                                             \
            type *out = acc + wf_offset_of(r, rank - 1, dims, strides);                            \
            for (int64_t i = 0; i < n; i++) {                                                      \
                out[i * step] = (type)(out[i * step] + src[i]);                                    \
            }                                                                                      \
        }                                                                                          \
    }
ADD_THROUGH(f32, float)
ADD_THROUGH(f64, double)
ADD_THROUGH(u8, uint8_t)
ADD_THROUGH(u16, uint16_t)
ADD_THROUGH(u32, uint32_t)
ADD_THROUGH(u64, uint64_t)
#undef ADD_THROUGH

static void add_through(int dt, void *acc, const void *src, int rank, const int64_t *dims,
                        const int64_t *strides)
{
    if (dt == WEFT_F32) {
        add_through_f32(acc, src, rank, dims, strides);
    } else if (dt == WEFT_F64) {
        add_through_f64(acc, src, rank, dims, strides);
    } else {
        switch (wf_dtype_size(dt)) { /* two's complement: signed types wrap like unsigned ones */
        case 1:
            add_through_u8(acc, src, rank, dims, strides);
            break;
        case 2:
            add_through_u16(acc, src, rank, dims, strides);
            break;
        case 4:
            add_through_u32(acc, src, rank, dims, strides);
            break;
        default:
            add_through_u64(acc, src, rank, dims, strides);
            break;
        }
    }
}

WF_EXEC_DECL(strided_grad)
{
    wf_view *dst = &e->dst[0];
    const wf_view *src = &e->src[0];
    const int64_t *strides = e->attr->dyn + dst->rank;
    int64_t offset = strides[src->rank], n = wf_view_numel(dst);
    int dt = wf_dtype_compute(dst->dtype);
    if (wf_view_numel(src) == 0) {
        fill_zero(dst);
        return 0;
    }
    wf_dense in;
    int code = wf_dense_of(src, dt, &in, e->why);
    if (code) {
        return code;
    }
    wf_view acc = *dst;
    size_t bytes = 0;
    if (dt != dst->dtype) {
        bytes = wf_scratch_bytes(n, wf_dtype_size(dt));
        acc.dtype = (uint8_t)dt;
        acc.data = bytes ? wf_alloc(bytes) : NULL;
        if (!acc.data) {
            wf_dense_free(&in);
            return wf_no_memory(e->why, bytes);
        }
    }
    fill_zero(&acc);
    add_through(dt, (char *)acc.data + offset * (int64_t)wf_dtype_size(dt), in.data, src->rank,
                src->dims, strides);
    if (dt != dst->dtype) {
        wf_copy(dst, &acc);
        wf_free(acc.data, bytes);
    }
    wf_dense_free(&in);
    return 0;
}

WF_EXEC_DECL(update)
{
    const wf_view *value = &e->src[1];
    int rank = value->rank;
    size_t size = wf_dtype_size(value->dtype);
    copy_some(&e->dst[0], &e->src[0]);
    wf_view map = {.dtype = value->dtype, .rank = value->rank};
    map.data = (char *)e->dst[0].data + e->attr->dyn[2 * rank] * (int64_t)size;
    memcpy(map.dims, value->dims, (size_t)rank * sizeof map.dims[0]);
    memcpy(map.strides, e->attr->dyn + rank, (size_t)rank * sizeof map.strides[0]);
    if (wf_map_is_injective(rank, map.dims, map.strides)) {
        copy_some(&map, value);
        return 0;
    }
    /* Elements named twice: the last in row-major order stays, so one element after the other. */
    int64_t n = wf_view_numel(value);
    for (int64_t i = 0; i < n; i++) {
        char *to = (char *)map.data + wf_offset_of(i, rank, map.dims, map.strides) * (int64_t)size;
        const char *from = (const char *)value->data +
                           wf_offset_of(i, rank, value->dims, value->strides) * (int64_t)size;
        memcpy(to, from, size);
    }
    return 0;
}
