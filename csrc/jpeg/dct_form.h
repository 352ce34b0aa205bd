/* jpeg/dct_form: the layout of the DCT form of a JPEG: its quantised coefficients as bit planes, without
 * Huffman codes (docs/format.md).
 *
 * Numbers are little-endian; bits are filled from the bottom of each byte, and numbers among them have their
 * lowest bit first.
 *   28 bytes: "\xFC" "DCT"; version 1; flags (1: intervals are padded with ones; 2: of a progressive file);
 *   every: MCUs from one entry point to the next; 0;
 *     u32 bytes of head, tail, data; widths in bits of a strip's start, of its DC bytes (luma, chroma) and of
 *     its steps (luma, chroma); three zeros.
 *   Orders: of each component three u64. Bit j of the i-th is set if the order of zigzag position j is above
 *   i; bit 0 is clear. Table: each MCU row has its strips, all rows the same number of bits: where the strip
 *   starts in the data, its DC bytes, and of all its
 *     segments but the last the AC bits. Then the data, the head, the tail, and zeros that make it at least
 *     256 bytes behind the data.
 *   Head: the file up to its first coded byte. Tail: all behind the coded data; of a progressive file all
 *   behind its first scan's, without that
 *     of the other scans.
 *
 * A strip is a row of blocks of a component in an MCU row: luma's one or two, then Cb's, Cr's. A segment is
 * its blocks in `every` MCUs. Strip: DC groups, filled up to a byte; the last nonzero zigzag position of each
 * block, 6 bits, filled up to a byte; AC planes, likewise.
 *   DC group: of up to 8 blocks. 4 bits: the width; then of each block the difference to the one before it in
 *   the strip (the first: to 0), in
 *     so many bits; 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
 *   Block in the AC planes, of last position 0: nothing. Else, a bit for each of the positions named, in
 *   order:
 *     significance, of 1 .. last - 1 (last is significant); of the significant positions: whether U >= 2; the
 *     sign, 1 is negative; low bit 0 of those with an order above 0; low bit 1 of those above 1; low bit 2 of
 *     those above 2; then for k = 2, 3, ..., 11 while there are positions with U >= 2^(k-1): of these,
 *     whether U >= 2^k; and bit k - 2 of U. |coefficient| = ((U - 1) << order) + low bits + 1.
 *
 * NOTE [ dct: reading beyond a strip ]
 * No read checks its own bounds. A block takes at most 62 + 63 * (2 + 3 + 2 * 10) bits, less than 208 bytes,
 * after which a reader compares its position with the strip's end; and 256 bytes that are no data follow the
 * data. So lengths, orders, planes and entry points may say anything: what is read lies in the form, and a
 * position beyond the end, or another one than the table's at an entry point, is damage.
 */
#ifndef FL_JPEG_DCT_FORM_H
#define FL_JPEG_DCT_FORM_H

#include <stdbool.h>

#include "common/bytes.h"
#include "jpeg/header.h"

enum {
    FL_JPEG_DCT_HEADER = 28,
    FL_JPEG_DCT_VERSION = 1,
    FL_JPEG_DCT_ONES = 1,
    FL_JPEG_DCT_PROGRESSIVE = 2 /* flags */,
    FL_JPEG_DCT_PAD = 256,
    FL_JPEG_DCT_GROUP = 8,
    FL_JPEG_DCT_ORDERS = 24 /* bytes of a component's */,
    FL_JPEG_DCT_STRIPS = 4 /* of an MCU row, at most */,
    FL_JPEG_DCT_BIT_MOST = 11 /* bits of U */,
    FL_JPEG_DCT_MAGNITUDE_MOST = (1 << FL_JPEG_DCT_BIT_MOST) - 1 /* that is written: U of order 0 */,
    FL_JPEG_DCT_ORDER_MOST = 3,
    FL_JPEG_DCT_WIDTH_MOST = 32 /* of a number of the table */
};

extern const uint8_t fl_jpeg_dct_magic[4];

/* Bit j of above[i]: the order of zigzag position j is above i. The others follow from it: each position's
 * order, and 1 - (1 << order). */
typedef struct fl_jpeg_dct_orders {
    uint64_t above[FL_JPEG_DCT_ORDER_MOST];
    _Alignas(64) uint16_t order[64];
    _Alignas(64) int8_t bias[64];
} fl_jpeg_dct_orders;

