/*
 * jit/ir/dict_kir.c -- what the names of dict_kir.h append to the program that the thread builds.
 *
 * One function a primitive, which takes values alone: rows are some thousand calls of them, and what a call passes is
 * their size.
 */
#include "jit/ir/dict_kir.h"

static _Thread_local wf_kir *building;
static _Thread_local wf_kty computing;

void wf_kv_build(wf_kir *k, wf_kty compute)
{
    building = k;
    computing = compute;
}

wf_kty wf_kv_compute(void)
{
    return computing;
}
bool wf_kv_fast(void)
{
    return building->fast;
}

wf_kty wf_kv_type(wf_kval a)
{
    return wf_kir_type(building, a.ref);
}

static wf_kval op3(wf_kval a, wf_kval b, wf_kval c, wf_kprim p)
{
    return wf_kv(wf_kir_op(building, p, a.ref, b.ref, c.ref));
}
static wf_kval op2(wf_kval a, wf_kval b, wf_kprim p)
{
    return op3(a, b, wf_kv(WF_KREF_NONE), p);
}
static wf_kval op1(wf_kval a, wf_kprim p)
{
    return op2(a, wf_kv(WF_KREF_NONE), p);
}

/* Primitives that values alone describe. */
#define PLAIN_LEAF 0
#define PLAIN_AR 1
#define PLAIN_FLT 1
#define PLAIN_INT 1
#define PLAIN_BOO 1
#define PLAIN_CMP 1
#define PLAIN_SEL 1
#define PLAIN_KSH 0
#define PLAIN_CONV(from, to) 1
#define PLAIN_LUT 0
#define PLAIN_CAST 0
#define IF_0(...)
#define IF_1(...) __VA_ARGS__
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define OF_0(NAME)
#define OF_1(NAME)                                                                                 \
    wf_kval wf_kv_##NAME(wf_kval a)                                                                \
    {                                                                                              \
        return op1(a, WF_KP_##NAME);                                                               \
    }
#define OF_2(NAME)                                                                                 \
    wf_kval wf_kv_##NAME(wf_kval a, wf_kval b)                                                     \
    {                                                                                              \
        return op2(a, b, WF_KP_##NAME);                                                            \
    }
#define OF_3(NAME)                                                                                 \
    wf_kval wf_kv_##NAME(wf_kval a, wf_kval b, wf_kval c)                                          \
    {                                                                                              \
        return op3(a, b, c, WF_KP_##NAME);                                                         \
    }
#define PRIM(NAME, name, arity, rule, flops, semantics) CAT(IF_, PLAIN_##rule)(OF_##arity(NAME))
#include "jit/ir/prims.def"

wf_kval wf_kv_shift(wf_kval a, wf_kprim p, unsigned count)
{
    return wf_kv(wf_kir_shift(building, p, a.ref, count));
}
wf_kval wf_kv_lookup(const wf_kir_table *table, wf_kval index)
{
    return wf_kv(wf_kir_lookup(building, table, index.ref));
}
wf_kval wf_kv_cast(wf_kval a, wf_kty type)
{
    return wf_kv(wf_kir_cast(building, type, a.ref));
}

wf_kval wf_kv_const(uint64_t bits, wf_kty type)
{
    return wf_kv(wf_kir_const(building, type, bits));
}
wf_kval wf_kv_u32(uint32_t bits)
{
    return wf_kv_const(bits, WF_KT_U32);
}
wf_kval wf_kv_u64(uint64_t bits)
{
    return wf_kv_const(bits, WF_KT_U64);
}
wf_kval wf_kv_bits32(uint32_t bits)
{
    return wf_kv_const(bits, WF_KT_F32);
}
wf_kval wf_kv_f64(double x)
{
    return wf_kv(wf_kir_f64(building, x));
}
wf_kval wf_kv_number(double x)
{
    return computing == WF_KT_F32 ? wf_kv_f32((float)x) : wf_kv_f64(x);
}

void wf_kv_note_rare(wf_kval test)
{
    wf_kir *k = building;
    k->rare = k->rare == WF_KREF_NONE ? test.ref
                                      : wf_kir_op(k, WF_KP_BOR, k->rare, test.ref, WF_KREF_NONE);
}
