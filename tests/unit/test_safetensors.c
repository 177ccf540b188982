/*
 * tests/unit/test_safetensors.c -- safetensors: bytes of the reference, hostile files, loading, saving.
 *
 * tests/unit/safetensors holds two files written by the reference implementation (version 0.4.5): all_types
 * has one tensor of each element type with values -3, -2, ... (bool: 0, 1, 0), escapes in a name and in
 * metadata; empty has no tensors.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/support.h"

#define FIXTURES WEFT_SOURCE_DIR "/tests/unit/safetensors/"

static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f != NULL, "%s", path);
    char *data = malloc(1 << 20);
    *size = fread(data, 1, 1 << 20, f);
    fclose(f);
    return data;
}

/* A file with this header and n zero bytes of data. */
static char *make_file(const char *header, size_t n, size_t *size)
{
    size_t h = strlen(header);
    char *data = calloc(1, 8 + h + n);
    for (int i = 0; i < 8; i++) {
        data[i] = (char)(h >> 8 * i);
    }
    memcpy(data + 8, header, h);
    *size = 8 + h + n;
    return data;
}

Test(safetensors, writes_the_bytes_of_the_reference)
{
    size_t size, mine;
    char *bytes = read_file(FIXTURES "all_types.safetensors", &size);
    weft_safetensors *f = weft_safetensors_open(FIXTURES "all_types.safetensors");
    cr_assert(f != NULL, "%s", weft_last_error());
    int n = weft_safetensors_count(f);
    cr_assert_eq(n, 13);
    weft_named_tensor t[13];
    for (int i = 0; i < n; i++) { /* in an order that is not the file's */
        int k = (i * 5 + 3) % 13;
        t[i] = (weft_named_tensor){weft_safetensors_name(f, k), weft_safetensors_at(f, k)};
    }
    const char *value = weft_safetensors_metadata(f, "format");
    cr_assert_str_eq(value, "weft \"test\"\n");
    weft_metadata meta = {"format", value};
    void *data;
    cr_assert_eq(weft_safetensors_encode(t, n, &meta, 1, &data, &mine), WEFT_OK);
    cr_assert_eq(mine, size);
    cr_assert_eq(memcmp(data, bytes, size), 0);
    free(data);
    free(bytes);
    weft_safetensors_close(f);

    bytes = read_file(FIXTURES "empty.safetensors", &size);
    cr_assert_eq(weft_safetensors_encode(NULL, 0, NULL, 0, &data, &mine), WEFT_OK);
    cr_assert(mine == size && memcmp(data, bytes, size) == 0);
    free(data);
    free(bytes);
}

Test(safetensors, reads_every_type)
{
    static const struct {
        const char *name;
        weft_dtype dtype;
        int64_t n;
    } rows[] = {{"a.bool", WEFT_BOOL, 3},
                {"b.u8", WEFT_U8, 5},
                {"c.i8", WEFT_I8, 4},
                {"d.i16", WEFT_I16, 3},
                {"e.i32", WEFT_I32, 2},
                {"f.i64", WEFT_I64, 1},
                {"g.f16", WEFT_F16, 7},
                {"h.bf16", WEFT_BF16, 3},
                {"i.f32", WEFT_F32, 6},
                {"j.f64", WEFT_F64, 1},
                {"a.f32", WEFT_F32, 1},
                {"k.empty", WEFT_F32, 0},
                {"q\"uo\\te\n\xc3\xa9\t\x01/", WEFT_F32, 2}};
    weft_safetensors *f = weft_safetensors_open(FIXTURES "all_types.safetensors");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        weft_tensor t = weft_safetensors_get(f, rows[r].name);
        cr_assert(weft_ok(t), "%s: %s", rows[r].name, weft_error_text(t));
        cr_assert_eq(weft_dtype_of(t), rows[r].dtype);
        cr_assert_eq(weft_numel(t), rows[r].n);
        double v[8];
        cr_assert_eq(weft_to_array(t, v, rows[r].n, WEFT_F64), WEFT_OK);
        for (int64_t i = 0; i < rows[r].n; i++) {
            double want = rows[r].dtype == WEFT_BOOL ? (double)(i % 2)
                          : rows[r].dtype == WEFT_U8 ? (double)(uint8_t)(i - 3)
                                                     : (double)(i - 3);
            cr_assert_eq(v[i], want, "%s[%d] = %g", rows[r].name, (int)i, v[i]);
        }
    }
    weft_shape s = weft_shape_of(weft_safetensors_get(f, "k.empty"));
    cr_assert(s.n == 2 && s.v[0] == 0 && s.v[1] == 4);
    cr_assert_eq(weft_rank(weft_safetensors_get(f, "f.i64")), 0);
    weft_safetensors_close(f);
}

