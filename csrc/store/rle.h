/* store/rle: a binary mask as COCO's uncompressed run lengths: of zeros and ones in turn, zeros first, column
 * by column from the left, each column from the top. Counts are u32, little-endian, and sum to height x
 * width.
 *
 * NOTE [ rle: sampling by runs ]
 * A vertical run of ones is one vertical run of the result (see store/edges.h), in each column that shows its
 * own. Only its two ends are written, as changes: into its first row, and into the row below its last. Then
 * each row is the exclusive or of its changes and the row above, from the first row that has a change to the
 * last. The work is that of reading the runs, writing two bytes for each that is shown, and one pass over
 * rows of the smallest box around the mask, in the order in which they lie in memory.
 */
#ifndef FL_STORE_RLE_H
#define FL_STORE_RLE_H

#include "common/bytes.h"
#include "common/status.h"

/* Part of its source that one axis of a result shows. */
typedef struct fl_rle_axis {
    uint32_t count; /* rows or columns of the result */
    const uint32_t *edges; /* [size of the source + 1]; NULL: the source as it is. See store/edges.h. */
} fl_rle_axis;

/* Checks that the counts sum to height x width. FL_ERECORD. */
fl_code fl_rle_check(fl_span counts, uint32_t height, uint32_t width, fl_error *err);

/* Writes the ones of a mask into zeros: rows->count rows of columns->count bytes, `stride` bytes apart.
 * Nothing is written where the counts do not hold. See NOTE [ rle: sampling by runs ]. FL_ERECORD; FL_EARG:
 * an axis as the source is, of another size than that. */
fl_code fl_rle_sample(fl_span counts, uint32_t height, uint32_t width, const fl_rle_axis *rows,
                      const fl_rle_axis *columns, uint8_t *out, size_t stride, fl_error *err);

#endif
