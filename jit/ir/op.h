/*
 * jit/ir/op.h -- what the op table expands to: opcodes, row metadata, types, attributes, inference.
 *
 * A wf_type is dtype + extents. A wf_attr carries everything of a call that is not an operand, split
 * as the compiler needs it: `ints` are structure (axes, permutations, ranks: part of a plan's
 * identity), `dyn` and `flt` are numbered slots (sizes, starts, seeds, eps: never folded by value).
 * Attributes point to memory of the caller; recorders copy them.
 */
#ifndef JIT_IR_OP_H
#define JIT_IR_OP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "jit/ir/dtype.h"

typedef enum wf_op {
    WF_OP_INVALID = 0,
    /* Not rows: leaves and storage of recorded IR. */
    WF_OP_INPUT,  /* a tensor from outside the function */
    WF_OP_SCALAR, /* a scalar slot: 0-d value given at run time */
    WF_OP_CONST,  /* a number that is part of the function: 0-d */
    WF_OP_CUSTOM, /* user function with callbacks */
    WF_OP_RESULT, /* result 1, 2 of the multi-result op it names */
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_OP_##NAME,
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) WF_OP_##NAME,
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) WF_OP_##NAME,
#define PREDICATE(NAME, name, types, expr) WF_OP_##NAME,
#define COMPARE(NAME, name, types, expr) WF_OP_##NAME,
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) WF_OP_##NAME,
#define ROW(NAME, name, kind, min_src, max_src, n_dst, infer, exec, vjp, attributes) WF_OP_##NAME,
#include "jit/ir/ops.def"
    WF_OP_COUNT
} wf_op;

/* Elementwise rows come first: what is there for them alone is a table of WF_OP_ELEMENTWISE entries, by wf_op. */
enum {
    WF_ELEMENTWISE_BEFORE = WF_OP_RESULT,
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_ELEMENTWISE_##NAME,
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) WF_ELEMENTWISE_##NAME,
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) WF_ELEMENTWISE_##NAME,
#define PREDICATE(NAME, name, types, expr) WF_ELEMENTWISE_##NAME,
#define COMPARE(NAME, name, types, expr) WF_ELEMENTWISE_##NAME,
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) WF_ELEMENTWISE_##NAME,
#include "jit/ir/ops.def"
    WF_ELEMENTWISE_END
};
#define WF_OP_ELEMENTWISE ((wf_op)WF_ELEMENTWISE_END)
#define WF_IS_FIRST(NAME)                                                                          \
    _Static_assert((int)WF_ELEMENTWISE_##NAME == (int)WF_OP_##NAME,                                \
                   #NAME " stands behind a row that is not elementwise");
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) WF_IS_FIRST(NAME)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b) WF_IS_FIRST(NAME)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c) WF_IS_FIRST(NAME)
#define PREDICATE(NAME, name, types, expr) WF_IS_FIRST(NAME)
#define COMPARE(NAME, name, types, expr) WF_IS_FIRST(NAME)
#define CHOOSE(NAME, name, types, expr, vjp_a, vjp_b) WF_IS_FIRST(NAME)
#include "jit/ir/ops.def"
#undef WF_IS_FIRST

typedef enum wf_kind {
    WF_KIND_LEAF = 0,
    WF_KIND_UNARY,
    WF_KIND_BINARY,
    WF_KIND_TERNARY,
    WF_KIND_PREDICATE,
    WF_KIND_COMPARE,
    WF_KIND_CHOOSE, /* up to here: elementwise */
    WF_KIND_REDUCE,
    WF_KIND_VIEW,
    WF_KIND_MOVE,
    WF_KIND_INDEX,
    WF_KIND_CREATE,
    WF_KIND_OPAQUE,
    WF_KIND_ROWWISE,
    WF_KIND_GRAD
} wf_kind;

/* A row has at most MAX_SRC operands, but for those that take any number (max_src 0): MOST_SRC, which is checked when they
 * are called (wf_too_many), so that 16 bits hold every count. */
enum { WF_MAX_SRC = 8, WF_MAX_DST = 3, WF_MOST_SRC = 65535 };

/* One row's facts that are plain data. */
typedef struct wf_row {
    const char *name;
    uint8_t kind;    /* wf_kind */
    uint8_t min_src; /* operands */
    uint8_t max_src; /* 0 = unbounded */
    uint8_t ndst;
    uint16_t types; /* WF_DT_* mask of elementwise rows, 0 otherwise */
    uint16_t ulp;
    const char *attributes;
} wf_row;

extern const wf_row wf_rows[WF_OP_COUNT];

