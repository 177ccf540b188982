/*
 * tests/cuda/ptx/tokens.c -- words, numbers and names of a module's text.
 */
#include <ctype.h>
#include <stdarg.h>

#include "tests/cuda/ptx/parse.h"

void parse_fail(parser *p, const char *fmt, ...)
{
    va_list args;
    int n = snprintf(p->error, p->nerror, "line %d: ", p->line);
    va_start(args, fmt);
    vsnprintf(p->error + n, p->nerror - (size_t)n, fmt, args);
    va_end(args);
    longjmp(p->out, 1);
}

void *parse_grow(parser *p, void *array, size_t n, size_t *room, size_t size)
{
    if (n < *room) {
        return array;
    }
    *room = *room ? 2 * *room : 64;
    void *more = realloc(array, *room * size);
    if (!more) {
        parse_fail(p, "no memory");
    }
    return more;
}

/* -- tokens ----------------------------------------------------------------------------------------------------- */
static bool in_word(const char *s)
{
    return isalnum((unsigned char)*s) || *s == '_' || *s == '$' || *s == '.' || *s == '%';
}

static void skip_space(parser *p)
{
    for (;;) {
        if (*p->s == '\n') {
            p->line++;
            p->s++;
        } else if (isspace((unsigned char)*p->s)) {
            p->s++;
        } else if (p->s[0] == '/' && p->s[1] == '/') {
            p->s += strcspn(p->s, "\n");
        } else {
            return;
        }
    }
}

bool parse_next(parser *p)
{
    skip_space(p);
    p->token = p->s;
    p->length = 0;
    if (!*p->s) {
        return false;
    }
    const char *s = p->s;
    if (*s == '"') {
        s += 1 + strcspn(s + 1, "\"");
        s += *s == '"';
    } else if (in_word(s)) {
        while (in_word(s) || (s[0] == ':' && s[1] == ':')) {
            s += *s == ':' ? 2 : 1;
        }
    } else {
        s++;
    }
    p->length = (size_t)(s - p->token);
    p->s = s;
    return true;
}

bool parse_is(const parser *p, const char *what)
{
    return strlen(what) == p->length && memcmp(p->token, what, p->length) == 0;
}

char parse_peek(parser *p)
{
    skip_space(p);
    return *p->s;
}

void parse_want(parser *p, const char *what)
{
    if (!parse_next(p) || !parse_is(p, what)) {
        parse_fail(p, "%s expected, not %.*s", what, (int)p->length, p->token);
    }
}

bool parse_take(parser *p, char what)
{
    if (parse_peek(p) != what) {
        return false;
    }
    p->s++;
    return true;
}

void parse_name(parser *p, char *to, size_t n)
{
    if (p->length >= n) {
        parse_fail(p, "a name of %d letters", (int)p->length);
    }
    memcpy(to, p->token, p->length);
    to[p->length] = 0;
}

uint64_t parse_number(parser *p)
{
    char text[40], *end;
    const bool negative = parse_take(p, '-');
    if (!parse_next(p)) {
        parse_fail(p, "a number expected");
    }
    parse_name(p, text, sizeof text);
    const bool bits = text[0] == '0' && strchr("fFdD", text[1]) && text[1];
    const uint64_t v = strtoull(bits ? text + 2 : text, &end, bits ? 16 : 0);
    end += *end == 'U' && !bits;
    if (*end || end == text || !isdigit((unsigned char)text[0])) {
        parse_fail(p, "%s is no number that is known", text);
    }
    return negative ? 0 - v : v;
}

/* -- names -------------------------------------------------------------------------------------------------------- */
symbol *parse_symbol(parser *p, enum symbol_kind kind)
{
    p->symbols = parse_grow(p, p->symbols, p->nsymbol, &p->symbols_room, sizeof *p->symbols);
    symbol *s = &p->symbols[p->nsymbol++];
    *s = (symbol){.kind = kind, .scope = p->scope, .kernel = -1};
    return s;
}

/* `token`: a name, or a range's name and a number. */
symbol *parse_find(const parser *p, const char *name)
{
    const size_t n = strlen(name);
    size_t stem = n;
    while (stem > 0 && isdigit((unsigned char)name[stem - 1])) {
        stem--;
    }
    for (size_t i = p->nsymbol; i-- > 0;) {
        symbol *s = &p->symbols[i];
        if (s->kind == A_RANGE
                ? stem < n && strlen(s->name) == stem && memcmp(s->name, name, stem) == 0 &&
                      atoll(name + stem) < s->count
                : strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

int parse_type(parser *p)
{
    static const char *const names[] = {
#define X(name, text, bits) "." text,
        PTX_TYPES(X)
#undef X
    };
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        if (parse_is(p, names[k])) {
            return k + 1;
        }
    }
    parse_fail(p, "%.*s is no type", (int)p->length, p->token);
}
