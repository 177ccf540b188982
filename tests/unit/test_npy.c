/*
 * tests/unit/test_npy.c -- .npy and .npz against NumPy (where a python3 imports it), golden bytes, hostile files.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    cr_assert_null(weft_npz_open(in_folder("packed.npz")));
    cr_assert(strstr(weft_last_error(), "savez"), "%s", weft_last_error());
    cr_assert_not(weft_ok(weft_npy_load(in_folder("object.npy"))));
    cr_assert_not(weft_ok(weft_npy_load(in_folder("complex.npy"))));
    remove_folder();
}

Test(npy, numpy_reads_ours)
{
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert_not_null(mkdtemp(folder));
    weft_named_tensor all[TYPES];
    for (int t = 0; t < TYPES; t++) {
        char name[64];
        all[t] = (weft_named_tensor){types[t].name, counting(types[t].dtype, 3, 4)};
        snprintf(name, sizeof name, "%s.npy", types[t].name);
        cr_assert_eq(weft_npy_save(in_folder(name), weft_transpose(all[t].tensor, 0, 1)), WEFT_OK);
    }
    cr_assert_eq(weft_npz_save(in_folder("all.npz"), all, TYPES), WEFT_OK, "%s", weft_last_error());
    cr_assert_eq(weft_npz_save(in_folder("none.npz"), NULL, 0), WEFT_OK);
    bool there = numpy(
        "z = np.load(\"all.npz\")\n"
        "assert len(z.files) == 9 and len(np.load(\"none.npz\").files) == 0\n"
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

Test(npy, malformed)
{
    cr_assert(weft_ok(decode("{'descr':'<f4','fortran_order':False,'shape':(2,)}", 8)));
    cr_assert(
        weft_ok(decode("{\"shape\": (), \"descr\": \"=i2\", \"fortran_order\": True,}\n", 2)));
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
    cr_assert_not(weft_ok(weft_npy_load("/nonexistent/x.npy")));
    cr_assert_not(weft_ok(weft_npy_decode(golden_head, 5)));
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
