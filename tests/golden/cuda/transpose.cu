#define T0 short
#define C0 short
#define S0 int
#define LOAD0 wf_load_i16
#define STORE0 wf_store_i16
#define ADD0(x, y) ((C0)((unsigned long long)(x) + (unsigned long long)(y)))
#define MUL0(x, y) ((C0)((unsigned long long)(x) * (unsigned long long)(y)))
#define FMA0(x, y, z) ADD0(MUL0(x, y), z)
#define MASK0(x) LOAD0(x)
#ifndef WF_HAS_wf_load_i32
#define WF_HAS_wf_load_i32
WF_DEVICE int wf_load_i32(int x)
{
        return x;
}
#endif
#ifndef WF_HAS_wf_store_i32
#define WF_HAS_wf_store_i32
WF_DEVICE int wf_store_i32(int x)
{
        return x;
}
#endif
#define T1 int
#define C1 int
#define S1 int
#define LOAD1 wf_load_i32
#define STORE1 wf_store_i32
#define ADD1(x, y) ((C1)((unsigned long long)(x) + (unsigned long long)(y)))
#define MUL1(x, y) ((C1)((unsigned long long)(x) * (unsigned long long)(y)))
#define FMA1(x, y, z) ADD1(MUL1(x, y), z)
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
/* == transpose */
WF_EXTERN __global__ void kernel(const struct wf_words_64 a)
{
enum { S = (int)sizeof(T0), P = (int)sizeof(T1) / S, EACH = 128 / (int)sizeof(T1), LINE = 32 * (int)sizeof(T1) };
enum { PITCH = 33 * (int)sizeof(T1), LINES = 8 * EACH / (32 * P) + 1 };
__shared__ T1 tile[1024 / sizeof(T1)][33];
const int x = threadIdx.x % 32, y = threadIdx.x / 32;
const int log = (int)WORD(8), height = 1 << log, part = (int)WORD(10), alike = height / P;
const unsigned int up = OVER(blockIdx.x, 12), over = OVER(up, 15), b = OVER(over, 18);
const unsigned int across = (over - b * (unsigned int)WORD(18)) * (unsigned int)WORD(12) + blockIdx.x - up * (unsigned int)WORD(12);
if (across >= WORD(11))
return; 
const long long j0 = across * WORD(9) * part, i0 = (long long)(up - over * (unsigned int)WORD(15)) << log;
const int rows = WORD(2) - i0 < height ? (int)(WORD(2) - i0) : height;
const int cols = WORD(3) - j0 < WORD(9) * part ? (int)(WORD(3) - j0) : (int)WORD(9) * part;
const char *const src = POINTER(const char, 1) + b * WORD(6) + i0 * WORD(4) + j0 * S;
#define BEFORE(i) (P > 1 ? (int)((unsigned int)(unsigned long long)src + (unsigned int)(i) * (unsigned int)a.w[4]) & 3 : 0)
{
const int before = BEFORE(y), first = x * (int)sizeof(T1) - before;
const char *const from = src + y * WORD(4) + first;
T1 v[EACH];
#pragma unroll
for (int e = 0; e < EACH; e += 4) { 
const int i = 8 * e & (height - 1), past = (8 * e >> log) * part * S, left = first + past < cols * S ? rows - y - i : 0;
const char *const row = from + i * WORD(4) + past;
#pragma unroll
for (int u = 0; u < 4; u++)
v[e + u] = 8 * u < left ? *(const T1 *)(row + u * (8 * WORD(4))) : (T1)0;
}
#pragma unroll
for (int e = 0; e < EACH; e += 4) {
const int k = 8 * e & -height, number = k + (8 * e - k) / P;
T1(*to)[33] = tile + number + y % P * alike + y / P;
#pragma unroll
for (int u = 0; u < 4; u++)
to[8 / P * u][x] = v[e + u];
}
}
__syncthreads();
const unsigned int whole = rows < P ? 0u : (unsigned int)(rows - P + 1); 
for (int k = 0; k * part < cols; k++) {
const int end = cols - k * part < part ? cols - k * part : part;
char *dst = POINTER(char, 0) + b * WORD(7) + (j0 + k * part + y) * WORD(5) + i0 * S;
const char *from[4] = {0}; 
int skip = -1, behind = 0; 
for (int j = y; j < end; j += 8, dst += 8 * WORD(5)) {
const int before = (int)((unsigned int)(unsigned long long)dst % LINE) / S;
if (before != skip) {
skip = before;
behind = skip % P;
#pragma unroll
for (int q = 0; q < P; q++)
from[q] = (const char *)tile + ((k << log) + q * alike + x - skip / P - (q + behind >= P)) * PITCH + BEFORE(q) + j * S;
}
T1 *const to = (T1 *)(dst - skip * S) + x;
#pragma unroll
for (int u = 0; u < LINES; u++) {
if (32 * P * u - skip >= rows)
break;
if ((unsigned int)(32 * P * u - skip + P * x) < whole) {
if (P == 1) {
to[32 * u] = *(const T1 *)(from[0] + 32 * PITCH * u);
} else {
unsigned int v[4] = {0};
#pragma unroll
for (int q = 0; q < P; q++)
v[q] = (unsigned int)*(const T0 *)(from[q] + 32 * PITCH * u);
v[0] = P == 2 ? __byte_perm(v[0], v[1], 0x5410)
: __byte_perm(__byte_perm(v[0], v[1], 0x40), __byte_perm(v[2], v[3], 0x40), 0x5410);
to[32 * u] = (T1)__funnelshift_l(v[0], v[0], 8 * S * behind);
}
}
}
#pragma unroll
for (int q = 0; q < P; q++)
from[q] += 8 * S;
if (P > 1 && (behind || (behind + rows) % P) && x < 2 * P) { 
const int i = x < P ? x : rows - 2 * P + x;
if (x < P ? behind && i < rows && i < P - behind : i >= 0 && i >= rows - (behind + rows) % P)
*(T0 *)(dst + i * S) =
*(const T0 *)((const char *)tile + ((k << log) + i % P * alike + i / P) * PITCH + BEFORE(i) + j * S);
}
}
}
#undef BEFORE
}
