/* Bytes in which probes note that a fault's line ran, as hits.py has them. The objects of a program share one
 * map. */
#ifndef MUTANT_HITS_H
#define MUTANT_HITS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MUTANT_HITS_SIZE = 4096 };

__attribute__((weak, visibility("hidden"))) unsigned char mutant_hits_own[MUTANT_HITS_SIZE];
__attribute__((weak, visibility("hidden"))) unsigned char *mutant_hits = mutant_hits_own;

__attribute__((constructor)) static void mutant_hits_map(void) {
    const char *path = getenv("MUTANT_HITS");
    const int fd = path && mutant_hits == mutant_hits_own ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, MUTANT_HITS_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) mutant_hits = map;
    close(fd);
}

#define MUTANT_HIT(number) __atomic_store_n(&mutant_hits[number], 1, __ATOMIC_RELAXED)

#endif
