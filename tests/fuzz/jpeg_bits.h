/* Writing JPEGs bit by bit, as no encoder would: any Huffman table, any symbol, any marker. */
#ifndef JPEG_BITS_H
#define JPEG_BITS_H

#include "fuzz.h"

typedef struct jpeg_out {
    uint8_t *bytes;
    size_t size, room;
    uint32_t bits; /* those that fill no byte yet, lowest last */
    unsigned count;
} jpeg_out;

static void put_byte(jpeg_out *o, uint32_t byte) {
    if (o->size == o->room) {
        o->room = o->room ? 2 * o->room : 1 << 12;
        o->bytes = realloc(o->bytes, o->room);
        CHECK(o->bytes != NULL);
    }
    o->bytes[o->size++] = (uint8_t)byte;
}

static void put_word(jpeg_out *o, uint32_t word) {
    put_byte(o, word >> 8);
    put_byte(o, word);
}

static void put_marker(jpeg_out *o, uint32_t marker) {
    put_byte(o, 0xFF);
    put_byte(o, marker);
}

/* Starts a segment, whose length end_segment writes. */
static size_t begin_segment(jpeg_out *o, uint32_t marker) {
    put_marker(o, marker);
    put_word(o, 0);
    return o->size;
}

static void end_segment(jpeg_out *o, size_t start) {
    const size_t length = o->size - start + 2;
    o->bytes[start - 2] = (uint8_t)(length >> 8), o->bytes[start - 1] = (uint8_t)length;
}

/* The lowest `count` bits of value, at most 16, with zeros stuffed in behind 0xFF. */
static void put_bits(jpeg_out *o, uint32_t value, unsigned count) {
    o->bits = o->bits << count | (value & ((1u << count) - 1));
    o->count += count;
    while (o->count >= 8) {
        const uint8_t byte = (uint8_t)(o->bits >> (o->count - 8));
        put_byte(o, byte);
        if (byte == 0xFF) put_byte(o, 0);
        o->count -= 8;
    }
}

/* Ones up to a whole byte. */
static void align_bits(jpeg_out *o) {
    if (o->count) put_bits(o, 0xFF, 8 - o->count);
    o->bits = o->count = 0;
}

/* ---- Huffman tables */

typedef struct huffman {
    uint8_t lengths[16], symbols[256];
    uint32_t count;
    uint16_t code[256];  /* by symbol */
    uint8_t length[256]; /* of its code; 0: the table lacks the symbol */
} huffman;

/* Lengths of a random prefix code without the code of all ones. `early`: of 8, how readily short codes are
 * given away. */
static void choose_lengths(huffman *t, uint32_t early) {
    uint32_t left = 1, rest = t->count;
    memset(t->lengths, 0, sizeof t->lengths);
    for (int length = 1; length <= 16 && rest; length++) {
        left *= 2;
        uint32_t most = rest < left - 1 ? rest : left - 1, some = length == 16          ? rest
                                                                  : noise() % 8 < early ? noise() % (most + 1)
                                                                                        : 0;
        while (some && ((uint64_t)(left - some) << (16 - length)) < (uint64_t)(rest - some) + 1) some--;
        t->lengths[length - 1] = (uint8_t)some;
        left -= some, rest -= some;
    }
}

static void assign_codes(huffman *t) {
    uint32_t code = 0, at = 0;
    memset(t->length, 0, sizeof t->length);
    for (unsigned length = 1; length <= 16; length++, code <<= 1)
        for (int i = 0; i < t->lengths[length - 1]; i++, at++, code++) {
            t->code[t->symbols[at]] = (uint16_t)code;
            t->length[t->symbols[at]] = (uint8_t)length;
        }
}

typedef enum table_use { FOR_DC, FOR_AC, FOR_PROGRESSIVE_AC, FOR_REFINING } table_use;

/* The nth choice of a symbol that means something in such a table; `large`: value sizes that no photograph
 * has. */
static uint8_t choose_symbol(table_use use, bool large) {
    const uint32_t x = noise(), size = large ? x % 16 : x % 11,
                   run = (x >> 8) % 4 ? (x >> 12) % 4 : (x >> 12) % 16;
    if (use == FOR_DC) return (uint8_t)(large ? x % 16 : x % 12);
    if (use == FOR_REFINING) return (uint8_t)(run << 4 | size % 2);
    if (use == FOR_PROGRESSIVE_AC) return (uint8_t)(run << 4 | size);
    return (uint8_t)(size ? run << 4 | size : run > 2 ? 0xF0 : 0);
}

static huffman make_table(table_use use) {
    huffman t = {.count = 1 + below(below(4) ? 30 : use == FOR_DC ? 16 : 255)};
    const bool large = below(6) == 0, twice = below(16) == 0, ends = below(8) != 0;
    bool has[256] = {false};
    uint32_t made = 0;
    if (ends && use != FOR_DC) t.symbols[made++] = 0, has[0] = true;
    for (uint32_t tries = 0; made < t.count && tries < 2000; tries++) {
        const uint8_t symbol = choose_symbol(use, large);
        if (has[symbol] && !twice) continue;
        has[symbol] = true;
        t.symbols[made++] = symbol;
    }
    t.count = made;
    for (uint32_t i = made; i > 1; i--) { /* any symbol may have the shortest code */
        const uint32_t j = noise() % i;
        const uint8_t symbol = t.symbols[i - 1];
        t.symbols[i - 1] = t.symbols[j], t.symbols[j] = symbol;
    }
    choose_lengths(&t, 1 + below(8));
    if (below(64) == 0)
        t.lengths[below(16)] = (uint8_t)below(4); /* no prefix code, or symbols beyond the list */
    else assign_codes(&t);
    return t;
}

static void put_table(jpeg_out *o, const huffman *t, uint32_t place) {
    const size_t start = begin_segment(o, 0xC4);
    put_byte(o, place);
    for (int i = 0; i < 16; i++) put_byte(o, t->lengths[i]);
    for (uint32_t i = 0; i < t->count; i++) put_byte(o, t->symbols[i]);
    end_segment(o, start);
}

static void put_symbol(jpeg_out *o, const huffman *t, uint8_t symbol) {
    put_bits(o, t->code[symbol], t->length[symbol]);
}

static uint8_t any_symbol(const huffman *t) { return t->symbols[noise() % t->count]; }

#endif
