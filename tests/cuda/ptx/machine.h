/*
 * tests/cuda/ptx/machine.h -- what the files of the interpreter share: types, modifiers, decoded instructions.
 *
 * A register is a slot of 64 bits that holds a value of its declared width, the bits above zero. Shared, local and parameter
 * memory have windows of generic addresses which no host has (bits 56 to 63), so that an address that went through cvta says
 * where it points.
 */
#ifndef TESTS_CUDA_PTX_MACHINE_H
#define TESTS_CUDA_PTX_MACHINE_H

#include <string.h>

#include "tests/cuda/ptx/ptx.h"

/* X(name, text, bits): signed ones and floats by their place. */
#define PTX_TYPES(X)                                                                               \
    X(PRED, "pred", 1)                                                                             \
    X(B8, "b8", 8)                                                                                 \
    X(B16, "b16", 16)                                                                              \
    X(B32, "b32", 32)                                                                              \
    X(B64, "b64", 64)                                                                              \
    X(U8, "u8", 8)                                                                                 \
    X(U16, "u16", 16)                                                                              \
    X(U32, "u32", 32)                                                                              \
    X(U64, "u64", 64)                                                                              \
    X(S8, "s8", 8)                                                                                 \
    X(S16, "s16", 16)                                                                              \
    X(S32, "s32", 32)                                                                              \
    X(S64, "s64", 64)                                                                              \
    X(F16, "f16", 16)                                                                              \
    X(F16X2, "f16x2", 32)                                                                          \
    X(BF16, "bf16", 16)                                                                            \
    X(BF16X2, "bf16x2", 32)                                                                        \
    X(F32, "f32", 32)                                                                              \
    X(F64, "f64", 64)
enum ptx_type {
    NO_TYPE,
#define X(name, text, bits) T_##name,
    PTX_TYPES(X)
#undef X
        N_TYPES
};
extern const uint8_t ptx_bits[N_TYPES];

/* Modifiers stand in a slot of the instruction by their kind: X(kind, name, text). */
#define PTX_MODIFIERS(X)                                                                           \
    X(ROUND, RN, "rn")                                                                             \
    X(ROUND, RZ, "rz")                                                                             \
    X(ROUND, RM, "rm")                                                                             \
    X(ROUND, RP, "rp")                                                                             \
    X(ROUND, RNI, "rni")                                                                           \
    X(ROUND, RZI, "rzi")                                                                           \
    X(ROUND, RMI, "rmi")                                                                           \
    X(ROUND, RPI, "rpi")                                                                           \
    X(COMPARE, EQ, "eq")                                                                           \
    X(COMPARE, NE, "ne")                                                                           \
    X(COMPARE, LT, "lt")                                                                           \
    X(COMPARE, LE, "le")                                                                           \
    X(COMPARE, GT, "gt")                                                                           \
    X(COMPARE, GE, "ge")                                                                           \
    X(COMPARE, EQU, "equ")                                                                         \
    X(COMPARE, NEU, "neu")                                                                         \
    X(COMPARE, LTU, "ltu")                                                                         \
    X(COMPARE, LEU, "leu")                                                                         \
    X(COMPARE, GTU, "gtu")                                                                         \
    X(COMPARE, GEU, "geu")                                                                         \
    X(COMPARE, NUM, "num")                                                                         \
    X(COMPARE, NAN, "nan")                                                                         \
    X(LOGIC, AND, "and")                                                                           \
    X(LOGIC, OR, "or")                                                                             \
    X(LOGIC, XOR, "xor")                                                                           \
    X(SPACE, GLOBAL, "global")                                                                     \
    X(SPACE, SHARED, "shared")                                                                     \
    X(SPACE, LOCAL, "local")                                                                       \
    X(SPACE, PARAM, "param")                                                                       \
    X(SPACE, CONST, "const")                                                                       \
    X(VECTOR, V2, "v2")                                                                            \
    X(VECTOR, V4, "v4")                                                                            \
    X(MODE, LO, "lo")                                                                              \
    X(MODE, HI, "hi")                                                                              \
    X(MODE, WIDE, "wide")                                                                          \
    X(MODE, LEFT, "l")                                                                             \
    X(MODE, RIGHT, "r")                                                                            \
    X(MODE, UP, "up")                                                                              \
    X(MODE, DOWN, "down")                                                                          \
    X(MODE, BFLY, "bfly")                                                                          \
    X(MODE, IDX, "idx")                                                                            \
    X(MODE, ALL, "all")                                                                            \
    X(MODE, ANY, "any")                                                                            \
    X(MODE, BALLOT, "ballot")                                                                      \
    X(MODE, ADD, "add")                                                                            \
    X(MODE, MIN, "min")                                                                            \
    X(MODE, MAX, "max")                                                                            \
    X(MODE, EXCH, "exch")                                                                          \
    X(MODE, CAS, "cas")                                                                            \
    X(MODE, WAIT, "wait")                                                                          \
    X(MODE, LAUNCH, "launch_dependents")                                                           \
    X(MODE, WARP, "warp")                                                                          \
    X(SHIFT, WRAP, "wrap")                                                                         \
    X(SHIFT, CLAMP, "clamp")                                                                       \
    X(BFIND, SHIFTAMT, "shiftamt")                                                                 \
    X(SAT, SAT, "sat")                                                                             \
    X(FTZ, FTZ, "ftz")                                                                             \
    X(APPROX, APPROX, "approx")                                                                    \
    X(APPROX, FULL, "full")                                                                        \
    X(WITHNAN, WITHNAN, "NaN")                                                                     \
    X(TO, TO, "to")                                                                                \
    X(SYNC, SYNC, "sync")                                                                          \
    X(UNIFORM, UNIFORM, "uni")                                                                     \
    X(CACHE, NC, "nc")                                                                             \
    X(CACHE, VOLATILE, "volatile")                                                                 \
    X(CACHE, RELAXED, "relaxed")                                                                   \
    X(SCOPE, CTA, "cta")                                                                           \
    X(SCOPE, GPU, "gpu")                                                                           \
    X(SCOPE, GL, "gl")                                                                             \
    X(SCOPE, SYS, "sys")
