/*
 * eager/device_run.c -- the op table on a device, by means of wf_device_ops; see device.h.
 *
 * An elementwise row and a derivative's column are programs of one instruction, made once for a combination of element
 * types and then found by it: the device compiles one kernel for each. A row without a device kernel is computed by the
 * host's: operands come to host memory, which waits for the device, and results go back.
 *
 * Invariants: the programs of the table are immutable and stay; two threads that make the same one keep the first.
 */
#include "eager/alloc.h"
#include "eager/dense.h"
#include "eager/device.h"
#include "eager/program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const wf_device_ops *api(void)
{
    return atomic_load_explicit(&wf_device_api, memory_order_acquire);
}

_Thread_local wf_lasting wf_device_lasting __attribute__((tls_model("initial-exec")));

/* -- memory -------------------------------------------------------------------------------------------------------- */

void *wf_device_alloc(int device, size_t nbytes, void **address, wf_why *why)
{
    return api()->alloc(device - 1, nbytes, address, why);
}

void wf_device_free(void *block)
{
    if (block) {
        api()->free(block);
    }
}

int wf_device_use(wf_storage *st, bool write, wf_why *why)
{
    void *block = st->inline_data == WF_STORAGE_DEVICE ? st->deleter_arg : st->order;
    return block ? api()->use(block, write, why) : 0;
}

bool wf_device_spoilt(wf_storage *st)
{
    void *block = st->inline_data == WF_STORAGE_DEVICE ? st->deleter_arg : st->order;
    const wf_device_ops *d = api();
    wf_op op;
    const char *site;
    if (!block || !d->spoilt || !d->spoilt(block, &op, &site)) {
        return false;
    }
    st->write_op = (uint16_t)op;
    st->write_site = site;
    atomic_store_explicit(&st->broken, 1, memory_order_release);
    return true;
}

int wf_device_adopt(wf_storage *st, wf_why *why)
{
    void *address; /* the smallest block there is, for what is kept with it */
    st->order = wf_device_alloc(st->device, 1, &address, why);
    return st->order ? 0 : why->code;
}

void wf_device_finish(int device)
{
    api()->synchronize(device - 1, NULL); /* what it finds is for the next wait to tell */
}

int wf_device_wait(const wf_slot *s, wf_why *why)
{
    return wf_slot_device(s) ? api()->synchronize(wf_slot_device(s) - 1, why) : 0;
}

int wf_device_copy(int device, const wf_view *dst, const wf_view *src, wf_why *why)
{
    return wf_view_numel(dst) == 0 ? 0 : api()->copy(device - 1, dst, src, why);
}

int wf_device_fill(int device, const wf_view *dst, const void *host_value, wf_why *why)
{
    return wf_view_numel(dst) == 0 ? 0 : api()->fill(device - 1, dst, host_value, why);
}

/* First byte and number of bytes that a view reaches, from its data on (or before it). */
static void span_of(const wf_view *v, int64_t *first, int64_t *bytes)
{
    int64_t lo, hi, size = (int64_t)wf_dtype_size(v->dtype);
    const int names = wf_map_reach(v->rank, v->dims, v->strides, &lo, &hi);
    *first = lo * size;
    *bytes = (hi - lo + names) * size;
}

static bool is_sparse(const wf_view *v, int64_t bytes)
{
    return bytes > 4 * (int64_t)wf_view_bytes(v) + 4096;
}

/* *d: src, or its elements row-major in scratch memory of its device, *block (else NULL); given back by the caller. */
static int make_dense(int device, wf_view *d, void **block, const wf_view *src, wf_why *why)
{
    *d = *src;
    *block = NULL;
    if (wf_view_is_contiguous(src)) {
        return 0;
    }
    *block = wf_device_alloc(device, wf_view_bytes(src), &d->data, why);
    wf_view_make_dense(d);
    return *block ? wf_device_copy(device, d, src, why) : why->code;
}

