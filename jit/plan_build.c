/*
 * jit/plan_build.c -- lowering a schedule: groups become tile programs, operands become accesses.
 *
 * A value gets memory only if something outside its group reads it, reads it through a view, or the
 * function returns it. Casts are program casts, fills and scalar slots are program scalars, and each
 * public row of a half type rounds once, by a cast behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/draw.h"
#include "eager/exec.h"
#include "jit/passes/again.h"
#include "jit/ir/mix.h"
#include "jit/plan_lower.h"

/* -- which values need memory ------------------------------------------------------------------------ */

/* `times` more, if it has memory at all. */
static void need(wf_planner *b, wf_val v, uint32_t times, uint32_t *reads)
{
    wf_val root = b->l.map[v].root;
    if (root) {
        b->buffer_of[root] = 0;
        reads[root] += times;
    }
}

/* Does instruction k of group g read value v as a value of its program, without memory? */
static bool is_inside(wf_planner *b, uint32_t g, uint32_t k, wf_val v)
{
    return b->s.groups[g].kind == WF_STEP_MAP &&
           (!b->l.map[v].root || wf_fill_of(&b->l, v) || wf_is_again(&b->s, g, b->l.map[v].root) ||
            wf_is_made_inside(&b->s, &b->l, g, &b->s.groups[g].space, k, v));
}

static void need_operands(wf_planner *b, uint32_t g, uint32_t k, uint32_t *reads)
{
    const wf_val *src = wf_ins_src(b->f, &b->f->ins[k]);
    for (int i = 0; i < b->f->ins[k].nsrc; i++) {
        if (src[i] && !is_inside(b, g, k, src[i])) {
            need(b, src[i], 1, reads);
        }
    }
}

/* Marks values that need memory with buffer 0; all others have WF_BUFFER_ABSENT. reads: of root v, by how many operands it is read from
 * there; 2 and more of what is returned. */
static void mark_memory(wf_planner *b, uint32_t *reads)
{
    const wf_fn *f = b->f;
    for (uint32_t v = 0; v <= f->n; v++) {
        b->buffer_of[v] = WF_BUFFER_ABSENT;
    }
    for (uint32_t k = 0; k < f->n; k++) {
        if (b->s.group_of[k] != WF_NO_GROUP) {
            need_operands(b, b->s.group_of[k], k, reads);
        }
    }
    for (uint32_t i = 0; i < b->s.nagain; i++) {
        need_operands(b, b->s.again[i].group, b->s.again[i].v - 1, reads);
    }
    for (uint32_t i = 0; i < f->noutputs; i++) {
        need(b, f->outputs[i], 2, reads);
    }
    for (uint32_t k = 0; k < f->n; k++) { /* a kernel writes all its results */
        uint32_t g = f->ins[k].op == WF_OP_RESULT && b->live[f->ins[k].src[0]]
                         ? b->s.group_of[f->ins[k].src[0] - 1]
                         : WF_NO_GROUP;
        if (g != WF_NO_GROUP && b->s.groups[g].kind == WF_STEP_OP) {
            b->buffer_of[k + 1] = 0;
            b->buffer_of[f->ins[k].src[0]] = 0;
        }
    }
}

static int number_buffers(wf_planner *b)
{
    const wf_fn *f = b->f;
    wf_plan *p = b->p;
    uint32_t *reads = calloc(f->n + 1u, sizeof *reads);
    if (reads) {
        mark_memory(b, reads);
    }
    const int rc = reads ? wf_plan_find_parts(b, reads) : WEFT_ENOMEM;
    free(reads);
    if (rc) {
        return rc;
    }
    for (uint32_t v = 1; v <= f->n; v++) {
        p->nbuffers += b->buffer_of[v] == 0;
    }
    p->buffers = calloc(p->nbuffers + 1u, sizeof *p->buffers);
    if (!p->buffers) {
        return WEFT_ENOMEM;
    }
    int32_t n = 0;
    for (wf_val v = 1; v <= f->n; v++) {
        if (b->buffer_of[v] != 0) {
            continue;
        }
        p->buffers[n].bytes = wf_root_bytes(&b->l, v);
        p->buffers[n].v = v;
        if (wf_fn_at(f, v)->op == WF_OP_INPUT) {
            p->buffers[n].place = WF_PLACE_INPUT;
            p->buffers[n].index = wf_fn_at(f, v)->attr;
        }
        b->buffer_of[v] = n++;
    }
    return 0;
}

