/* io_test.h: a folder of its own for each test of the file library. Include after cmocka.h. */
#ifndef BSTK_IO_TEST_H
#define BSTK_IO_TEST_H

#include "io/io.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char io_test_folder[64];
static char io_test_paths[4][128]; /* four paths may be in use at once */

/* cmocka setup and teardown of a test. Anybody may enter: some tests go on as another user. */
static inline int io_test_begin(void **state) {
    (void)state;
    strcpy(io_test_folder, "/tmp/bstk_test_XXXXXX");
    return mkdtemp(io_test_folder) == NULL || chmod(io_test_folder, 0755) != 0;
}

static inline const char *io_test_path(const char *name) {
    static unsigned next;
    char *path = io_test_paths[next++ % 4];
    snprintf(path, sizeof io_test_paths[0], "%s/%s", io_test_folder, name);
    return path;
}

/* Number of entries of the folder, hidden ones too. */
static inline int io_test_count(void) {
    DIR *dir = opendir(io_test_folder);
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static inline int io_test_end(void **state) {
    (void)state;
    DIR *dir = opendir(io_test_folder);
    if (dir == NULL)
        return 1;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
    return rmdir(io_test_folder);
}

static inline void io_test_put(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Whether the file is there and holds exactly these bytes. */
static inline void io_test_expect(const char *path, const void *bytes, size_t size) {
    io_error error;
    void *got;
    size_t got_size;
    if (!io_file_read(path, (size_t)1 << 30, &got, &got_size, &error))
        fail_msg("%s", error.text);
    assert_int_equal(got_size, size);
    assert_memory_equal(got, bytes, size);
    free(got);
}

static inline void io_test_message(const io_error *error, const char *part) {
    if (strstr(error->text, part) == NULL)
        fail_msg("message is \"%s\", expected \"%s\" in it", error->text, part);
    assert_null(strchr(error->text, '\n'));
}

/* Runs body in a child that is not root, for whom permissions count; its return value, or 256 + signal. */
static inline int io_test_as_nobody(int (*body)(void)) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(99);
        _exit(body());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
