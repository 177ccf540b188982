/*
 * tests/jit/test_diskcache.c -- objects on disk: found again, never trusted, never in the way.
 *
 * ctest: threads timeout=600
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/diskcache.h"
#include "tests/jit/kernel_support.h"
#include "weft/weft.h"

static char root[64];

/* A folder of its own for each test, named to the process before it first reads its environment. */
static void make_root(const char *cap)
{
    snprintf(root, sizeof root, "/tmp/weft-disk-%d", (int)getpid());
    cr_assert_eq(mkdir(root, 0700), 0);
    setenv("WEFT_CACHE_DIR", root, 1);
    setenv("WEFT_CACHE_SIZE", cap, 1);
}

static void drop_root(void)
{
    char command[192];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", root, root);
    cr_assert_eq(system(command), 0);
}

static wf_disk_stats stats(void)
{
    wf_disk_stats s;
    wf_disk_get_stats(&s);
    return s;
}

static void put(const char *identity, const char *object)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", object);
    const wf_blob b = {copy, strlen(copy)};
    wf_disk_put(identity, strlen(identity), &b);
}

/* Is that object found under the identity? */
static bool has(const char *identity, const char *object)
{
    wf_blob b;
    if (!wf_disk_get(identity, strlen(identity), &b))
        return false;
    cr_assert_eq(b.size, strlen(object));
    cr_assert_eq(memcmp(b.data, object, b.size), 0);
    wf_blob_free(&b);
    return true;
}

/* Path of the only file. */
static void only_file(char *path, size_t n)
{
    DIR *d = opendir(wf_disk_folder());
    cr_assert_not_null(d);
    path[0] = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            cr_assert_eq(path[0], 0);
            snprintf(path, n, "%s/%s", wf_disk_folder(), e->d_name);
        }
    closedir(d);
    cr_assert_neq(path[0], 0);
}

Test(diskcache, put_and_get)
{
    make_root("1M");
    cr_assert_not(has("a kernel", "its object"));
    put("a kernel", "its object");
    put("another", "other object");
    cr_assert(has("a kernel", "its object"));
    cr_assert(has("another", "other object"));
    cr_assert_not(has("a kerne", "its object"));
    struct stat s;
    cr_assert_eq(stat(wf_disk_folder(), &s), 0);
    cr_assert_eq(s.st_mode & 0777, 0700u);
    int64_t files, bytes;
    wf_disk_survey(true, &files, &bytes);
    cr_assert_eq(files, 2);
    cr_assert_not(has("another", "other object"));
    cr_assert_eq(stats().written, 2);
    cr_assert_eq(stats().damaged, 0);
    cr_assert_eq(wf_disk_reason()[0], 0);
    drop_root();
}

