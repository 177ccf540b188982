/*
 * jit/gpu/rows.c -- programs with reductions on the device: which scheme, scratch memory, arguments.
 *
 * Rows of at most 4096 elements are a warp's (or a part of one), longer ones a block's; a few very long ones
 * are split over the device, a kernel a step. Where the kept axes are the adjacent ones, 32 rows stand side by
 * side, or a thread has a short one. All schemes give the same bits, so the choice is about time only.
 *
 * A destination in the place of something that is still read, or is read by other threads, is written to a
 * temporary first.
 *
 * Many runs of a program that reduce everything (the norms of a model's gradients) are split together, a kernel a step.
 */
#include <stddef.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/env.h"
#include "eager/program_run.h"
#include "jit/gpu/impl.h"

enum {
    SPLIT_FROM = 1 << 15,   /* elements a row, if rows alone do not fill the device */
    SHARED_MOST = 48 << 10, /* dynamic shared memory, so that several blocks share a processor */
    RESIDENT = 2048,        /* threads of a processor */
    VECTOR_BYTES = 16,
    LANES = 16,              /* that a thread has registers for */
    RESIDENT_MOST = 32,      /* elements of a row that stay in them */
    RESIDENT_BYTES = 192,    /* of these, and of what is kept of them */
    RESIDENT_STEPS = 2048,   /* instructions of all stages for all of them */
    FILL = 512,              /* threads of a processor that are wanted */
    CACHED = 96 << 10,       /* bytes of what it works on that stay in its first cache */
    SHARED_ALL = 208 << 10,  /* and in its shared memory */
    WARPS = 8,               /* of a block that does not say otherwise */
    WORDS = WF_GPU_WORDS * 2 /* that the argument of one run has at most */
};
static const double MOSTLY = 0.75; /* of the bytes of elements */
static const int64_t longest_block_row = (int64_t)4096 * 4096;

typedef struct run {
    int ordinal;
    const wf_program *p;
    const wf_gpu_entry *e;
    const wf_rows_kernel *rows;
    wf_cu_rows r;
    wf_cu_layout l;
    int nop;
    uint64_t *words; /* of the argument; many runs have WF_GPU_MOST_WORDS */
    unsigned threads, shared;
    int64_t work, per_block, groups; /* groups: sets of kept values in global memory */
    bool later;
    wf_why *why;
    bool moved;         /* a destination is a temporary */
    wf_gpu_known known; /* ntemp: of the temporaries so far, those that have words */
    wf_gpu_temps temps; /* these are long, and are filled as far as they are used */
    wf_space s;
} run;

static bool is_row_operand(const run *r, int o)
{
    return o < r->rows->ndst ? r->rows->row_dst >> o & 1
                             : r->rows->row_src >> (o - r->rows->ndst) & 1;
}

/* Memory whose address is a word of the argument; NULL with why filled. */
static void *place_temp(run *r, int word, size_t bytes)
{
    void *memory = wf_gpu_temp(&r->temps, bytes, r->why);
    const int n = r->known.ntemp++;
    r->words[word] = wf_gpu_word(memory);
    if (n < WF_GPU_KNOWN_TEMPS) {
        r->known.temp[n].word = word;
        r->known.temp[n].bytes = bytes;
    }
    return memory;
}

/* -- destinations in the place of sources ------------------------------------------------------------------ */
static bool is_picked(const run *r, int src)
{
    for (int i = 0; i < r->rows->nstage; i++)
        if (r->rows->stage[i].kind == WF_ST_PICK && r->rows->stage[i].in[0].at == src)
            return true;
    return false;
}

static bool overwrites(const run *r, const wf_program_args *a, int d)
{
    for (int j = 0; j < r->p->ninput; j++)
        if (a->dst[d].data == a->src[j].data &&
            (r->rows->last_read[j] > r->rows->stored[d] || is_row_operand(r, d) || is_picked(r, j)))
            return true;
    return false;
}

/* dst[i] = the run's destinations; those that need it are temporaries of dense memory. */
static int place(run *r, const wf_program_args *a, wf_view *dst, bool *moved)
{
    for (int d = 0; d < r->p->noutput; d++) {
        dst[d] = a->dst[d];
        moved[d] = overwrites(r, a, d);
        if (!moved[d])
            continue;
        r->moved = true;
        int64_t step = 1;
        for (int i = dst[d].rank - 1; i >= 0; i--) {
            const bool spread = is_row_operand(r, d) && (a->axes >> i & 1);
            dst[d].strides[i] = spread ? 0 : step;
            step *= spread ? 1 : dst[d].dims[i];
        }
        dst[d].data = wf_gpu_temp(&r->temps, (size_t)step * wf_dtype_size(dst[d].dtype), r->why);
        if (!dst[d].data)
            return r->why->code;
    }
    return 0;
}

static int put_back(run *r, const wf_program_args *a, const wf_view *dst, const bool *moved)
{
    int status = 0;
    for (int d = 0; d < r->p->noutput && status == 0; d++) {
        wf_view to = a->dst[d], from = dst[d];
        if (!moved[d])
            continue;
        for (int i = 0; i < to.rank; i++)
            if (is_row_operand(r, d) && (a->axes >> i & 1))
                to.dims[i] = from.dims[i] = 1;
        status = wf_gpu_copy(r->ordinal, &to, &from, r->why);
    }
    return status;
}

