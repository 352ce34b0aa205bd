#include "engine/decoder_webp.h"

#include <stdlib.h>

#include "webp/webp.h"

typedef struct webp_state {
    fl_webp webp;
    bool sound;
    fl_buffer rows;
} webp_state;

static fl_code create_webp(void **state, fl_error *err) {
    *state = calloc(1, sizeof(webp_state));
    return *state ? FL_OK : fl_fail(err, FL_ENOMEM, "no memory for a decoder of WebPs");
}

static void free_webp(void *state) {
    if (state) fl_buffer_free(&((webp_state *)state)->rows);
    free(state);
}

static fl_code open_webp(void *state, const fl_stored *image, uint64_t max_pixels, fl_image_form *form,
                         fl_error *err) {
    fl_webp *webp = &((webp_state *)state)->webp;
    ((webp_state *)state)->sound = image->sound;
    const fl_code code = fl_webp_open(image->data, webp, err);
    if (code) return code;
    *form = (fl_image_form){.width = webp->width, .height = webp->height, .may_turn = webp->may_turn};
    return fl_decoder_limit(webp->width, webp->height, max_pixels, err);
}

static fl_code decode_webp(void *state, fl_box *box, int eighths, fl_view *view, fl_error *err) {
    webp_state *s = state;
    (void)eighths;
    return fl_webp_box(&s->webp, *box, s->sound, &s->rows, view, err);
}

const fl_decoder fl_decoder_webp = {FL_RECORD_KIND_WEBP, "webp",    false,       fl_webp_is, create_webp,
                                    free_webp,           open_webp, decode_webp, NULL};
