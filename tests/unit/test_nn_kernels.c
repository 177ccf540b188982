/*
 * tests/unit/test_nn_kernels.c -- matmul, linear, conv2d, pooling and attention against plain loops.
 *
 * Bounds are derived, not tuned. u is the unit roundoff of the compute type: a sum of k products in
 * any order is off by at most about (k + 2) u times the sum of their magnitudes; storing in a half
 * type adds its own u once. References run in double, f64 results in long double.
 *
 * ctest: threads reckons
 */
#include "row_case.h"

#include "eager/cpuid.h"
#include "eager/kernels/sdpa.h"

WF_EXEC_DECL(matmul);
WF_EXEC_DECL(linear);
WF_EXEC_DECL(conv2d);
WF_EXEC_DECL(conv2d_dx);
WF_EXEC_DECL(conv2d_dw);
WF_EXEC_DECL(pool2d);
WF_EXEC_DECL(avg_pool2d_bwd);
WF_EXEC_DECL(sdpa);
WF_EXEC_DECL(sdpa_bwd);

typedef long double wide;

static const int float_types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16};

static double roundoff(int dt)
{
    return wf_dtype_compute(dt) == WEFT_F64 ? 0x1p-53 : 0x1p-24;
}
/* Rounding of the stored result, with f16's smallest step. */
static double stored(int dt, double x)
{
    x = fabs(x);
    return dt == WEFT_F16 ? x * 0x1p-11 + 0x1p-25 : dt == WEFT_BF16 ? x * 0x1p-8 : 0;
}
/* An exact value with the sum of magnitudes behind it. */
typedef struct sum {
    wide value, size;
} sum;
static void sum_add(sum *s, double a, double b)
{
    s->value += (wide)a * b;
    s->size += fabsl((wide)a * b);
}
static void near(double have, wide want, double bound, int dt, const char *what, int64_t i)
{
    double limit = bound + stored(dt, (double)want + bound);
    cr_assert(fabsl((wide)have - want) <= (wide)limit,
              "%s, %s, element %" PRId64 ": %.9g, not %.9g (bound %.3g)", what, wf_dtype_name(dt),
              i, have, (double)want, limit);
}
static double get_at(const tensor *t, const int64_t *index)
{
    return load(at_index(&t->v, index), t->v.dtype);
}

/* -- matmul and linear ------------------------------------------------------------------------------- */
static void check_matmul(int dt, int ra, const int64_t *da, int rb, const int64_t *db, int mode)
{
    tensor src[2] = {random_tensor(dt, ra, da, mode & 1), random_tensor(dt, rb, db, mode & 2)}, dst;
    must_run(wf_exec_matmul, WF_OP_MATMUL, NULL, 2, src, &dst);
    int64_t k = da[ra - 1], n = wf_view_numel(&dst.v), ia[16], ib[16], io[16];
    for (int64_t i = 0; i < n; i++) {
        unravel(i, &dst.v, io);
        int batch = dst.v.rank - (ra > 1) - (rb > 1);
        for (int d = 0; d < ra - 2; d++) {
            ia[d] = da[d] == 1 ? 0 : io[batch - (ra - 2) + d];
        }
        for (int d = 0; d < rb - 2; d++) {
            ib[d] = db[d] == 1 ? 0 : io[batch - (rb - 2) + d];
        }
        if (ra > 1) {
            ia[ra - 2] = io[batch];
        }
        if (rb > 1) {
            ib[rb - 1] = io[dst.v.rank - 1];
        }
        sum s = {0, 0};
        for (int64_t j = 0; j < k; j++) {
            ia[ra - 1] = j;
            ib[rb > 1 ? rb - 2 : 0] = j;
            sum_add(&s, get_at(&src[0], ia), get_at(&src[1], ib));
        }
        if (wf_dtype_kind(dt) == 1) {
            int64_t bits = (int64_t)s.value; /* small enough to be exact; the result wraps */
            tensor want = make1(WEFT_I64, 1);
            ((int64_t *)want.mem)[0] = bits;
            cr_assert(memcmp(at(&dst.v, i), want.mem, wf_dtype_size(dt)) == 0);
            drop(&want);
        } else {
            near(get(&dst, i), s.value, (double)(k + 2) * roundoff(dt) * (double)s.size, dt,
                 "matmul", i);
        }
    }
    drop(&src[0]);
    drop(&src[1]);
    drop(&dst);
}

Test(nn, matmul)
{
    static const int types[] = {WEFT_F32, WEFT_F64, WEFT_BF16, WEFT_F16, WEFT_I32,
                                WEFT_I64, WEFT_U8,  WEFT_I8,   WEFT_I16};
    for (int trial = 0; trial < 450; trial++) {
        int64_t batch[3], da[5], db[5];
        int nb = (int)between(0, 3), ra = 0, rb = 0;
        int64_t m = between(0, 9), k = between(0, 19), n = between(0, 9);
        for (int i = 0; i < nb; i++) {
            batch[i] = between(1, 3);
        }
        int skip_a = (int)between(0, nb), skip_b = (int)between(0, nb);
        for (int i = skip_a; i < nb; i++) {
            da[ra++] = between(0, 2) ? batch[i] : 1;
        }
        for (int i = skip_b; i < nb; i++) {
            db[rb++] = between(0, 2) ? batch[i] : 1;
        }
        if (ra > 0 || between(0, 4)) {
            da[ra++] = m;
        }
        da[ra++] = k;
        db[rb++] = k;
        if (rb > 1 || between(0, 4)) {
            db[rb++] = n;
        }
        check_matmul(types[trial % 9], ra, da, rb, db, trial / 9);
    }
    check_matmul(WEFT_F32, 3, (int64_t[]){3, 65, 130}, 2, (int64_t[]){130, 70}, 0);
    check_matmul(WEFT_F32, 4, (int64_t[]){2, 3, 33, 40}, 4, (int64_t[]){2, 1, 40, 50}, 3);
}

