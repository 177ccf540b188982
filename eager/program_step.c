/*
 * eager/program_step.c -- strips through the steps of a phase; see program_task.h.
 *
 * What a value is over a strip (a tile, one element, one per line, one line for all) is known when a task
 * starts, and so is where it lies, as a linear function of the strip's first index: steps are made ready
 * once per task, and a strip costs a few additions per operand. Cheap binary rows take operands of any form;
 * for others an operand that is not a tile or one element is spread first. What is computed from ones, or
 * from lines alone, is computed as such.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/program_task.h"

enum { TURNED_AHEAD = 2 }; /* strips */

/* -- places ------------------------------------------------------------------------------------------------ */
static inline char *address(const wf_row_task *t, const wf_place *p)
{
    if (__builtin_expect(p->far != NULL, 0)) {
        const wf_operand *o = p->far;
        return o->data + wf_space_offset(&t->r->s, o, t->r0, t->c0) * o->esize;
    }
    const int64_t rows = p->relative ? t->r0 - t->g0 : t->r0;
    return p->base + rows * p->row + t->c0 * p->col * (p->scaled ? t->rn : 1);
}

static inline const void *address_of(const wf_row_task *t, const wf_ref *ref)
{
    if (ref->row < 0)
        return address(t, &ref->at);
    const int64_t first = ref->form == WF_FORM_ONE && ref->step == 0 ? 0 : t->r0 - t->g0;
    return (const char *)t->at[ref->row] + first * ref->size;
}

/* An operand's memory. */
static wf_place operand_place(const wf_operand *o)
{
    return (wf_place){.base = o->data,
                      .row = o->row * o->esize,
                      .col = o->col * o->esize,
                      .far = o->one_row && o->one_col ? NULL : o};
}

static wf_place tile_place(char *tile)
{
    return (wf_place){.base = tile};
}

static wf_place keep_place(const wf_row_task *t, int v)
{
    const wf_row_run *r = t->r;
    const int64_t size = (int64_t)wf_dtype_size(r->p->type[v]);
    return (wf_place){.base = t->mem + r->keep + r->plan.keep_at[v] * r->group * r->s.n,
                      .row = r->turned ? 0 : r->s.n * size,
                      .col = size,
                      .relative = true,
                      .scaled = r->turned};
}

/* Lines of the strip and elements of a line. */
static inline int64_t lines(const wf_row_task *t)
{
    return t->r->turned ? t->cn : t->rn;
}
static inline int64_t line(const wf_row_task *t)
{
    return t->r->turned ? t->rn : t->cn;
}

static wf_grid_src grid_source(const wf_row_task *t, const wf_ref *ref)
{
    wf_grid_src g = {.data = address_of(t, ref)};
    g.along = ref->form == WF_FORM_TILE || ref->form == WF_FORM_ACROSS;
    g.line = ref->form == WF_FORM_TILE ? line(t) : ref->form == WF_FORM_LINES ? ref->step : 0;
    return g;
}

const void *wf_tile_of(const wf_row_task *t, const wf_ref *ref, int spare)
{
    if (ref->form == WF_FORM_TILE || (ref->form == WF_FORM_ACROSS && lines(t) == 1))
        return address_of(t, ref);
    char *tile = t->mem + t->r->spread + spare * t->r->pitch;
    const wf_grid_src g = grid_source(t, ref);
    const int width = ref->size == 1 ? 0 : ref->size == 2 ? 1 : ref->size == 4 ? 2 : 3;
    t->r->grid->spread[width](tile, &g, lines(t), line(t));
    return tile;
}

/* -- making steps ready -------------------------------------------------------------------------------------- */
static wf_ref input_ref(const wf_row_task *t, int j)
{
    const wf_row_run *r = t->r;
    const wf_operand *o = &r->s.op[r->p->noutput + j];
    wf_ref ref = {.row = -1, .form = r->form[j], .size = (uint8_t)o->esize};
    if (r->way[j] == WF_IN_PLACE) {
        ref.at = operand_place(o);
        ref.step = r->turned ? o->col : o->row;
    } else {
        ref.at = tile_place(t->mem + r->load + j * r->pitch);
        ref.form = WF_FORM_TILE;
    }
    return ref;
}

