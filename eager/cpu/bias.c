/*
 * eager/cpu/bias.c -- see eager/cpu/bias.h.
 */
#include "eager/cpu/bias.h"

#include <string.h>

#include "eager/kernels/kernels.h"
#include "jit/ir/dtype.h"

enum { LONG_ROW = 32 }; /* columns that are worth a call of the row's kernel */

#define ADD_BIAS(suffix, type)                                                                     \
    static void add_bias_##suffix(void *arg, int64_t begin, int64_t end)                           \
    {                                                                                              \
        const wf_bias *a = arg;                                                                    \
        const type *bias = a->bias;                                                                \
        for (int64_t r = begin; r < end; r++) {                                                    \
            type *y = (type *)a->y + r * a->cols;                                                  \
            if (a->stride == 1) {                                                                  \
                for (int64_t i = 0; i < a->cols; i++) {                                            \
                    y[i] += bias[i];                                                               \
                }                                                                                  \
            } else {                                                                               \
                for (int64_t i = 0; i < a->cols; i++) {                                            \
                    y[i] += bias[i * a->stride];                                                   \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
ADD_BIAS(f32, float)
ADD_BIAS(f64, double)
#undef ADD_BIAS

void wf_bias_rows(void *arg, int64_t begin, int64_t end)
{
    enum { REPEATED = 4096, FEW = 256, MANY = 16 };
    _Alignas(64) char repeated[REPEATED];
    const wf_bias *a = arg;
    const int64_t rows = end - begin, row = a->cols * (int64_t)wf_dtype_size(a->dtype);
    const bool few = a->cols < FEW && rows >= MANY;
    if (a->stride != 1 || (a->cols < LONG_ROW && !few)) {
        (a->dtype == WEFT_F32 ? add_bias_f32 : add_bias_f64)(arg, begin, end);
        return;
    }
    const wf_map_fn add = wf_kernels_now()->map[wf_ct(a->dtype)][WF_OP_ADD];
    const char *bias = a->bias;
    int64_t together = 1;
    if (few && row > 0) { /* added to several rows at a time: it is repeated for that */
        together = REPEATED / row < rows ? REPEATED / row : rows;
        memcpy(repeated, bias, (size_t)row);
        for (int64_t at = row, n; at < together * row; at += n) {
            n = at < together * row - at ? at : together * row - at;
            memcpy(repeated + at, repeated, (size_t)n);
        }
        bias = repeated;
    }
    for (int64_t r = begin, n; r < end; r += n) {
        n = end - r < together ? end - r : together;
        char *y = (char *)a->y + r * row;
        add(y, (const void *const[]){y, bias}, (size_t)(n * a->cols), 0);
    }
}
