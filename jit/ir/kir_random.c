/*
 * jit/ir/kir_random.c -- random elements as kernel IR: the bodies of philox.h, element by element.
 */
#include "jit/ir/kir_random.h"

#include "jit/ir/dict_kir.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h" /* uses math_f64.h */
#include "jit/ir/philox.h"

/* Is bit `bit` of the element's number set? */
static wf_kval bit(wf_kval number, unsigned bit)
{
    return NE(IAND(number, KU64(UINT64_C(1) << bit)), KU64(0));
}

typedef struct words {
    wf_kval w[4];
} words;

/* The block of the element: its number over 2^shift. */
static words block_of(wf_kval number, unsigned shift, wf_kval seed, wf_kval offset)
{
    words r;
    const wf_kval block = ADD(offset, shift ? SHRK(number, shift) : number);
    CALL(philox_block, block, seed, &r.w[0], &r.w[1], &r.w[2], &r.w[3]);
    return r;
}

static wf_kval word_of(const words *r, wf_kval number)
{
    const wf_kval low = SELECT(bit(number, 0), r->w[1], r->w[0]);
    const wf_kval high = SELECT(bit(number, 0), r->w[3], r->w[2]);
    return SELECT(bit(number, 1), high, low);
}

static wf_kval uniform(bool wide, wf_kval number, wf_kval seed, wf_kval offset)
{
    const words r = block_of(number, wide ? 1 : 2, seed, offset);
    if (!wide)
        return CALL(uniform_f32, word_of(&r, number));
    const wf_kval second = bit(number, 0);
    return CALL(uniform_f64, SELECT(second, r.w[2], r.w[0]), SELECT(second, r.w[3], r.w[1]));
}

static wf_kval normal(bool wide, wf_kval number, wf_kval seed, wf_kval offset)
{
    const words r = block_of(number, wide ? 1 : 2, seed, offset);
    wf_kval z0, z1;
    if (wide) {
        CALL(normal_f64, r.w[0], r.w[1], r.w[2], r.w[3], &z0, &z1);
    } else {
        const wf_kval late = bit(number, 1);
        CALL(normal_f32, SELECT(late, r.w[2], r.w[0]), SELECT(late, r.w[3], r.w[1]), &z0, &z1);
    }
    return SELECT(bit(number, 0), z1, z0);
}

wf_kref wf_kir_random(wf_kir *k, wf_kir_draw draw, bool wide, wf_kref number, const wf_kref *arg)
{
    wf_kv_build(k, WF_KT_COUNT);
    const wf_kval i = wf_kv_cast(wf_kv(number), WF_KT_U64);
    const wf_kval seed = wf_kv(arg[0]), offset = wf_kv(arg[1]);
    const wf_kval p = wf_kv(arg[2]), q = wf_kv(arg[3]);
    switch (draw) {
    case WF_DRAW_UNIFORM: {
        const wf_kval v = ADD(p, MUL(uniform(wide, i, seed, offset), SUB(q, p)));
        return SELECT(LT(v, q), v, p).ref;
    }
    case WF_DRAW_NORMAL:
        return ADD(p, MUL(q, normal(wide, i, seed, offset))).ref;
    case WF_DRAW_BERNOULLI: {
        const words r = block_of(i, 2, seed, offset);
        return wf_kv_cast(LT(SHRK(word_of(&r, i), 8), p), WF_KT_U8).ref;
    }
    case WF_DRAW_INTEGER: {
        const words r = block_of(i, 0, seed, offset);
        return wf_kv_cast(CALL(randint_u64, r.w[0], r.w[1], r.w[2], r.w[3], p, q), WF_KT_I64).ref;
    }
    }
    return WF_KREF_NONE;
}
