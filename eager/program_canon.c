/*
 * eager/program_canon.c -- see program_canon.h.
 */
#include "eager/program_canon.h"

#include <string.h>

void wf_canon_begin(wf_canon *c, const wf_red_kernels *k, wf_red op)
{
    c->k = k;
    c->op = op;
    c->top = 0;
    memset(c->count, 0, sizeof c->count);
}

/* The lanes of a level to one value. */
static void fold(wf_canon *c, int level, void *out)
{
    const int64_t n = c->count[level] < WF_LANES ? c->count[level] : WF_LANES;
    c->k->run[c->op](out, c->lane[level], n);
    c->count[level] = 0;
}

/* One result of the level below. */
static void push(wf_canon *c, int level, const void *part)
{
    char one[8];
    memcpy(one, part, c->k->size);
    for (; level < WF_CANON_LEVELS; level++) {
        const int64_t n = c->count[level]++;
        char *lane = c->lane[level] + n % WF_LANES * (int64_t)c->k->size;
        c->top = level > c->top ? level : c->top;
        c->k->rows[c->op](lane, (const void *const[]){one}, 1, 1, n < WF_LANES);
        if (c->count[level] < WF_BLOCK)
            return;
        fold(c, level, one);
    }
}

/* n elements of one block into its lanes. */
static void add_lanes(wf_canon *c, const char *x, int64_t n)
{
    const int64_t size = (int64_t)c->k->size;
    const int64_t whole = n / WF_LANES;
    const void *rows[WF_BLOCK / WF_LANES];
    for (int64_t i = 0; i < whole; i++)
        rows[i] = x + i * WF_LANES * size;
    if (whole > 0)
        c->k->rows[c->op](c->lane[0], rows, whole, WF_LANES, c->count[0] == 0);
    if (n % WF_LANES > 0) {
        rows[0] = x + whole * WF_LANES * size;
        c->k->rows[c->op](c->lane[0], rows, 1, n % WF_LANES, c->count[0] == 0 && whole == 0);
    }
    c->count[0] += n;
}

void wf_canon_add(wf_canon *c, const void *x, int64_t n)
{
    char part[8];
    const char *at = x;
    while (n > 0) {
        const int64_t room = WF_BLOCK - c->count[0], m = n < room ? n : room;
        if (c->op == WF_RED_MAX || c->op == WF_RED_MIN) { /* no order: one value stands for all */
            c->k->run[c->op](part, at, m);
            c->k->rows[c->op](c->lane[0], (const void *const[]){part}, 1, 1, c->count[0] == 0);
            c->count[0] = 1;
        } else {
            add_lanes(c, at, m);
            if (c->count[0] == WF_BLOCK) {
                fold(c, 0, part);
                push(c, 1, part);
            }
        }
        at += m * (int64_t)c->k->size;
        n -= m;
    }
}

void wf_canon_end(wf_canon *c, void *out)
{
    char part[8];
    for (int level = 0; level <= c->top; level++) {
        if (c->count[level] == 0)
            continue;
        fold(c, level, part);
        bool above = false;
        for (int i = level + 1; i <= c->top; i++)
            above |= c->count[i] > 0;
        if (!above) {
            memcpy(out, part, c->k->size);
            return;
        }
        push(c, level + 1, part);
    }
}
