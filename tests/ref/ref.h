/*
 * tests/ref/ref.h -- what every row is compared with, written independently of the rows.
 *
 * Elementwise rows: ref_<name> computes the value in long double (64-bit significand; exact operands
 * of any element type) from the C library or by hand, ref_int_<name> in 128-bit integers, of which the
 * low bits count. Reductions: ref_<name> over the elements of one group. table.c names one for each row
 * of the op table: a row without a reference, or without a public prototype, does not compile.
 */
#ifndef TESTS_REF_REF_H
#define TESTS_REF_REF_H

#include "jit/ir/op.h"
#include "weft/weft.h"

typedef long double real;
typedef __int128 wide;

/* The integer type at hand. */
typedef struct ref_width {
    int bits;
    bool is_signed;
} ref_width;

typedef real (*ref_fn1)(real);
typedef real (*ref_fn2)(real, real);
typedef real (*ref_fn3)(real, real, real);
typedef wide (*ref_int1)(wide, ref_width);
typedef wide (*ref_int2)(wide, wide, ref_width);
typedef wide (*ref_int3)(wide, wide, wide, ref_width);
/* n elements of one group in order; option: correction, order. */
typedef real (*ref_reduce)(const real *x, int64_t n, double option);

/* One row: what to call, what to expect. NULL where it does not apply. */
typedef struct ref_row {
    weft_tensor (*call1)(weft_tensor);
    weft_tensor (*call2)(weft_tensor, weft_tensor);
    weft_tensor (*call3)(weft_tensor, weft_tensor, weft_tensor);
    weft_status (*write1)(weft_tensor); /* in place */
    weft_status (*write2)(weft_tensor, weft_tensor);
    weft_status (*write3)(weft_tensor, weft_tensor, weft_tensor);
    ref_fn1 f1;
    ref_fn2 f2;
    ref_fn3 f3;
    ref_int1 i1;
    ref_int2 i2;
    ref_int3 i3;
    int nsrc;
} ref_row;
extern const ref_row ref_rows[WF_OP_COUNT];

/* Reductions by opcode. */
extern const ref_reduce ref_reductions[WF_OP_COUNT];

/* Rows whose formula is a sum (lerp: a + c * (b - a)) lose digits when its terms cancel, by definition:
 * their error is counted in units of the largest term. 0 for rows whose result is the unit. f64
 * logaddexp is among them; its f32 form is computed in f64. */
real ref_term(wf_op op, int dtype, const real *x);
/* Low bits of x as a value of the type. */
wide ref_wrap(wide x, ref_width w);

#define REF_REAL1(name) real ref_##name(real x)
#define REF_REAL2(name) real ref_##name(real a, real b)
#define REF_REAL3(name) real ref_##name(real a, real b, real c)
#define REF_INT1(name) wide ref_int_##name(wide x, ref_width w)
#define REF_INT2(name) wide ref_int_##name(wide a, wide b, ref_width w)
#define REF_INT3(name) wide ref_int_##name(wide a, wide b, wide c, ref_width w)
#define REF_REDUCE(name) real ref_##name(const real *x, int64_t n, double option)