/* -- the scheme -------------------------------------------------------------------------------------------- */
/* Bytes of the elements that an operand names, each counted once. */
static double bytes_of(const wf_space *s, const wf_operand *v)
{
    double bytes = (double)v->esize;
    for (int d = 0; d < s->nk; d++)
        bytes *= v->ks[d] ? (double)s->kd[d] : 1;
    for (int d = 0; d < s->nr; d++)
        bytes *= v->rs[d] ? (double)s->rd[d] : 1;
    return bytes;
}

/* Do neighbours in memory belong to neighbouring rows? What moves most bytes decides: the row statistics of a norm's
 * gradient are adjacent along the other axis than its operands, and are read from a cache. */
static bool is_side_by_side(const run *r)
{
    const wf_space *s = &r->s;
    double inner = 0, outer = 0;
    for (int o = 0; o < r->nop; o++) {
        const wf_operand *v = &s->op[o];
        const bool drawn = o >= r->rows->ndst && (r->e->kernel.drawn >> (o - r->rows->ndst) & 1);
        if (is_row_operand(r, o) || drawn || s->nk == 0 || s->nr == 0)
            continue;
        const int64_t along = v->rs[s->nr - 1], across = v->ks[s->nk - 1];
        if (along == 1)
            inner += bytes_of(s, v);
        else if (across == 1 || (along != 0 && across == 0))
            outer += bytes_of(s, v);
    }
    return s->rows >= WF_CU_SUBTREES && outer > inner;
}

/* Shared memory that kernels of columns side by side declare, with one a thread. */
static int64_t side_bytes(const run *r)
{
    return (int64_t)wf_cu_totals(&r->e->kernel) * WF_CU_SUBTREES * WF_CU_TILE * 8;
}

static wf_cu_scheme choose(const run *r)
{
    const int64_t processors = wf_gpu_processors(r->ordinal);
    const wf_space *s = &r->s;
    const bool beside = is_side_by_side(r);
    if (beside && s->n <= WF_CU_LANES && s->rows >= WARPS * processors * WF_CU_TILE)
        return WF_CU_COLUMN;
    if (beside && side_bytes(r) <= SHARED_MOST)
        return s->n <= WF_CU_BLOCK && s->rows >= 2 * processors * WF_CU_TILE ? WF_CU_OUTER
                                                                             : WF_CU_SPLIT_OUTER;
    if (s->n <= WF_CU_BLOCK)
        return WF_CU_WARP;
    if (s->n > longest_block_row || (s->n >= SPLIT_FROM && s->rows < processors))
        return WF_CU_SPLIT;
    return WF_CU_BLOCK_ROWS;
}

/* The operand's first element, counted from address 0 on. */
static uint64_t starts(const wf_operand *v)
{
    return wf_gpu_word(v->data) / (uint64_t)v->esize;
}

/* A bit for every step that keeps words of 4 bytes from being whole at every place; *alike: nothing steps along kept axes. */
static int64_t steps_of(const wf_space *s, const wf_operand *v, bool *alike)
{
    int64_t kept = 0, all = (int64_t)starts(v);
    for (int d = 0; d < s->nk; d++)
        kept |= v->ks[d];
    for (int d = 0; d < s->nk - 1; d++)
        all |= v->ks[d];
    for (int d = 0; d < s->nr; d++)
        all |= v->rs[d];
    *alike = kept == 0;
    return all | s->kd[s->nk - 1];
}

/* Columns of a thread: as many as a word of 4 bytes has elements of every operand of a SPLIT_OUTER kernel's stages, if those
 * can be read so (jit/ir/cuda_text.h). */
static int columns_of_thread(run *r)
{
    const wf_space *s = &r->s;
    const wf_operand *word = NULL;
    bool shifted = false, same = true;
    int64_t n = 0;
    for (int i = 0; i < r->rows->nstage; i++) {
        const wf_stage *st = &r->rows->stage[i];
        for (uint32_t k = 0; st->kind == WF_ST_ELEM && k < st->body.nout; k++)
            if (st->out[k].kind != WF_PORT_TOTAL)
                return 0;
        for (uint32_t k = 0; st->kind == WF_ST_ELEM && k < st->body.nparam; k++) {
            const int at = st->in[k].at;
            const wf_operand *v = &s->op[r->rows->ndst + at];
            bool alike;
            if (st->in[k].kind == WF_PORT_KEEP)
                return 0;
            if (st->in[k].kind != WF_PORT_SOURCE)
                continue;
            if (is_row_operand(r, r->rows->ndst + at) || r->e->kernel.drawn >> at & 1)
                return 0;
            const int64_t steps = steps_of(s, v, &alike), fit = 4 / v->esize;
            if (alike)
                r->r.alike |= UINT32_C(1) << at;
            else if (fit < 2 || v->ks[s->nk - 1] != 1 || (n && n != fit))
                return 0;
            else if (steps % fit != 0)
                shifted = true;
            if (!alike) {
                n = fit;
                word = word ? word : v;
                same &= (starts(v) - starts(word)) % (uint64_t)n == 0 &&
                        (v->rs[0] - word->rs[0]) % n == 0;
            }
        }
    }
    if (shifted && (!same || s->nk != 1 || s->nr != 1))
        return 0;
    r->r.shift = shifted && n > 1 && side_bytes(r) * n <= SHARED_MOST;
    return side_bytes(r) * n <= SHARED_MOST ? (int)n : 0;
}

