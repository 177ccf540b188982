/*
 * eager/rowwise.c -- softmax and log_softmax, forward and backward.
 *
 * Rows along the last axis run in place, short ones turned into columns. Along another axis columns that lie side by side, in a copy
 * if need be, go together, a row of them at a time, where they are short; else the operands are copied with that axis last and the
 * result is copied back. Bits follow the compositions in eager/kernels/rowwise.h.
 */
#include "eager/rows.h"

#include <string.h>

#include "eager/alloc.h"
#include "eager/kernels/kernels.h"
#include "eager/pool.h"

typedef struct softmax_job {
    const wf_row_kernels *k;
    wf_op op;
    int64_t n;
} softmax_job;

static void softmax_row(void *ctx, int64_t row, const void *const *in, void *const *out, int nt)
{
    const softmax_job *j = ctx;
    (void)row;
    if (j->op == WF_OP_SOFTMAX) {
        j->k->softmax(out[0], in[0], j->n, nt);
    } else if (j->op == WF_OP_LOG_SOFTMAX) {
        j->k->log_softmax(out[0], in[0], j->n, nt);
    } else if (j->op == WF_OP_SOFTMAX_BWD) {
        j->k->softmax_bwd(out[0], in[0], in[1], j->n, nt);
    } else {
        j->k->log_softmax_bwd(out[0], in[0], in[1], j->n, nt);
    }
}

static int run_packed(wf_exec *e, const wf_packed *src, void *to, int64_t n,
                      const wf_epilogue *after)
{
    const wf_view *dst = &e->dst[0];
    int compute = wf_red_compute(dst->dtype);
    softmax_job j = {.k = wf_row_kernels_of(compute), .op = e->op, .n = n};
    wf_row_job r = {
        .rows = wf_view_numel(dst) / n, .n = n, .compute = compute, .nin = e->nsrc, .nout = 1};
    for (int i = 0; i < e->nsrc; i++) {
        r.in[i].data = src[i].data;
        r.in[i].dtype = e->src[i].dtype;
    }
    r.out[0].data = to;
    r.out[0].dtype = dst->dtype;
    r.nt_limit = e->op == WF_OP_SOFTMAX ? WF_BLOCK : INT64_MAX;
    r.fn = softmax_row;
    r.ctx = &j;
    r.after = after;
    e->finished = wf_rows_finish(&r);
    return wf_rows_run(&r, e->why);
}

/* -- columns ------------------------------------------------------------------------------------------ */

enum {
    PART = 48 << 10, /* bytes of a task's values at one stage */
    COLUMNS = 64,    /* the fewest that canonical sums take side by side */
    MOST_COLUMNS = 1024,
    ROW_BYTES = MOST_COLUMNS * 8,
    LONGEST = PART / COLUMNS / 4, /* column */
    CUT = 16,                     /* tasks begin at multiples of so many columns */
    COLUMNS_TASK = 1 << 15,       /* elements worth a task */
    COLUMNS_AWAKE = 1 << 13,      /* and a share of a worker that is awake */
    TURNED_LEAST = 160 /* rows, whose even shares are never less than COLUMNS and a cut */
};

typedef struct column_job {
    wf_op op;
    int nsrc, compute, size;
    int64_t n, inner, tiles; /* values of a column; columns side by side; tasks of these */
    const wf_view *src, *dst;
    const void *data[2]; /* of src, or of row-major copies */
    bool turned;         /* the columns are rows in memory */
} column_job;

/* Values of one operand: rows of the task's columns. */
typedef struct column_rows {
    const char *at;
    int64_t step; /* bytes from row to row */
} column_rows;

/* one: bits of the operands that are one value for all. */
static void apply_one(const column_job *j, wf_op op, void *to, const void *a, const void *b,
                      int64_t w, unsigned one)
{
    const void *const src[2] = {a, b};
    wf_kernels_now()->map[wf_ct(j->compute)][op](to, src, (size_t)w, one);
}

static void apply(const column_job *j, wf_op op, void *to, const void *a, const void *b, int64_t w)
{
    apply_one(j, op, to, a, b, w, 0);
}

/* The columns that begin at element `at` of operand k, w of them: as they lie in memory, turned (by way of `other` if they are
 * widened) or widened in room. */
static column_rows rows_of(const column_job *j, int k, int64_t at, int64_t w, char *room,
                           char *other)
{
    const wf_view *v = &j->src[k];
    const int64_t from = (int64_t)wf_dtype_size(v->dtype);
    column_rows x = {(const char *)j->data[k] + at * from, j->inner * from};
    if (j->turned) {
        char *to = v->dtype == j->compute ? room : other;
        wf_kernels_now()->pack[wf_width(v->dtype)](to, w, x.at, 1, j->n, (size_t)j->n, (size_t)w);
        x = (column_rows){to, w * from};
    }
    if (v->dtype == j->compute) {
        return x;
    }
    for (int64_t r = 0; r < j->n; r++) {
        wf_red_kernels_of(j->compute)
            ->load(room + r * w * j->size, x.at + r * x.step, v->dtype, 1, w);
    }
    return (column_rows){room, w * j->size};
}

