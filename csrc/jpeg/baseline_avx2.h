/* jpeg/baseline_avx2: the AVX2 kernels of fl_baseline, in two files. */
#ifndef FL_JPEG_BASELINE_AVX2_H
#define FL_JPEG_BASELINE_AVX2_H

#include "jpeg/baseline_parts.h"

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))

void fl_h2v1_avx2(const uint8_t *in, uint8_t *out, size_t n);
void fl_h2v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n);
void fl_h1v2_avx2(const uint8_t *near, const uint8_t *far, uint8_t *out, size_t n, int bias);
void fl_h2_avx2(const uint8_t *in, uint8_t *out, size_t n);
void fl_ycc_avx2(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *rgb, size_t n);
void fl_grey_avx2(const uint8_t *y, uint8_t *rgb, size_t n);

#endif
