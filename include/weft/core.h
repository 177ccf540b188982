/*
 * weft/core.h -- handles, element types, status codes, errors, scopes.
 *
 * Every public header is C99- and C++-clean. Functions never abort, exit or print on a user's
 * mistake: they return an empty handle or a status, and the reason can be read as text.
 */
#ifndef WEFT_CORE_H
#define WEFT_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef __cplusplus
#include <stdbool.h>
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#define WEFT_MAX_RANK 16

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#define WEFT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEFT_API
#define WEFT_PRINTF(fmt, args)
#endif

/* Behind a parameter: what it is where a C++ program leaves it out. In C every parameter is given. */
#ifdef __cplusplus
#define WEFT_OR(value) = value
#else
#define WEFT_OR(value)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. f16 and bf16 are storage types: arithmetic runs in f32 and rounds once per op. */
typedef enum weft_dtype {
    WEFT_DTYPE_DEFAULT = 0, /* "not given": the op's default */
    WEFT_BOOL,
    WEFT_U8,
    WEFT_I8,
    WEFT_I16,
    WEFT_I32,
    WEFT_I64,
    WEFT_F16,
    WEFT_BF16,
    WEFT_F32,
    WEFT_F64,
    WEFT_DTYPE_COUNT
} weft_dtype;

/* Where a tensor's memory is. Zero-initialised: the CPU. */
enum { WEFT_DEVICE_CPU = 0, WEFT_DEVICE_CUDA = 1 };
typedef struct weft_device {
    int32_t kind;  /* WEFT_DEVICE_* */
    int32_t index; /* which GPU; 0 for the CPU */
} weft_device;
#if defined(__cplusplus)
#define WEFT_CPU (weft_device{0, 0})
#define WEFT_CUDA(i) (weft_device{1, (i)})
#else
#define WEFT_CPU ((weft_device){0, 0})
#define WEFT_CUDA(i) ((weft_device){1, (i)})
#endif

/* Outcome of a call. The text of the last failure is weft_last_error(). */
typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_EINVALID,     /* an argument is null, malformed or out of its domain */
    WEFT_EHANDLE,      /* dead handle, or a handle of another thread */
    WEFT_ESHAPE,       /* shapes, ranks or axes do not fit */
    WEFT_EDTYPE,       /* the op does not take this element type */
    WEFT_EINDEX,       /* an index read from data is out of range */
    WEFT_ENOMEM,       /* memory is exhausted, or a size overflows */
    WEFT_EGRAD,        /* gradients: nothing to differentiate, stale saved tensor, ... */
    WEFT_EIO,          /* a file cannot be read or written, or is malformed */
    WEFT_EUNSUPPORTED, /* not available in this build or on this machine */
    WEFT_STATUS_COUNT
} weft_status;

/* "invalid argument", "shape", ... One word or two; never NULL. */
WEFT_API const char *weft_status_name(weft_status status);
/* "f32", "bool", ...; "default" for WEFT_DTYPE_DEFAULT, "invalid" outside the enum. */
WEFT_API const char *weft_dtype_name(weft_dtype dtype);
/* Bytes of one element; 0 outside the enum. */
WEFT_API size_t weft_dtype_size(weft_dtype dtype);
/* The type that arithmetic on a and b gives (docs/dtypes.md); WEFT_DTYPE_DEFAULT if either is invalid. */
WEFT_API weft_dtype weft_promote(weft_dtype a, weft_dtype b);
/* "cpu", "cuda:0", ...; "invalid" for what is no device. Says nothing of whether it is there. */
WEFT_API const char *weft_device_name(weft_device device);
/* "cpu", "cuda" (the first), "cuda:2". WEFT_EINVALID for anything else, *out is left alone then. */
WEFT_API weft_status weft_device_from_name(const char *name, weft_device *out);
/* Where this thread's tensors are made that come from no other tensor (weft_zeros, weft_rand, weft_arange, weft_from_data,
 * layers, ...); the CPU to begin with. Tensors on memory of yours and tensors read from files stay on the CPU. */
WEFT_API weft_device weft_default_device(void);
/* WEFT_EUNSUPPORTED, with what is missing, if the device is not there. */
WEFT_API weft_status weft_set_default_device(weft_device device);
/* Ops without a kernel on the device run on the CPU: operands come to host memory, which waits for the device, and results
 * go back. The first n such ops of this process with how often that happened; returns how many ops there are. */
typedef struct weft_device_fallback {
    const char *op;
    int64_t count;
} weft_device_fallback;
WEFT_API int weft_device_fallbacks(weft_device_fallback *out, int n);
/* "0.1.0" */
WEFT_API const char *weft_version(void);

