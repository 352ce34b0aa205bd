/* Entropy indexes in shared memory: what is kept is found, by any thread and process, whole or not at all;
 * the memory never grows beyond what it was made with; whatever lies in it, nothing else is read. Under the
 * thread sanitizer too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/shm_indexes.h"
#include "check.h"

enum { ROOM = 32 << 20, MANY = 30000, THREADS = 4, EACH = 3000, LARGEST = 400, KILLS = 20, SCRIBBLES = 300 };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t key_of(uint64_t number) { return mix(number + 1); }

/* The index of a key follows from it: every seventh is empty. */
static fl_span index_of(uint64_t key, uint8_t out[LARGEST]) {
    const size_t size = key % 7 ? key % (LARGEST - 1) + 1 : 0;
    for (size_t i = 0; i < size; i++) out[i] = (uint8_t)mix(key + i);
    return (fl_span){out, size};
}

static bool is_index(uint64_t key, fl_span found) {
    uint8_t expected[LARGEST];
    const fl_span whole = index_of(key, expected);
    return whole.size == found.size && (!whole.size || memcmp(whole.bytes, found.bytes, whole.size) == 0);
}

static bool keep(const fl_shm *shm, uint64_t key) {
    uint8_t bytes[LARGEST];
    return fl_shm_indexes_keep(shm, key, index_of(key, bytes));
}

/* 1: it is found, as it was kept; 0: it is not there; anything else that is found is an error. */
static int there(const fl_shm *shm, uint64_t key) {
    fl_buffer into = {NULL, 0};
    fl_span found;
    const bool is = fl_shm_indexes_find(shm, key, &into, &found);
    if (is) CHECK(is_index(key, found));
    fl_buffer_free(&into);
    return is;
}

/* Entries that are met one by one, each of which is whole. */
static uint64_t listed(const fl_shm *shm) {
    fl_buffer into = {NULL, 0};
    fl_span found;
    uint64_t count = 0, key;
    for (uint64_t slot = 0; slot < fl_shm_indexes_slots(shm); slot++)
        if (fl_shm_indexes_at(shm, slot, &key, &into, &found)) {
            CHECK(is_index(key, found));
            count++;
        }
    CHECK(!fl_shm_indexes_at(shm, fl_shm_indexes_slots(shm), &key, &into, &found));
    fl_buffer_free(&into);
    return count;
}

static fl_shm made(size_t bytes) {
    fl_error err;
    fl_shm shm;
    CHECK(fl_shm_indexes_create(bytes, &shm, &err) == FL_OK && shm.bytes >= bytes);
    return shm;
}

/* All of many are found, over several levels of the table, and none that was not kept. */
static void many(void) {
    fl_shm shm = made(ROOM);
    fl_shm_indexes_counts counts;
    uint64_t indexes = 0, bytes = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        uint8_t room[LARGEST];
        const fl_span index = index_of(key_of(i), room);
        CHECK(there(&shm, key_of(i)) == 0 && keep(&shm, key_of(i)));
        indexes += index.size > 0, bytes += index.size + FL_SHM_INDEXES_EACH;
    }
    for (uint64_t i = 0; i < MANY; i++) CHECK(there(&shm, key_of(i)) == 1);
    for (uint64_t i = MANY; i < 2 * MANY; i++) CHECK(there(&shm, key_of(i)) == 0);
    CHECK(fl_shm_indexes_slots(&shm) > MANY && listed(&shm) == MANY);
    fl_shm_indexes_count(&shm, &counts);
    CHECK(counts.indexes == indexes && counts.found == indexes && !counts.full);
    CHECK(counts.bytes > indexes && counts.bytes <= bytes);
    fl_shm_close(&shm);
}

/* What is kept again stays as it is, and takes no second place; one of the same key that knows more takes its
 * place. */
static void again(void) {
    fl_shm shm = made(FL_SHM_INDEXES_LEAST);
    const uint64_t key = 5;
    for (int i = 0; i < 3; i++) CHECK(keep(&shm, key));
    fl_shm_indexes_counts counts;
    fl_shm_indexes_count(&shm, &counts);
    CHECK(counts.indexes == 1 && listed(&shm) == 1);
    const uint64_t bytes = counts.bytes;
    fl_buffer into = {NULL, 0};
    fl_span found;
    uint8_t first[LARGEST] = {2, 8}, best[LARGEST] = {0}; /* of version 2: rows are told from byte 10 on */
    size_t size = 0;
    for (int i = 0; i < 6; i++) {
        const uint8_t rows[6] = {3, 2, 3, 9, 4, 1}, last[6] = {0, 0, 0, 0, 0, 0x80};
        first[10] = last[i], first[13] = rows[i];
        const fl_span index = {first, LARGEST - 10u * (size_t)i}; /* who knows more may be shorter */
        CHECK(fl_shm_indexes_keep(&shm, key, index));
        if (i == 0 || i == 3 || i == 5) memcpy(best, first, size = index.size);
        CHECK(fl_shm_indexes_find(&shm, key, &into, &found) && found.size == size &&
              memcmp(found.bytes, best, size) == 0);
    }
    CHECK(keep(&shm, key) && fl_shm_indexes_find(&shm, key, &into, &found) && found.size == size);
    fl_buffer_free(&into);
    fl_shm_indexes_count(&shm, &counts);
    CHECK(counts.indexes == 1 && counts.bytes < bytes + 3 * (LARGEST + FL_SHM_INDEXES_EACH));
    fl_shm_close(&shm);
}

