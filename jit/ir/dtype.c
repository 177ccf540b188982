/*
 * jit/ir/dtype.c -- facts about element types.
 *
 * The types form a chain of levels, with two types on two of them:
 *
 *     bool < {u8, i8} < i16 < i32 < i64 < {f16, bf16} < f32 < f64
 *
 * The join of two types is the higher one; of two different types on one level it is the first type
 * of the next. Levels make the join total, commutative and associative by construction.
 * WEFT_DTYPE_DEFAULT is the bottom: it joins as "nothing given". A code outside the enum is treated
 * like it (size 0, name "?").
 */
#include "jit/ir/dtype.h"

#include <string.h>

typedef struct dtype_info {
    const char *name;
    uint8_t level;
} dtype_info;

static const dtype_info dtypes[WF_NDTYPE] = {
    [WEFT_DTYPE_DEFAULT] = {"?", 0}, [WEFT_BOOL] = {"bool", 1}, [WEFT_U8] = {"u8", 2},
    [WEFT_I8] = {"i8", 2},           [WEFT_I16] = {"i16", 3},   [WEFT_I32] = {"i32", 4},
    [WEFT_I64] = {"i64", 5},         [WEFT_F16] = {"f16", 6},   [WEFT_BF16] = {"bf16", 6},
    [WEFT_F32] = {"f32", 7},         [WEFT_F64] = {"f64", 8},
};

static const dtype_info *info(int dt)
{
    return &dtypes[dt > 0 && dt < WF_NDTYPE ? dt : WEFT_DTYPE_DEFAULT];
}

const char *wf_dtype_name(int dt)
{
    return info(dt)->name;
}

int wf_dtype_parse(const char *s, size_t n)
{
    for (int dt = WEFT_BOOL; dt < WF_NDTYPE; dt++)
        if (strlen(dtypes[dt].name) == n && memcmp(dtypes[dt].name, s, n) == 0)
            return dt;
    return -1;
}

int wf_dtype_promote(int a, int b)
{
    const dtype_info *x = info(a), *y = info(b);
    if (x == y)
        return (int)(x - dtypes);
    if (x->level == y->level)
        return wf_dtype_kind(a) == 2 ? WEFT_F32 : WEFT_I16;
    return (int)((x->level > y->level ? x : y) - dtypes);
}
