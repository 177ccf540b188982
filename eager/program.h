/*
 * eager/program.h -- tile programs: a group of elementwise rows run as one pass over memory.
 *
 * A program is straight-line code over values: inputs (tensors of one extent or broadcast to it),
 * scalars (given at each run) and results of instructions. A run walks the outputs in tiles that stay
 * in the first cache; intermediate values never reach memory. It gives the bits that the same rows
 * give one after another.
 *
 * Every value has an element type. A row computes in the type it is asked to; sources of other types
 * are cast first, as a tile load would. f16 and bf16 values only come from inputs and casts, so
 * "each public row rounds once" is an explicit cast after the row.
 *
 * Building cannot fail half-way: after an error (too large, a value that does not exist, a row without
 * a kernel) every later call returns -1, and so does wf_program_finish. A finished program is
 * immutable and may run on many threads at once.
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
    WF_PROGRAM_VALUES = WF_PROGRAM_INPUTS + WF_PROGRAM_SCALARS + WF_PROGRAM_INSTS
};

typedef struct wf_inst {
    uint8_t kind;    /* 0 map, 1 vjp, 2 cast */
    uint8_t compute; /* element type of the sources */
    uint8_t which;   /* of a vjp */
    uint8_t nsrc;
    uint16_t op;
    uint16_t reg;   /* tile of the result */
    int16_t src[5]; /* values; -1: not read */
    int16_t value;  /* what the instruction defines */
} wf_inst;

typedef struct wf_program {
    int ninput, nscalar, ninst, noutput, nvalue;
    int nreg, width; /* tiles alive at once, and bytes of their widest element */
    bool failed, heavy;
    wf_inst inst[WF_PROGRAM_INSTS];
    uint8_t type[WF_PROGRAM_VALUES];
    int16_t def[WF_PROGRAM_VALUES];  /* instruction, or -1 - input, or -1 - INPUTS - scalar */
    int16_t last[WF_PROGRAM_VALUES]; /* last instruction that reads the value, -1: none */
    int16_t input[WF_PROGRAM_INPUTS];
    int16_t scalar[WF_PROGRAM_SCALARS];
    int16_t output[WF_PROGRAM_OUTPUTS];
} wf_program;

void wf_program_init(wf_program *p);
/* The next input or scalar of the run; its value. */
int wf_program_input(wf_program *p, int dtype);
int wf_program_scalar(wf_program *p, int dtype);
/* A row on values; its result has the type `compute`, or bool. */
int wf_program_map(wf_program *p, wf_op op, int compute, int nsrc, const int *src);
/* A vjp column: src is g, operands, y; what wf_vjp_reads does not name may be -1. */
int wf_program_vjp(wf_program *p, wf_op op, int which, int compute, int nsrc, const int *src);
/* The value in another element type (the value itself if it has that type). */
int wf_program_cast(wf_program *p, int value, int dtype);
/* The next output; a destination of another type than the value's takes a rounding cast. */
void wf_program_output(wf_program *p, int value);
/* 0, or -1 if building failed. */
int wf_program_finish(wf_program *p);

/* dst: noutput views of equal dims; src: ninput views of those dims (stride 0 inserted where they
 * broadcast), of the types that the inputs were declared with; scalars: nscalar pointers to one element
 * each. */
void wf_program_run(const wf_program *p, const wf_view *dst, const wf_view *src,
                    const void *const *scalars);

#endif
