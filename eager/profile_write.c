/*
 * eager/profile_write.c -- events as Chrome trace events (JSON), which Perfetto reads.
 *
 * The file is valid after every write: it ends with what closes it, and a batch is written over that end together
 * with a new one, by one call. So there is no moment at which a killed program leaves half a file, unless the system
 * itself writes in parts.
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
#include "eager/profile.h"

enum { DEVICE_PROCESS = 1 << 22, MAX_TRACKS = 256 };

typedef struct track {
    int device; /* -1: a thread of this process */
    int64_t thread;
} track;

struct wf_prof_file {
    int fd;
    int64_t process;
    off_t end;    /* where the closing text begins */
    off_t max;    /* it may not begin later; -1: an event would have made it */
    wf_text text; /* not yet written */
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

/* Formatting is most of what an event costs, so numbers do not go through printf. */
void wf_prof_put_text(wf_text *t, const char *s)
{
    wf_text_put(t, s, strlen(s));
}

void wf_prof_put_int(wf_text *t, int64_t v)
{
    char digits[24], *p = digits + sizeof digits;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do {
        *--p = (char)('0' + u % 10);
        u /= 10;
    } while (u);
    if (v < 0) {
        *--p = '-';
    }
    wf_text_put(t, p, (size_t)(digits + sizeof digits - p));
}

void wf_prof_put_string(wf_text *t, const char *string)
{
    const unsigned char *s = (const unsigned char *)string;
    wf_text_put(t, "\"", 1);
    while (*s) {
        size_t plain = 0;
        while (s[plain] >= 0x20 && s[plain] < 0x7F && s[plain] != '"' && s[plain] != '\\') {
            plain++;
        }
        wf_text_put(t, s, plain);
        s += plain;
        if (!*s) {
            break;
        }
        int n = utf8_length(s);
        if (*s == '"' || *s == '\\') {
            wf_text_put(t, "\\", 1);
            wf_text_put(t, s, 1);
        } else if (n == 1) {
            wf_text_putf(t, "\\u%04x", *s);
        } else if (n > 1) {
            wf_text_put(t, s, (size_t)n);
        } else {
            wf_prof_put_text(t, "\\ufffd");
        }
        s += n ? n : 1;
    }
    wf_text_put(t, "\"", 1);
}

static void put_field(wf_text *t, const char *name, const char *value)
{
    wf_prof_put_text(t, name);
    wf_prof_put_string(t, value);
}

static void put_number(wf_text *t, const char *name, int64_t value)
{
    wf_prof_put_text(t, name);
    wf_prof_put_int(t, value);
}

/* Microseconds, exact to the nanosecond. */
static void put_time(wf_text *t, const char *name, int64_t ns)
{
    int64_t rest = ns % 1000;
    char fraction[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                        (char)('0' + rest % 10)};
    put_number(t, name, ns / 1000);
    wf_text_put(t, fraction, sizeof fraction);
}

static void put_track(wf_prof_file *f, const weft_profile_event *e)
{
    put_number(&f->text, ",\"pid\":", e->device >= 0 ? DEVICE_PROCESS + e->device : f->process);
    put_number(&f->text, ",\"tid\":", e->device >= 0 ? e->stream : e->thread);
}

/* -- events ---------------------------------------------------------------------------------------------- */

static void put_metadata(wf_prof_file *f, const weft_profile_event *e, const char *what,
                         const char *value)
{
    wf_prof_put_text(&f->text, ",\n{\"ph\":\"M\",\"name\":\"");
    wf_prof_put_text(&f->text, what);
    wf_prof_put_text(&f->text, "\"");
    put_track(f, e);
    put_field(&f->text, ",\"args\":{\"name\":", value);
    wf_prof_put_text(&f->text, "}}");
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
static void put_flow(wf_prof_file *f, const weft_profile_event *e)
{
    wf_text *t = &f->text;
    wf_prof_put_text(t, e->device >= 0 ? ",\n{\"ph\":\"f\",\"bp\":\"e\"" : ",\n{\"ph\":\"s\"");
    put_number(t, ",\"cat\":\"flow\",\"name\":\"launch\",\"id\":", (int64_t)e->flow);
    put_track(f, e);
    put_time(t, ",\"ts\":", e->start_ns);
    wf_prof_put_text(t, "}");
}

static void put_arguments(wf_text *t, const weft_profile_event *e)
{
    const char *comma = "";
    wf_prof_put_text(t, ",\"args\":{");
    if (*e->detail) {
        put_field(t, "\"detail\":", e->detail);
        comma = ",";
    }
    if (*e->site) {
        wf_prof_put_text(t, comma);
        put_field(t, "\"site\":", e->site);
        comma = ",";
    }
    if (e->bytes) {
        wf_prof_put_text(t, comma);
        put_number(t, "\"bytes\":", e->bytes);
    }
    wf_prof_put_text(t, "}");
}

static void put_event(wf_prof_file *f, const weft_profile_event *e)
{
    wf_text *t = &f->text;
    name_track(f, e);
    if (e->kind == WEFT_PROFILE_MEMORY) {
        wf_prof_put_text(t, ",\n{\"ph\":\"C\",\"name\":\"memory\"");
        put_track(f, e);
        put_time(t, ",\"ts\":", e->start_ns);
        put_number(t, ",\"args\":{\"bytes in use\":", e->bytes);
        wf_prof_put_text(t, "}}");
        return;
    }
    bool moment = e->kind == WEFT_PROFILE_MARK;
    wf_prof_put_text(t, moment ? ",\n{\"ph\":\"i\",\"s\":\"t\",\"cat\":\""
                               : ",\n{\"ph\":\"X\",\"cat\":\"");
    wf_prof_put_text(t, weft_profile_kind_name(e->kind));
    put_field(t, "\",\"name\":", e->name);
    put_track(f, e);
    put_time(t, ",\"ts\":", e->start_ns);
    if (!moment) {
        put_time(t, ",\"dur\":", e->duration_ns);
    }
    if (*e->detail || *e->site || e->bytes) {
        put_arguments(t, e);
    }
    wf_prof_put_text(t, "}");
    if (e->flow) {
        put_flow(f, e);
    }
}

bool wf_prof_file_put(wf_prof_file *f, const weft_profile_event *e)
{
    const size_t before = f->text.n;
    if (f->max >= 0) {
        put_event(f, e);
    }
    if (f->max >= 0 && f->end + (off_t)f->text.n <= f->max) {
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
    wf_text *t = &f->text;
    if (dropped) {
        put_number(t, ",\n{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"profile\",\"name\":\"", dropped);
        put_number(t, " events dropped\",\"pid\":", f->process);
        put_number(t, ",\"tid\":", f->process);
        put_time(t, ",\"ts\":", wf_prof_clock());
        put_number(t, ",\"args\":{\"dropped\":", dropped);
        wf_prof_put_text(t, "}}");
    }
    put_field(t, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{\"weft\":", weft_version());
    put_number(t, ",\"events\":", events);
    put_number(t, ",\"dropped\":", dropped);
    wf_prof_put_text(t, "}}\n");
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

bool wf_prof_file_sync(wf_prof_file *f, int64_t events, int64_t dropped)
{
    wf_text *t = &f->text;
    size_t batch = t->n;
    put_end(f, events, dropped);
    if (t->failed || !write_at(f->fd, t->s, t->n, f->end)) {
        f->failed = true;
    } else {
        f->end += (off_t)batch;
    }
    t->n = 0;
    t->failed = false;
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
    f->fd = wf_fd_apart(open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    free(name);
    *why = f->fd < 0 ? strerrordesc_np(errno) : "it cannot be written";
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
    wf_text_free(&f->text);
    free(f);
}
