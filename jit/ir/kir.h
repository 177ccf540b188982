/*
 * jit/ir/kir.h -- kernel IR: what one element of a kernel computes, as a small SSA program.
 *
 * A program has typed parameters, instructions over the primitives of prims.def, and outputs. The rows
 * of ops.def are expanded into it by wf_kir_row and wf_kir_vjp from the same text as the C kernels
 * (dict_kir.h is the dictionary), so that the reference interpreter, LLVM text and CUDA text compute
 * the same bits. docs/kernel-ir.md shows it at work.
 *
 * Invariants
 *  - Straight-line: no control flow. Operands of an instruction stand before it.
 *  - After wf_kir_finish the order is canonical: it depends on the expression alone, not on the order
 *    in which a compiler evaluates arguments; equal instructions are merged by bytes, dead ones gone.
 *    Nothing is folded or reassociated: merging equal primitives changes no bits. What may be, by a back end, is
 *    marked as relaxed, and only for those who asked for fast math.
 *  - f16, bf16 and bool exist in memory only: a program reads and writes their patterns (u16, u8), and
 *    wf_kir_load and wf_kir_store are made of primitives too.
 *  - Errors are sticky: after a failed allocation or a type error every call returns WF_KREF_NONE and
 *    wf_kir_finish reports it.
 */
#ifndef JIT_IR_KIR_H
#define JIT_IR_KIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jit/ir/op.h"

typedef enum wf_kprim {
#define PRIM(NAME, name, arity, rule, flops, semantics) WF_KP_##NAME,
#include "jit/ir/prims.def"
    WF_KP_COUNT
} wf_kprim;

/* Value types. Values travel as uint64_t with the bits in the low end and zeros above. */
typedef enum wf_kty {
    WF_KT_BOOL,
    WF_KT_U8,
    WF_KT_I8,
    WF_KT_U16,
    WF_KT_I16,
    WF_KT_U32,
    WF_KT_I32,
    WF_KT_U64,
    WF_KT_I64,
    WF_KT_F32,
    WF_KT_F64,
    WF_KT_COUNT
} wf_kty;

/* Index of an instruction. */
typedef uint32_t wf_kref;
#define WF_KREF_NONE UINT32_MAX

typedef struct wf_kir_table {
    const char *name;
    wf_kty type; /* u32 or u64 */
    uint32_t n;
    const void *data;
} wf_kir_table;

typedef struct wf_kinstr {
    uint8_t prim; /* wf_kprim */
    uint8_t type; /* wf_kty of the result */
    uint8_t nsrc;
    uint8_t relaxed; /* wf_kir_relax */
    uint8_t pad[4];
    wf_kref src[3]; /* unused: 0 */
    uint32_t pad2;
    uint64_t imm; /* PARAM: number; CONST: bits; SHLK, SHRK, SARK: count; LOOKUP: table */
} wf_kinstr;

enum { WF_KIR_MAX_PARAM = 128, WF_KIR_MAX_OUT = 32, WF_KIR_MAX_TABLE = 4 };

typedef struct wf_kir {
    wf_kinstr *ins;
    uint32_t n, cap;
    uint32_t nparam, nout, ntable;
    uint8_t param_type[WF_KIR_MAX_PARAM];
    wf_kref param[WF_KIR_MAX_PARAM];
    wf_kref out[WF_KIR_MAX_OUT];
    const wf_kir_table *table[WF_KIR_MAX_TABLE];
    bool
        fast; /* rows with a rare branch take the body of ordinary lanes and note the test in rare */
    wf_kref rare;      /* true: some row had an argument its fast body cannot take */
    const char *error; /* static text, NULL while all is well */
} wf_kir;

/* -- building ------------------------------------------------------------------------------------ */
void wf_kir_init(wf_kir *k);
void wf_kir_free(wf_kir *k);
/* The next parameter. */
wf_kref wf_kir_param(wf_kir *k, wf_kty type);
wf_kref wf_kir_const(wf_kir *k, wf_kty type, uint64_t bits);
wf_kref wf_kir_f32(wf_kir *k, float x);
wf_kref wf_kir_f64(wf_kir *k, double x);
/* Any primitive with operands; unused ones are WF_KREF_NONE. */
wf_kref wf_kir_op(wf_kir *k, wf_kprim prim, wf_kref a, wf_kref b, wf_kref c);
wf_kref wf_kir_shift(wf_kir *k, wf_kprim prim, wf_kref a, unsigned count);
wf_kref wf_kir_lookup(wf_kir *k, const wf_kir_table *table, wf_kref index);
/* CAST, or a itself when it has the type. */
wf_kref wf_kir_cast(wf_kir *k, wf_kty type, wf_kref a);
void wf_kir_output(wf_kir *k, wf_kref a);
wf_kty wf_kir_type(const wf_kir *k, wf_kref a);
/* Brings the program to canonical form. 0, or WEFT_ENOMEM or WEFT_EINTERNAL with *why (if not NULL). */
int wf_kir_finish(wf_kir *k, wf_why *why);
/* Holds a finished program to its rules (kir_verify.c). 0, or a status with why naming the instruction and the rule. */
int wf_kir_verify(const wf_kir *k, wf_why *why);
/* A copy of a finished program's instructions appended to k, its parameters replaced by args; results
 * to out. */