/* A value of any level as ELEM steps see it. */
static wf_ref ref_of(const wf_row_task *t, int v)
{
    const wf_row_run *r = t->r;
    if (r->p->level[v] == WF_LEVEL_ELEM)
        return t->ref[v];
    wf_ref ref = {.row = (int16_t)v, .size = (uint8_t)wf_dtype_size(r->p->type[v])};
    if (r->p->level[v] == WF_LEVEL_ONE) {
        ref.form = WF_FORM_ONE;
    } else {
        ref.step = 1;
        ref.form = r->turned ? WF_FORM_ACROSS : r->rows == 1 ? WF_FORM_ONE : WF_FORM_LINES;
    }
    return ref;
}

/* The form in which a step's value can be computed from its sources. */
static int result_form(const wf_code *c, int nsrc)
{
    int form = WF_FORM_ONE;
    for (int k = 0; k < nsrc; k++) {
        const wf_ref *s = &c->src[k];
        if (s->form == WF_FORM_ONE)
            continue;
        if (s->form == WF_FORM_TILE || (s->form == WF_FORM_LINES && s->step != 1) ||
            (form != WF_FORM_ONE && form != s->form))
            return WF_FORM_TILE;
        form = s->form;
    }
    return form;
}

static void make_step(wf_row_task *t, const wf_step *s, wf_code *c)
{
    const wf_row_run *r = t->r;
    const wf_inst *inst = &r->p->inst[s->inst];
    const int v = inst->value;
    c->inst = inst;
    c->fn = r->fn[s->inst];
    c->grid = NULL;
    c->bcast = 0;
    for (int k = 0; k < inst->nsrc; k++)
        c->src[k] = inst->src[k] < 0 ? c->src[0] : ref_of(t, inst->src[k]);
    if (inst->kind == WF_INST_REDUCE || inst->kind == WF_INST_CHECK)
        return;
    const bool stays = !s->kept && s->out < 0;
    c->form = WF_FORM_TILE;
    if (stays && inst->kind != WF_INST_IOTA)
        c->form = (uint8_t)result_form(c, inst->nsrc);
    bool lies = false,
         shaped = false; /* some source is no single element; is neither that nor a tile */
    for (int k = 0; k < inst->nsrc; k++) {
        c->bcast |= c->src[k].form == WF_FORM_ONE ? 1u << k : 0;
        lies |= c->src[k].form != WF_FORM_ONE;
        shaped |= c->src[k].form == WF_FORM_LINES || c->src[k].form == WF_FORM_ACROSS;
    }
    if (inst->kind == WF_INST_MAP && inst->nsrc == 2 && c->form == WF_FORM_TILE && shaped)
        c->grid = wf_grid_binary(r->grid, inst->op, inst->compute);
    if (!lies) /* a source must be as long as the result */
        c->bcast &= ~1u;
    if (c->form == WF_FORM_ONE)
        c->bcast = 0;
    c->to = s->kept       ? keep_place(t, v)
            : s->out >= 0 ? operand_place(&r->s.op[s->out])
                          : tile_place(t->mem + r->reg + s->reg * r->pitch);
    t->ref[v] = (wf_ref){.at = c->to,
                         .step = 1,
                         .row = -1,
                         .form = c->form,
                         .size = (uint8_t)wf_dtype_size(r->p->type[v])};
}

/* -- chains: steps of one pass (eager/kernels/program.h) ------------------------------------------------------ */
/* Does the operand lie where the step writes, without being a tile of the same elements? */
static bool collides(const wf_code *c, const wf_ref *s)
{
    return s->row < 0 && s->form != WF_FORM_TILE && s->at.base == c->to.base;
}

/* Can a step start a chain, or go on with one? */
static bool is_cheap(const wf_code *c)
{
    return wf_inst_is_link(c->inst) && c->form == WF_FORM_TILE; /* sums have no form */
}

