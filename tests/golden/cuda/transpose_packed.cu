#define T0 short
#define C0 short
#define S0 int
#define LOAD0 wf_load_i16
#define STORE0 wf_store_i16
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
/* == transpose_packed */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
enum { P = 4 / (int)sizeof(T0), W = 64 / P, EACH = W * W / 256, APART = 256 / W };
__shared__ unsigned int tile[2][64][16 * sizeof(T0) + 1];
int turn = 0;
for (unsigned int t = blockIdx.x; t < (unsigned int)WORD(8); t += gridDim.x, turn ^= 1) {
const unsigned int up = OVER(t, 10), b = OVER(up, 13);
const long long j0 = (long long)(t - up * (unsigned int)WORD(10)) * 64;
const long long i0 = (long long)(up - b * (unsigned int)WORD(13)) * 64;
const T0 *src = POINTER(const T0, 1) + b * WORD(6) + i0 * WORD(4) + j0;
T0 *dst = POINTER(T0, 0) + b * WORD(7) + j0 * WORD(5) + i0;
const long long rows = WORD(2) - i0, cols = WORD(3) - j0;
if (WORD(9) && rows >= 64 && cols >= 64) {
const int x = threadIdx.x % W, y = threadIdx.x / W;
unsigned int p[EACH][4];
#pragma unroll
for (int e = 0; e < EACH; e++)
#pragma unroll
for (int k = 0; k < P; k++)
p[e][k] = *(const unsigned int *)(src + ((y + APART * e) * P + k) * WORD(4) + x * P);
#pragma unroll
for (int e = 0; e < EACH; e++) {
unsigned int(*to)[W + 1] = tile[turn] + x, *q = p[e];
if (P == 2) {
to[0][y + APART * e] = __byte_perm(q[0], q[1], 0x5410);
to[W][y + APART * e] = __byte_perm(q[0], q[1], 0x7632);
} else {
const unsigned int low = __byte_perm(q[0], q[1], 0x5140), high = __byte_perm(q[2], q[3], 0x5140);
to[0][y + APART * e] = __byte_perm(low, high, 0x5410);
to[W][y + APART * e] = __byte_perm(low, high, 0x7632);
q[0] = __byte_perm(q[0], q[1], 0x7362);
q[2] = __byte_perm(q[2], q[3], 0x7362);
to[2 * W % 64][y + APART * e] = __byte_perm(q[0], q[2], 0x5410);
to[3 * W % 64][y + APART * e] = __byte_perm(q[0], q[2], 0x7632);
}
}
__syncthreads();
#pragma unroll
for (int e = 0; e < EACH; e++)
#pragma unroll
for (int k = 0; k < P; k++)
*(unsigned int *)(dst + ((y + APART * e) * P + k) * WORD(5) + x * P) = tile[turn][k * W + y + APART * e][x];
} else {
const int x = threadIdx.x % 64, y = threadIdx.x / 64;
T0 v[16];
#pragma unroll
for (int e = 0; e < 16; e++)
v[e] = y + 4 * e < rows && x < cols ? src[(y + 4 * e) * WORD(4) + x] : (T0)0;
#pragma unroll
for (int e = 0; e < 16; e++)
((T0 *)tile[turn][x % P * W + x / P])[y + 4 * e] = v[e];
__syncthreads();
#pragma unroll
for (int e = 0; e < 16; e++)
if (y + 4 * e < cols && x < rows)
dst[(y + 4 * e) * WORD(5) + x] = ((const T0 *)tile[turn][(y + 4 * e) % P * W + (y + 4 * e) / P])[x];
}
}
}
