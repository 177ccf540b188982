/*
 * jit/kernels_run.c -- runs a native kernel over views of any strides.
 *
 * Operands that are contiguous, or one element, are read and written in place, chunk by chunk. Everything
 * else goes through the tile loop of eager/map.c, with the kernel in the place of the row: strided operands
 * are packed into tiles that stay in L1. Sources that are turned (a transposed matrix) would be picked there from as many lines as
 * a tile has elements: they are turned first, for a piece of all operands at a time, by the copy that is made for that.
 *
 * Elements do not depend on one another, so chunks may be cut anywhere. Where more is moved than caches hold a chunk begins in memory
 * that nobody has asked for, and ends by waiting for stores that pass the caches: those are longer.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/dense.h"
#include "eager/exec.h"
#include "eager/kernels/kernels.h"
#include "eager/map.h"
#include "eager/pool.h"
#include "eager/program_run.h"
#include "jit/kernels_impl.h"

enum {
    GRAIN_CHEAP = 32768, /* elements a chunk */
    GRAIN_HEAVY = 4096,
    CHUNK_FAR = 3 << 19, /* bytes a chunk moves, of more than caches hold */
    TILE = 1024,
    SPREAD = 32 << 10, /* bytes of stack for broadcast elements */
    LINE = 64
};

typedef struct run {
    const wf_jitk *k;
    const wf_exe *exe;
    const uint64_t *scalar;
    uint32_t draws;           /* inputs that are drawn, from */
    const void *const *drawn; /* the scalars as the program takes them */
    void *ptr[WF_KERNEL_MAX_PTR];
    uint64_t flags;
    int64_t n, grain;
} run;

/* Whole lines of any type, so that every chunk of an aligned destination is aligned: stores past the caches
 * need that. */
static int64_t grain_of(const wf_program *p)
{
    const int64_t grain = GRAIN_CHEAP / (p->ninst > 8 ? 8 : p->ninst ? p->ninst : 1) / LINE * LINE;
    return p->heavy && grain > GRAIN_HEAVY ? GRAIN_HEAVY : grain;
}

static void launch_with(const run *r, void *const *ptr, int64_t begin, int64_t end, uint64_t flags)
{
    const int64_t size[1] = {end};
    wf_backend_cpu.launch(r->exe, &(wf_launch){.ptr = ptr,
                                               .size = size,
                                               .scalar = r->scalar,
                                               .begin = begin,
                                               .end = end,
                                               .flags = flags});
}

static void launch(const run *r, void *const *ptr, int64_t begin, int64_t end)
{
    launch_with(r, ptr, begin, end, r->flags);
}

/* -- operands in place ------------------------------------------------------------------------------------ */
static bool is_flat(const wf_view *v, int64_t n)
{
    return n == 1 || wf_view_is_contiguous(v);
}

/* Fills r->ptr if every operand is contiguous or, where the kernel was told so, one element. */
static bool flatten(run *r, const wf_view *dst, const wf_view *src)
{
    const wf_program *p = &r->k->program;
    r->n = wf_view_numel(&dst[0]);
    for (int k = 0; k < p->noutput; k++) {
        if (!is_flat(&dst[k], r->n))
            return false;
        r->ptr[k] = dst[k].data;
    }
    for (int k = 0; k < p->ninput; k++) {
        if (!((r->k->one | r->draws) >> k & 1) && !is_flat(&src[k], r->n))
            return false;
        r->ptr[p->noutput + k] = src[k].data;
    }
    return true;
}

static bool is_aligned(const void *p)
{
    uintptr_t at;
    memcpy(&at, &p, sizeof at);
    return at % LINE == 0;
}

static int64_t bytes_moved(const run *r, const wf_program_args *a)
{
    const wf_program *p = &r->k->program;
    int64_t bytes = 0;
    for (int k = 0; k < p->noutput; k++)
        bytes += r->n * (int64_t)wf_dtype_size(a->dst[k].dtype);
    for (int k = 0; k < p->ninput; k++)
        if (!((r->k->one | r->draws) >> k & 1))
            bytes += r->n * (int64_t)wf_dtype_size(a->src[k].dtype);
    return bytes;
}

/* May stores pass the caches? If no destination is read as well. */
static bool may_stream(const run *r, const wf_program_args *a)
{
    const wf_program *p = &r->k->program;
    for (int k = 0; k < p->noutput; k++) {
        for (int j = 0; j < p->ninput; j++)
            if (a->dst[k].data == a->src[j].data)
                return false;
        if (!is_aligned(a->dst[k].data))
            return false;
    }
    return true;
}

