/*
 * jit/ir/kir_verify.c -- holds kernel IR and kernels to their rules, and names the instruction that breaks one.
 *
 *   instructions  a primitive of prims.def on operands that stand before it, of the types of its rule; unused fields are 0
 *   programs      parameters, outputs, tables and the rare test exist; the order is canonical: what wf_kir_finish makes of it
 *                 is it again, byte for byte
 *   kernels       as many parameters as operands and scalars; over rows: every port leads somewhere, of the type that is
 *                 there, and what a stage reads an earlier one has made
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/backend.h"

static int broken(const wf_kir *k, uint32_t n, wf_why *why, const char *rule)
{
    const wf_kinstr *i = &k->ins[n];
    return wf_fail(why, WEFT_EINVALID, "%%%u %s: %s", n,
                   i->prim < WF_KP_COUNT ? wf_kprim_name((wf_kprim)i->prim) : "?", rule);
}

/* What the rule of the primitive says of immediates and leaves, NULL: all is well. */
static const char *leaf_rule(const wf_kir *k, uint32_t n)
{
    const wf_kinstr *i = &k->ins[n];
    const unsigned bits = wf_kty_bits((wf_kty)i->type);
    if (i->prim == WF_KP_PARAM) {
        const bool is =
            i->imm < k->nparam && k->param[i->imm] == n && k->param_type[i->imm] == i->type;
        return is ? NULL : "it is no parameter of the program, or of another type";
    }
    if (i->prim == WF_KP_CONST) {
        return bits == 64 || i->imm >> bits == 0 ? NULL : "its bits are more than its type has";
    }
    if (i->prim == WF_KP_CAST) {
        return k->ins[i->src[0]].type != i->type ? NULL : "it casts to the type that is there";
    }
    return NULL;
}

static const char *operand_rule(const wf_kir *k, uint32_t n)
{
    const wf_kinstr *i = &k->ins[n];
    if (i->prim >= WF_KP_COUNT || i->type >= WF_KT_COUNT) {
        return "it is no primitive, or of no type";
    }
    if (i->nsrc != wf_kprim_arity((wf_kprim)i->prim)) {
        return "it has not as many operands as the primitive";
    }
    for (int s = 0; s < 3; s++) {
        if (s < i->nsrc ? i->src[s] >= n : i->src[s] != 0) {
            return s < i->nsrc ? "an operand does not stand before it"
                               : "it has an operand too many";
        }
    }
    const bool plain = i->prim == WF_KP_ADD || i->prim == WF_KP_SUB || i->prim == WF_KP_MUL ||
                       i->prim == WF_KP_DIV || i->prim == WF_KP_NEG;
    if (i->relaxed && !(plain && wf_kty_is_float((wf_kty)i->type) && i->relaxed == 1)) {
        return "it is relaxed, which only float arithmetic is";
    }
    return leaf_rule(k, n);
}

/* The instruction again, by the builder: its rule and its type. One of them at most is appended to *again. */
static const char *type_rule(const wf_kir *k, uint32_t n, wf_kir *again)
{
    const wf_kinstr *i = &k->ins[n];
    wf_kref made;
    if (i->prim == WF_KP_PARAM || i->prim == WF_KP_CONST || i->prim == WF_KP_CAST) {
        return NULL;
    }
    again->n = k->n; /* operands are found there */
    if (i->prim == WF_KP_LOOKUP) {
        const bool table = i->imm < k->ntable && k->table[i->imm]->type == i->type;
        made = table ? wf_kir_lookup(again, k->table[i->imm], i->src[0]) : WF_KREF_NONE;
    } else if (i->prim == WF_KP_SHLK || i->prim == WF_KP_SHRK || i->prim == WF_KP_SARK) {
        made = i->imm < 64 ? wf_kir_shift(again, (wf_kprim)i->prim, i->src[0], (unsigned)i->imm)
                           : WF_KREF_NONE;
    } else {
        made =
            wf_kir_op(again, (wf_kprim)i->prim, i->src[0], i->nsrc > 1 ? i->src[1] : WF_KREF_NONE,
                      i->nsrc > 2 ? i->src[2] : WF_KREF_NONE);
    }
    if (made == WF_KREF_NONE) {
        return "operand types or its number break the rule of the primitive";
    }
    return again->ins[made].type == i->type
               ? NULL
               : "its type is not what the rule of the primitive gives";
}

