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

/* c[0..rows) x [0..nv * VL) := a * b, plus rows that begin at `from` (or NULL), from_rs apart. Element (i, p) of A lies at
 * a[i * rs + p * ps]; b has kc rows of nv * VL readable elements. `twice`: a full tile with ps == 1 and a packed B in steps of
 * two, in 22 instructions for 25, which counts where two threads share a core. */
static inline __attribute__((always_inline)) void
F(tile_n)(int rows, int nv, int64_t kc, const T *restrict a, int64_t rs, int64_t ps,
          const T *restrict b, int64_t ldb, T *c, int64_t ldc, const T *from, int64_t from_rs,
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
    if (from) {
        WF_UNROLL
        for (int i = 0; i < rows; i++, from += from_rs) {
            acc[i][0] = acc[i][0] + V_LOAD(from);
            if (nv > 1)
                acc[i][1] = acc[i][1] + V_LOAD(from + VL);
        }
    }
    WF_UNROLL
    for (int i = 0; i < rows; i++, c += ldc) {
        V_STORE(c, acc[i][0]);
        if (nv > 1)
            V_STORE(c + VL, acc[i][1]);
    }
}

/* What tiles of one panel of B have in common. */
typedef struct F(panel_tiles) {
    int64_t kc, rs, ps, ldb, ldc, from_rs, nr; /* nr: columns, of which whole vectors are made */
    const T *b;
} F(panel_tiles);

#define TILE_CASE(R)                                                                               \
    case R:                                                                                        \
        if (t->nr > VL)                                                                            \
            F(tile_n)                                                                              \
        (R <= MR ? R : MR, 2, t->kc, a, t->rs, t->ps, t->b, t->ldb, c, t->ldc, from, t->from_rs,   \
         NULL, 0);                                                                                 \
        else F(tile_n)(R <= MR ? R : MR, 1, t->kc, a, t->rs, t->ps, t->b, t->ldb, c, t->ldc, from, \
                       t->from_rs, NULL, 0);                                                       \
        break

/* At most MR rows; returns how many of them were made. Every count has code of its own for float, few have for
 * double: the library is to stay small. */