/* -- accesses ---------------------------------------------------------------------------------------- */

static int add_access(wf_planner *b, const wf_map_of *m)
{
    wf_plan *p = b->p;
    if (wf_grow(&p->accesses, p->naccesses, 1, &p->capaccesses, sizeof *p->accesses)) {
        return WEFT_ENOMEM;
    }
    wf_access *a = &p->accesses[p->naccesses++];
    *a = (wf_access){.buffer = WF_BUFFER_ABSENT};
    if (m->root) {
        *a = (wf_access){.buffer = b->buffer_of[m->root],
                         .dtype = m->dtype,
                         .rank = m->rank,
                         .nterms = m->nterms,
                         .shape = m->shape,
                         .term = m->term,
                         .offset = m->offset};
    }
    return 0;
}

static int add_drawn(wf_planner *b, const wf_map_of *m)
{
    if (add_access(b, &(wf_map_of){.root = 0})) {
        return WEFT_ENOMEM;
    }
    b->p->accesses[b->p->naccesses - 1] = (wf_access){
        .buffer = WF_BUFFER_DRAWN, .dtype = m->dtype, .rank = m->rank, .shape = m->shape};
    return 0;
}

static wf_plan_step *add_step(wf_planner *b, int kind, uint32_t k)
{
    wf_plan *p = b->p;
    if (wf_grow(&p->steps, p->nsteps, 1, &p->capsteps, sizeof *p->steps)) {
        return NULL;
    }
    wf_plan_step *s = &p->steps[p->nsteps++];
    *s = (wf_plan_step){.kind = (uint8_t)kind,
                        .op = b->f->ins[k].op,
                        .ins = k,
                        .access = p->naccesses,
                        .scalar = p->nscalars};
    return s;
}

/* What is left of a concat with parts: copies of the other operands. */
static int lower_rest(wf_planner *b, const wf_group *g, uint32_t k)
{
    const wf_fn *f = b->f;
    const wf_val *src = wf_ins_src(f, &f->ins[k]);
    wf_part at = {.whole = k + 1};
    int rc = 0;
    for (uint32_t a = 0; a < f->ins[k].nsrc && !rc; at.start += wf_part_extent(f, k + 1, a++)) {
        const wf_map_of *from = &b->l.map[src[a]];
        const wf_part made = wf_part_of(b, from->root);
        wf_map_of to;
        at.operand = a;
        if ((made.whole == k + 1 && made.operand == a) || wf_map_count(&b->l, from) == 0) {
            continue;
        }
        wf_plan_step *s = add_step(b, WF_STEP_COPY, k);
        if (!s) {
            return WEFT_ENOMEM;
        }
        s->op = WF_OP_COPY;
        s->nmember = 1;
        s->ndst = s->nsrc = 1;
        s->member = g->first;
        rc = wf_part_operand_map(b, &at, &to);
        rc = rc ? rc : add_access(b, &to);
        rc = rc ? rc : add_access(b, &b->l.map[src[a]]);
    }
    return rc;
}

static bool has_part(const wf_planner *b, uint32_t k)
{
    const wf_val *src = wf_ins_src(b->f, &b->f->ins[k]);
    bool has = false;
    for (int a = 0; a < b->f->ins[k].nsrc && b->part && !has; a++) {
        has = wf_part_of(b, b->l.map[src[a]].root).whole == k + 1;
    }
    return has;
}

static int lower_op(wf_planner *b, const wf_group *g)
{
    const uint32_t k = b->s.members[g->first];
    const wf_fn *f = b->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    wf_plan_step *s = add_step(b, WF_STEP_OP, k);
    if (!s) {
        return WEFT_ENOMEM;
    }
    s->ndst = wf_rows[i->op].ndst;
    s->nsrc = i->nsrc;
    s->member = g->first;
    s->nmember = 1;
    for (uint32_t r = 0; r < s->ndst; r++) {
        if (add_access(b, &b->l.map[k + 1 + r])) {
            return WEFT_ENOMEM;
        }
    }
    for (int a = 0; a < i->nsrc; a++) {
        if (src[a] && !b->l.map[src[a]].root) {
            return wf_fail(b->why, WEFT_EUNSUPPORTED, "operand %d of %s is a scalar slot", a,
                           wf_rows[i->op].name);
        }
        if (add_access(b, &b->l.map[src[a]])) {
            return WEFT_ENOMEM;
        }
    }
    return 0;
}

