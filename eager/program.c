/*
 * eager/program.c -- building programs; see program.h.
 *
 * Tiles of intermediate values are registers: one is taken when an instruction defines a value and
 * given back after the last instruction that reads it, so that a chain of any length needs two.
 */
#include "eager/program.h"

#include <stdatomic.h>
#include <string.h>

#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/program_run.h"
#include "eager/reduce.h"

void wf_program_init(wf_program *p)
{
    p->ninput = p->nscalar = p->ninst = p->noutput = p->nvalue = 0;
    p->nreg = p->width = p->nphase = p->nreduce = 0;
    p->failed = p->heavy = p->rows = p->fast = false;
    p->number = 0;
}

static int fail(wf_program *p)
{
    p->failed = true;
    return -1;
}

static int new_value(wf_program *p, int dtype, int def, int level, int depth)
{
    if (p->failed || p->nvalue == WF_PROGRAM_VALUES || dtype <= WEFT_DTYPE_DEFAULT ||
        dtype >= WEFT_DTYPE_COUNT || depth > WF_PROGRAM_DEPTH)
        return fail(p);
    p->type[p->nvalue] = (uint8_t)dtype;
    p->level[p->nvalue] = (uint8_t)level;
    p->depth[p->nvalue] = (uint8_t)depth;
    p->def[p->nvalue] = (int16_t)def;
    return p->nvalue++;
}

static int add_input(wf_program *p, int dtype, int level)
{
    if (p->ninput == WF_PROGRAM_INPUTS)
        return fail(p);
    const int v = new_value(p, dtype, -1 - p->ninput, level, 0);
    p->draw[p->ninput].op = WF_OP_INVALID;
    p->input[p->ninput++] = (int16_t)v;
    return v;
}

int wf_program_input(wf_program *p, int dtype)
{
    return add_input(p, dtype, WF_LEVEL_ELEM);
}

int wf_program_input_row(wf_program *p, int dtype)
{
    p->rows = true;
    return add_input(p, dtype, WF_LEVEL_ROW);
}

int wf_program_scalar(wf_program *p, int dtype)
{
    if (p->nscalar == WF_PROGRAM_SCALARS)
        return fail(p);
    const int v = new_value(p, dtype, -1 - WF_PROGRAM_INPUTS - p->nscalar, WF_LEVEL_ONE, 0);
    p->scalar[p->nscalar++] = (int16_t)v;
    return v;
}

static bool is_value(const wf_program *p, int v)
{
    return v >= 0 && v < p->nvalue;
}

/* Appends with the level and depth of the sources, or `level` if that is higher. */
static int append_at(wf_program *p, wf_inst inst, int result, int level)
{
    int depth = 0;
    if (p->failed || p->ninst == WF_PROGRAM_INSTS)
        return fail(p);
    for (int k = 0; k < inst.nsrc; k++) {
        const int v = inst.src[k];
        if (v < 0)
            continue;
        level = p->level[v] > level ? p->level[v] : level;
        depth = p->depth[v] > depth ? p->depth[v] : depth;
    }
    inst.level = (uint8_t)level;
    if (inst.kind == WF_INST_REDUCE) {
        level = WF_LEVEL_ROW;
        depth++;
    } else if (inst.kind == WF_INST_PICK) {
        inst.level = WF_LEVEL_ROW;
        level = WF_LEVEL_ROW;
    }
    inst.value = -1;
    if (inst.kind != WF_INST_CHECK) {
        inst.value = (int16_t)new_value(p, result, p->ninst, level, depth);
        if (inst.value < 0)
            return -1;
    }
    p->inst[p->ninst++] = inst;
    return inst.value;
}

static int append(wf_program *p, wf_inst inst, int result)
{
    return append_at(p, inst, result, WF_LEVEL_ONE);
}

int wf_program_cast(wf_program *p, int value, int dtype)
{
    if (p->failed || !is_value(p, value))
        return fail(p);
    if (p->type[value] == dtype)
        return value;
    for (int i = 0; i < p->ninst; i++)
        if (p->inst[i].kind == WF_INST_CAST && p->inst[i].src[0] == value &&
            p->type[p->inst[i].value] == dtype)
            return p->inst[i].value;
    wf_inst inst = {.kind = WF_INST_CAST, .compute = p->type[value], .nsrc = 1};
    inst.src[0] = (int16_t)value;
    return append(p, inst, dtype);
}

/* A source as the kernel wants it: bool may be read as u8. */
static int as_source(wf_program *p, int value, int dtype)
{
    if (is_value(p, value) && p->type[value] == WEFT_BOOL && dtype == WEFT_U8)
        return value;
    return wf_program_cast(p, value, dtype);
}

