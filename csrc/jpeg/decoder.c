#include "jpeg/decoder.h"

#include <stdlib.h>

#include "jpeg/baseline.h"
#include "jpeg/dct_form.h"
#include "jpeg/libjpeg.h"

struct fl_jpeg_decoder {
    fl_libjpeg *jpeg;
    fl_jpeg_baseline *baseline;
    const uint8_t *bytes, *index;
    size_t size, index_size;
    uint64_t max_pixels;
    bool usual; /* fl_jpeg_baseline has the file open, fl_libjpeg does not */
};

fl_code fl_jpeg_decoder_create(fl_jpeg_decoder **out, fl_error *err) {
    *out = NULL;
    fl_jpeg_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder) return fl_fail(err, FL_ENOMEM, "no memory for a JPEG decoder (%zu bytes)", sizeof *decoder);
    fl_code code = fl_libjpeg_create(&decoder->jpeg, err);
    if (!code) code = fl_jpeg_baseline_create(&decoder->baseline, err);
    if (code) {
        fl_jpeg_decoder_free(decoder);
        return code;
    }
    *out = decoder;
    return FL_OK;
}

void fl_jpeg_decoder_free(fl_jpeg_decoder *decoder) {
    if (!decoder) return;
    fl_jpeg_baseline_free(decoder->baseline);
    fl_libjpeg_free(decoder->jpeg);
    free(decoder);
}

/* libjpeg-turbo has no second opinion of one. */
static fl_code damaged_form(fl_error *err) {
    return fl_fail(err, FL_EJPEG, "the image in the DCT form is damaged, or there is no memory for it");
}

static fl_code open_jpeg(fl_jpeg_decoder *d, uint32_t *width, uint32_t *height, fl_error *err) {
    fl_libjpeg_info info;
    d->usual = false;
    fl_code code = fl_libjpeg_open(d->jpeg, d->bytes, d->size, d->max_pixels, &info, err);
    if (!code) *width = info.width, *height = info.height;
    return code;
}

fl_code fl_jpeg_decoder_open(fl_jpeg_decoder *d, const uint8_t *bytes, size_t size, uint64_t max_pixels,
                             uint32_t *width, uint32_t *height, fl_error *err) {
    d->bytes = bytes;
    d->size = size;
    d->max_pixels = max_pixels;
    d->index_size = 0;
    const bool opened = fl_jpeg_baseline_open(d->baseline, bytes, size, width, height);
    d->usual = opened && (uint64_t)*width * *height <= max_pixels;
    if (!d->usual && fl_jpeg_dct_is(bytes, size)) {
        if (!opened) return damaged_form(err);
        return fl_fail(err, FL_ELIMIT,
                       "the image is %u x %u = %llu pixels; the limit is %llu (raise max_pixels if the file "
                       "is to be trusted)",
                       *width, *height, (unsigned long long)*width * *height, (unsigned long long)max_pixels);
    }
    return d->usual ? FL_OK : open_jpeg(d, width, height, err);
}

void fl_jpeg_decoder_index(fl_jpeg_decoder *d, const uint8_t *index, size_t size) {
    d->index = index, d->index_size = size;
}

void fl_jpeg_decoder_learn(fl_jpeg_decoder *d) {
    if (d->usual) fl_jpeg_baseline_learn(d->baseline);
}

void fl_jpeg_decoder_learnt(fl_jpeg_decoder *d, size_t most, const uint8_t **index, size_t *size) {
    *size = 0;
    if (d->usual) fl_jpeg_baseline_learnt(d->baseline, most, index, size);
}

fl_code fl_jpeg_decoder_decode(fl_jpeg_decoder *d, const fl_box *box, int eighths, fl_view *view,
                               fl_error *err) {
    if (d->usual) {
        if (fl_jpeg_baseline_decode(d->baseline, box, eighths, d->index, d->index_size, view)) return FL_OK;
        if (fl_jpeg_dct_is(d->bytes, d->size)) return damaged_form(err);
        uint32_t width, height;
        fl_code code = open_jpeg(d, &width, &height, err);
        if (code) return code;
    }
    return fl_libjpeg_decode(d->jpeg, box, eighths, view, err);
}

uint32_t fl_jpeg_decoder_components(const fl_jpeg_decoder *d) {
    return d->usual ? fl_jpeg_baseline_components(d->baseline) : 0;
}

size_t fl_jpeg_decoder_end(const fl_jpeg_decoder *d) {
    return d->usual ? fl_jpeg_baseline_end(d->baseline) : 0;
}

bool fl_jpeg_decoder_fell_back(const fl_jpeg_decoder *d) { return !d->usual; }

uint32_t fl_jpeg_decoder_warnings(const fl_jpeg_decoder *d) {
    return d->usual ? 0 : fl_libjpeg_warnings(d->jpeg, NULL);
}
