/*
 * tests/cuda/ptx/alu.c -- arithmetic of the interpreter: from the values of sources to that of a result.
 *
 * Written from the manual and sharing nothing with the library, whose kernels it is to judge. The host's own f32 and f64 are
 * IEEE 754's (built without contraction, run with subnormals on); f16 and bf16 are computed with in f64, whose products of
 * two are exact, and rounded once.
 */
#include <math.h>

#include "tests/cuda/ptx/machine.h"

/* -- floats and their bits ------------------------------------------------------------------------------------ */
static float f32_of(uint64_t v)
{
    const uint32_t bits = (uint32_t)v;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static uint64_t bits_of_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static double f64_of(uint64_t v)
{
    double f;
    memcpy(&f, &v, sizeof f);
    return f;
}
static uint64_t bits_of_f64(double f)
{
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* 2^n, a normal number. */
static double power_of_two(int n)
{
    return f64_of((uint64_t)(n + 1023) << 52);
}

/* A half type: its fraction has so many bits, its smallest normal number is 2^least. */
typedef struct half {
    int fraction, least;
} half;
static half half_of(int type)
{
    return type == T_F16 || type == T_F16X2 ? (half){10, -14} : (half){7, -126};
}

static double from_half(uint64_t v, half h)
{
    const int exponent = (int)(v >> h.fraction) & (int)ptx_mask((unsigned)(15 - h.fraction));
    const double fraction = (double)(v & ptx_mask((unsigned)h.fraction));
    const double sign = v >> 15 & 1 ? -1.0 : 1.0;
    if (exponent == (int)ptx_mask((unsigned)(15 - h.fraction))) {
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    const double whole = exponent == 0 ? fraction : fraction + power_of_two(h.fraction);
    return sign * whole * power_of_two(h.least + (exponent ? exponent - 1 : 0) - h.fraction);
}

static double round_whole(double x, int round)
{
    return round == M_RZ || round == M_RZI   ? trunc(x)
           : round == M_RM || round == M_RMI ? floor(x)
           : round == M_RP || round == M_RPI ? ceil(x)
                                             : rint(x);
}

static uint64_t to_half(double x, half h, int round)
{
    const uint64_t sign = signbit(x) ? 0x8000 : 0;
    const uint64_t infinity = ptx_mask((unsigned)(15 - h.fraction)) << h.fraction;
    if (isnan(x)) {
        return 0x7FFF;
    }
    if (isinf(x)) {
        return sign | infinity;
    }
    int e = (int)(bits_of_f64(x) >> 52 & 0x7FF) - 1023; /* of a normal number, others have less */
    e = e < h.least ? h.least : e;
    const double n = round_whole(fabs(x) * power_of_two(h.fraction - e), round);
    /* one more than a fraction has is the next exponent's first number, whose bits follow on */
    const uint64_t bits = (uint64_t)n + ((uint64_t)(e - h.least) << h.fraction);
    return sign | (bits < infinity ? bits : round == M_RZ ? infinity - 1 : infinity);
}

static double flush(double x)
{
    return fabs(x) < 0x1p-126 ? copysign(0, x) : x;
}

/* A float of any type as f64, exactly; the low half of a pair. */
static double float_in(int type, uint64_t v)
{
    return type == T_F64   ? f64_of(v)
           : type == T_F32 ? (double)f32_of(v)
                           : from_half(v & 0xFFFF, half_of(type));
}

/* The type's number next to x by the rounding; directed roundings of f32 from f64 by looking at the neighbour. */
static uint64_t float_out(int type, double x, int round)
{
    if (type == T_F64) {
        return bits_of_f64(x);
    }
    if (type != T_F32) {
        return to_half(x, half_of(type), round);
    }
    float y = (float)x;
    const bool towards_zero = round == M_RZ && fabs((double)y) > fabs(x);
    if (towards_zero || (round == M_RM && (double)y > x) || (round == M_RP && (double)y < x)) {
        y = nextafterf(y, towards_zero ? 0 : round == M_RM ? -INFINITY : INFINITY);
    }
    return bits_of_f32(y);
}

/* Inlined where the operation and the type are known (ptx_compute). */
#define ALWAYS inline __attribute__((always_inline))

/* -- arithmetic of floats --------------------------------------------------------------------------------------- */
/* Of numbers: NaN only where both are, or with .NaN where one is; -0 < +0. */
static double extreme(double a, double b, bool most, bool with_nan)
{
    if (isnan(a) || isnan(b)) {
        return with_nan || (isnan(a) && isnan(b)) ? (double)NAN : isnan(a) ? b : a;
    }
    if (a == b) {
        return (signbit(a) != 0) == most ? b : a;
    }
    return (a < b) == most ? b : a;
}

static ALWAYS float f32_result(const ptx_insn *i, float a, float b, float c)
{
    switch (i->op) {
    case P_ADD:
        return a + b;
    case P_SUB:
        return a - b;
    case P_MUL:
        return a * b;
    case P_DIV:
        return a / b;
    case P_FMA:
        return fmaf(a, b, c);
    case P_SQRT:
        return sqrtf(a);
    case P_RCP:
        return 1.0F / a;
    case P_NEG:
        return -a;
    case P_ABS:
        return fabsf(a);
    case P_COPYSIGN: /* the sign of the first */
        return copysignf(b, a);
    default:
        return (float)extreme((double)a, (double)b, i->op == P_MAX, i->mod[K_WITHNAN]);
    }
}

static ALWAYS double f64_result(const ptx_insn *i, double a, double b, double c)
{
    switch (i->op) {
    case P_ADD:
        return a + b;
    case P_SUB:
        return a - b;
    case P_MUL:
        return a * b;
    case P_DIV:
        return a / b;
    case P_FMA:
        return fma(a, b, c);
    case P_SQRT:
        return sqrt(a);
    case P_RCP:
        return 1 / a;
    case P_NEG:
        return -a;
    case P_ABS:
        return fabs(a);
    case P_COPYSIGN:
        return copysign(b, a);
    default:
        return extreme(a, b, i->op == P_MAX, i->mod[K_WITHNAN]);
    }
}

/* a b + c where a b is exact, for one rounding afterwards: a sum that f64 does not hold is made odd, so that it is no midpoint
 * of the half type's numbers. */
static double fma_odd(double a, double b, double c)
{
    const double p = a * b, s = p + c, t = s - p, rest = (p - (s - t)) + (c - t);
    if (rest == 0 || !isfinite(s)) {
        return s;
    }
    uint64_t bits = bits_of_f64(s);
    if (!(bits & 1)) {
        bits += (rest > 0) == (s > 0) ? 1 : (uint64_t)-1;
    }
    return f64_of(bits);
}

static uint64_t half_result(const ptx_insn *i, int type, const uint64_t *v)
{
    const half h = half_of(type);
    const double a = from_half(v[0] & 0xFFFF, h), b = from_half(v[1] & 0xFFFF, h),
                 c = from_half(v[2] & 0xFFFF, h);
    if (i->op == P_NEG || i->op == P_ABS) {
        return i->op == P_NEG ? v[0] ^ 0x8000 : v[0] & 0x7FFF;
    }
    const double r = i->op == P_FMA   ? fma_odd(a, b, c)
                     : i->op == P_ADD ? fma_odd(a, 1, b)
                     : i->op == P_SUB ? fma_odd(a, 1, -b)
                                      : f64_result(i, a, b, c);
    return to_half(r, h, M_RN);
}

/* -- approximations ------------------------------------------------------------------------------------------------ */
/* The nearest number or one of its neighbours, as a hash of the operand says: the manual promises no more, so no result may
 * depend on which it is. */
static uint64_t approximately(double exact, uint64_t operand)
{
    const float near = (float)exact;
    const uint64_t h = (operand * 0x9E3779B97F4A7C15u) >> 33;
    if (!isfinite(near) || fabsf(near) < 0x1p-125F) {
        return bits_of_f32((float)flush((double)near));
    }
    return bits_of_f32(h % 3 == 0   ? near
                       : h % 3 == 1 ? nextafterf(near, INFINITY)
                                    : nextafterf(near, -INFINITY));
}

static ALWAYS uint64_t float_value(const ptx_insn *i, const uint64_t *v)
{
    if (i->type == T_F64) {
        return bits_of_f64(f64_result(i, f64_of(v[0]), f64_of(v[1]), f64_of(v[2])));
    }
    if (i->type != T_F32) {
        uint64_t r = half_result(i, i->type, v) & 0xFFFF;
        if (i->type == T_F16X2 || i->type == T_BF16X2) {
            const uint64_t high[3] = {v[0] >> 16, v[1] >> 16, v[2] >> 16};
            r |= half_result(i, i->type, high) << 16;
        }
        return r;
    }
    float x[3];
    for (int k = 0; k < 3; k++) {
        x[k] = f32_of(v[k]);
        x[k] = i->mod[K_FTZ] ? (float)flush((double)x[k]) : x[k];
    }
    if (i->mod[K_APPROX]) {
        const double exact = i->op == P_RCP   ? 1 / (double)x[0]
                             : i->op == P_EX2 ? exp2((double)x[0])
                                              : log2((double)x[0]);
        return approximately(exact, v[0]);
    }
    const float r = f32_result(i, x[0], x[1], x[2]);
    return bits_of_f32(i->mod[K_FTZ] ? (float)flush((double)r) : r);
}

/* -- integers -------------------------------------------------------------------------------------------------------- */
static uint64_t divide(const ptx_insn *i, uint64_t a, uint64_t b)
{
    const unsigned bits = ptx_bits[i->type];
    if ((b & ptx_mask(bits)) == 0) { /* anything: what it is may go nowhere */
        return 0xDEADDEADDEADDEAD;
    }
    if (ptx_is_signed(i->type)) {
        const int64_t x = ptx_extend(a, bits), y = ptx_extend(b, bits);
        if (y == -1) {
            return i->op == P_DIV ? 0 - (uint64_t)x : 0;
        }
        return (uint64_t)(i->op == P_DIV ? x / y : x % y);
    }
    a &= ptx_mask(bits);
    b &= ptx_mask(bits);
    return i->op == P_DIV ? a / b : a % b;
}

static ALWAYS uint64_t product(const ptx_insn *i, uint64_t a, uint64_t b)
{
    const unsigned bits = ptx_bits[i->type];
    if (i->mod[K_MODE] == M_LO) {
        return a * b;
    }
    const unsigned __int128 p =
        ptx_is_signed(i->type)
            ? (unsigned __int128)((__int128)ptx_extend(a, bits) * ptx_extend(b, bits))
            : (unsigned __int128)(a & ptx_mask(bits)) * (b & ptx_mask(bits));
    return (uint64_t)(i->mod[K_MODE] == M_WIDE ? p : p >> bits);
}

static ALWAYS uint64_t shift_right(const ptx_insn *i, uint64_t a, uint64_t by)
{
    const unsigned bits = ptx_bits[i->type];
    by &= 0xFFFFFFFF;
    if (ptx_is_signed(i->type)) {
        return (uint64_t)(ptx_extend(a, bits) >> (by > bits - 1 ? bits - 1 : by));
    }
    return by >= bits ? 0 : (a & ptx_mask(bits)) >> by;
}

static uint64_t funnel(const ptx_insn *i, uint64_t low, uint64_t high, uint64_t by)
{
    const uint64_t both = (high & 0xFFFFFFFF) << 32 | (low & 0xFFFFFFFF);
    by &= 0xFFFFFFFF;
    by = i->mod[K_SHIFT] == M_WRAP ? by & 31 : by > 32 ? 32 : by;
    return i->mod[K_MODE] == M_LEFT ? by == 32 ? low : both << by >> 32 : both >> by;
}

/* Four bytes of eight; bit 3 of a selector spreads the byte's sign. */
static uint64_t permute(uint64_t a, uint64_t b, uint64_t selectors)
{
    const uint64_t both = (b & 0xFFFFFFFF) << 32 | (a & 0xFFFFFFFF);
    uint64_t r = 0;
    for (int k = 0; k < 4; k++) {
        const uint64_t s = selectors >> 4 * k & 15, byte = both >> 8 * (s & 7) & 0xFF;
        r |= (s & 8 ? (byte & 0x80 ? 0xFFu : 0u) : byte) << 8 * k;
    }
    return r;
}

static uint64_t extract(const ptx_insn *i, uint64_t a, uint64_t at, uint64_t n)
{
    const unsigned bits = ptx_bits[i->type];
    at &= 0xFF;
    n &= 0xFF;
    if (n == 0) {
        return 0;
    }
    const bool is_signed = ptx_is_signed(i->type);
    const uint64_t sign_at = at + n - 1 < bits - 1 ? at + n - 1 : bits - 1;
    const bool ones = is_signed && (a >> sign_at & 1);
    uint64_t r = at >= bits ? 0 : (a & ptx_mask(bits)) >> at;
    const uint64_t have = at >= bits ? 0 : bits - at < n ? bits - at : n;
    r &= ptx_mask((unsigned)have);
    return ones ? r | ~ptx_mask((unsigned)have) : r;
}

static uint64_t insert(const ptx_insn *i, uint64_t from, uint64_t into, uint64_t at, uint64_t n)
{
    const unsigned bits = ptx_bits[i->type];
    at &= 0xFF;
    n &= 0xFF;
    if (at >= bits || n == 0) {
        return into;
    }
    const uint64_t mask = ptx_mask((unsigned)(n > bits - at ? bits - at : n)) << at;
    return (into & ~mask) | (from << at & mask);
}

static ALWAYS uint64_t int_extreme(const ptx_insn *i, uint64_t a, uint64_t b)
{
    const unsigned bits = ptx_bits[i->type];
    const bool less = ptx_is_signed(i->type) ? ptx_extend(a, bits) < ptx_extend(b, bits)
                                             : (a & ptx_mask(bits)) < (b & ptx_mask(bits));
    return less == (i->op == P_MIN) ? a : b;
}

static uint64_t count_zeros(uint64_t a, unsigned bits)
{
    unsigned n = 0;
    while (n < bits && !(a >> (bits - 1 - n) & 1)) {
        n++;
    }
    return n;
}

/* The place of the highest bit that is not the sign's, or how far it is from the top; all ones where there is none. */
static uint64_t find_bit(const ptx_insn *i, uint64_t a)
{
    const unsigned bits = ptx_bits[i->type];
    if (ptx_is_signed(i->type) && ptx_extend(a, bits) < 0) {
        a = ~a;
    }
    const uint64_t zeros = count_zeros(a, bits);
    return zeros == bits ? ptx_mask(32) : i->mod[K_BFIND] ? zeros : bits - 1 - zeros;
}

static uint64_t reverse(uint64_t a, unsigned bits)
{
    uint64_t r = 0;
    for (unsigned k = 0; k < bits; k++) {
        r |= (a >> k & 1) << (bits - 1 - k);
    }
    return r;
}

/* Bit k of the result is that bit of the table whose number is made of the three bits k. */
static uint64_t logic3(const uint64_t *v)
{
    uint64_t r = 0;
    for (int at = 0; at < 8; at++) {
        const uint64_t here =
            (at & 4 ? v[0] : ~v[0]) & (at & 2 ? v[1] : ~v[1]) & (at & 1 ? v[2] : ~v[2]);
        r |= v[3] >> at & 1 ? here : 0;
    }
    return r;
}

static ALWAYS uint64_t int_value(const ptx_insn *i, const uint64_t *v)
{
    const unsigned bits = ptx_bits[i->type];
    switch (i->op) {
    case P_ADD:
        return v[0] + v[1];
    case P_SUB:
        return v[0] - v[1];
    case P_MUL:
        return product(i, v[0], v[1]);
    case P_MAD:
        return product(i, v[0], v[1]) + v[2];
    case P_DIV:
    case P_REM:
        return divide(i, v[0], v[1]);
    case P_MIN:
    case P_MAX:
        return int_extreme(i, v[0], v[1]);
    case P_NEG:
        return 0 - v[0];
    case P_ABS:
        return ptx_extend(v[0], bits) < 0 ? 0 - v[0] : v[0];
    default:
        return 0;
    }
}

/* -- conversions ------------------------------------------------------------------------------------------------------ */
static uint64_t float_to_int(const ptx_insn *i, uint64_t v)
{
    const unsigned bits = ptx_bits[i->type];
    double x = float_in(i->from, v);
    x = i->mod[K_FTZ] && i->from == T_F32 ? flush(x) : x;
    if (isnan(x)) {
        return i->from == T_F64 || bits == 64 ? (uint64_t)1 << (bits - 1) : 0;
    }
    x = round_whole(x, i->mod[K_ROUND]);
    if (ptx_is_signed(i->type)) {
        const double end = ldexp(1, (int)bits - 1);
        return x >= end    ? ptx_mask(bits - 1)
               : x <= -end ? (uint64_t)1 << (bits - 1)
                           : (uint64_t)(int64_t)x;
    }
    return x >= ldexp(1, (int)bits) ? ptx_mask(bits) : x <= 0 ? 0 : (uint64_t)x;
}

/* One rounding: a 64-bit number that f64 does not hold is made odd where it is cut off. */
static uint64_t int_to_float(const ptx_insn *i, uint64_t v)
{
    const unsigned bits = ptx_bits[i->from];
    const bool negative = ptx_is_signed(i->from) && ptx_extend(v, bits) < 0;
    uint64_t n = negative ? 0 - (uint64_t)ptx_extend(v, bits) : v & ptx_mask(bits);
    if (i->type == T_F64) {
        return bits_of_f64(negative ? -(double)n : (double)n);
    }
    if (n >> 53) {
        n = (n & ~(uint64_t)0xFFF) | ((n & 0xFFF) ? 0x1000 : 0);
    }
    return float_out(i->type, negative ? -(double)n : (double)n, i->mod[K_ROUND]);
}

static uint64_t float_to_float(const ptx_insn *i, uint64_t v)
{
    double x = float_in(i->from, v);
    const int round = i->mod[K_ROUND];
    x = i->mod[K_FTZ] && i->from == T_F32 ? flush(x) : x;
    if (round >= M_RNI && round <= M_RPI) {
        x = round_whole(x, round);
    }
    if (i->mod[K_SAT]) {
        x = !(x > 0) ? 0 : x > 1 ? 1 : x;
    }
    const uint64_t r = float_out(i->type, x, round);
    return i->mod[K_FTZ] && i->type == T_F32 ? bits_of_f32((float)flush((double)f32_of(r))) : r;
}

static uint64_t int_to_int(const ptx_insn *i, uint64_t v)
{
    const unsigned from = ptx_bits[i->from], to = ptx_bits[i->type];
    const bool negative = ptx_is_signed(i->from) && ptx_extend(v, from) < 0;
    const uint64_t n = ptx_is_signed(i->from) ? (uint64_t)ptx_extend(v, from) : v & ptx_mask(from);
    if (!i->mod[K_SAT]) {
        return n;
    }
    if (!ptx_is_signed(i->type)) {
        return negative ? 0 : n > ptx_mask(to) ? ptx_mask(to) : n;
    }
    if (negative) {
        const int64_t least = -(int64_t)ptx_mask(to - 1) - 1;
        return (int64_t)n < least ? (uint64_t)least : n;
    }
    return n > ptx_mask(to - 1) ? ptx_mask(to - 1) : n;
}

static uint64_t convert(const ptx_insn *i, const uint64_t *v)
{
    if (i->type == T_F16X2 || i->type == T_BF16X2) { /* the first is the upper one */
        const half h = half_of(i->type);
        return to_half((double)f32_of(v[0]), h, i->mod[K_ROUND]) << 16 |
               to_half((double)f32_of(v[1]), h, i->mod[K_ROUND]);
    }
    if (ptx_is_float(i->from)) {
        return ptx_is_float(i->type) ? float_to_float(i, v[0]) : float_to_int(i, v[0]);
    }
    const uint64_t r = ptx_is_float(i->type) ? int_to_float(i, v[0]) : int_to_int(i, v[0]);
    /* a register wider than the type takes it with its sign */
    return ptx_is_signed(i->type) ? (uint64_t)ptx_extend(r, ptx_bits[i->type])
                                  : r & ptx_mask(ptx_bits[i->type]);
}

/* -- comparing --------------------------------------------------------------------------------------------------------- */
static bool compare_floats(int how, double a, double b)
{
    const bool unordered = isnan(a) || isnan(b);
    switch (how) {
    case M_EQ:
        return a == b;
    case M_NE:
        return !unordered && a != b;
    case M_LT:
        return a < b;
    case M_LE:
        return a <= b;
    case M_GT:
        return a > b;
    case M_GE:
        return a >= b;
    case M_EQU:
        return unordered || a == b;
    case M_NEU:
        return unordered || a != b;
    case M_LTU:
        return unordered || a < b;
    case M_LEU:
        return unordered || a <= b;
    case M_GTU:
        return unordered || a > b;
    case M_GEU:
        return unordered || a >= b;
    case M_NUM:
        return !unordered;
    default:
        return unordered;
    }
}

bool ptx_compare(const ptx_insn *i, int type, uint64_t a, uint64_t b)
{
    const int how = i->mod[K_COMPARE];
    if (ptx_is_float(type)) {
        double x = float_in(type, a), y = float_in(type, b);
        const bool flushed = i->mod[K_FTZ] && type == T_F32;
        return compare_floats(how, flushed ? flush(x) : x, flushed ? flush(y) : y);
    }
    const unsigned bits = ptx_bits[type];
    bool less, same = ((a ^ b) & ptx_mask(bits)) == 0;
    if (ptx_is_signed(type)) {
        less = ptx_extend(a, bits) < ptx_extend(b, bits);
    } else {
        less = (a & ptx_mask(bits)) < (b & ptx_mask(bits));
    }
    return how == M_EQ   ? same
           : how == M_NE ? !same
           : how == M_LT ? less
           : how == M_LE ? less || same
           : how == M_GT ? !less && !same
                         : !less;
}

static ALWAYS uint64_t value_of(const ptx_insn *i, const uint64_t *v)
{
    const unsigned bits = ptx_bits[i->type];
    switch (i->op) {
    case P_MOV:
        return v[0];
    case P_CVT:
        return convert(i, v);
    case P_AND:
        return v[0] & v[1];
    case P_OR:
        return v[0] | v[1];
    case P_XOR:
        return v[0] ^ v[1];
    case P_NOT:
        return ~v[0];
    case P_SHL:
        return (v[1] & 0xFFFFFFFF) >= bits ? 0 : v[0] << (v[1] & 63);
    case P_SHR:
        return shift_right(i, v[0], v[1]);
    case P_SHF:
        return funnel(i, v[0], v[1], v[2]);
    case P_PRMT:
        return permute(v[0], v[1], v[2]);
    case P_BFE:
        return extract(i, v[0], v[1], v[2]);
    case P_BFI:
        return insert(i, v[0], v[1], v[2], v[3]);
    case P_POPC:
        return (uint64_t)__builtin_popcountll(v[0] & ptx_mask(bits));
    case P_CLZ:
        return count_zeros(v[0], bits);
    case P_BFIND:
        return find_bit(i, v[0]);
    case P_BREV:
        return reverse(v[0], bits);
    case P_SELP:
        return v[2] & 1 ? v[0] : v[1];
    case P_LOP3:
        return logic3(v);
    default:
        return ptx_is_float(i->type) ? float_value(i, v) : int_value(i, v);
    }
}

static ALWAYS void for_lanes(const ptx_insn *i, uint32_t lanes, const ptx_source from[4],
                             uint64_t *to, uint64_t mask)
{
    const ptx_source a = from[0], b = from[1], c = from[2], d = from[3];
    EACH_LANE(lanes, k)
    {
        const uint64_t v[4] = {a.at[k * a.step] ^ a.flip, b.at[k * b.step] ^ b.flip,
                               c.at[k * c.step] ^ c.flip, d.at[k * d.step] ^ d.flip};
        to[k] = value_of(i, v) & mask;
    }
}

/* What kernels are full of has a loop of its own, in which the operation and the type are constants. */
#define OFTEN(X)                                                                                   \
    X(ADD, F32)                                                                                    \
    X(SUB, F32)                                                                                    \
    X(MUL, F32)                                                                                    \
    X(FMA, F32)                                                                                    \
    X(MIN, F32)                                                                                    \
    X(MAX, F32)                                                                                    \
    X(ADD, S32)                                                                                    \
    X(ADD, S64)                                                                                    \
    X(SUB, S32)                                                                                    \
    X(MUL, S32)                                                                                    \
    X(MUL, U32)                                                                                    \
    X(MAD, S32)                                                                                    \
    X(AND, B32)                                                                                    \
    X(OR, B32)                                                                                     \
    X(XOR, B32)                                                                                    \
    X(SHL, B32)                                                                                    \
    X(SHL, B64)                                                                                    \
    X(SHR, U32)                                                                                    \
    X(SELP, B32)                                                                                   \
    X(SELP, F32)                                                                                   \
    X(LOP3, B32)

void ptx_compute(const ptx_insn *i, uint32_t lanes, const ptx_source from[4], uint64_t *to,
                 uint64_t mask)
{
    ptx_insn own; /* whose fields nobody else has a pointer to */
    memcpy(own.mod, i->mod, sizeof own.mod);
    switch (i->op << 8 | i->type) {
#define X(name, kind)                                                                              \
    case P_##name << 8 | T_##kind:                                                                 \
        own.op = P_##name;                                                                         \
        own.type = T_##kind;                                                                       \
        for_lanes(&own, lanes, from, to, mask);                                                    \
        break;
        OFTEN(X)
#undef X
    default:
        for_lanes(i, lanes, from, to, mask);
        break;
    }
}