/* m = max(x); x - m to d. */
static void less_largest(const column_job *j, column_rows x, char *m, char *d, int64_t w)
{
    const void *rows[LONGEST];
    for (int64_t r = 0; r < j->n; r++) {
        rows[r] = x.at + r * x.step;
    }
    wf_red_kernels_of(j->compute)->rows[WF_RED_MAX](m, rows, j->n, w, 1);
    for (int64_t r = 0; r < j->n; r++) {
        apply(j, WF_OP_SUB, d + r * w * j->size, rows[r], m, w);
    }
}

/* Row r of the result, and of what it is made. */
static void column_row(const column_job *j, void *to, const char *a, const char *b, const char *t,
                       const char *s, int64_t w)
{
    _Alignas(64) char u[ROW_BYTES];
    if (j->op == WF_OP_SOFTMAX) { /* exp(x - m) / sum */
        apply(j, WF_OP_DIV, to, t, s, w);
    } else if (j->op == WF_OP_LOG_SOFTMAX) { /* (x - m) - log sum */
        apply(j, WF_OP_SUB, to, a, s, w);
    } else if (j->op == WF_OP_SOFTMAX_BWD) { /* y * (g - sum) */
        apply(j, WF_OP_SUB, u, a, s, w);
        apply(j, WF_OP_MUL, to, b, u, w);
    } else { /* g - exp(y) * sum */
        apply(j, WF_OP_EXP, u, b, NULL, w);
        apply(j, WF_OP_MUL, u, u, s, w);
        apply(j, WF_OP_SUB, to, a, u, w);
    }
}

static void do_columns(const column_job *j, int64_t at, int64_t w)
{
    _Alignas(64) char room[3][PART];
    _Alignas(64) char s[ROW_BYTES], out[ROW_BYTES]; /* s: the largest before the sums */
    const wf_sum_kernels *sum = wf_sum_kernels_of(j->compute);
    const int64_t step = w * j->size;
    column_rows a = rows_of(j, 0, at, w, room[0], room[2]), b = {NULL, 0}, t = {room[2], step};
    if (j->nsrc > 1) {
        b = rows_of(j, 1, at, w, room[1], room[2]);
    } else {
        less_largest(j, a, s, room[0], w);
        a = (column_rows){room[0], step};
    }
    for (int64_t r = 0; r < j->n && j->op != WF_OP_LOG_SOFTMAX_BWD; r++) { /* what is summed up */
        const char *x = a.at + r * a.step, *y = b.at + r * b.step;
        const bool product = j->op == WF_OP_SOFTMAX_BWD;
        apply(j, product ? WF_OP_MUL : WF_OP_EXP, room[2] + r * step, x, product ? y : NULL, w);
    }
    if (j->op == WF_OP_LOG_SOFTMAX_BWD) {
        t = a;
    }
    sum->tree(s, t.at, t.step / j->size, j->n, w);
    if (j->op == WF_OP_LOG_SOFTMAX) {
        apply(j, WF_OP_LOG, s, s, NULL, w);
    }
    const int64_t to = (int64_t)wf_dtype_size(j->dst->dtype);
    char *const dst = (char *)j->dst->data + at * to;
    for (int64_t r = 0; r < j->n;
         r++) { /* turned: over the row of t that it is made of, or one before it */
        char *row = j->turned ? room[2] + r * w * to : dst + r * j->inner * to;
        const bool same = j->dst->dtype == j->compute;
        column_row(j, same ? row : out, a.at + r * a.step, b.at + r * b.step, t.at + r * t.step, s,
                   w);
        if (!same) {
            wf_red_kernels_of(j->compute)->store(row, j->dst->dtype, out, w);
        }
    }
    if (j->turned) {
        wf_kernels_now()->pack[wf_width(j->dst->dtype)](dst, j->n, room[2], 1, w, (size_t)w,
                                                        (size_t)j->n);
    }
}

static void columns_task(void *arg, int64_t begin, int64_t end)
{
    const column_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i % j->tiles, at = k * j->inner / j->tiles / CUT * CUT;
        const int64_t next = (k + 1) * j->inner / j->tiles / CUT * CUT;
        do_columns(j, i / j->tiles * j->n * j->inner + (j->turned ? at * j->n : at),
                   (k + 1 < j->tiles ? next : j->inner) - at);
    }
}

