/*
 * io/names.h -- lists of names in files.
 */
#ifndef IO_NAMES_H
#define IO_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Of n names, pointers every `step` bytes from `first` on, one that occurs twice; NULL: none does, or (*lost) memory to tell is missing. */
const char *wf_names_twice(const void *first, size_t step, int n, bool *lost);

#endif
