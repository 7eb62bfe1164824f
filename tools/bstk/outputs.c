/* outputs.c: what a command writes: all of its files or none. */
#include "cli.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool has_suffix(const char *text, const char *suffix) {
    size_t length = strlen(text), end = strlen(suffix);
    return length > end && strcmp(text + length - end, suffix) == 0;
}

/* Takes a written file back because its companion failed; never a device such as /dev/stdout. */
static void remove_file(const char *path) {
    struct stat status;
    if (path && lstat(path, &status) == 0 && S_ISREG(status.st_mode))
        unlink(path);
}

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

void write_arrays(const common_opts *common, const char *path, const bstk_tensor *t, const char *lse_path,
                  const bstk_tensor *lse) {
    /* Both are written whole before the first is renamed into place. */
    io_error error;
    io_output *lse_output = lse_path ? io_output_open(lse_path, &error) : NULL;
    bool good = (!lse_path || lse_output) && (!lse_output || io_npy_put(lse_output, lse_path, lse, &error));
    io_output *output = good ? io_output_open(path, &error) : NULL;
    good = output && io_npy_put(output, path, t, &error);
    if (!good) {
        if (output)
            io_output_abort(output);
        if (lse_output)
            io_output_abort(lse_output);
        fail("%s: %s", common->command, error.text);
    }
    if (lse_output && !io_output_commit(lse_output, &error)) {
        io_output_abort(output);
        fail("%s: %s", common->command, error.text);
    }
    if (!io_output_commit(output, &error))
        fail("%s: %s", common->command, error.text);
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

void write_layout_files(const common_opts *common, const bstk_layout *layout, const char *path, const char *png) {
    io_error error;
    if (png && !io_picture_png(png, layout, &error))
        fail("%s: %s", common->command, error.text);
    if (!path)
        return;
    if (has_suffix(path, ".bstk")) {
        bstk_status status = save_layout(layout, path);
        if (status != BSTK_OK)
            remove_file(png);
        must(status);
    } else if (!io_npy_write_layout(path, layout, &error)) {
        remove_file(png);
        fail("%s: %s", common->command, error.text);
    }
}
