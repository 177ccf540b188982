/*
 * eager/device.h -- where memory is, as one byte of a storage, and what runs there.
 *
 * A device is a table of functions (wf_device_ops) over device memory: allocation, copies, finished programs, rows with
 * kernels of their own. Dispatch, autograd and plans know only the functions below it, which turn every op of the table
 * into those: an elementwise row is a program of one instruction, a reduction a small plan, and a row without a device
 * kernel goes through host memory (counted, see wf_device_fallbacks).
 *
 * Invariants: host code never dereferences device memory; all operands of an op are on one device, but for 0-d host
 * tensors of elementwise rows, which count as numbers; work is ordered by the calling thread's stream; nothing waits for
 * the device but reads (wf_device_read) and rows through the host.
 */
#ifndef EAGER_DEVICE_H
#define EAGER_DEVICE_H

#include "eager/exec.h"
#include "eager/tensor.h"

enum { WF_DEVICE_HOST = 0, WF_MAX_CUDA = 16 }; /* CUDA device i is 1 + i */

struct wf_program;
struct wf_program_args;

/* Work that is recorded once and launched as often as wanted (eager/cuda/runtime.h has the rules). */
typedef struct wf_device_graphs {
    int (*wanted)(void); /* 0: switched off; 1: where it saves calls of the driver; 2: always */
    int (*begin)(int ordinal, wf_why *why);
    int (*end)(int ordinal, bool drop, void **graph, wf_why *why);
    int (*launch)(void *graph, wf_why *why);
    void (*free)(void *graph);
    /* NULL: numbers in it cannot change. Of work that takes such numbers: while a graph is recorded, around the calls; later, around
     * the same calls with other numbers, which queue nothing and change launches to come (eager/cuda/runtime.h). */
    int (*mark)(int ordinal, bool on, wf_why *why);
    int (*renew)(void *graph, bool on, wf_why *why);
    /* One holder more of a block, unless there is another than the caller; NULL: never. */
    bool (*borrow)(void *block);
    /* Programs that this thread ran another way than it will, since a kernel was still being made. */
    int64_t (*unsettled)(void);
} wf_device_graphs;

/* Functions that return int: 0, or a status with why filled. Addresses are of device memory unless said otherwise. */
typedef struct wf_device_ops {
    const char *name;
    /* Is the device usable? Remembered. */
    int (*open)(int ordinal, wf_why *why);
    /* A block of nbytes > 0 on the thread's stream, *address its memory; NULL with why filled. */
    void *(*alloc)(int ordinal, size_t nbytes, void **address, wf_why *why);
    void (*free)(void *block); /* any thread */
    /* The stream's next work comes behind what other streams did to the block. */
    int (*use)(void *block, bool write, wf_why *why);
    /* The op that wrote the block last has failed on the device, as was told since; NULL: the device tells at once. */
    bool (*spoilt)(void *block, wf_op *op, const char **site);
    int (*upload)(int ordinal, void *dst, const void *host, size_t n, wf_why *why);
    int (*download)(int ordinal, void *host, const void *src, size_t n, wf_why *why); /* waits */
    int (*synchronize)(int ordinal, wf_why *why);
    /* Views with any strides; scalars are on the host. one: bit i: input i is a single element. */
    int (*program)(int ordinal, const struct wf_program *p, uint32_t one,
                   const struct wf_program_args *a, wf_why *why);
    /* n runs, none of which reads or writes what another writes; NULL: one after the other. */
    int (*programs)(int ordinal, const struct wf_program *p, int n, const struct wf_program_args *a,
                    wf_why *why);
    int (*copy)(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why); /* converts */
    int (*fill)(int ordinal, const wf_view *dst, const void *host_value, wf_why *why);
    /* A row with a kernel of its own; WEFT_EUNSUPPORTED with why empty: there is none. NULL: for no row. */
    int (*row)(int ordinal, wf_exec *e);
    /* A row that is a few programs (reductions, softmax, norms); WEFT_EUNSUPPORTED with why empty: it is not. */
    int (*composite)(int device, wf_exec *e);
    const wf_device_graphs *graphs; /* NULL: the device has none */
    /* Copies to the host that nobody waits for yet; NULL, all three: the device has none. Host memory that it copies into by
     * itself (NULL: there is none left), given back from any thread, also while a copy is under way; a copy queued; and the
     * wait for it, with what the device found until then. */
    void *(*host_alloc)(int ordinal, size_t nbytes);
    void (*host_free)(void *host);
    int (*download_later)(int ordinal, void *host, const void *src, size_t n, wf_why *why);
    int (*arrive)(void *host, wf_why *why);
    /* From one device of this table to another, without waiting; NULL: by way of the host. */
    int (*across)(int to, void *dst, int from, const void *src, size_t n, wf_why *why);
} wf_device_ops;

