/*
 * eager/kernels/rowwise_t.h -- template: the row kernels of one compute type.
 *
 * The includer defines T, SFX and ESIZE and has instantiated the canonical sums named here,
 * largest_<SFX> and rowwise_exp.h. Passes are written in registers, so that a result that no cache
 * will hold can be stored past them (nt).
 */
#define FN(name) WF_JOIN(name, SFX)
#define V WF_JOIN(wf_vec, SFX)
#define VMEM WF_JOIN(wf_mem, SFX)
#define VN (WF_VBYTES / ESIZE)
#define STREAM WF_JOIN(WF_STREAM, SFX)

#define REG(p) ((V)(*(const VMEM *)((p) + i)))
#define ONE(p) ((p)[i])
/* dst[i] = EXPR(L) of operands L(p), elementwise: whole registers, then the rest. Stores past the caches would wait for
 * the rows after those of operands A and B, which are fetched meanwhile. */
#define PASS(dst, EXPR) PASS_AND(dst, EXPR, )
#define PASS_AHEAD(dst, EXPR, A, B)                                                                \
    PASS_AND(dst, EXPR, __builtin_prefetch((A) + n + i); __builtin_prefetch((B) + n + i);)
#define PASS_AND(dst, EXPR, FETCH)                                                                 \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        if (nt) {                                                                                  \
            _Pragma("GCC unroll 4") for (; i + VN <= n; i += VN)                                   \
            {                                                                                      \
                STREAM((dst) + i, EXPR(REG));                                                      \
                FETCH                                                                              \
            }                                                                                      \
        } else {                                                                                   \
            _Pragma("GCC unroll 4") for (; i + VN <= n; i += VN)                                   \
            {                                                                                      \
                *(VMEM *)((dst) + i) = (VMEM)(EXPR(REG));                                          \
            }                                                                                      \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            (dst)[i] = EXPR(ONE);                                                                  \
        }                                                                                          \
    } while (0)

static void FN(softmax)(void *yv, const void *xv, int64_t n, int nt)
{
    T *y = yv;
    const T *x = xv, m = FN(largest)(x, n);
    _Alignas(64) T own[WF_BLOCK]; /* exponentials on their way past the caches */
    T *e = nt ? own : y;
    T s = FN(sum_exp)(e, x, m, n);
#if ESIZE == 4 && defined(WF_HAS_X4)
    if (nt) {
        shares_f32(y, e, s, n, 1);
    } else {
        shares_f32(y, e, s, n, 0);
    }
#else
#define SHARE(L) (L(e) / s)
    PASS(y, SHARE);
#undef SHARE
#endif
}
static void FN(log_softmax)(void *yv, const void *xv, int64_t n, int nt)
{
    T *y = yv;
    const T *x = xv, m = FN(largest)(x, n);
    T log_s = FN(log)(FN(sum_exp)(NULL, x, m, n));
#define BELOW(L) ((L(x) - m) - log_s)
    PASS(y, BELOW);
#undef BELOW
}
static void FN(softmax_bwd)(void *dxv, const void *gv, const void *yv, int64_t n, int nt)
{
    T *dx = dxv;
    const T *g = gv, *y = yv, s = FN(sum_xy)(g, y, NULL, 0, 0, n);
#define SHARE(L) (L(y) * (L(g) - s))
    PASS_AHEAD(dx, SHARE, g, y);
#undef SHARE
}
static void FN(log_softmax_bwd)(void *dxv, const void *gv, const void *yv, int64_t n, int nt)
{
    const T *g = gv;
    FN(minus_exp)(dxv, g, yv, FN(sum)(g, NULL, NULL, 0, 0, n), n, nt);
}

/* mean, rstd: scalars. */
WF_INLINE void FN(affine_row)(T *y, const T *x, T m, T r, const T *w, const T *b, int64_t n, int nt)
{
#define XHAT(L) ((L(x) - m) * r)
#define XHAT_W(L) (XHAT(L) * L(w))
#define XHAT_B(L) (XHAT(L) + L(b))
#define XHAT_WB(L) (XHAT(L) * L(w) + L(b))
    if (w != NULL && b != NULL) {
        PASS(y, XHAT_WB);
    } else if (w != NULL) {
        PASS(y, XHAT_W);
    } else if (b != NULL) {
        PASS(y, XHAT_B);
    } else {
        PASS(y, XHAT);
    }
#undef XHAT_W
#undef XHAT_B
#undef XHAT_WB
#undef XHAT
}

