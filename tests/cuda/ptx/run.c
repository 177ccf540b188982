/*
 * tests/cuda/ptx/run.c -- a launch: blocks one after the other, warps each until it has to meet others.
 *
 * Lanes that stand at one instruction carry it out together; those that are behind go first. A thread that reaches a barrier, a
 * shuffle or a vote stops there; when no thread of a warp can go on, the lanes that wait at
 * the same instruction for each other are served, and when all of a block stand at one barrier they pass it. Whatever is left
 * then waits for what does not come.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/run.h"

ptx_state run;
enum { MOST_STEPS = 1000000000 }; /* but for PTX_STEPS */

/* The line of the instruction, without the space before it. */
static const char *line_of(const ptx_insn *i, int *n)
{
    const char *s = run.m->text;
    for (int line = 1; line < i->line; line++) {
        s += strcspn(s, "\n") + 1;
    }
    s += strspn(s, " \t");
    *n = (int)strcspn(s, "\n");
    return s;
}

void run_fail(const thread *t, int code, const char *fmt, ...)
{
    const ptx_insn *i = &run.k->insn[t->state == RUNNING ? run.pc : t->pc];
    va_list args;
    int n;
    const char *line = line_of(i, &n);
    va_start(args, fmt);
    const int at = vsnprintf(run.error, run.nerror, fmt, args);
    va_end(args);
    if (at > 0 && (size_t)at < run.nerror) {
        snprintf(run.error + at, run.nerror - (size_t)at,
                 "; kernel %s, block %u, thread %u, line %d: %.*s", run.k->name, run.block, t->id,
                 i->line, n, line);
    }
    longjmp(run.out, code);
}

/* -- instructions ------------------------------------------------------------------------------------------------------ */
static void compare(const thread *t, const ptx_insn *i)
{
    const bool r = ptx_compare(i, i->type, get(t, &i->o[2]), get(t, &i->o[3]));
    const int logic = i->mod[K_LOGIC];
    const bool with = logic && get(t, &i->o[4]) & 1;
    bool both[2] = {r, !r};
    for (int k = 0; k < 2; k++) {
        both[k] = logic == M_AND   ? both[k] && with
                  : logic == M_OR  ? both[k] || with
                  : logic == M_XOR ? both[k] != with
                                   : both[k];
        put(t, &i->o[k], both[k]);
    }
}

static void move(const thread *t, const ptx_insn *i)
{
    const unsigned n = i->nvector, bits = n ? ptx_bits[i->type] / n : 0;
    uint64_t v = 0;
    if (i->splits) {
        v = get(t, &i->o[0]);
        for (unsigned k = 0; k < n; k++) {
            put(t, &i->o[1 + k], v >> k * bits);
        }
        return;
    }
    for (unsigned k = 0; k < n; k++) {
        v |= (get(t, &i->o[1 + k]) & ptx_mask(bits)) << k * bits;
    }
    put(t, &i->o[0], n ? v : get(t, &i->o[1]));
}

/* An instruction that only computes. */
static void compute(thread *lane, uint32_t on, const ptx_insn *i)
{
    static const uint64_t none;
    uint64_t fixed[4];
    ptx_source from[4] = {{&none, 0, 0}, {&none, 0, 0}, {&none, 0, 0}, {&none, 0, 0}};
    if (i->o[0].place != REGISTER) {
        return;
    }
    for (int k = 1; k < i->n; k++) {
        const ptx_operand *o = &i->o[k];
        if (o->place == VALUE) {
            fixed[k - 1] = get(lane, o);
            from[k - 1].at = &fixed[k - 1];
        } else {
            from[k - 1] = (ptx_source){register_of(lane, o->reg), 1, o->not };
        }
    }
    ptx_compute(i, on, from, register_of(lane, i->o[0].reg), ptx_mask(i->o[0].bits));
}

/* Those of `lanes` that the instruction is for. */
static uint32_t guarded(const thread *lane, uint32_t lanes, const ptx_insn *i)
{
    const uint64_t *guard = register_of(lane, i->guard);
    uint32_t on = 0;
    EACH_LANE(lanes, k)
    {
        on |= (uint32_t)((bool)(guard[k] & 1) != i->guard_not) << k;
    }
    return on;
}

/* What a thread goes to or stops at; anything else is followed by the next instruction. */
static bool is_end(const ptx_insn *i, enum state *state)
{
    switch (i->op) {
    case P_BRA:
        *state = RUNNING;
        return true;
    case P_SHFL:
    case P_VOTE:
        *state = AT_WARP;
        return true;
    case P_BAR:
    case P_BARRIER:
        *state = i->mod[K_MODE] == M_WARP ? AT_WARP : AT_BARRIER;
        return true;
    case P_RET:
    case P_EXIT:
        *state = GONE;
        return true;
    default:
        return false;
    }
}

