/*
 * eager/program_rows.c -- the tile interpreter of programs with ROW values.
 *
 * A task takes groups of rows. ROW values of a group are vectors; a phase walks the group in strips,
 * whole rows where they are short and pieces of one row where they are long, and runs its steps on each;
 * values that a later phase reads stay in row buffers meanwhile. So small rows cost no call per row, and
 * everything a phase reads again is in the first or second cache.
 *
 * Invariants
 *  - Groups and strips are cut by shapes alone, and sums follow the canonical order: no result depends
 *    on threads or tiles.
 *  - A destination may be an input's memory: see program_plan.c.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/program_canon.h"
#include "eager/program_plan.h"
#include "eager/reduce.h"

enum {
    STRIP = 1024,     /* elements that steps run on */
    LEAST_STRIP = 64, /* one step of the canonical order */
    GROUP = 8192,     /* elements of a group, about */
    GROUP_ROWS = 64,  /* most rows of a group of long rows */
    SHORT_ROWS = 256, /* most rows of a strip */
    KEEP = 512 << 10, /* most bytes of row buffers; longer rows are computed again */
    STACK = 48 << 10, /* scratch that needs no allocation */
    SPREADS = 6,      /* tiles of broadcast sources, and one for stores */
    TASK = 1 << 16    /* element steps worth a task */
};

/* How the strips of an ELEM input are reached. */
enum { IN_PLACE, IN_ELEMENT, IN_COLUMN, IN_GATHER };

typedef struct run {
    const wf_program *p;
    const wf_program_args *a;
    const wf_kernels *k;
    wf_space s;
    wf_row_plan plan;
    wf_inst_fn fn[WF_PROGRAM_INSTS];
    int64_t strip;      /* room of a tile, elements */
    int64_t rows, cols; /* of a full strip */
    int64_t group;      /* rows */
    uint8_t way[WF_PROGRAM_INPUTS];
    uint32_t direct;                                    /* outputs whose strips lie in place */
    int64_t keep, reg, load, spread, row, canon, bytes; /* parts of the scratch */
    int64_t pitch, row_pitch;                           /* bytes of a tile and of a ROW vector */
    _Atomic int status;
} run;

typedef struct task {
    run *r;
    char *mem;
    int64_t g0, gn;         /* rows of the group */
    int64_t r0, rn, c0, cn; /* the strip */
    int64_t held_rows;      /* rows for which IN_COLUMN tiles and iotas are made */
    const void *at[WF_PROGRAM_VALUES];
    bool one[WF_PROGRAM_VALUES]; /* one element stands for all */
} task;

/* -- sources ------------------------------------------------------------------------------------------- */
static char *keep_of(const task *t, int v)
{
    const run *r = t->r;
    const int64_t size = (int64_t)wf_dtype_size(r->p->type[v]), n = r->s.n;
    return t->mem + r->keep + r->plan.keep_at[v] * r->group * n +
           ((t->r0 - t->g0) * n + t->c0) * size;
}

static void spread_rows(const task *t, void *tile, const void *rows, int64_t size)
{
    for (int64_t i = 0; i < t->rn; i++)
        wf_fill_tile((char *)tile + i * t->cn * size, (const char *)rows + i * size, (size_t)size,
                     (size_t)t->cn);
}

/* Value v over the strip: one element (then *one) or a tile; tile `spare` takes what must be spread. */
static const void *source(const task *t, int v, int spare, bool *one)
{
    const run *r = t->r;
    *one = t->one[v];
    if (r->p->level[v] == WF_LEVEL_ELEM) {
        if (r->plan.keep_at[v] < 0)
            return t->at[v];
        *one = false;
        return keep_of(t, v);
    }
    if (*one)
        return t->at[v];
    const int64_t size = (int64_t)wf_dtype_size(r->p->type[v]);
    const char *rows = (const char *)t->at[v] + (t->r0 - t->g0) * size;
    if (t->rn == 1) {
        *one = true;
        return rows;
    }
    char *tile = t->mem + r->spread + spare * r->pitch;
    spread_rows(t, tile, rows, size);
    return tile;
}

