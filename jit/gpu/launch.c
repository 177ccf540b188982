/*
 * jit/gpu/launch.c -- launching kernels of one struct argument; temporaries; numbers for divisions.
 */
#include <string.h>

#include "eager/dense.h"
#include "jit/gpu/impl.h"

enum { WAVES = 32 }; /* blocks for each processor, at most: kernels stride over the rest */

int64_t wf_gpu_processors(int ordinal)
{
    const wf_cuda_info *info = wf_cuda_get_info(ordinal);
    return info && info->processors > 0 ? info->processors : 1;
}

int wf_gpu_bits_of(int64_t size)
{
    return size == 1 ? WEFT_U8 : size == 2 ? WEFT_I16 : size == 4 ? WEFT_I32 : WEFT_I64;
}

int wf_gpu_bits(int dtype)
{
    return wf_gpu_bits_of((int64_t)wf_dtype_size(dtype));
}

int64_t wf_gpu_blocks(int ordinal, int64_t work, int64_t per_block)
{
    const int64_t most = wf_gpu_processors(ordinal) * WAVES;
    const int64_t blocks = (work + per_block - 1) / per_block;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

int wf_gpu_start(int ordinal, const wf_gpu_launch *l, wf_why *why)
{
    const unsigned grid[3] = {(unsigned)l->blocks, 1, 1}, block[3] = {l->threads, 1, 1};
    void *params[1] = {l->words};
    (void)ordinal;
    const int status = wf_cuda_launch(l->v->fn[l->function], grid, block, l->shared, params, why);
    if (status == WEFT_EUNSUPPORTED && wf_cuda_is_refused(l->v->fn[l->function]))
        wf_gpu_refuse(l->v, why);
    return status;
}

int wf_gpu_most_words(int ordinal)
{
    const wf_cuda_info *info = wf_cuda_get_info(ordinal);
    const int bytes = info && info->driver < 12010 ? 4096 : 32764;
    return bytes / (int)sizeof(uint64_t);
}

int wf_gpu_many_words(int ordinal, int first, int entry, int runs)
{
    static const int sizes[] = {128, 512, WF_GPU_MOST_WORDS};
    int best = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > wf_gpu_most_words(ordinal) || sizes[i] < first + 2 * entry)
            continue;
        best = sizes[i];
        if (first + runs * entry <= best)
            break;
    }
    return best;
}

void wf_gpu_settle(uint8_t *done, int n, int status)
{
    for (int i = 0; i < n; i++)
        if (done[i] == WF_GPU_FILLED)
            done[i] = status == 0 ? WF_GPU_QUEUED : 0;
}

int wf_gpu_or_alone(int status, int *pending, wf_why *why)
{
    if (status != WF_GPU_PENDING && status != WEFT_EUNSUPPORTED && status != WEFT_ENOMEM)
        return status;
    *pending = status == WF_GPU_PENDING ? status : *pending;
    *why = (wf_why){0};
    return 0;
}

uint64_t wf_gpu_word(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* x / d == (mulhi(x, m) + x) >> s for x below 2^31 (Granlund and Montgomery). */
void wf_gpu_divisor(uint64_t w[WF_CU_DIVISOR], int64_t extent)
{
    const uint64_t d = (uint64_t)(extent > 0 ? extent : 1);
    unsigned s = 0;
    while (s < 32 && (UINT64_C(1) << s) < d)
        s++;
    w[0] = d;
    w[1] = d < UINT64_C(1) << 31 ? ((UINT64_C(1) << 32) * ((UINT64_C(1) << s) - d)) / d + 1 : 0;
    w[2] = s;
}

bool wf_gpu_is_far(const wf_view *v)
{
    int64_t lo, hi;
    const int names = wf_map_reach(v->rank, v->dims, v->strides, &lo, &hi);
    return names < 0 || hi >= INT32_MAX || lo <= -(int64_t)INT32_MAX ||
           wf_view_numel(v) >= INT32_MAX;
}

void *wf_gpu_temp(wf_gpu_temps *t, size_t nbytes, wf_why *why)
{
    if (t->n == (int)(sizeof t->block / sizeof *t->block)) {
        wf_fail(why, WEFT_EUNSUPPORTED, "too many temporaries");
        return NULL;
    }
    wf_cuda_block *b = wf_cuda_alloc(t->ordinal, nbytes ? nbytes : 1, why);
    if (!b)
        return NULL;
    t->block[t->n++] = b;
    return b->address;
}

void wf_gpu_drop(wf_gpu_temps *t)
{
    while (t->n > 0)
        wf_cuda_free(t->block[--t->n]);
}

int wf_gpu_temp_view(wf_gpu_temps *t, int dt, int rank, const int64_t *dims, wf_view *out,
                     wf_why *why)
{
    *out = wf_view_dense(NULL, dt, rank, dims);
    out->data = wf_gpu_temp(t, wf_view_bytes(out), why);
    return out->data ? 0 : WEFT_ENOMEM;
}

int wf_gpu_dense(wf_gpu_temps *t, const wf_view *v, int dt, wf_view *out, wf_why *why)
{
    if (v->dtype == dt && wf_view_is_contiguous(v)) {
        *out = wf_view_dense(v->data, dt, v->rank, v->dims);
        return 0;
    }
    const int status = wf_gpu_temp_view(t, dt, v->rank, v->dims, out, why);
    return status ? status : wf_gpu_copy(t->ordinal, out, v, why);
}