Test(nn, linear)
{
    for (int trial = 0; trial < 240; trial++) {
        int dt = float_types[trial % 4];
        int64_t dx[4], rank = between(1, 4), in = between(0, 33), out = between(0, 20);
        for (int i = 0; i < rank; i++) {
            dx[i] = between(1, 5);
        }
        dx[rank - 1] = in;
        tensor src[3] = {random_tensor(dt, (int)rank, dx, trial & 4),
                         random_tensor(dt, 2, (int64_t[]){out, in}, trial & 8),
                         random_tensor(dt, 1, &out, trial & 16)};
        int nsrc = trial & 32 ? 2 : 3;
        tensor dst;
        must_run(wf_exec_linear, WF_OP_LINEAR, NULL, nsrc, src, &dst);
        int64_t n = wf_view_numel(&dst.v);
        for (int64_t i = 0; i < n; i++) {
            sum s = {0, 0};
            for (int64_t j = 0; j < in; j++) {
                sum_add(&s, get(&src[0], i / out * in + j), get(&src[1], i % out * in + j));
            }
            if (nsrc == 3) {
                sum_add(&s, get(&src[2], i % out), 1);
            }
            /* one storage rounding, bias or not */
            near(get(&dst, i), s.value, (double)(in + 3) * roundoff(dt) * (double)s.size, dt,
                 "linear", i);
        }
        for (int i = 0; i < 3; i++) {
            drop(&src[i]);
        }
        drop(&dst);
    }
}

/* -- convolution --------------------------------------------------------------------------------------- */
typedef struct conv_case {
    int64_t n, c, h, w, o, kh, kw, groups, stride[2], pad[2], dil[2], oh, ow;
} conv_case;

static int64_t extent_out(int64_t n, int64_t k, int64_t s, int64_t p, int64_t d)
{
    return (n + 2 * p - d * (k - 1) - 1) / s + 1;
}
static bool random_conv(conv_case *k)
{
    k->groups = between(1, 3);
    k->n = between(1, 2);
    k->c = k->groups * between(1, 3);
    k->o = k->groups * between(1, 3);
    k->h = between(1, 8);
    k->w = between(1, 8);
    k->kh = between(1, 3);
    k->kw = between(1, 3);
    for (int i = 0; i < 2; i++) {
        k->stride[i] = between(1, 3);
        k->pad[i] = between(0, 2);
        k->dil[i] = between(1, 2);
    }
    k->oh = extent_out(k->h, k->kh, k->stride[0], k->pad[0], k->dil[0]);
    k->ow = extent_out(k->w, k->kw, k->stride[1], k->pad[1], k->dil[1]);
    return k->h + 2 * k->pad[0] > k->dil[0] * (k->kh - 1) &&
           k->w + 2 * k->pad[1] > k->dil[1] * (k->kw - 1);
}

/* Calls visit for every product x[xi] w[wi] that goes into y[yi] (row-major numbers). */
typedef void (*visit_fn)(void *arg, int64_t xi, int64_t wi, int64_t yi);
static void each_product(const conv_case *k, visit_fn visit, void *arg)
{
    int64_t cg = k->c / k->groups, og = k->o / k->groups;
    for (int64_t y = 0, total = k->n * k->o * k->oh * k->ow; y < total; y++) {
        int64_t ow = y % k->ow, oh = y / k->ow % k->oh, o = y / k->ow / k->oh % k->o;
        int64_t b = y / k->ow / k->oh / k->o;
        for (int64_t r = 0; r < cg * k->kh * k->kw; r++) {
            int64_t j = r % k->kw, i = r / k->kw % k->kh, c = r / k->kw / k->kh;
            int64_t h = oh * k->stride[0] - k->pad[0] + i * k->dil[0];
            int64_t w = ow * k->stride[1] - k->pad[1] + j * k->dil[1];
            if (h >= 0 && h < k->h && w >= 0 && w < k->w) {
                int64_t channel = o / og * cg + c;
                visit(arg, ((b * k->c + channel) * k->h + h) * k->w + w, o * cg * k->kh * k->kw + r,
                      y);
            }
        }
    }
}
typedef struct conv_sums {
    const tensor *x, *w, *g;
    sum *y, *dx, *dw;
} conv_sums;
static void visit_product(void *arg, int64_t xi, int64_t wi, int64_t yi)
{
    conv_sums *s = arg;
    sum_add(&s->y[yi], get(s->x, xi), get(s->w, wi));
    sum_add(&s->dx[xi], get(s->g, yi), get(s->w, wi));
    sum_add(&s->dw[wi], get(s->g, yi), get(s->x, xi));
}
static void check_sums(const tensor *t, const sum *s, int64_t terms, const char *what)
{
    for (int64_t i = 0, n = wf_view_numel(&t->v); i < n; i++) {
        double bound = (double)(terms + 3) * roundoff(t->v.dtype) * (double)s[i].size;
        near(get(t, i), s[i].value, bound, t->v.dtype, what, i);
    }
}

