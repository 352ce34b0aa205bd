/* jpeg/baseline_avx2: the kernels with AVX2. */
#ifndef FL_JPEG_BASELINE_AVX2_H
#define FL_JPEG_BASELINE_AVX2_H

#include "jpeg/baseline_parts.h"

/* NULL where this is no x86-64. */
const fl_jpeg_kernels *fl_jpeg_kernels_avx2(void);

#endif
