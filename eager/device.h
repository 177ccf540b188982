/*
 * eager/device.h -- where memory is, as one byte of a storage.
 */
#ifndef EAGER_DEVICE_H
#define EAGER_DEVICE_H

#include "eager/tensor.h"

enum { WF_DEVICE_HOST = 0, WF_MAX_CUDA = 16 }; /* CUDA device i is 1 + i */

/* The byte of a public value; -1: no such device. */
int wf_device_code(weft_device d);
weft_device wf_device_public(int code);
const char *wf_device_code_name(int code);
/* Why no tensor can be on the device here and now; NULL: it can. */
const char *wf_device_missing(int code);
static inline int wf_slot_device(const wf_slot *s)
{
    return s->st ? s->st->device : WF_DEVICE_HOST;
}
/* The host cannot reach the elements: fills why and returns a status; else 0. */
int wf_device_refuse_read(const wf_slot *s, wf_why *why);
/* Operands (NULL entries are skipped) that are not all in host memory: two devices, or one without kernels. */
int wf_device_refuse_operands(int n, wf_slot *const *s, wf_why *why);

#endif