static void FN(affine)(void *yv, const void *xv, const void *meanv, const void *rstdv,
                       const void *wv, const void *bv, int step, int64_t n, int nt)
{
    T *y = yv;
    const T *x = xv, *mean = meanv, *rstd = rstdv, *w = wv, *b = bv;
#define XHAT(L) ((L(x) - L(mean)) * L(rstd))
#define XHAT_WB(L) (XHAT(L) * L(w) + L(b))
#define PLANE(L) (((L(x) - m) * r) * w0 + b0)
    if (step == 0) { /* times 1 or plus -0 changes no bits */
        const T m = *mean, r = *rstd, w0 = w != NULL ? *w : (T)1, b0 = b != NULL ? *b : -(T)0;
        PASS(y, PLANE);
    } else if (w != NULL) {
        PASS(y, XHAT_WB);
    } else {
        PASS(y, XHAT);
    }
#undef XHAT_WB
#undef XHAT
#undef PLANE
}

static void FN(norm)(void *y, const void *xv, const void *w, const void *b, int64_t n, double eps,
                     int center, void *mean, void *rstd, int nt)
{
    const T *x = xv;
    T m = center ? DIV(FN(sum)(x, NULL, NULL, 0, 0, n), (T)n) : (T)0;
    T var = DIV(FN(sum_sqdev)(x, x + n, NULL, m, 0, n), (T)n);
    T r = DIV((T)1, SQRT(ADD(var, (T)eps)));
    FN(affine_row)(y, x, m, r, w, b, n, nt);
    if (mean != NULL) {
        memcpy(mean, &m, sizeof m);
    }
    memcpy(rstd, &r, sizeof r);
}

static void FN(norms)(void *yv, const void *xv, const void *w, const void *b, int64_t n, double eps,
                      int center, void *meanv, void *rstdv, int64_t rows, int nt)
{
    T *y = yv, *mean = meanv, *rstd = rstdv;
    const T *x = xv;
    int64_t i = 0;
#if ESIZE == 4 && defined(WF_HAS_NORM4)
    if (n <= WF_BLOCK && w != NULL && b != NULL && center && mean != NULL && rows >= 4) {
        norm4(y, x, w, b, n, eps, mean, rstd, rows / 4, nt);
        i = rows / 4 * 4;
    }
#endif
    for (; i < rows; i++) {
        FN(norm)
        (y + i * n, x + i * n, w, b, n, eps, center, mean != NULL ? mean + i : NULL, rstd + i, nt);
    }
}

/* a * b + c, rounded once. */
WF_INLINE V FN(fused)(V a, V b, V c)
{
#if WF_VBYTES == 64 && ESIZE == 4
    return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif WF_VBYTES == 64
    return (V)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif WF_VBYTES == 32 && ESIZE == 4
    return (V)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif WF_VBYTES == 32
    return (V)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    for (int k = 0; k < VN; k++) {
        a[k] = FMA(a[k], b[k], c[k]);
    }
    return a;
#endif
}

/* y = fma((x - m) * r, w, b) of one w and one b. */
WF_INLINE void FN(affine_once)(T *y, const T *x, T m, T r, T w, T b, int64_t n, int nt)
{
    const V zero = {0}, wv = w - zero, bv = b - zero; /* of -0, too */
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        const V v = FN(fused)((REG(x) - m) * r, wv, bv);
        if (nt) {
            STREAM(y + i, v);
        } else {
            *(VMEM *)(y + i) = (VMEM)v;
        }
    }
    if (i < n) { /* one register more, part of which counts */
        T part[VN] = {0};
        memcpy(part, x + i, (size_t)(n - i) * sizeof(T));
        const V v = FN(fused)(((V) * (const VMEM *)part - m) * r, wv, bv);
        memcpy(y + i, &v, (size_t)(n - i) * sizeof(T));
    }
}

