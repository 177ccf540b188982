/*
 * eager/program_space.c -- the iteration space of a program's run: kept and reduced axes of every
 * operand, collapsed where strides allow, and strips of operands in and out of contiguous tiles.
 */
#include <string.h>

#include "eager/pool.h"
#include "eager/program_run.h"
#include "eager/reduce.h"

/* Appends an axis, merged into the one before where every operand steps through both as through one. */
static void add_axis(wf_space *s, int nop, bool kept, int64_t dim, const int64_t *strides)
{
    int *n = kept ? &s->nk : &s->nr;
    int64_t *dims = kept ? s->kd : s->rd;
    bool joins = *n > 0;
    if (dim == 1)
        return;
    for (int k = 0; k < nop && joins; k++) {
        const int64_t *old = kept ? s->op[k].ks : s->op[k].rs;
        joins = old[*n - 1] == strides[k] * dim;
    }
    if (joins)
        dims[*n - 1] *= dim;
    else
        dims[(*n)++] = dim;
    for (int k = 0; k < nop; k++)
        (kept ? s->op[k].ks : s->op[k].rs)[*n - 1] = strides[k];
}

/* The one stride of an operand through n axes, if there is one. */
static bool one_stride(int n, const int64_t *dims, const int64_t *strides, int64_t *stride)
{
    *stride = n > 0 ? strides[n - 1] : 0;
    for (int i = 0; i + 1 < n; i++)
        if (strides[i] != strides[i + 1] * dims[i + 1])
            return false;
    return true;
}

void wf_space_init(wf_space *s, const wf_program *p, const wf_program_args *a)
{
    const int nop = p->noutput + p->ninput;
    const wf_view *v0 = &a->dst[0];
    int64_t strides[WF_WALK_OPS];
    s->nk = s->nr = 0;
    s->rows = s->n = 1;
    for (int i = 0; i < v0->rank; i++) {
        const bool kept = (a->axes >> i & 1) == 0;
        for (int k = 0; k < nop; k++)
            strides[k] = (k < p->noutput ? a->dst[k] : a->src[k - p->noutput]).strides[i];
        *(kept ? &s->rows : &s->n) *= v0->dims[i];
        add_axis(s, nop, kept, v0->dims[i], strides);
    }
    for (int k = 0; k < nop; k++) {
        const wf_view *v = k < p->noutput ? &a->dst[k] : &a->src[k - p->noutput];
        wf_operand *o = &s->op[k];
        o->data = v->data;
        o->dtype = v->dtype;
        o->esize = (int64_t)wf_dtype_size(v->dtype);
        o->one_row = one_stride(s->nk, s->kd, o->ks, &o->row);
        o->one_col = one_stride(s->nr, s->rd, o->rs, &o->col);
    }
}

static int64_t locate(int64_t i, int n, const int64_t *dims, const int64_t *strides)
{
    int64_t offset = 0, unused = 0;
    wf_red_locate(i, n, dims, strides, strides, &offset, &unused);
    return offset;
}

static int64_t row_offset(const wf_space *s, const wf_operand *o, int64_t r)
{
    return o->one_row ? r * o->row : locate(r, s->nk, s->kd, o->ks);
}

static int64_t col_offset(const wf_space *s, const wf_operand *o, int64_t c)
{
    return o->one_col ? c * o->col : locate(c, s->nr, s->rd, o->rs);
}

bool wf_space_pays_in_blocks(const wf_space *s)
{
    enum { ROWS_A_THREAD = 4, LEAST_BLOCKS = 4 };
    const int64_t threads = wf_num_threads();
    return threads > 1 && s->n > (LEAST_BLOCKS - 1) * WF_BLOCK &&
           s->rows < ROWS_A_THREAD * threads && s->rows % threads != 0;
}

int64_t wf_space_offset(const wf_space *s, const wf_operand *o, int64_t r, int64_t c)
{
    return row_offset(s, o, r) + col_offset(s, o, c);
}

typedef void (*piece_fn)(const wf_operand *o, const wf_kernels *k, char *tile, int64_t ld,
                         int64_t offset, int64_t s1, int64_t s0, int64_t m, int64_t n);