/* Row-major elements of src, of its type, at host. */
static int download_dense(int device, void *host, const wf_view *src, wf_why *why)
{
    wf_view d;
    void *block;
    int rc = make_dense(device, &d, &block, src, why);
    rc = rc ? rc : api()->download(device - 1, host, d.data, wf_view_bytes(src), why);
    wf_device_free(block);
    return rc;
}

static int no_host_memory(wf_why *why, size_t bytes)
{
    return wf_fail(why, WEFT_ENOMEM, "out of host memory for %zu bytes on their way", bytes);
}

/* -- copies that nobody waits for yet ------------------------------------------------------------------------------ */

static _Thread_local bool read_later;
static pthread_mutex_t arriving = PTHREAD_MUTEX_INITIALIZER;

bool wf_device_read_later(bool on)
{
    bool before = read_later;
    read_later = on;
    return before;
}

wf_storage *wf_device_storage_later(int device, size_t nbytes)
{
    const wf_device_ops *d = api();
    void *host = read_later && device && d->host_alloc ? d->host_alloc(device - 1, nbytes) : NULL;
    wf_storage *st = host ? wf_storage_wrap(host, nbytes, d->host_free, host) : NULL;
    if (host && !st) {
        d->host_free(host);
    }
    return st;
}

int wf_device_queue_read(int device, wf_storage *st, const wf_view *src, wf_why *why)
{
    wf_view d;
    void *block;
    int rc = make_dense(device, &d, &block, src, why);
    rc = rc ? rc : api()->download_later(device - 1, st->data, d.data, st->nbytes, why);
    wf_device_free(block);
    if (!rc) {
        atomic_store_explicit(&st->broken, WF_ARRIVING, memory_order_release);
    }
    return rc;
}

int wf_storage_arrive(wf_storage *st, wf_why *why)
{
    wf_why local = {0};
    int rc = 0;
    pthread_mutex_lock(&arriving); /* whoever else reads it waits here */
    uint64_t state = atomic_load_explicit(&st->broken, memory_order_acquire);
    if (state == WF_ARRIVING) {
        rc = api()->arrive(st->data, why ? why : &local);
        st->write_op = rc ? WF_OP_COPY : st->write_op;
        atomic_store_explicit(&st->broken, rc != 0, memory_order_release);
    } else if (state) {
        rc = wf_fail(why, WEFT_EINVALID, "the copy of it from the device failed");
    }
    pthread_mutex_unlock(&arriving);
    return rc;
}

int wf_device_read(int device, const wf_view *dst, const wf_view *src, wf_why *why)
{
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    if (dst->dtype == src->dtype && wf_view_is_contiguous(dst)) {
        return download_dense(device, dst->data, src, why);
    }
    size_t bytes = wf_view_bytes(src);
    wf_view s = *src;
    s.device = WF_DEVICE_HOST;
    s.data = wf_alloc(bytes);
    if (!s.data) {
        return no_host_memory(why, bytes);
    }
    wf_view_make_dense(&s);
    int rc = download_dense(device, s.data, src, why);
    if (!rc) {
        wf_copy(dst, &s);
    }
    wf_free(s.data, bytes);
    return rc;
}

int wf_device_write(int device, const wf_view *dst, const wf_view *src, wf_why *why)
{
    size_t bytes = wf_view_bytes(dst);
    if (bytes == 0) {
        return 0;
    }
    if (wf_view_is_contiguous(src)) {
        return api()->upload(device - 1, dst->data, src->data, bytes, why);
    }
    wf_view d = *src;
    d.data = wf_alloc(bytes);
    if (!d.data) {
        return no_host_memory(why, bytes);
    }
    wf_view_make_dense(&d);
    wf_copy(&d, src);
    int rc = api()->upload(device - 1, dst->data, d.data, bytes, why);
    wf_free(d.data, bytes);
    return rc;
}