int wf_program_map(wf_program *p, wf_op op, int compute, int nsrc, const int *src)
{
    const int ct = wf_ct(compute);
    if (p->failed || ct < 0 || op >= WF_OP_ELEMENTWISE || !wf_kernels_now()->map[ct][op] ||
        nsrc != wf_rows[op].min_src)
        return fail(p);
    const int kind = wf_rows[op].kind;
    const bool truth = kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE;
    wf_inst inst = {.kind = WF_INST_MAP,
                    .compute = (uint8_t)compute,
                    .nsrc = (uint8_t)nsrc,
                    .op = (uint16_t)op};
    for (int k = 0; k < nsrc; k++)
        inst.src[k] = (int16_t)as_source(
            p, src[k], kind == WF_KIND_CHOOSE && k == 0 ? (int)WEFT_BOOL : compute);
    p->heavy |= wf_is_heavy(op);
    return append(p, inst, truth ? (int)WEFT_BOOL : compute);
}

int wf_program_vjp(wf_program *p, wf_op op, int which, int compute, int nsrc, const int *src)
{
    const int t = compute == WEFT_F32 ? 0 : 1;
    if (p->failed || (compute != WEFT_F32 && compute != WEFT_F64) || op >= WF_OP_ELEMENTWISE ||
        which < 0 || which >= WF_VJP_MAX || !wf_kernels_now()->vjp[t][op][which] ||
        nsrc != wf_rows[op].min_src + 2)
        return fail(p);
    const unsigned reads = wf_vjp_reads(op, which);
    const bool choose = wf_rows[op].kind == WF_KIND_CHOOSE;
    wf_inst inst = {.kind = WF_INST_VJP,
                    .compute = (uint8_t)compute,
                    .which = (uint8_t)which,
                    .nsrc = (uint8_t)nsrc,
                    .op = (uint16_t)op};
    for (int k = 0; k < nsrc; k++) {
        const bool used = reads >> (k == 0 ? 6 : k == nsrc - 1 ? 7 : k - 1) & 1;
        inst.src[k] =
            (int16_t)(used ? as_source(p, src[k], choose && k == 1 ? (int)WEFT_BOOL : compute)
                           : -1);
    }
    p->heavy |= wf_is_heavy(op);
    return append(p, inst, compute);
}

static int truth_of(wf_program *p, int value)
{
    const int type = p->type[value];
    if (type == WEFT_BOOL)
        return value;
    const int compute = type == WEFT_F16 || type == WEFT_BF16 ? (int)WEFT_F32 : type;
    const int zero = wf_program_map(p, WF_OP_LOGICAL_NOT, compute, 1, &value);
    return wf_program_map(p, WF_OP_LOGICAL_NOT, WEFT_BOOL, 1, &zero);
}

static bool is_reduction(wf_op op)
{
    return op == WF_OP_SUM || op == WF_OP_PROD || op == WF_OP_AMAX || op == WF_OP_AMIN ||
           op == WF_OP_ANY || op == WF_OP_ALL;
}

int wf_program_reduce(wf_program *p, wf_op op, int value)
{
    if (p->failed || !is_value(p, value) || !is_reduction(op))
        return fail(p);
    value = op == WF_OP_ANY || op == WF_OP_ALL
                ? truth_of(p, value)
                : wf_program_cast(p, value, wf_red_compute(p->type[value]));
    value = wf_program_expand(p, value, WF_LEVEL_ELEM);
    if (value < 0)
        return -1;
    wf_inst inst = {
        .kind = WF_INST_REDUCE, .compute = p->type[value], .nsrc = 1, .op = (uint16_t)op};
    inst.src[0] = (int16_t)value;
    p->rows = true;
    p->nreduce++;
    return append(p, inst, p->type[value]);
}

int wf_program_expand(wf_program *p, int value, wf_level level)
{
    if (p->failed || !is_value(p, value))
        return fail(p);
    if (p->level[value] >= level)
        return value;
    wf_inst inst = {.kind = WF_INST_EXPAND, .compute = p->type[value], .nsrc = 1};
    inst.src[0] = (int16_t)value;
    p->rows = true;
    return append_at(p, inst, p->type[value], (int)level);
}

int wf_program_pick(wf_program *p, int input, int index)
{
    if (p->failed || !is_value(p, input) || !is_value(p, index) || p->def[input] >= 0 ||
        p->level[input] != WF_LEVEL_ELEM || p->draw[-1 - p->def[input]].op != WF_OP_INVALID ||
        p->level[index] == WF_LEVEL_ELEM || (WF_BIT(p->type[index]) & WF_DT_F) != 0)
        return fail(p);
    index = wf_program_cast(p, index, WEFT_I64);
    wf_inst inst = {.kind = WF_INST_PICK, .compute = p->type[input], .nsrc = 2};
    inst.src[0] = (int16_t)input;
    inst.src[1] = (int16_t)index;
    p->rows = true;
    return append(p, inst, p->type[input]);
}

int wf_program_iota(wf_program *p, int dtype)
{
    if (p->failed || dtype == WEFT_BOOL)
        return fail(p);
    wf_inst inst = {.kind = WF_INST_IOTA, .compute = (uint8_t)dtype};
    p->rows = true;
    return append_at(p, inst, dtype, WF_LEVEL_ELEM);
}

