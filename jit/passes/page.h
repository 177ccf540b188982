/*
 * jit/passes/page.h -- DIR/index.html of WEFT_DUMP=DIR: what the compiler did, one section after the other.
 *
 * A section is made in memory and appended at once, so threads do not mix; the first of a process begins the page. It needs
 * no scripts and nothing from elsewhere. Text is escaped where it is put. A page that cannot be written is no error.
 */
#ifndef JIT_PASSES_PAGE_H
#define JIT_PASSES_PAGE_H

#include <stdio.h>

#include "jit/ir/op.h"

/* The folder of WEFT_DUMP; NULL: it names none. */
const char *wf_dump_folder(void);
/* What of a name may be part of a file's: letters, digits, -, _ and dots behind the first place; others become _. */
const char *wf_dump_name(const char *name, char file[80]);
/* n bytes, or text, as DIR/<name>.<kind>, where there is a folder. */
void wf_dump_bytes(const char *name, const char *kind, const void *data, size_t n);
void wf_dump_text(const char *name, const char *kind, const char *text);

typedef struct wf_page {
    FILE *out; /* tags go here; NULL: no memory */
    char *text;
    size_t n;
} wf_page;
/* False (and nothing to end): there is no folder. */
bool wf_page_begin(wf_page *p);
/* s in place of <, >, &, and quotes that would be tags. */
void wf_page_text(wf_page *p, const char *s);
/* A link to a file of the folder. */
void wf_page_link(wf_page *p, const char *file);
void wf_page_end(wf_page *p);

#endif
