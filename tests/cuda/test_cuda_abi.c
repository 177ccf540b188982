/*
 * tests/cuda/test_cuda_abi.c -- our own declarations of the CUDA driver's interface (eager/cuda/api.h) are those of the
 * toolkit's cuda.h, where the build finds it.
 *
 * The comparison is made by the compiler: numbers and layouts by assertions, functions by casts, which
 * -Wcast-function-type refuses between types that are not called alike.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stddef.h>

#define CU_STREAM_NON_BLOCKING MINE_NON_BLOCKING
#include "eager/cuda/api.h"
#undef CU_STREAM_NON_BLOCKING

#ifdef WEFT_HAVE_CUDA_H
#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #mine);
SAME(CU_OK, CUDA_SUCCESS)
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME(CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED)
SAME(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED)
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
SAME(CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE)
SAME(CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE)
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)
SAME(CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU)
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE)
SAME(CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
SAME(CU_PEER_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
SAME(CU_PEER_NOT_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
SAME(CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE)
SAME(CU_CONTAINED, CUDA_ERROR_CONTAINED)
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE)
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY)
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)
SAME(CU_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
SAME(CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT)
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED)
SAME(CU_ASSERT, CUDA_ERROR_ASSERT)
SAME(CU_HARDWARE_STACK, CUDA_ERROR_HARDWARE_STACK_ERROR)
SAME(CU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION)
SAME(CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS)
SAME(CU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE)
SAME(CU_INVALID_PC, CUDA_ERROR_INVALID_PC)
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)
SAME(CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK)
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)
SAME(CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
SAME(CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
SAME(CU_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
SAME(CU_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE)
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN)
SAME(CU_ATTR_WARP, CU_DEVICE_ATTRIBUTE_WARP_SIZE)
SAME(CU_ATTR_PROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME(CU_ATTR_L2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
SAME(CU_ATTR_THREADS_PER_PROCESSOR, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
SAME(CU_ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME(CU_ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME(CU_ATTR_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
SAME(CU_ATTR_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
SAME(MINE_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
SAME(CU_EVENT_TIMED, CU_EVENT_DEFAULT)
SAME(CU_EVENT_UNTIMED, CU_EVENT_DISABLE_TIMING)
SAME(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
SAME(CU_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP)
SAME(CU_FN_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)
SAME(CU_FN_SHARED_STATIC, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
SAME(CU_FN_SHARED_DYNAMIC, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)
SAME(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
SAME(sizeof(cu_memory_props), sizeof(CUmemAllocationProp))
SAME(sizeof(cu_access), sizeof(CUmemAccessDesc))
SAME(offsetof(cu_memory_props, location), offsetof(CUmemAllocationProp, location))
SAME(offsetof(cu_memory_props, flags), offsetof(CUmemAllocationProp, allocFlags))
SAME(offsetof(cu_memory_props, type), offsetof(CUmemAllocationProp, type))
SAME(offsetof(cu_memory_props, handle_types), offsetof(CUmemAllocationProp, requestedHandleTypes))
SAME(sizeof(cu_location), sizeof(CUmemLocation))
SAME(offsetof(cu_location, type), offsetof(CUmemLocation, type))
SAME(offsetof(cu_location, id), offsetof(CUmemLocation, id))
SAME(offsetof(cu_access, location), offsetof(CUmemAccessDesc, location))
SAME(offsetof(cu_access, flags), offsetof(CUmemAccessDesc, flags))
SAME(sizeof(cu_address), sizeof(CUdeviceptr))
SAME(sizeof(cu_memory), sizeof(CUmemGenericAllocationHandle))
SAME(CU_LAUNCH_OVERLAPS, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
SAME(sizeof(cu_launch_attribute), sizeof(CUlaunchAttribute))
SAME(offsetof(cu_launch_attribute, value), offsetof(CUlaunchAttribute, value))
SAME(sizeof(((cu_launch_attribute *)0)->value), sizeof(CUlaunchAttributeValue))
SAME(sizeof(cu_launch_config), sizeof(CUlaunchConfig))
SAME(offsetof(cu_launch_config, grid), offsetof(CUlaunchConfig, gridDimX))
SAME(offsetof(cu_launch_config, block), offsetof(CUlaunchConfig, blockDimX))
SAME(offsetof(cu_launch_config, shared), offsetof(CUlaunchConfig, sharedMemBytes))
SAME(offsetof(cu_launch_config, stream), offsetof(CUlaunchConfig, hStream))
SAME(offsetof(cu_launch_config, attributes), offsetof(CUlaunchConfig, attrs))
SAME(offsetof(cu_launch_config, n), offsetof(CUlaunchConfig, numAttrs))
SAME(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE)
SAME(sizeof(cu_kernel_node), sizeof(CUDA_KERNEL_NODE_PARAMS_v2))
SAME(offsetof(cu_kernel_node, function), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, func))
SAME(offsetof(cu_kernel_node, grid), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX))
SAME(offsetof(cu_kernel_node, shared), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes))
SAME(offsetof(cu_kernel_node, extra), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, extra))
SAME(offsetof(cu_kernel_node, kernel), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern))
SAME(offsetof(cu_kernel_node, block), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, blockDimX))
SAME(offsetof(cu_kernel_node, params), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams))
SAME(offsetof(cu_kernel_node, context), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, ctx))

/* The functions of the tables, by the names that cuda.h declares. */
#define FUNCTIONS(F)                                                                               \
    F(init, cuInit)                                                                                \
    F(driver_version, cuDriverGetVersion)                                                          \
    F(error_name, cuGetErrorName)                                                                  \
    F(device_count, cuDeviceGetCount)                                                              \
    F(device_get, cuDeviceGet)                                                                     \
    F(device_name, cuDeviceGetName)                                                                \
    F(device_memory, cuDeviceTotalMem_v2)                                                          \
    F(device_attribute, cuDeviceGetAttribute)                                                      \
    F(context_retain, cuDevicePrimaryCtxRetain)                                                    \
    F(context_release, cuDevicePrimaryCtxRelease_v2)                                               \
    F(context_set, cuCtxSetCurrent)                                                                \
    F(stream_create, cuStreamCreate)                                                               \
    F(stream_destroy, cuStreamDestroy_v2)                                                          \
    F(stream_wait, cuStreamWaitEvent)                                                              \
    F(stream_query, cuStreamQuery)                                                                 \
    F(stream_synchronize, cuStreamSynchronize)                                                     \
    F(event_create, cuEventCreate)                                                                 \
    F(event_destroy, cuEventDestroy_v2)                                                            \
    F(event_record, cuEventRecord)                                                                 \
    F(event_query, cuEventQuery)                                                                   \
    F(event_synchronize, cuEventSynchronize)                                                       \
    F(event_elapsed, cuEventElapsedTime)                                                           \
    F(memory_info, cuMemGetInfo_v2)                                                                \
    F(memory_alloc, cuMemAlloc_v2)                                                                 \
    F(memory_free, cuMemFree_v2)                                                                   \
    F(host_alloc, cuMemHostAlloc)                                                                  \
    F(host_free, cuMemFreeHost)                                                                    \
    F(host_device_address, cuMemHostGetDevicePointer_v2)                                           \
    F(copy_in, cuMemcpyHtoDAsync_v2)                                                               \
    F(copy_out, cuMemcpyDtoHAsync_v2)                                                              \
    F(copy, cuMemcpyDtoDAsync_v2)                                                                  \
    F(copy_peer, cuMemcpyPeerAsync)                                                                \
    F(set_bytes, cuMemsetD8Async)                                                                  \
    F(module_load, cuModuleLoadData)                                                               \
    F(module_unload, cuModuleUnload)                                                               \
    F(module_function, cuModuleGetFunction)                                                        \
    F(function_set, cuFuncSetAttribute)                                                            \
    F(function_get, cuFuncGetAttribute)                                                            \
    F(launch_ex, cuLaunchKernelEx)                                                                 \
    F(launch, cuLaunchKernel)                                                                      \
    F(peer_can, cuDeviceCanAccessPeer)                                                             \
    F(peer_enable, cuCtxEnablePeerAccess)                                                          \
    F(vm_granularity, cuMemGetAllocationGranularity)                                               \
    F(vm_reserve, cuMemAddressReserve)                                                             \
    F(vm_unreserve, cuMemAddressFree)                                                              \
    F(vm_create, cuMemCreate)                                                                      \
    F(vm_release, cuMemRelease)                                                                    \
    F(vm_map, cuMemMap)                                                                            \
    F(vm_unmap, cuMemUnmap)                                                                        \
    F(vm_access, cuMemSetAccess)                                                                   \
    F(capture_begin, cuStreamBeginCapture_v2)                                                      \
    F(capture_end, cuStreamEndCapture)                                                             \
    F(graph_instantiate, cuGraphInstantiateWithFlags)                                              \
    F(graph_launch, cuGraphLaunch)                                                                 \
    F(graph_set_kernel, cuGraphExecKernelNodeSetParams_v2)                                         \
    F(graph_exec_destroy, cuGraphExecDestroy)                                                      \
    F(graph_destroy, cuGraphDestroy)                                                               \
    F(capture_info,                                                                                \
      (PFN_cuStreamGetCaptureInfo_v11030)NULL) /* versioned: the toolkit's type of it */

