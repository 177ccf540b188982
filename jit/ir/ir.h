/*
 * jit/ir/ir.h -- the graph IR: a function as a dense array of instructions.
 *
 * An instruction holds semantic fields only; its index is its SSA number, operands are smaller
 * numbers, so array order is topological. Types and attribute lists are interned in the function;
 * uses, liveness and the like belong to the pass that needs them. Recorders append and never fold or
 * merge: one instruction per call.
 *
 * Extents (and integer slots of attributes) are int64, symbols, or a symbol times an integer plus an integer: a value of
 * WF_SYM(k) stands for symbol k of the function, wf_sym(k, a, 1, b) for a k + b; equal numbers are equal extents. A symbol of
 * which only multiples of some integer are sizes, or what is one remainder more, may be divided by what divides that: wf_sym(k, a,
 * d, b) is a k / d, rounded down, + b, with a / d in lowest terms. Sums of several symbols and of products of two (n+m, 2*n*m-1) are in a table of
 * the function, and their numbers say where. Inference runs under three bindings of the symbols to distinct primes, or multiples of them; an extent
 * of a result is a constant if all agree, what of one symbol gives all three otherwise, then what of several gives these and further ones,
 * and refused if nothing does.
 * Scalars are numbered slots: their values are arguments, never part of the function's identity. CONST
 * is a number that the compiler itself put there: its value is structure.
 *
 * A pass makes a new function. Its instructions say in `origin` which instruction of the recorded
 * function they come from, so that slots (scalars, dyn, flt) can be read from each new recording.
 *
 * Invariants: everything a caller gets is checked (wf_fn_append infers and verifies); the text form
 * prints and parses to an equal function; an allocation failure leaves the function as it was.
 */
#ifndef JIT_IR_IR_H
#define JIT_IR_IR_H

#include <stdio.h>
#include <string.h>

#include "jit/ir/op.h"

#define WF_SYM(k) ((INT64_C(1) << 62) + (k))
#define WF_IS_SYM(v) ((v) >= (INT64_C(1) << 62))
enum {
    WF_MAX_SYMBOLS = 16,
    WF_NO_SYMBOL = WF_MAX_SYMBOLS,
    WF_SYM_BITS = 4,
    WF_TERM_BITS = 24,
    WF_MOST_MULTIPLE = 1024
};

/* a k / d + b as an extent; -1: too large a number, or a < 1. In the number are, from below, four bits of k, 24 of a - 1, 24 of
 * b with its sign and ten of d - 1, with a and d in lowest terms; WF_SYM(k) is k. */
int64_t wf_sym(uint32_t k, int64_t a, int64_t d, int64_t b);
/* The greatest; of 0 the other one. */
int64_t wf_common_divisor(int64_t a, int64_t b);
static inline uint32_t wf_sym_of(int64_t v)
{
    return (uint32_t)(v & (WF_MAX_SYMBOLS - 1));
}
static inline int64_t wf_sym_times(int64_t v)
{
    return (v >> WF_SYM_BITS & ((INT64_C(1) << WF_TERM_BITS) - 1)) + 1;
}
static inline int64_t wf_sym_plus(int64_t v)
{
    const int64_t folded = v >> (WF_SYM_BITS + WF_TERM_BITS) & ((INT64_C(1) << WF_TERM_BITS) - 1);
    return folded & 1 ? -(folded + 1) / 2 : folded / 2;
}
static inline int64_t wf_sym_over(int64_t v)
{
    return (v - WF_SYM(0)) / (INT64_C(1) << (WF_SYM_BITS + 2 * WF_TERM_BITS)) + 1;
}
/* Room for any. */
enum { WF_EXTENT_TEXT = 160 };
typedef struct wf_fn wf_fn;
/* v where the symbols have these sizes; what is too large to be one is INT64_MAX. */
int64_t wf_sym_value(const wf_fn *f, int64_t v, const int64_t *sizes);
/* Is v of f's symbols, and divided only as these can be? Other numbers as large are none (a seed, an end that is INT64_MAX). */
bool wf_is_sym(const wf_fn *f, int64_t v);
/* The symbols that v is of: bit k of symbol k. */
uint32_t wf_sym_symbols(const wf_fn *f, int64_t v);
/* Are v in f and w in g one number, or the same of symbols of the same numbers? */
bool wf_sym_same(const wf_fn *f, int64_t v, const wf_fn *g, int64_t w);
/* An extent or integer slot of f in its text form. */
const char *wf_extent_text(const wf_fn *f, int64_t v, char text[WF_EXTENT_TEXT]);
/* Can integer slot i of the op be an extent? Not where a random row draws from. */
bool wf_slot_is_extent(int op, const wf_attr *attr, int i);

