/*
 * eager/tensor.h -- what a handle names: slots, storage, contexts, scopes.
 *
 * Invariants
 *  - Slots live in chunks that never move; a slot's state word packs serial, DEAD, KEPT and pins, so
 *    a handle is checked by one load, and a kept one is pinned by one compare-and-swap, or borrowed by its own
 *    thread (eager/borrow.h).
 *  - A scope-owned slot is touched by its own thread only; a kept one by any thread that pinned it.
 *  - Storage is reference counted by slots, saved values of the tape and imports. `handles` counts
 *    the slots among them: when no handle is left the recorded root of in-place writes is released.
 *  - A storage is reached by one thread alone until a slot of it is kept or somebody else than slots and tape retains
 *    it (`shared`): until then counts are changed by plain stores.
 *  - The version of a storage grows by one at every in-place write, through whichever alias.
 */
#ifndef EAGER_TENSOR_H
#define EAGER_TENSOR_H

#include <stdatomic.h>

#include "eager/view.h"
#include "jit/ir/op.h"
#include "weft/random.h"

/* Errors are rare: code that ends in one of these is laid out behind what runs at every call. */
#define WF_COLD __attribute__((cold))

typedef uint32_t wf_ref; /* node of the thread's tape or trace; 0 = none */

/* Where data lies: in a block of its own, behind the header in the same block, in memory of somebody else's, in a
 * device's block. */
enum { WF_STORAGE_OWN, WF_STORAGE_INLINE, WF_STORAGE_EXTERNAL, WF_STORAGE_DEVICE };

typedef struct wf_storage {
    _Atomic int32_t refs;
    _Atomic int32_t handles;
    _Atomic uint32_t version;
    uint32_t root_gen; /* recorded in-place writes so far: wf_slot_root_gen */
    union {
        struct {
            wf_ref root; /* node of the whole storage after the last recorded write, or 0 */
            wf_ref root_of_apart; /* the same of writes through views apart: wf_slot_root */
        };
        uint64_t roots;
    };
    uint32_t root_ctx;   /* context whose tape they belong to */
    uint16_t write_op;   /* last write, or what failed on it: an op, or a wf_write; for messages */
    uint8_t inline_data; /* wf_storage_kind */
    uint8_t read_only;
    uint8_t device; /* eager/device.h; 0: host memory */
    /* No memory yet: a running trace will compute the bytes. data is a made-up address that no other
     * storage has, so that index maps and overlap tests need no special case. Never dereferenced. */
    _Atomic uint8_t is_virtual;
    uint8_t shared; /* other threads may hold references: they are counted by locked instructions */
    uint8_t grad_kept;    /* weft_retain_grad of a tensor on it */
    _Atomic int32_t held; /* references among refs that traces hold: sources, and virtual results */
    _Atomic uint64_t
        broken; /* error number of a write that failed half-way, WF_ARRIVING, 0 = sound */
    const char *write_site;
    void *data;
    size_t nbytes;
    void (*deleter)(void *arg); /* external memory; NULL for our own */
    void *
        deleter_arg; /* of a device's memory: the block; of our own: its place (eager/kept.h), or NULL */
    void *order; /* of external device memory: a block used whenever it is */
    /* Of a virtual storage: who computes it (NULL: an ordinary one), its SSA value, and the trace's list. */
    struct wf_recorder *_Atomic recorder;
    struct wf_storage *next, *prev;
    uint32_t value;
    uint32_t root_gen_of_apart; /* the same through views apart */
} wf_storage;

/* `broken` of host memory that a device is still copying into (eager/device.h): what looks at `broken` before it touches
 * the bytes waits for them, by wf_storage_arrive. */
#define WF_ARRIVING UINT64_MAX

enum { WF_INLINE_RANK = 6 };

#define WF_SLOT_WEAK 1u          /* 0-d result of scalars only */
#define WF_SLOT_REQUIRES_GRAD 2u /* leaf that wants a gradient */
#define WF_SLOT_GRADIENT 4u      /* kept by the library as a gradient, not by the user */
#define WF_SLOT_APART 8u         /* a view that was not recorded: wf_slot_apart */
#define WF_SLOT_UNRECORDED 16u   /* because recording was off: a write while it is on is refused */

typedef struct wf_hook {
    uint64_t id;
    uint64_t
        value; /* order of the node whose gradient it sees: a write in place makes another; 0: a leaf's */
    uint64_t by; /* id of the thread's context that registered it */
    int post;    /* runs after accumulation */
    int users;   /* threads that run it now */
    int removed; /* the last of them releases it */
    weft_tensor (*fn)(void *user, weft_tensor grad);
    void *user;
    void (*release)(void *user);
} wf_hook;

/* In order of registration, which is that of their numbers. One that was removed leaves a gap, until more than half are gaps. */
typedef struct wf_hooks {
    size_t n, cap, gaps;
    bool
        rising; /* values never fall from one to the next, as where one thread writes and registers */
    struct wf_hook_place {
        uint64_t id, value;
        wf_hook *is; /* NULL: a gap */
    } at[];
} wf_hooks;

/* Rare per-tensor facts: gradient, hooks, name. Shared by a tensor and its tape leaf. The gradient goes
 * with the last slot: nobody could ask for it, and its history may lead back here. */
typedef struct wf_meta {
    _Atomic int32_t refs;
    _Atomic int32_t slots; /* of those, slots */
    _Atomic int32_t lock;
    weft_tensor grad; /* kept handle or empty */
    _Atomic uint64_t
        retain;      /* order of the node of a recorded result whose gradient is kept, 0: none */
    wf_hooks *hooks; /* NULL: none was ever registered */
    char *name;      /* under the lock: other threads' reports read it */
    _Atomic uint32_t noted; /* the segment that last noted what it does to the gradient */
    _Atomic uint32_t off; /* weft_requires_grad_(t, false): records made before lead to it still */
} wf_meta;

