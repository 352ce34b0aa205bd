/* The store against files made here: good ones read back, damaged ones are refused or give the right bytes,
 * and nothing crashes. Usage: test_store [seed]. A failure prints its line and the seed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "common/bytes.h"
#include "store_shard.h"

/* Reads everything; where `damaged`, any error will do, but what is delivered must be right. Returns how many
 * samples were. */
static int read_all(const char *file, uint64_t bytes, bool damaged) {
    fl_error err;
    fl_store *store;
    int good = 0;
    uint8_t expected[16384];
    CHECK(fl_store_create(&store, &err) == FL_OK);
    fl_code code = add(store, file, 0, SAMPLES, bytes, &err);
    CHECK(damaged || code == FL_OK);
    if (code == FL_OK) {
        fl_store_reader *reader;
        fl_span span;
        fl_store_set_checksums(store, 0, sums);
        CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            uint64_t index = i * 37 % SAMPLES;
            fl_store_ahead(store, index);
            code = fl_store_reader_get(reader, store, index, NOTHING, &span, &err);
            CHECK(damaged || code == FL_OK);
            if (code) continue;
            good++;
            CHECK(span.size == sample(index, expected) && memcmp(span.bytes, expected, span.size) == 0);
        }
        CHECK(fl_store_reader_get(reader, store, SAMPLES, NOTHING, &span, &err) == FL_ENOTFOUND);
        uint8_t column[sizeof sums];
        size_t size = 0;
        code = fl_store_column_size(store, 0, "crcs", &size, &err);
        CHECK(damaged || (code == FL_OK && size == sizeof sums));
        if (size == sizeof sums) code = fl_store_column(store, 0, "crcs", column, sizeof column, &err);
        CHECK(damaged || (code == FL_OK && memcmp(column, sums, sizeof sums) == 0));
        CHECK(damaged || fl_store_column(store, 0, "crcs", column, 1, &err) == FL_EARG);
        CHECK(fl_store_column(store, 0, "none", column, 0, &err) == FL_ESHARD);
        CHECK(fl_store_column_size(store, 1, "crcs", &size, &err) == FL_EARG);
        fl_store_reader_free(reader);
    } else {
        CHECK(code == FL_ESHARD && strstr(err.text, "shard.lmdb"));
    }
    fl_store_close(store);
    check_live(0, 0);
    return good;
}

static uint8_t *slurp(const char *file, uint64_t bytes) {
    uint8_t *content = malloc(bytes);
    FILE *in = fopen(file, "rb");
    CHECK(content && in && fread(content, 1, bytes, in) == bytes);
    fclose(in);
    return content;
}

static void spill(const char *file, const uint8_t *content, uint64_t bytes) {
    FILE *out = fopen(file, "wb");
    CHECK(out && fwrite(content, 1, bytes, out) == bytes && fclose(out) == 0);
}

/* Every byte of every tree page, changed one at a time: an error, or the right bytes. */
__attribute__((unused)) static void test_every_byte(const uint8_t *good, uint64_t bytes, uint32_t page) {
    uint64_t tried = 0, refused = 0, pages = bytes / page;
    for (uint64_t p = 0; p < pages; p++) {
        uint16_t flags = (uint16_t)(good[p * page + 10] | good[p * page + 11] << 8),
                 lower = (uint16_t)(good[p * page + 12] | good[p * page + 13] << 8);
        uint64_t number;
        memcpy(&number, good + p * page, 8);
        bool leaf_like = number == p && (flags == 1 || flags == 2) && lower < page, meta = p < 2;
        if (!leaf_like && !meta) continue;
        uint32_t span = meta ? 152 : page;
        /* page head and node offsets all, of nodes every fourth, beginning anywhere; the sanitizer's run
         * takes fewer */
        for (uint32_t at = 0; at < span; at += meta         ? 1
                                               : at < lower ? 1 + noise() % THIN
                                                            : 1 + noise() % (7 * THIN)) {
            uint8_t change = (uint8_t)(1 + noise() % 255);
            FILE *file = fopen(path, "r+b");
            CHECK(file && fseek(file, (long)(p * page + at), SEEK_SET) == 0 &&
                  fputc(good[p * page + at] ^ change, file) != EOF && fclose(file) == 0);
            refused += read_all(path, bytes, true) < SAMPLES;
            tried++;
            file = fopen(path, "r+b");
            CHECK(file && fseek(file, (long)(p * page + at), SEEK_SET) == 0 &&
                  fputc(good[p * page + at], file) != EOF && fclose(file) == 0);
        }
    }
    CHECK(tried > 2000 / THIN && refused > 500 / THIN);
    CHECK(read_all(path, bytes, false) == SAMPLES);
}

