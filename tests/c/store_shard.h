/* A shard of a few samples, made with LMDB, for the tests of the store. */
#ifndef STORE_SHARD_H
#define STORE_SHARD_H

#include <fcntl.h>
#include <lmdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "common/crc32c.h"
#include "draws.h"
#include "store/store.h"

enum { SAMPLES = 200, BIG_EVERY = 3 };
static const fl_span NOTHING = {NULL, 0};
static char folder[64] = "/tmp/fastload-test-XXXXXX";
static char path[128];
static uint32_t sums[SAMPLES];

static uint8_t sevens[9000 + 256]; /* multiples of 7, one after the other */
__attribute__((constructor)) static void count_sevens(void) {
    for (size_t k = 0; k < sizeof sevens; k++) sevens[k] = (uint8_t)(k * 7);
}

/* Sample i: its size and bytes follow from i; some fit their leaf page, some lie on pages of their own. Byte
 * k is 31 i + 7 k. */
static inline size_t sample(uint64_t i, uint8_t *out) {
    size_t size = i % BIG_EVERY ? 40 + i % 90 : 5000 + i * 7 % 4000;
    memcpy(out, sevens + (uint8_t)(i * 31 * 183), size); /* 7 * 183 is 1 in a byte */
    return size;
}

static inline uint64_t write_shard(const char *file) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi samples, columns;
    uint8_t value[16384];
    unlink(file);
    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, 2) == 0 &&
          mdb_env_set_mapsize(env, 64 << 20) == 0);
    CHECK(mdb_env_open(env, file, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0644) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, "samples", MDB_CREATE, &samples) == 0 &&
          mdb_dbi_open(txn, "columns", MDB_CREATE, &columns) == 0);
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

static inline void check_live(uint32_t stores, uint32_t readers) {
    uint32_t s, r;
    fl_store_live(&s, &r);
    CHECK(s == stores && r == readers);
}

/* Adds a file whose samples are the dataset's. */
static inline fl_code add(fl_store *store, const char *file, uint64_t first, uint64_t count, uint64_t bytes,
                          fl_error *err) {
    return fl_store_add(
        store,
        &(fl_shard_spec){
            .path = file, .first = first, .count = count, .bytes = bytes, .key = first, .stored = count},
        err);
}

/* Makes the folder and the path of the shard; the seed is the program's argument. */
static inline void begin(int argc, char **argv) {
    check_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    noise_state = check_seed * 0x9E3779B97F4A7C15ULL | 1;
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/shard.lmdb", folder);
}

static inline void end(const char *what) {
    unlink(path);
    rmdir(folder);
    printf("%s: ok (seed %llu)\n", what, check_seed);
}

/* A table of the places of the shard's samples, in an unlinked file; freed by free_places. */
static inline fl_table place_table(const fl_store_place *places) {
    static const uint32_t each = FL_TABLE_BLOCK / sizeof(fl_store_row);
    fl_store_row rows[SAMPLES];
    fl_error err;
    char file[sizeof path + 16];
    snprintf(file, sizeof file, "%s.table", path);
    for (int i = 0; i < SAMPLES; i++) rows[i] = (fl_store_row){places[i], sums[i]};
    const int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, rows, sizeof rows) == sizeof rows && unlink(file) == 0);
    uint32_t *crcs = calloc(fl_table_blocks(SAMPLES, sizeof *rows), sizeof *crcs);
    CHECK(crcs);
    for (uint32_t at = 0; at < SAMPLES; at += each)
        crcs[at / each] = fl_crc32c(0, rows + at, (SAMPLES - at < each ? SAMPLES - at : each) * sizeof *rows);
    fl_table table = {.rows = SAMPLES, .width = sizeof *rows, .crcs = crcs};
    CHECK(fl_table_file_create(&table.file, fd, "index-00000.bin", &err) == FL_OK);
    return table;
}

static inline void free_places(fl_table table) {
    fl_table_file_free(table.file);
    free((void *)(uintptr_t)table.crcs);
}

#endif
