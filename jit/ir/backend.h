/*
 * jit/ir/backend.h -- a kernel as both back ends see it, and what a back end is.
 *
 * A kernel is kernel IR for one element under one of a few skeletons. Sizes and scalars are arguments:
 * one kernel serves every extent. The stages are separable: render is pure text, compile needs the
 * compiler's library, load and launch need the device. A library that is missing is a capability, not
 * an error: available() says why.
 *
 * Invariants
 *  - Operands are contiguous; bit i of bcast makes source i one element.
 *  - body reads elements as they lie in memory (wf_kir_load is part of it) and, for MAP, returns elements
 *    to be stored. So no back end knows half types, and every store rounds once.
 *  - Sums run in the canonical order (docs/reductions.md) whatever the vector width or the device.
 */
#ifndef JIT_IR_BACKEND_H
#define JIT_IR_BACKEND_H

#include "jit/ir/kir.h"

/* What stands around the body; sizes are the int64 arguments in order. */
typedef enum wf_skeleton {
    WF_SK_MAP,       /* n: dst[i] := body(src[i], ...) */
    WF_SK_SUM_INNER, /* rows, n: dst[r] := post(sum over i of body(src[r * n + i], ...)) */
    WF_SK_SUM_OUTER, /* cols, n: dst[c] := post(sum over i of body(src[i * cols + c], ...)) */
    WF_SK_PERMUTE,   /* rank 4, d0..d3, s0..s3: dst[i] := body(src[i0 * s0 + ... + i3 * s3]) */
    WF_SK_GATHER, /* m, width, rows: dst[i * width + j] := body(src[index[i] * width + j]); the i64
                        index and an i64 error word follow the sources. The word starts at -1 and
                        becomes the least i whose index is outside [0, rows) */
    WF_SK_SCATTER, /* rows, width, m: dst[r * width + j] := post(0 + body(src[i * width + j]) + ... over
                        the i with index[i] == r, in order) */
    WF_SK_MATMUL, /* m, n, k: dst[i * n + j] := post(canonical sum over l of
                        body(a[i * k + l], b[l * n + j])) */
    WF_SK_ROW /* n, then a row stride for each destination and source: the stages of `rows`, row by row.
                 Buffers of n elements for kept values and an i64 error word follow the sources */
} wf_skeleton;

enum { WF_KERNEL_MAX_PTR = 80, WF_KERNEL_MAX_SIZE = 80 };

/* -- kernels over rows -----------------------------------------------------------------------------
 * Stages run one after the other on each row. ONCE and ROW stages compute single values, ELEM stages every
 * element of the row; PICK reads one element. Values that pass between stages are slots (single ones) or
 * are kept in buffers (one per element). The ports of a body say where its parameters come from and its
 * outputs go; `at` is the number there. */
typedef enum wf_stage_kind { WF_ST_ONCE, WF_ST_ROW, WF_ST_PICK, WF_ST_ELEM } wf_stage_kind;
typedef enum wf_port_kind {
    WF_PORT_SOURCE, /* in: an operand's element (of the row, or the row's own) */
    WF_PORT_SCALAR, /* in */
    WF_PORT_INDEX,  /* in: i64 number of the element in its row */
    WF_PORT_SLOT,   /* in, out */
    WF_PORT_KEEP,   /* in, out */
    WF_PORT_DST,    /* out */
    WF_PORT_TOTAL,  /* out of ELEM: the slot gets the reduction by `op` of the elements */
    WF_PORT_CHECK /* out: bool; the error word becomes 0 if some is false. On a device: i64, -1 if all
                     * is well; `at`-th error word */
} wf_port_kind;

typedef struct wf_port {
    uint8_t kind;
    uint8_t op; /* wf_kprim of a total: ADD MUL MAX MIN BOR BAND */
    int16_t at;
    bool small; /* in: elements are NaN or from 0 to 1 */
} wf_port;

typedef struct wf_stage {
    wf_stage_kind kind;
    wf_kir body; /* PICK: none; in[0] is the source, in[1] the slot of the index */
    wf_port in[WF_KIR_MAX_PARAM], out[WF_KIR_MAX_OUT];
} wf_stage;

enum {
    WF_ROWS_SLOTS = 352,
    WF_ROWS_KEEPS = 16,
    WF_ROWS_SOURCES = 32,
    WF_ROWS_SCALARS = 64,
    WF_ROWS_DSTS = 24
};

typedef struct wf_rows_kernel {
    int nstage, cap, ndst, nkeep;
    int ncheck; /* error words, on a device */
    wf_stage *stage;
    uint32_t row_src, row_dst; /* bits: operands of one element a row */
    uint8_t src_type[WF_ROWS_SOURCES], dst_type[WF_ROWS_DSTS],
        keep_type[WF_ROWS_KEEPS]; /* wf_kty */
    uint8_t slot_type[WF_ROWS_SLOTS], scalar_type[WF_ROWS_SCALARS];
    int16_t last_read[WF_ROWS_SOURCES]; /* stage, -1: none */
    int16_t stored[WF_ROWS_DSTS];
    /* CPU: the one ELEM stage, if blocks of 4096 elements of a row may run on their own (WF_LAUNCH_PARTS), else -1; what
     * it reduces, in the order of its outputs */
    int cut, ntotal;
    uint8_t total_op[WF_KIR_MAX_OUT], total_type[WF_KIR_MAX_OUT]; /* wf_kprim, wf_kty */
} wf_rows_kernel;

