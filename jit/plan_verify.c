/*
 * jit/plan_verify.c -- holds a plan to its rules, and names the step that breaks one.
 *
 *   steps      launches count up from 0 without a gap; a step's row, operands, members, scalars and program are there and fit
 *              one another; the room of a run is enough for every launch
 *   accesses   inside their buffer for the recorded starts and offsets, buffers inside their memory; what a program runs over
 *              has one shape
 *   memory     is taken before the launch that first touches it and given back behind the last, each once
 *   values     a step reads what an earlier launch made and nothing has overwritten since; it writes over an operand only
 *              where it reads that element by element (or last); steps of one launch keep off each other's memory
 *   parts      what is written into the memory of a concat is one of its operands, at that one's place, each once, and the
 *              concat is made when all are
 *   results    lie in the caller's memory at the end
 *
 * The last three are found by going through the launches and noting which buffers hold their value. It knows nothing of
 * lifetimes, which the planner goes by: two ways to one fact.
 *
 * Invariant: counts and indices are checked before anything is read through them.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/product.h"
#include "jit/plan_after.h"
#include "jit/plan_int.h"

enum { NONE = UINT32_MAX };

/* What is known of a buffer while the launches go by. */
typedef struct holds {
    bool now;            /* it holds its value */
    uint32_t parts;      /* of a concat: operands that are written by themselves */
    uint32_t made, lost; /* steps; NONE: not yet (inputs: from the start) */
    uint32_t read, by;   /* the launch that read it last; the step, or NONE where several do */
    int32_t next;        /* of those in the same memory that hold theirs; -1: none */
} holds;

typedef struct checker {
    const wf_plan *p;
    const wf_fn *f;
    const wf_plan_opts *opts;
    wf_why *why;
    uint32_t s; /* the step at hand */
    holds *of;
    int32_t *first;         /* by memory */
    uint8_t *written;       /* by accesses: of a destination, as a part */
    uint32_t *from, *until; /* by slot: the launches in which it is there */
} checker;

static const char *kind_of(const wf_plan_step *s)
{
    return s->kind == WF_STEP_OP ? "op" : s->kind == WF_STEP_MAP ? "group" : "copy";
}

