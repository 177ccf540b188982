/*
 * examples/traced.c -- one function, eager and traced: the same bits, fewer passes over memory.
 *
 * Prints what the compiler made of it (docs/compiler.md walks through that) and the time of both ways.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

typedef struct layer {
    weft_tensor scale, shift;
    double gain;
} layer;

/* in[0]: [rows, 1024]. out[0] = softmax(gelu(x * scale + shift) * gain), over the last axis. */
static weft_status forward(void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const layer *l = self;
    if (n_in != 1 || n_out != 1)
        return WEFT_EINVALID;
    weft_tensor h = weft_gelu(weft_add(weft_mul(in[0], l->scale), l->shift));
    out[0] = weft_softmax(weft_mul(h, weft_f(l->gain)), -1);
    return weft_error_status(out[0]);
}

static double milliseconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* The best of many runs, the results thrown away; j NULL: eagerly. */
static double best(layer *l, weft_jit *j, weft_tensor x)
{
    double least = 1e9;
    for (int i = 0; i < 50; i++) {
        weft_scope s = weft_scope_begin();
        weft_tensor y;
        double t = milliseconds();
        if (j)
            weft_jit_call(j, &x, 1, &y, 1);
        else
            forward(l, &x, 1, &y, 1);
        t = milliseconds() - t;
        least = t < least ? t : least;
        weft_scope_end(s);
    }
    return least;
}

int main(void)
{
    weft_tensor x = weft_randn(weft_shape(1000, 1024), WEFT_F32), eager, traced;
    layer l = {weft_randn(weft_shape(1024), WEFT_F32), weft_randn(weft_shape(1024), WEFT_F32), 1.5};
    weft_set_name(l.scale, "scale"); /* as the compiler's texts name them */
    weft_set_name(l.shift, "shift");
    weft_jit *j = weft_jit_trace(forward, &l, .name = "forward", .synchronous = true);
    forward(&l, &x, 1, &eager, 1);
    if (weft_jit_call(j, &x, 1, &traced, 1) != WEFT_OK ||
        memcmp(weft_data(eager), weft_data(traced), 4 * 1000 * 1024) != 0) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    weft_jit_explain(j, stdout);
    l.gain = 0.5; /* a number is an argument: no new plan, no new kernel */
    printf("eager %.2f ms, traced %.2f ms\n", best(&l, NULL, x), best(&l, j, x));
    weft_jit_free(j);
    return 0;
}
