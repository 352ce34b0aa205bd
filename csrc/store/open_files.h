/* store/open_files: a bounded number of open files, shared by the shards of a store that has more of them
 * than may be open at once.
 *
 * NOTE [ store: open files ]
 * A store keeps every shard's file open as long as there is room: FL_OPEN_FILES_LEAST files, and beyond them
 * as many as all stores of the process may have together, which is a quarter of RLIMIT_NOFILE. (A forked
 * child inherits as many, and opens the dataset again.) Reading takes no lock then, and a file that is
 * removed can be read to the end. A store of more shards keeps as many files open as there was room for, the
 * ones last used, in an fl_open_files. A reader takes a file and gives it back; a file that is in use is
 * never closed. A shard's file is opened again by its path:
 *   it is gone, is no regular file, or has another size    FL_ESHARD, which says so.
 *   it is another file, or the same one with other bytes   the checksum of each record and column says
 *   whether they are what was packed; an
 *                                                          identical copy in its place is as good. Where the
 *                                                          records have no checksums, another file is
 *                                                          FL_ESHARD.
 * So what is read is what was packed, or an error. Device and inode tell the error's words, and no more: file
 * systems in user space may give a file another inode when it is looked up again. The time of the last change
 * says nothing: a cache's file is written while it is open.
 */
#ifndef FL_STORE_OPEN_FILES_H
#define FL_STORE_OPEN_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

enum { FL_OPEN_FILES_LEAST = 16 };

/* Any thread may use it, but for fl_open_files_add and fl_open_files_free, which are for one thread before
 * and after all others. */
typedef struct fl_open_files fl_open_files;

/* Opens file `number`, without a lock: *fd is the table's from then on. */
typedef fl_code (*fl_open_files_open)(void *opaque, uint32_t number, int *fd, fl_error *err);

/* A file in use. `fd` stays open until it is given back. */
typedef struct fl_open_file {
    int fd;
    uint32_t slot; /* the table's own */
} fl_open_file;

/* Makes a table that keeps at most `most` files open, at least 1, besides those in use. */
fl_code fl_open_files_create(fl_open_files **out, uint32_t most, fl_open_files_open open, void *opaque,
                             fl_error *err);
/* Closes all; where not `ours`, it frees memory alone: in a forked child the descriptors' numbers may mean
 * other files. NULL is allowed. */
void fl_open_files_free(fl_open_files *files, bool ours);

/* Notes the next file, 0, 1, ... in turn, which is open as `fd`; -1: it is not open. The descriptor is the
 * table's, unless this fails (FL_ENOMEM). */
fl_code fl_open_files_add(fl_open_files *files, int fd, fl_error *err);

/* Takes file `number`, which was added, and opens it if it is not open: its errors are those of the function
 * that opens. */
fl_code fl_open_files_take(fl_open_files *files, uint32_t number, fl_open_file *file, fl_error *err);
void fl_open_files_give(fl_open_files *files, fl_open_file file);

/* Closes the file that was used least recently, if one is not in use, so that another can be opened where the
 * process may open no more. Returns whether one was closed. */
bool fl_open_files_spare(fl_open_files *files);

#endif
