/* engine/objects: what else a sample has beside its image and its boxes, through the steps of a geometry:
 * points, and masks as tables of the source's rows and columns. Pure functions on the caller's memory; any
 * thread. */
#ifndef FL_ENGINE_OBJECTS_H
#define FL_ENGINE_OBJECTS_H

#include "engine/boxes.h"
#include "engine/geometry.h"

typedef enum fl_points_kind {
    FL_POINTS_KEYPOINTS = 0, /* pixels, as torchvision's KeyPoints: a flip takes x to width - 1 - x */
    FL_POINTS_OUTLINE = 1 /* corners of areas, as a box's or a polygon's: a flip takes x to width - x */
} fl_points_kind;

/* Takes `count` points of `columns` (2, or 3 with COCO's visibility) float32 through all steps of a geometry,
 * in place. Points are never clamped. Those of visibility 0, which are not labelled, stay as they are. */
void fl_objects_points(const fl_geometry *g, fl_points_kind kind, float *points, size_t count,
                       uint32_t columns);

/* Exchanges the places of the points of each pair, in place. points: [objects][count][columns]; pairs:
 * [pair_count][2] numbers below count. */
void fl_objects_exchange(float *points, size_t objects, uint32_t count, uint32_t columns,
                         const uint32_t *pairs, uint32_t pair_count);

/* Fills columns[g->window.width] and rows[g->window.height] with the column and the row of the source that
 * each of the result shows, as torchvision's kernels of masks do (nearest; each step rounds by itself); -1
 * where it shows the fill. */
void fl_objects_mask(const fl_geometry *g, int32_t *columns, int32_t *rows);

#endif
