/*
 * jit/codegen_cuda/render_half.c -- conversions of half types by the device's instructions.
 *
 * Kernel IR has no half types: rounding to bf16 is ten primitives on bits, to f16 nineteen (jit/ir/kir_memory.c). The device has
 * an instruction for each, and for two of bf16 or f16 when they are stored side by side. Where a body has the primitives of a
 * conversion of some x, whatever else it reads of them, the text calls a function of x: inline PTX for the device,
 * the primitives for the host.
 *
 * Bits: cvt.rn rounds to nearest even, overflow to infinity; without .ftz, which these forms do not get, subnormals
 * are kept on both sides (PTX ISA, cvt: "subnormal numbers are supported"). Both are what the primitives do.
 * A NaN becomes another NaN than theirs; any NaN equals any NaN.
 */
#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

typedef struct form {
    const char *name, *ptx;
    int since; /* architecture */
    int dtype;
    bool load;
} form;

static const form forms[] = {
    {"wf_bf16_of_f32", "cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)", 800, WEFT_BF16, false},
    {"wf_f16_of_f32", "cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(x)", 530, WEFT_F16, false},
    {"wf_f32_of_f16", "cvt.f32.f16 %0, %1;\" : \"=f\"(r) : \"h\"(x)", 530, WEFT_F16, true},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* The primitives of a form, of one parameter. */
static bool make(const form *f, wf_kir *k)
{
    wf_kir_init(k);
    if (f->load)
        wf_kir_output(
            k, wf_kir_load(k, f->dtype, WF_KT_F32, wf_kir_param(k, wf_kir_storage(f->dtype))));
    else
        wf_kir_output(k, wf_kir_store(k, f->dtype, wf_kir_param(k, WF_KT_F32)));
    return wf_kir_finish(k, NULL) == 0;
}

static bool is_commutative(wf_kprim prim)
{
    return prim == WF_KP_ADD || prim == WF_KP_IAND || prim == WF_KP_IOR || prim == WF_KP_IXOR ||
           prim == WF_KP_EQ || prim == WF_KP_NE || prim == WF_KP_BAND || prim == WF_KP_BOR;
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

static void mark(const wf_kir *k, const wf_cu_half *half, bool *live)
{
    for (uint32_t o = 0; o < k->nout; o++)
        live[k->out[o]] = true;
    if (k->rare != WF_KREF_NONE)
        live[k->rare] = true;
    for (uint32_t n = k->n; n-- > 0;) {
        if (!live[n])
            continue;
        if (half[n].name)
            live[half[n].of] = true;
        else
            for (int s = 0; s < k->ins[n].nsrc; s++)
                live[k->ins[n].src[s]] = true;
    }
}

bool wf_cu_find_halves(const wf_kir *k, wf_cu_half *half, bool *live)
{
    bool any = false;
    for (int f = 0; f < FORMS; f++) {
        wf_kir of;
        const bool made = make(&forms[f], &of);
        for (uint32_t n = 0; n < k->n && made; n++) {
            wf_kref x = WF_KREF_NONE;
            if (matches(k, n, &of, of.out[0], &x)) {
                half[n] = (wf_cu_half){forms[f].name, x};
                any = true;
            }
        }
        wf_kir_free(&of);
    }
    if (any)
        mark(k, half, live);
    return any;
}

void wf_cu_half_helpers(wf_text *t)
{
    static const char *const param[1] = {"x"};
    P("#ifndef WF_HALVES\n#define WF_HALVES\n");
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
