/*
 * jit/device_rows.c -- reductions, softmax, norms, losses on a device: plans of one instruction.
 *
 * The planner spells these rows out as programs (jit/plan_rows.c, jit/lower_rows.c), which give the bits of the host's
 * kernels; a device has a kernel for any program. So an eager call records a function of one instruction, finds the plan
 * of an equal one and runs it. Operands with gaps are read through an index map, without a copy. A call whose attributes
 * and operands' types, extents and strides are all those of one before needs no recording: it runs what that one was.
 *
 * Invariants: the lock guards both tables and is held neither while a plan is built nor while one runs; a row whose plan is
 * not programs only is remembered as such (plan NULL) and left to others. A recording that a table holds is not changed.
 */
#include <pthread.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "jit/device_rows.h"
#include "jit/key.h"
#include "jit/ir/mix.h"
#include "jit/plan.h"

enum { TABLE = 512, WAYS = 4, MOST_SRC = 7, CALLS = 512, CALL_WORDS = 48 };

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

/* The memory of an operand as an input has it: row-major; where it has gaps, all that it reaches in a line, and its first
 * element is *first of that. False: it reaches what no memory has. */
static bool memory_of(const wf_view *v, wf_view *in, int64_t *first)
{
    *in = *v;
    *first = -1;
    if (wf_view_is_contiguous(v) || wf_view_numel(v) == 0) {
        wf_view_make_dense(in);
        return true;
    }
    int64_t lo, hi, all;
    if (wf_map_reach(v->rank, v->dims, v->strides, &lo, &hi) < 0 ||
        __builtin_sub_overflow(hi, lo, &all)) {
        return false;
    }
    in->data = (char *)v->data + lo * (int64_t)wf_dtype_size(v->dtype);
    in->rank = 1;
    in->dims[0] = all + 1;
    in->strides[0] = 1;
    *first = -lo;
    return true;
}

/* Operand v as an input of f; 0: no memory for it, or why says more. */
static wf_val source(wf_fn *f, const wf_view *v, wf_why *why)
{
    int64_t first, dyn[2 * WF_MAX_RANK + 1], rank = v->rank;
    wf_view in;
    if (!memory_of(v, &in, &first)) {
        wf_fail(why, WEFT_ESHAPE, "the index map of an operand overflows");
        return 0;
    }
    wf_type t = {.dtype = in.dtype, .rank = in.rank};
    memcpy(t.dims, in.dims, in.rank * sizeof t.dims[0]);
    wf_val all = wf_fn_input(f, &t), part = 0;
    if (first < 0 || !all) {
        return all;
    }
    for (int i = 0; i < v->rank; i++) {
        dyn[i] = v->dims[i];
        dyn[v->rank + i] = v->strides[i];
    }
    dyn[2 * rank] = first;
    wf_attr a = {.n_ints = 1, .ints = &rank, .n_dyn = (uint8_t)(2 * rank + 1), .dyn = dyn};
    return wf_fn_append(f, WF_OP_AS_STRIDED, &a, 1, &all, &part, NULL, why) ? 0 : part;
}

static bool is_there(const wf_view *v)
{
    return v->data || v->dtype != WEFT_DTYPE_DEFAULT;
}

/* The memory of the call's inputs. */
static void inputs_of(const wf_exec *e, wf_view *in)
{
    int64_t first;
    int n = 0;
    for (int i = 0; i < e->nsrc; i++) {
        if (is_there(&e->src[i])) {
            memory_of(&e->src[i], &in[n++], &first); /* the recording has succeeded */
        }
    }
}

