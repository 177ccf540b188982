/*
 * eager/index.c -- gathers and scatters: take_along, index_select, scatter_add, index_add, one_hot.
 *
 * Invariants
 *  - An index is checked before anything is read through it, all are before anything is added to; the error names the
 *    first bad one in row-major order, whichever thread met it. Negative indices count from the end.
 *  - Additions happen in index order for every destination: destinations are split among tasks by
 *    columns, so that each is owned by one task that walks the indices in order. Half types add in
 *    f32 and round once.
 */
#include <inttypes.h>
#include <stdatomic.h>

#include "eager/dense.h"

/* -- checked indices ------------------------------------------------------------------------------- */
typedef struct check_args {
    const int64_t *at;
    int64_t extent;
    _Atomic int64_t bad;       /* smallest bad position */
    _Atomic unsigned from_end; /* some count from the end */
} check_args;

/* Indices that are looked at, or whose places are worked out, together; rows that share this, at most, and all of their bytes. */
enum { TOGETHER = 256, SHARED = 16, SHARED_BYTES = 4 << 20 };

static void check_indices(void *arg, int64_t begin, int64_t end)
{
    check_args *a = arg;
    const uint64_t n = (uint64_t)a->extent;
    const unsigned range = wf_kernels_now()->range(a->at + begin, (size_t)(end - begin), a->extent);
    if (range & WF_FROM_END) {
        atomic_store_explicit(&a->from_end, 1, memory_order_relaxed);
    }
    for (int64_t i = begin; range & WF_OUTSIDE && i < end; i++) {
        if ((uint64_t)a->at[i] + n >= 2 * n) {
            int64_t seen = atomic_load_explicit(&a->bad, memory_order_relaxed);
            while (i < seen && !atomic_compare_exchange_weak(&a->bad, &seen, i)) {
            }
            break;
        }
    }
}

/* Are all n indices in [-extent, extent)? Else the error of the first that is not. *plain: none is negative. */
static int check(const int64_t *at, int64_t n, int64_t extent, int axis, bool *plain, wf_why *why)
{
    check_args a = {.at = at, .extent = extent, .bad = n};
    wf_parallel_for(n, 16384, check_indices, &a);
    const int64_t bad = atomic_load(&a.bad);
    *plain = !atomic_load(&a.from_end);
    if (bad == n) {
        return 0;
    }
    const int64_t found = at[bad];
    char sign[64] = "";
    if (found > INT64_MAX / 2) { /* losses take signs off, so that no class counts from the end */
        snprintf(sign, sizeof sign, "; %" PRId64 " if a loss took its sign off", found + INT64_MIN);
    }
    const int code = wf_fail(why, WEFT_EINDEX,
                             "index %" PRId64 " (element %" PRId64
                             " of the indices%s) is outside axis %d of extent %" PRId64,
                             found, bad, sign, axis, extent);
    if (extent > 0) {
        wf_hint(why, "indices run from 0 to %" PRId64 ", or from -%" PRId64 " to -1 from the end",
                extent - 1, extent);
    } else {
        wf_hint(why, "the axis is empty, so no index is valid");
    }
    return code;
}

/* Indices as contiguous i64, checked against an extent; values may still be negative. */
static int load_indices(const wf_view *v, int64_t extent, int axis, wf_dense *out, bool *plain,
                        wf_why *why)
{
    int code = wf_dense_of(v, WEFT_I64, out, why);
    if (code) {
        return code;
    }
    code = check(out->data, wf_view_numel(v), extent, axis, plain, why);
    if (code) {
        wf_dense_free(out);
    }
    return code;
}

static inline int64_t wrap_index(int64_t i, int64_t extent)
{
    return i < 0 ? i + extent : i;
}

/* Indices of an axis of x, of x's rank: is one repeated for all that lies off the axis, all of x? Then whole slices are meant, which
 * *one names: the same as a view of rank 1. */
static bool are_of_slices(const wf_view *x, const wf_view *index, int axis, wf_view *one)
{
    int64_t beside = 1; /* elements off the axis: of one, elements are meant */
    for (int i = 0; i < x->rank; i++) {
        if (i != axis &&
            (index->dims[i] != x->dims[i] || (index->dims[i] > 1 && index->strides[i] != 0))) {
            return false;
        }
        beside *= i == axis ? 1 : x->dims[i];
    }
    *one = *index;
    one->rank = 1;
    one->dims[0] = index->dims[axis];
    one->strides[0] = index->strides[axis];
    return beside > 1 && wf_view_numel(index) > 0;
}

static void find_places(const int64_t *at, int64_t n, int64_t extent, int64_t stride,
                        int64_t *place)
{
    for (int64_t k = 0; k < n; k++) {
        place[k] = wrap_index(at[k], extent) * stride;
    }
}

/* -- index_select ---------------------------------------------------------------------------------- */
typedef struct select_args {
    const wf_view *x;
    const int64_t *at;
    char *dst;
    int axis;
    int64_t n, extent, inner; /* indices, extent of the axis, elements after the axis */
    int64_t outer;            /* slices of all the axis */
    int64_t shared;           /* of those as many as take the same places one after the other */
    int inner_rank;           /* inner axes that are not one contiguous run */
    int64_t run;              /* elements of the contiguous run at the end */
    bool dense;               /* x is contiguous */
    size_t size;
} select_args;

