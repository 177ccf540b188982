/*
 * eager/kernels/reduce_t.h -- template: the kernels of one compute type, for any type.
 *
 * The includer defines T and ESIZE (its bytes), TCANON (the type sums are done in), SFX, UNORDERED(v) (is v a NaN), WIDE_MAX and
 * WIDE_MIN (columns by registers, if IS_WIDE), and has instantiated sum_<SFX>, prod_<SFX>, largest_<SFX> and smallest_<SFX>.
 */
#define FN(name) WF_JOIN(name, SFX)
#if ESIZE == 4
#define WORD uint32_t /* as wide as T */
#else
#define WORD uint64_t
#endif

static void FN(run_sum)(void *out, const void *x, int64_t n)
{
    TCANON r = FN(sum)(x, NULL, NULL, 0, 0, n);
    memcpy(out, &r, sizeof r);
}
static void FN(run_prod)(void *out, const void *x, int64_t n)
{
    TCANON r = FN(prod)(x, NULL, NULL, 0, 0, n);
    memcpy(out, &r, sizeof r);
}
static void FN(run_max)(void *out, const void *x, int64_t n)
{
    T r = FN(largest)(x, n);
    memcpy(out, &r, sizeof r);
}
static void FN(run_min)(void *out, const void *x, int64_t n)
{
    T r = FN(smallest)(x, n);
    memcpy(out, &r, sizeof r);
}

/* -- short rows: the same tree, cut to the smallest power of two that holds the row ---------------- */
#define SHORTS(NAME, EXPR)                                                                         \
    static void FN(shorts_##NAME)(void *out, const void *x, int64_t n, int64_t stride,             \
                                  int64_t count)                                                   \
    {                                                                                              \
        int64_t top = 1;                                                                           \
        while (top < n) {                                                                          \
            top *= 2;                                                                              \
        }                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                      \
            const T *row = (const T *)x + i * stride;                                              \
            T t[WF_LANES];                                                                         \
            int64_t h = top / 2;                                                                   \
            for (int64_t l = 0; l < h; l++) {                                                      \
                T a = row[l];                                                                      \
                if (l + h < n) {                                                                   \
                    T b = row[l + h];                                                              \
                    a = EXPR;                                                                      \
                }                                                                                  \
                t[l] = a;                                                                          \
            }                                                                                      \
            if (h == 0) {                                                                          \
                t[0] = row[0];                                                                     \
            }                                                                                      \
            for (h /= 2; h >= 1; h /= 2) {                                                         \
                for (int64_t l = 0; l < h; l++) {                                                  \
                    T a = t[l], b = t[l + h];                                                      \
                    t[l] = EXPR;                                                                   \
                }                                                                                  \
            }                                                                                      \
            ((T *)out)[i] = t[0];                                                                  \
        }                                                                                          \
    }