/* The source that starts a chain: one whose other source can be anything. */
static int first_source(const wf_code *c)
{
    return c->src[0].form == WF_FORM_ONE && c->inst->nsrc == 2 ? 1 : 0;
}

/* Is v read by a step in (from, end), or put out at the end of the phase? */
static bool is_read(const wf_row_task *t, int phase, int from, int end, int v)
{
    const wf_row_run *r = t->r;
    for (int s = from; s < end; s++)
        for (int k = 0; k < t->code[s].inst->nsrc; k++)
            if (t->code[s].inst->src[k] == v)
                return true;
    for (int k = 0; k < r->p->noutput; k++)
        if (r->p->output[k] == v && r->plan.out_phase[k] == phase)
            return true;
    return false;
}

static void add_link(wf_row_task *t, int op, const wf_ref *from)
{
    t->link[t->nlink].op = (uint8_t)op;
    t->link[t->nlink].src = (wf_grid_src){0};
    if (from != NULL) {
        t->link[t->nlink].src.along = from->form == WF_FORM_TILE || from->form == WF_FORM_ACROSS;
        t->from[t->nlink] = *from;
    } else {
        t->from[t->nlink].form = WF_FORM_ONE;
        t->from[t->nlink].size = 0; /* nothing to aim at */
    }
    t->nlink++;
}

/* Does something that steps [s, e] read line by line lie where they write? */
static bool clashes(const wf_row_task *t, int s, int e)
{
    for (int i = s; i <= e; i++)
        for (int k = 0; k < t->code[i].inst->nsrc; k++)
            for (int w = s; w <= e; w++)
                if (collides(&t->code[w], &t->code[i].src[k]))
                    return true;
    return false;
}

/* Gathers the steps behind s into its pass. */
static void make_chain(wf_row_task *t, int phase, int s, int end)
{
    wf_code *head = &t->code[s];
    const wf_inst *inst = head->inst;
    const int start = first_source(head), begin = t->nlink;
    head->chain = 0;
    head->link = t->link + begin;
    head->from = t->from + begin;
    head->first = head->src[start];
    head->flat = head->first.form == WF_FORM_TILE;
    add_link(t, wf_link_of(inst->op, start, false), inst->nsrc == 1 ? NULL : &head->src[1 - start]);
    for (int e = s + 1; e < end && t->nlink - begin + 2 <= WF_LINKS; e++) {
        const wf_step *step = &t->r->plan.step[e - 1];
        const int v = t->code[e - 1].inst->value;
        int other = -1;
        const int op = is_cheap(&t->code[e]) ? wf_inst_link_behind(t->code[e].inst, v, &other) : -1;
        if (op < 0 || t->code[e].inst->compute != inst->compute || clashes(t, s, e))
            break;
        if (step->kept || step->out >= 0 || is_read(t, phase, e + 1, end, v))
            add_link(t, WF_LINK_STORE, &t->ref[v]);
        add_link(t, op, other < 0 ? NULL : &t->code[e].src[other]);
        head->chain++;
    }
    head->nlink = (uint8_t)(t->nlink - begin);
    for (int l = 0; l < head->nlink; l++)
        head->flat &= head->from[l].form == WF_FORM_TILE || head->from[l].form == WF_FORM_ONE;
    if (head->chain == 0)
        t->nlink = begin;
}

static void find_chains(wf_row_task *t, int phase)
{
    const int begin = t->r->plan.begin[phase], end = t->r->plan.begin[phase + 1];
    for (int s = begin; s < end; s++) {
        t->code[s].chain = 0;
        if (is_cheap(&t->code[s]))
            make_chain(t, phase, s, end);
        s += t->code[s].chain;
    }
}

static inline void aim(const wf_row_task *t, wf_grid_src *g, const wf_ref *ref)
{
    g->data = address_of(t, ref);
    g->line = ref->form == WF_FORM_TILE ? line(t) : ref->form == WF_FORM_LINES ? ref->step : 0;
}

