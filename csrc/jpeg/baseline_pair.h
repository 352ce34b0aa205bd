/* jpeg/baseline_pair: entropy decoding of two stretches of MCUs at a time.
 *
 * NOTE [ baseline: two streams at a time ]
 * A code's length is known only when the code has been looked up, and the next code begins behind it: a
 * decoder of one stream waits for memory and shifts most of its time. The entropy index says where a row's
 * later MCUs begin, so that two stretches of a row go on side by side, a turn each, and one's waits are the
 * other's work. Each stretch has its own reader, its own batch and its own places; they share nothing that is
 * written but the planes, of which no sample is in both. Where the first one ends the second has begun, by
 * the index: that these agree is looked up, as at every mark.
 */
#ifndef FL_JPEG_BASELINE_PAIR_H
#define FL_JPEG_BASELINE_PAIR_H

#include "jpeg/baseline_blocks.h"
#include "jpeg/baseline_stream.h"

/* One stretch of MCUs of a row, in which no restart comes. */
typedef struct fl_jpeg_stretch {
    fl_jpeg_stream stream; /* at its first MCU; when it is done, behind its last */
    fl_jpeg_batch batch;
    fl_jpeg_block_place places[FL_JPEG_BLOCKS_MAX]; /* of the first MCU */
    uint32_t mcus; /* at least 1 */
} fl_jpeg_stretch;

/* Makes both. False for damage. */
bool fl_jpeg_decode_pair(const fl_jpeg_task *task, fl_jpeg_stretch *one, fl_jpeg_stretch *two);

#endif
