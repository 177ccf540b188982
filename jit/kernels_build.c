/*
 * jit/kernels_build.c -- makes a kernel native: lower, look on disk, render, compile, load.
 *
 * The identity of an object is what its bits depend on: the kernel IR, the generator, the compiler and the
 * machine. The op table is not part of it: an op that is redefined has other kernel IR.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/fd.h"
#include "eager/profile.h"
#include "jit/diskcache.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"
#include "jit/passes/page.h"
#include "jit/passes/pass.h"

/* The name gets the short hash of the identity. */
static void name_kernel(wf_jitk *k, wf_kernel *kernel, const uint64_t hash[2])
{
    snprintf(k->name, sizeof k->name, "%.50s__%08x", kernel->name, (unsigned)(hash[0] >> 32));
    memcpy(kernel->name, k->name, sizeof kernel->name);
}

/* WEFT_DEBUG: the text, and what the compiler makes of it. */
static void show(const wf_target *target, const char *name, const wf_text *text)
{
    wf_text assembly = {0};
    wf_why why = {0};
    const bool dumps = wf_dump_folder() != NULL;
    if (wf_env_debug(WF_DEBUG_SOURCE))
        fprintf(stderr, "%s", text->s);
    if (dumps)
        wf_dump_text(name, "ll", text->s);
    if ((dumps || wf_env_debug(WF_DEBUG_ASM)) &&
        wf_backend_cpu.assemble(target, text, &assembly, &why) == 0) {
        if (wf_env_debug(WF_DEBUG_ASM))
            fprintf(stderr, "%s", assembly.s);
        wf_dump_text(name, "s", assembly.s);
    }
    wf_text_free(&assembly);
}

enum { NOT_ON_DISK = -1 }; /* no status */

static int object_of(wf_jitk *k, const wf_target *target, const wf_kernel *kernel, bool loads,
                     const wf_text *identity, wf_blob *object, wf_why *why)
{
    wf_text text = {0};
    k->from_disk = !k->looked && wf_disk_get(identity->s, identity->n, object);
    if (loads && !k->from_disk)
        return NOT_ON_DISK;
    if (k->from_disk && !wf_env_debug(WF_DEBUG_SOURCE) && !wf_dump_folder())
        return 0;
    const int before = wf_work_enter(WF_TIMED_render);
    int status = wf_backend_cpu.render(kernel, target, &text, why);
    (void)wf_work_enter(WF_TIMED_compile);
    if (status == 0)
        show(target, k->name, &text);
    if (status == 0 && !k->from_disk)
        status = wf_backend_cpu.compile(target, &text, object, why);
    wf_work_leave(before);
    wf_text_free(&text);
    if (k->from_disk)
        return 0;
    if (status == 0)
        wf_disk_put(identity->s, identity->n, object);
    return status;
}

/* One line for perf: address, size, name. The file is perf's, by the number of the process. */
static void tell_perf(const wf_jitk *k, const wf_exe *exe)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const void *code = NULL;
    size_t size = 0;
    char path[64];
    wf_backend_cpu.locate(exe, &code, &size);
    snprintf(path, sizeof path, "/tmp/perf-%lld.map", (long long)getpid());
    pthread_mutex_lock(&lock);
    const int fd =
        wf_fd_apart(open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    FILE *f = fd < 0 ? NULL : fdopen(fd, "a");
    if (f) {
        fprintf(f, "%llx %zx %s\n", (unsigned long long)(uintptr_t)code, size, k->name);
        fclose(f);
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&lock);
}

