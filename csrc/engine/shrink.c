#include "engine/shrink.h"

#include <stdlib.h>

#include "common/buffer.h"
#include "jpeg/transcode.h"
#include "resize/axis.h"
#include "resize/resize.h"

enum { QUALITY = 95, LONGEST = 65500 /* libjpeg's JPEG_MAX_DIMENSION */ };

struct fl_shrinker {
    fl_resizer *resizer;
    fl_buffer pixels;
    uint8_t *jpeg;
};

fl_code fl_shrinker_create(fl_shrinker **out, fl_error *err) {
    *out = NULL;
    fl_shrinker *shrinker = calloc(1, sizeof *shrinker);
    if (!shrinker) return fl_fail(err, FL_ENOMEM, "no memory for making images smaller");
    const fl_code code = fl_resizer_create(&shrinker->resizer, err);
    if (code) {
        free(shrinker);
        return code;
    }
    *out = shrinker;
    return FL_OK;
}

void fl_shrinker_free(fl_shrinker *shrinker) {
    if (!shrinker) return;
    fl_resizer_free(shrinker->resizer);
    fl_buffer_free(&shrinker->pixels);
    free(shrinker->jpeg);
    free(shrinker);
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* A side of the smaller image. */
static uint32_t scaled(uint32_t length, uint32_t shorter, uint32_t side) {
    return (uint32_t)((uint64_t)length * side / shorter);
}

bool fl_shrink_applies(uint32_t width, uint32_t height, uint32_t side) {
    const uint32_t shorter = least(width, height), longer = width < height ? height : width;
    return side && shorter > side && scaled(longer, shorter, side) <= LONGEST;
}

fl_code fl_shrink(fl_shrinker *shrinker, const fl_view *image, uint32_t side, fl_span *jpeg, fl_error *err) {
    const uint32_t shorter = least(image->width, image->height);
    const uint32_t width = scaled(image->width, shorter, side), height = scaled(image->height, shorter, side);
    fl_code code = fl_resize_fit(&shrinker->pixels, (size_t)width * height, 3, err);
    if (code) return code;
    const fl_resize_spec spec = {.width = image->width,
                                 .height = image->height,
                                 .out_width = width,
                                 .out_height = height,
                                 .window = {0, 0, width, height},
                                 .filter = FL_RESIZE_BILINEAR,
                                 .antialias = true};
    const fl_sink sink = {
        .data = shrinker->pixels.bytes, .width = width, .height = height, .dtype = FL_U8, .layout = FL_HWC};
    code = fl_resize(shrinker->resizer, image, &spec, &sink, err);
    if (code) return code;
    const fl_view made = {
        .pixels = shrinker->pixels.bytes, .stride = 3 * (size_t)width, .width = width, .height = height};
    free(shrinker->jpeg);
    shrinker->jpeg = NULL;
    code = fl_jpeg_encode(&made, QUALITY, &shrinker->jpeg, &jpeg->size, err);
    jpeg->bytes = shrinker->jpeg;
    return code;
}
