/*
 * tests/jit/test_jit_corners.c -- what weft/jit.h defines about the corners: aliases, breaks, nesting,
 * histories that outlive the call, values that change from call to call. Writes and errors: test_jit_writes.c.
 */
#include <math.h>
#include <unistd.h>

#include "tests/jit/corner_support.h"

/* -- inputs, outputs, aliases ----------------------------------------------------------------------------- */

FN(swap_and_views)
{
    out[0] = in[1];
    out[1] = in[0];
    out[2] = weft_add(in[0], in[1]);
    out[3] = weft_slice(out[2], 0, 1, 3, 1);
    out[4] = weft_flip(in[0], weft_axes(0));
    return WEFT_OK;
}

Test(corners, outputs_may_be_inputs_and_share_memory)
{
    weft_jit *j = weft_jit_trace(swap_and_views, .single_graph = true);
    weft_tensor t[5] = {vector(4, 0), vector(4, 10)};
    weft_tensor a = t[0], b = t[1];
    OK(weft_jit_call(j, t, 2, t, 5)); /* one array for both */
    cr_assert(memcmp(&t[0], &b, sizeof b) == 0 && memcmp(&t[1], &a, sizeof a) == 0);
    cr_assert(weft_shares_memory(t[2], t[3]) && weft_shares_memory(t[4], a));
    cr_assert_eq(at(t[3], 0), 12);
    OK(weft_fill_(t[3], 7));
    cr_assert_eq(at(t[2], 1), 7);
    cr_assert_eq(at(t[2], 0), 10);
    OK(weft_fill_(a, 5));
    cr_assert_eq(at(t[4], 0), 5);
    weft_jit_free(j);
}

FN(nothing)
{
    return WEFT_OK;
}
FN(constant)
{
    out[0] = weft_arange(0, 3, 1, WEFT_F32);
    return WEFT_OK;
}

Test(corners, no_inputs_no_outputs_no_function)
{
    weft_jit *j = weft_jit_trace(nothing), *k = weft_jit_trace(constant), *r = weft_jit_trace(NULL);
    weft_tensor x;
    OK(weft_jit_call(j, NULL, 0, NULL, 0));
    OK(weft_jit_call(j, NULL, 0, &x, 1));
    cr_assert(!weft_ok(x)); /* as the function left it */
    OK(weft_jit_call(k, NULL, 0, &x, 1));
    cr_assert_eq(at(x, 2), 2);
    check_status("no function", weft_jit_call(r, NULL, 0, NULL, 0), WEFT_EINVALID, "regions");
    check_status("null", weft_jit_call(NULL, NULL, 0, NULL, 0), WEFT_EINVALID, "NULL");
    check_status("null array", weft_jit_call(j, NULL, 2, NULL, 0), WEFT_EINVALID, "NULL");
    weft_jit_free(j);
    weft_jit_free(k);
    weft_jit_free(r);
    weft_jit_free(NULL);
}

static weft_tensor kept;
FN(keeps)
{
    weft_tensor h = weft_mul(in[0], weft_f(2));
    kept = weft_keep(weft_slice(h, 0, 1, 3, 1));
    out[0] = weft_add(h, weft_f(1));
    return WEFT_OK;
}

