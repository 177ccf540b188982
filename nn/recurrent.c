/*
 * nn/recurrent.c -- LSTM and GRU: one step, and sequences through layers of them. Hochreiter and Schmidhuber 1997 with
 * forget gates (Gers et al. 2000); Cho et al. 2014, the reset gate after the product, as cuDNN and PyTorch have it.
 *
 * One product over the whole sequence makes what the inputs give to all gates of all steps; a step is one product of
 * the hidden state for all gates. A traced sequence is as many steps in the graph.
 *
 * Invariants: those of nn/layers.c; the handles of a step are gone after it, but those of its state.
 */
#include <math.h>
#include <stdio.h>

#include "eager/alloc.h"
#include "nn/nn.h"

enum { LSTM = 4, GRU = 3 }; /* gates */

/* -- parameters ------------------------------------------------------------------------------------------------- */

/* The four tensors of a level, `suffix` after their names. */
static weft_status add_gates(weft_module *m, weft_nn_gates *l, const char *suffix, int64_t in,
                             int64_t hidden, int gates, bool no_bias, weft_dtype dtype)
{
    const int64_t rows = gates * hidden, w_ih[] = {rows, in}, w_hh[] = {rows, hidden};
    const weft_shape shape[] = {weft_shape_from(2, w_ih), weft_shape_from(2, w_hh),
                                weft_shape_from(1, w_ih), weft_shape_from(1, w_ih)};
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    weft_tensor *const t[] = {&l->weight_ih, &l->weight_hh, &l->bias_ih, &l->bias_hh};
    weft_status s = WEFT_OK;
    for (int i = 0; i < (no_bias ? 2 : 4); i++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s", names[i], suffix);
        *t[i] = wf_layer_constant(m, name, &shape[i], dtype, 0, false);
        s = s == WEFT_OK ? wf_layer_spread(m, *t[i], WEFT_NONE, hidden) : s;
    }
    return s;
}

static weft_status extents_check(weft_module *m, int64_t in, int64_t hidden)
{
    weft_status s = wf_layer_at_least(m, "in", in, 1);
    s = s != WEFT_OK ? s : wf_layer_at_least(m, "hidden", hidden, 1);
    return s == WEFT_OK && hidden > INT64_MAX / LSTM
               ? wf_layer_refuse(m, WEFT_ESHAPE, "hidden is %lld; %d times that overflows",
                                 (long long)hidden, LSTM)
               : s;
}

static weft_status cell_init(const char *op, const weft_nn_cell_args *a, int gates)
{
    weft_status s = WF_LAYER_OPEN(op, a, weight_ih);
    if (s != WEFT_OK) {
        return s;
    }
    s = extents_check(a->module, a->in, a->hidden);
    if (s == WEFT_OK) {
        s = add_gates(a->module, a->layer, "", a->in, a->hidden, gates, a->no_bias, a->dtype);
    }
    return wf_layer_close(a->module, &a->layer->weight_ih, s);
}

weft_status(weft_nn_lstm_cell_init)(const weft_nn_cell_args *args)
{
    return cell_init("lstm_cell", args, LSTM);
}

weft_status(weft_nn_gru_cell_init)(const weft_nn_cell_args *args)
{
    return cell_init("gru_cell", args, GRU);
}

static weft_status options_check(const weft_nn_recurrent_args *a, int64_t levels)
{
    weft_status s = extents_check(a->module, a->in, a->hidden);
    if (s == WEFT_OK && (levels < 1 || levels > WEFT_NN_LEVELS)) {
        s = wf_layer_refuse(a->module, WEFT_ESHAPE, "layers is %lld; it must be 1 to %d",
                            (long long)levels, WEFT_NN_LEVELS);
    }
    return s != WEFT_OK ? s : wf_layer_probability(a->module, "dropout", a->dropout);
}

