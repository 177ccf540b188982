/*
 * jit/diskcache.c -- see diskcache.h.
 *
 * A file is a header, the identity and the object. Its name is the identity's hash in hexadecimal and ".o".
 * Time of modification is the time of last use: a hit renews it.
 */
#include "jit/diskcache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "eager/env.h"
#include "eager/fd.h"
#include "jit/kernels_impl.h"

#define MAGIC UINT64_C(0x314A424F54464557) /* "WEFTOBJ1" */
#define VERSION_FOLDER "weft-1"
enum { MOST_OBJECT = 64 << 20, HEX = 32, NAME = HEX + 2, STALE_SECONDS = 3600 };
/* How long, and for what part of the cap written here, a count of the folder is believed: other processes
 * write there too. */
enum { COUNT_SECONDS = 10, COUNT_PART = 16 };

typedef struct header {
    uint64_t magic, nidentity, nobject;
    uint64_t identity[2], object[2]; /* hashes */
} header;

static struct disk {
    pthread_once_t once;
    pthread_mutex_t lock;
    int fd; /* of the folder, -1: off */
    bool writable;
    char folder[600], reason[256];
    int64_t bytes;   /* in the folder when it was counted; -1: not counted yet */
    int64_t added;   /* by this process since */
    int64_t counted; /* seconds, monotonic */
    unsigned serial;
    wf_disk_stats stats;
} disk = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .bytes = -1};

/* -- the folder ---------------------------------------------------------------------------------------------- */
static bool off(const char *what)
{
    snprintf(disk.reason, sizeof disk.reason, "%s", what);
    return false;
}

