/*
 * eager/cuda/words.c -- error words: where kernels that check data say what they found.
 *
 * They lie in pinned host memory that the device sees: a kernel that finds nothing never touches its
 * word, the host sets and reads it without a copy. Every wait looks at the words of all streams (what was
 * waited for may be behind another one's work) and hands words of its own stream out again once their kernels
 * are certain to be over: the thread that asked for the word has begun another op (or has ended), so all is
 * queued, and the stream has done what was queued by then. Before that its kernel may still be being compiled.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "eager/cuda/stream.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { WORDS_PER_PAGE = 512, FAILED = 64 };

_Atomic bool wf_cuda_any_failed;

typedef struct word {
    struct word *next;
    volatile int64_t *host;
    cu_address device;
    wf_cuda_stream *stream;
    bool open;         /* its op may still queue work */
    struct word *peer; /* open: the next of the thread's op */
    uint64_t work;     /* not open: of the stream, all that may set it */
    uint64_t serial;   /* of this use of the word */
    wf_op op;
    const char *site;
    int64_t bound;
    /* The stream's op that asked for it, and the last one of the same public call that read what that wrote (0: none). */
    uint64_t number[2];
    bool reported;
    const wf_cuda_graph *graph; /* every launch of it may set the word; NULL: one piece of work */
} word;

typedef struct page {
    struct page *next;
    void *host;
    word words[WORDS_PER_PAGE];
} page;

typedef struct wf_cuda_words {
    page *pages;
    word *unused, *used, **used_tail; /* used: oldest first */
    struct {
        bool set;
        wf_op op;
        const char *site;
        int64_t bound, index;
    } found; /* by a look that could not report it */
    /* Ops that met a bad index: what they wrote last has no value. The newest FAILED of them. */
    struct {
        const wf_cuda_stream *stream;
        uint64_t number[2];
        wf_op op;
        const char *site;
    } failed[FAILED];
    uint64_t n_failed;
} wf_cuda_words;

