/* jpeg/baseline_rows: entropy decoding of a rectangle of MCUs. */
#ifndef FL_JPEG_BASELINE_ROWS_H
#define FL_JPEG_BASELINE_ROWS_H

#include "jpeg/baseline_parts.h"

/* Decodes all wanted MCU rows, calling fl_jpeg_emit_rows after each. False for damage. */
bool fl_jpeg_decode_rows(fl_jpeg_task *task);

#endif
