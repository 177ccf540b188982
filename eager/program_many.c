/*
 * eager/program_many.c -- one program over many independent tensors (an optimiser's step over a model).
 *
 * Runs whose operands are flat memory are cut into pieces, and all pieces of all runs are one parallel loop:
 * a model of small tensors keeps every thread busy. Other runs follow one by one. Pieces depend on shapes
 * alone.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/program_run.h"

enum { PIECE = 8192 };

typedef struct many {
    const wf_program *p;
    const wf_program_args *a;
    const wf_map_run *shared;
    bool ahead; /* the caches do not hold what they move */
    int64_t count;
    int64_t *first; /* pieces before run i; count + 1 of them */
} many;

static bool is_single(const wf_view *v)
{
    for (int i = 0; i < v->rank; i++)
        if (v->dims[i] != 1 && v->strides[i] != 0)
            return false;
    return true;
}

/* The elements if all operands are flat, of their own types, or single elements; else -1. */
static int64_t flat_elements(const wf_program *p, const wf_program_args *a)
{
    const int64_t n = wf_view_numel(&a->dst[0]);
    if (wf_program_draws(p) != 0)
        return -1;
    for (int k = 0; k < p->noutput; k++)
        if (!wf_view_is_contiguous(&a->dst[k]) || a->dst[k].dtype != p->type[p->output[k]])
            return -1;
    for (int k = 0; k < p->ninput; k++)
        if (!is_single(&a->src[k]) && !wf_view_is_contiguous(&a->src[k]))
            return -1;
    return n;
}

/* Elements [begin, end) of a run. */
static void run_piece(const wf_map_run *r, const wf_program_args *a, bool ahead, int64_t begin,
                      int64_t end)
{
    const wf_program *p = r->p;
    void *dst[WF_PROGRAM_OUTPUTS];
    const void *src[WF_PROGRAM_INPUTS];
    unsigned single = 0;
    for (int k = 0; k < p->ninput; k++)
        single |= is_single(&a->src[k]) ? 1u << k : 0;
    for (int64_t i = begin; i < end; i += r->tile) {
        const int64_t n = end - i < r->tile ? end - i : r->tile;
        for (int k = 0; k < p->noutput; k++)
            dst[k] = (char *)a->dst[k].data + i * (int64_t)wf_dtype_size(a->dst[k].dtype);
        for (int k = 0; k < p->ninput; k++)
            src[k] = (const char *)a->src[k].data +
                     (single >> k & 1 ? 0 : i * (int64_t)wf_dtype_size(a->src[k].dtype));
        (ahead ? wf_map_run_tile_ahead : wf_map_run_tile)(r, dst, src, (size_t)n,
                                                          n > 1 ? single : 0);
    }
}

static void do_pieces(void *arg, int64_t begin, int64_t end)
{
    const many *m = arg;
    wf_map_run r = *m->shared;
    int64_t low = 0, high = m->count - 1;
    while (low < high) { /* the last run that starts at or before the piece */
        const int64_t mid = (low + high + 1) / 2;
        if (m->first[mid] <= begin)
            low = mid;
        else
            high = mid - 1;
    }
    for (int64_t i = low, piece = begin; piece < end; i++) {
        const int64_t last = m->first[i + 1] < end ? m->first[i + 1] : end;
        if (piece >= last)
            continue;
        const int64_t n = wf_view_numel(&m->a[i].dst[0]), stop = (last - m->first[i]) * PIECE;
        wf_map_run_aim(&r, &m->a[i]);
        run_piece(&r, &m->a[i], m->ahead, (piece - m->first[i]) * PIECE, stop < n ? stop : n);
        piece = last;
    }
}

static int run_in_turn(const wf_program *p, int64_t count, const wf_program_args *a)
{
    int status = 0;
    for (int64_t i = 0; i < count; i++) {
        const int s = wf_program_run_on(p, &a[i]);
        status = s != 0 ? s : status;
    }
    return status;
}

int wf_program_run_many(const wf_program *p, int64_t count, const wf_program_args *a)
{
    int64_t *first = p->rows || count < 2 ? NULL : wf_scratch((size_t)(count + 1) * sizeof *first);
    if (first == NULL)
        return run_in_turn(p, count, a);
    wf_map_run r;
    wf_map_run_init(&r, p);
    many m = {.p = p, .a = a, .shared = &r, .count = count, .first = first};
    int64_t bytes = 0;
    first[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = flat_elements(p, &a[i]);
        first[i + 1] = first[i] + (n > 0 ? (n + PIECE - 1) / PIECE : 0);
        bytes += wf_program_moves(p, &a[i]);
    }
    m.ahead = bytes >= WF_STREAM_FROM;
    wf_parallel_for(first[count], (r.grain + PIECE - 1) / PIECE, do_pieces, &m);
    for (int64_t i = 0; i < count; i++)
        if (flat_elements(p, &a[i]) < 0)
            wf_program_run_on(p, &a[i]);
    wf_scratch_free(first, (size_t)(count + 1) * sizeof *first);
    return 0;
}
