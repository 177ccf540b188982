/*
 * weft/jit.h -- making a function fast without changing it.
 *
 *     weft_status step(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out);
 *
 *     weft_jit *fast = weft_jit_trace(step, &model);
 *     weft_jit_call(fast, in, 2, out, 1);         instead of   step(&model, in, 2, out, 1);
 *
 * The call runs `step` with kernels put off: every op is checked, recorded and given a handle, nothing is
 * computed. When `step` returns, what it recorded is looked up in a cache of plans (fused kernels, places for
 * temporary values) and run. The results, the memory of tensors that were written in place, gradients and random
 * generators are bit for bit what calling `step` would have left.
 *
 * This happens at every call but those that are faster without it (below), so nothing can go stale: host `if`, `for` and
 * numbers, captured tensors, shapes, grad mode may differ from call to call. Numbers (a learning rate, a fill value, eps,
 * seeds, the start of a slice) are arguments of a plan; ops, shapes, element types and axes are what a plan is found by.
 *
 * Recording has a price, some hundred nanoseconds a call and about an eager op on a few elements an op, and so has a replay
 * (.frozen). Where that is more than the plan saves, a call runs `step` itself: after some calls with arguments of the same
 * types, extents, requirement of gradients and grad mode, both ways are measured in turns, and again later, less and less
 * often. weft_jit_stats.eager counts such calls, weft_jit_explain says what was measured. Never under .single_graph,
 * .synchronous, .no_fuse or .always_record, while something is profiled or dumped, or chosen for arguments on a GPU;
 * WEFT_JIT_EAGER=0 switches it off. Of calls of more than 1 ms at most 2 % of the time goes into trying. The results are the
 * same, bit for bit; breaks are not counted, memory that a failing kernel was to change is as `step` leaves it, and an op whose
 * result nobody uses is run. 1024 kinds of calls are told apart; of more, those that were not made for longest begin anew.
 *
 * Fast math is the exception to the bits: under .fast_math fused kernels may contract a product and a sum, take a
 * reciprocal for quotients, reassociate neighbouring sums and products and lose the sign of a zero, and the compiler may
 * simplify what only real arithmetic would (sqrt(x x) = |x|). NaN and infinities that go in stay what they are, but steps in
 * another order may overflow where those of `step` do not (the reciprocal of a subnormal divisor is infinite); functions such
 * as exp keep their error, sums their order. Such a call waits for the compiler the first time, never runs `step` itself, and
 * gives the same results every time on a machine, at any number of threads; a frozen one is verified all the same. Eager calls
 * are not affected.
 *
 * Everything may happen inside: backward, hooks, custom functions, optimisers, random numbers, writes in place
 * through any alias. What is made inside and still reachable afterwards (results, kept tensors, gradients, values
 * that a later backward will want) is an output.
 *
 * Defined corners
 *  - Reading a value in the middle (weft_item, weft_data, weft_print, saving, ...) breaks the graph there: what
 *    was recorded is run, the value is read, recording goes on. Breaks are counted with their sites; under
 *    .single_graph they are errors that name the site, and the call fails with them, whether or not `step` looked
 *    at the status. Reading a tensor from outside that the call has not written is not a break.
 *  - A call inside a traced function or region is part of the outer trace (its own plan is not used).
 *  - Tensors of `in` may be returned in `out`; outputs may share memory with each other and with inputs; there
 *    may be no inputs and no outputs. Handles behave as if `step` had been called, but for one thing: what `step`
 *    leaves in the caller's scope ends with the call unless it is an output or kept.
 *  - If `step` returns an error, what it recorded before is run, as it would have been; weft_jit_call returns the
 *    error and `out` is what step left.
 *  - If a kernel fails (an index out of range in data), weft_jit_call returns its error and outputs are empty
 *    handles; tensors that the call had begun to change refuse to be read, naming the op, until they are written
 *    anew; if it had begun none, all are as before the call. An op whose result nobody uses is not run, so its
 *    kernel does not fail.
 *  - Memory that weft does not know to be written (a pointer from weft_data_mut or weft_from_blob) must not be
 *    written while a trace that uses it is open.
 */
#ifndef WEFT_JIT_H
#define WEFT_JIT_H

#include "weft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_jit weft_jit;

/* A function of n_in tensors that stores n_out tensors in out (which comes in as empty handles). */
typedef weft_status (*weft_jit_fn)(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out);

