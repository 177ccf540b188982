/*
 * jit/codegen_cuda/attention.cuh -- kernels of attention written by hand; kernels.cuh says what stands before a section.
 *
 * flash and flash_back keep no scores in memory: a block of 256 threads has 64 rows and walks the columns 64 at a time, the
 * products of a tile being those of gemm. WF_WIDE: columns of 64 that the results have at most. A thread has rows y * 4 + i
 * and columns x + 16 j of every tile, so the 16 threads of a row are neighbours in a warp. Nothing is added by atomics: a
 * gradient's rows belong to one block, which also walks the batches that share them, in order.
 *
 * attend and dscores work on scores in memory, for types and widths whose tiles do not fit.
 */

/* == flash_common */
#define WF_EACH(i, j)                                                                                                  \
    for (int i = 0; i < 4; i++)                                                                                        \
        for (int j = 0; j < 4; j++)
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
/* part[column][row] := a tile, as the left side of a product over its columns. */
WF_DEVICE void wf_turn(C0 (*part)[68], C0 (*tile)[4])
{
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    WF_EACH(i, j)
    part[x + 16 * j][y * 4 + i] = tile[i][j];
    __syncthreads();
}
/* sum[c] += part^T p over rows l0 ... l0 + 63 of p, which has `depth` rows and `width` columns. */
WF_DEVICE void wf_spread(C0 (*sum)[4][4], C0 (*part)[68], C0 (*right)[68], const T0 *p, long long l0, long long depth,
                         long long step, long long width, long long across)
{
    for (int k0 = 0; k0 < 64 && l0 + k0 < depth; k0 += 16)
#pragma unroll
        for (int c = 0; c < WF_WIDE; c++) {
            wf_slice(right, p, 64 * c, width, across, l0 + k0, depth, step);
            __syncthreads();
            wf_multiply(sum[c], part + k0, right, 16);
            __syncthreads();
        }
}

