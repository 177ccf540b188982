/*
 * eager/pool.c -- fork-join over shape-defined chunks.
 *
 * One job runs at a time. `state` holds the number of its unclaimed chunks (low half) and a job
 * number (high half, against ABA): claiming is a compare-and-swap that takes one off, so whoever
 * succeeds owns a chunk of the job that is live, and may read the job's plain fields, which cannot
 * change before that chunk is reported. A late worker sees zero and touches nothing. `pending`
 * counts chunks not yet finished; the caller works too, then waits for it to reach zero.
 *
 * Waiting, on both sides, is a short spin and then a futex: a worker that finds no job within
 * SPIN_NS sleeps, and a caller whose last chunks sit on a worker that lost its CPU sleeps instead
 * of keeping that CPU from it. Sleepers announce themselves before re-checking the word they sleep
 * on, and the other side changes the word before looking for sleepers (all seq_cst), so no wake-up
 * is lost.
 *
 * Workers are pinned to one CPU each, the caller never is. When the caller has moved onto the CPU
 * of a sleeping worker, that worker is sent to the CPU left free before it is woken: a worker
 * queued behind a busy caller would wait for a whole scheduler slice.
 *
 * `busy` is the right to use the pool; who does not get it runs inline. A forked child has no
 * workers: everything is reset there and the next call starts its own.
 */
#include "eager/pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/profile.h"

enum { MAX_THREADS = 1024, LINE = 128, SPIN_NS = 15000, SPIN_BATCH = 16 };

/* Chunks of one job are counted in 31 bits; larger ranges run as several jobs. */
#define MAX_CHUNKS ((int64_t)1 << 30)

typedef struct worker {
    pthread_t thread;
    int cpu; /* pinned there, -1 if not pinned */
} worker;

static struct pool {
    _Alignas(LINE) _Atomic uint64_t state; /* job number << 32 | unclaimed chunks */
    _Alignas(LINE) _Atomic uint32_t pending;
    _Atomic uint32_t caller_sleeps;
    _Alignas(LINE) _Atomic uint32_t wake_seq;
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    /* the job: written by the owner while nothing is claimable */
    _Alignas(LINE) wf_task_fn fn;
    void *arg;
    int64_t begin, n, grain, nchunks;
    const char *label; /* of the job, for a profile */
    /* held by the owner of `busy` */
    _Alignas(LINE) atomic_bool busy;
    uint32_t job;
    uint32_t fork_gen;
    int home;  /* a CPU that no worker is pinned to, -1 if workers are not pinned */
    int tried; /* workers last asked of start_workers: a system that gives fewer is not asked again
                */
    atomic_int nworkers;
    atomic_int want; /* threads asked for, 0 before the first question */
    worker workers[MAX_THREADS];
} pool;

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Inside a chunk of a job (not of an inline run: nested work there may find the pool free). */
static _Thread_local bool in_task __attribute__((tls_model("initial-exec")));

/* -- system ------------------------------------------------------------------------------------ */

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static bool read_line(const char *path, char *buf, int size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(buf, size, f) != NULL;
    fclose(f);
    return ok;
}

