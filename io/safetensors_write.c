/*
 * io/safetensors_write.c -- writing safetensors, byte for byte as the reference does.
 *
 * Order of tensors: by element type, the reference's larger ones first, then by name as bytes. Header: compact
 * JSON, "__metadata__" first, padded with spaces so that the data starts at a multiple of 8.
 * In lines (graph files) it starts at a multiple of 64, with the tensors that end on one: what is mapped is read as it lies.
 *
 * Invariants: everything is checked before the first byte is written; a file appears under its name only
 * when it is complete and on disk (io/file.h).
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "io/file.h"
#include "io/json.h"
#include "io/names.h"
#include "io/safetensors.h"

typedef struct text {
    char *data;
    size_t size, cap;
    bool failed;
} text;

static void put(text *t, const char *s, size_t n)
{
    if (t->cap - t->size < n && !t->failed) {
        size_t cap = (t->cap + n) * 2;
        char *data = wf_realloc(t->data, cap);
        t->failed = !data;
        t->data = data ? data : t->data;
        t->cap = data ? cap : t->cap;
    }
    if (!t->failed) {
        memcpy(t->data + t->size, s, n);
        t->size += n;
    }
}

static void WF_PRINTF(2, 3) putf(text *t, const char *format, ...)
{
    char buffer[128];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(buffer, sizeof buffer, format, list);
    va_end(list);
    put(t, buffer, n > 0 ? (size_t)n : 0);
}

static void put_string(text *t, const char *s)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    put(t, "\"", 1);
    for (; *s; s++) {
        const char *at = strchr(from, *s);
        if (at) {
            put(t, (const char[]){'\\', to[at - from]}, 2);
        } else if ((unsigned char)*s < 0x20) {
            putf(t, "\\u%04x", (unsigned char)*s);
        } else {
            put(t, s, 1);
        }
    }
    put(t, "\"", 1);
}

/* One tensor to write: a row-major view or copy in the writer's scope. */
typedef struct item {
    const char *name;
    weft_tensor t;
    weft_dtype dtype;
    bool part; /* in lines: it does not end at one */
    int64_t bytes;
    const void *data;
} item;

/* What the reference writes, and vectors that no line of a cache cuts. */
enum { PLAIN = 8, LINES = 64 };

static int by_type(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->part != y->part) {
        return x->part - y->part;
    }
    int d = wf_st_types[y->dtype].order - wf_st_types[x->dtype].order;
    return d ? d : strcmp(x->name, y->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft_metadata *)a)->key, ((const weft_metadata *)b)->key);
}

bool wf_st_good_name(const char *name)
{
    return wf_is_utf8(name) && strcmp(name, "__metadata__") != 0;
}

static weft_status refuse(weft_status status, const char *name, const char *reason)
{
    wf_api_error("safetensors_save", (int)status, "'%s': %s", name, reason);
    return status;
}

static weft_status collect(const weft_named_tensor *t, int n, int align, item *items,
                           int64_t *total)
{
    for (int i = 0; i < n; i++) {
        if (!t[i].name || !wf_st_good_name(t[i].name)) {
            return refuse(WEFT_EINVALID, t[i].name ? t[i].name : "(null)",
                          "the name is missing, reserved or not UTF-8");
        }
        if (wf_is_error(t[i].tensor)) {
            return (weft_status)wf_error_again(wf_ctx_get(), t[i].tensor);
        }
        weft_tensor c = wf_device_on_host(weft_contiguous(weft_detach(t[i].tensor)));
        if (!weft_ok(c)) {
            weft_status s = weft_error_status(c);
            return s != WEFT_OK && s != WEFT_EHANDLE
                       ? (weft_status)wf_error_again(wf_ctx_get(), c)
                       : refuse(WEFT_EHANDLE, t[i].name, "the tensor is not alive");
        }
        const int64_t bytes = weft_nbytes(c);
        const bool part = align == LINES && bytes % LINES != 0;
        items[i] = (item){t[i].name, c, weft_dtype_of(c), part, bytes, NULL};
        if (__builtin_add_overflow(*total, items[i].bytes, total)) {
            return refuse(WEFT_ENOMEM, t[i].name, "the size of the file overflows");
        }
    }
    bool lost = false;
    const char *twice = n > 1 ? wf_names_twice(&t->name, sizeof *t, n, &lost) : NULL;
    if (twice || lost) {
        return twice ? refuse(WEFT_EINVALID, twice, "the name occurs twice")
                     : refuse(WEFT_ENOMEM, "the names", "no memory");
    }
    if (n > 1) {
        qsort(items, (size_t)n, sizeof *items, by_type);
    }
    return WEFT_OK;
}

static weft_status put_metadata(text *h, const weft_metadata *meta, int n)
{
    weft_metadata *sorted = wf_malloc((size_t)n * sizeof *sorted);
    if (!sorted) {
        return refuse(WEFT_ENOMEM, "__metadata__", "no memory");
    }
    weft_status s = WEFT_OK;
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        if (!meta[i].key || !meta[i].value || !wf_is_utf8(meta[i].key) ||
            !wf_is_utf8(meta[i].value)) {
            s = refuse(WEFT_EINVALID, "__metadata__", "a key or value is NULL or not UTF-8");
        }
    }
    if (s == WEFT_OK) {
        memcpy(sorted, meta, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, by_key);
        put(h, "\"__metadata__\":{", 16);
        for (int i = 0; i < n && s == WEFT_OK; i++) {
            if (i && strcmp(sorted[i - 1].key, sorted[i].key) == 0) {
                s = refuse(WEFT_EINVALID, sorted[i].key, "the metadata key occurs twice");
            }
            put(h, ",", i > 0);
            put_string(h, sorted[i].key);
            put(h, ":", 1);
            put_string(h, sorted[i].value);
        }
        put(h, "}", 1);
    }
    wf_mfree(sorted);
    return s;
}

