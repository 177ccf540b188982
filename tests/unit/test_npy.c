/*
 * tests/unit/test_npy.c -- .npy and .npz against NumPy (where a python3 imports it), golden bytes, hostile files.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/inflate.h"
#include "weft/weft.h"

/* numpy.save of numpy.float32([[1, 2], [-3, 4]]) */
static const char golden_head[] =
    "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
static const float golden_data[] = {1, 2, -3, 4};

static char folder[] = "/tmp/weft_npy_......";

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, 256, "%s/%s", folder, name);
    return p;
}

static void remove_folder(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* Runs a script with numpy as np in the folder; false: no python3 with NumPy. */
static bool numpy(const char *script)
{
    static const char *const names[] = {"python3", "/usr/bin/python3"};
    for (int i = 0; i < 2; i++) {
        char command[4096];
        snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", names[i]);
        if (system(command) == 0) {
            snprintf(command, sizeof command, "cd %s && %s -c 'import numpy as np\n%s'", folder,
                     names[i], script);
            cr_assert_eq(system(command), 0, "%s", script);
            return true;
        }
    }
    return false;
}

Test(npy, golden_bytes)
{
    char want[128 + sizeof golden_data];
    memset(want, ' ', 128);
    memcpy(want, golden_head, sizeof golden_head - 1);
    want[127] = '\n';
    memcpy(want + 128, golden_data, sizeof golden_data);
    weft_tensor t = weft_from_data(golden_data, weft_shape(2, 2), WEFT_F32);
    void *data;
    size_t size;
    cr_assert_eq(weft_npy_encode(t, &data, &size), WEFT_OK);
    cr_assert_eq(size, sizeof want);
    cr_assert_eq(memcmp(data, want, size), 0);
    free(data);
    weft_tensor back = weft_npy_decode(want, sizeof want);
    cr_assert(weft_ok(back) && weft_rank(back) == 2 && weft_dim(back, 1) == 2);
    cr_assert_eq(memcmp(weft_data(back), golden_data, sizeof golden_data), 0);
    cr_assert_eq(weft_npy_encode(weft_cast(t, WEFT_BF16), &data, &size), WEFT_EDTYPE);
}

static const struct {
    weft_dtype dtype;
    const char *name;
} types[] = {{WEFT_BOOL, "bool"},   {WEFT_U8, "uint8"},    {WEFT_I8, "int8"},
             {WEFT_I16, "int16"},   {WEFT_I32, "int32"},   {WEFT_I64, "int64"},
             {WEFT_F16, "float16"}, {WEFT_F32, "float32"}, {WEFT_F64, "float64"}};
enum { TYPES = sizeof types / sizeof *types };

/* -5, -4, ... as the type, as NumPy's arange(-5, n - 5).astype does (bool: not 0). */
static weft_tensor counting(weft_dtype dtype, int64_t rows, int64_t columns)
{
    weft_tensor t = weft_zeros(weft_shape(rows, columns), WEFT_I64);
    int64_t *p = weft_data_mut(t);
    for (int64_t i = 0; i < rows * columns; i++) {
        p[i] = i - 5;
    }
    return weft_cast(t, dtype);
}

static void same(weft_tensor a, weft_tensor b, const char *what)
{
    cr_assert(weft_ok(a) && weft_ok(b), "%s: %s", what, weft_last_error());
    weft_shape s = weft_shape_of(a), r = weft_shape_of(b);
    cr_assert(s.n == r.n && memcmp(s.v, r.v, sizeof s.v) == 0 &&
                  weft_dtype_of(a) == weft_dtype_of(b),
              "%s", what);
    cr_assert_eq(memcmp(weft_data(a), weft_data(b), (size_t)weft_nbytes(a)), 0, "%s", what);
}

Test(npy, files_of_numpy)
{
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    bool there = numpy(
        "for d in \"bool uint8 int8 int16 int32 int64 float16 float32 float64\".split():\n"
        "  a = np.arange(-5, 7).reshape(3, 4).astype(d)\n"
        "  np.save(d + \"_c\", a); np.save(d + \"_f\", np.asfortranarray(a))\n"
        "  np.save(d + \"_s\", a.astype(a.dtype.newbyteorder(\">\")))\n"
        "  for v in (1, 2, 3):\n"
        "    with open(d + \"_v%d\" % v, \"wb\") as f: np.lib.format.write_array(f, a, (v, 0))\n"
        "np.save(\"scalar\", np.float64(2.5)); np.save(\"empty\", np.zeros((0, 3), \"f4\"))\n"
        "np.savez(\"pair\", a=np.float32([1, 2]), b=np.int64([[3]]))\n"
        "np.savez_compressed(\"packed\", a=np.zeros(100))\n"
        "np.save(\"object\", np.array([{}]), allow_pickle=True)\n"
        "np.save(\"complex\", np.zeros(2, \"c8\"))\n");
    if (!there) {
        remove_folder();
        cr_skip_test("no python3 with NumPy: files of NumPy are not read in this run");
    }
    static const char *const kinds[] = {"c.npy", "f.npy", "s.npy", "v1", "v2", "v3"};
    for (int t = 0; t < TYPES; t++) {
        weft_tensor want = counting(types[t].dtype, 3, 4);
        for (int k = 0; k < 6; k++) {
            char name[64];
            snprintf(name, sizeof name, "%s_%s", types[t].name, kinds[k]);
            same(weft_npy_load(in_folder(name)), want, name);
        }
    }
    cr_assert_eq(weft_item_f64(weft_npy_load(in_folder("scalar.npy"))), 2.5);
    cr_assert_eq(weft_numel(weft_npy_load(in_folder("empty.npy"))), 0);
    weft_npz *z = weft_npz_open(in_folder("pair.npz"));
    cr_assert_eq(weft_npz_count(z), 2);
    cr_assert_eq(weft_item_i64(weft_npz_get(z, "b")), 3);
    cr_assert_eq(weft_dim(weft_npz_at(z, 0), 0), 2);
    cr_assert_not(weft_ok(weft_npz_get(z, "c")));
    weft_npz_close(z);
    z = weft_npz_open(in_folder("packed.npz"));
    cr_assert_not_null(z, "%s", weft_last_error());
    if (wf_inflate_available()) {
        cr_assert_eq(weft_numel(weft_npz_get(z, "a")), 100, "%s", weft_last_error());
        cr_assert_eq(weft_item_f64(weft_sum(weft_npz_get(z, "a"))), 0);
    }
    weft_npz_close(z);
    cr_assert_not(weft_ok(weft_npy_load(in_folder("object.npy"))));
    cr_assert_not(weft_ok(weft_npy_load(in_folder("complex.npy"))));
    remove_folder();
}

/* So many that looking at all of them for each would be seen. */
Test(npy, many_members)
{
    enum { MANY = 50000 };
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    char(*names)[8] = malloc(MANY * sizeof *names);
    weft_named_tensor *t = malloc(MANY * sizeof *t);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%d", (int)((int64_t)i * 7919 % MANY));
        t[i] = (weft_named_tensor){names[i], weft_i(i)};
    }
    cr_assert_eq(weft_npz_save(in_folder("many.npz"), t, MANY), WEFT_OK, "%s", weft_last_error());
    weft_npz *z = weft_npz_open(in_folder("many.npz"));
    cr_assert_eq(weft_npz_count(z), MANY, "%s", weft_last_error());
    for (int i = 0; i < MANY; i++) {
        weft_scope scope = weft_scope_begin();
        cr_assert_str_eq(weft_npz_name(z, i), names[i]);
        cr_assert_eq(weft_item_i64(weft_npz_get(z, names[i])), i);
        weft_scope_end(scope);
    }
    cr_assert_not(weft_ok(weft_npz_get(z, "-1")));
    cr_assert_not(weft_ok(weft_npz_get(z, "x")));
    weft_npz_close(z);
    t[MANY - 1].name = names[0];
    cr_assert_eq(weft_npz_save(in_folder("many.npz"), t, MANY), WEFT_EINVALID);
    free(t);
    free(names);
    remove_folder();
}

