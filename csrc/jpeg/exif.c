/* Sources of the rules: EXIF 2.3, 4.6 (the TIFF header, IFD0 and its tag 0x0112); XMP part 3, 1.1.3 (the
 * segment of a JPEG). */
#define _GNU_SOURCE
#include "jpeg/exif.h"

#include <string.h>

#include "common/bytes.h"
#include "jpeg/markers.h"

enum { HEAD = 6, TIFF_HEAD = 8, ENTRY = 12, ORIENTATION = 0x0112, SHORT = 3, LONG = 4 };

static const char XMP[] = "http://ns.adobe.com/xap/1.0/"; /* with its zero */
static const char XMP_TAG[] = "tiff:Orientation";

static uint32_t number(const uint8_t *p, int bytes, bool little) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)p[i] << 8 * (little ? i : bytes - 1 - i);
    return value;
}

/* IFD0 of an EXIF payload. */
typedef struct ifd {
    const uint8_t *entry; /* the first */
    size_t count, whole; /* as the payload tells; as many as lie in it */
    bool little;
} ifd;

static bool find_ifd(const uint8_t *p, size_t size, ifd *found) {
    if (size < HEAD + TIFF_HEAD || memcmp(p, "Exif\0", HEAD) != 0) return false;
    p += HEAD, size -= HEAD;
    found->little = p[0] == 'I' && p[1] == 'I';
    if ((!found->little && !(p[0] == 'M' && p[1] == 'M')) || number(p + 2, 2, found->little) != 42)
        return false;
    const size_t at = number(p + 4, 4, found->little);
    if (at > size || size - at < 2) return false;
    found->entry = p + at + 2;
    found->count = number(p + at, 2, found->little);
    found->whole = (size - at - 2) / ENTRY < found->count ? (size - at - 2) / ENTRY : found->count;
    return true;
}

uint8_t fl_jpeg_exif_orientation(const uint8_t *payload, size_t size) {
    ifd found;
    if (!find_ifd(payload, size, &found)) return 0;
    for (size_t i = 0; i < found.whole; i++) {
        const uint8_t *entry = found.entry + i * ENTRY;
        if (number(entry, 2, found.little) != ORIENTATION) continue;
        const uint32_t type = number(entry + 2, 2, found.little); /* LONG is also met with */
        const uint32_t value = type == SHORT  ? number(entry + 8, 2, found.little)
                               : type == LONG ? number(entry + 8, 4, found.little)
                                              : 0;
        return value >= 1 && value <= 8 ? (uint8_t)value : 0;
    }
    return 0;
}

static bool exif_upright(const uint8_t *p, size_t size) {
    ifd found;
    if (!find_ifd(p, size, &found) || found.whole < found.count) return false;
    for (size_t i = 0; i < found.count; i++) {
        const uint8_t *entry = found.entry + i * ENTRY;
        if (number(entry, 2, found.little) != ORIENTATION) continue;
        if (number(entry + 2, 2, found.little) != SHORT || number(entry + 4, 4, found.little) != 1)
            return false;
        if (number(entry + 8, 2, found.little) != 1) return false;
    }
    return true;
}

static bool xmp_upright(const uint8_t *p, size_t size) {
    const size_t tag = sizeof XMP_TAG - 1;
    const uint8_t *const end = p + size;
    for (const uint8_t *at = p; (at = memmem(at, (size_t)(end - at), XMP_TAG, tag)); at += tag) {
        const uint8_t *value = at + tag;
        const size_t rest = (size_t)(end - value);
        const bool attribute = rest >= 4 && memcmp(value, "=\"1\"", 4) == 0,
                   element = rest >= 3 && memcmp(value, ">1<", 3) == 0;
        const bool ended = rest < 2 || value[1] < '0' || value[1] > '9';
        const bool closing = at > p && at[-1] == '/' && rest >= 1 && value[0] == '>' && ended;
        if (!attribute && !element && !closing) return false;
    }
    return true;
}

bool fl_jpeg_exif_upright(const uint8_t *bytes, size_t size) {
    if (size < 2 || bytes[0] != 0xFF || bytes[1] != FL_JPEG_SOI) return false;
    bool seen =
        false; /* a second EXIF segment continues the first for some readers, and is another one for others */
    for (size_t at = 2; size - at >= 4;) {
        const uint8_t marker = bytes[at + 1], *payload = bytes + at + 4;
        const size_t length = fl_bytes_be16(bytes + at + 2);
        if (bytes[at] != 0xFF || marker < FL_JPEG_SOF0 || marker == 0xFF ||
            (marker >= FL_JPEG_RST0 && marker <= FL_JPEG_EOI))
            return false;
        if (marker == FL_JPEG_SOS) return true;
        if (length < 2 || length > size - at - 2) return false;
        if (marker == FL_JPEG_APP1 && length - 2 >= HEAD && memcmp(payload, "Exif\0", HEAD) == 0) {
            if (seen || !exif_upright(payload, length - 2)) return false;
            seen = true;
        }
        if (marker == FL_JPEG_APP1 && length - 2 >= sizeof XMP && memcmp(payload, XMP, sizeof XMP) == 0) {
            if (!xmp_upright(payload, length - 2)) return false;
        }
        at += 2 + length;
    }
    return false;
}
