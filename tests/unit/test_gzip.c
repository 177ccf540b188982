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

/* Pieces of a file, of several additions each, one of them refused at times; looked at after each of the first, and at the end. */
static void one_file(int pieces, size_t longest)
{
    wf_gzip *z = calloc(1, sizeof *z);
    wf_text file = {0};
    size_t start = 0, n = 0;
    wf_gzip_begin(z);
    for (int i = 0; i < pieces && n + longest < MOST; i++) {
        for (size_t k = draw(8); k-- && n + longest / 8 < MOST;) {
            const size_t before = n;
            append(text, &n, draw(longest / 8 + 1));
            const size_t room = draw(6) ? SIZE_MAX : z->out.n + draw(n - before + 20),
                         had = z->out.n;
            if (!wf_gzip_add(z, text + start, before - start, n - start, room)) {
                cr_assert_eq(z->out.n, had, "nothing is added");
                n = before;
                break;
            }
            cr_assert_leq(z->out.n, room);
        }
        wf_gzip_cut(z, text + start, n - start);
        start = n;
        move(&file, &z->out, z->out.n);
        if (i > 3 && i + 1 < pieces)
            continue;
        const size_t whole = file.n;
        const char *end = i % 2 ? "\n] the end\n" : "";
        wf_gzip_end(z, end, strlen(end));
        move(&file, &z->out, z->out.n);
        check(&file, text, n, end);
        file.n = whole;
    }
    wf_text_free(&file);
    wf_text_free(&z->out);
    free(z);
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

/* Each length of a repetition at each class of distances, and bytes of any value beside it. */
Test(gzip, repetitions, .init = setup, .fini = teardown)
{
    static const size_t apart[] = {1,     2,     3,     4,     5,     7,    9,    13,   17,
                                   25,    33,    49,    65,    97,    129,  193,  257,  385,
                                   513,   769,   1025,  1537,  2049,  3073, 4097, 6145, 8193,
                                   12289, 16385, 24577, 32767, 32768, 32769};
    for (size_t a = 0; a < sizeof apart / sizeof *apart; a += 1) {
        wf_gzip *z = calloc(1, sizeof *z);
        size_t n = 0;
        for (size_t i = 0; i < apart[a];
             i++) /* of far ones the first bytes alone, so that their places are still known */
            text[n++] = (char)(i < 64 || apart[a] < WF_GZIP_PLACES / 2 ? draw(256) : 'a');
        wf_gzip_begin(z);
        for (size_t length = 1 + a % 3; length < 530 && n + length + 1 < MOST;
             length += 1 + apart[a] / 200) {
            for (size_t i = 0; i < length; i++, n++)
                text[n] = text[n - apart[a]];
            text[n++] = (char)draw(256);
        }
        cr_assert(wf_gzip_add(z, text, 0, n, SIZE_MAX));
        wf_gzip_cut(z, text, n);
        cr_expect(apart[a] > 32768 || z->out.n < n / 2 + 2 * apart[a], "%zu apart: %zu of %zu",
                  apart[a], z->out.n, n);
        wf_gzip_end(z, "", 0);
        check(&z->out, text, n, "");
        wf_text_free(&z->out);
        free(z);
    }
}