typedef struct wf_slot {
    _Atomic uint64_t state; /* serial << 18 | DEAD << 17 | KEPT << 16 | pins */
    uint32_t next, prev;    /* scope list (kept slots: the context's kept list is not linked) */
    uint32_t scope;         /* depth of the owning scope, 0 = kept */
    uint32_t context;
    uint8_t dtype, rank, flags, pad;
    wf_ref node;       /* tape node of the value (context's tape) */
    uint32_t node_gen; /* wf_slot_root_gen when node was taken, or the view apart made */
    /* A trace's note on a view it has recorded: in trace `noted`, while the storage's value is seen_base,
     * the view's value is seen. Only slots of the tracing thread's own scopes carry one. */
    uint32_t noted, seen_base, seen;
    wf_storage *st;
    int64_t offset;        /* bytes from the start of the storage to element [0, ...] */
    int64_t *ext;          /* dims then strides when rank > WF_INLINE_RANK */
    wf_meta *_Atomic meta; /* two threads may be the first to need it */
    const char *site;
    int64_t dims_[WF_INLINE_RANK];
    int64_t strides_[WF_INLINE_RANK];
} wf_slot;

static inline int64_t *wf_dims(wf_slot *s)
{
    return s->ext ? s->ext : s->dims_;
}
static inline int64_t *wf_strides(wf_slot *s)
{
    return s->ext ? s->ext + s->rank : s->strides_;
}
/* Elements of a row-major slot; -1: it is another. */
static inline __attribute__((always_inline)) int64_t wf_row_major(int rank, const int64_t *dims,
                                                                  const int64_t *strides)
{
    int64_t n = 1;
    for (int i = rank; i-- > 0;) {
        if (strides[i] != n) {
            return -1;
        }
        n *= dims[i];
    }
    return n;
}
static inline __attribute__((always_inline)) int64_t wf_slot_row_major(wf_slot *s)
{
    return wf_row_major(s->rank, wf_dims(s), wf_strides(s));
}
/* The address of element [0, ...]. Not to be dereferenced while the storage is virtual. */
static inline char *wf_slot_data(const wf_slot *s)
{
    return (char *)s->st->data + s->offset;
}
int64_t wf_slot_numel(wf_slot *s);
int wf_slot_is_contiguous(wf_slot *s);
void wf_slot_view(wf_slot *s, wf_view *v);
void wf_slot_type(wf_slot *s, wf_type *t);
/* The slot covers its whole storage in row-major order. */
int wf_slot_is_whole(wf_slot *s);

#define WF_STATE_DEAD (1ull << 17)
#define WF_STATE_KEPT (1ull << 16)
#define WF_STATE_PINS 0xFFFFull
#define WF_STATE_SERIAL(st) ((st) >> 18)

enum {
    WF_CHUNK_SLOTS = 1024,
    WF_MAX_CHUNKS = 1 << 14,
    WF_MAX_CTX = 4096,
    WF_ERRORS = 64,
    WF_BORROWS = 32 /* a frozen call holds all its arguments */
};

/* Scalar handles carry their value: slot = this, context = kind, serial = bits. */
#define WF_SCALAR_SLOT 0xFFFFFFFEu
enum { WF_SCALAR_BOOL = 0, WF_SCALAR_INT = 1, WF_SCALAR_FLOAT = 2 };
/* An optional operand that was not given. */
#define WF_ABSENT_SLOT 0xFFFFFFFDu
#define WF_ABSENT ((weft_tensor){WF_ABSENT_SLOT, 0, 0})
static inline bool wf_is_absent(weft_tensor t)
{
    return t.slot == WF_ABSENT_SLOT;
}
static inline bool wf_is_scalar(weft_tensor t)
{
    return t.slot == WF_SCALAR_SLOT;
}
/* WEFT_NONE: empty, and not because of an error. */
static inline bool wf_is_none(weft_tensor t)
{
    return t.slot == 0 && t.serial == 0;
}
/* An empty handle that carries an error. */
static inline bool wf_is_error(weft_tensor t)
{
    return t.slot == 0 && t.serial != 0;
}
/* One handle twice? Other handles of its value are not. */
static inline bool wf_same_handle(weft_tensor a, weft_tensor b)
{
    return a.slot == b.slot && a.context == b.context && a.serial == b.serial;
}

typedef struct wf_error {
    uint64_t id;
    uint64_t seen; /* error_seen when it was raised, counting it */
    int status;
    bool sited;
    bool told; /* the caller knows: it is about the arguments, or a value of it was asked for */
    char text[1400];
} wf_error;

typedef struct wf_scope_rec {
    uint32_t head; /* first slot, 0 = none */
    uint64_t serial;
} wf_scope_rec;

struct wf_ctx;

/* The generators that are drawn from while somebody watches, as they were before. */
enum { WF_WATCHED_GENERATORS = 8 };
typedef struct wf_draws {
    struct wf_draws *outer; /* who watches, too */
    struct {
        weft_generator *of; /* NULL: the thread's */
        weft_generator at;
    } from[WF_WATCHED_GENERATORS];
    int n;
    bool more; /* than there is room for */
    const void
        *frame; /* of who watches: generators below it end with what is watched, and are left out */
} wf_draws;

/* Straight-line code of elementwise rows over numbered values: tensors from 0, temporaries, numbers from `scalars`. */
typedef struct wf_line {
    wf_op op;
    int dst;
    int src[3]; /* -1: none */
} wf_line;
typedef struct wf_lines {
    const wf_line *line;
    int n, n_tensor;
    struct wf_slot *const *tensor;
    int scalars, n_scalar;
    const double *scalar;
    const uint8_t *number; /* which of the numbers of wf_recorder.live each scalar is */
} wf_lines;

/*
 * Numbers that somebody else knows: an optimiser's, of its rate and its step. A trace notes which scalars they are, so that
 * a replay of what it recorded asks for them anew. Referenced by the optimiser and by what may be replayed.
 */
