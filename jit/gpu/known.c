/*
 * jit/gpu/known.c -- launches of programs that have been made before, and programs that rows wrote before.
 *
 * Which kernel a program is, how it is launched and its argument follow from the program and from how its operands lie: extents,
 * strides, which of them share an address, and addresses modulo a line of memory. A step of training makes the same few
 * hundred launches every time, with other addresses. So what a launch came to is kept by all of that, and one like it
 * is a look-up, a copy of the argument, and addresses and scalars put into it.
 *
 * Invariants: programs are told apart by their number (wf_program_number), so that one without is not kept; what is kept is
 * copied under the lock and launched without it; a launch that the driver refuses is forgotten, and made anew.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "jit/gpu/impl.h"
#include "jit/ir/mix.h"

enum { SETS = 256, WAYS = 2, KEY = 56, LINE = 128 };

typedef struct key {
    int n;
    uint64_t w[KEY];
} key;

static struct {
    pthread_mutex_t lock;
    uint32_t turn;
    struct {
        key key;
        wf_gpu_known known;
    } place[SETS][WAYS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const wf_view *operand(const wf_program *p, const wf_program_args *a, int o)
{
    return o < p->noutput ? &a->dst[o] : &a->src[o - p->noutput];
}

/* False: it is not one that is kept. */
static bool describe(key *k, int ordinal, const wf_program *p, const wf_program_args *a)
{
    const int nop = p->noutput + p->ninput, rank = p->noutput ? a->dst[0].rank : 0;
    if (p->number == 0 || p->noutput == 0 || nop > WF_GPU_KNOWN_OPS ||
        3 + rank * (1 + nop) + nop / 4 > KEY)
        return false;
    int n = 0;
    k->w[n++] = p->number;
    k->w[n++] = (uint64_t)ordinal | (uint64_t)rank << 8 | (uint64_t)a->axes << 32;
    for (int d = 0; d < rank; d++)
        k->w[n++] = (uint64_t)a->dst[0].dims[d];
    uint64_t lie =
        0; /* 16 bits an operand: the first with its address, and where in a line it begins */
    for (int o = 0; o < nop; o++) {
        const wf_view *v = operand(p, a, o);
        for (int d = 0; d < rank; d++)
            k->w[n++] = (uint64_t)v->strides[d];
        int twin = 0;
        while (operand(p, a, twin)->data != v->data)
            twin++;
        lie = lie << 16 | (uint64_t)twin << 8 | wf_gpu_word(v->data) % LINE;
        if (o % 4 == 3 || o == nop - 1) {
            k->w[n++] = lie;
            lie = 0;
        }
    }
    k->n = n;
    return true;
}

static size_t set_of(const key *k)
{
    return (size_t)(wf_mix_words(k->w, k->n) % SETS);
}

static bool is_same(const key *a, const key *b)
{
    return a->n == b->n && memcmp(a->w, b->w, (size_t)a->n * sizeof *a->w) == 0;
}

static bool recall(const key *k, wf_gpu_known *out)
{
    const size_t set = set_of(k);
    bool found = false;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < WAYS && !found; i++) {
        const wf_gpu_known *is = &table.place[set][i].known;
        found = is_same(&table.place[set][i].key, k);
        if (found) {
            memcpy(out, is, offsetof(wf_gpu_known, words));
            memcpy(out->words, is->words, (size_t)is->nwords * sizeof *is->words);
        }
    }
    pthread_mutex_unlock(&table.lock);
    return found;
}

static void forget(const key *k)
{
    const size_t set = set_of(k);
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < WAYS; i++)
        if (is_same(&table.place[set][i].key, k))
            table.place[set][i].key.n = 0;
    pthread_mutex_unlock(&table.lock);
}

void wf_gpu_remember(int ordinal, const wf_program *p, const wf_program_args *a,
                     const wf_gpu_known *known)
{
    key k;
    if (wf_program_draws(p) || !describe(&k, ordinal, p, a))
        return;
    const size_t set = set_of(&k);
    pthread_mutex_lock(&table.lock);
    int at = (int)(table.turn++ % WAYS);
    for (int i = 0; i < WAYS; i++)
        if (table.place[set][i].key.n == 0 || is_same(&table.place[set][i].key, &k))
            at = i;
    table.place[set][at].key = k;
    table.place[set][at].known = *known;
    pthread_mutex_unlock(&table.lock);
}

