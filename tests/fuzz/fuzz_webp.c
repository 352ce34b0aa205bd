/* A WebP: hostile bytes are FL_EUNSUPPORTED or pixels, whatever box is asked for the same; and pixels that
 * libwebp codes without loss come back. */
#include <webp/encode.h>

#include "fuzz_pictures.h"
#include "webp/webp.h"

enum { MOST = 1 << 14 /* pixels of a picture that is decoded */ };

static fl_buffer rows;

static uint8_t *read_box(const fl_webp *webp, fl_box box, bool sound, fl_code *code) {
    fl_view view;
    fl_error err;
    *code = fl_webp_box(webp, box, sound, &rows, &view, &err);
    fuzz_known(*code, &err, FUZZ_CODE(FL_EUNSUPPORTED));
    return *code ? NULL : fuzz_pixels(&view, box);
}

/* All of the file, in a block of its own size; NULL: it is refused. Any box of it is what the whole says. */
static uint8_t *check_file(const uint8_t *data, size_t size, fl_webp *webp) {
    fl_error err;
    fl_code code = fl_webp_open((fl_span){data, size}, webp, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_EUNSUPPORTED));
    if (code || (uint64_t)webp->width * webp->height > MOST) return NULL;
    uint8_t *whole = read_box(webp, (fl_box){0, 0, webp->width, webp->height}, false, &code);
    const fl_box box = fuzz_box(webp->width, webp->height);
    fl_code again;
    uint8_t *part = read_box(webp, box, !code && below(2), &again);
    CHECK(again == code);
    if (part) fuzz_check_part(part, box, whole, webp->width);
    free(part);
    return whole;
}

static void check_pixels(const uint8_t *data, size_t size) {
    const size_t width = 1 + data[0] % 40, height = (size - 1) / (3 * width);
    if (!height || height > 60) return;
    uint8_t *file;
    const size_t bytes = WebPEncodeLosslessRGB(data + 1, (int)width, (int)height, (int)(3 * width), &file);
    CHECK(bytes);
    fl_webp webp;
    uint8_t *exact = fuzz_copy(file, bytes), *pixels = check_file(exact, bytes, &webp);
    CHECK(pixels && webp.width == width && webp.height == height &&
          !memcmp(pixels, data + 1, 3 * width * height));
    fuzz_count("pictures made and read");
    WebPFree(file), free(exact), free(pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_webp webp;
    fuzz_draws_from_hash(data, size);
    uint8_t *copy = fuzz_copy(data, size), *pixels = check_file(copy, size, &webp);
    if (pixels) fuzz_count("files that hold");
    free(pixels), free(copy);
    if (size > 8) check_pixels(data, size);
    return 0;
}

/* Blind mutations; then mostly the size in the file's head is made right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    draws_at = draws_end = NULL;
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size >= 12 && noise() % 4) fl_bytes_put_le32(data + 4, (uint32_t)(size - 8) & ~1u);
    return size;
}