/* -- vectors ------------------------------------------------------------------------------------------------- */
/* Do rows of both operands begin at equal places of vectors of v elements? */
static bool is_alike(const wf_space *s, const wf_operand *a, const wf_operand *b, int64_t v)
{
    bool alike = (starts(a) - starts(b)) % (uint64_t)v == 0;
    for (int d = 0; d < s->nk; d++)
        alike &= (a->ks[d] - b->ks[d]) % v == 0;
    return alike;
}

/* Bits of sources of elements, adjacent ones, that several stages read. */
static uint32_t read_again(const run *r)
{
    uint32_t once = 0, again = 0;
    for (int i = 0; i < r->rows->nstage; i++) {
        const wf_stage *st = &r->rows->stage[i];
        uint32_t reads = 0;
        for (uint32_t p = 0; st->kind == WF_ST_ELEM && p < st->body.nparam; p++)
            if (st->in[p].kind == WF_PORT_SOURCE)
                reads |= 1u << st->in[p].at;
        again |= once & reads;
        once |= reads;
    }
    return again & (uint32_t)(r->r.near >> r->rows->ndst);
}

static int64_t source_bytes(const run *r, uint32_t sources)
{
    int64_t bytes = 0;
    for (int o = r->rows->ndst; o < r->nop; o++)
        bytes += sources >> (o - r->rows->ndst) & 1 ? r->s.op[o].esize : 0;
    return bytes;
}

/* Do the rows that a processor works on at once, with so many bytes an element, stay in its first cache, for the stages to come, or
 * fit its shared memory, so that enough threads have one? With fewer threads a row there are more rows. */
static bool stays(const run *r, int64_t v, int64_t bytes)
{
    return r->r.scheme != WF_CU_WARP || RESIDENT / 2 * v / 64 * r->s.n * bytes <= CACHED;
}
static bool can_copy(const run *r, int64_t v, int64_t bytes)
{
    return r->r.scheme == WF_CU_WARP && RESIDENT * 3 / 8 * v / 64 * r->s.n * bytes <= SHARED_ALL;
}

/* Totals of a stage, of which a thread has v lanes each. */
static int most_totals(const run *r)
{
    int most = 0;
    for (int i = 0; i < r->rows->nstage; i++) {
        const wf_stage *st = &r->rows->stage[i];
        int totals = 0;
        for (uint32_t o = 0; st->kind == WF_ST_ELEM && o < st->body.nout; o++)
            totals += st->out[o].kind == WF_PORT_TOTAL;
        most = totals > most ? totals : most;
    }
    return most;
}

/* Do rows of an operand begin within vectors of v? */
static bool is_shifted(const run *r, const wf_operand *o, int64_t v)
{
    bool shifted = starts(o) % (uint64_t)v != 0;
    for (int d = 0; d < r->s.nk; d++)
        shifted |= o->ks[d] % v != 0;
    return shifted;
}

/* Elements of a row that a thread has, of vectors of v in which they are kept: a multiple of 8, so that rows of all lengths take few kernels. */
static int64_t resident_elements(const run *r, int64_t v, bool shifted)
{
    return ((r->s.n + (shifted ? v - 1 : 0) + 63) / 64 * v + 7) / 8 * 8;
}

/* Vectors of `most` or fewer, with which a thread's elements of a row, and what is kept of them, stay in its registers; 0: there are none, or
 * nothing is read again (`again`: sources that are). Rows of 4 bytes an element that begin at vectors wait for memory as it is. */
static int64_t find_resident(const run *r, const wf_operand *o, int64_t most, uint32_t again)
{
    if (r->r.scheme != WF_CU_WARP || (r->rows->nkeep == 0 && again == 0))
        return 0;
    const int bytes = wf_cu_resident_bytes(&r->e->kernel);
    int64_t steps = 0;
    for (int i = 0; i < r->rows->nstage; i++)
        steps += r->rows->stage[i].kind == WF_ST_ELEM ? (int64_t)r->rows->stage[i].body.n : 0;
    for (int64_t v = most; v >= 2; v /= 2) {
        const bool shifted = is_shifted(r, o, v);
        const int64_t n = resident_elements(r, v, shifted);
        if ((shifted || o->esize < 4) && n <= RESIDENT_MOST && n * bytes <= RESIDENT_BYTES &&
            n * steps <= RESIDENT_STEPS)
            return v;
    }
    return 0;
}

/* Neighbours that a thread takes at once: 16 bytes of the widest of what is kept or lies along the row. Few rows have more threads each
 * instead, and so have rows that only then are
 * near when they are read again. Not where much of what is moved is not adjacent, or not aligned like the rest. */
