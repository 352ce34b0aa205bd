/* A folder of a test's own, and files in it by their names. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/fl-test-XXXXXX"; /* mkdtemp() makes it */

static int opened(const char *name, int flags) {
    char path[PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    return fd;
}

static void removed(const char *name) {
    char path[PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path && unlink(path) == 0);
}

#endif
