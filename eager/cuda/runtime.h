/*
 * eager/cuda/runtime.h -- the GPU as the rest of weft sees it: memory, copies, kernels, waiting.
 *
 * Invariants
 *  - Nothing waits for the device but wf_cuda_download, wf_cuda_synchronize and what is said to; other
 *    waits are counted (wf_cuda_counters.hidden_waits).
 *  - Work goes to the calling thread's current stream of the device. wf_cuda_use orders it behind what
 *    other streams did with the same memory, so streams are a scheduling hint and never change results.
 *  - Every function that can fail takes a wf_why (NULL allowed) and returns 0 or a weft_status. A device
 *    that broke (an illegal address, say) is reported once in full, and every later call on it fails at
 *    once. Nothing here prints or aborts. Any thread may call anything.
 *
 * The device may be a fake: WEFT_CUDA_DRIVER names another library to open in place of libcuda.so.1, and
 * tests/cuda/driver/fake.h says how tests use the one that stands in for a GPU.
 */
#ifndef EAGER_CUDA_RUNTIME_H
#define EAGER_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "eager/alloc.h"
#include "eager/report.h"
#include "eager/view.h"
#include "jit/ir/op.h"

/* -- devices ---------------------------------------------------------------------------------------- */

typedef struct wf_cuda_info {
    char name[96];
    char arch[16];    /* "sm_90" */
    int major, minor; /* compute capability */
    int processors;   /* SMs */
    int threads_per_processor;
    int warp;
    int shared_per_block; /* most bytes a kernel can ask for */
    int64_t l2_bytes;
    int64_t memory_bytes;
    int driver;      /* 13000: 13.0 */
    bool expandable; /* the driver's segments grow in place (virtual memory functions) */
} wf_cuda_info;

/* Devices that the driver lists, WF_MAX_CUDA at most; 0 without a driver. */
int wf_cuda_count(void);
/* 0: the device is usable and its primary context held. Else why says what is missing; the outcome is
 * remembered. The functions below open the device themselves. */
int wf_cuda_open(int ordinal, wf_why *why);
/* Waits for the device, reports what is still to report, gives everything back and lets go of the
 * context. WEFT_EINVALID while blocks or modules live. No other thread may be using the device; it can be
 * opened again. */
int wf_cuda_close(int ordinal, wf_why *why);
/* NULL unless the device is usable. */
const wf_cuda_info *wf_cuda_get_info(int ordinal);
/* Do segments grow in place? Those of an allocator of the program's own do not. False unless the device is usable. */
bool wf_cuda_is_expandable(int ordinal);

/* -- memory ----------------------------------------------------------------------------------------- */

typedef struct wf_cuda_block {
    void *address; /* on the device, aligned to 512 bytes; the host must not follow it */
    size_t size;   /* bytes asked for */
    int ordinal;
} wf_cuda_block;

/* Memory on this thread's current stream: what was freed there before may be handed out again at once,
 * since the stream runs in order. nbytes 0 gives a block of its own. NULL: why holds the report. */
wf_cuda_block *wf_cuda_alloc(int ordinal, size_t nbytes, wf_why *why);
/* From any thread, without waiting, also while the device still works on it. NULL is ignored. */
void wf_cuda_free(wf_cuda_block *b);
/* b is held once more, and to be freed as often, if nobody but the caller holds it; else false. */
bool wf_cuda_borrow(wf_cuda_block *b);
/* Call before queueing work that reads b (write: writes it): orders the current stream's next work
 * behind other streams' earlier work on b and notes the use. */
int wf_cuda_use(wf_cuda_block *b, bool write, wf_why *why);
/* Was b written last by an op whose kernel met a bad index, as a wait has told since? Then it has no value: op, and where it
 * was called (NULL: unknown). */
bool wf_cuda_spoilt(const wf_cuda_block *b, wf_op *op, const char **site);

