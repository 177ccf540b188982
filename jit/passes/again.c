/*
 * jit/passes/again.c -- which values are computed again where they are read; see again.h.
 *
 * A recipe is the rows that make a value, back to what is in memory: at most MOST of them, all in one space. For each
 * group that reads the value it says what that group would read instead. Candidates are taken by what their memory
 * costs, the largest first; each is weighed when its turn comes, as earlier decisions change what is in memory and who
 * reads it. Two ways are compared with storing: every reader computes (then the value needs no memory), or only those
 * that have its operands at hand anyway.
 *
 * Never made larger: what is alive at once. Operands that would live on for a recipe are at most the size of the value
 * that goes; none of them may be memory that is written over (an input that is written back, the operand of an update).
 *
 * Invariants: linear in the function but for sorting candidates; a schedule that nothing is gained on stays as it is; the
 * rows of a recipe are made before the groups that get them, so the order of groups stands.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/program.h"
#include "jit/ir/flops.h"
#include "jit/passes/again.h"
#include "jit/passes/cost.h"
#include "jit/passes/pass.h"

/* The model's numbers; those of time were measured on one core with AVX-512 (docs/fusion.md). */
enum {
    FLOPS_A_BYTE = 4,   /* arithmetic that takes as long as a byte of traffic */
    FLOPS_A_ROW = 2,    /* that a row takes whatever it computes */
    FLOPS_HALF = 2,     /* a conversion to and from a half type */
    FLOPS_DIV = 8,      /* what a division, or a root, counts more than one */
    FLOPS_ROOT = 12,    /* (they are one operation in the row) */
    OPERAND = 2,        /* one more operand costs 1 / OPERAND of a byte an element */
    STREAMED = 8 << 20, /* bytes of a result that a row's own kernel writes better */
    MOST = 8,           /* rows of a recipe */
    READS = 12,         /* operands of a recipe */
    GROUPS = 4,         /* readers of a value that are looked at */
    READERS = 64,       /* of an operand; with more, it counts as not read yet */
    INSTS_A_ROW = 4,    /* that a row may add to a program, with casts */
    SCALARS_A_ROW = 2
};

enum {
    STORED = 1,   /* in memory, as the schedule is */
    PINNED = 2,   /* and must be: a leaf, returned, or read by what needs memory */
    REPLACED = 4, /* written over while the function runs */
    MAY = 8       /* at least one group could compute it again */
};

typedef struct reading {
    uint32_t k; /* instruction */
    wf_val v;   /* the operand, a view of the root or itself */
} reading;

typedef struct recipe {
    uint32_t row[MOST]; /* the value's own first */
    reading from[READS];
    int n, nfrom;
    int64_t flops; /* of all rows, an element */
} recipe;

typedef struct chooser {
    wf_schedule *s;
    wf_layout *l;
    const wf_fn *f;
    uint8_t *flags;  /* of root v */
    uint32_t *first; /* readings of root v: use[first[v] .. first[v + 1]) */
    reading *use;
    uint32_t *last; /* of root v: the last group that reads it from memory */
    uint32_t *home; /* of instruction k: the group it moves to, or WF_NO_GROUP */
    bool moved, no_memory;
} chooser;

static int64_t root_bytes(const chooser *c, wf_val v)
{
    const wf_map_of *m = &c->l->map[v];
    return wf_cost_bytes(m->dtype, m->rank, c->l->words + m->shape);
}

/* -- what is read, and how ----------------------------------------------------------------------------------- */

static bool is_map(const chooser *c, uint32_t g)
{
    return c->s->groups[g].kind == WF_STEP_MAP;
}

/* Would k of group g read v without memory, were it made there per element? */
static bool may_have(chooser *c, uint32_t g, uint32_t k, wf_val v)
{
    return is_map(c, g) && wf_reads_inside(c->l, &c->s->groups[g].space, k, v, WF_AT_ELEM);
}

