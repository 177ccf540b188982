/*
 * eager/kernels/norm4.h -- layer_norm and rms_norm of four rows of f32 at once, where 64 lanes are four registers.
 *
 * A row's three passes wait for one another (a sum is folded, divided, rooted before the next begins); four rows share
 * these waits, and the loads of w and b. The four rows after these are fetched meanwhile, some lines in every step
 * of every pass: bursts would wait for room.
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

/* The sums over four rows of x - m, or of its square; n is at most 4096. Fetches 4 lines at `ahead` a step. */
WF_INLINE norm4_rows norm4_sums(const float *x, int64_t n, const norm4_rows *m, bool square,
                                const float *ahead)
{
    wf_vec_f32 a[4][4];
    WF_UNROLL for (int r = 0; r < 4; r++)
    {
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            a[r][k] = -(wf_vec_f32){0};
        }
    }
    int64_t i = 0;
    for (; i + WF_LANES <= n; i += WF_LANES, ahead += WF_LANES) {
        WF_UNROLL for (int r = 0; r < 4; r++)
        {
            WF_UNROLL for (int k = 0; k < 4; k++)
            {
                wf_vec_f32 v = (wf_vec_f32) * (const wf_mem_f32 *)(x + r * n + i + 16 * k);
                if (square) {
                    v = v - m->v[r];
                    v = v * v;
                }
                a[r][k] = a[r][k] + v;
            }
            __builtin_prefetch(ahead + 16 * r);
        }
    }
    WF_UNROLL for (int k = 0; k < 4 && i < n; k++) /* lanes without a value stay as they are */
    {
        const __mmask16 some = norm4_mask(n - i - 16 * k);
        WF_UNROLL for (int r = 0; r < 4; r++)
        {
            __m512 v = _mm512_maskz_loadu_ps(some, x + r * n + i + 16 * k);
            if (square) {
                v = v - (__m512)m->v[r];
                v = v * v;
            }
            a[r][k] = (wf_vec_f32)_mm512_mask_add_ps((__m512)a[r][k], some, (__m512)a[r][k], v);
        }
    }
    norm4_rows s;
    WF_UNROLL for (int r = 0; r < 4; r++)
    {
        s.v[r] = (a[r][0] + a[r][2]) + (a[r][1] + a[r][3]);
    }
    s.v[0] = wf_fold4_f32(s.v[0], s.v[1], s.v[2], s.v[3]);
    return s;
}

/* y = ((x - m) * r) * w + b in four rows; the other half of the rows to come is fetched. */
WF_INLINE void norm4_affine(float *y, const float *x, const norm4_rows *m, const norm4_rows *r,
                            const float *w, const float *b, int64_t n, const float *ahead, int nt)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16, ahead += 32) {
        const wf_vec_f32 ws = (wf_vec_f32) * (const wf_mem_f32 *)(w + i);
        const wf_vec_f32 bs = (wf_vec_f32) * (const wf_mem_f32 *)(b + i);
        __builtin_prefetch(ahead);
        __builtin_prefetch(ahead + 16);
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            const wf_vec_f32 v = (wf_vec_f32) * (const wf_mem_f32 *)(x + k * n + i);
            const wf_vec_f32 out = ((v - m->v[k]) * r->v[k]) * ws + bs;
            if (nt) {
                WF_STREAM_f32(y + k * n + i, out);
            } else {
                *(wf_mem_f32 *)(y + k * n + i) = (wf_mem_f32)out;
            }
        }
    }
    if (i < n) {
        const __mmask16 some = norm4_mask(n - i);
        const __m512 ws = _mm512_maskz_loadu_ps(some, w + i),
                     bs = _mm512_maskz_loadu_ps(some, b + i);
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            const __m512 v = _mm512_maskz_loadu_ps(some, x + k * n + i);
            const __m512 out = ((v - (__m512)m->v[k]) * (__m512)r->v[k]) * ws + bs;
            _mm512_mask_storeu_ps(y + k * n + i, some, out);
        }
    }
}

/* Four rows of n values, one after the other; mean may be NULL. */
static void norm4(float *y, const float *x, const float *w, const float *b, int64_t n, double eps,
                  int center, float *mean, float *rstd, int nt)
{
    const float *next = x + 4 * n;
    norm4_rows m = {{(wf_vec_f32){0}, (wf_vec_f32){0}, (wf_vec_f32){0}, (wf_vec_f32){0}}}, r;
    if (center) {
        const wf_vec_f32 s = norm4_sums(x, n, NULL, false, next).v[0];
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            m.v[k] = (wf_vec_f32){0} + (s[4 * k] / (float)n);
        }
    }
    const wf_vec_f32 s = norm4_sums(x, n, &m, true, next + n).v[0];
    WF_UNROLL for (int k = 0; k < 4; k++)
    {
        const float one = 1.0f / SQRT(s[4 * k] / (float)n + (float)eps);
        r.v[k] = (wf_vec_f32){0} + one;
        rstd[k] = one;
        if (mean != NULL) {
            mean[k] = m.v[k][0];
        }
    }
    if (nt) {
        norm4_affine(y, x, &m, &r, w, b, n, next + 2 * n, 1);
    } else {
        norm4_affine(y, x, &m, &r, w, b, n, next + 2 * n, 0);
    }
}
#endif
#endif
