/* replay_main.c: runs a fuzz target over every file of the folders given: the corpus as an ordinary test. */
#include "io/io.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs the files of a folder; their number, or -1. */
static int replay(const char *folder) {
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        perror(folder);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(dir)) != NULL;) {
        char path[4096];
        void *bytes;
        size_t size;
        io_error error;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (io_file_read(path, (size_t)1 << 30, &bytes, &size, &error)) {
            LLVMFuzzerTestOneInput(bytes, size);
            free(bytes);
            count++;
        } else {
            fprintf(stderr, "%s\n", error.text);
            count = -1;
        }
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const int count = replay(argv[i]);
        if (count <= 0) {
            fprintf(stderr, "%s: no file was run\n", argv[i]);
            return 1;
        }
        printf("%s: %d files\n", argv[i], count);
    }
    return argc > 1 ? 0 : 1;
}
