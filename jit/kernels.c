/*
 * jit/kernels.c -- the cache of kernels and the thread that compiles them; see kernels.h.
 *
 * Invariants
 *  - One lock guards the table, the list by use, the queue and the holds; nothing is compiled, loaded or
 *    unloaded under it.
 *  - A kernel in the table is found by the bytes of its key, never by a hash alone. While it is pending
 *    it stays in the table, so the same kernel is never compiled twice at once.
 *  - A kernel is freed by whoever brings its holds to 0 outside the table, or drops it from the table
 *    when nobody holds it; runs happen under a hold, so no code is unloaded under a running thread.
 *  - The compiling thread takes kernels in the order they were asked for, but for those of a plan's first run, which it only looks for
 *    on disk until that has ended. A synchronous get compiles what it asked for itself if that has not begun,
 *    and else waits for it.
 *  - A kernel that is pending and not started lies in one queue: of the cache, or of the first run that it names, which is one of
 *    cache.first_runs.
 *  - Whoever compiles or unloads is counted in `busy`, and a fork waits until nobody is: the compiler's
 *    locks (LLVM's among them) are not ours to take, and a child would find them held for ever.
 */
#include "jit/kernels.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "eager/env.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/diskcache.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"

enum {
    BUCKETS = 4096,
    KERNEL_NS = 5000000, /* what one takes to compile, about */
    SHARE =
        10, /* a run that lasts so many times as long as its kernels take is not spared any longer, ... */
    MOST_NS = 1000000000 /* ... nor one of a second */
};

static struct cache {
    pthread_mutex_t lock;
    pthread_cond_t work; /* the queue has something, or `stop` */
    pthread_cond_t done; /* some kernel is no longer pending, nobody is busy, or no fork waits */
    wf_jitk *bucket[BUCKETS];
    wf_jitk *newest, *oldest;
    int64_t idle; /* kernels of the table that are not pending and that nobody holds */
    wf_jitk_queue queue;
    wf_jitk_first *first_runs;
    wf_jitk *looking; /* the kernel that is looked for on disk */
    pthread_t thread;
    int64_t busy;  /* threads that compile or unload */
    int64_t forks; /* threads that wait to fork: nobody begins to compile */
    bool running, stop, ready;
    int64_t cap;
    wf_jitk_stats stats;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .work = PTHREAD_COND_INITIALIZER,
           .done = PTHREAD_COND_INITIALIZER};
/* The first run of a plan that this thread is in, or NULL. */
static _Thread_local wf_jitk_first *first_run;

void wf_hash128(const void *data, size_t n, uint64_t out[2])
{
    const unsigned char *p = data;
    uint64_t a = 0x9E3779B97F4A7C15u ^ n, b = 0xC2B2AE3D27D4EB4Fu + n;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, p + i, n - i < 8 ? n - i : 8);
        a = (a ^ w) * 0xFF51AFD7ED558CCDu;
        a ^= a >> 32;
        b = (b + w) * 0x9FB21C651E98DF25u;
        b = (b << 29 | b >> 35) ^ a;
    }
    a = (a ^ b >> 31) * 0xC4CEB9FE1A85EC53u;
    b = (b ^ a >> 29) * 0xBF58476D1CE4E5B9u;
    out[0] = a ^ a >> 33;
    out[1] = b ^ b >> 32;
}

/* -- table and list, under the lock --------------------------------------------------------------------- */
static wf_jitk **find(uint64_t hash, const char *key, size_t nkey)
{
    wf_jitk **at = &cache.bucket[hash % BUCKETS];
    while (*at &&
           ((*at)->hash != hash || (*at)->nkey != nkey || memcmp((*at)->key, key, nkey) != 0))
        at = &(*at)->chain;
    return at;
}

static void unlink_use(wf_jitk *k)
{
    *(k->newer ? &k->newer->older : &cache.newest) = k->older;
    *(k->older ? &k->older->newer : &cache.oldest) = k->newer;
    k->newer = k->older = NULL;
}