/* The open words of this thread, a list for each device. */
typedef struct open_words {
    wf_cuda_device *device;
    word *first;
    uint32_t generation;
} open_words;
static _Thread_local open_words mine[WF_CUDA_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_end;
static bool has_end;

/* Words of this thread's last op, whose place in the program is not known yet. */
enum { UNSITED = 4 };
static _Thread_local struct {
    word *word;
    uint64_t serial;
    wf_cuda_device *device;
    uint32_t generation;
} unsited[UNSITED];
static _Thread_local int n_unsited;
static _Atomic uint64_t serials;

/* Lock held. */
static int add_page(wf_cuda_device *d, wf_cuda_words *w, wf_why *why)
{
    void *host = NULL;
    cu_address device = 0;
    page *p = wf_calloc(1, sizeof *p);
    if (!p) {
        return wf_fail(why, WEFT_ENOMEM, "no host memory for error words");
    }
    int code = wf_cuda_check(d,
                             wf_cu->host_alloc(&host, WORDS_PER_PAGE * sizeof(int64_t),
                                               CU_HOST_PORTABLE | CU_HOST_MAPPED),
                             "cuMemHostAlloc", why);
    if (!code) {
        code = wf_cuda_check(d, wf_cu->host_device_address(&device, host, 0),
                             "cuMemHostGetDevicePointer", why);
        if (code) {
            wf_cu->host_free(host);
        }
    }
    if (code) {
        wf_mfree(p);
        return code;
    }
    p->host = host;
    p->next = w->pages;
    w->pages = p;
    for (int i = WORDS_PER_PAGE - 1; i >= 0; i--) {
        p->words[i].host = (int64_t *)host + i;
        p->words[i].device = device + (cu_address)i * sizeof(int64_t);
        p->words[i].next = w->unused;
        w->unused = &p->words[i];
    }
    return 0;
}

void wf_cuda_words_close_op(wf_cuda_device *d)
{
    open_words *o = &mine[d->ordinal];
    for (word *x = o->generation == d->generation ? o->first : NULL; x; x = x->peer) {
        x->open = false;
        x->work = x->stream->work;
    }
    o->first = NULL;
}

/* The thread ends, and with it its ops. */
static void end_thread(void *arg)
{
    const open_words *o = arg;
    for (int i = 0; i < WF_CUDA_DEVICES; i++) {
        wf_cuda_device *d = o[i].device;
        if (d && o[i].first && o[i].generation == d->generation) {
            pthread_mutex_lock(&d->lock);
            wf_cuda_words_close_op(d);
            pthread_mutex_unlock(&d->lock);
        }
    }
}

static void make_end(void)
{
    has_end = pthread_key_create(&at_end, end_thread) == 0;
}

/* Lock held. Among the open words of this thread. */
static void open_word(wf_cuda_device *d, word *x)
{
    open_words *o = &mine[d->ordinal];
    x->peer = o->generation == d->generation ? o->first : NULL;
    x->open = true;
    o->first = x;
    o->device = d;
    o->generation = d->generation;
    if (!pthread_once(&once, make_end) && has_end) {
        pthread_setspecific(at_end, mine);
    }
}

/* Lock held. Results of a graph's launches are told of, but not noted: which launch it was is not known. */
static void note_failed(wf_cuda_words *w, const word *x)
{
    if (!x->graph) {
        const uint64_t i = w->n_failed++ % FAILED;
        w->failed[i].stream = x->stream;
        w->failed[i].number[0] = x->number[0];
        w->failed[i].number[1] = x->number[1];
        w->failed[i].op = x->op;
        w->failed[i].site = x->site;
        atomic_store_explicit(&wf_cuda_any_failed, true, memory_order_relaxed);
    }
}

bool wf_cuda_words_failed(wf_cuda_device *d, const wf_cuda_stream *s, uint64_t number, wf_op *op,
                          const char **site)
{
    const wf_cuda_words *w = d->words;
    const uint64_t n = !w || !s || !number ? 0 : w->n_failed < FAILED ? w->n_failed : FAILED;
    for (uint64_t i = 0; i < n; i++) {
        if (w->failed[i].stream == s &&
            (w->failed[i].number[0] == number || w->failed[i].number[1] == number)) {
            *op = w->failed[i].op;
            *site = w->failed[i].site;
            return true;
        }
    }
    return false;
}

/* Lock held. Looks at all words and takes back those of s (NULL: of none) that are over, given that `work`
 * pieces are done. */
static void look(wf_cuda_words *w, wf_cuda_stream *s, uint64_t work)
{
    word **at = &w->used;
    while (*at) {
        word *x = *at;
        int64_t index = *x->host;
        if (index != -1 && !x->reported) {
            x->reported = true;
            note_failed(w, x);
            if (!w->found.set) {
                w->found.set = true;
                w->found.op = x->op;
                w->found.site = x->site;
                w->found.bound = x->bound;
                w->found.index = index;
            }
        }
        if (x->graph) {
            if (index != -1) { /* for the next launch */
                *x->host = -1;
                x->reported = false;
            }
            at = &x->next;
        } else if (x->stream == s && !x->open && x->work <= work) {
            *at = x->next;
            x->next = w->unused;
            w->unused = x;
        } else {
            at = &x->next;
        }
    }
    w->used_tail = at;
}

static int report(wf_cuda_words *w, int ordinal, wf_why *why)
{
    if (!w->found.set || !why) { /* nobody to tell: the next wait does */
        return 0;
    }
    w->found.set = false;
    const char *site = w->found.site;
    const char *op = w->found.op == WF_OP_INVALID ? "an op" : wf_rows[w->found.op].name;
    wf_fail(why, WEFT_EINDEX, "%s found index %lld outside [0, %lld) on cuda:%d%s%s", op,
            (long long)w->found.index, (long long)w->found.bound, ordinal,
            site ? ", called at " : "", site ? site : "");
    wf_hint(why,
            "its results are not valid; on a GPU such an error shows at the next read or wait");
    return WEFT_EINDEX;
}

int wf_cuda_words_check(wf_cuda_device *d, wf_cuda_stream *s, uint64_t work, wf_why *why)
{
    pthread_mutex_lock(&d->lock);
    int code = 0;
    if (d->words) {
        look(d->words, s, work);
        code = report(d->words, d->ordinal, why);
    }
    pthread_mutex_unlock(&d->lock);
    return code;
}

/* Lock held. Without waiting: what an event of s says is over. */
static void look_back(wf_cuda_words *w, wf_cuda_stream *s)
{
    uint64_t done = 0;
    for (int i = 0; i < WF_CUDA_RING; i++) {
        const wf_cuda_point *p = &s->ring[i];
        if (p->event && p->work > done && wf_cu->event_query(p->event) == CU_OK) {
            done = p->work;
        }
    }
    look(w, s, done);
}

/* Lock held. */
static word *take(wf_cuda_device *d, wf_cuda_stream *s, wf_why *why)
{
    wf_cuda_words *w = d->words;
    if (!w) {
        w = wf_calloc(1, sizeof *w);
        if (!w) {
            wf_fail(why, WEFT_ENOMEM, "no host memory for error words");
            return NULL;
        }
        w->used_tail = &w->used;
        d->words = w;
    }
    if (!w->unused && !s->capture) {
        look_back(w, s);
        wf_why none = {0};
        wf_cuda_point_new(s, &none); /* for the next time */
    }
    if (!w->unused && add_page(d, w, why)) {
        return NULL;
    }
    word *x = w->unused;
    w->unused = x->next;
    x->next = NULL;
    *w->used_tail = x;
    w->used_tail = &x->next;
    return x;
}

int wf_cuda_error_word(int ordinal, wf_op op, const char *site, int64_t bound,
                       void **device_address, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    if (!s) {
        return wf_cuda_code(why);
    }
    if (wf_cuda_renewed) {
        return wf_cuda_renew_word(device_address, why);
    }
    pthread_mutex_lock(&d->lock);
    word *x = take(d, s, why);
    if (x) {
        *x->host = -1;
        x->stream = s;
        x->work = s->work;
        x->op = op;
        x->site = site;
        x->bound = bound;
        x->number[0] = wf_cuda_op_now(s);
        x->number[1] = 0;
        x->reported = false;
        x->graph = s->capture;
        x->open = false;
        if (!x->graph) {
            open_word(d, x);
        }
        x->serial = atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
        if (!site && n_unsited < UNSITED) {
            unsited[n_unsited].word = x;
            unsited[n_unsited].serial = x->serial;
            unsited[n_unsited].generation = d->generation;
            unsited[n_unsited++].device = d;
        }
        *device_address = (void *)(uintptr_t)x->device;
    }
    pthread_mutex_unlock(&d->lock);
    return !x                   ? wf_cuda_code(why)
           : wf_cuda_marking(s) ? wf_cuda_mark_word(s->capture, *device_address, why)
                                : 0;
}

void wf_cuda_words_follow(const wf_cuda_stream *from, uint64_t number, const wf_cuda_stream *s,
                          uint64_t op)
{
    for (int i = 0; i < n_unsited && from == s; i++) {
        word *x = unsited[i].word;
        if (unsited[i].device == s->device && unsited[i].generation == s->device->generation &&
            x->serial == unsited[i].serial && x->stream == s &&
            (x->number[0] == number || x->number[1] == number) && x->number[0] != op) {
            x->number[1] = op;
        }
    }
}

void wf_cuda_sited(const char *site)
{
    for (; n_unsited > 0; n_unsited--) {
        word *x = unsited[n_unsited - 1].word;
        wf_cuda_device *d = unsited[n_unsited - 1].device;
        if (unsited[n_unsited - 1].generation != d->generation) {
            continue; /* closed meanwhile */
        }
        pthread_mutex_lock(&d->lock);
        if (x->serial == unsited[n_unsited - 1].serial && !x->site) {
            x->site = site;
        }
        pthread_mutex_unlock(&d->lock);
    }
}

void wf_cuda_words_release(wf_cuda_device *d, const wf_cuda_graph *g, wf_cuda_stream *last)
{
    for (word *x = d->words ? d->words->used : NULL; x; x = x->next) {
        if (x->graph == g) { /* its launches may still run: over when the next waits say so */
            x->graph = NULL;
            x->stream = last ? last : x->stream;
            x->work = x->stream->work;
        }
    }
}

void wf_cuda_words_close(wf_cuda_device *d)
{
    while (d->words && d->words->pages) {
        page *p = d->words->pages;
        d->words->pages = p->next;
        wf_cu->host_free(p->host);
        wf_mfree(p);
    }
    wf_mfree(d->words);
    d->words = NULL;
}
