#include "engine/decoder_planes.h"

#include <stdlib.h>

#include "common/buffer.h"
#include "resize/axis.h"
#include "store/planes.h"

/* ---- planes */

typedef struct planes_state {
    fl_planes planes;
    fl_buffer pixels, scratch;
} planes_state;

static fl_code create_planes(void **state, fl_error *err) {
    *state = calloc(1, sizeof(planes_state));
    return *state ? FL_OK
                  : fl_fail(err, FL_ENOMEM, "no memory for a decoder (%zu bytes)", sizeof(planes_state));
}

static void free_planes(void *state) {
    planes_state *s = state;
    if (!s) return;
    fl_buffer_free(&s->pixels);
    fl_buffer_free(&s->scratch);
    free(s);
}

static fl_code open_planes(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                           fl_error *err) {
    fl_planes *p = &((planes_state *)state)->planes;
    const fl_code code = fl_planes_open(image->data, p, err);
    if (code) return code;
    *form = (fl_image_form){.width = p->width,
                            .height = p->height,
                            .channels = (uint8_t)p->channels,
                            .depth = (uint8_t)(p->pixel / p->channels)};
    return fl_decoder_limit(p->width, p->height, max_pixels, err);
}

static fl_code decode_planes(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    planes_state *s = state;
    const fl_planes *p = &s->planes;
    (void)eighths;
    const fl_code code = fl_resize_fit(&s->pixels, (size_t)box->width * box->height, p->pixel, err);
    if (code) return code;
    *view = (fl_view){.pixels = s->pixels.bytes,
                      .stride = (size_t)box->width * p->pixel,
                      .width = box->width,
                      .height = box->height,
                      .channels = (uint8_t)p->channels,
                      .depth = (uint8_t)(p->pixel / p->channels)};
    return fl_planes_box(p, *box, s->pixels.bytes, view->stride, &s->scratch, err);
}

const fl_decoder fl_decoder_planes = {FL_RECORD_KIND_PLANES, "planes",    false,         NULL, create_planes,
                                      free_planes,           open_planes, decode_planes, NULL};

/* ---- raw */

static fl_code create_raw(void **state, fl_error *err) {
    *state = calloc(1, sizeof(fl_view));
    return *state ? FL_OK : fl_fail(err, FL_ENOMEM, "no memory for a decoder (%zu bytes)", sizeof(fl_view));
}

static fl_code open_raw(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                        fl_error *err) {
    const fl_span data = image->data;
    if (data.size < FL_RECORD_RAW_HEADER)
        return fl_fail(err, FL_ERECORD, "a raw image of %zu bytes has no header", data.size);
    const uint64_t height = fl_bytes_le32(data.bytes), width = fl_bytes_le32(data.bytes + 4),
                   channels = fl_bytes_le32(data.bytes + 8);
    if (!height || !width || channels != 3 || height > FL_IMAGE_SIDE_MAX || width > FL_IMAGE_SIDE_MAX ||
        height * width * 3 != data.size - FL_RECORD_RAW_HEADER)
        return fl_fail(err, FL_ERECORD, "a raw image says %llu x %llu x %llu and has %zu bytes",
                       (unsigned long long)height, (unsigned long long)width, (unsigned long long)channels,
                       data.size - FL_RECORD_RAW_HEADER);
    *form = (fl_image_form){.width = (uint32_t)width, .height = (uint32_t)height};
    *(fl_view *)state = (fl_view){.pixels = data.bytes + FL_RECORD_RAW_HEADER,
                                  .stride = width * 3,
                                  .width = form->width,
                                  .height = form->height};
    return fl_decoder_limit(form->width, form->height, max_pixels, err);
}

static fl_code decode_raw(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    (void)eighths, (void)err;
    *view = *(fl_view *)state;
    *box = (fl_box){0, 0, view->width, view->height};
    return FL_OK;
}

fl_span fl_decoder_raw_of(const fl_view *image, fl_buffer *buffer) {
    const size_t row = 3 * (size_t)image->width;
    if (fl_resize_fit(buffer, row * image->height + FL_RECORD_RAW_HEADER, 1, NULL)) return (fl_span){NULL, 0};
    uint8_t *out = buffer->bytes;
    const uint32_t header[3] = {image->height, image->width, 3};
    for (int i = 0; i < 3; i++)
        for (int byte = 0; byte < 4; byte++) out[4 * i + byte] = (uint8_t)(header[i] >> 8 * byte);
    for (uint32_t y = 0; y < image->height; y++)
        memcpy(out + FL_RECORD_RAW_HEADER + y * row, (const uint8_t *)image->pixels + y * image->stride, row);
    return (fl_span){out, row * image->height + FL_RECORD_RAW_HEADER};
}

const fl_decoder fl_decoder_raw = {FL_RECORD_KIND_RAW, "raw",      false, NULL, create_raw, free,
                                   open_raw,           decode_raw, NULL};
