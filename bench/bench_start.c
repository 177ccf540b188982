/*
 * bench/bench_start.c -- from starting a process to its first result, the size of the library, and from
 * opening a large safetensors file to a tensor on it.
 *
 * A line per program: wall-clock milliseconds from the fork until the first byte of its output arrives,
 * median of 41 starts in turns with /bin/echo, which is the limit: what any process costs. The library's
 * size is that of a stripped copy. Found beside this program: ../bench/start/first_result, ../libweft.so.
 */
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/support/bench.h"
#include "weft/io.h"

extern char **environ;

typedef struct program {
    const char *name;
    const char *argv[3];
    double target_ms;
} program;

/* Starts a program and waits for it; gives the milliseconds until it wrote something and until it ended. */
static void start(const program *p, double *first, double *end)
{
    int pipes[2], status = 0;
    char buffer[4096];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe(pipes) || posix_spawn_file_actions_init(&actions)) {
        bench_die("no pipe");
    }
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addclose(&actions, pipes[0]);
    posix_spawn_file_actions_addclose(&actions, pipes[1]);
    const double begin = bench_now(0);
    if (posix_spawn(&pid, p->argv[0], &actions, NULL, (char *const *)(uintptr_t)p->argv, environ)) {
        bench_die("cannot start a program; build all benchmarks first");
    }
    close(pipes[1]);
    const ssize_t got = read(pipes[0], buffer, sizeof buffer);
    *first = (bench_now(0) - begin) * 1e3;
    while (read(pipes[0], buffer, sizeof buffer) > 0) {
    }
    waitpid(pid, &status, 0);
    *end = (bench_now(0) - begin) * 1e3;
    close(pipes[0]);
    posix_spawn_file_actions_destroy(&actions);
    if (got <= 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        bench_die("a started program failed");
    }
}

static void stripped_size(const char *library)
{
    char copy[] = "/var/tmp/bench_start......";
    memset(strchr(copy, '.'), 'X', 6);
    const int file = mkstemp(copy);
    if (file < 0) {
        bench_die("no temporary file");
    }
    close(file);
    const char *argv[] = {"strip", "-o", copy, library, NULL};
    pid_t pid;
    int status = 1;
    struct stat info;
    if (posix_spawnp(&pid, "strip", NULL, NULL, (char *const *)(uintptr_t)argv, environ) == 0) {
        waitpid(pid, &status, 0);
    }
    const bool good = status == 0 && stat(copy, &info) == 0;
    unlink(copy);
    if (!good) {
        bench_die("cannot strip the library");
    }
    bench_open("start", "libweft.so, stripped", NULL, NULL, 0);
    bench_number("mb", (double)info.st_size / 1e6);
    bench_number("target_mb", 4);
    bench_close();
}

/* A safetensors file of 1 GiB, all hole but for its header: opened, its one tensor taken, closed. */
static void open_large_file(void)
{
    enum { OPENS = 41 };
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[16384,16384],\"data_"
                                 "offsets\":[0,1073741824]}}       ";
    const uint64_t n = sizeof header - 1;
    char path[] = "/var/tmp/bench_start......";
    memset(strchr(path, '.'), 'X', 6);
    const int file = mkstemp(path);
    if (file < 0 || write(file, &n, 8) != 8 || write(file, header, n) != (ssize_t)n ||
        ftruncate(file, (off_t)(8 + n + (UINT64_C(1) << 30))) != 0) {
        bench_die("no sparse file");
    }
    close(file);
    double ms[OPENS];
    for (int i = -2; i < OPENS; i++) {
        weft_scope scope = weft_scope_begin();
        const double begin = bench_now(0);
        weft_safetensors *f = weft_safetensors_open(path);
        const weft_tensor w = weft_safetensors_get(f, "w");
        ms[i < 0 ? 0 : i] = (bench_now(0) - begin) * 1e3;
        if (weft_numel(w) != INT64_C(1) << 28) {
            bench_die("the file was not opened");
        }
        weft_safetensors_close(f);
        weft_scope_end(scope);
    }
    unlink(path);
    bench_open("start", "1 GiB safetensors file, opened and one tensor taken", NULL, NULL, 0);
    bench_text("clock", "wall");
    bench_number("ms", bench_median(ms, OPENS));
    bench_number("target_ms", 5);
    bench_number("low_ms", ms[OPENS / 4]);
    bench_number("high_ms", ms[OPENS - 1 - OPENS / 4]);
    bench_close();
}

int main(void)
{
    enum { STARTS = 41, PROGRAMS = 3 };
    char self[PATH_MAX], helper[PATH_MAX + 32], library[PATH_MAX + 32];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        bench_die("no /proc/self/exe");
    }
    self[length] = '\0';
    const char *folder = dirname(self);
    snprintf(helper, sizeof helper, "%s/start/first_result", folder);
    snprintf(library, sizeof library, "%s/../libweft.so", folder);
    const program programs[PROGRAMS] = {
        {"first sum printed", {helper, NULL, NULL}, 5},
        {"first matrix product printed (opens oneDNN)", {helper, "matmul", NULL}, 0},
        {"/bin/echo, for scale", {"/bin/echo", "x", NULL}, 0},
    };
    double first[PROGRAMS][STARTS], end[PROGRAMS][STARTS];
    for (int i = -2; i < STARTS; i++) {
        for (int p = 0; p < PROGRAMS; p++) {
            start(&programs[p], &first[p][i < 0 ? 0 : i], &end[p][i < 0 ? 0 : i]);
        }
    }
    for (int p = 0; p < PROGRAMS; p++) {
        bench_open("start", programs[p].name, NULL, NULL, 0);
        bench_text("clock", "wall");
        bench_number("ms", bench_median(first[p], STARTS));
        if (programs[p].target_ms > 0) {
            bench_number("target_ms", programs[p].target_ms);
        }
        bench_number("low_ms", first[p][STARTS / 4]);
        bench_number("high_ms", first[p][STARTS - 1 - STARTS / 4]);
        bench_number("whole_process_ms", bench_median(end[p], STARTS));
        bench_close();
    }
    stripped_size(library);
    open_large_file();
    return 0;
}