static void link_use(wf_jitk *k)
{
    k->older = cache.newest;
    k->newer = NULL;
    *(cache.newest ? &cache.newest->newer : &cache.oldest) = k;
    cache.newest = k;
}

static void unlist(wf_jitk *k)
{
    *find(k->hash, k->key, k->nkey) = k->chain;
    unlink_use(k);
    k->listed = false;
    cache.stats.kernels--;
    cache.stats.bytes -= k->bytes;
}

static int state_of(const wf_jitk *k)
{
    return atomic_load_explicit(&k->state, memory_order_acquire);
}

/* May it go? */
static bool is_idle(const wf_jitk *k)
{
    return k->holds == 0 && state_of(k) != WF_JITK_PENDING;
}

static void hold(wf_jitk *k)
{
    cache.idle -= is_idle(k);
    k->holds++;
}

/* Takes what nobody holds out of the table, oldest use first, until `cap` bytes are left; a chain, which
 * is for drop(): until then the thread counts as busy. */
static wf_jitk *take_surplus(int64_t cap)
{
    wf_jitk *taken = NULL;
    for (wf_jitk *k = cache.oldest, *next; cache.idle > 0 && cache.stats.bytes > cap; k = next) {
        next = k->newer;
        if (!is_idle(k))
            continue;
        cache.idle--;
        unlist(k);
        cache.stats.evicted++;
        k->behind = taken;
        taken = k;
    }
    cache.busy += taken != NULL;
    return taken;
}

/* -- kernels, without the lock ---------------------------------------------------------------------------- */
static void destroy(wf_jitk *k)
{
    while (k) {
        wf_jitk *next = k->behind;
        wf_backend_cpu.unload(atomic_load(&k->exe));
        if (k->rows)
            free(k->rows->stage);
        free(k->rows);
        free(k->key);
        free(k);
        k = next;
    }
}

static void end_busy(void)
{
    cache.busy--;
    pthread_cond_broadcast(&cache.done);
}

static void drop(wf_jitk *surplus)
{
    if (!surplus)
        return;
    destroy(surplus);
    pthread_mutex_lock(&cache.lock);
    end_busy();
    pthread_mutex_unlock(&cache.lock);
}

/* Which CPU to compile for. WEFT_ISA lowers it as it lowers the eager kernels. */
static const char *default_arch(void)
{
    const char *isa = wf_env()->WEFT_ISA;
    return strcmp(isa, "sse2") == 0 ? "x86-64" : strcmp(isa, "avx2") == 0 ? "x86-64-v3" : "host";
}

static wf_jitk *create(const wf_program *p, const wf_jitk_opts *o, const char *arch)
{
    wf_text key = {0};
    uint64_t hash[2];
    wf_jitk *k = calloc(1, sizeof *k);
    wf_lower_key(p, o->one, &key);
    wf_text_putf(&key, "%s %d", arch, o->target.width);
    if (!k || key.failed) {
        free(k);
        wf_text_free(&key);
        return NULL;
    }
    wf_hash128(key.s, key.n, hash);
    k->program = *p;
    k->one = o->one;
    k->hash = hash[0];
    k->key = key.s;
    k->nkey = key.n;
    k->width = o->target.width;
    snprintf(k->arch, sizeof k->arch, "%s", arch);
    k->bytes = (int64_t)(sizeof *k + key.n);
    k->holds = 1;
    return k;
}

/* -- compiling -------------------------------------------------------------------------------------------- */
static void enqueue(wf_jitk_queue *q, wf_jitk *k)
{
    *(q->last ? &q->last->behind : &q->first) = k;
    q->last = k;
    k->behind = NULL;
    k->queue = q;
}

/* Out of its queue and into the hands of the calling thread. */
static void take_from_queue(wf_jitk *k)
{
    wf_jitk_queue *q = k->queue;
    wf_jitk *before = NULL;
    for (wf_jitk *at = q->first; at != k; at = at->behind)
        before = at;
    *(before ? &before->behind : &q->first) = k->behind;
    if (q->last == k)
        q->last = before;
    k->behind = NULL;
    k->queue = NULL;
    k->started = true;
}

