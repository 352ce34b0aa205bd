#include "fl_baseline_parts.h"
const fl_decode_kernels *fl_decode_avx2(void) { return NULL; }