/* What is in use. NULL: nothing was asked of a device yet. */
extern const wf_device_ops *_Atomic wf_device_api;
/* What wf_device_open puts there; defined by the layer above, which has the kernels. */
extern const wf_device_ops wf_device_gpu;

/* Makes the device usable. 0, or WEFT_EUNSUPPORTED with the reason. */
int wf_device_open(int device, wf_why *why);

/* -- names ---------------------------------------------------------------------------------------------------- */
/* The byte of a public value; -1: no such device. */
int wf_device_code(weft_device d);
weft_device wf_device_public(int code);
const char *wf_device_code_name(int code);
/* Why no tensor can be on the device here and now; NULL: it can. The text is of the calling thread. */
const char *wf_device_missing(int code);
static inline int wf_slot_device(const wf_slot *s)
{
    return s->st ? s->st->device : WF_DEVICE_HOST;
}
/* The host cannot reach the elements: fills why and returns a status; else 0. */
int wf_device_refuse_read(const wf_slot *s, wf_why *why);
/* The device of an op with these operands (NULL entries are skipped), `none` if there are no tensors. numbers: 0-d host
 * tensors go with any device. -1: they are on two devices, why says which. */
int wf_device_of_operands(int n, wf_slot *const *s, bool numbers, int none, wf_why *why);

/* Tensors made from nothing are on this device of the calling thread until it is set again; returns the one before. */
static inline int wf_device_enter(wf_ctx *c, int device)
{
    int before = c->device;
    c->device = (uint8_t)device;
    c->away = (uint8_t)(c->device | (c->recorder ? c->recorder->device : 0));
    return before;
}
/* The device of a handle; the host for scalars and what is not live. */
int wf_device_of_handle(wf_ctx *c, weft_tensor t);

/* -- work (device > 0) ------------------------------------------------------------------------------------------- */
/* As the functions of eager/exec.h, on views of device memory; a source with device 0 is one element on the host. */
int wf_device_map(int device, wf_op op, int compute, const wf_view *dst, int nsrc,
                  const wf_view *src, wf_why *why);
int wf_device_vjp(int device, wf_op op, int which, int compute, const wf_view *dst, int nsrc,
                  const wf_view *src, wf_why *why);
int wf_device_copy(int device, const wf_view *dst, const wf_view *src, wf_why *why);
int wf_device_fill(int device, const wf_view *dst, const void *host_value, wf_why *why);
int wf_device_row(int device, wf_exec *e);
int wf_device_program(int device, const struct wf_program *p, const struct wf_program_args *a,
                      wf_why *why);
/* n runs, none of which reads or writes what another writes, in as few launches as the device can. */
int wf_device_programs(int device, const struct wf_program *p, int n,
                       const struct wf_program_args *a, wf_why *why);
/* dst (dense, host memory) := src, converted; waits. */
int wf_device_read(int device, const wf_view *dst, const wf_view *src, wf_why *why);
/* From now on transfers of this thread to the host are such that nobody waits for them but who touches the elements.
 * Returns what was set before. */
