/*
 * jit/ir/dict_kir.h -- the dictionary that makes the row language append kernel IR.
 *
 * The names of dict_c.h, with a value being a node of the program that the thread builds: the one it named last by
 * wf_kv_build, which every function that is no part of a body does before it uses a name.
 *
 * Invariant: one name here is one primitive of prims.def, so that what is built is what dict_c.h
 * computes. Compilers evaluate arguments in different orders; wf_kir_finish makes that unseen.
 */
#ifndef JIT_IR_DICT_KIR_H
#define JIT_IR_DICT_KIR_H

#include <string.h>

#include "jit/ir/kir.h"

typedef struct wf_kval {
    wf_kref ref;
} wf_kval;

static inline wf_kval wf_kv(wf_kref ref)
{
    return (wf_kval){ref};
}
/* The names append to k; compute is the type of wf_kv_number, WF_KT_COUNT: it is not used. */
void wf_kv_build(wf_kir *k, wf_kty compute);
/* Of the program that is built: do rows take the body of ordinary lanes? The type of a value. */
bool wf_kv_fast(void);
wf_kty wf_kv_type(wf_kval a);
wf_kty wf_kv_compute(void);

#define WF_KV_0(NAME)
#define WF_KV_1(NAME) wf_kval wf_kv_##NAME(wf_kval a);
#define WF_KV_2(NAME) wf_kval wf_kv_##NAME(wf_kval a, wf_kval b);
#define WF_KV_3(NAME) wf_kval wf_kv_##NAME(wf_kval a, wf_kval b, wf_kval c);
#define PRIM(NAME, name, arity, rule, flops, semantics) WF_KV_##arity(NAME)
#include "jit/ir/prims.def"
wf_kval wf_kv_shift(wf_kval a, wf_kprim p, unsigned count);
wf_kval wf_kv_lookup(const wf_kir_table *table, wf_kval index);
wf_kval wf_kv_cast(wf_kval a, wf_kty type); /* a itself when it has the type */

wf_kval wf_kv_const(uint64_t bits, wf_kty type);
wf_kval wf_kv_u32(uint32_t bits);
wf_kval wf_kv_u64(uint64_t bits);
wf_kval wf_kv_bits32(uint32_t bits);
wf_kval wf_kv_f64(double x);
wf_kval wf_kv_number(double x); /* of the compute type, f32 or f64 */
__attribute__((always_inline)) static inline wf_kval wf_kv_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return wf_kv_bits32(u);
}

/* A lane for which test is true is none of ordinary arguments. */
void wf_kv_note_rare(wf_kval test);

#define VF32 wf_kval
#define VF64 wf_kval
#define VU32 wf_kval
#define VU64 wf_kval
#define VB wf_kval

#define KFUN(ret, name, ...) __attribute__((unused)) static ret name(__VA_ARGS__)
#define KFUN_OFTEN KFUN
#define KFUN_SELDOM KFUN
#define CALL(name, ...) name(__VA_ARGS__)