/* Can the row of root v run in another group: one element after the other, out of its operands? */
static bool is_recipe_row(const chooser *c, wf_val v)
{
    const wf_ins *i = wf_fn_at(c->f, v);
    const uint32_t g = i->op == WF_OP_RESULT ? WF_NO_GROUP : c->s->group_of[v - 1];
    return g != WF_NO_GROUP && is_map(c, g) && c->s->level[v] == WF_AT_ELEM &&
           wf_is_mappable(c->l, v - 1) && !wf_is_draw(c->l, v - 1) && !wf_fill_of(c->l, v);
}

/* Reading v from memory by instruction k of group g: marks the root, and candidates. */
static void note_reading(chooser *c, uint32_t g, uint32_t k, wf_val v)
{
    const wf_val root = c->l->map[v].root, maker = root ? wf_maker_of(c->l, v) : 0;
    if (!root || wf_fill_of(c->l, v)) {
        return;
    }
    if (!maker || !is_map(c, c->s->group_of[maker - 1])) {
        c->flags[root] |= STORED | PINNED;
    } else if (c->s->group_of[maker - 1] == g) {
        return;
    } else {
        c->flags[root] |= STORED;
        if (is_recipe_row(c, root) && may_have(c, g, k, v)) {
            c->flags[root] |= MAY;
        } else {
            c->flags[root] |= PINNED;
        }
    }
    c->last[root] = c->last[root] == WF_NO_GROUP || g > c->last[root] ? g : c->last[root];
    const wf_ins *i = &c->f->ins[k];
    c->flags[root] |= wf_op_replaces(i->op) && v == wf_ins_src(c->f, i)[0] ? REPLACED : 0;
}

/* Marks all roots; the number of candidates. */
static uint32_t note_all(chooser *c, const int32_t *writes)
{
    const wf_fn *f = c->f;
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const uint32_t g = c->s->group_of[k];
        const wf_val *src = wf_ins_src(f, &f->ins[k]);
        for (int a = 0; g != WF_NO_GROUP && a < f->ins[k].nsrc; a++) {
            if (src[a]) {
                note_reading(c, g, k, src[a]);
            }
        }
    }
    for (uint32_t o = 0; o < f->noutputs; o++) {
        c->flags[c->l->map[f->outputs[o]].root] |= STORED | PINNED;
        if (writes && writes[o] >= 0) {
            c->flags[c->l->map[f->inputs[writes[o]]].root] |= REPLACED;
        }
    }
    for (wf_val v = 1; v <= f->n; v++) {
        n += (c->flags[v] & MAY) != 0;
    }
    return n;
}

/* Readings by root, views included. */
static void sort_readings(chooser *c)
{
    const wf_fn *f = c->f;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t k = 0; k < f->n; k++) {
            const wf_val *src = wf_ins_src(f, &f->ins[k]);
            for (int a = 0; c->s->group_of[k] != WF_NO_GROUP && a < f->ins[k].nsrc; a++) {
                const wf_val root = src[a] ? c->l->map[src[a]].root : 0;
                if (root && pass) {
                    c->use[c->first[root]++] = (reading){k, src[a]};
                } else if (root) {
                    c->first[root]++;
                }
            }
        }
        uint32_t at =
            0; /* counts become starts, and starts that were moved on become starts again */
        for (wf_val v = 0; v <= f->n + 1; v++) {
            const uint32_t n = c->first[v];
            c->first[v] = at;
            at = pass ? n : at + n;
        }
    }
}

bool wf_is_again(const wf_schedule *s, uint32_t g, wf_val root)
{
    uint32_t i = s->again_of ? s->again_of[root] : WF_NO_GROUP;
    while (i != WF_NO_GROUP && s->again[i].group != g) {
        i = s->again[i].next;
    }
    return i != WF_NO_GROUP;
}