/* What moves more data than the caches hold. */
static void go_far(run *r, const wf_program_args *a, int64_t moves)
{
    const int64_t least = 4 * (int64_t)wf_num_threads(), chunks = moves / CHUNK_FAR + 1;
    const int64_t chunk = r->n / (chunks > least ? chunks : least) / LINE * LINE;
    r->grain = chunk > r->grain ? chunk : r->grain;
    r->flags = may_stream(r, a) ? WF_LAUNCH_STREAM : 0;
}

/* Elements [begin, end) in pieces for which the draws fit into tiles. */
static void run_range(const run *r, int64_t begin, int64_t end)
{
    const wf_program *p = &r->k->program;
    _Alignas(LINE) char tiles[SPREAD];
    void *ptr[WF_KERNEL_MAX_PTR];
    if (!r->draws) {
        launch(r, r->ptr, begin, end);
        return;
    }
    int64_t piece = SPREAD / 8 / __builtin_popcount(r->draws) / LINE * LINE;
    /* no stores while a draw goes on: those past the caches wait for memory if many come at once */
    const int64_t most = r->flags & WF_LAUNCH_STREAM ? TILE / 2 : TILE;
    piece = piece < most ? piece : most;
    for (int64_t at = begin; at < end; at += piece) {
        const int64_t n = end - at < piece ? end - at : piece;
        char *room = tiles;
        for (int k = 0; k < p->noutput; k++)
            ptr[k] = (char *)r->ptr[k] + at * (int64_t)wf_dtype_size(p->type[p->output[k]]);
        for (int k = 0; k < p->ninput; k++) {
            const int o = p->noutput + k;
            const int64_t size = (int64_t)wf_dtype_size(p->type[p->input[k]]);
            ptr[o] = r->k->one >> k & 1 ? r->ptr[o] : (char *)r->ptr[o] + at * size;
            if (r->draws >> k & 1) {
                wf_program_fill(p, k, r->drawn, room, at, n);
                ptr[o] = room;
                room += piece * 8;
            }
        }
        launch(r, ptr, 0, n);
    }
}

static void flat_chunk(void *arg, int64_t begin, int64_t end)
{
    const run *r = arg;
    const int64_t last = end * r->grain < r->n ? end * r->grain : r->n;
    run_range(r, begin * r->grain, last);
    if (r->flags & WF_LAUNCH_STREAM)
        wf_kernels_now()->fence();
}

static void run_flat(run *r)
{
    int64_t chunks = (r->n + r->grain - 1) / r->grain;
    if (chunks > 2) {
        wf_parallel_for(chunks, 1, flat_chunk, r);
        return;
    }
    r->grain = wf_awake_grain(r->n, r->grain / 4 + 1, LINE);
    chunks = (r->n + r->grain - 1) / r->grain;
    wf_parallel_awake(chunks, 1, flat_chunk, r);
}

/* -- operands through tiles ---------------------------------------------------------------------------------- */
/* A broadcast element that the kernel was not told of is spread over a tile, which all pieces share. */
static void tile(const void *arg, void *const *dst, const void *const *src, size_t n,
                 unsigned bcast)
{
    const run *r = arg;
    const wf_program *p = &r->k->program;
    const unsigned past = wf_past_bit(p->ninput);
    const uint64_t flags = bcast & past ? WF_LAUNCH_STREAM : 0;
    const uint32_t spread = n > 1 ? bcast & ~(r->k->one | past) : 0;
    _Alignas(LINE) char tiles[SPREAD];
    void *ptr[WF_KERNEL_MAX_PTR];
    size_t size[WF_KERNEL_MAX_PTR], piece = n;
    if (spread) {
        piece = SPREAD / 8 / (size_t)__builtin_popcount(spread) / LINE * LINE;
        piece = piece < n ? piece : n;
    }
    for (int k = 0; k < p->noutput; k++) {
        ptr[k] = dst[k];
        size[k] = wf_dtype_size(p->type[p->output[k]]);
    }
    char *room = tiles;
    for (int k = 0; k < p->ninput; k++) {
        const int o = p->noutput + k;
        const size_t esize = wf_dtype_size(p->type[p->input[k]]);
        memcpy(&ptr[o], &src[k], sizeof *src);
        size[o] = (spread | r->k->one) >> k & 1 ? 0 : esize;
        if (spread >> k & 1) {
            wf_fill_tile(room, src[k], esize, piece);
            ptr[o] = room;
            room += piece * 8;
        }
    }
    for (size_t at = 0; at < n; at += piece) {
        launch_with(r, ptr, 0, (int64_t)(n - at < piece ? n - at : piece), flags);
        for (int k = 0; k < p->noutput + p->ninput; k++)
            ptr[k] = (char *)ptr[k] + piece * size[k];
    }
}

