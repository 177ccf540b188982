/*
 * eager/program_plan.c -- see program_plan.h.
 *
 * Invariant: an output in an input's memory is written in the last phase that reads the input, after
 * the last step there that reads it.
 */
#include "eager/program_plan.h"

#include <string.h>

static bool is_row_work(const wf_inst *inst)
{
    return inst->level != WF_LEVEL_ELEM;
}

/* Runs for its own sake, in the phase that the program gives it. */
static bool is_root(const wf_inst *inst, int phase)
{
    return (inst->kind == WF_INST_REDUCE || inst->kind == WF_INST_CHECK) && inst->phase == phase;
}

/* Marks values that ELEM steps of the phase read or that it puts out; lists the steps if it can. */
static bool list_phase(wf_row_plan *plan, const wf_program *p, int phase, bool recompute,
                       int *count)
{
    bool wanted[WF_PROGRAM_VALUES] = {false};
    int16_t list[WF_PROGRAM_INSTS];
    int n = 0;
    for (int k = 0; k < p->noutput; k++)
        if (p->output_level[k] == WF_LEVEL_ELEM && plan->out_phase[k] == phase)
            wanted[p->output[k]] = true;
    for (int i = p->ninst - 1; i >= 0; i--) {
        const wf_inst *inst = &p->inst[i];
        const bool use =
            inst->value >= 0 && wanted[inst->value] && recompute && inst->kind != WF_INST_REDUCE;
        if (is_row_work(inst) ||
            !(use || is_root(inst, phase) || (!recompute && inst->phase == phase)))
            continue;
        list[n++] = (int16_t)i;
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0)
                wanted[inst->src[k]] = true;
    }
    if (*count + n > WF_STEPS)
        return false;
    for (int i = n - 1; i >= 0; i--)
        plan->step[(*count)++] = (wf_step){.inst = list[i], .out = -1};
    for (int j = 0; j < p->ninput; j++)
        if (wanted[p->input[j]] && p->level[p->input[j]] == WF_LEVEL_ELEM)
            plan->reads[phase] |= 1u << j;
    return true;
}

/* The last phase that reads input j; a pick reads before the phase of its number. */
static int last_read(const wf_program *p, int j)
{
    int phase = 0;
    for (int i = 0; i < p->ninst; i++)
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (p->inst[i].src[k] == p->input[j] && p->inst[i].phase > phase)
                phase = p->inst[i].phase;
    return phase;
}

/* Outputs come as early as their value, or when nothing in their memory is to be read any more. In a
 * schedule that recomputes, values read in their memory may be wanted up to the last phase. */
static void time_outputs(wf_row_plan *plan, const wf_program *p, const wf_program_args *a,
                         bool recompute)
{
    for (int k = 0; k < p->noutput; k++) {
        const int v = p->output[k];
        const wf_inst *def = &p->inst[p->def[v]];
        int phase = p->level[v] == WF_LEVEL_ELEM ? def->phase : p->depth[v];
        for (int j = 0; j < p->ninput; j++)
            if (a->src[j].data == a->dst[k].data) {
                int last = last_read(p, j);
                last = recompute && p->nphase - 1 > last ? p->nphase - 1 : last;
                phase = last > phase ? last : phase;
            }
        plan->out_phase[k] = (uint8_t)phase;
        if (p->output_level[k] == WF_LEVEL_ELEM && phase >= plan->nphase)
            plan->nphase = phase + 1;
    }
}

/* Row buffers of values that a phase after their own reads. */
static void choose_kept(wf_row_plan *plan, const wf_program *p)
{
    uint8_t until[WF_PROGRAM_VALUES] = {0};
    for (int i = 0; i < p->ninst; i++)
        for (int k = 0; k < p->inst[i].nsrc && !is_row_work(&p->inst[i]); k++)
            if (p->inst[i].src[k] >= 0 && p->inst[i].phase > until[p->inst[i].src[k]])
                until[p->inst[i].src[k]] = p->inst[i].phase;
    for (int k = 0; k < p->noutput; k++)
        if (plan->out_phase[k] > until[p->output[k]])
            until[p->output[k]] = plan->out_phase[k];
    /* wide ones first: then every buffer is aligned to its elements */
    for (int64_t size = 8; size >= 1; size /= 2)
        for (int i = 0; i < p->ninst; i++) {
            const wf_inst *inst = &p->inst[i];
            const int v = inst->value;
            if (v < 0 || p->level[v] != WF_LEVEL_ELEM || until[v] <= inst->phase ||
                (int64_t)wf_dtype_size(p->type[v]) != size)
                continue;
            plan->keep_at[v] = (int16_t)plan->keep_bytes;
            plan->keep_bytes += size;
        }
}

