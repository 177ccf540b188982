/*
 * jit/diskcache.h -- compiled kernels of earlier runs, one file each, in a folder of the user's own.
 *
 * The folder is weft-1 in WEFT_CACHE_DIR, or in weft under XDG_CACHE_HOME or ~/.cache; it and what it holds
 * belong to the user, and nobody else may write there: otherwise the cache is off, with a reason.
 *
 * A file is found by a hash of its identity and holds the identity as well: what is read is compared byte
 * by byte, and its object checked by a second hash. Whatever is not as it should be (short, damaged, of
 * another kernel) is deleted and counts as missing; an error of the system (no permission, a full disk,
 * too many open files) deletes nothing. Files are written under another name and renamed, so that a reader
 * or a second writer never sees half of one.
 *
 * Files used longest ago go first when they hold more than WEFT_CACHE_SIZE bytes together. The folder is
 * listed after a write when the process has written a sixteenth of that since it last listed it, or did so
 * 10 seconds ago: n processes that write at once hold at most n sixteenths (and objects) too much.
 *
 * Everything may be called from any thread and from many processes at once. Nothing here is needed: a
 * cache that is off finds nothing and keeps nothing.
 */
#ifndef JIT_DISKCACHE_H
#define JIT_DISKCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jit/ir/backend.h"

/* The object of an identity, malloced. False: there is none. */
bool wf_disk_get(const void *identity, size_t n, wf_blob *object);
void wf_disk_put(const void *identity, size_t n, const wf_blob *object);

typedef struct wf_disk_stats {
    int64_t found, missed, damaged, written, refused; /* calls; refused: nothing could be written */
    int64_t evicted;
} wf_disk_stats;
void wf_disk_get_stats(wf_disk_stats *s);

/* The folder, "" if there is none to use; why the cache is off or read-only, "" if it is not. */
const char *wf_disk_folder(void);
const char *wf_disk_reason(void);
/* Files and their bytes now; deletes them all if `clear`. */
void wf_disk_survey(bool clear, int64_t *files, int64_t *bytes);
/* Keep other threads off while the process forks. */
void wf_disk_before_fork(void);
void wf_disk_after_fork(void);

#endif
