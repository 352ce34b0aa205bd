/* jpeg/dct_blocks_avx512: fl_jpeg_dct_kernels: make, order, list and put with AVX-512 and fast pdep. */
#ifndef FL_JPEG_DCT_BLOCKS_AVX512_H
#define FL_JPEG_DCT_BLOCKS_AVX512_H

#include "jpeg/dct_blocks.h"

#if defined(__x86_64__)
bool fl_jpeg_dct_make_avx512(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b);
void fl_jpeg_dct_order_avx512(const int16_t *natural, int16_t *out);
unsigned fl_jpeg_dct_list_avx512(const int16_t *block, uint8_t *places, int16_t *values);
bool fl_jpeg_dct_put_avx512(fl_jpeg_dct_writer *writer, const fl_jpeg_dct_source *from, uint8_t *lasts,
                            uint32_t *ends);
#endif

#endif
