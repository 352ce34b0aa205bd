#include "engine/decoder_jpeg.h"

#include "jpeg/dct_form.h"
#include "jpeg/decoder.h"

static fl_code create(void **state, fl_error *err) { return fl_jpeg_decoder_create((fl_jpeg_decoder **)state, err); }

static void free_it(void *state) { fl_jpeg_decoder_free(state); }

static fl_code open_jpeg(void *state, fl_span data, fl_span index, uint64_t max_pixels, fl_image_form *form, fl_error *err) {
    *form = (fl_image_form){.width = 0};
    const fl_code code = fl_jpeg_decoder_open(state, data.bytes, data.size, max_pixels, &form->width, &form->height, err);
    fl_jpeg_decoder_index(state, index.bytes, index.size);
    return code;
}

static fl_code open_dct(void *state, fl_span data, fl_span index, uint64_t max_pixels, fl_image_form *form, fl_error *err) {
    if (!fl_jpeg_dct_is(data.bytes, data.size)) return fl_fail(err, FL_ERECORD, "its image is not in the DCT form");
    return open_jpeg(state, data, index, max_pixels, form, err);
}

static fl_code decode(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    return fl_jpeg_decoder_decode(state, box, eighths, view, err);
}

static void notes(const void *state, fl_decode_notes *notes) {
    *notes = (fl_decode_notes){.warnings = fl_jpeg_decoder_warnings(state), .fell_back = fl_jpeg_decoder_fell_back(state)};
}

const fl_decoder fl_decoder_jpeg = {"jpeg", true, create, free_it, open_jpeg, decode, notes};
const fl_decoder fl_decoder_dct = {"dct", true, create, free_it, open_dct, decode, notes};
