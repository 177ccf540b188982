/*
 * eager/kernels/pool.inc.c -- the largest and the mean of a window of channels-last images, compiled once per instruction set (WF_ISA).
 *
 * Channels are looked at a few registers at a time, an index beside each value. Invariants: those of pool.h; which element
 * is chosen depends on the order of the window alone.
 */
#include "eager/kernels/pool.h"
#include "eager/kernels/reduce_vec.h"
#include "jit/ir/dtype.h"

/* VN: values of 32 bits in a register. Channels go by AT_ONCE registers of them; what is left goes by two where PAIRS (32 channels of
 * AVX-512), but not of halves, whose bits have to be put together. */
enum { VN = WF_VBYTES / 4, AT_ONCE = 4, PAIRS = WF_VBYTES > 32 };
typedef int32_t lanes __attribute__((vector_size(WF_VBYTES)));
typedef int32_t lanes_mem __attribute__((vector_size(WF_VBYTES), aligned(4), may_alias));
typedef int64_t lanes_64 __attribute__((vector_size(WF_VBYTES))); /* of f64 */
typedef int64_t lanes_64_mem __attribute__((vector_size(WF_VBYTES), aligned(8), may_alias));

#define CHOOSE(take, a, b) (((take) & (a)) | (~(take) & (b)))
/* Greater, or the first NaN: not less or equal, where there is none yet. */
WF_INLINE lanes above_f32(lanes a, lanes b)
{
    const wf_vec_f32 x = (wf_vec_f32)a, y = (wf_vec_f32)b;
    return (lanes)(~(x <= y) & (y == y));
}
#define above_bf16 above_f32
WF_INLINE lanes above_i32(lanes a, lanes b)
{
    return (lanes)(a > b);
}

WF_INLINE lanes_64 above_f64(lanes_64 a, lanes_64 b)
{
    const wf_vec_f64 x = (wf_vec_f64)a, y = (wf_vec_f64)b;
    return (lanes_64)(~(x <= y) & (y == y));
}

WF_INLINE lanes get_i32(const int32_t *p)
{
    return (lanes) * (const lanes_mem *)p;
}
WF_INLINE lanes get_f32(const float *p)
{
    return (lanes) * (const lanes_mem *)(const void *)p;
}
WF_INLINE lanes get_bf16(const uint16_t *p)
{
    uint32_t wide[VN];
    lanes v;
    for (int i = 0; i < VN; i++) {
        wide[i] = (uint32_t)p[i] << 16;
    }
    memcpy(&v, wide, sizeof v);
    return v;
}
WF_INLINE lanes_64 get_f64(const double *p)
{
    return (lanes_64) * (const lanes_64_mem *)(const void *)p;
}
WF_INLINE void put_i32(int32_t *p, lanes v)
{
    *(lanes_mem *)p = (lanes_mem)v;
}
WF_INLINE void put_f32(float *p, lanes v)
{
    *(lanes_mem *)(void *)p = (lanes_mem)v;
}
WF_INLINE void put_bf16(uint16_t *p, lanes v)
{
    uint32_t wide[VN];
    memcpy(wide, &v, sizeof v);
    for (int i = 0; i < VN; i++) {
        p[i] = (uint16_t)(wide[i] >> 16);
    }
}
WF_INLINE void put_f64(double *p, lanes_64 v)
{
    *(lanes_64_mem *)(void *)p = (lanes_64_mem)v;
}

static int32_t key_f32(float x)
{
    return wf_key_f32(x);
}
static int32_t key_bf16(uint16_t x)
{
    return wf_key_f32(wf_f32_of_bf16(x));
}
static int32_t key_i32(int32_t x)
{
    return x;
}
static int64_t key_f64(double x)
{
    return wf_key_f64(x);
}