Test(npy, numpy_reads_ours)
{
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    weft_named_tensor all[TYPES], accents = {"gr\xc3\xb6\xc3\x9f"
                                             "e",
                                             weft_zeros(weft_shape(2), WEFT_F32)};
    for (int t = 0; t < TYPES; t++) {
        char name[64];
        all[t] = (weft_named_tensor){types[t].name, counting(types[t].dtype, 3, 4)};
        snprintf(name, sizeof name, "%s.npy", types[t].name);
        cr_assert_eq(weft_npy_save(in_folder(name), weft_transpose(all[t].tensor, 0, 1)), WEFT_OK);
    }
    cr_assert_eq(weft_npz_save(in_folder("all.npz"), all, TYPES), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_npz_save(in_folder("none.npz"), NULL, 0), WEFT_OK);
    cr_assert_eq(weft_npz_save(in_folder("accents.npz"), &accents, 1), WEFT_OK);
    FILE *f = fopen(in_folder("accents.npz"), "rb");
    unsigned char head[8] = {0};
    cr_assert_eq(fread(head, 1, sizeof head, f), sizeof head);
    fclose(f);
    cr_assert_eq(head[7], 8, "a name that is not ASCII is not said to be UTF-8");
    weft_npz *a = weft_npz_open(in_folder("accents.npz"));
    cr_assert(weft_ok(weft_npz_get(a, accents.name)), "%s", weft_last_error());
    weft_npz_close(a);
    static const char *const refused[] = {"\xff",     "a\nb", "\x1b[2J", "\x7f",
                                          "\xc2\x9b", "/a",   "../a"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        accents.name = refused[i];
        cr_expect_eq(weft_npz_save(in_folder("none.npz"), &accents, 1), WEFT_EINVALID, "name %zu",
                     i);
    }
    weft_named_tensor twice[3] = {all[0], all[1], all[0]};
    cr_assert_eq(weft_npz_save(in_folder("none.npz"), twice, 3), WEFT_EINVALID);
    cr_expect(strstr(weft_last_error(), "occurs twice"), "%s", weft_last_error());
    bool there = numpy(
        "z = np.load(\"all.npz\")\n"
        "assert len(z.files) == 9 and len(np.load(\"none.npz\").files) == 0\n"
        "assert np.load(\"accents.npz\").files == [\"gr\\u00f6\\u00dfe\"]\n"
        "for d in z.files:\n"
        "  a = np.arange(-5, 7).reshape(3, 4).astype(d)\n"
        "  assert z[d].dtype == a.dtype and np.array_equal(z[d], a)\n"
        "  assert np.array_equal(np.load(d + \".npy\"), a.T)\n"
        "  np.save(\"theirs\", np.ascontiguousarray(a.T))\n"
        "  assert open(\"theirs.npy\", \"rb\").read() == open(d + \".npy\", \"rb\").read(), d\n");
    weft_npz *z = weft_npz_open(in_folder("all.npz"));
    cr_assert_eq(weft_npz_count(z), TYPES);
    for (int t = 0; t < TYPES; t++) {
        same(weft_npz_get(z, types[t].name), all[t].tensor, types[t].name);
    }
    weft_npz_close(z);
    remove_folder();
    if (!there) {
        cr_skip_test("no python3 with NumPy: our files are read by weft only in this run");
    }
}

