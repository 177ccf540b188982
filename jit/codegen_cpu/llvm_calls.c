/*
 * jit/codegen_cpu/llvm_calls.c -- the functions that generated code calls: what compilers call (fma, memcpy),
 * and what is the same in every kernel, so that no kernel pays for compiling it.
 *
 * wf_tail runs a kernel's last, short group: the operands go through a group of their own in zeroed buffers, so
 * kernels have no second copy of their body and nothing is read outside the operands.
 * wf_rows is the driver of kernels over rows (llvm_rows.c).
 */
#include "jit/codegen_cpu/llvm_calls.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "jit/codegen_cpu/llvm_rows.h"
#include "jit/codegen_cpu/render.h"

typedef void kernel(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                    int64_t end, uint64_t flags);

/*
 * What is left of an operand: `left` bytes, and zeros up to `all`, as whole registers, which is how the kernel reads them. Of
 * several stores that overlap, memcpy's, a load is not answered before they have reached the cache: 20 to 35 ns a launch.
 * room: aligned to 64 bytes, and that many are written whole. Nothing behind `left` is read.
 */
typedef void bring_fn(char *room, const char *from, size_t left, size_t all);

static void bring_plain(char *room, const char *from, size_t left, size_t all)
{
    memset(room, 0, all);
    memcpy(room, from, left);
}

__attribute__((target("avx2"))) static void bring_avx2(char *room, const char *from, size_t left,
                                                       size_t all)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    size_t at = 0;
    for (; at + 32 <= left; at += 32)
        _mm256_store_si256((void *)(room + at), _mm256_loadu_si256((const void *)(from + at)));
    if (at < left) {
        const size_t words = (left - at) / 4;
        const __m256i count = _mm256_set1_epi32((int)words);
        uint32_t last = 0; /* fewer than four bytes */
        memcpy(&last, from + at + words * 4, (left - at) % 4);
        const __m256i v =
            _mm256_maskload_epi32((const void *)(from + at), _mm256_cmpgt_epi32(count, index));
        const __m256i end =
            _mm256_and_si256(_mm256_cmpeq_epi32(count, index), _mm256_set1_epi32((int)last));
        _mm256_store_si256((void *)(room + at), _mm256_or_si256(v, end));
        at += 32;
    }
    for (; at < all; at += 32)
        _mm256_store_si256((void *)(room + at), _mm256_setzero_si256());
}

__attribute__((target("avx512f,avx512bw"))) static void bring_avx512(char *room, const char *from,
                                                                     size_t left, size_t all)
{
    size_t at = 0;
    for (; at + 64 <= left; at += 64)
        _mm512_store_si512(room + at, _mm512_loadu_si512(from + at));
    if (at < left) {
        const __mmask64 there = (UINT64_C(1) << (left - at)) - 1;
        _mm512_store_si512(room + at, _mm512_maskz_loadu_epi8(there, from + at));
        at += 64;
    }
    for (; at < all; at += 64)
        _mm512_store_si512(room + at, _mm512_setzero_si512());
}

/* The first bytes of a result, in pieces that lie in one register each: see above. */
static void take(char *to, const char *room, size_t left)
{
    size_t at = 0;
    for (; at + 16 <= left; at += 16)
        memcpy(to + at, room + at, 16);
    for (size_t piece = 8; piece; piece /= 2)
        if (left & piece) {
            memcpy(to + at, room + at, piece);
            at += piece;
        }
}

/* Elements [begin, end) of a MAP kernel, fewer than its lanes. shape: the number of operands, how many of them are
 * destinations, then the bytes of an element of each, 0 where one element serves all. */
static void run_tail(kernel *run, const uint8_t *shape, void *const *ptr, const int64_t *size,
                     const uint64_t *scalar, int64_t begin, int64_t end, int64_t lanes)
{
    enum { WIDEST = 8 };
    _Alignas(64) char room[WF_KERNEL_MAX_PTR][WF_LL_LANES * WIDEST];
    void *group[WF_KERNEL_MAX_PTR];
    const int n = shape[0], ndst = shape[1];
    const uint8_t *bytes = shape + 2;
    bring_fn *const bring = __builtin_cpu_supports("avx512bw") ? bring_avx512
                            : __builtin_cpu_supports("avx2")   ? bring_avx2
                                                               : bring_plain;
    for (int i = 0; i < n; i++) {
        group[i] = bytes[i] ? room[i] : ptr[i];
        if (i >= ndst && bytes[i])
            bring(room[i], (const char *)ptr[i] + begin * bytes[i],
                  (size_t)(end - begin) * bytes[i], (size_t)lanes * bytes[i]);
    }
    run(group, size, scalar, 0, lanes, 0);
    for (int i = 0; i < ndst; i++)
        take((char *)ptr[i] + begin * bytes[i], room[i], (size_t)(end - begin) * bytes[i]);
}

const wf_ll_callee wf_ll_callees[WF_LL_CALLEES] = {
    {"fma", (void *)fma},          {"fmaf", (void *)fmaf},          {"rint", (void *)rint},
    {"rintf", (void *)rintf},      {"floor", (void *)floor},        {"floorf", (void *)floorf},
    {"ceil", (void *)ceil},        {"ceilf", (void *)ceilf},        {"trunc", (void *)trunc},
    {"truncf", (void *)truncf},    {"memcpy", (void *)memcpy},      {"memset", (void *)memset},
    {"wf_tail", (void *)run_tail}, {"wf_rows", (void *)wf_llr_run},
};