enum { WF_LIVE_NUMBERS = 8 };
typedef struct wf_live {
    _Atomic int32_t refs;
    void *_Atomic of; /* NULL: it has been freed */
    /* Those of step `nth`, 0 first, of a run that follows; 0 or a status. Asked in the order of the steps. */
    int (*begin)(void *of, uint32_t nth, double number[WF_LIVE_NUMBERS]);
    void (*end)(void *of); /* that run has succeeded; once for each begin */
} wf_live;
/* The last reference frees it; NULL is ignored. */
void wf_live_release(wf_live *l);

/* weft_keep and weft_free for handles of the library's own, as gradients are: of these, frozen calls know by themselves. */
weft_tensor wf_keep(weft_tensor t);
weft_status wf_free_handle(weft_tensor t);

/* Stands for the modules that are in evaluation mode: the same set, the same number. What a frozen call was recorded under. */
extern _Atomic uint64_t wf_modes;

/*
 * Installed by a trace. Dispatch does everything it always does (checks, promotion, views, handles, tape,
 * versions) but gets the memory of results from here and sends here what kernels would have computed.
 * Functions that return int: 0, or a status with why filled and nothing recorded. A dst is a fresh result
 * (its storage is virtual and has no value yet) or the target of a write in place: any view.
 */
typedef struct wf_recorder {
    /* A virtual storage. NULL: no memory. */
    wf_storage *(*storage)(struct wf_recorder *r, size_t nbytes);
    /* dst := op(src...) for an elementwise row whose operands meet in type `join`; slot NULL: the scalar
     * handles[i]. */
    int (*map)(struct wf_recorder *r, wf_op op, int join, int nsrc, wf_slot *const *src,
               const weft_tensor *handles, wf_slot *dst, wf_why *why);
    /* dst[0..] := op(src...) for any other row; slot NULL: absent. */
    int (*row)(struct wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *src,
               wf_slot *const *dst, wf_why *why);
    /* dst views src (or, fresh, is the copy that a reshape needs). */
    int (*view)(struct wf_recorder *r, wf_op op, const wf_attr *attr, wf_slot *src, wf_slot *dst,
                wf_why *why);
    /* dst := src, or the scalar when src is NULL, converted and broadcast. */
    int (*copy)(struct wf_recorder *r, wf_slot *dst, wf_slot *src, weft_tensor scalar, wf_why *why);
    /* dst := the derivative of op by operand `which`; src: g, operands, result; WF_ABSENT: not read. */
    int (*vjp)(struct wf_recorder *r, wf_op op, int which, int nsrc, const weft_tensor *src,
               wf_slot *dst, wf_why *why);
    /* What calls of the lines one after another would record, in one go; tensors that are among the dst get new values, and
     * the caller counts the writes. False: not of tensors like these, nothing was done; else *rc, 0 or a status with
     * why filled. */
    bool (*lines)(struct wf_recorder *r, const wf_lines *l, int *rc, wf_why *why);
    /* Somebody is about to read the elements of s (write: and may change them) behind dispatch's back;
     * s NULL: everything. Afterwards they are in memory. op: what wants them; later: its place is known when it stamps its result,
     * if it is not now (what reads says it before or not at all: the next stamp is another call's). */
    int (*need)(struct wf_recorder *r, wf_slot *s, bool write, const char *op, bool later,
                wf_why *why);
    /* The elements of s are what recorded ops will write: `need` would run them. */
    bool (*pending)(struct wf_recorder *r, const wf_slot *s);
    /* The last reference but the recorder's own to a virtual storage has gone, on its thread. */
    void (*dead)(struct wf_recorder *r, wf_storage *st);
    /* A call at this site is over, which made st (NULL: or wrote in place, or nothing that is known). */
    void (*stamp)(struct wf_recorder *r, const wf_storage *st, const char *site);
    /* The thread ends. */
    void (*close)(struct wf_recorder *r);
    /* Ops on another device than `device` follow: what is recorded runs first. */
    int (*enter)(struct wf_recorder *r, int device, wf_why *why);
    /* The short ways, of operands of the host: an op that the trace takes whole, with its results' handles; *rc is then the
     * status, 0 or with an error recorded. False: nothing was done, and the general way is to be taken. */
    bool (*quick)(struct wf_recorder *r, wf_op op, const wf_attr *attr, int nsrc,
                  const weft_tensor *src, int ndst, weft_tensor *dst, int *rc);
    bool (*quick_into)(struct wf_recorder *r, wf_op op, int nsrc, const weft_tensor *src,
                       weft_tensor dst, int *rc);
    /* What follows steps an optimiser, once more each time: values that are read are its own, scalars of `lines` its numbers.
     * NULL: no more. */
    void (*live)(struct wf_recorder *r, wf_live *l);
    /* The gradient that m has, `had`, is about to be looked at (or added to), or to be replaced whatever it is. */
    void (*gradient)(struct wf_recorder *r, wf_meta *m, weft_tensor had, bool looked);
    /* The function does something that a replay could not do. why: a static string. */
    void (*never)(struct wf_recorder *r, const char *why);
    /* The function asks or changes what s is: its type, its name, its hooks. */
    void (*asked)(struct wf_recorder *r, wf_slot *s);
    /* A random row has been recorded that takes so many blocks of g, which is still as it was. named: the caller gave its
     * address. */
    void (*drew)(struct wf_recorder *r, weft_generator *g, bool named, uint64_t blocks);
    uint32_t
        outside; /* scopes up to this depth are the caller's of a function that may be replayed; 0: nobody asks */
    uint8_t device; /* of what is being recorded */
} wf_recorder;

