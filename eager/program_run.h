/*
 * eager/program_run.h -- what the files that run programs share; see program.h.
 */
#ifndef EAGER_PROGRAM_RUN_H
#define EAGER_PROGRAM_RUN_H

#include "eager/kernels/kernels.h"
#include "eager/kernels/program.h"
#include "eager/map.h"
#include "eager/program.h"

/* The kernel of an instruction: cast for casts, map for rows and vjps, NULL for others. */
typedef union wf_inst_fn {
    wf_map_fn map;
    wf_cast_fn cast;
} wf_inst_fn;
wf_inst_fn wf_inst_function(const wf_program *p, const wf_inst *inst, const wf_kernels *k);

/* A heavy row: tens of operations where a cheap one has one. */
static inline bool wf_is_heavy(wf_op op)
{
    return wf_rows[op].ulp > 0;
}

/* What an instruction takes beside others, about: what it asks for ahead is as large a part of WF_ASK_WHOLE. */
enum { WF_ASK_WHOLE = 1 << 16 };
static inline int wf_inst_weight(const wf_inst *inst)
{
    const bool row = inst->kind == WF_INST_MAP || inst->kind == WF_INST_VJP;
    return row && wf_is_heavy((wf_op)inst->op) ? 16 : 1;
}

/* Heavy rows go by pieces where memory is asked for meanwhile: a processor has room for some twenty requests, and waits with the
 * next, though there is much to compute. */
enum { WF_PIECE = 256 };

/* Piece q of a row on tiles of n elements. */
static inline void wf_inst_piece(const wf_program *p, const wf_inst *inst, wf_map_fn fn, char *out,
                                 const void *const *src, size_t n, unsigned bcast, int q)
{
    const size_t first = (size_t)q * WF_PIECE, left = n - first;
    const void *at[5];
    for (int k = 0; k < inst->nsrc; k++) {
        const bool moves = (bcast >> k & 1) == 0 && inst->src[k] >= 0;
        at[k] = (const char *)src[k] + (moves ? first * wf_dtype_size(p->type[inst->src[k]]) : 0);
    }
    fn(out + first * wf_dtype_size(p->type[inst->value]), at, left < WF_PIECE ? left : WF_PIECE,
       bcast);
}

/* -- chains (eager/kernels/program.h) ------------------------------------------------------------------------ */
/* Can the instruction be a link at all? */
static inline bool wf_inst_is_link(const wf_inst *inst)
{
    const int op = inst->kind == WF_INST_MAP ? wf_link_of(inst->op, 0, false) : -1;
    return op >= 0 && (inst->compute == WEFT_F32 ||
                       (inst->compute == WEFT_F64 && op != WF_LINK_MAX && op != WF_LINK_MIN));
}

/* The link that `inst` is behind the one that defines value v, or -1; *other: which of its sources is not v,
 * or -1. */
static inline int wf_inst_link_behind(const wf_inst *inst, int v, int *other)
{
    const int side = inst->src[0] == v ? 0 : inst->nsrc == 2 && inst->src[1] == v ? 1 : -1;
    if (side < 0 || !wf_inst_is_link(inst))
        return -1;
    const bool itself = inst->nsrc == 2 && inst->src[0] == inst->src[1];
    *other = itself || inst->nsrc == 1 ? -1 : 1 - side;
    return wf_link_of(inst->op, side, itself);
}

/* The link of instruction i + 1, which reads what i defines, or -1; *other: its other value, or -1. */
static inline int wf_program_link_behind(const wf_program *p, int i, int *other)
{
    const wf_inst *inst = &p->inst[i + 1];
    const int op = inst->compute == p->inst[i].compute
                       ? wf_inst_link_behind(inst, p->inst[i].value, other)
                       : -1;
    *other = op >= 0 && *other >= 0 ? inst->src[*other] : -1;
    return op;
}

/* -- programs without ROW values (program_map.c) ------------------------------------------------------------- */
enum { WF_MAP_REGISTERS = 32 << 10, WF_MAP_LEAST = 64 }; /* bytes of register tiles; least tile */

typedef struct wf_map_run {
    const wf_program *p;
    const wf_kernels *k;
    const wf_grid_kernels *grid;
    const void *const *scalars;
    int64_t tile, grain;              /* elements of a tile, and such as are worth a chunk */
    int64_t pitch;                    /* bytes of a register */
    uint32_t ahead;                   /* inputs of which the tile behind lies behind in memory */
    int16_t direct[WF_PROGRAM_INSTS]; /* output that an instruction writes straight away, or -1 */
    wf_inst_fn fn[WF_PROGRAM_INSTS];
    int ask[WF_PROGRAM_INSTS + 1]; /* where its part of what a tile asks for begins */
} wf_map_run;

void wf_map_run_init(wf_map_run *r, const wf_program *p);
/* At the operands of a run. */
void wf_map_run_aim(wf_map_run *r, const wf_program_args *a);
/* A wf_tile_fn; arg: the run. */
void wf_map_run_tile(const void *arg, void *const *dst, const void *const *src, size_t n,
                     unsigned bcast);
/* The same, and asks for the tiles behind, a part in front of each instruction. */
void wf_map_run_tile_ahead(const void *arg, void *const *dst, const void *const *src, size_t n,
                           unsigned bcast);

/* wf_program_run_on for a program with ROW values. */
int wf_program_run_rows(const wf_program *p, const wf_program_args *a);

/* -- the iteration space of a run (program_space.c) -------------------------------------------------- */
/* An operand in it: strides of the collapsed axes in elements. */
typedef struct wf_operand {
    char *data;
    int64_t esize;
    int dtype;
    bool one_row, one_col; /* kept (reduced) indices lie `row` (`col`) elements apart ... */
    int64_t row, col;      /* ... or those of a run along the last axis alone do */
    int64_t ks[WF_MAX_RANK], rs[WF_MAX_RANK];
} wf_operand;

typedef struct wf_space {
    int nk, nr; /* kept and reduced axes, collapsed where every operand allows */
    int64_t kd[WF_MAX_RANK], rd[WF_MAX_RANK];
    int64_t rows, n;            /* products */
    wf_operand op[WF_WALK_OPS]; /* destinations first */
} wf_space;

void wf_space_init(wf_space *s, const wf_program *p, const wf_program_args *a);
/* Do blocks of the canonical order pay as tasks of their own: are the rows too few for the threads, not even among them, and
 * long? One policy for programs on tiles and in kernels. */
bool wf_space_pays_in_blocks(const wf_space *s);
/* Elements from the operand's first to index (r, c). */
int64_t wf_space_offset(const wf_space *s, const wf_operand *o, int64_t r, int64_t c);
/* dst[i * cols + j] := element (r + i, c + j), or turned dst[j * rows + i], and the other way round. A turned
 * strip does not cross a multiple of the last kept extent. */
void wf_space_load(const wf_space *s, const wf_operand *o, const wf_kernels *k, void *dst,
                   int64_t r, int64_t rows, int64_t c, int64_t cols, bool turned);
void wf_space_store(const wf_space *s, const wf_operand *o, const wf_kernels *k, const void *src,
                    int64_t r, int64_t rows, int64_t c, int64_t cols, bool turned);

/* dst[0..n) := one element of `size` bytes. */
void wf_fill_tile(void *dst, const void *one, size_t size, size_t n);

#endif
