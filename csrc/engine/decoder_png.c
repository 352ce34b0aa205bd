#include "engine/decoder_png.h"

#include <stdlib.h>

#include "png/pixels.h"

typedef struct png_state {
    fl_png png;
    fl_png_reader *reader;
} png_state;

static void free_png(void *state) {
    if (state) fl_png_reader_free(((png_state *)state)->reader);
    free(state);
}

static fl_code create_png(void **state, fl_error *err) {
    png_state *made = calloc(1, sizeof *made);
    const fl_code code = made ? fl_png_reader_create(&made->reader, err)
                              : fl_fail(err, FL_ENOMEM, "no memory for a decoder of PNGs");
    *state = code ? NULL : made;
    if (code) free_png(made);
    return code;
}

static fl_code open_png(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                        fl_error *err) {
    fl_png *png = &((png_state *)state)->png;
    const fl_code code = fl_png_open(image->data, png, err);
    if (code) return code;
    *form = (fl_image_form){.width = png->width, .height = png->height, .may_turn = png->may_turn};
    return fl_decoder_limit(png->width, png->height, max_pixels, err);
}

static fl_code decode_png(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    const png_state *s = state;
    (void)eighths;
    return fl_png_reader_box(s->reader, &s->png, *box, view, err);
}

const fl_decoder fl_decoder_png = {FL_RECORD_KIND_PNG, "png",    false,      fl_png_is, create_png,
                                   free_png,           open_png, decode_png, NULL};
