/*
 * tests/support/trace_file.h -- a strict reader of trace-event files, for tests: everything of RFC 8259 is checked,
 * the fields of events are kept.
 */
#ifndef TESTS_SUPPORT_TRACE_FILE_H
#define TESTS_SUPPORT_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trace_event {
    char ph, cat[16], name[128], detail[512], site[128];
    int64_t pid, tid, ts, dur, bytes, id; /* times in ns */
} trace_event;

typedef struct trace_file {
    trace_event *events; /* malloc'ed */
    int n;
    int64_t said_events, said_dropped; /* by otherData */
    char error[128];                   /* "" or why it is no such file */
} trace_file;

/* All of a file, a zero behind it: malloc'ed; of one whose name ends in ".gz" what gzip, the program, makes of it. NULL: that, or
 * reading, failed. */
char *trace_file_text(const char *path, size_t *n);
/* Reads path; error says what is wrong with it. */
trace_file trace_file_read(const char *path);
void trace_file_free(trace_file *f);
/* Do the spans ("X") of every track lie inside or beside one another? Sorts events by track and time. */
bool trace_file_nests(trace_file *f);
/* The n-th event of a category (and name, if given); NULL: there are fewer. How many there are. */
const trace_event *trace_find(const trace_file *f, const char *cat, const char *name, int n);
int trace_count(const trace_file *f, const char *cat, const char *name);
/* Is this text JSON, and nothing else? */
bool trace_is_json(const char *text);

#endif
