/*
 * eager/tile.h -- walking strided operands in blocks: what map.c, copy.c and program.c share.
 *
 * A walk takes views of one extent, drops and merges dimensions, sorts them by the strides of the
 * first view (the destination) and cuts the rest into blocks of rows x cols elements, rows along one
 * dimension and cols along another (the innermost). Blocks depend on shapes and strides only, so which
 * thread runs a block never shows in the result.
 */
#ifndef EAGER_TILE_H
#define EAGER_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "eager/view.h"

enum { WF_WALK_OPS = 64 };

typedef struct wf_walk_op {
    char *data;
    int64_t esize;
    int64_t strides[WF_MAX_RANK]; /* of the walk's dims, in elements */
} wf_walk_op;

typedef struct wf_walk {
    int nops, rank; /* rank >= 1 */
    int64_t dims[WF_MAX_RANK];
    int row_dim, col_dim; /* row_dim -1: blocks of one row */
    int64_t rows, cols;   /* of a full block */
    int64_t nblocks;
    bool flat; /* one dimension, every stride 1 */
    wf_walk_op op[WF_WALK_OPS];
} wf_walk;

/* A block: op k starts at ptr[k]; its element (i, j) lies at i * row[k] + j * col[k] elements. */
typedef struct wf_block {
    int64_t rows, cols;
    char *ptr[WF_WALK_OPS];
    int64_t row[WF_WALK_OPS], col[WF_WALK_OPS];
} wf_block;

/* Describes views[0..n) of equal dims. False if there is no element. */
bool wf_walk_init(wf_walk *w, int n, const wf_view *const *views);
/* Chooses blocks of at most `tile` elements (one-row blocks of at most `row`). */
void wf_walk_cut(wf_walk *w, int64_t tile, int64_t row);
/* After wf_walk_cut: where an operand is transposed, blocks of at most rows x cols elements instead. */
void wf_walk_cut_turned(wf_walk *w, int64_t rows, int64_t cols);
/* After wf_walk_cut: where blocks are whole rows along the last dimension, as many of them as have at most so many elements. */
void wf_walk_join_rows(wf_walk *w, int64_t most);
/* Calls fn on blocks [begin, end) in order. */
typedef void (*wf_block_fn)(void *arg, const wf_block *b);
void wf_walk_blocks(const wf_walk *w, int64_t begin, int64_t end, wf_block_fn fn, void *arg);

#endif
