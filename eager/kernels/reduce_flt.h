/*
 * eager/kernels/reduce_flt.h -- template: what only floating compute types have.
 *
 * The includer defines T, SFX, ESIZE. largest/smallest propagate NaN and order -0 < +0.
 */
#define FN(name) WF_CAT(name, SFX)
#define V WF_CAT(wf_vec, SFX)
#define VMEM WF_CAT(wf_mem, SFX)
#define NANT WF_CAT(wf_nan, SFX)
#define VN (WF_VBYTES / ESIZE)
#define LOADV(p) ((V) * (const VMEM *)(p))

/* Four registers at a time; the last four may overlap those before (idempotent). A result of zero is
 * looked at again for its sign, which the register instruction leaves open. */
#define EXTREME(NAME, VOP, OP, ZERO_WINS)                                                          \
    __attribute__((unused)) static T FN(NAME)(const T *x, int64_t n)                               \
    {                                                                                              \
        T r = x[0];                                                                                \
        if (n < 4 * VN) {                                                                          \
            for (int64_t i = 1; i < n; i++) {                                                      \
                r = OP(r, x[i]);                                                                   \
            }                                                                                      \
            return r;                                                                              \
        }                                                                                          \
        V a[4];                                                                                    \
        NANT nan = WF_CAT(WF_NAN0, SFX);                                                           \
        WF_UNROLL for (int k = 0; k < 4; k++)                                                      \
        {                                                                                          \
            a[k] = LOADV(x + k * VN);                                                              \
            nan = WF_CAT(WF_NAN, SFX)(nan, a[k], a[k]);                                            \
        }                                                                                          \
        for (int64_t i = 4 * VN; i < n; i += 4 * VN) {                                             \
            const T *at = x + (i + 4 * VN <= n ? i : n - 4 * VN);                                  \
            V e[4];                                                                                \
            WF_UNROLL for (int k = 0; k < 4; k++)                                                  \
            {                                                                                      \
                e[k] = LOADV(at + k * VN);                                                         \
                a[k] = WF_CAT(VOP, SFX)(a[k], e[k]);                                               \
            }                                                                                      \
            nan = WF_CAT(WF_NAN, SFX)(nan, e[0], e[1]);                                            \
            nan = WF_CAT(WF_NAN, SFX)(nan, e[2], e[3]);                                            \
        }                                                                                          \
        if (WF_CAT(WF_ANYNAN, SFX)(nan)) {                                                         \
            return (T)__builtin_nan("");                                                           \
        }                                                                                          \
        a[0] = WF_CAT(VOP, SFX)(WF_CAT(VOP, SFX)(a[0], a[1]), WF_CAT(VOP, SFX)(a[2], a[3]));       \
        r = a[0][0];                                                                               \
        for (int k = 1; k < VN; k++) {                                                             \
            r = OP(r, (T)a[0][k]);                                                                 \
        }                                                                                          \
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

#undef LOADV
#undef VN
#undef NANT
#undef VMEM
#undef V
#undef FN
