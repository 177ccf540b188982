/*
 * weft/grad.h -- reverse-mode differentiation, hooks, custom functions, gradient checks.
 *
 * The tape is rebuilt by every run: ops on tensors that require gradients are recorded as they
 * execute, weft_backward walks the record once and releases saved values as it passes them.
 * Method: reverse accumulation with a tape (Paszke et al., 2019, section 4.3). Options go by name in C:
 * weft_backward(loss, .retain_graph = true); in C++ in order: weft_backward(loss, WEFT_NONE, true).
 */
#ifndef WEFT_GRAD_H
#define WEFT_GRAD_H

#include "weft/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks t as a leaf that wants a gradient (or no longer does). t: floating point, not the result of a
 * recorded op. Returns WEFT_EDTYPE, WEFT_EGRAD or WEFT_EHANDLE otherwise. */
WEFT_API weft_status weft_requires_grad_(weft_tensor t, bool on WEFT_OR(true));
/* True if gradients flow to t: a leaf that requires one, or a recorded result. */
WEFT_API bool weft_requires_grad(weft_tensor t);
/* True if t is not the result of a recorded op. */
WEFT_API bool weft_is_leaf(weft_tensor t);
/* The gradient accumulated so far, of t's shape and dtype: a handle of the current scope that shares
 * its memory. While there is such a handle, backward adds into a new tensor and leaves what it shows alone. The empty handle of
 * a WEFT_EGRAD error if there is none. */
WEFT_API weft_tensor weft_grad(weft_tensor t);
/* True if t has an accumulated gradient. Never an error. */
WEFT_API bool weft_has_grad(weft_tensor t);
/* Replaces the gradient by g (same shape and dtype, else WEFT_ESHAPE or WEFT_EDTYPE; shared, not copied) or drops it (g =
 * WEFT_NONE). A gradient lives as long as a handle of its tensor, or until it is dropped. */
WEFT_API weft_status weft_set_grad(weft_tensor t, weft_tensor g);
/* Keeps the gradient of a recorded result when backward passes it: of its last value, if it is written in
 * place after the call, and then of all that reads this value, through whichever view of its memory; but of a part of a tensor
 * whose gradient is kept, too, of what reads that part. Of a leaf, which keeps its gradient anyway: nothing to do. WEFT_EGRAD if
 * gradients do not flow to t. */
WEFT_API weft_status weft_retain_grad(weft_tensor t);

/* Switch recording off and on again on this thread; they nest. An end without a begin does nothing. */
WEFT_API void weft_no_grad_begin(void);
WEFT_API void weft_no_grad_end(void);
/* Recording on inside a no-grad region, until weft_enable_grad_end. Returns what to hand to it. */
WEFT_API uint32_t weft_enable_grad_begin(void);
WEFT_API void weft_enable_grad_end(uint32_t saved);
/* Whether ops on this thread are recorded now. */
WEFT_API bool weft_is_grad_enabled(void);

typedef struct weft_backward_args {
    weft_tensor loss;
    weft_tensor gradient; /* of the loss's shape; may be left out if the loss has one element */
    bool retain_graph;    /* keep saved values for another backward */
    bool create_graph;    /* record the gradients' own computation (implies retain_graph) */
    int end_;
} weft_backward_args;
/* Adds d(loss)/d(leaf) to the gradient of every leaf that requires one and has a handle left.
 *
 * With create_graph the accumulated gradient carries its history, which leads back to the leaf: as long as the
 * leaf has a gradient, everything the backward recorded stays in memory. Drop it when done (weft_set_grad(x,
 * WEFT_NONE)), or use weft_grad_of, which accumulates nothing. weft_leak_report names such gradients; freeing
 * the leaf ends them too. Errors: WEFT_EGRAD when
 * nothing requires a gradient, a saved value was changed in place (the message names tensor, versions,
 * both ops and sites) or was released by an earlier backward; errors of hooks and custom functions. */
WEFT_API weft_status weft_backward(const weft_backward_args *args);