typedef struct wf_cuda_memory {
    int64_t live_bytes,
        peak_bytes;      /* handed out, rounded to 512; the largest since the last reset */
    int64_t asked_bytes; /* handed out, as asked for */
    int64_t reserved_bytes, peak_reserved_bytes; /* held from the driver */
    int64_t live_blocks;
    int64_t allocs, frees;
    int64_t driver_allocs, driver_frees;
    int64_t retries;      /* cached memory given back because there was no more */
    int64_t failures;     /* requests refused */
    int64_t orders;       /* reuses that came behind another stream's work */
    int64_t largest_free; /* the largest request that needs no driver call */
    int64_t cap;          /* 0: none */
} wf_cuda_memory;
/* Zeros for a device that is not open. */
void wf_cuda_get_memory(int ordinal, wf_cuda_memory *out);
void wf_cuda_reset_peak(int ordinal);
/* Most bytes to hold from the driver; 0: no limit. Cached memory beyond it is given back. */
int wf_cuda_set_cap(int ordinal, int64_t cap, wf_why *why);
/* The device's memory comes from here (a copy is kept), NULL: from the driver. WEFT_EINVALID while any is held. */
int wf_cuda_set_source(int ordinal, const wf_heap_source *source, wf_why *why);
/* Gives cached memory back; waits for the device. Returns the bytes. */
int64_t wf_cuda_trim(int ordinal);

/* Who holds memory, for the report of memory that could not be had: fills top[n] with the largest
 * tensors on the device, largest first, and returns how many. Called without locks of the runtime. */
typedef wf_holder wf_cuda_live;
typedef int (*wf_cuda_live_fn)(int ordinal, wf_cuda_live *top, int n);
void wf_cuda_set_live(wf_cuda_live_fn fn);
/* What is used unless another is set. */
int wf_cuda_live_tensors(int ordinal, wf_cuda_live *top, int n);
/* The last such report of this thread, whole; "" before the first. */
const char *wf_cuda_oom_text(void);

/* -- copies, on the current stream ------------------------------------------------------------------ */

/* src is the caller's again at return; does not wait for the device. */
int wf_cuda_upload(int ordinal, void *dst, const void *src, size_t n, wf_why *why);
/* Uploads of this thread from pinned tensors read them later, without a stage: src is not the caller's
 * until the stream has passed. Returns what was set before. */
bool wf_cuda_upload_directly(bool on);
/* Waits until dst has the bytes; reports what failed on the device before. */
int wf_cuda_download(int ordinal, void *dst, const void *src, size_t n, wf_why *why);
/* Pinned memory for what follows; NULL: there is none to be had. Given back from any thread, also with a copy under way. */
void *wf_cuda_host_alloc(int ordinal, size_t nbytes);
void wf_cuda_pinned_free(void *p);
/* The same into pinned memory, without waiting: host is as before until wf_cuda_arrive. */
int wf_cuda_download_later(int ordinal, void *host, const void *src, size_t n, wf_why *why);
/* Waits for the copy that was queued last into or out of this pinned memory, and not for what was queued behind it; reports as a
 * download. */
int wf_cuda_arrive(void *host, wf_why *why);
/* Device to device; the ranges must not overlap. */
int wf_cuda_move(int ordinal, void *dst, const void *src, size_t n, wf_why *why);
/* From one device to another, in the order of the current streams of both; does not wait. */
int wf_cuda_copy_across(int to, void *dst, int from, const void *src, size_t n, wf_why *why);
int wf_cuda_clear(int ordinal, void *dst, size_t n, wf_why *why);
/* Waits for all streams of the device. Deferred errors come out here, once. */
int wf_cuda_synchronize(int ordinal, wf_why *why);

/* -- kernels ---------------------------------------------------------------------------------------- */

typedef struct wf_cuda_module wf_cuda_module;
typedef struct wf_cuda_fn wf_cuda_fn;

/* Loads a cubin of n bytes. Its functions die with it; the caller sees to it that no work is being
 * queued on them then. Work already queued is waited for. */
int wf_cuda_module_new(int ordinal, const void *image, size_t n, wf_cuda_module **out, wf_why *why);
void wf_cuda_module_free(wf_cuda_module *m);
/* WEFT_EINVALID when the module has no such kernel. Owned by the module. */
int wf_cuda_function(wf_cuda_module *m, const char *name, wf_cuda_fn **out, wf_why *why);
/* params[i] points to the i-th argument; copied at the call. shared: dynamic shared memory in bytes. */
int wf_cuda_launch(const wf_cuda_fn *f, const unsigned grid[3], const unsigned block[3],
                   unsigned shared, void **params, wf_why *why);
/* The kernel's first statement waits for the end of the kernel before it in its stream (PTX: griddepcontrol.wait). So its launches
 * may begin while that one ends: programmatic dependent launch, from compute capability 9.0 on. Before the first launch. */
