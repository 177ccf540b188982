/*
 * eager/program_verify.c -- holds a finished program to its rules, and names the instruction that breaks one.
 *
 *   values        inputs, scalars and results of instructions, each defined once, read only behind its definition
 *   instructions  a kernel for the row and the type; sources of the types it reads; the level and depth that sources give
 *   registers     what a source is read from still holds it (programs without ROW values)
 *   phases        nothing is read before the phase that makes it (programs with ROW values)
 *   outputs       values of instructions, at their level or above
 *
 * Invariant: counts and indices are checked before anything is read through them.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eager/draw.h"
#include "eager/exec.h"
#include "eager/program_run.h"
#include "eager/reduce.h"

typedef struct checker {
    const wf_program *p;
    wf_why *why;
    int at;                          /* the instruction at hand */
    int16_t holds[WF_PROGRAM_INSTS]; /* value in each register, -1: none yet */
} checker;

static const char *const kinds[] = {
    [WF_INST_MAP] = "",      [WF_INST_VJP] = "vjp of ",   [WF_INST_CAST] = "cast",
    [WF_INST_REDUCE] = "",   [WF_INST_EXPAND] = "expand", [WF_INST_PICK] = "pick",
    [WF_INST_IOTA] = "iota", [WF_INST_CHECK] = "check"};

