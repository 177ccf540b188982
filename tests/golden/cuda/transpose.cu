#define T0 int
#define C0 int
#define S0 int
#define LOAD0 wf_load_i32
#define STORE0 wf_store_i32
#define ADD0(x, y) ((C0)((unsigned long long)(x) + (unsigned long long)(y)))
#define MUL0(x, y) ((C0)((unsigned long long)(x) * (unsigned long long)(y)))
#define FMA0(x, y, z) ADD0(MUL0(x, y), z)
#define MASK0(x) LOAD0(x)
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
/* == transpose */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
__shared__ T0 tile[2][32][33];
const int x = threadIdx.x % 32, y = threadIdx.x / 32;
int turn = 0;
for (unsigned int t = blockIdx.x; t < (unsigned int)WORD(8); t += gridDim.x, turn ^= 1) {
const unsigned int up = OVER(t, 10), b = OVER(up, 13);
const long long j0 = (long long)(t - up * (unsigned int)WORD(10)) * 32;
const long long i0 = (long long)(up - b * (unsigned int)WORD(13)) * 32;
const T0 *src = POINTER(const T0, 1) + b * WORD(6) + (i0 + y) * WORD(4) + j0 + x;
T0 *dst = POINTER(T0, 0) + b * WORD(7) + (j0 + y) * WORD(5) + i0 + x;
const long long rows = WORD(2) - i0, cols = WORD(3) - j0;
T0 v[4];
if (rows >= 32 && cols >= 32) {
#pragma unroll
for (int e = 0; e < 4; e++)
v[e] = src[8 * e * WORD(4)];
#pragma unroll
for (int e = 0; e < 4; e++)
tile[turn][y + 8 * e][x] = v[e];
__syncthreads();
#pragma unroll
for (int e = 0; e < 4; e++)
dst[8 * e * WORD(5)] = tile[turn][x][y + 8 * e];
} else {
#pragma unroll
for (int e = 0; e < 4; e++)
v[e] = y + 8 * e < rows && x < cols ? src[8 * e * WORD(4)] : (T0)0;
#pragma unroll
for (int e = 0; e < 4; e++)
tile[turn][y + 8 * e][x] = v[e];
__syncthreads();
#pragma unroll
for (int e = 0; e < 4; e++)
if (y + 8 * e < cols && x < rows)
dst[8 * e * WORD(5)] = tile[turn][x][y + 8 * e];
}
}
}