/* Rows of n that are turned together, at most; 0: they are too long, or too few. */
static int64_t rows_together(int64_t rows, int64_t n, int64_t size)
{
    const bool fits = n <= WF_TURNED_ROW && rows >= COLUMNS && PART / size / n >= TURNED_LEAST;
    return fits ? wf_turned_rows(n, (size_t)size, TURNED_LEAST) : 0;
}

int64_t wf_turned_parts(int64_t rows, int64_t n, int compute)
{
    const int64_t fits = rows_together(rows, n, (int64_t)wf_red_size(compute));
    return fits == 0 ? 0 : rows <= fits ? 1 : (rows + fits - 1) / fits;
}

void wf_lse_rows(void *lse, const wf_view *x, int64_t from, int64_t w)
{
    _Alignas(64) char room[2][PART];
    _Alignas(64) char m[ROW_BYTES];
    const int compute = wf_red_compute(x->dtype), size = (int)wf_red_size(compute);
    const column_job j = {.nsrc = 1,
                          .compute = compute,
                          .size = size,
                          .n = x->dims[1],
                          .src = x,
                          .data = {x->data},
                          .turned = true};
    less_largest(&j, rows_of(&j, 0, from * j.n, w, room[0], room[1]), m, room[0], w);
    apply(&j, WF_OP_EXP, room[0], room[0], NULL, j.n * w);
    wf_sum_kernels_of(compute)->tree(lse, room[0], w, j.n, w);
    apply(&j, WF_OP_LOG, lse, lse, NULL, w);
    apply(&j, WF_OP_ADD, lse, m, lse, w);
}

/* to := v in the compute type. */
static const void *number(const column_job *j, double v, void *to)
{
    const float narrow = (float)v;
    memcpy(to, j->compute == WEFT_F64 ? (const void *)&v : &narrow, (size_t)j->size);
    return to;
}

typedef struct short_norm {
    const wf_turned_norm *t;
    column_job j;
    int64_t parts;
} short_norm;

/* Rows [from, from + w). */
static void norm_part(const short_norm *s, int64_t from, int64_t w)
{
    _Alignas(64) char room[2][PART];
    double n, eps, one;
    const wf_turned_norm *t = s->t;
    const column_job *j = &s->j;
    const wf_sum_kernels *sum = wf_sum_kernels_of(j->compute);
    const int64_t step = w * j->size, to = (int64_t)wf_dtype_size(t->y_dtype);
    char *x = room[0], *mean = t->mean, *rstd = (char *)t->rstd + from * j->size;
    rows_of(j, 0, from * j->n, w, x, room[1]);
    number(j, (double)j->n, &n);
    if (mean) {
        mean += from * j->size;
        sum->tree(mean, x, w, j->n, w);
        apply_one(j, WF_OP_DIV, mean, mean, &n, w, 2);
    }
    for (int64_t r = 0; mean && r < j->n; r++) {
        apply(j, WF_OP_SUB, x + r * step, x + r * step, mean, w);
    }
    apply(j, WF_OP_MUL, room[1], x, x, j->n * w);
    sum->tree(rstd, room[1], w, j->n, w);
    apply_one(j, WF_OP_DIV, rstd, rstd, &n, w, 2);
    apply_one(j, WF_OP_ADD, rstd, rstd, number(j, t->eps, &eps), w, 2);
    apply(j, WF_OP_SQRT, rstd, rstd, NULL, w);
    apply_one(j, WF_OP_DIV, rstd, number(j, 1, &one), rstd, w, 1);
    for (int64_t r = 0; r < j->n; r++) {
        char *row = x + r * step;
        apply(j, WF_OP_MUL, row, row, rstd, w);
        if (t->w) {
            apply_one(j, WF_OP_MUL, row, row, (const char *)t->w + r * j->size, w, 2);
        }
        if (t->b) {
            apply_one(j, WF_OP_ADD, row, row, (const char *)t->b + r * j->size, w, 2);
        }
    }
    if (t->y_dtype != j->compute) {
        wf_red_kernels_of(j->compute)->store(room[1], t->y_dtype, x, j->n * w);
        x = room[1];
    }
    wf_kernels_now()->pack[wf_width(t->y_dtype)]((char *)t->y + from * j->n * to, j->n, x, 1, w,
                                                 (size_t)w, (size_t)j->n);
}

static void norm_task(void *arg, int64_t begin, int64_t end)
{
    const short_norm *s = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i * s->t->rows / s->parts;
        norm_part(s, from, (i + 1) * s->t->rows / s->parts - from);
    }
}