/* One slice of inner elements that are no contiguous run: single strided axes. */
static void copy_slice(const select_args *a, char *out, const char *in)
{
    const wf_view *x = a->x;
    const int64_t *dims = x->dims + a->axis + 1, *strides = x->strides + a->axis + 1;
    int last = x->rank - a->axis - 2; /* >= 0: inner has axes */
    int64_t n = dims[last], rows = a->inner / n;
    for (int64_t r = 0; r < rows; r++) {
        int64_t off = wf_offset_of(r, last, dims, strides);
        wf_gather_row(out + r * n * (int64_t)a->size, in + off * (int64_t)a->size, n, strides[last],
                      a->size);
    }
}

/* Slices of less than half a line, or of whole ones up to SHORT_SLICE bytes, are moved here: a call takes as long as they do. */
enum { HALF_LINE = 32, SHORT_SLICE = 512, SLICES_AHEAD = 12 };

/* Less than half a line: its first and its last bytes, which may be the same ones. */
static inline void move_part_of_line(char *out, const char *in, int64_t bytes)
{
#define PART(n)                                                                                    \
    if (bytes >= (n)) {                                                                            \
        memcpy(out, in, n);                                                                        \
        memcpy(out + bytes - (n), in + bytes - (n), n);                                            \
        return;                                                                                    \
    }
    PART(16)
    PART(8)
    PART(4)
    PART(2)
    *out = *in;
#undef PART
}

/* Of one o the slices k to last, each a contiguous run of `bytes`. Where they lie is random: lines of those to come are asked for. */
static void select_runs(const select_args *a, char *out, const char *outer, int64_t k, int64_t last)
{
    const int64_t bytes = a->inner * (int64_t)a->size;
    const int64_t step = a->x->strides[a->axis] * (int64_t)a->size;
    const bool here = bytes < HALF_LINE || (bytes <= SHORT_SLICE && bytes % HALF_LINE == 0);
    const wf_cast_fn copy = wf_kernels_now()->cast[WEFT_U8][WEFT_U8];
    for (; k < last; k++, out += bytes) {
        const char *in = outer + wrap_index(a->at[k], a->extent) * step;
        if (!here) {
            copy(out, in, (size_t)bytes);
            continue;
        }
        if (k + SLICES_AHEAD < last) {
            const char *next = outer + wrap_index(a->at[k + SLICES_AHEAD], a->extent) * step;
            for (int64_t i = 0; i < bytes; i += 2 * HALF_LINE) {
                __builtin_prefetch(next + i);
            }
        }
        if (bytes < HALF_LINE) {
            move_part_of_line(out, in, bytes);
            continue;
        }
        for (int64_t i = 0; i < bytes; i += HALF_LINE) {
            memcpy(out + i, in + i, HALF_LINE);
        }
    }
}

static void select_slices(void *arg, int64_t begin, int64_t end)
{
    const select_args *a = arg;
    const wf_view *x = a->x;
    const int64_t size = (int64_t)a->size;
    for (int64_t i = begin, last; i < end; i = last) {
        const int64_t o = i / a->n, k = i - o * a->n;
        const char *outer =
            (const char *)x->data + wf_offset_of(o, a->axis, x->dims, x->strides) * size;
        char *out = a->dst + i * a->inner * size;
        last = end < i - k + a->n ? end : i - k + a->n;
        if (a->run == a->inner) {
            select_runs(a, out, outer, k, k + (last - i));
            continue;
        }
        for (int64_t j = 0; j < last - i; j++) {
            const int64_t at = wrap_index(a->at[k + j], a->extent) * x->strides[a->axis] * size;
            copy_slice(a, out + j * a->inner * size, outer + at);
        }
    }
}

/* out[k] = in[place[k]]; unrolled: a step of one element takes half as long again where its text lies badly. */
static void take_places(void *out, const void *in, const int64_t *place, int64_t n, size_t size)
{
#define TAKE(type)                                                                                 \
    _Pragma("GCC unroll 4") for (int64_t k = 0; k < n; k++)                                        \
    {                                                                                              \
        ((type *)out)[k] = ((const type *)in)[place[k]];                                           \
    }
    WF_BY_SIZE(size, TAKE)
#undef TAKE
}

/* Pieces of a row of n elements that are taken together. */
static int64_t pieces_of(int64_t n)
{
    return (n + TOGETHER - 1) / TOGETHER;
}

/* Rows of so many bytes that are read in turns: no more than the last cache holds beside other things. */
static int64_t shared_rows(int64_t rows, int64_t bytes)
{
    int64_t shared = rows < SHARED ? rows : SHARED;
    while (shared > 1 && bytes > SHARED_BYTES / shared) {
        shared /= 2;
    }
    return shared;
}

/* Slices of one element (the axis is the last): TOGETHER indices of a->shared rows each, one row after the other. */
static void select_elements(void *arg, int64_t begin, int64_t end)
{
    const select_args *a = arg;
    const wf_view *x = a->x;
    const int64_t size = (int64_t)a->size, pieces = pieces_of(a->n);
    int64_t place[TOGETHER];
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i % pieces * TOGETHER, n = a->n - k < TOGETHER ? a->n - k : TOGETHER;
        int64_t o = i / pieces * a->shared, last = o + a->shared;
        if (pieces == 1) { /* their places are found once */
            last = end * a->shared;
            i = end;
        }
        find_places(a->at + k, n, a->extent, x->strides[a->axis], place);
        for (last = last < a->outer ? last : a->outer; o < last; o++) {
            const int64_t base =
                a->dense ? o * a->extent : wf_offset_of(o, a->axis, x->dims, x->strides);
            take_places((char *)a->dst + (o * a->n + k) * size, (const char *)x->data + base * size,
                        place, n, a->size);
        }
    }
}