/* A file of format 1.0 with this literal and n bytes behind it. */
static weft_tensor decode(const char *literal, size_t n)
{
    unsigned char data[1024] = "\x93NUMPY\x01";
    size_t k = strlen(literal);
    data[8] = (unsigned char)k;
    data[9] = (unsigned char)(k >> 8);
    memcpy(data + 10, literal, k);
    return weft_npy_decode(data, 10 + k + n);
}

Test(npy, a_missing_file_is_an_error_of_its_own)
{
    weft_tensor t = weft_npy_load("/nowhere/at/all.npy");
    cr_assert_eq(weft_error_status(t), WEFT_EIO);
    cr_assert(strstr(weft_error_text(t), "/nowhere/at/all.npy"), "%s", weft_error_text(t));
    cr_assert(strstr(weft_error_text(weft_exp(t)), "/nowhere/at/all.npy"));
    cr_assert_eq(weft_error_status(weft_npy_load(NULL)), WEFT_EINVALID, "%s", weft_last_error());
    cr_assert_null(weft_npz_open(NULL));
    cr_assert_eq(weft_last_status(), WEFT_EINVALID, "%s", weft_last_error());
}

/* Errors are about the function that was called, not about the ops that it is made of. */
Test(npy, a_dead_tensor_is_told_by_the_call)
{
    weft_tensor dead = weft_zeros(weft_shape(2), WEFT_F32);
    weft_free(dead);
    void *data = &data;
    size_t size = 1;
    const weft_named_tensor named = {"a", dead};
    cr_assert_eq(weft_npy_encode(dead, &data, &size), WEFT_EHANDLE);
    cr_expect(strstr(weft_last_error(), "npy_encode: ") == weft_last_error(), "%s",
              weft_last_error());
    cr_expect(!data && !size);
    cr_assert_eq(weft_npy_save("never-written.npy", dead), WEFT_EHANDLE);
    cr_expect(strstr(weft_last_error(), "npy_save: ") == weft_last_error(), "%s",
              weft_last_error());
    cr_assert_eq(weft_npz_save("never-written.npz", &named, 1), WEFT_EHANDLE);
    cr_expect(strstr(weft_last_error(), "npz_save: ") == weft_last_error(), "%s",
              weft_last_error());
}

