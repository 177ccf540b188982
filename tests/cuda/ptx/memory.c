/*
 * tests/cuda/ptx/memory.c -- memory of a launch: where an address points, whether it may, and who was there before.
 */
#include <stdlib.h>

#include "tests/cuda/ptx/run.h"

/* Blocks are ordered by nothing but the end of the launch, which ends what is known of shared memory, too. */
static inline bool is_ordered(const thread *t, const touch *before, bool global)
{
    if (global && (before->earlier || (before->block && before->block < run.block_now))) {
        return false;
    }
    if (before->block < run.now || (before->thread == t->id && !before->many)) {
        return true;
    }
    return before->many != MANY && before->thread / LANES == t->warp &&
           before->warp < run.warp_now[t->warp];
}

static void note_read(const thread *t, touch *r, bool global)
{
    uint8_t many = 0;
    if (!is_ordered(t, r, global)) {
        many = r->many == MANY || r->thread / LANES != t->warp || r->block < run.block_now
                   ? MANY
                   : MANY_OF_A_WARP;
    }
    const bool earlier = global && (r->earlier || (r->block && r->block < run.block_now));
    *r = (touch){run.now, run.warp_now[t->warp], (uint16_t)t->id, many, earlier};
}

/* Bytes [at, at + size) of memory that `wrote` and `read` know. with, of a write: what is written, there: over what. */
static void check_race(const thread *t, touch *wrote, touch *read, uint64_t at, unsigned size,
                       const unsigned char *with, const unsigned char *there, bool global)
{
    const bool write = with != NULL;
    for (uint64_t i = at; i < at + size; i++) {
        const touch *w = &wrote[i], *r = &read[i];
        const bool after_write = is_ordered(t, w, global);
        if (write && *with++ == *there++) {
            continue; /* nobody can tell */
        }
        if (!after_write || (write && !is_ordered(t, r, global))) {
            run_fail(t, PTX_LAUNCH_FAILED, "byte %u of %s memory, which thread %u %s, is %s",
                     (unsigned)i, global ? "global" : "shared", after_write ? r->thread : w->thread,
                     after_write ? "read" : "wrote", write ? "written" : "read");
        }
        if (write) {
            wrote[i] = (touch){run.now, run.warp_now[t->warp], (uint16_t)t->id, 0, false};
        } else {
            note_read(t, &read[i], global);
        }
    }
}

static bool is_in(const range *r, uint64_t at, unsigned size)
{
    return at >= r->low && at + size <= r->high;
}

/* The memory around an address that was touched before in this launch; where it was found last for such an address is tried
 * first. */
static range *range_of(uint64_t at, unsigned size)
{
    uint16_t *const found = &run.found[(at >> 21) % FOUND];
    if (*found < run.nrange && is_in(&run.range[*found], at, size)) {
        return &run.range[*found];
    }
    for (int i = 0; i < run.nrange; i++) {
        if (is_in(&run.range[i], at, size)) {
            *found = (uint16_t)i;
            return &run.range[i];
        }
    }
    return NULL;
}

static void add_range(const thread *t, uint64_t at, unsigned size)
{
    uint64_t low = (uint64_t)(uintptr_t)run.m->data, high = low + run.m->ndata;
    if (at < low || at >= high) {
        low = high = 0;
        if (!run.l->reach(at, &low, &high)) {
            run_fail(t, PTX_ILLEGAL_ADDRESS, "nothing is at %#llx", (unsigned long long)at);
        }
    }
    if (at + size > high) {
        run_fail(t, PTX_ILLEGAL_ADDRESS, "%u bytes at %#llx, of which %llu are memory", size,
                 (unsigned long long)at, (unsigned long long)(high - at));
    }
    if (run.nrange == RANGES) {
        run_fail(t, PTX_LAUNCH_FAILED, "more than %d allocations are touched", RANGES);
    }
    range *r = &run.range[run.nrange++];
    *r = (range){.low = low, .high = high};
    if (high - low <= MOST_WATCHED) {
        r->touched = calloc(2 * (size_t)(high - low), sizeof *r->touched);
    }
}

/* ld.global.nc promises that nobody writes there while the kernel runs. */
static void check_constant(const thread *t, const touch *wrote, uint64_t at, unsigned size)
{
    for (uint64_t i = at; i < at + size; i++) {
        if (wrote[i].block) {
            run_fail(t, PTX_LAUNCH_FAILED, "byte %u of memory that is written is read with .nc",
                     (unsigned)i);
        }
    }
}

