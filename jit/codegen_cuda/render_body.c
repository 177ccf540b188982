/*
 * jit/codegen_cuda/render_body.c -- kernel IR as statements in the common subset of CUDA C++ and C.
 *
 * No header is included by the text; the only PTX in it is that of f32 maxima and minima, for architectures that have them with these
 * very rules (PTX ISA, max.NaN). Constants are bit patterns. A product and a sum are never
 * contracted: the text is compiled with --fmad=false (host: -ffp-contract=off; true for fast math), and fma stands where the
 * FMA primitive does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cuda/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

const char *wf_cu_type(wf_kty type)
{
    switch (type) {
    case WF_KT_BOOL:
    case WF_KT_U8:
        return "unsigned char";
    case WF_KT_I8:
        return "signed char";
    case WF_KT_U16:
        return "unsigned short";
    case WF_KT_I16:
        return "short";
    case WF_KT_U32:
        return "unsigned int";
    case WF_KT_I32:
        return "int";
    case WF_KT_U64:
        return "unsigned long long";
    case WF_KT_I64:
        return "long long";
    case WF_KT_F32:
        return "float";
    case WF_KT_F64:
        return "double";
    case WF_KT_COUNT:
        break;
    }
    return "void";
}

/* The unsigned type in which wrapping arithmetic of an integer type is done. */
static const char *wrap_type(wf_kty type)
{
    return wf_kty_bits(type) == 64 ? "unsigned long long" : "unsigned int";
}

static void constant(wf_text *t, wf_kty type, uint64_t bits)
{
    if (type == WF_KT_F32)
        P("wf_f32(0x%08" PRIX64 "u)", bits);
    else if (type == WF_KT_F64)
        P("wf_f64(0x%016" PRIX64 "ull)", bits);
    else if (type == WF_KT_BOOL)
        P("%d", bits ? 1 : 0);
    else
        P("(%s)0x%" PRIX64 "%s", wf_cu_type(type), bits, wf_kty_bits(type) == 64 ? "ull" : "u");
}

void wf_cu_ref(wf_text *t, const wf_kir *k, wf_kref r, const char *prefix, const char *const *param)
{
    const wf_kinstr *i = &k->ins[r];
    if (i->prim == WF_KP_CONST)
        constant(t, (wf_kty)i->type, i->imm);
    else if (i->prim == WF_KP_PARAM)
        P("%s", param[i->imm]);
    else
        P("%s%u", prefix, r);
}

typedef struct at {
    wf_text *t;
    const wf_kir *k;
    const wf_kinstr *i;
    wf_kty type, from;
    const char *prefix;
    const char *const *param;
} at;

/* Fills a pattern: $a $b $c operands, $T result type, $U its wrapping type, $f "f" for f32 else "",
 * $n width of the type, $k the immediate, $s the suffix of helper functions. */
static void fill(const at *x, const char *pattern)
{
    wf_text *t = x->t;
    for (const char *p = pattern; *p; p++) {
        if (*p != '$') {
            P("%c", *p);
            continue;
        }
        switch (*++p) {
        case 'a':
        case 'b':
        case 'c':
            wf_cu_ref(t, x->k, x->i->src[*p - 'a'], x->prefix, x->param);
            break;
        case 'T':
            P("%s", wf_cu_type(x->type));
            break;
        case 'U':
            P("%s", wrap_type(x->type));
            break;
        case 'f':
            P("%s", x->type == WF_KT_F32 ? "f" : "");
            break;
        case 'n':
            P("%u", wf_kty_bits(x->type));
            break;
        case 'k':
            P("%" PRIu64, x->i->imm);
            break;
        case 's':
            P("%s", wf_kty_name(x->type));
            break;
        case 'S':
            P("%s", wf_kty_name(x->from));
            break;
        }
    }
}

static const char *cast_pattern(const at *x)
{
    const bool from_float = wf_kty_is_float(x->from), to_float = wf_kty_is_float(x->type);
    if (x->type == WF_KT_BOOL)
        return "(unsigned char)($a != 0)";
    if (from_float && !to_float)
        return "wf_$s_of_$S($a)";
    return "($T)$a";
}

