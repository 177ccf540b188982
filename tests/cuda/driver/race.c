/*
 * tests/cuda/driver/race.c -- finds pairs of accesses to the same bytes that no order was promised for.
 *
 * Two pieces of work are ordered when one's place on its stream is in the other's vector clock. What the
 * host has waited for is before everything still to come, and is forgotten. Copies, clears and built-in
 * kernels say exactly what they touch; kernels of loaded objects do not and are left out.
 */
#include "tests/cuda/driver/core.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ACCESSES = 8192 };
typedef struct access {
    range r;
    int stream;
    uint64_t at;
    clock_vector clock;
    const char *what;
} access;
static access accesses[MAX_ACCESSES];
static int n_accesses;

static bool ordered(const access *a, const op *o)
{
    return a->at <= o->clock.at[a->stream] || o->clock.at[o->stream] <= a->clock.at[o->stream];
}

static bool overlap(const range *a, const range *b)
{
    return a->address < b->address + b->size && b->address < a->address + a->size;
}

static void report(const access *a, const op *o, const range *r)
{
    if (fake.races++ == 0) {
        snprintf(fake.first_race, sizeof fake.first_race,
                 "%s on stream %d %s %zu bytes at %#llx, which %s on stream %d %s: not ordered",
                 o->what, o->stream, r->write ? "writes" : "reads", r->size,
                 (unsigned long long)r->address, a->what, a->stream,
                 a->r.write ? "writes" : "reads");
    }
}

static void forget_waited(void)
{
    int n = 0;
    for (int i = 0; i < n_accesses; i++) {
        if (accesses[i].at > fake.host.at[accesses[i].stream]) {
            accesses[n++] = accesses[i];
        }
    }
    n_accesses = n;
}

/* Later work that is ordered behind o is ordered behind what o is ordered behind. */
static void forget_covered(const op *o, const range *r)
{
    int n = 0;
    for (int i = 0; i < n_accesses; i++) {
        const access *a = &accesses[i];
        bool inside =
            a->r.address >= r->address && a->r.address + a->r.size <= r->address + r->size;
        if (!(inside && (r->write || !a->r.write) && a->at <= o->clock.at[a->stream])) {
            accesses[n++] = *a;
        }
    }
    n_accesses = n;
}

void race_check(const op *o)
{
    if (o->n_ranges == 0) {
        return;
    }
    forget_waited();
    for (int k = 0; k < o->n_ranges; k++) {
        const range *r = &o->ranges[k];
        for (int i = 0; i < n_accesses; i++) {
            const access *a = &accesses[i];
            if ((a->r.write || r->write) && overlap(&a->r, r) && !ordered(a, o)) {
                report(a, o, r);
            }
        }
    }
    for (int k = 0; k < o->n_ranges; k++) {
        forget_covered(o, &o->ranges[k]);
        if (n_accesses < MAX_ACCESSES) {
            accesses[n_accesses++] =
                (access){o->ranges[k], o->stream, o->clock.at[o->stream], o->clock, o->what};
        }
    }
}

void race_forget(uint64_t address, size_t size)
{
    range dead = {address, size, true};
    int n = 0;
    for (int i = 0; i < n_accesses; i++) {
        if (!overlap(&accesses[i].r, &dead)) {
            accesses[n++] = accesses[i];
        }
    }
    n_accesses = n;
}

void race_reset(void)
{
    n_accesses = 0;
}
