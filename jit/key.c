/*
 * jit/key.c -- hashing and comparing recorded functions; see key.h.
 */
#include <string.h>

#include "jit/ir/mix.h"
#include "jit/key.h"
#include "jit/plan.h"

enum { WORDS = 3 }; /* of an instruction, before `next` and `loc` */
_Static_assert(offsetof(wf_ins, next) == WORDS * sizeof(uint64_t), "identity comes first");

static uint64_t hash_attr(uint64_t h, wf_op op, const wf_attr *a)
{
    h = wf_mix(h, (uint64_t)a->dtype | (uint64_t)a->flags << 8 | (uint64_t)a->n_ints << 16 |
                      (uint64_t)a->n_dyn << 24 | (uint64_t)a->n_flt << 32 |
                      (uint64_t)wf_plan_key_flt(op, a) << 40);
    for (int i = 0; i < a->n_ints; i++) {
        h = wf_mix(h, (uint64_t)a->ints[i]);
    }
    for (int i = 0; i < a->n_dyn; i++) {
        if (wf_plan_is_key(op, a->n_dyn, i)) {
            h = wf_mix(h, (uint64_t)a->dyn[i]);
        }
    }
    return h;
}

static uint64_t hash_type(uint64_t h, const wf_type *t)
{
    h = wf_mix(h, (uint64_t)t->dtype | (uint64_t)t->rank << 8);
    for (int i = 0; i < t->rank; i++) {
        h = wf_mix(h, (uint64_t)t->dims[i]);
    }
    return h;
}

uint64_t wf_key_hash(const wf_fn *f, const int32_t *writes)
{
    uint64_t h = wf_mix(f->n, (uint64_t)f->noutputs << 32 | f->ntypes);
    for (uint32_t k = 0; k < f->n; k++) {
        uint64_t w[WORDS];
        memcpy(w, &f->ins[k], sizeof w);
        /* two multiplications an instruction: the words are mixed before */
        h = wf_mix(h, w[0] ^ (w[1] << 29 | w[1] >> 35));
        h = wf_mix(h, w[2]);
        if (f->ins[k].op > WF_OP_RESULT && f->ins[k].attr) {
            h = hash_attr(h, (wf_op)f->ins[k].op, &f->attrs[f->ins[k].attr]);
        }
    }
    for (uint32_t i = 0; i < f->ntypes; i++) {
        h = hash_type(h, &f->types[i]);
    }
    for (uint32_t i = 0; i < f->nlists; i++) {
        h = wf_mix(h, f->lists[i]);
    }
    for (uint32_t k = 0; k < f->noutputs; k++) {
        h = wf_mix(h, (uint64_t)f->outputs[k] << 32 | (uint32_t)writes[k]);
    }
    return h;
}

static bool same_attr(wf_op op, const wf_attr *a, const wf_attr *b)
{
    if (a->dtype != b->dtype || a->flags != b->flags || a->n_ints != b->n_ints ||
        a->n_dyn != b->n_dyn || a->n_flt != b->n_flt ||
        wf_plan_key_flt(op, a) != wf_plan_key_flt(op, b) ||
        (a->n_ints && memcmp(a->ints, b->ints, a->n_ints * sizeof *a->ints) != 0)) {
        return false;
    }
    for (int i = 0; i < a->n_dyn; i++) {
        if (a->dyn[i] != b->dyn[i] && wf_plan_is_key(op, a->n_dyn, i)) {
            return false;
        }
    }
    return true;
}

static bool same_words(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

bool wf_key_same(const wf_fn *a, const int32_t *a_writes, const wf_fn *b, const int32_t *b_writes)
{
    if (a->n != b->n || a->ntypes != b->ntypes || a->nlists != b->nlists ||
        a->nattrs != b->nattrs || a->ninputs != b->ninputs || a->nslots != b->nslots ||
        a->noutputs != b->noutputs ||
        !same_words(a->lists, b->lists, a->nlists * sizeof *a->lists) ||
        !same_words(a->outputs, b->outputs, a->noutputs * sizeof *a->outputs) ||
        !same_words(a_writes, b_writes, a->noutputs * sizeof *a_writes)) {
        return false;
    }
    for (uint32_t i = 0; i < a->ntypes; i++) {
        if (!wf_type_same(&a->types[i], &b->types[i])) {
            return false;
        }
    }
    for (uint32_t k = 0; k < a->n; k++) {
        const wf_ins *x = &a->ins[k], *y = &b->ins[k];
        if (memcmp(x, y, WORDS * sizeof(uint64_t)) != 0) {
            return false;
        }
        if (x->op > WF_OP_RESULT && x->attr &&
            !same_attr((wf_op)x->op, &a->attrs[x->attr], &b->attrs[y->attr])) {
            return false;
        }
    }
    return true;
}
