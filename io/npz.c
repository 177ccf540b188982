/*
 * io/npz.c -- NumPy's .npz: a zip of .npy members, stored or deflated.
 *
 * Read is the central directory at the end; from each entry its size, checksum and where its local header
 * lies. Zip64 fields are understood where a size or offset does not fit 32 bits.
 *
 * Invariants, all checked before a handle exists: every record lies inside the file; members are not encrypted, their
 * bytes inside the file; a deflated one states no more bytes than its own can stand for; names are distinct. The
 * checksum is checked when a member is decoded. Names are labels and never become paths.
 */
#include <stdlib.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/crc32.h"
#include "eager/device.h"
#include "io/file.h"
#include "io/inflate.h"
#include "io/json.h"
#include "io/names.h"
#include "io/npy.h"
#include "jit/ir/controls.h"

enum { LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50 };
enum { LOCATOR64 = 0x07064b50, LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END_SIZE = 22 };
enum { MAX_MEMBERS = 1 << 16, STORED = 0, DEFLATED = 8 };

typedef struct member {
    char *name;
    size_t data, packed, size; /* where it lies, its bytes there, and of what they stand for */
    bool deflated;
    uint32_t crc;
} member;

struct weft_npz {
    unsigned char *copy; /* malloc'ed, or NULL: mapped */
    const unsigned char *p;
    size_t size;
    member *members;
    const member **by_name;
    int n;
};

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

void weft_npz_close(weft_npz *z)
{
    if (!z) {
        return;
    }
    for (int i = 0; i < z->n; i++) {
        wf_mfree(z->members[i].name);
    }
    wf_mfree(z->members);
    wf_mfree(z->by_name);
    if (z->copy) {
        wf_mfree(z->copy);
    } else {
        wf_file_unmap(z->p, z->size);
    }
    wf_mfree(z);
}

/* Replaces size and offset by the 64-bit fields of the extra data where they say 0xFFFFFFFF. */
static bool widen(const unsigned char *extra, size_t n, uint64_t *raw, uint64_t *packed,
                  uint64_t *offset)
{
    uint64_t *fields[] = {raw, packed, offset};
    bool wanted = *raw == UINT32_MAX || *packed == UINT32_MAX || *offset == UINT32_MAX;
    for (size_t at = 0; wanted && n - at >= 4;) {
        size_t length = (size_t)get(extra + at + 2, 2);
        if (length > n - at - 4) {
            return false;
        }
        if (get(extra + at, 2) == 1) {
            size_t used = 0;
            for (int i = 0; i < 3; i++) {
                if (*fields[i] == UINT32_MAX) {
                    if (length - used < 8) {
                        return false;
                    }
                    *fields[i] = get(extra + at + 4 + used, 8);
                    used += 8;
                }
            }
            return true;
        }
        at += 4 + length;
    }
    return !wanted;
}

/* One entry of the directory at *at, which moves behind it. */
static const char *read_entry(weft_npz *z, size_t *at, size_t directory_end)
{
    const unsigned char *e = z->p + *at;
    if (directory_end - *at < CENTRAL_SIZE || get(e, 4) != CENTRAL) {
        return "an entry of the directory is malformed";
    }
    size_t name = (size_t)get(e + 28, 2), extra = (size_t)get(e + 30, 2);
    size_t comment = (size_t)get(e + 32, 2);
    uint64_t packed = get(e + 20, 4), raw = get(e + 24, 4), offset = get(e + 42, 4);
    if (name + extra + comment > directory_end - *at - CENTRAL_SIZE) {
        return "an entry of the directory is longer than the directory";
    }
    if (get(e + 8, 2) & 1) {
        return "a member is encrypted";
    }
    uint64_t method = get(e + 10, 2);
    if (method != STORED && method != DEFLATED) {
        return "a member is compressed in a way that NumPy does not use";
    }
    if (!widen(e + CENTRAL_SIZE + name, extra, &raw, &packed, &offset)) {
        return "the 64-bit fields of an entry are malformed";
    }
    if ((method == STORED && raw != packed) || raw > wf_inflate_most((size_t)packed) ||
        offset > z->size || z->size - offset < LOCAL_SIZE || get(z->p + offset, 4) != LOCAL) {
        return "an entry of the directory does not lead to a member";
    }
    uint64_t data = offset + LOCAL_SIZE + get(z->p + offset + 26, 2) + get(z->p + offset + 28, 2);
    if (data > z->size || packed > z->size - data) {
        return "a member is longer than the file";
    }
    member *m = &z->members[z->n];
    *m = (member){.data = (size_t)data,
                  .packed = (size_t)packed,
                  .size = (size_t)raw,
                  .deflated = method == DEFLATED,
                  .crc = (uint32_t)get(e + 16, 4)};
    m->name = wf_malloc(name + 1);
    if (!m->name) {
        return "no memory for a name";
    }
    z->n++;
    memcpy(m->name, e + CENTRAL_SIZE, name);
    m->name[name] = 0;
    if (strlen(m->name) != name) {
        return "a name contains a zero byte";
    }
    if (name > 4 && strcmp(m->name + name - 4, ".npy") == 0) {
        m->name[name - 4] = 0;
    }
    *at += CENTRAL_SIZE + name + extra + comment;
    return NULL;
}