/* mode: strided operands, or activations channels-last. */
static tensor activation(int dt, const int64_t *dims, int mode)
{
    if (mode % 3 != 2) {
        return random_tensor(dt, 4, dims, mode % 3);
    }
    tensor t = random_tensor(dt, 4, (int64_t[]){dims[0], dims[2], dims[3], dims[1]}, false);
    wf_view v = t.v;
    static const int from[4] = {0, 3, 1, 2};
    for (int i = 0; i < 4; i++) {
        t.v.dims[i] = v.dims[from[i]];
        t.v.strides[i] = v.strides[from[i]];
    }
    return t;
}

Test(nn, conv2d_and_gradients)
{
    for (int trial = 0; trial < 160; trial++) {
        conv_case k;
        if (!random_conv(&k)) {
            continue;
        }
        int dt = float_types[trial % 4];
        const int64_t xd[4] = {k.n, k.c, k.h, k.w}, wd[4] = {k.o, k.c / k.groups, k.kh, k.kw};
        const int64_t yd[4] = {k.n, k.o, k.oh, k.ow};
        tensor src[3] = {activation(dt, xd, trial / 4), random_tensor(dt, 4, wd, trial & 8),
                         random_tensor(dt, 1, &k.o, false)};
        tensor g = activation(dt, yd, trial / 8), y, dx, dw;
        int64_t nx = wf_view_numel(&src[0].v), nw = wf_view_numel(&src[1].v),
                ny = wf_view_numel(&g.v);
        conv_sums s = {.x = &src[0], .w = &src[1], .g = &g};
        s.y = calloc((size_t)ny + 1, sizeof(sum));
        s.dx = calloc((size_t)nx + 1, sizeof(sum));
        s.dw = calloc((size_t)nw + 1, sizeof(sum));
        each_product(&k, visit_product, &s);
        int64_t ints[7] = {k.stride[0], k.stride[1], k.pad[0], k.pad[1],
                           k.dil[0],    k.dil[1],    k.groups};
        wf_attr attr = {.n_ints = 7, .ints = ints};
        int nsrc = trial & 16 ? 3 : 2;
        for (int64_t i = 0; nsrc == 3 && i < ny; i++) {
            sum_add(&s.y[i], get(&src[2], i / (k.oh * k.ow) % k.o), 1);
        }
        must_run(wf_exec_conv2d, WF_OP_CONV2D, &attr, nsrc, src, &y);
        /* A back end may transform: its terms are counted generously, by the whole reduction. */
        check_sums(&y, s.y, 4 * k.c * k.kh * k.kw, "conv2d");
        wf_attr adx = {.n_ints = 7, .ints = ints, DYN(k.h, k.w)};
        must_run(wf_exec_conv2d_dx, WF_OP_CONV2D_DX, &adx, 2, (tensor[]){g, src[1]}, &dx);
        check_sums(&dx, s.dx, 4 * k.o * k.kh * k.kw, "conv2d_dx");
        wf_attr adw = {.n_ints = 7, .ints = ints, DYN(k.kh, k.kw)};
        must_run(wf_exec_conv2d_dw, WF_OP_CONV2D_DW, &adw, 2, (tensor[]){g, src[0]}, &dw);
        check_sums(&dw, s.dw, 4 * k.n * k.oh * k.ow, "conv2d_dw");
        tensor *all[] = {&src[0], &src[1], &src[2], &g, &y, &dx, &dw};
        for (int i = 0; i < 7; i++) {
            drop(all[i]);
        }
        free(s.y);
        free(s.dx);
        free(s.dw);
    }
}

/* -- pooling ------------------------------------------------------------------------------------------- */
static int64_t pool_extent(int64_t n, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil)
{
    int64_t room = n + 2 * p - d * (k - 1) - 1, out = room / s + 1;
    return ceil && room % s && out * s - p < n ? out + 1 : out;
}