/* -- programs ---------------------------------------------------------------------------------------- */

int wf_lower_scalar(wf_lowering *w, wf_scalar_of c)
{
    wf_program *q = w->prog;
    for (int i = 0; i < q->nscalar; i++) {
        const wf_scalar_of *s = &w->scalar[i];
        if (s->ins == c.ins && s->dtype == c.dtype && s->kind == c.kind && s->n == c.n) {
            return w->scalar_value[i];
        }
    }
    int n = q->nscalar, s = wf_program_scalar(q, c.dtype);
    if (s >= 0) {
        w->scalar[n] = c;
        w->scalar_value[n] = s;
    }
    return s;
}

static int lower_member(wf_lowering *w, uint32_t k);

/* A fill, or a value made of scalars, as a value of the program. */
static int lower_fill(wf_lowering *w, wf_val fill)
{
    const wf_fn *f = w->b->f;
    if (wf_fn_at(f, fill)->op == WF_OP_FULL) {
        return wf_lower_scalar(
            w, (wf_scalar_of){fill - 1, (uint8_t)wf_fn_type(f, fill)->dtype, WF_SCALAR_FILL, 0});
    }
    return lower_member(w, fill - 1) ? -1 : w->value[fill];
}

int wf_lower_read(wf_lowering *w, uint32_t k, wf_val v, int dtype)
{
    wf_planner *b = w->b;
    wf_val fill = wf_fill_of(&b->l, v);
    wf_map_of m = b->l.map[v];
    if (fill) {
        return lower_fill(w, fill);
    }
    if (!m.root) {
        return wf_lower_scalar(w, (wf_scalar_of){v - 1, (uint8_t)dtype, WF_SCALAR_SLOT_VALUE, 0});
    }
    if (wf_is_again(&b->s, w->number, m.root)) {
        return lower_member(w, m.root - 1) ? -1 : w->value[m.root];
    }
    if (is_inside(b, w->number, k, v)) {
        return w->stamp[m.root] == w->number + 1 ? w->value[m.root] : -1;
    }
    bool row;
    int rc = wf_read_map(&b->l, &w->g->space, k, v, &m, &row);
    if (rc) {
        wf_fail(b->why, rc == 1 ? WEFT_EUNSUPPORTED : rc, "an operand cannot be read in its group");
        return -1;
    }
    for (int i = 0; i < w->prog->ninput; i++) {
        if (wf_map_same(&b->l, &w->in[i], &m)) {
            return w->in_value[i];
        }
    }
    int n = w->prog->ninput;
    int s = row ? wf_program_input_row(w->prog, m.dtype) : wf_program_input(w->prog, m.dtype);
    if (s >= 0) {
        w->in[n] = m;
        w->in_value[n] = s;
    }
    return s;
}

static int lower_row(wf_lowering *w, uint32_t k)
{
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    const wf_type *t = &f->types[i->type];
    int kind = wf_rows[i->op].kind, v[3];
    int compute = wf_dtype_compute(t->dtype);
    if (kind == WF_KIND_PREDICATE || kind == WF_KIND_COMPARE) {
        for (int a = 0; a < i->nsrc; a++) { /* the operands' type; scalars take it */
            if (!wf_op_is_weak(wf_fn_at(f, src[a])->op)) {
                compute = wf_dtype_compute(wf_fn_type(f, src[a])->dtype);
            }
        }
    }
    for (int a = 0; a < i->nsrc; a++) {
        bool truth = kind == WF_KIND_CHOOSE && a == 0;
        v[a] = wf_lower_read(w, k, src[a], truth ? (int)WEFT_BOOL : compute);
        if (v[a] < 0) {
            return -1;
        }
    }
    int r = wf_program_map(w->prog, (wf_op)i->op, compute, i->nsrc, v);
    return r < 0 ? r : wf_program_cast(w->prog, r, t->dtype);
}

