/*
 * eager/cuda/timeline.h -- when the device did what it was given, for a profile that is being taken.
 *
 * Around each piece of work two timed events are recorded on its stream; when they have passed, their times become an
 * event on the stream's track, with an arrow from the launch. Nothing is recorded during a capture.
 */
#ifndef EAGER_CUDA_TIMELINE_H
#define EAGER_CUDA_TIMELINE_H

#include "eager/cuda/device.h"
#include "eager/profile.h"

void wf_cuda_time_open(wf_cuda_stream *s);
/* Work is about to be queued on s by this thread; wf_cuda_queued ends it. */
static inline void wf_cuda_time_begin(wf_cuda_stream *s)
{
    if (wf_prof_is_on()) {
        wf_cuda_time_open(s);
    }
}
/* It was queued, and is called this. */
void wf_cuda_time_end(wf_cuda_stream *s, const char *label);
/* Events are given back; the device is idle. */
void wf_cuda_timeline_close(wf_cuda_device *d);

#endif
