#include "engine/decoder.h"

#include "engine/decoder_jpeg.h"
#include "engine/decoder_planes.h"

static const struct {
    fl_record_kind kind;
    const fl_decoder *decoder;
} table[FL_DECODERS] = {
    {FL_RECORD_KIND_JPEG, &fl_decoder_jpeg},
    {FL_RECORD_KIND_DCT, &fl_decoder_dct},
    {FL_RECORD_KIND_PLANES, &fl_decoder_planes},
    {FL_RECORD_KIND_RAW, &fl_decoder_raw},
};

int fl_decoder_find(fl_record_kind kind) {
    for (int place = 0; place < FL_DECODERS; place++)
        if (table[place].kind == kind) return place;
    return -1;
}

const fl_decoder *fl_decoder_at(int place) { return table[place].decoder; }
