/*
 * eager/kernels/convert.h -- loads of any dtype as a compute type and the rounding stores back.
 *
 * Static functions for the translation units of one instruction set. Every conversion rounds at most
 * once to nearest even; stores to integers wrap (the values are sums of integers).
 */
#ifndef EAGER_KERNELS_CONVERT_H
#define EAGER_KERNELS_CONVERT_H

#include "eager/kernels/cast.h"
#include "eager/kernels/reduce_vec.h"
#include "jit/ir/dtype.h"

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
    WF_LOAD_CASE(WEFT_U8, uint8_t, (to)v)                                                          \
    WF_LOAD_CASE(WEFT_I8, int8_t, (to)v)                                                           \
    WF_LOAD_CASE(WEFT_I16, int16_t, (to)v)                                                         \
    WF_LOAD_CASE(WEFT_I32, int32_t, (to)v)                                                         \
    WF_LOAD_CASE(WEFT_I64, int64_t, (to)v)

__attribute__((unused)) static void load_f32(void *dst, const void *src, int dtype, int64_t stride,
                                             int64_t n)
{
    float *d = dst;
    switch ((weft_dtype)dtype) {
        WF_LOAD_INTS(float)
        WF_LOAD_CASE(WEFT_F16, uint16_t, wf_f32_of_f16(v))
        WF_LOAD_CASE(WEFT_BF16, uint16_t, wf_f32_of_bf16(v))
        WF_LOAD_CASE(WEFT_F32, float, v)
        WF_LOAD_CASE(WEFT_F64, double, (float)v)
    case WEFT_DTYPE_DEFAULT:
    case WEFT_DTYPE_COUNT:
        return;
    }
}
__attribute__((unused)) static void load_f64(void *dst, const void *src, int dtype, int64_t stride,
                                             int64_t n)
{
    double *d = dst;
    switch ((weft_dtype)dtype) {
        WF_LOAD_INTS(double)
        WF_LOAD_CASE(WEFT_F16, uint16_t, (double)wf_f32_of_f16(v))
        WF_LOAD_CASE(WEFT_BF16, uint16_t, (double)wf_f32_of_bf16(v))
        WF_LOAD_CASE(WEFT_F32, float, (double)v)
        WF_LOAD_CASE(WEFT_F64, double, v)
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

#define WF_STORE_CASE(tag, ctype, conv)                                                            \
    case tag: {                                                                                    \
        ctype *d = dst;                                                                            \
        WF_IVDEP for (int64_t i = 0; i < n; i++)                                                   \
        {                                                                                          \
            d[i] = conv;                                                                           \
        }                                                                                          \
        return;                                                                                    \
    }
#define WF_STORE_NONE                                                                              \
    case WEFT_DTYPE_DEFAULT:                                                                       \
    case WEFT_DTYPE_COUNT:                                                                         \
        return;
#define WF_NO_INTS                                                                                 \
    case WEFT_BOOL:                                                                                \
    case WEFT_U8:                                                                                  \
    case WEFT_I8:                                                                                  \
    case WEFT_I16:                                                                                 \
    case WEFT_I32:                                                                                 \
    case WEFT_I64:

__attribute__((unused)) static void store_f32(void *dst, int dtype, const void *src, int64_t n)
{
    const float *s = src;
    switch ((weft_dtype)dtype) {
        WF_STORE_CASE(WEFT_F16, uint16_t, wf_f16_of_f32(s[i]))
        WF_STORE_CASE(WEFT_BF16, uint16_t, wf_bf16_of_f32(s[i]))
        WF_STORE_CASE(WEFT_F32, float, s[i])
        WF_STORE_CASE(WEFT_F64, double, (double)s[i])
        WF_NO_INTS
        WF_STORE_NONE
    }
}
__attribute__((unused)) static void store_f64(void *dst, int dtype, const void *src, int64_t n)
{
    const double *s = src;
    switch ((weft_dtype)dtype) {
        WF_STORE_CASE(WEFT_F16, uint16_t, wf_f16_of_f32(wf_odd_f32_of_f64(s[i])))
        WF_STORE_CASE(WEFT_BF16, uint16_t, wf_bf16_of_f32(wf_odd_f32_of_f64(s[i])))
        WF_STORE_CASE(WEFT_F32, float, (float)s[i])
        WF_STORE_CASE(WEFT_F64, double, s[i])
        WF_NO_INTS
        WF_STORE_NONE
    }
}
__attribute__((unused)) static void store_i64(void *dst, int dtype, const void *src, int64_t n)
{
    const int64_t *s = src;
    switch ((weft_dtype)dtype) {
        WF_STORE_CASE(WEFT_BOOL, uint8_t, s[i] != 0)
        WF_STORE_CASE(WEFT_U8, uint8_t, (uint8_t)s[i])
        WF_STORE_CASE(WEFT_I8, int8_t, (int8_t)s[i])
        WF_STORE_CASE(WEFT_I16, int16_t, (int16_t)s[i])
        WF_STORE_CASE(WEFT_I32, int32_t, (int32_t)s[i])
        WF_STORE_CASE(WEFT_I64, int64_t, s[i])
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
    case WEFT_F64:
        WF_STORE_NONE
    }
}
#endif
