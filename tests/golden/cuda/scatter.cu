#define T0 unsigned short
#define C0 float
#define S0 float
#define LOAD0 wf_load_f16
#define STORE0 wf_store_f16
#define ADD0(x, y) ((C0)((x) + (y)))
#define MUL0(x, y) ((C0)((x) * (y)))
#define FMA0(x, y, z) fmaf(x, y, z)
#define MIN0(x, y) wf_min_f32(x, y)
#define MAX0(x, y) wf_max_f32(x, y)
#define PAIR0 "f16x2"
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
/* == scatter_add */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
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
