/* store/page_cache: what is asked of the kernel's page cache before images are read. Hints: nothing here
 * fails. */
#ifndef FL_STORE_PAGE_CACHE_H
#define FL_STORE_PAGE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads that were asked for and found in the page cache, one after the other. Zeroed at first; any thread. */
typedef struct fl_page_cache {
    _Atomic uint32_t found;
} fl_page_cache;

/* Asks the kernel to read `size` bytes at `offset` (POSIX_FADV_WILLNEED); returns at once. True where nothing
 * had to be asked: of up to `small` bytes it is first looked whether the last of them is there. */
bool fl_page_cache_ahead(fl_page_cache *cache, int fd, uint64_t offset, uint32_t size, uint32_t small);

/* True if all of the last 1,024 reads that were asked for were in the page cache. */
bool fl_page_cache_warm(const fl_page_cache *cache);

#endif
