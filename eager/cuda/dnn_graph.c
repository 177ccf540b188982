/*
 * eager/cuda/dnn_graph.c -- descriptors of cuDNN's graphs; see dnn_graph.h.
 *
 * Descriptors are dropped together, the last one made first: what a descriptor names is older than it.
 */
#include "eager/cuda/dnn_graph.h"

#include "eager/alloc.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { MOST_TEXT = 64 << 20 };

static void check(wf_dnn_graph *g, int status)
{
    if (g->status == DNN_OK) {
        g->status = status;
    }
}

dnn_handle wf_dnn_make(wf_dnn_graph *g, int kind)
{
    dnn_handle d = NULL;
    if (g->status == DNN_OK && g->n == WF_DNN_MOST_DESCRIPTORS) {
        g->status = DNN_NOT_SUPPORTED;
    }
    if (g->status != DNN_OK) {
        return NULL;
    }
    check(g, g->calls->make(kind, &d));
    if (g->status == DNN_OK) {
        g->made[g->n++] = d;
    }
    return g->status == DNN_OK ? d : NULL;
}

void wf_dnn_set(wf_dnn_graph *g, dnn_handle d, int attribute, int kind, int64_t n,
                const void *values)
{
    if (g->status == DNN_OK) {
        check(g, g->calls->set(d, attribute, kind, n, values));
    }
}

void wf_dnn_finalize(wf_dnn_graph *g, dnn_handle d)
{
    if (g->status == DNN_OK) {
        check(g, g->calls->finalize(d));
    }
}

void wf_dnn_graph_drop(wf_dnn_graph *g)
{
    while (g->n > 0) {
        g->calls->drop(g->made[--g->n]);
    }
    g->nops = 0;
}

static void set_descriptor(wf_dnn_graph *g, dnn_handle d, int attribute, dnn_handle value)
{
    if (value) {
        wf_dnn_set(g, d, attribute, DNN_V_DESCRIPTOR, 1, &value);
    }
}

/* -- tensors ------------------------------------------------------------------------------------------ */

static dnn_handle begin_tensor(wf_dnn_graph *g, int64_t id, int type, const wf_dnn_shape *s)
{
    const int64_t alignment = 16;
    dnn_handle t = wf_dnn_make(g, DNN_TENSOR);
    wf_dnn_set(g, t, DNN_A_TENSOR_TYPE, DNN_V_DATA_TYPE, 1, &type);
    wf_dnn_set(g, t, DNN_A_TENSOR_DIMS, DNN_V_I64, 4, s->dims);
    wf_dnn_set(g, t, DNN_A_TENSOR_STRIDES, DNN_V_I64, 4, s->strides);
    wf_dnn_set(g, t, DNN_A_TENSOR_ID, DNN_V_I64, 1, &id);
    wf_dnn_set(g, t, DNN_A_TENSOR_ALIGNMENT, DNN_V_I64, 1, &alignment);
    return t;
}

static dnn_handle end_tensor(wf_dnn_graph *g, dnn_handle t, int flag)
{
    const bool set = true;
    if (flag) {
        wf_dnn_set(g, t, flag, DNN_V_BOOL, 1, &set);
    }
    wf_dnn_finalize(g, t);
    return t;
}

dnn_handle wf_dnn_tensor(wf_dnn_graph *g, int64_t id, int type, const wf_dnn_shape *s)
{
    return end_tensor(g, begin_tensor(g, id, type, s), 0);
}

dnn_handle wf_dnn_scalar(wf_dnn_graph *g, int64_t id)
{
    const wf_dnn_shape one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    return end_tensor(g, begin_tensor(g, id, DNN_F32, &one), DNN_A_TENSOR_BY_VALUE);
}

dnn_handle wf_dnn_virtual(wf_dnn_graph *g, int type, const wf_dnn_shape *s)
{
    return end_tensor(g, begin_tensor(g, WF_DNN_VIRTUAL + g->ids++, type, s), DNN_A_TENSOR_VIRTUAL);
}

/* -- operations --------------------------------------------------------------------------------------- */

static void end_op(wf_dnn_graph *g, dnn_handle op)
{
    wf_dnn_finalize(g, op);
    if (g->status == DNN_OK && g->nops == WF_DNN_MOST_OPS) {
        g->status = DNN_NOT_SUPPORTED;
    }
    if (g->status == DNN_OK) {
        g->ops[g->nops++] = op;
    }
}

