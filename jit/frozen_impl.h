/*
 * jit/frozen_impl.h -- what the parts of frozen calls share: frozen.c describes calls, frozen_guard.c compares them and
 * looks at arguments, frozen_run.c replays.
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
    bool tracked;
    int alias; /* the first argument on the same memory */
    int outer; /* what it feeds, or -1 */
    int64_t offset;
    size_t nbytes;
    uint64_t hooks;
    int64_t map[2 * WF_MAX_RANK]; /* extents, then strides */
} wf_frozen_arg;

typedef struct wf_frozen_source {
    int arg;            /* the argument, or -1: captured */
    int owner;          /* captured: the argument whose gradient it is, or -1 */
    wf_storage *st;     /* captured: referenced */
    weft_tensor handle; /* captured: through which it is reached */
    bool tracked, written;
    uint32_t bumps; /* of the version */
    uint16_t write_op;
    uint64_t hooks;
} wf_frozen_source;

enum { WF_OUT_VALUE, WF_OUT_MADE, WF_OUT_ARG };
typedef struct wf_frozen_out {
    uint8_t kind, dtype, rank;
    int index; /* MADE: result of the function; ARG: argument */
    int64_t offset;
    weft_tensor value; /* VALUE: a scalar, a captured tensor, the empty handle */
    int64_t dims[WF_MAX_RANK], strides[WF_MAX_RANK];
} wf_frozen_out;

struct wf_frozen {
    _Atomic int refs;
    _Atomic uint32_t count;
    int n_in, n_source, n_out;
    uint32_t n_made;
    int device;   /* of the run */
    uint8_t home; /* the thread's default device */
    bool grad;
    uint64_t captured; /* wf_frozen_bit of every captured storage */
    wf_frozen_arg *in;
    wf_frozen_source *src;
    wf_frozen_out *out;
    size_t *made_bytes;
    int32_t *writes; /* per result, as plans have it */
    wf_fn *fn;
    wf_plan *plan;
    pthread_mutex_t lock; /* of what follows */
    wf_capture *capture;  /* NULL: none yet */
    int replays;          /* step by step */
    bool calm;            /* the last of them did what all later ones will do */
    bool uncapturable;
};

/* A set of storages in one word: one that is not in it is not among them. */
static inline uint64_t wf_frozen_bit(const wf_storage *st)
{
    return UINT64_C(1) << ((uint64_t)(uintptr_t)st * UINT64_C(0x9E3779B97F4A7C15) >> 58);
}

static inline bool wf_frozen_same_handle(weft_tensor a, weft_tensor b)
{
    return a.slot == b.slot && a.context == b.context && a.serial == b.serial;
}

/* Writes the reason; false. */
WF_COLD bool wf_frozen_refuse(char *reason, const char *fmt, ...) WF_PRINTF(2, 3);
/* Stands for the hooks of s: a backward inside the function calls them, so what was recorded holds only for these. */
uint64_t wf_frozen_hooks(wf_slot *s);
/* Where the gradient of s lies; NULL: it has none. */
const wf_storage *wf_frozen_gradient(wf_ctx *c, wf_slot *s);
/* Argument i as it is now. */
void wf_frozen_look(wf_frozen_arg *out, const wf_frozen_args *a, int i);

#endif
