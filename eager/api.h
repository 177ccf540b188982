/*
 * eager/api.h -- what the public functions share: looking at operands, checking arguments, errors.
 *
 * Invariants: public functions check what an op row cannot (NULL pointers, axes that count from the
 * end, -1 extents) and hand normalised attributes to dispatch; a failed check is one recorded error;
 * an operand that is an error already passes through unchanged.
 *
 * Included first in its file: the library's own calls carry no sites, and public functions are defined
 * under parenthesised names because ops.h has macros of the same name.
 */
#ifndef EAGER_API_H
#define EAGER_API_H

#define WEFT_NO_SITES

#include "eager/tensor.h"
#include "weft/weft.h"

/* An operand under inspection. */
typedef struct wf_arg {
    wf_ctx *c; /* NULL: no memory for a context */
    const char *op;
    weft_tensor x;
    wf_type type;
    int device;                   /* eager/device.h */
    int64_t strides[WF_MAX_RANK]; /* of a tensor; zero for scalars */
    weft_tensor error;            /* the empty handle to return after a false */
} wf_arg;

/* Looks at x for op. False: a->error is what to return. Scalars have rank 0. */
bool wf_arg_open(wf_arg *a, const char *op, weft_tensor x);
/* Records an error about a->x; returns false. hint may be NULL. */
WF_COLD bool wf_arg_fail(wf_arg *a, int code, const char *hint, const char *fmt, ...)
    WF_PRINTF(4, 5);
/* axis counted from the end if negative -> [0, rank). */
bool wf_arg_axis(wf_arg *a, int rank, int64_t axis, int64_t *out);
/* Ops along one axis take a tensor of rank 0 as one element, axis 0 or -1, as NumPy and PyTorch do: x becomes [1]. */
static inline bool wf_arg_is_point(const wf_arg *a, int axis)
{
    return a->type.rank == 0 && (axis == 0 || axis == -1);
}
/* Axes normalised and distinct, in the order given; n < 0 counts as none. */
bool wf_arg_axes(wf_arg *a, const weft_axes *axes, int64_t *out, int *n);
/* 0 <= s->n <= 16. */
bool wf_arg_shape(wf_arg *a, const weft_shape *s);
/* C took a bare number for the shape's first member. (Addresses are not small; what is left of a stack may be: weft/tensor.h.) */
static inline bool wf_is_bare(const weft_shape *s)
{
    return s->bare_number && (intptr_t)s->bare_number == (int32_t)(intptr_t)s->bare_number;
}
/* The same of a shape that is about no operand: what it is of op's error is recorded. */
bool wf_api_shape_ok(const char *op, const weft_shape *s);

/* An error of op that is about no operand. */
WF_COLD weft_tensor wf_api_error(const char *op, int code, const char *fmt, ...) WF_PRINTF(3, 4);
WF_COLD weft_tensor wf_api_null(const char *op, const char *what);
/* An empty handle that carries the newest error of this thread. */
WF_COLD weft_tensor wf_api_last_error(void);
/* weft_data; the caller's site stays for the next read (weft_here). */
const void *wf_api_data(weft_tensor t);
/* The same, for a function `op`, by whose name an error and a break of a trace are told. */
const void *wf_api_read(const char *op, weft_tensor t);

/* Element type of a handle: tensors' own, scalars' default; WEFT_DTYPE_DEFAULT if it is dead, empty or
 * absent (dispatch will say so). *weak: it is a scalar. */
int wf_api_dtype(weft_tensor t, bool *weak);
/* DEFAULT or one of the enum. */
static inline bool wf_api_dtype_ok(weft_dtype dt)
{
    return (unsigned)dt < WEFT_DTYPE_COUNT;
}
/* v, truncated, as a value of dt, no float type; any but 0 is true. False: dt does not hold it, and op's error is in *error. */
bool wf_api_whole(const char *op, double v, int dt, int64_t *out, weft_tensor *error);
/* Truncated towards zero and saturated; NaN gives 0. */
static inline int64_t wf_f64_to_i64(double v)
{
    return v >= 9223372036854775808.0    ? INT64_MAX
           : v >= -9223372036854775808.0 ? (int64_t)v
           : v != v                      ? 0
                                         : INT64_MIN;
}
/* Casts the n tensors to the type they promote to; scalars, which are weak, become 0-d tensors of it.
 * Handles that are not live are left for dispatch. */
