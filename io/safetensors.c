/*
 * io/safetensors.c -- reading safetensors: parse the header, validate all of it, hand out views.
 *
 * The format: 8 bytes little-endian N, N bytes of JSON (an object: "__metadata__" maps texts to texts,
 * every other member {"dtype", "shape", "data_offsets": [begin, end]}), then the data.
 *
 * Invariants, all checked before a handle to the file exists
 *  - N <= 100 MB and inside the file; the first byte of the header is '{'; behind the object only spaces.
 *  - Keys are distinct. Every tensor has a type of the format, rank <= 16, non-negative extents whose product
 *    times the element size does not overflow and equals end - begin.
 *  - In order of their offsets the tensors tile the data: no hole, no overlap, nothing behind.
 * Memory is taken only for what was read: strings in one block of the header's size, entries as they are
 * met. A tensor of a type that weft has not is checked and listed like the others; to take it is the error.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"

const wf_st_type wf_st_types[WEFT_DTYPE_COUNT] = {
    [WEFT_BOOL] = {"BOOL", 0}, [WEFT_U8] = {"U8", 1},   [WEFT_I8] = {"I8", 2},
    [WEFT_I16] = {"I16", 3},   [WEFT_F16] = {"F16", 4}, [WEFT_BF16] = {"BF16", 5},
    [WEFT_I32] = {"I32", 6},   [WEFT_F32] = {"F32", 7}, [WEFT_F64] = {"F64", 8},
    [WEFT_I64] = {"I64", 9},
};

/* Types of the format that weft has not, and what they are converted to without loss (U64: of values below 2^63). */
static const struct {
    const char *name;
    int bits;
    const char *instead;
} foreign_types[] = {
    {"U16", 16, "int32"},           {"U32", 32, "int64"},
    {"U64", 64, "int64"},           {"C64", 64, "float32 (torch.view_as_real)"},
    {"F8_E4M3", 8, "bfloat16"},     {"F8_E5M2", 8, "bfloat16"},
    {"F8_E8M0", 8, "bfloat16"},     {"F8_E4M3FNUZ", 8, "bfloat16"},
    {"F8_E5M2FNUZ", 8, "bfloat16"}, {"F6_E2M3", 6, "bfloat16"},
    {"F6_E3M2", 6, "bfloat16"},     {"F4", 4, "bfloat16"},
};
enum { FOREIGN_TYPES = sizeof foreign_types / sizeof *foreign_types };

typedef struct entry {
    const char *name;
    weft_dtype dtype; /* WEFT_DTYPE_DEFAULT: a foreign one */
    int foreign;      /* its row */
    int rank;
    int64_t dims[WEFT_MAX_RANK];
    int64_t begin, end;
} entry;

/* The file's bytes; held by the open file and by every tensor on them. */
typedef struct mapping {
    _Atomic int64_t refs;
    const unsigned char *base;
    size_t size;
    bool mapped; /* else malloc */
} mapping;

struct weft_safetensors {
    mapping *map;
    const unsigned char *data; /* behind the header */
    char *text;                /* all strings */
    entry *entries;            /* by offset */
    int *by_name;              /* indices of entries, sorted by name */
    int n, cap;
    weft_metadata *meta; /* sorted by key */
    int n_meta, cap_meta;
};

static const char no_memory[] =
    "no memory for the header"; /* a reason that is not the file's fault */

static void release_mapping(void *arg)
{
    mapping *m = arg;
    if (atomic_fetch_sub(&m->refs, 1) != 1) {
        return;
    }
    if (m->mapped) {
        wf_file_unmap(m->base, m->size);
    } else {
        wf_mfree((void *)(uintptr_t)m->base);
    }
    wf_mfree(m);
}

void weft_safetensors_close(weft_safetensors *f)
{
    if (!f) {
        return;
    }
    release_mapping(f->map);
    wf_mfree(f->text);
    wf_mfree(f->entries);
    wf_mfree(f->by_name);
    wf_mfree(f->meta);
    wf_mfree(f);
}