void wf_dnn_matmul(wf_dnn_graph *g, dnn_handle a, dnn_handle b, dnn_handle c)
{
    const int type = DNN_F32;
    dnn_handle how = wf_dnn_make(g, DNN_MATMUL);
    wf_dnn_set(g, how, DNN_A_MATMUL_TYPE, DNN_V_DATA_TYPE, 1, &type);
    wf_dnn_finalize(g, how);
    dnn_handle op = wf_dnn_make(g, DNN_OP_MATMUL);
    set_descriptor(g, op, DNN_A_OP_MATMUL_A, a);
    set_descriptor(g, op, DNN_A_OP_MATMUL_B, b);
    set_descriptor(g, op, DNN_A_OP_MATMUL, how);
    set_descriptor(g, op, DNN_A_OP_MATMUL_C, c);
    end_op(g, op);
}

void wf_dnn_map(wf_dnn_graph *g, const wf_dnn_pointwise *p)
{
    dnn_handle how = wf_dnn_make(g, DNN_POINTWISE);
    wf_dnn_set(g, how, DNN_A_POINTWISE_MODE, DNN_V_POINTWISE, 1, &p->mode);
    wf_dnn_set(g, how, DNN_A_POINTWISE_TYPE, DNN_V_DATA_TYPE, 1, &p->type);
    if (p->mode == DNN_PW_INDEX) {
        wf_dnn_set(g, how, DNN_A_POINTWISE_AXIS, DNN_V_I64, 1, &p->axis);
    }
    wf_dnn_finalize(g, how);
    dnn_handle op = wf_dnn_make(g, DNN_OP_POINTWISE);
    set_descriptor(g, op, DNN_A_OP_POINTWISE, how);
    set_descriptor(g, op, DNN_A_OP_POINTWISE_X, p->x);
    set_descriptor(g, op, DNN_A_OP_POINTWISE_Y, p->y);
    set_descriptor(g, op, DNN_A_OP_POINTWISE_B, p->b);
    set_descriptor(g, op, DNN_A_OP_POINTWISE_T, p->if_set);
    end_op(g, op);
}

void wf_dnn_reduce(wf_dnn_graph *g, int mode, dnn_handle x, dnn_handle y)
{
    const int type = DNN_F32;
    dnn_handle how = wf_dnn_make(g, DNN_REDUCTION);
    wf_dnn_set(g, how, DNN_A_REDUCTION_TYPE, DNN_V_DATA_TYPE, 1, &type);
    wf_dnn_set(g, how, DNN_A_REDUCTION_MODE, DNN_V_REDUCTION, 1, &mode);
    wf_dnn_finalize(g, how);
    dnn_handle op = wf_dnn_make(g, DNN_OP_REDUCTION);
    set_descriptor(g, op, DNN_A_OP_REDUCTION, how);
    set_descriptor(g, op, DNN_A_OP_REDUCTION_X, x);
    set_descriptor(g, op, DNN_A_OP_REDUCTION_Y, y);
    end_op(g, op);
}

void wf_dnn_reshape(wf_dnn_graph *g, dnn_handle x, dnn_handle y)
{
    dnn_handle op = wf_dnn_make(g, DNN_OP_RESHAPE);
    set_descriptor(g, op, DNN_A_OP_RESHAPE_X, x);
    set_descriptor(g, op, DNN_A_OP_RESHAPE_Y, y);
    end_op(g, op);
}

void wf_dnn_convolve(wf_dnn_graph *g, const wf_dnn_convolution *c)
{
    const int type = c->wide ? DNN_F64 : DNN_F32, mode = DNN_CROSS_CORRELATION;
    const int64_t axes = 2;
    const double one64 = 1, beta64 = c->add;
    const float one32 = 1, beta32 = c->add;
    dnn_handle how = wf_dnn_make(g, DNN_CONVOLUTION);
    wf_dnn_set(g, how, DNN_A_CONV_TYPE, DNN_V_DATA_TYPE, 1, &type);
    wf_dnn_set(g, how, DNN_A_CONV_MODE, DNN_V_CONV_MODE, 1, &mode);
    wf_dnn_set(g, how, DNN_A_CONV_AXES, DNN_V_I64, 1, &axes);
    wf_dnn_set(g, how, DNN_A_CONV_PADS_BEFORE, DNN_V_I64, 2, c->pad);
    wf_dnn_set(g, how, DNN_A_CONV_PADS_AFTER, DNN_V_I64, 2, c->pad);
    wf_dnn_set(g, how, DNN_A_CONV_STRIDES, DNN_V_I64, 2, c->stride);
    wf_dnn_set(g, how, DNN_A_CONV_DILATIONS, DNN_V_I64, 2, c->dilation);
    wf_dnn_finalize(g, how);
    const int first = c->kind == DNN_OP_CONV_FORWARD ? DNN_A_OP_CONV_FORWARD
                      : c->kind == DNN_OP_CONV_DX    ? DNN_A_OP_CONV_DX
                                                     : DNN_A_OP_CONV_DW;
    const int number = c->wide ? DNN_V_F64 : DNN_V_F32;
    dnn_handle op = wf_dnn_make(g, c->kind);
    wf_dnn_set(g, op, first + DNN_CONV_ALPHA, number, 1, c->wide ? (const void *)&one64 : &one32);
    wf_dnn_set(g, op, first + DNN_CONV_BETA, number, 1, c->wide ? (const void *)&beta64 : &beta32);
    set_descriptor(g, op, first + DNN_CONV_HOW, how);
    set_descriptor(g, op, first + DNN_CONV_W, c->w);
    set_descriptor(g, op, first + DNN_CONV_X, c->x);
    set_descriptor(g, op, first + DNN_CONV_Y, c->y);
    end_op(g, op);
}