Test(safetensors, tensors_outlive_the_file_and_are_read_only_views)
{
    weft_safetensors *f = weft_safetensors_open(FIXTURES "all_types.safetensors");
    weft_tensor a = weft_safetensors_get(f, "i.f32"), b = weft_safetensors_get(f, "i.f32");
    cr_assert_eq(weft_data(a), weft_data(b), "no copy is made");
    weft_safetensors_close(f);
    cr_assert_eq(weft_item_f64(weft_sum(a)), -3);
    cr_assert_neq(weft_add_(a, weft_f(1)), WEFT_OK);
    cr_assert_null(weft_data_mut(b));
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}}"

Test(safetensors, refuses_malformed_headers)
{
    static const struct {
        const char *header;
        size_t data;
        const char *reason;
    } rows[] = {
        {"", 0, "'{'"},
        {"[]", 0, "'{'"},
        {" {}", 0, "'{'"},
        {"{", 0, "ends inside"},
        {"{}x", 0, "behind"},
        {"{} {}", 0, "behind"},
        {"{,}", 0, "string"},
        {"{\"a\"", 0, "colon"},
        {"{\"a", 0, "inside a string"},
        {"{\"a\\", 0, "escape"},
        {"{\"\\u12", 0, "hexadecimal"},
        {"{\"\\ud800\":1}", 0, "surrogate"},
        {"{\"\\udc00\":1}", 0, "surrogate"},
        {"{\"\\u0000\":1}", 0, "NUL"},
        {"{\"\\x\":1}", 0, "escape"},
        {"{\"\x01\":1}", 0, "control"},
        {"{\"\xff\":1}", 0, "UTF-8"},
        {"{\"\xc0\x80\":1}", 0, "UTF-8"},
        {"{\"\xed\xa0\x80\":1}", 0, "UTF-8"},
        {"{\"\xf4\x90\x80\x80\":1}", 0, "UTF-8"},
        {"{\"a\":1}", 0, "not an object"},
        {"{\"a\":{}}", 0, "lacks"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[", 0, "not an object"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "twice"},
        {"{\"a\":{\"x\":1}}", 0, "other than"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "string"},
        {"{\"__metadata__\":nul}", 0, "not an object"},
        {"{\"__metadata__\":nullx}", 0, "comma"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "same key"},
        {T("F99", "1", "0,4"), 4, "dtype"},
        {T("F8", "4", "0,4"), 4, "dtype"},
        {T("U32", "1", "0,8"), 8, "fit"},
        {T("F8_E4M3", "5", "0,4"), 4, "fit"},
        {T("F4", "3", "0,1"), 1, "fit"},
        {T("F4", "3", "0,2"), 2, "fit"},
        {T("F6_E2M3", "4", "0,4"), 4, "fit"},
        {T("C64", "1", "4,12"), 12, "hole"},
        {T("U64", "2305843009213693952", "0,0"), 0, "overflows"},
        {T("F4", "4611686018427387904", "0,0"), 0, "overflows"},
        {T("F32", "1", "0,8"), 8, "fit"},
        {T("F32", "1", "4,0"), 0, "fit"},
        {T("F32", "1", "4,8"), 8, "hole"},
        {T("F32", "1", "0,4"), 8, "cover"},
        {T("F32", "1", "0,4"), 3, "cover"},
        {T("F32", "-1", "0,4"), 4, "whole number"},
        {T("F32", "1.0", "0,4"), 4, "whole number"},
        {T("F32", "1e0", "0,4"), 4, "whole number"},
        {T("F32", "01", "0,4"), 4, "starts with 0"},
        {T("F32", "1,", "0,4"), 4, "comma"},
        {T("F32", "1 1", "0,4"), 4, "comma"},
        {T("F32", "1", "0,4,4"), 4, "two"},
        {T("F32", "1", "0"), 4, "two"},
        {T("F32", "9223372036854775808", "0,4"), 4, "too large"},
        {T("F32", "9223372036854775807", "0,4"), 4, "overflows"},
        {T("F32", "4294967296,4294967296", "0,0"), 0, "overflows"},
        {T("F32", "0,4294967296,4294967296", "0,0"), 0, "overflows"},
        {T("U8", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", "0,1"), 1, "16 axes"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "same name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size;
        char *data = make_file(rows[i].header, rows[i].data, &size);
        weft_clear_error();
        weft_safetensors *f = weft_safetensors_decode(data, size);
        cr_assert_null(f, "accepted: %s", rows[i].header);
        cr_assert_eq(weft_last_status(), WEFT_EIO, "%s", rows[i].header);
        cr_assert(strstr(weft_last_error(), rows[i].reason) != NULL, "%s: %s", rows[i].header,
                  weft_last_error());
        free(data);
    }
}

Test(safetensors, accepts_what_the_reference_accepts)
{
    static const char *const headers[] = {
        "{}",
        "{ }   ",
        "{\"__metadata__\":{}}",
        "{ \"a\" : { \"shape\" : [ ] , \"data_offsets\":[0,0\n]\t,"
        "\"dtype\":\"F32\"}}",
        "{\"\\u00e9\\ud83d\\ude00\\/\":{\"dtype\":\"F32\",\"shape\":[0,9],"
        "\"data_offsets\":[0,0]}}",
        "{\"__metadata__\": null , \"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"__metadata__\":null}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        size_t size;
        char *data = make_file(headers[i], 0, &size);
        weft_safetensors *f = weft_safetensors_decode(data, size);
        /* The fourth is a scalar without its four bytes. */
        cr_assert_eq(f != NULL, i != 3, "%s: %s", headers[i], weft_last_error());
        if (i == 4) {
            cr_assert_str_eq(weft_safetensors_name(f, 0), "\xc3\xa9\xf0\x9f\x98\x80/");
        }
        weft_safetensors_close(f);
        free(data);
    }
}

/* One tensor of a type that weft has not is no reason to refuse the others. */
Test(safetensors, lists_types_that_weft_has_not)
{
    static const struct {
        const char *name, *dtype;
        int64_t n;
        int bytes;
    } rows[] = {{"U16", "U16", 3, 6},
                {"U32", "U32", 1, 4},
                {"U64", "U64", 1, 8},
                {"C64", "C64", 2, 16},
                {"F8_E4M3", "F8_E4M3", 5, 5},
                {"F8_E5M2", "F8_E5M2", 0, 0},
                {"F8_E8M0", "F8_E8M0", 1, 1},
                {"F8_E4M3FNUZ", "F8_E4M3FNUZ", 1, 1},
                {"F8_E5M2FNUZ", "F8_E5M2FNUZ", 1, 1},
                {"F6_E2M3", "F6_E2M3", 4, 3},
                {"F6_E3M2", "F6_E3M2", 8, 6},
                {"F4", "F4", 2, 1}};
    enum { ROWS = sizeof rows / sizeof *rows };
    char header[4096] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[0,2]}";
    int at = 2;
    for (int i = 0; i < ROWS; i++) {
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%d,1],\"data_offsets\":[%d,%d]}",
                 rows[i].name, rows[i].dtype, (int)rows[i].n, at, at + rows[i].bytes);
        at += rows[i].bytes;
    }
    size_t size;
    char *data = make_file(strcat(header, "}"), (size_t)at, &size);
    weft_safetensors *f = weft_safetensors_decode(data, size);
    cr_assert_not_null(f, "%s", weft_last_error());
    cr_assert_eq(weft_safetensors_count(f), ROWS + 1);
    cr_assert_str_eq(weft_safetensors_dtype(f, 0), "U8");
    cr_assert(weft_ok(weft_safetensors_get(f, "w")));
    int met = 0;
    for (int i = 1; i <= ROWS; i++) {
        const char *name = weft_safetensors_name(f, i);
        const weft_shape shape = weft_safetensors_shape(f, i);
        cr_assert_str_eq(weft_safetensors_dtype(f, i), name);
        for (int k = 0; k < ROWS; k++) {
            if (strcmp(rows[k].name, name) == 0) {
                cr_assert(shape.n == 2 && shape.v[0] == rows[k].n && shape.v[1] == 1);
                met++;
            }
        }
        weft_clear_error();
        cr_assert_not(weft_ok(weft_safetensors_at(f, i)));
        cr_assert_eq(weft_last_status(), WEFT_EUNSUPPORTED);
        cr_assert(strstr(weft_last_error(), name) && strstr(weft_last_error(), "store it as"), "%s",
                  weft_last_error());
    }
    cr_assert_eq(met, ROWS);
    cr_assert_str_eq(weft_safetensors_dtype(f, ROWS + 1), "");
    cr_assert_str_eq(weft_safetensors_dtype(NULL, 0), "");
    cr_assert_eq(weft_safetensors_shape(f, -1).n, 0);
    /* Nothing is written before the one that cannot be is found; without it the rest is. */
    const weft_shape two = weft_shape(2, 1), one = weft_shape(1, 1);
    weft_named_tensor into[] = {{"w", weft_full(two, 7, WEFT_F32)},
                                {"U32", weft_ones(one, WEFT_F32)}};
    cr_assert_eq(weft_safetensors_load(f, into, 2, .lax = true), WEFT_EUNSUPPORTED);
    cr_assert_eq(weft_item_f64(weft_sum(into[0].tensor)), 14);
    cr_assert_eq(weft_safetensors_load(f, into, 1, .lax = true), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(into[0].tensor)), 0);
    weft_safetensors_close(f);
    free(data);
}

