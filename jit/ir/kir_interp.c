/*
 * jit/ir/kir_interp.c -- the reference interpreter of kernel IR: scalar, one primitive at a time, and
 * the canonical sum. Slow on purpose: every tier is compared with it.
 *
 * Primitives have the meaning dict_c.h gives them. Values are bit patterns in a uint64_t with zeros
 * above the width of their type.
 */
#include <string.h>

#include "jit/ir/dict_c.h"
#include "jit/ir/kir.h"

#define GET_BOOL(u) ((bool)((u)&1))
#define GET_U8(u) ((uint8_t)(u))
#define GET_I8(u) ((int8_t)(uint8_t)(u))
#define GET_U16(u) ((uint16_t)(u))
#define GET_I16(u) ((int16_t)(uint16_t)(u))
#define GET_U32(u) ((uint32_t)(u))
#define GET_I32(u) ((int32_t)(uint32_t)(u))
#define GET_U64(u) ((uint64_t)(u))
#define GET_I64(u) ((int64_t)(u))
#define GET_F32(u) wf_flt32((uint32_t)(u))
#define GET_F64(u) wf_flt64(u)
#define PUT_BOOL(x) ((uint64_t)((x) ? 1 : 0))
#define PUT_U8(x) ((uint64_t)(x))
#define PUT_I8(x) ((uint64_t)(uint8_t)(x))
#define PUT_U16(x) ((uint64_t)(x))
#define PUT_I16(x) ((uint64_t)(uint16_t)(x))
#define PUT_U32(x) ((uint64_t)(x))
#define PUT_I32(x) ((uint64_t)(uint32_t)(x))
#define PUT_U64(x) (x)
#define PUT_I64(x) ((uint64_t)(x))
#define PUT_F32(x) ((uint64_t)wf_bits32(x))
#define PUT_F64(x) wf_bits64(x)

#define FLOATS(DO, ...) DO(F32, __VA_ARGS__) DO(F64, __VA_ARGS__)
#define WORDS(DO, ...) DO(U32, __VA_ARGS__) DO(U64, __VA_ARGS__)
#define INTS(DO, ...)                                                                              \
    DO(U8, __VA_ARGS__)                                                                            \
    DO(I8, __VA_ARGS__)                                                                            \
    DO(I16, __VA_ARGS__)                                                                           \
    DO(I32, __VA_ARGS__)                                                                           \
    DO(I64, __VA_ARGS__)                                                                           \
    WORDS(DO, __VA_ARGS__)

#define DO_1(T, OP)                                                                                \
    case WF_KT_##T:                                                                                \
        return PUT_##T(OP(GET_##T(a)));
#define DO_2(T, OP)                                                                                \
    case WF_KT_##T:                                                                                \
        return PUT_##T(OP(GET_##T(a), GET_##T(b)));
#define DO_3(T, OP)                                                                                \
    case WF_KT_##T:                                                                                \
        return PUT_##T(OP(GET_##T(a), GET_##T(b), GET_##T(c)));
