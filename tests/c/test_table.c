/* Tables in a file: rows are those that were written, of any width and by any number of threads; a file that
 * is cut or changed is an error. Usage: test_table [seed]. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "store/table.h"
#include "store_shard.h"

enum { ROWS = 3000, THREADS = 6, ROUNDS = 20000, WIDTH_MOST = 64, BEFORE = 40 };

static uint8_t content[ROWS * WIDTH_MOST];
static uint32_t crcs[ROWS];

static int write_table(uint32_t width, uint64_t rows) {
    const int fd = memfd_create("table", MFD_CLOEXEC);
    const size_t size = rows * width, block = (size_t)fl_table_block_rows(width) * width;
    for (size_t i = 0; i < size; i++) content[i] = (uint8_t)noise();
    for (size_t at = 0; at < size; at += block)
        crcs[at / block] = fl_crc32c(0, content + at, size - at < block ? size - at : block);
    CHECK(fd >= 0 && pwrite(fd, content, size, BEFORE) == (ssize_t)size);
    return fd;
}

static fl_table open_table(int fd, uint32_t width, uint64_t rows) {
    fl_error err;
    fl_table table = {.offset = BEFORE, .rows = rows, .width = width, .crcs = crcs};
    CHECK(fl_table_file_create(&table.file, fd, "index-00000.bin", &err) == FL_OK);
    return table;
}

/* The next number of a thread's own: `noise` is for one thread. */
static uint32_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Reads one row, or a range of rows. */
static void read_some(const fl_table *t, uint64_t *state) {
    static _Thread_local uint8_t into[sizeof content];
    fl_error err;
    const uint64_t first = next(state) % t->rows,
                   count = next(state) % 3 ? 1 : next(state) % (t->rows - first + 1);
    CHECK((count == 1 ? fl_table_row(t, first, into, &err) : fl_table_read(t, first, count, into, &err)) ==
          FL_OK);
    CHECK(memcmp(into, content + first * t->width, count * t->width) == 0);
}

static void test_widths(void) {
    const uint32_t widths[] = {1, 2, 3, 4, 7, 8, 12, 16, 24, 60, 64};
    const uint64_t rows[] = {1, 2, 63, 64, 65, 255, 256, 257, 511, 512, ROWS};
    uint8_t into[WIDTH_MOST];
    uint64_t state = noise();
    fl_error err;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const fl_table t = open_table(write_table(widths[w], rows[r]), widths[w], rows[r]);
            for (int round = 0; round < 200; round++) read_some(&t, &state);
            CHECK(fl_table_row(&t, t.rows, into, &err) == FL_EARG &&
                  fl_table_read(&t, 1, t.rows, into, &err) == FL_EARG);
            CHECK(fl_table_read(&t, UINT64_MAX, 2, into, &err) == FL_EARG &&
                  fl_table_read(&t, t.rows, 0, into, &err) == FL_OK);
            fl_table_file_free(t.file);
        }
    }
    CHECK(fl_table_live() == 0);
}

/* A byte that was changed, and a file that was cut, are errors of the rows in their block alone. */
static void test_damage(void) {
    uint8_t into[16], byte;
    fl_error err;
    for (int round = 0; round < 300; round++) {
        const int fd = write_table(16, ROWS);
        const fl_table t = open_table(fd, 16, ROWS);
        const uint64_t bad = noise() % ROWS, block = bad / 256;
        const off_t at = BEFORE + (off_t)(bad * 16 + noise() % 16);
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= (uint8_t)(1u << noise() % 8);
        if (round % 2) CHECK(pwrite(fd, &byte, 1, at) == 1);
        else CHECK(ftruncate(fd, at) == 0);
        for (uint64_t row = 0; row < ROWS; row += 1 + noise() % 40) {
            const bool hit = round % 2 ? row / 256 == block : row / 256 >= block;
            const fl_code code = fl_table_row(&t, row, into, &err);
            CHECK(code == (hit ? FL_ESHARD : FL_OK) && (!hit || strstr(err.text, "index-00000.bin")));
            CHECK(hit || memcmp(into, content + row * 16, 16) == 0);
        }
        fl_table_file_free(t.file);
    }
}

static void *read_thread(void *opaque) {
    uint64_t state = (uintptr_t)&state;
    for (int i = 0; i < ROUNDS; i++) read_some(opaque, &state);
    return NULL;
}

/* Threads share the slots; a child that was forked meanwhile reads on. */
static void test_threads(void) {
    fl_table t = open_table(write_table(16, ROWS), 16, ROWS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, read_thread, &t) == 0);
    for (int i = 0; i < 5; i++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            uint64_t state = (uint64_t)i;
            for (int k = 0; k < 500; k++) read_some(&t, &state);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    fl_table_file_free(t.file);
    fl_table_file_free(NULL);
    CHECK(fl_table_live() == 0);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    test_widths();
    test_damage();
    test_threads();
    end("tables");
    return 0;
}
