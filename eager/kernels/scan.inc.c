/*
 * eager/kernels/scan.inc.c -- running sums and products of f64, compiled once per instruction set (WF_ISA).
 *
 * Invariants: which values are added, and which stands left, is that of scan.h at every register width.
 */
#include "eager/kernels/scan.h"
#include "eager/kernels/reduce_vec.h"

#if WF_VBYTES == 16 /* the tier that is not timed: small */
#undef WF_UNROLL
#define WF_UNROLL
#endif

#define V wf_vec_f64
#define VN (WF_VBYTES / 8)
#define LOADV(p) ((V) * (const wf_mem_f64 *)(const void *)(p))
#define STOREV(p, v) (*(wf_mem_f64 *)(void *)(p) = (wf_mem_f64)(v))

/* v becomes the running values of its aligned pairs, fours and eights; LAST: its last lane in all. */
#define WITH(v, none, OP, ...) v = __builtin_shufflevector(none, v, __VA_ARGS__) OP v
#if VN == 8
#define LAST(v) WF_SHUF(v, 7, 7, 7, 7, 7, 7, 7, 7)
#define INSIDE(v, none, OP)                                                                        \
    WITH(v, none, OP, 0, 8, 2, 10, 4, 12, 6, 14);                                                  \
    WITH(v, none, OP, 0, 1, 9, 9, 4, 5, 13, 13);                                                   \
    WITH(v, none, OP, 0, 1, 2, 3, 11, 11, 11, 11)
#elif VN == 4
#define LAST(v) WF_SHUF(v, 3, 3, 3, 3)
#define INSIDE(v, none, OP)                                                                        \
    WITH(v, none, OP, 0, 4, 2, 6);                                                                 \
    WITH(v, none, OP, 0, 1, 5, 5)
#else
#define LAST(v) WF_SHUF(v, 1, 1)
#define INSIDE(v, none, OP) WITH(v, none, OP, 0, 2)
#endif

#define SCAN(NAME, OP, NONE)                                                                       \
    static void span_##NAME(void *values, int64_t n, void *state, unsigned add)                    \
    {                                                                                              \
        double *const s = state;                                                                   \
        const V none = (NONE) - (V){0};                                                            \
        V half[3] = {none, none, none}, carry = s[3] - (V){0};                                     \
        for (int64_t i = 0; i < n; i += 8) {                                                       \
            double *const at = (double *)values + i;                                               \
            const unsigned o = (unsigned)i >> 3 & 7, now = add | o;                                \
            V v[8 / VN];                                                                           \
            WF_UNROLL for (int k = 0; k < 8 / VN; k++)                                             \
            {                                                                                      \
                v[k] = LOADV(at + k * VN);                                                         \
                INSIDE(v[k], none, OP);                                                            \
            }                                                                                      \
            WF_UNROLL for (int w = 1; w < 8 / VN; w *= 2)                                          \
            {                                                                                      \
                WF_UNROLL for (int k = 0; k < 8 / VN; k++)                                         \
                {                                                                                  \
                    if (k & w)                                                                     \
                        v[k] = LAST(v[(k & -w) - 1]) OP v[k];                                      \
                }                                                                                  \
            }                                                                                      \
            WF_UNROLL for (int h = 0; h < 3; h++)                                                  \
            {                                                                                      \
                if (now >> h & 1)                                                                  \
                    WF_UNROLL for (int k = 0; k < 8 / VN; k++) v[k] = half[h] OP v[k];             \
                else                                                                               \
                    half[h] = LAST(v[8 / VN - 1]);                                                 \
            }                                                                                      \
            if (add & 8)                                                                           \
                WF_UNROLL for (int k = 0; k < 8 / VN; k++) v[k] = carry OP v[k];                   \
            if (o == 7) {                                                                          \
                carry = LAST(v[8 / VN - 1]);                                                       \
                add |= 8;                                                                          \
            }                                                                                      \
            for (int l = 4; now >> l; l++) {                                                       \
                if (now >> l & 1)                                                                  \
                    WF_UNROLL for (int k = 0; k < 8 / VN; k++) v[k] = s[l] OP v[k];                \
            }                                                                                      \
            WF_UNROLL for (int k = 0; k < 8 / VN; k++) STOREV(at + k * VN, v[k]);                  \
        }                                                                                          \
        s[3] = carry[0];                                                                           \
    }                                                                                              \
    /* Running values of eight rows, v: in place. */                                               \
    WF_INLINE void eight_##NAME(V *v, double *s, unsigned add)                                     \
    {                                                                                              \
        v[1] = v[0] OP v[1], v[3] = v[2] OP v[3], v[5] = v[4] OP v[5], v[7] = v[6] OP v[7];        \
        v[2] = v[1] OP v[2], v[3] = v[1] OP v[3], v[6] = v[5] OP v[6], v[7] = v[5] OP v[7];        \
        v[4] = v[3] OP v[4], v[5] = v[3] OP v[5], v[6] = v[3] OP v[6], v[7] = v[3] OP v[7];        \
        for (int l = 0; l <= 3 || add >> l; l++, s += WF_SCAN_COLS) {                              \
            if (add >> l & 1) {                                                                    \
                const V total = LOADV(s);                                                          \
                WF_UNROLL for (int k = 0; k < 8; k++) v[k] = total OP v[k];                        \
            }                                                                                      \
            if (l < 3 ? !(add >> l & 1) : l == 3 && (add & 7) == 7)                                \
                STOREV(s, v[7]);                                                                   \
        }                                                                                          \
    }                                                                                              \
    static void rows_##NAME(void *values, int64_t n, void *state, unsigned add)                    \
    {                                                                                              \
        for (int64_t c = 0; c < n; c += VN) {                                                      \
            double *const at = (double *)values + c, *s = (double *)state + c;                     \
            V v[8];                                                                                \
            WF_UNROLL for (int k = 0; k < 8; k++) v[k] = LOADV(at + k * WF_SCAN_COLS);             \
            eight_##NAME(v, s, add);                                                               \
            WF_UNROLL for (int k = 0; k < 8; k++) STOREV(at + k * WF_SCAN_COLS, v[k]);             \
        }                                                                                          \
    }