/* Where the end record lies; SIZE_MAX: nowhere. */
static size_t find_end(const unsigned char *p, size_t size)
{
    size_t low = size > 65535 + END_SIZE ? size - 65535 - END_SIZE : 0;
    for (size_t at = size >= END_SIZE ? size - END_SIZE + 1 : 0; at-- > low;) {
        if (get(p + at, 4) == END && get(p + at + 20, 2) == size - at - END_SIZE) {
            return at;
        }
    }
    return SIZE_MAX;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const member *const *)a)->name, (*(const member *const *)b)->name);
}

/* Makes the list that is looked up in. */
static const char *sort_names(weft_npz *z)
{
    z->by_name = wf_malloc(((size_t)z->n + 1) * sizeof *z->by_name);
    if (!z->by_name) {
        return "no memory for the list of names";
    }
    for (int i = 0; i < z->n; i++) {
        z->by_name[i] = &z->members[i];
    }
    qsort(z->by_name, (size_t)z->n, sizeof *z->by_name, by_name);
    for (int i = 1; i < z->n; i++) {
        if (strcmp(z->by_name[i - 1]->name, z->by_name[i]->name) == 0) {
            return "two members have the same name";
        }
    }
    return NULL;
}

static const char *read_directory(weft_npz *z)
{
    size_t end = find_end(z->p, z->size);
    if (end == SIZE_MAX) {
        return "not a zip file (is it cut?)";
    }
    uint64_t n = get(z->p + end + 10, 2), bytes = get(z->p + end + 12, 4),
             at = get(z->p + end + 16, 4);
    if (end >= 20 && get(z->p + end - 20, 4) == LOCATOR64) {
        uint64_t wide = get(z->p + end - 12, 8);
        if (wide > z->size || z->size - wide < 56 || get(z->p + wide, 4) != END64) {
            return "the 64-bit end record is malformed";
        }
        n = get(z->p + wide + 32, 8);
        bytes = get(z->p + wide + 40, 8);
        at = get(z->p + wide + 48, 8);
    }
    if (n > MAX_MEMBERS || at > end || bytes > end - at || n > bytes / CENTRAL_SIZE) {
        return "the directory is longer than the file";
    }
    z->members = wf_calloc((size_t)n + 1, sizeof *z->members);
    if (!z->members) {
        return "no memory for the directory";
    }
    size_t entry = (size_t)at, directory_end = (size_t)(at + bytes);
    for (uint64_t i = 0; i < n; i++) {
        const char *wrong = read_entry(z, &entry, directory_end);
        if (wrong) {
            return wrong;
        }
    }
    return sort_names(z);
}

/* Takes copy, or the mapping, also on failure. */
static weft_npz *read_zip(const char *source, unsigned char *copy, const unsigned char *p,
                          size_t size)
{
    weft_npz *z = wf_calloc(1, sizeof *z);
    if (!z) {
        wf_mfree(copy);
        if (!copy) {
            wf_file_unmap(p, size);
        }
        wf_api_error("npz", WEFT_ENOMEM, "%s: no memory", source);
        return NULL;
    }
    *z = (weft_npz){.copy = copy, .p = p, .size = size};
    const char *wrong = read_directory(z);
    if (wrong) {
        wf_api_error("npz", WEFT_EIO, "%s: %s", source, wrong);
        weft_npz_close(z);
        return NULL;
    }
    return z;
}

weft_npz *weft_npz_open(const char *path)
{
    size_t size;
    const unsigned char *p = wf_file_map("npz", path, &size);
    return p ? read_zip(path, NULL, p, size) : NULL;
}

