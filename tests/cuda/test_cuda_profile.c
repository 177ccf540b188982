/*
 * tests/cuda/test_cuda_profile.c -- device work on the timeline, on the fake driver.
 */
#include "tests/cuda/cuda_support.h"
#include "tests/support/effort.h"

#include <stdlib.h>
#include <unistd.h>

#include "eager/profile.h"
#include "tests/support/trace_file.h"

static char path[64];

Test(cuda_profile, launches_and_copies)
{
    enum { N = 64, LAUNCHES = 20 };
    snprintf(path, sizeof path, "/tmp/weft-test-cuda-profile-%ld.json", (long)getpid());
    with_fake(0, 1);
    int32_t host[N] = {0};
    wf_cuda_block *b = wf_cuda_alloc(0, sizeof host, &why);
    cr_assert(b, "%s", why.rule);
    OK(run_fill(b, N, 1)); /* before: not in it */
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < LAUNCHES; i++) {
        OK(run_fill(b, N, i));
    }
    OK(wf_cuda_use(b, true, &why));
    OK(wf_cuda_upload(0, b->address, host, sizeof host, &why));
    OK(wf_cuda_clear(0, b->address, sizeof host, &why));
    OK(wf_cuda_download(0, host, b->address, sizeof host, &why));
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    OK(run_fill(b, N, 1)); /* after */
    trace_file f = trace_file_read(path);
    unlink(path);
    cr_assert_eq(f.error[0], 0, "%s", f.error);
    cr_assert(trace_file_nests(&f), "device work overlaps on a stream");
    cr_assert_eq(trace_count(&f, "device", NULL), LAUNCHES + 3);
    cr_assert_eq(trace_count(&f, "launch", NULL), LAUNCHES + 3);
    cr_assert_eq(trace_count(&f, "device", "fill_i32"), LAUNCHES);
    cr_assert_eq(trace_count(&f, "device", "copy from the host"), 1);
    cr_assert_eq(trace_count(&f, "device", "clear"), 1);
    cr_assert_eq(trace_count(&f, "device", "copy to the host"), 1);
    int64_t host_pid = trace_find(&f, "launch", NULL, 0)->pid;
    int arrows = 0;
    for (int i = 0; i < f.n; i++) {
        const trace_event *s = &f.events[i];
        for (int k = 0; k < f.n && s->ph == 's'; k++) {
            arrows += f.events[k].ph == 'f' && f.events[k].id == s->id && s->pid == host_pid &&
                      f.events[k].pid != host_pid;
        }
    }
    cr_assert_eq(arrows, LAUNCHES + 3, "each launch leads to its own work");
    trace_file_free(&f);
    wf_cuda_free(b);
    close_fake();
}

/* More than the timeline holds back before it looks which events are over. */
Test(cuda_profile, many_pending)
{
    const int launches = 600 + (int)effort_of(2400);
    snprintf(path, sizeof path, "/tmp/weft-test-cuda-profile-%ld.json", (long)getpid());
    with_fake(0, 2);
    wf_cuda_block *b = wf_cuda_alloc(0, 256, &why);
    cr_assert(b, "%s", why.rule);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK);
    for (int i = 0; i < launches; i++) {
        OK(run_fill(b, 64, i));
    }
    OK(wf_cuda_synchronize(0, &why));
    wf_cuda_free(b);
    close_fake(); /* gives its events back, and hands them out before */
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    trace_file f = trace_file_read(path);
    unlink(path);
    cr_assert_eq(f.error[0], 0, "%s", f.error);
    cr_assert_eq(trace_count(&f, "device", NULL), launches);
    cr_assert(trace_file_nests(&f));
    trace_file_free(&f);
}

static int count_in(const char *file, const char *what)
{
    static char text[1 << 20];
    FILE *f = fopen(file, "r");
    cr_assert(f, "%s", file);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    int found = 0;
    for (const char *s = text; (s = strstr(s, what)) != NULL; s++) {
        found++;
    }
    return found;
}

/* The pictures of script/timeline, of a compressed trace: boxes for what was done, an arrow for each launch, the first step and the last. */
Test(cuda_profile, pictures)
{
    enum { N = 64, STEPS = 4, LAUNCHES = 6 };
    char command[300], out[100];
    snprintf(path, sizeof path, "/tmp/weft-test-timeline-%ld.json.gz", (long)getpid());
    with_fake(FAKE_LATE, 3);
    cr_assert_eq(weft_profile_begin(.path = path), WEFT_OK, "%s", weft_last_error());
    wf_cuda_block *b[STEPS];
    for (int s = 0; s < STEPS; s++) {
        weft_profile_range_begin("step");
        b[s] = wf_cuda_alloc(0, s ? N * 4 : 20 << 20, &why); /* the first asks the driver twice */
        for (int i = 0; i < LAUNCHES; i++) {
            OK(run_fill(b[s], N, i));
        }
        OK(wf_cuda_synchronize(0, &why));
        weft_profile_range_end();
    }
    cr_assert_eq(weft_profile_end(), WEFT_OK);
    snprintf(command, sizeof command, "script/timeline %s --launches 5 >/dev/null 2>&1", path);
    cr_assert_eq(system(command), 0);
    snprintf(out, sizeof out, "%.*s-queue.svg", (int)strlen(path) - (int)strlen(".json.gz"), path);
    cr_assert_eq(count_in(out, "class='arrow'"), 5);
    cr_assert_eq(count_in(out, "</svg>"), 1);
    cr_assert_geq(count_in(out, "<title>fill_i32"), 10, "on the host and on the device");
    unlink(out);
    snprintf(out, sizeof out, "%.*s-steps.svg", (int)strlen(path) - (int)strlen(".json.gz"), path);
    cr_assert_eq(count_in(out, "</svg>"), 1);
    cr_assert_eq(count_in(out, "6 launches"), 2);
    cr_assert_geq(count_in(out, "driver memory: map"), 1);
    cr_assert_eq(count_in(out, " 0.0 us of memory calls"), 1, "the last step asks for none");
    unlink(out);
    snprintf(command, sizeof command, "script/timeline %s --range other >/dev/null 2>&1", path);
    cr_assert_neq(system(command), 0, "no such steps");
    unlink(path);
    for (int s = 0; s < STEPS; s++) {
        wf_cuda_free(b[s]);
    }
    close_fake();
}