/* A vjp column: g, operands, result, as far as it reads them. */
static int lower_vjp(wf_lowering *w, uint32_t k)
{
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    const wf_attr *at = &f->attrs[i->attr];
    const wf_op op = (wf_op)at->ints[0];
    int which = (int)at->ints[1], type = f->types[i->type].dtype, v[5];
    int compute = wf_dtype_compute(type);
    unsigned reads = wf_vjp_reads(op, which);
    if (!reads) {
        return wf_lower_scalar(w, (wf_scalar_of){k, (uint8_t)type, WF_SCALAR_ZERO, 0});
    }
    for (int a = 0; a < i->nsrc; a++) {
        bool used = reads >> (a == 0 ? 6 : a == i->nsrc - 1 ? 7 : a - 1) & 1;
        bool truth = wf_rows[op].kind == WF_KIND_CHOOSE && a == 1;
        v[a] = used && src[a] ? wf_lower_read(w, k, src[a], truth ? (int)WEFT_BOOL : compute) : -1;
        if (used && v[a] < 0) {
            return -1;
        }
    }
    int r = wf_program_vjp(w->prog, op, which, compute, i->nsrc, v);
    return r < 0 ? r : wf_program_cast(w->prog, r, type);
}

/* A random row: an input without memory. */
static int lower_draw(wf_lowering *w, uint32_t k)
{
    const wf_fn *f = w->b->f;
    const wf_type *t = &f->types[f->ins[k].type];
    const wf_op op = (wf_op)f->ins[k].op;
    const int number = op == WF_OP_RANDINT ? WEFT_I64 : WEFT_F64, n = w->prog->ninput;
    int s[WF_DRAW_SCALARS];
    for (int i = 0; i < WF_DRAW_SCALARS; i++) {
        s[i] = wf_lower_scalar(w, (wf_scalar_of){k, (uint8_t)(i < 2 ? (int)WEFT_I64 : number),
                                                 (uint8_t)(WF_SCALAR_SEED + i), t->rank});
        if (s[i] < 0) {
            return -1;
        }
    }
    int v = wf_program_draw(w->prog, op, wf_draw_type(op, t->dtype), s);
    if (v < 0) {
        return -1;
    }
    wf_map_of m = w->b->l.map[k + 1];
    bool row;
    if (wf_read_map(&w->b->l, &w->g->space, k, k + 1, &m, &row)) {
        w->b->why->code = WEFT_ENOMEM;
        return -1;
    }
    m.dtype = (uint8_t)w->prog->type[v];
    m.root = 0;
    w->in[n] = m;
    w->in_value[n] = v;
    return wf_program_cast(w->prog, v, t->dtype);
}

static int lower_member(wf_lowering *w, uint32_t k)
{
    const wf_fn *f = w->b->f;
    const wf_ins *i = &f->ins[k];
    int v[WF_MAX_DST];
    if (w->stamp[k + 1] == w->number + 1) { /* a uniform value that was read before */
        return 0;
    }
    if (wf_is_draw(&w->b->l, k)) {
        v[0] = lower_draw(w, k);
    } else if (wf_op_is_elementwise((wf_op)i->op)) {
        v[0] = lower_row(w, k);
    } else if (i->op == WF_OP_VJP) {
        v[0] = lower_vjp(w, k);
    } else if (!wf_is_mappable(&w->b->l, k)) {
        v[0] = wf_lower_row_op(w, k, v) ? -1 : v[0];
    } else { /* cast, copy, a reshape that copies */
        int type = f->types[i->type].dtype;
        v[0] = wf_lower_read(w, k, i->src[0], type);
        v[0] = v[0] < 0 ? -1 : wf_program_cast(w->prog, v[0], type);
    }
    for (uint32_t r = 0; r < wf_rows[i->op].ndst && v[0] >= 0; r++) {
        w->value[k + 1 + r] = v[r];
        w->stamp[k + 1 + r] = w->number + 1;
    }
    return v[0] < 0 ? -1 : 0;
}

static bool same_draws(const wf_program *a, const wf_program *b)
{
    bool same = true;
    for (int i = 0; i < a->ninput; i++) {
        const wf_program_drawn *x = &a->draw[i], *y = &b->draw[i];
        same &= x->op == y->op &&
                (x->op == WF_OP_INVALID || memcmp(x->scalar, y->scalar, sizeof x->scalar) == 0);
    }
    return same;
}

