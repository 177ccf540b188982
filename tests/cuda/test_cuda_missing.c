/*
 * tests/cuda/test_cuda_missing.c -- what a GPU needs and a machine lacks: each is an error value that says what to do, and
 * programs on the CPU go on.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/cuda_support.h"

#include "eager/cuda/library.h"
#include "tests/support/support.h"
#include "weft/weft.h"

enum { N = 6 };

static void check_cpu(void)
{
    float v[N];
    weft_tensor x = weft_arange(0, N, 1, WEFT_F32);
    cr_assert_eq(weft_to_array(weft_mul(x, x), v, N, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(v[N - 1], (N - 1) * (N - 1));
    cr_assert(weft_ok(weft_to(x, WEFT_CPU)));
}

static void check_says(const char *text, const char *what, const char *remedy)
{
    cr_assert(strstr(text, what), "not '%s': %s", what, text);
    cr_assert(strstr(text, remedy), "not '%s': %s", remedy, text);
}

/* Nothing gets to the device, by whatever way, and everybody says why. */
static void check_no_device(weft_device d, const char *what, const char *remedy)
{
    weft_tensor x = weft_ones(weft_shape(N), WEFT_F32), t = weft_to(x, d);
    check_error("to", t, WEFT_EUNSUPPORTED, "cuda:");
    check_says(weft_error_text(t), what, remedy);
    check_says(weft_cuda_missing(d), what, remedy);
    cr_assert_eq(weft_set_default_device(d), WEFT_EUNSUPPORTED);
    check_says(weft_last_error(), what, remedy);
    cr_assert_eq(weft_synchronize(d), WEFT_EUNSUPPORTED);
    check_says(weft_last_error(), what, remedy);
    t = weft_to_async(x, d);
    check_error("to_async", t, WEFT_EUNSUPPORTED, what);
    cr_assert_eq(weft_default_device().kind, WEFT_DEVICE_CPU);
    check_cpu();
}

static void with(const char *name, const char *value)
{
    cr_assert_eq(setenv(name, value, 1), 0);
}

Test(cuda_missing, no_driver)
{
    with("WEFT_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    check_no_device(WEFT_CUDA(0), "(/nowhere/libcuda.so.1) is not found",
                    "install NVIDIA's driver");
}

Test(cuda_missing, a_driver_that_is_no_library)
{
    with("WEFT_CUDA_DRIVER", WEFT_SOURCE_DIR "/CMakeLists.txt");
    check_no_device(WEFT_CUDA(0),
                    "CMakeLists.txt) cannot be opened: ", "invalid ELF header; reinstall it");
}

/* What the doctor says. */
static const char *doctor(void)
{
    static char text[20000];
    FILE *f = fmemopen(text, sizeof text, "w");
    cr_assert(f);
    weft_doctor(f);
    fclose(f);
    return text;
}

/* A folder whose path is long, and in it a library that needs another, which is not there, and a text. */
static char deep[TEST_PATH], needy[300], no_library[300];
static void make_needy(void)
{
    char command[2000];
    test_new_folder(deep);
    snprintf(command, sizeof command,
             "cd %s && cc -shared -x c /dev/null -o libneeded.so && mkdir -p "
             "%0200d && cc -shared -x c /dev/null -Wl,--no-as-needed -L. -lneeded -o "
             "%0200d/libneedy.so && rm libneeded.so && echo text > %0200d/libtext.so",
             deep, 0, 0, 0);
    cr_assert_eq(system(command), 0, "%s", command);
    snprintf(needy, sizeof needy, "%s/%0200d/libneedy.so", deep, 0);
    snprintf(no_library, sizeof no_library, "%s/%0200d/libtext.so", deep, 0);
}

static void drop_needy(void)
{
    char command[400];
    snprintf(command, sizeof command, "rm -r '%s'", deep);
    cr_assert_eq(system(command), 0);
}

static const char lacks[] =
    "0/libneedy.so) cannot be opened: libneeded.so: cannot open shared object file: ";

/* The driver is there, what it needs is not: that is said, with its name, however long the path. */
Test(cuda_missing, a_driver_that_lacks_a_library, .init = make_needy, .fini = drop_needy)
{
    with("WEFT_CUDA_DRIVER", needy);
    check_no_device(WEFT_CUDA(0), lacks, "; reinstall it or set WEFT_CUDA_DRIVER");
}

