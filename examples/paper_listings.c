/*
 * examples/paper_listings.c -- the two listings of "PyTorch: An Imperative Style, High-Performance Deep
 * Learning Library" (Paszke et al. 2019) as C programs, on made data.
 *
 * Listing 1: a model is a program; here a convolution, a linear layer of the user's own making, ReLU and
 * softmax, trained to name the quadrant of a picture that is bright. Then once more with one line changed, traced: the same losses.
 * Listing 2: a generative adversarial network is two models and two optimisers; `detach` keeps the
 * discriminator's loss out of the generator. It learns a normal distribution with mean 4 and deviation 0.5.
 *
 * `paper_listings --device cuda` runs the same program on a GPU, its convolutions through cuDNN where that is installed;
 * `--listing 1` runs that one alone.
 * Exits with 1 if a loss does not fall or the generated distribution is not the one that was asked for.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

static void die(const char *what)
{
    fprintf(stderr, "paper_listings: %s: %s\n", what, weft_last_error());
    exit(1);
}

/* -- listing 1 ----------------------------------------------------------------------------------------- */

/* class LinearLayer(Module): w = Parameter(randn(in, out)); b = Parameter(randn(out)); x @ w + b */
typedef struct linear_layer {
    weft_tensor w, b;
} linear_layer;

static linear_layer linear_layer_new(weft_module *m, const char *name, int64_t in, int64_t out)
{
    linear_layer l;
    weft_module_push(m, "%s", name);
    l.w =
        weft_module_parameter(m, "w", weft_randn(weft_shape(in, out), .std = 1 / sqrt((double)in)));
    l.b = weft_module_parameter(m, "b", weft_zeros(weft_shape(out), WEFT_F32));
    weft_module_pop(m);
    return l;
}

static weft_tensor linear_layer_forward(const linear_layer *l, weft_tensor x)
{
    return weft_add(weft_matmul(x, l->w), l->b);
}

/* class FullBasicModel(Module): conv = Conv2d(1, 128, 3); fc = LinearLayer(128, 10) */
typedef struct basic_model {
    weft_nn_conv2d conv;
    linear_layer fc;
} basic_model;

static weft_tensor basic_model_forward(const basic_model *l, weft_tensor x)
{
    weft_tensor t1 = weft_nn_conv2d_forward(&l->conv, x);
    weft_tensor t2 = weft_relu(t1);
    weft_tensor t3 = weft_flatten(weft_avg_pool2d(t2, .kernel = weft_shape(3)), 1, 3);
    weft_tensor t4 = linear_layer_forward(&l->fc, t3);
    return weft_softmax(t4, -1);
}

/* Noise pictures [n, 1, 8, 8] with one brighter quadrant; its number is the label. */
static weft_tensor pictures(int64_t n, weft_tensor *label)
{
    *label = weft_randint(weft_shape(n), 0, 4);
    weft_tensor where = weft_reshape(weft_one_hot(*label, 4, WEFT_F32), weft_shape(n, 1, 2, 2));
    weft_tensor bright = weft_repeat(weft_repeat(where, 4, 2), 4, 3);
    return weft_add(weft_randn(weft_shape(n, 1, 8, 8)), bright);
}

typedef struct training {
    weft_module *m;
    basic_model model;
    weft_optim *sgd;
} training;

/* in: pictures and their labels; out[0]: the loss. */
static weft_status basic_step(void *self, const weft_tensor *in, int n_in, weft_tensor *out,
                              int n_out)
{
    training *t = self;
    if (n_in != 2 || n_out != 1) {
        return WEFT_EINVALID;
    }
    weft_tensor loss = weft_nll_loss(weft_log(basic_model_forward(&t->model, in[0])), in[1]);
    out[0] = weft_detach(loss);
    weft_status bad = weft_module_zero_grad(t->m);
    bad = bad ? bad : weft_backward(loss);
    return bad ? bad : weft_optim_step(t->sgd);
}

static void listing_1(bool traced)
{
    training t = {.m = weft_module_new(NULL)};
    weft_nn_conv2d_init(&t.model.conv, t.m, "conv", 1, 16, 3);
    t.model.fc = linear_layer_new(t.m, "fc", 16 * 2 * 2, 4);
    t.sgd = weft_sgd_new(t.m, 0.2, .momentum = 0.9);
    weft_jit *j = weft_jit_trace(basic_step, &t, .name = "listing_1");
    if (!t.sgd || !j) {
        die("listing 1");
    }
    double first = 0, last = 0;
    for (int step = 0; step < 150; step++) {
        weft_scope s = weft_scope_begin();
        weft_tensor in[2], loss;
        in[0] = pictures(64, &in[1]);
        if (traced ? weft_jit_call(j, in, 2, &loss, 1) : basic_step(&t, in, 2, &loss, 1)) {
            die("listing 1");
        }
        last = step ? 0.9 * last + 0.1 * weft_item_f64(loss) : weft_item_f64(loss);
        first = step ? first : last;
        weft_scope_end(s);
    }
    printf("listing 1%s: convolution and linear layer: loss %.6f -> %.6f\n",
           traced ? ", traced" : "", first, last);
    weft_jit_free(j);
    weft_optim_free(t.sgd);
    weft_module_free(t.m);
    if (!(last < 0.5 * first)) {
        die("listing 1: the loss did not fall");
    }
}

/* -- listing 2 ----------------------------------------------------------------------------------------- */

