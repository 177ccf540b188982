/*
 * jit/ir/philox.h -- random bits and their distributions, in the row language.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011) maps a
 * 128-bit counter and a 64-bit key to four words. The key is the seed; the counter's low half is
 * the draw's offset plus the block number, its high half is the stream (0). Element i of a draw is
 * a function of (seed, offset, i) alone:
 *
 *   f32 kinds   block i / 4, word i % 4               (uniform, Bernoulli)
 *   f64 uniform block i / 2, words 2 (i % 2) (low half) and 2 (i % 2) + 1 (high half)
 *   integers    block i, all four words as one 128-bit number, word 0 lowest
 *   normal      pairs of elements (2k, 2k + 1) share the words that both would take as uniforms
 *
 * Invariants: those of the dictionary (every name is exact in every back end). math_f64.h and
 * math_f32.h must be included before the normal_* bodies are used, in that order.
 */
#ifndef JIT_IR_PHILOX_H
#define JIT_IR_PHILOX_H

KFUN(void, philox_round, VU32 k0, VU32 k1, VU32 *c0, VU32 *c1, VU32 *c2, VU32 *c3)
{
    const VU64 a = MULW32(KU32(0xD2511F53), *c0);
    const VU64 b = MULW32(KU32(0xCD9E8D57), *c2);
    *c0 = IXOR(IXOR(U32_OF_U64(SHRK(b, 32)), *c1), k0);
    *c2 = IXOR(IXOR(U32_OF_U64(SHRK(a, 32)), *c3), k1);
    *c1 = U32_OF_U64(b);
    *c3 = U32_OF_U64(a);
}

/* The block of counter (c0 lowest, c3 highest) under key (k0, k1). */
KFUN(void, philox_4x32_10, VU32 c0, VU32 c1, VU32 c2, VU32 c3, VU32 k0, VU32 k1, VU32 *r0, VU32 *r1,
     VU32 *r2, VU32 *r3)
{
    *r0 = c0;
    *r1 = c1;
    *r2 = c2;
    *r3 = c3;
#define PHILOX_ROUND(i)                                                                            \
    CALL(philox_round, ADD(k0, MUL(KU32(i), KU32(0x9E3779B9))),                                    \
         ADD(k1, MUL(KU32(i), KU32(0xBB67AE85))), r0, r1, r2, r3)
    PHILOX_ROUND(0);
    PHILOX_ROUND(1);
    PHILOX_ROUND(2);
    PHILOX_ROUND(3);
    PHILOX_ROUND(4);
    PHILOX_ROUND(5);
    PHILOX_ROUND(6);
    PHILOX_ROUND(7);
    PHILOX_ROUND(8);
    PHILOX_ROUND(9);
#undef PHILOX_ROUND
}

/* The block numbered `block` (offset added) of stream 0. */
KFUN(void, philox_block, VU64 block, VU64 seed, VU32 *r0, VU32 *r1, VU32 *r2, VU32 *r3)
{
    CALL(philox_4x32_10, U32_OF_U64(block), U32_OF_U64(SHRK(block, 32)), KU32(0), KU32(0),
         U32_OF_U64(seed), U32_OF_U64(SHRK(seed, 32)), r0, r1, r2, r3);
}

/* [0, 1): multiples of 2^-24 */
KFUN(VF32, uniform_f32, VU32 u)
{
    return MUL(F32_OF_S32(SHRK(u, 8)), KF32(0x1p-24f));
}

/* [0, 1): multiples of 2^-53 */
KFUN(VF64, uniform_f64, VU32 lo, VU32 hi)
{
    const VU64 w = IOR(SHLK(U64_OF_U32(hi), 32), U64_OF_U32(lo));
    return MUL(F64_OF_S64(SHRK(w, 11)), KF64(0x1p-53));
}

/*
 * lo + floor(d * range / 2^128), d the block as a number; wraps. range is the number of values, 0
 * standing for 2^64. The chance of a value differs from 1/range by less than 2^-128, relatively by
 * less than 2^-64, whatever the range: there is nothing to reject, so elements stay independent of
 * each other.
 */
KFUN(VU64, randint_u64, VU32 r0, VU32 r1, VU32 r2, VU32 r3, VU64 lo, VU64 range)
{
    const VU64 low = IOR(SHLK(U64_OF_U32(r1), 32), U64_OF_U32(r0));
    const VU64 high = IOR(SHLK(U64_OF_U32(r3), 32), U64_OF_U32(r2));
    const VU64 mid = MUL(high, range);
    const VU64 sum = ADD(mid, MULHI64(low, range));
    const VU64 carry = SELECT(LT(sum, mid), KU64(1), KU64(0));
    const VU64 scaled = ADD(MULHI64(high, range), carry);
    return ADD(lo, SELECT(EQ(range, KU64(0)), high, scaled));
}

/*
 * Box-Muller: radius sqrt(-2 log u), u in (0, 1] in steps of 2^-31 (largest |z| 6.55), angle the
 * second word as a signed fraction of a turn, so in [-pi, pi] where no large reduction is needed.
 */
KFUN(void, normal_f32, VU32 a, VU32 b, VF32 *z0, VF32 *z1)
{
    const VF32 u = MUL(F32_OF_S32(IOR(SHRK(a, 1), KU32(1))), KF32(0x1p-31f));
    const VF32 radius = SQRT(MUL(CALL(log_f32, u), KF32(-2.0f)));
    const VF32 angle = MUL(F32_OF_S32(b), KF32(0x1.921fb6p-30f)); /* 2 pi / 2^32 */
    *z0 = MUL(radius, CALL(cos_f32_fast, angle));
    *z1 = MUL(radius, CALL(sin_f32_fast, angle));
}

/* The same in f64: u in steps of 2^-63, largest |z| 9.34. */
KFUN(void, normal_f64, VU32 a0, VU32 a1, VU32 b0, VU32 b1, VF64 *z0, VF64 *z1)
{
    const VU64 a = IOR(SHLK(U64_OF_U32(a1), 32), U64_OF_U32(a0));
    const VU64 b = IOR(SHLK(U64_OF_U32(b1), 32), U64_OF_U32(b0));
    const VF64 u = MUL(F64_OF_S64(IOR(SHRK(a, 1), KU64(1))), KF64(0x1p-63));
    const VF64 radius = SQRT(MUL(CALL(log_f64, u), KF64(-2.0)));
    const VF64 angle = MUL(F64_OF_S64(b), KF64(0x1.921fb54442d18p-62)); /* 2 pi / 2^64 */
    *z0 = MUL(radius, CALL(cos_f64_fast, angle));
    *z1 = MUL(radius, CALL(sin_f64_fast, angle));
}

#endif
