/*
 * eager/pool.c -- fork-join over shape-defined chunks.
 *
 * One job runs at a time. `state` holds the range of its unclaimed chunks (first in the low half, end
 * in the high one): claiming is a compare-and-swap that takes one off an end, so whoever succeeds owns
 * a chunk of the job that is live, and may read the job's plain fields, which cannot change before
 * that chunk is reported. What is claimed follows from the word that was swapped alone, so it does not
 * matter whether it is an old one that has come again. A late worker sees an empty range and touches
 * nothing. `pending` counts chunks not yet finished; the caller works too, then waits for it to reach
 * zero.
 *
 * The caller claims from the front (the first chunk with the job itself), workers from the back: on two threads an op's halves are in
 * the second caches of the CPUs on which the op before it has put them.
 *
 * What a worker has to read of a job lies in one line of memory with the range: a line takes 50 to 150 ns to come from another CPU,
 * and there is work of 2 us.
 *
 * Waiting, on both sides, is a short spin and then a futex: a worker that finds no job within
 * SPIN_NS sleeps, and a caller whose last chunks sit on a worker that lost its CPU gives way and then
 * sleeps instead of keeping that CPU from it (not at once: to be woken takes 20 us and more). Sleepers announce themselves before re-checking the word they sleep
 * on, and the other side changes the word before looking for sleepers (all seq_cst), so no wake-up
 * is lost.
 *
 * A job of a few microseconds is not worth a wake-up, but a third of one is all it takes to share it
 * with workers that still spin (wf_parallel_awake). Such jobs keep these awake, each for SPIN_AGAIN_NS:
 * a worker is idle while awake at most that long for each such job. A thread that finds nobody awake for one such job
 * close behind the other calls the workers for those to come, which costs a system call, and all threads together do it
 * at most once in CALL_NS.
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
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/profile.h"

enum {
    MAX_THREADS = 1024,
    LINE = 128,
    SPIN_NS = 15000,
    SPIN_AGAIN_NS = 8000, /* that a job which wakes nobody adds, up to SPIN_NS */
    YIELD_NS = 100000,    /* a waiting caller gives way that long before it sleeps */
    SPIN_BATCH = 16,
    STREAK = 16, /* jobs that nobody shared, one behind the other, before workers are called */
    STREAK_NS = 25000, /* between their beginnings at most */
    CALL_NS = 1000000
};

/* Chunks of one job are counted in 31 bits; larger ranges run as several jobs. */
#define MAX_CHUNKS ((int64_t)1 << 30)

typedef struct worker {
    pthread_t thread;
    int cpu; /* pinned there, -1 if not pinned */
} worker;

static struct pool {
    _Alignas(LINE) _Atomic uint64_t state; /* unclaimed chunks: end << 32 | first */
    _Atomic uint32_t pending;
    /* the job: written by the owner while nothing is claimable */
    bool wakes; /* sleeping workers, too */
    wf_task_fn fn;
    void *arg;
    int64_t begin, n, grain;
    _Alignas(LINE) _Atomic uint32_t wake_seq;
    _Atomic uint32_t sleepers;
    _Atomic uint32_t caller_sleeps;
    _Atomic bool stop;
    const char *label;      /* of the job, for a profile */
    _Atomic int64_t called; /* when small jobs last called workers */
    /* held by the owner of `busy` */
    _Alignas(LINE) atomic_bool busy;
    uint32_t fork_gen;
    int home;  /* a CPU that no worker is pinned to, -1 if workers are not pinned */
    int tried; /* workers last asked of start_workers: a system that gives fewer is not asked again
                */
    atomic_int nworkers;
    atomic_int want; /* threads asked for, 0 before the first question */
    int cpus;        /* set once */
    worker workers[MAX_THREADS];
} pool;
_Static_assert(offsetof(struct pool, grain) + sizeof(int64_t) <= 64,
               "a job and the range of its chunks are one line");

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
    atomic_store(&pool.state, 0);
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
    const int64_t asked = wf_env()->WEFT_NUM_THREADS;
    const int quota = cgroup_cpus(), allowed = allowed_cpus(cpus);
    pool.cpus = quota > 0 && quota < allowed ? quota : allowed;
    const int64_t n = asked < 1 ? pool.cpus : asked;
    int none = 0;
    atomic_compare_exchange_strong(&pool.want, &none, n > MAX_THREADS ? MAX_THREADS : (int)n);
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static bool has_chunks(uint64_t state)
{
    return (uint32_t)state != state >> 32;
}

static void run_chunk(int64_t k)
{
    const int64_t first = k * pool.grain;
    const int64_t last = pool.n - first < pool.grain ? pool.n : first + pool.grain;
    pool.fn(pool.arg, pool.begin + first, pool.begin + last);
}

