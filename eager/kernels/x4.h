/*
 * eager/kernels/x4.h -- four registers of f32 as one value.
 *
 * A compiler that vectorises a plain loop emits one register after the other; here every step is done
 * to four, so that four chains of dependent operations overlap. Only where registers have FMA
 * (WF_HAS_X4). Include after reduce_vec.h. An includer that defines WF_REGISTERS as 1 or 2 gets values of
 * so many registers under the same names.
 */
#ifndef EAGER_KERNELS_X4_H
#define EAGER_KERNELS_X4_H

#if WF_VBYTES >= 32
#define WF_HAS_X4 1

typedef uint32_t wf_vec_u32 __attribute__((vector_size(WF_VBYTES)));
#ifndef WF_REGISTERS
#define WF_REGISTERS 4
#endif
enum { WF_X4 = WF_REGISTERS * WF_VBYTES / 4 }; /* elements of a value */

/* OP on the registers of x, y and z, one after the other */
#if WF_REGISTERS == 4
#define WF_X4_MEMBERS(T) T a, b, c, d
#define WF_X4_DO0(v) v, v, v, v
#define WF_X4_DO1(OP) OP(x.a), OP(x.b), OP(x.c), OP(x.d)
#define WF_X4_DO2(OP) OP(x.a, y.a), OP(x.b, y.b), OP(x.c, y.c), OP(x.d, y.d)
#define WF_X4_DO3(OP) OP(x.a, y.a, z.a), OP(x.b, y.b, z.b), OP(x.c, y.c, z.c), OP(x.d, y.d, z.d)
#define WF_X4_SHIFTED(OP) OP(x.a, k), OP(x.b, k), OP(x.c, k), OP(x.d, k)
#elif WF_REGISTERS == 2
#define WF_X4_MEMBERS(T) T a, b
#define WF_X4_DO0(v) v, v
#define WF_X4_DO1(OP) OP(x.a), OP(x.b)
#define WF_X4_DO2(OP) OP(x.a, y.a), OP(x.b, y.b)
#define WF_X4_DO3(OP) OP(x.a, y.a, z.a), OP(x.b, y.b, z.b)
#define WF_X4_SHIFTED(OP) OP(x.a, k), OP(x.b, k)
#else
#define WF_X4_MEMBERS(T) T a
#define WF_X4_DO0(v) v
#define WF_X4_DO1(OP) OP(x.a)
#define WF_X4_DO2(OP) OP(x.a, y.a)
#define WF_X4_DO3(OP) OP(x.a, y.a, z.a)
#define WF_X4_SHIFTED(OP) OP(x.a, k)
#endif
typedef struct wf_x4 {
    WF_X4_MEMBERS(wf_vec_f32);
} wf_x4;

/* A function that does OP to the registers of its operands. */
#define WF_X4_FN1(R, name, A, OP)                                                                  \
    WF_INLINE R name(A x)                                                                          \
    {                                                                                              \
        return (R){WF_X4_DO1(OP)};                                                                 \
    }
#define WF_X4_FN2(R, name, A, B, OP)                                                               \
    WF_INLINE R name(A x, B y)                                                                     \
    {                                                                                              \
        return (R){WF_X4_DO2(OP)};                                                                 \
    }
#define WF_X4_FN3(R, name, A, B, C, OP)                                                            \
    WF_INLINE R name(A x, B y, C z)                                                                \
    {                                                                                              \
        return (R){WF_X4_DO3(OP)};                                                                 \
    }

#if WF_VBYTES == 64
#define WF_V_SPLAT(c) ((wf_vec_f32)_mm512_set1_ps(c))
#define WF_V_FMA(a, b, c) ((wf_vec_f32)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define WF_V_SCALE(p, n) ((wf_vec_f32)_mm512_scalef_ps((__m512)(p), (__m512)(n)))
#else
#define WF_V_SPLAT(c) ((wf_vec_f32)_mm256_set1_ps(c))
#define WF_V_FMA(a, b, c) ((wf_vec_f32)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#endif
#define WF_V_ADD(a, b) ((a) + (b))
#define WF_V_SUB(a, b) ((a) - (b))
#define WF_V_MUL(a, b) ((a) * (b))