typedef struct weft_jit_args {
    weft_jit_fn fn;    /* NULL: for regions only */
    void *self;        /* handed to fn */
    const char *name;  /* for messages, listings and kernels; copied; default "f" */
    bool single_graph; /* a read in the middle is an error instead of a break */
    bool
        synchronous; /* native kernels are compiled before they are needed, not in the background */
    bool no_fuse;    /* one step an op: to compare with */
    bool fast_math;  /* results need not be eager's bit for bit (below); also WEFT_FAST_MATH=1 */
    /* Calls are replayed without calling fn, once two recordings in a row of calls with such arguments agreed in everything:
     * ops, numbers, captured tensors, how outputs are made; unless calling fn is measured to be faster (above). Every call is
     * checked against guards first, and records where one misses (weft_jit_reasons says which).
     *  - Arguments: the same types, shapes, strides, devices and aliases, in storages of the same size, at any offset once
     *    recordings at two have agreed. One that was the same tensor in both recordings must be that tensor: fn may have
     *    captured it, too, and used it
     *    as that. Once two recordings in a row had different ones it may be any.
     *  - Captured tensors: kept (weft_keep; a module's are), alive and the same, those too of which fn only asks the shape,
     *    or whether they live (weft_ok), or that it only gives out. Both: the hooks they had; gradients that a backward adds to are
     *    those of the same arguments. The grad mode and the thread's default device are the same, too.
     *  - A whole training step may be replayed: gradients that fn drops, adds to or leaves on captured tensors are dropped,
     *    added to or left anew, and an optimiser that it steps gives each replay the numbers of its rate and its step
     *    (weft_optim_set_lr between calls, a checkpoint that is loaded).
     *  - Random numbers are those that fn would draw: a replay takes them from its generators as they are then (seeded, restored or
     *    drawn from between calls), and moves these as far. A generator has no owner: one that fn draws from, the thread's own
     *    aside,
     *    must not be freed before the last call of the trace, with whatever tensors; one that lies on fn's stack is refused.
     *  - Never replayed is a function that reads values, keeps tensors, frees the caller's, in which a call fails, gives outputs
     *    a history, runs backward into what an argument or a captured tensor was computed from, leaves new gradients on
     *    arguments, sets a learning rate, steps optimisers more than 32 times (each group of parameters counts) or one of
     *    parameters that are not dense f32 or f64, seeds or sets a generator, switches a module between training and
     *    evaluation, changes a number, the grad mode or the default device for its caller.
     *  - If a replay fails, gradients that fn drops or replaces are gone, those that it adds to are as for any tensor that is
     *    written, and generators have moved.
     *  - What fn does besides (counting, choosing another tensor) is not seen: every verify_every-th call (default 100; -1: none)
     *    records, compares bit by bit, and thaws the function if anything differs. */
    bool frozen;
    int verify_every;
    bool
        always_record; /* never run fn, or a region's ops, as they are, however slow recording is (see weft_jit_stats.eager) */
    int max_plans; /* plans kept at most, the least recently used one goes; default 256. When plans that went are built again, which
                          weft_jit_reasons says, those in use stay, and calls whose plan did not stay run fn where that is faster */
    int max_frozen; /* likewise calls that may be replayed, eight of a kind at most; default 64 */
    int end_;
} weft_jit_args;
/* A traced function: `weft_jit_trace(fn, self, .single_graph = true)`. It may be called from many threads at
 * once; after a fork, the child must not use one that another thread was calling. NULL with an error recorded: no memory. */
WEFT_API weft_jit *weft_jit_trace(const weft_jit_args *args);
/* Frees j and its plans; no call and no region of it may be running. NULL is ignored. */
WEFT_API void weft_jit_free(weft_jit *j);

/* Calls the function. out receives n_out handles of the current scope. Errors: the function's own (a status it made
 * up itself gets a text that names the function), a kernel's, WEFT_ENOMEM. */
WEFT_API weft_status weft_jit_call(weft_jit *j, const weft_tensor *in, int n_in, weft_tensor *out,
                                   int n_out);

/* A region of ordinary code: ops between begin and end, on this thread, are recorded and run at the end. Every
 * tensor alive then is an output, so temporaries are best given a scope inside the region. Regions nest; one
 * inside another trace is part of it. They end in the reverse order: ending another than the one that began last is
 * WEFT_EINVALID, and ends none. A region that a traced function begins ends with its call at the latest,
 * and the function ends no other: that is WEFT_EINVALID. As with calls, where recording is measured to cost more than it
 * saves, of the same graph again and again or of several by turns, ops run at once (weft_jit_stats.eager counts such regions,
 * .always_record switches it off): the results are the same, a kernel's error is that of its op, and weft_jit_end returns it. */
