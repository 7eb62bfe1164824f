/* io_file.c: messages of the file library, and reading files whole. */
#include "io/io_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool io__fail(io_error *error, const char *name, const char *format, ...) {
    enum { NAME_ROOM = 256 }; /* of 512: the reason gets the other half */
    const size_t length = strlen(name), skip = length > NAME_ROOM ? length - NAME_ROOM : 0;
    int used = snprintf(error->text, sizeof error->text, "%s%s: ", skip ? "..." : "", name + skip);
    va_list args;
    va_start(args, format);
    vsnprintf(error->text + used, sizeof error->text - (size_t)used, format, args);
    va_end(args);
    for (char *c = error->text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    return false;
}

bool io__fail_errno(io_error *error, const char *name) {
    return io__fail(error, name, "%s", strerror(errno));
}

bool io__open(const char *path, int *fd, int64_t *size, io_error *error) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return io__fail_errno(error, path);
    struct stat info;
    bool good = fstat(opened, &info) == 0;
    if (good && S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        good = false;
    }
    if (!good) {
        io__fail_errno(error, path);
        close(opened);
        return false;
    }
    *fd = opened;
    *size = S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
    return true;
}

int64_t io__read(int fd, void *bytes, size_t size) {
    size_t used = 0;
    while (used < size) {
        const size_t left = size - used;
        const ssize_t got = read(fd, (char *)bytes + used, left < INT_MAX ? left : INT_MAX);
        if (got == 0)
            break;
        if (got > 0)
            used += (size_t)got;
        else if (errno != EINTR)
            return -1;
    }
    return (int64_t)used;
}

static bool read_whole(int fd, const char *path, size_t first, size_t limit, void **bytes, size_t *size,
                       io_error *error) {
    size_t capacity = first, used = 0;
    char *buffer = NULL;
    for (;;) {
        char *larger = realloc(buffer, capacity);
        if (larger == NULL) {
            free(buffer);
            return io__fail(error, path, "out of memory (%zu bytes)", capacity);
        }
        buffer = larger;
        const int64_t got = io__read(fd, buffer + used, capacity - used);
        if (got < 0) {
            io__fail_errno(error, path);
            free(buffer);
            return false;
        }
        used += (size_t)got;
        if (used > limit) {
            free(buffer);
            return io__fail(error, path, "more than %zu bytes, which is the limit", limit);
        }
        if (used < capacity)
            break;
        capacity = capacity > limit / 2 ? limit + 1 : capacity * 2; /* one byte over the limit shows what is beyond */
    }
    *bytes = buffer;
    *size = used;
    return true;
}

bool io_file_read(const char *path, size_t limit, void **bytes, size_t *size, io_error *error) {
    int fd;
    int64_t known;
    if (!io__open(path, &fd, &known, error))
        return false;
    limit = limit < PTRDIFF_MAX ? limit : PTRDIFF_MAX - 1;
    /* A byte more than the file has lets the first round see its end. Files of /proc have size 0 and some bytes. */
    const bool small = known <= 0;
    bool good = small || (uint64_t)known <= limit;
    if (good)
        good = read_whole(fd, path, small ? 4096 : (size_t)known + 1, limit, bytes, size, error);
    else
        io__fail(error, path, "%lld bytes, expected at most %zu", (long long)known, limit);
    close(fd);
    return good;
}
