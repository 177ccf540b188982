/*
 * jit/codegen_cuda/render.h -- CUDA text of kernels.
 */
#ifndef JIT_CODEGEN_CUDA_RENDER_H
#define JIT_CODEGEN_CUDA_RENDER_H

#include "jit/ir/backend.h"

/* Statements of a program, indented; values are <prefix><number>. The last of them assigns nothing:
 * outputs are read through wf_cu_ref. */
void wf_cu_body(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param);
/* Instruction r as an operand. */
void wf_cu_ref(wf_text *t, const wf_kir *k, wf_kref r, const char *prefix,
               const char *const *param);
/* "float", "unsigned short". */
const char *wf_cu_type(wf_kty type);
/* Helpers and tables that the text of a kernel needs. */
void wf_cu_prelude(wf_text *t, const wf_kernel *k);

/* Kernels are  extern "C" void name(destinations, sources, what the skeleton adds, scalars, sizes)
 * with 256 threads a block; any grid gives the same bits. Several may share one text: the prelude is
 * guarded. */
int wf_cuda_render(const wf_kernel *k, const wf_target *target, wf_text *out, wf_why *why);

/* Where to look for libnvrtc before the loader's path; a folder, copied; NULL: nowhere. Before the
 * first compile. */
void wf_cuda_set_toolkit(const char *folder);
/* What the compiler said about the last cubin made on this thread: registers, spills. "" if nothing. */
const char *wf_cuda_compile_log(void);

#endif
