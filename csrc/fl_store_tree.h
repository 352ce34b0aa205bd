/* fl_store_tree: is this file an LMDB file that liblmdb can read without leaving it? Owns nothing, keeps nothing. */
#ifndef FL_STORE_TREE_H
#define FL_STORE_TREE_H

#include "fl_record.h"

/* Where a sample's value lies in the file: 12 bytes a sample, which stay in memory while the shard is open. */
typedef struct fl_place {
    uint32_t low, high; /* of its offset in bytes */
    uint32_t size;
} fl_place;

static inline uint64_t fl_place_offset(fl_place place) { return (uint64_t)place.high << 32 | place.low; }

/* Walks the newest snapshot of file[0..bytes), which the caller has mapped: the metas, the main tree, `samples`, `columns`. FL_OK promises that
 * every page and value those trees reach lies inside the file, that no two of them share a page, that depths and page kinds
 * are what liblmdb asserts, and that the keys of `samples` are exactly first .. first+count-1 in order. Records' own pages are not touched.
 * *places: of the count samples in order, the caller's to free; NULL on failure. FL_ESHARD names `name`, the page and what does not hold. */
fl_code fl_tree_check(const uint8_t *file, uint64_t bytes, uint64_t first, uint64_t count, const char *name, fl_place **places,
                      fl_error *err);

#endif
