/* replay.c - runs a fuzzer's function on every file of a folder, once each.
 *
 * The corpora are regression tests: whatever the fuzzer once found stays in
 * them. A missing or empty folder is a failure, else a moved corpus would pass. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Inputs are small; a larger file does not belong into a corpus. */
#define INPUT_MAX_SIZE (1u << 20)

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return -1;
    }
    uint8_t *data = malloc(INPUT_MAX_SIZE + 1);
    size_t   size = data ? fread(data, 1, INPUT_MAX_SIZE + 1, file) : 0;
    int      failed = !data || ferror(file) || size > INPUT_MAX_SIZE;
    if (failed) {
        fprintf(stderr, "%s: not readable or above %u bytes\n", path, INPUT_MAX_SIZE);
    } else {
        /* An allocation of the exact size, so that a sanitizer sees a read past the end. */
        uint8_t *exact = malloc(size ? size : 1);
        if (exact) {
            memcpy(exact, data, size);
            LLVMFuzzerTestOneInput(exact, size);
        }
        failed = !exact;
        free(exact);
    }
    free(data);
    fclose(file);
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        perror(argv[1]);
        return 1;
    }
    int n_inputs = 0, n_failed = 0;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name) >= (int) sizeof path || replay_file(path))
            n_failed++;
        n_inputs++;
    }
    closedir(dir);
    printf("%d inputs, %d failed\n", n_inputs, n_failed);
    return n_inputs == 0 || n_failed ? 1 : 0;
}
