/*
 * eager/gzip.h -- text as one gzip member that grows a piece at a time (RFC 1951 and 1952).
 *
 * For profiles: what repeats is found in the piece at hand, codes are the fixed ones, so that compressing costs less than formatting.
 */
#ifndef EAGER_GZIP_H
#define EAGER_GZIP_H

#include "jit/ir/kir.h"

enum { WF_GZIP_PLACES = 1 << 12 };

typedef struct wf_gzip {
    wf_text out;   /* whole bytes, since whoever wrote them emptied it */
    uint64_t bits; /* behind them */
    unsigned count;
    bool open;          /* a block has begun */
    uint32_t sum, size; /* of the text before this piece: CRC-32, bytes */
    uint32_t place[WF_GZIP_PLACES];
    uint32_t table[8][256]; /* of the sum: of a byte, and of one that 1 to 7 follow */
    uint8_t turned[256];    /* the bits of a byte the other way round */
} wf_gzip;

/* The first bytes of the file. z is zero. */
void wf_gzip_begin(wf_gzip *z);
/* Adds s[from .. to) of a piece of which what is before `from` has been added. False, and nothing is added, where out would become
 * larger than max bytes with what wf_gzip_cut adds; no more can be added to the piece then. */
bool wf_gzip_add(wf_gzip *z, const char *s, size_t from, size_t to, size_t max);
/* Ends a piece of n bytes: out is whole, and the next piece, or the end, may follow. */
void wf_gzip_cut(wf_gzip *z, const char *s, size_t n);
/* Adds the end of the file, of which `end`, of less than 64 KiB, is the last text. Nothing of z but out changes: the next piece may
 * take its place. */
void wf_gzip_end(wf_gzip *z, const char *end, size_t n);

#endif
