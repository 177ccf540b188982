/*
 * jit/plan_validate.c -- WEFT_VALIDATE=1: what every launch of a run puts into memory is compared, bit for bit, with its ops run
 * one by one.
 *
 * The reference of a plan is a second plan of the same function: no fusion, no native kernels, every row by its eager kernel,
 * and as results all that the first plan ever has in memory. It runs before the first plan does, which may write over what
 * both read; then a launch is looked at when it is done, so that the first one that is wrong is the one that is named, not
 * what became of it. On a device the reference runs there, too, an op a kernel; its values are brought to the host, and so is
 * what each launch wrote: each is waited for, and kernels that are still being made are (prepare_programs). Nothing is captured then
 * (jit/device_gpu.c), since launches of a captured graph are not seen one by one.
 *
 * Not compared: plans under fast math, whose bits may differ from their ops'; a run whose numbers change in a captured graph; and a
 * run whose reference fails (the run itself will say why).
 *
 * Invariant: the reference reads the slots of the call at hand, as its function has the origins of the plan's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/device.h"
#include "eager/exec.h"
#include "eager/layout.h"
#include "jit/ir/build.h"
#include "jit/passes/oracle.h"
#include "jit/plan_int.h"

struct wf_reference {
    wf_plan *plan;
    uint32_t *result; /* of a value of the plan's function: 1 + the result that it is, 0: none */
};

void wf_reference_free(wf_reference *r)
{
    if (r) {
        wf_plan_release(r->plan);
        free(r->result);
        free(r);
    }
}

/* The function, with all that the steps of p write as results. */
static wf_fn *all_results(const wf_plan *p, uint32_t *result, wf_why *why)
{
    wf_fn *f;
    int rc = wf_fn_copy(p->fn, NULL, &f, why);
    if (f) {
        f->noutputs = 0;
    }
    for (uint32_t s = 0; s < p->nsteps && !rc; s++) {
        for (uint32_t d = 0; d < p->steps[s].ndst && !rc; d++) {
            const wf_val v = p->buffers[p->accesses[p->steps[s].access + d].buffer].v;
            if (!result[v]) {
                result[v] = f->noutputs + 1;
                rc = wf_fn_output(f, v);
            }
        }
    }
    if (rc) {
        wf_fn_free(f);
        f = NULL;
    }
    return f;
}

static wf_reference *make_reference(const wf_plan *p)
{
    wf_why why = {0};
    wf_reference *r = calloc(1, sizeof *r);
    wf_fn *f = NULL;
    if (r) {
        r->result = calloc(p->fn->n + 1u, sizeof *r->result);
        f = r->result ? all_results(p, r->result, &why) : NULL;
        const unsigned device = p->flags & WF_PLAN_ALONE ? WF_PLAN_ALONE | WF_PLAN_SYNC : 0;
        r->plan = f ? wf_plan_of(f, WF_PLAN_NO_FUSE | WF_PLAN_TIER0 | WF_PLAN_PLAIN | device, &why)
                    : NULL;
    }
    if (!r || !r->plan) {
        wf_reference_free(r);
        return NULL;
    }
    return r;
}

/* The reference of p, made by the first run. */
static const wf_reference *reference_of(wf_plan *p)
{
    wf_reference *none = NULL, *r = atomic_load_explicit(&p->reference, memory_order_acquire);
    if (!r && (r = make_reference(p)) != NULL &&
        !atomic_compare_exchange_strong(&p->reference, &none, r)) {
        wf_reference_free(r);
        r = none;
    }
    return r;
}

static void drop_values(const wf_reference *r, wf_view *values)
{
    for (uint32_t k = 0; values && k < r->plan->noutputs; k++) {
        if (values[k].data) {
            wf_free(values[k].data, (size_t)wf_type_bytes(&r->plan->out_type[k]));
        }
    }
    free(values);
}

/* Dense memory of the host for the elements of `from`, which may be a device's; to be freed, of `bytes`. NULL with why. */
static char *on_host(const wf_view *from, size_t bytes, wf_why *why)
{
    wf_view to = *from;
    to.device = WF_DEVICE_HOST;
    to.data = wf_alloc(bytes);
    if (!to.data) {
        wf_fail(why, WEFT_ENOMEM, "no memory to compare %zu bytes", bytes);
        return NULL;
    }
    wf_view_make_dense(&to);
    if (!from->device) {
        wf_copy(&to, from);
    } else if (wf_device_read(from->device, &to, from, why)) {
        wf_free(to.data, bytes);
        return NULL;
    }
    return to.data;
}

/* A run of the reference on a device. */
typedef struct device_run {
    const wf_plan *plan;
    wf_view *values;
    void **block; /* of each value; NULL: none */
    int device;
} device_run;