static int64_t product(const int64_t *dims, int n)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) {
        p *= dims[i];
    }
    return p;
}

/* Would a selection of n slices read a line for each element, and most lines several times? */
static bool is_scattered(const wf_view *x, int axis, int64_t n)
{
    const int64_t step = x->strides[x->rank - 1] * (int64_t)wf_dtype_size(x->dtype);
    return (step >= 64 || step <= -64) && n >= x->dims[axis] / 2;
}

WF_EXEC_DECL(index_select)
{
    const wf_view *x = &e->src[0];
    int axis = (int)e->attr->ints[0];
    wf_dense idx, whole = {0};
    wf_view rows;
    bool plain;
    int code = load_indices(&e->src[1], x->dims[axis], axis, &idx, &plain, e->why);
    if (!code && is_scattered(x, axis, wf_view_numel(&e->src[1]))) {
        code = wf_dense_of(x, x->dtype, &whole, e->why);
        if (code) {
            wf_dense_free(&idx);
        }
        rows = wf_view_dense(whole.data, x->dtype, x->rank, x->dims);
        x = &rows;
    }
    if (code) {
        return code;
    }
    select_args a = {.x = x,
                     .at = idx.data,
                     .dst = e->dst[0].data,
                     .axis = axis,
                     .n = wf_view_numel(&e->src[1]),
                     .extent = x->dims[axis],
                     .inner = product(x->dims + axis + 1, x->rank - axis - 1),
                     .size = wf_dtype_size(x->dtype)};
    wf_view tail = *x;
    tail.rank = (uint8_t)(x->rank - axis - 1);
    memcpy(tail.dims, x->dims + axis + 1, tail.rank * sizeof tail.dims[0]);
    memcpy(tail.strides, x->strides + axis + 1, tail.rank * sizeof tail.strides[0]);
    a.run = wf_view_is_contiguous(&tail) ? a.inner : 0;
    a.dense = wf_view_is_contiguous(x);
    a.outer = product(x->dims, axis);
    if (wf_view_numel(&e->dst[0]) > 0) {
        if (a.inner == 1) {
            const int64_t n = a.n < TOGETHER ? a.n : TOGETHER;
            a.shared = shared_rows(a.outer, a.extent * (int64_t)a.size);
            wf_parallel_for((a.outer + a.shared - 1) / a.shared * pieces_of(a.n),
                            wf_row_grain(a.shared * n * (int64_t)a.size), select_elements, &a);
        } else {
            int64_t grain = wf_row_grain(a.inner * (int64_t)a.size);
            wf_parallel_for(a.outer * a.n, grain, select_slices, &a);
        }
    }
    wf_dense_free(&whole);
    wf_dense_free(&idx);
    return 0;
}

/* -- take_along ------------------------------------------------------------------------------------ */
typedef struct along_args {
    const wf_view *x;
    const int64_t *at;
    const int64_t *dims; /* of the indices and the result */
    void *dst;
    int axis;
    int64_t extent, n; /* extent of the axis; elements of the last axis of the result */
    size_t size;
    bool checked;
    _Atomic bool bad; /* an index that was not checked before is outside */
} along_args;

/* Rows of the result below which indices are checked before, all at once. */
enum { SHORT_ROW = 32 };

/* out[k] = in[k step + (at[k], which may count from the end of `extent`) jump], n <= TOGETHER */
static void take(void *out, const void *in, const int64_t *at, int64_t n, int64_t step,
                 int64_t jump, int64_t extent, bool from_end, size_t size)
{
    int64_t place[TOGETHER];
    if (step == 0 && jump == 1) { /* along the last axis */
        if (from_end) {
            find_places(at, n, extent, 1, place);
        }
        take_places(out, in, from_end ? place : at, n, size);
        return;
    }
#define TAKE(type)                                                                                 \
    _Pragma("GCC unroll 4") for (int64_t k = 0; k < n; k++)                                        \
    {                                                                                              \
        ((type *)out)[k] = ((const type *)in)[k * step + wrap_index(at[k], extent) * jump];        \
    }
    WF_BY_SIZE(size, TAKE)
#undef TAKE
}

