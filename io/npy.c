/*
 * io/npy.c -- NumPy's .npy: a magic, a version, a Python literal that describes the array, the elements.
 *
 *   "\x93NUMPY" major minor, header size (2 bytes little-endian in 1.0, 4 later), then
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } padded with spaces and a newline
 *
 * Invariants: the literal is read by a parser of exactly that form, nothing is evaluated; sizes are checked
 * against the bytes there are before memory is taken.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "io/file.h"
#include "io/npy.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
enum { MAX_HEADER = 1 << 16, FIXED = 10 };

static const char *const codes[WEFT_DTYPE_COUNT] = {
    [WEFT_BOOL] = "|b1", [WEFT_U8] = "|u1",  [WEFT_I8] = "|i1",
    [WEFT_I16] = "<i2",  [WEFT_I32] = "<i4", [WEFT_I64] = "<i8",
    [WEFT_F16] = "<f2",  [WEFT_F32] = "<f4", [WEFT_F64] = "<f8",
};

typedef struct header {
    weft_dtype dtype;
    bool swapped, fortran;
    int rank;
    int64_t dims[WEFT_MAX_RANK];
    size_t data;    /* where the elements begin */
    char descr[44]; /* the one that is refused */
} header;

typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\t' || *c->p == '\r')) {
        c->p++;
    }
}

static bool take(cursor *c, const char *text)
{
    size_t n = strlen(text);
    skip(c);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n) != 0) {
        return false;
    }
    c->p += n;
    return true;
}

/* A quoted text without escapes. */
static bool quoted(cursor *c, char *out, size_t size)
{
    skip(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"')) {
        return false;
    }
    char quote = *c->p++;
    size_t n = 0;
    while (c->p < c->end && *c->p != quote) {
        if (*c->p == '\\' || n + 1 >= size) {
            return false;
        }
        out[n++] = *c->p++;
    }
    out[n] = 0;
    return c->p < c->end && c->p++;
}

static bool count(cursor *c, int64_t *out)
{
    skip(c);
    const char *start = c->p;
    *out = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->p - '0', out)) {
            return false;
        }
    }
    return c->p > start;
}

/* Notes the text from `from` on, up to where a descr that is one text ends, for the error. */
static void show_descr(const char *from, const char *end, header *h)
{
    size_t n = 0;
    const bool quote = from < end && (*from == '\'' || *from == '"');
    for (const char *p = from; p < end && n + 1 < sizeof h->descr; p++) {
        h->descr[n++] = *p >= ' ' && *p < 127 ? *p : '?';
        if (quote && p > from && *p == *from) {
            break;
        }
    }
    h->descr[n] = 0;
}

static const char *parse_descr(cursor *c, header *h)
{
    char text[16];
    skip(c);
    show_descr(c->p, c->end, h);
    if (c->p < c->end && *c->p == '[') {
        return "the array has named fields";
    }
    if (!quoted(c, text, sizeof text)) {
        return "descr is not a text";
    }
    if (text[0] == '|' && text[1] == 'O') {
        return "the array holds pickled objects";
    }
    /* without an order it is the machine's, as numpy.dtype takes it; NumPy itself always writes one */
    const bool bare = text[0] == '\0' || !strchr("<>=|", text[0]);
    const char order = bare ? '=' : text[0], *code = bare ? text : text + 1;
    for (int d = WEFT_BOOL; d < WEFT_DTYPE_COUNT; d++) {
        if (codes[d] && strcmp(codes[d] + 1, code) == 0 &&
            (order == '<' || order == '>' || order == '=' ||
             (order == '|' && weft_dtype_size((weft_dtype)d) == 1))) {
            h->dtype = (weft_dtype)d;
            h->swapped = order == '>' && weft_dtype_size(h->dtype) > 1;
            h->descr[0] = 0;
            return NULL;
        }
    }
    return "descr is none of b1 u1 i1 i2 i4 i8 f2 f4 f8";
}

static const char *parse_shape(cursor *c, header *h)
{
    if (!take(c, "(")) {
        return "shape is not a tuple";
    }
    for (h->rank = 0; !take(c, ")");) {
        if (h->rank == WEFT_MAX_RANK) {
            return "more than 16 axes";
        }
        if (!count(c, &h->dims[h->rank])) {
            return "an extent is not a number below 2^63";
        }
        take(c, "L"); /* NumPy of Python 2 */
        h->rank++;
        if (!take(c, ",")) {
            if (h->rank == 1 || !take(c, ")")) {
                return "shape is not a tuple of numbers";
            }
            break;
        }
    }
    return NULL;
}

