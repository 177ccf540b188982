/*
 * tests/fuzz/test_invalid_objects.c -- 50000 random calls of layers, optimisers, files, traces, graphs; and some while they are recorded.
 *
 * As test_invalid_calls: nothing may crash, every failing call gives a status and a message, and in the end memory is
 * where it was. Objects are of this run or NULL; a stray pointer is no mistake that a library can find.
 *
 * ctest: timeout=300 reckons
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/judge.h"

static weft_module *module; /* with a few parameters; grows by what registrations succeed */
static weft_jit *traced, *region;
static weft_graph *graph;
static weft_optim *optims[2];
static char folder[64];

/* One of a few names: fit, taken, empty, long, hostile; NULL. */
static const char *word(void)
{
    static char text[80];
    static const char *const all[] = {"fc.weight", "",         "..", "/etc/passwd",
                                      "a\nb",      "\xff\xfe", NULL};
    if (odd(2)) {
        return all[test_next(&rng) % (sizeof all / sizeof *all)];
    }
    memset(text, 'n', sizeof text - 1);
    snprintf(text, odd(8) ? sizeof text : 8, "p%d", (int)test_between(&rng, 0, 999999));
    return text;
}

static const char *file(void)
{
    static char path[200];
    switch (test_next(&rng) % 6) {
    case 0:
        return NULL;
    case 1:
        return folder; /* a folder */
    case 2:
        return "/no/such/folder/file";
    default:
        snprintf(path, sizeof path, "%s/file%d", folder, (int)test_between(&rng, 0, 3));
        return path;
    }
}

/* Extents of layers: 2^50 and more, or small. */
static int64_t extent(const arguments *a, int i)
{
    return a->i[i] > 64 && a->i[i] < ((int64_t)1 << 50) ? 3 : a->i[i];
}

static void spatial_layers(const arguments *a, weft_module *m, const char *name, weft_dtype dt)
{
    int64_t n0 = extent(a, 0), n1 = extent(a, 1), n2 = extent(a, 2), n3 = extent(a, 3);
    weft_nn_norm norm = {a->t[0], a->t[1], a->d[0]}, *instance = odd(20) ? NULL : &norm;
    weft_nn_group_norm groups = {a->t[0], a->t[1], n0, a->d[0]}, *group = odd(20) ? NULL : &groups;
    weft_nn_conv2d line = {a->t[0], a->t[1], n0, n1, n2, a->i[3], a->s[0], a->s[1], a->s[2]};
    weft_nn_conv2d *conv = odd(20) ? NULL : &line;
    weft_nn_conv_transpose transpose = {a->t[0], a->t[1], n0,      n1,      n2,     a->i[3],
                                        a->i[4], a->s[0], a->s[1], a->s[2], a->s[3]};
    weft_nn_conv_transpose *back = odd(20) ? NULL : &transpose;
    weft_tensor x = a->t[3];
    switch (test_next(&rng) % 5) {
    case 0:
        T("instance_norm", weft_nn_instance_norm_forward(instance, x));
        S("instance_norm", weft_nn_instance_norm_init(instance, m, name, n0, a->d[0], dt));
        break;
    case 1:
        T("group_norm", weft_nn_group_norm_forward(group, x));
        S("group_norm", weft_nn_group_norm_init(group, m, name, n0, n1, a->d[0], dt));
        break;
    case 2:
        T("conv1d", weft_nn_conv1d_forward(conv, x));
        S("conv1d", weft_nn_conv1d_init(conv, m, name, n0, n1, n2, a->i[3], a->i[4], a->i[5], n3,
                                        a->flag[0], dt, {0}, a->s[0], a->s[1], a->s[2]));
        break;
    case 3:
        T("conv_transpose1d", weft_nn_conv_transpose1d_forward(back, x));
        S("conv_transpose1d",
          weft_nn_conv_transpose1d_init(back, m, name, n0, n1, n2, a->i[3], a->i[4], a->i[5],
                                        a->i[0], n3, a->flag[0], dt));
        break;
    default:
        T("conv_transpose2d", weft_nn_conv_transpose2d_forward(back, x));
        S("conv_transpose2d",
          weft_nn_conv_transpose2d_init(back, m, name, n0, n1, n2, a->i[3], a->i[4], a->i[5],
                                        a->i[0], n3, a->flag[0], dt));
    }
}

