/*
 * eager/program_step.c -- strips through the steps of a phase, and groups through ROW instructions; see
 * program_task.h.
 *
 * Values that are one element over a strip are computed as one element.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/program_task.h"

char *wf_row_slot(const wf_row_task *t, int v)
{
    return t->mem + t->r->row + t->r->plan.slot[v] * t->r->row_pitch;
}

/* -- sources ------------------------------------------------------------------------------------------- */
static char *keep_of(const wf_row_task *t, int v)
{
    const wf_row_run *r = t->r;
    const int64_t size = (int64_t)wf_dtype_size(r->p->type[v]), n = r->s.n;
    const int64_t at = r->turned ? t->c0 * t->rn : (t->r0 - t->g0) * n + t->c0;
    return t->mem + r->keep + r->plan.keep_at[v] * r->group * n + at * size;
}

/* A ROW value as a tile. */
static void spread_rows(const wf_row_task *t, char *tile, const char *rows, int64_t size)
{
    if (t->r->turned) {
        for (int64_t i = 0; i < t->cn; i++)
            memcpy(tile + i * t->rn * size, rows, (size_t)(t->rn * size));
        return;
    }
    for (int64_t i = 0; i < t->rn; i++)
        wf_fill_tile(tile + i * t->cn * size, rows + i * size, (size_t)size, (size_t)t->cn);
}

/* Value v over the strip: one element (then *one) or a tile; tile `spare` takes what must be spread. */
static const void *source(const wf_row_task *t, int v, int spare, bool *one)
{
    const wf_row_run *r = t->r;
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
    *one = t->rn == 1;
    if (t->rn == 1 || (r->turned && t->cn == 1))
        return rows;
    char *tile = t->mem + r->spread + spare * r->pitch;
    spread_rows(t, tile, rows, size);
    return tile;
}

const void *wf_full_source(const wf_row_task *t, int v, int spare)
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
static void load_input(wf_row_task *t, int j)
{
    wf_row_run *r = t->r;
    const wf_operand *o = &r->s.op[r->p->noutput + j];
    const int v = r->p->input[j];
    char *tile = t->mem + r->load + j * r->pitch;
    t->one[v] = r->way[j] == WF_IN_ELEMENT;
    if (r->way[j] == WF_IN_PLACE || r->way[j] == WF_IN_ELEMENT) {
        t->at[v] = o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
        return;
    }
    t->at[v] = tile;
    if (r->way[j] == WF_IN_HELD) {
        if (t->held[j] == t->rn)
            return;
        t->held[j] = t->rn;
    }
    wf_space_load(&r->s, o, r->k, tile, t->r0, t->rn, t->c0, t->cn, r->turned);
}

/* -- steps -------------------------------------------------------------------------------------------------- */
static void fail_check(wf_row_run *r, const uint8_t *x, int64_t n)
{
    if (memchr(x, 0, (size_t)n) != NULL)
        atomic_store_explicit(&r->status, WEFT_EINDEX, memory_order_relaxed);
}

static void iota_step(const wf_row_task *t, const wf_inst *inst, void *out)
{
    const wf_cast_fn cast = t->r->k->cast[inst->compute][WEFT_I64];
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    int64_t some[64];
    if (t->r->turned) {
        for (int64_t j = 0; j < t->cn; j++) {
            some[0] = t->c0 + j;
            cast(some + 1, some, 1);
            wf_fill_tile((char *)out + j * t->rn * size, some + 1, (size_t)size, (size_t)t->rn);
        }
        return;
    }
    for (int64_t j = 0; j < t->cn; j += 64) {
        const int64_t m = t->cn - j < 64 ? t->cn - j : 64;
        for (int64_t i = 0; i < m; i++)
            some[i] = t->c0 + j + i;
        cast((char *)out + j * size, some, (size_t)m);
    }
    for (int64_t i = 1; i < t->rn; i++)
        memcpy((char *)out + i * t->cn * size, out, (size_t)(t->cn * size));
}

static char *place_of(const wf_row_task *t, const wf_step *s, int v)
{
    const wf_row_run *r = t->r;
    if (s->kept)
        return keep_of(t, v);
    if (s->out >= 0) {
        const wf_operand *o = &r->s.op[s->out];
        return o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
    }
    return t->mem + r->reg + s->reg * r->pitch;
}

static void elem_step(wf_row_task *t, const wf_step *s)
{
    const wf_row_run *r = t->r;
    const wf_inst *inst = &r->p->inst[s->inst];
    const int v = inst->value;
    const void *src[5];
    unsigned bcast = 0;
    bool all = true;
    int64_t n = t->rn * t->cn;
    if (inst->kind == WF_INST_REDUCE) {
        wf_reduce_strip(t, inst);
        return;
    }
    if (inst->kind == WF_INST_CHECK) {
        fail_check(t->r, wf_full_source(t, inst->src[0], 0), n);
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
static void store_output(wf_row_task *t, int k, const void *tile)
{
    const wf_row_run *r = t->r;
    const wf_operand *o = &r->s.op[k];
    const int type = r->p->type[r->p->output[k]];
    const int64_t n = t->rn * t->cn;
    char *to = o->data + wf_space_offset(&r->s, o, t->r0, t->c0) * o->esize;
    char *raw = t->mem + r->spread + (WF_SPREADS - 1) * r->pitch;
    if ((r->direct >> k & 1) != 0) {
        if (tile != to)
            r->k->cast[o->dtype][type](to, tile, (size_t)n);
        return;
    }
    if (o->dtype != type) {
        r->k->cast[o->dtype][type](raw, tile, (size_t)n);
        tile = raw;
    }
    wf_space_store(&r->s, o, r->k, tile, t->r0, t->rn, t->c0, t->cn, r->turned);
}

void wf_do_strip(wf_row_task *t, int phase)
{
    const wf_row_run *r = t->r;
    const wf_row_plan *plan = &r->plan;
    for (int j = 0; plan->reads[phase] >> j != 0; j++)
        if ((plan->reads[phase] >> j & 1) != 0)
            load_input(t, j);
    for (int s = plan->begin[phase]; s < plan->begin[phase + 1]; s++)
        elem_step(t, &plan->step[s]);
    for (int k = 0; k < r->p->noutput; k++)
        if (r->p->output_level[k] == WF_LEVEL_ELEM && plan->out_phase[k] == phase)
            store_output(t, k, wf_full_source(t, r->p->output[k], 0));
}

/* -- rows ------------------------------------------------------------------------------------------------- */
static void pick(wf_row_task *t, const wf_inst *inst, char *out)
{
    const wf_row_run *r = t->r;
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

static void row_step(wf_row_task *t, int i)
{
    const wf_row_run *r = t->r;
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
    char *out = wf_row_slot(t, v);
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

void wf_do_row_steps(wf_row_task *t, int depth)
{
    const wf_row_plan *plan = &t->r->plan;
    for (int i = plan->row_begin[depth]; i < plan->row_begin[depth + 1]; i++)
        row_step(t, plan->row[i]);
}

void wf_load_rows(wf_row_task *t)
{
    const wf_row_run *r = t->r;
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
            wf_space_load(&r->s, o, r->k, tile, t->g0, t->gn, 0, 1, false);
            t->at[v] = tile;
        }
    }
}

void wf_store_rows(wf_row_task *t)
{
    const wf_row_run *r = t->r;
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
        wf_space_store(&r->s, o, r->k, from, t->g0, t->gn, 0, 1, false);
    }
}
