/*
 * jit/device_rows.c -- reductions, softmax, norms, losses on a device: plans of one instruction.
 *
 * The planner spells these rows out as programs (jit/plan_rows.c, jit/lower_rows.c), which give the bits of the host's
 * kernels; a device has a kernel for any program. So an eager call records a function of one instruction, finds the plan
 * of an equal one and runs it. Operands with gaps are read through an index map, without a copy.
 *
 * Invariants: the lock guards the table and is held neither while a plan is built nor while one runs; a row whose plan is
 * not programs only is remembered as such (plan NULL) and left to others.
 */
#include <pthread.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "jit/device_rows.h"
#include "jit/key.h"
#include "jit/plan.h"

enum { TABLE = 512, WAYS = 4, MOST_SRC = 7 };

typedef struct entry {
    uint64_t hash, used;
    wf_fn *fn;
    wf_plan *plan; /* NULL: not programs only */
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry table[TABLE];
static uint64_t clock_now;

static bool is_composite(wf_op op)
{
    int kind = wf_rows[op].kind;
    return kind == WF_KIND_REDUCE || kind == WF_KIND_ROWWISE || kind == WF_KIND_GRAD;
}

/* Operand v as an input of f, *in its memory; 0: no memory for it. */
static wf_val source(wf_fn *f, const wf_view *v, wf_view *in, wf_why *why)
{
    wf_type t = {.dtype = v->dtype, .rank = v->rank};
    memcpy(t.dims, v->dims, v->rank * sizeof t.dims[0]);
    *in = *v;
    if (wf_view_is_contiguous(v) || wf_view_numel(v) == 0) {
        wf_view_make_dense(in);
        return wf_fn_input(f, &t);
    }
    int64_t lo = 0, hi = 1, dyn[2 * WF_MAX_RANK + 1], rank = v->rank;
    for (int i = 0; i < v->rank; i++) {
        int64_t reach = (v->dims[i] - 1) * v->strides[i];
        *(reach < 0 ? &lo : &hi) += reach;
        dyn[i] = v->dims[i];
        dyn[v->rank + i] = v->strides[i];
    }
    dyn[2 * rank] = -lo;
    in->data = (char *)v->data + lo * (int64_t)wf_dtype_size(v->dtype);
    in->rank = t.rank = 1;
    in->dims[0] = t.dims[0] = hi - lo;
    in->strides[0] = 1;
    wf_val all = wf_fn_input(f, &t), part = 0;
    wf_attr a = {.n_ints = 1, .ints = &rank, .n_dyn = (uint8_t)(2 * rank + 1), .dyn = dyn};
    return all && !wf_fn_append(f, WF_OP_AS_STRIDED, &a, 1, &all, &part, NULL, why) ? part : 0;
}

/* The call as a function. 0 or a status. */
static int record(wf_fn *f, const wf_exec *e, wf_view *in)
{
    wf_val src[MOST_SRC], dst[WF_MAX_DST];
    int n = 0;
    for (int i = 0; i < e->nsrc; i++) {
        src[i] = 0;
        if (e->src[i].data || e->src[i].dtype != WEFT_DTYPE_DEFAULT) {
            src[i] = source(f, &e->src[i], &in[n++], e->why);
            if (!src[i]) {
                return WEFT_ENOMEM;
            }
        }
    }
    int rc = wf_device_is_composed(e)
                 ? wf_device_compose(f, e, src, dst)
                 : wf_fn_append(f, e->op, e->attr, e->nsrc, src, dst, NULL, e->why);
    for (int k = 0; k < e->ndst && !rc; k++) {
        rc = wf_fn_output(f, dst[k]);
    }
    return rc;
}

/* The place of an equal function, or the least recently used of those it may have. Called with the lock. */
static entry *place_of(uint64_t hash, const wf_fn *f, const int32_t *writes, bool *found)
{
    entry *old = NULL;
    *found = false;
    for (uint64_t i = 0; i < WAYS; i++) {
        entry *e = &table[(hash + i) % TABLE];
        if (e->fn && e->hash == hash && wf_key_same(e->fn, writes, f, writes)) {
            *found = true;
            return e;
        }
        old = !old || e->used < old->used ? e : old;
    }
    return old;
}

static bool programs_only(const wf_plan *p)
{
    wf_plan_step_info step;
    for (int i = 0; wf_plan_step_at(p, i, &step); i++) {
        if (strcmp(step.kind, "op") == 0) {
            return false;
        }
    }
    return true;
}

static const int32_t no_writes[WF_MAX_DST] = {-1, -1, -1};

/* Is f known? *p: its plan, retained, or NULL. */
static bool lookup(uint64_t hash, const wf_fn *f, wf_plan **p)
{
    bool found;
    pthread_mutex_lock(&lock);
    entry *e = place_of(hash, f, no_writes, &found);
    *p = found ? e->plan : NULL;
    e->used = found ? ++clock_now : e->used;
    if (*p) {
        wf_plan_retain(*p);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* The table takes f over, and p (NULL: none), which the caller goes on using. */
static void remember(uint64_t hash, wf_fn *f, wf_plan *p)
{
    bool found;
    if (p) {
        wf_plan_retain(p);
    }
    pthread_mutex_lock(&lock);
    entry *e = place_of(hash, f, no_writes, &found);
    entry gone = {.fn = f, .plan = p};
    if (!found) {
        gone = *e;
        *e = (entry){hash, ++clock_now, f, p};
    }
    pthread_mutex_unlock(&lock);
    wf_fn_free(gone.fn);
    wf_plan_release(gone.plan);
}

/* The plan of f, which records e; retained; NULL: there is none. */
static wf_plan *plan_of(const wf_fn *f, const wf_exec *e, wf_view *in)
{
    uint64_t hash = wf_key_hash(f, no_writes);
    wf_plan *p;
    if (lookup(hash, f, &p)) {
        return p;
    }
    wf_why why = {0};
    p = wf_plan_build(f, &(wf_plan_opts){.flags = WF_PLAN_DEVICE}, &why);
    if (p && !programs_only(p)) {
        wf_plan_release(p);
        p = NULL;
    }
    wf_fn *key = wf_fn_new("row"); /* f is the call's: another thread may evict the table's */
    if (key && !record(key, e, in)) {
        remember(hash, key, p);
    } else {
        wf_fn_free(key);
    }
    return p;
}

int wf_device_composite(int device, wf_exec *e)
{
    wf_view in[MOST_SRC];
    if (!is_composite(e->op) || e->nsrc > MOST_SRC) {
        return WEFT_EUNSUPPORTED;
    }
    wf_fn *f = wf_fn_new("row");
    int rc = f ? record(f, e, in) : WEFT_ENOMEM;
    wf_plan *p = rc ? NULL : plan_of(f, e, in);
    if (!rc && !p) {
        rc = WEFT_EUNSUPPORTED; /* others have their turn */
    } else if (!rc) {
        wf_plan_args a = {.fn = f, .in = in, .out = e->dst, .device = device};
        rc = wf_plan_run(p, &a, e->why);
    } else if (rc == WEFT_ENOMEM && e->why->rule[0] == '\0') {
        wf_fail(e->why, rc, "out of memory for a row on a device");
    }
    wf_plan_release(p);
    wf_fn_free(f);
    return rc;
}
