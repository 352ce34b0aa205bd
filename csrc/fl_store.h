/* fl_store: a packed dataset's shards, read natively. Built on liblmdb.
 *
 * NOTE [ store: processes and threads ]
 * A store is opened by one process (its pid is kept; every call from another returns FL_EFORK, and fl_store_close there
 * frees only memory, touching no env). It is immutable after the last fl_store_add and may be used by any number of threads; each
 * thread reads through its own fl_reader, a buffer.
 * A record's place is known from the walk when its shard was opened; its bytes are read (pread) into the reader's buffer, so that a span
 * lives until the reader's next fl_reader_get. Next to faulting the record's pages in it costs the same CPU time, leaves no page of a
 * record or a tree mapped (pages that count as this process's memory), and a disk that fails or a file that was cut is an error and no
 * signal.
 *
 * Shards are opened with MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS | MDB_NORDAHEAD. Before liblmdb may walk a tree, fl_store_add
 * has walked it: file size against meta, page numbers, node offsets, key sizes, overflow spans: a damaged file is FL_ESHARD, never a crash.
 */
#ifndef FL_STORE_H
#define FL_STORE_H

#include <stdbool.h>

#include "fl_record.h"

typedef struct fl_store fl_store;
typedef struct fl_reader fl_reader;

fl_code fl_store_create(fl_store **out, fl_error *err);
/* Adds the next shard: samples first .. first+count-1, a file of exactly `bytes` bytes. */
fl_code fl_store_add(fl_store *store, const char *path, uint64_t first, uint64_t count, uint64_t bytes, fl_error *err);
void fl_store_close(fl_store *store); /* after every reader; NULL is allowed */

/* A column chunk of a shard, zero-copy, valid until the store is closed. */
fl_code fl_store_column(fl_store *store, uint32_t shard, const char *name, fl_span *out, fl_error *err);

uint64_t fl_store_count(const fl_store *store);
uint32_t fl_store_shards(const fl_store *store);
uint32_t fl_store_shard_of(const fl_store *store, uint64_t index); /* index < count */
uint64_t fl_store_shard_count(const fl_store *store, uint32_t shard);      /* samples in it; shard < shards */

/* Per-row CRC32C, checked by fl_reader_get when set (NULL: not checked). Borrowed: must outlive the store. */
void fl_store_set_checksums(fl_store *store, uint32_t shard, const uint32_t *crc);

fl_code fl_reader_create(fl_reader **out, fl_error *err);
void fl_reader_free(fl_reader *reader); /* NULL is allowed */

/* The record of sample index, valid until this reader's next get: FL_ENOTFOUND, FL_ESHARD, FL_ECHECKSUM, FL_ENOMEM. The record's own fields
 * are not yet checked. */
fl_code fl_reader_get(fl_reader *reader, const fl_store *store, uint64_t index, fl_span *record, fl_error *err);

/* Asks the kernel to read the record's pages (POSIX_FADV_WILLNEED); returns at once. Failures are ignored: it is a hint. A small record, for
 * which asking costs as much as reading, is looked for in the page cache: true when its last page is there. */
bool fl_store_ahead(fl_store *store, uint64_t index);

/* Whether the last 1,024 records that fl_store_ahead was asked for were all found in the page cache. */
bool fl_store_warm(const fl_store *store);

/* Stores and readers of this process that were made and not yet freed: a test ends with zero. */
void fl_store_live(uint32_t *stores, uint32_t *readers);

#endif
