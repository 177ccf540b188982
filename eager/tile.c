/*
 * eager/tile.c -- collapsing dimensions and cutting blocks; see tile.h.
 */
#include "eager/tile.h"

/* Sorts dimensions so that the first operand's strides fall; equal ones keep their order. */
static void sort_dims(wf_walk *w)
{
    for (int i = 1; i < w->rank; i++) {
        for (int j = i; j > 0; j--) {
            const int64_t outer = wf_magnitude(w->op[0].strides[j - 1]);
            if (outer >= wf_magnitude(w->op[0].strides[j]))
                break;
            const int64_t d = w->dims[j];
            w->dims[j] = w->dims[j - 1];
            w->dims[j - 1] = d;
            for (int k = 0; k < w->nops; k++) {
                int64_t *s = w->op[k].strides;
                const int64_t t = s[j];
                s[j] = s[j - 1];
                s[j - 1] = t;
            }
        }
    }
}

/* Joins dimension i to i + 1 where every operand steps through both as through one. */
static void merge_dims(wf_walk *w)
{
    int out = w->rank - 1;
    for (int i = w->rank - 2; i >= 0; i--) {
        bool joins = true;
        for (int k = 0; k < w->nops && joins; k++)
            joins = w->op[k].strides[i] == w->op[k].strides[out] * w->dims[out];
        if (joins) {
            w->dims[out] *= w->dims[i];
            continue;
        }
        out--;
        w->dims[out] = w->dims[i];
        for (int k = 0; k < w->nops; k++)
            w->op[k].strides[out] = w->op[k].strides[i];
    }
    if (out > 0) {
        w->rank -= out;
        for (int i = 0; i < w->rank; i++) {
            w->dims[i] = w->dims[i + out];
            for (int k = 0; k < w->nops; k++)
                w->op[k].strides[i] = w->op[k].strides[i + out];
        }
    }
}

bool wf_walk_init(wf_walk *w, int n, const wf_view *const *views)
{
    const wf_view *v0 = views[0];
    w->nops = n;
    w->rank = 0;
    for (int k = 0; k < n; k++) {
        w->op[k].data = views[k]->data;
        w->op[k].esize = (int64_t)wf_dtype_size(views[k]->dtype);
    }
    for (int i = 0; i < v0->rank; i++) {
        if (v0->dims[i] == 0)
            return false;
        if (v0->dims[i] == 1)
            continue;
        w->dims[w->rank] = v0->dims[i];
        for (int k = 0; k < n; k++)
            w->op[k].strides[w->rank] = views[k]->strides[i];
        w->rank++;
    }
    if (w->rank == 0) {
        w->rank = 1;
        w->dims[0] = 1;
        for (int k = 0; k < n; k++)
            w->op[k].strides[0] = 1;
    } else {
        sort_dims(w);
        merge_dims(w);
    }
    w->flat = w->rank == 1;
    for (int k = 0; k < n && w->flat; k++)
        w->flat = w->op[k].strides[0] == 1;
    return true;
}

/* A dimension along which neighbours of some operand share lines while those along the innermost do not; -1 if there is none. */
static int transposed_dim(const wf_walk *w)
{
    enum { LINE = 64, LEAST = 4 };
    const int inner = w->rank - 1;
    for (int k = 0; k < w->nops; k++) {
        int64_t least = wf_magnitude(w->op[k].strides[inner]);
        int best = -1;
        if (least <= 1)
            continue;
        for (int i = inner - 1; i >= 0; i--) {
            const int64_t step = wf_magnitude(w->op[k].strides[i]);
            if (step != 0 && step < least && step * w->op[k].esize < LINE && w->dims[i] >= LEAST) {
                least = step;
                best = i;
            }
        }
        if (best >= 0)
            return best;
    }
    return -1;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void count_blocks(wf_walk *w)
{
    w->nblocks = 1;
    for (int i = 0; i < w->rank; i++) {
        const int64_t step = i == w->col_dim ? w->cols : i == w->row_dim ? w->rows : 1;
        w->nblocks *= (w->dims[i] + step - 1) / step;
    }
}

void wf_walk_cut(wf_walk *w, int64_t tile, int64_t row)
{
    enum { LONG_ROW = 512 };
    const int inner = w->rank - 1;
    const int turned = transposed_dim(w);
    w->col_dim = inner;
    w->row_dim = -1;
    w->rows = 1;
    if (turned >= 0) {
        int64_t side = 16;
        while (side * side * 4 <= tile)
            side *= 2;
        w->row_dim = turned;
        w->cols = smaller(w->dims[inner], side);
        w->rows = smaller(w->dims[turned], tile / w->cols);
        w->cols = smaller(w->dims[inner], tile / w->rows);
    } else if (w->rank > 1 && w->dims[inner] < LONG_ROW && w->dims[inner] <= tile) {
        w->cols = w->dims[inner];
        w->row_dim = inner - 1;
        w->rows = smaller(w->dims[inner - 1], tile / w->cols);
    } else {
        w->cols = smaller(w->dims[inner], row);
    }
    count_blocks(w);
}

void wf_walk_cut_turned(wf_walk *w, int64_t rows, int64_t cols)
{
    if (transposed_dim(w) < 0)
        return;
    w->cols = smaller(w->dims[w->col_dim], cols);
    w->rows = smaller(w->dims[w->row_dim], rows);
    count_blocks(w);
}

void wf_walk_join_rows(wf_walk *w, int64_t most)
{
    const int inner = w->rank - 1;
    if (w->rank == 1 || w->col_dim != inner || (w->row_dim >= 0 && w->row_dim != inner - 1) ||
        w->cols != w->dims[inner] || w->cols > most)
        return;
    w->row_dim = inner - 1;
    w->rows = smaller(w->dims[inner - 1], most / w->cols);
    count_blocks(w);
}

void wf_walk_blocks(const wf_walk *w, int64_t begin, int64_t end, wf_block_fn fn, void *arg)
{
    int64_t at[WF_MAX_RANK], step[WF_MAX_RANK];
    int64_t rest = begin;
    for (int i = w->rank - 1; i >= 0; i--) {
        step[i] = i == w->col_dim ? w->cols : i == w->row_dim ? w->rows : 1;
        const int64_t count = (w->dims[i] + step[i] - 1) / step[i];
        at[i] = rest % count * step[i];
        rest /= count;
    }
    wf_block b;
    for (int k = 0; k < w->nops; k++) {
        b.row[k] = w->row_dim < 0 ? 0 : w->op[k].strides[w->row_dim];
        b.col[k] = w->op[k].strides[w->col_dim];
    }
    for (int64_t n = begin; n < end; n++) {
        b.cols = smaller(w->cols, w->dims[w->col_dim] - at[w->col_dim]);
        b.rows = w->row_dim < 0 ? 1 : smaller(w->rows, w->dims[w->row_dim] - at[w->row_dim]);
        for (int k = 0; k < w->nops; k++) {
            int64_t offset = 0;
            for (int i = 0; i < w->rank; i++)
                offset += at[i] * w->op[k].strides[i];
            b.ptr[k] = w->op[k].data + offset * w->op[k].esize;
        }
        fn(arg, &b);
        for (int i = w->rank - 1; i >= 0; i--) {
            at[i] += step[i];
            if (at[i] < w->dims[i])
                break;
            at[i] = 0;
        }
    }
}
