/* A WebP of every coding, cut anywhere or with any byte changed, is refused or read within its bytes; a box
 * is what the whole says. */
#include "webp/webp.h"

#include <webp/encode.h>

#include "check.h"
#include "draws.h"

enum { WIDTH = 21, HEIGHT = 18, LARGEST = 1 << 12 };

static fl_buffer rows;

/* In a block of its own size, so that a sanitizer sees a read beyond it. */
static fl_code read_copy(const uint8_t *file, size_t size, fl_box box, bool sound, uint8_t *out) {
    uint8_t *copy = malloc(size ? size : 1);
    CHECK(copy);
    memcpy(copy, file, size);
    fl_webp webp;
    fl_view view;
    fl_error err;
    fl_code code = fl_webp_open((fl_span){copy, size}, &webp, &err);
    if (!code && webp.width == WIDTH && webp.height == HEIGHT) {
        code = fl_webp_box(&webp, box, sound, &rows, &view, &err);
        for (uint32_t y = 0; !code && out && y < box.height; y++)
            memcpy(out + 3 * (size_t)box.width * y, view.pixels + y * view.stride, 3 * (size_t)box.width);
    }
    CHECK(code == FL_OK || code == FL_EUNSUPPORTED);
    free(copy);
    return code;
}

static void check_boxes(const uint8_t *file, size_t size) {
    static uint8_t whole[3 * WIDTH * HEIGHT], part[3 * WIDTH * HEIGHT];
    CHECK(read_copy(file, size, (fl_box){0, 0, WIDTH, HEIGHT}, false, whole) == FL_OK);
    for (int round = 0; round < 200; round++) {
        const uint32_t x = below(WIDTH), y = below(HEIGHT);
        const fl_box box = {x, y, 1 + below(WIDTH - x), 1 + below(HEIGHT - y)};
        CHECK(read_copy(file, size, box, below(2), part) == FL_OK);
        for (uint32_t row = 0; row < box.height; row++)
            CHECK(!memcmp(part + 3 * (size_t)box.width * row, whole + 3 * ((size_t)WIDTH * (y + row) + x),
                          3 * (size_t)box.width));
    }
}

static void check_damage(const uint8_t *file, size_t size) {
    const fl_box box = {3, 2, 5, 4};
    uint8_t *copy = malloc(size);
    CHECK(copy);
    for (size_t cut = 0; cut < size; cut++)
        CHECK(read_copy(file, cut, box, below(2), NULL) == FL_EUNSUPPORTED);
    for (size_t at = 0; at < size; at++) {
        memcpy(copy, file, size);
        copy[at] ^= 1u << below(8);
        (void)read_copy(copy, size, box, below(2), NULL);
        copy[at] ^= (uint8_t)noise();
        (void)read_copy(copy, size, box, below(2), NULL);
    }
    free(copy);
}

static size_t put(uint8_t *out, size_t at, const char *name, const void *content, size_t size) {
    memcpy(out + at, name, 4);
    fl_bytes_put_le32(out + at + 4, (uint32_t)size);
    memcpy(out + at + 8, content, size);
    if (size & 1) out[at + 8 + size++] = 0;
    return at + 8 + size;
}

/* The image of a plain file in an extended one, between a profile and metadata. */
static size_t extend(const uint8_t *file, size_t size, uint8_t *out) {
    static const uint8_t canvas[10] = {0x28, 0, 0, 0, WIDTH - 1, 0, 0, HEIGHT - 1};
    size_t at = put(out, 12, "VP8X", canvas, sizeof canvas);
    at = put(out, at, "ICCP", "abc", 3);
    memcpy(out + at, file + 12, size - 12);
    at = put(out, at + size - 12, "EXIF", "a", 1);
    memcpy(out, file, 12);
    fl_bytes_put_le32(out + 4, (uint32_t)(at - 8));
    return at;
}

int main(void) {
    static uint8_t pixels[4 * WIDTH * HEIGHT], extended[LARGEST];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i / 60 * 40 + below(30));
    for (int form = 0; form < 4; form++) {
        uint8_t *file;
        const size_t size = form == 0   ? WebPEncodeRGB(pixels, WIDTH, HEIGHT, 3 * WIDTH, 50, &file)
                            : form == 1 ? WebPEncodeRGBA(pixels, WIDTH, HEIGHT, 4 * WIDTH, 80, &file)
                            : form == 2 ? WebPEncodeLosslessRGB(pixels, WIDTH, HEIGHT, 3 * WIDTH, &file)
                                        : WebPEncodeLosslessRGBA(pixels, WIDTH, HEIGHT, 4 * WIDTH, &file);
        CHECK(size > 12 && size < LARGEST - 64);
        check_boxes(file, size);
        check_damage(file, size);
        if (form != 1) { /* which is extended as it is */
            const size_t longer = extend(file, size, extended);
            check_boxes(extended, longer);
            check_damage(extended, longer);
        }
        WebPFree(file);
    }
    fl_buffer_free(&rows);
    puts("webp: ok");
    return 0;
}
