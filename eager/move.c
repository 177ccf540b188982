/*
 * eager/move.c -- rows that place elements: concat, pad, pad_mode, roll, tril/triu and scatters into views.
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

/* -- padding by elements of the operand: blocks of the leading axes that have none, each in one piece ------------------- */
typedef struct pad_args {
    const wf_view *x; /* without padding: the operand, or its gradient */
    char *padded;
    const int64_t *by;
    int64_t mode, blocks;
    int64_t step[WF_MAX_RANK]; /* of an axis in what is padded, in bytes */
    size_t size;
    int first;    /* axis with padding */
    bool stepped; /* the blocks' middles are there */
} pad_args;

enum { FEW_BLOCKS = 16 };

/* Ends of a row outwards from the middle: where the first comes from, and how far it is to the next one. */
typedef struct pad_ends {
    int64_t head, head_step, tail, tail_step;
} pad_ends;

static pad_ends ends_of(int64_t mode, int64_t n)
{
    return mode == WF_PAD_REFLECT    ? (pad_ends){1, 1, n - 2, -1}
           : mode == WF_PAD_CIRCULAR ? (pad_ends){n - 1, -1, 0, 1}
                                     : (pad_ends){0, 0, n - 1, 0};
}

/* `rows` rows of n elements each, which lie `pitch` elements apart, with what is before and behind them. */
#define PAD_ROWS(type)                                                                             \
    static void pad_rows_##type(type *out, const type *in, int64_t pitch, int64_t rows,            \
                                const int64_t *by, int64_t n, pad_ends e)                          \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r++, out += by[0] + n + by[1], in += pitch) {                \
            type *x = out + by[0];                                                                 \
            memcpy(x, in, (size_t)n * sizeof *x);                                                  \
            for (int64_t j = 0; j < by[0]; j++) {                                                  \
                x[-1 - j] = x[e.head + j * e.head_step];                                           \
            }                                                                                      \
            for (int64_t j = 0; j < by[1]; j++) {                                                  \
                x[n + j] = x[e.tail + j * e.tail_step];                                            \
            }                                                                                      \
        }                                                                                          \
    }
PAD_ROWS(uint8_t)
PAD_ROWS(uint16_t)
PAD_ROWS(uint32_t)
PAD_ROWS(uint64_t)
#undef PAD_ROWS

/* Rows along the last axis, whose elements are neighbours. */
static void pad_rows(const pad_args *a, char *out, const char *in, int64_t pitch, int64_t rows)
{
    const int axis = a->x->rank - 1;
    const int64_t n = a->x->dims[axis], *by = a->by + (int64_t)2 * axis;
    const pad_ends e = ends_of(a->mode, n);
#define ROWS(type)                                                                                 \
    pad_rows_##type((type *)(void *)out, (const type *)(const void *)in, pitch, rows, by, n, e);
    WF_BY_SIZE(a->size, ROWS)
#undef ROWS
}

/* What is before and behind a middle that is padded along the other axes: copies of it. */
static void pad_outer(const pad_args *a, int axis, char *out)
{
    const int64_t n = a->x->dims[axis], step = a->step[axis], *by = a->by + (int64_t)2 * axis;
    char *middle = out + by[0] * step;
    for (int64_t j = -by[0]; j < 0; j++) {
        memcpy(middle + j * step, middle + wf_padded_from(a->mode, j, n) * step, (size_t)step);
    }
    for (int64_t j = n; j < n + by[1]; j++) {
        memcpy(middle + j * step, middle + wf_padded_from(a->mode, j, n) * step, (size_t)step);
    }
}

static void pad_block(const pad_args *a, int axis, char *out, const char *in)
{
    const int last = a->x->rank - 1;
    if (axis == last) {
        pad_rows(a, out, in, 0, 1);
        return;
    }
    const int64_t n = a->x->dims[axis], step = a->step[axis], *by = a->by + (int64_t)2 * axis;
    char *middle = out + by[0] * step;
    if (axis == last - 1) {
        pad_rows(a, middle, in, a->x->strides[axis], n);
    } else {
        for (int64_t i = 0; i < n; i++) {
            pad_block(a, axis + 1, middle + i * step,
                      in + i * a->x->strides[axis] * (int64_t)a->size);
        }
    }
    pad_outer(a, axis, out);
}

static pad_args pad_of(const wf_exec *e, const wf_view *x, const wf_view *padded)
{
    pad_args a = {.x = x, .by = e->attr->dyn, .mode = e->attr->ints[0], .blocks = 1};
    int64_t step = (int64_t)wf_dtype_size(padded->dtype);
    for (int i = padded->rank; i-- > 0; step *= padded->dims[i]) {
        a.step[i] = step;
    }
    while (a.first < x->rank - 1 && (a.by[2 * a.first] | a.by[2 * a.first + 1]) == 0) {
        a.blocks *= x->dims[a.first++];
    }
    a.size = wf_dtype_size(padded->dtype);
    a.padded = padded->data;
    return a;
}