/* Registers' own running values wait for nobody; what waits for the step before is one addition of a total. */
static void sum_i64(uint64_t *v, const uint64_t *x, int64_t n, uint64_t *s, unsigned add)
{
    uint64_t above = 0;
    for (int l = 4; add >> l; l++)
        above += add >> l & 1 ? s[l] : 0;
    uint64_t run = above + (add & 8 ? s[3] : 0);
    int64_t i = 0;
#if VN > 2
    enum { MANY = 16 / VN };
    const wf_vec_i64 none = {0};
    wf_vec_i64 carry = run + none;
    for (; i + 16 <= n; i += 16) {
        wf_vec_i64 r[MANY], total = none;
        WF_UNROLL for (int k = 0; k < MANY; k++)
        {
            r[k] = *(const wf_mem_i64 *)(const void *)(x + i + k * VN);
            INSIDE(r[k], none, +);
            const wf_vec_i64 last = LAST(r[k]);
            r[k] += total;
            total += last;
        }
        WF_UNROLL for (int k = 0; k < MANY; k++) * (wf_mem_i64 *)(void *)(v + i + k * VN) =
            (wf_mem_i64)(r[k] + carry);
        carry += total;
    }
    run = carry[0];
#endif
    for (; i < n; i++)
        v[i] = run += x[i];
    s[3] = run - above;
}

SCAN(sum, +, -0.0)
#if VN > 2
#if VN == 8
/* Of `sets` registers of columns of eight rows of f32 as they lie in memory; the rows that come next are asked for. Whole
 * lines at a time: rows a power of two apart drive out each other's. */