bool wf_device_read_later(bool on);
/* Memory for one, of nbytes > 0 from `device`; NULL: it is to be an ordinary one. */
wf_storage *wf_device_storage_later(int device, size_t nbytes);
/* st (of wf_device_storage_later) := the elements of src, row-major; they are arriving then. */
int wf_device_queue_read(int device, wf_storage *st, const wf_view *src, wf_why *why);
/* dst (device, dense) := src (host memory, any strides) of the same type. */
int wf_device_write(int device, const wf_view *dst, const wf_view *src, wf_why *why);
/* dst := src of the same extents, each on its device (the view's byte). */
int wf_device_move(const wf_view *dst, const wf_view *src, wf_why *why);
/* Sizes of what this thread is making to outlive the step: backward names those of the gradients that it is about to make
 * for leaves. Device memory of just such a size is placed apart from what comes and goes within a step. A guess that is
 * wrong changes no result, but what it places there is no room for activations while it is free (eager/cuda/cache.h). 0: none. */
enum { WF_LASTING = 3 };
typedef struct wf_lasting {
    size_t nbytes[WF_LASTING];
} wf_lasting;
extern _Thread_local wf_lasting wf_device_lasting __attribute__((tls_model("initial-exec")));
static inline bool wf_device_lasts(size_t nbytes)
{
    const size_t *n = wf_device_lasting.nbytes;
    return nbytes && (nbytes == n[0] || nbytes == n[1] || nbytes == n[2]);
}
/* Scratch memory; NULL with why filled. */
void *wf_device_alloc(int device, size_t nbytes, void **address, wf_why *why);
void wf_device_free(void *block);
/* External memory of st->device is used like memory of ours: in order, and until it is done with. */
int wf_device_adopt(wf_storage *st, wf_why *why);
/* Until the device is done with everything, so that its owner may have external memory back. */
void wf_device_finish(int device);
/* The storage takes part in the stream's next work. Near free for host memory. */
int wf_device_use(wf_storage *st, bool write, wf_why *why);
/* Marks st broken if the op that wrote it last has failed on its device since; is it? */
bool wf_device_spoilt(wf_storage *st);
static inline bool wf_storage_spoilt(wf_storage *st)
{
    return __builtin_expect(st->device != WF_DEVICE_HOST, 0) && wf_device_spoilt(st);
}
static inline int wf_storage_use(wf_storage *st, bool write, wf_why *why)
{
    return __builtin_expect(st->device != WF_DEVICE_HOST, 0) ? wf_device_use(st, write, why) : 0;
}

/* The view of a tensor for work on its device, behind other streams' work; write: that counts as an in-place write now,
 * which read-only memory and values with gradients refuse. 0 or a status with an error of op recorded. */
int wf_device_view(const char *op, weft_tensor t, unsigned write, wf_view *v);
/* The same of a slot that the caller holds, whose view it has. 0 or a status with why filled. */
int wf_device_touch(wf_ctx *c, wf_slot *s, const char *op, unsigned write, wf_why *why);
/* Moves the elements under the handle, which stays; a leaf's gradient goes with it. Views of it stay behind. 0 or a status
 * with an error recorded. */
int wf_device_relocate(weft_tensor t, int device);
/* Would that be refused? Then a status, with the error recorded. */
int wf_device_relocatable(weft_tensor t, int device);
/* The value of a 0-d host tensor as a scalar, which a trace on a device records; t itself if it is anything else. */
weft_tensor wf_device_number(wf_ctx *c, weft_tensor t, wf_why *why);

/* A tensor of the current scope with the elements of t in host memory (t itself if it is there). Records nothing. */
weft_tensor wf_device_on_host(weft_tensor t);

/* Until the elements of s are what all work so far makes them: for those who will read them behind our back. */
int wf_device_wait(const wf_slot *s, wf_why *why);

/* Rows run through host memory so far, by op. */
int64_t wf_device_fallbacks(wf_op op);

#endif