/* Bytes of a block of what is padded. */
static int64_t block_bytes(const pad_args *a)
{
    const int64_t *by = a->by + (int64_t)2 * a->first;
    return a->step[a->first] * (a->x->dims[a->first] + by[0] + by[1]);
}
/* Blocks that are too few for threads go by steps of their first axis. */
static bool goes_by_steps(const pad_args *a)
{
    return a->blocks < FEW_BLOCKS && a->first < a->x->rank - 1;
}

static const char *block_of(const pad_args *a, int64_t b)
{
    return (const char *)a->x->data +
           wf_offset_of(b, a->first, a->x->dims, a->x->strides) * (int64_t)a->size;
}

static void pad_blocks(void *arg, int64_t begin, int64_t end)
{
    const pad_args *a = arg;
    const int last = a->x->rank - 1;
    for (int64_t b = begin; b < end;) {
        /* Blocks that are rows: as many as lie along an axis at once. */
        const int64_t n = a->first == last && last > 0 ? a->x->dims[last - 1] : 0;
        const int64_t left = n ? n - b % n : 1, many = left < end - b ? left : end - b;
        if (n) {
            pad_rows(a, a->padded + b * block_bytes(a), block_of(a, b), a->x->strides[last - 1],
                     many);
        } else {
            pad_block(a, a->first, a->padded + b * block_bytes(a), block_of(a, b));
        }
        b += many;
    }
}

static void pad_steps(void *arg, int64_t begin, int64_t end)
{
    const pad_args *a = arg;
    const int64_t n = a->x->dims[a->first], before = a->by[2 * a->first];
    for (int64_t t = begin; t < end; t++) {
        const int64_t b = t / n, i = t % n;
        pad_block(a, a->first + 1,
                  a->padded + b * block_bytes(a) + (before + i) * a->step[a->first],
                  block_of(a, b) + i * a->x->strides[a->first] * (int64_t)a->size);
    }
}

WF_EXEC_DECL(pad_mode)
{
    const wf_view *y = &e->dst[0];
    if (wf_view_numel(y) == 0) {
        return 0;
    }
    if (y->rank == 0) {
        wf_copy(y, &e->src[0]);
        return 0;
    }
    wf_dense in;
    wf_view x = e->src[0];
    if (x.strides[x.rank - 1] != 1 && x.dims[x.rank - 1] > 1) { /* brought together first */
        const int code = wf_dense_of(&x, x.dtype, &in, e->why);
        if (code) {
            return code;
        }
        x = wf_view_dense(in.data, x.dtype, x.rank, x.dims);
    } else {
        in = (wf_dense){.owned = NULL};
    }
    pad_args a = pad_of(e, &x, y);
    if (goes_by_steps(&a)) {
        wf_parallel_for(a.blocks * a.x->dims[a.first], wf_row_grain(a.step[a.first]), pad_steps,
                        &a);
        for (int64_t b = 0; b < a.blocks; b++) {
            pad_outer(&a, a.first, a.padded + b * block_bytes(&a));
        }
    } else {
        wf_parallel_for(a.blocks, wf_row_grain(block_bytes(&a)), pad_blocks, &a);
    }
    wf_dense_free(&in);
    return 0;
}

