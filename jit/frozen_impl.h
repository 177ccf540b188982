/*
 * jit/frozen_impl.h -- what the parts of frozen calls share: frozen.c describes calls, frozen_guard.c compares them and
 * looks at arguments, frozen_move.c knows arguments that lie elsewhere in their storages than before, frozen_state.c gradients
 * and optimisers, frozen_draw.c random numbers, frozen_run.c replays.
 *
 * Invariant: guards walk arrays that lie one behind the other (arguments, their storages, captured storages), so that
 * a call of many arguments costs a few nanoseconds for each.
 */
#ifndef JIT_FROZEN_IMPL_H
#define JIT_FROZEN_IMPL_H

#include <pthread.h>

#include "jit/capture.h"
#include "jit/frozen.h"

/* An argument as it was; what every guard looks at comes first. */
typedef struct wf_frozen_arg {
    uint8_t dtype, rank, device;
    uint8_t flow; /* wf_frozen_flow */
    int alias;    /* the first argument on the same memory */
    int outer;    /* what it feeds, or -1 */
    uint64_t
        fixed; /* all ones: it lies at that offset; 0: the replay moves with it (frozen_move.c) */
    int64_t offset;
    size_t nbytes;
    uint64_t hooks;
    weft_tensor
        only; /* of a recording: the argument. Else the only one that it may be: it was the same one in both recordings, so
                         what the function used may be a captured tensor (no slot: any one) */
    int64_t map[2 * WF_MAX_RANK]; /* extents, then strides */
} wf_frozen_arg;

typedef struct wf_frozen_source {
    int arg;            /* the argument, or -1: captured */
    int owner;          /* captured: the argument whose gradient it is, or -1 */
    wf_storage *st;     /* captured: referenced */
    weft_tensor handle; /* captured: through which it is reached */
    bool written;
    uint8_t flow;
    uint32_t bumps;         /* of the version */
    uint16_t write_op;      /* the last one, for messages: */
    const char *write_site; /* where it was called when the call was recorded */
    uint64_t hooks;
    int64_t lo, hi; /* of an argument that may move and is not written: the bytes that are read */
} wf_frozen_source;

/* A kept tensor that captured memory is used through beside wf_frozen_source.handle, or that the function asks about. */
typedef struct wf_frozen_also {
    weft_tensor handle;
    uint8_t flow;
    uint64_t hooks;
} wf_frozen_also;

enum { WF_OUT_VALUE, WF_OUT_MADE, WF_OUT_ARG, WF_OUT_AGAIN };
typedef struct wf_frozen_out {
    uint8_t kind, dtype, rank;
    int index; /* MADE: result of the function; ARG: argument; AGAIN: the output that it is */
    int64_t offset;
    const char *site;  /* MADE: that of the recording's */
    weft_tensor value; /* VALUE: a scalar, a captured tensor, the empty handle */
    int64_t dims[WF_MAX_RANK], strides[WF_MAX_RANK];
} wf_frozen_out;

/* What a call leaves of a gradient: nothing, a result of the function, what there was. */
enum { WF_LEAF_NONE, WF_LEAF_MADE, WF_LEAF_KEPT };
typedef struct wf_frozen_leaf {
    wf_meta *meta; /* referenced; NULL: of argument `arg` */
    int arg;
    bool looked; /* the gradient must be `had` */
    bool alone;  /* and share its memory with no other tensor, or with some */
    weft_tensor had;
    uint64_t hooks;     /* of a tensor that is no argument */
    uint32_t version;   /* of a gradient that is made */
    wf_frozen_out left; /* kind: WF_LEAF_* */
} wf_frozen_leaf;

/* A generator that a call draws from. */
typedef struct wf_frozen_from {
    weft_generator *of; /* NULL: the thread's own */
    bool named;         /* the thread's own, given by its address: of `context` only */
    bool known;         /* it was looked at when the call began */
    uint64_t blocks;    /* that a call takes */
} wf_frozen_from;

struct wf_frozen {
    size_t bytes; /* of all this with the arrays of its description, which lie behind it */
    _Atomic int refs;
    _Atomic uint32_t count;
    int n_in, n_source, n_out;
    uint32_t n_made;
    int device;   /* of the run */
    uint8_t home; /* the thread's default device */
    bool grad;
    bool gives;        /* some output is a captured tensor's own handle */
    uint64_t modes;    /* wf_modes */
    uint64_t captured; /* wf_frozen_bit of every captured storage */
    wf_frozen_arg *in;
    wf_frozen_source *src;
    wf_frozen_out *out;
    size_t *made_bytes;
    wf_frozen_leaf *leaf;
    uint32_t n_leaf;
    wf_live *live[WF_MOST_LIVE]; /* referenced */
    uint32_t n_live;
    wf_live_slot *number; /* slots of fn that a replay asks for */
    uint32_t n_number;
    wf_drawn *draw; /* per random row of fn, in their order */
    wf_frozen_from from[WF_MOST_GENERATORS];
    uint32_t n_draw, n_from, draw_words; /* words: integer slots of random rows */
    uint32_t context;                    /* it was recorded in */
    uint32_t n_also;
    wf_frozen_also *also;
    int32_t *writes; /* per result, as plans have it */
    wf_fn *fn;
    wf_plan *plan;
    void *_Atomic spare;  /* memory of a replay that has ended, for the next one */
    pthread_mutex_t lock; /* of what follows */
    wf_capture *capture;  /* NULL: none yet */
    int replays;          /* step by step */
    int stale;            /* captures that went since they could not take a call's numbers */
    bool calm;            /* the last of them did what all later ones will do */
    bool uncapturable;
    bool keeps; /* gradients of an earlier call were still held: all results are copied */
};