/* The same, always a tile. */
static const void *full_source(const task *t, int v, int spare)
{
    bool one;
    const void *at = source(t, v, spare, &one);
    const int64_t n = t->rn * t->cn;
    if (!one || n == 1)
        return at;
    char *tile = t->mem + t->r->spread + spare * t->r->pitch;
    wf_fill_tile(tile, at, wf_dtype_size(t->r->p->type[v]), (size_t)n);
    return tile;
}

/* The strip of input j. */
static void load_input(task *t, int j)
{
    run *r = t->r;
    const wf_operand *o = &r->s.op[r->p->noutput + j];
    const int v = r->p->input[j];
    char *tile = t->mem + r->load + j * r->pitch;
    t->one[v] = r->way[j] == IN_ELEMENT;
    if (r->way[j] == IN_PLACE || r->way[j] == IN_ELEMENT) {
        t->at[v] = o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
    } else if (r->way[j] == IN_COLUMN) {
        if (t->held_rows < t->rn)
            wf_space_load(&r->s, o, r->k, tile, 0, t->rn, t->c0, t->cn);
        t->at[v] = tile;
    } else {
        wf_space_load(&r->s, o, r->k, tile, t->r0, t->rn, t->c0, t->cn);
        t->at[v] = tile;
    }
}

/* -- reductions ------------------------------------------------------------------------------------------ */
static wf_red red_of(int op)
{
    return op == WF_OP_SUM    ? WF_RED_SUM
           : op == WF_OP_PROD ? WF_RED_PROD
           : op == WF_OP_AMAX ? WF_RED_MAX
                              : WF_RED_MIN;
}

static uint8_t truth_of(const wf_inst *inst, const uint8_t *x, int64_t n)
{
    const bool any = inst->op == WF_OP_ANY;
    return (memchr(x, any ? 1 : 0, (size_t)n) != NULL) == any;
}

/* The value of a reduction over nothing. */
static void empty_reduction(const wf_inst *inst, char *out)
{
    memset(out, 0, wf_dtype_size(inst->compute));
    if (inst->op == WF_OP_ALL || (inst->op == WF_OP_PROD && inst->compute == WEFT_I64))
        *out = 1;
    else if (inst->op == WF_OP_PROD && inst->compute == WEFT_F32)
        *(float *)(void *)out = 1.0f;
    else if (inst->op == WF_OP_PROD)
        *(double *)(void *)out = 1.0;
}

static char *slot_of(const task *t, int v)
{
    return t->mem + t->r->row + t->r->plan.slot[v] * t->r->row_pitch;
}

static wf_canon *canon_of(const task *t, int v)
{
    return (wf_canon *)(void *)(t->mem + t->r->canon +
                                t->r->plan.slot[v] * (int64_t)sizeof(wf_canon));
}

static void reduce_step(task *t, const wf_inst *inst)
{
    const run *r = t->r;
    const int v = inst->value;
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    const char *x = full_source(t, inst->src[0], 0);
    char *out = slot_of(t, v) + (t->r0 - t->g0) * size;
    const bool whole = t->cn == r->s.n;
    t->at[v] = slot_of(t, v);
    t->one[v] = false;
    if (inst->compute == WEFT_BOOL) {
        for (int64_t i = 0; i < t->rn; i++) {
            const uint8_t b = truth_of(inst, (const uint8_t *)x + i * t->cn, t->cn);
            const uint8_t old = t->c0 == 0 ? b : ((uint8_t *)out)[i];
            ((uint8_t *)out)[i] = inst->op == WF_OP_ANY ? b | old : b & old;
        }
        return;
    }
    const wf_red op = red_of(inst->op);
    const wf_red_kernels *k = wf_red_kernels_of(inst->compute);
    if (whole && t->cn <= WF_LANES && t->rn > 1) {
        k->shorts[op](out, x, t->cn, t->cn, t->rn);
    } else if (whole) {
        for (int64_t i = 0; i < t->rn; i++)
            k->run[op](out + i * size, x + i * t->cn * size, t->cn);
    } else {
        wf_canon *c = canon_of(t, v);
        if (t->c0 == 0)
            wf_canon_begin(c, k, op);
        wf_canon_add(c, x, t->cn);
        if (t->c0 + t->cn == r->s.n)
            wf_canon_end(c, out);
    }
}