static void modules(arguments *a)
{
    weft_module *m = odd(20) ? NULL : module;
    const char *name = word();
    weft_dtype dt = odd(2) ? WEFT_DTYPE_DEFAULT : a->dtype;
    int64_t n0 = extent(a, 0), n1 = extent(a, 1), n2 = extent(a, 2);
    weft_nn_linear linear = {a->t[0], a->t[1]};
    weft_nn_embedding embedding = {a->t[0]};
    weft_nn_norm norm = {a->t[0], a->t[1], a->d[0]};
    weft_nn_conv2d conv = {a->t[0], a->t[1], n0, n1, n2, a->i[3], a->s[0], a->s[1], a->s[2]};
    weft_nn_batch_norm2d batch = {a->t[0], a->t[1], a->t[2], a->t[3], a->t[0], a->d[0], a->d[1], m};
    weft_nn_attention attention = {a->t[0], a->t[1], linear, n0, a->flag[0]};
    weft_nn_dropout dropout = {a->d[0], m};
    weft_tensor x = a->t[3];
    bool no = odd(20); /* no layer */
    switch (test_next(&rng) % 19) {
    case 0:
        T("linear", weft_nn_linear_forward(no ? NULL : &linear, x));
        S("linear", weft_nn_linear_init(no ? NULL : &linear, m, name, n0, n1, a->flag[0], dt));
        break;
    case 1:
        T("embedding", weft_nn_embedding_forward(no ? NULL : &embedding, x));
        S("embedding", weft_nn_embedding_init(no ? NULL : &embedding, m, name, n0, n1, dt));
        break;
    case 2:
        T("layer_norm", weft_nn_layer_norm_forward(no ? NULL : &norm, x));
        S("layer_norm", weft_nn_layer_norm_init(no ? NULL : &norm, m, name, n0, a->d[0], dt));
        break;
    case 3:
        T("rms_norm", weft_nn_rms_norm_forward(no ? NULL : &norm, x));
        S("rms_norm", weft_nn_rms_norm_init(no ? NULL : &norm, m, name, n0, a->d[0], dt));
        break;
    case 4:
        T("conv2d", weft_nn_conv2d_forward(no ? NULL : &conv, x));
        S("conv2d",
          weft_nn_conv2d_init(no ? NULL : &conv, m, name, n0, n1, n2, a->i[3], a->i[4], a->i[5],
                              extent(a, 3), a->flag[0], dt, a->s[3], a->s[0], a->s[1], a->s[2]));
        break;
    case 5:
        T("batch_norm", weft_nn_batch_norm2d_forward(no ? NULL : &batch, x));
        S("batch_norm",
          weft_nn_batch_norm2d_init(no ? NULL : &batch, m, name, n0, a->d[0], a->d[1], dt));
        break;
    case 6:
        T("attention", weft_nn_attention_forward(no ? NULL : &attention, x));
        S("attention", weft_nn_attention_init(no ? NULL : &attention, m, name, n0, n1, a->flag[0],
                                              a->flag[1], dt));
        break;
    case 7:
        T("dropout", weft_nn_dropout_forward(no ? NULL : &dropout, x));
        S("dropout", weft_nn_dropout_init(no ? NULL : &dropout, m, a->d[0]));
        break;
    case 8: {
        const weft_tensor value =
            weft_clone(a->t[0]); /* m's from the call on, where there is an m */
        T("module", odd(2) ? weft_module_parameter(m, name, m ? weft_keep(value) : value)
                           : weft_module_buffer(m, name, value));
    } break;
    case 9:
        T("module", weft_module_get(m, name));
        Q(weft_module_at(m, INT(a->i[0])));
        Q(weft_module_is_parameter(m, INT(a->i[0])));
        Q(weft_module_numel(m) + weft_module_count(m));
        break;
    case 10:
        S("module", weft_module_clip_grad_norm(m, a->d[0], odd(2) ? NULL : &a->d[1]));
        S("module", weft_module_clip_grad_value(m, a->d[0]));
        S("module", weft_module_lerp(m, odd(4) ? m : NULL, a->d[0]));
        break;
    case 11:
        S("module", weft_module_to(m, (weft_device){INT(a->i[0]), INT(a->i[1])}));
        break;
    case 12:
        S("module", weft_module_push(m, "%s", name ? name : ""));
        S("module", weft_module_pop(m));
        break;
    case 13:
        S("init", weft_init_constant(x, a->d[0]));
        S("init", weft_init_uniform(x, a->d[0], a->d[1], NULL));
        break;
    case 14:
        S("init", weft_init_normal(x, a->d[0], a->d[1], NULL));
        S("init", weft_init_trunc_normal(x, a->d[0], a->d[1], a->d[2], a->d[0], NULL));
        break;
    case 15:
        S("init", weft_init_xavier_uniform(x, a->d[0], NULL));
        S("init", weft_init_xavier_normal(x, a->d[0], NULL));
        S("init", weft_init_orthogonal(x, a->d[0], NULL));
        break;
    case 16:
    case 17:
        spatial_layers(a, m, name, dt);
        break;
    default:
        S("init", weft_init_kaiming_uniform(x, a->d[0], (weft_fan)a->i[0], NULL));
        S("init", weft_init_kaiming_normal(x, a->d[0], (weft_fan)a->i[0], NULL));
    }
}