/* The literal's three members, in any order, each once. */
static const char *parse_literal(cursor *c, header *h)
{
    unsigned seen = 0;
    if (!take(c, "{")) {
        return "the header is not a dictionary";
    }
    while (!take(c, "}")) {
        char key[16];
        if (!quoted(c, key, sizeof key) || !take(c, ":")) {
            return "a key of the header is malformed";
        }
        unsigned bit = strcmp(key, "descr") == 0           ? 1
                       : strcmp(key, "fortran_order") == 0 ? 2
                       : strcmp(key, "shape") == 0         ? 4
                                                           : 0;
        if (!bit || (seen & bit)) {
            return "a key of the header is unknown or occurs twice";
        }
        seen |= bit;
        const char *wrong = bit == 1 ? parse_descr(c, h) : bit == 4 ? parse_shape(c, h) : NULL;
        if (bit == 2) {
            h->fortran = take(c, "True");
            wrong = h->fortran || take(c, "False") ? NULL : "fortran_order is not True or False";
        }
        if (wrong) {
            return wrong;
        }
        if (!take(c, ",")) {
            if (!take(c, "}")) {
                return "the header's dictionary is not closed";
            }
            break;
        }
    }
    skip(c);
    return seen != 7        ? "the header lacks descr, fortran_order or shape"
           : c->p != c->end ? "text behind the header's dictionary"
                            : NULL;
}

static const char *parse(const unsigned char *p, size_t size, header *h)
{
    if (size < FIXED || memcmp(p, magic, sizeof magic) != 0) {
        return "not an .npy file";
    }
    if (p[6] < 1 || p[6] > 3 || p[7] != 0) {
        return "a format other than 1.0, 2.0 and 3.0";
    }
    size_t text = p[8] | (size_t)p[9] << 8, start = FIXED;
    if (p[6] > 1) {
        start = FIXED + 2;
        if (size < start) {
            return "the file ends inside the header";
        }
        text |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    }
    if (text > MAX_HEADER || text > size - start) {
        return "the header is longer than the file, or than 64 KiB";
    }
    cursor c = {(const char *)p + start, (const char *)p + start + text};
    const char *wrong = parse_literal(&c, h);
    if (wrong) {
        return wrong;
    }
    h->data = start + text;
    int64_t bytes = (int64_t)weft_dtype_size(h->dtype);
    bool zero = false;
    for (int i = 0; i < h->rank; i++) {
        zero |= h->dims[i] == 0;
        if (__builtin_mul_overflow(bytes, h->dims[i] ? h->dims[i] : 1, &bytes)) {
            return "the size of the array overflows";
        }
    }
    return (zero ? 0 : (uint64_t)bytes) == size - h->data
               ? NULL
               : "the number of bytes does not fit descr and shape (is the file cut?)";
}

static void swap_bytes(unsigned char *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i += size) {
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char x = p[i + a];
            p[i + a] = p[i + b];
            p[i + b] = x;
        }
    }
}

/* The elements as a tensor; Fortran order is the row-major order of the reversed axes. */
static weft_tensor make(const header *h, const unsigned char *data, size_t size)
{
    unsigned char *copy = NULL;
    if (h->swapped && size) {
        copy = wf_malloc(size);
        if (!copy) {
            return wf_api_error("npy", WEFT_ENOMEM, "no memory for %zu bytes", size);
        }
        memcpy(copy, data, size);
        swap_bytes(copy, size, weft_dtype_size(h->dtype));
        data = copy;
    }
    int64_t dims[WEFT_MAX_RANK], axes[WEFT_MAX_RANK];
    for (int i = 0; i < h->rank; i++) {
        axes[i] = h->rank - 1 - i;
        dims[i] = h->dims[h->fortran ? axes[i] : i];
    }
    weft_tensor t = weft_from_data(size ? data : NULL, weft_shape_from(h->rank, dims), h->dtype);
    wf_mfree(copy);
    return h->fortran && h->rank > 1
               ? weft_contiguous(weft_permute(t, weft_shape_from(h->rank, axes)))
               : t;
}

weft_tensor wf_npy_decode(const char *source, const unsigned char *p, size_t size)
{
    header h = {0};
    const char *wrong = parse(p, size, &h);
    for (size_t i = 0; !wrong && h.dtype == WEFT_BOOL && i < size - h.data; i++) {
        wrong = p[h.data + i] > 1 ? "an element of a bool array is neither 0 nor 1" : NULL;
    }
    return wrong ? wf_api_error("npy", WEFT_EIO, "%s: %s%s%s", source, wrong,
                                h.descr[0] ? ": " : "", h.descr)
                 : make(&h, p + h.data, size - h.data);
}

weft_tensor weft_npy_decode(const void *data, size_t size)
{
    return data ? wf_npy_decode("memory", data, size) : wf_api_null("npy", "the data");
}

weft_tensor weft_npy_load(const char *path)
{
    size_t size;
    const unsigned char *p = wf_file_map("npy", path, &size);
    if (!p) {
        return wf_api_last_error();
    }
    weft_tensor t = wf_npy_decode(path, p, size);
    wf_file_unmap(p, size);
    return t;
}

