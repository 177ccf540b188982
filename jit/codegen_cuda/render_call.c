/*
 * jit/codegen_cuda/render_call.c -- what the device has shorter ways for than the primitives of a body.
 *
 * Half types. Kernel IR has none: rounding to bf16 is ten primitives on bits, to f16 nineteen (jit/ir/kir_memory.c). The device
 * has an instruction for each, and for two of bf16 or f16 when they are stored side by side. Where a body has the primitives of a
 * conversion of some x, whatever else it reads of them, the text calls a function of x: inline PTX for the device,
 * the primitives for the host. cvt.rn rounds to nearest even, overflow to infinity; without .ftz, which these forms do not
 * get, subnormals are kept on both sides (PTX ISA, cvt: "subnormal numbers are supported"). Both are what the primitives
 * do. A NaN becomes another NaN than theirs; any NaN equals any NaN.
 *
 * What is rounded between two ops of a fused body is wanted as f32 again. A conversion of one element is a slow instruction
 * there (sm_90: 16 a clock and processor), one of two side by side is not (64), so the other of the two is 0; with it below, the
 * two of bf16 are the f32 itself.
 *
 * The quotient of gelu, -a/2 / (a + 3.125), a in [0, 14.5] or NaN. An IEEE division tests its operands for what needs a slow
 * path. None does here:
 *
 *     y = rcp(d),  y' = y + y (1 - d y),  q0 = n y',  q = q0 + y' (n - d q0)
 *
 * is the rounded quotient for every a from 2^-120 to 14.5, whichever of the five floats nearest to 1 / d rcp.approx gives (its
 * error is at most one of them), and below, where n - d q0 is subnormal, gelu's next step a q + a/2 has the same bits
 * for it as for the rounded quotient. Both were seen for every a there is and all five, 1.1 10^9 times 5. A quotient that anything
 * but that step reads is divided.
 */
#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

typedef enum way { STORE, LOAD, ROUND } way;

typedef struct form {
    const char *name, *ptx;
    int since; /* architecture */
    int dtype;
    way way;
} form;