Test(corners, kept_tensors_outlive_the_call)
{
    weft_jit *j = weft_jit_trace(keeps, .single_graph = true);
    weft_tensor x = vector(4, 1), y;
    OK(weft_jit_call(j, &x, 1, &y, 1));
    cr_assert_eq(at(kept, 0), 4);
    cr_assert_eq(at(kept, 1), 6);
    weft_free(kept);
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- numbers, control flow, shapes ---------------------------------------------------------------------------- */

typedef struct numbers {
    double lr, low;
    int64_t start, whole;
    int repeats;
    bool plus;
    weft_tensor captured;
} numbers;

FN(numeric)
{
    const numbers *k = self;
    weft_tensor h = weft_mul(in[0], weft_f(k->lr));
    h = weft_add(h, weft_full(weft_shape(4), k->low, WEFT_F32));
    h = weft_sub(h, weft_full(weft_shape(4), 0.25, WEFT_F32));
    h = weft_add(h, weft_narrow(weft_slice(in[1], 0, k->start, k->start + 4, 1), 0, 0, 4));
    h = weft_add(h, weft_slice(in[1], 0, 1, 5, 1));
    h = weft_add(h, weft_clamp(h, weft_f(k->low), weft_f(0.25)));
    out[0] = weft_add(h, k->captured);
    out[1] = weft_add(weft_cast(in[1], WEFT_I64), weft_i(k->whole));
    return WEFT_OK;
}

/* Values that were equal when the plan was built must not be taken for one. */
Test(corners, numbers_are_arguments)
{
    numbers k = {.lr = 0.25, .low = 0.25, .start = 1, .whole = 1};
    weft_jit *j = weft_jit_trace(numeric, &k, .single_graph = true);
    for (int call = 0; call < 1000; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor in[2] = {vector(4, call), vector(9, -3)}, x[2], y[2];
        k.captured = vector(4, 2 * call);
        if (call) {
            k.lr = 1.0 / call;
            k.low = 0.3 * call - 4;
            k.start = call % 5;
            k.whole = (INT64_C(1) << 53) + call;
        }
        OK(numeric(&k, in, 2, x, 2));
        OK(weft_jit_call(j, in, 2, y, 2));
        check_bits("sum", x[0], y[0]);
        check_bits("integers", x[1], y[1]);
        weft_scope_end(sc);
    }
    cr_assert_eq(stats_of(j).plans, 1);
    weft_jit_free(j);
}

FN(whole_power)
{
    const numbers *k = self;
    out[0] = weft_pow(in[0], weft_i(k->whole));
    return weft_error_status(out[0]);
}

FN(flipped)
{
    weft_tensor one = weft_sum(in[0], .axes = weft_axes(1), .keepdim = true);
    weft_tensor back = weft_flip(one, weft_axes(1));
    OK(weft_neg_(one)); /* what `back` reads is known then */
    out[1] = weft_logsumexp(back, .axes = weft_axes(0));
    out[0] = weft_silu(back);
    return weft_error_status(out[0]);
}

/* A view may step backwards along an extent of 1; what is made from it does not. */
Test(corners, results_are_row_major)
{
    weft_jit *j = weft_jit_trace(flipped);
    weft_tensor x = weft_ones(weft_shape(3, 4), WEFT_F32), y[2];
    OK(weft_jit_call(j, &x, 1, y, 2));
    cr_assert_eq(weft_stride(y[0], 0), 1);
    cr_assert_eq(weft_stride(y[0], 1), 1);
    weft_jit_free(j);
}

/* Exponents of one length share a plan; short ones have one each. */
Test(corners, whole_powers_of_one_length_share_a_plan)
{
    static const weft_dtype dtypes[] = {WEFT_I64, WEFT_I32, WEFT_U8};
    for (int d = 0; d < 3; d++) {
        numbers k = {.whole = 0};
        weft_jit *j = weft_jit_trace(whole_power, &k, .single_graph = true);
        weft_tensor x = weft_cast(vector(40, -20), dtypes[d]), y, z;
        for (k.whole = 0; k.whole < 70; k.whole++) {
            OK(whole_power(&k, &x, 1, &y, 1));
            OK(weft_jit_call(j, &x, 1, &z, 1));
            check_bits("power", y, z);
        }
        k.whole = INT64_MAX;
        OK(whole_power(&k, &x, 1, &y, 1));
        OK(weft_jit_call(j, &x, 1, &z, 1));
        check_bits("the largest power", y, z);
        /* 0 to 8; 9 to 15, 16 to 31, 32 to 63, 64 to 69; the largest */
        cr_assert_leq(stats_of(j).plans, 9 + 4 + 1);
        weft_jit_free(j);
    }
}

FN(host_control)
{
    const numbers *k = self;
    out[0] = in[0];
    for (int i = 0; i < k->repeats; i++) {
        out[0] = k->plus ? weft_add(out[0], in[0]) : weft_mul(out[0], in[0]);
    }
    return WEFT_OK;
}

Test(corners, host_control_flow_is_what_it_is_at_each_call)
{
    numbers k = {0};
    weft_jit *j = weft_jit_trace(host_control, &k, .max_plans = 5);
    for (int call = 0; call < 60; call++) {
        weft_tensor x = vector(3, 1), a, b;
        k.repeats = call % 4;
        k.plus = call % 3 == 0;
        OK(host_control(&k, &x, 1, &a, 1));
        OK(weft_jit_call(j, &x, 1, &b, 1));
        check_bits("loop", a, b);
    }
    weft_jit_stats s = stats_of(j);
    cr_assert_gt(s.evictions, 0); /* 2 kinds times 3 lengths do not fit in 5 */
    cr_assert_eq(s.plans, s.evictions + 5);
    weft_jit_free(j);
}

FN(shapes_from_data)
{
    int64_t n = weft_item_i64(in[1]); /* from outside and not written: no break */
    out[0] = weft_sum(weft_slice(in[0], 0, 0, n, 1));
    return WEFT_OK;
}

Test(corners, shapes_that_depend_on_data)
{
    weft_jit *j = weft_jit_trace(shapes_from_data, .single_graph = true);
    for (int64_t n = 1; n < 9; n++) {
        weft_tensor in[2] = {vector(9, 1), weft_full(weft_shape(), (double)n, WEFT_I64)}, y;
        OK(weft_jit_call(j, in, 2, &y, 1));
        cr_assert_eq(weft_item_f64(y), (double)(n * (n + 1) / 2));
    }
    weft_jit_free(j);
}

/* -- breaks ----------------------------------------------------------------------------------------------------------- */

static char read_line[64]; /* "file:line" of the read below */
FN(reads)
{
    weft_status s = weft_mul_(in[0], weft_f(2));
    weft_tensor h = weft_add(in[0], weft_f(1)), unused = weft_exp(h);
    double v;
    snprintf(read_line, sizeof read_line, "test_jit_corners.c:%d", __LINE__ + 1);
    s = s ? s : weft_item(weft_sum(h), &v);
    out[0] = s ? WEFT_NONE : weft_mul(h, v > 20 ? weft_f(1) : weft_f(-1));
    out[1] = unused;
    return s;
}

Test(corners, reading_breaks_the_graph)
{
    weft_jit *j = weft_jit_trace(reads, .name = "reads");
    for (int call = 0; call < 4; call++) {
        weft_tensor a = vector(3, call), b = vector(3, call), x[2], y[2];
        OK(reads(NULL, &a, 1, x, 2));
        OK(weft_jit_call(j, &b, 1, y, 2));
        check_bits("written", a, b);
        check_bits("after the read", x[0], y[0]);
        check_bits("before the read", x[1], y[1]);
    }
    weft_jit_stats s = stats_of(j);
    cr_assert_eq(s.breaks, 4);
    cr_assert_eq(s.segments, 8);
    cr_assert_eq(s.plans, 2);
    weft_jit_break b[2];
    cr_assert_eq(weft_jit_breaks(j, b, 2), 1);
    cr_assert_eq(b[0].count, 4);
    cr_assert_str_eq(b[0].op, "item");
    cr_assert(strstr(b[0].site, read_line), "%s", b[0].site);
    char *text = test_explained(j);
    cr_assert(strstr(text, "reads: 4 calls") && strstr(text, read_line), "%s", text);
    free(text);
    weft_jit_free(j);
}

/* -- everything that reads: called with h, which is recorded, and with what it goes by -------------------------------- */

typedef struct reader {
    const char *op;
    weft_status (*read)(weft_tensor h);
} reader;

static char read_file[64]; /* of saving: in the folder of the test */
static weft_graph *read_graph;
static float shared_floats[3];

/* The line is set where the call stands. */
#define READER(name) static weft_status read_##name(__attribute__((unused)) weft_tensor h)
#define HERE(call) (snprintf(read_line, sizeof read_line, "test_jit_corners.c:%d", __LINE__), call)
#define SEEN(ok) ((ok) ? WEFT_OK : weft_last_status())

READER(item)
{
    double v;
    return HERE(weft_item(weft_sum(h), &v));
}
READER(item_f64)
{
    return SEEN(!isnan(HERE(weft_item_f64(weft_sum(h)))));
}
READER(item_i64)
{
    return SEEN(HERE(weft_item_i64(weft_sum(h))) != INT64_MIN);
}
READER(to_array)
{
    float v[3];
    return HERE(weft_to_array(h, v, 3, WEFT_F32));
}
READER(data)
{
    return SEEN(HERE(weft_data(h)));
}
READER(data_mut)
{
    return SEEN(HERE(weft_data_mut(h)));
}
READER(print)
{
    FILE *out = fopen("/dev/null", "w");
    weft_status s = HERE(weft_fprint(out, h));
    fclose(out);
    return s;
}
READER(to_string)
{
    return SEEN(HERE(weft_to_string(h, NULL, 0)) >= 0);
}
READER(npy_save)
{
    return HERE(weft_npy_save(read_file, h));
}
READER(npz_save)
{
    weft_named_tensor parts[2] = {{"a", h}, {"b", h}};
    return HERE(weft_npz_save(read_file, parts, 2));
}
READER(safetensors_save)
{
    weft_named_tensor parts[2] = {{"a", h}, {"b", h}};
    return HERE(weft_safetensors_save(read_file, parts, 2, NULL, 0));
}
READER(npy_encode)
{
    void *data = NULL;
    size_t size;
    weft_status s = HERE(weft_npy_encode(h, &data, &size));
    free(data);
    return s;
}
READER(safetensors_encode)
{
    void *data = NULL;
    size_t size;
    weft_named_tensor parts[2] = {{"a", h}, {"b", weft_neg(h)}};
    weft_status s = HERE(weft_safetensors_encode(parts, 2, NULL, 0, &data, &size));
    free(data);
    return s;
}
READER(nonzero)
{
    return weft_error_status(HERE(weft_nonzero(h)));
}
READER(masked_select)
{
    return weft_error_status(HERE(weft_masked_select(h, weft_greater(h, weft_f(0)))));
}
READER(unique)
{
    weft_tensor values;
    return HERE(weft_unique(h, &values, NULL, NULL));
}
READER(to_dlpack)
{
    DLManagedTensorVersioned *d = HERE(weft_to_dlpack(h));
    if (d) {
        d->deleter(d);
    }
    return SEEN(d);
}
READER(graph_run)
{
    weft_tensor in[2] = {h, h}, y[2];
    return HERE(weft_graph_run(read_graph, in, 2, y, 2));
}
/* An op is no reader, but two tensors on one import are what it seems. */
READER(shared)
{
    weft_tensor a = weft_from_blob(shared_floats, weft_shape(3));
    weft_tensor b = weft_from_blob(shared_floats, weft_shape(3));
    weft_status s = weft_copy_(a, h);
    return s ? s : weft_error_status(HERE(weft_exp(b)));
}

static const reader readers[] = {
#define R(name)                                                                                    \
    {                                                                                              \
#name, read_##name                                                                         \
    }
    R(item),
    {"item", read_item_f64},
    {"item", read_item_i64},
    R(to_array),
    R(data),
    R(data_mut),
    R(print),
    R(to_string),
    R(npy_save),
    R(npz_save),
    R(npy_encode),
    R(safetensors_save),
    R(safetensors_encode),
    R(nonzero),
    R(masked_select),
    R(unique),
    R(to_dlpack),
    R(graph_run),
    {"use of memory that", read_shared},
#undef R
};

FN(reads_by)
{
    const reader *r = self;
    weft_tensor h = weft_exp(in[0]);
    if (n_in > 1) { /* what cannot be computed */
        h = weft_index_select(h, 0, in[1]);
    }
    out[0] = weft_add(h, weft_f(1));
    return r->read(h);
}

FN(two_results)
{
    out[0] = weft_add(in[0], weft_f(1));
    out[1] = weft_mul(in[0], in[1]);
    return WEFT_OK;
}

static weft_tensor begin_readers(void)
{
    weft_tensor x = vector(3, 0), two[2] = {x, x};
    snprintf(read_file, sizeof read_file, "/tmp/weft-readers-%d", (int)getpid());
    read_graph = weft_jit_graph(two_results, NULL, two, 2, .n_outputs = 2);
    cr_assert_not_null(read_graph, "%s", weft_last_error());
    return x;
}

static void end_readers(void)
{
    weft_graph_free(read_graph);
    remove(read_file);
}

/* One break a call, told by the name of what the caller called and his line: functions of the library read for him. */
Test(corners, whatever_reads_breaks_once_where_it_stands)
{
    weft_tensor x = begin_readers(), y;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const reader *r = &readers[i];
        weft_jit *j = weft_jit_trace(reads_by, (void *)(uintptr_t)r, .always_record = true);
        for (int call = 0; call < 2; call++) {
            OK(weft_jit_call(j, &x, 1, &y, 1));
        }
        weft_jit_break b[4];
        const int n = weft_jit_breaks(j, b, 4);
        cr_assert_eq(n, 1, "%s: %d places", r->op, n);
        cr_assert_eq(strncmp(b[0].op, r->op, strlen(r->op)), 0, "%s, not %s", b[0].op, r->op);
        cr_assert_eq(b[0].count, 2, "%s: %d times", r->op, (int)b[0].count);
        cr_assert(strstr(b[0].site, read_line), "%s: '%s', not %s", r->op, b[0].site, read_line);
        cr_assert_eq(stats_of(j).breaks, 2, "%s", r->op);
        weft_jit_free(j);
    }
    end_readers();
}

