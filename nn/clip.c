/*
 * nn/clip.c -- gradients scaled to a norm: weft_module_clip_grad_norm.
 *
 * The norm of all is the norm of the tensors' norms, in order of registration. There are three ways, with the same bits:
 * the host looks at the norm and multiplies where it is too large; a trace, which must not be broken, multiplies by a factor that
 * is 1 where it is not; and so does a device, which must not be waited for: there a norm and a product a tensor would be hundreds
 * of launches, so dense gradients of f32 or f64 that are apart are runs of one program, in few.
 */
#include <pthread.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/device.h"
#include "eager/pool.h"
#include "eager/program.h"
#include "nn/apart.h"
#include "nn/nn.h"

static const char op_name[] = "module_clip_grad_norm";
static const double least = 1e-6; /* added to the norm that is divided by, as PyTorch does */

/* -- one op after another ------------------------------------------------------------------------------------------ */

/* The norm of all as a 0-d tensor; empty without error when there is none. */
static weft_tensor total_norm(const weft_tensor *g, int n)
{
    weft_tensor total = WEFT_NONE;
    const size_t bytes = (size_t)n * sizeof(weft_tensor);
    weft_tensor *norms = wf_scratch(bytes);
    if (!norms) {
        return wf_api_error(op_name, WEFT_ENOMEM, "no memory");
    }
    for (int i = 0; i < n; i++) {
        norms[i] = (weft_norm)(&(weft_norm_args){.x = g[i]});
    }
    if (n) {
        total = (weft_norm)(&(weft_norm_args){.x = weft_stack(norms, n, 0)});
    }
    wf_scratch_free(norms, bytes);
    return total;
}

/* g *= factor */
static weft_status scale(const weft_tensor *g, int n, weft_tensor factor, weft_tensor narrow,
                         const char *site)
{
    weft_status s = WEFT_OK;
    for (int i = 0; i < n && s == WEFT_OK; i++) {
        s = weft_mul_(g[i], weft_dtype_of(g[i]) == WEFT_F64 ? factor : narrow);
        if (s == WEFT_OK) {
            wf_wrote_as(wf_ctx_get(), g[i], WF_WRITE_CLIP, site);
        }
    }
    return s;
}

/* Without looking at the norm, so that a trace need not be broken nor a device be waited for: gradients of a norm that is small
 * enough are multiplied by 1. */
static weft_status clip_unseen(const weft_tensor *g, int n, double max_norm, const char *site)
{
    weft_tensor total = total_norm(g, n);
    if (total.slot == 0) {
        return total.serial ? weft_error_status(total) : WEFT_OK;
    }
    total = weft_cast(total, WEFT_F64);
    weft_tensor factor = weft_div(weft_f(max_norm), weft_add(total, weft_f(least)));
    factor = weft_where(weft_less_equal(total, weft_f(max_norm)), weft_f(1), factor);
    return scale(g, n, factor, weft_cast(factor, WEFT_F32), site);
}

static weft_status clip_seen(const weft_tensor *g, int n, double max_norm, double *norm,
                             const char *site)
{
    double total = 0;
    weft_tensor t = total_norm(g, n);
    if (t.slot != 0 || t.serial != 0) {
        weft_status s = (weft_item)(t, &total);
        if (s != WEFT_OK) {
            return s;
        }
    }
    if (norm) {
        *norm = total;
    }
    if (total <= max_norm) {
        return WEFT_OK;
    }
    /* A norm of NaN scales nothing away: it shows in every gradient, as it does in PyTorch. */
    const weft_tensor factor = weft_f(max_norm / (total + least));
    return scale(g, n, factor, factor, site);
}

/* -- on a device, all at once -------------------------------------------------------------------------------------- */

/* The programs, of f32 [0] and f64 [1]: sqrt(sum(x x)); the factor of a norm; x factor. */
static struct {
    wf_program norm[2], factor[2], scale[2];
    bool made;
} programs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { MAX_NORM, LEAST, ONE, SCALARS }; /* of the factor */

