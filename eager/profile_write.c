/*
 * eager/profile_write.c -- events as Chrome trace events (JSON), which Perfetto reads.
 *
 * The file is valid after every write: it ends with what closes it, and a batch is written over that end together
 * with a new one, by one call. So there is no moment at which a killed program leaves half a file, unless the system
 * itself writes in parts. A name that ends in ".gz" makes it one gzip member with a quarter of the bytes or less (gzip.h), which
 * is whole after every write likewise.
 *
 * Names come from users, files and the system: they are escaped, and what is not UTF-8 is replaced.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eager/fd.h"
#include "eager/gzip.h"
#include "eager/profile.h"

enum { DEVICE_PROCESS = 1 << 22, MAX_TRACKS = 256 };

typedef struct track {
    int device; /* -1: a thread of this process */
    int64_t thread;
} track;

struct wf_prof_file {
    int fd;
    int64_t process;
    off_t end;       /* where the closing text begins */
    off_t max;       /* it may not begin later; -1: an event would have made it */
    wf_text text;    /* not yet written */
    wf_text closing; /* what lies behind `end` */
    wf_gzip *zip;    /* or NULL: it is written as it is */
    bool failed;
    track named[MAX_TRACKS]; /* tracks that have a name in the file */
    int nnamed;
};

/* -- text ------------------------------------------------------------------------------------------------ */

/* Bytes of the UTF-8 character at s, 0 if it is none. */
static int utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) {
        return 1;
    }
    int n = s[0] >= 0xC2 && s[0] < 0xE0    ? 2
            : s[0] >= 0xE0 && s[0] < 0xF0  ? 3
            : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                           : 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ||
               (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F);
    return bad ? 0 : n;
}

/* Formatting is most of what an event costs, so numbers do not go through printf, and room is made once for all of it: what follows writes
 * at p, and returns where it ends. */
#define PUT(p, literal) ((char *)memcpy(p, literal, sizeof(literal) - 1) + sizeof(literal) - 1)

enum {
    ESCAPED = 6, /* bytes of a string's byte at most */
    REST = 512   /* of an event, but for its strings */
};

char *wf_prof_put_text(char *p, const char *s)
{
    const size_t n = strlen(s);
    memcpy(p, s, n);
    return p + n;
}

char *wf_prof_put_int(char *p, int64_t v)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    while (u >= 100) { /* two at once: each division waits for the one before */
        const unsigned two = (unsigned)(u % 100);
        u /= 100;
        *--at = (char)('0' + two % 10);
        *--at = (char)('0' + two / 10);
    }
    *--at = (char)('0' + u % 10);
    if (u >= 10) {
        *--at = (char)('0' + u / 10);
    }
    if (v < 0) {
        *--at = '-';
    }
    const size_t n = (size_t)(digits + sizeof digits - at);
    memcpy(p, at, n);
    return p + n;
}

static inline bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

static char *put_string(char *p, const char *string)
{
    const unsigned char *s = (const unsigned char *)string;
    *p++ = '"';
    for (;;) {
        while (is_plain(*s)) {
            *p++ = (char)*s++;
        }
        if (!*s) {
            break;
        }
        const int n = utf8_length(s);
        if (*s == '"' || *s == '\\') {
            *p++ = '\\';
            *p++ = (char)*s;
        } else if (n == 1) {
            p += sprintf(p, "\\u%04x", *s);
        } else if (n > 1) {
            memcpy(p, s, (size_t)n);
            p += n;
        } else {
            p = PUT(p, "\\ufffd");
        }
        s += n ? n : 1;
    }
    *p++ = '"';
    return p;
}

void wf_prof_put_string(wf_text *t, const char *string)
{
    char *p = wf_text_room(t, ESCAPED * strlen(string) + 2);
    if (p) {
        wf_text_end(t, put_string(p, string));
    }
}

/* Microseconds, exact to the nanosecond; none where a device's clock says less. */
static char *put_time(char *p, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    const int64_t rest = ns % 1000;
    p = wf_prof_put_int(p, ns / 1000);
    p[0] = '.';
    p[1] = (char)('0' + rest / 100);
    p[2] = (char)('0' + rest / 10 % 10);
    p[3] = (char)('0' + rest % 10);
    return p + 4;
}

static char *put_track(char *p, const wf_prof_file *f, const weft_profile_event *e)
{
    p = wf_prof_put_int(PUT(p, ",\"pid\":"),
                        e->device >= 0 ? DEVICE_PROCESS + e->device : f->process);
    return wf_prof_put_int(PUT(p, ",\"tid\":"), e->device >= 0 ? e->stream : e->thread);
}

/* -- events ---------------------------------------------------------------------------------------------- */