static void check_pool(int dt, int trial)
{
    const bool many = trial % 11 == 0; /* more columns than are taken at once */
    int64_t d[4] = {between(1, 2), between(1, 3), between(3, 9),
                    many ? between(250, 600) : between(3, 9)},
            k[2], s[2], p[2], dil[2];
    bool max = trial & 1, ceil = trial & 2, count = trial & 4;
    for (int i = 0; i < 2; i++) {
        k[i] = between(1, 3);
        s[i] = between(1, 3);
        p[i] = between(0, k[i] / 2);
        dil[i] = max && d[2 + i] > 4 ? between(1, 2) : 1;
        if (ceil && !many &&
            between(0, 4) == 0) { /* larger than the padded input: one window, cut off */
            k[i] = s[i] = d[2 + i] + 2 * p[i] + between(1, 2);
            dil[i] = 1;
        }
    }
    tensor x = random_tensor(dt, 4, d, trial & 8), dst[2], dx;
    for (int64_t i = 0; max && i < wf_view_numel(&x.v); i++) { /* ties and NaN */
        double v = (double)between(0, 5);
        put(&x, i, wf_dtype_kind(dt) == 2 && between(0, 12) == 0 ? NAN : v);
    }
    int64_t ints[8] = {k[0], k[1], s[0], s[1], p[0], p[1], dil[0], dil[1]};
    wf_attr attr = {.n_ints = max ? 8 : 6,
                    .ints = ints,
                    .flags = (uint8_t)((ceil ? 1 : 0) | (count && !max ? 2 : 0))};
    must_run(wf_exec_pool2d, max ? WF_OP_MAX_POOL2D : WF_OP_AVG_POOL2D, &attr, 1, &x, dst);
    int64_t oh = pool_extent(d[2], k[0], s[0], p[0], dil[0], ceil);
    int64_t ow = pool_extent(d[3], k[1], s[1], p[1], dil[1], ceil);
    cr_assert(dst[0].v.dims[2] == oh && dst[0].v.dims[3] == ow);
    tensor g = random_tensor(dt, 4, (int64_t[]){d[0], d[1], oh, ow}, trial & 16);
    sum *back = calloc((size_t)wf_view_numel(&x.v), sizeof *back);
    for (int64_t i = 0, n = wf_view_numel(&dst[0].v); i < n; i++) {
        int64_t plane = i / (oh * ow), r = i / ow % oh, c = i % ow, best = -1;
        sum total = {0, 0};
        int64_t inside = 0, padded = 0;
        for (int64_t a = 0; a < k[0] * k[1]; a++) {
            int64_t h = r * s[0] - p[0] + a / k[1] * dil[0],
                    w = c * s[1] - p[1] + a % k[1] * dil[1];
            padded += h < d[2] + p[0] && w < d[3] + p[1];
            if (h < 0 || h >= d[2] || w < 0 || w >= d[3]) {
                continue;
            }
            int64_t xi = plane * d[2] * d[3] + h * d[3] + w;
            double v = get(&x, xi), top = best < 0 ? 0 : get(&x, plane * d[2] * d[3] + best);
            if (best < 0 || v > top || (isnan(v) && !isnan(top))) {
                best = h * d[3] + w;
            }
            sum_add(&total, v, 1);
            inside++;
        }
        if (max) {
            cr_assert_eq(((int64_t *)dst[1].mem)[i], best);
            cr_assert(memcmp(at(&dst[0].v, i), at(&x.v, plane * d[2] * d[3] + best),
                             wf_dtype_size(dt)) == 0);
            continue;
        }
        double divisor = (double)(count ? padded : inside);
        near(get(&dst[0], i), total.value / (wide)divisor,
             12 * roundoff(dt) * (double)total.size / divisor, dt, "avg_pool2d", i);
        for (int64_t a = 0; a < k[0] * k[1]; a++) {
            int64_t h = r * s[0] - p[0] + a / k[1], w = c * s[1] - p[1] + a % k[1];
            if (h >= 0 && h < d[2] && w >= 0 && w < d[3]) {
                sum_add(&back[plane * d[2] * d[3] + h * d[3] + w], get(&g, i) / divisor, 1);
            }
        }
    }
    if (!max) {
        wf_attr b = {.n_ints = 6, .ints = ints, .flags = attr.flags, DYN(d[2], d[3])};
        must_run(wf_exec_avg_pool2d_bwd, WF_OP_AVG_POOL2D_BWD, &b, 1, &g, &dx);
        check_sums(&dx, back, 12, "avg_pool2d_bwd");
        drop(&dx);
    } else {
        drop(&dst[1]);
    }
    free(back);
    drop(&dst[0]);
    drop(&x);
    drop(&g);
}

