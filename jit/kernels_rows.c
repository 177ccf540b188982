/*
 * jit/kernels_rows.c -- runs a native kernel over the rows of an iteration space.
 *
 * An operand whose rows lie in one piece at equal distances is read and written in place. So is one where those of each run along the last
 * kept axis do (a mask that all heads share): launches end with a run then. Any other (a gap between elements, a row of more than one axis, a destination in the memory of a source that a later
 * stage still reads) goes through a packed buffer, a group of rows at a time.
 *
 * Tasks are ranges of rows; each has its own buffers and its own error word. Where more is moved than caches hold they are longer: one
 * begins in memory that nobody has asked for, and ends by waiting for its stores. Rows that are too few for
 * the threads are cut into the blocks of the canonical order, if the kernel can: blocks are rows of a first launch, and
 * what they come to is reduced in that order before the rest of a row runs. So the bits do not tell where rows were cut.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/program_run.h"
#include "eager/kernels/reduce.h"
#include "jit/kernels_impl.h"

enum {
    TASK = 1 << 15,          /* elements worth a task */
    TASK_FAR = 3 << 19,      /* bytes that one moves, of more than caches hold */
    AWAKE = 1 << 12,         /* such as are worth a share of a worker that is awake */
    GROUP = 1 << 13,         /* elements of a group of packed rows */
    LEAST_RUN = 1 << 10,     /* elements that are worth a launch beside their copies */
    LONGEST_DRAWN = 1 << 16, /* of rows that are drawn into a buffer */
    /* Shorter rows are for the interpreter, which takes one element of many of them at once: all, and where there are so many side by
     * side those whose elements are results, and those that come to nothing but totals. */
    LEAST_ROW = 16,
    MANY_ROWS = 256,
    LEAST_OF_MANY = 32,
    LEAST_OF_TOTALS = 49,
    MOST_BLOCKS = 64, /* that a thread takes at a time */
    FEW_PARTS = 4096, /* bytes that need no allocation */
    LINE = 64
};
static const int64_t longest_row = (int64_t)4096 * 4096;

typedef struct rows_run {
    const wf_jitk *k;
    const wf_exe *exe;
    const uint64_t *scalar;
    const void *const *scalars; /* as the program takes them */
    const wf_kernels *kernels;
    wf_space s;
    int nop;              /* destinations and sources */
    uint64_t packed;      /* operands that go through a buffer */
    bool elements_packed; /* some of them with more than one element a row */
    int64_t group, chunk; /* rows */
    int64_t run;          /* rows at the end of which a launch ends; 0: anywhere */
    int64_t blocks;       /* of a row that is cut, else 0 */
    char *parts;          /* [row][total][block], a total's `pitch` bytes from the one before */
    int64_t pitch;
    uint64_t flags;
    int64_t keep_at[WF_ROWS_KEEPS], pack_at[WF_WALK_OPS], bytes; /* parts of a task's buffer */
    _Atomic int status;
} rows_run;