static int build(wf_jitk *k, bool loads, wf_exe **exe, wf_why *why)
{
    const wf_target target = {.arch = k->arch, .width = k->width};
    wf_kernel kernel;
    wf_text identity = {0};
    wf_blob object = {0};
    uint64_t hash[2];
    struct wf_stopwatch *caller = wf_work_aside();
    int before = wf_work_enter(WF_TIMED_lower);
    int status = wf_lower(&k->program, k->one, &kernel, why);
    wf_work_leave(before);
    if (status != 0) {
        wf_work_resume(caller, NULL);
        return status;
    }
    wf_lower_identity(&kernel, &identity);
    snprintf(k->name, sizeof k->name, "%.50s__%08x", kernel.name, (unsigned)(k->hash >> 32));
    status = wf_backend_cpu.identify(&target, &identity, why);
    if (status == 0) {
        wf_hash128(identity.s, identity.n, hash);
        name_kernel(k, &kernel, hash);
        status = object_of(k, &target, &kernel, loads, &identity, &object, why);
    }
    if (status == 0) {
        k->bytes += (int64_t)object.size;
        if (wf_env()->WEFT_GDB)
            wf_backend_cpu.debug();
        before = wf_work_enter(WF_TIMED_load);
        status = wf_backend_cpu.load(&object, k->name, exe, why);
        wf_work_leave(before);
        if (status == 0 && wf_env()->WEFT_PERF)
            tell_perf(k, *exe);
    }
    wf_work_resume(caller, status == NOT_ON_DISK ? NULL : k->name);
    wf_blob_free(&object);
    wf_text_free(&identity);
    k->rows = status == 0 ? kernel.rows : NULL; /* a run asks what lies where */
    kernel.rows = status == 0 ? NULL : kernel.rows;
    for (int i = 0; k->rows && i < k->rows->nstage; i++)
        wf_kir_free(&k->rows->stage[i].body);
    wf_kernel_free(&kernel);
    return status;
}

static void note_build(const wf_jitk *k, int64_t start, bool native)
{
    char detail[256];
    snprintf(detail, sizeof detail, "%s%s, %lld bytes",
             !native        ? "stays on tier 0: "
             : k->from_disk ? "loaded from disk"
                            : "compiled",
             native ? "" : k->reason, (long long)k->bytes);
    wf_prof_end(start,
                &(wf_prof_span){WEFT_PROFILE_COMPILE, .name = k->name[0] ? k->name : "kernel",
                                .detail = detail, .end = start + k->build_ns});
}

/* A kernel's section of the page of WEFT_DUMP, where plans lead to. */
static void put_section(const wf_jitk *k, bool native)
{
    wf_page page;
    char file[72];
    if (!wf_page_begin(&page))
        return;
    fprintf(page.out, "<h3 id=\"k%016llx\">kernel ", (unsigned long long)k->hash);
    wf_page_text(&page, k->name[0] ? k->name : "of a group");
    fprintf(page.out, "</h3>\n<p>%s in %.2f ms ",
            !native        ? "stays on tier 0"
            : k->from_disk ? "loaded from disk"
                           : "compiled",
            (double)k->build_ns * 1e-6);
    if (native) {
        snprintf(file, sizeof file, "%s.ll", k->name);
        wf_page_link(&page, file);
        snprintf(file, sizeof file, "%s.s", k->name);
        wf_page_link(&page, file);
    } else {
        wf_page_text(&page, k->reason);
    }
    fputs("\n", page.out);
    wf_page_end(&page);
}

bool wf_jitk_build(wf_jitk *k, bool loads)
{
    wf_why why = {0};
    wf_exe *exe = NULL;
    const int64_t start = wf_prof_clock();
    const int status = build(k, loads, &exe, &why);
    if (status == NOT_ON_DISK)
        return false;
    if (status != 0)
        snprintf(k->reason, sizeof k->reason, "%.220s", why.rule);
    k->build_ns = wf_prof_clock() - start;
    if (wf_prof_is_on())
        note_build(k, start, exe != NULL);
    put_section(k, exe != NULL);
    atomic_store_explicit(&k->exe, exe, memory_order_release);
    if (wf_env_debug(WF_DEBUG_COMPILE))
        fprintf(stderr, "weft: kernel %s %s in %.2f ms%s%s\n", k->name[0] ? k->name : "?",
                exe ? k->from_disk ? "loaded" : "compiled" : "stays on tier 0",
                (double)k->build_ns * 1e-6, exe ? "" : ": ", k->reason);
    return true;
}
