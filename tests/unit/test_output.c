/* test_output.c: a file is there whole or not at all, whatever happens while it is written; reading files whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

static io_output *open_good(const char *path) {
    io_error error;
    io_output *output = io_output_open(path, &error);
    if (output == NULL)
        fail_msg("%s", error.text);
    return output;
}

static void write_good(const char *path, const char *text) {
    io_error error;
    io_output *output = open_good(path);
    assert_true(io_output_write(output, text, strlen(text), &error));
    if (!io_output_commit(output, &error))
        fail_msg("%s", error.text);
}

static void open_bad(const char *path, const char *message) {
    io_error error = {""};
    assert_null(io_output_open(path, &error));
    io_test_message(&error, message);
    assert_memory_equal(error.text, path, strlen(path));
}

static mode_t mode_of(const char *path) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    return info.st_mode & 07777;
}

static void whole(void **state) {
    (void)state;
    const char *path = io_test_path("a.txt");
    io_error error;
    io_output *output = open_good(path);
    assert_true(io_output_write(output, "one ", 4, &error));
    assert_true(io_output_write(output, NULL, 0, &error));
    assert_true(io_output_write(output, "two", 3, &error));
    assert_int_equal(access(path, F_OK), -1); /* not before the end */
    assert_int_equal(io_test_count(), 1);
    assert_true(io_output_commit(output, &error));
    io_test_expect(path, "one two", 7);
    assert_int_equal(io_test_count(), 1);
    write_good(path, "");
    io_test_expect(path, "", 0);
}

static void aborted(void **state) {
    (void)state;
    const char *path = io_test_path("a.txt");
    io_error error;
    write_good(path, "old");
    io_output *output = open_good(path);
    assert_true(io_output_write(output, "new", 3, &error));
    io_output_abort(output);
    io_output_abort(NULL);
    io_test_expect(path, "old", 3);
    assert_int_equal(io_test_count(), 1);
}

static void modes(void **state) {
    (void)state;
    const char *path = io_test_path("a.txt");
    const mode_t old = umask(027);
    write_good(path, "x");
    umask(old);
    assert_int_equal(mode_of(path), 0640);
    assert_int_equal(chmod(path, 0604), 0);
    write_good(path, "y");
    assert_int_equal(mode_of(path), 0604);
}

static void links(void **state) {
    (void)state;
    const char *file = io_test_path("file.txt"), *link = io_test_path("link.txt");
    io_test_put(file, "old", 3);
    assert_int_equal(symlink("file.txt", link), 0);
    write_good(link, "new");
    struct stat info;
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    io_test_expect(file, "new", 3);
    assert_int_equal(io_test_count(), 2);
}

static void relative(void **state) {
    (void)state;
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(io_test_folder), 0);
    write_good("here.txt", "x");
    assert_int_equal(chdir(here), 0);
    io_test_expect(io_test_path("here.txt"), "x", 1);
    assert_int_equal(io_test_count(), 1);
}

static void names(void **state) {
    (void)state;
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = '\0'; /* as long as a name may be: the temporary one is shorter */
    char path[400];
    snprintf(path, sizeof path, "%s/%s", io_test_folder, name);
    write_good(path, "x");
    io_test_expect(path, "x", 1);
    open_bad("", ": No such file or directory");
    open_bad(io_test_folder, ": Is a directory");
    open_bad(io_test_path("none/a.txt"), "none/a.txt: No such file or directory");
    open_bad(io_test_path("a.txt/"), "a.txt/: Is a directory");
    io_test_put(io_test_path("file"), "", 0);
    open_bad(io_test_path("file/a.txt"), "file/a.txt: Not a directory");
    assert_int_equal(io_test_count(), 2);
}

static void many(void **state) {
    (void)state;
    io_output *outputs[64];
    for (int i = 0; i < 64; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        outputs[i] = open_good(io_test_path(name));
    }
    open_bad(io_test_path("one_more"), "Too many open files");
    for (int i = 0; i < 64; i++)
        io_output_abort(outputs[i]);
    write_good(io_test_path("again"), "x");
    assert_int_equal(io_test_count(), 1);
}