/* "step 3 group %7 add (model.c:14): ", and the rule. */
static int broken(const checker *c, const char *fmt, ...) WF_PRINTF(2, 3);
static int broken(const checker *c, const char *fmt, ...)
{
    const wf_plan_step *s = &c->p->steps[c->s];
    const bool known = s->ins < c->f->n;
    const uint32_t loc = known ? c->f->ins[s->ins].loc : 0;
    char rule[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(rule, sizeof rule, fmt, args);
    va_end(args);
    return wf_fail(c->why, WEFT_EINVALID, "step %u %s %%%u %s%s%.40s%s: %s", c->s, kind_of(s),
                   s->ins + 1, known ? wf_rows[c->f->ins[s->ins].op].name : "?", loc ? " (" : "",
                   loc ? wf_site_file(c->f->locs[loc]) : "", loc ? ")" : "", rule);
}

static int32_t writes_of(const checker *c, uint32_t k)
{
    return c->opts->writes ? c->opts->writes[k] : -1;
}

/* Slots of one memory: an output that replaces an input is that input. */
static uint32_t memory_of(const checker *c, uint32_t slot)
{
    const uint32_t k = slot - c->p->ninputs;
    return slot >= c->p->ninputs && k < c->p->noutputs && writes_of(c, k) >= 0
               ? (uint32_t)writes_of(c, k)
               : slot;
}

static uint32_t slots_of(const wf_plan *p)
{
    return p->ninputs + p->noutputs + p->ntemporaries;
}

static int64_t slot_bytes(const checker *c, uint32_t slot)
{
    const wf_plan *p = c->p;
    return slot < p->ninputs                 ? wf_type_bytes(wf_fn_type(c->f, c->f->inputs[slot]))
           : slot < p->ninputs + p->noutputs ? wf_type_bytes(&p->out_type[slot - p->ninputs])
                                             : p->temporary[slot - p->ninputs - p->noutputs];
}

/* -- what stands for itself ---------------------------------------------------------------------------------- */

static int check_writes(const checker *c)
{
    const wf_fn *f = c->f;
    for (uint32_t k = 0; k < f->noutputs; k++) {
        const int32_t j = writes_of(c, k);
        bool good =
            j < (int32_t)f->ninputs && (j < 0 || wf_type_bytes(wf_fn_type(f, f->inputs[j])) ==
                                                     wf_type_bytes(wf_fn_type(f, f->outputs[k])));
        for (uint32_t i = 0; i < k && good; i++) {
            good = j < 0 || writes_of(c, i) != j;
        }
        if (!good) {
            return wf_fail(
                c->why, WEFT_EINVALID,
                "output %u cannot replace input %d: another does, or it has another size", k, j);
        }
    }
    return 0;
}

/* A value's bytes: row by row, or in aligned rows, of which the last has nothing behind it. */
static bool is_size_of(const checker *c, const wf_buffer *u)
{
    const wf_type *t = wf_fn_type(c->f, u->v);
    const int64_t size = (int64_t)wf_dtype_size(t->dtype), bytes = wf_type_bytes(t);
    if (u->bytes == bytes || !c->p->aligned || u->place == WF_PLACE_INPUT ||
        u->place == WF_PLACE_OUTPUT || t->rank < 2 || bytes == 0) {
        return u->bytes == bytes;
    }
    const int64_t n = t->dims[t->rank - 1], rows = wf_type_numel(t) / n;
    return u->bytes == ((rows - 1) * wf_aligned_row(n, size) + n) * size;
}

static int check_buffer(const checker *c, uint32_t i)
{
    const wf_plan *p = c->p;
    const wf_buffer *u = &p->buffers[i];
    const uint32_t before = u->place == WF_PLACE_INPUT    ? 0
                            : u->place == WF_PLACE_OUTPUT ? p->ninputs
                                                          : p->ninputs + p->noutputs;
    const uint32_t most = u->place == WF_PLACE_INPUT    ? p->ninputs
                          : u->place == WF_PLACE_OUTPUT ? p->noutputs
                                                        : p->ntemporaries;
    const bool there = u->place > WF_PLACE_NONE && u->place <= WF_PLACE_ARENA && u->index < most &&
                       u->slot == before + u->index && u->v > 0 && u->v <= c->f->n;
    if (!there || !is_size_of(c, u) || u->offset < 0 ||
        u->bytes > slot_bytes(c, u->slot) - u->offset) {
        return wf_fail(c->why, WEFT_EINVALID,
                       "buffer %u of %%%u: %" PRId64 " bytes at %" PRId64
                       " of slot %u are outside it",
                       i, u->v, u->bytes, u->offset, u->slot);
    }
    return 0;
}

/* Every element that an access names, by the recorded starts and offsets, is in its buffer. */
static bool is_inside(const checker *c, const wf_access *a)
{
    const wf_plan *p = c->p;
    const int64_t *dims = p->words + a->shape, *strides = dims + a->rank;
    int64_t at = a->offset, lo, hi, size = (int64_t)wf_dtype_size(a->dtype);
    for (uint32_t t = a->term; t < a->term + a->nterms; t++) {
        at += wf_term_value(&p->terms[t], wf_ins_attr(c->f, &c->f->ins[p->terms[t].ins]));
    }
    const int names = wf_map_reach(a->rank, dims, strides, &lo, &hi);
    return names == 0 ||
           (names > 0 && at + lo >= 0 && (at + hi + 1) * size <= p->buffers[a->buffer].bytes);
}

static int check_access(const checker *c, uint32_t at, const char *what, uint32_t n)
{
    const wf_plan *p = c->p;
    const wf_access *a = &p->accesses[at];
    if (a->buffer == WF_BUFFER_ABSENT) {
        return 0;
    }
    if (a->buffer < WF_BUFFER_DRAWN || a->buffer >= (int32_t)p->nbuffers || a->rank > WF_MAX_RANK ||
        (uint64_t)a->shape + 2u * a->rank > p->nwords ||
        (uint64_t)a->term + a->nterms > p->nterms || wf_dtype_size(a->dtype) == 0) {
        return broken(c, "%s %u is access %u, which is none", what, n, at);
    }
    for (uint32_t t = a->term; t < a->term + a->nterms; t++) {
        const uint32_t k = p->terms[t].ins;
        const int slots = k < c->f->n ? wf_ins_attr(c->f, &c->f->ins[k])->n_dyn : 0;
        if (slots == 0 || p->terms[t].kind > WF_TERM_DIAGONAL) {
            return broken(c, "the offset of %s %u is read from %%%u, which has none", what, n,
                          k + 1);
        }
    }
    if (a->buffer >= 0 && !is_inside(c, a)) {
        return broken(c, "%s %u names elements outside %%%u", what, n, p->buffers[a->buffer].v);
    }
    return 0;
}

/* -- a step --------------------------------------------------------------------------------------------------- */

/* Is value v the value w, or seen through views of it? Reshapes of one value that have to copy share the copy. */
static bool sees(const wf_fn *f, wf_val v, wf_val w)
{
    const wf_ins *copy = w ? wf_fn_at(f, w) : NULL;
    while (v != w && v && wf_rows[wf_fn_at(f, v)->op].kind == WF_KIND_VIEW) {
        const wf_ins *i = wf_fn_at(f, v);
        const bool both = copy && i->op == WF_OP_RESHAPE && copy->op == WF_OP_RESHAPE;
        v = both && i->src[0] == copy->src[0] ? w : i->src[0];
    }
    return v == w;
}

static wf_val held(const wf_plan *p, const wf_access *a)
{
    return a->buffer < 0 ? 0 : p->buffers[a->buffer].v;
}

/* Extents and strides of an access, neighbouring axes as one where they can be, without those that a row's value is spread along.
 * Their number. */
static int collapse(int rank, const int64_t *dims, const int64_t *strides, int64_t *d, int64_t *s)
{
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (dims[i] == 1 || strides[i] == 0) {
            continue;
        }
        if (n && s[n - 1] == strides[i] * dims[i]) {
            d[n - 1] *= dims[i];
            s[n - 1] = strides[i];
        } else {
            d[n] = dims[i];
            s[n++] = strides[i];
        }
    }
    return n;
}

