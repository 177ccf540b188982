/*
 * jit/ir/build.c -- the folding builder.
 *
 * An instruction is hashed by its semantic bytes; equal hashes are chained through wf_ins.next behind a
 * table of heads, so that merging costs one probe. Copying an instruction does not infer: its type
 * follows from operand types, which every step keeps. Only a rule that rewrote the instruction is
 * checked by inference, and dropped if the type would change.
 *
 * Cost: hash, probe, append, about 50 ns an instruction.
 */
#include "jit/ir/build.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/mix.h"

enum {
    MAX_STEPS = 64, /* rules end by themselves (fold.def); this is the belt to the braces */
    FEW_SRC = 8
};

bool wf_op_commutes(wf_op op)
{
    return op == WF_OP_ADD || op == WF_OP_MUL || op == WF_OP_MAXIMUM || op == WF_OP_MINIMUM ||
           op == WF_OP_BITWISE_AND || op == WF_OP_BITWISE_OR || op == WF_OP_BITWISE_XOR ||
           op == WF_OP_EQUAL || op == WF_OP_NOT_EQUAL || op == WF_OP_LOGICAL_AND ||
           op == WF_OP_LOGICAL_OR || op == WF_OP_LOGICAL_XOR || op == WF_OP_FMA;
}

bool wf_op_has_free_slots(wf_op op, const wf_attr *attr)
{
    return op == WF_OP_RESHAPE || op == WF_OP_EXPAND || op == WF_OP_VJP ||
           (attr->n_dyn == 0 && attr->n_flt == 0);
}

const wf_attr *wf_attr_now(const wf_fn *f, uint32_t k, const wf_fn *now)
{
    const wf_ins *i = &f->ins[k];
    const wf_attr *a = wf_ins_attr(f, i);
    wf_val from = wf_fn_origin(f, k + 1);
    if (from == 0 || wf_op_has_free_slots((wf_op)i->op, a)) {
        return a;
    }
    return wf_ins_attr(now, wf_fn_at(now, from));
}

/* -- begin, end --------------------------------------------------------------------------------------- */

int wf_build_begin(wf_build *b, const wf_fn *like, int classes)
{
    *b = (wf_build){.classes = classes, .like = like, .f = wf_fn_new(like->name)};
    uint32_t size = 64;
    while (size < like->n) {
        size *= 2;
    }
    b->head = calloc(size, sizeof *b->head);
    b->mask = size - 1;
    b->type_of = calloc(like->ntypes + 1u, sizeof *b->type_of);
    if (!b->f || !b->head || !b->type_of) {
        return WEFT_ENOMEM;
    }
    if (like->n > 0) { /* room at once: growing copies */
        b->f->ins = malloc(like->n * sizeof *b->f->ins);
        b->f->origin = malloc(like->n * sizeof *b->f->origin);
        b->f->cap = b->f->ins ? like->n : 0;
        b->f->caporigin = b->f->origin ? like->n : 0;
    }
    return wf_fn_copy_symbols(b->f, like);
}

wf_fn *wf_build_end(wf_build *b)
{
    wf_fn *f = b->f;
    free(b->head);
    free(b->type_of);
    b->head = b->type_of = NULL;
    b->f = NULL;
    return f;
}

/* -- append ------------------------------------------------------------------------------------------- */

/* Room for the origin of one more instruction; call before it is pushed. */
static int grow_origin(wf_fn *f)
{
    if (f->n < f->caporigin) {
        return 0;
    }
    uint32_t cap = f->caporigin ? f->caporigin * 2 : 64;
    wf_val *p = realloc(f->origin, cap * sizeof *p);
    if (!p) {
        return WEFT_ENOMEM;
    }
    f->origin = p;
    f->caporigin = cap;
    return 0;
}

static wf_val push(wf_build *b, const wf_ins *i, wf_val origin)
{
    if (grow_origin(b->f)) {
        return 0;
    }
    b->f->origin[b->f->n] = origin;
    return wf_fn_push(b->f, i);
}