static weft_optim *one_more(const arguments *a, weft_module *m)
{
    switch (test_next(&rng) % 6) {
    case 0:
        return weft_sgd_new(m, a->d[0], a->d[1], a->d[2], a->flag[0], a->d[1], INT(a->i[0]));
    case 1:
        return weft_adamw_new(m, a->d[0], a->d[1], a->d[2], a->d[0], a->d[1], INT(a->i[0]));
    case 2:
        return weft_adam_new(m, a->d[0], a->d[1], a->d[2], a->d[0], a->d[1], 0, a->flag[0]);
    case 3:
        return weft_rmsprop_new(m, a->d[0], a->d[1], a->d[2], a->d[0], a->d[1], a->flag[0]);
    case 4:
        return weft_adagrad_new(m, a->d[0], a->d[1], a->d[2], a->d[0], a->d[1]);
    default:
        return weft_lion_new(m, a->d[0], a->d[1], a->d[2], a->d[0]);
    }
}

static void optimisers(arguments *a)
{
    weft_module *m = odd(4) ? NULL : module;
    weft_optim *o = odd(8) ? NULL : optims[test_next(&rng) % 2], *fresh_one;
    const weft_checkpoint_args c = {file(),
                                    m,
                                    o,
                                    odd(2) ? NULL : &(weft_named_tensor){word(), a->t[0]},
                                    odd(2) ? 1 : INT(a->i[0] % 2), /* one is there */
                                    0};
    weft_clear_error();
    switch (test_next(&rng) % 6) {
    case 0:
        fresh_one = one_more(a, m);
        judge("optimiser", fresh_one ? WEFT_OK : weft_last_status(), weft_last_error(), false);
        cr_assert(fresh_one || weft_last_status() != WEFT_OK);
        weft_optim_free(fresh_one);
        break;
    case 1:
        S("optim", weft_optim_group(o, odd(8) ? NULL : word(), a->d[0], a->d[1]));
        break;
    case 2:
        S("optim", weft_optim_set_lr(o, a->d[0]));
        Q(weft_optim_lr(o));
        Q(weft_optim_state_count(o));
        break;
    case 3:
        S("optim", weft_optim_step(o));
        break;
    case 4:
        S("checkpoint_save", (weft_checkpoint_save)(odd(20) ? NULL : &c));
        break;
    default:
        S("checkpoint_load", (weft_checkpoint_load)(odd(20) ? NULL : &c));
    }
}

static void garble(const arguments *a, char *bytes, size_t size)
{
    for (size_t i = 0; size && i < 4; i++) {
        bytes[(uint64_t)a->i[i] % size] = (char)test_next(&rng);
    }
}