static weft_status sequence_init(const char *op, const weft_nn_recurrent_args *a, int gates)
{
    weft_status s = WF_LAYER_OPEN(op, a, level[0].weight_ih);
    if (s != WEFT_OK) {
        return s;
    }
    weft_nn_recurrent *l = a->layer;
    const int64_t levels = a->layers ? a->layers : 1;
    const int ways = a->bidirectional ? 2 : 1;
    *l = (weft_nn_recurrent){.in = a->in,
                             .hidden = a->hidden,
                             .layers = (int)levels,
                             .ways = ways,
                             .gates = gates,
                             .batch_first = a->batch_first,
                             .dropout = a->dropout,
                             .module = a->module};
    s = options_check(a, levels);
    if (s != WEFT_OK) {
        l->layers = 0;
        return wf_layer_close(a->module, &l->level[0].weight_ih, s);
    }
    for (int i = 0; i < l->layers * ways && s == WEFT_OK; i++) {
        char suffix[24];
        const int64_t in = i < ways ? a->in : ways * a->hidden;
        snprintf(suffix, sizeof suffix, "_l%d%s", i / ways, i % ways ? "_reverse" : "");
        s = add_gates(a->module, &l->level[i], suffix, in, a->hidden, gates, a->no_bias, a->dtype);
    }
    return wf_layer_close(a->module, &l->level[0].weight_ih, s);
}

weft_status(weft_nn_lstm_init)(const weft_nn_recurrent_args *args)
{
    return sequence_init("lstm", args, LSTM);
}

weft_status(weft_nn_gru_init)(const weft_nn_recurrent_args *args)
{
    return sequence_init("gru", args, GRU);
}

/* -- one step ----------------------------------------------------------------------------------------------------- */

/* Gate k of x[batch, gates * hidden]. */
static weft_tensor gate(weft_tensor x, int k, int64_t hidden)
{
    return weft_narrow(x, -1, k * hidden, hidden);
}

/* h and *c [batch, hidden], from what the inputs give[batch, 4 hidden]: in order in, forget, cell, out. */
static weft_tensor lstm_step(const weft_nn_gates *l, weft_tensor given, weft_tensor h,
                             weft_tensor *c, int64_t n)
{
    weft_tensor g = weft_add(given, weft_linear(h, l->weight_hh, l->bias_hh));
    weft_tensor in = weft_sigmoid(gate(g, 0, n));
    in = weft_mul(in, weft_tanh(gate(g, 2, n)));
    *c = weft_add(weft_mul(weft_sigmoid(gate(g, 1, n)), *c), in);
    weft_tensor shown = weft_sigmoid(gate(g, 3, n));
    return weft_mul(shown, weft_tanh(*c));
}

/* The same of [batch, 3 hidden]: reset, update, new. */
static weft_tensor gru_step(const weft_nn_gates *l, weft_tensor given, weft_tensor h, int64_t n)
{
    weft_tensor g = weft_linear(h, l->weight_hh, l->bias_hh);
    weft_tensor reset = gate(given, 0, n), update = gate(given, 1, n), fresh = gate(given, 2, n);
    reset = weft_sigmoid(weft_add(reset, gate(g, 0, n)));
    update = weft_sigmoid(weft_add(update, gate(g, 1, n)));
    fresh = weft_tanh(weft_add(fresh, weft_mul(reset, gate(g, 2, n))));
    return weft_lerp(fresh, h, update); /* (1 - z) n + z h */
}

/* One step of a level; h and *c empty: zeros. */
static weft_tensor step(const weft_nn_gates *l, int gates, weft_tensor given, weft_tensor h,
                        weft_tensor *c, int64_t n)
{
    weft_scope scope = weft_scope_begin();
    h = wf_is_none(h) ? weft_zeros_like(gate(given, 0, n)) : h;
    if (gates == GRU) {
        return weft_scope_return(scope, gru_step(l, given, h, n));
    }
    *c = wf_is_none(*c) ? weft_zeros_like(h) : *c;
    h = lstm_step(l, given, h, c, n);
    *c = weft_scope_give(scope, *c);
    return weft_scope_return(scope, h);
}

static int64_t hidden_of(const weft_nn_gates *l)
{
    return weft_ok(l->weight_hh) ? weft_shape_of(l->weight_hh).v[1] : 1;
}

/* Is t, called `what`, [batch, extent], or nothing, which is said elsewhere or stands for zeros? Else an error. A batch or an
 * extent below 0 is any: linear checks x. */
static bool is_row(const char *op, const char *what, weft_tensor t, int64_t batch, int64_t extent)
{
    const weft_shape s = weft_shape_of(t);
    if (!weft_ok(t) ||
        (s.n == 2 && (batch < 0 || s.v[0] == batch) && (extent < 0 || s.v[1] == extent))) {
        return true;
    }
    if (s.n != 2) {
        wf_api_error(op, WEFT_ESHAPE, "%s has rank %d; it must be [batch, %s]", what, (int)s.n,
                     *what == 'x' ? "in" : "hidden");
    } else {
        wf_api_error(op, WEFT_ESHAPE,
                     "%s is [%lld, %lld]; beside this x it must be [%lld, %lld]: batch, hidden",
                     what, (long long)s.v[0], (long long)s.v[1], (long long)batch,
                     (long long)extent);
    }
    return false;
}

