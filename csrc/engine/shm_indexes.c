#include "engine/shm_indexes.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "common/crc32c.h"
#include "engine/map.h"
#include "jpeg/entropy_index.h"

enum {
    HEADER = 4096, /* bytes before the table */
    SLOTS = 8,     /* of a bucket: a cache line */
    BUCKETS = 128, /* of the first level */
    LEVELS_MOST = 20,
    TABLE_SHARE = 16, /* of all bytes the table has at most one in so many */
    ALIGNMENT = 8,    /* of an entry */
    PLACE_BITS = 40   /* of a slot's word: the entry's place, in ALIGNMENTs; above them a part of its key */
};

static const uint64_t MAGIC = 0x31584449544E4546; /* "FENTIDX1" */
static const fl_buffer_rule RULE = {.least = 4096, .keep = 1 << 20};

typedef _Atomic uint64_t shared_word;

/* The first bytes of the memory. Any process may write any of it. */
typedef struct header {
    uint64_t magic;      /* written once, by who makes the memory */
    shared_word claimed; /* bytes, from the beginning of the memory; grows, by who keeps an index */
    shared_word levels;  /* whose pages are there; grows, by who needs one more */
    shared_word indexes, found; /* counts */
    shared_word full; /* 1: one did not fit */
} header;

/* Its index follows. */
typedef struct entry {
    uint64_t key;
    uint32_t size;
    uint32_t crc; /* of the two above and the index */
} entry;

static header *header_of(const fl_shm *shm) { return shm->data; }

static size_t level_start(uint64_t level) {
    return HEADER + (((size_t)1 << level) - 1) * BUCKETS * SLOTS * sizeof(uint64_t);
}

/* Levels that the table may have; it ends where the one after them would begin. */
static uint64_t levels_most(const fl_shm *shm) {
    uint64_t levels = 1;
    while (levels < LEVELS_MOST && level_start(levels + 1) <= shm->bytes / TABLE_SHARE) levels++;
    return levels;
}

static size_t entries_start(const fl_shm *shm) { return level_start(levels_most(shm)); }

static uint64_t levels_there(const fl_shm *shm) {
    const uint64_t there = atomic_load_explicit(&header_of(shm)->levels, memory_order_acquire),
                   most = levels_most(shm);
    return there < most ? there : most;
}

fl_code fl_shm_indexes_create(size_t bytes, fl_shm *out, fl_error *err) {
    *out = (fl_shm){NULL, 0, -1};
    if (bytes < FL_SHM_INDEXES_LEAST)
        return fl_fail(err, FL_EARG, "entropy indexes in %zu bytes: the least is %d", bytes,
                       FL_SHM_INDEXES_LEAST);
    const fl_code code = fl_shm_create_sparse(bytes, out, err);
    if (code) return code;
    if (!fl_map_touch(out->data, level_start(1))) {
        fl_shm_close(out);
        return fl_fail(err, FL_ENOMEM, "no memory for a table of entropy indexes");
    }
    header *h = header_of(out);
    h->magic = MAGIC;
    atomic_init(&h->claimed, entries_start(out));
    atomic_init(&h->levels, 1);
    return FL_OK;
}

fl_code fl_shm_indexes_attach(int fd, fl_shm *out, fl_error *err) {
    const fl_code code = fl_shm_attach_sparse(fd, out, err);
    if (code) return code;
    if (out->bytes >= FL_SHM_INDEXES_LEAST && header_of(out)->magic == MAGIC) return FL_OK;
    fl_shm_close(out);
    return fl_fail(err, FL_EARG, "file descriptor %d has no entropy indexes", fd);
}

uint64_t fl_shm_indexes_key(const uint8_t *bytes, size_t size) {
    const size_t half = size / 2;
    const uint64_t whole = size;
    const uint32_t begun = fl_crc32c(0, &whole, sizeof whole);
    const uint64_t key =
        (uint64_t)fl_crc32c(begun, bytes, half) << 32 | fl_crc32c(begun, bytes + half, size - half);
    return key ? key : 1;
}

