/*
 * eager/cuda/api.h -- the part of the CUDA driver's C interface that is used, as a table of functions.
 *
 * Declared here, and not taken from cuda.h, so that weft builds where no toolkit is and one build serves
 * machines with and without a driver. Names and numbers are those of the stable interface (12.0 and
 * later keep them); the symbols carry the version suffixes that cuda.h adds by macro. Nothing here is
 * called directly: driver.h holds the opened functions.
 */
#ifndef EAGER_CUDA_API_H
#define EAGER_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device;
typedef uint64_t cu_address; /* CUdeviceptr */
typedef struct cu_object
    *cu_handle;             /* context, stream, event, module, function, graph, graph exec */
typedef uint64_t cu_memory; /* CUmemGenericAllocationHandle */

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_DEINITIALIZED = 4,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_ECC_UNCORRECTABLE = 214,
    CU_PEER_UNSUPPORTED = 217,
    CU_NVLINK_UNCORRECTABLE = 220,
    CU_CONTAINED = 226,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_OUT_OF_RESOURCES = 701,
    CU_LAUNCH_TIMEOUT = 702,
    CU_PEER_ALREADY_ENABLED = 704,
    CU_PEER_NOT_ENABLED = 705,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_ASSERT = 710,
    CU_HARDWARE_STACK = 714,
    CU_ILLEGAL_INSTRUCTION = 715,
    CU_MISALIGNED_ADDRESS = 716,
    CU_INVALID_ADDRESS_SPACE = 717,
    CU_INVALID_PC = 718,
    CU_LAUNCH_FAILED = 719,
    CU_TENSOR_MEMORY_LEAK = 721,
    CU_NOT_SUPPORTED = 801,
    CU_CAPTURE_UNSUPPORTED = 900,
    CU_CAPTURE_INVALIDATED = 901,
    CU_CAPTURE_ISOLATION = 905,
    CU_EXTERNAL_DEVICE = 911,
    CU_UNKNOWN = 999
};

/* Attributes of a device. */
enum {
    CU_ATTR_WARP = 10,
    CU_ATTR_PROCESSORS = 16,
    CU_ATTR_L2 = 38,
    CU_ATTR_THREADS_PER_PROCESSOR = 39,
    CU_ATTR_MAJOR = 75,
    CU_ATTR_MINOR = 76,
    CU_ATTR_SHARED_OPTIN = 97,
    CU_ATTR_VIRTUAL_MEMORY = 102
};

enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_TIMED = 0, CU_EVENT_UNTIMED = 2 };
enum { CU_HOST_PORTABLE = 1, CU_HOST_MAPPED = 2 };
/* CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES, _MAX_DYNAMIC_SHARED_SIZE_BYTES. */
enum { CU_FN_THREADS = 0, CU_FN_SHARED_STATIC = 1, CU_FN_SHARED_DYNAMIC = 8 };
/* Neither this thread nor another one is kept from calls that a capture of another mode forbids: kernels are compiled and loaded,
 * and memory is had, while one is recorded. */
enum { CU_CAPTURE_RELAXED = 2 };
enum { CU_CAPTURE_ACTIVE = 1 }; /* of a stream */

typedef struct cu_location {
    int type; /* CU_LOCATION_DEVICE */
    int id;
} cu_location;
enum { CU_LOCATION_DEVICE = 1, CU_ALLOCATION_PINNED = 1, CU_ACCESS_READ_WRITE = 3 };
typedef struct cu_memory_props {
    int type; /* CU_ALLOCATION_PINNED */
    int handle_types;
    cu_location location;
    void *unused;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} cu_memory_props;
typedef struct cu_access {
    cu_location location;
    int flags;
} cu_access;
/* CUDA_KERNEL_NODE_PARAMS_v2 */
typedef struct cu_kernel_node {
    cu_handle function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    cu_handle kernel, context;
} cu_kernel_node;

/* CUlaunchAttribute, CUlaunchConfig */
enum { CU_LAUNCH_OVERLAPS = 6 }; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
typedef struct cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int overlaps;
    } value;
} cu_launch_attribute;
typedef struct cu_launch_config {
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    cu_launch_attribute *attributes;
    unsigned n;
} cu_launch_config;

