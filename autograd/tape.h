/*
 * autograd/tape.h -- the tape: recorded ops of one thread, in chunks that are recycled.
 *
 * A node is what the IR calls an instruction: op, attributes, operands (earlier nodes), one result
 * type. Further results of an op are RESULT nodes that point at it. The tape appends: no folding, no
 * merging. It holds storage, never handles.
 *
 * Invariants
 *  - A node lives while a handle, a later node or a storage root refers to it; releasing is iterative.
 *  - Order (chunk sequence, index) is topological; chunk memory is reused, order numbers are not.
 *  - A value is saved only if a derivative that can be asked for reads it, with the version of its
 *    storage; backward drops it as it passes unless the graph is retained.
 */
#ifndef AUTOGRAD_TAPE_H
#define AUTOGRAD_TAPE_H

#include "eager/tensor.h"

enum { WF_TAPE_CHUNK = 256, WF_TAPE_DIMS = 4, WF_TAPE_BUCKETS = 64 };

extern const wf_tape_hooks wf_tape_hook_table;

/* A saved value: a view of storage at a version. Those of one node are a list, newest first: memory may
 * be written between two ops that save it, and each reads its own version. */
typedef struct wf_tval {
    struct wf_tval *older;
    uint64_t
        since; /* order of the first node that reads it; a node's own is the newest not younger */
    wf_storage *st;
    int64_t offset; /* bytes from the start of the storage */
    uint32_t version;
    uint32_t users;   /* nodes whose derivative still wants it */
    const char *name; /* copy of the tensor's name, or NULL: behind the strides */
    size_t bytes;     /* of all this */
    int64_t strides[];
} wf_tval;

struct wf_custom;
/* The name that its user gave it. */
const char *wf_custom_name(const struct wf_custom *custom);

/* What does not fit a node: attributes, more than three operands, scalars, pending gradients of
 * several results. */
typedef struct wf_taux {
    wf_attr attr;        /* arrays live behind this struct */
    wf_ref *src;         /* all operands when nsrc > 3 */
    weft_tensor *scalar; /* per operand: the scalar or absent handle, or empty; NULL if none */
    weft_tensor g[WF_MAX_DST]; /* pending gradients of results 1.. of a multi-result op */
    wf_ref extra
        [8]; /* nodes held for their saved values: result k at [k]; a custom op's saved tensors */
    struct wf_custom *custom;
    size_t bytes; /* of all this */
} wf_taux;

#define WF_TN_QUEUED 1u    /* in the backward queue */
#define WF_TN_WHOLE 2u     /* the result covers its storage in row-major order */
#define WF_TN_ALIAS 4u     /* a view that shares its operand's storage */
#define WF_TN_SPENT 8u     /* backward passed and dropped the saved values */
#define WF_TN_SKIP 16u     /* leads to nothing that the running grad_of wants */
#define WF_TN_DROPPED 64u  /* `extra` claims were given back */
#define WF_TN_SELF 32u     /* its own result's value was captured for it */
#define WF_TN_FOREIGN 128u /* leaf of another thread's slot: found by its meta */
#define WF_TN_LAST                                                                                 \
    1u /* in `out`: an op's first result covers its storage, channels-last; a leaf lies so */

enum { WF_TN_INPUT = 1, WF_TN_LEAF = 2, WF_TN_OP = 3, WF_TN_RESULT = 4 };

typedef struct wf_tnode {
    uint16_t nsrc;
    uint8_t op;
    uint8_t sort; /* WF_TN_INPUT.. */
    uint8_t flags;
    uint8_t dtype, rank;
    uint8_t out; /* RESULT: which; OP, LEAF: WF_TN_LAST */
    uint8_t ndst;
    uint8_t saved_src; /* bit i: holds a user count on operand i's value (nsrc <= 8) */
    uint8_t device;    /* of its value, and so of its gradient: eager/device.h */
    uint8_t parts;     /* a running backward has gradients of parts of its value (engine.h) */
    uint32_t refs;
    wf_ref src_[3]; /* a foreign leaf's [0]: the next of its bucket */
    wf_tval *val;
    wf_taux *aux;
    wf_meta *meta;
    const char *site;
    weft_tensor g; /* pending gradient during backward; link while being released */
    union {
        int64_t dims_[WF_TAPE_DIMS];
        int64_t *ext;
    } u;
} wf_tnode;

typedef struct wf_tchunk {
    uint64_t seq;
    uint32_t live;
    uint32_t used;
    wf_tnode node[WF_TAPE_CHUNK];
} wf_tchunk;

