/*
 * tests/gpu/runner.c -- main() of the GPU tests without Criterion; see runner.h.
 *
 * usage: PROGRAM [-l] [SUITE/NAME]   lists the tests; runs one of them here; or all, each in a process of its own, since a
 * device that a failing kernel broke stays broken for its process.
 */
#include "tests/gpu/runner.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 90, SKIPPED = 91, SECONDS = 300 };

static runner_test *first;

void runner_add(runner_test *t)
{
    runner_test **at = &first;
    while (*at) {
        at = &(*at)->next;
    }
    *at = t;
}

static bool failed;

__attribute__((format(printf, 4, 0))) static void tell(const char *file, int line, const char *what,
                                                       const char *fmt, va_list ap)
{
    fprintf(stderr, "[----] %s:%d: %s:", file, line, what);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

void runner_fail(const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(file, line, what, fmt, ap);
    va_end(ap);
    _exit(FAILED);
}

void runner_note(const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(file, line, what, fmt, ap);
    va_end(ap);
    failed = true;
}

void runner_skip(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("[SKIP]", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    _exit(SKIPPED);
}

static int run_apart(const char *self, const runner_test *t)
{
    char name[256];
    snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        execl(self, self, name, (char *)NULL);
        _exit(FAILED);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return FAILED;
    }
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "[----] %s: signal %d\n", name, WTERMSIG(status));
        return FAILED;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    int tested = 0, passed = 0, skipped = 0;
    for (runner_test *t = first; t; t = t->next) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
        if (argc > 1 && strcmp(argv[1], "-l") == 0) {
            puts(name);
            continue;
        }
        if (argc > 1) {
            if (strcmp(argv[1], name) == 0) {
                t->fn();
                return failed ? FAILED : 0;
            }
            continue;
        }
        int rc = run_apart("/proc/self/exe", t);
        tested++;
        passed += rc == 0;
        skipped += rc == SKIPPED;
        printf("[%s] %s\n", rc == 0 ? "PASS" : rc == SKIPPED ? "SKIP" : "FAIL", name);
        fflush(stdout);
    }
    if (argc > 1) {
        return strcmp(argv[1], "-l") == 0 ? 0 : FAILED;
    }
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Skipped: %d\n", tested,
           passed, tested - passed - skipped, skipped);
    return tested == passed + skipped && tested > 0 ? 0 : 1;
}
