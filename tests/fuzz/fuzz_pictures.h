/* Pictures of an image's file: copies of boxes, and a box against the whole. */
#ifndef FUZZ_PICTURES_H
#define FUZZ_PICTURES_H

#include "common/image.h"
#include "fuzz.h"

/* The RGB pixels of a view of a box, in a block of their own size. */
static inline uint8_t *fuzz_pixels(const fl_view *view, fl_box box) {
    CHECK(view->width == box.width && view->height == box.height && !view->channels);
    const size_t row = 3 * (size_t)box.width;
    uint8_t *pixels = fuzz_allocate(row * box.height);
    for (uint32_t y = 0; y < box.height; y++) memcpy(pixels + row * y, view->pixels + y * view->stride, row);
    return pixels;
}

/* Any box of an image. */
static inline fl_box fuzz_box(uint32_t width, uint32_t height) {
    const uint32_t x = below(width), y = below(height);
    return (fl_box){x, y, 1 + below(width - x), 1 + below(height - y)};
}

/* Checks that the pixels of a box are those of the whole image, `width` pixels wide. */
static inline void fuzz_check_part(const uint8_t *part, fl_box box, const uint8_t *whole, uint32_t width) {
    const size_t row = 3 * (size_t)box.width;
    for (uint32_t y = 0; y < box.height; y++)
        CHECK(!memcmp(part + row * y, whole + 3 * ((size_t)width * (box.y + y) + box.x), row));
}

#endif
