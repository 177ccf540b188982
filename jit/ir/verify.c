/*
 * jit/ir/verify.c -- holds a function to its rules, one instruction after the other, and names the first that breaks one.
 *
 *   all           the op, flags, site and type exist; a type has an element type, extents of 0 and more or of a declared symbol,
 *                 and is there once (types are compared by their number)
 *   operands      as many as the row takes, all of them earlier values, absent only where the row allows; fields of operands
 *                 that an instruction does not have are 0 (equal instructions have equal bytes)
 *   leaves        arguments and slots are numbered in the order of their instructions; a slot has the type of its kind
 *   results       stand behind their op, all of them, in order
 *   types         are what inference gives
 *   outputs       are values
 *   origins       what has slots comes from a recorded instruction with the same slots
 *
 * Invariant: nothing is read before the rule that makes it readable has been checked, so that any damage to the fields of
 * instructions, lists and outputs is found and none of it is followed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jit/ir/build.h"

typedef struct checker {
    const wf_fn *f;
    wf_why *why;
    uint32_t k;             /* the instruction at hand */
    uint32_t inputs, slots; /* before it */
    uint32_t op, results;   /* the op whose results are being read, and how many are left */
} checker;

/* "%3 add (model.c:14): ", and the rule. */
static int broken(const checker *c, const char *fmt, ...) WF_PRINTF(2, 3);
static int broken(const checker *c, const char *fmt, ...)
{
    const wf_ins *i = &c->f->ins[c->k];
    const char *site = i->loc < c->f->nlocs ? c->f->locs[i->loc] : NULL;
    char rule[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(rule, sizeof rule, fmt, args);
    va_end(args);
    return wf_fail(c->why, WEFT_EINVALID, "%%%u %s%s%.48s%s: %s", c->k + 1,
                   i->op && i->op < WF_OP_COUNT ? wf_rows[i->op].name : "?", site ? " (" : "",
                   site ? wf_site_file(site) : "", site ? ")" : "", rule);
}

static const char *type_text(const wf_fn *f, const wf_type *t, char text[96])
{
    char extent[WF_EXTENT_TEXT];
    int n = snprintf(text, 96, "%s[", wf_dtype_name(t->dtype));
    for (int d = 0; d < t->rank && n < 96; d++) {
        n += snprintf(text + n, 96 - (size_t)n, "%s%s", d ? "," : "",
                      wf_extent_text(f, t->dims[d], extent));
    }
    snprintf(text + (n < 94 ? n : 94), 2, "]");
    return text;
}

static int check_type(const checker *c, uint32_t index)
{
    const wf_fn *f = c->f;
    if (index >= f->ntypes) {
        return broken(c, "type %u is none of the function's %u", index, f->ntypes);
    }
    const wf_type *t = &f->types[index];
    if (t->dtype == WEFT_DTYPE_DEFAULT || t->dtype >= WEFT_DTYPE_COUNT || t->rank > WF_MAX_RANK) {
        return broken(c, "element type %d with %d extents is no type", t->dtype, t->rank);
    }
    for (int d = 0; d < t->rank; d++) {
        const int64_t x = t->dims[d];
        if (x < 0 || (WF_IS_SYM(x) && !wf_is_sym(f, x))) {
            return broken(
                c, "extent %" PRId64 " of axis %d is neither a size nor of a declared symbol", x,
                d);
        }
    }
    return 0;
}

static int check_operands(const checker *c, const wf_ins *i)
{
    const wf_row *row = &wf_rows[i->op];
    const int few = sizeof i->src / sizeof *i->src;
    const int least = row->min_src, most = row->max_src ? row->max_src : WF_MOST_SRC;
    if (i->nsrc < least || i->nsrc > most) {
        return broken(c, "it takes %d to %d operands, not %d", least, most, i->nsrc);
    }
    if (i->nsrc > few && (uint64_t)i->src[0] + i->nsrc > c->f->nlists) {
        return broken(c, "its list of operands ends outside the function's");
    }
    for (int s = i->nsrc > few ? 1 : i->nsrc; s < few; s++) {
        if (i->src[s]) {
            return broken(c, "field %d of its operands is not empty, though no operand is there",
                          s);
        }
    }
    const wf_val *src = wf_ins_src(c->f, i);
    for (int s = 0; s < i->nsrc; s++) {
        if (src[s] > c->k) {
            return broken(c, "operand %d is %%%u, which is no earlier value", s, src[s]);
        }
        if (src[s] == 0 && s < least) {
            return broken(c, "operand %d is absent, and must not be", s);
        }
    }
    return 0;
}

/* A list of an attribute that is not there. */
static bool lacks_list(const wf_attr *a)
{
    return (a->n_ints && !a->ints) || (a->n_dyn && !a->dyn) || (a->n_flt && !a->flt);
}

static int check_row(checker *c, const wf_ins *i)
{
    const wf_fn *f = c->f;
    wf_type out[WF_MAX_DST];
    wf_why inner = {0};
    char have[96], want[96];
    if (i->attr >= f->nattrs || lacks_list(&f->attrs[i->attr])) {
        return broken(c, "attribute %u is none of the function's", i->attr);
    }
    int rc = check_operands(c, i);
    if (rc) {
        return rc;
    }
    rc = wf_fn_infer(f, (wf_op)i->op, &f->attrs[i->attr], i->nsrc, wf_ins_src(f, i), out, &inner);
    if (rc) {
        broken(c, "%.150s", inner.rule);
        return c->why->code = rc;
    }
    const int results = wf_rows[i->op].ndst;
    for (int r = 0; r < results; r++) {
        const uint32_t at = c->k + (uint32_t)r;
        const bool there =
            at < f->n && f->ins[at].type < f->ntypes &&
            (r == 0 || (f->ins[at].op == WF_OP_RESULT && f->ins[at].attr == (uint32_t)r));
        if (!there) {
            return broken(c, "result %d does not stand behind it", r);
        }
        const wf_type *t = &f->types[f->ins[at].type];
        if (!wf_type_same(t, &out[r])) {
            return broken(c, "its result %d is %s, and its operands give %s", r,
                          type_text(f, t, have), type_text(f, &out[r], want));
        }
    }
    c->op = c->k + 1;
    c->results = (uint32_t)results - 1;
    return 0;
}

static int check_number(checker *c, const wf_ins *i)
{
    static const uint8_t dtypes[3] = {WEFT_BOOL, WEFT_I64, WEFT_F64};
    const wf_fn *f = c->f;
    const wf_type *t = &f->types[i->type];
    if (i->attr != c->slots || i->attr >= f->nslots) {
        return broken(c, "its slot is %u, and the next one of %u is %u", i->attr, f->nslots,
                      c->slots);
    }
    const int kind = f->slot_kind[i->attr];
    if (kind > 2 || t->rank || t->dtype != dtypes[kind]) {
        return broken(c, "slot %u has kind %d, which is no number of its type", i->attr, kind);
    }
    if (kind == 0 && f->slots[i->attr] > 1) {
        return broken(c, "slot %u is neither true nor false", i->attr);
    }
    if (i->op == WF_OP_CONST && wf_fn_slot_extent(f, i->attr) >= 0) {
        return broken(c, "slot %u is an extent, and of a constant", i->attr);
    }
    c->slots++;
    return 0;
}

static int check_leaf(checker *c, const wf_ins *i)
{
    const wf_fn *f = c->f;
    const uint32_t nsrc = i->op == WF_OP_RESULT;
    if (i->nsrc != nsrc || (!nsrc && i->src[0]) || i->src[1] || i->src[2] || i->flags) {
        return broken(c, "it has operands or flags");
    }
    if (i->op == WF_OP_RESULT) {
        if (c->results == 0 || i->src[0] != c->op) {
            return broken(c, "it is no result of the op above it");
        }
        c->results--;
        return 0;
    }
    if (i->op != WF_OP_INPUT) {
        return check_number(c, i);
    }
    if (i->attr != c->inputs || i->attr >= f->ninputs || f->inputs[i->attr] != c->k + 1) {
        return broken(c, "it is argument %u, and the next one of %u is %u", i->attr, f->ninputs,
                      c->inputs);
    }
    c->inputs++;
    return 0;
}

static int check_ins(checker *c)
{
    const wf_ins *i = &c->f->ins[c->k];
    const bool leaf = i->op == WF_OP_INPUT || i->op == WF_OP_RESULT || wf_op_is_weak(i->op);
    if (i->op >= WF_OP_COUNT || (!leaf && i->op <= WF_OP_RESULT)) {
        return broken(c, "op %d is neither a row nor a leaf", i->op);
    }
    if (c->results && i->op != WF_OP_RESULT) {
        return broken(c, "it stands where a result of %%%u belongs", c->op);
    }
    if ((i->flags & ~(WF_INS_NOGRAD | WF_INS_JOINED)) || i->loc >= c->f->nlocs) {
        return broken(c, "its flags are %d and its site is %u, which are none", i->flags, i->loc);
    }
    int rc = check_type(c, i->type);
    rc = rc ? rc : leaf ? check_leaf(c, i) : check_row(c, i);
    if (!rc && wf_fn_find_type(c->f, &c->f->types[i->type]) != i->type) {
        rc = broken(c, "its type is there twice, or was changed in place");
    }
    return rc;
}

static int check_symbols(const wf_fn *f, wf_why *why)
{
    if (f->nsymbols > WF_MAX_SYMBOLS) {
        return wf_fail(why, WEFT_EINVALID, "%u symbols are more than %d", f->nsymbols,
                       WF_MAX_SYMBOLS);
    }
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        const size_t n = strnlen(f->symbols[k], sizeof f->symbols[k]);
        bool good = n > 0 && n < sizeof f->symbols[k] && wf_range_good(f->range[k]);
        for (uint32_t j = 0; j < k && good; j++) {
            good = strcmp(f->symbols[j], f->symbols[k]) != 0;
        }
        if (!good) {
            return wf_fail(why, WEFT_EINVALID,
                           "symbol %u, \"%.31s\", is repeated, or has no name or no size", k,
                           f->symbols[k]);
        }
    }
    return 0;
}

