/* Random choices of the C tests and the fuzz targets: from a seed, or from a fuzzer's input as long as that
 * lasts.
 *
 * A choice (`below`, `between`) takes the next bytes of the input, so that a fuzzer changes one choice by
 * changing one byte; bulk data (`noise`) always come from the generator, whose seed is the input's first four
 * bytes. */
#ifndef DRAWS_H
#define DRAWS_H

#include <stddef.h>
#include <stdint.h>

static uint64_t noise_state = 0x9E3779B97F4A7C15u;
static const uint8_t *draws_at, *draws_end;

/* Takes choices from bytes[0..size), which must stay valid, and noise from what they begin with. */
static inline void draws_begin(const uint8_t *bytes, size_t size) {
    uint64_t seed = 0;
    for (size_t i = 0; i < 4 && i < size; i++) seed = seed << 8 | bytes[i];
    noise_state = (seed + 1) * 0x9E3779B97F4A7C15u;
    draws_at = bytes + (size < 4 ? size : 4);
    draws_end = bytes + size;
}

/* xorshift64 (Marsaglia 2003) */
static inline uint32_t noise(void) {
    noise_state ^= noise_state << 13, noise_state ^= noise_state >> 7, noise_state ^= noise_state << 17;
    return (uint32_t)(noise_state >> 32);
}

static inline uint64_t noise64(void) {
    const uint64_t high = noise();
    return high << 32 | noise();
}

static inline uint32_t below(uint32_t limit) {
    uint32_t value = 0;
    size_t bytes = limit <= 1 << 8 ? 1 : limit <= 1 << 16 ? 2 : 4;
    if (draws_at == draws_end) return noise() % limit;
    for (; bytes && draws_at < draws_end; bytes--) value = value << 8 | *draws_at++;
    return value % limit;
}

static inline uint32_t between(uint32_t low, uint32_t high) {
    return low + (high - low == UINT32_MAX ? noise() : below(high - low + 1));
}

/* [0, 1) */
static inline double unit(void) { return (double)(noise64() >> 11) * 0x1p-53; }

#endif