/* The launches, in order; *queued: how many of them are. */
static int launch(int ordinal, const wf_program *p, const wf_program_args *a, wf_gpu_known *known,
                  int *queued, wf_why *why)
{
    wf_gpu_temps temps;
    int status = 0;
    temps.ordinal = ordinal;
    temps.n = 0;
    for (int o = 0; o < p->noutput + p->ninput; o++)
        if (known->at[o] != WF_GPU_NOWHERE)
            known->words[known->at[o]] = wf_gpu_word(operand(p, a, o)->data);
    for (int i = 0; i < p->nscalar; i++)
        known->words[known->scalar + i] =
            wf_kir_peek(a->scalars[i], wf_kir_storage(p->type[p->scalar[i]]), 0);
    for (int i = 0; i < known->ntemp && status == 0; i++) {
        void *memory = wf_gpu_temp(&temps, known->temp[i].bytes, why);
        status = memory ? 0 : WEFT_ENOMEM;
        known->words[known->temp[i].word] = wf_gpu_word(memory);
    }
    for (*queued = 0; *queued < known->nlaunch && status == 0; *queued += status == 0)
        status = wf_gpu_start(ordinal,
                              &(wf_gpu_launch){.v = known->v,
                                               .function = *queued,
                                               .blocks = known->blocks[*queued],
                                               .threads = known->threads,
                                               .shared = known->shared,
                                               .words = known->words},
                              why);
    wf_gpu_drop(&temps);
    return status;
}

bool wf_gpu_run_known(int ordinal, const wf_program *p, const wf_program_args *a, int *status,
                      wf_why *why)
{
    key k;
    wf_gpu_known known;
    wf_why own = {0};
    int queued;
    why = why ? why : &own;
    if (!describe(&k, ordinal, p, a) || !recall(&k, &known))
        return false;
    *status = launch(ordinal, p, a, &known, &queued, why);
    if (*status == 0)
        return true;
    forget(&k);
    /* what the driver refused, or had no memory for, was not queued; after all else operands may be overwritten */
    if (queued > 0 || (*status != WEFT_EUNSUPPORTED && *status != WEFT_ENOMEM)) {
        wf_gpu_too_late(*status);
        return true;
    }
    *why = (wf_why){0};
    return false;
}

/* -- programs that rows spell out ---------------------------------------------------------------------------------- */
enum { SPELLED = 128, PROBES = 8 };

typedef struct spelled {
    wf_gpu_spelling of;
    wf_program program;
} spelled;
static spelled *_Atomic programs[SPELLED];

static bool is_spelled(const wf_gpu_spelling *a, const wf_gpu_spelling *b)
{
    return a->write == b->write && memcmp(a->what, b->what, sizeof a->what) == 0;
}

static spelled *spell(const wf_gpu_spelling *k, const void *arg)
{
    spelled *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    s->of = *k;
    wf_program_init(&s->program);
    if (!k->write(&s->program, arg)) {
        free(s);
        return NULL;
    }
    wf_program_number(&s->program);
    return s;
}

const wf_program *wf_gpu_spelled(const wf_gpu_spelling *k, const void *arg, wf_program *own)
{
    uint64_t w[2];
    memcpy(w, k->what, sizeof w);
    const uint64_t h = ((uint64_t)(uintptr_t)k->write ^ w[0] ^ (w[1] << 23 | w[1] >> 41)) *
                       UINT64_C(0x9E3779B97F4A7C15);
    for (uint64_t i = 0; i < PROBES; i++) {
        spelled *_Atomic *place = &programs[((h >> 40) + i) % SPELLED];
        spelled *is = atomic_load_explicit(place, memory_order_acquire);
        spelled *mine = is ? NULL : spell(k, arg);
        if (mine && atomic_compare_exchange_strong(place, &is, mine))
            return &mine->program;
        free(mine);
        if (is && is_spelled(&is->of, k))
            return &is->program;
        if (!is)
            break;
    }
    wf_program_init(own);
    return k->write(own, arg) ? own : NULL;
}
