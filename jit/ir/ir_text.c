/*
 * jit/ir/ir_text.c -- the text form: print and parse.
 *
 *   fn step symbols(batch, 3<=seq<=64, seq%4==0) {
 *     %1 = input f32[batch,784]      (of a tensor that has a name: input f32[batch,784] "images" at "FILE:LINE")
 *     %2 = scalar f64 0x1p-1         (const f64 0x1p-1: a number of the compiler's own)
 *     %3 = mul f32[batch,784] %1, %2
 *     %4 = max f32[batch,1] %3 ints(1) flags(1)
 *     return %4
 *   }
 *
 * Numbers are SSA numbers counted from 1, `_` is an absent operand. A scalar slot is followed by the value
 * it had, unless that was 0: an integer, or a hexadecimal float; or, in brackets, by an extent, which it is at any sizes: scalar f64 [batch*seq]. A symbol may have a least and a most size, and an integer that
 * every size is a multiple of (n%4==0, behind its range, if it has one) or a remainder more (n%4==1). An extent is an integer, a symbol, or of a symbol: 2*batch,
 * batch-1, 3*batch+2, and where multiples are known a quotient: seq/4, 3*seq/2+1, rounded down; or of several symbols, with products of
 * two: batch+seq, 2*batch*seq-batch+1, each quotient in a product rounded down by itself. Attributes are ints(...), dyn(...) (extents), flt(...) as hexadecimal floats, dtype(...), flags(...); of(row,k) names the row and
 * the operand of a vjp; called "NAME" says what the program called that an index row is part of; at "FILE:LINE" says where (no folders). Result k > 0 of an op is
 * `%n = result TYPE %op #k` on the lines that follow it. An input's name is any text in quotes: a quote, a backslash and control
 * characters are \xHH in it, so that no name ends its line or reaches a terminal.
 *
 * Invariants: parse(print(f)) equals f; the parser trusts nothing, allocates in proportion to the text
 * and verifies every instruction by appending it through the builder.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "jit/ir/controls.h"
#include "jit/ir/ir.h"
#include "jit/ir/plain_numbers.h"

/* -- print -------------------------------------------------------------------------------------------- */

const char *wf_extent_text(const wf_fn *f, int64_t v, char text[WF_EXTENT_TEXT])
{
    char times[16] = "", over[16] = "", plus[16] = "";
    const wf_poly *p = wf_poly_of(f, v);
    if (p) {
        return wf_poly_text(f, p, text);
    }
    if (!wf_is_sym(f, v)) {
        snprintf(text, WF_EXTENT_TEXT, "%" PRId64, v);
        return text;
    }
    if (wf_sym_times(v) != 1) {
        snprintf(times, sizeof times, "%d*", (int)wf_sym_times(v));
    }
    if (wf_sym_over(v) != 1) {
        snprintf(over, sizeof over, "/%d", (int)wf_sym_over(v));
    }
    if (wf_sym_plus(v) != 0) {
        snprintf(plus, sizeof plus, "%+d", (int)wf_sym_plus(v));
    }
    snprintf(text, WF_EXTENT_TEXT, "%s%s%s%s", times, f->symbols[wf_sym_of(v)], over, plus);
    return text;
}

const char *wf_range_text(const char *name, wf_range r, char text[WF_RANGE_TEXT])
{
    const bool bounded = r.least > 0 || r.most < INT64_MAX;
    size_t n = 0;
    text[0] = '\0';
    if (bounded || r.multiple == 1) {
        char least[24] = "", most[24] = "";
        if (r.least > 0) {
            snprintf(least, sizeof least, "%" PRId64 "<=", r.least);
        }
        if (r.most < INT64_MAX) {
            snprintf(most, sizeof most, "<=%" PRId64, r.most);
        }
        n = (size_t)snprintf(text, WF_RANGE_TEXT, "%s%.31s%s", least, name, most);
    }
    if (r.multiple != 1) {
        snprintf(text + n, WF_RANGE_TEXT - n, "%s%.31s%%%" PRId64 "==%" PRId64, bounded ? ", " : "",
                 name, r.multiple, r.rest);
    }
    return text;
}

