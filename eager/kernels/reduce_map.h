/*
 * eager/kernels/reduce_map.h -- template: elementwise work before a float reduction.
 *
 * The includer defines T and SFX.
 */
#define FN(name) WF_JOIN(name, SFX)

#define MAPCASE(kind, EXPR)                                                                        \
    case kind:                                                                                     \
        WF_IVDEP for (int64_t i = 0; i < n; i++)                                                   \
        {                                                                                          \
            dst[i] = EXPR;                                                                         \
        }                                                                                          \
        return;
/* pstep is a constant at each call below, so that the compiler sees scalars as scalars. */
WF_INLINE void FN(map_steps)(wf_map map, T *dst, const T *x, const T *y, const T *p, const T *q,
                             int pstep, int64_t n)
{
#define P p[pstep * i]
#define Q q[pstep * i]
    switch (map) {
        MAPCASE(WF_MAP_NONE, x[i])
        MAPCASE(WF_MAP_ABS, FABS(x[i]))
        MAPCASE(WF_MAP_SQUARE, MUL(x[i], x[i]))
        MAPCASE(WF_MAP_NONZERO, x[i] != (T)0 ? (T)1 : (T)0)
        MAPCASE(WF_MAP_EXPSUB, FN(exp)(SUB(x[i], P)))
        MAPCASE(WF_MAP_SQDEV, MUL(SUB(x[i], P), SUB(x[i], P)))
        MAPCASE(WF_MAP_XHAT, MUL(y[i], MUL(SUB(x[i], P), Q)))
    case WF_MAP_ABSPOW: /* by the row's kernel, eager/reduce.c */
    case WF_MAP_COUNT:
        return;
    }
#undef P
#undef Q
}
static void FN(map)(wf_map map, void *dst, const void *x, const void *y, const void *p,
                    const void *q, int pstep, int64_t n)
{
    if (pstep != 0) {
        FN(map_steps)(map, dst, x, y, p, q, 1, n);
    } else {
        T p0 = p != NULL ? *(const T *)p : (T)0, q0 = q != NULL ? *(const T *)q : (T)0;
        FN(map_steps)(map, dst, x, y, &p0, &q0, 0, n);
    }
}
#undef MAPCASE

#undef FN
