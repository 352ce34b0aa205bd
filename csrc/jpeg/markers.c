/* Source of the rules: ITU-T T.81, annex B, and what libjpeg
 * makes of files that break them (it looks for the next marker, over stray bytes and stuffed zeros). */
#include "jpeg/markers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "jpeg/exif.h"

/* Bytes that libjpeg reads of the two markers that decide the colour space; it skips shorter ones. */
enum { JFIF_DATA = 14, ADOBE_DATA = 12 };

typedef struct walk {
    const uint8_t *bytes;
    size_t size, at;
    fl_jpeg_layout *layout;
    uint8_t *out; /* NULL: nothing is copied */
    size_t written;
    bool framed;
    uint32_t interval; /* of the scan to come */
} walk;

static void copy(walk *w, const uint8_t *bytes, size_t size) {
    if (!w->out) return;
    memcpy(w->out + w->written, bytes, size);
    w->written += size;
}

__attribute__((format(printf, 2, 3))) static void damage(walk *w, const char *format, ...) {
    if (w->layout->damaged) return;
    w->layout->damaged = true;
    va_list args;
    va_start(args, format);
    vsnprintf(w->layout->damage, sizeof w->layout->damage, format, args);
    va_end(args);
}

/* Moves to the next marker and returns its code, 0 at the end of the bytes. Stray bytes are counted, fill
 * bytes are not. */
static uint8_t next_marker(walk *w, size_t *offset) {
    while (w->at < w->size) {
        if (w->bytes[w->at] != 0xFF) {
            const uint8_t *found = memchr(w->bytes + w->at, 0xFF, w->size - w->at);
            size_t next = found ? (size_t)(found - w->bytes) : w->size;
            w->layout->stray += (uint32_t)(next - w->at);
            w->at = next;
            continue;
        }
        while (w->at < w->size && w->bytes[w->at] == 0xFF) w->at++;
        if (w->at == w->size) break;
        uint8_t code = w->bytes[w->at++];
        if (code != 0) {
            *offset = w->at - 2;
            return code;
        }
        w->layout->stray += 2;
    }
    return 0;
}

/* From the first byte after an SOS header over stuffed zeros, fill bytes and restart markers to the marker
 * that ends the scan. */
static void pass_coded_data(walk *w) {
    uint8_t expected = FL_JPEG_RST0;
    for (;;) {
        const uint8_t *found = w->at < w->size ? memchr(w->bytes + w->at, 0xFF, w->size - w->at) : NULL;
        if (!found) {
            w->at = w->size;
            break;
        }
        size_t first = (size_t)(found - w->bytes), code = first;
        while (code < w->size && w->bytes[code] == 0xFF) code++;
        if (code == w->size) {
            w->at = w->size;
            break;
        }
        uint8_t marker = w->bytes[code];
        if (marker != 0 && !(marker >= FL_JPEG_RST0 && marker <= FL_JPEG_RST7)) {
            w->at = first;
            break;
        }
        if (marker != 0) {
            if (!w->interval)
                damage(w, "a restart marker at byte %zu, though the file declares no restarts", first);
            else if (marker != expected)
                damage(w, "restart marker %d at byte %zu where %d is due", marker - FL_JPEG_RST0, first,
                       expected - FL_JPEG_RST0);
            expected = (uint8_t)(FL_JPEG_RST0 + ((marker - FL_JPEG_RST0 + 1) & 7));
        }
        w->at = code + 1;
    }
}

static bool frame(walk *w, uint8_t marker, const uint8_t *p, size_t size) {
    fl_jpeg_layout *l = w->layout;
    if (w->framed) return damage(w, "a second frame header"), false;
    if (size < 6 || size != 6 + 3 * (size_t)p[5])
        return damage(w, "a frame header of the wrong length"), false;
    int n = marker - FL_JPEG_SOF0;
    static const fl_jpeg_kind kinds[4] = {FL_JPEG_EXTENDED, FL_JPEG_EXTENDED, FL_JPEG_PROGRESSIVE,
                                          FL_JPEG_LOSSLESS};
    l->kind = n == 0 ? FL_JPEG_BASELINE : n & 4 ? FL_JPEG_HIERARCHICAL : kinds[n & 3];
    l->arithmetic = n >= 8;
    l->precision = p[0];
    l->height = fl_bytes_be16(p + 1);
    l->width = fl_bytes_be16(p + 3);
    l->components = p[5];
    for (int i = 0; i < l->components && i < 4; i++) l->h[i] = p[7 + 3 * i] >> 4, l->v[i] = p[7 + 3 * i] & 15;
    w->framed = true;
    return true;
}

/* An application segment or comment: noted, and of those that decide the colour space, the deciding part
 * kept. */
static void application(walk *w, uint8_t marker, const uint8_t *p, size_t size) {
    fl_jpeg_layout *l = w->layout;
    if (l->scans) return; /* libjpeg settles the colour space at the first scan */
    if (marker == FL_JPEG_APP0 && size >= JFIF_DATA && memcmp(p, "JFIF", 5) == 0) {
        l->jfif = true;
        const uint8_t head[4] = {0xFF, FL_JPEG_APP0, 0, JFIF_DATA + 2}, no_thumbnail[2] = {0, 0};
        copy(w, head, sizeof head);
        copy(w, p, JFIF_DATA - 2);
        copy(w, no_thumbnail, sizeof no_thumbnail);
    } else if (marker == FL_JPEG_APP14 && size >= ADOBE_DATA && memcmp(p, "Adobe", 5) == 0) {
        l->adobe = p[11];
        const uint8_t head[4] = {0xFF, FL_JPEG_APP14, 0, ADOBE_DATA + 2};
        copy(w, head, sizeof head);
        copy(w, p, ADOBE_DATA);
    } else if (marker == FL_JPEG_APP1 && size >= 6 && memcmp(p, "Exif\0", 6) == 0) {
        l->exif = true;
        uint8_t found = fl_jpeg_exif_orientation(p, size);
        if (found && l->orientation == 0) l->orientation = found;
    } else if (marker == FL_JPEG_APP2 && size >= 12 && memcmp(p, "ICC_PROFILE", 12) == 0) {
        l->icc = true;
    }
}