/* Several bytes at once, words set to extremes, pages swapped or repeated. */
__attribute__((unused)) static void test_random_damage(const uint8_t *good, uint64_t bytes, uint32_t page,
                                                       int rounds) {
    uint8_t *bad = malloc(bytes);
    uint64_t pages = bytes / page;
    CHECK(bad);
    for (int round = 0; round < rounds; round++) {
        memcpy(bad, good, bytes);
        switch (noise() % 4) {
        case 0:
            for (uint32_t n = 1 + noise() % 40; n; n--) bad[noise() % bytes] = (uint8_t)noise();
            break;
        case 1: {
            uint64_t from = noise() % pages, to = noise() % pages;
            memcpy(bad + to * page, good + from * page, page);
            break;
        }
        case 2: {
            uint64_t extreme[] = {0, UINT64_MAX, 1, 2, pages, pages - 1, (uint64_t)1 << 63, noise() % pages};
            for (uint32_t n = 1 + noise() % 4; n; n--) {
                memcpy(bad + (noise() % pages * page + noise() % (page / 8) * 8), &extreme[noise() % 8], 8);
            }
            break;
        }
        default:
            for (uint64_t p = noise() % pages, k = 0; k < 64; k++)
                bad[p * page + noise() % 200] ^= (uint8_t)(1 << noise() % 8);
        }
        spill(path, bad, bytes);
        read_all(path, bytes, true);
    }
    free(bad);
    spill(path, good, bytes);
}

static void test_sizes(const uint8_t *good, uint64_t bytes, uint32_t page) {
    uint64_t cuts[] = {0,        1, 100, 152, page - 1, page, 2 * page, 2 * page + 1, bytes / 2, bytes - page,
                       bytes - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        spill(path, good, cuts[i]);
        CHECK(read_all(path, bytes, true) == 0); /* the manifest's size */
        CHECK(read_all(path, cuts[i], true) == 0); /* a manifest that agrees with the cut */
    }
    spill(path, good, bytes);
    fl_error err;
    fl_store *store;
    CHECK(fl_store_create(&store, &err) == FL_OK);
    CHECK(add(store, path, 0, SAMPLES - 1, bytes, &err) == FL_ESHARD);
    CHECK(add(store, path, 1, SAMPLES, bytes, &err) == FL_EARG);
    CHECK(add(store, path, 0, 0, bytes, &err) == FL_EARG);
    CHECK(add(store, "/nonexistent/shard.lmdb", 0, SAMPLES, bytes, &err) == FL_ESHARD &&
          strstr(err.text, "missing"));
    CHECK(add(store, folder, 0, SAMPLES, bytes, &err) != FL_OK);
    CHECK(fl_store_count(store) == 0 && fl_store_shards(store) == 0);
    fl_store_close(store);
}

/* The first big value of a leaf would end one page behind the file. */
static void test_a_value_beyond_the_end(const uint8_t *good, uint64_t bytes, uint32_t page) {
    const uint64_t pages = bytes / page;
    fl_error err;
    fl_store *store;
    uint8_t *bad = slurp(path, bytes);
    bool changed = false;
    for (uint64_t p = 2; p < pages && !changed; p++) {
        uint8_t *leaf = bad + p * page;
        if (fl_bytes_le64(leaf) != p || fl_bytes_le16(leaf + 10) != 2) continue;
        for (uint32_t at = 16; at < fl_bytes_le16(leaf + 12) && !changed; at += 2) {
            uint8_t *node = leaf + fl_bytes_le16(leaf + at);
            if (!(changed = fl_bytes_le16(node + 4) == 1)) continue;
            const uint64_t needed = (15 + (uint64_t)fl_bytes_le32(node)) / page + 1,
                           outside = pages + 1 - needed;
            memcpy(node + 8 + fl_bytes_le16(node + 6), &outside, sizeof outside);
        }
    }
    CHECK(changed);
    spill(path, bad, bytes);
    CHECK(fl_store_create(&store, &err) == FL_OK);
    CHECK(add(store, path, 0, SAMPLES, bytes, &err) == FL_ESHARD && strstr(err.text, "lie outside"));
    fl_store_close(store);
    spill(path, good, bytes);
    free(bad);
}

static void test_checksum(const uint8_t *good, uint64_t bytes) {
    uint8_t expected[16384];
    size_t size = sample(3, expected);
    const uint8_t *at = memmem(good, bytes, expected, size);
    CHECK(at);
    uint8_t *bad = malloc(bytes);
    CHECK(bad);
    memcpy(bad, good, bytes);
    bad[at - good + 17] ^= 4;
    spill(path, bad, bytes);
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    CHECK(fl_store_reader_get(reader, store, 3, NOTHING, &span, &err) ==
          FL_OK); /* nothing to compare with yet */
    fl_store_set_checksums(store, 0, sums);
    CHECK(fl_store_reader_get(reader, store, 3, NOTHING, &span, &err) == FL_ECHECKSUM &&
          fl_store_reader_get(reader, store, 4, NOTHING, &span, &err) == FL_OK);
    fl_store_reader_free(reader);
    fl_store_close(store);
    free(bad);
    spill(path, good, bytes);
}