/* -- plans -------------------------------------------------------------------------------------------- */

/* Does the engine of a configuration give the same bits every time, and nothing that g must never have? */
static bool may_take(wf_dnn_graph *g, dnn_handle config)
{
    dnn_handle engine = wf_dnn_make(g, DNN_ENGINE);
    int notes[DNN_NOTES];
    int64_t n = 0;
    bool may =
        engine &&
        g->calls->get(config, DNN_A_CONFIG_ENGINE, DNN_V_DESCRIPTOR, 1, &n, &engine) == DNN_OK &&
        g->calls->get(engine, DNN_A_ENGINE_NOTES, DNN_V_NOTE, DNN_NOTES, &n, notes) == DNN_OK;
    for (int64_t i = 0; may && i < n && i < DNN_NOTES; i++) {
        may = notes[i] != DNN_NOTE_NONDETERMINISTIC &&
              (notes[i] > 31 || notes[i] < 0 || !(g->never >> notes[i] & 1));
    }
    return may;
}

/* Gives back what was made after the first `from`, but for the two. */
static void drop_others(wf_dnn_graph *g, int from, dnn_handle config, dnn_handle plan)
{
    const int n = g->n;
    g->n = from;
    for (int i = from; i < n; i++) {
        if (g->made[i] == config || g->made[i] == plan) {
            g->made[g->n++] = g->made[i];
        } else {
            g->calls->drop(g->made[i]);
        }
    }
}

static dnn_handle begin_plan(wf_dnn_graph *g, dnn_handle lib, dnn_handle device)
{
    dnn_handle plan = wf_dnn_make(g, DNN_PLAN);
    if (lib) {
        wf_dnn_set(g, plan, DNN_A_PLAN_HANDLE, DNN_V_HANDLE, 1, &lib);
    }
    set_descriptor(g, plan, DNN_A_PLAN_DEVICE, device);
    return plan;
}

/* NULL: the library has none, or it asks for too much. */
static dnn_handle end_plan(wf_dnn_graph *g, dnn_handle plan, size_t most, size_t *workspace)
{
    int64_t size = 0, n = 0;
    wf_dnn_finalize(g, plan);
    if (g->status == DNN_OK) {
        check(g, g->calls->get(plan, DNN_A_PLAN_WORKSPACE, DNN_V_I64, 1, &n, &size));
    }
    *workspace = (size_t)size;
    return g->status == DNN_OK && size >= 0 && (size_t)size <= most ? plan : NULL;
}

/* The plan of a configuration; NULL as above. */
static dnn_handle plan_of(wf_dnn_graph *g, dnn_handle config, dnn_handle lib, dnn_handle device,
                          size_t most, size_t *workspace)
{
    dnn_handle plan = begin_plan(g, lib, device);
    set_descriptor(g, plan, DNN_A_PLAN_CONFIG, config);
    return end_plan(g, plan, most, workspace);
}

char *wf_dnn_save(const dnn_graph_calls *calls, dnn_handle plan, size_t *n)
{
    int64_t size = 0, got = 0;
    if (calls->get(plan, DNN_A_PLAN_JSON, DNN_V_CHAR, 0, &size, NULL) != DNN_OK || size <= 0 ||
        size > MOST_TEXT) {
        return NULL;
    }
    char *text = wf_malloc((size_t)size);
    bool there = text && calls->get(plan, DNN_A_PLAN_JSON, DNN_V_CHAR, size, &got, text) == DNN_OK;
    if (!there || got <= 0 || got > size) {
        wf_mfree(text);
        return NULL;
    }
    *n = (size_t)got;
    return text;
}

