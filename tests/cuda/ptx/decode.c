/*
 * tests/cuda/ptx/decode.c -- opcodes: "ld.global.v4.f32" to the row of ops.def, modifiers by their kind, types.
 *
 * Whatever the rows do not list, and whatever combination the code would not carry out as the manual says, is refused here.
 */
#include <stdio.h>

#include "tests/cuda/ptx/machine.h"

const uint8_t ptx_bits[N_TYPES] = {
#define X(name, text, bits) [T_##name] = bits,
    PTX_TYPES(X)
#undef X
};

static const char *const type_names[N_TYPES] = {
#define X(name, text, bits) [T_##name] = text,
    PTX_TYPES(X)
#undef X
};

static const struct {
    const char *name;
    uint8_t kind;
} modifiers[N_MODIFIERS] = {
#define X(kind, name, text) [M_##name] = {text, K_##kind},
    PTX_MODIFIERS(X)
#undef X
};

#define G(type) (1u << T_##type)
enum {
    G_PRED = G(PRED),
    G_B8 = G(B8),
    G_B16 = G(B16),
    G_B32 = G(B32),
    G_B64 = G(B64),
    G_I8 = G(U8) | G(S8),
    G_I16 = G(U16) | G(S16),
    G_I32 = G(U32) | G(S32),
    G_I64 = G(U64) | G(S64),
    G_HALF = G(F16) | G(BF16),
    G_PAIR = G(F16X2) | G(BF16X2),
    G_F32 = G(F32),
    G_F64 = G(F64)
};