/* Does a name, in that order, the elements of an operand of concat k, which begins at `start`, in its memory? */
static bool is_place_of(const checker *c, const wf_access *a, uint32_t k, uint32_t operand,
                        int64_t start)
{
    const wf_fn *f = c->f;
    const wf_type *whole = &f->types[f->ins[k].type];
    const wf_type *t = wf_fn_type(f, wf_ins_src(f, &f->ins[k])[operand]);
    const int64_t axis = wf_ins_attr(f, &f->ins[k])->ints[0];
    const int64_t *dims = c->p->words + a->shape;
    int64_t strides[WF_MAX_RANK], d[2][WF_MAX_RANK], s[2][WF_MAX_RANK], step = 1;
    for (int i = whole->rank; i-- > 0; step *= whole->dims[i]) {
        strides[i] = step;
    }
    const int n = collapse(a->rank, dims, dims + a->rank, d[0], s[0]);
    return a->dtype == whole->dtype && !a->nterms && a->offset == start * strides[axis] &&
           n == collapse(t->rank, t->dims, strides, d[1], s[1]) &&
           memcmp(d[0], d[1], (size_t)n * sizeof d[0][0]) == 0 &&
           memcmp(s[0], s[1], (size_t)n * sizeof s[0][0]) == 0;
}

/* Of a destination in the memory of a concat: 1 + the operand that v, which is written there, is; 0: it is none that belongs there. */
static uint32_t operand_at(const checker *c, const wf_access *a, wf_val v)
{
    const wf_val whole = held(c->p, a);
    const wf_ins *i = whole ? wf_fn_at(c->f, whole) : NULL;
    const wf_val *src = i ? wf_ins_src(c->f, i) : NULL;
    int64_t start = 0;
    for (uint32_t n = 0; i && i->op == WF_OP_CONCAT && n < i->nsrc; n++) {
        if (src[n] && sees(c->f, src[n], v) && is_place_of(c, a, whole - 1, n, start)) {
            return n + 1;
        }
        start += wf_part_extent(c->f, whole, n);
    }
    return 0;
}

/* The same of what a member of the group makes. */
static uint32_t part_at(const checker *c, const wf_plan_step *s, const wf_access *a)
{
    uint32_t operand = 0;
    for (uint32_t m = 0; m < s->nmember && !operand; m++) {
        const uint32_t k = c->p->members[s->member + m];
        for (uint32_t r = 0; r < wf_rows[c->f->ins[k].op].ndst && !operand; r++) {
            operand = operand_at(c, a, k + 1 + r);
        }
    }
    return operand;
}

/* The same of destination d of any step; 0: it is written as a whole. */
static uint32_t part_of(const checker *c, const wf_plan_step *s, uint32_t d)
{
    const wf_access *a = &c->p->accesses[s->access];
    const wf_val v = held(c->p, &a[d]);
    return s->kind == WF_STEP_OP || wf_fn_at(c->f, v)->op != WF_OP_CONCAT ? 0
           : s->kind == WF_STEP_MAP                                       ? part_at(c, s, &a[d])
           : sees(c->f, v, held(c->p, &a[1]))                             ? 0
                                              : operand_at(c, &a[d], held(c->p, &a[1]));
}

