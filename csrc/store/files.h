/* store/files: image files by their paths: what a dataset that nobody packed is read from.
 *
 * A file is opened, read whole and closed for each image; nothing is kept open, and nothing is mapped. So
 * files may be replaced or removed at any time: what is read is one image's bytes or an error. Any number of
 * threads read, each into a buffer of its own, in any process.
 *
 * Nobody has checked them: what is learnt of each when it is first read is kept, store/facts.h. The stamp of
 * a file as it was is made of inode, size and time of change.
 */
#ifndef FL_STORE_FILES_H
#define FL_STORE_FILES_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/status.h"
#include "store/facts.h"
#include "store/kept.h"

typedef struct fl_files fl_files;

/* `names`: `count` paths, each ended by a zero, of `size` bytes together, which are copied. A path is
 * `prefix` and its name. FL_EARG where that is not what they are, or a path is too long; FL_ENOMEM. `room`:
 * bytes that indexes may take. */
fl_code fl_files_create(fl_files **out, const char *prefix, const char *names, size_t size, uint64_t count,
                        size_t room, fl_error *err);
void fl_files_free(fl_files *files); /* NULL is allowed */

/* Images that are parts of files: image i is sizes[i] bytes at offsets[i] of path number paths[i]. Size 0:
 * the file as a whole, offset 0. */
typedef struct fl_files_places {
    /* of each path: the stamp (fl_place_stamp) that its file must have, 0 for any; NULL: any */
    const uint64_t *stamps;
    const uint64_t *offsets;
    const uint32_t *sizes, *paths;
    uint64_t count;
} fl_files_places;

/* As fl_files_create(), of `count` paths; the list has as many entries as `places`, which are copied. Of such
 * a list a JPEG counts as sound only if it is certain that its metadata do not turn it (jpeg/exif.h): who
 * made it has its readers heed them. FL_EARG: a place is of no path, or of more bytes than an image may
 * have. */
fl_code fl_files_create_places(fl_files **out, const char *prefix, const char *names, size_t size,
                               uint64_t count, const fl_files_places *places, size_t room, fl_error *err);
bool fl_files_upright(const fl_files *files); /* whether it is such a list */

/* Leaves files of all other formats to who opens what is not decoded here. `kinds`: bit k is that of record
 * kind k. Before the list is read. */
void fl_files_take_only(fl_files *files, uint64_t kinds);
bool fl_files_takes(const fl_files *files, uint32_t kind); /* without that: any */

typedef enum fl_files_keeping {
    FL_FILES_FACTS, /* what is learnt */
    FL_FILES_FORMS, /* and FL_KEPT_FORM, from which images are then decoded: see fl_files_convert() */
    FL_FILES_BYTES /* and the bytes of files, which are then read from there: the files lie on a slow disk. A
                     * stamp is that of fl_place_content_stamp(), and fl_files_ahead() reads whole files */
} fl_files_keeping;

/* Keeps that in `kept`, of as many images, which outlives the list. Before the list is read. FL_ENOMEM. */
fl_code fl_files_keep(fl_files *files, fl_kept *kept, fl_files_keeping keeping, fl_error *err);
bool fl_files_keeps(const fl_files *files, fl_files_keeping keeping); /* whether it keeps that */

/* Images are as if their files held no more than that: their shorter side is `side` at most (engine/shrink.h), and
 * FL_KEPT_FORM of one that was larger is a JPEG of it. Before the list is read. */
void fl_files_shrink(fl_files *files, uint32_t side);
uint32_t fl_files_side(const fl_files *files); /* 0: they are as they are */

uint64_t fl_files_count(const fl_files *files);

/* The bytes of file `index`, in the buffer, until it is used again, and its stamp. FL_ENOTFOUND: there is no
 * such index. FL_EIO: it cannot be opened or read, is no regular file, is empty or larger than 1 GiB, or was
 * cut meanwhile; a part is not in its file, or that has another stamp. */
fl_code fl_files_read(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp,
                      fl_error *err);

/* The stamp that the file of entry `index` has now; 0: its status cannot be told. index < count. */
uint64_t fl_files_now(const fl_files *files, uint64_t index);

/* What is learnt of the entries; valid as long as `files`. */
fl_facts *fl_files_facts(const fl_files *files);

/* True if the form of entry `index` is kept, of its file as it is now: that is then in the buffer, until it
 * is used again, and the file's stamp. index < count. */
bool fl_files_converted(fl_files *files, uint64_t index, fl_buffer *buffer, fl_span *bytes, uint64_t *stamp);

/* The stamp with which the file of entry `index` was proved sound, if of that file neither its form nor
 * that it has none is kept; else 0. It asks no file. index < count. */
uint64_t fl_files_to_convert(const fl_files *files, uint64_t index);

bool fl_files_has_room(const fl_files *files, uint64_t bytes); /* for so many more, on the disk */

/* Keeps it; size 0: the file has none. What fl_facts_known() found of the file, if anything, is from then on
 * that it is sound, and its index only where it has no form; a slow file's bytes are not kept beside a smaller
 * image. False: there is no room. */
bool fl_files_convert(fl_files *files, uint64_t index, uint64_t stamp, fl_span form, fl_span found);

/* As fl_store_ahead and fl_store_warm; of slow files, whose bytes are kept: reads the file, and waits for it. */
bool fl_files_ahead(fl_files *files, uint64_t index);
bool fl_files_warm(const fl_files *files);

uint32_t fl_files_live(void); /* of this process, made and not yet freed: a test ends with zero */

#endif
