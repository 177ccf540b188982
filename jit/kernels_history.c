/*
 * jit/kernels_history.c -- what became of the kernels of this process: weft_kernels, weft_kernel_print.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/tensor.h"
#include "jit/kernels_impl.h"
#include "jit/lower.h"
#include "weft/profile.h"

void wf_jitk_count(wf_jitk *k, int64_t ns)
{
    atomic_fetch_add_explicit(&k->runs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&k->run_ns, ns, memory_order_relaxed);
}

static void describe(const wf_jitk *k, weft_kernel_info *out)
{
    wf_jitk_state state = wf_jitk_get_state(k);
    *out = (weft_kernel_info){.backend = wf_backend_cpu.name,
                              .pending = state == WF_JITK_PENDING,
                              .native = state == WF_JITK_NATIVE,
                              .hash = (int64_t)k->hash,
                              .hits = k->hits,
                              .runs = atomic_load(&k->runs),
                              .run_ns = atomic_load(&k->run_ns)};
    if (state != WF_JITK_PENDING) { /* settled: what the compiling thread wrote stays */
        snprintf(out->name, sizeof out->name, "%s", k->name);
        snprintf(out->reason, sizeof out->reason, "%s", k->reason);
        out->from_disk = k->from_disk;
        out->bytes = k->bytes;
        out->build_ns = k->build_ns;
    }
}

/* All kernels with a hold on each: *n of them, malloc'ed. NULL: no memory. */
static wf_jitk **hold_all(int *n)
{
    wf_jitk **list = NULL;
    int room = 0;
    *n = wf_jitk_list(NULL, 0);
    do { /* others may come meanwhile */
        for (int i = 0; i < room && i < *n; i++) {
            wf_jitk_release(list[i]);
        }
        wf_mfree(list);
        room = *n + 16;
        list = wf_calloc((size_t)room, sizeof(wf_jitk *));
        *n = list ? wf_jitk_list(list, room) : 0;
    } while (*n > room);
    return list;
}

int weft_kernels(weft_kernel_info *out, int n)
{
    int all = 0;
    wf_jitk **list = out && n > 0 ? hold_all(&all) : NULL;
    if (!list) {
        return wf_jitk_list(NULL, 0);
    }
    for (int i = 0; i < all; i++) {
        if (i < n) {
            describe(list[i], &out[i]);
        }
        wf_jitk_release(list[i]);
    }
    wf_mfree(list);
    return all;
}

static int print(const wf_jitk *k, FILE *out, wf_why *why)
{
    const wf_target target = {.arch = k->arch, .width = k->width};
    wf_kernel kernel;
    wf_text text = {0};
    int rc = wf_lower(&k->program, k->one, &kernel, why);
    if (rc) {
        return rc;
    }
    snprintf(kernel.name, sizeof kernel.name, "%s", k->name);
    wf_kir_print(&kernel.body, &text);
    for (int i = 0; kernel.rows && i < kernel.rows->nstage; i++) {
        wf_text_putf(&text, "stage %d\n", i);
        wf_kir_print(&kernel.rows->stage[i].body, &text);
    }
    fprintf(out, "%s\n%s\n", k->name, text.s ? text.s : "");
    text.n = 0;
    rc = wf_backend_cpu.render(&kernel, &target, &text, why);
    if (!rc) {
        fputs(text.s ? text.s : "", out);
    }
    wf_text_free(&text);
    wf_kernel_free(&kernel);
    return rc ? rc : ferror(out) ? WEFT_EIO : 0;
}

weft_status weft_kernel_print(const char *name, FILE *out)
{
    int all, rc = WEFT_EINVALID;
    wf_why why = {0};
    wf_jitk **list = name && out ? hold_all(&all) : NULL;
    bool found = false;
    for (int i = 0; list && i < all; i++) {
        if (!found && wf_jitk_get_state(list[i]) != WF_JITK_PENDING &&
            strcmp(list[i]->name, name) == 0) {
            found = true;
            rc = print(list[i], out, &why);
        }
        wf_jitk_release(list[i]);
    }
    wf_mfree(list);
    if (rc) {
        wf_raise_text(wf_ctx_get(), rc, "kernel_print", "%s",
                      found ? why.rule
                            : "there is no such kernel in the cache (weft_kernels lists them)");
    }
    return (weft_status)rc;
}