static weft_status unsited_data(weft_tensor h)
{
    return (weft_data)(h) ? WEFT_OK : weft_last_status();
}
static weft_status unsited_item(weft_tensor h)
{
    return isnan((weft_item_f64)(weft_sum(h))) ? weft_last_status() : WEFT_OK;
}
static weft_status unsited_nonzero(weft_tensor h)
{
    return weft_error_status((weft_nonzero)(h));
}

/* Where the call that read does not say where it is (another language's, or one through a pointer), nobody else's line is told. */
Test(corners, reads_without_a_place_have_none)
{
    const reader unsited[] = {
        {"data", unsited_data}, {"item", unsited_item}, {"nonzero", unsited_nonzero}};
    weft_tensor x = vector(3, 0), y;
    for (int i = 0; i < 3; i++) {
        weft_jit *j =
            weft_jit_trace(reads_by, (void *)(uintptr_t)&unsited[i], .always_record = true);
        weft_jit_break b[2];
        cr_assert_eq(weft_jit_begin(j), WEFT_OK);
        cr_assert_eq(reads_by((void *)(uintptr_t)&unsited[i], &x, 1, &y, 1), WEFT_OK);
        y = weft_mul(y, weft_f(2));
        cr_assert_eq(weft_jit_end(j), WEFT_OK, "%s", weft_last_error());
        cr_assert_eq(weft_jit_breaks(j, b, 2), 1);
        cr_expect(strcmp(b[0].op, unsited[i].op) == 0 && b[0].site[0] == 0, "%s at '%s'", b[0].op,
                  b[0].site);
        weft_jit_free(j);
    }
}

