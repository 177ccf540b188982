/*
 * eager/program.h -- a fused group: elementwise rows and reductions run as one pass over memory.
 *
 * A program is straight-line code over values: inputs (tensors of one extent or broadcast to it),
 * scalars (given at each run) and results of instructions. A run walks the outputs in tiles that stay
 * in the first cache; intermediate values never reach memory. It gives the bits that the same rows
 * give one after another. This struct is the one representation of a fused group: the tile
 * interpreter beside this header runs it (tier 0), code generators lower it.
 *
 * The iteration space is all dimensions of the views of a run; a set of its axes (given at the run, see
 * wf_program_args) is reduced, the others are kept. Every value has a level:
 *     ONE    the same everywhere             (scalars, and what is computed from them alone)
 *     ROW    one per index of the kept axes  (ROW inputs, results of reductions and picks)
 *     ELEM   one per element
 * An instruction has the highest level of its sources; lower ones are broadcast. A reduction takes an
 * ELEM value to a ROW value, in the canonical order of docs/reductions.md over the reduced axes, and
 * ROW values may be used by any later instruction: softmax or layer_norm is one program. Reductions over
 * leading axes (bias gradients) are the same with other axes in the run's mask.
 *
 * Depth and phase: a value's depth is the number of reductions on its longest path from the inputs. ROW
 * instructions of depth d run before phase d; ELEM instructions run in one phase, at least their depth
 * (later if no earlier phase reads them); a reduction of an ELEM value runs in the phase of its depth and
 * defines a value of the next depth. wf_program_finish fills depth and phase, and which
 * instructions can run together (chain).
 *
 * Every value has an element type. A row computes in the type it is asked to; sources of other types
 * are cast first, as a tile load would. f16 and bf16 values only come from inputs and casts, so
 * "each public row rounds once" is an explicit cast after the row.
 *
 * Building cannot fail half-way: after an error (too large, a value that does not exist, a row without
 * a kernel) every later call returns -1, and so does wf_program_finish. A finished program is
 * immutable and may run on many threads at once. The struct holds no pointers: a copy is a program.
 *
 * A destination may be exactly the memory of an input (in place); other overlaps are excluded.
 */
#ifndef EAGER_PROGRAM_H
#define EAGER_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "eager/view.h"
#include "jit/ir/op.h"

enum {
    WF_PROGRAM_INPUTS = 32,
    WF_PROGRAM_OUTPUTS = 24,
    WF_PROGRAM_SCALARS = 64,
    WF_PROGRAM_INSTS = 256,
    WF_PROGRAM_DEPTH = 32, /* reductions that depend on one another */
    WF_PROGRAM_VALUES = WF_PROGRAM_INPUTS + WF_PROGRAM_SCALARS + WF_PROGRAM_INSTS
};

typedef enum wf_inst_kind {
    WF_INST_MAP,
    WF_INST_VJP,
    WF_INST_CAST, /* also a move: source and result of one type */
    WF_INST_REDUCE, /* SUM PROD AMAX AMIN of f32, f64, i64; ANY ALL of bool; result of the same type */
    WF_INST_EXPAND, /* a ONE or ROW value as an ELEM (or ROW) value */
    WF_INST_PICK, /* src 0: an ELEM input, src 1: a ROW or ONE index (i64) along the reduced axes */
    WF_INST_IOTA, /* the index along the (flattened, row-major) reduced axes */
    WF_INST_CHECK /* src 0: bool, src 1 (or none): i64; defines nothing (value -1) */
} wf_inst_kind;

typedef enum wf_level { WF_LEVEL_ONE, WF_LEVEL_ROW, WF_LEVEL_ELEM } wf_level;

