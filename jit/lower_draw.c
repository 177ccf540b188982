/*
 * jit/lower_draw.c -- drawn inputs of programs as kernel IR, for devices: each element from its number.
 *
 * The host draws tiles before a kernel runs (eager/program_draw.c); a kernel of a device draws an element where it would
 * load one. The numbers that a draw takes come as the run's scalars and become here what eager/create.c makes of them.
 */
#include <string.h>

#include "jit/ir/kir_random.h"
#include "jit/lower_impl.h"

static wf_kref f2(wf_kir *k, wf_kprim op, wf_kref a, wf_kref b)
{
    return wf_kir_op(k, op, a, b, WF_KREF_NONE);
}

/* The least integer that a uniform of 24 bits is not below with probability p. */
static wf_kref threshold(wf_kir *k, wf_kref p)
{
    const double scale = 0x1p24;
    uint64_t bits;
    memcpy(&bits, &scale, sizeof bits);
    const wf_kref at = f2(k, WF_KP_MUL, p, wf_kir_const(k, WF_KT_F64, bits));
    const wf_kref up = wf_kir_op(k, WF_KP_CEIL, at, WF_KREF_NONE, WF_KREF_NONE);
    const wf_kref whole = wf_kir_cast(k, WF_KT_U32, up); /* saturates, NaN is 0 */
    return f2(k, WF_KP_MIN, whole, wf_kir_const(k, WF_KT_U32, UINT64_C(1) << 24));
}

static wf_kref range(wf_kir *k, wf_kref low, wf_kref high)
{
    const wf_kref some = f2(k, WF_KP_LT, low, high);
    const wf_kref n = wf_kir_cast(k, WF_KT_U64, f2(k, WF_KP_SUB, high, low));
    return wf_kir_op(k, WF_KP_SELECT, some, n, wf_kir_const(k, WF_KT_U64, 1));
}

wf_kref wf_lower_draw(wf_lowering *l, int j, wf_kref number)
{
    const wf_program_drawn *d = &l->p->draw[j];
    const int type = l->p->type[l->p->input[j]];
    const wf_kty real = type == WEFT_F64 ? WF_KT_F64 : WF_KT_F32;
    wf_kref arg[WF_DRAW_SCALARS];
    for (int i = 0; i < WF_DRAW_SCALARS; i++)
        arg[i] = l->value[l->p->scalar[d->scalar[i]]];
    arg[0] = wf_kir_cast(l->k, WF_KT_U64, arg[0]);
    arg[1] = wf_kir_cast(l->k, WF_KT_U64, arg[1]);
    wf_kir_draw draw = d->op == WF_OP_RAND ? WF_DRAW_UNIFORM : WF_DRAW_NORMAL;
    if (d->op == WF_OP_BERNOULLI) {
        draw = WF_DRAW_BERNOULLI;
        arg[2] = arg[3] = threshold(l->k, arg[2]);
    } else if (d->op == WF_OP_RANDINT) {
        draw = WF_DRAW_INTEGER;
        arg[3] = range(l->k, arg[2], arg[3]);
        arg[2] = wf_kir_cast(l->k, WF_KT_U64, arg[2]);
    } else {
        arg[2] = wf_kir_cast(l->k, real, arg[2]);
        arg[3] = wf_kir_cast(l->k, real, arg[3]);
    }
    const wf_kref x = wf_kir_random(l->k, draw, type == WEFT_F64, number, arg);
    return wf_kir_cast(l->k, wf_lower_type(type), x);
}
