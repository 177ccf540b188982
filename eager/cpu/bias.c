/*
 * eager/cpu/bias.c -- the bias of a product's result, where what made the result does not add it.
 */
#include <string.h>

#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/kernels.h"

enum { LONG_ROW = 32 }; /* columns that are worth a call of the row's kernel */

#define ADD_BIAS(suffix, type)                                                                     \
    static void add_bias_##suffix(const wf_gemm_block *g)                                          \
    {                                                                                              \
        for (int64_t i = 0; i < g->m; i++) {                                                       \
            type *c = (type *)g->c + i * g->c_rs;                                                  \
            const type *bias = (const type *)g->bias + i * g->bias_rs;                             \
            for (int64_t j = 0; j < g->n; j++) {                                                   \
                c[j] += bias[j * g->bias_cs];                                                      \
            }                                                                                      \
        }                                                                                          \
    }
ADD_BIAS(f32, float)
ADD_BIAS(f64, double)
#undef ADD_BIAS

void wf_gemm_add_bias(const wf_gemm_block *g)
{
    enum { REPEATED = 4096, FEW = 256, MANY = 16 };
    _Alignas(64) char repeated[REPEATED];
    const int dtype = wf_dtype_compute(g->dtype);
    const int64_t size = (int64_t)wf_dtype_size(dtype), row = g->n * size;
    const bool few = g->bias_cs && g->n < FEW && g->m >= MANY && g->c_rs == g->n;
    if (g->n < LONG_ROW && !few) {
        (dtype == WEFT_F32 ? add_bias_f32 : add_bias_f64)(g);
        return;
    }
    const wf_map_fn add = wf_kernels_now()->map[wf_ct(dtype)][WF_OP_ADD];
    const char *bias = g->bias;
    int64_t together = 1;
    if (few) { /* added to several rows at a time: it is repeated for that */
        together = wf_least(REPEATED / row, g->m);
        memcpy(repeated, bias, (size_t)row);
        for (int64_t at = row, n; at < together * row; at += n) {
            n = wf_least(at, together * row - at);
            memcpy(repeated + at, repeated, (size_t)n);
        }
        bias = repeated;
    }
    for (int64_t i = 0, n; i < g->m; i += n) {
        n = wf_least(together, g->m - i);
        char *c = (char *)g->c + i * g->c_rs * size;
        add(c, (const void *const[]){c, bias + i * g->bias_rs * size}, (size_t)(n * g->n),
            g->bias_cs ? 0 : 2);
    }
}
