/*
 * io/safetensors.h -- what reader and writer share: the format's names of element types, its limits.
 */
#ifndef IO_SAFETENSORS_H
#define IO_SAFETENSORS_H

#include "eager/api.h"
#include "weft/io.h"

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

/* weft_safetensors_save, but that tensors of whole lines of 64 bytes lie on lines of the file, which is no longer byte for byte the
 * reference's. */
weft_status wf_st_save_lines(const char *path, const weft_named_tensor *t, int n,
                             const weft_metadata *meta, int n_meta);

#endif