/* The sizes that a symbol stands for: from least to most those that are `rest` more than a multiple of `multiple`. 0, INT64_MAX, 1
 * and 0: nothing was said. */
typedef struct wf_range {
    int64_t least, most, multiple, rest;
} wf_range;
static inline wf_range wf_any_size(void)
{
    return (wf_range){0, INT64_MAX, 1, 0};
}
static inline bool wf_range_has(wf_range r, int64_t size)
{
    return size >= r.least && size <= r.most && size % r.multiple == r.rest;
}
/* The smallest size of a range that is x or more, else its largest; -1: it has none. */
int64_t wf_range_from(wf_range r, int64_t x);
/* The largest size of a range, but for where it begins, that is x or less; -1: there is none. */
int64_t wf_range_to(wf_range r, int64_t x);
/* Has it a size, other than 0, and is the multiple one that is said? */
bool wf_range_good(wf_range r);
/* The range of a symbol of that name as functions declare it: n, 3<=n<=64, n%4==0 or 3<=n<=64, n%4==1. */
enum { WF_RANGE_TEXT = 144 };
const char *wf_range_text(const char *name, wf_range r, char text[WF_RANGE_TEXT]);
/* What sizes have to be that x, which is no size of the range, is not: "at least 3", "1 more than a multiple of 4". */
const char *wf_range_rule(wf_range r, int64_t x, char text[WF_RANGE_TEXT]);

/* An extent of several symbols (jit/ir/extents.c): `plus` and the terms, by * t(of[0]) * t(of[1]), or by * t(of[0]) where of[1] is
 * WF_NO_SYMBOL. t of a symbol is its size, less the rest, over the multiple. */
enum { WF_POLY_TERMS = 32 };
typedef struct wf_poly_term {
    int64_t by;
    uint8_t of[2];
} wf_poly_term;
typedef struct wf_poly {
    int64_t plus;
    uint32_t n;
    wf_poly_term term[WF_POLY_TERMS];
} wf_poly;
/* Those that a function has met. Inference adds to it, and asks no more of a function that is const. */
typedef struct wf_polys {
    wf_poly *p;
    uint32_t n, cap;
} wf_polys;
/* Adds by * t(i) * t(j); j WF_NO_SYMBOL: by * t(i), both: by. Begin with {0}. These return false where numbers are too large, or terms
 * too many. */
bool wf_poly_add(wf_poly *p, int64_t by, int i, int j);
/* Adds, or takes off, a k / d rounded down. */
bool wf_poly_add_symbol(const wf_fn *f, wf_poly *p, bool less, int64_t a, int k, int64_t d);
/* Adds a * (i / d) * (j / e), both rounded down. */
bool wf_poly_add_product(const wf_fn *f, wf_poly *p, int64_t a, int i, int64_t d, int j, int64_t e);
/* The extent, or a number, that p is. False: none can be. */
bool wf_poly_extent(const wf_fn *f, const wf_poly *p, int64_t *v);
/* What v is the number of; NULL: of none. */
const wf_poly *wf_poly_of(const wf_fn *f, int64_t v);
/* wf_extent_text of one: "" where there is no room for it. */
const char *wf_poly_text(const wf_fn *f, const wf_poly *p, char text[WF_EXTENT_TEXT]);

/* Sizes of symbols that tell extents apart: some that differ in all of them, and those next to the WF_POINTS_BASE: each symbol moved once
 * and twice, each two of them once. */