/* Does group g read what `r` reads, in the same order, whatever becomes of the recipe? */
static bool reads_already(const chooser *c, uint32_t g, const reading *r)
{
    const wf_val root = c->l->map[r->v].root;
    if (wf_is_again(c->s, g, root)) {
        return true;
    }
    if (c->first[root + 1] - c->first[root] > READERS) {
        return false;
    }
    for (uint32_t i = c->first[root]; i < c->first[root + 1]; i++) {
        const reading *u = &c->use[i];
        if ((c->s->group_of[u->k] == g || wf_is_again(c->s, g, u->k + 1)) &&
            wf_map_count(c->l, wf_space_of(c->l, u->k)) == c->s->groups[g].space.count &&
            wf_map_same(c->l, &c->l->map[u->v], &c->l->map[r->v])) {
            return true;
        }
    }
    return false;
}

/* -- recipes --------------------------------------------------------------------------------------------------- */

/* Arithmetic of a row an element, in operations like an addition. */
static int64_t row_flops(const chooser *c, uint32_t k)
{
    const wf_ins *i = &c->f->ins[k];
    const int type = c->f->types[i->type].dtype;
    const int compute = wf_dtype_compute(type) == WEFT_F64 ? WEFT_F64 : WEFT_F32;
    int64_t n = FLOPS_A_ROW + (type == WEFT_F16 || type == WEFT_BF16 ? FLOPS_HALF : 0);
    n += i->op == WF_OP_DIV || i->op == WF_OP_RECIPROCAL ? FLOPS_DIV
         : i->op == WF_OP_SQRT || i->op == WF_OP_RSQRT || i->op == WF_OP_POW_HALF ||
                 i->op == WF_OP_POW_MINUS_HALF
             ? FLOPS_ROOT
             : 0;
    if (i->op == WF_OP_VJP) {
        const wf_attr *at = &c->f->attrs[i->attr];
        n += wf_flops_element((wf_op)at->ints[0], (int)at->ints[1], compute);
    } else if (wf_op_is_elementwise((wf_op)i->op)) {
        n += wf_flops_element((wf_op)i->op, -1, compute);
    }
    return n * (compute == WEFT_F64 ? 2 : 1);
}

static bool has_row(const recipe *r, uint32_t k)
{
    for (int i = 0; i < r->n; i++) {
        if (r->row[i] == k) {
            return true;
        }
    }
    return false;
}

/* Adds row k and what it needs; false: too long, or an operand is neither in memory nor a row like it. */
static bool add_row(chooser *c, recipe *r, uint32_t k)
{
    const wf_ins *i = &c->f->ins[k];
    const wf_val *src = wf_ins_src(c->f, i);
    const int64_t count = wf_map_count(c->l, wf_space_of(c->l, k));
    if (r->n == MOST) {
        return false;
    }
    r->row[r->n++] = k;
    r->flops += row_flops(c, k);
    for (int a = 0; a < i->nsrc; a++) {
        const wf_val root = src[a] ? c->l->map[src[a]].root : 0;
        if (!root || wf_fill_of(c->l, src[a]) || has_row(r, root - 1)) {
            continue;
        }
        if (c->flags[root] & STORED) {
            if (r->nfrom == READS) {
                return false;
            }
            r->from[r->nfrom++] = (reading){k, src[a]};
        } else if (!is_recipe_row(c, root) || !wf_reads_whole(c->l, k, src[a]) ||
                   wf_map_count(c->l, wf_space_of(c->l, root - 1)) != count ||
                   !add_row(c, r, root - 1)) {
            return false;
        }
    }
    return true;
}

/* Is row i of the recipe read by rows that go, and by groups to[0 .. n) if it is the value itself, alone? */
static bool may_go(const chooser *c, const recipe *r, int i, const uint32_t *to, int n,
                   const bool *goes)
{
    const uint32_t v = r->row[i] + 1;
    for (uint32_t u = c->first[v]; u < c->first[v + 1]; u++) {
        bool known = false;
        for (int j = 0; j < r->n; j++) {
            known |= goes[j] && r->row[j] == c->use[u].k;
        }
        for (int g = 0; g < n && i == 0; g++) {
            known |= c->s->group_of[c->use[u].k] == to[g];
        }
        if (!known) {
            return false;
        }
    }
    return (c->flags[v] & PINNED) == 0;
}

