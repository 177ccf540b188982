/*
 * tests/jit/test_llvm_extremes.c -- minimum and maximum in LLVM kernels, on all pairs of special values: of two
 * elements, of an element and a scalar of the launch, of an element and a constant.
 *
 * The reference is written from IEEE 754-2019: NaN propagates, -0 < +0.
 *
 * ctest: timeout=300
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/jit/llvm_support.h"

enum { SPECIAL = 14, ELEMENTS = 200 };
static const double special[SPECIAL] = {0.0,       -0.0,     1.0,       -1.0,    3.5,
                                        -3.5,      INFINITY, -INFINITY, NAN,     0x1p-149,
                                        -0x1p-149, 0x1p60,   -0x1p60,   0x1p-126};

/* NaN of either sign; the other values as they are. */
static uint64_t bits_of(bool wide, int i, bool negative_nan)
{
    const double x = isnan(special[i]) && negative_nan ? -special[i] : special[i];
    const float f = (float)x;
    uint64_t u = 0;
    memcpy(&u, wide ? (const void *)&x : (const void *)&f, wide ? sizeof x : sizeof f);
    return u;
}

static double extreme(bool max, double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return (signbit(a) != 0) == max ? b : a;
    return (a < b) == max ? b : a;
}

/* Of a and: another source, a scalar, a constant; max and min, either operand first. */
static void body(wf_kernel *k, wf_kty type, uint64_t constant)
{
    wf_why why = {0};
    wf_kernel_init(k, WF_SK_MAP, 2);
    k->nscalar = 1;
    strcpy(k->name, "extremes");
    const wf_kref a = wf_kir_param(&k->body, type), b = wf_kir_param(&k->body, type),
                  s = wf_kir_param(&k->body, type), c = wf_kir_const(&k->body, type, constant);
    const wf_kref other[3] = {b, s, c};
    for (int o = 0; o < 3; o++)
        for (int max = 0; max < 2; max++) {
            const wf_kprim prim = max ? WF_KP_MAX : WF_KP_MIN;
            wf_kir_output(&k->body, wf_kir_op(&k->body, prim, a, other[o], WF_KREF_NONE));
            wf_kir_output(&k->body, wf_kir_op(&k->body, prim, other[o], a, WF_KREF_NONE));
        }
    cr_assert_eq(wf_kir_finish(&k->body, &why), 0, "%s", why.rule);
}

static double value_of(wf_kty type, uint64_t bits)
{
    float f;
    double d;
    memcpy(&f, &bits, sizeof f);
    memcpy(&d, &bits, sizeof d);
    return type == WF_KT_F64 ? d : (double)f;
}

static void run(const wf_exe *e, const wf_kernel *k, wf_kty type, uint64_t constant,
                uint64_t scalar, const wf_target *target)
{
    enum { OUT = 12 };
    static double memory[OUT + 2][ELEMENTS];
    void *ptr[OUT + 2];
    const int64_t n = ELEMENTS;
    for (int i = 0; i < OUT + 2; i++)
        ptr[i] = memory[i];
    for (int i = 0; i < ELEMENTS; i++) {
        wf_kir_poke(ptr[OUT], type, i, bits_of(type == WF_KT_F64, i % SPECIAL, i % 3 == 0));
        wf_kir_poke(ptr[OUT + 1], type, i,
                    bits_of(type == WF_KT_F64, i / SPECIAL % SPECIAL, i % 2 == 0));
    }
    wf_backend_cpu.launch(e, &(wf_launch){ptr, &n, &scalar, 0, n, 0});
    for (int i = 0; i < ELEMENTS; i++) {
        const double a = value_of(type, wf_kir_peek(ptr[OUT], type, i));
        const uint64_t others[3] = {wf_kir_peek(ptr[OUT + 1], type, i), scalar, constant};
        for (int o = 0; o < OUT; o++) {
            const double b = value_of(type, others[o / 4]);
            const double want = extreme(o / 2 % 2 != 0, a, b);
            const double got = value_of(type, wf_kir_peek(ptr[o], type, i));
            cr_assert(isnan(want) ? isnan(got) != 0
                                  : got == want && (signbit(got) != 0) == (signbit(want) != 0),
                      "%s, %s width %d, output %d: %a and %a gave %a", k->name, target->arch,
                      target->width, o, a, b, got);
        }
    }
}

Test(llvm_extremes, all_pairs_of_special_values)
{
    NEED_LLVM();
    static const wf_target targets[] = {{.arch = "host", .width = 0},
                                        {.arch = "host", .width = 1},
                                        {.arch = "host", .width = 16},
                                        {.arch = "x86-64-v3", .width = 32},
                                        {.arch = "x86-64", .width = 64}};
    int checked = 0;
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
        for (int c = 0; c < SPECIAL; c++) {
            const wf_kty type = ((int)t + c) % 3 == 0 ? WF_KT_F64 : WF_KT_F32;
            if (t > 0 && c % 2 == 0 && special[c] != 0)
                continue;
            wf_kernel k;
            const uint64_t constant = bits_of(type == WF_KT_F64, c, false);
            body(&k, type, constant);
            wf_exe *e = llvm_build(&k, &targets[t]);
            for (int s = 0; s < 2 * SPECIAL; s++, checked++)
                run(e, &k, type, constant, bits_of(type == WF_KT_F64, s / 2, s % 2 != 0),
                    &targets[t]);
            wf_backend_cpu.unload(e);
            wf_kernel_free(&k);
        }
    cr_assert_gt(checked, 500);
}
