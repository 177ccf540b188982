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
#ifndef WF_HAS_wf_load_bf16
#define WF_HAS_wf_load_bf16
WF_DEVICE float wf_load_bf16(unsigned short x)
{
        const unsigned int v1 = (unsigned int)x;
        const unsigned int v2 = v1 << 16;
        const float v3 = wf_f32(v2);
        return v3;
}
#endif
#ifndef WF_HAS_wf_store_bf16
#define WF_HAS_wf_store_bf16
WF_DEVICE unsigned short wf_store_bf16(float x)
{
        const unsigned short v16 = wf_bf16_of_f32(x);
        return v16;
}
#endif
#define T1 unsigned short
#define C1 float
#define S1 float
#define LOAD1 wf_load_bf16
#define STORE1 wf_store_bf16
#define ADD1(x, y) ((C1)((x) + (y)))
#define MUL1(x, y) ((C1)((x) * (y)))
#define FMA1(x, y, z) fmaf(x, y, z)
#define MIN1(x, y) wf_min_f32(x, y)
#define MAX1(x, y) wf_max_f32(x, y)
#define PAIR1 "bf16x2"
#define MASK1(x) LOAD1(x)
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
/* == gemm */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
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
