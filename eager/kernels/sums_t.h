/*
 * eager/kernels/sums_t.h -- template: canonical sums of values as they lie in memory.
 *
 * The includer defines T (type of the sums), TSFX (its registers), ESIZE (its bytes), S (type in memory),
 * SFX (of the functions), GET(p) (a register of values of type S at p, as T), ONE(v) (a value as T) and
 * NOTHING (-0 in type S), and undefines all but T, TSFX and ESIZE.
 *
 * Invariant: the order is that of reduce_canon.h; a missing element is -0, which changes no bits.
 */
#define FN(name) WF_JOIN(name, SFX)
#define V WF_JOIN(wf_vec, TSFX)
#define VMEM WF_JOIN(wf_mem, TSFX)
#define VN (WF_VBYTES / ESIZE)
#define NA (WF_LANES / VN)
#define PUT(p, v) (*(VMEM *)(void *)(p) = (VMEM)(v))

/* -- along memory ---------------------------------------------------------------------------------------- */
/* Blocks summed at once: what registers there are for their lanes. */
#if defined(__AVX512F__)
#define AT_ONCE (NA <= 4 ? 4 : 2)
#else
#define AT_ONCE 1
#endif

/* Values [i, n) of a block as 64 lanes. */
static __attribute__((noinline)) void FN(pad)(S *few, const S *x, int64_t i, int64_t n)
{
    memcpy(few, x + i, (size_t)(n - i) * sizeof(S));
    for (int64_t j = n - i; j < WF_LANES; j++) {
        few[j] = NOTHING;
    }
}

/* `count` blocks of n values, 0 < n <= 4096, x + stride and so on: lanes[r] = the 64 lanes of block r, halved until
 * they fill one register. One loop for all: its end, which a processor foresees badly, comes once. */
WF_INLINE void FN(lanes)(V *lanes, const S *x, int64_t n, int64_t stride, const int count)
{
    V a[AT_ONCE][NA];
    S few[WF_LANES];
    const int64_t whole = n / WF_LANES * WF_LANES;
    WF_UNROLL for (int r = 0; r < count; r++)
    {
        const S *first = x + r * stride;
        if (whole == 0) {
            FN(pad)(few, first, 0, n);
            first = few;
        }
        WF_UNROLL for (int k = 0; k < NA; k++)
        {
            a[r][k] = GET(first + k * VN);
        }
    }
    for (int64_t i = WF_LANES; i < whole; i += WF_LANES) {
        WF_UNROLL for (int r = 0; r < count; r++)
        {
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[r][k] = a[r][k] + GET(x + r * stride + i + k * VN);
            }
        }
    }
    WF_UNROLL for (int r = 0; r < count; r++)
    {
        if (whole < n && whole > 0) {
            FN(pad)(few, x + r * stride, whole, n);
            WF_UNROLL for (int k = 0; k < NA; k++)
            {
                a[r][k] = a[r][k] + GET(few + k * VN);
            }
        }
        WF_UNROLL for (int h = NA / 2; h >= 1; h /= 2)
        {
            WF_UNROLL for (int k = 0; k < h; k++)
            {
                a[r][k] = a[r][k] + a[r][k + h];
            }
        }
        lanes[r] = a[r][0];
    }
}

/* out[i] = the sum of block x[i * stride .. + n) */
static void FN(span)(void *outv, const void *xv, int64_t n, int64_t stride, int64_t count)
{
    T *out = outv;
    const S *x = xv;
    int64_t i = 0;
#if VN >= 8
    for (; i + 4 <= count; i += 4, x += 4 * stride) {
        V v[4];
        for (int r = 0; r < 4; r += AT_ONCE) {
            FN(lanes)(v + r, x + r * stride, n, stride, AT_ONCE);
        }
        const V sums = WF_JOIN(wf_fold4, TSFX)(v[0], v[1], v[2], v[3]);
        for (int k = 0; k < 4; k++) {
            out[i + k] = (T)sums[k * (VN / 4)];
        }
    }
#endif
    for (; i < count; i++, x += stride) {
        V a;
        FN(lanes)(&a, x, n, 0, 1);
#if VN == 16
        a = a + WF_SHUF(a, WF_ROT16_8);
        a = a + WF_SHUF(a, WF_ROT16_4);
        a = a + WF_SHUF(a, WF_ROT16_2);
        a = a + WF_SHUF(a, WF_ROT16_1);
#elif VN == 8
        a = a + WF_SHUF(a, WF_ROT8_4);
        a = a + WF_SHUF(a, WF_ROT8_2);
        a = a + WF_SHUF(a, WF_ROT8_1);
#elif VN == 4
        a = a + WF_SHUF(a, WF_ROT4_2);
        a = a + WF_SHUF(a, WF_ROT4_1);
#else
        a = a + WF_SHUF(a, WF_ROT2_1);
#endif
        out[i] = (T)a[0];
    }
}

