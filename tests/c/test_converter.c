/* The converter makes the DCT form of files that were proved sound, while a pool rests and not before, once, and
 * nothing of files that have changed or have no such form; run under the thread sanitizer too. */
#define _GNU_SOURCE
#include "engine/converter.h"

#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "jpeg/dct.h"
#include "jpeg_maker.h"
#include "scratch.h"

enum { COUNT = 6, DAMAGED = 3, TEXT = 4, UNKNOWN = 5, PASSES = 2000 };

static const char names[] = "0\0001\0002\0003\0004\0005";
static file pictures[COUNT];

static void written(uint64_t index) {
    const int fd = opened(names + 2 * index, O_WRONLY | O_CREAT | O_TRUNC);
    CHECK(write(fd, pictures[index].bytes, pictures[index].size) == (ssize_t)pictures[index].size);
    CHECK(close(fd) == 0);
}

static fl_files *files_of(fl_kept **kept, fl_files_keeping keeping, uint64_t room) {
    char prefix[PATH_MAX];
    fl_error err;
    fl_files *files;
    const int log = opened("log", O_RDWR | O_CREAT);
    const off_t end = lseek(log, 0, SEEK_END);
    CHECK((size_t)snprintf(prefix, sizeof prefix, "%s/", folder) < sizeof prefix);
    CHECK(fl_kept_create(kept, opened("table", O_RDWR | O_CREAT), COUNT, &err) == FL_OK);
    CHECK(fl_kept_log(*kept, 0, log, &err) == FL_OK &&
          fl_kept_append(*kept, 0, (uint64_t)end, &err) == FL_OK);
    fl_kept_grant(*kept, room);
    CHECK(fl_files_create(&files, prefix, names, sizeof names, COUNT, 1 << 20, &err) == FL_OK);
    CHECK(fl_files_keep(files, *kept, keeping, &err) == FL_OK);
    return files;
}

static uint64_t forms(const fl_kept *kept) {
    uint64_t of[FL_KEPT_PARTS];
    fl_kept_entries(kept, of);
    return of[FL_KEPT_FORM];
}

/* Waits up to 20 s until there are so many; false: there are not. */
static bool forms_come(const fl_kept *kept, uint64_t count) {
    for (int i = 0; i < PASSES && forms(kept) != count; i++) usleep(10000);
    return forms(kept) == count;
}

/* True if the form of that file, as it is now, is kept, and is that of its bytes. */
static bool is_form(fl_files *files, uint64_t index) {
    fl_buffer buffer = {NULL, 0};
    fl_span form;
    uint64_t stamp;
    fl_error err;
    fl_jpeg_dct *dct;
    const uint8_t *bytes;
    size_t size;
    CHECK(fl_jpeg_dct_create(&dct, &err) == FL_OK);
    const bool found = fl_files_converted(files, index, &buffer, &form, &stamp);
    if (found) {
        CHECK(stamp == fl_files_now(files, index));
        CHECK(fl_jpeg_dct_restore(dct, form.bytes, form.size, &bytes, &size, &err) == FL_OK &&
              size == pictures[index].size && !memcmp(bytes, pictures[index].bytes, size));
    }
    fl_jpeg_dct_free(dct);
    fl_buffer_free(&buffer);
    return found;
}

static _Atomic bool busy, other_busy = true;

static void wait_until_idle(void *opaque, uint32_t item, void *context) {
    (void)item, (void)context;
    while (atomic_load((_Atomic bool *)opaque)) usleep(1000);
}

static void learnt(fl_files *files) {
    for (uint64_t i = 0; i < COUNT; i++)
        if (i != UNKNOWN)
            fl_facts_learn(fl_files_facts(files), i, fl_files_now(files, i), (fl_span){NULL, 0});
}