static inline bool wf_op_is_elementwise(wf_op op)
{
    int k = wf_rows[op].kind;
    return k >= WF_KIND_UNARY && k <= WF_KIND_CHOOSE;
}
/* The op of a name, WF_OP_INVALID if unknown. n = length of s. */
wf_op wf_op_parse(const char *s, size_t n);

typedef struct wf_type {
    uint8_t dtype;
    uint8_t rank;
    int64_t dims[WF_MAX_RANK];
} wf_type;

static inline bool wf_type_same_dims(const wf_type *a, const wf_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}
static inline bool wf_type_same(const wf_type *a, const wf_type *b)
{
    return a->dtype == b->dtype && wf_type_same_dims(a, b);
}

/* Elements of a type; -1 when the product or its bytes overflow int64. */
int64_t wf_type_numel(const wf_type *t);
static inline int64_t wf_type_bytes(const wf_type *t)
{
    return wf_type_numel(t) * (int64_t)wf_dtype_size(t->dtype);
}
/*
 * What a map names: elements *lo <= 0 to *hi >= 0, counted from the one it begins with, and 1 is returned. 0: none, whatever its
 * strides say; both are 0. -1: more than 64 bits count.
 */
int wf_map_reach(int rank, const int64_t *dims, const int64_t *strides, int64_t *lo, int64_t *hi);

#define WF_FLAG_KEEPDIM 1u
#define WF_FLAG_CAUSAL 1u
#define WF_FLAG_DESCENDING 1u
#define WF_FLAG_SMALLEST 1u
#define WF_FLAG_TRAINING 1u
#define WF_FLAG_DX_ONLY 1u
#define WF_FLAG_CHANNELS 2u
#define WF_FLAG_CEIL 1u
#define WF_FLAG_COUNT_PAD 2u
#define WF_FLAG_ADAPTIVE 4u

/* PAD_MODE, its integer */
typedef enum wf_pad_mode { WF_PAD_REFLECT, WF_PAD_REPLICATE, WF_PAD_CIRCULAR } wf_pad_mode;
/* The element of an axis of n that stands `at` places behind the first one; at < 0 or at >= n, as far as infer_move.c lets it. */
static inline int64_t wf_padded_from(int64_t mode, int64_t at, int64_t n)
{
    return mode == WF_PAD_REFLECT    ? (at < 0 ? -at : 2 * (n - 1) - at)
           : mode == WF_PAD_CIRCULAR ? (at < 0 ? at + n : at - n)
                                     : (at < 0 ? 0 : n - 1);
}

typedef struct wf_attr {
    uint8_t dtype; /* weft_dtype, WEFT_DTYPE_DEFAULT when unused */
    uint8_t flags; /* WF_FLAG_* of the op */
    uint8_t n_ints, n_dyn, n_flt;
    const int64_t *ints; /* structure */
    const int64_t *dyn;  /* integer slots */
    const double *flt;   /* scalar slots */
} wf_attr;

/* Room for an error sentence; the caller adds op, operands, shapes and sites. `rule` says what was
 * broken, `hint` what to do; both end without a newline. */
typedef struct wf_why {
    int code;       /* weft_status */
    bool too_large; /* WEFT_ENOMEM of sizes that no machine has memory for; else it has run out */
    char rule[256];
    char hint[192];
} wf_why;

/* Empty, without writing all of its text: calls are made, and handles freed, every few dozen nanoseconds. */
static inline void wf_why_clear(wf_why *why)
{
    why->code = 0;
    why->too_large = false;
    why->rule[0] = why->hint[0] = '\0';
}

#define WF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
/* Fills why (if not NULL) and returns code, for `return wf_fail(...)`. */
int wf_fail(wf_why *why, int code, const char *rule_fmt, ...) WF_PRINTF(3, 4);
/* The same plus a hint. */
void wf_hint(wf_why *why, const char *fmt, ...) WF_PRINTF(2, 3);
/* Fills why: op is called with n operands, more than WF_MOST_SRC. */
int wf_too_many(wf_why *why, wf_op op, int n);

/* Inference: operand types and attributes to result types. Returns 0, or a status with *why filled.
 * Never allocates. src[i].dtype == WEFT_DTYPE_DEFAULT marks an absent optional operand. */
typedef int (*wf_infer_fn)(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src,
                           wf_type *dst, wf_why *why);
int wf_infer(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src, wf_type *dst,
             wf_why *why);

/* NumPy broadcasting of b into a; 0 or WEFT_ESHAPE with why naming the failing axis. */
int wf_broadcast(wf_type *a, const wf_type *b, wf_why *why);

#endif
