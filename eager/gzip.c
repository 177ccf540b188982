/*
 * eager/gzip.c -- gzip members that grow, through zlib, linked statically: a piece ends at a whole byte (a sync flush); the last text is
 * a stored block of its own behind the last piece, so that the next piece can be written over it.
 *
 * Without zlib (WEFT_DEFLATE=OFF, or no zlib1g-dev when weft was built) there is none, which whoever asked for one is told.
 */
#include "eager/gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>

#include "eager/crc32.h"

struct wf_gzip {
    wf_text out;
    z_stream stream;
    size_t
        done; /* bytes of the piece that are in out; what the rest becomes is not known before it is flushed */
    uint32_t sum, size; /* of the text: CRC-32, bytes */
};

wf_gzip *wf_gzip_begin(const char **why)
{
    static const char header[10] = {0x1F, (char)0x8B, Z_DEFLATED, 0, 0, 0,
                                    0,    0,          0,          3}; /* no name, no time, Unix */
    enum { MEMORY = 8 };
    wf_gzip *z = calloc(1, sizeof *z);
    if (!z || deflateInit2(&z->stream, Z_BEST_SPEED, Z_DEFLATED, -MAX_WBITS, MEMORY,
                           Z_DEFAULT_STRATEGY) != Z_OK) {
        *why = "no memory to compress it";
        free(z);
        return NULL;
    }
    wf_text_put(&z->out, header, sizeof header);
    return z;
}

wf_text *wf_gzip_out(wf_gzip *z)
{
    return &z->out;
}

/* At most how many bytes n of text become, with a flush behind them. */
static size_t bound(wf_gzip *z, size_t n)
{
    enum { FLUSH = 12 };
    return deflateBound(&z->stream, n) + FLUSH;
}

/* Compresses the piece up to byte n and flushes. Where there is no memory out is marked as failed: whoever writes it sees that. */
static void deflate_to(wf_gzip *z, const char *s, size_t n)
{
    enum { MOST = 1 << 30, ROOM = 1 << 14 };
    while (z->done < n) {
        const size_t left = n - z->done, piece = left < MOST ? left : MOST;
        z->stream.next_in = (Bytef *)(uintptr_t)(s + z->done);
        z->stream.avail_in = (uInt)piece;
        z->sum = wf_crc32(z->sum, z->stream.next_in, piece);
        z->size += (uint32_t)piece;
        z->done += piece;
        do {
            char *room = wf_text_room(&z->out, ROOM);
            if (!room) {
                return;
            }
            z->stream.next_out = (Bytef *)room;
            z->stream.avail_out = ROOM;
            deflate(&z->stream, z->done < n ? Z_NO_FLUSH : Z_SYNC_FLUSH);
            wf_text_end(&z->out, (char *)z->stream.next_out);
        } while (z->stream.avail_out == 0);
    }
}

bool wf_gzip_add(wf_gzip *z, const char *s, size_t from, size_t to, size_t max)
{
    if (z->out.n + bound(z, to - z->done) <= max) {
        return true;
    }
    deflate_to(z, s, from); /* mostly far less than might have been */
    return z->out.n + bound(z, to - from) <= max;
}

void wf_gzip_cut(wf_gzip *z, const char *s, size_t n)
{
    deflate_to(z, s, n);
    z->done = 0;
}

void wf_gzip_end(wf_gzip *z, const char *end, size_t n)
{
    const uint16_t count = (uint16_t)n, other = (uint16_t)~count;
    const uint32_t sum = wf_crc32(z->sum, end, n), size = z->size + (uint32_t)n;
    wf_text_put(&z->out, "\1", 1); /* the last block, stored */
    wf_text_put(&z->out, &count, sizeof count);
    wf_text_put(&z->out, &other, sizeof other);
    wf_text_put(&z->out, end, n);
    wf_text_put(&z->out, &sum, sizeof sum);
    wf_text_put(&z->out, &size, sizeof size);
}

void wf_gzip_free(wf_gzip *z)
{
    if (z) {
        deflateEnd(&z->stream);
        wf_text_free(&z->out);
        free(z);
    }
}
#else
wf_gzip *wf_gzip_begin(const char **why)
{
    *why = "it is to be compressed, and this build of weft has no zlib: install zlib1g-dev "
           "(script/bootstrap) and build again, or "
           "give a path that does not end in .gz";
    return NULL;
}
wf_text *wf_gzip_out(wf_gzip *z)
{
    (void)z;
    return NULL;
}
bool wf_gzip_add(wf_gzip *z, const char *s, size_t from, size_t to, size_t max)
{
    (void)z, (void)s, (void)from, (void)to, (void)max;
    return false;
}
void wf_gzip_cut(wf_gzip *z, const char *s, size_t n)
{
    (void)z, (void)s, (void)n;
}
void wf_gzip_end(wf_gzip *z, const char *end, size_t n)
{
    (void)z, (void)end, (void)n;
}
void wf_gzip_free(wf_gzip *z)
{
    (void)z;
}
#endif