/* -- handles ---------------------------------------------------------------------------------------
 * A tensor is a value of 16 bytes: copy it, store it, compare it. It is checked at every use; a dead
 * handle is an error and never a crash. A handle with slot 0 is the empty handle: the result of a
 * call that failed (it carries the error's number) or of zero-initialised memory. Ops given an empty
 * handle return it, so calls nest and one check at the end finds the first error.
 *
 * Ownership: results belong to the innermost scope of the thread that made them and are valid on
 * that thread only; outside every scope they live until weft_free, weft_shutdown or the thread's end, so a
 * loop wants a scope around its body. weft_keep takes one out of all scopes until weft_free; a kept handle may be used
 * on any thread. Fields are private. */
typedef struct weft_tensor {
    uint32_t slot;
    uint32_t context;
    uint64_t serial;
} weft_tensor;

/* The empty handle. */
#if defined(__cplusplus)
#define WEFT_NONE (weft_tensor{0, 0, 0})
#else
#define WEFT_NONE ((weft_tensor){0, 0, 0})
#endif

/* True if t names a live tensor (or is a scalar) that this thread may use. Never an error. */
WEFT_API bool weft_ok(weft_tensor t);

/* A scalar operand: an immediate value, no memory, no ownership. It is weak: it adopts the element
 * type of the tensor it meets unless its kind (bool < integer < float) is higher. Never an error; nothing to free. */
WEFT_API weft_tensor weft_f(double value);
WEFT_API weft_tensor weft_i(int64_t value);
WEFT_API weft_tensor weft_b(bool value);

/* -- errors ----------------------------------------------------------------------------------------
 * Every failure is recorded on the calling thread with a full sentence: the op, its operands (dtype,
 * shape, name, where they were made), the rule that was broken and what to do. */

/* The error of an empty handle: its status and text. A live handle: WEFT_OK and ""; a dead one, or one of another
 * thread's scopes: WEFT_EHANDLE. The text stays valid until 64 further errors on this thread. */
WEFT_API weft_status weft_error_status(weft_tensor t);
WEFT_API const char *weft_error_text(weft_tensor t);
/* The last error of this thread, whatever raised it, or failed because an operand carries it; WEFT_OK and "" when there was
 * none since the last weft_clear_error. */
WEFT_API weft_status weft_last_status(void);
WEFT_API const char *weft_last_error(void);
WEFT_API void weft_clear_error(void);

/* -- scopes and lifetime ---------------------------------------------------------------------------- */
typedef struct weft_scope {
    uint32_t depth;
    uint32_t context;
    uint64_t serial;
} weft_scope;

/* Opens a scope: results made from now on belong to it. On failure (memory) a scope that
 * weft_scope_end refuses. */
WEFT_API weft_scope weft_scope_begin(void);
/* Releases every tensor of the scope and of scopes opened inside it. WEFT_EHANDLE if it has ended or
 * belongs to another thread. */
WEFT_API weft_status weft_scope_end(weft_scope scope);
/* Hands t to the scope around `scope`, then ends `scope`; returns t. A kept or empty t passes through, a dead one comes back as
 * the empty handle of its error. A scope that has ended, or is another thread's: WEFT_EHANDLE is recorded, and t stays whose it
 * was. Idiom: `return weft_scope_return(s, y);` */
WEFT_API weft_tensor weft_scope_return(weft_scope scope, weft_tensor t);
/* Hands t to the scope around `scope` without ending it (several results). Returns and errors as weft_scope_return. */
WEFT_API weft_tensor weft_scope_give(weft_scope scope, weft_tensor t);
/* Takes t out of all scopes until weft_free; returns t. Keeping a kept tensor, a scalar or the empty handle changes nothing; a
 * dead one comes back as the empty handle of its error. */
WEFT_API weft_tensor weft_keep(weft_tensor t);
/* Releases t at once, kept or not. WEFT_EHANDLE if it is dead; the empty handle and scalars are ignored. */
WEFT_API weft_status weft_free(weft_tensor t);
/* *x := value: releases what *x held and stores value with the ownership *x had (kept stays kept; an
 * empty *x takes value as it is). If value is empty, *x is left alone and its error's status returned. */
WEFT_API weft_status weft_assign(weft_tensor *x, weft_tensor value);

/* Bytes and counts of this process, all threads: tensors in host memory; GPUs are weft_cuda_get_memory's. What the compiler
 * takes is not in it. */
