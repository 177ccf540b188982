/*
 * jit/codegen_cpu/render_total.c -- LLVM text of reductions in kernels over rows: two values combined; whether some element is rare.
 */
#include "jit/codegen_cpu/render_total.h"

#include <stdio.h>

#include "jit/codegen_cpu/llvm_rows.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

void wf_ll_set_op(wf_ll_total *x, wf_kprim op)
{
    x->mirrored = op == WF_KP_MAX && wf_kty_is_float(x->type);
    x->op = x->mirrored ? WF_KP_MIN : op;
}

wf_ll wf_ll_combine(wf_text *t, const wf_ll_total *x, int lanes, const char *prefix, const char *a,
                    const char *b)
{
    wf_ll param[2];
    snprintf(param[0].s, sizeof param[0].s, "%s", a);
    snprintf(param[1].s, sizeof param[1].s, "%s", b);
    wf_ll_body(t, &x->combine, lanes, prefix, param);
    return wf_ll_ref(&x->combine, x->combine.out[0], lanes, prefix, param);
}

int wf_ll_fold_of(const wf_ll_total *x)
{
    const wf_kprim op = x->op;
    if (x->type == WF_KT_BOOL)
        return op == WF_KP_BOR ? WF_LLR_OR : op == WF_KP_BAND ? WF_LLR_AND : -1;
    const int first = x->type == WF_KT_F32   ? WF_LLR_ADD_F32
                      : x->type == WF_KT_F64 ? WF_LLR_ADD_F64
                      : x->type == WF_KT_I64 ? WF_LLR_ADD_I64
                                             : -1;
    const int which = op == WF_KP_ADD   ? 0
                      : op == WF_KP_MUL ? 1
                      : op == WF_KP_MIN ? 2
                      : op == WF_KP_MAX ? WF_LLR_MAX_I64 - WF_LLR_ADD_I64
                                        : -1;
    return first < 0 || which < 0 ? -1 : first + which;
}

void wf_ll_counting(wf_text *t, int lanes, const char *type, int from)
{
    if (lanes == 1) {
        P("%d", from);
        return;
    }
    P("<");
    for (int l = 0; l < lanes; l++)
        P("%s%s %d", l ? ", " : "", type, from + l);
    P(">");
}

/* -- tests for rare elements ---------------------------------------------------------------------------------- */
/* Lanes of one of the four registers that hold a vector: comparisons of more are packed before they are tested. */
static int narrow(int lanes)
{
    enum { LEAST = 4 };
    return lanes < LEAST ? lanes : lanes / 4 < LEAST ? LEAST : lanes / 4;
}

/* %<tag><name> := the least or largest in each lane of the narrow vectors that v is made of: one comparison instead of one
 * for each. */
static void narrowed(wf_text *t, int lanes, const char *tag, const char *name, const char *v,
                     bool least)
{
    char to[64];
    wf_ll at;
    snprintf(at.s, sizeof at.s, "%s", v);
    int w = lanes / 2;
    for (; w >= narrow(lanes); w /= 2) {
        const wf_ll W = wf_ll_type(WF_KT_U32, 2 * w), T = wf_ll_type(WF_KT_U32, w);
        snprintf(to, sizeof to, "%%%s%s%d", tag, name, w);
        for (int h = 0; h < 2; h++) {
            P("  %s.%d = shufflevector %s %s, %s poison, %s ", to, h, W.s, at.s, W.s, T.s);
            wf_ll_counting(t, w, "i32", h * w);
            P("\n");
        }
        P("  %s.t = icmp %s %s %s.0, %s.1\n  %s.m = select %s %s.t, %s %s.0, %s %s.1\n", to,
          least ? "ult" : "ugt", T.s, to, to, to, wf_ll_type(WF_KT_BOOL, w).s, to, T.s, to, T.s,
          to);
        snprintf(at.s, sizeof at.s, "%.60s.m", to);
    }
    const wf_ll T = wf_ll_type(WF_KT_U32, narrow(lanes));
    P("  %%%s%s = bitcast %s %s to %s\n", tag, name, T.s, at.s, T.s);
}

/* %<tag><name> := the first lanes of v. */
static void first_lanes(wf_text *t, int lanes, const char *tag, const char *name, const char *v)
{
    const int n = narrow(lanes);
    const wf_ll W = wf_ll_type(WF_KT_U32, lanes), T = wf_ll_type(WF_KT_U32, n);
    if (lanes == n) {
        P("  %%%s%s = bitcast %s %s to %s\n", tag, name, T.s, v, T.s);
        return;
    }
    P("  %%%s%s = shufflevector %s %s, %s poison, %s ", tag, name, W.s, v, W.s, T.s);
    wf_ll_counting(t, n, "i32", 0);
    P("\n");
}

void wf_ll_any_rare(wf_text *t, int lanes, const char *tag, const wf_ll *test)
{
    const int n = narrow(lanes);
    const bool both = test[WF_LL_MOST].s[0] != 0;
    const wf_ll I = wf_ll_type(WF_KT_U32, n), B = wf_ll_type(WF_KT_BOOL, n);
    narrowed(t, lanes, tag, "least", test[WF_LL_LEAST].s, true);
    first_lanes(t, lanes, tag, "limit", test[WF_LL_LIMIT].s); /* uniform: all lanes are the same */
    P("  %%%sbad = icmp ule %s %%%sleast, %%%slimit\n", tag, I.s, tag, tag);
    if (both) {
        narrowed(t, lanes, tag, "most", test[WF_LL_MOST].s, false);
        P("  %%%sover = icmp ugt %s %%%smost, %s\n  %%%sodd = or %s %%%sbad, %%%sover\n", tag, I.s,
          tag, wf_ll_const(WF_KT_U32, n, WF_LL_LARGE).s, tag, B.s, tag, tag);
    }
    if (n == 1)
        P("  %%%sany = freeze i1 %%%s%s\n", tag, tag, both ? "odd" : "bad");
    else
        P("  %%%sany = call i1 @llvm.vector.reduce.or.v%di1(%s %%%s%s)\n", tag, n, B.s, tag,
          both ? "odd" : "bad");
}