/* ---- the system refuses ----------------------------------------------------------------------------------------- */

static int open_new(void) {
    io_error error;
    return io_output_open(io_test_path("new.txt"), &error) == NULL &&
           strstr(error.text, "new.txt: Permission denied") != NULL;
}

static int open_closed(void) {
    io_error error;
    return io_output_open(io_test_path("closed.txt"), &error) == NULL &&
           strstr(error.text, "closed.txt: Permission denied") != NULL;
}

static void no_permission(void **state) {
    (void)state;
    io_test_put(io_test_path("closed.txt"), "old", 3);
    assert_int_equal(chmod(io_test_path("closed.txt"), 0444), 0);
    assert_int_equal(chmod(io_test_folder, 0555), 0);
    assert_int_equal(io_test_as_nobody(open_new), 1);
    assert_int_equal(chmod(io_test_folder, 0777), 0); /* a rename would replace the file, which is read-only */
    assert_int_equal(io_test_as_nobody(open_closed), 1);
    io_test_expect(io_test_path("closed.txt"), "old", 3);
    assert_int_equal(io_test_count(), 1);
}

static void disk_full(void **state) {
    (void)state;
    io_error error;
    io_output *output = open_good("/dev/full");
    assert_true(io_output_write(output, "x", 1, &error)); /* still in the buffer */
    assert_false(io_output_commit(output, &error));
    io_test_message(&error, "/dev/full: No space left on device");
    output = open_good("/dev/full");
    char *large = calloc(1, 1 << 20);
    assert_false(io_output_write(output, large, 1 << 20, &error));
    io_test_message(&error, "/dev/full: No space left on device");
    assert_false(io_output_commit(output, &error)); /* what failed once cannot be committed */
    free(large);
}

/* A limit on file sizes stands for a full disk: files beside an existing target. */
static int write_beyond_limit(void) {
    char large[100000] = {0};
    const struct rlimit limit = {50000, 50000};
    io_error error;
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    io_output *output = io_output_open(io_test_path("a.txt"), &error);
    const bool written = output && io_output_write(output, large, sizeof large, &error);
    if (output && written)
        return 3;
    io_output_abort(output);
    return strstr(error.text, "a.txt: File too large") != NULL;
}

static void file_too_large(void **state) {
    (void)state;
    io_test_put(io_test_path("a.txt"), "old", 3);
    assert_int_equal(chmod(io_test_path("a.txt"), 0666), 0);
    assert_int_equal(chmod(io_test_folder, 0777), 0);
    assert_int_equal(io_test_as_nobody(write_beyond_limit), 1);
    io_test_expect(io_test_path("a.txt"), "old", 3);
    assert_int_equal(io_test_count(), 1);
}

/* ---- not a regular file ------------------------------------------------------------------------------------------ */

static void standard_output(void **state) {
    (void)state;
    const char *path = io_test_path("stdout.txt");
    io_test_put(path, "before ", 7);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int fd = open(path, O_WRONLY | O_APPEND);
        if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
            _exit(1);
        write_good("/dev/stdout", "one ");
        write_good("/dev/fd/1", "two");
        write_good("/dev/null", "nowhere");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    io_test_expect(path, "before one two", 14);
    assert_int_equal(io_test_count(), 1);
}

