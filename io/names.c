/*
 * io/names.c -- lists of names in files.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "io/names.h"

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

const char *wf_names_twice(const void *first, size_t step, int n, bool *lost)
{
    const char **sorted = n > 1 ? wf_malloc((size_t)n * sizeof *sorted) : NULL;
    const char *twice = NULL;
    *lost = n > 1 && !sorted;
    if (sorted) {
        for (int i = 0; i < n; i++) {
            memcpy(&sorted[i], (const char *)first + (size_t)i * step, sizeof sorted[i]);
        }
        qsort(sorted, (size_t)n, sizeof *sorted, by_text);
        for (int i = 1; i < n && !twice; i++) {
            twice = strcmp(sorted[i - 1], sorted[i]) == 0 ? sorted[i] : NULL;
        }
    }
    wf_mfree(sorted);
    return twice;
}