/* -- steps -------------------------------------------------------------------------------------------------- */
static void fail_check(run *r, const uint8_t *x, int64_t n)
{
    if (memchr(x, 0, (size_t)n) != NULL)
        atomic_store_explicit(&r->status, WEFT_EINDEX, memory_order_relaxed);
}

static void iota_step(const task *t, const wf_inst *inst, void *out)
{
    const wf_cast_fn cast = t->r->k->cast[inst->compute][WEFT_I64];
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    int64_t some[64];
    for (int64_t j = 0; j < t->cn; j += 64) {
        const int64_t m = t->cn - j < 64 ? t->cn - j : 64;
        for (int64_t i = 0; i < m; i++)
            some[i] = t->c0 + j + i;
        cast((char *)out + j * size, some, (size_t)m);
    }
    for (int64_t i = 1; i < t->rn; i++)
        memcpy((char *)out + i * t->cn * size, out, (size_t)(t->cn * size));
}

static char *place_of(const task *t, const wf_step *s, int v)
{
    const run *r = t->r;
    if (s->kept)
        return keep_of(t, v);
    if (s->out >= 0) {
        const wf_operand *o = &r->s.op[s->out];
        return o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
    }
    return t->mem + r->reg + s->reg * r->pitch;
}

static void elem_step(task *t, const wf_step *s)
{
    const run *r = t->r;
    const wf_inst *inst = &r->p->inst[s->inst];
    const int v = inst->value;
    const void *src[5];
    unsigned bcast = 0;
    bool all = true;
    int64_t n = t->rn * t->cn;
    if (inst->kind == WF_INST_REDUCE) {
        reduce_step(t, inst);
        return;
    }
    if (inst->kind == WF_INST_CHECK) {
        fail_check(t->r, full_source(t, inst->src[0], 0), n);
        return;
    }
    char *out = place_of(t, s, v);
    t->at[v] = out;
    t->one[v] = false;
    if (inst->kind == WF_INST_IOTA) {
        iota_step(t, inst, out);
        return;
    }
    for (int k = 0; k < inst->nsrc; k++) {
        bool one = false;
        if (inst->src[k] < 0) {
            src[k] = src[0];
            bcast |= (bcast & 1) << k;
            continue;
        }
        src[k] = source(t, inst->src[k], k, &one);
        bcast |= one ? 1u << k : 0;
        all &= one;
    }
    if (all) {
        const bool spread = s->kept || s->out >= 0;
        const int64_t full = n;
        char some[8];
        char *to = spread ? some : out;
        n = 1;
        if (inst->kind == WF_INST_CAST)
            r->fn[s->inst].cast(to, src[0], 1);
        else if (inst->kind == WF_INST_EXPAND)
            memcpy(to, src[0], wf_dtype_size(inst->compute));
        else
            r->fn[s->inst].map(to, src, 1, 0);
        t->one[v] = !spread;
        if (spread)
            wf_fill_tile(out, some, wf_dtype_size(r->p->type[v]), (size_t)full);
        return;
    }
    if (inst->kind == WF_INST_CAST)
        r->fn[s->inst].cast(out, src[0], (size_t)n);
    else if (inst->kind == WF_INST_EXPAND)
        memcpy(out, src[0], (size_t)n * wf_dtype_size(inst->compute));
    else
        r->fn[s->inst].map(out, src, (size_t)n, bcast);
}