static void find_vectors(run *r)
{
    const wf_space *s = &r->s;
    const int64_t blocks = (s->n + WF_CU_BLOCK - 1) / WF_CU_BLOCK;
    const wf_operand *most = NULL;
    double all = 0, whole = 0;
    int64_t widest = 2;
    if (s->nr != 1 || wf_cu_is_beside(r->r.scheme))
        return;
    for (int i = 0; i < r->rows->nkeep; i++) {
        const int64_t size = (int64_t)(wf_kty_bits((wf_kty)r->rows->keep_type[i]) / 8);
        widest = size > widest ? size : widest;
    }
    for (int o = 0; o < r->nop; o++) {
        const wf_operand *v = &s->op[o];
        const bool drawn = o >= r->rows->ndst && (r->e->kernel.drawn >> (o - r->rows->ndst) & 1);
        if (is_row_operand(r, o) || drawn || v->rs[0] == 0)
            continue;
        all += bytes_of(s, v);
        if (v->rs[0] != 1)
            continue;
        r->r.near |= 1ull << o;
        widest = v->esize > widest ? v->esize : widest;
        most = most && bytes_of(s, most) >= bytes_of(s, v) ? most : v;
    }
    if (!most || s->n < 64)
        return;
    const uint32_t sources = read_again(r);
    const int64_t again = source_bytes(r, sources),
                  copied = again + wf_cu_kept_bytes(&r->e->kernel);
    const int totals = most_totals(r);
    int64_t v = VECTOR_BYTES / widest;
    while (v > 2 && (v * totals > LANES || v > blocks * (r->r.scheme == WF_CU_WARP ? v : 1) ||
                     s->rows * blocks * (64 / v) < wf_gpu_processors(r->ordinal) * FILL))
        v /= 2;
    const int64_t resident = find_resident(r, most, v, sources);
    int64_t fits = v;
    while (fits > 2 && !stays(r, fits, again) && !can_copy(r, fits, copied))
        fits /= 2;
    v = stays(r, fits, again) || can_copy(r, fits, copied) ? fits : v;
    v = resident ? resident : v;
    for (int o = 0; o < r->nop; o++)
        if ((r->r.near >> o & 1) && is_alike(s, &s->op[o], most, v)) {
            r->r.whole |= 1ull << o;
            whole += bytes_of(s, &s->op[o]);
        }
    if (whole < MOSTLY * all) {
        r->r.whole = 0;
        return;
    }
    r->r.shift = is_shifted(r, most, v);
    if (resident) {
        r->r.resident = (int)resident_elements(r, v, r->r.shift);
        r->r.full = !r->r.shift && s->n * v == 64 * r->r.resident;
    } else if (!stays(r, v, again) && can_copy(r, v, copied)) {
        r->r.copied = sources & (uint32_t)(r->r.whole >> r->rows->ndst);
    }
    r->r.vector = (int)v;
}

/* Threads, and where kept values go. */
static void shape(run *r)
{
    const int64_t n = r->s.n, pitch = wf_cu_pitch(&r->r, n);
    const int64_t bytes = (wf_cu_kept_bytes(&r->e->kernel) + source_bytes(r, r->r.copied)) * pitch +
                          16 * r->rows->nkeep;
    const bool keeps = (r->rows->nkeep || r->r.copied) && !r->r.resident;
    const int64_t blocks = (n + WF_CU_BLOCK - 1) / WF_CU_BLOCK;
    unsigned width = (unsigned)wf_cu_row_threads(&r->r);
    int64_t tile;
    r->threads = WARPS * 32;
    r->r.shared = false;
    r->r.across = 0;
    r->r.alike = 0;
    switch (r->r.scheme) {
    case WF_CU_WARP:
        while (width > 1 && width / 2 >= n)
            width /= 2;
        while (keeps && r->threads > 32 && bytes * (r->threads / width) > SHARED_MOST)
            r->threads /= 2;
        r->per_block = r->threads / width;
        r->r.shared = keeps && bytes * r->per_block <= SHARED_MOST;
        if (!r->r.shared) /* nothing is copied: that would have fit */
            r->threads = WARPS * 32;
        r->per_block = r->threads / width;
        r->work = r->s.rows;
        break;
    case WF_CU_BLOCK_ROWS:
        r->threads = 64;
        while (r->threads < WF_CU_BLOCK_THREADS && r->threads / width * (int64_t)WF_CU_BLOCK < n)
            r->threads *= 2;
        r->per_block = 1;
        r->work = r->s.rows;
        r->r.shared = r->rows->nkeep && bytes <= SHARED_MOST;
        break;
    case WF_CU_OUTER:
        r->per_block = WF_CU_TILE;
        r->work = r->s.rows;
        break;
    case WF_CU_COLUMN:
        for (width = 0; (INT64_C(1) << width) < n;)
            width++;
        r->per_block = r->threads;
        r->work = r->s.rows;
        break;
    case WF_CU_SPLIT: /* of steps over elements; others are a warp a row */
        r->per_block = r->threads / width;
        r->work = r->s.rows * blocks;
        break;
    case WF_CU_SPLIT_OUTER:
        r->r.across = columns_of_thread(r);
        r->r.alike = r->r.across ? r->r.alike : 0;
        r->per_block = 1;
        tile = WF_CU_TILE * (r->r.across ? r->r.across : 1);
        r->work = (r->s.rows + tile - 1 + (r->r.shift ? r->r.across - 1 : 0)) / tile * blocks *
                  WF_CU_SUBTREES;
        break;
    }
    r->words[r->l.width] = width;
}

