/*
 * eager/kernels/rowwise_exp.h -- template: passes of a row kernel that take exponentials.
 *
 * The includer defines T, SFX and X4 (1: T is f32 and eager/kernels/exp_block.h serves it) and has
 * instantiated the canonical sum. Every function leaves exactly the elementwise row's bits.
 */
#define FN(name) WF_JOIN(name, SFX)
#define LOOP WF_IVDEP for (int64_t i = 0; i < n; i++)

#if X4
/* The 64 lanes that 4096 elements are added to, in passes of four registers. */
enum { X4_PER_GROUP = WF_LANES / WF_X4 };

#if WF_VBYTES == 64
#define PART(k) (__mmask16)(((UINT64_C(1) << count) - 1) >> 16 * (k))
/* The first `count` < 64 of four registers from p, the rest 0; the same for a store, and for v added to x. */
WF_INLINE wf_x4 load_part_f32(const float *p, int64_t count)
{
    return (wf_x4){(wf_vec_f32)_mm512_maskz_loadu_ps(PART(0), p),
                   (wf_vec_f32)_mm512_maskz_loadu_ps(PART(1), p + 16),
                   (wf_vec_f32)_mm512_maskz_loadu_ps(PART(2), p + 32),
                   (wf_vec_f32)_mm512_maskz_loadu_ps(PART(3), p + 48)};
}
WF_INLINE void store_part_f32(float *p, wf_x4 v, int64_t count)
{
    _mm512_mask_storeu_ps(p, PART(0), (__m512)v.a);
    _mm512_mask_storeu_ps(p + 16, PART(1), (__m512)v.b);
    _mm512_mask_storeu_ps(p + 32, PART(2), (__m512)v.c);
    _mm512_mask_storeu_ps(p + 48, PART(3), (__m512)v.d);
}
WF_INLINE wf_x4 add_part_f32(wf_x4 x, wf_x4 v, int64_t count)
{
#define ADDED(k, at)                                                                               \
    (wf_vec_f32) _mm512_mask_add_ps((__m512)x.at, PART(k), (__m512)x.at, (__m512)v.at)
    return (wf_x4){ADDED(0, a), ADDED(1, b), ADDED(2, c), ADDED(3, d)};
#undef ADDED
}
#undef PART
#else
/* The first `count` of four registers from p, the rest 0; the same for a store. */
WF_INLINE wf_x4 load_part_f32(const float *p, int64_t count)
{
    _Alignas(64) float t[WF_X4] = {0};
    memcpy(t, p, (size_t)count * sizeof *p);
    return wf_x4_load(t);
}
WF_INLINE void store_part_f32(float *p, wf_x4 v, int64_t count)
{
    _Alignas(64) float t[WF_X4];
    wf_x4_store(t, v);
    memcpy(p, t, (size_t)count * sizeof *p);
}
#endif

/* sum(exp(x[i] - m)) over one block, n <= 4096; e receives the exponentials unless NULL. The row after
 * this one is fetched meanwhile. */