/* Output k of the strip, unless a step wrote it. */
static void store_output(task *t, int k, const void *tile)
{
    const run *r = t->r;
    const wf_operand *o = &r->s.op[k];
    const int type = r->p->type[r->p->output[k]];
    const int64_t n = t->rn * t->cn;
    char *to = o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
    char *raw = t->mem + r->spread + (SPREADS - 1) * r->pitch;
    if ((r->direct >> k & 1) != 0) {
        if (tile != to)
            r->k->cast[o->dtype][type](to, tile, (size_t)n);
        return;
    }
    if (o->dtype != type) {
        r->k->cast[o->dtype][type](raw, tile, (size_t)n);
        tile = raw;
    }
    wf_space_store(&r->s, o, r->k, tile, t->r0, t->rn, t->c0, t->cn);
}

static void do_strip(task *t, int phase)
{
    const run *r = t->r;
    const wf_row_plan *plan = &r->plan;
    for (int j = 0; plan->reads[phase] >> j != 0; j++)
        if ((plan->reads[phase] >> j & 1) != 0)
            load_input(t, j);
    for (int s = plan->begin[phase]; s < plan->begin[phase + 1]; s++)
        elem_step(t, &plan->step[s]);
    for (int k = 0; k < r->p->noutput; k++)
        if (r->p->output_level[k] == WF_LEVEL_ELEM && plan->out_phase[k] == phase)
            store_output(t, k, full_source(t, r->p->output[k], 0));
}

static void do_phase(task *t, int phase)
{
    const run *r = t->r;
    const int64_t end = t->g0 + t->gn;
    t->held_rows = 0;
    for (t->r0 = t->g0; t->r0 < end; t->r0 += t->rn) {
        t->rn = end - t->r0 < r->rows ? end - t->r0 : r->rows;
        for (t->c0 = 0; t->c0 < r->s.n; t->c0 += t->cn) {
            t->cn = r->s.n - t->c0 < r->cols ? r->s.n - t->c0 : r->cols;
            do_strip(t, phase);
            t->held_rows = r->cols == r->s.n ? t->rn : 0;
        }
    }
}

/* -- rows ------------------------------------------------------------------------------------------------- */
static void pick(task *t, const wf_inst *inst, char *out)
{
    const run *r = t->r;
    const wf_operand *o = &r->s.op[r->p->noutput - 1 - r->p->def[inst->src[0]]];
    const int64_t *index = t->at[inst->src[1]];
    for (int64_t i = 0; i < t->gn; i++) {
        const int64_t c = t->one[inst->src[1]] ? *index : index[i];
        if (c < 0 || c >= r->s.n)
            memset(out + i * o->esize, 0, (size_t)o->esize);
        else
            memcpy(out + i * o->esize, o->data + wf_space_offset(&r->s, o, t->g0 + i, c) * o->esize,
                   (size_t)o->esize);
    }
}

static void row_step(task *t, int i)
{
    const run *r = t->r;
    const wf_inst *inst = &r->p->inst[i];
    const int v = inst->value;
    const void *src[5];
    unsigned bcast = 0;
    bool all = true;
    for (int k = 0; k < inst->nsrc && inst->kind != WF_INST_PICK; k++) {
        const int from = inst->src[k];
        src[k] = from < 0 ? src[0] : t->at[from];
        const bool one = from < 0 ? (bcast & 1) != 0 : t->one[from];
        bcast |= one ? 1u << k : 0;
        all &= one || from < 0;
    }
    if (inst->kind == WF_INST_CHECK) {
        fail_check(t->r, src[0], all ? 1 : t->gn);
        return;
    }
    char *out = slot_of(t, v);
    t->at[v] = out;
    t->one[v] = false;
    if (inst->kind == WF_INST_PICK) {
        pick(t, inst, out);
        return;
    }
    const size_t n = all ? 1 : (size_t)t->gn;
    t->one[v] = all;
    if (inst->kind == WF_INST_EXPAND)
        memcpy(out, src[0], n * wf_dtype_size(inst->compute));
    else if (inst->kind == WF_INST_CAST)
        r->fn[i].cast(out, src[0], n);
    else
        r->fn[i].map(out, src, n, all ? 0 : bcast);
}

