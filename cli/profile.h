/*
 * cli/profile.h -- what `weft profile` measured: profile.c fills it in, profile_print.c writes it as text or JSON.
 *
 * Times are seconds of one run, means over the same runs, the fastest ones, so that they add up: the steps of a side and
 * its `launching` are its plan, the plan and `call` are the whole.
 */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include "cli/cli.h"
#include "cli/roofline.h"

typedef struct profile_step {
    wf_plan_step_info info;
    char *ops, *sites,    /* names of its ops; where they were called, as far as that is known */
        *unfused;         /* why its operands are not made in it ("" if they all are) */
    int64_t flops, alone; /* alone: bytes that its ops move one by one */
    double seconds, alone_seconds; /* alone_seconds: of its ops one by one */
    double limit;                  /* the least time by the roofline */
    bool by_memory;                /* which is the memory's */
} profile_step;

typedef struct profile_side {
    wf_plan_info info;
    double whole, kernels, launching, call;
    int64_t bytes, flops;
} profile_side;

typedef struct profile_report {
    const char *graph;
    int runs, n;
    bool compared;
    cli_roofline roof;
    profile_side fused, unfused;
    profile_step *steps; /* of fused; n */
    double elsewhere;    /* of the unfused kernels: what belongs to no fused one */
} profile_report;

/* So many of the runs count. */
static inline int profile_fastest(int runs)
{
    return (runs + 7) / 8;
}

void profile_print(const profile_report *r, FILE *out);
/* false: no memory, or it could not be written. */
bool profile_print_json(const profile_report *r, FILE *out);

#endif
