/*
 * jit/gpu/later.c -- the thread that makes kernels while programs run instruction by instruction.
 *
 * Invariants: jobs are done in the order they came; the lock is not held while a kernel is made; at exit the thread
 * ends before the compiler's library is closed.
 *
 * NVRTC has objects with destructors, some of them made when it first compiles what needs them: a handler of atexit() that is
 * older runs after their destruction, when a thread that still compiles crashes or never ends. What belongs to the
 * thread that calls exit() is destroyed before any handler runs, so that is where the main thread ends this one. Where another
 * thread calls exit(), or the C library has no such list, the handler is left.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/gpu/impl.h"

typedef struct job {
    struct job *behind;
    void (*fn)(void *arg);
    void *arg;
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    job *first, *last;
    pthread_t thread;
    bool running, stop, busy;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .work = PTHREAD_COND_INITIALIZER,
           .idle = PTHREAD_COND_INITIALIZER};

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (!queue.stop) {
        job *j = queue.first;
        if (!j) {
            pthread_cond_wait(&queue.work, &queue.lock);
            continue;
        }
        queue.first = j->behind;
        queue.last = queue.first ? queue.last : NULL;
        queue.busy = true;
        pthread_mutex_unlock(&queue.lock);
        j->fn(j->arg);
        free(j);
        pthread_mutex_lock(&queue.lock);
        queue.busy = false;
        pthread_cond_broadcast(&queue.idle);
    }
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

static void stop(void)
{
    pthread_mutex_lock(&queue.lock);
    const bool running = queue.running;
    queue.stop = true;
    queue.running = false;
    pthread_cond_broadcast(&queue.work);
    pthread_cond_broadcast(&queue.idle);
    pthread_mutex_unlock(&queue.lock);
    if (running)
        pthread_join(queue.thread, NULL);
}

/* Of the C++ runtime, in the C library since glibc 2.18. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library)
    __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static void stop_first(void *unused)
{
    (void)unused;
    stop();
}

__attribute__((constructor)) static void stop_before_destructors(void)
{
    if (__cxa_thread_atexit_impl && gettid() == getpid())
        __cxa_thread_atexit_impl(stop_first, NULL, &__dso_handle);
}

bool wf_gpu_later(void (*fn)(void *arg), void *arg)
{
    static bool registered;
    job *j = calloc(1, sizeof *j);
    if (!j)
        return false;
    *j = (job){NULL, fn, arg};
    pthread_mutex_lock(&queue.lock);
    if (!queue.running && !queue.stop) {
        queue.running = pthread_create(&queue.thread, NULL, work, NULL) == 0;
        if (queue.running && !registered)
            atexit(stop);
        registered |= queue.running;
    }
    const bool taken = queue.running;
    if (taken) {
        *(queue.last ? &queue.last->behind : &queue.first) = j;
        queue.last = j;
        pthread_cond_signal(&queue.work);
    }
    pthread_mutex_unlock(&queue.lock);
    if (!taken)
        free(j);
    return taken;
}

void wf_gpu_wait_kernels(void)
{
    pthread_mutex_lock(&queue.lock);
    while (!queue.stop && (queue.first || queue.busy))
        pthread_cond_wait(&queue.idle, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
}
