/*
 * jit/codegen_cuda/kernels.cuh -- kernels written by hand, in the common subset of C and CUDA C++.
 *
 * This file is not compiled: hand.c has its text, and renders one section for the element types asked for.
 * Before a section stand: T0, T1 ... (types in memory), C0 ... (types to compute in), LOAD0(x), STORE0(v) ...,
 * ADD0(x, y), MUL0(x, y) ... of C0 (integers wrap), NAME, and, where a section names them, WF_EXP and WF_LOG of C0, TAKE and GIVE, WF_WIDE.
 * Arguments are 64-bit words.
 * Indices count from the end when negative; one that is out of range goes to the error word, and nothing is
 * read or written through it: what would have been read is 0.
 */

/* == common */
#define WORD(i) ((long long)a.w[i])
#define POINTER(T, i) ((T *)a.w[i])
#define START ((long long)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((long long)gridDim.x * blockDim.x)
/* x / word i, of an extent with its multiplier and shift; x is below 2^31. */
#define OVER(x, i) ((__umulhi(x, (unsigned int)a.w[(i) + 1]) + (x)) >> (unsigned int)a.w[(i) + 2])
/* x / word i of the same kind, however large. */
#define DIVIDE(x, i) ((((x) | WORD(i)) >> 31) == 0 ? (long long)OVER((unsigned int)(x), i) : (x) / WORD(i))
WF_DEVICE void wf_bad_index(unsigned long long *error, long long at)
{
    atomicCAS(error, ~0ull, (unsigned long long)(at == -1 ? -2 : at));
}

/* == place_common */
/* x / y and x % y of what is not negative: in 32 bits where both are that small, as they are but for tensors of 2^32 elements; 64 bits
 * take some ten times as many instructions. */
WF_DEVICE long long wf_quotient(long long x, long long y)
{
    return ((x | y) >> 32) == 0 ? (long long)((unsigned int)x / (unsigned int)y) : x / y;
}
WF_DEVICE long long wf_remainder(long long x, long long y)
{
    return x - wf_quotient(x, y) * y;
}
/* to += where number `rest`, which becomes 0, lies along `axes` axes: extents and strides by turns from word `first` on, innermost first.
 * Nothing is divided by the outermost extent. */
#define WALK(to, rest, axes, first)                                                                          \
    _Pragma("unroll 1") for (int d = 0; d < (axes); d++) {                                                                       \
        const long long up = d + 1 < (axes) ? wf_quotient(rest, WORD((first) + 2 * d)) : 0;                  \
        to += (rest - up * WORD((first) + 2 * d)) * WORD((first) + 2 * d + 1);                               \
        rest = up;                                                                                           \
    }

/* == check
 * Indices at 0, count, extent, error, least, value that is never wrong (if 6 is 1). */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long *at = POINTER(const long long, 0), n = WORD(1), extent = WORD(2), least = WORD(4);
    for (long long i = START; i < n; i += STEP)
        if ((at[i] < least || at[i] >= extent) && !(WORD(6) && at[i] == WORD(5)))
            wf_bad_index(POINTER(unsigned long long, 3), at[i]);
}

/* == select
 * dst[o][k][j] = x[o * xo + index[k] * xa + j * xi]: dst, x, index, elements of dst, xo, xa, xi, extent, error, inner (divisor),
 * n (divisor). A thread has four elements in flight; those past the end are its first one again. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long total = WORD(3), extent = WORD(7), step = STEP;
    for (long long first = START; first < total; first += 4 * step) {
        long long to[4], from[4], k[4], at[4];
        T0 v[4];
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const long long i = first + u * step < total ? first + u * step : first;
            const long long row = DIVIDE(i, 9), o = DIVIDE(row, 12);
            to[u] = i;
            k[u] = row - o * WORD(12);
            from[u] = o * WORD(4) + (i - row * WORD(9)) * WORD(6);
        }
#pragma unroll
        for (int u = 0; u < 4; u++)
            at[u] = POINTER(const long long, 2)[k[u]];
#pragma unroll
        for (int u = 0; u < 4; u++) {
            const int good = at[u] >= -extent && at[u] < extent;
            v[u] = good ? POINTER(const T0, 1)[from[u] + (at[u] < 0 ? at[u] + extent : at[u]) * WORD(5)] : (T0)0;
        }
#pragma unroll
        for (int u = 0; u < 4; u++) {
            if (at[u] < -extent || at[u] >= extent)
                wf_bad_index(POINTER(unsigned long long, 8), at[u]);
            POINTER(T0, 0)[to[u]] = v[u];
        }
    }
}

/* == along
 * dst[i] = x at i's place, but at index[i] along one axis: dst, x, index, count, extent, jump, error, rank, then
 * an extent and a stride (0 along the axis) for each axis, innermost first. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long extent = WORD(4);
    for (long long i = START; i < WORD(3); i += STEP) {
        long long at = POINTER(const long long, 2)[i], rest = i, from = 0;
        if (at < -extent || at >= extent) {
            wf_bad_index(POINTER(unsigned long long, 6), at);
            POINTER(T0, 0)[i] = 0;
            continue;
        }
        WALK(from, rest, (int)WORD(7), 8)
        POINTER(T0, 0)[i] = POINTER(const T0, 1)[from + (at < 0 ? at + extent : at) * WORD(5)];
    }
}

/* == index_add
 * acc[o][index[k]][j] += values[o][k][j], in the order of k; a warp has one place of the axis and 32 columns.
 * acc (compute type), values, index, outer, extent, inner, count, error, chunks of 32 columns (divisor), extent (divisor). */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long extent = WORD(4), inner = WORD(5), count = WORD(6);
    const long long warps = STEP / 32, work = WORD(3) * extent * WORD(8);
    const long long *index = POINTER(const long long, 2);
    const int lane = threadIdx.x % 32;
    for (long long g = START / 32; g < work; g += warps) {
        const long long row = DIVIDE(g, 8), o = DIVIDE(row, 11), place = row - o * extent;
        const long long j = (g - row * WORD(8)) * 32 + lane;
        C0 *to = POINTER(C0, 0) + row * inner + j;
        const T0 *from = POINTER(const T0, 1) + o * count * inner + j;
        C0 sum = j < inner ? *to : (C0)0;
        for (long long first = 0; first < count; first += 32) {
            long long at = first + lane < count ? index[first + lane] : 0;
            if (at < -extent || at >= extent) {
                wf_bad_index(POINTER(unsigned long long, 7), at);
                at = place + 1;
            }
            at = at < 0 ? at + extent : at;
            unsigned int hits = __ballot_sync(0xFFFFFFFFu, first + lane < count && at == place);
            while (hits) {
                const int k = __ffs((int)hits) - 1;
                hits &= hits - 1;
                if (j < inner)
                    sum = ADD0(sum, LOAD0(from[(first + k) * inner]));
            }
        }
        if (j < inner)
            *to = sum;
    }
}