/* From one device to another; dst is dense. */
static int move_across(const wf_view *dst, const wf_view *src, wf_why *why)
{
    wf_view h;
    void *block;
    if (api()->across) {
        int code = make_dense(src->device, &h, &block, src, why);
        code = code ? code
                    : api()->across(dst->device - 1, dst->data, src->device - 1, h.data,
                                    wf_view_bytes(src), why);
        wf_device_free(block);
        return code;
    }
    size_t bytes = wf_view_bytes(src);
    h = *src;
    h.device = WF_DEVICE_HOST;
    h.data = wf_alloc(bytes);
    if (!h.data) {
        return no_host_memory(why, bytes);
    }
    wf_view_make_dense(&h);
    int rc = wf_device_read(src->device, &h, src, why);
    rc = rc ? rc : wf_device_write(dst->device, dst, &h, why);
    wf_free(h.data, bytes);
    return rc;
}

int wf_device_move(const wf_view *dst, const wf_view *src, wf_why *why)
{
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    if (dst->device == src->device) {
        if (dst->device) {
            return wf_device_copy(dst->device, dst, src, why);
        }
        wf_copy(dst, src);
        return 0;
    }
    return !dst->device   ? wf_device_read(src->device, dst, src, why)
           : !src->device ? wf_device_write(dst->device, dst, src, why)
                          : move_across(dst, src, why);
}

/* -- programs of one instruction ------------------------------------------------------------------------------------- */

enum { MOST_SRC = 5, TABLE = 1024, PROBES = 8 };

typedef struct recipe {
    uint16_t op;
    uint8_t vjp, which, compute, nsrc;
    uint8_t type[MOST_SRC]; /* DEFAULT: not read */
    uint8_t scalars;        /* bit i: source i is a scalar */
    uint8_t to;             /* element type of the result, which is rounded to it */
    uint8_t unused; /* 0: all bytes are compared and hashed, and a compiler's own padding is any */
} recipe;
_Static_assert(sizeof(recipe) == 9 + MOST_SRC && sizeof(recipe) <= 16,
               "no padding; it is hashed as two words");

typedef struct made {
    recipe r;
    wf_program program;
} made;

static made *_Atomic table[TABLE];

static bool build(wf_program *p, const recipe *r)
{
    int v[MOST_SRC];
    wf_program_init(p);
    for (int i = 0; i < r->nsrc; i++) {
        v[i] = r->type[i] == WEFT_DTYPE_DEFAULT ? -1
               : r->scalars >> i & 1            ? wf_program_scalar(p, r->type[i])
                                                : wf_program_input(p, r->type[i]);
    }
    const int y = r->vjp ? wf_program_vjp(p, (wf_op)r->op, r->which, r->compute, r->nsrc, v)
                         : wf_program_map(p, (wf_op)r->op, r->compute, r->nsrc, v);
    wf_program_output_at(p, y < 0 ? y : wf_program_cast(p, y, r->to), WF_LEVEL_ELEM);
    if (wf_program_finish(p)) {
        return false;
    }
    wf_program_number(p);
    return true;
}

static uint32_t hash_recipe(const recipe *r)
{
    uint64_t w[2] = {0, 0};
    memcpy(w, r, sizeof *r);
    uint64_t h = (w[0] ^ (w[1] << 23 | w[1] >> 41)) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 40);
}

/* The program of a recipe; *own: the caller frees it, the table being full there. NULL with why filled. */
static const wf_program *program_of(const recipe *r, wf_program **own, wf_why *why)
{
    uint32_t h = hash_recipe(r);
    made *m = NULL;
    *own = NULL;
    for (uint32_t i = 0; i < PROBES; i++) {
        made *_Atomic *place = &table[(h + i) % TABLE];
        made *is = atomic_load_explicit(place, memory_order_acquire);
        if (!is) {
            m = m ? m : malloc(sizeof *m);
            if (!m || !build(&m->program, r)) {
                free(m);
                wf_fail(why, m ? WEFT_EUNSUPPORTED : WEFT_ENOMEM,
                        m ? "it has no kernel for these types" : "out of memory for a kernel");
                return NULL;
            }
            m->r = *r;
            if (atomic_compare_exchange_strong(place, &is, m)) {
                return &m->program;
            }
        }
        if (memcmp(&is->r, r, sizeof *r) == 0) {
            free(m);
            return &is->program;
        }
    }
    free(m);
    *own = malloc(sizeof **own);
    if (*own && build(*own, r)) {
        return *own;
    }
    wf_fail(why, WEFT_ENOMEM, "out of memory for a kernel");
    free(*own);
    return NULL;
}

