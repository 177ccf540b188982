/*
 * jit/table.h -- the table of launches behind weft/table.h: table.c fills it in, table_print.c writes it, call_table.c and
 * io/table.c say what is run.
 *
 * Invariant: whatever a table says of a side is a mean over the same runs, the fastest ones, so that it adds up. A table
 * whose making failed is freed like any other.
 */
#ifndef JIT_TABLE_H
#define JIT_TABLE_H

#include "jit/plan.h"
#include "weft/table.h"

struct weft_table {
    weft_table_total total;
    char *name;
    weft_table_row *row; /* total.rows of them; their strings are malloc'ed, but for kind and row */
    bool *f64;           /* per row: its arithmetic is that of f64 */
    int cap;
};

/* A run: how long all of it, its plan and the plan's steps took (room for as many as it has, zeroed), in ns. */
typedef struct wf_table_times {
    int64_t whole, plan;
    int64_t *steps;
} wf_table_times;

/* What is run, fused and op by op. */
typedef struct wf_table_of {
    void *user;
    /* The plan of these WF_PLAN_* flags, retained. NULL: an error is recorded, or why filled. */
    wf_plan *(*plan)(void *user, unsigned flags, wf_why *why);
    /* One run of it. 0, or a status likewise. */
    int (*run)(void *user, wf_plan *p, unsigned flags, wf_table_times *times, wf_why *why);
} wf_table_of;

/* An empty one. NULL: no memory. */
weft_table *wf_table_new(const char *name, int runs, bool fused_only);
/* Runs it both ways, and adds the launches. 0 or a status, as above. */
int wf_table_add(weft_table *t, const wf_table_of *of, wf_why *why);
/* Measures the machine and holds the rows against it. 0 or a status with why filled. */
int wf_table_finish(weft_table *t, wf_why *why);

/* Under which messages and listings know j. */
const char *wf_call_name(const weft_jit *j);
/* A table of the graphs that a call of j records. 0 or a status with an error recorded. */
int wf_call_table(weft_jit *j, const weft_table_args *args, weft_table *t);

#endif
