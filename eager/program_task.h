/*
 * eager/program_task.h -- the state of a run of a program with ROW values, and of one of its tasks.
 *
 * A strip is rn kept by cn reduced indices. In a tile they lie as [rn][cn], or turned, as [cn][rn]; then a
 * ROW value's vector is a row of the tile.
 */
#ifndef EAGER_PROGRAM_TASK_H
#define EAGER_PROGRAM_TASK_H

#include "eager/program_canon.h"
#include "eager/program_plan.h"
#include "eager/program_run.h"

enum { WF_SPREADS = 7 }; /* tiles of broadcast sources, and two for stores and reductions */

/* How the strips of an ELEM input are reached. */
enum { WF_IN_PLACE, WF_IN_ELEMENT, WF_IN_HELD, WF_IN_GATHER };

typedef struct wf_row_run {
    const wf_program *p;
    const wf_program_args *a;
    const wf_kernels *k;
    wf_space s;
    wf_row_plan plan;
    wf_inst_fn fn[WF_PROGRAM_INSTS];
    bool turned;
    int64_t strip;      /* room of a tile, elements */
    int64_t rows, cols; /* of a full strip */
    int64_t group;      /* rows of a group */
    int64_t inner, per; /* rows that no group crosses a multiple of, and groups in as many */
    int64_t groups;
    uint8_t way[WF_PROGRAM_INPUTS];
    uint32_t direct; /* outputs whose strips lie in place */
    int64_t keep, reg, load, spread, row, canon, lanes, bytes; /* parts of the scratch */
    int64_t pitch, row_pitch, lane_pitch; /* bytes of a tile, a ROW vector, and 64 such */
    int64_t blocks;                       /* split runs: of the reduced axis, else 0 */
    char *parts;                          /* split runs: [reduction][block][row] */
    _Atomic int status;
} wf_row_run;

typedef struct wf_row_task {
    wf_row_run *r;
    char *mem;
    int64_t g0, gn;                  /* rows of the group */
    int64_t r0, rn, c0, cn;          /* the strip */
    int64_t block;                   /* split runs: the block */
    int64_t held[WF_PROGRAM_INPUTS]; /* rows of the tile that a WF_IN_HELD input lies in */
    const void *at[WF_PROGRAM_VALUES];
    bool one[WF_PROGRAM_VALUES]; /* one element stands for all */
} wf_row_task;

/* -- steps (program_step.c) ----------------------------------------------------------------------------- */
/* Value v over the strip, always a tile; tile `spare` takes what must be spread. */
const void *wf_full_source(const wf_row_task *t, int v, int spare);
/* Inputs, steps and outputs of a phase on the strip. */
void wf_do_strip(wf_row_task *t, int phase);
/* ROW inputs of the group; ROW instructions of a depth; ROW outputs. */
void wf_load_rows(wf_row_task *t);
void wf_do_row_steps(wf_row_task *t, int depth);
void wf_store_rows(wf_row_task *t);
/* Memory of ROW value v. */
char *wf_row_slot(const wf_row_task *t, int v);

/* -- reductions (program_reduce.c) ------------------------------------------------------------------------ */
void wf_reduce_strip(wf_row_task *t, const wf_inst *inst);
/* The value of a reduction over nothing. */
void wf_reduce_nothing(const wf_inst *inst, char *out);
/* acc = acc op rows[0] op rows[1] ..., elementwise; init: starts at rows[0]. */
void wf_reduce_rows(const wf_inst *inst, const wf_kernels *k, void *acc, const void *const *rows,
                    int64_t nrows, int64_t ncols, bool init);
/* The blocks of a split run to one vector per reduction, the first of parts. 0 or WEFT_ENOMEM. */
int wf_reduce_parts(wf_row_run *r);
/* Part of reduction `inst`, block b. */
char *wf_reduce_part(const wf_row_run *r, const wf_inst *inst, int64_t b);

#endif