static void stand_at(thread *lane, uint32_t lanes, int pc)
{
    EACH_LANE(lanes, k)
    {
        lane[k].pc = pc;
    }
}

#define FOR_ON(call)                                                                               \
    EACH_LANE(on, k)                                                                               \
    {                                                                                              \
        thread *t = &lane[k];                                                                      \
        call;                                                                                      \
    }                                                                                              \
    break

/* One that is no end. */
static void carry_out(thread *lane, uint32_t on, const ptx_insn *i)
{
    switch ((enum ptx_op)i->op) {
    case P_MOV:
        if (i->nvector == 0) {
            compute(lane, on, i);
            break;
        }
        FOR_ON(move(t, i));
    case P_CVTA:
        FOR_ON(run_cvta(t, i));
    case P_SETP:
        FOR_ON(compare(t, i));
    case P_LD:
        FOR_ON(run_load(t, i));
    case P_ST:
        FOR_ON(run_store(t, i));
    case P_ATOM:
        FOR_ON(run_atomic(t, i));
    case P_DEPENDENTS:
        FOR_ON(t->waited |= i->mod[K_MODE] == M_WAIT);
    case P_TRAP:
        FOR_ON(run_fail(t, PTX_LAUNCH_FAILED, "trap"));
    case P_FENCE:
        break;
    case P_CVT:
    case P_ADD:
    case P_SUB:
    case P_MUL:
    case P_MAD:
    case P_FMA:
    case P_DIV:
    case P_REM:
    case P_MIN:
    case P_MAX:
    case P_NEG:
    case P_ABS:
    case P_COPYSIGN:
    case P_SQRT:
    case P_RCP:
    case P_EX2:
    case P_LG2:
    case P_AND:
    case P_OR:
    case P_XOR:
    case P_NOT:
    case P_SHL:
    case P_SHR:
    case P_SHF:
    case P_PRMT:
    case P_BFE:
    case P_BFI:
    case P_POPC:
    case P_CLZ:
    case P_BFIND:
    case P_BREV:
    case P_SELP:
    case P_LOP3:
        compute(lane, on, i);
        break;
    case P_BRA:
    case P_SHFL:
    case P_VOTE:
    case P_BAR:
    case P_BARRIER:
    case P_RET:
    case P_EXIT:
    case N_OPS:
        break;
    }
}

/* Lanes that stand at one instruction, until they part, have caught up with those at `next`, or stop. */
static void run_lanes(thread *lane, uint32_t lanes, int next, uint64_t *steps)
{
    const ptx_insn *const code = run.k->insn;
    const unsigned first = (unsigned)__builtin_ctz(lanes);
    int pc = lane[first].pc;
    for (; pc < next; --*steps) {
        const ptx_insn *i = &code[pc];
        const uint32_t on = i->guarded ? guarded(lane, lanes, i) : lanes;
        enum state state;
        run.pc = pc;
        if (*steps == 0) {
            run_fail(&lane[first], PTX_LAUNCH_FAILED, "it does not end");
        }
        if (on == 0 || !is_end(i, &state)) {
            carry_out(lane, on, i);
            pc++;
        } else if (i->op == P_BRA && on == lanes) {
            pc = i->target;
        } else {
            --*steps;
            stand_at(lane, lanes & ~on, pc + 1);
            EACH_LANE(on, k)
            {
                lane[k].pc = i->op == P_BRA ? i->target : pc;
                lane[k].state = state;
            }
            return;
        }
    }
    stand_at(lane, lanes, pc);
}

/* -- meeting others ---------------------------------------------------------------------------------------------------- */
static unsigned lanes_of(unsigned warp)
{
    const unsigned rest = run.nthread - warp * LANES;
    return rest < LANES ? rest : LANES;
}

static uint64_t mask_of(const thread *t)
{
    const ptx_insn *i = &run.k->insn[t->pc];
    const uint64_t have = ptx_mask(lanes_of(t->warp));
    return get(t, &i->o[i->n - 1]) & have;
}

/* The lane that a shuffle's lane takes its value from; *inside: it is one of its segment. */
static unsigned lane_from(const thread *t, const ptx_insn *i, bool *inside)
{
    const unsigned lane = t->id % LANES, by = get(t, &i->o[3]) & 31;
    const unsigned c = (unsigned)get(t, &i->o[4]), clamp = c & 31, segment = c >> 8 & 31;
    const int first = (int)(lane & segment), last = first | (int)(clamp & ~segment);
    int j = (int)lane;
    switch (i->mod[K_MODE]) {
    case M_UP:
        j -= (int)by;
        *inside = j >= last;
        break;
    case M_DOWN:
        j += (int)by;
        *inside = j <= last;
        break;
    case M_BFLY:
        j ^= (int)by;
        *inside = j <= last;
        break;
    default:
        j = first | (int)(by & ~segment);
        *inside = j <= last;
        break;
    }
    return *inside ? (unsigned)j : lane;
}