/* Equal programs share one copy. */
static bool same_program(const wf_program *a, const wf_program *b)
{
    size_t i2 = sizeof(int16_t);
    return a->ninput == b->ninput && a->nscalar == b->nscalar && a->ninst == b->ninst &&
           a->noutput == b->noutput && a->nvalue == b->nvalue &&
           memcmp(a->inst, b->inst, (size_t)a->ninst * sizeof *a->inst) == 0 &&
           memcmp(a->type, b->type, (size_t)a->nvalue) == 0 &&
           memcmp(a->level, b->level, (size_t)a->nvalue) == 0 &&
           memcmp(a->output_level, b->output_level, (size_t)a->noutput) == 0 &&
           memcmp(a->input, b->input, (size_t)a->ninput * i2) == 0 && same_draws(a, b) &&
           memcmp(a->scalar, b->scalar, (size_t)a->nscalar * i2) == 0 &&
           memcmp(a->output, b->output, (size_t)a->noutput * i2) == 0;
}

static uint64_t hash_program(const wf_program *p)
{
    uint64_t h = (uint64_t)p->ninput << 32 | (uint64_t)p->nscalar << 16 | (uint64_t)p->noutput;
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *x = &p->inst[i];
        uint64_t v = (uint64_t)x->op << 32 | (uint64_t)x->kind << 24 | (uint64_t)x->compute << 16 |
                     (uint64_t)x->which << 8;
        for (int k = 0; k < x->nsrc; k++) {
            v = v * 31 + (uint64_t)(uint16_t)x->src[k];
        }
        h = wf_mix(h, v);
    }
    return h;
}

/* Places for twice as many programs as there are, so that probes are short. */
static int grow_kept(wf_lowering *w)
{
    const wf_plan *p = w->b->p;
    if (2 * p->nprograms < w->nkept) {
        return 0;
    }
    const uint32_t n = w->nkept ? 2 * w->nkept : 64;
    uint32_t *kept = calloc(n, sizeof *kept);
    if (!kept) {
        return WEFT_ENOMEM;
    }
    for (uint32_t i = 0; i < p->nprograms; i++) {
        uint64_t at = p->programs[i].hash;
        while (kept[at & (n - 1)]) {
            at++;
        }
        kept[at & (n - 1)] = i + 1;
    }
    free(w->kept);
    w->kept = kept;
    w->nkept = n;
    return 0;
}

/* The number of an equal program, kept if it is new; -1: no memory. */
static int64_t keep_program(wf_lowering *w, uint32_t one)
{
    wf_plan *p = w->b->p;
    const wf_program *q = w->prog;
    const uint64_t hash = wf_mix(hash_program(q), one);
    if (grow_kept(w)) {
        return -1;
    }
    uint64_t at = hash;
    for (uint32_t i; (i = w->kept[at & (w->nkept - 1)]) != 0; at++) {
        const wf_plan_program *old = &p->programs[i - 1];
        if (old->hash == hash && old->one == one && same_program(old->program, q)) {
            return i - 1;
        }
    }
    wf_program *c = malloc(sizeof *c);
    if (!c || wf_grow(&p->programs, p->nprograms, 1, &p->capprograms, sizeof *p->programs)) {
        free(c);
        return -1;
    }
    *c = *q;
    wf_program_number(c);
    p->programs[p->nprograms] = (wf_plan_program){.hash = hash, .program = c, .one = one};
    w->kept[at & (w->nkept - 1)] = p->nprograms + 1;
    return p->nprograms++;
}

/* Inputs that are one element for a space of more. */
static uint32_t single_inputs(const wf_lowering *w)
{
    const wf_iter *space = &w->g->space;
    uint32_t one = 0;
    for (int i = 0; i < w->prog->ninput; i++) {
        const int64_t *strides = wf_map_strides(&w->b->l, &w->in[i]);
        bool single = true, many = false;
        for (int d = 0; d < space->rank; d++) {
            single &= space->dims[d] == 1 || strides[d] == 0;
            many |= space->dims[d] > 1;
        }
        one |= single && many ? 1u << i : 0;
    }
    return one;
}