bool wf_norm_turned(const wf_turned_norm *t)
{
    const wf_view x = {.dtype = (uint8_t)t->x_dtype};
    const short_norm s = {.t = t,
                          .j = {.compute = t->compute,
                                .size = (int)wf_red_size(t->compute),
                                .n = t->n,
                                .src = &x,
                                .data = {t->x},
                                .turned = true},
                          .parts = wf_turned_parts(t->rows, t->n, t->compute)};
    /* Of f32 with a mean, registers of 64 bytes take a row that fills one or two of them in little more than a column's time. */
    enum {
        ROWS_FROM = 20
    }; /* Zen 5, 512 rows of 17, 20, 31 and 63: by columns 4.2, 4.5, 6.1, 12.1 us, by rows 4.4 to 5.5 */
    if (s.parts == 0 ||
        (wf_isa() == WF_ISA_AVX512 && t->x_dtype == WEFT_F32 && t->mean && t->n >= ROWS_FROM)) {
        return false;
    }
    wf_parallel_items(s.parts, t->n * (t->rows / s.parts), COLUMNS_TASK, COLUMNS_AWAKE, norm_task,
                      (void *)(uintptr_t)&s);
    return true;
}

/* Do they go by columns? j is filled but for the data then. */
static bool by_columns(const wf_exec *e, int axis, column_job *j)
{
    const wf_view *dst = &e->dst[0];
    *j = (column_job){.op = e->op, .nsrc = e->nsrc, .src = e->src, .dst = dst, .inner = 1};
    j->compute = wf_red_compute(dst->dtype);
    j->size = (int)wf_red_size(j->compute);
    j->n = dst->dims[axis];
    j->turned = axis == dst->rank - 1;
    for (int i = axis + 1; i < dst->rank; i++) {
        j->inner *= dst->dims[i];
    }
    int64_t fits = PART / j->size / j->n / CUT * CUT;
    if (j->turned) {
        j->inner = wf_view_numel(dst) / j->n;
        fits = rows_together(j->inner, j->n, j->size);
    }
    fits = fits < MOST_COLUMNS ? fits : MOST_COLUMNS;
    if (fits < COLUMNS) {
        return false;
    }
    /* even shares, of which a cut moves an end by less than CUT: all fit, and none is less than COLUMNS */
    j->tiles = j->inner <= fits ? 1 : (j->inner + fits - CUT - 1) / (fits - CUT);
    bool good = wf_view_is_contiguous(dst) &&
                j->inner / j->tiles >= (j->tiles > 1 ? COLUMNS + CUT : COLUMNS);
    for (int i = 0; i < e->nsrc; i++) {
        const wf_view *x = &e->src[i];
        good = good && (j->turned || x->data != dst->data) &&
               (x->dtype == j->compute || (WF_BIT(x->dtype) & WF_DT_F));
    }
    return good;
}

static void run_columns(column_job *j, const wf_packed *src)
{
    for (int i = 0; i < j->nsrc; i++) {
        j->data[i] = src[i].data;
    }
    wf_parallel_items(wf_view_numel(j->dst) / (j->n * j->inner) * j->tiles,
                      j->n * (j->inner / j->tiles), COLUMNS_TASK, COLUMNS_AWAKE, columns_task, j);
}

WF_EXEC_DECL(softmax)
{
    wf_view *dst = &e->dst[0];
    int axis = e->attr->n_ints > 0 ? (int)e->attr->ints[0] : dst->rank - 1;
    int last = axis == dst->rank - 1 ? -1 : axis;
    int64_t n = dst->rank > 0 ? dst->dims[axis] : 1;
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    column_job columns;
    const bool by = dst->rank > 0 && by_columns(e, axis, &columns);
    last = by ? -1 : last;
    wf_packed src[2] = {{.data = NULL}};
    int status = 0;
    for (int i = 0; i < e->nsrc && status == 0; i++) {
        status = wf_pack(&src[i], &e->src[i], e->src[i].dtype, last, e->why);
    }
    wf_view moved = wf_move_last(dst, last);
    if (status == 0 && by) {
        run_columns(&columns, src);
    } else if (status == 0 && wf_view_is_contiguous(&moved)) {
        status = run_packed(e, src, dst->data, n, last < 0 ? e->after : NULL);
    } else if (status == 0) {
        wf_view tmp = moved;
        size_t bytes = (size_t)wf_view_numel(dst) * wf_dtype_size(dst->dtype);
        tmp.data = wf_scratch(bytes);
        if (tmp.data == NULL) {
            status = wf_red_nomem(e->why, (int64_t)bytes);
        } else {
            int64_t stride = 1;
            for (int i = tmp.rank - 1; i >= 0; i--) {
                tmp.strides[i] = stride;
                stride *= tmp.dims[i];
            }
            status = run_packed(e, src, tmp.data, n, NULL);
            if (status == 0) {
                wf_copy(&moved, &tmp);
            }
            wf_scratch_free(tmp.data, bytes);
        }
    }
    wf_unpack(&src[0]);
    wf_unpack(&src[1]);
    return status;
}