static void shuffle(thread *lane, const ptx_insn *i, uint64_t mask)
{
    uint64_t value[LANES];
    bool inside[LANES];
    for (unsigned k = 0; k < LANES; k++) {
        if (mask >> k & 1) {
            const unsigned from = lane_from(&lane[k], i, &inside[k]);
            if (!(mask >> from & 1)) {
                run_fail(&lane[k], PTX_LAUNCH_FAILED, "lane %u does not take part", from);
            }
            value[k] = get(&lane[from], &i->o[2]);
        }
    }
    for (unsigned k = 0; k < LANES; k++) {
        if (mask >> k & 1) {
            put(&lane[k], &i->o[0], value[k]);
            put(&lane[k], &i->o[1], inside[k]);
        }
    }
}

static void vote(thread *lane, const ptx_insn *i, uint64_t mask)
{
    uint64_t yes = 0;
    for (unsigned k = 0; k < LANES; k++) {
        yes |= mask >> k & 1 ? (get(&lane[k], &i->o[1]) & 1) << k : 0;
    }
    const uint64_t r = i->mod[K_MODE] == M_BALLOT ? yes
                       : i->mod[K_MODE] == M_ALL  ? yes == mask
                                                  : yes != 0;
    for (unsigned k = 0; k < LANES; k++) {
        if (mask >> k & 1) {
            put(&lane[k], &i->o[0], r);
        }
    }
}

/* Do all lanes that t waits for stand where it does, waiting for the same? */
static bool is_complete(const thread *lane, const thread *t, uint64_t mask)
{
    for (unsigned k = 0; k < LANES; k++) {
        if (mask >> k & 1 &&
            (lane[k].state != AT_WARP || lane[k].pc != t->pc || mask_of(&lane[k]) != mask)) {
            return false;
        }
    }
    return true;
}

/* Serves lanes that have met; false: nobody has. */
static bool meet(unsigned warp)
{
    thread *lane = &run.thread[(size_t)warp * LANES];
    bool met = false;
    for (unsigned k = 0; k < lanes_of(warp); k++) {
        thread *t = &lane[k];
        const uint64_t mask = t->state == AT_WARP ? mask_of(t) : 0;
        if (t->state != AT_WARP) {
            continue;
        }
        if (!(mask >> k & 1)) {
            run_fail(t, PTX_LAUNCH_FAILED, "its mask %#llx has it not", (unsigned long long)mask);
        }
        if (!is_complete(lane, t, mask)) {
            continue;
        }
        const ptx_insn *i = &run.k->insn[t->pc];
        if (i->op == P_SHFL) {
            shuffle(lane, i, mask);
        } else if (i->op == P_VOTE) {
            vote(lane, i, mask);
        } else {
            run.warp_now[warp]++;
        }
        for (unsigned l = 0; l < LANES; l++) {
            if (mask >> l & 1) {
                lane[l].state = RUNNING;
                lane[l].pc++;
            }
        }
        met = true;
    }
    return met;
}

/* The running lanes that stand before all others; next: where these do. 0: none runs. */
static uint32_t behind(const thread *lane, unsigned n, int *next)
{
    uint32_t lanes = 0;
    int pc = INT_MAX;
    *next = INT_MAX;
    for (unsigned k = 0; k < n; k++) {
        if (lane[k].state != RUNNING) {
            continue;
        }
        if (lane[k].pc < pc) {
            *next = pc;
            pc = lane[k].pc;
            lanes = 0;
        } else if (lane[k].pc > pc && lane[k].pc < *next) {
            *next = lane[k].pc;
        }
        lanes |= lane[k].pc == pc ? 1U << k : 0;
    }
    return lanes;
}

/* Until its threads stand at a barrier of the block, or are through. */
static void run_warp(unsigned warp)
{
    thread *lane = &run.thread[(size_t)warp * LANES];
    do {
        uint64_t steps = run.most_steps;
        uint32_t lanes;
        for (int next; (lanes = behind(lane, lanes_of(warp), &next)) != 0;) {
            run_lanes(lane, lanes, next, &steps);
        }
    } while (meet(warp));
    for (unsigned k = 0; k < lanes_of(warp); k++) {
        if (lane[k].state == AT_WARP) {
            run_fail(&lane[k], PTX_LAUNCH_FAILED, "it waits for lanes of %#llx that are elsewhere",
                     (unsigned long long)mask_of(&lane[k]));
        }
    }
}

