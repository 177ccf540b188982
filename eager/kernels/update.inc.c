/*
 * eager/kernels/update.inc.c -- optimisers' updates of f32 elements, compiled once per instruction set (WF_ISA); see
 * eager/kernels/update.h.
 *
 * Invariant: each element gets the bits of the rows of update.def one after another.
 */
#include "eager/kernels/update.h"

#define WF_T float
#define WF_S f32
#define WF_LANE uint32_t
#include "eager/kernels/map_rows.h"

/* -- rows as functions ---------------------------------------------------------------------------------------- */
#define TC(fn, ...) WF_CAT(WF_CAT(fn, _), WF_S)(__VA_ARGS__)
#define FUNCTION(NAME, types, expr, ...)                                                           \
    WF_IF(WF_IN_FLT_##types)(KFUN(WF_T, row_##NAME, __VA_ARGS__) { return expr; })
#define UNARY(NAME, name, types, rare, ulp, expr, vjp) FUNCTION(NAME, types, expr, WF_T x)
#define BINARY(NAME, name, types, rare, ulp, expr, vjp_a, vjp_b)                                   \
    FUNCTION(NAME, types, expr, WF_T a, WF_T b)
#define TERNARY(NAME, name, types, ulp, expr, vjp_a, vjp_b, vjp_c)                                 \
    FUNCTION(NAME, types, expr, WF_T a, WF_T b, WF_T c)
#include "jit/ir/ops.def"
#undef TC

/* -- loops ------------------------------------------------------------------------------------------------------ */
#define ROW1(NAME, d, x) d = row_##NAME(x);
#define ROW2(NAME, d, a, b) d = row_##NAME(a, b);
#define ROW3(NAME, d, a, b, c) d = row_##NAME(a, b, c);
#define NUMBER(NAME) NAME

KFUN(void, run, float *const *at, const float *k, int64_t n, unsigned with)
{
    const float DECAY = k[WF_UPDATE_DECAY], MOMENTUM = k[WF_UPDATE_MOMENTUM];
    const float BETA2 = k[WF_UPDATE_BETA2], REST2 = k[WF_UPDATE_REST2], ROOT = k[WF_UPDATE_ROOT];
    const float EPS = k[WF_UPDATE_EPS], STEP = k[WF_UPDATE_STEP];
    const int states = wf_update_states(with);
    float *p = at[0], *s0 = states > 0 ? at[2] : p, *s1 = states > 1 ? at[3] : p;
    float *s2 = states > 2 ? at[4] : p;
    const float *g = at[1];
    WF_IVDEP for (int64_t i = 0; i < n / WF_UPDATE_STEPS * WF_UPDATE_STEPS; i++)
    {
        const float G = g[i];
        float P = p[i], S0 = s0[i], S1 = s1[i], S2 = s2[i], T0 = 0, T1 = 0;
#include "eager/kernels/update.def"
        p[i] = P;
        if (states > 0) {
            s0[i] = S0;
        }
        if (states > 1) {
            s1[i] = S1;
        }
        if (states > 2) {
            s2[i] = S2;
        }
    }
}

#define LOOP(name, with)                                                                           \
    static void name(float *const *at, const float *k, int64_t n)                                  \
    {                                                                                              \
        run(at, k, n, with);                                                                       \
    }
WF_UPDATE_LOOPS(LOOP)
#undef LOOP
#define LOOP(name, with) name, /* in the order of the list, as the list of their `with` */
const wf_update_fn WF_SYM(wf_updates)[WF_UPDATES] = {WF_UPDATE_LOOPS(LOOP)};
