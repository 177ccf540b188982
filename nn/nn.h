/*
 * nn/nn.h -- what the files of nn/ share.
 *
 * Included first in its file: the library's own calls carry no sites.
 */
#ifndef NN_NN_H
#define NN_NN_H

#include "eager/api.h"

/* The generator that initialisers and dropout of m draw from; NULL: the thread's. */
weft_generator *wf_module_generator(const weft_module *m);
/* Remembers the first failure of m; returns status. m may be NULL. */
weft_status wf_module_note(weft_module *m, weft_status status);
/* Around the making of a layer: what is registered meanwhile was made where weft_here said. */
void wf_module_open(weft_module *m);
/* The latest failure since, whose text is the thread's last. */
weft_status wf_module_close(weft_module *m);
/* b^n by repeated squaring; n below 1: 1. */
double wf_power(double b, int64_t n);

#endif