const char *wf_range_rule(wf_range r, int64_t x, char text[WF_RANGE_TEXT])
{
    char more[32] = "";
    if (r.rest) {
        snprintf(more, sizeof more, "%" PRId64 " more than ", r.rest);
    }
    if (x < r.least || x > r.most) {
        snprintf(text, WF_RANGE_TEXT, "at %s %" PRId64, x < r.least ? "least" : "most",
                 x < r.least ? r.least : r.most);
    } else {
        snprintf(text, WF_RANGE_TEXT, "%sa multiple of %" PRId64, more, r.multiple);
    }
    return text;
}

static void print_extent(const wf_fn *f, int64_t v, FILE *out)
{
    char text[WF_EXTENT_TEXT];
    fputs(wf_extent_text(f, v, text), out);
}

static void print_type(const wf_fn *f, const wf_type *t, FILE *out)
{
    fputs(wf_dtype_name(t->dtype), out);
    fputc('[', out);
    for (int i = 0; i < t->rank; i++) {
        fputs(i ? "," : "", out);
        print_extent(f, t->dims[i], out);
    }
    fputc(']', out);
}

static void print_flt(double v, FILE *out)
{
    if (isnan(v)) {
        fputs("nan", out);
    } else {
        fprintf(out, "%a", v);
    }
}

static void print_attr(const wf_fn *f, int op, const wf_attr *a, FILE *out)
{
    if (op == WF_OP_VJP) { /* numbers of rows change from version to version, names do not */
        fprintf(out, " of(%s,%" PRId64 ")", wf_rows[a->ints[0]].name, a->ints[1]);
    } else if (a->n_ints) {
        fputs(" ints(", out);
        for (int i = 0; i < a->n_ints; i++) {
            fprintf(out, "%s%" PRId64, i ? "," : "", a->ints[i]);
        }
        fputc(')', out);
    }
    if (a->n_dyn) {
        fputs(" dyn(", out);
        for (int i = 0; i < a->n_dyn; i++) {
            fputs(i ? "," : "", out);
            if (wf_slot_is_extent(op, a, i)) {
                print_extent(f, a->dyn[i], out);
            } else {
                fprintf(out, "%" PRId64, a->dyn[i]);
            }
        }
        fputc(')', out);
    }
    if (a->n_flt) {
        fputs(" flt(", out);
        for (int i = 0; i < a->n_flt; i++) {
            fputs(i ? "," : "", out);
            print_flt(a->flt[i], out);
        }
        fputc(')', out);
    }
    if (a->dtype) {
        fprintf(out, " dtype(%s)", wf_dtype_name(a->dtype));
    }
    if (a->flags) {
        fprintf(out, " flags(%u)", a->flags);
    }
}

static void print_slot(const wf_fn *f, uint32_t slot, FILE *out)
{
    uint64_t bits = f->slots[slot];
    double d = wf_slot_f64(f->slot_kind[slot], bits);
    const int64_t extent = wf_fn_slot_extent(f, slot);
    if (extent >= 0) {
        fputs(" [", out);
        print_extent(f, extent, out);
        fputc(']', out);
        return;
    }
    if (bits && f->slot_kind[slot] != 2) {
        fprintf(out, " %" PRId64, (int64_t)bits);
    } else if (bits) {
        fputc(' ', out);
        print_flt(d, out);
    }
}

/* Of a place, or what a program called something: what could not be read back is not written, and no terminal obeys it. */
static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!s[i] || s[i] == '"' || wf_control_at(s + i)) {
            return false;
        }
    }
    return n > 0 && n < 256;
}

static void print_site(const char *site, FILE *out)
{
    const char *file = site ? wf_site_file(site) : "";
    if (is_plain(file, strlen(file))) {
        fprintf(out, " at \"%s\"", file);
    }
}

