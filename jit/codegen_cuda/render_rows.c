/*
 * jit/codegen_cuda/render_rows.c -- kernels of programs with reductions; see jit/ir/cuda_text.h.
 *
 * All schemes add in the canonical order of docs/reductions.md. Along rows a warp adds a block of 4096
 * elements: thread l holds lanes l and l + 32, so the first halving is one operation and the others are
 * shuffles; where it has V neighbours instead, 64 / V threads have a row or a block. Side by side (OUTER) a thread adds 8 lanes of
 * a column, one subtree, in the order of the tree; or all of them (COLUMN) where each has one element at most.
 * In BLOCK_ROWS the sums of blocks go to 64 lanes in shared memory, each fed by one warp, so in order.
 * Many runs that reduce everything are SPLIT's rows, each of a length of its own: an entry of the argument says where it lies.
 *
 * Invariants
 *  - An element of a row is visited by the same thread in every stage of a fused kernel: what it kept
 *    or stored needs no barrier.
 *  - Loops around barriers and shuffles have the same count for all threads of the block, or the warp.
 */
#include <stdio.h>

#include "jit/codegen_cuda/render_rows.h"

#define P(...) wf_text_putf(t, __VA_ARGS__)

static bool is_outer(const wf_cu_rr *x)
{
    return x->r->scheme == WF_CU_OUTER || x->r->scheme == WF_CU_SPLIT_OUTER;
}
static bool is_split(const wf_cu_rr *x)
{
    return x->r->scheme == WF_CU_SPLIT || x->r->scheme == WF_CU_SPLIT_OUTER;
}

/* -- layout ----------------------------------------------------------------------------------------------- */
void wf_cu_rows_layout(const wf_cu_rows *r, wf_cu_layout *l)
{
    const wf_kernel *k = r->k;
    l->rows = 0;
    l->n = 1;
    l->width = 2;
    l->error = 3;
    l->slots = 4;
    l->parts = 5;
    l->kept = 6;
    l->reduced = l->kept + r->nk * WF_CU_DIVISOR;
    l->keep = l->reduced + r->nr * WF_CU_DIVISOR;
    l->copied = l->errors = l->keep + k->rows->nkeep;
    for (int s = 0; s < k->nsrc; s++)
        l->errors += (int)(r->copied >> s & 1);
    l->scalar = l->errors + (k->rows->ncheck > 1 ? k->rows->ncheck - 1 : 0);
    l->op = l->scalar + k->nscalar;
    l->words = l->op + (k->rows->ndst + k->nsrc) * (1 + r->nk + r->nr);
    l->first = l->entry = 0;
    if (r->many) {
        l->first = l->kept;
        l->op = 2 + (r->nr - 1) * WF_CU_DIVISOR;
        l->reduced = 2 - WF_CU_DIVISOR; /* the outermost is not divided by */
        l->entry = l->op + (k->rows->ndst + k->nsrc) * (1 + r->nr);
        l->words = r->many;
    }
}

static void numbers(const wf_kernel *k, int16_t total[WF_ROWS_SLOTS], int16_t cell[WF_ROWS_SLOTS],
                    int *ntotal, int *ncell)
{
    *ntotal = *ncell = 0;
    for (int i = 0; i < WF_ROWS_SLOTS; i++)
        total[i] = cell[i] = -1;
    for (int i = 0; i < k->rows->nstage; i++) {
        const wf_stage *st = &k->rows->stage[i];
        const uint32_t n = st->kind == WF_ST_PICK ? 1 : st->body.nout;
        for (uint32_t o = 0; o < n && st->kind != WF_ST_ONCE; o++) {
            const int at = st->out[o].at;
            if (st->out[o].kind == WF_PORT_TOTAL && total[at] < 0)
                total[at] = (int16_t)(*ntotal)++;
            if ((st->out[o].kind == WF_PORT_TOTAL || st->out[o].kind == WF_PORT_SLOT) &&
                cell[at] < 0)
                cell[at] = (int16_t)(*ncell)++;
        }
    }
}

int wf_cu_kept_bytes(const wf_kernel *k)
{
    int bytes = 0;
    for (int i = 0; i < k->rows->nkeep; i++)
        bytes += (int)(wf_kty_bits((wf_kty)k->rows->keep_type[i]) / 8);
    return bytes;
}

int wf_cu_resident_bytes(const wf_kernel *k)
{
    int bytes = wf_cu_kept_bytes(k);
    uint32_t seen = 0;
    for (int i = 0; i < k->rows->nstage; i++) {
        const wf_stage *st = &k->rows->stage[i];
        for (uint32_t p = 0; st->kind == WF_ST_ELEM && p < st->body.nparam; p++) {
            const uint32_t bit = UINT32_C(1) << (st->in[p].at & 31); /* of what is no source, any */
            if (st->in[p].kind != WF_PORT_SOURCE || seen & bit || (k->rows->row_src & bit))
                continue;
            seen |= bit;
            bytes += (int)(wf_kty_bits((wf_kty)st->body.param_type[p]) / 8);
        }
    }
    return bytes;
}

int wf_cu_totals(const wf_kernel *k)
{
    int16_t total[WF_ROWS_SLOTS], cell[WF_ROWS_SLOTS];
    int ntotal, ncell;
    numbers(k, total, cell, &ntotal, &ncell);
    return ntotal;
}

int wf_cu_cells(const wf_kernel *k)
{
    int16_t total[WF_ROWS_SLOTS], cell[WF_ROWS_SLOTS];
    int ntotal, ncell;
    numbers(k, total, cell, &ntotal, &ncell);
    return ncell;
}

int wf_cu_steps(const wf_kernel *k, wf_cu_step steps[WF_CU_STEPS])
{
    const wf_rows_kernel *rows = k->rows;
    int n = 0, i = 0;
    while (i < rows->nstage && rows->stage[i].kind == WF_ST_ONCE)
        i++;
    while (i < rows->nstage && n + 2 < WF_CU_STEPS) {
        int end = i;
        while (end < rows->nstage && rows->stage[end].kind != WF_ST_ELEM)
            end++;
        if (end > i || (i > 0 && wf_cu_has_totals(&rows->stage[i - 1])))
            steps[n++] = (wf_cu_step){i, end, false};
        if (end < rows->nstage)
            steps[n++] = (wf_cu_step){end, end + 1, true};
        i = end + 1;
    }
    return i >= rows->nstage ? n : -1;
}

/* -- folding along rows ------------------------------------------------------------------------------------ */
static void name(char *s, size_t n, const char *what, int slot)
{
    snprintf(s, n, "%s%d", what, slot);
}

