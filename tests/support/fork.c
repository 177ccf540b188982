/*
 * tests/support/fork.c -- fork() while no other thread of the process runs, under gcc's AddressSanitizer.
 *
 * Criterion's runner has a thread of its own, which allocates, and forks a process for every test. gcc 12's sanitizer does not
 * lock its allocator for that: a child that was made while the thread held a lock of it waits for ever. (clang's does.) This
 * definition stands before the C library's, for Criterion, too.
 *
 * Invariant: the call forks in the end, whatever the other threads do.
 */
#include "tests/support/sanitized.h"

#if UNDER_ASAN && !defined(__clang__)
#include <dirent.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Does a thread wait in the kernel? One that has ended does not run either. */
static bool waits(const char *task)
{
    char path[300], stat[512];
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", task);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    const size_t n = fread(stat, 1, sizeof stat - 1, f);
    fclose(f);
    stat[n] = 0;
    const char *state = strrchr(stat, ')'); /* behind the name, which may have any characters */
    return !state || state[1] == 0 || state[2] != 'R';
}

static bool others_wait(void)
{
    DIR *tasks = opendir("/proc/self/task");
    bool all = true;
    for (const struct dirent *t; tasks && all && (t = readdir(tasks));)
        if (t->d_name[0] != '.' && atoi(t->d_name) != (int)gettid())
            all = waits(t->d_name);
    if (tasks)
        closedir(tasks);
    return all;
}

__attribute__((visibility("default"))) pid_t fork(void)
{
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    for (int tries = 0; tries < 200 && !others_wait(); tries++)
        usleep(1000);
    return real();
}
#endif
