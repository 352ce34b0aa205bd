/* main() of a fuzz target without libFuzzer: runs every file that it is given, and every file of the folders.
 * Any compiler builds it, so the corpus is replayed where clang is missing, and by a debugger. FUZZ_DUMP (see
 * jpeg_grammar.h) works as under libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static const char *current = "none";
static long runs;

/* Custom mutators call it; nothing is mutated here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    (void)data, (void)max_size;
    return size;
}

static int run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    long size;
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) {
        fprintf(stderr, "cannot read %s\n", path);
        if (file) fclose(file);
        return 1;
    }
    uint8_t *bytes =
        malloc(size ? (size_t)size : 1); /* of its own size, so that a sanitizer sees a read beyond it */
    const int failed = !bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size;
    fclose(file);
    current = path;
    if (!failed) LLVMFuzzerTestOneInput(bytes, (size_t)size);
    free(bytes);
    runs++;
    return failed;
}

static int run_folder(const char *path) {
    struct dirent **names;
    const int count = scandir(path, &names, NULL, alphasort);
    int failed = count < 0;
    for (int i = 0; i < count; i++) {
        char inner[4096];
        if (names[i]->d_name[0] != '.' && !failed) {
            snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name);
            failed = run_file(inner);
        }
        free(names[i]);
    }
    if (count >= 0) free(names);
    return failed;
}

static void say_where(void) {
    if (strcmp(current, "done") != 0) fprintf(stderr, "while running %s\n", current);
}

int main(int argc, char **argv) {
    struct stat is;
    atexit(say_where);
    for (int i = 1; i < argc; i++) {
        if (stat(argv[i], &is) != 0 || (S_ISDIR(is.st_mode) ? run_folder(argv[i]) : run_file(argv[i])))
            return 1;
    }
    current = "done";
    printf("%ld inputs\n", runs);
    return 0;
}
