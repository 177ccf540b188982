/*
 * eager/doctor.c -- what this build and machine offer, one fact a line; the compiler's: jit/doctor.c.
 *
 * Nothing here is needed to compute: a missing library is named together with what stands in for it.
 */
#include <string.h>

#include "eager/alloc.h"
#include "eager/api.h"
#include "eager/cpu/gemm.h"
#include "eager/cpuid.h"
#include "eager/cuda/blaslt.h"
#include "eager/cuda/dnn.h"
#include "eager/cuda/library.h"
#include "eager/device.h"
#include "eager/env.h"
#include "eager/pool.h"
#include "eager/report.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

void wf_doctor_fact(FILE *out, const char *name, const char *value, const char *remark)
{
    fprintf(out, "%-18s%s%s%s\n", name, value, remark[0] ? "  " : "", remark);
}

/* The compiler of GPU kernels: what is named, what lies in the usual places, or what the loader finds. It stays mapped:
 * C++ runtimes keep memory that only they point to. */
static void compiler(FILE *out)
{
    const char *file = wf_env()->WEFT_NVRTC;
    char path[WF_ENV_STR_MAX + 160], why[WF_CUDA_WHY] = "", line[WF_CUDA_WHY + 40];
    int (*version)(int *major, int *minor) = NULL;
    int major = 0, minor = 0;
    if (!*file) {
        file = wf_cuda_nvrtc_find(path, sizeof path) ? path : "libnvrtc.so.13";
    }
    void *lib = wf_cuda_library_load(file, why);
    if (lib && wf_cuda_library_symbol(lib, "nvrtcVersion", &version)) {
        version(&major, &minor);
        snprintf(line, sizeof line, "%d.%d", major, minor);
    } else {
        snprintf(line, sizeof line, "%s, without which no GPU computes",
                 lib    ? "nvrtcVersion is missing in it"
                 : *why ? why
                        : "not found");
    }
    wf_doctor_fact(out, "NVRTC", line, "(WEFT_NVRTC, CUDA_HOME)");
}

/* A library that is not found, or does not start on the first GPU, leaves all to weft's own kernels. */
static void library(FILE *out, const char *label, const char *name, bool found,
                    bool (*there)(int ordinal), const char *remark)
{
    char line[400];
    wf_why ignored = {0};
    const bool idle = found && wf_cuda_open(0, &ignored) == 0 && !there(0);
    snprintf(line, sizeof line, "%s%s%s", name, idle ? ", which does not start on cuda:0" : "",
             found && !idle ? "" : ": weft's own kernels");
    wf_doctor_fact(out, label, line, remark);
}

/* A line for each GPU, and the libraries that work for them. */
static void gpus(FILE *out)
{
    for (int i = 0; i < wf_cuda_count(); i++) {
        wf_why why = {0};
        const wf_cuda_info *g = wf_cuda_open(i, &why) ? NULL : wf_cuda_get_info(i);
        char label[24], line[220];
        snprintf(label, sizeof label, "cuda:%d", i);
        if (g) {
            snprintf(line, sizeof line, "%s, %s, %.1f GiB, %d processors, driver %d.%d%s", g->name,
                     g->arch, (double)g->memory_bytes / (1 << 30), g->processors, g->driver / 1000,
                     g->driver % 1000 / 10,
                     wf_cuda_is_expandable(i) ? "" : ", memory in fixed segments");
        }
        wf_doctor_fact(out, label, g ? line : why.rule, "");
    }
    library(out, "GPU products", wf_cuda_gemm_name(), wf_cuda_gemm_is_open(), wf_cuda_gemm_there,
            "(WEFT_CUBLASLT)");
    library(out, "GPU convolutions", wf_cuda_conv_name(), wf_cuda_conv_is_open(),
            wf_cuda_conv_there, "(WEFT_CUDNN)");
    wf_cuda_counters c;
    wf_cuda_get_counters(&c);
    if (c.refused) {
        char line[160];
        snprintf(line, sizeof line, "%lld shapes that a library has nothing for, %s the last",
                 (long long)c.refused, wf_cuda_last_refused());
        wf_doctor_fact(out, "own GPU kernels", line, "(WEFT_DEBUG=1 tells of each)");
    }
}

void wf_doctor(FILE *out)
{
    char buf[64];
    wf_doctor_fact(out, "weft", weft_version(), "");
#if defined(__clang__)
    wf_doctor_fact(out, "compiler", "clang " __clang_version__, "");
#else
    wf_doctor_fact(out, "compiler", "gcc " __VERSION__, "");
#endif
    wf_doctor_fact(out, "instruction set", wf_isa_name(wf_isa()), "(WEFT_ISA lowers it)");
    snprintf(buf, sizeof buf, "%d", wf_num_threads());
    wf_doctor_fact(out, "threads", buf, "(WEFT_NUM_THREADS, weft_set_num_threads)");
    wf_doctor_fact(out, "matrix products", wf_gemm_backend_name(), "");
    const char *missing = wf_device_missing(wf_device_code(WEFT_CUDA(0)));
    wf_doctor_fact(out, "devices", missing ? "cpu" : "cpu, cuda", missing ? missing : "");
    compiler(out);
    if (!missing) {
        gpus(out);
    }
    weft_device_fallback f[4];
    int n = weft_device_fallbacks(f, 4);
    for (int i = 0; i < n && i < 4; i++) {
        snprintf(buf, sizeof buf, "%.40s: %lld times", f[i].op, (long long)f[i].count);
        wf_doctor_fact(out, "on the host", buf,
                       n > 4 && i == 3 ? "(and other ops without a kernel)" : "");
    }
    weft_memory_stats m;
    weft_memory_get_stats(&m);
    fprintf(out, "%-18s%lld bytes in use, %lld held, %lld live tensors\n", "memory",
            (long long)m.live_bytes, (long long)m.reserved_bytes, (long long)m.live_tensors);
    fprintf(out, "\nenvironment\n");
    wf_env_list(out);
}
