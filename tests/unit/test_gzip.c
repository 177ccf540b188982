/*
 * tests/unit/test_gzip.c -- members that grow a piece at a time (eager/gzip.h) against gzip, the program: texts that repeat near, far
 * and not at all, bytes of any value, pieces of any size, and a file that is whole after each.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/gzip.h"
#include "io/inflate.h"
#include "tests/support/effort.h"
#include "tests/support/trace_file.h"

static uint64_t state = 88172645463325252u;

static size_t draw(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % n);
}

/* Appends n bytes: of any value, of few values, of one, or what stands somewhere before. */
static void append(char *text, size_t *at, size_t n)
{
    const size_t kind = draw(5), from = *at ? draw(*at) : 0, few = 1 + draw(4);
    for (size_t i = 0; i < n; i++, ++*at) {
        if (kind < 2 && from + i < *at)
            text[*at] = text[from + i];
        else
            text[*at] = (char)(kind == 2 ? draw(256) : 'a' + (kind == 3 ? draw(few) : 0));
    }
}

enum { MOST = 1 << 18 };
static char text[MOST + 16], path[64];

/* What gzip makes of these bytes is the text so far, and then the end of it. */
static void check(const wf_text *file, const char *want, size_t n, const char *end)
{
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(file->s, 1, file->n, f) == file->n && fclose(f) == 0);
    size_t got;
    char *back = trace_file_text(path, &got);
    cr_assert_not_null(back, "gzip refuses a text of %zu bytes", n);
    cr_assert_eq(got, n + strlen(end));
    cr_expect(memcmp(back, want, n) == 0 && strcmp(back + n, end) == 0, "of %zu bytes", n);
    free(back);
}

static void move(wf_text *to, wf_text *from, size_t n)
{
    wf_text_put(to, from->s, n);
    memmove(from->s, from->s + n, from->n - n);
    from->n -= n;
}

static wf_gzip *begin(void)
{
    const char *why = "";
    wf_gzip *z = wf_gzip_begin(&why);
    if (!wf_inflate_available()) {
        cr_assert(!z && strstr(why, "zlib1g-dev"));
        cr_skip_test("built without zlib");
    }
    cr_assert_not_null(z, "%s", why);
    return z;
}

/* Pieces of a file, of several additions each, one of them refused at times; looked at after each of the first, and at the end. */
static void one_file(int pieces, size_t longest)
{
    wf_gzip *z = begin();
    wf_text file = {0}, *out = wf_gzip_out(z);
    size_t start = 0, n = 0;
    for (int i = 0; i < pieces && n + longest < MOST; i++) {
        size_t most = SIZE_MAX;
        for (size_t k = draw(8); k-- && n + longest / 8 < MOST;) {
            const size_t before = n;
            append(text, &n, draw(longest / 8 + 1));
            most = draw(6) ? SIZE_MAX : out->n + draw(n - before + 20);
            if (!wf_gzip_add(z, text + start, before - start, n - start, most)) {
                n = before; /* nothing follows in this piece */
                most = SIZE_MAX;
                break;
            }
        }
        wf_gzip_cut(z, text + start, n - start);
        start = n;
        cr_assert_leq(out->n, most);
        move(&file, out, out->n);
        if (i > 3 && i + 1 < pieces)
            continue;
        const size_t whole = file.n;
        const char *end = i % 2 ? "\n] the end\n" : "";
        wf_gzip_end(z, end, strlen(end));
        move(&file, out, out->n);
        check(&file, text, n, end);
        file.n = whole;
    }
    wf_text_free(&file);
    wf_gzip_free(z);
}

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/weft-test-gzip-%ld.gz", (long)getpid());
}

static void teardown(void)
{
    unlink(path);
}

Test(gzip, pieces_of_any_text, .init = setup, .fini = teardown)
{
    for (int i = 0; i < (int)effort_of(40); i++)
        one_file(1 + (int)draw(12), (size_t)16 << 2 * draw(6));
}

/* Near the bound what has been handed on is flushed, so that the bound is reached and not only kept off. */
Test(gzip, bound_is_reached, .init = setup, .fini = teardown)
{
    enum { BOUND = 20000, LINE = 100 };
    wf_gzip *z = begin();
    size_t n = 0;
    for (int i = 0; n + LINE < MOST; i++)
        n += (size_t)snprintf(text + n, LINE, "{\"name\":\"add\",\"ts\":%d.%03d},\n", i * 7,
                              (int)draw(1000));
    size_t at = 0;
    while (at < n && wf_gzip_add(z, text, at, at + 50, BOUND))
        at += 50;
    cr_assert_lt(at, n);
    wf_gzip_cut(z, text, at);
    cr_expect(wf_gzip_out(z)->n <= BOUND && wf_gzip_out(z)->n > BOUND - 200, "%zu of %d",
              wf_gzip_out(z)->n, BOUND);
    wf_gzip_end(z, "", 0);
    check(wf_gzip_out(z), text, at, "");
    wf_gzip_free(z);
}
