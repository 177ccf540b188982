/*
 * jit/frozen_move.c -- arguments that lie elsewhere in their storages than when they were recorded: mini-batches, each a
 * slice of one data set; see frozen.h.
 *
 * A recording names places of a storage by their distance from its first byte: in the maps by which it is read
 * (AS_STRIDED) and written (UPDATE). If every place of an argument's storage that the function names moved as far as the
 * argument did, in two recordings that differ in nothing else, a replay may take it from anywhere: its base address is
 * the storage's plus the difference, so that every access has the address that a recording would give it.
 *
 * Invariants: a replay touches nothing outside the storage; arguments on one storage move together, or the call is
 * recorded; an argument has been seen at two places before it may lie at a third.
 */
#include <string.h>

#include "jit/frozen_impl.h"

bool wf_frozen_shifts(const wf_frozen *a, const wf_frozen *b, int64_t *shift, char *reason)
{
    for (int k = 0; k < a->n_source; k++) {
        const int i = a->src[k].arg;
        shift[k] = i < 0 ? 0 : b->in[i].offset - a->in[i].offset;
    }
    for (int i = 0; i < a->n_in; i++) {
        const int k = a->in[i].outer;
        if (k >= 0 && b->in[i].offset - a->in[i].offset != shift[k]) {
            return wf_frozen_refuse(
                reason, "argument %d moved otherwise than others on the same memory", i);
        }
    }
    return true;
}

/* -- numbers of two recordings ------------------------------------------------------------------------------- */

/* The input whose storage has the value v at some time; -1: none. */
static int input_of(const wf_fn *f, wf_val v)
{
    const wf_ins *x = wf_fn_at(f, v);
    while (x->op == WF_OP_UPDATE) {
        x = wf_fn_at(f, wf_ins_src(f, x)[0]);
    }
    return x->op == WF_OP_INPUT ? (int)x->attr : -1;
}

/* Does instruction x name a place of its first operand's memory? */
static bool names_place(const wf_ins *x)
{
    return x->op == WF_OP_AS_STRIDED || x->op == WF_OP_UPDATE;
}

/* How much further the place is that x names, in elements. */
static int64_t expected(const wf_fn *f, const wf_ins *x, const int64_t *shift)
{
    const wf_val base = wf_ins_src(f, x)[0];
    const int k = input_of(f, base);
    return k < 0 ? 0 : shift[k] / (int64_t)wf_dtype_size(wf_fn_type(f, base)->dtype);
}

static bool same_dyn(const wf_fn *f, const wf_ins *x, const wf_attr *p, const wf_attr *q,
                     const int64_t *shift)
{
    const int n = p->n_dyn, last = names_place(x) ? n - 1 : n;
    if (n == 0) {
        return true;
    }
    if (wf_frozen_is_random((wf_op)x->op)) {
        return wf_frozen_same_draw(f, x, p, q);
    }
    return memcmp(p->dyn, q->dyn, (size_t)last * sizeof *p->dyn) == 0 &&
           (last == n || q->dyn[last] - p->dyn[last] == expected(f, x, shift));
}

/* An argument that moved may only be reached through maps that moved with it. */
static bool all_moved(const wf_fn *f, const wf_ins *x, const int64_t *shift, char *reason)
{
    const wf_val *src = wf_ins_src(f, x);
    for (int i = names_place(x) ? 1 : 0; i < x->nsrc; i++) {
        const int k = src[i] ? input_of(f, src[i]) : -1;
        if (k >= 0 && shift[k]) {
            return wf_frozen_refuse(reason,
                                    "all of the memory that an argument is a part of is used by %s",
                                    wf_rows[x->op].name);
        }
    }
    return true;
}

/* A number of instruction k is another one: whose, and where. */
static bool refuse_number(const wf_fn *a, uint32_t k, char *reason)
{
    const wf_ins *x = &a->ins[k], *user = x;
    for (uint32_t u = k + 1; x->op == WF_OP_SCALAR && u < a->n && user == x; u++) {
        const wf_val *src = wf_ins_src(a, &a->ins[u]);
        for (int i = 0; i < a->ins[u].nsrc; i++) {
            user = src[i] == k + 1 ? &a->ins[u] : user;
        }
    }
    const char *site = a->locs[user->loc];
    return wf_frozen_refuse(reason, "a number of %s%s%s changed", wf_rows[user->op].name,
                            site ? " at " : "", site ? site : "");
}

