/*
 * jit/passes/clock.c -- what each stage and work between a recording and its kernels takes; see pass.h.
 *
 * A thread is in one of them at a time: entering another stops the clock of the one before, so that times add up and none counts
 * twice. Where nobody asked nothing is measured and no memory is taken.
 *
 * Invariant: a thread's clock goes when it has told and is in nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "eager/env.h"
#include "jit/passes/pass.h"

enum { IDLE = -1, UNTIMED = -2 };

typedef struct wf_stopwatch {
    int now; /* IDLE: in nothing */
    uint64_t since, ns[WF_TIMED_COUNT];
    uint32_t decisions[WF_TIMED_COUNT];
    bool entered[WF_TIMED_COUNT];
} wf_stopwatch;

static _Thread_local wf_stopwatch *mine;

static const char *const names[WF_TIMED_COUNT] = {
#define STAGE(id, text) [WF_TIMED_##id] = #id,
#define WORK(id, text) [WF_TIMED_##id] = #id,
#include "jit/passes/passes.def"
};

uint64_t wf_pass_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool wf_pass_tells(void)
{
    return wf_pass_listed(wf_env()->WEFT_STATS, "pass") || wf_env_debug(WF_DEBUG_PASSES);
}

static void change(wf_stopwatch *w, int to)
{
    const uint64_t now = wf_pass_now();
    if (w->now >= 0) {
        w->ns[w->now] += now - w->since;
    }
    w->now = to;
    w->since = now;
}

int wf_work_enter(wf_timed what)
{
    if (!wf_pass_tells()) {
        return UNTIMED;
    }
    if (!mine && (mine = calloc(1, sizeof *mine)) != NULL) {
        mine->now = IDLE;
    }
    if (!mine) {
        return UNTIMED;
    }
    const int before = mine->now;
    change(mine, (int)what);
    mine->entered[what] = true;
    return before;
}

void wf_work_leave(int before)
{
    if (before != UNTIMED) {
        change(mine, before);
    }
}

void wf_work_decided(wf_stage_id id)
{
    if (mine) {
        mine->decisions[id]++;
        mine->entered[id] = true;
    }
}

void wf_work_tell(const char *name)
{
    wf_stopwatch *w = mine;
    if (!w || w->now != IDLE) { /* whoever is in it tells */
        return;
    }
    for (int i = 0; i < WF_TIMED_COUNT; i++) {
        if (!w->entered[i]) {
            continue;
        }
        fprintf(stderr, "weft: %s %-8s %-16s ", i < WF_STAGE_COUNT ? "stage" : "work ", names[i],
                name);
        if (i < WF_STAGE_COUNT) {
            fprintf(stderr, "%6u decisions, ", w->decisions[i]);
        }
        fprintf(stderr, "%.3f ms\n", (double)w->ns[i] * 1e-6);
    }
    mine = NULL;
    free(w);
}

wf_stopwatch *wf_work_aside(void)
{
    wf_stopwatch *caller = mine;
    if (caller) {
        change(caller, caller->now);
    }
    mine = NULL;
    return caller;
}

void wf_work_resume(wf_stopwatch *caller, const char *name)
{
    if (name) {
        wf_work_tell(name);
    }
    free(mine); /* told, or not to be */
    mine = caller;
    if (caller) {
        caller->since = wf_pass_now();
    }
}
