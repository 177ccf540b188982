/*
 * eager/env.c -- parses the environment into wf_env_values.
 *
 * Strings are copied into static storage, because a pointer of getenv dies at the next setenv and a
 * copy on the heap could fail.
 */
#include "eager/env.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum env_id {
#define ENV(name, type, dflt, help) ID_##name,
#include "eager/env.def"
#undef ENV
    N_ENV
};

enum env_state { ENV_UNSET, ENV_SET, ENV_BAD };

static wf_env_values values;
static char text[N_ENV][WF_ENV_STR_MAX];
static enum env_state state[N_ENV];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_int(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end)
        return false;
    *out = v;
    return true;
}

static bool parse_bytes(const char *s, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || end == s || v < 0)
        return false;
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (end[shift != 0] || v > (INT64_MAX >> shift))
        return false;
    *out = v << shift;
    return true;
}

static bool parse_str(const char *s, const char **out)
{
    *out = s;
    return true;
}

/* Copies the variable into text[id]; false if it is unset, empty or too long. */
static bool fetch(const char *name, int id)
{
    const char *s = getenv(name);
    if (!s || !*s)
        return false;
    size_t n = strlen(s);
    if (n >= WF_ENV_STR_MAX) {
        state[id] = ENV_BAD;
        return false;
    }
    memcpy(text[id], s, n + 1);
    return true;
}

static void load(void)
{
#define ENV(name, type, dflt, help)                                                                \
    values.name = (dflt);                                                                          \
    if (fetch(#name, ID_##name))                                                                   \
        state[ID_##name] = parse_##type(text[ID_##name], &values.name) ? ENV_SET : ENV_BAD;
#include "eager/env.def"
#undef ENV
}

const wf_env_values *wf_env(void)
{
    pthread_once(&once, load);
    return &values;
}

bool wf_env_debug(wf_debug rung)
{
    return wf_env()->WEFT_DEBUG >= (int64_t)rung;
}

bool wf_env_stress(const char *mode, int64_t *arg)
{
    size_t len = strlen(mode);
    if (arg)
        *arg = 0;
    for (const char *s = wf_env()->WEFT_STRESS; *s;) {
        size_t n = strcspn(s, ",");
        if (n >= len && memcmp(s, mode, len) == 0 && (n == len || s[len] == ':')) {
            if (arg && n > len)
                *arg = strtoll(s + len + 1, NULL, 10);
            return true;
        }
        s += n + (s[n] == ',');
    }
    return false;
}

/* Tells of words in a list that nothing asks for; `words` stand between blanks. ends: of a word: "" where it is one and no
 * list, a colon where arguments may follow it. */
static void check_words(FILE *out, const char *name, const char *list, const char *ends,
                        const char *words)
{
    for (const char *s = list; *s;) {
        const size_t n = strcspn(s, *ends ? "," : ""), word = strcspn(s, ends);
        char spaced[16];
        snprintf(spaced, sizeof spaced, " %.*s ", (int)(word < 13 ? word : 13), s);
        if (memchr(s, ' ', word) || !strstr(words, spaced)) {
            fprintf(out, "%s: \"%.*s\" means nothing; there are%s\n", name, (int)n, s, words);
        }
        s += n + (s[n] == ',');
    }
}

void wf_env_list(FILE *out)
{
    const wf_env_values *e = wf_env();
    check_words(out, "WEFT_STRESS", e->WEFT_STRESS, ",:", " oom verify move order evict wide ");
    check_words(out, "WEFT_STATS", e->WEFT_STATS, ",", " pass fold ");
    check_words(out, "WEFT_ISA", e->WEFT_ISA, "", " sse2 avx2 avx512 ");
#define ENV(name, type, dflt, help)                                                                \
    fprintf(out, "%-20s %-12s (default %s) %s%s\n", #name,                                         \
            state[ID_##name] == ENV_SET ? text[ID_##name] : "-", #dflt, help,                      \
            state[ID_##name] == ENV_BAD ? " [value given is not valid: ignored]" : "");
#include "eager/env.def"
#undef ENV
}
