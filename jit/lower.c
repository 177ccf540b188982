/*
 * jit/lower.c -- lowering of tile programs to kernel IR; see lower.h.
 *
 * A value of a program is a KIR value of its own type: bool is truth, f16 and bf16 are their patterns, as
 * they only come from inputs and casts. Every use converts to what the row reads, as a tile load would.
 */
#include "jit/lower_impl.h"
#include "jit/passes/pass.h"

#include <stdio.h>
#include <string.h>

static bool is_half(int dtype)
{
    return dtype == WEFT_F16 || dtype == WEFT_BF16;
}

wf_kty wf_lower_type(int dtype)
{
    return dtype == WEFT_BOOL ? WF_KT_BOOL : wf_kir_storage(dtype);
}

wf_kref wf_lower_as(wf_lowering *l, int v, wf_kty to)
{
    const int dtype = l->p->type[v];
    if (is_half(dtype))
        return wf_kir_load(l->k, dtype, to, l->value[v]);
    return wf_kir_cast(l->k, to, l->value[v]);
}

static wf_kref cast(wf_lowering *l, const wf_inst *inst)
{
    const int from = inst->src[0], dtype = l->p->type[inst->value];
    if (l->p->type[from] == dtype)
        return l->value[from];
    if (is_half(dtype)) {
        const int own = wf_dtype_compute(l->p->type[from]);
        return wf_kir_store(l->k, dtype, wf_lower_as(l, from, wf_lower_type(own)));
    }
    return wf_lower_as(l, from, wf_lower_type(dtype));
}

/* Rows that are arithmetic and nothing else. Those that approximate a function stay exact: what they are made of relies on
 * how every step rounds. */
static bool is_arithmetic(wf_op op)
{
    return op == WF_OP_ADD || op == WF_OP_SUB || op == WF_OP_MUL || op == WF_OP_DIV ||
           op == WF_OP_NEG || op == WF_OP_SQUARE || op == WF_OP_RECIPROCAL;
}

/* A map or a vjp. Condition of a choice: the first operand, which a vjp has behind the gradient. */
static wf_kref row(wf_lowering *l, const wf_inst *inst)
{
    const bool vjp = inst->kind == WF_INST_VJP;
    const bool choose = wf_rows[inst->op].kind == WF_KIND_CHOOSE;
    const wf_kty compute = wf_kir_compute_type(inst->compute);
    wf_kref src[5];
    for (int s = 0; s < inst->nsrc; s++)
        src[s] =
            inst->src[s] < 0
                ? WF_KREF_NONE
                : wf_lower_as(l, inst->src[s], choose && s == (vjp ? 1 : 0) ? WF_KT_BOOL : compute);
    const wf_op op = (wf_op)inst->op;
    const uint32_t first = l->k->n;
    const wf_kref y = vjp ? wf_kir_vjp(l->k, op, inst->which, inst->compute, inst->nsrc, src)
                          : wf_kir_row(l->k, op, inst->compute, inst->nsrc, src);
    if (y == WF_KREF_NONE)
        return y;
    if (l->relax && is_arithmetic(op))
        wf_kir_relax(l->k, first);
    return wf_kir_cast(l->k, wf_lower_type(l->p->type[inst->value]), y);
}

wf_kref wf_lower_inst(wf_lowering *l, const wf_inst *inst)
{
    return inst->kind == WF_INST_CAST ? cast(l, inst) : row(l, inst);
}

/* Parameters: inputs, then scalars, as they lie in memory. */
static void params(wf_lowering *l)
{
    const wf_program *p = l->p;
    for (int i = 0; i < p->ninput + p->nscalar; i++) {
        const int v = i < p->ninput ? p->input[i] : p->scalar[i - p->ninput];
        /* the host keeps what draws take narrow */
        const bool unread = i >= p->ninput && p->last[v] < 0 && !l->device;
        const bool drawn = l->device && i < p->ninput && p->draw[i].op != WF_OP_INVALID;
        const wf_kref x = wf_kir_param(l->k, unread  ? WF_KT_U8
                                             : drawn ? WF_KT_I64
                                                     : wf_kir_storage(p->type[v]));
        const bool truth = p->type[v] == WEFT_BOOL && !unread && !drawn;
        l->value[v] = truth ? wf_kir_cast(l->k, WF_KT_BOOL, x) : x;
    }
    for (int i = 0; i < p->ninput && l->device; i++)
        if (p->draw[i].op != WF_OP_INVALID)
            l->value[p->input[i]] = wf_lower_draw(l, i, l->value[p->input[i]]);
}

