/*
 * eager/program_vector.c -- ROW and ONE values of a group: vectors of one element per row, and single
 * elements; see program_task.h.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/program_task.h"

char *wf_row_slot(const wf_row_task *t, int v)
{
    return t->mem + t->r->row + t->r->plan.slot[v] * t->r->row_pitch;
}

static bool is_one(const wf_row_task *t, int v)
{
    return t->r->p->level[v] == WF_LEVEL_ONE;
}

static void do_pick(wf_row_task *t, const wf_inst *inst, char *out)
{
    const wf_row_run *r = t->r;
    const wf_operand *o = &r->s.op[r->p->noutput - 1 - r->p->def[inst->src[0]]];
    const int64_t *index = t->at[inst->src[1]];
    for (int64_t i = 0; i < t->gn; i++) {
        const int64_t c = is_one(t, inst->src[1]) ? *index : index[i];
        if (c < 0 || c >= r->s.n)
            memset(out + i * o->esize, 0, (size_t)o->esize);
        else
            memcpy(out + i * o->esize, o->data + wf_space_offset(&r->s, o, t->g0 + i, c) * o->esize,
                   (size_t)o->esize);
    }
}

static void do_step(wf_row_task *t, int i)
{
    const wf_row_run *r = t->r;
    const wf_inst *inst = &r->p->inst[i];
    const int v = inst->value;
    const void *src[5];
    unsigned bcast = 0;
    for (int k = 0; k < inst->nsrc && inst->kind != WF_INST_PICK; k++) {
        const int from = inst->src[k];
        src[k] = from < 0 ? src[0] : t->at[from];
        bcast |= from < 0 ? (bcast & 1) << k : is_one(t, from) ? 1u << k : 0;
    }
    const int64_t n = inst->level == WF_LEVEL_ONE ? 1 : t->gn;
    if (inst->kind == WF_INST_CHECK) {
        if (memchr(src[0], 0, (size_t)n) != NULL)
            atomic_store_explicit(&t->r->status, WEFT_EINDEX, memory_order_relaxed);
        return;
    }
    char *out = wf_row_slot(t, v);
    t->at[v] = out;
    if (inst->kind == WF_INST_PICK)
        do_pick(t, inst, out);
    else if (inst->kind == WF_INST_EXPAND)
        wf_fill_tile(out, src[0], wf_dtype_size(inst->compute), (size_t)n);
    else if (inst->kind == WF_INST_CAST)
        r->fn[i].cast(out, src[0], (size_t)n);
    else
        r->fn[i].map(out, src, (size_t)n, n == 1 ? 0 : bcast);
}

void wf_do_row_steps(wf_row_task *t, int depth)
{
    const wf_row_plan *plan = &t->r->plan;
    for (int i = plan->row_begin[depth]; i < plan->row_begin[depth + 1]; i++)
        do_step(t, plan->row[i]);
}

void wf_load_rows(wf_row_task *t)
{
    const wf_row_run *r = t->r;
    const wf_program *p = r->p;
    for (int j = 0; j < p->ninput; j++) {
        const wf_operand *o = &r->s.op[p->noutput + j];
        if (p->level[p->input[j]] != WF_LEVEL_ROW)
            continue;
        if (t->gn == 1 || (o->one_row && o->row == 1)) {
            t->at[p->input[j]] = o->data + wf_space_offset(&r->s, o, t->g0, 0) * o->esize;
            continue;
        }
        char *vector = t->mem + r->row + (r->plan.nslot + j) * r->row_pitch;
        wf_space_load(&r->s, o, r->k, vector, t->g0, t->gn, 0, 1, false);
        t->at[p->input[j]] = vector;
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
        if (is_one(t, v)) {
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
