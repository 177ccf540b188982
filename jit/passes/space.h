/*
 * jit/passes/space.h -- the iteration space of a group, and how instructions read values in it.
 *
 * A space has extents and a set of reduced axes. A member runs per element (ELEM) or, where the space
 * reduces, once per index of the other axes (ROW); a row instruction (a reduction, softmax, a norm) reads
 * elements and makes elements or rows of the kind.
 *
 * Inside its group a value needs no memory. It is inside if it is read in the order it is made in: the
 * whole of it in row-major order, or a row's value spread along the reduced axes.
 */
#ifndef JIT_PASSES_SPACE_H
#define JIT_PASSES_SPACE_H

#include "jit/passes/layout.h"

typedef struct wf_iter {
    uint8_t rank;
    uint32_t axes; /* bit i: axis i is reduced; 0: none */
    int64_t dims[WF_MAX_RANK];
    int64_t count, kept; /* elements; elements without the reduced axes */
} wf_iter;

enum { WF_AT_NONE, WF_AT_ROW, WF_AT_ELEM };

/* Can the instruction be a member of a group per element: an elementwise row, a cast, a copy, a vjp? */
bool wf_is_mappable(const wf_layout *l, uint32_t k);
/* A random row, if they may be members at all. */
bool wf_is_draw(const wf_layout *l, uint32_t k);
/* A reduction or row-wise instruction that can be opened into a program, over at least one element. */
bool wf_is_openable(const wf_layout *l, uint32_t k);
/* Is there a composition to open the row into, for other operands if not for these? */
bool wf_is_composite(const wf_layout *l, uint32_t k);
/* Of a norm: is its order 2? */
bool wf_is_euclidean(const wf_attr *a);
/* The axes it reduces, in the extents it runs over. */
uint32_t wf_open_axes(const wf_layout *l, uint32_t k);
/* Fills in l->uniform. 0 or WEFT_ENOMEM. */
int wf_find_uniform(wf_layout *l);
enum { WF_UNIFORM_MOST = 8 }; /* instructions; what takes more is a step */
/* The instruction that fills v's memory with one value, which groups take as a scalar: a fill, or a uniform value;
 * 0: none. */
wf_val wf_fill_of(const wf_layout *l, wf_val v);
/* The instruction whose step makes v (the op of a further result); 0: a leaf. */
wf_val wf_maker_of(const wf_layout *l, wf_val v);

/* The extents that instruction k runs over. */
const wf_map_of *wf_space_of(const wf_layout *l, uint32_t k);
/* The space of a group that k opens. */
void wf_iter_of(const wf_layout *l, uint32_t k, wf_iter *s);
/* The space with extents of m, if it reduces nothing. */
void wf_iter_reshape(const wf_layout *l, const wf_map_of *m, wf_iter *s);
bool wf_same_dims(const wf_iter *a, const wf_iter *b);
/* Do the rows of one space reduce what those of the other do? */
bool wf_same_axes(const wf_iter *a, const wf_iter *b);
/* Rows that no cache holds: whoever goes over them twice reads memory twice. */
bool wf_is_long(const wf_iter *s);
/* The axes it reduces are the last ones, or none. */
bool wf_is_trailing(const wf_iter *s);
/* Where in the space k runs; NONE: nowhere. */
int wf_level_at(const wf_layout *l, uint32_t k, const wf_iter *s);
/* Of result r (0, 1, 2) of k, which runs at `level`. */
int wf_level_of_result(const wf_layout *l, uint32_t k, int r, int level);
/* The class indices of cross entropy, which are checked from memory before the group runs; 0: no such row. */
wf_val wf_targets_of(const wf_layout *l, uint32_t k);
/* Is u an operand of k with one element a row, though k runs per element? */
bool wf_reads_rows(const wf_layout *l, uint32_t k, wf_val u);
/* Does k read u as a value of its own group, if the root of u is made there at `made`? */
bool wf_reads_inside(wf_layout *l, const wf_iter *s, uint32_t k, wf_val u, int made);
/* Operand u of k from memory, over the extents of the space. *row: one element per kept index. 0; 1: not
 * without a copy; WEFT_ENOMEM. */
int wf_read_map(wf_layout *l, const wf_iter *s, uint32_t k, wf_val u, wf_map_of *out, bool *row);
/* Memory m of a value (result of a member at `level`) as a destination: the same. */
int wf_write_map(wf_layout *l, const wf_iter *s, const wf_map_of *m, int level, wf_map_of *out);
/* The whole of a value, with as many elements as k runs over. */
bool wf_reads_whole(const wf_layout *l, uint32_t k, wf_val u);
/* Does a kernel over the space walk along the memory of m: is it not small beside it? */
bool wf_is_stream(const wf_layout *l, const wf_iter *s, const wf_map_of *m);
/* Elements of a map. */
int64_t wf_map_count(const wf_layout *l, const wf_map_of *m);

#endif
