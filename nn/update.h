/*
 * nn/update.h -- an optimiser's update of one parameter: straight-line code over rows of the op table.
 *
 * Invariant: there is one text of an update and two ways to run it, a tile program in one pass over memory
 * (dense f32 and f64 tensors) and one op after another (everything else); a trace records the ops, of dense tensors in
 * one go. All round after every line, so
 * they give the same bits.
 */
#ifndef NN_UPDATE_H
#define NN_UPDATE_H

#include "eager/program.h"
#include "nn/nn.h"

/* Operands of a line: the parameter, its gradient, its state, two temporaries, scalars from SCALAR on. */
enum { NONE = -1, P, G, S0, S1, T0, T1, SCALAR, MAX_SCALARS = 8, MAX_LINES = 12 };

typedef struct update {
    wf_line line[MAX_LINES];
    int n;
    double scalar[MAX_SCALARS];
    int n_scalar;
    int n_state;            /* 0 to 2: S0, S1 */
    weft_tensor tensor[T0]; /* P, G, S0, S1 */
} update;

/* The tile program of the update before. Updates of one optimiser with as many lines have the same lines. */
typedef struct built {
    int lines, dtype; /* lines 0: none yet */
    wf_program program;
} built;

/* Runs the lines: P, S0 and S1 are written in place. Under no_grad, in a scope of the caller. */
weft_status wf_update_run(const update *u, built *b);
/* The same, one op after another. */
weft_status wf_update_run_ops(const update *u);

#endif
