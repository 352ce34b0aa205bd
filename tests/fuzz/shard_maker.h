/* LMDB files made page by page (data version 1, 64 bit), of any page size and depth, and mutations that know
 * their fields. */
#ifndef SHARD_MAKER_H
#define SHARD_MAKER_H

#include "common/crc32c.h"
#include "store/record.h"
#include "fuzz.h"

enum { SHARD_SAMPLES_MOST = 260, SHARD_PAGES_MOST = 1024, SHARD_ROOM = 1 << 20 };

typedef struct made_shard {
    uint8_t *bytes; /* SHARD_ROOM */
    uint32_t page, pages;
    uint64_t first;
    uint32_t samples;
    uint32_t sizes[SHARD_SAMPLES_MOST];
    uint32_t sums[SHARD_SAMPLES_MOST]; /* CRC32C */
    uint64_t places[SHARD_SAMPLES_MOST];
} made_shard;

/* A tree under construction: its level's pages with their first keys. */
typedef struct level {
    uint32_t pages[SHARD_PAGES_MOST], count;
    uint8_t keys[SHARD_PAGES_MOST][8];
} level;

static void put16(uint8_t *at, uint32_t value) { at[0] = (uint8_t)value, at[1] = (uint8_t)(value >> 8); }
static void put64(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> 8 * i);
}
static uint32_t get_u16(const uint8_t *at) { return at[0] | (uint32_t)at[1] << 8; }

static uint8_t *new_pages(made_shard *s, uint32_t flags, uint32_t count) {
    uint8_t *at = s->bytes + (size_t)s->pages * s->page;
    CHECK((size_t)(s->pages + count) * s->page <= SHARD_ROOM);
    put64(at, s->pages);
    put16(at + 10, flags);
    put16(at + 12, flags & 4 ? count : 16);
    put16(at + 14, flags & 4 ? count >> 16 : s->page);
    s->pages += count;
    return at;
}

/* Room in a page for one more node; NULL: none. */
static uint8_t *new_node(const made_shard *s, uint8_t *page, uint32_t size) {
    const uint32_t lower = get_u16(page + 12), upper = get_u16(page + 14), need = (size + 1) & ~1u;
    if (upper - lower < need + 2 || upper > s->page) return NULL;
    put16(page + lower, upper - need);
    put16(page + 12, lower + 2);
    put16(page + 14, upper - need);
    return page + upper - need;
}

static uint32_t put_node(uint8_t *at, uint32_t low, uint32_t high, uint32_t flags, const void *key,
                         uint32_t key_size) {
    put16(at, low), put16(at + 2, high), put16(at + 4, flags), put16(at + 6, key_size);
    memcpy(at + 8, key, key_size);
    return 8 + key_size;
}

/* A value in a leaf of the level, or on pages of its own; returns where its bytes go. */
static uint8_t *put_leaf(made_shard *s, level *l, const void *key, uint32_t key_size, uint32_t size,
                         uint32_t flags) {
    const bool big = 8 + key_size + size > (s->page - 16) / 2 - 2;
    const uint32_t node_size = 8 + key_size + (big ? 8 : size);
    uint8_t *leaf = l->count ? s->bytes + (size_t)l->pages[l->count - 1] * s->page : NULL,
            *node = leaf ? new_node(s, leaf, node_size) : NULL;
    if (!node) {
        l->pages[l->count] = s->pages;
        memcpy(l->keys[l->count++], key, key_size < 8 ? key_size : 8);
        node = new_node(s, new_pages(s, 2, 1), node_size);
    }
    uint8_t *at = node + put_node(node, size & 0xFFFF, size >> 16, big ? 1 : flags, key, key_size);
    if (!big) return at;
    put64(at, s->pages);
    return new_pages(s, 4, (15 + size) / s->page + 1) + 16;
}

/* Branches over a level until one page is left; writes the tree's 48 bytes. */
static void close_tree(made_shard *s, level *l, uint64_t entries, uint8_t *tree) {
    uint32_t depth = l->count > 0;
    while (l->count > 1) {
        level *up = calloc(1, sizeof *up);
        CHECK(up != NULL);
        for (uint32_t i = 0, in_page = 0; i < l->count; i++, in_page++) {
            uint8_t *page = up->count ? s->bytes + (size_t)up->pages[up->count - 1] * s->page : NULL, *node;
            const bool last_two =
                i + 2 == l->count && in_page > 2; /* no branch of one child is left behind */
            if (last_two || !page || !(node = new_node(s, page, in_page ? 16 : 8))) {
                up->pages[up->count] = s->pages;
                memcpy(up->keys[up->count++], l->keys[i], 8);
                in_page = 0;
                node = new_node(s, new_pages(s, 1, 1), 8);
            }
            put_node(node, l->pages[i] & 0xFFFF, l->pages[i] >> 16, 0, l->keys[i], in_page ? 8 : 0);
        }
        *l = *up;
        free(up);
        depth++;
    }
    memset(tree, 0, 48);
    put16(tree + 6, depth);
    put64(tree + 32, entries);
    put64(tree + 40, l->count ? l->pages[0] : UINT64_MAX);
}

static void fill_sample(const made_shard *s, uint32_t i, uint8_t *out) {
    for (uint32_t k = 0; k < s->sizes[i]; k++) out[k] = (uint8_t)(i * 31 + k * 7 + s->sizes[i]);
}

