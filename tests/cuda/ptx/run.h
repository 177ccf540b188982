/*
 * tests/cuda/ptx/run.h -- what the files share that carry a launch out: its threads and memory.
 *
 * A launch is one call under the driver's lock, and ends at the first error: there is one state.
 */
#ifndef TESTS_CUDA_PTX_RUN_H
#define TESTS_CUDA_PTX_RUN_H

#include <setjmp.h>

#include "tests/cuda/ptx/machine.h"

enum state { RUNNING, AT_BARRIER, AT_WARP, GONE };
typedef struct thread {
    uint64_t *reg; /* of its lane: register r is at r * LANES */
    int pc;        /* while it runs, where its lanes began */
    enum state state;
    bool waited; /* for the launch before */
    unsigned id, warp;
    unsigned char *local;
} thread;

/* Who touched a byte of shared memory, when: numbers of barriers passed. Numbers grow from block to block, so that what an
 * earlier one left is over: of shared memory. */
enum { MANY_OF_A_WARP = 1, MANY };
typedef struct touch {
    uint32_t block, warp;
    uint16_t thread;
    uint8_t many;
    bool
        earlier; /* of reads of global memory: a block before that of the last one was there, too */
} touch;

/* Memory that a launch has touched, and who did if there is not too much of it. */
enum { RANGES = 4096, FOUND = 1024, MOST_SHARED = 232448, MOST_WATCHED = 1 << 20 };
typedef struct range {
    uint64_t low, high;
    touch *touched;
} range;
/* The launch that runs: one at a time. */
typedef struct ptx_state {
    const ptx_module *m;
    const ptx_kernel *k;
    const ptx_launch *l;
    unsigned nthread, nwarp, block, shared_bytes;
    uint64_t most_steps; /* of a warp between two stops */
    unsigned char *shared, *param;
    touch *wrote, *read;
    thread thread[MOST_THREADS];
    uint32_t now, block_now, warp_now[MOST_THREADS / LANES];
    range range[RANGES];
    uint16_t found[FOUND];
    int nrange, pc; /* of the lanes that run */
    char *error;
    size_t nerror;
    jmp_buf out;
} ptx_state;
extern ptx_state run;

/* run.c: leaves the launch, with the instruction, the block and the thread behind the text. */
_Noreturn void run_fail(const thread *t, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* memory.c: ld, st, atom and cvta. */
void run_load(const thread *t, const ptx_insn *i);
void run_store(const thread *t, const ptx_insn *i);
void run_atomic(const thread *t, const ptx_insn *i);
void run_cvta(const thread *t, const ptx_insn *i);

static inline uint64_t *register_of(const thread *t, int number)
{
    return &t->reg[(size_t)number * LANES];
}

static inline uint64_t get(const thread *t, const ptx_operand *o)
{
    const uint64_t v = o->place == VALUE ? o->value : *register_of(t, o->reg);
    return o->not ? !v : v;
}

static inline void put(const thread *t, const ptx_operand *o, uint64_t v)
{
    if (o->place == REGISTER) {
        *register_of(t, o->reg) = v & ptx_mask(o->bits);
    }
}

#endif