/* Inputs that are one element for a space of more. */
static uint32_t single_inputs(int n, const wf_view *v)
{
    uint32_t one = 0;
    for (int i = 0; i < n; i++) {
        bool single = true, many = false;
        for (int d = 0; d < v[i].rank; d++) {
            single &= v[i].dims[d] == 1 || v[i].strides[d] == 0;
            many |= v[i].dims[d] > 1;
        }
        one |= single && many ? 1u << i : 0;
    }
    return one;
}

int wf_device_program(int device, const wf_program *p, const wf_program_args *a, wf_why *why)
{
    int64_t most = 0;
    for (int i = 0; i < p->noutput; i++) {
        int64_t n = wf_view_numel(&a->dst[i]);
        most = n > most ? n : most;
    }
    if (most == 0 && !a->axes) {
        return 0;
    }
    int rc = api()->program(device - 1, p, single_inputs(p->ninput, a->src), a, why);
    if (rc && why->rule[0] == '\0') {
        wf_fail(why, rc, "a kernel of it could not run");
    }
    return rc;
}

int wf_device_programs(int device, const wf_program *p, int n, const wf_program_args *a,
                       wf_why *why)
{
    int rc = 0;
    if (n == 1 || !api()->programs) {
        for (int i = 0; i < n && !rc; i++) {
            rc = wf_device_program(device, p, &a[i], why);
        }
        return rc;
    }
    rc = api()->programs(device - 1, p, n, a, why);
    if (rc && why->rule[0] == '\0') {
        wf_fail(why, rc, "a kernel of it could not run");
    }
    return rc;
}

/* Element i of a call, a number on the host, in the type that the instruction reads it in. */
static void number_of(const wf_view *src, int type, uint64_t *out)
{
    wf_view from = {.data = src->data, .dtype = src->dtype};
    wf_view to = {.data = out, .dtype = (uint8_t)type};
    *out = 0;
    wf_copy(&to, &from);
}

static int run_recipe(int device, recipe *r, const wf_view *dst, const wf_view *src,
                      const uint8_t *reads, wf_why *why)
{
    wf_view in[MOST_SRC];
    uint64_t number[MOST_SRC];
    const void *scalars[MOST_SRC];
    int ninput = 0, nscalar = 0;
    if (wf_view_numel(dst) == 0) {
        return 0;
    }
    r->to = dst->dtype;
    for (int i = 0; i < r->nsrc; i++) {
        r->type[i] = WEFT_DTYPE_DEFAULT;
        if (reads[i] == WEFT_DTYPE_DEFAULT) {
            continue;
        }
        if (src[i].device == WF_DEVICE_HOST) {
            number_of(&src[i], reads[i], &number[i]);
            scalars[nscalar++] = &number[i];
            r->scalars |= (uint8_t)(1u << i);
            r->type[i] = reads[i];
        } else {
            in[ninput++] = src[i];
            r->type[i] = src[i].dtype;
        }
    }
    wf_program *own;
    const wf_program *p = program_of(r, &own, why);
    if (!p) {
        return why->code;
    }
    wf_program_args a = {.dst = dst, .src = in, .scalars = scalars};
    int rc = wf_device_program(device, p, &a, why);
    free(own);
    return rc;
}

/* Numbers only: the host's kernel computes the one value. */
static int map_numbers(int device, wf_op op, int compute, const wf_view *dst, int nsrc,
                       const wf_view *src, wf_why *why)
{
    uint64_t value = 0;
    wf_view one = {.data = &value, .dtype = dst->dtype}, v[MOST_SRC];
    for (int i = 0; i < nsrc; i++) {
        v[i] = (wf_view){.data = src[i].data, .dtype = src[i].dtype};
    }
    int rc = wf_exec_map(op, compute, &one, nsrc, v);
    return rc ? wf_fail(why, rc, "it has no kernel for these types")
              : wf_device_fill(device, dst, &value, why);
}

