/* store/place: bytes of a file by path, offset and size: where an image lies that nobody copied. Any thread;
 * nothing is kept open or mapped.
 *
 * Offsets and sizes come from elsewhere, and the file may have changed since they were noted:
 * fl_place_check() comes before every read.
 */
#ifndef FL_STORE_PLACE_H
#define FL_STORE_PLACE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/buffer.h"
#include "common/bytes.h"
#include "common/status.h"

enum { FL_PLACE_MOST = 1 << 30 }; /* bytes of one image */

/* Opens a file to be read, and tells its status; the caller closes `fd`. A FIFO of that name is not waited
 * for. FL_EIO: it cannot be opened, or is no regular file. FL_ERESOURCE: the process may open no more files;
 * `fd` is then -1. */
fl_code fl_place_open(const char *path, int *fd, struct stat *st, fl_error *err);

/* FL_EIO where a file of that status does not hold `size` bytes at `offset`, where they are none, or more
 * than FL_PLACE_MOST. */
fl_code fl_place_check(const struct stat *st, uint64_t offset, uint64_t size, fl_error *err);

/* Reads them into the buffer; `bytes` is valid until that is used again. FL_EIO: they cannot be read, or the
 * file was cut since it was opened. FL_ENOMEM. */
fl_code fl_place_read(int fd, uint64_t offset, size_t size, fl_buffer *buffer, fl_span *bytes, fl_error *err);

/* A number that tells a file from what it becomes when it is written or replaced: of inode, size and times of
 * change; never 0. */
uint64_t fl_place_stamp(const struct stat *st);

/* The same of size and time of writing alone: for file systems whose inodes and times of change are made up
 * anew at each mount. */
uint64_t fl_place_content_stamp(const struct stat *st);

/* Stamp of the file of a path, as it is now; 0: its status cannot be told. */
uint64_t fl_place_now(const char *path);

#endif