static int body(const wf_program *p, bool device, bool relax, wf_kir *k, wf_why *why)
{
    wf_lowering l = {.p = p, .k = k, .device = device, .relax = relax};
    params(&l);
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        const wf_kref y = wf_lower_inst(&l, inst);
        if (y == WF_KREF_NONE && !k->error)
            return wf_fail(why, WEFT_EUNSUPPORTED, "%s has no kernel IR for %s",
                           wf_rows[inst->op].name, wf_dtype_name(inst->compute));
        l.value[inst->value] = y;
    }
    for (int o = 0; o < p->noutput; o++) {
        const int v = p->output[o];
        wf_kir_output(k,
                      p->type[v] == WEFT_BOOL ? wf_kir_cast(k, WF_KT_U8, l.value[v]) : l.value[v]);
    }
    return wf_kir_finish(k, why);
}

/* "m_mul_add_gelu": the kind and the rows in order, as many as fit, none twice. A C identifier. */
void wf_lower_name(const wf_program *p, wf_kernel *k)
{
    enum { ROOM = 40 };
    size_t n = (size_t)snprintf(k->name, sizeof k->name, p->rows ? "r" : "m");
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        bool again = inst->op == WF_OP_INVALID; /* casts and such */
        for (int j = 0; j < i && !again; j++)
            again = p->inst[j].op == inst->op;
        if (again)
            continue;
        const char *row_name = wf_rows[inst->op].name;
        if (n + strlen(row_name) + 1 > ROOM)
            break;
        n += (size_t)snprintf(k->name + n, sizeof k->name - n, "_%s", row_name);
    }
}

/* The body of all elements and that of ordinary ones, which stays empty where there is no difference. */
static int bodies(const wf_program *p, bool device, bool relax, wf_kernel *k, wf_why *why)
{
    k->fast.fast = true;
    int status = body(p, device, relax, &k->body, why);
    if (status == 0)
        status = body(p, device, relax, &k->fast, why);
    if (status == 0 && k->fast.rare == WF_KREF_NONE)
        wf_kir_free(&k->fast);
    return status;
}

static int lower_any(const wf_program *p, uint32_t one, bool device, wf_kernel *k, wf_why *why)
{
    wf_kernel_init(k, WF_SK_MAP, p->ninput);
    k->drawn = device ? wf_program_draws(p) : 0;
    if (p->rows)
        return wf_lower_rows(p, device, k, why);
    k->nscalar = p->nscalar;
    k->bcast = one;
    wf_lower_name(p, k);
    const bool relax = p->fast && !device;
    int status = bodies(p, device, relax, k, why);
    if (status == 0 && relax && k->fast.n > 0) {
        wf_kir_free(&k->body);
        wf_kir_free(&k->fast);
        status = bodies(p, device, false, k, why);
    }
    if (status != 0)
        wf_kernel_free(k);
    return status;
}

static int lower(const wf_program *p, uint32_t one, bool device, wf_kernel *k, wf_why *why)
{
    int status = lower_any(p, one, device, k, why);
    if (status == 0 && wf_pass_verifies() && (status = wf_kernel_verify(k, why)) != 0)
        wf_kernel_free(k);
    return status;
}

int wf_lower(const wf_program *p, uint32_t one, wf_kernel *k, wf_why *why)
{
    return lower(p, one, false, k, why);
}

int wf_lower_device(const wf_program *p, wf_kernel *k, wf_why *why)
{
    return lower(p, 0, true, k, why);
}

