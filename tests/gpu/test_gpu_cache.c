/*
 * tests/gpu/test_gpu_cache.c -- no kernel of a GPU is compiled twice: not in a process, and not in the next one, which finds
 * it on disk.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jit/gpu/gpu.h"
#include "tests/gpu/gpu.h"
#include "weft/weft.h"

enum { RESULTS = 6 };
typedef struct told {
    bool done;
    wf_gpu_stats first, again; /* after everything once, and after it again */
    double number[RESULTS];
} told;

static weft_status chain(void *self, const weft_tensor *in, int n, weft_tensor *out, int n_out)
{
    (void)self, (void)n, (void)n_out;
    out[0] = weft_sum(weft_tanh(weft_add(weft_mul(in[0], in[0]), weft_f(0.5))));
    return weft_error_status(out[0]);
}

/* One-op kernels of each kind, written by hand and rendered, and a fused one. */
static void work(double number[RESULTS])
{
    weft_scope s = weft_scope_begin();
    weft_tensor x = weft_to(weft_reshape(weft_arange(0, 600, 1, WEFT_F32), weft_shape(20, 30)),
                            WEFT_CUDA(0)),
                values, indices, traced = x;
    x = weft_sin(x);
    weft_sort(x, 1, false, &values, &indices);
    weft_jit *j = weft_jit_trace(chain, NULL, .synchronous = true);
    weft_jit_call(j, &x, 1, &traced, 1);
    weft_tensor all[RESULTS] = {weft_softmax(x, 1),
                                weft_cumsum(x, 0),
                                weft_matmul(x, weft_contiguous(weft_transpose(x, 0, 1))),
                                values,
                                traced,
                                weft_where(weft_less(x, weft_f(0)), weft_f(1), x)};
    for (int i = 0; i < RESULTS; i++)
        number[i] = weft_item_f64(weft_max(all[i]));
    weft_jit_free(j);
    weft_scope_end(s);
}

#ifndef WEFT_GPU_RUNNER
static void refuse_first_image(void)
{
    fake_cuda(FAKE_RANDOM, 3)->fail("cuModuleLoadData", 1, 200 /* CUDA_ERROR_INVALID_IMAGE */);
}
static told process(void (*before)(void));

/* What is on disk is of an architecture and of an NVRTC, and nobody else's: all is made anew, and found the next time. */
static void check_others(const char *variable, const char *value, const told *first)
{
    const char *was = getenv(variable);
    setenv(variable, value, 1);
    for (int i = 0; i < 2; i++) {
        const told other = process(NULL);
        cr_assert(other.done);
        const int64_t made = i ? other.again.loaded : other.again.compiled,
                      else_ = i ? other.again.compiled : other.again.loaded;
        cr_assert(made >= RESULTS && else_ == 0, "%s=%s: %d were compiled, %d loaded", variable,
                  value, (int)other.again.compiled, (int)other.again.loaded);
        cr_assert_eq(memcmp(other.number, first->number, sizeof other.number), 0);
    }
    if (was)
        setenv(variable, was, 1);
    else
        unsetenv(variable);
}

/* Another build of the same version: a file of another time. */
static void check_another_nvrtc(const char *folder, const told *first)
{
    char path[96], command[700];
    snprintf(path, sizeof path, "%s/libnvrtc.so", folder);
    snprintf(command, sizeof command, "cp '%s' '%s' && touch -d '2001-01-01 00:00' '%s'",
             WEFT_FAKE_NVRTC, path, path);
    cr_assert_eq(system(command), 0, "%s", command);
    check_others("WEFT_NVRTC", path, first);
    unlink(path);
}
#endif

enum { OTHERS = 3 };
static pthread_t beside_it[OTHERS];
static int others;

static void *work_beside(void *number)
{
    work(number);
    return NULL;
}

/* Threads that want the same kernels at the same time. */
static void start_others(void)
{
    static double number[OTHERS][RESULTS];
    while (others < OTHERS &&
           pthread_create(&beside_it[others], NULL, work_beside, number[others]) == 0)
        others++;
}

