/* outputs.c: what a command writes: all of its files or none. */
#include "cli.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool has_suffix(const char *text, const char *suffix) {
    size_t length = strlen(text), end = strlen(suffix);
    return length > end && strcmp(text + length - end, suffix) == 0;
}

enum { MOST_FILES = 4 }; /* of one command */

void probe_output(const common_opts *common, const char *path) {
    struct stat status;
    if (!path || (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)))
        return; /* opening a pipe for a moment would end its reader */
    io_error error;
    io_output *output = io_output_open(path, &error);
    if (!output)
        fail("%s: %s", common->command, error.text);
    io_output_abort(output);
}

/* Two names of one file: the same text, or the same file in the same folder once both are resolved. */
static bool same_file(const char *a, const char *b) {
    if (strcmp(a, b) == 0)
        return true;
    struct stat at, bt;
    if (stat(a, &at) == 0 && stat(b, &bt) == 0)
        return S_ISREG(at.st_mode) && at.st_dev == bt.st_dev && at.st_ino == bt.st_ino;
    const char *a_name = strrchr(a, '/'), *b_name = strrchr(b, '/');
    char a_folder[PATH_MAX] = ".", b_folder[PATH_MAX] = ".";
    if (a_name)
        snprintf(a_folder, sizeof a_folder, "%.*s", (int)(a_name - a + 1), a);
    if (b_name)
        snprintf(b_folder, sizeof b_folder, "%.*s", (int)(b_name - b + 1), b);
    return strcmp(a_name ? a_name + 1 : a, b_name ? b_name + 1 : b) == 0 && stat(a_folder, &at) == 0 &&
           stat(b_folder, &bt) == 0 && at.st_dev == bt.st_dev && at.st_ino == bt.st_ino;
}

void probe_outputs(const common_opts *common, const output_file *files, int count) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            if (files[i].path && files[j].path && same_file(files[i].path, files[j].path))
                usage_error("%s: %s and %s are the same file, %s", common->command, files[j].option, files[i].option,
                            files[i].path);
    for (int i = 0; i < count; i++)
        probe_output(common, files[i].path);
}

/* The library saves through a temporary file of its own: signals wait until it is renamed. */
static bstk_status save_layout(const bstk_layout *layout, const char *path) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    bstk_status status = bstk_layout_save(layout, path);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}

/* The library opens and renames .bstk files by itself. */
static bool is_saved_by_library(const output_file *file) {
    return file->layout && !file->picture && has_suffix(file->path, ".bstk");
}

static bool put(io_output *output, const output_file *file, io_error *error) {
    if (file->picture)
        return io_picture_put(output, file->path, file->layout, error);
    if (file->layout)
        return io_npy_put_layout(output, file->path, file->layout, error);
    return io_npy_put(output, file->path, file->t, error);
}

void write_outputs(const common_opts *common, const output_file *files, int count) {
    io_error error;
    io_output *outputs[MOST_FILES] = {0};
    const output_file *layout = NULL;
    /* What can fail comes before the first rename: nothing but the renames themselves is left then. */
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        if (!files[i].path)
            continue;
        if (is_saved_by_library(&files[i])) {
            layout = &files[i];
            continue;
        }
        outputs[i] = io_output_open(files[i].path, &error);
        good = outputs[i] && put(outputs[i], &files[i], &error);
    }
    for (int i = 0; i < count && good; i++)
        good = !outputs[i] || io_output_flush(outputs[i], &error);
    const bstk_status saved = good && layout ? save_layout(layout->layout, layout->path) : BSTK_OK;
    for (int i = 0; i < count; i++) {
        if (!outputs[i])
            continue;
        if (good && saved == BSTK_OK)
            good = io_output_commit(outputs[i], &error);
        else
            io_output_abort(outputs[i]);
    }
    must(saved);
    if (!good)
        fail("%s: %s", common->command, error.text);
}

void write_array(const common_opts *common, const char *path, const bstk_tensor *t) {
    write_outputs(common, &(output_file){.path = path, .t = t}, 1);
}
