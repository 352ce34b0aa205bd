/* jpeg/dct_blocks_avx512: fl_jpeg_dct_kernels: make, list and put with AVX-512 and fast pdep. */
#ifndef FL_JPEG_DCT_BLOCKS_AVX512_H
#define FL_JPEG_DCT_BLOCKS_AVX512_H

#include "jpeg/dct_blocks.h"

#if defined(__x86_64__)
bool fl_jpeg_dct_make_avx512(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b);
unsigned fl_jpeg_dct_list_avx512(const int16_t *block, uint8_t *places, int16_t *values);
bool fl_jpeg_dct_put_avx512(fl_jpeg_dct_writer *writer, const int16_t *block, const fl_jpeg_dct_orders *orders, unsigned *last);
#endif

#endif
