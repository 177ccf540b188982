/*
 * eager/kernels/sdpa.inc.c -- the inner loops of attention, compiled per instruction set (WF_ISA).
 *
 * exp and log are the math bodies of the rows, so attention rounds like the op exp does.
 */
#include <math.h>

#include "eager/kernels/sdpa.h"
#include "jit/ir/dict_c.h"
#include "jit/ir/math_f64.h"
#include "jit/ir/math_f32.h"

#define WF_PASTE2(a, b) a##_##b
#define WF_PASTE(a, b) WF_PASTE2(a, b)

#define T float
#define FN(name) name##_f32
#define EXP(x) exp_f32(x)
#define LOG(x) log_f32(x)
#include "eager/kernels/sdpa_t.h"
#undef T
#undef FN
#undef EXP
#undef LOG

#define T double
#define FN(name) name##_f64
#define EXP(x) exp_f64(x)
#define LOG(x) log_f64(x)
#include "eager/kernels/sdpa_t.h"
#undef T
#undef FN
#undef EXP
#undef LOG
