/*
 * eager/program_map.c -- running programs without ROW values, and the entry to all runs; see program.h.
 *
 * An instruction whose value is an output writes the output's tile instead of a register, unless an input in
 * the same memory is still to be read. Values that are one element (scalars, broadcast inputs, and what is
 * computed from those alone) are computed as one element.
 */
#include <string.h>

#include "eager/exec.h"
#include "eager/map.h"
#include "eager/program_run.h"

enum { MOST_TILE = 1024, GRAIN = 32768, HEAVY_GRAIN = 4096 };

typedef struct tile_state {
    const void *at[WF_PROGRAM_VALUES];
    bool one[WF_PROGRAM_VALUES];
} tile_state;

int wf_link_of(int op, int side, bool itself)
{
    if (op == WF_OP_SQUARE || (op == WF_OP_MUL && itself))
        return WF_LINK_SQUARE;
    if (op == WF_OP_NEG)
        return WF_LINK_NEG;
    if (itself)
        return -1;
    return op == WF_OP_ADD       ? (int)WF_LINK_ADD
           : op == WF_OP_SUB     ? (side == 0 ? (int)WF_LINK_SUB : (int)WF_LINK_RSUB)
           : op == WF_OP_MUL     ? (int)WF_LINK_MUL
           : op == WF_OP_DIV     ? (side == 0 ? (int)WF_LINK_DIV : (int)WF_LINK_RDIV)
           : op == WF_OP_MAXIMUM ? (int)WF_LINK_MAX
           : op == WF_OP_MINIMUM ? (int)WF_LINK_MIN
                                 : -1;
}

wf_inst_fn wf_inst_function(const wf_program *p, const wf_inst *inst, const wf_kernels *k)
{
    wf_inst_fn fn = {NULL};
    if (inst->kind == WF_INST_CAST)
        fn.cast = k->cast[p->type[inst->value]][inst->compute];
    else if (inst->kind == WF_INST_VJP)
        fn.map = k->vjp[inst->compute == WEFT_F64][inst->op][inst->which];
    else if (inst->kind == WF_INST_MAP)
        fn.map = k->map[wf_ct(inst->compute)][inst->op];
    return fn;
}

/* What a tile asks for while it is worked on: the tiles of n elements behind inputs `of`, that lie at src. */
typedef struct ahead {
    const void *const *src;
    size_t n;
    uint32_t of;
} ahead;

/* Part [from, to) of WF_ASK_WHOLE of it. */
static void ask(const wf_map_run *r, const ahead *a, int from, int to)
{
    for (uint32_t rest = a->of; rest; rest &= rest - 1) {
        const int k = __builtin_ctz(rest);
        const size_t bytes = a->n * wf_dtype_size(r->p->type[r->p->input[k]]);
        wf_look_ahead_part(a->src[k], (int64_t)bytes, from, to, WF_ASK_WHOLE);
    }
    __asm__ volatile(""); /* gcc leaves out calls of functions that only ask for memory */
}

static void step(const wf_map_run *r, int i, tile_state *s, void *out, size_t n, const ahead *a)
{
    const wf_inst *inst = &r->p->inst[i];
    const void *src[5];
    unsigned bcast = 0;
    bool all = true;
    for (int k = 0; k < inst->nsrc; k++) {
        const int v = inst->src[k];
        if (v < 0) { /* not read: any address will do, and the first source is always there */
            src[k] = src[0];
            bcast |= (bcast & 1) << k;
            continue;
        }
        src[k] = s->at[v];
        all &= s->one[v];
        bcast |= s->one[v] ? 1u << k : 0;
    }
    if (all) {
        n = 1;
        bcast = 0;
    }
    s->at[inst->value] = out;
    s->one[inst->value] = all;
    if (a->of != 0 && n > WF_PIECE && wf_inst_weight(inst) > 1) {
        const int count = (int)((n + WF_PIECE - 1) / WF_PIECE);
        const int from = r->ask[i], part = r->ask[i + 1] - from;
        for (int q = 0; q < count; q++) {
            ask(r, a, from + part * q / count, from + part * (q + 1) / count);
            wf_inst_piece(r->p, inst, r->fn[i].map, out, src, n, bcast, q);
        }
        return;
    }
    ask(r, a, r->ask[i], r->ask[i + 1]);
    if (inst->kind == WF_INST_CAST)
        r->fn[i].cast(out, src[0], n);
    else
        r->fn[i].map(out, src, n, bcast);
}

/* -- chains ------------------------------------------------------------------------------------------------ */
typedef struct chain {
    wf_link link[WF_LINKS];
    int count;
    const void *store[WF_LINKS]; /* where the chain writes */
    int stores;
} chain;

static void add_link(chain *c, int op, const tile_state *s, int from)
{
    c->link[c->count].op = (uint8_t)op;
    c->link[c->count].src = (wf_grid_src){0};
    if (from >= 0)
        c->link[c->count].src = (wf_grid_src){.data = s->at[from], .along = !s->one[from]};
    c->count++;
}

/* Instructions i .. i + chain in one pass; false (and nothing done) if they have to run one by one: all
 * sources are single elements, or one that is lies where the chain writes. */
