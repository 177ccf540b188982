/*
 * jit/doctor.c -- weft_doctor: what there is for compiled kernels, then eager/doctor.c's facts.
 */
#include "eager/api.h"
#include "eager/report.h"
#include "jit/diskcache.h"
#include "jit/ir/backend.h"
#include "jit/passes/pass.h"

#pragma GCC diagnostic error "-Wmissing-prototypes"

void weft_doctor(FILE *out)
{
    wf_why why = {0};
    if (!out) {
        return;
    }
    const bool missing = wf_backend_cpu.available(&why) != 0;
    wf_doctor_fact(out, "native kernels", missing ? "none, groups run on tiles:" : "LLVM",
                   missing ? why.rule : "");
    const char *folder = wf_disk_folder();
    const bool none = !folder || !*folder;
    wf_doctor_fact(out, "kernels on disk", none ? "none:" : folder, none ? wf_disk_reason() : "");
    if (wf_pass_check_env(&why)) {
        char line[sizeof why.rule + sizeof why.hint + 2];
        snprintf(line, sizeof line, "%s; %s", why.rule, why.hint);
        wf_doctor_fact(out, "WEFT_PASS", line, "");
    }
    if (wf_dump_check_env(&why)) {
        wf_doctor_fact(out, "WEFT_DUMP", why.rule, "");
    }
    wf_doctor(out);
}
