#define _GNU_SOURCE
#include "engine/map.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

fl_mapped fl_map(int fd, size_t bytes, void **data) {
    void *pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) return FL_MAP_REFUSED;
    madvise(pages, bytes, MADV_HUGEPAGE);
    if (madvise(pages, bytes, MADV_POPULATE_WRITE) != 0) {
        if (errno == ENOMEM || errno == EFAULT) {
            munmap(pages, bytes);
            return FL_MAP_SHORT;
        }
        /* An older kernel: by hand, but not where another process may have written. */
        for (size_t at = 0; fd < 0 && at < bytes; at += 4096) ((volatile char *)pages)[at] = 0;
    }
    *data = pages;
    return FL_MAP_OK;
}