/* Installed once by the autograd layer: appends executed ops that touch tracked values. */
typedef struct wf_tape_hooks {
    /* An op ran out of place: dst slots hold its values. Sets their nodes. 0 or a status. */
    int (*append)(struct wf_ctx *c, wf_op op, const wf_attr *attr, int nsrc, wf_slot *const *src,
                  const weft_tensor *handles, int ndst, wf_slot *const *dst, wf_why *why);
    /* dst's elements are about to be replaced by those of value (same type): records the new value
     * of the storage. Called before the copy. */
    int (*store)(struct wf_ctx *c, wf_slot *dst, wf_slot *value, wf_why *why);
    void (*release)(struct wf_ctx *c, uint32_t owner_ctx, wf_ref node);
    void (*stamp)(struct wf_ctx *c, wf_ref node, const char *site);
    void (*close)(struct wf_ctx *c);
    /* Is the node of this thread a leaf at rest? Then its gradients lie on the device from now on; -1: as before. */
    bool (*leaf)(struct wf_ctx *c, wf_ref node, int device);
    /* The op that this thread recorded s's value by; NULL: none, or one that is not known any more. */
    const char *(*maker)(const struct wf_ctx *c, const wf_slot *s);
} wf_tape_hooks;
extern const wf_tape_hooks *_Atomic wf_tape_api; /* NULL until something requires a gradient */

/* Writes that are not an op's own in place, by the functions' names: wf_storage.write_op, beside the ops. */
#define WF_WRITES(W)                                                                               \
    W(FILL, "fill_")                                                                               \
    W(ZERO, "zero_")                                                                               \
    W(MASKED_FILL, "masked_fill_")                                                                 \
    W(DATA_MUT, "data_mut")                                                                        \
    W(BATCH_NORM, "batch_norm")                                                                    \
    W(INIT_CONSTANT, "init_constant")                                                              \
    W(INIT_UNIFORM, "init_uniform")                                                                \
    W(INIT_NORMAL, "init_normal")                                                                  \
    W(INIT_TRUNC_NORMAL, "init_trunc_normal")                                                      \
    W(INIT_XAVIER_UNIFORM, "init_xavier_uniform")                                                  \
    W(INIT_XAVIER_NORMAL, "init_xavier_normal")                                                    \
    W(INIT_KAIMING_UNIFORM, "init_kaiming_uniform")                                                \
    W(INIT_KAIMING_NORMAL, "init_kaiming_normal")                                                  \
    W(INIT_ORTHOGONAL, "init_orthogonal")                                                          \
    W(CLIP, "module_clip_grad_norm")                                                               \
    W(CLIP_VALUE, "module_clip_grad_value")                                                        \
    W(LERP, "module_lerp")                                                                         \
    W(OPTIM_STEP, "optim_step")                                                                    \
    W(SAFETENSORS_LOAD, "safetensors_load")                                                        \
    W(CHECKPOINT_LOAD, "checkpoint_load")                                                          \
    W(BACKWARD, "backward")
#define WF_WRITE(NAME, name) WF_WRITE_##NAME,
typedef enum wf_write { WF_WRITE_OTHER = WF_OP_COUNT, WF_WRITES(WF_WRITE) WF_WRITE_END } wf_write;
#undef WF_WRITE
enum { WF_NAME_SIZE = 64 };
/* "add_" for WF_OP_ADD, "copy_" for WF_OP_COPY, "fill_" for WF_WRITE_FILL: what the user called to write, in buf if it is not
 * a constant. */
WF_COLD const char *wf_write_name(unsigned write, char buf[WF_NAME_SIZE]);
enum { WF_BROKEN_SIZE = 256 };
/* "gather failed in the call that wrote it (model.c:12)": why st holds no valid value. */
WF_COLD const char *wf_broken_text(const wf_storage *st, char buf[WF_BROKEN_SIZE]);

/* The call that the user made, while ops that it is made of run: wf_raise names it and its operands. */
typedef struct wf_called {
    struct wf_ctx *c; /* NULL: no memory for one */
    const char *name; /* NULL: of what it writes */
    int n;
    const weft_tensor *src;
    unsigned write; /* as what its writes are remembered; 0: as the ops that they are */
} wf_called;

/* A tensor with a name that has gone, for messages about its handle. */
enum { WF_GONE = 8, WF_GONE_NAME = 48 };
typedef struct wf_gone {
    weft_tensor handle;
    const char *site;
    int64_t dims[WF_INLINE_RANK];
    uint8_t dtype, rank;
    char name[WF_GONE_NAME]; /* cut */
} wf_gone;

/* A region of this thread whose ops run at once instead of being recorded (jit/call_region.c). */
typedef struct wf_plain_region {
    struct weft_jit *of; /* NULL: there is none */
    uint32_t depth;      /* regions inside one another, this one counted */
    uint32_t floor;      /* of these, so many were there before the function that runs now */
    bool paid;           /* a seat has it on its account */
    bool lends;          /* what the seat knows is borrowed until it ends */
    int64_t start;       /* 0: it is not timed */
    uint64_t errors;     /* of the thread, when it began */
} wf_plain_region;

typedef struct wf_ctx {
    uint32_t id;
    uint32_t depth; /* innermost scope */
    uint32_t free_head;
    _Atomic uint32_t nchunks;
    _Atomic uint32_t remote_free; /* slots freed by other threads: linked through next */
    uint32_t grad_off;            /* no_grad nesting */
    uint32_t
        busy; /* in work that lets go of memory while it holds operands: an op's tape, a backward */
    uint32_t
        sealed; /* a deleter runs in such work: scopes up to this depth are not its to end; else 0 */
    uint32_t backwards; /* walks back over the tape so far */
    uint8_t device;     /* of tensors made from nothing, eager/device.h */
    uint8_t away;       /* device, or what is being recorded, is not the host */
    wf_slot **chunks;   /* WF_MAX_CHUNKS pointers, reserved once */
    wf_scope_rec *scopes;
    uint32_t scopes_cap;
    uint64_t scope_serial;
    wf_recorder *recorder;
    wf_plain_region region;  /* none begins while there is a recorder */
    const wf_called *called; /* or NULL: errors are about the op itself */
    const char *here;        /* site of the reading call that is about to be made, see weft_here */
    char *described;         /* weft_describe's text; goes with the process */
    void *tape;
    uint64_t error_next;
    uint64_t error_last;
    uint64_t error_seen;    /* how often an error was raised, or met again by a call */
    wf_error *errors;       /* ring of WF_ERRORS */
    weft_tensor last_write; /* target of the last in-place op, for its call site */
    weft_generator rng;     /* the default generator of random ops */
    wf_draws *draws;        /* who watches it and the others; NULL: nobody */
    _Atomic int64_t
        live; /* slots in use, and those that other threads freed; written by the owner only */
    _Atomic int64_t freed_remotely;
    _Atomic int64_t kept; /* the same of kept tensors */
    _Atomic int64_t kept_freed_remotely;
    /* Kept slots of its own that this thread uses now, eager/borrow.h. */
    _Atomic uintptr_t
        borrowed[WF_BORROWS]; /* addresses, and one more when it has been given back */
    uint32_t nborrowed, most_borrowed;
    atomic_bool lends; /* it has written some down */
    /* Beside those, held for the length of a call of the user's function (wf_lend): two, that may be the same or nobody's, or NULL. */
    wf_slot *_Atomic lent[2];
    wf_gone gone[WF_GONE]; /* that this thread let go of last */
    uint32_t ngone;
    struct wf_ctx *next_free;
    int failed;              /* the context itself could not be allocated: ops return ENOMEM */
    struct weft_jit **inner; /* regions inside another (jit/call_region.c); goes with the process */
    uint32_t inner_cap;
} wf_ctx;