static int check_lists(const wf_kir *k, wf_why *why)
{
    bool good = !k->error && k->nparam <= WF_KIR_MAX_PARAM && k->nout <= WF_KIR_MAX_OUT &&
                k->ntable <= WF_KIR_MAX_TABLE;
    if (!good) {
        return wf_fail(why, WEFT_EINVALID, "%u parameters, %u outputs and %u tables are no program",
                       k->nparam, k->nout, k->ntable);
    }
    for (uint32_t p = 0; p < k->nparam; p++) {
        const uint32_t n = k->param[p];
        if (n >= k->n || k->ins[n].prim != WF_KP_PARAM || k->ins[n].imm != p) {
            return wf_fail(why, WEFT_EINVALID, "parameter %u is %%%u, which is another instruction",
                           p, n);
        }
    }
    for (uint32_t o = 0; o < k->nout; o++) {
        if (k->out[o] >= k->n) {
            return wf_fail(why, WEFT_EINVALID, "output %u is %%%u, which is no value", o,
                           k->out[o]);
        }
    }
    if (k->rare != WF_KREF_NONE && (k->rare >= k->n || k->ins[k->rare].type != WF_KT_BOOL)) {
        return wf_fail(why, WEFT_EINVALID, "the test of rare elements is %%%u, which is no truth",
                       k->rare);
    }
    return 0;
}

/* Instructions in room for one more; finishing it changes nothing. */
static int check_copy(const wf_kir *k, wf_kir *again, wf_why *why)
{
    const char *rule = NULL;
    for (uint32_t n = 0; n < k->n; n++) {
        rule = operand_rule(k, n);
        rule = rule ? rule : type_rule(k, n, again);
        if (rule) {
            return broken(k, n, why, rule);
        }
    }
    again->n = k->n;
    int rc = wf_kir_finish(again, why);
    for (uint32_t n = 0; !rc && n < k->n; n++) {
        if (again->n <= n || memcmp(&again->ins[n], &k->ins[n], sizeof k->ins[n]) != 0) {
            rc = broken(k, n, why, "it is dead, is there twice, or stands in no canonical order");
        }
    }
    return rc;
}

int wf_kir_verify(const wf_kir *k, wf_why *why)
{
    int rc = check_lists(k, why);
    if (rc) {
        return rc;
    }
    wf_kir again = *k; /* has its tables, parameters and outputs */
    again.cap = k->n + 2;
    again.ins = calloc(again.cap, sizeof *again.ins);
    if (!again.ins) {
        return wf_fail(why, WEFT_ENOMEM, "out of memory");
    }
    if (k->n) {
        memcpy(again.ins, k->ins, k->n * sizeof *k->ins);
    }
    rc = check_copy(k, &again, why);
    free(again.ins);
    return rc;
}

/* -- kernels ------------------------------------------------------------------------------------------------ */

/* What stages before the one at hand have made. */
typedef struct made {
    uint8_t slot[WF_ROWS_SLOTS], keep[WF_ROWS_KEEPS], dst[WF_ROWS_DSTS];
} made;

static const char *in_rule(const wf_kernel *k, const wf_stage *st, const wf_port *port, int type,
                           const made *m)
{
    const wf_rows_kernel *r = k->rows;
    const int at = port->at;
    bool good = at >= 0;
    switch ((wf_port_kind)port->kind) {
    case WF_PORT_SOURCE: {
        const bool row = at >= 0 && at < WF_ROWS_SOURCES && (r->row_src >> at & 1);
        good = good && at < k->nsrc && (r->src_type[at] == type || (k->drawn >> at & 1)) &&
               (row || st->kind == WF_ST_ELEM || st->kind == WF_ST_PICK);
        break;
    }
    case WF_PORT_SCALAR:
        good = good && at < k->nscalar && r->scalar_type[at] == type;
        break;
    case WF_PORT_INDEX:
        good = st->kind == WF_ST_ELEM && type == WF_KT_I64;
        break;
    case WF_PORT_SLOT:
        good = good && at < WF_ROWS_SLOTS && m->slot[at] && r->slot_type[at] == type;
        break;
    case WF_PORT_KEEP:
        good = good && at < r->nkeep && m->keep[at] && r->keep_type[at] == type &&
               st->kind == WF_ST_ELEM;
        break;
    case WF_PORT_DST:
    case WF_PORT_TOTAL:
    case WF_PORT_CHECK:
        good = false;
        break;
    }
    return good ? NULL : "reads what is not there, or of another type";
}

