/* jpeg/header: what is read of a usual JPEG (baseline or extended sequential, 8 bit, Huffman, one scan of all components) before its coded data:
 * frame, quantisers, and Huffman tables made ready for jpeg/huffman.h. Shared by the walk that proves a file and by the decoder.
 *
 * Source of the rules: ITU-T T.81, annexes B (markers), C (codes from lengths), F.2 (sequential decoding).
 */
#ifndef FL_JPEG_HEADER_H
#define FL_JPEG_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FL_PAD is more than one MCU can consume (10 blocks of 64 symbols of at most 31 bits) and what a refill reads ahead. */
enum { FL_WINDOW = 10, FL_WALK = 11, FL_BLOCK = 64, FL_BLOCKS_MAX = 10 /* T.81 B.2.3, and libjpeg's own limit */, FL_PAD = 4096 };

/* Windows onto the next bits: FL_WINDOW for making values, FL_WALK for passing over them. Wider ones hold more symbols, but take longer to
 * build, which matters to files with Huffman tables of their own, and leave less of the nearest cache to the rest.
 *
 * For passing over: what a window of FL_WALK bits starts with. Low byte: bits, code and value bits together (the first symbol may reach
 * beyond the window, further ones lie in it wholly); high byte: run, the coefficients that they cover. FL_RUN_EOB stands for the rest of the
 * block, added to the runs before it. FL_RUN_NONE: no code of at most FL_WALK bits.
 *
 * Runs without an end of block add up to at most FL_BLOCK, so that a walk tells by the sum k + run, where k is 1 .. 63, what it has met:
 * up to 64 coefficients of the block (64: its last); 65 .. 127 a run over its end; 130 .. 192 the end of the block; from 193 on an end of
 * the block that is another block's, or FL_RUN_NONE. */
typedef uint16_t fl_step;
enum { FL_RUN_EOB = 129, FL_RUN_NONE = 255 };

/* For making values: what a window of FL_WINDOW bits starts with. Two forms:
 *   bits 0-5 are 0: one symbol. 6-9: bits of the code; 10-13: value bits; 14-17: zeros before the value. All of a DC table, and
 *     of an AC table what does not fit the other form. The whole is 0 when no code fits the window.
 *   else: one symbol or two that lie in the window wholly. 0-5: their bits; 6-9: zeros before the first value; 10-16: coefficients covered,
 *     plus FL_COVER_END when the end of the block is one of the symbols; 17-21: the second value, signed, 0 when there is
 *     none; 22-31: the first value, signed. */
typedef uint32_t fl_symbols;
enum { FL_COVER_END = 90 };

/* Bits that follow a code: the size category in the low half of its symbol. Run: the zeros in the high half and the coefficient. */
static inline void fl_symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run) {
    int size = symbol & 15, zeros = symbol >> 4;
    *value_bits = ac ? size : symbol;
    *run = !ac ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : FL_RUN_EOB;
}

typedef struct fl_codes {
    uint8_t lengths[16], symbols[256]; /* as in the file: the key of this cache */
    uint16_t symbol_count;
    bool built;
    int32_t last[17]; /* the largest code of each length, -1 for none */
    int32_t offset[17]; /* symbols[code + offset[length]] */
    fl_symbols make[1 << FL_WINDOW];
    fl_step walk[1 << FL_WALK]; /* AC only */
} fl_codes;

/* From lengths, symbols and symbol_count. False for lengths that are no prefix code or use the code of all ones, and for symbols that libjpeg
 * refuses or that mean nothing. */
bool fl_codes_build(fl_codes *codes, bool ac);

/* Tables outlive a file: cameras and encoders mostly write the same ones, and a table equal to the last one in its place is kept. */
typedef struct fl_tables {
    fl_codes dc[4], ac[4];
} fl_tables;

typedef enum fl_colour { FL_GREY = 0, FL_YCC = 1, FL_RGB = 2 } fl_colour;

typedef struct fl_frame {
    uint32_t width, height, interval; /* interval: MCUs from one restart marker to the next; 0: none */
    uint8_t count, id[4], h[4], v[4], quant[4];
    uint8_t block_count, block_dc[FL_BLOCKS_MAX], block_ac[FL_BLOCKS_MAX], block_component[FL_BLOCKS_MAX];
    uint32_t mcus_across, mcus_down;
    unsigned quants, dcs, acs; /* tables defined so far, one bit each */
    bool framed, jfif;
    int adobe; /* the transform of an Adobe marker; -1: none */
    uint16_t quantiser[4][64]; /* in the file's order, zigzag */
    size_t data; /* where the coded data start */
} fl_frame;

/* Reads everything up to the first coded byte. False for a file of another kind, or of which libjpeg-turbo might have anything to say. */
bool fl_scan_open(fl_tables *tables, fl_frame *frame, const uint8_t *bytes, size_t size);

/* How libjpeg reads the components' meaning from the markers. */
fl_colour fl_scan_colour(const fl_frame *frame);

/* Whether fl_baseline decodes such files, and an index of them is of use: grey or YCbCr, one chroma sample for 1 or 2 pixels each way. */
bool fl_scan_usual(const fl_frame *frame);

/* Copies coded data from `at` to the next marker, or to the end, without the zeros stuffed in behind 0xFF, and FL_PAD zeros behind them.
 * Returns where it stopped. `out` has room for end - at + FL_PAD bytes. */
const uint8_t *fl_scan_unstuff(const uint8_t *at, const uint8_t *end, uint8_t *out, size_t *size);

/* Whether the marker that stands at `at` is the given one, with nothing before it. */
static inline bool fl_scan_marker(const uint8_t *at, const uint8_t *end, uint8_t marker) {
    return end - at >= 2 && at[0] == 0xFF && at[1] == marker;
}

enum { FL_RST0 = 0xD0, FL_EOI = 0xD9 };

#endif
