/*
 * eager/cuda/pinned.h -- pinned host memory for tensors, cached.
 */
#ifndef EAGER_CUDA_PINNED_H
#define EAGER_CUDA_PINNED_H

#include "eager/cuda/device.h"

/* NULL: why is filled. Aligned to 64 bytes and more; any device copies from and to it. */
void *wf_cuda_pinned_alloc(wf_cuda_device *d, size_t nbytes, wf_why *why);
/* Is p inside such memory? */
bool wf_cuda_is_pinned(const void *p);
/* Gives cached memory back to the system. */
void wf_cuda_pinned_trim(void);
/* A copy out of or into it was queued on s: it must not be handed out again before that is done. What the driver says if
 * that had to be waited for. */
cu_result wf_cuda_pinned_used(const void *p, wf_cuda_stream *s);

#endif