/* The same where the graph may not be broken, and where what was recorded cannot be computed: an error, of every function. */
Test(corners, whatever_reads_says_so_where_it_cannot)
{
    static const int64_t bad[3] = {0, 1, 7};
    weft_tensor x = begin_readers(), y, two[2] = {x, weft_from_data(bad, weft_shape(3), WEFT_I64)};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        const reader *r = &readers[i];
        void *self = (void *)(uintptr_t)r;
        weft_jit *j = weft_jit_trace(reads_by, self, .single_graph = true);
        check_status(r->op, weft_jit_call(j, &x, 1, &y, 1), WEFT_EUNSUPPORTED, r->op);
        cr_assert(strstr(weft_last_error(), read_line), "%s: %s", r->op, weft_last_error());
        weft_jit_free(j);
        j = weft_jit_trace(reads_by, self, .always_record = true);
        check_status(r->op, weft_jit_call(j, two, 2, &y, 1), WEFT_EINDEX, "index 7");
        weft_jit_free(j);
        if (r->read != read_shared) { /* that is refused for what it writes */
            cr_assert_null(weft_jit_graph(reads_by, self, &x, 1), "%s", r->op);
            cr_assert_eq(weft_last_status(), WEFT_EUNSUPPORTED, "%s", weft_last_error());
            cr_assert(strstr(weft_last_error(), read_line), "%s: %s", r->op, weft_last_error());
        }
    }
    end_readers();
}

