/*
 * tests/jit/llvm_support.h -- building LLVM kernels in tests, and the widths and targets they are built for.
 */
#ifndef TESTS_JIT_LLVM_SUPPORT_H
#define TESTS_JIT_LLVM_SUPPORT_H

#include "tests/gpu/runner.h"

#include "eager/view.h"
#include "jit/ir/backend.h"
#include "tests/jit/values.h"

#define NEED_LLVM()                                                                                \
    do {                                                                                           \
        wf_why why_ = {0};                                                                         \
        if (wf_backend_cpu.available(&why_) != 0)                                                  \
            cr_skip_test("%s", why_.rule);                                                         \
    } while (0)

static inline wf_exe *llvm_build(const wf_kernel *k, const wf_target *target)
{
    const wf_backend *b = &wf_backend_cpu;
    wf_text text = {0};
    wf_blob code = {0};
    wf_exe *e = NULL;
    wf_why why = {0};
    cr_assert_eq(b->render(k, target, &text, &why), 0, "%s: %s", k->name, why.rule);
    cr_assert_eq(b->compile(target, &text, &code, &why), 0, "%s width %d: %s\n%.3000s", k->name,
                 target->width, why.rule, text.s);
    cr_assert_eq(b->load(&code, k->name, &e, &why), 0, "%s: %s", k->name, why.rule);
    wf_text_free(&text);
    wf_blob_free(&code);
    return e;
}

static inline wf_view llvm_vector(void *p, int dtype, int64_t n)
{
    return (wf_view){.data = p, .dtype = (uint8_t)dtype, .rank = 1, .dims = {n}, .strides = {1}};
}

static inline void llvm_compare(const void *got, const void *want, int dtype, int64_t n,
                                const char *what, const wf_target *target)
{
    if (memcmp(got, want, (size_t)n * wf_dtype_size(dtype)) == 0)
        return;
    const wf_kty type = wf_kir_storage(dtype);
    for (int64_t i = 0; i < n; i++)
        if (!values_same(wf_kir_peek(got, type, i), wf_kir_peek(want, type, i), dtype))
            cr_assert_fail("%s, %s width %d, n %lld, element %lld: %llx, eager %llx", what,
                           target->arch, target->width, (long long)n, (long long)i,
                           (unsigned long long)wf_kir_peek(got, type, i),
                           (unsigned long long)wf_kir_peek(want, type, i));
}

static const wf_target llvm_widths[] = {
    {.arch = "host", .width = 1},      {.arch = "host", .width = 4},
    {.arch = "host", .width = 8},      {.arch = "host", .width = 16},
    {.arch = "host", .width = 32},     {.arch = "host", .width = 64},
    {.arch = "x86-64-v3", .width = 8}, {.arch = "x86-64-v3", .width = 64},
    {.arch = "x86-64", .width = 4},    {.arch = "x86-64", .width = 64},
};
enum { LLVM_NWIDTHS = sizeof llvm_widths / sizeof *llvm_widths };

#endif
