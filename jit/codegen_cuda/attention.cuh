/*
 * jit/codegen_cuda/attention.cuh -- kernels of attention written by hand; kernels.cuh says what stands before a section.
 *
 * flash and flash_back keep no scores in memory: a block of 128 threads has rows of its own and walks the columns 64 at a time.
 * WF_WIDE: columns of 64 that the operands have at most. Operands come through one buffer of 64 x 64, which is loaded into registers
 * while the tile before is computed with (wf_fetch), and stand in shared memory as in memory, row by row: four
 * neighbours are one load, whether a product runs along them (wf_dots) or gives them (wf_spread). Shared memory gives
 * a warp 16 bytes a thread in two cycles where threads l and l ^ 1, or l and l ^ 2, want the same, which is why a thread's place x, y in its warp's
 * 8 x 4 has bits 0, 2, 3 and bits 1, 4 of its lane. It has rows y + 4 i of its warp's, columns x + 8 j of scores and
 * 4 x ... 4 x + 3 of each 32 of results. A warp's rows are its own, so what it turns from scores into the left side of a product needs
 * no barrier of the block. Nothing is added by atomics: a gradient's rows belong to one block, which also walks the batches that share
 * them, in order.
 *
 * attend and dscores work on scores in memory, for types and widths whose tiles do not fit.
 */

/* == flash_common */
struct __align__(16) wf_four {
    C0 v[4];
};
struct __align__(4 * sizeof(T0)) wf_raw {
    T0 v[4];
};
/* 2^x; 0 where that is subnormal. */
#ifdef __CUDA_ARCH__
WF_DEVICE float wf_power(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
#else
#define wf_power(x) exp2f(x)
#endif
#define WF_QUICK_EXP(x) wf_power((x) * wf_f32(0x3FB8AA3Bu))
/* at[k] += what operand k steps by for the number along `count` axes from word `first` on: an extent and six strides each,
 * innermost first. */
WF_DEVICE void wf_places(const struct wf_words_64 *a, int first, int count, long long number, long long *at)
{
    for (int d = 0; d < count; d++) {
        const unsigned long long *w = a->w + first + 7 * d;
        const long long rest = wf_quotient(number, (long long)w[0]), i = number - rest * (long long)w[0];
        number = rest;
        for (int k = 0; k < 6; k++)
            at[k] += i * (long long)w[1 + k];
    }
}
/* Tiles of ds that flash_back keeps: where those of item n begin, and of its queries 64 q ..., which have tiles for `across` times 64
 * keys, or 1, 2, 3 ... where they do not see what is behind them. */
WF_DEVICE long long wf_kept_item(long long n, int down, int across, int causal)
{
    return n * (causal ? (long long)down * (down + 1) / 2 : (long long)down * across) * 4096;
}
WF_DEVICE long long wf_kept_row(int q, int across, int causal)
{
    return (causal ? (long long)q * (q + 1) / 2 : (long long)q * across) * 4096;
}
/* Fetches operand o, an address and steps from word 3 o on, from row r and column c on. */
#define NEXT(o, r, c, rows, cols)                                                                                      \
    wf_fetch(ahead, POINTER(const T0, 3 * (o)) + at[o] + (r) * WORD(3 * (o) + 1) + (c) * WORD(3 * (o) + 2), (rows) - (r), \
             WORD(3 * (o) + 1), (cols) - (c), WORD(3 * (o) + 2), vector >> (o) & 1)
/* A thread's share of 64 x 64 elements from p on, 0 beyond rows and columns. vector: four neighbours are one load. */
WF_DEVICE void wf_fetch(struct wf_raw *v, const T0 *p, int rows, long long row_step, int cols, long long step, int vector)
{
    const int r = (int)threadIdx.x / 2, c0 = (int)threadIdx.x % 2 * 4, most = r < rows ? cols : 0;
    p += r * row_step + c0 * step;
    if (vector) {
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (8 * e + c0 < most)
                v[e] = *(const struct wf_raw *)(p + 8 * e);
            else
                v[e].v[0] = v[e].v[1] = v[e].v[2] = v[e].v[3] = 0;
    } else {
#pragma unroll
        for (int e = 0; e < 8; e++, p += 4 * step)
#pragma unroll
            for (int d = 0; d < 4; d++, p += step)
                v[e].v[d] = 8 * e + c0 + d < most ? *p : (T0)0;
    }
}
WF_DEVICE void wf_put(C0 *to, int apart, const struct wf_raw *v)
{
    to += (int)threadIdx.x / 2 * apart + (int)threadIdx.x % 2 * 4;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        struct wf_four f;
#pragma unroll
        for (int d = 0; d < 4; d++)
            f.v[d] = LOAD0(v[e].v[d]);
        *(struct wf_four *)(to + 8 * e) = f;
    }
}
/* The buffer gets what was fetched, once everybody is through with what it had. */
WF_DEVICE void wf_swap(C0 *right, const struct wf_raw *v)
{
    __syncthreads();
    wf_put(right, 68, v);
    __syncthreads();
}
/* sum[i][j] += row y + 4 i of left times row x + 8 j of right, along `depth` columns and what of 8 is begun. */
WF_DEVICE void wf_dots(C0 (*sum)[8], const int rows, const C0 *left, const int apart, const C0 *right, int depth)
{
    for (int l0 = 0; l0 < depth; l0 += 8)
#pragma unroll
        for (int l = l0; l < l0 + 8; l += 4) {
            struct wf_four p[8];
#pragma unroll
            for (int i = 0; i < rows; i++)
                p[i] = *(const struct wf_four *)(left + 4 * i * apart + l);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const struct wf_four q = *(const struct wf_four *)(right + 8 * j * 68 + l);
#pragma unroll
                for (int d = 0; d < 4; d++)
#pragma unroll
                    for (int i = 0; i < rows; i++)
                        sum[i][j] = FMA0(p[i].v[d], q.v[d], sum[i][j]);
            }
        }
}
/* sum += tile right, a tile of scores and the buffer: 32 columns of the tile at a time go to where their rows can be read. */
WF_DEVICE void wf_spread(C0 (*sum)[8], const int rows, C0 (*tile)[8], C0 *part, int x, const C0 *right)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                part[4 * i * 36 + x + 8 * j] = tile[i][4 * half + j];
        __syncwarp();
        for (int l0 = 0; l0 < 32; l0 += 8)
