/*
 * jit/lower_rows.c -- lowering of programs with ROW values to the stages of a kernel over rows.
 *
 * Stages follow the program's phases: single values of depth d, then the elements of phase d. A stage takes
 * in what its results need, back to what an earlier stage has put into a slot or a buffer. An ELEM value
 * that a later phase reads is kept in a buffer if it took work (exp), and computed again if it did not
 * (x - mean): it is the same instruction on the same operands either way.
 */
#include <stdlib.h>
#include <string.h>

#include "jit/lower_impl.h"

enum { NOWHERE = -1 };

typedef struct build {
    wf_lowering l;
    const wf_program *p;
    wf_rows_kernel *r;
    wf_stage *st;
    int phase;                       /* of an ELEM stage */
    int16_t at[WF_PROGRAM_VALUES];   /* stage that defines a ROW or ONE value, NOWHERE so far */
    int16_t keep[WF_PROGRAM_VALUES]; /* buffer of an ELEM value, -1 */
} build;

static const wf_inst *inst_of(const wf_program *p, int v)
{
    return p->def[v] >= 0 ? &p->inst[p->def[v]] : NULL;
}

/* -- stages ---------------------------------------------------------------------------------------------- */
static bool open_stage(build *b, wf_stage_kind kind)
{
    wf_rows_kernel *r = b->r;
    if (r->nstage == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 8;
        wf_stage *grown = realloc(r->stage, (size_t)cap * sizeof *grown);
        if (!grown)
            return false;
        r->stage = grown;
        r->cap = cap;
    }
    b->st = &r->stage[r->nstage++];
    memset(b->st, 0, sizeof *b->st);
    b->st->kind = kind;
    wf_kir_init(&b->st->body);
    b->l.k = &b->st->body;
    memset(b->l.value, 0xFF, sizeof b->l.value); /* WF_KREF_NONE */
    return true;
}

static wf_kref param(build *b, wf_port_kind kind, int at, wf_kty type)
{
    const uint32_t n = b->st->body.nparam;
    const wf_kref x = wf_kir_param(&b->st->body, type);
    if (n < WF_KIR_MAX_PARAM)
        b->st->in[n] = (wf_port){.kind = (uint8_t)kind, .at = (int16_t)at};
    return x;
}

static void output(build *b, wf_port_kind kind, int op, int at, wf_kref x)
{
    const uint32_t n = b->st->body.nout;
    wf_kir_output(&b->st->body, x);
    if (n < WF_KIR_MAX_OUT)
        b->st->out[n] = (wf_port){.kind = (uint8_t)kind, .op = (uint8_t)op, .at = (int16_t)at};
}

/* bool is u8 in memory and in buffers */
static wf_kref from_memory(build *b, int v, wf_kref x)
{
    return b->p->type[v] == WEFT_BOOL ? wf_kir_cast(&b->st->body, WF_KT_BOOL, x) : x;
}
static wf_kref to_memory(build *b, int v, wf_kref x)
{
    return b->p->type[v] == WEFT_BOOL ? wf_kir_cast(&b->st->body, WF_KT_U8, x) : x;
}

/* -- what is known of values -------------------------------------------------------------------------------- */
/* x - the largest x of the row: at most 0, or NaN. */
static bool is_below_zero(const wf_program *p, int v)
{
    const wf_inst *sub = inst_of(p, v);
    if (!sub || sub->kind != WF_INST_MAP || sub->op != WF_OP_SUB)
        return false;
    const wf_inst *most = inst_of(p, sub->src[1]);
    if (most && most->kind == WF_INST_EXPAND)
        most = inst_of(p, most->src[0]);
    return most && most->kind == WF_INST_REDUCE && most->op == WF_OP_AMAX &&
           most->src[0] == sub->src[0];
}

/* Is it NaN or from 0 to 1? */
static bool is_small(const wf_program *p, int v)
{
    const wf_inst *inst = inst_of(p, v);
    return inst && inst->kind == WF_INST_MAP && inst->op == WF_OP_EXP &&
           is_below_zero(p, inst->src[0]);
}

