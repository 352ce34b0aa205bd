/* PNGs made of rows, and their filters undone as PNG's specification has it. */
#ifndef PNG_MAKER_H
#define PNG_MAKER_H

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "png/chunks.h"

enum { PNG_LARGEST = 1 << 16 /* bytes of the data of a made file */ };

static inline uint8_t *png_put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
    return at + 4;
}

static inline uint8_t *png_put_chunk(uint8_t *at, const char *name, const uint8_t *content, size_t size) {
    uint8_t *start = png_put32(at, (uint32_t)size);
    memcpy(start, name, 4);
    memcpy(start + 4, content, size);
    return png_put32(start + 4 + size, libdeflate_crc32(0, start, size + 4));
}

/* A file of the rows, whose data lies in chunks of `each` bytes. */
static inline size_t png_make(const fl_png *png, const uint8_t *rows, size_t size, size_t each,
                              uint8_t *out) {
    static const uint8_t magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    uint8_t header[13] = {0}, *data = malloc(PNG_LARGEST);
    struct libdeflate_compressor *deflater = libdeflate_alloc_compressor(1);
    const size_t packed = libdeflate_zlib_compress(deflater, rows, size, data, PNG_LARGEST);
    CHECK(data && packed);
    png_put32(png_put32(header, png->width), png->height);
    header[8] = png->bits, header[9] = (uint8_t)png->colour;
    memcpy(out, magic, sizeof magic);
    uint8_t *at = png_put_chunk(out + sizeof magic, "IHDR", header, sizeof header);
    if (png->colour == FL_PNG_PALETTE) at = png_put_chunk(at, "PLTE", png->palette.bytes, png->palette.size);
    for (size_t from = 0; from < packed; from += each)
        at = png_put_chunk(at, "IDAT", data + from, packed - from < each ? packed - from : each);
    at = png_put_chunk(at, "IEND", header, 0);
    libdeflate_free_compressor(deflater);
    free(data);
    return (size_t)(at - out);
}

/* PNG's filters as the specification has them, byte for byte. */
static inline void png_plain_unfilter(uint8_t *rows, size_t row, uint32_t height, uint32_t step) {
    for (uint32_t y = 0; y < height; y++) {
        uint8_t *now = rows + y * (row + 1) + 1, *above = now - row - 1;
        for (size_t i = 0; i < row; i++) {
            const int a = i >= step ? now[i - step] : 0, b = y ? above[i] : 0,
                      c = y && i >= step ? above[i - step] : 0, p = a + b - c;
            const int nearest = abs(p - a) <= abs(p - b) && abs(p - a) <= abs(p - c) ? a
                                : abs(p - b) <= abs(p - c)                           ? b
                                                                                     : c;
            const int base[5] = {0, a, b, (a + b) / 2, nearest};
            now[i] = (uint8_t)(now[i] + base[now[-1]]);
        }
    }
}

#endif