Test(safetensors, refuses_bad_sizes_and_damaged_files)
{
    size_t size;
    char *bytes = read_file(FIXTURES "all_types.safetensors", &size);
    for (size_t cut = 0; cut < size; cut++) {
        char *part = malloc(cut ? cut : 1); /* exact, so that a read behind it is seen */
        memcpy(part, bytes, cut);
        cr_assert_null(weft_safetensors_decode(part, cut), "cut at %zu", cut);
        free(part);
    }
    for (int k = 0; k < 8; k++) { /* header sizes from too large by a byte to 2^63 */
        char *copy = malloc(size);
        memcpy(copy, bytes, size);
        copy[k] = (char)(copy[k] + 0x40);
        cr_assert_null(weft_safetensors_decode(copy, size));
        free(copy);
    }
    uint64_t state = 1;
    int accepted = 0;
    for (int trial = 0; trial < 20000; trial++) {
        char *copy = malloc(size);
        memcpy(copy, bytes, size);
        for (int k = 0; k < 1 + trial % 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            copy[(state >> 33) % (size - 70)] = (char)(state >> 25);
        }
        weft_safetensors *f = weft_safetensors_decode(copy, size);
        weft_scope s = weft_scope_begin();
        for (int i = 0; i < weft_safetensors_count(f); i++) {
            weft_safetensors_at(f, i);
        }
        weft_scope_end(s);
        accepted += f != NULL;
        weft_safetensors_close(f);
        free(copy);
    }
    cr_assert_lt(accepted, 20000);
    free(bytes);
}