/* Memory that is full keeps what it has, and takes no more than it was made with. */
static void full(void) {
    fl_shm shm = made(FL_SHM_INDEXES_LEAST);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < MANY; i++) kept += keep(&shm, key_of(i));
    fl_shm_indexes_counts counts;
    fl_shm_indexes_count(&shm, &counts);
    CHECK(kept > 100 && kept < MANY && listed(&shm) == kept);
    CHECK(counts.full && counts.bytes <= shm.bytes);
    uint8_t *large = calloc(1, shm.bytes);
    CHECK(large && !fl_shm_indexes_keep(&shm, 1, (fl_span){large, shm.bytes}));
    CHECK(!fl_shm_indexes_keep(&shm, 1, (fl_span){large, SIZE_MAX}));
    free(large);
    fl_shm_close(&shm);
}

typedef struct job {
    const fl_shm *shm;
    uint64_t from;
} job;

static void *work(void *given) {
    const job *j = given;
    for (uint64_t i = 0; i < EACH; i++) {
        const uint64_t key = key_of(j->from + i);
        if (!there(j->shm, key)) CHECK(keep(j->shm, key));
        CHECK(there(j->shm, key) == 1);
    }
    return NULL;
}

/* Threads that make the same indexes at the same time, half of them each. */
static void threads(void) {
    fl_shm shm = made(ROOM);
    pthread_t ids[THREADS];
    job jobs[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){&shm, (uint64_t)i * EACH / 2};
        CHECK(pthread_create(&ids[i], NULL, work, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    CHECK(listed(&shm) == (THREADS + 1) * EACH / 2);
    fl_shm_close(&shm);
}

/* A process that is killed while it keeps indexes leaves whole ones, and the others go on. */
static void killed(void) {
    fl_shm shm = made(ROOM);
    uint64_t before = 0;
    for (int round = 0; round < KILLS; round++) {
        const pid_t child = fork();
        if (child == 0) {
            fl_error err;
            fl_shm mine;
            if (fl_shm_indexes_attach(dup(shm.fd), &mine, &err) != FL_OK) _exit(1);
            for (uint64_t i = 0;; i++) keep(&mine, key_of(i));
        }
        CHECK(child > 0);
        nanosleep(&(struct timespec){.tv_nsec = 1000000 + 300000 * round}, NULL);
        int status;
        CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        const uint64_t now = listed(&shm);
        CHECK(now >= before);
        before = now;
    }
    CHECK(before > 0);
    for (uint64_t i = 0; i < EACH; i++) CHECK(keep(&shm, key_of(i)) && there(&shm, key_of(i)) == 1);
    fl_shm_close(&shm);
}

/* Whatever is written into it, nothing beyond the memory is read or written, and what is found is whole. */
static void scribbled(void) {
    uint64_t random = check_seed = 7;
    for (int round = 0; round < SCRIBBLES; round++) {
        fl_shm shm = made(FL_SHM_INDEXES_LEAST);
        for (uint64_t i = 0; i < 200; i++) keep(&shm, key_of(i));
        uint64_t *words = shm.data;
        const size_t count = shm.bytes / sizeof *words;
        for (int i = 0; i < 1 << round % 12; i++) {
            random = mix(random + 1);
            const size_t at = 1 + random % (random >> 40 & 3 ? count - 1 : 600); /* not the magic */
            words[at] = random >> 45 & 1 ? mix(random) : words[at] ^ (uint64_t)1 << (random >> 48 & 63);
        }
        listed(&shm);
        for (uint64_t i = 0; i < 400; i++) {
            there(&shm, key_of(i));
            keep(&shm, key_of(i));
            there(&shm, key_of(i));
        }
        fl_shm_indexes_counts counts;
        fl_shm_indexes_count(&shm, &counts);
        fl_shm_close(&shm);
    }
}

/* Other memory is refused, and the descriptor taken all the same; so is too little of it. */
static void strangers(void) {
    fl_error err;
    fl_shm slot, shm;
    CHECK(fl_shm_create(ROOM, &slot, &err) == FL_OK);
    const int fd = dup(slot.fd);
    CHECK(fl_shm_indexes_attach(fd, &shm, &err) == FL_EARG && !shm.data && fcntl(fd, F_GETFD) < 0);
    fl_shm_close(&slot);
    CHECK(fl_shm_create(4096, &slot, &err) == FL_OK);
    CHECK(fl_shm_indexes_attach(dup(slot.fd), &shm, &err) == FL_EARG && !shm.data);
    fl_shm_close(&slot);
    CHECK(fl_shm_indexes_create(FL_SHM_INDEXES_LEAST - 1, &shm, &err) == FL_EARG && !shm.data);
}

/* A key tells files apart that differ in one bit, in the length of what they have in common, or in nothing
 * but the order of their halves. */
static void keys(void) {
    uint8_t bytes[600] = {0};
    for (size_t size = 0; size < sizeof bytes; size++) {
        const uint64_t key = fl_shm_indexes_key(bytes, size);
        CHECK(key && (size == 0 || key != fl_shm_indexes_key(bytes, size - 1)));
        for (size_t at = 0; at < size; at += 37) {
            bytes[at] ^= 1;
            CHECK(fl_shm_indexes_key(bytes, size) != key);
            bytes[at] ^= 1;
        }
    }
    const uint8_t one[] = "abcdefgh", other[] = "efghabcd";
    CHECK(fl_shm_indexes_key(one, 8) != fl_shm_indexes_key(other, 8));
    CHECK(fl_shm_indexes_key(one, 8) == fl_shm_indexes_key(one, 8));
}

int main(void) {
    many();
    again();
    full();
    threads();
    killed();
    scribbled();
    strangers();
    keys();
    puts("shared indexes: ok");
    return 0;
}
