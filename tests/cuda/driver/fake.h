/*
 * tests/cuda/driver/fake.h -- a CUDA driver whose device is the host, for tests.
 *
 * The shared library libfake-cuda.so exports the driver functions of eager/cuda/api.h. A test starts with
 *
 *     const fake_driver *gpu = fake_cuda(FAKE_RANDOM, seed);     before anything touches weft
 *     if (!gpu) cr_skip_test("no fake driver");
 *
 * which points WEFT_CUDA_DRIVER at it; the runtime then opens it through the ordinary path. Or, from a
 * shell: WEFT_CUDA_DRIVER=build/release/tests/libfake-cuda.so, with FAKE_CUDA_ORDER=late, FAKE_CUDA_SEED=7,
 * FAKE_CUDA_DEVICES=2, FAKE_CUDA_MEMORY=bytes, FAKE_CUDA_GUARD=0, FAKE_CUDA_VM=0, FAKE_CUDA_VERSION=11080 (of the driver),
 * FAKE_CUDA_ARCH=61 (sm_61), FAKE_CUDA_PROCESSORS=132 in the environment.
 *
 * Order of execution. FAKE_IMMEDIATE: work runs when it is queued. FAKE_LATE: nothing runs before
 * somebody waits for it, and then only what that needs. FAKE_RANDOM: whenever the driver is entered, a
 * random number of pieces from random streams. All three keep what CUDA promises (order within a stream,
 * waits for events, synchronisation) and nothing more, so a forgotten wait computes with stale bytes.
 *
 * Guard (on by default): device memory is PROT_NONE but while queued work runs, so the host following a
 * device pointer crashes. Memory is filled with 0xA5 when handed out and dropped when freed.
 *
 * Images (cuModuleLoadData). (a) The text "fake-cuda": kernels built in, for tests of the runtime:
 *     fill_i32(dst, i64 n, i32 value)   add_i32(dst, a, b, i64 n)   store_i64(dst, i64 value)   crash()
 * (b) The bytes of a shared object, as the fake NVRTC makes them. It is opened and must export
 *     int wf_shim_launch(const char *kernel, const unsigned grid[3], const unsigned block[3],
 *                        unsigned shared_bytes, void **params);           0, or a CUresult
 *     int wf_shim_has(const char *kernel);                                1: it has it
 * and, for launches to be executed late, since arguments are copied when the launch is queued:
 *     int wf_shim_param_size(const char *kernel, int i);                  bytes of argument i; 0 past the end
 *     int wf_shim_attribute(const char *kernel, int attribute);           CUfunction_attribute 0 or 1
 * (c) The text of a PTX module, as libptx-nvrtc.so has it of the real NVRTC: executed by tests/cuda/ptx, which checks
 * every access against what the driver handed out (WEFT_CUDA_MEMCHECK=1: block by block).
 * A launch may have as many threads as the kernel states and 48 KB of shared memory, declared and dynamic, or what
 * cuFuncSetAttribute allowed. Without wf_shim_param_size a launch runs, after what it has to wait for, before
 * cuLaunchKernel returns.
 */
#ifndef TESTS_CUDA_DRIVER_FAKE_H
#define TESTS_CUDA_DRIVER_FAKE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { FAKE_IMMEDIATE, FAKE_LATE, FAKE_RANDOM };

typedef struct fake_driver {
    /* Forgets everything: objects, memory, plans, counts. With devices > 0 their number, with memory > 0
     * the bytes of each. Not while the runtime holds the device. */
    void (*reset)(int devices, size_t memory);
    void (*order)(int how, uint64_t seed);
    void (*guard)(bool on);
    /* Whether the virtual memory functions work; before the runtime opens the device. */
    void (*vm)(bool on);
    /* Whether devices reach each other's memory; at first they do. */
    void (*peers)(bool on);
    /* Calls of an entry point ("cuMemAlloc_v2"; NULL: of all) since the start. */
    int64_t (*calls)(const char *symbol);
    /* The n-th next call (1: the next) of symbol (NULL: of any) returns `result`; n = 0: none. */
    void (*fail)(const char *symbol, int64_t n, int result);
    /* The entry point that the last planned failure met; "" if it met none yet. */
    const char *(*failed)(void);
    /* The next kernel that runs fails with `result`, sticky as on a device. */
    void (*break_device)(int result);
    /* Objects alive: "stream", "event", "module", "graph", "exec", "memory" (device allocations and
     * mappings), "host" (pinned), "context"; NULL: all. */
    int64_t (*alive)(const char *kind);
    /* Bytes of device memory handed out. */
    size_t (*bytes)(int device);
    /* Pieces of work queued and not yet run. */
    int64_t (*queued)(void);
    /* Runs everything that is queued. */
    void (*drain)(void);
    /* Pairs of accesses to the same bytes that nothing orders, found so far; text of the first. */
    int64_t (*races)(void);
    const char *(*first_race)(void);
    /* What the first launch of PTX that failed says; "" before. */
    const char *(*fault)(void);
    /* Copies device memory, run or not, past the guard. False: not device memory. */
    bool (*peek)(void *host, uint64_t device, size_t n);
} fake_driver;

#ifdef WEFT_FAKE_CUDA
static inline const fake_driver *fake_cuda(int order, uint64_t seed)
{
    if (setenv("WEFT_CUDA_DRIVER", WEFT_FAKE_CUDA, 1)) {
        return NULL;
    }
    void *library = dlopen(WEFT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const fake_driver *d = library ? dlsym(library, "fake_driver_control") : NULL;
    if (d) {
        d->order(order, seed);
    }
    return d;
}
#endif

#endif