Test(safetensors, refuses_bools_that_are_none)
{
    size_t size;
    char *data = make_file(T("BOOL", "4", "0,4"), 4, &size);
    data[size - 2] = 2;
    weft_safetensors *f = weft_safetensors_decode(data, size);
    cr_assert(f != NULL);
    cr_assert_eq(weft_error_status(weft_safetensors_at(f, 0)), WEFT_EIO);
    weft_safetensors_close(f);
    free(data);
}

Test(safetensors, misaligned_data_is_copied)
{
    static const float v = 1.5f;
    size_t size;
    char *data = make_file(T("F32", "1", "0,4"), 4, &size);
    memcpy(data + size - 4, &v, 4);
    for (int pad = 0; pad < 8; pad++) {
        char *padded = calloc(1, size + 8);
        memcpy(padded, data, size - 4);
        memset(padded + size - 4, ' ', (size_t)pad);
        padded[0] = (char)(padded[0] + pad);
        memcpy(padded + size - 4 + pad, &v, 4);
        weft_safetensors *f = weft_safetensors_decode(padded, size + (size_t)pad);
        cr_assert_eq(weft_item_f64(weft_safetensors_get(f, "a")), 1.5);
        weft_safetensors_close(f);
        free(padded);
    }
    free(data);
}

static void scratch_path(char *path, size_t size, const char *leaf)
{
    snprintf(path, size, "/tmp/weft-test-%ld-%s", (long)getpid(), leaf);
}