static void load_rows(task *t)
{
    const run *r = t->r;
    const wf_program *p = r->p;
    for (int j = 0; j < p->ninput; j++) {
        const wf_operand *o = &r->s.op[p->noutput + j];
        const int v = p->input[j];
        if (p->level[v] != WF_LEVEL_ROW)
            continue;
        t->one[v] = t->gn == 1 || (o->one_row && o->row == 0);
        if (t->one[v] || (o->one_row && o->row == 1)) {
            t->at[v] = o->data + wf_space_offset(&r->s, o, t->g0, 0) * o->esize;
        } else {
            char *tile = t->mem + r->row + (r->plan.nslot + j) * r->row_pitch;
            wf_space_load(&r->s, o, r->k, tile, t->g0, t->gn, 0, 1);
            t->at[v] = tile;
        }
    }
}

static void store_rows(task *t)
{
    const run *r = t->r;
    char *spare = t->mem + r->row + (r->plan.nslot + r->p->ninput) * r->row_pitch;
    for (int k = 0; k < r->p->noutput; k++) {
        const wf_operand *o = &r->s.op[k];
        const int v = r->p->output[k], type = r->p->type[v];
        const void *from = t->at[v];
        if (r->p->output_level[k] != WF_LEVEL_ROW)
            continue;
        if (t->one[v] && t->gn > 1) {
            wf_fill_tile(spare, from, wf_dtype_size(type), (size_t)t->gn);
            from = spare;
        }
        if (o->dtype != type) {
            char *cast = spare + r->row_pitch;
            r->k->cast[o->dtype][type](cast, from, (size_t)t->gn);
            from = cast;
        }
        wf_space_store(&r->s, o, r->k, from, t->g0, t->gn, 0, 1);
    }
}

static void do_group(task *t)
{
    const run *r = t->r;
    const wf_row_plan *plan = &r->plan;
    load_rows(t);
    if (r->s.n == 0) /* reductions of nothing */
        for (int i = 0; i < r->p->ninst; i++) {
            const wf_inst *inst = &r->p->inst[i];
            if (inst->kind == WF_INST_REDUCE) {
                empty_reduction(inst, slot_of(t, inst->value));
                t->at[inst->value] = slot_of(t, inst->value);
                t->one[inst->value] = true;
            }
        }
    for (int d = 0; d <= plan->depth || d < plan->nphase; d++) {
        if (d <= plan->depth)
            for (int i = plan->row_begin[d]; i < plan->row_begin[d + 1]; i++)
                row_step(t, plan->row[i]);
        if (d < plan->nphase)
            do_phase(t, d);
    }
    store_rows(t);
}

static void do_groups(void *arg, int64_t begin, int64_t end)
{
    run *r = arg;
    _Alignas(64) char stack[STACK];
    task t = {.r = r, .mem = stack};
    if (r->bytes > STACK) {
        t.mem = wf_alloc((size_t)r->bytes);
        if (t.mem == NULL) {
            atomic_store_explicit(&r->status, WEFT_ENOMEM, memory_order_relaxed);
            return;
        }
    }
    for (int k = 0; k < r->p->nscalar; k++) {
        t.at[r->p->scalar[k]] = r->a->scalars[k];
        t.one[r->p->scalar[k]] = true;
    }
    for (int64_t g = begin; g < end; g++) {
        t.g0 = g * r->group;
        t.gn = r->s.rows - t.g0 < r->group ? r->s.rows - t.g0 : r->group;
        do_group(&t);
    }
    if (t.mem != stack)
        wf_free(t.mem, (size_t)r->bytes);
}

/* -- a run ------------------------------------------------------------------------------------------------ */
/* Is every strip of the operand a contiguous tile? */
static bool lies_in_place(const run *r, const wf_operand *o)
{
    if (!o->one_col || (o->col != 1 && r->s.n != 1))
        return false;
    return r->rows == 1 || (o->one_row && o->row == r->s.n);
}