wf_val wf_build_input(wf_build *b, const wf_type *t, wf_val origin)
{
    if (grow_origin(b->f)) {
        return 0;
    }
    b->f->origin[b->f->n] = origin;
    return wf_fn_input(b->f, t);
}

wf_val wf_build_scalar(wf_build *b, int kind, uint64_t bits, wf_val origin)
{
    if (grow_origin(b->f)) {
        return 0;
    }
    b->f->origin[b->f->n] = origin;
    return wf_fn_scalar(b->f, kind, bits);
}

/* -- merging ------------------------------------------------------------------------------------------- */

typedef struct key {
    wf_op op;
    int nsrc;
    const wf_val *src;
    uint32_t type;
    const wf_attr *attr;
    wf_val slots; /* recorded instruction of the slots; 0: they do not matter */
} key;

static uint32_t hash_of(const wf_build *b, const key *k)
{
    uint64_t h = wf_mix((uint64_t)k->op << 32 | (uint64_t)k->nsrc << 24 | k->attr->flags,
                        (uint64_t)k->type << 32 | k->slots);
    for (int i = 0; i < k->nsrc; i++) {
        h = wf_mix(h, k->src[i]);
    }
    for (int i = 0; i < k->attr->n_ints; i++) {
        h = wf_mix(h, (uint64_t)k->attr->ints[i]);
    }
    return (uint32_t)(h >> 20) & b->mask;
}

static bool matches(const wf_fn *f, wf_val v, const key *k)
{
    const wf_ins *i = wf_fn_at(f, v);
    if (i->op != k->op || i->nsrc != k->nsrc || i->type != k->type ||
        (k->nsrc && memcmp(wf_ins_src(f, i), k->src, (size_t)k->nsrc * sizeof *k->src) != 0)) {
        return false;
    }
    const wf_attr *a = wf_ins_attr(f, i);
    if (a->dtype != k->attr->dtype || a->flags != k->attr->flags || a->n_ints != k->attr->n_ints ||
        a->n_dyn != k->attr->n_dyn || a->n_flt != k->attr->n_flt ||
        (a->n_ints && memcmp(a->ints, k->attr->ints, a->n_ints * sizeof *a->ints) != 0)) {
        return false;
    }
    return wf_op_has_free_slots(k->op, a) || f->origin[v - 1] == k->slots;
}

static bool may(wf_build *b, const char *what)
{
    if (b->may && !b->may(b->ctx, what)) {
        return false;
    }
    b->rewrites++;
    return true;
}

wf_val wf_build_const(wf_build *b, int kind, uint64_t bits)
{
    uint32_t h = (uint32_t)(wf_mix(wf_mix(WF_OP_CONST, (uint64_t)kind), bits) >> 20) & b->mask;
    for (wf_val v = b->head[h]; v; v = wf_fn_at(b->f, v)->next) {
        const wf_ins *i = wf_fn_at(b->f, v);
        if (i->op == WF_OP_CONST && b->f->slot_kind[i->attr] == kind &&
            b->f->slots[i->attr] == bits) {
            return v;
        }
    }
    if (grow_origin(b->f)) {
        return 0;
    }
    b->f->origin[b->f->n] = 0;
    wf_val v = wf_fn_const(b->f, kind, bits);
    if (v) {
        b->f->ins[v - 1].next = b->head[h];
        b->head[h] = v;
    }
    return v;
}

/* -- one row ------------------------------------------------------------------------------------------- */

typedef struct row {
    wf_op op;
    const wf_attr *attr;
    uint32_t attr_index; /* of an equal attribute of the function, UINT32_MAX: not there yet */
    int nsrc;
    const wf_val *src;
    const wf_type *type; /* of the results */
    wf_val origin;
    uint32_t loc;
    uint8_t flags; /* those that a copy keeps */
} row;

/* Does the rewritten instruction still have its type? */
static bool keeps_type(const wf_fn *f, const wf_folding *x)
{
    wf_type t[WF_MAX_DST];
    wf_why why;
    return wf_fn_infer(f, x->op, &x->attr, x->nsrc, x->src, t, &why) == 0 &&
           wf_type_same(&t[0], x->type);
}