int wf_device_map(int device, wf_op op, int compute, const wf_view *dst, int nsrc,
                  const wf_view *src, wf_why *why)
{
    recipe r = {.op = (uint16_t)op, .compute = (uint8_t)compute, .nsrc = (uint8_t)nsrc};
    uint8_t reads[MOST_SRC];
    bool numbers = true;
    for (int i = 0; i < nsrc; i++) {
        bool truth = wf_rows[op].kind == WF_KIND_CHOOSE && i == 0;
        reads[i] = (uint8_t)(truth ? (int)WEFT_BOOL : compute);
        numbers &= src[i].device == WF_DEVICE_HOST;
    }
    return numbers ? map_numbers(device, op, compute, dst, nsrc, src, why)
                   : run_recipe(device, &r, dst, src, reads, why);
}

int wf_device_vjp(int device, wf_op op, int which, int compute, const wf_view *dst, int nsrc,
                  const wf_view *src, wf_why *why)
{
    recipe r = {.op = (uint16_t)op,
                .vjp = 1,
                .which = (uint8_t)which,
                .compute = (uint8_t)compute,
                .nsrc = (uint8_t)nsrc};
    uint8_t reads[MOST_SRC];
    unsigned used = wf_vjp_reads(op, which);
    if (!used) {
        return wf_device_fill(device, dst, &(const uint64_t){0}, why);
    }
    for (int i = 0; i < nsrc; i++) {
        bool is = used >> (i == 0 ? 6 : i == nsrc - 1 ? 7 : i - 1) & 1;
        bool truth = wf_rows[op].kind == WF_KIND_CHOOSE && i == 1;
        reads[i] = (uint8_t)(!is ? (int)WEFT_DTYPE_DEFAULT : truth ? (int)WEFT_BOOL : compute);
    }
    return run_recipe(device, &r, dst, src, reads, why);
}

/* -- rows through the host --------------------------------------------------------------------------------------------- */

static _Atomic int64_t fallbacks[WF_OP_COUNT];

int64_t wf_device_fallbacks(wf_op op)
{
    return atomic_load_explicit(&fallbacks[op], memory_order_relaxed);
}

typedef struct shadow {
    wf_view view;
    void *owned;
    size_t bytes;
} shadow;

/* A host view with the elements of a device's: the bytes it spans, or what of them it names. */
static int shadow_source(int device, shadow *s, const wf_view *v, wf_why *why)
{
    int64_t first, bytes;
    *s = (shadow){.view = *v};
    s->view.device = WF_DEVICE_HOST;
    if (!v->data || v->device == WF_DEVICE_HOST || wf_view_numel(v) == 0) {
        return 0;
    }
    span_of(v, &first, &bytes);
    bool sparse = is_sparse(v, bytes);
    s->bytes = sparse ? wf_view_bytes(v) : (size_t)bytes;
    s->owned = wf_alloc(s->bytes);
    if (!s->owned) {
        return no_host_memory(why, s->bytes);
    }
    s->view.data = (char *)s->owned - (sparse ? 0 : first);
    if (sparse) {
        wf_view_make_dense(&s->view);
        return download_dense(device, s->owned, v, why);
    }
    return api()->download(device - 1, s->owned, (char *)v->data + first, s->bytes, why);
}

