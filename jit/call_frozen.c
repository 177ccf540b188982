/*
 * jit/call_frozen.c -- the calls of a traced function that are frozen, and those that wait to be.
 *
 * Frozen calls lie in FROZEN_SETS lists by what can be told of a call before it is made (wf_call_kind), so that a call looks at
 * those of its own kind only, the one that was hit last first: MOST_OF_KIND at most, which differ in what their guards look at
 * besides (captured tensors, strides, modes). The last recording of each of MAX_WAITING kinds waits for its next one.
 *
 * Invariants: those of jit/call.c. What leaves a list under the lock is released after it.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "jit/call_impl.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

/* Looks: so many, and so many times max_frozen. Recordings of more kinds by turns than that hardly meet (MAX_WAITING). */
enum { LATELY = 1024, LATELY_EACH = 8 };

/* -- the frozen calls of a function ---------------------------------------------------------------------------------- */

static frozen_call **set_of(weft_jit *j, uint64_t kind)
{
    return &j->frozen[kind >> 58];
}

/* Takes *at out of its list; returns the list's reference. Called with the lock, as what follows. */
static wf_frozen *take(weft_jit *j, frozen_call **at)
{
    frozen_call *f = *at;
    wf_frozen *z = f->call;
    *at = f->next;
    j->recent = j->recent == f ? NULL : j->recent;
    atomic_fetch_sub_explicit(&j->nfrozen, 1, memory_order_relaxed);
    wf_mfree(f);
    return z;
}

/* Takes z off; NULL: another thread was first. */
static wf_frozen *take_frozen(weft_jit *j, const wf_frozen *z)
{
    for (int i = 0; i < FROZEN_SETS; i++) {
        for (frozen_call **at = &j->frozen[i]; *at; at = &(*at)->next) {
            if ((*at)->call == z) {
                return take(j, at);
            }
        }
    }
    return NULL;
}

/* The least recently used call, of a kind or, 0, of all, and how many there are. */
static frozen_call **find_oldest(weft_jit *j, uint64_t kind, int *n)
{
    frozen_call **old = NULL;
    *n = 0;
    for (int i = 0; i < FROZEN_SETS; i++) {
        for (frozen_call **at = &j->frozen[i]; *at; at = &(*at)->next) {
            if (kind == 0 || (*at)->kind == kind) {
                old = !old || (*at)->used < (*old)->used ? at : old;
                *n += 1;
            }
        }
    }
    return old;
}

/* Room for one more of a kind: *gone leaves for it, or is NULL. False: there are max_frozen, all used lately, and one that comes by
 * now and then shall not drive them out by turns. */
static bool make_room(weft_jit *j, uint64_t kind, wf_frozen **gone)
{
    int n, all;
    frozen_call **old = find_oldest(j, kind, &n), **oldest = find_oldest(j, 0, &all);
    *gone = NULL;
    if (old && (n >= MOST_OF_KIND || (all >= j->max_frozen && n == all))) {
        *gone = take(j, old);
    } else if (oldest && all >= j->max_frozen) {
        if (j->frozen_clock - (*oldest)->used < LATELY + LATELY_EACH * (uint64_t)j->max_frozen) {
            return false;
        }
        *gone = take(j, oldest);
    }
    return true;
}

/* z becomes the first of its kind to be tried. f: for its place in the list. */
static void add_frozen(weft_jit *j, frozen_call *f, uint64_t kind, wf_frozen *z)
{
    frozen_call **set = set_of(j, kind);
    *f = (frozen_call){z, kind, ++j->frozen_clock, *set};
    *set = f;
    j->recent = f;
    atomic_fetch_add_explicit(&j->nfrozen, 1, memory_order_relaxed);
}

void wf_call_free_frozen(weft_jit *j)
{
    for (int i = 0; i < FROZEN_SETS; i++) {
        while (j->frozen[i]) {
            wf_frozen_release(take(j, &j->frozen[i]));
        }
    }
    for (int i = 0; i < j->nwait; i++) {
        wf_frozen_release(j->wait[i].call);
    }
}

/* -- recordings that wait for the next one --------------------------------------------------------------------------- */

/* Frozen calls to be released once the lock is not held. */
typedef struct discarded {
    wf_frozen *z[MAX_WAITING + 2];
    int n;
} discarded;

static void discard(const discarded *d)
{
    for (int i = 0; i < d->n; i++) {
        wf_frozen_release(d->z[i]);
    }
}