static int broken(const checker *c, const char *fmt, ...) WF_PRINTF(2, 3);
static int broken(const checker *c, const char *fmt, ...)
{
    const wf_inst *i = &c->p->inst[c->at];
    const bool named =
        i->kind == WF_INST_MAP || i->kind == WF_INST_VJP || i->kind == WF_INST_REDUCE;
    char rule[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(rule, sizeof rule, fmt, args);
    va_end(args);
    return wf_fail(c->why, WEFT_EINVALID, "instruction %d %s%s: %s", c->at,
                   i->kind <= WF_INST_CHECK ? kinds[i->kind] : "?",
                   named && i->op < WF_OP_COUNT ? wf_rows[i->op].name : "", rule);
}

/* -- what is before instructions --------------------------------------------------------------------------- */

static int check_counts(const checker *c)
{
    const wf_program *p = c->p;
    int values = p->ninput + p->nscalar;
    const bool fits = p->ninput >= 0 && p->ninput <= WF_PROGRAM_INPUTS && p->nscalar >= 0 &&
                      p->nscalar <= WF_PROGRAM_SCALARS && p->ninst >= 0 &&
                      p->ninst <= WF_PROGRAM_INSTS && p->noutput > 0 &&
                      p->noutput <= WF_PROGRAM_OUTPUTS && !p->failed;
    for (int i = 0; fits && i < p->ninst; i++) {
        values += p->inst[i].kind != WF_INST_CHECK;
    }
    return fits && values == p->nvalue
               ? 0
               : wf_fail(c->why, WEFT_EINVALID,
                         "%d inputs, %d scalars, %d instructions, %d outputs and %d values are no "
                         "program",
                         p->ninput, p->nscalar, p->ninst, p->noutput, p->nvalue);
}

/* Value v is input or scalar number n, which def says. */
static int check_given(const checker *c, const char *what, int n, int v, int def, bool level)
{
    const wf_program *p = c->p;
    const bool is = v >= 0 && v < p->nvalue && p->def[v] == def && p->depth[v] == 0 && level &&
                    p->type[v] > WEFT_DTYPE_DEFAULT && p->type[v] < WEFT_DTYPE_COUNT;
    return is ? 0
              : wf_fail(c->why, WEFT_EINVALID, "%s %d: value %d is another one, or has no type",
                        what, n, v);
}

static int check_draw(const checker *c, int j)
{
    const wf_program *p = c->p;
    const wf_program_drawn *d = &p->draw[j];
    bool good =
        d->op >= WF_OP_RAND && d->op <= WF_OP_RANDPERM && p->level[p->input[j]] == WF_LEVEL_ELEM;
    for (int i = 0; good && i < WF_DRAW_SCALARS; i++) {
        const int type = i < 2 || d->op == WF_OP_RANDINT ? WEFT_I64 : WEFT_F64;
        good = d->scalar[i] >= 0 && d->scalar[i] < p->nscalar &&
               p->type[p->scalar[d->scalar[i]]] == type;
    }
    return good ? 0
                : wf_fail(c->why, WEFT_EINVALID,
                          "input %d: op %d of these scalars draws no elements", j, d->op);
}

static int check_sources_of_run(const checker *c)
{
    const wf_program *p = c->p;
    int rc = 0;
    for (int j = 0; j < p->ninput && !rc; j++) {
        const int v = p->input[j];
        const bool row = v >= 0 && v < p->nvalue && p->level[v] == WF_LEVEL_ROW;
        rc = check_given(c, "input", j, v, -1 - j,
                         row ? p->rows : v >= 0 && v < p->nvalue && p->level[v] == WF_LEVEL_ELEM);
    }
    for (int s = 0; s < p->nscalar && !rc; s++) {
        const int v = p->scalar[s];
        rc = check_given(c, "scalar", s, v, -1 - WF_PROGRAM_INPUTS - s,
                         v >= 0 && v < p->nvalue && p->level[v] == WF_LEVEL_ONE);
    }
    for (int j = 0; j < p->ninput && !rc; j++) {
        rc = p->draw[j].op == WF_OP_INVALID ? 0 : check_draw(c, j);
    }
    return rc;
}

/* -- one instruction --------------------------------------------------------------------------------------- */

/* May a row that computes in `compute` read a value of this type as it is? */
static bool reads_as(int type, int compute)
{
    return type == compute || (type == WEFT_BOOL && compute == WEFT_U8);
}

/* Is source k one that instruction i does without? */
static bool may_lack(const wf_inst *i, int k)
{
    const unsigned bit = k == 0 ? 6u : k == i->nsrc - 1 ? 7u : (unsigned)k - 1;
    return i->kind == WF_INST_VJP ? !(wf_vjp_reads((wf_op)i->op, i->which) >> bit & 1)
                                  : i->kind == WF_INST_CHECK && k == 1;
}

static int check_sources(const checker *c, const wf_inst *i)
{
    const wf_program *p = c->p;
    for (int k = 0; k < i->nsrc; k++) {
        const int v = i->src[k];
        if (v < 0 ? !may_lack(i, k) : v >= p->nvalue || p->def[v] >= c->at) {
            return broken(c, "source %d is value %d, which is not there yet", k, v);
        }
        if (v >= 0 && p->last[v] < c->at) {
            return broken(c, "value %d is read behind its last reader, instruction %d", v,
                          p->last[v]);
        }
    }
    return 0;
}

/* The type of the result by the rule of the row, -1: it has no kernel. */
static int row_type(const wf_inst *i)
{
    const wf_kernels *now = wf_kernels_now();
    const int ct = wf_ct(i->compute), kind = wf_rows[i->op].kind;
    const bool truth = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
    if (i->op >= WF_OP_ELEMENTWISE) {
        return -1;
    }
    if (i->kind == WF_INST_MAP) {
        const bool is = ct >= 0 && now->map[ct][i->op] && i->nsrc == wf_rows[i->op].min_src;
        return !is ? -1 : truth ? (int)WEFT_BOOL : i->compute;
    }
    const bool real = i->compute == WEFT_F32 || i->compute == WEFT_F64;
    return real && i->which < WF_VJP_MAX && i->nsrc == wf_rows[i->op].min_src + 2 &&
                   now->vjp[i->compute == WEFT_F64][i->op][i->which]
               ? i->compute
               : -1;
}

static int check_row(const checker *c, const wf_inst *i)
{
    const wf_program *p = c->p;
    const int condition = wf_rows[i->op].kind != WF_KIND_CHOOSE ? -1 : i->kind == WF_INST_VJP;
    const int type = row_type(i);
    if (type < 0) {
        return broken(c, "there is no kernel for %d sources in %s", i->nsrc,
                      wf_dtype_name(i->compute));
    }
    for (int k = 0; k < i->nsrc; k++) {
        const int v = i->src[k];
        if (v >= 0 &&
            !(k == condition ? p->type[v] == WEFT_BOOL : reads_as(p->type[v], i->compute))) {
            return broken(c, "source %d is %s, and it reads %s", k, wf_dtype_name(p->type[v]),
                          wf_dtype_name(k == condition ? (int)WEFT_BOOL : i->compute));
        }
    }
    return p->type[i->value] == type
               ? 0
               : broken(c, "its result is %s, and it makes %s", wf_dtype_name(p->type[i->value]),
                        wf_dtype_name(type));
}

static bool is_reduction(int op, int type)
{
    const bool truth = op == WF_OP_ANY || op == WF_OP_ALL;
    const bool adds = op == WF_OP_SUM || op == WF_OP_PROD || op == WF_OP_AMAX || op == WF_OP_AMIN;
    return truth ? type == WEFT_BOOL : adds && type == wf_red_compute(type);
}

/* Kinds other than rows: have they what they are about? */
static int check_kind(const checker *c, const wf_inst *i)
{
    const wf_program *p = c->p;
    const int a = i->nsrc > 0 ? i->src[0] : -1, b = i->nsrc > 1 ? i->src[1] : -1;
    const int to = i->value < 0 ? (int)WEFT_BOOL : p->type[i->value];
    const int type = a < 0 ? to : p->type[a], level = a < 0 ? -1 : p->level[a];
    bool good = i->nsrc <= 2 && type == i->compute;
    switch ((wf_inst_kind)i->kind) {
    case WF_INST_MAP:
    case WF_INST_VJP:
        return i->op < WF_OP_COUNT ? check_row(c, i) : broken(c, "op %d is no row", i->op);
    case WF_INST_CAST:
        good = good && i->nsrc == 1;
        break;
    case WF_INST_REDUCE:
        good = good && i->nsrc == 1 && to == type && level == WF_LEVEL_ELEM &&
               is_reduction(i->op, type);
        break;
    case WF_INST_EXPAND:
        good = good && i->nsrc == 1 && to == type && p->level[i->value] > level;
        break;
    case WF_INST_PICK:
        good = good && i->nsrc == 2 && to == type && level == WF_LEVEL_ELEM && p->def[a] < 0 &&
               p->def[a] >= -p->ninput && p->draw[-1 - p->def[a]].op == WF_OP_INVALID &&
               p->type[b] == WEFT_I64 && p->level[b] != WF_LEVEL_ELEM;
        break;
    case WF_INST_IOTA:
        good = good && i->nsrc == 0 && to != WEFT_BOOL;
        break;
    case WF_INST_CHECK:
        good = good && i->nsrc >= 1 && type == WEFT_BOOL && (b < 0 || p->type[b] == WEFT_I64);
        break;
    }
    return good ? 0 : broken(c, "its %d sources are not what it is about", i->nsrc);
}

/* Level and depth that sources give. */
static int check_levels(const checker *c, const wf_inst *i)
{
    const wf_program *p = c->p;
    int level = i->kind == WF_INST_IOTA     ? (int)WF_LEVEL_ELEM
                : i->kind == WF_INST_EXPAND ? p->level[i->value]
                : i->kind == WF_INST_PICK   ? (int)WF_LEVEL_ROW
                                            : (int)WF_LEVEL_ONE;
    int depth = 0;
    for (int k = 0; k < i->nsrc; k++) {
        const int v = i->src[k];
        if (v >= 0) {
            level = i->kind != WF_INST_PICK && p->level[v] > level ? p->level[v] : level;
            depth = p->depth[v] > depth ? p->depth[v] : depth;
        }
    }
    const bool reduces = i->kind == WF_INST_REDUCE;
    if (i->level != level ||
        (i->value >= 0 && (p->level[i->value] != (reduces ? (int)WF_LEVEL_ROW : level) ||
                           p->depth[i->value] != depth + reduces))) {
        return broken(c, "its level is %d and its depth %d, and its sources give %d and %d",
                      i->level, i->value < 0 ? depth : p->depth[i->value], level, depth + reduces);
    }
    if (!p->rows) {
        return i->level == WF_LEVEL_ROW || i->kind > WF_INST_CAST
                   ? broken(c, "a program without ROW values has none of this kind")
                   : 0;
    }
    const bool late = i->level == WF_LEVEL_ELEM && !reduces;
    if (late ? i->phase < depth : i->phase != depth) {
        return broken(c, "it runs in phase %d, and what it reads is there in phase %d", i->phase,
                      depth);
    }
    if (i->level == WF_LEVEL_ELEM && i->phase >= p->nphase) {
        return broken(c, "it runs in phase %d of %d", i->phase, p->nphase);
    }
    for (int k = 0; k < i->nsrc && i->level == WF_LEVEL_ELEM; k++) {
        const int d = i->src[k] < 0 ? -1 : p->def[i->src[k]];
        if (d >= 0 && p->inst[d].level == WF_LEVEL_ELEM && p->inst[d].phase > i->phase) {
            return broken(c, "it runs in phase %d, and source %d is made in phase %d", i->phase, k,
                          p->inst[d].phase);
        }
    }
    return 0;
}

/* A source lies in a register that something else has been put into, or the result in that of a source. */
static int check_registers(checker *c, const wf_inst *i)
{
    const wf_program *p = c->p;
    if (i->reg >= p->nreg || (int)wf_dtype_size(p->type[i->value]) > p->width) {
        return broken(c, "register %d is none of %d, or too narrow", i->reg, p->nreg);
    }
    for (int k = 0; k < i->nsrc; k++) {
        const int d = i->src[k] < 0 ? -1 : p->def[i->src[k]];
        const int r = d < 0 ? -1 : p->inst[d].reg;
        if (d >= 0 && (c->holds[r] != i->src[k] || r == i->reg)) {
            return broken(c, "register %d of source %d, value %d, is given to value %d", r, k,
                          i->src[k], r == i->reg ? i->value : c->holds[r]);
        }
    }
    c->holds[i->reg] = i->value;
    return 0;
}

/* Instructions behind one that run in one pass with it read each what the one before makes. */
static int check_chain(const checker *c)
{
    const wf_program *p = c->p;
    int other = -1;
    for (int n = 0; n < p->chain[c->at]; n++) {
        if (c->at + n + 1 >= p->ninst || !wf_inst_is_link(&p->inst[c->at + n]) ||
            wf_program_link_behind(p, c->at + n, &other) < 0) {
            return broken(c, "it heads a chain of %d, of which %d is no link", p->chain[c->at],
                          n + 1);
        }
    }
    return 0;
}

static int check_inst(checker *c)
{
    const wf_program *p = c->p;
    const wf_inst *i = &p->inst[c->at];
    if (i->kind > WF_INST_CHECK || i->nsrc > sizeof i->src / sizeof *i->src) {
        return broken(c, "kind %d with %d sources is none", i->kind, i->nsrc);
    }
    const bool defines = i->kind != WF_INST_CHECK;
    if (defines
            ? i->value < 0 || i->value >= p->nvalue || p->def[i->value] != c->at ||
                  p->type[i->value] <= WEFT_DTYPE_DEFAULT || p->type[i->value] >= WEFT_DTYPE_COUNT
            : i->value != -1) {
        return broken(c, "value %d is not its own", i->value);
    }
    int rc = check_sources(c, i);
    rc = rc ? rc : check_kind(c, i);
    rc = rc ? rc : check_levels(c, i);
    return rc || p->rows ? rc : check_registers(c, i);
}

static int check_output(const checker *c, int k)
{
    const wf_program *p = c->p;
    const int v = p->output[k], level = p->output_level[k];
    const bool value = v >= 0 && v < p->nvalue && p->def[v] >= 0;
    if (!value || level < p->level[v] || level == WF_LEVEL_ONE || level > WF_LEVEL_ELEM ||
        (p->rows && level == WF_LEVEL_ELEM && p->depth[v] >= p->nphase)) {
        return wf_fail(c->why, WEFT_EINVALID,
                       "output %d: value %d at level %d of %d phases is none", k, v, level,
                       p->nphase);
    }
    if (p->last[v] != p->ninst || (!p->rows && c->holds[p->inst[p->def[v]].reg] != v)) {
        return wf_fail(c->why, WEFT_EINVALID, "output %d: value %d is gone when it is written", k,
                       v);
    }
    return 0;
}

int wf_program_verify(const wf_program *p, wf_why *why)
{
    checker c = {.p = p, .why = why};
    memset(c.holds, 0xFF, sizeof c.holds);
    int rc = check_counts(&c);
    rc = rc ? rc : check_sources_of_run(&c);
    if (!rc && !p->rows &&
        (p->nreg < 0 || p->nreg > p->ninst || p->width < 0 ||
         (int64_t)p->nreg * WF_MAP_LEAST * p->width > WF_MAP_REGISTERS)) {
        rc = wf_fail(why, WEFT_EINVALID, "%d registers of %d bytes do not fit", p->nreg, p->width);
    }
    for (; c.at < p->ninst && !rc; c.at++) {
        rc = check_inst(&c);
    }
    for (c.at = 0; c.at < p->ninst && !rc && !p->rows; c.at++) {
        rc = check_chain(&c);
    }
    for (int k = 0; k < p->noutput && !rc; k++) {
        rc = check_output(&c, k);
    }
    return rc;
}
