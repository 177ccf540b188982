/*
 * eager/cpu/conv_pack.h -- weights of convolutions between [o][c][ky][kx] and blocks of output by input channels.
 */
#ifndef EAGER_CPU_CONV_PACK_H
#define EAGER_CPU_CONV_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "eager/cpu/dnnl_api.h"

/* Where blocks of `o` output and `c` input channels lie: strides in elements from block to block and from filter
 * position to filter position; inside, `pair` input channels of one output channel beside each other, then output
 * channels, then input channels. `by_c`: the same with input and output channels changed over. */
typedef struct wf_conv_blocks {
    int64_t o, c, pair;
    bool by_c;
    int64_t o_stride, c_stride, x_stride;
} wf_conv_blocks;

/* Reads the layout of dense weights of ungrouped channels, `bytes` in all with `size` an element; false for one of
 * another form. */
bool wf_conv_blocks_of(const dnnl_md *md, size_t size, size_t bytes, wf_conv_blocks *b);

/* Whether wf_conv_pack takes the layout, with elements of `size` bytes, at the level in use. */
bool wf_conv_packs(const wf_conv_blocks *b, size_t size);

/* Output channels [0, o), a multiple of b->o, of weights with `area` positions and `channels` input channels, a multiple of
 * b->c; `o_step` elements from one output channel to the next, of `size` bytes. */
void wf_conv_pack(const wf_conv_blocks *b, size_t size, int64_t o, int64_t channels, int64_t area,
                  const void *weight, int64_t o_step, void *out);

enum { WF_CONV_SIDE = 16 };
/* Rows to be turned round, sixteen at a time: elements of four bytes or pairs of two. All distances are in bytes. */
typedef struct wf_conv_turned {
    int64_t times, in_step, out_step; /* sixteens of rows */
    const void *in;
    int64_t row;        /* from row to row */
    int64_t runs, area; /* runs of each row, elements of each run */
    int64_t second;     /* 0, or from the first half of a pair to the other one */
    int64_t ahead;      /* from what is read to what is asked for meanwhile */
    void *out;          /* a line of each element of the row */
    int64_t x;          /* from line to line of a run */
    int64_t run, per_block,
        block; /* from run to run inside blocks, of so many, and from block to block */
} wf_conv_turned;
void wf_conv_turn(const wf_conv_turned *t);

/* Partial sums of a gradient, in blocks of f32. */
typedef struct wf_conv_partials {
    const float *first;
    int64_t step;  /* floats from one to the next */
    int64_t count; /* 1 to WF_CONV_PARTIALS */
} wf_conv_partials;
enum { WF_CONV_PARTIALS = 8 };

/* Whether wf_conv_unpack takes the layout. */
bool wf_conv_unpacks(const wf_conv_blocks *b, int64_t channels, int64_t kh, int64_t kw);

/* The way back: output channels [o0, o1) of the sum, added as a tree of neighbours, rounded to dtype (f32 or bf16) once.
 * false: bf16, and an element is not finite. */
bool wf_conv_unpack(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
                    int64_t kw, const wf_conv_partials *p, int dtype, void *weight, int64_t o_step);

/* Whether one of n elements of a float type, from the first on in steps, is a NaN, or (infinite) an infinity: most of the cost
 * of a look (conv_padding.c), rows are taken as vectors. */
bool wf_conv_has_nan(const void *p, int dtype, int64_t first, int64_t step, int64_t n,
                     bool infinite);

#endif
