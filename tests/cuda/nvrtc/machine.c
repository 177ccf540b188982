/*
 * tests/cuda/nvrtc/machine.c -- runs the kernels of an image: the entry points that the fake driver calls.
 *
 * Threads of a block run one after the other, in either direction; where a kernel has barriers or shuffles they are fibers. Dynamic shared memory ends at an unmapped page and, like static shared
 * memory, keeps what the block before left there, as a device promises nothing else.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include "tests/jit/shim/fibers.h"
#include "tests/jit/shim/machine.h"

extern shim_machine *shim;

static void (*running)(void **params);
static void **running_params;

static void enter(void *const *unused, const long long *none)
{
    (void)unused;
    (void)none;
    running(running_params);
}

static const shim_kernel *find(const char *name)
{
    for (const shim_kernel *k = shim_kernels; k->name; k++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

int wf_shim_has(const char *kernel)
{
    return find(kernel) != NULL;
}

int wf_shim_attribute(const char *kernel, int attribute)
{
    const shim_kernel *k = find(kernel);
    return !k ? 0 : attribute == 0 ? (int)k->threads : attribute == 1 ? (int)k->shared : 0;
}

int wf_shim_param_size(const char *kernel, int i)
{
    const shim_kernel *k = find(kernel);
    int n = 0;
    while (k && n < i && k->sizes[n])
        n++;
    return k && n == i ? (int)k->sizes[i] : 0;
}

/* Memory whose last byte lies before an unmapped page. */
static unsigned long long *dynamic_memory(unsigned bytes, char **base, size_t *mapped)
{
    const size_t page = 4096, body = (bytes + page - 1) / page * page + page;
    *mapped = body + page;
    *base = mmap(NULL, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*base == MAP_FAILED || mprotect(*base + body, page, PROT_NONE) != 0)
        return NULL;
    memset(*base, 0x7A, body);
    return (unsigned long long *)(void *)(*base + body - (bytes + 15) / 16 * 16);
}

static const uint64_t canary = 0x57EF7EC0DE5AFE00u;

/* One mapping: a guard page a stack would be two more each, and a process has some ten thousand. */
static bool get_stacks(void)
{
    if (shim_run.stacks)
        return true;
    shim_run.stacks = mmap(NULL, (size_t)SHIM_THREADS * SHIM_STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shim_run.stacks == MAP_FAILED)
        shim_run.stacks = NULL;
    return shim_run.stacks != NULL;
}

static void put_canaries(unsigned threads)
{
    for (size_t i = 0; i < threads; i++)
        memcpy(shim_run.stacks + i * SHIM_STACK, &canary, sizeof canary);
}

static bool canaries_live(unsigned threads)
{
    for (size_t i = 0; i < threads; i++)
        if (memcmp(shim_run.stacks + i * SHIM_STACK, &canary, sizeof canary) != 0)
            return false;
    return true;
}

int wf_shim_launch(const char *kernel, const unsigned grid[3], const unsigned block[3],
                   unsigned shared_bytes, void **params)
{
    const shim_kernel *k = find(kernel);
    char *base = NULL;
    size_t mapped = 0;
    if (!k)
        return 500;
    if (grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1 || grid[0] == 0 ||
        block[0] == 0 || block[0] > SHIM_THREADS || (k->fibers && !get_stacks()))
        return 1;
    running = k->call;
    running_params = params;
    shim_run.machine.dynamic = shared_bytes ? dynamic_memory(shared_bytes, &base, &mapped) : NULL;
    if (k->fibers)
        put_canaries(block[0]);
    const char *wrong =
        shim_launch(&shim, enter, k->fibers, (int)grid[0], (int)block[0], NULL, NULL);
    if (!wrong && k->fibers && !canaries_live(block[0]))
        wrong = "a thread's stack overflowed";
    if (base)
        munmap(base, mapped);
    if (wrong)
        fprintf(stderr, "shim: kernel %s, %u blocks of %u: %s\n", kernel, grid[0], block[0], wrong);
    return wrong ? 719 : 0;
}
