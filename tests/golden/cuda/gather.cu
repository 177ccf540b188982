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
WF_DEVICE void wf_bad_index(unsigned long long *error, long long at)
{
atomicCAS(error, ~0ull, (unsigned long long)(at == -1 ? -2 : at));
}
/* == select */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
const long long n = WORD(4), inner = WORD(5), total = WORD(3) * n * inner, extent = WORD(9);
for (long long i = START; i < total; i += STEP) {
const long long j = i % inner, row = i / inner, k = row % n, o = row / n;
long long at = POINTER(const long long, 2)[k];
if (at < -extent || at >= extent) {
wf_bad_index(POINTER(unsigned long long, 10), at);
POINTER(T0, 0)[i] = 0;
continue;
}
at = at < 0 ? at + extent : at;
POINTER(T0, 0)[i] = POINTER(const T0, 1)[o * WORD(6) + at * WORD(7) + j * WORD(8)];
}
}