Test(npy, malformed)
{
    cr_assert(weft_ok(decode("{'descr':'<f4','fortran_order':False,'shape':(2,)}", 8)));
    cr_assert(
        weft_ok(decode("{\"shape\": (), \"descr\": \"=i2\", \"fortran_order\": True,}\n", 2)));
    /* without a byte order it is this machine's */
    static const struct {
        const char *descr;
        weft_dtype dtype;
        size_t n;
    } bare[] = {
        {"f4", WEFT_F32, 8}, {"u1", WEFT_U8, 2}, {"b1", WEFT_BOOL, 2}, {"i8", WEFT_I64, 16}};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        char literal[96];
        snprintf(literal, sizeof literal, "{'descr':'%s','fortran_order':False,'shape':(2,)}",
                 bare[i].descr);
        cr_expect_eq(weft_dtype_of(decode(literal, bare[i].n)), bare[i].dtype, "%s: %s", literal,
                     weft_last_error());
    }
    static const struct {
        const char *literal;
        size_t n;
    } bad[] = {
        {"", 0},
        {"{}", 0},
        {"{'descr':'<f4','fortran_order':False}", 0},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 7},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 9},
        {"{'descr':'<f4','fortran_order':False,'shape':(2)}", 8},
        {"{'descr':'<f4','fortran_order':False,'shape':(-2,)}", 8},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,),'shape':(2,)}", 8},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,),'x':1}", 8},
        {"{'descr':'<f4','fortran_order':0,'shape':(2,)}", 8},
        {"{'descr':'<f3','fortran_order':False,'shape':(2,)}", 6},
        {"{'descr':'','fortran_order':False,'shape':(2,)}", 8},
        {"{'descr':'<','fortran_order':False,'shape':(2,)}", 8},
        {"{'descr':'4','fortran_order':False,'shape':(2,)}", 8},
        {"{'descr':'|f4','fortran_order':False,'shape':(2,)}", 8},
        {"{'descr':'|O','fortran_order':False,'shape':(2,)}", 16},
        {"{'descr':[('a','<f4')],'fortran_order':False,'shape':(2,)}", 8},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)} x", 8},
        {"{'descr':'<f4','fortran_order':False,'shape':(4611686018427387904,4)}", 0},
        {"{'descr':'<f4','fortran_order':False,'shape':(99999999999999999999,)}", 0},
        {"{'descr':'<f4','fortran_order':False,'shape':(0,9223372036854775807,4)}", 0},
        {"{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 4},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,", 8},
        {"__import__('os').system('false')", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_tensor t = decode(bad[i].literal, bad[i].n);
        cr_assert(!weft_ok(t) && weft_error_status(t) == WEFT_EIO, "case %zu: %s", i,
                  bad[i].literal);
    }
    static const struct {
        const char *literal, *shown;
    } refused[] = {
        {"{'descr': '<c16', 'fortran_order':False,'shape':(2,)}", "f4 f8: '<c16'"},
        {"{'descr':\"<M8[ns]\",'fortran_order':False,'shape':(2,)}", "f4 f8: \"<M8[ns]\""},
        {"{'descr':'|O','fortran_order':False,'shape':(2,)}", "pickled objects: '|O'"},
        {"{'descr':[('a','<f4')],'fortran_order':False,'shape':(2,)}",
         "named fields: [('a','<f4')]"},
        {"{'descr':'\x01\xff','fortran_order':False,'shape':(2,)}", "f4 f8: '?"
                                                                    "?'"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)} x",
         "text behind the header's dictionary"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        weft_tensor t = decode(refused[i].literal, 32);
        const char *text = weft_error_text(t), *at = strstr(text, refused[i].shown);
        cr_assert(at, "%s", text);
        const char *behind = at + strlen(refused[i].shown);
        cr_assert(strchr(refused[i].shown, '[') || !strncmp(behind, " [at ", 5), "%s", text);
    }
    cr_assert_not(weft_ok(weft_npy_load("/nonexistent/x.npy")));
    cr_assert_not(weft_ok(weft_npy_decode(golden_head, 5)));
}

