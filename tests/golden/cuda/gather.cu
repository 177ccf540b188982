#define T0 int
#define C0 int
#define S0 int
#define LOAD0 wf_load_i32
#define STORE0 wf_store_i32
#define ADD0(x, y) ((C0)((unsigned long long)(x) + (unsigned long long)(y)))
#define MUL0(x, y) ((C0)((unsigned long long)(x) * (unsigned long long)(y)))
#define FMA0(x, y, z) ADD0(MUL0(x, y), z)
#define MIN0(x, y) ((x) < (y) ? (x) : (y))
#define MAX0(x, y) ((x) > (y) ? (x) : (y))
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
/* == select */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
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
