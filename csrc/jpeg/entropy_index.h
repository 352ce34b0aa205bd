/* jpeg/entropy_index: the entropy index of a JPEG: where in its coded data MCUs start, so that a decoder need
 * not read all that comes before a box.
 *
 * It has a mark before MCU 0, every, 2 every, ... of each MCU row. Stored (bits are filled from the top of
 * each byte, numbers have their highest bit first):
 *   10 bytes: version 1; every; then the widths in bits of: a row's first position, its three DC
 *   coefficients, the position's
 *     step to the next mark in a row, and the three DC coefficients' steps.
 *   each row: its first mark in the first four widths, and across - 1 steps in the last four. DC coefficients
 *   and their steps are signed:
 *     0, -1, 1, -2, ... are 0, 1, 2, 3, ... All rows have the same length, so any of them can be found; the
 *     last byte is filled up with zeros.
 * Version 2 is of an image's first rows alone, as a decoder comes to know them. Behind the 10 bytes it has 4
 * more: how many rows, the highest bit set where no more can be known.
 * The number of components, rows and marks follow from the JPEG's header. Positions count from its first
 * coded byte, so the index holds for any file of the same coded data, whatever metadata it has.
 */
#ifndef FL_JPEG_ENTROPY_INDEX_H
#define FL_JPEG_ENTROPY_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The state before an MCU: its first bit in the coded data (stuffed zeros and restart markers counted), and
 * the DC coefficient of the block before it in each component. */
typedef struct fl_jpeg_mark {
    uint64_t bit;
    int16_t dc[3];
} fl_jpeg_mark;

/* A stored index. Borrows its bytes. */
typedef struct fl_jpeg_index {
    const uint8_t *bytes;
    size_t size;
    uint32_t every, across, rows;
    uint8_t first[4], step[4]; /* widths: position, DC coefficients */
    uint32_t row_bits, header; /* header: bytes before the first row */
    bool last; /* it has all rows, or no more can be known */
} fl_jpeg_index;

/* False for bytes that are no index of an image of so many MCUs, or of no row. */
bool fl_jpeg_index_open(fl_jpeg_index *index, const uint8_t *bytes, size_t size, uint32_t mcus_across,
                        uint32_t mcus_down);

/* A number by which indexes of one image compare: who knows more has a larger one; 0: bytes of no index. */
uint32_t fl_jpeg_index_rank(const uint8_t *bytes, size_t size);

/* A place in an index: `mark` is that of MCU `column` of a row. */
typedef struct fl_jpeg_cursor {
    const fl_jpeg_index *index;
    uint64_t at; /* bits of the index read */
    uint32_t column;
    fl_jpeg_mark mark;
} fl_jpeg_cursor;

/* At the first mark of a row, which must be of the index. */
fl_jpeg_cursor fl_jpeg_index_row(const fl_jpeg_index *index, uint32_t row);

/* On to the row's next mark. False at its end. */
bool fl_jpeg_index_next(fl_jpeg_cursor *cursor);

/* Bytes of an index of every thin-th of the marks in each row (the first always among them), of which there
 * are `across` in a row with one for every `every` MCUs. Written to `out` unless that is NULL. 0: it cannot
 * be stored. */
size_t fl_jpeg_index_write(const fl_jpeg_mark *marks, uint32_t every, uint32_t across, uint32_t rows,
                           uint32_t thin, uint8_t *out);

/* The same of the first rows of an image, of version 2. `last`: no more can be known. */
size_t fl_jpeg_index_write_first(const fl_jpeg_mark *marks, uint32_t every, uint32_t across, uint32_t rows,
                                 bool last, uint32_t thin, uint8_t *out);

#endif
