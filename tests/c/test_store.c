/* The store against files made here: good ones read back, damaged ones are refused or give the right bytes, and nothing crashes.
 * Usage: test_store [seed]. A failure prints its line and the seed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cpu.h"
#include "common/crc32c.h"
#include "store/record.h"
#include "store/store.h"

enum { SAMPLES = 200, BIG_EVERY = 3 };
static uint64_t seed = 1;
static char folder[64] = "/tmp/fastload-test-XXXXXX";
static char path[128];
static uint32_t sums[SAMPLES];

#define CHECK(condition)                                                                                                                   \
    do {                                                                                                                                   \
        if (!(condition)) {                                                                                                                \
            fprintf(stderr, "%s:%d: %s (seed %llu)\n", __FILE__, __LINE__, #condition, (unsigned long long)seed);                          \
            exit(1);                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

static uint64_t state;
static uint32_t random_u32(void) { /* xorshift64* (Marsaglia; Vigna) */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 0x2545F4914F6CDD1DULL >> 32);
}

/* Sample i: its size and bytes follow from i; some fit their leaf page, some lie on pages of their own. */
static size_t sample(uint64_t i, uint8_t *out) {
    size_t size = i % BIG_EVERY ? 40 + i % 90 : 5000 + i * 7 % 4000;
    for (size_t k = 0; k < size; k++) out[k] = (uint8_t)(i * 31 + k * 7);
    return size;
}

static uint64_t write_shard(const char *file) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi samples, columns;
    uint8_t value[16384];
    unlink(file);
    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 2) == 0 && mdb_env_set_mapsize(env, 64 << 20) == 0);
    CHECK(mdb_env_open(env, file, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0644) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, "samples", MDB_CREATE, &samples) == 0 && mdb_dbi_open(txn, "columns", MDB_CREATE, &columns) == 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint8_t key[8];
        for (int k = 0; k < 8; k++) key[k] = (uint8_t)(i >> (56 - 8 * k));
        MDB_val name = {8, key}, data = {sample(i, value), value};
        sums[i] = fl_crc32c(0, value, data.mv_size);
        CHECK(mdb_put(txn, samples, &name, &data, MDB_APPEND) == 0);
        if (i % 60 == 59) CHECK(mdb_txn_commit(txn) == 0 && mdb_txn_begin(env, NULL, 0, &txn) == 0);
    }
    MDB_val name = {4, "crcs"}, data = {sizeof sums, sums};
    CHECK(mdb_put(txn, columns, &name, &data, 0) == 0);
    MDB_val small = {5, "small"}, few = {8, "12345678"};
    CHECK(mdb_put(txn, columns, &small, &few, 0) == 0);
    CHECK(mdb_txn_commit(txn) == 0);
    MDB_envinfo info;
    MDB_stat stat;
    CHECK(mdb_env_info(env, &info) == 0 && mdb_env_stat(env, &stat) == 0);
    mdb_env_close(env);
    uint64_t bytes = (info.me_last_pgno + 1) * stat.ms_psize;
    CHECK(truncate(file, (off_t)bytes) == 0);
    return bytes;
}

static void check_live(uint32_t stores, uint32_t readers) {
    uint32_t s, r;
    fl_store_live(&s, &r);
    CHECK(s == stores && r == readers);
}

/* Adds a file whose samples are the dataset's. */
static fl_code add(fl_store *store, const char *file, uint64_t first, uint64_t count, uint64_t bytes, fl_error *err) {
    return fl_store_add(store,
                        &(fl_shard_spec){.path = file, .first = first, .count = count, .bytes = bytes, .key = first, .stored = count}, err);
}