/* -- values ------------------------------------------------------------------------------------------------ */
static wf_kref want(build *b, int v);

/* Is input j drawn by the kernel? */
static bool is_drawn(const build *b, int j)
{
    return b->l.device && b->p->draw[j].op != WF_OP_INVALID;
}

static wf_kref drawn(build *b, int j)
{
    for (int i = 0; i < WF_DRAW_SCALARS; i++)
        want(b, b->p->scalar[b->p->draw[j].scalar[i]]);
    return wf_lower_draw(&b->l, j, param(b, WF_PORT_SOURCE, j, WF_KT_I64));
}

/* What a check puts into its error word: -1, or the index that is wrong (an index of -1 as -2; 0 if none is known). */
static wf_kref verdict(build *b, const wf_inst *inst)
{
    wf_kir *k = &b->st->body;
    const wf_kref good = want(b, inst->src[0]), well = wf_kir_const(k, WF_KT_I64, UINT64_MAX);
    wf_kref wrong = wf_kir_const(k, WF_KT_I64, 0);
    if (inst->nsrc > 1) {
        const wf_kref at = want(b, inst->src[1]);
        const wf_kref hidden = wf_kir_op(k, WF_KP_EQ, at, well, WF_KREF_NONE);
        wrong = wf_kir_op(k, WF_KP_SELECT, hidden, wf_kir_const(k, WF_KT_I64, (uint64_t)-2), at);
    }
    return wf_kir_op(k, WF_KP_SELECT, good, well, wrong);
}

static void check(build *b, const wf_inst *inst, int op)
{
    if (b->l.device)
        output(b, WF_PORT_CHECK, op, b->r->ncheck++, verdict(b, inst));
    else
        output(b, WF_PORT_CHECK, op, 0, want(b, inst->src[0]));
}

static wf_kref outside(build *b, int v)
{
    const wf_program *p = b->p;
    const wf_kty memory = wf_kir_storage(p->type[v]);
    const int from = -1 - p->def[v];
    if (p->def[v] >= 0)
        return param(b, WF_PORT_SLOT, v, wf_lower_type(p->type[v]));
    if (from < WF_PROGRAM_INPUTS && is_drawn(b, from))
        return drawn(b, from);
    if (from >= WF_PROGRAM_INPUTS)
        return from_memory(b, v, param(b, WF_PORT_SCALAR, from - WF_PROGRAM_INPUTS, memory));
    b->r->last_read[from] = (int16_t)(b->r->nstage - 1);
    return from_memory(b, v, param(b, WF_PORT_SOURCE, from, memory));
}

static wf_kref compute(build *b, const wf_inst *inst)
{
    for (int k = 0; k < inst->nsrc; k++)
        if (inst->src[k] >= 0)
            want(b, inst->src[k]);
    if (inst->kind == WF_INST_EXPAND)
        return b->l.value[inst->src[0]];
    if (inst->kind == WF_INST_IOTA) {
        const wf_kref i = param(b, WF_PORT_INDEX, 0, WF_KT_I64);
        return wf_kir_store(&b->st->body, inst->compute, i);
    }
    if (is_small(b->p, inst->value) && wf_kir_compute_type(inst->compute) == WF_KT_F32) {
        const wf_kref x = wf_lower_as(&b->l, inst->src[0], WF_KT_F32);
        return wf_kir_cast(&b->st->body, wf_lower_type(b->p->type[inst->value]),
                           wf_kir_exp_below_zero(&b->st->body, x));
    }
    const uint32_t first = b->st->body.n;
    const wf_kref y = wf_lower_inst(&b->l, inst);
    if (!b->l.device && is_small(b->p, inst->value))
        wf_kir_below_zero(&b->st->body, b->l.value[inst->src[0]], first);
    return y;
}