#pragma unroll
            for (int l = l0; l < l0 + 8; l += 4) {
                struct wf_four p[8];
#pragma unroll
                for (int i = 0; i < rows; i++)
                    p[i] = *(const struct wf_four *)(part + 4 * i * 36 + l);
#pragma unroll
                for (int d = 0; d < 4; d++) {
                    const C0 *from = right + (32 * half + l + d) * 68 + 4 * x;
                    const struct wf_four u = *(const struct wf_four *)from, v = *(const struct wf_four *)(from + 32);
#pragma unroll
                    for (int i = 0; i < rows; i++)
#pragma unroll
                        for (int c = 0; c < 4; c++) {
                            sum[i][c] = FMA0(p[i].v[d], u.v[c], sum[i][c]);
                            sum[i][4 + c] = FMA0(p[i].v[d], v.v[c], sum[i][4 + c]);
                        }
                }
            }
    }
}
/* Eight of a row's results times f, those before `width`: 4 x ... and 32 + 4 x ... from column `first` on. */
WF_DEVICE void wf_give(T0 *row, const C0 *sum, C0 f, int first, int width, int vector)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c0 = first + 32 * h;
        struct wf_raw v;
#pragma unroll
        for (int c = 0; c < 4; c++)
            v.v[c] = STORE0(sum[4 * h + c] * f);
        if (vector && c0 < width)
            *(struct wf_raw *)(row + c0) = v;
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (!vector && c0 + c < width)
                row[c0 + c] = v.v[c];
    }
}

