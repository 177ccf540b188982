/*
 * tests/support/objects.c -- files, graphs that went through one, and what traces say of themselves.
 */
#include "tests/gpu/runner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/support.h"

int test_new_file(char path[TEST_PATH])
{
    snprintf(path, TEST_PATH, "/tmp/weft-test-......");
    memset(strchr(path, '.'), 'X', 6);
    const int fd = mkstemp(path);
    cr_assert(fd >= 0, "no file %s", path);
    return fd;
}

weft_graph *test_reloaded(weft_graph *g)
{
    char path[TEST_PATH];
    close(test_new_file(path));
    cr_assert_eq(weft_graph_save(g, path), WEFT_OK, "%s", weft_last_error());
    weft_graph_free(g);
    g = weft_graph_load(path);
    unlink(path);
    cr_assert_not_null(g, "%s", weft_last_error());
    return g;
}

char *test_explained(weft_jit *j)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    cr_assert_not_null(f);
    cr_assert_eq(weft_jit_explain(j, f), WEFT_OK, "%s", weft_last_error());
    fclose(f);
    return text;
}
