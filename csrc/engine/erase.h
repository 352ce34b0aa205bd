/* engine/erase: RandomErasing of a finished row: the box that a sample draws, filled in the row's dtype and
 * layout. Pure functions; any thread.
 *
 * Boxes are those of RandomErasing.boxes in fastload/augment/specs.py: NOTE [ augment: one set of draws, two
 * places ]. A row is filled after all else is done to it. What a program changes after the op is done to the
 * box and to its values: flips mirror the box, bytes go through the sink's table as pixels do, and
 * fastload/transforms has normalised floats.
 */
#ifndef FL_ENGINE_ERASE_H
#define FL_ENGINE_ERASE_H

#include "common/image.h"
#include "common/rng.h"
#include "common/status.h"
#include "engine/geometry.h"

/* Fills the boxes of a program's FL_OP_ERASE, drawn for the key's sample, in the sink, whose mirrors are
 * done. FL_EARG: floats into bytes; FL_EUNSUPPORTED: planes. */
fl_code fl_erase_run(const fl_program *program, fl_key key, const fl_sink *sink, fl_error *err);

#endif