/* F(field, symbol, parameters). Without one of these the driver is too old. */
#define CU_FUNCTIONS(F)                                                                            \
    F(init, "cuInit", (unsigned flags))                                                            \
    F(driver_version, "cuDriverGetVersion", (int *version))                                        \
    F(error_name, "cuGetErrorName", (cu_result error, const char **name))                          \
    F(device_count, "cuDeviceGetCount", (int *count))                                              \
    F(device_get, "cuDeviceGet", (cu_device * device, int ordinal))                                \
    F(device_name, "cuDeviceGetName", (char *name, int size, cu_device device))                    \
    F(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device device))                    \
    F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))     \
    F(context_retain, "cuDevicePrimaryCtxRetain", (cu_handle * context, cu_device device))         \
    F(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                         \
    F(context_set, "cuCtxSetCurrent", (cu_handle context))                                         \
    F(stream_create, "cuStreamCreate", (cu_handle * stream, unsigned flags))                       \
    F(stream_destroy, "cuStreamDestroy_v2", (cu_handle stream))                                    \
    F(stream_wait, "cuStreamWaitEvent", (cu_handle stream, cu_handle event, unsigned flags))       \
    F(stream_query, "cuStreamQuery", (cu_handle stream))                                           \
    F(stream_synchronize, "cuStreamSynchronize", (cu_handle stream))                               \
    F(event_create, "cuEventCreate", (cu_handle * event, unsigned flags))                          \
    F(event_destroy, "cuEventDestroy_v2", (cu_handle event))                                       \
    F(event_record, "cuEventRecord", (cu_handle event, cu_handle stream))                          \
    F(event_query, "cuEventQuery", (cu_handle event))                                              \
    F(event_synchronize, "cuEventSynchronize", (cu_handle event))                                  \
    F(event_elapsed, "cuEventElapsedTime", (float *ms, cu_handle begin, cu_handle end))            \
    F(memory_info, "cuMemGetInfo_v2", (size_t * unused, size_t * total))                           \
    F(memory_alloc, "cuMemAlloc_v2", (cu_address * address, size_t size))                          \
    F(memory_free, "cuMemFree_v2", (cu_address address))                                           \
    F(host_alloc, "cuMemHostAlloc", (void **address, size_t size, unsigned flags))                 \
    F(host_free, "cuMemFreeHost", (void *address))                                                 \
    F(host_device_address, "cuMemHostGetDevicePointer_v2",                                         \
      (cu_address * device, void *address, unsigned flags))                                        \
    F(copy_in, "cuMemcpyHtoDAsync_v2",                                                             \
      (cu_address dst, const void *src, size_t size, cu_handle stream))                            \
    F(copy_out, "cuMemcpyDtoHAsync_v2",                                                            \
      (void *dst, cu_address src, size_t size, cu_handle stream))                                  \
    F(copy, "cuMemcpyDtoDAsync_v2",                                                                \
      (cu_address dst, cu_address src, size_t size, cu_handle stream))                             \
    F(copy_peer, "cuMemcpyPeerAsync",                                                              \
      (cu_address dst, cu_handle dst_context, cu_address src, cu_handle src_context, size_t size,  \
       cu_handle stream))                                                                          \
    F(set_bytes, "cuMemsetD8Async",                                                                \
      (cu_address dst, unsigned char value, size_t n, cu_handle stream))                           \
    F(module_load, "cuModuleLoadData", (cu_handle * module, const void *image))                    \
    F(module_unload, "cuModuleUnload", (cu_handle module))                                         \
    F(module_function, "cuModuleGetFunction",                                                      \
      (cu_handle * function, cu_handle module, const char *name))                                  \
    F(function_set, "cuFuncSetAttribute", (cu_handle function, int attribute, int value))          \
    F(function_get, "cuFuncGetAttribute", (int *value, int attribute, cu_handle function))         \
    F(launch, "cuLaunchKernel",                                                                    \
      (cu_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
       unsigned block_y, unsigned block_z, unsigned shared, cu_handle stream, void **params,       \
       void **extra))

/* These may be missing; what they make possible is then done another way or refused. */
#define CU_OPTIONAL_FUNCTIONS(F)                                                                   \
    F(launch_ex, "cuLaunchKernelEx",                                                               \
      (const cu_launch_config *config, cu_handle function, void **params, void **extra))           \
    F(peer_can, "cuDeviceCanAccessPeer", (int *can, cu_device device, cu_device peer))             \
    F(peer_enable, "cuCtxEnablePeerAccess", (cu_handle peer_context, unsigned flags))              \
    F(vm_granularity, "cuMemGetAllocationGranularity",                                             \
      (size_t * granularity, const cu_memory_props *props, int option))                            \
    F(vm_reserve, "cuMemAddressReserve",                                                           \
      (cu_address * address, size_t size, size_t alignment, cu_address wish, uint64_t flags))      \
    F(vm_unreserve, "cuMemAddressFree", (cu_address address, size_t size))                         \
    F(vm_create, "cuMemCreate",                                                                    \
      (cu_memory * memory, size_t size, const cu_memory_props *props, uint64_t flags))             \
    F(vm_release, "cuMemRelease", (cu_memory memory))                                              \
    F(vm_map, "cuMemMap",                                                                          \
      (cu_address address, size_t size, size_t offset, cu_memory memory, uint64_t flags))          \
    F(vm_unmap, "cuMemUnmap", (cu_address address, size_t size))                                   \
    F(vm_access, "cuMemSetAccess",                                                                 \
      (cu_address address, size_t size, const cu_access *access, size_t n))                        \
    F(capture_begin, "cuStreamBeginCapture_v2", (cu_handle stream, int mode))                      \
    F(capture_end, "cuStreamEndCapture", (cu_handle stream, cu_handle * graph))                    \
    F(graph_instantiate, "cuGraphInstantiateWithFlags",                                            \
      (cu_handle * exec, cu_handle graph, uint64_t flags))                                         \
    F(graph_launch, "cuGraphLaunch", (cu_handle exec, cu_handle stream))                           \
    F(capture_info, "cuStreamGetCaptureInfo_v2",                                                   \
      (cu_handle stream, int *status, uint64_t *id, cu_handle *graph, const cu_handle **nodes,     \
       size_t *n))                                                                                 \
    F(graph_set_kernel, "cuGraphExecKernelNodeSetParams_v2",                                       \
      (cu_handle exec, cu_handle node, const cu_kernel_node *params))                              \
    F(graph_exec_destroy, "cuGraphExecDestroy", (cu_handle exec))                                  \
    F(graph_destroy, "cuGraphDestroy", (cu_handle graph))

#endif