static const struct {
    const char *name;
    uint8_t results, sources;
    uint32_t kinds, types;
} rows[N_OPS] = {
#define OP(name, text, results, sources, kinds, types)                                             \
    [P_##name] = {text, results, sources, kinds, types},
#include "tests/cuda/ptx/ops.def"
#undef OP
};

const char *ptx_op_name(int op)
{
    return rows[op].name;
}

int ptx_results(int op)
{
    return rows[op].results;
}

static int find_op(const char *s, size_t n)
{
    for (int k = 0; k < N_OPS; k++) {
        if (strlen(rows[k].name) == n && memcmp(rows[k].name, s, n) == 0) {
            return k;
        }
    }
    return -1;
}

static int find_type(const char *s, size_t n)
{
    for (int k = 1; k < N_TYPES; k++) {
        if (strlen(type_names[k]) == n && memcmp(type_names[k], s, n) == 0) {
            return k;
        }
    }
    return NO_TYPE;
}

static int find_modifier(const char *s, size_t n)
{
    for (int k = 1; k < N_MODIFIERS; k++) {
        if (strlen(modifiers[k].name) == n && memcmp(modifiers[k].name, s, n) == 0) {
            return k;
        }
    }
    return M_NONE;
}

static bool is_hint(const char *s, size_t n)
{
    return n > 4 && (memcmp(s, "L1::", 4) == 0 || memcmp(s, "L2::", 4) == 0);
}

/* What is wrong with a piece of an opcode, taken into i; NULL: nothing. */
static const char *take_piece(ptx_insn *i, const char *s, size_t n)
{
    const int type = find_type(s, n), modifier = find_modifier(s, n);
    if (type) {
        if (i->from || !(rows[i->op].types >> type & 1) || (i->type && i->op != P_CVT)) {
            return "a type that is not known here";
        }
        *(i->type ? &i->from : &i->type) = (uint8_t)type;
        return NULL;
    }
    if ((i->op == P_LD || i->op == P_ST) && is_hint(s, n)) {
        return NULL;
    }
    if (!modifier || !(rows[i->op].kinds >> modifiers[modifier].kind & 1)) {
        return "a modifier that is not known here";
    }
    uint8_t *slot = &i->mod[modifiers[modifier].kind];
    if (*slot) {
        return "two modifiers of one kind";
    }
    *slot = (uint8_t)modifier;
    return NULL;
}

/* -- combinations ---------------------------------------------------------------------------------------------- */
static bool mode_is(const ptx_insn *i, int a, int b, int c, int d)
{
    const int mode = i->mod[K_MODE];
    return mode && (mode == a || mode == b || mode == c || mode == d);
}

static const char *check_arithmetic(const ptx_insn *i)
{
    const int round = i->mod[K_ROUND];
    const bool floats = ptx_is_float(i->type);
    if (round && (round != M_RN || !floats)) {
        return "a rounding that is not known here";
    }
    if (i->mod[K_FTZ] && i->type != T_F32) {
        return ".ftz of another type than f32";
    }
    if (!floats && (i->mod[K_WITHNAN] ||
                    ((i->op == P_MUL || i->op == P_MAD) && !mode_is(i, M_LO, M_HI, M_WIDE, 0)))) {
        return "an integer's instruction without .lo, .hi or .wide, or with .NaN";
    }
    if (i->mod[K_MODE] == M_WIDE && ptx_bits[i->type] > 32) {
        return ".wide of 64 bits";
    }
    if (floats && i->mod[K_MODE]) {
        return "a mode of integers";
    }
    if (floats && !round && !i->mod[K_APPROX] &&
        (i->op == P_FMA || i->op == P_DIV || i->op == P_SQRT || i->op == P_RCP)) {
        return "no rounding";
    }
    if (i->mod[K_APPROX] && (i->type != T_F32 || i->mod[K_APPROX] != M_APPROX || round)) {
        return "an approximation that is not known";
    }
    if (!i->mod[K_APPROX] && (i->op == P_EX2 || i->op == P_LG2)) {
        return "no .approx";
    }
    return NULL;
}

static const char *check_conversion(const ptx_insn *i)
{
    const int round = i->mod[K_ROUND];
    const bool whole = round >= M_RNI && round <= M_RPI, to = ptx_is_float(i->type),
               from = ptx_is_float(i->from), pair = i->type == T_F16X2 || i->type == T_BF16X2;
    if (!i->from || i->from == T_F16X2 || i->from == T_BF16X2 || (pair && i->from != T_F32)) {
        return "a conversion that is not known";
    }
    if ((from && !to && !whole) || (!from && to && (whole || !round)) || (!from && !to && round)) {
        return "not the rounding of such a conversion";
    }
    if (from && to) {
        const bool narrows = ptx_bits[i->from] > ptx_bits[i->type] || pair ||
                             (i->from != i->type && ptx_bits[i->from] == ptx_bits[i->type]);
        if (narrows ? !round || whole : i->from == i->type ? round && !whole : round != 0) {
            return "not the rounding of such a conversion";
        }
    }
    if (i->mod[K_FTZ] && i->type != T_F32 && i->from != T_F32) {
        return ".ftz of other types than f32";
    }
    if (i->type == T_F64 && round > M_RN && !whole) {
        return "a directed rounding to f64";
    }
    if (to && (i->type < T_F32) && (round == M_RM || round == M_RP)) {
        return "a rounding of halves that is not known";
    }
    return i->mod[K_SAT] && pair ? ".sat of a pair" : NULL;
}

static const char *check_others(const ptx_insn *i)
{
    switch (i->op) {
    case P_SETP:
        if (!i->mod[K_COMPARE] || (!ptx_is_float(i->type) && i->mod[K_COMPARE] > M_GE)) {
            return "not a comparison of such a type";
        }
        return i->type == T_F16X2 || i->type == T_BF16X2 ? "pairs are not compared" : NULL;
    case P_SHF:
        return mode_is(i, M_LEFT, M_RIGHT, 0, 0) && i->mod[K_SHIFT] ? NULL : "not a funnel shift";
    case P_SHFL:
        return i->mod[K_SYNC] && mode_is(i, M_UP, M_DOWN, M_BFLY, M_IDX) ? NULL : "not a shuffle";
    case P_VOTE:
        return i->mod[K_SYNC] && mode_is(i, M_ALL, M_ANY, M_BALLOT, 0) &&
                       (i->mod[K_MODE] == M_BALLOT) == (i->type == T_B32)
                   ? NULL
                   : "not a vote";
    case P_BAR:
        return i->mod[K_SYNC] && (!i->mod[K_MODE] || i->mod[K_MODE] == M_WARP) ? NULL
                                                                               : "not a barrier";
    case P_BARRIER:
        return i->mod[K_SYNC] ? NULL : "not a barrier";
    case P_ATOM:
        return mode_is(i, M_ADD, M_MIN, M_MAX, M_CAS) || i->mod[K_MODE] == M_EXCH
                   ? NULL
                   : "an atomic operation that is not known";
    case P_DEPENDENTS:
        return mode_is(i, M_WAIT, M_LAUNCH, 0, 0) ? NULL : "not known";
    default:
        return NULL;
    }
}

const char *ptx_decode(const char *opcode, ptx_insn *i, char *text, size_t n)
{
    size_t length = strcspn(opcode, ".");
    const int op = find_op(opcode, length);
    const char *wrong = NULL;
    if (op < 0) {
        return "an instruction that is not known";
    }
    i->op = (uint8_t)op;
    for (const char *s = opcode + length; *s && !wrong; s += length) {
        s++;
        length = strcspn(s, ".");
        if (length > 8 && memcmp(s, "shared::", 8) == 0) { /* shared::cta is shared */
            wrong = length == 11 ? take_piece(i, s, 6) : "a space that is not known";
        } else {
            wrong = take_piece(i, s, length);
        }
        if (wrong) {
            snprintf(text, n, " .%.*s", (int)length, s);
        }
    }
    if (!wrong && rows[op].types && !i->type) {
        wrong = "no type";
    }
    if (!wrong) {
        wrong = op == P_CVT                  ? check_conversion(i)
                : op >= P_ADD && op <= P_LG2 ? check_arithmetic(i)
                                             : check_others(i);
    }
    return wrong;
}

/* Operands of a kind's number, all of them registers or values but for the addresses that there are. */
const char *ptx_check(const ptx_insn *i)
{
    int n = rows[i->op].results + rows[i->op].sources, address = -1;
    switch (i->op) {
    case P_MOV:
    case P_ST:
    case P_LD:
        n += i->nvector ? i->nvector - 1 : 0;
        address = i->op == P_MOV ? -1 : 0;
        break;
    case P_CVT: /* a pair is made of two */
        n += i->type == T_F16X2 || i->type == T_BF16X2;
        break;
    case P_SETP:
        n += 1 + (i->mod[K_LOGIC] != 0);
        break;
    case P_SHFL:
        n++;
        break;
    case P_ATOM:
        n += i->mod[K_MODE] == M_CAS;
        address = 1;
        break;
    default:
        break;
    }
    if (i->n != n) {
        return "not so many operands";
    }
    for (int k = 0; k < n; k++) {
        const ptx_operand *o = &i->o[k];
        if ((o->place == ADDRESS) != (k == address)) {
            return "an operand of another kind";
        }
        const bool result = i->op == P_LD || i->splits           ? k >= 1
                            : i->op == P_SETP || i->op == P_SHFL ? k < 2
                                                                 : k < rows[i->op].results;
        if (o->place == NOTHING && !result) {
            return "nothing where a value has to stand";
        }
        if (o->not &&!(i->op == P_SETP && k == 4)) {
            return "a negated operand";
        }
    }
    return NULL;
}