static void declare_lanes(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    if (x->v > 1) {
        P("        %s part%d[%d];\n#pragma unroll\n        for (int j = 0; j < %d; j++)\n"
          "            part%d[j] = ",
          wf_cu_type(type), slot, x->v, x->v, slot);
        wf_cu_identity(t, type, op);
        P(";\n");
        return;
    }
    P("        %s lo%d = ", wf_cu_type(type), slot);
    wf_cu_identity(t, type, op);
    P(", hi%d = lo%d;\n", slot, slot);
}

static void fold_lane(const wf_cu_rr *x, int slot, int op, wf_kty type, const char *value)
{
    wf_text *t = x->t;
    char lo[16], hi[16];
    if (x->v > 1) {
        snprintf(lo, sizeof lo, "part%d[j]", slot);
        P("        ");
        wf_cu_fold(t, type, op, lo, lo, value);
        return;
    }
    name(lo, sizeof lo, "lo", slot);
    name(hi, sizeof hi, "hi", slot);
    P("        if (half) {\n            ");
    wf_cu_fold(t, type, op, hi, hi, value);
    P("        } else {\n            ");
    wf_cu_fold(t, type, op, lo, lo, value);
    P("        }\n");
}

/* lo<slot> := the lanes of all threads of the row. Of lanes that neighbours have, those that other threads have are joined first. Where the
 * row is shifted, lanes are numbered from another one on: the same are joined by every step, as lanes l and l + h, modulo 2 h, are. */
static void halve(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    char lo[24], hi[24], width[16];
    /* sums of parts have a warp a row, whatever the threads that made them had */
    if (x->r->scheme == WF_CU_WARP)
        snprintf(width, sizeof width, "width");
    else
        snprintf(width, sizeof width, "%d", x->v > 1 ? wf_cu_row_threads(x->r) : 32);
    name(lo, sizeof lo, "lo", slot);
    name(hi, sizeof hi, "hi", slot);
    if (x->v > 1) {
        char part[24];
        snprintf(part, sizeof part, "part%d[j]", slot);
        P("#pragma unroll\n        for (int j = 0; j < %d; j++) {\n", x->v);
        wf_cu_warp_fold(t, type, op, part, width);
        P("        }\n");
        for (int h = x->v / 2; h >= 1; h /= 2)
            for (int j = 0; j < h; j++) {
                snprintf(lo, sizeof lo, "part%d[%d]", slot, j);
                snprintf(hi, sizeof hi, "part%d[%d]", slot, j + h);
                P("        ");
                wf_cu_fold(t, type, op, lo, lo, hi);
            }
        name(lo, sizeof lo, "lo", slot);
        P("        %s %s = part%d[0];\n", wf_cu_type(type), lo, slot);
    } else {
        P("        ");
        wf_cu_fold(t, type, op, lo, lo, hi);
        wf_cu_warp_fold(t, type, op, lo, width);
    }
    wf_cu_warp_share(t, type, lo, width);
}

static void total_of(const wf_cu_rr *x, int slot, int op, const char *value)
{
    wf_text *t = x->t;
    P("        t%d = n ? %s : ", slot, value);
    wf_cu_nothing(t, op);
    P(";\n");
}

static void finish_warp(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    char lo[16];
    name(lo, sizeof lo, "lo", slot);
    halve(x, slot, op, type);
    total_of(x, slot, op, lo);
}

/* -- groups of elements -----------------------------------------------------------------------------------
 * Loads in flight hide memory's latency. A compiler leaves one at a time in flight where a loop's counter may wrap (an
 * exit after each load), or where a store may hit what is loaded next, so unrolling alone does not give more. The text
 * loads a group of elements into registers and then computes: a loop over whole groups, one over guarded halves of
 * a group for the rest. A group's loads come before its stores, so a store may only hit elements of its own number
 * (jit/gpu/rows.c sees to that). */

/* Are elements that are read smaller than a register? */
static bool is_narrow(const wf_stage *st)
{
    bool narrow = true;
    for (uint32_t i = 0; i < st->body.nparam; i++)
        narrow &=
            st->in[i].kind != WF_PORT_SOURCE || wf_kty_bits((wf_kty)st->body.param_type[i]) < 32;
    return narrow;
}

/* Elements of a group, an even number: registers for some eight loads, or for 64 bytes of vectors; a long body has enough to do. */
static int group_of(const wf_cu_rr *x, const wf_stage *st)
{
    enum { SHORT = 48, BYTES = 64, MOST = 768 };
    if (x->v > 1) {
        int group = x->v;
        while (2 * group * wf_cu_gathered_bytes(x, st) <= BYTES &&
               2 * group * (int)st->body.n <= MOST)
            group *= 2;
        return group;
    }
    const int words = wf_cu_gathered(x, st);
    if (is_outer(x) && words <= 6 && st->body.n < SHORT / 2) /* few threads have long columns */
        return words > 2 ? 4 : words == 1 && wf_cu_across(x) == 1 && is_narrow(st) ? 16 : 8;
    return words > 3 ? 2 : words > 1 || st->body.n >= SHORT ? 4 : 8;
}

/* How a thread walks over elements of a row. */
typedef struct walk {
    const char *at; /* its first */
    int step;       /* to its next; by 32: to the other of its two lanes */
    wf_cu_total_fn fold;
    bool quick; /* a group is asked whether its elements can be divided quickly */
} walk;

static void element_number(const wf_cu_rr *x, const walk *s, bool rest)
{
    wf_text *t = x->t;
    if (x->v == 1) {
        P("        const int e = begin + %d * u + %s;\n", s->step, s->at);
        if (rest)
            P("        if (e >= (int)count)\n            break;\n");
        return;
    }
    P("        const int g = u / %d, j = u %% %d, e = begin + 64 * g + lane * %d + j%s;\n", x->v,
      x->v, x->v, x->r->shift ? " - shift" : "");
    if (rest) {
        char sure[24];
        wf_cu_sure(x, sure, sizeof sure);
        P("        const int in = %s%s64 * g + j < left%s, any = %s64 * g < left, "
          "all = %s%s64 * g + %d <= left%s;\n",
          x->r->shift ? "(g > 0 || e >= 0) && (" : "(", sure, ")", sure,
          x->r->shift ? "(g > 0 || e >= j) && (" : "(", sure, x->v, ")");
    }
}

static void each_of_group(const wf_cu_rr *x, const walk *s, int group, bool rest)
{
    wf_text *t = x->t;
    const char *type = x->r->wide ? "long long" : "unsigned int";
    P("#pragma unroll\n        for (int u = 0; u < %d; u++) {\n", group);
    element_number(x, s, rest);
    P("        const %s c = (%s)first + (%s)e;\n", type, type, type);
    if (s->step == 64)
        P("        const long long kc = (long long)c * keep_step;\n");
}