static void *in_global(const thread *t, const ptx_insn *i, uint64_t at, unsigned size,
                       const unsigned char *with)
{
    if (run.k->waits && !t->waited) {
        run_fail(t, PTX_LAUNCH_FAILED, "memory is touched before griddepcontrol.wait");
    }
    range *r = range_of(at, size);
    if (!r) {
        add_range(t, at, size);
        r = &run.range[run.nrange - 1];
    }
    if (r->touched && i->mod[K_CACHE] == M_NC) {
        check_constant(t, r->touched, at - r->low, size);
    }
    if (r->touched && i->op != P_ATOM) {
        check_race(t, r->touched, r->touched + (r->high - r->low), at - r->low, size, with,
                   (const unsigned char *)(uintptr_t)at, true);
    }
    return (void *)(uintptr_t)at;
}

static int space_of(const ptx_insn *i, uint64_t *at)
{
    const uint64_t window = *at >> 56 << 56;
    if (i->mod[K_SPACE]) {
        return i->mod[K_SPACE];
    }
    *at &= ~window;
    return window == WINDOW_SHARED  ? M_SHARED
           : window == WINDOW_LOCAL ? M_LOCAL
           : window == WINDOW_PARAM ? M_PARAM
                                    : M_GLOBAL;
}

/* with: what is going to be written; NULL: it is read. */
static void *reach(const thread *t, const ptx_insn *i, const ptx_operand *o, unsigned size,
                   const unsigned char *with)
{
    uint64_t at = o->value + (o->reg >= 0 ? *register_of(t, o->reg) : 0);
    const int space = space_of(i, &at);
    if (at % size) {
        run_fail(t, PTX_MISALIGNED, "%u bytes at %#llx", size, (unsigned long long)at);
    }
    if (space == M_GLOBAL || space == M_CONST) {
        return in_global(t, i, at, size, with);
    }
    const unsigned room = space == M_SHARED  ? run.shared_bytes
                          : space == M_LOCAL ? run.k->local
                                             : run.k->param_bytes;
    if (at + size > room || at > room) {
        run_fail(t, PTX_ILLEGAL_ADDRESS, "%u bytes at %#llx of %u", size, (unsigned long long)at,
                 room);
    }
    if (space == M_PARAM && with) {
        run_fail(t, PTX_ILLEGAL_ADDRESS, "an argument is written");
    }
    if (space == M_SHARED) {
        check_race(t, run.wrote, run.read, at, size, with, run.shared + at, false);
    }
    return (space == M_SHARED ? run.shared : space == M_LOCAL ? t->local : run.param) + at;
}

void run_load(const thread *t, const ptx_insn *i)
{
    const unsigned bits = ptx_bits[i->type], size = bits / 8, n = i->nvector ? i->nvector : 1;
    const unsigned char *from = reach(t, i, &i->o[0], n * size, NULL);
    for (unsigned k = 0; k < n; k++) {
        uint64_t v = 0;
        memcpy(&v, from + (size_t)k * size, size);
        put(t, &i->o[1 + k], ptx_is_signed(i->type) ? (uint64_t)ptx_extend(v, bits) : v);
    }
}

void run_store(const thread *t, const ptx_insn *i)
{
    const unsigned size = ptx_bits[i->type] / 8, n = i->nvector ? i->nvector : 1;
    unsigned char with[32];
    for (unsigned k = 0; k < n; k++) {
        const uint64_t v = get(t, &i->o[1 + k]);
        memcpy(with + (size_t)k * size, &v, size);
    }
    memcpy(reach(t, i, &i->o[0], n * size, with), with, (size_t)n * size);
}

void run_atomic(const thread *t, const ptx_insn *i)
{
    const unsigned bits = ptx_bits[i->type], size = bits / 8;
    unsigned char *at = reach(t, i, &i->o[1], size, NULL);
    uint64_t old = 0, v = get(t, &i->o[2]) & ptx_mask(bits);
    memcpy(&old, at, size);
    const bool less =
        ptx_is_signed(i->type) ? ptx_extend(v, bits) < ptx_extend(old, bits) : v < old;
    switch (i->mod[K_MODE]) {
    case M_ADD:
        v += old;
        break;
    case M_MIN:
        v = less ? v : old;
        break;
    case M_MAX:
        v = less ? old : v;
        break;
    case M_CAS:
        v = old == v ? get(t, &i->o[3]) : old;
        break;
    default:
        break;
    }
    memcpy(at, &v, size);
    put(t, &i->o[0], old);
}

void run_cvta(const thread *t, const ptx_insn *i)
{
    const uint64_t at = get(t, &i->o[1]);
    const uint64_t window = i->mod[K_SPACE] == M_SHARED  ? WINDOW_SHARED
                            : i->mod[K_SPACE] == M_LOCAL ? WINDOW_LOCAL
                            : i->mod[K_SPACE] == M_PARAM ? WINDOW_PARAM
                                                         : 0;
    if (i->mod[K_TO] && at >> 56 << 56 != window) {
        run_fail(t, PTX_ILLEGAL_ADDRESS, "%#llx points into another space", (unsigned long long)at);
    }
    put(t, &i->o[0], i->mod[K_TO] ? at - window : at + window);
}
