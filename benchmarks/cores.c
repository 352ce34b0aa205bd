/* What threads do one after the other: the queue's lock, a submission, cache lines that all write, and
 * memory. Prints JSON.
 *
 *     cores RECORD_FILE RECORD_BYTES
 *
 * turn_ns     of the pool's queue, by 1 and by 2 threads that take turns of nothing to do: lock, take,
 * unlock, and the clock twice submit_ns   CPU time of the thread that submits a batch, while 1, 8 and 64
 * threads sleep line_ns     one addition to a word, by 1 thread, and by 2 threads to the same word: the
 * latter, of both together copy_gbs    bytes that memcpy of large buffers reads and writes a second, by 1
 * thread and by 2 read_ns     pread of a record of RECORD_BYTES at a random place of a file in the page
 * cache, by 1 thread, and by 2: of both together
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "engine/pool.h"

enum { ITEMS = 2000000, SUBMITS = 300, ADDS = 20000000, COPY = 64 << 20, COPIES = 8, READS = 200000 };

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

typedef struct done {
    _Atomic uint32_t left;
} done;

static void nothing(void *opaque, uint32_t item, void *context) {
    (void)context;
    if (item == ITEMS - 1) atomic_store(&((done *)opaque)->left, 0);
}

static void count_down(void *opaque, uint32_t item, void *context) {
    (void)item, (void)context;
    atomic_fetch_sub(&((done *)opaque)->left, 1);
}

static fl_pool *pool_of(uint32_t threads) {
    fl_error err;
    fl_pool *pool;
    if (fl_pool_create("cores", threads, 16, NULL, &pool, &err)) fail(err.text);
    return pool;
}

static double turn_ns(uint32_t threads) {
    fl_error err;
    fl_pool *pool = pool_of(threads);
    done d = {1};
    const int64_t start = fl_clock_ns();
    if (fl_pool_submit(pool, nothing, &d, ITEMS, &err)) fail(err.text);
    while (atomic_load(&d.left)) usleep(1000);
    fl_pool_cancel(pool, &d);
    const double took = (double)(fl_clock_ns() - start) / (double)fl_pool_turns(pool);
    fl_pool_free(pool);
    return took;
}

static double submit_ns(uint32_t threads) {
    fl_error err;
    fl_pool *pool = pool_of(threads);
    int64_t took = 0;
    for (int i = 0; i < SUBMITS; i++) {
        done d = {64};
        usleep(500); /* all sleep */
        const int64_t start = cpu_ns();
        if (fl_pool_submit(pool, count_down, &d, 64, &err)) fail(err.text);
        took += cpu_ns() - start;
        while (atomic_load(&d.left)) usleep(50);
        fl_pool_cancel(pool, &d);
    }
    fl_pool_free(pool);
    return (double)took / SUBMITS;
}

static _Alignas(64) _Atomic uint64_t line;
static int file;
static uint64_t file_bytes, record_bytes;

static void *add(void *unused) {
    for (int i = 0; i < ADDS; i++) atomic_fetch_add(&line, 1);
    return unused;
}

static void *copy(void *unused) {
    char *from = malloc(COPY), *to = malloc(COPY);
    if (!from || !to) fail("no memory");
    memset(from, 1, COPY), memset(to, 2, COPY);
    for (int i = 0; i < COPIES; i++) {
        memcpy(to, from, COPY);
        from[i] = to[COPY - 1 - i]; /* each copy is needed */
    }
    free(from), free(to);
    return unused;
}

static void *read_records(void *seed) {
    char *to = malloc(record_bytes);
    uint64_t x = (uint64_t)(uintptr_t)seed * 0x9E3779B97F4A7C15u | 1;
    for (int i = 0; i < READS; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (pread(file, to, record_bytes, (off_t)(x % (file_bytes - record_bytes))) != (ssize_t)record_bytes)
            fail("cannot read");
    }
    free(to);
    return NULL;
}

/* Nanoseconds until that many threads have run `work`. */
static double together(void *(*work)(void *), int threads) {
    pthread_t started[2];
    const int64_t start = fl_clock_ns();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, work, (void *)(uintptr_t)(i + 1))) fail("no thread");
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    return (double)(fl_clock_ns() - start);
}

int main(int argc, char **argv) {
    if (argc != 3 || (file = open(argv[1], O_RDONLY)) < 0) fail("usage: cores RECORD_FILE RECORD_BYTES");
    struct stat stat;
    fstat(file, &stat);
    file_bytes = (uint64_t)stat.st_size, record_bytes = strtoull(argv[2], NULL, 10);
    if (!record_bytes || file_bytes <= record_bytes) fail("the file is no longer than a record");
    printf("{\"turn_ns\": [%.1f, %.1f], ", turn_ns(1), turn_ns(2));
    printf("\"submit_ns\": {\"1\": %.0f, \"8\": %.0f, \"64\": %.0f}, ", submit_ns(1), submit_ns(8),
           submit_ns(64));
    printf("\"line_ns\": [%.2f, %.2f], ", together(add, 1) / ADDS, together(add, 2) / (2.0 * ADDS));
    const double copied = 2.0 * COPY * COPIES;
    printf("\"copy_gbs\": [%.2f, %.2f], ", copied / together(copy, 1), 2 * copied / together(copy, 2));
    printf("\"read_ns\": [%.0f, %.0f]}\n", together(read_records, 1) / READS,
           together(read_records, 2) / (2.0 * READS));
    return 0;
}
