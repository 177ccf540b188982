/*
 * eager/kernels/gemm_amx.h -- pieces of a bf16 product on matrix units (AMX), each on one thread.
 *
 * A product is made of squares of 32 x 32 results and of steps of 32 terms along k. A step of A is one
 * tile of 16 rows x 64 bytes (two tiles for 32 rows), read where A lies or packed; a step of B is two
 * tiles of 16 columns, packed: row p of a tile holds terms 2p and 2p + 1 of its columns side by side.
 * What lies past the end of k, or of the columns, is packed as zeros.
 *
 * Invariant: an element is the sum of its steps in order of k, whatever square it lies in and however
 * the steps are split over calls: the accumulators between calls are kept as they are.
 */
#ifndef EAGER_KERNELS_GEMM_AMX_H
#define EAGER_KERNELS_GEMM_AMX_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WF_AMX_SIDE = 32,   /* rows and columns of a square, and terms of a step */
    WF_AMX_TILE = 1024, /* bytes of a tile */
    WF_AMX_STEP = 2 * WF_AMX_TILE,
    WF_AMX_SQUARE = 4 * WF_AMX_TILE,
    WF_AMX_TAPS = 64
};

/* A bf16 matrix: element (i, j) at at[i * rs + j * cs]. */
typedef struct wf_amx_matrix {
    const uint16_t *at;
    int64_t rs, cs;
} wf_amx_matrix;

/* Up to 32 rows of A: tiles of step s begin at tile[0] + offset[s] and tile[1] + offset[s] (rows 16 and
 * on; NULL: no such rows), their rows are `stride` bytes apart. */
typedef struct wf_amx_rows {
    const char *tile[2];
    int64_t stride;
} wf_amx_rows;

/* A finished square that is still to be rounded to bf16: rows [done, rows) of it, to c + i * c_rs or, where that is
 * given, c + row_at[i] (nowhere if negative). `bias`: NULL, or 32 terms to add to
 * each row before. `next`: where the one in work will go, or NULL. */
typedef struct wf_amx_out {
    const float *acc, *bias;
    uint16_t *c, *next;
    const int64_t *row_at;
    int64_t c_rs, rows, columns, done;
} wf_amx_out;

/* Brackets calls of wf_amx_square on the calling thread. */
void wf_amx_enter(void);
void wf_amx_leave(void);
/* acc[4][16][16] := or += `steps` steps of rows x `columns` columns (at most 32). What is pending of
 * `out` is rounded meanwhile, before acc is written. */
void wf_amx_square(const wf_amx_rows *a, const int32_t *offset, int64_t steps, const void *b,
                   int64_t columns, float *acc, int add, wf_amx_out *out);
void wf_amx_flush(wf_amx_out *out);

/* Rows of A (at most 16) of `k` terms as steps of WF_AMX_TILE bytes. */
void wf_amx_pack_rows(const wf_amx_matrix *a, int64_t rows, int64_t k, void *out);
/* Columns of B (at most 32) of `k` terms as steps of WF_AMX_STEP bytes, `next` bytes apart. */
void wf_amx_pack_columns(const wf_amx_matrix *b, int64_t columns, int64_t k, void *out,
                         int64_t next);

/* 32 output channels x 32 input channels of weights [o][c][tap], `o_rs` elements from one output channel to the next,
 * as a step for each of `taps` taps (at most WF_AMX_TAPS), `next` bytes apart: channels of the input along k, or those
 * of the output where `transposed`. */
void wf_amx_pack_taps(const uint16_t *weight, int64_t o_rs, int64_t taps, bool transposed,
                      void *out, int64_t next);

/* -- gradients of weights: a step of B is 16 lines of 128 bytes, each a pair of terms of 32 columns --------------- */
enum { WF_AMX_LINE = 128 };
/* Terms 0 to `terms` - 1 (zeros behind them, up to 2 * `pairs`) of up to 32 columns, term t at from + t * rs; of lane
 * i of a square's rows wf_amx_column(i) is the column. */
void wf_amx_pack_pairs(const uint16_t *from, int64_t rs, int64_t columns, int64_t terms,
                       int64_t pairs, void *out);
/* acc := or += `steps` steps. A: rows 0 to 15 of step s at a + s * WF_AMX_TILE, the others a_half behind; B: a line of
 * step s at b + at[s]. */
void wf_amx_pairs_square(const char *a, int64_t a_half, const char *b, const int32_t *at,
                         int64_t steps, float *acc, int add);
/* Lanes 0 to 15 of a row are in the square's first tiles, the others in its second. */
static inline int64_t wf_amx_column(int64_t lane)
{
    return lane % 16 / 4 * 8 + lane / 16 * 4 + lane % 4;
}

typedef struct wf_amx_join {
    int64_t taps;
    uint32_t mask[WF_AMX_TAPS][WF_AMX_TAPS]; /* lanes of vector v that are of tap t */
    uint16_t lane[WF_AMX_TAPS][WF_AMX_SIDE]; /* which lane of that tap's square */
} wf_amx_join;
void wf_amx_join_init(wf_amx_join *j, int64_t taps);
/* Rows of the squares of all taps, rounded: out[row * rs + 32 columns][tap]. Returns whether all are finite. */
bool wf_amx_join_rows(const wf_amx_join *j, const float *acc, int64_t rows, uint16_t *out,
                      int64_t rs);

#endif
