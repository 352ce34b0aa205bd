#define _GNU_SOURCE
#include "store/attached.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/crc32c.h"
#include "store/place.h"

#define AGAIN "put it back as it was, or attach the data again"
#define MOVED "put it back, `fastload rebase` if its folder was moved, or attach the data again"

enum { SHOWN = 96 }; /* bytes of a path in a message, so that all of it fits FL_TEXT */

typedef struct place {
    uint64_t offset, file_size;
    int64_t changed; /* ns since 1970 */
    uint32_t size, crc;
    char path[PATH_MAX];
    const char *name; /* the path for messages: its end, where it is long */
} place;

static fl_code parse(fl_span entry, const char *base, place *out, fl_error *err) {
    if (entry.size <= FL_ATTACHED_HEAD)
        return fl_fail(err, FL_ERECORD, "the place of its image has %zu bytes, and no path", entry.size);
    const uint8_t *at = entry.bytes;
    const size_t length = entry.size - FL_ATTACHED_HEAD;
    *out = (place){.offset = fl_bytes_le64(at),
                   .file_size = fl_bytes_le64(at + 8),
                   .changed = (int64_t)fl_bytes_le64(at + 16)};
    out->size = fl_bytes_le32(at + 24), out->crc = fl_bytes_le32(at + 28);
    if (!out->size || out->size > FL_PLACE_MOST || out->offset > (uint64_t)INT64_MAX - out->size)
        return fl_fail(err, FL_ERECORD, "the place of its image says %" PRIu32 " bytes at %" PRIu64,
                       out->size, out->offset);
    at += FL_ATTACHED_HEAD;
    size_t before = 0;
    if (*at != '/') {
        if (!base)
            return fl_fail(err, FL_ERECORD,
                           "its image lies in another file, but its shard names no folder of such files");
        before = strlen(base) + 1;
    }
    if (memchr(at, 0, length) || before + length >= PATH_MAX)
        return fl_fail(
            err, FL_ERECORD,
            "the path of its image has a zero byte, or more than the %d bytes that the system takes",
            PATH_MAX - 1);
    if (before) {
        memcpy(out->path, base, before - 1);
        out->path[before - 1] = '/';
    }
    memcpy(out->path + before, at, length);
    out->path[before + length] = 0;
    out->name = out->path + (before + length > SHOWN ? before + length - SHOWN : 0);
    return FL_OK;
}

/* The error for bytes that are not those that were attached. */
static fl_code changed(const place *p, const struct stat *st, fl_error *err) {
    const int64_t now = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    if ((uint64_t)st->st_size != p->file_size)
        return fl_fail(err, FL_ECHECKSUM,
                       "%s was changed after it was attached (%" PRIu64 " bytes then, %" PRIu64
                       " now): " AGAIN,
                       p->name, p->file_size, (uint64_t)st->st_size);
    return fl_fail(err, FL_ECHECKSUM, "%s %s: " AGAIN, p->name,
                   now == p->changed
                       ? "has other bytes than when it was attached, though its size and time are the same"
                       : "was changed after it was attached");
}

/* Advice about a file that cannot be read. */
static const char *advice(int sys) {
    switch (sys) {
    case ENOENT:
    case ENOTDIR: return MOVED;
    case EACCES:
    case EPERM: return "make it readable";
    default: return AGAIN;
    }
}

/* Puts the file's name before the reason why it cannot be read. */
static fl_code named(const place *p, fl_code code, fl_error *err) {
    if (!err) return code;
    const fl_error why = *err;
    if (code == FL_ERESOURCE) fl_fail(err, code, "%s: %.130s", p->name, why.text);
    else fl_fail(err, code, "%s: %.80s: %s", p->name, why.text, advice(why.sys));
    err->sys = why.sys;
    return code;
}

static fl_code read_open(const place *p, int fd, const struct stat *st, fl_buffer *buffer, fl_span *image,
                         fl_error *err) {
    if ((uint64_t)st->st_size < p->offset + p->size) return changed(p, st, err);
    const fl_code code = fl_place_read(fd, p->offset, p->size, buffer, image, err);
    if (code == FL_ENOMEM) return code;
    if (code) return named(p, code, err);
    return fl_crc32c(0, image->bytes, image->size) == p->crc ? FL_OK : changed(p, st, err);
}

fl_code fl_attached_read(fl_span entry, const char *base, fl_buffer *buffer, fl_span *image, uint64_t *stamp,
                         fl_error *err) {
    place p;
    struct stat st;
    int fd = -1;
    fl_code code = parse(entry, base, &p, err);
    if (code) return code;
    code = fl_place_open(p.path, &fd, &st, err);
    if (code) return named(&p, code, err);
    if (stamp) *stamp = fl_place_stamp(&st);
    code = read_open(&p, fd, &st, buffer, image, err);
    close(fd);
    return code;
}

uint64_t fl_attached_now(fl_span entry, const char *base) {
    place p;
    return parse(entry, base, &p, NULL) ? 0 : fl_place_now(p.path);
}

bool fl_attached_ahead(fl_span entry, const char *base, fl_page_cache *cache) {
    place p;
    struct stat st;
    int fd = -1;
    if (parse(entry, base, &p, NULL) || fl_place_open(p.path, &fd, &st, NULL)) return false;
    const bool found = (uint64_t)st.st_size >= p.offset + p.size &&
                       fl_page_cache_ahead(cache, fd, p.offset, p.size, UINT32_MAX);
    close(fd);
    return found;
}