/* == places
 * keys[k] = index[k] as a place of the axis; extent for one that is out of range. keys, index, n, extent, error. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long extent = WORD(3);
    for (long long k = START; k < WORD(2); k += STEP) {
        long long at = POINTER(const long long, 1)[k];
        if (at < -extent || at >= extent) {
            wf_bad_index(POINTER(unsigned long long, 4), at);
            at = extent;
        }
        POINTER(long long, 0)[k] = at < 0 ? at + extent : at;
    }
}

/* == index_add_sorted
 * index_add with places in ascending order (7) and where they stood (2), equal ones in the order of k: a warp finds its
 * place's, by 32 probes at a time, and touches nothing if there are none. It has 128 columns at a time, four in a thread.
 * acc (compute type), values, at, outer, extent, inner, count, keys, parts that a row's columns are in (divisor), extent (divisor),
 * columns of a part. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long extent = WORD(4), inner = WORD(5), count = WORD(6);
    const long long warps = STEP / 32, work = WORD(3) * extent * WORD(8);
    const long long *at = POINTER(const long long, 2), *key = POINTER(const long long, 7);
    const int lane = threadIdx.x % 32;
    for (long long g = START / 32; g < work; g += warps) {
        const long long row = DIVIDE(g, 8), o = DIVIDE(row, 11), place = row - o * extent;
        const long long begin = (g - row * WORD(8)) * WORD(14), end = begin + WORD(14) < inner ? begin + WORD(14) : inner;
        long long lo = 0, hi = count;
        while (lo < hi) {
            const long long apart = (hi - lo + 31) / 32, probe = lo + lane * apart;
            const unsigned int less = __ballot_sync(0xFFFFFFFFu, probe < hi && key[probe < hi ? probe : lo] < place);
            const int n = less == 0xFFFFFFFFu ? 32 : __ffs((int)~less) - 1;
            hi = lo + n * apart < hi ? lo + n * apart : hi;
            lo = n > 0 ? lo + (n - 1) * apart + 1 : hi;
        }
        if (lo == count || key[lo] != place)
            continue;
        for (long long j = begin + lane; j - lane < end; j += 128) {
            C0 *to = POINTER(C0, 0) + row * inner + j;
            const T0 *from = POINTER(const T0, 1) + o * count * inner + j;
            C0 sum[4];
#pragma unroll
            for (int q = 0; q < 4; q++)
                sum[q] = j + 32 * q < end ? to[32 * q] : (C0)0;
            for (long long k = lo, n = 32; n == 32; k += 32) {
                const int mine = k + lane < count && key[k + lane] == place;
                const long long where = mine ? at[k + lane] : 0;
                const unsigned int hits = __ballot_sync(0xFFFFFFFFu, mine);
                n = hits == 0xFFFFFFFFu ? 32 : __ffs((int)~hits) - 1;
                for (int l = 0; l < (int)n; l++) {
                    const T0 *x = from + __shfl_sync(0xFFFFFFFFu, where, l) * inner;
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        if (j + 32 * q < end)
                            sum[q] = ADD0(sum[q], LOAD0(x[32 * q]));
                }
            }
#pragma unroll
            for (int q = 0; q < 4; q++)
                if (j + 32 * q < end)
                    to[32 * q] = sum[q];
        }
    }
}

/* == scatter_add
 * acc[at index[o][k][j]] += values[o][k][j], a thread a column. acc (compute type), values, index, outer, count,
 * inner, extent, step of the axis, error, axes before and after the axis, then extent (of values) and stride (of acc)
 * for each: those after, innermost first, then those before. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long count = WORD(4), inner = WORD(5), extent = WORD(6);
    const int after = (int)WORD(10), before = (int)WORD(9);
    for (long long i = START; i < WORD(3) * inner; i += STEP) {
        const long long o = wf_quotient(i, inner), j = i - o * inner;
        long long rest = j, to = 0;
        WALK(to, rest, after, 11)
        rest = o;
        WALK(to, rest, before, 11 + 2 * after)
        for (long long k = 0; k < count; k++) {
            const long long from = (o * count + k) * inner + j;
            long long at = POINTER(const long long, 2)[from];
            if (at < -extent || at >= extent) {
                wf_bad_index(POINTER(unsigned long long, 8), at);
                continue;
            }
            C0 *sum = POINTER(C0, 0) + to + (at < 0 ? at + extent : at) * WORD(7);
            *sum = ADD0(*sum, LOAD0(POINTER(const T0, 1)[from]));
        }
    }
}

/* == offsets
 * key[i] = offset of element i through a map: key, n, offset, axes, then extent and stride for each, innermost first. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    for (long long i = START; i < WORD(1); i += STEP) {
        long long rest = i, at = WORD(2);
        WALK(at, rest, (int)WORD(3), 4)
        POINTER(long long, 0)[i] = at;
    }
}

/* == through
 * What elements named several times become: the sum of what is put there, from +0 in order, or (5) the last of it; a place that
 * is not named becomes 0, or stays. A thread a place: dst, values, keys in ascending order, where they stood, count, last,
 * places. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long count = WORD(4), *key = POINTER(const long long, 2), *at = POINTER(const long long, 3);
    const T0 *values = POINTER(const T0, 1);
    for (long long place = START; place < WORD(6); place += STEP) {
        long long lo = 0, hi = count;
        C0 sum = 0;
        while (lo < hi) {
            const long long mid = (lo + hi) / 2;
            if (WORD(5) ? key[mid] <= place : key[mid] < place)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (WORD(5)) {
            if (lo > 0 && key[lo - 1] == place)
                POINTER(T0, 0)[place] = values[at[lo - 1]];
            continue;
        }
        for (; lo < count && key[lo] == place; lo++)
            sum = ADD0(sum, LOAD0(values[at[lo]]));
        POINTER(T0, 0)[place] = STORE0(sum);
    }
}

/* == unpad
 * Sums of what stands for an element: dst, g, count, mode (reflect, replicate, circular), rank, then of each axis its extent, elements
 * before and behind, stride of g. Of each axis the middle comes first, then those before, then those behind; the last one fastest. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    enum { MOST = 8 };
    const int rank = (int)WORD(4);
    const long long mode = WORD(3);
    for (long long i = START; i < WORD(2); i += STEP) {
        /* Of an axis: places of the middle, of the first before and of the first behind; how many there are of each. */
        long long at[MOST][3], many[MOST][2], k[MOST], rest = i;
        for (int d = rank; d-- > 0;) {
            const long long n = WORD(5 + 4 * d), before = WORD(6 + 4 * d), after = WORD(7 + 4 * d);
            const long long q = wf_quotient(rest, n), x = rest - q * n;
            const long long head = mode == 0 ? before - x : mode == 1 ? 0 : x - n + before;
            const long long tail = mode == 0 ? n - 2 - x : mode == 1 ? 0 : x;
            rest = q;
            at[d][0] = before + x;
            at[d][1] = head;
            at[d][2] = before + n + tail;
            many[d][0] = mode == 1 ? (x == 0 ? before : 0) : head >= 0 && head < before && (mode != 0 || x > 0);
            many[d][1] = mode == 1 ? (x == n - 1 ? after : 0) : tail >= 0 && tail < after;
            k[d] = 0;
        }
        C0 sum = 0;
        for (int first = 1, d = 0; d >= 0; first = 0) {
            long long from = 0;
            for (d = 0; d < rank; d++) {
                const long long p = k[d] == 0 ? at[d][0] : k[d] <= many[d][0] ? at[d][1] + k[d] - 1 : at[d][2] + k[d] - 1 - many[d][0];
                from += p * WORD(8 + 4 * d);
            }
            const C0 v = LOAD0(POINTER(const T0, 1)[from]);
            sum = first ? v : ADD0(sum, v);
            for (d = rank - 1; d >= 0 && ++k[d] > many[d][0] + many[d][1]; d--)
                k[d] = 0;
        }
        POINTER(T0, 0)[i] = STORE0(sum);
    }
}

/* == tri
 * Zeroes one side of contiguous matrices: dst, count, rows, cols, diagonal, upper. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long rows = WORD(2), cols = WORD(3), diagonal = WORD(4);
    for (long long i = START; i < WORD(1); i += STEP) {
        const long long row = wf_quotient(i, cols), past = i - row * cols - wf_remainder(row, rows);
        if (WORD(5) ? past < diagonal : past > diagonal)
            POINTER(T0, 0)[i] = 0;
    }
}

/* == scan_common
 * TAKE: T0 to the running type C2; GIVE: C2 to T1, rounded once. WF_WIDE: 1, + 1 for products, + 2 where only totals are wanted. */
enum { PRODUCT = (WF_WIDE - 1) & 1, TOTALS = (WF_WIDE - 1) >> 1 };
#define RUN(x, y) (PRODUCT ? MUL2(x, y) : ADD2(x, y))
#define NONE (PRODUCT ? (C2)1 : (C2)-0.0)
#define ADDED(l) (POINTER(const C2, 44 + (l))[(part >> 6 * (l)) * lines + line])

/* == scan
 * Running values along memory in the order of docs/reductions.md. dst, x, lines, n, log2 of a part's warps, step of the axis, axes that are
 * kept, may four neighbours be one access, then extent and stride of x for each axis, innermost first; word 40: where totals of parts
 * go ([part][line]) in place of outputs; 41 levels above a part, 42 parts of a line, from 44 on what each level adds, [part][line].
 * A part has 4096 elements, a warp 512 of them at a time: eight groups of 64, a thread four neighbours of 16 lanes' in each 128. One
 * warp walks its part, or each of several has one 512 and their totals meet in shared memory. What is missing is 0,
 * as outputs depend on the elements before them alone. Outputs of lines that lie anywhere go through shared memory: whole sectors are written. */
