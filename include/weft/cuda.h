/*
 * weft/cuda.h -- GPUs: streams, events, waiting, memory, pinned host memory.
 *
 * An op on a GPU returns before the device has done it. Only reads (weft_item, weft_to_array, prints, ...),
 * weft_synchronize and the functions here that say so wait. Nothing here has to be called: results never
 * depend on streams, since work on a tensor always comes behind other streams' work on it.
 *
 * Errors that only the device can find (an index read from data, a fault) come out of the next wait.
 * After a fault the device refuses every call until the process ends; the first error says what was
 * launched last, and WEFT_CUDA_BLOCKING=1 finds the op.
 * Functions that take a device take WEFT_CUDA(i); the CPU is WEFT_EINVALID unless said otherwise, and a device that is not there
 * WEFT_EUNSUPPORTED, with what is missing. Where a stream, an event or a place for a result is NULL, and nothing is said of it,
 * that is WEFT_EINVALID.
 */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- devices ---------------------------------------------------------------------------------------- */

/* GPUs that the driver lists; 0 where there is no driver. Never an error. */
WEFT_API int weft_cuda_count(void);
/* Why the device cannot be used, as a sentence; "" if it can, and for the CPU. Opens the device. The text
 * stays valid until the thread's next call of this. */
WEFT_API const char *weft_cuda_missing(weft_device device);

typedef struct weft_cuda_info {
    char name[96];
    char arch[16];        /* "sm_90" */
    int32_t driver;       /* CUDA version of the driver: 13000 is 13.0 */
    int32_t processors;   /* SMs */
    int64_t memory_bytes; /* of the device */
    int64_t l2_bytes;
    bool expandable; /* memory grows in place (virtual memory functions of the driver) */
} weft_cuda_info;
WEFT_API weft_status weft_cuda_get_info(weft_device device, weft_cuda_info *out);

/* -- waiting ---------------------------------------------------------------------------------------- */

/* Waits until the device has done everything queued so far, on all streams. The CPU: does nothing.
 * WEFT_EINDEX and the like: an op queued before failed on the device; said once. */
WEFT_API weft_status weft_synchronize(weft_device device);

/* -- streams ----------------------------------------------------------------------------------------
 * A stream is a queue of the device. Each thread has a current stream per device, at first the device's
 * default one, which all threads share. Memory freed is reused by later work of the stream it was made on. */

typedef struct weft_stream weft_stream;

/* A new stream of the caller's, until weft_stream_free; NULL on failure (at most 63 at a time). Not current anywhere yet. */
WEFT_API weft_stream *weft_stream_new(weft_device device);
/* Gives it back; what is queued on it is still done. Threads that have it current go on with the default
 * stream. NULL is ignored. WEFT_EHANDLE: freed already. */
WEFT_API weft_status weft_stream_free(weft_stream *stream);
/* Makes it the thread's current stream of its device; NULL: the default stream of `device`. */
WEFT_API weft_status weft_stream_set(weft_device device, weft_stream *stream);
/* The thread's current stream, which stays its maker's to free; NULL: the default one, or an error. */
WEFT_API weft_stream *weft_stream_current(weft_device device);
/* Waits until it has done everything queued so far; reports as weft_synchronize. */
WEFT_API weft_status weft_stream_synchronize(weft_stream *stream);
/* Whether it has done everything queued so far. Does not wait; false on error. */
WEFT_API bool weft_stream_done(weft_stream *stream);

/* -- events -----------------------------------------------------------------------------------------
 * A place in a stream: to wait for, to let another stream wait for, to take times with. */

typedef struct weft_event weft_event;

/* An event of the caller's, until weft_event_free. NULL on failure. */
WEFT_API weft_event *weft_event_new(weft_device device);
/* NULL is ignored. WEFT_EHANDLE: freed already. */
WEFT_API weft_status weft_event_free(weft_event *event);
/* Puts it behind what is queued on the thread's current stream of its device; again: the old place is
 * forgotten. */
WEFT_API weft_status weft_event_record(weft_event *event);
/* Later work of the thread's current stream comes behind the event. Never recorded: no effect. */
WEFT_API weft_status weft_event_wait(weft_event *event);
/* The host waits for it; reports as weft_synchronize. */
WEFT_API weft_status weft_event_synchronize(weft_event *event);
/* Whether the device has passed it (also if it was never recorded). Does not wait; false on error. */
WEFT_API bool weft_event_done(weft_event *event);
/* *milliseconds from begin to end; waits for end. Both recorded, on one device. */
WEFT_API weft_status weft_event_elapsed(weft_event *begin, weft_event *end, double *milliseconds);

/* -- memory -----------------------------------------------------------------------------------------
 * Memory that tensors give back is cached, rounded to 512 bytes, per stream. A step that repeats itself
 * asks the driver for nothing from the second time on. WEFT_CUDA_CAP caps it from outside. */