/* Which rows are needed by nobody but the groups that will compute the value: these have them instead of their group. */
static void find_going(const chooser *c, const recipe *r, const uint32_t *to, int n, bool *goes)
{
    bool changed = true;
    for (int i = 0; i < r->n; i++) {
        goes[i] = true;
    }
    while (changed) {
        changed = false;
        for (int i = 0; i < r->n; i++) {
            const bool stays = goes[i] && !may_go(c, r, i, to, n, goes);
            goes[i] &= !stays;
            changed |= stays;
        }
    }
}

/* What group g would read besides, and lose if it runs by the kernel of a row; *lives: bytes that only the recipe keeps.
 * -1: it cannot. */
static int64_t reads_of(chooser *c, const recipe *r, uint32_t g, int64_t *lives)
{
    wf_group *x = &c->s->groups[g];
    uint32_t inputs = x->inputs, streams = x->streams;
    int64_t bytes = -(x->space.count / OPERAND); /* the first one is in the place of the value */
    for (int i = 0; i < r->nfrom; i++) {
        const wf_val root = c->l->map[r->from[i].v].root;
        const wf_map_of *m = &c->l->map[r->from[i].v];
        wf_map_of read;
        bool row;
        if (reads_already(c, g, &r->from[i])) {
            continue;
        }
        const int rc = c->flags[root] & REPLACED
                           ? 1
                           : wf_read_map(c->l, &x->space, r->from[i].k, r->from[i].v, &read, &row);
        if (rc) {
            c->no_memory |= rc != 1;
            return -1;
        }
        inputs++;
        streams += wf_is_stream(c->l, &x->space, &read);
        bytes += wf_weigh_bytes(wf_cost_bytes(m->dtype, m->rank, c->l->words + m->shape)) +
                 x->space.count / OPERAND;
        const bool leaf = wf_maker_of(c->l, root) == 0;
        *lives += leaf || c->last[root] >= g ? 0 : root_bytes(c, root);
    }
    const uint32_t rows = (uint32_t)r->n;
    const bool full = inputs > WF_PROGRAM_INPUTS ||
                      x->insts + rows * INSTS_A_ROW > WF_PROGRAM_INSTS - WF_PROGRAM_OUTPUTS ||
                      x->scalars + rows * SCALARS_A_ROW > WF_PROGRAM_SCALARS;
    bytes = bytes < 0 ? 0 : bytes;
    const int64_t size = root_bytes(c, r->row[0] + 1);
    const bool own_kernel = x->n == 1 && size >= STREAMED;
    if (!c->s->alone) {
        bytes += wf_weigh_crowd(streams, wf_weigh_bytes(size)) -
                 wf_weigh_crowd(x->streams + 1, wf_weigh_bytes(size)) + (own_kernel ? 2 * size : 0);
    }
    return full ? -1 : bytes < 0 ? 0 : bytes;
}

/* -- decisions -------------------------------------------------------------------------------------------------- */

static void compute_in(chooser *c, const recipe *r, int row, uint32_t g)
{
    wf_schedule *s = c->s;
    const wf_val v = r->row[row] + 1;
    if (wf_is_again(s, g, v)) {
        return;
    }
    if (s->nagain == s->capagain) {
        const uint32_t cap = s->capagain ? 2 * s->capagain : 64;
        wf_again *p = realloc(s->again, cap * sizeof *p);
        if (!p) {
            c->no_memory = true;
            return;
        }
        s->again = p;
        s->capagain = cap;
    }
    s->again[s->nagain] = (wf_again){g, v, s->again_of[v]};
    s->again_of[v] = s->nagain++;
}

