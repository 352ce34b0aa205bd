/* What is kept of files: what is found is what was put for that stamp, or nothing, whatever became of the disk;
 * and a slow file, which is read once. */
#define _GNU_SOURCE
#include "store/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "store/files.h"
#include "scratch.h"

enum { COUNT = 5, THREADS = 4, ROUNDS = 3000, STAMPS = 3 };

/* Opens the table and log 4, and may write so many bytes to it. */
static fl_kept *table_of(uint64_t count, uint64_t room) {
    fl_kept *kept;
    fl_error err;
    const int log = opened("log", O_RDWR | O_CREAT);
    const off_t end = lseek(log, 0, SEEK_END);
    CHECK(fl_kept_create(&kept, opened("table", O_RDWR | O_CREAT), count, &err) == FL_OK);
    CHECK(fl_kept_append(kept, 4, 0, &err) == FL_EARG);
    CHECK(fl_kept_log(kept, 4, log, &err) == FL_OK && fl_kept_log(kept, 4, log, &err) == FL_EARG &&
          fl_kept_log(kept, FL_KEPT_LOGS, log, &err) == FL_EARG);
    CHECK(fl_kept_append(kept, 4, (uint64_t)end, &err) == FL_OK);
    fl_kept_grant(kept, room);
    return kept;
}

static bool is(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, const char *wanted) {
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    const bool found = fl_kept_find(kept, index, part, stamp, &buffer, &bytes);
    const bool same =
        found && bytes.size == strlen(wanted) && (!bytes.size || !memcmp(bytes.bytes, wanted, bytes.size));
    CHECK(same || !found);
    fl_buffer_free(&buffer);
    return same;
}

static uint64_t entries(const fl_kept *kept, fl_kept_part part) {
    uint64_t of[FL_KEPT_PARTS];
    fl_kept_entries(kept, of);
    return of[part];
}

static off_t size_of(const char *name) {
    const int fd = opened(name, O_RDONLY);
    const off_t end = lseek(fd, 0, SEEK_END);
    close(fd);
    return end;
}

static fl_span text(const char *bytes) { return (fl_span){(const uint8_t *)bytes, strlen(bytes)}; }

