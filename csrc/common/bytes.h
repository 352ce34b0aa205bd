/* common/bytes: borrowed bytes, and numbers read from them at any address and in a stated byte order. */
#ifndef FL_COMMON_BYTES_H
#define FL_COMMON_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that belong to somebody else. */
typedef struct fl_span {
    const uint8_t *bytes;
    size_t size;
} fl_span;

/* In the byte order of this machine. */
static inline uint64_t fl_bytes_host64(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Little-endian. */
static inline uint16_t fl_bytes_le16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static inline uint32_t fl_bytes_le32(const uint8_t *at) {
    return fl_bytes_le16(at) | (uint32_t)fl_bytes_le16(at + 2) << 16;
}

static inline uint64_t fl_bytes_le64(const uint8_t *at) {
    const uint64_t word = fl_bytes_host64(at);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(word) : word;
}

static inline void fl_bytes_put_le16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void fl_bytes_put_le32(uint8_t *at, uint32_t value) {
    fl_bytes_put_le16(at, value);
    fl_bytes_put_le16(at + 2, value >> 16);
}

/* Big-endian. */
static inline uint32_t fl_bytes_be16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

static inline uint32_t fl_bytes_be32(const uint8_t *at) {
    return fl_bytes_be16(at) << 16 | fl_bytes_be16(at + 2);
}

static inline uint64_t fl_bytes_be64(const uint8_t *at) {
    const uint64_t word = fl_bytes_host64(at);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(word) : word;
}

static inline void fl_bytes_put_be64(uint8_t *at, uint64_t value) {
    const uint64_t word = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(value) : value;
    memcpy(at, &word, sizeof word);
}

#endif