enum {
    WF_POINTS_APART = 3,
    WF_POINTS_BASE = 1,
    WF_POINTS = WF_POINTS_APART + 2 * WF_MAX_SYMBOLS + WF_MAX_SYMBOLS * (WF_MAX_SYMBOLS - 1) / 2
};
typedef struct wf_points {
    int n;
    int64_t size[WF_POINTS][WF_MAX_SYMBOLS];
} wf_points;
/* Makes those around the base of n symbols, within their ranges. */
void wf_points_around(const wf_range *range, int n, wf_points *p);
/* The extent that is x[i] at point i of all; -1: none. */
int64_t wf_extent_through(const wf_fn *f, const wf_points *at, const int64_t *x);

typedef uint32_t wf_val; /* SSA number + 1; 0 = absent operand */

typedef struct wf_ins {
    uint16_t nsrc;
    uint8_t op;
    uint8_t flags; /* WF_INS_* */
    uint32_t type; /* index into types */
    wf_val src[3]; /* operands; with more than three, src[0] is an index into lists */
    uint32_t
        attr; /* index into attrs, 0 = none; RESULT: which result; SCALAR, CONST: slot number */
    uint32_t next; /* hash chain of folding builders; not part of identity */
    uint32_t loc;  /* index into locs, 0 = unknown; not part of identity */
} wf_ins;
_Static_assert(sizeof(wf_ins) == 32, "two instructions per cache line");
_Static_assert(WF_OP_COUNT <= 256, "an op is a byte of its instruction");

#define WF_INS_NOGRAD 1u /* recorded while gradients were off */
#define WF_INS_JOINED                                                                              \
    2u /* run op by op, it is done in one pass with the row before it: a further line of an update */

/* An instruction that may find a bad index when it runs, and the function that was called for it: another name than its row's. */
typedef struct wf_called_as {
    uint32_t ins;
    const char *name; /* lives as long as the process */
} wf_called_as;

/* A scalar slot whose number is an extent of symbols (a sum that is divided by its length): slots[] has the value it was recorded
 * with, or 0 of a text. */
typedef struct wf_sized_slot {
    uint32_t slot;
    int64_t extent;
} wf_sized_slot;

struct wf_fn {
    char name[64];
    wf_ins *ins;
    uint32_t n, cap;
    wf_type *types;
    uint32_t ntypes, captypes;
    uint32_t *type_table, type_mask; /* types + 1 by hash; NULL while they are few */
    wf_attr *attrs;                  /* [0] is the empty attribute */
    uint32_t nattrs, capattrs;
    wf_val *lists; /* operand lists: count first */
    uint32_t nlists, caplists;
    const char **locs; /* static strings of call sites; [0] unused */
    uint32_t nlocs, caplocs;
    wf_called_as *calls; /* few; not part of identity */
    uint32_t ncalls, capcalls;
    const char *
        *names; /* of tensors that inputs were, by argument; NULL: none; not part of identity */
    uint32_t nnames, capnames;
    char (*symbols)[32];
    uint32_t nsymbols;
    wf_range range[WF_MAX_SYMBOLS]; /* of symbol k */
    /* Extents of several symbols; NULL: there is no symbol. Inference appends what it meets, of a const function, too. */
    wf_polys *polys;
    wf_val *inputs; /* INPUT instructions in argument order */
    uint32_t ninputs, capinputs;
    uint64_t *slots;    /* bit patterns the scalar slots had when recorded: wf_slot_f64 reads one */
    uint8_t *slot_kind; /* WF_SCALAR_* of eager/tensor.h: 0 bool, 1 integer, 2 float */
    uint32_t nslots, capslots, capkinds;
    uint32_t number_type[3]; /* by their kind: index + 1 of the type, 0: not met yet */
    wf_sized_slot *sized;    /* by slot, ascending; of functions with symbols */
    uint32_t nsized, capsized;
    wf_val *outputs;
    uint32_t noutputs, capoutputs;
    wf_val *origin; /* by passes: instruction of the recorded function; NULL: each is its own */
    uint32_t caporigin;
    struct wf_block *blocks; /* memory of attribute lists */
};

/* A new function; NULL: no memory. Freed by wf_fn_free (NULL is ignored). */
wf_fn *wf_fn_new(const char *name);
void wf_fn_free(wf_fn *f);
/* Empties f; its memory is kept for what is appended next. */
void wf_fn_clear(wf_fn *f);

