/*
 * weft/ops_array.h -- reductions, views, movement, indexing, creation. Included by weft/ops.h, which
 * says what holds for every op.
 */
#ifndef WEFT_OPS_ARRAY_H
#define WEFT_OPS_ARRAY_H

#include "weft/tensor.h"

/* Start or stop of a slice that is left out, as in Python's x[::-1]. */
#define WEFT_OMIT INT64_MIN

/* One entry of x[...]: see weft_index. */
typedef struct weft_index_term {
    int kind; /* WEFT_TERM_* */
    int64_t start, stop, step;
} weft_index_term;
enum { WEFT_TERM_SPAN = 0, WEFT_TERM_AT, WEFT_TERM_NEW_AXIS, WEFT_TERM_ELLIPSIS };

static inline weft_index_term weft_index_term_(int kind, int64_t start, int64_t stop, int64_t step)
{
    weft_index_term t;
    t.kind = kind;
    t.start = start;
    t.stop = stop;
    t.step = step;
    return t;
}
/* start:stop:step, as weft_slice takes them. */
static inline weft_index_term weft_span(int64_t start, int64_t stop, int64_t step WEFT_OR(1))
{
    return weft_index_term_(WEFT_TERM_SPAN, start, stop, step);
}
/* One element of an axis, which goes. */
static inline weft_index_term weft_at(int64_t index)
{
    return weft_index_term_(WEFT_TERM_AT, index, 0, 0);
}
/* NumPy's `:`, `np.newaxis` (None) and `...` */
#define WEFT_EVERY weft_index_term_(WEFT_TERM_SPAN, WEFT_OMIT, WEFT_OMIT, 1)
#define WEFT_NEW_AXIS weft_index_term_(WEFT_TERM_NEW_AXIS, 0, 0, 0)
#define WEFT_ELLIPSIS weft_index_term_(WEFT_TERM_ELLIPSIS, 0, 0, 0)