/* == flash
 * out = softmax(scale q k^T + mask) v and the logarithm of each row's sum, by an online softmax. Three words each, address and
 * steps of rows and columns: q, k, v at 0, 3, 6, mask (or 0) at 12. 15 lse, 17 out (dense, by item), 19 queries, keys, width
 * of q and k, of v, 23 causal + 4 << (whose four neighbours are one access: q, k, v; 4 out), scale (f64), items, 26 16 times the axes of the batch, 29 each (wf_places: q, k, v,
 * none, mask, lse). T1: the mask. Rows that have most keys come first. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    WF_DYNAMIC(wf_dynamic)
    enum { ROWS = 128 / WF_WIDE, OWN = 8 / WF_WIDE, APART = 64 * WF_WIDE + 4 };
    C0 *const left = (C0 *)wf_dynamic, *const right = left + ROWS * APART, *const part = right + 64 * 68;
    long long *const at = (long long *)(part + ROWS * 36); /* not in registers: all of them are in use */
    const int l = (int)WORD(19), n = (int)WORD(20), down = (l + ROWS - 1) / ROWS;
    const C0 scale = (C0)wf_f64(a.w[24]), never = -(C0)WF_HUGE;
    const int lane = threadIdx.x % 32, x = (lane & 1) | (lane >> 1 & 6), y = (lane >> 1 & 1) | (lane >> 3 & 2);
    const int warp = (int)threadIdx.x / 32 * (ROWS / 4), causal = (int)WORD(23) & 1, vector = (int)WORD(23) >> 2;
    const int width = (int)WORD(21), wide = (int)WORD(22);
    for (long long tile = blockIdx.x; tile < down * WORD(25); tile += gridDim.x) {
        const long long slow = wf_quotient(tile, causal ? WORD(25) : down), fast = tile - slow * (causal ? WORD(25) : down);
        const long long item = causal ? fast : slow;
        const int i0 = (int)(causal ? down - 1 - slow : fast) * ROWS, keys = causal && i0 + ROWS < n ? i0 + ROWS : n;
        struct wf_raw ahead[8];
        C0 most[OWN], sum[OWN], acc[8][8];
        __syncthreads(); /* everybody is through with the last tile */
        if (threadIdx.x == 0) {
            for (int d = 0; d < 6; d++)
                at[d] = 0;
            wf_places(&a, 29, (int)WORD(26) >> 4, item, at);
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = WF_WIDE == 1 ? 64 * h : 0, c = 64 * h - r;
            NEXT(0, i0 + r, c, l, width);
            wf_put(left + r * APART + c, APART, ahead);
        }
        NEXT(1, 0, 0, keys, width);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            most[i] = never;
            sum[i] = 0;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[i][j] = 0;
        for (int j0 = 0; j0 < keys; j0 += 64) {
            const int first = i0 + warp;
            const int live = !causal || j0 < first + ROWS / 4;
            C0 s[OWN][8];
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    s[i][j] = 0;
#pragma unroll
            for (int c = 0; c < 64 * WF_WIDE; c += 64) {
                wf_swap(right, ahead);
                if (c + 64 < 64 * WF_WIDE)
                    NEXT(1, j0, 64, keys, width);
                else
                    NEXT(2, j0, 0, keys, wide);
                if (live)
                    wf_dots(s, OWN, left + (warp + y) * APART + c, APART, right + x * 68, width - c < 64 ? width - c : 64);
            }
            if (live) {
#pragma unroll
                for (int i = 0; i < OWN; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        s[i][j] = s[i][j] * scale;
                if (WORD(12) || j0 + 64 > n || (causal && j0 + 63 > first)) {
#pragma unroll
                    for (int i = 0; i < OWN; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++) {
                            const int row = first + y + 4 * i, col = j0 + x + 8 * j;
                            const int there = row < l && col < n && (!causal || col <= row);
                            if (WORD(12) && there)
                                s[i][j] = s[i][j] + MASK1(POINTER(const T1, 12)[at[4] + row * WORD(13) + col * WORD(14)]);
                            s[i][j] = there ? s[i][j] : never;
                        }
                }
#pragma unroll
                for (int i = 0; i < OWN; i++) {
                    C0 top = most[i];
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        top = wf_max_f32(top, s[i][j]);
                    top = wf_max_f32(top, __shfl_sync(0xFFFFFFFFu, top, lane ^ 1, 32));
                    top = wf_max_f32(top, __shfl_sync(0xFFFFFFFFu, top, lane ^ 4, 32));
                    top = wf_max_f32(top, __shfl_sync(0xFFFFFFFFu, top, lane ^ 8, 32));
                    const C0 base = top == never ? (C0)0 : top, keep = WF_QUICK_EXP(most[i] - base);
                    most[i] = top;
                    sum[i] = sum[i] * keep;
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        s[i][j] = WF_QUICK_EXP(s[i][j] - base);
                        sum[i] = sum[i] + s[i][j];
                    }
#pragma unroll
                    for (int c = i; c < 8; c += OWN)
#pragma unroll
                        for (int j = 0; j < 8; j++)
                            acc[c][j] = acc[c][j] * keep;
                }
            }
#pragma unroll
            for (int c = 0; c < WF_WIDE; c++) {
                wf_swap(right, ahead);
                if (c + 1 < WF_WIDE)
                    NEXT(2, j0, 64, keys, wide);
                else
                    NEXT(1, j0 + 64, 0, keys, width);
                if (live && 64 * c < wide)
                    wf_spread(acc + c * OWN, OWN, s, part + (warp + y) * 36, x, right);
            }
        }
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            const int row = i0 + warp + y + 4 * i;
            sum[i] = sum[i] + __shfl_sync(0xFFFFFFFFu, sum[i], lane ^ 1, 32);
            sum[i] = sum[i] + __shfl_sync(0xFFFFFFFFu, sum[i], lane ^ 4, 32);
            sum[i] = sum[i] + __shfl_sync(0xFFFFFFFFu, sum[i], lane ^ 8, 32);
            if (row >= l)
                continue;
#pragma unroll
            for (int c = 0; c < WF_WIDE; c++)
                wf_give(POINTER(T0, 17) + (item * l + row) * wide, acc[c * OWN + i], sum[i] == 0 ? (C0)0 : 1 / sum[i], 64 * c + 4 * x,
                        wide, vector & 16);
            if (x == 0)
                POINTER(C0, 15)[at[5] + row] = most[i] == never ? never : most[i] + WF_LOG(sum[i]);
        }
    }
}