typedef struct wf_tape {
    wf_tchunk **chunk; /* by chunk number; never shrinks, entries are reused */
    uint32_t nchunk, cap;
    uint32_t current;
    uint32_t *free_list;
    uint32_t nfree;
    uint64_t seq;
    int64_t live;       /* nodes alive, for tests and statistics */
    _Atomic int remote; /* references released by other threads wait in `pending` */
    wf_ref *pending;
    uint32_t npending, cap_pending;
    _Atomic int lock;
    void *engine;                    /* the innermost backward that is running */
    wf_ref foreign[WF_TAPE_BUCKETS]; /* leaves of other threads by meta: one node per leaf */
} wf_tape;

static inline wf_tnode *wf_tnode_at(wf_tape *t, wf_ref r)
{
    return &t->chunk[r / WF_TAPE_CHUNK]->node[r % WF_TAPE_CHUNK];
}
static inline uint64_t wf_tnode_order(wf_tape *t, wf_ref r)
{
    return t->chunk[r / WF_TAPE_CHUNK]->seq * WF_TAPE_CHUNK + r % WF_TAPE_CHUNK;
}
static inline const int64_t *wf_tnode_dims(const wf_tnode *n)
{
    return n->rank > WF_TAPE_DIMS ? n->u.ext : n->u.dims_;
}
static inline wf_ref *wf_tnode_src(wf_tnode *n)
{
    return n->nsrc > 3 ? n->aux->src : n->src_;
}
void wf_tnode_type(const wf_tnode *n, wf_type *t);
/* Of an op: its row's name, or what a function of the user's own is called. */
const char *wf_tnode_name(const wf_tnode *n);

/* The context's tape, made on demand; NULL: no memory. */
wf_tape *wf_tape_get(wf_ctx *c);
/* The node of a slot's present value (a reference is not taken); 0: no memory. Makes LEAF, INPUT and
 * alias nodes as needed. */
wf_ref wf_tape_node_of(wf_ctx *c, wf_slot *s, wf_why *why);
void wf_tape_release_ref(wf_ctx *c, wf_ref r);
/* Releases a node that nothing refers to yet (of a slot that cannot hold it); others are left alone. */
void wf_tape_discard(wf_ctx *c, wf_ref r);
/* Drops node r's claims on saved values (its operands' and its own). */
void wf_tape_drop_saved(wf_tape *t, wf_ref r);
/* Claims the present value of slot s, recorded as `node`, for the derivative of node `user`. 0 or ENOMEM. */
int wf_tape_save(wf_tape *t, wf_ref node, wf_ref user, wf_slot *s);
/* A handle of the innermost scope on node r's saved value; attaches the node when gradients are on.
 * Empty (error recorded) when the value is stale or gone. `user`: the node that reads it. */
weft_tensor wf_tape_value(wf_ctx *c, wf_ref r, wf_ref user, int which);
/* The elements of that value, row-major in memory of the host; NULL: they are elsewhere, or wf_tape_value says what is wrong. */
const void *wf_tape_elements(wf_tape *t, wf_ref r, wf_ref user);
/* Gradients are kept of tensors on st, which was written, or now of `of`: they are to be those of its value now, of all that reads it
 * from now on. */
void wf_tape_keep_gradients(wf_ctx *c, wf_storage *st, const wf_slot *of);
/* Custom functions: appends a node for `custom` over operands to results. */
int wf_tape_append_custom(wf_ctx *c, struct wf_custom *custom, int nsrc, wf_slot *const *src,
                          const weft_tensor *handles, int ndst, wf_slot *const *dst, wf_why *why);

/* -- between tape.c and tape_record.c ------------------------------------------------------------------------ */
/* A node that nothing refers to; 0: no memory. */
wf_ref wf_tape_node_new(wf_tape *t, int sort, wf_op op, int dtype, int rank, const int64_t *dims);
/* Gives a reference back. */
void wf_tape_release_now(wf_tape *t, wf_ref r);
/* Releases what other threads gave back. */
void wf_tape_drain(wf_tape *t);
/* The node here of another thread's leaf, or 0; enters one. */
wf_ref wf_tape_foreign_find(wf_tape *t, const wf_meta *m);
void wf_tape_foreign_add(wf_tape *t, wf_ref r);
/* Of wf_tape_hooks. */
void wf_tape_on_release(wf_ctx *c, uint32_t owner, wf_ref r);
void wf_tape_on_close(wf_ctx *c);
void wf_tape_on_stamp(wf_ctx *c, wf_ref r, const char *site);

#endif