/* -- identity ----------------------------------------------------------------------------------------- */
void wf_lower_key(const wf_program *p, uint32_t one, wf_text *out)
{
    const int32_t counts[] = {p->ninput, p->nscalar, p->ninst, p->noutput, p->nvalue, (int32_t)one};
    wf_text_put(out, counts, sizeof counts);
    for (int i = 0; i < p->ninst; i++) {
        wf_inst inst;
        memset(&inst, 0, sizeof inst); /* padding takes part */
        inst.kind = p->inst[i].kind;
        inst.compute = p->inst[i].compute;
        inst.which = p->inst[i].which;
        inst.nsrc = p->inst[i].nsrc;
        inst.op = p->inst[i].op;
        inst.value = p->inst[i].value;
        inst.level = p->inst[i].level;
        inst.phase = p->inst[i].phase;
        for (int s = 0; s < inst.nsrc; s++)
            inst.src[s] = p->inst[i].src[s];
        wf_text_put(out, &inst, sizeof inst);
    }
    wf_text_put(out, p->type, (size_t)p->nvalue);
    wf_text_put(out, p->level, (size_t)p->nvalue);
    wf_text_put(out, p->output_level, (size_t)p->noutput);
    wf_text_put(out, p->input, (size_t)p->ninput * sizeof *p->input);
    for (int i = 0; i < p->ninput;
         i++) { /* what is drawn is no part of the kernel, but of its runs */
        const wf_program_drawn *d = &p->draw[i];
        wf_text_put(out, &d->op, sizeof d->op);
        if (d->op != WF_OP_INVALID)
            wf_text_put(out, d->scalar, sizeof d->scalar);
    }
    wf_text_put(out, p->scalar, (size_t)p->nscalar * sizeof *p->scalar);
    wf_text_put(out, p->output, (size_t)p->noutput * sizeof *p->output);
    if (p->fast)
        wf_text_putf(out, "fast");
}

/* By what they hold: padding is whatever was there. */
static void put_ports(const wf_port *port, uint32_t n, wf_text *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const int16_t what[] = {port[i].kind, port[i].op, port[i].at, port[i].small};
        wf_text_put(out, what, sizeof what);
    }
}

static void put_kir(const wf_kir *k, wf_text *out)
{
    const uint32_t counts[] = {k->n, k->nparam, k->nout, k->ntable, k->rare};
    wf_text_put(out, counts, sizeof counts);
    wf_text_put(out, k->ins, k->n * sizeof *k->ins); /* canonical: padding is zero */
    wf_text_put(out, k->param, k->nparam * sizeof *k->param);
    wf_text_put(out, k->out, k->nout * sizeof *k->out);
    for (uint32_t t = 0; t < k->ntable; t++) {
        const wf_kir_table *table = k->table[t];
        wf_text_put(out, table->name, strlen(table->name) + 1);
        wf_text_put(out, table->data, table->n * (wf_kty_bits(table->type) / 8u));
    }
}

void wf_lower_identity(const wf_kernel *k, wf_text *out)
{
    const int32_t head[] = {(int32_t)k->skeleton, k->nsrc, k->nscalar, (int32_t)k->bcast};
    wf_text_put(out, head, sizeof head);
    wf_text_put(out, k->name, strlen(k->name) + 1);
    for (int i = 0; k->rows && i < k->rows->nstage; i++) {
        const wf_stage *st = &k->rows->stage[i];
        const int32_t kind = (int32_t)st->kind;
        wf_text_put(out, &kind, sizeof kind);
        put_ports(st->in, st->kind == WF_ST_PICK ? 2 : st->body.nparam, out);
        put_ports(st->out, st->kind == WF_ST_PICK ? 1 : st->body.nout, out);
        put_kir(&st->body, out);
    }
    if (k->rows) {
        const uint32_t bits[] = {k->rows->row_src, k->rows->row_dst};
        wf_text_put(out, bits, sizeof bits);
        wf_text_put(out, k->rows->src_type, (size_t)k->nsrc);
        wf_text_put(out, k->rows->dst_type, (size_t)k->rows->ndst);
    }
    put_kir(&k->body, out);
    put_kir(&k->fast, out);
    put_kir(&k->post, out);
}
