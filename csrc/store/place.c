#define _GNU_SOURCE
#include "store/place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <unistd.h>

static const fl_buffer_rule RULE = {.least = 256 << 10, .keep = 4 << 20}; /* of images */

fl_code fl_place_open(const char *path, int *fd, struct stat *st, fl_error *err) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0) {
        const bool full = errno == EMFILE || errno == ENFILE;
        const char *what =
            full ? "raise the limit on open files (ulimit -n): it cannot be opened" : "it cannot be opened";
        return fl_fail_sys(err, full || errno == ENOMEM ? FL_ERESOURCE : FL_EIO, errno, "%s", what);
    }
    fl_code code = FL_OK;
    if (fstat(*fd, st) != 0) code = fl_fail_sys(err, FL_EIO, errno, "its size cannot be told");
    else if (!S_ISREG(st->st_mode)) code = fl_fail(err, FL_EIO, "it is not a regular file");
    if (code) {
        close(*fd);
        *fd = -1;
    }
    return code;
}

fl_code fl_place_check(const struct stat *st, uint64_t offset, uint64_t size, fl_error *err) {
    const uint64_t whole = st->st_size > 0 ? (uint64_t)st->st_size : 0;
    if (!size || size > FL_PLACE_MOST) return fl_fail(err, FL_EIO, "it has %" PRIu64 " bytes", size);
    if (offset > whole || size > whole - offset)
        return fl_fail(err, FL_EIO,
                       "its %" PRIu64 " bytes at %" PRIu64 " are not in the file, which has %" PRIu64, size,
                       offset, whole);
    return FL_OK;
}

fl_code fl_place_read(int fd, uint64_t offset, size_t size, fl_buffer *buffer, fl_span *bytes,
                      fl_error *err) {
    if (!fl_buffer_fit(buffer, size, 1, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for an image of %zu bytes", size);
    uint8_t *into = buffer->bytes;
    for (size_t done = 0; done < size;) {
        const ssize_t count = pread(fd, into + done, size - done, (off_t)(offset + done));
        if (count == 0)
            return fl_fail(err, FL_EIO, "it was cut to %zu of %zu bytes while it was read", done, size);
        if (count < 0 && errno != EINTR) return fl_fail_sys(err, FL_EIO, errno, "it cannot be read");
        if (count > 0) done += (size_t)count;
    }
    *bytes = (fl_span){into, size};
    return FL_OK;
}

static uint64_t mixed(const uint64_t *parts, size_t count) {
    uint64_t sum = 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < count; i++) {
        sum = (sum ^ parts[i]) * 0xD6E8FEB86659FD93u;
        sum ^= sum >> 32;
    }
    return sum ? sum : 1;
}

uint64_t fl_place_stamp(const struct stat *st) {
    const uint64_t parts[] = {(uint64_t)st->st_ino,         (uint64_t)st->st_size,
                              (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
                              (uint64_t)st->st_ctim.tv_sec, (uint64_t)st->st_ctim.tv_nsec};
    return mixed(parts, sizeof parts / sizeof *parts);
}

uint64_t fl_place_content_stamp(const struct stat *st) {
    const uint64_t parts[] = {(uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec};
    return mixed(parts, sizeof parts / sizeof *parts);
}

uint64_t fl_place_now(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? fl_place_stamp(&st) : 0;
}
