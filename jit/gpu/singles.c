/*
 * jit/gpu/singles.c -- a fused program as its instructions, one kernel each, while its own kernel is being made.
 *
 * Every value gets memory of its own: elements, one a row, or one. An output is written where it goes, but for one in the place
 * of an input: that is copied there at the end, so the input is read before it is overwritten. The bits are those of the fused kernel: an instruction computes
 * in the same type, and values of half types come from casts alone.
 */
#include "eager/alloc.h"
#include "eager/dense.h"
#include "jit/gpu/impl.h"

typedef struct run {
    int ordinal;
    const wf_program *p;
    const wf_program_args *a;
    wf_why *why;
    wf_view view[WF_PROGRAM_VALUES];
    wf_cuda_block *block[WF_PROGRAM_VALUES];
    int16_t owner
        [WF_PROGRAM_VALUES]; /* of the memory: the value itself, or what it is an expansion of */
    int16_t last[WF_PROGRAM_VALUES]; /* instruction that reads it last; INT16_MAX: an output */
    uint32_t placed;                 /* bit o: result o is where it goes */
} run;

bool wf_gpu_can_single(const wf_program *p)
{
    int rows = __builtin_popcount(wf_program_draws(p));
    for (int i = 0; i < p->ninst; i++)
        rows += p->inst[i].kind != WF_INST_CAST && p->inst[i].kind != WF_INST_EXPAND;
    return rows > 1;
}

/* The extents of a value's memory: those of the space, 1 where it does not vary. */
static wf_view shape_of(const run *r, int v)
{
    wf_view w = r->a->dst[0];
    int64_t step = 1;
    w.dtype = r->p->type[v];
    w.data = NULL;
    for (int i = w.rank - 1; i >= 0; i--) {
        const bool reduced = r->p->rows && (r->a->axes >> i & 1);
        const bool varies =
            r->p->level[v] == WF_LEVEL_ELEM || (r->p->level[v] == WF_LEVEL_ROW && !reduced);
        w.strides[i] = varies && w.dims[i] != 1 ? step : 0;
        step *= varies ? w.dims[i] : 1;
    }
    return w;
}

/* The space of an instruction's level: axes that its values do not vary along have one index. */
static void shrink(const run *r, wf_view *v, int level)
{
    for (int i = 0; i < v->rank; i++) {
        const bool reduced = r->p->rows && (r->a->axes >> i & 1);
        if (level == WF_LEVEL_ONE || (level == WF_LEVEL_ROW && reduced))
            v->dims[i] = 1;
    }
}

static int room(run *r, int v)
{
    wf_view w = shape_of(r, v), dense = w;
    shrink(r, &dense, r->p->level[v]);
    const int64_t n = wf_view_numel(&dense);
    r->block[v] = wf_cuda_alloc(r->ordinal, (size_t)(n ? n : 1) * wf_dtype_size(w.dtype), r->why);
    if (!r->block[v])
        return r->why->code;
    w.data = r->block[v]->address;
    r->view[v] = w;
    return 0;
}

static int output_level(const run *r, int o)
{
    return r->p->rows ? r->p->output_level[o] : WF_LEVEL_ELEM;
}

/* Can v be written where result o goes? It is the same, and no input lies there: what fails later must not have spoilt one. */
static bool goes_to(const run *r, int v, int o)
{
    const wf_view *to = &r->a->dst[o];
    bool goes =
        r->p->output[o] == v && to->dtype == r->p->type[v] && r->p->level[v] == output_level(r, o);
    for (int i = 0; i < r->p->ninput && goes; i++)
        goes = r->a->src[i].data != to->data;
    return goes;
}

/* Where an instruction writes v: to a result, or memory of its own. */
static int place(run *r, int v)
{
    const wf_view own = shape_of(r, v);
    for (int o = 0; o < r->p->noutput; o++) {
        if (!goes_to(r, v, o))
            continue;
        r->placed |= UINT32_C(1) << o;
        r->view[v] = r->a->dst[o];
        for (int i = 0; i < own.rank; i++)
            r->view[v].strides[i] = own.strides[i] ? r->view[v].strides[i] : 0;
        return 0;
    }
    return room(r, v);
}