/* Pieces of rows. Indices are looked at while the first cache has them: they are twice the bytes of f32 values. */
static void take_pieces(void *arg, int64_t begin, int64_t end)
{
    along_args *a = arg;
    const wf_view *x = a->x;
    const int64_t size = (int64_t)a->size, pieces = pieces_of(a->n);
    unsigned (*const range_of)(const int64_t *, size_t, int64_t) = wf_kernels_now()->range;
    int last = x->rank - 1;
    int64_t strides[WF_MAX_RANK];
    memcpy(strides, x->strides, sizeof strides);
    strides[a->axis] = 0; /* the index replaces the position along the axis */
    int64_t step = strides[last], jump = x->strides[a->axis], row = -1;
    const char *in = NULL;
    for (int64_t p = begin; p < end; p++) {
        const int64_t r = p / pieces, k = (p - r * pieces) * TOGETHER, i = r * a->n + k,
                      n = a->n - k < TOGETHER ? a->n - k : TOGETHER;
        if (r != row) {
            in = (const char *)x->data + wf_offset_of(r, last, a->dims, strides) * size;
            row = r;
        }
        unsigned range = WF_FROM_END;
        if (!a->checked) {
            range = range_of(a->at + i, (size_t)n, a->extent);
        }
        if (range & WF_OUTSIDE) {
            atomic_store(&a->bad, true);
            return;
        }
        take((char *)a->dst + i * size, in + k * step * size, a->at + i, n, step, jump, a->extent,
             range & WF_FROM_END, a->size);
    }
}

static void swap_last(wf_view *v)
{
    const int k = v->rank - 1;
    const int64_t dim = v->dims[k], stride = v->strides[k];
    v->dims[k] = v->dims[k - 1];
    v->strides[k] = v->strides[k - 1];
    v->dims[k - 1] = dim;
    v->strides[k - 1] = stride;
}

/* Rows of one element, as of the targets of a loss, lie in memory as one row does: both views with the last two axes swapped. */
static bool rows_of_one(const wf_view *x, const wf_view *dst, wf_view *turned, wf_view *row)
{
    if (x->rank < 2 || dst->dims[x->rank - 1] != 1) {
        return false;
    }
    *turned = *x;
    *row = *dst;
    swap_last(turned);
    swap_last(row);
    return true;
}

WF_EXEC_DECL(take_along)
{
    const wf_view *x = &e->src[0];
    int axis = (int)e->attr->ints[0];
    wf_dense idx;
    wf_view src[2] = {*x};
    if (are_of_slices(x, &e->src[1], axis, &src[1])) {
        wf_exec slices = *e;
        slices.src = src;
        const int code = wf_exec_index_select(&slices);
        if (code != WEFT_EINDEX) {
            return code;
        }
        wf_why_clear(e->why); /* which element of all the indices it is, is said below */
    }
    int code = wf_dense_of(&e->src[1], WEFT_I64, &idx, e->why);
    if (code) {
        return code;
    }
    along_args a = {.x = x,
                    .at = idx.data,
                    .dims = e->dst[0].dims,
                    .dst = e->dst[0].data,
                    .axis = axis,
                    .extent = x->dims[axis],
                    .n = e->dst[0].dims[x->rank - 1],
                    .size = wf_dtype_size(x->dtype)};
    const int64_t total = wf_view_numel(&e->dst[0]);
    wf_view turned, dst;
    if (rows_of_one(x, &e->dst[0], &turned, &dst)) {
        a.x = &turned;
        a.dims = dst.dims;
        a.axis = axis == x->rank - 1 ? axis - 1 : axis == x->rank - 2 ? axis + 1 : axis;
        a.n = dst.dims[x->rank - 1];
    }
    bool plain;
    a.checked = a.n < SHORT_ROW;
    if (a.checked) {
        code = check(a.at, total, a.extent, axis, &plain, e->why);
    }
    if (!code && total > 0) {
        const int64_t n = a.n < TOGETHER ? a.n : TOGETHER;
        wf_parallel_for(total / a.n * pieces_of(a.n), wf_row_grain(n * (int64_t)a.size),
                        take_pieces, &a);
        code = atomic_load(&a.bad) ? check(a.at, total, a.extent, axis, &plain, e->why) : 0;
    }
    wf_dense_free(&idx);
    return code;
}

/* -- scatter_add and index_add --------------------------------------------------------------------- */
/* Both add values[o][k][j] to dst[outer(o)][at][inner(j)], where at comes from the indices at
 * [o][k][j] (scatter_add) or at [k] (index_add). */
typedef struct add_args {
    void *dst; /* contiguous, compute type */
    const void *values;
    const int64_t *at;
    bool along;                  /* scatter_add: one index per value */
    bool near;                   /* along the last axis, and none counts from the end */
    int64_t count, inner, chunk; /* indices along the axis, columns, columns a task */
    int64_t extent, axis_stride; /* of dst along the axis */
    wf_map_fn add;
    const int64_t *inner_at; /* column -> offset in dst; NULL when the identity */
    int outer_rank;
    const int64_t *outer_dims; /* of the values, before the axis */
    int64_t outer_strides[WF_MAX_RANK];
} add_args;

/* Where rows o to o + 3 of dst begin; those from `end` on: where o does. */
__attribute__((noinline)) static void find_rows(const add_args *a, int64_t o, int64_t end,
                                                int64_t *at)
{
    for (int i = 0; i < 4; i++) {
        const int64_t row = o + i < end ? o + i : o;
        at[i] = wf_offset_of(row, a->outer_rank, a->outer_dims, a->outer_strides);
    }
}

/* add_elements: one column, as along the last axis. Where rows share their indices (index_add), four at once do not wait for
 * each other where one comes again. */