/* The 8 bytes of size and the header. */
static weft_status make_header(text *h, const item *items, int n, int align,
                               const weft_metadata *meta, int n_meta)
{
    static const char spaces[] = "                                                               ";
    _Static_assert(sizeof spaces == LINES, "room for any pad");
    put(h, "\0\0\0\0\0\0\0\0{", 9);
    weft_status s = n_meta ? put_metadata(h, meta, n_meta) : WEFT_OK;
    int64_t at = 0;
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        weft_shape shape = weft_shape_of(items[i].t);
        put(h, ",", i > 0 || n_meta > 0);
        put_string(h, items[i].name);
        putf(h, ":{\"dtype\":\"%s\",\"shape\":[", wf_st_types[items[i].dtype].name);
        for (int k = 0; k < shape.n; k++) {
            putf(h, "%s%lld", k ? "," : "", (long long)shape.v[k]);
        }
        putf(h, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + items[i].bytes));
        at += items[i].bytes;
    }
    put(h, "}", 1);
    put(h, spaces, -h->size % (size_t)align);
    if (s != WEFT_OK) {
        return s;
    }
    if (h->failed || h->size - 8 > WF_ST_MAX_HEADER) {
        return refuse(WEFT_ENOMEM, "header", "no memory, or the header exceeds 100 MB");
    }
    for (int i = 0; i < 8; i++) {
        h->data[i] = (char)((uint64_t)(h->size - 8) >> 8 * i);
    }
    return WEFT_OK;
}

/* -- destinations ------------------------------------------------------------------------------------- */

/* What is recorded is computed now, which may fail, or be refused. */
static weft_status read_elements(const char *op, item *items, int n)
{
    for (int i = 0; i < n; i++) {
        items[i].data = items[i].bytes ? wf_api_read(op, items[i].t) : NULL;
        if (items[i].bytes && !items[i].data) {
            return weft_last_status();
        }
    }
    return WEFT_OK;
}

static weft_status write_file(const char *path, const text *h, const item *items, int n)
{
    wf_file_part *parts = wf_malloc(((size_t)n + 1) * sizeof *parts);
    if (!parts) {
        return refuse(WEFT_ENOMEM, path, "no memory");
    }
    parts[0] = (wf_file_part){h->data, h->size};
    for (int i = 0; i < n; i++) {
        parts[i + 1] = (wf_file_part){items[i].data, (size_t)items[i].bytes};
    }
    weft_status s = wf_file_write("safetensors_save", path, parts, n + 1);
    wf_mfree(parts);
    return s;
}

static weft_status write_memory(const text *h, const item *items, int n, int64_t total, void **data,
                                size_t *size)
{
    size_t all = h->size + (size_t)total;
    char *p = wf_malloc(all);
    if (!p) {
        return refuse(WEFT_ENOMEM, "memory", "no memory for the file's bytes");
    }
    memcpy(p, h->data, h->size);
    *data = p;
    *size = all;
    p += h->size;
    for (int i = 0; i < n; i++) {
        if (items[i].bytes) {
            memcpy(p, items[i].data, (size_t)items[i].bytes);
            p += items[i].bytes;
        }
    }
    return WEFT_OK;
}

/* To path if it is given, else to *data. */
static weft_status save(const weft_named_tensor *t, int n, int align, const weft_metadata *meta,
                        int n_meta, const char *path, void **data, size_t *size)
{
    if (n < 0 || n_meta < 0 || (n && !t) || (n_meta && !meta)) {
        wf_api_error("safetensors_save", WEFT_EINVALID, "a list is NULL or its length negative");
        return WEFT_EINVALID;
    }
    item *items = wf_calloc((size_t)n + 1, sizeof *items);
    if (!items) {
        return refuse(WEFT_ENOMEM, "list", "no memory");
    }
    text header = {0};
    int64_t total = 0;
    weft_scope scope = weft_scope_begin();
    weft_status s = collect(t, n, align, items, &total);
    if (s == WEFT_OK) {
        s = make_header(&header, items, n, align, meta, n_meta);
    }
    s = s == WEFT_OK ? read_elements(path ? "safetensors_save" : "safetensors_encode", items, n)
                     : s;
    if (s == WEFT_OK) {
        s = path ? write_file(path, &header, items, n)
                 : write_memory(&header, items, n, total, data, size);
    }
    weft_scope_end(scope);
    wf_mfree(header.data);
    wf_mfree(items);
    return s;
}

weft_status weft_safetensors_save(const char *path, const weft_named_tensor *t, int n,
                                  const weft_metadata *meta, int n_meta)
{
    if (!path || !*path) {
        wf_api_null("safetensors_save", "the path");
        return WEFT_EINVALID;
    }
    return save(t, n, PLAIN, meta, n_meta, path, NULL, NULL);
}

weft_status wf_st_save_lines(const char *path, const weft_named_tensor *t, int n,
                             const weft_metadata *meta, int n_meta)
{
    return save(t, n, LINES, meta, n_meta, path, NULL, NULL);
}

weft_status weft_safetensors_encode(const weft_named_tensor *t, int n, const weft_metadata *meta,
                                    int n_meta, void **data, size_t *size)
{
    if (!data || !size) {
        wf_api_null("safetensors_encode", "the place for the result");
        return WEFT_EINVALID;
    }
    *data = NULL;
    *size = 0;
    return save(t, n, PLAIN, meta, n_meta, NULL, data, size);
}
