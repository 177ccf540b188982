/*
 * tests/jit/fuse_cases.h -- functions that fuse, and into how many steps and groups: planned by test_fuse.c, executed on the
 * fake device by test_cuda_graphs.c.
 */
#ifndef TESTS_JIT_FUSE_CASES_H
#define TESTS_JIT_FUSE_CASES_H

typedef struct fuse_case {
    const char *what, *text;
    int steps, groups;
} fuse_case;

/* Elementwise groups. */
__attribute__((unused)) static const fuse_case fuse_shapes[] = {
    {"gelu(x*a+b)*c+r",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[70]\n  %3 = input f32[70]\n"
     "  %4 = input f32[50,1]\n  %5 = input f32[50,70]\n  %6 = mul f32[50,70] %1, %2\n"
     "  %7 = add f32[50,70] %6, %3\n  %8 = gelu f32[50,70] %7\n  %9 = mul f32[50,70] %8, %4\n"
     "  %10 = add f32[50,70] %9, %5\n  return %10\n}\n",
     1, 1},
    {"transpose, slice, add",
     "fn a {\n  %1 = input f32[60,50]\n  %2 = input f32[40,60]\n"
     "  %3 = permute f32[50,60] %1 ints(1, 0)\n  %4 = slice f32[40,60] %3 ints(0) dyn(5, 45, "
     "1)\n"
     "  %5 = add f32[40,60] %4, %2\n  return %5\n}\n",
     1, 1},
    {"a reshape between",
     "fn a {\n  %1 = input f32[6,10]\n  %2 = exp f32[6,10] %1\n"
     "  %3 = reshape f32[3,20] %2 dyn(3, 20)\n  %4 = input f32[20]\n"
     "  %5 = neg f32[3,20] %3\n  %6 = reshape f32[60] %5 dyn(60)\n  %7 = sin f32[60] %6\n"
     "  return %7, %2\n}\n",
     1, 1},
    {"extents of a later operand",
     "fn a {\n  %1 = input f32[60]\n  %2 = exp f32[60] %1\n"
     "  %3 = reshape f32[3,20] %2 dyn(3, 20)\n  %4 = input f32[20]\n"
     "  %5 = mul f32[3,20] %3, %4\n  return %5\n}\n",
     1, 1},
    {"siblings and several outputs",
     "fn a {\n  %1 = input f32[100]\n  %2 = sin f32[100] %1\n  %3 = cos f32[100] %1\n"
     "  %4 = mul f32[100] %2, %3\n  return %2, %3, %4\n}\n",
     1, 1},
    {"an operand that waits",
     "fn a {\n  %1 = input f32[20,10]\n  %2 = input f32[20,10]\n  %3 = exp f32[20,10] %1\n"
     "  %4 = cumsum f32[20,10] %2 ints(1)\n  %5 = mul f32[20,10] %3, %4\n  return %5\n}\n",
     2, 1},
    {"halves with casts",
     "fn a {\n  %1 = input bf16[30,10]\n  %2 = cast f32[30,10] %1 dtype(f32)\n"
     "  %3 = exp f32[30,10] %2\n  %4 = cast bf16[30,10] %3 dtype(bf16)\n"
     "  %5 = mul bf16[30,10] %4, %1\n  return %5\n}\n",
     1, 1},
    {"read transposed inside",
     "fn a {\n  %1 = input f32[30,30]\n  %2 = exp f32[30,30] %1\n"
     "  %3 = permute f32[30,30] %2 ints(1, 0)\n  %4 = add f32[30,30] %2, %3\n  return %4\n}\n",
     2, 2},
    {"a derivative beside its row",
     "fn a {\n  %1 = input f32[80]\n  %2 = input f32[80]\n  %3 = gelu f32[80] %1\n"
     "  %4 = vjp f32[80] %2, %1, _ of(gelu,0) dyn(80) dtype(f32)\n  %5 = add f32[80] %3, %4\n"
     "  return %5\n}\n",
     1, 1},
    {"fills are scalars",
     "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[] flt(0x1p+1) dtype(f32)\n"
     "  %3 = expand f32[4,8] %2 dyn(4, 8)\n  %4 = mul f32[4,8] %1, %3\n  return %4\n}\n",
     1, 1},
    {"so is what is made of them",
     "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[] flt(0x1p+1) dtype(f32)\n"
     "  %3 = scalar f64 0x1.8p+1\n  %4 = div f32[] %2, %3\n  %5 = exp f32[] %4\n"
     "  %6 = expand f32[4,8] %5 dyn(4, 8)\n  %7 = mul f32[4,8] %1, %6\n  return %7\n}\n",
     1, 1},
    {"dropout between neighbours, its mask kept",
     "fn a {\n  %1 = input f32[70,130]\n  %2 = relu f32[70,130] %1\n"
     "  %3 = bernoulli bool[70,130] dyn(70, 130, 7, 1000) flt(0x1.cp-1) dtype(bool)\n"
     "  %4 = scalar f64 0x1.2p+0\n  %5 = mul f32[70,130] %2, %4\n  %6 = scalar f64 0x0p+0\n"
     "  %7 = where f32[70,130] %3, %5, %6\n  return %7, %3\n}\n",
     1, 1},
    {"draws of all kinds beside a transposed operand",
     "fn a {\n  %1 = input f32[130,70]\n  %2 = permute f32[70,130] %1 ints(1, 0)\n"
     "  %3 = rand f32[70,130] dyn(70, 130, 7, 3) flt(-0x1p+0, 0x1.8p+0) dtype(f32)\n"
     "  %4 = randn bf16[70,130] dyn(70, 130, 7, 999) flt(0x1p-1, 0x1p+1) dtype(bf16)\n"
     "  %5 = randint i32[70,130] dyn(70, 130, 7, 20000, -5, 900) dtype(i32)\n"
     "  %6 = randn f64[70,130] dyn(70, 130, 5, 60000) flt(0x0p+0, 0x1p+0) dtype(f64)\n"
     "  %7 = cast f32[70,130] %4 dtype(f32)\n  %8 = cast f32[70,130] %5 dtype(f32)\n"
     "  %9 = cast f32[70,130] %6 dtype(f32)\n  %10 = mul f32[70,130] %2, %3\n"
     "  %11 = add f32[70,130] %7, %8\n  %12 = mul f32[70,130] %9, %11\n"
     "  %13 = add f32[70,130] %10, %12\n  return %13\n}\n",
     1, 1},
    {"a draw alone keeps its kernel",
     "fn a {\n  %1 = rand f32[70,130] dyn(70, 130, 7, 3) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
     "  return %1\n}\n",
     1, 0},
    {"unless somebody reads it from memory",
     "fn a {\n  %1 = input f32[4,8]\n  %2 = full f32[4,8] dyn(4, 8) flt(0x1p+1) dtype(f32)\n"
     "  %3 = neg f32[4,8] %2\n  %4 = add f32[4,8] %1, %3\n"
     "  %5 = cumsum f32[4,8] %3 ints(1)\n  return %4, %5\n}\n",
     3, 2},
};

