/*
 * jit/kernels_impl.h -- a kernel of the cache as its parts see it: kernels.c (cache and queue),
 * kernels_build.c (making one) and kernels_run.c (running one).
 */
#ifndef JIT_KERNELS_IMPL_H
#define JIT_KERNELS_IMPL_H

#include <stdatomic.h>

#include "jit/kernels.h"

struct wf_jitk {
    /* read by runs */
    _Atomic(wf_exe *) exe; /* NULL: the interpreter runs */
    wf_program program;
    uint32_t one;
    /* settled before `state` leaves WF_JITK_PENDING */
    atomic_int state;
    wf_rows_kernel *rows; /* of a native kernel over rows; its stages' bodies are gone */
    char name[64], reason[224];
    bool from_disk;
    int64_t bytes, build_ns;
    _Atomic int64_t runs, run_ns; /* that were counted */
    /* of the cache, under its lock */
    int64_t holds, hits;
    bool listed, started; /* in the table; taken by a thread that looks for it or compiles */
    bool looked;          /* it is not on disk */
    wf_jitk_first *first; /* a run that it waits for, or NULL */
    wf_jitk_queue *queue; /* where it lies, if it is pending and not started */
    uint64_t hash;
    char *key; /* bytes of program, options and target */
    size_t nkey;
    char arch[64];
    int width;
    wf_jitk *chain;         /* of the bucket */
    wf_jitk *newer, *older; /* by last use */
    wf_jitk *behind;        /* in its queue */
};

/* Compiles or loads: fills exe (or NULL), name, reason, from_disk, bytes, build_ns. Holds no lock. loads: it is not compiled; false:
 * it would have to be, and nothing has been filled in. */
bool wf_jitk_build(wf_jitk *k, bool loads);
/* A native kernel over rows on operands; WEFT_EUNSUPPORTED: these are for the interpreter. */
int wf_jitk_run_rows(const wf_jitk *k, const wf_exe *exe, const uint64_t *scalar,
                     const wf_program_args *a);
/* Two independent 64-bit hashes of the bytes. */
void wf_hash128(const void *data, size_t n, uint64_t out[2]);

#endif