/* zipfile of Python, compressed: x 0 .. 11 f32[3,4]; zeros i64[5000]; mixed u8[300]; and, stored, plain i16[2]. */
static const unsigned char compressed[] = {
    0x50, 0x4b, 0x03, 0x04, 0x14, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x2d, 0x6f,
    0x22, 0x26, 0x66, 0x00, 0x00, 0x00, 0xb0, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x78, 0x2e,
    0x6e, 0x70, 0x79, 0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6, 0x50, 0xad, 0x9e,
    0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0, 0x6e, 0x93, 0x66, 0xa2, 0xae, 0xa3, 0xa0, 0x9e,
    0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a, 0x12, 0x77, 0x4b, 0xcc,
    0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0xc6, 0x3a, 0x0a, 0x26,
    0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x64, 0x03, 0x2e, 0x06, 0x30, 0x68, 0xb0, 0x07, 0x12, 0x0e, 0x40,
    0x04, 0xc4, 0x0d, 0x40, 0xbc, 0x00, 0x88, 0x0f, 0x00, 0xf1, 0x03, 0x20, 0x66, 0x70, 0x64, 0x60,
    0x10, 0x00, 0x62, 0x05, 0x20, 0x36, 0x70, 0x04, 0x00, 0x50, 0x4b, 0x03, 0x04, 0x14, 0x00, 0x00,
    0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xc6, 0xbb, 0x26, 0xcb, 0x8a, 0x00, 0x00, 0x00, 0xc0,
    0x9c, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x7a, 0x65, 0x72, 0x6f, 0x73, 0x2e, 0x6e, 0x70, 0x79,
    0xed, 0xc8, 0xb1, 0x0e, 0xc1, 0x50, 0x00, 0x40, 0xd1, 0x5a, 0x7d, 0xc5, 0xdb, 0x1e, 0x49, 0x87,
    0x2e, 0x12, 0x11, 0xb3, 0x4d, 0x63, 0x31, 0x98, 0xa4, 0xd1, 0x27, 0x24, 0xa2, 0xf2, 0x2a, 0x16,
    0xf1, 0x15, 0x7e, 0x58, 0x2d, 0x3e, 0xc0, 0x7c, 0xce, 0x76, 0xef, 0xbb, 0xde, 0xae, 0x37, 0xbb,
    0x51, 0xf1, 0x28, 0x9e, 0xb1, 0x4d, 0xfd, 0x21, 0xc7, 0x45, 0x88, 0xcb, 0xf3, 0x3c, 0x96, 0x21,
    0x1e, 0xbb, 0x7c, 0xcf, 0xcd, 0x75, 0xdf, 0xe5, 0x36, 0x7d, 0xff, 0xaa, 0xb9, 0xf4, 0x69, 0xf8,
    0xfd, 0xa9, 0xb9, 0xa5, 0xa1, 0x27, 0xb3, 0xaa, 0xaa, 0xca, 0x69, 0x19, 0x5e, 0xe1, 0x5f, 0xe3,
    0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0xf9, 0x00, 0x50, 0x4b, 0x03, 0x04, 0x14, 0x00,
    0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x25, 0x2a, 0x73, 0x06, 0x62, 0x01, 0x00, 0x00,
    0xac, 0x01, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x6d, 0x69, 0x78, 0x65, 0x64, 0x2e, 0x6e, 0x70,
    0x79, 0x9d, 0x90, 0x49, 0x53, 0x82, 0x60, 0x00, 0x40, 0x51, 0x27, 0x17, 0xdc, 0xd1, 0x51, 0xdc,
    0x51, 0xa7, 0xf9, 0x5c, 0x70, 0x03, 0x07, 0x41, 0x71, 0xb7, 0x54, 0x44, 0x49, 0x70, 0x01, 0x07,
    0x45, 0x27, 0x6d, 0x3a, 0x34, 0xd9, 0x68, 0x75, 0xa9, 0x7e, 0x45, 0x7f, 0x38, 0xbb, 0xf4, 0x03,
    0x7a, 0xb7, 0xf7, 0x8e, 0xef, 0x7b, 0x32, 0x1f, 0xdf, 0x29, 0x3a, 0xe8, 0x1d, 0xfa, 0x00, 0xfb,
    0xc3, 0xf9, 0xfe, 0x04, 0xaa, 0x18, 0xf8, 0x7c, 0x2b, 0x01, 0x1c, 0x03, 0x0f, 0xc7, 0xd3, 0xeb,
    0x69, 0xf7, 0xac, 0x1d, 0x4f, 0xfb, 0xc3, 0x6f, 0xbf, 0xdd, 0x3d, 0x9d, 0x0f, 0x97, 0x7e, 0x7e,
    0xdc, 0xbd, 0x1c, 0x2e, 0x9e, 0x22, 0x8b, 0x45, 0x3c, 0x8d, 0x63, 0x5f, 0xd8, 0xbf, 0x81, 0x21,
    0x53, 0xb8, 0xe5, 0x12, 0x58, 0xaa, 0x31, 0x47, 0xb9, 0x8c, 0x1f, 0x09, 0x93, 0x72, 0xd6, 0xba,
    0x5a, 0x42, 0x68, 0x13, 0x99, 0xf5, 0xda, 0xfc, 0x15, 0x0e, 0xf5, 0xca, 0x44, 0x53, 0xc1, 0x96,
    0xd5, 0x6c, 0x96, 0x96, 0xc2, 0x52, 0x25, 0x93, 0xa1, 0xe7, 0xd1, 0x05, 0x5b, 0x28, 0xb6, 0xd6,
    0x00, 0xea, 0xd7, 0x1a, 0x13, 0x2b, 0xed, 0x56, 0x04, 0x51, 0x9f, 0x10, 0xd2, 0x88, 0xd9, 0x16,
    0x6b, 0xda, 0x86, 0x44, 0xba, 0xd0, 0xd1, 0x13, 0x0e, 0x45, 0x94, 0xad, 0xf9, 0x4d, 0x0d, 0x60,
    0xa0, 0xbe, 0x2d, 0x3a, 0xd5, 0x85, 0xe6, 0xa5, 0x61, 0xae, 0x42, 0xb2, 0x12, 0x3a, 0xca, 0x06,
    0x7d, 0x18, 0xa3, 0x11, 0x5e, 0x03, 0x64, 0xbb, 0xe6, 0xe3, 0x86, 0x99, 0xa4, 0xa1, 0x6d, 0xdf,
    0x8a, 0x1f, 0xc9, 0x1e, 0x16, 0x91, 0x39, 0x4e, 0xf1, 0x36, 0x7c, 0xaa, 0x30, 0xdd, 0x86, 0x07,
    0x98, 0x51, 0xdd, 0xd8, 0x71, 0xb9, 0x14, 0x70, 0xb8, 0x93, 0x1d, 0x07, 0x47, 0xa4, 0x72, 0x4d,
    0x2d, 0x67, 0x16, 0x39, 0x41, 0x97, 0x14, 0xf3, 0x01, 0xb7, 0x1f, 0x9f, 0x44, 0xd4, 0x7e, 0x6b,
    0xb0, 0x8e, 0x4d, 0x0b, 0x21, 0x5f, 0xb4, 0xac, 0x64, 0x2c, 0xb2, 0xa4, 0x7a, 0x68, 0x98, 0xaf,
    0x52, 0x6d, 0x25, 0x2a, 0x95, 0x93, 0x71, 0xfc, 0xc6, 0xd6, 0x4e, 0x7a, 0x91, 0x28, 0x03, 0x51,
    0x41, 0x2b, 0x8c, 0x92, 0x2a, 0xe9, 0xb7, 0xc0, 0x68, 0x59, 0xa3, 0x42, 0x4e, 0x57, 0xac, 0x6e,
    0x6a, 0x81, 0x50, 0x24, 0xcf, 0xfb, 0x45, 0x26, 0x4f, 0x74, 0x75, 0x05, 0x8b, 0x38, 0x1c, 0x6b,
    0xb1, 0x71, 0x0a, 0xb1, 0x38, 0x12, 0x5d, 0xb7, 0xc0, 0x94, 0x68, 0xde, 0xde, 0x08, 0x19, 0xff,
    0x16, 0xfd, 0x00, 0x50, 0x4b, 0x03, 0x04, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x21,
    0x00, 0xa1, 0x93, 0xd3, 0x9f, 0x84, 0x00, 0x00, 0x00, 0x84, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00,
    0x00, 0x70, 0x6c, 0x61, 0x69, 0x6e, 0x2e, 0x6e, 0x70, 0x79, 0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59,
    0x01, 0x00, 0x76, 0x00, 0x7b, 0x27, 0x64, 0x65, 0x73, 0x63, 0x72, 0x27, 0x3a, 0x20, 0x27, 0x3c,
    0x69, 0x32, 0x27, 0x2c, 0x20, 0x27, 0x66, 0x6f, 0x72, 0x74, 0x72, 0x61, 0x6e, 0x5f, 0x6f, 0x72,
    0x64, 0x65, 0x72, 0x27, 0x3a, 0x20, 0x46, 0x61, 0x6c, 0x73, 0x65, 0x2c, 0x20, 0x27, 0x73, 0x68,
    0x61, 0x70, 0x65, 0x27, 0x3a, 0x20, 0x28, 0x32, 0x2c, 0x29, 0x2c, 0x20, 0x7d, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x0a, 0xff, 0xff, 0x07, 0x00, 0x50, 0x4b,
    0x01, 0x02, 0x14, 0x03, 0x14, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x2d, 0x6f,
    0x22, 0x26, 0x66, 0x00, 0x00, 0x00, 0xb0, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x78, 0x2e, 0x6e, 0x70,
    0x79, 0x50, 0x4b, 0x01, 0x02, 0x14, 0x03, 0x14, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21,
    0x00, 0xc6, 0xbb, 0x26, 0xcb, 0x8a, 0x00, 0x00, 0x00, 0xc0, 0x9c, 0x00, 0x00, 0x09, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x89, 0x00, 0x00, 0x00, 0x7a,
    0x65, 0x72, 0x6f, 0x73, 0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x01, 0x02, 0x14, 0x03, 0x14, 0x00,
    0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x25, 0x2a, 0x73, 0x06, 0x62, 0x01, 0x00, 0x00,
    0xac, 0x01, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x80, 0x01, 0x3a, 0x01, 0x00, 0x00, 0x6d, 0x69, 0x78, 0x65, 0x64, 0x2e, 0x6e, 0x70, 0x79, 0x50,
    0x4b, 0x01, 0x02, 0x14, 0x03, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x21, 0x00, 0xa1,
    0x93, 0xd3, 0x9f, 0x84, 0x00, 0x00, 0x00, 0x84, 0x00, 0x00, 0x00, 0x09, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0xc3, 0x02, 0x00, 0x00, 0x70, 0x6c, 0x61,
    0x69, 0x6e, 0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
    0x04, 0x00, 0xd8, 0x00, 0x00, 0x00, 0x6e, 0x03, 0x00, 0x00, 0x00, 0x00,
};

