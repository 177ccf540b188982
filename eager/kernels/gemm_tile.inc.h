/*
 * eager/kernels/gemm_tile.inc.h -- register tile of the built-in product, for one compute type T.
 *
 * Included by gemm_micro.inc.c with T (float or double), V (its vector), VL (lanes), MR (rows of a full
 * tile), TILE_ALL, F(name) (suffixing), V_FMA, V_LOAD, V_STORE and V_SET1. A tile is MR rows by two vectors.
 */

#define NR (2 * VL)
#define TILE_TWICE (TILE_ALL && MR == 6)
/* Rows up to which waiting for B in place is not hidden by arithmetic, and how many rows of B ahead it is asked for. */
#define FEW 8
#define AHEAD 10
/* Distance of rows of B from which on the processor does not ask for the next one by itself. */
#define FAR_APART 256

/* c[0..rows) x [0..nr) := or += a * b, in `nv` vectors of columns. Element (i, p) of A lies at
 * a[i * rs + p * ps]; b has kc rows of nv * VL readable elements. `twice`: a full tile with ps == 1 and a packed B in steps of
 * two, in 22 instructions for 25, which counts where two threads share a core. */
static inline __attribute__((always_inline)) void
F(tile_n)(int rows, int nv, int64_t kc, const T *restrict a, int64_t rs, int64_t ps,
          const T *restrict b, int64_t ldb, T *restrict c, int64_t ldc, int64_t nr, int add,
          T *restrict copy, int twice)
{
    V acc[MR][2];
    WF_UNROLL
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = V_SET1(0);
    /* Every third row has a pointer, so that a stride known late still fits addressing modes. */
    const T *a0 = a, *a1 = a + 3 * rs, *a2 = a + 6 * rs, *a3 = a + 9 * rs;
    const int64_t far = ldb > NR ? AHEAD * ldb : 0;
    int64_t p = 0;
    if (TILE_TWICE && twice) {
        const T *const r[] = {a, a + rs, a + 2 * rs, a + 3 * rs, a + 4 * rs, a + 5 * rs};
        for (; p + 2 <= kc; p += 2, b += 2 * NR) {
            WF_UNROLL
            for (int u = 0; u < 2; u++) {
                V b0 = V_LOAD(b + u * NR), b1 = V_LOAD(b + u * NR + VL);
                WF_UNROLL
                for (int i = 0; i < MR; i++) {
                    V ai = V_SET1(r[i % 6][p + u]);
                    acc[i][0] = V_FMA(ai, b0, acc[i][0]);
                    acc[i][1] = V_FMA(ai, b1, acc[i][1]);
                }
            }
        }
        a0 += p, a1 += p;
    }
    for (; p < kc; p++) {
        if (TILE_ALL && nv > 1 && (rows <= FEW || copy)) {
            __builtin_prefetch(b + far);
            __builtin_prefetch(b + far + VL);
        }
        V b0 = V_LOAD(b), b1 = nv > 1 ? V_LOAD(b + VL) : b0;
        WF_UNROLL
        for (int i = 0; i < rows; i++) {
            const T *group = i < 3 ? a0 : i < 6 ? a1 : i < 9 ? a2 : a3;
            V ai = V_SET1(group[i % 3 * rs]);
            acc[i][0] = V_FMA(ai, b0, acc[i][0]);
            if (nv > 1)
                acc[i][1] = V_FMA(ai, b1, acc[i][1]);
        }
        if (copy) {
            V_STORE(copy, b0);
            V_STORE(copy + VL, b1);
            copy += NR;
        }
        a0 += ps, a1 += ps, a2 += ps, a3 += ps;
        b += ldb;
    }
    if (nr == nv * VL) {
        WF_UNROLL
        for (int i = 0; i < rows; i++) {
            T *ci = c + i * ldc;
            if (add) {
                acc[i][0] = acc[i][0] + V_LOAD(ci);
                if (nv > 1)
                    acc[i][1] = acc[i][1] + V_LOAD(ci + VL);
            }
            V_STORE(ci, acc[i][0]);
            if (nv > 1)
                V_STORE(ci + VL, acc[i][1]);
        }
        return;
    }
    T edge[MR][NR];
    WF_UNROLL
    for (int i = 0; i < rows; i++) {
        V_STORE(edge[i], acc[i][0]);
        if (nv > 1)
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
        if (nr > VL)                                                                               \
            F(tile_n)(R <= MR ? R : MR, 2, kc, a, rs, ps, b, ldb, c, ldc, nr, add, NULL, 0);       \
        else                                                                                       \
            F(tile_n)(R <= MR ? R : MR, 1, kc, a, rs, ps, b, ldb, c, ldc, nr, add, NULL, 0);       \
        break

/* At most MR rows; returns how many of them were made. Every count has code of its own for float, few have for
 * double: the library is to stay small. */
static int64_t F(tile)(int64_t rows, int64_t kc, const T *a, int64_t rs, int64_t ps, const T *b,
                       int64_t ldb, T *c, int64_t ldc, int64_t nr, int add)
{
#if TILE_TWICE
    if (rows >= MR && nr == NR && ps == 1 && ldb == NR) {
        for (int i = 0; add && i < MR; i++) {
            __builtin_prefetch(c + i * ldc, 1);
            __builtin_prefetch(c + i * ldc + NR - 1, 1);
        }
        F(tile_n)(MR, 2, kc, a, rs, 1, b, NR, c, ldc, NR, add, NULL, 1);
        return MR;
    }
#endif
    if (sizeof(T) == 8)
        rows = rows >= MR ? MR : rows >= 4 ? 4 : 1;
    switch (rows) {
        TILE_CASE(1);
        TILE_CASE(4);
#if MR > 4
        TILE_CASE(MR);
#endif
#if TILE_ALL
        TILE_CASE(2);
        TILE_CASE(3);
#if MR > 4
        TILE_CASE(5);
#endif
#if MR > 6
        TILE_CASE(6);
        TILE_CASE(7);
        TILE_CASE(8);
        TILE_CASE(9);
        TILE_CASE(10);
        TILE_CASE(11);
#endif
#endif
    default:
        break;
    }
    return rows;
}

#if TILE_ALL
/* A full tile that leaves its panel of B packed for the next ones: the copy's misses are under its arithmetic. */
static void F(tile_first)(int64_t kc, const T *a, int64_t rs, int64_t ps, const T *b, int64_t ldb,
                          T *c, int64_t ldc, int add, T *copy)
{
    F(tile_n)(MR, 2, kc, a, rs, ps, b, ldb, c, ldc, NR, add, copy, 0);
}
#endif

#if TILE_TWICE
/* A full tile that turns its panel of a transposed B, a step of eight ahead of the arithmetic that this is done under. */
static void F(tile_turning)(int64_t kc, const T *a, int64_t rs, int64_t ps, const T *b, int64_t ldb,
                            T *c, int64_t ldc, int add, T *panel)
{
    V acc[MR][2];
    const T *a0 = a, *a1 = a + 3 * rs;
    WF_UNROLL
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = V_SET1(0);
    for (int64_t p = -VL; p < kc; p += VL) {
        const int64_t next = p + VL;
        if (next + VL <= kc) {
            WF_ROLLED
            for (int64_t j = 0; j < NR; j += VL)
                transpose_8x8(b + j * ldb + next, ldb, panel + next * NR + j, NR);
        } else
            pack_any_f32(b + next, ldb, 1, NR, kc - next, NR, panel + next * NR);
        const int64_t end = p < 0 ? 0 : next < kc ? VL : kc - p;
        const T *row = panel + p * NR;
        for (int64_t q = 0; q < end; q++, row += NR, a0 += ps, a1 += ps) {
            const V b0 = V_LOAD(row), b1 = V_LOAD(row + VL);
            WF_UNROLL
            for (int i = 0; i < MR; i++) {
                const V ai = V_SET1((i < 3 ? a0 : a1)[i % 3 * rs]);
                acc[i][0] = V_FMA(ai, b0, acc[i][0]);
                acc[i][1] = V_FMA(ai, b1, acc[i][1]);
            }
        }
    }
    WF_UNROLL
    for (int i = 0; i < MR; i++)
        for (int h = 0; h < 2; h++) {
            T *ci = c + i * ldc + h * VL;
            if (add)
                acc[i][h] = acc[i][h] + V_LOAD(ci);
            V_STORE(ci, acc[i][h]);
        }
}
#endif

/* Height of the tile of rows from i on. The last ones share what would leave one of them with fewer than four rows, of which the
 * sums wait for each other: one row takes as long as four. */
static inline int64_t F(height)(int64_t m, int64_t i)
{
    const int64_t left = m - i;
    if (left <= MR)
        return left;
    if (left > 2 * MR + 1 || i == 0 || sizeof(T) == 8)
        return MR;
    return left < MR + 4 ? (left + 1) / 2 : left > 2 * MR ? MR - 1 : MR;
}

/* One k slice of a block. B lies packed in panels of NR columns, or in place (direct) but for a last panel that does
 * not fill its vectors, which pb has. A panel in place that several tiles read is copied behind that
 * one: rows a multiple of 4 KiB apart would push each other out of L1. A lies by its strides or, if a_rs is 0, in panels of one
 * tile, whose rows are side by side. `turned`: B is transposed, its columns lie at direct, and pb is to have it packed. */
static void F(slice)(int64_t m, int64_t n, int64_t kc, const T *a, int64_t a_rs, int64_t a_cs,
                     T *pb, const T *direct, int64_t ldb, int turned, T *c, int64_t ldc, int add)
{
    const int64_t rs = a_rs ? a_rs : 1, step = a_rs ? a_rs : kc; /* of rows of a tile, and of all */
    const int ahead = TILE_ALL && direct && !turned && m >= 4 * MR && ldb >= FAR_APART;
    const int64_t share = ahead ? kc * MR / (m - MR) : 0; /* rows of B for a tile of A */
    for (int64_t j = 0; j < n; j += NR) {
        int64_t nr = n - j < NR ? n - j : NR;
        int in_place = direct && !turned && nr % VL == 0;
        int copy = in_place && m > MR && ldb > NR;
        T *panel = pb + NR * kc;
        const T *b = copy ? panel : in_place ? direct + j : direct && !turned ? pb : pb + j * kc;
        int64_t done = 0;
#if TILE_TWICE
        if (turned && direct && nr == NR) {
            F(tile_turning)
            (kc, a, rs, a_rs ? a_cs : MR, direct + j * ldb, ldb, c + j, ldc, add, pb + j * kc);
            done = MR;
        }
#endif
#if TILE_ALL
        if (copy && nr == NR) {
            F(tile_first)
            (kc, a, rs, a_rs ? a_cs : MR, direct + j, ldb, c + j, ldc, add, panel);
            done = MR;
        }
#endif
        for (int64_t p = 0; copy && !done && p < kc; p++)
            for (int64_t x = 0; x < nr; x += VL)
                V_STORE(panel + p * NR + x, V_LOAD(direct + j + p * ldb + x));
        const int64_t bs = in_place && !copy ? ldb : NR;
        const T *ai = a + done * step, *next = share ? direct + j + 2 * NR - 1 : NULL;
        for (int64_t i = done, rows; i < m; i += rows, ai += rows * step) {
            rows = F(height)(m, i);
            const int64_t ps = a_rs ? a_cs : rows;
            T *ci = c + i * ldc + j;
            int64_t r = F(tile)(rows, kc, ai, rs, ps, b, bs, ci, ldc, nr, add);
            while (sizeof(T) == 8 && r < rows)
                r += F(tile)(rows - r, kc, ai + r * rs, rs, ps, b, bs, ci + r * ldc, ldc, nr, add);
            /* The next panel, a share under each tile: its rows are too far apart for the processor to see them coming. */
            for (int64_t q = 0; q < share; q++, next += ldb)
                __builtin_prefetch(next, 0, 2);
        }
    }
}

#undef TILE_CASE
#undef TILE_ALL
#undef TILE_TWICE
#undef NR