static void draw(const void *arg, int k, void *dst, int64_t first, int64_t n)
{
    const run *r = arg;
    wf_program_fill(&r->k->program, k, r->drawn, dst, first, n);
}

static void run_tiles(const run *r, const wf_program_args *a)
{
    const wf_program *p = &r->k->program;
    uint8_t dst_type[WF_PROGRAM_OUTPUTS], src_type[WF_PROGRAM_INPUTS];
    for (int k = 0; k < p->noutput; k++)
        dst_type[k] = p->type[p->output[k]];
    for (int k = 0; k < p->ninput; k++)
        src_type[k] = p->type[p->input[k]];
    wf_tiles_run(&(wf_tiles){.ndst = p->noutput,
                             .nsrc = p->ninput,
                             .dst = a->dst,
                             .src = a->src,
                             .dst_type = dst_type,
                             .src_type = src_type,
                             .grain = r->grain,
                             .tile = TILE,
                             .drawn = r->draws,
                             .draw = draw,
                             .beside = a->beside,
                             .past = true,
                             .fn = tile,
                             .arg = r});
}

/* -- turned sources ------------------------------------------------------------------------------------------- */
enum {
    TURNED_PIECE = 1 << 16, /* elements: a few matrices, or */
    TURNED_COLS = 1 << 10,  /* so many columns of some rows */
    TURNED_LEAST = 1 << 13  /* as few in a thread's share as are worth a piece */
};

typedef struct turned {
    const run *r;
    const wf_program_args *a;
    uint32_t which;                   /* sources */
    int64_t each[WF_MAX_RANK];        /* extents of a piece */
    int64_t count[WF_MAX_RANK];       /* pieces along an axis */
    int64_t bytes[WF_PROGRAM_INPUTS]; /* a piece of a turned source, in whole lines */
    int64_t all, moves;               /* bytes: of a piece of all of them, of the launch */
} turned;

/* Neighbours of the last axis lie apart, those of another one do not. */
static bool is_turned(const wf_view *v)
{
    int last = v->rank - 1;
    while (last > 0 && v->dims[last] == 1)
        last--;
    if (last <= 0 || v->strides[last] == 0 || v->strides[last] == 1)
        return false;
    for (int i = 0; i < last; i++)
        if (v->strides[i] == 1 && v->dims[i] > 4)
            return true;
    return false;
}

/* Of views of the same extents. */
static bool is_same_map(const wf_view *a, const wf_view *b)
{
    return memcmp(a->strides, b->strides, (size_t)a->rank * sizeof *a->strides) == 0;
}

static wf_view piece_of(const turned *t, const wf_view *v, const int64_t *at)
{
    wf_view part = *v;
    for (int i = 0; i < v->rank; i++)
        part = wf_view_narrow(part, i, at[i],
                              v->dims[i] - at[i] < t->each[i] ? v->dims[i] - at[i] : t->each[i]);
    return part;
}

static void turned_task(void *arg, int64_t begin, int64_t end)
{
    turned *t = arg;
    const wf_program *p = &t->r->k->program;
    char *room = wf_scratch((size_t)t->all);
    const uint32_t which = room ? t->which : 0; /* (without memory tiles pick them) */
    for (int64_t piece = begin; piece < end; piece++) {
        wf_view dst[WF_PROGRAM_OUTPUTS], src[WF_PROGRAM_INPUTS];
        int64_t at[WF_MAX_RANK], left = piece;
        char *to = room;
        for (int i = t->a->dst[0].rank; i-- > 0; left /= t->count[i])
            at[i] = left % t->count[i] * t->each[i];
        for (int k = 0; k < p->noutput; k++)
            dst[k] = piece_of(t, &t->a->dst[k], at);
        for (int k = 0; k < p->ninput; k++) {
            src[k] = piece_of(t, &t->a->src[k], at);
            if (which >> k & 1) {
                const wf_view straight = wf_view_dense(to, src[k].dtype, src[k].rank, src[k].dims);
                wf_copy(&straight, &src[k]);
                src[k] = straight;
                to += t->bytes[k];
            }
        }
        wf_program_args a = *t->a;
        a.dst = dst;
        a.src = src;
        a.beside += t->moves;
        run one = *t->r;
        if (flatten(&one, dst, src)) {
            one.flags = t->moves + t->a->beside >= WF_STREAM_FROM && may_stream(&one, &a)
                            ? WF_LAUNCH_STREAM
                            : 0;
            launch(&one, one.ptr, 0, one.n);
        } else {
            run_tiles(&one, &a);
        }
    }
    wf_kernels_now()->fence();
    if (room)
        wf_scratch_free(room, (size_t)t->all);
}

