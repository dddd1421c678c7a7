/* Counts the storage calls of a process below one folder, and makes one of them go wrong: the first that can, from a
 * given number on. (Where several processes share a folder, which call has which number depends on their timing.)
 *
 * Loaded with LD_PRELOAD. A process arms itself with campaign_arm(); until then every call passes straight through.
 * Each counted call is written to a log as "NUMBER KIND FAULT PATH", before it is made. Calls are told by kind, so that
 * an error hits only those that can answer so: no lock fails for want of space.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { CREATE, OPEN, LIST, READ, WRITE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, TRUNCATE, LOCK, LINK, CLOSE };
static const char *const NAMES[] = {"create", "open",  "list",  "read",     "write", "sync", "rename",
                                    "unlink", "mkdir", "rmdir", "truncate", "lock",  "link", "close"};

enum mode { WATCH, KILL_BEFORE, KILL_AFTER, FAIL_ONCE, FAIL_ON, SHORT_ONCE, SHORT_THEN_FAIL };
enum action { PASS, DIE_AFTER, FAIL, HALVE };

static char folder[PATH_MAX], part[PATH_MAX];
static size_t folder_length;
static atomic_long count;
static atomic_int met;
static long target;
static int armed, mode, number, journal;
static unsigned kinds;

void campaign_arm(const char *below, long at, int how, int error, unsigned affected, const char *only,
                  int log) {
    strncpy(folder, below, sizeof folder - 1);
    strncpy(part, only, sizeof part - 1);
    folder_length = strlen(folder);
    target = at;
    mode = how;
    number = error;
    kinds = affected;
    journal = log;
    atomic_store(&count, 0);
    atomic_store(&met, 0);
    armed = 1;
}

void campaign_disarm(void) { armed = 0; }

const char *campaign_kind(int kind) { return kind <= CLOSE ? NAMES[kind] : NULL; }

static void path_of(int descriptor, char *path) {
    char link[64];
    if (descriptor == AT_FDCWD)
        strcpy(link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

static int counted(const char *path) {
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static enum action decided(enum kind kind, long call, const char *path) {
    if (mode == KILL_AFTER && call == target) return DIE_AFTER;
    if (mode < FAIL_ONCE || call < target || !(kinds >> kind & 1) || !strstr(path, part)) return PASS;
    int first = !atomic_exchange(&met, 1);
    if (mode == SHORT_ONCE || mode == SHORT_THEN_FAIL) return first ? HALVE : mode == SHORT_ONCE ? PASS : FAIL;
    return first || mode == FAIL_ON ? FAIL : PASS;
}

static enum action judged(enum kind kind, const char *path) {
    static const char *const MARKS[] = {"-", "killed", "failed", "halved"};
    if (!counted(path)) return PASS;
    long call = atomic_fetch_add(&count, 1);
    int dies_now = mode == KILL_BEFORE && call == target;
    enum action action = decided(kind, call, path);
    char line[PATH_MAX + 64];
    const char *mark = dies_now ? "killed" : MARKS[action];
    int length = snprintf(line, sizeof line, "%ld %s %s %s\n", call, NAMES[kind], mark, path);
    syscall(SYS_write, journal, line, length);
    if (dies_now) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return action;
}

static enum action judged_at(enum kind kind, int directory, const char *path) {
    char whole[2 * PATH_MAX];
    if (path[0] == '/') return judged(kind, path);
    path_of(directory, whole);
    strcat(whole, "/");
    strncat(whole, path, PATH_MAX - 1);
    return judged(kind, whole);
}

static enum action judged_open(enum kind kind, int descriptor) {
    char path[PATH_MAX];
    path_of(descriptor, path);
    return judged(kind, path);
}

static long ended(enum action action, long result) {
    if (action == DIE_AFTER) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    return result;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A call that goes on as it is while nothing is armed, and otherwise as is judged. */
#define THROUGH(judgement, call)                         \
    do {                                                 \
        if (!armed) return call;                         \
        enum action action = judgement;                  \
        if (action == FAIL) return errno = number, -1;   \
        return ended(action, call);                      \
    } while (0)