static int give_result(void *user, uint32_t k, wf_why *why)
{
    const device_run *d = user;
    void *address = NULL;
    const size_t bytes = (size_t)wf_type_bytes(&d->plan->out_type[k]);
    d->block[k] = wf_device_alloc(d->device, bytes ? bytes : 1, &address, why);
    wf_view_of_type(&d->values[k], &d->plan->out_type[k], address);
    d->values[k].device = (uint8_t)d->device;
    return d->block[k] ? 0 : why->code;
}

/* rc: of the run. The values come to the host, unless it or one of them failed: then there are none. */
static int take_values(const device_run *d, int rc, wf_why *why)
{
    for (uint32_t k = 0; k < d->plan->noutputs; k++) {
        wf_view *v = &d->values[k];
        const size_t bytes = (size_t)wf_type_bytes(&d->plan->out_type[k]);
        v->data = rc || !d->block[k] ? NULL : on_host(v, bytes, why);
        rc = rc ? rc : d->block[k] && !v->data ? why->code : 0;
        if (d->block[k]) {
            wf_device_free(d->block[k]);
        }
    }
    return rc;
}

static int run_reference(const wf_reference *r, const wf_plan_args *a, wf_view *values, wf_why *why)
{
    device_run d = {r->plan, values, NULL, a->device};
    wf_plan_args args = {.fn = a->fn, .in = a->in, .out = values, .device = a->device};
    if (!a->device) {
        return wf_plan_run_steps(r->plan, &args, why);
    }
    d.block = calloc(r->plan->noutputs + 1u, sizeof *d.block);
    args.back = give_result;
    args.user = &d;
    const int rc =
        d.block ? take_values(&d, wf_plan_run_steps(r->plan, &args, why), why) : WEFT_ENOMEM;
    free(d.block);
    return rc;
}

/* On a device a row of the reference may be a plan of its own, which is not compared in turn: its row is that plan again. */
static _Thread_local bool referring;

wf_view *wf_validate_begin(wf_plan *p, const wf_plan_args *a)
{
    const bool seen = !referring && !a->changes && !(p->flags & WF_PLAN_FAST);
    const wf_reference *r = seen ? reference_of(p) : NULL;
    wf_view *values = r ? calloc(r->plan->noutputs + 1u, sizeof *values) : NULL;
    wf_why why = {0};
    referring = referring || values;
    if (values && run_reference(r, a, values, &why)) {
        drop_values(r, values);
        values = NULL;
    }
    referring = referring && !seen;
    return values;
}

void wf_validate_end(const wf_plan *p, wf_view *values)
{
    if (values) {
        drop_values(atomic_load_explicit(&p->reference, memory_order_acquire), values);
    }
}

/* -- one launch -------------------------------------------------------------------------------------------------- */

static void number_text(int dtype, const void *at, char text[64])
{
    uint64_t bits = 0;
    memcpy(&bits, at, wf_dtype_size(dtype));
    if (wf_dtype_kind(dtype) == 2) {
        snprintf(text, 64, "%.17g (0x%llx)", wf_element_f64(dtype, at), (unsigned long long)bits);
    } else {
        snprintf(text, 64, "0x%llx", (unsigned long long)bits);
    }
}

/* "mul (model.c:3) add (model.c:4)", as many as fit. */
static void list_ops(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, char *text,
                     size_t size)
{
    size_t n = 0;
    for (uint32_t m = 0; m < s->nmember && n < size; m++) {
        const uint32_t k = p->members[s->member + m];
        const char *site = wf_plan_site(p, recording, k);
        n += (size_t)snprintf(text + n, size - n, "%s%s%s%s%s", m ? " " : "",
                              wf_rows[p->fn->ins[k].op].name, site ? " (" : "",
                              site ? wf_site_file(site) : "", site ? ")" : "");
    }
    if (n >= size) {
        snprintf(text + size - 4, 4, "...");
    }
}

/* Is what the step wrote there written over by one behind it in the launch (the group behind a product), not by another part of it? */
static bool is_gone(const wf_plan *p, const wf_plan_step *s, const wf_plan_step *end,
                    const wf_buffer *u)
{
    while (++s < end) {
        for (uint32_t d = 0; d < s->ndst; d++) {
            const wf_buffer *w = &p->buffers[p->accesses[s->access + d].buffer];
            if (w != u && w->slot == u->slot && w->offset < u->offset + u->bytes &&
                u->offset < w->offset + w->bytes) {
                return true;
            }
        }
    }
    return false;
}

static int differs(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, int device,
                   wf_val v, int64_t at, const char *got, const char *want, wf_why *why)
{
    const wf_type *t = wf_fn_type(p->fn, v);
    const size_t size = wf_dtype_size(t->dtype);
    char a[64], b[64], ops[128];
    number_text(t->dtype, got + (size_t)at * size, a);
    number_text(t->dtype, want + (size_t)at * size, b);
    list_ops(p, recording, s, ops, sizeof ops);
    wf_fail(why, WEFT_EINVALID,
            "validation: %.63s (step %u, %s) gives %s for element %lld of %%%u, and its ops one by "
            "one %s",
            wf_plan_launch_name(p, s), s->launch,
            device                    ? wf_device_code_name(device)
            : s->kind != WF_STEP_MAP  ? "eager kernel"
            : wf_plan_is_native(p, s) ? "native"
                                      : "tier 0",
            a, (long long)at, v, b);
    wf_hint(why, "its ops: %s", ops);
    return WEFT_EINVALID;
}