/* -- writing ------------------------------------------------------------------------------------------ */

weft_status wf_npy_header(const char *op, weft_tensor t, char *out, size_t *size)
{
    weft_dtype dtype = weft_dtype_of(t);
    weft_shape s = weft_shape_of(t);
    if (wf_is_error(t)) {
        return (weft_status)wf_error_again(wf_ctx_get(), t);
    }
    if (!weft_ok(t) || s.n < 0) {
        weft_status status = weft_error_status(t);
        wf_api_error(op, WEFT_EHANDLE, "the tensor is not alive");
        return status == WEFT_OK ? WEFT_EHANDLE : status;
    }
    if (!codes[dtype]) {
        wf_api_error(op, WEFT_EDTYPE, "NumPy has no %s: save weft_cast(t, WEFT_F32)",
                     weft_dtype_name(dtype));
        return WEFT_EDTYPE;
    }
    int n = snprintf(out + FIXED, WF_NPY_HEADER - FIXED,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (", codes[dtype]);
    for (int i = 0; i < s.n; i++) {
        n += snprintf(out + FIXED + n, (size_t)(WF_NPY_HEADER - FIXED - n), "%s%lld", i ? ", " : "",
                      (long long)s.v[i]);
    }
    n += snprintf(out + FIXED + n, (size_t)(WF_NPY_HEADER - FIXED - n), "%s), }",
                  s.n == 1 ? "," : "");
    /* numpy.save leaves room for the first extent to grow to 21 digits, then pads to a multiple of 64, by 64
     * where it is one already. */
    if (s.n > 0) {
        char first[24];
        int grow = 21 - snprintf(first, sizeof first, "%lld", (long long)s.v[0]);
        memset(out + FIXED + n, ' ', (size_t)grow);
        n += grow;
    }
    int pad = 64 - (FIXED + n + 1) % 64;
    memset(out + FIXED + n, ' ', (size_t)pad);
    n += pad;
    out[FIXED + n++] = '\n';
    memcpy(out, magic, sizeof magic);
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)n;
    out[9] = (char)(n >> 8);
    *size = (size_t)(FIXED + n);
    return WEFT_OK;
}

const void *wf_npy_elements(const char *op, weft_tensor c, size_t *bytes, weft_status *s)
{
    *bytes = (size_t)weft_nbytes(c);
    const void *data = *bytes ? wf_api_read(op, c) : NULL;
    *s = *bytes && !data ? weft_last_status() : WEFT_OK;
    return data;
}

weft_status weft_npy_encode(weft_tensor t, void **data, size_t *size)
{
    char head[WF_NPY_HEADER];
    size_t n = 0;
    if (!data || !size) {
        wf_api_null("npy_encode", "the place for the result");
        return WEFT_EINVALID;
    }
    *data = NULL;
    *size = 0;
    weft_scope scope = weft_scope_begin();
    WF_CALLED(w, "npy_encode", t);
    weft_tensor c = wf_called_end(&w, wf_device_on_host(weft_contiguous(weft_detach(t))));
    weft_status s = wf_npy_header("npy_encode", c, head, &n);
    size_t bytes = 0;
    const void *elements = s == WEFT_OK ? wf_npy_elements("npy_encode", c, &bytes, &s) : NULL;
    if (s == WEFT_OK) {
        char *p = wf_malloc(n + bytes);
        if (p) {
            memcpy(p, head, n);
            if (bytes) {
                memcpy(p + n, elements, bytes);
            }
            *data = p;
            *size = n + bytes;
        } else {
            wf_api_error("npy_encode", WEFT_ENOMEM, "no memory for %zu bytes", n + bytes);
            s = WEFT_ENOMEM;
        }
    }
    weft_scope_end(scope);
    return s;
}

weft_status weft_npy_save(const char *path, weft_tensor t)
{
    char head[WF_NPY_HEADER];
    size_t n = 0;
    if (!path || !*path) {
        wf_api_null("npy_save", "the path");
        return WEFT_EINVALID;
    }
    weft_scope scope = weft_scope_begin();
    WF_CALLED(w, "npy_save", t);
    weft_tensor c = wf_called_end(&w, wf_device_on_host(weft_contiguous(weft_detach(t))));
    weft_status s = wf_npy_header("npy_save", c, head, &n);
    size_t bytes = 0;
    const void *elements = s == WEFT_OK ? wf_npy_elements("npy_save", c, &bytes, &s) : NULL;
    if (s == WEFT_OK) {
        wf_file_part parts[] = {{head, n}, {elements, bytes}};
        s = wf_file_write("npy_save", path, parts, 2);
    }
    weft_scope_end(scope);
    return s;
}