static int check_op(const checker *c, const wf_plan_step *s)
{
    const wf_fn *f = c->f;
    const wf_ins *i = &f->ins[s->ins];
    const wf_access *a = &c->p->accesses[s->access];
    if (s->op != i->op || i->op <= WF_OP_RESULT || s->ndst != wf_rows[i->op].ndst ||
        s->nsrc != i->nsrc || s->nmember != 1 || c->p->members[s->member] != s->ins) {
        return broken(c,
                      "its row is %s with %u results and %u operands, which is another instruction",
                      s->op < WF_OP_COUNT ? wf_rows[s->op].name : "?", s->ndst, s->nsrc);
    }
    for (uint32_t r = 0; r < s->ndst; r++) {
        if (held(c->p, &a[r]) != s->ins + 1 + r) {
            return broken(c, "result %u goes to %%%u", r, held(c->p, &a[r]));
        }
    }
    const wf_val *src = wf_ins_src(f, i);
    for (uint32_t n = 0; n < s->nsrc; n++) {
        const wf_val v = held(c->p, &a[s->ndst + n]);
        if (src[n] ? !v || !sees(f, src[n], v) : v) {
            return broken(c, "operand %u is %%%u, and is read from %%%u", n, src[n], v);
        }
    }
    return 0;
}

static int check_scalar(const checker *c, const wf_plan_step *s, uint32_t n)
{
    const wf_program *g = c->p->programs[s->program].program;
    const wf_scalar_of *x = &c->p->scalars[s->scalar + n];
    const wf_fn *f = c->f;
    const wf_ins *i = x->ins < f->n ? &f->ins[x->ins] : NULL;
    bool good = i && x->kind <= WF_SCALAR_HIGH && x->dtype == g->type[g->scalar[n]];
    if (good && x->kind == WF_SCALAR_SLOT_VALUE) {
        good = wf_op_is_weak(i->op) && i->attr < f->nslots;
    } else if (good && x->kind == WF_SCALAR_FILL) {
        good = i->op == WF_OP_FULL;
    } else if (good && x->kind >= WF_SCALAR_SEED) {
        good = i->op >= WF_OP_RAND && i->op <= WF_OP_RANDPERM && x->n == f->types[i->type].rank;
    }
    return good ? 0
                : broken(c, "scalar %u is read from %%%u as kind %d, which has no such number", n,
                         x->ins + 1, x->kind);
}

/* One shape for all that a program runs over; per-row views stand still along reduced axes. */
static int check_space(const checker *c, const wf_plan_step *s)
{
    const wf_plan *p = c->p;
    const wf_program *g = p->programs[s->program].program;
    const wf_access *a = &p->accesses[s->access];
    const int64_t *dims = p->words + a[0].shape;
    for (uint32_t n = 0; n < (uint32_t)s->ndst + s->nsrc; n++) {
        const bool out = n < s->ndst;
        const int64_t *mine = p->words + a[n].shape, *strides = mine + a[n].rank;
        const int v = out ? g->output[n] : g->input[n - s->ndst];
        const int level = out ? g->output_level[n] : g->level[v];
        const bool drawn = !out && g->draw[n - s->ndst].op != WF_OP_INVALID;
        bool good = a[n].rank == a[0].rank && (a[n].buffer == WF_BUFFER_DRAWN) == drawn &&
                    a[n].buffer != WF_BUFFER_ABSENT && (out || a[n].dtype == g->type[v]);
        for (int d = 0; d < a[0].rank && good; d++) {
            const bool reduced = s->axes >> d & 1;
            good = mine[d] == dims[d] &&
                   (drawn || !reduced || level != WF_LEVEL_ROW || mine[d] == 1 || strides[d] == 0);
        }
        if (!good) {
            return broken(c, "%s %u is not of the shape and type that its program runs over",
                          out ? "destination" : "source", out ? n : n - s->ndst);
        }
    }
    return s->axes >> a[0].rank ? broken(c, "it reduces axes that its space does not have") : 0;
}

