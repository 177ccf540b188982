/*
 * jit/codegen_cuda/render.h -- CUDA text of kernels.
 */
#ifndef JIT_CODEGEN_CUDA_RENDER_H
#define JIT_CODEGEN_CUDA_RENDER_H

#include "jit/ir/cuda_text.h"

/* Statements of a program, indented; values are <prefix><number>. The last of them assigns nothing:
 * outputs are read through wf_cu_ref. */
void wf_cu_body(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param);
/* What a parameter is: of an element, the same for the elements of a row, or something else. */
typedef enum wf_cu_param { WF_CU_OTHER, WF_CU_ELEMENT, WF_CU_SHARED } wf_cu_param;
/* Is it a quotient in f32 of one of the former by one of the latter? */
bool wf_cu_is_quick(const wf_kir *k, const wf_kinstr *i, const wf_cu_param *what);
/* wf_cu_body; unless `what` is NULL, such quotients take reciprocal<p>, 1 / the divisor's parameter p, and are right in the middle
 * of the exponents only. */
void wf_cu_body_of(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param,
                   const wf_cu_param *what);
/* wf_cu_body by primitives alone. */
void wf_cu_plain_body(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param);
/* Instruction r as an operand. */
void wf_cu_ref(wf_text *t, const wf_kir *k, wf_kref r, const char *prefix,
               const char *const *param);
/* "float", "unsigned short". */
const char *wf_cu_type(wf_kty type);
/* Helpers and tables that the text of a kernel needs. */
void wf_cu_prelude(wf_text *t, const wf_kernel *k);

/* The same for one program of a kernel. */
void wf_cu_helpers(wf_text *t);
void wf_cu_tables(wf_text *t, const wf_kir *k);

/* Values that are one function of the device's text, however many primitives they are (render_call.c). */
typedef struct wf_cu_call {
    const char *name; /* NULL: none of them */
    wf_kref of, by;   /* by: WF_KREF_NONE for functions of one value */
} wf_cu_call;
/* call and live have k->n elements, zeroed. live: what is read when such values are calls. false: there is none. */
bool wf_cu_find_calls(const wf_kir *k, wf_cu_call *call, bool *live);
void wf_cu_call_helpers(wf_text *t);

/* Parameters of a body: x0... for sources, c0... for scalars. */
typedef struct wf_cu_names {
    char text[WF_KIR_MAX_PARAM][24];
    const char *param[WF_KIR_MAX_PARAM];
} wf_cu_names;
void wf_cu_name_params(const wf_kernel *k, wf_cu_names *n);
/* struct wf_vec_<type>_<n>: n of them side by side. */
void wf_cu_vector_type(wf_text *t, wf_kty type, int n);
/* struct wf_words_<words>. */
void wf_cu_words(wf_text *t, int words);
/* Word `word` of the argument `a` as a value; base: "", or "entry + " where it is numbered from a variable on. */
void wf_cu_word(wf_text *t, wf_kty type, const char *base, int word);
/* q = x / the extent at `word`. */
void wf_cu_divide(wf_text *t, bool wide, const char *q, const char *x, const char *base, int word);

/* Kernels are  extern "C" void name(destinations, sources, what the skeleton adds, scalars, sizes)
 * with 256 threads a block; any grid gives the same bits. Several may share one text: the prelude is
 * guarded. */
int wf_cuda_render(const wf_kernel *k, const wf_target *target, wf_text *out, wf_why *why);

#endif
