/* engine/map: pages for slots, huge ones advised, faulted in before anyone counts on them: a shortage shows
 * here, never as a SIGBUS later. Memory of which little may ever be used is faulted in piece by piece.
 *
 * Owner: the caller, who unmaps them.
 */
#ifndef FL_ENGINE_MAP_H
#define FL_ENGINE_MAP_H

#include <stdbool.h>
#include <stddef.h>

typedef enum fl_mapped {
    FL_MAP_OK,
    FL_MAP_REFUSED, /* no mapping; errno says why */
    FL_MAP_SHORT /* memory ran out while it was faulted in; nothing stays mapped */
} fl_mapped;

/* Writable: `bytes`, a multiple of 4096, of the file `fd`, shared; fd < 0: private to this process and
 * zeroed. *data is written only on FL_MAP_OK. On a kernel older than 5.14 a file's pages come one by one, as
 * they are touched. */
fl_mapped fl_map(int fd, size_t bytes, void **data);

/* The same of a file, with no page faulted in, nor any huge one advised. */
fl_mapped fl_map_sparse(int fd, size_t bytes, void **data);

/* Faults in the pages of [data, data + bytes), a part of such a mapping, which others may be using. False:
 * memory ran out. On a kernel older than 5.14 they come as they are touched. */
bool fl_map_touch(void *data, size_t bytes);

#endif
