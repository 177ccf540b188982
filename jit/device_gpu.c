/*
 * jit/device_gpu.c -- the table of a GPU (eager/device.h): the CUDA runtime's memory and streams, generated kernels.
 */
#include "eager/cuda/runtime.h"
#include "eager/device.h"
#include "eager/env.h"
#include "jit/device_rows.h"
#include "jit/diskcache.h"
#include "jit/gpu/gpu.h"

/* -- plans of libraries, beside the kernels on disk */

static void *get_kept(const void *identity, size_t n, size_t *size)
{
    wf_blob b = {0};
    bool found = wf_disk_get(identity, n, &b);
    *size = found ? b.size : 0;
    return found ? b.data : NULL;
}

static void put_kept(const void *identity, size_t n, const void *object, size_t size)
{
    wf_disk_put(identity, n, &(wf_blob){.data = (void *)(uintptr_t)object, .size = size});
}

static int open_gpu(int ordinal, wf_why *why)
{
    static const wf_cuda_store store = {get_kept, put_kept};
    if (!wf_cuda_get_store()) {
        wf_cuda_set_store(&store);
    }
    return wf_cuda_open(ordinal, why);
}

static void *alloc(int ordinal, size_t nbytes, void **address, wf_why *why)
{
    wf_cuda_block *b = wf_cuda_alloc(ordinal, nbytes, why);
    if (b) {
        *address = b->address;
    }
    return b;
}

static void free_block(void *block)
{
    wf_cuda_free(block);
}

static int use(void *block, bool write, wf_why *why)
{
    return wf_cuda_use(block, write, why);
}

static bool spoilt(void *block, wf_op *op, const char **site)
{
    return wf_cuda_spoilt(block, op, site);
}

/* Waiting after each kernel and telling whose error it is, and looking at what each wrote, goes with launches of their own only, and
 * memory that goes back at once with memory that is handed out for one use. */
static int graphs_wanted(void)
{
    const wf_env_values *env = wf_env();
    bool none = env->WEFT_CUDA_BLOCKING || env->WEFT_CUDA_MEMCHECK || env->WEFT_VALIDATE ||
                env->WEFT_CUDA_GRAPHS < 0;
    return none ? 0 : (int)env->WEFT_CUDA_GRAPHS;
}

static int end_capture(int ordinal, bool drop, void **graph, wf_why *why)
{
    wf_cuda_graph *g = NULL;
    int code = wf_cuda_capture_end(ordinal, drop, &g, why);
    *graph = g;
    return code;
}

static int launch_graph(void *graph, wf_why *why)
{
    return wf_cuda_graph_launch(graph, why);
}

static int renew_graph(void *graph, bool on, wf_why *why)
{
    return wf_cuda_graph_renew(graph, on, why);
}

static bool borrow(void *block)
{
    return wf_cuda_borrow(block);
}

static void free_graph(void *graph)
{
    wf_cuda_graph_free(graph);
}

static const wf_device_graphs graphs = {.wanted = graphs_wanted,
                                        .begin = wf_cuda_capture_begin,
                                        .end = end_capture,
                                        .launch = launch_graph,
                                        .free = free_graph,
                                        .mark = wf_cuda_capture_mark,
                                        .renew = renew_graph,
                                        .borrow = borrow,
                                        .unsettled = wf_gpu_unsettled};

const wf_device_ops wf_device_gpu = {.name = "cuda",
                                     .open = open_gpu,
                                     .alloc = alloc,
                                     .free = free_block,
                                     .use = use,
                                     .spoilt = spoilt,
                                     .upload = wf_cuda_upload,
                                     .download = wf_cuda_download,
                                     .synchronize = wf_cuda_synchronize,
                                     .program = wf_gpu_program,
                                     .programs = wf_gpu_programs,
                                     .copy = wf_gpu_copy,
                                     .fill = wf_gpu_fill,
                                     .row = wf_gpu_row,
                                     .composite = wf_device_composite,
                                     .graphs = &graphs,
                                     .host_alloc = wf_cuda_host_alloc,
                                     .host_free = wf_cuda_pinned_free,
                                     .download_later = wf_cuda_download_later,
                                     .arrive = wf_cuda_arrive,
                                     .across = wf_cuda_copy_across};
