/*
 * eager/cpu/transpose.h -- channel slices between the two activation layouts, for 2 and 4 byte types.
 */
#ifndef EAGER_CPU_TRANSPOSE_H
#define EAGER_CPU_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

/* out[j * out_rs + i] := in[i * in_rs + j] for i < rows, j < columns; strides in elements of `size`
 * (2 or 4) bytes. */
void wf_transpose_2d(size_t size, int64_t rows, int64_t columns, const void *in, int64_t in_rs,
                     void *out, int64_t out_rs);

#endif