/* == flash_kept
 * dq = ds k, of ds as flash_back kept it; words as there. Rows of queries 64 at a time, a thread has 4 by 8. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    WF_DYNAMIC(wf_dynamic)
    C0 *const left = (C0 *)wf_dynamic, *const right = left + 64 * 68;
    long long *const at = (long long *)(right + 64 * 68);
    const int rows = (int)WORD(19), cols = (int)WORD(20), down = (rows + 63) / 64, across = (cols + 63) / 64;
    const int x = threadIdx.x % 8 * 4, y = threadIdx.x / 8 * 4, causal = (int)WORD(23) & 1, vector = (int)WORD(23) >> 2;
    const int width = (int)WORD(21);
    for (long long tile = blockIdx.x; tile < down * WORD(25); tile += gridDim.x) {
        const long long slow = wf_quotient(tile, causal ? WORD(25) : down), fast = tile - slow * (causal ? WORD(25) : down);
        const int part = (int)(!causal ? fast : down - 1 - slow), end = causal && part * 64 + 64 < cols ? part * 64 + 64 : cols;
        const C0 *from = POINTER(const C0, 28) + wf_kept_item(causal ? fast : slow, down, across, causal) + wf_kept_row(part, across, causal) +
                         4 * threadIdx.x;
        struct wf_raw ahead[8];
        struct wf_four next[8];
        C0 acc[4][8];
        __syncthreads(); /* everybody is through with the last tile */
        if (threadIdx.x == 0) {
            for (int d = 0; d < 7; d++)
                at[d] = d < 6 ? 0 : (causal ? fast : slow) + (WORD(23) >> 32);
            wf_places(&a, 29, (int)WORD(26) >> 4, at[6], at);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[i][j] = 0;
        for (int c0 = -64; c0 < end; c0 += 64) {
            __syncthreads();
            if (c0 >= 0) {
                wf_put(right, 68, ahead);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    *(struct wf_four *)(left + (8 * e + (int)threadIdx.x / 16) * 68 + (int)threadIdx.x % 16 * 4) = next[e];
            }
            __syncthreads();
            if (c0 + 64 < end) {
                NEXT(1, c0 + 64, 0, cols, width);
#pragma unroll
                for (int e = 0; e < 8; e++)
                    next[e] = *(const struct wf_four *)(from + 512 * e);
                from += 4096;
            }
            for (int l0 = c0 < 0 ? 64 : 0; l0 < 64; l0 += 8)
#pragma unroll
                for (int l = l0; l < l0 + 8; l++) {
                    const struct wf_four p = *(const struct wf_four *)(left + l * 68 + y);
                    const struct wf_four u = *(const struct wf_four *)(right + l * 68 + x), v = *(const struct wf_four *)(right + l * 68 + 32 + x);
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int c = 0; c < 4; c++) {
                            acc[i][c] = FMA0(p.v[i], u.v[c], acc[i][c]);
                            acc[i][4 + c] = FMA0(p.v[i], v.v[c], acc[i][4 + c]);
                        }
                }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (part * 64 + y + i < rows)
                wf_give(POINTER(T0, 17) + (at[6] * rows + part * 64 + y + i) * width, acc[i], 1, x, width, vector >> 4 & 1);
    }
}

