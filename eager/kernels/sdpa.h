/*
 * eager/kernels/sdpa.h -- the elementwise inner loops of attention, one table per instruction set.
 *
 * Score blocks are [rows][ld] with ld a multiple of WF_SDPA_LANES; columns from `cols` (or, causal,
 * from the row's own limit) on are masked. Row sums run over WF_SDPA_LANES partial sums and a fixed
 * tree, so that bits do not depend on the vector width.
 */
#ifndef EAGER_KERNELS_SDPA_H
#define EAGER_KERNELS_SDPA_H

#include <stdint.h>

enum { WF_SDPA_LANES = 16 };

typedef struct wf_sdpa_block {
    void *s;          /* scores in, probabilities out */
    const void *bias; /* added after scaling, or NULL */
    const void *keep; /* bytes, or NULL: scores where they are 0 are masked; not both */
    int64_t
        mask_rs; /* elements from row to row of either; only columns that are not masked otherwise are read */
    int64_t rows, cols, ld;
    int64_t limit; /* row r keeps columns below limit + r (causal); >= cols when not causal */
    double scale;
} wf_sdpa_block;

typedef struct wf_sdpa_kernels {
    /* One step of the online softmax: s := exp(scale s + bias - m'), m' the new row maximum;
     * corr := exp(m - m'), l := l corr + row sum, m := m'. */
    void (*softmax)(const wf_sdpa_block *b, void *m, void *l, void *corr);
    /* acc[rows][n] := acc corr + add */
    void (*rescale)(void *acc, const void *add, const void *corr, int64_t rows, int64_t n);
    /* out := acc / l (0 where l is 0), lse := m + log(l) */
    void (*finish)(void *out, const void *acc, const void *m, const void *l, void *lse,
                   int64_t rows, int64_t n);
    /* s := exp(scale s + bias - lse), 0 in rows whose lse is -inf */
    void (*probabilities)(const wf_sdpa_block *b, const void *lse);
    /* dp := p (dp - d) scale, d one value a row */
    void (*dscores)(const wf_sdpa_block *b, void *dp, const void *d);
    /* d[r] := sum of g[r][..] o[r][..] */
    void (*row_dot)(void *d, const void *g, const void *o, int64_t rows, int64_t n);
    /* acc[0..n) += add */
    void (*accumulate)(void *acc, const void *add, int64_t n);
} wf_sdpa_kernels;

extern const wf_sdpa_kernels wf_sdpa_f32_sse2, wf_sdpa_f32_avx2, wf_sdpa_f32_avx512;
extern const wf_sdpa_kernels wf_sdpa_f64_sse2, wf_sdpa_f64_avx2, wf_sdpa_f64_avx512;

#endif