/* An attribute list that lies in the folding itself moves with it. */
static void copy_folding(wf_folding *to, const wf_folding *from)
{
    memcpy(to, from, offsetof(wf_folding, ints));
    if (from->attr.ints == from->ints || from->attr.dyn == from->ints) {
        memcpy(to->ints, from->ints, sizeof to->ints);
        to->attr.ints = from->attr.ints == from->ints ? to->ints : from->attr.ints;
        to->attr.dyn = from->attr.dyn == from->ints ? to->ints : from->attr.dyn;
    }
}

/* Folds r as far as rules go: the value it is, or 0 with r as far as it came, kept in *x. */
static wf_val fold(wf_build *b, row *r, wf_folding *x)
{
    x->f = b->f;
    x->op = r->op;
    x->nsrc = r->nsrc;
    memcpy(x->src, r->src, (size_t)r->nsrc * sizeof *r->src);
    x->attr = *r->attr;
    x->type = r->type;
    for (int step = 0; step < MAX_STEPS; step++) {
        wf_folding try;
        copy_folding(&try, x);
        wf_fold_rule rule;
        wf_val v = wf_fold_step(&try, b->classes, &rule);
        if (v == 0) {
            break;
        }
        if (v != WF_FOLD_AGAIN) {
            bool good =
                wf_type_same(wf_fn_type(b->f, v), x->type) && !wf_op_is_weak(wf_fn_at(b->f, v)->op);
            if (good && may(b, wf_fold_rules[rule].name)) {
                return v;
            }
            break;
        }
        if (!keeps_type(b->f, &try) || !may(b, wf_fold_rules[rule].name)) {
            break;
        }
        copy_folding(x, &try);
        r->op = x->op;
        r->nsrc = x->nsrc;
        r->src = x->src;
        r->attr = &x->attr;
        r->attr_index = UINT32_MAX;
    }
    return 0;
}

static void order_operands(row *r, wf_val *room)
{
    if (wf_op_commutes(r->op) && r->src[0] > r->src[1]) {
        memcpy(room, r->src, (size_t)r->nsrc * sizeof *room);
        room[0] = r->src[1];
        room[1] = r->src[0];
        r->src = room;
    }
}

static int append(wf_build *b, const row *r, uint32_t type, wf_val *dst)
{
    wf_ins i = {.op = (uint8_t)r->op, .flags = r->flags, .type = type, .loc = r->loc};
    i.attr = r->attr_index != UINT32_MAX ? r->attr_index : wf_fn_intern_attr(b->f, r->attr);
    if (i.attr == UINT32_MAX || wf_fn_set_src(b->f, &i, r->nsrc, r->src)) {
        return WEFT_ENOMEM;
    }
    dst[0] = push(b, &i, r->origin);
    for (int k = 1; k < wf_rows[r->op].ndst && dst[0]; k++) {
        wf_ins result = {.op = WF_OP_RESULT, .nsrc = 1, .src = {dst[0]}, .attr = (uint32_t)k};
        result.loc = r->loc;
        result.type = wf_fn_intern_type(b->f, &r->type[k]);
        dst[k] =
            result.type == UINT32_MAX ? 0 : push(b, &result, r->origin ? r->origin + (wf_val)k : 0);
        if (!dst[k]) {
            b->f->n = dst[0] - 1;
            dst[0] = 0;
        }
    }
    return dst[0] ? 0 : WEFT_ENOMEM;
}

