#include "engine/decoders.h"

#include "engine/decoder_jpeg.h"
#include "engine/decoder_planes.h"
#include "engine/decoder_png.h"
#include "engine/decoder_webp.h"

static const struct {
    fl_record_kind kind;
    const fl_decoder *decoder;
} table[FL_DECODERS] = {
    {FL_RECORD_KIND_JPEG, &fl_decoder_jpeg}, {FL_RECORD_KIND_DCT, &fl_decoder_dct}, {FL_RECORD_KIND_PLANES, &fl_decoder_planes},
    {FL_RECORD_KIND_RAW, &fl_decoder_raw},   {FL_RECORD_KIND_PNG, &fl_decoder_png}, {FL_RECORD_KIND_WEBP, &fl_decoder_webp},
};

int fl_decoder_find(fl_record_kind kind) {
    for (int place = 0; place < FL_DECODERS; place++)
        if (table[place].kind == kind) return place;
    return -1;
}

fl_record_kind fl_decoder_sniff(fl_span data) {
    for (int place = 0; place < FL_DECODERS; place++)
        if (table[place].decoder->is && table[place].decoder->is(data)) return table[place].kind;
    return (fl_record_kind)0;
}

const fl_decoder *fl_decoder_at(int place) { return table[place].decoder; }

fl_code fl_decoder_limit(uint32_t width, uint32_t height, uint64_t max_pixels, fl_error *err) {
    if ((uint64_t)width * height <= max_pixels) return FL_OK;
    return fl_fail(err, FL_ELIMIT, "%u x %u pixels are more than the limit of %llu", width, height, (unsigned long long)max_pixels);
}
