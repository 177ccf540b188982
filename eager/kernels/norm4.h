/*
 * eager/kernels/norm4.h -- layer_norm of four rows of f32 at once, where 64 lanes are four registers.
 *
 * A row's three passes wait for one another (a sum is folded, divided, rooted before the next begins); four rows share
 * these waits, and the loads of w and b. The last pass of four rows is also the first one of the next four, so that memory
 * is read and written nearly all the time and not in turns. What comes behind these is asked for meanwhile, some lines in
 * every step: bursts would wait for room.
 *
 * Invariant: the bits are those of norm_f32 on each row.
 */
#ifndef EAGER_KERNELS_NORM4_H
#define EAGER_KERNELS_NORM4_H

#if WF_VBYTES == 64
#define WF_HAS_NORM4 1
typedef struct norm4_rows {
    wf_vec_f32 v[4];
} norm4_rows;

/* Of 16 values, `left` or fewer are there. */
WF_INLINE __mmask16 norm4_mask(int64_t left)
{
    return (__mmask16)(left >= 16 ? 0xFFFF : left <= 0 ? 0 : (1 << left) - 1);
}

/* Lines of the rows to come that are asked for in each step of 64 columns: in the pass of the squares, and in the one that stores. */
enum { NORM4_SQUARES = 4, NORM4_BOTH = 12, NORM4_ALL = NORM4_SQUARES + NORM4_BOTH };

WF_INLINE void norm4_begin(wf_vec_f32 a[4][4])
{
    WF_UNROLL for (int r = 0; r < 4; r++)
    {
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            a[r][k] = -(wf_vec_f32){0};
        }
    }
}

/* One sum for each of four rows of lanes, to their places in one register. */
WF_INLINE wf_vec_f32 norm4_fold(wf_vec_f32 a[4][4])
{
    wf_vec_f32 s[4];
    WF_UNROLL for (int r = 0; r < 4; r++)
    {
        s[r] = (a[r][0] + a[r][2]) + (a[r][1] + a[r][3]);
    }
    return wf_fold4_f32(s[0], s[1], s[2], s[3]);
}

/* x, or the square of x - m. */
WF_INLINE wf_vec_f32 norm4_term(wf_vec_f32 x, const norm4_rows *m, int r)
{
    if (m == NULL) {
        return x;
    }
    x = x - m->v[r];
    return x * x;
}

/* Columns [i, n), fewer than 64: lanes without a value stay as they are. */
WF_INLINE void norm4_tail(wf_vec_f32 a[4][4], const float *x, int64_t i, int64_t n,
                          const norm4_rows *m)
{
    WF_UNROLL for (int k = 0; k < 4 && i < n; k++)
    {
        const __mmask16 some = norm4_mask(n - i - 16 * k);
        WF_UNROLL for (int r = 0; r < 4; r++)
        {
            const __m512 v = _mm512_maskz_loadu_ps(some, x + r * n + i + 16 * k);
            const __m512 t = (__m512)norm4_term((wf_vec_f32)v, m, r), was = (__m512)a[r][k];
            a[r][k] = (wf_vec_f32)_mm512_mask_add_ps(was, some, was, t);
        }
    }
}

/* The sums over four rows of x, or of the square of x - m; n is at most 4096. Asks for so many lines at `ahead` a step. */
WF_INLINE wf_vec_f32 norm4_sums(const float *x, int64_t n, const norm4_rows *m, const float *ahead,
                                const int lines)
{
    wf_vec_f32 a[4][4];
    int64_t i = 0;
    norm4_begin(a);
    for (; i + WF_LANES <= n; i += WF_LANES, ahead += 16 * lines) {
        WF_UNROLL for (int r = 0; r < 4; r++)
        {
            WF_UNROLL for (int k = 0; k < 4; k++)
            {
                const wf_vec_f32 v = (wf_vec_f32) * (const wf_mem_f32 *)(x + r * n + i + 16 * k);
                a[r][k] = a[r][k] + norm4_term(v, m, r);
            }
            WF_UNROLL for (int k = r; k < lines; k += 4)
            {
                __builtin_prefetch(ahead + 16 * k);
            }
        }
    }
    norm4_tail(a, x, i, n, m);
    return norm4_fold(a);
}

/* Four rows of n values: y = ((x - m) * r) * w + b, and the sums over the next four. */
WF_INLINE wf_vec_f32 norm4_both(float *y, const float *x, const norm4_rows *m, const norm4_rows *r,
                                const float *w, const float *b, int64_t n, const float *next,
                                const float *ahead, int nt)
{
    wf_vec_f32 a[4][4];
    int64_t i = 0;
    norm4_begin(a);
    for (; i + WF_LANES <= n; i += WF_LANES, ahead += 16 * NORM4_BOTH) {
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            const int64_t at = i + 16 * k;
            const wf_vec_f32 ws = (wf_vec_f32) * (const wf_mem_f32 *)(w + at);
            const wf_vec_f32 bs = (wf_vec_f32) * (const wf_mem_f32 *)(b + at);
            WF_UNROLL for (int q = 0; q < 4; q++)
            {
                const wf_vec_f32 v = (wf_vec_f32) * (const wf_mem_f32 *)(x + q * n + at);
                const wf_vec_f32 out = ((v - m->v[q]) * r->v[q]) * ws + bs;
                if (q < NORM4_BOTH / 4) {
                    __builtin_prefetch(ahead + 16 * (k * (NORM4_BOTH / 4) + q));
                }
                if (nt) {
                    WF_STREAM_f32(y + q * n + at, out);
                } else {
                    *(wf_mem_f32 *)(y + q * n + at) = (wf_mem_f32)out;
                }
                a[q][k] = a[q][k] + (wf_vec_f32) * (const wf_mem_f32 *)(next + q * n + at);
            }
        }
    }
    norm4_tail(a, next, i, n, NULL);
    for (; i < n; i += 16) {
        const __mmask16 some = norm4_mask(n - i);
        const __m512 ws = _mm512_maskz_loadu_ps(some, w + i);
        const __m512 bs = _mm512_maskz_loadu_ps(some, b + i);
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            const __m512 v = _mm512_maskz_loadu_ps(some, x + k * n + i);
            const __m512 out = ((v - (__m512)m->v[k]) * (__m512)r->v[k]) * ws + bs;
            _mm512_mask_storeu_ps(y + k * n + i, some, out);
        }
    }
    return norm4_fold(a);
}

/* Four times `groups` rows of n values, one after the other. */
static void norm4(float *y, const float *x, const float *w, const float *b, int64_t n, double eps,
                  float *mean, float *rstd, int64_t groups, int nt)
{
    const int64_t four = 4 * n, squares = n / WF_LANES * NORM4_SQUARES * 16;
    norm4_rows m, r;
    wf_vec_f32 s = norm4_sums(x, n, NULL, x + four, NORM4_ALL);
    for (; groups > 0; groups--, x += four, y += four, mean += 4, rstd += 4) {
        const float *next = groups > 1 ? x + four : x, *ahead = x + 2 * four;
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            mean[k] = s[4 * k] / (float)n;
            m.v[k] = (wf_vec_f32){0} + mean[k];
        }
        s = norm4_sums(x, n, &m, ahead, NORM4_SQUARES);
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            rstd[k] = 1.0f / SQRT(s[4 * k] / (float)n + (float)eps);
            r.v[k] = (wf_vec_f32){0} + rstd[k];
        }
        s = nt ? norm4_both(y, x, &m, &r, w, b, n, next, ahead + squares, 1)
               : norm4_both(y, x, &m, &r, w, b, n, next, ahead + squares, 0);
    }
}
#endif
#endif
