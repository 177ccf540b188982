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
/* The same where registers hold that many of its values (0: not known): in an order that keeps fewer alive, if the program's
 * keeps more. */
void wf_ll_body_in(wf_text *t, const wf_kir *k, int lanes, int registers, const char *prefix,
                   const wf_ll *param);
/* Instruction r of it as an operand. */
wf_ll wf_ll_ref(const wf_kir *k, wf_kref r, int lanes, const char *prefix, const wf_ll *param);
/* What a body loads its constants from: globals, named by their bits. wf_ll_constants, behind everything else,
 * defines those that the text asks for. */
#define WF_LL_POOLED "@wf_"
void wf_ll_constants(wf_text *t);
/* %name := a + b */
void wf_ll_add(wf_text *t, wf_kty type, int lanes, const char *name, const char *a, const char *b);
void wf_ll_table(wf_text *t, const wf_kir_table *table);
/* Global constants of a program's tables. */
void wf_ll_tables(wf_text *t, const wf_kir *k);

/* -- pieces of kernels ----------------------------------------------------------------------------- */
enum { WF_LL_LANES = 64 }; /* lanes of the canonical sum, and the widest vector */

unsigned wf_ll_bytes(wf_kty type);
bool wf_ll_is_bcast(const wf_kernel *k, int s);
wf_kty wf_ll_src_type(const wf_kernel *k, int s);
/* define void @name(ptr %ptr, ptr %size, ptr %scalar, i64 %begin, i64 %end) and the label entry */
void wf_ll_header(wf_text *t, const wf_kernel *k);
/* Pointers %P0..., scalars and broadcast sources as %x<i> in all lanes; zeroed buffers %buf<i> of
 * `padded` elements for the others (none for 1). */
void wf_ll_prologue(wf_text *t, const wf_kernel *k, int lanes, int padded, bool with_dst);
/* The operands of a body: sources not broadcast are %<prefix>v<i>. */
void wf_ll_operands(const wf_kernel *k, const char *prefix, wf_ll *param);
/* %name := the scalar operand in every lane */
void wf_ll_spread(wf_text *t, const char *name, wf_kty type, int lanes, const char *scalar);
/* memcpy of count elements; tag and i make its temporary unique */
void wf_ll_copy(wf_text *t, const char *to, const char *from, const char *count, wf_kty type,
                const char *tag, int i);
/* Instruction n of k appended to d; map: numbers in k to numbers in d. */
wf_kref wf_ll_copy_instr(wf_kir *d, const wf_kir *k, uint32_t n, const wf_kref *map);
/* The same mathematics in primitives that take fewer instructions where operands are uniform (render_ease.c).
 * out, initialised, stays empty where there is nothing to change. */
int wf_ll_ease(const wf_kir *k, const bool *uniform_param, wf_kir *out, wf_why *why);
/* A quicker body for ordinary elements; out stays empty where there is none. Behind the outputs of the program it has
 * what is tested: ordinary is an element whose LEAST is above LIMIT, which is uniform, and whose MOST, where there is
 * one, is up to WF_LL_LARGE; all are u32. small_param: parameters that are NaN or from 0 to 1. */
int wf_ll_hurry(const wf_kir *k, const bool *uniform_param, const bool *small_param, wf_kir *out,
                wf_why *why);
enum { WF_LL_LEAST, WF_LL_LIMIT, WF_LL_MOST, WF_LL_TESTS };
enum { WF_LL_LARGE = 0x6C800000 }; /* bits of 2^90 */
/* A body whose uniform part is computed once; body: what is computed for each element. */
typedef struct wf_ll_split {
    wf_kir eased, once, rest;
    const wf_kir *body; /* &rest; where nothing is uniform &eased or the program given */
} wf_ll_split;
int wf_ll_split_body(const wf_kir *k, const bool *uniform_param, wf_ll_split *s, wf_why *why);
void wf_ll_split_free(wf_ll_split *s);
/* The uniform part from the scalars %s<i>, its results in all lanes; they become operands in param,
 * behind those of the program. _of: from the scalars given. */
void wf_ll_once(wf_text *t, const wf_ll_split *s, int lanes, const char *prefix, wf_ll *param);
void wf_ll_once_of(wf_text *t, const wf_ll_split *s, int lanes, const char *prefix,
                   const wf_ll *scalar, wf_ll *param);

/* The loop of MAP over [begin, end) of the operands at %<base>0..., entered from the block `from`,
 * left to the block `after`. */
typedef struct wf_ll_loop {
    const wf_kernel *k;
    const wf_kir *body, *fast;     /* fast: NULL if there is no rare branch; else `whole` is set */
    const wf_ll *once, *fast_once; /* operands behind the kernel's own */
    int lanes, registers;          /* values that they hold, 0: not known */
    int part;                      /* lanes of the rare branch's vectors */
    char base;
    bool stream; /* where %flags asks for it */
    bool whole;  /* no group is short, and there are no buffers */
    const char *from, *begin, *end, *after;
} wf_ll_loop;
void wf_ll_map_loop(wf_text *t, const wf_ll_loop *l);

/* -- kernels ----------------------------------------------------------------------------------------- */
void wf_ll_sum_inner(wf_text *t, const wf_kernel *k, int lanes);
void wf_ll_sum_outer(wf_text *t, const wf_kernel *k, int lanes);
void wf_ll_matmul(wf_text *t, const wf_kernel *k, int lanes);
void wf_ll_permute(wf_text *t, const wf_kernel *k, int lanes);
void wf_ll_gather(wf_text *t, const wf_kernel *k, int lanes);
void wf_ll_scatter(wf_text *t, const wf_kernel *k, int lanes);
int wf_ll_rows(wf_text *t, const wf_kernel *k, int lanes, int registers, wf_why *why);

int wf_llvm_render(const wf_kernel *k, const wf_target *target, wf_text *out, wf_why *why);
/* Lanes for the target: its width, or what the CPU's vector registers hold; 64 at most, 32 with values of 64 bits and
 * for long elementwise bodies. */
int wf_llvm_lanes(const wf_kernel *k, const wf_target *target);

#endif
