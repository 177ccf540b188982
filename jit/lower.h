/*
 * jit/lower.h -- from a fused group, which the tile interpreter runs, to a kernel, which a back end
 * compiles.
 *
 * The kernel's body holds the same rows in the same types, expanded to primitives by the same text; no
 * value is computed another way. So both have the same bits.
 *
 * But for programs whose `fast` is set: on the CPU their plain arithmetic is marked as relaxed (wf_kir_relax), on a device
 * their text is compiled with contraction. A kernel of the CPU that has a body for ordinary elements besides the whole
 * one stays exact: which of the two computes an element depends on its neighbours, and so on where threads cut.
 */
#ifndef JIT_LOWER_H
#define JIT_LOWER_H

#include "eager/program.h"
#include "jit/ir/backend.h"

/* The kernel of a finished program: destinations, sources and scalars are the program's outputs, inputs
 * and scalars. Bit i of `one`: input i is a single element whenever the kernel runs. 0, or a status with
 * why filled; the caller frees the kernel with wf_kernel_free after 0. */
int wf_lower(const wf_program *p, uint32_t one, wf_kernel *k, wf_why *why);

/* The same for a device, whose kernels draw what is drawn and say which index was wrong. */
int wf_lower_device(const wf_program *p, wf_kernel *k, wf_why *why);

/* Everything the code of a program depends on, as bytes: two programs with the same bytes have the same
 * kernel. Appended to out. */
void wf_lower_key(const wf_program *p, uint32_t one, wf_text *out);
/* The same of a lowered kernel: no more than its mathematics, so it outlives changes of the op table. */
void wf_lower_identity(const wf_kernel *k, wf_text *out);

#endif