struct __align__(4 * sizeof(T0)) wf_taken {
    T0 v[4];
};
struct __align__(4 * sizeof(T1)) wf_given {
    T1 v[4];
};
WF_EXTERN __global__ void __launch_bounds__(256, 3) NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    __shared__ C2 totals[64];
    __shared__ struct wf_given stage[8][128];
    const long long lines = WORD(2), n = WORD(3), step = WORD(5), parts = WORD(42);
    const int log = (int)WORD(4), warps = 1 << log, per = 8 >> log, levels = (int)WORD(41), vector = (int)WORD(7);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = warp & (warps - 1);
    for (long long first = (long long)blockIdx.x * per; first < lines * parts; first += (long long)gridDim.x * per) {
        const long long piece = first + (warp >> log), line = wf_quotient(piece, parts), part = piece - line * parts;
        const long long most = n < part * 4096 + 4096 ? n : part * 4096 + 4096, end = piece < lines * parts ? most : 0;
        long long rest = line, from = 0, begin = part * 4096 + own * 512;
        C2 before = NONE;
        WALK(from, rest, (int)WORD(6), 8)
        do {
            const T0 *const x = POINTER(const T0, 1) + from + (begin + 4 * lane) * step;
            const int left = (end - begin < 512 ? (int)(end - begin) : 512) - 4 * lane;
            struct wf_taken raw[4] = {0};
            C2 v[4][4];
            if (vector) {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (128 * c < left)
                        raw[c] = *(const struct wf_taken *)(x + 128 * c);
            } else {
#pragma unroll
                for (int u = 0; u < 16; u++)
                    if (128 * (u / 4) + u % 4 < left)
                        raw[u / 4].v[u % 4] = x[(128 * (u / 4) + u % 4) * step];
            }
#pragma unroll
            for (int c = 0; c < 4; c++)
#pragma unroll
                for (int u = 0; u < 4; u++)
                    v[c][u] = TAKE(raw[c].v[u]);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                v[c][1] = RUN(v[c][0], v[c][1]);
                v[c][3] = RUN(v[c][2], v[c][3]);
                v[c][2] = RUN(v[c][1], v[c][2]);
                v[c][3] = RUN(v[c][1], v[c][3]);
            }
#pragma unroll
            for (int d = 1; d < 16; d *= 2)
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const C2 half = (C2)__shfl_sync(0xFFFFFFFFu, (S2)v[c][3], (lane & -2 * d) + d - 1, 32);
                    const C2 before_it = lane & d ? half : NONE;
#pragma unroll
                    for (int u = 0; u < 4; u++)
                        v[c][u] = RUN(before_it, v[c][u]);
                }
            if (warps > 1) {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (lane % 16 == 15)
                        totals[warp * 8 + 2 * c + lane / 16] = v[c][3];
                __syncthreads();
                for (int g = (warp - own) * 8; g < warp * 8; g++)
                    before = RUN(before, totals[g]);
                __syncthreads();
            }
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const C2 even = (C2)__shfl_sync(0xFFFFFFFFu, (S2)v[c][3], 15, 32);
                const C2 odd = (C2)__shfl_sync(0xFFFFFFFFu, (S2)v[c][3], 31, 32), middle = RUN(before, even);
                const C2 mine = lane < 16 ? before : middle;
#pragma unroll
                for (int u = 0; u < 4; u++)
                    v[c][u] = RUN(mine, v[c][u]);
                before = RUN(middle, odd);
            }
            if (TOTALS)
                continue;
            for (int l = 0; l < levels && end; l++) {
                const C2 above = ADDED(l);
#pragma unroll
                for (int c = 0; c < 4; c++)
#pragma unroll
                    for (int u = 0; u < 4; u++)
                        v[c][u] = RUN(above, v[c][u]);
            }
            T1 *const to = POINTER(T1, 0) + line * n + begin;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                struct wf_given four;
#pragma unroll
                for (int u = 0; u < 4; u++)
                    four.v[u] = GIVE(v[c][u]);
                if (!vector)
                    stage[warp][32 * c + lane] = four;
                else if (128 * c < left)
                    *(struct wf_given *)(to + 128 * c + 4 * lane) = four;
            }
            if (!vector) {
                __syncwarp();
#pragma unroll
                for (int u = 0; u < 16; u++)
                    if (32 * u + lane < left + 4 * lane)
                        to[32 * u + lane] = ((const T1 *)stage[warp])[32 * u + lane];
                __syncwarp();
            }
        } while (warps == 1 && (begin += 512) < end);
        if (TOTALS && end && lane == 0 && own == warps - 1)
            POINTER(C2, 40)[part * lines + line] = before;
    }
}

/* == scan_across
 * The same across memory (dst is [outer][n][inner]): a thread has a group of 64 of one line, eight elements at a time, the next
 * eight on their way. dst, x, lines, n, inner, step, axes, -, then as above. Outputs are made from the end on: what was read last for the totals is
 * still in the second cache. */
#define EIGHT(left, one)                \
    if ((left) >= 8) {                  \
        _Pragma("unroll") for (int u = 0; u < 8; u++) \
            one;                        \
    } else {                            \
        _Pragma("unroll") for (int u = 0; u < 8; u++) \
            if (u < (left))             \
                one;                    \
    }
WF_EXTERN __global__ void __launch_bounds__(256, TOTALS ? 5 : 4) NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long lines = WORD(2), n = WORD(3), inner = WORD(4), step = WORD(5), work = lines * WORD(42);
    const int levels = (int)WORD(41);
    for (long long i = START; i < work; i += STEP) {
        const long long at = TOTALS ? i : work - 1 - i, part = wf_quotient(at, lines), line = at - part * lines;
        long long rest = line, from = part * 64 * step;
        WALK(from, rest, (int)WORD(6), 8)
        const T0 *x = POINTER(const T0, 1) + from;
        T1 *to = POINTER(T1, 0) + (wf_quotient(line, inner) * (n - 1) + part * 64) * inner + line;
        int left = n - part * 64 < 64 ? (int)(n - part * 64) : 64;
        const C2 lower = !TOTALS && levels > 0 ? ADDED(0) : NONE, upper = !TOTALS && levels > 1 ? ADDED(1) : NONE;
        C2 half[3] = {NONE, NONE, NONE}, v[8];
        T0 next[8] = {0};
        EIGHT(left, next[u] = x[u * step])
        for (int o = 0; left > 0; o++, left -= 8, to += 8 * inner) {
#pragma unroll
            for (int u = 0; u < 8; u++)
                v[u] = TAKE(next[u]);
            x += 8 * step;
            EIGHT(left - 8, next[u] = x[u * step])
#pragma unroll
            for (int w = 1; w < 8; w *= 2)
#pragma unroll
                for (int u = 0; u < 8; u++)
                    if (u & w)
                        v[u] = RUN(v[(u & -w) - 1], v[u]);
#pragma unroll
            for (int h = 0; h < 3; h++) {
                const C2 before = o >> h & 1 ? half[h] : NONE;
                half[h] = o >> h & 1 ? half[h] : v[7];
#pragma unroll
                for (int u = 0; u < 8; u++)
                    v[u] = RUN(before, v[u]);
            }
            if (TOTALS)
                continue;
#pragma unroll
            for (int u = 0; u < 8; u++)
                v[u] = RUN(upper, RUN(lower, v[u]));
            for (int l = 2; l < levels; l++) {
                const C2 more = ADDED(l);
#pragma unroll
                for (int u = 0; u < 8; u++)
                    v[u] = RUN(more, v[u]);
            }
            EIGHT(left, to[u * inner] = GIVE(v[u]))
        }
        if (TOTALS)
            POINTER(C2, 40)[part * lines + line] = v[7];
    }
}

/* == carries
 * Parts, lines, product, levels, then for each level, lowest first, its totals ([part][line]), then where those of 64 parts each of the last
 * go or 0. In place of a total: that of the parts before it among its 64, from the left; a thread 64 parts. Several levels are one block's. */
#define RUN(x, y) (WORD(2) ? MUL0(x, y) : ADD0(x, y))
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long lines = WORD(1);
    long long parts = WORD(0);
    for (int l = 0; l < (int)WORD(3); l++, parts = (parts + 63) >> 6) {
        C0 *const totals = POINTER(C0, 4 + l), *const above = POINTER(C0, 5 + l);
        for (long long i = START; i < ((parts + 63) >> 6) * lines; i += STEP) {
            const long long upper = wf_quotient(i, lines), line = i - upper * lines;
            C0 before = WORD(2) ? (C0)1 : (C0)-0.0, v[32];
            for (long long k = upper * 64; k < upper * 64 + 64 && k < parts; k += 32) {
#pragma unroll
                for (int u = 0; u < 32; u++)
                    v[u] = totals[(k + u < parts ? k + u : k) * lines + line];
#pragma unroll
                for (int u = 0; u < 32; u++)
                    if (k + u < parts) {
                        totals[(k + u) * lines + line] = before;
                        before = RUN(before, v[u]);
                    }
            }
            if (above)
                above[i] = before;
        }
        __syncthreads();
    }
}

/* == arg_common
 * WF_WIDE: + 1 for the smallest value. */
