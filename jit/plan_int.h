/*
 * jit/plan_int.h -- what the parts of a plan share: steps, accesses, buffers.
 *
 * plan_build.c lowers a schedule to steps, plan_buffers.c gives every value a place (plan_arena.c packs),
 * plan_run.c runs.
 *
 * Invariants: an access is resolved from its buffer's address, a constant offset and terms of the
 * recording; accesses of a step lie in a row, destinations first; steps are in running order.
 */
#ifndef JIT_PLAN_INT_H
#define JIT_PLAN_INT_H

#include <stdatomic.h>

#include "eager/program.h"
#include "jit/kernels.h"
#include "jit/passes/fuse.h"
#include "jit/passes/pass.h"
#include "jit/plan.h"

typedef enum wf_place { WF_PLACE_NONE, WF_PLACE_INPUT, WF_PLACE_OUTPUT, WF_PLACE_ARENA } wf_place;

typedef struct wf_buffer {
    uint8_t place;  /* wf_place */
    uint32_t index; /* input, output or temporary number */
    uint32_t slot;  /* of the run's memory: inputs, then outputs, then temporaries */
    wf_val v;       /* what it holds */
    int64_t offset; /* in the arena, or of a temporary in a result's memory */
    int64_t bytes;
} wf_buffer;

/* Memory that is needed from a launch on: a result's, or temporary. */
typedef struct wf_take {
    uint32_t launch, slot;
    int64_t bytes;
} wf_take;
/* And up to one: temporary, or an input that no output replaces. */
typedef struct wf_give {
    uint32_t launch, slot;
} wf_give;

enum { WF_BUFFER_ABSENT = -1, WF_BUFFER_DRAWN = -2 };

typedef struct wf_access {
    int32_t
        buffer; /* index, or WF_BUFFER_ABSENT; DRAWN: a random row's elements, which have no memory */
    uint8_t dtype, rank;
    uint16_t nterms;
    uint32_t shape, term; /* as in wf_map_of */
    int64_t offset;       /* elements */
} wf_access;

/* A scalar of a program: a slot of the recording, the value of a fill, a number. */
typedef enum wf_scalar_kind {
    WF_SCALAR_SLOT_VALUE,
    WF_SCALAR_FILL,
    WF_SCALAR_ZERO,
    WF_SCALAR_COUNT,   /* n */
    WF_SCALAR_FREEDOM, /* n less the instruction's correction, at least 0 */
    WF_SCALAR_EPS,     /* of the instruction */
    /* cross entropy over n classes: the target left out; for a smoothing s: 1 - s, s, s / n, 1 - s + s / n */
    WF_SCALAR_IGNORE,
    WF_SCALAR_REST,
    WF_SCALAR_SMOOTH,
    WF_SCALAR_SHARE,
    WF_SCALAR_THERE,
    WF_SCALAR_MINUS_ZERO,
    /* a random row of rank n */
    WF_SCALAR_SEED,
    WF_SCALAR_OFFSET,
    WF_SCALAR_LOW,
    WF_SCALAR_HIGH
} wf_scalar_kind;
typedef struct wf_scalar_of {
    uint32_t ins; /* SCALAR, CONST or a fill */
    uint8_t dtype, kind;
    int64_t n;
} wf_scalar_of;

typedef struct wf_plan_step {
    uint8_t kind; /* wf_step_kind */
    uint16_t op;
    uint32_t ins;    /* instruction of fn: attributes, site */
    uint32_t access; /* accesses[access..]: ndst destinations, then nsrc sources */
    uint16_t ndst, nsrc;
    uint32_t scalar, nscalar; /* scalars[scalar..] */
    uint32_t program;         /* programs[program] */
    uint32_t launch;          /* steps of one number run side by side; numbers ascend */
    uint32_t member, nmember; /* members[member..]: instructions */
    uint32_t axes;            /* of a program that reduces */
    uint32_t check, ncheck;   /* checks[check..] */
    bool after; /* runs on finished rows of the step before, a product of the same launch */
} wf_plan_step;

/* Source `source` of a group holds class indices of cross entropy `ins`: checked before the group runs. */
typedef struct wf_plan_check {
    uint32_t ins;
    uint16_t source;
    int64_t classes;
} wf_plan_check;

