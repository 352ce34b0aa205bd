#include "jpeg/huffman.h"

/* T.81 figure A.6, and behind it where the end of a block, of no value, is stored. */
const uint8_t fl_jpeg_natural[FL_JPEG_NATURAL] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27,
    20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64};

bool fl_jpeg_find_symbol(const fl_jpeg_codes *codes, bool ac, fl_jpeg_bits *b, int *run, int *value) {
    fl_jpeg_refill(b);
    for (int length = 1; length <= 16; length++) {
        int32_t code = (int32_t)(b->bits >> (64 - length));
        if (code > codes->last[length]) continue;
        int size;
        fl_jpeg_symbol_meaning(codes->symbols[code + codes->offset[length]], ac, &size, run);
        *value = fl_jpeg_extend(b->bits << length, (unsigned)size);
        fl_jpeg_take(b, (unsigned)(length + size));
        return true;
    }
    return false;
}