static const char *out_rule(const wf_kernel *k, const wf_stage *st, const wf_port *port, int type,
                            made *m)
{
    const wf_rows_kernel *r = k->rows;
    const int at = port->at;
    bool good = at >= 0;
    switch ((wf_port_kind)port->kind) {
    case WF_PORT_SLOT:
        good = good && at < WF_ROWS_SLOTS && r->slot_type[at] == type && st->kind != WF_ST_ELEM;
        if (good)
            m->slot[at] = 1;
        break;
    case WF_PORT_TOTAL:
        good = good && at < WF_ROWS_SLOTS && r->slot_type[at] == type && st->kind == WF_ST_ELEM &&
               (port->op == WF_KP_ADD || port->op == WF_KP_MUL || port->op == WF_KP_MAX ||
                port->op == WF_KP_MIN || port->op == WF_KP_BOR || port->op == WF_KP_BAND);
        if (good)
            m->slot[at] = 1;
        break;
    case WF_PORT_KEEP:
        good = good && at < r->nkeep && r->keep_type[at] == type && st->kind == WF_ST_ELEM;
        if (good)
            m->keep[at] = 1;
        break;
    case WF_PORT_DST:
        good = good && at < r->ndst && r->dst_type[at] == type && !m->dst[at] &&
               (r->row_dst >> at & 1) != (st->kind == WF_ST_ELEM);
        if (good)
            m->dst[at] = 1;
        break;
    case WF_PORT_CHECK:
        good = type == WF_KT_BOOL || type == WF_KT_I64;
        break;
    case WF_PORT_SOURCE:
    case WF_PORT_SCALAR:
    case WF_PORT_INDEX:
        good = false;
        break;
    }
    return good ? NULL : "writes what is not there, or of another type, or a second time";
}

static int check_stage(const wf_kernel *k, int s, made *m, wf_why *why)
{
    const wf_stage *st = &k->rows->stage[s];
    const bool pick = st->kind == WF_ST_PICK;
    wf_why inner = {0};
    if (!pick && wf_kir_verify(&st->body, &inner)) {
        return wf_fail(why, inner.code, "stage %d: %.200s", s, inner.rule);
    }
    const char *rule = NULL;
    const char *what = "input";
    uint32_t n = 0;
    const uint32_t in = pick ? 2 : st->body.nparam, out = pick ? 1 : st->body.nout;
    for (; n < in && !rule; n++) {
        const int at = st->in[n].at,
                  slot = at >= 0 && at < WF_ROWS_SLOTS ? k->rows->slot_type[at] : -1;
        const int source = at >= 0 && at < WF_ROWS_SOURCES ? k->rows->src_type[at] : -1;
        rule = in_rule(k, st, &st->in[n], !pick ? st->body.param_type[n] : n ? slot : source, m);
    }
    if (!rule) {
        what = "output";
        for (n = 0; n < out && !rule; n++) {
            const int at = st->out[n].at;
            const int slot = at >= 0 && at < WF_ROWS_SLOTS ? k->rows->slot_type[at] : -1;
            rule = out_rule(k, st, &st->out[n],
                            pick ? slot : (int)wf_kir_type(&st->body, st->body.out[n]), m);
        }
    }
    return rule ? wf_fail(why, WEFT_EINVALID, "stage %d: %s %u %s", s, what, n - 1, rule) : 0;
}

static int check_rows(const wf_kernel *k, wf_why *why)
{
    const wf_rows_kernel *r = k->rows;
    made m = {0};
    int rc = 0;
    if (k->nsrc < 0 || k->nsrc > WF_ROWS_SOURCES || r->ndst < 1 || r->ndst > WF_ROWS_DSTS ||
        r->nkeep < 0 || r->nkeep > WF_ROWS_KEEPS || k->nscalar > WF_ROWS_SCALARS ||
        r->cut >= r->nstage || r->ntotal > WF_KIR_MAX_OUT) {
        return wf_fail(why, WEFT_EINVALID,
                       "%d sources, %d destinations and %d kept values are no kernel", k->nsrc,
                       r->ndst, r->nkeep);
    }
    for (int s = 0; s < r->nstage && !rc; s++) {
        rc = check_stage(k, s, &m, why);
    }
    for (int d = 0; d < r->ndst && !rc; d++) {
        rc = m.dst[d] ? 0 : wf_fail(why, WEFT_EINVALID, "no stage writes destination %d", d);
    }
    return rc;
}

int wf_kernel_verify(const wf_kernel *k, wf_why *why)
{
    static const char *const names[3] = {"body", "fast body", "end"};
    const wf_kir *const parts[3] = {&k->body, &k->fast, &k->post};
    if ((k->skeleton == WF_SK_ROW) != (k->rows != NULL)) {
        return wf_fail(why, WEFT_EINVALID, "a kernel over rows has stages, and no other has");
    }
    if (k->rows) {
        return check_rows(k, why);
    }
    for (int i = 0; i < 3; i++) {
        wf_why inner = {0};
        if (parts[i]->n && wf_kir_verify(parts[i], &inner)) {
            return wf_fail(why, inner.code, "%s: %.200s", names[i], inner.rule);
        }
    }
    if (k->nsrc < 0 || k->nscalar < 0 || k->body.nparam != (uint32_t)(k->nsrc + k->nscalar) ||
        (k->fast.n && (k->fast.nparam != k->body.nparam || k->fast.nout != k->body.nout ||
                       k->fast.rare == WF_KREF_NONE))) {
        return wf_fail(why, WEFT_EINVALID, "%d sources and %d scalars are not the %u parameters",
                       k->nsrc, k->nscalar, k->body.nparam);
    }
    return 0;
}