/* Puts the file `other` behind every descriptor that is open on `path`. */
static void swap_descriptors(const char *other) {
    int with = open(other, O_RDONLY), found = 0;
    struct stat wanted, is;
    CHECK(with >= 0 && stat(path, &wanted) == 0);
    for (int fd = 3; fd < 64; fd++)
        if (fstat(fd, &is) == 0 && is.st_ino == wanted.st_ino && is.st_dev == wanted.st_dev)
            found += dup2(with, fd) == fd;
    close(with);
    CHECK(found == 1);
}

/* Of a file that was cut at half, every sample is right or an error that names the shard. */
static void test_cut(const uint8_t *good, uint64_t bytes) {
    uint8_t expected[16384];
    char other[sizeof path + 8];
    snprintf(other, sizeof other, "%s.cut", path);
    spill(other, good, bytes / 2);
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    swap_descriptors(other);
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    int whole = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        fl_code code = fl_store_reader_get(reader, store, i, NOTHING, &span, &err);
        CHECK(code == FL_OK || (code == FL_ESHARD && strstr(err.text, "shard.lmdb")));
        if (code) continue;
        whole++;
        CHECK(span.size == sample(i, expected) && memcmp(span.bytes, expected, span.size) == 0);
    }
    CHECK(whole > 0 && whole < SAMPLES);
    fl_store_reader_free(reader), fl_store_close(store);
    CHECK(unlink(other) == 0);
    check_live(0, 0);
}

/* A store is warm when 1,024 records were found in the page cache one after the other, and no sooner. */
static void test_warm(uint64_t bytes) {
    fl_error err;
    fl_store *store;
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    bool all = true;
    for (uint64_t i = 0; i < 1024; i++) {
        CHECK(!fl_store_warm(store));
        all = fl_store_ahead(store, i % SAMPLES) && all;
    }
    CHECK(fl_store_warm(store) == all); /* a file system that cannot tell leaves it cold */
    CHECK(!fl_store_ahead(store, SAMPLES));
    fl_store_close(store);
    check_live(0, 0);
}

static void *read_thread(void *opaque) {
    fl_store *store = opaque;
    fl_error err;
    fl_store_reader *reader;
    fl_span span;
    uint8_t expected[16384];
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (int round = 0; round < 40; round++) {
        for (uint64_t i = 0; i < SAMPLES; i++) {
            CHECK(fl_store_reader_get(reader, store, i, NOTHING, &span, &err) == FL_OK);
            CHECK(span.size == sample(i, expected) && memcmp(span.bytes, expected, span.size) == 0);
        }
    }
    fl_store_reader_free(reader);
    return NULL;
}

/* Four threads; then a forked child is told whose store it is. */
static void test_threads_and_fork(uint64_t bytes) {
    fl_error err;
    fl_store *store;
    pthread_t threads[4];
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    fl_store_set_checksums(store, 0, sums);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, read_thread, store) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    fl_store_reader *reader;
    fl_span span;
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK &&
          fl_store_reader_get(reader, store, 0, NOTHING, &span, &err) == FL_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool right = fl_store_reader_get(reader, store, 0, NOTHING, &span, &err) == FL_EFORK &&
                     fl_store_column(store, 0, "crcs", sums, sizeof sums, &err) == FL_EFORK &&
                     add(store, path, 0, 1, 1, &err) == FL_EFORK;
        fl_store_reader_free(reader);
        fl_store_close(store);
        _exit(right ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(fl_store_reader_get(reader, store, 1, NOTHING, &span, &err) == FL_OK);
    fl_store_reader_free(reader);
    fl_store_close(store);
    check_live(0, 0);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    uint64_t bytes = write_shard(path);
    CHECK(read_all(path, bytes, false) == SAMPLES);
    uint8_t *good = slurp(path, bytes);
    uint32_t page;
    memcpy(&page, good + 40, sizeof page);
    test_sizes(good, bytes, page);
    test_a_value_beyond_the_end(good, bytes, page);
    test_cut(good, bytes);
    test_checksum(good, bytes);
    test_warm(bytes);
    test_threads_and_fork(bytes);
#ifndef __SANITIZE_THREAD__ /* one thread each, and slow under it */
    test_random_damage(good, bytes, page, 400 / THIN);
    test_every_byte(good, bytes, page);
#endif
    free(good);
    end("store");
    return 0;
}
