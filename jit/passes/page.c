/*
 * jit/passes/page.c -- files of WEFT_DUMP=DIR and their page; see page.h.
 */
#include "jit/passes/page.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "eager/env.h"
#include "eager/fd.h"

const char *wf_dump_folder(void)
{
    const char *where = wf_env()->WEFT_DUMP;
    return *where && strncmp(where, "after:", 6) != 0 ? where : NULL;
}

const char *wf_dump_name(const char *name, char file[80])
{
    size_t n = 0;
    for (; name[n] && n < 79; n++) {
        const bool fine =
            isalnum((unsigned char)name[n]) || name[n] == '-' || (n && name[n] == '.');
        file[n] = fine ? name[n] : '_';
    }
    file[n] = '\0';
    return file;
}

/* The first file that cannot be written is told of: somebody waits for it. */
static FILE *open_file(const char *name, const char *kind, const char *mode)
{
    static atomic_bool told;
    char path[PATH_MAX], file[80];
    const char *folder = wf_dump_folder();
    const int n =
        folder ? snprintf(path, sizeof path, "%s/%s.%s", folder, wf_dump_name(name, file), kind)
               : -1;
    FILE *out = n > 0 && (size_t)n < sizeof path ? wf_file_apart(path, mode) : NULL;
    if (!out && folder && !atomic_exchange(&told, true)) {
        fprintf(stderr, "weft: WEFT_DUMP: %s: %s\n", folder, strerror(errno));
    }
    return out;
}

void wf_dump_bytes(const char *name, const char *kind, const void *data, size_t n)
{
    FILE *out = open_file(name, kind, "w");
    if (out) {
        fwrite(data, 1, n, out);
        fclose(out);
    }
}

void wf_dump_text(const char *name, const char *kind, const char *text)
{
    wf_dump_bytes(name, kind, text, strlen(text));
}

bool wf_page_begin(wf_page *p)
{
    *p = (wf_page){0};
    p->out = wf_dump_folder() ? open_memstream(&p->text, &p->n) : NULL;
    return p->out != NULL;
}

void wf_page_text(wf_page *p, const char *s)
{
    for (; s && *s; s++) {
        const char *tag = *s == '<'    ? "&lt;"
                          : *s == '>'  ? "&gt;"
                          : *s == '&'  ? "&amp;"
                          : *s == '"'  ? "&quot;"
                          : *s == '\'' ? "&#39;"
                                       : NULL;
        if (tag) {
            fputs(tag, p->out);
        } else {
            fputc(*s, p->out);
        }
    }
}

void wf_page_link(wf_page *p, const char *file)
{
    fputs("<a href=\"", p->out);
    wf_page_text(p, file);
    fputs("\">", p->out);
    wf_page_text(p, file);
    fputs("</a> ", p->out);
}

void wf_page_end(wf_page *p)
{
    static const char head[] =
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>weft</title>\n<style>"
        "body{font:14px sans-serif;margin:1em "
        "2em}pre{margin:0;font-size:12px}td{vertical-align:top;"
        "padding:0 1em 0 0}summary{cursor:pointer}h2{border-top:1px solid}</style>\n<h1>weft: what "
        "was "
        "compiled</h1>\n";
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool begun;
    const bool whole = fclose(p->out) == 0;
    pthread_mutex_lock(&lock);
    FILE *out = whole ? open_file("index", "html", begun ? "a" : "w") : NULL;
    if (out) {
        fputs(begun ? "" : head, out);
        fputs(p->text, out);
        begun = fclose(out) == 0 || begun;
    }
    pthread_mutex_unlock(&lock);
    free(p->text);
}