/* Appends an argument of a type. 0: no memory. */
wf_val wf_fn_input(wf_fn *f, const wf_type *t);
/* Input v was a tensor of that name (n bytes, without 0; none: n is 0), made at site (NULL: unknown); without memory it is not noted. */
void wf_fn_name_input(wf_fn *f, wf_val v, const char *name, size_t n, const char *site);
/* The name of the tensor that argument k was, or NULL. */
const char *wf_fn_input_name(const wf_fn *f, uint32_t k);
/* Appends a scalar slot (0-d; bool, i64 or f64). bits: the pattern of the double of kind 2, of the int64
 * of the others, so that every value is exact. 0: no memory. */
wf_val wf_fn_scalar(wf_fn *f, int kind, uint64_t bits);
/* The number of scalar v, an integer or a float, which was appended last of those, is this extent of symbols. 0 or WEFT_ENOMEM. */
int wf_fn_size_scalar(wf_fn *f, wf_val v, int64_t extent);
/* The extent that the number of a slot is; -1: it is none. */
int64_t wf_fn_slot_extent(const wf_fn *f, uint32_t slot);
/* Appends a number of the compiler's own (0-d, weak like a scalar slot). 0: no memory. */
wf_val wf_fn_const(wf_fn *f, int kind, uint64_t bits);
/* The number of a symbol, made on demand; -1: a bad name or more than WF_MAX_SYMBOLS. */
enum { WF_NO_MEMORY = -2 };
int wf_fn_symbol(wf_fn *f, const char *name, size_t len);
/* Declares the symbols of another function, with their ranges, in a new one. 0 or WEFT_ENOMEM. */
int wf_fn_copy_symbols(wf_fn *f, const wf_fn *from);
/* The largest size of a range up to `most` that is not among the n taken; 0: none. */
int64_t wf_size_below(wf_range r, int64_t most, const int64_t *taken, int n);
/* Appends op: checks operands and attributes, infers result types, copies attributes. dst receives
 * the row's results. Returns 0 or a status with why filled. */
int wf_fn_append(wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src, wf_val *dst,
                 const char *loc, wf_why *why);
int wf_fn_output(wf_fn *f, wf_val v); /* 0 or WEFT_ENOMEM */

/* For builders that know what inference would say (jit/ir/build.c). Interning copies; UINT32_MAX: no
 * memory. push appends an instruction as it is; 0: no memory. */
uint32_t wf_fn_intern_type(wf_fn *f, const wf_type *t);
/* The index of an equal type; UINT32_MAX: there is none. */
uint32_t wf_fn_find_type(const wf_fn *f, const wf_type *t);
uint32_t wf_fn_intern_attr(wf_fn *f, const wf_attr *a);
uint32_t wf_fn_intern_loc(wf_fn *f, const char *loc);
/* Instruction ins was called by that name, for messages; NULL, or without memory: by its row's. */
void wf_fn_name_call(wf_fn *f, uint32_t ins, const char *name);
/* The name that instruction ins was called by. */
const char *wf_fn_call_name(const wf_fn *f, uint32_t ins);
wf_val wf_fn_push(wf_fn *f, const wf_ins *i);
/* Stores the operands of i: in place, or as a list. 0 or WEFT_ENOMEM. */
int wf_fn_set_src(wf_fn *f, wf_ins *i, int nsrc, const wf_val *src);
/* Inference in a function without symbols, and in f with them (jit/ir/symbols.c). A map counts in the value that it is over, so here
 * it is held to that; of a view in eager code, which counts in the view's storage, the row's own inference cannot tell. */
int wf_infer_sizes(wf_op op, const wf_attr *attr, int nsrc, const wf_type *src, wf_type *dst,
                   wf_why *why);
int wf_infer_symbolic(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_type *src,
                      wf_type *dst, wf_why *why);
/* Types of the results as inference gives them; nothing is appended. */
int wf_fn_infer(const wf_fn *f, wf_op op, const wf_attr *attr, int nsrc, const wf_val *src,
                wf_type *dst, wf_why *why);