static const char *pattern_of(const at *x)
{
    const bool flt = wf_kty_is_float(x->type);
    /* clang-format off */
    switch ((wf_kprim)x->i->prim) {
    case WF_KP_PARAM: case WF_KP_CONST: case WF_KP_COUNT: return "";
    case WF_KP_ADD: return flt ? "$a + $b" : "($T)(($U)$a + ($U)$b)";
    case WF_KP_SUB: return flt ? "$a - $b" : "($T)(($U)$a - ($U)$b)";
    case WF_KP_MUL: return flt ? "$a * $b" : "($T)(($U)$a * ($U)$b)";
    case WF_KP_DIV: return flt ? "$a / $b" : "wf_div_$s($a, $b)";
    case WF_KP_MIN: return flt ? "wf_min_$s($a, $b)" : "$a < $b ? $a : $b";
    case WF_KP_MAX: return flt ? "wf_max_$s($a, $b)" : "$a > $b ? $a : $b";
    case WF_KP_NEG: return flt ? "-$a" : "($T)(0 - ($U)$a)";
    case WF_KP_FMA: return "fma$f($a, $b, $c)";
    case WF_KP_SQRT: return "sqrt$f($a)";
    case WF_KP_RINT: return "rint$f($a)";
    case WF_KP_FLOOR: return "floor$f($a)";
    case WF_KP_CEIL: return "ceil$f($a)";
    case WF_KP_TRUNC: return "trunc$f($a)";
    case WF_KP_FABS: return "fabs$f($a)";
    case WF_KP_COPYSIGN: return "copysign$f($a, $b)";
    case WF_KP_LT: return "$a < $b";
    case WF_KP_LE: return "$a <= $b";
    case WF_KP_GT: return "$a > $b";
    case WF_KP_GE: return "$a >= $b";
    case WF_KP_EQ: return "$a == $b";
    case WF_KP_NE: return "$a != $b";
    case WF_KP_BAND: case WF_KP_IAND: return "($T)($a & $b)";
    case WF_KP_BOR: case WF_KP_IOR: return "($T)($a | $b)";
    case WF_KP_BXOR: case WF_KP_IXOR: return "($T)($a ^ $b)";
    case WF_KP_BNOT: return "(unsigned char)($a ^ 1)";
    case WF_KP_INOT: return "($T)~$a";
    case WF_KP_SELECT: return "$a ? $b : $c";
    case WF_KP_SHL: return "wf_shl_$s($a, $b)";
    case WF_KP_SHR: return "wf_shr_$s($a, $b)";
    case WF_KP_SHLK: return "$a << $k";
    case WF_KP_SHRK: return "$a >> $k";
    case WF_KP_SARK: return x->type == WF_KT_U32 ? "(unsigned int)((int)$a >> $k)"
                                                 : "(unsigned long long)((long long)$a >> $k)";
    case WF_KP_BITS32: return "wf_u32($a)";
    case WF_KP_FLT32: return "wf_f32($a)";
    case WF_KP_BITS64: return "wf_u64($a)";
    case WF_KP_FLT64: return "wf_f64($a)";
    case WF_KP_MULHI64: return "__umul64hi($a, $b)";
    case WF_KP_MULW32: return "(unsigned long long)$a * (unsigned long long)$b";
    case WF_KP_F64_OF_F32: case WF_KP_F32_OF_F64: case WF_KP_U64_OF_U32: case WF_KP_U32_OF_U64:
        return "($T)$a";
    case WF_KP_F32_OF_S32: case WF_KP_F64_OF_S32: return "($T)(int)$a";
    case WF_KP_F64_OF_S64: return "($T)(long long)$a";
    case WF_KP_S32_OF_F32: return "(unsigned int)wf_i32_of_f32($a)";
    case WF_KP_S64_OF_F64: return "(unsigned long long)wf_i64_of_f64($a)";
    case WF_KP_LOOKUP: return "wf_table_$k[$a]";
    case WF_KP_CAST: return cast_pattern(x);
    }
    /* clang-format on */
    return "";
}

bool wf_cu_is_quick(const wf_kir *k, const wf_kinstr *i, const wf_cu_param *what)
{
    if (i->prim != WF_KP_DIV || i->type != WF_KT_F32 || i->relaxed)
        return false;
    const wf_kinstr *a = &k->ins[i->src[0]], *s = &k->ins[i->src[1]];
    return a->prim == WF_KP_PARAM && what[a->imm] == WF_CU_ELEMENT && s->prim == WF_KP_PARAM &&
           what[s->imm] == WF_CU_SHARED;
}