weft_npz *weft_npz_decode(const void *data, size_t size)
{
    unsigned char *copy = data ? wf_malloc(size + 1) : NULL;
    if (!copy) {
        wf_api_error("npz", data ? WEFT_ENOMEM : WEFT_EINVALID, "no data, or no memory for a copy");
        return NULL;
    }
    memcpy(copy, data, size);
    return read_zip("memory", copy, copy, size);
}

int weft_npz_count(const weft_npz *z)
{
    return z ? z->n : 0;
}

const char *weft_npz_name(const weft_npz *z, int i)
{
    return z && i >= 0 && i < z->n ? z->members[i].name : "";
}

static weft_tensor decode(const member *m, const unsigned char *p)
{
    if (wf_crc32(0, p, m->size) != m->crc) {
        return wf_api_error("npz", WEFT_EIO, "'%s': the checksum is wrong", m->name);
    }
    return wf_npy_decode(m->name, p, m->size);
}

static weft_tensor decode_deflated(const weft_npz *z, const member *m)
{
    bool no_memory = true;
    unsigned char *p = wf_malloc(m->size + 1);
    const char *wrong = p ? wf_inflate(z->p + m->data, m->packed, p, m->size, &no_memory)
                          : "no memory to decompress it";
    weft_tensor t = wrong ? wf_api_error("npz",
                                         no_memory                ? WEFT_ENOMEM
                                         : wf_inflate_available() ? WEFT_EIO
                                                                  : WEFT_EUNSUPPORTED,
                                         "'%s': %s", m->name, wrong)
                          : decode(m, p);
    wf_mfree(p);
    return t;
}

weft_tensor weft_npz_at(const weft_npz *z, int i)
{
    if (!z || i < 0 || i >= z->n) {
        return wf_api_error("npz", WEFT_EINVALID, "there is no member %d among %d", i,
                            z ? z->n : 0);
    }
    const member *m = &z->members[i];
    return m->deflated ? decode_deflated(z, m) : decode(m, z->p + m->data);
}

weft_tensor weft_npz_get(const weft_npz *z, const char *name)
{
    int from = 0, to = z && name ? z->n : 0;
    while (from < to) {
        const int mid = from + (to - from) / 2, order = strcmp(name, z->by_name[mid]->name);
        if (order == 0) {
            return weft_npz_at(z, (int)(z->by_name[mid] - z->members));
        }
        from = order > 0 ? mid + 1 : from;
        to = order > 0 ? to : mid;
    }
    return wf_api_error("npz", WEFT_EINVALID, "the file has no member '%s'",
                        name ? name : "(null)");
}

/* -- writing ------------------------------------------------------------------------------------------ */

static void put(unsigned char **p, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *(*p)++ = (unsigned char)(v >> 8 * i);
    }
}

/* A member's headers and bytes; fixed sizes, 32 bits. */
typedef struct piece {
    char name[256];
    char head[WF_NPY_HEADER];
    size_t head_size, bytes, offset;
    const void *data;
    uint32_t crc;
    unsigned char local[LOCAL_SIZE + 256];
} piece;

static size_t put_common(unsigned char *p, const piece *m)
{
    unsigned char *start = p;
    bool ascii = true;
    for (const char *s = m->name; *s; s++) {
        ascii &= (unsigned char)*s < 0x80;
    }
    put(&p, ascii ? 0 : 0x800,
        2); /* names are UTF-8; without this flag readers take them for IBM's code page 437 */
    put(&p, 0, 2); /* stored */
    put(&p, 0, 2);
    put(&p, 0x21, 2); /* 1980-01-01, so that equal tensors are equal files */
    put(&p, m->crc, 4);
    put(&p, m->head_size + m->bytes, 4);
    put(&p, m->head_size + m->bytes, 4);
    put(&p, strlen(m->name), 2);
    put(&p, 0, 2);
    return (size_t)(p - start);
}

static weft_status refuse(weft_status s, const char *name, const char *why)
{
    wf_api_error("npz_save", (int)s, "'%s': %s", name ? name : "(null)", why);
    return s;
}

