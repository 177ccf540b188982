/*
 * tests/runner/runner.c -- runs Criterion tests under sanitizers and under emulators of processors.
 *
 * Criterion starts every test through an arena at a fixed address, which TSan refuses to map, in a process that executes
 * the program anew, which an emulator of one process does not follow. This main() takes the place of Criterion's in TSan
 * builds and where WEFT_FORK_RUNNER is set: it walks the tests Criterion's macros have registered
 * (section cr_tst), forks once per test and defines the hooks that those macros call. Same closing line,
 * same exit status. A race that TSan reports, or a leak, makes the child exit with a status of its own, which counts
 * as a failure.
 */
#include <criterion/criterion.h>
#include <criterion/event.h>
#include <criterion/parameterized.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_FAILED_TEST = 90, EXIT_SKIPPED_TEST = 91, EXIT_CLEAN_TEST = 92 };

extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
/* Weak: a program need not declare a TestSuite. */
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

static jmp_buf leave_test;
static int outcome = EXIT_CLEAN_TEST;
static const struct criterion_test *current;
static void *current_parameter;
static bool parameterised;

void criterion_send_assert(struct criterion_assert_stats *stats)
{
    if (stats->passed)
        return;
    outcome = EXIT_FAILED_TEST;
    fprintf(stderr, "[----] %s:%u: Assertion failed: %s\n", stats->file, stats->line,
            stats->message ? stats->message : "");
}

void criterion_abort_test(void)
{
    longjmp(leave_test, 1);
}

void criterion_continue_test(void)
{
}

__attribute__((format(printf, 1, 2))) void criterion_skip_test(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "[SKIP] %s::%s: ", current->category, current->name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (outcome == EXIT_CLEAN_TEST) /* what has failed before has failed */
        outcome = EXIT_SKIPPED_TEST;
    longjmp(leave_test, 1);
}

/* Criterion's own tells its parent. */
void cr_log(enum criterion_severity severity, const char *format, ...)
{
    va_list args;
    (void)severity;
    va_start(args, format);
    fputs("[INFO] ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* Parameters come from Criterion's arena, which does not exist here. */
void *cr_malloc(size_t size)
{
    return malloc(size);
}

void *cr_calloc(size_t n, size_t size)
{
    return calloc(n, size);
}

void *cr_realloc(void *p, size_t size)
{
    return realloc(p, size);
}

void cr_free(void *p)
{
    free(p);
}

/* The suite's options of a test, NULL if it has none. */
static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test)
{
    for (struct criterion_suite **s = __start_cr_sts; s < __stop_cr_sts; s++)
        if (*s && strcmp((*s)->name, test->category) == 0)
            return (*s)->data;
    return NULL;
}

void criterion_internal_test_setup(void)
{
    const struct criterion_test_extra_data *suite = suite_of(current);
    if (suite && suite->init)
        suite->init();
    if (current->data->init)
        current->data->init();
}

void criterion_internal_test_main(void (*fn)(void))
{
    if (parameterised)
        ((void (*)(void *))(void *)fn)(current_parameter);
    else
        fn();
}

void criterion_internal_test_teardown(void)
{
    if (current->data->fini)
        current->data->fini();
    const struct criterion_test_extra_data *suite = suite_of(current);
    if (suite && suite->fini)
        suite->fini();
}

static struct {
    int tested, passing, failing, crashing;
} totals;

/* Runs one test in a child of its own. */
static void run_test(const struct criterion_test *test, void *parameter)
{
    fprintf(stderr, "[RUN ] %s::%s\n", test->category, test->name);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(2);
    }
    if (child == 0) {
        current = test;
        current_parameter = parameter;
        if (test->data->timeout > 0)
            alarm((unsigned)test->data->timeout * 10 + 1);
        if (setjmp(leave_test) == 0)
            test->test();
        fflush(NULL);
        exit(outcome);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        status = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED_TEST)
        return;
    totals.tested++;
    const int signal = test->data->signal; /* that it has to end by, or 0 */
    if (signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal
               : WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CLEAN_TEST) {
        totals.passing++;
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILED_TEST)
        totals.failing++;
    else
        totals.crashing++;
    fprintf(stderr, "[FAIL] %s::%s (status %#x)\n", test->category, test->name, (unsigned)status);
}

int main(int argc, char **argv)
{
    const char *filter = "*";
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--filter=", 9) == 0)
            filter = argv[i] + 9;
        else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            filter = argv[i + 1];
    }
    for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++) {
        if (!*t || fnmatch(filter, (*t)->data->identifier_, FNM_EXTMATCH) != 0)
            continue;
        if ((*t)->data->disabled) {
            fprintf(stderr, "[SKIP] %s::%s: disabled\n", (*t)->category, (*t)->name);
            continue;
        }
        parameterised = (*t)->data->kind_ == CR_TEST_PARAMETERIZED;
        if (!parameterised) {
            run_test(*t, NULL);
            continue;
        }
        struct criterion_test_params params = (*t)->data->param_();
        for (size_t i = 0; i < params.length; i++)
            run_test(*t, (char *)params.params + i * params.size);
        if (params.cleanup)
            params.cleanup(&params);
    }
    fprintf(stderr, "[====] Synthesis: Tested: %d | Passing: %d | Failing: %d | Crashing: %d\n",
            totals.tested, totals.passing, totals.failing, totals.crashing);
    return totals.tested != totals.passing;
}
