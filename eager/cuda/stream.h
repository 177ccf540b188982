/*
 * eager/cuda/stream.h -- what memory.c and the public functions need of streams.
 */
#ifndef EAGER_CUDA_STREAM_H
#define EAGER_CUDA_STREAM_H

#include "eager/cuda/device.h"

/* The device's lock is held in all of these. */

/* Records an event on s behind all that is queued there; NULL: why is filled. Valid until WF_CUDA_RING
 * further ones. */
const wf_cuda_point *wf_cuda_point_new(wf_cuda_stream *s, wf_why *why);
/* The number of the op that s is about to queue work of. */
uint64_t wf_cuda_op_begin(wf_cuda_stream *s);

#endif
