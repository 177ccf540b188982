/*
 * jit/gpu/impl.h -- what the files of jit/gpu share: the cache of kernels, launching, temporary memory.
 */
#ifndef JIT_GPU_IMPL_H
#define JIT_GPU_IMPL_H

#include "eager/cuda/runtime.h"
#include "eager/draw.h"
#include "jit/gpu/gpu.h"
#include "jit/ir/cuda_text.h"

/* -- kernels (cache.c) -------------------------------------------------------------------------------------
 * An entry is found by the bytes of its key: a program, or the name of a hand-written family. It owns its
 * variants (an architecture's code for some shape class), found by their bytes. Entries and variants live as
 * long as the process. */
typedef struct wf_gpu_variant wf_gpu_variant;
typedef struct wf_gpu_entry {
    struct wf_gpu_entry *chain;
    uint64_t hash;
    char *key;
    size_t nkey;
    wf_kernel kernel; /* lowered program; its name ends in the hash. Hand-written: only the name */
    bool contract;    /* of a program with `fast` */
    wf_gpu_variant *variants;
} wf_gpu_entry;

enum { WF_GPU_VARIANT = 160, WF_GPU_FUNCTIONS = WF_CU_STEPS };
struct wf_gpu_variant {
    wf_gpu_variant *next;
    int ordinal, n;
    bool pending;
    int status; /* of making it */
    char reason[200];
    unsigned char bytes[WF_GPU_VARIANT];
    wf_cuda_module *module;
    int nfn;
    wf_cuda_fn *fn[WF_GPU_FUNCTIONS];
};

/* The entry of a program, lowered on the first call; NULL with why filled. */
const wf_gpu_entry *wf_gpu_entry_of(const wf_program *p, wf_why *why);
/* The entry of a name; build (NULL: nothing to build) makes its kernel on the first call. */
typedef int (*wf_gpu_build)(wf_kernel *k, const void *arg, wf_why *why);
const wf_gpu_entry *wf_gpu_entry_named(const char *name, wf_gpu_build build, const void *arg,
                                       wf_why *why);

/* Renders a variant; functions: names of the kernels in order, n of them, into names. */
typedef struct wf_gpu_recipe {
    int (*render)(const void *arg, const wf_gpu_entry *e, wf_text *out, wf_why *why);
    const void *arg;
    size_t size;   /* of arg, where `later` copies it */
    bool later;    /* do not wait for the compiler: the variant may be pending */
    int functions; /* 0: one kernel, <name>; else <name>_0 ... */
} wf_gpu_recipe;
/* Ready to launch, or NULL with why filled; its code is WF_GPU_PENDING if a thread is making it. */
enum { WF_GPU_PENDING = -1 };
const wf_gpu_variant *wf_gpu_variant_of(int ordinal, const wf_gpu_entry *e, const void *bytes,
                                        int n, const wf_gpu_recipe *recipe, wf_why *why);

/* Its kernels cannot be launched: from now on they count as not made, for the reason in why. */
void wf_gpu_refuse(const wf_gpu_variant *v, const wf_why *why);

/* -- launching (launch.c) ------------------------------------------------------------------------------------ */
enum { WF_GPU_WORDS = 1024, WF_GPU_MOST_WORDS = 4095, WF_GPU_THREADS = 256 };
typedef struct wf_gpu_launch {
    const wf_gpu_variant *v;
    int function;
    int64_t blocks; /* wanted; kernels stride over the rest */
    unsigned threads, shared;
    uint64_t *words; /* the argument */
} wf_gpu_launch;
int wf_gpu_start(int ordinal, const wf_gpu_launch *l, wf_why *why);
/* The status of a later part of a program: operands may be overwritten, so another way would read what is new. */
int wf_gpu_too_late(int status);
/* At least 1. */
int64_t wf_gpu_processors(int ordinal);
/* The type that moves elements of that many bytes, or of a type, whatever they mean. */
int wf_gpu_bits_of(int64_t size);
int wf_gpu_bits(int dtype);
/* Blocks that fill the device, or fewer if there is no work for them. */
int64_t wf_gpu_blocks(int ordinal, int64_t work, int64_t per_block);
/* Words that the arguments of a launch can have: 4096 bytes before driver 12.1. */
int wf_gpu_most_words(int ordinal);
/* Words of an argument for many runs, whose entries stand from `first` on: the smallest of a few sizes that holds so many, or
 * the largest the device takes; 0: not even two fit. */