static int check_group(const checker *c, const wf_plan_step *s)
{
    const wf_plan *p = c->p;
    const wf_program *g = s->program < p->nprograms ? p->programs[s->program].program : NULL;
    if (!g || s->ndst != g->noutput || s->nsrc != g->ninput || s->nscalar != (uint32_t)g->nscalar ||
        s->nmember == 0 || (s->axes && !g->rows)) {
        return broken(c, "its program %u has not its %u destinations, %u sources and %u scalars",
                      s->program, s->ndst, s->nsrc, s->nscalar);
    }
    int rc = check_space(c, s);
    for (uint32_t n = 0; n < s->nscalar && !rc; n++) {
        rc = check_scalar(c, s, n);
    }
    for (uint32_t d = 0; d < s->ndst && !rc; d++) {
        const wf_val v = held(p, &p->accesses[s->access + d]);
        const wf_val maker = c->f->ins[v - 1].op == WF_OP_RESULT ? c->f->ins[v - 1].src[0] : v;
        uint32_t m = 0;
        while (m < s->nmember && p->members[s->member + m] != maker - 1) {
            m++;
        }
        rc = m < s->nmember || part_at(c, s, &p->accesses[s->access + d])
                 ? 0
                 : broken(c, "destination %u is %%%u, which no member of it makes", d, v);
    }
    for (uint32_t n = 0; n < s->ncheck && !rc; n++) {
        const wf_plan_check *x = &p->checks[s->check + n];
        const bool good = x->source < s->nsrc && x->ins < c->f->n && x->classes >= 0 &&
                          (c->f->ins[x->ins].op == WF_OP_CROSS_ENTROPY ||
                           c->f->ins[x->ins].op == WF_OP_CROSS_ENTROPY_BWD);
        rc = good ? 0
                  : broken(c, "check %u of its sources is of %%%u, which has no classes", n,
                           x->ins + 1);
    }
    const wf_plan_step *before = s - 1;
    if (!rc && s->after &&
        (c->s == 0 || before->launch != s->launch ||
         (before->op != WF_OP_MATMUL && before->op != WF_OP_LINEAR &&
          !wf_plan_finishes_rows((wf_op)before->op)))) {
        rc = broken(c, "it runs on the rows of a product, which does not stand before it");
    }
    return rc;
}

static int check_copy(const checker *c, const wf_plan_step *s)
{
    const wf_plan *p = c->p;
    const wf_access *a = &p->accesses[s->access];
    const bool two = s->ndst == 1 && s->nsrc == 1 && s->op == WF_OP_COPY;
    const wf_val to = two ? held(p, &a[0]) : 0, from = two ? held(p, &a[1]) : 0;
    const int64_t *x = two ? p->words + a[0].shape : NULL, *y = two ? p->words + a[1].shape : NULL;
    const bool whole = to && from && sees(c->f, to, from);
    const bool good = (whole || operand_at(c, &a[0], from)) && a[0].dtype == a[1].dtype &&
                      a[0].rank == a[1].rank && memcmp(x, y, a[0].rank * sizeof *x) == 0;
    return good ? 0 : broken(c, "%%%u is not a copy of %%%u", to, from);
}

static int check_step(const checker *c)
{
    const wf_plan *p = c->p;
    const wf_plan_step *s = &p->steps[c->s];
    const uint32_t launch = c->s ? p->steps[c->s - 1].launch : NONE;
    if (s->launch != launch + 1 && (c->s == 0 || s->launch != launch)) {
        return broken(c, "it is in launch %u behind launch %d", s->launch, (int)launch);
    }
    if (s->kind > WF_STEP_COPY || s->ins >= c->f->n || s->ndst == 0 ||
        (uint64_t)s->access + s->ndst + s->nsrc > p->naccesses ||
        (uint64_t)s->scalar + s->nscalar > p->nscalars ||
        (uint64_t)s->check + s->ncheck > p->nchecks ||
        (uint64_t)s->member + s->nmember > p->nmembers || (s->after && s->kind != WF_STEP_MAP)) {
        return broken(c, "what it is made of is not there");
    }
    int rc = 0;
    for (uint32_t n = 0; n < (uint32_t)s->ndst + s->nsrc && !rc; n++) {
        const bool out = n < s->ndst;
        rc = check_access(c, s->access + n, out ? "destination" : "source", out ? n : n - s->ndst);
        if (!rc && out && p->accesses[s->access + n].buffer < 0) {
            rc = broken(c, "destination %u has no memory", n);
        }
    }
    for (uint32_t m = 0; m < s->nmember && !rc; m++) {
        const uint32_t k = p->members[s->member + m];
        rc = k < c->f->n ? 0 : broken(c, "member %u is %%%u, which is no instruction", m, k + 1);
    }
    return rc                       ? rc
           : s->kind == WF_STEP_OP  ? check_op(c, s)
           : s->kind == WF_STEP_MAP ? check_group(c, s)
                                    : check_copy(c, s);
}

/* -- memory --------------------------------------------------------------------------------------------------- */

