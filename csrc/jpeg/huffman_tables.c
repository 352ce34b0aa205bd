#include "jpeg/huffman_tables.h"

#include <string.h>

enum { ENTRIES = 1 << FL_JPEG_WINDOW, STEPS = 1 << FL_JPEG_WALK };

/* A code of a table. */
typedef struct code {
    int length, size, zeros, run;
    uint32_t bits;
} code;

static code code_at(const fl_jpeg_codes *codes, bool ac, int length, int i) {
    const int32_t bits = codes->last[length] - i;
    const uint8_t symbol = codes->symbols[bits + codes->offset[length]];
    code c = {length, 0, ac ? symbol >> 4 : 0, 0, (uint32_t)bits};
    fl_jpeg_symbol_meaning(symbol, ac, &c.size, &c.run);
    return c;
}

/* Entries as whole words: a compiler would fill and choose them member by member. */
static uint64_t word_of(fl_jpeg_symbols entry) {
    uint64_t word;
    _Static_assert(sizeof word == sizeof entry, "an entry is a word");
    memcpy(&word, &entry, sizeof word);
    return word;
}

static void fill(fl_jpeg_symbols *at, uint32_t count, fl_jpeg_symbols with) {
    const uint64_t word = word_of(with);
    while (count--) memcpy(at++, &word, sizeof word);
}

/* All windows that start with a code; one entry for each of its values, where those lie in the window. */
static void fill_symbol(fl_jpeg_symbols *table, const code *c, bool ac) {
    fl_jpeg_symbols *at = table + (c->bits << (FL_JPEG_WINDOW - c->length));
    const int rest = FL_JPEG_WINDOW - c->length - c->size,
              cover = c->run == FL_JPEG_RUN_EOB ? FL_JPEG_COVER_END : c->run;
    if (!ac || rest < 0 || c->size > 9) {
        fill(at, 1u << (FL_JPEG_WINDOW - c->length),
             (fl_jpeg_symbols){.size = (int16_t)c->size,
                               .bits = (uint8_t)c->length,
                               .zeros = (uint8_t)c->zeros,
                               .cover = FL_JPEG_COVER_ONE});
        return;
    }
    for (int raw = 0; raw < 1 << c->size; raw++, at += (size_t)1 << rest) {
        const int value = c->size && raw < 1 << (c->size - 1) ? raw - (1 << c->size) + 1 : raw;
        fill(at, 1u << rest,
             (fl_jpeg_symbols){.first = (int16_t)value,
                               .bits = (uint8_t)(c->length + c->size),
                               .zeros = (uint8_t)c->zeros,
                               .cover = (uint8_t)cover});
    }
}

/* Joins the second symbol to windows that hold two wholly. */
static void join_pairs(fl_jpeg_symbols *to, const fl_jpeg_symbols *ones) {
    for (uint32_t window = 0; window < ENTRIES; window++) {
        const fl_jpeg_symbols one = ones[window], two = ones[(window << one.bits) & (ENTRIES - 1)];
        const bool joined = (one.cover < FL_JPEG_COVER_END) & (two.cover != FL_JPEG_COVER_ONE) &
                            (two.bits <= FL_JPEG_WINDOW - one.bits);
        const uint64_t add =
            word_of((fl_jpeg_symbols){.second = two.first, .bits = two.bits, .cover = two.cover});
        const uint64_t word =
            word_of(one) +
            (add & (0 - (uint64_t)joined)); /* no sum of two members is carried into the next */
        memcpy(&to[window], &word, sizeof word);
    }
}

/* Joins to each window's first step those that follow in it. */
static void join_steps(fl_jpeg_step *to, const fl_jpeg_step *first) {
    for (uint32_t window = 0; window < STEPS; window++) {
        int bits = first[window] & 255, run = first[window] >> 8;
        while (run < FL_JPEG_RUN_EOB && bits < FL_JPEG_WALK) {
            const fl_jpeg_step next = first[(window << bits) & (STEPS - 1)];
            const int next_bits = next & 255, next_run = next >> 8;
            if (next_run == FL_JPEG_RUN_NONE || next_bits > FL_JPEG_WALK - bits) break;
            if (next_run != FL_JPEG_RUN_EOB && run + next_run > FL_JPEG_BLOCK)
                break; /* see FL_JPEG_RUN_EOB */
            bits += next_bits;
            run += next_run;
        }
        to[window] = (fl_jpeg_step)(bits | run << 8);
    }
}

static void build_tables(fl_jpeg_codes *codes, bool ac) {
    fl_jpeg_symbols of_ac[ENTRIES], *const ones = ac ? of_ac : codes->make;
    fl_jpeg_step steps[STEPS];
    fill(ones, ENTRIES, (fl_jpeg_symbols){.cover = FL_JPEG_COVER_ONE});
    for (int i = 0; ac && i < STEPS; i++) steps[i] = (fl_jpeg_step)(FL_JPEG_RUN_NONE << 8);
    for (int length = 1; length <= FL_JPEG_WALK; length++) {
        for (int i = 0; i < codes->lengths[length - 1]; i++) {
            const code c = code_at(codes, ac, length, i);
            if (length <= FL_JPEG_WINDOW) fill_symbol(ones, &c, ac);
            if (!ac) continue;
            fl_jpeg_step *at = steps + (c.bits << (FL_JPEG_WALK - length));
            for (uint32_t n = 1u << (FL_JPEG_WALK - length); n; n--)
                *at++ = (fl_jpeg_step)((length + c.size) | c.run << 8);
        }
    }
    if (!ac) return;
    join_pairs(codes->make, ones);
    join_steps(codes->walk, steps);
}

bool fl_jpeg_codes_number(fl_jpeg_codes *codes) {
    int32_t code = 0, used = 0;
    for (int length = 1; length <= 16; length++) {
        int count = codes->lengths[length - 1];
        codes->offset[length] = used - code;
        codes->last[length] = count ? code + count - 1 : -1;
        code += count;
        used += count;
        if (code >= 1 << length && count) return false;
        code <<= 1;
    }
    return true;
}

bool fl_jpeg_codes_build(fl_jpeg_codes *codes, bool ac) {
    codes->built = false;
    if (!fl_jpeg_codes_number(codes)) return false;
    for (int i = 0; i < codes->symbol_count; i++) {
        if (!ac && codes->symbols[i] > 15) return false;
        if (ac && (codes->symbols[i] & 15) == 0 && codes->symbols[i] != 0 && codes->symbols[i] != 0xF0)
            return false;
    }
    build_tables(codes, ac);
    return codes->built = true;
}
