/* The on-disk format is LMDB's, data version 1 (liblmdb 0.9, mdb.c: MDB_page, MDB_node, MDB_meta), 64 bit, little-endian. */
#define _GNU_SOURCE
#include "fl_store_tree.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(size_t) == 8, "a shard's pages are those of a 64-bit LMDB");

enum {
    PAGE_HEADER = 16, /* u64 page number, u16 pad, u16 flags, u16 lower, u16 upper; then u16 node offsets */
    PAGE_BRANCH = 1,
    PAGE_LEAF = 2,
    PAGE_META = 8,
    PAGE_MIN = 512,
    PAGE_MAX = 32768,
    NODE_HEADER = 8, /* u16 low, u16 high, u16 flags, u16 key size; then key, data */
    NODE_BIG = 1, /* the data are a page number: the value lies on pages of its own */
    NODE_TREE = 2, /* the data are a tree's description */
    TREE_SIZE = 48, /* u32 pad, u16 flags, u16 depth, u64 branch, leaf and overflow pages, u64 entries, u64 root */
    META_MAGIC_AT = 16,
    META_PAGE_SIZE_AT = 40,
    META_MAIN_AT = 88,
    META_LAST_PAGE_AT = 136,
    META_TXN_AT = 144,
    META_END = 152,
    DEPTH_MAX = 32, /* liblmdb's cursor stack */
    KEY_MAX = 511
};
static const uint32_t META_MAGIC = 0xBEEFC0DE;
static const uint64_t NO_PAGE = UINT64_MAX;

typedef struct tree_info {
    uint64_t entries, root;
    uint32_t flags, depth;
} tree_info;

typedef struct walk walk;
typedef fl_code (*visit_leaf)(walk *w, uint64_t page, fl_span key, fl_span data);

struct walk {
    const uint8_t *file;
    uint64_t pages;
    uint32_t page_size;
    size_t os_page;
    uint8_t *seen; /* a bit for each page that some tree has claimed */
    const char *name;
    fl_error *err;

    /* of the tree being walked */
    const char *tree;
    tree_info info;
    bool leaf_trees; /* the main tree holds trees, the others hold values */
    visit_leaf visit;
    uint64_t entries;
    fl_span last, bound; /* the last key seen; the separator that the next key must not be below */

    /* what the visits have found */
    tree_info samples, columns;
    bool has_samples, has_columns;
    uint64_t first, count;
    fl_place *places; /* [count] */
};

static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static uint32_t get32(const uint8_t *at) { return get16(at) | (uint32_t)get16(at + 2) << 16; }
static uint64_t get64(const uint8_t *at) { return get32(at) | (uint64_t)get32(at + 4) << 32; }

#define TREE_FAIL(w, format, ...)                                                                                                          \
    fl_fail((w)->err, FL_ESHARD, "shard %.80s is damaged (" format "): copy it again or pack again; `fastload verify` checks the rest",    \
            (w)->name, __VA_ARGS__)

static int compare_keys(fl_span a, fl_span b) {
    int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* Claims pages first .. first+n-1 for one owner: they must exist and belong to no other. */
static fl_code claim(walk *w, uint64_t first, uint64_t n) {
    if (first < 2 || first >= w->pages || n > w->pages - first) {
        return TREE_FAIL(w, "%s: pages %" PRIu64 "+%" PRIu64 " lie outside its %" PRIu64, w->tree, first, n, w->pages);
    }
    for (uint64_t page = first; page < first + n; page++) {
        uint8_t bit = (uint8_t)(1 << page % 8);
        if (w->seen[page / 8] & bit) return TREE_FAIL(w, "%s: page %" PRIu64 " is used twice", w->tree, page);
        w->seen[page / 8] |= bit;
    }
    return FL_OK;
}

/* Asks for a branch's children all at once, so that a cold walk does not wait for each in turn. A hint. */
static void willneed(const walk *w, uint64_t page) {
    if (page >= w->pages) return;
    uintptr_t start = (uintptr_t)(w->file + page * w->page_size), aligned = start & ~(w->os_page - 1);
    (void)madvise((void *)aligned, start - aligned + w->page_size, MADV_WILLNEED);
}

static tree_info read_tree(const uint8_t *at) {
    return (tree_info){.flags = get16(at + 4), .depth = get16(at + 6), .entries = get64(at + 32), .root = get64(at + 40)};
}

/* The nth node of a page whose header holds: its key, and where its data begin. */
static fl_code read_node(walk *w, uint64_t page, uint32_t n, const uint8_t **node, fl_span *key) {
    const uint8_t *at = w->file + page * w->page_size;
    uint32_t offset = get16(at + PAGE_HEADER + 2 * n), upper = get16(at + 14);
    if (offset % 2 || offset < upper || offset + NODE_HEADER > w->page_size) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", node %" PRIu32 " begins at %" PRIu32, w->tree, page, n, offset);
    }
    uint32_t key_size = get16(at + offset + 6);
    if (key_size > KEY_MAX || offset + NODE_HEADER + key_size > w->page_size) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", node %" PRIu32 " has a key of %" PRIu32 " bytes", w->tree, page, n, key_size);
    }
    *node = at + offset;
    *key = (fl_span){at + offset + NODE_HEADER, key_size};
    return FL_OK;
}