static int check_takes(const checker *c)
{
    const wf_plan *p = c->p;
    const uint32_t n = slots_of(p);
    for (uint32_t i = 0; i < n;
         i++) { /* a result that replaces an input is there; others have to be taken */
        const bool replaces =
            i >= p->ninputs && i < p->ninputs + p->noutputs && writes_of(c, i - p->ninputs) >= 0;
        c->from[i] = i < p->ninputs || replaces ? 0 : NONE;
        c->until[i] = NONE;
    }
    for (uint32_t i = 0; i < p->ntakes; i++) {
        const wf_take *t = &p->takes[i];
        const bool there = t->slot >= p->ninputs && t->slot < n && c->from[t->slot] == NONE;
        if (!there || t->bytes != slot_bytes(c, t->slot) || t->launch > p->nlaunches ||
            (i && t->launch < p->takes[i - 1].launch)) {
            return wf_fail(c->why, WEFT_EINVALID,
                           "take %u: %" PRId64
                           " bytes of slot %u before launch %u are taken out of turn, "
                           "twice, or not as large",
                           i, t->bytes, t->slot, t->launch);
        }
        c->from[t->slot] = t->launch;
    }
    for (uint32_t i = 0; i < p->ngives; i++) {
        const wf_give *g = &p->gives[i];
        const bool result = g->slot >= p->ninputs && g->slot < p->ninputs + p->noutputs;
        bool there =
            g->slot < n && !result && c->until[g->slot] == NONE && c->from[g->slot] <= g->launch;
        for (uint32_t k = 0; k < p->noutputs && there; k++) {
            there = writes_of(c, k) != (int32_t)g->slot;
        }
        if (!there || (i && g->launch < p->gives[i - 1].launch)) {
            return wf_fail(
                c->why, WEFT_EINVALID,
                "give %u: slot %u is given back behind launch %u out of turn, twice, or is not "
                "the run's",
                i, g->slot, g->launch);
        }
        c->until[g->slot] = g->launch;
    }
    return 0;
}

