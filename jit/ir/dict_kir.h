/*
 * jit/ir/dict_kir.h -- the dictionary that makes the row language append kernel IR.
 *
 * The names of dict_c.h, with a value being a node and the program it belongs to. KFUN makes static
 * functions that take the program first, CALL passes it; wherever a constant stands, a variable `kb`
 * names the program.
 *
 * Invariant: one name here is one primitive of prims.def, so that what is built is what dict_c.h
 * computes. Compilers evaluate arguments in different orders; wf_kir_finish makes that unseen.
 */
#ifndef JIT_IR_DICT_KIR_H
#define JIT_IR_DICT_KIR_H

#include "jit/ir/kir.h"

typedef struct wf_kval {
    wf_kir *kb;
    wf_kref ref;
} wf_kval;

#define WF_KV __attribute__((unused)) static inline
WF_KV wf_kval wf_kv(wf_kir *kb, wf_kref ref)
{
    return (wf_kval){kb, ref};
}
WF_KV wf_kval wf_kv1(wf_kprim p, wf_kval a)
{
    return wf_kv(a.kb, wf_kir_op(a.kb, p, a.ref, WF_KREF_NONE, WF_KREF_NONE));
}
WF_KV wf_kval wf_kv2(wf_kprim p, wf_kval a, wf_kval b)
{
    return wf_kv(a.kb, wf_kir_op(a.kb, p, a.ref, b.ref, WF_KREF_NONE));
}
WF_KV wf_kval wf_kv3(wf_kprim p, wf_kval a, wf_kval b, wf_kval c)
{
    return wf_kv(a.kb, wf_kir_op(a.kb, p, a.ref, b.ref, c.ref));
}
WF_KV wf_kval wf_kvshift(wf_kprim p, wf_kval a, unsigned count)
{
    return wf_kv(a.kb, wf_kir_shift(a.kb, p, a.ref, count));
}
WF_KV wf_kval wf_kvlookup(const wf_kir_table *table, wf_kval index)
{
    return wf_kv(index.kb, wf_kir_lookup(index.kb, table, index.ref));
}

/* A lane for which test is true is none of ordinary arguments. */
WF_KV void wf_kv_note_rare(wf_kir *kb, wf_kval test)
{
    kb->rare = kb->rare == WF_KREF_NONE
                   ? test.ref
                   : wf_kir_op(kb, WF_KP_BOR, kb->rare, test.ref, WF_KREF_NONE);
}

#define VF32 wf_kval
#define VF64 wf_kval
#define VU32 wf_kval
#define VU64 wf_kval
#define VB wf_kval

#define KFUN(ret, name, ...)                                                                       \
    __attribute__((unused)) static ret name(__attribute__((unused)) wf_kir *kb, __VA_ARGS__)
#define KFUN_OFTEN KFUN
#define KFUN_SELDOM KFUN
#define CALL(name, ...) name(kb, __VA_ARGS__)