/* Instruction reader reads value v, which another step makes: that of the row `maker`, where v is a view of what that made. */
typedef struct wf_plan_edge {
    uint32_t reader;
    wf_val v, maker;
    uint8_t reason;      /* wf_reason */
    int64_t saved, cost; /* of fusing (COSTS_MORE), of computing v again; both 0: not weighed */
} wf_plan_edge;

/* A tile program and what compiles it. */
typedef struct wf_plan_program {
    uint64_t hash;
    wf_program *program;
    uint32_t one;    /* inputs that are a single element */
    wf_jitk *kernel; /* NULL: tier 0 only */
} wf_plan_program;

typedef enum wf_choice { WF_CHOICE_TRIAL, WF_CHOICE_PLAIN, WF_CHOICE_ROWS } wf_choice;

enum { WF_PLAN_TURNS = 20 }; /* timed runs of a plan that has two ways */

typedef struct wf_reference wf_reference; /* plan_validate.c */

struct wf_plan {
    _Atomic int32_t refs;
    wf_plan *_Atomic rows; /* the same function with rows opened, or NULL; plan_choose.c */
    _Atomic int choice, runs, turn;
    bool tells;                          /* launches are printed: WEFT_DEBUG */
    bool validates;                      /* launches are compared with their ops: WEFT_VALIDATE */
    wf_reference *_Atomic reference;     /* what with, or NULL so far */
    bool aligned;                        /* some values have aligned rows (passes/layout.h) */
    unsigned flags;                      /* it was built with */
    wf_target target;                    /* likewise */
    int32_t *writes;                     /* likewise */
    _Atomic int64_t took[WF_PLAN_TURNS]; /* ns; 0: not known */
    wf_plan_step *steps;
    wf_access *accesses;
    wf_scalar_of *scalars;
    wf_buffer *buffers;
    uint32_t nsteps, naccesses, nscalars, nbuffers;
    uint32_t capsteps, capaccesses, capscalars;
    wf_plan_check *checks;
    uint32_t nchecks, capchecks;
    wf_plan_program *programs; /* distinct ones */
    uint32_t nprograms, capprograms;
    int64_t *words;
    wf_term *terms;
    uint32_t *members;
    uint32_t nwords, nterms, nmembers;
    wf_pass_images images;
    wf_fn *fn; /* the function after the passes; its instructions say where they come from */
    wf_plan_edge *edges;
    uint32_t nedges, capedges;
    wf_type *out_type; /* of outputs */
    uint32_t ninputs, noutputs;
    uint32_t nlaunches;
    uint32_t most_views, most_scalars, most_steps; /* of one launch */
    wf_take *takes; /* in the order of launches, both; one of the number of launches: at the end */
    wf_give *gives;
    int64_t *temporary; /* bytes of each */
    uint32_t ntakes, ngives, ntemporaries;
    void *_Atomic spare; /* room of a run that has ended, for the next one */
    /* Where blocks are kept for results and for temporaries; NULL: not yet. */
    struct wf_kept **_Atomic result_kept, **_Atomic temporary_kept;
    atomic_bool has_run;
    wf_plan_info info;
};

/* A value that the group which makes it writes as that operand of a concat, in the concat's memory (plan_parts.c). */
typedef struct wf_part {
    wf_val whole; /* the concat; 0: it is none */
    uint32_t operand;
    int64_t start; /* along the axis */
} wf_part;

/* A plan being built. */
typedef struct wf_planner {
    wf_plan *p;
    const wf_fn *f;
    wf_layout l;
    wf_schedule s;
    const wf_plan_opts *opts;
    uint32_t most;      /* members of a group, 0: no bound */
    uint8_t *live;      /* by value */
    int32_t *buffer_of; /* of value v, as a root */
    wf_part *part;      /* of root v; NULL: there are none */
    int32_t *writer;    /* of input j: the output that replaces it, or -1 */
    bool too_large;     /* a group did not fit into a program */
    bool row_major;     /* no aligned rows (passes/layout.h) */
    bool whole;         /* no parts (plan_parts.c) */
    bool any;           /* it is taken, whatever memory it takes */
    unsigned lean;      /* WF_FUSE_LEAN, _LATE: what groups may not do for the sake of memory */
    int64_t
        fat; /* what lives at once in the plan made before, which was too much; 0: there was none */
    wf_why *why;
} wf_planner;

