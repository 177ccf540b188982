/*
 * jit/gpu/transpose.c -- copies between two orders of axes, by tiles through shared memory.
 *
 * A copy that reads and writes neighbours along different axes leaves one side of memory traffic in pieces of one
 * element. Here both sides move runs of 128 to 512 bytes: for copies without a cast whose axes come down to rows, columns and a batch.
 *
 * Rows of src that begin at odd places share sectors of 32 bytes with the tile beside, which finds them in the second cache if its
 * turn comes soon: tiles are taken across strips of some 4 KiB, and down these, by blocks in the order in which the
 * device starts them. Of rows of dst that do no two tiles have a sector: such a tile lies a sector's elements deep
 * in the one above it, and the kernel ends each row of dst where a sector does.
 */
#include "eager/dense.h"
#include "jit/gpu/impl.h"

enum {
    LEAST = 16,  /* a shorter side gains nothing */
    LOWEST = 32, /* rows of a tile */
    RUN = 512,   /* bytes of a row of dst in a tile, if its words are enough */
    SECTOR = 32, /* bytes that memory has as one */
    ROWS =
        1024, /* rows of 32 words in a tile, times the bytes of a word: a thread has a word of each eighth */
    STRIP = 32, /* parts that are taken across before those below */
    USUAL = 1,  /* what the kernel is told of the operands: see there */
    SECTORS = 2,
    WORDS = 4
};

typedef struct tiling {
    int64_t height, step, parts, across, strip, strips, down, tiles;
} tiling;

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

static int64_t over(int64_t x, int64_t y)
{
    return (x + y - 1) / y;
}

/* Tiles of `height` rows and `parts` parts of `part` columns each, `step` rows apart. */
static void count_tiles(tiling *t, int64_t rows, int64_t cols, int64_t part, int64_t batch)
{
    t->down = over(rows, t->step);
    t->across = over(cols, t->parts * part);
    t->strips = over(t->across, over(STRIP, t->parts));
    t->strip = over(t->across, t->strips);
    t->tiles = t->strip * t->strips * t->down * batch;
}

/* Long runs of dst, but as many columns as there are; smaller tiles where `enough` would not come out of it. */
static tiling choose_tiles(int64_t rows, int64_t cols, int64_t part, int64_t size, int64_t batch,
                           int64_t enough)
{
    const int64_t most = ROWS / (size < 4 ? 4 : size);
    tiling t = {.height = LOWEST};
    while (t.height < rows && t.height < most &&
           (t.height * size < RUN || most / t.height / 2 * part >= cols))
        t.height *= 2;
    t.step = t.height;
    t.parts = most / t.height;
    count_tiles(&t, rows, cols, part, batch);
    while (t.tiles < enough && t.height * t.parts > LOWEST) {
        *(t.parts > 1 ? &t.parts : &t.height) /= 2;
        t.step = t.height;
        count_tiles(&t, rows, cols, part, batch);
    }
    return t;
}

/* Of the shape for which the kernel has a way without tests: whole, with rows of dst as long as they should be. */
static bool is_usual(const tiling *t, int64_t size)
{
    return t->height == (size == 1 ? RUN / 2 : RUN / size) &&
           t->height * t->parts == ROWS / (size < 4 ? 4 : size);
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
    /* rows of src are the places along dst's adjacent axis */
    const int64_t size = (int64_t)wf_dtype_size(dst->dtype), word = size < 4 ? 4 : size;
    const int64_t rows = ax[n - 1].n, cols = ax[other].n;
    const int64_t down_step = ax[n - 1].from * size, batch_step = batch.from * size;
    const uint64_t low = wf_gpu_word(src->data) | (uint64_t)down_step | (uint64_t)batch_step;
    const int64_t part = (32 * word - (low % (uint64_t)word ? word : 0)) / size;
    tiling t = choose_tiles(rows, cols, part, size, batch.n, 4 * wf_gpu_processors(ordinal));
    const int64_t to_step = ax[other].to * size, to_batch = batch.to * size;
    const uint64_t steps = (uint64_t)to_step | (uint64_t)to_batch;
    const bool usual = is_usual(&t, size), sectors = (wf_gpu_word(dst->data) | steps) % SECTOR == 0;
    if (!sectors && t.down > 1 && t.height * size >= RUN / 2) {
        t.step -= SECTOR / size;
        count_tiles(&t, rows, cols, part, batch.n);
    }
    const uint64_t holds = (usual ? USUAL : 0) | (sectors ? SECTORS : 0) |
                           (low % (uint64_t)word == 0 && steps % (uint64_t)(32 * word) == 0 &&
                                    cols % (word / size) == 0
                                ? WORDS
                                : 0);
    if (t.tiles >= INT32_MAX)
        return false;
    wf_gpu_hand h = {.section = "transpose",
                     .ntype = 2,
                     .type = {wf_gpu_bits_of(size), wf_gpu_bits_of(word)},
                     .alone = true,
                     .work = t.tiles};
    const uint64_t words[] = {wf_gpu_word(dst->data),
                              wf_gpu_word(src->data),
                              (uint64_t)rows,
                              (uint64_t)cols,
                              (uint64_t)down_step,
                              (uint64_t)to_step,
                              (uint64_t)batch_step,
                              (uint64_t)to_batch,
                              (uint64_t)__builtin_ctzll((uint64_t)t.height),
                              (uint64_t)t.parts,
                              (uint64_t)part,
                              (uint64_t)t.across};
    memcpy(h.w, words, sizeof words);
    wf_gpu_divisor(h.w + 12, t.strip);
    wf_gpu_divisor(h.w + 15, t.down);
    wf_gpu_divisor(h.w + 18, t.strips);
    h.w[21] = (uint64_t)t.step;
    h.w[22] = holds;
    *status = wf_gpu_hand_run(ordinal, &h, why);
    return true;
}