/* Adds what stands for the elements of a block, or puts the first of it there. */
#define FOLD_BLOCK(type)                                                                           \
    static void fold_row_##type(const pad_args *a, type *restrict x, const type *restrict g,       \
                                bool adds)                                                         \
    {                                                                                              \
        const int axis = a->x->rank - 1;                                                           \
        const int64_t n = a->x->dims[axis], *by = a->by + (int64_t)2 * axis;                       \
        g += by[0];                                                                                \
        if (adds) {                                                                                \
            for (int64_t i = 0; i < n; i++) {                                                      \
                x[i] += g[i];                                                                      \
            }                                                                                      \
        } else {                                                                                   \
            memcpy(x, g, (size_t)n * sizeof *x);                                                   \
        }                                                                                          \
        for (int64_t j = -by[0]; j < 0; j++) {                                                     \
            x[wf_padded_from(a->mode, j, n)] += g[j];                                              \
        }                                                                                          \
        for (int64_t j = n; j < n + by[1]; j++) {                                                  \
            x[wf_padded_from(a->mode, j, n)] += g[j];                                              \
        }                                                                                          \
    }                                                                                              \
    static void fold_block_##type(const pad_args *a, int axis, type *x, const type *g, bool adds); \
    static void fold_outer_##type(const pad_args *a, int axis, type *x, const type *g)             \
    {                                                                                              \
        const int64_t n = a->x->dims[axis], *by = a->by + (int64_t)2 * axis;                       \
        const int64_t step = a->step[axis] / (int64_t)sizeof *g, own = a->x->strides[axis];        \
        g += by[0] * step;                                                                         \
        for (int64_t j = -by[0]; j < 0; j++) {                                                     \
            fold_block_##type(a, axis + 1, x + wf_padded_from(a->mode, j, n) * own, g + j * step,  \
                              true);                                                               \
        }                                                                                          \
        for (int64_t j = n; j < n + by[1]; j++) {                                                  \
            fold_block_##type(a, axis + 1, x + wf_padded_from(a->mode, j, n) * own, g + j * step,  \
                              true);                                                               \
        }                                                                                          \
    }                                                                                              \
    static void fold_block_##type(const pad_args *a, int axis, type *x, const type *g, bool adds)  \
    {                                                                                              \
        if (axis == a->x->rank - 1) {                                                              \
            fold_row_##type(a, x, g, adds);                                                        \
            return;                                                                                \
        }                                                                                          \
        const int64_t step = a->step[axis] / (int64_t)sizeof *g, own = a->x->strides[axis];        \
        const type *middle = g + a->by[2 * axis] * step;                                           \
        for (int64_t i = 0; i < a->x->dims[axis]; i++) {                                           \
            fold_block_##type(a, axis + 1, x + i * own, middle + i * step, adds);                  \
        }                                                                                          \
        fold_outer_##type(a, axis, x, g);                                                          \
    }                                                                                              \
    /* Steps of the blocks' first axes, or the blocks, or what is left of them after the steps. */ \
    static void fold_steps_##type(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const pad_args *a = arg;                                                                   \
        const int64_t n = a->x->dims[a->first], own = a->x->strides[a->first];                     \
        const int64_t step = a->step[a->first], before = a->by[2 * a->first];                      \
        for (int64_t t = begin; t < end; t++) {                                                    \
            const char *g = a->padded + t / n * block_bytes(a) + (before + t % n) * step;          \
            fold_block_##type(a, a->first + 1, (type *)a->x->data + t * own, (const type *)g,      \
                              false);                                                              \
        }                                                                                          \
    }                                                                                              \
    static void fold_whole_##type(const pad_args *a, int axis, type *x, const type *g)             \
    {                                                                                              \
        fold_block_##type(a, axis, x, g, false);                                                   \
    }                                                                                              \
    static void fold_blocks_##type(void *arg, int64_t begin, int64_t end)                          \
    {                                                                                              \
        const pad_args *a = arg;                                                                   \
        const int64_t own = a->x->dims[a->first] * a->x->strides[a->first];                        \
        for (int64_t b = begin; b < end; b++) {                                                    \
            const type *g = (const type *)(a->padded + b * block_bytes(a));                        \
            (a->stepped ? fold_outer_##type : fold_whole_##type)(a, a->first,                      \
                                                                 (type *)a->x->data + b * own, g); \
        }                                                                                          \
    }
FOLD_BLOCK(float)
FOLD_BLOCK(double)
#undef FOLD_BLOCK

WF_EXEC_DECL(pad_mode_bwd)
{
    const wf_view *dst = &e->dst[0], *g = &e->src[0];
    const int dt = wf_dtype_compute(dst->dtype);
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    if (dst->rank == 0) {
        wf_copy(dst, g);
        return 0;
    }
    wf_dense in;
    int code = wf_dense_of(g, dt, &in, e->why);
    if (code) {
        return code;
    }
    wf_view x = *dst, padded = wf_view_dense(in.data, dt, g->rank, g->dims);
    size_t bytes = 0;
    if (dt != dst->dtype) {
        bytes = wf_scratch_bytes(wf_view_numel(dst), wf_dtype_size(dt));
        x.dtype = (uint8_t)dt;
        x.data = bytes ? wf_scratch(bytes) : NULL;
        if (!x.data) {
            wf_dense_free(&in);
            return wf_no_memory(e->why, bytes);
        }
    }
    pad_args a = pad_of(e, &x, &padded);
    const bool wide = dt == WEFT_F64;
    a.stepped = goes_by_steps(&a);
    if (a.stepped) {
        wf_parallel_for(a.blocks * x.dims[a.first], wf_row_grain(a.step[a.first]),
                        wide ? fold_steps_double : fold_steps_float, &a);
    }
    wf_parallel_for(a.blocks, wf_row_grain(block_bytes(&a)),
                    wide ? fold_blocks_double : fold_blocks_float, &a);
    if (dt != dst->dtype) {
        wf_copy(dst, &x);
        wf_scratch_free(x.data, bytes);
    }
    wf_dense_free(&in);
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
        acc.data = bytes ? wf_scratch(bytes) : NULL;
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
        wf_scratch_free(acc.data, bytes);
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