typedef struct wf_kernel {
    wf_skeleton skeleton;
    char name[64];  /* a C identifier */
    int nsrc;       /* sources the body reads */
    int nscalar;    /* parameters of body after the sources: the same value for every element */
    unsigned bcast; /* MAP and sums */
    uint32_t
        drawn; /* on a device: sources without memory; the body's parameter is the element's i64 number,
                     * which is the operand's offset */
    wf_kir body;
    wf_kir fast;          /* n > 0: body of ordinary elements, right where its `rare` is false */
    wf_kir post;          /* sums, SCATTER, MATMUL: the total as an element of dst */
    wf_rows_kernel *rows; /* ROW; body, fast and post are empty */
} wf_kernel;

/* Empty programs, no scalars, nothing broadcast. */
void wf_kernel_init(wf_kernel *k, wf_skeleton skeleton, int nsrc);
void wf_kernel_free(wf_kernel *k);
/* Holds a kernel to its rules, its programs included (kir_verify.c). 0, or a status with why. */
int wf_kernel_verify(const wf_kernel *k, wf_why *why);
int wf_kernel_ndst(const wf_kernel *k);
int wf_kernel_nsize(const wf_kernel *k);
/* Pointer arguments: destinations, sources, and what the skeleton adds (index, error). */
int wf_kernel_nptr(const wf_kernel *k);
wf_kty wf_kernel_ptr_type(const wf_kernel *k, int i);
/* Widest type of the body in bits, for the choice of a vector width. */
unsigned wf_kernel_bits(const wf_kernel *k);

/* One elementwise row, or its vjp when which >= 0, over elements of the dtypes; a rare branch where the
 * row has one. Returns 0 or a status with *why. */
int wf_kernel_of_row(wf_kernel *k, wf_op op, int which, int compute, int nsrc,
                     const uint8_t *src_dtype, int dst_dtype, wf_why *why);
/* Sum of one source of src_dtype, in f32, f64 or i64 as docs/reductions.md has it. */
int wf_kernel_of_sum(wf_kernel *k, wf_skeleton skeleton, int src_dtype, int dst_dtype, wf_why *why);
/* Copying skeletons (PERMUTE, GATHER, SCATTER) and MATMUL. */
int wf_kernel_of_move(wf_kernel *k, wf_skeleton skeleton, int dtype, wf_why *why);

/* What to generate code for. */
typedef struct wf_target {
    const char *
        arch; /* CPU: "host", "x86-64-v3", "x86-64", "host/0" (quickly made: tests of bits); CUDA: "sm_90" */
    int width;     /* CPU: vector lanes, 1 to 64, a power of two; 0: chosen from the body */
    bool contract; /* CUDA: products and sums may become one fma */
} wf_target;

typedef struct wf_blob {
    void *data;
    size_t size;
} wf_blob;
void wf_blob_free(wf_blob *b);

typedef struct wf_exe wf_exe;

/* Elements (MAP, PERMUTE), rows (SUM_INNER, GATHER, SCATTER, MATMUL) or columns (SUM_OUTER) [begin, end)
 * of the result. scalar: bits, low end. */
/* CPU, MAP and ROW: results go past the caches; dst[begin], or every row of a destination, is 64-byte aligned. */
#define WF_LAUNCH_STREAM 1u
/* CPU, ROW with a cut. One more pointer behind the error word, and one more size behind the strides: total t of row r is
 * at pointer + t * size bytes, element r (a bool in a byte). PARTS: the launch's rows are blocks of at most 4096
 * elements; stages up to the cut run, and totals are stored. TOTALS: all stages but the cut run, with totals from
 * there; n is 0. */
#define WF_LAUNCH_PARTS 2u
#define WF_LAUNCH_TOTALS 4u

typedef struct wf_launch {
    void *const *ptr;
    const int64_t *size;
    const uint64_t *scalar;
    int64_t begin, end;
    uint64_t flags; /* WF_LAUNCH_* */
} wf_launch;

typedef struct wf_backend {
    const char *name;
    /* 0, or WEFT_EUNSUPPORTED with the reason. Opens the library at the first call. */
    int (*available)(wf_why *why);
    /* What a binary depends on besides the kernel, as text: generator, compiler, machine. NULL: not known. */
    int (*identify)(const wf_target *target, wf_text *out, wf_why *why);
    int (*render)(const wf_kernel *k, const wf_target *target, wf_text *out, wf_why *why);
    int (*compile)(const wf_target *target, const wf_text *text, wf_blob *out, wf_why *why);
    /* What compile makes of it, to be read. NULL where a back end cannot. */
    int (*assemble)(const wf_target *target, const wf_text *text, wf_text *out, wf_why *why);
    /* NULL where this build cannot: no device. */
    int (*load)(const wf_blob *binary, const char *name, wf_exe **out, wf_why *why);
    int (*launch)(const wf_exe *e, const wf_launch *l);
    void (*unload)(wf_exe *e);
    /* Where the code of a loaded kernel lies, for profilers; gdb is told of kernels loaded from now on. NULL
     * where a back end cannot. */
    void (*locate)(const wf_exe *e, const void **code, size_t *size);
    void (*debug)(void);
} wf_backend;

/* jit/codegen_cpu and jit/codegen_cuda. */
extern const wf_backend wf_backend_cpu, wf_backend_cuda;

#endif