/* *array holds n of *cap elements of this size; room for one more. */
static bool reserve(void **array, int n, int *cap, size_t size)
{
    if (n < *cap) {
        return true;
    }
    int more = *cap ? *cap : 16;
    void *p = more <= INT32_MAX / 2 ? wf_realloc(*array, (size_t)more * 2 * size) : NULL;
    if (!p) {
        return false;
    }
    *array = p;
    *cap = more * 2;
    return true;
}

/* -- parsing ----------------------------------------------------------------------------------------- */

static bool parse_metadata(weft_safetensors *f, wf_json *j)
{
    if (wf_json_peek(j) == 'n' && j->end - j->p >= 4 && memcmp(j->p, "null", 4) == 0) {
        j->p += 4; /* none, as the reference takes it */
        return true;
    }
    if (!wf_json_take(j, '{', "__metadata__ is not an object")) {
        return false;
    }
    for (bool first = true; wf_json_more(j, '}', first); first = false) {
        if (!reserve((void **)&f->meta, f->n_meta, &f->cap_meta, sizeof *f->meta)) {
            return wf_json_fail(j, no_memory);
        }
        weft_metadata *m = &f->meta[f->n_meta];
        if (!(m->key = wf_json_string(j)) || !wf_json_take(j, ':', "a colon is expected") ||
            !(m->value = wf_json_string(j))) {
            return false;
        }
        f->n_meta++;
    }
    return !j->error;
}

static bool parse_dtype(wf_json *j, entry *e)
{
    char *mark = j->arena; /* the name is not kept */
    const char *name = wf_json_string(j);
    j->arena = mark;
    if (!name) {
        return false;
    }
    for (int d = WEFT_BOOL; d < WEFT_DTYPE_COUNT; d++) {
        if (strcmp(name, wf_st_types[d].name) == 0) {
            e->dtype = (weft_dtype)d;
            return true;
        }
    }
    for (int k = 0; k < FOREIGN_TYPES; k++) {
        if (strcmp(name, foreign_types[k].name) == 0) {
            e->dtype = WEFT_DTYPE_DEFAULT;
            e->foreign = k;
            return true;
        }
    }
    return wf_json_fail(j, "the dtype is none of the format's");
}

/* An array of up to max counts; returns how many, or -1. */
static int parse_counts(wf_json *j, int64_t *v, int max, const char *too_many)
{
    int n = 0;
    if (!wf_json_take(j, '[', "an array is expected")) {
        return -1;
    }
    for (; wf_json_more(j, ']', n == 0); n++) {
        if (n == max) {
            wf_json_fail(j, too_many);
            return -1;
        }
        if (!wf_json_count(j, &v[n])) {
            return -1;
        }
    }
    return j->error ? -1 : n;
}

/* The three members, in any order, each once. */
static bool parse_tensor(wf_json *j, entry *e)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    unsigned seen = 0;
    if (!wf_json_take(j, '{', "a tensor is not an object")) {
        return false;
    }
    for (bool first = true; wf_json_more(j, '}', first); first = false) {
        char *mark = j->arena;
        const char *key = wf_json_string(j);
        j->arena = mark;
        if (!key) {
            return false;
        }
        unsigned bit = strcmp(key, "dtype") == 0          ? DTYPE
                       : strcmp(key, "shape") == 0        ? SHAPE
                       : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                          : 0;
        if (bit == 0 || (seen & bit)) {
            return wf_json_fail(j, bit ? "a member of a tensor occurs twice"
                                       : "a member other than dtype, shape and data_offsets");
        }
        seen |= bit;
        int64_t offsets[2];
        if (!wf_json_take(j, ':', "a colon is expected")) {
            return false;
        }
        if (bit == DTYPE && !parse_dtype(j, e)) {
            return false;
        }
        if (bit == SHAPE &&
            (e->rank = parse_counts(j, e->dims, WEFT_MAX_RANK, "more than 16 axes")) < 0) {
            return false;
        }
        if (bit == OFFSETS) {
            if (parse_counts(j, offsets, 2, "more than two offsets") != 2) {
                return wf_json_fail(j, "data_offsets are not two numbers");
            }
            e->begin = offsets[0];
            e->end = offsets[1];
        }
    }
    if (!j->error && seen != (DTYPE | SHAPE | OFFSETS)) {
        return wf_json_fail(j, "a tensor lacks dtype, shape or data_offsets");
    }
    return !j->error;
}