/* Runs r that way if it is one for it. */
static bool run_turned(const run *r, const wf_program_args *a)
{
    const wf_program *p = &r->k->program;
    const wf_view *v = &a->dst[0];
    turned t = {.r = r, .a = a};
    const int64_t all = wf_view_numel(v), share = all / wf_num_threads();
    const int64_t piece = share > TURNED_PIECE   ? TURNED_PIECE
                          : share < TURNED_LEAST ? TURNED_LEAST
                                                 : share;
    int64_t n = 1, pieces = 1;
    for (int k = 0; k < p->ninput; k++)
        t.which |= !(r->k->one >> k & 1) && is_turned(&a->src[k]) ? 1u << k : 0;
    if (!t.which || r->draws || all < TURNED_LEAST)
        return false;
    for (int k = 0; k < p->noutput; k++) /* what a piece writes another one may read */
        for (int j = 0; j < p->ninput; j++)
            if (a->dst[k].data == a->src[j].data && !is_same_map(&a->dst[k], &a->src[j]))
                return false;
    for (int i = v->rank; i-- > 0; n *= t.each[i]) {
        const int64_t most = i == v->rank - 1 ? TURNED_COLS : n < piece ? piece / n : 1;
        t.each[i] = v->dims[i] < most ? v->dims[i] : most;
        t.count[i] = (v->dims[i] + t.each[i] - 1) / t.each[i];
        pieces *= t.count[i];
    }
    for (int k = 0; k < p->ninput; k++)
        if (t.which >> k & 1) {
            t.bytes[k] = (n * (int64_t)wf_dtype_size(a->src[k].dtype) + LINE - 1) / LINE * LINE;
            t.all += t.bytes[k];
        }
    t.moves = bytes_moved(r, a);
    (pieces > 2 ? wf_parallel_for : wf_parallel_awake)(pieces, 1, turned_task, &t);
    return true;
}

/* The bits of one element; those of the usual type without a call. */
static uint64_t bits_of(const void *p, int dtype)
{
    uint32_t f32;
    if (dtype != WEFT_F32)
        return wf_kir_peek(p, wf_kir_storage(dtype), 0);
    memcpy(&f32, p, sizeof f32);
    return f32;
}

int wf_jitk_run(const wf_jitk *k, const wf_program_args *a)
{
    const wf_program *p = &k->program;
    const wf_exe *exe = atomic_load_explicit(&k->exe, memory_order_acquire);
    uint64_t scalar[WF_PROGRAM_SCALARS];
    if (!exe)
        return wf_program_run_on(p, a);
    for (int s = 0; s < p->nscalar; s++)
        scalar[s] = bits_of(a->scalars[s], p->type[p->scalar[s]]);
    if (p->rows) {
        const int status = wf_jitk_run_rows(k, exe, scalar, a);
        return status == WEFT_EUNSUPPORTED ? wf_program_run_on(p, a) : status;
    }
    run r; /* ptr is filled as far as it is read */
    r.k = k;
    r.exe = exe;
    r.scalar = scalar;
    r.draws = wf_program_draws(p);
    r.drawn = a->scalars;
    r.flags = 0;
    r.grain = grain_of(p);
    if (!flatten(&r, a->dst, a->src)) {
        r.n = wf_view_numel(&a->dst[0]);
        if (!run_turned(&r, a))
            run_tiles(&r, a);
        return 0;
    }
    if (r.n == 0)
        return 0;
    const int64_t moves = bytes_moved(&r, a);
    if (moves + a->beside >= WF_STREAM_FROM)
        go_far(&r, a, moves);
    run_flat(&r);
    return 0;
}
