/*
 * io/npy.h -- what .npy and .npz share.
 */
#ifndef IO_NPY_H
#define IO_NPY_H

#include "eager/api.h"

/* More than the header of any tensor: 16 extents of 19 digits. */
enum { WF_NPY_HEADER = 576 };

/* The array in p[0, size); source is named in messages. An empty handle with an error recorded. */
weft_tensor wf_npy_decode(const char *source, const unsigned char *p, size_t size);
/* The bytes in front of the row-major elements of t, into out[WF_NPY_HEADER]. */
weft_status wf_npy_header(const char *op, weft_tensor t, char *out, size_t *size);
/* The elements of c, which is row-major, and their bytes. NULL and the reason's status in *s where they cannot be had: in a trace
 * that may not be broken, or that fails to compute them. */
const void *wf_npy_elements(const char *op, weft_tensor c, size_t *bytes, weft_status *s);

#endif
