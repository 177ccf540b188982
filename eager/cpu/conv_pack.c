/*
 * eager/cpu/conv_pack.c -- weights into the layout that a convolution reads, gradients out of it, block by block.
 *
 * Weights are turned round sixteen rows at a time by the kernel of AVX-512 (eager/kernels/conv_turn.c), in one pass over
 * whole lines: rows are output channels where these are innermost, and input channels where those are. At other levels, and
 * for blocks of other sizes, it is for oneDNN's own reorders, which 2.6.3 runs at 8 GB/s. Out of blocks these write less
 * than 5 GB/s.
 */
#include "eager/cpu/conv_pack.h"

#include <string.h>

#include "eager/cpuid.h"
#include "eager/kernels/kernels.h"
#include "jit/ir/dtype.h"

/* Elements of a block with all its positions, those of partial sums that are added at once, and those of a gradient that
 * are turned at once where a block has fewer. */
enum { MAX_BLOCK = 16384, MAX_SUM = 256, TURNED = 4096 };
/* Bytes that are asked for ahead in each of sixteen rows. */
enum { AHEAD = 256 };

bool wf_conv_blocks_of(const dnnl_md *md, size_t size, size_t bytes, wf_conv_blocks *b)
{
    dnnl_md_blocked m;
    memcpy(&m, md, sizeof m);
    if (m.kind != DNNL_BLOCKED || m.rank != 4 || m.offset)
        return false;
    for (int i = 0; i < 4; i++)
        if (m.padded[i] != m.dims[i] || m.padded_offsets[i])
            return false;
    const int64_t area = m.dims[2] * m.dims[3];
    if ((size_t)(m.dims[0] * m.dims[1] * area) * size != bytes)
        return false; /* something lies behind the weights */
    if (m.strides[2] != m.dims[3] * m.strides[3])
        return false;
    int at = 0;
    *b = (wf_conv_blocks){.c = 1,
                          .pair = 1,
                          .o_stride = m.strides[0],
                          .c_stride = m.strides[1],
                          .x_stride = m.strides[3]};
    if (m.inner_count >= 2 && m.inner_axis[0] == 0 && m.inner_axis[1] == 1 && m.inner[1] > 2) {
        b->by_c = true;
        b->pair = m.inner_count > 2 ? m.inner[2] : 1;
        b->o = m.inner[0] * b->pair;
        b->c = m.inner[1];
        return m.inner_count == 2 || (m.inner_count == 3 && m.inner_axis[2] == 0 && b->pair == 2);
    }
    /* input channels outside output channels, then two of them inside; each is optional */
    if (at < m.inner_count && m.inner_axis[at] == 1)
        b->c = m.inner[at++];
    if (at == m.inner_count || m.inner_axis[at] != 0)
        return false;
    b->o = m.inner[at++];
    if (at < m.inner_count && m.inner_axis[at] == 1 && m.inner[at] == 2) {
        b->pair = 2;
        b->c *= m.inner[at++];
    }
    return at == m.inner_count;
}

bool wf_conv_packs(const wf_conv_blocks *b, size_t size)
{
    return wf_isa() == WF_ISA_AVX512 && b->pair * (int64_t)size == 4 &&
           (b->by_c ? b->c == WF_CONV_SIDE : b->o % WF_CONV_SIDE == 0);
}

void wf_conv_pack(const wf_conv_blocks *b, size_t size, int64_t o, int64_t channels, int64_t area,
                  const void *weight, int64_t o_step, void *out)
{
    const int64_t bytes = (int64_t)size, line = WF_CONV_SIDE, step = bytes * o_step;
    const int64_t lines = b->by_c ? b->pair : b->o;
    wf_conv_turned t = {.times = b->by_c ? channels / b->c : b->o / line,
                        .in_step = line * (b->by_c ? bytes * area : step),
                        .out_step = b->by_c ? bytes * b->c_stride : 4 * line,
                        .row = b->by_c ? bytes * area : step,
                        .runs = b->by_c ? 1 : channels / b->pair,
                        .area = area,
                        .second = b->pair == 1 ? 0
                                  : b->by_c    ? step
                                               : bytes * area,
                        .ahead = b->by_c ? b->pair * step : AHEAD,
                        .x = bytes * b->x_stride,
                        .run = 4 * b->o,
                        .per_block = b->c / b->pair,
                        .block = bytes * b->c_stride};
    for (int64_t i = 0; i < o; i += lines) {
        t.in = (const char *)weight + i * step;
        t.out = (char *)out + bytes * (i / b->o * b->o_stride + i % b->o * b->c);
        wf_conv_turn(&t);
    }
}

