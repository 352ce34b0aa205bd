/* jpeg/dct_code: writing coded data: the codes of a Huffman table's symbols, bits, and stuffing. */
#ifndef FL_JPEG_DCT_CODE_H
#define FL_JPEG_DCT_CODE_H

#include "common/bytes.h"
#include "common/simd.h"
#include "jpeg/huffman_tables.h"

typedef struct fl_jpeg_dct_code {
    uint16_t code;
    uint8_t bits; /* 0: no such symbol */
} fl_jpeg_dct_code;

/* Symbol of 16 zeros. */
enum { FL_JPEG_ZEROS = 0xF0 };

/* T.81, annex C. */
void fl_jpeg_dct_number(const fl_jpeg_codes *codes, fl_jpeg_dct_code out[256]);

/* Appends at most 56 bits, those of value above them zero, without a branch: whole bytes are written, and
 * seven more that do not count yet. `bits` has `count` bits, below 8, from the top on. */
FL_INLINE uint8_t *fl_jpeg_dct_put(uint64_t *bits, unsigned *count, uint64_t value, unsigned size,
                                   uint8_t *out) {
    *bits |= value << 1 << (63 - *count - size);
    *count += size;
    fl_bytes_put_be64(out, *bits);
    out += *count / 8;
    *bits <<= *count & ~7u;
    *count %= 8;
    return out;
}

FL_INLINE unsigned fl_jpeg_dct_bits_of(int value) {
    return value ? 32 - (unsigned)__builtin_clz((unsigned)(value < 0 ? -value : value)) : 0;
}

/* A code and the value behind it, at most 16 + 16 bits. */
FL_INLINE uint8_t *fl_jpeg_dct_put_value(uint64_t *bits, unsigned *count, fl_jpeg_dct_code code, int value,
                                         unsigned size, uint8_t *out) {
    const uint32_t low = (uint32_t)(value + (value >> 31)) & ((1u << size) - 1);
    return fl_jpeg_dct_put(bits, count, (uint64_t)code.code << size | low, code.bits + size, out);
}

/* Writes an interval's last byte, if one is begun, filled up with ones or zeros. */
uint8_t *fl_jpeg_dct_fill(uint64_t *bits, unsigned *count, bool ones, uint8_t *out);

/* Copies with a zero behind each 0xFF. Returns where it ends. */
uint8_t *fl_jpeg_dct_stuff(const uint8_t *at, const uint8_t *end, uint8_t *out);

#endif
