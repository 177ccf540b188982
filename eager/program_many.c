/*
 * eager/program_many.c -- one program over many independent tensors.
 */
#include "eager/program.h"

int wf_program_run_many(const wf_program *p, int64_t count, const wf_program_args *a)
{
    int status = 0;
    for (int64_t i = 0; i < count; i++) {
        const int s = wf_program_run_on(p, &a[i]);
        status = s != 0 ? s : status;
    }
    return status;
}
