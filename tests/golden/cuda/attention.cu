#define T0 unsigned short
#define C0 float
#define S0 float
#define LOAD0 wf_load_bf16
#define STORE0 wf_store_bf16
#define ADD0(x, y) ((C0)((x) + (y)))
#define MUL0(x, y) ((C0)((x) * (y)))
#define FMA0(x, y, z) fmaf(x, y, z)
#define MIN0(x, y) wf_min_f32(x, y)
#define MAX0(x, y) wf_max_f32(x, y)
#define PAIR0 "bf16x2"
#define MASK0(x) LOAD0(x)
#ifndef WF_HAS_wf_load_f32
#define WF_HAS_wf_load_f32
WF_DEVICE float wf_load_f32(float x)
{
        return x;
}
#endif
#ifndef WF_HAS_wf_store_f32
#define WF_HAS_wf_store_f32
WF_DEVICE float wf_store_f32(float x)
{
        return x;
}
#endif
#define T1 float
#define C1 float
#define S1 float
#define LOAD1 wf_load_f32
#define STORE1 wf_store_f32
#define ADD1(x, y) ((C1)((x) + (y)))
#define MUL1(x, y) ((C1)((x) * (y)))
#define FMA1(x, y, z) fmaf(x, y, z)
#define MIN1(x, y) wf_min_f32(x, y)
#define MAX1(x, y) wf_max_f32(x, y)
#define MASK1(x) LOAD1(x)
#define WF_LOG wf_row_log_f32
#ifndef WF_HAS_wf_row_log_f32
#define WF_HAS_wf_row_log_f32
WF_DEVICE float wf_row_log_f32(float x)
{
        const unsigned char v2 = x <= wf_f32(0x00000000u);
        const unsigned char v3 = x == wf_f32(0x00000000u);
        const float v5 = -wf_f32(0x7F800000u);
        const float v7 = v3 ? v5 : wf_f32(0x7FC00000u);
        const unsigned char v8 = x < wf_f32(0x7F800000u);
        const unsigned char v10 = x < wf_f32(0x00800000u);
        const float v12 = x * wf_f32(0x4B000000u);
        const float v13 = v10 ? v12 : x;
        const unsigned int v14 = wf_u32(v13);
        const unsigned int v16 = (unsigned int)((unsigned int)v14 - (unsigned int)(unsigned int)0x3F3504F3u);
        const unsigned int v17 = (unsigned int)((int)v16 >> 23);
        const float v18 = (float)(int)v17;
        const float v20 = v18 - wf_f32(0x41B80000u);
        const float v21 = v10 ? v20 : v18;
        const unsigned int v24 = (unsigned int)(v16 & (unsigned int)0x7FFFFFu);
        const unsigned int v25 = (unsigned int)((unsigned int)v24 + (unsigned int)(unsigned int)0x3F3504F3u);
        const float v26 = wf_f32(v25);
        const float v28 = v26 - wf_f32(0x3F800000u);
        const float v30 = v28 * v28;
        const float v33 = fmaf(v28, wf_f32(0x3D8D44B4u), wf_f32(0xBDF01ADAu));
        const float v35 = fmaf(v28, v33, wf_f32(0x3DF2675Du));
        const float v37 = fmaf(v28, v35, wf_f32(0xBDFDBB03u));
        const float v39 = fmaf(v28, v37, wf_f32(0x3E11A99Cu));
        const float v41 = fmaf(v28, v39, wf_f32(0xBE2AB24Au));
        const float v43 = fmaf(v28, v41, wf_f32(0x3E4CD1E2u));
        const float v45 = fmaf(v28, v43, wf_f32(0xBE7FFFE8u));
        const float v47 = fmaf(v28, v45, wf_f32(0x3EAAAAA4u));
        const float v49 = fmaf(v28, v47, wf_f32(0xBF000000u));
        const float v50 = v30 * v49;
        const float v51 = fmaf(v21, wf_f32(0xB102E308u), v50);
        const float v52 = v28 + v51;
        const float v53 = fmaf(v21, wf_f32(0x3F317218u), v52);
        const float v54 = v8 ? v53 : x;
        const float v55 = v2 ? v7 : v54;
        return v55;
}
#endif
#define WF_HUGE wf_f32(0x7F800000u)
/* == common */
#define WORD(i) ((long long)a.w[i])
#define POINTER(T, i) ((T *)a.w[i])
#define START ((long long)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((long long)gridDim.x * blockDim.x)
#define OVER(x, i) ((__umulhi(x, (unsigned int)a.w[(i) + 1]) + (x)) >> (unsigned int)a.w[(i) + 2])
#define DIVIDE(x, i) ((((x) | WORD(i)) >> 31) == 0 ? (long long)OVER((unsigned int)(x), i) : (x) / WORD(i))
WF_DEVICE void wf_bad_index(unsigned long long *error, long long at)
{
atomicCAS(error, ~0ull, (unsigned long long)(at == -1 ? -2 : at));
}
#define WF_WIDE 1
/* == place_common */
WF_DEVICE long long wf_quotient(long long x, long long y)
{
return ((x | y) >> 32) == 0 ? (long long)((unsigned int)x / (unsigned int)y) : x / y;
}
WF_DEVICE long long wf_remainder(long long x, long long y)
{
return x - wf_quotient(x, y) * y;
}
#define WALK(to, rest, axes, first)                                                                          \
_Pragma("unroll 1") for (int d = 0; d < (axes); d++) {                                                                       \
const long long up = d + 1 < (axes) ? wf_quotient(rest, WORD((first) + 2 * d)) : 0;                  \
to += (rest - up * WORD((first) + 2 * d)) * WORD((first) + 2 * d + 1);                               \
rest = up;                                                                                           \
}
/* == flash_common */
struct __align__(16) wf_four {
C0 v[4];
};
struct __align__(4 * sizeof(T0)) wf_raw {
T0 v[4];
};
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
WF_DEVICE long long wf_kept_item(long long n, int down, int across, int causal)
{
return n * (causal ? (long long)down * (down + 1) / 2 : (long long)down * across) * 4096;
}
WF_DEVICE long long wf_kept_row(int q, int across, int causal)
{
return (causal ? (long long)q * (q + 1) / 2 : (long long)q * across) * 4096;
}
#define NEXT(o, r, c, rows, cols)                                                                                      \
wf_fetch(ahead, POINTER(const T0, 3 * (o)) + at[o] + (r) * WORD(3 * (o) + 1) + (c) * WORD(3 * (o) + 2), (rows) - (r), \
WORD(3 * (o) + 1), (cols) - (c), WORD(3 * (o) + 2), vector >> (o) & 1)
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
WF_DEVICE void wf_swap(C0 *right, const struct wf_raw *v)
{
__syncthreads();
wf_put(right, 68, v);
__syncthreads();
}
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
/* == flash */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
WF_BEGIN
WF_DYNAMIC(wf_dynamic)
enum { ROWS = 128 / WF_WIDE, OWN = 8 / WF_WIDE, APART = 64 * WF_WIDE + 4 };
C0 *const left = (C0 *)wf_dynamic, *const right = left + ROWS * APART, *const part = right + 64 * 68;
long long *const at = (long long *)(part + ROWS * 36); 
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
__syncthreads(); 
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
