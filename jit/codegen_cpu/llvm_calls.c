/*
 * jit/codegen_cpu/llvm_calls.c -- the functions that generated code calls: what compilers call (fma, memcpy),
 * and what is the same in every kernel, so that no kernel pays for compiling it.
 *
 * wf_tail runs a kernel's last, short group: the operands go through a group of their own in zeroed buffers, so
 * kernels have no second copy of their body and nothing is read outside the operands.
 * wf_rest copies what is left of a row to its buffer, of which the rest is zero from the first row on.
 * wf_fold_* combine the 64 lanes of a reduction by halving, the canonical order. `seen`: lanes from this one on did not see
 * a whole group and count as they were before it, which is behind them in memory; 64 where none is there. It is done in place. Blocks of 4096
 * elements, the b-th of `blocks`, go to 64 lanes behind those; the last one's call has the total. Kernels with other element
 * types do it themselves (render_row.c).
 *
 * The rows' own words (dict_c.h) are used for min and max, so the bits are those of every other tier.
 */
#include "jit/codegen_cpu/llvm_calls.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"
#include "jit/ir/dict_c.h"

typedef void kernel(void *const *ptr, const int64_t *size, const uint64_t *scalar, int64_t begin,
                    int64_t end, uint64_t flags);

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
    for (int i = 0; i < n; i++) {
        const size_t left = (size_t)(end - begin) * bytes[i];
        group[i] = bytes[i] ? room[i] : ptr[i];
        if (i >= ndst && bytes[i]) {
            memset(room[i], 0, (size_t)lanes * bytes[i]);
            memcpy(room[i], (const char *)ptr[i] + begin * bytes[i], left);
        }
    }
    run(group, size, scalar, 0, lanes, 0);
    for (int i = 0; i < ndst; i++)
        memcpy((char *)ptr[i] + begin * bytes[i], room[i], (size_t)(end - begin) * bytes[i]);
}

static void rest(void *to, const void *from, int64_t bytes, int64_t room, int64_t rows)
{
    if (rows == 0)
        memset(to, 0, (size_t)room);
    memcpy(to, from, (size_t)bytes);
}

#define FOLD(name, T, OP, IDENTITY)                                                                \
    static T name##_lanes(T *x, int64_t seen)                                                      \
    {                                                                                              \
        if (seen < WF_LL_LANES)                                                                    \
            memcpy(x + seen, x + WF_LL_LANES + seen, (size_t)(WF_LL_LANES - seen) * sizeof *x);    \
        for (int n = WF_LL_LANES / 2; n >= 4; n /= 2)                                              \
            for (int i = 0; i < n; i++)                                                            \
                x[i] = OP(x[i], x[i + n]);                                                         \
        const T a = OP(x[0], x[2]), b = OP(x[1], x[3]);                                            \
        return OP(a, b);                                                                           \
    }                                                                                              \
    static T name(T *lane, int64_t seen, int64_t b, int64_t blocks)                                \
    {                                                                                              \
        const T part = name##_lanes(lane, seen);                                                   \
        if (__builtin_expect(blocks == 1, 1))                                                      \
            return part;                                                                           \
        T *level = lane + 2 * WF_LL_LANES, *at = level + b % WF_LL_LANES;                          \
        for (int i = 0; i < WF_LL_LANES && b == 0; i++)                                            \
            level[i] = IDENTITY;                                                                   \
        *at = OP(*at, part);                                                                       \
        return b + 1 < blocks ? part : name##_lanes(level, WF_LL_LANES);                           \
    }
FOLD(fold_add_f32, float, ADD, -0.0F)
FOLD(fold_mul_f32, float, MUL, 1)
FOLD(fold_min_f32, float, MIN, INFINITY)
FOLD(fold_max_f32, float, MAX, -INFINITY)
FOLD(fold_add_f64, double, ADD, -0.0)
FOLD(fold_mul_f64, double, MUL, 1)
FOLD(fold_min_f64, double, MIN, INFINITY)
FOLD(fold_max_f64, double, MAX, -INFINITY)

const wf_ll_callee wf_ll_callees[WF_LL_CALLEES] = {
    {"fma", (void *)fma},
    {"fmaf", (void *)fmaf},
    {"rint", (void *)rint},
    {"rintf", (void *)rintf},
    {"floor", (void *)floor},
    {"floorf", (void *)floorf},
    {"ceil", (void *)ceil},
    {"ceilf", (void *)ceilf},
    {"trunc", (void *)trunc},
    {"truncf", (void *)truncf},
    {"memcpy", (void *)memcpy},
    {"memset", (void *)memset},
    {"wf_tail", (void *)run_tail},
    {"wf_rest", (void *)rest},
    {"wf_fold_add_f32", (void *)fold_add_f32},
    {"wf_fold_mul_f32", (void *)fold_mul_f32},
    {"wf_fold_min_f32", (void *)fold_min_f32},
    {"wf_fold_max_f32", (void *)fold_max_f32},
    {"wf_fold_add_f64", (void *)fold_add_f64},
    {"wf_fold_mul_f64", (void *)fold_mul_f64},
    {"wf_fold_min_f64", (void *)fold_min_f64},
    {"wf_fold_max_f64", (void *)fold_max_f64},
};
