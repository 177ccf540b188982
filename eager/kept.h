/*
 * eager/kept.h -- blocks of more than 2 KiB that wait for their next use: what a plan's runs need each time, its temporaries and its results.
 *
 * A place keeps one block of its size while nobody uses it, so that the next use asks nobody for memory; uses at the same
 * time get blocks of their own, of which the first that is given back stays.
 *
 * Invariants: a block that waits is not live, but held like one that the allocator caches; all of them go back before more is
 * asked of the system, and when the caller trims: keeping them never makes the process larger; any thread may take and give;
 * uses count where failures are planned (wf_alloc_fail_after), as if they asked; a place lives until it is closed and every block of it has been given back.
 */
#ifndef EAGER_KEPT_H
#define EAGER_KEPT_H

#include <stddef.h>

typedef struct wf_kept wf_kept;

/* A place for blocks of that size. NULL: they are so small that the thread's list of them is faster (wf_object) and long enough; no
 * memory; or so much is kept that more is not worth it. */
enum { WF_KEPT_FROM = 2049 };
wf_kept *wf_kept_new(size_t size);
/* No block is taken from it any more; NULL is ignored. */
void wf_kept_close(wf_kept *k);
size_t wf_kept_size(const wf_kept *k);
/* The block that waits, or one of wf_alloc, uninitialised; NULL: no memory. */
void *wf_kept_take(wf_kept *k);
void wf_kept_give(wf_kept *k, void *block);

#endif