/* Tells those who watch (c->draws) that g is about to move. */
void wf_tell_draw(const wf_ctx *c, weft_generator *g);

extern _Thread_local wf_ctx *wf_tls_ctx __attribute__((tls_model("initial-exec")));
wf_ctx *wf_ctx_open(void); /* slow path of wf_ctx_get; NULL when memory is exhausted */
static inline wf_ctx *wf_ctx_get(void)
{
    wf_ctx *c = wf_tls_ctx;
    return __builtin_expect(c != NULL, 1) ? c : wf_ctx_open();
}
wf_ctx *wf_ctx_at(uint32_t id);
void wf_ctx_end_scopes(wf_ctx *c); /* the root scope's tensors too */

static inline wf_slot *wf_slot_at(wf_ctx *c, uint32_t i)
{
    return &c->chunks[i / WF_CHUNK_SLOTS][i % WF_CHUNK_SLOTS];
}

/* -- handles to slots ------------------------------------------------------------------------------ */
/* Does t name a slot of c, whatever is in it? */
static inline bool wf_slot_is_here(const wf_ctx *c, weft_tensor t)
{
    return t.context == c->id && t.slot != 0 &&
           t.slot / WF_CHUNK_SLOTS < atomic_load_explicit(&c->nchunks, memory_order_relaxed);
}
/* The live slot of a handle that a scope of this thread owns; NULL: it is another, see wf_pin. */
static inline wf_slot *wf_slot_of(wf_ctx *c, weft_tensor t)
{
    if (!wf_slot_is_here(c, t)) {
        return NULL;
    }
    wf_slot *s = wf_slot_at(c, t.slot);
    const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
    return WF_STATE_SERIAL(st) == t.serial && !(st & (WF_STATE_DEAD | WF_STATE_KEPT)) ? s : NULL;
}
/* Checks t and pins it if it is kept (*pinned). NULL: *why says dead, foreign or null. A pinned slot
 * is given back by wf_unpin. */
wf_slot *wf_pin(wf_ctx *c, weft_tensor t, bool *pinned, wf_why *why);
/* The next tensor of context `of` behind slot *k (0: the first) that the thread of c may look at, as wf_pin gives it; *k and
 * *t (may be NULL) say which. NULL: there are no more. */
