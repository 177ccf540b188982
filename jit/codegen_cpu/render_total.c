/*
 * jit/codegen_cpu/render_total.c -- LLVM text of reductions in kernels over rows: two values, and 64 lanes, combined.
 */
#include "jit/codegen_cpu/render_total.h"

#include <stdio.h>

enum { LANES = WF_LL_LANES };
#define P(...) wf_text_putf(t, __VA_ARGS__)

uint64_t wf_ll_identity_of(wf_kprim op, wf_kty type)
{
    const bool f32 = type == WF_KT_F32, f64 = type == WF_KT_F64;
    if (op == WF_KP_ADD)
        return f32 ? UINT64_C(0x80000000) : f64 ? UINT64_C(1) << 63 : 0;
    if (op == WF_KP_MUL)
        return f32 ? UINT64_C(0x3F800000) : f64 ? UINT64_C(0x3FF0000000000000) : 1;
    if (op == WF_KP_MAX)
        return f32 ? UINT64_C(0xFF800000) : f64 ? UINT64_C(0xFFF0000000000000) : UINT64_C(1) << 63;
    if (op == WF_KP_MIN)
        return f32 ? UINT64_C(0x7F800000) : f64 ? UINT64_C(0x7FF0000000000000) : INT64_MAX;
    return op == WF_KP_BAND ? 1 : 0;
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

wf_ll wf_ll_halve(wf_text *t, const wf_ll_total *x, int lanes, const char *prefix, wf_ll *v)
{
    char name[48];
    int serial = 0;
    for (int n = LANES / lanes / 2; n >= 1; n /= 2)
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof name, "%st%d_", prefix, serial++);
            v[i] = wf_ll_combine(t, x, lanes, name, v[i].s, v[i + n].s);
        }
    wf_ll at = v[0];
    for (int w = lanes / 2; w >= 1; w /= 2) {
        const wf_ll T = wf_ll_type(x->type, w * 2);
        wf_ll half[2];
        for (int h = 0; h < 2; h++) {
            if (w == 1) {
                P("  %%%sh%d_%d = extractelement %s %s, i64 %d\n", prefix, w, h, T.s, at.s, h);
            } else {
                P("  %%%sh%d_%d = shufflevector %s %s, %s poison, <%d x i32> <", prefix, w, h, T.s,
                  at.s, T.s, w);
                for (int i = 0; i < w; i++)
                    P("%si32 %d", i ? ", " : "", h * w + i);
                P(">\n");
            }
            snprintf(half[h].s, sizeof half[h].s, "%%%sh%d_%d", prefix, w, h);
        }
        snprintf(name, sizeof name, "%st%d_", prefix, serial++);
        at = wf_ll_combine(t, x, w, name, half[0].s, half[1].s);
    }
    return at;
}

wf_ll wf_ll_fold_name(const wf_ll_total *x)
{
    const wf_kprim op = x->op;
    const char *what = op == WF_KP_ADD   ? "add"
                       : op == WF_KP_MUL ? "mul"
                       : op == WF_KP_MIN ? "min"
                                         : "max";
    wf_ll r = {""};
    if (wf_kty_is_float(x->type) && op != WF_KP_BOR && op != WF_KP_BAND)
        snprintf(r.s, sizeof r.s, "wf_fold_%s_f%u", what, wf_kty_bits(x->type));
    return r;
}

wf_ll wf_ll_call_fold(wf_text *t, const wf_ll_total *x, const char *name, const char *lanes)
{
    wf_ll r;
    P("  %%%s = call %s @%s(ptr %s)\n", name, wf_ll_type(x->type, 1).s, wf_ll_fold_name(x).s,
      lanes);
    snprintf(r.s, sizeof r.s, "%%%s", name);
    return r;
}
