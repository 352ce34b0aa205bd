/* engine/shm_indexes: entropy indexes (jpeg/entropy_index.h) of files, in memory that processes share: what
 * one of them has made, the others find. A key of a file's bytes stands for the file.
 *
 * NOTE [ shared indexes: nothing is found half-written ]
 * The memory begins with counters; then comes a table of slots, then the entries, one behind another.
 * 1. Who keeps an index claims bytes for an entry, by one addition that never goes beyond the end; writes the
 *    entry; and then puts its place into the first free slot, by one exchange. A process that is killed
 *    before that leaves bytes behind that nobody looks at.
 * 2. An entry is never changed, moved or removed; one of the same key that knows more (fl_jpeg_index_rank)
 *    may take its place in the table. What does not fit is not kept.
 * 3. The table has levels, each twice as large as the one before, and on each level a key has one bucket, a
 *    cache line of slots. A key goes into the first free slot of its buckets, level by level. So a search
 *    ends with the first free slot that it meets. A level's pages are asked for when a bucket of the one
 *    before is full: a table of few entries is small.
 * 4. Any process may have written anything. A place is looked at only within the memory, an entry is copied
 *    before it is checked, and its checksum tells whether it is whole.
 */
#ifndef FL_ENGINE_SHM_INDEXES_H
#define FL_ENGINE_SHM_INDEXES_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "engine/shm.h"

enum {
    FL_SHM_INDEXES_LEAST = 1 << 16, /* bytes of memory */
    FL_SHM_INDEXES_EACH = 72 /* bytes that an entry and its slots take beside the index, at most */
};

/* New memory of at least `bytes`, of which the pages are asked for as it fills. FL_EARG: less than
 * FL_SHM_INDEXES_LEAST; else as fl_shm_create(). */
fl_code fl_shm_indexes_create(size_t bytes, fl_shm *out, fl_error *err);
/* As fl_shm_attach(); takes `fd`. */
fl_code fl_shm_indexes_attach(int fd, fl_shm *out, fl_error *err);

/* A number of a file's bytes, never 0: their size and a CRC32C of each half. Files of which nobody has made
 * the one to have the other's key differ in it, but for one pair of 2^64. */
uint64_t fl_shm_indexes_key(const uint8_t *bytes, size_t size);

/* True if the index of a key is there: *found is a copy in the buffer, valid until that is used again. */
bool fl_shm_indexes_find(const fl_shm *shm, uint64_t key, fl_buffer *into, fl_span *found);

/* Keeps an index, unless there is one that knows as much, and tells whether one is there from now on: not
 * where there is no room, or no memory. One of size 0 says that there is nothing to know. */
bool fl_shm_indexes_keep(const fl_shm *shm, uint64_t key, fl_span index);

/* Entry by entry: slots are numbered from 0 to fl_shm_indexes_slots(). False for a free one. */
uint64_t fl_shm_indexes_slots(const fl_shm *shm);
bool fl_shm_indexes_at(const fl_shm *shm, uint64_t slot, uint64_t *key, fl_buffer *into, fl_span *found);

typedef struct fl_shm_indexes_counts {
    uint64_t indexes; /* kept, of a size other than 0 */
    uint64_t bytes; /* of memory that all of it takes */
    uint64_t found; /* times that one of them was found */
    bool full; /* one did not fit; a smaller one may */
} fl_shm_indexes_counts;

void fl_shm_indexes_count(const fl_shm *shm, fl_shm_indexes_counts *out);

#endif
