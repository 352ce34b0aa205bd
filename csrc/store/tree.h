/* store/tree: where everything lies in an LMDB file, found without trusting it. Owns nothing, keeps nothing.
 *
 * NOTE [ store: nothing is mapped ]
 * Pages are read (pread) into memory of the walk's own, then checked there and used from there. A file that is cut, overwritten or lost while it
 * is walked is an error: no byte is looked at twice in the file, and no page of it is mapped, whose loss would be a signal (SIGBUS).
 */
#ifndef FL_STORE_TREE_H
#define FL_STORE_TREE_H

#include "store/record.h"

/* Place of a sample's value in the file: 12 bytes a sample, which stay in memory while the shard is open. */
typedef struct fl_store_place {
    uint32_t low, high; /* of its offset in bytes */
    uint32_t size;
} fl_store_place;

static inline uint64_t fl_store_place_offset(fl_store_place place) { return (uint64_t)place.high << 32 | place.low; }

static inline fl_store_place fl_store_place_at(uint64_t offset, uint32_t size) {
    return (fl_store_place){(uint32_t)offset, (uint32_t)(offset >> 32), size};
}

enum { FL_STORE_COLUMN_NAME = 511, FL_STORE_COLUMNS_MAX = 1 << 14 };

/* Place of a column's chunk. */
typedef struct fl_store_tree_column {
    fl_store_place place;
    uint16_t name_size;
    char name[FL_STORE_COLUMN_NAME]; /* not ended by a zero */
} fl_store_tree_column;

/* Content of a shard. Freed by fl_store_tree_free. */
typedef struct fl_store_tree {
    fl_store_place *samples; /* in order, as many as were asked for */
    fl_store_tree_column *columns;
    uint32_t column_count;
} fl_store_tree;

/* Walks the newest snapshot of a file of `bytes` bytes: the metas, the main tree, `samples`, `columns`. FL_OK promises that every page
 * and value those trees reach lies inside the file, that no two of them share a page, that depths and page kinds are what liblmdb
 * asserts, and that the keys of `samples` are exactly first .. first+count-1 in order. Records' own pages are not read. On failure *tree holds
 * nothing. FL_ESHARD names `name`, the page and what does not hold. */
fl_code fl_store_tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t count, const char *name, fl_store_tree *tree, fl_error *err);

/* Checks the content of a file of `bytes` bytes as someone else describes it, and copies it to *tree: given->samples has `count` places,
 * of any content, and the names of given->columns have at most FL_STORE_COLUMN_NAME bytes. FL_OK promises that every value lies inside the
 * file, and that the samples have no more bytes than it: whatever the places say, no more than the file is read. Their checksums say
 * whether they are the samples', and so nothing is lost if two overlap. On failure *tree holds nothing; FL_ESHARD names `name`. */
fl_code fl_store_tree_given(const fl_store_tree *given, uint64_t bytes, uint64_t count, const char *name, fl_store_tree *tree,
                            fl_error *err);

void fl_store_tree_free(fl_store_tree *tree);

/* Reads exactly `size` bytes at `offset`. FL_ESHARD where the file ends before, FL_EIO. */
fl_code fl_store_shard_read(int fd, void *into, size_t size, uint64_t offset, const char *name, fl_error *err);

#endif
