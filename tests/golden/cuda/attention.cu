#define T0 unsigned short
#define C0 float
#define S0 float
#define LOAD0 wf_load_bf16
#define STORE0 wf_store_bf16
#define ADD0(x, y) ((C0)((x) + (y)))
#define MUL0(x, y) ((C0)((x) * (y)))
#define FMA0(x, y, z) fmaf(x, y, z)
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
#define MASK1(x) LOAD1(x)
#define WF_EXP wf_row_exp_f32
#ifndef WF_HAS_wf_row_exp_f32
#define WF_HAS_wf_row_exp_f32
WF_DEVICE float wf_row_exp_f32(float x)
{
        const unsigned char v2 = x < wf_f32(0xC2D00000u);
        const float v3 = v2 ? wf_f32(0xC2D00000u) : x;
        const unsigned char v5 = v3 > wf_f32(0x42B20000u);
        const float v6 = v5 ? wf_f32(0x42B20000u) : v3;
        const float v9 = fmaf(v6, wf_f32(0x3FB8AA3Bu), wf_f32(0x4B4000FEu));
        const float v10 = v9 - wf_f32(0x4B4000FEu);
        const float v12 = fmaf(v10, wf_f32(0xBF317218u), v6);
        const float v15 = fmaf(v10, wf_f32(0x3102E308u), wf_f32(0x80000000u));
        const float v16 = v12 + v15;
        const float v19 = fmaf(v16, wf_f32(0x3AB559A8u), wf_f32(0x3C091656u));
        const float v21 = fmaf(v16, v19, wf_f32(0x3D2AABCEu));
        const float v23 = fmaf(v16, v21, wf_f32(0x3E2AAA55u));
        const float v25 = fmaf(v16, v23, wf_f32(0x3EFFFFFFu));
        const float v27 = fmaf(v16, v25, wf_f32(0x3F800000u));
        const float v28 = fmaf(v16, v27, wf_f32(0x3F800000u));
        const unsigned int v29 = wf_u32(v9);
        const unsigned int v30 = v29 >> 1;
        const unsigned int v31 = v30 << 23;
        const float v32 = wf_f32(v31);
        const float v33 = v28 * v32;
        const unsigned int v34 = (unsigned int)((unsigned int)v29 - (unsigned int)v30);
        const unsigned int v35 = v34 << 23;
        const float v36 = wf_f32(v35);
        const float v37 = v33 * v36;
        return v37;
}
#endif
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
for (int d = 0; d < (axes); d++) {                                                                       \
const long long up = d + 1 < (axes) ? wf_quotient(rest, WORD((first) + 2 * d)) : 0;                  \
to += (rest - up * WORD((first) + 2 * d)) * WORD((first) + 2 * d + 1);                               \
rest = up;                                                                                           \
}
/* == tile_common */
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
/* == flash_common */
#define WF_EACH(i, j)                                                                                                  \
for (int i = 0; i < 4; i++)                                                                                        \
for (int j = 0; j < 4; j++)
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
WF_DEVICE void wf_turn(C0 (*part)[68], C0 (*tile)[4])
{
const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
WF_EACH(i, j)
part[x + 16 * j][y * 4 + i] = tile[i][j];
__syncthreads();
}
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
/* == flash */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
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