/* A status that no op of the function raised. */
FN(gives_up)
{
    out[0] = weft_exp(in[0]);
    return WEFT_EIO;
}
FN(passes_on)
{
    out[0] = weft_exp(in[0]);
    return weft_error_status(in[0]);
}

Test(corners, a_status_of_ones_own_has_a_text)
{
    weft_tensor x = vector(3, 0), y, bad = weft_add(x, vector(4, 0));
    weft_jit *j = weft_jit_trace(gives_up, .name = "gives_up");
    check_status("call", weft_jit_call(j, &x, 1, &y, 1), WEFT_EIO, "'gives_up' returned status 8");
    bad = weft_add(x, vector(4, 0));
    cr_assert_null(weft_jit_graph(gives_up, NULL, &x, 1, .name = "g"));
    cr_assert(strstr(weft_last_error(), "'g' returned status 8"), "%s", weft_last_error());
    weft_jit_free(j);
    bad = weft_add(x, vector(4, 0));
    j = weft_jit_trace(passes_on, .name = "passes_on");
    check_status("input", weft_jit_call(j, &bad, 1, &y, 1), WEFT_ESHAPE, "add:");
    weft_jit_free(j);
}

Test(corners, one_graph_refuses_to_be_read)
{
    weft_jit *j = weft_jit_trace(reads, .name = "reads", .single_graph = true);
    weft_tensor a = vector(3, 0), y[2];
    check_status("read", weft_jit_call(j, &a, 1, y, 2), WEFT_EUNSUPPORTED, read_line);
    cr_assert(strstr(weft_last_error(), "'reads'"), "%s", weft_last_error());
    cr_assert_eq(at(a, 2), 4); /* what came before was done */
    cr_assert_eq(stats_of(j).breaks, 0);
    weft_jit_free(j);
}

/* A number that is not a number decides: the status is not looked at. */
FN(careless)
{
    double sum = weft_item_f64(weft_sum(in[0]));
    out[0] = sum > 0 ? weft_exp(in[0]) : weft_neg(in[0]);
    return WEFT_OK;
}

