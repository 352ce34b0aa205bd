#define _GNU_SOURCE
#include "store/page_cache.h"

#include <fcntl.h>
#include <sys/uio.h>

enum { WARM = 1024 };

/* True if the file's page with this byte is in the page cache; if it is not, the kernel may begin to read it.
 * False if it cannot tell. (mincore() says yes to everything when asked by a process that may not write the
 * file.) */
static bool cached(int fd, off_t at) {
#ifdef RWF_NOWAIT
    uint8_t byte;
    const struct iovec to = {&byte, 1};
    return preadv2(fd, &to, 1, at, RWF_NOWAIT) == 1;
#else
    (void)fd, (void)at;
    return false;
#endif
}

bool fl_page_cache_ahead(fl_page_cache *cache, int fd, uint64_t offset, uint32_t size, uint32_t small) {
    if (size && size <= small && cached(fd, (off_t)(offset + size - 1))) {
        if (!fl_page_cache_warm(cache)) atomic_fetch_add_explicit(&cache->found, 1, memory_order_relaxed);
        return true;
    }
    atomic_store_explicit(&cache->found, 0, memory_order_relaxed);
    (void)posix_fadvise(fd, (off_t)offset, size, POSIX_FADV_WILLNEED);
    return false;
}

bool fl_page_cache_warm(const fl_page_cache *cache) {
    return atomic_load_explicit(&cache->found, memory_order_relaxed) >= WARM;
}
