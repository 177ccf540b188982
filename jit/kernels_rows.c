/*
 * jit/kernels_rows.c -- runs a native kernel over the rows of an iteration space.
 *
 * An operand whose rows lie in one piece at equal distances is read and written in place. Any other (a gap
 * between elements, a row of more than one axis, a destination in the memory of a source that a later
 * stage still reads) goes through a packed buffer, a group of rows at a time.
 *
 * Tasks are ranges of rows cut by shape alone; each has its own buffers and its own error word.
 */
#include <stdatomic.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/pool.h"
#include "eager/program_run.h"
#include "jit/kernels_impl.h"

enum {
    TASK = 1 << 15,          /* elements worth a task */
    AWAKE = 1 << 12,         /* such as are worth a share of a worker that is awake */
    GROUP = 1 << 13,         /* elements of a group of packed rows */
    LONGEST_DRAWN = 1 << 16, /* of rows that are drawn into a buffer */
    LEAST_ROW = 16, /* shorter rows are for the interpreter, which runs many of them at once */
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
    int64_t group, chunk; /* rows */
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
    if (is_drawn(r, i) || (r->s.rows > 1 && !o->one_row))
        return false;
    if (is_row_operand(r, i))
        return true;
    for (int d = 0; i >= r->k->rows->ndst && d < r->k->rows->ndst; d++)
        if (overwrites(r, a, d, i - r->k->rows->ndst))
            return false;
    return r->s.n == 1 || (o->one_col && o->col == 1);
}

static void lay_out(rows_run *r, const wf_program_args *a)
{
    const wf_rows_kernel *rows = r->k->rows;
    const int64_t n = r->s.n;
    for (int i = 0; i < r->nop; i++)
        r->packed |= in_place(r, a, i) ? 0 : UINT64_C(1) << i;
    r->chunk = TASK / n > 0 ? TASK / n : 1;
    r->group = !r->packed ? r->chunk : GROUP / n > 0 ? GROUP / n : 1;
    r->group = r->group < r->chunk ? r->group : r->chunk;
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

/* Do results of this size pass the caches, and may they? Every row must be aligned, and no destination be read. */
static bool should_stream(const rows_run *r, const wf_program_args *a)
{
    const int ndst = r->k->rows->ndst;
    int64_t bytes = 0;
    for (int i = 0; i < r->nop; i++) {
        const wf_operand *o = &r->s.op[i];
        uintptr_t at;
        if (is_row_operand(r, i))
            continue;
        bytes += (o->one_row && o->row == 0 ? 1 : r->s.rows) * r->s.n * o->esize;
        memcpy(&at, &o->data, sizeof at);
        if (i < ndst && (r->packed >> i & 1 || at % LINE != 0 ||
                         (r->s.rows > 1 && o->row * o->esize % LINE != 0)))
            return false;
        for (int j = 0; i < ndst && j < r->nop - ndst; j++)
            if (a->dst[i].data == a->src[j].data)
                return false;
    }
    return bytes >= WF_STREAM_FROM;
}

/* Rows [begin, begin + count) with at most r->group of them. */
static void run_group(rows_run *r, char *memory, int64_t begin, int64_t count)
{
    const wf_rows_kernel *rows = r->k->rows;
    void *ptr[WF_KERNEL_MAX_PTR];
    int64_t size[WF_KERNEL_MAX_SIZE] = {r->s.n}, error = -1;
    for (int i = 0; i < r->nop; i++) {
        const wf_operand *o = &r->s.op[i];
        const int64_t width = is_row_operand(r, i) ? 1 : r->s.n;
        if (r->packed >> i & 1) {
            ptr[i] = memory + r->pack_at[i];
            size[1 + i] = width;
            if (is_drawn(r, i))
                wf_program_fill(&r->k->program, i - rows->ndst, r->scalars, ptr[i], begin * width,
                                count * width);
            else if (i >= rows->ndst)
                wf_space_load(&r->s, o, r->kernels, ptr[i], begin, count, 0, width, false);
        } else {
            ptr[i] = o->data + wf_space_offset(&r->s, o, begin, 0) * o->esize;
            size[1 + i] = r->s.rows > 1 ? o->row : 0;
        }
    }
    for (int i = 0; i < rows->nkeep; i++)
        ptr[r->nop + i] = memory + r->keep_at[i];
    ptr[r->nop + rows->nkeep] = &error;
    wf_backend_cpu.launch(r->exe, &(wf_launch){.ptr = ptr,
                                               .size = size,
                                               .scalar = r->scalar,
                                               .begin = 0,
                                               .end = count,
                                               .flags = r->flags});
    for (int i = 0; i < rows->ndst; i++)
        if (r->packed >> i & 1)
            wf_space_store(&r->s, &r->s.op[i], r->kernels, ptr[i], begin, count, 0,
                           is_row_operand(r, i) ? 1 : r->s.n, false);
    if (error != -1)
        atomic_store_explicit(&r->status, WEFT_EINDEX, memory_order_relaxed);
}

static void task(void *arg, int64_t begin, int64_t end)
{
    rows_run *r = arg;
    char *memory = r->bytes ? wf_alloc((size_t)r->bytes) : NULL;
    if (r->bytes && !memory) {
        atomic_store_explicit(&r->status, WEFT_ENOMEM, memory_order_relaxed);
        return;
    }
    const int64_t last = end * r->chunk < r->s.rows ? end * r->chunk : r->s.rows;
    for (int64_t at = begin * r->chunk; at < last; at += r->group)
        run_group(r, memory, at, last - at < r->group ? last - at : r->group);
    if (r->flags & WF_LAUNCH_STREAM)
        r->kernels->fence();
    if (memory)
        wf_free(memory, (size_t)r->bytes);
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
    r.bytes = 0;
    atomic_init(&r.status, 0);
    const int64_t most = wf_program_draws(&k->program) != 0 ? LONGEST_DRAWN : longest_row;
    if (r.s.rows == 0 || r.s.n < LEAST_ROW || r.s.n > most || !suits(&r))
        return WEFT_EUNSUPPORTED;
    lay_out(&r, a);
    r.flags = should_stream(&r, a) ? WF_LAUNCH_STREAM : 0;
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