static bool check_size(wf_json *j, const entry *e)
{
    const bool foreign = e->dtype == WEFT_DTYPE_DEFAULT;
    int64_t size = foreign ? foreign_types[e->foreign].bits : (int64_t)weft_dtype_size(e->dtype);
    bool zero = false;
    for (int i = 0; i < e->rank; i++) {
        zero |= e->dims[i] == 0;
        if (__builtin_mul_overflow(size, e->dims[i] ? e->dims[i] : 1, &size)) {
            return wf_json_fail(j, "the size of a tensor overflows");
        }
    }
    const bool whole = zero || !foreign || size % CHAR_BIT == 0;
    size = zero ? 0 : foreign ? size / CHAR_BIT : size;
    if (!whole || e->end < e->begin || e->end - e->begin != size) {
        return wf_json_fail(j, "data_offsets do not fit dtype and shape");
    }
    return true;
}

static bool parse_header(weft_safetensors *f, wf_json *j)
{
    bool seen_metadata = false;
    if (!wf_json_take(j, '{', "the header is not an object")) {
        return false;
    }
    for (bool first = true; wf_json_more(j, '}', first); first = false) {
        const char *name = wf_json_string(j);
        if (!name || !wf_json_take(j, ':', "a colon is expected")) {
            return false;
        }
        if (strcmp(name, "__metadata__") == 0) {
            if (seen_metadata) {
                return wf_json_fail(j, "__metadata__ occurs twice");
            }
            seen_metadata = true;
            if (!parse_metadata(f, j)) {
                return false;
            }
            continue;
        }
        if (!reserve((void **)&f->entries, f->n, &f->cap, sizeof *f->entries)) {
            return wf_json_fail(j, no_memory);
        }
        entry *e = &f->entries[f->n];
        memset(e, 0, sizeof *e);
        e->name = name;
        if (!parse_tensor(j, e) || !check_size(j, e)) {
            return false;
        }
        f->n++;
    }
    if (!j->error && wf_json_peek(j) >= 0) {
        return wf_json_fail(j, "text behind the header's object");
    }
    return !j->error;
}

/* -- validation of the whole -------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b, void *entries)
{
    const entry *e = entries;
    return strcmp(e[*(const int *)a].name, e[*(const int *)b].name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft_metadata *)a)->key, ((const weft_metadata *)b)->key);
}

/* What is wrong with the parsed header as a whole, or NULL. */
static const char *check_whole(weft_safetensors *f, int64_t data_size)
{
    f->by_name = wf_malloc((size_t)(f->n ? f->n : 1) * sizeof *f->by_name);
    if (!f->by_name) {
        return no_memory;
    }
    if (f->n) {
        qsort(f->entries, (size_t)f->n, sizeof *f->entries, by_offset);
    }
    int64_t at = 0;
    for (int i = 0; i < f->n; i++) {
        f->by_name[i] = i;
        if (f->entries[i].begin != at) {
            return "the tensors leave a hole in the data or overlap";
        }
        at = f->entries[i].end;
    }
    if (at != data_size) {
        return "the tensors do not cover the data exactly (is the file cut?)";
    }
    if (f->n) {
        qsort_r(f->by_name, (size_t)f->n, sizeof *f->by_name, by_name, f->entries);
    }
    for (int i = 1; i < f->n; i++) {
        if (strcmp(f->entries[f->by_name[i - 1]].name, f->entries[f->by_name[i]].name) == 0) {
            return "two tensors have the same name";
        }
    }
    if (f->n_meta) {
        qsort(f->meta, (size_t)f->n_meta, sizeof *f->meta, by_key);
    }
    for (int i = 1; i < f->n_meta; i++) {
        if (strcmp(f->meta[i - 1].key, f->meta[i].key) == 0) {
            return "two metadata have the same key";
        }
    }
    return NULL;
}