static bool make(int dtype, wf_program *norm, wf_program *factor, wf_program *product)
{
    wf_program_init(norm);
    int x = wf_program_input(norm, dtype);
    x = wf_program_map(norm, WF_OP_MUL, dtype, 2, (int[]){x, x});
    x = wf_program_reduce(norm, WF_OP_SUM, x);
    wf_program_output(norm, wf_program_map(norm, WF_OP_SQRT, dtype, 1, &x));

    int number[SCALARS];
    wf_program_init(factor);
    int total = wf_program_cast(factor, wf_program_input(factor, dtype), WEFT_F64);
    for (int i = 0; i < SCALARS; i++) {
        number[i] = wf_program_scalar(factor, WEFT_F64);
    }
    x = wf_program_map(factor, WF_OP_ADD, WEFT_F64, 2, (int[]){total, number[LEAST]});
    x = wf_program_map(factor, WF_OP_DIV, WEFT_F64, 2, (int[]){number[MAX_NORM], x});
    const int small =
        wf_program_map(factor, WF_OP_LESS_EQUAL, WEFT_F64, 2, (int[]){total, number[MAX_NORM]});
    x = wf_program_map(factor, WF_OP_WHERE, WEFT_F64, 3, (int[]){small, number[ONE], x});
    wf_program_output_at(factor, wf_program_cast(factor, x, dtype), WF_LEVEL_ELEM);

    wf_program_init(product);
    x = wf_program_input(product, dtype);
    const int by = wf_program_input(product, dtype);
    wf_program_output(product, wf_program_map(product, WF_OP_MUL, dtype, 2, (int[]){x, by}));
    if (wf_program_finish(norm) || wf_program_finish(factor) || wf_program_finish(product)) {
        return false;
    }
    wf_program_number(norm);
    wf_program_number(factor);
    return true;
}

static void make_programs(void)
{
    programs.made = true;
    for (int i = 0; i < 2; i++) {
        programs.made &= make(i ? WEFT_F64 : WEFT_F32, &programs.norm[i], &programs.factor[i],
                              &programs.scale[i]);
    }
}

/* What is kept of a gradient. */
typedef struct one {
    wf_slot *slot; /* held */
    bool pinned;
    wf_view src[2], dst; /* of the scaling: itself and the factor; itself */
    wf_view norm;        /* element i of the norms, as wide as the gradient */
} one;

typedef struct together {
    wf_ctx *c;
    const weft_tensor *g;
    int n, held, device, dtype;
    one *each;
    wf_program_args *args;
    wf_touched *touched;
    void *memory; /* of each, args and touched, */
    size_t bytes;
    char *scratch; /* and of the device: the norms, their norm, the factor */
} together;

/* *v := n elements in a line; step 0: one that stands for all. A view has room for more axes, which is left as it is. */
static void set_line(const together *t, wf_view *v, void *data, int64_t n, int64_t step)
{
    v->data = data;
    v->dtype = (uint8_t)t->dtype;
    v->rank = 1;
    v->device = (uint8_t)t->device;
    v->dims[0] = n;
    v->strides[0] = step;
}

/* Gradient i can be a run among others: dense, of the first one's type and device, and nobody minds a write. Holds it. */
static bool take(together *t, int i)
{
    one *o = &t->each[i];
    o->pinned = false;
    wf_slot *s = o->slot = wf_pin(t->c, t->g[i], &o->pinned, NULL);
    if (!s) {
        return false;
    }
    t->held = i + 1;
    wf_storage *st = s->st;
    if (i == 0) {
        t->device = wf_slot_device(s);
        t->dtype = s->dtype;
    }
    if (t->device == WF_DEVICE_HOST || wf_slot_device(s) != t->device || s->dtype != t->dtype ||
        (t->dtype != WEFT_F32 && t->dtype != WEFT_F64) || !wf_slot_is_contiguous(s) ||
        st->read_only || st->broken ||
        atomic_load_explicit(&st->is_virtual, memory_order_acquire)) {
        return false;
    }
    const int64_t n = wf_slot_numel(s);
    set_line(t, &o->dst, wf_slot_data(s), n, 1);
    set_line(t, &o->src[0], o->dst.data, n, 1);
    const uintptr_t lo = (uintptr_t)o->dst.data;
    t->touched[i] = (wf_touched){st, lo, lo + wf_view_bytes(&o->dst), true};
    return true;
}

static void let_go(const together *t)
{
    for (int i = 0; i < t->held; i++) {
        if (t->each[i].pinned) {
            wf_unpin(t->c, t->each[i].slot);
        }
    }
    if (t->memory) {
        wf_free(t->memory, t->bytes);
    }
}

/* False: they go one by one. */
static bool take_all(together *t)
{
    const size_t n = (size_t)t->n;
    t->bytes = n * (sizeof(one) + sizeof(wf_program_args) + sizeof(wf_touched));
    t->memory = wf_alloc(t->bytes);
    if (!t->memory) {
        return false;
    }
    t->each = t->memory;
    t->args = (wf_program_args *)(t->each + n);
    t->touched = (wf_touched *)(t->args + n);
    bool all = true;
    for (int i = 0; i < t->n && all; i++) {
        all = take(t, i);
    }
    pthread_once(&once, make_programs);
    return all && programs.made && wf_are_apart(t->touched, t->n);
}

/* The stream's next work comes behind others' on the gradients. */
static int use_all(const together *t, unsigned write, const char *site, wf_why *why)
{
    int rc = 0;
    for (int i = 0; i < t->n && !rc; i++) {
        rc = wf_device_touch(t->c, t->each[i].slot, op_name, write, why);
        if (write && !rc) {
            t->each[i].slot->st->write_site = site;
        }
    }
    return rc;
}

