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
/* == join */
WF_EXTERN __global__ void kernel(const struct wf_words_512 a)
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
