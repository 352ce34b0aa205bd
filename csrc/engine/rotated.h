/* engine/rotated: rotated boxes through a step, as torchvision 0.28 takes them; its clamp and its filter are
 * followed to the letter, in float32. */
#ifndef FL_ENGINE_ROTATED_H
#define FL_ENGINE_ROTATED_H

#include "engine/boxes.h"

/* One box of format FL_BOXES_XYWHR, FL_BOXES_CXCYWHR (degrees) or FL_BOXES_XYXYXYXY. */
void fl_rotated_step(float *box, fl_box_format format, const fl_step *step);

/* True if FL_STEP_SANITIZE keeps a box. */
bool fl_rotated_sound(const float *box, fl_box_format format, const fl_step *step);

#endif
