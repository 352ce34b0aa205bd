#include "engine/decoders.h"

#include "engine/decoder_jpeg.h"
#include "engine/decoder_planes.h"
#include "engine/decoder_png.h"
#include "engine/decoder_webp.h"

static const fl_decoder *const table[] = {&fl_decoder_jpeg, &fl_decoder_dct, &fl_decoder_planes,
                                          &fl_decoder_raw,  &fl_decoder_png, &fl_decoder_webp};

enum { COUNT = sizeof table / sizeof *table };
_Static_assert((int)COUNT <= (int)FL_DECODERS_MOST, "a renderer has no room for another decoder");

int fl_decoder_find(fl_record_kind kind) {
    for (int place = 0; place < COUNT; place++)
        if (table[place]->kind == kind) return place;
    return -1;
}

fl_record_kind fl_decoder_sniff(fl_span data) {
    for (int place = 0; place < COUNT; place++)
        if (table[place]->is && table[place]->is(data)) return table[place]->kind;
    return (fl_record_kind)0;
}

const fl_decoder *fl_decoder_at(int place) { return place < COUNT ? table[place] : NULL; }

fl_code fl_decoder_limit(uint32_t width, uint32_t height, uint64_t max_pixels, fl_error *err) {
    if ((uint64_t)width * height <= max_pixels) return FL_OK;
    return fl_fail(err, FL_ELIMIT, "%u x %u pixels are more than the limit of %llu", width, height,
                   (unsigned long long)max_pixels);
}
