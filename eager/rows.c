/*
 * eager/rows.c -- see eager/rows.h.
 *
 * Invariant: no result depends on which rows are a task or are converted together.
 */
#include "eager/rows.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/cpuid.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

enum {
    ROW_TASK_ELEMENTS = 1 << 15, /* elements worth a task */
    ROW_AWAKE = 1 << 13,         /* and a share of a worker that is awake */
    GROUP_BYTES = 16 << 10,      /* of rows that are converted together */
    LEAST_GROUP = 4,
    PAST_TASK_ELEMENTS =
        1 << 17,             /* where stores bypass the caches: a task ends by waiting for them */
    LOAD_PIECE = 512,        /* elements that are converted between requests for what comes */
    LOAD_AHEAD = 4 << 10,    /* bytes that these run ahead */
    STREAM_ROW = 64 << 10,   /* a row that stays in cache, to be written past it from scratch */
    AFTER_BYTES = 128 << 10, /* of rows that are handed on together */
    SCRATCH_BYTES = 32 << 20 /* aim for converted rows of all tasks together */
};

const wf_row_kernels *wf_row_kernels_of(int compute)
{
    static const wf_row_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = wf_row_kernels_sse2,
        [WF_ISA_AVX2] = wf_row_kernels_avx2,
        [WF_ISA_AVX512] = wf_row_kernels_avx512,
    };
    return &by_isa[wf_isa()][compute == WEFT_F64 ? 1 : 0];
}

const wf_plane_kernels *wf_plane_kernels_now(void)
{
    static const wf_plane_kernels *const by_isa[WF_NISA] = {
        [WF_ISA_SSE2] = &wf_plane_kernels_sse2,
        [WF_ISA_AVX2] = &wf_plane_kernels_avx2,
        [WF_ISA_AVX512] = &wf_plane_kernels_avx512,
    };
    return by_isa[wf_isa()];
}

typedef struct row_run {
    const wf_row_job *job;
    const wf_red_kernels *k;
    char *scratch; /* slots of one row each, `slots` per task */
    int slots;
    int64_t grain;
    int64_t group; /* rows that are converted at once, on the stack, or 0 */
    bool stream;   /* results are copied past the caches from scratch... */
    bool direct;   /* ...or stored there by the kernel */
    bool hands_on; /* to job->after */
} row_run;

/* A row may be a page, and nobody else sees where it leads: asks for the next one of each operand. */
static void ask_behind(const wf_row_job *job, const void *const *in, int64_t bytes)
{
    for (int k = 0; k < job->nin; k++) {
        wf_look_ahead(in[k], bytes);
    }
    __asm__ volatile(""); /* gcc leaves out calls of functions that only ask for memory */
}

static void many_rows(const row_run *r, int64_t begin, int64_t end)
{
    const wf_row_job *job = r->job;
    const int64_t offset = begin * job->n * (int64_t)r->k->size;
    const void *in[WF_ROWS_IN] = {NULL};
    void *out[WF_ROWS_OUT] = {NULL};
    for (int k = 0; k < job->nin; k++) {
        in[k] = (const char *)job->in[k].data + offset;
    }
    for (int k = 0; k < job->nout; k++) {
        out[k] = (char *)(uintptr_t)job->out[k].data + offset;
    }
    job->many(job->ctx, begin, end - begin, in, out, r->direct);
    if (r->direct) {
        __builtin_ia32_sfence();
    }
}

void wf_rows_load(const wf_red_kernels *k, void *to, const void *from, int dtype, int64_t n)
{
    const int64_t in = (int64_t)wf_dtype_size(dtype), out = (int64_t)k->size;
    const int64_t ahead =
        n * in < LOAD_AHEAD ? n * in : LOAD_AHEAD; /* of short rows: the next one */
    for (int64_t i = 0, piece; i < n; i += piece) {
        const char *at = (const char *)from + i * in;
        piece = n - i < LOAD_PIECE ? n - i : LOAD_PIECE;
        for (int64_t o = 0; o < piece * in; o += 64) {
            __builtin_prefetch(at + ahead + o);
        }
        k->load((char *)to + i * out, at, dtype, 1, piece);
    }
}

void *wf_rows_spread(const void *w, double none, int compute, int64_t channels, int64_t each)
{
    void *to = wf_scratch((size_t)(channels * each) * wf_red_size(compute));
    const float narrow = (float)none;
    wf_view dst = {.data = to,
                   .dtype = (uint8_t)compute,
                   .rank = 2,
                   .dims = {channels, each},
                   .strides = {each, 1}};
    wf_view src = dst;
    src.data = w != NULL             ? (void *)(uintptr_t)w
               : compute == WEFT_F64 ? (void *)&none
                                     : (void *)(uintptr_t)&narrow;
    src.strides[0] = w != NULL;
    src.strides[1] = 0;
    if (to != NULL) {
        wf_copy(&dst, &src);
    }
    return to;
}