#define EXTREME(x, y) (WF_WIDE & 1 ? MIN0(x, y) : MAX0(x, y))
WF_DEVICE int wf_beats(C0 x, C0 best)
{
    return best == best && !(WF_WIDE & 1 ? x >= best : x <= best);
}
WF_DEVICE int wf_is_same(C0 x, C0 y)
{
    return x == y || (x != x && y != y);
}
/* Of words of two halves: in each half the more extreme of both, or a NaN. */
#ifdef PAIR0
WF_DEVICE unsigned int wf_most(unsigned int x, unsigned int y)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned int r;
#if WF_WIDE & 1
    asm("min.NaN." PAIR0 " %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
#else
    asm("max.NaN." PAIR0 " %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
#endif
    return r;
#else
    const unsigned int low = wf_beats(LOAD0((T0)y), LOAD0((T0)x)) ? y : x;
    const unsigned int high = wf_beats(LOAD0((T0)(y >> 16)), LOAD0((T0)(x >> 16))) ? y : x;
    return (low & 0xFFFFu) | (high & 0xFFFF0000u);
#endif
}
#endif

/* == arg
 * Index of the first extreme value of each row; NaN is more extreme than numbers. dst (i64, [part][row]), x, rows, n, items of a part,
 * step of the row, axes that are kept, then extent and stride of x for each, innermost first; 38: 0, or where the values go, beside dst; 39: 0,
 * or what the elements of each row are called ([element][row], ascending: candidates); 40 parts of a row, of less than 2^30 elements, 41 log2 of the threads of a team, which has a part of a row.
 * WF_WIDE: twice the neighbours that are one item and one load (1, or where the step is 1; items lie at multiples of their size), + 1 for the smallest value. A thread has a
 * best value for each place in an item and the number of its item; what it meets is later than that, so it must be better. Of items of
 * halves it has the best value of all, two at a time, and looks in its item when it has met all. Places count from the part's first item on. */
#if defined(PAIR0) && WF_WIDE / 2 == 8
#define PACKED 1
enum { EACH = WF_WIDE / 2, PLACES = 1, AT_ONCE = 4 };
#else
enum { EACH = WF_WIDE / 2, PLACES = EACH, AT_ONCE = EACH > 4 ? 2 : EACH > 1 ? 4 : 16 };
#endif
struct __align__(EACH * sizeof(T0)) wf_item {
#ifdef PACKED
    unsigned int v[EACH / 2];
#else
    T0 v[EACH];
#endif
};
struct wf_best {
    C0 value;
    int at;
};
WF_DEVICE struct wf_best wf_better(struct wf_best x, C0 value, int at)
{
    const int better = wf_is_same(value, x.value) ? at < x.at : wf_beats(value, x.value);
    x.value = better ? value : x.value;
    x.at = better ? at : x.at;
    return x;
}
WF_EXTERN __global__ void __launch_bounds__(256, 4) NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    __shared__ C0 values[8];
    __shared__ int places[8];
    const long long rows = WORD(2), n = WORD(3), each = WORD(4), step = WORD(5), parts = WORD(40), total = rows * parts;
    const long long *const given = POINTER(const long long, 39);
    const int log = (int)WORD(41), team = 1 << log, lane = (int)threadIdx.x & (team - 1), per = 256 >> log;
    for (long long first = (long long)blockIdx.x * per; first < total; first += (long long)gridDim.x * per) {
        const long long piece = first + ((int)threadIdx.x >> log), mine = piece < total ? piece : total - 1;
        const long long part = parts == 1 ? 0 : wf_quotient(mine, rows), row = mine - part * rows, begin = part * each;
        long long rest = row, from = 0;
        WALK(from, rest, (int)WORD(6), 7)
        const T0 *const x = POINTER(const T0, 1) + from;
        /* elements before the first item and after the last one, which are the first part's and the last one's */
        const long long before = (EACH - (int)((unsigned long long)x / sizeof(T0) % EACH)) % EACH, head = before < n ? before : n;
        const long long items = (n - head) / EACH, tail = head + items * EACH, base = head + begin * EACH, at = base < n ? base : n - 1;
        const long long end = begin + each < items ? begin + each : items;
        const int own = (int)(end - begin) - lane, count = own > 0 ? (own + team - 1) >> log : 0;
        struct wf_best best = {LOAD0(x[at * step]), (int)(at - base)};
        C0 value[PLACES];
        int number[PLACES];
#pragma unroll
        for (int e = 0; e < PLACES; e++) {
            value[e] = best.value;
            number[e] = -1;
        }
        const long long apart = (step * EACH) << log;
        const T0 *next = x + (base + lane * EACH) * step;
        for (int i = 0; i < count; i += AT_ONCE, next += AT_ONCE * apart) {
            struct wf_item v[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) /* those past the end are the first of these again, and not better */
                v[u] = *(const struct wf_item *)(next + (u < count - i ? u : 0) * apart);
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
#ifdef PACKED
                const unsigned int most = wf_most(wf_most(v[u].v[0], v[u].v[1]), wf_most(v[u].v[2], v[u].v[3]));
                const C0 y = LOAD0((T0)wf_most(most, most >> 16));
                const int better = wf_beats(y, value[0]);
                value[0] = better ? y : value[0];
                number[0] = better ? i + u : number[0];
#else
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    const C0 y = LOAD0(v[u].v[e]);
                    const int better = wf_beats(y, value[e]);
                    value[e] = better ? y : value[e];
                    number[e] = better ? i + u : number[e];
                }
#endif
            }
        }
#pragma unroll
        for (int e = 0; e < PLACES; e++) {
            const int k = (number[e] * team + lane) * EACH + e;
#ifdef PACKED
            if (number[0] >= 0) {
                const struct wf_item v = *(const struct wf_item *)(x + (base + k));
                int found = EACH - 1;
#pragma unroll
                for (int f = EACH - 2; f >= 0; f--)
                    found = wf_is_same(LOAD0((T0)(v.v[f / 2] >> f % 2 * 16)), value[0]) ? f : found;
                best = wf_better(best, value[0], k + found);
            }
#else
            if (number[e] >= 0)
                best = wf_better(best, value[e], k);
#endif
        }
        for (long long k = lane; EACH > 1 && k < head + n - tail; k += team)
            if (k < head ? part == 0 : part == parts - 1)
                best = wf_better(best, LOAD0(x[k < head ? k : k - head + tail]), (int)((k < head ? k : k - head + tail) - base));
        for (int h = team < 32 ? team / 2 : 16; h >= 1; h /= 2) {
            const C0 y = (C0)__shfl_down_sync(0xFFFFFFFFu, (S0)best.value, h, 32);
            best = wf_better(best, y, __shfl_down_sync(0xFFFFFFFFu, best.at, h, 32));
        }
        if (team > 32) {
            if (threadIdx.x % 32 == 0) {
                values[threadIdx.x / 32] = best.value;
                places[threadIdx.x / 32] = best.at;
            }
            __syncthreads();
            for (int w = 1; w < 8 && lane == 0; w++)
                best = wf_better(best, values[w], places[w]);
            __syncthreads();
        }
        if (lane == 0 && piece < total) {
            POINTER(long long, 0)[piece] = given ? given[(base + best.at) * rows + row] : base + best.at;
            if (WORD(38))
                POINTER(T0, 38)[piece] = STORE0(best.value);
        }
    }
}

/* == arg_across
 * The most extreme value of each part of rows that lie side by side, and the first of the 16 elements among which it was: values (compute
 * type, [part][row]), x, rows, n, elements of a warp, step, axes, extents and strides as above; 39 firsts (i64, [part][row]), 40 parts, 41
 * tiles of 32 * EACH rows. WF_WIDE: twice the rows of a thread, whose elements are one load, + 1 for the smallest. A block has a
 * tile and a part, each of its warps an eighth of that; of equal ones the earlier stays. */
enum { EACH = WF_WIDE / 2, SIDE = 32 * EACH, AT_ONCE = 16 };
struct __align__(EACH * sizeof(T0)) wf_item {
#if defined(PAIR0) && WF_WIDE / 2 == 2
    unsigned int v[1];
#else
    T0 v[EACH];
#endif
};
WF_EXTERN __global__ void __launch_bounds__(256, EACH > 1 ? 4 : 8) NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    __shared__ C0 values[8][SIDE];
    __shared__ long long firsts[8][SIDE];
    const long long rows = WORD(2), n = WORD(3), each = WORD(4), step = WORD(5), tiles = WORD(41), work = tiles * WORD(40);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, own = (int)threadIdx.x;
    for (long long piece = blockIdx.x; piece < work; piece += gridDim.x) {
        const long long part = wf_quotient(piece, tiles), row = (piece - part * tiles) * SIDE, mine = row + lane * EACH;
        const long long wish = (part * 8 + warp) * each, begin = wish < n ? wish : n - 1, end = begin + each < n ? begin + each : n;
        long long rest = mine < rows ? mine : 0, from = 0;
        WALK(from, rest, (int)WORD(6), 7)
        const T0 *x = POINTER(const T0, 1) + from + begin * step;
        C0 value[EACH];
        int first[EACH]; /* from `begin` on */
        for (long long k = begin; k < end; k += AT_ONCE, x += AT_ONCE * step) {
            struct wf_item v[AT_ONCE];
            C0 most[EACH];
            const int last = end - k < AT_ONCE ? (int)(end - k) - 1 : AT_ONCE - 1;
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) /* those past the end are the last one again */
                v[u] = *(const struct wf_item *)(x + (u < last ? u : last) * step);
#if defined(PAIR0) && WF_WIDE / 2 == 2
            unsigned int both = v[0].v[0];
#pragma unroll
            for (int u = 1; u < AT_ONCE; u++)
                both = wf_most(both, v[u].v[0]);
            most[0] = LOAD0((T0)both);
            most[1] = LOAD0((T0)(both >> 16));
#else
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                most[e] = LOAD0(v[0].v[e]);
#pragma unroll
                for (int u = 1; u < AT_ONCE; u++)
                    most[e] = EXTREME(most[e], LOAD0(v[u].v[e]));
            }