static void files(arguments *a)
{
    weft_named_tensor named[2] = {{word(), a->t[0]}, {odd(2) ? "second" : word(), a->t[1]}};
    weft_metadata meta = {odd(4) ? NULL : "key", odd(4) ? NULL : "value"};
    int n = odd(4) ? INT(a->i[0] % 4) : 2;
    const char *path = file();
    void *bytes = NULL;
    size_t size = 0;
    switch (test_next(&rng) % 7) {
    case 0:
        S("safetensors_save",
          weft_safetensors_save(path, odd(20) ? NULL : named, n < 3 ? n : 2, &meta, odd(2)));
        break;
    case 1:
        S("npz", weft_npz_save(path, odd(20) ? NULL : named, n < 3 ? n : 2));
        break;
    case 2:
        S("npy", weft_npy_save(path, a->t[0]));
        T("npy", weft_npy_load(file()));
        break;
    case 3: {
        weft_clear_error();
        if (weft_safetensors_encode(named, 2, &meta, 1, &bytes, &size) == WEFT_OK) {
            garble(a, bytes, size);
            weft_safetensors *f = weft_safetensors_decode(bytes, odd(2) ? size : size / 2);
            Q(weft_safetensors_count(f));
            T("safetensors", weft_safetensors_at(f, INT(a->i[0])));
            T("safetensors", weft_safetensors_get(f, word()));
            S("safetensors_load", weft_safetensors_load(f, named, 2, a->flag[0]));
            weft_safetensors_close(f);
        }
        free(bytes);
        break;
    }
    case 4:
        weft_clear_error();
        if (weft_npy_encode(a->t[0], &bytes, &size) == WEFT_OK) {
            garble(a, bytes, size < 90 ? size : 90); /* the header */
            T("npy", weft_npy_decode(bytes, odd(2) ? size : size / 2));
        }
        free(bytes);
        break;
    case 5: {
        weft_npz *z = weft_npz_open(path);
        Q(weft_npz_count(z));
        T("npz", weft_npz_at(z, INT(a->i[0])));
        T("npz", weft_npz_get(z, word()));
        weft_npz_close(z);
        break;
    }
    default: {
        weft_safetensors *f = weft_safetensors_open(path);
        Q(weft_safetensors_name(f, INT(a->i[0])));
        Q(weft_safetensors_metadata(f, word()));
        S("safetensors_load", weft_safetensors_load(f, named, n < 3 ? n : 2));
        weft_safetensors_close(f);
    }
    }
}

/* Ops that fit whatever comes, one that may not, a read, or a failure of its own. */
static weft_status strange(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    (void)self;
    weft_tensor y = n_in > 0 ? weft_mul(in[0], weft_f(2)) : weft_ones(weft_shape(2), WEFT_F32);
    if (n_in > 1) {
        y = weft_add(y, in[1]);
    }
    if (n_in > 2) {
        Q(weft_item_f64(weft_sum(in[2])));
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = weft_neg(y);
    }
    return n_in > 3 ? WEFT_EINVALID : weft_error_status(y);
}