/* == flash_back
 * Probabilities are made again from lse; ds = p (dp - delta) scale. For rows of q: s = q k^T, dp = g v^T, dq = ds k. For
 * rows of k (turned): s = k q^T, dp = v g^T, dk = ds^T q, dv = p^T g. Three words each: what s is made of at 0 and 3, dp at 6 and
 * 9, mask (or 0) at 12. 15 lse, 16 delta, 17 and 18 results (dense, by item; 0: none, as is one of them where WF_WIDE is 2), 19 rows,
 * columns, width of s's operands, of dp's, 23 causal + 2 turned + 4 << (whose four neighbours are one access: the operands; 4 and 5 the results), scale (f64),
 * items, 26 axes that are summed + 16 times the others, how many batches the former make, 28 where ds of turned tiles is kept (0: nowhere),
 * 29 the axes (wf_places: the four operands, mask, lse and delta), summed ones first. T1: the mask. The upper half of word 23 is the
 * number of the first item. Kept tiles are 64 x 64, as turned; those of an item one behind the other as flash_kept reads them. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    WF_DYNAMIC(wf_dynamic)
    enum { APART = 64 * WF_WIDE + 4 };
    C0 *const left = (C0 *)wf_dynamic, *const right = left + 2 * 64 * APART, *const part = right + 64 * 68;
    C0 *const known = part + 64 * 36; /* lse and delta of the 64 queries of a tile */
    long long *const at = (long long *)(known + 128); /* not in registers: all of them are in use */
    const int rows = (int)WORD(19), cols = (int)WORD(20), down = (rows + 63) / 64;
    const C0 scale = (C0)wf_f64(a.w[24]), never = -(C0)WF_HUGE;
    const int lane = threadIdx.x % 32, x = (lane & 1) | (lane >> 1 & 6);
    const int own = (int)threadIdx.x / 32 * 16 + ((lane >> 1 & 1) | (lane >> 3 & 2));
    const int causal = (int)WORD(23) & 1, turned = (int)WORD(23) & 2, vector = (int)WORD(23) >> 2;
    const int width = (int)WORD(21), wide = (int)WORD(22);
    for (long long tile = blockIdx.x; tile < down * WORD(25); tile += gridDim.x) {
        const long long slow = wf_quotient(tile, causal ? WORD(25) : down), fast = tile - slow * (causal ? WORD(25) : down);
        const int r0 = (int)(!causal ? fast : turned ? slow : down - 1 - slow) * 64;
        C0 *const kept = !WORD(28) ? 0 : POINTER(C0, 28) + wf_kept_item(causal ? fast : slow, (cols + 63) / 64, down, causal);
        const int begin = causal && turned ? r0 : 0, end = causal && !turned && r0 + 64 < cols ? r0 + 64 : cols;
        __syncthreads(); /* everybody is through with the last tile */
        if (threadIdx.x == 0)
            at[6] = (causal ? fast : slow) + (WORD(23) >> 32);
        C0 acc[8][8]; /* results 18 and 17, or both halves of one */
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[i][j] = 0;
        for (long long b = 0; b < WORD(27); b++) {
            struct wf_raw ahead[8];
            __syncthreads(); /* everybody is through with the last batch */
            if (threadIdx.x == 0) {
                for (int d = 0; d < 6; d++)
                    at[d] = 0;
                wf_places(&a, 29, (int)WORD(26) & 15, b, at);
                wf_places(&a, 29 + 7 * ((int)WORD(26) & 15), (int)WORD(26) >> 4, at[6], at);
            }
            __syncthreads();
#pragma unroll
            for (int c = 0; c < 64 * WF_WIDE; c += 64) {
                NEXT(0, r0, c, rows, width);
                wf_put(left + c, APART, ahead);
                NEXT(2, r0, c, rows, wide);
                wf_put(left + 64 * APART + c, APART, ahead);
            }
            NEXT(1, begin, 0, cols, width);
            for (int c0 = begin; c0 < end; c0 += 64) {
                const int query = (turned ? c0 : r0) + (int)threadIdx.x % 64;
                C0 p[4][8], ds[4][8];
                unsigned int there = 0;
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        p[i][j] = ds[i][j] = 0;
#pragma unroll
                for (int c = 0; c < 64 * WF_WIDE; c += 64) {
                    wf_swap(right, ahead);
                    if (c + 64 < 64 * WF_WIDE)
                        NEXT(1, c0, c + 64, cols, width);
                    else
                        NEXT(3, c0, 0, cols, wide);
                    wf_dots(p, 4, left + own * APART + c, APART, right + x * 68, width - c < 64 ? width - c : 64);
                }
                /* who sees nothing, or is not there, has probabilities of 0 */
                if (query < (turned ? cols : rows)) {
                    const C0 k = POINTER(const C0, threadIdx.x < 64 ? 15 : 16)[at[5] + query];
                    known[threadIdx.x] = threadIdx.x < 64 && k == never ? -never : k;
                } else {
                    known[threadIdx.x] = threadIdx.x < 64 ? -never : (C0)0;
                }
#pragma unroll
                for (int c = 0; c < 64 * WF_WIDE; c += 64) {
                    wf_swap(right, ahead);
                    if (c + 64 < 64 * WF_WIDE)
                        NEXT(3, c0, c + 64, cols, wide);
                    else if (WF_WIDE > 1 && WORD(18))
                        NEXT(3, c0, 0, cols, wide);
                    else
                        NEXT(1, c0, 0, cols, width);
                    if (WORD(17))
                        wf_dots(ds, 4, left + (64 + own) * APART + c, APART, right + x * 68, wide - c < 64 ? wide - c : 64);
                }
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        p[i][j] = p[i][j] * scale;
                const int edge = WORD(12) || r0 + 64 > rows || c0 + 64 > cols || (causal && c0 == r0);
                if (edge) {
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++) {
                            const int row = r0 + own + 4 * i, col = c0 + x + 8 * j;
                            if (row < rows && col < cols && (!causal || (turned ? col - row : row - col) >= 0)) {
                                there |= 1u << (8 * i + j);
                                if (WORD(12))
                                    p[i][j] = p[i][j] + MASK1(POINTER(const T1, 12)[at[4] + row * WORD(13) + col * WORD(14)]);
                            }
                        }
                }
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        const C0 *const k = known + (turned ? x + 8 * j : own + 4 * i);
                        p[i][j] = WF_QUICK_EXP(p[i][j] - k[0]);
                        ds[i][j] = p[i][j] * (ds[i][j] - k[64]) * scale;
                    }
                if (edge) {
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++) {
                            const int sees = (int)(there >> (8 * i + j)) & 1;
                            p[i][j] = sees ? p[i][j] : (C0)0;
                            ds[i][j] = sees ? ds[i][j] : (C0)0;
                        }
                }