/* The group's outputs as accesses: what of its members' values needs memory. */
static int lower_outputs(wf_lowering *w, wf_plan_step *s)
{
    wf_planner *b = w->b;
    for (uint32_t m = 0; m < w->g->n; m++) {
        uint32_t k = b->s.members[w->g->first + m];
        for (wf_val v = k + 1; v <= k + wf_rows[b->f->ins[k].op].ndst; v++) {
            wf_map_of at;
            const bool part = wf_part_of(b, v).whole != 0;
            if (b->buffer_of[v] < 0 && !part) {
                continue;
            }
            int level = b->s.level[v];
            wf_program_output_at(w->prog, w->value[v],
                                 level == WF_AT_ROW ? WF_LEVEL_ROW : WF_LEVEL_ELEM);
            const int rc = part ? wf_part_map(b, &w->g->space, v, level, &at)
                                : wf_write_map(&b->l, &w->g->space, &b->l.map[v], level, &at);
            if (rc == 1) {
                return wf_fail(b->why, WEFT_EUNSUPPORTED,
                               "a group does not run over %%%u as it lies in memory", v);
            }
            if (rc || add_access(b, &at)) {
                return WEFT_ENOMEM;
            }
            s->ndst++;
        }
    }
    return 0;
}

static int lower_group(wf_lowering *w)
{
    wf_planner *b = w->b;
    wf_plan *p = b->p;
    const uint32_t checks = p->nchecks;
    wf_program_init(w->prog);
    w->prog->fast = (b->opts->flags & WF_PLAN_FAST) != 0;
    for (uint32_t m = 0; m < w->g->n; m++) {
        if (lower_member(w, b->s.members[w->g->first + m])) {
            b->too_large = b->why->code == 0;
            return b->why->code ? b->why->code
                                : wf_fail(b->why, WEFT_EUNSUPPORTED, "a group is too large");
        }
    }
    wf_plan_step *s = add_step(b, WF_STEP_MAP, b->s.members[w->g->first + w->g->n - 1]);
    if (!s || lower_outputs(w, s)) {
        return WEFT_ENOMEM;
    }
    if (s->ndst == 0) { /* nobody reads it */
        p->nsteps--;
        return 0;
    }
    if (wf_program_finish(w->prog)) {
        b->too_large = true;
        return wf_fail(b->why, WEFT_EUNSUPPORTED, "a group is too large");
    }
    for (int i = 0; i < w->prog->ninput; i++) {
        if (w->prog->draw[i].op == WF_OP_INVALID ? add_access(b, &w->in[i])
                                                 : add_drawn(b, &w->in[i])) {
            return WEFT_ENOMEM;
        }
    }
    s->member = w->g->first;
    s->nmember = w->g->n;
    s->axes = w->g->space.axes;
    s->check = checks;
    s->ncheck = p->nchecks - checks;
    s->nsrc = (uint16_t)w->prog->ninput;
    s->nscalar = (uint32_t)w->prog->nscalar;
    if (wf_grow(&p->scalars, p->nscalars, s->nscalar, &p->capscalars, sizeof *p->scalars)) {
        return WEFT_ENOMEM;
    }
    if (s->nscalar) {
        memcpy(p->scalars + p->nscalars, w->scalar, s->nscalar * sizeof *p->scalars);
    }
    p->nscalars += s->nscalar;
    int64_t number = keep_program(w, single_inputs(w));
    s->program = (uint32_t)number;
    return number < 0 ? WEFT_ENOMEM : 0;
}

int wf_plan_lower(wf_planner *b)
{
    int rc = number_buffers(b);
    wf_lowering *w = rc ? NULL : calloc(1, sizeof *w);
    if (w) {
        w->b = b;
        w->prog = malloc(sizeof *w->prog);
        w->value = malloc((b->f->n + 1u) * sizeof *w->value);
        w->stamp = calloc(b->f->n + 1u, sizeof *w->stamp);
    }
    if (!rc && (!w || !w->prog || !w->value || !w->stamp)) {
        rc = WEFT_ENOMEM;
    }
    for (uint32_t g = 0; g < b->s.ngroups && !rc; g++) {
        w->g = &b->s.groups[g];
        w->number = g;
        uint32_t k = w->g->n ? b->s.members[w->g->first] : 0;
        if (w->g->n == 0) { /* its members have moved */
            continue;
        }
        if (w->g->kind == WF_STEP_MAP) {
            rc = lower_group(w);
        } else if (b->buffer_of[k + 1] >= 0) {
            rc = has_part(b, k) ? lower_rest(b, w->g, k) : lower_op(b, w->g);
        }
    }
    if (w) {
        free(w->prog);
        free(w->value);
        free(w->stamp);
        free(w->kept);
        free(w);
    }
    return rc;
}