/* Reads everything; where `damaged`, any error will do, but what is delivered must be right. Returns how many samples were. */
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
            code = fl_store_reader_get(reader, store, index, &span, &err);
            CHECK(damaged || code == FL_OK);
            if (code) continue;
            good++;
            CHECK(span.size == sample(index, expected) && memcmp(span.bytes, expected, span.size) == 0);
        }
        CHECK(fl_store_reader_get(reader, store, SAMPLES, &span, &err) == FL_ENOTFOUND);
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
        /* page head and node offsets all, of nodes every fourth, beginning anywhere */
        for (uint32_t at = 0; at < span; at += meta || at < lower ? 1 : 1 + random_u32() % 7) {
            uint8_t change = (uint8_t)(1 + random_u32() % 255);
            FILE *file = fopen(path, "r+b");
            CHECK(file && fseek(file, (long)(p * page + at), SEEK_SET) == 0 && fputc(good[p * page + at] ^ change, file) != EOF &&
                  fclose(file) == 0);
            refused += read_all(path, bytes, true) < SAMPLES;
            tried++;
            file = fopen(path, "r+b");
            CHECK(file && fseek(file, (long)(p * page + at), SEEK_SET) == 0 && fputc(good[p * page + at], file) != EOF &&
                  fclose(file) == 0);
        }
    }
    CHECK(tried > 2000 && refused > 500);
    CHECK(read_all(path, bytes, false) == SAMPLES);
}

/* Several bytes at once, words set to extremes, pages swapped or repeated. */
__attribute__((unused)) static void test_random_damage(const uint8_t *good, uint64_t bytes, uint32_t page, int rounds) {
    uint8_t *bad = malloc(bytes);
    uint64_t pages = bytes / page;
    CHECK(bad);
    for (int round = 0; round < rounds; round++) {
        memcpy(bad, good, bytes);
        switch (random_u32() % 4) {
        case 0:
            for (uint32_t n = 1 + random_u32() % 40; n; n--) bad[random_u32() % bytes] = (uint8_t)random_u32();
            break;
        case 1: {
            uint64_t from = random_u32() % pages, to = random_u32() % pages;
            memcpy(bad + to * page, good + from * page, page);
            break;
        }
        case 2: {
            uint64_t extreme[] = {0, UINT64_MAX, 1, 2, pages, pages - 1, (uint64_t)1 << 63, random_u32() % pages};
            for (uint32_t n = 1 + random_u32() % 4; n; n--) {
                memcpy(bad + (random_u32() % pages * page + random_u32() % (page / 8) * 8), &extreme[random_u32() % 8], 8);
            }
            break;
        }
        default:
            for (uint64_t p = random_u32() % pages, k = 0; k < 64; k++)
                bad[p * page + random_u32() % 200] ^= (uint8_t)(1 << random_u32() % 8);
        }
        spill(path, bad, bytes);
        read_all(path, bytes, true);
    }
    free(bad);
    spill(path, good, bytes);
}

