/*
 * eager/kernels/planes.h -- the last step of norms over channels, of many short planes at once, f32 and bf16 (rowwise.h).
 *
 * A plane of 7 x 7 values is four registers: a call, a conversion by way of memory or a loop over what is left behind the last
 * register would each cost as much. Part of rowwise.inc.c, for AVX-512.
 *
 * Invariant: the bits are those of affine, affine_runs and affine_bwd on each plane, converted to f32 and back.
 */
#ifndef EAGER_KERNELS_PLANES_H
#define EAGER_KERNELS_PLANES_H

#if defined(__AVX512BW__)
#define WF_HAS_PLANES 1

typedef struct plane {
    __m512 m, r, w, b;
} plane;

WF_INLINE plane plane_at(const float *mean, const float *rstd, const float *w, const float *b,
                         int64_t at, int64_t k)
{ /* times 1 or plus -0 changes no bits */
    return (plane){_mm512_set1_ps(mean[at]), _mm512_set1_ps(rstd[at]),
                   _mm512_set1_ps(w != NULL ? w[k] : 1.0f),
                   _mm512_set1_ps(b != NULL ? b[k] : -0.0f)};
}
WF_INLINE __m512 plane_y(const plane *p, __m512 x, bool fused)
{
    const __m512 h = (x - p->m) * p->r;
    if (fused) {
        return _mm512_fmadd_ps(h, p->w, p->b);
    }
    return h * p->w + p->b;
}

WF_INLINE void planes_f32_of(float *y, const float *x, const plane *p, int64_t n, bool fused)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm512_storeu_ps(y + i, plane_y(p, _mm512_loadu_ps(x + i), fused));
    }
    if (i < n) {
        const __mmask16 some = (__mmask16)((1U << (n - i)) - 1);
        const __m512 v = plane_y(p, _mm512_maskz_loadu_ps(some, x + i), fused);
        _mm512_mask_storeu_ps(y + i, some, v);
    }
}
WF_INLINE __m512i plane_halves(const plane *p, __m512i x, bool fused)
{
    return wf_bf16_of(plane_y(p, wf_bf16_even(x), fused), plane_y(p, wf_bf16_odd(x), fused));
}
WF_INLINE __mmask32 first_halves(int64_t n)
{
    return (__mmask32)((1ULL << n) - 1);
}
WF_INLINE void planes_bf16_of(uint16_t *y, const uint16_t *x, const plane *p, int64_t n, bool fused)
{
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        _mm512_storeu_si512(y + i, plane_halves(p, _mm512_loadu_si512(x + i), fused));
    }
    if (i < n) {
        const __mmask32 some = first_halves(n - i);
        const __m512i v = plane_halves(p, _mm512_maskz_loadu_epi16(some, x + i), fused);
        _mm512_mask_storeu_epi16(y + i, some, v);
    }
}

#define PLANES(name, T)                                                                            \
    static void planes_##name(void *yv, const void *xv, const void *mean, const void *rstd,        \
                              const void *w, const void *b, int64_t each, int64_t planes, int how) \
    {                                                                                              \
        T *y = yv;                                                                                 \
        const T *x = xv;                                                                           \
        for (int64_t k = 0; k < planes; k++, y += each, x += each) {                               \
            const plane p = plane_at(mean, rstd, w, b, how & WF_PLANES_OWN ? k : 0, k);            \
            if (how & WF_PLANES_FUSED) {                                                           \
                planes_##name##_of(y, x, &p, each, true);                                          \
            } else {                                                                               \
                planes_##name##_of(y, x, &p, each, false);                                         \
            }                                                                                      \
        }                                                                                          \
    }
PLANES(f32, float)
PLANES(bf16, uint16_t)
#undef PLANES

typedef struct plane_bwd {
    __m512 m, r, s, a, c;
} plane_bwd;

WF_INLINE plane_bwd plane_bwd_at(const void *const *per, int64_t k)
{
    __m512 v[5];
    for (int i = 0; i < 5; i++) {
        v[i] = _mm512_set1_ps(((const float *)per[i])[k]);
    }
    return (plane_bwd){v[0], v[1], v[2], v[3], v[4]};
}
WF_INLINE __m512 plane_dx(const plane_bwd *p, __m512 g, __m512 x)
{
    return p->s * ((g - p->a) - ((x - p->m) * p->r) * p->c);
}
WF_INLINE __m512i plane_dx_halves(const plane_bwd *p, __m512i g, __m512i x)
{
    return wf_bf16_of(plane_dx(p, wf_bf16_even(g), wf_bf16_even(x)),
                      plane_dx(p, wf_bf16_odd(g), wf_bf16_odd(x)));
}
static void planes_bwd_f32(void *dxv, const void *gv, const void *xv, const void *const *per,
                           int64_t each, int64_t planes)
{
    float *dx = dxv;
    const float *g = gv, *x = xv;
    for (int64_t k = 0; k < planes; k++, dx += each, g += each, x += each) {
        const plane_bwd p = plane_bwd_at(per, k);
        for (int64_t i = 0; i < each; i += 16) {
            const __mmask16 some = (__mmask16)(each - i < 16 ? (1U << (each - i)) - 1 : 0xFFFF);
            const __m512 gi = _mm512_maskz_loadu_ps(some, g + i);
            const __m512 xi = _mm512_maskz_loadu_ps(some, x + i);
            _mm512_mask_storeu_ps(dx + i, some, plane_dx(&p, gi, xi));
        }
    }
}
static void planes_bwd_bf16(void *dxv, const void *gv, const void *xv, const void *const *per,
                            int64_t each, int64_t planes)
{
    uint16_t *dx = dxv;
    const uint16_t *g = gv, *x = xv;
    for (int64_t k = 0; k < planes; k++, dx += each, g += each, x += each) {
        const plane_bwd p = plane_bwd_at(per, k);
        for (int64_t i = 0; i < each; i += 32) {
            const __mmask32 some = each - i < 32 ? first_halves(each - i) : 0xFFFFFFFF;
            const __m512i gi = _mm512_maskz_loadu_epi16(some, g + i);
            const __m512i xi = _mm512_maskz_loadu_epi16(some, x + i);
            _mm512_mask_storeu_epi16(dx + i, some, plane_dx_halves(&p, gi, xi));
        }
    }
}
#endif
#endif
