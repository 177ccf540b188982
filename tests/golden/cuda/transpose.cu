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
WF_DEVICE void wf_bad_index(unsigned long long *error, long long at)
{
atomicCAS(error, ~0ull, (unsigned long long)(at == -1 ? -2 : at));
}
/* == transpose */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
__shared__ T0 tile[32][33];
const long long rows = WORD(2), cols = WORD(3), down = (rows + 31) / 32, across = (cols + 31) / 32;
const int x = threadIdx.x % 32, y = threadIdx.x / 32;
for (long long t = blockIdx.x; t < down * across * WORD(6); t += gridDim.x) {
const long long j0 = t % across * 32, i0 = t / across % down * 32, b = t / across / down;
const T0 *src = POINTER(const T0, 1) + b * WORD(7);
T0 *dst = POINTER(T0, 0) + b * WORD(8);
for (int i = y; i < 32; i += 8)
if (i0 + i < rows && j0 + x < cols)
tile[i][x] = src[(i0 + i) * WORD(4) + j0 + x];
__syncthreads();
for (int j = y; j < 32; j += 8)
if (j0 + j < cols && i0 + x < rows)
dst[(j0 + j) * WORD(5) + i0 + x] = tile[x][j];
__syncthreads();
}
}
