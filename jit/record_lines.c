/*
 * jit/record_lines.c -- recording straight-line code in one go: an optimiser's update of a parameter.
 *
 * A step is the same dozen rows for every parameter. Recorded call by call, each row pays for handles, checks and the
 * storage of a temporary; here the tensors are checked once, temporaries are SSA numbers and a row is an instruction.
 *
 * Invariants: the instructions are those that the calls would have recorded, in their order; nothing is recorded of tensors
 * for which the calls do more than that (casts, broadcasts, views, imports, gradients): they are left to the calls.
 */
#include <string.h>

#include "eager/call.h"
#include "jit/trace.h"

enum { MOST_VALUES = 32 };

/* All of a storage of its own on the trace's device, of the type and extents of `like`. */
static bool is_alike(const wf_trace *t, wf_slot *like, wf_slot *s)
{
    const wf_storage *st = s->st;
    return s->dtype == like->dtype && s->rank == like->rank &&
           memcmp(wf_dims(s), wf_dims(like), (size_t)s->rank * sizeof(int64_t)) == 0 &&
           wf_slot_is_whole(s) && st->device == t->base.device &&
           st->inline_data != WF_STORAGE_EXTERNAL && !st->broken &&
           !wf_storage_is_foreign(st, &t->base);
}

/* Does every line take operands of one floating-point type to a result of it? */
static bool is_plain(const wf_lines *l, int dtype)
{
    bool plain = l->scalars + l->n_scalar <= MOST_VALUES;
    for (int i = 0; i < l->n && plain; i++) {
        const wf_row *row = &wf_rows[l->line[i].op];
        plain = (row->types & WF_BIT(dtype)) && row->kind != WF_KIND_CHOOSE &&
                wf_call_output_dtype(l->line[i].op, dtype) == dtype;
    }
    return plain;
}

/* Which tensors are written, as bits; UINT32_MAX: the lines are left to calls. */
static uint32_t written_of(const wf_trace *t, const wf_lines *l)
{
    uint32_t written = 0;
    for (int i = 0; i < l->n; i++) {
        written |= l->line[i].dst < l->n_tensor ? 1u << l->line[i].dst : 0;
    }
    const int dtype = l->tensor[0]->dtype;
    bool simple = t->wrapped == 0 && !t->owner.function && !wf_grad_enabled(t->c) &&
                  (dtype == WEFT_F32 || dtype == WEFT_F64) && is_plain(l, dtype);
    for (int i = 0; i < l->n_tensor && simple; i++) {
        wf_slot *s = l->tensor[i];
        simple = is_alike(t, l->tensor[0], s) && !((written >> i & 1) && s->st->read_only);
        for (int k = 0; k < i && simple; k++) {
            simple = l->tensor[k]->st != s->st;
        }
    }
    return simple ? written : UINT32_MAX;
}

/* Appends line k; values: by number, of scalars 0 until they are used. */
static bool push_line(wf_trace *t, const wf_lines *l, const wf_line *k, uint32_t type, wf_val *v)
{
    const unsigned joined =
        k > l->line ? WF_INS_JOINED : 0; /* the call does all lines in one pass */
    wf_ins i = {.op = (uint8_t)k->op, .flags = (uint8_t)(WF_INS_NOGRAD | joined), .type = type};
    for (int s = 0; s < 3 && k->src[s] >= 0; s++) {
        const int from = k->src[s];
        if (from >= l->scalars && !v[from]) {
            const double d = l->scalar[from - l->scalars];
            v[from] = wf_fn_scalar(t->fn, WF_SCALAR_FLOAT, wf_slot_bits(WF_SCALAR_FLOAT, d));
            wf_trace_live_slot(t, v[from], l->number[from - l->scalars]);
        }
        i.src[i.nsrc++] = v[from];
        if (!v[from]) {
            return false;
        }
    }
    v[k->dst] = wf_fn_push(t->fn, &i);
    return v[k->dst] != 0;
}

bool wf_trace_lines(wf_recorder *r, const wf_lines *l, int *rc, wf_why *why)
{
    wf_trace *t = (wf_trace *)(void *)r;
    const uint32_t written = written_of(t, l);
    wf_val v[MOST_VALUES] = {0};
    if (written == UINT32_MAX) {
        return false;
    }
    *rc = 0;
    for (int i = 0; i < l->n_tensor && !*rc; i++) {
        *rc = wf_trace_value(t, l->tensor[i], &v[i], why);
    }
    const uint32_t type = *rc ? 0 : wf_fn_at(t->fn, v[0])->type;
    for (int k = 0; k < l->n && !*rc; k++) {
        if (!push_line(t, l, &l->line[k], type, v)) {
            *rc = wf_fail(why, WEFT_ENOMEM, "out of memory for the trace");
        }
    }
    for (int i = 0; i < l->n_tensor && !*rc; i++) {
        if (written >> i & 1) {
            *rc = wf_trace_set_value(t, l->tensor[i], v[i], why);
        }
    }
    return true;
}