int wf_gpu_many_words(int ordinal, int first, int entry, int runs);
/* What is known of a run among many, in done; 0: it is to run alone. FILLED: its words stand in a launch to be queued. */
enum { WF_GPU_QUEUED = 1, WF_GPU_FILLED };
/* The launch was queued, or was not. */
void wf_gpu_settle(uint8_t *done, int n, int status);
/* The status of a launch of many, or 0 with why empty where its runs can run alone; *pending: WF_GPU_PENDING if that was it. */
int wf_gpu_or_alone(int status, int *pending, wf_why *why);
/* An address as a word; an extent with its multiplier and shift. */
uint64_t wf_gpu_word(const void *address);
void wf_gpu_divisor(uint64_t w[WF_CU_DIVISOR], int64_t extent);
/* Does the view reach more than 2^31 elements from its first? */
bool wf_gpu_is_far(const wf_view *v);

/* -- programs that rows spell out (known.c) --------------------------------------------------------------------- */
typedef bool wf_gpu_write(wf_program *p,
                          const void *arg); /* behind wf_program_init; false: there is none */
/* Who writes it, and all else that it depends on. */
typedef struct wf_gpu_spelling {
    wf_gpu_write *write;
    uint8_t what[16];
} wf_gpu_spelling;
/* The program, written once and kept; or *own, where there are too many of them. NULL: it could not be written. */
const wf_program *wf_gpu_spelled(const wf_gpu_spelling *k, const void *arg, wf_program *own);

/* -- launches that are known (known.c) ------------------------------------------------------------------------- */
enum {
    WF_GPU_KNOWN_OPS = 12,
    WF_GPU_KNOWN_WORDS = 96,
    WF_GPU_KNOWN_STEPS = 6,
    WF_GPU_KNOWN_TEMPS = 4
};
enum { WF_GPU_NOWHERE = 255 };
typedef struct wf_gpu_known {
    const wf_gpu_variant *v;
    int nlaunch, ntemp, nwords;
    int scalar; /* word of the first */
    unsigned threads, shared;
    int64_t blocks[WF_GPU_KNOWN_STEPS]; /* of launch i, which is of function i */
    struct {
        int word;
        size_t bytes;
    } temp[WF_GPU_KNOWN_TEMPS];
    uint8_t at
        [WF_GPU_KNOWN_OPS]; /* words of addresses, destinations first; NOWHERE: another operand's */
    uint64_t words[WF_GPU_KNOWN_WORDS];
} wf_gpu_known;
/* Queues the run if one like it was remembered, *status; false: nothing was queued. */
bool wf_gpu_run_known(int ordinal, const wf_program *p, const wf_program_args *a, int *status,
                      wf_why *why);
/* The run was launched like that. */
void wf_gpu_remember(int ordinal, const wf_program *p, const wf_program_args *a,
                     const wf_gpu_known *known);

/* -- programs ------------------------------------------------------------------------------------------------ */
/* `later`: WF_GPU_PENDING, with nothing queued, if the kernel is not ready. */
int wf_gpu_map_program(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                       wf_why *why);
/* Queues those of n runs on memory of their own that can share launches, and says so in done (n zeros). What is left is to run
 * alone; WF_GPU_PENDING: some of it because kernels are not ready. why is not NULL. */
int wf_gpu_map_many(int ordinal, const wf_program *p, int n, const wf_program_args *a, bool later,
                    uint8_t *done, wf_why *why);
/* The same of programs with reductions: of runs that reduce everything. */
int wf_gpu_rows_many(int ordinal, const wf_program *p, int n, const wf_program_args *a, bool later,
                     uint8_t *done, wf_why *why);
int wf_gpu_rows_program(int ordinal, const wf_program *p, const wf_program_args *a, bool later,
                        wf_why *why);
/* How a program with reductions would be launched on these operands, whose memory is not touched: scheme, blocks and threads
 * (of steps over elements where there are steps), whether kept values are in shared memory. */
typedef struct wf_gpu_way {
    wf_cu_scheme scheme;
    int64_t blocks;
    unsigned threads;
    bool shared;
} wf_gpu_way;
int wf_gpu_rows_way(int ordinal, const wf_program *p, const wf_program_args *a, wf_gpu_way *way,
                    wf_why *why);
/* The same of elementwise programs: neighbours of a thread, groups of them it loads at once, in all and from one to its next. */
typedef struct wf_gpu_map_way {
    bool flat, wide;
    int vector, groups;
    int64_t vectors, step, blocks;
} wf_gpu_map_way;
int wf_gpu_map_way_of(int ordinal, const wf_program *p, const wf_program_args *a,
                      wf_gpu_map_way *way, wf_why *why);