static void traces(arguments *a)
{
    a->passes_on = true; /* errors are mostly those of the function that is traced */
    weft_jit *j = odd(20) ? NULL : traced;
    weft_graph *g = odd(8) ? NULL : graph, *other;
    weft_tensor out[LIST] = {WEFT_NONE};
    weft_graph_port port;
    weft_graph_dim dim = {INT(a->i[0]), INT(a->i[1]), word()};
    int n_in = odd(8) ? a->n : INT(test_between(&rng, 0, 3)),
        n_out = odd(8) ? INT(a->i[0] % LIST) : 1;
    const weft_tensor *in = odd(20) ? NULL : a->list;
    char bytes[200];
    switch (test_next(&rng) % 8) {
    case 0:
    case 1:
        S("jit_call", weft_jit_call(j, in, n_in, odd(20) ? NULL : out, n_out));
        break;
    case 2:
        weft_clear_error();
        if (weft_jit_begin(odd(20) ? NULL : region) == WEFT_OK) {
            Q(weft_add(a->t[0], a->t[1]));
            S("jit", weft_jit_end(odd(8) ? j : region));
            weft_jit_end(region); /* in case another's was ended above */
        } else {
            judge("jit", weft_last_status(), weft_last_error(), false);
            S("jit_end", weft_jit_end(region));
        }
        break;
    case 3:
        S("graph_run", weft_graph_run(g, in, n_in, odd(20) ? NULL : out, n_out));
        break;
    case 4:
        weft_clear_error();
        other = weft_jit_graph(odd(10) ? NULL : strange, NULL, in, n_in < 3 ? n_in : 2, n_out,
                               word(), NULL, NULL, odd(2) ? NULL : &dim, odd(2));
        judge("graph", other ? WEFT_OK : weft_last_status(), weft_last_error(), true);
        cr_assert(other || weft_last_status() != WEFT_OK);
        weft_graph_free(other);
        break;
    case 5:
        S("graph", weft_graph_input(g, INT(a->i[0]), odd(20) ? NULL : &port));
        S("graph", weft_graph_output(g, INT(a->i[0]), odd(20) ? NULL : &port));
        S("graph", weft_graph_weight(g, INT(a->i[0]), odd(20) ? NULL : &port));
        S("graph", weft_graph_to(g, (weft_device){INT(a->i[0]), INT(a->i[1])}));
        break;
    case 6:
        S("graph_save", weft_graph_save(g, file()));
        weft_clear_error();
        other = weft_graph_load(file());
        judge("graph", other ? WEFT_OK : weft_last_status(), weft_last_error(), true);
        cr_assert(other || weft_last_status() != WEFT_OK);
        weft_graph_free(other);
        break;
    default:
        memset(bytes, (int)test_next(&rng), sizeof bytes);
        weft_clear_error();
        other = weft_graph_decode(odd(20) ? NULL : bytes, odd(2) ? sizeof bytes : 0);
        cr_assert(!other && weft_last_status() != WEFT_OK);
        Q(weft_graph_inputs(g) + weft_graph_outputs(g) + weft_graph_weights(g));
        S("jit", weft_jit_explain(j, NULL));
    }
}

static void open_objects(void)
{
    static weft_nn_linear fc;
    weft_tensor x = weft_ones(weft_shape(2, 3), WEFT_F32);
    snprintf(folder, sizeof folder, "/tmp/weft-calls-......");
    memset(strchr(folder, '.'), 'X', 6);
    cr_assert(mkdtemp(folder));
    module = weft_module_new(NULL);
    cr_assert_eq(weft_nn_linear_init(&fc, module, "fc", 3, 2), WEFT_OK);
    optims[0] = weft_sgd_new(module, 0.1);
    optims[1] = weft_adamw_new(module);
    traced = weft_jit_trace(strange, NULL, "strange");
    region = weft_jit_trace(NULL, NULL, "region");
    graph = weft_jit_graph(strange, NULL, &x, 1);
    cr_assert(module && optims[0] && optims[1] && traced && region && graph, "%s",
              weft_last_error());
}

static void close_objects(void)
{
    weft_graph_free(graph);
    weft_jit_free(region);
    weft_jit_free(traced);
    weft_optim_free(optims[1]);
    weft_optim_free(optims[0]);
    weft_module_free(module);
    for (int i = 0; i < 4; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/file%d", folder, i);
        remove(path);
    }
    rmdir(folder);
}

static void one_call(void *user)
{
    (void)user;
    arguments a;
    weft_scope sc = weft_scope_begin();
    draw(&a);
    switch (test_next(&rng) % 4) {
    case 0:
        modules(&a);
        break;
    case 1:
        optimisers(&a);
        break;
    case 2:
        files(&a);
        break;
    default:
        traces(&a);
    }
    weft_scope_end(sc);
}

Test(invalid_objects, random)
{
    any_name = true;
    const double times = run_seeds(
        5, &(calls){.n = 10000, .open = open_objects, .one = one_call, .close = close_objects});
    cr_assert_gt((double)failures, 50000 * times, "only %lld calls failed", (long long)failures);
    cr_assert_gt((double)successes, 12000 * times, "only %lld calls passed", (long long)successes);
}

static void open_all(void)
{
    open_regions();
    open_objects();
}

static void close_all(void)
{
    close_objects();
    close_regions();
}

/* The same while they are recorded. */
Test(invalid_objects, recorded)
{
    any_name = true;
    recorded.one = one_call;
    const double times =
        run_seeds(5, &(calls){.n = 1000, .open = open_all, .one = in_a_trace, .close = close_all});
    cr_assert_gt((double)failures, 8000 * times, "only %lld calls failed", (long long)failures);
    cr_assert_gt((double)successes, 2000 * times, "only %lld calls passed", (long long)successes);
}
