/*
 * eager/cuda/stage.h -- pinned host memory that copies pass through.
 */
#ifndef EAGER_CUDA_STAGE_H
#define EAGER_CUDA_STAGE_H

#include "eager/cuda/device.h"

#define WF_CUDA_STAGE_BYTES ((size_t)4 << 20)

typedef struct wf_cuda_stage {
    struct wf_cuda_stage *next;
    unsigned char *host;
    size_t used;
    cu_handle event; /* behind the last copy that uses it */
} wf_cuda_stage;

/* A stage that nothing uses any more; may wait for the device if too many are on their way. */
wf_cuda_stage *wf_cuda_stage_take(wf_cuda_device *d, wf_why *why);
/* Gives it back: at once free, or busy with what was queued on s so far. */
void wf_cuda_stage_free(wf_cuda_device *d, wf_cuda_stage *g);
int wf_cuda_stage_busy(wf_cuda_stream *s, wf_cuda_stage *g, wf_why *why);
/* s is about to be a capture's: no event that a stage asks for may be recorded there later. */
void wf_cuda_stage_leave(wf_cuda_stream *s);

#endif