Test(npy, compressed_members)
{
    weft_npz *z = weft_npz_decode(compressed, sizeof compressed);
    cr_assert_not_null(z, "%s", weft_last_error());
    cr_assert_eq(weft_npz_count(z), 4);
    cr_assert_eq(weft_item_i64(weft_sum(weft_npz_get(z, "plain"))), 6);
    weft_tensor x = weft_npz_get(z, "x");
    if (!wf_inflate_available()) {
        cr_assert_eq(weft_error_status(x), WEFT_EUNSUPPORTED);
        cr_assert(strstr(weft_last_error(), "zlib1g-dev") &&
                  strstr(weft_last_error(), "numpy.savez"));
        weft_npz_close(z);
        return;
    }
    weft_tensor zeros = weft_npz_get(z, "zeros"), mixed = weft_npz_get(z, "mixed");
    cr_assert(weft_ok(x) && weft_ok(zeros) && weft_ok(mixed), "%s", weft_last_error());
    cr_assert(weft_dim(x, 0) == 3 && weft_dim(x, 1) == 4 && weft_dtype_of(x) == WEFT_F32);
    for (int i = 0; i < 12; i++) {
        cr_assert_eq(((const float *)weft_data(x))[i], (float)i);
    }
    cr_assert(weft_numel(zeros) == 5000 && weft_item_i64(weft_count_nonzero(zeros)) == 0);
    for (int i = 0; i < 300; i++) {
        cr_assert_eq(((const unsigned char *)weft_data(mixed))[i], (i * i * 7 + i / 3) % 97);
    }
    weft_npz_close(z);
}