static void load_piece(const wf_operand *o, const wf_kernels *k, char *tile, int64_t ld,
                       int64_t offset, int64_t s1, int64_t s0, int64_t m, int64_t n)
{
    const char *from = o->data + offset * o->esize;
    if (s0 == 0 && n > 1) {
        for (int64_t i = 0; i < m; i++)
            wf_fill_tile(tile + i * ld * o->esize, from + i * s1 * o->esize, (size_t)o->esize,
                         (size_t)n);
    } else if (s0 == 1) {
        for (int64_t i = 0; i < m; i++)
            memcpy(tile + i * ld * o->esize, from + i * s1 * o->esize, (size_t)(n * o->esize));
    } else {
        k->pack[wf_width(o->dtype)](tile, ld, from, s1, s0, (size_t)m, (size_t)n);
    }
}

static void store_piece(const wf_operand *o, const wf_kernels *k, char *tile, int64_t ld,
                        int64_t offset, int64_t s1, int64_t s0, int64_t m, int64_t n)
{
    (void)ld; /* stores have more than one row only where the tile's rows are adjacent */
    k->unpack[wf_width(o->dtype)](o->data + offset * o->esize, s1, s0, tile, (size_t)m, (size_t)n);
}

/* Cuts a strip into pieces of two strides. */
static void walk(const wf_space *s, const wf_operand *o, const wf_kernels *k, char *tile, int64_t r,
                 int64_t rows, int64_t c, int64_t cols, piece_fn fn)
{
    if (o->one_col && (o->one_row || rows == 1)) {
        fn(o, k, tile, cols, wf_space_offset(s, o, r, c), o->row, o->col, rows, cols);
        return;
    }
    const int64_t inner = s->nr > 0 ? s->rd[s->nr - 1] : 1;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t base = row_offset(s, o, r + i);
        for (int64_t j = 0; j < cols;) {
            const int64_t in = o->one_col ? 0 : (c + j) % inner;
            const int64_t m = o->one_col || inner - in > cols - j ? cols - j : inner - in;
            fn(o, k, tile + (i * cols + j) * o->esize, m, base + col_offset(s, o, c + j), 0,
               o->one_col ? o->col : o->rs[s->nr - 1], 1, m);
            j += m;
        }
    }
}

/* The same for a turned strip: along kept indices there is one stride. */
static void walk_turned(const wf_space *s, const wf_operand *o, const wf_kernels *k, char *tile,
                        int64_t r, int64_t rows, int64_t c, int64_t cols, piece_fn fn)
{
    const int64_t base = row_offset(s, o, r);
    if (o->one_col) {
        fn(o, k, tile, rows, base + c * o->col, o->col, o->row, cols, rows);
        return;
    }
    for (int64_t j = 0; j < cols; j++)
        fn(o, k, tile + j * rows * o->esize, rows, base + col_offset(s, o, c + j), 0, o->row, 1,
           rows);
}

void wf_space_load(const wf_space *s, const wf_operand *o, const wf_kernels *k, void *dst,
                   int64_t r, int64_t rows, int64_t c, int64_t cols, bool turned)
{
    (turned ? walk_turned : walk)(s, o, k, dst, r, rows, c, cols, load_piece);
}

void wf_space_store(const wf_space *s, const wf_operand *o, const wf_kernels *k, const void *src,
                    int64_t r, int64_t rows, int64_t c, int64_t cols, bool turned)
{
    (turned ? walk_turned : walk)(s, o, k, (char *)(uintptr_t)src, r, rows, c, cols, store_piece);
}

/* An element of `size` bytes as often as a word holds it. */
static uint64_t repeated(const void *one, size_t size)
{
    switch (size) {
    case 1:
        return *(const uint8_t *)one * UINT64_C(0x0101010101010101);
    case 2:
        return *(const uint16_t *)one * UINT64_C(0x0001000100010001);
    case 4:
        return *(const uint32_t *)one * UINT64_C(0x0000000100000001);
    default:
        return *(const uint64_t *)one;
    }
}

/* By 16 bytes, which every x86-64 stores at once: a loop over elements stays one over elements. */
void wf_fill_tile(void *dst, const void *one, size_t size, size_t n)
{
    typedef uint64_t words __attribute__((vector_size(16), aligned(1), may_alias));
    const uint64_t v = repeated(one, size);
    const words w = {v, v}, last[] = {w, w, w, w};
    char *p = dst;
    size_t left = size * n;
    for (; left >= sizeof last; left -= sizeof last, p += sizeof last) {
        *(words *)p = w;
        *(words *)(p + sizeof w) = w;
        *(words *)(p + 2 * sizeof w) = w;
        *(words *)(p + 3 * sizeof w) = w;
    }
    memcpy(p, last, left);
}
