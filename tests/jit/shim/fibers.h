/*
 * tests/jit/shim/fibers.h -- a machine that executes CUDA text on the host, one block at a time.
 *
 * Every thread of a block is a fiber on a small stack; a context switch is a few pushes and pops. A barrier
 * is passed when all threads of the block stand at the same one, a shuffle when all 32 lanes of the warp
 * stand at the same one. Anything else (a lane that left, another line, a mask that is not full) is
 * divergence and ends the launch with a reason. Text without barriers runs as a plain loop.
 */
#ifndef TESTS_JIT_SHIM_FIBERS_H
#define TESTS_JIT_SHIM_FIBERS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shim_dim {
    unsigned x, y, z;
} shim_dim;
typedef struct shim_thread {
    shim_dim thread, block;
} shim_thread;
typedef struct shim_machine {
    shim_thread *self;
    shim_dim block_dim, grid_dim;
    unsigned long long *dynamic;
    void (*sync)(int line);
    void (*shuffle)(int line, unsigned mask, void *v, unsigned size, int down, int from, int width);
} shim_machine;

typedef void (*shim_entry)(void *const *ptr, const long long *size);

/* Stacks begin in other sets of a cache: at a distance of a power of two all their ends would share a few. */
enum { SHIM_THREADS = 1024, SHIM_STACK = 65536 + 13 * 64, SHIM_WARP = 32 };
enum shim_state { SHIM_READY, SHIM_AT_BARRIER, SHIM_AT_SHUFFLE, SHIM_DONE };

typedef struct shim_fiber {
    void *sp;
    enum shim_state state;
    int line, down, from, width;
    unsigned mask, size;
    unsigned char value[8];
    shim_thread at;
} shim_fiber;

static struct {
    shim_machine machine;
    shim_fiber fiber[SHIM_THREADS];
    int count, now;
    void *home;
    char *stacks;
    shim_entry entry;
    void *const *ptr;
    const long long *size;
    const char *divergence;
} shim_run;

/* Saves the callee-saved registers and the stack pointer, continues on another stack. */
void shim_switch(void **save, void *to);
__asm__(".text\n"
        ".globl shim_switch\n"
        ".type shim_switch, @function\n"
        "shim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size shim_switch, .-shim_switch\n");

static void shim_wait(enum shim_state state)
{
    shim_fiber *f = &shim_run.fiber[shim_run.now];
    f->state = state;
    shim_switch(&f->sp, shim_run.home);
}

static void shim_sync(int line)
{
    shim_run.fiber[shim_run.now].line = line;
    shim_wait(SHIM_AT_BARRIER);
}

static void shim_shuffle(int line, unsigned mask, void *v, unsigned size, int down, int from,
                         int width)
{
    shim_fiber *f = &shim_run.fiber[shim_run.now];
    f->line = line;
    f->mask = mask;
    f->down = down;
    f->from = from;
    f->width = width;
    f->size = size;
    memcpy(f->value, v, size);
    shim_wait(SHIM_AT_SHUFFLE);
    memcpy(v, f->value, size);
}

static void shim_main(void)
{
    shim_run.entry(shim_run.ptr, shim_run.size);
    shim_wait(SHIM_DONE);
}

/* A fresh stack that enters shim_main. */
static void shim_start(shim_fiber *f, int i)
{
    char *top = shim_run.stacks + (size_t)(i + 1) * SHIM_STACK;
    void (*main_)(void) = shim_main;
    void *frame[8] = {0}; /* six registers, the address to go to, where that would return to */
    memcpy(&frame[6], &main_, sizeof main_);
    f->sp = memcpy(top - sizeof frame, frame, sizeof frame);
    f->state = SHIM_READY;
}

/* Lets the warp of fiber `first` pass its shuffle if all lanes are there. */
static bool shim_pass_shuffle(int first)
{
    shim_fiber *w = &shim_run.fiber[first];
    unsigned char values[SHIM_WARP][8];
    for (int l = 0; l < SHIM_WARP; l++) {
        if (w[l].state != SHIM_AT_SHUFFLE || w[l].line != w[0].line || w[l].mask != 0xFFFFFFFFu)
            return false;
        memcpy(values[l], w[l].value, 8);
    }
    unsigned ballot = 0;
    for (int l = 0; l < SHIM_WARP; l++)
        ballot |= (unsigned)(values[l][0] & 1) << l;
    for (int l = 0; l < SHIM_WARP; l++) {
        const int width = w[l].width, segment = l / width * width;
        const int from = w[l].down ? l + w[l].from : segment + w[l].from % width;
        if (w[l].down == 2)
            memcpy(w[l].value, &ballot, sizeof ballot);
        else if (from < segment + width)
            memcpy(w[l].value, values[from], 8);
        w[l].state = SHIM_READY;
    }
    return true;
}

