/* resize/exact_avx2: the kernels of Pillow's arithmetic with AVX2. */
#ifndef FL_RESIZE_EXACT_AVX2_H
#define FL_RESIZE_EXACT_AVX2_H

#include "resize/exact_kernels.h"

/* NULL where this is no x86-64. */
const fl_resize_exact_kernels *fl_resize_exact_avx2(void);

#endif
