/*
 * output.c: files that are there whole or not at all. Bytes go to ".NAME.123abc" in the folder of NAME, which a rename
 * puts in place at the end; a table of the unfinished names lets a signal handler remove them.
 */
#include "io/io_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct io_output {
    char *path;      /* as given, for messages */
    char *target;    /* where the rename goes: path, or the file that it links to */
    char *temporary; /* NULL: written directly; also in unfinished[slot] */
    int slot;
    FILE *file;
};

/* Who takes a name out of the table, by an atomic exchange, owns it: the handler never sees freed memory. */
enum { SLOTS = 64 };
static _Atomic(char *) unfinished[SLOTS];

static void remove_unfinished(int number) {
    const int saved = errno;
    for (int slot = 0; slot < SLOTS; slot++) {
        char *name = atomic_exchange(&unfinished[slot], NULL);
        if (name)
            unlink(name);
    }
    errno = saved;
    raise(number); /* held back until this handler returns; SA_RESETHAND has restored the default, which ends us */
}

void io_output_signals(void) {
    /* PIPE and XFSZ (a limit on file sizes) end a process in the midst of writing as well. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    struct sigaction action = {.sa_handler = remove_unfinished, .sa_flags = (int)SA_RESETHAND};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction old;
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays */
            sigaction(numbers[i], &action, NULL);
    }
}

static bool claim_slot(char *name, int *slot) {
    for (*slot = 0; *slot < SLOTS; ++*slot) {
        char *expected = NULL;
        if (atomic_compare_exchange_strong(&unfinished[*slot], &expected, name))
            return true;
    }
    return false;
}

static void drop(io_output *output) {
    if (output->file)
        fclose(output->file);
    if (output->slot >= 0 && atomic_exchange(&unfinished[output->slot], NULL) == NULL)
        output->temporary = NULL; /* a handler has it */
    free(output->temporary);
    free(output->target);
    free(output->path);
    free(output);
}

/*
 * A new file beside the target, listed before it exists so that no signal falls between. open() with O_EXCL and not
 * mkstemp: it honours the umask and default access lists by itself.
 */
static int open_temporary(io_output *output) {
    static atomic_uint counter;
    const char *slash = strrchr(output->target, '/');
    const int folder = slash ? (int)(slash + 1 - output->target) : 0;
    const char *base = output->target + folder;
    const size_t room = strlen(output->target) + 32;
    if (*base == '\0') {
        errno = folder ? EISDIR : ENOENT; /* "name/" and "" */
        return -1;
    }
    output->temporary = malloc(room);
    if (output->temporary == NULL)
        return -1;
    for (int attempt = 0; attempt < 100; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        const unsigned mark =
            (unsigned)now.tv_nsec ^ (unsigned)getpid() << 12 ^ atomic_fetch_add(&counter, 1u) * 2654435761u;
        /* 200 of the name's at most 255 bytes leave room for the rest */
        snprintf(output->temporary, room, "%.*s.%.200s.%08x", folder, output->target, base, mark);
        if (!claim_slot(output->temporary, &output->slot)) {
            output->slot = -1;
            errno = EMFILE;
            return -1;
        }
        const int fd = open(output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        const int why = errno;
        const bool ours = atomic_exchange(&unfinished[output->slot], NULL) != NULL;
        output->slot = -1;
        errno = why;
        if (!ours)
            output->temporary = NULL; /* a handler has it: the process is about to end */
        if (!ours || why != EEXIST)
            return -1;
    }
    return -1;
}

static int open_target(io_output *output) {
    struct stat info, standard;
    const bool exists = stat(output->path, &info) == 0;
    if (!exists && errno != ENOENT)
        return -1;
    if (exists && S_ISDIR(info.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    if (exists && fstat(STDOUT_FILENO, &standard) == 0 && standard.st_dev == info.st_dev &&
        standard.st_ino == info.st_ino) {
        fflush(stdout); /* /dev/stdout, also when that is a file: after what is there, not in its place */
        return dup(STDOUT_FILENO);
    }
    if (exists && !S_ISREG(info.st_mode))
        return open(output->path, O_WRONLY | O_CLOEXEC);
    output->target = exists ? realpath(output->path, NULL) : strdup(output->path); /* a link stays a link */
    if (output->target == NULL || (exists && faccessat(AT_FDCWD, output->target, W_OK, AT_EACCESS) != 0))
        return -1;
    const int fd = open_temporary(output);
    if (fd >= 0 && exists)
        fchmod(fd, info.st_mode & 0777); /* best effort: file systems without modes refuse */
    return fd;
}

io_output *io_output_open(const char *path, io_error *error) {
    io_output *output = calloc(1, sizeof *output);
    if (output == NULL) {
        io__fail(error, path, "out of memory");
        return NULL;
    }
    output->slot = -1;
    output->path = strdup(path);
    const int fd = output->path ? open_target(output) : -1;
    output->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (output->file == NULL) {
        io__fail_errno(error, path);
        if (fd >= 0) {
            close(fd);
            if (output->temporary)
                unlink(output->temporary);
        }
        drop(output);
        return NULL;
    }
    return output;
}

bool io_output_write(io_output *output, const void *bytes, size_t size, io_error *error) {
    if (size > 0 && fwrite(bytes, 1, size, output->file) != size)
        return io__fail_errno(error, output->path);
    return true;
}

void io_output_abort(io_output *output) {
    if (output == NULL)
        return;
    if (output->temporary)
        unlink(output->temporary);
    drop(output);
}

bool io_output_flush(io_output *output, io_error *error) {
    errno = EIO; /* for a stream that failed before */
    if (!ferror(output->file) && fflush(output->file) == 0 &&
        (output->temporary == NULL || fsync(fileno(output->file)) == 0))
        return true;
    return io__fail_errno(error, output->path);
}

bool io_output_commit(io_output *output, io_error *error) {
    if (!io_output_flush(output, error)) {
        io_output_abort(output);
        return false;
    }
    bool good = fclose(output->file) == 0;
    output->file = NULL;
    if (good && output->temporary)
        good = rename(output->temporary, output->target) == 0;
    if (!good) {
        io__fail_errno(error, output->path);
        io_output_abort(output);
        return false;
    }
    drop(output);
    return true;
}

bool io__output_end(io_output *output, bool good, io_error *error) {
    if (good)
        return io_output_commit(output, error);
    io_output_abort(output);
    return false;
}