#define WF_KTABLE_C_VU32 uint32_t
#define WF_KTABLE_C_VU64 uint64_t
#define WF_KTABLE_T_VU32 WF_KT_U32
#define WF_KTABLE_T_VU64 WF_KT_U64
#define KTABLE(type, name, n_, ...)                                                                \
    static const WF_KTABLE_C_##type name##_data[n_] = {__VA_ARGS__};                               \
    __attribute__((unused)) static const wf_kir_table name = {#name, WF_KTABLE_T_##type, n_,       \
                                                              name##_data}
#define LOOKUP(table, idx) wf_kvlookup(&(table), idx)

#define KF32(c) wf_kv(kb, wf_kir_f32(kb, (float)(c)))
#define KF64(c) wf_kv(kb, wf_kir_f64(kb, (double)(c)))
#define KU32(c) wf_kv(kb, wf_kir_const(kb, WF_KT_U32, (uint32_t)(c)))
#define KU64(c) wf_kv(kb, wf_kir_const(kb, WF_KT_U64, (uint64_t)(c)))

#define ADD(a, b) wf_kv2(WF_KP_ADD, a, b)
#define SUB(a, b) wf_kv2(WF_KP_SUB, a, b)
#define MUL(a, b) wf_kv2(WF_KP_MUL, a, b)
#define DIV(a, b) wf_kv2(WF_KP_DIV, a, b)
#define MIN(a, b) wf_kv2(WF_KP_MIN, a, b)
#define MAX(a, b) wf_kv2(WF_KP_MAX, a, b)
#define NEG(a) wf_kv1(WF_KP_NEG, a)
#define SHL(a, b) wf_kv2(WF_KP_SHL, a, b)
#define SHR(a, b) wf_kv2(WF_KP_SHR, a, b)

#define FMA(a, b, c) wf_kv3(WF_KP_FMA, a, b, c)
#define SQRT(a) wf_kv1(WF_KP_SQRT, a)
#define RINT(a) wf_kv1(WF_KP_RINT, a)
#define FLOOR(a) wf_kv1(WF_KP_FLOOR, a)
#define CEIL(a) wf_kv1(WF_KP_CEIL, a)
#define TRUNC(a) wf_kv1(WF_KP_TRUNC, a)
#define FABS(a) wf_kv1(WF_KP_FABS, a)
#define COPYSIGN(a, b) wf_kv2(WF_KP_COPYSIGN, a, b)

#define LT(a, b) wf_kv2(WF_KP_LT, a, b)
#define LE(a, b) wf_kv2(WF_KP_LE, a, b)
#define GT(a, b) wf_kv2(WF_KP_GT, a, b)
#define GE(a, b) wf_kv2(WF_KP_GE, a, b)
#define EQ(a, b) wf_kv2(WF_KP_EQ, a, b)
#define NE(a, b) wf_kv2(WF_KP_NE, a, b)
#define BAND(p, q) wf_kv2(WF_KP_BAND, p, q)
#define BOR(p, q) wf_kv2(WF_KP_BOR, p, q)
#define BXOR(p, q) wf_kv2(WF_KP_BXOR, p, q)
#define BNOT(p) wf_kv1(WF_KP_BNOT, p)
#define SELECT(p, a, b) wf_kv3(WF_KP_SELECT, p, a, b)

#define IAND(a, b) wf_kv2(WF_KP_IAND, a, b)
#define IOR(a, b) wf_kv2(WF_KP_IOR, a, b)
#define IXOR(a, b) wf_kv2(WF_KP_IXOR, a, b)
#define INOT(a) wf_kv1(WF_KP_INOT, a)
#define SHLK(a, k) wf_kvshift(WF_KP_SHLK, a, k)
#define SHRK(a, k) wf_kvshift(WF_KP_SHRK, a, k)
#define SARK(a, k) wf_kvshift(WF_KP_SARK, a, k)
#define BITS32(x) wf_kv1(WF_KP_BITS32, x)
#define FLT32(u) wf_kv1(WF_KP_FLT32, u)
#define BITS64(x) wf_kv1(WF_KP_BITS64, x)
#define FLT64(u) wf_kv1(WF_KP_FLT64, u)
#define MULHI64(a, b) wf_kv2(WF_KP_MULHI64, a, b)
#define MULW32(a, b) wf_kv2(WF_KP_MULW32, a, b)

#define F64_OF_F32(x) wf_kv1(WF_KP_F64_OF_F32, x)
#define F32_OF_F64(x) wf_kv1(WF_KP_F32_OF_F64, x)
#define U64_OF_U32(u) wf_kv1(WF_KP_U64_OF_U32, u)
#define U32_OF_U64(u) wf_kv1(WF_KP_U32_OF_U64, u)
#define F32_OF_S32(u) wf_kv1(WF_KP_F32_OF_S32, u)
#define F64_OF_S32(u) wf_kv1(WF_KP_F64_OF_S32, u)
#define F64_OF_S64(u) wf_kv1(WF_KP_F64_OF_S64, u)
#define S32_OF_F32(x) wf_kv1(WF_KP_S32_OF_F32, x)
#define S64_OF_F64(x) wf_kv1(WF_KP_S64_OF_F64, x)

/* rowfun.h: values and constants of integer tensors. Types, not macros: KINT pastes their names. */
typedef wf_kval VT_U8, VT_I8, VT_I16, VT_I32, VT_I64;
#define WF_KINT_VT_U8 WF_KT_U8
#define WF_KINT_VT_I8 WF_KT_I8
#define WF_KINT_VT_I16 WF_KT_I16
#define WF_KINT_VT_I32 WF_KT_I32
#define WF_KINT_VT_I64 WF_KT_I64
#define KINT(T, c) wf_kv(kb, wf_kir_const(kb, WF_KINT_##T, (uint64_t)(int64_t)(c)))

#endif