#endif
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const int better = k == begin || wf_beats(most[e], value[e]);
                value[e] = better ? most[e] : value[e];
                first[e] = better ? (int)(k - begin) : first[e];
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            values[warp][lane * EACH + e] = value[e];
            firsts[warp][lane * EACH + e] = begin + first[e];
        }
        __syncthreads();
        if (own < SIDE && row + own < rows) {
            int best = 0;
            for (int w = 1; w < 8; w++)
                best = wf_beats(values[w][own], values[best][own]) ? w : best;
            POINTER(C0, 0)[part * rows + row + own] = values[best][own];
            POINTER(long long, 39)[part * rows + row + own] = firsts[best][own];
        }
        __syncthreads();
    }
}

/* == arg_found
 * The first of the elements of each row that are its most extreme value: dst (i64), and else as what arg_across left has it, whose values
 * are word 38. A warp a row. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long rows = WORD(2), n = WORD(3), step = WORD(5), parts = WORD(40);
    const int lane = (int)threadIdx.x % 32;
    for (long long row = START / 32; row < rows; row += STEP / 32) {
        long long rest = row, from = 0, first = n;
        C0 value = 0;
        WALK(from, rest, (int)WORD(6), 7)
        for (long long p = lane < parts ? lane : parts - 1, k = 0; k < parts; k += 32, p = p + 32 < parts ? p + 32 : p) {
            const C0 y = POINTER(const C0, 38)[p * rows + row];
            const long long at = POINTER(const long long, 39)[p * rows + row];
            const int better = k == 0 || wf_beats(y, value);
            value = better ? y : value;
            first = better ? at : first;
        }
#pragma unroll
        for (int h = 16; h >= 1; h /= 2) {
            const C0 y = (C0)__shfl_sync(0xFFFFFFFFu, (S0)value, lane ^ h, 32);
            const long long at = __shfl_sync(0xFFFFFFFFu, first, lane ^ h, 32);
            const int better = wf_is_same(y, value) ? at < first : wf_beats(y, value);
            value = better ? y : value;
            first = better ? at : first;
        }
        const long long k = first + lane < n ? first + lane : n - 1;
        const unsigned int found = __ballot_sync(0xFFFFFFFFu, wf_is_same(LOAD0(POINTER(const T0, 1)[from + k * step]), value));
        if (lane == 0)
            POINTER(long long, 0)[row] = first + __ffs((int)found) - 1;
    }
}

/* == tile_common */
/* to[l][r] = p[r0 + r][l0 + l], 0 beyond rows and depth; neighbours in a warp read neighbours in memory, whichever way p lies. */
WF_DEVICE void wf_slice(C0 (*to)[68], const T0 *p, long long r0, long long rows, long long row_step, long long l0,
                        long long depth, long long step)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        const int s = (int)threadIdx.x + e * 256;
        const int r = step == 1 ? s / 16 : s % 64, l = step == 1 ? s % 16 : s / 64;
        to[l][r] = r0 + r < rows && l0 + l < depth ? LOAD0(p[(r0 + r) * row_step + (l0 + l) * step]) : (C0)0;
    }
}
/* sum += left^T right: a thread has rows y * 4 + i and columns x + 16 j of 64 x 64, each one chain of fused multiply-adds. */
WF_DEVICE void wf_multiply(C0 (*sum)[4], C0 (*left)[68], C0 (*right)[68], int depth)
{
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (int l = 0; l < depth; l++) {
        C0 u[4], v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u[i] = left[l][y * 4 + i];
            v[i] = right[l][x + 16 * i];
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] = FMA0(u[i], v[j], sum[i][j]);
    }
}
/* The same of rows r0 ... of p and c0 ... of q, over depth in ascending order. */
WF_DEVICE void wf_product(C0 (*sum)[4], C0 (*left)[68], C0 (*right)[68], long long depth, const T0 *p, long long r0,
                          long long rows, long long p_step, long long p_deep, const T0 *q, long long c0, long long cols,
                          long long q_step, long long q_deep)
{
    for (long long l0 = 0; l0 < depth; l0 += 16) {
        wf_slice(left, p, r0, rows, p_step, l0, depth, p_deep);
        wf_slice(right, q, c0, cols, q_step, l0, depth, q_deep);
        __syncthreads();
        wf_multiply(sum, left, right, depth - l0 < 16 ? (int)(depth - l0) : 16);
        __syncthreads();
    }
}

/* == gemm
 * c[b][i][j] = round(sum over l of a[b][i][l] * b[b][l][j] (+ bias[j])): one fused multiply-add after the other, l
 * ascending, whatever the tiles. A block has a tile of 64 x 64, a thread 4 x 4 of it. Words: c, a, b, bias (or 0),
 * m, n, k, row and column strides of a, b, c, stride of the bias, batches, axes of the batch, then for each, innermost first, the extent and
 * the strides of a, b, c. T0 a and b, T1 c. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    __shared__ C0 left[16][68];
    __shared__ C0 right[16][68];
    const long long m = WORD(4), n = WORD(5), depth = WORD(6);
    const long long down = (m + 63) / 64, across = (n + 63) / 64, tiles = down * across * WORD(14);
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const long long j0 = tile % across * 64, i0 = tile / across % down * 64;
        long long rest = tile / across / down, at_a = 0, at_b = 0, at_c = 0;
        C0 sum[4][4];
        for (int d = 0; d < (int)WORD(15); d++) {
            const long long at = rest % WORD(16 + 4 * d);
            rest /= WORD(16 + 4 * d);
            at_a += at * WORD(17 + 4 * d);
            at_b += at * WORD(18 + 4 * d);
            at_c += at * WORD(19 + 4 * d);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] = 0;
        wf_product(sum, left, right, depth, POINTER(const T0, 1) + at_a, i0, m, WORD(7), WORD(8),
                   POINTER(const T0, 2) + at_b, j0, n, WORD(10), WORD(9));
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const long long row = i0 + y * 4 + i, col = j0 + x + 16 * j;
                if (row < m && col < n) {
                    C0 v = sum[i][j];
                    if (WORD(3))
                        v = v + LOAD0(POINTER(const T0, 3)[col * WORD(13)]);
                    POINTER(T1, 0)[at_c + row * WORD(11) + col * WORD(12)] = STORE1(v);
                }
            }
    }
}

/* == conv
 * A convolution is a product of matrices that are gathered while they are read. Each result is one chain of fused
 * multiply-adds: forward over {channel, kh, kw}, of x over {channel of y, kh, kw}, of w over {n, h, w of y}, in row-major
 * order. Tiles as in gemm, turned for images, so that neighbours in a warp are neighbours in a row of theirs; what a tile's rows and columns stand for is split once, the summed index at every step. Words: y or what stands for it, x, w, bias (or
 * 0), pass (0 forward, 1 gradient of x, 2 of w), groups, extents n, channels of x and of y in a group, h, w of x,
 * of w, of y, stride, padding, dilation (a pair each), four strides of x, of w, of y, stride of the bias.
 * An image's index is {n, h, w}, an index into a filter {channel, kh, kw}. */
