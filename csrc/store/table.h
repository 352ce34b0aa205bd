/* store/table: rows of one width in a file, read in place and checked by blocks.
 *
 * NOTE [ table: read in place ]
 * What grows with a dataset lies in tables on the disk of the host, and a process holds four bytes for each
 * block of 4 KiB: its CRC32C. A row is read with its block (pread) into memory of this process, compared
 * there with the checksum, and used from there. So a file that is cut, overwritten or lost is an error, where
 * a mapping would be a signal (SIGBUS) or other bytes than those that were checked: a cache may be cut by
 * anybody who may write to it, and files on most file systems cannot be sealed. Measured for a random row of
 * 10^8 (two cores, file in the page cache): 1.0 us checked; 0.55 us by a pread alone, 0.05 us mapped; 2.1 us
 * by blocks of 16 KiB, 5.5 us by blocks of 64 KiB. Decoding an image takes 100 times as long or more. The
 * last blocks read are kept in a few slots, so that neighbours cost a copy. A slot is taken by one thread at
 * a time, and nobody waits for one: a thread that finds it taken reads its block into memory of its own. So
 * does a child that was forked while a thread held it.
 */
#ifndef FL_STORE_TABLE_H
#define FL_STORE_TABLE_H

#include <stdint.h>

#include "common/status.h"

enum { FL_TABLE_BLOCK = 4096 };

/* An open file with tables. Any thread may use it, and any process that inherited it. */
typedef struct fl_table_file fl_table_file;

/* The descriptor is the file's from then on, unless this fails (FL_ENOMEM); `name` is copied, for
 * messages. */
fl_code fl_table_file_create(fl_table_file **out, int fd, const char *name, fl_error *err);
void fl_table_file_free(fl_table_file *file); /* after every use; NULL is allowed */

/* One table. `file` and `crcs` must outlive it. */
typedef struct fl_table {
    fl_table_file *file;
    uint64_t offset; /* of its first row in the file */
    uint64_t rows;
    uint32_t width; /* bytes of a row: 1 .. FL_TABLE_BLOCK */
    const uint32_t *crcs; /* CRC32C of each block of fl_table_block_rows rows; the last one may have fewer */
} fl_table;

static inline uint32_t fl_table_block_rows(uint32_t width) { return FL_TABLE_BLOCK / width; }
static inline uint64_t fl_table_blocks(uint64_t rows, uint32_t width) {
    const uint32_t each = fl_table_block_rows(width);
    return rows / each + (rows % each != 0);
}

/* Copies row `row` to `into`. FL_ESHARD where the file was cut, or the block is not what was written; FL_EIO;
 * FL_EARG where there is no such row. */
fl_code fl_table_row(const fl_table *table, uint64_t row, void *into, fl_error *err);

/* Copies rows first .. first+count-1 to `into`, in few reads. Errors as above; then the content of `into` is
 * undefined. */
fl_code fl_table_read(const fl_table *table, uint64_t first, uint64_t count, void *into, fl_error *err);

/* Rows of the samples of a dataset, in a table for each of its shards, all of one width. All that it points
 * to must outlive it. */
typedef struct fl_tables {
    const int64_t *firsts; /* [shards] number of each shard's first sample, ascending from 0 */
    const fl_table *tables; /* [shards] rows of the shard's stored samples */
    const uint32_t *const
        *rows; /* [shards] numbers of the stored samples that count; NULL: the shard's first ones */
    uint32_t shards;
    uint64_t count; /* samples */
} fl_tables;

/* Copies the row of sample `index` to `into`. FL_ENOTFOUND where there is no such sample; else errors as
 * above. */
fl_code fl_table_sample_row(const fl_tables *tables, uint64_t index, void *into, fl_error *err);

/* Files of this process that were made and not yet freed: a test ends with zero. */
uint32_t fl_table_live(void);

#endif