WF_INLINE wf_x4 wf_x4_all(float c)
{
    const wf_vec_f32 v = WF_V_SPLAT(c);
    return (wf_x4){WF_X4_DO0(v)};
}
WF_X4_FN2(wf_x4, wf_x4_add, wf_x4, wf_x4, WF_V_ADD)
WF_X4_FN2(wf_x4, wf_x4_sub, wf_x4, wf_x4, WF_V_SUB)
WF_X4_FN2(wf_x4, wf_x4_mul, wf_x4, wf_x4, WF_V_MUL)
WF_X4_FN3(wf_x4, wf_x4_fma, wf_x4, wf_x4, wf_x4, WF_V_FMA)
/* The second operand where one is NaN, as SELECT(GT(x, y), x, y) and SELECT(LT(x, y), x, y). */
WF_X4_FN2(wf_x4, wf_x4_max, wf_x4, wf_x4, WF_VMAX_f32)
WF_X4_FN2(wf_x4, wf_x4_min, wf_x4, wf_x4, WF_VMIN_f32)

#if WF_REGISTERS == 4
WF_INLINE wf_x4 wf_x4_load(const float *p)
{
    const wf_mem_f32 *m = (const wf_mem_f32 *)(const void *)p;
    return (wf_x4){(wf_vec_f32)m[0], (wf_vec_f32)m[1], (wf_vec_f32)m[2], (wf_vec_f32)m[3]};
}
WF_INLINE void wf_x4_store(float *p, wf_x4 x)
{
    wf_mem_f32 *m = (wf_mem_f32 *)(void *)p;
    m[0] = (wf_mem_f32)x.a;
    m[1] = (wf_mem_f32)x.b;
    m[2] = (wf_mem_f32)x.c;
    m[3] = (wf_mem_f32)x.d;
}
/* Past the caches; p is aligned to a register. */
WF_INLINE void wf_x4_stream(float *p, wf_x4 x)
{
    WF_STREAM_f32(p, x.a);
    WF_STREAM_f32(p + WF_X4 / 4, x.b);
    WF_STREAM_f32(p + WF_X4 / 2, x.c);
    WF_STREAM_f32(p + WF_X4 / 4 * 3, x.d);
}
#elif WF_REGISTERS == 2
WF_INLINE wf_x4 wf_x4_load(const float *p)
{
    const wf_mem_f32 *m = (const wf_mem_f32 *)(const void *)p;
    return (wf_x4){(wf_vec_f32)m[0], (wf_vec_f32)m[1]};
}
WF_INLINE void wf_x4_store(float *p, wf_x4 x)
{
    wf_mem_f32 *m = (wf_mem_f32 *)(void *)p;
    m[0] = (wf_mem_f32)x.a;
    m[1] = (wf_mem_f32)x.b;
}
WF_INLINE void wf_x4_stream(float *p, wf_x4 x)
{
    WF_STREAM_f32(p, x.a);
    WF_STREAM_f32(p + WF_X4 / 2, x.b);
}
#else
#if WF_VBYTES == 32
WF_INLINE __m256i wf_x4_first(size_t n)
{
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index);
}
#endif
/* The first n elements, the others 0. */
WF_INLINE wf_x4 wf_x4_load_some(const float *p, size_t n)
{
#if WF_VBYTES == 64
    return (wf_x4){(wf_vec_f32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p)};
#else
    return (wf_x4){(wf_vec_f32)_mm256_maskload_ps(p, wf_x4_first(n))};
#endif
}
WF_INLINE void wf_x4_store_some(float *p, wf_x4 x, size_t n)
{
#if WF_VBYTES == 64
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x.a);
#else
    _mm256_maskstore_ps(p, wf_x4_first(n), (__m256)x.a);
#endif
}
#endif

#endif
#endif