Test(nn, pooling)
{
    static const int ints[] = {WEFT_U8, WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    for (int trial = 0; trial < 400; trial++) {
        bool whole = (trial & 1) && trial % 5 == 0;
        check_pool(whole ? ints[trial / 10 % 5] : float_types[trial / 2 % 4], trial);
    }
}

/* -- attention ----------------------------------------------------------------------------------------- */
typedef struct attend {
    int dt, mask; /* 0 none, 1 bool, 2 added */
    bool causal;
    double scale;
    int64_t batch, l, s, e, ev; /* operands are [batch or 1][..] */
    tensor src[7];              /* g q k v out lse mask, as SDPA_BWD takes them */
} attend;

static double operand(const attend *c, int which, int64_t b, int64_t i, int64_t j)
{
    const tensor *t = &c->src[which];
    const int64_t index[3] = {t->v.dims[0] == 1 ? 0 : b, t->v.dims[1] == 1 ? 0 : i,
                              t->v.dims[2] == 1 ? 0 : j};
    return get_at(t, index);
}
/* Exact score of query i and key j, -inf where masked; *slack bounds the kernel's error. */
static double score(const attend *c, int64_t b, int64_t i, int64_t j, double *slack)
{
    sum s = {0, 0};
    for (int64_t x = 0; x < c->e; x++) {
        sum_add(&s, operand(c, 1, b, i, x), operand(c, 2, b, j, x));
    }
    double v = (double)s.value * c->scale, m = c->mask ? operand(c, 6, b, i, j) : 0;
    *slack = ((double)(c->e + 4) * (double)s.size * fabs(c->scale) + 2 * fabs(m)) * roundoff(c->dt);
    if ((c->causal && j > i) || (c->mask == 1 && m == 0)) {
        return -INFINITY;
    }
    return c->mask == 2 ? v + m : v;
}

/* Row i of the probabilities; returns logsumexp. *eps: relative error the kernel may make in each. */
static double row_of(const attend *c, int64_t b, int64_t i, double *p, double *eps)
{
    double top = -INFINITY, total = 0, worst = 0;
    for (int64_t j = 0; j < c->s; j++) {
        double slack;
        p[j] = score(c, b, i, j, &slack);
        top = fmax(top, p[j]);
        worst = p[j] > -INFINITY ? fmax(worst, slack) : worst;
    }
    for (int64_t j = 0; j < c->s; j++) {
        p[j] = top == -INFINITY ? 0 : exp(p[j] - top);
        total += p[j];
    }
    for (int64_t j = 0; j < c->s; j++) {
        p[j] = total > 0 ? p[j] / total : 0;
    }
    /* both the score and the maximum (or the saved logsumexp) carry the slack; exp, the sum and the
     * rescaling of each block of keys add roundings; subtraction rounds relative to its operands */
    double u = roundoff(c->dt), lse = total > 0 ? top + log(total) : -INFINITY;
    double extent = total > 0 ? fabs(top) + fabs(lse) : 0;
    *eps = 2 * worst + ((double)c->s + 40 + 4 * extent) * u;
    return lse;
}

static void check_attention(attend *c)
{
    wf_attr attr = {.flags = c->causal ? WF_FLAG_CAUSAL : 0, .n_flt = 1, .flt = &c->scale};
    tensor in[4] = {c->src[1], c->src[2], c->src[3], c->src[6]}, out[2], grad[3];
    int nsrc = c->mask ? 4 : 3;
    must_run(wf_exec_sdpa, WF_OP_SDPA, &attr, nsrc, in, out);
    c->src[4] = out[0];
    c->src[5] = out[1];
    must_run(wf_exec_sdpa_bwd, WF_OP_SDPA_BWD, &attr, c->mask ? 7 : 6, c->src, grad);
    int64_t dims[3][3];
    sum *want[3];
    double *slop[3];
    for (int g = 0; g < 3; g++) {
        memcpy(dims[g], grad[g].v.dims, sizeof dims[g]);
        int64_t n = wf_view_numel(&grad[g].v) + 1;
        want[g] = calloc((size_t)n, sizeof(sum));
        slop[g] = calloc((size_t)n, sizeof(double));
    }
    double *p = calloc((size_t)c->s + 1, sizeof *p), u = roundoff(c->dt);
    for (int64_t r = 0; r < c->batch * c->l; r++) {
        int64_t b = r / c->l, i = r % c->l;
        double eps, lse = row_of(c, b, i, p, &eps), have = get(&out[1], r), dot = 0, dot_size = 0;
        cr_assert(lse == have || fabs(have - lse) <= eps + 8 * u * fabs(lse),
                  "logsumexp %g, not %g", have, lse);
        for (int64_t x = 0; x < c->ev; x++) {
            sum s = {0, 0};
            for (int64_t j = 0; j < c->s; j++) {
                sum_add(&s, p[j], operand(c, 3, b, j, x));
            }
            near(get(&out[0], r * c->ev + x), s.value, eps * (double)s.size, c->dt, "sdpa",
                 r * c->ev + x);
            double g = operand(c, 0, b, i, x);
            dot += g * (double)s.value;
            dot_size += fabs(g) * (double)s.size;
        }
        for (int64_t j = 0; j < c->s; j++) {
            sum dp = {0, 0};
            int64_t jv = (dims[2][0] == 1 ? 0 : b) * c->s + j,
                    jk = (dims[1][0] == 1 ? 0 : b) * c->s + j;
            int64_t iq = (dims[0][0] == 1 ? 0 : b) * c->l + i;
            for (int64_t x = 0; x < c->ev; x++) {
                double g = operand(c, 0, b, i, x), v = operand(c, 3, b, j, x);
                sum_add(&dp, g, v);
                sum_add(&want[2][jv * c->ev + x], p[j], g);
                slop[2][jv * c->ev + x] += eps * p[j] * fabs(g);
            }
            double ds = p[j] * ((double)dp.value - dot) * c->scale;
            double size = (double)dp.size + dot_size;
            double half = c->dt == WEFT_BF16 ? 0x1p-8 : c->dt == WEFT_F16 ? 0x1p-11 : 0;
            double wrong =
                p[j] * fabs(c->scale) * size * (2 * eps + (double)(c->ev + 8) * u + half);
            if (half > 0) { /* f16 outputs below its normal range are off by its step */
                wrong += p[j] * fabs(c->scale) * (double)c->ev * 0x1p-25;
            }
            for (int64_t x = 0; x < c->e; x++) {
                double k = operand(c, 2, b, j, x), q = operand(c, 1, b, i, x);
                sum_add(&want[0][iq * c->e + x], ds, k);
                sum_add(&want[1][jk * c->e + x], ds, q);
                slop[0][iq * c->e + x] += wrong * fabs(k);
                slop[1][jk * c->e + x] += wrong * fabs(q);
            }
        }
    }
    static const char *const names[3] = {"dq", "dk", "dv"};
    for (int g = 0; g < 3; g++) {
        for (int64_t i = 0, n = wf_view_numel(&grad[g].v); i < n; i++) {
            double terms = (double)((c->l + c->s) * c->batch + 8);
            double bound = slop[g][i] + terms * u * ((double)want[g][i].size + slop[g][i]);
            near(get(&grad[g], i), want[g][i].value, bound, c->dt, names[g], i);
        }
        free(want[g]);
        free(slop[g]);
        drop(&grad[g]);
    }
    free(p);
    same_at_any_thread_count(wf_exec_sdpa, WF_OP_SDPA, &attr, nsrc, in);
    same_at_any_thread_count(wf_exec_sdpa_bwd, WF_OP_SDPA_BWD, &attr, c->mask ? 7 : 6, c->src);
    drop(&out[0]);
    drop(&out[1]);
}

static void attention_case(int dt, int64_t l, int64_t s, int64_t e, int64_t ev, int trial)
{
    attend c = {.dt = dt, .l = l, .s = s, .e = e, .ev = ev, .batch = between(1, 4)};
    c.mask = trial % 3;
    c.causal = trial & 1;
    c.scale = 1 / sqrt((double)e);
    int64_t one_q = between(0, 3) ? c.batch : 1, one_k = between(0, 3) ? c.batch : 1;
    if (one_q == 1 && one_k == 1) {
        c.batch = 1;
    }
    const int64_t dims[4][3] = {{c.batch, l, ev}, {one_q, l, e}, {one_k, s, e}, {one_k, s, ev}};
    for (int i = 0; i < 4; i++) {
        c.src[i] = random_tensor(dt, 3, dims[i], trial & (1 << i));
    }
    const int64_t md[3] = {between(0, 1) ? c.batch : 1, between(0, 1) ? l : 1,
                           between(0, 5) ? s : 1};
    if (c.mask) {
        c.src[6] = random_tensor(c.mask == 1 ? WEFT_BOOL : dt, 3, md, trial & 16);
    }
    check_attention(&c);
    for (int i = 0; i < 4; i++) {
        drop(&c.src[i]);
    }
    if (c.mask) {
        drop(&c.src[6]);
    }
}

Test(nn, attention)
{
    for (int trial = 0; trial < 120; trial++) {
        attention_case(float_types[trial % 4], between(1, 9), between(0, 12), between(1, 9),
                       between(0, 9), trial / 4);
    }
    for (int trial = 0; trial < 8; trial++) { /* several blocks of queries and keys */
        attention_case(float_types[trial % 4], between(100, 270), between(100, 300), 16, 12, trial);
    }
}

/* Queries without keys give exactly 0 and -inf, and no NaN reaches a gradient. */
Test(nn, attention_fully_masked)
{
    const int64_t d[3] = {2, 3, 4}, md[2] = {3, 3};
    tensor src[7], out[2], grad[3];
    for (int i = 0; i < 4; i++) {
        src[i] = random_tensor(WEFT_F32, 3, d, false);
    }
    src[6] = make(WEFT_BOOL, 2, md, false);
    for (int64_t i = 0; i < 9; i++) {
        put(&src[6], i, i / 3 != 1);
    }
    wf_attr attr = {FLT(0.5)};
    tensor in[4] = {src[1], src[2], src[3], src[6]};
    must_run(wf_exec_sdpa, WF_OP_SDPA, &attr, 4, in, out);
    src[4] = out[0];
    src[5] = out[1];
    must_run(wf_exec_sdpa_bwd, WF_OP_SDPA_BWD, &attr, 7, src, grad);
    for (int64_t i = 0; i < 24; i++) {
        bool dead = i / 4 % 3 == 1;
        cr_assert(!dead || (get(&out[0], i) == 0 && get(&grad[0], i) == 0));
        cr_assert(dead || get(&out[0], i) != 0);
        for (int g = 0; g < 3; g++) {
            cr_assert(isfinite(get(&grad[g], i)));
        }
    }
    cr_assert_eq(get(&out[1], 1), -INFINITY);
    for (int i = 0; i < 7; i++) {
        drop(&src[i]);
    }
    for (int g = 0; g < 3; g++) {
        drop(&grad[g]);
    }
}

/* The inner loops give the same bits on every instruction set. */
Test(nn, attention_kernels_agree_between_instruction_sets)
{
    static const wf_sdpa_kernels *const f32[] = {&wf_sdpa_f32_sse2, &wf_sdpa_f32_avx2,
                                                 &wf_sdpa_f32_avx512};
    static const wf_sdpa_kernels *const f64[] = {&wf_sdpa_f64_sse2, &wf_sdpa_f64_avx2,
                                                 &wf_sdpa_f64_avx512};
    enum { ROWS = 7, LD = 208, SPACE = ROWS * LD };
    static const double odd[] = {-INFINITY, INFINITY, NAN, -30, -31, -32,
                                 -34,       -34.7,    -40, 29,  -0.0};
    uint8_t keep[SPACE];
    for (int i = 0; i < SPACE; i++) {
        keep[i] = (uint8_t)(i * 7 % 5 != 0);
    }
    for (int trial = 0; trial < 128; trial++) {
        int dt = trial & 1 ? WEFT_F64 : WEFT_F32;
        const int64_t n = SPACE, rows = ROWS;
        tensor s = random_tensor(dt, 1, &n, false), bias = random_tensor(dt, 1, &n, false);
        tensor dp = random_tensor(dt, 1, &n, false), base = random_tensor(dt, 1, &rows, false);
        tensor first[6];
        for (int isa = 0; isa <= wf_isa(); isa++) {
            const wf_sdpa_kernels *k = (dt == WEFT_F64 ? f64 : f32)[isa];
            tensor t[6] = {make1(dt, n),    make1(dt, n),    make1(dt, rows),
                           make1(dt, rows), make1(dt, rows), make1(dt, rows)};
            wf_sdpa_block b = {.s = t[0].mem,
                               .bias = trial & 2 ? bias.mem : NULL,
                               .keep = (trial & 66) == 64 ? keep : NULL,
                               .mask_rs = trial & 4 ? LD : 0,
                               .rows = ROWS,
                               .cols = LD - 7,
                               .ld = LD,
                               .limit = trial & 4 ? trial % 9 * 22 - 5 : LD - 7,
                               .scale = 3};
            for (int64_t i = 0; i < n; i++) {
                const bool is_odd = trial & 16 && (i * 31 + trial) % (9 + trial % 64) == 0;
                put(&t[0], i, is_odd ? odd[i % 11] : get(&s, i));
                put(&t[1], i, get(&dp, i));
            }
            for (int64_t i = 0; i < rows; i++) {
                const double special = i == 3 && trial & 32 ? NAN : INFINITY;
                put(&t[2], i, /* m, lse */
                    i == 2                             ? -INFINITY
                    : i < 5 && i > 2 && trial % 8 == 2 ? special
                                                       : get(&base, i));
                put(&t[3], i, 1); /* l */
                put(&t[4], i, 0);
                put(&t[5], i, 0);
            }
            if (trial & 8) {
                k->softmax(&b, t[2].mem, t[3].mem, t[4].mem);
            } else {
                k->probabilities(&b, t[2].mem);
            }
            k->dscores(&b, t[1].mem, base.mem);
            k->row_dot(t[5].mem, dp.mem, bias.mem, ROWS, 37);
            for (int i = 0; i < 6; i++) {
                for (int64_t j = 0; j < (i < 2 ? n : rows); j++) { /* any NaN is any other */
                    put(&t[i], j, isnan(get(&t[i], j)) ? NAN : get(&t[i], j));
                }
                if (isa) {
                    assert_same_bits(&first[i], &t[i], wf_isa_name(isa));
                    drop(&t[i]);
                } else {
                    first[i] = t[i];
                }
            }
        }
        for (int i = 0; i < 6; i++) {
            drop(&first[i]);
        }
        drop(&s);
        drop(&bias);
        drop(&dp);
        drop(&base);
    }
}

Test(nn, thread_counts)
{
    const int64_t a[3] = {3, 150, 200}, b[3] = {3, 200, 90}, w[2] = {90, 200},
                  img[4] = {2, 8, 30, 31};
    tensor src[3] = {random_tensor(WEFT_F32, 3, a, true), random_tensor(WEFT_F32, 3, b, true)};
    same_at_any_thread_count(wf_exec_matmul, WF_OP_MATMUL, NULL, 2, src);
    tensor lin[3] = {random_tensor(WEFT_BF16, 3, a, false), random_tensor(WEFT_BF16, 2, w, false),
                     random_tensor(WEFT_BF16, 1, w, false)};
    same_at_any_thread_count(wf_exec_linear, WF_OP_LINEAR, NULL, 3, lin);
    tensor x = random_tensor(WEFT_F32, 4, img, false);
    same_at_any_thread_count(wf_exec_pool2d, WF_OP_MAX_POOL2D,
                             &(wf_attr){INTS(3, 3, 2, 2, 1, 1, 1, 1)}, 1, &x);
    same_at_any_thread_count(wf_exec_pool2d, WF_OP_AVG_POOL2D, &(wf_attr){INTS(3, 3, 2, 2, 1, 1)},
                             1, &x);
    tensor *all[] = {&src[0], &src[1], &lin[0], &lin[1], &lin[2], &x};
    for (int i = 0; i < 6; i++) {
        drop(all[i]);
    }
}

/* -- refusals -------------------------------------------------------------------------------------------- */
Test(nn, refusals)
{
    wf_type a = TYPE(WEFT_F32, 32, 784), b = TYPE(WEFT_F32, 512, 784),
            h = TYPE(WEFT_BF16, 784, 512);
    must_refuse(WF_OP_MATMUL, NULL, 2, (wf_type[]){a, b}, WEFT_ESHAPE,
                "inner dimensions differ: 784 (axis 1 of the first operand) against 512 (axis 0 of "
                "the second)");
    must_refuse(WF_OP_MATMUL, NULL, 2, (wf_type[]){a, h}, WEFT_EDTYPE,
                "f32 (first operand) against bf16");
    must_refuse(WF_OP_MATMUL, NULL, 2, (wf_type[]){a, {.dtype = WEFT_F32}}, WEFT_ESHAPE,
                "second operand is a scalar");
    must_refuse(WF_OP_MATMUL, NULL, 2,
                (wf_type[]){TYPE(WEFT_F32, 2, 3, 4), TYPE(WEFT_F32, 3, 4, 5)}, WEFT_ESHAPE,
                "2 and 3");
    must_refuse(WF_OP_MATMUL, NULL, 2,
                (wf_type[]){TYPE(WEFT_F32, INT64_MAX / 8, 0), TYPE(WEFT_F32, 0, 16)}, WEFT_ENOMEM,
                "overflow");
    wf_type w = TYPE(WEFT_F32, 10, 784);
    must_refuse(WF_OP_LINEAR, NULL, 3, (wf_type[]){a, w, TYPE(WEFT_F32, 11)}, WEFT_ESHAPE,
                "bias has 11");
    must_refuse(WF_OP_LINEAR, NULL, 2, (wf_type[]){a, TYPE(WEFT_F32, 784, 10)}, WEFT_ESHAPE,
                "features differ");
    must_refuse(WF_OP_LINEAR, NULL, 2, (wf_type[]){TYPE(WEFT_I32, 2, 2), TYPE(WEFT_I32, 2, 2)},
                WEFT_EDTYPE, "i32");
    wf_type x = TYPE(WEFT_F32, 1, 6, 5, 5), k = TYPE(WEFT_F32, 4, 3, 3, 3);
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 1, 1, 4)}, 2, (wf_type[]){x, k},
                WEFT_ESHAPE, "4 groups");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 1, 1, 0)}, 2, (wf_type[]){x, k},
                WEFT_ESHAPE, "0 groups");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 1, 1, 1)}, 2, (wf_type[]){x, k},
                WEFT_ESHAPE, "6 channels");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 3, 1, 2)}, 2, (wf_type[]){x, k},
                WEFT_ESHAPE, "height: the kernel covers 7");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 0, 0, 0, 1, 1, 2)}, 2, (wf_type[]){x, k},
                WEFT_EINVALID, "stride 0");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, INT64_MAX, 1, 1, 2)}, 2, (wf_type[]){x, k},
                WEFT_ENOMEM, "overflow");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 1, INT64_MAX, 2)}, 2, (wf_type[]){x, k},
                WEFT_ENOMEM, "overflow");
    must_refuse(WF_OP_CONV2D, &(wf_attr){INTS(1, 1, 0, 0, 1, 1)}, 2, (wf_type[]){x, k},
                WEFT_EINVALID, "attributes");
    must_refuse(WF_OP_CONV2D_DX, &(wf_attr){INTS(1, 1, 0, 0, 1, 1, 2), DYN(6, 5)}, 2,
                (wf_type[]){TYPE(WEFT_F32, 1, 4, 3, 3), k}, WEFT_ESHAPE,
                "axis 2 of the gradient has extent 3");
    must_refuse(WF_OP_MAX_POOL2D, &(wf_attr){INTS(2, 2, 1, 1, 2, 0, 1, 1)}, 1, &x, WEFT_ESHAPE,
                "more than half");
    must_refuse(WF_OP_MAX_POOL2D, &(wf_attr){INTS(2, 2, 1, 1, 1, 1, 7, 1)}, 1, &x, WEFT_ESHAPE,
                "height");
    must_refuse(WF_OP_AVG_POOL2D, &(wf_attr){INTS(6, 2, 1, 1, 0, 0)}, 1, &x, WEFT_ESHAPE,
                "the kernel covers 6");
    must_refuse(WF_OP_AVG_POOL2D, &(wf_attr){INTS(2, 2, 1, 1, 0, 0)}, 1, &a, WEFT_ESHAPE, "rank 2");
    wf_type q = TYPE(WEFT_F32, 2, 3, 4), m = TYPE(WEFT_BOOL, 4, 3);
    wf_attr sc = {FLT(1)};
    must_refuse(WF_OP_SDPA, &sc, 3, (wf_type[]){q, TYPE(WEFT_F32, 2, 3, 5), q}, WEFT_ESHAPE,
                "last axis differs");
    must_refuse(WF_OP_SDPA, &sc, 3, (wf_type[]){q, q, TYPE(WEFT_F32, 2, 4, 4)}, WEFT_ESHAPE,
                "3 keys");
    must_refuse(WF_OP_SDPA, &sc, 4, (wf_type[]){q, q, q, m}, WEFT_ESHAPE, "3 and 4");
    must_refuse(WF_OP_SDPA, &sc, 4, (wf_type[]){q, q, q, TYPE(WEFT_BOOL, 5, 2, 3, 3)}, WEFT_ESHAPE,
                "larger");
    must_refuse(WF_OP_SDPA, &sc, 4, (wf_type[]){q, q, q, TYPE(WEFT_I32, 3, 3)}, WEFT_EDTYPE,
                "mask is i32");
    must_refuse(WF_OP_SDPA, NULL, 3, (wf_type[]){q, q, q}, WEFT_EINVALID, "attributes");
}
