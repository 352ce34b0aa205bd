/* jpeg/baseline_neon: the kernels with NEON. */
#ifndef FL_JPEG_BASELINE_NEON_H
#define FL_JPEG_BASELINE_NEON_H

#include "jpeg/baseline_parts.h"

/* NULL where this is no aarch64. */
const fl_jpeg_kernels *fl_jpeg_kernels_neon(void);

#endif