/* Value v as an earlier stage left it in its buffer. */
static wf_kref kept(build *b, int v)
{
    const uint32_t n = b->st->body.nparam;
    const wf_kref x = param(b, WF_PORT_KEEP, b->keep[v], wf_kir_storage(b->p->type[v]));
    if (n < WF_KIR_MAX_PARAM)
        b->st->in[n].small = is_small(b->p, v);
    return x;
}

/* Value v in this stage. */
static wf_kref want(build *b, int v)
{
    const wf_inst *inst = inst_of(b->p, v);
    if (b->l.value[v] != WF_KREF_NONE)
        return b->l.value[v];
    wf_kref x;
    if (!inst)
        x = outside(b, v);
    else if (b->p->level[v] != WF_LEVEL_ELEM)
        x = b->at[v] == b->r->nstage - 1 && inst->kind != WF_INST_PICK &&
                    inst->kind != WF_INST_REDUCE
                ? compute(b, inst)
                : outside(b, v);
    else if (b->keep[v] >= 0 && inst->phase < b->phase)
        x = from_memory(b, v, kept(b, v));
    else
        x = compute(b, inst);
    b->l.value[v] = x;
    return x;
}

/* -- single values ------------------------------------------------------------------------------------------ */
/* Is single value v read outside the stage that makes it, which has the instructions `now`? */
static bool leaves(const wf_program *p, int v, const bool *now)
{
    for (int k = 0; k < p->noutput; k++)
        if (p->output[k] == v &&
            (p->output_level[k] == WF_LEVEL_ELEM || p->level[v] == WF_LEVEL_ONE))
            return true;
    for (int i = 0; i < p->ninst; i++)
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (p->inst[i].src[k] == v && !now[i])
                return true;
    return false;
}

static void row_outputs(build *b, int v, int stage)
{
    const wf_program *p = b->p;
    for (int k = 0; k < p->noutput; k++)
        if (p->output[k] == v && p->output_level[k] == WF_LEVEL_ROW) {
            output(b, WF_PORT_DST, 0, k, to_memory(b, v, want(b, v)));
            b->r->stored[k] = (int16_t)stage;
        }
}

static bool pick(build *b, const wf_inst *inst)
{
    const int v = inst->value, stage = b->r->nstage;
    if (!open_stage(b, WF_ST_PICK))
        return false;
    const int from = -1 - b->p->def[inst->src[0]];
    b->at[v] = (int16_t)stage;
    b->st->in[0] = (wf_port){.kind = WF_PORT_SOURCE, .at = (int16_t)from};
    b->st->in[1] = (wf_port){.kind = WF_PORT_SLOT, .at = inst->src[1]};
    b->st->out[0] = (wf_port){.kind = WF_PORT_SLOT, .at = (int16_t)v};
    b->r->last_read[from] = (int16_t)stage;
    return true;
}

/* An index that no stage has put into its slot yet (an input or a scalar). */
static bool index_slot(build *b, int v)
{
    if (b->p->def[v] >= 0 || b->at[v] != NOWHERE)
        return true;
    if (!open_stage(b, WF_ST_ROW))
        return false;
    b->at[v] = (int16_t)(b->r->nstage - 1);
    output(b, WF_PORT_SLOT, 0, v, want(b, v));
    return true;
}

static bool is_single(const wf_inst *inst, wf_stage_kind kind, int depth)
{
    if (kind == WF_ST_ONCE)
        return inst->level == WF_LEVEL_ONE;
    return inst->level == WF_LEVEL_ROW && inst->phase == depth;
}

