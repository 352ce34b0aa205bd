/* jpeg/huffman: reading Huffman-coded blocks from plain bytes (stuffing removed, FL_JPEG_PAD zeros behind),
 * for fl_jpeg_entropy and fl_jpeg_baseline. Nothing here checks for the end of the data: one MCU reads less
 * than FL_JPEG_PAD bytes beyond it, and the caller compares positions after each. All is inlined, so that a
 * caller compiled for later CPUs gets their shifts. */
#ifndef FL_JPEG_HUFFMAN_H
#define FL_JPEG_HUFFMAN_H

#include "common/bytes.h"
#include "common/simd.h"
#include "jpeg/huffman_tables.h"

/* Bits are read from the top of `bits`; `left` of them are valid, and those below are the data's or zero. */
typedef struct fl_jpeg_bits {
    const uint8_t *at;
    uint64_t bits;
    unsigned left;
} fl_jpeg_bits;

/* At least 56 bits, without a branch: bytes already counted are or-ed onto themselves (F. Giesen, "Reading
 * bits in far too many ways"). */
FL_INLINE void fl_jpeg_refill(fl_jpeg_bits *b) {
    b->bits |= fl_bytes_be64(b->at) >> b->left;
    b->at += (63 - b->left) >> 3;
    b->left |= 56;
}

FL_INLINE void fl_jpeg_take(fl_jpeg_bits *b, unsigned count) {
    b->bits <<= count;
    b->left -= count;
}

/* The first byte not begun. */
FL_INLINE const uint8_t *fl_jpeg_bits_at(const fl_jpeg_bits *b) { return b->at - b->left / 8; }

FL_INLINE uint64_t fl_jpeg_window(const fl_jpeg_bits *b) { return b->bits >> (64 - FL_JPEG_WINDOW); }

/* The value whose `size` bits are on top. T.81 F.2.2.1: a first bit of 0 marks a negative one. Without a
 * branch, for signs are noise. */
FL_INLINE int fl_jpeg_extend(uint64_t top, unsigned size) {
    int value = (int)(top >> 1 >> (63 - size)), negative = (int)~((int64_t)top >> 63);
    return value + (negative & (1 - (1 << size)));
}

/* Any symbol, also one whose code is longer than the window. False when there is no such code. */
bool fl_jpeg_find_symbol(const fl_jpeg_codes *codes, bool ac, fl_jpeg_bits *b, int *run, int *value);

/* Through copies: a reader whose address is given away would not stay in registers. */
FL_INLINE bool fl_jpeg_long_symbol(const fl_jpeg_codes *codes, bool ac, fl_jpeg_bits *b, int *run,
                                   int *value) {
    fl_jpeg_bits copy = *b;
    int found_run = 0, found_value = 0;
    bool found = fl_jpeg_find_symbol(codes, ac, &copy, &found_run, &found_value);
    *b = copy;
    *run = found_run;
    *value = found_value;
    return found;
}

/* The difference of a DC coefficient to the one before it; FL_JPEG_NO_DC when there is no such code. */
enum { FL_JPEG_NO_DC = 1 << 20 };

FL_INLINE int fl_jpeg_dc(const fl_jpeg_codes *codes, fl_jpeg_bits *b) {
    fl_jpeg_refill(b);
    const fl_jpeg_symbols *symbol = &codes->make[fl_jpeg_window(b)];
    if (__builtin_expect(symbol->bits != 0, 1)) {
        const unsigned length = symbol->bits, size = (unsigned)symbol->size;
        int value = fl_jpeg_extend(b->bits << length, size);
        fl_jpeg_take(b, length + size);
        return value;
    }
    int run, value;
    return fl_jpeg_long_symbol(codes, false, b, &run, &value) ? value : FL_JPEG_NO_DC;
}

/* Passes over the other 63 coefficients of a block. */
FL_INLINE bool fl_jpeg_skip_ac(const fl_jpeg_codes *ac, fl_jpeg_bits *b) {
    unsigned k = 1;
    for (;;) {
        fl_jpeg_refill(b);
        fl_jpeg_step step;
        /* Two steps to a refill: neither takes more than FL_JPEG_WALK + 15 bits. */
        for (int i = 0; i < 2; i++) {
            step = ac->walk[b->bits >> (64 - FL_JPEG_WALK)];
            unsigned after = k + (step >> 8);
            if (after >= FL_JPEG_BLOCK) goto end;
            fl_jpeg_take(b, step & 63);
            k = after;
        }
        continue;
    end:;
        unsigned run = step >> 8;
        if (k + run == FL_JPEG_BLOCK || (run >= FL_JPEG_RUN_EOB && run != FL_JPEG_RUN_NONE &&
                                         k + run - FL_JPEG_RUN_EOB < FL_JPEG_BLOCK)) {
            fl_jpeg_take(b, step & 63); /* the last symbol of the window ends the block */
            return true;
        }
        int one, value;
        if (!fl_jpeg_long_symbol(ac, true, b, &one, &value)) return false;
        if (one == FL_JPEG_RUN_EOB) return true;
        k += (unsigned)one;
        if (k > FL_JPEG_BLOCK)
            return false; /* a run over the block's end: libjpeg is silent, but let it decide */
        if (k == FL_JPEG_BLOCK) return true;
    }
}