/* Looks for a kernel taken from a queue, or (loads: no) compiles it, and publishes it; one that is not on disk is not started
 * afterwards, and in no queue. Called and returns with the lock held. */
static bool make_taken(wf_jitk *k, bool loads)
{
    const int64_t before = k->bytes;
    cache.busy++;
    pthread_mutex_unlock(&cache.lock);
    const bool made = (!loads || *wf_disk_folder()) && wf_jitk_build(k, loads);
    pthread_mutex_lock(&cache.lock);
    if (made) {
        const bool native = atomic_load_explicit(&k->exe, memory_order_relaxed) != NULL;
        cache.stats.bytes += k->bytes - before;
        cache.stats.compile_ns += k->build_ns;
        *(!native        ? &cache.stats.failed
          : k->from_disk ? &cache.stats.loaded
                         : &cache.stats.compiled) += 1;
        atomic_store_explicit(&k->state, native ? WF_JITK_NATIVE : WF_JITK_TIER0,
                              memory_order_release);
        cache.idle += is_idle(k);
        k->first = NULL;
    } else {
        k->looked = true;
        k->started = false;
    }
    end_busy();
    return made;
}

/* -- first runs, under the lock --------------------------------------------------------------------------- */
/* When its kernels do not wait any longer. */
static int64_t due(const wf_jitk_first *r)
{
    if (r->kernels == 0)
        return INT64_MAX;
    const int64_t ns = r->kernels * KERNEL_NS * SHARE;
    return r->since + (ns < MOST_NS ? ns : MOST_NS);
}

/* Nothing waits for it any more. */
static void free_kernels_of(wf_jitk_first *r)
{
    for (wf_jitk *k = r->looked.first, *next; k; k = next) {
        next = k->behind;
        k->first = NULL;
        enqueue(&cache.queue, k);
    }
    r->looked = (wf_jitk_queue){NULL, NULL};
    for (wf_jitk *k = cache.queue.first; k; k = k->behind)
        k->first = k->first == r ? NULL : k->first;
    if (cache.looking && cache.looking->first == r)
        cache.looking->first = NULL;
}

/* Takes it out of the list, and lets its kernels go. */
static void end_first(wf_jitk_first *r)
{
    wf_jitk_first **at = &cache.first_runs;
    while (*at && *at != r)
        at = &(*at)->next;
    if (*at) {
        *at = r->next;
        r->over = true;
        free_kernels_of(r);
    }
}

/* Lets those go that have waited long enough; when the next one will have, INT64_MAX: there is none. */
static int64_t drop_due(void)
{
    const int64_t now = wf_prof_clock();
    int64_t wake = INT64_MAX;
    for (wf_jitk_first *r = cache.first_runs, *next; r; r = next) {
        next = r->next;
        if (due(r) <= now)
            end_first(r);
        else if (r->looked.first && due(r) < wake)
            wake = due(r);
    }
    return wake;
}

/* Somebody else asks for k, or waits for it: it waits for no run. */
static void let_go(wf_jitk *k)
{
    if (k->first && k->queue == &k->first->looked) {
        take_from_queue(k);
        k->started = false;
        enqueue(&cache.queue, k);
    }
    k->first = NULL;
}

/* Until there is something to do, or that time. */
static void wait_for_work(int64_t wake)
{
    struct timespec at;
    if (wake == INT64_MAX) {
        pthread_cond_wait(&cache.work, &cache.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &at); /* a clock that is set costs no more than time on tier 0 */
    const int64_t ns = at.tv_nsec + (wake - wf_prof_clock());
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    at.tv_nsec = at.tv_nsec < 0 ? 0 : at.tv_nsec;
    pthread_cond_timedwait(&cache.work, &cache.lock, &at);
}

static void *compiling_thread(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&cache.lock);
    while (!cache.stop) {
        const int64_t wake = drop_due();
        wf_jitk *k = cache.queue.first;
        if (!k) {
            wait_for_work(wake);
            continue;
        }
        if (cache.forks > 0) {
            pthread_cond_wait(&cache.done, &cache.lock);
            continue;
        }
        take_from_queue(k);
        cache.looking = k;
        const bool made = make_taken(k, k->first != NULL);
        cache.looking = NULL;
        if (!made)
            enqueue(k->first ? &k->first->looked : &cache.queue, k);
        wf_jitk *surplus = take_surplus(cache.cap);
        pthread_mutex_unlock(&cache.lock);
        drop(surplus);
        pthread_mutex_lock(&cache.lock);
    }
    pthread_mutex_unlock(&cache.lock);
    return NULL;
}

