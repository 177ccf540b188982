/*
 * jit/ir/interp.h -- the reference interpreter of graph IR: what a function means.
 *
 * Slow and obvious on purpose: one element after the other, values as dense row-major arrays, every
 * elementwise row through the reference interpreter of kernel IR, every sum through wf_kir_sum. Rows made
 * of others are spelled out as docs/reductions.md has them. It shares no kernel with the eager runtime,
 * which it must equal bit for bit, as must every pass, tier and back end.
 *
 * Rows whose bits are defined by a primitive (products, convolutions, attention) and random draws come
 * from the caller's `primitive`.
 */
#ifndef JIT_IR_INTERP_H
#define JIT_IR_INTERP_H

#include "jit/ir/build.h"

typedef struct wf_array {
    wf_type type;
    void *data; /* row-major; NULL: an absent operand (or no elements) */
} wf_array;

/* Computes a row that is opaque by definition into dst (memory is there). 0 or a status with why. */
typedef int (*wf_primitive)(wf_op op, const wf_attr *attr, int nsrc, const wf_array *src, int ndst,
                            wf_array *dst, wf_why *why);

typedef struct wf_interp wf_interp;

/* primitive may be NULL: such rows are refused then. NULL: no memory. */
wf_interp *wf_interp_new(wf_primitive primitive);
void wf_interp_free(wf_interp *m);

/* Runs f on row-major inputs. out[k] receives memory of the caller (free it) for output k. Slots are
 * those of `now`, the recorded function f was made from (NULL: the values f itself has). 0, or a status
 * with why and nothing in out. */
int wf_interp_run(wf_interp *m, const wf_fn *f, const wf_fn *now, const void *const *inputs,
                  void **out, wf_why *why);

/* One row. dst has types and memory. */
int wf_interp_row(wf_interp *m, wf_op op, const wf_attr *attr, int nsrc, const wf_array *src,
                  int ndst, wf_array *dst, wf_why *why);

#endif