static void FN(affine_runs)(void *yv, const void *xv, const void *wv, const void *bv, int64_t n,
                            int64_t each, const void *mean, const void *rstd, int nt)
{
    T *y = yv;
    const T *x = xv, *w = wv, *b = bv, m = *(const T *)mean, r = *(const T *)rstd;
    if (each == 1) {
        WF_IVDEP for (int64_t i = 0; i < n; i++)
        {
            y[i] = FMA(MUL(SUB(x[i], m), r), w[i], b[i]);
        }
        return;
    }
    int64_t i = 0, run = 0;
#if ESIZE == 4 && WF_HAS_PLANES == 2
    if (!nt) {
        run = n / each;
        i = run * each;
        planes_f32(y, x, mean, rstd, w, b, each, run, WF_PLANES_FUSED);
    }
#endif
    for (; i < n; i += each, run++) { /* times 1 or plus -0 changes no bits */
        FN(affine_once)
        (y + i, x + i, m, r, w != NULL ? w[run] : (T)1, b != NULL ? b[run] : -(T)0,
         n - i < each ? n - i : each, nt);
    }
}

static void FN(norm_runs)(void *y, const void *xv, const void *w, const void *b, int64_t n,
                          int64_t each, double eps, void *mean, void *rstd, int nt)
{
    const T *x = xv;
    const T m = DIV(FN(sum)(x, NULL, NULL, 0, 0, n), (T)n);
    const T var = DIV(FN(sum_sqdev)(x, x + n, NULL, m, 0, n), (T)n);
    const T r = DIV((T)1, SQRT(ADD(var, (T)eps)));
    FN(affine_runs)(y, x, w, b, n, each, &m, &r, nt);
    memcpy(mean, &m, sizeof m);
    memcpy(rstd, &r, sizeof r);
}

static void FN(scale_runs)(void *gwv, const void *gv, const void *wv, int64_t n, int64_t each)
{
    T *gw = gwv;
    const T *g = gv, *w = wv;
    if (each == 1) {
        WF_IVDEP for (int64_t k = 0; k < n; k++)
        {
            gw[k] = MUL(g[k], w[k]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i += each, w++) {
        const T v = *w;
        WF_IVDEP for (int64_t k = i; k < i + each; k++)
        {
            gw[k] = MUL(g[k], v);
        }
    }
}

/* Lanes from `first` on, in registers that begin with that one; and back. */
WF_INLINE void FN(lanes_from)(V *a, const T *lanes, int64_t first)
{
    enum { NA = WF_LANES / VN };
    T twice[2 * WF_LANES];
    WF_UNROLL for (int k = 0; k < 2 * NA; k++)
    {
        *(VMEM *)(twice + k * VN) = *(const VMEM *)(lanes + k % NA * VN);
    }
    WF_UNROLL for (int k = 0; k < NA; k++)
    {
        a[k] = (V) * (const VMEM *)(twice + first + k * VN);
    }
}
WF_INLINE void FN(lanes_to)(T *lanes, const V *a, int64_t first)
{
    enum { NA = WF_LANES / VN };
    T twice[2 * WF_LANES] = {0};
    WF_UNROLL for (int k = 0; k < NA; k++)
    {
        *(VMEM *)(twice + first + k * VN) = (VMEM)a[k];
    }
    for (int64_t l = 0; l < WF_LANES; l++) {
        lanes[l] = l < first ? twice[WF_LANES + l] : twice[l];
    }
}

static void FN(norm_lanes)(void *dwv, void *dbv, const void *gv, const void *xv, const void *mean,
                           const void *rstd, int64_t n, int64_t first)
{
    enum { NA = WF_LANES / VN };
    const T *g = gv, *x = xv, m = *(const T *)mean, r = *(const T *)rstd;
    V a[NA], b[NA];
    int64_t at = 0;
    FN(lanes_from)(a, dwv, first);
    FN(lanes_from)(b, dbv, first);
    for (; at + WF_LANES <= n; at += WF_LANES) {
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            const int64_t i = at + k * VN;
            a[k] = a[k] + REG(g) * ((REG(x) - m) * r);
            b[k] = b[k] + REG(g);
        }
    }
    if (at < n) { /* -0 changes no lane */
        T p[WF_LANES], q[WF_LANES];
        for (int64_t l = 0; l < WF_LANES; l++) {
            p[l] = q[l] = -(T)0;
        }
        WF_IVDEP for (int64_t l = 0; l < n - at; l++)
        {
            p[l] = MUL(g[at + l], MUL(SUB(x[at + l], m), r));
            q[l] = g[at + l];
        }
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            a[k] = a[k] + (V) * (const VMEM *)(p + k * VN);
            b[k] = b[k] + (V) * (const VMEM *)(q + k * VN);
        }
    }
    FN(lanes_to)(dwv, a, first);
    FN(lanes_to)(dbv, b, first);
}