typedef struct weft_grad_of_args {
    const weft_tensor *outputs;
    int n_outputs;
    const weft_tensor *inputs; /* leaves or recorded results */
    int n_inputs;
    weft_tensor
        *grads; /* n_inputs results, in the current scope; on error empty handles that carry it */
    const weft_tensor *grad_outputs; /* n_outputs, or NULL: ones for one-element outputs */
    bool retain_graph, create_graph;
    bool
        allow_unused; /* an input the outputs do not depend on gets WEFT_NONE instead of an error */
    int end_;
} weft_grad_of_args;
/* Gradients of sum(outputs * grad_outputs) with respect to inputs, without touching accumulated ones. WEFT_EGRAD: an output that
 * nothing was recorded for, one of several elements without a grad_output, an input that the outputs do not depend on (but under
 * .allow_unused), and what weft_backward says; WEFT_ESHAPE, WEFT_EDTYPE: a grad_output unlike its output; WEFT_EINVALID: a list is
 * NULL or empty. */
WEFT_API weft_status weft_grad_of(const weft_grad_of_args *args);

typedef struct weft_jvp_args {
    const weft_tensor *outputs; /* recorded from the inputs */
    int n_outputs;
    const weft_tensor *inputs;
    int n_inputs;
    const weft_tensor *tangents; /* n_inputs, of the inputs' shapes and dtypes */
    weft_tensor *
        results; /* n_outputs tangents of the outputs, in the current scope; on error empty handles that carry it */
    int end_;
} weft_jvp_args;
/* Forward-mode products: results[k] = sum over i of d(outputs[k])/d(inputs[i]) * tangents[i]. The adjoint is
 * linear in its seed, so its own adjoint is the Jacobian: the columns that give backward give this too, for
 * every op. The outputs' graph is retained. A tangent unlike its input is WEFT_ESHAPE or WEFT_EDTYPE; other errors as
 * weft_grad_of's. */
WEFT_API weft_status weft_jvp(const weft_jvp_args *args);

/* -- hooks --------------------------------------------------------------------------------------------
 * A hook sees the full gradient of its tensor before it is used or accumulated; it returns a
 * replacement of the same shape and dtype, or WEFT_NONE to leave it. Hooks run in order of
 * registration. A hook belongs to the value its tensor has when it is registered: after a recorded write in
 * place it still sees the gradient of the value before. An empty handle with an error aborts backward with
 * that error. */
typedef weft_tensor (*weft_hook_fn)(void *user, weft_tensor grad);
/* release (may be NULL) is called with user when the hook is removed or the tensor's record dies, but not
 * before a thread that is running the hook has returned from it; it may call weft.
 * Returns the hook's number (> 0), or 0 with an error. */
WEFT_API uint64_t weft_register_hook(weft_tensor t, weft_hook_fn fn, void *user WEFT_OR(nullptr),
                                     void (*release)(void *user) WEFT_OR(nullptr));
/* Runs after a leaf's gradient was accumulated; sees the accumulated gradient, result ignored. */
WEFT_API uint64_t weft_register_post_hook(weft_tensor leaf, weft_hook_fn fn,
                                          void *user WEFT_OR(nullptr),
                                          void (*release)(void *user) WEFT_OR(nullptr));
/* Removes a hook of either kind. WEFT_EINVALID if t has none of that number. */
WEFT_API weft_status weft_remove_hook(weft_tensor t, uint64_t hook);

/* -- custom functions -----------------------------------------------------------------------------------
 * forward computes n_out results from n_in operands (recording is off); it may save tensors.
 * backward gets the gradients of the results (WEFT_NONE = zero) and stores the gradients of the
 * operands it was asked for (needs[i]); what it computes with ops is differentiable again. */
typedef struct weft_function_ctx weft_function_ctx;
typedef struct weft_function {
    const char *name;
    weft_status (*forward)(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                           weft_tensor *out, int n_out);
    weft_status (*backward)(weft_function_ctx *ctx, void *user, const weft_tensor *grad_out,
                            int n_out, weft_tensor *grad_in, const bool *needs, int n_in);
    void (*release)(void *user); /* when the last record of a call dies; may be NULL */
} weft_function;
/* Runs f; out receives n_out results in the current scope, or empty handles with the error; in and out may be one array. n_in
 * <= 8, n_out <= 3. A result that forward did not make, or that shows memory of an operand or of a result before it, is a copy.
 * f.release(user) is called once: when the record dies, or before the return where none was made, a failure included. Errors:
 * forward's own; those of backward come out of the weft_backward that runs it. */
