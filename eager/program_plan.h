/*
 * eager/program_plan.h -- the schedule by which the tile interpreter runs a program with ROW values.
 *
 * Lists of ELEM steps per phase and of ROW instructions per depth, tiles for values that live within a
 * phase, and row buffers for values that a later phase reads. Where rows are too long for buffers the
 * schedule recomputes: each phase lists whatever it needs, from the inputs on.
 */
#ifndef EAGER_PROGRAM_PLAN_H
#define EAGER_PROGRAM_PLAN_H

#include "eager/program_run.h"

enum { WF_STEPS = 4 * WF_PROGRAM_INSTS };

typedef struct wf_step {
    int16_t inst;
    int16_t out;  /* output whose memory takes the value, or -1 */
    uint16_t reg; /* tile of the value */
    bool kept;    /* the value goes to its row buffer instead */
} wf_step;

typedef struct wf_row_plan {
    int nphase;                           /* phases with steps or outputs */
    int depth;                            /* of the deepest ROW instruction */
    int nreg, width;                      /* tiles, and bytes of their widest element */
    int nslot, nred;                      /* ROW values, and reductions among them */
    int64_t keep_bytes;                   /* row buffers, bytes per element */
    int begin[WF_PROGRAM_DEPTH + 3];      /* steps of phase i: [begin[i], begin[i + 1]) */
    int row_begin[WF_PROGRAM_DEPTH + 3];  /* the same of row[] by depth */
    uint32_t reads[WF_PROGRAM_DEPTH + 2]; /* inputs that a phase reads */
    uint8_t out_phase[WF_PROGRAM_OUTPUTS];
    int16_t keep_at[WF_PROGRAM_VALUES]; /* bytes per element before the value's buffer, or -1 */
    int16_t slot[WF_PROGRAM_VALUES];    /* of ROW and ONE values that instructions define, or -1 */
    int16_t red[WF_PROGRAM_VALUES];     /* number of the reduction that defines the value */
    int16_t row[WF_PROGRAM_INSTS];
    wf_step step[WF_STEPS];
} wf_row_plan;

/* direct: bit k set if output k's memory can take tiles. False: more than WF_STEPS steps. */
bool wf_row_plan_make(wf_row_plan *plan, const wf_program *p, const wf_program_args *a,
                      uint32_t direct, bool recompute);

#endif