#if WF_WIDE == 1
                if (WORD(28)) {
                    C0 *const to = kept + wf_kept_row(c0 / 64, down, causal) + (r0 + own) * 64 + x;
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int j = 0; j < 8; j++)
                            to[i * 256 + 8 * j] = ds[i][j];
                }
                if (WORD(18))
                    wf_spread(acc, 4, p, part + own * 36, x, right);
                wf_swap(right, ahead);
                NEXT(1, c0 + 64, 0, cols, width);
                if (WORD(17))
                    wf_spread(acc + 4, 4, ds, part + own * 36, x, right);
#else
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 8; j++)
                        p[i][j] = WORD(18) ? p[i][j] : ds[i][j];
                wf_swap(right, ahead);
                if (WORD(18))
                    NEXT(3, c0, 64, cols, wide);
                else
                    NEXT(1, c0, 64, cols, width);
                wf_spread(acc, 4, p, part + own * 36, x, right);
                wf_swap(right, ahead);
                NEXT(1, c0 + 64, 0, cols, width);
                wf_spread(acc + 4, 4, p, part + own * 36, x, right);
#endif
            }
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int to = WF_WIDE == 1 ? 18 - h : WORD(17) ? 17 : 18, most = to == 17 ? width : wide;
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (a.w[to] && r0 + own + 4 * i < rows)
                    wf_give(POINTER(T0, to) + (at[6] * rows + r0 + own + 4 * i) * most, acc[4 * h + i], 1,
                            (WF_WIDE == 1 ? 0 : 64 * h) + 4 * x, most, vector >> (to - 13) & 1);
        }
    }
}