static ONCE int64_t F(tile)(const F(panel_tiles) * t, int64_t rows, const T *a, T *c, const T *from)
{
#if TILE_TWICE
    if (rows >= MR && t->nr > VL && t->ps == 1 && t->ldb == NR) {
        for (int i = 0; from && i < MR; i++) {
            __builtin_prefetch(from + i * t->from_rs, 1);
            __builtin_prefetch(from + i * t->from_rs + NR - 1, 1);
        }
        F(tile_n)(MR, 2, t->kc, a, t->rs, 1, t->b, NR, c, t->ldc, from, t->from_rs, NULL, 1);
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
static ONCE void F(tile_first)(const F(panel_tiles) * t, const T *a, const T *b, int64_t ldb, T *c,
                               const T *from, T *copy)
{
    F(tile_n)(MR, 2, t->kc, a, t->rs, t->ps, b, ldb, c, t->ldc, from, t->from_rs, copy, 0);
}
#endif

#if TILE_TWICE
/* A full tile that turns its panel of a transposed B, a step of eight ahead of the arithmetic that this is done under. */
static ONCE void F(tile_turning)(const F(panel_tiles) * t, const T *a, const T *b, int64_t ldb,
                                 T *c, const T *from, T *panel)
{
    const int64_t kc = t->kc, rs = t->rs, ps = t->ps, ldc = t->ldc, from_rs = t->from_rs;
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
            if (from)
                acc[i][h] = acc[i][h] + V_LOAD(from + i * from_rs + h * VL);
            V_STORE(c + i * ldc + h * VL, acc[i][h]);
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

/* The bias of `rows` rows as a tile's own, in vectors. */
static ONCE void F(spread)(int64_t rows, const T *bias, T *out)
{
    for (int64_t i = 0; i < rows; i++, out += NR) {
        V_STORE(out, V_SET1(bias[i]));
        V_STORE(out + VL, V_SET1(bias[i]));
    }
}

/* Adds the bias, in vectors, to the sums of a tile while they are in the first cache. */
static ONCE void F(add_bias)(int64_t rows, int64_t nr, T *c, int64_t ldc, const T *bias,
                             int64_t bias_rs)
{
    for (int64_t i = 0; i < rows; i++, c += ldc, bias += bias_rs) {
        V_STORE(c, V_LOAD(c) + V_LOAD(bias));
        if (nr > VL)
            V_STORE(c + VL, V_LOAD(c + VL) + V_LOAD(bias + VL));
    }
}

/* As many rows as F(height) has, of which double makes fewer at once. */
static inline void F(tiles)(const F(panel_tiles) * t, int64_t rows, const T *a, T *c, const T *from)
{
    int64_t r = F(tile)(t, rows, a, c, from);
    while (sizeof(T) == 8 && r < rows)
        r += F(tile)(t, rows - r, a + r * t->rs, c + r * t->ldc,
                     from ? from + r * t->from_rs : NULL);
}

/* The last panel where its columns are not whole vectors: tiles are made beside C, with the bias of the last slice. */
static ONCE void F(last_panel)(F(panel_tiles) * t, int64_t m, const T *a, int64_t step, T *c,
                               int64_t ldc, int add, const T *bias, int64_t bias_rs)
{
    T tile[MR * NR], vectors[MR * NR];
    const int64_t ps = t->ps;
    const T *sum = bias ? vectors : NULL;
    t->ldc = NR;
    t->from_rs = bias_rs;
    if (bias && !bias_rs) {
        V_STORE(vectors, V_SET1(0)); /* one row for all */
        V_STORE(vectors + VL, V_SET1(0));
        memcpy(vectors, bias, (size_t)t->nr * sizeof(T));
    }
    for (int64_t i = 0, rows; i < m; i += rows, a += rows * step) {
        rows = F(height)(m, i);
        t->ps = step == t->rs ? ps : rows; /* not by strides, else packed */
        if (bias_rs)
            F(spread)(rows, bias + i, vectors);
        F(tiles)(t, rows, a, tile, add ? NULL : sum);
        for (int64_t r = 0; add && r < rows; r++)
            for (int64_t j = 0; j < t->nr; j++)
                tile[r * NR + j] = c[r * ldc + j] + tile[r * NR + j];
        if (add && bias)
            F(add_bias)(rows, t->nr, tile, NR, vectors, bias_rs);
        for (int64_t r = 0; r < rows; r++, c += ldc) {
            T *to = c;
            const T *from = tile + r * NR;
            if (t->nr > VL) {
                V_STORE(to, V_LOAD(from));
                to += VL, from += VL;
            }
            WF_UNROLL
            for (int64_t w = VL / 2; w > 0; w /= 2)
                if (t->nr & w) {
                    memcpy(to, from, (size_t)w * sizeof(T));
                    to += w, from += w;
                }
        }
    }
}

/* One k slice of a block. B lies packed in panels of NR columns, or in place (direct) but for a last panel that does
 * not fill its vectors, which pb has. A panel in place that several tiles read is copied behind that
 * one: rows a multiple of 4 KiB apart would push each other out of L1. A lies by its strides or, if a_rs is 0, in panels of one
 * tile, whose rows are side by side. `turned`: B is transposed, its columns lie at direct, and pb is to have it packed. `bias`:
 * NULL, or that of the first row and column, for the last slice, with its strides of g. */
static void F(slice)(int64_t m, int64_t n, int64_t kc, const T *a, int64_t a_rs, int64_t a_cs,
                     T *pb, const T *direct, int64_t ldb, int turned, T *c, int64_t ldc, int add,
                     const T *bias, const wf_gemm_block *g)
{
    const int64_t rs = a_rs ? a_rs : 1, step = a_rs ? a_rs : kc; /* of rows of a tile, and of all */
    const int ahead = TILE_ALL && direct && !turned && m >= 4 * MR && ldb >= FAR_APART;
    const int64_t share = ahead ? kc * MR / (m - MR) : 0; /* rows of B for a tile of A */
    const int64_t bias_rs = bias && g->bias_rs ? NR : 0,
                  bias_step = m <= WF_GEMM_BIAS_ROWS ? bias_rs : 0;
    const int64_t from_step = add ? ldc : bias_step;
    T vectors[WF_GEMM_BIAS_ROWS *
              NR]; /* the bias of all rows, of those of a tile, or of the columns */
    for (int64_t j = 0; j < n; j += NR) {
        int64_t nr = n - j < NR ? n - j : NR;
        int in_place = direct && !turned && nr % VL == 0;
        int copy = in_place && m > MR && ldb > NR;
        T *panel = pb + NR * kc;
        const T *b = copy ? panel : in_place ? direct + j : direct && !turned ? pb : pb + j * kc;
        const int turns = TILE_TWICE && turned && direct && nr == NR;
        const int first = turns || (TILE_ALL && copy && nr == NR);
        for (int64_t p = 0; copy && !first && p < kc; p++)
            for (int64_t x = 0; x < nr; x += VL)
                V_STORE(panel + p * NR + x, V_LOAD(direct + j + p * ldb + x));
        const int64_t bs = in_place && !copy ? ldb : NR;
        F(panel_tiles) t = {kc, rs, a_rs ? a_cs : 0, bs, ldc, add ? ldc : bias_rs, nr, b};
        if (nr % VL != 0) {
            F(last_panel)
            (&t, m, a, step, c + j, ldc, add, bias ? bias + (bias_rs ? 0 : j) : NULL, bias_rs);
            return;
        }
        if (bias && !bias_rs) {
            V_STORE(vectors, V_LOAD(bias + j));
            if (nr > VL)
                V_STORE(vectors + VL, V_LOAD(bias + j + VL));
        } else if (bias && j == 0 && m <= WF_GEMM_BIAS_ROWS)
            F(spread)(m, bias, vectors);
        const T *ai = a, *next = share ? direct + j + 2 * NR - 1 : NULL;
        const T *from = add ? c + j : bias ? vectors : NULL; /* is added to the sums at once */
        const int spreads = bias_rs && !bias_step, adds = bias && add;
        int64_t i = 0;
#if TILE_ALL
        if (first) {
            t.ps = a_rs ? a_cs : MR;
            if (spreads)
                F(spread)(MR, bias, vectors);
#if TILE_TWICE
            if (turns)
                F(tile_turning)(&t, ai, direct + j * ldb, ldb, c + j, from, pb + j * kc);
            else
#endif
                F(tile_first)(&t, ai, direct + j, ldb, c + j, from, panel);
            if (adds)
                F(add_bias)(MR, nr, c + j, ldc, vectors, bias_rs);
            i = MR, ai += MR * step;
        }
#endif
        for (int64_t rows; i < m; i += rows, ai += rows * step) {
            rows = F(height)(m, i);
            t.ps = a_rs ? a_cs : rows;
            T *ci = c + i * ldc + j;
            if (spreads)
                F(spread)(rows, bias + i, vectors);
            F(tiles)(&t, rows, ai, ci, from ? from + i * from_step : NULL);
            if (adds)
                F(add_bias)(rows, nr, ci, ldc, vectors + i * bias_step, bias_rs);
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