WEFT_API weft_status weft_jit_begin(weft_jit *j);
WEFT_API weft_status weft_jit_end(weft_jit *j);

/* Counts since the trace was made, over all threads. */
typedef struct weft_jit_stats {
    int64_t calls;     /* calls and regions that recorded */
    int64_t inlined;   /* calls and regions that were part of another trace */
    int64_t segments;  /* graphs run: one a call, and one more for each break */
    int64_t breaks;    /* reads in the middle */
    int64_t plans;     /* plans built */
    int64_t hits;      /* segments whose plan was known */
    int64_t evictions; /* plans dropped to stay below max_plans */
    int64_t ops;       /* instructions of the last segment */
    int64_t inputs;    /* its inputs, captured tensors included */
    int64_t outputs;   /* its results, tensors written in place included */
    int64_t steps;     /* what its plan runs one after the other */
    int64_t kernels;   /* fused groups among them */
    int64_t frozen;    /* calls that were replayed */
    int64_t captured;  /* of those, the ones that were a single launch of a captured graph (GPUs) */
    int64_t misses;    /* calls that a guard sent to recording */
    int64_t refusals;  /* recordings that could not be frozen */
    int64_t verified;  /* replays that were checked by a recording */
    int64_t thawed;    /* of those, the ones that differed */
    int64_t eager;     /* calls that ran fn itself, regions whose ops ran at once */
} weft_jit_stats;
WEFT_API void weft_jit_get_stats(weft_jit *j, weft_jit_stats *out);

typedef struct weft_jit_break {
    const char *op;   /* what read: "item", "data", ... */
    const char *site; /* file:line, "" where it is not known */
    int64_t count;
} weft_jit_break;
/* Fills at most n entries with the places that broke the graph, in order of first appearance; returns how many
 * places there are. */
WEFT_API int weft_jit_breaks(weft_jit *j, weft_jit_break *out, int n);
/* Why calls of a function that freezes were not replayed: guards that missed, refusals, failed verifications. "plans: ...":
 * max_plans is too small, of any function. */
typedef struct weft_jit_reason {
    char text[192];
    int64_t count;
} weft_jit_reason;
/* Fills at most n entries, in order of first appearance; returns how many reasons there are (at most 32 are
 * told apart). */
WEFT_API int weft_jit_reasons(weft_jit *j, weft_jit_reason *out, int n);
/* Writes counts, breaks, reasons, why each plan was built, whether plans had to be dropped, and for every plan its steps, the
 * lines that called what is in them, what was fused and what was not and why. WEFT_EINVALID: j or out is NULL; WEFT_EIO: it
 * cannot be written. */
WEFT_API weft_status weft_jit_explain(weft_jit *j, FILE *out);

#ifdef __cplusplus
}
inline weft_jit *weft_jit_trace(weft_jit_fn fn, void *self = nullptr, const char *name = nullptr,
                                bool single_graph = false, bool synchronous = false,
                                bool no_fuse = false, bool fast_math = false, bool frozen = false,
                                int verify_every = 0, bool always_record = false, int max_plans = 0,
                                int max_frozen = 0)
{
    weft_jit_args a = {fn,        self,       name,   single_graph, synchronous,
                       no_fuse,   fast_math,  frozen, verify_every, always_record,
                       max_plans, max_frozen, 0};
    return weft_jit_trace(&a);
}
WEFT_BY_STRUCT_(weft_jit *, weft_jit_trace, weft_jit_args)
#endif

#define weft_jit_trace(...)                                                                        \
    WEFT_P_(weft_jit, (weft_jit_trace)WEFT_ARGS_(weft_jit_args, __VA_ARGS__))
#ifndef WEFT_NO_SITES
#define weft_jit_call(...) weft_sited_failure_(WEFT_HERE, (weft_jit_call)(__VA_ARGS__))
#define weft_jit_begin(...) weft_sited_failure_(WEFT_HERE, (weft_jit_begin)(__VA_ARGS__))
#define weft_jit_end(...) weft_sited_failure_(WEFT_HERE, (weft_jit_end)(__VA_ARGS__))
#endif

#endif