/* Groups with reductions and rows. */
__attribute__((unused)) static const fuse_case fuse_rows[] = {
    {"softmax(x * a + b) * c",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = scalar f64 0x1p-1\n  %3 = input f32[50,70]\n"
     "  %4 = mul f32[50,70] %1, %2\n  %5 = add f32[50,70] %4, %3\n"
     "  %6 = softmax f32[50,70] %5 ints(1)\n  %7 = mul f32[50,70] %6, %3\n  return %7\n}\n",
     1, 1},
    {"a norm written out",
     "fn a {\n  %1 = input f32[40,64]\n  %2 = mean f32[40,1] %1 ints(1) dtype(f32) flags(1)\n"
     "  %3 = sub f32[40,64] %1, %2\n  %4 = square f32[40,64] %3\n"
     "  %5 = mean f32[40] %4 ints(1) dtype(f32)\n  %6 = scalar f64 0x1p-10\n"
     "  %7 = add f32[40] %5, %6\n  %8 = rsqrt f32[40] %7\n"
     "  %9 = reshape f32[40,1] %8 dyn(40, 1)\n  %10 = expand f32[40,64] %9 dyn(40, 64)\n"
     "  %11 = mul f32[40,64] %3, %10\n  return %11, %5\n}\n",
     1, 1},
    {"residual, layer_norm, gelu",
     "fn a {\n  %1 = input bf16[3,20,64]\n  %2 = input bf16[3,20,64]\n  %3 = input bf16[64]\n"
     "  %4 = add bf16[3,20,64] %1, %2\n"
     "  %5 = layer_norm bf16[3,20,64] %4, %3, %3 ints(1) flt(0x1p-10)\n"
     "  %6 = result f32[3,20] %5 #1\n  %7 = result f32[3,20] %5 #2\n"
     "  %8 = gelu bf16[3,20,64] %5\n  return %8, %4, %7\n}\n",
     1, 1},
    {"the sum of a product over rows",
     "fn a {\n  %1 = input f32[90,20]\n  %2 = input f32[90,20]\n  %3 = mul f32[90,20] %1, %2\n"
     "  %4 = sum f32[20] %3 ints(0) dtype(f32)\n  return %4, %3\n}\n",
     1, 1},
    {"one row alone keeps its eager kernel",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = softmax f32[50,70] %1 ints(1)\n  return %2\n}\n", 1,
     0},
    {"cross entropy of logits made in the group, smoothed, rows left out",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = input i64[50]\n  %3 = scalar f64 0x1p-1\n"
     "  %4 = mul f32[50,70] %1, %3\n"
     "  %5 = cross_entropy f32[50] %4, %2 dyn(1) flt(0x1p-3)\n"
     "  %6 = result f32[50] %5 #1\n  %7 = mul f32[50] %5, %6\n  return %7, %6\n}\n",
     1, 1},
    {"the mean of cross entropies; the target's logit is made once more from what is picked",
     "fn a {\n  %1 = input f16[50,70]\n  %2 = input i64[50]\n  %3 = input f32[70]\n"
     "  %4 = input f32[50,1]\n  %5 = gelu f16[50,70] %1\n"
     "  %6 = cast f32[50,70] %5 dtype(f32)\n  %7 = add f32[50,70] %6, %3\n"
     "  %8 = mul f32[50,70] %7, %4\n"
     "  %9 = vjp f32[50,70] %8, %7, _ of(square,0) dyn(50, 70) dtype(f32)\n"
     "  %10 = cross_entropy f32[50] %9, %2 dyn(1) flt(0x0p+0)\n"
     "  %11 = result f32[50] %10 #1\n  %12 = scalar i64 1\n  %13 = not_equal bool[50] %2, %12\n"
     "  %14 = count_nonzero i64[] %13 ints(0)\n  %15 = sum f32[] %10 ints(0) dtype(f32)\n"
     "  %16 = cast f32[] %14 dtype(f32)\n  %17 = div f32[] %15, %16\n  return %17, %10\n}\n",
     2, 2},
    {"cross entropy of logits in memory",
     "fn a {\n  %1 = input bf16[50,70]\n  %2 = input i64[50]\n"
     "  %3 = cross_entropy bf16[50] %1, %2 dyn(-100) flt(0x0p+0)\n"
     "  %4 = result f32[50] %3 #1\n  %5 = exp bf16[50] %3\n  return %5\n}\n",
     1, 1},
    {"its backward between neighbours",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[50]\n  %3 = input f32[50]\n"
     "  %4 = input i64[50]\n  %5 = scalar f64 0x1p-1\n  %6 = mul f32[50,70] %1, %5\n"
     "  %7 = neg f32[50] %2\n"
     "  %8 = cross_entropy_bwd f32[50,70] %7, %6, %4, %3 dyn(2) flt(0x1p-3)\n"
     "  %9 = mul f32[50,70] %8, %5\n  return %9, %7\n}\n",
     2, 2},
    {"cross entropy and its backward",
     "fn a {\n  %1 = input f16[50,70]\n  %2 = input i64[50]\n  %3 = input f16[50]\n"
     "  %4 = cross_entropy f16[50] %1, %2 dyn(-100) flt(0x0p+0)\n"
     "  %5 = result f32[50] %4 #1\n"
     "  %6 = cross_entropy_bwd f16[50,70] %3, %1, %2, %5 dyn(-100) flt(0x0p+0)\n"
     "  return %4, %6\n}\n",
     1, 1},
    {"softmax of dropout, dropout of softmax",
     "fn a {\n  %1 = input f32[3,20,70]\n"
     "  %2 = bernoulli bool[3,20,70] dyn(3, 20, 70, 7, 1000) flt(0x1.cp-1) dtype(bool)\n"
     "  %3 = scalar f64 0x0p+0\n  %4 = where f32[3,20,70] %2, %1, %3\n"
     "  %5 = softmax f32[3,20,70] %4 ints(2)\n"
     "  %6 = randn f32[3,20,70] dyn(3, 20, 70, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
     "  %7 = add f32[3,20,70] %5, %6\n  return %7\n}\n",
     1, 1},
    {"a sum of noise over long rows",
     "fn a {\n  %1 = input f32[3,9000]\n"
     "  %2 = randn f32[3,9000] dyn(3, 9000, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
     "  %3 = mul f32[3,9000] %1, %2\n  %4 = sum f32[3] %3 ints(1) dtype(f32)\n"
     "  return %4, %3\n}\n",
     1, 1},
    {"noise is numbered along rows: sums across them read it from memory",
     "fn a {\n  %1 = input f32[90,80]\n"
     "  %2 = randn f32[90,80] dyn(90, 80, 7, 9000) flt(0x0p+0, 0x1p+0) dtype(f32)\n"
     "  %3 = mul f32[90,80] %1, %2\n  %4 = sum f32[80] %3 ints(0) dtype(f32)\n"
     "  return %4\n}\n",
     2, 1},
    {"mean squared error and its backward",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = input f32[50,70]\n  %3 = sub f32[50,70] %1, %2\n"
     "  %4 = square f32[50,70] %3\n  %5 = mean f32[] %4 ints(0, 1) dtype(f32)\n"
     "  %6 = full f32[] flt(0x1p+0) dtype(f32)\n  %7 = scalar f64 0x1.b58p+11\n"
     "  %8 = div f32[] %6, %7\n  %9 = expand f32[50,70] %8 dyn(50, 70)\n"
     "  %10 = vjp f32[50,70] %9, %3, _ of(square,0) dyn(50, 70) dtype(f32)\n"
     "  return %5, %10\n}\n",
     1, 1},
    {"two ways to reduce",
     "fn a {\n  %1 = input f32[50,70]\n  %2 = exp f32[50,70] %1\n"
     "  %3 = sum f32[50] %2 ints(1) dtype(f32)\n  %4 = sum f32[70] %2 ints(0) dtype(f32)\n"
     "  return %3, %4\n}\n",
     2, 1},
};

#endif