Test(corners, one_graph_is_not_fooled_by_a_read_nobody_looked_at)
{
    weft_jit *j = weft_jit_trace(careless, .name = "careless", .single_graph = true);
    weft_tensor a = vector(3, 0), y = a;
    check_status("unread status", weft_jit_call(j, &a, 1, &y, 1), WEFT_EUNSUPPORTED, "'careless'");
    cr_assert(strstr(weft_last_error(), "item") && strstr(weft_last_error(), "test_jit_corners.c"),
              "%s", weft_last_error());
    cr_assert_eq(weft_error_status(y), WEFT_EUNSUPPORTED);
    OK(weft_jit_begin(j)); /* a region likewise */
    double sum = weft_item_f64(weft_sum(a));
    cr_assert(isnan(sum));
    check_status("region", weft_jit_end(j), WEFT_EUNSUPPORTED, "'careless'");
    OK(weft_jit_begin(j)); /* the next one starts afresh */
    OK(weft_jit_end(j));
    weft_jit_free(j);
}

/* -- nesting, regions ---------------------------------------------------------------------------------------------- */

FN(inner)
{
    out[0] = weft_exp(in[0]);
    return WEFT_OK;
}
FN(outer)
{
    weft_tensor h;
    weft_status s = weft_jit_call(self, in, 1, &h, 1);
    s = s ? s : weft_jit_begin(self);
    out[0] = weft_add(h, in[0]);
    return s ? s : weft_jit_end(self);
}

Test(corners, calls_inside_calls_are_part_of_them)
{
    weft_jit *i = weft_jit_trace(inner), *o = weft_jit_trace(outer, i, .single_graph = true);
    weft_tensor x = vector(3, 0), y, h;
    OK(weft_jit_call(o, &x, 1, &y, 1));
    OK(inner(NULL, &x, 1, &h, 1));
    check_bits("nested", weft_add(h, x), y);
    cr_assert_eq(stats_of(i).inlined, 2);
    cr_assert_eq(stats_of(i).segments, 0);
    cr_assert_eq(stats_of(o).segments, 1);
    weft_jit_free(i);
    weft_jit_free(o);
}

Test(corners, regions)
{
    weft_jit *j = weft_jit_trace(NULL, .name = "region"), *k = weft_jit_trace(NULL);
    weft_tensor x = vector(5, -2), eager = weft_gelu(weft_mul(x, x)), y, z;
    for (int round = 0; round < 3; round++) {
        OK(weft_jit_begin(j));
        weft_scope sc = weft_scope_begin();
        OK(weft_jit_begin(k)); /* part of j's */
        y = weft_gelu(weft_mul(x, x));
        OK(weft_jit_end(k));
        y = weft_scope_return(sc, y);
        cr_assert_eq(weft_jit_end(k), WEFT_EINVALID);
        z = weft_add(y, weft_f(1));
        OK(weft_jit_end(j));
        check_bits("alive at the end", eager, y);
        check_bits("alive too", weft_add(eager, weft_f(1)), z);
    }
    cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
    cr_assert_eq(weft_jit_begin(NULL), WEFT_EINVALID);
    cr_assert_eq(stats_of(j).plans, 1);
    cr_assert_eq(stats_of(j).outputs, 2);
    weft_jit_free(j);
    weft_jit_free(k);
}

/* Regions of a call are its own: it ends those that it began, and only those. */
static weft_status inner_end, inner_region;

FN(ends_its_own_call)
{
    weft_jit *j = *(weft_jit **)self;
    weft_tensor y = weft_add(in[0], in[0]);
    inner_end = weft_jit_end(j);
    inner_region = weft_jit_begin(j);
    y = weft_add(y, in[0]);
    inner_region = inner_region ? inner_region : weft_jit_end(j);
    inner_end = inner_end ? weft_jit_end(j) : inner_end;
    weft_jit_begin(j); /* ends with the call */
    out[0] = weft_add(y, weft_f(1));
    return WEFT_OK;
}

Test(corners, a_call_is_not_a_region_that_it_can_end)
{
    weft_jit *j = NULL;
    j = weft_jit_trace(ends_its_own_call, &j);
    weft_tensor x = vector(4, 1), y;
    for (int round = 0; round < 6; round++) {
        bool region = round > 2;
        cr_assert(!region || weft_jit_begin(j) == WEFT_OK);
        OK(weft_jit_call(j, &x, 1, &y, 1));
        cr_assert_eq(inner_end, WEFT_EINVALID);
        cr_assert_eq(inner_region, WEFT_OK);
        cr_assert(!region || weft_jit_end(j) == WEFT_OK);
        cr_assert_eq(weft_jit_end(j), WEFT_EINVALID);
        cr_assert_eq(at(y, 1), 7);
    }
    weft_jit_free(j);
    cr_assert_eq(weft_leak_report(NULL), 0);
}