static void compute_group(const wf_cu_rr *x, const wf_stage *st, const walk *s, int group,
                          bool rest, bool quick)
{
    wf_text *t = x->t;
    each_of_group(x, s, group, rest);
    if (x->v == 1 && s->step == 32)
        P("        const int half = u & 1;\n");
    if (wf_cu_across(x) > 1)
        P("#pragma unroll\n        for (int v = 0; v < %d; v++) {\n", wf_cu_across(x));
    wf_cu_element(x, st, quick, rest, s->fold);
    P(wf_cu_across(x) > 1 ? "        }\n        }\n" : "        }\n");
}

/* Elements of vectors are guarded without branches: values of elements outside the row are computed of whatever lies there, and go
 * nowhere. Only a thread's first vector begins before the row. So the rest of a group costs an operation or two an element, and can be
 * asked whether it divides quickly, too. */
static void group_loop(const wf_cu_rr *x, const wf_stage *st, const walk *s, int group, bool rest)
{
    wf_text *t = x->t;
    const int step = group * (x->v > 1 ? 64 / x->v : s->step);
    const bool either = s->quick && x->v > 1 && (rest || x->r->resident);
    const bool quick = s->quick && !rest && !either;
    if (x->r->resident)
        P("        {\n");
    else
        P("#pragma unroll 1\n        for (; begin <= end - %d; begin += %d) {\n", rest ? 1 : step,
          step);
    if (rest && x->v > 1) /* elements from the thread's first one on */
        P("        const int left = end - begin - lane * %d;\n", x->v);
    if (s->step == 32) {
        P("        const %s at = (%s)first + begin + lane * %d;\n", x->index, x->index, x->v);
        wf_cu_aim(x, st);
        wf_cu_declare_results(x, st);
    }
    wf_cu_declare_group(x, st, group, rest);
    if (wf_cu_gathered(x, st)) {
        each_of_group(x, s, group, rest);
        wf_cu_gather(x, st, rest);
        P("        }\n");
    }
    if (quick || either)
        wf_cu_check_group(x, st, group, rest, quick);
    if (wf_cu_copies(x, st)) {
        each_of_group(x, s, group, rest);
        wf_cu_copy(x, st, rest);
        P("        }\n");
    }
    if (either)
        P("        if (quick) {\n");
    compute_group(x, st, s, group, rest, quick || either);
    if (either) {
        P("        } else {\n");
        compute_group(x, st, s, group, rest, false);
        P("        }\n");
    }
    P("        }\n");
}

/* Over elements [first, first + count), at most a block of the order. In a row that begins within a vector all groups are guarded: most
 * rows are a few groups, of which the first and the last have elements outside. */
static void each_element(const wf_cu_rr *x, const wf_stage *st, walk *s)
{
    wf_text *t = x->t;
    const int group = group_of(x, st), rest = group / 2 > x->v ? group / 2 : x->v;
    const bool shift = x->v > 1 && x->r->shift;
    P("        %s{\n        int begin = 0;\n        const int end = %s;\n",
      wf_cu_has_totals(st) ? "" : "if (active) ",
      shift ? "count > 0 ? (int)count + shift : 0" : "(int)count");
    s->quick = wf_cu_row_values(x, st);
    if (x->r->resident) {
        group_loop(x, st, s, x->r->resident, !x->r->full);
    } else {
        if (!shift)
            group_loop(x, st, s, group, false);
        group_loop(x, st, s, shift ? group : x->v > 1 || rest > 2 ? rest : 2, true);
    }
    P("        }\n");
}

static void inner_loop(const wf_cu_rr *x, const wf_stage *st)
{
    wf_cu_each_total(x, st, declare_lanes);
    each_element(x, st, &(walk){"lane", 32, fold_lane, false});
}

/* -- BLOCK_ROWS: sums of blocks in shared memory ------------------------------------------------------------ */
static void clear_shared(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    P("        if (threadIdx.x < 64)\n            lanes%d[threadIdx.x] = ", slot);
    wf_cu_identity(t, type, op);
    P(";\n");
}

static void declare_shared(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    (void)op;
    if (is_outer(x))
        P("    __shared__ %s lanes%d[%d][%d];\n", wf_cu_type(type), slot, WF_CU_SUBTREES,
          WF_CU_TILE * wf_cu_across(x));
    else
        P("    __shared__ %s lanes%d[64];\n", wf_cu_type(type), slot);
}

static void block_to_lane(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    char to[32], lo[16];
    snprintf(to, sizeof to, "lanes%d[block %% 64]", slot);
    name(lo, sizeof lo, "lo", slot);
    halve(x, slot, op, type);
    P("        if (lane == 0 && busy) {\n            ");
    wf_cu_fold(t, type, op, to, to, lo);
    P("        }\n");
}

static void finish_shared(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    if (x->v > 1)
        P("        {\n        %s part%d[%d];\n#pragma unroll\n"
          "        for (int j = 0; j < %d; j++)\n            part%d[j] = lanes%d[lane * %d + j];\n",
          wf_cu_type(type), slot, x->v, x->v, slot, slot, x->v);
    else
        P("        {\n        %s lo%d = lanes%d[lane], hi%d = lanes%d[lane + 32];\n",
          wf_cu_type(type), slot, slot, slot, slot);
    finish_warp(x, slot, op, type);
    P("        }\n");
}

static void block_stage(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    P("        for (long long turn = 0; turn * 4096 < n; turn += warps) {\n"
      "        const long long block = turn + warp, first = block * 4096, left = n - first;\n"
      "        const int busy = left > 0, count = left > 4096 ? 4096 : busy ? (int)left : 0;\n");
    inner_loop(x, st);
    wf_cu_each_total(x, st, block_to_lane);
    P("        }\n");
    if (wf_cu_has_totals(st))
        P("        __syncthreads();\n");
    wf_cu_each_total(x, st, finish_shared);
}

static void warp_stage(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    P("        {\n        const int first = 0, count = (int)n;\n");
    inner_loop(x, st);
    wf_cu_each_total(x, st, finish_warp);
    P("        }\n");
}

/* -- OUTER ------------------------------------------------------------------------------------------------ */
static const char *const level[] = {"one", "two", "four", "eight", "sixteen", "most"};

static void declare_levels(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    const int last = x->r->scheme == WF_CU_COLUMN ? 6 : 3;
    if (wf_cu_across(x) > 1)
        P("        %s acc%d[%d];\n", wf_cu_type(type), slot, wf_cu_across(x));
    else
        P("        %s acc%d = 0", wf_cu_type(type), slot);
    for (int i = 0; i < last && wf_cu_across(x) == 1; i++)
        P(", %s%d = 0", level[i], slot);
    if (wf_cu_across(x) == 1)
        P(";\n");
    (void)op;
}

