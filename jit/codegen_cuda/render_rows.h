/*
 * jit/codegen_cuda/render_rows.h -- what the files that render programs with reductions share.
 */
#ifndef JIT_CODEGEN_CUDA_RENDER_ROWS_H
#define JIT_CODEGEN_CUDA_RENDER_ROWS_H

#include "jit/codegen_cuda/render.h"

/* The value that changes no bits; a reduction of no element; to = a op b, in this order. op: wf_kprim. */
void wf_cu_identity(wf_text *t, wf_kty type, int op);
void wf_cu_nothing(wf_text *t, int op);
void wf_cu_fold(wf_text *t, wf_kty type, int op, const char *to, const char *a, const char *b);
/* v := lanes 0, 1 ... of each `width` neighbours combined by halving, in the first of them; in all of them. */
void wf_cu_warp_fold(wf_text *t, wf_kty type, int op, const char *v, const char *width);
void wf_cu_warp_share(wf_text *t, wf_kty type, const char *v, const char *width);

typedef struct wf_cu_rr {
    wf_text *t;
    const wf_cu_rows *r;
    const wf_kernel *k;
    const wf_rows_kernel *rows;
    wf_cu_layout l;
    const char *index; /* type of offsets: "int" or "long long" */
    int v;             /* neighbours that a thread has, or 1 */
    const char *
        base; /* before the number of a word of operands and reduced axes: "", "entry + " of many runs */
} wf_cu_rr;

/* Columns that a thread has side by side; where they are several, the one of the loop is `v`, and slot t<number> of column v is
 * tv<number>[v]. */
static inline int wf_cu_across(const wf_cu_rr *x)
{
    return x->r->across > 1 ? x->r->across : 1;
}

/* Does a thread take the elements of its columns as a word? */
bool wf_cu_is_word(const wf_cu_rr *x, const wf_port *port);

/* -- stages (render_stage.c) ----------------------------------------------------------------------------- */
/* The types of vectors; whether the operand, or what is kept, is taken as such. */
void wf_cu_vector_types(const wf_cu_rr *x);
/* Text in which `lane`, `active` and the operands' pointers of the row stand. */
void wf_cu_single_stage(const wf_cu_rr *x, const wf_stage *st, const char *leader);
void wf_cu_pick_stage(const wf_cu_rr *x, const wf_stage *st);
/* Elements are worked on in groups: a loop over u gathers those of element c into arrays, another computes. Registers that an
 * element takes; before the loops, what the row has one of; the arrays. */
int wf_cu_gathered(const wf_cu_rr *x, const wf_stage *st);
/* True: elements can be divided quickly, where wf_cu_check_group does not break the loop over groups, or `quick` is not 0. */
bool wf_cu_row_values(const wf_cu_rr *x, const wf_stage *st);
void wf_cu_declare_group(const wf_cu_rr *x, const wf_stage *st, int group, bool rest);
/* Where elements stay in registers, those of all stages. */
void wf_cu_declare_resident(const wf_cu_rr *x);
/* What results of neighbours are collected in. */
void wf_cu_declare_results(const wf_cu_rr *x, const wf_stage *st);
/* Pointers to the thread's first element, `at`, of operands that are adjacent and of kept values. */
void wf_cu_aim(const wf_cu_rr *x, const wf_stage *st);
/* rest: of elements that are `in` the row, of vectors of which `any` or `all` elements are. Any: these lie within one sector of memory,
 * which can be read; who may store them is another question. Without vectors all elements are in it. */
void wf_cu_gather(const wf_cu_rr *x, const wf_stage *st, bool rest);
/* Sources that are read for the first time and copied, when all of the group have been issued. */
bool wf_cu_copies(const wf_cu_rr *x, const wf_stage *st);
void wf_cu_copy(const wf_cu_rr *x, const wf_stage *st, bool rest);
/* "g < <number> || ": vectors that lie within the row whichever of the kernel's rows it is, "" if there are none. `resident` counts
 * eight elements a thread as one, so a shorter row has another kernel. */
void wf_cu_sure(const wf_cu_rr *x, char *s, size_t n);
/* Bytes of what is gathered for an element. */
int wf_cu_gathered_bytes(const wf_cu_rr *x, const wf_stage *st);
void wf_cu_check_group(const wf_cu_rr *x, const wf_stage *st, int group, bool rest, bool breaks);
bool wf_cu_has_totals(const wf_stage *st);
/* Inside the second loop, and for a stage without totals where `active` is not 0: values, stores, and `fold` called for each total. */
typedef void (*wf_cu_total_fn)(const wf_cu_rr *x, int slot, int op, wf_kty type, const char *value);
void wf_cu_element(const wf_cu_rr *x, const wf_stage *st, bool quick, bool rest,
                   wf_cu_total_fn total);
/* Calls fn for each total of the stage. */
void wf_cu_each_total(const wf_cu_rr *x, const wf_stage *st,
                      void (*fn)(const wf_cu_rr *x, int slot, int op, wf_kty type));
/* Offsets along the reduced axes of element c: what a nested loop needs before wf_cu_element. */
void wf_cu_columns(const wf_cu_rr *x);
/* Addresses of operands and kept values for row r; scalars. */
void wf_cu_row_pointers(const wf_cu_rr *x);
void wf_cu_scalars(const wf_cu_rr *x);
/* Declarations of the slots that stages [begin, end) write (first write). */
void wf_cu_declare_slots(const wf_cu_rr *x, int begin, int end);

#endif
