/*
 * jit/gpu/later.c -- the threads that make kernels while programs run instruction by instruction.
 *
 * A model's first step asks for dozens of kernels at once, each some 80 ms of NVRTC, which compiles side by side as long as there
 * are cores: half of them are taken, since the others have the program that asks.
 *
 * Invariants: jobs begin in the order they came; the lock is not held while a kernel is made; at exit the threads
 * end before the compiler's library is closed.
 *
 * NVRTC has objects with destructors, some of them made when it first compiles what needs them: a handler of atexit() that is
 * older runs after their destruction, when a thread that still compiles crashes or never ends. What belongs to the
 * thread that calls exit() is destroyed before any handler runs, so that is where the main thread ends these. Where another
 * thread calls exit(), or the C library has no such list, the handler is left.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/pool.h"
#include "jit/gpu/impl.h"

enum { MOST = 8 };

typedef struct job {
    struct job *behind;
    void (*fn)(void *arg);
    void *arg;
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    job *first, *last;
    pthread_t thread[MOST];
    int running; /* threads */
    int open;    /* jobs that wait or are being done */
    bool stop;
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
        pthread_mutex_unlock(&queue.lock);
        j->fn(j->arg);
        free(j);
        pthread_mutex_lock(&queue.lock);
        if (--queue.open == 0)
            pthread_cond_broadcast(&queue.idle);
    }
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

static void stop(void)
{
    pthread_mutex_lock(&queue.lock);
    const int n = queue.running;
    queue.stop = true;
    queue.running = 0;
    pthread_cond_broadcast(&queue.work);
    pthread_cond_broadcast(&queue.idle);
    pthread_mutex_unlock(&queue.lock);
    for (int i = 0; i < n; i++)
        pthread_join(queue.thread[i], NULL);
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

int wf_gpu_later_threads(void)
{
    const int half = wf_num_threads() / 2;
    return half < 1 ? 1 : half < MOST ? half : MOST;
}

bool wf_gpu_later(void (*fn)(void *arg), void *arg)
{
    static bool registered;
    const int most = wf_gpu_later_threads();
    job *j = calloc(1, sizeof *j);
    if (!j)
        return false;
    *j = (job){NULL, fn, arg};
    pthread_mutex_lock(&queue.lock);
    if (queue.open >= queue.running && queue.running < most && !queue.stop)
        queue.running += wf_thread_start(&queue.thread[queue.running], "weft-compiler", work);
    const bool taken = queue.running > 0;
    if (taken && !registered) {
        atexit(stop);
        registered = true;
    }
    if (taken) {
        queue.open++;
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
    while (!queue.stop && queue.open > 0)
        pthread_cond_wait(&queue.idle, &queue.lock);
    pthread_mutex_unlock(&queue.lock);
}