static void fifo(void **state) {
    (void)state;
    const char *path = io_test_path("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        write_good(path, "through");
        _exit(0);
    }
    io_test_expect(path, "through", 7); /* io_file_read of a pipe */
    assert_int_equal(waitpid(child, NULL, 0), child);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

/* Has two unfinished outputs, one onto an existing file, tells the parent by closing `ready`, and waits. */
static void be_interrupted(int ready) {
    io_error error;
    char *large = calloc(1, 1 << 20);
    io_output_signals();
    io_output *first = io_output_open(io_test_path("old.txt"), &error);
    io_output *second = io_output_open(io_test_path("new.txt"), &error);
    if (!first || !second || !io_output_write(first, large, 1 << 20, &error) ||
        !io_output_write(second, large, 1 << 20, &error))
        _exit(1);
    close(ready);
    for (;;)
        pause();
}

static void interrupted(void **state) {
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    io_test_put(io_test_path("old.txt"), "old", 3);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int ends[2], status;
        char none;
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            be_interrupted(ends[1]);
        }
        close(ends[1]);
        assert_int_equal(read(ends[0], &none, 1), 0);
        close(ends[0]);
        assert_int_equal(io_test_count(), 3);
        assert_int_equal(kill(child, numbers[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
        io_test_expect(io_test_path("old.txt"), "old", 3);
        assert_int_equal(io_test_count(), 1);
    }
}

/* Writes the same file again and again, of one letter each time. */
static void write_for_ever(void) {
    enum { SIZE = 300000 };
    io_error error;
    char *bytes = malloc(SIZE);
    io_output_signals();
    for (unsigned round = 0;; round++) {
        memset(bytes, 'a' + (int)(round % 26), SIZE);
        io_output *output = io_output_open(io_test_path("file"), &error);
        if (!output || !io_output_write(output, bytes, SIZE, &error) || !io_output_commit(output, &error))
            _exit(1);
    }
}

/* Killed at any moment, opening and renaming included, it leaves the file of some round and nothing else. */
static void interrupted_anywhere(void **state) {
    (void)state;
    for (int round = 0; round < 60; round++) {
        const struct timespec moment = {0, 1000000 + round * 137000};
        int status;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_for_ever();
        nanosleep(&moment, NULL);
        kill(child, SIGTERM);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        void *bytes;
        size_t size;
        io_error error;
        if (access(io_test_path("file"), F_OK) == 0) {
            assert_true(io_file_read(io_test_path("file"), 1 << 20, &bytes, &size, &error));
            assert_int_equal(size, 300000);
            assert_int_equal(((char *)bytes)[0], ((char *)bytes)[size - 1]);
            free(bytes);
            assert_int_equal(io_test_count(), 1);
        } else {
            assert_int_equal(io_test_count(), 0);
        }
    }
}

static int raise_ignored(void) {
    signal(SIGHUP, SIG_IGN); /* as nohup does */
    io_output_signals();
    raise(SIGHUP);
    return 7;
}

static void ignored_signals_stay(void **state) {
    (void)state;
    assert_int_equal(io_test_as_nobody(raise_ignored), 7);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void whole_files(void **state) {
    (void)state;
    void *bytes = NULL;
    size_t size = 0;
    io_error error;
    io_test_put(io_test_path("a"), "12345678", 8);
    assert_true(io_file_read(io_test_path("a"), 8, &bytes, &size, &error));
    assert_int_equal(size, 8);
    free(bytes);
    bytes = NULL;
    assert_false(io_file_read(io_test_path("a"), 7, &bytes, &size, &error));
    io_test_message(&error, "a: 8 bytes, expected at most 7");
    assert_false(io_file_read("/dev/zero", 100000, &bytes, &size, &error));
    io_test_message(&error, "/dev/zero: more than 100000 bytes");
    assert_false(io_file_read(io_test_path("none"), 7, &bytes, &size, &error));
    io_test_message(&error, "none: No such file or directory");
    assert_false(io_file_read("/", 7, &bytes, &size, &error));
    io_test_message(&error, "/: Is a directory");
    assert_null(bytes);
    assert_true(io_file_read("/dev/null", 0, &bytes, &size, &error));
    assert_int_equal(size, 0);
    free(bytes);
    assert_true(io_file_read("/proc/self/status", 1 << 20, &bytes, &size, &error)); /* says that its size is 0 */
    assert_true(size > 100);
    free(bytes);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, io_test_begin, io_test_end)
    const struct CMUnitTest tests[] = {
        TEST(whole),
        TEST(aborted),
        TEST(modes),
        TEST(links),
        TEST(relative),
        TEST(names),
        TEST(many),
        TEST(no_permission),
        TEST(disk_full),
        TEST(file_too_large),
        TEST(standard_output),
        TEST(fifo),
        TEST(interrupted),
        TEST(interrupted_anywhere),
        TEST(ignored_signals_stay),
        TEST(whole_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
