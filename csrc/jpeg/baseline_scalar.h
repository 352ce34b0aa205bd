/* jpeg/baseline_scalar: the kernels in plain C, which are the reference for the others, and the small inverse
 * DCTs that all use. */
#ifndef FL_JPEG_BASELINE_SCALAR_H
#define FL_JPEG_BASELINE_SCALAR_H

#include "jpeg/baseline_parts.h"

extern const fl_jpeg_kernels fl_jpeg_kernels_scalar;
void fl_jpeg_idct1(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride);
void fl_jpeg_idct2(const fl_jpeg_job *jobs, size_t n, const int16_t *quant, size_t stride);

#endif