static void begin_acc(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    if (wf_cu_across(x) > 1)
        P("        for (int v = 0; v < %d; v++)\n            acc%d[v] = ", wf_cu_across(x), slot);
    else
        P("        acc%d = ", slot);
    wf_cu_identity(t, type, op);
    P(";\n");
}

static void fold_acc(const wf_cu_rr *x, int slot, int op, wf_kty type, const char *value)
{
    char acc[16];
    snprintf(acc, sizeof acc, wf_cu_across(x) > 1 ? "acc%d[v]" : "acc%d", slot);
    wf_text *t = x->t;
    P("        ");
    wf_cu_fold(t, type, op, acc, acc, value);
}

/* The lane is a leaf of the subtree; whatever it completes is combined. */
static void climb(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    const int last = x->r->scheme == WF_CU_COLUMN ? 6 : 3;
    char acc[16], left[16];
    name(acc, sizeof acc, "acc", slot);
    for (int i = 0; i < last; i++) {
        name(left, sizeof left, level[i], slot);
        P("        if (j & %d) {\n        ", 1 << i);
        wf_cu_fold(t, type, op, acc, left, acc);
    }
    for (int i = last - 1; i >= 0; i--)
        P("        } else {\n        %s%d = acc%d;\n        }\n", level[i], slot, slot);
}

static void share_subtree(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    (void)op;
    (void)type;
    if (wf_cu_across(x) > 1)
        P("        for (int v = 0; v < %d; v++)\n"
          "            lanes%d[threadIdx.x / 32][lane * %d + v] = acc%d[v];\n",
          wf_cu_across(x), slot, wf_cu_across(x), slot);
    else
        P("        lanes%d[threadIdx.x / 32][lane] = acc%d;\n", slot, slot);
}

/* q[0] := q[0] ... q[7], neighbours first. */
static void join_array(const wf_cu_rr *x, int op, wf_kty type)
{
    wf_text *t = x->t;
    for (int h = 1; h < WF_CU_SUBTREES; h *= 2)
        for (int i = 0; i < WF_CU_SUBTREES; i += 2 * h) {
            char a[24], b[24];
            snprintf(a, sizeof a, "q[%d]", i);
            snprintf(b, sizeof b, "q[%d]", i + h);
            P("        ");
            wf_cu_fold(t, type, op, a, a, b);
        }
}

/* sum<slot> := the eight subtrees of the column, or the eight leaves of the subtree. */
static void join_subtrees(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    const char *name_ = wf_cu_type(type);
    P("        %s sum%d;\n        {\n        %s q[8];\n"
      "#pragma unroll\n        for (int i = 0; i < 8; i++)\n            q[i] = lanes%d[i][%s];\n",
      name_, slot, name_, slot, wf_cu_across(x) > 1 ? "column" : "lane");
    join_array(x, op, type);
    P("        sum%d = q[0];\n        }\n", slot);
}

static void finish_outer(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    char sum[16];
    name(sum, sizeof sum, "sum", slot);
    (void)type;
    total_of(x, slot, op, sum);
}

/* One subtree a thread, leaf by leaf; or (SPLIT) one a block, a leaf a thread. */
static void outer_stage(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    const bool split = is_split(x);
    wf_cu_each_total(x, st, declare_levels);
    P("%s"
      "        /* the j-th leaf of subtree y: six bits of 8 y + j, reversed */\n"
      "        const int leaf = (j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (y & 1) << 2 | (y & "
      "2) | (y "
      "& 4) >> 2;\n",
      split ? "        {\n        const int j = threadIdx.x / 32;\n"
            : "        for (int j = 0; j < 8; j++) {\n");
    wf_cu_each_total(x, st, begin_acc);
    each_element(x, st, &(walk){"leaf", 64, fold_acc, false});
    if (!split)
        wf_cu_each_total(x, st, climb);
    P("        }\n");
    wf_cu_each_total(x, st, share_subtree);
    if (wf_cu_has_totals(st))
        P("        __syncthreads();\n");
    wf_cu_each_total(x, st, join_subtrees);
}

/* -- COLUMN ----------------------------------------------------------------------------------------------- */
static void finish_column(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    char acc[16];
    name(acc, sizeof acc, "acc", slot);
    (void)type;
    total_of(x, slot, op, acc);
}

/* The whole tree in a thread: lanes that may have an element, in bit-reversed order. Others are identities: the halvings
 * that they are in change nothing. */
static void column_stage(const wf_cu_rr *x, const wf_stage *st)
{
    wf_text *t = x->t;
    const char *type = x->r->wide ? "long long" : "unsigned int";
    const int group = group_of(x, st);
    P("        {\n");
    wf_cu_each_total(x, st, declare_levels);
    wf_cu_row_values(x, st);
    P("#pragma unroll 1\n        for (int begin = 0; begin < 1 << log; begin += %d) {\n", group);
    wf_cu_declare_group(x, st, group, false);
    for (int compute = wf_cu_gathered(x, st) == 0; compute < 2; compute++) {
        P("#pragma unroll\n        for (int u = 0; u < %d; u++) {\n        const int j = begin + "
          "u;\n"
          "        const int e = ((j & 1) << 5 | (j & 2) << 3 | (j & 4) << 1 | (j & 8) >> 1 | (j & "
          "16) "
          ">> 3 | (j & 32) >> 5) >> (6 - log);\n"
          "        if (j >= 1 << log)\n            break;\n",
          group);
        if (compute)
            wf_cu_each_total(x, st, begin_acc);
        P("        if (e < (int)n) {\n        const %s c = (%s)e;\n"
          "        const long long kc = (long long)c * keep_step;\n",
          type, type);
        if (compute)
            wf_cu_element(x, st, false, false, fold_acc);
        else
            wf_cu_gather(x, st, false);
        P("        }\n");
        if (compute)
            wf_cu_each_total(x, st, climb);
        P("        }\n");
    }
    P("        }\n");
    wf_cu_each_total(x, st, finish_column);
    P("        }\n");
}