/* What the step left of a value, row-major and on the host as the reference has it: *copy, if it did not lie so. NULL with why. */
static const char *written(const wf_access *a, const int64_t *words, const wf_type *t, char *got,
                           int device, char **copy, wf_why *why)
{
    const int64_t *dims = words + a->shape, *strides = dims + a->rank;
    const bool last = a->rank == t->rank && !a->nterms && wf_lies_last(a->rank, dims, strides);
    wf_view from;
    *copy = NULL;
    if (!last && !device) {
        return got;
    }
    wf_view_of_type(&from, t, got);
    from.device = (uint8_t)device;
    if (last) {
        memcpy(from.dims, dims, a->rank * sizeof *dims);
        memcpy(from.strides, strides, a->rank * sizeof *strides);
    }
    *copy = on_host(&from, (size_t)wf_type_bytes(t), why);
    return *copy;
}

/* The part of a concat that an access names, of memory that has all of it, row by row: to be freed. NULL with why. */
static char *part_of(const wf_access *a, const int64_t *words, char *whole, const wf_type *part,
                     wf_why *why)
{
    wf_view from;
    wf_view_of_type(&from, part, whole + a->offset * (int64_t)wf_dtype_size(a->dtype));
    memcpy(from.strides, words + a->shape + a->rank, a->rank * sizeof *from.strides);
    return on_host(&from, (size_t)wf_type_bytes(part), why);
}

/* The first element that destination a of the step has wrong is told. got, want: the memory of its value. */
static int look_at_part(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s,
                        const wf_access *a, char *got, char *want, wf_why *why)
{
    wf_type part = {.dtype = a->dtype, .rank = a->rank};
    memcpy(part.dims, p->words + a->shape, a->rank * sizeof *part.dims);
    const size_t bytes = (size_t)wf_type_bytes(&part);
    char *x = part_of(a, p->words, got, &part, why);
    char *y = x ? part_of(a, p->words, want, &part, why) : NULL;
    const int64_t at = y ? wf_oracle_difference(&part, y, x) : -1;
    const wf_val v = p->buffers[a->buffer].v;
    const int rc = !y ? why->code : at >= 0 ? differs(p, recording, s, 0, v, at, x, y, why) : 0;
    if (x) {
        wf_free(x, bytes);
    }
    if (y) {
        wf_free(y, bytes);
    }
    return rc;
}

/* Is the destination a part of its value? Others may have a shape of their own, but all its elements. */
static bool is_part(const wf_plan *p, const wf_access *a, const wf_type *t)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) {
        const int64_t stride = p->words[a->shape + (uint32_t)a->rank + (uint32_t)i];
        n *= stride ? p->words[a->shape + (uint32_t)i] : 1;
    }
    return wf_fn_at(p->fn, p->buffers[a->buffer].v)->op == WF_OP_CONCAT && n != wf_type_numel(t);
}

int wf_validate_launch(const wf_plan *p, const wf_fn *recording, const wf_plan_step *s, uint32_t n,
                       int device, char *const *memory, const wf_view *values, wf_why *why)
{
    const wf_reference *r = atomic_load_explicit(&p->reference, memory_order_acquire);
    for (const wf_plan_step *x = s, *end = s + n; x < end; x++) {
        for (uint32_t d = 0; d < x->ndst; d++) {
            const wf_access *a = &p->accesses[x->access + d];
            const wf_buffer *u = &p->buffers[a->buffer];
            char *want = values[r->result[u->v] - 1].data;
            if (u->bytes == 0 || is_gone(p, x, end, u)) {
                continue;
            }
            const wf_type *t = wf_fn_type(p->fn, u->v);
            if (is_part(p, a, t)) {
                const int bad =
                    look_at_part(p, recording, x, a, memory[u->slot] + u->offset, want, why);
                if (bad) {
                    return bad;
                }
                continue;
            }
            char *copy;
            const char *got =
                written(a, p->words, t, memory[u->slot] + u->offset, device, &copy, why);
            const int64_t at = got ? wf_oracle_difference(t, want, got) : -1;
            const int rc = !got      ? why->code
                           : at >= 0 ? differs(p, recording, x, device, u->v, at, got, want, why)
                                     : 0;
            if (copy) {
                wf_free(copy, (size_t)wf_type_bytes(t));
            }
            if (rc) {
                return rc;
            }
        }
    }
    return 0;
}