#define N_OF(lanes) ((int)(sizeof(lanes) / sizeof((lanes){0}[0])))
#define LARGEST(suffix, type, lanes, lane)                                                         \
    /* Of N registers of channels from `in` on. */                                                 \
    WF_INLINE void some_##suffix(type *out, int64_t *index, const wf_pool_window *w,               \
                                 const type *in, int n)                                            \
    {                                                                                              \
        lanes best[AT_ONCE], at[AT_ONCE];                                                          \
        WF_UNROLL for (int k = 0; k < n; k++)                                                      \
        {                                                                                          \
            best[k] = get_##suffix(in + k * N_OF(lanes));                                          \
            at[k] = w->first + (lanes){0};                                                         \
        }                                                                                          \
        for (int64_t i = 0; i < w->rows; i++) {                                                    \
            const int32_t row = w->first + (int32_t)i * w->index_down;                             \
            const type *from = in + i * w->down;                                                   \
            for (int64_t j = 0; j < w->cols; j++, from += w->across) {                             \
                const lane flat = row + (int32_t)j * w->index_across;                              \
                WF_UNROLL for (int k = 0; k < n; k++)                                              \
                {                                                                                  \
                    const lanes x = get_##suffix(from + k * N_OF(lanes)),                          \
                                take = above_##suffix(x, best[k]);                                 \
                    best[k] = CHOOSE(take, x, best[k]);                                            \
                    at[k] = CHOOSE(take, flat + (lanes){0}, at[k]);                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        WF_UNROLL for (int k = 0; k < n; k++)                                                      \
        {                                                                                          \
            lane found[N_OF(lanes)];                                                               \
            put_##suffix(out + k * N_OF(lanes), best[k]);                                          \
            memcpy(found, &at[k], sizeof found);                                                   \
            for (int i = 0; i < N_OF(lanes); i++) {                                                \
                index[k * N_OF(lanes) + i] = found[i];                                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void max_##suffix(void *outv, int64_t *index, const wf_pool_window *w, int64_t c)       \
    {                                                                                              \
        type *out = outv;                                                                          \
        const type *in = w->in;                                                                    \
        int64_t k = 0;                                                                             \
        for (; k + AT_ONCE * N_OF(lanes) <= c; k += AT_ONCE * N_OF(lanes)) {                       \
            some_##suffix(out + k, index + k, w, in + k, AT_ONCE);                                 \
        }                                                                                          \
        for (; PAIRS && sizeof(type) == 4 && k + 2 * N_OF(lanes) <= c; k += 2 * N_OF(lanes)) {     \
            some_##suffix(out + k, index + k, w, in + k, 2);                                       \
        }                                                                                          \
        for (; k + N_OF(lanes) <= c; k += N_OF(lanes)) {                                           \
            some_##suffix(out + k, index + k, w, in + k, 1);                                       \
        }                                                                                          \
        for (; k < c; k++) {                                                                       \
            out[k] = in[k];                                                                        \
            index[k] = w->first;                                                                   \
            for (int64_t i = 0; i < w->rows; i++) {                                                \
                for (int64_t j = 0; j < w->cols; j++) {                                            \
                    const type x = in[k + i * w->down + j * w->across];                            \
                    if (key_##suffix(x) > key_##suffix(out[k])) {                                  \
                        out[k] = x;                                                                \
                        index[k] =                                                                 \
                            w->first + (int32_t)i * w->index_down + (int32_t)j * w->index_across;  \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
LARGEST(f32, float, lanes, int32_t)
LARGEST(bf16, uint16_t, lanes, int32_t)
LARGEST(i32, int32_t, lanes, int32_t)
LARGEST(f64, double, lanes_64, int64_t)

#define MEANS(suffix, type, vec, mem)                                                              \
    WF_INLINE void some_means_##suffix(type *out, const wf_pool_window *w, const type *in,         \
                                       type count, const int n)                                    \
    {                                                                                              \
        vec sum[AT_ONCE];                                                                          \
        WF_UNROLL for (int k = 0; k < n; k++) sum[k] = (vec){0};                                   \
        for (int64_t i = 0; i < w->rows; i++) {                                                    \
            const type *from = in + i * w->down;                                                   \
            for (int64_t j = 0; j < w->cols; j++, from += w->across)                               \
                WF_UNROLL for (int k = 0; k < n; k++) sum[k] +=                                    \
                    *(const mem *)(const void *)(from + k * N_OF(vec));                            \
        }                                                                                          \
        WF_UNROLL for (int k = 0; k < n; k++) * (mem *)(void *)(out + k * N_OF(vec)) =             \
            (mem)(sum[k] / count);                                                                 \
    }                                                                                              \
    static void avg_##suffix(void *outv, const wf_pool_window *w, double count, int64_t c)         \
    {                                                                                              \
        type *out = outv;                                                                          \
        const type *in = w->in, n = (type)count;                                                   \
        int64_t k = 0;                                                                             \
        for (; k + AT_ONCE * N_OF(vec) <= c; k += AT_ONCE * N_OF(vec))                             \
            some_means_##suffix(out + k, w, in + k, n, AT_ONCE);                                   \
        for (; k + N_OF(vec) <= c; k += N_OF(vec))                                                 \
            some_means_##suffix(out + k, w, in + k, n, 1);                                         \
        for (; k < c; k++) {                                                                       \
            type sum = 0;                                                                          \
            for (int64_t i = 0; i < w->rows; i++)                                                  \
                for (int64_t j = 0; j < w->cols; j++)                                              \
                    sum += in[k + i * w->down + j * w->across];                                    \
            out[k] = sum / n;                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void spread_##suffix(void *outv, const void *gv, double count, int64_t cols, int64_t c) \
    {                                                                                              \
        type *out = outv, n = (type)count;                                                         \
        const type *g = gv;                                                                        \
        int64_t k = 0;                                                                             \
        for (; k + AT_ONCE * N_OF(vec) <= c; k += AT_ONCE * N_OF(vec)) {                           \
            vec share[AT_ONCE];                                                                    \
            WF_UNROLL for (int q = 0; q < AT_ONCE; q++) share[q] =                                 \
                *(const mem *)(const void *)(g + k + q * N_OF(vec)) / n;                           \
            for (int64_t j = 0; j < cols; j++)                                                     \
                WF_UNROLL for (int q = 0; q < AT_ONCE; q++) *                                      \
                    (mem *)(void *)(out + j * c + k + q * N_OF(vec)) += (mem)share[q];             \
        }                                                                                          \
        for (; k < c; k++) {                                                                       \
            const type share = g[k] / n;                                                           \
            for (int64_t j = 0; j < cols; j++)                                                     \
                out[j * c + k] += share;                                                           \
        }                                                                                          \
    }
MEANS(f32, float, wf_vec_f32, wf_mem_f32)
MEANS(f64, double, wf_vec_f64, wf_mem_f64)

const wf_pool_kernels WF_JOIN(wf_pool_kernels, WF_ISA) = {.f32 = max_f32,
                                                          .bf16 = max_bf16,
                                                          .i32 = max_i32,
                                                          .f64 = max_f64,
                                                          .avg_f32 = avg_f32,
                                                          .avg_f64 = avg_f64,
                                                          .spread_f32 = spread_f32,
                                                          .spread_f64 = spread_f64};
