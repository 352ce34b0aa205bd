/* The on-disk format is LMDB's, data version 1 (liblmdb 0.9, mdb.c: MDB_page, MDB_node, MDB_meta), 64 bit,
 * little-endian. */
#define _GNU_SOURCE
#include "store/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
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
    TREE_SIZE =
        48, /* u32 pad, u16 flags, u16 depth, u64 branch, leaf and overflow pages, u64 entries, u64 root */
    META_MAGIC_AT = 16,
    META_PAGE_SIZE_AT = 40,
    META_MAIN_AT = 88,
    META_LAST_PAGE_AT = 136,
    META_TXN_AT = 144,
    META_END = 152,
    DEPTH_MAX = 32, /* liblmdb's cursor stack */
    KEY_MAX = FL_STORE_COLUMN_NAME
};
static const uint32_t META_MAGIC = 0xBEEFC0DE;
static const uint64_t NO_PAGE = UINT64_MAX;

typedef struct tree_info {
    uint64_t entries, root;
    uint32_t flags, depth;
} tree_info;

/* A value: where it lies, and its bytes where they are in the leaf (NULL: on pages of their own). */
typedef struct value {
    uint64_t offset;
    uint32_t size;
    const uint8_t *bytes;
} value;

typedef struct walk walk;
typedef fl_code (*visit_leaf)(walk *w, uint64_t page, fl_span key, value data);

struct walk {
    int fd;
    uint64_t pages;
    uint32_t page_size;
    /* the page that is being walked at each depth, read from the file; NULL: none was yet */
    uint8_t *page[DEPTH_MAX + 1];
    uint8_t *seen; /* a bit for each page that some tree has claimed */
    const char *name;
    fl_error *err;

    /* of the tree being walked */
    const char *tree;
    tree_info info;
    bool leaf_trees; /* the main tree holds trees, the others hold values */
    visit_leaf visit;
    uint64_t entries;
    /* the last key seen; the separator that the next key must not be below, in a page above the leaf */
    fl_span last, bound;
    uint8_t last_key[KEY_MAX]; /* what `last` points to: leaves are read one over the other */

    /* what the visits have found */
    tree_info samples, columns;
    bool has_samples, has_columns;
    uint64_t first, count;
    fl_store_tree *found; /* samples[count] */
    size_t columns_room, names_room;
};

#define TREE_FAIL(w, format, ...)                                                                            \
    fl_fail((w)->err, FL_ESHARD,                                                                             \
            "shard %.80s is damaged (" format                                                                \
            "): copy it again or pack again; `fastload verify` checks the rest",                             \
            (w)->name, __VA_ARGS__)

fl_code fl_store_shard_read(int fd, void *into, size_t size, uint64_t offset, const char *name,
                            fl_error *err) {
    for (size_t done = 0; done < size;) {
        ssize_t count = pread(fd, (uint8_t *)into + done, size - done, (off_t)(offset + done));
        if (count == 0)
            return fl_fail(err, FL_ESHARD,
                           "shard %.80s ends within it: the file was cut after it was opened; copy it again",
                           name);
        if (count < 0 && errno != EINTR)
            return fl_fail_sys(err, FL_EIO, errno, "cannot read shard %.80s", name);
        if (count > 0) done += (size_t)count;
    }
    return FL_OK;
}

static int compare_keys(fl_span a, fl_span b) {
    int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* Claims pages first .. first+n-1 for one owner: they must exist and belong to no other. */
static fl_code claim(walk *w, uint64_t first, uint64_t n) {
    if (first < 2 || first >= w->pages || n > w->pages - first) {
        return TREE_FAIL(w, "%s: pages %" PRIu64 "+%" PRIu64 " lie outside its %" PRIu64, w->tree, first, n,
                         w->pages);
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
    if (page < w->pages)
        (void)posix_fadvise(w->fd, (off_t)(page * w->page_size), w->page_size, POSIX_FADV_WILLNEED);
}

/* Reads a page to the place of its depth. */
static fl_code read_page(walk *w, uint64_t page, uint32_t depth) {
    if (!w->page[depth]) w->page[depth] = malloc(w->page_size);
    if (!w->page[depth])
        return fl_fail(w->err, FL_ENOMEM, "no memory for a page of shard %.80s (%" PRIu32 " bytes)", w->name,
                       w->page_size);
    return fl_store_shard_read(w->fd, w->page[depth], w->page_size, page * w->page_size, w->name, w->err);
}

static tree_info read_tree(const uint8_t *at) {
    return (tree_info){.flags = fl_bytes_le16(at + 4),
                       .depth = fl_bytes_le16(at + 6),
                       .entries = fl_bytes_le64(at + 32),
                       .root = fl_bytes_le64(at + 40)};
}

/* The nth node of a page that was read to `at` and whose header holds: its key, and where its data begin. */
static fl_code read_node(walk *w, uint64_t page, const uint8_t *at, uint32_t n, const uint8_t **node,
                         fl_span *key) {
    uint32_t offset = fl_bytes_le16(at + PAGE_HEADER + 2 * n), upper = fl_bytes_le16(at + 14);
    if (offset % 2 || offset < upper || offset + NODE_HEADER > w->page_size) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", node %" PRIu32 " begins at %" PRIu32, w->tree, page, n,
                         offset);
    }
    uint32_t key_size = fl_bytes_le16(at + offset + 6);
    if (key_size > KEY_MAX || offset + NODE_HEADER + key_size > w->page_size) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", node %" PRIu32 " has a key of %" PRIu32 " bytes", w->tree,
                         page, n, key_size);
    }
    *node = at + offset;
    *key = (fl_span){at + offset + NODE_HEADER, key_size};
    return FL_OK;
}