/* Closes f with an error; at: where in the header, or negative. */
static weft_safetensors *reject(weft_safetensors *f, const char *source, const char *reason,
                                int64_t at)
{
    if (reason == no_memory) {
        wf_api_error("safetensors", WEFT_ENOMEM, "%s: %s", source, reason);
    } else if (at >= 0) {
        wf_api_error("safetensors", WEFT_EIO, "%s: %s (byte %lld of the header)", source, reason,
                     (long long)at);
    } else {
        wf_api_error("safetensors", WEFT_EIO, "%s: %s", source, reason);
    }
    weft_safetensors_close(f);
    return NULL;
}

/* Takes over the mapping, also on failure. */
static weft_safetensors *read_mapping(mapping *map, const char *source)
{
    weft_safetensors *f = wf_calloc(1, sizeof *f);
    if (!f) {
        release_mapping(map);
        wf_api_error("safetensors", WEFT_ENOMEM, "%s: no memory", source);
        return NULL;
    }
    f->map = map;
    if (map->size < 8) {
        return reject(f, source, "shorter than the 8 bytes that state the header's size", -1);
    }
    uint64_t size = 0;
    for (int i = 7; i >= 0; i--) {
        size = size << 8 | map->base[i];
    }
    if (size > WF_ST_MAX_HEADER) {
        return reject(
            f, source,
            "its first 8 bytes state a header of more than 100 MB: this is no safetensors file",
            -1);
    }
    if (size > map->size - 8) {
        return reject(f, source, "the header is stated to be larger than the file", -1);
    }
    if (size == 0 || map->base[8] != '{') {
        return reject(f, source, "the header does not start with '{'", -1);
    }
    f->data = map->base + 8 + size;
    f->text = wf_malloc((size_t)size);
    if (!f->text) {
        return reject(f, source, no_memory, -1);
    }
    const unsigned char *start = map->base + 8;
    wf_json j = {start, start, start + size, f->text, NULL};
    if (!parse_header(f, &j)) {
        return reject(f, source, j.error, j.p - j.start);
    }
    const char *wrong = check_whole(f, (int64_t)(map->size - 8 - (size_t)size));
    return wrong ? reject(f, source, wrong, -1) : f;
}

static mapping *new_mapping(const unsigned char *base, size_t size, bool mapped)
{
    mapping *m = wf_malloc(sizeof *m);
    if (m) {
        *m = (mapping){.refs = 1, .base = base, .size = size, .mapped = mapped};
    }
    return m;
}

weft_safetensors *weft_safetensors_decode(const void *data, size_t size)
{
    if (!data) {
        wf_api_null("safetensors", "the data");
        return NULL;
    }
    unsigned char *copy = wf_malloc(size ? size : 1);
    mapping *m = copy ? new_mapping(copy, size, false) : NULL;
    if (!m) {
        wf_mfree(copy);
        wf_api_error("safetensors", WEFT_ENOMEM, "no memory for a copy of %zu bytes", size);
        return NULL;
    }
    if (size) {
        memcpy(copy, data, size);
    }
    return read_mapping(m, "memory");
}

weft_safetensors *weft_safetensors_open(const char *path)
{
    size_t size;
    const unsigned char *base = wf_file_map("safetensors", path, &size);
    mapping *m = base ? new_mapping(base, size, true) : NULL;
    if (base && !m) {
        wf_file_unmap(base, size);
        wf_api_error("safetensors", WEFT_ENOMEM, "%s: no memory", path);
    }
    return m ? read_mapping(m, path) : NULL;
}

/* -- access ------------------------------------------------------------------------------------------- */

int weft_safetensors_count(const weft_safetensors *f)
{
    return f ? f->n : 0;
}

const char *weft_safetensors_name(const weft_safetensors *f, int i)
{
    return f && i >= 0 && i < f->n ? f->entries[i].name : "";
}

const char *weft_safetensors_dtype(const weft_safetensors *f, int i)
{
    if (!f || i < 0 || i >= f->n) {
        return "";
    }
    const entry *e = &f->entries[i];
    return e->dtype == WEFT_DTYPE_DEFAULT ? foreign_types[e->foreign].name
                                          : wf_st_types[e->dtype].name;
}

weft_shape weft_safetensors_shape(const weft_safetensors *f, int i)
{
    const bool has = f && i >= 0 && i < f->n;
    return weft_shape_from(has ? f->entries[i].rank : 0, has ? f->entries[i].dims : NULL);
}

