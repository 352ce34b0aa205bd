/* A store of more shards than files may be open: what is read is what was packed, by any number of threads,
 * and descriptors stay few. Usage: test_open_files [seed]. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "store/open_files.h"
#include "store_shard.h"

enum { SHARDS = 150, LIMIT = 160, KEPT = LIMIT / 4, THREADS = 6, ROUNDS = 3000 };

static int open_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = -1; /* its own */
    CHECK(dir);
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void limit_files(rlim_t most) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static const char *name_of(int shard, const char *end) {
    static _Thread_local char name[sizeof path + 32];
    snprintf(name, sizeof name, "%s/%d%s", folder, shard, end);
    return name;
}

static void copy_file(const char *from, const char *to) {
    static char content[1 << 24];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    CHECK(in && out);
    const size_t size = fread(content, 1, sizeof content, in);
    CHECK(size < sizeof content && fwrite(content, 1, size, out) == size && fclose(out) == 0 &&
          fclose(in) == 0);
}

/* A store of so many links to the one shard. */
static fl_store *open_shards(int count, uint64_t bytes, bool checked) {
    fl_error err;
    fl_store *store;
    CHECK(fl_store_create(&store, &err) == FL_OK);
    for (int i = 0; i < count; i++) {
        const fl_shard_spec spec = {.path = name_of(i, ""),
                                    .first = (uint64_t)i * SAMPLES,
                                    .count = SAMPLES,
                                    .bytes = bytes,
                                    .stored = SAMPLES};
        CHECK(fl_store_add(store, &spec, &err) == FL_OK);
        if (checked) fl_store_set_checksums(store, (uint32_t)i, sums);
    }
    return store;
}

static fl_code read_one(const fl_store *store, uint64_t index, fl_error *err) {
    fl_store_reader *reader;
    fl_span span;
    uint8_t expected[16384];
    CHECK(fl_store_reader_create(&reader, err) == FL_OK);
    const fl_code code = fl_store_reader_get(reader, store, index, NOTHING, &span, err);
    if (!code)
        CHECK(span.size == sample(index % SAMPLES, expected) && memcmp(span.bytes, expected, span.size) == 0);
    fl_store_reader_free(reader);
    return code;
}

/* As long as there is room each shard keeps its own descriptor; beyond it they share as many as there
 * were. */
static void test_descriptors(uint64_t bytes) {
    const int before = open_descriptors();
    fl_error err;
    fl_store *few = open_shards(KEPT - 1, bytes, true);
    CHECK(open_descriptors() == before + KEPT - 1);
    fl_store *more =
        open_shards(SHARDS, bytes, true); /* a quarter is of all stores; a store has a few in any case */
    CHECK(open_descriptors() == before + KEPT - 1 + FL_OPEN_FILES_LEAST);
    for (int i = 0; i < SHARDS; i++) CHECK(read_one(more, (uint64_t)i * SAMPLES + 3, &err) == FL_OK);
    CHECK(open_descriptors() == before + KEPT - 1 + FL_OPEN_FILES_LEAST);
    fl_store_close(few), fl_store_close(more);
    CHECK(open_descriptors() == before);
    fl_store *alone = open_shards(SHARDS, bytes, true);
    CHECK(open_descriptors() == before + KEPT);
    fl_store_close(alone);
    CHECK(open_descriptors() == before);
}

/* A file that is removed, replaced or cut: what was packed, or FL_ESHARD that says so; a store of few shards
 * goes on with what it has open. */
