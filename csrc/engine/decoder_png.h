/* engine/decoder_png: PNG files. */
#ifndef FL_ENGINE_DECODER_PNG_H
#define FL_ENGINE_DECODER_PNG_H

#include "engine/decoders.h"

extern const fl_decoder fl_decoder_png;

#endif