static shared_word *bucket_of(const fl_shm *shm, uint64_t level, uint64_t key) {
    const uint64_t mixed = (key ^ level) * 0x9E3779B97F4A7C15u; /* 2^64 by the golden ratio */
    const uint64_t bucket = mixed >> 32 & (((uint64_t)BUCKETS << level) - 1);
    return (shared_word *)((uint8_t *)shm->data + level_start(level)) + bucket * SLOTS;
}

static uint64_t tag_of(uint64_t key) { return key >> PLACE_BITS; }

/* The head of the entry at a slot's place. False: the place is none. */
static bool head_at(const fl_shm *shm, uint64_t word, entry *head, size_t *at) {
    *at = (size_t)(word & (((uint64_t)1 << PLACE_BITS) - 1)) * ALIGNMENT;
    if (*at < entries_start(shm) || *at > shm->bytes - sizeof *head) return false;
    memcpy(head, (const uint8_t *)shm->data + *at, sizeof *head);
    return head->size <= shm->bytes - sizeof *head - *at;
}

static uint32_t crc_of(const entry *head, const uint8_t *index) {
    return fl_crc32c(fl_crc32c(0, head, offsetof(entry, crc)), index, head->size);
}

static bool copy_entry(const fl_shm *shm, uint64_t word, entry *head, fl_buffer *into, fl_span *found) {
    size_t at;
    if (!head_at(shm, word, head, &at) || !fl_buffer_fit(into, (size_t)head->size + 1, 1, RULE)) return false;
    memcpy(into->bytes, (const uint8_t *)shm->data + at + sizeof *head, head->size);
    *found = (fl_span){into->bytes, head->size};
    return crc_of(head, into->bytes) == head->crc;
}

