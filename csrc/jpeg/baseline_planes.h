/* jpeg/baseline_planes: a rectangle of MCUs from the DCT form (jpeg/dct_form.h): what jpeg/baseline_rows.h is
 * for Huffman codes. */
#ifndef FL_JPEG_BASELINE_PLANES_H
#define FL_JPEG_BASELINE_PLANES_H

#include "jpeg/baseline_parts.h"
#include "jpeg/dct_form.h"

/* Bytes of task->plain that fl_jpeg_decode_planes needs for so many MCUs side by side. */
size_t fl_jpeg_planes_room(const fl_jpeg_dct_form *form, uint32_t mcus);

/* Decodes all wanted MCU rows, calling fl_jpeg_emit_rows after each. False for damage. Nothing is read of a
 * component's AC planes where its samples are made of DC coefficients alone. */
bool fl_jpeg_decode_planes(fl_jpeg_task *task, const fl_jpeg_dct_form *form);

#endif
