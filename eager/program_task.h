/*
 * eager/program_task.h -- the state of a run of a program with ROW values, and of one of its tasks.
 *
 * A strip is rn kept by cn reduced indices. In a tile they lie as [rn][cn], or turned, as [cn][rn]; then a
 * ROW value's vector is a row of the tile.
 */
#ifndef EAGER_PROGRAM_TASK_H
#define EAGER_PROGRAM_TASK_H

#include "eager/kernels/program.h"
#include "eager/program_canon.h"
#include "eager/program_plan.h"
#include "eager/program_run.h"

enum { WF_SPREADS = 7 }; /* tiles of broadcast sources, and two for stores and reductions */

/* What a value is over a strip. A tile has lines: [rn][cn], or turned [cn][rn]. */
typedef enum wf_form {
    WF_FORM_TILE,
    WF_FORM_ONE,    /* one element */
    WF_FORM_LINES,  /* one element per line */
    WF_FORM_ACROSS, /* one line for all */
} wf_form;

/* How the strips of an ELEM input are reached: in place in one of the forms, or as a tile that is loaded for
 * every strip, or once for all. */
enum { WF_IN_PLACE, WF_IN_GATHER, WF_IN_HELD };

/* Where a strip of something starts: base + rows * row + columns * col bytes. */
typedef struct wf_place {
    char *base;
    int64_t row, col;
    bool relative;   /* rows count from the group's first */
    bool scaled;     /* columns lie rn * col apart */
    const void *far; /* an operand (wf_operand) that has no such strides, or NULL */
} wf_place;

typedef struct wf_ref {
    wf_place at;
    int64_t step; /* elements between lines, of LINES */
    int16_t row;  /* a ROW or ONE value: it lies where the group's vector lies; else -1 */
    uint8_t form; /* wf_form */
    uint8_t size; /* of an element */
} wf_ref;

/* A step made ready for a task. */
typedef struct wf_code {
    const wf_inst *inst;
    wf_inst_fn fn;
    wf_grid_fn grid; /* for operands of any form, or NULL: others than tiles and ones are spread */
    unsigned bcast;  /* sources of form ONE */
    uint8_t chain;   /* further steps that run in one pass with this one */
    uint8_t nlink;   /* of a chain: its links, and their sources; first: where the value starts */
    bool flat;       /* a chain of tiles and ones: one line */
    wf_ref first;
    wf_link *link;
    wf_ref *from;
    uint8_t form;         /* of the result */
    int ask_from, ask_to; /* its part of what a strip asks for */
    wf_place to;
    wf_ref src[5];
} wf_code;

/* Memory that a strip asks for: `pieces` times `bytes`, `step` apart. */
typedef struct wf_ask {
    const char *next;
    int64_t step, bytes, pieces;
} wf_ask;

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
    const wf_grid_kernels *grid;
    uint8_t way[WF_PROGRAM_INPUTS], form[WF_PROGRAM_INPUTS];
    uint32_t direct; /* outputs whose strips lie in place */
    uint32_t
        ahead; /* inputs of which strips ask for the group behind, as no cache holds what is moved */
    bool stream; /* outputs pass the caches, by way of tiles */
    int64_t keep, reg, load, spread, row, canon, lanes, code, bytes; /* parts of the scratch */
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
    int64_t end, c1;                 /* of the task's rows, and of the phase's columns */
    int64_t block;                   /* split runs: the block */
    int64_t held[WF_PROGRAM_INPUTS]; /* rows of the tile that a WF_IN_HELD input lies in */
    wf_code *code;                   /* of the plan's steps */
    wf_link *link;                   /* of all chains, and */
    wf_ref *from;                    /* what they read */
    int nlink;
    wf_ask ask[WF_PROGRAM_INPUTS]; /* of the strip */
    int nask;
    const void *at[WF_PROGRAM_VALUES]; /* ROW values: vectors of gn; ONE values */
    wf_ref ref[WF_PROGRAM_VALUES];     /* ELEM values */
    wf_ref out[WF_PROGRAM_OUTPUTS];    /* ELEM outputs: their values when they are stored */
} wf_row_task;

/* -- steps (program_step.c) ----------------------------------------------------------------------------- */
/* Makes t->code from the plan. */
void wf_make_code(wf_row_task *t);
/* A value over the strip, always a tile; tile `spare` takes what must be spread. */
const void *wf_tile_of(const wf_row_task *t, const wf_ref *ref, int spare);
/* Inputs, steps and outputs of a phase on the strip. */
void wf_do_strip(wf_row_task *t, int phase);

/* -- rows (program_vector.c) ------------------------------------------------------------------------------- */
/* ROW inputs of the group; ROW instructions of a depth; ROW outputs. */
void wf_load_rows(wf_row_task *t);
void wf_do_row_steps(wf_row_task *t, int depth);
void wf_store_rows(wf_row_task *t);
/* Memory of ROW value v. */
char *wf_row_slot(const wf_row_task *t, int v);

/* -- reductions (program_reduce.c) ------------------------------------------------------------------------ */
/* Of the tile at x. */
void wf_reduce_strip(wf_row_task *t, const wf_inst *inst, const char *x);
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