/* a = sum(gw) / n, or 0 if !center; c = sum(gw * xhat) / n. The rows after these are fetched. */
WF_INLINE void FN(bwd_means)(T *a, T *c, const T *g, const T *x, const T *w, T m, T r, int center,
                             int64_t n)
{
    *a = (T)0;
    if (center) {
        *a = w != NULL ? FN(sum_xy)(g, w, NULL, 0, 0, n) : FN(sum)(g, NULL, NULL, 0, 0, n);
        *a = DIV(*a, (T)n);
    }
    *c = w != NULL ? FN(sum_gw_xhat)(x, g, w, m, r, n) : FN(sum_g_xhat)(x, g, NULL, m, r, n);
    *c = DIV(*c, (T)n);
}

static void FN(norm_bwd)(void *dxv, const void *gv, const void *xv, const void *wv, int64_t n,
                         const void *mean, const void *rstd, int nt)
{
    T *dx = dxv;
    const T *g = gv, *x = xv, *w = wv;
    T m = mean != NULL ? *(const T *)mean : (T)0, r = *(const T *)rstd, a, c;
    FN(bwd_means)(&a, &c, g, x, w, m, r, mean != NULL, n);
#define DX_W(L) (r * ((L(g) * L(w) - a) - ((L(x) - m) * r) * c))
#define DX(L) (r * ((L(g) - a) - ((L(x) - m) * r) * c))
    if (w != NULL) {
        PASS_AHEAD(dx, DX_W, g, x);
    } else {
        PASS_AHEAD(dx, DX, g, x);
    }
}

/* One pass of norm_bwd_sums over columns [0, n), with the sums' first terms or further ones. */
#define TERMS(DX_OF, DW_OLD, DB_OLD)                                                               \
    do {                                                                                           \
        int64_t i = 0;                                                                             \
        for (; i + VN <= n; i += VN) {                                                             \
            const V gi = REG(g), xhat = (REG(x) - m) * r;                                          \
            if (dx != NULL) {                                                                      \
                const V d = DX_OF(REG);                                                            \
                if (nt) {                                                                          \
                    STREAM(dx + i, d);                                                             \
                } else {                                                                           \
                    *(VMEM *)(dx + i) = (VMEM)d;                                                   \
                }                                                                                  \
            }                                                                                      \
            *(VMEM *)(dw + i) = (VMEM)(DW_OLD(REG)(gi * xhat));                                    \
            if (db != NULL) {                                                                      \
                *(VMEM *)(db + i) = (VMEM)(DB_OLD(REG) gi);                                        \
            }                                                                                      \
            if (i % (64 / ESIZE) == 0) {                                                           \
                __builtin_prefetch(g + ahead + i);                                                 \
                __builtin_prefetch(x + ahead + i);                                                 \
            }                                                                                      \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            const T gi = g[i], xhat = (x[i] - m) * r;                                              \
            if (dx != NULL) {                                                                      \
                dx[i] = DX_OF(ONE);                                                                \
            }                                                                                      \
            dw[i] = DW_OLD(ONE)(gi * xhat);                                                        \
            if (db != NULL) {                                                                      \
                db[i] = DB_OLD(ONE) gi;                                                            \
            }                                                                                      \
        }                                                                                          \
    } while (0)
#define NO_OLD(L)
#define OLD_DW(L) L(dw) +
#define OLD_DB(L) L(db) +
/* dx, db and nt are known where this is inlined: no test is left in the loops that matter. */
WF_INLINE void FN(sums_pass)(T *dx, T *dw, T *db, const T *g, const T *x, const T *w, T m, T r, T a,
                             T c, int64_t n, int64_t ahead, int init, int nt)
{
    if (init && w != NULL) {
        TERMS(DX_W, NO_OLD, NO_OLD);
    } else if (init) {
        TERMS(DX, NO_OLD, NO_OLD);
    } else if (w != NULL) {
        TERMS(DX_W, OLD_DW, OLD_DB);
    } else {
        TERMS(DX, OLD_DW, OLD_DB);
    }
}
#undef TERMS
#undef NO_OLD
#undef OLD_DW
#undef OLD_DB
#undef DX_W
#undef DX