/* The call as a function. 0 or a status. */
static int record(wf_fn *f, const wf_exec *e)
{
    wf_val src[MOST_SRC], dst[WF_MAX_DST];
    for (int i = 0; i < e->nsrc; i++) {
        src[i] = 0;
        if (is_there(&e->src[i])) {
            src[i] = source(f, &e->src[i], e->why);
            if (!src[i]) {
                return e->why->code ? e->why->code : WEFT_ENOMEM;
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
static wf_plan *plan_of(const wf_fn *f, const wf_exec *e)
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
    if (key && !record(key, e)) {
        remember(hash, key, p);
    } else {
        wf_fn_free(key);
    }
    return p;
}

/* -- calls that were made before ---------------------------------------------------------------------------------- */

/* A recording and its plan (NULL: none); immutable. */
typedef struct held {
    _Atomic int refs;
    wf_fn *fn;
    wf_plan *plan;
} held;

/* All that a call's recording depends on. */
typedef struct call {
    int n;
    uint64_t w[CALL_WORDS];
} call;

static struct {
    call call;
    held *is;
} calls[CALLS];

static void let_go(held *h)
{
    if (h && atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) == 1) {
        wf_plan_release(h->plan);
        wf_fn_free(h->fn);
        wf_mfree(h);
    }
}

static bool put(call *c, const void *words, int n)
{
    const bool fits = c->n + n <= CALL_WORDS;
    if (fits && n > 0) {
        memcpy(c->w + c->n, words, (size_t)n * sizeof *c->w);
        c->n += n;
    }
    return fits;
}

/* False: it is not one that is remembered. */
static bool describe(call *c, const wf_exec *e)
{
    const wf_attr none = {0}, *a = e->attr ? e->attr : &none;
    uint64_t head[2] = {(uint64_t)e->op << 32 | (uint64_t)e->nsrc << 16 | (uint64_t)e->ndst,
                        (uint64_t)a->dtype | (uint64_t)a->flags << 8 | (uint64_t)a->n_ints << 16 |
                            (uint64_t)a->n_dyn << 24 | (uint64_t)a->n_flt << 32};
    c->n = 0;
    bool fits = put(c, head, 2) && put(c, a->ints, a->n_ints) && put(c, a->dyn, a->n_dyn) &&
                put(c, a->flt, a->n_flt);
    for (int i = 0; i < e->nsrc + e->ndst && fits; i++) {
        const wf_view *v = i < e->nsrc ? &e->src[i] : &e->dst[i - e->nsrc];
        const uint64_t kind =
            !is_there(v) ? 0 : 1 | (uint64_t)v->dtype << 8 | (uint64_t)v->rank << 16;
        fits = put(c, &kind, 1) &&
               (!kind || (put(c, v->dims, v->rank) && put(c, v->strides, v->rank)));
    }
    return fits;
}

static size_t place_of_call(const call *c)
{
    return (size_t)(wf_mix_words(c->w, c->n) % CALLS);
}

/* What the call was before, a reference to it; NULL: it was not. */
static held *recall(const call *c)
{
    const size_t at = place_of_call(c);
    pthread_mutex_lock(&lock);
    held *h = calls[at].is;
    if (h && calls[at].call.n == c->n &&
        memcmp(calls[at].call.w, c->w, (size_t)c->n * sizeof *c->w) == 0) {
        atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
    } else {
        h = NULL;
    }
    pthread_mutex_unlock(&lock);
    return h;
}

static void remember_call(const call *c, held *h)
{
    const size_t at = place_of_call(c);
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    held *gone = calls[at].is;
    calls[at].call = *c;
    calls[at].is = h;
    pthread_mutex_unlock(&lock);
    let_go(gone);
}

/* The call recorded and planned, a reference; NULL with e->why filled. */
static held *make(const wf_exec *e)
{
    held *h = wf_malloc(sizeof *h);
    wf_fn *f = h ? wf_fn_new("row") : NULL;
    const int rc = f ? record(f, e) : WEFT_ENOMEM;
    if (rc) {
        if (rc == WEFT_ENOMEM && e->why->rule[0] == '\0') {
            wf_fail(e->why, rc, "out of memory for a row on a device");
        }
        e->why->code = rc;
        wf_fn_free(f);
        wf_mfree(h);
        return NULL;
    }
    *h = (held){.fn = f, .plan = plan_of(f, e)};
    atomic_init(&h->refs, 1);
    return h;
}

int wf_device_composite(int device, wf_exec *e)
{
    call c;
    if (!is_composite(e->op) || e->nsrc > MOST_SRC) {
        return WEFT_EUNSUPPORTED;
    }
    const bool known = describe(&c, e);
    held *h = known ? recall(&c) : NULL;
    if (!h) {
        h = make(e);
        if (!h) {
            return e->why->code;
        }
        if (known) {
            remember_call(&c, h);
        }
    }
    int rc = WEFT_EUNSUPPORTED; /* others have their turn */
    if (h->plan) {
        wf_view in[MOST_SRC];
        inputs_of(e, in);
        wf_plan_args a = {.fn = h->fn, .in = in, .out = e->dst, .device = device};
        rc = wf_plan_run(h->plan, &a, e->why);
    }
    let_go(h);
    return rc;
}