static bool run_chain(const wf_map_run *r, int i, tile_state *s, void *const *place, size_t n,
                      const ahead *a)
{
    const wf_program *p = r->p;
    const wf_inst *inst = &p->inst[i];
    const int length = p->chain[i];
    const int start = inst->nsrc == 2 && s->one[inst->src[0]] ? 1 : 0;
    chain c = {.count = 0};
    if (s->one[inst->src[start]])
        return false;
    add_link(&c, wf_link_of(inst->op, start, false), s,
             inst->nsrc == 2 ? inst->src[1 - start] : -1);
    for (int e = i; e < i + length; e++) {
        const int v = p->inst[e].value;
        int other = -1;
        const int op = wf_program_link_behind(p, e, &other);
        s->at[v] = place[e - i];
        s->one[v] = false;
        if (p->last[v] > e + 1) {
            add_link(&c, WF_LINK_STORE, s, v);
            c.store[c.stores++] = place[e - i];
        }
        add_link(&c, op, s, other);
    }
    c.store[c.stores++] = place[length];
    for (int l = 0; l < c.count; l++)
        for (int w = 0; w < c.stores; w++)
            if (!c.link[l].src.along && c.link[l].src.data == c.store[w])
                return false;
    const wf_grid_src first = {.data = s->at[inst->src[start]], .along = true};
    ask(r, a, r->ask[i], r->ask[i + 1 + length]);
    r->grid->chain[inst->compute == WEFT_F64](place[length], &first, c.link, c.count, 1,
                                              (int64_t)n);
    s->at[p->inst[i + length].value] = place[length];
    s->one[p->inst[i + length].value] = false;
    return true;
}

static void run_tile(const wf_map_run *r, void *const *dst, const void *const *src, size_t n,
                     unsigned bcast, uint32_t of)
{
    const wf_program *p = r->p;
    const ahead a = {.src = src, .n = n, .of = of};
    _Alignas(64) char registers[WF_MAP_REGISTERS];
    tile_state s;
    for (int k = 0; k < p->ninput; k++) {
        s.at[p->input[k]] = src[k];
        s.one[p->input[k]] = bcast >> k & 1;
    }
    for (int k = 0; k < p->nscalar; k++) {
        s.at[p->scalar[k]] = r->scalars[k];
        s.one[p->scalar[k]] = n > 1;
    }
    for (int i = 0; i < p->ninst;) {
        void *place[WF_LINKS];
        const int length = p->chain[i];
        for (int e = 0; e <= length; e++) {
            const int o = r->direct[i + e];
            place[e] = o >= 0 ? dst[o] : registers + p->inst[i + e].reg * r->pitch;
        }
        if (length == 0 || !run_chain(r, i, &s, place, n, &a))
            for (int e = 0; e <= length; e++)
                step(r, i + e, &s, place[e], n, &a);
        i += 1 + length;
    }
    for (int k = 0; k < p->noutput; k++) {
        const int v = p->output[k], type = p->type[v];
        if (s.one[v] && n > 1)
            r->k->pack[wf_width(type)](dst[k], (int64_t)n, s.at[v], 0, 0, 1, n);
        else if (s.at[v] != dst[k])
            memcpy(dst[k], s.at[v], n * wf_dtype_size(type));
    }
}

void wf_map_run_tile(const void *arg, void *const *dst, const void *const *src, size_t n,
                     unsigned bcast)
{
    run_tile(arg, dst, src, n, bcast, 0);
}

void wf_map_run_tile_ahead(const void *arg, void *const *dst, const void *const *src, size_t n,
                           unsigned bcast)
{
    const wf_map_run *r = arg;
    run_tile(r, dst, src, n, bcast, r->ahead & ~bcast);
}

int64_t wf_program_moves(const wf_program *p, const wf_program_args *a)
{
    return wf_view_numel(&a->dst[0]) * p->width * (p->ninput + p->noutput);
}

/* May the instruction write output k's memory when it runs? Not while an input there is still to be read. */
static bool may_write(const wf_program *p, int i, const wf_view *dst, const wf_view *src)
{
    for (int j = 0; j < p->ninput; j++)
        if (src[j].data == dst->data && p->last[p->input[j]] > i)
            return false;
    return true;
}

void wf_map_run_init(wf_map_run *r, const wf_program *p)
{
    r->p = p;
    r->k = wf_kernels_now();
    r->grid = wf_grid_kernels_now();
    int whole = 0, before = 0;
    for (int i = 0; i < p->ninst; i++)
        whole += wf_inst_weight(&p->inst[i]);
    r->ask[0] = 0;
    for (int i = 0; i < p->ninst; i++) {
        r->fn[i] = wf_inst_function(p, &p->inst[i], r->k);
        before += wf_inst_weight(&p->inst[i]);
        r->ask[i + 1] = before * WF_ASK_WHOLE / whole;
    }
    r->tile = MOST_TILE;
    while (p->nreg * r->tile * p->width > WF_MAP_REGISTERS)
        r->tile /= 2;
    r->pitch = r->tile * p->width;
    r->grain = GRAIN / (p->ninst > 8 ? 8 : p->ninst ? p->ninst : 1);
    r->grain = p->heavy && r->grain > HEAVY_GRAIN ? HEAVY_GRAIN : r->grain;
}

