/* engine/decoder_webp: WebP files. */
#ifndef FL_ENGINE_DECODER_WEBP_H
#define FL_ENGINE_DECODER_WEBP_H

#include "engine/decoders.h"

extern const fl_decoder fl_decoder_webp;

#endif
