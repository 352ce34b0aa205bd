/* store/store: a packed dataset's shards, read natively.
 *
 * NOTE [ store: processes and threads ]
 * A store is opened by one process (its pid is kept; every call from another returns FL_EFORK, and
 * fl_store_close there frees only memory, touching no descriptor). It is immutable after the last
 * fl_store_add and may be used by any number of threads; each thread reads through its own fl_store_reader, a
 * buffer. Shards share descriptors where they are many: NOTE [ store: open files ]. A record's place is known
 * from the walk when its shard was opened (store/tree.h, which also says why nothing is mapped), or is read
 * in a table that was given with the shard (NOTE [ table: read in place ]), with the record's checksum; its
 * bytes are read (pread) into the reader's buffer, so that a span lives until the reader's next
 * fl_store_reader_get. Next to faulting the record's pages in it costs the same CPU time, and a disk that
 * fails or a file that was cut is an error and no signal.
 *
 * Checks: at fl_store_add the file's size against the manifest's, and every tree page, or that given columns
 * lie in the file; a place in a table whenever it is used; at fl_store_column only the size, since the caller
 * has the checksum and compares it with its own copy; at fl_store_reader_get the record's checksum, on the
 * copy.
 *
 * NOTE [ store: foreign files ]
 * A foreign shard's file is not ours: a sample is a part of it, the file of an image as somebody wrote it, and no
 * record. A reader makes a record of one field of it. Its checksum may not be known before it is read (CRC32C 0):
 * then what was learnt of the image is compared, whose stamp is made of the CRC32C of the bytes that were proved
 * sound (fl_store_set_facts). Before that nothing vouches for bytes in the shard's file, and fl_store_vouches says
 * so; given ones are taken as they are.
 */
#ifndef FL_STORE_STORE_H
#define FL_STORE_STORE_H

#include <stdbool.h>

#include "store/facts.h"
#include "store/page_cache.h"
#include "store/record.h"
#include "store/table.h"
#include "store/tree.h"

/* A row of a table of places: where a sample's record lies in the shard's file, and its checksum.
 * Little-endian. */
typedef struct fl_store_row {
    fl_store_place place;
    uint32_t crc;
} fl_store_row;

typedef struct fl_store fl_store;
typedef struct fl_store_reader fl_store_reader;

/* Where an image lies in its place: bytes from the place's first one, and the image's size. Of no bytes where
 * nobody has put it there. Little-endian. */
typedef struct fl_store_pointer {
    uint32_t offset, size;
} fl_store_pointer;

/* A shard as its dataset describes it. Which of the file's samples the dataset has is fl_store_set_rows' to
 * say; without it, the first `count`. */
typedef struct fl_shard_spec {
    const char *path; /* of its file, copied by fl_store_add */
    uint64_t first, count; /* samples first .. first+count-1 of the dataset; count is at least 1 */
    uint64_t bytes; /* exact size of the file */
    uint64_t key, stored; /* the file's samples have the keys key .. key+stored-1; stored is at least count */
    /* the folder that paths in its records are relative to, copied by fl_store_add; NULL: none */
    const char *base;
    /* nothing of the file is on this disk: it is not opened, `given` says where all lies, and reading it
     * is FL_ESHARD */
    bool absent;
    /* the file lies where others may write: a link in its place, and a file that everybody may write, are
     * FL_EIO */
    bool guarded;
    bool foreign; /* its samples are image files, and no records; with `places` */
    uint16_t field; /* the number of the image in the records that are made of these */
    /* of a foreign shard: a place begins with where in it the image lies, an fl_store_pointer */
    bool pointed;
    const fl_store_tree *given; /* its columns: see fl_store_tree_given; NULL: its trees are walked */
    /* with `given`: an fl_store_row for each stored sample. The struct is copied; what it points to must
     * outlive the store */
    const fl_table *places;
} fl_shard_spec;

fl_code fl_store_create(fl_store **out, fl_error *err);
/* Adds the next shard: its first sample follows the last one of the shard before (FL_EARG). */
fl_code fl_store_add(fl_store *store, const fl_shard_spec *spec, fl_error *err);
void fl_store_close(fl_store *store); /* after every reader; NULL is allowed */

/* The size of a shard's column chunk, which has a row for each stored sample, and its bytes, read to `into`,
 * which has room for exactly that size (FL_EARG). FL_ESHARD where there is no such column, or the file was
 * cut. The contents are the caller's to check. */
fl_code fl_store_column_size(const fl_store *store, uint32_t shard, const char *name, size_t *size,
                             fl_error *err);
fl_code fl_store_column(const fl_store *store, uint32_t shard, const char *name, void *into, size_t size,
                        fl_error *err);