/* -- across rows ------------------------------------------------------------------------------------------- */
enum { FN(STRIP) = 4 * VN };
typedef struct FN(strip) {
    V v[4];
} FN(strip);

/* Lane l of a strip of columns: rows l, l + 64 ... in sequence. */
WF_INLINE FN(strip) FN(lane)(const S *x, int64_t stride, int64_t rows, int64_t l)
{
    FN(strip) s;
    if (l >= rows) {
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            s.v[k] = -(V){0};
        }
        return s;
    }
    const S *row = x + l * stride;
    WF_UNROLL for (int k = 0; k < 4; k++)
    {
        s.v[k] = GET(row + k * VN);
    }
    for (int64_t r = l + WF_LANES; r < rows; r += WF_LANES) {
        row += WF_LANES * stride;
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            s.v[k] = s.v[k] + GET(row + k * VN);
        }
    }
    return s;
}
WF_INLINE FN(strip) FN(plus)(FN(strip) a, FN(strip) b)
{
    WF_UNROLL for (int k = 0; k < 4; k++)
    {
        a.v[k] = a.v[k] + b.v[k];
    }
    return a;
}

WF_INLINE FN(strip) FN(pair)(const S *x, int64_t stride, int64_t rows, int64_t l)
{
    FN(strip) s = FN(lane)(x, stride, rows, l);
    return l + 32 < rows ? FN(plus)(s, FN(lane)(x, stride, rows, l + 32)) : s;
}

/* out[c] = the sum of column c over the rows of one block, rows <= 4096, cols >= STRIP: the whole tree of
 * the lanes in registers, a strip of columns at a time. */
static void FN(tree)(void *outv, const void *xv, int64_t stride, int64_t rows, int64_t cols)
{
    static const int8_t reversed[8] = {0, 4, 2, 6, 1, 5, 3, 7};
#define PAIR(j) FN(pair)(x, stride, rows, l + (j))
    for (int64_t at = 0; at < cols; at += FN(STRIP)) {
        const int64_t c = at + FN(STRIP) <= cols ? at : cols - FN(STRIP);
        const S *x = (const S *)xv + c;
        FN(strip) stack[4];
        int top = 0;
        for (int i = 0; i < 8; i++) {
            const int64_t l = reversed[i];
            FN(strip) s = PAIR(0), t = PAIR(8);
            if (l + 16 < rows) {
                s = FN(plus)(s, PAIR(16));
                t = FN(plus)(t, PAIR(24));
            }
            s = FN(plus)(s, t);
            for (int k = i; k & 1; k >>= 1) {
                s = FN(plus)(stack[--top], s);
            }
            stack[top++] = s;
        }
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            PUT((T *)outv + c + k * VN, stack[0].v[k]);
        }
    }
#undef PAIR
}

/* acc[c] = acc[c] + rows[0][c] + rows[1][c] ... in this order; init: starts at rows[0]. */
static void FN(rows)(void *accv, const void *const *rows, int64_t nrows, int64_t ncols, int init)
{
    T *acc = accv;
    int64_t c = 0;
#define ROW(r) ((const S *)rows[r] + c)
    for (; c + FN(STRIP) <= ncols; c += FN(STRIP)) {
        V v[4];
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            v[k] = init ? GET(ROW(0) + k * VN) : (V)(*(const VMEM *)(acc + c + k * VN));
        }
        for (int64_t r = init ? 1 : 0; r < nrows; r++) {
            WF_UNROLL for (int k = 0; k < 4; k++)
            {
                v[k] = v[k] + GET(ROW(r) + k * VN);
            }
        }
        WF_UNROLL for (int k = 0; k < 4; k++)
        {
            PUT(acc + c + k * VN, v[k]);
        }
    }
    for (; c < ncols; c++) {
        T v = init ? ONE(*ROW(0)) : acc[c];
        for (int64_t r = init ? 1 : 0; r < nrows; r++) {
            v = v + ONE(*ROW(r));
        }
        acc[c] = v;
    }
#undef ROW
}

#undef AT_ONCE
#undef PUT
#undef NA
#undef VN
#undef VMEM
#undef V
#undef FN
#undef S
#undef SFX
#undef GET
#undef ONE
#undef NOTHING
