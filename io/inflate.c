/*
 * io/inflate.c -- raw deflate streams through zlib, linked statically; see inflate.h.
 *
 * Without zlib (WEFT_DEFLATE=OFF, or no zlib1g-dev when weft was built) compressed members are refused with what to do.
 */
#include "io/inflate.h"

#include <limits.h>
#include <stdint.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

bool wf_inflate_available(void)
{
#ifdef WF_HAVE_ZLIB
    return true;
#else
    return false;
#endif
}

size_t wf_inflate_most(size_t n)
{
    return n > SIZE_MAX / 1040 ? SIZE_MAX
                               : n * 1040; /* a bit pair a run of 258: 1032 to 1, and the ends */
}

#ifdef WF_HAVE_ZLIB
/* zlib counts in unsigned int: hands on as much as that holds. */
static unsigned piece(size_t left)
{
    return left > UINT_MAX ? UINT_MAX : (unsigned)left;
}

const char *wf_inflate(const unsigned char *in, size_t n, unsigned char *out, size_t size,
                       bool *no_memory)
{
    z_stream z = {0};
    unsigned char none;
    *no_memory = inflateInit2(&z, -MAX_WBITS) != Z_OK;
    if (*no_memory) {
        return "no memory to decompress it";
    }
    z.next_out = size ? out : &none;
    int rc = Z_OK;
    while (rc == Z_OK) {
        if (z.avail_in == 0) {
            z.next_in = (unsigned char *)(uintptr_t)in;
            z.avail_in = piece(n);
            in += z.avail_in;
            n -= z.avail_in;
        }
        if (z.avail_out == 0) {
            z.avail_out = piece(size);
            size -= z.avail_out;
        }
        rc = inflate(&z, n == 0 && size == 0 ? Z_FINISH : Z_NO_FLUSH);
    }
    size_t left_in = n + z.avail_in, left_out = size + z.avail_out;
    inflateEnd(&z);
    *no_memory = rc == Z_MEM_ERROR;
    return *no_memory                    ? "no memory to decompress it"
           : rc != Z_STREAM_END          ? "its compressed bytes are malformed"
           : left_in > 0 || left_out > 0 ? "its compressed bytes are not as long as stated"
                                         : NULL;
}
#else
const char *wf_inflate(const unsigned char *in, size_t n, unsigned char *out, size_t size,
                       bool *no_memory)
{
    (void)in, (void)n, (void)out, (void)size;
    *no_memory = false;
    return "it is compressed, and this build of weft has no zlib: install zlib1g-dev "
           "(script/bootstrap) and "
           "build again, or write the file with numpy.savez";
}
#endif