static bool overlap(const wf_buffer *a, const wf_buffer *b)
{
    return a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* The same elements in the same order, each once, from the start of both. */
static bool same_elements(const wf_plan *p, const wf_access *a, const wf_access *b)
{
    const int64_t *x = p->words + a->shape, *y = p->words + b->shape;
    int64_t step = 1;
    if (a->rank != b->rank || a->offset || b->offset || a->nterms || b->nterms ||
        wf_dtype_size(a->dtype) != wf_dtype_size(b->dtype)) {
        return false;
    }
    for (int d = a->rank; d-- > 0;) {
        const int64_t own = x[a->rank + d];
        if (x[d] != y[d] || (x[d] != 1 && (own < step || y[a->rank + d] != own))) {
            return false;
        }
        step = x[d] == 1 ? step : own * x[d];
    }
    return true;
}

/* Does the step, which reads element by element or has read all, find operand n again where it writes d? */
static bool may_share(const checker *c, const wf_plan_step *s, uint32_t d, uint32_t n)
{
    const wf_plan *p = c->p;
    const wf_access *a = &p->accesses[s->access];
    if (!same_elements(p, &a[d], &a[s->ndst + n])) {
        return false;
    }
    if (s->kind != WF_STEP_MAP) {
        return s->kind == WF_STEP_COPY || (n == 0 && wf_op_replaces(s->op));
    }
    const wf_program *g = p->programs[s->program].program;
    bool last = g->level[g->output[d]] == WF_LEVEL_ELEM &&
                g->inst[g->def[g->output[d]]].phase == g->nphase - 1 &&
                !(c->opts->flags & WF_PLAN_ALONE);
    for (int i = 0; i < g->ninst; i++) {
        last = last && g->inst[i].kind != WF_INST_PICK;
    }
    return !s->axes || last;
}

/* Step c->s writes destination d over buffer x, which holds its value. */
static int check_over(const checker *c, uint32_t d, int32_t x)
{
    const wf_plan *p = c->p;
    const wf_plan_step *s = &p->steps[c->s];
    const wf_access *a = &p->accesses[s->access];
    const wf_buffer *to = &p->buffers[a[d].buffer], *over = &p->buffers[x];
    const holds *h = &c->of[x];
    const bool read = h->read == s->launch;
    const uint32_t product = s->after ? c->s - 1 : NONE; /* its own, which this step reads */
    if (h->made != NONE && p->steps[h->made].launch == s->launch && h->made != product) {
        return broken(
            c, "destination %u, %%%u, is in the memory of %%%u, which this launch makes, too", d,
            to->v, over->v);
    }
    if (read && h->by != c->s) {
        return broken(c,
                      "destination %u, %%%u, is in the memory of %%%u, which another step of the "
                      "launch reads",
                      d, to->v, over->v);
    }
    for (uint32_t n = 0; n < s->nsrc; n++) {
        if (a[s->ndst + n].buffer == x && (over->offset != to->offset || !may_share(c, s, d, n))) {
            return broken(
                c,
                "destination %u, %%%u, is in the memory of operand %u, %%%u, which it still reads",
                d, to->v, n, over->v);
        }
    }
    return 0;
}

/* The slot of a buffer is there in the launch. */
static int check_there(const checker *c, int32_t x, uint32_t launch)
{
    const uint32_t slot = c->p->buffers[x].slot;
    const bool there =
        c->from[slot] <= launch && (c->until[slot] == NONE || launch <= c->until[slot]);
    return there ? 0
                 : broken(c, "the memory of %%%u, slot %u, is not there in launch %u",
                          c->p->buffers[x].v, slot, launch);
}

static int read_all(checker *c)
{
    const wf_plan *p = c->p;
    const wf_plan_step *s = &p->steps[c->s];
    const wf_access *src = &p->accesses[s->access + s->ndst];
    int rc = 0;
    for (uint32_t n = 0; n < s->nsrc && !rc; n++) {
        const int32_t x = src[n].buffer;
        if (x < 0 || (s->after && x == p->accesses[s[-1].access].buffer)) {
            continue;
        }
        holds *h = &c->of[x];
        if (!h->now) {
            return h->lost == NONE && h->made != NONE
                       ? broken(c, "operand %u, %%%u, is read before all its parts are made", n,
                                p->buffers[x].v)
                   : h->lost == NONE
                       ? broken(c, "operand %u, %%%u, is read before a step makes it", n,
                                p->buffers[x].v)
                       : broken(
                             c,
                             "operand %u, %%%u, is read from memory that step %u has overwritten",
                             n, p->buffers[x].v, h->lost);
        }
        h->by = h->read == s->launch && h->by != c->s ? NONE : c->s;
        h->read = s->launch;
        rc = check_there(c, x, s->launch);
    }
    return rc;
}

/* Operand `part` - 1 of a concat, whose memory is its own by now. */
static int write_part(checker *c, uint32_t d, uint32_t part)
{
    const wf_plan *p = c->p;
    const uint32_t at = p->steps[c->s].access + d;
    const int32_t u = p->accesses[at].buffer;
    holds *h = &c->of[u];
    const wf_ins *i = wf_fn_at(c->f, p->buffers[u].v);
    const wf_val *src = wf_ins_src(c->f, i);
    if (h->lost != NONE) {
        return broken(c, "destination %u is a part of %%%u, whose memory step %u has overwritten",
                      d, p->buffers[u].v, h->lost);
    }
    for (uint32_t s = 0; s <= c->s; s++) { /* concats have few parts, plans few concats */
        for (uint32_t n = p->steps[s].access; n < p->steps[s].access + p->steps[s].ndst; n++) {
            if (c->written[n] && p->accesses[n].buffer == u &&
                p->accesses[n].offset == p->accesses[at].offset) {
                return broken(c, "destination %u is operand %u of %%%u, which is there already", d,
                              part - 1, p->buffers[u].v);
            }
        }
    }
    c->written[at] = 1;
    h->parts++;
    uint32_t all = 0;
    for (uint32_t n = 0; n < i->nsrc; n++) {
        all += wf_type_numel(wf_fn_type(c->f, src[n])) > 0;
    }
    h->now = h->parts == all;
    return 0;
}

static int write_one(checker *c, uint32_t d)
{
    const wf_plan *p = c->p;
    const wf_plan_step *s = &p->steps[c->s];
    const int32_t u = p->accesses[s->access + d].buffer;
    const wf_buffer *to = &p->buffers[u];
    holds *h = &c->of[u];
    int32_t *link = &c->first[memory_of(c, to->slot)];
    const uint32_t part = part_of(c, s, d);
    int rc = check_there(c, u, s->launch);
    if (part && !rc && h->made != NONE) {
        return write_part(c, d, part);
    }
    if (!rc && to->place == WF_PLACE_INPUT) {
        rc = broken(c, "destination %u, %%%u, lies in argument %u", d, to->v, to->index);
    }
    if (!rc && h->made != NONE) {
        rc = broken(c, "destination %u, %%%u, is made already, by step %u", d, to->v, h->made);
    }
    while (*link >= 0 && !rc) {
        holds *x = &c->of[*link];
        if (!overlap(to, &p->buffers[*link])) {
            link = &x->next;
            continue;
        }
        rc = check_over(c, d, *link);
        x->now = false;
        x->lost = c->s;
        *link = x->next;
    }
    h->made = c->s;
    h->next = c->first[memory_of(c, to->slot)];
    c->first[memory_of(c, to->slot)] = u;
    if (part && !rc) {
        return write_part(c, d, part);
    }
    h->now = true;
    return rc;
}

static int walk(checker *c)
{
    const wf_plan *p = c->p;
    int rc = 0;
    for (uint32_t i = 0; i < slots_of(p); i++) {
        c->first[i] = -1;
    }
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const bool input = p->buffers[i].place == WF_PLACE_INPUT;
        c->of[i] =
            (holds){.now = input, .made = NONE, .lost = NONE, .read = NONE, .by = NONE, .next = -1};
        if (input) {
            c->of[i].next = c->first[p->buffers[i].slot];
            c->first[p->buffers[i].slot] = (int32_t)i;
        }
    }
    for (uint32_t begin = 0, end; begin < p->nsteps && !rc; begin = end) {
        for (end = begin; end < p->nsteps && p->steps[end].launch == p->steps[begin].launch;
             end++) {
        }
        for (c->s = begin; c->s < end && !rc; c->s++) {
            rc = read_all(c);
        }
        for (uint32_t s = begin; s < end && !rc; s++) {
            c->s = s;
            for (uint32_t d = 0; d < p->steps[s].ndst && !rc; d++) {
                rc = write_one(c, d);
            }
        }
    }
    return rc;
}