/* == attend
 * Scores to probabilities, in place; a warp a row: scores [items][l][s] of C0, items, l, s, causal, scale (f64), lse,
 * mask (or 0), backward, strides of the mask's rows and columns, axes of the batch, then extent and stride of the mask
 * for each, innermost first. Backward: probabilities from lse. T1: the mask. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long l = WORD(2), n = WORD(3);
    const C0 scale = (C0)wf_f64(a.w[5]), never = -(C0)WF_HUGE;
    const int lane = threadIdx.x % 32;
    for (long long row = START / 32; row < WORD(1) * l; row += STEP / 32) {
        const long long i = row % l, limit = WORD(4) && i + 1 < n ? i + 1 : n;
        C0 *s = POINTER(C0, 0) + row * n, *lse = POINTER(C0, 6) + row;
        long long rest = row / l, at = i * WORD(9);
        C0 most = never, sum = 0;
        for (int d = 0; d < (int)WORD(11); d++) {
            at += rest % WORD(12 + 2 * d) * WORD(13 + 2 * d);
            rest /= WORD(12 + 2 * d);
        }
        for (long long j = lane; j < limit; j += 32) {
            C0 v = s[j] * scale;
            if (WORD(7))
                v = v + MASK1(POINTER(const T1, 7)[at + j * WORD(10)]);
            s[j] = v;
            most = v > most || v != v ? v : most;
        }
        if (WORD(8)) {
            most = *lse;
        } else {
            for (int h = 16; h >= 1; h /= 2) {
                const C0 v = __shfl_down_sync(0xFFFFFFFFu, most, h, 32);
                most = v > most || v != v ? v : most;
            }
            most = __shfl_sync(0xFFFFFFFFu, most, 0, 32);
        }
        const int none = most == never;
        for (long long j = lane; j < n; j += 32) {
            const C0 e = j < limit && !none ? WF_EXP(s[j] - most) : (C0)0;
            s[j] = e;
            sum = sum + e;
        }
        if (WORD(8))
            continue;
        for (int h = 16; h >= 1; h /= 2)
            sum = sum + __shfl_down_sync(0xFFFFFFFFu, sum, h, 32);
        sum = __shfl_sync(0xFFFFFFFFu, sum, 0, 32);
        for (long long j = lane; j < limit && !none; j += 32)
            s[j] = s[j] / sum;
        if (lane == 0)
            *lse = none ? never : most + WF_LOG(sum);
    }
}

/* == dscores
 * dp := p * (dp - dot) * scale, a warp a row; dot = sum(g * out). dp, p [rows][n] of C0, g, out [rows][width], rows, n,
 * width, scale (f64). */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long n = WORD(5), width = WORD(6);
    const C0 scale = (C0)wf_f64(a.w[7]);
    const int lane = threadIdx.x % 32;
    for (long long row = START / 32; row < WORD(4); row += STEP / 32) {
        C0 dot = 0, *dp = POINTER(C0, 0) + row * n;
        const C0 *p = POINTER(const C0, 1) + row * n;
        const C0 *g = POINTER(const C0, 2) + row * width, *out = POINTER(const C0, 3) + row * width;
        for (long long j = lane; j < width; j += 32)
            dot = dot + g[j] * out[j];
        for (int h = 16; h >= 1; h /= 2)
            dot = dot + __shfl_down_sync(0xFFFFFFFFu, dot, h, 32);
        dot = __shfl_sync(0xFFFFFFFFu, dot, 0, 32);
        for (long long j = lane; j < n; j += 32)
            dp[j] = p[j] * (dp[j] - dot) * scale;
    }
}

/* == end */
