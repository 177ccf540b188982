/*
 * eager/kernels/reduce_flt.h -- template: what only floating compute types have.
 *
 * The includer defines T, SFX, ESIZE. largest/smallest propagate NaN and order -0 < +0.
 */
#define FN(name) WF_JOIN(name, SFX)
#define V WF_JOIN(wf_vec, SFX)
#define VMEM WF_JOIN(wf_mem, SFX)
#define NANT WF_JOIN(wf_nan, SFX)
#define VN (WF_VBYTES / ESIZE)
#define LOADV(p) ((V) * (const VMEM *)(p))

#if VN == 16
#define FOLD WF_FOLD_16
#elif VN == 8
#define FOLD WF_FOLD_8
#elif VN == 4
#define FOLD WF_FOLD_4
#else
#define FOLD WF_FOLD_2
#endif

/* Bytes fetched early: hardware stops at the end of a page, where the check of each row's result also
 * holds up what follows. */
#define EXTREME_AHEAD 4096

/* Four registers at a time; the last ones may overlap those before (idempotent). A result of zero is
 * looked at again for its sign, which the register instruction leaves open. */
#define EXTREME(NAME, VOP, OP, ZERO_WINS)                                                          \
    __attribute__((unused)) static T FN(NAME)(const T *x, int64_t n)                               \
    {                                                                                              \
        T r = x[0];                                                                                \
        if (n < VN) {                                                                              \
            for (int64_t i = 1; i < n; i++) {                                                      \
                r = OP(r, x[i]);                                                                   \
            }                                                                                      \
            return r;                                                                              \
        }                                                                                          \
        V a[4];                                                                                    \
        NANT nan = WF_JOIN(WF_NAN0, SFX);                                                          \
        WF_UNROLL for (int k = 0; k < 4; k++)                                                      \
        {                                                                                          \
            a[k] = LOADV(x + (k * VN < n - VN ? k * VN : n - VN));                                 \
            nan = WF_JOIN(WF_NAN, SFX)(nan, a[k], a[k]);                                           \
        }                                                                                          \
        for (int64_t i = 4 * VN; i < n; i += 4 * VN) {                                             \
            const T *at = x + (i + 4 * VN <= n ? i : n - 4 * VN);                                  \
            V e[4];                                                                                \
            for (int o = 0; o < 4 * WF_VBYTES; o += 64) {                                          \
                __builtin_prefetch((const char *)at + EXTREME_AHEAD + o);                          \
            }                                                                                      \
            WF_UNROLL for (int k = 0; k < 4; k++)                                                  \
            {                                                                                      \
                e[k] = LOADV(at + k * VN);                                                         \
                a[k] = WF_JOIN(VOP, SFX)(a[k], e[k]);                                              \
            }                                                                                      \
            nan = WF_JOIN(WF_NAN, SFX)(nan, e[0], e[1]);                                           \
            nan = WF_JOIN(WF_NAN, SFX)(nan, e[2], e[3]);                                           \
        }                                                                                          \
        if (WF_JOIN(WF_ANYNAN, SFX)(nan)) {                                                        \
            return (T)__builtin_nan("");                                                           \
        }                                                                                          \
        a[0] = WF_JOIN(VOP, SFX)(WF_JOIN(VOP, SFX)(a[0], a[1]), WF_JOIN(VOP, SFX)(a[2], a[3]));    \
        V f = a[0]; /* by shuffles: scalar steps would mispredict on every row */                  \
        FOLD(f, WF_JOIN(VOP, SFX));                                                                \
        r = (T)f[0];                                                                               \
        if (r == (T)0) {                                                                           \
            T w = (T)ZERO_WINS;                                                                    \
            int64_t i = 0;                                                                         \
            while (i < n && memcmp(x + i, &w, sizeof w) != 0) {                                    \
                i++;                                                                               \
            }                                                                                      \
            r = i < n ? w : -w;                                                                    \
        }                                                                                          \
        return r;                                                                                  \
    }
EXTREME(largest, WF_VMAX, MAX, 0.0)
EXTREME(smallest, WF_VMIN, MIN, -0.0)
#undef EXTREME
#undef EXTREME_AHEAD

/* acc[c] = the extreme of first[c] and of column c of the rows: whole registers only, of which the last ones overlap those before
 * (idempotent); returns the columns done, none of a few. SSE2 uses the scalar text of reduce_t.h for all. */
