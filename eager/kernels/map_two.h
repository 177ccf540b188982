/*
 * eager/kernels/map_two.h -- rows of two operands as loops: which of them there are for a scalar operand.
 *
 * The includer is map_int.h or map_float.h: kernels have the names k_<NAME>.
 */
#ifndef EAGER_KERNELS_MAP_TWO_H
#define EAGER_KERNELS_MAP_TWO_H

#include "eager/kernels/map_rows.h"

/* One kernel of an expression that costs no more than memory does: a loop each for a scalar on either side,
 * or one for both. */
#define WF_LOOP2(R, va, vb, expr)                                                                  \
    WF_IVDEP for (size_t i = 0; i < n; i++)                                                        \
    {                                                                                              \
        const WF_T a = va;                                                                         \
        const WF_T b = vb;                                                                         \
        d[i] = (R)(expr);                                                                          \
    }
#define WF_KERNEL2(fname, even, R, expr)                                                           \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        const bool turned = even && bcast == 1;                                                    \
        const WF_T *pa = src[turned];                                                              \
        const WF_T *pb = src[!turned];                                                             \
        R *d = dst;                                                                                \
        if (bcast == 0) {                                                                          \
            WF_LOOP2(R, pa[i], pb[i], expr)                                                        \
        } else if (bcast == 2 || turned) {                                                         \
            const WF_T b0 = *pb;                                                                   \
            WF_LOOP2(R, pa[i], b0, expr)                                                           \
        } else if (bcast == 1) {                                                                   \
            const WF_T a0 = *pa;                                                                   \
            WF_LOOP2(R, a0, pb[i], expr)                                                           \
        } else {                                                                                   \
            blocks(fname, dst, sizeof(R), src, 2, 0, n, bcast);                                    \
        }                                                                                          \
    }
/* A comparison that is another one, `other`, of its operands turned: one of the two has the loop without a scalar, and each the
 * one with a scalar on the right. (Compilers would load both addresses at once, and wait for the two stores that have just been.) */
#define WF_KERNEL_TURNED(fname, other, first, R, expr)                                             \
    static void other(void *dst, const void *const *src, size_t n, unsigned bcast);                \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        const WF_T *pa = src[0];                                                                   \
        const WF_T *pb = src[1];                                                                   \
        R *d = dst;                                                                                \
        if (bcast == 2) {                                                                          \
            const WF_T b0 = *pb;                                                                   \
            WF_LOOP2(R, pa[i], b0, expr)                                                           \
        } else if (first && bcast == 0) {                                                          \
            WF_LOOP2(R, pa[i], pb[i], expr)                                                        \
        } else if (first && bcast == 3) {                                                          \
            blocks(fname, dst, sizeof(R), src, 2, 0, n, bcast);                                    \
        } else {                                                                                   \
            const void *at[2] = {pb};                                                              \
            __asm__("" : "+r"(pa));                                                                \
            at[1] = pa;                                                                            \
            other(dst, at, n, bcast == 1 ? 2 : bcast);                                             \
        }                                                                                          \
    }
/* A function of whether a and b are 0: the value for two truth values. */
#define WF_TRUTH(expr, va, vb)                                                                     \
    ({                                                                                             \
        const WF_T a = va;                                                                         \
        const WF_T b = vb;                                                                         \
        (unsigned)(expr);                                                                          \
    })
static void k_NOT_EQUAL(void *dst, const void *const *src, size_t n, unsigned bcast);
static void k_LOGICAL_NOT(void *dst, const void *const *src, size_t n, unsigned bcast);
/* Such a function that is the same turned, of a scalar and others: bit x + 2 s of table is its value. What is left of it is a
 * comparison with 0, or one value for all. */
