/*
 * jit/ir/cuda_text.h -- kernels for views of any strides, as CUDA text, and how their arguments lie.
 *
 * Every kernel takes one argument: a struct of 64-bit words (pointers, extents, strides in elements, scalars by
 * their bits), whose layout is a function of the description of the kernel. So a launcher needs no types.
 * The text is common to CUDA C++ and C and includes nothing (docs/cuda-kernels.md).
 */
#ifndef JIT_IR_CUDA_TEXT_H
#define JIT_IR_CUDA_TEXT_H

#include "jit/ir/backend.h"

enum {
    WF_CU_OPS = WF_ROWS_SOURCES + WF_ROWS_DSTS,
    WF_CU_RANK = 16,
    WF_CU_DIVISOR = 3,        /* words of an extent that is divided by: itself, multiplier, shift */
    WF_CU_TILE = 32,          /* columns of a block of an OUTER kernel */
    WF_CU_LANES = 64,         /* of the canonical order */
    WF_CU_SUBTREES = 8,       /* threads that share a column there */
    WF_CU_BLOCK = 4096,       /* of the canonical order */
    WF_CU_BLOCK_THREADS = 512 /* of a block of a BLOCK_ROWS kernel, at most; of others: 256 */
};

/* -- elementwise: MAP kernels over views -----------------------------------------------------------------
 * A thread computes `vector` neighbours along the innermost axis, whose extent is a multiple of it; operands
 * that are adjacent there lie at multiples of their vector's size. Flat: neighbours by the row-major number of the element, from
 * vector to vector whatever the extents are; destinations and most of the sources lie in that order. */
enum { WF_CU_SAME = 3 }; /* in `inner` of a flat kernel: one element for all */
typedef struct wf_cu_map {
    const wf_kernel *k; /* MAP */
    bool index;         /* the body's last parameter is the i64 number of the element, row-major */
    bool wide;          /* some offset needs 64 bits, or there are 2^31 elements */
    int rank, vector;
    int groups; /* of a thread that are loaded before the first of them is stored, a grid apart; 0: one */
    bool flat;
    /* Flat, bits of operands: in the order of the elements, of these such as lie at multiples of their vector's size, all destinations
     * among them; of the others, with no step along axis 0 but along another. With others than these and one element for all
     * there are two axes or more, the innermost of `vector` indices or more. */
    uint64_t dense, whole, still;
    /* of operands, destinations first: step along the innermost axis (0; 1; 2: any), and the lowest operand
     * of the same strides */
    uint8_t inner[WF_CU_OPS], like[WF_CU_OPS];
    /* 0: one run. Else a kernel of many runs, whose argument has so many words */
    int many;
    /* of many runs: 1 + an operand before that has the same address in each of them, or 0 */
    uint8_t alias[WF_CU_OPS];
} wf_cu_map;

/* Flat: [0] vectors, from element [1] on, [2] elements before and behind them, [3] vectors from one of a thread's to its next, [4] indices of
 * axis 0 between the two; the divisors, extents as they are, and what follows as below, but no strides for dense operands.
 * Words of one run: [0] groups of `vector` elements; WF_CU_DIVISOR for axes 1 .. rank - 1 (the last: extent / vector); for each
 * operand its address and, if it is the lowest of its strides, these, the innermost one only where it is neither 0 nor 1;
 * scalars. Many runs: [0] pieces of work, of WF_CU_PIECE groups, [1] runs; wf_cu_map_sets sets of scalars; then an entry for each
 * run: its first piece and, 32 bits up, its set; and the words above but for scalars. Operands and entries are numbered from the
 * entry's first word. */
enum { WF_CU_PIECE = 2048, WF_CU_MANY_HEAD = 2, WF_CU_FLAT_HEAD = 5 };
/* The extent of an axis from 1 on; behind the last of them the operands. */
int wf_cu_map_divisor(const wf_cu_map *m, int d);
int wf_cu_map_words(const wf_cu_map *m);
int wf_cu_map_operand(const wf_cu_map *m, int op);
/* Of set 0, where there are sets. */
int wf_cu_map_scalar(const wf_cu_map *m, int s);
/* Strides of an operand that stand behind its address, outermost first. */
int wf_cu_map_strides(const wf_cu_map *m, int op);
int wf_cu_map_sets(const wf_cu_map *m);
/* The first entry, words of one, and the entries that the argument has room for. */
int wf_cu_map_first(const wf_cu_map *m);
int wf_cu_map_entry(const wf_cu_map *m);
int wf_cu_map_entries(const wf_cu_map *m);
int wf_cu_render_map(const wf_cu_map *m, wf_text *out, wf_why *why);

/* -- programs with reductions: ROW kernels ----------------------------------------------------------------- */
typedef enum wf_cu_scheme {
    WF_CU_WARP, /* `width` threads a row of at most 4096 elements; width divides 32, and is 32 for n > 32 */
    WF_CU_BLOCK_ROWS,  /* a block a row of at most 2^24; threads are 64 .. 512, a power of two */
    WF_CU_OUTER,       /* 32 rows side by side, 8 threads each, at most 4096 elements */
    WF_CU_SPLIT,       /* a kernel a step: a warp a block of 4096 elements */
    WF_CU_SPLIT_OUTER, /* the same with 32 rows side by side */
    WF_CU_COLUMN       /* rows side by side of at most 64 elements, a thread each */
} wf_cu_scheme;