static int check_results(const checker *c)
{
    const wf_plan *p = c->p;
    for (uint32_t k = 0; k < p->noutputs; k++) {
        int32_t u = c->first[memory_of(c, p->ninputs + k)];
        while (u >= 0 && (!c->of[u].now || p->buffers[u].offset ||
                          !sees(c->f, c->f->outputs[k], p->buffers[u].v) ||
                          p->buffers[u].bytes != slot_bytes(c, p->ninputs + k))) {
            u = c->of[u].next;
        }
        if (u < 0 || c->from[p->ninputs + k] > p->nlaunches) {
            return wf_fail(c->why, WEFT_EINVALID,
                           "output %u, %%%u, is not in its memory at the end", k, c->f->outputs[k]);
        }
    }
    return 0;
}

/* The room of a run, divided for the largest launch. */
static int check_room(const checker *c)
{
    const wf_plan *p = c->p;
    uint32_t views = 0, scalars = 0, steps = 0;
    for (uint32_t s = 0; s < p->nsteps; s++) {
        const wf_plan_step *x = &p->steps[s];
        const bool first = s == 0 || x->launch != x[-1].launch;
        views = (first ? 0 : views) + x->ndst + x->nsrc;
        scalars = (first ? 0 : scalars) + x->nscalar;
        steps = (first ? 0 : steps) + 1;
        if (views > p->most_views || scalars > p->most_scalars || steps > p->most_steps) {
            return wf_fail(
                c->why, WEFT_EINVALID,
                "launch %u has %u steps, %u operands and %u numbers, and a run has room for %u, "
                "%u and %u",
                x->launch, steps, views, scalars, p->most_steps, p->most_views, p->most_scalars);
        }
    }
    return 0;
}

static int check_programs(const checker *c)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->p->nprograms && !rc; i++) {
        wf_why inner = {0};
        rc = wf_program_verify(c->p->programs[i].program, &inner);
        rc = rc ? wf_fail(c->why, rc, "program %u: %.200s", i, inner.rule) : 0;
    }
    return rc;
}

static int check_all(checker *c)
{
    const wf_plan *p = c->p;
    int rc = check_writes(c);
    for (uint32_t i = 0; i < p->nbuffers && !rc; i++) {
        rc = check_buffer(c, i);
    }
    rc = rc ? rc : check_programs(c);
    for (; c->s < p->nsteps && !rc; c->s++) {
        rc = check_step(c);
    }
    if (!rc && p->nlaunches != (p->nsteps ? p->steps[p->nsteps - 1].launch + 1 : 0)) {
        rc = wf_fail(c->why, WEFT_EINVALID,
                     "%u launches are counted, and the last step is in launch %u", p->nlaunches,
                     p->nsteps ? p->steps[p->nsteps - 1].launch : 0);
    }
    rc = rc ? rc : check_room(c);
    rc = rc ? rc : check_takes(c);
    rc = rc ? rc : walk(c);
    return rc ? rc : check_results(c);
}

int wf_plan_verify(const wf_plan *p, const wf_fn *f, const wf_plan_opts *opts, wf_why *why)
{
    checker c = {.p = p, .f = f, .opts = opts, .why = why};
    const uint32_t slots = slots_of(p);
    if (p->ninputs != f->ninputs || p->noutputs != f->noutputs) {
        return wf_fail(why, WEFT_EINVALID, "it is the plan of another function");
    }
    c.of = malloc((p->nbuffers + 1u) * sizeof *c.of);
    c.first = malloc((slots + 1u) * sizeof *c.first);
    c.from = malloc((slots + 1u) * sizeof *c.from);
    c.until = malloc((slots + 1u) * sizeof *c.until);
    c.written = calloc(p->naccesses + 1u, 1);
    const int rc = c.of && c.first && c.from && c.until && c.written
                       ? check_all(&c)
                       : wf_fail(why, WEFT_ENOMEM, "out of memory");
    free(c.of);
    free(c.first);
    free(c.from);
    free(c.until);
    free(c.written);
    return rc;
}