#if WF_VBYTES == 64
#define EXTREME_ROWS(NAME, VOP, SIGN)                                                              \
    WF_INLINE int64_t FN(wide_##NAME)(T * acc, const T *first, const void *const *rows, int64_t n, \
                                      int64_t ncols)                                               \
    {                                                                                              \
        if (ncols < 2 * VN) {                                                                      \
            return 0;                                                                              \
        }                                                                                          \
        for (int64_t i = 0; i < ncols; i += 2 * VN) {                                              \
            const int64_t c = i + 2 * VN <= ncols ? i : ncols - 2 * VN;                            \
            V a = LOADV(first + c), b = LOADV(first + c + VN);                                     \
            NANT na = WF_JOIN(WF_NAN, SFX)(WF_JOIN(WF_NAN0, SFX), a, a);                           \
            NANT nb = WF_JOIN(WF_NAN, SFX)(WF_JOIN(WF_NAN0, SFX), b, b);                           \
            for (int64_t r = 0; r < n; r++) {                                                      \
                const T *at = (const T *)rows[r] + c;                                              \
                V ea = LOADV(at), eb = LOADV(at + VN);                                             \
                a = WF_JOIN(VOP##_ORDERED, SFX)(a, ea);                                            \
                b = WF_JOIN(VOP##_ORDERED, SFX)(b, eb);                                            \
                na = WF_JOIN(WF_NAN, SFX)(na, ea, ea);                                             \
                nb = WF_JOIN(WF_NAN, SFX)(nb, eb, eb);                                             \
            }                                                                                      \
            *(VMEM *)(acc + c) = (VMEM)WF_JOIN(WF_PUTNAN, SFX)(na, a);                             \
            *(VMEM *)(acc + c + VN) = (VMEM)WF_JOIN(WF_PUTNAN, SFX)(nb, b);                        \
        }                                                                                          \
        return ncols;                                                                              \
    }
#elif WF_VBYTES == 32
/* No instruction orders zeros: the sign of a largest value is set where those of all values are, of a smallest one where any is.
 * Two rows are looked at for NaNs together; the last one may be both. */
#define EXTREME_ROWS(NAME, VOP, SIGN)                                                              \
    WF_INLINE int64_t FN(wide_##NAME)(T * acc, const T *first, const void *const *rows, int64_t n, \
                                      int64_t ncols)                                               \
    {                                                                                              \
        const wf_vec_i64 minus = (wf_vec_i64)(-(V){0});                                            \
        if (n < 2 || ncols < 2 * VN) { /* one row: the text of reduce_t.h is less */               \
            return 0;                                                                              \
        }                                                                                          \
        for (int64_t i = 0; i < ncols; i += 2 * VN) {                                              \
            const int64_t c = i + 2 * VN <= ncols ? i : ncols - 2 * VN;                            \
            V a[2];                                                                                \
            wf_vec_i64 sign[2];                                                                    \
            NANT nan[2];                                                                           \
            WF_UNROLL for (int k = 0; k < 2; k++)                                                  \
            {                                                                                      \
                a[k] = LOADV(first + c + k * VN);                                                  \
                sign[k] = (wf_vec_i64)a[k];                                                        \
                nan[k] = WF_JOIN(WF_NAN, SFX)(WF_JOIN(WF_NAN0, SFX), a[k], a[k]);                  \
            }                                                                                      \
            for (int64_t r = 0; r < n; r += 2) {                                                   \
                const T *at = (const T *)rows[r] + c;                                              \
                const T *next = (const T *)rows[r + 1 < n ? r + 1 : r] + c;                        \
                WF_UNROLL for (int k = 0; k < 2; k++)                                              \
                {                                                                                  \
                    const V e = LOADV(at + k * VN), f = LOADV(next + k * VN);                      \
                    a[k] = WF_JOIN(VOP, SFX)(WF_JOIN(VOP, SFX)(a[k], e), f);                       \
                    sign[k] = sign[k] SIGN(wf_vec_i64) e SIGN(wf_vec_i64) f;                       \
                    nan[k] = WF_JOIN(WF_NAN, SFX)(nan[k], e, f);                                   \
                }                                                                                  \
            }                                                                                      \
            WF_UNROLL for (int k = 0; k < 2; k++)                                                  \
            {                                                                                      \
                const wf_vec_i64 r = ((wf_vec_i64)a[k] & ~minus) | (sign[k] & minus);              \
                *(VMEM *)(acc + c + k * VN) = (VMEM)(r | (wf_vec_i64)nan[k]);                      \
            }                                                                                      \
        }                                                                                          \
        return ncols;                                                                              \
    }
#else
#define EXTREME_ROWS(NAME, VOP, SIGN)                                                              \
    WF_INLINE int64_t FN(wide_##NAME)(T * acc, const T *first, const void *const *rows, int64_t n, \
                                      int64_t ncols)                                               \
    {                                                                                              \
        (void)acc, (void)first, (void)rows, (void)n, (void)ncols;                                  \
        return 0;                                                                                  \
    }
#endif
EXTREME_ROWS(max, WF_VMAX, &)
EXTREME_ROWS(min, WF_VMIN, |)
#undef EXTREME_ROWS

#undef FOLD
#undef LOADV
#undef VN
#undef NANT
#undef VMEM
#undef V
#undef FN
