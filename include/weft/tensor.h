/*
 * weft/tensor.h -- making tensors from memory, reading them, asking about them, printing them.
 *
 * Queries take any live handle of this thread or kept handle. Given a dead handle they record an
 * error and return the value named with each.
 */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include "weft/core.h"

/* -- extents and axis sets --------------------------------------------------------------------------
 * A value of up to 16 integers. weft_shape(64, 784), weft_shape() for rank 0, weft_axes(0, -1). A
 * zero-initialised one is empty: a shape of rank 0; as a set of axes "the default" (for reductions:
 * all axes). n = -1 is the result of a query that failed.
 *
 * Where one is the first option, C would take bare numbers for its members: weft_rand(2, 3) is no shape, and weft_sum(x, 1)
 * names no axis. The first member makes compilers say so (-Wint-conversion, which is on by default, an error in newer
 * ones), and calls refuse them as WEFT_EINVALID; all but a lone 0, which cannot be told from an option left out, but for
 * -Wmissing-braces, a part of gcc's -Wall. Who sets n and v by hand begins with weft_shape() or {0}: a first member that
 * nobody set may look like a number. */
struct weft_needs_weft_shape_or_weft_axes;
typedef struct weft_shape {
    const struct weft_needs_weft_shape_or_weft_axes *bare_number; /* always NULL */
    int64_t n;
    int64_t v[WEFT_MAX_RANK];
#ifdef __cplusplus
    weft_shape() = default;
    template <class... T>
    weft_shape(int64_t first, T... rest)
        : bare_number(nullptr),
          n(1 + static_cast<int64_t>(sizeof...(rest))), v{first, static_cast<int64_t>(rest)...}
    {
        static_assert(sizeof...(rest) < WEFT_MAX_RANK, "at most 16 extents or axes");
    }
#endif
} weft_shape;
typedef weft_shape weft_axes;

/* The empty set of axes, said on purpose: a reduction over no axis. */
#define WEFT_NO_AXES weft_no_axes_()

/* n > 16 is kept as it is, so that the op that gets it can refuse it. */
static inline weft_shape weft_shape_from(int64_t n, const int64_t *v)
{
    weft_shape s;
    int64_t i;
    s.bare_number = NULL;
    s.n = n;
    for (i = 0; i < WEFT_MAX_RANK; i++) {
        s.v[i] = i < n ? v[i] : 0;
    }
    return s;
}
static inline weft_axes weft_no_axes_(void)
{
    weft_axes s = weft_shape_from(0, NULL);
    s.n = -1;
    return s;
}