/* Groups to[0 .. n) compute v themselves; all: nobody needs it in memory. */
static void decide(chooser *c, const recipe *r, uint32_t *to, int n, bool all)
{
    bool goes[MOST] = {false};
    uint32_t home = to[0];
    for (int i = 1; i < n; i++) {
        home = to[i] < home ? to[i] : home;
    }
    if (all) {
        find_going(c, r, to, n, goes);
    }
    for (int i = 0; i < r->n; i++) {
        for (int g = 0; g < n; g++) {
            if (!goes[i] || to[g] != home) {
                compute_in(c, r, i, to[g]);
            }
            c->s->groups[to[g]].insts += INSTS_A_ROW;
            c->s->groups[to[g]].scalars += SCALARS_A_ROW;
        }
        if (goes[i]) {
            c->s->group_of[r->row[i]] = c->home[r->row[i]] = home;
            c->moved = true;
        }
    }
    for (int i = 0; i < r->nfrom; i++) {
        const wf_val root = c->l->map[r->from[i].v].root;
        c->flags[root] |= PINNED;
        for (int g = 0; g < n; g++) {
            c->s->groups[to[g]].inputs++;
            c->last[root] = to[g] > c->last[root] ? to[g] : c->last[root];
        }
    }
    if (all) {
        c->flags[r->row[0] + 1] &= (uint8_t)~STORED;
    }
}

/* The groups that could compute v; *others: somebody reads it from memory in any case. */
static int find_readers(chooser *c, wf_val v, uint32_t *to, bool *others)
{
    const uint32_t own = c->s->group_of[v - 1];
    int n = 0;
    *others = (c->flags[v] & PINNED) != 0;
    for (uint32_t i = c->first[v]; i < c->first[v + 1]; i++) {
        const uint32_t g = c->s->group_of[c->use[i].k];
        int at = 0;
        if (g == own || wf_is_again(c->s, g, v)) {
            continue;
        }
        while (at < n && to[at] != g) {
            at++;
        }
        if (at == GROUPS || !may_have(c, g, c->use[i].k, c->use[i].v)) {
            *others = true;
        } else if (at == n) {
            to[n++] = g;
        }
    }
    for (uint32_t i = c->first[v]; i < c->first[v + 1];
         i++) { /* a group that also reads its memory */
        for (int at = 0; at < n; at++) {
            if (c->s->group_of[c->use[i].k] == to[at] &&
                !may_have(c, to[at], c->use[i].k, c->use[i].v)) {
                to[at--] = to[--n];
            }
        }
    }
    return n;
}

/* Weighs value v; changes the schedule if computing it is cheaper. */
static void weigh(chooser *c, wf_val v)
{
    recipe r = {.n = 0};
    uint32_t to[GROUPS], some[GROUPS];
    int64_t reads[GROUPS];
    bool others;
    int n = find_readers(c, v, to, &others), nsome = 0;
    if (n == 0 || !add_row(c, &r, v - 1)) {
        return;
    }
    const int64_t count = wf_map_count(c->l, wf_space_of(c->l, v - 1)), size = root_bytes(c, v);
    const int64_t bytes = wf_weigh_bytes(size), work = count * r.flops / FLOPS_A_BYTE;
    wf_weighed *w = &c->s->weighed[v];
    int64_t lives = 0, saved = bytes, cost = 0;
    for (int g = 0; g < n; g++) {
        int64_t own = 0;
        reads[g] = reads_of(c, &r, to[g], &own);
        lives = own > lives ? own : lives; /* alive to the last of them */
        others |= reads[g] < 0;
        saved += bytes;
        cost += reads[g] + work;
        if (reads[g] >= 0 && own == 0 && reads[g] + work < bytes) {
            some[nsome++] = to[g];
        }
    }
    if (!others) {
        bool goes[MOST];
        find_going(c, &r, to, n, goes);
        for (int i = 0; i < r.n; i++) { /* what moves is computed no more often than before */
            cost -= goes[i] ? count * row_flops(c, r.row[i]) / FLOPS_A_BYTE : 0;
        }
        *w = (wf_weighed){saved, cost};
        if (cost < saved && lives <= size && wf_stage_may(WF_STAGE_again)) {
            decide(c, &r, to, n, true);
            return;
        }
    }
    if (nsome && wf_stage_may(WF_STAGE_again)) {
        decide(c, &r, some, nsome, false);
    }
}

/* -- all of them -------------------------------------------------------------------------------------------------- */

typedef struct candidate {
    int64_t bytes;
    wf_val v;
} candidate;