/* Of a kernel of all stages. What rows keep in global memory is there for as many blocks as run at once and no more, so that it stays
 * in the second cache: a softmax of 50257 columns would have 850 MB of it otherwise, and so has 106. */
static int64_t fused_blocks(const run *r)
{
    const int64_t blocks = wf_gpu_blocks(r->ordinal, r->work, r->per_block);
    const int64_t most = wf_gpu_processors(r->ordinal) * (RESIDENT / r->threads);
    return r->rows->nkeep && !r->r.shared && !r->r.resident && blocks > most ? most : blocks;
}

/* Kept values: offsets in shared memory, or memory for as many groups as run at once. */
static int place_keeps(run *r)
{
    int64_t sets = r->s.rows, at = 0; /* SPLIT: all rows */
    const int64_t blocks = fused_blocks(r);
    if (r->r.scheme == WF_CU_WARP || r->r.scheme == WF_CU_BLOCK_ROWS)
        sets = r->r.shared ? r->per_block : blocks * r->per_block;
    else if (r->r.scheme == WF_CU_OUTER || r->r.scheme == WF_CU_COLUMN)
        sets = blocks * r->per_block;
    for (int i = 0; i < r->rows->nkeep && !r->r.resident; i++) {
        const int64_t bytes = sets * wf_cu_pitch(&r->r, r->s.n) *
                              (int64_t)(wf_kty_bits((wf_kty)r->rows->keep_type[i]) / 8);
        if (r->r.shared) {
            r->words[r->l.keep + i] = (uint64_t)at;
            at += (bytes + 15) / 16 * 16;
            continue;
        }
        if (!place_temp(r, r->l.keep + i, (size_t)bytes))
            return r->why->code;
    }
    for (int o = r->rows->ndst, word = r->l.copied; o < r->nop; o++)
        if (r->r.copied >> (o - r->rows->ndst) & 1) {
            r->words[word++] = (uint64_t)at;
            at += (sets * wf_cu_pitch(&r->r, r->s.n) * r->s.op[o].esize + 15) / 16 * 16;
        }
    r->shared = (unsigned)at;
    return 0;
}

static bool is_wide(const run *r)
{
    bool wide = r->s.rows >= INT32_MAX || r->s.n >= INT32_MAX || wf_env_stress("wide", NULL);
    for (int o = 0; o < r->nop; o++) {
        int64_t up = 0, down = 0;
        for (int d = 0; d < r->s.nk + r->s.nr; d++) {
            const int64_t step = d < r->s.nk ? r->s.op[o].ks[d] : r->s.op[o].rs[d - r->s.nk];
            const int64_t dim = d < r->s.nk ? r->s.kd[d] : r->s.rd[d - r->s.nk];
            *(step < 0 ? &down : &up) += step * (dim - 1);
        }
        wide |= up >= INT32_MAX || down <= -(int64_t)INT32_MAX;
    }
    return wide;
}

/* -- arguments ---------------------------------------------------------------------------------------------- */
static void fill_words(run *r, const wf_program_args *a)
{
    const wf_space *s = &r->s;
    const int axes = 1 + r->r.nk + r->r.nr;
    r->words[r->l.rows] = (uint64_t)s->rows;
    r->words[r->l.n] = (uint64_t)s->n;
    for (int d = 0; d < r->r.nk; d++)
        wf_gpu_divisor(r->words + r->l.kept + d * WF_CU_DIVISOR, s->nk ? s->kd[d] : 1);
    for (int d = 0; d < r->r.nr; d++)
        wf_gpu_divisor(r->words + r->l.reduced + d * WF_CU_DIVISOR, s->nr ? s->rd[d] : 1);
    for (int o = 0; o < r->nop; o++) {
        uint64_t *w = r->words + r->l.op + o * axes;
        const bool drawn = o >= r->rows->ndst && (r->e->kernel.drawn >> (o - r->rows->ndst) & 1);
        *w++ = drawn ? 0 : wf_gpu_word(s->op[o].data);
        for (int d = 0; d < r->r.nk; d++)
            *w++ = s->nk ? (uint64_t)s->op[o].ks[d] : 0;
        for (int d = 0; d < r->r.nr; d++)
            *w++ = s->nr ? (uint64_t)s->op[o].rs[d] : 0;
    }
    for (int i = 0; i < r->p->nscalar; i++)
        r->words[r->l.scalar + i] =
            wf_kir_peek(a->scalars[i], wf_kir_storage(r->p->type[r->p->scalar[i]]), 0);
}