static void put_metadata(wf_prof_file *f, const weft_profile_event *e, const char *what,
                         const char *value)
{
    char *p = wf_text_room(&f->text, REST + ESCAPED * strlen(value));
    if (p) {
        p = wf_prof_put_text(PUT(p, ",\n{\"ph\":\"M\",\"name\":\""), what);
        p = put_track(PUT(p, "\""), f, e);
        p = put_string(PUT(p, ",\"args\":{\"name\":"), value);
        wf_text_end(&f->text, PUT(p, "}}"));
    }
}

/* The first event of a track is preceded by its name. */
static void name_track(wf_prof_file *f, const weft_profile_event *e)
{
    track k = {e->device, e->device >= 0 ? e->stream : e->thread};
    for (int i = f->nnamed; i-- > 0;) {
        if (f->named[i].device == k.device && f->named[i].thread == k.thread) {
            return;
        }
    }
    if (f->nnamed ==
        MAX_TRACKS) { /* more threads than that: the oldest is forgotten, and named again */
        memmove(&f->named[0], &f->named[1], (MAX_TRACKS - 1) * sizeof f->named[0]);
        f->nnamed--;
    }
    f->named[f->nnamed++] = k;
    if (e->device >= 0) {
        char name[32];
        snprintf(name, sizeof name, "device %d", e->device);
        put_metadata(f, e, "process_name", name);
        snprintf(name, sizeof name, "stream %d", e->stream);
        put_metadata(f, e, "thread_name", name);
    } else {
        put_metadata(f, e, "thread_name", e->thread_name);
    }
}

/* Arrows from a launch to what it causes on a device. */
static char *put_flow(char *p, const wf_prof_file *f, const weft_profile_event *e)
{
    p = wf_prof_put_text(p, e->device >= 0 ? ",\n{\"ph\":\"f\",\"bp\":\"e\"" : ",\n{\"ph\":\"s\"");
    p = wf_prof_put_int(PUT(p, ",\"cat\":\"flow\",\"name\":\"launch\",\"id\":"), (int64_t)e->flow);
    p = put_time(PUT(put_track(p, f, e), ",\"ts\":"), e->start_ns);
    return PUT(p, "}");
}

static char *put_arguments(char *p, const weft_profile_event *e)
{
    char *const first = p = PUT(p, ",\"args\":{");
    if (*e->detail) {
        p = put_string(PUT(p, "\"detail\":"), e->detail);
    }
    if (*e->site) {
        p = p == first ? p : PUT(p, ",");
        p = put_string(PUT(p, "\"site\":"), e->site);
    }
    if (e->bytes) {
        p = p == first ? p : PUT(p, ",");
        p = wf_prof_put_int(PUT(p, "\"bytes\":"), e->bytes);
    }
    return PUT(p, "}");
}