static fl_code walk_leaf(walk *w, uint64_t page, const uint8_t *read, uint32_t n) {
    const uint8_t *node;
    fl_span key;
    fl_code code = read_node(w, page, read, n, &node, &key);
    if (code) return code;
    if (key.size == 0 || (w->last.bytes && compare_keys(w->last, key) >= 0) ||
        (w->bound.bytes && compare_keys(w->bound, key) > 0)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 ", key %" PRIu32 " is out of order", w->tree, page, n);
    }
    memcpy(w->last_key, key.bytes, key.size);
    w->last = (fl_span){w->last_key, key.size};
    w->bound.bytes = NULL;
    w->entries++;

    const uint8_t *after = key.bytes + key.size;
    uint32_t flags = fl_bytes_le16(node + 4), size = fl_bytes_le32(node),
             room = (uint32_t)(read + w->page_size - after);
    uint32_t kind = w->leaf_trees ? NODE_TREE : flags & NODE_BIG;
    if (flags != kind || (flags & NODE_BIG ? sizeof(uint64_t) : size) > room) {
        return TREE_FAIL(w,
                         "%s: page %" PRIu64 ", value %" PRIu32 " of kind %" PRIu32 " has %" PRIu32 " bytes",
                         w->tree, page, n, flags, size);
    }
    if (!(flags & NODE_BIG))
        return w->visit(w, page, key, (value){page * w->page_size + (uint64_t)(after - read), size, after});
    uint64_t at = fl_bytes_le64(after);
    if ((code = claim(w, at, (PAGE_HEADER - 1 + (uint64_t)size) / w->page_size + 1))) return code;
    return w->visit(w, page, key, (value){at * w->page_size + PAGE_HEADER, size, NULL});
}

static fl_code walk_page(walk *w, uint64_t page, uint32_t depth) {
    fl_code code = claim(w, page, 1);
    if (!code) code = read_page(w, page, depth);
    if (code) return code;
    const uint8_t *at = w->page[depth];
    uint32_t lower = fl_bytes_le16(at + 12), upper = fl_bytes_le16(at + 14);
    bool leaf = depth == w->info.depth;
    uint32_t nodes = lower < PAGE_HEADER ? 0 : (lower - PAGE_HEADER) / 2;
    if (fl_bytes_le64(at) != page || fl_bytes_le16(at + 10) != (leaf ? PAGE_LEAF : PAGE_BRANCH)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " is not the %s it should be", w->tree, page,
                         leaf ? "leaf" : "branch");
    }
    if (lower % 2 || lower > upper || upper > w->page_size || nodes < (leaf ? 1 : 2)) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " has bounds %" PRIu32 " and %" PRIu32, w->tree, page, lower,
                         upper);
    }
    if (leaf) {
        for (uint32_t n = 0; n < nodes && !code; n++) code = walk_leaf(w, page, at, n);
        return code;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t n = 0; n < nodes; n++) {
            const uint8_t *node;
            fl_span key;
            if ((code = read_node(w, page, at, n, &node, &key))) return code;
            uint64_t child = fl_bytes_le32(node) | (uint64_t)fl_bytes_le16(node + 4) << 32;
            if (pass == 0) {
                willneed(w, child);
                continue;
            }
            /* liblmdb never looks at the first key of a branch page */
            if (n > 0 && (key.size == 0 || compare_keys(w->last, key) >= 0)) {
                return TREE_FAIL(w, "%s: page %" PRIu64 ", separator %" PRIu32 " is out of order", w->tree,
                                 page, n);
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
        return TREE_FAIL(w, "%s: %" PRIu64 " entries where %" PRIu64 " are promised", tree, w->entries,
                         info.entries);
    }
    return FL_OK;
}

