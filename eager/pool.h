/*
 * eager/pool.h -- weft's own thread pool, the only one in the process that weft starts.
 *
 * Invariants: work is split at multiples of the caller's grain, which follows from shape only, or, where results do not depend on
 * cuts, from the number of threads and who is awake, too; a caller inside a task, or one that finds the pool busy with another
 * thread's work, runs its tasks inline; no thread is started before the first call that needs one.
 */
#ifndef EAGER_POOL_H
#define EAGER_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

/* Processes indices [begin, end). Must not fail; report through arg. */
typedef void (*wf_task_fn)(void *arg, int64_t begin, int64_t end);

/* Runs fn over [0, n) in chunks of `grain` indices (the last may be short): chunk k is always
 * [k * grain, min(n, (k + 1) * grain)), whoever runs it. n <= grain runs inline without waking
 * anyone. Returns after all chunks are done; writes made by tasks are visible to the caller. */
void wf_parallel_for(int64_t n, int64_t grain, wf_task_fn fn, void *arg);

/* Threads that would begin with a job at once: this one, and the workers that are awake, as they are for
 * some microseconds behind a job. 1 inside a task and while another thread uses the pool. A hint:
 * it may be out of date. */
int wf_pool_awake(void);
/* The same for work that `shares` threads (> 1) would share: where many such jobs follow one another closely and nobody is
 * awake, as many sleeping workers are woken for the next ones. */
int wf_pool_call(int64_t shares);
/* wf_parallel_for for work of a few microseconds, to be cut where wf_pool_awake() > 1: it takes a third of
 * one to share it with workers that are awake, and wakes nobody for itself (5 to 50). */
void wf_parallel_awake(int64_t n, int64_t grain, wf_task_fn fn, void *arg);
/* The grain for that: a thread's share of n indices, but at least `least` (> 0), in multiples of `step`; n where they
 * are not to be cut. Depends on who is awake: for work whose results do not depend on its cuts. */
static inline int64_t wf_awake_grain(int64_t n, int64_t least, int64_t step)
{
    const int64_t threads = n < 2 * least ? 1 : wf_pool_call(n / least);
    const int64_t share = (n + threads - 1) / threads;
    const int64_t grain = ((share > least ? share : least) + step - 1) / step * step;
    return threads == 1 || grain > n ? n : grain;
}

/* How n indices are cut, of which `grain` are worth waking a thread for and `least` a share of one that is awake: shares of one size
 * where there are few, in multiples of `step`. (65536 elements and a row more would be a thread's share and a row.) For work whose
 * results do not depend on its cuts. */
typedef struct wf_shares {
    int64_t grain;
    bool wakes; /* for wf_parallel_for, else for wf_parallel_awake */
} wf_shares;
wf_shares wf_even_shares(int64_t n, int64_t grain, int64_t least, int64_t step);
static inline void wf_parallel_shares(int64_t n, wf_shares s, wf_task_fn fn, void *arg)
{
    (s.wakes ? wf_parallel_for : wf_parallel_awake)(n, s.grain, fn, arg);
}
/* n items of `each` elements so, of which `worth` are worth waking a thread for and `awake` a share of one that is awake. */
void wf_parallel_items(int64_t n, int64_t each, int64_t worth, int64_t awake, wf_task_fn fn,
                       void *arg);

/* Threads that wf_parallel_for may use, the caller included (>= 1). Default: CPUs this process may
 * run on, or WEFT_NUM_THREADS. */
int wf_num_threads(void);
/* CPUs that this process may run on, by affinity and control group (>= 1). */
int wf_pool_cpus(void);
/* n >= 1; takes effect at the next wf_parallel_for. Returns 0, or -1 if n is out of [1, 1024]. */
int wf_set_num_threads(int n);
/* Joins all workers; they start again when next needed. Does nothing inside a task. */
void wf_pool_shutdown(void);
/* Workers running now (tests). */
int wf_pool_workers(void);

/* Starts one of weft's own threads, signals blocked: the program's handlers run in the program's threads, and a signal that all
 * of those block, to wait for it, does not end the process here. But faults come where they are made: memory that the program
 * gives may be its handler's to fill. False: the system gives no more threads. */
bool wf_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *));

/* Floating-point environment of kernels: round to nearest, subnormals kept (FTZ and DAZ off), traps
 * masked. Workers always run so; a caller of wf_parallel_for brackets its work with this pair, else
 * its own chunks could differ. Sticky exception flags are left as the work made them. */
#if defined(__SSE__)
enum { WF_MXCSR_CONTROL = 0xFFC0, WF_MXCSR_DEFAULT = 0x1F80 };
static inline unsigned wf_fpenv_enter(void)
{
    unsigned saved = _mm_getcsr();
    if ((saved & WF_MXCSR_CONTROL) != WF_MXCSR_DEFAULT)
        _mm_setcsr(WF_MXCSR_DEFAULT);
    return saved;
}
static inline void wf_fpenv_leave(unsigned saved)
{
    if ((saved & WF_MXCSR_CONTROL) != WF_MXCSR_DEFAULT)
        _mm_setcsr(saved);
}
/* The caller's mode is that of kernels: nothing needs to be bracketed. */
static inline bool wf_fpenv_is_plain(void)
{
    return (_mm_getcsr() & WF_MXCSR_CONTROL) == WF_MXCSR_DEFAULT;
}
#else
static inline unsigned wf_fpenv_enter(void)
{
    int saved = fegetround();
    if (saved != FE_TONEAREST)
        fesetround(FE_TONEAREST);
    return (unsigned)saved;
}
static inline void wf_fpenv_leave(unsigned saved)
{
    if (saved != FE_TONEAREST)
        fesetround((int)saved);
}
static inline bool wf_fpenv_is_plain(void)
{
    return fegetround() == FE_TONEAREST;
}
#endif

/* (float)d in the mode of kernels, for what is converted outside of a bracket. Compilers do not know that a conversion depends on
 * the mode: volatile operand and result keep it where it stands. */
static inline float wf_plain_f32(double d)
{
    if (__builtin_expect(wf_fpenv_is_plain(), 1)) {
        return (float)d;
    }
    const unsigned mode = wf_fpenv_enter();
    const volatile double from = d;
    const volatile float f = (float)from;
    wf_fpenv_leave(mode);
    return f;
}

/* f(arg) in the mode of kernels: behind a call that compilers do not see through, arithmetic stays between the ends of the
 * bracket. */
double wf_plainly(double (*f)(const void *arg), const void *arg);
/* 1 / sqrt(x) so. */
double wf_plain_rsqrt(double x);

/* a / b as wf_plain_f32. */
static inline double wf_plain_quotient(double a, double b)
{
    if (__builtin_expect(wf_fpenv_is_plain(), 1)) {
        return a / b;
    }
    const unsigned mode = wf_fpenv_enter();
    const volatile double over = a, under = b;
    const volatile double q = over / under;
    wf_fpenv_leave(mode);
    return q;
}

#endif