WF_INLINE float exp_lanes_f32(float *e, const float *x, float m, int64_t n, const float *ahead)
{
    const wf_x4 mm = wf_x4_all(m);
    wf_x4 lanes[X4_PER_GROUP];
    int64_t i = 0;
    WF_UNROLL for (int q = 0; q < X4_PER_GROUP; q++)
    {
        lanes[q] = wf_x4_all(-0.0f);
    }
    for (; i + WF_LANES <= n; i += WF_LANES) {
        WF_UNROLL for (int q = 0; q < X4_PER_GROUP; q++)
        {
            const int64_t at = i + q * WF_X4;
            const wf_x4 v = wf_x4_exp(wf_x4_sub(wf_x4_load(x + at), mm));
            lanes[q] = wf_x4_add(lanes[q], v);
            if (e != NULL) {
                wf_x4_store(e + at, v);
            }
        }
        for (int k = 0; k < WF_LANES; k += 16) {
            __builtin_prefetch(ahead + i + k);
        }
    }
    _Alignas(64) float t[WF_LANES];
#if WF_VBYTES == 64
    if (i < n) {
        const wf_x4 v = wf_x4_exp(wf_x4_sub(load_part_f32(x + i, n - i), mm));
        lanes[0] = add_part_f32(lanes[0], v, n - i);
        if (e != NULL) {
            store_part_f32(e + i, v, n - i);
        }
    }
#else
    if (i < n) {
        _Alignas(64) float in[WF_LANES] = {0};
        _Alignas(64) float out[WF_LANES];
        memcpy(in, x + i, (size_t)(n - i) * sizeof *x);
        WF_UNROLL for (int q = 0; q < X4_PER_GROUP; q++)
        {
            wf_x4_store(t + q * WF_X4, wf_x4_all(-0.0f));
        }
        for (int64_t k = 0; k < n - i; k += WF_X4) { /* a short row needs no more */
            wf_x4_store(out + k, wf_x4_exp(wf_x4_sub(wf_x4_load(in + k), mm)));
        }
        memcpy(t, out, (size_t)(n - i) * sizeof *x);
        if (e != NULL) {
            memcpy(e + i, out, (size_t)(n - i) * sizeof *x);
        }
        WF_UNROLL for (int q = 0; q < X4_PER_GROUP; q++)
        {
            lanes[q] = wf_x4_add(lanes[q], wf_x4_load(t + q * WF_X4));
        }
    }
#endif
    WF_UNROLL for (int q = 0; q < X4_PER_GROUP; q++)
    {
        wf_x4_store(t + q * WF_X4, lanes[q]);
    }
    return sum_block_f32(t, NULL, NULL, 0, 0, 0, WF_LANES);
}
static float exp_block_f32(float *e, const float *x, float m, int64_t n, const float *ahead)
{
    return e != NULL ? exp_lanes_f32(e, x, m, n, ahead) : exp_lanes_f32(NULL, x, m, n, ahead);
}

/* Registers in which some lane lies in (0, 2^-64). */
#if WF_VBYTES == 64
#define TINY(v)                                                                                    \
    _mm512_cmplt_epu32_mask(_mm512_sub_epi32((__m512i)(v), _mm512_set1_epi32(1)),                  \
                            _mm512_set1_epi32(0x1F7FFFFF))
#else
#define TINY(v)                                                                                    \
    _mm256_movemask_ps(                                                                            \
        (__m256)_mm256_and_si256(_mm256_cmpgt_epi32((__m256i)(v), _mm256_setzero_si256()),         \
                                 _mm256_cmpgt_epi32(_mm256_set1_epi32(0x1F800000), (__m256i)(v))))
#endif
/* v / s for v in [0, 1] and s in [1, 2^40], or all NaN, given the rounded 1 / s and -s. A division takes 16 steps, this five:
 * with the rounded 1 / s and a quotient that is off by less than a unit in the last place, one more correction gives
 * the rounded quotient (Markstein); the first product may be off by 1.5. The remainders are exact unless v is tiny. */
WF_INLINE wf_x4 share_f32(wf_x4 v, wf_x4 s, wf_x4 inverse, wf_x4 minus)
{
    wf_x4 q = wf_x4_mul(v, inverse);
    q = wf_x4_fma(wf_x4_fma(q, minus, v), inverse, q);
    q = wf_x4_fma(wf_x4_fma(q, minus, v), inverse, q);
    if (__builtin_expect((TINY(v.a) | TINY(v.b) | TINY(v.c) | TINY(v.d)) != 0, 0)) {
        q = (wf_x4){v.a / s.a, v.b / s.b, v.c / s.c, v.d / s.d};
    }
    return q;
}
/* y = e / s, of a row; past the caches if nt. */
WF_INLINE void shares_f32(float *y, const float *e, float s, int64_t n, int nt)
{
    const wf_x4 ss = wf_x4_all(s), inverse = wf_x4_all(1.0f / s), minus = wf_x4_all(-s);
    int64_t i = 0;
    for (; i + WF_X4 <= n; i += WF_X4) {
        const wf_x4 q = share_f32(wf_x4_load(e + i), ss, inverse, minus);
        if (nt) {
            wf_x4_stream(y + i, q);
        } else {
            wf_x4_store(y + i, q);
        }
    }
#if WF_VBYTES == 64
    if (i < n) {
        store_part_f32(y + i, share_f32(load_part_f32(e + i, n - i), ss, inverse, minus), n - i);
    }
#else
    for (; i < n; i++) {
        y[i] = e[i] / s;
    }
#endif
}
#undef TINY
#define X4_LOAD(p) wf_x4_load((p) + i)
#define X4_LOAD_PART(p) load_part_f32((p) + i, n - i)
/* What follows a row of p is as a rule the next one: stores past the caches would wait for it. */
#define X4_AHEAD(p)                                                                                \
    for (int k = 0; k < WF_X4; k += 16) {                                                          \
        __builtin_prefetch((p) + n + i + k);                                                       \
    }