static const form forms[] = {
    {"wf_bf16_of_f32", "cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)", 800, WEFT_BF16, STORE},
    {"wf_f16_of_f32", "cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)", 530, WEFT_F16, STORE},
    {"wf_f32_of_f16", "cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)", 530, WEFT_F16, LOAD},
    {"wf_bf16_rounded",
     "{.reg .b32 p; cvt.rn.bf16x2.f32 p, %1, %2; mov.b32 %0, p;}\" : \"=f\"(r) : \"f\"(x), "
     "\"f\"(0.0f)",
     800, WEFT_BF16, ROUND},
    {"wf_f16_rounded",
     "{.reg .b16 l, h; .reg .b32 p; cvt.rn.f16x2.f32 p, %2, %1; mov.b32 {l, h}, p; "
     "cvt.f32.f16 %0, l;}\" : \"=f\"(r) : \"f\"(x), \"f\"(0.0f)",
     800, WEFT_F16, ROUND},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* The primitives of a form, of one parameter. */
static bool make(const form *f, wf_kir *k)
{
    wf_kir_init(k);
    wf_kref r = wf_kir_param(k, f->way == LOAD ? wf_kir_storage(f->dtype) : WF_KT_F32);
    if (f->way != LOAD)
        r = wf_kir_store(k, f->dtype, r);
    if (f->way != STORE)
        r = wf_kir_load(k, f->dtype, WF_KT_F32, r);
    wf_kir_output(k, r);
    return wf_kir_finish(k, NULL) == 0;
}

static bool is_commutative(wf_kprim prim)
{
    return prim == WF_KP_ADD || prim == WF_KP_IAND || prim == WF_KP_IOR || prim == WF_KP_IXOR ||
           prim == WF_KP_EQ || prim == WF_KP_NE || prim == WF_KP_BAND || prim == WF_KP_BOR ||
           prim == WF_KP_MUL || prim == WF_KP_FMA;
}

/* Is r of k what q of f is, with *x for the parameter? *x is found on the way. */
static bool matches(const wf_kir *k, wf_kref r, const wf_kir *f, wf_kref q, wf_kref *x)
{
    const wf_kinstr *i = &k->ins[r], *j = &f->ins[q];
    if (j->prim == WF_KP_PARAM) {
        if (*x == WF_KREF_NONE && i->type == j->type)
            *x = r;
        return *x == r;
    }
    if (i->prim != j->prim || i->type != j->type || i->imm != j->imm || i->nsrc != j->nsrc)
        return false;
    const wf_kref before = *x;
    for (int turn = 0; turn < 1 + is_commutative((wf_kprim)i->prim); turn++) {
        bool same = true;
        *x = before;
        for (int s = 0; s < i->nsrc && same; s++)
            same = matches(k, i->src[s < 2 ? s ^ turn : s], f, j->src[s], x);
        if (same)
            return true;
    }
    *x = before;
    return false;
}

static void mark(const wf_kir *k, const wf_cu_call *call, bool *live)
{
    for (uint32_t o = 0; o < k->nout; o++)
        live[k->out[o]] = true;
    if (k->rare != WF_KREF_NONE)
        live[k->rare] = true;
    for (uint32_t n = k->n; n-- > 0;) {
        if (!live[n])
            continue;
        if (call[n].name) {
            live[call[n].of] = true;
            if (call[n].by != WF_KREF_NONE)
                live[call[n].by] = true;
            continue;
        }
        for (int s = 0; s < k->ins[n].nsrc; s++)
            live[k->ins[n].src[s]] = true;
    }
}

static bool find_halves(const wf_kir *k, wf_cu_call *call)
{
    bool any = false;
    for (int f = 0; f < FORMS; f++) {
        wf_kir of;
        const bool made = make(&forms[f], &of);
        for (uint32_t n = 0; n < k->n && made; n++) {
            wf_kref x = WF_KREF_NONE;
            if (matches(k, n, &of, of.out[0], &x)) {
                call[n] = (wf_cu_call){forms[f].name, x, WF_KREF_NONE};
                any = true;
            }
        }
        wf_kir_free(&of);
    }
    return any;
}

/* The operand of instruction n that is a quotient; WF_KREF_NONE: there is none. */
static wf_kref quotient_of(const wf_kir *k, wf_kref n)
{
    for (int s = 0; s < k->ins[n].nsrc; s++)
        if (k->ins[k->ins[n].src[s]].prim == WF_KP_DIV)
            return k->ins[n].src[s];
    return WF_KREF_NONE;
}

/* Readers of r, results included. */
static int readers(const wf_kir *k, wf_kref r)
{
    int count = r == k->rare;
    for (uint32_t n = 0; n < k->n; n++)
        for (int s = 0; s < k->ins[n].nsrc; s++)
            count += k->ins[n].src[s] == r;
    for (uint32_t o = 0; o < k->nout; o++)
        count += k->out[o] == r;
    return count;
}

static bool find_gelu(const wf_kir *k, wf_cu_call *call)
{
    bool any = false, divides = false;
    wf_kir gelu;
    for (uint32_t n = 0; n < k->n; n++)
        divides |= k->ins[n].prim == WF_KP_DIV && k->ins[n].type == WF_KT_F32;
    if (!divides)
        return false;
    wf_kir_init(&gelu);
    const wf_kref of = wf_kir_param(&gelu, WF_KT_F32);
    wf_kir_output(&gelu, wf_kir_row(&gelu, WF_OP_GELU, WEFT_F32, 1, &of));
    const bool made = wf_kir_finish(&gelu, NULL) == 0;
    wf_kref step = WF_KREF_NONE;
    for (uint32_t n = 0; n < gelu.n && made; n++)
        if (gelu.ins[n].prim == WF_KP_FMA && quotient_of(&gelu, n) != WF_KREF_NONE)
            step = n;
    for (uint32_t n = 0; n < k->n && step != WF_KREF_NONE; n++) {
        wf_kref x = WF_KREF_NONE;
        if (k->ins[n].prim != WF_KP_FMA || !matches(k, n, &gelu, step, &x))
            continue;
        const wf_kref q = quotient_of(k, n);
        if (k->ins[q].relaxed || readers(k, q) != 1)
            continue;
        call[q] = (wf_cu_call){"wf_gelu_quotient", k->ins[q].src[0], k->ins[q].src[1]};
        any = true;
    }
    wf_kir_free(&gelu);
    return any;
}

bool wf_cu_find_calls(const wf_kir *k, wf_cu_call *call, bool *live)
{
    const bool halves = find_halves(k, call), gelu = find_gelu(k, call);
    if (halves || gelu)
        mark(k, call, live);
    return halves || gelu;
}

void wf_cu_call_helpers(wf_text *t)
{
    static const char *const param[1] = {"x"};
    P("#ifndef WF_CALLS\n#define WF_CALLS\n"
      "WF_DEVICE float wf_gelu_quotient(float n, float d)\n{\n#ifdef __CUDA_ARCH__\n"
      "        float y;\n        asm(\"rcp.approx.ftz.f32 %%0, %%1;\" : \"=f\"(y) : \"f\"(d));\n"
      "        y = fmaf(y, fmaf(-d, y, 1.0f), y);\n        const float q = n * y;\n"
      "        return fmaf(fmaf(-d, q, n), y, q);\n#else\n        return n / d;\n#endif\n}\n");
    for (int f = 0; f < FORMS; f++) {
        wf_kir k;
        if (!make(&forms[f], &k)) {
            t->failed = true;
            wf_kir_free(&k);
            return;
        }
        const char *to = wf_cu_type(wf_kir_type(&k, k.out[0]));
        P("WF_DEVICE %s %s(%s x)\n{\n"
          "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= %d\n"
          "        %s r;\n        asm(\"%s);\n        return r;\n#else\n",
          to, forms[f].name, wf_cu_type((wf_kty)k.param_type[0]), forms[f].since, to, forms[f].ptx);
        wf_cu_plain_body(t, &k, "v", param);
        P("        return ");
        wf_cu_ref(t, &k, k.out[0], "v", param);
        P(";\n#endif\n}\n");
        wf_kir_free(&k);
    }
    P("#endif\n");
}