static void test_replaced(uint64_t bytes) {
    enum { GONE = 0, CUT = 1, SAME = 2, OTHER = 3, FIFO = 4 };
    fl_error err;
    char kept[5][sizeof path + 32], copy[sizeof path + 32];
    snprintf(copy, sizeof copy, "%s.copy", path);
    copy_file(path, copy);
    for (int checked = 0; checked < 2; checked++) {
        fl_store *few = open_shards(5, bytes, checked), *many = open_shards(SHARDS, bytes, checked);
        for (int i = 5; i < SHARDS; i++)
            CHECK(read_one(many, (uint64_t)i * SAMPLES, &err) == FL_OK); /* 0 to 4 are closed by now */
        for (int i = 0; i < 5; i++) {
            snprintf(kept[i], sizeof kept[i], "%s", name_of(i, ""));
            CHECK(unlink(kept[i]) == 0);
        }
        copy_file(copy, kept[CUT]);
        CHECK(truncate(kept[CUT], (off_t)bytes - 1) == 0);
        copy_file(copy, kept[SAME]);
        FILE *other = fopen(kept[OTHER], "wb");
        CHECK(other && ftruncate(fileno(other), (off_t)bytes) == 0 && fclose(other) == 0);
        CHECK(mkfifo(kept[FIFO], 0600) == 0);
        for (int i = 0; i < 5; i++) {
            CHECK(read_one(few, (uint64_t)i * SAMPLES + 7, &err) == FL_OK);
            const fl_code code = read_one(many, (uint64_t)i * SAMPLES + 7, &err);
            CHECK(i == SAME && checked ? code == FL_OK : code == FL_ESHARD);
            CHECK(!code || strstr(err.text, i == GONE ? "was removed while it was open"
                                                      : "was replaced while it was open"));
            CHECK(i == SAME || i == OTHER ||
                  (fl_store_head(many, (uint64_t)i * SAMPLES, (uint8_t[FL_STORE_HEAD]){0}) == 0));
            CHECK(i == SAME || i == OTHER || !fl_store_ahead(many, (uint64_t)i * SAMPLES));
        }
        fl_store_close(few), fl_store_close(many);
        for (int i = 0; i < 5; i++) {
            unlink(kept[i]);
            CHECK(link(path, kept[i]) == 0);
        }
    }
    unlink(copy);
}

/* Shards of which nothing is on this disk: no file is opened, and reading one is FL_ESHARD, beside others
 * that are there. */
static void test_absent(uint64_t bytes) {
    fl_error err;
    uint64_t stored;
    const int before = open_descriptors();
    fl_store *one = open_shards(1, bytes, true);
    const fl_store_tree *given = fl_store_shard_tree(one, 0, &stored);
    const fl_table places = place_table(given->samples);
    for (int present = 0; present < 2; present++) {
        fl_store *store;
        CHECK(fl_store_create(&store, &err) == FL_OK);
        for (int i = 0; i < SHARDS; i++) {
            fl_shard_spec spec = {.path = "none.lmdb",
                                  .first = (uint64_t)i * SAMPLES,
                                  .count = SAMPLES,
                                  .bytes = bytes,
                                  .stored = SAMPLES};
            spec.absent = true;
            if (i == 0) CHECK(fl_store_add(store, &spec, &err) == FL_EARG); /* no places */
            spec.given = given, spec.places = &places;
            if (present && i % 2) spec.absent = false, spec.path = name_of(i, "");
            CHECK(fl_store_add(store, &spec, &err) == FL_OK);
        }
        CHECK(open_descriptors() == before + 2 + present * (KEPT - 1)); /* the table's among them */
        for (int i = 0; i < SHARDS; i++) {
            const fl_code code = read_one(store, (uint64_t)i * SAMPLES + 5, &err);
            CHECK(present && i % 2 ? code == FL_OK : code == FL_ESHARD && strstr(err.text, "none.lmdb"));
        }
        fl_store_close(store);
    }
    free_places(places);
    fl_store_close(one);
    CHECK(open_descriptors() == before);
}