void wf_map_run_aim(wf_map_run *r, const wf_program_args *a)
{
    const wf_program *p = r->p;
    r->scalars = a->scalars;
    r->ahead = 0;
    for (int k = 0; k < p->ninput; k++)
        if (a->src[k].dtype == p->type[p->input[k]] && wf_view_is_contiguous(&a->src[k]))
            r->ahead |= 1u << k;
    r->ahead &= ~wf_program_draws(p);
    memset(r->direct, -1, (size_t)p->ninst * sizeof r->direct[0]);
    for (int k = 0; k < p->noutput; k++) {
        const int def = p->def[p->output[k]];
        if (def >= 0 && r->direct[def] < 0 && may_write(p, def, &a->dst[k], a->src))
            r->direct[def] = (int16_t)k;
    }
}

static void draw_tile(const void *arg, int k, void *dst, int64_t first, int64_t n)
{
    const wf_map_run *r = arg;
    wf_program_fill(r->p, k, r->scalars, dst, first, n);
}

static void run_on(const wf_program *p, const wf_program_args *a)
{
    uint8_t dst_type[WF_PROGRAM_OUTPUTS], src_type[WF_PROGRAM_INPUTS];
    wf_map_run r;
    for (int k = 0; k < p->ninput; k++)
        src_type[k] = p->type[p->input[k]];
    for (int k = 0; k < p->noutput; k++)
        dst_type[k] = p->type[p->output[k]];
    wf_map_run_init(&r, p);
    wf_map_run_aim(&r, a);
    wf_tiles_run(&(wf_tiles){.ndst = p->noutput,
                             .nsrc = p->ninput,
                             .dst = a->dst,
                             .src = a->src,
                             .dst_type = dst_type,
                             .src_type = src_type,
                             .grain = r.grain,
                             .tile = r.tile,
                             .drawn = wf_program_draws(p),
                             .draw = draw_tile,
                             .fn = wf_map_run_tile,
                             .ahead = wf_map_run_tile_ahead,
                             .beside = a->beside,
                             .past_tiles = true,
                             .arg = &r});
}

void wf_program_run(const wf_program *p, const wf_view *dst, const wf_view *src,
                    const void *const *scalars)
{
    run_on(p, &(wf_program_args){.dst = dst, .src = src, .scalars = scalars});
}

/* -- one row ------------------------------------------------------------------------------------------------ */
bool wf_program_is_row(const wf_program *p)
{
    const wf_inst *inst = &p->inst[0];
    return !p->rows && p->ninst == 1 && p->noutput == 1 && p->output[0] == inst->value &&
           (inst->kind == WF_INST_MAP || inst->kind == WF_INST_VJP) && !wf_program_draws(p);
}

bool wf_program_is_copy(const wf_program *p)
{
    const wf_inst *inst = &p->inst[0];
    return !p->rows && p->ninst == 1 && p->noutput == 1 && p->output[0] == inst->value &&
           p->ninput == 1 && p->input[0] == inst->src[0] && inst->kind == WF_INST_CAST &&
           p->type[inst->value] == p->type[p->input[0]] && !wf_program_draws(p);
}

/* The operand that is value v: an input, or a scalar in every element. */
static wf_view operand(const wf_program *p, const wf_program_args *a, int v)
{
    wf_view x = a->dst[0]; /* of values that are not read: anything */
    for (int k = 0; k < p->ninput; k++)
        if (p->input[k] == v)
            return a->src[k];
    for (int k = 0; k < p->nscalar; k++)
        if (p->scalar[k] == v) {
            x.data = (void *)(uintptr_t)a->scalars[k];
            x.dtype = p->type[v];
            memset(x.strides, 0, sizeof x.strides);
        }
    return x;
}

/* By the eager function: it knows small tensors, and stores past the caches. */
static int run_row(const wf_program *p, const wf_program_args *a)
{
    const wf_inst *inst = &p->inst[0];
    wf_view src[WF_VJP_MAX + 2];
    for (int k = 0; k < inst->nsrc; k++)
        src[k] = operand(p, a, inst->src[k]);
    const wf_op op = (wf_op)inst->op;
    return inst->kind == WF_INST_MAP
               ? wf_exec_map(op, inst->compute, &a->dst[0], inst->nsrc, src)
               : wf_exec_vjp(op, inst->which, inst->compute, &a->dst[0], inst->nsrc, src);
}

int wf_program_run_on(const wf_program *p, const wf_program_args *a)
{
    if (p->rows)
        return wf_program_run_rows(p, a);
    if (wf_program_is_row(p) && run_row(p, a) == 0)
        return 0;
    if (wf_program_is_copy(p)) {
        if (wf_view_numel(&a->dst[0]) > 0)
            wf_copy(&a->dst[0], &a->src[0]);
        return 0;
    }
    run_on(p, a);
    return 0;
}