static int64_t line_up(int64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static bool is_row_operand(const rows_run *r, int i)
{
    const wf_rows_kernel *rows = r->k->rows;
    const int ndst = rows->ndst;
    return i < ndst ? rows->row_dst >> i & 1 : rows->row_src >> (i - ndst) & 1;
}

static bool is_drawn(const rows_run *r, int i)
{
    const int j = i - r->k->rows->ndst;
    return j >= 0 && r->k->program.draw[j].op != WF_OP_INVALID;
}

/* Does destination d, when it is stored, take the place of something that source j still gives? */
static bool overwrites(const rows_run *r, const wf_program_args *a, int d, int j)
{
    const wf_rows_kernel *rows = r->k->rows;
    return a->dst[d].data == a->src[j].data && rows->last_read[j] > rows->stored[d];
}

static bool in_place(const rows_run *r, const wf_program_args *a, int i)
{
    const wf_operand *o = &r->s.op[i];
    if (is_drawn(r, i) || (r->s.rows > 1 && !o->one_row && !r->run))
        return false;
    if (is_row_operand(r, i))
        return true;
    for (int d = 0; i >= r->k->rows->ndst && d < r->k->rows->ndst; d++)
        if (overwrites(r, a, d, i - r->k->rows->ndst))
            return false;
    return r->s.n == 1 || (o->one_col && o->col == 1);
}

/* Launches end with a run of rows if that leaves operands in place which would be packed. */
static void find_run(rows_run *r, const wf_program_args *a)
{
    const int64_t run = r->s.nk > 1 ? r->s.kd[r->s.nk - 1] : 0;
    bool wanted = false;
    if (run * r->s.n < LEAST_RUN)
        return;
    r->run = run;
    for (int i = 0; i < r->nop; i++)
        wanted |= !r->s.op[i].one_row && in_place(r, a, i);
    r->run = wanted ? run : 0;
}

static void lay_out(rows_run *r, const wf_program_args *a)
{
    const wf_rows_kernel *rows = r->k->rows;
    const int64_t n = r->blocks ? WF_BLOCK : r->s.n;
    find_run(r, a);
    for (int i = 0; i < r->nop; i++) {
        r->packed |= in_place(r, a, i) ? 0 : UINT64_C(1) << i;
        r->elements_packed |= r->packed >> i & 1 && !is_row_operand(r, i);
    }
    r->chunk = TASK / n > 0 ? TASK / n : 1;
    r->group = !r->packed ? r->chunk : GROUP / n > 0 ? GROUP / n : 1;
    r->group = r->blocks ? 1 : r->group < r->chunk ? r->group : r->chunk;
    for (int i = 0; i < rows->nkeep; i++) {
        r->keep_at[i] = r->bytes;
        r->bytes += line_up(n * (int64_t)(wf_kty_bits((wf_kty)rows->keep_type[i]) / 8));
    }
    for (int i = 0; i < r->nop; i++)
        if (r->packed >> i & 1) {
            r->pack_at[i] = r->bytes;
            r->bytes += line_up(r->group * (is_row_operand(r, i) ? 1 : n) * r->s.op[i].esize);
        }
}

/* Of elements alone, each once. */
static int64_t bytes_moved(const rows_run *r)
{
    int64_t bytes = 0;
    for (int i = 0; i < r->nop; i++) {
        const wf_operand *o = &r->s.op[i];
        int64_t all = is_row_operand(r, i) ? 0 : o->esize;
        for (int d = 0; d < r->s.nk; d++)
            all *= o->ks[d] || is_drawn(r, i) ? r->s.kd[d] : 1;
        for (int d = 0; d < r->s.nr; d++)
            all *= o->rs[d] || is_drawn(r, i) ? r->s.rd[d] : 1;
        bytes += all;
    }
    return bytes;
}

/* May stores pass the caches? Every row must be aligned, and no destination be read. */
static bool may_stream(const rows_run *r, const wf_program_args *a)
{
    const int ndst = r->k->rows->ndst;
    for (int i = 0; i < ndst; i++) {
        const wf_operand *o = &r->s.op[i];
        uintptr_t at;
        if (is_row_operand(r, i))
            continue;
        memcpy(&at, &o->data, sizeof at);
        if (r->packed >> i & 1 || at % LINE != 0 ||
            (r->s.rows > 1 && (!o->one_row || o->row * o->esize % LINE != 0)))
            return false;
        for (int j = 0; j < r->nop - ndst; j++)
            if (a->dst[i].data == a->src[j].data)
                return false;
    }
    return true;
}

/* What moves more data than the caches hold has tasks of more rows; a group of packed rows stays what it is. */
static void go_far(rows_run *r, const wf_program_args *a, int64_t moves)
{
    const int64_t least = 4 * (int64_t)wf_num_threads(), tasks = moves / TASK_FAR + 1;
    const int64_t chunk = r->s.rows / (tasks > least ? tasks : least);
    r->flags = may_stream(r, a) ? WF_LAUNCH_STREAM : 0;
    if (chunk > r->chunk) {
        r->group = r->packed ? r->group : chunk;
        r->chunk = chunk;
    }
}

/* What a launch works on. Blocks of a cut row count from its begin: one, or several that are whole and in place. */
typedef struct piece {
    int64_t row, rows, col, n; /* first and number of rows; first and number of elements of each */
    int64_t begin, end;        /* of the launch */
    uint64_t flags;            /* WF_LAUNCH_PARTS, _TOTALS */
} piece;

/* Does the launch read or write operand i? Elements are for parts, results of rows for totals. */
static bool touches(const rows_run *r, const piece *g, int i)
{
    const bool single = is_row_operand(r, i);
    return g->flags == 0 ||
           (g->flags == WF_LAUNCH_TOTALS ? single : !single || i >= r->k->rows->ndst);
}

static void load_packed(const rows_run *r, const piece *g, int i, void *to)
{
    const bool single = is_row_operand(r, i);
    const int64_t width = single ? 1 : g->n;
    if (is_drawn(r, i))
        wf_program_fill(&r->k->program, i - r->k->rows->ndst, r->scalars, to, g->row * width,
                        g->rows * width);
    else if (i >= r->k->rows->ndst && touches(r, g, i))
        wf_space_load(&r->s, &r->s.op[i], r->kernels, to, g->row, g->rows, single ? 0 : g->col,
                      width, false);
}

static void run_piece(rows_run *r, char *memory, const piece *g)
{
    const wf_rows_kernel *rows = r->k->rows;
    void *ptr[WF_KERNEL_MAX_PTR];
    int64_t size[WF_KERNEL_MAX_SIZE] = {g->n}, error = -1;
    for (int i = 0; i < r->nop; i++) {
        const wf_operand *o = &r->s.op[i];
        const bool single = is_row_operand(r, i), packed = r->packed >> i & 1;
        if (packed) {
            ptr[i] = memory + r->pack_at[i];
            load_packed(r, g, i, ptr[i]);
        } else {
            ptr[i] = o->data + wf_space_offset(&r->s, o, g->row, 0) * o->esize;
        }
        if (g->flags)
            size[1 + i] = single || packed ? 0 : WF_BLOCK;
        else
            size[1 + i] = packed ? (single ? 1 : g->n) : r->s.rows > 1 ? o->row : 0;
    }
    for (int i = 0; i < rows->nkeep; i++)
        ptr[r->nop + i] = memory + r->keep_at[i];
    ptr[r->nop + rows->nkeep] = &error;
    if (g->flags) {
        ptr[r->nop + rows->nkeep + 1] = r->parts + g->row * rows->ntotal * r->pitch;
        size[1 + r->nop] = r->pitch;
    }
    wf_backend_cpu.launch(r->exe, &(wf_launch){.ptr = ptr,
                                               .size = size,
                                               .scalar = r->scalar,
                                               .begin = g->begin,
                                               .end = g->end,
                                               .flags = r->flags | g->flags});
    for (int i = 0; i < rows->ndst; i++)
        if (r->packed >> i & 1 && touches(r, g, i))
            wf_space_store(&r->s, &r->s.op[i], r->kernels, ptr[i], g->row, g->rows,
                           is_row_operand(r, i) ? 0 : g->col, is_row_operand(r, i) ? 1 : g->n,
                           false);
    if (error != -1)
        atomic_store_explicit(&r->status, WEFT_EINDEX, memory_order_relaxed);
}

/* A task's buffer (NULL if it needs none) into *memory; false if there is no memory. */
static bool open_task(rows_run *r, char **memory)
{
    *memory = r->bytes ? wf_scratch((size_t)r->bytes) : NULL;
    if (r->bytes && !*memory)
        atomic_store_explicit(&r->status, WEFT_ENOMEM, memory_order_relaxed);
    return !r->bytes || *memory;
}

static void close_task(const rows_run *r, char *memory)
{
    if (r->flags & WF_LAUNCH_STREAM)
        r->kernels->fence();
    if (memory)
        wf_scratch_free(memory, (size_t)r->bytes);
}

static void task(void *arg, int64_t begin, int64_t end)
{
    rows_run *r = arg;
    char *memory;
    if (!open_task(r, &memory))
        return;
    const int64_t last = end * r->chunk < r->s.rows ? end * r->chunk : r->s.rows;
    for (int64_t at = begin * r->chunk, rows; at < last; at += rows) {
        const int64_t left = r->run ? r->run - at % r->run : last - at;
        rows = last - at < r->group ? last - at : r->group;
        rows = rows < left ? rows : left;
        run_piece(r, memory, &(piece){.row = at, .rows = rows, .n = r->s.n, .end = rows});
    }
    close_task(r, memory);
}

/* -- rows in parts ------------------------------------------------------------------------------------------ */
/* Blocks [begin, end) of all rows'. */
static void cut_task(void *arg, int64_t begin, int64_t end)
{
    rows_run *r = arg;
    char *memory;
    if (!open_task(r, &memory))
        return;
    const int64_t whole = r->s.n / WF_BLOCK;
    for (int64_t at = begin, count; at < end; at += count) {
        const int64_t row = at / r->blocks, b = at % r->blocks;
        int64_t last = b + (end - at) < whole ? b + (end - at) : whole;
        last = r->elements_packed || last <= b ? b + 1 : last;
        count = last - b;
        run_piece(r, memory,
                  &(piece){.row = row,
                           .rows = 1,
                           .col = b * WF_BLOCK,
                           .n = b < whole ? WF_BLOCK : r->s.n % WF_BLOCK,
                           .begin = b,
                           .end = last,
                           .flags = WF_LAUNCH_PARTS});
    }
    close_task(r, memory);
}

/* The parts of total t, one behind the other, to the first. */
static void reduce_parts(const rows_run *r, char *parts, int t)
{
    const wf_kprim op = (wf_kprim)r->k->rows->total_op[t];
    const wf_kty type = (wf_kty)r->k->rows->total_type[t];
    if (type == WF_KT_BOOL) {
        const int sought = op == WF_KP_BOR;
        *parts = (char)((memchr(parts, sought, (size_t)r->blocks) != NULL) == sought);
        return;
    }
    const wf_red_kernels *k = wf_red_kernels_of(type == WF_KT_F32   ? WEFT_F32
                                                : type == WF_KT_F64 ? WEFT_F64
                                                                    : WEFT_I64);
    char one[8];
    k->run[op == WF_KP_ADD   ? WF_RED_SUM
           : op == WF_KP_MUL ? WF_RED_PROD
           : op == WF_KP_MAX ? WF_RED_MAX
                             : WF_RED_MIN](one, parts, r->blocks);
    memcpy(parts, one, k->size);
}

/* Blocks as rows; then the rows from what their blocks come to. */
static int run_cut(rows_run *r)
{
    const wf_rows_kernel *rows = r->k->rows;
    _Alignas(LINE) char few[FEW_PARTS];
    char *memory;
    r->pitch = line_up(r->blocks * 8);
    const size_t bytes = (size_t)(r->s.rows * rows->ntotal * r->pitch);
    r->parts = bytes <= sizeof few ? few : wf_scratch(bytes);
    if (!r->parts)
        return WEFT_ENOMEM;
    const int64_t n = r->s.rows * r->blocks, share = (n - 1) / (4 * wf_num_threads()) + 1;
    if (n * WF_BLOCK > 2 * TASK)
        wf_parallel_for(n, share < MOST_BLOCKS ? share : MOST_BLOCKS, cut_task, r);
    else
        wf_parallel_awake(n, wf_awake_grain(n, 2, 1), cut_task, r);
    const int status = atomic_load(&r->status);
    if ((status == 0 || status == WEFT_EINDEX) && open_task(r, &memory)) {
        for (int64_t row = 0; row < r->s.rows; row++) {
            for (int t = 0; t < rows->ntotal; t++)
                reduce_parts(r, r->parts + (row * rows->ntotal + t) * r->pitch, t);
            run_piece(r, memory,
                      &(piece){.row = row, .rows = 1, .end = 1, .flags = WF_LAUNCH_TOTALS});
        }
        close_task(r, memory);
    }
    if (r->parts != few)
        wf_scratch_free(r->parts, bytes);
    return atomic_load(&r->status);
}

/* Are most elements one after the other along the reduced axes? Outer reductions are not. */
static bool suits(const rows_run *r)
{
    int inner = 0, outer = 0;
    for (int i = 0; i < r->nop; i++) {
        const wf_operand *o = &r->s.op[i];
        if (is_row_operand(r, i))
            continue;
        *(o->one_col && (o->col == 1 || o->col == 0) ? &inner : &outer) += 1;
    }
    return inner >= outer;
}

/* Is the interpreter quicker? (Zen 5, 131072 elements in rows of 16, 24, 32 and 48, AVX-512: the norm of a difference 126, 86, 63, 43 us
 * here and 33, 38, 30, 33 there; rms_norm of a sum 162, 113, 81, 58 and 83, 94, 84, 102.) */
static bool is_short(const rows_run *r)
{
    const int64_t n = r->s.n, beside = r->s.nk ? r->s.kd[r->s.nk - 1] : 1;
    if (n < LEAST_ROW || n >= LEAST_OF_TOTALS)
        return n < LEAST_ROW;
    bool elements = false;
    for (int i = 0; i < r->k->rows->ndst; i++)
        elements |= !is_row_operand(r, i);
    return beside >= MANY_ROWS && wf_program_draws(&r->k->program) == 0 &&
           n < (elements ? LEAST_OF_MANY : LEAST_OF_TOTALS);
}

int wf_jitk_run_rows(const wf_jitk *k, const wf_exe *exe, const uint64_t *scalar,
                     const wf_program_args *a)
{
    rows_run r;
    memset(&r, 0, offsetof(rows_run, s));
    wf_space_init(&r.s, &k->program, a);
    r.k = k;
    r.exe = exe;
    r.scalar = scalar;
    r.scalars = a->scalars;
    r.kernels = wf_kernels_now();
    r.nop = k->rows->ndst + k->program.ninput;
    r.packed = 0;
    r.run = 0;
    r.elements_packed = false;
    r.bytes = r.blocks = 0;
    atomic_init(&r.status, 0);
    const int64_t most = wf_program_draws(&k->program) != 0 ? LONGEST_DRAWN : longest_row;
    if (r.s.rows == 0 || is_short(&r) || r.s.n > most || !suits(&r))
        return WEFT_EUNSUPPORTED;
    if (r.k->rows->cut >= 0 && wf_space_pays_in_blocks(&r.s))
        r.blocks = (r.s.n + WF_BLOCK - 1) / WF_BLOCK;
    lay_out(&r, a);
    r.flags = 0;
    const int64_t moves = bytes_moved(&r);
    if (moves >= WF_STREAM_FROM)
        go_far(&r, a, moves);
    if (r.blocks)
        return run_cut(&r);
    const int64_t chunks = (r.s.rows + r.chunk - 1) / r.chunk;
    /* a row of more than a task's elements is worth waking another thread for */
    if (chunks > 2 || (chunks == 2 && r.s.n > TASK)) {
        wf_parallel_for(chunks, 1, task, &r);
    } else {
        r.chunk = wf_awake_grain(r.s.rows, AWAKE / r.s.n + 1, 1);
        r.group = r.group < r.chunk ? r.group : r.chunk;
        wf_parallel_awake((r.s.rows + r.chunk - 1) / r.chunk, 1, task, &r);
    }
    return atomic_load(&r.status);
}