/* The norms, their norm and the factor. */
static int find_factor(together *t, double max_norm, wf_why *why)
{
    const int wide = t->dtype == WEFT_F64;
    const size_t size = wf_dtype_size(t->dtype);
    char *total = t->scratch + (size_t)t->n * size;
    for (int i = 0; i < t->n; i++) {
        one *o = &t->each[i];
        set_line(t, &o->norm, t->scratch + (size_t)i * size, o->dst.dims[0], 0);
        set_line(t, &o->src[1], total + size, o->dst.dims[0], 0);
        t->args[i] = (wf_program_args){.dst = &o->norm, .src = o->src, .axes = 1};
    }
    int rc = wf_device_programs(t->device, &programs.norm[wide], t->n, t->args, why);
    wf_view norms, norm, in, out;
    set_line(t, &norms, t->scratch, t->n, 1);
    set_line(t, &norm, total, t->n, 0);
    const wf_program_args all = {.dst = &norm, .src = &norms, .axes = 1};
    rc = rc ? rc : wf_device_program(t->device, &programs.norm[wide], &all, why);
    set_line(t, &in, total, 1, 1);
    set_line(t, &out, total + size, 1, 1);
    const double number[SCALARS] = {[MAX_NORM] = max_norm, [LEAST] = least, [ONE] = 1};
    const void *scalars[SCALARS] = {&number[MAX_NORM], &number[LEAST], &number[ONE]};
    const wf_program_args divide = {.dst = &out, .src = &in, .scalars = scalars};
    return rc ? rc : wf_device_program(t->device, &programs.factor[wide], &divide, why);
}

/* *norm := the norm that was found; waits. */
static int look(const together *t, double *norm, wf_why *why)
{
    char *total = t->scratch + (size_t)t->n * wf_dtype_size(t->dtype);
    wf_view src;
    set_line(t, &src, total, 1, 1);
    const wf_view dst = {.data = norm, .dtype = WEFT_F64, .rank = 1, .dims = {1}, .strides = {1}};
    return wf_device_read(t->device, &dst, &src, why);
}

static int scale_all(together *t, wf_why *why)
{
    for (int i = 0; i < t->n; i++) {
        t->args[i] = (wf_program_args){.dst = &t->each[i].dst, .src = t->each[i].src};
    }
    return wf_device_programs(t->device, &programs.scale[t->dtype == WEFT_F64], t->n, t->args, why);
}

static int run_all(together *t, double max_norm, double *norm, const char *site)
{
    wf_why why;
    double seen = 0;
    void *block = NULL, *address = NULL;
    wf_why_clear(&why);
    int rc = use_all(t, 0, NULL, &why);
    if (!rc) {
        const size_t bytes = ((size_t)t->n + 2) * wf_dtype_size(t->dtype);
        block = wf_device_alloc(t->device, bytes, &address, &why);
        t->scratch = address;
        rc = block ? find_factor(t, max_norm, &why) : why.code;
    }
    if (norm && !rc) {
        rc = look(t, &seen, &why);
        *norm = rc ? *norm : seen;
    }
    if (!rc && !(norm && seen <= max_norm)) {
        rc = use_all(t, WF_WRITE_CLIP, site, &why);
        rc = rc ? rc : scale_all(t, &why);
    }
    wf_device_free(block);
    return rc ? wf_raise_status(t->c, op_name, 1, &t->g[0], &why) : 0;
}

/* False: nothing was done. */
static bool clip_together(const weft_tensor *g, int n, double max_norm, double *norm,
                          const char *site, weft_status *status)
{
    together t = {.c = wf_ctx_get(), .g = g, .n = n};
    const bool may = n > 0 && take_all(&t);
    if (may) {
        *status = (weft_status)run_all(&t, max_norm, norm, site);
    }
    let_go(&t);
    return may;
}

__attribute__((noinline)) static weft_status clip(const weft_tensor *g, int n, double max_norm,
                                                  double *norm, const char *site)
{
    wf_ctx *c = wf_ctx_get();
    bool away = false;
    weft_status s = WEFT_OK;
    for (int i = 0; i < n && !c->recorder; i++) {
        away |= wf_device_of_handle(c, g[i]) != WF_DEVICE_HOST;
    }
    return away && clip_together(g, n, max_norm, norm, site, &s) ? s
           : !norm && (c->recorder || away)                      ? clip_unseen(g, n, max_norm, site)
                                            : clip_seen(g, n, max_norm, norm, site);
}

weft_status wf_clip(const weft_tensor *g, int n, double max_norm, double *norm, const char *site)
{
    /* the factor of clip_seen is computed here, those of the other ways by ops */
    const unsigned mode = wf_fpenv_enter();
    const weft_status s = clip(g, n, max_norm, norm, site);
    wf_fpenv_leave(mode);
    return s;
}
