/* engine/decoder_planes: pixels stored without loss: store/planes, and raw RGB, which is not copied. */
#ifndef FL_ENGINE_DECODER_PLANES_H
#define FL_ENGINE_DECODER_PLANES_H

#include "common/buffer.h"
#include "engine/decoders.h"

extern const fl_decoder fl_decoder_planes, fl_decoder_raw;

/* The pixels of an RGB image as those of an FL_RECORD_KIND_RAW, in the buffer; size 0: no memory for them. */
fl_span fl_decoder_raw_of(const fl_view *image, fl_buffer *buffer);

#endif