/* Does one step of l take these? c: NULL where there is none. */
static bool cell_ok(const char *op, const weft_nn_gates *l, int gates, weft_tensor x, weft_tensor h,
                    const weft_tensor *c)
{
    const int64_t hidden = hidden_of(l);
    if (weft_ok(l->weight_hh) && weft_shape_of(l->weight_hh).v[0] != gates * hidden) {
        wf_api_error(op, WEFT_EINVALID, "the layer was not made by weft_nn_%s_init", op);
        return false;
    }
    if (!is_row(op, "x", x, -1, -1)) {
        return false;
    }
    const int64_t batch = weft_ok(x) ? weft_shape_of(x).v[0] : -1;
    return is_row(op, "h", h, batch, hidden) && (!c || is_row(op, "c", *c, batch, hidden));
}

weft_tensor(weft_nn_lstm_cell_forward)(const weft_nn_gates *l, weft_tensor x, weft_tensor h,
                                       weft_tensor *c)
{
    weft_tensor y;
    if (!c) {
        return wf_api_null("lstm_cell", "c");
    }
    if (!WF_LAYER_READY("lstm_cell", l, weight_ih, &y)) {
        return *c = y;
    }
    if (!cell_ok("lstm_cell", l, LSTM, x, h, c)) {
        return *c = wf_api_last_error();
    }
    weft_scope scope = weft_scope_begin();
    h = step(l, LSTM, weft_linear(x, l->weight_ih, l->bias_ih), h, c, hidden_of(l));
    *c = weft_scope_give(scope, *c);
    return weft_scope_return(scope, h);
}

weft_tensor(weft_nn_gru_cell_forward)(const weft_nn_gates *l, weft_tensor x, weft_tensor h)
{
    weft_tensor y;
    if (!WF_LAYER_READY("gru_cell", l, weight_ih, &y)) {
        return y;
    }
    if (!cell_ok("gru_cell", l, GRU, x, h, NULL)) {
        return wf_api_last_error();
    }
    weft_scope scope = weft_scope_begin();
    h = step(l, GRU, weft_linear(x, l->weight_ih, l->bias_ih), h, NULL, hidden_of(l));
    return weft_scope_return(scope, h);
}

/* -- sequences ---------------------------------------------------------------------------------------------------- */

/* Level `level` over x[time, batch, in]: its states of all steps, into out[time]; h and *c: before, then after. */
static weft_status run_level(const weft_nn_recurrent *l, int level, weft_tensor x, int64_t time,
                             weft_tensor *h, weft_tensor *c, weft_tensor *out)
{
    const weft_nn_gates *g = &l->level[level];
    const bool back = level % l->ways;
    weft_tensor given = weft_linear(x, g->weight_ih, g->bias_ih);
    for (int64_t i = 0; i < time; i++) {
        const int64_t t = back ? time - 1 - i : i;
        *h = out[t] = step(g, l->gates, weft_select(given, 0, t), *h, c, l->hidden);
        if (!weft_ok(*h)) {
            return weft_error_status(*h);
        }
    }
    return WEFT_OK;
}

/* The states of a call: of each level, before and after. */
typedef struct states {
    weft_tensor h[2 * WEFT_NN_LEVELS], c[2 * WEFT_NN_LEVELS];
} states;

/* All levels over x[time, batch, in]; returns [time, batch, ways * hidden]. */
static weft_tensor run_levels(const weft_nn_recurrent *l, weft_tensor x, states *z)
{
    const int64_t time = weft_shape_of(x).v[0];
    weft_tensor *out = wf_malloc((size_t)time * sizeof *out), way[2];
    if (!out) {
        return wf_api_error("recurrent", WEFT_ENOMEM, "no memory for the states of %lld steps",
                            (long long)time);
    }
    weft_status s = WEFT_OK;
    for (int i = 0; i < l->layers && s == WEFT_OK; i++) {
        if (i && l->dropout > 0) {
            x = weft_nn_dropout_forward(&(weft_nn_dropout){l->dropout, l->module}, x);
        }
        for (int k = 0; k < l->ways && s == WEFT_OK; k++) {
            const int level = i * l->ways + k;
            s = run_level(l, level, x, time, &z->h[level], &z->c[level], out);
            way[k] = s == WEFT_OK ? weft_stack(out, (int)time, 0) : z->h[level];
        }
        x = s != WEFT_OK ? wf_api_last_error() : l->ways == 1 ? way[0] : weft_concat(way, 2, -1);
    }
    wf_mfree(out);
    return x;
}

