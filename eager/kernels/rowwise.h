/*
 * eager/kernels/rowwise.h -- one contiguous row at a time: softmax, norms, cross entropy.
 *
 * Operands are of one compute type (f32 or f64); eager/rows.h converts other dtypes. Each function
 * equals, bit for bit, the composition of elementwise rows and canonical reductions written beside it.
 *
 * nt: results are stored past the caches; rows of the result must then start at a multiple of 64 bytes
 * (softmax: and hold at most WF_BLOCK values), and a store fence must follow. The row behind each operand is
 * fetched meanwhile, as the next one to come.
 */
#ifndef EAGER_KERNELS_ROWWISE_H
#define EAGER_KERNELS_ROWWISE_H

#include <stddef.h>
#include <stdint.h>

typedef struct wf_row_kernels {
    /* m = max(x); e = exp(x - m); y = e / sum(e).   y may be x */
    void (*softmax)(void *y, const void *x, int64_t n, int nt);
    /* m = max(x); y = (x - m) - log(sum(exp(x - m)));   y may be x */
    void (*log_softmax)(void *y, const void *x, int64_t n, int nt);
    /* dx = y * (g - sum(g * y)) */
    void (*softmax_bwd)(void *dx, const void *g, const void *y, int64_t n, int nt);
    /* dx = g - exp(y) * sum(g) */
    void (*log_softmax_bwd)(void *dx, const void *g, const void *y, int64_t n, int nt);
    /* mean = sum(x) / n, or 0 if !center; var = sum((x - mean) * (x - mean)) / n;
     * rstd = 1 / sqrt(var + eps); y = ((x - mean) * rstd) * w + b; w, b may be NULL. mean may be NULL. */
    void (*norm)(void *y, const void *x, const void *w, const void *b, int64_t n, double eps,
                 int center, void *mean, void *rstd, int nt);
    /* The same for rows that follow one another; mean and rstd have a value for each. */
    void (*norms)(void *y, const void *x, const void *w, const void *b, int64_t n, double eps,
                  int center, void *mean, void *rstd, int64_t rows, int nt);
    /* xhat = (x - mean) * rstd; gw = g * w; dx = rstd * ((gw - sum(gw) / n) - xhat * (sum(gw * xhat) / n));
     * without the first sum, and mean = 0, if mean is NULL; gw = g if w is NULL. */
    void (*norm_bwd)(void *dx, const void *g, const void *x, const void *w, int64_t n,
                     const void *mean, const void *rstd, int nt);
    /* norm with mean, and with a w and a b for every `each` values: y = fma((x - mean) * rstd, w, b), of one alone the product
     * or the sum (both are there if each is 1). nt: runs of `each` values start at a multiple of 64 bytes, too. */
    void (*norm_runs)(void *y, const void *x, const void *w, const void *b, int64_t n, int64_t each,
                      double eps, void *mean, void *rstd, int nt);
    /* Its last step; n values, the last run may be short. */
    void (*affine_runs)(void *y, const void *x, const void *w, const void *b, int64_t n,
                        int64_t each, const void *mean, const void *rstd, int nt);
    /* gw = g * w, a w for every `each` values;   gw may be g */
    void (*scale_runs)(void *gw, const void *g, const void *w, int64_t n, int64_t each);
    /* n values more in the lanes of the canonical sums of g * ((x - mean) * rstd), dw[64], and of g, db[64], lane `first` being
     * the first one's. Lanes begin as -0. */
    void (*norm_lanes)(void *dw, void *db, const void *g, const void *x, const void *mean,
                       const void *rstd, int64_t n, int64_t first);
    /* m = max(x), 0 if not finite; *lse = m + log(sum(exp(x - m)));
     * loss = lse - x[t]; smooth != 0: (1 - smooth) * loss + smooth * (sum(lse - x) / n) */
    void (*cross_entropy)(void *loss, void *lse, const void *x, int64_t n, int64_t t,
                          double smooth);
    /* dx = g * (exp(x - lse) - q), q = smooth / n, at t (1 - smooth) + smooth / n; both factors of
     * the smoothing are computed in f64 and rounded once */
    void (*cross_entropy_bwd)(void *dx, const void *x, int64_t n, int64_t t, double smooth,
                              const void *g, const void *lse, int nt);
    /* y = ((x - mean) * rstd) * w + b; mean .. b per column if step is 1; w and b may be NULL, per column both or neither */
    void (*affine)(void *y, const void *x, const void *mean, const void *rstd, const void *w,
                   const void *b, int step, int64_t n, int nt);
    /* dx = s * ((g - a) - ((x - mean) * rstd) * c); all but g, x per column if step is 1 */
    void (*affine_bwd)(void *dx, const void *g, const void *x, const void *mean, const void *rstd,
                       const void *s, const void *a, const void *c, int step, int64_t n, int nt);
    /* norm_bwd of one row, and its terms of the sums over rows: dw += g * xhat, db += g, or = if init.
     * dx NULL: the sums alone; db may be NULL. The rows `ahead` elements on are fetched meanwhile. */
    void (*norm_bwd_sums)(void *dx, void *dw, void *db, const void *g, const void *x, const void *w,
                          int64_t n, const void *mean, const void *rstd, int64_t ahead, int init,
                          int nt);
    /* Rows of n: y[j] = fma(b[above[j]], far[j], a[below[j]] * near[j]), j < m. */
    void (*blend)(void *y, const void *a, const void *b, const int64_t *below, const int64_t *above,
                  const void *near, const void *far, int64_t m, int64_t n);
} wf_row_kernels;

extern const wf_row_kernels wf_row_kernels_sse2[2];
extern const wf_row_kernels wf_row_kernels_avx2[2];
extern const wf_row_kernels wf_row_kernels_avx512[2];

/* For WEFT_F32 or WEFT_F64, and this machine. */
const wf_row_kernels *wf_row_kernels_of(int compute);

/* Planes of `each` values that follow one another, [0] of f32, [1] of bf16 converted on the way, both operands and the result; what
 * there is one of for each plane is f32. NULL: a row at a time instead. */
enum { WF_PLANES_OWN = 1 /* a mean and rstd for each, not the first for all */, WF_PLANES_FUSED };
typedef struct wf_plane_kernels {
    /* affine with step 0 or (fused) affine_runs;   w, b may be NULL; y may be x */
    void (*affine[2])(void *y, const void *x, const void *mean, const void *rstd, const void *w,
                      const void *b, int64_t each, int64_t planes, int how);
    /* affine_bwd with step 0; per: mean, rstd, s, a, c */
    void (*bwd[2])(void *dx, const void *g, const void *x, const void *const *per, int64_t each,
                   int64_t planes);
} wf_plane_kernels;

extern const wf_plane_kernels wf_plane_kernels_sse2, wf_plane_kernels_avx2, wf_plane_kernels_avx512;

const wf_plane_kernels *wf_plane_kernels_now(void);

#endif