static inline const wf_ins *wf_fn_at(const wf_fn *f, wf_val v)
{
    return &f->ins[v - 1];
}
const wf_val *wf_ins_src(const wf_fn *f, const wf_ins *i);
/* The most operands that an instruction of f has. */
int wf_fn_most_src(const wf_fn *f);
/* The attributes of a row's instruction (never NULL). */
const wf_attr *wf_ins_attr(const wf_fn *f, const wf_ins *i);
/* A 0-d number that takes the type of the tensors it meets: SCALAR or CONST. */
static inline bool wf_op_is_weak(int op)
{
    return op == WF_OP_SCALAR || op == WF_OP_CONST;
}
/* The instruction of the recorded function that k comes from. */
static inline wf_val wf_fn_origin(const wf_fn *f, wf_val v)
{
    return f->origin ? f->origin[v - 1] : v;
}
static inline const wf_type *wf_fn_type(const wf_fn *f, wf_val v)
{
    return &f->types[f->ins[v - 1].type];
}

/* A slot's pattern as a number, and back. */
static inline double wf_slot_f64(int kind, uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof d);
    return kind == 2 ? d : (double)(int64_t)bits;
}
static inline uint64_t wf_slot_bits(int kind, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return kind == 2 ? bits : (uint64_t)(int64_t)value;
}

/* Room for `more` entries of `size` bytes behind the n of an array from malloc (*array: its address, or NULL);
 * capacities double. WEFT_ENOMEM leaves the array as it was. */
int wf_grow_now(void *array, uint32_t n, uint32_t more, uint32_t *cap, size_t size);
/* WEFT_STRESS=move: every append moves its array, so that a pointer kept across one shows. Set before the first use. */
extern bool wf_grow_moves;
static inline int wf_grow(void *array, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    const bool room = (uint64_t)n + more <= *cap && !wf_grow_moves;
    return __builtin_expect(room, 1) ? 0 : wf_grow_now(array, n, more, cap, size);
}

/* n bytes as a site: kept for the life of the process. NULL: no memory, or too many of them. */
const char *wf_site_keep(const char *s, size_t n);
/* `at` (NULL: none) as one more of the n sites of a list, if it is new and there is room for it; their number then. */
int wf_site_add(const char **list, int n, int most, const char *at);
/* Its file without folders, and the line. */
const char *wf_site_file(const char *site);

/* Replaces symbols of f in t by value[k]. */
void wf_type_bind(const wf_fn *f, wf_type *t, const int64_t *value);
/* The extent of symbol k that is x[i] where the symbol is size[i], multiples of `multiple`; -1: none. Sizes that are not three
 * determine the symbol itself only. */
int64_t wf_sym_through(uint32_t k, int64_t multiple, const int64_t size[3], const int64_t x[3]);

/* Holds f to every rule of a function (jit/ir/verify.c lists them). Returns 0, or a status with why naming the instruction
 * and the rule that it breaks. */
int wf_fn_verify(const wf_fn *f, wf_why *why);
/* And what a pass made of `recorded`: do instructions with slots come from such as have these slots? */
int wf_fn_verify_origins(const wf_fn *f, const wf_fn *recorded, wf_why *why);

/* Text: one instruction a line; parse(print(f)) is equal to f. print returns 0 or WEFT_EIO. */
int wf_fn_print(const wf_fn *f, FILE *out);
/* The same with what note writes behind the instruction of each value: a remark, " ; ..." to the end of the line. */
typedef void (*wf_note_fn)(void *user, wf_val v, FILE *out);
int wf_fn_print_noted(const wf_fn *f, FILE *out, wf_note_fn note, void *user);
/* malloc'd text (free it), NULL: no memory. bare: without what inputs were, for files that have it beside the text. */
char *wf_fn_text(const wf_fn *f);
char *wf_fn_text_bare(const wf_fn *f);
/* NULL with why filled (line number and what was expected) on malformed text or a function that does
 * not verify. Nothing in the text is trusted. */
wf_fn *wf_fn_parse(const char *text, size_t len, wf_why *why);
/* Equal instructions, types, attributes and outputs; names, sites and slot values do not count. */
bool wf_fn_equal(const wf_fn *a, const wf_fn *b);

#endif
