/*
 * jit/codegen_cpu/llvm_rows.h -- what a kernel over rows and the driver that runs it (llvm_rows.c) agree on.
 *
 * Such a kernel is two things by its flags. Launched, it calls the driver with itself and its shape. Called back with the number of a
 * stage, it runs that stage on elements of one row, from `begin` on, turn by turn. The driver does whatever is the same in all kernels: rows, blocks, the
 * last elements of a row that are no whole group, reductions of lanes, the cut. So none of it is compiled with each.
 */
#ifndef JIT_CODEGEN_CPU_LLVM_ROWS_H
#define JIT_CODEGEN_CPU_LLVM_ROWS_H

#include "jit/ir/backend.h"

enum {
    WF_LLR_STAGE = 8,    /* flags from this bit on: the stage to run, from 1 on */
    WF_LLR_GROUP = 64,   /* elements; lanes of the canonical sum */
    WF_LLR_BLOCK = 4096, /* elements of its blocks */
    WF_LLR_LANES = 512   /* bytes from a total's lanes to the next one's */
};

/* -- the shape: words of 16 bits, a head, then operands, then stages with their totals --------------- */
typedef enum wf_llr_kind {
    WF_LLR_ONCE,   /* a launch */
    WF_LLR_ROW,    /* a row */
    WF_LLR_BEFORE, /* a row, too, and goes on with the elements of the stage behind it */
    WF_LLR_ELEM
} wf_llr_kind;
/* What combines a total's lanes; a largest float is the least of negated ones. */
typedef enum wf_llr_fold {
    WF_LLR_ADD_F32,
    WF_LLR_MUL_F32,
    WF_LLR_MIN_F32,
    WF_LLR_ADD_F64,
    WF_LLR_MUL_F64,
    WF_LLR_MIN_F64,
    WF_LLR_ADD_I64,
    WF_LLR_MUL_I64,
    WF_LLR_MIN_I64,
    WF_LLR_MAX_I64,
    WF_LLR_OR,
    WF_LLR_AND,
    WF_LLR_FOLDS
} wf_llr_fold;

typedef struct wf_llr_head {
    int16_t noperand, ndst; /* destinations and sources, which have strides */
    int16_t nkeep;          /* operands behind those */
    int16_t nstage;
    int16_t cut;    /* stage, -1: none */
    int16_t ntotal; /* of all stages */
    int16_t nlanes; /* the most of a stage */
} wf_llr_head;

enum { WF_LLR_READ = 1, WF_LLR_WRITTEN = 2 }; /* by ELEM stages */
typedef struct wf_llr_operand {
    int16_t bytes, use;
} wf_llr_operand;

typedef struct wf_llr_total {
    int16_t fold, mirrored; /* mirrored: the value is the negated result */
    int16_t slot;           /* -1: a check, whose error word it clears if it is false */
} wf_llr_total;

typedef struct wf_llr_stage {
    int16_t kind, ordered; /* ordered: by blocks */
    int16_t
        stored; /* lanes are in memory, and read where they were before the turn: by one group at most */
    int16_t lanes;  /* of totals; also the elements of a turn where they are fewer than a group's */
    int16_t ntotal; /* totals follow */
} wf_llr_stage;

/* -- what a stage is called with, for `size`; for `ptr` it has the places of operands in the row ------------------------------------- */
/* Elements that a stage goes over at once. Lanes go through memory from one turn to the next. */
typedef struct wf_llr_turn {
    void *const *place; /* of operands; NULL behind the last turn */
    int64_t count;
    const void *const *from; /* lanes of each total before these elements */
    char *to;                /* and behind them, of the first total */
    int64_t past;            /* not 0: results pass the caches, sources are asked for ahead */
} wf_llr_turn;

typedef struct wf_llr_frame {
    int64_t n; /* elements of the row */
    int64_t *error;
    const wf_llr_turn *turn; /* of a stage of elements */
    const char *ahead[WF_KERNEL_MAX_PTR];
    uint64_t slot[WF_ROWS_SLOTS]; /* a value's bytes, low end; a bool's is one */
} wf_llr_frame;

/* The launch's arguments come first: they lie where the kernel has them. */
void wf_llr_run(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                int64_t end, uint64_t flags,
                void (*kernel)(void *const *ptr, const int64_t *size, const uint64_t *scalar,
                               int64_t begin, int64_t end, uint64_t flags),
                const int16_t *shape);

#endif