#ifndef __cplusplus
#define WEFT_INTS_(...)                                                                            \
    weft_shape_from((int64_t)(sizeof((const int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1,    \
                    (const int64_t[]){0, __VA_ARGS__} + 1)
#define weft_shape(...) WEFT_INTS_(__VA_ARGS__)
#define weft_axes(...) WEFT_INTS_(__VA_ARGS__)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* -- tensors on given memory ------------------------------------------------------------------------ */

/* A new tensor with a copy of the row-major elements at data (numel of them, of type dtype; NULL is
 * allowed when there are none), in the innermost scope, on the thread's default device. WEFT_F32 for WEFT_DTYPE_DEFAULT;
 * bytes of bools are 0 or 1. WEFT_ESHAPE: a negative extent, or more than 16. */
WEFT_API weft_tensor weft_from_data(const void *data, weft_shape shape,
                                    weft_dtype dtype WEFT_OR(WEFT_F32));

/* A tensor on memory that stays yours: nothing is copied, the time does not depend on the size, and
 * writes are visible both ways. `deleter(arg)` runs exactly once, when the last tensor, view or saved
 * value on the memory is gone (any thread). It may call weft; one that runs in the middle of an op, of a backward or of a
 * trace's end finds recording off, and may there not end scopes and regions, nor keep or free tensors of scopes, that were there
 * before (WEFT_EINVALID). When the call fails it does not run. The tensor is of the innermost scope, on the CPU. WEFT_EINVALID: data is
 * NULL (unless there are no elements), or not aligned; WEFT_ESHAPE: extents and strides leave the address space. Called
 * weft_from_blob(p, weft_shape(2, 3), .read_only = true), or (weft_from_blob)(&args) with a struct of yours: without the
 * parentheses the struct would be the memory, of a tensor without axes. */
typedef struct weft_blob_args {
    void *data; /* element [0, ..., 0]; aligned to the element size */
    weft_shape shape;
    weft_dtype dtype;       /* default f32 */
    const int64_t *strides; /* per axis, in elements, may be 0 or negative; NULL: row-major */
    void (*deleter)(void *arg);
    void *arg;
    bool read_only; /* in-place ops and weft_data_mut refuse it */
    int end_;
} weft_blob_args;
WEFT_API weft_tensor weft_from_blob(const weft_blob_args *args);

/* -- reading ---------------------------------------------------------------------------------------- */

/* Address of the first element, valid while a tensor or view on this memory lives. No copy: other
 * elements are at weft_stride apart. NULL on error, also where the memory is a device's (weft_to). Reads only: writing through
 * it is not seen by the version counter that protects gradients; use weft_data_mut for that. */
WEFT_API const void *weft_data(weft_tensor t);
/* The same for writing: counts as an in-place write now. NULL also for read-only memory (WEFT_EINVALID) and, where recording
 * is on, for values that gradients flow through (WEFT_EGRAD; weft_copy_ records its write). */
WEFT_API void *weft_data_mut(weft_tensor t);
/* *out := the value of a tensor with one element (any rank), or of a scalar, converted to double. WEFT_ESHAPE for more or no
 * elements; on failure *out is left alone. */
WEFT_API weft_status weft_item(weft_tensor t, double *out);
/* The same as a result: NaN on error. */
WEFT_API double weft_item_f64(weft_tensor t);
/* As an integer: exact for integer tensors, truncated towards zero and saturated for floating-point
 * ones, 0 for NaN. INT64_MIN on error. */
WEFT_API int64_t weft_item_i64(weft_tensor t);
/* Copies all elements in row-major order to dst[n], converted to dtype (default: the tensor's).
 * WEFT_ESHAPE unless n is the number of elements. */
WEFT_API weft_status weft_to_array(weft_tensor t, void *dst, int64_t n,
                                   weft_dtype dtype WEFT_OR(WEFT_DTYPE_DEFAULT));

/* -- queries ---------------------------------------------------------------------------------------- */

WEFT_API int weft_rank(weft_tensor t);                 /* -1 on error */
WEFT_API weft_shape weft_shape_of(weft_tensor t);      /* .n = -1 on error */
WEFT_API int64_t weft_dim(weft_tensor t, int axis);    /* axis may be negative; -1 on error */
WEFT_API int64_t weft_stride(weft_tensor t, int axis); /* in elements, 0 on error */
WEFT_API weft_dtype weft_dtype_of(weft_tensor t);      /* WEFT_DTYPE_DEFAULT on error */
WEFT_API weft_device weft_device_of(weft_tensor t);    /* scalars: the CPU; .kind = -1 on error */
WEFT_API int64_t weft_numel(weft_tensor t);            /* -1 on error */
WEFT_API int64_t weft_nbytes(weft_tensor t);           /* elements times their size; -1 on error */
/* Distance in elements from the start of the memory to the first element; -1 on error. */
WEFT_API int64_t weft_offset(weft_tensor t);
/* Row-major without gaps; false on error. */
WEFT_API bool weft_is_contiguous(weft_tensor t);
/* Images of rank 4 whose channels lie side by side, pixels without gaps: what weft_channels_last makes. False on error, for
 * tensors without elements and for images of one pixel, which lie the same both ways. */
WEFT_API bool weft_is_channels_last(weft_tensor t);
/* In-place writes to the tensor's memory so far, through whichever view; 0 on error. */
WEFT_API uint32_t weft_write_count(weft_tensor t);
/* Both are on the same memory block (they may still touch different elements of it), or on imported memory
 * (weft_from_blob, DLPack) that reaches into the other's. */
WEFT_API bool weft_shares_memory(weft_tensor a, weft_tensor b);

/* A name for error messages, reports and listings; copied. NULL removes it. */
WEFT_API weft_status weft_set_name(weft_tensor t, const char *name);
/* "" when there is none or t is dead, never NULL. The tensor's; valid until it goes or is renamed. */
WEFT_API const char *weft_name(weft_tensor t);
/* "file:line" of the call that made t; "" when it is not known, never NULL. Valid as long as the process. */
WEFT_API const char *weft_site(weft_tensor t);
/* For debuggers and logs: type, device, name and site of whatever handle t is, dead and empty ones too, and below
 * them the elements as weft_print shows them where they lie in host memory. Never an error, never NULL; breaks no trace and
 * waits for no device. The text is the thread's, until its next call. */
WEFT_API const char *weft_describe(weft_tensor t);

/* -- printing ---------------------------------------------------------------------------------------
 * As NumPy prints: aligned columns, 4 digits after the point (scientific when the range asks for it),
 * `...` inside axes longer than 6 once there are more than 1000 elements. dtype and shape follow, then
 * "requires_grad" for leaves that do, "recorded" for results that gradients flow through. Printing reads: it waits for a device
 * and breaks a trace. WEFT_EIO: the text cannot be written; WEFT_EINVALID: a file or buffer is NULL. */
WEFT_API weft_status weft_print(weft_tensor t); /* to stdout, with a newline */
WEFT_API weft_status weft_fprint(FILE *out, weft_tensor t);
/* Writes the text to buf[size], truncated and terminated; returns the length of the whole text
 * (buf may be NULL when size is 0), or -1 on error. */
WEFT_API int64_t weft_to_string(weft_tensor t, char *buf, size_t size);

#ifdef __cplusplus
}
#endif

/* -- the caller's site ------------------------------------------------------------------------------- */
/* WEFT_NO_SITES before the include leaves call sites out. */
#ifdef WEFT_NO_SITES
#define WEFT_T_(...) (__VA_ARGS__)
#define WEFT_S_(...) (__VA_ARGS__)
#define WEFT_R_(...) (__VA_ARGS__)
#else
#define WEFT_T_(...) weft_sited(WEFT_HERE, __VA_ARGS__)
#define WEFT_S_(...) weft_sited_status(WEFT_HERE, __VA_ARGS__)
/* Functions that read, or make tensors inside, say where they stand before they do: a read may break a trace
 * (weft/jit.h). */
#define WEFT_R_(...) (weft_here(WEFT_HERE), __VA_ARGS__)
#endif

#ifdef __cplusplus
inline weft_tensor weft_from_blob(void *data, weft_shape shape, weft_dtype dtype = WEFT_F32,
                                  const int64_t *strides = nullptr,
                                  void (*deleter)(void *) = nullptr, void *arg = nullptr,
                                  bool read_only = false)
{
    weft_blob_args a = {data, shape, dtype, strides, deleter, arg, read_only, 0};
    return weft_from_blob(&a);
}
WEFT_BY_STRUCT_(weft_tensor, weft_from_blob, weft_blob_args)
#endif

/* In C with the memory apart from the rest: memory alone, which a pointer to a weft_blob_args would be, does not compile. */
#ifdef __cplusplus
#define weft_from_blob(...) WEFT_T_((weft_from_blob)WEFT_ARGS_(weft_blob_args, __VA_ARGS__))
#else
#define weft_from_blob(memory, ...)                                                                \
    WEFT_T_((weft_from_blob)WEFT_ARGS_(weft_blob_args, memory, __VA_ARGS__))
#endif
#ifndef WEFT_NO_SITES
#define weft_from_data(...) WEFT_T_((weft_from_data)(__VA_ARGS__))
#define weft_data(...) WEFT_R_((weft_data)(__VA_ARGS__))
#define weft_data_mut(...) WEFT_R_((weft_data_mut)(__VA_ARGS__))
#define weft_item_f64(...) WEFT_R_((weft_item_f64)(__VA_ARGS__))
#define weft_item_i64(...) WEFT_R_((weft_item_i64)(__VA_ARGS__))
#define weft_to_string(...) WEFT_R_((weft_to_string)(__VA_ARGS__))
#define weft_item(...) WEFT_S_(WEFT_R_((weft_item)(__VA_ARGS__)))
#define weft_to_array(...) WEFT_S_(WEFT_R_((weft_to_array)(__VA_ARGS__)))
#define weft_set_name(...) WEFT_S_((weft_set_name)(__VA_ARGS__))
#define weft_print(...) WEFT_S_(WEFT_R_((weft_print)(__VA_ARGS__)))
#define weft_fprint(...) WEFT_S_(WEFT_R_((weft_fprint)(__VA_ARGS__)))
#endif

#endif