static fl_code visit_main(walk *w, uint64_t page, fl_span key, value data) {
    if (data.size != TREE_SIZE)
        return TREE_FAIL(w, "%s: page %" PRIu64 " describes a tree in %" PRIu32 " bytes", w->tree, page,
                         data.size);
    if (key.size == 7 && memcmp(key.bytes, "samples", 7) == 0) {
        w->samples = read_tree(data.bytes);
        w->has_samples = true;
    } else if (key.size == 7 && memcmp(key.bytes, "columns", 7) == 0) {
        w->columns = read_tree(data.bytes);
        w->has_columns = true;
    }
    return FL_OK;
}

static fl_code visit_sample(walk *w, uint64_t page, fl_span key, value data) {
    uint64_t index = 0;
    for (size_t i = 0; i < key.size && i < 8; i++) index = index << 8 | key.bytes[i];
    if (key.size != 8 || index != w->first + w->entries - 1 || w->entries > w->count) {
        return TREE_FAIL(w, "%s: page %" PRIu64 " holds sample %" PRIu64 " in the place of %" PRIu64, w->tree,
                         page, index, w->first + w->entries - 1);
    }
    w->found->samples[w->entries - 1] = fl_store_place_at(data.offset, data.size);
    return FL_OK;
}

static fl_code visit_column(walk *w, uint64_t page, fl_span key, value data) {
    fl_store_tree *found = w->found;
    if (found->column_count == FL_STORE_COLUMNS_MAX)
        return TREE_FAIL(w, "%s: page %" PRIu64 " has more than %d columns", w->tree, page,
                         FL_STORE_COLUMNS_MAX);
    if (found->column_count == w->columns_room) {
        const size_t room = w->columns_room ? 2 * w->columns_room : 8;
        fl_store_tree_column *grown = realloc(found->columns, room * sizeof *grown);
        if (!grown)
            return fl_fail(w->err, FL_ENOMEM, "no memory for %zu columns of shard %.80s", room, w->name);
        found->columns = grown;
        w->columns_room = room;
    }
    if (w->names_room - found->names_size < key.size) {
        const size_t room =
            2 * w->names_room +
            KEY_MAX; /* at most FL_STORE_COLUMNS_MAX names of KEY_MAX bytes, twice: no overflow */
        char *grown = realloc(found->names, room);
        if (!grown)
            return fl_fail(w->err, FL_ENOMEM, "no memory for the columns' names of shard %.80s (%zu bytes)",
                           w->name, room);
        found->names = grown;
        w->names_room = room;
    }
    found->columns[found->column_count++] = (fl_store_tree_column){
        fl_store_place_at(data.offset, data.size), (uint32_t)found->names_size, (uint32_t)key.size};
    memcpy(found->names + found->names_size, key.bytes, key.size);
    found->names_size += key.size;
    return FL_OK;
}

/* The main tree of the meta that liblmdb will choose. It reads both and refuses the file when either is no
 * meta, and so does this. */
static fl_code newest_meta(walk *w, uint64_t bytes, tree_info *tree) {
    uint8_t meta[META_END];
    uint64_t newest = 0, last_page = 0;
    w->tree = "meta";
    for (uint64_t i = 0; i < 2; i++) {
        fl_code code = bytes < META_END
                           ? FL_OK
                           : fl_store_shard_read(w->fd, meta, sizeof meta, i * w->page_size, w->name, w->err);
        if (code) return code;
        const uint32_t size = bytes < META_END ? 0 : fl_bytes_le32(meta + META_PAGE_SIZE_AT);
        if (size < PAGE_MIN || size > PAGE_MAX || (size & (size - 1)) || bytes < 2 * (uint64_t)size)
            return TREE_FAIL(w, "%" PRIu64 " bytes with pages of %" PRIu32 " are no LMDB file", bytes, size);
        if (!(fl_bytes_le16(meta + 10) & PAGE_META) || fl_bytes_le32(meta + META_MAGIC_AT) != META_MAGIC ||
            fl_bytes_le32(meta + META_MAGIC_AT + 4) != 1 || (i && size != w->page_size))
            return TREE_FAIL(w, "its page %" PRIu64 " is not the head of an LMDB 0.9 file", i);
        w->page_size = size;
        if (i && fl_bytes_le64(meta + META_TXN_AT) <= newest) break;
        newest = fl_bytes_le64(meta + META_TXN_AT);
        last_page = fl_bytes_le64(meta + META_LAST_PAGE_AT);
        *tree = read_tree(meta + META_MAIN_AT);
    }
    w->pages = last_page;
    if (w->pages >= bytes / w->page_size || ++w->pages * w->page_size != bytes)
        return TREE_FAIL(w, "%" PRIu64 " pages in a file of %" PRIu64 " bytes", w->pages, bytes);
    return FL_OK;
}