static void keeping(void) {
    fl_kept *kept = table_of(COUNT, 1 << 20);
    fl_kept_counts counts;
    CHECK(!is(kept, 1, FL_KEPT_BYTES, 7, "") && !fl_kept_stamp(kept, 1, FL_KEPT_BYTES));
    CHECK(fl_kept_put(kept, 1, FL_KEPT_BYTES, 7, text("bytes")) &&
          fl_kept_put(kept, 1, FL_KEPT_FACTS, 7, text("facts")) &&
          fl_kept_put(kept, 4, FL_KEPT_FACTS, 9, (fl_span){NULL, 0}));
    CHECK(is(kept, 1, FL_KEPT_BYTES, 7, "bytes") && is(kept, 1, FL_KEPT_FACTS, 7, "facts") &&
          is(kept, 4, FL_KEPT_FACTS, 9, ""));
    CHECK(!is(kept, 1, FL_KEPT_BYTES, 8, "bytes") && !is(kept, 0, FL_KEPT_BYTES, 7, "bytes") &&
          !is(kept, 0, FL_KEPT_BYTES, 0, ""));
    CHECK(!fl_kept_put_anew(kept, 1, FL_KEPT_BYTES, 8, text("late")) &&
          is(kept, 1, FL_KEPT_BYTES, 7, "bytes"));
    CHECK(fl_kept_put_anew(kept, 1, FL_KEPT_BYTES, 7, text("anew")) && is(kept, 1, FL_KEPT_BYTES, 7, "anew"));
    CHECK(fl_kept_put(kept, 1, FL_KEPT_BYTES, 8, text("other")) && is(kept, 1, FL_KEPT_BYTES, 8, "other") &&
          !is(kept, 1, FL_KEPT_BYTES, 7, "bytes"));
    CHECK(fl_kept_put(kept, 0, FL_KEPT_FORM, 7, text("form")) &&
          fl_kept_put(kept, 1, FL_KEPT_FORM, 7, (fl_span){NULL, 0}));
    CHECK(entries(kept, FL_KEPT_FACTS) == 2 && entries(kept, FL_KEPT_BYTES) == 1 &&
          entries(kept, FL_KEPT_FORM) == 1);
    int log;
    uint64_t offset;
    uint32_t size;
    CHECK(fl_kept_place(kept, 0, FL_KEPT_FORM, &log, &offset, &size) && size == 4 && offset == 23);
    CHECK(!fl_kept_place(kept, 1, FL_KEPT_FORM, &log, &offset, &size) &&
          !fl_kept_place(kept, 2, FL_KEPT_FORM, &log, &offset, &size));
    fl_kept_count(kept, &counts);
    CHECK(counts.put[FL_KEPT_BYTES] == 3 && counts.put[FL_KEPT_FACTS] == 2 && !counts.failed &&
          counts.written == 8 * FL_KEPT_ENTRY + 27 && counts.granted == 1 << 20);
    fl_kept_free(kept);

    kept = table_of(COUNT, FL_KEPT_ENTRY + 4); /* later: what is there is found, and the log grows */
    CHECK(is(kept, 1, FL_KEPT_BYTES, 8, "other") && is(kept, 1, FL_KEPT_FACTS, 7, "facts"));
    CHECK(!fl_kept_put(kept, 2, FL_KEPT_BYTES, 1, text("12345")) && !fl_kept_stamp(kept, 2, FL_KEPT_BYTES));
    CHECK(fl_kept_put(kept, 2, FL_KEPT_BYTES, 1, text("1234")) && is(kept, 2, FL_KEPT_BYTES, 1, "1234"));
    CHECK(!fl_kept_put(kept, 3, FL_KEPT_BYTES, 1, (fl_span){NULL, 0}));
    fl_kept_count(kept, &counts);
    CHECK(counts.left_out == 2);
    fl_kept_free(kept);

    kept = table_of(COUNT + 1, 0); /* of another list: begun anew */
    CHECK(!entries(kept, FL_KEPT_FACTS) && !is(kept, 1, FL_KEPT_BYTES, 8, "other"));
    fl_kept_free(kept);
}

