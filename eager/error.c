/*
 * eager/error.c -- errors as values: records, texts.
 *
 * Invariants: an error is formatted once, when it is raised; nested calls pass its number on and
 * never replace it; raising needs no memory beyond the thread's ring of records.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "eager/alloc.h"
#include "eager/profile.h"
#include "eager/report.h"
#include "eager/device.h"
#include "eager/tensor.h"
#include "jit/ir/controls.h"
#include "jit/ir/plain_numbers.h"

static const char *const status_names[WEFT_STATUS_COUNT] = {
    [WEFT_OK] = "ok",
    [WEFT_EINVALID] = "invalid argument",
    [WEFT_EHANDLE] = "dead handle",
    [WEFT_ESHAPE] = "shape",
    [WEFT_EDTYPE] = "element type",
    [WEFT_EINDEX] = "index out of range",
    [WEFT_ENOMEM] = "out of memory",
    [WEFT_EGRAD] = "gradient",
    [WEFT_EIO] = "input/output",
    [WEFT_EUNSUPPORTED] = "unsupported",
};

const char *weft_status_name(weft_status status)
{
    unsigned i = (unsigned)status;
    return i < WEFT_STATUS_COUNT ? status_names[i] : "unknown status";
}

/* Appends to buf[size] at *at; never overruns, keeps buf terminated. */
static void put(char *buf, size_t size, size_t *at, const char *fmt, ...) WF_PRINTF(4, 5);
static void put(char *buf, size_t size, size_t *at, const char *fmt, ...)
{
    if (*at >= size) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    int n = wf_plain_vsnprintf(buf + *at, size - *at, fmt, ap);
    va_end(ap);
    *at += n > 0 ? (size_t)n : 0;
    if (*at > size - 1) {
        *at = size - 1;
    }
}

/* "(dead handle of f32[2,3] 'name' made at file:line)": as much of it as is still known. Of other threads' slots nothing is
 * read, since they may be writing it. */
static void describe_gone(wf_ctx *c, weft_tensor t, char *buf, size_t size)
{
    wf_gone g = {.dtype = 0};
    size_t at = 0;
    for (int i = 0; i < WF_GONE && !g.dtype; i++) {
        if (wf_same_handle(c->gone[i].handle, t)) {
            g = c->gone[i];
        }
    }
    wf_ctx *o = t.context == c->id ? c : wf_ctx_at(t.context);
    if (!g.dtype && o &&
        t.slot / WF_CHUNK_SLOTS < atomic_load_explicit(&o->nchunks, memory_order_acquire)) {
        wf_slot *s = wf_slot_at(o, t.slot);
        const uint64_t st = atomic_load_explicit(&s->state, memory_order_acquire);
        const bool same = WF_STATE_SERIAL(st) == t.serial;
        if (same && o != c && !(st & (WF_STATE_DEAD | WF_STATE_KEPT))) {
            put(buf, size, &at, "(another thread's)");
            return;
        }
        if (same && o == c) {
            g = (wf_gone){.site = s->site, .dtype = s->dtype, .rank = s->rank};
            memcpy(g.dims, s->dims_, sizeof g.dims);
        }
    }
    if (!g.dtype) {
        put(buf, size, &at, "(dead handle)");
        return;
    }
    put(buf, size, &at, "(dead handle of %s", wf_dtype_name(g.dtype));
    for (int i = 0; i < g.rank && g.rank <= WF_INLINE_RANK; i++) {
        put(buf, size, &at, i ? ",%lld" : "[%lld", (long long)g.dims[i]);
    }
    if (g.rank > WF_INLINE_RANK) {
        put(buf, size, &at, " of rank %d", g.rank);
    } else {
        put(buf, size, &at, g.rank ? "]" : "[]");
    }
    if (g.name[0]) {
        put(buf, size, &at, " '%s'", g.name);
    }
    if (g.site) {
        put(buf, size, &at, " made at %s", g.site);
    }
    put(buf, size, &at, ")");
}

void wf_describe(wf_ctx *c, weft_tensor t, char *buf, size_t size)
{
    size_t at = 0;
    buf[0] = '\0';
    if (wf_is_scalar(t)) {
        double d;
        memcpy(&d, &t.serial, sizeof d);
        if (t.context == WF_SCALAR_FLOAT) {
            put(buf, size, &at, "scalar %g", d);
        } else {
            put(buf, size, &at, "scalar %lld", (long long)t.serial);
        }
        return;
    }
    if (wf_is_absent(t)) {
        put(buf, size, &at, "(not given)");
        return;
    }
    bool pinned;
    wf_slot *s = wf_pin(c, t, &pinned, NULL);
    if (!s) {
        if (t.slot == 0) {
            put(buf, size, &at, "(empty handle)");
        } else {
            describe_gone(c, t, buf, size);
        }
        return;
    }
    put(buf, size, &at, "%s[", wf_dtype_name(s->dtype));
    const int64_t *d = wf_dims(s);
    for (int i = 0; i < s->rank; i++) {
        put(buf, size, &at, i ? ",%lld" : "%lld", (long long)d[i]);
    }
    put(buf, size, &at, "]");
    if (s->st && s->st->device) {
        put(buf, size, &at, " on %s", wf_device_code_name(s->st->device));
    }
    wf_meta *m = s->meta;
    if (m && wf_meta_lock_soon(m)) {
        if (m->name) {
            put(buf, size, &at, " '%s'", m->name);
        }
        wf_meta_unlock(m);
    }
    if (s->site) {
        put(buf, size, &at, " (made at %s)", s->site);
    }
    if (pinned) {
        wf_unpin(c, s);
    }
}

