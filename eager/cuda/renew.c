/*
 * eager/cuda/renew.c -- captured graphs whose kernels take other numbers in later launches.
 *
 * A learning rate is an argument of a kernel, and so it is in the graph. While a capture is recorded, calls may be marked:
 * kernels with their nodes, memory and error words with their addresses. Later the same code makes the same calls once more,
 * with this launch's numbers, and nothing is queued: memory and words are what they were, and the kernels' nodes take the new
 * arguments. So nobody has to know which word of an argument a number became. Launches under way keep what they were queued
 * with (the driver promises that). A call that is not the one that was recorded is refused, and the graph is not launched.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/cuda/graph.h"
#include "weft/core.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

enum { KERNEL, MEMORY, WORD, WRITE };
enum { FAILED = INT32_MAX }; /* as the next mark: whatever is called instead is refused, too */
_Thread_local wf_cuda_graph *wf_cuda_renewed;

/* -- while it is recorded -------------------------------------------------------------------------------------- */

int wf_cuda_capture_mark(int ordinal, bool on, wf_why *why)
{
    wf_cuda_device *d = wf_cuda_enter(ordinal, why);
    wf_cuda_stream *s = d ? wf_cuda_current(d, why) : NULL;
    wf_cuda_graph *g = s ? s->capture : NULL;
    if (!g) {
        return s ? wf_fail(why, WEFT_EINVALID, "this thread records no graph of cuda:%d", ordinal)
                 : wf_cuda_code(why);
    }
    if (!wf_cu->capture_info || !wf_cu->graph_set_kernel) {
        return wf_fail(why, WEFT_EUNSUPPORTED, "the CUDA driver cannot change a graph's arguments");
    }
    g->marking = on;
    return 0;
}

/* The call is recorded: whoever is told must not make another of it instead. */
static int spoil(wf_cuda_graph *g, const wf_why *local, wf_why *why)
{
    g->failed = g->failed.code ? g->failed : *local;
    if (why) {
        *why = *local;
    }
    return local->code;
}

static int add(wf_cuda_graph *g, const wf_cuda_mark *m, wf_why *why)
{
    if (g->n_marks == g->mark_room) {
        int room = g->mark_room ? 2 * g->mark_room : 16;
        wf_cuda_mark *more = wf_realloc(g->marks, (size_t)room * sizeof *more);
        if (!more) {
            wf_why local = {0};
            wf_fail(&local, WEFT_ENOMEM, "no host memory for a graph");
            return spoil(g, &local, why);
        }
        g->marks = more;
        g->mark_room = room;
    }
    g->marks[g->n_marks++] = *m;
    return 0;
}

/* The node that s, which records, has just been given is what its next one would come behind. */
int wf_cuda_mark_kernel(wf_cuda_stream *s, const wf_cuda_fn *f, unsigned shared, wf_why *why)
{
    int status = 0;
    uint64_t id = 0;
    cu_handle graph = NULL;
    const cu_handle *nodes = NULL;
    size_t n = 0;
    wf_why local = {0};
    int code =
        wf_cuda_check(s->device, wf_cu->capture_info(s->handle, &status, &id, &graph, &nodes, &n),
                      "cuStreamGetCaptureInfo", &local);
    if (!code && (status != CU_CAPTURE_ACTIVE || n != 1)) {
        code = wf_fail(&local, WEFT_EUNSUPPORTED, "a captured kernel cannot be told from others");
    }
    const wf_cuda_mark m = {
        .kind = KERNEL, .what = f, .node = code ? NULL : nodes[0], .size = shared};
    return code ? spoil(s->capture, &local, why) : add(s->capture, &m, why);
}

int wf_cuda_mark_memory(wf_cuda_graph *g, void *address, size_t size, wf_why *why)
{
    return add(g, &(wf_cuda_mark){.kind = MEMORY, .address = address, .size = size}, why);
}

int wf_cuda_mark_word(wf_cuda_graph *g, void *address, wf_why *why)
{
    return add(g, &(wf_cuda_mark){.kind = WORD, .address = address}, why);
}

int wf_cuda_mark_write(wf_cuda_graph *g, const void *address, size_t size, wf_why *why)
{
    return add(g, &(wf_cuda_mark){.kind = WRITE, .what = address, .size = size}, why);
}

/* -- later ------------------------------------------------------------------------------------------------------- */

int wf_cuda_graph_renew(wf_cuda_graph *g, bool on, wf_why *why)
{
    if (on) {
        wf_cuda_device *d = wf_cuda_enter(g->device->ordinal, why);
        g->at = 0;
        wf_cuda_renewed = d ? g : NULL;
        return d ? 0 : wf_cuda_code(why);
    }
    wf_cuda_renewed = NULL;
    return g->at == g->n_marks ? 0
                               : wf_fail(why, WEFT_EUNSUPPORTED,
                                         "other calls are made than a graph was recorded from");
}

/* The mark of the call that is made; NULL: it is another one's. */
static const wf_cuda_mark *next(int kind, const void *what, size_t size, wf_why *why)
{
    wf_cuda_graph *g = wf_cuda_renewed;
    const wf_cuda_mark *m = g->at < g->n_marks ? &g->marks[g->at] : NULL;
    if (!m || m->kind != kind || m->what != what || m->size != size) {
        g->at = FAILED;
        wf_fail(why, WEFT_EUNSUPPORTED, "other calls are made than a graph was recorded from");
        return NULL;
    }
    g->at++;
    return m;
}

int wf_cuda_renew_kernel(const wf_cuda_fn *f, cu_handle function, const unsigned grid[3],
                         const unsigned block[3], unsigned shared, void **params, wf_why *why)
{
    const wf_cuda_mark *m = next(KERNEL, f, shared, why);
    if (!m) {
        return wf_cuda_code(why);
    }
    const cu_kernel_node node = {.function = function,
                                 .grid = {grid[0], grid[1], grid[2]},
                                 .block = {block[0], block[1], block[2]},
                                 .shared = shared,
                                 .params = params};
    wf_cuda_graph *g = wf_cuda_renewed;
    int code = wf_cuda_check(g->device, wf_cu->graph_set_kernel(g->exec, m->node, &node),
                             "cuGraphExecKernelNodeSetParams", why);
    g->at = code ? FAILED : g->at;
    return code;
}

wf_cuda_block *wf_cuda_renew_memory(int ordinal, size_t size, wf_why *why)
{
    const wf_cuda_mark *m = next(MEMORY, NULL, size, why);
    return m ? wf_cuda_block_echo(ordinal, m->address, size, why) : NULL;
}

int wf_cuda_renew_word(void **address, wf_why *why)
{
    const wf_cuda_mark *m = next(WORD, NULL, 0, why);
    *address = m ? m->address : NULL;
    return m ? 0 : wf_cuda_code(why);
}

int wf_cuda_renew_write(const void *address, size_t size, wf_why *why)
{
    return next(WRITE, address, size, why) ? 0 : wf_cuda_code(why);
}