static void do_chain(wf_row_task *t, const wf_code *c)
{
    wf_grid_src first = {.along = c->first.form == WF_FORM_TILE || c->first.form == WF_FORM_ACROSS};
    aim(t, &first, &c->first);
    for (int l = 0; l < c->nlink; l++)
        if (c->link[l].src.along || c->from[l].size != 0)
            aim(t, &c->link[l].src, &c->from[l]);
    const int64_t m = c->flat ? 1 : lines(t), n = c->flat ? lines(t) * line(t) : line(t);
    t->r->grid->chain[c->inst->compute == WEFT_F64](address(t, &c[c->chain].to), &first, c->link,
                                                    c->nlink, m, n);
}

/* -- asking for what comes next ------------------------------------------------------------------------------ */
/* What a strip of a phase asks for while it is worked on: what follows it in the inputs. Straight: the strip that it will be in the
 * group behind. Turned: further columns, into the second cache, as rows a power of two apart share sets of the first. */
static void find_asks(wf_row_task *t, int phase)
{
    const wf_row_run *r = t->r;
    const int64_t row = r->turned ? t->r0 : t->r0 + r->group;
    const int64_t col = r->turned ? t->c0 + TURNED_AHEAD * t->cn : t->c0;
    const int64_t left = r->turned ? t->c1 - col : t->rn;
    t->nask = 0;
    if (!r->turned && row >= t->end)
        return;
    uint32_t rest = r->turned ? r->ahead & r->plan.reads[phase] : r->ahead;
    for (; rest; rest &= rest - 1) {
        const wf_operand *o = &r->s.op[r->p->noutput + __builtin_ctz(rest)];
        wf_ask *a = &t->ask[t->nask++];
        a->next = o->data + (row * o->row + col * o->col) * o->esize;
        a->step = (r->turned ? o->col : o->row) * o->esize;
        a->bytes = line(t) * o->esize;
        a->pieces = left < lines(t) ? left : lines(t);
        if (a->step == a->bytes || a->pieces == 1) { /* one piece, in lines of memory */
            a->pieces = (a->pieces * a->bytes + 63) / 64;
            a->step = a->bytes = 64;
        }
    }
}

/* Asks for part [from, to) of WF_ASK_WHOLE of it. */
static void ask(const wf_row_task *t, int from, int to)
{
    for (const wf_ask *a = t->ask; a < t->ask + t->nask; a++)
        for (int64_t i = a->pieces * from / WF_ASK_WHOLE; i < a->pieces * to / WF_ASK_WHOLE; i++) {
            const char *next = a->next + i * a->step;
            if (a->bytes == 64)
                __builtin_prefetch(next);
            else
                for (int64_t at = 0; at < a->bytes; at += 64)
                    __builtin_prefetch(next + at, 0, 2);
        }
    __asm__ volatile(""); /* gcc leaves out calls of functions that only ask for memory */
}

/* The parts that steps [begin, end) ask for. What a group behind reads first is spread over all phases, which find this group's in
 * the caches; turned groups are too long for that. */
static void share_out(wf_row_task *t, int begin, int end)
{
    int whole = 0, before = 0;
    for (int s = begin; s < end; s++)
        whole += wf_inst_weight(t->code[s].inst);
    for (int s = begin; s < end; s++) {
        t->code[s].ask_from = before * WF_ASK_WHOLE / whole;
        before += wf_inst_weight(t->code[s].inst);
        t->code[s].ask_to = before * WF_ASK_WHOLE / whole;
    }
}

