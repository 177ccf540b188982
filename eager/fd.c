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