void wf_jitk_first_begin(wf_jitk_first *r)
{
    /* or there is a CPU for the compiler */
    *r = (wf_jitk_first){.over = wf_num_threads() < wf_pool_cpus(), .outer = first_run};
    first_run = r;
    if (r->over)
        return;
    pthread_mutex_lock(&cache.lock);
    r->next = cache.first_runs;
    cache.first_runs = r;
    pthread_mutex_unlock(&cache.lock);
}

void wf_jitk_first_end(wf_jitk_first *r)
{
    first_run = r->outer;
    pthread_mutex_lock(&cache.lock);
    end_first(r);
    if (cache.queue.first)
        pthread_cond_signal(&cache.work);
    pthread_mutex_unlock(&cache.lock);
}

/* At exit, before the compiler's library is closed. */
static void stop_thread(void)
{
    pthread_mutex_lock(&cache.lock);
    const bool running = cache.running;
    cache.stop = true;
    cache.running = false;
    pthread_cond_broadcast(&cache.work);
    pthread_mutex_unlock(&cache.lock);
    if (running)
        pthread_join(cache.thread, NULL);
}

/* A fork happens while nobody compiles or unloads, so what the compiler and its library lock is free in
 * the child and no kernel is half made there. This waits for the compilations under way, which are one
 * for each thread that compiles; others begin after the fork. */
static void before_fork(void)
{
    pthread_mutex_lock(&cache.lock);
    cache.forks++;
    while (cache.busy > 0)
        pthread_cond_wait(&cache.done, &cache.lock);
    cache.forks--;
    pthread_cond_broadcast(&cache.done);
    wf_disk_before_fork();
}
static void after_fork(void)
{
    wf_disk_after_fork();
    pthread_mutex_unlock(&cache.lock);
}
/* A forked child has no compiling thread: the next kernel that is asked for starts one. */
static void in_child(void)
{
    pthread_cond_init(&cache.work, NULL);
    pthread_cond_init(&cache.done, NULL);
    cache.running = false;
    cache.forks = 0;
    while (cache.first_runs) /* the threads of most are not here */
        end_first(cache.first_runs);
    after_fork();
}

static void set_up(void)
{
    if (cache.ready)
        return;
    cache.ready = true;
    cache.cap = wf_env_stress("evict", NULL) ? 0 : wf_env()->WEFT_JIT_MEMORY;
    pthread_atfork(before_fork, after_fork, in_child);
    atexit(stop_thread);
}

/* -- interface --------------------------------------------------------------------------------------------- */
static void settle_at_once(wf_jitk *k)
{
    snprintf(k->name, sizeof k->name, "tier0");
    snprintf(k->reason, sizeof k->reason, "WEFT_JIT=0");
    atomic_store(&k->state, WF_JITK_TIER0);
}

/* The listed kernel of fresh's key, which is fresh unless somebody was quicker. */
static wf_jitk *look_up_or_list(wf_jitk *fresh)
{
    wf_jitk **at = find(fresh->hash, fresh->key, fresh->nkey);
    if (*at) {
        wf_jitk *k = *at;
        hold(k);
        k->hits++;
        cache.stats.hits++;
        unlink_use(k);
        link_use(k);
        if (k->first != first_run)
            let_go(k);
        return k;
    }
    *at = fresh;
    link_use(fresh);
    fresh->listed = true;
    cache.stats.misses++;
    cache.stats.kernels++;
    cache.stats.bytes += fresh->bytes;
    if (wf_env()->WEFT_JIT == 0) {
        settle_at_once(fresh);
        return fresh;
    }
    enqueue(&cache.queue, fresh);
    if (first_run && !first_run->over) {
        first_run->since = first_run->since ? first_run->since : wf_prof_clock();
        first_run->kernels++;
        fresh->first = first_run;
    }
    return fresh;
}

