/*
 * jit/passes/fuse_impl.h -- groups while they grow: shared by fuse.c, which puts instructions into them, and fuse_join.c, which
 * merges them.
 */
#ifndef JIT_PASSES_FUSE_IMPL_H
#define JIT_PASSES_FUSE_IMPL_H

#include "jit/passes/fuse.h"

typedef struct wf_fuser_input {
    wf_map_of map; /* in the space of its group */
    uint32_t next;
} wf_fuser_input;

/* An instruction that reads a root, and the next one that does. */
typedef struct wf_fuser_user {
    uint32_t k, next;
} wf_fuser_user;

typedef struct wf_open_group {
    uint8_t kind;
    wf_iter space;
    uint32_t head, tail; /* members */
    uint32_t n, insts, inputs, scalars, depth, draws, streams;
    uint32_t returned; /* results that the function returns */
    uint32_t input;    /* list */
    uint32_t into;     /* the group it went into, or itself */
    bool passes;       /* a long row that is gone over more than once: left to its own kernel */
} wf_open_group;

typedef struct wf_fuser {
    wf_schedule *s;
    wf_layout *l;
    const wf_fn *f;
    wf_open_group *g;
    uint32_t ng;
    uint32_t *next;        /* member after member k */
    bool *is_returned;     /* root v */
    uint32_t *last_reader; /* of root v: the last MAP group that reads it from memory */
    uint32_t *wanted;     /* of root v, for WF_FUSE_LATE: readings outside its own group; or NULL */
    wf_fuser_user *users; /* by root, from first_user of it on; NULL until somebody asks */
    uint32_t *first_user;
    wf_fuser_input *inputs;
    size_t ninputs, capinputs;
    uint32_t most;
    bool rows, alone, lean, no_memory, cuts;
    uint64_t coin;
} wf_fuser;

enum { WF_NIL = UINT32_MAX };

/* The group that makes value v, WF_NIL for leaves and fills; before groups were merged (see `into`). */
uint32_t wf_fuser_made_by(const wf_fuser *u, wf_val v);
/* Does the group read m from memory? */
bool wf_fuser_has_input(const wf_fuser *u, const wf_open_group *g, const wf_map_of *m);
/* 0 or WEFT_ENOMEM; one that it has is not added. */
int wf_fuser_add_input(wf_fuser *u, wf_open_group *g, const wf_map_of *m);
/* Gives the group another space of as many elements, if its inputs can be read so. */
bool wf_fuser_reshape_group(wf_fuser *u, wf_open_group *g, const wf_iter *to);
int64_t wf_fuser_weigh_map(const wf_fuser *u, const wf_map_of *m);
/* Would a kernel over so many more operands lose more than is saved? Its results count as one. */
bool wf_fuser_is_crowded(const wf_fuser *u, const wf_open_group *g, uint32_t more, int64_t saved);
/* WEFT_STRESS=order: one instruction in four starts a group of its own. */
bool wf_fuser_is_cut(const wf_fuser *u, uint32_t k);

/* Groups go into the first group that reads them; groups that read the same memory become one. 0 or WEFT_ENOMEM. */
int wf_fuser_sink(wf_fuser *u);
int wf_fuser_join(wf_fuser *u);

#endif