/* Short rows, of which a call for each would take longer than their elements: as many as a first cache holds are converted together. */
static __attribute__((noinline)) void grouped_rows(const row_run *r, int64_t begin, int64_t end)
{
    const wf_row_job *job = r->job;
    const int compute = job->compute;
    const int64_t n = job->n, row_bytes = n * (int64_t)r->k->size;
    const wf_kernels *convert = wf_kernels_now();
    _Alignas(64) char room[GROUP_BYTES];
    for (int64_t i = begin, rows; i < end; i += rows) {
        rows = end - i < r->group ? end - i : r->group;
        const void *in[WF_ROWS_IN] = {NULL};
        void *out[WF_ROWS_OUT] = {NULL};
        char *slot = room;
        for (int k = 0; k < job->nin; k++) {
            const int from = job->in[k].dtype;
            in[k] = (const char *)job->in[k].data + i * n * (int64_t)wf_dtype_size(from);
            if (from != compute) {
                convert->cast[compute][from](slot, in[k], (size_t)(rows * n));
                in[k] = slot;
                slot += r->group * row_bytes;
            }
        }
        for (int k = 0; k < job->nout; k++) {
            const bool same = job->out[k].dtype == compute;
            out[k] = same ? (char *)(uintptr_t)job->out[k].data + i * row_bytes : slot;
            slot += same ? 0 : r->group * row_bytes;
        }
        const void *const made = out[0];
        if (job->many != NULL) {
            job->many(job->ctx, i, rows, in, out, false);
        } else {
            for (int64_t j = 0; j < rows; j++) {
                job->fn(job->ctx, i + j, in, out, false);
                for (int k = 0; k < job->nin; k++) {
                    in[k] = (const char *)in[k] + row_bytes;
                }
                for (int k = 0; k < job->nout; k++) {
                    out[k] = (char *)out[k] + row_bytes;
                }
            }
        }
        for (int k = 0; k < job->nout && job->out[k].dtype != compute; k++) {
            const int to = job->out[k].dtype;
            convert->cast[to][compute]((char *)(uintptr_t)job->out[k].data +
                                           i * n * (int64_t)wf_dtype_size(to),
                                       made, (size_t)(rows * n));
        }
    }
}
_Static_assert(WF_ROWS_OUT == 1, "made is the only one");

static void some_rows(void *arg, int64_t begin, int64_t end)
{
    const row_run *r = arg;
    const wf_row_job *job = r->job;
    int64_t row_bytes = job->n * (int64_t)r->k->size;
    if (job->many != NULL && r->slots == 0) {
        many_rows(r, begin, end);
        return;
    }
    if (r->group > 0) {
        grouped_rows(r, begin, end);
        return;
    }
    char *slot = r->scratch + (r->slots > 0 ? begin / r->grain * r->slots * row_bytes : 0);
    for (int64_t i = begin; i < end; i++) {
        const void *in[WF_ROWS_IN] = {NULL};
        void *out[WF_ROWS_OUT] = {NULL};
        char *free_slot = slot;
        for (int k = 0; k < job->nin; k++) {
            const char *at = (const char *)job->in[k].data +
                             i * job->n * (int64_t)wf_dtype_size(job->in[k].dtype);
            in[k] = at;
            if (job->in[k].dtype != job->compute) {
                wf_rows_load(r->k, free_slot, at, job->in[k].dtype, job->n);
                in[k] = free_slot;
                free_slot += row_bytes;
            }
        }
        char *to[WF_ROWS_OUT] = {NULL};
        for (int k = 0; k < job->nout; k++) {
            to[k] = (char *)(uintptr_t)job->out[k].data +
                    i * job->n * (int64_t)wf_dtype_size(job->out[k].dtype);
            bool via = r->stream || job->out[k].dtype != job->compute;
            out[k] = via ? free_slot : to[k];
            free_slot += via ? row_bytes : 0;
        }
        if (r->hands_on) {
            ask_behind(job, in, row_bytes);
        }
        job->fn(job->ctx, i, in, out, r->direct);
        for (int k = 0; k < job->nout; k++) {
            if (job->out[k].dtype == job->compute && out[k] != to[k]) {
                r->k->stream(to[k], out[k], (size_t)row_bytes);
            } else if (out[k] != to[k]) {
                r->k->store(to[k], job->out[k].dtype, out[k], job->n);
            }
        }
    }
    if (r->stream || r->direct) {
        __builtin_ia32_sfence();
    }
}

