/*
 * io/file.c -- writing whole files atomically, mapping them for reading.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eager/alloc.h"
#include "io/file.h"

static bool write_all(int fd, const void *data, size_t n)
{
    for (const char *p = data; n > 0;) {
        ssize_t k = write(fd, p, n < (1u << 30) ? n : 1u << 30);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return false;
        }
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Makes the rename last: the entry in the folder is synced too. Not every file system can. */
static void sync_folder(const char *path)
{
    char *folder = wf_strdup(path);
    if (!folder) {
        return;
    }
    char *slash = strrchr(folder, '/');
    if (slash) {
        slash[slash == folder] = 0;
    }
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    wf_mfree(folder);
}

weft_status wf_file_write(const char *op, const char *path, const wf_file_part *parts, int n)
{
    static _Atomic unsigned serial;
    size_t size = strlen(path) + 40;
    char *temporary = wf_malloc(size);
    if (!temporary) {
        wf_api_error(op, WEFT_ENOMEM, "'%s': no memory", path);
        return WEFT_ENOMEM;
    }
    snprintf(temporary, size, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&serial, 1));
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool ok = fd >= 0;
    for (int i = 0; i < n && ok; i++) {
        ok = write_all(fd, parts[i].data, parts[i].size);
    }
    ok = ok && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (ok && rename(temporary, path) != 0) {
        error = errno;
        ok = false;
    }
    if (ok) {
        sync_folder(path);
    } else if (fd >= 0) {
        unlink(temporary);
    }
    wf_mfree(temporary);
    if (!ok) {
        wf_api_error(op, WEFT_EIO, "'%s': %s", path, strerror(error));
    }
    return ok ? WEFT_OK : WEFT_EIO;
}

static const unsigned char nothing[1];

const unsigned char *wf_file_map(const char *op, const char *path, size_t *size)
{
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat st;
    *size = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        wf_api_error(op, WEFT_EIO, "%s: %s", path ? path : "(null)",
                     !path    ? "no path"
                     : fd < 0 ? strerror(errno)
                              : "not a regular file");
        if (fd >= 0) {
            close(fd);
        }
        return NULL;
    }
    *size = (size_t)st.st_size;
    void *p = *size ? mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (p == MAP_FAILED) {
        wf_api_error(op, WEFT_ENOMEM, "%s: cannot be mapped", path);
        return NULL;
    }
    return *size ? p : nothing;
}

void wf_file_unmap(const unsigned char *p, size_t size)
{
    if (p && size) {
        munmap((void *)(uintptr_t)p, size);
    }
}