/* An error word for each check. */
static int place_errors(run *r, const wf_program_args *a)
{
    int status = 0;
    r->words[r->l.error] = 0;
    for (int i = 0; i < r->rows->ncheck && status == 0; i++) {
        const wf_program_checked none = {.op = WF_OP_INVALID};
        const wf_program_checked *c = a->checked ? &a->checked[i] : &none;
        void *error = NULL;
        wf_view of[WF_PROGRAM_CHECKED];
        int n = 0;
        for (; n < WF_PROGRAM_CHECKED && c->of[n]; n++)
            wf_view_of_type(&of[n], c->of[n], NULL);
        status = wf_cuda_error_word(r->ordinal, c->op, c->site, c->bound, of, n, &error, r->why);
        r->words[i ? r->l.errors + i - 1 : r->l.error] = wf_gpu_word(error);
    }
    return status;
}

static int render(const void *arg, const wf_gpu_entry *e, wf_text *out, wf_why *why)
{
    wf_cu_rows r = *(const wf_cu_rows *)arg;
    r.k = &e->kernel;
    return wf_cu_render_rows(&r, out, why);
}

static const wf_gpu_variant *variant(run *r, int functions)
{
    const wf_gpu_recipe recipe = {render, &r->r, sizeof r->r, r->later, functions};
    unsigned char bytes[36] = {'r',
                               (unsigned char)r->r.scheme,
                               (unsigned char)r->r.nk,
                               (unsigned char)r->r.nr,
                               r->r.wide,
                               r->r.shared,
                               (unsigned char)r->r.vector,
                               r->r.shift,
                               (unsigned char)r->r.across,
                               (unsigned char)r->r.resident,
                               r->r.full};
    memcpy(bytes + 12, &r->r.near, 8);
    memcpy(bytes + 20, &r->r.whole, 8);
    memcpy(bytes + 28, &r->r.copied, 4);
    memcpy(bytes + 32, &r->r.alike, 4);
    return wf_gpu_variant_of(r->ordinal, r->e, bytes, sizeof bytes, &recipe, r->why);
}

static int start(run *r, const wf_gpu_variant *v, int function, int64_t blocks)
{
    r->known.v = v;
    r->known.nlaunch = function + 1;
    if (function < WF_GPU_KNOWN_STEPS)
        r->known.blocks[function] = blocks;
    return wf_gpu_start(r->ordinal,
                        &(wf_gpu_launch){.v = v,
                                         .function = function,
                                         .blocks = blocks,
                                         .threads = r->threads,
                                         .shared = r->shared,
                                         .words = r->words},
                        r->why);
}

static int start_fused(run *r)
{
    const wf_gpu_variant *v = variant(r, 0);
    return v ? start(r, v, 0, fused_blocks(r)) : r->why->code;
}

static int start_split(run *r)
{
    wf_cu_step steps[WF_CU_STEPS];
    const int n = wf_cu_steps(&r->e->kernel, steps);
    const int64_t blocks = (r->s.n + WF_CU_BLOCK - 1) / WF_CU_BLOCK, rows = r->s.rows;
    const int64_t per_row = blocks * (r->r.scheme == WF_CU_SPLIT_OUTER ? WF_CU_SUBTREES : 1);
    const wf_gpu_variant *v = variant(r, n);
    if (!v)
        return r->why->code;
    if (!place_temp(r, r->l.slots, (size_t)(8 * rows * wf_cu_cells(&r->e->kernel))) ||
        !place_temp(r, r->l.parts, (size_t)(8 * rows * per_row * wf_cu_totals(&r->e->kernel))))
        return r->why->code;
    r->words[r->l.width] = (uint64_t)blocks;
    for (int i = 0; i < n; i++) {
        const int64_t work = steps[i].elements ? r->work : rows;
        const int64_t each = steps[i].elements ? r->per_block : WARPS;
        const int status = start(r, v, i, wf_gpu_blocks(r->ordinal, work, each));
        if (status != 0)
            return i > 0 ? wf_gpu_too_late(status) : status;
    }
    return 0;
}

/* Scheme, layout of the argument, threads. */
static int prepare(run *r)
{
    r->r.scheme = choose(r);
    r->r.nk = r->s.nk ? r->s.nk : 1;
    r->r.nr = r->s.nr ? r->s.nr : 1;
    r->r.wide = is_wide(r);
    r->r.k = &r->e->kernel;
    find_vectors(r);
    wf_cu_rows_layout(&r->r, &r->l);
    if (r->l.words > WORDS || r->l.words > wf_gpu_most_words(r->ordinal))
        return wf_fail(r->why, WEFT_EUNSUPPORTED, "a program of %d operands over %d axes", r->nop,
                       r->s.nk + r->s.nr);
    memset(r->words, 0, (size_t)r->l.words * sizeof *r->words);
    shape(r);
    return 0;
}

/* What was launched is kept, if it is small, and if nothing in it is of this run only. */
static void remember(run *r, const wf_program_args *a)
{
    wf_gpu_known *k = &r->known;
    if (r->p->number == 0 || r->nop > WF_GPU_KNOWN_OPS || r->l.words > WF_GPU_KNOWN_WORDS ||
        k->nlaunch > WF_GPU_KNOWN_STEPS || k->ntemp > WF_GPU_KNOWN_TEMPS || r->moved ||
        r->rows->ncheck > 0)
        return;
    k->nwords = r->l.words;
    k->scalar = r->l.scalar;
    k->threads = r->threads;
    k->shared = r->shared;
    for (int o = 0; o < r->nop; o++)
        k->at[o] = (uint8_t)(r->l.op + o * (1 + r->r.nk + r->r.nr));
    memcpy(k->words, r->words, (size_t)k->nwords * sizeof *k->words);
    wf_gpu_remember(r->ordinal, r->p, a, k);
}

