/*
 * eager/program.c -- building and running tile programs; see program.h.
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

enum { MAP, VJP, CAST };
enum {
    MOST_TILE = 1024,
    LEAST_TILE = 64,
    REGISTERS = 32 << 10, /* bytes of stack for register tiles */
    GRAIN = 32768
};

void wf_program_init(wf_program *p)
{
    p->ninput = p->nscalar = p->ninst = p->noutput = p->nvalue = 0;
    p->nreg = p->width = 0;
    p->failed = p->heavy = false;
}

static int fail(wf_program *p)
{
    p->failed = true;
    return -1;
}

static int new_value(wf_program *p, int dtype, int def)
{
    if (p->failed || p->nvalue == WF_PROGRAM_VALUES || dtype <= WEFT_DTYPE_DEFAULT ||
        dtype >= WEFT_DTYPE_COUNT)
        return fail(p);
    p->type[p->nvalue] = (uint8_t)dtype;
    p->def[p->nvalue] = (int16_t)def;
    return p->nvalue++;
}

int wf_program_input(wf_program *p, int dtype)
{
    if (p->ninput == WF_PROGRAM_INPUTS)
        return fail(p);
    const int v = new_value(p, dtype, -1 - p->ninput);
    p->input[p->ninput++] = (int16_t)v;
    return v;
}

int wf_program_scalar(wf_program *p, int dtype)
{
    if (p->nscalar == WF_PROGRAM_SCALARS)
        return fail(p);
    const int v = new_value(p, dtype, -1 - WF_PROGRAM_INPUTS - p->nscalar);
    p->scalar[p->nscalar++] = (int16_t)v;
    return v;
}

static bool is_value(const wf_program *p, int v)
{
    return v >= 0 && v < p->nvalue;
}

static int append(wf_program *p, wf_inst inst, int result)
{
    if (p->failed || p->ninst == WF_PROGRAM_INSTS)
        return fail(p);
    inst.value = (int16_t)new_value(p, result, p->ninst);
    p->inst[p->ninst++] = inst;
    return inst.value;
}

int wf_program_cast(wf_program *p, int value, int dtype)
{
    if (p->failed || !is_value(p, value))
        return fail(p);
    if (p->type[value] == dtype)
        return value;
    for (int i = 0; i < p->ninst; i++)
        if (p->inst[i].kind == CAST && p->inst[i].src[0] == value &&
            p->type[p->inst[i].value] == dtype)
            return p->inst[i].value;
    wf_inst inst = {.kind = CAST, .compute = p->type[value], .nsrc = 1};
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
    wf_inst inst = {
        .kind = MAP, .compute = (uint8_t)compute, .nsrc = (uint8_t)nsrc, .op = (uint16_t)op};
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
    wf_inst inst = {.kind = VJP,
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

void wf_program_output(wf_program *p, int value)
{
    if (p->failed || !is_value(p, value) || p->noutput == WF_PROGRAM_OUTPUTS) {
        fail(p);
        return;
    }
    if (p->def[value] < 0) { /* an input or scalar: a move, so that what it aliases is known */
        wf_inst inst = {.kind = CAST, .compute = p->type[value], .nsrc = 1};
        inst.src[0] = (int16_t)value;
        value = append(p, inst, p->type[value]);
        if (value < 0)
            return;
    }
    p->output[p->noutput++] = (int16_t)value;
}

int wf_program_finish(wf_program *p)
{
    if (p->failed || p->noutput == 0)
        return fail(p);
    for (int v = 0; v < p->nvalue; v++)
        p->last[v] = -1;
    for (int i = 0; i < p->ninst; i++)
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (p->inst[i].src[k] >= 0)
                p->last[p->inst[i].src[k]] = (int16_t)i;
    for (int k = 0; k < p->noutput; k++) /* outputs are copied out at the end where they must be */
        p->last[p->output[k]] = (int16_t)p->ninst;
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
        const int size = (int)wf_dtype_size(p->type[inst->value]);
        p->width = size > p->width ? size : p->width;
    }
    return (int64_t)p->nreg * LEAST_TILE * p->width <= REGISTERS ? 0 : fail(p);
}

/* -- running ------------------------------------------------------------------------------------------------ */
typedef struct run {
    const wf_program *p;
    const wf_kernels *k;
    const void *const *scalars;
    int64_t pitch;                    /* bytes of a register */
    int16_t direct[WF_PROGRAM_INSTS]; /* output that an instruction writes straight away, or -1 */
    union {
        wf_map_fn map;
        wf_cast_fn cast;
    } fn[WF_PROGRAM_INSTS];
} run;

typedef struct tile_state {
    const void *at[WF_PROGRAM_VALUES];
    bool one[WF_PROGRAM_VALUES];
} tile_state;

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
    if (inst->kind == CAST)
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
        if (inst->kind == CAST)
            r.fn[i].cast = r.k->cast[p->type[inst->value]][inst->compute];
        else if (inst->kind == VJP)
            r.fn[i].map = r.k->vjp[inst->compute == WEFT_F64][inst->op][inst->which];
        else
            r.fn[i].map = r.k->map[wf_ct(inst->compute)][inst->op];
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
