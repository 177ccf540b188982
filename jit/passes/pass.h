/*
 * jit/passes/pass.h -- passes over graph IR and the driver that runs them.
 *
 * A pass is a function from a function to a new one; instructions are immutable, `origin` is carried
 * along (jit/ir/ir.h), inputs and outputs keep their number and order. A pass changes no bits, so any
 * subset of them in any order gives the same results.
 *
 * Controls, from the rows of passes.def:
 *   WEFT_PASS=-fold,+order   off and on        WEFT_DUMP=DIR      files and a page in DIR (page.h): NNNN-name-K-pass.wir ...
 *   WEFT_BISECT=N            stop after the    WEFT_DUMP=after:X  the function after pass X, to stderr
 *                            N-th rewrite      WEFT_STATS=pass    a line a pass, to stderr
 *                                              WEFT_STATS=fold    a line a rule that fired
 * The function is verified after every pass in builds with assertions, or with WEFT_STRESS=verify.
 */
#ifndef JIT_PASSES_PASS_H
#define JIT_PASSES_PASS_H

#include "jit/ir/build.h"

typedef enum wf_pass_id {
#define PASS(id, on, text) WF_PASS_##id,
#include "jit/passes/passes.def"
    WF_PASS_COUNT
} wf_pass_id;

typedef enum wf_stage_id {
#define STAGE(id, text) WF_STAGE_##id,
#include "jit/passes/passes.def"
    WF_STAGE_COUNT
} wf_stage_id;
extern const char *const wf_stage_name[WF_STAGE_COUNT], *const wf_stage_text[WF_STAGE_COUNT];
/* May a stage make one more of its decisions? By WEFT_PASS, and by WEFT_BISECT, which counts it. */
bool wf_stage_may(wf_stage_id id);
/* Is it on at all? */
bool wf_stage_is_on(wf_stage_id id);

/* What is timed: stages, and works behind them. */
typedef enum wf_timed {
#define STAGE(id, text) WF_TIMED_##id,
#define WORK(id, text) WF_TIMED_##id,
#include "jit/passes/passes.def"
    WF_TIMED_COUNT
} wf_timed;
/* Does anybody want lines about passes: WEFT_STATS=pass, or WEFT_DEBUG from 7 on? */
bool wf_pass_tells(void);
uint64_t wf_pass_now(void); /* nanoseconds */
/* From now on this thread's time is that of `what`, until wf_work_leave gets what this returned. */
int wf_work_enter(wf_timed what);
void wf_work_leave(int before);
/* The stage has said yes. */
void wf_work_decided(wf_stage_id id);
/* A kernel is made, perhaps inside a plan: it is timed and told by itself, and its time is not the caller's. name: NULL, or what
 * wf_work_tell is to be given. */
struct wf_stopwatch *wf_work_aside(void);
void wf_work_resume(struct wf_stopwatch *caller, const char *name);
/* A line on stderr for each that this thread was in since it last told, of the function or kernel of that name. */
void wf_work_tell(const char *name);

/* Has WEFT_DUMP a folder for the plan that this thread makes of what the last passes left? base: what its files begin with. */
bool wf_stage_dump(const char *name, char base[80]);
/* Is it WEFT_DUMP=after:plan? */
bool wf_stage_dumps_after(void);

typedef struct wf_pass_info {
    const char *name, *text;
    bool on;
} wf_pass_info;
extern const wf_pass_info wf_passes[WF_PASS_COUNT];

typedef struct wf_pass_stat {
    uint64_t ns;
    uint32_t runs, rewrites; /* rules that fired, merges, instructions dropped */
    uint32_t before, after;  /* instructions, of the last run */
} wf_pass_stat;

/* What the pass `layout` made of a function with convolutions, in modelled bytes. */
typedef struct wf_pass_images {
    uint32_t runs; /* of rows on channels-last images that read one another; 0: all are row-major */
    bool looked,
        fat; /* there are images to choose an order for; channels-last ones would take more memory */
    int64_t cost,
        in_rows; /* of all orders as they were chosen; of rows (0: some images were recorded channels-last) */
} wf_pass_images;

/* Zero is the default of every field: what the environment says, else passes.def. */
typedef struct wf_pass_opts {
    const char *toggles; /* "-fold,+order"; read after WEFT_PASS */
    const char *only;    /* "dce,fold": these passes, in this order, and no toggles */
    const char *dump;    /* as WEFT_DUMP; "" for none */
    int64_t bisect; /* n + 1: stop after rewrite n of this call; 0: WEFT_BISECT, over the process */
    bool verify;    /* after every pass, whatever the build */
    bool fast;      /* FAST rules too: of plans under fast math */
    bool device;    /* for plans of a device, whose convolutions choose orders themselves */
    wf_pass_images *images;            /* filled in, or NULL */
    wf_pass_stat *stats;               /* WF_PASS_COUNT of them are added to, or NULL */
    void (*spoil)(int pass, wf_fn *f); /* tests: harms what a pass made, before it is verified */
    uint32_t *hits; /* WF_FOLD_COUNT counts of rules that fired are added to, or NULL */
} wf_pass_opts;

/* Runs the pipeline. *out is the caller's. 0 or a status with why; a failed verification names the pass. */
int wf_pass_all(const wf_fn *in, const wf_pass_opts *o, wf_fn **out, wf_why *why);
/* Runs one pass. opts NULL: defaults. */
int wf_pass_run(const char *name, const wf_fn *in, const wf_pass_opts *o, wf_fn **out, wf_why *why);
/* The pass of a name, or -1. */
int wf_pass_find(const char *name, size_t len);
/* Is the word in a list with commas? */
bool wf_pass_listed(const char *list, const char *word);
/* 0, or the last name in WEFT_PASS that is no pass, in why. */
int wf_pass_check_env(wf_why *why);
/* 0, or why nothing comes of WEFT_DUMP: a folder that is not there, no such pass. */
int wf_dump_check_env(wf_why *why);
/* Is what the compiler makes verified? In builds with assertions, and with WEFT_STRESS=verify. */
bool wf_pass_verifies(void);
int wf_pass_shuffle(uint64_t seed, const wf_fn *in, wf_fn **out, wf_why *why);

/* -- for passes --------------------------------------------------------------------------------------- */
/* What one pass of one call is given. */
typedef struct wf_pass {
    const wf_pass_opts *opts;
    int64_t *left; /* rewrites that may still be made; NULL: any number */
    uint32_t rewrites;
    const wf_fn *recorded; /* what origins lead to; NULL: not at hand */
    uint32_t *fired; /* WEFT_STATS=fold: counts of rules, and of merges behind them; or NULL */
} wf_pass;

/* Are functions written out somewhere: WEFT_DUMP, or WEFT_DEBUG from 5 on? */
bool wf_pass_is_watched(void);

/* May one more rewrite be made? Counts it. what: its name (rules count in opts->hits). */
bool wf_pass_may(void *pass, const char *what);

/* *out stays NULL where a pass has nothing to do. */
#define PASS(id, on, text) int wf_pass_##id(wf_pass *p, const wf_fn *in, wf_fn **out, wf_why *why);
#include "jit/passes/passes.def"

/* Marks in live[v] (n + 1 zeroed bytes, by value) what outputs need: whole multi-result ops. 0 or
 * WEFT_ENOMEM. */
int wf_pass_live(const wf_fn *f, uint8_t *live);

#endif
