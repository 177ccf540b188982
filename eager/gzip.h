/*
 * eager/gzip.h -- text as one gzip member that grows a piece at a time (RFC 1951 and 1952), compressed by zlib.
 *
 * For profiles: after each piece, and what ends the member, the file is whole; the next piece is written over that end.
 */
#ifndef EAGER_GZIP_H
#define EAGER_GZIP_H

#include "jit/ir/kir.h"

typedef struct wf_gzip wf_gzip;

/* NULL and the reason in *why: this build has no zlib, or there is no memory. */
wf_gzip *wf_gzip_begin(const char **why);
/* Whole bytes, since whoever wrote them emptied it: the first ones of the file at first. */
wf_text *wf_gzip_out(wf_gzip *z);
/* May s[from .. to) of a piece s, of which what is before `from` has been added, be added? Not where out could become larger than
 * max bytes at wf_gzip_cut; nothing may be added to the piece then. */
bool wf_gzip_add(wf_gzip *z, const char *s, size_t from, size_t to, size_t max);
/* Compresses a piece of n bytes, all of which were added: out is whole, and the next piece, or the end, may follow. */
void wf_gzip_cut(wf_gzip *z, const char *s, size_t n);
/* Adds the end of the file, of which `end`, of less than 64 KiB, is the last text. Nothing of z but out changes: the next piece may
 * take its place. */
void wf_gzip_end(wf_gzip *z, const char *end, size_t n);
void wf_gzip_free(wf_gzip *z);

#endif
