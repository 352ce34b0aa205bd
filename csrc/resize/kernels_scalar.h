/* resize/kernels_scalar: the row kernels in plain C, which define the resizer's arithmetic. */
#ifndef FL_RESIZE_KERNELS_SCALAR_H
#define FL_RESIZE_KERNELS_SCALAR_H

#include "resize/kernels.h"

extern const fl_resize_kernels fl_resize_kernels_scalar;

#endif