/* A changed or cut file is refused, or reads as it did: a checksum guards the elements. */
Test(npy, damaged_compressed_zip)
{
    int refused = 0;
    for (size_t i = 0; i < sizeof compressed; i++) {
        for (int change = 0; change < 3; change++) {
            unsigned char copy[sizeof compressed];
            memcpy(copy, compressed, sizeof copy);
            copy[i] ^= (unsigned char)(change == 0 ? 0xFF : change == 1 ? 1 : 0);
            weft_npz *z = weft_npz_decode(copy, change == 2 ? i : sizeof copy);
            bool bad = !z;
            for (int m = 0; m < weft_npz_count(z); m++) {
                weft_tensor x = weft_npz_at(z, m);
                bad |= !weft_ok(x);
                cr_assert(!weft_ok(x) || weft_nbytes(x) == (m == 0   ? 48
                                                            : m == 1 ? 40000
                                                            : m == 2 ? 300
                                                                     : 4));
            }
            refused += bad;
            weft_npz_close(z);
        }
    }
    cr_assert_gt(refused, 2 * (int)sizeof compressed);
    /* a size that the compressed bytes cannot stand for takes no memory: 2^31 - 1 bytes out of 60 */
    unsigned char copy[sizeof compressed];
    memcpy(copy, compressed, sizeof copy);
    for (size_t i = 0; i + 46 < sizeof copy; i++) {
        if (memcmp(copy + i, "PK\1\2", 4) == 0) {
            memcpy(copy + i + 24, "\xff\xff\xff\x7f", 4);
        }
    }
    cr_assert_null(weft_npz_decode(copy, sizeof copy));
}

