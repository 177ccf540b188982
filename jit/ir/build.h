/*
 * jit/ir/build.h -- the folding builder: infer, fold, merge, append, in this order.
 *
 * Recording appends; passes build. A pass makes a new function by walking the old one and building
 * each instruction again over the new operands, so that every pass folds and merges.
 *
 * What may be merged or folded
 *  - Two instructions are one if op, operands, result type, dtype, flags and ints are equal, and they
 *    have no slots (dyn, flt) or the slots of one recorded instruction. Slots are arguments of a call:
 *    two that are equal today need not be equal in the next call of the same plan. RESHAPE, EXPAND
 *    and VJP are an exception by nature: their dyn are the extents of their result type.
 *  - SCALAR instructions are never merged. CONST are, by value.
 *  - The grad mode of recording is not part of an instruction once the adjoint exists: flags go.
 *  - Rules (fold.def) keep the type of the result; a rule that would not is refused.
 *
 * Requirement on callers: a plan is used only for recordings in which every instruction has the type it
 * had when the plan was built, and those dyn that wf_plan_is_key names (sizes, strides, steps).
 */
#ifndef JIT_IR_BUILD_H
#define JIT_IR_BUILD_H

#include "jit/ir/ir.h"

enum {
    WF_FOLD_EXACT = 1, /* the same bits for all operands */
    WF_FOLD_FAST = 2,  /* right in real arithmetic: for plans under fast math */
    WF_FOLD_MERGE = 4  /* equal instructions become one */
};

typedef enum wf_fold_rule {
#define FOLD(NAME, op, left, right, class, law) WF_FOLD_##NAME,
#include "jit/ir/fold.def"
    WF_FOLD_COUNT
} wf_fold_rule;

typedef struct wf_fold_info {
    const char *name, *law;
    uint16_t op, left, right; /* WF_OP_INVALID: any */
    uint8_t class;
} wf_fold_info;
extern const wf_fold_info wf_fold_rules[WF_FOLD_COUNT];

typedef struct wf_build {
    wf_fn *f; /* the function being made */
    int classes;
    /* Asked before each rewrite (a rule that fires, a merge); false leaves the instruction as it is.
     * NULL: always. what is the rule's name or "merge". */
    bool (*may)(void *ctx, const char *what);
    void *ctx;
    uint32_t rewrites;
    wf_val *head; /* chains of equal hashes, through wf_ins.next */
    uint32_t mask;
    const wf_fn *like;
    uint32_t *type_of; /* types of `like` + 1 in f */
} wf_build;

/* Starts a function with the name and symbols of `like`, and room for as many instructions. 0 or
 * WEFT_ENOMEM; wf_build_end must be called either way. */
int wf_build_begin(wf_build *b, const wf_fn *like, int classes);
/* The finished function, the caller's; NULL after a failed begin. */
wf_fn *wf_build_end(wf_build *b);

/* Leaves. 0: no memory. */
wf_val wf_build_input(wf_build *b, const wf_type *t, wf_val origin);
wf_val wf_build_scalar(wf_build *b, int kind, uint64_t bits, wf_val origin);
wf_val wf_build_const(wf_build *b, int kind, uint64_t bits);
/* One row. origin: the recorded instruction that its slots belong to (0: it has none). dst receives the
 * row's results, which may be values that exist already. 0 or a status with why. */
int wf_build_row(wf_build *b, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src,
                 wf_val origin, wf_val *dst, wf_why *why);
/* Instruction k (an index) of `from` over operands map[old value]; its results go to map. RESULT
 * instructions need no call. */
int wf_build_copy(wf_build *b, const wf_fn *from, uint32_t k, wf_val *map, wf_why *why);
/* The same of a leaf alone, to *dst, and of a row over other operands and with other attributes (NULL: its own), whose types
 * are inferred. */
int wf_build_leaf(wf_build *b, const wf_fn *from, uint32_t k, wf_val *dst, wf_why *why);
int wf_build_over(wf_build *b, const wf_fn *from, uint32_t k, const wf_attr *attr,
                  const wf_val *src, wf_val *dst, wf_why *why);
/* All of `from` that `live` marks (NULL: all), in order, outputs included. */
int wf_build_all(wf_build *b, const wf_fn *from, const uint8_t *live, wf_why *why);
/* *out: the same as a function of its own, without folding; NULL with a status. */
int wf_fn_copy(const wf_fn *from, const uint8_t *live, wf_fn **out, wf_why *why);

/* Are the slots of op implied by its result type, or absent? */
bool wf_op_has_free_slots(wf_op op, const wf_attr *attr);
/* The attributes of instruction k of an optimised function in the call that was recorded as `now`. */
const wf_attr *wf_attr_now(const wf_fn *f, uint32_t k, const wf_fn *now);
/* Do operands a and b of op commute in all bits? */
bool wf_op_commutes(wf_op op);

/* -- for the rules (fold.c) ---------------------------------------------------------------------- */
typedef struct wf_folding {
    const wf_fn *f;
    wf_op op;
    int nsrc;
    wf_val src[3];
    wf_attr attr;
    const wf_type *type;       /* of the result */
    int64_t ints[WF_MAX_RANK]; /* room for new attributes */
} wf_folding;

/* Is there any rule for op? */
bool wf_fold_has(wf_op op);
#define WF_FOLD_AGAIN UINT32_MAX
/* 0: no rule fits; WF_FOLD_AGAIN: *x was rewritten; else the value that x is. *rule: which. */
wf_val wf_fold_step(wf_folding *x, int classes, wf_fold_rule *rule);

#endif
