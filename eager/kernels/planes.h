/*
 * eager/kernels/planes.h -- the last step of norms over channels, of many short planes at once, f32 and bf16 (rowwise.h).
 *
 * A plane of 7 x 7 values is four registers: a call, a conversion by way of memory or a loop over what is left behind the last
 * register would each cost as much. Part of rowwise.inc.c, for AVX-512 and, bf16 alone, AVX2, where a last register that is not
 * full overlaps the one before; it is read before that is written, since the result may be the operand.
 *
 * Invariant: the bits are those of affine, affine_runs and affine_bwd on each plane, converted to f32 and back.
 */
#ifndef EAGER_KERNELS_PLANES_H
#define EAGER_KERNELS_PLANES_H

#if defined(__AVX512BW__)
#define WF_HAS_PLANES 2
typedef __m512 plane_vec;
typedef __m512i plane_ints;
#define PLANE_ALL _mm512_set1_ps
#define PLANE_FMA _mm512_fmadd_ps
#elif defined(__AVX2__)
#define WF_HAS_PLANES 1
typedef __m256 plane_vec;
typedef __m256i plane_ints;
#define PLANE_ALL _mm256_set1_ps
#define PLANE_FMA _mm256_fmadd_ps
#endif

#ifdef WF_HAS_PLANES
enum { PLANE_HALVES = sizeof(plane_ints) / 2 };
typedef struct plane {
    plane_vec m, r, w, b;
} plane;

WF_INLINE plane plane_at(const float *mean, const float *rstd, const float *w, const float *b,
                         int64_t at, int64_t k)
{ /* times 1 or plus -0 changes no bits */
    return (plane){PLANE_ALL(mean[at]), PLANE_ALL(rstd[at]), PLANE_ALL(w != NULL ? w[k] : 1.0f),
                   PLANE_ALL(b != NULL ? b[k] : -0.0f)};
}
WF_INLINE plane_vec plane_y(const plane *p, plane_vec x, bool fused)
{
    const plane_vec h = (x - p->m) * p->r;
    if (fused) {
        return PLANE_FMA(h, p->w, p->b);
    }
    return h * p->w + p->b;
}
WF_INLINE plane_ints plane_halves(const plane *p, plane_ints x, bool fused)
{
    return wf_bf16_of(plane_y(p, wf_bf16_even(x), fused), plane_y(p, wf_bf16_odd(x), fused));
}

/* n bf16, or as many as a register has. */
WF_INLINE plane_ints plane_load(const uint16_t *p, int64_t n)
{
#if WF_HAS_PLANES == 2
    return _mm512_maskz_loadu_epi16(n < 32 ? (__mmask32)((1U << n) - 1) : 0xFFFFFFFF, p);
#else
    plane_ints v = {0};
    memcpy(&v, p, (size_t)(n < PLANE_HALVES ? n : PLANE_HALVES) * sizeof *p);
    return v;
#endif
}
WF_INLINE void plane_store(uint16_t *p, plane_ints v, int64_t n)
{
#if WF_HAS_PLANES == 2
    _mm512_mask_storeu_epi16(p, n < 32 ? (__mmask32)((1U << n) - 1) : 0xFFFFFFFF, v);
#else
    memcpy(p, &v, (size_t)(n < PLANE_HALVES ? n : PLANE_HALVES) * sizeof *p);
#endif
}

/* y[i] := OF(i, n) of a plane of n: whole registers, and the rest. */
#if WF_HAS_PLANES == 2
#define PLANE_PASS(y, OF)                                                                          \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + PLANE_HALVES <= n; i += PLANE_HALVES) {                                         \
            plane_store((y) + i, OF(i, PLANE_HALVES), PLANE_HALVES);                               \
        }                                                                                          \
        if (i < n) {                                                                               \
            plane_store((y) + i, OF(i, n - i), n - i);                                             \
        }                                                                                          \
    } while (0)
#else
#define PLANE_PASS(y, OF)                                                                          \
    do {                                                                                           \
        const int64_t end = n - PLANE_HALVES;                                                      \
        plane_ints v = {0};                                                                        \
        if (end < 0) {                                                                             \
            plane_store(y, OF(0, n), n);                                                           \
            break;                                                                                 \
        }                                                                                          \
        for (int64_t i = 0, was = -1; was < end;                                                   \
             was = i, i = i + PLANE_HALVES < end ? i + PLANE_HALVES : end) {                       \
            const plane_ints next = OF(i, PLANE_HALVES);                                           \
            if (was >= 0) {                                                                        \
                plane_store((y) + was, v, PLANE_HALVES);                                           \
            }                                                                                      \
            v = next;                                                                              \
        }                                                                                          \
        plane_store((y) + end, v, PLANE_HALVES);                                                   \
    } while (0)
#endif

WF_INLINE void planes_bf16_of(uint16_t *y, const uint16_t *x, const plane *p, int64_t n, bool fused)
{
#define PLANE_OF(i, n) plane_halves(p, plane_load(x + (i), n), fused)
    PLANE_PASS(y, PLANE_OF);
#undef PLANE_OF
}
#if WF_HAS_PLANES == 2
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
#endif

#define PLANES(name, T)                                                                            \
    static void planes_##name(void *yv, const void *xv, const void *mean, const void *rstd,        \
                              const void *w, const void *b, int64_t each, int64_t planes, int how) \
    {                                                                                              \
        T *y = yv;                                                                                 \
        const T *x = xv;                                                                           \
        for (int64_t k = 0; k < planes; k++, y += each, x += each) {                               \
            const plane p = plane_at(mean, rstd, w, b, how & WF_PLANES_OWN ? k : 0, k);            \
            planes_##name##_of(y, x, &p, each, how &WF_PLANES_FUSED);                              \
        }                                                                                          \
    }
#if WF_HAS_PLANES == 2
PLANES(f32, float)
#endif
PLANES(bf16, uint16_t)
#undef PLANES

typedef struct plane_bwd {
    plane_vec m, r, s, a, c;
} plane_bwd;

WF_INLINE plane_bwd plane_bwd_at(const void *const *per, int64_t k)
{
    plane_vec v[5];
    for (int i = 0; i < 5; i++) {
        v[i] = PLANE_ALL(((const float *)per[i])[k]);
    }
    return (plane_bwd){v[0], v[1], v[2], v[3], v[4]};
}
WF_INLINE plane_vec plane_dx(const plane_bwd *p, plane_vec g, plane_vec x)
{
    return p->s * ((g - p->a) - ((x - p->m) * p->r) * p->c);
}
WF_INLINE plane_ints plane_dx_halves(const plane_bwd *p, plane_ints g, plane_ints x)
{
    return wf_bf16_of(plane_dx(p, wf_bf16_even(g), wf_bf16_even(x)),
                      plane_dx(p, wf_bf16_odd(g), wf_bf16_odd(x)));
}
#if WF_HAS_PLANES == 2
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
#endif
static void planes_bwd_bf16(void *dxv, const void *gv, const void *xv, const void *const *per,
                            int64_t n, int64_t planes)
{
    uint16_t *dx = dxv;
    const uint16_t *g = gv, *x = xv;
    for (int64_t k = 0; k < planes; k++, dx += n, g += n, x += n) {
        const plane_bwd p = plane_bwd_at(per, k);
#define PLANE_OF(i, n) plane_dx_halves(&p, plane_load(g + (i), n), plane_load(x + (i), n))
        PLANE_PASS(dx, PLANE_OF);
#undef PLANE_OF
    }
}
#undef PLANE_PASS
#undef PLANE_ALL
#undef PLANE_FMA
#endif
#endif