static void print_name(const char *name, FILE *out)
{
    fputs(" \"", out);
    size_t control = 0;
    for (const char *s = name; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        control = control > 1 ? control - 1 : wf_control_at(s);
        if (control || c == '"' || c == '\\') {
            fprintf(out, "\\x%02x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

/* Without the end of the line. */
static void print_ins(const wf_fn *f, uint32_t k, bool bare, FILE *out)
{
    const wf_ins *i = &f->ins[k];
    const wf_val *src = wf_ins_src(f, i);
    fprintf(out, "  %%%u = %s ", k + 1, wf_rows[i->op].name);
    if (wf_op_is_weak(i->op)) {
        fputs(wf_dtype_name(f->types[i->type].dtype), out);
        print_slot(f, i->attr, out);
        return;
    }
    print_type(f, &f->types[i->type], out);
    for (int s = 0; s < i->nsrc; s++) {
        if (src[s]) {
            fprintf(out, "%s %%%u", s ? "," : "", src[s]);
        } else {
            fputs(s ? ", _" : " _", out);
        }
    }
    if (i->op == WF_OP_RESULT) {
        fprintf(out, " #%u", i->attr);
    } else if (i->op != WF_OP_INPUT) {
        print_attr(f, i->op, wf_ins_attr(f, i), out);
    }
    if (i->flags & WF_INS_NOGRAD) {
        fputs(" nograd", out);
    }
    if (i->flags & WF_INS_JOINED) {
        fputs(" joined", out);
    }
    if (i->op == WF_OP_INPUT && bare) {
        return;
    }
    if (i->op == WF_OP_INPUT && wf_fn_input_name(f, i->attr)) {
        print_name(wf_fn_input_name(f, i->attr), out);
    }
    const char *called = wf_fn_call_name(f, k);
    if (called != wf_rows[i->op].name) {
        fprintf(out, " called \"%s\"", called);
    }
    print_site(i->loc && i->op != WF_OP_RESULT ? f->locs[i->loc] : NULL, out);
}

static int print_fn(const wf_fn *f, FILE *out, bool bare, wf_note_fn note, void *user)
{
    const wf_plain_numbers was = wf_plain_numbers_begin();
    fprintf(out, "fn %s", f->name);
    for (uint32_t k = 0; k < f->nsymbols; k++) {
        char text[WF_RANGE_TEXT];
        fprintf(out, "%s%s", k ? ", " : " symbols(",
                wf_range_text(f->symbols[k], f->range[k], text));
    }
    fputs(f->nsymbols ? ") {\n" : " {\n", out);
    for (uint32_t k = 0; k < f->n; k++) {
        print_ins(f, k, bare, out);
        if (note) {
            note(user, k + 1, out);
        }
        fputc('\n', out);
    }
    fputs("  return", out);
    for (uint32_t k = 0; k < f->noutputs; k++) {
        fprintf(out, "%s %%%u", k ? "," : "", f->outputs[k]);
    }
    fputs("\n}\n", out);
    wf_plain_numbers_end(was);
    return ferror(out) ? WEFT_EIO : 0;
}

int wf_fn_print_noted(const wf_fn *f, FILE *out, wf_note_fn note, void *user)
{
    return print_fn(f, out, false, note, user);
}

int wf_fn_print(const wf_fn *f, FILE *out)
{
    return print_fn(f, out, false, NULL, NULL);
}

static char *text_of(const wf_fn *f, bool bare)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        return NULL;
    }
    int rc = print_fn(f, out, bare, NULL, NULL);
    if (fclose(out) != 0 || rc) {
        free(text);
        return NULL;
    }
    return text;
}

char *wf_fn_text(const wf_fn *f)
{
    return text_of(f, false);
}

char *wf_fn_text_bare(const wf_fn *f)
{
    return text_of(f, true);
}

/* -- parse -------------------------------------------------------------------------------------------- */

typedef struct parser {
    const char *p, *end;
    int line;
    wf_fn *f;
    wf_why *why;
    bool failed;
    bool seeds;  /* integers may be as large as symbols are */
    wf_val *src; /* operands of the instruction at hand */
    uint32_t capsrc;
} parser;

static bool lost(parser *s)
{
    if (!s->failed) {
        wf_fail(s->why, WEFT_ENOMEM, "line %d: out of memory", s->line);
        s->failed = true;
    }
    return false;
}

static bool fail(parser *s, const char *expected)
{
    if (!s->failed) {
        int n = s->end - s->p < 16 ? (int)(s->end - s->p) : 16;
        wf_fail(s->why, WEFT_EINVALID, "line %d: expected %s at \"%.*s\"", s->line, expected, n,
                s->p);
        s->failed = true;
    }
    return false;
}

/* Spaces, and remarks: from a ';' to the end of the line. */
static void skip(parser *s)
{
    bool remark = false;
    while (s->p < s->end && (remark || *s->p == ' ' || *s->p == '\t' || *s->p == '\n' ||
                             *s->p == '\r' || *s->p == ';')) {
        remark = *s->p == ';' || (remark && *s->p != '\n');
        s->line += *s->p == '\n';
        s->p++;
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

static size_t name_length(parser *s)
{
    size_t n = 0;
    skip(s);
    while (s->p + n < s->end && is_name(s->p[n])) {
        n++;
    }
    return n;
}

static bool at_digit(parser *s)
{
    skip(s);
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

/* Takes the exact word or mark. */
static bool accept(parser *s, const char *word)
{
    size_t n = strlen(word);
    skip(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) {
        return false;
    }
    if (is_name(word[0]) && s->p + n < s->end && is_name(s->p[n])) {
        return false;
    }
    s->p += n;
    return true;
}

/* The word stands here; nothing is taken. */
static bool at_word(parser *s, const char *word)
{
    const char *p = s->p;
    int line = s->line;
    bool yes = accept(s, word);
    s->p = p;
    s->line = line;
    return yes;
}

static bool expect(parser *s, const char *word)
{
    return accept(s, word) || fail(s, word);
}

/* The characters of a number, bounded, as a C string. */
static bool number_text(parser *s, char *buf, size_t size)
{
    size_t n = 0;
    skip(s);
    while (s->p + n < s->end && n + 1 < size &&
           (is_name(s->p[n]) || s->p[n] == '-' || s->p[n] == '+')) {
        buf[n] = s->p[n];
        n++;
    }
    buf[n] = '\0';
    s->p += n;
    return n > 0 || fail(s, "a number");
}

static bool parse_int(parser *s, int64_t *v)
{
    char buf[32], *end;
    if (!number_text(s, buf, sizeof buf)) {
        return false;
    }
    errno = 0;
    *v = strtoll(buf, &end, 10);
    return (*end == '\0' && errno == 0 && (s->seeds || !WF_IS_SYM(*v))) || fail(s, "an integer");
}

static bool parse_flt(parser *s, double *v)
{
    char buf[48], *end;
    if (!number_text(s, buf, sizeof buf)) {
        return false;
    }
    *v = strtod(buf, &end);
    return *end == '\0' || fail(s, "a number");
}

/* An integer that sizes are multiples of, or that divides one. */
static bool parse_multiple(parser *s, int64_t *v)
{
    for (*v = 0; s->p < s->end && *s->p >= '0' && *s->p <= '9' && *v <= WF_MOST_MULTIPLE; s->p++) {
        *v = 10 * *v + (*s->p - '0');
    }
    return (*v >= 2 && *v <= WF_MOST_MULTIPLE) || fail(s, "an integer of 2 to 1024");
}

/* A declared symbol, and what divides it. */
static bool parse_symbol(parser *s, int *of, int64_t *over)
{
    const size_t n = name_length(s);
    uint32_t k = 0;
    while (k < s->f->nsymbols &&
           (strlen(s->f->symbols[k]) != n || memcmp(s->f->symbols[k], s->p, n) != 0)) {
        k++;
    }
    if (n == 0 || k == s->f->nsymbols) {
        return fail(s, "a declared symbol");
    }
    s->p += n;
    *of = (int)k;
    *over = 1;
    if (s->p < s->end && *s->p == '/') {
        s->p++;
        if (!parse_multiple(s, over)) {
            return false;
        }
        if (s->f->range[k].multiple % *over != 0) {
            return fail(s, "a quotient of a symbol whose sizes are multiples of that");
        }
    }
    return true;
}

/* Digits. */
static bool parse_count(parser *s, int64_t *v)
{
    char buf[32], *end;
    size_t n = 0;
    while (s->p + n < s->end && is_name(s->p[n]) && n + 1 < sizeof buf) {
        buf[n] = s->p[n];
        n++;
    }
    buf[n] = '\0';
    errno = 0;
    *v = strtoll(buf, &end, 10);
    s->p += n;
    return (n > 0 && *end == '\0' && errno == 0 && (s->seeds || !WF_IS_SYM(*v))) ||
           fail(s, "an integer");
}

/* An integer, or one or two symbols, which are multiplied, with an integer before them. */
static bool parse_term(parser *s, bool less, wf_poly *p)
{
    int64_t times = 1, over[2];
    int of[2];
    if (at_digit(s)) {
        if (!parse_count(s, &times)) {
            return false;
        }
        if (!accept(s, "*")) {
            return wf_poly_add(p, less ? -times : times, WF_NO_SYMBOL, WF_NO_SYMBOL) ||
                   fail(s, "smaller numbers beside a symbol");
        }
    }
    if (!parse_symbol(s, &of[0], &over[0])) {
        return false;
    }
    const bool two = s->p < s->end && *s->p == '*';
    s->p += two;
    if (times < 1) {
        return fail(s, "a number of 1 or more before a symbol");
    }
    if (two && !parse_symbol(s, &of[1], &over[1])) {
        return false;
    }
    return (two ? wf_poly_add_product(s->f, p, less ? -times : times, of[0], over[0], of[1],
                                      over[1])
                : wf_poly_add_symbol(s->f, p, less, times, of[0], over[0])) ||
           fail(s, "smaller numbers beside a symbol");
}

/* An integer, or a sum of symbols, products of two and integers. */
static bool parse_extent(parser *s, int64_t *v)
{
    wf_poly p = {.n = 0};
    bool less = false, more = true;
    skip(s);
    if (s->p < s->end && (*s->p == '-' || *s->p == '+')) {
        return parse_int(s, v);
    }
    while (more) {
        if (!parse_term(s, less, &p)) {
            return false;
        }
        more = s->p < s->end && (*s->p == '-' || *s->p == '+');
        less = more && *s->p == '-';
        s->p += more;
    }
    if (p.n == 0) {
        *v = p.plus;
        return true;
    }
    return (wf_poly_extent(s->f, &p, v) && WF_IS_SYM(*v)) ||
           fail(s, "smaller numbers beside a symbol");
}

static bool parse_dtype(parser *s, int *dt)
{
    size_t n = name_length(s);
    *dt = n ? wf_dtype_parse(s->p, n) : -1;
    if (*dt <= 0) {
        return fail(s, "an element type");
    }
    s->p += n;
    return true;
}

static bool parse_type(parser *s, wf_type *t)
{
    int dt;
    memset(t, 0, sizeof *t);
    if (!parse_dtype(s, &dt) || !expect(s, "[")) {
        return false;
    }
    t->dtype = (uint8_t)dt;
    while (!accept(s, "]")) {
        if (t->rank == WF_MAX_RANK) {
            return fail(s, "at most 16 extents");
        }
        if ((t->rank && !expect(s, ",")) || !parse_extent(s, &t->dims[t->rank])) {
            return false;
        }
        if (t->dims[t->rank++] < 0) {
            return fail(s, "an extent of 0 or more");
        }
    }
    return true;
}

static bool has_symbol(const wf_type *t)
{
    bool any = false;
    for (int i = 0; i < t->rank; i++) {
        any |= WF_IS_SYM(t->dims[i]);
    }
    return any;
}

static bool parse_val(parser *s, wf_val *v)
{
    int64_t n;
    if (!expect(s, "%") || !parse_int(s, &n)) {
        return false;
    }
    *v = (wf_val)n;
    return (n >= 1 && n <= (int64_t)s->f->n) || fail(s, "an earlier value");
}

typedef struct lists {
    int64_t ints[64], dyn[255];
    double flt[32];
    wf_attr attr;
    const char *site, *called;
} lists;

/* name(v, v, ...) into at most max entries. */
static bool parse_list(parser *s, bool flt, bool symbols, void *out, int max, uint8_t *n)
{
    int64_t *iv = out;
    double *dv = out;
    int k = 0;
    while (!accept(s, ")")) {
        if (k == max) {
            return fail(s, "a shorter list");
        }
        if (k && !expect(s, ",")) {
            return false;
        }
        bool ok = flt       ? parse_flt(s, &dv[k])
                  : symbols ? parse_extent(s, &iv[k])
                            : parse_int(s, &iv[k]);
        if (!ok) {
            return false;
        }
        k++;
    }
    *n = (uint8_t)k;
    return true;
}

/* The ints of a vjp. */
static bool parse_of(parser *s, lists *l)
{
    size_t n = expect(s, "(") ? name_length(s) : 0;
    l->ints[0] = n ? wf_op_parse(s->p, n) : WF_OP_INVALID;
    if (l->ints[0] == WF_OP_INVALID) {
        return fail(s, "an op");
    }
    s->p += n;
    l->attr.n_ints = 2;
    return expect(s, ",") && parse_int(s, &l->ints[1]) && expect(s, ")");
}

/* "FILE:LINE" */
static bool parse_site(parser *s, const char **site)
{
    if (!expect(s, "\"")) {
        return false;
    }
    const char *end = memchr(s->p, '"', (size_t)(s->end - s->p));
    if (!end || !is_plain(s->p, (size_t)(end - s->p))) {
        return fail(s, "a file and a line");
    }
    *site = wf_site_keep(s->p, (size_t)(end - s->p));
    s->p = end + 1;
    return true;
}

/* -1: no digit. */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A name behind its opening quote, where \xHH is a byte; *out is to be freed, whatever is returned. */
static bool parse_name(parser *s, char **out, size_t *n)
{
    const char *end = memchr(s->p, '"', (size_t)(s->end - s->p));
    bool ok = end && end > s->p;
    if (ok && !(*out = malloc((size_t)(end - s->p)))) {
        return lost(s);
    }
    while (ok && s->p < end) {
        ok = *s->p && !wf_control_at(s->p);
        int c = (unsigned char)*s->p++;
        if (c == '\\') {
            const int high = end - s->p >= 3 && *s->p == 'x' ? hex_digit(s->p[1]) : -1,
                      low = high < 0 ? -1 : hex_digit(s->p[2]);
            c = high * 16 + low;
            ok = low >= 0 && c != 0;
            s->p += ok ? 3 : 0;
        }
        (*out)[(*n)++] = (char)c;
    }
    s->p += ok;
    return ok ||
           fail(s, "a name in quotes, in it \\xHH for a quote, a backslash, a control character");
}

/* What the tensor was that input v stands for: its name, its site. */
static bool parse_origin(parser *s, wf_val v)
{
    const char *site = NULL;
    char *name = NULL;
    size_t n = 0;
    const bool ok = (!accept(s, "\"") || parse_name(s, &name, &n)) &&
                    (!accept(s, "at") || parse_site(s, &site));
    if (ok && (n || site)) {
        wf_fn_name_input(s->f, v, name, n, site);
    }
    free(name);
    return ok;
}

static bool parse_attrs(parser *s, lists *l, uint8_t *ins_flags)
{
    memset(&l->attr, 0, sizeof l->attr);
    l->site = l->called = NULL;
    l->attr.ints = l->ints;
    l->attr.dyn = l->dyn;
    l->attr.flt = l->flt;
    for (;;) {
        int64_t v;
        int dt;
        bool ok = true;
        if (accept(s, "ints")) {
            ok = expect(s, "(") && parse_list(s, false, false, l->ints, 64, &l->attr.n_ints);
        } else if (accept(s, "of")) {
            ok = parse_of(s, l);
        } else if (accept(s, "dyn")) {
            ok = expect(s, "(") && parse_list(s, false, true, l->dyn, 255, &l->attr.n_dyn);
        } else if (accept(s, "flt")) {
            ok = expect(s, "(") && parse_list(s, true, false, l->flt, 32, &l->attr.n_flt);
        } else if (accept(s, "dtype")) {
            ok = expect(s, "(") && parse_dtype(s, &dt) && expect(s, ")");
            l->attr.dtype = ok ? (uint8_t)dt : 0;
        } else if (accept(s, "flags")) {
            ok = expect(s, "(") && parse_int(s, &v) && expect(s, ")");
            if (ok && (v < 0 || v > 255)) {
                return fail(s, "flags of 0 to 255");
            }
            l->attr.flags = ok ? (uint8_t)v : 0;
        } else if (accept(s, "nograd")) {
            *ins_flags |= WF_INS_NOGRAD;
        } else if (accept(s, "joined")) {
            *ins_flags |= WF_INS_JOINED;
        } else if (accept(s, "called")) {
            ok = parse_site(s, &l->called);
        } else if (accept(s, "at")) {
            ok = parse_site(s, &l->site);
        } else {
            return true;
        }
        if (!ok) {
            return false;
        }
    }
}

/* Operands and attributes of a row; appends it and checks the written type. */
static bool parse_row(parser *s, wf_op op, const wf_type *t)
{
    wf_val dst[WF_MAX_DST];
    lists l;
    uint8_t flags = 0;
    uint32_t n = 0;
    for (;;) {
        skip(s);
        bool here = s->p < s->end &&
                    (*s->p == '%' || (*s->p == '_' && !(s->p + 1 < s->end && is_name(s->p[1]))));
        if (!here) {
            break;
        }
        if (n == WF_MOST_SRC) {
            return fail(s, "at most 65535 operands");
        }
        if (wf_grow(&s->src, n, 1, &s->capsrc, sizeof *s->src)) {
            return lost(s);
        }
        s->src[n] = 0;
        if (*s->p == '_') {
            s->p++;
        } else if (!parse_val(s, &s->src[n])) {
            return false;
        }
        n++;
        if (!accept(s, ",")) {
            break;
        }
    }
    s->seeds = op >= WF_OP_RAND && op <= WF_OP_RANDPERM;
    if (!parse_attrs(s, &l, &flags)) {
        return false;
    }
    for (int i = 0; i < l.attr.n_dyn && s->seeds; i++) {
        if (WF_IS_SYM(l.dyn[i]) && wf_slot_is_extent((int)op, &l.attr, i) &&
            !wf_is_sym(s->f, l.dyn[i])) {
            return fail(s, "smaller extents");
        }
    }
    s->seeds = false;
    wf_why why = {0};
    if (wf_fn_append(s->f, op, &l.attr, (int)n, s->src, dst, l.site, &why)) {
        s->failed = true;
        wf_fail(s->why, why.code, "line %d: %s: %.180s", s->line, wf_rows[op].name, why.rule);
        return false;
    }
    s->f->ins[dst[0] - 1].flags = flags;
    wf_fn_name_call(s->f, dst[0] - 1, l.called);
    return wf_type_same(wf_fn_type(s->f, dst[0]), t) || fail(s, "the type that the operands give");
}

/* The slot of a number that is an extent of symbols. */
static bool parse_sized(parser *s, int kind)
{
    int64_t extent;
    if (!parse_extent(s, &extent) || !expect(s, "]")) {
        return false;
    }
    if (kind == 0 || !WF_IS_SYM(extent)) {
        return fail(s, "an extent of symbols, for a number");
    }
    const wf_val v = wf_fn_scalar(s->f, kind, 0);
    return (v && wf_fn_size_scalar(s->f, v, extent) == 0) || lost(s);
}

/* The value of a scalar slot, if it is written, and the slot. */
static bool parse_slot(parser *s, wf_op op, int kind)
{
    char buf[48], *end = buf;
    uint64_t bits = 0;
    skip(s);
    if (s->p < s->end && *s->p != '%' && (is_name(*s->p) || *s->p == '-' || *s->p == '+') &&
        !at_word(s, "return")) {
        if (!number_text(s, buf, sizeof buf)) {
            return false;
        }
        errno = 0;
        if (kind == 2) {
            bits = wf_slot_bits(kind, strtod(buf, &end));
        } else {
            bits = (uint64_t)strtoll(buf, &end, 10);
        }
        if (*end != '\0' || (kind != 2 && errno) || (kind == 0 && bits > 1)) {
            return fail(s, "the value of a scalar slot");
        }
    }
    wf_val v = op == WF_OP_CONST ? wf_fn_const(s->f, kind, bits) : wf_fn_scalar(s->f, kind, bits);
    return v || lost(s);
}

static bool parse_ins(parser *s, wf_val *pending)
{
    int64_t n;
    wf_type t;
    if (!expect(s, "%") || !parse_int(s, &n) || !expect(s, "=")) {
        return false;
    }
    bool is_result = *pending != 0;
    if (n != (int64_t)(is_result ? *pending : s->f->n + 1)) {
        return fail(s, "the next number");
    }
    size_t len = name_length(s);
    bool number = accept(s, "const");
    if (number || accept(s, "scalar")) {
        int dt;
        if (is_result || !parse_dtype(s, &dt) ||
            (dt != WEFT_BOOL && dt != WEFT_I64 && dt != WEFT_F64)) {
            return fail(s, "bool, i64 or f64");
        }
        if (!number && accept(s, "[")) {
            return parse_sized(s, wf_dtype_kind(dt));
        }
        return parse_slot(s, number ? WF_OP_CONST : WF_OP_SCALAR, wf_dtype_kind(dt));
    }
    if (accept(s, "input")) {
        const bool typed = !is_result && parse_type(s, &t);
        if (typed && !has_symbol(&t) && wf_type_numel(&t) < 0) {
            return fail(s, "an input of less than 2^63 bytes");
        }
        const wf_val v = typed ? wf_fn_input(s->f, &t) : 0;
        return typed && !v ? lost(s) : (v && parse_origin(s, v)) || fail(s, "an input");
    }
    if (accept(s, "result")) {
        wf_val v;
        int64_t k;
        if (!is_result || !parse_type(s, &t) || !parse_val(s, &v) || !expect(s, "#") ||
            !parse_int(s, &k)) {
            return fail(s, "a result of the op above");
        }
        const wf_ins *i = wf_fn_at(s->f, *pending);
        bool ok = i->op == WF_OP_RESULT && i->src[0] == v && i->attr == k &&
                  wf_type_same(wf_fn_type(s->f, *pending), &t);
        *pending = *pending < s->f->n ? *pending + 1 : 0;
        return ok || fail(s, "the result that the op gives");
    }
    wf_op op = len ? wf_op_parse(s->p, len) : WF_OP_INVALID;
    if (op == WF_OP_INVALID || is_result) {
        return fail(s, is_result ? "a result line" : "an op");
    }
    s->p += len;
    uint32_t before = s->f->n;
    if (!parse_type(s, &t) || !parse_row(s, op, &t)) {
        return false;
    }
    *pending = s->f->n > before + 1 ? before + 2 : 0;
    return true;
}

/* Of the symbol declared last, if it has none yet: n%4==1. */
static bool parse_multiples(parser *s, size_t name)
{
    wf_range *r = &s->f->range[s->f->nsymbols - 1];
    s->p += name;
    return expect(s, "%") && parse_multiple(s, &r->multiple) && expect(s, "==") &&
           ((parse_int(s, &r->rest) && r->rest >= 0 && r->rest < r->multiple) ||
            fail(s, "a remainder")) &&
           (wf_range_good(*r) || fail(s, "a multiple within the range"));
}

/* A symbol with its range, or a symbol's multiples: a new one's, or those of the one before. */
static bool parse_declared(parser *s)
{
    const uint32_t before = s->f->nsymbols;
    int64_t least = 0;
    if (at_digit(s) && (!parse_int(s, &least) || least < 1 || !expect(s, "<="))) {
        return fail(s, "a size and <=");
    }
    const size_t n = name_length(s);
    const bool multiples = s->p + n < s->end && s->p[n] == '%', fresh = !at_digit(s);
    const int k = fresh ? wf_fn_symbol(s->f, s->p, n) : -1;
    const bool again = before > 0 && k == (int)before - 1 && least == 0 && multiples &&
                       s->f->range[k].multiple == 1;
    if (k == WF_NO_MEMORY) {
        return lost(s);
    }
    if (k != (int)before && !again) {
        return fail(s, "a new symbol");
    }
    if (multiples && least == 0) {
        return parse_multiples(s, n);
    }
    wf_range *r = &s->f->range[k];
    s->p += n;
    r->least = least;
    return !accept(s, "<=") || (parse_int(s, &r->most) && r->most >= 1 && r->most >= least) ||
           fail(s, least ? "a size, of at least the smallest" : "a size");
}

static bool parse_symbols(parser *s)
{
    if (!expect(s, "(")) {
        return false;
    }
    do {
        if (!parse_declared(s)) {
            return false;
        }
    } while (accept(s, ","));
    return expect(s, ")");
}

static bool parse_fn(parser *s)
{
    if (!expect(s, "fn")) {
        return false;
    }
    size_t n = name_length(s);
    if (n == 0 || n >= sizeof s->f->name) {
        return fail(s, "a function name");
    }
    memcpy(s->f->name, s->p, n);
    s->f->name[n] = '\0';
    s->p += n;
    if (accept(s, "symbols") && !parse_symbols(s)) {
        return false;
    }
    if (!expect(s, "{")) {
        return false;
    }
    wf_val pending = 0;
    while (!accept(s, "return")) {
        if (!parse_ins(s, &pending)) {
            return false;
        }
    }
    if (pending) {
        return fail(s, "the remaining results of the last op");
    }
    while (!accept(s, "}")) {
        wf_val v;
        if ((s->f->noutputs && !expect(s, ",")) || !parse_val(s, &v)) {
            return false;
        }
        if (wf_fn_output(s->f, v)) {
            return lost(s);
        }
    }
    skip(s);
    return s->p == s->end || fail(s, "the end of the text");
}

wf_fn *wf_fn_parse(const char *text, size_t len, wf_why *why)
{
    parser s = {.p = text, .end = text + len, .line = 1, .f = wf_fn_new(NULL), .why = why};
    if (!s.f) {
        wf_fail(why, WEFT_ENOMEM, "out of memory");
        return NULL;
    }
    const wf_plain_numbers was = wf_plain_numbers_begin();
    const bool ok = parse_fn(&s);
    wf_plain_numbers_end(was);
    free(s.src);
    if (!ok) {
        wf_fn_free(s.f);
        return NULL;
    }
    return s.f;
}