static void test_sizes(const uint8_t *good, uint64_t bytes, uint32_t page) {
    uint64_t cuts[] = {0, 1, 100, 152, page - 1, page, 2 * page, 2 * page + 1, bytes / 2, bytes - page, bytes - 1};
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
    CHECK(add(store, "/nonexistent/shard.lmdb", 0, SAMPLES, bytes, &err) == FL_ESHARD && strstr(err.text, "missing"));
    CHECK(add(store, folder, 0, SAMPLES, bytes, &err) != FL_OK);
    CHECK(fl_store_count(store) == 0 && fl_store_shards(store) == 0);
    fl_store_close(store);
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
    CHECK(fl_store_reader_get(reader, store, 3, &span, &err) == FL_OK); /* nothing to compare with yet */
    fl_store_set_checksums(store, 0, sums);
    CHECK(fl_store_reader_get(reader, store, 3, &span, &err) == FL_ECHECKSUM &&
          fl_store_reader_get(reader, store, 4, &span, &err) == FL_OK);
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
        if (fstat(fd, &is) == 0 && is.st_ino == wanted.st_ino && is.st_dev == wanted.st_dev) found += dup2(with, fd) == fd;
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
        fl_code code = fl_store_reader_get(reader, store, i, &span, &err);
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

/* The same file thrice: whole with other numbers than its keys, every third sample of it, and two samples with a base. */
static void test_rows_and_keys(uint64_t bytes) {
    enum { THIRD = (SAMPLES + 2) / 3 };
    static uint32_t thirds[THIRD], crcs[THIRD];
    const uint32_t two[] = {1, SAMPLES - 1}, same[] = {4, 4}, back[] = {5, 4}, beyond[] = {0, SAMPLES};
    uint8_t expected[16384], head[FL_STORE_HEAD];
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    for (uint32_t i = 0; i < THIRD; i++) thirds[i] = 3 * i, crcs[i] = sums[3 * i];
    CHECK(fl_store_create(&store, &err) == FL_OK);
    fl_shard_spec spec = {.path = path, .first = 0, .count = SAMPLES, .bytes = bytes, .key = 1, .stored = SAMPLES};
    CHECK(fl_store_add(store, &spec, &err) == FL_ESHARD); /* other keys than the file's */
    spec.key = 0, spec.stored = SAMPLES - 1;
    CHECK(fl_store_add(store, &spec, &err) == FL_EARG);
    spec.stored = UINT64_MAX, spec.key = 1;
    CHECK(fl_store_add(store, &spec, &err) == FL_EARG);
    spec.stored = SAMPLES, spec.key = 0;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK);
    spec.first = SAMPLES, spec.count = THIRD;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK && fl_store_set_rows(store, 1, thirds, &err) == FL_OK);
    fl_store_set_checksums(store, 1, crcs);
    char base[] = "../elsewhere";
    spec.first = SAMPLES + THIRD, spec.count = 2, spec.base = base;
    CHECK(fl_store_add(store, &spec, &err) == FL_OK);
    base[0] = 'x'; /* the store has a copy */
    CHECK(fl_store_set_rows(store, 2, same, &err) == FL_ESHARD && fl_store_set_rows(store, 2, back, &err) == FL_ESHARD);
    CHECK(fl_store_set_rows(store, 2, beyond, &err) == FL_ESHARD && fl_store_set_rows(store, 3, two, &err) == FL_EARG);
    CHECK(fl_store_set_rows(store, 2, two, &err) == FL_OK);
    CHECK(fl_store_count(store) == SAMPLES + THIRD + 2 && !fl_store_base(store, 0) && !fl_store_base(store, SAMPLES + THIRD + 2));
    CHECK(strcmp(fl_store_base(store, SAMPLES + THIRD), "../elsewhere") == 0);
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (uint64_t i = 0; i < fl_store_count(store); i++) {
        const uint64_t is = i < SAMPLES ? i : i < SAMPLES + THIRD ? thirds[i - SAMPLES] : two[i - SAMPLES - THIRD];
        fl_store_ahead(store, i);
        CHECK(fl_store_reader_get(reader, store, i, &span, &err) == FL_OK);
        CHECK(span.size == sample(is, expected) && memcmp(span.bytes, expected, span.size) == 0);
        const size_t begin = fl_store_head(store, i, head);
        CHECK(begin == (span.size < FL_STORE_HEAD ? span.size : FL_STORE_HEAD) && memcmp(head, expected, begin) == 0);
    }
    size_t size = 0;
    CHECK(fl_store_column_size(store, 1, "crcs", &size, &err) == FL_OK && size == sizeof sums); /* a row for each stored sample */
    fl_store_reader_free(reader), fl_store_close(store);
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
            CHECK(fl_store_reader_get(reader, store, i, &span, &err) == FL_OK);
            CHECK(span.size == sample(i, expected) && memcmp(span.bytes, expected, span.size) == 0);
        }
    }
    fl_store_reader_free(reader);
    return NULL;
}

/* A copy of what a shard holds, for the caller to free. */
static fl_store_tree copied_tree(const fl_store *store) {
    uint64_t stored;
    const fl_store_tree *tree = fl_store_shard_tree(store, 0, &stored);
    fl_store_tree copy = {malloc(stored * sizeof *copy.samples), malloc(tree->column_count * sizeof *copy.columns), tree->column_count};
    CHECK(stored == SAMPLES && tree->column_count == 2 && copy.samples && copy.columns);
    memcpy(copy.samples, tree->samples, stored * sizeof *copy.samples);
    memcpy(copy.columns, tree->columns, tree->column_count * sizeof *copy.columns);
    return copy;
}