static int build(wf_build *b, row *r, uint32_t type, wf_val *dst)
{
    wf_folding x;
    wf_val room[3];
    if ((b->classes & (WF_FOLD_EXACT | WF_FOLD_FAST)) && r->nsrc > 0 && r->nsrc <= 3 &&
        wf_fold_has(r->op)) {
        wf_val v = fold(b, r, &x);
        if (v) {
            dst[0] = v;
            return 0;
        }
    }
    if (!(b->classes & WF_FOLD_MERGE)) {
        return append(b, r, type, dst);
    }
    order_operands(r, room);
    bool free_slots = wf_op_has_free_slots(r->op, r->attr);
    const key k = {.op = r->op,
                   .nsrc = r->nsrc,
                   .src = r->src,
                   .type = type,
                   .attr = r->attr,
                   .slots = free_slots ? 0 : r->origin};
    uint32_t h = hash_of(b, &k);
    /* Slots without a recording behind them belong to nobody else. */
    for (wf_val v = free_slots || r->origin ? b->head[h] : 0; v; v = wf_fn_at(b->f, v)->next) {
        if (matches(b->f, v, &k)) {
            if (!may(b, "merge")) {
                break;
            }
            for (int n = 0; n < wf_rows[r->op].ndst; n++) {
                dst[n] = v + (wf_val)n;
            }
            return 0;
        }
    }
    int rc = append(b, r, type, dst);
    if (!rc) {
        b->f->ins[dst[0] - 1].next = b->head[h];
        b->head[h] = dst[0];
    }
    return rc;
}

int wf_build_row(wf_build *b, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src,
                 wf_val origin, wf_val *dst, wf_why *why)
{
    static const wf_attr none;
    wf_type out[WF_MAX_DST];
    attr = attr ? attr : &none;
    int rc = wf_fn_infer(b->f, op, attr, nsrc, src, out, why);
    if (rc) {
        return rc;
    }
    row r = {.op = op,
             .attr = attr,
             .attr_index = UINT32_MAX,
             .nsrc = nsrc,
             .src = src,
             .type = out,
             .origin = origin};
    uint32_t type = wf_fn_intern_type(b->f, &out[0]);
    rc = type == UINT32_MAX ? WEFT_ENOMEM : build(b, &r, type, dst);
    return rc ? wf_fail(why, rc, "out of memory for a function of %u instructions", b->f->n) : 0;
}

/* -- copying -------------------------------------------------------------------------------------------- */

static int copy_leaf(wf_build *b, const wf_fn *from, uint32_t k, wf_val *dst)
{
    const wf_ins *i = &from->ins[k];
    wf_val origin = wf_fn_origin(from, k + 1);
    if (i->op == WF_OP_INPUT) {
        const char *name = wf_fn_input_name(from, i->attr);
        *dst = wf_build_input(b, &from->types[i->type], origin);
        if (*dst && (name || i->loc)) {
            wf_fn_name_input(b->f, *dst, name, name ? strlen(name) : 0, from->locs[i->loc]);
        }
    } else if (i->op == WF_OP_SCALAR) {
        const int64_t extent = wf_fn_slot_extent(from, i->attr);
        *dst = wf_build_scalar(b, from->slot_kind[i->attr], from->slots[i->attr], origin);
        if (*dst && extent >= 0 && wf_fn_size_scalar(b->f, *dst, extent)) {
            return WEFT_ENOMEM;
        }
    } else if (i->op == WF_OP_CONST) {
        *dst = wf_build_const(b, from->slot_kind[i->attr], from->slots[i->attr]);
    }
    return *dst ? 0 : WEFT_ENOMEM;
}

/* Type t of `from` in the function being made. */
static uint32_t map_type(wf_build *b, const wf_fn *from, uint32_t t)
{
    if (from != b->like) {
        return wf_fn_intern_type(b->f, &from->types[t]);
    }
    if (b->type_of[t] == 0) {
        b->type_of[t] = wf_fn_intern_type(b->f, &from->types[t]) + 1;
    }
    return b->type_of[t] - 1; /* UINT32_MAX + 1 - 1: no memory, asked again next time */
}

