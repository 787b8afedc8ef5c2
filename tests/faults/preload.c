/* A disk that fails, for one process: preloaded, it stands between the program and the writes to files whose path holds a word.
 *
 *   KERNELOPT_DISK_FILES   the word: only these files are concerned
 *   KERNELOPT_DISK_KILL    "write:N", "torn:N", "sync:N": the process is killed before the Nth write, in the middle of it, or after the Nth
 *                          flush and before anybody hears of it
 *   KERNELOPT_DISK_FULL    a path: while there is such a file, nothing can be written (ENOSPC)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long writes, flushes;

static int concerned(int fd) {
    const char *word = getenv("KERNELOPT_DISK_FILES");
    char link[64], path[4096];
    if (!word) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, word) != NULL;
}

static int full(void) {
    const char *flag = getenv("KERNELOPT_DISK_FULL");
    return flag && access(flag, F_OK) == 0;
}

/* N where the process is to be killed at the Nth of this kind, 0 where it is not. */
static long at(const char *kind) {
    const char *told = getenv("KERNELOPT_DISK_KILL");
    size_t length = strlen(kind);
    return told && strncmp(told, kind, length) == 0 && told[length] == ':' ? atol(told + length + 1) : 0;
}

static void power_cut(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int before_write(int fd, int *torn) {
    *torn = 0;
    if (!concerned(fd)) return 0;
    if (full()) {
        errno = ENOSPC;
        return -1;
    }
    long number = ++writes;
    if (at("write") == number) power_cut();
    *torn = at("torn") == number;
    return 0;
}

#define PWRITE(name, offset_type)                                                      \
    ssize_t name(int fd, const void *bytes, size_t count, offset_type offset) {        \
        int torn;                                                                      \
        if (before_write(fd, &torn)) return -1;                                        \
        if (torn) {                                                                    \
            REAL(name)(fd, bytes, count / 2, offset);                                  \
            power_cut();                                                               \
        }                                                                              \
        return REAL(name)(fd, bytes, count, offset);                                   \
    }

PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *bytes, size_t count) {
    int torn;
    if (before_write(fd, &torn)) return -1;
    if (torn) {
        REAL(write)(fd, bytes, count / 2);
        power_cut();
    }
    return REAL(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    int torn;
    if (before_write(fd, &torn)) return -1;
    return REAL(writev)(fd, pieces, count);
}

#define FLUSH(name)                                                                    \
    int name(int fd) {                                                                 \
        int done = REAL(name)(fd);                                                     \
        if (concerned(fd) && at("sync") == ++flushes) power_cut();                     \
        return done;                                                                   \
    }

FLUSH(fsync)
FLUSH(fdatasync)
