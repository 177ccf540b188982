/*
 * jit/ir/kir_print.c -- kernel IR as text, and the growing text buffer renderers write into.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/kir.h"
#include "jit/ir/plain_numbers.h"

void wf_text_free(wf_text *t)
{
    free(t->s);
    *t = (wf_text){0};
}

/* Room for n bytes more and a zero. */
static bool reserve(wf_text *t, size_t n)
{
    if (t->failed || n < t->cap - t->n)
        return !t->failed;
    const size_t cap = (t->cap + n) * 2 + 256;
    char *grown = realloc(t->s, cap);
    if (!grown) {
        t->failed = true;
        return false;
    }
    grown[t->n] = 0;
    t->s = grown;
    t->cap = cap;
    return true;
}

char *wf_text_room(wf_text *t, size_t n)
{
    return reserve(t, n) ? t->s + t->n : NULL;
}

void wf_text_end(wf_text *t, char *end)
{
    *end = 0;
    t->n = (size_t)(end - t->s);
}

void wf_text_put(wf_text *t, const void *data, size_t n)
{
    if (n == 0 || !reserve(t, n))
        return;
    memcpy(t->s + t->n, data, n);
    t->n += n;
    t->s[t->n] = 0;
}

void wf_text_putf(wf_text *t, const char *fmt, ...)
{
    va_list args;
    for (int round = 0; round < 2 && !t->failed; round++) {
        const wf_plain_numbers was = wf_plain_numbers_begin();
        va_start(args, fmt);
        const int n = vsnprintf(t->s ? t->s + t->n : NULL, t->cap - t->n, fmt, args);
        va_end(args);
        wf_plain_numbers_end(was);
        if (n < 0) {
            t->failed = true;
            return;
        }
        if ((size_t)n < t->cap - t->n) {
            t->n += (size_t)n;
            return;
        }
        if (!reserve(t, (size_t)n))
            return;
    }
}

static void print_const(const wf_kinstr *i, wf_text *t)
{
    const int digits = (int)(wf_kty_bits((wf_kty)i->type) + 3) / 4;
    wf_text_putf(t, " 0x%0*" PRIx64, digits, i->imm);
    double x;
    float f;
    const uint32_t u = (uint32_t)i->imm;
    if (i->type == WF_KT_F32) {
        memcpy(&f, &u, sizeof f);
        wf_text_putf(t, " (%.9g)", (double)f);
    } else if (i->type == WF_KT_F64) {
        memcpy(&x, &i->imm, sizeof x);
        wf_text_putf(t, " (%.17g)", x);
    }
}

void wf_kir_print(const wf_kir *k, wf_text *t)
{
    for (uint32_t n = 0; n < k->n; n++) {
        const wf_kinstr *i = &k->ins[n];
        wf_text_putf(t, "%%%u = %s %s", n, wf_kprim_name((wf_kprim)i->prim),
                     wf_kty_name((wf_kty)i->type));
        for (int s = 0; s < i->nsrc; s++)
            wf_text_putf(t, " %%%u", i->src[s]);
        if (i->prim == WF_KP_CONST)
            print_const(i, t);
        else if (i->prim == WF_KP_LOOKUP)
            wf_text_putf(t, " %s", k->table[i->imm]->name);
        else if (i->prim == WF_KP_PARAM || i->prim == WF_KP_SHLK || i->prim == WF_KP_SHRK ||
                 i->prim == WF_KP_SARK)
            wf_text_putf(t, " %" PRIu64, i->imm);
        wf_text_putf(t, "%s\n", i->relaxed ? " relaxed" : "");
    }
    if (k->rare != WF_KREF_NONE)
        wf_text_putf(t, "rare %%%u\n", k->rare);
    wf_text_putf(t, "return");
    for (uint32_t o = 0; o < k->nout; o++)
        wf_text_putf(t, " %%%u", k->out[o]);
    wf_text_putf(t, "\n");
}