/* What gradients do at s: flow to it, end there, are lost there, so that it must not be written. */
static inline uint8_t wf_frozen_flow(const wf_slot *s)
{
    return (uint8_t)(wf_slot_tracked(s) | ((s->flags & WF_SLOT_REQUIRES_GRAD) ? 2 : 0) |
                     ((s->flags & WF_SLOT_UNRECORDED) ? 4 : 0));
}
/* A set of storages in one word: one that is not in it is not among them. */
static inline uint64_t wf_frozen_bit(const wf_storage *st)
{
    return UINT64_C(1) << ((uint64_t)(uintptr_t)st * UINT64_C(0x9E3779B97F4A7C15) >> 58);
}

/* Writes the reason; false. */
WF_COLD bool wf_frozen_refuse(char *reason, const char *fmt, ...) WF_PRINTF(2, 3);
/* Stands for the hooks of s: a backward inside the function calls them, so what was recorded holds only for these. */
uint64_t wf_frozen_hooks(wf_slot *s);
/* The same of its meta, whose lock is held. */
uint64_t wf_frozen_hooks_of(const wf_meta *m);
/* Where the gradient of s lies; NULL: it has none. */
const wf_storage *wf_frozen_gradient(wf_ctx *c, wf_slot *s);
/* Argument i as it is now. */
void wf_frozen_look(wf_frozen_arg *out, const wf_frozen_args *a, int i);

/* Which result of the function lives in st, -1: none. */
int wf_frozen_made(const wf_trace *t, const wf_storage *st);
/* The map of a tensor over result `index`. */
void wf_frozen_map(wf_frozen_out *o, wf_slot *s, int index);
/* Were they made in the same way? */
bool wf_frozen_same_map(const wf_frozen_out *x, const wf_frozen_out *y);

/* -- gradients and optimisers ----------------------------------------------------------------------------------- */

/* What t noted. *made: how many references gradients hold to what the function makes. False with the reason. */
bool wf_frozen_describe_state(wf_frozen *z, const wf_trace *t, const wf_frozen_args *a, int *made,
                              char *reason);
/* The gradient, kept, that lies in st and was there when the call began, or an empty handle. *at: where the search goes
 * on from, 0 at first. */
weft_tensor wf_frozen_gradient_in(const wf_trace *t, const wf_storage *st, uint32_t *at);
bool wf_frozen_same_state(const wf_frozen *a, const wf_frozen *b, char *reason);
bool wf_frozen_guard_state(const wf_frozen *z, const wf_frozen_args *a, char *reason);
/* Has a tensor or an optimiser of it been freed? */
bool wf_frozen_state_is_dead(const wf_frozen *z);
/* Gives up what z holds. */
void wf_frozen_drop_state(wf_frozen *z);
/* Before a replay: gradients go that the call replaces, slots (of all scalars) take this call's numbers. 0, or a status
 * with why filled. */
int wf_frozen_begin_state(const wf_frozen *z, const wf_frozen_args *a, uint64_t *slots,
                          wf_why *why);
/* After it: new gradients in made; the optimisers have stepped. Likewise. */
int wf_frozen_end_state(const wf_frozen *z, const wf_frozen_args *a, wf_storage *const *made,
                        wf_why *why);

/* -- random numbers ------------------------------------------------------------------------------------------------ */

static inline bool wf_frozen_is_random(wf_op op)
{
    return op >= WF_OP_RAND && op <= WF_OP_RANDPERM;
}
/* False with the reason: generators that it draws from are no numbers of a replay. */
bool wf_frozen_describe_draws(wf_frozen *z, const wf_trace *t, const wf_frozen_start *s,
                              char *reason);
bool wf_frozen_same_draws(const wf_frozen *a, const wf_frozen *b, char *reason);
/* Two random rows of f and of its like, but for where they draw from. */
bool wf_frozen_same_draw(const wf_fn *f, const wf_ins *x, const wf_attr *p, const wf_attr *q);
bool wf_frozen_guard_draws(const wf_frozen *z, const wf_frozen_args *a, char *reason);
/* A replay begins: f, a copy of z's function, draws from where the generators are, and these move on. room: of
 * wf_frozen_draw_bytes(z), aligned for pointers; 0: it draws nothing. */
size_t wf_frozen_draw_bytes(const wf_frozen *z);
void wf_frozen_draw(const wf_frozen *z, wf_ctx *c, wf_fn *f, void *room);

/* -- arguments that move ---------------------------------------------------------------------------------------- */

/* By how many bytes the arguments of b lie elsewhere in their storages than those of a, for each source (room for n_source).
 * False with the reason: two that share memory moved apart. */
bool wf_frozen_shifts(const wf_frozen *a, const wf_frozen *b, int64_t *shift, char *reason);
/* Are the numbers of b those of a, but for those that a replay of z asks for and for places in arguments, all of which moved
 * by their shifts? Else the reason. */
bool wf_frozen_numbers(const wf_frozen *z, const wf_fn *a, const wf_fn *b, const int64_t *shift,
                       char *reason);
/* z, which has its function, agreed with `before`: arguments that lay elsewhere there may lie anywhere. */
void wf_frozen_let_move(wf_frozen *z, const wf_frozen *before);
/* May argument i, which moved or shares memory with others, lie where it does? Else the reason. */
bool wf_frozen_guard_move(const wf_frozen *z, const wf_frozen_args *a, int i, char *reason);
/* By how much source k has moved in this call. */
static inline int64_t wf_frozen_shift(const wf_frozen *z, const wf_frozen_args *a, int k)
{
    const int i = z->src[k].arg;
    return i < 0 ? 0 : a->slot[i]->offset - z->in[i].offset;
}

#endif
