/*
 * eager/kernels/sdpa_t.h -- the loops of sdpa.h for one compute type: T, EXP(x), LOG(x), FN(name), and
 * EXP_ROW(s, base, n): s[0..n) := exp(s - base), ROW_MAX(s, n, start), n whole lanes, TREE(lane).
 *
 * Part of sdpa.inc.c, which includes it once per type. Loops over ld have whole lanes, so they
 * vectorise without tails.
 */

/* Scaled, biased and masked scores of row r in place; returns the row. Columns from *live on, whole spans, are all
 * masked, and left as they are. */
static inline T *FN(masked_row)(const wf_sdpa_block *b, int64_t r, int64_t *live)
{
    T *s = (T *)b->s + r * b->ld;
    const T scale = (T)b->scale;
    const int64_t own = b->limit + r;
    const int64_t n = own < b->cols ? (own > 0 ? own : 0) : b->cols;
    const int64_t spans = (n + SPAN - 1) / SPAN * SPAN;
    *live = spans < b->ld ? spans : b->ld;
    if (b->bias) {
        const T *bias = (const T *)b->bias + r * b->mask_rs;
        for (int64_t j = 0; j < n; j++) {
            s[j] = s[j] * scale + bias[j];
        }
    } else if (b->keep) {
        const uint8_t *keep = (const uint8_t *)b->keep + r * b->mask_rs;
        for (int64_t j = 0; j < n; j++) {
            s[j] = s[j] * scale + (keep[j] ? (T)0 : -(T)INFINITY);
        }
    } else {
        for (int64_t j = 0; j < n; j++) {
            s[j] = s[j] * scale;
        }
    }
    for (int64_t j = n; j < *live; j++) {
        s[j] = -(T)INFINITY;
    }
    return s;
}

/* s[0..ld) := exp(s - base), where columns from `live` on are -inf. */
static inline void FN(exp_row)(T *s, T base, int64_t live, int64_t ld)
{
    const T none = base == base ? (T)0 : base; /* exp(-inf - base) */
    EXP_ROW(s, base, live);
    for (int64_t j = live; j < ld; j++) {
        s[j] = none;
    }
}

__attribute__((unused)) static inline T FN(tree)(const T *lane)
{
    T t[WF_SDPA_LANES];
    for (int k = 0; k < WF_SDPA_LANES; k++) {
        t[k] = lane[k];
    }
    for (int half = WF_SDPA_LANES / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; k++) {
            t[k] += t[k + half];
        }
    }
    return t[0];
}

/* The largest score; NaN is passed over here and comes back through exp and the row sum. */
static inline T FN(row_max)(const T *s, int64_t ld, T start)
{
    T lane[WF_SDPA_LANES];
    for (int k = 0; k < WF_SDPA_LANES; k++) {
        lane[k] = start;
    }
    for (int64_t j = 0; j < ld; j += WF_SDPA_LANES) {
        for (int k = 0; k < WF_SDPA_LANES; k++) {
            lane[k] = s[j + k] > lane[k] ? s[j + k] : lane[k];
        }
    }
    T m = start;
    for (int k = 0; k < WF_SDPA_LANES; k++) {
        m = lane[k] > m ? lane[k] : m;
    }
    return m;
}

static void FN(softmax)(const wf_sdpa_block *b, void *m_, void *l_, void *corr_)
{
    T *m = m_, *l = l_, *corr = corr_;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t live;
        T *s = FN(masked_row)(b, r, &live);
        const T top = ROW_MAX(s, live, m[r]);
        /* Nothing to attend to so far: any finite base gives exp(-inf) = 0 everywhere. */
        const T base = top == -(T)INFINITY ? (T)0 : top;
        T lane[WF_SDPA_LANES] = {0};
        FN(exp_row)(s, base, live, b->ld);
        for (int64_t j = 0; j < live; j += WF_SDPA_LANES) { /* the others are 0 */
            for (int k = 0; k < WF_SDPA_LANES; k++) {
                lane[k] += s[j + k];
            }
        }
        corr[r] = m[r] == -(T)INFINITY ? (T)0 : EXP(m[r] - base); /* exp(-inf) underflows */
        l[r] = l[r] * corr[r] + TREE(lane);
        m[r] = top;
    }
}

static void FN(rescale)(void *acc_, const void *add_, const void *corr_, int64_t rows, int64_t n)
{
    T *acc = acc_;
    const T *add = add_, *corr = corr_;
    for (int64_t r = 0; r < rows; r++, acc += n, add += n) {
        const T c = corr[r];
        for (int64_t i = 0; i < n; i++) {
            acc[i] = acc[i] * c + add[i];
        }
    }
}

static void FN(finish)(void *out_, const void *acc_, const void *m_, const void *l_, void *lse_,
                       int64_t rows, int64_t n)
{
    T *out = out_, *lse = lse_;
    const T *acc = acc_, *m = m_, *l = l_;
    for (int64_t r = 0; r < rows; r++, acc += n, out += n) {
        const T sum = l[r];
        for (int64_t i = 0; i < n; i++) {
            out[i] = sum == 0 ? (T)0 : acc[i] / sum;
        }
    }
    for (int64_t r = 0; r < rows;
         r++) { /* apart, so that logarithms are taken of several rows at once */
        lse[r] = l[r] == 0 ? -(T)INFINITY : m[r] + LOG(l[r]);
    }
}

static void FN(probabilities)(const wf_sdpa_block *b, const void *lse_)
{
    const T *lse = lse_;
    for (int64_t r = 0; r < b->rows; r++) {
        int64_t live;
        T *s = FN(masked_row)(b, r, &live);
        const T base = lse[r];
        if (base == -(T)INFINITY) {
            for (int64_t j = 0; j < b->ld; j++) {
                s[j] = 0;
            }
            continue;
        }
        FN(exp_row)(s, base, live, b->ld);
    }
}

static void FN(dscores)(const wf_sdpa_block *b, void *dp_, const void *d_)
{
    const T scale = (T)b->scale, *d = d_;
    for (int64_t r = 0; r < b->rows; r++) {
        const T *p = (const T *)b->s + r * b->ld, dr = d[r];
        T *dp = (T *)dp_ + r * b->ld;
        for (int64_t j = 0; j < b->cols; j++) {
            dp[j] = p[j] * (dp[j] - dr) * scale;
        }
    }
}

static void FN(row_dot)(void *d_, const void *g_, const void *o_, int64_t rows, int64_t n)
{
    T *d = d_;
    const T *g = g_, *o = o_;
    for (int64_t r = 0; r < rows; r++, g += n, o += n) {
        T lane[WF_SDPA_LANES] = {0};
        int64_t i = 0;
        for (; i + WF_SDPA_LANES <= n; i += WF_SDPA_LANES) {
            for (int k = 0; k < WF_SDPA_LANES; k++) {
                lane[k] += g[i + k] * o[i + k];
            }
        }
        for (int k = 0; i + k < n; k++) {
            lane[k] += g[i + k] * o[i + k];
        }
        d[r] = TREE(lane);
    }
}

static void FN(accumulate)(void *acc_, const void *add_, int64_t n)
{
    T *acc = acc_;
    const T *add = add_;
    for (int64_t i = 0; i < n; i++) {
        acc[i] += add[i];
    }
}

const wf_sdpa_kernels WF_PASTE(FN(wf_sdpa), WF_ISA) = {
    FN(softmax), FN(rescale), FN(finish),     FN(probabilities),
    FN(dscores), FN(row_dot), FN(accumulate),
};