static const entry *find(const weft_safetensors *f, const char *name)
{
    for (int low = 0, high = f->n; low < high;) {
        int mid = low + (high - low) / 2;
        const entry *e = &f->entries[f->by_name[mid]];
        int c = strcmp(name, e->name);
        if (c == 0) {
            return e;
        }
        *(c < 0 ? &high : &low) = c < 0 ? mid : mid + 1;
    }
    return NULL;
}

/* A byte that is neither 0 nor 1 is no bool. */
static bool sound_bools(const unsigned char *p, int64_t n)
{
    unsigned char all = 0;
    for (int64_t i = 0; i < n; i++) {
        all |= p[i];
    }
    return all <= 1;
}

static weft_tensor take(const weft_safetensors *f, const entry *e)
{
    weft_shape shape = weft_shape_from(e->rank, e->dims);
    const unsigned char *p = f->data + e->begin;
    if (e->dtype == WEFT_DTYPE_DEFAULT) {
        return wf_api_error(
            "safetensors", WEFT_EUNSUPPORTED,
            "'%s' is %s in the file, a type that weft has not; store it as %s there, or "
            "leave it out: the file's other tensors can be taken",
            e->name, foreign_types[e->foreign].name, foreign_types[e->foreign].instead);
    }
    if (e->dtype == WEFT_BOOL && !sound_bools(p, e->end - e->begin)) {
        return wf_api_error("safetensors", WEFT_EIO,
                            "'%s': an element of a bool tensor is neither 0 "
                            "nor 1",
                            e->name);
    }
    weft_tensor t;
    if (e->begin == e->end || (uintptr_t)p % weft_dtype_size(e->dtype) != 0) {
        t = weft_from_data(e->begin == e->end ? NULL : p, shape, e->dtype);
    } else {
        atomic_fetch_add(&f->map->refs, 1);
        t = (weft_from_blob)(&(weft_blob_args){.data = (void *)(uintptr_t)p,
                                               .shape = shape,
                                               .dtype = e->dtype,
                                               .deleter = release_mapping,
                                               .arg = f->map,
                                               .read_only = true});
        if (!weft_ok(t)) {
            release_mapping(f->map);
        }
    }
    if (weft_ok(t)) {
        weft_set_name(t, e->name);
    }
    return t;
}

weft_tensor weft_safetensors_at(const weft_safetensors *f, int i)
{
    if (!f || i < 0 || i >= f->n) {
        return wf_api_error("safetensors_at", WEFT_EINVALID, "there is no tensor %d among %d", i,
                            f ? f->n : 0);
    }
    return take(f, &f->entries[i]);
}

weft_tensor weft_safetensors_get(const weft_safetensors *f, const char *name)
{
    const entry *e = f && name ? find(f, name) : NULL;
    if (e) {
        return take(f, e);
    }
    return wf_api_error(
        "safetensors_get", WEFT_EINVALID,
        "the file has no tensor '%s'; weft_safetensors_name lists the %d it has%s%s%s",
        name ? name : "(null)", f ? f->n : 0, f && f->n ? ", the first is '" : "",
        f && f->n ? f->entries[0].name : "", f && f->n ? "'" : "");
}

const char *weft_safetensors_metadata(const weft_safetensors *f, const char *key)
{
    for (int i = 0; f && key && i < f->n_meta; i++) {
        if (strcmp(f->meta[i].key, key) == 0) {
            return f->meta[i].value;
        }
    }
    return NULL;
}

/* -- loading ------------------------------------------------------------------------------------------ */

/* Collects names for the report, cut to its size. */
typedef struct note {
    char *text;
    size_t size, used;
    int missing, unexpected;
} note;

static void note_name(note *n, const char *what, const char *name)
{
    if (n->text && n->used + 1 < n->size) {
        int k = snprintf(n->text + n->used, n->size - n->used, "%s%s '%s'", n->used ? ", " : "",
                         what, name);
        n->used += k > 0 ? (size_t)k : 0;
        n->used = n->used < n->size ? n->used : n->size - 1;
    }
}

