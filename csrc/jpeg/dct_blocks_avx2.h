/* jpeg/dct_blocks_avx2: fl_jpeg_dct_kernels' make with AVX2 and fast pdep. */
#ifndef FL_JPEG_DCT_BLOCKS_AVX2_H
#define FL_JPEG_DCT_BLOCKS_AVX2_H

#include "jpeg/dct_blocks.h"

#if defined(__x86_64__)
bool fl_jpeg_dct_make_avx2(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b);
#endif

#endif