static int run_on_host(int device, wf_exec *e)
{
    int n = e->nsrc + e->ndst, rc = 0;
    shadow *s = calloc((size_t)n, sizeof *s);
    wf_view *v = calloc((size_t)n, sizeof *v);
    if (!s || !v) {
        free(s);
        free(v);
        return no_host_memory(e->why, (size_t)n * sizeof *v);
    }
    atomic_fetch_add_explicit(&fallbacks[e->op], 1, memory_order_relaxed);
    for (int i = 0; i < e->nsrc && !rc; i++) {
        rc = shadow_source(device, &s[i], &e->src[i], e->why);
        v[i] = s[i].view;
    }
    for (int i = e->nsrc; i < n && !rc; i++) {
        const wf_view *d = &e->dst[i - e->nsrc];
        s[i] = (shadow){.view = *d, .bytes = wf_view_bytes(d)};
        s[i].view.device = WF_DEVICE_HOST;
        s[i].view.data = s[i].owned = wf_alloc(s[i].bytes);
        rc = s[i].owned ? 0 : no_host_memory(e->why, s[i].bytes);
        wf_view_make_dense(&s[i].view);
        v[i] = s[i].view;
    }
    if (!rc) {
        wf_exec host = {.op = e->op,
                        .nsrc = e->nsrc,
                        .ndst = e->ndst,
                        .src = v,
                        .dst = v + e->nsrc,
                        .attr = e->attr,
                        .why = e->why};
        rc = wf_exec_row(&host);
    }
    for (int i = e->nsrc; i < n && !rc; i++) {
        rc = wf_device_write(device, &e->dst[i - e->nsrc], &v[i], e->why);
    }
    for (int i = 0; i < n; i++) {
        wf_free(s[i].owned, s[i].bytes);
    }
    free(s);
    free(v);
    return rc;
}

/* -- rows ------------------------------------------------------------------------------------------------------------ */

/* What the host's kernel of FULL writes, everywhere. */
static int fill_row(int device, wf_exec *e)
{
    uint64_t value = 0;
    wf_view one = {.data = &value, .dtype = e->dst[0].dtype};
    wf_exec host = {.op = e->op, .ndst = 1, .dst = &one, .attr = e->attr, .why = e->why};
    int rc = wf_exec_row(&host);
    return rc ? rc : wf_device_fill(device, &e->dst[0], &value, e->why);
}

/* The row VJP: operands broadcast to the result. */
static int vjp_row(int device, wf_exec *e)
{
    wf_view v[MOST_SRC];
    const wf_view *d = &e->dst[0];
    for (int k = 0; k < e->nsrc; k++) {
        const wf_view *s = &e->src[k];
        v[k] = *d;
        v[k].data = s->data;
        v[k].dtype = s->dtype;
        v[k].device = s->device;
        for (int a = 0; a < d->rank; a++) {
            int b = a - (d->rank - s->rank);
            v[k].strides[a] = b >= 0 && s->dims[b] == d->dims[a] ? s->strides[b] : 0;
        }
    }
    return wf_device_vjp(device, (wf_op)e->attr->ints[0], (int)e->attr->ints[1],
                         wf_dtype_compute(d->dtype), d, e->nsrc, v, e->why);
}

/* No kernel of this kind: why says nothing. */
static bool is_absent(int rc, const wf_why *why)
{
    return rc == WEFT_EUNSUPPORTED && why->rule[0] == '\0';
}

int wf_device_row(int device, wf_exec *e)
{
    if (e->op == WF_OP_COPY || e->op == WF_OP_CAST) {
        return wf_device_copy(device, &e->dst[0], &e->src[0], e->why);
    }
    if (e->op == WF_OP_FULL) {
        return fill_row(device, e);
    }
    if (e->op == WF_OP_VJP) {
        return vjp_row(device, e);
    }
    int rc = api()->composite ? api()->composite(device, e) : WEFT_EUNSUPPORTED;
    if (is_absent(rc, e->why)) {
        e->why->code = 0;
        rc = api()->row ? api()->row(device - 1, e) : WEFT_EUNSUPPORTED;
    }
    if (is_absent(rc, e->why)) {
        e->why->code = 0;
        rc = run_on_host(device, e);
    }
    if (rc && e->why->rule[0] == '\0') {
        wf_fail(e->why, rc, "it could not run on %s", wf_device_code_name(device));
    }
    return rc;
}