/* Adds the shard with places given, and reads everything: what is delivered is right. Returns how many samples were; -1: it was not added. */
static int read_given(const fl_store_tree *given, uint64_t bytes) {
    fl_error err;
    fl_store *store;
    fl_store_reader *reader;
    fl_span span;
    uint8_t expected[16384], column[sizeof sums];
    int good = 0;
    size_t size = 0;
    CHECK(fl_store_create(&store, &err) == FL_OK);
    fl_code code =
        fl_store_add(store, &(fl_shard_spec){.path = path, .count = SAMPLES, .bytes = bytes, .stored = SAMPLES, .given = given}, &err);
    if (code) {
        CHECK(code == FL_ESHARD && strstr(err.text, "shard.lmdb") && fl_store_shards(store) == 0);
        fl_store_close(store);
        return -1;
    }
    fl_store_set_checksums(store, 0, sums);
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        fl_store_ahead(store, i);
        fl_store_head(store, i, expected);
        code = fl_store_reader_get(reader, store, i, &span, &err);
        CHECK(code == FL_OK || code == FL_ECHECKSUM);
        if (code) continue;
        good++;
        CHECK(span.size == sample(i, expected) && memcmp(span.bytes, expected, span.size) == 0);
    }
    if (fl_store_column_size(store, 0, "crcs", &size, &err) == FL_OK && size == sizeof sums)
        CHECK(fl_store_column(store, 0, "crcs", column, sizeof column, &err) == FL_OK); /* the caller compares its checksum */
    fl_store_reader_free(reader);
    fl_store_close(store);
    check_live(0, 0);
    return good;
}

/* Places given in the stead of the walk: the right ones read everything, wrong ones are refused or give a wrong checksum, of any value. */
static void test_given(uint64_t bytes, int rounds) {
    fl_error err;
    fl_store *store;
    CHECK(fl_store_create(&store, &err) == FL_OK && add(store, path, 0, SAMPLES, bytes, &err) == FL_OK);
    fl_store_tree given = copied_tree(store), kept = copied_tree(store);
    fl_store_close(store);
    CHECK(read_given(&given, bytes) == SAMPLES);
    CHECK(read_given(&given, bytes + 1) == -1); /* another size than the manifest's */

    fl_store_place *last = &given.samples[SAMPLES - 1];
    *last = fl_store_place_at(bytes - 1, 1);
    CHECK(read_given(&given, bytes) == SAMPLES - 1);
    *last = fl_store_place_at(bytes, 0);
    CHECK(read_given(&given, bytes) == SAMPLES - 1);
    const fl_store_place outside[] = {fl_store_place_at(bytes, 1), fl_store_place_at(bytes - 1, 2), fl_store_place_at(bytes + 1, 0),
                                      fl_store_place_at(UINT64_MAX, UINT32_MAX), fl_store_place_at(UINT64_MAX - 3, 4)};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        *last = outside[i];
        CHECK(read_given(&given, bytes) == -1);
        *last = kept.samples[SAMPLES - 1];
        given.columns[1].place = outside[i];
        CHECK(read_given(&given, bytes) == -1);
        given.columns[1].place = kept.columns[1].place;
    }
    for (uint32_t i = 0; i < SAMPLES; i++) given.samples[i] = fl_store_place_at(0, (uint32_t)(bytes / 2));
    CHECK(read_given(&given, bytes) == -1); /* more than the file together */
    memcpy(given.samples, kept.samples, SAMPLES * sizeof *kept.samples);
    given.columns[0].name_size = FL_STORE_COLUMN_NAME + 1;
    CHECK(read_given(&given, bytes) == -1);
    given.columns[0].name_size = kept.columns[0].name_size;
    given.column_count = 0;
    CHECK(read_given(&given, bytes) == SAMPLES);
    given.column_count = kept.column_count;

    int refused = 0, wrong = 0;
    for (int round = 0; round < rounds; round++) {
        for (uint32_t n = 1 + random_u32() % 5; n; n--) {
            fl_store_place *place = random_u32() % 4 ? &given.samples[random_u32() % SAMPLES] : &given.columns[random_u32() % 2].place;
            uint32_t *word = &(uint32_t *[]){&place->low, &place->high, &place->size}[random_u32() % 3][0];
            *word = random_u32() % 2 ? *word ^ 1u << random_u32() % 32 : random_u32() % (uint32_t)bytes;
        }
        const int good = read_given(&given, bytes);
        refused += good < 0;
        wrong += good >= 0 && good < SAMPLES;
        memcpy(given.samples, kept.samples, SAMPLES * sizeof *kept.samples);
        memcpy(given.columns, kept.columns, kept.column_count * sizeof *kept.columns);
    }
    CHECK(refused > rounds / 10 && wrong > rounds / 10);
    fl_store_tree_free(&given);
    fl_store_tree_free(&kept);
    check_live(0, 0);
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
    CHECK(fl_store_reader_create(&reader, &err) == FL_OK && fl_store_reader_get(reader, store, 0, &span, &err) == FL_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool right = fl_store_reader_get(reader, store, 0, &span, &err) == FL_EFORK &&
                     fl_store_column(store, 0, "crcs", sums, sizeof sums, &err) == FL_EFORK && add(store, path, 0, 1, 1, &err) == FL_EFORK;
        fl_store_reader_free(reader);
        fl_store_close(store);
        _exit(right ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(fl_store_reader_get(reader, store, 1, &span, &err) == FL_OK);
    fl_store_reader_free(reader);
    fl_store_close(store);
    check_live(0, 0);
}

static void test_crc(void) {
    uint8_t bytes[40000];
    CHECK(fl_crc32c(0, "123456789", 9) == 0xE3069283 && fl_crc32c(0, NULL, 0) == 0); /* RFC 3720's check value */
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)random_u32();
    for (int round = 0; round < 3000; round++) {
        size_t from = random_u32() % 64, size = random_u32() % (round % 10 ? 1500 : sizeof bytes - 64),
               cut = size ? random_u32() % size : 0;
        CHECK(fl_cpu_use("plain", NULL) == FL_OK);
        uint32_t whole = fl_crc32c(0, bytes + from, size);
        CHECK(fl_cpu_use(NULL, NULL) == FL_OK);
        CHECK(fl_crc32c(0, bytes + from, size) == whole);
        CHECK(fl_crc32c(fl_crc32c(0, bytes + from, cut), bytes + from + cut, size - cut) == whole);
    }
}