/* Place of a zigzag position in a block; positions beyond its end, which wrong or unused symbols reach, lie
 * just behind it. */
enum { FL_JPEG_NATURAL = 64 + FL_JPEG_COVER_END + 16 };
extern const uint8_t fl_jpeg_natural[FL_JPEG_NATURAL];

/* A block whose AC coefficients are being made: its bytes were zero; block[64] may be written too. In
 * registers, as far as there are enough. */
typedef struct fl_jpeg_making {
    fl_jpeg_bits bits;
    const fl_jpeg_symbols *make;
    int16_t *block;
    uint32_t k; /* zigzag position of the next coefficient, 1 at first */
} fl_jpeg_making;

/* Order of a block's coefficients; always a constant, so that it costs nothing. */
typedef enum fl_jpeg_order { FL_JPEG_IN_NATURAL_ORDER, FL_JPEG_IN_ZIGZAG_ORDER } fl_jpeg_order;

/* Place of a zigzag position in a block, 64 for positions beyond its end. */
FL_INLINE uint32_t fl_jpeg_place(uint32_t position, fl_jpeg_order order) {
    if (order == FL_JPEG_IN_NATURAL_ORDER) return fl_jpeg_natural[position];
    return position < FL_JPEG_BLOCK ? position : FL_JPEG_BLOCK;
}

enum { FL_JPEG_TURNS = 4 /* to a refill: none takes more than FL_JPEG_WINDOW bits */ };

/* Two symbols at most, without a branch for whether there are two: a second value that is none is stored
 * where the first then is. False: one that is to be made alone, or the block ends; nothing was taken then. */
FL_INLINE bool fl_jpeg_make_two(fl_jpeg_making *m, fl_jpeg_order order) {
    const fl_jpeg_symbols *const both = &m->make[fl_jpeg_window(&m->bits)];
    const uint32_t after = m->k + both->cover;
    if (__builtin_expect(after >= FL_JPEG_BLOCK, 0)) return false;
    const int16_t first = both->first,
                  second = both->second; /* all before the stores, which might alias them */
    uint32_t place = m->k + both->zeros, last = after - 1;
    if (order == FL_JPEG_IN_NATURAL_ORDER) place = fl_jpeg_natural[place], last = fl_jpeg_natural[last];
    const unsigned bits = both->bits;
    m->block[last] = second;
    m->block[place] = first;
    fl_jpeg_take(&m->bits, bits);
    m->k = after;
    return true;
}

/* Handles the symbols that fl_jpeg_make_two does not. Returns 0 if the block goes on; at its end a zigzag
 * position from which on all coefficients are zero (1 when there is none but DC), and -1 for symbols that
 * fl_jpeg_skip_ac refuses. */
FL_INLINE int fl_jpeg_make_any(const fl_jpeg_codes *ac, fl_jpeg_making *m, fl_jpeg_order order) {
    const fl_jpeg_symbols both = m->make[fl_jpeg_window(&m->bits)];
    int run, value;
    if (both.cover != FL_JPEG_COVER_ONE) {
        const uint32_t after = m->k + both.cover, end = m->k + both.zeros;
        m->block[fl_jpeg_place(after - 1, order)] = both.second;
        m->block[fl_jpeg_place(end, order)] = both.first;
        if (end + 1 <
            FL_JPEG_BLOCK) { /* else the first symbol fills the block, so that the second is not of it */
            fl_jpeg_take(&m->bits, both.bits);
            m->k = after;
            if (after > FL_JPEG_COVER_END) return (int)after - FL_JPEG_COVER_END;
            return after < FL_JPEG_BLOCK ? 0 : after == FL_JPEG_BLOCK ? FL_JPEG_BLOCK : -1;
        }
    }
    if (both.cover == FL_JPEG_COVER_ONE && both.bits) {
        fl_jpeg_refill(&m->bits);
        value = fl_jpeg_extend(m->bits.bits << both.bits, (unsigned)both.size);
        run = both.zeros + 1;
        fl_jpeg_take(&m->bits, both.bits + (unsigned)both.size);
    } else {
        if (!fl_jpeg_long_symbol(ac, true, &m->bits, &run, &value)) return -1;
        if (run == FL_JPEG_RUN_EOB) return (int)m->k;
    }
    m->k += (unsigned)run;
    if (m->k > FL_JPEG_BLOCK) return -1;
    m->block[fl_jpeg_place(m->k - 1, order)] = (int16_t)value;
    return m->k == FL_JPEG_BLOCK ? FL_JPEG_BLOCK : 0;
}

/* Makes the other 63 coefficients of a block whose bytes are zero; block[64] may be written too. Returns what
 * fl_jpeg_make_any does, never 0. */
FL_INLINE int fl_jpeg_make_ac(const fl_jpeg_codes *ac, fl_jpeg_bits *b, int16_t *block, fl_jpeg_order order) {
    fl_jpeg_making m = {*b, ac->make, block, 1};
    int count = 0;
    while (!count) {
        fl_jpeg_refill(&m.bits);
        bool more = true;
        for (int i = 0; i < FL_JPEG_TURNS && more; i++) more = fl_jpeg_make_two(&m, order);
        if (!more) count = fl_jpeg_make_any(ac, &m, order);
    }
    *b = m.bits;
    return count;
}

#endif
