/*
 * eager/cuda/words.c -- error words: where kernels that check data say what they found.
 *
 * They lie in pinned host memory that the device sees: a kernel that finds nothing never touches its
 * word, the host sets and reads it without a copy. Every wait looks at the words of all streams (what was
 * waited for may be behind another one's work) and hands words of its own stream out again once their kernels
 * are certain to be over: the thread that asked for the word has begun another op (or has ended), so all is
 * queued, and the stream has done what was queued by then. Before that its kernel may still be being compiled.
 */
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "eager/cuda/stream.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum {
    WORDS_PER_PAGE = 512,
    FAULTS = 64,
    LAUNCHES = 64, /* of graphs */
    OPERANDS = 3,  /* of an op that are told of, and ... */
    EXTENTS = 12   /* of all of them together */
};

_Atomic bool wf_cuda_any_failed;

/* What an op was called with. */
typedef struct operands {
    uint8_t n, kept; /* there are; described here */
    uint8_t dtype[OPERANDS], rank[OPERANDS];
    int64_t dims[EXTENTS];
} operands;

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
    operands of;
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

/* An op, or a launch of a graph, that met a bad index: what it wrote last has no value. */
typedef struct fault {
    const wf_cuda_stream *stream;
    uint64_t number[2]; /* 0: none */
    wf_op op;
    const char *site;
    int64_t bound, index;
    operands of;
} fault;

/* A launch of a graph that has words, until a look after its end. */
typedef struct launch {
    const wf_cuda_graph *graph;
    const wf_cuda_stream *stream;
    uint64_t op, work; /* work: of the stream, with it; UINT64_MAX: it is being queued */
} launch;

