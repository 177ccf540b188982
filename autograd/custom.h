/*
 * autograd/custom.h -- what custom functions of the library's own may do more than a user's.
 */
#ifndef AUTOGRAD_CUSTOM_H
#define AUTOGRAD_CUSTOM_H

#include "weft/grad.h"

struct wf_custom;

/* In forward: its results take part in gradients whatever the operands do. */
void wf_function_tracks(weft_function_ctx *ctx);
/* Does its backward lead to tensors that are not operands? A walk from results to what they depend on must not end there. */
bool wf_custom_leads_on(const struct wf_custom *custom);
/* Is f one of these? */
bool wf_custom_is_open(const weft_function *f);

#endif