/* In a process of its own: what it tells through the pipe. `before`: NULL, or called with the device open. */
static void tell(int to, void (*before)(void))
{
    told t = {0};
    wf_why why = {0};
    if (setenv("WEFT_CUBLASLT", "none", 1) == 0 && gpu_prepare(3) && wf_cuda_open(0, &why) == 0) {
        double again[RESULTS];
        if (before)
            before();
        work(t.number);
        for (int i = 0; i < others; i++)
            pthread_join(beside_it[i], NULL);
        wf_gpu_wait_kernels();
        wf_gpu_get_stats(&t.first);
        work(again);
        wf_gpu_wait_kernels();
        wf_gpu_get_stats(&t.again);
        t.done = memcmp(again, t.number, sizeof again) == 0;
    }
    _exit(write(to, &t, sizeof t) == (ssize_t)sizeof t ? 0 : 1);
}

static told process(void (*before)(void))
{
    int ends[2], status = -1;
    told t = {0};
    cr_assert_eq(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0)
        tell(ends[1], before);
    close(ends[1]);
    const ssize_t n = read(ends[0], &t, sizeof t);
    close(ends[0]);
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && n == (ssize_t)sizeof t,
              "status %d", status);
    return t;
}

/* Changes a byte in the middle of every file, or removes all of them, and what they are in. */
static void each_file(const char *folder, bool remove_all)
{
    char path[1024];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        char c = 0;
        if (e->d_name[0] == '.')
            continue;
        if (e->d_type == DT_DIR) {
            each_file(path, remove_all);
            continue;
        }
        if (remove_all) {
            unlink(path);
            continue;
        }
        const int file = open(path, O_RDWR);
        const off_t at = lseek(file, 0, SEEK_END) / 2;
        cr_assert(pread(file, &c, 1, at) == 1);
        c ^= 0x55;
        cr_assert(pwrite(file, &c, 1, at) == 1);
        close(file);
    }
    if (d)
        closedir(d);
    if (remove_all)
        rmdir(folder);
}

/* Who comes while a kernel is made waits for it. */
Test(gpu_cache, threads_compile_a_kernel_once)
{
    setenv("WEFT_CACHE_SIZE", "0", 1);
    const told alone = process(NULL);
    if (!alone.done && alone.first.programs == 0)
        cr_skip_test("no GPU");
    const told beside = process(start_others);
    cr_assert(alone.done && beside.done);
    cr_assert_gt(alone.first.compiled, RESULTS);
    cr_assert_eq(beside.first.compiled, alone.first.compiled, "%d were compiled, of %d",
                 (int)beside.first.compiled, (int)alone.first.compiled);
    cr_assert_eq(memcmp(beside.number, alone.number, sizeof alone.number), 0);
}

Test(gpu_cache, the_next_process_compiles_nothing)
{
    char folder[] = "/tmp/weft_kernels_......";
    memset(strchr(folder, '.'), 'X', 6); /* what mkdtemp replaces */
    cr_assert(mkdtemp(folder));
    setenv("WEFT_CACHE_DIR", folder, 1);
    setenv("WEFT_CACHE_SIZE", "64M", 1);
    const told first = process(NULL);
    if (!first.done && first.first.programs == 0) {
        rmdir(folder);
        cr_skip_test("no GPU");
    }
    cr_assert(first.done);
    cr_assert_gt(first.first.compiled, RESULTS);
    cr_assert_eq(first.first.loaded, 0);
    cr_assert_eq(first.again.compiled, first.first.compiled, "nothing is compiled again");
    const told next = process(NULL);
    cr_assert(next.done);
    cr_assert_eq(next.again.compiled, 0, "%d were compiled", (int)next.again.compiled);
    cr_assert_eq(next.again.loaded, first.first.compiled);
    cr_assert_eq(memcmp(next.number, first.number, sizeof next.number), 0);
#ifndef WEFT_GPU_RUNNER /* what the driver does not take is made anew */
    const told other = process(refuse_first_image);
    cr_assert(other.done);
    cr_assert_eq(other.again.compiled, 1, "%d were compiled", (int)other.again.compiled);
    cr_assert_eq(other.again.loaded, first.first.compiled - 1);
    cr_assert_eq(memcmp(other.number, first.number, sizeof other.number), 0);
    check_others("FAKE_CUDA_ARCH", "80", &first);
    check_another_nvrtc(folder, &first);
#endif
    each_file(folder, false); /* what is damaged is made anew */
    const told last = process(NULL);
    cr_assert(last.done);
    cr_assert_eq(last.again.compiled, first.first.compiled);
    cr_assert_eq(memcmp(last.number, first.number, sizeof last.number), 0);
    each_file(folder, true);
}
