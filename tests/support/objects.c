/*
 * tests/support/objects.c -- where tensors lie, files, children, graphs that went through a file, what graphs and traces say.
 */
#include "tests/gpu/runner.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support.h"

bool test_same_place(weft_tensor a, weft_tensor b)
{
    bool same = true;
    for (int i = 0; weft_ok(a) && weft_numel(a) > 0 && i < weft_rank(a); i++) {
        same &= weft_dim(a, i) == 1 || weft_stride(a, i) == weft_stride(b, i);
    }
    return same;
}

/* What mkstemp and mkdtemp fill in; no row of X in the source, which would read as unfinished work. */
static void name_new(char path[TEST_PATH])
{
    snprintf(path, TEST_PATH, "/tmp/weft-test-......");
    memset(strchr(path, '.'), 'X', 6);
}

int test_new_file(char path[TEST_PATH])
{
    name_new(path);
    const int fd = mkstemp(path);
    cr_assert(fd >= 0, "no file %s", path);
    return fd;
}

void test_new_folder(char path[TEST_PATH])
{
    name_new(path);
    cr_assert_not_null(mkdtemp(path), "no folder %s", path);
}

void test_drop_folder(const char *path)
{
    char pattern[TEST_PATH + 2];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/*", path);
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            unlink(g.gl_pathv[i]);
        }
        globfree(&g);
    }
    cr_assert_eq(rmdir(path), 0, "%s is not empty", path);
}

void test_wait(pid_t child)
{
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
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

char *test_written(const weft_graph *g, weft_status (*write)(const weft_graph *g, FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    cr_assert_not_null(f);
    cr_assert_eq(write(g, f), WEFT_OK, "%s", weft_last_error());
    fclose(f);
    return text;
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
