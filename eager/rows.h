/*
 * eager/rows.h -- runs a row kernel over the rows of operands of any dtype and layout.
 *
 * Rows of a compute dtype are handed to the kernel in place; others are converted row by row through
 * scratch that is allocated before the first task (tasks cannot fail).
 */
#ifndef EAGER_ROWS_H
#define EAGER_ROWS_H

#include "eager/exec.h"
#include "eager/kernels/rowwise.h"
#include "eager/reduce.h"

enum { WF_ROWS_IN = 3, WF_ROWS_OUT = 1 };

/* One row: in[k] and out[k] hold n compute values. nt: as in eager/kernels/rowwise.h. */
typedef void (*wf_row_fn)(void *ctx, int64_t row, const void *const *in, void *const *out, int nt);

/* Rows [row, row + count), which follow one another in in[k] and out[k]. */
typedef void (*wf_rows_fn)(void *ctx, int64_t row, int64_t count, const void *const *in,
                           void *const *out, int nt);

typedef struct wf_row_job {
    int64_t rows, n;
    int compute; /* WEFT_F32 or WEFT_F64 */
    int nin, nout;
    struct {
        const void *data; /* [rows][n], contiguous */
        int dtype;
    } in[WF_ROWS_IN], out[WF_ROWS_OUT];
    int64_t nt_limit; /* longest row that fn can store past the caches */
    wf_row_fn fn;
    wf_rows_fn many; /* the same for several rows where none goes through scratch, or NULL */
    void *ctx;
    const wf_epilogue *after; /* NULL, or what wf_rows_finish says */
} wf_row_job;

/* Will wf_rows_run hand finished rows to `after`? Where no cache holds the result, and no operand is converted: else all of
 * them at once are as near. */
bool wf_rows_finish(const wf_row_job *job);

/* Results this large are stored past the caches. */
enum { WF_STREAM_BYTES = 24 << 20 };

/* to[0..n) = a row of another type as compute values; what lies behind is fetched, as the next row to come. */
void wf_rows_load(const wf_red_kernels *k, void *to, const void *from, int dtype, int64_t n);

/* Weights of channels of so few elements are spread over these: rows of such runs would be slow. */
enum { WF_FEW_EACH = 16 };
/* Scratch of channels * each compute values, each of w[channels] as often; w NULL: `none`. NULL: no memory. */
void *wf_rows_spread(const void *w, double none, int compute, int64_t channels, int64_t each);

/* 0 or WEFT_ENOMEM with why filled. */
int wf_rows_run(const wf_row_job *job, wf_why *why);

/* In how many parts, as even as they can be, short rows are taken that are turned into columns; 0: they are not. */
int64_t wf_turned_parts(int64_t rows, int64_t n, int compute);
/* lse[i] = m + log(sum(exp(x[from + i] - m))), m the largest of that row, of w rows of x, which is dense. */
void wf_lse_rows(void *lse, const wf_view *x, int64_t from, int64_t w);
/* The norm of wf_row_kernels over all rows of x[rows, n], which is dense as y is; mean NULL: not centred. False: nothing was
 * done, they are not to be turned. */
typedef struct wf_turned_norm {
    const void *x;
    void *y;
    int x_dtype, y_dtype, compute;
    int64_t rows, n;
    const void *w, *b; /* as compute values; may be NULL */
    void *mean, *rstd;
    double eps;
} wf_turned_norm;
bool wf_norm_turned(const wf_turned_norm *t);

/* WEFT_EINDEX with why filled if some of cross entropy's targets [n] is neither a class nor left out. */
int wf_targets_check(const wf_view *targets, const wf_attr *attr, int64_t classes, wf_why *why);

/* A contiguous array of v's elements, converted to dtype, with axis `last` moved to the end (-1: as it
 * is): v's own memory where possible, else a copy. */
typedef struct wf_packed {
    void *data;
    void *owned; /* to be freed, or NULL */
    size_t bytes;
} wf_packed;
int wf_pack(wf_packed *p, const wf_view *v, int dtype, int last, wf_why *why);
void wf_unpack(wf_packed *p); /* frees a copy */
/* v with axis `last` moved to the end. */
wf_view wf_move_last(const wf_view *v, int last);

#endif
