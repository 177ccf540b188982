#define T0 short
#define C0 short
#define S0 int
#define LOAD0 wf_load_i16
#define STORE0 wf_store_i16
#define ADD0(x, y) ((C0)((unsigned long long)(x) + (unsigned long long)(y)))
#define MUL0(x, y) ((C0)((unsigned long long)(x) * (unsigned long long)(y)))
#define FMA0(x, y, z) ADD0(MUL0(x, y), z)
#define MIN0(x, y) ((x) < (y) ? (x) : (y))
#define MAX0(x, y) ((x) > (y) ? (x) : (y))
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
#define MIN1(x, y) ((x) < (y) ? (x) : (y))
#define MAX1(x, y) ((x) > (y) ? (x) : (y))
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
WF_EXTERN __global__ void __launch_bounds__(256, 5) kernel(const struct wf_words_64 a)
{
WF_BEGIN
enum { S = (int)sizeof(T0), W = (int)sizeof(T1), P = W / S, EACH = 128 / W, LINE = 32 * W, SECTOR = 32 / S };
enum { PITCH = 33 * W, LINES = 8 * EACH / (32 * P) + 1, ALIKE = 8 * EACH / P };
enum { HEIGHT = S == 1 ? 256 : 512 / S, SIDE = 8 * EACH / HEIGHT, WHOLE = HEIGHT / (32 * P) + 1 };
__shared__ T1 tile[1024 / sizeof(T1)][33];
const int x = threadIdx.x % 32, y = threadIdx.x / 32;
const int log = (int)WORD(8), height = 1 << log, part = (int)WORD(10), wide = (int)WORD(9) * part;
const int step = (int)WORD(21), holds = (int)WORD(22);
const unsigned int up = OVER(blockIdx.x, 12), over = OVER(up, 15), b = OVER(over, 18);
const unsigned int across = (over - b * (unsigned int)WORD(18)) * (unsigned int)WORD(12) + blockIdx.x - up * (unsigned int)WORD(12);
if (across >= WORD(11))
return; 
const long long j0 = (long long)across * (unsigned int)wide, i0 = (long long)(up - over * (unsigned int)WORD(15)) * (unsigned int)step;
const int rows = WORD(2) - i0 < height ? (int)(WORD(2) - i0) : height;
const int cols = WORD(3) - j0 < wide ? (int)(WORD(3) - j0) : wide;
const char *const src = POINTER(const char, 1) + b * WORD(6) + i0 * WORD(4) + j0 * S;
char *dst = POINTER(char, 0) + b * WORD(7) + j0 * WORD(5) + i0 * S;
T1 v[EACH];
#define BEFORE(i) (P > 1 ? (int)((unsigned int)(unsigned long long)src + (unsigned int)(i) * (unsigned int)a.w[4]) & 3 : 0)
#define KEEP                                                                                                 \
_Pragma("unroll") for (int e = 0; e < EACH; e++) tile[y % P * ALIKE + y / P + 8 / P * e][x] = v[e];      \
__syncthreads();
if (holds & 1 && rows == HEIGHT && (holds & 2 || i0 > 0)) {
{
const int before = BEFORE(y), last = ((cols * S - 1 + before) & -W) - before;
const char *row[SIDE];
#pragma unroll
for (int k = 0; k < SIDE; k++) {
const int first = (x + 32 * k) * W - before;
row[k] = src + y * WORD(4) + (first < last ? first : last);
}
#pragma unroll
for (int e = 0; e < EACH; e++) {
v[e / SIDE + e % SIDE * (EACH / SIDE)] = *(const T1 *)row[e % SIDE];
row[e % SIDE] += 8 * WORD(4);
}
}
KEEP
if (P > 1 && holds & 4) { 
dst += P * y * WORD(5);
const int skip = (int)((unsigned int)(unsigned long long)dst % LINE) / S, behind = skip % P;
const int begin = P * x - ((skip + SECTOR - 1) & -SECTOR);
const unsigned int low = (0x54105410u << 4 * S * behind) >> 16, high = low + 0x2222u;
const char *from[P];
#pragma unroll
for (int q = 0; q < P; q++)
from[q] = (const char *)tile + (q * ALIKE + x - skip / P - (q + behind >= P)) * PITCH + y * W;
dst += x * W - skip * S;
for (int j = P * y; j < cols; j += 8 * P, dst += 8 * P * WORD(5)) {
#pragma unroll
for (int u = 0; u < WHOLE; u++)
if (u == 0 ? begin >= 0 : begin < step - 32 * P * u) {
unsigned int w[4];
#pragma unroll
for (int q = 0; q < P; q++)
w[q] = (unsigned int)*(const T1 *)(from[q] + 32 * PITCH * u);
#pragma unroll
for (int q = 0; q < P; q += 2) {
const unsigned int lead = P == 2 ? w[0] : __byte_perm(w[0], w[1], q ? 0x7362 : 0x5140);
const unsigned int rest = P == 2 ? w[1] : __byte_perm(w[2 % P], w[3 % P], q ? 0x7362 : 0x5140);
*(T1 *)(dst + q * WORD(5) + LINE * u) = (T1)__byte_perm(lead, rest, low);
*(T1 *)(dst + (q + 1) * WORD(5) + LINE * u) = (T1)__byte_perm(lead, rest, high);
}
}
#pragma unroll
for (int q = 0; q < P; q++)
from[q] += 8 * W;
}
return;
}
dst += y * WORD(5);
int kept[P]; 
#pragma unroll
for (int q = 0; q < P; q++)
kept[q] = (q * ALIKE + x) * PITCH + BEFORE(q) + y * S;
#pragma unroll
for (int k = 0; k < SIDE; k++) {
const int end = k + 1 < SIDE && cols > 32 * (k + 1) ? 32 * (k + 1) : cols;
for (int j = 32 * k + y; j < end; j += 8, dst += 8 * WORD(5)) {
const int skip = (int)((unsigned int)(unsigned long long)dst % LINE) / S, behind = skip % P;
const int begin = P * x - ((skip + SECTOR - 1) & -SECTOR); 
const unsigned int order = (0x54105410u << 4 * S * behind) >> 16;
const char *from[P];
#pragma unroll
for (int q = 0; q < P; q++)
from[q] = (const char *)tile + kept[q] + (k * HEIGHT - skip / P - (q + behind >= P)) * PITCH + (j - y - 32 * k) * S;
char *const to = dst + x * W - skip * S;
T1 w[WHOLE];
#pragma unroll
for (int u = 0; u < WHOLE; u++)
if (u == 0 ? begin >= 0 : begin < step - 32 * P * u) {
unsigned int each[4] = {0};
if (P == 1) {
w[u] = *(const T1 *)(from[0] + 32 * PITCH * u);
continue;
}
#pragma unroll
for (int q = 0; q < P; q++)
each[q] = (unsigned int)*(const T0 *)(from[q] + 32 * PITCH * u);
w[u] = (T1)(P == 2 ? __byte_perm(each[0], each[1], order)
: __byte_perm(__byte_perm(each[0], each[1], 0x40),
__byte_perm(each[2], each[3], 0x40), order));
}
#pragma unroll
for (int u = 0; u < WHOLE; u++)
if (u == 0 ? begin >= 0 : begin < step - 32 * P * u)
*(T1 *)(to + LINE * u) = w[u];
}
}
return;
}
{
const int before = BEFORE(y), first = x * W - before;
const char *const from = src + y * WORD(4) + first;
#pragma unroll
for (int e = 0; e < EACH; e += 4) { 
const int i = 8 * e & (height - 1), past = (8 * e >> log) * part * S, left = first + past < cols * S ? rows - y - i : 0;
const char *const row = from + i * WORD(4) + past;
#pragma unroll
for (int u = 0; u < 4; u++)
v[e + u] = 8 * u < left ? *(const T1 *)(row + u * (8 * WORD(4))) : (T1)0;
}
KEEP
}
for (int k = 0; k * part < cols; k++) {
const int end = cols - k * part < part ? cols - k * part : part;
char *to = dst + (k * part + y) * WORD(5);
const char *from[4] = {0}; 
int skip = -1, behind = 0; 
int lo = 0, hi = 0;        
for (int j = y; j < end; j += 8, to += 8 * WORD(5)) {
const int before = (int)((unsigned int)(unsigned long long)to % LINE) / S;
if (before != skip) {
skip = before;
behind = skip % P;
const int least = step < height ? -skip & (SECTOR - 1) : 0;
lo = i0 > 0 ? least : 0;
hi = step + least < rows ? step + least : rows;
#pragma unroll
for (int q = 0; q < P; q++)
from[q] = (const char *)tile + ((k << log) / P + q * ALIKE + x - skip / P - (q + behind >= P)) * PITCH + BEFORE(q) + j * S;
}
const unsigned int whole = hi - lo < P ? 0u : (unsigned int)(hi - lo - P + 1);
#pragma unroll
for (int u = 0; u < LINES; u++) {
if (32 * P * u - skip >= hi)
break;
if ((unsigned int)(32 * P * u - skip + P * x - lo) < whole) {
T1 *const at = (T1 *)(to - skip * S) + 32 * u + x;
if (P == 1) {
*at = *(const T1 *)(from[0] + 32 * PITCH * u);
} else {
unsigned int each[4] = {0};
#pragma unroll
for (int q = 0; q < P; q++)
each[q] = (unsigned int)*(const T0 *)(from[q] + 32 * PITCH * u);
each[0] = P == 2 ? __byte_perm(each[0], each[1], 0x5410)
: __byte_perm(__byte_perm(each[0], each[1], 0x40), __byte_perm(each[2], each[3], 0x40), 0x5410);
*at = (T1)__funnelshift_l(each[0], each[0], 8 * S * behind);
}
}
}
#pragma unroll
for (int q = 0; q < P; q++)
from[q] += 8 * S;
if (P > 1 && (behind || (behind + hi) % P) && x < 2 * P) { 
const int i = x < P ? x : hi - 2 * P + x;
if (x < P ? lo == 0 && behind && i < hi && i < P - behind : i >= lo && i >= hi - (behind + hi) % P)
*(T0 *)(to + i * S) =
*(const T0 *)((const char *)tile + ((k << log) / P + i % P * ALIKE + i / P) * PITCH + BEFORE(i) + j * S);
}
}
}
#undef KEEP
#undef BEFORE
}
