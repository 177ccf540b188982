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
#include "eager/fd.h"
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

/* A new file beside target, of its name as far as that leaves room for more. Names that are taken are passed over: a process
 * of this number, which in a container is often 1, may have died while it wrote. */
static int open_temporary(const char *target, mode_t mode, char *temporary, size_t size)
{
    static _Atomic unsigned serial;
    const char *slash = strrchr(target, '/');
    const int folder = slash ? (int)(slash + 1 - target) : 0;
    int fd;
    bool made;
    do {
        snprintf(temporary, size, "%.*s%.200s.tmp-%ld-%u", folder, target, target + folder,
                 (long)getpid(), atomic_fetch_add(&serial, 1));
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        made = fd >= 0;
        fd = wf_fd_apart(fd);
    } while (fd < 0 && errno == EEXIST);
    if (made && fd < 0) {
        const int error = errno;
        unlink(temporary);
        errno = error;
    }
    return fd;
}

/* 0, or an errno. Target is no link; old: what is there now, or NULL. */
static int replace(const char *target, const struct stat *old, const wf_file_part *parts, int n)
{
    size_t size = strlen(target) + 40;
    char *temporary = wf_malloc(size);
    if (!temporary) {
        return ENOMEM;
    }
    int fd = open_temporary(target, old ? 0600 : 0666, temporary, size);
    bool ok = fd >= 0;
    if (ok && old) { /* only its owner may read a private file, also while it is written */
        (void)!fchown(fd, old->st_uid, old->st_gid);
        (void)!fchmod(fd, old->st_mode & 0777); /* not every file system has modes */
    }
    for (int i = 0; i < n && ok; i++) {
        ok = write_all(fd, parts[i].data, parts[i].size);
    }
    ok = ok && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (ok && rename(temporary, target) != 0) {
        error = errno;
        ok = false;
    }
    if (ok) {
        sync_folder(target);
    } else if (fd >= 0) {
        unlink(temporary);
    }
    wf_mfree(temporary);
    return ok ? 0 : error;
}

weft_status wf_file_write(const char *op, const char *path, const wf_file_part *parts, int n)
{
    struct stat old;
    char *target = realpath(path, NULL);
    int error = target && stat(target, &old) == 0 ? 0 : errno;
    const char *wrong = NULL;
    if (error == 0 && !S_ISREG(old.st_mode)) {
        wrong = S_ISDIR(old.st_mode) ? "it is a folder"
                                     : "it is no regular file, which alone can be replaced";
    } else if (error == ENOENT && lstat(path, &old) == 0 && S_ISLNK(old.st_mode)) {
        wrong = "it is a link to what is not there";
    } else if (error == 0 || error == ENOENT) {
        error = replace(error ? path : target, error ? NULL : &old, parts, n);
    }
    free(target);
    if (error || wrong) {
        wf_api_error(op, error == ENOMEM ? WEFT_ENOMEM : WEFT_EIO, "'%s': %s", path,
                     wrong ? wrong : strerror(error));
    }
    return error == ENOMEM ? WEFT_ENOMEM : error || wrong ? WEFT_EIO : WEFT_OK;
}

static const unsigned char nothing[1];

const unsigned char *wf_file_map(const char *op, const char *path, size_t *size)
{
    *size = 0;
    if (!path) {
        wf_api_null(op, "the path");
        return NULL;
    }
    /* O_NONBLOCK: a FIFO is refused, not waited for. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        wf_api_error(op, WEFT_EIO, "%s: %s", path, fd < 0 ? strerror(errno) : "not a regular file");
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
