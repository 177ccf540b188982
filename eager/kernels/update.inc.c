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

KFUN(void, sgd, float *const *at, const float *k, int64_t n, unsigned with)
{
    const bool decay = with & WF_WITH_DECAY, momentum = with & WF_WITH_MOMENTUM;
    const bool nesterov = with & WF_WITH_NESTEROV;
    const float DECAY = k[WF_UPDATE_DECAY], MOMENTUM = k[WF_UPDATE_MOMENTUM];
    const float STEP = k[WF_UPDATE_STEP];
    float *p = at[0], *s0 = momentum ? at[2] : p;
    const float *g = at[1];
    WF_IVDEP for (int64_t i = 0; i < n / WF_UPDATE_STEPS * WF_UPDATE_STEPS; i++)
    {
        const float G = g[i];
        float P = p[i], S0 = s0[i], T0 = 0, T1 = 0;
#define WF_UPDATE_SGD
#include "eager/kernels/update.def"
        p[i] = P;
        if (momentum) {
            s0[i] = S0;
        }
    }
}

KFUN(void, adamw, float *const *at, const float *k, int64_t n, bool decay)
{
    const float DECAY = k[WF_UPDATE_DECAY], MOMENTUM = k[WF_UPDATE_MOMENTUM];
    const float BETA2 = k[WF_UPDATE_BETA2], REST2 = k[WF_UPDATE_REST2], ROOT = k[WF_UPDATE_ROOT];
    const float EPS = k[WF_UPDATE_EPS], STEP = k[WF_UPDATE_STEP];
    float *p = at[0], *s0 = at[2], *s1 = at[3];
    const float *g = at[1];
    WF_IVDEP for (int64_t i = 0; i < n / WF_UPDATE_STEPS * WF_UPDATE_STEPS; i++)
    {
        const float G = g[i];
        float P = p[i], S0 = s0[i], S1 = s1[i], T0, T1;
#define WF_UPDATE_ADAMW
#include "eager/kernels/update.def"
        p[i] = P;
        s0[i] = S0;
        s1[i] = S1;
    }
}

#define SGD(name, with)                                                                            \
    static void name(float *const *at, const float *k, int64_t n)                                  \
    {                                                                                              \
        sgd(at, k, n, with);                                                                       \
    }
SGD(sgd_plain, 0)
SGD(sgd_decay, WF_WITH_DECAY)
SGD(sgd_momentum, WF_WITH_MOMENTUM)
SGD(sgd_momentum_decay, WF_WITH_MOMENTUM | WF_WITH_DECAY)
SGD(nesterov, WF_WITH_MOMENTUM | WF_WITH_NESTEROV)
SGD(nesterov_decay, WF_WITH_MOMENTUM | WF_WITH_NESTEROV | WF_WITH_DECAY)

static void adamw_plain(float *const *at, const float *k, int64_t n)
{
    adamw(at, k, n, false);
}
static void adamw_decay(float *const *at, const float *k, int64_t n)
{
    adamw(at, k, n, true);
}

const wf_update_fn WF_SYM(wf_updates)[WF_UPDATES] = {
    [0] = sgd_plain,
    [WF_WITH_DECAY] = sgd_decay,
    [WF_WITH_MOMENTUM] = sgd_momentum,
    [WF_WITH_MOMENTUM | WF_WITH_DECAY] = sgd_momentum_decay,
    [WF_WITH_MOMENTUM | WF_WITH_NESTEROV] = nesterov,
    [WF_WITH_MOMENTUM | WF_WITH_NESTEROV | WF_WITH_DECAY] = nesterov_decay,
    [WF_WITH_ADAMW] = adamw_plain,
    [WF_WITH_ADAMW | WF_WITH_DECAY] = adamw_decay,
};