wf_slot *wf_next_live(wf_ctx *c, wf_ctx *of, uint32_t *k, bool *pinned, weft_tensor *t);
void wf_unpin(wf_ctx *c, wf_slot *s);
/* A new slot of the innermost scope, contents zero but for identity. NULL: no memory. */
wf_slot *wf_slot_new(wf_ctx *c, weft_tensor *handle);
int wf_slots_refill(wf_ctx *c); /* makes c->free_head something: 0 or WEFT_ENOMEM */
/* wf_slot_new, inline. */
static inline wf_slot *wf_slot_take(wf_ctx *c, weft_tensor *handle)
{
    if (__builtin_expect(c->free_head == 0, 0) && wf_slots_refill(c)) {
        return NULL;
    }
    uint32_t i = c->free_head;
    wf_slot *s = wf_slot_at(c, i);
    c->free_head = s->next;
    uint64_t serial = WF_STATE_SERIAL(atomic_load_explicit(&s->state, memory_order_relaxed)) + 1;
    wf_scope_rec *scope = &c->scopes[c->depth];
    s->next = scope->head;
    s->prev = 0;
    if (scope->head) {
        wf_slot_at(c, scope->head)->prev = i;
    }
    scope->head = i;
    s->scope = c->depth;
    s->dtype = s->rank = s->flags = s->pad = 0;
    s->node = 0;
    s->node_gen = 0;
    s->noted = 0;
    s->st = NULL;
    s->offset = 0;
    s->ext = NULL;
    atomic_store_explicit(&s->meta, NULL, memory_order_relaxed);
    s->site = NULL;
    atomic_store_explicit(&s->state, serial << 18, memory_order_release);
    atomic_store_explicit(&c->live, atomic_load_explicit(&c->live, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    *handle = (weft_tensor){i, c->id, serial};
    return s;
}
/* Gives the slot its extents; strides NULL = row-major. 0 or WEFT_ENOMEM. */
int wf_slot_shape(wf_slot *s, int rank, const int64_t *dims, const int64_t *strides);
/* The extents and strides of another slot. */
static inline int wf_slot_shape_like(wf_slot *s, wf_slot *like)
{
    if (__builtin_expect(like->ext != NULL, 0)) {
        return wf_slot_shape(s, like->rank, wf_dims(like), wf_strides(like));
    }
    s->rank = like->rank; /* all of the arrays: their size is known, a loop would be a call */
    memcpy(s->dims_, like->dims_, sizeof s->dims_);
    memcpy(s->strides_, like->strides_, sizeof s->strides_);
    return 0;
}
weft_tensor wf_handle_of(wf_ctx *c, wf_slot *s);
/* The slot's elements are in st from now on, row-major (a reference is taken); the handle stays. Not of a value with a
 * recorded history. */
void wf_slot_relocate(wf_ctx *c, wf_slot *s, wf_storage *st);
void wf_slot_destroy(wf_ctx *c, wf_slot *s);
wf_meta *wf_slot_meta(wf_slot *s);               /* made on demand; NULL: no memory */
void wf_slot_share_meta(wf_slot *s, wf_meta *m); /* of a fresh slot of this thread */
void wf_slot_drop_meta(wf_slot *s);
wf_meta *wf_meta_retain(wf_meta *m);
void wf_meta_release(wf_meta *m);
/* Guards gradient, hooks and name of a tensor that several threads share. No callback runs under it. */
void wf_meta_lock(wf_meta *m);
/* For what can do without: false if it is not to be had soon, as when this thread holds it. */
bool wf_meta_lock_soon(wf_meta *m);
void wf_meta_unlock(wf_meta *m);
/* A copy of the name, which another thread may be changing, for wf_mfree; NULL: none, or no memory, which sets *lost (NULL: it does
 * not matter). m may be NULL. */
char *wf_meta_name(wf_meta *m, bool *lost);

/* What tensors had as gradients before this thread gave them others, while it keeps such a list: a function that is only
 * recorded leaves them what they had. Of lists that nest the innermost one is used. */
typedef struct wf_gradients {
    struct wf_gradient_was {
        wf_meta *meta;
        weft_tensor was;
    } * v;
    size_t n, cap;
    struct wf_gradients *outer; /* what this thread kept before */
    bool failed;                /* no memory: some are lost */
} wf_gradients;
void wf_gradients_keep(wf_gradients *g);
bool wf_gradients_are_kept(void);
/* m's gradient was `old` (or none) and is another now: returns what the caller frees. */
weft_tensor wf_gradient_replaced(wf_meta *m, weft_tensor old);
/* Ends the list and gives all their gradients back. */
void wf_gradients_restore(wf_gradients *g);

/* -- scopes ------------------------------------------------------------------------------------------ */
bool wf_scopes_grow(wf_ctx *c); /* room for one more; false with an error recorded: no memory */
/* A scope that no handle names. False with an error recorded: no memory. */
static inline bool wf_scope_push(wf_ctx *c)
{
    if (__builtin_expect(c->depth + 1 >= c->scopes_cap, 0) && !wf_scopes_grow(c)) {
        return false;
    }
    c->scopes[++c->depth] = (wf_scope_rec){.head = 0, .serial = 0};
    return true;
}
/* The slot that heads the innermost scope, and is not the only one there, becomes that. */
void wf_scope_trim(wf_ctx *c, uint32_t index);
/* Scopes from `base` on end, and what is in them but for r[0..n), which goes to scope `to`: base - 1, or base, which stays open.
 * Handles in r that are dead become errors. */
void wf_scopes_leave(wf_ctx *c, uint32_t base, uint32_t to, weft_tensor *r, int n);

/* -- storage ---------------------------------------------------------------------------------------- */
wf_storage *wf_storage_new(size_t nbytes); /* uninitialised; NULL: no memory */
/* The same of a step that is made again and again; k: NULL, or where blocks are kept that may fit (eager/kept.h). */
struct wf_kept;
wf_storage *wf_storage_new_again(struct wf_kept *k, size_t nbytes);
/* On a device. NULL with why filled. */
wf_storage *wf_storage_new_on(int device, size_t nbytes, wf_why *why);
/* Over a device's memory that owner has, whose block the caller has made hold once more; NULL: no memory. */
wf_storage *wf_storage_over(const wf_storage *owner);
/* Two references: the caller's and the trace's, which is counted in `held`. NULL: no
 * memory. */
wf_storage *wf_storage_new_virtual(size_t nbytes, wf_recorder *r, void *address);
/* A header that has had a virtual storage of the trace, whose reference is held and which shares it, has another one. */
static inline void wf_storage_begin_virtual(wf_storage *st, size_t nbytes, int device,
                                            void *address)
{
    atomic_store_explicit(&st->refs, 2, memory_order_relaxed);
    atomic_store_explicit(&st->handles, 0, memory_order_relaxed);
    atomic_store_explicit(&st->version, 0, memory_order_relaxed);
    st->root_gen = 0;
    st->root_gen_of_apart = 0;
    st->roots = 0;
    st->grad_kept = 0;
    st->write_op = 0;
    st->write_site = NULL;
    st->value = 0;
    st->next = NULL;
    st->nbytes = nbytes;
    st->data = address;
    st->device = (uint8_t)device;
}
void wf_storage_free_header(wf_storage *st);
/* Gives a virtual storage its memory, uninitialised, and makes it an ordinary one once wf_storage_commit
 * says so; k: NULL, or where blocks of the host are kept that may fit. 0 or a status; why is filled if the memory is a device's. */
int wf_storage_back(wf_storage *st, struct wf_kept *k, wf_why *why);
/* The trace's reference goes, too: st may be freed. */
void wf_storage_commit(wf_storage *st);
/* Two storages with bytes in common: an import lies over the other one. */
static inline bool wf_storage_overlap(const wf_storage *a, const wf_storage *b)
{
    const char *x = a->data, *y = b->data;
    return a != b && x < y + b->nbytes && y < x + a->nbytes;
}
/* Does another thread's running trace compute st? */
static inline bool wf_storage_is_foreign(const wf_storage *st, const wf_recorder *mine)
{
    return atomic_load_explicit(&st->is_virtual, memory_order_acquire) &&
           atomic_load_explicit(&st->recorder, memory_order_acquire) != mine;
}
/* An op has replaced elements of st. Only somebody with a reference writes: the last one counts without a lock. */
static inline void wf_storage_wrote(wf_storage *st, wf_op op)
{
    if (atomic_load_explicit(&st->refs, memory_order_relaxed) == 1) {
        atomic_store_explicit(&st->version,
                              atomic_load_explicit(&st->version, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&st->version, 1, memory_order_relaxed);
    }
    st->write_op = (uint16_t)op;
    st->write_site = NULL;
    atomic_store_explicit(&st->broken, 0, memory_order_relaxed);
}
wf_storage *wf_storage_wrap(void *data, size_t nbytes, void (*deleter)(void *), void *arg);
/* If st is arriving: waits for its bytes. 0, or a status with why filled: they never will be right, and st is broken. */
WF_COLD int wf_storage_arrive(wf_storage *st, wf_why *why);
/* A reference more, for whom it may concern: any thread may give it back. */
void wf_storage_retain(wf_storage *st);
void wf_storage_release(wf_storage *st);
/* Before another thread can reach st. */
static inline void wf_storage_share(wf_storage *st)
{
    if (!st->shared) {
        st->shared = 1;
    }
}
static inline void wf_storage_count(const wf_storage *st, _Atomic int32_t *n)
{
    if (st->shared) {
        atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
    } else {
        atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    }
}
/* What is left. */
static inline int32_t wf_storage_uncount(const wf_storage *st, _Atomic int32_t *n)
{
    if (st->shared) {
        return atomic_fetch_sub_explicit(n, 1, memory_order_acq_rel) - 1;
    }
    const int32_t left = atomic_load_explicit(n, memory_order_relaxed) - 1;
    atomic_store_explicit(n, left, memory_order_relaxed);
    return left;
}
/* A reference that this thread will give back: of one that has one. */
static inline void wf_storage_retain_here(wf_storage *st)
{
    wf_storage_count(st, &st->refs);
}
/* The same of a trace. */
static inline void wf_storage_hold(wf_storage *st)
{
    wf_storage_retain_here(st);
    wf_storage_count(st, &st->held);
}
static inline void wf_storage_let_go(wf_storage *st)
{
    wf_storage_uncount(st, &st->held);
    wf_storage_release(st);
}
/* A slot more. */
static inline void wf_storage_view(wf_storage *st)
{
    wf_storage_retain_here(st);
    wf_storage_count(st, &st->handles);
}

/* -- errors ------------------------------------------------------------------------------------------ */
WF_COLD int wf_fail(wf_why *why, int code, const char *rule_fmt, ...);
WF_COLD void wf_hint(wf_why *why, const char *fmt, ...);
/* Records an error about op (name may be NULL) on operands; returns the empty handle with its number. */
WF_COLD weft_tensor wf_raise(wf_ctx *c, const char *op, int nsrc, const weft_tensor *src,
                             const wf_why *why);
/* A status that code of the user made up itself (no error was raised, nor met again, since error_seen was `before`) becomes an error of op: `what`
 * returned it. One of an op in it has its own. */
void wf_raise_made_up(wf_ctx *c, const char *op, const char *what, int rc, uint64_t before);
/* Calls a user's function for op (jit_call, ...). A status that it made up itself becomes an error with a text; one of
 * an op in it, or that an input brought, has its own. */
int wf_run_function(wf_ctx *c, const char *op, const char *name,
                    weft_status (*fn)(void *, const weft_tensor *, int, weft_tensor *, int),
                    void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out);
/* What it does where the function has returned rc, not 0. before: c->error_seen as it was when it was called. */
WF_COLD void wf_function_failed(wf_ctx *c, const char *op, const char *name, int rc,
                                uint64_t before, const weft_tensor *in, int n_in);
WF_COLD weft_tensor wf_raise_text(wf_ctx *c, int status, const char *op, const char *fmt, ...)
    WF_PRINTF(4, 5);
/* The same for functions that return a status. */
WF_COLD int wf_raise_status(wf_ctx *c, const char *op, int nsrc, const weft_tensor *src,
                            const wf_why *why);
/* A call whose operand t carries an error fails with that error: its status. It is the thread's last error again, so that
 * who gets the status alone reads the text that belongs to it. */
WF_COLD int wf_error_again(wf_ctx *c, weft_tensor t);
/* The empty handle of this thread's last error. */
static inline weft_tensor wf_last_error(const wf_ctx *c)
{
    return (weft_tensor){0, c->id, c->error_last};
}
/* The caller knows of error t, and of those `before` it: a traced function that goes on has dealt with them. */
WF_COLD void wf_error_told(wf_ctx *c, weft_tensor t, bool before);
/* The first error raised since error_seen was `since` that a kernel found and that the caller was not told of; 0: there is none. */
WF_COLD uint64_t wf_error_untold(const wf_ctx *c, uint64_t since);
/* The text of the thread's error `id` tells that call site, unless it has one. */
WF_COLD void wf_error_at(wf_ctx *c, uint64_t id, const char *site);
/* Appends "f32[2,3] 'name' (made at file:line)" for a handle. */
void wf_describe(wf_ctx *c, weft_tensor t, char *buf, size_t size);

/* -- dispatch ---------------------------------------------------------------------------------------- */
/* The choke point. On failure returns a status and makes every dst the empty handle of one error. */
int wf_dispatch(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src, int ndst,
                weft_tensor *dst);
/* Conveniences for one result. */
weft_tensor wf_op0(wf_op op, const wf_attr *attr);
weft_tensor wf_op1(wf_op op, const wf_attr *attr, weft_tensor a);
weft_tensor wf_op2(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b);
weft_tensor wf_op3(wf_op op, const wf_attr *attr, weft_tensor a, weft_tensor b, weft_tensor d);
/* A fresh handle of the innermost scope on memory st (a reference is taken); strides in elements, NULL =
 * row-major; data = address of the first element. The empty handle on failure (an error is recorded). */
weft_tensor wf_wrap_view(wf_ctx *c, wf_storage *st, void *data, int dtype, int rank,
                         const int64_t *dims, const int64_t *strides);
/* The same, bytes from the start of st; its address, which another thread's trace may be about to give it, is not read. */
weft_tensor wf_wrap_at(wf_ctx *c, wf_storage *st, int64_t offset, int dtype, int rank,
                       const int64_t *dims, const int64_t *strides);
/* Applies a VIEW row to a view. 0, 1 (reshape needs a copy: out has the row-major result), or a status. */
int wf_view_apply(wf_op op, const wf_attr *attr, const wf_type *result, const wf_view *src,
                  wf_view *out, wf_why *why);
/* dst[...] := op(src...) through dst's view; dst may be among src. Bumps the version. */
int wf_dispatch_inplace(wf_op op, const wf_attr *attr, int nsrc, const weft_tensor *src,
                        weft_tensor dst);
/* The last write to dst was made by `write`, at `site` (NULL: unknown, or stamped by who called). */
void wf_wrote_as(wf_ctx *c, weft_tensor dst, wf_write write, const char *site);

/* Is a call being recorded that may be replayed? */
static inline bool wf_is_followed(const wf_ctx *c)
{
    return __builtin_expect(c && c->recorder && c->recorder->outside, 0);
}

/* The site that weft_here said, which is for this call alone; NULL: none. */
static inline const char *wf_take_here(wf_ctx *c)
{
    const char *site = c ? c->here : NULL;
    if (c) {
        c->here = NULL;
    }
    return site;
}
/* Stamps what a call of several results has made; some may be missing. */
void wf_site_results(const char *site, const weft_tensor *t, int n);

/* Such a recording hears of questions, and of what is changed about s but its elements: it holds for this tensor only. */
static inline void wf_note_asked(const wf_ctx *c, wf_slot *s)
{
    if (wf_is_followed(c)) {
        c->recorder->asked(c->recorder, s);
    }
}

/* The memory of a result: virtual while a trace runs. NULL: no memory; why is filled if it is a device's. */
static inline wf_storage *wf_result_storage(wf_ctx *c, size_t nbytes, int device, wf_why *why)
{
    return __builtin_expect(c->recorder != NULL, 0) ? c->recorder->storage(c->recorder, nbytes)
           : __builtin_expect(device != 0, 0)       ? wf_storage_new_on(device, nbytes, why)
                                                    : wf_storage_new(nbytes);
}
/* The elements of s are about to be read (write: or written) where they are. 0 or a status with why
 * filled: a failed write, a trace that must not be broken or whose kernels failed, another thread's trace. */
int wf_need_value(wf_ctx *c, wf_slot *s, bool write, const char *op, wf_why *why);
/* The same for an operand of an op, whose place is known at its end. */
int wf_need_operand(wf_ctx *c, wf_slot *s, const char *op, wf_why *why);
/* Ends what the trace of this thread has recorded so far and leaves it paused: ops run at once. Returns what
 * to hand to wf_resume (NULL: no trace). On failure *rc is a status with why filled. */
wf_recorder *wf_pause(wf_ctx *c, const char *op, int *rc, wf_why *why);
static inline void wf_resume(wf_ctx *c, wf_recorder *r)
{
    c->recorder = r;
}

static inline bool wf_grad_enabled(const wf_ctx *c)
{
    return c->grad_off == 0;
}
/* A view that weft_detach made, or that was made of a value with a history where recording was off, and views of it, have no part
 * in what is recorded of their memory: it is a constant to them, and a write through another alias leaves it one. What is recorded
 * that was written through such a view is the history of those that are there, and of no other alias: as if they were another
 * tensor, whose memory happens to be the same. */
static inline wf_ref wf_slot_root(const wf_slot *s)
{
    return (s->flags & WF_SLOT_APART) != 0 ? s->st->root_of_apart : s->st->root;
}
static inline uint32_t wf_slot_root_gen(const wf_slot *s)
{
    return (s->flags & WF_SLOT_APART) != 0 ? s->st->root_gen_of_apart : s->st->root_gen;
}
static inline bool wf_slot_apart(const wf_slot *s)
{
    return (s->flags & WF_SLOT_APART) != 0 && s->node == 0 &&
           s->st->root_gen_of_apart == s->node_gen;
}
/* Is the value tracked: a leaf that requires grad, a result with a tape node, or memory that a recorded
 * write through an alias changed? */
static inline bool wf_slot_tracked(const wf_slot *s)
{
    return (s->flags & WF_SLOT_REQUIRES_GRAD) != 0 || s->node != 0 ||
           (s->st && wf_slot_root(s) != 0 && !wf_slot_apart(s));
}
/* Does a gradient flow to it? To an integer with a history none does. */
static inline bool wf_slot_flows(const wf_slot *s)
{
    return wf_slot_tracked(s) && wf_dtype_kind(s->dtype) == 2;
}
/* r, a view of s on its memory, was made by op, and recorded if that was wanted. */
static inline void wf_slot_view_made(const wf_ctx *c, wf_op op, const wf_slot *s, wf_slot *r)
{
    if (__builtin_expect(r->node != 0, 0)) {
        if (__builtin_expect((s->flags & WF_SLOT_APART) != 0, 0)) {
            r->flags |= WF_SLOT_APART;
            r->node_gen = s->st->root_gen_of_apart;
        }
        return;
    }
    const bool cut = op == WF_OP_DETACH || (!wf_grad_enabled(c) && wf_slot_tracked(s));
    if (__builtin_expect(cut || (s->flags & WF_SLOT_APART) != 0, 0)) {
        r->flags |= WF_SLOT_APART;
        r->flags |= op == WF_OP_DETACH ? 0
                    : cut              ? WF_SLOT_UNRECORDED
                                       : s->flags & WF_SLOT_UNRECORDED;
        r->node_gen = cut ? s->st->root_gen_of_apart : s->node_gen;
    }
}
/* Does a write to s need a look at the tape, where recording is on? */
static inline bool wf_slot_watched(const wf_slot *s)
{
    return (s->flags & WF_SLOT_UNRECORDED) != 0 || wf_slot_tracked(s);
}

#endif
