#include "engine/decoder_jpeg.h"

#include "jpeg/dct_form.h"
#include "jpeg/decoder.h"

static fl_code create(void **state, fl_error *err) {
    return fl_jpeg_decoder_create((fl_jpeg_decoder **)state, err);
}

static void free_it(void *state) { fl_jpeg_decoder_free(state); }

static fl_code open_jpeg(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                         fl_error *err) {
    *form = (fl_image_form){.width = 0};
    const fl_code code = fl_jpeg_decoder_open(state, image->data.bytes, image->data.size, max_pixels,
                                              &form->width, &form->height, err);
    fl_jpeg_decoder_index(state, image->index.bytes, image->index.size);
    return code;
}

static fl_code open_dct(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                        fl_error *err) {
    if (!fl_jpeg_dct_is(image->data.bytes, image->data.size))
        return fl_fail(err, FL_ERECORD, "its image is not in the DCT form");
    return open_jpeg(state, image, max_pixels, form, err);
}

static fl_code decode(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    return fl_jpeg_decoder_decode(state, box, eighths, view, err);
}

static void notes(const void *state, fl_decode_notes *notes) {
    *notes = (fl_decode_notes){.warnings = fl_jpeg_decoder_warnings(state),
                               .fell_back = fl_jpeg_decoder_fell_back(state)};
}

static bool is_jpeg(fl_span data) { return data.size >= 4 && data.bytes[0] == 0xFF && data.bytes[1] == 0xD8; }

const fl_decoder fl_decoder_jpeg = {FL_RECORD_KIND_JPEG, "jpeg", true, is_jpeg, create, free_it,
                                    open_jpeg,           decode, notes};
const fl_decoder fl_decoder_dct = {FL_RECORD_KIND_DCT, "dct",  true, NULL, create, free_it,
                                   open_dct,           decode, notes};