typedef struct weft_memory_stats {
    int64_t live_bytes;     /* tensor storage in use */
    int64_t peak_bytes;     /* largest live_bytes since weft_memory_reset_peak */
    int64_t reserved_bytes; /* held from the system, in use or cached */
    int64_t live_tensors;   /* handles alive on all threads */
    int64_t kept_tensors;   /* of those, kept */
    int64_t
        allocations; /* storage allocations so far; a traced call mostly uses what the one before it left */
    int64_t system_allocations; /* of those, the ones that asked the system */
    int64_t cap_bytes;          /* most reserved_bytes there may be; 0: no limit */
} weft_memory_stats;
WEFT_API void weft_memory_get_stats(weft_memory_stats *out);
WEFT_API void weft_memory_reset_peak(void);
/* Gives cached memory, and what traced functions keep between calls, back to the system; returns the bytes given back. What another
 * thread has for itself, free blocks of up to 64 KiB and its kernels' scratch, stays with the pieces that it lies in until that
 * thread ends; weft_shutdown ends weft's own threads first. */
WEFT_API int64_t weft_memory_trim(void);
/* Most bytes of host memory to hold, in use or cached, from now on; 0: no limit (the start: WEFT_ALLOC_CAP). A request that would
 * take more gives back what is cached first, except what other threads have for themselves (weft_memory_trim); if that is not
 * enough it is WEFT_ENOMEM (weft_oom_report), and nothing else has happened. Memory comes in pieces of 2 MiB and more. A cap below
 * what is in use takes nothing away: nothing more is had until tensors have gone. WEFT_EINVALID below 0. Any thread, at any time.
 * For GPUs: weft_cuda_set_cap. */
WEFT_API weft_status weft_memory_set_cap(int64_t bytes);

/* Where host memory of tensors comes from in place of the system, and goes back to: pieces of 2 MiB and more, which weft cuts,
 * caches and gives back whole (in a build with AddressSanitizer: each block by itself, from 1 byte on).
 *  - allocate: `bytes` at a multiple of `alignment`, a power of two of 64 to 2 MiB, which are weft's until their release;
 *    contents do not matter. NULL: there are none, and the request fails as if the system had refused: after what is cached was
 *    given back it is asked again, then WEFT_ENOMEM. A block at another address than asked for is released, and counts as NULL.
 *  - release: a block that allocate gave, with its bytes, exactly once; when cached memory is given back (weft_memory_trim, a cap,
 *    weft_shutdown), not at the program's end.
 * Both are called on whichever thread makes or frees tensors, never two of them at once, and must not call weft. Pieces that are
 * held when another allocator is set stay, and go back to the one that gave them: its functions and `user` live until then, which
 * may be when the last of the other threads that use tensors ends (weft_memory_trim), or to the end of the program. */
typedef struct weft_allocator {
    void *(*allocate)(void *user, size_t bytes, size_t alignment);
    void (*release)(void *user, void *block, size_t bytes);
    void *user;
} weft_allocator;
/* From now on; any thread, at any time, best before the first tensor. NULL: the system again. The struct is copied. What is cached
 * is given back first. WEFT_EINVALID without one of the functions. */
WEFT_API weft_status weft_memory_set_allocator(const weft_allocator *allocator);
/* Writes one line per kept tensor still alive: shape, dtype, bytes, name, file:line; and one per gradient that a tensor still
 * alive has, kept or not (weft_set_grad(x, WEFT_NONE) drops it). Returns how many. out may be NULL (count only). */
WEFT_API int64_t weft_leak_report(FILE *out);
/* After WEFT_ENOMEM for host memory on this thread: what was asked for, what is held and free, the largest tensors with the
 * places that made them (of this thread's scopes, and kept), what to do. "" when there was none. Valid until the next such
 * error. For GPUs: weft_cuda_oom_report (weft/cuda.h). */
WEFT_API const char *weft_oom_report(void);
/* Ends all scopes of this thread, stops the pool and returns cached memory. Kept tensors stay valid.
 * Optional; weft may be used again afterwards. */
WEFT_API void weft_shutdown(void);

/* -- threads ----------------------------------------------------------------------------------------
 * Threads that one op may use, the caller included (default: CPUs allowed, or WEFT_NUM_THREADS): of the whole process, at
 * any time, from the next op on. Results never depend on it. WEFT_EINVALID outside [1, 1024].
 *
 * Any thread of the program may call weft that has 256 KiB of stack: kernels keep tiles there. What may cross threads is a table in
 * docs/architecture.md. */
WEFT_API weft_status weft_set_num_threads(int n);
WEFT_API int weft_get_num_threads(void);

/* Writes what this build and machine offer: compiler of kernels, instruction set, threads, libraries found, environment. */
WEFT_API void weft_doctor(FILE *out);

