/*
 * nn/update.c -- runs an optimiser's update; see nn/update.h.
 */
#include <string.h>

#include "eager/device.h"
#include "eager/program.h"
#include "nn/update.h"

static int sources(const wf_line *l)
{
    return l->src[2] != NONE ? 3 : l->src[1] != NONE ? 2 : 1;
}

weft_status wf_update_run_ops(const update *u)
{
    weft_tensor value[SCALAR];
    memcpy(value, u->tensor, sizeof u->tensor);
    for (int i = 0; i < u->n; i++) {
        const wf_line *l = &u->line[i];
        weft_tensor src[3];
        int n = sources(l);
        for (int k = 0; k < n; k++) {
            int s = l->src[k];
            src[k] = s >= SCALAR ? weft_f(u->scalar[s - SCALAR]) : value[s];
        }
        int status = l->dst < T0 ? wf_dispatch_inplace(l->op, NULL, n, src, value[l->dst])
                                 : wf_dispatch(l->op, NULL, n, src, 1, &value[l->dst]);
        if (status != WEFT_OK) {
            return (weft_status)status;
        }
    }
    return WEFT_OK;
}

/* A tile program sees the tensors as one axis: all dense, of one type and size. */
static bool is_dense(const update *u)
{
    weft_dtype d = weft_dtype_of(u->tensor[P]);
    weft_device at = weft_device_of(u->tensor[P]);
    int64_t n = weft_numel(u->tensor[P]);
    bool dense =
        (d == WEFT_F32 || d == WEFT_F64) && !weft_shares_memory(u->tensor[P], u->tensor[G]);
    for (int i = 0; i < S0 + u->n_state && dense; i++) {
        dense = weft_is_contiguous(u->tensor[i]) && weft_dtype_of(u->tensor[i]) == d &&
                weft_numel(u->tensor[i]) == n && weft_device_of(u->tensor[i]).index == at.index &&
                weft_device_of(u->tensor[i]).kind == at.kind;
    }
    return dense;
}

/* Declares inputs, lines and outputs. False: a row has no tile kernel. */
static bool build(const update *u, wf_program *p, int dtype)
{
    int value[SCALAR + MAX_SCALARS];
    bool written[T0] = {false};
    wf_program_init(p);
    for (int i = 0; i < S0 + u->n_state; i++) {
        value[i] = wf_program_input(p, dtype);
    }
    for (int i = 0; i < u->n_scalar; i++) {
        value[SCALAR + i] = wf_program_scalar(p, dtype);
    }
    for (int i = 0; i < u->n; i++) {
        const wf_line *l = &u->line[i];
        int src[3], n = sources(l);
        for (int k = 0; k < n; k++) {
            src[k] = value[l->src[k]];
        }
        value[l->dst] = wf_program_map(p, l->op, dtype, n, src);
        if (l->dst < T0) {
            written[l->dst] = true;
        }
    }
    for (int i = 0; i < T0; i++) {
        if (written[i]) {
            wf_program_output(p, value[i]);
        }
    }
    return wf_program_finish(p) == 0;
}

/* One kernel of the device for the whole update. */
static weft_status run_on_device(const update *u, const wf_program *p, int device,
                                 const bool *written, const void *const *scalars)
{
    wf_view in[T0], out[T0];
    wf_why why = {0};
    int n_out = 0;
    for (int i = 0; i < S0 + u->n_state; i++) {
        int rc = wf_device_view("optim_step", u->tensor[i], written[i], &in[i]);
        if (rc) {
            return (weft_status)rc;
        }
        in[i].rank = 1; /* dense */
        in[i].dims[0] = weft_numel(u->tensor[i]);
        in[i].strides[0] = 1;
        if (written[i]) {
            out[n_out++] = in[i];
        }
    }
    wf_program_args a = {.dst = out, .src = in, .scalars = scalars};
    int rc = wf_device_program(device, p, &a, &why);
    return rc ? (weft_status)wf_raise_status(wf_ctx_get(), "optim_step", 1, u->tensor, &why)
              : WEFT_OK;
}

/* The scalars in the program's type. */
static void set_scalars(const update *u, int dtype, float *f32, const void **scalars)
{
    for (int i = 0; i < u->n_scalar; i++) {
        f32[i] = (float)u->scalar[i];
        scalars[i] = dtype == WEFT_F32 ? (const void *)&f32[i] : &u->scalar[i];
    }
}

/* The lines as a trace records them, in one go. False: nothing was done. */
static bool record(const update *u, wf_recorder *rec, weft_status *status)
{
    wf_ctx *c = wf_ctx_get();
    wf_why why;
    why.code = 0;
    why.rule[0] = why.hint[0] = '\0';
    wf_slot *slot[T0];
    bool pinned[T0];
    const int n = S0 + u->n_state;
    int found = 0, rc = 0;
    while (found < n && (slot[found] = wf_pin(c, u->tensor[found], &pinned[found], NULL)) != NULL) {
        found++;
    }
    const wf_lines l = {.line = u->line,
                        .n = u->n,
                        .n_tensor = n,
                        .tensor = slot,
                        .scalars = SCALAR,
                        .n_scalar = u->n_scalar,
                        .scalar = u->scalar};
    bool done = found == n && rec->lines(rec, &l, &rc, &why);
    for (int i = 0; i < u->n && done && !rc; i++) {
        const wf_line *k = &u->line[i];
        if (k->dst < T0) {
            wf_storage_wrote(slot[k->dst]->st, k->op);
        }
    }
    for (int i = 0; i < found; i++) {
        if (pinned[i]) {
            wf_unpin(c, slot[i]);
        }
    }
    *status = rc ? (weft_status)wf_raise_status(c, "optim_step", 1, u->tensor, &why) : WEFT_OK;
    return done;
}

weft_status wf_update_run(const update *u)
{
    wf_program program;
    wf_recorder *rec = wf_ctx_get()->recorder;
    weft_status recorded;
    if (rec && record(u, rec, &recorded)) {
        return recorded;
    }
    int dtype = (int)weft_dtype_of(u->tensor[P]);
    /* A trace fuses the ops itself. */
    if (rec || !is_dense(u) || !build(u, &program, dtype)) {
        return wf_update_run_ops(u);
    }
    bool written[T0] = {false};
    for (int i = 0; i < u->n; i++) {
        if (u->line[i].dst < T0) {
            written[u->line[i].dst] = true;
        }
    }
    float f32[MAX_SCALARS];
    const void *scalars[MAX_SCALARS];
    set_scalars(u, dtype, f32, scalars);
    int device = wf_device_of_handle(wf_ctx_get(), u->tensor[P]);
    if (device != WF_DEVICE_HOST) {
        return run_on_device(u, &program, device, written, scalars);
    }
    wf_view in[T0], out[T0];
    int n_out = 0;
    for (int i = 0; i < S0 + u->n_state; i++) {
        /* Memory that is written is asked for as such: that counts the write and refuses read-only memory. */
        const void *data = written[i] ? weft_data_mut(u->tensor[i]) : weft_data(u->tensor[i]);
        int64_t n = weft_numel(u->tensor[i]);
        if (!data && n > 0) {
            return weft_last_status();
        }
        in[i] = (wf_view){.data = (void *)(uintptr_t)data,
                          .dtype = (uint8_t)dtype,
                          .rank = 1,
                          .dims = {n},
                          .strides = {1}};
        if (written[i]) {
            out[n_out++] = in[i];
        }
    }
    wf_program_run(&program, out, in, scalars);
    return WEFT_OK;
}
