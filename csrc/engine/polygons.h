/* engine/polygons: outlines of objects through a geometry, as COCO has polygons: of each object any number of
 * parts, each a closed line of points. Points move as a box's corners do, so that a flip takes x to width -
 * x, and are neither clamped nor clipped: an outline that a crop cuts goes on beyond the canvas. Pure
 * functions; any thread.
 *
 * The result is an entry of its own (store/varying.h), of two levels: u32 number of objects; u32 for each,
 * its parts; u32 for each part, its points; two float32 for each point. It is never larger than the entry it
 * is made of.
 */
#ifndef FL_ENGINE_POLYGONS_H
#define FL_ENGINE_POLYGONS_H

#include "common/status.h"
#include "engine/geometry.h"
#include "store/varying.h"

enum { FL_POLYGONS_POINT = 8 }; /* bytes of a point */

/* Writes the objects of `rows`, of two levels, that are kept (`keep`: a flag for each; NULL: all), moved, to
 * the first bytes of `to`, which is aligned to 4; zeros to the rest of its `room` bytes. FL_ERECORD: they
 * have no room. */
fl_code fl_polygons_write(const fl_varying *rows, const uint8_t *keep, const fl_geometry *g, uint8_t *to,
                          size_t room, fl_error *err);

#endif