static void statements(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param,
                       const wf_cu_param *what, const wf_cu_call *call, const bool *live)
{
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        if (i->prim == WF_KP_CONST || i->prim == WF_KP_PARAM || (live && !live[n]))
            continue;
        const at x = {.t = t,
                      .k = k,
                      .i = i,
                      .type = (wf_kty)i->type,
                      .from = i->nsrc ? (wf_kty)k->ins[i->src[0]].type : (wf_kty)i->type,
                      .prefix = prefix,
                      .param = param};
        P("        const %s %s%u = ", wf_cu_type(x.type), prefix, n);
        if (call && call[n].name) {
            P("%s(", call[n].name);
            wf_cu_ref(t, k, call[n].of, prefix, param);
            if (call[n].by != WF_KREF_NONE) {
                P(", ");
                wf_cu_ref(t, k, call[n].by, prefix, param);
            }
            P(")");
        } else if (i->prim == WF_KP_LOOKUP) {
            P("wf_%s[", k->table[i->imm]->name);
            wf_cu_ref(t, k, i->src[0], prefix, param);
            P("]");
        } else if (what && wf_cu_is_quick(k, i, what)) {
            fill(&x, "wf_over($a, $b, ");
            P("reciprocal%" PRIu64 ")", k->ins[i->src[1]].imm);
        } else {
            fill(&x, pattern_of(&x));
        }
        P(";\n");
    }
}

void wf_cu_body_of(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param,
                   const wf_cu_param *what)
{
    wf_cu_call *call = calloc(k->n + 1, sizeof *call);
    bool *live = calloc(k->n + 1, sizeof *live);
    if (call && live && wf_cu_find_calls(k, call, live))
        statements(t, k, prefix, param, what, call, live);
    else
        statements(t, k, prefix, param, what, NULL, NULL);
    free(call);
    free(live);
}

void wf_cu_body(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param)
{
    wf_cu_body_of(t, k, prefix, param, NULL);
}

void wf_cu_plain_body(wf_text *t, const wf_kir *k, const char *prefix, const char *const *param)
{
    statements(t, k, prefix, param, NULL, NULL, NULL);
}