Test(cuda_missing, a_driver_of_a_long_path_that_is_no_library, .init = make_needy,
     .fini = drop_needy)
{
    with("WEFT_CUDA_DRIVER", no_library);
    check_no_device(WEFT_CUDA(0), "0/libtext.so) cannot be opened: file too short",
                    "; reinstall it or set WEFT_CUDA_DRIVER");
}

/* The same of the libraries, and of a driver that the loader finds by its name. */
Test(cuda_missing, libraries_that_lack_a_library, .init = make_needy, .fini = drop_needy)
{
    char want[300];
    static const char *const settings[][3] = {
        {"WEFT_NVRTC", "NVRTC             (...", "without which no GPU computes"},
        {"WEFT_CUBLASLT", "GPU products      cuBLASLt (...", "weft's own kernels"},
        {"WEFT_CUDNN", "GPU convolutions  cuDNN 9 (...", "weft's own kernels"}};
    for (int i = 0; i < 3; i++) {
        with(settings[i][0], needy);
    }
    with_fake(FAKE_LATE, 1);
    const char *text = doctor();
    for (int i = 0; i < 3; i++) {
        const char *line = strstr(text, settings[i][1]), *end = line ? strchr(line, '\n') : NULL;
        cr_assert(end, "no %s: %s", settings[i][1], text);
        snprintf(want, sizeof want, "%.*s", (int)(end - line), line);
        check_says(want, lacks, settings[i][2]);
    }
    close_fake();
}

Test(cuda_missing, an_old_driver)
{
    with("FAKE_CUDA_VERSION", "11080");
    fake_cuda(FAKE_LATE, 1);
    check_no_device(WEFT_CUDA(0), "version 11.8, too old: 12.0", "driver 525 or later");
}

Test(cuda_missing, a_library_without_the_functions)
{
    with("WEFT_CUDA_DRIVER", "libm.so.6");
    check_no_device(WEFT_CUDA(0), "lacks cu", "driver 525 or later");
}

Test(cuda_missing, a_driver_that_does_not_start)
{
    const fake_driver *fake = fake_cuda(FAKE_LATE, 1);
    fake->fail("cuInit", 1, 999);
    check_no_device(WEFT_CUDA(0), "does not start: CUDA_ERROR_UNKNOWN", "nvidia-smi");
}

Test(cuda_missing, no_device)
{
    with("FAKE_CUDA_DEVICES", "0");
    fake_cuda(FAKE_LATE, 1);
    check_no_device(WEFT_CUDA(0), "finds no GPU", "CUDA_VISIBLE_DEVICES");
    cr_assert_eq(weft_cuda_count(), 0);
}

Test(cuda_missing, no_such_device)
{
    with_fake(FAKE_LATE, 1);
    check_no_device(WEFT_CUDA(1), "lists 1 device", "CUDA_VISIBLE_DEVICES");
    weft_tensor x = weft_to(weft_ones(weft_shape(N), WEFT_F32), WEFT_CUDA(0));
    cr_assert_eq(weft_item_f64(weft_slice(x, 0, 0, 1, 1)), 1, "the other one works");
}

Test(cuda_missing, an_old_device)
{
    with("FAKE_CUDA_ARCH", "61");
    fake_cuda(FAKE_LATE, 1);
    check_no_device(WEFT_CUDA(0), "is sm_61", "compute capability 7.0 or later is needed");
}