enum ptx_modifier {
    M_NONE,
#define X(kind, name, text) M_##name,
    PTX_MODIFIERS(X)
#undef X
        N_MODIFIERS
};
enum ptx_kind {
    K_ROUND,
    K_COMPARE,
    K_LOGIC,
    K_SPACE,
    K_VECTOR,
    K_MODE,
    K_SHIFT,
    K_BFIND,
    K_SAT,
    K_FTZ,
    K_APPROX,
    K_WITHNAN,
    K_TO,
    K_SYNC,
    K_UNIFORM,
    K_CACHE,
    K_SCOPE,
    N_KINDS_OF_MODIFIERS
};

/* Instructions, by table; P_name. */
enum ptx_op {
#define OP(name, text, results, sources, kinds, types) P_##name,
#include "tests/cuda/ptx/ops.def"
#undef OP
    N_OPS
};

enum { MOST_OPERANDS = 10, LANES = 32, MOST_THREADS = 1024 };
enum ptx_place { NOTHING, REGISTER, VALUE, ADDRESS };
typedef struct ptx_operand {
    uint8_t place; /* ADDRESS: register (none: reg is -1) and value */
    bool not ;     /* a predicate the other way round */
    bool dynamic;  /* VALUE or ADDRESS within the memory asked for at launch */
    uint8_t bits;  /* of the register */
    int32_t reg;
    uint64_t value; /* of a VALUE; what is added to an address */
} ptx_operand;

typedef struct ptx_insn {
    uint8_t op, type, from; /* types in the order they stand */
    uint8_t mod[N_KINDS_OF_MODIFIERS];
    uint8_t n,
        nvector; /* operands; elements of a vector, which stand at the end of them, or (of mov) where they are */
    bool splits; /* mov of one register to several */
    bool guarded, guard_not;
    int32_t guard, target;
    int line;
    ptx_operand o[MOST_OPERANDS];
} ptx_insn;

typedef struct ptx_param {
    char name[128];
    unsigned at, size;
} ptx_param;
typedef struct ptx_kernel {
    char name[240];
    int nparam, ninsn, nreg;
    unsigned threads, shared, local, param_bytes;
    bool waits;         /* has a griddepcontrol.wait */
    int64_t dynamic_at; /* of the memory asked for at launch; -1: it is not used */
    ptx_param *param;
    ptx_insn *insn;
} ptx_kernel;
struct ptx_module {
    char *text;
    int nkernel;
    ptx_kernel *kernel;
    unsigned char *
        data; /* .const and .global variables: fixed once loaded, as decoded addresses point into it */
    size_t ndata;
};

/* Registers that every thread begins with, by number. */
enum {
    R_TID = 0,    /* x y z */
    R_NTID = 3,   /* x y z */
    R_CTAID = 6,  /* x y z */
    R_NCTAID = 9, /* x y z */
    R_LANE = 12,
    R_FIRST = 13
};

#define WINDOW(n) ((uint64_t)(n) << 56)
#define WINDOW_SHARED WINDOW(1)
#define WINDOW_LOCAL WINDOW(2)
#define WINDOW_PARAM WINDOW(3)

/* decode.c: an instruction from its opcode; operands follow. NULL, or what is wrong. */
const char *ptx_decode(const char *opcode, ptx_insn *i, char *text, size_t n);
/* Are the operands as many as, and of the kinds that, the instruction takes? */
const char *ptx_check(const ptx_insn *i);
const char *ptx_op_name(int op);
/* How many results an instruction has at least, and how many sources (vectors count once). */
int ptx_results(int op);

/* alu.c: an instruction that touches registers only, for some lanes of a warp. A source of lane l is at[l * step] ^ flip. */
typedef struct ptx_source {
    const uint64_t *at;
    unsigned step;
    uint64_t flip;
} ptx_source;
void ptx_compute(const ptx_insn *i, uint32_t lanes, const ptx_source from[4], uint64_t *to,
                 uint64_t mask);
bool ptx_compare(const ptx_insn *i, int type, uint64_t a, uint64_t b);

/* Each of `lanes`, lowest first, as k. */
#define EACH_LANE(lanes, k)                                                                        \
    for (uint32_t rest_ = (lanes), k; rest_ && (k = (uint32_t)__builtin_ctz(rest_), true);         \
         rest_ &= rest_ - 1)

static inline uint64_t ptx_mask(unsigned bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}
static inline int64_t ptx_extend(uint64_t v, unsigned bits)
{
    return bits >= 64 ? (int64_t)v : (int64_t)(v << (64 - bits)) >> (64 - bits);
}
static inline bool ptx_is_signed(int type)
{
    return type >= T_S8 && type <= T_S64;
}
static inline bool ptx_is_float(int type)
{
    return type >= T_F16;
}

#endif