#define WF_KTABLE_C_VU32 uint32_t
#define WF_KTABLE_C_VU64 uint64_t
#define WF_KTABLE_T_VU32 WF_KT_U32
#define WF_KTABLE_T_VU64 WF_KT_U64
#define KTABLE(type, name, n_, ...)                                                                \
    static const WF_KTABLE_C_##type name##_data[n_] = {__VA_ARGS__};                               \
    __attribute__((unused)) static const wf_kir_table name = {#name, WF_KTABLE_T_##type, n_,       \
                                                              name##_data}
#define LOOKUP(table, idx) wf_kv_lookup(&(table), idx)

#define KF32(c) wf_kv_f32((float)(c))
#define KF64(c) wf_kv_f64((double)(c))
#define KU32(c) wf_kv_u32((uint32_t)(c))
#define KU64(c) wf_kv_u64((uint64_t)(c))

#define ADD(a, b) wf_kv_ADD(a, b)
#define SUB(a, b) wf_kv_SUB(a, b)
#define MUL(a, b) wf_kv_MUL(a, b)
#define DIV(a, b) wf_kv_DIV(a, b)
#define MIN(a, b) wf_kv_MIN(a, b)
#define MAX(a, b) wf_kv_MAX(a, b)
#define NEG(a) wf_kv_NEG(a)
#define SHL(a, b) wf_kv_SHL(a, b)
#define SHR(a, b) wf_kv_SHR(a, b)

#define FMA(a, b, c) wf_kv_FMA(a, b, c)
#define SQRT(a) wf_kv_SQRT(a)
#define RINT(a) wf_kv_RINT(a)
#define FLOOR(a) wf_kv_FLOOR(a)
#define CEIL(a) wf_kv_CEIL(a)
#define TRUNC(a) wf_kv_TRUNC(a)
#define FABS(a) wf_kv_FABS(a)
#define COPYSIGN(a, b) wf_kv_COPYSIGN(a, b)

#define LT(a, b) wf_kv_LT(a, b)
#define LE(a, b) wf_kv_LE(a, b)
#define GT(a, b) wf_kv_GT(a, b)
#define GE(a, b) wf_kv_GE(a, b)
#define EQ(a, b) wf_kv_EQ(a, b)
#define NE(a, b) wf_kv_NE(a, b)
#define BAND(p, q) wf_kv_BAND(p, q)
#define BOR(p, q) wf_kv_BOR(p, q)
#define BXOR(p, q) wf_kv_BXOR(p, q)
#define BNOT(p) wf_kv_BNOT(p)
#define SELECT(p, a, b) wf_kv_SELECT(p, a, b)

#define IAND(a, b) wf_kv_IAND(a, b)
#define IOR(a, b) wf_kv_IOR(a, b)
#define IXOR(a, b) wf_kv_IXOR(a, b)
#define INOT(a) wf_kv_INOT(a)
#define SHLK(a, k) wf_kv_shift(a, WF_KP_SHLK, k)
#define SHRK(a, k) wf_kv_shift(a, WF_KP_SHRK, k)
#define SARK(a, k) wf_kv_shift(a, WF_KP_SARK, k)
#define BITS32(x) wf_kv_BITS32(x)
#define FLT32(u) wf_kv_FLT32(u)
#define BITS64(x) wf_kv_BITS64(x)
#define FLT64(u) wf_kv_FLT64(u)
#define MULHI64(a, b) wf_kv_MULHI64(a, b)
#define MULW32(a, b) wf_kv_MULW32(a, b)

#define F64_OF_F32(x) wf_kv_F64_OF_F32(x)
#define F32_OF_F64(x) wf_kv_F32_OF_F64(x)
#define U64_OF_U32(u) wf_kv_U64_OF_U32(u)
#define U32_OF_U64(u) wf_kv_U32_OF_U64(u)
#define F32_OF_S32(u) wf_kv_F32_OF_S32(u)
#define F64_OF_S32(u) wf_kv_F64_OF_S32(u)
#define F64_OF_S64(u) wf_kv_F64_OF_S64(u)
#define S32_OF_F32(x) wf_kv_S32_OF_F32(x)
#define S64_OF_F64(x) wf_kv_S64_OF_F64(x)

/* rowfun.h: values and constants of integer tensors. Types, not macros: KINT pastes their names. */
typedef wf_kval VT_U8, VT_I8, VT_I16, VT_I32, VT_I64;
#define WF_KINT_VT_U8 WF_KT_U8
#define WF_KINT_VT_I8 WF_KT_I8
#define WF_KINT_VT_I16 WF_KT_I16
#define WF_KINT_VT_I32 WF_KT_I32
#define WF_KINT_VT_I64 WF_KT_I64
#define KINT(T, c) wf_kv_const((uint64_t)(int64_t)(c), WF_KINT_##T)

#endif