static void classify(run *r)
{
    const wf_program *p = r->p;
    r->direct = 0;
    for (int k = 0; k < p->noutput; k++)
        if (p->output_level[k] == WF_LEVEL_ELEM && lies_in_place(r, &r->s.op[k]))
            r->direct |= 1u << k;
    for (int j = 0; j < p->ninput; j++) {
        const wf_operand *o = &r->s.op[p->noutput + j];
        const bool flat_row = o->one_row && o->row == 0;
        if (o->one_col && o->col == 0 && (flat_row || r->rows == 1))
            r->way[j] = IN_ELEMENT;
        else if (lies_in_place(r, o))
            r->way[j] = IN_PLACE;
        else
            r->way[j] = r->rows > 1 && flat_row ? IN_COLUMN : IN_GATHER;
    }
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Strips of at most r->strip elements. */
static void cut_strips(run *r)
{
    const int64_t n = r->s.n > 0 ? r->s.n : 1;
    if (2 * n <= r->strip) {
        r->cols = n;
        r->rows = r->strip / n < SHORT_ROWS ? r->strip / n : SHORT_ROWS;
        return;
    }
    r->rows = 1;
    r->cols = n;
    if (n > r->strip && n <= WF_BLOCK) { /* pieces of about one size */
        const int64_t pieces = (n + r->strip - 1) / r->strip;
        r->cols = round_up((n + pieces - 1) / pieces, LEAST_STRIP);
    } else if (n > r->strip) {
        r->cols = r->strip;
    }
}

static void cut_groups(run *r)
{
    const int64_t n = r->s.n > 0 ? r->s.n : 1;
    r->group = GROUP / n < GROUP_ROWS ? GROUP / n : GROUP_ROWS;
    r->group = r->group < 1 ? 1 : r->group;
    r->group = round_up(r->group, r->rows);
}

/* Where things lie in a task's scratch. */
static void lay_out(run *r)
{
    const wf_row_plan *plan = &r->plan;
    int64_t at = 0;
    const int width = plan->width > 8 ? plan->width : 8;
    r->pitch = r->strip * width;
    r->row_pitch = round_up(r->group * 8, 64);
    r->reg = at;
    at += plan->nreg * r->pitch;
    r->spread = at;
    at += SPREADS * r->pitch;
    r->load = at;
    for (int j = 0; j < r->p->ninput; j++)
        if (r->p->level[r->p->input[j]] == WF_LEVEL_ELEM && r->way[j] >= IN_COLUMN)
            at = r->load + (j + 1) * r->pitch;
    r->row = at;
    at += (plan->nslot + r->p->ninput + 2) * r->row_pitch;
    r->canon = round_up(at, 64);
    at = r->canon + (r->cols < r->s.n ? plan->nslot * (int64_t)sizeof(wf_canon) : 0);
    r->keep = at;
    at += round_up(plan->keep_bytes * r->group * r->s.n, 64);
    r->bytes = round_up(at, 64);
}

static int begin_run(run *r)
{
    const wf_program *p = r->p;
    wf_space_init(&r->s, p, r->a);
    r->strip = STRIP;
    cut_strips(r);
    classify(r);
    bool fits = wf_row_plan_make(&r->plan, p, r->a, r->direct, false);
    cut_groups(r);
    if (r->plan.keep_bytes * r->group * r->s.n > KEEP)
        fits = wf_row_plan_make(&r->plan, p, r->a, r->direct, true) ||
               wf_row_plan_make(&r->plan, p, r->a, r->direct, false);
    lay_out(r);
    for (int i = 0; i < p->ninst; i++)
        r->fn[i] = wf_inst_function(p, &p->inst[i], r->k);
    return fits ? 0 : WEFT_ENOMEM;
}

int wf_program_run_rows(const wf_program *p, const wf_program_args *a)
{
    run r = {.p = p, .a = a, .k = wf_kernels_now()};
    int status = begin_run(&r);
    if (status != 0 || r.s.rows == 0)
        return status;
    const int64_t groups = (r.s.rows + r.group - 1) / r.group;
    const int64_t steps = (p->ninst + 2) * (p->heavy ? 4 : 1);
    const int64_t cost = r.group * (r.s.n + 16) * steps;
    wf_parallel_for(groups, (TASK * 2 + cost - 1) / cost, do_groups, &r);
    return atomic_load_explicit(&r.status, memory_order_relaxed);
}
