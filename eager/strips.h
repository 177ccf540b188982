/*
 * eager/strips.h -- elementwise rows and copies of few elements, whatever their strides, without a walk.
 *
 * A caller says of each axis, the last one first, how far the sources step along it; two axes have to stand for all.
 */
#ifndef EAGER_STRIPS_H
#define EAGER_STRIPS_H

#include "eager/kernels/kernels.h"
#include "eager/view.h"

enum {
    WF_STRIPS_MOST = 8192, /* elements of a result that is computed so, of narrow types more */
    WF_STRIPS_SRC = WF_VJP_MAX + 2
};

typedef struct wf_strips_src {
    const char *data;
    int64_t row, col; /* steps along the two axes, in elements */
    uint8_t from,
        to; /* element type, and the one that fn reads; to DEFAULT (never the first): it is not read */
} wf_strips_src;

typedef struct wf_strips {
    int64_t rows, cols; /* of the result, which is row-major */
    char *dst;
    wf_map_fn fn;    /* NULL: a copy of the one source */
    uint8_t to, out; /* element type, and the one that fn writes */
    uint8_t nsrc, axes;
    int64_t most; /* elements */
    wf_strips_src src[WF_STRIPS_SRC];
} wf_strips;

/* Without axes: sources, types and dst are to be filled in. width: the largest of the elements (wf_width). */
static inline void wf_strips_open(wf_strips *s, int nsrc, int width)
{
    s->most = WF_STRIPS_MOST << (width < 2 ? 2 - width : 0);
    s->rows = s->cols = 1;
    s->nsrc = (uint8_t)nsrc;
    s->axes = 0;
    for (int k = 0; k < nsrc; k++) {
        s->src[k].row = s->src[k].col = 0;
    }
}

/* An axis of n elements before those that there are. False: three are needed. */
static inline bool wf_strips_axis(wf_strips *s, int64_t n, const int64_t *step)
{
    bool joins = s->axes > 0;
    if (n == 1) {
        return true;
    }
    if (s->axes < 2) {
        for (int k = 0; k < s->nsrc && joins; k++) {
            joins = step[k] == s->src[k].col * s->cols;
        }
        if (s->axes == 0 || joins) {
            for (int k = 0; k < s->nsrc && !joins; k++) {
                s->src[k].col = step[k];
            }
            s->cols *= n;
            s->axes = 1;
            return true;
        }
    }
    for (int k = 0; k < s->nsrc && joins; k++) {
        joins = step[k] == s->src[k].row * s->rows;
    }
    if (s->axes == 2 && !joins) {
        return false;
    }
    for (int k = 0; k < s->nsrc && s->axes == 1; k++) {
        s->src[k].row = step[k];
    }
    s->rows *= n;
    s->axes = 2;
    return true;
}

/* The axes of dst and of src, one for each source, views of equal dims. False: dst is not row-major, has no elements or
 * too many, or needs more axes. */
bool wf_strips_of(wf_strips *s, const wf_view *dst, const wf_view *src);
void wf_strips_run(const wf_strips *s);
/* Of one source, whose axes are there: a copy of src, of type `from`, to dst. */
void wf_strips_copy(wf_strips *s, int to, void *dst, int from, const void *src);

/* Values of type `from` are values of type `to` as they lie in memory. (DEFAULT: nobody reads them; the first source, which
 * is always read, lends its address.) */
static inline bool wf_same_bits(int from, int to)
{
    return from == to || to == WEFT_DTYPE_DEFAULT || (from == WEFT_BOOL && to == WEFT_U8);
}

#endif
