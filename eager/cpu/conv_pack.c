/*
 * eager/cpu/conv_pack.c -- weights into the layout that a convolution reads, gradients out of it, block by block.
 *
 * Blocks with output channels innermost are turned round in the first cache, where all their positions follow each other,
 * and rows of output channels are copied from or to there. Those with input channels innermost, for the gradient of the
 * image, are turned as they are read, a pair of output channels after the other. Into blocks for two bytes an element,
 * where oneDNN 2.6.3's own reorders take half of a convolution of 512 channels and more; those of four bytes are faster
 * than this. Out of blocks its reorders write less than 5 GB/s.
 */
#include "eager/cpu/conv_pack.h"

#include <emmintrin.h>
#include <string.h>

#include "eager/cpu/transpose.h"
#include "eager/kernels/kernels.h"
#include "jit/ir/dtype.h"

/* Elements of a block with all its positions, those of partial sums that are added at once, and those of a gradient that
 * are turned at once where a block has fewer. */
enum { MAX_BLOCK = 16384, MAX_SUM = 256, TURNED = 4096 };
/* Rows turned at a time: those of 512 x 3 x 3 weights share four sets of an eight-way cache. */
enum { MAX_ROWS = 16 };

/* Pairs of elements of one block of input channels with all its positions. */
enum { MAX_TURNED = 1024 };

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
    int at = 0;
    *b = (wf_conv_blocks){.c = 1,
                          .pair = 1,
                          .o_stride = m.strides[0],
                          .c_stride = m.strides[1],
                          .y_stride = m.strides[2],
                          .x_stride = m.strides[3]};
    if (m.inner_count == 3 && m.inner_axis[0] == 0 && m.inner_axis[1] == 1 &&
        m.inner_axis[2] == 0 && m.inner[2] == 2) {
        b->by_c = true;
        b->pair = 2;
        b->o = 2 * m.inner[0];
        b->c = m.inner[1];
        return b->c % 8 == 0 && b->c * area <= MAX_TURNED &&
               m.strides[2] == m.dims[3] * m.strides[3];
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

static void pack_by_o(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
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

/* in[c][area] to rows of out, `step` apart. Columns one after another: lines of `out` may share a set of the cache. */
static void turn(int64_t c, int64_t area, const uint32_t *in, uint32_t *out, int64_t step)
{
    int64_t j = 0;
    for (; j + 4 <= area; j += 4)
        for (int64_t i = 0; i < c; i += 4) {
            const uint32_t *from = in + i * area + j;
            uint32_t *to = out + j * step + i;
            const __m128i x = _mm_loadu_si128((const void *)from),
                          y = _mm_loadu_si128((const void *)(from + area)),
                          z = _mm_loadu_si128((const void *)(from + 2 * area)),
                          w = _mm_loadu_si128((const void *)(from + 3 * area));
            const __m128i xy = _mm_unpacklo_epi32(x, y), zw = _mm_unpacklo_epi32(z, w);
            const __m128i xy_hi = _mm_unpackhi_epi32(x, y), zw_hi = _mm_unpackhi_epi32(z, w);
            _mm_storeu_si128((void *)to, _mm_unpacklo_epi64(xy, zw));
            _mm_storeu_si128((void *)(to + step), _mm_unpackhi_epi64(xy, zw));
            _mm_storeu_si128((void *)(to + 2 * step), _mm_unpacklo_epi64(xy_hi, zw_hi));
            _mm_storeu_si128((void *)(to + 3 * step), _mm_unpackhi_epi64(xy_hi, zw_hi));
        }
    for (; j < area; j++)
        for (int64_t i = 0; i < c; i += 4) {
            const uint32_t *from = in + i * area + j;
            const __m128i four = _mm_set_epi32((int)from[3 * area], (int)from[2 * area],
                                               (int)from[area], (int)from[0]);
            _mm_storeu_si128((void *)(out + j * step + i), four);
        }
}

/* Elements of a and b in turn. */
static void put_in_pairs(int64_t n, const uint16_t *a, const uint16_t *b, uint32_t *out)
{
    for (int64_t i = 0; i < n; i += 8) {
        const __m128i x = _mm_loadu_si128((const void *)(a + i)),
                      y = _mm_loadu_si128((const void *)(b + i));
        _mm_store_si128((void *)(out + i), _mm_unpacklo_epi16(x, y));
        _mm_store_si128((void *)(out + i + 4), _mm_unpackhi_epi16(x, y));
    }
}

static void ask_for(const uint16_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64 / (int64_t)sizeof *p)
        _mm_prefetch(p + i, _MM_HINT_T0);
}

/* Block by block: hardware fetches ahead in `out`, and the next block's rows are asked for, which lie pages apart. */
static void pack_by_c(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels,
                      int64_t area, const uint16_t *weight, int64_t o_step, uint16_t *out)
{
    _Alignas(64) uint32_t pairs[MAX_TURNED];
    const int64_t count = b->c * area;
    for (int64_t o = o0; o < o1; o += b->o)
        for (int64_t c = 0; c < channels; c += b->c) {
            const uint16_t *from = weight + o * o_step + c * area, *next = from + count;
            if (c + b->c >= channels)
                next = o + b->o < o1 ? weight + (o + b->o) * o_step : NULL;
            uint16_t *to = out + o / b->o * b->o_stride + c / b->c * b->c_stride;
            for (int64_t r = 0; r < b->o; r += 2, to += 2 * b->c) {
                for (int64_t k = r; k < r + 2 && next; k++)
                    ask_for(next + k * o_step, count);
                put_in_pairs(count, from + r * o_step, from + (r + 1) * o_step, pairs);
                turn(b->c, area, pairs, (uint32_t *)(void *)to, b->x_stride / 2);
            }
        }
}

void wf_conv_pack(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
                  int64_t kw, const uint16_t *weight, int64_t o_step, uint16_t *out)
{
    if (b->by_c)
        pack_by_c(b, o0, o1, channels, kh * kw, weight, o_step, out);
    else
        pack_by_o(b, o0, o1, channels, kh, kw, weight, o_step, out);
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

void wf_conv_unpack(const wf_conv_blocks *b, int64_t o0, int64_t o1, int64_t channels, int64_t kh,
                    int64_t kw, const wf_conv_partials *p, int dtype, void *weight, int64_t o_step)
{
    _Alignas(64) float sum[MAX_BLOCK], lines[MAX_BLOCK];
    _Alignas(64) uint16_t rounded[MAX_BLOCK];
    const wf_kernels *kernels = wf_kernels_now();
    const int64_t area = kh * kw, of_block = b->o * b->c * area, step = area * b->o;
    const int64_t most = (of_block < TURNED ? TURNED / of_block : 1) * b->c;
    const size_t size = wf_dtype_size(dtype);
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
                    const float *line = from + i / kw * b->y_stride + i % kw * b->x_stride;
                    for (int64_t k = 0; k < b->c; k++, line += b->o)
                        memcpy(lines + ((c + k) * area + i) * b->o, line,
                               (size_t)b->o * sizeof *line);
                }
            const void *turned = lines;
            if (dtype == WEFT_BF16) {
                kernels->cast[WEFT_BF16][WEFT_F32](rounded, lines, (size_t)(count * step));
                turned = rounded;
            }
            kernels->pack[wf_width(dtype)](
                (char *)weight + (size_t)(o * o_step + first * area) * size, o_step, turned, 1,
                b->o, (size_t)b->o, (size_t)(count * area));
        }
}

bool wf_conv_unpacks(const wf_conv_blocks *b, int64_t channels, int64_t kh, int64_t kw)
{
    const int64_t of_block = b->o * b->c * kh * kw, all = b->o * channels * kh * kw;
    return b->pair == 1 && !b->by_c &&
           (b->c_stride == of_block || (b->o_stride == all && all <= TURNED));
}