/* -- fused kernels ------------------------------------------------------------------------------------------- */
static void keeps(const wf_cu_rr *x, const char *row)
{
    wf_text *t = x->t;
    char place[120];
    int o = 0;
    const bool shifted = x->v > 1 && x->r->shift;
    while (shifted && !(x->r->whole >> o & 1))
        o++;
    if (shifted)
        P("        const int shift = (int)((unsigned long long)%c%d / %u & %d);\n",
          o < x->rows->ndst ? 'd' : 's', o < x->rows->ndst ? o : o - x->rows->ndst,
          wf_kty_bits(wf_kernel_ptr_type(x->k, o)) / 8, x->v - 1);
    if (is_outer(x) || x->r->scheme == WF_CU_COLUMN) /* columns side by side */
        snprintf(place, sizeof place, "%s", row);
    else if (x->v == 1)
        snprintf(place, sizeof place, "(%s) * n", row);
    else
        snprintf(place, sizeof place, "(%s) * ((n + %d) / %d * %d)", row,
                 (x->r->shift ? 2 : 1) * (x->v - 1), x->v, x->v);
    for (int i = 0; i < x->rows->nkeep && !x->r->resident; i++) {
        const char *type = wf_cu_type((wf_kty)x->rows->keep_type[i]);
        if (x->r->shared)
            P("        %s *const k%d = (%s *)((unsigned char *)wf_dynamic + (unsigned int)a.w[%d]) "
              "+ %s;\n",
              type, i, type, x->l.keep + i, place);
        else
            P("        %s *const k%d = (%s *)a.w[%d] + %s;\n", type, i, type, x->l.keep + i, place);
    }
    for (int i = 0, word = x->l.copied; i < x->k->nsrc; i++)
        if (x->r->copied >> i & 1) {
            const char *type = wf_cu_type(wf_kernel_ptr_type(x->k, x->rows->ndst + i));
            P("        %s *const y%d = (%s *)((unsigned char *)wf_dynamic + (unsigned int)a.w[%d]) "
              "+ %s;\n",
              type, i, type, word++, place);
        }
}

/* Does a body have many values, or such as take two registers? */
static bool is_large(const wf_kir *k)
{
    enum { LONG = 96 };
    bool large = k->n > LONG;
    for (uint32_t n = 0; n < k->n && !large; n++)
        large = k->ins[n].prim != WF_KP_CONST && wf_kty_bits((wf_kty)k->ins[n].type) == 64;
    return large;
}

/* Registers of the lanes of all totals of a stage. */
static int lane_registers(const wf_cu_rr *x, const wf_stage *st)
{
    const int lanes = x->v > 1 ? x->v : 2; /* or the lower and the upper half */
    int registers = 0;
    for (uint32_t o = 0; st->kind == WF_ST_ELEM && o < st->body.nout; o++)
        if (st->out[o].kind == WF_PORT_TOTAL)
            registers +=
                lanes * (wf_kty_bits(wf_kir_type(&st->body, st->body.out[o])) > 32 ? 2 : 1);
    return registers;
}

/* Threads that a processor has to have registers for: 64 each or, where that might not do, 128, or 256 where lanes of many totals alone
 * take those (30 f64 sums of exponentials spilled 844 bytes at 128, and take 222). Of its own accord the
 * assembler stays below some 40, and issues a group's loads as the registers of the first become free. */
static int threads_of(const wf_cu_rr *x, int least)
{
    enum { OTHERS = 36 }; /* registers beside those of elements that stay, or of lanes */
    bool large = x->r->wide;
    for (int i = 0; i < x->rows->nstage; i++)
        if (lane_registers(x, &x->rows->stage[i]) + OTHERS > 128)
            return least;
    for (int i = 0; i < x->rows->nstage; i++)
        large |= x->rows->stage[i].kind != WF_ST_PICK && is_large(&x->rows->stage[i].body);
    if (x->r->resident) {
        const int registers = OTHERS + wf_cu_resident_bytes(x->k) * x->r->resident / 4;
        if (!large &&
            x->k->nsrc == 1) /* what is kept of an element takes the place of what was read of it */
            return 1024;
        return large || registers > 84 ? 512 : registers > 48 ? 768 : 1024;
    }
    return large ? 512 : x->r->copied ? 768 : 1024; /* as many as have a row in shared memory */
}

static void head(const wf_cu_rr *x, int step)
{
    wf_text *t = x->t;
    const int threads = x->r->scheme == WF_CU_BLOCK_ROWS ? WF_CU_BLOCK_THREADS : 256;
    P("WF_EXTERN __global__ void __launch_bounds__(%d, %d) %s", threads,
      threads_of(x, threads) / threads, x->k->name);
    if (step >= 0)
        P("_%d", step);
    P("(const struct wf_words_%d a)\n{\n    WF_BEGIN\n"
      "    const long long rows = (long long)a.w[%d]",
      x->l.words, x->l.rows);
    if (!x->r->many)
        P(", n = (long long)a.w[%d]", x->l.n);
    P(";\n");
    if (x->r->shared)
        P("    WF_DYNAMIC(wf_dynamic)\n");
    wf_cu_scalars(x);
}

static void once(const wf_cu_rr *x)
{
    int end = 0;
    while (end < x->rows->nstage && x->rows->stage[end].kind == WF_ST_ONCE)
        end++;
    wf_cu_declare_slots(x, 0, end);
    for (int i = 0; i < end; i++)
        wf_cu_single_stage(x, &x->rows->stage[i], "0");
}

static void stages(const wf_cu_rr *x, const char *leader)
{
    for (int i = 0; i < x->rows->nstage; i++) {
        const wf_stage *st = &x->rows->stage[i];
        if (st->kind == WF_ST_ROW)
            wf_cu_single_stage(x, st, leader);
        else if (st->kind == WF_ST_PICK)
            wf_cu_pick_stage(x, st);
        else if (st->kind == WF_ST_ELEM && x->r->scheme == WF_CU_WARP)
            warp_stage(x, st);
        else if (st->kind == WF_ST_ELEM && x->r->scheme == WF_CU_BLOCK_ROWS)
            block_stage(x, st);
        else if (st->kind == WF_ST_ELEM && x->r->scheme == WF_CU_COLUMN)
            column_stage(x, st);
        else if (st->kind == WF_ST_ELEM) {
            wf_text *t = x->t;
            P("        {\n        const long long first = 0, count = n;\n");
            outer_stage(x, st);
            wf_cu_each_total(x, st, finish_outer);
            P("        }\n");
        }
    }
}

static int first_of_row(const wf_cu_rr *x)
{
    int i = 0;
    while (i < x->rows->nstage && x->rows->stage[i].kind == WF_ST_ONCE)
        i++;
    return i;
}

static void each_total_of_all(const wf_cu_rr *x,
                              void (*fn)(const wf_cu_rr *x, int slot, int op, wf_kty type))
{
    for (int i = 0; i < x->rows->nstage; i++)
        wf_cu_each_total(x, &x->rows->stage[i], fn);
}

