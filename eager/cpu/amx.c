/*
 * eager/cpu/amx.c -- bf16 products on matrix units: packing, cuts into tasks, and the walk over squares.
 *
 * B is packed in panels of 32 columns. Where many rows share it, all of it is packed first and tasks
 * are strips of rows; else tasks are groups of columns, each of which packs its own panels, a block of
 * k at a time, into the first cache and multiplies all rows with it at once. A is read where it lies,
 * but for a last strip that is not full and for layouts that tiles cannot read.
 *
 * Invariant: an element's terms are added in steps of 32 in order of k (gemm_amx.h), so
 * its bits depend on its row of A and its column of B only.
 */
#include "eager/alloc.h"
#include "eager/cpu/amx.h"
#include "eager/pool.h"

/* A square of at least so many steps rounds the one before it meanwhile. */
enum { LATER = 2 };
/* Squares of rows that share a panel at most, and from which on B is packed for all tasks. */
enum { STRIP = 16, TALL = 16 };
/* Multiply-adds that are worth waking a thread for, and tasks that are enough. */
#define MIN_WORK ((double)(1 << 22))
enum { TASKS = 8 };
/* Bytes of a packed B that stays in the second cache; largest packed B. */
#define NEAR ((double)(512 << 10))
#define MAX_PACKED ((double)(64 << 20))

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t over(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static wf_amx_matrix b_at(const wf_amx_job *w, int64_t batch, int64_t k, int64_t column)
{
    const wf_gemm_desc *d = w->d;
    return (wf_amx_matrix){(const uint16_t *)d->b + batch * d->b_bs + k * d->b_rs +
                               column * d->b_cs,
                           d->b_rs, d->b_cs};
}

/* Panel q, steps [s0, s1). */
static void pack_panel(const wf_amx_job *w, int64_t batch, int64_t q, int64_t s0, int64_t s1,
                       char *out)
{
    const int64_t k0 = s0 * WF_AMX_SIDE, j = q * WF_AMX_SIDE;
    const wf_amx_matrix from = b_at(w, batch, k0, j);
    wf_amx_pack_columns(&from, least(WF_AMX_SIDE, w->d->n - j),
                        least(s1 * WF_AMX_SIDE, w->d->k) - k0, out, WF_AMX_STEP);
}

/* Rows of B are read whole, columns one panel at a time. */
static void pack_b_task(void *arg, int64_t begin, int64_t end)
{
    const wf_amx_job *w = arg;
    for (int64_t t = begin; t < end; t++) {
        if (w->d->b_cs != 1)
            pack_panel(w, 0, t, 0, w->steps, w->b + t * w->steps * WF_AMX_STEP);
        for (int64_t q = 0; w->d->b_cs == 1 && q < w->across; q++)
            pack_panel(w, 0, q, t, t + 1, w->b + (q * w->steps + t) * WF_AMX_STEP);
    }
}

/* Strip i of A, counted from the first packed one, steps [s0, s1). */
static void pack_strip(const wf_amx_job *w, int64_t batch, int64_t i, int64_t s0, int64_t s1)
{
    const wf_gemm_desc *d = w->d;
    char *out = w->a + batch * w->a_batch + i * w->steps * WF_AMX_STEP + s0 * WF_AMX_TILE;
    for (int64_t half = 0; half < 2; half++, out += w->steps * WF_AMX_TILE) {
        const int64_t row = (w->in_place + i) * WF_AMX_SIDE + 16 * half, k = s0 * WF_AMX_SIDE;
        const wf_amx_matrix from = {(const uint16_t *)d->a + batch * d->a_bs + row * d->a_rs +
                                        k * d->a_cs,
                                    d->a_rs, d->a_cs};
        if (row < d->m)
            wf_amx_pack_rows(&from, least(16, d->m - row), least(s1 * WF_AMX_SIDE, d->k) - k, out);
    }
}

/* Where columns of A lie in one piece, a step of all strips at a time: lines are read whole. */
static void pack_a_task(void *arg, int64_t begin, int64_t end)
{
    const wf_amx_job *w = arg;
    const int64_t packed = w->down - w->in_place, pieces = w->d->a_rs == 1 ? w->steps : packed;
    for (int64_t t = begin; t < end; t++) {
        const int64_t batch = t / pieces, x = t % pieces;
        if (w->d->a_rs != 1)
            pack_strip(w, batch, x, 0, w->steps);
        for (int64_t i = 0; w->d->a_rs == 1 && i < packed; i++)
            pack_strip(w, batch, i, x, x + 1);
    }
}

/* Strip i of A from step s on. */
static wf_amx_rows rows_at(const wf_amx_job *w, int64_t batch, int64_t i, int64_t s)
{
    const wf_gemm_desc *d = w->d;
    wf_amx_rows r = {.stride = 64};
    if (i < w->in_place) {
        r.stride = d->a_rs * 2;
        r.tile[0] = (const char *)d->a + (batch * d->a_bs + i * WF_AMX_SIDE * d->a_rs) * 2 +
                    (w->offset ? 0 : s * 64);
        r.tile[1] = r.tile[0] + 16 * r.stride;
        return r;
    }
    r.tile[0] =
        w->a + batch * w->a_batch + (i - w->in_place) * w->steps * WF_AMX_STEP + s * WF_AMX_TILE;
    r.tile[1] = d->m - i * WF_AMX_SIDE > 16 ? r.tile[0] + w->steps * WF_AMX_TILE : NULL;
    return r;
}

typedef struct task {
    int64_t batch, i0, i1, q0, q1;
    float *acc;  /* of each strip where there are blocks of k, else of one */
    char *panel; /* where B is packed by the task */
    int32_t in_place[WF_AMX_BLOCK], packed[WF_AMX_BLOCK]; /* steps of A */
} task;

/* Strip i times `count` steps of panel q from step s on; rounds the strip before meanwhile. */
static void multiply_strip(const wf_amx_job *w, const task *t, int64_t i, int64_t q, int64_t s,
                           int64_t count, const char *b, wf_amx_out *out)
{
    const wf_gemm_desc *d = w->d;
    const int64_t row = i * WF_AMX_SIDE, column = q * WF_AMX_SIDE;
    const int64_t rows = least(WF_AMX_SIDE, d->m - row), columns = d->n - column;
    float *acc = t->acc + (w->block < w->steps ? (i - t->i0) * (WF_AMX_SQUARE / 4) : 0);
    uint16_t *c = (uint16_t *)d->c + t->batch * d->c_bs + row * d->c_rs + column;
    const bool last = s + count == w->steps;
    const wf_amx_rows a = rows_at(w, t->batch, i, s);
    const int32_t *offset = i >= w->in_place ? t->packed : w->offset ? w->offset + s : t->in_place;
    out->next = !w->row_at && last && count >= LATER && rows == WF_AMX_SIDE ? c : NULL;
    wf_amx_square(&a, offset, count, b, columns, acc, s > 0, out);
    if (last) {
        *out = (wf_amx_out){.acc = acc, .c = c, .c_rs = d->c_rs, .rows = rows, .columns = columns};
        out->bias = w->bias ? w->bias + column : NULL;
        if (w->row_at) {
            out->row_at = w->row_at + row;
            out->c = (uint16_t *)d->c + t->batch * d->c_bs + column;
        }
    }
    if (count < LATER)
        wf_amx_flush(out);
}

static void multiply(const wf_amx_job *w, const task *t)
{
    wf_amx_out out = {.c_rs = w->d->c_rs};
    for (int64_t i = t->i0; w->rows_first && i < t->i1; i++)
        for (int64_t q = t->q0; q < t->q1; q++)
            multiply_strip(w, t, i, q, 0, w->steps, w->b + q * w->steps * WF_AMX_STEP, &out);
    if (w->rows_first) {
        wf_amx_flush(&out);
        return;
    }
    for (int64_t q = t->q0; q < t->q1; q++)
        for (int64_t s = 0; s < w->steps; s += w->block) {
            const int64_t count = least(w->block, w->steps - s);
            const char *b = w->b ? w->b + (q * w->steps + s) * WF_AMX_STEP : t->panel;
            if (!w->b)
                pack_panel(w, t->batch, q, s, s + count, t->panel);
            for (int64_t i = t->i0; i < t->i1; i++)
                multiply_strip(w, t, i, q, s, count, b, &out);
        }
    wf_amx_flush(&out);
}

static void run_tasks(wf_amx_job *w, int64_t begin, int64_t end, bool early)
{
    const wf_gemm_desc *d = w->d;
    const int64_t squares = w->block < w->steps ? w->strip : 1;
    const size_t acc = (size_t)squares * WF_AMX_SQUARE;
    const size_t bytes = acc + (w->b ? 0 : (size_t)w->block * WF_AMX_STEP);
    _Alignas(64) char small[16384];
    char *scratch = bytes <= sizeof small ? small : wf_scratch(bytes);
    if (!scratch) {
        atomic_store_explicit(&w->rc, WF_GEMM_NOMEM, memory_order_relaxed);
        return;
    }
    task t = {.acc = (float *)(void *)scratch, .panel = scratch + acc};
    for (int32_t s = 0; s < WF_AMX_BLOCK; s++) {
        t.in_place[s] = s * 64;
        t.packed[s] = s * WF_AMX_TILE;
    }
    wf_amx_enter();
    for (int64_t i = begin; i < end; i++) {
        t.batch = i / (w->strips * w->groups);
        t.i0 = i / w->groups % w->strips * w->strip;
        t.i1 = least(t.i0 + w->strip, w->down);
        t.q0 = i % w->groups * w->group;
        t.q1 = least(t.q0 + w->group, w->across);
        multiply(w, &t);
        const int64_t row = t.i0 * WF_AMX_SIDE;
        if (early)
            d->done(d->done_arg, t.batch, row, least(t.i1 * WF_AMX_SIDE, d->m) - row);
    }
    wf_amx_leave();
    if (scratch != small)
        wf_scratch_free(scratch, bytes);
}

static void run_silent(void *arg, int64_t begin, int64_t end)
{
    run_tasks(arg, begin, end, false);
}
static void run_early(void *arg, int64_t begin, int64_t end)
{
    run_tasks(arg, begin, end, true);
}

/* By shape and strides alone. Returns whether B is packed for all tasks. */
static bool cut(wf_amx_job *w)
{
    const wf_gemm_desc *d = w->d;
    w->steps = over(d->k, WF_AMX_SIDE);
    w->block = over(w->steps, over(w->steps, WF_AMX_BLOCK));
    w->down = over(d->m, WF_AMX_SIDE);
    w->across = over(d->n, WF_AMX_SIDE);
    w->in_place = d->a_cs == 1 && d->k % WF_AMX_SIDE == 0 ? d->m / WF_AMX_SIDE : 0;
    const double panels = (double)(w->across * w->steps * WF_AMX_STEP);
    const bool shared = w->down > TALL && d->batch == 1 && panels <= MAX_PACKED;
    w->group = w->across;
    w->strip = least(w->down, STRIP);
    if (shared) {
        w->strip = w->down / TASKS < 2 ? 2 : least(w->down / TASKS, STRIP);
    } else {
        const double work = (double)d->m * (double)d->n * (double)d->k * (double)d->batch;
        const int64_t worth =
            (int64_t)(work < MIN_WORK * (double)TASKS ? work / MIN_WORK : (double)TASKS);
        const int64_t others = d->batch * over(w->down, w->strip);
        if (others < worth)
            w->group = over(w->across, least(w->across, over(worth, others)));
    }
    w->rows_first = shared && w->block == w->steps && panels <= NEAR;
    return shared;
}

/* Chunks of `count` equal tasks that are together worth a thread. */
static int64_t grain_of(double work)
{
    return work >= MIN_WORK ? 1 : (int64_t)(MIN_WORK / work) + 1;
}

static int pack(wf_amx_job *w, bool shared, size_t *a_bytes, size_t *b_bytes)
{
    const wf_gemm_desc *d = w->d;
    const int64_t strip = w->steps * WF_AMX_STEP;
    const int64_t pieces = d->b_cs == 1 ? w->steps : w->across;
    const int64_t batches = d->a_bs ? d->batch : 1, packed = w->down - w->in_place;
    w->a_batch = d->a_bs ? packed * strip : 0;
    *a_bytes = (size_t)(packed * strip * batches);
    *b_bytes = shared ? (size_t)(w->across * strip) : 0;
    if (*a_bytes && !(w->a = wf_scratch(*a_bytes)))
        return WF_GEMM_NOMEM;
    if (*b_bytes && !(w->b = wf_scratch(*b_bytes)))
        return WF_GEMM_NOMEM;
    /* Bytes copied cost about as much as eight multiply-adds each. */
    const int64_t parts = batches * (d->a_rs == 1 ? w->steps : packed);
    if (w->a)
        wf_parallel_for(parts, grain_of(16.0 * (double)*a_bytes / (double)parts), pack_a_task, w);
    if (w->b)
        wf_parallel_for(pieces, grain_of(16.0 * (double)*b_bytes / (double)pieces), pack_b_task, w);
    return WF_GEMM_OK;
}

int wf_amx_widen_bias(wf_amx_job *w, size_t *bytes)
{
    const wf_gemm_desc *d = w->d;
    if (!d->bias)
        return WF_GEMM_OK;
    *bytes = (size_t)(w->across * WF_AMX_SIDE) * sizeof(float);
    w->bias = wf_scratch(*bytes);
    for (int64_t j = 0; w->bias && j < w->across * WF_AMX_SIDE; j++)
        w->bias[j] = j < d->n ? wf_f32_of_bf16(((const uint16_t *)d->bias)[j * d->bias_cs]) : 0;
    return w->bias ? WF_GEMM_OK : WF_GEMM_NOMEM;
}

int wf_amx_run(wf_amx_job *w)
{
    const wf_gemm_desc *d = w->d;
    w->strips = over(w->down, w->strip);
    w->groups = over(w->across, w->group);
    const int64_t tasks = d->batch * w->strips * w->groups;
    const bool early = d->done && w->groups == 1 && tasks > 1 && tasks >= wf_num_threads();
    const double work = (double)(w->strip * w->group) * 1024.0 * (double)d->k;
    wf_parallel_for(tasks, grain_of(work), early ? run_early : run_silent, w);
    const int rc = atomic_load_explicit(&w->rc, memory_order_relaxed);
    return rc ? rc : early ? WF_GEMM_DONE : WF_GEMM_OK;
}

int wf_gemm_amx(const wf_gemm_desc *d)
{
    wf_amx_job w = {.d = d};
    size_t a_bytes = 0, b_bytes = 0, bias_bytes = 0;
    int rc = pack(&w, cut(&w), &a_bytes, &b_bytes);
    if (!rc)
        rc = wf_amx_widen_bias(&w, &bias_bytes);
    if (!rc)
        rc = wf_amx_run(&w);
    wf_scratch_free(w.bias, bias_bytes);
    wf_scratch_free(w.a, a_bytes);
    wf_scratch_free(w.b, b_bytes);
    return rc;
}