/* Runs chunks of the live job until none is unclaimed; returns how many it ran. *woken: was one of
 * a job that wakes? */
static uint32_t run_chunks(bool from_back, bool *woken)
{
    uint32_t done = 0;
    uint64_t s = atomic_load_explicit(&pool.state, memory_order_acquire);
    while (has_chunks(s)) {
        const uint64_t left = from_back ? s - (UINT64_C(1) << 32) : s + 1;
        if (!atomic_compare_exchange_weak_explicit(&pool.state, &s, left, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        *woken |= pool.wakes;
        run_chunk((int64_t)(from_back ? left >> 32 : s & UINT32_MAX));
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
static bool spin_for_job(int64_t deadline)
{
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (has_chunks(atomic_load_explicit(&pool.state, memory_order_acquire)) ||
                atomic_load_explicit(&pool.stop, memory_order_relaxed))
                return true;
            cpu_relax();
        }
    } while (now_ns() < deadline);
    return false;
}

/* Until when to spin behind work: long enough for a program that has work worth a wake-up; less work is worth less. */
static int64_t spin_until(int64_t deadline, bool woken)
{
    const int64_t now = now_ns(), more = (deadline > now ? deadline : now) + SPIN_AGAIN_NS;
    return woken || more > now + SPIN_NS ? now + SPIN_NS : more;
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
    int64_t deadline = now_ns() + SPIN_NS;
    for (bool woken = false;; woken = false) {
        if (!spin_for_job(deadline)) {
            atomic_fetch_add(&pool.sleepers, 1);
            uint32_t seq = atomic_load(&pool.wake_seq);
            if (!has_chunks(atomic_load(&pool.state)) && !atomic_load(&pool.stop))
                futex_wait(&pool.wake_seq, seq);
            atomic_fetch_sub(&pool.sleepers, 1);
            woken = true;
        }
        if (atomic_load(&pool.stop))
            return NULL;
        int64_t start = wf_prof_start();
        uint32_t done = run_chunks(true, &woken);
        if (start && done)
            report_noted(done, start);
        else
            report(done);
        deadline = spin_until(deadline, woken);
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

bool wf_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *))
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t all, old;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = pthread_create(thread, NULL, fn, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ok)
        pthread_setname_np(*thread, name);
    return ok;
}

/* Starts workers up to `n`. Fewer than asked for is not an error. Owner of `busy` only. */
static void start_workers(int n)
{
    static int cpus[MAX_THREADS];
    int ncpu = allowed_cpus(cpus), here = sched_getcpu(), at = 0;
    while (at < ncpu && cpus[at] != here)
        at++;
    bool pinned = wf_env()->WEFT_PIN && n < ncpu && at < ncpu;
    pool.home = pinned ? here : -1;
    pool.tried = n;
    for (int i = 0; i < n; i++) {
        worker *w = &pool.workers[i];
        if (!wf_thread_start(&w->thread, "weft-worker", worker_main))
            break;
        w->cpu = pinned ? cpus[(at + 1 + i) % ncpu] : -1;
        if (pinned && !pin(w->thread, w->cpu))
            w->cpu = -1;
        atomic_store(&pool.nworkers, i + 1);
    }
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
        if (now < deadline + YIELD_NS) {
            sched_yield();
            continue;
        }
        atomic_store(&pool.caller_sleeps, 1);
        uint32_t left;
        while ((left = atomic_load(&pool.pending)) != 0)
            futex_wait(&pool.pending, left);
        atomic_store(&pool.caller_sleeps, 0);
        return;
    }
}

/* One job of at most MAX_CHUNKS chunks on the workers and this thread. Owner of `busy` only. */
static void run_job(int64_t begin, int64_t n, int64_t grain, wf_task_fn fn, void *arg, bool wakes)
{
    int64_t nchunks = n / grain + (n % grain != 0);
    uint32_t gen = pool.fork_gen;
    pool.fn = fn;
    pool.arg = arg;
    pool.begin = begin;
    pool.n = n;
    pool.grain = grain;
    pool.wakes = wakes;
    if (wf_prof_is_on())
        pool.label = wf_prof_label;
    atomic_store_explicit(&pool.pending, (uint32_t)nchunks, memory_order_relaxed);
    /* The first chunk is this thread's. Who wakes nobody goes on before the others see it. */
    atomic_store_explicit(&pool.state, (uint64_t)nchunks << 32 | 1,
                          wakes ? memory_order_seq_cst : memory_order_release);
    if (wakes) {
        if (atomic_load(&pool.sleepers))
            make_room();
        wake_workers((int)(nchunks - 1 < MAX_THREADS ? nchunks - 1 : MAX_THREADS));
    }
    in_task = true;
    run_chunk(0);
    uint32_t done = 1 + run_chunks(false, &wakes);
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
            run_job(i, len, grain, fn, arg, true);
    }
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}