static void fused_warp(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    head(x, -1);
    if (x->v > 1)
        P("    const int width = %d", wf_cu_row_threads(x->r));
    else
        P("    const int width = (int)a.w[%d]", x->l.width);
    P(", lane = (int)(threadIdx.x & (unsigned int)(width - 1));\n"
      "    const long long groups = (long long)gridDim.x * (blockDim.x / width);\n"
      "    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / width;\n");
    once(x);
    P("    for (long long begin = 0; begin < rows; begin += groups) {\n"
      "        const int active = begin + mine < rows;\n"
      "        const long long r = active ? begin + mine : rows - 1;\n");
    wf_cu_row_pointers(x);
    keeps(x, x->r->shared ? "(long long)(threadIdx.x / width)" : "mine");
    wf_cu_declare_resident(x);
    wf_cu_declare_slots(x, first_of_row(x), x->rows->nstage);
    stages(x, "active && lane == 0");
    P("    }\n}\n");
}

static void fused_block(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    head(x, -1);
    each_total_of_all(x, declare_shared);
    const int width = wf_cu_row_threads(x->r);
    P("    const int lane = threadIdx.x %% %d, warp = threadIdx.x / %d, warps = blockDim.x / %d, "
      "active = "
      "1;\n",
      width, width, width);
    once(x);
    P("    for (long long r = blockIdx.x; r < rows; r += gridDim.x) {\n");
    wf_cu_row_pointers(x);
    keeps(x, x->r->shared ? "0" : "(long long)blockIdx.x");
    wf_cu_declare_slots(x, first_of_row(x), x->rows->nstage);
    each_total_of_all(x, clear_shared);
    P("        __syncthreads();\n");
    stages(x, "threadIdx.x == 0");
    P("        __syncthreads();\n    }\n}\n");
}

/* The address of a source that is read by words: all of them begin alike. */
static int shift_word(const wf_cu_rr *x)
{
    for (int i = 0; i < x->rows->nstage; i++) {
        const wf_stage *st = &x->rows->stage[i];
        for (uint32_t p = 0; st->kind == WF_ST_ELEM && p < st->body.nparam; p++)
            if (wf_cu_is_word(x, &st->in[p]))
                return x->l.op + (x->rows->ndst + st->in[p].at) * (1 + x->r->nk + x->r->nr);
    }
    return x->l.op;
}

static void tile_of_columns(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    const int n = wf_cu_across(x), tile = WF_CU_TILE * n;
    if (n > 1 &&
        x->r->shift) /* of rows of 8 steps the same: the leaves of a subtree are so far apart */
        P("        const int shift = (int)(((unsigned long long)a.w[%d] / %u + (unsigned long "
          "long)((y "
          "& 1) << 2 | (y & 2) | (y & 4) >> 2) * (unsigned long long)a.w[%d]) %% %d);\n"
          "        const int active = tile * %d + lane * %d < rows + shift;\n"
          "        const long long r = (active ? tile * %d + lane * %d : (rows - 1 + shift) / %d * "
          "%d) "
          "- shift;\n"
          "        const int column = (int)(threadIdx.x %% %d);\n",
          shift_word(x), 4u / (unsigned)n, shift_word(x) + 1 + x->r->nk, n, tile, n, tile, n, n, n,
          tile);
    else if (n > 1)
        P("        const int active = tile * %d + lane * %d < rows;\n"
          "        const long long r = active ? tile * %d + lane * %d : rows - %d;\n"
          "        /* the column whose subtrees the thread joins */\n"
          "        const int column = (int)(threadIdx.x %% %d);\n",
          tile, n, tile, n, n, tile);
    else
        P("        const int active = tile * %d + lane < rows;\n"
          "        const long long r = active ? tile * %d + lane : rows - 1;\n",
          WF_CU_TILE, WF_CU_TILE);
}

static void fused_outer(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    head(x, -1);
    each_total_of_all(x, declare_shared);
    P("    const int lane = threadIdx.x %% 32, y = threadIdx.x / 32, keep_step = 32;\n");
    once(x);
    P("    for (long long tile = blockIdx.x; tile * 32 < rows; tile += gridDim.x) {\n");
    tile_of_columns(x);
    wf_cu_row_pointers(x);
    keeps(x, "(long long)blockIdx.x * n * 32 + lane");
    wf_cu_declare_slots(x, first_of_row(x), x->rows->nstage);
    stages(x, "active && y == 0");
    P("        __syncthreads();\n    }\n}\n");
}

static void fused_column(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    head(x, -1);
    P("    const long long mine = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
      "    const long long keep_step = (long long)gridDim.x * blockDim.x;\n"
      "    const int log = (int)a.w[%d], active = 1;\n",
      x->l.width);
    once(x);
    P("    for (long long r = mine; r < rows; r += keep_step) {\n");
    wf_cu_row_pointers(x);
    keeps(x, "mine");
    wf_cu_declare_slots(x, first_of_row(x), x->rows->nstage);
    stages(x, "active");
    P("    }\n}\n");
}

/* -- SPLIT: a kernel a step ------------------------------------------------------------------------------------ */
static int cell_of(const wf_cu_rr *x, int slot, bool want_total)
{
    int16_t total[WF_ROWS_SLOTS], cell[WF_ROWS_SLOTS];
    int ntotal, ncell;
    numbers(x->k, total, cell, &ntotal, &ncell);
    return want_total ? total[slot] : cell[slot];
}

/* Declares what stages [begin, end) read and write; what earlier kernels wrote is loaded. */
static void open_slots(const wf_cu_rr *x, int begin, int end)
{
    wf_text *t = x->t;
    bool done[WF_ROWS_SLOTS] = {false};
    for (int i = begin; i < end; i++) {
        const wf_stage *st = &x->rows->stage[i];
        const uint32_t nin = st->kind == WF_ST_PICK ? 2 : st->body.nparam;
        const uint32_t nout = st->kind == WF_ST_PICK ? 1 : st->body.nout;
        for (uint32_t p = 0; p < nin; p++) {
            const int at = st->in[p].at;
            if (st->in[p].kind != WF_PORT_SLOT || done[at] || cell_of(x, at, false) < 0)
                continue;
            const char *type = wf_cu_type((wf_kty)x->rows->slot_type[at]);
            done[at] = true;
            if (wf_cu_across(x) > 1 && x->r->shift)
                P("        %s tv%d[%d];\n        for (int v = 0; v < %d; v++)\n"
                  "            tv%d[v] = *(const %s *)((unsigned long long *)a.w[%d] + %d * rows + "
                  "(r + v < 0 ? 0 : r + v < rows ? r + v : rows - 1));\n",
                  type, at, wf_cu_across(x), wf_cu_across(x), at, type, x->l.slots,
                  cell_of(x, at, false));
            else if (wf_cu_across(x) > 1)
                P("        %s tv%d[%d];\n        for (int v = 0; v < %d; v++)\n"
                  "            tv%d[v] = *(const %s *)((unsigned long long *)a.w[%d] + %d * rows + "
                  "r + v);\n",
                  type, at, wf_cu_across(x), wf_cu_across(x), at, type, x->l.slots,
                  cell_of(x, at, false));
            else
                P("        %s t%d = *(const %s *)((unsigned long long *)a.w[%d] + %d * rows + "
                  "r);\n",
                  type, at, type, x->l.slots, cell_of(x, at, false));
        }
        for (uint32_t o = 0; o < nout && st->kind != WF_ST_ELEM; o++) {
            const int at = st->out[o].at;
            if (st->out[o].kind != WF_PORT_SLOT || done[at])
                continue;
            done[at] = true;
            P("        %s t%d = 0;\n", wf_cu_type((wf_kty)x->rows->slot_type[at]), at);
        }
    }
}