/* CPUs' worth of time the control group allows, 0 if unlimited or unknown. */
static int cgroup_cpus(void)
{
    char line[256], path[320];
    long long quota, period;
    if (read_line("/proc/self/cgroup", line, sizeof line) && strncmp(line, "0::", 3) == 0) {
        line[strcspn(line, "\n")] = 0;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", line + 3);
        if ((read_line(path, line, sizeof line) ||
             read_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) &&
            sscanf(line, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
            return (int)((quota + period - 1) / period);
        return 0;
    }
    if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtoll(line, NULL, 10);
        if (quota > 0 && read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", line, sizeof line)) {
            period = strtoll(line, NULL, 10);
            if (period > 0)
                return (int)((quota + period - 1) / period);
        }
    }
    return 0;
}

/* CPUs of this process in ascending order, at most MAX_THREADS; returns how many (>= 1). */
static int allowed_cpus(int *cpus)
{
    static cpu_set_t sets[8]; /* 8192 CPUs; guarded by `busy` or `once` */
    int n = 0;
    memset(sets, 0, sizeof sets);
    if (sched_getaffinity(getpid(), sizeof sets, sets) == 0)
        for (size_t cpu = 0; cpu < sizeof sets * 8 && n < MAX_THREADS; cpu++)
            if (CPU_ISSET_S(cpu, sizeof sets, sets))
                cpus[n++] = (int)cpu;
    if (n == 0)
        cpus[n++] = -1;
    return n;
}

static bool pin(pthread_t thread, int cpu)
{
    cpu_set_t sets[8];
    memset(sets, 0, sizeof sets);
    CPU_SET_S((size_t)cpu, sizeof sets, sets);
    return pthread_setaffinity_np(thread, sizeof sets, sets) == 0;
}

/* -- start and stop ---------------------------------------------------------------------------- */

static void after_fork_in_child(void)
{
    atomic_store(&pool.state, (uint64_t)++pool.job << 32);
    atomic_store(&pool.pending, 0);
    atomic_store(&pool.caller_sleeps, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.stop, false);
    atomic_store(&pool.nworkers, 0);
    pool.tried = 0;
    pool.fork_gen++;
    atomic_store(&pool.busy,
                 in_task); /* a fork inside a task: this thread finishes its job alone */
}

static void init(void)
{
    static int cpus[MAX_THREADS];
    int64_t n = wf_env()->WEFT_NUM_THREADS;
    if (n < 1) {
        int quota = cgroup_cpus();
        n = allowed_cpus(cpus);
        if (quota > 0 && quota < n)
            n = quota;
    }
    int none = 0;
    atomic_compare_exchange_strong(&pool.want, &none, n > MAX_THREADS ? MAX_THREADS : (int)n);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Runs chunks of the live job until none is unclaimed; returns how many it ran. */
static uint32_t run_chunks(void)
{
    uint32_t done = 0;
    uint64_t s = atomic_load_explicit(&pool.state, memory_order_acquire);
    while ((uint32_t)s) {
        if (!atomic_compare_exchange_weak_explicit(&pool.state, &s, s - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        int64_t k = pool.nchunks - (int64_t)(uint32_t)s;
        int64_t first = k * pool.grain;
        int64_t last = pool.n - first < pool.grain ? pool.n : first + pool.grain;
        pool.fn(pool.arg, pool.begin + first, pool.begin + last);
        done++;
        s = atomic_load_explicit(&pool.state, memory_order_acquire);
    }
    return done;
}

static void report(uint32_t done)
{
    if (done && atomic_fetch_sub(&pool.pending, done) == done && atomic_load(&pool.caller_sleeps))
        futex_wake(&pool.pending, 1);
}

/* Spins until a job can be claimed or the pool stops; false when the time is up. */
static bool spin_for_job(void)
{
    int64_t deadline = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if ((uint32_t)atomic_load_explicit(&pool.state, memory_order_acquire) ||
                atomic_load_explicit(&pool.stop, memory_order_relaxed))
                return true;
            cpu_relax();
        }
    } while (now_ns() < deadline);
    return false;
}

/* The job's name is read before the job can be over. */
static void report_noted(uint32_t done, int64_t start)
{
    char name[64];
    snprintf(name, sizeof name, "%s", pool.label ? pool.label : "job");
    wf_prof_span share = {WEFT_PROFILE_WORKER, .name = name, .end = wf_prof_clock()};
    report(done);
    wf_prof_end(start, &share);
}

static void *worker_main(void *arg)
{
    (void)arg;
    wf_fpenv_enter();
    in_task = true;
    for (;;) {
        if (!spin_for_job()) {
            atomic_fetch_add(&pool.sleepers, 1);
            uint32_t seq = atomic_load(&pool.wake_seq);
            if (!(uint32_t)atomic_load(&pool.state) && !atomic_load(&pool.stop))
                futex_wait(&pool.wake_seq, seq);
            atomic_fetch_sub(&pool.sleepers, 1);
        }
        if (atomic_load(&pool.stop))
            return NULL;
        int64_t start = wf_prof_start();
        uint32_t done = run_chunks();
        if (start && done)
            report_noted(done, start);
        else
            report(done);
    }
}

static void wake_workers(int n)
{
    atomic_fetch_add(&pool.wake_seq, 1);
    if (atomic_load(&pool.sleepers))
        futex_wake(&pool.wake_seq, n);
}

/* Owner of `busy` only. */
static void stop_workers(void)
{
    int n = atomic_load(&pool.nworkers);
    atomic_store(&pool.stop, true);
    wake_workers(MAX_THREADS);
    for (int i = 0; i < n; i++)
        pthread_join(pool.workers[i].thread, NULL);
    atomic_store(&pool.nworkers, 0);
    atomic_store(&pool.stop, false);
    pool.tried = 0;
}

/* Starts workers up to `n`, each with every signal blocked so that the program's handlers run in
 * the program's threads. Fewer than asked for is not an error. Owner of `busy` only. */
static void start_workers(int n)
{
    static int cpus[MAX_THREADS];
    int ncpu = allowed_cpus(cpus), here = sched_getcpu(), at = 0;
    sigset_t all, old;
    while (at < ncpu && cpus[at] != here)
        at++;
    bool pinned = wf_env()->WEFT_PIN && n < ncpu && at < ncpu;
    pool.home = pinned ? here : -1;
    pool.tried = n;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int i = 0; i < n; i++) {
        worker *w = &pool.workers[i];
        if (pthread_create(&w->thread, NULL, worker_main, NULL) != 0)
            break;
        pthread_setname_np(w->thread, "weft-worker");
        w->cpu = pinned ? cpus[(at + 1 + i) % ncpu] : -1;
        if (pinned && !pin(w->thread, w->cpu))
            w->cpu = -1;
        atomic_store(&pool.nworkers, i + 1);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* If the caller sits on a worker's CPU, that worker takes the free one. Owner of `busy` only. */
static void make_room(void)
{
    int here = sched_getcpu();
    if (pool.home < 0 || here == pool.home || here < 0)
        return;
    for (int i = 0; i < atomic_load_explicit(&pool.nworkers, memory_order_relaxed); i++) {
        worker *w = &pool.workers[i];
        if (w->cpu != here)
            continue;
        if (pin(w->thread, pool.home)) {
            w->cpu = pool.home;
            pool.home = here;
        }
        return;
    }
}

/* -- running ----------------------------------------------------------------------------------- */

static void run_inline(int64_t begin, int64_t n, int64_t grain, wf_task_fn fn, void *arg)
{
    for (int64_t i = 0; i < n; i += grain)
        fn(arg, begin + i, begin + (n - i < grain ? n : i + grain));
}

static void wait_pending(uint32_t gen)
{
    int64_t deadline = 0;
    for (int spins = 1; atomic_load_explicit(&pool.pending, memory_order_acquire); spins++) {
        if (pool.fork_gen != gen)
            return;
        cpu_relax();
        if (spins % SPIN_BATCH)
            continue;
        int64_t now = now_ns();
        if (deadline == 0)
            deadline = now + SPIN_NS;
        if (now < deadline)
            continue;
        atomic_store(&pool.caller_sleeps, 1);
        uint32_t left;
        while ((left = atomic_load(&pool.pending)) != 0)
            futex_wait(&pool.pending, left);
        atomic_store(&pool.caller_sleeps, 0);
        return;
    }
}

/* One job of at most MAX_CHUNKS chunks on the workers and this thread. Owner of `busy` only. */
static void run_job(int64_t begin, int64_t n, int64_t grain, wf_task_fn fn, void *arg)
{
    int64_t nchunks = n / grain + (n % grain != 0);
    uint32_t gen = pool.fork_gen;
    pool.fn = fn;
    pool.arg = arg;
    pool.begin = begin;
    pool.n = n;
    pool.grain = grain;
    pool.nchunks = nchunks;
    if (wf_prof_is_on())
        pool.label = wf_prof_label;
    atomic_store_explicit(&pool.pending, (uint32_t)nchunks, memory_order_relaxed);
    atomic_store(&pool.state, (uint64_t)++pool.job << 32 | (uint32_t)nchunks);
    if (atomic_load(&pool.sleepers))
        make_room();
    wake_workers((int)(nchunks - 1 < MAX_THREADS ? nchunks - 1 : MAX_THREADS));
    in_task = true;
    uint32_t done = run_chunks();
    in_task = false;
    if (pool.fork_gen != gen)
        return; /* a forked child: what other threads had claimed is not coming back */
    if (atomic_fetch_sub(&pool.pending, done) != done)
        wait_pending(gen);
}

void wf_parallel_for(int64_t n, int64_t grain, wf_task_fn fn, void *arg)
{
    if (n <= 0)
        return;
    grain = grain < 1 ? 1 : grain;
    if (n <= grain) {
        fn(arg, 0, n);
        return;
    }
    int workers = wf_num_threads() - 1;
    if (in_task || workers == 0 ||
        atomic_exchange_explicit(&pool.busy, true, memory_order_acquire)) {
        run_inline(0, n, grain, fn, arg);
        return;
    }
    if (pool.tried != workers) {
        stop_workers();
        start_workers(workers);
    }
    int have = atomic_load_explicit(&pool.nworkers, memory_order_relaxed);
    int64_t step = grain > INT64_MAX / MAX_CHUNKS ? INT64_MAX : grain * MAX_CHUNKS;
    for (int64_t i = 0, len; i < n; i += len) {
        len = n - i < step ? n - i : step;
        if (have == 0)
            run_inline(i, len, grain, fn, arg);
        else
            run_job(i, len, grain, fn, arg);
    }
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}

int wf_num_threads(void)
{
    int n = atomic_load_explicit(&pool.want, memory_order_acquire);
    if (__builtin_expect(n > 0, 1))
        return n;
    pthread_once(&once, init);
    return atomic_load_explicit(&pool.want, memory_order_acquire);
}

int wf_set_num_threads(int n)
{
    if (n < 1 || n > MAX_THREADS)
        return -1;
    pthread_once(&once, init);
    atomic_store_explicit(&pool.want, n, memory_order_release);
    return 0;
}

int wf_pool_workers(void)
{
    return atomic_load(&pool.nworkers);
}

void wf_pool_shutdown(void)
{
    if (in_task)
        return;
    while (atomic_exchange_explicit(&pool.busy, true, memory_order_acquire))
        sched_yield();
    stop_workers();
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}
