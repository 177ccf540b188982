/*
 * eager/kernels/gemm_tile.inc.h -- register tile of the built-in product, for one compute type T.
 *
 * Included by gemm_micro.inc.c with T (float or double), V (its vector), VL (lanes), MR (rows of a full
 * tile), F(name) (suffixing), V_FMA, V_LOAD, V_STORE and V_SET1. A tile is MR rows by two vectors.
 */

#define NR (2 * VL)

/* c[0..rows) x [0..nr) := or += a * b; a is packed [kc][rows], b has kc rows of NR readable elements. */
static inline __attribute__((always_inline)) void
F(tile_n)(int rows, int64_t kc, const T *restrict a, const T *restrict b, int64_t ldb,
          T *restrict c, int64_t ldc, int64_t nr, int add)
{
    V acc[MR][2];
    WF_UNROLL
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = V_SET1(0);
    for (int64_t p = 0; p < kc; p++) {
        V b0 = V_LOAD(b), b1 = V_LOAD(b + VL);
        WF_UNROLL
        for (int i = 0; i < rows; i++) {
            V ai = V_SET1(a[i]);
            acc[i][0] = V_FMA(ai, b0, acc[i][0]);
            acc[i][1] = V_FMA(ai, b1, acc[i][1]);
        }
        a += rows;
        b += ldb;
    }
    if (nr == NR) {
        WF_UNROLL
        for (int i = 0; i < rows; i++) {
            T *ci = c + i * ldc;
            if (add) {
                acc[i][0] = acc[i][0] + V_LOAD(ci);
                acc[i][1] = acc[i][1] + V_LOAD(ci + VL);
            }
            V_STORE(ci, acc[i][0]);
            V_STORE(ci + VL, acc[i][1]);
        }
        return;
    }
    T edge[MR][NR];
    WF_UNROLL
    for (int i = 0; i < rows; i++) {
        V_STORE(edge[i], acc[i][0]);
        V_STORE(edge[i] + VL, acc[i][1]);
    }
    for (int i = 0; i < rows; i++) {
        T *ci = c + i * ldc;
        for (int64_t j = 0; j < nr; j++)
            ci[j] = add ? ci[j] + edge[i][j] : edge[i][j];
    }
}

#define TILE_CASE(R)                                                                               \
    case R:                                                                                        \
        F(tile_n)(R <= MR ? R : MR, kc, a, b, ldb, c, ldc, nr, add);                               \
        break

static void F(tile)(int64_t rows, int64_t kc, const T *a, const T *b, int64_t ldb, T *c,
                    int64_t ldc, int64_t nr, int add)
{
    switch (rows) {
        TILE_CASE(1);
        TILE_CASE(2);
        TILE_CASE(3);
        TILE_CASE(4);
#if MR > 4
        TILE_CASE(5);
        TILE_CASE(6);
#endif
#if MR > 6
        TILE_CASE(7);
        TILE_CASE(8);
        TILE_CASE(9);
        TILE_CASE(10);
        TILE_CASE(11);
        TILE_CASE(12);
#endif
    default:
        break;
    }
}

/* One k slice of a block: A packed in panels of MR rows (the last one narrower), B either packed in
 * panels of NR columns, or read in place (direct) but for a ragged last panel. */
static void F(slice)(int64_t m, int64_t n, int64_t kc, const T *pa, const T *pb, const T *direct,
                     int64_t ldb, T *c, int64_t ldc, int add)
{
    for (int64_t j = 0; j < n; j += NR) {
        int64_t nr = n - j < NR ? n - j : NR;
        int in_place = direct && nr == NR;
        const T *b = in_place ? direct + j : direct ? pb : pb + j * kc;
        for (int64_t i = 0; i < m; i += MR) {
            int64_t rows = m - i < MR ? m - i : MR;
            F(tile)(rows, kc, pa + i * kc, b, in_place ? ldb : NR, c + i * ldc + j, ldc, nr, add);
        }
    }
}

#undef TILE_CASE
#undef NR