/* A scalar of the run as memory of one element. */
static int scalar_view(run *r, int s)
{
    const int v = r->p->scalar[s];
    int status = room(r, v);
    if (status != 0)
        return status;
    wf_view one = r->view[v];
    shrink(r, &one, WF_LEVEL_ONE);
    return wf_gpu_fill(r->ordinal, &one, r->a->scalars[s], r->why);
}

/* Input i, which is drawn, as memory. */
static int drawn_view(run *r, int i)
{
    const int v = r->p->input[i];
    wf_draw row;
    int status = room(r, v);
    wf_program_drawn_row(r->p, i, r->a->scalars, &row);
    return status ? status : wf_gpu_draw(r->ordinal, &row, &r->view[v], r->why);
}

/* Appends the instruction to q with its sources as inputs; the value it defines there. */
static int copy_inst(const run *r, const wf_inst *inst, wf_program *q, wf_view *src, int *nsrc)
{
    int at[5] = {-1, -1, -1, -1, -1};
    for (int k = 0; k < inst->nsrc; k++) {
        const int v = inst->src[k];
        if (v < 0)
            continue;
        for (int j = 0; j < k; j++)
            at[k] = inst->src[j] == v ? at[j] : at[k];
        if (at[k] >= 0)
            continue;
        const bool row = inst->kind == WF_INST_PICK && k == 1;
        at[k] = row ? wf_program_input_row(q, r->p->type[v]) : wf_program_input(q, r->p->type[v]);
        src[(*nsrc)++] = r->view[v];
    }
    switch ((wf_inst_kind)inst->kind) {
    case WF_INST_MAP:
        return wf_program_map(q, (wf_op)inst->op, inst->compute, inst->nsrc, at);
    case WF_INST_VJP:
        return wf_program_vjp(q, (wf_op)inst->op, inst->which, inst->compute, inst->nsrc, at);
    case WF_INST_CAST:
        return wf_program_cast(q, at[0], r->p->type[inst->value]);
    case WF_INST_REDUCE:
        return wf_program_reduce(q, (wf_op)inst->op, at[0]);
    case WF_INST_PICK:
        return wf_program_pick(q, at[0], at[1]);
    case WF_INST_IOTA:
        return wf_program_iota(q, r->p->type[inst->value]);
    case WF_INST_CHECK:
        if (inst->nsrc > 1)
            wf_program_check_index(q, at[0], at[1]);
        else
            wf_program_check(q, at[0]);
        return at[0];
    case WF_INST_EXPAND:
        break;
    }
    return -1;
}

/* A check puts out what it looks at, to memory of its own: a program has an output. */
static int run_check(run *r, const wf_inst *inst, const wf_program_checked *whose)
{
    wf_program q;
    wf_view src[5], dst = shape_of(r, inst->src[0]);
    int nsrc = 0;
    wf_program_init(&q);
    wf_program_output(&q, copy_inst(r, inst, &q, src, &nsrc));
    if (wf_program_finish(&q) != 0)
        return wf_fail(r->why, WEFT_EUNSUPPORTED, "an instruction has no program of its own");
    shrink(r, &dst, inst->level);
    wf_view_make_dense(&dst);
    for (int i = 0; i < nsrc; i++)
        shrink(r, &src[i], inst->level);
    const int64_t n = wf_view_numel(&dst);
    wf_cuda_block *b = wf_cuda_alloc(r->ordinal, (size_t)(n ? n : 1), r->why);
    if (!b)
        return r->why->code;
    dst.data = b->address;
    const wf_program_args a = {.dst = &dst, .src = src, .axes = r->a->axes, .checked = whose};
    const int status = wf_gpu_program_now(r->ordinal, &q, &a, r->why);
    wf_cuda_free(b);
    return status;
}

