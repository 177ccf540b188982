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
/* An event on s that covers its first `work` pieces, recorded now if need be; NULL: why is filled. */
const wf_cuda_point *wf_cuda_point_of(wf_cuda_stream *s, uint64_t work, wf_why *why);
/* s's next work comes behind the first `work` pieces of other, which an event of its ring or of now covers.
 * Asks first whether they are over. Their device need not be current. */
int wf_cuda_order_work(wf_cuda_stream *s, wf_cuda_stream *other, uint64_t work, wf_why *why);
/* An event behind all that is queued on s, if s itself must not be waited for: it is a capture's, or nobody's, so that one
 * may begin there at any moment. NULL: s may be. */
cu_handle wf_cuda_end_of(wf_cuda_stream *s);
/* The number of the op that this thread is about to queue work of on s. */
uint64_t wf_cuda_op_begin(wf_cuda_stream *s);
/* The number of this thread's last one on s; 0: its last work was on another stream. */
uint64_t wf_cuda_op_now(const wf_cuda_stream *s);

/* -- without the lock --------------------------------------------------------------------------------- */

/* Until all that is on s is done, but for what a capture records there. */
cu_result wf_cuda_wait_for(wf_cuda_stream *s);
/* A stream of one's own; NULL: why is filled. Streams given back are handed out again. */
wf_cuda_stream *wf_cuda_stream_take(wf_cuda_device *d, wf_why *why);
/* One that is a capture's from the start, and is given back without it. */
wf_cuda_stream *wf_cuda_stream_for(wf_cuda_device *d, wf_cuda_graph *capture, wf_why *why);
void wf_cuda_stream_give(wf_cuda_stream *s);
/* This thread's work on the device goes to s from now on; NULL: to the default stream. */
void wf_cuda_set_current(wf_cuda_device *d, wf_cuda_stream *s);

#endif