typedef struct wf_inst {
    uint8_t kind;    /* wf_inst_kind */
    uint8_t compute; /* element type of the sources */
    uint8_t which;   /* of a vjp */
    uint8_t nsrc;
    uint16_t op;
    uint16_t reg;   /* tile of the result, in a program without ROW values */
    int16_t src[5]; /* values; -1: not read */
    int16_t value;  /* what the instruction defines */
    uint8_t level;  /* that it runs at: ELEM for a reduction, ROW for a pick */
    uint8_t phase;  /* when it runs; of ROW and ONE instructions: before the phase of this number */
} wf_inst;

/* An input that is a random row: elements are drawn where a tile of them would be loaded. */
enum { WF_DRAW_SCALARS = 4 };
typedef struct wf_program_drawn {
    uint16_t op;                    /* WF_OP_INVALID: the input is in memory */
    int8_t scalar[WF_DRAW_SCALARS]; /* scalars of the run: see wf_program_draw */
} wf_program_drawn;

typedef struct wf_program {
    int ninput, nscalar, ninst, noutput, nvalue;
    int nreg, width; /* tiles alive at once, and bytes of their widest element */
    int nphase;      /* phases with ELEM work; ROW instructions may follow the last */
    int nreduce;
    bool failed, heavy;
    bool fast;       /* native kernels need not round as the rows say (jit/lower.h); runs here do */
    bool rows;       /* has ROW values or needs the index of an element: a run needs axes */
    uint64_t number; /* of this program and its copies alone; 0: it has none */
    wf_inst inst[WF_PROGRAM_INSTS];
    uint8_t type[WF_PROGRAM_VALUES];
    uint8_t level[WF_PROGRAM_VALUES]; /* wf_level */
    uint8_t depth[WF_PROGRAM_VALUES];
    int16_t def[WF_PROGRAM_VALUES];  /* instruction, or -1 - input, or -1 - INPUTS - scalar */
    int16_t last[WF_PROGRAM_VALUES]; /* last instruction that reads the value, -1: none */
    uint8_t chain
        [WF_PROGRAM_INSTS]; /* instructions behind one that can run in one pass with it (no ROW values) */
    int16_t input[WF_PROGRAM_INPUTS];
    wf_program_drawn draw[WF_PROGRAM_INPUTS];
    int16_t scalar[WF_PROGRAM_SCALARS];
    int16_t output[WF_PROGRAM_OUTPUTS];
    uint8_t output_level[WF_PROGRAM_OUTPUTS]; /* ELEM or ROW */
} wf_program;

void wf_program_init(wf_program *p);
/* The next input or scalar of the run; its value. An input is ELEM; _row: ROW, one element per kept
 * index (its view has stride 0 along the reduced axes). */
int wf_program_input(wf_program *p, int dtype);
int wf_program_input_row(wf_program *p, int dtype);
int wf_program_scalar(wf_program *p, int dtype);
/* The next input: elements of RAND, RANDN, BERNOULLI or RANDINT of a type that wf_draw_type gives (eager/draw.h),
 * numbered in row-major order of the run's dims (the reduced axes are the last ones, if there are any). scalar:
 * values of scalars, seed and offset (i64), then low and high (f64; RANDINT: i64; high is not read where there is
 * none). The run's view of it has row-major strides and any data that is no operand's. */
int wf_program_draw(wf_program *p, wf_op op, int dtype, const int *scalar);
/* Bit j: input j is drawn. */
uint32_t wf_program_draws(const wf_program *p);
/* The random row that input j, which is drawn, is in a run with these scalars. */
struct wf_draw;
void wf_program_drawn_row(const wf_program *p, int j, const void *const *scalars,
                          struct wf_draw *row);
/* Elements [first, first + n) of input j, which is drawn. */
void wf_program_fill(const wf_program *p, int j, const void *const *scalars, void *dst,
                     int64_t first, int64_t n);