void wf_kir_inline(wf_kir *k, const wf_kir *callee, const wf_kref *args, wf_kref *out);

/* Sums, differences, products, quotients and negations of floats that were appended from instruction `first` on may be
 * contracted and reassociated with others of the kind, may take a reciprocal for a quotient, and lose the sign of a zero
 * (fast math). The reference interpreter does none of it. */
void wf_kir_relax(wf_kir *k, uint32_t first);
/* x, a float, is known to be at most 0, or NaN: of what was appended from instruction `first` on, choices that keep x, or x
 * kept above a negative constant, below a positive constant are left out. The last value must be none of them. */
void wf_kir_below_zero(wf_kir *k, wf_kref x, uint32_t first);
/* The bits of the row exp for an f32 x of which the same is known, in fewer steps. */
wf_kref wf_kir_exp_below_zero(wf_kir *k, wf_kref x);

/* -- rows ------------------------------------------------------------------------------------------
 * compute is a dtype of the row's types other than f16 and bf16. Operands have the value type of
 * compute (bool computes as u8, values 0 and 1); the first one of a CHOOSE row is bool. The result has
 * it too, or is bool for predicates and comparisons. WF_KREF_NONE when the row does not exist for
 * compute; that is no error of the program. */
wf_kty wf_kir_compute_type(int compute);
bool wf_kir_has_row(wf_op op, int compute);
wf_kref wf_kir_row(wf_kir *k, wf_op op, int compute, int nsrc, const wf_kref *src);
/* Gradient of operand `which` from g, the operands and y, in this order (unread ones may be
 * WF_KREF_NONE: see wf_kir_vjp_reads of the caller's layer). compute is f32 or f64. */
bool wf_kir_has_vjp(wf_op op, int which, int compute);
wf_kref wf_kir_vjp(wf_kir *k, wf_op op, int which, int compute, int nsrc, const wf_kref *src);

/* -- memory ------------------------------------------------------------------------------------- */
/* Type of an element in memory: u16 for f16 and bf16, u8 for bool. */
wf_kty wf_kir_storage(int dtype);
/* Element of dtype, as it lies in memory, as a value of type `to`. */
wf_kref wf_kir_load(wf_kir *k, int dtype, wf_kty to, wf_kref element);
/* A value as an element of dtype: one rounding to nearest even, integers as in CAST. */
wf_kref wf_kir_store(wf_kir *k, int dtype, wf_kref value);
/* Whole program of one row: parameters are elements of src_dtype as they lie in memory, the output one
 * of dst_dtype. wf_kir_finish is done. Returns 0 or a status with *why. */
int wf_kir_row_program(wf_kir *k, wf_op op, int compute, int nsrc, const uint8_t *src_dtype,
                       int dst_dtype, wf_why *why);
/* The same of the vjp of operand `which`: parameters g, operands, y. */
int wf_kir_vjp_program(wf_kir *k, wf_op op, int which, int compute, int nsrc,
                       const uint8_t *src_dtype, int dst_dtype, wf_why *why);

/* -- running ------------------------------------------------------------------------------------- */
/* The reference: one element, one primitive after the other. scratch has room for k->n values. */
void wf_kir_run(const wf_kir *k, uint64_t *scratch, const uint64_t *params, uint64_t *out);
/* One primitive on values. */
uint64_t wf_kir_eval(const wf_kir *k, const wf_kinstr *i, const uint64_t *params, uint64_t a,
                     uint64_t b, uint64_t c);
/* Element i of memory as a value, and back. */
uint64_t wf_kir_peek(const void *p, wf_kty type, int64_t i);
void wf_kir_poke(void *p, wf_kty type, int64_t i, uint64_t bits);
/* The sum of n values of one type (f32, f64, i64) in the canonical order; get(ctx, i) is element i.
 * The sum of nothing is 0. */
uint64_t wf_kir_sum(wf_kty type, int64_t n, uint64_t (*get)(void *ctx, int64_t i), void *ctx);

/* -- text ------------------------------------------------------------------------------------------ */
typedef struct wf_text {
    char *s;
    size_t n, cap;
    bool failed; /* an allocation failed; s is NULL or a prefix */
} wf_text;
void wf_text_free(wf_text *t);
/* n bytes as they are. */
void wf_text_put(wf_text *t, const void *data, size_t n);
/* Where n bytes more may be written; what was is said by where it ends. NULL: no memory. */
char *wf_text_room(wf_text *t, size_t n);
void wf_text_end(wf_text *t, char *end);
void wf_text_putf(wf_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
const char *wf_kprim_name(wf_kprim prim);
int wf_kprim_arity(wf_kprim prim);
/* Floating-point operations of one element, by the column of prims.def. */
int wf_kir_flops(const wf_kir *k);
const char *wf_kty_name(wf_kty type);
unsigned wf_kty_bits(wf_kty type);
bool wf_kty_is_float(wf_kty type);
bool wf_kty_is_signed(wf_kty type);
/* One line per instruction: "%3 = fma f32 %0 %1 %2". */
void wf_kir_print(const wf_kir *k, wf_text *t);

#endif
