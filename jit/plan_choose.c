/*
 * jit/plan_choose.c -- two plans of one function, and which of them runs: the faster, by measurement.
 *
 * Opening reductions and row-wise rows into groups saves memory traffic, but gives up eager kernels written
 * for one purpose; which is faster depends on sizes, threads and on whether the group is native yet. Both
 * plans give the same bits, so the choice may be made by timing. The plan without opened rows is the first;
 * the other is built when a plan is run for the third time (a shape that is seen once or twice does not pay
 * for it). When the kernels of both are settled they run in turns, TRIALS times each, and from then on the one
 * whose best time was lower. The other way must win clearly: a tie keeps what was there.
 *
 * Invariant: the decision only goes from undecided to one of the two, once.
 */
#include <time.h>

#include "eager/env.h"
#include "eager/profile.h"
#include "jit/passes/pass.h"
#include "jit/plan_int.h"

enum { TRIALS = 5, WARM_UP = 2, SEEN_OFTEN = 3, CLEARLY = 98 /* percent of the other's time */ };

int64_t wf_plan_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Are all kernels native, or known to stay on tier 0? */
static bool is_settled(const wf_plan *p)
{
    for (uint32_t i = 0; i < p->nprograms; i++) {
        if (p->programs[i].kernel && wf_jitk_get_state(p->programs[i].kernel) == WF_JITK_PENDING) {
            return false;
        }
    }
    return true;
}

static void keep_least(_Atomic int64_t *best, int64_t t)
{
    int64_t old = atomic_load_explicit(best, memory_order_relaxed);
    while (t < old && !atomic_compare_exchange_weak_explicit(best, &old, t, memory_order_relaxed,
                                                             memory_order_relaxed)) {
    }
}

static void decide(wf_plan *p)
{
    int64_t plain = atomic_load_explicit(&p->best[0], memory_order_relaxed);
    int64_t rows = atomic_load_explicit(&p->best[1], memory_order_relaxed);
    int undecided = WF_CHOICE_TRIAL;
    const int faster = rows < plain / 100 * CLEARLY && wf_stage_may(WF_STAGE_rows)
                           ? WF_CHOICE_ROWS
                           : WF_CHOICE_PLAIN;
    if (atomic_compare_exchange_strong(&p->choice, &undecided, faster) &&
        wf_env_debug(WF_DEBUG_FUSION)) {
        fprintf(stderr, "weft: plan of %s: rows %s, %.1f us against %.1f us\n", p->fn->name,
                faster == WF_CHOICE_ROWS ? "are opened" : "stay closed",
                1e-3 * (double)(faster == WF_CHOICE_ROWS ? rows : plain),
                1e-3 * (double)(faster == WF_CHOICE_ROWS ? plain : rows));
        wf_plan_explain(p, stderr);
    }
}

/* The other plan, built by the thread whose run is the third. */
static wf_plan *other_plan(wf_plan *p)
{
    wf_plan *rows = atomic_load_explicit(&p->rows, memory_order_acquire);
    if (rows || atomic_fetch_add_explicit(&p->runs, 1, memory_order_relaxed) + 1 != SEEN_OFTEN) {
        return rows;
    }
    rows = wf_plan_open_rows(p);
    if (!rows) {
        atomic_store_explicit(&p->choice, WF_CHOICE_PLAIN, memory_order_relaxed);
    }
    atomic_store_explicit(&p->rows, rows, memory_order_release);
    return rows;
}

static int run_chosen(wf_plan *p, wf_plan_args *a, wf_why *why)
{
    int choice = atomic_load_explicit(&p->choice, memory_order_acquire);
    if (choice == WF_CHOICE_PLAIN) {
        return wf_plan_run_steps(p, a, why);
    }
    wf_plan *rows = choice == WF_CHOICE_ROWS ? atomic_load_explicit(&p->rows, memory_order_acquire)
                                             : other_plan(p);
    if (choice == WF_CHOICE_ROWS) {
        return wf_plan_run_steps(rows, a, why);
    }
    if (!rows || !is_settled(p) || !is_settled(rows)) {
        return wf_plan_run_steps(p, a, why);
    }
    int turn = atomic_fetch_add_explicit(&p->turn, 1, memory_order_relaxed);
    int64_t start = wf_plan_now();
    int rc = wf_plan_run_steps(turn % 2 ? rows : p, a, why);
    if (!rc && turn >= 2 * WARM_UP) {
        keep_least(&p->best[turn % 2], wf_plan_now() - start);
    }
    if (turn >= 2 * (WARM_UP + TRIALS)) {
        decide(p);
    }
    return rc;
}

int wf_plan_run(wf_plan *p, wf_plan_args *a, wf_why *why)
{
    int64_t start = wf_prof_start();
    int rc = run_chosen(p, a, why);
    if (start) {
        wf_prof_end(start, &(wf_prof_span){WEFT_PROFILE_RUN, .name = p->fn->name});
        wf_prof_memory();
    }
    return rc;
}

bool wf_plan_is_settled(const wf_plan *p)
{
    return atomic_load_explicit(&p->choice, memory_order_relaxed) != WF_CHOICE_TRIAL;
}