void wf_api_unify(int n, weft_tensor *t);
/* Would it leave them? That is so if the first is a tensor, and the others are of its type or absent. */
bool wf_api_alike(int n, const weft_tensor *t);
/* The 0-d tensor of a scalar handle as element type dt: cast to it. */
weft_tensor wf_api_scalar(weft_tensor t, int dt);
/* Is a^b written in other rows than its own; a^b then, errors as pow's. */
bool wf_api_power_apart(weft_tensor a, weft_tensor b);
weft_tensor wf_api_power(weft_tensor a, weft_tensor b);
weft_status wf_api_power_(weft_tensor x, weft_tensor b);
/* op of x, a row with one result whose one attribute is an axis. */
weft_tensor wf_api_along(wf_op op, weft_tensor x, int axis);
/* A fresh handle on the same memory and type: what an op returns that has nothing to do. */
weft_tensor wf_api_alias(weft_tensor x, const wf_type *type);
/* x with these extents (numel is the caller's business). */
weft_tensor wf_api_reshape(weft_tensor x, int rank, const int64_t *dims);
/* A row-major tensor of this type in memory of the host, uninitialised, and where it lies. WEFT_NONE: no memory, or no such
 * size, of which nothing is recorded; or an error that is. */
weft_tensor wf_api_new(wf_ctx *c, const wf_type *t, void **data);
/* weft_from_blob, with op in its messages, on memory of a device. */
weft_tensor wf_api_blob(const char *op, const weft_blob_args *args, int device);
/* Element at p as a double. */
double wf_element_f64(int dtype, const void *p);
/* Until wf_called_end, errors of ops are about the call `name` on its n operands; the outermost call counts. */
static inline void wf_called_begin(wf_called *w, const char *name, int n, const weft_tensor *src)
{
    *w = (wf_called){.c = wf_ctx_get(), .name = name, .n = n, .src = src};
    if (w->c && !w->c->called) {
        w->c->called = w;
    }
}
/* The same of a function that writes: a wf_write, or an op for the function of its name. */
static inline void wf_called_write(wf_called *w, unsigned write, int n, const weft_tensor *src)
{
    wf_called_begin(w, NULL, n, src);
    w->write = write;
}
static inline weft_tensor wf_called_end(wf_called *w, weft_tensor r)
{
    if (w->c && w->c->called == w) {
        w->c->called = NULL;
    }
    return r;
}
static inline weft_status wf_called_done(wf_called *w, weft_status rc)
{
    wf_called_end(w, WEFT_NONE);
    return rc;
}
/* Declares w, begun, for a call on these operands. */
#define WF_CALLED(w, name, ...)                                                                    \
    const weft_tensor w##_src[] = {__VA_ARGS__};                                                   \
    wf_called w;                                                                                   \
    wf_called_begin(&w, name, (int)(sizeof w##_src / sizeof *w##_src), w##_src)
#define WF_CALLED_WRITE(w, write, ...)                                                             \
    const weft_tensor w##_src[] = {__VA_ARGS__};                                                   \
    wf_called w;                                                                                   \
    wf_called_write(&w, write, (int)(sizeof w##_src / sizeof *w##_src), w##_src)

/* The whole empty handle (not an error) means "not given". */
static inline weft_tensor wf_optional(weft_tensor t)
{
    return wf_is_none(t) ? WF_ABSENT : t;
}
/* An option whose 0 means dflt and WEFT_ZERO means 0. */
static inline double wf_option(double v, double dflt)
{
    return v == 0 ? dflt : v == WEFT_ZERO ? 0 : v;
}

#endif
