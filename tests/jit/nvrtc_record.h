/*
 * tests/jit/nvrtc_record.h -- what the real NVRTC made of the texts that the GPU's suites have compiled: tests/golden/cuda/nvrtc.txt.
 *
 * A line a text, in the order of their hashes, which are of the text and of whether it may be contracted (store_text_hash). Behind
 * it stands each kernel in the order of the assembler's log: its registers and, where they are not 0, the bytes of its (s)hared
 * and its (l)ocal memory and what it s(p)ills: "0123456789abcdef 32 96s2048l16p8". "# NVRTC 13.0.88 sm_90" says who made it, other
 * lines with # are for people; the last part of the version is said in PTX only. script/gpu-check --record makes the file; a text that is not on it is compiled.
 */
#ifndef TESTS_JIT_NVRTC_RECORD_H
#define TESTS_JIT_NVRTC_RECORD_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/nvrtc/store.h"

/* What ptxas says of kernels: of one text, or of all since the start (those of `collected`). */
typedef struct usage {
    int kernels, registers, spilling,
        local;       /* kernels; at most; that spill; with arrays or calls in local memory */
    int64_t spilled; /* bytes, stored */
    int of[5];       /* kernels by registers: up to 32, 64, 128, 168, 255 */
} usage;

typedef struct record_line {
    uint64_t hash;
    const char *figures;
} record_line;

typedef struct record {
    char version[16], arch[16]; /* of NVRTC, and what for */
    int n;
    record_line *line;
    char *text;
} record;

enum { RECORD_FIGURES = 2048 };

static int number_before(const char *at)
{
    const char *d = at;
    while (d[-1] >= '0' && d[-1] <= '9')
        d--;
    return atoi(d);
}

/* The sum of the numbers before `words`, from s to end. */
static int sum_before(const char *s, const char *end, const char *words)
{
    int sum = 0;
    for (; (s = strstr(s, words)) != NULL && s < end; s++)
        sum += number_before(s);
    return sum;
}

static size_t put_figure(char *out, size_t n, size_t at, const char *before, int figure)
{
    if (figure > 0 && at < n)
        at += (size_t)snprintf(out + at, n - at, "%s%d", before, figure);
    return at;
}

/* A kernel's part of the log begins with "Compiling entry function 'k'", then come "0 bytes stack frame, 0 bytes spill stores,
 * 0 bytes spill loads", "Used 32 registers, 1024 bytes smem", and the properties of functions that it calls. False: there was no room, or
 * a kernel's registers are not said. */
static bool figures_of_log(const char *log, char *out, size_t n)
{
    static const char begin[] = "Compiling entry function";
    size_t at = 0;
    out[0] = 0;
    for (const char *s = strstr(log, begin), *end; s; s = *end ? end : NULL) {
        const char *next = strstr(s + 1, begin), *used = strstr(s, "Used ");
        end = next ? next : s + strlen(s);
        if (!used || used > end)
            return false;
        at = put_figure(out, n, at, at ? " " : "", atoi(used + 5));
        at = put_figure(out, n, at, "s", sum_before(s, end, " bytes smem"));
        at = put_figure(out, n, at, "l", sum_before(s, end, " bytes stack frame"));
        at = put_figure(out, n, at, "p", sum_before(s, end, " bytes spill stores"));
    }
    return at < n;
}

/* Adds the kernels that the figures are of; false: they are not figures. */
static bool add_figures(usage *sum, const char *figures)
{
    static const int up_to[] = {32, 64, 128, 168, 255};
    for (const char *s = figures; *s;) {
        char *end;
        const long registers = strtol(s, &end, 10);
        int at = 0;
        if (*s < '0' || *s > '9' || registers < 1 || registers > 255)
            return false;
        while (at < 4 && registers > up_to[at])
            at++;
        sum->of[at]++;
        sum->kernels++;
        sum->registers = registers > sum->registers ? (int)registers : sum->registers;
        for (const char *letter = "slp"; *letter; letter++) {
            if (*end != *letter)
                continue;
            s = end + 1;
            const long bytes = strtol(s, &end, 10);
            if (*s < '1' || *s > '9')
                return false;
            sum->local += *letter == 'l';
            sum->spilling += *letter == 'p';
            sum->spilled += *letter == 'p' ? bytes : 0;
        }
        if (*end != 0 && (*end != ' ' || !end[1]))
            return false;
        s = *end ? end + 1 : end;
    }
    return *figures != 0;
}

/* Takes a line apart; what is wrong with it, or NULL. */
static const char *take_line(record *r, char *line)
{
    char *end;
    usage none = {0};
    if (strncmp(line, "# NVRTC ", 8) == 0)
        return r->arch[0] ? "it names NVRTC twice"
               : sscanf(line + 8, "%15s %15s", r->version, r->arch) != 2
                   ? "it names no version and architecture of NVRTC"
                   : NULL;
    if (line[0] == '#')
        return NULL;
    if (strspn(line, "0123456789abcdef") != 16 || line[16] != ' ')
        return "it begins with no hash";
    const record_line l = {strtoull(line, &end, 16), line + 17};
    if (!add_figures(&none, l.figures))
        return "there are no figures of kernels behind its hash";
    if (r->n > 0 && r->line[r->n - 1].hash >= l.hash)
        return "it is not in the order of hashes";
    r->line[r->n++] = l;
    return NULL;
}

/* Reads a file of lines; "none" is the empty record. False: it is no record, and why holds the line and a reason. */
static bool record_read(record *r, const char *path, char *why, size_t n)
{
    size_t size = 0;
    *r = (record){0};
    if (strcmp(path, "none") == 0)
        return true;
    char *data = store_read(path, &size);
    if (!data)
        return snprintf(why, n, "%s: it cannot be read", path), false;
    r->text = calloc(size + 1, 1);
    r->line = calloc(size / 18 + 1, sizeof *r->line);
    if (r->text)
        memcpy(r->text, data, size);
    free(data);
    if (!r->text || !r->line)
        return snprintf(why, n, "no memory"), false;
    int number = 1;
    for (char *s = r->text; *s; number++) {
        char *end = strchr(s, '\n');
        if (end)
            *end = 0;
        const char *wrong = end ? take_line(r, s) : "it has no end";
        if (wrong)
            return snprintf(why, n, "%s:%d: %s", path, number, wrong), false;
        s = end + 1;
    }
    if (r->n > 0 && !r->arch[0])
        return snprintf(why, n, "%s: no line names NVRTC", path), false;
    return true;
}

static void record_free(record *r)
{
    free(r->text);
    free(r->line);
    *r = (record){0};
}

/* A text's figures; NULL: it is not on record. */
static const char *record_find(const record *r, uint64_t hash)
{
    int low = 0, high = r->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (r->line[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n && r->line[low].hash == hash ? r->line[low].figures : NULL;
}

#endif