/* A record of two fields; then every byte of its head changed, and every length cut. */
static void test_record(void) {
    uint8_t record[60] = {'F', 'L', 'R', '1', 1, 0, 2, 0, 60};
    memcpy(record + 16, (uint8_t[]){7, 0, FL_RECORD_KIND_BYTES, 0, 48, 0, 0, 0, 5, 0, 0, 0}, 12);
    memcpy(record + 32, (uint8_t[]){9, 0, 77, 0, 53, 0, 0, 0, 7, 0, 0, 0}, 12);
    fl_span span = {record, sizeof record};
    uint32_t entries;
    fl_record_field field;
    fl_error err;
    CHECK(fl_record_check(span, &entries, &err) == FL_OK && entries == 2);
    CHECK(fl_record_find(span, 9, &field, &err) == FL_OK && field.kind == 77 && field.data.bytes == record + 53 && field.data.size == 7);
    CHECK(fl_record_find(span, 8, &field, &err) == FL_ERECORD);
    for (size_t size = 0; size < sizeof record; size++) {
        uint8_t *cut = malloc(size + 1);
        CHECK(cut);
        memcpy(cut, record, size);
        CHECK(fl_record_check((fl_span){cut, size}, &entries, &err) == FL_ERECORD);
        free(cut);
    }
    for (size_t at = 0; at < 48; at++) {
        for (int value = 0; value < 256; value++) {
            uint8_t kept = record[at];
            record[at] = (uint8_t)value;
            if (fl_record_check(span, &entries, &err) == FL_OK) {
                for (uint32_t i = 0; i < entries; i++) {
                    field = fl_record_entry(span, i);
                    CHECK(field.data.bytes >= record + 16 + 16 * entries && field.data.bytes + field.data.size <= record + sizeof record);
                }
            }
            record[at] = kept;
        }
    }
}

int main(int argc, char **argv) {
    if (argc > 1) seed = strtoull(argv[1], NULL, 10);
    state = seed * 0x9E3779B97F4A7C15ULL | 1;
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/shard.lmdb", folder);
    test_crc();
    test_record();
    uint64_t bytes = write_shard(path);
    CHECK(read_all(path, bytes, false) == SAMPLES);
    uint8_t *good = slurp(path, bytes);
    uint32_t page;
    memcpy(&page, good + 40, sizeof page);
    test_sizes(good, bytes, page);
    test_cut(good, bytes);
    test_checksum(good, bytes);
    test_warm(bytes);
    test_rows_and_keys(bytes);
    test_given(bytes, 500);
    test_threads_and_fork(bytes);
#ifndef __SANITIZE_THREAD__ /* one thread each, and slow under it */
    test_random_damage(good, bytes, page, 400);
    test_every_byte(good, bytes, page);
#endif
    free(good);
    unlink(path);
    rmdir(folder);
    printf("store: ok (seed %llu)\n", (unsigned long long)seed);
    return 0;
}