/* So many as the second cache holds, which whoever they are handed to finds there. */
static void rows_task(void *arg, int64_t begin, int64_t end)
{
    const row_run *r = arg;
    const wf_row_job *job = r->job;
    if (!r->hands_on) {
        some_rows(arg, begin, end);
        return;
    }
    const int64_t most = AFTER_BYTES / (job->n * (int64_t)r->k->size) + 1;
    for (int64_t i = begin, rows; i < end; i += rows) {
        rows = end - i < most ? end - i : most;
        some_rows(arg, i, i + rows);
        job->after->rows(job->after->arg, i, rows);
    }
}

bool wf_rows_finish(const wf_row_job *job)
{
    bool same = job->after != NULL && job->nout == 1 && job->out[0].dtype == job->compute;
    for (int k = 0; k < job->nin; k++) {
        same &= job->in[k].dtype == job->compute;
    }
    return same && job->rows * job->n * (int64_t)wf_red_size(job->compute) > WF_STREAM_BYTES;
}

int wf_rows_run(const wf_row_job *job, wf_why *why)
{
    if (job->rows == 0 || job->n == 0) {
        return 0;
    }
    row_run r = {.job = job, .k = wf_red_kernels_of(job->compute), .hands_on = wf_rows_finish(job)};
    for (int k = 0; k < job->nin; k++) {
        r.slots += job->in[k].dtype != job->compute;
    }
    int64_t row_bytes = job->n * (int64_t)r.k->size;
    bool large = !r.hands_on && job->nout > 0 && job->rows * row_bytes > WF_STREAM_BYTES;
    r.direct = large && job->out[0].dtype == job->compute && job->n <= job->nt_limit &&
               row_bytes % 64 == 0 && (uintptr_t)job->out[0].data % 64 == 0;
    r.stream = large && !r.direct && row_bytes <= STREAM_ROW;
    for (int k = 0; k < job->nout; k++) {
        r.slots += r.stream || job->out[k].dtype != job->compute;
    }
    const int64_t worth =
        (r.direct || r.stream || r.hands_on ? PAST_TASK_ELEMENTS : ROW_TASK_ELEMENTS) / job->n + 1;
    /* kernels take four rows at once; of long ones each is worth more than that */
    wf_shares shares = wf_even_shares(job->rows, worth, ROW_AWAKE / job->n + 1,
                                      job->many != NULL && worth > 4 ? 4 : 1);
    r.grain = shares.grain;
    size_t bytes = 0;
    const int64_t fit = r.slots > 0 ? GROUP_BYTES / (r.slots * row_bytes) : 0;
    const bool stored = r.stream && job->out[0].dtype == job->compute;
    r.group = fit < LEAST_GROUP || stored ? 0 : fit / LEAST_GROUP * LEAST_GROUP;
    if (r.slots > 0 && r.group == 0) {
        int64_t most = SCRATCH_BYTES / (r.slots * row_bytes);
        most = most < 8 ? 8 : most;
        int64_t least = (job->rows + most - 1) / most;
        r.grain = r.grain > least ? r.grain : least;
        bytes = (size_t)((job->rows + r.grain - 1) / r.grain * r.slots * row_bytes);
        r.scratch = wf_scratch(bytes);
        if (r.scratch == NULL) {
            return wf_red_nomem(why, (int64_t)bytes);
        }
    }
    shares.grain = r.grain;
    wf_parallel_shares(job->rows, shares, rows_task, &r);
    wf_scratch_free(r.scratch, bytes);
    return 0;
}

wf_view wf_move_last(const wf_view *v, int last)
{
    wf_view r = *v;
    if (last >= 0) {
        for (int i = last; i + 1 < v->rank; i++) {
            r.dims[i] = v->dims[i + 1];
            r.strides[i] = v->strides[i + 1];
        }
        r.dims[v->rank - 1] = v->dims[last];
        r.strides[v->rank - 1] = v->strides[last];
    }
    return r;
}

int wf_pack(wf_packed *p, const wf_view *v, int dtype, int last, wf_why *why)
{
    *p = (wf_packed){.data = v->data};
    if (v->data == NULL || (last < 0 && v->dtype == dtype && wf_view_is_contiguous(v))) {
        return 0; /* without a copy of a view, which has room for many axes */
    }
    wf_view from = wf_move_last(v, last);
    if (v->dtype == dtype && wf_view_is_contiguous(&from)) {
        return 0;
    }
    wf_view to = from;
    int64_t n = 1;
    for (int i = to.rank - 1; i >= 0; i--) {
        to.strides[i] = n;
        n *= to.dims[i];
    }
    to.dtype = (uint8_t)dtype;
    p->bytes = (size_t)n * wf_dtype_size(dtype);
    p->owned = wf_scratch(p->bytes);
    if (p->owned == NULL) {
        return wf_red_nomem(why, (int64_t)p->bytes);
    }
    p->data = to.data = p->owned;
    wf_copy(&to, &from);
    return 0;
}

void wf_unpack(wf_packed *p)
{
    wf_scratch_free(p->owned, p->bytes);
    p->owned = NULL;
}