wf_jitk *wf_jitk_get(const wf_program *p, const wf_jitk_opts *opts)
{
    const wf_jitk_opts o = opts ? *opts : (wf_jitk_opts){0};
    const bool sync = o.sync || wf_env()->WEFT_JIT == 2;
    wf_jitk *fresh = create(p, &o, o.target.arch ? o.target.arch : default_arch());
    if (!fresh)
        return NULL;
    pthread_mutex_lock(&cache.lock);
    set_up();
    wf_jitk *k = look_up_or_list(fresh);
    if (cache.queue.first && !sync && !cache.running && !cache.stop)
        cache.running = wf_thread_start(&cache.thread, "weft-compiler", compiling_thread);
    if (!sync)
        pthread_cond_signal(&cache.work);
    wf_jitk *surplus = take_surplus(cache.cap);
    pthread_mutex_unlock(&cache.lock);
    if (k != fresh)
        destroy(fresh);
    drop(surplus);
    if (sync)
        wf_jitk_wait(k);
    return k;
}

void wf_jitk_retain(wf_jitk *k)
{
    pthread_mutex_lock(&cache.lock);
    hold(k);
    pthread_mutex_unlock(&cache.lock);
}

void wf_jitk_release(wf_jitk *k)
{
    if (!k)
        return;
    pthread_mutex_lock(&cache.lock);
    k->holds--;
    cache.idle += is_idle(k);
    wf_jitk *surplus = take_surplus(cache.cap);
    pthread_mutex_unlock(&cache.lock);
    drop(surplus);
}

wf_jitk_state wf_jitk_get_state(const wf_jitk *k)
{
    return (wf_jitk_state)state_of(k);
}

wf_jitk_state wf_jitk_wait(wf_jitk *k)
{
    if (state_of(k) != WF_JITK_PENDING)
        return (wf_jitk_state)state_of(k);
    pthread_mutex_lock(&cache.lock);
    while (state_of(k) == WF_JITK_PENDING) {
        if (k->started || cache.forks > 0) {
            pthread_cond_wait(&cache.done, &cache.lock);
            continue;
        }
        let_go(k);
        take_from_queue(k);
        make_taken(k, false);
    }
    pthread_mutex_unlock(&cache.lock);
    return (wf_jitk_state)state_of(k);
}

const char *wf_jitk_name(const wf_jitk *k)
{
    return state_of(k) == WF_JITK_PENDING ? "pending" : k->name;
}

const char *wf_jitk_reason(const wf_jitk *k)
{
    return state_of(k) == WF_JITK_PENDING ? "" : k->reason;
}

int wf_jitk_list(wf_jitk **out, int n)
{
    int all = 0;
    pthread_mutex_lock(&cache.lock);
    for (wf_jitk *k = cache.newest; k; k = k->older, all++) {
        if (all < n) {
            hold(k);
            out[all] = k;
        }
    }
    pthread_mutex_unlock(&cache.lock);
    return all;
}

void wf_jitk_get_stats(wf_jitk_stats *s)
{
    pthread_mutex_lock(&cache.lock);
    *s = cache.stats;
    pthread_mutex_unlock(&cache.lock);
}

void wf_jitk_trim(void)
{
    pthread_mutex_lock(&cache.lock);
    wf_jitk *surplus = take_surplus(0);
    pthread_mutex_unlock(&cache.lock);
    drop(surplus);
}

void wf_jitk_set_cap(int64_t bytes)
{
    pthread_mutex_lock(&cache.lock);
    set_up();
    cache.cap = bytes;
    wf_jitk *surplus = take_surplus(bytes);
    pthread_mutex_unlock(&cache.lock);
    drop(surplus);
}
