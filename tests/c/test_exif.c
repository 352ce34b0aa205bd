/* Orientations in EXIF and XMP: what is certain, what is turned, and hostile segments: never a byte beyond
 * them. */
#define _GNU_SOURCE
#include "jpeg/exif.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef struct built {
    uint8_t bytes[512];
    size_t size;
} built;

static void put(built *b, const void *bytes, size_t size) {
    CHECK(b->size + size <= sizeof b->bytes);
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
}

static void begin(built *b) {
    b->size = 0;
    put(b, "\xFF\xD8", 2);
}

static void segment(built *b, uint8_t marker, const void *payload, size_t size) {
    const uint8_t head[4] = {0xFF, marker, (uint8_t)((size + 2) >> 8), (uint8_t)(size + 2)};
    put(b, head, sizeof head);
    put(b, payload, size);
}

/* Asked of an exact copy, so that the address sanitizer sees a read beyond it. */
static bool upright(const built *b, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, b->bytes, size);
    const bool found = fl_jpeg_exif_upright(copy, size);
    free(copy);
    return found;
}

static bool whole(built *b) {
    segment(b, 0xDB, "tables", 6);
    segment(b, 0xDA, "scan", 4);
    return upright(b, b->size);
}

static bool with(const void *payload, size_t size) {
    built b;
    begin(&b);
    segment(&b, 0xE0, "JFIF", 5);
    segment(&b, 0xE1, payload, size);
    return whole(&b);
}

static bool with_text(const char *xmp) {
    char payload[256] = "http://ns.adobe.com/xap/1.0/";
    const size_t head = strlen(payload) + 1;
    strcpy(payload + head, xmp);
    return with(payload, head + strlen(xmp));
}

static void exif(void) {
    uint8_t little[] = "Exif\0\0II\x2A\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x01\0\0\0";
    uint8_t big[] = "Exif\0\0MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x01\0";
    const size_t size = 28; /* of both, without what C adds to a text */
    CHECK(with(little, size) && with(big, size) && fl_jpeg_exif_orientation(little, size) == 1 &&
          fl_jpeg_exif_orientation(big, size) == 1);
    for (uint8_t value = 0; value < 12; value++) {
        little[24] = value, big[25] = value;
        CHECK(with(little, size) == (value == 1) && with(big, size) == (value == 1));
        CHECK(fl_jpeg_exif_orientation(little, size) == (value <= 8 ? value : 0));
    }
    little[24] = 1;
    for (size_t cut = 6; cut < size; cut++) CHECK(!with(little, cut));
    for (size_t at = 6; at < 24; at++) {
        uint8_t broken[sizeof little];
        memcpy(broken, little, sizeof broken);
        broken[at] = 0xFF;
        const bool other_tag = at == 16 || at == 17;
        CHECK(with(broken, size) == other_tag);
    }
    CHECK(with("Exif", 5) && with("other", 5) && with("", 0)); /* no EXIF at all */
}

static void xmp(void) {
    CHECK(with_text("<x/>") && with_text("a tiff:Orientation=\"1\" b") &&
          with_text("<tiff:Orientation>1</tiff:Orientation>"));
    CHECK(!with_text("tiff:Orientation=\"6\"") && !with_text("<tiff:Orientation>6<") &&
          !with_text("tiff:Orientation") && !with_text("tiff:Orientation=\"1"));
    CHECK(!with_text("tiff:Orientation='1'") && !with_text("tiff:Orientation=\"10\""));
}

static void structure(void) {
    built b;
    begin(&b);
    CHECK(whole(&b));
    for (size_t cut = 0; cut < b.size - 6; cut++) CHECK(!upright(&b, cut));
    begin(&b);
    put(&b, "\xFF", 1); /* a fill byte */
    CHECK(!whole(&b));
    begin(&b);
    put(&b, "stray", 5);
    CHECK(!whole(&b));
    begin(&b);
    put(&b, "\xFF\xD9", 2);
    CHECK(!whole(&b));
    begin(&b);
    put(&b, "\xFF\xE1\0\1", 4); /* shorter than its length field */
    CHECK(!whole(&b));
    const uint8_t plain[] = "Exif\0\0II\x2A\0\x08\0\0\0\0\0";
    begin(&b);
    segment(&b, 0xE1, plain, sizeof plain);
    CHECK(whole(&b));
    begin(&b);
    segment(&b, 0xE1, plain, sizeof plain);
    segment(&b, 0xE1, plain, sizeof plain);
    CHECK(!whole(&b));
}

int main(void) {
    exif();
    xmp();
    structure();
    puts("exif: ok");
    return 0;
}