/* The states that a caller has, h [levels, batch, hidden], taken apart; false: an error was recorded. */
static bool take_apart(const char *op, const weft_nn_recurrent *l, const char *what,
                       const weft_tensor *from, int64_t batch, weft_tensor *to)
{
    const int n = l->layers * l->ways;
    for (int i = 0; i < n; i++) {
        to[i] = WEFT_NONE;
    }
    if (!from || wf_is_none(*from)) {
        return true;
    }
    const weft_shape s = weft_shape_of(*from);
    if (weft_ok(*from) && (s.n != 3 || s.v[0] != n || s.v[1] != batch || s.v[2] != l->hidden)) {
        wf_why why;
        wf_why_clear(&why);
        wf_fail(&why, WEFT_ESHAPE,
                "%s must be [%d, %lld, %lld]: layers * directions, batch, hidden", what, n,
                (long long)batch, (long long)l->hidden);
        wf_raise_status(wf_ctx_get(), op, 1, from, &why);
        return false;
    }
    for (int i = 0; i < n; i++) {
        to[i] = weft_select(*from, 0, i);
        if (!weft_ok(to[i])) {
            return false;
        }
    }
    return true;
}

/* Hands the states to the caller, or the error. */
static void put_together(const weft_nn_recurrent *l, weft_scope scope, const weft_tensor *from,
                         weft_tensor error, weft_tensor *to)
{
    if (to) {
        *to = weft_ok(error) ? weft_scope_give(scope, weft_stack(from, l->layers * l->ways, 0))
                             : error;
    }
}

static weft_tensor run_sequence(const char *op, const weft_nn_recurrent *l, int gates,
                                weft_tensor x, weft_tensor *h, weft_tensor *c)
{
    weft_tensor y = x;
    bool ready = WF_LAYER_READY(op, l, level[0].weight_ih, &y);
    if (ready && (l->gates != gates || l->layers < 1)) {
        y = wf_api_error(op, WEFT_EINVALID, "the layer was not made by weft_nn_%s_init", op);
        ready = false;
    }
    if (!ready) {
        *(h ? h : &y) = y;
        *(c ? c : &y) = y;
        return y;
    }
    const weft_shape s = weft_shape_of(x);
    if (weft_ok(x) && (s.n != 3 || s.v[2] != l->in || s.v[l->batch_first ? 1 : 0] < 1)) {
        y = wf_api_error(
            op, WEFT_ESHAPE,
            "x has rank %d, its last extent is %lld; it must be [%s, %lld] with a time "
            "of at least 1",
            (int)s.n, (long long)(s.n ? s.v[s.n - 1] : 1),
            l->batch_first ? "batch, time" : "time, batch", (long long)l->in);
    }
    states z;
    weft_scope scope = weft_scope_begin();
    if (weft_ok(y)) {
        y = l->batch_first ? weft_transpose(x, 0, 1) : x;
        const int64_t batch = s.v[l->batch_first ? 0 : 1];
        const bool given =
            take_apart(op, l, "h", h, batch, z.h) && take_apart(op, l, "c", c, batch, z.c);
        y = !weft_ok(y) ? y : given ? run_levels(l, y, &z) : wf_api_last_error();
        y = l->batch_first ? weft_transpose(y, 0, 1) : y;
    }
    put_together(l, scope, z.h, y, h);
    put_together(l, scope, z.c, y, c);
    return weft_scope_return(scope, y);
}

weft_tensor(weft_nn_lstm_forward)(const weft_nn_recurrent *layer, weft_tensor x, weft_tensor *h,
                                  weft_tensor *c)
{
    return run_sequence("lstm", layer, LSTM, x, h, c);
}

weft_tensor(weft_nn_gru_forward)(const weft_nn_recurrent *layer, weft_tensor x, weft_tensor *h)
{
    return run_sequence("gru", layer, GRU, x, h, NULL);
}
