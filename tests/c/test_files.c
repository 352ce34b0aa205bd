/* Files in place: what is read of them, what is refused, and what several threads learn of them at once. */
#define _GNU_SOURCE
#include "store/files.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

enum { COUNT = 4, THREADS = 4, ROUNDS = 2000 };

static char folder[] = "/tmp/fl-files-XXXXXX";
static const char names[] =
    "one\0two\0missing\0folder"; /* each with its zero, the last one's is the literal's own */

static void write_file(const char *name, const char *text) {
    char path[PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
    FILE *file = fopen(path, "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static fl_files *listed(size_t room) {
    char prefix[PATH_MAX];
    fl_error err;
    fl_files *files;
    CHECK((size_t)snprintf(prefix, sizeof prefix, "%s/", folder) < sizeof prefix);
    CHECK(fl_files_create(&files, prefix, names, sizeof names, COUNT, room, &err) == FL_OK);
    CHECK(fl_files_count(files) == COUNT);
    return files;
}

static void reading(void) {
    fl_files *files = listed(0);
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    fl_error err;
    uint64_t first = 0, then = 0;
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &first, &err) == FL_OK && bytes.size == 5 &&
          memcmp(bytes.bytes, "11111", 5) == 0);
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &then, &err) == FL_OK && then == first && first &&
          fl_files_now(files, 0) == first);
    write_file("one", "111111");
    CHECK(fl_files_now(files, 0) != first && fl_files_now(files, 2) == 0);
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &then, &err) == FL_OK && bytes.size == 6 && then != first);
    CHECK(fl_files_read(files, 2, &buffer, &bytes, &then, &err) == FL_EIO);
    CHECK(fl_files_read(files, 3, &buffer, &bytes, &then, &err) == FL_EIO);
    CHECK(fl_files_read(files, COUNT, &buffer, &bytes, &then, &err) == FL_ENOTFOUND);
    CHECK(!fl_files_ahead(files, 2) && !fl_files_ahead(files, COUNT) && !fl_files_warm(files));
    (void)fl_files_ahead(files, 1);
    fl_buffer_free(&buffer);
    fl_files_free(files);
}

static void refused(void) {
    fl_files *files;
    fl_error err;
    CHECK(fl_files_create(&files, "", "a", 1, 1, 0, &err) == FL_EARG && !files);
    CHECK(fl_files_create(&files, "", "a\0b", 4, 1, 0, &err) == FL_EARG && !files);
    CHECK(fl_files_create(&files, "", "a", 2, 2, 0, &err) == FL_EARG && !files);
    CHECK(fl_files_create(&files, "", "", 0, UINT64_MAX / 8, 0, &err) == FL_EARG && !files);
}

static fl_code parts(fl_files **files, const uint64_t *stamps, uint64_t offset, uint32_t size,
                     uint32_t path) {
    const uint64_t offsets[] = {0, 1, offset};
    const uint32_t sizes[] = {0, 3, size}, paths[] = {1, 0, path};
    const fl_files_places places = {stamps, offsets, sizes, paths, 3};
    char prefix[PATH_MAX];
    fl_error err;
    CHECK((size_t)snprintf(prefix, sizeof prefix, "%s/", folder) < sizeof prefix);
    return fl_files_create_places(files, prefix, names, sizeof names, COUNT, &places, 0, &err);
}