WEFT_API weft_status weft_apply(const weft_function *f, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out);
/* In forward: saves up to 8 tensors (operands, results or others) for backward; versions are checked. Second derivatives go
 * through saved operands and results; any other tensor, as what forward computed on the way, is a constant to them, so
 * that backward computes it again where they are wanted. WEFT_EINVALID: more than 8, or NULL. The caller's handles stay the
 * caller's. */
WEFT_API weft_status weft_function_save(weft_function_ctx *ctx, const weft_tensor *t, int n);
/* In backward: the i-th saved tensor, in the current scope. WEFT_EINVALID if there is none; WEFT_EGRAD if it was written to
 * since. */
WEFT_API weft_tensor weft_function_saved(weft_function_ctx *ctx, int i);

/* -- memory for time ------------------------------------------------------------------------------------ */
typedef weft_status (*weft_check_fn)(void *user, const weft_tensor *in, int n_in, weft_tensor *out,
                                     int n_out);
/* out := fn(in), of which only in and out are kept for backward: fn runs again there, and its gradients are those it would have
 * had, bit for bit (of create_graph, gradients of them but for roundings), dropout and all: generators stand where they stood.
 * A net of n layers in sqrt(n) such pieces needs memory for sqrt(n) layers and one forward more. n_in 1 to 8, n_out 1 to 3; in
 * and out may be one array. A result that fn did not make (an input, a tensor that it captures) is that tensor itself.
 *
 * What else fn reads, parameters above all, it finds behind user, which lives until the backward, as do generators that are not
 * its own; gradients go there, too. fn must do the same again: it writes to nothing that was there before (running statistics
 * would move twice), registers no hook on what is neither its input nor made by it (it would be there twice), and reads nothing
 * that has changed since. WEFT_EGRAD where that shows: an input that was written to, results of other shapes. Under
 * weft_jit_trace, and where gradients are off, it is a call of fn: a trace's plan decides what it keeps. */
WEFT_API weft_status weft_remat(weft_check_fn fn, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out);

/* -- checks ---------------------------------------------------------------------------------------------
 * fn computes n_out results from n_in inputs; inputs that require a gradient must be f64. */
typedef struct weft_gradcheck_args {
    weft_check_fn fn;
    void *user;
    const weft_tensor *inputs;
    int n_in, n_out;
    double step;  /* 0: 1e-6 */
    double rtol;  /* 0: 1e-3 */
    double atol;  /* 0: 1e-5 */
    char *report; /* filled on failure: which input, element, both values; may be NULL */
    size_t report_size;
    int end_;
} weft_gradcheck_args;
/* Compares backward against central differences of fn, element by element. WEFT_EGRAD when they differ; WEFT_EINVALID: no fn, or
 * other than 1 to 8 inputs; fn's own errors. */
WEFT_API weft_status weft_gradcheck(const weft_gradcheck_args *args);
/* The same for second derivatives: gradcheck of the gradients themselves. Errors likewise. */
WEFT_API weft_status weft_gradgradcheck(const weft_gradcheck_args *args);

/* What the tape of this thread holds: nodes alive, and chunks of 256 nodes held for them. */
WEFT_API int64_t weft_tape_nodes(void);
/* Writes the recorded ops that t depends on, one a line, in the text form of the IR; names and sites of their results
 * stand behind a ';'. WEFT_EGRAD if nothing was recorded for t. */
WEFT_API weft_status weft_tape_print(FILE *out, weft_tensor t);