static int start_run(run *r, const wf_program_args *a)
{
    int status = prepare(r);
    if (status != 0)
        return status;
    fill_words(r, a);
    status = place_keeps(r);
    if (status == 0)
        status = place_errors(r, a);
    if (status != 0)
        return status;
    status = r->r.scheme == WF_CU_SPLIT || r->r.scheme == WF_CU_SPLIT_OUTER ? start_split(r)
                                                                            : start_fused(r);
    if (status == 0)
        remember(r, a);
    return status;
}

int wf_gpu_rows_program(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                        wf_why *why)
{
    wf_why own = {0};
    uint64_t words[WORDS];
    run r;
    memset(&r, 0, offsetof(run, known));
    r.ordinal = r.temps.ordinal = ordinal;
    r.known.ntemp = r.temps.n = 0;
    r.p = p;
    r.words = words;
    r.later = later;
    r.why = why ? why : &own;
    wf_view dst[WF_PROGRAM_OUTPUTS];
    bool moved[WF_PROGRAM_OUTPUTS];
    if (p->noutput == 0)
        return 0;
    r.e = wf_gpu_entry_of(p, r.why);
    if (!r.e)
        return r.why->code;
    r.rows = r.e->kernel.rows;
    r.nop = p->noutput + p->ninput;
    int status = place(&r, a, dst, moved);
    if (status == 0) {
        wf_program_args placed = *a;
        placed.dst = dst;
        wf_space_init(&r.s, p, &placed);
        status = r.s.rows == 0 ? 0 : start_run(&r, a);
    }
    if (status == 0)
        status = wf_gpu_too_late(put_back(&r, a, dst, moved));
    wf_gpu_drop(&r.temps);
    return status;
}

/* -- many runs -------------------------------------------------------------------------------------------------- */
typedef struct batch {
    run r; /* of the run that is looked at; its words are the launch's */
    int64_t blocks;
    int n, runs;
    uint8_t *nr; /* of each run: its reduced axes, at least 1; 0: it is to run alone */
} batch;

static int blocks_of(int64_t n)
{
    return (int)((n + WF_CU_BLOCK - 1) / WF_CU_BLOCK);
}

/* Looks at a run. Can it be one of many? */
static bool joins(batch *b, const wf_program_args *a)
{
    run *r = &b->r;
    for (int d = 0; d < r->p->noutput; d++)
        if (overwrites(r, a, d))
            return false;
    wf_space_init(&r->s, r->p, a);
    r->r = (wf_cu_rows){.k = &r->e->kernel,
                        .scheme = WF_CU_SPLIT,
                        .nr = r->s.nr ? r->s.nr : 1,
                        .many = WF_GPU_MOST_WORDS};
    wf_cu_rows_layout(&r->r, &r->l);
    return r->s.nk == 0 && r->s.rows == 1 && !is_wide(r);
}

static void add_run(batch *b)
{
    run *r = &b->r;
    const wf_space *s = &r->s;
    uint64_t *w = r->words + r->l.first + (ptrdiff_t)b->runs++ * r->l.entry;
    w[0] = (uint64_t)b->blocks;
    w[1] = (uint64_t)s->n;
    for (int d = 1; d < r->r.nr; d++)
        wf_gpu_divisor(w + r->l.reduced + d * WF_CU_DIVISOR, s->rd[d]);
    for (int o = 0; o < r->nop; o++) {
        uint64_t *operand = w + r->l.op + o * (1 + r->r.nr);
        *operand++ = wf_gpu_word(s->op[o].data);
        for (int d = 0; d < r->r.nr; d++)
            operand[d] = s->nr ? (uint64_t)s->op[o].rs[d] : 0;
    }
    b->blocks += blocks_of(s->n);
}

/* Queues the steps of the runs that were added. */
static int start_batch(batch *b, const wf_gpu_variant *v, int nsteps, const wf_cu_step *steps)
{
    run *r = &b->r;
    const wf_kernel *k = &r->e->kernel;
    const size_t rows = (size_t)b->runs, blocks = (size_t)b->blocks;
    void *cells = wf_gpu_temp(&r->temps, 8 * rows * (size_t)wf_cu_cells(k), r->why);
    void *parts =
        cells ? wf_gpu_temp(&r->temps, 8 * blocks * (size_t)wf_cu_totals(k), r->why) : NULL;
    int status = parts ? 0 : r->why->code;
    r->words[r->l.rows] = rows;
    r->words[r->l.width] = blocks;
    r->words[r->l.slots] = wf_gpu_word(cells);
    r->words[r->l.parts] = wf_gpu_word(parts);
    for (int i = 0; i < nsteps && status == 0; i++) {
        const int64_t work = steps[i].elements ? b->blocks : b->runs;
        if (work == 0)
            continue;
        status = wf_gpu_start(r->ordinal,
                              &(wf_gpu_launch){.v = v,
                                               .function = i,
                                               .blocks = wf_gpu_blocks(r->ordinal, work, WARPS),
                                               .threads = WARPS * 32,
                                               .words = r->words},
                              r->why);
    }
    wf_gpu_drop(&r->temps);
    b->runs = 0;
    b->blocks = 0;
    return status;
}

