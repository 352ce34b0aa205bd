/* store/kept: what is kept of image files on a local disk, for later epochs and runs: bytes of files that lie
 * on a slow one, what was learnt of each, and forms that are decoded faster.
 *
 * NOTE [ kept: the files ]
 * Two sorts of files, in a folder that only their owner may write:
 *   a table  64 bytes: "FLKEPT03", u64 count of images, zeros; then, of each image, an entry for each
 *            fl_kept_part: u64 stamp of the image's file (0: nothing), u64 place: 65,536 times the offset plus
 *            the log's number, u32 size, u32 CRC32C of the entry so far and of the bytes
 *   logs     bytes, one after another; each is written by the one process that holds its lock. Odd ones have
 *            no forms, but facts and bytes of images whose form was not sought when they were put: once no
 *            entry that has bytes refers to one any more, it may be cut
 * A log is appended to, and an entry is written after its bytes. Nothing is mapped, and nobody is waited for:
 * processes that write the same entry at once may leave a mixture, and a process that is killed, or a disk
 * that loses power, an entry without its bytes. All these differ in their CRC, and count as nothing: the file
 * is then read as if it had not been kept, and written again. An entry of another stamp is of an earlier
 * file. So what is found is either what was put for that stamp, or nothing.
 *
 * How much may be written is granted from outside; bytes beyond that are not kept. */
#ifndef FL_STORE_KEPT_H
#define FL_STORE_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/status.h"

typedef struct fl_kept fl_kept;
typedef enum fl_kept_part {
    FL_KEPT_FACTS, /* that the file is sound, and its entropy index, which may be empty */
    FL_KEPT_BYTES, /* the file's bytes */
    FL_KEPT_FORM, /* what is decoded faster: the DCT form of a JPEG, or the pixels of a PNG as those of an
                    * FL_RECORD_KIND_RAW; empty: it has none */
    FL_KEPT_PARTS
} fl_kept_part;

#define FL_KEPT_MAGIC "FLKEPT03" /* of a table */
enum { FL_KEPT_LOGS = 1024, FL_KEPT_HEAD = 64, FL_KEPT_ENTRY = 24 };

/* Of `count` images, with a table that is open for reading and writing, and is closed with it; also where
 * this fails. A table that is empty, or no table of so many images, becomes one without entries. FL_EIO: it
 * cannot be written. FL_ENOMEM. */
fl_code fl_kept_create(fl_kept **out, int table, uint64_t count, fl_error *err);
void fl_kept_free(fl_kept *kept); /* NULL is allowed */

/* A log that is open for reading, which is closed with it. FL_EARG: its number was given before, or is
 * FL_KEPT_LOGS or more; the descriptor stays the caller's then. Any thread. */
fl_code fl_kept_log(fl_kept *kept, uint32_t number, int fd, fl_error *err);

/* Appends from now on to that log, which this process alone writes, and has open for writing; `end` is its
 * size. An odd one for what odd ones have, an even one for all else, and for that, too, as long as no odd one
 * was given. Before anything is put. FL_EARG: there is no such log. */
fl_code fl_kept_append(fl_kept *kept, uint32_t number, uint64_t end, fl_error *err);

/* Grants as many more bytes. */
void fl_kept_grant(fl_kept *kept, uint64_t bytes);

/* True if it finds the part of an image of that stamp: its bytes are then in the buffer. Any thread of any
 * process; index < count. */
bool fl_kept_find(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_buffer *buffer,
                  fl_span *bytes);

/* The stamp of its entry, whose bytes may differ; 0: there is none. */
uint64_t fl_kept_stamp(const fl_kept *kept, uint64_t index, fl_kept_part part);

/* The place of its bytes in a log: false if it has no entry, or an empty one. They may differ. */
bool fl_kept_place(const fl_kept *kept, uint64_t index, fl_kept_part part, int *log, uint64_t *offset,
                   uint32_t *size);

/* True if this process may write so many bytes now: it was granted room, is no forked child, and no disk has
 * refused. */
bool fl_kept_writes(const fl_kept *kept, uint64_t bytes);

/* Keeps it, where this process may write so much; false if it is not kept. `stamp` is not 0. Any thread. */
bool fl_kept_put(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes);

/* As fl_kept_put(), unless the part has an entry of another stamp by now. */
bool fl_kept_put_anew(fl_kept *kept, uint64_t index, fl_kept_part part, uint64_t stamp, fl_span bytes);

typedef struct fl_kept_counts {
    uint64_t put[FL_KEPT_PARTS], found[FL_KEPT_PARTS]; /* times, of this process */
    uint64_t granted, written; /* bytes; more of them may be asked for than granted */
    uint64_t left_out; /* parts for which there was no room */
    int failed; /* errno of the first write that failed; 0: none */
} fl_kept_counts;

void fl_kept_count(const fl_kept *kept, fl_kept_counts *out);

/* Images that have an entry of each part; of the form, one that is not empty. It reads the whole table. */
void fl_kept_entries(const fl_kept *kept, uint64_t entries[FL_KEPT_PARTS]);

uint32_t fl_kept_live(void); /* of this process, made and not yet freed: a test ends with zero */

#endif
