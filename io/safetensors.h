/*
 * io/safetensors.h -- what reader and writer share: the format's names of element types, its limits.
 */
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "eager/api.h"

/* The reference refuses larger headers. */
#define WF_ST_MAX_HEADER 100000000

/* Names of element types by weft_dtype; order: the reference stores larger ones first. */
typedef struct wf_st_type {
    const char *name;
    int order;
} wf_st_type;
extern const wf_st_type wf_st_types[WEFT_DTYPE_COUNT];

/* May a tensor have this name? It is UTF-8, as every text in a file, and not reserved. */
bool wf_st_good_name(const char *name);

#endif
