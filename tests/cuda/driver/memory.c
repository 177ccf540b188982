/*
 * tests/cuda/driver/memory.c -- device memory of the fake driver: host pages that only queued work reaches.
 *
 * Reserved ranges of addresses serve all devices, the next when one is used up. Regions are whole granules with a hole behind each,
 * so that running over the end faults even while the guard is lifted. A reserved range (virtual memory
 * functions) is a region without pages until something is mapped into it.
 */
#include "tests/cuda/driver/core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_REGIONS = 65536 };
#define GRANULE ((size_t)64 << 10)
#define VM_GRANULE ((size_t)2 << 20)
#define SPACE                                                                                      \
    ((size_t)1                                                                                     \
     << 38) /* reserved at a time; more at once than ThreadSanitizer's map of addresses allows fails there */

enum region_kind { ALLOCATED, RESERVED, MAPPED };
typedef struct region {
    uint64_t address;
    size_t size, asked; /* whole granules; what was asked for, where that is less */
    enum region_kind kind;
    int device;
    cu_memory memory; /* MAPPED */
    bool accessible;
    unsigned reached_by; /* MAPPED: bit i: device i may */
} region;
typedef struct physical {
    size_t size;
    int device, refs; /* one of the handle, one of each mapping */
    bool open;        /* the handle is not released */
} physical;

static region regions[MAX_REGIONS];
static int n_regions;
static physical physicals[MAX_REGIONS];
static int n_physicals;
static size_t used[MAX_DEVICES];
static uint64_t top, space_end;
static int open_depth;

