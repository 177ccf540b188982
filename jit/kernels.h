/*
 * jit/kernels.h -- native kernels of fused groups: found or compiled, kept, and run.
 *
 * A kernel starts on the tile interpreter and is native when the compiler is done: wf_jitk_run follows an
 * atomic pointer, so a call never waits and the bits never differ. A compiler that is missing or fails is
 * no error: its reason is recorded and the interpreter goes on.
 *
 * Sizes, strides and scalars are arguments of a run. What a kernel is specialised to is the program (rows,
 * types, the order of operands) and the few options below: batch 1 to 512 is one kernel.
 *
 * Kernels live in one cache of the process, found by the bytes of the program. Those that nobody holds
 * are dropped, oldest use first, when the cache is over its cap (WEFT_JIT_MEMORY). Objects are kept on
 * disk as well (diskcache.h).
 *
 * Everything here may be called from any thread. No lock is held while something is compiled.
 */
#ifndef JIT_KERNELS_H
#define JIT_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "eager/program.h"
#include "jit/ir/backend.h"

typedef struct wf_jitk wf_jitk;

typedef enum wf_jitk_state {
    WF_JITK_PENDING, /* in the queue, or being compiled */
    WF_JITK_NATIVE,
    WF_JITK_TIER0 /* stays on the interpreter: wf_jitk_reason says why */
} wf_jitk_state;

/* Zero is the default of each. */
typedef struct wf_jitk_opts {
    uint32_t
        one; /* bit i: input i is a single element in every run (a 0-d tensor), not just in this */
    bool sync;        /* compile before returning (also WEFT_JIT=2) */
    wf_target target; /* arch NULL: this machine; width 0: chosen from the program */
} wf_jitk_opts;

/* The kernel of a finished program, which is copied; a hold on it that wf_jitk_release gives back. A hit
 * compares bytes and renders nothing. NULL if memory is exhausted. */
wf_jitk *wf_jitk_get(const wf_program *p, const wf_jitk_opts *opts);

/*
 * A thread's first run of a plan, from before its kernels are asked for to the end of the run, where the pool has all CPUs: what is
 * not on disk is compiled when it has ended, since a thread that compiled beside it would take its time from the workers
 * (and from the caller, who waits for them). Kernels of a run that lasts ten times as long as they take to compile, or a second, do not wait any longer;
 * nor do those that somebody else asks for as well, or waits for.
 */
typedef struct wf_jitk_queue {
    wf_jitk *first, *last;
} wf_jitk_queue;
typedef struct wf_jitk_first {
    int64_t since, kernels;             /* when the first was asked for; how many were */
    wf_jitk_queue looked;               /* those that are not on disk */
    bool over;                          /* kernels do not wait for it, or not any longer */
    struct wf_jitk_first *outer, *next; /* of the thread; of all that there are */
} wf_jitk_first;
void wf_jitk_first_begin(wf_jitk_first *r);
void wf_jitk_first_end(wf_jitk_first *r);

void wf_jitk_retain(wf_jitk *k);
void wf_jitk_release(wf_jitk *k); /* NULL is ignored */

/* As wf_program_run_on, natively if that is possible by now. */
int wf_jitk_run(const wf_jitk *k, const wf_program_args *a);

wf_jitk_state wf_jitk_get_state(const wf_jitk *k);
/* Waits until the kernel is not pending; its state then. */
wf_jitk_state wf_jitk_wait(wf_jitk *k);
/* "m_mul_add_gelu__9f3c21ab"; the symbol that perf and gdb show. */
const char *wf_jitk_name(const wf_jitk *k);
/* Why the kernel stays on tier 0; "" if it does not. Of a kernel that is not pending. */
const char *wf_jitk_reason(const wf_jitk *k);

/* The kernels of the cache, the last used one first, each with a hold on it: at most n of them; returns how many there
 * are. */
int wf_jitk_list(wf_jitk **out, int n);
/* A launch took so long (kept while a profile is being taken). */
void wf_jitk_count(wf_jitk *k, int64_t ns);

typedef struct wf_jitk_stats {
    int64_t hits, misses;     /* of wf_jitk_get */
    int64_t compiled, loaded; /* kernels made native by the compiler, or from disk */
    int64_t failed, evicted;
    int64_t kernels, bytes; /* in the cache now */
    int64_t compile_ns;     /* wall time of making kernels native */
} wf_jitk_stats;
void wf_jitk_get_stats(wf_jitk_stats *s);

/* Drops every kernel that nobody holds and is not pending (tests; `weft cache`). */
void wf_jitk_trim(void);
/* Bytes of kernels to keep; from WEFT_JIT_MEMORY at first. */
void wf_jitk_set_cap(int64_t bytes);

#endif
