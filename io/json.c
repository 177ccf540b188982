/*
 * io/json.c -- the strict JSON reader; see io/json.h.
 */
#include <string.h>

#include "io/json.h"

bool wf_json_fail(wf_json *j, const char *error)
{
    if (!j->error) {
        j->error = error;
    }
    return false;
}

int wf_json_peek(wf_json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t')) {
        j->p++;
    }
    return j->p < j->end && !j->error ? *j->p : -1;
}

bool wf_json_take(wf_json *j, char c, const char *error)
{
    if (wf_json_peek(j) != (unsigned char)c) {
        return wf_json_fail(j, error);
    }
    j->p++;
    return true;
}

bool wf_json_more(wf_json *j, char close, bool first)
{
    int c = wf_json_peek(j);
    if (c == (unsigned char)close) {
        j->p++;
        return false;
    }
    if (first) {
        return c >= 0 || wf_json_fail(j, "the text ends inside brackets");
    }
    if (!wf_json_take(j, ',', "a comma or a closing bracket is expected")) {
        return false;
    }
    return wf_json_peek(j) != (unsigned char)close || wf_json_fail(j, "a comma before a bracket");
}

size_t wf_utf8_length(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    if (p[0] < 0x80) {
        return 1;
    }
    if (p[0] >= 0xC2 && p[0] <= 0xDF) {
        return left >= 2 && (p[1] & 0xC0) == 0x80 ? 2 : 0;
    }
    if (p[0] >= 0xE0 && p[0] <= 0xEF) {
        unsigned low = p[0] == 0xE0 ? 0xA0 : 0x80, high = p[0] == 0xED ? 0x9F : 0xBF;
        return left >= 3 && p[1] >= low && p[1] <= high && (p[2] & 0xC0) == 0x80 ? 3 : 0;
    }
    if (p[0] >= 0xF0 && p[0] <= 0xF4) {
        unsigned low = p[0] == 0xF0 ? 0x90 : 0x80, high = p[0] == 0xF4 ? 0x8F : 0xBF;
        return left >= 4 && p[1] >= low && p[1] <= high && (p[2] & 0xC0) == 0x80 &&
                       (p[3] & 0xC0) == 0x80
                   ? 4
                   : 0;
    }
    return 0;
}

bool wf_is_utf8(const char *s)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + strlen(s);
    size_t n = 1;
    while (p < end && n) {
        n = wf_utf8_length(p, end);
        p += n;
    }
    return n != 0;
}

/* Four hex digits at j->p. */
static bool take_hex(wf_json *j, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, j->p++) {
        unsigned c = j->p < j->end ? *j->p : 0;
        unsigned lower = c | 0x20;
        if (c >= '0' && c <= '9') {
            *out = *out << 4 | (c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            *out = *out << 4 | (lower - 'a' + 10);
        } else {
            return wf_json_fail(j, "\\u needs four hexadecimal digits");
        }
    }
    return true;
}

static void put_utf8(wf_json *j, uint32_t c)
{
    char *q = j->arena;
    if (c < 0x80) {
        *q++ = (char)c;
    } else if (c < 0x800) {
        *q++ = (char)(0xC0 | c >> 6);
        *q++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *q++ = (char)(0xE0 | c >> 12);
        *q++ = (char)(0x80 | (c >> 6 & 0x3F));
        *q++ = (char)(0x80 | (c & 0x3F));
    } else {
        *q++ = (char)(0xF0 | c >> 18);
        *q++ = (char)(0x80 | (c >> 12 & 0x3F));
        *q++ = (char)(0x80 | (c >> 6 & 0x3F));
        *q++ = (char)(0x80 | (c & 0x3F));
    }
    j->arena = q;
}

/* Behind a "\u": one code point, written as a pair of escapes above U+FFFF. */
static bool take_code_point(wf_json *j)
{
    uint32_t c, low;
    if (!take_hex(j, &c)) {
        return false;
    }
    if (c >= 0xDC00 && c <= 0xDFFF) {
        return wf_json_fail(j, "a low surrogate without a high one");
    }
    if (c >= 0xD800 && c <= 0xDBFF) {
        if (j->end - j->p < 2 || j->p[0] != '\\' || j->p[1] != 'u') {
            return wf_json_fail(j, "a high surrogate without a low one");
        }
        j->p += 2;
        if (!take_hex(j, &low)) {
            return false;
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return wf_json_fail(j, "a high surrogate without a low one");
        }
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c == 0) {
        return wf_json_fail(j, "a string contains NUL");
    }
    put_utf8(j, c);
    return true;
}

/* Behind a backslash. */
static bool take_escape(wf_json *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = j->p < j->end ? *j->p : 0;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        j->p++;
        *j->arena++ = to[at - from];
        return true;
    }
    if (c == 'u') {
        j->p++;
        return take_code_point(j);
    }
    return wf_json_fail(j, "an unknown escape");
}

const char *wf_json_string(wf_json *j)
{
    if (!wf_json_take(j, '"', "a string is expected")) {
        return NULL;
    }
    const char *result = j->arena;
    while (j->p < j->end && *j->p != '"') {
        if (*j->p == '\\') {
            j->p++;
            if (!take_escape(j)) {
                return NULL;
            }
            continue;
        }
        size_t n = wf_utf8_length(j->p, j->end);
        if (*j->p < 0x20 || n == 0) {
            wf_json_fail(j, n ? "a control character in a string" : "a string is not UTF-8");
            return NULL;
        }
        memcpy(j->arena, j->p, n);
        j->arena += n;
        j->p += n;
    }
    if (j->p == j->end) {
        wf_json_fail(j, "the text ends inside a string");
        return NULL;
    }
    j->p++;
    *j->arena++ = 0;
    return result;
}

bool wf_json_count(wf_json *j, int64_t *out)
{
    int c = wf_json_peek(j);
    if (c < '0' || c > '9') {
        return wf_json_fail(j, "a whole number is expected");
    }
    int64_t v = 0;
    const unsigned char *first = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9') {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *j->p - '0', &v)) {
            return wf_json_fail(j, "a number is too large");
        }
        j->p++;
    }
    if (*first == '0' && j->p - first > 1) {
        return wf_json_fail(j, "a number starts with 0");
    }
    c = j->p < j->end ? *j->p : 0;
    if (c == '.' || c == 'e' || c == 'E') {
        return wf_json_fail(j, "a whole number is expected");
    }
    *out = v;
    return true;
}
