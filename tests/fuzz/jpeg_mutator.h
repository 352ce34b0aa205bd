/* Mutations of JPEG files that know segments, for targets whose input is a file: it stays a JPEG more often
 * than under blind ones. */
#ifndef JPEG_MUTATOR_H
#define JPEG_MUTATOR_H

#include "jpeg_grammar.h"

typedef struct segments {
    uint32_t count;
    size_t start[64], end[64]; /* marker and payload; a scan's coded data too */
} segments;

static segments find_segments(const uint8_t *b, size_t size) {
    segments s = {0};
    for (size_t at = 2; at + 4 <= size && s.count < 64;) {
        size_t end = at + 2;
        if (b[at] != 0xFF) {
            at++;
            continue;
        }
        const uint8_t marker = b[at + 1];
        if (marker != 0xD8 && marker != 0xD9 && marker != 0x01 && (marker < 0xD0 || marker > 0xD7))
            end += (size_t)b[at + 2] << 8 | b[at + 3];
        if (end > size) end = size;
        while (marker == 0xDA && end + 1 < size &&
               (b[end] != 0xFF || b[end + 1] == 0 || (b[end + 1] >= 0xD0 && b[end + 1] <= 0xD7)))
            end++;
        s.start[s.count] = at;
        s.end[s.count++] = at = end;
    }
    return s;
}

/* Puts `with` in the place of bytes [from, to); unchanged when it does not fit. */
static size_t replace(uint8_t *data, size_t size, size_t max_size, size_t from, size_t to,
                      const uint8_t *with, size_t count) {
    if (size - (to - from) + count > max_size) return size;
    memmove(data + from + count, data + to, size - to);
    if (count) memcpy(data + from, with, count);
    return size - (to - from) + count;
}

/* A segment's payload by libFuzzer's own mutations, its length put right. */
static size_t mutate_payload(uint8_t *data, size_t size, size_t max_size, size_t from, size_t to) {
    enum { ROOM = 2048 };
    uint8_t payload[ROOM];
    if (to - from < 4 || to - from > ROOM) return size;
    memcpy(payload + 4, data + from + 4, to - from - 4);
    const size_t length = LLVMFuzzerMutate(payload + 4, to - from - 4, ROOM - 4) + 2;
    payload[0] = 0xFF, payload[1] = data[from + 1], payload[2] = (uint8_t)(length >> 8),
    payload[3] = (uint8_t)length;
    return replace(data, size, max_size, from, to, payload, length + 2);
}

static size_t mutate_segment(uint8_t *data, size_t size, size_t max_size, const segments *s) {
    const uint32_t i = noise() % s->count, j = noise() % s->count;
    const size_t from = s->start[i], to = s->end[i];
    const uint8_t comment[] = {0xFF, 0xFE, 0, 4, 'a', 'b'}, marker[] = {0xFF, (uint8_t)noise()};
    uint8_t *copy = fuzz_copy(data + from, to - from);
    switch (noise() % 8) {
    case 0: size = replace(data, size, max_size, from, to, NULL, 0); break;
    case 1: size = replace(data, size, max_size, s->start[j], s->start[j], copy, to - from); break;
    case 2: size = replace(data, size, max_size, s->start[j], s->end[j], copy, to - from); break;
    case 3: size = mutate_payload(data, size, max_size, from, to); break;
    case 4: data[from + noise() % (to - from)] = (uint8_t)noise(); break;
    case 5: data[from + noise() % (to - from)] ^= (uint8_t)(1u << noise() % 8); break;
    case 6:
        size = replace(data, size, max_size, from + noise() % (to - from), to, comment, sizeof comment);
        break;
    default:
        size = replace(data, size, max_size, from + noise() % (to - from),
                       from + noise() % (to - from) < from ? from : to, marker, 2);
    }
    free(copy);
    return size;
}

static size_t mutate_jpeg(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    draws_at = draws_end = NULL;
    if (noise() % 32 == 0) {
        jpeg_out made = make_jpeg(false);
        if (made.size <= max_size) memcpy(data, made.bytes, size = made.size);
        free(made.bytes);
        return size;
    }
    if (noise() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
    for (uint32_t n = 1 + noise() % 3; n; n--) {
        const segments s = find_segments(data, size);
        if (!s.count) return LLVMFuzzerMutate(data, size, max_size);
        size = mutate_segment(data, size, max_size, &s);
    }
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return mutate_jpeg(data, size, max_size, seed);
}

#endif