#define ADD_COLUMNS(suffix, type)                                                                  \
    static void add_columns_##suffix(const add_args *a, int64_t o, int64_t lo, int64_t hi)         \
    {                                                                                              \
        type *dst =                                                                                \
            (type *)a->dst + wf_offset_of(o, a->outer_rank, a->outer_dims, a->outer_strides);      \
        const type *values = (const type *)a->values + o * a->count * a->inner;                    \
        const int64_t *at = a->along ? a->at + o * a->count * a->inner : a->at;                    \
        const int64_t extent = a->extent, jump = a->axis_stride, *columns = a->inner_at;           \
        for (int64_t k = 0; k < a->count; k++, values += a->inner) {                               \
            if (!a->along) {                                                                       \
                type *out = dst + wrap_index(at[k], extent) * jump + lo;                           \
                a->add(out, (const void *const[]){out, values + lo}, (size_t)(hi - lo), 0);        \
                continue;                                                                          \
            }                                                                                      \
            const int64_t *row = at + k * a->inner;                                                \
            int64_t other = columns ? 1 : row[hi - 1] ^ row[lo];                                   \
            for (int64_t j = lo; !other && j < hi; j += TOGETHER) {                                \
                const int64_t end = hi - j < TOGETHER ? hi : j + TOGETHER;                         \
                for (int64_t i = j; i < end; i++) {                                                \
                    other |= row[i] ^ row[lo];                                                     \
                }                                                                                  \
            }                                                                                      \
            if (!other) { /* as where rows are added to nodes of a graph */                        \
                type *out = dst + wrap_index(row[lo], extent) * jump + lo;                         \
                a->add(out, (const void *const[]){out, values + lo}, (size_t)(hi - lo), 0);        \
                continue;                                                                          \
            }                                                                                      \
            for (int64_t j = lo; j < hi; j++) {                                                    \
                type *out = dst + wrap_index(row[j], extent) * jump + (columns ? columns[j] : j);  \
                *out = (type)(*out + values[j]);                                                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void add_elements_##suffix(const add_args *a, int64_t begin, int64_t end)               \
    {                                                                                              \
        int64_t place[TOGETHER];                                                                   \
        const int64_t extent = a->extent, jump = a->axis_stride;                                   \
        for (int64_t o = begin; o < end && a->along; o++) {                                        \
            type *d =                                                                              \
                (type *)a->dst + wf_offset_of(o, a->outer_rank, a->outer_dims, a->outer_strides);  \
            const type *v = (const type *)a->values + o * a->count;                                \
            const int64_t *index = a->at + o * a->count;                                           \
            for (int64_t k = 0; a->near && k < a->count; k++) {                                    \
                d[index[k]] = (type)(d[index[k]] + v[k]);                                          \
            }                                                                                      \
            for (int64_t k = 0; !a->near && k < a->count; k++) {                                   \
                type *out = d + wrap_index(index[k], extent) * jump;                               \
                *out = (type)(*out + v[k]);                                                        \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < a->count && !a->along; k += TOGETHER) {                            \
            const int64_t n = a->count - k < TOGETHER ? a->count - k : TOGETHER;                   \
            find_places(a->at + k, n, a->extent, a->axis_stride, place);                           \
            for (int64_t o = begin; o < end; o += 4) {                                             \
                const type *v = (const type *)a->values + o * a->count + k;                        \
                int64_t at[4];                                                                     \
                find_rows(a, o, end, at);                                                          \
                type *d[4];                                                                        \
                for (int i = 0; i < 4; i++) {                                                      \
                    d[i] = (type *)a->dst + at[i];                                                 \
                }                                                                                  \
                if (end - o >= 4) {                                                                \
                    for (int64_t j = 0; j < n; j++) {                                              \
                        const int64_t p = place[j];                                                \
                        d[0][p] = (type)(d[0][p] + v[j]);                                          \
                        d[1][p] = (type)(d[1][p] + v[a->count + j]);                               \
                        d[2][p] = (type)(d[2][p] + v[2 * a->count + j]);                           \
                        d[3][p] = (type)(d[3][p] + v[3 * a->count + j]);                           \
                    }                                                                              \
                    continue;                                                                      \
                }                                                                                  \
                for (int i = 0; i < end - o; i++) {                                                \
                    for (int64_t j = 0; j < n; j++) {                                              \
                        d[i][place[j]] = (type)(d[i][place[j]] + v[i * a->count + j]);             \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void add_task_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const add_args *a = arg;                                                                   \
        if (a->inner == 1) { /* one chunk */                                                       \
            add_elements_##suffix(a, begin, end);                                                  \
            return;                                                                                \
        }                                                                                          \
        int64_t chunks = (a->inner + a->chunk - 1) / a->chunk;                                     \
        for (int64_t t = begin; t < end; t++) {                                                    \
            int64_t lo = t % chunks * a->chunk, hi = lo + a->chunk;                                \
            add_columns_##suffix(a, t / chunks, lo, hi < a->inner ? hi : a->inner);                \
        }                                                                                          \
    }
ADD_COLUMNS(f32, float)
ADD_COLUMNS(f64, double)
ADD_COLUMNS(u8, uint8_t)
ADD_COLUMNS(u16, uint16_t)
ADD_COLUMNS(u32, uint32_t)
ADD_COLUMNS(u64, uint64_t)
#undef ADD_COLUMNS

static wf_task_fn add_task(int dt)
{
    if (dt == WEFT_F32 || dt == WEFT_F64) {
        return dt == WEFT_F32 ? add_task_f32 : add_task_f64;
    }
    switch (wf_dtype_size(dt)) {
    case 1:
        return add_task_u8;
    case 2:
        return add_task_u16;
    case 4:
        return add_task_u32;
    default:
        return add_task_u64;
    }
}

/* Columns a task: all where there are other tasks; else a thread's part of the row in whole cache lines, so that neighbours do not
 * share one. (Every column is added to in the order of the indices: cuts change no bits. Each task walks all rows.) */
static int64_t column_chunk(int64_t outer, int64_t inner, size_t size)
{
    const int threads = wf_num_threads();
    if (outer >= 8 || threads < 2) {
        return inner;
    }
    const int64_t line = 64 / (int64_t)size, parts = threads < 8 ? threads : 8;
    int64_t chunk = (inner + parts - 1) / parts;
    chunk = (chunk + line - 1) / line * line;
    return chunk > 0 ? chunk : line;
}

/* Offsets in dst of the value's inner columns when their extents differ; NULL if they do not. */
static int inner_offsets(const wf_view *dst, const wf_view *values, int axis, int64_t inner,
                         wf_dense *table, wf_why *why)
{
    int n = dst->rank - axis - 1;
    table->owned = table->data = NULL;
    if (memcmp(dst->dims + axis + 1, values->dims + axis + 1, (size_t)n * sizeof dst->dims[0]) ==
        0) {
        return 0;
    }
    table->bytes = wf_scratch_bytes(inner, sizeof(int64_t));
    int64_t *t = table->bytes ? wf_scratch(table->bytes) : NULL;
    if (!t) {
        return wf_no_memory(why, table->bytes);
    }
    for (int64_t j = 0; j < inner; j++) {
        t[j] = wf_offset_of(j, n, values->dims + axis + 1, dst->strides + axis + 1);
    }
    table->owned = table->data = t;
    return 0;
}

/* dst := base as the compute type; *acc is dst itself when that is its type. */
static int open_accumulator(wf_exec *e, int dt, wf_view *acc, size_t *bytes)
{
    *acc = e->dst[0];
    *bytes = 0;
    if (dt != acc->dtype) {
        *bytes = wf_scratch_bytes(wf_view_numel(acc), wf_dtype_size(dt));
        acc->dtype = (uint8_t)dt;
        acc->data = *bytes ? wf_scratch(*bytes) : NULL;
        if (!acc->data) {
            return wf_no_memory(e->why, *bytes);
        }
    }
    wf_copy(acc, &e->src[0]);
    return 0;
}

static int add_values(wf_exec *e, add_args *a)
{
    const wf_view *values = &e->src[2];
    int axis = (int)e->attr->ints[0], dt = wf_dtype_compute(e->dst[0].dtype);
    wf_view acc;
    size_t bytes;
    wf_dense in = {0}, table = {0};
    int code = wf_dense_of(values, dt, &in, e->why);
    if (!code && a->along) {
        code = inner_offsets(&e->dst[0], values, axis, a->inner, &table, e->why);
    }
    if (!code && (code = open_accumulator(e, dt, &acc, &bytes)) == 0) {
        a->dst = acc.data;
        a->add = wf_kernels_now()->map[wf_ct(dt)][WF_OP_ADD];
        a->values = in.data;
        a->inner_at = table.data;
        a->axis_stride = e->dst[0].strides[axis];
        a->near = a->near && a->axis_stride == 1;
        a->outer_rank = axis;
        a->outer_dims = values->dims;
        memcpy(a->outer_strides, e->dst[0].strides, sizeof a->outer_strides);
        int64_t outer = product(values->dims, axis);
        a->chunk = column_chunk(outer, a->inner, wf_dtype_size(dt));
        int64_t chunks = (a->inner + a->chunk - 1) / a->chunk;
        int64_t grain = wf_row_grain(a->count * a->chunk * (int64_t)wf_dtype_size(dt));
        wf_parallel_for(outer * chunks, grain, add_task(dt), a);
        if (acc.data != e->dst[0].data) {
            wf_copy(&e->dst[0], &acc);
            wf_scratch_free(acc.data, bytes);
        }
    }
    wf_dense_free(&table);
    wf_dense_free(&in);
    return code;
}

/* -- index_add of halves --------------------------------------------------------------------------------- */
/* Rows of dst that values go to are widened one at a time, not dst and the values as a whole: most rows of an embedding's
 * gradient stay what they are. The values of a row are found by the places of its indices in their order. */
enum { WIDE = 1024 /* columns that are widened together */, LEAST_ROW = 32 };

typedef struct half_args {
    const wf_view *dst, *values;
    const char *from; /* the values */
    const int64_t *first,
        *order; /* of a row: where in order its indices begin, which end where the next begin */
    int64_t extent, count, inner;
} half_args;

static void add_halves(void *arg, int64_t begin, int64_t end)
{
    const half_args *a = arg;
    const wf_kernels *k = wf_kernels_now();
    const int to = a->dst->dtype, from = a->values->dtype;
    const int64_t size = (int64_t)wf_dtype_size(to), step = (int64_t)wf_dtype_size(from);
    _Alignas(64) float acc[WIDE], more[WIDE];
    for (int64_t i = begin; i < end; i++) {
        const int64_t o = i / a->extent, r = i % a->extent, last = a->first[r + 1];
        for (int64_t c = 0; c < a->inner && a->first[r] < last; c += WIDE) {
            const size_t n = (size_t)(a->inner - c < WIDE ? a->inner - c : WIDE);
            char *out = (char *)a->dst->data + (i * a->inner + c) * size;
            k->cast[WEFT_F32][to](acc, out, n);
            for (int64_t at = a->first[r]; at < last; at++) {
                const int64_t value = (o * a->count + a->order[at]) * a->inner + c;
                k->cast[WEFT_F32][from](more, a->from + value * step, n);
                k->map[WF_CT_F32][WF_OP_ADD](acc, (const void *const[]){acc, more}, n, 0);
            }
            k->cast[to][WEFT_F32](out, acc, n);
        }
    }
}

/* first[extent + 1] and order[count] of the indices, in room for both. */
static void sort_places(const int64_t *at, int64_t count, int64_t extent, int64_t *first,
                        int64_t *order)
{
    memset(first, 0, (size_t)(extent + 1) * sizeof *first);
    for (int64_t k = 0; k < count; k++) {
        first[wrap_index(at[k], extent)]++;
    }
    int64_t sum = 0;
    for (int64_t r = 0; r <= extent; r++) {
        sum += first[r];
        first[r] = sum;
    }
    for (int64_t k = count; k-- > 0;) {
        order[--first[wrap_index(at[k], extent)]] = k;
    }
}

static int add_half_rows(wf_exec *e, const add_args *s)
{
    const wf_view *values = &e->src[2];
    wf_dense in;
    int code = wf_dense_of(values, values->dtype, &in, e->why);
    if (code) {
        return code;
    }
    const size_t bytes = wf_scratch_bytes(s->extent + 1 + s->count, sizeof(int64_t));
    int64_t *first = bytes ? wf_alloc(bytes) : NULL;
    if (!first) {
        wf_dense_free(&in);
        return wf_no_memory(e->why, bytes);
    }
    half_args a = {.dst = &e->dst[0],
                   .values = values,
                   .from = in.data,
                   .first = first,
                   .order = first + s->extent + 1,
                   .extent = s->extent,
                   .count = s->count,
                   .inner = s->inner};
    wf_copy(&e->dst[0], &e->src[0]);
    sort_places(s->at, s->count, s->extent, first, first + s->extent + 1);
    const int64_t rows = wf_view_numel(&e->dst[0]) / s->inner;
    const int64_t work = s->inner * (4 + 8 * s->count / s->extent);
    wf_parallel_for(rows, wf_row_grain(work), add_halves, &a);
    wf_free(first, bytes);
    wf_dense_free(&in);
    return 0;
}

/* -- few elements of many halves --------------------------------------------------------------------------- */
/* Each that values go to has a sum of its own, found by its place. */
typedef struct sums {
    int64_t *place; /* of `size`, a power of two, as many as twice the values; -1: none */
    float *sum;
    int64_t size;
    int shift;
} sums;

/* Where the sum of a place is, or is to be. */
static int64_t find_sum(const sums *s, int64_t place)
{
    int64_t i = (int64_t)((uint64_t)place * UINT64_C(0x9E3779B97F4A7C15) >> s->shift);
    while (s->place[i] != place && s->place[i] >= 0) {
        i = (i + 1) & (s->size - 1);
    }
    return i;
}

static void add_to_sum(const sums *s, int64_t place, float value, const uint16_t *dst, int dtype)
{
    const int64_t i = find_sum(s, place);
    s->sum[i] = s->place[i] < 0 ? (float)wf_float_load(dst, dtype, place) : s->sum[i];
    s->place[i] = place;
    s->sum[i] += value;
}

/* In the order of the indices, as where all is widened. */
static void add_to_sums(const sums *s, const add_args *a, int64_t outer, uint16_t *dst, int dtype)
{
    const float *value = a->values;
    memset(s->place, -1, (size_t)s->size * sizeof *s->place);
    for (int64_t o = 0; o < outer; o++) {
        const int64_t *at = a->along ? a->at + o * a->count * a->inner : a->at;
        const int64_t first = wf_offset_of(o, a->outer_rank, a->outer_dims, a->outer_strides);
        for (int64_t k = 0; k < a->count * a->inner; k++) {
            const int64_t index = a->along ? at[k] : at[k / a->inner];
            const int64_t row = first + wrap_index(index, a->extent) * a->axis_stride;
            add_to_sum(s, row + k % a->inner, *value++, dst, dtype);
        }
    }
    for (int64_t i = 0; i < s->size; i++) {
        if (s->place[i] >= 0) {
            wf_float_put(dst, dtype, s->place[i], (double)s->sum[i]);
        }
    }
}

static int add_few_halves(wf_exec *e, const add_args *of)
{
    const wf_view *dst = &e->dst[0], *values = &e->src[2];
    add_args a = *of;
    wf_dense in;
    int code = wf_dense_of(values, WEFT_F32, &in, e->why);
    if (code) {
        return code;
    }
    a.values = in.data;
    a.outer_rank = (int)e->attr->ints[0];
    a.axis_stride = dst->strides[a.outer_rank];
    a.outer_dims = values->dims;
    memcpy(a.outer_strides, dst->strides, sizeof a.outer_strides);
    sums s = {.size = 2, .shift = 63};
    for (; s.size < 2 * wf_view_numel(values); s.size *= 2) {
        s.shift--;
    }
    const size_t bytes = wf_scratch_bytes(s.size, sizeof *s.place + sizeof *s.sum);
    s.place = bytes ? wf_scratch(bytes) : NULL;
    if (s.place) {
        s.sum = (float *)(void *)(s.place + s.size);
        wf_copy(dst, &e->src[0]);
        add_to_sums(&s, &a, product(values->dims, a.outer_rank), dst->data, dst->dtype);
        wf_scratch_free(s.place, bytes);
    } else {
        code = wf_no_memory(e->why, bytes);
    }
    wf_dense_free(&in);
    return code;
}

/* Halves of their own type that are added to halves, or f32. */
static bool adds_halves(const wf_exec *e)
{
    const int to = e->dst[0].dtype;
    return (to == WEFT_F16 || to == WEFT_BF16) && e->src[0].dtype == to &&
           (WF_BIT(e->src[2].dtype) & WF_DT_F) && e->src[2].dtype != WEFT_F64 &&
           wf_view_is_contiguous(&e->dst[0]);
}

/* Can they be added so, and is that less than to widen all? (A row of a scatter_add has as many elements as one of dst.) */
static bool few_halves(const wf_exec *e, const add_args *a)
{
    enum { FEW = 32 };
    const wf_view *dst = &e->dst[0], *values = &e->src[2];
    const int behind = dst->rank - 1 - (int)e->attr->ints[0];
    return adds_halves(e) && wf_view_numel(values) <= wf_view_numel(dst) / FEW &&
           a->inner == product(dst->dims + dst->rank - behind, behind);
}

/* Can halves be added a row at a time? */
static bool halves_in_rows(const wf_exec *e, const add_args *a)
{
    return !a->along && a->inner >= LEAST_ROW && adds_halves(e);
}

/* Shared by both rows; `along` is scatter_add. */
static int exec_add(wf_exec *e, bool along)
{
    const wf_view *base = &e->src[0];
    int axis = (int)e->attr->ints[0];
    wf_dense idx;
    bool plain;
    wf_view index = e->src[1], one;
    if (along && are_of_slices(base, &index, axis, &one)) {
        along = false;
        index = one;
    }
    int code = load_indices(&index, base->dims[axis], axis, &idx, &plain, e->why);
    if (code == WEFT_EINDEX &&
        index.rank != e->src[1].rank) { /* which element of all the indices it is */
        wf_why_clear(e->why);
        code = load_indices(&e->src[1], base->dims[axis], axis, &idx, &plain, e->why);
    }
    if (code) {
        return code;
    }
    if (wf_view_numel(&e->dst[0]) == 0) {
        wf_dense_free(&idx);
        return 0;
    }
    if (wf_view_numel(&e->src[2]) == 0) {
        wf_dense_free(&idx);
        wf_copy(&e->dst[0], base);
        return 0;
    }
    add_args a = {.at = idx.data, .along = along, .near = plain, .extent = base->dims[axis]};
    if (along) {
        a.count = index.dims[axis];
        a.inner = product(e->src[1].dims + axis + 1, base->rank - axis - 1);
    } else {
        a.count = wf_view_numel(&index);
        a.inner = product(base->dims + axis + 1, base->rank - axis - 1);
    }
    code = halves_in_rows(e, &a) ? add_half_rows(e, &a)
           : few_halves(e, &a)   ? add_few_halves(e, &a)
                                 : add_values(e, &a);
    wf_dense_free(&idx);
    return code;
}

WF_EXEC_DECL(scatter_add)
{
    return exec_add(e, true);
}

WF_EXEC_DECL(index_add)
{
    return exec_add(e, false);
}

/* -- one_hot --------------------------------------------------------------------------------------- */
typedef struct hot_args {
    const int64_t *at;
    char *dst;
    int64_t classes;
    size_t size;
    uint64_t one;
} hot_args;

static void hot_rows(void *arg, int64_t begin, int64_t end)
{
    const hot_args *a = arg;
    int64_t size = (int64_t)a->size, width = a->classes * size;
    memset(a->dst + begin * width, 0, (size_t)((end - begin) * width));
    for (int64_t i = begin; i < end; i++) {
        memcpy(a->dst + i * width + wrap_index(a->at[i], a->classes) * size, &a->one, a->size);
    }
}

WF_EXEC_DECL(one_hot)
{
    static const int64_t unit = 1;
    wf_view *dst = &e->dst[0];
    hot_args a = {.dst = dst->data, .classes = e->attr->dyn[0], .size = wf_dtype_size(dst->dtype)};
    wf_dense idx;
    bool plain;
    int code = load_indices(&e->src[0], a.classes, e->src[0].rank, &idx, &plain, e->why);
    if (code) {
        return code;
    }
    a.at = idx.data;
    float one = 1.0f;
    wf_view from = wf_view_dense(&one, WEFT_F32, 1, &unit);
    wf_view to = wf_view_dense(&a.one, dst->dtype, 1, &unit);
    wf_copy(&to, &from);
    if (wf_view_numel(dst) > 0) {
        wf_parallel_for(wf_view_numel(&e->src[0]), wf_row_grain(a.classes * (int64_t)a.size),
                        hot_rows, &a);
    }
    wf_dense_free(&idx);
    return 0;
}
