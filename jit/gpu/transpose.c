/*
 * jit/gpu/transpose.c -- copies between two orders of axes, by tiles through shared memory.
 *
 * A copy that reads and writes neighbours along different axes leaves one side of memory traffic in pieces of one
 * element. Here both sides move rows of 32 elements, or of 64 if they have 1 or 2 bytes: for copies without a cast whose axes come down to rows, columns and a batch.
 */
#include "eager/dense.h"
#include "jit/gpu/impl.h"

enum { LEAST = 16 }; /* a shorter side gains nothing */

typedef struct axis {
    int64_t n, to, from; /* extent, strides of dst and src */
} axis;

/* Axes of more than one index, those that both views walk as one joined; largest step of dst first. */
static int collapse(const wf_view *dst, const wf_view *src, axis ax[WF_MAX_RANK])
{
    axis all[WF_MAX_RANK];
    int n = 0, out = 0;
    for (int i = 0; i < dst->rank; i++) {
        const axis a = {dst->dims[i], dst->strides[i], src->strides[i]};
        int at = n;
        if (a.n == 1)
            continue;
        while (at > 0 && all[at - 1].to < a.to) {
            all[at] = all[at - 1];
            at--;
        }
        all[at] = a;
        n++;
    }
    for (int i = 0; i < n; i++) {
        axis *p = out ? &ax[out - 1] : NULL;
        if (p && p->to == all[i].to * all[i].n && p->from == all[i].from * all[i].n) {
            const int64_t joined = p->n * all[i].n;
            *p = all[i];
            p->n = joined;
        } else {
            ax[out++] = all[i];
        }
    }
    return out;
}

bool wf_gpu_transpose(int ordinal, const wf_view *dst, const wf_view *src, int *status, wf_why *why)
{
    axis ax[WF_MAX_RANK];
    if (dst->dtype != src->dtype)
        return false;
    const int n = collapse(dst, src, ax);
    if (n < 2 || n > 3 || ax[n - 1].to != 1 || ax[n - 1].from == 1)
        return false;
    int other = -1; /* the axis along which src is adjacent */
    for (int i = 0; i < n - 1; i++)
        other = ax[i].from == 1 ? i : other;
    if (other < 0 || ax[other].n < LEAST || ax[n - 1].n < LEAST)
        return false;
    const axis none = {1, 0, 0}, batch = n == 3 ? ax[1 - other] : none;
    const int64_t size = (int64_t)wf_dtype_size(dst->dtype), side = size < 4 ? 64 : 32;
    /* rows of src are the places along dst's adjacent axis */
    const int64_t rows = ax[n - 1].n, cols = ax[other].n;
    const int64_t down = (rows + side - 1) / side, across = (cols + side - 1) / side;
    const int64_t steps = ax[n - 1].from | ax[other].to | batch.from | batch.to;
    const uint64_t places = wf_gpu_word(dst->data) | wf_gpu_word(src->data);
    if (down * across * batch.n >= INT32_MAX)
        return false;
    wf_gpu_hand h = {
        size < 4 ? "transpose_packed" : "transpose", 1, {wf_gpu_bits(dst->dtype)}, .per_block = 1};
    h.work = down * across * batch.n;
    const uint64_t words[] = {wf_gpu_word(dst->data),   wf_gpu_word(src->data),
                              (uint64_t)rows,           (uint64_t)cols,
                              (uint64_t)ax[n - 1].from, (uint64_t)ax[other].to,
                              (uint64_t)batch.from,     (uint64_t)batch.to,
                              (uint64_t)h.work,         steps * size % 4 == 0 && places % 4 == 0};
    memcpy(h.w, words, sizeof words);
    wf_gpu_divisor(h.w + 10, across);
    wf_gpu_divisor(h.w + 13, down);
    *status = wf_gpu_hand_run(ordinal, &h, why);
    return true;
}