/* The launches of the runs, so many, that have nr reduced axes. */
static int run_alike(batch *b, const wf_program_args *a, int nr, int runs, uint8_t *done)
{
    run *r = &b->r;
    wf_cu_step steps[WF_CU_STEPS];
    const int first = (int)((uint8_t *)memchr(b->nr, nr, (size_t)b->n) - b->nr);
    joins(b, &a[first]);
    wf_cu_rows mine = r->r;
    mine.many = wf_gpu_many_words(r->ordinal, r->l.first, r->l.entry, runs);
    const int nsteps = wf_cu_steps(&r->e->kernel, steps);
    const int room = (mine.many - r->l.first) / r->l.entry;
    if (!mine.many || nsteps < 0)
        return 0;
    const wf_gpu_recipe recipe = {render, &mine, sizeof mine, r->later, nsteps};
    unsigned char bytes[] = {'R', (unsigned char)nr, 0, 0};
    memcpy(bytes + 2, &(uint16_t){(uint16_t)mine.many}, 2);
    const wf_gpu_variant *v =
        wf_gpu_variant_of(r->ordinal, r->e, bytes, sizeof bytes, &recipe, r->why);
    int status = v ? 0 : r->why->code;
    for (int i = first; i < b->n && status == 0; i++) {
        if (b->nr[i] != nr)
            continue;
        joins(b, &a[i]);
        add_run(b);
        done[i] = WF_GPU_FILLED;
        if (b->runs < room)
            continue;
        status = start_batch(b, v, nsteps, steps);
        wf_gpu_settle(done, b->n, status);
    }
    if (status == 0 && b->runs > 0)
        status = start_batch(b, v, nsteps, steps);
    wf_gpu_settle(done, b->n, status);
    return status;
}

/* Is the program such that runs can be split together? Scalars, which may be other ones in each, are not in an entry. With
 * results of rows only, a run can begin anew where a later step could not be queued. */
static bool may_join(const run *r)
{
    bool may = r->rows->ncheck == 0 && r->rows->nkeep == 0 && r->e->kernel.drawn == 0 &&
               r->p->nscalar == 0;
    for (int d = 0; d < r->p->noutput; d++)
        may &= is_row_operand(r, d);
    for (int i = 0; i < r->rows->nstage; i++)
        may &= r->rows->stage[i].kind != WF_ST_PICK;
    return may;
}

int wf_gpu_rows_many(int ordinal, const wf_program *p, int n, const wf_program_args *a, bool later,
                     uint8_t *done, wf_why *why)
{
    const wf_gpu_entry *e = p->noutput ? wf_gpu_entry_of(p, why) : NULL;
    const size_t bytes = sizeof(batch) + WF_GPU_MOST_WORDS * sizeof(uint64_t) + (size_t)n;
    batch *b = e ? wf_alloc(bytes) : NULL;
    int status = 0, other = 0, runs[WF_CU_RANK + 1] = {0};
    if (!b)
        return 0; /* one by one, which says why */
    *b = (batch){.n = n,
                 .r = {.ordinal = ordinal,
                       .p = p,
                       .e = e,
                       .rows = e->kernel.rows,
                       .nop = p->noutput + p->ninput,
                       .temps.ordinal = ordinal,
                       .words = (uint64_t *)(b + 1),
                       .later = later,
                       .why = why}};
    b->nr = (uint8_t *)(b->r.words + WF_GPU_MOST_WORDS);
    const bool may = may_join(&b->r);
    for (int i = 0; i < n; i++) {
        b->nr[i] = may && joins(b, &a[i]) ? (uint8_t)b->r.r.nr : 0;
        runs[b->nr[i]]++;
    }
    for (int nr = 1; nr <= WF_CU_RANK && status == 0; nr++) {
        if (runs[nr] >= 2)
            status = wf_gpu_or_alone(run_alike(b, a, nr, runs[nr], done), &other, why);
    }
    wf_free(b, bytes);
    return status ? status : other;
}

int wf_gpu_rows_way(int ordinal, const wf_program *p, const wf_program_args *a, wf_gpu_way *way,
                    wf_why *why)
{
    uint64_t words[WORDS];
    run r = {.ordinal = ordinal, .p = p, .words = words, .why = why, .nop = p->noutput + p->ninput};
    r.e = wf_gpu_entry_of(p, why);
    if (!r.e)
        return why->code;
    r.rows = r.e->kernel.rows;
    wf_space_init(&r.s, p, a);
    const int status = prepare(&r);
    const bool steps = r.r.scheme == WF_CU_SPLIT || r.r.scheme == WF_CU_SPLIT_OUTER;
    *way = (wf_gpu_way){r.r.scheme,
                        steps ? wf_gpu_blocks(ordinal, r.work, r.per_block) : fused_blocks(&r),
                        r.threads, r.r.shared};
    return status;
}