void wf_make_code(wf_row_task *t)
{
    const wf_row_run *r = t->r;
    const wf_row_plan *plan = &r->plan;
    const int steps = plan->begin[plan->nphase];
    t->code = (wf_code *)(void *)(t->mem + r->code);
    t->link = (wf_link *)(void *)(t->code + steps);
    t->from = (wf_ref *)(void *)(t->link + 2 * steps);
    t->nlink = 0;
    for (int j = 0; j < r->p->ninput; j++)
        if (r->p->level[r->p->input[j]] == WF_LEVEL_ELEM)
            t->ref[r->p->input[j]] = input_ref(t, j);
    for (int phase = 0; phase < plan->nphase; phase++) {
        for (int s = plan->begin[phase]; s < plan->begin[phase + 1]; s++)
            make_step(t, &plan->step[s], &t->code[s]);
        find_chains(t, phase);
        for (int k = 0; k < r->p->noutput; k++)
            if (r->p->output_level[k] == WF_LEVEL_ELEM && plan->out_phase[k] == phase)
                t->out[k] = ref_of(t, r->p->output[k]);
        if (r->turned)
            share_out(t, plan->begin[phase], plan->begin[phase + 1]);
    }
    if (!r->turned)
        share_out(t, 0, steps);
}

/* -- running ------------------------------------------------------------------------------------------------- */
static void do_iota(const wf_row_task *t, const wf_inst *inst, char *out)
{
    const wf_cast_fn cast = t->r->k->cast[inst->compute][WEFT_I64];
    const int64_t size = (int64_t)wf_dtype_size(inst->compute);
    int64_t some[64];
    if (t->r->turned) {
        for (int64_t j = 0; j < t->cn; j++) {
            some[0] = t->c0 + j;
            cast(some + 1, some, 1);
            wf_fill_tile(out + j * t->rn * size, some + 1, (size_t)size, (size_t)t->rn);
        }
        return;
    }
    for (int64_t j = 0; j < t->cn; j += 64) {
        const int64_t m = t->cn - j < 64 ? t->cn - j : 64;
        for (int64_t i = 0; i < m; i++)
            some[i] = t->c0 + j + i;
        cast(out + j * size, some, (size_t)m);
    }
    for (int64_t i = 1; i < t->rn; i++)
        memcpy(out + i * t->cn * size, out, (size_t)(t->cn * size));
}

/* Does the step ask between pieces of its strip? */
static inline bool goes_by_pieces(const wf_row_task *t, const wf_code *c)
{
    return t->nask > 0 && c->form == WF_FORM_TILE && t->rn * t->cn > WF_PIECE &&
           wf_inst_weight(c->inst) > 1;
}

static void do_step(wf_row_task *t, const wf_code *c)
{
    const wf_inst *inst = c->inst;
    const void *src[5];
    if (inst->kind == WF_INST_REDUCE) {
        wf_reduce_strip(t, inst, wf_tile_of(t, &c->src[0], 0));
        return;
    }
    if (inst->kind == WF_INST_CHECK) {
        if (memchr(wf_tile_of(t, &c->src[0], 0), 0, (size_t)(t->rn * t->cn)) != NULL)
            atomic_store_explicit(&t->r->status, WEFT_EINDEX, memory_order_relaxed);
        return;
    }
    char *out = address(t, &c->to);
    if (c->grid != NULL) {
        const wf_grid_src a = grid_source(t, &c->src[0]), b = grid_source(t, &c->src[1]);
        c->grid(out, &a, &b, lines(t), line(t));
        return;
    }
    int64_t n = t->rn * t->cn;
    if (c->form != WF_FORM_TILE)
        n = c->form == WF_FORM_ONE ? 1 : c->form == WF_FORM_LINES ? lines(t) : line(t);
    if (inst->kind == WF_INST_IOTA) {
        do_iota(t, inst, out);
        return;
    }
    for (int k = 0; k < inst->nsrc; k++) {
        const wf_ref *s = &c->src[k];
        const bool plain = s->form == c->form || (c->bcast >> k & 1) != 0 || c->form == WF_FORM_ONE;
        src[k] = plain ? address_of(t, s) : wf_tile_of(t, s, k);
    }
    if (goes_by_pieces(t, c)) {
        const int count = (int)((n + WF_PIECE - 1) / WF_PIECE), part = c->ask_to - c->ask_from;
        for (int q = 0; q < count; q++) {
            ask(t, c->ask_from + part * q / count, c->ask_from + part * (q + 1) / count);
            wf_inst_piece(t->r->p, inst, c->fn.map, out, src, (size_t)n, c->bcast, q);
        }
    } else if (inst->kind == WF_INST_CAST)
        c->fn.cast(out, src[0], (size_t)n);
    else if (inst->kind == WF_INST_EXPAND)
        memcpy(out, src[0], (size_t)n * wf_dtype_size(inst->compute));
    else
        c->fn.map(out, src, (size_t)n, c->bcast);
}