static fl_code walk_leaf(walk *w, uint64_t page, uint32_t n) {
    const uint8_t *node;
    fl_span key;
    fl_code code = read_node(w, page, n, &node, &key);
    if (code) return code;
    if (key.size == 0 || (w->last.bytes && compare_keys(w->last, key) >= 0) || (w->bound.bytes && compare_keys(w->bound, key) > 0)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", key %" PRIu32 " is out of order", w->tree, page, n);
    }
    w->last = key;
    w->bound.bytes = NULL;
    w->entries++;

    uint32_t flags = get16(node + 4);
    uint64_t size = get32(node), room = (uint64_t)(w->file + (page + 1) * w->page_size - (key.bytes + key.size));
    uint32_t kind = w->leaf_trees ? NODE_TREE : flags & NODE_BIG;
    if (flags != kind || (flags & NODE_BIG ? sizeof(uint64_t) : size) > room) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", value %" PRIu32 " of kind %" PRIu32 " has %" PRIu64 " bytes", w->tree, page, n, flags,
                         size);
    }
    fl_span data = {key.bytes + key.size, size};
    if (flags & NODE_BIG) {
        uint64_t at = get64(data.bytes);
        if ((code = claim(w, at, (PAGE_HEADER - 1 + size) / w->page_size + 1))) return code;
        data.bytes = w->file + at * w->page_size + PAGE_HEADER;
    }
    return w->visit(w, page, key, data);
}

static fl_code walk_page(walk *w, uint64_t page, uint32_t depth) {
    fl_code code = claim(w, page, 1);
    if (code) return code;
    const uint8_t *at = w->file + page * w->page_size;
    uint32_t lower = get16(at + 12), upper = get16(at + 14);
    bool leaf = depth == w->info.depth;
    uint32_t nodes = lower < PAGE_HEADER ? 0 : (lower - PAGE_HEADER) / 2;
    if (get64(at) != page || get16(at + 10) != (leaf ? PAGE_LEAF : PAGE_BRANCH)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " is not the %s it should be", w->tree, page, leaf ? "leaf" : "branch");
    }
    if (lower % 2 || lower > upper || upper > w->page_size || nodes < (leaf ? 1 : 2)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " has bounds %" PRIu32 " and %" PRIu32, w->tree, page, lower, upper);
    }
    if (leaf) {
        for (uint32_t n = 0; n < nodes && !code; n++) code = walk_leaf(w, page, n);
        return code;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t n = 0; n < nodes; n++) {
            const uint8_t *node;
            fl_span key;
            if ((code = read_node(w, page, n, &node, &key))) return code;
            uint64_t child = get32(node) | (uint64_t)get16(node + 4) << 32;
            if (pass == 0) {
                willneed(w, child);
                continue;
            }
            /* liblmdb never looks at the first key of a branch page */
            if (n > 0 && (key.size == 0 || compare_keys(w->last, key) >= 0)) {
                return TREE_FAIL(w, "%s: page %" PRIu64 ", separator %" PRIu32 " is out of order", w->tree, page, n);
            }
            if (n > 0) w->bound = key;
            if ((code = walk_page(w, child, depth + 1))) return code;
        }
    }
    return FL_OK;
}

static fl_code walk_tree(walk *w, const char *tree, tree_info info, bool leaf_trees, visit_leaf visit) {
    w->tree = tree;
    w->info = info;
    w->leaf_trees = leaf_trees;
    w->visit = visit;
    w->entries = 0;
    w->last = w->bound = (fl_span){NULL, 0};
    if (info.flags || info.depth > DEPTH_MAX || (info.root == NO_PAGE) != (info.depth == 0)) {
        return TREE_FAIL(w, "%s: flags %" PRIu32 ", depth %" PRIu32, tree, info.flags, info.depth);
    }
    fl_code code = info.root == NO_PAGE ? FL_OK : walk_page(w, info.root, 1);
    if (code) return code;
    if (w->entries != info.entries) {
        return TREE_FAIL(w, "%s: %" PRIu64 " entries where %" PRIu64 " are promised", tree, w->entries, info.entries);
    }
    return FL_OK;
}

