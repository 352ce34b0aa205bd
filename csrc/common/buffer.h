/* common/buffer: memory that is kept from image to image and grows to the largest that was needed, so that
 * warm work allocates nothing.
 *
 * Sizes are powers of two: growing to each larger size in turn would leave the allocator with holes that the
 * next one does not fit, and pages that nobody touches take no memory. A buffer larger than `keep` has the
 * size that was asked for, and is given back when a quarter of it would do, for one of the size that is asked
 * for: one huge image must not stay in every thread's memory.
 *
 * Owner: the object that it is a member of, and that object's thread. Zeroed at first.
 */
#ifndef FL_COMMON_BUFFER_H
#define FL_COMMON_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fl_buffer {
    void *bytes; /* aligned to a cache line, and so to any vector; NULL: nothing yet */
    size_t room; /* bytes */
} fl_buffer;

typedef struct fl_buffer_rule {
    /* bytes: the first size, a power of two of at least 64; the largest that stays for ever */
    size_t least, keep;
} fl_buffer_rule;

/* Room for `count` items of `size` bytes, whose old contents do not matter. False: there is no memory, or so
 * many bytes cannot be; the buffer is then empty. */
bool fl_buffer_fit(fl_buffer *buffer, size_t count, size_t size, fl_buffer_rule rule);

void fl_buffer_free(fl_buffer *buffer); /* idempotent */

#endif
