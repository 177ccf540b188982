/*
 * eager/fd.h -- files that are written while the program writes to its standard streams.
 */
#ifndef EAGER_FD_H
#define EAGER_FD_H

#include <stdio.h>

/* fd as open gave it, or -1 and errno as it left them; above those of the standard streams: where one is closed, the next file
 * gets its number, and with that what is written to the stream all the same. */
int wf_fd_apart(int fd);
/* The same of fopen, for "w" and "a". */
FILE *wf_file_apart(const char *path, const char *mode);

#endif