static fl_code visit_main(walk *w, uint64_t page, fl_span key, fl_span data) {
    if (data.size != TREE_SIZE) return TREE_FAIL(w, "%s: page %" PRIu64 " describes a tree in %zu bytes", w->tree, page, data.size);
    if (key.size == 7 && memcmp(key.bytes, "samples", 7) == 0) {
        w->samples = read_tree(data.bytes);
        w->has_samples = true;
    } else if (key.size == 7 && memcmp(key.bytes, "columns", 7) == 0) {
        w->columns = read_tree(data.bytes);
        w->has_columns = true;
    }
    return FL_OK;
}

static fl_code visit_sample(walk *w, uint64_t page, fl_span key, fl_span data) {
    uint64_t index = 0;
    for (size_t i = 0; i < key.size && i < 8; i++) index = index << 8 | key.bytes[i];
    if (key.size != 8 || index != w->first + w->entries - 1 || w->entries > w->count) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " holds sample %" PRIu64 " in the place of %" PRIu64, w->tree, page, index,
                         w->first + w->entries - 1);
    }
    uint64_t offset = (uint64_t)(data.bytes - w->file);
    w->places[w->entries - 1] = (fl_place){(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)data.size};
    return FL_OK;
}

static fl_code visit_column(walk *w, uint64_t page, fl_span key, fl_span data) {
    (void)w, (void)page, (void)key, (void)data;
    return FL_OK;
}

/* The meta that liblmdb will choose. It reads both and refuses the file when either is no meta, and so does this. */
static fl_code newest_meta(walk *w, uint64_t bytes, const uint8_t **meta) {
    w->tree = "meta";
    w->page_size = bytes < META_END ? 0 : get32(w->file + META_PAGE_SIZE_AT);
    if (w->page_size < PAGE_MIN || w->page_size > PAGE_MAX || (w->page_size & (w->page_size - 1)) || bytes < 2 * (uint64_t)w->page_size) {
        return TREE_FAIL(w, "%" PRIu64 " bytes with pages of %" PRIu32 " are no LMDB file", bytes, w->page_size);
    }
    for (uint64_t i = 0; i < 2; i++) {
        const uint8_t *at = w->file + i * w->page_size;
        if (!(get16(at + 10) & PAGE_META) || get32(at + META_MAGIC_AT) != META_MAGIC || get32(at + META_MAGIC_AT + 4) != 1 ||
            get32(at + META_PAGE_SIZE_AT) != w->page_size) {
            return TREE_FAIL(w, "its page %" PRIu64 " is not the head of an LMDB 0.9 file", i);
        }
        if (i == 0 || get64(at + META_TXN_AT) > get64(*meta + META_TXN_AT)) *meta = at;
    }
    w->pages = get64(*meta + META_LAST_PAGE_AT);
    if (w->pages >= bytes / w->page_size || ++w->pages * w->page_size != bytes) {
        return TREE_FAIL(w, "%" PRIu64 " pages in a file of %" PRIu64 " bytes", w->pages, bytes);
    }
    return FL_OK;
}

/* The three trees, w's tables being there. */
static fl_code walk_trees(walk *w, const uint8_t *meta) {
    fl_code code = walk_tree(w, "main", read_tree(meta + META_MAIN_AT), true, visit_main);
    if (!code && !(w->has_samples && w->has_columns)) code = TREE_FAIL(w, "it has no %s", w->has_samples ? "columns" : "samples");
    if (!code) code = walk_tree(w, "samples", w->samples, false, visit_sample);
    if (!code && w->entries != w->count)
        code = TREE_FAIL(w, "it holds %" PRIu64 " samples, the manifest says %" PRIu64, w->entries, w->count);
    return code ? code : walk_tree(w, "columns", w->columns, false, visit_column);
}

fl_code fl_tree_check(const uint8_t *file, uint64_t bytes, uint64_t first, uint64_t count, const char *name, fl_place **places,
                      fl_error *err) {
    *places = NULL;
    walk w = {.file = file, .name = name, .err = err, .first = first, .count = count, .os_page = (size_t)sysconf(_SC_PAGESIZE)};
    const uint8_t *meta = file;
    fl_code code = newest_meta(&w, bytes, &meta);
    if (code) return code;
    if (count > bytes / (NODE_HEADER + sizeof(uint64_t))) /* no room for as many keys: and none is made for their places */
        return TREE_FAIL(&w, "%" PRIu64 " bytes do not hold the %" PRIu64 " samples that the manifest says", bytes, count);
    w.seen = calloc(w.pages / 8 + 1, 1);
    w.places = malloc(count * sizeof *w.places);
    if (w.seen && w.places) code = walk_trees(&w, meta);
    else code = fl_fail(err, FL_ENOMEM, "no memory for where the %" PRIu64 " samples of shard %.80s are", count, name);
    free(w.seen);
    if (code) free(w.places);
    else *places = w.places;
    return code;
}