/* Likewise a waiting call. */
static wf_frozen *take_waiting(weft_jit *j, int i)
{
    wf_frozen *gone = j->wait[i].call;
    memmove(&j->wait[i], &j->wait[i + 1], (size_t)(--j->nwait - i) * sizeof j->wait[0]);
    return gone;
}

void wf_call_never_frozen(weft_jit *j, const char *reason)
{
    pthread_mutex_lock(&j->lock);
    wf_call_note_reason(j, "not frozen", reason);
    pthread_mutex_unlock(&j->lock);
}

void wf_call_not_frozen(weft_jit *j, const char *reason)
{
    discarded gone = {.n = 0};
    pthread_mutex_lock(&j->lock);
    j->stats.refusals++;
    wf_call_note_reason(j, "not frozen", reason);
    while (j->nwait) {
        gone.z[gone.n++] = take_waiting(j, 0);
    }
    pthread_mutex_unlock(&j->lock);
    discard(&gone);
}

/* z waits for the next call with such arguments. Of a hash one waits: its entry keeps one recording's numbers. Where all places are
 * taken one goes by lot: of kinds by turns, more than there are places, the oldest one would be whose turn comes next, each time. */
static void wait_for_next(weft_jit *j, uint64_t hash, uint64_t kind, wf_frozen *z, discarded *gone)
{
    char reason[WF_REASON];
    for (int i = j->nwait; i-- > 0;) {
        if (j->wait[i].hash == hash ||
            (j->wait[i].kind == kind && wf_frozen_same_arguments(j->wait[i].call, z, reason))) {
            gone->z[gone->n++] = take_waiting(j, i);
        }
    }
    if (j->nwait == MAX_WAITING) {
        j->lot = j->lot * UINT64_C(0x5851F42D4C957F2D) + UINT64_C(0x14057B7EF767814F);
        gone->z[gone->n++] = take_waiting(j, (int)(j->lot >> 33) % MAX_WAITING);
    }
    memmove(&j->wait[1], &j->wait[0], (size_t)j->nwait++ * sizeof j->wait[0]);
    j->wait[0] = (waiting){z, hash, kind, false};
}

void wf_call_lose_numbers(weft_jit *j, uint64_t hash)
{
    for (int i = 0; i < j->nwait; i++) {
        j->wait[i].lost |= j->wait[i].hash == hash;
    }
}

/* The recording of this call, which ran, against the one before it with such arguments. Called with the lock; gone
 * receives what is to be released. */
static void compare(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p, entry *e, discarded *gone)
{
    freezing *z = job->note;
    char reason[WF_REASON], other[WF_REASON];
    int i = j->nwait;
    while (i > 0 && !(j->wait[i - 1].kind == z->kind &&
                      wf_frozen_same_arguments(j->wait[i - 1].call, z->now, other))) {
        i--;
    }
    const bool before = i-- > 0;
    bool same = before && e && j->wait[i].hash == hash && !j->wait[i].lost;
    if (before && !same) {
        snprintf(reason, sizeof reason, "%s",
                 j->wait[i].hash == hash ? "its plan has been dropped"
                                         : "the graph is another than before");
    }
    same = same && wf_frozen_agree(j->wait[i].call, e->fn, z->now, job->fn, reason);
    wf_frozen *old = NULL;
    const bool room = same && make_room(j, z->kind, &old);
    wf_fn *next = room ? wf_fn_new(j->name) : NULL;
    frozen_call *f = next ? wf_malloc(sizeof *f) : NULL;
    gone->z[gone->n++] = old;
    if (f) {
        wf_frozen_arm(z->now, j->wait[i].call, job->fn, job->writes, p);
        add_frozen(j, f, z->kind, z->now);
        gone->z[gone->n++] = take_waiting(j, i); /* it has served, and holds captured tensors */
        job->fn = next;
    } else {
        wf_fn_free(next);
        if (before) {
            j->stats.refusals++;
            wf_call_note_reason(j, "not frozen",
                                !same  ? reason
                                : room ? "there is no memory"
                                       : "max_frozen calls are kept, which are "
                                         "all replayed now and then");
        } else if (j->nwait) { /* the newest */
            wf_call_note_reason(
                j, "recorded to be compared with the next such call",
                wf_frozen_same_arguments(j->wait[0].call, z->now, other) ? "another key" : other);
        }
        if (e) { /* the next recording is compared with this one */
            wf_fn *last = e->fn;
            e->fn = job->fn;
            job->fn = last;
        }
        wait_for_next(j, hash, z->kind, z->now, gone);
    }
    z->now = NULL;
}