/* The folder stays open: with the number of a stream that is closed it would be gone when the program opens that again. */
Test(diskcache, keeps_off_the_standard_streams)
{
    make_root("1M");
    const pid_t pid = fork();
    if (pid == 0) {
        close(STDERR_FILENO);
        put("a kernel", "its object");
        const bool is_free =
            write(STDERR_FILENO, "a message", 9) < 0 && dup(STDOUT_FILENO) == STDERR_FILENO;
        put("another", "other object");
        _exit(is_free && has("a kernel", "its object") && has("another", "other object") ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    drop_root();
}

/* Every byte changed, every length, and things that are no files: not found, and gone. */
Test(diskcache, hostile_files)
{
    char path[700], good[512];
    make_root("1M");
    put("identity of a kernel", "object of a kernel");
    only_file(path, sizeof path);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(good, 1, sizeof good, f);
    fclose(f);
    cr_assert_gt(n, 80u);
    for (size_t at = 0; at < 2 * n + 40; at++) {
        char bad[1024] = {0};
        memcpy(bad, good, n);
        size_t size = n;
        if (at < n)
            bad[at] = (char)(bad[at] ^ (1 << at % 8));
        else
            size = at - n == n ? n + 1 : at - n;
        unlink(path);
        f = fopen(path, "wb");
        cr_assert_eq(fwrite(bad, 1, size, f), size);
        fclose(f);
        cr_assert_not(has("identity of a kernel", "?"), "byte %zu", at);
        cr_assert_neq(access(path, F_OK), 0, "byte %zu", at);
    }
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    cr_assert_not(has("identity of a kernel", "?"));
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_not(has("identity of a kernel", "?"));
    unlink(path);
    put("identity of a kernel", "object of a kernel");
    cr_assert(has("identity of a kernel", "object of a kernel"));
    cr_assert_eq(chmod(path, 0666), 0); /* somebody else may have written it */
    cr_assert_not(has("identity of a kernel", "object of a kernel"));
    cr_assert_eq(mkdir(path, 0700), 0); /* cannot be deleted: still harmless */
    cr_assert_not(has("identity of a kernel", "?"));
    put("identity of a kernel", "object of a kernel");
    cr_assert_eq(stats().refused, 1);
    put("another", "object of another");
    int64_t files, bytes; /* of kernels, which can be removed; a folder cannot */
    wf_disk_survey(true, &files, &bytes);
    cr_assert_eq(files, 1);
    cr_assert_lt(bytes, 1024);
    drop_root();
}

Test(diskcache, refuses_a_folder_that_others_may_write_to)
{
    char path[128];
    make_root("1M");
    snprintf(path, sizeof path, "%s/weft-1", root);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chmod(path, 0777), 0);
    char log[128], said[512] = "", want[256];
    snprintf(log, sizeof log, "%s/said", root);
    setenv("WEFT_DEBUG", "1", 1);
    cr_assert_not_null(freopen(log, "w", stderr));
    put("a", "b");
    cr_assert_not(has("a", "b"));
    cr_assert_eq(wf_disk_folder()[0], 0);
    cr_assert_not_null(strstr(wf_disk_reason(), "others may write"));
    fflush(stderr);
    FILE *f = fopen(log, "r");
    cr_assert_not_null(f);
    cr_assert_gt(fread(said, 1, sizeof said - 1, f), 0u);
    fclose(f);
    snprintf(want, sizeof want,
             "weft: kernels are not kept on disk: others may write to the folder: %s\n", path);
    cr_assert_str_eq(said, want); /* once */
    drop_root();
}

Test(diskcache, refuses_a_link)
{
    char path[128], target[160];
    make_root("1M");
    snprintf(path, sizeof path, "%s/weft-1", root);
    snprintf(target, sizeof target, "%s/elsewhere", root);
    cr_assert_eq(mkdir(target, 0700), 0);
    cr_assert_eq(symlink(target, path), 0);
    cr_assert_not(has("a", "b"));
    cr_assert_not_null(strstr(wf_disk_reason(), "link"));
    drop_root();
}

Test(diskcache, can_be_switched_off)
{
    make_root("0");
    put("a", "b");
    cr_assert_not(has("a", "b"));
    cr_assert_not_null(strstr(wf_disk_reason(), "WEFT_CACHE_SIZE"));
    drop_root();
}

Test(diskcache, oldest_use_goes_first)
{
    make_root("8K");
    static char big[1000];
    char identity[32];
    memset(big, 'x', sizeof big);
    for (int i = 0; i < 40; i++) {
        const wf_blob b = {big, sizeof big};
        snprintf(identity, sizeof identity, "kernel %d", i);
        wf_disk_put(identity, strlen(identity), &b);
        wf_blob first; /* in use all the time */
        cr_assert(wf_disk_get("kernel 0", 8, &first), "%d", i);
        wf_blob_free(&first);
        usleep(2000);
        int64_t files, bytes;
        wf_disk_survey(false, &files, &bytes);
        cr_assert_leq(bytes, 8 << 10);
    }
    cr_assert_gt(stats().evicted, 20);
    drop_root();
}

/* What another process has written since the folder was last counted is seen before a sixteenth more is. */
Test(diskcache, processes_keep_to_one_cap)
{
    make_root("64K");
    static char big[1000];
    char identity[32];
    int64_t files, bytes;
    memset(big, 'x', sizeof big);
    const wf_blob b = {big, sizeof big};
    wf_disk_put("first", 5, &b);
    const pid_t child = fork();
    for (int i = 0; child == 0 && i < 58; i++) {
        snprintf(identity, sizeof identity, "child %d", i);
        wf_disk_put(identity, strlen(identity), &b);
    }
    if (child == 0)
        _exit(stats().evicted != 0);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
    for (int i = 0; i < 40; i++) {
        snprintf(identity, sizeof identity, "parent %d", i);
        wf_disk_put(identity, strlen(identity), &b);
        wf_disk_survey(false, &files, &bytes);
        cr_assert_leq(bytes, (64 << 10) + (64 << 10) / 16 + 1100, "%d", i);
    }
    cr_assert_gt(stats().evicted, 10);
    drop_root();
}

/* -- kernels --------------------------------------------------------------------------------------------------- */
static wf_jitk *chain_of(wf_program *p, int length)
{
    wf_program_init(p);
    int v = wf_program_input(p, WEFT_F32);
    for (int i = 0; i < length; i++)
        v = wf_program_map(p, i % 2 ? WF_OP_SQUARE : WF_OP_NEG, WEFT_F32, 1, &v);
    wf_program_output(p, v);
    cr_assert_eq(wf_program_finish(p), 0);
    return wf_jitk_get(p, &(wf_jitk_opts){.sync = true});
}

Test(diskcache, a_second_time_compiles_nothing)
{
    NEED_LLVM();
    enum { N = 6 };
    static wf_program p;
    wf_jitk_stats s;
    const int64_t dims[1] = {1000};
    make_root("1M");
    for (int i = 0; i < N; i++)
        wf_jitk_release(chain_of(&p, 1 + i));
    wf_jitk_trim();
    for (int i = 0; i < N; i++) {
        operands o;
        wf_jitk *k = chain_of(&p, 1 + i);
        make_operands(&o, &p, 1, dims, true, i);
        run_both(k, &p, &o, 0);
        drop_operands(&o);
        wf_jitk_release(k);
    }
    wf_jitk_get_stats(&s);
    cr_assert_eq(s.compiled, N);
    cr_assert_eq(s.loaded, N);
    cr_assert_eq(s.failed, 0);
    drop_root();
}

static weft_status layers(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self, (void)n_in, (void)n_out;
    weft_tensor h = weft_gelu(weft_add(weft_mul(in[0], in[0]), weft_f(2)));
    out[0] = weft_sum(weft_square(weft_sub(h, weft_mean(h, .axes = weft_axes(1), .keepdim = true))),
                      .axes = weft_axes(0));
    return weft_error_status(out[0]);
}

/* What a process that runs a traced function under WEFT_ISA=isa compiles, and what it loads. */
static void kernels_of_a_process(const char *isa, int *compiled, int *loaded)
{
    int ends[2], status;
    wf_jitk_stats s;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        setenv("WEFT_ISA", isa, 1);
        weft_jit *j = weft_jit_trace(layers, NULL, .synchronous = true);
        weft_tensor x = weft_ones(weft_shape(70, 90), WEFT_F32), y;
        int rc = (int)weft_jit_call(j, &x, 1, &y, 1);
        weft_jit_free(j);
        wf_jitk_get_stats(&s);
        rc = rc || s.failed || write(ends[1], &s, sizeof s) != (ssize_t)sizeof s;
        _exit(rc);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %x", isa, (unsigned)status);
    cr_assert_eq(read(ends[0], &s, sizeof s), (ssize_t)sizeof s);
    close(ends[0]);
    close(ends[1]);
    *compiled = (int)s.compiled;
    *loaded = (int)s.loaded;
}

/* A second process compiles nothing; one for another instruction set takes nothing of theirs, and has its own the next time. */
Test(diskcache, processes_load_what_is_of_their_instruction_set)
{
    NEED_LLVM();
    static const char *const isas[] = {"sse2", "avx2"};
    int compiled[2], loaded[2];
    make_root("8M");
    for (int i = 0; i < 2; i++) {
        for (int again = 0; again < 2; again++) {
            kernels_of_a_process(isas[i], &compiled[again], &loaded[again]);
        }
        cr_expect(compiled[0] >= 2 && loaded[0] == 0, "%s: %d compiled, %d loaded", isas[i],
                  compiled[0], loaded[0]);
        cr_expect(compiled[1] == 0 && loaded[1] == compiled[0], "%s again: %d compiled, %d loaded",
                  isas[i], compiled[1], loaded[1]);
    }
    kernels_of_a_process(isas[0], &compiled[0], &loaded[0]);
    cr_expect(compiled[0] == 0 && loaded[0] >= 2, "%d compiled, %d loaded", compiled[0], loaded[0]);
    drop_root();
}

/* Two processes at once, and one killed while it writes. */
Test(diskcache, processes_share_a_folder)
{
    make_root("1M");
    pid_t child[3];
    for (int c = 0; c < 3; c++) {
        child[c] = fork();
        if (child[c] == 0) {
            for (int i = 0; c == 2 || i < 200; i++) {
                char identity[32], object[32];
                snprintf(identity, sizeof identity, "kernel %d", i % 20);
                snprintf(object, sizeof object, "object %d", i % 20);
                put(identity, object);
                wf_blob b;
                if (wf_disk_get(identity, strlen(identity), &b)) {
                    if (memcmp(b.data, object, b.size) != 0)
                        _exit(3);
                    wf_blob_free(&b);
                }
            }
            _exit(stats().damaged != 0);
        }
    }
    usleep(20000);
    kill(child[2], SIGKILL);
    for (int c = 0; c < 3; c++) {
        int status;
        cr_assert_eq(waitpid(child[c], &status, 0), child[c]);
        cr_assert(c == 2 || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%d: %x", c,
                  (unsigned)status);
    }
    for (int i = 0; i < 20; i++) {
        char identity[32], object[32];
        snprintf(identity, sizeof identity, "kernel %d", i);
        snprintf(object, sizeof object, "object %d", i);
        cr_assert(has(identity, object));
    }
    drop_root();
}
