/*
 * jit/ir/thread_text.c -- texts of threads behind one key; see thread_text.h.
 */
#include "jit/ir/thread_text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct texts {
    char *text[WF_TEXT_COUNT];
} texts;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;

static void drop(void *arg)
{
    texts *t = arg;
    for (int i = 0; i < WF_TEXT_COUNT; i++) {
        free(t->text[i]);
    }
    free(t);
}

/* The main thread's are given back too, so that no checker calls them lost. */
static void drop_at_exit(void)
{
    texts *t = pthread_getspecific(key);
    pthread_setspecific(key, NULL);
    if (t) {
        drop(t);
    }
}

static void make_key(void)
{
    ready = pthread_key_create(&key, drop) == 0;
    if (ready) {
        atexit(drop_at_exit);
    }
}

char *wf_thread_text(wf_thread_text_id id)
{
    pthread_once(&once, make_key);
    texts *t = ready ? pthread_getspecific(key) : NULL;
    if (!t && ready) {
        t = calloc(1, sizeof *t);
        if (t && pthread_setspecific(key, t) != 0) {
            free(t);
            t = NULL;
        }
    }
    if (t && !t->text[id]) {
        t->text[id] = calloc(1, WF_THREAD_TEXT);
    }
    return t ? t->text[id] : NULL;
}

const char *wf_thread_text_get(wf_thread_text_id id)
{
    const char *s = wf_thread_text(id);
    return s ? s : "";
}