#ifdef __cplusplus
}
inline weft_status weft_backward(weft_tensor loss, weft_tensor gradient = WEFT_NONE,
                                 bool retain_graph = false, bool create_graph = false)
{
    weft_backward_args a = {loss, gradient, retain_graph, create_graph, 0};
    return weft_backward(&a);
}
inline weft_status weft_grad_of(const weft_tensor *outputs, int n_outputs,
                                const weft_tensor *inputs, int n_inputs, weft_tensor *grads,
                                const weft_tensor *grad_outputs = nullptr,
                                bool retain_graph = false, bool create_graph = false,
                                bool allow_unused = false)
{
    weft_grad_of_args a = {outputs,      n_outputs,    inputs,       n_inputs,     grads,
                           grad_outputs, retain_graph, create_graph, allow_unused, 0};
    return weft_grad_of(&a);
}
inline weft_status weft_jvp(const weft_tensor *outputs, int n_outputs, const weft_tensor *inputs,
                            int n_inputs, const weft_tensor *tangents, weft_tensor *results)
{
    weft_jvp_args a = {outputs, n_outputs, inputs, n_inputs, tangents, results, 0};
    return weft_jvp(&a);
}
#define WEFT_CHECK_(name)                                                                          \
    inline weft_status name(weft_check_fn fn, void *user, const weft_tensor *inputs, int n_in,     \
                            int n_out, double step = 0, double rtol = 0, double atol = 0,          \
                            char *report = nullptr, size_t report_size = 0)                        \
    {                                                                                              \
        weft_gradcheck_args a = {fn,   user, inputs, n_in,        n_out, step,                     \
                                 rtol, atol, report, report_size, 0};                              \
        return name(&a);                                                                           \
    }                                                                                              \
    WEFT_BY_STRUCT_(weft_status, name, weft_gradcheck_args)
WEFT_CHECK_(weft_gradcheck)
WEFT_CHECK_(weft_gradgradcheck)
#undef WEFT_CHECK_
WEFT_BY_STRUCT_(weft_status, weft_backward, weft_backward_args)
WEFT_BY_STRUCT_(weft_status, weft_grad_of, weft_grad_of_args)
WEFT_BY_STRUCT_(weft_status, weft_jvp, weft_jvp_args)
#endif

/* Options by name. With WEFT_NO_SITES the errors lose their file:line, the names stay. */
#ifdef WEFT_NO_SITES
#define WEFT_GRAD_S_(call) (call)
#else
#define WEFT_GRAD_S_(call) weft_sited_status(WEFT_HERE, (call))
#define weft_grad(...) weft_sited(WEFT_HERE, (weft_grad)(__VA_ARGS__))
#define weft_requires_grad_(...) WEFT_GRAD_S_((weft_requires_grad_)(__VA_ARGS__))
#define weft_set_grad(...) WEFT_GRAD_S_((weft_set_grad)(__VA_ARGS__))
#define weft_retain_grad(...) WEFT_GRAD_S_((weft_retain_grad)(__VA_ARGS__))
#define weft_register_hook(...) WEFT_Z_(uint64_t, (weft_register_hook)(__VA_ARGS__))
#define weft_register_post_hook(...) WEFT_Z_(uint64_t, (weft_register_post_hook)(__VA_ARGS__))
#define weft_remove_hook(...) WEFT_GRAD_S_((weft_remove_hook)(__VA_ARGS__))
#define weft_remat(...) WEFT_R_(WEFT_GRAD_S_((weft_remat)(__VA_ARGS__)))
#define weft_apply(...) WEFT_R_(WEFT_GRAD_S_((weft_apply)(__VA_ARGS__)))
#endif
#define weft_backward(...) WEFT_GRAD_S_((weft_backward)WEFT_ARGS_(weft_backward_args, __VA_ARGS__))
#define weft_grad_of(...)                                                                          \
    WEFT_R_(WEFT_GRAD_S_((weft_grad_of)WEFT_ARGS_(weft_grad_of_args, __VA_ARGS__)))
#define weft_jvp(...) WEFT_R_(WEFT_GRAD_S_((weft_jvp)WEFT_ARGS_(weft_jvp_args, __VA_ARGS__)))
#define weft_gradcheck(...)                                                                        \
    WEFT_GRAD_S_((weft_gradcheck)WEFT_ARGS_(weft_gradcheck_args, __VA_ARGS__))
#define weft_gradgradcheck(...)                                                                    \
    WEFT_GRAD_S_((weft_gradgradcheck)WEFT_ARGS_(weft_gradcheck_args, __VA_ARGS__))

#endif