/* == flash
 * out = softmax(scale q k^T + mask) v and the logarithm of each row's sum, by an online softmax. Three words each, address and
 * steps of rows and columns: q, k, v at 0, 3, 6, mask (or 0) at 12. 15 lse, 17 out (dense, by item), 19 queries, keys, width
 * of q and k, of v, 23 causal, scale (f64), items, 28 axes of the batch, then each (wf_places: q, k, v, none, mask, lse). T1: the
 * mask. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    __shared__ C0 left[16][68];
    __shared__ C0 right[16][68];
    __shared__ C0 part[64][68];
    const long long l = WORD(19), n = WORD(20), width = WORD(22), down = (l + 63) / 64;
    const C0 scale = (C0)wf_f64(a.w[24]), never = -(C0)WF_HUGE;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, causal = (int)WORD(23);
    for (long long tile = blockIdx.x; tile < down * WORD(25); tile += gridDim.x) {
        const long long i0 = tile % down * 64, item = tile / down, keys = causal && i0 + 64 < n ? i0 + 64 : n;
        long long at[6] = {0, 0, 0, 0, 0, 0};
        C0 most[4], sum[4], acc[WF_WIDE][4][4];
        wf_places(&a, 29, (int)WORD(28), item, at);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            most[i] = never;
            sum[i] = 0;
            for (int c = 0; c < WF_WIDE; c++)
                for (int j = 0; j < 4; j++)
                    acc[c][i][j] = 0;
        }
        for (long long j0 = 0; j0 < keys; j0 += 64) {
            C0 s[4][4];
#pragma unroll
            WF_EACH(i, j)
            s[i][j] = 0;
            wf_product(s, left, right, WORD(21), POINTER(const T0, 0) + at[0], i0, l, WORD(1), WORD(2),
                       POINTER(const T0, 3) + at[1], j0, n, WORD(4), WORD(5));
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const long long row = i0 + y * 4 + i;
                C0 top = most[i], add = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const long long col = j0 + x + 16 * j;
                    const int there = row < l && col < n && (!causal || col <= row);
                    C0 v = s[i][j] * scale;
                    if (WORD(12) && there)
                        v = v + MASK1(POINTER(const T1, 12)[at[4] + row * WORD(13) + col * WORD(14)]);
                    s[i][j] = v = there ? v : never;
                    top = v > top || v != v ? v : top;
                }
                for (int h = 8; h >= 1; h /= 2) {
                    const C0 v = __shfl_down_sync(0xFFFFFFFFu, top, h, 16);
                    top = v > top || v != v ? v : top;
                }
                top = __shfl_sync(0xFFFFFFFFu, top, 0, 16);
                const int none = top == never;
                const C0 keep = none ? (C0)1 : WF_EXP(most[i] - top);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    s[i][j] = none ? (C0)0 : WF_EXP(s[i][j] - top);
                    add = add + s[i][j];
                }
                for (int h = 8; h >= 1; h /= 2)
                    add = add + __shfl_down_sync(0xFFFFFFFFu, add, h, 16);
                sum[i] = sum[i] * keep + __shfl_sync(0xFFFFFFFFu, add, 0, 16);
                most[i] = top;
#pragma unroll
                for (int c = 0; c < WF_WIDE; c++)
                    for (int j = 0; j < 4; j++)
                        acc[c][i][j] = acc[c][i][j] * keep;
            }
            wf_turn(part, s);
            wf_spread(acc, part, right, POINTER(const T0, 6) + at[2], j0, keys, WORD(7), width, WORD(8));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const long long row = i0 + y * 4 + i;
            if (row >= l)
                continue;
            for (int c = 0; c < WF_WIDE; c++)
                for (int j = 0; j < 4; j++)
                    if (64 * c + x + 16 * j < width)
                        POINTER(T0, 17)[(item * l + row) * width + 64 * c + x + 16 * j] =
                            STORE0(sum[i] == 0 ? (C0)0 : acc[c][i][j] / sum[i]);
            if (x == 0)
                POINTER(C0, 15)[at[5] + row] = most[i] == never ? never : most[i] + WF_LOG(sum[i]);
        }
    }
}

/* == flash_back
 * Probabilities are made again from lse; ds = p (dp - delta) scale. For rows of q: s = q k^T, dp = g v^T, dq = ds k. For
 * rows of k (turned): s = k q^T, dp = v g^T, dk = ds^T q, dv = p^T g. Three words each: what s is made of at 0 and 3, dp at 6 and
 * 9, mask (or 0) at 12. 15 lse, 16 delta, 17 and 18 results (dense, by item; 0: none), 19 rows, columns, width of s's
 * operands, of dp's, 23 causal + 2 turned, scale (f64), items, 26 axes that are summed, how many batches they make, 28 the
 * other axes, then each (wf_places: the four operands, mask, lse and delta), summed ones first. T1: the mask. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    __shared__ C0 left[16][68];
    __shared__ C0 right[16][68];
    __shared__ C0 part[64][68];
    __shared__ long long at[6]; /* not in registers: all of them are in use */
    const long long rows = WORD(19), cols = WORD(20), down = (rows + 63) / 64;
    const C0 scale = (C0)wf_f64(a.w[24]), never = -(C0)WF_HUGE;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, causal = (int)WORD(23) & 1, turned = (int)WORD(23) >> 1;
    for (long long tile = blockIdx.x; tile < down * WORD(25); tile += gridDim.x) {
        const long long r0 = tile % down * 64, item = tile / down;
        const long long begin = causal && turned ? r0 : 0, end = causal && !turned && r0 + 64 < cols ? r0 + 64 : cols;
        C0 one[WF_WIDE][4][4], two[WF_WIDE][4][4];
#pragma unroll
        for (int c = 0; c < WF_WIDE; c++)
            WF_EACH(i, j)
            one[c][i][j] = two[c][i][j] = 0;
        for (long long b = 0; b < WORD(27); b++) {
            __syncthreads(); /* everybody is through with the last places */
            if (threadIdx.x == 0) {
                for (int d = 0; d < 6; d++)
                    at[d] = 0;
                wf_places(&a, 29, (int)WORD(26), b, at);
                wf_places(&a, 29 + 7 * (int)WORD(26), (int)WORD(28), item, at);
            }
            __syncthreads();
            for (long long c0 = begin; c0 < end; c0 += 64) {
                C0 p[4][4], ds[4][4];
#pragma unroll
                WF_EACH(i, j)
                p[i][j] = ds[i][j] = 0;
                wf_product(p, left, right, WORD(21), POINTER(const T0, 0) + at[0], r0, rows, WORD(1), WORD(2),
                           POINTER(const T0, 3) + at[1], c0, cols, WORD(4), WORD(5));
                wf_product(ds, left, right, WORD(22), POINTER(const T0, 6) + at[2], r0, rows, WORD(7), WORD(8),
                           POINTER(const T0, 9) + at[3], c0, cols, WORD(10), WORD(11));
#pragma unroll
                WF_EACH(i, j)
                {
                    const long long row = r0 + y * 4 + i, col = c0 + x + 16 * j, query = turned ? col : row;
                    const int there = row < rows && col < cols && (!causal || (turned ? row <= col : col <= row));
                    const C0 lse = there ? POINTER(const C0, 15)[at[5] + query] : never;
                    C0 v = p[i][j] * scale;
                    if (WORD(12) && there)
                        v = v + MASK1(POINTER(const T1, 12)[at[4] + row * WORD(13) + col * WORD(14)]);
                    p[i][j] = lse == never ? (C0)0 : WF_EXP(v - lse);
                    ds[i][j] = there ? p[i][j] * (ds[i][j] - POINTER(const C0, 16)[at[5] + query]) * scale : (C0)0;
                }
                if (WORD(18)) {
                    wf_turn(part, p);
                    wf_spread(two, part, right, POINTER(const T0, 9) + at[3], c0, cols, WORD(10), WORD(22), WORD(11));
                }
                if (WORD(17)) {
                    wf_turn(part, ds);
                    wf_spread(one, part, right, POINTER(const T0, 3) + at[1], c0, cols, WORD(4), WORD(21), WORD(5));
                }
            }
        }
#pragma unroll
        for (int c = 0; c < WF_WIDE; c++)
            WF_EACH(i, j)
            {
                const long long row = r0 + y * 4 + i, col = 64 * c + x + 16 * j;
                if (WORD(17) && row < rows && col < WORD(21))
                    POINTER(T0, 17)[(item * rows + row) * WORD(21) + col] = STORE0(one[c][i][j]);
                if (WORD(18) && row < rows && col < WORD(22))
                    POINTER(T0, 18)[(item * rows + row) * WORD(22) + col] = STORE0(two[c][i][j]);
            }
    }
}

/* == attend
 * Scores to probabilities, in place; a warp a row: scores [items][l][s] of C0, items, l, s, causal, scale (f64), lse,
 * mask (or 0), backward, strides of the mask's rows and columns, axes of the batch, then extent and stride of the mask
 * for each, innermost first. Backward: probabilities from lse. T1: the mask. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
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