static bool shim_pass_barrier(void)
{
    for (int i = 0; i < shim_run.count; i++)
        if (shim_run.fiber[i].state != SHIM_AT_BARRIER ||
            shim_run.fiber[i].line != shim_run.fiber[0].line)
            return false;
    for (int i = 0; i < shim_run.count; i++)
        shim_run.fiber[i].state = SHIM_READY;
    return true;
}

/* Any number below n. */
static int shim_draw(int n)
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((state >> 33) % (unsigned long long)n);
}

static void shim_run_one(int i)
{
    shim_fiber *f = &shim_run.fiber[i];
    if (f->state == SHIM_READY) {
        shim_run.now = i;
        shim_run.machine.self = &f->at;
        shim_switch(&shim_run.home, f->sp);
    }
}

/*
 * Runs one block to its end; false when threads wait for each other for ever. Nothing is promised of what comes first between two
 * barriers: warps run on or stay behind by chance, and their threads in either direction, so that a barrier that is missing
 * computes with what was there before.
 */
static bool shim_block(void)
{
    for (int i = 0; i < shim_run.count; i++)
        shim_start(&shim_run.fiber[i], i);
    for (;;) {
        bool progress = false;
        int done = 0;
        for (int w = 0; w < shim_run.count; w += SHIM_WARP) {
            const bool stays = shim_draw(4) == 0, down = shim_draw(2) == 0;
            for (int l = 0; l < SHIM_WARP; l++) {
                progress |= shim_run.fiber[w + l].state == SHIM_READY;
                if (!stays)
                    shim_run_one(w + (down ? SHIM_WARP - 1 - l : l));
            }
            for (int l = 0; l < SHIM_WARP; l++)
                done += shim_run.fiber[w + l].state == SHIM_DONE;
        }
        if (done == shim_run.count)
            return true;
        for (int i = 0; i < shim_run.count; i += SHIM_WARP)
            progress |= shim_pass_shuffle(i);
        progress |= shim_pass_barrier();
        if (!progress)
            return false;
    }
}

/* Runs a grid of blocks of `threads` (a multiple of 32 where fibers are used). NULL, or what is wrong. */
static const char *shim_launch(shim_machine **slot, shim_entry entry, bool fibers, int blocks,
                               int threads, void *const *ptr, const long long *size)
{
    shim_run.machine = (shim_machine){.dynamic = shim_run.machine.dynamic,
                                      .block_dim = {(unsigned)threads, 1, 1},
                                      .grid_dim = {(unsigned)blocks, 1, 1},
                                      .sync = shim_sync,
                                      .shuffle = shim_shuffle};
    *slot = &shim_run.machine;
    shim_run.entry = entry;
    shim_run.ptr = ptr;
    shim_run.size = size;
    shim_run.count = threads;
    if (fibers && !shim_run.stacks)
        shim_run.stacks = aligned_alloc(64, (size_t)SHIM_THREADS * SHIM_STACK);
    if (threads > SHIM_THREADS || (fibers && (threads % SHIM_WARP || !shim_run.stacks)))
        return "this machine has no such block";
    const bool last_first = shim_draw(2) == 0;
    for (int n = 0; n < blocks; n++) {
        const int b = last_first ? blocks - 1 - n : n;
        for (int i = 0; i < threads; i++)
            shim_run.fiber[i].at =
                (shim_thread){.thread = {(unsigned)i, 0, 0}, .block = {(unsigned)b, 0, 0}};
        for (int k = 0; k < threads && !fibers; k++) {
            const int i = last_first ? threads - 1 - k : k;
            shim_run.machine.self = &shim_run.fiber[i].at;
            entry(ptr, size);
        }
        if (fibers && !shim_block())
            return "barrier divergence";
    }
    return NULL;
}

#endif