static void FN(norm_bwd_sums)(void *dxv, void *dwv, void *dbv, const void *gv, const void *xv,
                              const void *wv, int64_t n, const void *mean, const void *rstd,
                              int64_t ahead, int init, int nt)
{
    T *dx = dxv, *dw = dwv, *db = dbv;
    const T *g = gv, *x = xv, *w = wv;
    T m = mean != NULL ? *(const T *)mean : (T)0, r = *(const T *)rstd, a = (T)0, c = (T)0;
    if (dx == NULL) {
        if (db == NULL) {
            FN(sums_pass)(NULL, dw, NULL, g, x, NULL, m, r, a, c, n, ahead, init, 0);
        } else {
            FN(sums_pass)(NULL, dw, db, g, x, NULL, m, r, a, c, n, ahead, init, 0);
        }
        return;
    }
    FN(bwd_means)(&a, &c, g, x, w, m, r, mean != NULL, n);
    if (db == NULL) {
        FN(sums_pass)(dx, dw, NULL, g, x, w, m, r, a, c, n, ahead, init, nt);
    } else if (nt) {
        FN(sums_pass)(dx, dw, db, g, x, w, m, r, a, c, n, ahead, init, 1);
    } else {
        FN(sums_pass)(dx, dw, db, g, x, w, m, r, a, c, n, ahead, init, 0);
    }
}

static void FN(cross_entropy)(void *lossv, void *lsev, const void *xv, int64_t n, int64_t t,
                              double smooth)
{
    const T *x = xv;
    T m = FN(largest)(x, n); /* an infinite one makes the row NaN, as log_softmax does */
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
                                  const void *gv, const void *lsev, int nt)
{
    T *dx = dxv;
    const T *x = xv;
    if (t < 0) {
        memset(dx, 0, (size_t)n * sizeof(T));
        return;
    }
    T g = *(const T *)gv, lse = *(const T *)lsev, q = (T)(smooth / (double)n);
    T at = MUL(g, SUB(FN(exp)(SUB(x[t], lse)), ADD((T)(1.0 - smooth), q)));
    FN(scaled_exp)(dx, x, lse, g, q, n, nt);
    dx[t] = at;
}

static void FN(affine_bwd)(void *dxv, const void *gv, const void *xv, const void *meanv,
                           const void *rstdv, const void *sv, const void *av, const void *cv,
                           int step, int64_t n, int nt)
{
    T *dx = dxv;
    const T *g = gv, *x = xv, *mean = meanv, *rstd = rstdv, *s = sv, *a = av, *c = cv;
    if (step != 0) {
#define DX(L) (L(s) * ((L(g) - L(a)) - ((L(x) - L(mean)) * L(rstd)) * L(c)))
        PASS(dx, DX);
#undef DX
    } else {
        const T m = *mean, r = *rstd, s0 = *s, a0 = *a, c0 = *c;
#define DX(L) (s0 * ((L(g) - a0) - ((L(x) - m) * r) * c0))
        PASS(dx, DX);
#undef DX
    }
}

static void FN(blend)(void *yv, const void *av, const void *bv, const int64_t *below,
                      const int64_t *above, const void *nearv, const void *farv, int64_t m,
                      int64_t n)
{
    T *y = yv;
    const T *const near = nearv, *const far = farv;
    for (int64_t j = 0; n == 1 && j < m; j++) {
        y[j] = FMA(((const T *)bv)[above[j]], far[j], MUL(((const T *)av)[below[j]], near[j]));
    }
    for (int64_t j = 0; n > 1 && j < m; j++, y += n) {
        const T *const a = (const T *)av + below[j] * n, *const b = (const T *)bv + above[j] * n;
        int64_t i = 0;
        if (n < VN) {
            WF_IVDEP for (; i < n; i++)
            {
                y[i] = FMA(b[i], far[j], MUL(a[i], near[j]));
            }
            continue;
        }
        const V zero = {0}, one = near[j] - zero, other = far[j] - zero;
#define PART (*(VMEM *)(y + i) = (VMEM)FN(fused)(REG(b), other, REG(a) * one))
        for (; i + VN <= n; i += VN) {
            PART;
        }
        if (i < n) { /* a whole register, part of which was there */
            i = n - VN;
            PART;
        }
#undef PART
    }
}
#undef PASS
#undef PASS_AHEAD
#undef PASS_AND
#undef REG
#undef ONE
#undef STREAM
#undef VN
#undef VMEM
#undef V
#undef FN