/* Tree of a shard: `stored` places of samples, in order (NULL where they are in a table), and the columns'.
 * Valid until the next fl_store_add. shard < shards. */
const fl_store_tree *fl_store_shard_tree(const fl_store *store, uint32_t shard, uint64_t *stored);

uint64_t fl_store_count(const fl_store *store);
uint32_t fl_store_shards(const fl_store *store);
uint32_t fl_store_shard_of(const fl_store *store, uint64_t index); /* index < count */
uint64_t fl_store_shard_count(const fl_store *store, uint32_t shard); /* samples in it; shard < shards */

/* Bytes of sample index's record; 0 where there is no such sample, or its place cannot be read. */
uint64_t fl_store_record_size(const fl_store *store, uint64_t index);

/* The base of the shard that holds sample `index`, NULL where it was added without one, or there is no such
 * sample. Valid while the store is. */
const char *fl_store_base(const fl_store *store, uint64_t index);

/* Sets the stored samples of a shard that the dataset has: `count` numbers in the file, ascending and below
 * `stored`; anything else is FL_ESHARD. Before anything is read. Borrowed: must outlive the store, and not
 * change. */
fl_code fl_store_set_rows(fl_store *store, uint32_t shard, const uint32_t *rows, fl_error *err);

/* CRC32C of each of the shard's `count` records, checked by fl_store_reader_get when set (NULL: not checked).
 * Borrowed: must outlive the store. A table of places has checksums of its own, which are compared in any
 * case. */
void fl_store_set_checksums(fl_store *store, uint32_t shard, const uint32_t *crc);

fl_code fl_store_reader_create(fl_store_reader **out, fl_error *err);
void fl_store_reader_free(fl_store_reader *reader); /* NULL is allowed */

/* The record of sample index, valid until this reader's next get, and as long as what is given: FL_ENOTFOUND,
 * FL_ESHARD, FL_ECHECKSUM, FL_ERECORD, FL_ENOMEM. The record's own fields are not yet checked. `given`: the bytes of
 * its place, or of the image that is pointed to there, from elsewhere than the shard's file; of NULL: they are read
 * there. */
fl_code fl_store_reader_get(fl_store_reader *reader, const fl_store *store, uint64_t index, fl_span given,
                            fl_span *record, fl_error *err);

/* The foreign image that a reader last got. */
typedef struct fl_store_foreign {
    uint64_t stamp; /* of its bytes, for what is learnt of it; 0: it was a record */
    bool given; /* its bytes came from elsewhere than the shard's file */
} fl_store_foreign;

fl_store_foreign fl_store_reader_foreign(const fl_store_reader *reader);

/* What is learnt of the images of foreign shards, of as many samples. Before anything is read. Borrowed: must
 * outlive the store. */
void fl_store_set_facts(fl_store *store, fl_facts *facts);
fl_facts *fl_store_facts(const fl_store *store); /* NULL: nothing is */

/* True if something is learnt of sample index. index < count. */
bool fl_store_knows(const fl_store *store, uint64_t index);

/* Notes that the image of sample index with that CRC32C is sound, and its entropy index, as if a reading had
 * found it. Nothing is, where nothing is learnt. index < count. */
void fl_store_learn(const fl_store *store, uint64_t index, uint32_t crc, fl_span found);

/* True if sample index lies in a foreign shard. index < count. */
bool fl_store_is_foreign(const fl_store *store, uint64_t index);

/* True if there is something to compare the bytes of sample index in its shard's file with. */
bool fl_store_vouches(const fl_store *store, uint64_t index);

enum { FL_STORE_HEAD = 4096 };

/* Reads the first bytes of a sample's record, at most FL_STORE_HEAD, for hints: nothing of them is checked.
 * Returns how many; 0 where they cannot be read. */
size_t fl_store_head(const fl_store *store, uint64_t index, uint8_t *into);

/* Facts about images that lie outside of the store: see store/attached.h. */
fl_page_cache *fl_store_images(fl_store *store);

/* Asks the kernel to read the record's pages (POSIX_FADV_WILLNEED); returns at once. Failures are ignored: it
 * is a hint. A small record, for which asking costs as much as reading, is looked for in the page cache: true
 * when its last page is there. */
bool fl_store_ahead(fl_store *store, uint64_t index);

/* True if the last 1,024 records that fl_store_ahead was asked for were all found in the page cache. */
bool fl_store_warm(const fl_store *store);

/* Stores and readers of this process that were made and not yet freed: a test ends with zero. */
void fl_store_live(uint32_t *stores, uint32_t *readers);

#endif
