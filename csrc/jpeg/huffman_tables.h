/* jpeg/huffman_tables: Huffman codes as windows onto the next bits of coded data. Source: ITU-T T.81, annexes
 * C (codes from lengths) and F.2. */
#ifndef FL_JPEG_HUFFMAN_TABLES_H
#define FL_JPEG_HUFFMAN_TABLES_H

#include <stdbool.h>
#include <stdint.h>

/* FL_JPEG_PAD is more than one MCU can consume (10 blocks of 64 symbols of at most 31 bits) and what a refill
 * reads ahead. */
enum {
    FL_JPEG_WINDOW = 10,
    FL_JPEG_WALK = 11,
    FL_JPEG_BLOCK = 64,
    FL_JPEG_BLOCKS_MAX = 10 /* T.81 B.2.3, and libjpeg's own limit */,
    FL_JPEG_PAD = 4096
};

/* Windows onto the next bits: FL_JPEG_WINDOW for making values, FL_JPEG_WALK for passing over them. Wider
 * ones hold more symbols, but take longer to build, which matters to files with Huffman tables of their own,
 * and leave less of the nearest cache to the rest.
 *
 * For passing over: what a window of FL_JPEG_WALK bits starts with. Low byte: bits, code and value bits
 * together (the first symbol may reach beyond the window, further ones lie in it wholly); high byte: run, the
 * coefficients that they cover. FL_JPEG_RUN_EOB stands for the rest of the block, added to the runs before
 * it. FL_JPEG_RUN_NONE: no code of at most FL_JPEG_WALK bits.
 *
 * Runs without an end of block add up to at most FL_JPEG_BLOCK, so that a walk tells by the sum k + run,
 * where k is 1 .. 63, what it has met: up to 64 coefficients of the block (64: its last); 65 .. 127 a run
 * over its end; 130 .. 192 the end of the block; from 193 on an end of the block that is another block's, or
 * FL_JPEG_RUN_NONE. */
typedef uint16_t fl_jpeg_step;
enum { FL_JPEG_RUN_EOB = 129, FL_JPEG_RUN_NONE = 255 };

/* For making values: what a window of FL_JPEG_WINDOW bits starts with. Two forms:
 *   `cover` below FL_JPEG_COVER_ONE: one AC symbol or two that lie in the window wholly; `bits`: theirs.
 *   `cover`: the coefficients that they
 *     are, plus FL_JPEG_COVER_END when the end of the block is one of them. `second` is 0 when there is no
 *     second value.
 *   FL_JPEG_COVER_ONE: one symbol, whose value bits follow. All of a DC table, and of an AC table what does
 *   not fit the other form.
 *     `bits`: of the code, 0 when no code fits the window; `size`: of the value. */
typedef struct fl_jpeg_symbols {
    union {
        int16_t first; /* value */
        int16_t size;
    };
    int16_t second; /* value */
    uint8_t bits, zeros /* before the first value */, cover, unused;
} fl_jpeg_symbols;
enum { FL_JPEG_COVER_END = 90, FL_JPEG_COVER_ONE = 255 };

/* Bits that follow a code: the size category in the low half of its symbol. Run: the zeros in the high half
 * and the coefficient. */
static inline void fl_jpeg_symbol_meaning(uint8_t symbol, bool ac, int *value_bits, int *run) {
    int size = symbol & 15, zeros = symbol >> 4;
    *value_bits = ac ? size : symbol;
    *run = !ac ? 1 : size ? zeros + 1 : zeros == 15 ? 16 : FL_JPEG_RUN_EOB;
}

typedef struct fl_jpeg_codes {
    uint8_t lengths[16], symbols[256]; /* as in the file: the key of this cache */
    uint16_t symbol_count;
    bool built;
    int32_t last[17]; /* the largest code of each length, -1 for none */
    int32_t offset[17]; /* symbols[code + offset[length]] */
    fl_jpeg_symbols make[1 << FL_JPEG_WINDOW];
    fl_jpeg_step walk[1 << FL_JPEG_WALK]; /* AC only */
} fl_jpeg_codes;

/* Sets `last` and `offset` from lengths and symbol_count. False for lengths that are no prefix code or use
 * the code of all ones. */
bool fl_jpeg_codes_number(fl_jpeg_codes *codes);

/* From lengths, symbols and symbol_count. False for lengths that are no prefix code or use the code of all
 * ones, and for symbols that libjpeg refuses or that mean nothing. */
bool fl_jpeg_codes_build(fl_jpeg_codes *codes, bool ac);

#endif