#define DO_CMP(T, OP)                                                                              \
    case WF_KT_##T:                                                                                \
        return PUT_BOOL(OP(GET_##T(a), GET_##T(b)));
#define DO_K(T, OP)                                                                                \
    case WF_KT_##T:                                                                                \
        return PUT_##T(OP(GET_##T(a), imm));

/* clang-format off */
#define DEFINE(OP, cases)                                                                          \
    static uint64_t do_##OP(wf_kty type, uint64_t a, uint64_t b, uint64_t c, unsigned imm)         \
    {                                                                                              \
        (void)a; (void)b; (void)c; (void)imm;                                                      \
        switch ((int)type) { cases }                                                               \
        return 0;                                                                                  \
    }
#define DEFINE_AR(OP) DEFINE(OP, FLOATS(DO_2, OP) INTS(DO_2, OP))
#define DEFINE_CMP(OP) DEFINE(OP, FLOATS(DO_CMP, OP) INTS(DO_CMP, OP) DO_CMP(U16, OP) DO_CMP(BOOL, OP))
#define DEFINE_F1(OP) DEFINE(OP, FLOATS(DO_1, OP))
#define DEFINE_I2(OP) DEFINE(OP, INTS(DO_2, OP) DO_2(U16, OP))
#define DEFINE_S2(OP) DEFINE(OP, INTS(DO_2, OP))
#define DEFINE_K(OP) DEFINE(OP, WORDS(DO_K, OP))
DEFINE_AR(ADD) DEFINE_AR(SUB) DEFINE_AR(MUL) DEFINE_AR(DIV) DEFINE_AR(MIN) DEFINE_AR(MAX)
DEFINE(NEG, FLOATS(DO_1, NEG) INTS(DO_1, NEG))
DEFINE(FMA, FLOATS(DO_3, FMA))
DEFINE_F1(SQRT) DEFINE_F1(RINT) DEFINE_F1(FLOOR) DEFINE_F1(CEIL) DEFINE_F1(TRUNC) DEFINE_F1(FABS)
DEFINE(COPYSIGN, FLOATS(DO_2, COPYSIGN))
DEFINE_CMP(LT) DEFINE_CMP(LE) DEFINE_CMP(GT) DEFINE_CMP(GE) DEFINE_CMP(EQ) DEFINE_CMP(NE)
DEFINE(BAND, DO_2(BOOL, BAND)) DEFINE(BOR, DO_2(BOOL, BOR)) DEFINE(BXOR, DO_2(BOOL, BXOR))
DEFINE(BNOT, DO_1(BOOL, BNOT))
DEFINE_I2(IAND) DEFINE_I2(IOR) DEFINE_I2(IXOR)
DEFINE(INOT, INTS(DO_1, INOT) DO_1(U16, INOT))
DEFINE_S2(SHL) DEFINE_S2(SHR)
DEFINE_K(SHLK) DEFINE_K(SHRK) DEFINE_K(SARK)
#define DEFINE_CONV(OP, from, to)                                                                  \
    static uint64_t do_##OP(wf_kty type, uint64_t a, uint64_t b, uint64_t c, unsigned imm)         \
    {                                                                                              \
        (void)type; (void)b; (void)c; (void)imm;                                                   \
        return PUT_##to(OP(GET_##from(a)));                                                        \
    }
DEFINE_CONV(BITS32, F32, U32) DEFINE_CONV(FLT32, U32, F32)
DEFINE_CONV(BITS64, F64, U64) DEFINE_CONV(FLT64, U64, F64)
DEFINE_CONV(F64_OF_F32, F32, F64) DEFINE_CONV(F32_OF_F64, F64, F32)
DEFINE_CONV(U64_OF_U32, U32, U64) DEFINE_CONV(U32_OF_U64, U64, U32)
DEFINE_CONV(F32_OF_S32, U32, F32) DEFINE_CONV(F64_OF_S32, U32, F64) DEFINE_CONV(F64_OF_S64, U64, F64)
#define IN_RANGE(x, limit) ((x) > -(limit) && (x) < (limit) ? (x) : 0)
#define S32_IN_RANGE(x) S32_OF_F32(IN_RANGE(x, 0x1p31f))
#define S64_IN_RANGE(x) S64_OF_F64(IN_RANGE(x, 0x1p63))
DEFINE(S32_OF_F32, case WF_KT_U32: return PUT_U32(S32_IN_RANGE(GET_F32(a)));)
DEFINE(S64_OF_F64, case WF_KT_U64: return PUT_U64(S64_IN_RANGE(GET_F64(a)));)
DEFINE(MULHI64, case WF_KT_U64: return MULHI64(a, b);)
DEFINE(MULW32, case WF_KT_U64: return MULW32(GET_U32(a), GET_U32(b));)
static uint64_t do_SELECT(wf_kty type, uint64_t a, uint64_t b, uint64_t c, unsigned imm)
{
    (void)type; (void)imm;
    return a & 1 ? b : c;
}
/* clang-format on */

/* -- casts ----------------------------------------------------------------------------------------- */
/* An integer of `type` as 128 bits of sign: every integer type fits. */
static __int128 integer(wf_kty type, uint64_t a)
{
    const unsigned bits = wf_kty_bits(type);
    if (wf_kty_is_signed(type))
        return (int64_t)(a << (64 - bits)) >> (64 - bits);
    return a;
}

static uint64_t saturate(wf_kty to, double x)
{
    const unsigned bits = wf_kty_bits(to);
    const bool sign = wf_kty_is_signed(to);
    const double high = (sign ? 0.5 : 1.0) * (double)(UINT64_C(1) << (bits / 2)) *
                        (double)(UINT64_C(1) << (bits - bits / 2)); /* 2^(bits - sign) */
    const uint64_t mask = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    if (x != x)
        return 0;
    if (x >= high)
        return sign ? mask >> 1 : mask;
    if (sign)
        return x <= -high ? (mask >> 1) + 1 : (uint64_t)(int64_t)x & mask;
    return x <= 0 ? 0 : (uint64_t)x;
}

static uint64_t cast(wf_kty from, wf_kty to, uint64_t a)
{
    const bool is_float = wf_kty_is_float(from);
    const double x = from == WF_KT_F32 ? (double)GET_F32(a) : from == WF_KT_F64 ? GET_F64(a) : 0;
    const __int128 i = is_float ? 0 : integer(from, a);
    if (to == WF_KT_BOOL)
        return is_float ? x != 0 : i != 0;
    if (to == WF_KT_F32)
        return PUT_F32(is_float ? (float)x : (float)i);
    if (to == WF_KT_F64)
        return PUT_F64(is_float ? x : (double)i);
    if (is_float)
        return saturate(to, x);
    const unsigned bits = wf_kty_bits(to);
    return (uint64_t)i & (bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1);
}

static uint64_t lookup(const wf_kir_table *t, uint64_t index)
{
    if (index >= t->n)
        return 0; /* a body that is not selected */
    return t->type == WF_KT_U32 ? ((const uint32_t *)t->data)[index]
                                : ((const uint64_t *)t->data)[index];
}

/* -- programs -------------------------------------------------------------------------------------- */
uint64_t wf_kir_eval(const wf_kir *k, const wf_kinstr *i, const uint64_t *params, uint64_t a,
                     uint64_t b, uint64_t c)
{
    const wf_kprim prim = (wf_kprim)i->prim;
    const wf_kty from = i->nsrc ? (wf_kty)k->ins[i->src[0]].type : WF_KT_COUNT;
    /* What a comparison does depends on its operands, anything else on its result. */
    const bool compares = prim >= WF_KP_LT && prim <= WF_KP_NE;
    const wf_kty type = compares ? from : (wf_kty)i->type;
    const unsigned imm = (unsigned)i->imm;
    switch (prim) {
    case WF_KP_PARAM:
        return params[i->imm];
    case WF_KP_CONST:
        return i->imm;
    case WF_KP_LOOKUP:
        return lookup(k->table[i->imm], a);
    case WF_KP_CAST:
        return cast(from, (wf_kty)i->type, a);
#define RUN(OP)                                                                                    \
    case WF_KP_##OP:                                                                               \
        return do_##OP(type, a, b, c, imm);
        RUN(ADD)
        RUN(SUB)
        RUN(MUL)
        RUN(DIV)
        RUN(MIN)
        RUN(MAX)
        RUN(NEG)
        RUN(FMA)
        RUN(SQRT)
        RUN(RINT)
        RUN(FLOOR)
        RUN(CEIL)
        RUN(TRUNC)
        RUN(FABS)
        RUN(COPYSIGN)
        RUN(LT)
        RUN(LE)
        RUN(GT)
        RUN(GE)
        RUN(EQ)
        RUN(NE)
        RUN(BAND)
        RUN(BOR)
        RUN(BXOR)
        RUN(BNOT)
        RUN(SELECT)
        RUN(IAND)
        RUN(IOR)
        RUN(IXOR)
        RUN(INOT)
        RUN(SHL)
        RUN(SHR)
        RUN(SHLK)
        RUN(SHRK)
        RUN(SARK)
        RUN(BITS32)
        RUN(FLT32)
        RUN(BITS64)
        RUN(FLT64)
        RUN(MULHI64)
        RUN(MULW32)
        RUN(F64_OF_F32)
        RUN(F32_OF_F64)
        RUN(U64_OF_U32)
        RUN(U32_OF_U64)
        RUN(F32_OF_S32)
        RUN(F64_OF_S32)
        RUN(F64_OF_S64)
        RUN(S32_OF_F32)
        RUN(S64_OF_F64)
#undef RUN
    case WF_KP_COUNT:
        break;
    }
    return 0;
}

void wf_kir_run(const wf_kir *k, uint64_t *scratch, const uint64_t *params, uint64_t *out)
{
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        const uint64_t a = i->nsrc > 0 ? scratch[i->src[0]] : 0;
        const uint64_t b = i->nsrc > 1 ? scratch[i->src[1]] : 0;
        const uint64_t c = i->nsrc > 2 ? scratch[i->src[2]] : 0;
        scratch[n] = wf_kir_eval(k, i, params, a, b, c);
    }
    for (uint32_t o = 0; o < k->nout; o++)
        out[o] = scratch[k->out[o]];
}

/* -- memory ---------------------------------------------------------------------------------------- */
static size_t size_of(wf_kty type)
{
    return (wf_kty_bits(type) + 7) / 8;
}

uint64_t wf_kir_peek(const void *p, wf_kty type, int64_t i)
{
    uint64_t u = 0;
    memcpy(&u, (const char *)p + i * (int64_t)size_of(type), size_of(type)); /* little-endian */
    return u;
}

void wf_kir_poke(void *p, wf_kty type, int64_t i, uint64_t bits)
{
    memcpy((char *)p + i * (int64_t)size_of(type), &bits, size_of(type));
}

/* -- the canonical sum: docs/reductions.md ------------------------------------------------------------ */
enum { LANES = 64, BLOCK = 4096 };

typedef struct source {
    wf_kty type;
    uint64_t (*get)(void *ctx, int64_t i);
    void *ctx;
    int64_t n;
} source;

/* Element i of a level: a sum of up to 4096 elements of the level below. */
static uint64_t element(const source *s, int level, int64_t i)
{
    if (level == 0)
        return s->get(s->ctx, i);
    int64_t below = s->n; /* elements of the level below */
    for (int l = 1; l < level; l++)
        below = (below + BLOCK - 1) / BLOCK;
    const int64_t first = i * BLOCK;
    const int64_t n = below - first < BLOCK ? below - first : BLOCK;
    uint64_t lane[LANES];
    for (int l = 0; l < LANES; l++) {
        lane[l] = s->type == WF_KT_F32 ? PUT_F32(-0.0f) : s->type == WF_KT_F64 ? PUT_F64(-0.0) : 0;
        for (int64_t e = l; e < n; e += LANES)
            lane[l] = do_ADD(s->type, lane[l], element(s, level - 1, first + e), 0, 0);
    }
    for (int h = LANES / 2; h >= 1; h /= 2)
        for (int l = 0; l < h; l++)
            lane[l] = do_ADD(s->type, lane[l], lane[l + h], 0, 0);
    return lane[0];
}

uint64_t wf_kir_sum(wf_kty type, int64_t n, uint64_t (*get)(void *ctx, int64_t i), void *ctx)
{
    const source s = {.type = type, .get = get, .ctx = ctx, .n = n};
    int levels = 0;
    if (n <= 0)
        return 0;
    do {
        levels++;
        n = (n + BLOCK - 1) / BLOCK;
    } while (n > 1);
    return element(&s, levels, 0);
}
