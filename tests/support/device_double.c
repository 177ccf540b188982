/*
 * tests/support/device_double.c -- see device_double.h.
 */
#include "tests/support/device_double.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "eager/device.h"
#include "eager/program.h"
#include "jit/device_rows.h"

enum { PAGE = 4096, DEVICES = 2 };
static const size_t region_bytes = (size_t)1 << 32;

typedef struct block {
    struct block *next; /* of free ones */
    char *address;
    size_t bytes;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *region;
static size_t used;
static block *unused;
static device_double_counts counts;
static int failing, failing_reads;

/* Memory is open between these, for one thread at a time. */
static void begin(void)
{
    pthread_mutex_lock(&lock);
    mprotect(region, used, PROT_READ | PROT_WRITE);
}

static void end(void)
{
    mprotect(region, used, PROT_NONE);
    pthread_mutex_unlock(&lock);
}

static int open_device(int ordinal, wf_why *why)
{
    return ordinal < DEVICES ? 0 : wf_fail(why, WEFT_EUNSUPPORTED, "there are %d devices", DEVICES);
}

/* Fresh memory is not zero, so that what reads it is seen. */
static void *alloc(int ordinal, size_t nbytes, void **address, wf_why *why)
{
    (void)ordinal;
    size_t bytes = (nbytes + PAGE - 1) / PAGE * PAGE;
    begin();
    block **at = &unused;
    while (*at && (*at)->bytes != bytes) {
        at = &(*at)->next;
    }
    block *b = failing && --failing == 0 ? NULL : *at ? *at : malloc(sizeof *b);
    if (b && b == *at) {
        *at = b->next;
    } else if (b) {
        *b = (block){.address = region + used, .bytes = bytes};
        used += bytes;
        mprotect(region, used, PROT_READ | PROT_WRITE);
    }
    if (b) {
        memset(b->address, 0xA5, bytes);
        *address = b->address;
        counts.allocs++;
    }
    end();
    if (!b) {
        wf_fail(why, WEFT_ENOMEM, "the device has no memory for %zu bytes", nbytes);
    }
    return b;
}

static void free_block(void *p)
{
    block *b = p;
    pthread_mutex_lock(&lock);
    b->next = unused;
    unused = b;
    counts.frees++;
    pthread_mutex_unlock(&lock);
}

static int use(void *b, bool write, wf_why *why)
{
    (void)write;
    return b ? 0 : wf_fail(why, WEFT_EINVALID, "no block");
}

static int upload(int ordinal, void *dst, const void *host, size_t n, wf_why *why)
{
    (void)ordinal, (void)why;
    begin();
    memcpy(dst, host, n);
    counts.uploads++;
    end();
    return 0;
}

static int download(int ordinal, void *host, const void *src, size_t n, wf_why *why)
{
    (void)ordinal;
    if (failing_reads && --failing_reads == 0) {
        return wf_fail(why, WEFT_EIO, "the device does not answer");
    }
    begin();
    memcpy(host, src, n);
    counts.downloads++;
    end();
    return 0;
}

static int synchronize(int ordinal, wf_why *why)
{
    (void)ordinal, (void)why;
    counts.waits++;
    return 0;
}

static int run_program(int ordinal, const wf_program *p, uint32_t one, const wf_program_args *a,
                       wf_why *why)
{
    (void)ordinal, (void)one;
    for (int i = 0; i < p->ninput; i++) {
        if (!a->src[i].device) {
            return wf_fail(why, WEFT_EINVALID, "input %d is in host memory", i);
        }
    }
    begin();
    int rc = wf_program_run_on(p, a);
    counts.programs++;
    end();
    return rc ? wf_fail(why, rc, "a program failed") : 0;
}

static int copy(int ordinal, const wf_view *dst, const wf_view *src, wf_why *why)
{
    (void)ordinal;
    if (!dst->device || !src->device) {
        return wf_fail(why, WEFT_EINVALID, "a copy of host memory");
    }
    begin();
    wf_copy(dst, src);
    counts.copies++;
    end();
    return 0;
}

static int fill(int ordinal, const wf_view *dst, const void *value, wf_why *why)
{
    (void)ordinal, (void)why;
    begin();
    wf_fill(dst, value);
    counts.fills++;
    end();
    return 0;
}

static const wf_device_ops ops = {.name = "double",
                                  .open = open_device,
                                  .alloc = alloc,
                                  .free = free_block,
                                  .use = use,
                                  .upload = upload,
                                  .download = download,
                                  .synchronize = synchronize,
                                  .program = run_program,
                                  .copy = copy,
                                  .fill = fill,
                                  .composite = wf_device_composite};

void device_double_install(void)
{
    if (!region) {
        region =
            mmap(NULL, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        used = PAGE;
    }
    atomic_store(&wf_device_api, &ops);
}

device_double_counts device_double_read(void)
{
    return counts;
}

void device_double_fail_alloc(int n)
{
    failing = n;
}

void device_double_fail_read(int n)
{
    failing_reads = n;
}
