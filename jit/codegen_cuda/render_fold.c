/*
 * jit/codegen_cuda/render_fold.c -- combining the elements of a reduction; see render_rows.h.
 */
#include "jit/codegen_cuda/render_rows.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

static void integer_extreme(wf_text *t, wf_kty type, bool most)
{
    const unsigned bits = wf_kty_bits(type);
    if (wf_kty_is_signed(type))
        P("(%s)0x%llX%s", wf_cu_type(type), (1ull << (bits - 1)) - most, bits == 64 ? "ull" : "u");
    else
        P("(%s)%s", wf_cu_type(type), most ? "~0ull" : "0");
}

void wf_cu_identity(wf_text *t, wf_kty type, int op)
{
    const bool flt = wf_kty_is_float(type);
    if (op == WF_KP_ADD)
        P(flt ? "-0.0f" : "0");
    else if (op == WF_KP_MUL)
        P("1");
    else if (op == WF_KP_BOR || op == WF_KP_BAND)
        P("%d", op == WF_KP_BAND);
    else if (flt && type == WF_KT_F32)
        P("wf_f32(0x%sF800000u)", op == WF_KP_MAX ? "F" : "7");
    else if (flt)
        P("wf_f64(0x%sFF0000000000000ull)", op == WF_KP_MAX ? "F" : "7");
    else
        integer_extreme(t, type, op == WF_KP_MIN);
}

void wf_cu_nothing(wf_text *t, int op)
{
    P("%d", op == WF_KP_MUL || op == WF_KP_BAND);
}

void wf_cu_fold(wf_text *t, wf_kty type, int op, const char *to, const char *a, const char *b)
{
    const bool flt = wf_kty_is_float(type);
    const char *name = wf_cu_type(type);
    const char *wrap = wf_kty_bits(type) == 64 ? "unsigned long long" : "unsigned int";
    P("%s = ", to);
    if (op == WF_KP_ADD || op == WF_KP_MUL) {
        const char *sign = op == WF_KP_ADD ? "+" : "*";
        if (flt)
            P("%s %s %s", a, sign, b);
        else
            P("(%s)((%s)%s %s (%s)%s)", name, wrap, a, sign, wrap, b);
    } else if (op == WF_KP_BOR || op == WF_KP_BAND) {
        P("(%s)(%s %s %s)", name, a, op == WF_KP_BOR ? "|" : "&", b);
    } else if (flt) {
        P("wf_%s_%s(%s, %s)", op == WF_KP_MAX ? "max" : "min", wf_kty_name(type), a, b);
    } else {
        P("%s %s %s ? %s : %s", a, op == WF_KP_MAX ? ">" : "<", b, a, b);
    }
    P(";\n");
}

static const char *shuffle_type(wf_kty type)
{
    return wf_kty_bits(type) < 32 ? "int" : wf_cu_type(type);
}

void wf_cu_warp_fold(wf_text *t, wf_kty type, int op, const char *v, const char *width)
{
    const char *name = wf_cu_type(type), *shuffled = shuffle_type(type);
    P("#pragma unroll\n        for (int h = (%s) / 2; h >= 1; h /= 2) {\n"
      "        const %s other = (%s)__shfl_down_sync(0xFFFFFFFFu, (%s)%s, h, %s);\n        ",
      width, name, name, shuffled, v, width);
    wf_cu_fold(t, type, op, v, v, "other");
    P("        }\n");
}

void wf_cu_warp_share(wf_text *t, wf_kty type, const char *v, const char *width)
{
    P("        %s = (%s)__shfl_sync(0xFFFFFFFFu, (%s)%s, 0, %s);\n", v, wf_cu_type(type),
      shuffle_type(type), v, width);
}
