/* jpeg/baseline_emit: from planes of samples to rows of pixels. */
#ifndef FL_JPEG_BASELINE_EMIT_H
#define FL_JPEG_BASELINE_EMIT_H

#include "jpeg/baseline_parts.h"

/* Makes the rows of pixels that MCU rows up to mcu_row complete. */
void fl_jpeg_emit_rows(fl_jpeg_task *task, uint32_t mcu_row);

#endif
