/*
 * eager/program.c -- building programs, and running those without ROW values; see program.h.
 *
 * Tiles of intermediate values are registers: one is taken when an instruction defines a value and
 * given back after the last instruction that reads it, so that a chain of any length needs two. An
 * instruction whose value is an output writes the output's tile instead, unless an input in the same
 * memory is still to be read.
 *
 * Values that are one element (scalars, broadcast inputs, and what is computed from those alone) are
 * computed as one element.
 */
#include "eager/program.h"

#include <string.h>

#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/map.h"
#include "eager/program_run.h"
#include "eager/reduce.h"

enum {
    MOST_TILE = 1024,
    LEAST_TILE = 64,
    REGISTERS = 32 << 10, /* bytes of stack for register tiles */
    GRAIN = 32768
};

void wf_program_init(wf_program *p)
{
    p->ninput = p->nscalar = p->ninst = p->noutput = p->nvalue = 0;
    p->nreg = p->width = p->nphase = p->nreduce = 0;
    p->failed = p->heavy = p->rows = false;
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

static bool is_heavy(wf_op op)
{
    return wf_rows[op].ulp > 0;
}

int wf_program_map(wf_program *p, wf_op op, int compute, int nsrc, const int *src)
{
    const int ct = wf_ct(compute);
    if (p->failed || ct < 0 || op >= WF_OP_COUNT || !wf_kernels_now()->map[ct][op] ||
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
    p->heavy |= is_heavy(op);
    return append(p, inst, truth ? (int)WEFT_BOOL : compute);
}

int wf_program_vjp(wf_program *p, wf_op op, int which, int compute, int nsrc, const int *src)
{
    const int t = compute == WEFT_F32 ? 0 : 1;
    if (p->failed || (compute != WEFT_F32 && compute != WEFT_F64) || op >= WF_OP_COUNT ||
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
    p->heavy |= is_heavy(op);
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
        p->level[input] != WF_LEVEL_ELEM || p->level[index] == WF_LEVEL_ELEM ||
        (WF_BIT(p->type[index]) & WF_DT_F) != 0)
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

void wf_program_check(wf_program *p, int value)
{
    if (p->failed || !is_value(p, value) || p->type[value] != WEFT_BOOL) {
        fail(p);
        return;
    }
    wf_inst inst = {.kind = WF_INST_CHECK, .compute = WEFT_BOOL, .nsrc = 1};
    inst.src[0] = (int16_t)value;
    p->rows = true;
    append(p, inst, WEFT_BOOL);
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
    return (int64_t)p->nreg * LEAST_TILE * p->width <= REGISTERS ? 0 : fail(p);
}

/* -- running ------------------------------------------------------------------------------------------------ */
typedef struct run {
    const wf_program *p;
    const wf_kernels *k;
    const void *const *scalars;
    int64_t pitch;                    /* bytes of a register */
    int16_t direct[WF_PROGRAM_INSTS]; /* output that an instruction writes straight away, or -1 */
    wf_inst_fn fn[WF_PROGRAM_INSTS];
} run;

typedef struct tile_state {
    const void *at[WF_PROGRAM_VALUES];
    bool one[WF_PROGRAM_VALUES];
} tile_state;

wf_inst_fn wf_inst_function(const wf_program *p, const wf_inst *inst, const wf_kernels *k)
{
    wf_inst_fn fn = {NULL};
    if (inst->kind == WF_INST_CAST)
        fn.cast = k->cast[p->type[inst->value]][inst->compute];
    else if (inst->kind == WF_INST_VJP)
        fn.map = k->vjp[inst->compute == WEFT_F64][inst->op][inst->which];
    else if (inst->kind == WF_INST_MAP)
        fn.map = k->map[wf_ct(inst->compute)][inst->op];
    return fn;
}

static void step(const run *r, int i, tile_state *s, void *out, size_t n)
{
    const wf_inst *inst = &r->p->inst[i];
    const void *src[5];
    unsigned bcast = 0;
    bool all = true;
    for (int k = 0; k < inst->nsrc; k++) {
        const int v = inst->src[k];
        if (v < 0) { /* not read: any address will do, and the first source is always there */
            src[k] = src[0];
            bcast |= (bcast & 1) << k;
            continue;
        }
        src[k] = s->at[v];
        all &= s->one[v];
        bcast |= s->one[v] ? 1u << k : 0;
    }
    if (all) {
        n = 1;
        bcast = 0;
    }
    if (inst->kind == WF_INST_CAST)
        r->fn[i].cast(out, src[0], n);
    else
        r->fn[i].map(out, src, n, bcast);
    s->at[inst->value] = out;
    s->one[inst->value] = all;
}

static void run_tile(const void *arg, void *const *dst, const void *const *src, size_t n,
                     unsigned bcast)
{
    const run *r = arg;
    const wf_program *p = r->p;
    _Alignas(64) char registers[REGISTERS];
    tile_state s;
    for (int k = 0; k < p->ninput; k++) {
        s.at[p->input[k]] = src[k];
        s.one[p->input[k]] = bcast >> k & 1;
    }
    for (int k = 0; k < p->nscalar; k++) {
        s.at[p->scalar[k]] = r->scalars[k];
        s.one[p->scalar[k]] = n > 1;
    }
    for (int i = 0; i < p->ninst; i++) {
        const int o = r->direct[i];
        step(r, i, &s, o >= 0 ? dst[o] : registers + p->inst[i].reg * r->pitch, n);
    }
    for (int k = 0; k < p->noutput; k++) {
        const int v = p->output[k], type = p->type[v];
        if (s.one[v] && n > 1)
            r->k->pack[wf_width(type)](dst[k], (int64_t)n, s.at[v], 0, 0, 1, n);
        else if (s.at[v] != dst[k])
            memcpy(dst[k], s.at[v], n * wf_dtype_size(type));
    }
}

/* May the instruction write output k's memory when it runs? Not while an input there is still to be read. */
static bool may_write(const wf_program *p, int i, const wf_view *dst, const wf_view *src)
{
    for (int j = 0; j < p->ninput; j++)
        if (src[j].data == dst->data && p->last[p->input[j]] > i)
            return false;
    return true;
}

void wf_program_run(const wf_program *p, const wf_view *dst, const wf_view *src,
                    const void *const *scalars)
{
    uint8_t dst_type[WF_PROGRAM_OUTPUTS], src_type[WF_PROGRAM_INPUTS];
    run r = {.p = p, .k = wf_kernels_now(), .scalars = scalars};
    for (int k = 0; k < p->ninput; k++)
        src_type[k] = p->type[p->input[k]];
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        r.direct[i] = -1;
        r.fn[i] = wf_inst_function(p, inst, r.k);
    }
    for (int k = 0; k < p->noutput; k++) {
        const int def = p->def[p->output[k]];
        dst_type[k] = p->type[p->output[k]];
        if (def >= 0 && r.direct[def] < 0 && may_write(p, def, &dst[k], src))
            r.direct[def] = (int16_t)k;
    }
    int64_t tile = MOST_TILE;
    while (p->nreg * tile * p->width > REGISTERS)
        tile /= 2;
    r.pitch = tile * p->width;
    int64_t grain = GRAIN / (p->ninst > 8 ? 8 : p->ninst ? p->ninst : 1);
    wf_tiles_run(&(wf_tiles){.ndst = p->noutput,
                             .nsrc = p->ninput,
                             .dst = dst,
                             .src = src,
                             .dst_type = dst_type,
                             .src_type = src_type,
                             .grain = p->heavy && grain > 4096 ? 4096 : grain,
                             .tile = tile,
                             .fn = run_tile,
                             .arg = &r});
}

int wf_program_run_on(const wf_program *p, const wf_program_args *a)
{
    if (p->rows)
        return wf_program_run_rows(p, a);
    wf_program_run(p, a->dst, a->src, a->scalars);
    return 0;
}
