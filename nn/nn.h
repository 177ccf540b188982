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
/* The text of that failure; a general one where there was no memory for it. */
const char *wf_module_failure(const weft_module *m);
/* Around the making of a layer by weft_nn_<op>_init: what is registered meanwhile was made where weft_here said. */
void wf_module_open(weft_module *m, const char *op);
/* The first failure since, whose text is the thread's last: after it nothing more is made. */
weft_status wf_module_failed(const weft_module *m);
/* The same, when the layer is made. */
weft_status wf_module_close(weft_module *m);
/* "nn_linear_init 'h.0.fc'": the call that makes a layer and the layer it is at; NULL: none is being made. */
enum { WF_WHO_SIZE = 600 };
const char *wf_module_who(const weft_module *m, char buf[WF_WHO_SIZE]);
/* Opens the prefix of a layer; a failure is remembered by the module and by the layer, all of whose bytes are 0 but for the
 * error in *first, and nothing is open. */
weft_status wf_layer_open(const char *op, void *layer, size_t size, weft_tensor *first,
                          weft_module *m, const char *name);
/* The same of the arguments of an init, which may be NULL; first: the handle of the layer that its forward looks at. */
#define WF_LAYER_OPEN(op, a, first)                                                                \
    wf_layer_open(op, (a) ? (a)->layer : NULL, sizeof *(a)->layer,                                 \
                  (a) && (a)->layer ? &(a)->layer->first : NULL, (a) ? (a)->module : NULL,         \
                  (a) ? (a)->name : NULL)
/* Closes it. status: of the values given by initialisers. Returns what went wrong in this layer; *first has its error then. */
weft_status wf_layer_close(weft_module *m, weft_tensor *first, weft_status status);
/* False: *y is the error of a layer that is NULL (first is, too), or whose init failed. */
bool wf_layer_ready(const char *op, const weft_tensor *first, weft_tensor *y);
#define WF_LAYER_READY(op, layer, first, y) wf_layer_ready(op, (layer) ? &(layer)->first : NULL, y)
/* An error about the layer that is being made, remembered by the module. */
weft_status wf_layer_refuse(weft_module *m, weft_status status, const char *fmt, ...)
    WF_PRINTF(3, 4);
/* The error of an argument below `least`; WEFT_OK: it is not. */
weft_status wf_layer_at_least(weft_module *m, const char *argument, int64_t value, int64_t least);
/* The error of an argument that is no multiple of another, which is at least 1. */
weft_status wf_layer_multiple(weft_module *m, const char *argument, int64_t value, const char *of,
                              int64_t divisor);
/* The error of a probability. */
weft_status wf_layer_probability(weft_module *m, const char *argument, double value);
/* A parameter or buffer `leaf` under the prefix, all value. dtype 0: f32. Nothing where the layer has failed already. */
weft_tensor wf_layer_constant(weft_module *m, const char *leaf, const weft_shape *shape,
                              weft_dtype dtype, double value, bool buffer);
/* Weight and bias uniform in +-1/sqrt(fan). Empty ones are left. */
weft_status wf_layer_spread(weft_module *m, weft_tensor weight, weft_tensor bias, int64_t fan);
/* Dropout, which leaves no trace where nothing is dropped. */
weft_tensor wf_layer_drop(const weft_nn_dropout *layer, weft_tensor x);
/* The parts of a weft_nn_encoder in the order in which they are registered, with their names. */
typedef struct wf_encoder_part {
    enum {
        WF_ENCODER_ATTENTION,
        WF_ENCODER_WIDEN,
        WF_ENCODER_NARROW,
        WF_ENCODER_NORM1,
        WF_ENCODER_NORM2
    } part;
    const char *name;
} wf_encoder_part;
enum { WF_ENCODER_PARTS = 5 };
weft_status wf_encoder_init(const weft_nn_encoder_args *args, const wf_encoder_part *parts);
/* Scales n gradients so that the Euclidean norm of all is at most max_norm; *norm (NULL: nobody looks) := what it was. Under no_grad,
 * in a scope of the caller. site: of the call, or NULL. */
weft_status wf_clip(const weft_tensor *g, int n, double max_norm, double *norm, const char *site);
/* b^n by repeated squaring; n below 1: 1. */
double wf_power(double b, int64_t n);

#endif