static int run_inst(run *r, const wf_inst *inst)
{
    wf_program q;
    wf_view src[5], dst;
    int nsrc = 0;
    const bool spans =
        inst->kind == WF_INST_REDUCE || inst->kind == WF_INST_PICK || inst->kind == WF_INST_IOTA;
    int status = place(r, inst->value);
    if (status != 0)
        return status;
    wf_program_init(&q);
    const int y = copy_inst(r, inst, &q, src, &nsrc);
    wf_program_output(&q, y);
    if (wf_program_finish(&q) != 0)
        return wf_fail(r->why, WEFT_EUNSUPPORTED, "an instruction has no program of its own");
    dst = r->view[inst->value];
    if (!spans) {
        shrink(r, &dst, r->p->level[inst->value]);
        for (int i = 0; i < nsrc; i++)
            shrink(r, &src[i], r->p->level[inst->value]);
        for (int i = dst.rank - 1; i >= 0; i--)
            dst.strides[i] = dst.dims[i] == 1 ? 1 : dst.strides[i];
    }
    const wf_program_args a = {.dst = &dst, .src = src, .axes = r->a->axes};
    return wf_gpu_program_now(r->ordinal, &q, &a, r->why);
}

/* Memory that nothing reads after instruction i. */
static void drop_read(run *r, int i)
{
    for (int v = 0; v < r->p->nvalue; v++)
        if (r->block[v] && r->last[v] <= i) {
            wf_cuda_free(r->block[v]);
            r->block[v] = NULL;
        }
}

static void find_last(run *r)
{
    const wf_program *p = r->p;
    for (int v = 0; v < p->nvalue; v++) {
        r->owner[v] = (int16_t)v;
        r->last[v] = -1;
    }
    for (int i = 0; i < p->ninst; i++) {
        const wf_inst *inst = &p->inst[i];
        if (inst->kind == WF_INST_EXPAND)
            r->owner[inst->value] = r->owner[inst->src[0]];
        if (inst->value >= 0 && r->last[r->owner[inst->value]] < i)
            r->last[r->owner[inst->value]] = (int16_t)i;
        for (int k = 0; k < inst->nsrc; k++)
            if (inst->src[k] >= 0 && r->last[r->owner[inst->src[k]]] < i)
                r->last[r->owner[inst->src[k]]] = (int16_t)i;
    }
    for (int o = 0; o < p->noutput; o++)
        r->last[r->owner[p->output[o]]] = INT16_MAX;
}

static int put_out(run *r)
{
    int status = 0;
    for (int o = 0; o < r->p->noutput && status == 0; o++) {
        wf_view to = r->a->dst[o], from = r->view[r->p->output[o]];
        const int level = output_level(r, o);
        if (r->placed >> o & 1)
            continue;
        shrink(r, &to, level);
        shrink(r, &from, level);
        status = wf_gpu_copy(r->ordinal, &to, &from, r->why);
    }
    return status;
}

static int run_all(run *r)
{
    const wf_program *p = r->p;
    int status = 0;
    find_last(r);
    for (int i = 0; i < p->ninput; i++)
        r->view[p->input[i]] = r->a->src[i];
    for (int s = 0; s < p->nscalar && status == 0; s++)
        status = scalar_view(r, s);
    for (int i = 0; i < p->ninput && status == 0; i++)
        if (p->draw[i].op != WF_OP_INVALID)
            status = drawn_view(r, i);
    for (int i = 0, check = 0; i < p->ninst && status == 0; i++) {
        const wf_inst *inst = &p->inst[i];
        if (inst->kind == WF_INST_EXPAND)
            r->view[inst->value] = r->view[inst->src[0]];
        else if (inst->kind == WF_INST_CHECK)
            status = run_check(r, inst, r->a->checked ? &r->a->checked[check++] : NULL);
        else
            status = run_inst(r, inst);
        drop_read(r, i);
    }
    if (status == 0)
        status = put_out(r);
    drop_read(r, INT16_MAX);
    return status;
}

int wf_gpu_run_singles(int ordinal, const wf_program *p, const wf_program_args *a, wf_why *why)
{
    wf_why own = {0};
    run *r = wf_alloc(sizeof *r); /* 100 KB: neither for a stack nor for thread-local storage */
    if (!r)
        return wf_fail(why, WEFT_ENOMEM, "no host memory for the instructions of a kernel");
    memset(r->block, 0, sizeof r->block);
    r->placed = 0;
    r->ordinal = ordinal;
    r->p = p;
    r->a = a;
    r->why = why ? why : &own;
    int status = run_all(r);
    wf_free(r, sizeof *r);
    return status;
}