Test(safetensors, saves_views_and_replaces_whole_files)
{
    char folder[128], path[200];
    scratch_path(folder, sizeof folder, "dir");
    cr_assert_eq(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    weft_tensor x = weft_reshape(weft_arange(0, 12, 1, WEFT_F32), weft_shape(3, 4));
    weft_named_tensor t[] = {{"t", weft_transpose(x, 0, 1)}, {"row", weft_select(x, 0, 1)}};
    cr_assert_eq(weft_safetensors_save(path, t, 2, NULL, 0), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_safetensors_save(path, t, 2, NULL, 0), WEFT_OK, "over an existing file");
    weft_safetensors *f = weft_safetensors_open(path);
    weft_tensor back = weft_safetensors_get(f, "t");
    cr_assert_eq(weft_item_f64(weft_all(weft_equal(back, t[0].tensor))), 1);
    cr_assert_eq(weft_item_f64(weft_sum(weft_safetensors_get(f, "row"))), 22);
    /* What fails leaves the old file and nothing else. */
    weft_named_tensor twice[] = {{"a", x}, {"a", x}};
    cr_assert_eq(weft_safetensors_save(path, twice, 2, NULL, 0), WEFT_EINVALID);
    weft_named_tensor reserved = {"__metadata__", x}, foreign = {"\xff", x},
                      dead = {"a", WEFT_NONE};
    cr_assert_eq(weft_safetensors_save(path, &reserved, 1, NULL, 0), WEFT_EINVALID);
    cr_assert_eq(weft_safetensors_save(path, &foreign, 1, NULL, 0), WEFT_EINVALID);
    cr_assert_neq(weft_safetensors_save(path, &dead, 1, NULL, 0), WEFT_OK);
    cr_assert_eq(weft_safetensors_save("/nonexistent/x", t, 2, NULL, 0), WEFT_EIO);
    cr_assert_eq(weft_safetensors_save(folder, t, 2, NULL, 0), WEFT_EIO, "a folder is in the way");
    weft_safetensors *again = weft_safetensors_open(path);
    cr_assert_eq(weft_safetensors_count(again), 2);
    weft_safetensors_close(again);
    weft_safetensors_close(f);
    unlink(path);
    cr_assert_eq(rmdir(folder), 0, "a temporary file was left behind");
}

/* A file is replaced where it lies, and stays as private as it was; what others left beside it is in nobody's way. */
Test(safetensors, saves_through_links_and_keeps_modes)
{
    char folder[128], path[200], link_path[200], taken[300], name[512];
    struct stat st;
    scratch_path(folder, sizeof folder, "modes");
    cr_assert_eq(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    snprintf(link_path, sizeof link_path, "%s/latest", folder);
    weft_named_tensor t = {"t", weft_arange(0, 12, 1, WEFT_F32)}, u = {"u", t.tensor};
    cr_assert_eq(weft_safetensors_save(path, &t, 1, NULL, 0), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(chmod(path, 0600), 0);
    cr_assert_eq(symlink("x.safetensors", link_path), 0);
    cr_assert_eq(weft_safetensors_save(link_path, &u, 1, NULL, 0), WEFT_OK);
    cr_assert(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode), "the link was replaced");
    cr_assert(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "%o", (unsigned)st.st_mode);
    weft_safetensors *f = weft_safetensors_open(path);
    cr_assert(weft_ok(weft_safetensors_get(f, "u")), "the file behind the link is the old one");
    weft_safetensors_close(f);
    for (int i = 0; i < 64; i++) { /* of a process of the same number that died */
        snprintf(taken, sizeof taken, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        cr_assert_eq(close(open(taken, O_CREAT | O_EXCL | O_WRONLY, 0600)), 0);
    }
    cr_assert_eq(weft_safetensors_save(path, &t, 1, NULL, 0), WEFT_OK, "%s", weft_last_error());
    for (int i = 0; i < 64; i++) {
        snprintf(taken, sizeof taken, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        cr_assert_eq(unlink(taken), 0);
    }
    snprintf(name, sizeof name, "%s/%0255d", folder, 1); /* as long as a name can be */
    cr_assert_eq(weft_safetensors_save(name, &t, 1, NULL, 0), WEFT_OK, "%s", weft_last_error());
    cr_assert(unlink(name) == 0 && unlink(path) == 0);
    cr_assert_eq(weft_safetensors_save(link_path, &t, 1, NULL, 0), WEFT_EIO, "a link to nothing");
    cr_assert(lstat(link_path, &st) == 0 && S_ISLNK(st.st_mode), "the link was replaced");
    cr_assert_eq(unlink(link_path), 0);
    cr_assert_eq(rmdir(folder), 0, "a temporary file was left behind");
}

Test(safetensors, a_fifo_is_neither_waited_for_nor_replaced, .timeout = 60)
{
    char path[200];
    struct stat st;
    scratch_path(path, sizeof path, "fifo");
    weft_named_tensor t = {"t", weft_arange(0, 12, 1, WEFT_F32)};
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_assert_null(weft_safetensors_open(path));
    cr_assert_null(weft_npz_open(path));
    cr_assert_eq(weft_error_status(weft_npy_load(path)), WEFT_EIO);
    cr_assert_eq(weft_safetensors_save(path, &t, 1, NULL, 0), WEFT_EIO);
    cr_assert(strstr(weft_last_error(), "no regular file"), "%s", weft_last_error());
    cr_assert_eq(weft_npz_save(path, &t, 1), WEFT_EIO);
    cr_assert_eq(weft_npy_save(path, t.tensor), WEFT_EIO);
    cr_assert(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode), "the FIFO was replaced");
    unlink(path);
}

/* The disk is full, or a limit is reached: the old file is whole and nothing lies beside it. */
Test(safetensors, a_save_that_cannot_be_finished_leaves_the_old_file)
{
    char folder[128], path[200];
    scratch_path(folder, sizeof folder, "full");
    cr_assert_eq(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    weft_named_tensor small = {"t", weft_arange(0, 12, 1, WEFT_F32)};
    weft_named_tensor large = {"t", weft_zeros(weft_shape(1 << 16), WEFT_F32)};
    cr_assert_eq(weft_safetensors_save(path, &small, 1, NULL, 0), WEFT_OK);
    struct rlimit limit, before;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 14;
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const weft_status s = weft_safetensors_save(path, &large, 1, NULL, 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, was);
    cr_assert_eq(s, WEFT_EIO);
    cr_assert(strstr(weft_last_error(), strerror(EFBIG)), "%s", weft_last_error());
    weft_safetensors *f = weft_safetensors_open(path);
    cr_assert_eq(weft_numel(weft_safetensors_get(f, "t")), 12);
    weft_safetensors_close(f);
    unlink(path);
    cr_assert_eq(rmdir(folder), 0, "a temporary file was left behind");
}

/* Where a stream is closed a file would get its number, and with that what the program writes to the stream. */
Test(safetensors, a_save_keeps_off_the_standard_streams, .timeout = 60)
{
    char path[200];
    scratch_path(path, sizeof path, "streams");
    weft_named_tensor t = {"t", weft_arange(0, 12, 1, WEFT_F32)};
    const pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        const struct rlimit no_other = {STDERR_FILENO + 1, STDERR_FILENO + 1};
        const bool refused = setrlimit(RLIMIT_NOFILE, &no_other) == 0 &&
                             weft_safetensors_save(path, &t, 1, NULL, 0) == WEFT_EIO;
        _exit(refused && access(path, F_OK) != 0 ? 0 : 1);
    }
    test_wait(child);
    cr_assert_eq(weft_safetensors_save(path, &t, 1, NULL, 0), WEFT_OK);
    unlink(path);
}

/* A file of 1 GiB that is a hole behind its header: opening it and taking a tensor reads the header only. */
Test(safetensors, opening_reads_nothing_but_the_header)
{
    static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[16384,16384],\"data_"
                                 "offsets\":[0,1073741824]}}       ";
    const uint64_t n = sizeof header - 1, data = UINT64_C(1) << 30;
    char path[TEST_PATH];
    int fd = test_new_file(path);
    cr_assert(write(fd, &n, 8) == 8 && write(fd, header, n) == (ssize_t)n &&
              ftruncate(fd, (off_t)(8 + n + data)) == 0);
    close(fd);
    test_baseline before = test_baseline_take();
    weft_safetensors *f = weft_safetensors_open(path);
    weft_tensor w = weft_safetensors_get(f, "w");
    cr_assert(weft_ok(w), "%s", weft_last_error());
    weft_safetensors_close(f);
    const char *p = weft_data(w);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = data / page, resident = 0;
    unsigned char *present = malloc(pages);
    cr_assert_eq(mincore((void *)((uintptr_t)p / page * page), pages * page, present), 0);
    for (size_t i = 0; i < pages; i++) {
        resident += present[i] & 1;
    }
    free(present);
    cr_assert_lt(resident, pages / 16, "%zu of %zu pages were read", resident, pages);
    cr_assert_eq(((const float *)p)[(data / 4) - 1], 0);
    weft_free(w);
    check_baseline("the mapping went", &before);
    unlink(path);
}

Test(safetensors, open_reports_missing_and_odd_files)
{
    cr_assert_null(weft_safetensors_open("/nonexistent"));
    cr_assert_eq(weft_last_status(), WEFT_EIO);
    cr_assert_null(weft_safetensors_open("/tmp"));
    cr_assert_null(weft_safetensors_open("/dev/null"));
    cr_assert_null(weft_safetensors_open(NULL));
    cr_assert_null(weft_safetensors_decode(NULL, 9));
    cr_assert_eq(weft_safetensors_count(NULL), 0);
    cr_assert_not(weft_ok(weft_safetensors_at(NULL, 0)));
    cr_assert_not(weft_ok(weft_safetensors_get(NULL, "a")));
    weft_safetensors_close(NULL);
}

Test(safetensors, loads_by_name_strictly_or_not)
{
    weft_tensor a = weft_ones(weft_shape(2), WEFT_F32), b = weft_full(weft_shape(3), 7, WEFT_F32);
    weft_named_tensor saved[] = {{"a", a}, {"b", b}};
    void *data;
    size_t size;
    cr_assert_eq(weft_safetensors_encode(saved, 2, NULL, 0, &data, &size), WEFT_OK);
    weft_safetensors *f = weft_safetensors_decode(data, size);
    free(data);
    weft_tensor x = weft_zeros(weft_shape(2), WEFT_F32), y = weft_zeros(weft_shape(3), WEFT_F64);
    weft_requires_grad_(x, true);
    weft_named_tensor both[] = {{"a", x}, {"b", y}}, other[] = {{"a", x}, {"c", y}},
                      wrong[] = {{"a", x}, {"b", weft_zeros(weft_shape(4), WEFT_F32)}};
    char report[64];
    cr_assert_eq(weft_safetensors_load(f, wrong, 2), WEFT_ESHAPE);
    cr_assert_eq(weft_safetensors_load(f, other, 2, .report = report, .report_size = sizeof report),
                 WEFT_EINVALID);
    cr_assert_str_eq(report, "missing 'c', unexpected 'b'");
    cr_assert_eq(weft_item_f64(weft_sum(x)), 0, "nothing is written when the call fails");
    cr_assert_eq(weft_safetensors_load(f, other, 2, .report = report, .report_size = 12),
                 WEFT_EINVALID);
    cr_assert_str_eq(report, "missing 'c'");
    cr_assert_eq(weft_safetensors_load(f, other, 2, .lax = true), WEFT_OK);
    cr_assert_eq(weft_item_f64(weft_sum(x)), 2);
    cr_assert_eq(weft_safetensors_load(f, both, 2), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_item_f64(weft_sum(y)), 21, "converted to f64");
    cr_assert(weft_requires_grad(x) && weft_is_leaf(x));
    weft_safetensors_close(f);
}
