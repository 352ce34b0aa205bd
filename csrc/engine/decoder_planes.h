/* engine/decoder_planes: pixels stored without loss: store/planes, and raw RGB, which is not copied. */
#ifndef FL_ENGINE_DECODER_PLANES_H
#define FL_ENGINE_DECODER_PLANES_H

#include "engine/decoders.h"

extern const fl_decoder fl_decoder_planes, fl_decoder_raw;

#endif