/* Numbers that are extents. */
static int check_sized(const wf_fn *f, wf_why *why)
{
    for (uint32_t k = 0; k < f->nsized; k++) {
        const wf_sized_slot *s = &f->sized[k];
        if (s->slot >= f->nslots || (k && s[-1].slot >= s->slot) || f->slot_kind[s->slot] == 0 ||
            !wf_is_sym(f, s->extent)) {
            return wf_fail(why, WEFT_EINVALID,
                           "slot %u is no number that can be an extent, or it is one twice",
                           s->slot);
        }
    }
    return 0;
}

int wf_fn_verify(const wf_fn *f, wf_why *why)
{
    checker c = {.f = f, .why = why};
    int rc = check_symbols(f, why);
    rc = rc ? rc : check_sized(f, why);
    for (; c.k < f->n && !rc; c.k++) {
        rc = check_ins(&c);
    }
    if (!rc && (c.inputs != f->ninputs || c.slots != f->nslots)) {
        rc = wf_fail(why, WEFT_EINVALID, "it has %u arguments and %u slots, and lists %u and %u",
                     c.inputs, c.slots, f->ninputs, f->nslots);
    }
    for (uint32_t k = 0; k < f->noutputs && !rc; k++) {
        if (f->outputs[k] == 0 || f->outputs[k] > f->n) {
            rc = wf_fail(why, WEFT_EINVALID, "output %u is %%%u, which is no value", k,
                         f->outputs[k]);
        }
    }
    return rc;
}