/* Makes the folders on the way; those that are there may be anything. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        const bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        const int error = errno;
        if (slash)
            *slash = '/';
        if (!ok && error != EROFS && error != EACCES)
            return false;
        if (!slash)
            return true;
    }
}

static bool choose_folder(char *path, size_t size)
{
    const wf_env_values *env = wf_env();
    int n = -1;
    if (env->WEFT_CACHE_DIR[0] == '/')
        n = snprintf(path, size, "%s/" VERSION_FOLDER, env->WEFT_CACHE_DIR);
    else if (env->WEFT_CACHE_DIR[0])
        return off("WEFT_CACHE_DIR is not an absolute path");
    else if (env->XDG_CACHE_HOME[0] == '/')
        n = snprintf(path, size, "%s/weft/" VERSION_FOLDER, env->XDG_CACHE_HOME);
    else if (env->HOME[0] == '/')
        n = snprintf(path, size, "%s/.cache/weft/" VERSION_FOLDER, env->HOME);
    return n > 0 && (size_t)n < size ? true
                                     : off("there is no HOME, XDG_CACHE_HOME or WEFT_CACHE_DIR");
}

/* A folder of this user that nobody else may write to. */
static bool open_folder(void)
{
    struct stat s;
    if (wf_env()->WEFT_CACHE_SIZE == 0)
        return off("WEFT_CACHE_SIZE=0");
    if (!choose_folder(disk.folder, sizeof disk.folder))
        return false;
    if (!make_folders(disk.folder))
        return off("the folder cannot be made");
    const int fd = wf_fd_apart(open(disk.folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0)
        return off(errno == ELOOP || errno == ENOTDIR ? "the folder is a link or a file"
                                                      : "the folder cannot be opened");
    const char *wrong = fstat(fd, &s) != 0       ? "the folder cannot be examined"
                        : s.st_uid != geteuid()  ? "the folder belongs to somebody else"
                        : (s.st_mode & 022) != 0 ? "others may write to the folder"
                                                 : NULL;
    if (wrong) {
        close(fd);
        return off(wrong);
    }
    disk.fd = fd;
    disk.writable = faccessat(fd, ".", W_OK, 0) == 0;
    if (!disk.writable)
        off("the folder is read-only: nothing is added");
    return true;
}

/* The library says nothing on its own, so that a folder is refused shows in `weft doctor` and on the first rung of WEFT_DEBUG. */
static void set_up(void)
{
    if (!open_folder())
        disk.fd = -1;
    if (disk.reason[0] && wf_env()->WEFT_CACHE_SIZE > 0 && wf_env_debug(WF_DEBUG_COMPILE))
        fprintf(stderr, "weft: kernels are not kept on disk: %s%s%s\n", disk.reason,
                disk.folder[0] ? ": " : "", disk.folder);
}

static bool ready(void)
{
    pthread_once(&disk.once, set_up);
    return disk.fd >= 0;
}

const char *wf_disk_folder(void)
{
    return ready() ? disk.folder : "";
}
const char *wf_disk_reason(void)
{
    (void)ready();
    return disk.reason;
}

/* -- files --------------------------------------------------------------------------------------------------- */
static void name_file(char name[NAME + 1], const uint64_t hash[2])
{
    snprintf(name, NAME + 1, "%016llx%016llx.o", (unsigned long long)hash[0],
             (unsigned long long)hash[1]);
}

static bool is_name(const char *name)
{
    return strlen(name) == NAME && strspn(name, "0123456789abcdef") == HEX &&
           strcmp(name + HEX, ".o") == 0;
}

/* All n bytes, or the errno of the failure, or -1 at an early end. */
static int read_all(int fd, void *to, size_t n)
{
    char *p = to;
    while (n > 0) {
        const ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : -1;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

static bool write_all(int fd, const void *from, size_t n)
{
    const char *p = from;
    while (n > 0) {
        const ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

typedef enum verdict { GOOD, DAMAGED, UNREADABLE } verdict;

static verdict judge(int status)
{
    return status == 0 ? GOOD : status < 0 ? DAMAGED : UNREADABLE;
}

/* The object of an open file that must hold this identity. */
static verdict read_object(int fd, const void *identity, size_t n, const uint64_t hash[2],
                           wf_blob *object)
{
    header h;
    struct stat s;
    uint64_t check[2];
    if (fstat(fd, &s) != 0)
        return UNREADABLE;
    if (!S_ISREG(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 022) != 0)
        return DAMAGED;
    verdict v = judge(read_all(fd, &h, sizeof h));
    if (v != GOOD)
        return v;
    if (h.magic != MAGIC || h.nidentity != n || h.nobject == 0 || h.nobject > MOST_OBJECT ||
        h.identity[0] != hash[0] || h.identity[1] != hash[1] ||
        (uint64_t)s.st_size != sizeof h + h.nidentity + h.nobject)
        return DAMAGED;
    char *all = malloc(n + h.nobject);
    if (!all)
        return UNREADABLE;
    v = judge(read_all(fd, all, n + h.nobject));
    if (v == GOOD && memcmp(all, identity, n) != 0)
        v = DAMAGED;
    if (v == GOOD) {
        memmove(all, all + n, h.nobject);
        wf_hash128(all, h.nobject, check);
        v = check[0] == h.object[0] && check[1] == h.object[1] ? GOOD : DAMAGED;
    }
    if (v != GOOD) {
        free(all);
        return v;
    }
    *object = (wf_blob){all, h.nobject};
    return GOOD;
}

bool wf_disk_get(const void *identity, size_t n, wf_blob *object)
{
    if (wf_env_stress("evict", NULL)) {
        return false;
    }
    uint64_t hash[2];
    char name[NAME + 1];
    verdict v = UNREADABLE;
    *object = (wf_blob){0};
    if (!ready())
        return false;
    wf_hash128(identity, n, hash);
    name_file(name, hash);
    const int fd = openat(disk.fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        v = read_object(fd, identity, n, hash, object);
        if (v == GOOD && disk.writable)
            (void)!futimens(fd, NULL);
        close(fd);
    } else if (errno == ELOOP) {
        v = DAMAGED;
    }
    if (v == DAMAGED && disk.writable)
        (void)!unlinkat(disk.fd, name, 0);
    pthread_mutex_lock(&disk.lock);
    *(v == GOOD ? &disk.stats.found : &disk.stats.missed) += 1;
    disk.stats.damaged += v == DAMAGED;
    pthread_mutex_unlock(&disk.lock);
    return v == GOOD;
}

/* -- the cap -------------------------------------------------------------------------------------------------- */
typedef struct file {
    char name[NAME + 1];
    int64_t bytes, used;
} file;

/* The kernels' files; malloced, NULL if there are none. Removes what a killed writer has left. */
static file *list_files(int64_t *count, int64_t *bytes)
{
    file *list = NULL;
    int64_t n = 0, cap = 0;
    *bytes = 0;
    const int fd = openat(disk.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        struct stat s;
        if (e->d_name[0] == '.' && strncmp(e->d_name, ".new-", 5) != 0)
            continue;
        if (fstatat(disk.fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!is_name(e->d_name)) {
            if (e->d_name[0] == '.' && s.st_mtime + STALE_SECONDS < time(NULL))
                (void)!unlinkat(disk.fd, e->d_name, 0);
            continue;
        }
        if (S_ISDIR(s.st_mode))
            continue;
        if (n == cap) {
            file *grown = realloc(list, (size_t)(cap = 2 * cap + 64) * sizeof *list);
            if (!grown)
                break;
            list = grown;
        }
        memcpy(list[n].name, e->d_name, NAME + 1);
        list[n].bytes = s.st_size;
        list[n++].used = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
        *bytes += s.st_size;
    }
    if (d)
        closedir(d);
    *count = n;
    return list;
}

static int by_use(const void *a, const void *b)
{
    const file *x = a, *y = b;
    return (x->used > y->used) - (x->used < y->used);
}

static int64_t now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Under the lock: counts, and brings the folder to three quarters of the cap if it is over it. */
static void keep_to_cap(int64_t added)
{
    const int64_t cap = wf_env()->WEFT_CACHE_SIZE;
    const int64_t now = now_seconds();
    disk.added += added;
    if (disk.bytes >= 0 && disk.bytes + disk.added <= cap && disk.added <= cap / COUNT_PART &&
        now - disk.counted < COUNT_SECONDS)
        return;
    int64_t n, bytes;
    file *list = list_files(&n, &bytes);
    if (bytes > cap) {
        qsort(list, (size_t)n, sizeof *list, by_use);
        for (int64_t i = 0; i < n && bytes > cap / 4 * 3; i++)
            if (unlinkat(disk.fd, list[i].name, 0) == 0) {
                bytes -= list[i].bytes;
                disk.stats.evicted++;
            }
    }
    disk.bytes = bytes;
    disk.added = 0;
    disk.counted = now;
    free(list);
}

void wf_disk_put(const void *identity, size_t n, const wf_blob *object)
{
    header h = {.magic = MAGIC, .nidentity = n, .nobject = object->size};
    char name[NAME + 1], fresh[64];
    if (!ready() || !disk.writable || object->size == 0 || object->size > MOST_OBJECT)
        return;
    wf_hash128(identity, n, h.identity);
    wf_hash128(object->data, object->size, h.object);
    name_file(name, h.identity);
    pthread_mutex_lock(&disk.lock);
    snprintf(fresh, sizeof fresh, ".new-%lld-%u", (long long)getpid(), disk.serial++);
    pthread_mutex_unlock(&disk.lock);
    const int made = openat(disk.fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const int fd = wf_fd_apart(made);
    bool ok = fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, identity, n) &&
              write_all(fd, object->data, object->size);
    ok = (fd < 0 || close(fd) == 0) && ok;
    ok = ok && renameat(disk.fd, fresh, disk.fd, name) == 0;
    if (!ok && made >= 0)
        (void)!unlinkat(disk.fd, fresh, 0);
    pthread_mutex_lock(&disk.lock);
    *(ok ? &disk.stats.written : &disk.stats.refused) += 1;
    if (ok)
        keep_to_cap((int64_t)(sizeof h + n + object->size));
    pthread_mutex_unlock(&disk.lock);
}

void wf_disk_get_stats(wf_disk_stats *s)
{
    pthread_mutex_lock(&disk.lock);
    *s = disk.stats;
    pthread_mutex_unlock(&disk.lock);
}

void wf_disk_survey(bool clear, int64_t *files, int64_t *bytes)
{
    *files = *bytes = 0;
    if (!ready())
        return;
    pthread_mutex_lock(&disk.lock);
    file *list = list_files(files, bytes);
    for (int64_t i = 0, n = *files; clear && i < n; i++)
        if (unlinkat(disk.fd, list[i].name, 0) != 0) {
            *bytes -= list[i].bytes; /* it is not removed, and not said to be */
            --*files;
        }
    if (clear)
        disk.bytes = -1;
    free(list);
    pthread_mutex_unlock(&disk.lock);
}

void wf_disk_before_fork(void)
{
    pthread_mutex_lock(&disk.lock);
}
void wf_disk_after_fork(void)
{
    pthread_mutex_unlock(&disk.lock);
}
