/* jpeg/huffman: reading Huffman-coded blocks from plain bytes (stuffing removed, FL_PAD zeros behind), for fl_entropy and fl_baseline.
 * Nothing here checks for the end of the data: one MCU reads less than FL_PAD bytes beyond it, and the caller compares positions after each.
 * All is inlined, so that a caller compiled for later CPUs gets their shifts. */
#ifndef FL_JPEG_HUFFMAN_H
#define FL_JPEG_HUFFMAN_H

#include <string.h>

#include "jpeg/header.h"

#define FL_INLINE static inline __attribute__((always_inline))

/* Bits are read from the top of `bits`; `left` of them are valid, and those below are the data's or zero. */
typedef struct fl_bits {
    const uint8_t *at;
    uint64_t bits;
    unsigned left;
} fl_bits;

/* At least 56 bits, without a branch: bytes already counted are or-ed onto themselves (F. Giesen, "Reading bits in far too many ways"). */
FL_INLINE void fl_refill(fl_bits *b) {
    uint64_t next;
    memcpy(&next, b->at, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    next = __builtin_bswap64(next);
#endif
    b->bits |= next >> b->left;
    b->at += (63 - b->left) >> 3;
    b->left |= 56;
}

FL_INLINE void fl_take(fl_bits *b, unsigned count) {
    b->bits <<= count;
    b->left -= count;
}

/* The first byte not begun. */
FL_INLINE const uint8_t *fl_bits_at(const fl_bits *b) { return b->at - b->left / 8; }

FL_INLINE uint64_t fl_window(const fl_bits *b) { return b->bits >> (64 - FL_WINDOW); }

/* The value whose `size` bits are on top. T.81 F.2.2.1: a first bit of 0 marks a negative one. Without a branch, for signs are noise. */
FL_INLINE int fl_extend(uint64_t top, unsigned size) {
    int value = (int)(top >> 1 >> (63 - size)), negative = (int)~((int64_t)top >> 63);
    return value + (negative & (1 - (1 << size)));
}

/* Any symbol, also one whose code is longer than the window. False when there is no such code. */
bool fl_find_symbol(const fl_codes *codes, bool ac, fl_bits *b, int *run, int *value);

/* Through copies: a reader whose address is given away would not stay in registers. */
FL_INLINE bool fl_long_symbol(const fl_codes *codes, bool ac, fl_bits *b, int *run, int *value) {
    fl_bits copy = *b;
    int found_run = 0, found_value = 0;
    bool found = fl_find_symbol(codes, ac, &copy, &found_run, &found_value);
    *b = copy;
    *run = found_run;
    *value = found_value;
    return found;
}

/* The difference of a DC coefficient to the one before it; FL_NO_DC when there is no such code. */
enum { FL_NO_DC = 1 << 20 };

FL_INLINE int fl_dc(const fl_codes *codes, fl_bits *b) {
    fl_refill(b);
    const fl_symbols symbol = codes->make[fl_window(b)];
    if (__builtin_expect(symbol != 0, 1)) {
        const unsigned length = symbol >> 6 & 15, size = symbol >> 10 & 15;
        int value = fl_extend(b->bits << length, size);
        fl_take(b, length + size);
        return value;
    }
    int run, value;
    return fl_long_symbol(codes, false, b, &run, &value) ? value : FL_NO_DC;
}

/* Passes over the other 63 coefficients of a block. */
FL_INLINE bool fl_skip_ac(const fl_codes *ac, fl_bits *b) {
    unsigned k = 1;
    for (;;) {
        fl_refill(b);
        fl_step step;
        /* Two steps to a refill: neither takes more than FL_WALK + 15 bits. */
        for (int i = 0; i < 2; i++) {
            step = ac->walk[b->bits >> (64 - FL_WALK)];
            unsigned after = k + (step >> 8);
            if (after >= FL_BLOCK) goto end;
            fl_take(b, step & 63);
            k = after;
        }
        continue;
    end:;
        unsigned run = step >> 8;
        if (k + run == FL_BLOCK || (run >= FL_RUN_EOB && run != FL_RUN_NONE && k + run - FL_RUN_EOB < FL_BLOCK)) {
            fl_take(b, step & 63); /* the last symbol of the window ends the block */
            return true;
        }
        int one, value;
        if (!fl_long_symbol(ac, true, b, &one, &value)) return false;
        if (one == FL_RUN_EOB) return true;
        k += (unsigned)one;
        if (k > FL_BLOCK) return false; /* a run over the block's end: libjpeg is silent, but let it decide */
        if (k == FL_BLOCK) return true;
    }
}

/* Where a zigzag position lies in a block; positions beyond its end, which wrong or unused symbols reach, lie just behind it. */
enum { FL_NATURAL = 64 + FL_COVER_END + 16 };
extern const uint8_t fl_natural[FL_NATURAL];

/* Any symbol at coefficient k, and its value if it has one. Returns the next k, 0 at the end of the block, -1 for damage. */
FL_INLINE int fl_make_one(const fl_codes *ac, fl_symbols one, fl_bits *b, int16_t *block, unsigned k) {
    int run, value;
    if (one != 0 && (one & 63) == 0) {
        fl_refill(b);
        const unsigned length = one >> 6 & 15, size = one >> 10 & 15;
        value = fl_extend(b->bits << length, size);
        run = (int)(one >> 14 & 15) + 1;
        fl_take(b, length + size);
    } else {
        if (!fl_long_symbol(ac, true, b, &run, &value)) return -1;
        if (run == FL_RUN_EOB) return 0;
    }
    k += (unsigned)run;
    if (k > FL_BLOCK) return -1;
    block[fl_natural[k - 1]] = (int16_t)value;
    return (int)k;
}

/* Makes the other 63 coefficients of a block whose bytes are zero; block[64] may be written too. Returns a zigzag position from which on
 * all are zero (1 when it has no other coefficients), and -1 for what fl_skip_ac refuses.
 *
 * Two symbols a turn, without a branch for whether there are two: a second value that is none is stored where the first then is. */
FL_INLINE int fl_make_ac(const fl_codes *ac, fl_bits *b, int16_t *block) {
    const fl_symbols *const make = ac->make;
    const uint8_t *at = fl_natural + 1; /* the next coefficient's place */
    for (;;) {
        fl_symbols both;
        fl_refill(b);
        for (int i = 0; i < 4; i++) { /* four turns to a refill: none takes more than FL_WINDOW bits */
            both = make[fl_window(b)];
            if (__builtin_expect((both & 63) == 0, 0)) goto one;
            const uint8_t *end = at + (both >> 6 & 15), *after = at + (both >> 10 & 127);
            const uint32_t place = *end, second = after[-1]; /* both before the stores, which might alias them */
            block[second] = (int16_t)((int32_t)(both << 10) >> 27);
            block[place] = (int16_t)((int32_t)both >> 22);
            if (after >= fl_natural + FL_BLOCK) {
                if (end + 1 >= fl_natural + FL_BLOCK) goto one; /* the first symbol fills the block, so the second is not of it */
                fl_take(b, both & 63);
                if (after > fl_natural + FL_COVER_END) return (int)(after - fl_natural) - FL_COVER_END;
                return after == fl_natural + FL_BLOCK ? FL_BLOCK : -1;
            }
            fl_take(b, both & 63);
            at = after;
        }
        continue;
    one:;
        const int k = (int)(at - fl_natural), next = fl_make_one(ac, both, b, block, (unsigned)k);
        if (next <= 0) return next ? -1 : k;
        if (next == FL_BLOCK) return FL_BLOCK;
        at = fl_natural + next;
    }
}

#endif
