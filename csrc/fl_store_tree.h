/* fl_store_tree: is this file an LMDB file that liblmdb can read without leaving it? Owns nothing, keeps nothing. */
#ifndef FL_STORE_TREE_H
#define FL_STORE_TREE_H

#include "fl_record.h"

typedef struct fl_tree {
    uint64_t first_offset; /* of the first sample's value, in bytes from the file's start */
    uint32_t page_size;
} fl_tree;

/* Walks the newest snapshot of file[0..bytes), which the caller has mapped: the metas, the main tree, `samples`, `columns`. FL_OK promises that
 * every page and value those trees reach lies inside the file, that no two of them share a page, that depths and page kinds
 * are what liblmdb asserts, and that the keys of `samples` are exactly first .. first+count-1 in order. Records' own pages are not touched.
 * FL_ESHARD names `name`, the page and what does not hold. */
fl_code fl_tree_check(const uint8_t *file, uint64_t bytes, uint64_t first, uint64_t count, const char *name, fl_tree *out, fl_error *err);

#endif
