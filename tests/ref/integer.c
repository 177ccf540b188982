/*
 * tests/ref/integer.c -- elementwise references for integers and bool, in 128 bits.
 *
 * Invariant: exact in 128 bits; the low bits of what is returned are the result (ref_wrap).
 */
#include "tests/ref/ref.h"

wide ref_wrap(wide x, ref_width w)
{
    wide modulus = (wide)1 << w.bits;
    wide r = x % modulus;
    r += r < 0 ? modulus : 0;
    return w.is_signed && r >= modulus / 2 ? r - modulus : r;
}

/* clang-format off */
#define ONE(name, expr) REF_INT1(name) { (void)w; return expr; }
#define TWO(name, expr) REF_INT2(name) { (void)w; return expr; }
#define THREE(name, expr) REF_INT3(name) { (void)w; return expr; }
ONE(neg, -x)
ONE(abs, x < 0 ? -x : x)
ONE(sign, (x > 0) - (x < 0))
ONE(square, x * x)
ONE(relu, x > 0 ? x : 0)
ONE(relu6, x < 0 ? 0 : x > 6 ? 6 : x)
ONE(floor, x)
ONE(ceil, x)
ONE(trunc, x)
ONE(round, x)
ONE(bitwise_not, -x - 1)
ONE(isnan, x * 0)
ONE(isinf, x * 0)
ONE(isfinite, x * 0 + 1)
ONE(signbit, x < 0)
ONE(logical_not, x == 0)
TWO(add, a + b)
TWO(sub, a - b)
TWO(mul, a * b)
TWO(fmod, b == 0 ? 0 : a % b)
TWO(maximum, a > b ? a : b)
TWO(minimum, a < b ? a : b)
TWO(bitwise_and, a & b)
TWO(bitwise_or, a | b)
TWO(bitwise_xor, a ^ b)
TWO(equal, a == b)
TWO(not_equal, a != b)
TWO(less, a < b)
TWO(less_equal, a <= b)
TWO(greater, a > b)
TWO(greater_equal, a >= b)
TWO(logical_and, a != 0 && b != 0)
TWO(logical_or, a != 0 || b != 0)
TWO(logical_xor, (a != 0) != (b != 0))
THREE(clamp, a < b ? (b > c ? c : b) : (a > c ? c : a))
THREE(addcmul, a + b * c)
THREE(where, a != 0 ? b : c)
/* clang-format on */

/* Towards -inf; 0 for x / 0. */
REF_INT2(floor_divide)
{
    (void)w;
    if (b == 0) {
        return 0;
    }
    wide q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
REF_INT2(remainder)
{
    return b == 0 ? 0 : a - ref_int_floor_divide(a, b, w) * b;
}
/* A shift by the width or more, or by a negative count: nothing is left. */
REF_INT2(bitwise_left_shift)
{
    return b < 0 || b >= w.bits ? 0 : a * ((wide)1 << b);
}
REF_INT2(bitwise_right_shift)
{
    return b < 0 || b >= w.bits ? (a < 0 ? -1 : 0) : a >> b;
}
