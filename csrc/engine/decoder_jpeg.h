/* engine/decoder_jpeg: JPEGs, and those in the DCT form: both are jpeg/decoder's. */
#ifndef FL_ENGINE_DECODER_JPEG_H
#define FL_ENGINE_DECODER_JPEG_H

#include "engine/decoders.h"

extern const fl_decoder fl_decoder_jpeg, fl_decoder_dct;

#endif