/* dst[i] = EXPR(L) of operands L(p); past the caches if nt, AHEAD of which says what else to fetch then. */
#define X4_PASS(dst, EXPR, AHEAD)                                                                  \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        if (nt) {                                                                                  \
            for (; i + WF_X4 <= n; i += WF_X4) {                                                   \
                wf_x4_stream((dst) + i, EXPR(X4_LOAD));                                            \
                AHEAD                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            for (; i + WF_X4 <= n; i += WF_X4) {                                                   \
                wf_x4_store((dst) + i, EXPR(X4_LOAD));                                             \
            }                                                                                      \
        }                                                                                          \
        if (i < n) {                                                                               \
            store_part_f32((dst) + i, EXPR(X4_LOAD_PART), n - i);                                  \
        }                                                                                          \
    } while (0)
#else
static T FN(exp_block)(T *e, const T *x, T m, int64_t n, const T *ahead)
{
    _Alignas(64) T buf[WF_BLOCK];
    T *to = e != NULL ? e : buf;
    (void)ahead;
    LOOP
    {
        to[i] = FN(exp)(SUB(x[i], m));
    }
    return FN(sum)(to, NULL, NULL, 0, 0, n);
}
#endif

/* sum(exp(x - m)) block by block; e receives the exponentials unless NULL. */
static T FN(sum_exp)(T *e, const T *x, T m, int64_t n0)
{
    if (n0 <= WF_BLOCK) {
        return FN(exp_block)(e, x, m, n0, x + n0);
    }
    _Alignas(64) T parts[WF_BLOCK];
    int64_t blocks = (n0 + WF_BLOCK - 1) / WF_BLOCK, part = 0;
    T *outer = blocks > WF_BLOCK ? NULL : parts;
    T lane[WF_LANES];
    int64_t groups = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const T *from = x + b * WF_BLOCK;
        int64_t n = n0 - b * WF_BLOCK < WF_BLOCK ? n0 - b * WF_BLOCK : WF_BLOCK;
        parts[part++] = FN(exp_block)(e != NULL ? e + b * WF_BLOCK : NULL, from, m, n, from + n);
        if (outer == NULL && (part == WF_BLOCK || b + 1 == blocks)) {
            T s = FN(sum)(parts, NULL, NULL, 0, 0, part);
            int64_t l = groups % WF_LANES; /* up to 2^36 elements: one more level of lanes */
            lane[l] = groups < WF_LANES ? s : ADD(lane[l], s);
            groups++;
            part = 0;
        }
    }
    if (outer != NULL) {
        return FN(sum)(parts, NULL, NULL, 0, 0, part);
    }
    return FN(sum)(lane, NULL, NULL, 0, 0, groups < WF_LANES ? groups : WF_LANES);
}

/* dx = g - exp(y) * s */
WF_INLINE void FN(minus_exp)(T *dx, const T *g, const T *y, T s, int64_t n, int nt)
{
#if X4
    const wf_x4 ss = wf_x4_all(s);
#define MINUS_EXP(L) wf_x4_sub(L(g), wf_x4_mul(wf_x4_exp(L(y)), ss))
    X4_PASS(dx, MINUS_EXP, X4_AHEAD(g) X4_AHEAD(y));
#undef MINUS_EXP
#else
    (void)nt;
    LOOP
    {
        dx[i] = SUB(g[i], MUL(FN(exp)(y[i]), s));
    }
#endif
}

/* dx = g * (exp(x - lse) - q) */
WF_INLINE void FN(scaled_exp)(T *dx, const T *x, T lse, T g, T q, int64_t n, int nt)
{
#if X4
    const wf_x4 ll = wf_x4_all(lse), gg = wf_x4_all(g), qq = wf_x4_all(q);
#define SCALED_EXP(L) wf_x4_mul(gg, wf_x4_sub(wf_x4_exp(wf_x4_sub(L(x), ll)), qq))
    X4_PASS(dx, SCALED_EXP, X4_AHEAD(x));
#undef SCALED_EXP
#else
    (void)nt;
    LOOP
    {
        dx[i] = MUL(g, SUB(FN(exp)(SUB(x[i], lse)), q));
    }
#endif
}
#undef X4_LOAD
#undef X4_LOAD_PART
#undef X4_PASS
#undef X4_AHEAD
#undef LOOP
#undef FN
#undef X4