static void converting(void) {
    fl_error err;
    fl_pool *pool, *other_pool;
    fl_converter *converter;
    fl_kept *kept;
    int status;
    fl_files *files = files_of(&kept, FL_FILES_FORMS, 1 << 24);
    const fl_source source = {.files = files, .max_pixels = 1 << 24}, other = {.files = NULL};
    const fl_source *const sources[2] = {&other, &source};
    learnt(files);
    CHECK(fl_pool_create("test", 2, 4, NULL, &pool, &err) == FL_OK);
    atomic_store(&busy, true);
    CHECK(fl_pool_rests(pool) || !fl_pool_turns(pool));
    CHECK(fl_pool_submit(pool, wait_until_idle, &busy, 1, &err) == FL_OK);
    CHECK(fl_converter_start(&converter, pool, sources, 2, 3, &err) == FL_OK);
    usleep(200000);
    CHECK(!fl_pool_rests(pool) && fl_pools_at_work() == 1 && !forms(kept)); /* an item is under way */
    CHECK(fl_pool_create("other", 2, 4, NULL, &other_pool, &err) == FL_OK);
    CHECK(fl_pool_submit(other_pool, wait_until_idle, &other_busy, 1, &err) == FL_OK);
    atomic_store(&busy, false);
    usleep(200000);
    CHECK(fl_pool_rests(pool) && fl_pools_at_work() == 1 && !forms(kept)); /* one of another pool */
    if (!fork()) _exit(fl_pools_at_work() != 0);
    CHECK(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status));
    atomic_store(&other_busy, false);
    CHECK(forms_come(kept, 3));
    for (uint64_t i = 0; i < COUNT; i++) CHECK(is_form(files, i) == (i < DAMAGED));
    usleep(300000);
    CHECK(!fl_files_to_convert(files, DAMAGED) && !fl_files_to_convert(files, TEXT) &&
          !fl_files_to_convert(files, UNKNOWN));
    fl_kept_counts counts;
    fl_kept_count(kept, &counts);
    CHECK(counts.put[FL_KEPT_FORM] == 5); /* each once */

    /* A file that was written again has no form until it was proved sound again. */
    const file before = pictures[0];
    pictures[0] = pictures[1];
    written(0);
    CHECK(!is_form(files, 0) && fl_files_to_convert(files, 0) == 0);
    fl_facts_learn(fl_files_facts(files), 0, fl_files_now(files, 0), (fl_span){NULL, 0});
    for (int i = 0; i < PASSES && !is_form(files, 0); i++) usleep(10000);
    CHECK(is_form(files, 0));
    pictures[0] = before;
    written(0);

    const pid_t child = fork(); /* which has no such threads */
    if (!child) {
        fl_converter_free(converter);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    fl_converter_free(converter);
    fl_converter_free(NULL);
    fl_pool_free(pool);
    fl_pool_free(other_pool);
    CHECK(!fl_pools_at_work());
    fl_files_free(files);
    fl_kept_free(kept);
}

/* Without room, or where facts alone are kept, nothing is made. */
static void nothing(fl_files_keeping keeping, uint64_t room) {
    fl_error err;
    fl_pool *pool;
    fl_converter *converter;
    fl_kept *kept;
    removed("table");
    fl_files *files = files_of(&kept, keeping, room);
    const fl_source source = {.files = files, .max_pixels = 1 << 24};
    const fl_source *const sources[1] = {&source};
    learnt(files);
    CHECK(fl_pool_create("test", 1, 4, NULL, &pool, &err) == FL_OK);
    CHECK(fl_converter_start(&converter, pool, sources, 1, 1, &err) == FL_OK);
    usleep(300000);
    CHECK(!forms(kept) && !is_form(files, 0));
    fl_converter_free(converter);
    fl_pool_free(pool);
    fl_files_free(files);
    fl_kept_free(kept);
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    for (uint64_t i = 0; i < COUNT; i++) {
        const recipe of = {.width = 90 + (int)i,
                           .height = 70,
                           .quality = 80,
                           .components = 3,
                           .h = 2,
                           .v = 2,
                           .smooth = true,
                           .progressive = i == 2};
        pictures[i] = make(&of);
    }
    pictures[DAMAGED].size /= 2;
    memcpy(pictures[TEXT].bytes, "text", 4);
    for (uint64_t i = 0; i < COUNT; i++) written(i);
    converting();
    nothing(FL_FILES_FACTS, 1 << 24);
    nothing(FL_FILES_FORMS, 7 * FL_KEPT_ENTRY);
    for (uint64_t i = 0; i < COUNT; i++) removed(names + 2 * i);
    removed("table");
    removed("log");
    CHECK(rmdir(folder) == 0 && !fl_kept_live() && !fl_files_live());
    for (uint64_t i = 0; i < COUNT; i++) free(pictures[i].bytes);
    return 0;
}