/* Widths of the table's numbers. [0]: luma, [1]: chroma. */
typedef struct fl_jpeg_dct_widths {
    uint8_t start, dc[2], step[2];
} fl_jpeg_dct_widths;

/* A strip's place in every MCU row. */
typedef struct fl_jpeg_dct_lane {
    uint8_t component, row; /* row of blocks in the MCU */
    uint8_t place, across; /* its first block in an MCU; its blocks in an MCU */
    uint32_t blocks, every; /* in the strip; in a segment */
    uint32_t bits; /* from the start of the MCU row's table */
} fl_jpeg_dct_lane;

/* Borrows its bytes. */
typedef struct fl_jpeg_dct_form {
    fl_span head, tail, data;
    const uint8_t *orders_at, *table;
    bool ones, progressive;
    uint32_t every, segments, lanes, rows, row_bits;
    fl_jpeg_dct_widths widths;
    fl_jpeg_dct_lane lane[FL_JPEG_DCT_STRIPS];
    fl_jpeg_dct_orders orders[3];
} fl_jpeg_dct_form;

/* True for bytes that begin as the DCT form does. */
static inline bool fl_jpeg_dct_is(const uint8_t *bytes, size_t size) {
    return size >= 4 && memcmp(bytes, fl_jpeg_dct_magic, 4) == 0;
}

/* Finds head and tail. False: not the form, or lengths that do not hold. */
bool fl_jpeg_dct_open(fl_jpeg_dct_form *form, const uint8_t *bytes, size_t size);

/* The frame that the head describes, and of a file that is not progressive the tables. False: it is no head
 * of a usual file (fl_jpeg_header_usual). */
bool fl_jpeg_dct_frame(const fl_jpeg_dct_form *form, fl_jpeg_tables *tables, fl_jpeg_frame *frame);

/* The rest, for this frame. False: sizes, widths or orders that do not hold. */
bool fl_jpeg_dct_lay_out(fl_jpeg_dct_form *form, const fl_jpeg_frame *frame);

/* Sets what follows of the frame, `every` and the widths alone: lanes, segments, bits of a row. */
void fl_jpeg_dct_measure(fl_jpeg_dct_form *form, const fl_jpeg_frame *frame);

/* Order and bias of `above`. */
void fl_jpeg_dct_orders_spread(fl_jpeg_dct_orders *orders);

/* One strip. Positions are bits from `at`, the data's first byte. */
typedef struct fl_jpeg_dct_strip {
    const fl_jpeg_dct_form *form;
    const fl_jpeg_dct_lane *lane;
    const uint8_t *at;
    uint64_t dc, lasts, ac, end;
    uint64_t steps; /* bits of the table */
} fl_jpeg_dct_strip;

/* False for a strip that is not inside the data. */
bool fl_jpeg_dct_find(const fl_jpeg_dct_form *form, uint32_t row, uint32_t lane, fl_jpeg_dct_strip *strip);

/* AC bits of one of a strip's segments, which is not the last. */
uint64_t fl_jpeg_dct_step(const fl_jpeg_dct_strip *strip, uint32_t segment);

/* DC coefficients of blocks [from, to) of a strip. False for damage. */
bool fl_jpeg_dct_dc(const fl_jpeg_dct_strip *strip, uint32_t from, uint32_t to, int16_t *out);

/* The bits from position `bit` on: at least 57 of them, the others are zero. */
static inline uint64_t fl_jpeg_dct_bits(const uint8_t *at, uint64_t bit) {
    return fl_bytes_le64(at + (bit >> 3)) >> (bit & 7);
}

/* n bits, n at most 63. */
static inline uint64_t fl_jpeg_dct_wide(const uint8_t *at, uint64_t bit, unsigned n) {
    const unsigned shift = bit & 7;
    const uint64_t low = fl_bytes_le64(at + (bit >> 3)) >> shift,
                   high = (uint64_t)at[(bit >> 3) + 8] << 1 << (63 - shift);
    return (low | high) & ((1ull << n) - 1);
}

static inline unsigned fl_jpeg_dct_last(const uint8_t *at, uint64_t lasts, uint32_t block) {
    const uint64_t bit = lasts + 6 * (uint64_t)block;
    return fl_bytes_le16(at + (bit >> 3)) >> (bit & 7) & 63;
}

#endif
