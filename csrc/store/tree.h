/* store/tree: where everything lies in an LMDB file, found without trusting it. Owns nothing, keeps nothing.
 *
 * NOTE [ store: nothing is mapped ]
 * Pages are read (pread) into memory of the walk's own, then checked there and used from there. A file that
 * is cut, overwritten or lost while it is walked is an error: no byte is looked at twice in the file, and no
 * page of it is mapped, whose loss would be a signal (SIGBUS).
 */
#ifndef FL_STORE_TREE_H
#define FL_STORE_TREE_H

#include <stdbool.h>

#include "store/record.h"

/* Place of a sample's value in the file. After a walk, 12 bytes a sample stay in memory while the shard is
 * open; else they lie in a table. */
typedef struct fl_store_place {
    uint32_t low, high; /* of its offset in bytes */
    uint32_t size;
} fl_store_place;

static inline uint64_t fl_store_place_offset(fl_store_place place) {
    return (uint64_t)place.high << 32 | place.low;
}

/* True if a value lies inside a file of `bytes` bytes. */
static inline bool fl_store_place_inside(fl_store_place place, uint64_t bytes) {
    const uint64_t offset = fl_store_place_offset(place);
    return offset <= bytes && place.size <= bytes - offset;
}

static inline fl_store_place fl_store_place_at(uint64_t offset, uint32_t size) {
    return (fl_store_place){(uint32_t)offset, (uint32_t)(offset >> 32), size};
}

enum { FL_STORE_COLUMN_NAME = 511, FL_STORE_COLUMNS_MAX = 1 << 14 };

/* Place of a column's chunk. */
typedef struct fl_store_tree_column {
    fl_store_place place;
    uint32_t name_at, name_size; /* of its name in the tree's names, bytes */
} fl_store_tree_column;

/* Content of a shard. Freed by fl_store_tree_free. */
typedef struct fl_store_tree {
    fl_store_place *samples; /* in order, as many as were asked for; NULL: they are in a table */
    fl_store_tree_column *columns;
    uint32_t column_count;
    char *names; /* of the columns, one after another */
    size_t names_size;
} fl_store_tree;

/* Walks the newest snapshot of a file of `bytes` bytes: the metas, the main tree, `samples`, `columns`. FL_OK
 * promises that every page and value those trees reach lies inside the file, that no two of them share a
 * page, that depths and page kinds are what liblmdb asserts, and that the keys of `samples` are exactly first
 * .. first+count-1 in order. Records' own pages are not read. On failure *tree holds nothing. FL_ESHARD names
 * `name`, the page and what does not hold. */
fl_code fl_store_tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t count, const char *name,
                           fl_store_tree *tree, fl_error *err);

/* Checks the columns of a file of `bytes` bytes as someone else names them, and copies them to *tree: the
 * names of given->columns lie in given->names, with at most FL_STORE_COLUMN_NAME bytes each. FL_OK promises
 * that every chunk lies inside the file. given->samples is not looked at, and *tree has none. On failure
 * *tree holds nothing; FL_ESHARD names `name`. */
fl_code fl_store_tree_given(const fl_store_tree *given, uint64_t bytes, const char *name, fl_store_tree *tree,
                            fl_error *err);

void fl_store_tree_free(fl_store_tree *tree);

/* Reads exactly `size` bytes at `offset`. FL_ESHARD where the file ends before, FL_EIO. */
fl_code fl_store_shard_read(int fd, void *into, size_t size, uint64_t offset, const char *name,
                            fl_error *err);

#endif