/* -- call sites -------------------------------------------------------------------------------------
 * Every op is a function and a macro of the same name, in C++ too; the macro stamps the result (or the error)
 * with file:line after the call. Calling `(weft_add)(a, b)` skips the stamp. Functions that return no tensor have their error
 * stamped in the same way. A site is a literal, or stays as long as the process. */
WEFT_API weft_tensor weft_sited(const char *site, weft_tensor t);
WEFT_API weft_status weft_sited_status(const char *site, weft_status status);
/* The same of a call that leaves nothing to stamp if it is well. */
static inline weft_status weft_sited_failure_(const char *site, weft_status status)
{
    return status == WEFT_OK ? status : weft_sited_status(site, status);
}
/* Says where the next call that reads, or makes tensors that it does not return, stands: what breaks a trace is
 * reported with it, what was made carries it. */
WEFT_API void weft_here(const char *site);
#define WEFT_STR_(x) #x
#define WEFT_STR(x) WEFT_STR_(x)
#define WEFT_HERE __FILE__ ":" WEFT_STR(__LINE__)

#ifdef __cplusplus
}
#endif

/* Of calls whose failure shows in the result: NULL, a number below 0, 0, an empty handle. A call that is well is left alone. */
#ifdef __cplusplus
template <class T> inline T *weft_sited_null_(const char *site, T *p)
{
    if (!p) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return p;
}
template <class T> inline T weft_sited_negative_(const char *site, T n)
{
    if (n < 0) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return n;
}
template <class T> inline T weft_sited_zero_(const char *site, T n)
{
    if (n == T(0)) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return n;
}
#else
static inline void *weft_sited_null_(const char *site, void *p)
{
    if (!p) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return p;
}
/* One for each type: a cast of the result would be "not used" where nobody takes it. */
static inline int64_t weft_sited_negative_int64_t(const char *site, int64_t n)
{
    if (n < 0) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return n;
}
static inline int weft_sited_negative_int(const char *site, int n)
{
    return (int)weft_sited_negative_int64_t(site, n);
}
static inline uint64_t weft_sited_zero_uint64_t(const char *site, uint64_t n)
{
    if (n == 0) {
        weft_sited_status(site, WEFT_EINVALID);
    }
    return n;
}
static inline weft_dtype weft_sited_zero_weft_dtype(const char *site, weft_dtype n)
{
    return (weft_dtype)weft_sited_zero_uint64_t(site, (uint64_t)n);
}
#endif
static inline weft_tensor weft_sited_empty_(const char *site, weft_tensor t)
{
    return t.slot ? t : weft_sited(site, t);
}
/* type: of the result, or what it points to. WEFT_NO_SITES before the include leaves call sites out. */
#ifdef WEFT_NO_SITES
#define WEFT_F_(...) (__VA_ARGS__)
#define WEFT_E_(...) (__VA_ARGS__)
#define WEFT_P_(type, ...) (__VA_ARGS__)
#define WEFT_N_(type, ...) (__VA_ARGS__)
#define WEFT_Z_(type, ...) (__VA_ARGS__)
#else
#define WEFT_F_(...) weft_sited_failure_(WEFT_HERE, __VA_ARGS__)
#define WEFT_E_(...) weft_sited_empty_(WEFT_HERE, __VA_ARGS__)
#ifdef __cplusplus
#define WEFT_P_(type, ...) weft_sited_null_(WEFT_HERE, __VA_ARGS__)
#define WEFT_N_(type, ...) weft_sited_negative_(WEFT_HERE, __VA_ARGS__)
#define WEFT_Z_(type, ...) weft_sited_zero_(WEFT_HERE, __VA_ARGS__)
#else
#define WEFT_P_(type, ...) ((type *)weft_sited_null_(WEFT_HERE, __VA_ARGS__))
#define WEFT_N_(type, ...) weft_sited_negative_##type(WEFT_HERE, __VA_ARGS__)
#define WEFT_Z_(type, ...) weft_sited_zero_##type(WEFT_HERE, __VA_ARGS__)
#endif
#endif

/* The arguments of a function that takes a struct of options. In C: the struct by pointer, options by name. In C++:
 * parameters in the struct's order, from the first option on with defaults, or the struct itself; in C++20 then by name:
 * weft_sum({.x = x, .keepdim = true}). */
#ifdef __cplusplus
#define WEFT_ARGS_(type, ...) (__VA_ARGS__)
#define WEFT_BY_STRUCT_(result, name, type)                                                        \
    inline result name(const type &args)                                                           \
    {                                                                                              \
        return name(&args);                                                                        \
    }
#else
#define WEFT_ARGS_(type, ...) (&(const type){__VA_ARGS__, .end_ = 0})
#endif

#endif