/* -- gradients ------------------------------------------------------------------------------------------------------- */

FN(history)
{
    weft_tensor h = weft_sigmoid(weft_mul(in[0], in[1]));
    out[0] = weft_sum(weft_mul(h, weft_exp(in[0])));
    return WEFT_OK;
}

Test(corners, a_loss_with_history_is_differentiated_outside)
{
    weft_jit *j = weft_jit_trace(history);
    for (int call = 0; call < 3; call++) {
        weft_tensor a[2] = {leaf(4, 0.1), leaf(4, -1)}, b[2] = {leaf(4, 0.1), leaf(4, -1)}, x, y;
        OK(history(NULL, a, 2, &x, 1));
        OK(weft_jit_call(j, b, 2, &y, 1));
        cr_assert(weft_requires_grad(y));
        OK(weft_backward(x));
        OK(weft_backward(y));
        check_bits("first", weft_grad(a[0]), weft_grad(b[0]));
        check_bits("second", weft_grad(a[1]), weft_grad(b[1]));
    }
    weft_jit_free(j);
    cr_assert_eq(weft_tape_nodes(), test_baseline_take().nodes);
}

static weft_tensor halve(void *user, weft_tensor g)
{
    (void)user;
    return weft_mul(g, weft_f(0.5));
}

static weft_status cube_forward(weft_function_ctx *ctx, void *user, const weft_tensor *in, int n_in,
                                weft_tensor *out, int n_out)
{
    (void)user, (void)n_in, (void)n_out;
    out[0] = weft_mul(weft_mul(in[0], in[0]), in[0]);
    return weft_function_save(ctx, in, 1);
}
static weft_status cube_backward(weft_function_ctx *ctx, void *user, const weft_tensor *g,
                                 int n_out, weft_tensor *grad, const bool *needs, int n_in)
{
    (void)user, (void)n_out, (void)needs, (void)n_in;
    weft_tensor x = weft_function_saved(ctx, 0);
    grad[0] = weft_mul(g[0], weft_mul(weft_f(3), weft_mul(x, x)));
    return WEFT_OK;
}

/* Hooks, custom functions, accumulation into an old gradient, second derivatives, no_grad, writes in place to
 * values with history. */
FN(gradients)
{
    static const weft_function cube = {"cube", cube_forward, cube_backward, NULL};
    weft_tensor h, g = WEFT_NONE, gg = WEFT_NONE, w = weft_clone(in[0]);
    weft_status s = weft_apply(&cube, NULL, in, 1, &h, 1);
    weft_register_hook(h, halve, NULL, NULL);
    s = s ? s
          : weft_add_(weft_slice(w, 0, 0, 2, 1),
                      weft_mul(weft_slice(in[0], 0, 1, 3, 1), h.slot ? weft_f(2) : weft_f(0)));
    weft_tensor y = weft_sum(weft_add(weft_mul(h, weft_sin(in[0])), weft_mul(w, w)));
    s = s ? s
          : weft_grad_of(.outputs = &y, .n_outputs = 1, .inputs = in, .n_inputs = 1, .grads = &g,
                         .create_graph = true);
    weft_tensor z = weft_sum(weft_mul(g, g));
    s = s ? s
          : weft_grad_of(.outputs = &z, .n_outputs = 1, .inputs = in, .n_inputs = 1, .grads = &gg,
                         .retain_graph = true);
    s = s ? s : weft_backward(y);
    weft_no_grad_begin();
    out[0] = weft_add(gg, weft_f(1));
    weft_no_grad_end();
    out[1] = g;
    out[2] = weft_grad(in[0]);
    return s;
}

Test(corners, everything_about_gradients_inside)
{
    weft_jit *j = weft_jit_trace(gradients, .single_graph = true);
    weft_tensor a = weft_keep(leaf(4, 0.3)), b = weft_keep(leaf(4, 0.3));
    for (int call = 0; call < 4; call++) {
        weft_scope sc = weft_scope_begin();
        weft_tensor x[3], y[3];
        OK(gradients(NULL, &a, 1, x, 3));
        OK(weft_jit_call(j, &b, 1, y, 3));
        check_bits("second", x[0], y[0]);
        check_bits("first", x[1], y[1]);
        check_bits("accumulated", x[2], y[2]);
        cr_assert_eq(weft_requires_grad(x[1]), weft_requires_grad(y[1]));
        weft_scope_end(sc);
    }
    weft_jit_free(j);
    weft_free(a);
    weft_free(b);
    cr_assert_eq(weft_leak_report(NULL), 0);
    cr_assert_eq(weft_tape_nodes(), 0);
}