static __attribute__((noinline)) void truths(void *dst, const void *const *src, size_t n,
                                             unsigned bcast, unsigned table)
{
    const WF_T zero = 0;
    const WF_T *x = src[bcast == 1];
    const WF_T *s = src[bcast != 1];
    const void *const at[2] = {x, &zero};
    const unsigned of = *s != 0 ? table >> 2 : table & 3; /* bit x */
    if (bcast == 3)
        memset(dst, (int)(of >> (*x != 0) & 1), n);
    else if (of == 0 || of == 3)
        memset(dst, of != 0, n);
    else if (of == 2)
        k_NOT_EQUAL(dst, at, n, 2);
    else
        k_LOGICAL_NOT(dst, at, n, 0);
}

/* How rows of two operands make use of that: not at all; EVEN ones are the same turned. TRUTH: they are, too, and of their operands they
 * want to know whether they are 0, so that with a scalar they are another row, or all one. */
#define WF_HOW_ADD ~, EVEN
#define WF_HOW_MUL ~, EVEN
#define WF_HOW_MAXIMUM ~, EVEN
#define WF_HOW_MINIMUM ~, EVEN
#define WF_HOW_BITWISE_AND ~, EVEN
#define WF_HOW_BITWISE_OR ~, EVEN
#define WF_HOW_BITWISE_XOR ~, EVEN
#define WF_HOW_EQUAL ~, EVEN
#define WF_HOW_NOT_EQUAL ~, EVEN
#define WF_HOW_LESS ~, LESS
#define WF_HOW_LESS_EQUAL ~, LESS_EQUAL
#define WF_HOW_GREATER ~, GREATER
#define WF_HOW_GREATER_EQUAL ~, GREATER_EQUAL
#define WF_HOW_LOGICAL_AND ~, TRUTH
#define WF_HOW_LOGICAL_OR ~, TRUTH
#define WF_HOW_LOGICAL_XOR ~, TRUTH
#define WF_KERNEL2_PLAIN(fname, R, expr) WF_KERNEL2(fname, false, R, expr)
#define WF_KERNEL2_EVEN(fname, R, expr) WF_KERNEL2(fname, true, R, expr)
#define WF_KERNEL2_LESS(fname, R, expr) WF_KERNEL_TURNED(fname, k_GREATER, true, R, expr)
#define WF_KERNEL2_GREATER(fname, R, expr) WF_KERNEL_TURNED(fname, k_LESS, false, R, expr)
#define WF_KERNEL2_LESS_EQUAL(fname, R, expr)                                                      \
    WF_KERNEL_TURNED(fname, k_GREATER_EQUAL, true, R, expr)
#define WF_KERNEL2_GREATER_EQUAL(fname, R, expr)                                                   \
    WF_KERNEL_TURNED(fname, k_LESS_EQUAL, false, R, expr)
#define WF_KERNEL2_TRUTH(fname, R, expr)                                                           \
    static void fname(void *dst, const void *const *src, size_t n, unsigned bcast)                 \
    {                                                                                              \
        if (bcast) {                                                                               \
            truths(dst, src, n, bcast,                                                             \
                   WF_TRUTH(expr, 0, 0) | WF_TRUTH(expr, 1, 0) << 1 | WF_TRUTH(expr, 0, 1) << 2 |  \
                       WF_TRUTH(expr, 1, 1) << 3);                                                 \
            return;                                                                                \
        }                                                                                          \
        R *d = dst;                                                                                \
        WF_P2                                                                                      \
        WF_LOOP2(R, pa[i], pb[i], expr)                                                            \
    }
/* k_<NAME> */
#define WF_KERNEL2_OF(NAME, R, expr)                                                               \
    WF_CAT(WF_KERNEL2_, WF_SECOND(WF_HOW_##NAME, PLAIN, ~))(k_##NAME, R, expr)

#define WF_BINARY_1(NAME, expr) WF_KERNEL2_OF(NAME, WF_T, expr)
#define WF_BINARY_0(NAME, expr) WF_KERNEL_LONG(k_##NAME, 2, WF_P2, WF_L2, expr)
#define WF_BINARY(ulp, NAME, expr) WF_CAT(WF_BINARY_, WF_CHEAP_##ulp)(NAME, expr)

#endif