/* One stage of the single values not computed yet whose sources are, up to the next pick. */
static bool single_stage(build *b, wf_stage_kind kind, int depth, const bool *done, bool *now)
{
    const wf_program *p = b->p;
    bool any = false;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        now[i] = false;
        if (done[i] || !is_single(inst, kind, depth) || inst->kind == WF_INST_PICK)
            continue;
        bool ready = true;
        for (int k = 0; k < inst->nsrc; k++) {
            const int def = inst->src[k] < 0 ? -1 : p->def[inst->src[k]];
            const bool mine = def >= 0 && is_single(&p->inst[def], kind, depth);
            ready &= !mine || done[def] || now[def];
        }
        now[i] = ready;
        any |= ready;
    }
    if (!any)
        return true;
    if (!open_stage(b, kind))
        return false;
    const int stage = b->r->nstage - 1;
    for (int i = 0; i < p->ninst; i++)
        if (now[i] && p->inst[i].value >= 0)
            b->at[p->inst[i].value] = (int16_t)stage;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        if (!now[i])
            continue;
        if (inst->kind == WF_INST_CHECK) {
            check(b, inst, 0);
            continue;
        }
        const wf_kref x = want(b, inst->value);
        if (leaves(p, inst->value, now))
            output(b, WF_PORT_SLOT, 0, inst->value, x);
        if (kind == WF_ST_ROW)
            row_outputs(b, inst->value, stage);
    }
    return true;
}

static bool singles(build *b, wf_stage_kind kind, int depth)
{
    const wf_program *p = b->p;
    bool done[WF_PROGRAM_INSTS] = {false}, now[WF_PROGRAM_INSTS];
    for (int left = WF_PROGRAM_INSTS; left > 0; left--) {
        if (!single_stage(b, kind, depth, done, now))
            return false;
        bool more = false;
        for (int i = 0; i < p->ninst; i++)
            done[i] |= now[i];
        for (int i = 0; i < p->ninst; i++) {
            const wf_inst *inst = &p->inst[i];
            if (done[i] || inst->kind != WF_INST_PICK || !is_single(inst, kind, depth))
                continue;
            const int def = p->def[inst->src[1]];
            if (def >= 0 && is_single(&p->inst[def], kind, depth) && !done[def])
                continue;
            if (!index_slot(b, inst->src[1]) || !pick(b, inst))
                return false;
            done[i] = more = true;
        }
        if (!more)
            return true;
    }
    return true;
}

/* Outputs that are totals, picked elements or the same for every row. */
static bool total_outputs(build *b, int depth)
{
    const wf_program *p = b->p;
    bool open = false;
    for (int k = 0; k < p->noutput; k++) {
        const wf_inst *inst = inst_of(p, p->output[k]);
        const bool total = inst->kind == WF_INST_REDUCE || inst->kind == WF_INST_PICK ||
                           inst->level == WF_LEVEL_ONE;
        if (!total || p->depth[p->output[k]] != depth || p->output_level[k] != WF_LEVEL_ROW)
            continue;
        if (!open && !open_stage(b, WF_ST_ROW))
            return false;
        open = true;
        output(b, WF_PORT_DST, 0, k, to_memory(b, p->output[k], want(b, p->output[k])));
        b->r->stored[k] = (int16_t)(b->r->nstage - 1);
    }
    return true;
}

/* -- elements -------------------------------------------------------------------------------------------- */
/* Phase in which output k is put out. */
static int phase_of_output(const wf_program *p, int k)
{
    const int v = p->output[k];
    return p->level[v] == WF_LEVEL_ELEM ? inst_of(p, v)->phase : p->depth[v];
}

static wf_kprim combine_of(int op)
{
    return op == WF_OP_SUM    ? WF_KP_ADD
           : op == WF_OP_PROD ? WF_KP_MUL
           : op == WF_OP_AMAX ? WF_KP_MAX
           : op == WF_OP_AMIN ? WF_KP_MIN
           : op == WF_OP_ANY  ? WF_KP_BOR
                              : WF_KP_BAND;
}

