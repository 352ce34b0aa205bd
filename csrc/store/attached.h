/* store/attached: images that a record does not hold: it says in which file they lie, and where.
 *
 * The bytes of such an entry (FL_RECORD_KIND_PLACE), little-endian: u64 offset of the image in its file, u64
 * size of the file, i64 time of the file's last change (ns since 1970), u32 size of the image, u32 CRC32C of
 * the image; then the file's path: absolute, or relative to the base folder of the shard.
 *
 * NOTE [ attached: what is checked ]
 * The files belong to somebody else and may be changed, cut, replaced or removed at any time. So one is
 * opened, read and closed for each image, nothing is mapped, and what is used is a copy whose CRC32C is that
 * of the bytes that were attached. A file of another size or time whose bytes are the same is taken; size and
 * time only tell, in the message about other bytes, whether the file was changed.
 */
#ifndef FL_STORE_ATTACHED_H
#define FL_STORE_ATTACHED_H

#include <stdbool.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/status.h"
#include "store/page_cache.h"

enum { FL_ATTACHED_HEAD = 32 }; /* bytes before the path */

/* Reads the image of an entry into the buffer. `base`: the shard's base folder; NULL: it has none. `stamp`:
 * the file's (fl_place_stamp), as it was opened; NULL: not asked for. FL_ERECORD: the entry is damaged.
 * FL_ECHECKSUM: the file was changed. FL_EIO: it is gone, cannot be read, or is no regular file.
 * FL_ERESOURCE: the process may open no more files. FL_ENOMEM. */
fl_code fl_attached_read(fl_span entry, const char *base, fl_buffer *buffer, fl_span *image, uint64_t *stamp,
                         fl_error *err);

/* The stamp that the file of an entry has now; 0: it cannot be told. */
uint64_t fl_attached_now(fl_span entry, const char *base);

/* Has the kernel read the image's pages ahead, as fl_page_cache_ahead does. False for whatever cannot be
 * read. */
bool fl_attached_ahead(fl_span entry, const char *base, fl_page_cache *cache);

#endif