#ifdef __cplusplus
extern "C" {
#endif

/* -- reductions ------------------------------------------------------------------------------------------
 * .axes: which axes go (default all; WEFT_NO_AXES: none); .keepdim leaves them with extent 1. Results
 * do not depend on the number of threads. An empty reduction gives the neutral element (mean, var and std: NaN), or an
 * error where there is none (max, min, argmax, argmin: WEFT_ESHAPE). Integers and bool go to f32 in mean, logsumexp, var, std and
 * norm. The gradient of max and min is shared by equal elements. */
typedef struct weft_reduce_args {
    weft_tensor x;
    weft_axes axes;
    bool keepdim;
    weft_dtype
        dtype; /* sum, prod, mean: type of the result and of the addition; default: x's, i64 for
                         sums and products of integers and bool, f32 for means of them */
    int end_;
} weft_reduce_args;
WEFT_API weft_tensor weft_sum(const weft_reduce_args *args);
WEFT_API weft_tensor weft_prod(const weft_reduce_args *args);
WEFT_API weft_tensor weft_mean(const weft_reduce_args *args);
WEFT_API weft_tensor weft_max(const weft_reduce_args *args);       /* NaN if any is */
WEFT_API weft_tensor weft_min(const weft_reduce_args *args);       /* NaN if any is */
WEFT_API weft_tensor weft_logsumexp(const weft_reduce_args *args); /* log(sum(e^x)), no overflow */
WEFT_API weft_tensor weft_any(const weft_reduce_args *args);       /* bool: some element is not 0 */
WEFT_API weft_tensor weft_all(const weft_reduce_args *args);       /* bool: no element is 0 */
WEFT_API weft_tensor weft_count_nonzero(const weft_reduce_args *args); /* i64 */
/* i64 index of the first largest (smallest) element along one axis; without .axes of the flattened
 * tensor. NaN counts as largest (smallest). More than one axis is WEFT_EINVALID. */
WEFT_API weft_tensor weft_argmax(const weft_reduce_args *args);
WEFT_API weft_tensor weft_argmin(const weft_reduce_args *args);

typedef struct weft_var_args {
    weft_tensor x;
    weft_axes axes;
    bool keepdim;
    double correction; /* sum of squares / (n - correction); default 0, 1 for the sample estimate */
    int end_;
} weft_var_args;
WEFT_API weft_tensor weft_var(const weft_var_args *args);
WEFT_API weft_tensor weft_std(const weft_var_args *args);

typedef struct weft_norm_args {
    weft_tensor x;
    weft_axes axes;
    bool keepdim;
    double
        order; /* (sum |x|^order)^(1/order); default 2; INFINITY: largest |x|, -INFINITY: smallest;
                     WEFT_ZERO: how many are not 0. Of nothing: 0 */
    int end_;
} weft_norm_args;
WEFT_API weft_tensor weft_norm(const weft_norm_args *args);

/* Running sum and product along an axis, in the type that weft_sum has by default: i64 for integers and bool. Floats run in
 * f64, in the order of docs/reductions.md, and are rounded once: running sums of values that are not negative never
 * fall. Rank 0 counts as one element, axis 0 or -1. */
WEFT_API weft_tensor weft_cumsum(weft_tensor x, int axis);
WEFT_API weft_tensor weft_cumprod(weft_tensor x, int axis);

/* bool: |a - b| <= atol + rtol * |b|, as in NumPy; equal infinities are close. */
typedef struct weft_isclose_args {
    weft_tensor a, b;
    double rtol;    /* default 1e-5; WEFT_ZERO: 0 */
    double atol;    /* default 1e-8; WEFT_ZERO: 0 */
    bool equal_nan; /* NaN is close to NaN */
    int end_;
} weft_isclose_args;
WEFT_API weft_tensor weft_isclose(const weft_isclose_args *args);
/* Whether all are: one bool. */
WEFT_API weft_tensor weft_allclose(const weft_isclose_args *args);

/* -- matrix product --------------------------------------------------------------------------------------- */
/* NumPy's matmul: [.., m, k] x [.., k, n] -> [.., m, n], leading axes broadcast; rank 1 is a row on the
 * left, a column on the right. Operands are promoted to one type. */
WEFT_API weft_tensor weft_matmul(weft_tensor a, weft_tensor b);
/* Einstein's sums (1916), in the notation of NumPy and PyTorch: weft_einsum("bij,bjk->bik", x, y); operands in an array:
 * (weft_einsum)(equation, operands, n). A term per operand names its axes by letters; a letter twice in a term takes the
 * diagonal, `...` stands for leading axes that broadcast. The result has the axes behind `->`, in that order; without an
 * arrow those of the ellipsis, then the letters that occur once, in the order of the alphabet (capitals first). All other
 * axes are added up. Extents of one letter are equal, or 1, which broadcasts. Operands are promoted to one type, which is
 * the result's (sums of bool: i64), and multiplied from left to right, by weft_matmul where axes are shared and added up.
 * A view where there is nothing to add or multiply. WEFT_EINVALID for what is no equation, or has other than n terms;
 * WEFT_ESHAPE where it does not fit the operands, or some product would have more than 16 axes. */
WEFT_API weft_tensor weft_einsum(const char *equation, const weft_tensor *operands, int n);

/* -- element type and copies ------------------------------------------------------------------------------ */
/* The values as dtype, rounded once to nearest even; float to integer truncates and saturates, NaN
 * becomes 0. Already of that type: a view. */
WEFT_API weft_tensor weft_cast(weft_tensor x, weft_dtype dtype);
WEFT_API weft_tensor weft_clone(weft_tensor x);      /* a row-major copy */
WEFT_API weft_tensor weft_contiguous(weft_tensor x); /* a view if x is row-major, else a copy */
/* Images x[n, c, h, w] with the channels of a pixel side by side in memory (strides h*w*c, 1, w*c, c), as PyTorch's
 * memory_format=torch.channels_last: a view if they lie so, else a copy. Images of one pixel, and tensors without elements,
 * are row-major instead, as by weft_contiguous. Shape and values are x's, gradients flow through. Rows that follow keep
 * that order (docs/channels-last.md; on a GPU their results are row-major) and compute the same bits as with row-major
 * ones; convolutions are faster, as they compute so inside. WEFT_ESHAPE if x has not rank 4. */
WEFT_API weft_tensor weft_channels_last(weft_tensor x);
/* A view that gradients do not flow through, whatever was or will be written in place to x, and neither through views of it. What is
 * written to them with a history is theirs, and x keeps its own, as in PyTorch: the memory is shared, histories are not (but by
 * views detached from the same memory before the write, which PyTorch keeps apart, too). A backward that needs a value which was
 * overwritten so is an error, as after any write. */
WEFT_API weft_tensor weft_detach(weft_tensor x);
/* x on `device` (the array API's to_device); there already: a view, and gradients flow through. Operands of one op
 * are on one device: nothing is moved behind your back. WEFT_EUNSUPPORTED, with what is missing, if the device is not
 * there; WEFT_EINVALID for what is no device. */
WEFT_API weft_tensor weft_to(weft_tensor x, weft_device device);

/* -- views ------------------------------------------------------------------------------------------------ */
/* Same elements in row-major order; one extent may be -1. A view where strides allow, else a copy. */
WEFT_API weft_tensor weft_reshape(weft_tensor x, weft_shape shape);
/* Axes from..to become one (both included). As weft_reshape. */
WEFT_API weft_tensor weft_flatten(weft_tensor x, int from WEFT_OR(0), int to WEFT_OR(-1));
WEFT_API weft_tensor weft_squeeze(
    weft_tensor x,
    weft_axes axes WEFT_OR(
        weft_axes())); /* drops axes of extent 1; none given: all such; another extent: WEFT_ESHAPE */
WEFT_API weft_tensor
weft_unsqueeze(weft_tensor x, int axis); /* new axis of extent 1 before `axis` of the result */
WEFT_API weft_tensor weft_transpose(weft_tensor x, int axis0, int axis1); /* swaps two axes */
WEFT_API weft_tensor weft_permute(weft_tensor x,
                                  weft_axes axes); /* axis i of the result is axes[i] of x */
/* Axes of extent 1 are repeated, leading axes added; -1 keeps an extent. */
WEFT_API weft_tensor weft_expand(weft_tensor x, weft_shape shape);
WEFT_API weft_tensor weft_broadcast_to(weft_tensor x, weft_shape shape); /* the same without -1 */
/* x[start:stop:step] of Python along an axis: negative counts from the end, out of range is clipped,
 * WEFT_OMIT leaves one out; step may be negative, not 0. */
WEFT_API weft_tensor weft_slice(weft_tensor x, int axis, int64_t start,
                                int64_t stop WEFT_OR(WEFT_OMIT), int64_t step WEFT_OR(1));
/* `length` elements from `start` (may be negative); both are checked, not clipped. */
WEFT_API weft_tensor weft_narrow(weft_tensor x, int axis, int64_t start, int64_t length);
/* Element `index` (may be negative) of an axis; the axis goes. */
WEFT_API weft_tensor weft_select(weft_tensor x, int axis, int64_t index);
/* NumPy's basic indexing: x[3, ..., 1::2, np.newaxis] is weft_index(x, weft_at(3), WEFT_ELLIPSIS, weft_span(1, WEFT_OMIT, 2),
 * WEFT_NEW_AXIS). Terms take the axes of x from the first on; an ellipsis stands for as many whole axes as are left (at most
 * one; without it they follow at the end), a new axis has extent 1. Terms in an array: (weft_index)(x, terms, n). */
WEFT_API weft_tensor weft_index(weft_tensor x, const weft_index_term *terms, int n);
WEFT_API weft_tensor weft_flip(
    weft_tensor x, weft_axes axes WEFT_OR(weft_axes())); /* reversed along axes; none given: all */
/* Any extents and strides (elements, from x's first one + offset) that stay inside the memory. Gradients flow to the elements that
 * x has; WEFT_EGRAD if they flow and its strides may put several indices on one element, as after weft_expand. */
WEFT_API weft_tensor weft_as_strided(weft_tensor x, weft_shape shape, weft_shape strides,
                                     int64_t offset WEFT_OR(0));
/* Elements (i, i + offset) of axes axis0, axis1, which go; the diagonal is the new last axis. */
WEFT_API weft_tensor weft_diagonal(weft_tensor x, int64_t offset WEFT_OR(0), int axis0 WEFT_OR(0),
                                   int axis1 WEFT_OR(1));
/* Windows of `size` every `step` along an axis; the window is a new last axis. If gradients flow
 * and x's strides may put several indices on one element (weft_expand, windows that overlap): windows of a copy, which is read-only. */
WEFT_API weft_tensor weft_unfold(weft_tensor x, int axis, int64_t size, int64_t step WEFT_OR(1));
/* Views of sizes[i] along an axis into out[0..n); the sizes sum to its extent. On failure empty handles. */
WEFT_API weft_status weft_split(weft_tensor x, int axis, const int64_t *sizes, int n,
                                weft_tensor *out);
/* n >= 1 views as equal as can be (the first ones are longer by 1, the last may be empty), out[0..n). On failure empty handles. */
WEFT_API weft_status weft_chunk(weft_tensor x, int axis, int n, weft_tensor *out);

/* -- movement: copies ------------------------------------------------------------------------------------- */
/* 1 to 65535 tensors end to end along an axis (the same extents elsewhere), promoted to one type; more are WEFT_EUNSUPPORTED. In C,
 * weft_concat(WEFT_LIST(a, b, c), 0). */
WEFT_API weft_tensor weft_concat(const weft_tensor *parts, int n, int axis WEFT_OR(0));
WEFT_API weft_tensor weft_stack(const weft_tensor *parts, int n,
                                int axis WEFT_OR(0)); /* along a new axis */
/* before[i] and after[i] elements of `value` around axis i (both of x's rank; >= 0). */
WEFT_API weft_tensor weft_pad(weft_tensor x, weft_shape before, weft_shape after,
                              double value WEFT_OR(0));
/* The same with elements of x: those beyond its first and last element, which stand in the mirror (reflect: fewer than an
 * axis has), the first and last ones repeated (replicate: NumPy's edge), or x over again (circular: NumPy's wrap, at most
 * once). An axis that is padded has elements. */
typedef enum weft_padding {
    WEFT_PAD_REFLECT = 0,
    WEFT_PAD_REPLICATE,
    WEFT_PAD_CIRCULAR
} weft_padding;
WEFT_API weft_tensor weft_pad_mode(weft_tensor x, weft_shape before, weft_shape after,
                                   weft_padding mode WEFT_OR(WEFT_PAD_REFLECT));
/* Element i goes to (i + shifts[k]) mod extent along axes[k]. */
WEFT_API weft_tensor weft_roll(weft_tensor x, weft_shape shifts, weft_axes axes);
WEFT_API weft_tensor
weft_tril(weft_tensor x,
          int64_t diagonal WEFT_OR(0)); /* of the last two axes: column <= row + diagonal, else 0 */
WEFT_API weft_tensor weft_triu(weft_tensor x,
                               int64_t diagonal WEFT_OR(0)); /* column >= row + diagonal, else 0 */
WEFT_API weft_tensor weft_tile(weft_tensor x,
                               weft_shape reps); /* NumPy's tile: x side by side, reps[i] times */
WEFT_API weft_tensor weft_repeat(weft_tensor x, int64_t n,
                                 int axis); /* each element n times in a row */

/* -- indexing -----------------------------------------------------------------------------------------------
 * Indices are i64 or i32; negative ones count from the end; one out of range is WEFT_EINDEX. */
/* out[.., i, ..] = x[.., indices[.., i, ..], ..]: indices has x's rank, and off the axis extents of x's or smaller (those
 * elements only). The result has the shape of indices. The same as gather. */
WEFT_API weft_tensor weft_take_along(weft_tensor x, int axis, weft_tensor indices);
WEFT_API weft_tensor weft_gather(weft_tensor x, int axis, weft_tensor indices);
/* Slices of x along an axis: the axis is replaced by the axes of indices (any rank). */
WEFT_API weft_tensor weft_index_select(weft_tensor x, int axis, weft_tensor indices);
/* Rows weight[indices]: [n, e] and [..] -> [.., e]. */
WEFT_API weft_tensor weft_embedding(weft_tensor weight, weft_tensor indices);
/* A copy of base with values[..] added at indices[..] along an axis. Indices and values have one shape, base's rank and off the
 * axis extents of base's or smaller; values have base's dtype. Adds in index order: the same bits at any number of threads. */
WEFT_API weft_tensor weft_scatter_add(weft_tensor base, int axis, weft_tensor indices,
                                      weft_tensor values);
/* A copy of base with slices of values added, in index order: the adjoint of weft_index_select. values: base's dtype, and its
 * shape with the axis replaced by the axes of indices. */
WEFT_API weft_tensor weft_index_add(weft_tensor base, int axis, weft_tensor indices,
                                    weft_tensor values);
/* NumPy's x[i, j, ..] by n tensors of indices, which broadcast, for the first n axes of x: [the indices, the other axes].
 * In C, weft_index_get(x, WEFT_LIST(i, j)). */
WEFT_API weft_tensor weft_index_get(weft_tensor x, const weft_tensor *indices, int n);
/* x with values, which broadcast to what weft_index_get has there, in these places: x[i, j, ..] = values of a copy. Of
 * several values for one place the last counts (in row-major order of the indices), or (accumulate) all are added to x in
 * that order. Values go to x's type where that loses no kind, else WEFT_EDTYPE. weft_index_put(x, WEFT_LIST(i, j), values). */
WEFT_API weft_tensor weft_index_put(weft_tensor x, const weft_tensor *indices, int n,
                                    weft_tensor values, bool accumulate WEFT_OR(false));
/* [..] of integers -> [.., classes] of 0 and 1; negative ones count from the end, as indices do everywhere, others
 * outside of [0, classes) are an error. dtype default: f32. */
WEFT_API weft_tensor weft_one_hot(weft_tensor indices, int64_t classes,
                                  weft_dtype dtype WEFT_OR(WEFT_F32));
/* Sorted along an axis, stable, NaN above all numbers (last, or first if descending); i64 indices into x. Either
 * result may be NULL. Rank 0 sorts as one element, axis 0 or -1. */
WEFT_API weft_status weft_sort(weft_tensor x, int axis, bool descending, weft_tensor *values,
                               weft_tensor *indices WEFT_OR(nullptr));
WEFT_API weft_tensor weft_argsort(weft_tensor x, int axis WEFT_OR(-1),
                                  bool descending WEFT_OR(false));
/* The k largest (or smallest) along an axis, in order, k in [0, extent]; their i64 indices into x. NaN as in weft_sort. Either
 * result may be NULL. Rank 0: k is 1. */
WEFT_API weft_status weft_topk(weft_tensor x, int64_t k, int axis, bool smallest,
                               weft_tensor *values, weft_tensor *indices WEFT_OR(nullptr));

/* -- what depends on values -----------------------------------------------------------------------------------
 * These read their operands, where nothing else is said: they wait for a device and break a trace. Results are on the operand's device. */
/* i64 [n, rank of x]: where x is not 0, in row-major order. */
WEFT_API weft_tensor weft_nonzero(weft_tensor x);
/* [n]: the elements of x where mask (bool) is true, in row-major order; both broadcast. Gradients flow to x. */
WEFT_API weft_tensor weft_masked_select(weft_tensor x, weft_tensor mask);
/* The distinct elements of x in ascending order [n], NaN last (as one); for each element of x the index of its own (x's
 * shape); how often each occurs [n]. i64 both; each result may be NULL. No gradients. */
WEFT_API weft_status weft_unique(weft_tensor x, weft_tensor *values,
                                 weft_tensor *inverse WEFT_OR(nullptr),
                                 weft_tensor *counts WEFT_OR(nullptr));
/* i64 of values' shape: where each would go into `sorted` [n], ascending, to keep it so: before its equals, or after them
 * (right). Or row by row: `sorted` [.., n] and values [.., m] with the same leading extents. NaN is above all numbers. Order is
 * not checked. In a trace and on a device nothing is read: some rows for each bit of an index. */
WEFT_API weft_tensor weft_searchsorted(weft_tensor sorted, weft_tensor values,
                                       bool right WEFT_OR(false));

/* -- creation -----------------------------------------------------------------------------------------------
 * WEFT_DTYPE_DEFAULT is f32 unless said otherwise. A value for an integer type is truncated; one that the type does
 * not hold is WEFT_EINVALID, as in weft_fill_, weft_arange, weft_linspace, weft_randint. Random numbers: weft/random.h. */
WEFT_API weft_tensor weft_zeros(weft_shape shape, weft_dtype dtype WEFT_OR(WEFT_F32));
WEFT_API weft_tensor weft_ones(weft_shape shape, weft_dtype dtype WEFT_OR(WEFT_F32));
WEFT_API weft_tensor weft_full(weft_shape shape, double value, weft_dtype dtype WEFT_OR(WEFT_F32));
/* Of x's shape, dtype and device. */
WEFT_API weft_tensor weft_zeros_like(weft_tensor x);
WEFT_API weft_tensor weft_ones_like(weft_tensor x);
WEFT_API weft_tensor weft_full_like(weft_tensor x, double value);
/* start, start + step, ... before stop; ceil((stop - start) / step) elements. Default dtype: i64 if all
 * three are whole numbers, else f32. Of an integer type start and step are whole (WEFT_EINVALID). */
WEFT_API weft_tensor weft_arange(double start, double stop, double step WEFT_OR(1),
                                 weft_dtype dtype WEFT_OR(WEFT_DTYPE_DEFAULT));
/* n >= 0 evenly spaced values, both ends included; n = 1: start. */
WEFT_API weft_tensor weft_linspace(double start, double stop, int64_t n,
                                   weft_dtype dtype WEFT_OR(WEFT_F32));
/* [rows, columns] with 1 on a diagonal (offset > 0: above the main one). */
WEFT_API weft_tensor weft_eye(int64_t rows, int64_t columns, int64_t offset WEFT_OR(0),
                              weft_dtype dtype WEFT_OR(WEFT_F32));
/* The 0-d tensor of a value. */
WEFT_API weft_tensor weft_scalar(double value, weft_dtype dtype WEFT_OR(WEFT_F32));

#ifdef __cplusplus
}
#endif

#endif