static bool elements(build *b, int phase)
{
    const wf_program *p = b->p;
    if (!open_stage(b, WF_ST_ELEM))
        return false;
    const int stage = b->r->nstage - 1;
    b->phase = phase;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        const int v = inst->value;
        if (inst->level != WF_LEVEL_ELEM || inst->phase != phase)
            continue;
        if (inst->kind == WF_INST_REDUCE) {
            output(b, WF_PORT_TOTAL, (int)combine_of(inst->op), v, want(b, inst->src[0]));
            b->at[v] = (int16_t)stage;
        } else if (inst->kind == WF_INST_CHECK) {
            check(b, inst, WF_KP_BAND);
        } else if (b->keep[v] >= 0) {
            output(b, WF_PORT_KEEP, 0, b->keep[v], to_memory(b, v, want(b, v)));
        }
    }
    for (int k = 0; k < p->noutput; k++)
        if (p->output_level[k] == WF_LEVEL_ELEM && phase_of_output(p, k) == phase) {
            const int v = p->output[k];
            output(b, WF_PORT_DST, 0, k, to_memory(b, v, want(b, v)));
            b->r->stored[k] = (int16_t)stage;
        }
    if (b->st->body.nout == 0) { /* all of it is computed where it is read */
        wf_kir_free(&b->st->body);
        b->r->nstage--;
    }
    return true;
}

/* ELEM values that are worth a buffer: read by a later phase, and not a few cheap steps away from what is
 * there. */
static bool choose_kept(build *b)
{
    const wf_program *p = b->p;
    uint8_t until[WF_PROGRAM_VALUES] = {0};
    int work[WF_PROGRAM_VALUES] = {0};
    for (int i = 0; i < p->ninst; i++)
        for (int k = 0; k < p->inst[i].nsrc && p->inst[i].level == WF_LEVEL_ELEM; k++)
            if (p->inst[i].src[k] >= 0 && p->inst[i].phase > until[p->inst[i].src[k]])
                until[p->inst[i].src[k]] = p->inst[i].phase;
    enum { CHEAP = 1, DEAR = 8, WORTH = 4 };
    memset(b->keep, -1, sizeof b->keep);
    for (int j = 0; j < p->ninput; j++)
        work[p->input[j]] = is_drawn(b, j) ? DEAR : 0;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        const int v = inst->value;
        if (v < 0 || p->level[v] != WF_LEVEL_ELEM)
            continue;
        const bool row = inst->kind == WF_INST_MAP || inst->kind == WF_INST_VJP;
        work[v] = !row ? CHEAP : wf_rows[inst->op].ulp > 0 || inst->op == WF_OP_DIV ? DEAR : CHEAP;
        for (int k = 0; k < inst->nsrc; k++)
            work[v] += inst->src[k] >= 0 ? work[inst->src[k]] : 0;
        if (until[v] <= inst->phase || work[v] <= WORTH)
            continue;
        if (b->r->nkeep == WF_ROWS_KEEPS)
            return false;
        work[v] = 0;
        b->r->keep_type[b->r->nkeep] = (uint8_t)wf_kir_storage(p->type[v]);
        b->keep[v] = (int16_t)b->r->nkeep++;
    }
    return true;
}

static void describe(const build *b)
{
    wf_rows_kernel *r = b->r;
    const wf_program *p = b->p;
    r->ndst = p->noutput;
    for (int k = 0; k < p->noutput; k++) {
        r->dst_type[k] = (uint8_t)wf_kir_storage(p->type[p->output[k]]);
        r->row_dst |= p->output_level[k] == WF_LEVEL_ROW ? 1u << k : 0;
    }
    for (int i = 0; i < p->ninput; i++) {
        r->src_type[i] =
            (uint8_t)(is_drawn(b, i) ? WF_KT_I64 : wf_kir_storage(p->type[p->input[i]]));
        r->row_src |= p->level[p->input[i]] == WF_LEVEL_ROW ? 1u << i : 0;
    }
    for (int i = 0; i < p->nscalar; i++)
        r->scalar_type[i] = (uint8_t)wf_kir_storage(p->type[p->scalar[i]]);
    for (int v = 0; v < p->nvalue; v++)
        r->slot_type[v] = (uint8_t)wf_lower_type(p->type[v]);
    memset(r->last_read, -1, sizeof r->last_read);
}