/* Bytes of the table and of the log that are changed, cut off, or of nobody: nothing is found there. */
static void damaged(void) {
    fl_kept *kept = table_of(COUNT, 1 << 20);
    CHECK(fl_kept_put(kept, 2, FL_KEPT_BYTES, 5, text("0123456789")));
    const off_t entry = FL_KEPT_HEAD + (2 * FL_KEPT_PARTS + FL_KEPT_BYTES) * FL_KEPT_ENTRY;
    const int table = opened("table", O_RDWR), log = opened("log", O_RDWR);
    for (int at = 0; at < FL_KEPT_ENTRY - 4; at++)
        for (int bit = 0; bit < 8; bit++) {
            uint8_t byte;
            CHECK(pread(table, &byte, 1, entry + at) == 1);
            byte ^= (uint8_t)(1 << bit);
            CHECK(pwrite(table, &byte, 1, entry + at) == 1 && !is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
            byte ^= (uint8_t)(1 << bit);
            CHECK(pwrite(table, &byte, 1, entry + at) == 1);
        }
    CHECK(is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
    const off_t end = lseek(log, 0, SEEK_END);
    CHECK(pwrite(log, "X", 1, end - 1) == 1 && !is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
    CHECK(pwrite(log, "9", 1, end - 1) == 1 && is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
    CHECK(ftruncate(log, end - 1) == 0 && !is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
    CHECK(ftruncate(table, entry) == 0 && !is(kept, 2, FL_KEPT_BYTES, 5, "0123456789"));
    CHECK(fl_kept_put(kept, 2, FL_KEPT_BYTES, 5, text("again")) && is(kept, 2, FL_KEPT_BYTES, 5, "again"));
    close(table);
    close(log);
    fl_kept_free(kept);
}

/* Facts go to an odd log, where there is one, until it was sought for a form; once all were, it may be cut. */
static void passing(void) {
    fl_error err;
    fl_kept *kept = table_of(COUNT, 1 << 20);
    const int odd = opened("odd", O_RDWR | O_CREAT);
    CHECK(fl_kept_log(kept, 5, odd, &err) == FL_OK && fl_kept_append(kept, 5, 0, &err) == FL_OK);
    const off_t before = size_of("log");
    for (uint64_t i = 0; i < 3; i++) CHECK(fl_kept_put(kept, i, FL_KEPT_FACTS, 5, text("facts")));
    CHECK(fl_kept_put(kept, 3, FL_KEPT_FACTS, 5, (fl_span){NULL, 0}));
    CHECK(size_of("odd") == 15 && size_of("log") == before);
    CHECK(fl_kept_put(kept, 0, FL_KEPT_FORM, 5, text("form")) &&
          fl_kept_put(kept, 0, FL_KEPT_FACTS, 5, (fl_span){NULL, 0}) &&
          fl_kept_put(kept, 1, FL_KEPT_FORM, 5, (fl_span){NULL, 0}) &&
          fl_kept_put(kept, 1, FL_KEPT_FACTS, 5, text("stays")));
    CHECK(size_of("odd") == 15 && size_of("log") == before + 9);
    CHECK(ftruncate(odd, 0) == 0 && is(kept, 0, FL_KEPT_FACTS, 5, "") &&
          is(kept, 0, FL_KEPT_FORM, 5, "form") && is(kept, 1, FL_KEPT_FACTS, 5, "stays") &&
          !is(kept, 2, FL_KEPT_FACTS, 5, "facts") && is(kept, 3, FL_KEPT_FACTS, 5, ""));
    CHECK(fl_kept_put(kept, 2, FL_KEPT_FACTS, 5, text("again")) && is(kept, 2, FL_KEPT_FACTS, 5, "again"));
    fl_kept_free(kept);
    removed("odd");
}

static void refusing(void) {
    fl_kept *kept = table_of(COUNT, 1 << 20);
    fl_kept_counts counts;
    CHECK(fl_kept_put(kept, 0, FL_KEPT_BYTES, 5, text("before")));
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (!child) /* reads, and writes nothing */
        _exit(is(kept, 0, FL_KEPT_BYTES, 5, "before") && !fl_kept_writes(kept, 0) &&
                      !fl_kept_put(kept, 0, FL_KEPT_BYTES, 6, text("child"))
                  ? 0
                  : 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct rlimit limit = {0, RLIM_INFINITY};
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(!fl_kept_put(kept, 1, FL_KEPT_BYTES, 5, text("too much")));
    limit.rlim_cur = RLIM_INFINITY;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    fl_kept_count(kept, &counts);
    CHECK(counts.failed == EFBIG && !fl_kept_writes(kept, 0) &&
          !fl_kept_put(kept, 1, FL_KEPT_BYTES, 5, text("later")) && is(kept, 0, FL_KEPT_BYTES, 5, "before"));
    fl_kept_free(kept);
    fl_error err;
    CHECK(fl_kept_create(&kept, opened("empty", O_RDONLY | O_CREAT), COUNT, &err) == FL_EIO && !kept);
    removed("empty");
}

/* Threads put parts of the same image under stamps; what each finds is of the stamp that it asked for. */
static void *put(void *opaque) {
    fl_kept *kept = opaque;
    fl_buffer buffer = {NULL, 0};
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint8_t mine[100];
        fl_span found;
        const uint64_t stamp = 1 + round % STAMPS;
        memset(mine, (int)stamp, sizeof mine);
        CHECK(fl_kept_put(kept, 0, FL_KEPT_BYTES, stamp, (fl_span){mine, 50 + stamp}));
        if (!fl_kept_find(kept, 0, FL_KEPT_BYTES, stamp, &buffer, &found)) continue;
        CHECK(found.size == 50 + stamp && found.bytes[0] == stamp && !memcmp(found.bytes, mine, found.size));
    }
    fl_buffer_free(&buffer);
    return NULL;
}

static void racing(void) {
    fl_kept *kept = table_of(COUNT, 1 << 26);
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, put, kept) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    fl_kept_free(kept);
}

typedef struct readers {
    fl_files *files;
    bool fetches;
} readers;

static void *read_all(void *opaque) {
    const readers *of = opaque;
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    uint64_t stamp;
    fl_error err;
    for (uint64_t i = 0; i < COUNT; i++) {
        if (of->fetches) (void)fl_files_ahead(of->files, i);
        else
            CHECK(fl_files_read(of->files, i, &buffer, &bytes, &stamp, &err) == FL_OK && bytes.size == 1 &&
                  bytes.bytes[0] == '0' + i);
    }
    fl_buffer_free(&buffer);
    return NULL;
}

/* Files on a slow disk: read by several threads at once, kept, and read from there while they are as they were. */
static void slowly(void) {
    static const char names[] = "0\0001\0002\0003\0004";
    char prefix[PATH_MAX];
    fl_error err;
    fl_files *files;
    fl_buffer buffer = {NULL, 0};
    fl_span bytes;
    uint64_t stamp, other;
    for (uint64_t i = 0; i < COUNT; i++) {
        const int fd = opened(names + 2 * i, O_WRONLY | O_CREAT);
        CHECK(write(fd, names + 2 * i, 1) == 1 && close(fd) == 0);
    }
    CHECK((size_t)snprintf(prefix, sizeof prefix, "%s/", folder) < sizeof prefix);
    fl_kept *kept = table_of(COUNT, 1 << 20);
    CHECK(fl_files_create(&files, prefix, names, sizeof names, COUNT, 1 << 20, &err) == FL_OK);
    CHECK(fl_files_keep(files, kept, FL_FILES_BYTES, &err) == FL_OK &&
          fl_files_keeps(files, FL_FILES_BYTES) && !fl_files_keeps(files, FL_FILES_FORMS));
    pthread_t thread[THREADS];
    readers of[2] = {{files, true}, {files, false}};
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, read_all, &of[i % 2]) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    fl_kept_counts counts;
    fl_kept_count(kept, &counts);
    CHECK(entries(kept, FL_KEPT_BYTES) == COUNT &&
          counts.put[FL_KEPT_BYTES] == COUNT); /* each was read once */

    const uint64_t now = fl_files_now(files, 0);
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &stamp, &err) == FL_OK && stamp == now);
    fl_facts_learn(fl_files_facts(files), 0, stamp, text("index"));
    fl_span found;
    fl_buffer facts = {NULL, 0};
    CHECK(fl_facts_known(fl_files_facts(files), 0, stamp, &facts, &found) && found.size == 5 &&
          !memcmp(found.bytes, "index", 5));
    CHECK(!fl_facts_known(fl_files_facts(files), 0, stamp + 1, &facts, &found) && !found.size);
    const int fd = opened("0", O_WRONLY | O_TRUNC);
    CHECK(write(fd, "new", 3) == 3 && close(fd) == 0);
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &other, &err) == FL_OK && bytes.size == 3 &&
          other != stamp);
    CHECK(!fl_facts_known(fl_files_facts(files), 0, other, &facts, &found));
    fl_facts_learn(fl_files_facts(files), 0, other, text("index"));
    CHECK(fl_files_ahead(files, 0) && fl_files_read(files, 0, &buffer, &bytes, &stamp, &err) == FL_OK &&
          stamp == other && bytes.size == 3);
    removed("0");
    CHECK(fl_files_read(files, 0, &buffer, &bytes, &stamp, &err) == FL_EIO);
    for (uint64_t i = 1; i < COUNT; i++) removed(names + 2 * i);
    fl_buffer_free(&buffer);
    fl_buffer_free(&facts);
    fl_files_free(files);
    fl_kept_free(kept);
}

int main(void) {
    CHECK(mkdtemp(folder));
    keeping();
    damaged();
    passing();
    refusing();
    racing();
    slowly();
    CHECK(fl_kept_live() == 0 && fl_files_live() == 0);
    removed("table");
    removed("log");
    CHECK(rmdir(folder) == 0);
    puts("kept: ok");
    return 0;
}