/* Every byte of a small .npz is changed and cut: an error or a sound tensor, never a crash. */
Test(npy, damaged_zip)
{
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    weft_named_tensor t = {"a", counting(WEFT_F32, 2, 3)};
    cr_assert_eq(weft_npz_save(in_folder("a.npz"), &t, 1), WEFT_OK);
    FILE *f = fopen(in_folder("a.npz"), "rb");
    unsigned char data[1024];
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    int refused = 0;
    for (size_t i = 0; i < size; i++) {
        for (int change = 0; change < 3; change++) {
            unsigned char copy[1024];
            memcpy(copy, data, size);
            copy[i] = (unsigned char)(change == 0   ? copy[i] ^ 0xFF
                                      : change == 1 ? copy[i] ^ 1
                                                    : copy[i]);
            weft_npz *z = weft_npz_decode(copy, change == 2 ? i : size);
            weft_tensor x = z ? weft_npz_at(z, 0) : WEFT_NONE;
            refused += !weft_ok(x);
            cr_assert(!weft_ok(x) || weft_nbytes(x) == 24);
            weft_npz_close(z);
        }
    }
    cr_assert_gt(refused, (int)size); /* all cuts and every change of the member's bytes */
    t.name = "../a";
    cr_assert_eq(weft_npz_save(in_folder("b.npz"), &t, 1), WEFT_EINVALID);
    remove_folder();
}
