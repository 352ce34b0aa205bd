/* store/varying: rows of any number: boxes, keypoints, polygons, instances, arrays.
 *
 * An entry of kind FL_RECORD_KIND_VARYING, little-endian: u32 number of rows; then, of instances, u32 for
 * each row, the number of its values; of polygons, u32 for each row, the number of its parts, and u32 for
 * each part, the number of its points; then the values, without gaps. Kinds without such levels have `unit`
 * bytes a row. Levels and unit follow from the schema.
 */
#ifndef FL_STORE_VARYING_H
#define FL_STORE_VARYING_H

#include "common/bytes.h"
#include "common/status.h"

enum { FL_VARYING_LEVELS = 2 };

typedef struct fl_varying {
    uint32_t rows;
    fl_span lengths[FL_VARYING_LEVELS]; /* u32 each; of size 0 where there is no such level */
    fl_span values;
} fl_varying;

/* Parses an entry; every length is checked: those of a level sum to the number of the next one's, and the
 * last one's to the values. levels: 0 .. FL_VARYING_LEVELS; unit: bytes of one value of the innermost level,
 * at least 1. FL_ERECORD. */
fl_code fl_varying_open(fl_span entry, uint32_t levels, uint32_t unit, fl_varying *out, fl_error *err);

#endif