static void protect(const region *r)
{
    bool on = r->accessible && (!fake.guard || open_depth);
    mprotect((void *)(uintptr_t)r->address, r->size, on ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static region *find(uint64_t address, enum region_kind kind)
{
    for (int i = 0; i < n_regions; i++) {
        if (regions[i].kind == kind && regions[i].address == address) {
            return &regions[i];
        }
    }
    return NULL;
}

static void drop_pages(const region *r)
{
    mmap((void *)(uintptr_t)r->address, r->size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void forget(region *r)
{
    *r = regions[--n_regions];
}

static region *add(uint64_t address, size_t size, enum region_kind kind, int device)
{
    if (n_regions == MAX_REGIONS) {
        return NULL;
    }
    region *r = &regions[n_regions++];
    *r = (region){.address = address, .size = size, .asked = size, .kind = kind, .device = device};
    return r;
}

/* Addresses are handed out upwards and never again, which makes a stale pointer a fault. */
static uint64_t take_addresses(size_t size, size_t align)
{
    uint64_t at = (top + align - 1) & ~(uint64_t)(align - 1);
    if (at + size + GRANULE > space_end) {
        size_t bytes = size + align + GRANULE > SPACE ? size + align + GRANULE : SPACE;
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            return 0;
        }
        space_end = (uint64_t)(uintptr_t)p + bytes;
        at = ((uint64_t)(uintptr_t)p + align - 1) & ~(uint64_t)(align - 1);
    }
    top = at + size + GRANULE;
    return at;
}

/*
 * Fresh memory holds nonsense. Large blocks: their first megabyte does. Pages are huge where they can be: the guard's calls
 * then change one entry for 512, which are a third of a suite's time otherwise.
 */
static void poison(const region *r)
{
    madvise((void *)(uintptr_t)r->address, r->size, MADV_HUGEPAGE);
    size_t n = r->size < ((size_t)1 << 20) ? r->size : (size_t)1 << 20;
    memory_open();
    memset((void *)(uintptr_t)r->address, 0xA5, n);
    memory_close();
}

void memory_reset(void)
{
    for (int i = 0; i < n_regions; i++) {
        drop_pages(&regions[i]);
    }
    n_regions = n_physicals = 0;
    memset(used, 0, sizeof used);
}

cu_result memory_alloc(int device, size_t size, uint64_t *address)
{
    size_t n = (size + GRANULE - 1) / GRANULE * GRANULE;
    if (size == 0 || n < size) {
        return CU_INVALID_VALUE;
    }
    if (n > fake.memory - used[device]) {
        return CU_OUT_OF_MEMORY;
    }
    uint64_t at = take_addresses(n, VM_GRANULE);
    region *r = at ? add(at, n, ALLOCATED, device) : NULL;
    if (!r) {
        return CU_OUT_OF_MEMORY;
    }
    r->accessible = true;
    r->asked = size;
    protect(r);
    poison(r);
    used[device] += n;
    fake.alive[MEMORY]++;
    *address = at;
    return CU_OK;
}

cu_result memory_free(uint64_t address)
{
    region *r = find(address, ALLOCATED);
    if (!r) {
        return CU_INVALID_VALUE;
    }
    used[r->device] -= r->size;
    fake.alive[MEMORY]--;
    race_forget(r->address, r->size);
    drop_pages(r);
    forget(r);
    return CU_OK;
}

size_t memory_used(int device)
{
    return used[device];
}

int memory_device(uint64_t address)
{
    for (int i = 0; i < n_regions; i++) {
        if (regions[i].kind != RESERVED && address - regions[i].address < regions[i].size) {
            return regions[i].device;
        }
    }
    return -1;
}

bool memory_valid(uint64_t address, size_t size)
{
    while (size) {
        const region *in = NULL;
        for (int i = 0; i < n_regions && !in; i++) {
            if (regions[i].accessible && address - regions[i].address < regions[i].size) {
                in = &regions[i];
            }
        }
        if (!in) {
            return false;
        }
        size_t rest = (size_t)(in->address + in->size - address);
        size_t n = rest < size ? rest : size;
        address += n;
        size -= n;
    }
    return true;
}

/* Joins mappings that follow each other. */
static bool device_range(uint64_t address, uint64_t *low, uint64_t *high)
{
    bool found = false;
    for (int i = 0; i < n_regions; i++) {
        const region *r = &regions[i];
        if (r->accessible && address - r->address < r->asked) {
            *low = r->address;
            *high = r->address + r->asked;
            found = true;
        }
    }
    for (int i = 0; found && i < n_regions; i++) {
        if (regions[i].accessible && regions[i].address == *high) {
            *high += regions[i].asked;
            i = -1;
        }
    }
    return found;
}

static void protect_all(void)
{
    for (int i = 0; fake.guard && i < n_regions; i++) {
        if (regions[i].accessible) {
            protect(&regions[i]);
        }
    }
}

void memory_open(void)
{
    if (open_depth++ == 0) {
        protect_all();
    }
}

void memory_close(void)
{
    if (--open_depth == 0) {
        protect_all();
    }
}

/* -- virtual memory --------------------------------------------------------------------------------- */

cu_result memory_reserve(size_t size, size_t align, uint64_t *address)
{
    if (size == 0 || size % VM_GRANULE || (align & (align - 1))) {
        return CU_INVALID_VALUE;
    }
    uint64_t at = take_addresses(size, align > VM_GRANULE ? align : VM_GRANULE);
    if (!at || !add(at, size, RESERVED, -1)) {
        return CU_OUT_OF_MEMORY;
    }
    *address = at;
    return CU_OK;
}

cu_result memory_unreserve(uint64_t address, size_t size)
{
    region *r = find(address, RESERVED);
    if (!r || r->size != size || memory_device(address) >= 0) {
        return CU_INVALID_VALUE;
    }
    forget(r);
    return CU_OK;
}

cu_result memory_create(int device, size_t size, cu_memory *handle)
{
    if (size == 0 || size % VM_GRANULE) {
        return CU_INVALID_VALUE;
    }
    if (size > fake.memory - used[device]) {
        return CU_OUT_OF_MEMORY;
    }
    int i = 0;
    while (i < n_physicals && physicals[i].refs) {
        i++;
    }
    if (i == MAX_REGIONS) {
        return CU_OUT_OF_MEMORY;
    }
    n_physicals += i == n_physicals;
    physicals[i] = (physical){size, device, 1, true};
    used[device] += size;
    fake.alive[MEMORY]++;
    *handle = (cu_memory)i + 1;
    return CU_OK;
}

static void unref(physical *p)
{
    if (--p->refs == 0) {
        used[p->device] -= p->size;
        fake.alive[MEMORY]--;
    }
}

static physical *physical_of(cu_memory handle)
{
    return handle >= 1 && handle <= (cu_memory)n_physicals ? &physicals[handle - 1] : NULL;
}

cu_result memory_release(cu_memory handle)
{
    physical *p = physical_of(handle);
    if (!p || !p->open) {
        return CU_INVALID_VALUE;
    }
    p->open = false;
    unref(p);
    return CU_OK;
}

cu_result memory_map(uint64_t address, size_t size, cu_memory handle)
{
    physical *p = physical_of(handle);
    bool inside = false;
    for (int i = 0; i < n_regions; i++) {
        const region *r = &regions[i];
        inside |=
            r->kind == RESERVED && address >= r->address && address + size <= r->address + r->size;
        if (r->kind == MAPPED && address < r->address + r->size && r->address < address + size) {
            return CU_INVALID_VALUE;
        }
    }
    if (!p || !p->open || p->size != size || !inside || address % VM_GRANULE) {
        return CU_INVALID_VALUE;
    }
    region *r = add(address, size, MAPPED, p->device);
    if (!r) {
        return CU_OUT_OF_MEMORY;
    }
    r->memory = handle;
    p->refs++;
    return CU_OK;
}

/* Whole mappings only, as the driver wants it. */
cu_result memory_unmap(uint64_t address, size_t size)
{
    for (uint64_t at = address; at < address + size;) {
        region *r = find(at, MAPPED);
        if (!r || r->address + r->size > address + size) {
            return CU_INVALID_VALUE;
        }
        at += r->size;
    }
    while (size) {
        region *r = find(address, MAPPED);
        address += r->size;
        size -= r->size;
        race_forget(r->address, r->size);
        drop_pages(r);
        unref(physical_of(r->memory));
        forget(r);
    }
    return CU_OK;
}

bool memory_reached_by(uint64_t address, size_t size, int device)
{
    for (int i = 0; i < n_regions; i++) {
        const region *r = &regions[i];
        if (r->kind == MAPPED && address < r->address + r->size && r->address < address + size &&
            !(r->reached_by >> device & 1)) {
            return false;
        }
    }
    return true;
}

cu_result memory_access(uint64_t address, size_t size, int device)
{
    while (size) {
        region *r = find(address, MAPPED);
        if (!r || r->size > size) {
            return CU_INVALID_VALUE;
        }
        if (!r->accessible && device == r->device) {
            r->accessible = true;
            protect(r);
            poison(r);
        }
        r->reached_by |= 1u << device;
        address += r->size;
        size -= r->size;
    }
    return CU_OK;
}

/* -- pinned host memory ----------------------------------------------------------------------------- */

typedef struct pinned {
    struct pinned *next;
    void *p;
    size_t size;
} pinned;
static pinned *pins;

cu_result host_alloc(size_t size, void **p)
{
    pinned *n = malloc(sizeof *n);
    void *m = size ? aligned_alloc(4096, (size + 4095) & ~(size_t)4095) : NULL;
    if (!n || !m) {
        free(n);
        free(m);
        return size ? CU_OUT_OF_MEMORY : CU_INVALID_VALUE;
    }
    *n = (pinned){pins, m, size};
    pins = n;
    memset(m, 0xA5, size < 65536 ? size : 65536);
    fake.alive[HOST]++;
    *p = m;
    return CU_OK;
}

bool memory_range(uint64_t address, uint64_t *low, uint64_t *high)
{
    for (const pinned *p = pins; p; p = p->next) {
        const uint64_t first = (uint64_t)(uintptr_t)p->p;
        if (address - first < p->size) {
            *low = first;
            *high = first + p->size;
            return true;
        }
    }
    return device_range(address, low, high);
}

cu_result host_free(void *p)
{
    for (pinned **at = &pins; *at; at = &(*at)->next) {
        if ((*at)->p == p) {
            pinned *dead = *at;
            *at = dead->next;
            free(dead->p);
            free(dead);
            fake.alive[HOST]--;
            return CU_OK;
        }
    }
    return CU_INVALID_VALUE;
}