/* A row on values; its result has the type `compute`, or bool. */
int wf_program_map(wf_program *p, wf_op op, int compute, int nsrc, const int *src);
/* A vjp column: src is g, operands, y; what wf_vjp_reads does not name may be -1. */
int wf_program_vjp(wf_program *p, wf_op op, int which, int compute, int nsrc, const int *src);
/* The value in another element type (the value itself if it has that type). */
int wf_program_cast(wf_program *p, int value, int dtype);
/* SUM, PROD, AMAX, AMIN, ANY or ALL over the reduced axes. The result is f32 for halves and f32, f64,
 * i64 for integers and bool (they wrap), bool for ANY and ALL, before any rounding to a result type. A
 * value below ELEM counts once for every element. AMAX and AMIN of no element are 0 (dispatch
 * refuses them). */
int wf_program_reduce(wf_program *p, wf_op op, int value);
/* The value at a higher level (the value itself if it has that level). */
int wf_program_expand(wf_program *p, int value, wf_level level);
/* ROW: the element of an ELEM input at a ROW or ONE index along the reduced axes (of any integer type);
 * 0 where the index is not in [0, n). */
int wf_program_pick(wf_program *p, int input, int index);
/* ELEM: 0, 1, 2 ... along the reduced axes, of an integer or float type. */
int wf_program_iota(wf_program *p, int dtype);
/* The run reports WEFT_EINDEX if some element of a bool value is false. */
void wf_program_check(wf_program *p, int value);
/* The same; index (i64): what a device's report names where it is false. */
void wf_program_check_index(wf_program *p, int value, int index);
/* The next output, ROW if the value is ROW, else ELEM; _at: of the level given, which is not below the
 * value's. A destination of another type than the value's takes a rounding cast. */
void wf_program_output(wf_program *p, int value);
void wf_program_output_at(wf_program *p, int value, wf_level level);
/* 0, or -1 if building failed. */
int wf_program_finish(wf_program *p);
/* Gives a finished program that is to stay a number, by which others can remember what they made of it. */
void wf_program_number(wf_program *p);
/* Holds a finished program to its rules (program_verify.c). 0, or a status with why naming the instruction and the rule. */
int wf_program_verify(const wf_program *p, wf_why *why);

/* dst: noutput views of equal dims; src: ninput views of those dims (stride 0 inserted where they
 * broadcast), of the types that the inputs were declared with; scalars: nscalar pointers to one element
 * each. Bit i of axes: axis i of the dims is reduced; row-major order over these axes is the order of
 * elements. ROW views have the full dims and stride 0 along reduced axes. */
enum { WF_PROGRAM_CHECKED = 2 };
typedef struct wf_program_checked {
    wf_op op;
    const wf_type *of[WF_PROGRAM_CHECKED]; /* its operands; NULL: no more */
    const char *site;                      /* NULL: unknown */
    int64_t bound;                         /* of the index */
} wf_program_checked;
typedef struct wf_program_args {
    const wf_view *dst, *src;
    const void *const *scalars;
    unsigned axes;
    int64_t beside; /* bytes that other runs of the launch move */
    bool wait; /* for its kernel to be made, where it could run another way meanwhile (devices) */
    const wf_program_checked *checked; /* NULL, or for each CHECK in order: whose it is (devices) */
} wf_program_args;

/* Bytes that one run of the program moves, about. */
int64_t wf_program_moves(const wf_program *p, const wf_program_args *a);

/* Is it one row of the table, or one derivative, and nothing else? Then wf_program_run_on runs the eager function. */
bool wf_program_is_row(const wf_program *p);
/* Does it copy a tensor (into another layout)? Then that is done by wf_copy, which knows strides best. */
bool wf_program_is_copy(const wf_program *p);

/* 0; WEFT_ENOMEM; or WEFT_EINDEX if a check failed (results are then to be discarded). A program without
 * ROW values never fails. */
int wf_program_run_on(const wf_program *p, const wf_program_args *a);
/* The same for a program without ROW values. */
void wf_program_run(const wf_program *p, const wf_view *dst, const wf_view *src,
                    const void *const *scalars);
/* count independent runs (an optimiser's tensors) side by side; the worst status. */
int wf_program_run_many(const wf_program *p, int64_t count, const wf_program_args *a);

#endif
