/*
 * tests/gpu/runner.c -- main() of the GPU tests without Criterion; see runner.h.
 *
 * usage: PROGRAM [-l | -j N | SUITE/NAME]   lists the tests; runs one of them here; or all, N at a time, each in a process of
 * its own, since a device that a failing kernel broke stays broken for its process. What a test says is printed when it ends.
 */
#include "tests/gpu/runner.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 90, SKIPPED = 91, SECONDS = 300, MOST = 64 };

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
    fflush(NULL);
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
    fflush(NULL);
    _exit(SKIPPED);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const char *name_of(const runner_test *t)
{
    static char name[256];
    snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
    return name;
}

/* A test that runs; what it says goes into a file. */
typedef struct {
    const runner_test *test;
    pid_t pid;
    FILE *said;
    double since;
} running;

static running start(const char *self, const runner_test *t)
{
    const char *seconds = getenv("WEFT_TEST_SECONDS");
    running r = {t, 0, tmpfile(), now()};
    fflush(NULL);
    r.pid = fork();
    if (r.pid == 0) {
        if (r.said) {
            dup2(fileno(r.said), STDOUT_FILENO);
            dup2(fileno(r.said), STDERR_FILENO);
        }
        alarm(seconds && atoi(seconds) > 0 ? (unsigned)atoi(seconds) : SECONDS);
        execl(self, self, name_of(t), (char *)NULL);
        _exit(FAILED);
    }
    return r;
}

static void print(FILE *f)
{
    char text[4096];
    rewind(f);
    for (size_t n; (n = fread(text, 1, sizeof text, f)) > 0;) {
        fwrite(text, 1, n, stdout);
    }
    fclose(f);
}

/* Its code, told. */
static int end(const running *r, int status)
{
    const int rc = WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
    if (r->said) {
        print(r->said);
    }
    if (WIFSIGNALED(status)) {
        printf("[----] %s: signal %d%s\n", name_of(r->test), WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? ", its time was over" : "");
    }
    printf("[%s] %s (%.1f s)\n",
           rc == 0         ? "PASS"
           : rc == SKIPPED ? "SKIP"
                           : "FAIL",
           name_of(r->test), now() - r->since);
    fflush(stdout);
    return rc;
}

/* Every test, lanes at a time; the program's exit status. */
static int run_all(int lanes)
{
    int tested = 0, passed = 0, skipped = 0, busy = 0;
    running rows[MOST] = {0};
    const runner_test *next = first;
    while (next || busy) {
        if (next && busy < lanes) {
            rows[busy] = start("/proc/self/exe", next);
            next = next->next;
            tested++;
            busy += rows[busy].pid > 0;
            continue;
        }
        int status = 0;
        const pid_t pid = wait(&status);
        for (int i = 0; i < busy; i++) {
            if (rows[i].pid == pid) {
                const int rc = end(&rows[i], status);
                passed += rc == 0;
                skipped += rc == SKIPPED;
                rows[i] = rows[--busy];
                break;
            }
        }
    }
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Skipped: %d\n", tested,
           passed, tested - passed - skipped, skipped);
    return tested == passed + skipped && tested > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return run_all(1);
    }
    if (argc == 3 && strcmp(argv[1], "-j") == 0) {
        const int lanes = atoi(argv[2]);
        return run_all(lanes < 1 ? 1 : lanes > MOST ? MOST : lanes);
    }
    for (runner_test *t = first; t; t = t->next) {
        if (strcmp(argv[1], "-l") == 0) {
            puts(name_of(t));
        } else if (strcmp(argv[1], name_of(t)) == 0) {
            t->fn();
            return failed ? FAILED : 0;
        }
    }
    return strcmp(argv[1], "-l") == 0 ? 0 : FAILED;
}
