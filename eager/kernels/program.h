/*
 * eager/kernels/program.h -- kernels on two-dimensional tiles for fused groups (eager/program_*.c).
 *
 * A tile is m lines of n elements. An operand of a grid kernel is a tile (line step n, element step 1),
 * one element per line (step s, 0), one line for all (0, 1) or one element (0, 0).
 */
#ifndef EAGER_KERNELS_PROGRAM_H
#define EAGER_KERNELS_PROGRAM_H

#include "eager/kernels/kernels.h"

typedef struct wf_grid_src {
    const void *data;
    int64_t line; /* elements between lines */
    bool along;   /* elements of a line differ: they lie next to each other */
} wf_grid_src;

/* dst[i * n + j] := row(a(i, j), b(i, j)) */
typedef void (*wf_grid_fn)(void *dst, const wf_grid_src *a, const wf_grid_src *b, int64_t m,
                           int64_t n);

/* A chain of cheap rows on a value that stays in registers: acc = acc op src. */
typedef enum wf_link_op {
    WF_LINK_ADD,
    WF_LINK_SUB,
    WF_LINK_RSUB, /* src - acc */
    WF_LINK_MUL,
    WF_LINK_DIV,
    WF_LINK_RDIV,   /* src / acc */
    WF_LINK_MAX,    /* f32 */
    WF_LINK_MIN,    /* f32 */
    WF_LINK_SQUARE, /* acc * acc */
    WF_LINK_NEG,
    WF_LINK_STORE /* the tile at src takes acc */
} wf_link_op;

enum { WF_LINKS = 24 };

typedef struct wf_link {
    uint8_t op; /* wf_link_op */
    wf_grid_src src;
} wf_link;

/* dst := first, through count <= WF_LINKS links. dst and stored tiles may be sources that are tiles. */
typedef void (*wf_chain_fn)(void *dst, const wf_grid_src *first, const wf_link *links, int count,
                            int64_t m, int64_t n);

typedef struct wf_grid_kernels {
    wf_chain_fn chain[2]; /* f32, f64 */
    /* f32, f64: ADD SUB MUL DIV in the order of wf_grid_op. */
    wf_grid_fn binary[2][4];
    void (*spread[WF_NWIDTH])(void *dst, const wf_grid_src *src, int64_t m, int64_t n);
} wf_grid_kernels;

extern const wf_grid_kernels wf_grid_kernels_sse2, wf_grid_kernels_avx2, wf_grid_kernels_avx512;

static inline const wf_grid_kernels *wf_grid_kernels_now(void)
{
    const int isa = wf_isa();
    return isa == WF_ISA_AVX512 ? &wf_grid_kernels_avx512
           : isa == WF_ISA_AVX2 ? &wf_grid_kernels_avx2
                                : &wf_grid_kernels_sse2;
}

/* The link of a row that reads the running value as source `side`, or -1. A binary row of one value with
 * itself is only known as MUL: SQUARE. */
int wf_link_of(int op, int side, bool itself);

/* The grid kernel of a row in a compute type, or NULL. */
static inline wf_grid_fn wf_grid_binary(const wf_grid_kernels *k, int op, int compute)
{
    const int i = op == WF_OP_ADD   ? 0
                  : op == WF_OP_SUB ? 1
                  : op == WF_OP_MUL ? 2
                  : op == WF_OP_DIV ? 3
                                    : -1;
    return i < 0 || (compute != WEFT_F32 && compute != WEFT_F64)
               ? NULL
               : k->binary[compute == WEFT_F64][i];
}

#endif