static void store_part(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    const char *name_ = wf_cu_type(type);
    if (!is_outer(x))
        halve(x, slot, op, type);
    const char *shift = x->r->shift ? " - shift" : "";
    if (wf_cu_across(x) > 1)
        P("        if (threadIdx.x < %d && tile * %d + column%s < rows%s)\n"
          "            *(%s *)((unsigned long long *)a.w[%d] + ",
          WF_CU_TILE * wf_cu_across(x), WF_CU_TILE * wf_cu_across(x), shift,
          x->r->shift ? " && (tile > 0 || column >= shift)" : "", name_, x->l.parts);
    else
        P("        if (%s)\n            *(%s *)((unsigned long long *)a.w[%d] + ",
          is_outer(x) ? "active && threadIdx.x < 32" : "active && lane == 0", name_, x->l.parts);
    if (wf_cu_across(x) > 1)
        P("((%d * blocks + block) * 8 + y) * rows + tile * %d + column%s", cell_of(x, slot, true),
          WF_CU_TILE * wf_cu_across(x), shift);
    else if (is_outer(x))
        P("((%d * blocks + block) * 8 + y) * rows + r", cell_of(x, slot, true));
    else if (x->r->many)
        P("%d * blocks + g", cell_of(x, slot, true));
    else
        P("(%d * rows + r) * blocks + block", cell_of(x, slot, true));
    P(") = %s%d;\n", is_outer(x) ? "sum" : "lo", slot);
}

/* Many runs: r and its entry e by the number g of a block. */
static void find_run(const wf_cu_rr *x)
{
    wf_text *t = x->t;
    int half = 1;
    while (2 * half < (x->r->many - x->l.first) / x->l.entry)
        half *= 2;
    P("        long long r = 0;\n"
      "        for (int h = %d; h >= 1; h /= 2)\n"
      "            if (r + h < rows && (long long)a.w[%d + (r + h) * %d] <= g)\n"
      "                r += h;\n"
      "        const unsigned int entry = %d + (unsigned int)r * %d;\n"
      "        const long long n = (long long)a.w[entry + 1], block = g - (long long)a.w[entry];\n",
      half, x->l.first, x->l.entry, x->l.first, x->l.entry);
}

static void elements_kernel(const wf_cu_rr *x, int step, const wf_cu_step *s)
{
    wf_text *t = x->t;
    const wf_stage *st = &x->rows->stage[s->begin];
    head(x, step);
    if (is_outer(x))
        wf_cu_each_total(x, st, declare_shared);
    P("    const long long blocks = (long long)a.w[%d];\n    const int lane = threadIdx.x %% %d;\n",
      x->l.width, wf_cu_row_threads(x->r));
    once(x);
    if (is_outer(x)) {
        P("    const long long keep_step = rows, tiles = (rows + %d) / %d;\n"
          "    for (long long g = blockIdx.x; g < tiles * blocks * 8; g += gridDim.x) {\n"
          "        const long long tile = g %% tiles, block = g / tiles / 8;\n"
          "        const int y = (int)(g / tiles %% 8);\n",
          WF_CU_TILE * wf_cu_across(x) - 1 + (x->r->shift ? wf_cu_across(x) - 1 : 0),
          WF_CU_TILE * wf_cu_across(x));
        tile_of_columns(x);
    } else {
        const int width = wf_cu_row_threads(x->r);
        P("    const long long warps = (long long)gridDim.x * (blockDim.x / %d), work = %sblocks;\n"
          "    const long long mine = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / %d;\n"
          "    for (long long turn = 0; turn < work; turn += warps) {\n"
          "        const int active = turn + mine < work;\n"
          "        const long long g = active ? turn + mine : work - 1;\n",
          width, x->r->many ? "" : "rows * ", width);
        if (x->r->many)
            find_run(x);
        else
            P("        const long long r = g / blocks, block = g %% blocks;\n");
    }
    /* who is left over has a row of others, whose elements may be overwritten by now, and nothing to do there */
    P("        const long long first = block * 4096, count = !active ? 0 : n - first < 4096 ? n - "
      "first "
      ": 4096;\n");
    wf_cu_row_pointers(x);
    keeps(x, "r");
    open_slots(x, s->begin, s->end);
    if (is_outer(x))
        outer_stage(x, st);
    else
        inner_loop(x, st);
    wf_cu_each_total(x, st, store_part);
    P("%s    }\n}\n", is_outer(x) && wf_cu_has_totals(st) ? "        __syncthreads();\n" : "");
}

/* value := the eight subtrees of block i. */
static void join_eight(const wf_cu_rr *x, int op, wf_kty type)
{
    wf_text *t = x->t;
    const char *name_ = wf_cu_type(type);
    P("        %s q[8];\n#pragma unroll\n        for (int k = 0; k < 8; k++)\n"
      "            q[k] = *(const %s *)(part + (i * 8 + k) * rows);\n",
      name_, name_);
    join_array(x, op, type);
    P("        const %s value = q[0];\n", name_);
}