typedef struct mlp {
    weft_nn_linear a, b, c;
} mlp;

static weft_module *mlp_new(mlp *l, int64_t in)
{
    weft_module *m = weft_module_new(NULL);
    weft_nn_linear_init(&l->a, m, "a", in, 32);
    weft_nn_linear_init(&l->b, m, "b", 32, 32);
    weft_nn_linear_init(&l->c, m, "c", 32, 1);
    return m;
}

static weft_tensor mlp_forward(const mlp *l, weft_tensor x)
{
    weft_tensor slope = weft_f(0.2);
    weft_tensor h = weft_leaky_relu(weft_nn_linear_forward(&l->a, x), slope);
    h = weft_leaky_relu(weft_nn_linear_forward(&l->b, h), slope);
    return weft_nn_linear_forward(&l->c, h);
}

enum { BATCH = 128, NOISE = 4 };

/* def step(real_sample): one update of the discriminator, one of the generator. */
static void gan_step(const mlp *discriminator, weft_module *md, weft_optim *optim_d,
                     const mlp *generator, weft_module *mg, weft_optim *optim_g, double loss[2])
{
    weft_scope s = weft_scope_begin();
    weft_tensor real_sample = weft_randn(weft_shape(BATCH, 1), .mean = 4, .std = 0.5);
    weft_tensor real_label = weft_ones(weft_shape(BATCH, 1), WEFT_F32);
    weft_tensor fake_label = weft_zeros(weft_shape(BATCH, 1), WEFT_F32);
    /* (1) the discriminator: real samples are real, fakes are fake; detach stops at the fakes */
    weft_module_zero_grad(md);
    weft_tensor real = mlp_forward(discriminator, real_sample);
    weft_tensor err_real = weft_bce_with_logits(real, real_label);
    weft_tensor fake = mlp_forward(generator, weft_randn(weft_shape(BATCH, NOISE)));
    weft_tensor judged = mlp_forward(discriminator, weft_detach(fake));
    weft_tensor err_fake = weft_bce_with_logits(judged, fake_label);
    weft_tensor err_d = weft_add(err_real, err_fake);
    if (weft_backward(err_d) != WEFT_OK || weft_optim_step(optim_d) != WEFT_OK) {
        die("listing 2, discriminator");
    }
    /* (2) the generator: its fakes should pass for real ones */
    weft_module_zero_grad(mg);
    weft_tensor err_g = weft_bce_with_logits(mlp_forward(discriminator, fake), real_label);
    if (weft_backward(err_g) != WEFT_OK || weft_optim_step(optim_g) != WEFT_OK) {
        die("listing 2, generator");
    }
    loss[0] = weft_item_f64(err_d);
    loss[1] = weft_item_f64(err_g);
    weft_scope_end(s);
}

static void listing_2(void)
{
    mlp discriminator, generator;
    weft_module *md = mlp_new(&discriminator, 1), *mg = mlp_new(&generator, NOISE);
    weft_optim *optim_d = weft_adamw_new(md, 2e-3, .beta1 = 0.5, .weight_decay = WEFT_ZERO);
    weft_optim *optim_g = weft_adamw_new(mg, 1e-3, .beta1 = 0.5, .weight_decay = WEFT_ZERO);
    if (!optim_d || !optim_g) {
        die("listing 2");
    }
    double loss[2], first = 0;
    for (int step = 0; step < 1500; step++) {
        gan_step(&discriminator, md, optim_d, &generator, mg, optim_g, loss);
        first = step == 20 ? loss[1] : first;
    }
    weft_no_grad_begin();
    weft_tensor fake = mlp_forward(&generator, weft_randn(weft_shape(4096, NOISE)));
    double mean = weft_item_f64(weft_mean(fake)), std = weft_item_f64(weft_std(fake));
    weft_no_grad_end();
    printf("listing 2: GAN: discriminator loss %.3f, generator loss %.3f -> %.3f; samples have "
           "mean %.2f, "
           "deviation %.2f (asked for: 4, 0.5)\n",
           loss[0], first, loss[1], mean, std);
    weft_optim_free(optim_d);
    weft_optim_free(optim_g);
    weft_module_free(md);
    weft_module_free(mg);
    if (!(fabs(mean - 4) < 0.5 && std > 0.1 && std < 1.2)) {
        die("listing 2: the samples are not distributed as asked");
    }
}

int main(int argc, char **argv)
{
    weft_device where =
        WEFT_CPU; /* everything is made there; nothing else of the program changes */
    const char *only = "";
    for (int i = 1; i < argc; i += 2) {
        const bool listing = strcmp(argv[i], "--listing") == 0;
        only = i + 1 < argc && listing ? argv[i + 1] : only;
        if (i + 1 == argc ||
            (listing ? !strchr("12", *only) || strlen(only) != 1
                     : strcmp(argv[i], "--device") != 0 ||
                           weft_device_from_name(argv[i + 1], &where) != WEFT_OK)) {
            die("usage: paper_listings [--device cpu|cuda] [--listing 1|2]");
        }
    }
    if (weft_set_default_device(where) != WEFT_OK) {
        die("--device");
    }
    for (int traced = 0; traced < 2 && *only != '2'; traced++) {
        weft_manual_seed(2);
        listing_1(traced);
    }
    if (*only == '2') {
        weft_manual_seed(2);
    }
    if (*only != '1') {
        listing_2();
    }
    return weft_leak_report(stderr) == 0 ? 0 : 1;
}