/* Has the recorded instruction the slots that a run reads for i? */
static bool has_slots(const wf_fn *f, const wf_ins *i, const wf_fn *recorded, wf_val from)
{
    const wf_ins *was = wf_fn_at(recorded, from);
    if (i->op != was->op) {
        return false;
    }
    if (i->op == WF_OP_SCALAR) {
        return f->slot_kind[i->attr] == recorded->slot_kind[was->attr];
    }
    const wf_attr *a = wf_ins_attr(f, i), *b = wf_ins_attr(recorded, was);
    return a->n_dyn == b->n_dyn && a->n_flt == b->n_flt;
}

int wf_fn_verify_origins(const wf_fn *f, const wf_fn *recorded, wf_why *why)
{
    checker c = {.f = f, .why = why};
    for (; c.k < f->n; c.k++) {
        const wf_ins *i = &f->ins[c.k];
        const wf_val from = wf_fn_origin(f, c.k + 1);
        const bool slots =
            i->op == WF_OP_SCALAR ||
            (i->op > WF_OP_RESULT && !wf_op_has_free_slots((wf_op)i->op, wf_ins_attr(f, i)));
        const bool none = from == 0 && i->op == WF_OP_SCALAR; /* slots of a row may be its own */
        if (from > recorded->n || none || (slots && from && !has_slots(f, i, recorded, from))) {
            return broken(&c, "its slots come from %%%u of what was recorded, which has others",
                          from);
        }
    }
    return 0;
}
