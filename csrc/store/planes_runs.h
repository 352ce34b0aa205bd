/* store/planes_runs: rows of a label map as runs of equal values.
 *
 * A row is a varint, the number of its bytes, and these bytes: (value, varint length) for each run but the
 * last, and the value of the last, which goes on to the row's end. Values are of 1 or 2 bytes, lengths at
 * least 1. A row of 0 bytes is that above it; the first row of a strip is none. A varint has 7 bits a byte,
 * the lowest first, the top bit set in all but its last byte, and at most 5 bytes.
 */
#ifndef FL_STORE_PLANES_RUNS_H
#define FL_STORE_PLANES_RUNS_H

#include <stdbool.h>

#include "store/planes_strips.h"

/* Position of a reader of rows; set to {0} for planes that are opened anew. */
typedef struct fl_planes_cursor {
    bool begun;
    uint32_t row;       /* the row that `runs` are of */
    fl_span runs;       /* of the row */
    const uint8_t *at;  /* what follows it in its strip */
    const uint8_t *end; /* of the strip */
} fl_planes_cursor;

/* Moves to a row. FL_ERECORD. */
fl_code fl_planes_runs_seek(const fl_planes *planes, fl_planes_cursor *cursor, uint32_t row, fl_error *err);

/* Writes the pixels of columns [x, x + count) of a row. FL_ERECORD. */
fl_code fl_planes_runs_fill(const fl_planes *planes, fl_span runs, uint32_t x, uint32_t count, uint8_t *out,
                            fl_error *err);

/* Writes what a result shows of the columns below `stop`, by its edges of the planes' width: see
 * store/edges.h. FL_ERECORD. */
fl_code fl_planes_runs_pick(const fl_planes *planes, fl_span runs, const uint32_t *edges, uint32_t stop,
                            uint8_t *out, fl_error *err);

/* Writes table and rows of pixels of `pixel` bytes (1 or 2) into `room` bytes; returns their number, 0 where
 * they do not fit. */
size_t fl_planes_runs_encode(const uint8_t *pixels, uint32_t height, uint32_t width, uint32_t pixel,
                             uint8_t *out, size_t room);

#endif
