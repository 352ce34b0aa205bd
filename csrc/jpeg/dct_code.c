#include "jpeg/dct_code.h"

void fl_jpeg_dct_number(const fl_jpeg_codes *codes, fl_jpeg_dct_code out[256]) {
    memset(out, 0, 256 * sizeof *out);
    uint32_t code = 0, at = 0;
    for (uint8_t bits = 1; bits <= 16; bits++, code <<= 1)
        for (int i = 0; i < codes->lengths[bits - 1] && at < codes->symbol_count; i++, at++, code++)
            out[codes->symbols[at]] = (fl_jpeg_dct_code){(uint16_t)code, bits};
}

uint8_t *fl_jpeg_dct_fill(uint64_t *bits, unsigned *count, bool ones, uint8_t *out) {
    if (!*count) return out;
    const unsigned missing = 8 - *count;
    *out++ = (uint8_t)((*bits >> 56) | (ones ? (1u << missing) - 1 : 0));
    *bits = *count = 0;
    return out;
}

uint8_t *fl_jpeg_dct_stuff(const uint8_t *at, const uint8_t *end, uint8_t *out) {
    while (at < end) {
        const uint8_t *found = memchr(at, 0xFF, (size_t)(end - at));
        const size_t count = (size_t)((found ? found + 1 : end) - at);
        memcpy(out, at, count);
        out += count;
        at += count;
        if (found) *out++ = 0;
    }
    return out;
}
