/* resize/kernels_avx2: the row kernels with AVX2. */
#ifndef FL_RESIZE_KERNELS_AVX2_H
#define FL_RESIZE_KERNELS_AVX2_H

#include "resize/kernels.h"

/* NULL where this is no x86-64. */
const fl_resize_kernels *fl_resize_kernels_avx2(void);

#endif