/* Lets the block pass its barrier; false: it is through. */
static bool pass_barrier(void)
{
    const thread *first = &run.thread[0];
    for (unsigned i = 0; i < run.nthread; i++) {
        const thread *t = &run.thread[i];
        if (t->state != first->state) {
            run_fail(t->state == AT_BARRIER ? t : first, PTX_LAUNCH_FAILED,
                     "a barrier that not all threads reach");
        }
        if (t->state == AT_BARRIER && t->pc != first->pc) {
            run_fail(t, PTX_LAUNCH_FAILED, "a barrier, while thread 0 is at that of line %d",
                     run.k->insn[first->pc].line);
        }
    }
    if (first->state == GONE) {
        return false;
    }
    for (unsigned i = 0; i < run.nthread; i++) {
        run.thread[i].state = RUNNING;
        run.thread[i].pc++;
    }
    run.now++;
    return true;
}

static void run_block(unsigned block)
{
    run.block = block;
    run.block_now = ++run.now;
    for (unsigned i = 0; i < run.nthread; i++) {
        thread *t = &run.thread[i];
        t->pc = 0;
        t->state = RUNNING;
        t->waited = false;
        t->id = i;
        t->warp = i / LANES;
        for (int d = 0; d < 3; d++) { /* the runtime launches in one dimension */
            *register_of(t, R_TID + d) = d == 0 ? i : 0;
            *register_of(t, R_NTID + d) = run.l->block[d];
            *register_of(t, R_CTAID + d) = d == 0 ? block : 0;
            *register_of(t, R_NCTAID + d) = run.l->grid[d];
        }
        *register_of(t, R_LANE) = i % LANES;
    }
    do {
        for (unsigned w = 0; w < run.nwarp; w++) {
            run_warp(w);
        }
    } while (pass_barrier());
}

/* Memory of a launch: shared, then each thread's own, registers, arguments. Filled with nonsense, as a device promises nothing. */
static unsigned char *lay_out(const ptx_kernel *k, const ptx_launch *l)
{
    const size_t local = ((size_t)k->local + 15) & ~(size_t)15;
    const size_t regs = (size_t)k->nreg * LANES * sizeof(uint64_t); /* of a warp */
    const size_t shared = ((size_t)run.shared_bytes + 15) & ~(size_t)15;
    const size_t bytes = shared + local * run.nthread + regs * run.nwarp + k->param_bytes;
    unsigned char *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095), *at = memory;
    if (!memory) {
        return NULL;
    }
    memset(memory, 0x7A, bytes);
    run.shared = at;
    at += shared;
    for (unsigned i = 0; i < run.nthread; i++, at += local) {
        run.thread[i].local = at;
    }
    for (unsigned i = 0; i < run.nthread; i++) {
        run.thread[i].reg = (uint64_t *)(void *)(at + i / LANES * regs) + i % LANES;
    }
    at += regs * run.nwarp;
    run.param = at;
    for (int i = 0; i < k->nparam; i++) {
        memcpy(at + k->param[i].at, l->params[i], k->param[i].size);
    }
    return memory;
}

static int run_blocks(void)
{
    const int code = setjmp(run.out);
    if (code != PTX_OK) {
        return code;
    }
    for (unsigned b = 0; b < run.l->grid[0]; b++) {
        run_block(b);
    }
    return PTX_OK;
}

int ptx_run(const ptx_module *m, int kernel, const ptx_launch *l, char *error, size_t n)
{
    const ptx_kernel *k = &m->kernel[kernel];
    const unsigned threads = l->block[0];
    snprintf(error, n, "a launch that cannot be");
    if (l->grid[0] == 0 || l->grid[1] != 1 || l->grid[2] != 1 || threads == 0 ||
        threads > MOST_THREADS || l->block[1] != 1 || l->block[2] != 1) {
        return PTX_LAUNCH_FAILED;
    }
    memset(&run, 0, sizeof run);
    run.m = m;
    run.k = k;
    run.l = l;
    run.error = error;
    run.nerror = n;
    run.nthread = threads;
    run.nwarp = (threads + LANES - 1) / LANES;
    const char *steps = getenv("PTX_STEPS");
    run.most_steps = steps ? strtoull(steps, NULL, 10) : MOST_STEPS;
    run.shared_bytes = k->dynamic_at < 0 ? k->shared : (unsigned)k->dynamic_at + l->shared;
    if (run.shared_bytes > MOST_SHARED) {
        return PTX_LAUNCH_FAILED;
    }
    unsigned char *memory = lay_out(k, l);
    touch *touched = calloc(2 * (size_t)run.shared_bytes + 1, sizeof *touched);
    run.wrote = touched;
    run.read = touched + run.shared_bytes;
    const int code = memory && touched ? run_blocks() : PTX_OUT_OF_MEMORY;
    if (code == PTX_OK) {
        error[0] = 0;
    }
    for (int i = 0; i < run.nrange; i++) {
        free(run.range[i].touched);
    }
    free(memory);
    free(touched);
    return code;
}