REF_REAL1(neg);
REF_REAL1(abs);
REF_REAL1(sign);
REF_REAL1(square);
REF_REAL1(cube);
REF_REAL1(reciprocal);
REF_REAL1(sqrt);
REF_REAL1(rsqrt);
REF_REAL1(pow_half);
REF_REAL1(pow_minus_half);
REF_REAL1(cbrt);
REF_REAL1(exp);
REF_REAL1(exp2);
REF_REAL1(expm1);
REF_REAL1(log);
REF_REAL1(log2);
REF_REAL1(log10);
REF_REAL1(log1p);
REF_REAL1(sin);
REF_REAL1(cos);
REF_REAL1(tan);
REF_REAL1(asin);
REF_REAL1(acos);
REF_REAL1(atan);
REF_REAL1(sinh);
REF_REAL1(cosh);
REF_REAL1(tanh);
REF_REAL1(asinh);
REF_REAL1(acosh);
REF_REAL1(atanh);
REF_REAL1(sigmoid);
REF_REAL1(log_sigmoid);
REF_REAL1(erf);
REF_REAL1(erfc);
REF_REAL1(normcdf);
REF_REAL1(gelu);
REF_REAL1(gelu_tanh);
REF_REAL1(silu);
REF_REAL1(softplus);
REF_REAL1(mish);
REF_REAL1(relu);
REF_REAL1(relu6);
REF_REAL1(hardsigmoid);
REF_REAL1(hardswish);
REF_REAL1(selu);
REF_REAL1(floor);
REF_REAL1(ceil);
REF_REAL1(trunc);
REF_REAL1(round);
REF_REAL2(add);
REF_REAL2(sub);
REF_REAL2(mul);
REF_REAL2(div);
REF_REAL2(floor_divide);
REF_REAL2(remainder);
REF_REAL2(fmod);
REF_REAL2(pow);
REF_REAL2(maximum);
REF_REAL2(minimum);
REF_REAL2(atan2);
REF_REAL2(hypot);
REF_REAL2(copysign);
REF_REAL2(logaddexp);
REF_REAL2(xlogy);
REF_REAL2(bce);
REF_REAL2(leaky_relu);
REF_REAL2(elu);
REF_REAL3(clamp);
REF_REAL3(lerp);
REF_REAL3(fma);
REF_REAL3(addcmul);
REF_REAL3(huber);
REF_REAL3(where);
REF_REAL1(isnan);
REF_REAL1(isinf);
REF_REAL1(isfinite);
REF_REAL1(signbit);
REF_REAL1(logical_not);
REF_REAL2(equal);
REF_REAL2(not_equal);
REF_REAL2(less);
REF_REAL2(less_equal);
REF_REAL2(greater);
REF_REAL2(greater_equal);
REF_REAL2(logical_and);
REF_REAL2(logical_or);
REF_REAL2(logical_xor);

REF_INT1(neg);
REF_INT1(abs);
REF_INT1(sign);
REF_INT1(square);
REF_INT1(relu);
REF_INT1(relu6);
REF_INT1(floor);
REF_INT1(ceil);
REF_INT1(trunc);
REF_INT1(round);
REF_INT1(bitwise_not);
REF_INT2(add);
REF_INT2(sub);
REF_INT2(mul);
REF_INT2(floor_divide);
REF_INT2(remainder);
REF_INT2(fmod);
REF_INT2(maximum);
REF_INT2(minimum);
REF_INT2(bitwise_and);
REF_INT2(bitwise_or);
REF_INT2(bitwise_xor);
REF_INT2(bitwise_left_shift);
REF_INT2(bitwise_right_shift);
REF_INT3(clamp);
REF_INT3(addcmul);
REF_INT3(where);
REF_INT1(isnan);
REF_INT1(isinf);
REF_INT1(isfinite);
REF_INT1(signbit);
REF_INT1(logical_not);
REF_INT2(equal);
REF_INT2(not_equal);
REF_INT2(less);
REF_INT2(less_equal);
REF_INT2(greater);
REF_INT2(greater_equal);
REF_INT2(logical_and);
REF_INT2(logical_or);
REF_INT2(logical_xor);

REF_REDUCE(sum);
REF_REDUCE(prod);
REF_REDUCE(max);
REF_REDUCE(min);
REF_REDUCE(mean);
REF_REDUCE(var);
REF_REDUCE(std);
REF_REDUCE(norm);
REF_REDUCE(logsumexp);
REF_REDUCE(any);
REF_REDUCE(all);
REF_REDUCE(count_nonzero);
REF_REDUCE(argmax);
REF_REDUCE(argmin);
/* The last element of the running result. */
REF_REDUCE(cumsum);
REF_REDUCE(cumprod);

#endif