/* The three trees, w's tables being there. */
static fl_code walk_trees(walk *w, tree_info top) {
    fl_code code = walk_tree(w, "main", top, true, visit_main);
    if (!code && !(w->has_samples && w->has_columns))
        code = TREE_FAIL(w, "it has no %s", w->has_samples ? "columns" : "samples");
    if (!code) code = walk_tree(w, "samples", w->samples, false, visit_sample);
    if (!code && w->entries != w->count)
        code = TREE_FAIL(w, "it holds %" PRIu64 " samples, the manifest says %" PRIu64, w->entries, w->count);
    return code ? code : walk_tree(w, "columns", w->columns, false, visit_column);
}

void fl_store_tree_free(fl_store_tree *tree) {
    free(tree->samples);
    free(tree->columns);
    free(tree->names);
    *tree = (fl_store_tree){0};
}

/* Gives back the room that the columns grew for: a dataset may have 100,000 shards. */
static void fit_columns(fl_store_tree *tree) {
    fl_store_tree_column *columns = realloc(tree->columns, (tree->column_count + 1) * sizeof *columns);
    if (columns) tree->columns = columns;
    char *names = realloc(tree->names, tree->names_size + 1);
    if (names) tree->names = names;
}

fl_code fl_store_tree_read(int fd, uint64_t bytes, uint64_t first, uint64_t count, const char *name,
                           fl_store_tree *tree, fl_error *err) {
    *tree = (fl_store_tree){0};
    walk w = {.fd = fd, .name = name, .err = err, .first = first, .count = count, .found = tree};
    tree_info top = {0};
    fl_code code = newest_meta(&w, bytes, &top);
    if (code) return code;
    if (count > bytes / (NODE_HEADER +
                         sizeof(uint64_t))) /* no room for as many keys: and none is made for their places */
        return TREE_FAIL(&w, "%" PRIu64 " bytes do not hold the %" PRIu64 " samples that the manifest says",
                         bytes, count);
    w.seen = calloc(w.pages / 8 + 1, 1);
    tree->samples = malloc(count * sizeof *tree->samples);
    if (w.seen && tree->samples) code = walk_trees(&w, top);
    else
        code = fl_fail(err, FL_ENOMEM, "no memory for where the %" PRIu64 " samples of shard %.80s are",
                       count, name);
    free(w.seen);
    for (int depth = 0; depth <= DEPTH_MAX; depth++) free(w.page[depth]);
    if (code) fl_store_tree_free(tree);
    else fit_columns(tree);
    return code;
}

fl_code fl_store_tree_given(const fl_store_tree *given, uint64_t bytes, const char *name, fl_store_tree *tree,
                            fl_error *err) {
    *tree = (fl_store_tree){0};
    for (uint32_t i = 0; i < given->column_count; i++) {
        const fl_store_tree_column *column = &given->columns[i];
        if (column->name_size > FL_STORE_COLUMN_NAME || column->name_at > given->names_size ||
            column->name_size > given->names_size - column->name_at ||
            !fl_store_place_inside(column->place, bytes))
            return fl_fail(err, FL_ESHARD,
                           "the place given for column %" PRIu32 " of shard %.80s is not in its %" PRIu64
                           " bytes",
                           i, name, bytes);
    }
    if (given->column_count > FL_STORE_COLUMNS_MAX)
        return fl_fail(err, FL_ESHARD, "shard %.80s cannot have %" PRIu32 " columns", name,
                       given->column_count);
    const size_t columns = given->column_count * sizeof *tree->columns;
    tree->columns = malloc(columns + 1);
    tree->names = malloc(given->names_size + 1);
    if (!tree->columns || !tree->names) {
        fl_store_tree_free(tree);
        return fl_fail(err, FL_ENOMEM, "no memory for the %" PRIu32 " columns of shard %.80s",
                       given->column_count, name);
    }
    if (columns) memcpy(tree->columns, given->columns, columns);
    if (given->names_size) memcpy(tree->names, given->names, given->names_size);
    tree->column_count = given->column_count;
    tree->names_size = given->names_size;
    return FL_OK;
}
