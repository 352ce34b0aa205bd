/* engine/rooms: the rooms of a batch whose rows are all made: their gaps are closed, their frames made as
 * small as their images.
 *
 * Called by the loader's thread alone, between READY and the lease.
 */
#ifndef FL_ENGINE_ROOMS_H
#define FL_ENGINE_ROOMS_H

#include "engine/fields.h"

/* Moves the rows that were kept together, in order, where others were dropped: what begins at `start` is then
 * what was kept. Polygons stay where they are. */
void fl_rooms_compact(const fl_item *item, const fl_room *room, uint32_t rows);

/* Makes the frames of masks and instances as small as fl_target_tighten has made those of their images, of
 * which `image` is the target. */
void fl_rooms_narrow(const fl_item *item, fl_room *room, uint32_t rows, const fl_target *image);

#endif