/* out[x] := the sum of p at offset + x for x < n. */
static void add(const wf_conv_partials *p, int64_t offset, int64_t n, float *out)
{
    float sums[WF_CONV_PARTIALS / 2][MAX_SUM];
    for (int64_t x0 = 0; x0 < n; x0 += MAX_SUM) {
        const int64_t m = n - x0 < MAX_SUM ? n - x0 : MAX_SUM;
        const float *from = p->first + offset + x0;
        for (int64_t i = 0; i < p->count; i += 2, from += 2 * p->step) {
            float *to = p->count > 2 ? sums[i / 2] : out + x0;
            if (i + 1 == p->count)
                memcpy(to, from, (size_t)m * sizeof *from);
            else
                for (int64_t x = 0; x < m; x++)
                    to[x] = from[x] + from[x + p->step];
        }
        const int64_t pairs = (p->count + 1) / 2;
        for (int64_t gap = 1; gap < pairs; gap *= 2)
            for (int64_t i = 0; i + gap < pairs; i += 2 * gap) {
                float *to = 2 * gap < pairs ? sums[i] : out + x0;
                for (int64_t x = 0; x < m; x++)
                    to[x] = sums[i][x] + sums[i + gap][x];
            }
    }
}

bool wf_conv_unpack(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
                    int64_t kw, const wf_conv_partials *p, int dtype, void *weight, int64_t o_step)
{
    _Alignas(64) float sum[MAX_BLOCK], lines[MAX_BLOCK];
    _Alignas(64) uint16_t rounded[MAX_BLOCK];
    const wf_kernels *kernels = wf_kernels_now();
    const int64_t area = kh * kw, of_block = b->o * b->c * area, step = area * b->o;
    const int64_t most = (of_block < TURNED ? TURNED / of_block : 1) * b->c;
    const size_t size = wf_dtype_size(dtype);
    bool finite = true;
    for (int64_t o = o0; o < o1; o += b->o)
        for (int64_t first = 0; first < channels; first += most) {
            const int64_t count = channels - first < most ? channels - first : most;
            const int64_t at = o / b->o * b->o_stride + first / b->c * b->c_stride;
            const float *from = p->first + at;
            if (p->count > 1) {
                add(p, at, count * step, sum);
                from = sum;
            }
            for (int64_t c = 0; c < count; c += b->c, from += b->c_stride)
                for (int64_t i = 0; i < area; i++) {
                    const float *line = from + i * b->x_stride;
                    for (int64_t k = 0; k < b->c; k++, line += b->o)
                        memcpy(lines + ((c + k) * area + i) * b->o, line,
                               (size_t)b->o * sizeof *line);
                }
            const void *turned = lines;
            if (dtype == WEFT_BF16) {
                kernels->cast[WEFT_BF16][WEFT_F32](rounded, lines, (size_t)(count * step));
                finite = kernels->finite(rounded, (size_t)(count * step)) && finite;
                turned = rounded;
            }
            kernels->pack[wf_width(dtype)](
                (char *)weight + (size_t)(o * o_step + first * area) * size, o_step, turned, 1,
                b->o, (size_t)b->o, (size_t)(count * area));
        }
    return finite;
}

bool wf_conv_unpacks(const wf_conv_blocks *b, int64_t channels, int64_t kh, int64_t kw)
{
    const int64_t of_block = b->o * b->c * kh * kw, all = b->o * channels * kh * kw;
    return b->pair == 1 && !b->by_c && of_block <= MAX_BLOCK &&
           (b->c_stride == of_block || (b->o_stride == all && all <= TURNED));
}

static inline int16_t larger_half(int16_t all, uint16_t v)
{
    const int16_t size = (int16_t)(v & 0x7FFF);
    return size > all ? size : all;
}

bool wf_conv_has_nan(const void *p, int dtype, int64_t first, int64_t step, int64_t n,
                     bool infinite)
{
    enum { AT_ONCE = 16 };
    bool found = false;
    int64_t k = 0;
#define LOOK(type, wide, larger)                                                                   \
    {                                                                                              \
        const type *x = (const type *)p + first;                                                   \
        for (; step == 1 && k + AT_ONCE <= n; k += AT_ONCE, x += AT_ONCE) {                        \
            wide all = 0;                                                                          \
            for (int i = 0; i < AT_ONCE; i++)                                                      \
                all = larger(all, x[i]);                                                           \
            found |= all > limit;                                                                  \
        }                                                                                          \
        for (; k < n; k++, x += step)                                                              \
            found |= larger(0, *x) > limit;                                                        \
    }
#define ANY(all, v) ((all) | ((v)*times != (v)*times))
    const float times = infinite ? 0 : 1; /* an infinity times 0 is a NaN */
    const int half = (dtype == WEFT_BF16 ? 0x7F80 : 0x7C00) - infinite;
    const int limit = wf_dtype_size(dtype) == 2 ? half : 0;
    if (dtype == WEFT_F64)
        LOOK(double, int64_t, ANY)
    else if (dtype == WEFT_F32)
        LOOK(float, int32_t, ANY)
    else
        LOOK(uint16_t, int16_t, larger_half)
#undef ANY
#undef LOOK
    return found;
}
