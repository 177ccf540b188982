/*
 * jit/codegen_cpu/render.h -- LLVM text: what the renderers of bodies and of skeletons share.
 *
 * Everything is text, so that it can be dumped and compared where no LLVM is.
 */
#ifndef JIT_CODEGEN_CPU_RENDER_H
#define JIT_CODEGEN_CPU_RENDER_H

#include "jit/ir/backend.h"

/* A short piece of text by value. */
typedef struct wf_ll {
    char s[96];
} wf_ll;

/* "float", "<64 x i8>": a value of `lanes` lanes; of bool: i1. */
wf_ll wf_ll_type(wf_kty type, int lanes);
/* The constant in every lane, as an operand. */
wf_ll wf_ll_const(wf_kty type, int lanes, uint64_t bits);
/* -0 or 0: adding it changes no bits. */
wf_ll wf_ll_identity(wf_kty type, int lanes);
/* Appends the instructions of a program on `lanes` lanes. Values are %<prefix><number>, parameters
 * the operands given. */
void wf_ll_body(wf_text *t, const wf_kir *k, int lanes, const char *prefix, const wf_ll *param);
/* Instruction r of it as an operand. */
wf_ll wf_ll_ref(const wf_kir *k, wf_kref r, int lanes, const char *prefix, const wf_ll *param);
/* %name := a + b */
void wf_ll_add(wf_text *t, wf_kty type, int lanes, const char *name, const char *a, const char *b);
/* Global constants of a program's tables. */
void wf_ll_tables(wf_text *t, const wf_kir *k);

int wf_llvm_render(const wf_kernel *k, const wf_target *target, wf_text *out, wf_why *why);
/* Lanes for the target: its width, or 64 of 32 bits, 32 of 64 bits. */
int wf_llvm_lanes(const wf_kernel *k, const wf_target *target);

#endif