const char *wf_write_name(unsigned write, char buf[WF_NAME_SIZE])
{
#define NAMED(NAME, name) [WF_WRITE_##NAME - WF_WRITE_OTHER] = name,
    static const char *const names[] = {[0] = "a write", WF_WRITES(NAMED)};
#undef NAMED
    if (write >= WF_OP_COUNT) {
        return write < WF_WRITE_END ? names[write - WF_OP_COUNT] : names[0];
    }
    if (write == WF_OP_INVALID) {
        return names[0];
    }
    snprintf(buf, WF_NAME_SIZE, "%s_", write == WF_OP_COPY ? "copy" : wf_rows[write].name);
    return buf;
}

const char *wf_broken_text(const wf_storage *st, char buf[WF_BROKEN_SIZE])
{
    const unsigned write = st->write_op;
    const char *site = st->write_site;
    if (write == WF_OP_INVALID || write == WF_OP_INPUT || write >= WF_OP_COUNT) {
        return "the call that was to compute it failed";
    }
    snprintf(buf, WF_BROKEN_SIZE, "%s failed in the call that wrote it%s%.160s%s",
             write == WF_OP_COPY ? "a copy" : wf_rows[write].name, site ? " (" : "",
             site ? site : "", site ? ")" : "");
    return buf;
}

static weft_tensor record(wf_ctx *c, int status, const char *text)
{
    if (!c) {
        return (weft_tensor){0, 0, UINT64_MAX};
    }
    char holders[512] = "";
    size_t missed = status == WEFT_ENOMEM ? wf_alloc_missed() : SIZE_MAX;
    if (missed != SIZE_MAX) {
        wf_oom_report(missed, holders, sizeof holders);
    }
    wf_error *e = &c->errors[c->error_next % WF_ERRORS];
    e->id = c->error_next;
    e->seen = ++c->error_seen;
    e->status = status != WEFT_OK ? status : WEFT_EINVALID; /* an error never reads as success */
    e->sited = false;
    e->told = false;
    snprintf(e->text, sizeof e->text, "%s%s", text, holders);
    size_t control = 0;
    for (char *p = e->text; *p && *text;
         p++, text++) { /* names in it may be a file's: no terminal obeys those */
        control = control > 1 ? control - 1 : wf_control_at(p);
        *p = control ? '?' : *p;
    }
    c->error_last = c->error_next++;
    return (weft_tensor){0, c->id, e->id};
}

weft_tensor wf_raise(wf_ctx *c, const char *op, int nsrc, const weft_tensor *src, const wf_why *why)
{
    char text[sizeof((wf_error *)0)->text];
    char name[WF_NAME_SIZE];
    size_t at = 0;
    if (!c) {
        return record(c, WEFT_ENOMEM, "");
    }
    if (c->called) {
        op = c->called->name ? c->called->name : wf_write_name(c->called->write, name);
        nsrc = c->called->n;
        src = c->called->src;
    }
    put(text, sizeof text, &at, "%s: %s", op, why->rule);
    for (int i = 0; i < nsrc && i < 4; i++) {
        char one[256];
        if (wf_is_absent(src[i])) {
            continue;
        }
        wf_describe(c, src[i], one, sizeof one);
        put(text, sizeof text, &at, i == 0 ? "; operands: %s" : ", %s", one);
    }
    if (nsrc > 4) {
        put(text, sizeof text, &at, ", ... (%d in all)", nsrc);
    }
    if (why->hint[0]) {
        put(text, sizeof text, &at, "; %s", why->hint);
    }
    return record(c, why->code, text);
}

weft_tensor wf_raise_text(wf_ctx *c, int status, const char *op, const char *fmt, ...)
{
    char text[sizeof((wf_error *)0)->text];
    size_t at = 0;
    put(text, sizeof text, &at, "%s: ", op);
    va_list ap;
    va_start(ap, fmt);
    wf_plain_vsnprintf(text + at, sizeof text - at, fmt, ap);
    va_end(ap);
    return record(c, status, text);
}

