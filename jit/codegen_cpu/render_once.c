/*
 * jit/codegen_cpu/render_once.c -- what of a body is the same for every element, computed once a launch.
 *
 * A body over vectors would compute 1 - beta ^ step for every 64 elements. Here it is split in two: `once`
 * has the instructions that depend on scalars and one-element sources alone, and what the rest reads of
 * them are more parameters of the rest. The instructions are the same, so are the bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen_cpu/render.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

wf_kref wf_ll_copy_instr(wf_kir *d, const wf_kir *k, uint32_t n, const wf_kref *map)
{
    const wf_kinstr *i = &k->ins[n];
    wf_kref s[3] = {WF_KREF_NONE, WF_KREF_NONE, WF_KREF_NONE};
    for (int a = 0; a < i->nsrc; a++)
        s[a] = map[i->src[a]];
    if (i->prim == WF_KP_CONST)
        return wf_kir_const(d, (wf_kty)i->type, i->imm);
    if (i->prim == WF_KP_CAST)
        return wf_kir_cast(d, (wf_kty)i->type, s[0]);
    if (i->prim == WF_KP_LOOKUP)
        return wf_kir_lookup(d, k->table[i->imm], s[0]);
    if (i->prim == WF_KP_SHLK || i->prim == WF_KP_SHRK || i->prim == WF_KP_SARK)
        return wf_kir_shift(d, (wf_kprim)i->prim, s[0], (unsigned)i->imm);
    const wf_kref r = wf_kir_op(d, (wf_kprim)i->prim, s[0], s[1], s[2]);
    if (i->relaxed)
        wf_kir_relax(d, d->n - 1);
    return r;
}

enum { VARIES, UNIFORM, NEEDED }; /* NEEDED: uniform, and read by what varies */

static bool is_leaf(const wf_kinstr *i)
{
    return i->prim == WF_KP_PARAM || i->prim == WF_KP_CONST;
}

static void need(const wf_kir *k, uint8_t *kind, wf_kref r, uint32_t *count)
{
    if (r != WF_KREF_NONE && kind[r] == UNIFORM && !is_leaf(&k->ins[r])) {
        kind[r] = NEEDED;
        (*count)++;
    }
}

/* Values that what varies, the outputs and the rare test read of the uniform ones. */
static uint32_t classify(const wf_kir *k, const bool *uniform_param, uint8_t *kind)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        kind[n] = i->prim == WF_KP_PARAM && !uniform_param[i->imm] ? VARIES : UNIFORM;
        for (int s = 0; s < i->nsrc; s++)
            if (kind[i->src[s]] == VARIES)
                kind[n] = VARIES;
        for (int s = 0; s < i->nsrc && kind[n] == VARIES; s++)
            need(k, kind, i->src[s], &count);
    }
    for (uint32_t o = 0; o < k->nout; o++)
        need(k, kind, k->out[o], &count);
    need(k, kind, k->rare, &count);
    return count;
}

static void split(const wf_kir *k, const uint8_t *kind, wf_ll_split *s, wf_kref *map)
{
    for (uint32_t p = 0; p < k->nparam; p++) {
        wf_kir_param(&s->once, (wf_kty)k->param_type[p]);
        wf_kir_param(&s->rest, (wf_kty)k->param_type[p]);
    }
    for (uint32_t n = 0; n < k->n; n++)
        if (kind[n] != VARIES)
            map[n] = k->ins[n].prim == WF_KP_PARAM ? s->once.param[k->ins[n].imm]
                                                   : wf_ll_copy_instr(&s->once, k, n, map);
    for (uint32_t n = 0; n < k->n; n++)
        if (kind[n] == NEEDED) {
            wf_kir_output(&s->once, map[n]);
            map[n] = wf_kir_param(&s->rest, (wf_kty)k->ins[n].type);
        } else if (k->ins[n].prim == WF_KP_PARAM) {
            map[n] = s->rest.param[k->ins[n].imm];
        } else if (kind[n] == VARIES || k->ins[n].prim == WF_KP_CONST) {
            map[n] = wf_ll_copy_instr(&s->rest, k, n, map);
        }
    for (uint32_t o = 0; o < k->nout; o++)
        wf_kir_output(&s->rest, map[k->out[o]]);
    s->rest.rare = k->rare == WF_KREF_NONE ? WF_KREF_NONE : map[k->rare];
}

/* Splits s->body. */
static int split_body(wf_ll_split *s, const bool *uniform_param, wf_why *why)
{
    const wf_kir *k = s->body;
    uint8_t *kind = malloc(k->n);
    wf_kref *map = malloc(k->n * sizeof *map);
    int status = 0;
    if (!kind || !map) {
        status = wf_fail(why, WEFT_ENOMEM, "no memory for the text of a kernel");
    } else {
        const uint32_t count = classify(k, uniform_param, kind);
        if (count > 0 && count <= WF_KIR_MAX_OUT && k->nparam + count <= WF_KIR_MAX_PARAM) {
            split(k, kind, s, map);
            status = wf_kir_finish(&s->once, why);
            if (status == 0)
                status = wf_kir_finish(&s->rest, why);
            s->body = &s->rest;
        }
    }
    free(kind);
    free(map);
    return status;
}

int wf_ll_split_body(const wf_kir *k, const bool *uniform_param, wf_ll_split *s, wf_why *why)
{
    wf_kir_init(&s->eased);
    wf_kir_init(&s->once);
    wf_kir_init(&s->rest);
    s->body = k;
    if (k->n == 0)
        return 0;
    int status = wf_ll_ease(k, uniform_param, &s->eased, why);
    if (s->eased.n > 0)
        s->body = &s->eased;
    if (status == 0)
        status = split_body(s, uniform_param, why);
    if (status != 0)
        wf_ll_split_free(s);
    return status;
}

void wf_ll_split_free(wf_ll_split *s)
{
    wf_kir_free(&s->eased);
    wf_kir_free(&s->once);
    wf_kir_free(&s->rest);
}

void wf_ll_once(wf_text *t, const wf_ll_split *s, int lanes, const char *prefix, wf_ll *param)
{
    wf_ll scalar[WF_KIR_MAX_PARAM];
    for (int p = 0; p < WF_KIR_MAX_PARAM; p++)
        snprintf(scalar[p].s, sizeof scalar[p].s, "%%s%d", p);
    wf_ll_once_of(t, s, lanes, prefix, scalar, param);
}

void wf_ll_once_of(wf_text *t, const wf_ll_split *s, int lanes, const char *prefix,
                   const wf_ll *scalar, wf_ll *param)
{
    if (s->once.n == 0)
        return;
    wf_ll_body(t, &s->once, 1, prefix, scalar);
    for (uint32_t o = 0; o < s->once.nout; o++) {
        char name[32];
        snprintf(name, sizeof name, "%sx%u", prefix, o);
        wf_ll_spread(t, name, wf_kir_type(&s->once, s->once.out[o]), lanes,
                     wf_ll_ref(&s->once, s->once.out[o], 1, prefix, scalar).s);
        snprintf(param[s->once.nparam + o].s, sizeof param->s, "%%%s", name);
    }
}