static weft_status prepare(piece *m, const weft_named_tensor *t, size_t *offset)
{
    const char *name = t->name;
    if (!name || !*name || strlen(name) > 250 || name[0] == '/' || strstr(name, "..") ||
        !wf_is_utf8(name) || wf_has_controls(name)) {
        return refuse(WEFT_EINVALID, name,
                      "the name is missing, too long, not UTF-8, has control characters, or looks "
                      "like a path");
    }
    snprintf(m->name, sizeof m->name, "%s.npy", name);
    WF_CALLED(w, "npz_save", t->tensor);
    weft_tensor c = wf_called_end(&w, wf_device_on_host(weft_contiguous(weft_detach(t->tensor))));
    weft_status s = wf_npy_header("npz_save", c, m->head, &m->head_size);
    m->data = s == WEFT_OK ? wf_npy_elements("npz_save", c, &m->bytes, &s) : NULL;
    if (s != WEFT_OK) {
        return s;
    }
    m->offset = *offset;
    m->crc = wf_crc32(0, m->head, m->head_size);
    m->crc = wf_crc32(m->crc, m->data, m->bytes);
    if (m->bytes > UINT32_MAX / 2 || *offset > UINT32_MAX / 2) {
        return refuse(WEFT_EUNSUPPORTED, name,
                      "an .npz beyond 2 GiB: save as safetensors, or one .npy a tensor");
    }
    unsigned char *p = m->local;
    put(&p, LOCAL, 4);
    put(&p, 20, 2);
    p += put_common(p, m);
    memcpy(p, m->name, strlen(m->name));
    *offset += LOCAL_SIZE + strlen(m->name) + m->head_size + m->bytes;
    return WEFT_OK;
}

/* The directory; malloc'ed. */
static unsigned char *directory(const piece *m, int n, size_t offset, size_t *size)
{
    size_t bytes = END_SIZE;
    for (int i = 0; i < n; i++) {
        bytes += CENTRAL_SIZE + strlen(m[i].name);
    }
    unsigned char *start = wf_calloc(1, bytes), *p = start;
    for (int i = 0; p && i < n; i++) {
        put(&p, CENTRAL, 4);
        put(&p, 20, 2);
        put(&p, 20, 2);
        p += put_common(p, &m[i]);
        put(&p, 0, 8);
        put(&p, 0, 2);
        put(&p, m[i].offset, 4);
        memcpy(p, m[i].name, strlen(m[i].name));
        p += strlen(m[i].name);
    }
    if (p) {
        put(&p, END, 4);
        put(&p, 0, 4);
        put(&p, (uint64_t)n, 2);
        put(&p, (uint64_t)n, 2);
        put(&p, bytes - END_SIZE, 4);
        put(&p, offset, 4);
        put(&p, 0, 2);
    }
    *size = bytes;
    return start;
}

static weft_status save(const char *path, const weft_named_tensor *t, int n, piece *m,
                        wf_file_part *parts)
{
    size_t offset = 0, size;
    for (int i = 0; i < n; i++) {
        weft_status s = prepare(&m[i], &t[i], &offset);
        if (s != WEFT_OK) {
            return s;
        }
        parts[3 * i] = (wf_file_part){m[i].local, LOCAL_SIZE + strlen(m[i].name)};
        parts[3 * i + 1] = (wf_file_part){m[i].head, m[i].head_size};
        parts[3 * i + 2] = (wf_file_part){m[i].data, m[i].bytes};
    }
    bool lost = false;
    const char *twice = t ? wf_names_twice(&t->name, sizeof *t, n, &lost) : NULL;
    if (twice) {
        return refuse(WEFT_EINVALID, twice, "the name occurs twice");
    }
    unsigned char *end = lost ? NULL : directory(m, n, offset, &size);
    if (!end) {
        return refuse(WEFT_ENOMEM, path, "no memory");
    }
    parts[3 * n] = (wf_file_part){end, size};
    weft_status s = wf_file_write("npz_save", path, parts, 3 * n + 1);
    wf_mfree(end);
    return s;
}

weft_status weft_npz_save(const char *path, const weft_named_tensor *t, int n)
{
    if (!path || !*path || n < 0 || n >= 65535 || (n && !t)) {
        wf_api_error("npz_save", WEFT_EINVALID, "no path or list, or more than 65534 tensors");
        return WEFT_EINVALID;
    }
    piece *m = wf_calloc((size_t)n + 1, sizeof *m);
    wf_file_part *parts = wf_calloc(3 * (size_t)n + 1, sizeof *parts);
    weft_scope scope = weft_scope_begin();
    weft_status s =
        m && parts ? save(path, t, n, m, parts) : refuse(WEFT_ENOMEM, path, "no memory");
    weft_scope_end(scope);
    wf_mfree(m);
    wf_mfree(parts);
    return s;
}
