/*
 * tests/jit/test_kernels_awake.c -- kernels with work of a few microseconds: a worker that is awake takes a share, and no bit
 * changes.
 *
 * Who takes what is forced: the halves of a source cannot be read at first, and the handler of that fault waits until the other
 * half is asked for as well, which another thread must do, as this one waits.
 *
 * ctest: threads timeout=300
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "eager/pool.h"
#include "tests/jit/programs.h"

enum { COUNT = 32768, HALF = COUNT / 2 * 4 }; /* elements of the source; bytes of its half */
static const int64_t patience_ns = 200000000;
/* Beside other programs both threads may have no CPU at once for a second and more, however often that is tried. */
static const int64_t all_tries_ns = 60000000000;

static char *source;
static atomic_int asked[2]; /* the half has been asked for */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool wait_for(atomic_int *what, int least)
{
    for (const int64_t end = now_ns() + patience_ns; now_ns() < end;) {
        if (atomic_load(what) >= least)
            return true;
        sched_yield();
    }
    return false;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    const ptrdiff_t at = (char *)info->si_addr - source;
    if (at < 0 || at >= 2 * HALF) {
        const struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(SIGSEGV, &plain, NULL);
        return;
    }
    const int half = at >= HALF;
    atomic_store(&asked[half], 1);
    wait_for(&asked[1 - half], 1);
    mprotect(source + half * HALF, HALF, PROT_READ);
}

/* Both threads are in it at once, so a worker is awake behind it. */
static void meet(void *arg, int64_t begin, int64_t end)
{
    atomic_int *there = arg;
    (void)begin, (void)end;
    atomic_fetch_add(there, 1);
    wait_for(there, 2);
}

/* Runs until two threads share the work once; false if they never do. */
static bool run_shared(const wf_jitk *k, const wf_program_args *a)
{
    for (const int64_t end = now_ns() + all_tries_ns; now_ns() < end;) {
        atomic_int there = 0;
        atomic_store(&asked[0], 0);
        atomic_store(&asked[1], 0);
        cr_assert_eq(mprotect(source, (size_t)2 * HALF, PROT_NONE), 0);
        wf_parallel_for(2, 1, meet, &there);
        if (wf_pool_awake() < 2)
            continue;
        /* who is alone faults at both halves too, but has let go of the first by then */
        const int64_t start = now_ns();
        cr_assert_eq(wf_jitk_run(k, a), 0);
        if (now_ns() - start < patience_ns)
            return atomic_load(&asked[0]) && atomic_load(&asked[1]);
    }
    return false;
}

static void check_shared(program_maker make, int64_t rows)
{
    static wf_program p;
    wf_program_init(&p);
    make(&p, WEFT_F32);
    cr_assert_eq(wf_program_finish(&p), 0);
    wf_jitk *k = wf_jitk_get(&p, &(wf_jitk_opts){.sync = true});
    cr_assert_eq(wf_jitk_get_state(k), WF_JITK_NATIVE, "%s", wf_jitk_reason(k));
    operands o;
    make_operands(&o, &p, 2, (int64_t[]){rows, COUNT / rows}, true, 1);
    o.axes = p.rows ? 2 : 0;
    cr_assert_eq(mprotect(source, (size_t)2 * HALF, PROT_READ | PROT_WRITE), 0);
    memcpy(source, o.src[0].data, (size_t)2 * HALF);
    o.src[0].data = source;
    const wf_program_args want = {.dst = o.want, .src = o.src, .scalars = o.scalar, .axes = o.axes};
    const wf_program_args got = {.dst = o.dst, .src = o.src, .scalars = o.scalar, .axes = o.axes};
    wf_set_num_threads(1);
    cr_assert_eq(wf_jitk_run(k, &want), 0);
    wf_set_num_threads(2);
    cr_assert(run_shared(k, &got), "%s: nobody took a share", wf_jitk_name(k));
    check_outputs(&o, &p, wf_jitk_name(k), 0);
    drop_operands(&o);
    wf_jitk_release(k);
}

static void program_step(wf_program *p, int dtype)
{
    wf_program_output(p, program_map1(p, WF_OP_NEG, wf_program_input(p, dtype)));
}

static void program_norm(wf_program *p, int dtype)
{
    const int x = wf_program_input(p, dtype), y = program_map1(p, WF_OP_NEG, x);
    const int most = wf_program_reduce(p, WF_OP_AMAX, y);
    wf_program_output(p, wf_program_reduce(p, WF_OP_SUM, program_map2(p, WF_OP_MUL, y, y)));
    wf_program_output(p, program_map1(p, WF_OP_ABS, most));
}

Test(kernels_awake, shares)
{
    NEED_LLVM();
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < 2)
        cr_skip_test("one CPU: a worker that sleeps comes too late for a share");
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
    source =
        mmap(NULL, (size_t)2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(source != MAP_FAILED);
    cr_assert_eq(sigaction(SIGSEGV, &action, &old), 0);
    check_shared(program_step, 32);    /* elements */
    check_shared(program_norm, 32);    /* rows */
    check_shared(program_softmax, 32); /* rows with buffers */
    check_shared(program_norm, 1);     /* blocks of a row */
    sigaction(SIGSEGV, &old, NULL);
    munmap(source, (size_t)2 * HALF);
}