void wf_call_consider(weft_jit *j, uint64_t hash, wf_job *job, wf_plan *p, bool known)
{
    freezing *z = job->note;
    char reason[WF_REASON] = "its call can no longer be frozen";
    discarded gone = {.n = 0};
    z->seen = true;
    pthread_mutex_lock(&j->lock);
    if (z->verify) {
        j->stats.verified++;
        if (!z->now || !wf_frozen_same(z->verify, z->now, job->fn, job->writes, reason)) {
            j->stats.thawed++;
            wf_call_note_reason(j, "thawed", reason);
            gone.z[gone.n++] = take_frozen(j, z->verify);
        }
    } else if (z->now) {
        compare(j, hash, job, p, known ? wf_call_find_entry(j, hash, job) : NULL, &gone);
    }
    pthread_mutex_unlock(&j->lock);
    discard(&gone);
}

/* -- finding one ----------------------------------------------------------------------------------------------------- */

/* The call of a kind to be tried first, retained; NULL: there is none. */
static wf_frozen *first_frozen(weft_jit *j, uint64_t kind)
{
    pthread_mutex_lock(&j->lock);
    frozen_call *f = *set_of(j, kind);
    j->frozen_clock++; /* also where there is none: those of other kinds grow older */
    while (f && f->kind != kind) {
        f = f->next;
    }
    if (f) {
        f->used = j->frozen_clock;
        j->recent = f;
        wf_frozen_retain(f->call);
    }
    pthread_mutex_unlock(&j->lock);
    return f ? f->call : NULL;
}