static fl_code cut(walk *w, fl_error *err) {
    w->layout->end = w->size;
    if (w->layout->scans) return FL_OK;
    return fl_fail(err, FL_ETRUNCATED, "the JPEG is cut off: its %zu bytes end before its first scan",
                   w->size);
}

static bool has_payload(uint8_t m) {
    return (m >= FL_JPEG_SOF0 && m <= FL_JPEG_SOF15 && m != FL_JPEG_JPG) ||
           (m >= FL_JPEG_SOS && m <= FL_JPEG_DRI) || (m >= FL_JPEG_APP0 && m <= FL_JPEG_APP15) ||
           m == FL_JPEG_COM;
}

/* One segment; *more becomes false at the end of the image. */
static fl_code step(walk *w, bool *more, fl_error *err) {
    fl_jpeg_layout *l = w->layout;
    size_t offset = 0;
    uint8_t marker = next_marker(w, &offset);
    *more = false;
    if (marker == 0) return cut(w, err);
    l->end = w->at;
    if (marker == FL_JPEG_EOI) {
        l->eoi = true;
        const uint8_t eoi[2] = {0xFF, FL_JPEG_EOI};
        copy(w, eoi, sizeof eoi);
        if (l->scans == 0)
            return fl_fail(err, FL_EJPEG, "the JPEG ends at byte %zu without a scan: it holds no picture",
                           w->at);
        return FL_OK;
    }
    if (marker == FL_JPEG_TEM || (marker >= FL_JPEG_RST0 && marker <= FL_JPEG_RST7)) {
        damage(w, "marker 0x%02x at byte %zu, outside a scan", marker, offset);
        *more = true;
        return FL_OK;
    }
    if (!has_payload(marker)) {
        damage(w, "marker 0x%02x at byte %zu, which no JPEG has there", marker, offset);
        return l->scans ? FL_OK : fl_fail(err, FL_EJPEG, "not a JPEG that can be read: %s", l->damage);
    }
    if (w->size - w->at < 2) return cut(w, err);
    size_t length = fl_bytes_be16(w->bytes + w->at);
    if (length < 2) {
        damage(w, "segment 0x%02x at byte %zu is shorter than its own length field", marker, offset);
        return l->scans ? FL_OK : fl_fail(err, FL_EJPEG, "not a JPEG that can be read: %s", l->damage);
    }
    if (length > w->size - w->at) return cut(w, err);
    const uint8_t *payload = w->bytes + w->at + 2;
    size_t size = length - 2;
    w->at += length;
    *more = true;
    if (marker >= FL_JPEG_APP0) {
        application(w, marker, payload, size);
    } else {
        if (marker >= FL_JPEG_SOF0 && marker <= FL_JPEG_SOF15 && marker != FL_JPEG_DHT &&
            marker != FL_JPEG_DAC && !frame(w, marker, payload, size)) {
            *more = false;
            return l->scans ? FL_OK : fl_fail(err, FL_EJPEG, "not a JPEG that can be read: %s", l->damage);
        }
        if (marker == FL_JPEG_DRI && size >= 2) w->interval = fl_bytes_be16(payload);
        if (marker == FL_JPEG_SOS) {
            if (!w->framed)
                return fl_fail(err, FL_EJPEG, "the JPEG has a scan at byte %zu before any frame header",
                               offset);
            if (l->scans++ == 0) l->restart_interval = w->interval;
            pass_coded_data(w);
        }
        copy(w, w->bytes + offset, w->at - offset);
    }
    l->end = w->at;
    return FL_OK;
}

static fl_code walk_file(walk *w, fl_error *err) {
    fl_jpeg_layout *l = w->layout;
    memset(l, 0, sizeof *l);
    l->adobe = -1;
    if (w->size < 2 || w->bytes[0] != 0xFF || w->bytes[1] != FL_JPEG_SOI) {
        if (w->size < 2) return fl_fail(err, FL_ETRUNCATED, "the JPEG is cut off: it has %zu bytes", w->size);
        return fl_fail(err, FL_EJPEG, "not a JPEG: it starts with 0x%02x 0x%02x", w->bytes[0], w->bytes[1]);
    }
    copy(w, w->bytes, 2);
    w->at = 2;
    for (bool more = true; more;) {
        fl_code code = step(w, &more, err);
        if (code != FL_OK) return code;
    }
    if (l->orientation == 0) l->orientation = 1;
    return FL_OK;
}

fl_code fl_jpeg_markers_read(const uint8_t *bytes, size_t size, fl_jpeg_layout *layout, fl_error *err) {
    walk w = {.bytes = bytes, .size = size, .layout = layout};
    return walk_file(&w, err);
}

fl_code fl_jpeg_strip(const uint8_t *bytes, size_t size, uint8_t *out, size_t capacity, size_t *written,
                      fl_error *err) {
    fl_jpeg_layout layout;
    if (capacity < size)
        return fl_fail(err, FL_EARG, "fl_jpeg_strip: room for %zu bytes, %zu needed", capacity, size);
    walk w = {.bytes = bytes, .size = size, .layout = &layout, .out = out};
    fl_code code = walk_file(&w, err);
    if (code != FL_OK) return code;
    if (layout.damaged) return fl_fail(err, FL_EJPEG, "the JPEG's structure is damaged: %s", layout.damage);
    *written = w.written;
    return FL_OK;
}