struct wf_triple {
    int a, b, c;
};
WF_DEVICE struct wf_triple wf_split(int i, int middle, int inner)
{
    struct wf_triple t;
    t.c = i % inner;
    t.b = i / inner % middle;
    t.a = i / inner / middle;
    return t;
}
WF_DEVICE C0 wf_conv_x(const struct wf_words_64 *a, int group, struct wf_triple out, struct wf_triple k)
{
    const int h = out.b * (int)a->w[15] - (int)a->w[17] + k.b * (int)a->w[19];
    const int w = out.c * (int)a->w[16] - (int)a->w[18] + k.c * (int)a->w[20];
    const long long at = out.a * (long long)a->w[21] +
                         ((long long)group * (long long)a->w[7] + k.a) * (long long)a->w[22] +
                         h * (long long)a->w[23] + w * (long long)a->w[24];
    return h >= 0 && h < (int)a->w[9] && w >= 0 && w < (int)a->w[10] ? LOAD0(((const T0 *)a->w[1])[at]) : (C0)0;
}
/* What x at {n, h, w} added to through k, if it did. */
WF_DEVICE C0 wf_conv_back(const struct wf_words_64 *a, int group, struct wf_triple in, struct wf_triple k)
{
    const int h = in.b + (int)a->w[17] - k.b * (int)a->w[19], w = in.c + (int)a->w[18] - k.c * (int)a->w[20];
    const int oh = h / (int)a->w[15], ow = w / (int)a->w[16];
    const int hit = h >= 0 && w >= 0 && oh * (int)a->w[15] == h && ow * (int)a->w[16] == w &&
                     oh < (int)a->w[13] && ow < (int)a->w[14];
    const long long at = in.a * (long long)a->w[29] +
                         ((long long)group * (long long)a->w[8] + k.a) * (long long)a->w[30] +
                         oh * (long long)a->w[31] + ow * (long long)a->w[32];
    return hit ? LOAD0(((const T0 *)a->w[0])[at]) : (C0)0;
}
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    __shared__ C0 left[16][68];
    __shared__ C0 right[16][68];
    const int pass = (int)WORD(4), kh = (int)WORD(11), kw = (int)WORD(12), taps = kh * kw;
    const int h = pass == 1 ? (int)WORD(9) : (int)WORD(13), wide = pass == 1 ? (int)WORD(10) : (int)WORD(14);
    const int pixels = (int)WORD(6) * h * wide, cx = (int)WORD(7), cy = (int)WORD(8);
    const int m = pass == 2 ? cy : pixels, n = pass == 0 ? cy : pass == 1 ? cx : cx * taps;
    const int depth = pass == 0 ? cx * taps : pass == 1 ? cy * taps : pixels;
    const int middle = pass == 2 ? h : kh, inner = pass == 2 ? wide : kw; /* of the summed index */
    const long long down = (m + 63) / 64, across = (n + 63) / 64, tiles = down * across * WORD(5);
    const int x = threadIdx.x % 16, y = threadIdx.x / 16, at = threadIdx.x % 64;
    for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int j0 = (int)(tile % across) * 64, i0 = (int)(tile / across % down) * 64;
        const int group = (int)(tile / across / down);
        const int row_in = i0 + at < m, col_in = j0 + at < n;
        const struct wf_triple row = wf_split(i0 + at, h, wide), col = wf_split(j0 + at, kh, kw);
        const long long y_row = ((long long)group * cy + i0 + at) * WORD(30);
        C0 sum[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] = 0;
        for (int l0 = 0; l0 < depth; l0 += 16) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int part = (int)threadIdx.x / 64 + e * 4, l = l0 + part;
                const struct wf_triple k = wf_split(l, middle, inner);
                C0 u = 0, v = 0;
                if (l < depth && row_in)
                    u = pass == 0   ? wf_conv_x(&a, group, row, k)
                        : pass == 1 ? wf_conv_back(&a, group, row, k)
                                    : LOAD0(POINTER(const T0, 0)[k.a * WORD(29) + y_row + k.b * WORD(31) + k.c * WORD(32)]);
                if (l < depth && col_in) {
                    const long long o = (long long)group * cy + (pass == 0 ? j0 + at : k.a);
                    const long long c = pass == 0 ? k.a : j0 + at;
                    v = pass == 2 ? wf_conv_x(&a, group, k, col)
                                  : LOAD0(POINTER(const T0, 2)[o * WORD(25) + c * WORD(26) + k.b * WORD(27) + k.c * WORD(28)]);
                }
                left[part][at] = u;
                right[part][at] = v;
            }
            __syncthreads();
            wf_multiply(sum, pass == 2 ? left : right, pass == 2 ? right : left, depth - l0 < 16 ? depth - l0 : 16);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int r = i0 + (pass == 2 ? y * 4 + i : x + 16 * j), c = j0 + (pass == 2 ? x + 16 * j : y * 4 + i);
                const struct wf_triple p = wf_split(r, h, wide), q = wf_split(c, kh, kw);
                const long long o = (long long)group * cy + (pass == 2 ? r : c);
                C0 v = sum[i][j];
                if (r >= m || c >= n)
                    continue;
                if (WORD(3))
                    v = v + LOAD0(POINTER(const T0, 3)[o * WORD(33)]);
                if (pass == 0)
                    POINTER(T0, 0)[p.a * WORD(29) + o * WORD(30) + p.b * WORD(31) + p.c * WORD(32)] = STORE0(v);
                else if (pass == 1)
                    POINTER(T0, 1)[p.a * WORD(21) + ((long long)group * cx + c) * WORD(22) + p.b * WORD(23) + p.c * WORD(24)] = STORE0(v);
                else
                    POINTER(T0, 2)[o * WORD(25) + q.a * WORD(26) + q.b * WORD(27) + q.c * WORD(28)] = STORE0(v);
            }
    }
}

/* == pool_common */
typedef struct wf_window {
    long long start, lo, hi;
} wf_window;
/* First and one-past-last kernel position of output o that lies inside [0, n). */
WF_DEVICE wf_window wf_clip(long long o, long long n, long long kernel, long long stride, long long pad, long long d)
{
    wf_window r;
    r.start = o * stride - pad;
    r.lo = r.start < 0 ? (-r.start + d - 1) / d : 0;
    r.hi = (n - r.start - 1) / d + 1;
    r.hi = r.hi < kernel ? r.hi : kernel;
    return r;
}
/* Window o of m that lie from end to end of n elements. */
WF_DEVICE wf_window wf_clip_even(long long o, long long n, long long m)
{
    wf_window r;
    r.start = wf_quotient(o * n, m);
    r.lo = 0;
    r.hi = wf_quotient((o + 1) * n + m - 1, m) - r.start;
    return r;
}
#define WF_CLIP_H(o) (WORD(22) ? wf_clip_even(o, WORD(4), WORD(6)) : wf_clip(o, WORD(4), WORD(8), WORD(10), WORD(12), WORD(14)))
#define WF_CLIP_W(o) (WORD(22) ? wf_clip_even(o, WORD(5), WORD(7)) : wf_clip(o, WORD(5), WORD(9), WORD(11), WORD(13), WORD(15)))
#define WF_PLANE(T, plane) (POINTER(const T, 1) + wf_quotient(plane, WORD(21)) * WORD(17) + wf_remainder(plane, WORD(21)) * WORD(18))

/* == max_pool
 * out, in, index (i64), count, h, w, oh, ow, kernel, stride, padding, dilation (2 each), count_pad, strides of in (4),
 * channels, adaptive (oh x ow windows, whatever the kernel). The first largest element; NaN is larger. */
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    for (long long i = START; i < WORD(3); i += STEP) {
        const wf_window v = WF_CLIP_H(wf_remainder(wf_quotient(i, WORD(7)), WORD(6))), u = WF_CLIP_W(wf_remainder(i, WORD(7)));
        const T0 *in = WF_PLANE(T0, wf_quotient(wf_quotient(i, WORD(7)), WORD(6)));
        long long best_at = -1, best_from = 0;
        C0 best = 0;
        for (long long y = v.lo; y < v.hi; y++)
            for (long long z = u.lo; z < u.hi; z++) {
                const long long h = v.start + y * WORD(14), w = u.start + z * WORD(15);
                const long long from = h * WORD(19) + w * WORD(20);
                const C0 x = LOAD0(in[from]);
                if (best_at < 0 || (best == best && (x != x || x > best))) {
                    best = x;
                    best_at = h * WORD(5) + w;
                    best_from = from;
                }
            }
        POINTER(T0, 0)[i] = in[best_from];
        POINTER(long long, 2)[i] = best_at;
    }
}

/* == avg_pool
 * The same words; sums in row-major order, divided by the elements in the window. */
WF_DEVICE long long wf_window_count(const struct wf_words_64 a, wf_window v, wf_window u)
{
    const long long h = WORD(4) + WORD(12) - v.start, w = WORD(5) + WORD(13) - u.start;
    if (!WORD(16))
        return (v.hi - v.lo) * (u.hi - u.lo);
    return (h < WORD(8) ? h : WORD(8)) * (w < WORD(9) ? w : WORD(9));
}
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    for (long long i = START; i < WORD(3); i += STEP) {
        const wf_window v = WF_CLIP_H(wf_remainder(wf_quotient(i, WORD(7)), WORD(6))), u = WF_CLIP_W(wf_remainder(i, WORD(7)));
        const T0 *in = WF_PLANE(T0, wf_quotient(wf_quotient(i, WORD(7)), WORD(6)));
        C0 sum = 0;
        for (long long y = v.start + v.lo; y < v.start + v.hi; y++)
            for (long long z = u.start + u.lo; z < u.start + u.hi; z++)
                sum = sum + LOAD0(in[y * WORD(19) + z * WORD(20)]);
        POINTER(T0, 0)[i] = STORE0(sum / (C0)wf_window_count(a, v, u));
    }
}

