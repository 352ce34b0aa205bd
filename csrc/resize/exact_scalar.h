/* resize/exact_scalar: the kernels in plain C, which define the arithmetic. */
#ifndef FL_RESIZE_EXACT_SCALAR_H
#define FL_RESIZE_EXACT_SCALAR_H

#include "resize/exact_kernels.h"

extern const fl_resize_exact_kernels fl_resize_exact_scalar;

#endif
