#define _GNU_SOURCE
#include "engine/map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { PAGE = 4096 };

/* False: the kernel says that memory ran out. *known: it has faulted them in; else it is too old to do so. */
static bool populate(void *pages, size_t bytes, bool *known) {
    *known = madvise(pages, bytes, MADV_POPULATE_WRITE) == 0;
    return *known || (errno != ENOMEM && errno != EFAULT);
}

fl_mapped fl_map(int fd, size_t bytes, void **data) {
    void *pages =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) return FL_MAP_REFUSED;
    madvise(pages, bytes, MADV_HUGEPAGE);
    bool known;
    if (!populate(pages, bytes, &known)) {
        munmap(pages, bytes);
        return FL_MAP_SHORT;
    }
    /* By hand, but not where another process may have written. */
    for (size_t at = 0; !known && fd < 0 && at < bytes; at += PAGE) ((volatile char *)pages)[at] = 0;
    *data = pages;
    return FL_MAP_OK;
}

fl_mapped fl_map_sparse(int fd, size_t bytes, void **data) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED) return FL_MAP_REFUSED;
    *data = pages;
    return FL_MAP_OK;
}

bool fl_map_touch(void *data, size_t bytes) {
    uint8_t *start = (uint8_t *)data - (uintptr_t)data % PAGE;
    bool known;
    return populate(start, (size_t)((uint8_t *)data + bytes - start), &known);
}