void wf_cuda_overlap(wf_cuda_fn *f);
/* A launch was refused because the kernel does not fit on the device; others of it will be. */
bool wf_cuda_is_refused(const wf_cuda_fn *f);

/* -- captured graphs ------------------------------------------------------------------------------------
 * Work recorded once and queued as often as wanted, for the price of one launch. */

typedef struct wf_cuda_graph wf_cuda_graph;

/* From here on what this thread queues on the device is recorded and not done, on a stream of its own.
 * Memory made meanwhile belongs to the graph: freed, it is reused by later work of the graph only. Copies
 * from and to the host and waits are refused (WEFT_EUNSUPPORTED), and so is nesting. */
int wf_cuda_capture_begin(int ordinal, wf_why *why);
/* Ends it, whatever happened; the thread's stream is what it was. 0 and *out, or the first thing that was
 * refused in between. drop: throw it away, 0 and *out NULL. */
int wf_cuda_capture_end(int ordinal, bool drop, wf_cuda_graph **out, wf_why *why);
/* Queues it on the current stream, behind what others do with the memory it uses. That memory is held by
 * the graph. Blocks made during the capture are written again by each launch: copy what must stay. */
int wf_cuda_graph_launch(wf_cuda_graph *g, wf_why *why);
/* While this thread records: whether what it calls from here on is made again when launches get other numbers. */
int wf_cuda_capture_mark(int ordinal, bool on, wf_why *why);
/* on: from here on this thread makes the marked calls again, and nothing else: kernels, copies on the device, memory, error
 * words, in the same order and of the same sizes. Nothing is queued; the kernels take these arguments in launches to come. Off: it
 * has; a status if these were not the marked calls, and then the graph is not to be launched before it was renewed. No other
 * thread may launch or renew g meanwhile. */
int wf_cuda_graph_renew(wf_cuda_graph *g, bool on, wf_why *why);
/* What is queued is still done. NULL is ignored. */
void wf_cuda_graph_free(wf_cuda_graph *g);
/* Is this thread recording? Near free. */
bool wf_cuda_capturing(int ordinal);

/* -- errors found by kernels ------------------------------------------------------------------------ */

/* *device_address := an i64 that is -1, for one launch that checks data: the kernel stores a bad index
 * there. The next wait (download, synchronize) then returns WEFT_EINDEX naming op, index, bound, site and the types of the n
 * operands. site must outlive it (NULL: unknown). */
int wf_cuda_error_word(int ordinal, wf_op op, const char *site, int64_t bound,
                       const wf_view *operand, int n, void **device_address, wf_why *why);
/* What this thread does until it is let go is one op of its stream: what it writes has no value if one of its kernels meets a bad
 * index. Nests. */
void wf_cuda_op_hold(bool on);
/* The op that asked for words without a site last, on this thread, stands there. */
void wf_cuda_sited(const char *site);

/* -- what is kept for later processes ---------------------------------------------------------------- */

/* Where libraries' plans that took long to make are kept, found by bytes; set by the layer above, which has a cache on disk. */
typedef struct wf_cuda_store {
    void *(*get)(const void *identity, size_t n, size_t *size); /* malloced; NULL: there is none */
    void (*put)(const void *identity, size_t n, const void *object, size_t size);
} wf_cuda_store;
void wf_cuda_set_store(const wf_cuda_store *s);
const wf_cuda_store *wf_cuda_get_store(void); /* NULL: nothing is kept */

/* -- counters --------------------------------------------------------------------------------------- */

typedef struct wf_cuda_counters {
    int64_t launches;
    int64_t copies_in, copies_out,
        copies; /* host to device, device to host, on the device (clears too) */
    int64_t bytes_in, bytes_out;
    int64_t driver_allocs, driver_frees;
    int64_t waits;        /* asked for: downloads, synchronize */
    int64_t hidden_waits; /* not asked for: memory pressure, module unloads, full staging */
    int64_t refused;      /* shapes that a vendor's library was asked for and has nothing for */
} wf_cuda_counters;
/* Of all devices since the start. */
void wf_cuda_get_counters(wf_cuda_counters *out);
/* "cuDNN convolution": what was refused last; NULL: nothing. */
const char *wf_cuda_last_refused(void);

#endif