int wf_build_copy(wf_build *b, const wf_fn *from, uint32_t k, wf_val *map, wf_why *why)
{
    const wf_ins *i = &from->ins[k];
    if (i->op == WF_OP_RESULT) {
        return 0;
    }
    int rc;
    if (i->op < WF_OP_RESULT) {
        rc = copy_leaf(b, from, k, &map[k + 1]);
    } else {
        const wf_val *old = wf_ins_src(from, i);
        wf_val few[FEW_SRC], *src = i->nsrc > FEW_SRC ? malloc(i->nsrc * sizeof *src) : few;
        wf_type types[WF_MAX_DST];
        if (!src) {
            return wf_fail(why, WEFT_ENOMEM, "out of memory for %d operands", i->nsrc);
        }
        for (int s = 0; s < i->nsrc; s++) {
            src[s] = old[s] ? map[old[s]] : 0;
        }
        row r = {.op = (wf_op)i->op,
                 .attr = wf_ins_attr(from, i),
                 .attr_index = UINT32_MAX,
                 .nsrc = i->nsrc,
                 .src = src,
                 .type = &from->types[i->type],
                 .origin = wf_fn_origin(from, k + 1),
                 .flags = i->flags & WF_INS_JOINED,
                 .loc = i->loc ? wf_fn_intern_loc(b->f, from->locs[i->loc]) : 0};
        if (wf_rows[i->op].ndst > 1) {
            for (uint32_t n = 0; n < wf_rows[i->op].ndst; n++) {
                types[n] = from->types[from->ins[k + n].type];
            }
            r.type = types;
        }
        uint32_t type = map_type(b, from, i->type);
        rc = type == UINT32_MAX ? WEFT_ENOMEM : build(b, &r, type, &map[k + 1]);
        if (src != few) {
            free(src);
        }
    }
    return rc ? wf_fail(why, rc, "out of memory for a function of %u instructions", from->n) : 0;
}

int wf_build_leaf(wf_build *b, const wf_fn *from, uint32_t k, wf_val *dst, wf_why *why)
{
    const int rc = copy_leaf(b, from, k, dst);
    return rc ? wf_fail(why, rc, "out of memory for a function of %u instructions", from->n) : 0;
}

int wf_build_over(wf_build *b, const wf_fn *from, uint32_t k, const wf_attr *attr,
                  const wf_val *src, wf_val *dst, wf_why *why)
{
    const wf_ins *i = &from->ins[k];
    wf_type out[WF_MAX_DST];
    row r = {.op = (wf_op)i->op,
             .attr = attr ? attr : wf_ins_attr(from, i),
             .attr_index = UINT32_MAX,
             .nsrc = i->nsrc,
             .src = src,
             .type = out,
             .origin = wf_fn_origin(from, k + 1),
             .flags = i->flags & WF_INS_JOINED,
             .loc = i->loc ? wf_fn_intern_loc(b->f, from->locs[i->loc]) : 0};
    int rc = wf_fn_infer(b->f, r.op, r.attr, r.nsrc, src, out, why);
    if (rc) {
        return rc;
    }
    const uint32_t type = wf_fn_intern_type(b->f, &out[0]);
    rc = type == UINT32_MAX ? WEFT_ENOMEM : build(b, &r, type, dst);
    return rc ? wf_fail(why, rc, "out of memory for a function of %u instructions", from->n) : 0;
}

int wf_build_all(wf_build *b, const wf_fn *from, const uint8_t *live, wf_why *why)
{
    wf_val *map = calloc(from->n + 1u, sizeof *map);
    int rc = map ? 0 : wf_fail(why, WEFT_ENOMEM, "out of memory");
    for (uint32_t k = 0; k < from->n && !rc; k++) {
        if (!live || live[k + 1] || from->ins[k].op == WF_OP_INPUT) {
            rc = wf_build_copy(b, from, k, map, why);
        }
    }
    for (uint32_t k = 0; k < from->noutputs && !rc; k++) {
        rc = wf_fn_output(b->f, map[from->outputs[k]]) ? wf_fail(why, WEFT_ENOMEM, "out of memory")
                                                       : 0;
    }
    free(map);
    return rc;
}

int wf_fn_copy(const wf_fn *from, const uint8_t *live, wf_fn **out, wf_why *why)
{
    wf_build b;
    int rc = wf_build_begin(&b, from, 0);
    rc = rc ? wf_fail(why, rc, "out of memory") : wf_build_all(&b, from, live, why);
    *out = wf_build_end(&b);
    if (rc) {
        wf_fn_free(*out);
        *out = NULL;
    }
    return rc;
}
