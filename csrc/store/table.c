#define _GNU_SOURCE
#include "store/table.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "store/tree.h"

enum { SLOTS = 64 };

/* A block that was read and checked. All but `taken` is for the thread that has taken it. */
typedef struct slot {
    atomic_flag taken;
    uint64_t at; /* offset of the block in the file, plus 1; 0: none */
    uint8_t bytes[FL_TABLE_BLOCK];
} slot;

struct fl_table_file {
    int fd;
    char *name;
    slot slots[SLOTS];
};

static atomic_uint live;

uint32_t fl_table_live(void) { return atomic_load(&live); }

fl_code fl_table_file_create(fl_table_file **out, int fd, const char *name, fl_error *err) {
    fl_table_file *file = *out = calloc(1, sizeof *file);
    if (!file || !(file->name = strdup(name))) {
        free(file);
        *out = NULL;
        return fl_fail(err, FL_ENOMEM, "no memory for the tables of %.80s", name);
    }
    for (int i = 0; i < SLOTS; i++) atomic_flag_clear(&file->slots[i].taken);
    file->fd = fd;
    atomic_fetch_add(&live, 1);
    return FL_OK;
}

void fl_table_file_free(fl_table_file *file) {
    if (!file) return;
    close(file->fd);
    free(file->name);
    free(file);
    atomic_fetch_sub(&live, 1);
}

/* Compares the blocks from `block` on, which `bytes` holds, with their checksums. */
static fl_code check_blocks(const fl_table *t, uint64_t block, const uint8_t *bytes, size_t size,
                            fl_error *err) {
    const size_t whole = (size_t)fl_table_block_rows(t->width) * t->width;
    for (size_t at = 0; at < size; at += whole, block++) {
        const size_t part = size - at < whole ? size - at : whole;
        if (fl_crc32c(0, bytes + at, part) != t->crcs[block])
            return fl_fail(err, FL_ESHARD,
                           "%.80s is damaged (at byte %" PRIu64
                           ", its checksum differs): `fastload index` writes it anew",
                           t->file->name, t->offset + block * whole);
    }
    return FL_OK;
}

/* Reads `count` whole blocks from `block` on; the table's last one may be shorter. */
static fl_code read_blocks(const fl_table *t, uint64_t block, uint64_t count, uint8_t *into, fl_error *err) {
    const uint32_t each = fl_table_block_rows(t->width);
    const uint64_t first = block * each, left = t->rows - first;
    const size_t size = (size_t)(count * each < left ? count * each : left) * t->width;
    fl_code code =
        fl_store_shard_read(t->file->fd, into, size, t->offset + first * t->width, t->file->name, err);
    return code ? code : check_blocks(t, block, into, size, err);
}

static slot *slot_of(const fl_table *t, uint64_t at) {
    const uint64_t mixed = at / FL_TABLE_BLOCK * UINT64_C(0x9E3779B97F4A7C15);
    return &t->file->slots[mixed >> 32 & (SLOTS - 1)];
}

/* Copies rows of one block. */
static fl_code copy_rows(const fl_table *t, uint64_t first, uint32_t count, uint8_t *into, fl_error *err) {
    const uint32_t each = fl_table_block_rows(t->width);
    const uint64_t block = first / each, at = t->offset + block * each * t->width + 1;
    const size_t skip = (size_t)(first % each) * t->width, size = (size_t)count * t->width;
    slot *s = slot_of(t, at);
    fl_code code = FL_OK;
    if (atomic_flag_test_and_set_explicit(&s->taken, memory_order_acquire)) {
        uint8_t own[FL_TABLE_BLOCK];
        if (!(code = read_blocks(t, block, 1, own, err))) memcpy(into, own + skip, size);
        return code;
    }
    if (s->at != at) {
        code = read_blocks(t, block, 1, s->bytes, err);
        s->at = code ? 0 : at;
    }
    if (!code) memcpy(into, s->bytes + skip, size);
    atomic_flag_clear_explicit(&s->taken, memory_order_release);
    return code;
}

static fl_code check_rows(const fl_table *t, uint64_t first, uint64_t count, fl_error *err) {
    if (first <= t->rows && count <= t->rows - first) return FL_OK;
    return fl_fail(err, FL_EARG, "there are no rows %" PRIu64 "+%" PRIu64 " of %" PRIu64, first, count,
                   t->rows);
}

fl_code fl_table_row(const fl_table *t, uint64_t row, void *into, fl_error *err) {
    fl_code code = check_rows(t, row, 1, err);
    return code ? code : copy_rows(t, row, 1, into, err);
}

fl_code fl_table_read(const fl_table *t, uint64_t first, uint64_t count, void *into, fl_error *err) {
    const uint32_t each = fl_table_block_rows(t->width);
    uint8_t *out = into;
    fl_code code = check_rows(t, first, count, err);
    while (!code && count) {
        const uint32_t within = (uint32_t)(first % each);
        uint64_t now = count < each - within ? count : each - within;
        if (!within && count >= each) {
            now = count / each * each;
            code = read_blocks(t, first / each, now / each, out, err);
        } else {
            code = copy_rows(t, first, (uint32_t)now, out, err);
        }
        first += now, count -= now, out += now * t->width;
    }
    return code;
}

fl_code fl_table_sample_row(const fl_tables *t, uint64_t index, void *into, fl_error *err) {
    if (index >= t->count)
        return fl_fail(err, FL_ENOTFOUND, "there is no sample %" PRIu64 " of %" PRIu64, index, t->count);
    uint32_t low = 0, high = t->shards;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if ((uint64_t)t->firsts[middle] <= index) low = middle;
        else high = middle;
    }
    const uint64_t row = index - (uint64_t)t->firsts[low];
    return fl_table_row(&t->tables[low], t->rows[low] ? t->rows[low][row] : row, into, err);
}
