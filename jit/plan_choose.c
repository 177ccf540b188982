/*
 * jit/plan_choose.c -- two plans of one function, and which of them runs: the faster, by measurement.
 *
 * Opening reductions and row-wise rows into groups saves memory traffic, but gives up eager kernels written
 * for one purpose; which is faster depends on sizes, threads and on whether the group is native yet. Both
 * plans give the same bits, so the choice may be made by timing. The plan without opened rows is the first;
 * the other is built when a plan is run for the third time (a shape that is seen once or twice does not pay
 * for it). When the kernels of both are settled they run in turns, one pair after another, and from then on the faster.
 * The other way must win clearly, by its best time and in most pairs: a tie keeps what was there. Of a machine that does
 * other things as well, best times alone say too little; pairs, of which every second one runs the other way first, see
 * the same machine, and where one thread does all, its own time is taken.
 *
 * Invariant: the decision only goes from undecided to one of the two, once.
 */
#include <time.h>

#include "eager/cuda/runtime.h"
#include "eager/env.h"
#include "eager/pool.h"
#include "eager/profile.h"
#include "jit/passes/pass.h"
#include "jit/plan_int.h"

enum {
    WARM_UP = 2, /* pairs that do not count */
    SEEN_OFTEN = 3,
    CLEARLY = 98, /* percent of the other's time */
    MOST = 60     /* percent of the pairs */
};

static int64_t (*_Atomic planted)(void);

void wf_plan_plant_clock(int64_t (*now)(void))
{
    atomic_store_explicit(&planted, now, memory_order_release);
}

int64_t wf_plan_now(void)
{
    int64_t (*const now)(void) = atomic_load_explicit(&planted, memory_order_acquire);
    return __builtin_expect(now != NULL, 0) ? now() : wf_prof_clock();
}

int64_t wf_plan_choice_clock(bool device)
{
    struct timespec t;
    const bool alone =
        !device && wf_num_threads() == 1 && !atomic_load_explicit(&planted, memory_order_acquire);
    if (!alone || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t)) {
        return wf_plan_now();
    }
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

/* Which way turn t runs: pairs of 0 1, 1 0, 0 1, ... */
static int way_of(int turn)
{
    return (turn ^ turn >> 1) & 1;
}

/* Best times of the two ways, and whether the other won most of the pairs. Runs that failed have no time. */
static bool compare(wf_plan *p, int64_t best[2])
{
    int pairs = 0, won = 0;
    best[0] = best[1] = INT64_MAX;
    for (int t = 0; t < WF_PLAN_TURNS; t += 2) {
        int64_t ns[2];
        for (int i = 0; i < 2; i++) {
            ns[way_of(t + i)] = atomic_load_explicit(&p->took[t + i], memory_order_relaxed);
        }
        if (ns[0] && ns[1]) {
            best[0] = ns[0] < best[0] ? ns[0] : best[0];
            best[1] = ns[1] < best[1] ? ns[1] : best[1];
            won += ns[1] < ns[0] / 100 * CLEARLY;
            pairs++;
        }
    }
    return pairs && best[1] < best[0] / 100 * CLEARLY && won * 100 >= pairs * MOST;
}

static void decide(wf_plan *p)
{
    int64_t ns[2];
    int undecided = WF_CHOICE_TRIAL;
    const bool won = compare(p, ns) && wf_stage_may(WF_STAGE_rows);
    wf_work_tell(p->fn->name);
    const int faster = won ? WF_CHOICE_ROWS : WF_CHOICE_PLAIN;
    if (atomic_compare_exchange_strong(&p->choice, &undecided, faster) &&
        wf_env_debug(WF_DEBUG_FUSION)) {
        fprintf(stderr, "weft: plan of %s: rows %s, %.1f us against %.1f us\n", p->fn->name,
                won ? "are opened" : "stay closed", 1e-3 * (double)ns[won],
                1e-3 * (double)ns[!won]);
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
    const int turn = atomic_fetch_add_explicit(&p->turn, 1, memory_order_relaxed) - 2 * WARM_UP;
    int64_t start = wf_plan_choice_clock(a->device);
    int rc = wf_plan_run_steps(way_of(turn) ? rows : p, a, why);
    if (!rc && turn >= 0 && turn < WF_PLAN_TURNS) {
        const int64_t ns = wf_plan_choice_clock(a->device) - start;
        atomic_store_explicit(&p->took[turn], ns > 0 ? ns : 1, memory_order_relaxed);
    }
    if (turn >= WF_PLAN_TURNS -
                    1) { /* another thread's last turn may be under way: its pair does not count */
        decide(p);
    }
    return rc;
}

int wf_plan_run(wf_plan *p, wf_plan_args *a, wf_why *why)
{
    int64_t start = wf_prof_start();
    const bool held =
        a->device && !p->validates; /* validation waits within the run: it is told there */
    if (held) {
        wf_cuda_op_hold(true);
    }
    int rc = run_chosen(p, a, why);
    if (held) {
        wf_cuda_op_hold(false);
    }
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
