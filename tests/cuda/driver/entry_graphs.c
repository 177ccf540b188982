/*
 * tests/cuda/driver/entry_graphs.c -- the exported functions of virtual memory and of graphs; see entry.c.
 */
#include "tests/cuda/driver/entry.h"

/* -- virtual memory --------------------------------------------------------------------------------- */

EXPORT cu_result cuMemGetAllocationGranularity(size_t *granularity, const cu_memory_props *props,
                                               int option)
{
    ENTER(vm_granularity);
    *granularity = (size_t)2 << 20;
    bool ok = props->type == CU_ALLOCATION_PINNED && props->location.type == CU_LOCATION_DEVICE;
    return leave(!fake.vm ? CU_NOT_SUPPORTED : ok && option <= 1 ? CU_OK : CU_INVALID_VALUE);
}

EXPORT cu_result cuMemAddressReserve(cu_address *address, size_t size, size_t alignment,
                                     cu_address wish, uint64_t flags)
{
    ENTER(vm_reserve);
    return leave(flags || wish ? CU_INVALID_VALUE : memory_reserve(size, alignment, address));
}

EXPORT cu_result cuMemAddressFree(cu_address address, size_t size)
{
    ENTER(vm_unreserve);
    return leave(memory_unreserve(address, size));
}

EXPORT cu_result cuMemCreate(cu_memory *memory, size_t size, const cu_memory_props *props,
                             uint64_t flags)
{
    ENTER_CONTEXT(vm_create);
    bool ok = !flags && props->type == CU_ALLOCATION_PINNED && props->location.id < fake.devices;
    return leave(ok ? memory_create(props->location.id, size, memory) : CU_INVALID_VALUE);
}

EXPORT cu_result cuMemRelease(cu_memory memory)
{
    ENTER(vm_release);
    return leave(memory_release(memory));
}

EXPORT cu_result cuMemMap(cu_address address, size_t size, size_t offset, cu_memory memory,
                          uint64_t flags)
{
    ENTER(vm_map);
    return leave(offset || flags ? CU_INVALID_VALUE : memory_map(address, size, memory));
}

EXPORT cu_result cuMemUnmap(cu_address address, size_t size)
{
    ENTER(vm_unmap);
    return leave(memory_unmap(address, size)); /* does not wait: that is the caller's to do */
}

EXPORT cu_result cuMemSetAccess(cu_address address, size_t size, const cu_access *access, size_t n)
{
    ENTER(vm_access);
    cu_result r = n ? CU_OK : CU_INVALID_VALUE;
    for (size_t i = 0; i < n && r == CU_OK; i++) {
        const cu_location *at = &access[i].location;
        bool ok = access[i].flags == CU_ACCESS_READ_WRITE && at->type == CU_LOCATION_DEVICE &&
                  at->id >= 0 && at->id < fake.devices && (i == 0 || !fake.no_peers);
        r = ok ? memory_access(address, size, at->id) : CU_INVALID_VALUE;
    }
    return leave(r);
}

/* -- graphs ----------------------------------------------------------------------------------------- */

EXPORT cu_result cuStreamBeginCapture_v2(cu_handle sh, int mode)
{
    ENTER_CONTEXT(capture_begin);
    stream *s = handle_get(sh, STREAM);
    graph *g = NULL;
    /* in another mode calls that weft makes while it records would be refused, of other threads, too */
    return leave(!s                           ? CU_INVALID_HANDLE
                 : mode != CU_CAPTURE_RELAXED ? CU_CAPTURE_UNSUPPORTED
                                              : graph_begin(s, &g));
}

EXPORT cu_result cuStreamEndCapture(cu_handle sh, cu_handle *out)
{
    ENTER_CONTEXT(capture_end);
    stream *s = handle_get(sh, STREAM);
    graph *g = NULL;
    cu_result r = s ? graph_end(s, &g) : CU_INVALID_HANDLE;
    *out = r == CU_OK ? handle_new(GRAPH, g) : NULL;
    return leave(r);
}

EXPORT cu_result cuGraphInstantiateWithFlags(cu_handle *out, cu_handle gh, uint64_t flags)
{
    ENTER_CONTEXT(graph_instantiate);
    const graph *g = handle_get(gh, GRAPH);
    graph *copy = NULL;
    cu_result r = g && !flags ? graph_copy(g, &copy) : CU_INVALID_VALUE;
    *out = r == CU_OK ? handle_new(EXEC, copy) : NULL;
    return leave(r);
}

EXPORT cu_result cuGraphLaunch(cu_handle eh, cu_handle sh)
{
    ENTER_CONTEXT(graph_launch);
    const graph *g = handle_get(eh, EXEC);
    stream *s = handle_get(sh, STREAM);
    bool fit = g && s && s->device == current_device() && g->device == s->device;
    return leave(fit ? graph_run(s, g) : CU_INVALID_HANDLE);
}

EXPORT cu_result cuStreamGetCaptureInfo_v2(cu_handle sh, int *status, uint64_t *id,
                                           cu_handle *graph_out, const cu_handle **nodes, size_t *n)
{
    ENTER_CONTEXT(capture_info);
    const stream *s = handle_get(sh, STREAM);
    cu_handle *newest = NULL;
    if (!s) {
        return leave(CU_INVALID_HANDLE);
    }
    *status = s->capture ? CU_CAPTURE_ACTIVE : 0;
    *id = 1;
    *graph_out = NULL;
    cu_result r = s->capture ? graph_newest(s->capture, &newest) : CU_OK;
    *nodes = newest;
    *n = newest != NULL;
    return leave(r);
}

EXPORT cu_result cuGraphExecKernelNodeSetParams_v2(cu_handle eh, cu_handle nh,
                                                   const cu_kernel_node *params)
{
    ENTER_CONTEXT(graph_set_kernel);
    graph *g = handle_get(eh, EXEC);
    const op *node = handle_get(nh, NODE); /* dead with the recording */
    return leave(g && node ? graph_set(g, node, params) : CU_INVALID_VALUE);
}

static cu_result destroy_graph(cu_handle h, enum kind kind)
{
    graph *g = handle_get(h, kind);
    if (!g) {
        return CU_INVALID_HANDLE;
    }
    graph_free(g);
    handle_drop(h);
    return CU_OK;
}

EXPORT cu_result cuGraphExecDestroy(cu_handle h)
{
    ENTER(graph_exec_destroy);
    return leave(destroy_graph(h, EXEC));
}

EXPORT cu_result cuGraphDestroy(cu_handle h)
{
    ENTER(graph_destroy);
    return leave(destroy_graph(h, GRAPH));
}
