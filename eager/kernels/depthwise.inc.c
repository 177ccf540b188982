/*
 * eager/kernels/depthwise.inc.c -- sums of products of two images, sixteen channels side by side, compiled once per instruction
 * set (WF_ISA): what the gradient of a depthwise convolution's weights is (eager/cpu/conv_depthwise.c).
 */
#include "eager/cpu/gemm_impl.h"
#include "eager/kernels/gemm_simd.inc.h"
#include "eager/kernels/kernels.h"

enum { PARTS = WF_DEPTHWISE / VL_F32 };

/* `taps`, which is known where this is compiled into, neighbours, from tap `first` on. */
__attribute__((always_inline)) static inline void some_taps(int taps, const wf_depthwise *d,
                                                            int64_t first)
{
    vec_f32 sum[7][PARTS];
    WF_UNROLL
    for (int t = 0; t < taps; t++)
        for (int v = 0; v < PARTS; v++)
            sum[t][v] = SET1_F32(0);
    for (int64_t y = 0; y < d->rows; y++) {
        const float *g = d->g + y * d->g_row;
        const float *x0 = d->x + y * d->x_row + first * d->x_tap;
        for (int64_t i = 0; i < d->columns; i++, g += WF_DEPTHWISE, x0 += d->x_step) {
            const float *x = x0;
            vec_f32 factor[PARTS];
            WF_UNROLL
            for (int v = 0; v < PARTS; v++)
                factor[v] = LOAD_F32(g + v * VL_F32);
            WF_UNROLL
            for (int t = 0; t < taps; t++, x += d->x_tap)
                for (int v = 0; v < PARTS; v++)
                    sum[t][v] = FMA_F32(factor[v], LOAD_F32(x + v * VL_F32), sum[t][v]);
        }
    }
    float *out = d->sums + first * WF_DEPTHWISE;
    WF_UNROLL
    for (int t = 0; t < taps; t++)
        for (int v = 0; v < PARTS; v++, out += VL_F32)
            STORE_F32(out, LOAD_F32(out) + sum[t][v]);
}

#ifdef __OPTIMIZE_SIZE__ /* the copy for any machine */
enum { MOST = 1 };
#else
enum { MOST = 7 };
#endif

void WF_SYM(wf_depthwise_sums)(const wf_depthwise *d)
{
    for (int64_t first = 0, taps; first < d->taps; first += taps) {
        const int64_t left = d->taps - first;
        taps = left < 3 ? 1 : left == 5 || left == 7 ? left : left > 7 ? 7 : 3;
        switch (taps = wf_least(taps, MOST)) {
        case 7:
            some_taps(7, d, first);
            break;
        case 5:
            some_taps(5, d, first);
            break;
        case 3:
            some_taps(3, d, first);
            break;
        default:
            some_taps(1, d, first);
        }
    }
}