dnn_handle wf_dnn_restore(wf_dnn_graph *g, dnn_handle lib, dnn_handle device, const void *text,
                          size_t n, size_t most, size_t *workspace)
{
    dnn_handle plan = begin_plan(g, lib, device);
    wf_dnn_set(g, plan, DNN_A_PLAN_JSON, DNN_V_CHAR, (int64_t)n, text);
    plan = end_plan(g, plan, most, workspace);
    if (!plan) { /* as if it had not been tried */
        wf_dnn_graph_drop(g);
        g->status = DNN_OK;
    }
    return plan;
}

/* The configurations that one kind of heuristics names, best first. */
static int ask(wf_dnn_graph *g, dnn_handle graph, dnn_handle device, int mode, dnn_handle *configs)
{
    int64_t n = 0;
    dnn_handle ask = wf_dnn_make(g, DNN_HEURISTIC);
    set_descriptor(g, ask, DNN_A_HEURISTIC_GRAPH, graph);
    wf_dnn_set(g, ask, DNN_A_HEURISTIC_MODE, DNN_V_HEURISTIC, 1, &mode);
    set_descriptor(g, ask, DNN_A_HEURISTIC_DEVICE, device);
    wf_dnn_finalize(g, ask);
    for (int i = 0; i < WF_DNN_MOST_ENGINES; i++) {
        configs[i] = wf_dnn_make(g, DNN_CONFIG);
    }
    if (g->status == DNN_OK) {
        check(g, g->calls->get(ask, DNN_A_HEURISTIC_RESULTS, DNN_V_DESCRIPTOR, WF_DNN_MOST_ENGINES,
                               &n, configs));
    }
    if (g->status != DNN_OK) {
        return 0;
    }
    return n < WF_DNN_MOST_ENGINES ? (int)n : WF_DNN_MOST_ENGINES; /* it counts all it has */
}

dnn_handle wf_dnn_choose(wf_dnn_graph *g, dnn_handle lib, dnn_handle device, size_t most,
                         size_t *workspace)
{
    static const int modes[] = {DNN_HEURISTIC_A, DNN_HEURISTIC_FALLBACK};
    dnn_handle graph = wf_dnn_make(g, DNN_GRAPH), found = NULL;
    if (lib) {
        wf_dnn_set(g, graph, DNN_A_GRAPH_HANDLE, DNN_V_HANDLE, 1, &lib);
    }
    wf_dnn_set(g, graph, DNN_A_GRAPH_OPS, DNN_V_DESCRIPTOR, g->nops, g->ops);
    wf_dnn_finalize(g, graph);
    for (int m = 0; m < 2 && !found && g->status == DNN_OK; m++) {
        dnn_handle configs[WF_DNN_MOST_ENGINES], config = NULL;
        const int before = g->n, n = ask(g, graph, device, modes[m], configs), asked = g->n;
        for (int i = 0; i < n && !found; i++) {
            g->status = DNN_OK; /* an engine that refuses is not the graph's failure */
            config = configs[i];
            found = may_take(g, config) ? plan_of(g, config, lib, device, most, workspace) : NULL;
            drop_others(g, asked, NULL, found);
        }
        drop_others(g, before, found ? config : NULL, found);
        /* what one kind of heuristics has nothing for, the other may have */
        g->status = DNN_OK;
    }
    g->status = found ? DNN_OK : DNN_NOT_SUPPORTED;
    return found;
}

int wf_dnn_execute(const dnn_graph_calls *calls, dnn_handle lib, dnn_handle plan, int64_t n,
                   const int64_t *ids, void *const *pointers, void *workspace)
{
    dnn_handle pack = NULL;
    int r = calls->make(DNN_PACK, &pack);
    if (r != DNN_OK) {
        return r;
    }
    r = calls->set(pack, DNN_A_PACK_POINTERS, DNN_V_POINTER, n, pointers);
    if (r == DNN_OK) {
        r = calls->set(pack, DNN_A_PACK_IDS, DNN_V_I64, n, ids);
    }
    if (r == DNN_OK) {
        r = calls->set(pack, DNN_A_PACK_WORKSPACE, DNN_V_POINTER, 1, &workspace);
    }
    if (r == DNN_OK) {
        r = calls->finalize(pack);
    }
    if (r == DNN_OK) {
        r = calls->execute(lib, plan, pack);
    }
    calls->drop(pack);
    return r;
}