bool wf_frozen_numbers(const wf_frozen *z, const wf_fn *a, const wf_fn *b, const int64_t *shift,
                       char *reason)
{
    bool moved = false;
    uint32_t live = 0;
    for (uint32_t k = 0; k < a->ninputs; k++) {
        moved = moved || shift[k];
    }
    for (uint32_t k = 0; k < a->n; k++) {
        const wf_ins *x = &a->ins[k], *y = &b->ins[k];
        bool same = true;
        if (x->op == WF_OP_SCALAR) {
            const bool asked = live < z->n_number && z->number[live].slot == x->attr;
            live += asked;
            same = asked || a->slots[x->attr] == b->slots[y->attr];
        } else if (x->op > WF_OP_RESULT && x->attr) {
            const wf_attr *p = &a->attrs[x->attr], *q = &b->attrs[y->attr];
            same = same_dyn(a, x, p, q, shift) &&
                   (!p->n_flt || memcmp(p->flt, q->flt, p->n_flt * sizeof *p->flt) == 0);
        }
        if (!same) {
            return refuse_number(a, k, reason);
        }
        if (moved && x->op > WF_OP_RESULT && !all_moved(a, x, shift, reason)) {
            return false;
        }
    }
    return true;
}

/* -- replays -------------------------------------------------------------------------------------------------- */

/* The bytes that maps of input k's value name, added to its reach. */
static void add_reach(wf_frozen_source *s, const wf_attr *at, int64_t size)
{
    const int rank = at->n_dyn / 2;
    int64_t from = at->dyn[2 * rank], to = from + 1;
    for (int i = 0; i < rank; i++) {
        if (at->dyn[i] == 0) {
            return;
        }
        *(at->dyn[rank + i] < 0 ? &from : &to) += (at->dyn[i] - 1) * at->dyn[rank + i];
    }
    s->lo = s->hi == 0 || from * size < s->lo ? from * size : s->lo;
    s->hi = to * size > s->hi ? to * size : s->hi;
}

void wf_frozen_let_move(wf_frozen *z, const wf_frozen *before)
{
    const wf_fn *f = z->fn;
    for (int i = 0; i < z->n_in; i++) {
        const bool moved = z->in[i].offset != before->in[i].offset;
        z->in[i].fixed = moved || z->in[i].outer < 0 ? 0 : ~UINT64_C(0);
    }
    for (uint32_t k = 0; k < f->n; k++) {
        const wf_ins *x = &f->ins[k];
        if (x->op == WF_OP_AS_STRIDED) {
            const wf_val base = wf_ins_src(f, x)[0];
            const int input = input_of(f, base);
            if (input >= 0) {
                add_reach(&z->src[input], &f->attrs[x->attr],
                          (int64_t)wf_dtype_size(wf_fn_type(f, base)->dtype));
            }
        }
    }
}

bool wf_frozen_guard_move(const wf_frozen *z, const wf_frozen_args *a, int i, char *reason)
{
    const wf_frozen_arg *x = &z->in[i];
    const int64_t shift = a->slot[i]->offset - x->offset;
    const int first = x->alias;
    if (x->outer < 0) { /* it is not read */
        return true;
    }
    if (shift != a->slot[first]->offset - z->in[first].offset) {
        return wf_frozen_refuse(reason,
                                "argument %d moved otherwise than others on the same memory", i);
    }
    const wf_frozen_source *s = &z->src[x->outer];
    int64_t lo = s->lo, hi = s->hi;
    if (shift && s->written) { /* what a plan touches beside the map depends on its way */
        if (!wf_plan_is_settled(z->plan)) {
            return wf_frozen_refuse(
                reason, "argument %d moved, is written, and its plan is not settled yet", i);
        }
        wf_plan_reach(z->plan, z->fn, (uint32_t)x->outer, &lo, &hi);
    }
    return !shift || hi == 0 || (lo + shift >= 0 && hi + shift <= (int64_t)x->nbytes) ||
           wf_frozen_refuse(reason, "argument %d moved, and memory around it is used, too", i);
}