/* A store finds descriptors also where others have taken all that the process may have. */
static void test_none_left(uint64_t bytes) {
    fl_error err;
    static int taken[LIMIT];
    int count = 0;
    fl_store *store = open_shards(SHARDS, bytes, true);
    while ((taken[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    for (int i = 0; i < SHARDS; i++) CHECK(read_one(store, (uint64_t)i * SAMPLES, &err) == FL_OK);
    CHECK(close(taken[--count]) == 0);
    fl_store *second = open_shards(SHARDS, bytes, true); /* of one descriptor */
    for (int i = 0; i < SHARDS; i++) CHECK(read_one(second, (uint64_t)i * SAMPLES, &err) == FL_OK);
    fl_store_close(second);
    fl_store_close(store);
    while (count) close(taken[--count]);
}

/* Reads samples anywhere, with hints. */
static void *read_thread(void *opaque) {
    fl_store *store = opaque;
    fl_error err;
    fl_store_reader *reader;
    fl_span span;
    uint8_t expected[16384], head[FL_STORE_HEAD];
    uint64_t state = (uintptr_t)&reader ^ check_seed;
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t shard = (state >> 33) % SHARDS, index = shard * SAMPLES + (state >> 50) % SAMPLES;
        fl_store_ahead(store, index);
        CHECK(fl_store_reader_get(reader, store, index, NOTHING, &span, &err) == FL_OK);
        CHECK(span.size == sample(index % SAMPLES, expected) && memcmp(span.bytes, expected, span.size) == 0);
        CHECK(fl_store_head(store, index, head) &&
              memcmp(head, expected, span.size < sizeof head ? span.size : sizeof head) == 0);
        size_t size = 0;
        if (round % 16 == 0) {
            uint8_t column[sizeof sums];
            CHECK(fl_store_column_size(store, (uint32_t)shard, "crcs", &size, &err) == FL_OK &&
                  size == sizeof column);
            CHECK(fl_store_column(store, (uint32_t)shard, "crcs", column, size, &err) == FL_OK &&
                  memcmp(column, sums, size) == 0);
        }
    }
    fl_store_reader_free(reader);
    return NULL;
}

/* A forked child touches none of the parent's descriptors, and has a store of its own; threads read all
 * shards through few. */
static void test_threads_and_fork(uint64_t bytes) {
    fl_error err;
    pthread_t threads[THREADS];
    const int before = open_descriptors();
    fl_store *store = open_shards(SHARDS, bytes, true);
    pid_t child = fork(); /* before the threads: a child of several may not allocate */
    CHECK(child >= 0);
    if (child == 0) {
        bool right = read_one(store, 0, &err) == FL_EFORK && !fl_store_ahead(store, 0);
        fl_store *own = open_shards(SHARDS, bytes, true);
        const int inherited = open_descriptors();
        fl_store_close(store);
        right = right && open_descriptors() == inherited;
        for (int i = 0; i < SHARDS && right; i++) right = read_one(own, (uint64_t)i * SAMPLES, &err) == FL_OK;
        fl_store_close(own);
        _exit(right && open_descriptors() == inherited - KEPT ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, read_thread, store) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(open_descriptors() == before + KEPT);
    fl_store_close(store);
    CHECK(open_descriptors() == before);
    check_live(0, 0);
}

/* More files in use than the table keeps: each user has one, and what found no slot is closed when it is
 * given back. */
static fl_code open_null(void *opaque, uint32_t number, int *fd, fl_error *err) {
    (void)opaque, (void)number;
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? FL_OK : fl_fail(err, FL_EIO, "no descriptor");
}

static void test_all_in_use(void) {
    enum { FILES = 9, MOST = 3 };
    fl_error err;
    fl_open_files *files;
    fl_open_file used[2 * FILES];
    const int before = open_descriptors();
    CHECK(fl_open_files_create(&files, MOST, open_null, NULL, &err) == FL_OK);
    for (int i = 0; i < FILES; i++) {
        int fd;
        CHECK(open_null(NULL, 0, &fd, &err) == FL_OK && fl_open_files_add(files, fd, &err) == FL_OK);
    }
    CHECK(open_descriptors() == before + MOST);
    for (uint32_t i = 0; i < 2 * FILES; i++)
        CHECK(fl_open_files_take(files, i % FILES, &used[i], &err) == FL_OK);
    CHECK(used[0].fd == used[FILES].fd && used[0].fd != used[1].fd); /* a file in the table is shared */
    CHECK(!fl_open_files_spare(files));
    for (int i = 0; i < 2 * FILES; i++) CHECK(fcntl(used[i].fd, F_GETFD) >= 0);
    for (int i = 0; i < 2 * FILES; i++) fl_open_files_give(files, used[i]);
    CHECK(open_descriptors() == before + MOST);
    for (int i = 0; i < MOST; i++)
        CHECK(fl_open_files_spare(files) && open_descriptors() == before + MOST - 1 - i);
    CHECK(!fl_open_files_spare(files));
    CHECK(fl_open_files_take(files, 5, &used[0], &err) == FL_OK);
    fl_open_files_give(files, used[0]);
    CHECK(open_descriptors() == before + 1);
    fl_open_files_free(files, true);
    CHECK(open_descriptors() == before);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    const uint64_t bytes = write_shard(path);
    for (int i = 0; i < SHARDS; i++) CHECK(link(path, name_of(i, "")) == 0);
    limit_files(LIMIT);
    test_all_in_use();
    test_descriptors(bytes);
    test_replaced(bytes);
    test_absent(bytes);
    test_none_left(bytes);
    test_threads_and_fork(bytes);
    for (int i = 0; i < SHARDS; i++) unlink(name_of(i, ""));
    end("open files");
    return 0;
}
