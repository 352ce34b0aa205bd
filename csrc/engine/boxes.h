/* engine/boxes: bounding boxes through the steps of a geometry, as torchvision's transforms v2 take them
 * (0.28, clamping_mode "soft").
 *
 * Pure functions on the caller's memory; any thread. float32 boxes are calculated in float32 and int64 boxes
 * as torchvision's integer tensors: crops and flips in integers, resizes, clamps and the corners of centres
 * in float32 and truncated. (Older releases of torchvision round those corners down.)
 */
#ifndef FL_ENGINE_BOXES_H
#define FL_ENGINE_BOXES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "engine/step.h"

/* torchvision's BoundingBoxFormat; the last three are rotated: float32 only. */
typedef enum fl_box_format {
    FL_BOXES_XYXY = 0,
    FL_BOXES_XYWH = 1,
    FL_BOXES_CXCYWH = 2,
    FL_BOXES_XYWHR = 3,
    FL_BOXES_CXCYWHR = 4,
    FL_BOXES_XYXYXYXY = 5
} fl_box_format;

/* The boxes of one sample; values, keep and, by FL_STEP_FORMAT, format are changed in place. */
typedef struct fl_boxes {
    fl_box_format format;
    bool integer; /* values are int64_t, else float */
    uint32_t count;
    void *values; /* [count][fl_boxes_columns(format)] */
    uint8_t *keep; /* [count]: 1, and 0 from the step on that drops the box */
} fl_boxes;

/* 4, 5 or 8; 0 for no format. */
uint32_t fl_boxes_columns(fl_box_format format);

/* Takes all boxes through one step. */
void fl_boxes_step(fl_boxes *boxes, const fl_step *step);

/* True if a crop of the canvas holds the centre of a box that is kept, and a box whose centre it holds
 * overlaps it by at least min_iou (Jaccard). Not for rotated boxes. */
bool fl_boxes_overlap(const fl_boxes *boxes, int64_t x, int64_t y, int64_t width, int64_t height,
                      double min_iou);

/* FL_EARG where the format is unknown, or rotated and integer. */
fl_code fl_boxes_check(const fl_boxes *boxes, fl_error *err);

#endif