typedef struct wf_cu_rows {
    const wf_kernel *k; /* ROW */
    wf_cu_scheme scheme;
    bool wide;
    bool shared; /* kept values lie in dynamic shared memory (WARP, BLOCK_ROWS) */
    int nk, nr;  /* kept and reduced axes, each at least 1 */
    /* 0: one run. SPLIT of many runs that reduce everything, nk 0: words of the argument */
    int many;
    /* Columns of a thread, 0 for 1: SPLIT_OUTER whose stages over elements have totals only, and read words with as many
     * elements in them, what all columns have one of (`alike`, a bit for each source), no kept values, and of rows slots only */
    int across;
    uint32_t alike;
    /* Along rows: 0 or 1: a thread has every 32nd element. Else so many neighbours of every 64, a power of two up to 8, and WARP's
     * width is 64 / vector. Only with one reduced axis and n >= 64 */
    int vector;
    bool
        shift; /* rows begin at any element, and not at multiples of `vector`; or of `across`, with one kept and one reduced axis */
    /* Bits of operands, destinations first: adjacent along the reduced axis; of these, those that are loaded and stored as vectors,
     * whose rows begin at equal addresses modulo a vector */
    uint64_t near, whole;
    /* WARP, `shared`: bits of sources of vectors that are copied to shared memory when they are first read; later stages read them there */
    uint32_t copied;
    /* WARP of vectors, 0 or how many elements a thread has of a row at most, a multiple of `vector`: what is read and what is kept of them
     * stays in registers, so each source is read once. Neither `shared` nor `copied` */
    int resident;
    bool
        full; /* every thread has that many: 64 / vector times `resident` is n, and rows begin at vectors */
} wf_cu_rows;
/* Do rows stand side by side, so that neighbouring threads have neighbouring rows? */
static inline bool wf_cu_is_beside(wf_cu_scheme s)
{
    return s == WF_CU_OUTER || s == WF_CU_SPLIT_OUTER || s == WF_CU_COLUMN;
}
/* Threads that share a row, or a block of the order. */
static inline int wf_cu_row_threads(const wf_cu_rows *r)
{
    return r->vector > 1 ? 64 / r->vector : 32;
}
/* From a row's kept values to the next one's, in elements. */
static inline int64_t wf_cu_pitch(const wf_cu_rows *r, int64_t n)
{
    return r->vector > 1 ? (n + (r->shift ? 2 : 1) * (r->vector - 1)) / r->vector * r->vector : n;
}

/* Word numbers. */
typedef struct wf_cu_layout {
    /* width: threads a row of WARP; blocks of 4096 of a row of SPLIT; binary logarithm of the lanes of COLUMN that may have one */
    int rows, n, width;
    int kept, reduced; /* WF_CU_DIVISOR words for each axis */
    int error, errors; /* address of the first check's error word; of the others' */
    int keep;   /* addresses of scratch for kept values, or bytes of shared memory before each */
    int copied; /* bytes of shared memory before each source that is copied */
    int slots,
        parts; /* SPLIT: [slot][row] cells of 8 bytes; [total][row][block] values, SPLIT_OUTER's [total][block][subtree][row], 8 bytes each */
    int scalar, op; /* op: 1 + nk + nr words each: address, strides of kept axes, of reduced ones */
    int words;
    /* Many runs: `rows` of them; width: blocks of all; entries of `entry` words from `first` on: first block, n, the words of reduced
     * axes but the outermost, those of operands. `reduced` and `op` are numbered from an entry's first word. */
    int first, entry;
} wf_cu_layout;
void wf_cu_rows_layout(const wf_cu_rows *r, wf_cu_layout *l);

/* Steps of SPLIT: maximal runs of single stages and element stages by turns; kernel i is <name>_<i>. */
enum { WF_CU_STEPS = 72 };
typedef struct wf_cu_step {
    int begin, end; /* stages */
    bool elements;
} wf_cu_step;
int wf_cu_steps(const wf_kernel *k, wf_cu_step steps[WF_CU_STEPS]);
/* Totals of the whole kernel; cells of SPLIT's slots. */
int wf_cu_totals(const wf_kernel *k);
/* Bytes of what is kept of an element; of what an element takes that stays in registers: that, and sources of elements, each once. */
int wf_cu_kept_bytes(const wf_kernel *k);
int wf_cu_resident_bytes(const wf_kernel *k);
int wf_cu_cells(const wf_kernel *k);
/* One kernel <k->name>, or one a step. */
int wf_cu_render_rows(const wf_cu_rows *r, wf_text *out, wf_why *why);

/* -- kernels written by hand -------------------------------------------------------------------------------------
 * A section of jit/codegen_cuda/kernels.cuh or attention.cuh for element types. The argument has WF_CU_HAND_WORDS words,
 * or WF_CU_MANY_WORDS where the section says so. */
enum { WF_CU_HAND_WORDS = 64, WF_CU_MANY_WORDS = 512, WF_CU_HAND_TYPES = 3 };
typedef struct wf_cu_hand {
    const char *section;
    int n;
    uint8_t dtype[WF_CU_HAND_TYPES];
    int wide; /* what WF_WIDE says: columns of 64 of attention's operands, what kind of kernel scan and arg are */
} wf_cu_hand;
int wf_cu_render_hand(const wf_cu_hand *h, const char *name, wf_text *out, wf_why *why);

/* The generator's version: part of the identity of what is kept on disk. */
const char *wf_cu_generator(void);
/* Where libnvrtc is: a file; NULL: the usual places. Before the first compile. */
void wf_cu_set_library(const char *file);
/* A folder of a toolkit to look in first. */
void wf_cu_set_toolkit(const char *folder);
const char *wf_cu_log(void);
/* Tests: gets each log whole, however long (wf_cu_log has its beginning). NULL: nobody. */
void wf_cu_set_log(void (*take)(const char *text));

#endif