/* == avg_pool_bwd
 * The same words; in is the gradient of the output plane, out that of the input plane. */
WF_DEVICE long long wf_window_count(const struct wf_words_64 a, wf_window v, wf_window u)
{
    const long long h = WORD(4) + WORD(12) - v.start, w = WORD(5) + WORD(13) - u.start;
    if (!WORD(16))
        return (v.hi - v.lo) * (u.hi - u.lo);
    return (h < WORD(8) ? h : WORD(8)) * (w < WORD(9) ? w : WORD(9));
}
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    for (long long i = START; i < WORD(3); i += STEP) {
        const long long row = wf_quotient(i, WORD(5)), plane = wf_quotient(row, WORD(4));
        const long long top = row - plane * WORD(4) + WORD(12), left = i - row * WORD(5) + WORD(13);
        const T0 *g = WF_PLANE(T0, plane);
        long long o_lo = top < WORD(8) ? 0 : wf_quotient(top - WORD(8), WORD(10)) + 1;
        long long o_hi = wf_quotient(top, WORD(10)) + 1 < WORD(6) ? wf_quotient(top, WORD(10)) + 1 : WORD(6);
        long long p_lo = left < WORD(9) ? 0 : wf_quotient(left - WORD(9), WORD(11)) + 1;
        long long p_hi = wf_quotient(left, WORD(11)) + 1 < WORD(7) ? wf_quotient(left, WORD(11)) + 1 : WORD(7);
        if (WORD(22)) {
            o_lo = wf_quotient(top * WORD(6), WORD(4));
            o_hi = wf_quotient((top + 1) * WORD(6) + WORD(4) - 1, WORD(4));
            p_lo = wf_quotient(left * WORD(7), WORD(5));
            p_hi = wf_quotient((left + 1) * WORD(7) + WORD(5) - 1, WORD(5));
        }
        C0 sum = 0;
        for (long long o = o_lo; o < o_hi; o++)
            for (long long p = p_lo; p < p_hi; p++) {
                const wf_window v = WF_CLIP_H(o), u = WF_CLIP_W(p);
                sum = sum + LOAD0(g[o * WORD(19) + p * WORD(20)]) / (C0)wf_window_count(a, v, u);
            }
        POINTER(T0, 0)[i] = STORE0(sum);
    }
}

/* == transpose
 * dst[b][j][i] = src[b][i][j]: dst, src, rows, cols, row stride of src, of dst, batch stride of src, of dst (in bytes), binary logarithm
 * of a tile's rows, parts of a tile, columns of a part, tiles across, tiles of a strip (divisor), down (divisor), strips (divisor), rows
 * from a tile to the one below, and what holds (bits: tiles have HEIGHT rows and SIDE parts; all rows of dst begin at sectors; rows of
 * src begin at words, those of dst are whole lines, and there are a multiple of P of them).
 * T1 is a word of 4 bytes with P elements in it, or one element that is larger. A block has one tile, of parts side by side with up to 32
 * words of each of their rows: 32 KiB, all loads of which are in flight together.
 *
 * Both sides move whole words wherever rows begin. A row of src is kept from the word on that it begins in (32 words hold it: the host leaves
 * out a column or four where rows begin inside of words). A word of dst is gathered from the rows of its elements, and a warp's 32
 * begin where a line of memory does. Row r of all parts is kept as number r / P of those with the same r % P: threads that
 * gather words side by side read other banks.
 *
 * No two tiles write into one sector of 32 bytes where the tile below begins a sector's rows before this one ends: of each row of dst
 * a tile has what lies from the first begin of a sector in it on, up to that of the tile below. The first and the last tile of
 * a row of dst have its ends besides; these, and tiles of other shapes, go the way with a test for each word. */