static void check(wf_program *p, int value, int index)
{
    if (p->failed || !is_value(p, value) || p->type[value] != WEFT_BOOL) {
        fail(p);
        return;
    }
    wf_inst inst = {
        .kind = WF_INST_CHECK, .compute = WEFT_BOOL, .nsrc = (uint8_t)(index < 0 ? 1 : 2)};
    inst.src[0] = (int16_t)value;
    inst.src[1] = (int16_t)index;
    p->rows = true;
    append(p, inst, WEFT_BOOL);
}

void wf_program_check(wf_program *p, int value)
{
    check(p, value, -1);
}

void wf_program_check_index(wf_program *p, int value, int index)
{
    if (!is_value(p, index) || p->type[index] != WEFT_I64)
        fail(p);
    check(p, value, index);
}

void wf_program_output_at(wf_program *p, int value, wf_level level)
{
    if (p->failed || !is_value(p, value) || p->noutput == WF_PROGRAM_OUTPUTS ||
        p->level[value] > level || level == WF_LEVEL_ONE) {
        fail(p);
        return;
    }
    if (p->def[value] < 0) { /* an input or scalar: a move, so that what it aliases is known */
        wf_inst inst = {.kind = WF_INST_CAST, .compute = p->type[value], .nsrc = 1};
        inst.src[0] = (int16_t)value;
        value = append(p, inst, p->type[value]);
        if (value < 0)
            return;
    }
    p->rows |= level == WF_LEVEL_ROW;
    p->output_level[p->noutput] = (uint8_t)level;
    p->output[p->noutput++] = (int16_t)value;
}

void wf_program_output(wf_program *p, int value)
{
    const bool row = !p->failed && is_value(p, value) && p->level[value] == WF_LEVEL_ROW;
    wf_program_output_at(p, value, row ? WF_LEVEL_ROW : WF_LEVEL_ELEM);
}

/* When each instruction runs: ROW ones before the phase of their depth, ELEM ones in the first phase that
 * reads them (a value kept for later costs memory). */
static void set_phases(wf_program *p)
{
    enum { NEVER = 255 };
    uint8_t first[WF_PROGRAM_VALUES]; /* phase of the first ELEM reader */
    memset(first, NEVER, sizeof first);
    for (int i = p->ninst - 1; i >= 0; i--) {
        wf_inst *inst = &p->inst[i];
        int depth = 0;
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0 && p->depth[inst->src[k]] > depth)
                depth = p->depth[inst->src[k]];
        inst->phase = (uint8_t)depth;
        if (inst->level != WF_LEVEL_ELEM)
            continue;
        if (inst->value >= 0 && inst->kind != WF_INST_REDUCE) {
            const int use = first[inst->value];
            inst->phase = (uint8_t)(use != NEVER && use > depth ? use : depth);
        }
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0 && first[inst->src[k]] > inst->phase)
                first[inst->src[k]] = inst->phase;
        p->nphase = inst->phase >= p->nphase ? inst->phase + 1 : p->nphase;
    }
    for (int k = 0; k < p->noutput; k++) {
        const int phase = p->depth[p->output[k]];
        if (p->output_level[k] == WF_LEVEL_ELEM && phase >= p->nphase)
            p->nphase = phase + 1;
    }
}

/* Tiles of a program whose ELEM instructions all run in one pass. */
static void set_registers(wf_program *p)
{
    int16_t until[WF_PROGRAM_INSTS]; /* of a register: last reader of its value */
    for (int i = 0; i < p->ninst; i++) {
        wf_inst *inst = &p->inst[i];
        int r = 0;
        while (r < p->nreg && until[r] >= i)
            r++;
        if (r == p->nreg)
            p->nreg++;
        inst->reg = (uint16_t)r;
        until[r] = p->last[inst->value] > i ? p->last[inst->value] : (int16_t)i;
    }
}

/* How many instructions behind each can run in one pass with it. */
static void set_chains(wf_program *p)
{
    int other = -1;
    for (int i = p->ninst - 1; i >= 0; i--) {
        p->chain[i] = 0;
        if (i + 1 < p->ninst && wf_inst_is_link(&p->inst[i]) &&
            wf_program_link_behind(p, i, &other) >= 0)
            p->chain[i] = (uint8_t)(p->chain[i + 1] + 1 < WF_LINKS / 2 - 1 ? p->chain[i + 1] + 1
                                                                           : WF_LINKS / 2 - 1);
    }
}

int wf_program_finish(wf_program *p)
{
    if (p->failed || p->noutput == 0)
        return fail(p);
    for (int v = 0; v < p->nvalue; v++)
        p->last[v] = -1;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0)
                p->last[inst->src[k]] = (int16_t)i;
        const int size = inst->value < 0 ? 1 : (int)wf_dtype_size(p->type[inst->value]);
        p->width = size > p->width ? size : p->width;
    }
    for (int k = 0; k < p->noutput; k++) /* outputs are copied out at the end where they must be */
        p->last[p->output[k]] = (int16_t)p->ninst;
    set_phases(p);
    if (p->rows)
        return 0;
    set_registers(p);
    set_chains(p);
    return (int64_t)p->nreg * WF_MAP_LEAST * p->width <= WF_MAP_REGISTERS ? 0 : fail(p);
}

void wf_program_number(wf_program *p)
{
    static _Atomic uint64_t last;
    p->number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}