#define TABLE(F) CU_FUNCTIONS(F) CU_OPTIONAL_FUNCTIONS(F)
#define RESULT cu_result
#include "tests/cuda/abi_table.h"
#endif

Test(cuda_abi, declarations_are_those_of_the_toolkit)
{
#ifndef WEFT_HAVE_CUDA_H
    cr_skip_test("no cuda.h: install the CUDA toolkit, or set CUDA_HOME");
#else
    cr_assert_eq(casts[0], sizeof(void *));
    cr_assert_eq(sizeof casts / sizeof *casts, sizeof(table) / sizeof(void *),
                 "a function of api.h is not compared");
#endif
}

/* The toolkit's stand-in for the driver lists what one of its release exports: the names by which we look functions up. */
Test(cuda_abi, a_driver_of_the_toolkits_release_has_the_functions)
{
#ifndef WEFT_HAVE_CUDA_H
    cr_skip_test("no cuda.h: install the CUDA toolkit, or set CUDA_HOME");
#else
    void *stub = dlopen(WEFT_CUDA_INCLUDE "/../lib64/stubs/libcuda.so", RTLD_LAZY | RTLD_LOCAL);
    if (!stub) {
        cr_skip_test("the toolkit has no stubs/libcuda.so");
    }
#define F(field, symbol, params) cr_assert(dlsym(stub, symbol), "%s", symbol);
    CU_FUNCTIONS(F)
    CU_OPTIONAL_FUNCTIONS(F)
#undef F
#endif
}