WF_INLINE void columns_f32(float *dst, int64_t apart, const float *src, int64_t step, double *state,
                           unsigned add, bool past, const int sets)
{
    V v[2][8];
    WF_UNROLL for (int k = 0; k < 8; k++)
    {
        const float *const at = src + k * step;
        __builtin_prefetch(at + 8 * step);
        WF_UNROLL for (int i = 0; i < sets; i++)
        {
            v[i][k] = (V)_mm512_cvtps_pd(_mm256_loadu_ps(at + i * VN));
        }
    }
    WF_UNROLL for (int i = 0; i < sets; i++)
    {
        eight_sum(v[i], state + i * VN, add);
    }
    WF_UNROLL for (int k = 0; k < 8; k++)
    {
        WF_UNROLL for (int i = 0; i < sets; i++)
        {
            float *const to = dst + k * apart + i * VN;
            const __m256 r = _mm512_cvtpd_ps((__m512d)v[i][k]);
            if (past && sets == 1)
                _mm256_stream_ps(to, r);
            else if (!past)
                _mm256_storeu_ps(to, r);
            else if (i == 1) /* a whole line */
                _mm512_stream_ps(
                    to - VN, _mm512_insertf32x8(
                                 _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)v[0][k])), r, 1));
        }
    }
}
static void rows_f32(float *dst, int64_t apart, const float *src, int64_t step, int64_t n,
                     void *state, unsigned add, bool past)
{
    double *const s = state;
    int64_t c = 0;
    for (; c + 2 * VN <= n; c += 2 * VN)
        if (past)
            columns_f32(dst + c, apart, src + c, step, s + c, add, true, 2);
        else
            columns_f32(dst + c, apart, src + c, step, s + c, add, false, 2);
    for (; c + VN <= n; c += VN)
        columns_f32(dst + c, apart, src + c, step, s + c, add, past, 1);
    if (c < n) { /* the last columns, part of a register */
        const __mmask8 which = (__mmask8)((1u << (n - c)) - 1);
        V v[8];
        WF_UNROLL for (int k = 0; k < 8; k++)
        {
            v[k] = (V)_mm512_cvtps_pd(_mm256_maskz_loadu_ps(which, src + c + k * step));
        }
        eight_sum(v, s + c, add);
        WF_UNROLL for (int k = 0; k < 8; k++)
        {
            _mm256_mask_storeu_ps(dst + c + k * apart, which, _mm512_cvtpd_ps((__m512d)v[k]));
        }
    }
}
#else
/* Of a register of columns of eight rows of f32. */
WF_INLINE void columns_f32(float *dst, int64_t apart, const float *src, int64_t step, double *state,
                           unsigned add)
{
    V v[8];
    WF_UNROLL for (int k = 0; k < 8; k++)
    {
        v[k] = (V)_mm256_cvtps_pd(_mm_loadu_ps(src + k * step));
    }
    eight_sum(v, state, add);
    WF_UNROLL for (int k = 0; k < 8; k++)
    {
        _mm_storeu_ps(dst + k * apart, _mm256_cvtpd_ps((__m256d)v[k]));
    }
}
/* Of f32 as they lie in memory; the rows that come next are asked for. Rows a power of two apart drive out each other's
 * lines, of which there are more registers than here are: such lines are brought together. What goes past the caches leaves
 * as whole lines. */
static void rows_f32(float *dst, int64_t apart, const float *src, int64_t step, int64_t n,
                     void *state, unsigned add, bool past)
{
    enum { LINE = 16, FEW_SETS = 512 };
    _Alignas(64) float line[8][LINE];
    double *const s = state;
    if (!past && ((step | apart) % FEW_SETS != 0 || n % LINE != 0)) {
        for (int64_t c = 0; c < n; c += VN) {
            WF_UNROLL for (int k = 0; k < 8; k++)
            {
                __builtin_prefetch(src + (k + 8) * step + c);
            }
            columns_f32(dst + c, apart, src + c, step, s + c, add);
        }
        return;
    }
    for (int64_t c = 0; c < n; c += LINE) {
        WF_UNROLL for (int k = 0; k < 8; k++)
        {
            const float *const at = src + k * step + c;
            for (int64_t i = 0; i < LINE; i += 8)
                _mm256_store_ps(line[k] + i, _mm256_loadu_ps(at + i));
            __builtin_prefetch(at + 8 * step);
        }
        for (int64_t i = 0; i < LINE; i += VN)
            columns_f32(line[0] + i, LINE, line[0] + i, LINE, s + c + i, add);
        for (int k = 0; k < 8; k++) {
            float *const to = dst + k * apart + c;
            for (int64_t i = 0; i < LINE; i += VN) { /* as they were stored: others would wait */
                const __m128 r = _mm_load_ps(line[k] + i);
                if (past)
                    _mm_stream_ps(to + i, r);
                else
                    _mm_storeu_ps(to + i, r);
            }
        }
    }
}
#endif
#define ROWS_F32 rows_f32
#else
#define ROWS_F32 NULL
#endif
#if VN == 8
const wf_scan_kernels WF_JOIN(wf_scan_kernels,
                              WF_ISA)[1] = {{span_sum, rows_sum, ROWS_F32, 1, sum_i64}};
#else
SCAN(prod, *, 1.0)
const wf_scan_kernels WF_JOIN(wf_scan_kernels, WF_ISA)[2] = {
    {span_sum, rows_sum, ROWS_F32, 8, sum_i64}, {span_prod, rows_prod, NULL, 8, NULL}};
#endif