static void places(void) {
    fl_files *files;
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    fl_error err;
    uint64_t stamp = 0, stamps[COUNT] = {0};
    write_file("one", "12345");
    CHECK(parts(&files, stamps, 4, 1, 0) == FL_OK && fl_files_count(files) == 3 && fl_files_upright(files));
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &stamp, &err) == FL_OK && bytes.size == 1 &&
          bytes.bytes[0] == '2');
    CHECK(fl_files_read(files, 1, &buffer, &bytes, &stamp, &err) == FL_OK && bytes.size == 3 &&
          memcmp(bytes.bytes, "234", 3) == 0);
    CHECK(fl_files_read(files, 2, &buffer, &bytes, &stamp, &err) == FL_OK && bytes.size == 1 &&
          bytes.bytes[0] == '5');
    CHECK(fl_files_read(files, 3, &buffer, &bytes, &stamp, &err) == FL_ENOTFOUND);
    (void)fl_files_ahead(files, 1);
    fl_files_free(files);

    stamps[0] = stamp;
    CHECK(parts(&files, stamps, 5, 1, 0) == FL_OK); /* beyond the end */
    CHECK(fl_files_read(files, 1, &buffer, &bytes, &stamp, &err) == FL_OK);
    CHECK(fl_files_read(files, 2, &buffer, &bytes, &stamp, &err) == FL_EIO && !fl_files_ahead(files, 2));
    write_file("one", "other bytes");
    CHECK(fl_files_read(files, 1, &buffer, &bytes, &stamp, &err) == FL_EIO && strstr(err.text, "changed"));
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &stamp, &err) ==
          FL_OK); /* of the other file, which may be any */
    fl_files_free(files);
    fl_buffer_free(&buffer);

    CHECK(parts(&files, stamps, 0, 1, COUNT) == FL_EARG &&
          parts(&files, stamps, 0, 1, UINT32_MAX) == FL_EARG);
    CHECK(parts(&files, stamps, 0, (1u << 30) + 1, 0) == FL_EARG &&
          parts(&files, stamps, UINT64_MAX, 1, 0) == FL_EARG);
    CHECK(parts(&files, stamps, INT64_MAX, 1, 0) == FL_EARG && parts(&files, stamps, 1, 0, 0) == FL_EARG &&
          !files);
}

/* Each thread learns its own index of the same files; whichever is kept, its bytes are one thread's and its
 * stamp's. */
static void *learn(void *opaque) {
    fl_files *files = opaque;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const uint64_t index = round % COUNT, stamp = 1 + round / COUNT % 3;
        uint8_t mine[16];
        fl_span found;
        memset(mine, (int)stamp, sizeof mine);
        fl_facts_learn(fl_files_facts(files), index, stamp, (fl_span){mine, sizeof mine});
        if (!fl_facts_known(fl_files_facts(files), index, stamp, NULL, &found))
            continue; /* another thread has noted another stamp since */
        for (size_t i = 0; i < found.size; i++) CHECK(found.bytes[i] == stamp);
    }
    return NULL;
}

static void learning(void) {
    fl_files *files = listed(COUNT * 64);
    fl_span found;
    CHECK(!fl_facts_known(fl_files_facts(files), 0, 1, NULL, &found) && !found.size);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, learn, files) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    uint64_t indexes, bytes;
    fl_facts_learnt(fl_files_facts(files), &indexes, &bytes);
    CHECK(indexes > 0 && indexes <= COUNT && bytes <= COUNT * 64);
    fl_files_free(files);

    files = listed(8); /* no room for an index: the proof alone is kept */
    fl_facts_learn(fl_files_facts(files), 1, 5, (fl_span){(const uint8_t *)"0123456789", 10});
    CHECK(fl_facts_known(fl_files_facts(files), 1, 5, NULL, &found) && found.size == 0);
    CHECK(!fl_facts_known(fl_files_facts(files), 1, 6, NULL, &found));
    fl_facts_learnt(fl_files_facts(files), &indexes, &bytes);
    CHECK(indexes == 0 && bytes == 0);
    fl_files_free(files);
}

int main(void) {
    char path[PATH_MAX];
    CHECK(mkdtemp(folder));
    CHECK((size_t)snprintf(path, sizeof path, "%s/folder", folder) < sizeof path && mkdir(path, 0700) == 0);
    write_file("one", "11111");
    write_file("two", "2");
    reading();
    refused();
    places();
    learning();
    CHECK(fl_files_live() == 0);
    static const char *const left[] = {"one", "two"};
    CHECK(rmdir(path) == 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, left[i]) < sizeof path &&
              unlink(path) == 0);
    }
    CHECK(rmdir(folder) == 0);
    puts("files: ok");
    return 0;
}
