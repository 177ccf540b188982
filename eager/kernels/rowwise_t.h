/*
 * eager/kernels/rowwise_t.h -- template: the row kernels of one compute type.
 *
 * The includer defines T and SFX and has instantiated the canonical sums named here and largest_<SFX>.
 */
#define FN(name) WF_CAT(name, SFX)
#define LOOP WF_IVDEP for (int64_t i = 0; i < n; i++)

/* sum(exp(x - m)), block by block while it is in L1; e receives the exponentials unless NULL. */
static T FN(sum_exp)(T *e, const T *x, T m, int64_t n0)
{
    _Alignas(64) T parts[WF_BLOCK];
    _Alignas(64) T buf[WF_BLOCK];
    int64_t blocks = (n0 + WF_BLOCK - 1) / WF_BLOCK, part = 0;
    T *outer = blocks > WF_BLOCK ? NULL : parts;
    T lane[WF_LANES];
    int64_t groups = 0;
    for (int64_t b = 0; b < blocks; b++) {
        const T *from = x + b * WF_BLOCK;
        T *to = e != NULL ? e + b * WF_BLOCK : buf;
        int64_t n = n0 - b * WF_BLOCK < WF_BLOCK ? n0 - b * WF_BLOCK : WF_BLOCK;
        LOOP
        {
            to[i] = FN(exp)(SUB(from[i], m));
        }
        parts[part++] = FN(sum)(to, NULL, NULL, 0, 0, n);
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

static void FN(softmax)(void *yv, const void *xv, int64_t n)
{
    T *y = yv;
    const T *x = xv;
    T s = FN(sum_exp)(y, x, FN(largest)(x, n), n);
    LOOP
    {
        y[i] = DIV(y[i], s);
    }
}
static void FN(log_softmax)(void *yv, const void *xv, int64_t n)
{
    T *y = yv;
    const T *x = xv;
    T m = FN(largest)(x, n);
    T log_s = FN(log)(FN(sum_exp)(NULL, x, m, n));
    LOOP
    {
        y[i] = SUB(SUB(x[i], m), log_s);
    }
}
static void FN(softmax_bwd)(void *dxv, const void *gv, const void *yv, int64_t n)
{
    T *dx = dxv;
    const T *g = gv, *y = yv;
    T s = FN(sum_xy)(g, y, NULL, 0, 0, n);
    LOOP
    {
        dx[i] = MUL(y[i], SUB(g[i], s));
    }
}
static void FN(log_softmax_bwd)(void *dxv, const void *gv, const void *yv, int64_t n)
{
    T *dx = dxv;
    const T *g = gv, *y = yv;
    T s = FN(sum)(g, NULL, NULL, 0, 0, n);
    LOOP
    {
        dx[i] = SUB(g[i], MUL(FN(exp)(y[i]), s));
    }
}

WF_INLINE void FN(affine_steps)(T *y, const T *x, const T *mean, const T *rstd, const T *w,
                                const T *b, int step, int wstep, int64_t n)
{
#define XHAT MUL(SUB(x[i], mean[step * i]), rstd[step * i])
    if (w != NULL && b != NULL) {
        LOOP
        {
            y[i] = ADD(MUL(XHAT, w[wstep * i]), b[wstep * i]);
        }
    } else if (w != NULL) {
        LOOP
        {
            y[i] = MUL(XHAT, w[wstep * i]);
        }
    } else if (b != NULL) {
        LOOP
        {
            y[i] = ADD(XHAT, b[wstep * i]);
        }
    } else {
        LOOP
        {
            y[i] = XHAT;
        }
    }
#undef XHAT
}

static void FN(affine)(void *y, const void *x, const void *mean, const void *rstd, const void *wv,
                       const void *bv, int step, int64_t n)
{
    const T *w = wv, *b = bv;
    if (step != 0) {
        FN(affine_steps)(y, x, mean, rstd, w, b, 1, 1, n);
    } else {
        T m = *(const T *)mean, r = *(const T *)rstd;
        T w0 = w != NULL ? *w : (T)0, b0 = b != NULL ? *b : (T)0;
        FN(affine_steps)(y, x, &m, &r, w != NULL ? &w0 : NULL, b != NULL ? &b0 : NULL, 0, 0, n);
    }
}

static void FN(norm)(void *y, const void *xv, const void *w, const void *b, int64_t n, double eps,
                     int center, void *mean, void *rstd)
{
    const T *x = xv;
    T m = center ? DIV(FN(sum)(x, NULL, NULL, 0, 0, n), (T)n) : (T)0;
    T var = DIV(FN(sum_sqdev)(x, NULL, NULL, m, 0, n), (T)n);
    T r = DIV((T)1, SQRT(ADD(var, (T)eps)));
    FN(affine_steps)(y, x, &m, &r, w, b, 0, 1, n);
    if (mean != NULL) {
        memcpy(mean, &m, sizeof m);
    }
    memcpy(rstd, &r, sizeof r);
}

static void FN(norm_bwd)(void *dxv, const void *gv, const void *xv, const void *wv, int64_t n,
                         const void *mean, const void *rstd)
{
    T *dx = dxv;
    const T *g = gv, *x = xv, *w = wv;
    T m = (T)0, r, a = (T)0, c;
    memcpy(&r, rstd, sizeof r);
    if (mean != NULL) {
        memcpy(&m, mean, sizeof m);
        a = w != NULL ? FN(sum_xy)(g, w, NULL, 0, 0, n) : FN(sum)(g, NULL, NULL, 0, 0, n);
        a = DIV(a, (T)n);
    }
    c = w != NULL ? FN(sum_gw_xhat)(x, g, w, m, r, n) : FN(sum_g_xhat)(x, g, NULL, m, r, n);
    c = DIV(c, (T)n);
    if (w != NULL) {
        LOOP
        {
            T xhat = MUL(SUB(x[i], m), r);
            dx[i] = MUL(r, SUB(SUB(MUL(g[i], w[i]), a), MUL(xhat, c)));
        }
    } else {
        LOOP
        {
            T xhat = MUL(SUB(x[i], m), r);
            dx[i] = MUL(r, SUB(SUB(g[i], a), MUL(xhat, c)));
        }
    }
}

static void FN(cross_entropy)(void *lossv, void *lsev, const void *xv, int64_t n, int64_t t,
                              double smooth)
{
    const T *x = xv;
    T m = FN(largest)(x, n);
    m = m - m == (T)0 ? m : (T)0;
    T lse = ADD(m, FN(log)(FN(sum_exp)(NULL, x, m, n)));
    memcpy(lsev, &lse, sizeof lse);
    T loss = (T)0;
    if (t >= 0) {
        loss = SUB(lse, x[t]);
        if (smooth != 0.0) {
            T mean = DIV(FN(sum_from)(x, NULL, NULL, lse, 0, n), (T)n);
            loss = ADD(MUL((T)(1.0 - smooth), loss), MUL((T)smooth, mean));
        }
    }
    memcpy(lossv, &loss, sizeof loss);
}

static void FN(cross_entropy_bwd)(void *dxv, const void *xv, int64_t n, int64_t t, double smooth,
                                  const void *gv, const void *lsev)
{
    T *dx = dxv;
    const T *x = xv;
    if (t < 0) {
        memset(dx, 0, (size_t)n * sizeof(T));
        return;
    }
    T g = *(const T *)gv, lse = *(const T *)lsev, q = (T)(smooth / (double)n);
    T at = MUL(g, SUB(FN(exp)(SUB(x[t], lse)), ADD((T)(1.0 - smooth), q)));
    LOOP
    {
        dx[i] = MUL(g, SUB(FN(exp)(SUB(x[i], lse)), q));
    }
    dx[t] = at;
}

static void FN(affine_bwd)(void *dxv, const void *gv, const void *xv, const void *meanv,
                           const void *rstdv, const void *sv, const void *av, const void *cv,
                           int step, int64_t n)
{
    T *dx = dxv;
    const T *g = gv, *x = xv, *mean = meanv, *rstd = rstdv, *s = sv, *a = av, *c = cv;
    if (step != 0) {
        LOOP
        {
            T xhat = MUL(SUB(x[i], mean[i]), rstd[i]);
            dx[i] = MUL(s[i], SUB(SUB(g[i], a[i]), MUL(xhat, c[i])));
        }
    } else {
        T m = *mean, r = *rstd, s0 = *s, a0 = *a, c0 = *c;
        LOOP
        {
            T xhat = MUL(SUB(x[i], m), r);
            dx[i] = MUL(s0, SUB(SUB(g[i], a0), MUL(xhat, c0)));
        }
    }
}

static void FN(g_xhat)(void *dstv, const void *gv, const void *xv, const void *mean,
                       const void *rstd, int64_t n)
{
    T *dst = dstv;
    const T *g = gv, *x = xv;
    T m = mean != NULL ? *(const T *)mean : (T)0, r = *(const T *)rstd;
    LOOP
    {
        dst[i] = MUL(g[i], MUL(SUB(x[i], m), r));
    }
}
#undef LOOP
#undef FN