int wf_pool_awake(void)
{
    const int workers = atomic_load_explicit(&pool.nworkers, memory_order_relaxed);
    const int asleep = (int)atomic_load_explicit(&pool.sleepers, memory_order_relaxed);
    if (workers <= asleep || in_task || atomic_load_explicit(&pool.busy, memory_order_relaxed))
        return 1;
    const int threads = workers - asleep + 1, want = wf_num_threads();
    return threads < want ? threads : want;
}

/* Of a thread: its small jobs that nobody shared. */
typedef struct lonely {
    int64_t last; /* when the last one began */
    int streak;
} lonely;
static _Thread_local lonely alone __attribute__((tls_model("initial-exec")));

int wf_pool_call(int64_t shares)
{
    const int awake = wf_pool_awake(), workers = wf_num_threads() - 1;
    if (awake > 1 || workers == 0 || in_task)
        return awake;
    const int64_t now = now_ns();
    alone.streak = now - alone.last > STREAK_NS ? 1 : alone.streak + 1;
    alone.last = now;
    if (alone.streak < STREAK ||
        now - atomic_load_explicit(&pool.called, memory_order_relaxed) < CALL_NS ||
        atomic_exchange_explicit(&pool.busy, true, memory_order_acquire))
        return 1;
    atomic_store_explicit(&pool.called, now, memory_order_relaxed);
    if (pool.tried != workers) {
        stop_workers();
        start_workers(workers);
    } else {
        make_room();
        wake_workers(shares - 1 < workers ? (int)(shares - 1) : workers);
    }
    atomic_store_explicit(&pool.busy, false, memory_order_release);
    return 1;
}

void wf_parallel_awake(int64_t n, int64_t grain, wf_task_fn fn, void *arg)
{
    grain = grain < 1 ? 1 : grain;
    const bool mine = n > grain && n / grain < MAX_CHUNKS && wf_pool_awake() > 1 &&
                      !atomic_exchange_explicit(&pool.busy, true, memory_order_acquire);
    if (!mine) {
        run_inline(0, n, grain, fn, arg);
        return;
    }
    if (pool.tried == wf_num_threads() - 1 &&
        atomic_load_explicit(&pool.nworkers, memory_order_relaxed) > 0)
        run_job(0, n, grain, fn, arg, false);
    else
        run_inline(0, n, grain, fn, arg);
    atomic_store_explicit(&pool.busy, false, memory_order_release);
}

wf_shares wf_even_shares(int64_t n, int64_t grain, int64_t least, int64_t step)
{
    enum { FEW = 8 }; /* shares of a thread; of more, who is done takes another */
    const int64_t threads = wf_num_threads();
    int64_t parts = n / grain + (n % grain >= (grain + 1) / 2);
    if (parts < 2)
        return (wf_shares){wf_awake_grain(n, least, step), false};
    if (parts > threads && parts <= FEW * threads)
        parts -= parts % threads;
    const int64_t share = parts > FEW * threads ? grain : n / parts + (n % parts != 0);
    return (wf_shares){(share + step - 1) / step * step, true};
}

void wf_parallel_items(int64_t n, int64_t each, int64_t worth, int64_t awake, wf_task_fn fn,
                       void *arg)
{
    wf_parallel_shares(
        n, wf_even_shares(n, (worth + each - 1) / each, (awake + each - 1) / each, 1), fn, arg);
}

int wf_num_threads(void)
{
    int n = atomic_load_explicit(&pool.want, memory_order_acquire);
    if (__builtin_expect(n > 0, 1))
        return n;
    pthread_once(&once, init);
    return atomic_load_explicit(&pool.want, memory_order_acquire);
}

int wf_pool_cpus(void)
{
    pthread_once(&once, init);
    return pool.cpus;
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

/* -- numbers in the mode of kernels ---------------------------------------------------------------------------- */

double wf_plainly(double (*f)(const void *arg), const void *arg)
{
    double (*volatile opaque)(const void *) = f;
    const unsigned mode = wf_fpenv_enter();
    const double y = opaque(arg);
    wf_fpenv_leave(mode);
    return y;
}

static double rsqrt_of(const void *x)
{
    return 1 / sqrt(*(const double *)x);
}

double wf_plain_rsqrt(double x)
{
    return wf_plainly(rsqrt_of, &x);
}
