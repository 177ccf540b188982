/*
 * nn/update.h -- an optimiser's update of one parameter: straight-line code over rows of the op table.
 *
 * Invariant: there is one text of an update, eager/kernels/update.def, and three ways to run it: a loop of its own (dense
 * f32 tensors of the host), a tile program (those of f64, and all dense ones on a device), and one op after another
 * (everything else); a trace records the ops, of dense tensors in one go. All round after every line, so they give the
 * same bits.
 */
#ifndef NN_UPDATE_H
#define NN_UPDATE_H

#include "eager/kernels/update.h"
#include "eager/program.h"
#include "nn/nn.h"

/* Operands of a line: the parameter, its gradient, its state, two temporaries, scalars from SCALAR on. */
enum {
    NONE = -1,
    P,
    G,
    S0,
    S1,
    S2,
    T0,
    T1,
    SCALAR,
    MAX_SCALARS = WF_UPDATE_SCALARS,
    MAX_LINES = 16
};
_Static_assert((int)T0 == (int)S0 + WF_UPDATE_STATES, "as many as an update has");

typedef struct update {
    wf_line line[MAX_LINES];
    int n;
    double scalar[MAX_SCALARS];
    uint8_t of[MAX_SCALARS]; /* which of k each is */
    int n_scalar;
    int n_state;                       /* S0, ... */
    weft_tensor tensor[T0];            /* P, G, S0, ... */
    unsigned with;                     /* the lines of update.def */
    const char *site;                  /* of the step, or NULL */
    double k[WF_UPDATE_SCALARS];       /* its scalars, */
    uint8_t number[WF_UPDATE_SCALARS]; /* and the values they are in the lines; 0: not used yet */
} update;

/* The tile program of the update before. */
typedef struct built {
    int tried; /* 0: there was none before; 1: the program is; -1: some row has no tile kernel */
    int dtype;
    unsigned with;
    wf_program program;
} built;

/* Updates of a device's tensors that are still to be queued, for they go out in few launches. Zeroed: none. */
typedef struct updates {
    struct waiting_room *room; /* NULL: nothing was put off yet */
} updates;

/* Runs the lines: P and the states are written in place. Under no_grad, in a scope of the caller. What a device does may be
 * put off until wf_updates_end, which there must be. */
weft_status wf_update_run(const update *u, built *b, updates *all);
/* Queues what was put off. */
weft_status wf_updates_end(updates *all);
/* The same, one op after another. */
weft_status wf_update_run_ops(const update *u);

#endif