/* All of a kind, retained: guards run without the lock. */
static int list_frozen(weft_jit *j, uint64_t kind, wf_frozen *list[MOST_OF_KIND])
{
    int n = 0;
    pthread_mutex_lock(&j->lock);
    for (frozen_call *f = *set_of(j, kind); f && n < MOST_OF_KIND; f = f->next) {
        if (f->kind == kind) {
            list[n++] = f->call;
            wf_frozen_retain(f->call);
        }
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

/* z was hit: it is tried first from now on. */
static void be_first(weft_jit *j, uint64_t kind, const wf_frozen *z)
{
    pthread_mutex_lock(&j->lock);
    frozen_call **set = set_of(j, kind), **at = set;
    while (*at && (*at)->call != z) {
        at = &(*at)->next;
    }
    frozen_call *f = *at;
    if (f) {
        *at = f->next;
        f->next = *set;
        *set = f;
        f->used = ++j->frozen_clock;
        j->recent = f;
    }
    pthread_mutex_unlock(&j->lock);
}

/* Drops the frozen calls of a list that can never be replayed again. */
static void drop_dead(weft_jit *j, wf_ctx *c, wf_frozen **list, int n)
{
    for (int i = 0; i < n; i++) {
        if (wf_frozen_is_dead(list[i], c)) {
            pthread_mutex_lock(&j->lock);
            wf_frozen *gone = take_frozen(j, list[i]);
            pthread_mutex_unlock(&j->lock);
            wf_frozen_release(gone);
        }
    }
}

/* A guard has missed: a call that is dead may be of any kind. A set at a time, so that a miss costs little. */
static void sweep(weft_jit *j, wf_ctx *c)
{
    wf_frozen *list[MOST_OF_KIND];
    int n = 0;
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < FROZEN_SETS && n == 0; i++) {
        j->swept = (j->swept + 1) % FROZEN_SETS;
        for (frozen_call *f = j->frozen[j->swept]; f && n < MOST_OF_KIND; f = f->next) {
            list[n++] = f->call;
            wf_frozen_retain(f->call);
        }
    }
    pthread_mutex_unlock(&j->lock);
    drop_dead(j, c, list, n);
    for (int i = 0; i < n; i++) {
        wf_frozen_release(list[i]);
    }
}

/* The first does not hold: another one, retained, or NULL. */
static wf_frozen *other_frozen(weft_jit *j, wf_ctx *c, uint64_t kind, const wf_frozen_args *a,
                               int n_out)
{
    char reason[WF_REASON];
    wf_frozen *list[MOST_OF_KIND], *z = NULL;
    int n = list_frozen(j, kind, list);
    for (int i = 0; i < n && !z; i++) {
        z = wf_frozen_guard(list[i], a, n_out, reason) ? list[i] : NULL;
    }
    if (z) {
        wf_frozen_retain(z);
        be_first(j, kind, z);
    } else {
        drop_dead(j, c, list, n);
    }
    for (int i = 0; i < n; i++) {
        wf_frozen_release(list[i]);
    }
    return z;
}

/* There is none of the kind: what the call differs in from the one that was used last. */
WF_COLD static void explain_kind(weft_jit *j, const wf_frozen_args *a, int n_out,
                                 char reason[WF_REASON])
{
    pthread_mutex_lock(&j->lock);
    wf_frozen *z = j->recent ? j->recent->call : NULL;
    if (z) {
        wf_frozen_retain(z);
    }
    pthread_mutex_unlock(&j->lock);
    if (!z || wf_frozen_guard(z, a, n_out, reason)) {
        snprintf(reason, WF_REASON, "no call with such arguments is frozen");
    }
    wf_frozen_release(z);
}

WF_COLD static void miss(weft_jit *j, wf_ctx *c, const char *reason)
{
    sweep(j, c);
    pthread_mutex_lock(&j->lock);
    j->stats.misses++;
    wf_call_note_reason(j, "guard", reason);
    pthread_mutex_unlock(&j->lock);
}

wf_frozen *wf_call_find_frozen(weft_jit *j, wf_ctx *c, const weft_tensor *in, int n_in, int n_out,
                               wf_frozen_args *a, freezing *f)
{
    char reason[WF_REASON];
    wf_frozen *z = NULL;
    const bool any = atomic_load_explicit(&j->nfrozen, memory_order_relaxed) > 0;
    if (!any && f->kind) {
        return NULL;
    }
    const bool open = wf_frozen_open(a, c, in, n_in, reason);
    if (open) {
        f->kind = f->kind ? f->kind : wf_call_kind_of_slots(c, a->slot, n_in, n_out);
        z = any ? first_frozen(j, f->kind) : NULL;
        if (z && !wf_frozen_guard(z, a, n_out, reason)) {
            wf_frozen_release(z);
            z = other_frozen(j, c, f->kind, a, n_out);
        } else if (!z && any) {
            explain_kind(j, a, n_out, reason);
        }
    }
    if (z && (j->verify_every <= 0 || wf_frozen_count(z) % (uint32_t)j->verify_every != 0)) {
        atomic_fetch_add_explicit(&j->replays, 1, memory_order_relaxed);
        return z;
    }
    f->verify = z;
    wf_frozen_close(a);
    if (!z && any) {
        miss(j, c, reason);
    }
    return NULL;
}

void wf_call_start(weft_jit *j, wf_ctx *c, freezing *f)
{
    wf_frozen *list[MAX_WAITING];
    int n = 0;
    wf_frozen_start_now(&f->start, c);
    if (f->verify) { /* first: there is room for so many generators */
        wf_frozen_start_add(&f->start, f->verify, c);
    }
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < j->nwait; i++) {
        if (j->wait[i].kind == f->kind) {
            list[n++] = j->wait[i].call;
            wf_frozen_retain(j->wait[i].call);
        }
    }
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < n; i++) {
        wf_frozen_start_add(&f->start, list[i], c);
        wf_frozen_release(list[i]);
    }
}

int wf_call_run_frozen(weft_jit *j, wf_ctx *c, wf_frozen *z, wf_frozen_args *a, weft_tensor *out,
                       int n_out)
{
    wf_why why;
    wf_frozen_how how;
    wf_why_clear(&why);
    int rc = wf_frozen_run(z, a, out, &how, &why);
    wf_frozen_close(a);
    wf_frozen_release(z);
    if (how.captured || how.reason[0]) {
        pthread_mutex_lock(&j->lock);
        j->stats.captured += how.captured;
        if (how.reason[0]) {
            wf_call_note_reason(j, "not captured", how.reason);
        }
        pthread_mutex_unlock(&j->lock);
    }
    if (rc) {
        weft_tensor e = wf_raise_text(c, why.code ? why.code : rc, "jit_call", "in '%s': %s%s%s",
                                      j->name, why.rule, why.hint[0] ? "; " : "", why.hint);
        for (int i = 0; i < n_out; i++) {
            out[i] = e;
        }
    }
    return rc;
}