/* The device is there, its tensors come and go, but no kernel can be made: ops fail and say why, and so they do again. */
static void check_no_kernels(const char *what, const char *remedy)
{
    weft_device d = WEFT_CUDA(0);
    float v[N];
    with_fake(FAKE_LATE, 1);
    weft_tensor x = weft_to(weft_arange(0, N, 1, WEFT_F32), d);
    cr_assert(weft_ok(x), "%s", weft_last_error());
    for (int i = 0; i < 2; i++) {
        weft_tensor y = weft_mul(x, x);
        check_error("mul", y, WEFT_EUNSUPPORTED, what);
        check_says(weft_error_text(y), what, remedy);
        cr_assert_eq(weft_mul_(x, weft_f(2)), WEFT_EUNSUPPORTED);
        check_says(weft_last_error(), what, remedy);
        y = weft_sum(x);
        check_error("sum", y, WEFT_EUNSUPPORTED, what);
    }
    weft_tensor h = weft_to(x, WEFT_CPU);
    cr_assert_eq(weft_to_array(weft_mul(h, h), v, N, WEFT_F32), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(v[N - 1], (N - 1) * (N - 1), "on the host it goes on");
    check_cpu();
}

Test(cuda_missing, no_nvrtc)
{
    with("WEFT_NVRTC", "/nowhere/libnvrtc.so");
    check_no_kernels("no NVRTC", "WEFT_NVRTC or CUDA_HOME");
    check_says(doctor(), "NVRTC             not found, without which no GPU computes",
               "WEFT_NVRTC");
}

/* Of a path that fills an error's sentence the reason behind it is left. */
Test(cuda_missing, no_nvrtc_at_a_long_path)
{
    char path[256] = "/nowhere";
    for (size_t n = strlen(path); n < 220; n = strlen(path)) {
        snprintf(path + n, sizeof path - n, "/a folder");
    }
    with("WEFT_NVRTC", path);
    check_no_kernels("No such file or directory", "WEFT_NVRTC or CUDA_HOME");
}

Test(cuda_missing, a_library_that_is_no_nvrtc)
{
    with("WEFT_NVRTC", "libm.so.6");
    check_no_kernels("libnvrtc has no nvrtcCreateProgram", "WEFT_NVRTC or CUDA_HOME");
}

Test(cuda_missing, an_nvrtc_that_does_not_know_the_device)
{
    with("FAKE_CUDA_ARCH", "999");
    with("WEFT_NVRTC", WEFT_FAKE_NVRTC);
    check_no_kernels("does not know sm_999", "name a newer one in WEFT_NVRTC");
}

Test(cuda_missing, an_nvrtc_that_dropped_the_device)
{
    with("FAKE_CUDA_ARCH", "70");
    with("WEFT_NVRTC", WEFT_FAKE_NVRTC);
    check_no_kernels("does not know sm_70", "name CUDA 12's in WEFT_NVRTC");
}

/* An NVRTC in a folder that the loader does not look into opens its other half by name, and does not say where it is: pip's
 * of CUDA 13. */
static void check_builtins(bool beside)
{
    char folder[] = "/tmp/weft-nvrtc-......", path[64], command[512];
    int major = 0, minor = 0;
    memset(strchr(folder, '.'), 'X', 6);
    void *library = dlopen(WEFT_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
    int (*version)(int *, int *) = NULL;
    cr_assert(library && mkdtemp(folder));
    void *symbol = dlsym(library, "nvrtcVersion");
    memcpy(&version, &symbol, sizeof version);
    cr_assert(version && version(&major, &minor) == 0);
    cr_assert_eq(dlclose(library), 0);
    snprintf(command, sizeof command,
             "cp %s %s/libnvrtc.so.13 && cc -shared -x c /dev/null "
             "-Wl,-soname,libnvrtc-builtins.so.%d.%d -o "
             "%s/%s.so.%d.%d",
             WEFT_FAKE_NVRTC, folder, major, minor, folder,
             beside ? "libnvrtc-builtins" : "elsewhere", major, minor);
    cr_assert_eq(system(command), 0, "%s", command);
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", folder);
    with("WEFT_NVRTC", path);
    with("WEFT_CACHE_SIZE", "0");
    with("FAKE_NVRTC_BUILTINS", "1");
    with_fake(FAKE_LATE, 1);
    weft_tensor x = weft_to(weft_arange(0, N, 1, WEFT_F32), WEFT_CUDA(0)), y = weft_add(x, x);
    if (beside) {
        cr_assert(weft_ok(y), "%s", weft_error_text(y));
    } else {
        check_error("add", y, WEFT_EUNSUPPORTED, "failed to open libnvrtc-builtins.so.13.");
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

Test(cuda_missing, an_nvrtc_whose_other_half_lies_beside_it)
{
    check_builtins(true);
}

Test(cuda_missing, an_nvrtc_without_its_other_half)
{
    check_builtins(false);
}

/* The functions are there and do not work (a container that does not pass them on): memory in fixed segments. */
Test(cuda_missing, a_driver_that_maps_nothing)
{
    static const char *const calls[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                        "cuMemSetAccess"};
    for (int i = 0; i < 4; i++) {
        with_fake(FAKE_LATE, 1);
        gpu->fail(calls[i], 1, 801);
        wf_cuda_block *b = wf_cuda_alloc(0, 5 << 20, &why);
        cr_assert(b, "%s: %s", calls[i], why.rule);
        cr_assert_str_eq(gpu->failed(), calls[i]);
        cr_assert_not(wf_cuda_get_info(0)->expandable);
        cr_assert_eq(gpu->calls("cuMemAlloc_v2"), i + 1, "%s", calls[i]);
        wf_cuda_free(b);
        close_fake();
        cr_assert_eq(gpu->alive("memory"), 0, "%s", calls[i]);
    }
}

/* An empty file of that name in a folder below `root`; returns its path. */
static const char *put(const char *root, const char *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "mkdir -p '%s%s' && touch '%s%s/%s'", root, folder, root, folder,
             name);
    cr_assert_eq(system(path), 0);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    return path;
}

/* What pip installs beside torch, and conda: where a library is looked for that the loader does not find. */
Test(cuda_missing, libraries_among_python_packages)
{
    static const char *const names[] = {"libweft-none.so.13", "libweft-none.so.12"};
    char venv[] = "/tmp/weft_venv_......", conda[] = "/tmp/weft_conda_......", found[1024];
    memset(strchr(venv, '.'), 'X', 6);
    memset(strchr(conda, '.'), 'X', 6);
    cr_assert(mkdtemp(venv) && mkdtemp(conda));
    with("VIRTUAL_ENV", venv);
    with("CONDA_PREFIX", conda);
    with("CUDA_HOME", "");
    cr_assert_not(wf_cuda_library_find(names, 2, found, sizeof found));
    const char *path = put(conda, "/lib", names[1]);
    cr_assert(wf_cuda_library_find(names, 2, found, sizeof found));
    cr_assert_str_eq(found, path);
    path = put(venv, "/lib/python3.12/site-packages/nvidia/cublas/lib", names[1]);
    cr_assert(wf_cuda_library_find(names, 2, found, sizeof found));
    cr_assert_str_eq(found, path);
    path = put(venv, "/lib/python3.12/site-packages/nvidia/cu13/lib", names[0]);
    cr_assert(wf_cuda_library_find(names, 1, found, sizeof found));
    cr_assert_str_eq(found, path);
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s' '%s'", venv, conda);
    cr_assert_eq(system(command), 0);
}

/* Of two releases side by side the one that the driver runs: code of CUDA 13 is refused by a driver of CUDA 12. */
static void check_release(const char *driver, const char *release)
{
    char home[] = "/tmp/weft_home_......", found[1024], command[256];
    memset(strchr(home, '.'), 'X', 6);
    cr_assert(mkdtemp(home));
    put(home, "/lib64", "libnvrtc.so.13");
    put(home, "/lib64", "libnvrtc.so.12");
    with("CUDA_HOME", home);
    with("FAKE_CUDA_VERSION", driver);
    with_fake(FAKE_LATE, 1);
    cr_assert(wf_cuda_nvrtc_find(found, sizeof found));
    cr_assert_str_eq(strrchr(found, '/') + 1, release, "%s", found);
    snprintf(command, sizeof command, "rm -r '%s'", home);
    cr_assert_eq(system(command), 0);
}

Test(cuda_missing, the_compiler_for_a_driver_of_cuda_12)
{
    check_release("12080", "libnvrtc.so.12");
}

Test(cuda_missing, the_compiler_for_a_driver_of_cuda_13)
{
    check_release("13000", "libnvrtc.so.13");
}

Test(cuda_missing, a_driver_that_refuses_the_image)
{
    with("WEFT_NVRTC", WEFT_FAKE_NVRTC);
    with("WEFT_CACHE_SIZE",
         "0"); /* what an earlier run left on disk would be compiled anew, and load */
    with_fake(FAKE_LATE, 1);
    weft_tensor x = weft_to(weft_arange(0, N, 1, WEFT_F32), WEFT_CUDA(0));
    gpu->fail("cuModuleLoadData", 1, 209);
    weft_tensor y = weft_mul(x, x);
    check_error("mul", y, WEFT_EUNSUPPORTED, "CUDA_ERROR_NO_BINARY_FOR_GPU");
    check_says(weft_error_text(y), "driver 13.0 does not take a kernel for sm_90",
               "an older NVRTC in WEFT_NVRTC");
    cr_assert(weft_ok(weft_add(x, x)), "another kernel: %s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_slice(weft_to(x, WEFT_CPU), 0, N - 1, N, 1)), N - 1);
    check_cpu();
}

/* Operands on two devices are named, and what to do is said; neither is harmed. */
Test(cuda_missing, tensors_on_the_wrong_device)
{
    with("FAKE_CUDA_DEVICES", "2");
    with("WEFT_NVRTC", WEFT_FAKE_NVRTC);
    with_fake(FAKE_LATE, 1);
    weft_tensor h = weft_ones(weft_shape(N), WEFT_F32), a = weft_to(h, WEFT_CUDA(0)),
                b = weft_to(h, WEFT_CUDA(1));
    weft_tensor y = weft_add(a, b);
    check_error("two GPUs", y, WEFT_EINVALID, "operand 0 on cuda:0, operand 1 on cuda:1");
    check_says(weft_error_text(y), "two devices", "weft_to(x, device)");
    y = weft_matmul(weft_reshape(h, weft_shape(2, 3)), weft_reshape(a, weft_shape(3, 2)));
    check_error("host and GPU", y, WEFT_EINVALID, "operand 0 on cpu, operand 1 on cuda:0");
    check_error("no such GPU", weft_to(a, WEFT_CUDA(99)), WEFT_EINVALID, "there is no cuda:99");
    cr_assert_eq(weft_add_(h, a), WEFT_EINVALID);
    check_says(weft_last_error(), "cuda:0", "weft_to(x, device)");
    cr_assert_null(weft_data(a));
    check_says(weft_last_error(), "the memory is on cuda:0", "weft_to(x, WEFT_CPU)");
    cr_assert_eq(weft_item_f64(weft_sum(weft_add(a, weft_to(b, WEFT_CUDA(0))))), 2 * N);
    check_cpu();
}

/* A fault on the device: whoever waits is told once what was launched last, or, where each op is waited for, the op itself; then
 * all that is asked of the device is refused in few words. */
static void check_fault(bool blocking)
{
    float v[N];
    with("WEFT_NVRTC", WEFT_FAKE_NVRTC);
    with("WEFT_CUDA_BLOCKING", blocking ? "1" : "0");
    with_fake(FAKE_LATE, 1);
    weft_tensor x = weft_to(weft_ones(weft_shape(N), WEFT_F32), WEFT_CUDA(0));
    gpu->break_device(CU_ILLEGAL_ADDRESS);
    weft_tensor y = weft_mul(x, x);
    if (blocking) {
        check_error("mul", y, WEFT_EUNSUPPORTED, "mul: cuda:0 stopped: CUDA_ERROR_ILLEGAL_ADDRESS");
        check_says(weft_error_text(y), "f32[6] on cuda:0", "[at ");
    } else {
        cr_assert(weft_ok(y) && weft_ok(weft_add(x, x)), "nothing has been waited for");
        cr_assert_eq(weft_to_array(y, v, N, WEFT_F32), WEFT_EUNSUPPORTED);
        check_says(weft_last_error(), "launched last: m_add", "WEFT_CUDA_BLOCKING=1 waits");
    }
    y = weft_mul(x, x);
    check_error("mul", y, WEFT_EUNSUPPORTED, "cuda:0 stopped earlier");
    check_error("to", weft_to(x, WEFT_CPU), WEFT_EUNSUPPORTED, "to: cuda:0 stopped earlier");
    cr_assert_eq(weft_synchronize(WEFT_CUDA(0)), WEFT_EUNSUPPORTED);
    check_says(weft_last_error(), "cuda:0 stopped earlier", "works again in a new process");
    check_cpu();
}

Test(cuda_missing, a_device_that_stops)
{
    check_fault(false);
}

Test(cuda_missing, a_device_that_stops_while_every_op_is_waited_for)
{
    check_fault(true);
}

/* What a driver says in a child of the process that used it first: no op works there, and the way out is said. */
Test(cuda_missing, a_child_of_a_fork)
{
    with_fake(FAKE_LATE, 1);
    weft_tensor x = weft_to(weft_ones(weft_shape(N), WEFT_F32), WEFT_CUDA(0));
    cr_assert_eq(weft_item_f64(weft_slice(x, 0, 0, 1, 1)), 1);
    gpu->fail("cuCtxSetCurrent", 1, CU_NOT_INITIALIZED);
    cr_assert_eq(weft_synchronize(WEFT_CUDA(0)), WEFT_EUNSUPPORTED);
    check_says(weft_last_error(), "cuCtxSetCurrent", "does not survive a fork");
    check_cpu();
}