void wf_raise_made_up(wf_ctx *c, const char *op, const char *what, int rc, uint64_t before)
{
    if (rc && c->error_seen == before) {
        wf_raise_text(c, rc, op, "%s returned status %d (%s) and recorded no error", what, rc,
                      weft_status_name((weft_status)rc));
    }
}

void wf_function_failed(wf_ctx *c, const char *op, const char *name, int rc, uint64_t before,
                        const weft_tensor *in, int n_in)
{
    bool told = c->error_seen != before;
    for (int i = 0; i < n_in && !told; i++) {
        told = wf_is_error(in[i]);
        if (told) {
            wf_error_again(c, in[i]);
        }
    }
    if (!told) {
        char what[128];
        snprintf(what, sizeof what, "the function '%.100s'", name);
        wf_raise_made_up(c, op, what, rc, before);
    }
}

int wf_run_function(wf_ctx *c, const char *op, const char *name,
                    weft_status (*fn)(void *, const weft_tensor *, int, weft_tensor *, int),
                    void *self, const weft_tensor *in, int n_in, weft_tensor *out, int n_out)
{
    const uint64_t before = c->error_seen;
    const int rc = (int)fn(self, in, n_in, out, n_out);
    if (rc) {
        wf_function_failed(c, op, name, rc, before, in, n_in);
    }
    return rc;
}

void wf_error_told(wf_ctx *c, weft_tensor t, bool before)
{
    for (int i = 0; c && t.context == c->id && i < WF_ERRORS; i++) {
        wf_error *e = &c->errors[i];
        e->told = e->told || e->id == t.serial || (before && e->id < t.serial);
    }
}

uint64_t wf_error_untold(const wf_ctx *c, uint64_t since)
{
    uint64_t least = 0;
    for (int i = 0; i < WF_ERRORS; i++) {
        const wf_error *e = &c->errors[i];
        if (e->seen > since && !e->told && (e->status == WEFT_EINDEX || e->status == WEFT_ENOMEM) &&
            (least == 0 || e->id < least)) {
            least = e->id;
        }
    }
    return least;
}

int wf_raise_status(wf_ctx *c, const char *op, int nsrc, const weft_tensor *src, const wf_why *why)
{
    wf_raise(c, op, nsrc, src, why);
    return why->code;
}

static wf_error *find(wf_ctx *c, uint64_t id)
{
    wf_error *e = &c->errors[id % WF_ERRORS];
    return id != 0 && e->id == id ? e : NULL;
}

int wf_error_again(wf_ctx *c, weft_tensor t)
{
    wf_error *e = c && t.context == c->id ? find(c, t.serial) : NULL;
    if (e) {
        c->error_last = e->id;
        c->error_seen++;
        return e->status;
    }
    if (c &&
        t.serial !=
            UINT64_MAX) { /* forgotten, or another thread's: a status has a text all the same */
        record(c, WEFT_EINVALID, weft_error_text(t));
    }
    return (int)weft_error_status(t);
}

weft_status weft_error_status(weft_tensor t)
{
    if (t.slot != 0) {
        return weft_ok(t) ? WEFT_OK : WEFT_EHANDLE;
    }
    if (t.serial == UINT64_MAX) {
        return WEFT_ENOMEM;
    }
    wf_ctx *c = wf_ctx_get();
    wf_error *e = c && t.context == c->id ? find(c, t.serial) : NULL;
    return e ? (weft_status)e->status : WEFT_EINVALID;
}

const char *weft_error_text(weft_tensor t)
{
    if (t.slot != 0) {
        return weft_ok(t) ? "" : "the handle is dead, or another thread's";
    }
    if (t.serial == 0) {
        return "the empty handle: it was never assigned";
    }
    if (t.serial == UINT64_MAX) {
        return "out of memory: this thread's context could not be made";
    }
    wf_ctx *c = wf_ctx_get();
    if (!c || t.context != c->id) {
        return "an error of another thread";
    }
    wf_error *e = find(c, t.serial);
    return e ? e->text : "an error older than the last 64 of this thread";
}

weft_status weft_last_status(void)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return WEFT_ENOMEM;
    }
    wf_error *e = find(c, c->error_last);
    return e ? (weft_status)e->status : WEFT_OK;
}

const char *weft_last_error(void)
{
    wf_ctx *c = wf_ctx_get();
    if (!c) {
        return "out of memory: this thread's context could not be made";
    }
    wf_error *e = find(c, c->error_last);
    return e ? e->text : "";
}

void weft_clear_error(void)
{
    wf_ctx *c = wf_ctx_get();
    if (c) {
        c->error_last = 0;
    }
}

void wf_error_at(wf_ctx *c, uint64_t id, const char *site)
{
    wf_error *e = find(c, id);
    if (e && !e->sited) {
        e->sited = true;
        size_t at = strlen(e->text);
        put(e->text, sizeof e->text, &at, " [at %s]", site);
    }
}
