/*
 * eager/fd.c -- files that are written while the program writes to its standard streams.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "eager/fd.h"

int wf_fd_apart(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(fd);
    errno = error;
    return high;
}

FILE *wf_file_apart(const char *path, const char *mode)
{
    const int how = *mode == 'a' ? O_APPEND : O_TRUNC;
    const int fd = wf_fd_apart(open(path, O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666));
    FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
    if (fd >= 0 && !f) {
        close(fd);
    }
    return f;
}