/* "2,3" */
static const char *extents(int rank, const int64_t *dims, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < rank && at < size; i++) {
        int n = snprintf(buf + at, size - at, i ? ",%lld" : "%lld", (long long)dims[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return buf;
}

/* Names, shapes and liveness of all targets; counts the names that do not match. */
static weft_status check_targets(const weft_load_args *a, note *n)
{
    const weft_safetensors *f = a->file;
    bool *used = wf_calloc((size_t)f->n + 1, sizeof *used);
    if (!used) {
        wf_api_error("safetensors_load", WEFT_ENOMEM, "no memory");
        return WEFT_ENOMEM;
    }
    weft_status s = WEFT_OK;
    for (int i = 0; i < a->n && s == WEFT_OK; i++) {
        const weft_named_tensor *t = &a->tensors[i];
        if (!t->name || !weft_ok(t->tensor)) {
            wf_api_error("safetensors_load", WEFT_EHANDLE, "target %d has no name or is not alive",
                         i);
            s = WEFT_EHANDLE;
            break;
        }
        const entry *e = find(f, t->name);
        if (!e) {
            n->missing++;
            note_name(n, "missing", t->name);
            continue;
        }
        used[e - f->entries] = true;
        weft_shape shape = weft_shape_of(t->tensor);
        bool same = shape.n == e->rank;
        for (int k = 0; same && k < e->rank; k++) {
            same = shape.v[k] == e->dims[k];
        }
        if (!same) {
            char have[200], want[200];
            wf_api_error("safetensors_load", WEFT_ESHAPE,
                         "'%s' is [%s] in the file, the tensor it is loaded into is [%s]", t->name,
                         extents(e->rank, e->dims, have, sizeof have),
                         extents((int)shape.n, shape.v, want, sizeof want));
            s = WEFT_ESHAPE;
        }
    }
    for (int i = 0; i < f->n && s == WEFT_OK; i++) {
        if (!used[i]) {
            n->unexpected++;
            note_name(n, "unexpected", f->entries[i].name);
        }
    }
    wf_mfree(used);
    return s;
}

static weft_status load(const weft_load_args *a, const char *site)
{
    if (!a || !a->file || (a->n > 0 && !a->tensors)) {
        wf_api_null("safetensors_load", "the file or the list of tensors");
        return WEFT_EINVALID;
    }
    char own[512] = "";
    note n = {a->report ? a->report : own, a->report ? a->report_size : sizeof own, 0, 0, 0};
    if (n.size) {
        n.text[0] = 0;
    }
    weft_status s = check_targets(a, &n);
    if (s == WEFT_OK && !a->lax && n.missing + n.unexpected > 0) {
        wf_api_error("safetensors_load", WEFT_EINVALID,
                     "%d names are missing from the file and %d are not expected: %s", n.missing,
                     n.unexpected, n.size ? n.text : "");
        s = WEFT_EINVALID;
    }
    weft_no_grad_begin();
    for (int pass = 0; pass < 2; pass++) { /* take everything once before anything is written */
        for (int i = 0; i < a->n && s == WEFT_OK; i++) {
            const entry *e = find(a->file, a->tensors[i].name);
            if (!e || (pass == 0 && e->dtype != WEFT_BOOL && e->dtype != WEFT_DTYPE_DEFAULT)) {
                continue;
            }
            weft_scope scope = weft_scope_begin();
            weft_tensor t = take(a->file, e), to = a->tensors[i].tensor;
            s = !weft_ok(t) ? weft_error_status(t)
                : pass == 1 ? weft_copy_(to, weft_cast(t, weft_dtype_of(to)))
                            : WEFT_OK;
            if (s == WEFT_OK && pass == 1) {
                wf_ctx *c = wf_ctx_get();
                wf_wrote_as(c, to, (wf_write)c->called->write, site);
            }
            weft_scope_end(scope);
        }
    }
    weft_no_grad_end();
    return s;
}

weft_status(weft_safetensors_load)(const weft_load_args *a)
{
    wf_called w;
    wf_called_write(&w, WF_WRITE_SAFETENSORS_LOAD, 0, NULL);
    const char *site = w.c ? w.c->here : NULL;
    return wf_called_done(&w, load(a, site));
}