typedef struct wf_cuda_words {
    page *pages;
    word *unused, *used, **used_tail; /* used: oldest first */
    fault faults[FAULTS];             /* the newest of them */
    uint64_t n_faults;
    const fault *untold; /* found by a look that could not report it */
    launch launches[LAUNCHES];
    int n_launches;
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

/* Lock held. */
static void add_fault(wf_cuda_words *w, const word *x, int64_t index, const wf_cuda_stream *s,
                      uint64_t number, uint64_t other)
{
    fault *f = &w->faults[w->n_faults++ % FAULTS];
    f = f == w->untold ? &w->faults[w->n_faults++ % FAULTS] : f; /* the first one is told of */
    *f = (fault){.stream = s,
                 .number = {number, other},
                 .op = x->op,
                 .site = x->site,
                 .bound = x->bound,
                 .index = index,
                 .of = x->of};
    w->untold = w->untold ? w->untold : f;
    atomic_store_explicit(&wf_cuda_any_failed, true, memory_order_relaxed);
}

/* Lock held. Which of its launches a graph's word was set by is not known: none of those that were not over before has a value. */
static void note(wf_cuda_words *w, const word *x, int64_t index)
{
    bool known = false;
    for (int i = 0; x->graph && i < w->n_launches; i++) {
        const launch *l = &w->launches[i];
        if (l->graph == x->graph) {
            add_fault(w, x, index, l->stream, l->op, 0);
            known = true;
        }
    }
    if (!known) {
        add_fault(w, x, index, x->stream, x->number[0], x->number[1]);
    }
}

bool wf_cuda_words_failed(wf_cuda_device *d, const wf_cuda_stream *s, uint64_t number, wf_op *op,
                          const char **site)
{
    const wf_cuda_words *w = d->words;
    const uint64_t n = !w || !s || !number ? 0 : w->n_faults < FAULTS ? w->n_faults : FAULTS;
    for (uint64_t i = 0; i < n; i++) {
        const fault *f = &w->faults[i];
        if (f->stream == s && (f->number[0] == number || f->number[1] == number)) {
            *op = f->op;
            *site = f->site;
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
            note(w, x, index);
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
    int n = 0;
    for (int i = 0; i < w->n_launches; i++) {
        if (w->launches[i].stream != s || w->launches[i].work > work) {
            w->launches[n++] = w->launches[i];
        }
    }
    w->n_launches = n;
}

void wf_cuda_words_launch(wf_cuda_device *d, const wf_cuda_graph *g, const wf_cuda_stream *s,
                          uint64_t op, bool queued)
{
    wf_cuda_words *w = d->words;
    for (int i = 0; queued && i < w->n_launches; i++) {
        launch *l = &w->launches[i];
        l->work = l->graph == g && l->stream == s && l->op == op ? s->work : l->work;
    }
    if (!queued) {
        if (w->n_launches == LAUNCHES) { /* the oldest is forgotten */
            memmove(w->launches, w->launches + 1, (LAUNCHES - 1) * sizeof *w->launches);
            w->n_launches--;
        }
        w->launches[w->n_launches++] = (launch){g, s, op, UINT64_MAX};
    }
}

static void keep_operands(operands *o, const wf_view *v, int n)
{
    int used = 0;
    o->n = (uint8_t)n;
    o->kept = 0;
    for (int i = 0; i < n && i < OPERANDS && used + v[i].rank <= EXTENTS; i++) {
        o->dtype[i] = (uint8_t)v[i].dtype;
        o->rank[i] = (uint8_t)v[i].rank;
        memcpy(o->dims + used, v[i].dims, (size_t)v[i].rank * sizeof *o->dims);
        used += v[i].rank;
        o->kept++;
    }
}

/* "; operands: f32[6,3], i64[2]" */
static void put_operands(const operands *o, char *text, size_t size)
{
    const int64_t *dim = o->dims;
    size_t at = 0;
    text[0] = 0;
#define PUT(...) at += at < size ? (size_t)snprintf(text + at, size - at, __VA_ARGS__) : 0
    for (int i = 0; i < o->kept; i++) {
        PUT("%s%s[", i ? ", " : "; operands: ", wf_dtype_name(o->dtype[i]));
        for (int k = 0; k < o->rank[i]; k++, dim++) {
            if (*dim < 0) {
                PUT("%s?", k ? "," : ""); /* a symbol */
            } else {
                PUT("%s%lld", k ? "," : "", (long long)*dim);
            }
        }
        PUT("]");
    }
    if (o->kept && o->kept < o->n) {
        PUT(", ...");
    }
#undef PUT
}

static int report(wf_cuda_words *w, int ordinal, wf_why *why)
{
    const fault *f = w->untold;
    if (!f || !why) { /* nobody to tell: the next wait does */
        return 0;
    }
    w->untold = NULL;
    char called[96];
    put_operands(&f->of, called, sizeof called);
    wf_fail(why, WEFT_EINDEX, "%s found index %lld outside [0, %lld) on cuda:%d%s%.96s%s",
            f->op == WF_OP_INVALID ? "an op" : wf_rows[f->op].name, (long long)f->index,
            (long long)f->bound, ordinal, f->site ? ", called at " : "", f->site ? f->site : "",
            called);
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
                       const wf_view *operand, int n, void **device_address, wf_why *why)
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
        keep_operands(&x->of, operand, n);
        x->number[0] = wf_cuda_op_now(s);
        x->number[1] = 0;
        x->reported = false;
        x->graph = s->capture;
        x->open = false;
        if (x->graph) {
            s->capture->checks = true;
        } else {
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
    wf_cuda_words *w = d->words;
    for (word *x = w ? w->used : NULL; x; x = x->next) {
        if (x->graph == g) { /* its launches may still run: over when the next waits say so */
            x->graph = NULL;
            x->stream = last ? last : x->stream;
            x->work = x->stream->work;
            x->number[0] = g->last_op;
            x->number[1] = 0;
        }
    }
    int n = 0;
    for (int i = 0; w && i < w->n_launches; i++) { /* another graph may come to lie where g does */
        if (w->launches[i].graph != g) {
            w->launches[n++] = w->launches[i];
        }
    }
    if (w) {
        w->n_launches = n;
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