static void put_metas(made_shard *s, const uint8_t main_tree[48]) {
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t *at = s->bytes + (size_t)i * s->page;
        put64(at, i);
        put16(at + 10, 8);
        put16(at + 16, 0xC0DE), put16(at + 18, 0xBEEF), put16(at + 20, 1);
        put64(at + 32, (uint64_t)s->pages * s->page);
        put16(at + 40, s->page), put16(at + 42, s->page >> 16), put16(at + 44, 8);
        put64(at + 80, UINT64_MAX);
        memcpy(at + 88, main_tree, 48);
        put64(at + 136, s->pages - 1);
        put64(at + 144, 1 + i);
    }
}

/* A shard as the writer makes it, but of any page size, so that few samples make a deep tree. bytes:
 * calloc'ed room. */
static void make_shard(made_shard *s, uint8_t *bytes) {
    level *l = calloc(2, sizeof *l);
    uint8_t trees[2][48], main_tree[48];
    CHECK(l != NULL);
    *s = (made_shard){.bytes = bytes,
                      .page = 512u << (below(4) ? 0 : below(4)),
                      .pages = 2,
                      .first = below(4) ? 0 : below(1 << 20)};
    s->samples = 1 + below(below(3) ? 6 : SHARD_SAMPLES_MOST);
    const uint32_t big = below(3) ? below(5) : 0, small = 1 + below(200);
    for (uint32_t i = 0; i < s->samples; i++) {
        uint8_t key[8];
        for (int k = 0; k < 8; k++) key[k] = (uint8_t)((s->first + i) >> (56 - 8 * k));
        s->sizes[i] = noise() % 16 < big ? 200 + noise() % 3000 : noise() % small;
        uint8_t *at = put_leaf(s, &l[0], key, 8, s->sizes[i], 0);
        fill_sample(s, i, at);
        s->places[i] = (uint64_t)(at - bytes);
        s->sums[i] = fl_crc32c(0, at, s->sizes[i]);
    }
    close_tree(s, &l[0], s->samples, trees[0]);
    memset(l, 0, sizeof *l);
    memcpy(put_leaf(s, &l[0], "crcs", 4, s->samples * 4, 0), s->sums, s->samples * 4);
    memcpy(put_leaf(s, &l[0], "small", 5, 8, 0), "12345678", 8);
    close_tree(s, &l[0], 2, trees[1]);
    memcpy(put_leaf(s, &l[1], "columns", 7, 48, 2), trees[1], 48);
    memcpy(put_leaf(s, &l[1], "samples", 7, 48, 2), trees[0], 48);
    close_tree(s, &l[1], 2, main_tree);
    put_metas(s, main_tree);
    free(l);
}

/* ---- mutations */

/* Where some field of a page is, and how many bytes it has. */
static uint32_t choose_field(const made_shard *s, const uint8_t *page, uint32_t *bytes) {
    static const uint8_t meta[] = {16, 20, 40, 44, 46, 80, 92, 94, 120, 128, 136, 144};
    static const uint8_t head[] = {0, 10, 12, 14}, node[] = {0, 2, 4, 6, 8, 12}, tree[] = {4, 6, 32, 40};
    const uint32_t flags = get_u16(page + 10), nodes = (get_u16(page + 12) - 16) / 2;
    *bytes = 2;
    if (flags & 8) {
        const uint32_t at = meta[below(sizeof meta)];
        *bytes = at == 44 || at == 46 || at == 92 || at == 94 ? 2 : at < 80 ? 4 : 8;
        return at;
    }
    if (below(3) == 0 || nodes == 0 || nodes > 200) {
        const uint32_t at = head[below(4)];
        *bytes = at ? 2 : 8;
        return at;
    }
    const uint32_t slot = 16 + 2 * below(nodes), at = get_u16(page + slot);
    if (below(5) == 0 || at + 8 > s->page) return slot;
    const uint32_t data = at + 8 + get_u16(page + at + 6);
    switch (below(4)) {
    case 0:
        *bytes = 8;
        return data + 8 <= s->page ? data : slot; /* of a value on pages of its own: its first page */
    case 1: *bytes = 8; return data + 48 <= s->page ? data + tree[below(4)] : slot;
    default: return at + node[below(sizeof node)];
    }
}

static void mutate_field(made_shard *s) {
    uint8_t *page = s->bytes + (size_t)below(below(2) ? s->pages : s->pages < 6 ? s->pages : 6) * s->page;
    uint32_t bytes, at = choose_field(s, page, &bytes);
    uint64_t value = 0;
    if (at + bytes > s->page) return;
    for (uint32_t i = 0; i < bytes; i++) value |= (uint64_t)page[at + i] << 8 * i;
    switch (below(9)) {
    case 0: value = 0; break;
    case 1: value = UINT64_MAX; break;
    case 2: value++; break;
    case 3: value--; break;
    case 4: value ^= (uint64_t)1 << below(8 * bytes); break;
    case 5: value = below(s->pages + 2); break;
    case 6: value = below(40); break;
    case 7: value = (uint64_t)1 << below(8 * bytes); break;
    default: value = (uint64_t)below(65536) << below(8 * bytes);
    }
    for (uint32_t i = 0; i < bytes; i++) page[at + i] = (uint8_t)(value >> 8 * i);
}

static void mutate_shard(made_shard *s) {
    const uint32_t from = below(s->pages), to = below(s->pages);
    switch (below(12)) {
    case 0: memmove(s->bytes + (size_t)to * s->page, s->bytes + (size_t)from * s->page, s->page); break;
    case 1: s->bytes[(size_t)from * s->page + below(s->page)] ^= (uint8_t)(1u << below(8)); break;
    default: mutate_field(s);
    }
}

#endif