FN(stale)
{
    weft_tensor h = weft_exp(in[0]), y = weft_sum(weft_exp(h));
    weft_no_grad_begin();
    weft_status s = weft_add_(h, weft_f(1));
    weft_no_grad_end();
    return s ? s : weft_backward(y);
}

Test(corners, versions_are_checked_inside)
{
    weft_jit *j = weft_jit_trace(stale);
    weft_tensor x = leaf(3, 0);
    check_status("eager", stale(NULL, &x, 1, NULL, 0), WEFT_EGRAD, "version");
    check_status("traced", weft_jit_call(j, &x, 1, NULL, 0), WEFT_EGRAD, "version");
    weft_jit_free(j);
}

/* -- size --------------------------------------------------------------------------------------------------------- */

FN(unrolled)
{
    int n = *(int *)self;
    weft_scope sc = weft_scope_begin();
    weft_tensor h = in[0];
    for (int i = 0; i < n; i++) {
        weft_tensor next = i % 3 ? weft_mul(h, weft_f(1.0001)) : weft_sin(h);
        if (i) {
            weft_free(h);
        }
        h = next;
    }
    out[0] = weft_scope_return(sc, h);
    return WEFT_OK;
}

Test(corners, a_graph_of_a_hundred_thousand_ops)
{
    for (int n = 10; n <= 100000; n *= 100) {
        weft_jit *j = weft_jit_trace(unrolled, &n);
        weft_tensor x = vector(5, 0), a, b;
        OK(unrolled(&n, &x, 1, &a, 1));
        for (int call = 0; call < 2; call++) {
            OK(weft_jit_call(j, &x, 1, &b, 1));
            check_bits("unrolled", a, b);
        }
        cr_assert_eq(stats_of(j).hits, 1);
        cr_assert_geq(stats_of(j).ops, n);
        weft_jit_free(j);
    }
}

/* -- why plans are built ---------------------------------------------------------------------------------------- */

static int32_t way; /* of shapeshifter */

FN(shapeshifter)
{
    weft_tensor h = way == 1 ? weft_exp(in[0]) : weft_neg(in[0]);
    h = way == 2 ? weft_add(h, h) : h;
    out[0] = weft_sum(h, .axes = weft_axes(way == 3 ? 1 : 0));
    return weft_error_status(out[0]);
}

static void check_says(weft_jit *j, const char *what)
{
    char *text = test_explained(j);
    cr_expect(strstr(text, what), "\"%s\" is not in:\n%s", what, text);
    free(text);
}

static void shift(weft_jit *j, int32_t to, weft_tensor x)
{
    weft_tensor y;
    way = to;
    OK(weft_jit_call(j, &x, 1, &y, 1));
}

Test(corners, every_plan_has_a_reason)
{
    weft_jit *j = weft_jit_trace(shapeshifter, .max_plans = 5, .always_record = true);
    const weft_tensor x = weft_keep(weft_ones(weft_shape(3, 4), WEFT_F32));
    shift(j, 0, x);
    check_says(j, "plan built for segment 1: the first\n");
    shift(j, 0, x); /* known */
    cr_assert_eq(stats_of(j).plans, 1);
    shift(j, 0, weft_ones(weft_shape(3, 5), WEFT_F32));
    check_says(j, "segment 3: %1 input is f32[3,5], not f32[3,4]\n");
    shift(j, 0, weft_ones(weft_shape(3, 4), WEFT_F64));
    check_says(j, "segment 4: %1 input is f64[3,4], not f32[");
    shift(j, 1, x);
    check_says(j, "segment 5: %2 exp at test_jit_corners.c:");
    check_says(j, " is where neg was\n");
    shift(j, 3, x);
    check_says(j, "segment 6: %3 sum at test_jit_corners.c:");
    check_says(j, "the limit of 5 plans (max_plans) is reached: 0 were dropped");
    cr_assert_eq(stats_of(j).evictions, 0);
    shift(j, 2, x);
    check_says(j, "segment 7: %3 add at test_jit_corners.c:");
    check_says(j, "reached: 1 were dropped, the least recently used first");
    shift(j, 0, x); /* the one that went */
    check_says(j, "segment 8: it had been dropped at the limit\n");
    cr_assert_eq(stats_of(j).plans, 7);
    for (int i = 0; i < 40; i++) { /* more than are listed */
        shift(j, 0, weft_ones(weft_shape(6, 2 + i), WEFT_F32));
    }
    check_says(j, "the first 23 plans are not listed\n");
    check_says(j, "plan built for segment 48: ");
    weft_jit_free(j);
}