/* t<slot> := the parts of the row, by the rule again. */
static void join_parts(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    wf_text *t = x->t;
    const char *name_ = wf_cu_type(type);
    P("        %s t%d;\n        {\n        const unsigned long long *part = (const unsigned long "
      "long *)a.w[%d] + ",
      name_, slot, x->l.parts);
    if (x->r->many)
        P("%d * all + (long long)a.w[entry]", cell_of(x, slot, true));
    else if (is_outer(x))
        P("%d * blocks * 8 * rows + r", cell_of(x, slot, true));
    else
        P("(%d * rows + r) * blocks", cell_of(x, slot, true));
    P(";\n        %s low = ", name_);
    wf_cu_identity(t, type, op);
    P(", high = low, lo%d = low, hi%d = low;\n"
      "        for (long long super = 0; super < blocks; super += 4096) {\n"
      "        lo%d = hi%d = ",
      slot, slot, slot, slot);
    wf_cu_identity(t, type, op);
    P(";\n        const long long last = super + 4096 < blocks ? super + 4096 : blocks;\n"
      "        for (long long i = super + lane, half = 0; i < last; i += 32, half ^= 1) {\n");
    if (is_outer(x))
        join_eight(x, op, type);
    else
        P("        const %s value = *(const %s *)(part + i);\n", name_, name_);
    fold_lane(x, slot, op, type, "value");
    P("        }\n");
    halve(x, slot, op, type);
    char lo[16];
    name(lo, sizeof lo, "lo", slot);
    P("        if (super / 4096 %% 64 == lane) {\n        ");
    wf_cu_fold(t, type, op, "low", "low", lo);
    P("        }\n        if (super / 4096 %% 64 == lane + 32) {\n        ");
    wf_cu_fold(t, type, op, "high", "high", lo);
    P("        }\n        }\n        if (blocks > 4096) {\n        lo%d = low;\n        hi%d = "
      "high;\n",
      slot, slot);
    halve(x, slot, op, type);
    P("        }\n");
    total_of(x, slot, op, lo);
    P("        }\n");
}

static void store_cell(const wf_cu_rr *x, int slot)
{
    wf_text *t = x->t;
    P("        if (lane == 0)\n            *(%s *)((unsigned long long *)a.w[%d] + %d * rows + r) "
      "= t%d;\n",
      wf_cu_type((wf_kty)x->rows->slot_type[slot]), x->l.slots, cell_of(x, slot, false), slot);
}

static void store_total_cell(const wf_cu_rr *x, int slot, int op, wf_kty type)
{
    (void)op;
    (void)type;
    store_cell(x, slot);
}

/* Slots that no total of the step before, which is in scope, has declared. */
static void open_single_slots(const wf_cu_rr *x, const wf_cu_step *s, const wf_stage *before)
{
    wf_text *t = x->t;
    bool done[WF_ROWS_SLOTS] = {false};
    for (uint32_t o = 0; before && o < before->body.nout; o++)
        if (before->out[o].kind == WF_PORT_TOTAL)
            done[before->out[o].at] = true;
    for (int i = s->begin; i < s->end; i++) {
        const wf_stage *st = &x->rows->stage[i];
        const uint32_t nin = st->kind == WF_ST_PICK ? 2 : st->body.nparam;
        const uint32_t nout = st->kind == WF_ST_PICK ? 1 : st->body.nout;
        for (uint32_t p = 0; p < nin + nout; p++) {
            const wf_port *port = p < nin ? &st->in[p] : &st->out[p - nin];
            const int at = port->at;
            if (port->kind != WF_PORT_SLOT || done[at] || cell_of(x, at, false) < 0)
                continue;
            const char *type = wf_cu_type((wf_kty)x->rows->slot_type[at]);
            done[at] = true;
            if (p < nin)
                P("        %s t%d = *(const %s *)((unsigned long long *)a.w[%d] + %d * rows + "
                  "r);\n",
                  type, at, type, x->l.slots, cell_of(x, at, false));
            else
                P("        %s t%d = 0;\n", type, at);
        }
    }
}

static void singles_kernel(const wf_cu_rr *of, int step, const wf_cu_step *s)
{
    wf_cu_rr one = *of; /* a warp a row, of sums that lie 8 bytes apart */
    one.v = 1;
    const wf_cu_rr *const x = &one;
    wf_text *t = x->t;
    const wf_stage *before = s->begin > 0 && x->rows->stage[s->begin - 1].kind == WF_ST_ELEM
                                 ? &x->rows->stage[s->begin - 1]
                                 : NULL;
    head(x, step);
    P("    const long long %s = (long long)a.w[%d];\n    const int lane = threadIdx.x %% 32;\n",
      x->r->many ? "all" : "blocks", x->l.width);
    once(x);
    P("    const long long warps = (long long)gridDim.x * (blockDim.x / 32);\n"
      "    for (long long r = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r "
      "+= "
      "warps) {\n");
    if (x->r->many)
        P("        const unsigned int entry = %d + (unsigned int)r * %d;\n"
          "        const long long n = (long long)a.w[entry + 1], blocks = (n + 4095) / 4096;\n",
          x->l.first, x->l.entry);
    wf_cu_row_pointers(x);
    if (before)
        wf_cu_each_total(x, before, join_parts);
    open_single_slots(x, s, before);
    for (int i = s->begin; i < s->end; i++) {
        const wf_stage *st = &x->rows->stage[i];
        if (st->kind == WF_ST_PICK)
            wf_cu_pick_stage(x, st);
        else
            wf_cu_single_stage(x, st, "lane == 0");
        for (uint32_t o = 0; o < (st->kind == WF_ST_PICK ? 1 : st->body.nout); o++)
            if (st->out[o].kind == WF_PORT_SLOT)
                store_cell(x, st->out[o].at);
    }
    if (before)
        wf_cu_each_total(x, before, store_total_cell);
    P("    }\n}\n");
}

static int split(const wf_cu_rr *x, wf_why *why)
{
    wf_cu_step steps[WF_CU_STEPS];
    const int n = wf_cu_steps(x->k, steps);
    if (n < 0)
        return wf_fail(why, WEFT_EUNSUPPORTED, "%s has more than %d steps", x->k->name,
                       WF_CU_STEPS);
    for (int i = 0; i < n; i++)
        (steps[i].elements ? elements_kernel : singles_kernel)(x, i, &steps[i]);
    return 0;
}

int wf_cu_render_rows(const wf_cu_rows *r, wf_text *t, wf_why *why)
{
    wf_cu_rr x = {.t = t,
                  .r = r,
                  .k = r->k,
                  .rows = r->k->rows,
                  .v = r->vector > 1 ? r->vector : 1,
                  .index = r->wide ? "long long" : "int",
                  .base = r->many ? "entry + " : ""};
    int status = 0;
    wf_cu_rows_layout(r, &x.l);
    wf_cu_helpers(t);
    for (int i = 0; i < x.rows->nstage; i++)
        wf_cu_tables(t, &x.rows->stage[i].body);
    wf_cu_words(t, x.l.words);
    wf_cu_vector_types(&x);
    if (is_split(&x))
        status = split(&x, why);
    else if (r->scheme == WF_CU_WARP)
        fused_warp(&x);
    else if (r->scheme == WF_CU_BLOCK_ROWS)
        fused_block(&x);
    else if (r->scheme == WF_CU_COLUMN)
        fused_column(&x);
    else
        fused_outer(&x);
    if (status == 0 && t->failed)
        status = wf_fail(why, WEFT_ENOMEM, "no memory for the text of %s", r->k->name);
    return status;
}