/* Output k of the strip, unless a step wrote it. */
static void store_output(const wf_row_task *t, int k)
{
    const wf_row_run *r = t->r;
    const wf_operand *o = &r->s.op[k];
    const int type = r->p->type[r->p->output[k]];
    const size_t n = (size_t)(t->rn * t->cn);
    const void *tile = wf_tile_of(t, &t->out[k], 0);
    if ((r->direct >> k & 1) != 0) {
        const wf_place place = operand_place(o);
        char *to = address(t, &place);
        if (r->stream) {
            char *raw = t->mem + r->spread + (WF_SPREADS - 1) * r->pitch;
            if (o->dtype != type)
                r->k->cast[o->dtype][type](raw, tile, n);
            r->k->stream(to, o->dtype != type ? raw : tile, n * (size_t)o->esize);
        } else if (tile != to)
            r->k->cast[o->dtype][type](to, tile, n);
        return;
    }
    if (o->dtype != type) {
        char *raw = t->mem + r->spread + (WF_SPREADS - 1) * r->pitch;
        r->k->cast[o->dtype][type](raw, tile, n);
        tile = raw;
    }
    wf_space_store(&r->s, o, r->k, tile, t->r0, t->rn, t->c0, t->cn, r->turned);
}

/* Strips of programs that draw are never turned. */
static void draw_input(const wf_row_task *t, int j, char *tile)
{
    const wf_row_run *r = t->r;
    const int64_t n = r->s.n, first = t->r0 * n + t->c0;
    const int64_t size = (int64_t)wf_dtype_size(r->p->type[r->p->input[j]]);
    const int64_t lines = t->cn == n ? 1 : t->rn, line = t->cn == n ? t->rn * n : t->cn;
    for (int64_t i = 0; i < lines; i++)
        wf_program_fill(r->p, j, r->a->scalars, tile + i * line * size, first + i * n, line);
}

static void load_input(wf_row_task *t, int j)
{
    const wf_row_run *r = t->r;
    if (r->p->draw[j].op != WF_OP_INVALID) {
        draw_input(t, j, t->mem + r->load + j * r->pitch);
        return;
    }
    if (r->way[j] == WF_IN_HELD) {
        if (t->held[j] == t->rn)
            return;
        t->held[j] = t->rn;
    }
    wf_space_load(&r->s, &r->s.op[r->p->noutput + j], r->k, t->mem + r->load + j * r->pitch, t->r0,
                  t->rn, t->c0, t->cn, r->turned);
}

void wf_do_strip(wf_row_task *t, int phase)
{
    const wf_row_run *r = t->r;
    const wf_row_plan *plan = &r->plan;
    if (r->ahead != 0)
        find_asks(t, phase);
    for (int j = 0; j < r->p->ninput; j++)
        if ((plan->reads[phase] >> j & 1) != 0 && r->way[j] != WF_IN_PLACE)
            load_input(t, j);
    for (int s = plan->begin[phase]; s < plan->begin[phase + 1]; s += 1 + t->code[s].chain) {
        const wf_code *c = &t->code[s];
        if (t->nask > 0 && !goes_by_pieces(t, c))
            ask(t, c->ask_from, c[c->chain].ask_to);
        if (c->chain > 0)
            do_chain(t, c);
        else
            do_step(t, c);
    }
    for (int k = 0; k < r->p->noutput; k++)
        if (r->p->output_level[k] == WF_LEVEL_ELEM && plan->out_phase[k] == phase)
            store_output(t, k);
}
