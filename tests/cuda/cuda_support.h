/*
 * tests/cuda/cuda_support.h -- what the CUDA tests share: the fake driver opened, blocks, kernels.
 */
#ifndef TESTS_CUDA_CUDA_SUPPORT_H
#define TESTS_CUDA_CUDA_SUPPORT_H

#include <criterion/criterion.h>
#include <string.h>

#include "eager/cuda/stream.h"
#include "tests/cuda/driver/fake.h"
#include "weft/core.h"

static const fake_driver *gpu;
static wf_why why;

#define OK(call) cr_assert_eq((call), 0, "%s: %s", #call, why.rule)

static const unsigned one_block[3] = {1, 1, 1};
static const char fake_image[16] = "fake-cuda";
static wf_cuda_module *fake_module;

__attribute__((unused)) static void with_fake(int order, uint64_t seed)
{
    gpu = fake_cuda(order, seed);
    cr_assert(gpu);
    OK(wf_cuda_open(0, &why));
}

/* NULL on failure, with why filled. */
__attribute__((unused)) static wf_cuda_fn *fake_kernel(const char *name)
{
    wf_cuda_fn *f = NULL;
    if (!fake_module && wf_cuda_module_new(0, fake_image, sizeof fake_image, &fake_module, &why)) {
        return NULL;
    }
    return wf_cuda_function(fake_module, name, &f, &why) ? NULL : f;
}

__attribute__((unused)) static int run_fill(wf_cuda_block *b, int64_t n, int32_t value)
{
    wf_cuda_fn *f = fake_kernel("fill_i32");
    void *params[] = {&b->address, &n, &value};
    int code = f ? wf_cuda_use(b, true, &why) : why.code;
    return code ? code : wf_cuda_launch(f, one_block, one_block, 0, params, &why);
}

/* out = a + b. `wait` false forgets to say that a is read. */
__attribute__((unused)) static int run_add(wf_cuda_block *out, wf_cuda_block *a, wf_cuda_block *b,
                                           int64_t n, bool wait)
{
    wf_cuda_fn *f = fake_kernel("add_i32");
    void *params[] = {&out->address, &a->address, &b->address, &n};
    int code = f ? wf_cuda_use(b, false, &why) : why.code;
    code = code || !wait ? code : wf_cuda_use(a, false, &why);
    code = code ? code : wf_cuda_use(out, true, &why);
    return code ? code : wf_cuda_launch(f, one_block, one_block, 0, params, &why);
}

__attribute__((unused)) static void close_fake(void)
{
    wf_cuda_module_free(fake_module);
    fake_module = NULL;
    OK(wf_cuda_close(0, &why));
}

#endif
