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

/* Outcome of a call. The text of the last failure is weft_last_error(). */
typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_EINVALID, /* an argument is null, malformed or out of its domain */
    WEFT_EHANDLE,  /* dead handle, or a handle of another thread */
    WEFT_ESHAPE,   /* shapes, ranks or axes do not fit */
    WEFT_EDTYPE,   /* the op does not take this element type */
    WEFT_EINDEX,   /* an index read from data is out of range */
    WEFT_ENOMEM,   /* memory is exhausted, or a size overflows */
    WEFT_EGRAD,    /* gradients: nothing to differentiate, stale saved tensor, ... */
    WEFT_EIO,      /* a file cannot be read or written, or is malformed */
    WEFT_EUNSUPPORTED, /* not available in this build or on this machine */
    WEFT_STATUS_COUNT
} weft_status;

#ifdef __cplusplus
}
#endif

#endif