bool fl_shm_indexes_find(const fl_shm *shm, uint64_t key, fl_buffer *into, fl_span *found) {
    const uint64_t levels = levels_there(shm);
    for (uint64_t level = 0; level < levels; level++) {
        shared_word *slot = bucket_of(shm, level, key);
        for (int i = 0; i < SLOTS; i++) {
            const uint64_t word = atomic_load_explicit(&slot[i], memory_order_acquire);
            entry head;
            if (!word) return false;
            if (word >> PLACE_BITS != tag_of(key) || !copy_entry(shm, word, &head, into, found) ||
                head.key != key)
                continue;
            if (found->size) atomic_fetch_add_explicit(&header_of(shm)->found, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* Bytes for an entry; 0: there is no room. */
static size_t claim(const fl_shm *shm, size_t need) {
    shared_word *claimed = &header_of(shm)->claimed;
    uint64_t at = atomic_load_explicit(claimed, memory_order_relaxed);
    do {
        if (at < entries_start(shm) || at % ALIGNMENT || at > shm->bytes || need > shm->bytes - at) return 0;
    } while (!atomic_compare_exchange_weak_explicit(claimed, &at, at + need, memory_order_relaxed,
                                                    memory_order_relaxed));
    return (size_t)at;
}

/* Asks for the pages of a level, the first that is not there. */
static bool add_level(const fl_shm *shm, uint64_t level) {
    if (level >= levels_most(shm)) return false;
    if (!fl_map_touch((uint8_t *)shm->data + level_start(level), level_start(level + 1) - level_start(level)))
        return false;
    atomic_compare_exchange_strong_explicit(&header_of(shm)->levels, &level, level + 1, memory_order_release,
                                            memory_order_relaxed);
    return true;
}

/* True if a slot's word is of an entry of this key. *as_much: its index knows as much as that. */
static bool is_of(const fl_shm *shm, uint64_t word, uint64_t key, fl_span index, bool *as_much) {
    entry head;
    size_t at;
    if (word >> PLACE_BITS != tag_of(key) || !head_at(shm, word, &head, &at) || head.key != key) return false;
    *as_much = fl_jpeg_index_rank((const uint8_t *)shm->data + at + sizeof head, head.size) >=
               fl_jpeg_index_rank(index.bytes, index.size);
    return true;
}

/* Puts an entry that is whole into the table. *first: its key has had none. False: there is no room in the
 * table, or no memory for it. */
static bool publish(const fl_shm *shm, uint64_t key, size_t at, fl_span index, bool *first) {
    const uint64_t word = tag_of(key) << PLACE_BITS | at / ALIGNMENT;
    for (uint64_t level = 0;; level++) {
        if (level >= levels_there(shm) && !add_level(shm, level)) return false;
        shared_word *slot = bucket_of(shm, level, key);
        for (int i = 0; i < SLOTS; i++) {
            uint64_t seen = 0;
            bool as_much;
            *first = atomic_compare_exchange_strong_explicit(&slot[i], &seen, word, memory_order_acq_rel,
                                                             memory_order_acquire);
            if (*first) return true;
            while (is_of(shm, seen, key, index, &as_much)) {
                if (as_much || atomic_compare_exchange_strong_explicit(
                                   &slot[i], &seen, word, memory_order_acq_rel, memory_order_acquire))
                    return true;
            }
        }
    }
}

/* True if there is an index of this key that knows as much. */
static bool has(const fl_shm *shm, uint64_t key, fl_span index) {
    const uint64_t levels = levels_there(shm);
    for (uint64_t level = 0; level < levels; level++) {
        shared_word *slot = bucket_of(shm, level, key);
        for (int i = 0; i < SLOTS; i++) {
            const uint64_t word = atomic_load_explicit(&slot[i], memory_order_acquire);
            bool as_much;
            if (!word) return false;
            if (is_of(shm, word, key, index, &as_much)) return as_much;
        }
    }
    return false;
}

static bool keep(const fl_shm *shm, uint64_t key, fl_span index) {
    if (index.size > UINT32_MAX) return false;
    if (has(shm, key, index)) return true;
    const size_t need = (sizeof(entry) + index.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT,
                 at = claim(shm, need);
    if (!at) return false;
    uint8_t *out = (uint8_t *)shm->data + at;
    if (!fl_map_touch(out, need)) return false;
    entry head = {.key = key, .size = (uint32_t)index.size};
    head.crc = crc_of(&head, index.bytes);
    memcpy(out, &head, sizeof head);
    if (index.size) memcpy(out + sizeof head, index.bytes, index.size);
    bool first;
    if (!publish(shm, key, at, index, &first)) return false;
    if (index.size && first) atomic_fetch_add_explicit(&header_of(shm)->indexes, 1, memory_order_relaxed);
    return true;
}

bool fl_shm_indexes_keep(const fl_shm *shm, uint64_t key, fl_span index) {
    const bool kept = keep(shm, key, index);
    if (!kept) atomic_store_explicit(&header_of(shm)->full, 1, memory_order_relaxed);
    return kept;
}

uint64_t fl_shm_indexes_slots(const fl_shm *shm) {
    return (level_start(levels_there(shm)) - HEADER) / sizeof(uint64_t);
}

bool fl_shm_indexes_at(const fl_shm *shm, uint64_t slot, uint64_t *key, fl_buffer *into, fl_span *found) {
    if (slot >= fl_shm_indexes_slots(shm)) return false;
    const uint64_t word =
        atomic_load_explicit((shared_word *)((uint8_t *)shm->data + HEADER) + slot, memory_order_acquire);
    entry head;
    if (!word || !copy_entry(shm, word, &head, into, found)) return false;
    *key = head.key;
    return true;
}

void fl_shm_indexes_count(const fl_shm *shm, fl_shm_indexes_counts *out) {
    header *h = header_of(shm);
    const size_t start = entries_start(shm);
    uint64_t claimed = atomic_load_explicit(&h->claimed, memory_order_relaxed);
    if (claimed < start || claimed > shm->bytes) claimed = start; /* somebody's else */
    *out = (fl_shm_indexes_counts){
        .indexes = atomic_load_explicit(&h->indexes, memory_order_relaxed),
        .bytes = level_start(levels_there(shm)) + claimed - start,
        .found = atomic_load_explicit(&h->found, memory_order_relaxed),
        .full = atomic_load_explicit(&h->full, memory_order_relaxed) != 0,
    };
}
