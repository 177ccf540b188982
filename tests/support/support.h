/*
 * tests/support/support.h -- what tests compare with: ULP, bits, shapes, errors, leaks, texts.
 *
 * Invariants: nothing here uses the library's own arithmetic or conversions, so that a fault there cannot
 * hide itself; every check_* fails through Criterion with a message that names what was checked, and
 * tests/mustfail holds one test per check that has to fail.
 */
#ifndef TESTS_SUPPORT_SUPPORT_H
#define TESTS_SUPPORT_SUPPORT_H

#include <sys/types.h>

#include "weft/weft.h"

/* -- elements --------------------------------------------------------------------------------------- */
/* Element at p; exact for every type (i64 fits the 64-bit significand). */
long double test_load(const void *p, int dtype);
/* x rounded to nearest even in a floating-point type, wrapped into an integer one, x != 0 as bool. */
void test_store(void *p, int dtype, long double x);
/* x rounded to the floating-point type, infinite beyond its range. */
long double test_round(int dtype, long double x);
/* Largest finite number of a floating-point type. */
long double test_largest(int dtype);
bool test_is_float(int dtype);
/* Width in bits, and whether there is a sign, of an integer type. */
int test_bits(int dtype);
bool test_is_signed(int dtype);

/* -- numbers ---------------------------------------------------------------------------------------- */
typedef struct test_rng {
    uint64_t state;
} test_rng;
uint64_t test_next(test_rng *r);
/* Uniform in [lo, hi). */
double test_uniform(test_rng *r, double lo, double hi);
/* Uniform integer in [lo, hi]. */
int64_t test_between(test_rng *r, int64_t lo, int64_t hi);

/* -- ULP -------------------------------------------------------------------------------------------- */
/* Distance of got, a value of dtype, from the exact value want, in units of the last place of dtype at
 * want (of the smallest normal number below it). A NaN for a number or the reverse, a wrong infinity,
 * the wrong sign of a zero: infinitely far. An overflow counts as the first power of two out of range. */
double test_ulp(int dtype, long double want, long double got);
/* Distance of neighbours of dtype at x. */
long double test_place(int dtype, long double x);
/* What a budget of the op table allows a value of dtype, in test_ulp's unit at want: half types add
 * their rounding to the error of the f32 result, f64 may be off by 2 at most, 0 stands for correct
 * rounding. scale: the largest term of a sum that cancels; want itself elsewhere. */
double test_allowed(int dtype, double budget, long double want, long double scale);

/* -- checks ----------------------------------------------------------------------------------------- */
void check_ulp(const char *what, int dtype, double allowed, long double want, long double got);
/* Same dtype, extents and bits; NaNs are equal. */
void check_bits(const char *what, weft_tensor a, weft_tensor b);
void check_type(const char *what, weft_tensor t, weft_dtype dtype, weft_shape shape);
/* Elements within bound[i] (absolute) of want[i]; NaN and infinities exactly. */
void check_near(const char *what, weft_tensor t, const long double *want, const long double *bound);
/* An empty handle with this status and a message that contains `says`. */
void check_error(const char *what, weft_tensor t, weft_status status, const char *says);
void check_status(const char *what, weft_status got, weft_status want, const char *says);
void check_text(const char *what, const char *got, const char *golden);
/* The file's text, line by line. WEFT_ACCEPT=1 in the environment writes it first. */
void check_lines(const char *path, const char *got);
/* weft_gradcheck passes. */
void check_gradient(const char *what, weft_check_fn fn, void *user, const weft_tensor *in, int n);

/* Have tensors of one shape the same strides? Along one element any is as good, and errors and tensors without elements have
 * none. */
bool test_same_place(weft_tensor a, weft_tensor b);

/* -- files, children, graphs, traces ---------------------------------------------------------------- */
enum { TEST_PATH = 32 };
/* A new empty file in /tmp, which the caller unlinks: its name in path, its descriptor returned open. */
int test_new_file(char path[TEST_PATH]);
/* A new empty folder in /tmp, its name in path; and it removed again with the files in it, of which none is a folder. */
void test_new_folder(char path[TEST_PATH]);
void test_drop_folder(const char *path);
/* Waits for a process of fork(), which has to end with status 0. */
void test_wait(pid_t child);
/* g saved to a file and loaded from it; g itself is freed. */
weft_graph *test_reloaded(weft_graph *g);
/* What weft_graph_print, _dot or _svg writes; the caller frees it. */
char *test_written(const weft_graph *g, weft_status (*write)(const weft_graph *g, FILE *out));
/* What weft_jit_explain writes; the caller frees it. */
char *test_explained(weft_jit *j);

/* -- leaks ------------------------------------------------------------------------------------------ */
typedef struct test_baseline {
    weft_memory_stats stats;
    int64_t nodes;
} test_baseline;
test_baseline test_baseline_take(void);
/* Live bytes, tensors and tape nodes are what they were. */
void check_baseline(const char *what, const test_baseline *before);

#endif
