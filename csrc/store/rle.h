/* store/rle: a binary mask as COCO's uncompressed run lengths: of zeros and ones in turn, zeros first, column by column from the left, each column
 * from the top. Counts are u32, little-endian, and sum to height x width. */
#ifndef FL_STORE_RLE_H
#define FL_STORE_RLE_H

#include "common/bytes.h"
#include "common/status.h"

/* Whether the counts sum to height x width. FL_ERECORD. */
fl_code fl_rle_check(fl_span counts, uint32_t height, uint32_t width, fl_error *err);

/* Writes 0 or 1 for each of the pixels (columns[j], rows[i]), into row i, place j of rows that are `stride` bytes apart; NULL: all rows, all
 * columns. Numbers may come in any order; rising or falling ones cost least. FL_ERECORD; FL_EARG: a row or column is not there. */
fl_code fl_rle_sample(fl_span counts, uint32_t height, uint32_t width, const uint32_t *rows, uint32_t row_count, const uint32_t *columns,
                      uint32_t column_count, uint8_t *out, size_t stride, fl_error *err);

#endif