static enum kind opening(int flags) {
    return (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY ? CREATE : OPEN;
}

static mode_t rights(int flags, va_list rest) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPENING(name)                                                              \
    int name(const char *path, int flags, ...) {                                   \
        va_list rest;                                                              \
        va_start(rest, flags);                                                     \
        mode_t access = rights(flags, rest);                                       \
        va_end(rest);                                                              \
        THROUGH(judged_at(opening(flags), AT_FDCWD, path), REAL(name)(path, flags, access)); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                           \
    int name(int directory, const char *path, int flags, ...) {                    \
        va_list rest;                                                              \
        va_start(rest, flags);                                                     \
        mode_t access = rights(flags, rest);                                       \
        va_end(rest);                                                              \
        THROUGH(judged_at(opening(flags), directory, path), REAL(name)(directory, path, flags, access)); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

/* What a compiler makes of open() with checks and without O_CREAT. */
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int directory, const char *path, int flags) { return openat(directory, path, flags); }
int __openat64_2(int directory, const char *path, int flags) { return openat64(directory, path, flags); }

DIR *opendir(const char *path) {
    if (!armed) return REAL(opendir)(path);
    enum action action = judged_at(LIST, AT_FDCWD, path);
    if (action == FAIL) return errno = number, NULL;
    DIR *directory = REAL(opendir)(path);
    ended(action, 0);
    return directory;
}

static size_t halved(enum action action, size_t size) { return action == HALVE && size > 1 ? size / 2 : size; }

ssize_t write(int descriptor, const void *bytes, size_t size) {
    if (!armed) return REAL(write)(descriptor, bytes, size);
    enum action action = judged_open(WRITE, descriptor);
    if (action == FAIL) return errno = number, -1;
    return ended(action, REAL(write)(descriptor, bytes, halved(action, size)));
}

#define POSITIONED_WRITE(name, offset)                                                  \
    ssize_t name(int descriptor, const void *bytes, size_t size, offset at) {           \
        if (!armed) return REAL(name)(descriptor, bytes, size, at);                     \
        enum action action = judged_open(WRITE, descriptor);                            \
        if (action == FAIL) return errno = number, -1;                                  \
        return ended(action, REAL(name)(descriptor, bytes, halved(action, size), at));  \
    }
POSITIONED_WRITE(pwrite, off_t)
POSITIONED_WRITE(pwrite64, off64_t)

ssize_t read(int descriptor, void *bytes, size_t size) {
    THROUGH(judged_open(READ, descriptor), REAL(read)(descriptor, bytes, size));
}
ssize_t pread(int descriptor, void *bytes, size_t size, off_t at) {
    THROUGH(judged_open(READ, descriptor), REAL(pread)(descriptor, bytes, size, at));
}
ssize_t pread64(int descriptor, void *bytes, size_t size, off64_t at) {
    THROUGH(judged_open(READ, descriptor), REAL(pread64)(descriptor, bytes, size, at));
}

int fsync(int descriptor) { THROUGH(judged_open(SYNC, descriptor), REAL(fsync)(descriptor)); }
int fdatasync(int descriptor) { THROUGH(judged_open(SYNC, descriptor), REAL(fdatasync)(descriptor)); }

int rename(const char *from, const char *to) { THROUGH(judged_at(RENAME, AT_FDCWD, to), REAL(rename)(from, to)); }
int renameat(int from, const char *old, int to, const char *name) {
    THROUGH(judged_at(RENAME, to, name), REAL(renameat)(from, old, to, name));
}
int renameat2(int from, const char *old, int to, const char *name, unsigned flags) {
    THROUGH(judged_at(RENAME, to, name), REAL(renameat2)(from, old, to, name, flags));
}

int unlink(const char *path) { THROUGH(judged_at(UNLINK, AT_FDCWD, path), REAL(unlink)(path)); }
int unlinkat(int directory, const char *path, int flags) {
    enum kind kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    THROUGH(judged_at(kind, directory, path), REAL(unlinkat)(directory, path, flags));
}
int rmdir(const char *path) { THROUGH(judged_at(RMDIR, AT_FDCWD, path), REAL(rmdir)(path)); }
int mkdir(const char *path, mode_t access) { THROUGH(judged_at(MKDIR, AT_FDCWD, path), REAL(mkdir)(path, access)); }
int mkdirat(int directory, const char *path, mode_t access) {
    THROUGH(judged_at(MKDIR, directory, path), REAL(mkdirat)(directory, path, access));
}
int link(const char *from, const char *to) { THROUGH(judged_at(LINK, AT_FDCWD, to), REAL(link)(from, to)); }
int linkat(int from, const char *old, int to, const char *name, int flags) {
    THROUGH(judged_at(LINK, to, name), REAL(linkat)(from, old, to, name, flags));
}

int ftruncate(int descriptor, off_t size) {
    THROUGH(judged_open(TRUNCATE, descriptor), REAL(ftruncate)(descriptor, size));
}
int ftruncate64(int descriptor, off64_t size) {
    THROUGH(judged_open(TRUNCATE, descriptor), REAL(ftruncate64)(descriptor, size));
}

int flock(int descriptor, int operation) {
    if (operation & LOCK_UN) return REAL(flock)(descriptor, operation);
    THROUGH(judged_open(LOCK, descriptor), REAL(flock)(descriptor, operation));
}

static int takes_lock(int command, void *argument) {
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    return locks && ((struct flock *)argument)->l_type != F_UNLCK;
}

#define CONTROL(name)                                                                          \
    int name(int descriptor, int command, ...) {                                               \
        va_list rest;                                                                          \
        va_start(rest, command);                                                               \
        void *argument = va_arg(rest, void *);                                                 \
        va_end(rest);                                                                          \
        if (!takes_lock(command, argument)) return REAL(name)(descriptor, command, argument);  \
        THROUGH(judged_open(LOCK, descriptor), REAL(name)(descriptor, command, argument));     \
    }
CONTROL(fcntl)
CONTROL(fcntl64)

/* Only files that were open for writing: a file system may say at last that it could not keep them. */
int close(int descriptor) {
    if (!armed || descriptor == journal) return REAL(close)(descriptor);
    int flags = syscall(SYS_fcntl, descriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return REAL(close)(descriptor);
    enum action action = judged_open(CLOSE, descriptor);
    int result = REAL(close)(descriptor);
    if (action == FAIL) return errno = number, -1;
    return ended(action, result);
}
