/*
 * eager/cpu/conv_pack.c -- bf16 weights into the layout that a convolution reads, block by block.
 *
 * A block is turned round in the first cache, where all its positions follow each other, and its rows of output
 * channels are copied from there. For two bytes an element, where oneDNN 2.6.3's own reorders
 * take half of a convolution of 512 channels and more; those of four bytes are faster than this.
 */
#include "eager/cpu/conv_pack.h"

#include <string.h>

#include "eager/cpu/transpose.h"

/* Elements of a block with all its positions. */
enum { MAX_BLOCK = 16384 };
/* Rows turned at a time: those of 512 x 3 x 3 weights share four sets of an eight-way cache. */
enum { MAX_ROWS = 16 };

bool wf_conv_blocks_of(const dnnl_md *md, size_t bytes, wf_conv_blocks *b)
{
    dnnl_md_blocked m;
    memcpy(&m, md, sizeof m);
    if (m.kind != DNNL_BLOCKED || m.rank != 4 || m.offset)
        return false;
    for (int i = 0; i < 4; i++)
        if (m.padded[i] != m.dims[i] || m.padded_offsets[i])
            return false;
    const int64_t area = m.dims[2] * m.dims[3];
    if ((size_t)(m.dims[0] * m.dims[1] * area) * sizeof(uint16_t) != bytes)
        return false; /* something lies behind the weights */
    /* input channels outside output channels, then two of them inside; each is optional */
    int at = 0;
    *b = (wf_conv_blocks){.c = 1,
                          .pair = 1,
                          .o_stride = m.strides[0],
                          .c_stride = m.strides[1],
                          .y_stride = m.strides[2],
                          .x_stride = m.strides[3]};
    if (at < m.inner_count && m.inner_axis[at] == 1)
        b->c = m.inner[at++];
    if (at == m.inner_count || m.inner_axis[at] != 0)
        return false;
    b->o = m.inner[at++];
    if (at < m.inner_count && m.inner_axis[at] == 1 && m.inner[at] == 2) {
        b->pair = 2;
        b->c *= m.inner[at++];
    }
    return at == m.inner_count && b->o * b->c * area <= MAX_BLOCK;
}

/* Rows a and b of n elements, one of each in turn. */
static void interleave(int64_t n, const uint16_t *a, const uint16_t *b, uint16_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[2 * i] = a[i];
        out[2 * i + 1] = b[i];
    }
}

/* One filter position of a block: `turned` has a row of output channels for each position of each input channel. */
static void pack_position(const wf_conv_blocks *b, int64_t area, const uint16_t *turned,
                          uint16_t *out)
{
    const int64_t step = area * b->o;
    if (b->pair == 2)
        for (int64_t c = 0; c < b->c; c += 2, turned += 2 * step, out += 2 * b->o)
            interleave(b->o, turned, turned + step, out);
    else
        for (int64_t c = 0; c < b->c; c++, turned += step, out += b->o)
            memcpy(out, turned, (size_t)b->o * sizeof *out);
}

void wf_conv_pack(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
                  int64_t kw, const uint16_t *weight, int64_t o_step, uint16_t *out)
{
    _Alignas(64) uint16_t turned[MAX_BLOCK];
    const int64_t area = kh * kw;
    const int64_t most = MAX_BLOCK / (b->o * b->c * area) * b->c;
    for (int64_t o = o0; o < o1; o += b->o)
        for (int64_t first = 0; first < channels; first += most) {
            const int64_t count = channels - first < most ? channels - first : most;
            for (int64_t r = 0; r < b->o; r += MAX_ROWS)
                wf_transpose_2d(sizeof *out, b->o - r < MAX_ROWS ? b->o - r : MAX_ROWS,
                                count * area, weight + (o + r) * o_step + first * area, o_step,
                                turned + r, b->o);
            uint16_t *block = out + o / b->o * b->o_stride + first / b->c * b->c_stride;
            for (int64_t i = 0; i < area; i++) {
                uint16_t *to = block + i / kw * b->y_stride + i % kw * b->x_stride;
                for (int64_t c = 0; c < count; c += b->c, to += b->c_stride)
                    pack_position(b, area, turned + (c * area + i) * b->o, to);
            }
        }
}