/* -- what the text needs around it ------------------------------------------------------------------- */
static const char helpers[] =
    "#ifndef WF_PRELUDE\n"
    "#define WF_PRELUDE\n"
    "#ifdef __cplusplus\n"
    "#define WF_EXTERN extern \"C\"\n"
    "#define WF_DYNAMIC(name) extern __shared__ __align__(16) unsigned long long name[];\n"
    "#else\n"
    "#define WF_EXTERN\n"
    "#define WF_DYNAMIC(name) unsigned long long *const name = shim->dynamic;\n"
    "#endif\n"
    "#define WF_DEVICE static __device__ __forceinline__\n"
    /* the first statement of every kernel: wf_cuda_overlap */
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n"
    "#define WF_BEGIN asm volatile(\"griddepcontrol.wait; griddepcontrol.launch_dependents;\" ::: "
    "\"memory\");\n"
    "#else\n#define WF_BEGIN\n#endif\n"
    "#define WF_BITS(name, A, B) \\\n"
    "WF_DEVICE A name(B x) { union { B b; A a; } v; v.b = x; return v.a; }\n"
    "WF_BITS(wf_f32, float, unsigned int)\n"
    "WF_BITS(wf_u32, unsigned int, float)\n"
    "WF_BITS(wf_f64, double, unsigned long long)\n"
    "WF_BITS(wf_u64, unsigned long long, double)\n"
    /* NaN propagates, -0 < +0; PTX has that as one instruction of f32 from sm_80 on */
    "#define WF_EXTREMES(T, s, to, of) \\\n"
    "WF_DEVICE T wf_min_##s(T a, T b) { T r = a < b ? a : b; r = a == b ? of(to(a) | to(b)) : "
    "r; "
    "return a != a ? a : r; } \\\n"
    "WF_DEVICE T wf_max_##s(T a, T b) { T r = a > b ? a : b; r = a == b ? of(to(a) & to(b)) : "
    "r; "
    "return a != a ? a : r; }\n"
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n"
    "#define WF_EXTREME(m) WF_DEVICE float wf_##m##_f32(float a, float b) { float r; "
    "asm(#m \".NaN.f32 %0, %1, %2;\" : \"=f\"(r) : \"f\"(a), \"f\"(b)); return r; }\n"
    "WF_EXTREME(min)\n"
    "WF_EXTREME(max)\n"
    "#else\n"
    "WF_EXTREMES(float, f32, wf_u32, wf_f32)\n"
    "#endif\n"
    "WF_EXTREMES(double, f64, wf_u64, wf_f64)\n"
    /* a / s with y = 1 / s, for s in [2^-30, 2^30) and |a| in [2^-90, 2^90] or 0 */
    "WF_DEVICE float wf_over(float a, float s, float y) { const float q = a * y; return "
    "fmaf(fmaf(q, s, -a), -y, q); }\n"
    "#define WF_INTEGER(T, s, U, bits, sign) \\\n"
    "WF_DEVICE T wf_div_##s(T a, T b) { return b == 0 ? (T)0 : sign && b == (T)-1 ? (T)(0 - "
    "(U)a) : "
    "(T)(a / b); } \\\n"
    "WF_DEVICE T wf_shl_##s(T a, T b) { return (U)b < bits ? (T)((U)a << ((U)b & (bits - 1))) "
    ": (T)0; } "
    "\\\n"
    "WF_DEVICE T wf_shr_##s(T a, T b) { return (U)b < bits ? (T)(a >> ((U)b & (bits - 1))) : "
    "(T)(sign && "
    "a < (T)1 && a != 0 ? -1 : 0); }\n"
    "WF_INTEGER(unsigned char, u8, unsigned int, 8, 0)\n"
    "WF_INTEGER(signed char, i8, unsigned int, 8, 1)\n"
    "WF_INTEGER(unsigned short, u16, unsigned int, 16, 0)\n"
    "WF_INTEGER(short, i16, unsigned int, 16, 1)\n"
    "WF_INTEGER(unsigned int, u32, unsigned int, 32, 0)\n"
    "WF_INTEGER(int, i32, unsigned int, 32, 1)\n"
    "WF_INTEGER(unsigned long long, u64, unsigned long long, 64, 0)\n"
    "WF_INTEGER(long long, i64, unsigned long long, 64, 1)\n"
    /* truncating and saturating; lo and hi are exact, hi the first value that does not fit */
    "#define WF_SATURATE(T, s, lo, hi, least, most) \\\n"
    "WF_DEVICE T wf_##s##_of_f32(float x) { return x != x ? (T)0 : (double)x >= hi ? (T)most : "
    "(double)x "
    "<= lo ? (T)least : (T)x; } \\\n"
    "WF_DEVICE T wf_##s##_of_f64(double x) { return x != x ? (T)0 : x >= hi ? (T)most : x <= "
    "lo ? "
    "(T)least : (T)x; }\n"
    "WF_SATURATE(unsigned char, u8, 0.0, 256.0, 0, 255)\n"
    "WF_SATURATE(signed char, i8, -128.0, 128.0, -128, 127)\n"
    "WF_SATURATE(unsigned short, u16, 0.0, 65536.0, 0, 65535)\n"
    "WF_SATURATE(short, i16, -32768.0, 32768.0, -32768, 32767)\n"
    "WF_SATURATE(unsigned int, u32, 0.0, 4294967296.0, 0u, 4294967295u)\n"
    "WF_SATURATE(int, i32, -2147483648.0, 2147483648.0, (-2147483647 - 1), 2147483647)\n"
    "WF_SATURATE(unsigned long long, u64, 0.0, 18446744073709551616.0, 0ull, ~0ull)\n"
    "WF_SATURATE(long long, i64, -9223372036854775808.0, 9223372036854775808.0, "
    "(-9223372036854775807ll - 1), "
    "9223372036854775807ll)\n"
    "#endif\n";

void wf_cu_helpers(wf_text *t)
{
    P("%s", helpers);
    wf_cu_call_helpers(t);
}

void wf_cu_tables(wf_text *t, const wf_kir *k)
{
    for (uint32_t n = 0; n < k->ntable; n++) {
        const wf_kir_table *table = k->table[n];
        P("#ifndef WF_TABLE_%s\n#define WF_TABLE_%s\nstatic __device__ const %s wf_%s[%u] = {",
          table->name, table->name, wf_cu_type(table->type), table->name, table->n);
        for (uint32_t i = 0; i < table->n; i++)
            P("%s0x%" PRIX64 "u", i ? ", " : "", wf_kir_peek(table->data, table->type, i));
        P("};\n#endif\n");
    }
}

void wf_cu_prelude(wf_text *t, const wf_kernel *k)
{
    wf_cu_helpers(t);
    wf_cu_tables(t, &k->body);
}
