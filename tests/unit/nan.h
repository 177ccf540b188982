/*
 * tests/unit/nan.h -- NaN by the bits of an element, whatever its type.
 *
 * NaNs may differ in payload and sign (docs/dtypes.md), so comparisons of bits ask for them first.
 */
#ifndef TESTS_UNIT_NAN_H
#define TESTS_UNIT_NAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "eager/tensor.h"

static inline bool is_nan(const void *p, int dtype)
{
    uint64_t u = 0;
    memcpy(&u, p, wf_dtype_size(dtype));
    return dtype == WEFT_F16    ? (u & 0x7FFF) > 0x7C00
           : dtype == WEFT_BF16 ? (u & 0x7FFF) > 0x7F80
           : dtype == WEFT_F32  ? (u & 0x7FFFFFFFu) > 0x7F800000u
           : dtype == WEFT_F64  ? (u & INT64_MAX) > 0x7FF0000000000000u
                                : false;
}

#endif
