/*
 * io/inflate.h -- the compression of zip files, by zlib where the build found it.
 */
#ifndef IO_INFLATE_H
#define IO_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

/* Was weft built with zlib? */
bool wf_inflate_available(void);
/* A raw deflate stream of n bytes, which must give exactly `size` bytes and use all of its own. NULL, or what is
 * wrong; *no_memory says whether that is memory. */
const char *wf_inflate(const unsigned char *in, size_t n, unsigned char *out, size_t size,
                       bool *no_memory);
/* The most bytes that n bytes can stand for: a stated size above it is a lie. */
size_t wf_inflate_most(size_t n);

#endif