typedef struct weft_cuda_memory {
    int64_t live_bytes;          /* in use, rounded */
    int64_t peak_bytes;          /* largest live_bytes since weft_cuda_reset_peak */
    int64_t asked_bytes;         /* in use, as asked for */
    int64_t reserved_bytes;      /* held from the driver: in use or cached */
    int64_t peak_reserved_bytes; /* since weft_cuda_reset_peak */
    int64_t largest_free;        /* the largest request that needs no driver call */
    int64_t live_blocks;
    int64_t allocations;        /* so far */
    int64_t driver_allocations; /* of those, the ones that asked the driver */
    int64_t driver_frees;
    int64_t retries;  /* cached memory was given back because there was no more */
    int64_t failures; /* requests refused */
    int64_t cap;      /* 0: none */
} weft_cuda_memory;
WEFT_API weft_status weft_cuda_get_memory(weft_device device, weft_cuda_memory *out);
WEFT_API weft_status weft_cuda_reset_peak(weft_device device);
/* Most bytes to hold; 0: no limit. A request beyond it is WEFT_ENOMEM. */
WEFT_API weft_status weft_cuda_set_cap(weft_device device, int64_t bytes);
/* Where memory of the GPU comes from in place of the driver, as weft_memory_set_allocator does it for the host: whole segments
 * of 2 MiB and more at multiples of 512 bytes, which kernels and copies of this process reach (cuMemAlloc's, another library's
 * pool); asked for with the GPU's context current, given back after waiting for the GPU, never twice at once for one GPU. The
 * functions must not call weft. Set before the first memory there; NULL: the driver. WEFT_EINVALID where memory is held, or
 * without one of the functions. */
WEFT_API weft_status weft_cuda_set_allocator(weft_device device, const weft_allocator *allocator);
/* Gives cached memory back to the driver and returns how much, -1 on error. Waits for the device. */
WEFT_API int64_t weft_cuda_empty_cache(weft_device device);
/* Writes one line per piece of memory held: stream, address, bytes, and free, live or hole. */
WEFT_API weft_status weft_cuda_snapshot(weft_device device, FILE *out);
/* The report of the thread's last WEFT_ENOMEM on a GPU: requested, free, held, cached, largest tensors with
 * the places that made them, what to do. "" before the first. Valid until the next. */
WEFT_API const char *weft_cuda_oom_report(void);

/* What happened since the start, on all GPUs. */
typedef struct weft_cuda_counters {
    int64_t launches;              /* kernels */
    int64_t copies_in, copies_out; /* host to device, device to host */
    int64_t copies;                /* on the device, clears too */
    int64_t bytes_in, bytes_out;
    int64_t driver_allocs, driver_frees; /* calls that may stop the device */
    int64_t waits;                       /* asked for: reads, synchronize */
    int64_t hidden_waits;                /* not asked for: no memory left, too many copies queued */
    int64_t
        refused; /* shapes that cuBLASLt or cuDNN had nothing for: kernels of weft's own did them */
} weft_cuda_counters;
WEFT_API void weft_cuda_get_counters(weft_cuda_counters *out);

/* -- pinned host memory ------------------------------------------------------------------------------ */

/* A CPU tensor, uninitialised, in memory that the GPU reaches by itself, for weft_to_async. The memory is
 * cached. An error without a usable GPU. */
WEFT_API weft_tensor weft_pinned(weft_shape shape, weft_dtype dtype);
/* weft_to without a copy on the host first: the GPU reads a pinned tensor's memory when it comes to it, so
 * that it must not be written until an event recorded after this call is done (freeing is fine). Tensors
 * that are not pinned, or have gaps, are moved as by weft_to.
 * From a GPU to WEFT_CPU: a pinned tensor, returned before the copy is done. Whoever first touches its elements (an op, a
 * read, a write) waits for that copy and for nothing queued behind it, and gets the errors that the device has found until
 * then. Where nothing can be pinned it is weft_to. */
WEFT_API weft_tensor weft_to_async(weft_tensor x, weft_device device);
/* Whether t is a CPU tensor in such memory. */
WEFT_API bool weft_is_pinned(weft_tensor t);

#ifdef __cplusplus
}
#endif

#ifndef WEFT_NO_SITES
#define weft_synchronize(...) WEFT_S_((weft_synchronize)(__VA_ARGS__))
#define weft_stream_new(...) WEFT_P_(weft_stream, (weft_stream_new)(__VA_ARGS__))
#define weft_event_new(...) WEFT_P_(weft_event, (weft_event_new)(__VA_ARGS__))
#define weft_stream_set(...) WEFT_S_((weft_stream_set)(__VA_ARGS__))
#define weft_stream_free(...) WEFT_S_((weft_stream_free)(__VA_ARGS__))
#define weft_stream_synchronize(...) WEFT_S_((weft_stream_synchronize)(__VA_ARGS__))
#define weft_event_free(...) WEFT_S_((weft_event_free)(__VA_ARGS__))
#define weft_event_record(...) WEFT_S_((weft_event_record)(__VA_ARGS__))
#define weft_event_wait(...) WEFT_S_((weft_event_wait)(__VA_ARGS__))
#define weft_event_synchronize(...) WEFT_S_((weft_event_synchronize)(__VA_ARGS__))
#define weft_event_elapsed(...) WEFT_S_((weft_event_elapsed)(__VA_ARGS__))
#define weft_cuda_get_info(...) WEFT_S_((weft_cuda_get_info)(__VA_ARGS__))
#define weft_cuda_get_memory(...) WEFT_S_((weft_cuda_get_memory)(__VA_ARGS__))
#define weft_cuda_set_cap(...) WEFT_S_((weft_cuda_set_cap)(__VA_ARGS__))
#define weft_cuda_set_allocator(...) WEFT_S_((weft_cuda_set_allocator)(__VA_ARGS__))
#define weft_cuda_snapshot(...) WEFT_S_((weft_cuda_snapshot)(__VA_ARGS__))
#define weft_pinned(...) WEFT_T_((weft_pinned)(__VA_ARGS__))
#define weft_to_async(...) WEFT_T_((weft_to_async)(__VA_ARGS__))
#endif

#endif
