/*
 * tests/jit/cuda_support.h -- device memory for views of host memory.
 *
 * The environment names the fake driver and the fake NVRTC before anything reads it; programs that include this header never
 * see a real GPU, but under script/gpu (WEFT_GPU_RUNNER), where it is what they are for. The vendor's libraries, which sum in
 * orders of their own, are out of it either way.
 */
#ifndef TESTS_JIT_CUDA_SUPPORT_H
#define TESTS_JIT_CUDA_SUPPORT_H

#include "tests/gpu/runner.h"
#include <stdlib.h>
#include <string.h>

#include "eager/cuda/runtime.h"
#include "jit/gpu/gpu.h"

__attribute__((constructor)) static void choose_fakes(void)
{
#ifndef WEFT_GPU_RUNNER
    setenv("WEFT_CUDA_DRIVER", WEFT_FAKE_CUDA, 0);
    setenv("WEFT_NVRTC", WEFT_FAKE_NVRTC, 0);
#endif
    setenv("WEFT_CUBLASLT", "none", 1);
    setenv("WEFT_CUDNN", "none", 1);
    setenv("WEFT_JIT", "2", 0); /* fused kernels at once, or others would be tested */
    setenv("FAKE_CUDA_ORDER", "late", 0);
}

#define NEED_FIBERS()                                                                              \
    do {                                                                                           \
        wf_why why_ = {0};                                                                         \
        if (wf_cuda_open(0, &why_) != 0)                                                           \
            cr_skip_test("%s", why_.rule);                                                         \
    } while (0)

enum { MIRRORS = 512, MIRROR_EDGE = 256, MOST_RUNS = 12 };

/* Host ranges and their copies on the device; behind each copy lie MIRROR_EDGE bytes that nothing may change. */
typedef struct mirror {
    int n;
    bool torn;
    char *lo[MIRRORS], *hi[MIRRORS];
    wf_cuda_block *block[MIRRORS];
} mirror;

static inline void mirror_reach(const wf_view *v, char **lo, char **hi)
{
    const int64_t size = (int64_t)wf_dtype_size(v->dtype);
    int64_t up = 1, down = 0;
    bool empty = false; /* an axis without a step may have no index: of a reduction over nothing */
    for (int i = 0; i < v->rank; i++) {
        const int64_t reach = (v->dims[i] - 1) * v->strides[i];
        *(reach < 0 ? &down : &up) += reach;
        empty |= v->dims[i] == 0 && v->strides[i] != 0;
    }
    if (empty)
        up = down = 0;
    *lo = (char *)v->data + down * size;
    *hi = (char *)v->data + up * size;
}

/* Takes the memory of a view in; ranges that meet become one. */
static inline void mirror_add(mirror *m, const wf_view *v)
{
    char *lo, *hi;
    if (!v->data)
        return;
    mirror_reach(v, &lo, &hi);
    for (int i = 0; i < m->n; i++)
        if (lo < m->hi[i] && m->lo[i] < hi) {
            lo = lo < m->lo[i] ? lo : m->lo[i];
            hi = hi > m->hi[i] ? hi : m->hi[i];
            m->n--;
            m->lo[i] = m->lo[m->n];
            m->hi[i] = m->hi[m->n];
            i = -1;
        }
    cr_assert_lt(m->n, MIRRORS);
    m->lo[m->n] = lo;
    m->hi[m->n++] = hi;
}

static inline void mirror_upload(mirror *m)
{
    wf_why why = {0};
    for (int i = 0; i < m->n; i++) {
        const size_t n = (size_t)(m->hi[i] - m->lo[i]);
        m->block[i] = wf_cuda_alloc(0, n + MIRROR_EDGE, &why);
        cr_assert_not_null(m->block[i], "%s", why.rule);
        char edge[MIRROR_EDGE];
        memset(edge, 0x3C, sizeof edge);
        cr_assert_eq(wf_cuda_upload(0, (char *)m->block[i]->address + n, edge, sizeof edge, &why),
                     0);
        if (n)
            cr_assert_eq(wf_cuda_upload(0, m->block[i]->address, m->lo[i], n, &why), 0, "%s",
                         why.rule);
    }
}

/* The same view of the device's memory. */
static inline wf_view mirror_view(const mirror *m, const wf_view *v)
{
    wf_view d = *v;
    char *lo, *hi;
    if (!v->data)
        return d;
    mirror_reach(v, &lo, &hi);
    for (int i = 0; i < m->n; i++)
        if (lo >= m->lo[i] && hi <= m->hi[i]) {
            d.data = (char *)m->block[i]->address + ((char *)v->data - m->lo[i]);
            return d;
        }
    cr_assert_fail("a view that is not mirrored");
    return d;
}

/* Brings everything back; the first error of the device. */
static inline int mirror_download(mirror *m, wf_why *why)
{
    int status = wf_cuda_synchronize(0, why);
    for (int i = 0; i < m->n; i++) {
        const size_t n = (size_t)(m->hi[i] - m->lo[i]);
        char edge[MIRROR_EDGE], whole[MIRROR_EDGE];
        memset(whole, 0x3C, sizeof whole);
        if (n && status == 0)
            status = wf_cuda_download(0, m->lo[i], m->block[i]->address, n, why);
        if (status == 0)
            status = wf_cuda_download(0, edge, (char *)m->block[i]->address + n, sizeof edge, why);
        m->torn |= status == 0 && memcmp(edge, whole, sizeof edge) != 0;
        wf_cuda_free(m->block[i]);
    }
    m->n = 0;
    return status;
}

static inline void mirror_check(const mirror *m)
{
    cr_assert(!m->torn, "a kernel wrote behind its operands");
}

/* wf_gpu_programs on host operands. */
static inline int device_programs(const wf_program *p, int n, const wf_program_args *a, wf_why *why)
{
    static mirror m;
    static wf_view dst[MOST_RUNS][WF_PROGRAM_OUTPUTS], src[MOST_RUNS][WF_PROGRAM_INPUTS];
    wf_program_args on[MOST_RUNS];
    cr_assert_leq(n, MOST_RUNS);
    memset(&m, 0, sizeof m);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < p->noutput; i++)
            mirror_add(&m, &a[r].dst[i]);
        for (int i = 0; i < p->ninput; i++)
            mirror_add(&m, &a[r].src[i]);
    }
    mirror_upload(&m);
    for (int r = 0; r < n; r++) {
        on[r] = a[r];
        for (int i = 0; i < p->noutput; i++)
            dst[r][i] = mirror_view(&m, &a[r].dst[i]);
        for (int i = 0; i < p->ninput; i++)
            src[r][i] = mirror_view(&m, &a[r].src[i]);
        on[r].dst = dst[r];
        on[r].src = src[r];
    }
    const int status =
        n == 1 ? wf_gpu_program(0, p, 0, on, why) : wf_gpu_programs(0, p, n, on, why);
    const int late = mirror_download(&m, why);
    mirror_check(&m);
    return status ? status : late;
}

/* wf_gpu_program on host operands. */
static inline int device_program(const wf_program *p, const wf_program_args *a, wf_why *why)
{
    return device_programs(p, 1, a, why);
}

#endif