WF_EXTERN __global__ void __launch_bounds__(256, 5) NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    enum { S = (int)sizeof(T0), W = (int)sizeof(T1), P = W / S, EACH = 128 / W, LINE = 32 * W, SECTOR = 32 / S };
    enum { PITCH = 33 * W, LINES = 8 * EACH / (32 * P) + 1, ALIKE = 8 * EACH / P };
    enum { HEIGHT = S == 1 ? 256 : 512 / S, SIDE = 8 * EACH / HEIGHT, WHOLE = HEIGHT / (32 * P) + 1 };
    __shared__ T1 tile[1024 / sizeof(T1)][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const int log = (int)WORD(8), height = 1 << log, part = (int)WORD(10), wide = (int)WORD(9) * part;
    const int step = (int)WORD(21), holds = (int)WORD(22);
    const unsigned int up = OVER(blockIdx.x, 12), over = OVER(up, 15), b = OVER(over, 18);
    const unsigned int across = (over - b * (unsigned int)WORD(18)) * (unsigned int)WORD(12) + blockIdx.x - up * (unsigned int)WORD(12);
    if (across >= WORD(11))
        return; /* the last strip is narrower */
    const long long j0 = (long long)across * (unsigned int)wide, i0 = (long long)(up - over * (unsigned int)WORD(15)) * (unsigned int)step;
    const int rows = WORD(2) - i0 < height ? (int)(WORD(2) - i0) : height;
    const int cols = WORD(3) - j0 < wide ? (int)(WORD(3) - j0) : wide;
    const char *const src = POINTER(const char, 1) + b * WORD(6) + i0 * WORD(4) + j0 * S;
    char *dst = POINTER(char, 0) + b * WORD(7) + j0 * WORD(5) + i0 * S;
    T1 v[EACH];
    /* bytes of a word before row i of the tile, the same for all i of the same i % P */
#define BEFORE(i) (P > 1 ? (int)((unsigned int)(unsigned long long)src + (unsigned int)(i) * (unsigned int)a.w[4]) & 3 : 0)
    /* v has the words of row y of the tile and of every eighth behind it */
#define KEEP                                                                                                 \
    _Pragma("unroll") for (int e = 0; e < EACH; e++) tile[y % P * ALIKE + y / P + 8 / P * e][x] = v[e];      \
    __syncthreads();
    if (holds & 1 && rows == HEIGHT && (holds & 2 || i0 > 0)) {
        {
            /* threads beyond the last column read the word that has it */
            const int before = BEFORE(y), last = ((cols * S - 1 + before) & -W) - before;
            const char *row[SIDE];
#pragma unroll
            for (int k = 0; k < SIDE; k++) {
                const int first = (x + 32 * k) * W - before;
                row[k] = src + y * WORD(4) + (first < last ? first : last);
            }
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                v[e / SIDE + e % SIDE * (EACH / SIDE)] = *(const T1 *)row[e % SIDE];
                row[e % SIDE] += 8 * WORD(4);
            }
        }
        KEEP
        if (P > 1 && holds & 4) { /* P words of P rows are as many words of P rows of dst */
            dst += P * y * WORD(5);
            const int skip = (int)((unsigned int)(unsigned long long)dst % LINE) / S, behind = skip % P;
            const int begin = P * x - ((skip + SECTOR - 1) & -SECTOR);
            const unsigned int low = (0x54105410u << 4 * S * behind) >> 16, high = low + 0x2222u;
            const char *from[P];
#pragma unroll
            for (int q = 0; q < P; q++)
                from[q] = (const char *)tile + (q * ALIKE + x - skip / P - (q + behind >= P)) * PITCH + y * W;
            dst += x * W - skip * S;
            for (int j = P * y; j < cols; j += 8 * P, dst += 8 * P * WORD(5)) {
#pragma unroll
                for (int u = 0; u < WHOLE; u++)
                    if (u == 0 ? begin >= 0 : begin < step - 32 * P * u) {
                        unsigned int w[4];
#pragma unroll
                        for (int q = 0; q < P; q++)
                            w[q] = (unsigned int)*(const T1 *)(from[q] + 32 * PITCH * u);
#pragma unroll
                        for (int q = 0; q < P; q += 2) {
                            const unsigned int lead = P == 2 ? w[0] : __byte_perm(w[0], w[1], q ? 0x7362 : 0x5140);
                            const unsigned int rest = P == 2 ? w[1] : __byte_perm(w[2 % P], w[3 % P], q ? 0x7362 : 0x5140);
                            *(T1 *)(dst + q * WORD(5) + LINE * u) = (T1)__byte_perm(lead, rest, low);
                            *(T1 *)(dst + (q + 1) * WORD(5) + LINE * u) = (T1)__byte_perm(lead, rest, high);
                        }
                    }
#pragma unroll
                for (int q = 0; q < P; q++)
                    from[q] += 8 * W;
            }
            return;
        }
        dst += y * WORD(5);
        int kept[P]; /* where a class of rows is kept, and where in a word rows begin */
#pragma unroll
        for (int q = 0; q < P; q++)
            kept[q] = (q * ALIKE + x) * PITCH + BEFORE(q) + y * S;
#pragma unroll
        for (int k = 0; k < SIDE; k++) {
            const int end = k + 1 < SIDE && cols > 32 * (k + 1) ? 32 * (k + 1) : cols;
            for (int j = 32 * k + y; j < end; j += 8, dst += 8 * WORD(5)) {
                const int skip = (int)((unsigned int)(unsigned long long)dst % LINE) / S, behind = skip % P;
                const int begin = P * x - ((skip + SECTOR - 1) & -SECTOR); /* elements from the tile's first on */
                const unsigned int order = (0x54105410u << 4 * S * behind) >> 16;
                const char *from[P];
#pragma unroll
                for (int q = 0; q < P; q++)
                    from[q] = (const char *)tile + kept[q] + (k * HEIGHT - skip / P - (q + behind >= P)) * PITCH + (j - y - 32 * k) * S;
                char *const to = dst + x * W - skip * S;
                T1 w[WHOLE];
#pragma unroll
                for (int u = 0; u < WHOLE; u++)
                    if (u == 0 ? begin >= 0 : begin < step - 32 * P * u) {
                        unsigned int each[4] = {0};
                        if (P == 1) {
                            w[u] = *(const T1 *)(from[0] + 32 * PITCH * u);
                            continue;
                        }
#pragma unroll
                        for (int q = 0; q < P; q++)
                            each[q] = (unsigned int)*(const T0 *)(from[q] + 32 * PITCH * u);
                        w[u] = (T1)(P == 2 ? __byte_perm(each[0], each[1], order)
                                           : __byte_perm(__byte_perm(each[0], each[1], 0x40),
                                                         __byte_perm(each[2], each[3], 0x40), order));
                    }
#pragma unroll
                for (int u = 0; u < WHOLE; u++)
                    if (u == 0 ? begin >= 0 : begin < step - 32 * P * u)
                        *(T1 *)(to + LINE * u) = w[u];
            }
        }
        return;
    }
    {
        const int before = BEFORE(y), first = x * W - before;
        const char *const from = src + y * WORD(4) + first;
#pragma unroll
        for (int e = 0; e < EACH; e += 4) { /* 32 rows of one part */
            const int i = 8 * e & (height - 1), past = (8 * e >> log) * part * S, left = first + past < cols * S ? rows - y - i : 0;
            const char *const row = from + i * WORD(4) + past;
#pragma unroll
            for (int u = 0; u < 4; u++)
                v[e + u] = 8 * u < left ? *(const T1 *)(row + u * (8 * WORD(4))) : (T1)0;
        }
        KEEP
    }
    for (int k = 0; k * part < cols; k++) {
        const int end = cols - k * part < part ? cols - k * part : part;
        char *to = dst + (k * part + y) * WORD(5);
        const char *from[4] = {0}; /* the thread's element of each class that its word of the first line has */
        int skip = -1, behind = 0; /* elements of the line before the tile's, of the word before them */
        int lo = 0, hi = 0;        /* those of the tile's that it writes */
        for (int j = y; j < end; j += 8, to += 8 * WORD(5)) {
            const int before = (int)((unsigned int)(unsigned long long)to % LINE) / S;
            if (before != skip) {
                skip = before;
                behind = skip % P;
                const int least = step < height ? -skip & (SECTOR - 1) : 0;
                lo = i0 > 0 ? least : 0;
                hi = step + least < rows ? step + least : rows;
#pragma unroll
                for (int q = 0; q < P; q++)
                    from[q] = (const char *)tile + ((k << log) / P + q * ALIKE + x - skip / P - (q + behind >= P)) * PITCH + BEFORE(q) + j * S;
            }
            /* places where all elements of a word may begin */
            const unsigned int whole = hi - lo < P ? 0u : (unsigned int)(hi - lo - P + 1);
#pragma unroll
            for (int u = 0; u < LINES; u++) {
                if (32 * P * u - skip >= hi)
                    break;
                if ((unsigned int)(32 * P * u - skip + P * x - lo) < whole) {
                    T1 *const at = (T1 *)(to - skip * S) + 32 * u + x;
                    if (P == 1) {
                        *at = *(const T1 *)(from[0] + 32 * PITCH * u);
                    } else {
                        unsigned int each[4] = {0};
#pragma unroll
                        for (int q = 0; q < P; q++)
                            each[q] = (unsigned int)*(const T0 *)(from[q] + 32 * PITCH * u);
                        each[0] = P == 2 ? __byte_perm(each[0], each[1], 0x5410)
                                         : __byte_perm(__byte_perm(each[0], each[1], 0x40), __byte_perm(each[2], each[3], 0x40), 0x5410);
                        *at = (T1)__funnelshift_l(each[0], each[0], 8 * S * behind);
                    }
                }
            }
#pragma unroll
            for (int q = 0; q < P; q++)
                from[q] += 8 * S;
            if (P > 1 && (behind || (behind + hi) % P) && x < 2 * P) { /* elements before and after whole words */
                const int i = x < P ? x : hi - 2 * P + x;
                if (x < P ? lo == 0 && behind && i < hi && i < P - behind : i >= lo && i >= hi - (behind + hi) % P)
                    *(T0 *)(to + i * S) =
                        *(const T0 *)((const char *)tile + ((k << log) / P + i % P * ALIKE + i / P) * PITCH + BEFORE(i) + j * S);
            }
        }
    }
#undef KEEP
#undef BEFORE
}

/* == join
 * Columns of rows that lie one behind the other in as many places as there are parts, of [rows][columns of its own] each: dst,
 * rows, step of dst's rows, parts, columns of all (divisor), then where each part lies and the column behind its last. */
WF_EXTERN __global__ void NAME(const struct wf_words_512 a)
{
    WF_BEGIN
    const unsigned int total = (unsigned int)WORD(1) * (unsigned int)WORD(4);
    for (unsigned int i = (unsigned int)START; i < total; i += (unsigned int)STEP) {
        const unsigned int row = OVER(i, 4), column = i - row * (unsigned int)WORD(4);
        int lo = 0, hi = (int)WORD(3) - 1;
        while (lo < hi) {
            const int mid = (lo + hi) / 2;
            if (column < (unsigned int)WORD(8 + 2 * mid))
                hi = mid;
            else
                lo = mid + 1;
        }
        const unsigned int first = lo > 0 ? (unsigned int)WORD(6 + 2 * lo) : 0u, n = (unsigned int)WORD(8 + 2 * lo) - first;
        POINTER(T0, 0)[row * WORD(2) + column] = POINTER(const T0, 7 + 2 * lo)[row * n + column - first];
    }
}

/* == sort
 * Merges runs of `run` neighbours of lines of n (key, index) pairs: a thread a pair finds its place by bisection. Stable.
 * keys and indices from, keys and indices to, lines, n, run, descending. NaN is the greatest. */
WF_DEVICE int wf_before(C0 x, C0 y, int descending)
{
    if (x != x || y != y)
        return descending ? x != x && y == y : x == x && y != y;
    return descending ? x > y : x < y;
}
WF_EXTERN __global__ void NAME(const struct wf_words_64 a)
{
    WF_BEGIN
    const long long n = WORD(5), run = WORD(6);
    const int descending = (int)WORD(7);
    for (long long i = START; i < WORD(4) * n; i += STEP) {
        const long long line = wf_quotient(i, n) * n, at = i - line, begin = wf_quotient(at, 2 * run) * (2 * run);
        const long long middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
        const T0 *key = POINTER(const T0, 0) + line;
        const C0 x = LOAD0(key[at]);
        const int left = at < middle;
        long long lo = left ? middle : begin, hi = left ? end : middle;
        while (lo < hi) {
            const long long mid = (lo + hi) / 2;
            const C0 y = LOAD0(key[mid]);
            /* equal ones of the left run come first */
            if (left ? wf_before(y, x, descending) : !wf_before(x, y, descending))
                lo = mid + 1;
            else
                hi = mid;
        }
        const long long to = line + (left ? at + (lo - middle) : at - middle + lo);
        POINTER(T0, 2)[to] = key[at];
        POINTER(long long, 3)[to] = POINTER(const long long, 1)[i];
    }
}
/* == end */
