/*
 * io/file.h -- whole files: written so that a name holds the old file or the new one, read by mapping.
 */
#ifndef IO_FILE_H
#define IO_FILE_H

#include "eager/api.h"

typedef struct wf_file_part {
    const void *data;
    size_t size;
} wf_file_part;

/* Writes the parts to a temporary file beside the one that path names or leads to, syncs it, renames it to that and syncs the
 * folder. The mode of a file that is replaced stays; what is no regular file is not replaced. An error is recorded in the name of op. */
weft_status wf_file_write(const char *op, const char *path, const wf_file_part *parts, int n);

/* Maps a regular file; *size may be 0, then the address is not NULL but nothing may be read. NULL with an
 * error of op recorded. */
const unsigned char *wf_file_map(const char *op, const char *path, size_t *size);
void wf_file_unmap(const unsigned char *p, size_t size);

#endif
