/*
 * jit/ir/sites.c -- places in source that come out of a text.
 *
 * A site is a static string of the program that was compiled, and whoever has one keeps the address. So those of a text are kept as
 * long as the process lives, each once: MOST bytes of them at most, as a text may come from anybody.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/ir.h"

enum { MOST = 1 << 20, BUCKETS = 512 };

typedef struct site {
    struct site *next;
    size_t n;
    char s[];
} site;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static site *bucket[BUCKETS];
static size_t kept;

const char *wf_site_keep(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * 16777619u;
    }
    pthread_mutex_lock(&lock);
    site *x = bucket[h % BUCKETS];
    while (x && (x->n != n || memcmp(x->s, s, n) != 0)) {
        x = x->next;
    }
    if (!x && n < MOST - kept && (x = malloc(sizeof *x + n + 1)) != NULL) {
        memcpy(x->s, s, n);
        x->s[n] = '\0';
        x->n = n;
        x->next = bucket[h % BUCKETS];
        bucket[h % BUCKETS] = x;
        kept += n;
    }
    pthread_mutex_unlock(&lock);
    return x ? x->s : NULL;
}

int wf_site_add(const char **list, int n, int most, const char *at)
{
    bool known = !at || n == most;
    for (int i = 0; i < n && !known; i++) {
        known = strcmp(list[i], at) == 0;
    }
    if (!known) {
        list[n++] = at;
    }
    return n;
}

const char *wf_site_file(const char *at)
{
    const char *slash = strrchr(at, '/');
    return slash ? slash + 1 : at;
}
