/* jpeg/dct_blocks_lanes: fl_jpeg_dct_kernels' make without pdep: with NEON, and with AVX2 where pdep is
 * slow. */
#ifndef FL_JPEG_DCT_BLOCKS_LANES_H
#define FL_JPEG_DCT_BLOCKS_LANES_H

#include "jpeg/dct_blocks.h"

#if defined(__x86_64__) || defined(__aarch64__)
bool fl_jpeg_dct_make_lanes(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b);
#endif

#endif