static bool all_stages(build *b)
{
    const wf_program *p = b->p;
    int deepest = 0;
    for (int i = 0; i < p->ninst; i++)
        if (p->inst[i].level == WF_LEVEL_ROW && p->inst[i].phase > deepest)
            deepest = p->inst[i].phase;
    for (int k = 0; k < p->noutput; k++)
        deepest = p->depth[p->output[k]] > deepest ? p->depth[p->output[k]] : deepest;
    if (!singles(b, WF_ST_ONCE, 0))
        return false;
    for (int d = 0; d <= deepest || d < p->nphase; d++) {
        if (!singles(b, WF_ST_ROW, d) || !total_outputs(b, d))
            return false;
        if (d < p->nphase && !elements(b, d))
            return false;
    }
    return true;
}

/* -- cutting a row ---------------------------------------------------------------------------------------- */
/* Can blocks of a row run on their own? One stage sees elements, by their values alone, and reduces them; no stage before
 * it stores anything. */
static int cut_of(const build *b)
{
    const wf_rows_kernel *r = b->r;
    int cut = -1;
    for (int s = 0; s < r->nstage; s++) {
        const wf_stage *st = &r->stage[s];
        if (st->kind == WF_ST_PICK || (st->kind == WF_ST_ELEM && cut >= 0))
            return -1;
        for (uint32_t o = 0; o < st->body.nout && st->kind == WF_ST_ROW && cut < 0; o++)
            if (st->out[o].kind == WF_PORT_DST)
                return -1;
        cut = st->kind == WF_ST_ELEM ? s : cut;
    }
    for (uint32_t i = 0; cut >= 0 && i < r->stage[cut].body.nparam; i++)
        if (r->stage[cut].in[i].kind == WF_PORT_INDEX)
            return -1;
    return wf_program_draws(b->p) == 0 ? cut : -1;
}

static void choose_cut(build *b)
{
    wf_rows_kernel *r = b->r;
    r->cut = b->l.device ? -1 : cut_of(b);
    const wf_stage *st = r->cut >= 0 ? &r->stage[r->cut] : NULL;
    for (uint32_t o = 0; st && o < st->body.nout; o++)
        if (st->out[o].kind == WF_PORT_TOTAL) {
            r->total_op[r->ntotal] = st->out[o].op;
            r->total_type[r->ntotal++] = (uint8_t)wf_kir_type(&st->body, st->body.out[o]);
        }
    r->cut = r->ntotal > 0 ? r->cut : -1;
}

int wf_lower_rows(const wf_program *p, bool device, wf_kernel *k, wf_why *why)
{
    build b = {.p = p, .l.p = p, .l.device = device, .l.relax = p->fast && !device};
    k->skeleton = WF_SK_ROW;
    k->nsrc = p->ninput;
    k->nscalar = p->nscalar;
    k->rows = b.r = calloc(1, sizeof *k->rows);
    wf_lower_name(p, k);
    memset(b.at, NOWHERE, sizeof b.at);
    int status = 0;
    if (b.r)
        describe(&b);
    if (!b.r)
        status = wf_fail(why, WEFT_ENOMEM, "no memory for a kernel over rows");
    else if (!choose_kept(&b))
        status = wf_fail(why, WEFT_EUNSUPPORTED, "more than %d kept values", WF_ROWS_KEEPS);
    else if (!all_stages(&b))
        status = wf_fail(why, WEFT_ENOMEM, "no memory for a kernel over rows");
    else
        choose_cut(&b);
    for (int i = 0; i < (b.r ? b.r->nstage : 0) && status == 0; i++)
        if (b.r->stage[i].kind != WF_ST_PICK)
            status = wf_kir_finish(&b.r->stage[i].body, why);
    if (status != 0)
        wf_kernel_free(k);
    return status;
}
