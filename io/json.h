/*
 * io/json.h -- a strict JSON reader (RFC 8259) over bytes in memory, for headers of files.
 *
 * Invariants: it reads forward and never past the end; it does not recurse, because the caller asks for
 * what it expects next; the first error stays, and after it every call fails. Strings come out unescaped,
 * as checked UTF-8 without NUL.
 */
#ifndef IO_JSON_H
#define IO_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wf_json {
    const unsigned char *start, *p, *end;
    char *arena;       /* where strings go: at least as large as the text, see wf_json_string */
    const char *error; /* NULL, or what was wrong at p */
} wf_json;

/* Bytes of the UTF-8 sequence at p, 0 if it is malformed: overlong, a surrogate, above U+10FFFF, cut by the end. */
size_t wf_utf8_length(const unsigned char *p, const unsigned char *end);
bool wf_is_utf8(const char *s);

/* Records the first error; returns false. */
bool wf_json_fail(wf_json *j, const char *error);
/* Skips white space; the next byte, or -1 at the end. */
int wf_json_peek(wf_json *j);
/* Takes this punctuation. */
bool wf_json_take(wf_json *j, char c, const char *error);
/* Between the members of an object or array that opened with a taken bracket: true if another one
 * follows (its comma is taken), false at the closing bracket (taken) or on error. */
bool wf_json_more(wf_json *j, char close, bool first);
/* A string, at j->arena, which moves behind it and its NUL; NULL on error. What is written is never
 * longer than what was read, quotes included, so an arena of the text's size is enough. */
const char *wf_json_string(wf_json *j);
/* An integer in [0, 2^63): digits only, no sign, no leading zero. */
bool wf_json_count(wf_json *j, int64_t *out);

#endif