/* The extent of operand `operand` of a concat along its axis: the next one begins so much further. */
int64_t wf_part_extent(const wf_fn *f, wf_val whole, uint32_t operand);
/* Schedule to steps and accesses (buffers = root values until placed). */
int wf_plan_lower(wf_planner *b);
/* Nanoseconds of a clock that never goes back: by it the faster of two ways is found. */
int64_t wf_plan_now(void);
/* The same for the ways of a plan: where all work is the calling thread's, its own time, which does not pass while the processor
 * works for others. */
int64_t wf_plan_choice_clock(bool device);
/* Every thread's clock from now on, so that tests of choices depend on no machine's speed; NULL: the system's again. */
void wf_plan_plant_clock(int64_t (*now)(void));
/* The same function with rows opened; NULL if that saves no step, holds more memory (or there is none). */
wf_plan *wf_plan_open_rows(wf_plan *p);
/* One run of a group's kernel, native or not. */
int wf_plan_run_program(const wf_plan_program *g, const wf_program_args *a);
/* Runs the plan's own steps. */
int wf_plan_run_steps(wf_plan *p, wf_plan_args *a, wf_why *why);
/* Frees what runs have left. */
void wf_plan_drop_spare(wf_plan *p);
/* Adds the bytes that a step reads and writes; words: of the plan (or of the layout it is built from). */
void wf_plan_traffic(const wf_plan *p, const wf_plan_step *s, const int64_t *words, int64_t *reads,
                     int64_t *writes);
/* The plan whose steps run. */
const wf_plan *wf_plan_chosen(const wf_plan *p);
/* The site of instruction k in a recording (NULL: in that which the plan was built for), or NULL. */
const char *wf_plan_site(const wf_plan *p, const wf_fn *recording, uint32_t k);
/* Puts the op of instruction k before what why says, and its operands and call site behind it. */
void wf_plan_name_failure(const wf_plan *p, const wf_fn *recording, uint32_t k, wf_why *why);
/* The event of a launch, which is n steps, for the profile being taken. */
void wf_plan_note(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                  int64_t start, int64_t end);
/* The same as a line on stderr. */
void wf_plan_tell(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                  int64_t ns, bool queued);
/* "rows", "map", "op" or "copy". */
const char *wf_plan_step_kind(const wf_plan_step *s);
/* What a launch is called: its kernel, or its row. */
const char *wf_plan_launch_name(const wf_plan *p, const wf_plan_step *s);
/* Steps that may run side by side become one launch. */
int wf_plan_batch(wf_planner *b);
/* Holds a plan of f, built with these options, to its rules (plan_verify.c). 0, or a status with why naming the step. */
int wf_plan_verify(const wf_plan *p, const wf_fn *f, const wf_plan_opts *opts, wf_why *why);
/* A plan of f as it is, which becomes the plan's: no passes, one way, not validated. NULL with why filled; f is freed then. */
wf_plan *wf_plan_of(wf_fn *f, unsigned flags, wf_why *why);
void wf_reference_free(wf_reference *r); /* NULL is ignored */
/* What the launches of this run should have in memory when they are done; NULL: they are not compared. */
wf_view *wf_validate_begin(wf_plan *p, const wf_plan_args *a);
void wf_validate_end(const wf_plan *p, wf_view *values); /* NULL is ignored */
/* A launch of n steps is done; memory: of the run's slots, on a device or (0) the host. 0, what the device found, or WEFT_EINVALID with the kernel, the first element that is
 * another one and both values in why, and the ops with their sites in its hint. */
int wf_validate_launch(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                       int device, char *const *memory, const wf_view *values, wf_why *why);
/* Does the group of the step run natively by now? */
bool wf_plan_is_native(const wf_plan *p, const wf_plan_step *s);
/* Places all buffers. */
int wf_plan_place(wf_planner *b);

#endif