int wf_gpu_program_now(int ordinal, const wf_program *p, const wf_program_args *a, wf_why *why);
/* Instruction by instruction (singles.c): more than one op, and none that checks. */
bool wf_gpu_can_single(const wf_program *p);
int wf_gpu_run_singles(int ordinal, const wf_program *p, const wf_program_args *a, wf_why *why);
void wf_gpu_count_single(void);
/* fn(arg) on a thread that compiles; false: there is none. How many there are at most. */
bool wf_gpu_later(void (*fn)(void *arg), void *arg);
int wf_gpu_later_threads(void);

/* Elements of a random row, in order, into a contiguous dst. */
int wf_gpu_draw(int ordinal, const wf_draw *d, const wf_view *dst, wf_why *why);
/* Runs an elementwise kernel whose last parameter is the number of the element (cuda_text.h) over a contiguous dst. */
int wf_gpu_number_kernel(int ordinal, const wf_gpu_entry *e, const wf_view *dst,
                         const uint64_t *scalars, wf_why *why);

/* -- kernels written by hand (hand.c) ----------------------------------------------------------------------- */
typedef struct wf_gpu_hand {
    const char *section;
    int ntype;
    int type[WF_CU_HAND_TYPES];
    int wide;                /* WF_WIDE of a section that has it */
    unsigned threads;        /* of a block; 0: WF_GPU_THREADS */
    unsigned shared;         /* dynamic shared memory */
    int64_t work, per_block; /* per_block 0: a thread each */
    bool alone;              /* a block has one piece of work: as many blocks as there are */
    uint64_t *many;          /* WF_CU_MANY_WORDS instead of w, or NULL */
    uint64_t w[WF_CU_HAND_WORDS];
} wf_gpu_hand;
int wf_gpu_hand_run(int ordinal, wf_gpu_hand *h, wf_why *why);

/* A copy by tiles, if it is one between two orders of axes (transpose.c); *status then. */
bool wf_gpu_transpose(int ordinal, const wf_view *dst, const wf_view *src, int *status,
                      wf_why *why);

/* -- temporaries ----------------------------------------------------------------------------------------------
 * Freed in stream order: freeing right after the launch is right. */
typedef struct wf_gpu_temps {
    int ordinal, n;
    wf_cuda_block *block[64];
} wf_gpu_temps;
/* An address, or NULL with why filled. */
void *wf_gpu_temp(wf_gpu_temps *t, size_t nbytes, wf_why *why);
void wf_gpu_drop(wf_gpu_temps *t);
/* v's elements row-major in dtype dt: v itself, or a copy in a temporary. */
int wf_gpu_dense(wf_gpu_temps *t, const wf_view *v, int dt, wf_view *out, wf_why *why);
/* The same always in new memory, uninitialised. */
int wf_gpu_temp_view(wf_gpu_temps *t, int dt, int rank, const int64_t *dims, wf_view *out,
                     wf_why *why);

/* -- rows (row_*.c): 0, or a status; WEFT_EUNSUPPORTED with why empty: not for these operands --------------------- */
int wf_gpu_row_move(int ordinal, wf_exec *e);
int wf_gpu_row_index(int ordinal, wf_exec *e);
int wf_gpu_row_create(int ordinal, wf_exec *e);
int wf_gpu_row_product(int ordinal, wf_exec *e);
int wf_gpu_row_conv(int ordinal, wf_exec *e);
int wf_gpu_row_attention(int ordinal, wf_exec *e);
/* The same by cuDNN (row_attention_dnn.c), and without scores in memory (row_flash.c). */
int wf_gpu_row_attention_dnn(int ordinal, wf_exec *e);
int wf_gpu_row_flash(int ordinal, wf_exec *e);
/* v with the batch axes of dims, stride 0 where it has none or one of 1; its last two axes as they are. */
wf_view wf_gpu_over_batch(const wf_view *v, int rank, const int64_t *dims);
int wf_gpu_row_norm(int ordinal, wf_exec *e);
int wf_gpu_row_norm_bwd(int ordinal, wf_exec *e);
int wf_gpu_row_loss(int ordinal, wf_exec *e);
int wf_gpu_row_order(int ordinal, wf_exec *e);
int wf_gpu_row_pool(int ordinal, wf_exec *e);

/* Sorts lines of i64 keys, upwards; equal ones keep their order. at: where they stood. Two buffers each, *now: which of
 * them has the result. */
int wf_gpu_sort_keys(int ordinal, wf_view key[2], wf_view at[2], int *now, wf_why *why);
/* c = round(a b + bias): views of rank 2 or more, batch axes (leading) of equal extents, stride 0 where broadcast. */
int wf_gpu_gemm(int ordinal, const wf_view *c, const wf_view *a, const wf_view *b,
                const wf_view *bias, wf_why *why);

#endif