static char *put_event(char *p, const wf_prof_file *f, const weft_profile_event *e)
{
    if (e->kind == WEFT_PROFILE_MEMORY) {
        p = put_track(PUT(p, ",\n{\"ph\":\"C\",\"name\":\"memory\""), f, e);
        p = put_time(PUT(p, ",\"ts\":"), e->start_ns);
        p = wf_prof_put_int(PUT(p, ",\"args\":{\"bytes in use\":"), e->bytes);
        return PUT(p, "}}");
    }
    const bool moment = e->kind == WEFT_PROFILE_MARK;
    p = moment ? PUT(p, ",\n{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"")
               : PUT(p, ",\n{\"ph\":\"X\",\"cat\":\"");
    p = wf_prof_put_text(p, weft_profile_kind_name(e->kind));
    p = put_track(put_string(PUT(p, "\",\"name\":"), e->name), f, e);
    p = put_time(PUT(p, ",\"ts\":"), e->start_ns);
    p = moment ? p : put_time(PUT(p, ",\"dur\":"), e->duration_ns);
    if (*e->detail || *e->site || e->bytes) {
        p = put_arguments(p, e);
    }
    p = PUT(p, "}");
    return e->flow ? put_flow(p, f, e) : p;
}

bool wf_prof_file_put(wf_prof_file *f, const weft_profile_event *e)
{
    const size_t before = f->text.n;
    if (f->max >= 0) {
        name_track(f, e);
        char *p = wf_text_room(
            &f->text, REST + ESCAPED * (strlen(e->name) + strlen(e->detail) + strlen(e->site)));
        if (p) {
            wf_text_end(&f->text, put_event(p, f, e));
        }
    }
    if (f->max >= f->end &&
        (f->zip ? wf_gzip_add(f->zip, f->text.s, before, f->text.n, (size_t)(f->max - f->end))
                : f->end + (off_t)f->text.n <= f->max)) {
        return true;
    }
    f->text.n =
        before; /* its track may have got a name with it: nothing follows that would miss one */
    f->max = -1;
    return false;
}

/* -- the file -------------------------------------------------------------------------------------------- */

static void put_end(wf_prof_file *f, int64_t events, int64_t dropped)
{
    const long long pid = f->process, n = dropped;
    if (dropped) {
        const int64_t now = wf_prof_clock();
        wf_text_putf(
            &f->text,
            ",\n{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"profile\",\"name\":\"%lld events dropped\","
            "\"pid\":%lld,\"tid\":%lld,\"ts\":%lld.%03d,\"args\":{\"dropped\":%lld}}",
            n, pid, pid, (long long)(now / 1000), (int)(now % 1000), n);
    }
    wf_text_putf(&f->text,
                 "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"weft\":\"%s\",\"events\":%lld,"
                 "\"dropped\":%lld}}\n",
                 weft_version(), (long long)events, n);
}

static bool write_at(int fd, const char *s, size_t n, off_t at)
{
    while (n) {
        ssize_t done = pwrite(fd, s, n, at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        s += done;
        n -= (size_t)done;
        at += done;
    }
    return true;
}

/* After a write that failed, on a full disk perhaps: what closed the file closes it again. It had room there before. */
static void restore(wf_prof_file *f)
{
    const wf_text *c = &f->closing;
    f->failed = true;
    if (c->n && !c->failed && write_at(f->fd, c->s, c->n, f->end)) {
        (void)!ftruncate(f->fd, f->end + (off_t)c->n); /* it only becomes shorter */
    }
}

/* Writes t over the end of the file, of which the first `batch` bytes stay. */
static void write_text(wf_prof_file *f, wf_text *t, size_t batch)
{
    if (t->failed || !write_at(f->fd, t->s, t->n, f->end)) {
        restore(f);
    } else {
        f->end += (off_t)batch;
        f->closing.n = 0;
        f->closing.failed = false;
        wf_text_put(&f->closing, t->s + batch, t->n - batch);
    }
    t->n = 0;
    t->failed = false;
}

bool wf_prof_file_sync(wf_prof_file *f, int64_t events, int64_t dropped)
{
    wf_text *t = &f->text;
    const size_t batch = t->n;
    put_end(f, events, dropped);
    if (!f->zip) {
        write_text(f, t, batch);
        return !f->failed;
    }
    f->failed |= t->failed;
    t->failed = false;
    if (!f->failed) {
        wf_gzip_cut(f->zip, t->s, batch);
        wf_text *out = wf_gzip_out(f->zip);
        const size_t whole = out->n;
        wf_gzip_end(f->zip, t->s + batch, t->n - batch);
        write_text(f, out, whole);
    }
    t->n = 0;
    return !f->failed;
}

/* "%p" becomes the process number; NULL: no memory. */
static char *expand(const char *path)
{
    wf_text t = {0};
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            wf_text_putf(&t, "%lld", (long long)getpid());
            path++;
        } else {
            wf_text_put(&t, path, 1);
        }
    }
    wf_text_put(&t, "", 1);
    if (t.failed) {
        wf_text_free(&t);
    }
    return t.s;
}

wf_prof_file *wf_prof_file_open(const char *path, int64_t max, const char **why)
{
    *why = "out of memory";
    wf_prof_file *f = calloc(1, sizeof *f);
    char *name = f ? expand(path) : NULL;
    if (!name) {
        free(f);
        return NULL;
    }
    f->process = getpid();
    f->max = (off_t)max;
    f->fd = -1;
    const size_t length = strlen(name);
    const bool zipped = length > 3 && strcmp(name + length - 3, ".gz") == 0;
    f->zip = zipped ? wf_gzip_begin(why) : NULL;
    if (!zipped || f->zip) {
        f->fd = wf_fd_apart(open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
        *why = f->fd < 0 ? strerrordesc_np(errno) : "it cannot be written";
    }
    free(name);
    weft_profile_event process = {.device = -1, .thread = f->process};
    wf_text_putf(&f->text, "{\"traceEvents\":[");
    put_metadata(f, &process, "process_name", program_invocation_short_name);
    char *comma = f->text.s ? strchr(f->text.s, ',') : NULL;
    if (comma) {
        *comma = ' '; /* of the first event */
    }
    if (f->fd < 0 || !wf_prof_file_sync(f, 0, 0)) {
        wf_prof_file_close(f);
        return NULL;
    }
    return f;
}

void wf_prof_file_close(wf_prof_file *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    wf_gzip_free(f->zip);
    wf_text_free(&f->text);
    wf_text_free(&f->closing);
    free(f);
}