/* May a step's value go straight to output k? Not while an input in the same memory is to be read. */
static bool may_write(const wf_row_plan *plan, const wf_program *p, const wf_program_args *a, int k,
                      int step, int end)
{
    for (int s = step + 1; s < end; s++) {
        const wf_inst *inst = &p->inst[plan->step[s].inst];
        for (int i = 0; i < inst->nsrc; i++)
            for (int j = 0; j < p->ninput; j++)
                if (inst->src[i] == p->input[j] && a->src[j].data == a->dst[k].data)
                    return false;
    }
    return true;
}

/* Where the values of a phase's steps go: buffers, outputs, or tiles by a linear scan. */
static void place(wf_row_plan *plan, const wf_program *p, const wf_program_args *a, uint32_t direct,
                  int phase)
{
    const int begin = plan->begin[phase], end = plan->begin[phase + 1];
    int16_t last[WF_PROGRAM_VALUES], until[WF_PROGRAM_INSTS];
    int nreg = 0;
    memset(last, -1, sizeof last);
    for (int s = begin; s < end; s++) {
        const wf_inst *inst = &p->inst[plan->step[s].inst];
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0)
                last[inst->src[k]] = (int16_t)s;
    }
    for (int k = 0; k < p->noutput; k++)
        if (plan->out_phase[k] == phase)
            last[p->output[k]] = (int16_t)end;
    for (int s = begin; s < end; s++) {
        wf_step *step = &plan->step[s];
        const int v = p->inst[step->inst].value;
        if (v < 0 || p->inst[step->inst].kind == WF_INST_REDUCE)
            continue;
        const int size = (int)wf_dtype_size(p->type[v]);
        plan->width = size > plan->width ? size : plan->width;
        step->kept = plan->keep_at[v] >= 0;
        for (int k = 0; k < p->noutput && step->out < 0 && !step->kept; k++)
            if (p->output[k] == v && plan->out_phase[k] == phase && (direct >> k & 1) != 0 &&
                a->dst[k].dtype == p->type[v] && may_write(plan, p, a, k, s, end))
                step->out = (int16_t)k;
        if (step->kept || step->out >= 0)
            continue;
        int r = 0;
        while (r < nreg && until[r] >= s)
            r++;
        nreg = r == nreg ? nreg + 1 : nreg;
        step->reg = (uint16_t)r;
        until[r] = last[v] > s ? last[v] : (int16_t)s;
    }
    plan->nreg = nreg > plan->nreg ? nreg : plan->nreg;
}

static void list_rows(wf_row_plan *plan, const wf_program *p)
{
    int count = 0;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        if (inst->value >= 0 && p->level[inst->value] != WF_LEVEL_ELEM)
            plan->slot[inst->value] = (int16_t)plan->nslot++;
        if (inst->kind == WF_INST_REDUCE)
            plan->red[inst->value] = (int16_t)plan->nred++;
        if (is_row_work(inst) && inst->phase > plan->depth)
            plan->depth = inst->phase;
    }
    for (int d = 0; d <= plan->depth; d++) {
        plan->row_begin[d] = count;
        for (int i = 0; i < p->ninst; i++)
            if (is_row_work(&p->inst[i]) && p->inst[i].phase == d)
                plan->row[count++] = (int16_t)i;
    }
    plan->row_begin[plan->depth + 1] = count;
}

bool wf_row_plan_make(wf_row_plan *plan, const wf_program *p, const wf_program_args *a,
                      uint32_t direct, bool recompute)
{
    int count = 0;
    plan->nphase = p->nphase;
    plan->depth = plan->nreg = plan->nslot = plan->nred = 0;
    plan->width = 1;
    plan->keep_bytes = 0;
    memset(plan->keep_at, -1, sizeof plan->keep_at);
    memset(plan->slot, -1, sizeof plan->slot);
    memset(plan->reads, 0, sizeof plan->reads);
    time_outputs(plan, p, a, recompute);
    if (!recompute)
        choose_kept(plan, p);
    list_rows(plan, p);
    for (int phase = 0; phase < plan->nphase; phase++) {
        plan->begin[phase] = count;
        if (!list_phase(plan, p, phase, recompute, &count))
            return false;
    }
    plan->begin[plan->nphase] = count;
    for (int phase = 0; phase < plan->nphase; phase++)
        place(plan, p, a, direct, phase);
    return true;
}