/* -- many rows into a row of accumulators ---------------------------------------------------------- */
/* MANY: rows may be long; else WIDE does all but a few columns. */
#define ROWS(NAME, EXPR, WIDE, MANY)                                                               \
    WF_INLINE void FN(rows8_##NAME)(T * acc, const T *first, const void *const *rows,              \
                                    int64_t from, int64_t n)                                       \
    {                                                                                              \
        const T *r0 = rows[0], *r1 = rows[1], *r2 = rows[2], *r3 = rows[3];                        \
        const T *r4 = rows[4], *r5 = rows[5], *r6 = rows[6], *r7 = rows[7];                        \
        WF_IVDEP for (int64_t c = from; c < n; c++)                                                \
        {                                                                                          \
            T a = first[c], b = r0[c];                                                             \
            a = EXPR, b = r1[c];                                                                   \
            a = EXPR, b = r2[c];                                                                   \
            a = EXPR, b = r3[c];                                                                   \
            a = EXPR, b = r4[c];                                                                   \
            a = EXPR, b = r5[c];                                                                   \
            a = EXPR, b = r6[c];                                                                   \
            a = EXPR, b = r7[c];                                                                   \
            acc[c] = EXPR;                                                                         \
        }                                                                                          \
    }                                                                                              \
    WF_INLINE void FN(rows3_##NAME)(T * acc, const T *first, const void *const *rows,              \
                                    int64_t from, int64_t n)                                       \
    {                                                                                              \
        const T *r0 = rows[0], *r1 = rows[1], *r2 = rows[2];                                       \
        WF_IVDEP for (int64_t c = from; c < n; c++)                                                \
        {                                                                                          \
            T a = first[c], b = r0[c];                                                             \
            a = EXPR, b = r1[c];                                                                   \
            a = EXPR, b = r2[c];                                                                   \
            acc[c] = EXPR;                                                                         \
        }                                                                                          \
    }                                                                                              \
    WF_INLINE void FN(rows1_##NAME)(T * acc, const T *first, const T *r0, int64_t from, int64_t n) \
    {                                                                                              \
        WF_IVDEP for (int64_t c = from; c < n; c++)                                                \
        {                                                                                          \
            T a = first[c], b = r0[c];                                                             \
            acc[c] = EXPR;                                                                         \
        }                                                                                          \
    }                                                                                              \
    static void FN(rows_##NAME)(void *accv, const void *const *rows, int64_t nrows, int64_t ncols, \
                                int init)                                                          \
    {                                                                                              \
        T *acc = accv;                                                                             \
        const T *first = init ? rows[0] : acc;                                                     \
        int64_t r = init ? 1 : 0;                                                                  \
        if (init && nrows == 1) {                                                                  \
            memcpy(acc, rows[0], (size_t)ncols * sizeof(T));                                       \
            return;                                                                                \
        }                                                                                          \
        int64_t c = WIDE(acc, first, rows + r, nrows - r, ncols);                                  \
        if (c == ncols) {                                                                          \
            return;                                                                                \
        }                                                                                          \
        for (; (MANY) && nrows - r >= 8; r += 8, first = acc) {                                    \
            FN(rows8_##NAME)(acc, first, rows + r, c, ncols);                                      \
        }                                                                                          \
        for (; (MANY) && nrows - r >= 3; r += 3, first = acc) {                                    \
            FN(rows3_##NAME)(acc, first, rows + r, c, ncols);                                      \
        }                                                                                          \
        for (; r < nrows; r++, first = acc) {                                                      \
            FN(rows1_##NAME)(acc, first, rows[r], c, ncols);                                       \
        }                                                                                          \
    }

#define NOT_WIDE(acc, first, rows, n, ncols) 0
SHORTS(sum, ADD(a, b))
SHORTS(prod, MUL(a, b))
SHORTS(max, MAX(a, b))
SHORTS(min, MIN(a, b))
ROWS(sum, ADD(a, b), NOT_WIDE, true)
ROWS(prod, MUL(a, b), NOT_WIDE, true)
ROWS(max, MAX(a, b), WIDE_MAX, !IS_WIDE)
ROWS(min, MIN(a, b), WIDE_MIN, !IS_WIDE)
#undef SHORTS
#undef ROWS
#undef NOT_WIDE

/* -- argmax and argmin: the first of equals; NaN beats everything ------------------------------------ */
static int64_t FN(arg)(void *best, const void *xv, int64_t n, int sign)
{
    enum { TOGETHER = 64 };
    const T *x = xv;
    T m = sign > 0 ? FN(largest)(x, n) : FN(smallest)(x, n);
    int64_t i = 0;
    for (WORD found = 0; i + TOGETHER < n; i += TOGETHER) { /* is it among those? */
        for (int64_t k = i; k < i + TOGETHER; k++) {
            found |= (WORD)((x[k] == m) | UNORDERED(x[k]));
        }
        if (found) {
            break;
        }
    }
    while (i < n - 1 && !(x[i] == m || UNORDERED(x[i]))) {
        i++;
    }
    memcpy(best, &m, sizeof m);
    return i;
}
static void FN(arg_row)(void *bestv, int64_t *index, const void *xv, int64_t r, int64_t n, int sign)
{
    T *best = bestv;
    const T *x = xv;
    if (sign > 0) {
        WF_IVDEP for (int64_t c = 0; c < n; c++)
        {
            bool better = (x[c] > best[c]) | (UNORDERED(x[c]) & !UNORDERED(best[c]));
            best[c] = better ? x[c] : best[c];
            index[c] = better ? r : index[c];
        }
    } else {
        WF_IVDEP for (int64_t c = 0; c < n; c++)
        {
            bool better = (x[c] < best[c]) | (UNORDERED(x[c]) & !UNORDERED(best[c]));
            best[c] = better ? x[c] : best[c];
            index[c] = better ? r : index[c];
        }
    }
}
#undef WORD
#undef FN
