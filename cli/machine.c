/*
 * cli/machine.c -- the commands about this machine: doctor, cache.
 */
#include "cli/cli.h"
#include "io/inflate.h"
#include "jit/diskcache.h"

int cli_doctor(const cli_options *o)
{
    (void)o;
    printf("%-18s%s\n", "compressed .npz",
           wf_inflate_available() ? "read, by zlib" : "refused: built without zlib (zlib1g-dev)");
    weft_doctor(stdout);
    return CLI_OK;
}

int cli_cache(const cli_options *o)
{
    int64_t files = 0, bytes = 0;
    const char *folder = wf_disk_folder();
    if (!folder || !*folder) {
        printf("no cache on disk: %s\n", wf_disk_reason());
        return CLI_OK;
    }
    wf_disk_survey(o->clear, &files, &bytes);
    printf("folder   %s\n%s  %lld, %lld bytes\n", folder, o->clear ? "removed" : "kernels",
           (long long)files, (long long)bytes);
    return CLI_OK;
}
