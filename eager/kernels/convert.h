/*
 * eager/kernels/convert.h -- loads of any dtype as a compute type and the rounding stores back.
 *
 * Static functions for the translation units of one instruction set. Every conversion rounds at most
 * once to nearest even; stores to integers wrap (the values are sums of integers). What lies side by side is converted by the
 * casts of that set (cast.inc.c), which have instructions for halves.
 */
#ifndef EAGER_KERNELS_CONVERT_H
#define EAGER_KERNELS_CONVERT_H

#include "eager/kernels/cast.h"
#include "eager/kernels/kernels.h"
#include "eager/kernels/reduce_vec.h"
#include "jit/ir/dtype.h"

extern const wf_cast_fn WF_SYM(wf_cast)[WF_NDTYPE][WF_NDTYPE];

/* True if it was done. Not of truth values, of which any byte but 0 is true here. */
__attribute__((unused)) static bool cast_together(int to, void *dst, int from, const void *src,
                                                  int64_t stride, int64_t n)
{
    const wf_cast_fn cast = WF_SYM(wf_cast)[to][from];
    if (stride != 1 || from == WEFT_BOOL || !cast) {
        return false;
    }
    cast(dst, src, (size_t)n);
    return true;
}

/* Any stride. */
#define WF_LOAD_APART(tag, ctype, conv)                                                            \
    case tag: {                                                                                    \
        const ctype *s = src;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype v = s[i * stride];                                                               \
            d[i] = conv;                                                                           \
        }                                                                                          \
        return;                                                                                    \
    }
/* The same, of which those side by side are a loop of their own. */
#define WF_LOAD_CASE(tag, ctype, conv)                                                             \
    case tag: {                                                                                    \
        const ctype *s = src;                                                                      \
        if (stride == 1) {                                                                         \
            WF_IVDEP for (int64_t i = 0; i < n; i++)                                               \
            {                                                                                      \
                ctype v = s[i];                                                                    \
                d[i] = conv;                                                                       \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                ctype v = s[i * stride];                                                           \
                d[i] = conv;                                                                       \
            }                                                                                      \
        }                                                                                          \
        return;                                                                                    \
    }
#define WF_LOAD_INTS(to)                                                                           \
    WF_LOAD_CASE(WEFT_BOOL, uint8_t, (to)(v != 0))                                                 \
    WF_LOAD_APART(WEFT_U8, uint8_t, (to)v)                                                         \
    WF_LOAD_APART(WEFT_I8, int8_t, (to)v)                                                          \
    WF_LOAD_APART(WEFT_I16, int16_t, (to)v)                                                        \
    WF_LOAD_APART(WEFT_I32, int32_t, (to)v)                                                        \
    WF_LOAD_APART(WEFT_I64, int64_t, (to)v)

__attribute__((unused)) static void load_f32(void *dst, const void *src, int dtype, int64_t stride,
                                             int64_t n)
{
    float *d = dst;
    if (cast_together(WEFT_F32, dst, dtype, src, stride, n)) {
        return;
    }
    switch ((weft_dtype)dtype) {
        WF_LOAD_INTS(float)
        WF_LOAD_APART(WEFT_F16, uint16_t, wf_f32_of_f16(v))
        WF_LOAD_APART(WEFT_BF16, uint16_t, wf_f32_of_bf16(v))
        WF_LOAD_APART(WEFT_F32, float, v)
        WF_LOAD_APART(WEFT_F64, double, (float)v)
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}
__attribute__((unused)) static void load_f64(void *dst, const void *src, int dtype, int64_t stride,
                                             int64_t n)
{
    double *d = dst;
    if (cast_together(WEFT_F64, dst, dtype, src, stride, n)) {
        return;
    }
    switch ((weft_dtype)dtype) {
        WF_LOAD_INTS(double)
        WF_LOAD_APART(WEFT_F16, uint16_t, (double)wf_f32_of_f16(v))
        WF_LOAD_APART(WEFT_BF16, uint16_t, (double)wf_f32_of_bf16(v))
        WF_LOAD_APART(WEFT_F32, float, (double)v)
        WF_LOAD_APART(WEFT_F64, double, v)
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}
/* Integers only: no row sums floats into an integer. */
__attribute__((unused)) static void load_i64(void *dst, const void *src, int dtype, int64_t stride,
                                             int64_t n)
{
    int64_t *d = dst;
    if (cast_together(WEFT_I64, dst, dtype, src, stride, n)) {
        return;
    }
    switch ((weft_dtype)dtype) {
        WF_LOAD_INTS(int64_t)
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
    case WEFT_F64:
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}
__attribute__((unused)) static void truth_i64(void *dst, const void *src, int dtype, int64_t stride,
                                              int64_t n)
{
    int64_t *d = dst;
    switch ((weft_dtype)dtype) {
        WF_LOAD_CASE(WEFT_BOOL, uint8_t, v != 0)
        WF_LOAD_CASE(WEFT_U8, uint8_t, v != 0)
        WF_LOAD_CASE(WEFT_I8, int8_t, v != 0)
        WF_LOAD_CASE(WEFT_I16, int16_t, v != 0)
        WF_LOAD_CASE(WEFT_I32, int32_t, v != 0)
        WF_LOAD_CASE(WEFT_I64, int64_t, v != 0)
        WF_LOAD_CASE(WEFT_F16, uint16_t, (v & 0x7FFF) != 0)
        WF_LOAD_CASE(WEFT_BF16, uint16_t, (v & 0x7FFF) != 0)
        WF_LOAD_CASE(WEFT_F32, float, v != 0.0f)
        WF_LOAD_CASE(WEFT_F64, double, v != 0.0)
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}

#define WF_STORE(t, from)                                                                          \
    __attribute__((unused)) static void store_##t(void *dst, int dtype, const void *src,           \
                                                  int64_t n)                                       \
    {                                                                                              \
        WF_SYM(wf_cast)[dtype][from](dst, src, (size_t)n);                                         \
    }
WF_STORE(f32, WEFT_F32)
WF_STORE(f64, WEFT_F64)
WF_STORE(i64, WEFT_I64)
#endif