/* The largest first; of equals the later one, whose recipe may have the earlier in it. */
static int by_bytes(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->v < y->v ? 1 : -1;
}

/* Members that moved lie before those of their new group, in the order of the function. */
static int rebuild(chooser *c)
{
    wf_schedule *s = c->s;
    uint32_t *members = malloc((c->f->n + 1u) * sizeof *members);
    uint32_t *come = calloc(s->ngroups + 1u, sizeof *come), at = 0;
    if (!members || !come) {
        free(members);
        free(come);
        return WEFT_ENOMEM;
    }
    for (uint32_t k = 0; k < c->f->n; k++) {
        if (c->home[k] != WF_NO_GROUP) {
            come[c->home[k]]++;
        }
    }
    for (uint32_t g = 0; g < s->ngroups; g++) {
        wf_group *x = &s->groups[g];
        const uint32_t from = x->first, n = x->n;
        const uint32_t gap = come[g];
        x->first = at;
        come[g] = at;
        at += gap;
        for (uint32_t m = from; m < from + n; m++) {
            if (c->home[s->members[m]] == WF_NO_GROUP) {
                members[at++] = s->members[m];
            }
        }
        x->n = at - x->first;
    }
    for (uint32_t k = 0; k < c->f->n; k++) {
        if (c->home[k] != WF_NO_GROUP) {
            members[come[c->home[k]]++] = k;
        }
    }
    for (uint32_t g = 0; g < s->ngroups;
         g++) { /* what is left of a group may be a row for its eager kernel */
        wf_group *x = &s->groups[g];
        const uint32_t k = x->n ? members[x->first] : 0;
        if (x->kind == WF_STEP_MAP && x->n == 1 &&
            ((!s->alone && !wf_is_mappable(c->l, k)) || wf_is_draw(c->l, k))) {
            x->kind = WF_STEP_OP;
        }
    }
    free(s->members);
    free(come);
    s->members = members;
    return 0;
}

static int choose(chooser *c, uint32_t n)
{
    const size_t values = c->f->n + 2u;
    size_t uses = 1;
    for (uint32_t k = 0; k < c->f->n; k++) {
        uses += c->f->ins[k].nsrc;
    }
    candidate *list = malloc((n + 1u) * sizeof *list);
    c->first = calloc(values, sizeof *c->first);
    c->use = malloc(uses * sizeof *c->use);
    c->home = malloc(values * sizeof *c->home);
    c->s->again_of = malloc(values * sizeof *c->s->again_of);
    c->s->weighed = calloc(values, sizeof *c->s->weighed);
    bool ok = list && c->first && c->use && c->home && c->s->again_of && c->s->weighed;
    if (ok) {
        uint32_t at = 0;
        memset(c->home, 0xFF, values * sizeof *c->home);
        memset(c->s->again_of, 0xFF, values * sizeof *c->s->again_of);
        sort_readings(c);
        for (wf_val v = 1; v <= c->f->n; v++) {
            if (c->flags[v] & MAY) {
                list[at++] = (candidate){root_bytes(c, v), v};
            }
        }
        qsort(list, n, sizeof *list, by_bytes);
        for (uint32_t i = 0; i < n; i++) {
            weigh(c, list[i].v);
        }
        ok = !c->no_memory && !(c->moved && rebuild(c));
    }
    free(list);
    free(c->first);
    free(c->use);
    free(c->home);
    return ok ? 0 : WEFT_ENOMEM;
}

int wf_choose_again(wf_schedule *s, wf_layout *l, const int32_t *writes)
{
    chooser c = {.s = s, .l = l, .f = l->f};
    const size_t values = l->f->n + 1u;
    c.flags = calloc(values, 1);
    c.last = malloc(values * sizeof *c.last);
    int rc = c.flags && c.last ? 0 : WEFT_ENOMEM;
    if (!rc) {
        memset(c.last, 0xFF, values * sizeof *c.last);
        const uint32_t n = note_all(&c, writes);
        rc = n ? choose(&c, n) : 0;
    }
    free(c.flags);
    free(c.last);
    return rc;
}
