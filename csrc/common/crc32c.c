/* CRC32C (Castagnoli polynomial, RFC 3720 appendix B.4), reflected. Three ways to the same number:
 *
 *   x86-64   the SSE4.2 crc32 instruction, where the CPU has it
 *   aarch64  the crc32cx instruction, where the CPU has it
 *   others   eight table look-ups for eight bytes ("slicing-by-8"; Kounavis and Berry, 2008)
 *
 * The instruction takes 3 cycles but one can start every cycle, so three stretches of the input run
 * interleaved. Their remainders are then joined: moving a remainder over n zero bytes is linear over GF(2),
 * hence four table look-ups for a fixed n.
 */
#include "common/crc32c.h"

#include <pthread.h>

#include "common/bytes.h"
#include "common/cpu.h"

enum { CRC_LONG = 4096, CRC_SHORT = 256 };
static const uint32_t CRC_POLYNOMIAL = 0x82F63B78; /* 0x1EDC6F41 with its bits reversed */

typedef uint32_t crc_shift[4][256];

static pthread_once_t crc_once = PTHREAD_ONCE_INIT;
/* Written once under crc_once, then only read. */
static uint32_t crc_slices[8][256];
static crc_shift crc_over_long, crc_over_short;

static uint32_t crc_software(uint32_t crc, const uint8_t *bytes, size_t size) {
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word = fl_bytes_le64(bytes) ^ crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= crc_slices[7 - i][word >> (8 * i) & 0xFF];
    }
    for (; size; bytes++, size--) crc = crc >> 8 ^ crc_slices[0][(crc ^ *bytes) & 0xFF];
    return crc;
}

static inline uint32_t crc_move(const crc_shift table, uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^
           table[3][crc >> 24];
}

/* The instruction's loop, for a step of 8 bytes and a step of 1. */
#define CRC_STREAMS(block, table)                                                                            \
    for (; size >= 3 * (block); bytes += 3 * (block), size -= 3 * (block)) {                                 \
        uint64_t a = crc, b = 0, c = 0;                                                                      \
        for (size_t i = 0; i < (block); i += 8) {                                                            \
            a = CRC_STEP8(a, fl_bytes_le64(bytes + i));                                                      \
            b = CRC_STEP8(b, fl_bytes_le64(bytes + (block) + i));                                            \
            c = CRC_STEP8(c, fl_bytes_le64(bytes + 2 * (block) + i));                                        \
        }                                                                                                    \
        crc = crc_move(table, crc_move(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;                     \
    }
#define CRC_BODY                                                                                             \
    CRC_STREAMS((size_t)CRC_LONG, crc_over_long)                                                             \
    CRC_STREAMS((size_t)CRC_SHORT, crc_over_short)                                                           \
    for (; size >= 8; bytes += 8, size -= 8) crc = (uint32_t)CRC_STEP8(crc, fl_bytes_le64(bytes));           \
    for (; size; bytes++, size--) crc = CRC_STEP1(crc, *bytes);                                              \
    return crc;

#if defined(__x86_64__)
#if defined(__clang__) && __clang_major__ >= 14 /* has made the instruction a feature of its own */
#define CRC_TARGET "sse4.2,crc32"
#else
#define CRC_TARGET "sse4.2"
#endif
#define CRC_STEP8(crc, word) __builtin_ia32_crc32di(crc, word)
#define CRC_STEP1(crc, byte) __builtin_ia32_crc32qi(crc, byte)
__attribute__((target(CRC_TARGET))) static uint32_t crc_instruction(uint32_t crc, const uint8_t *bytes,
                                                                    size_t size) {
    CRC_BODY
}
#elif defined(__aarch64__)
/* Written as assembly because the intrinsics' header hides them unless the whole file is built for the
 * extension. */
static inline uint64_t crc_step8(uint64_t crc, uint64_t word) {
    uint32_t out;
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2" : "=r"(out) : "r"((uint32_t)crc), "r"(word));
    return out;
}
static inline uint32_t crc_step1(uint32_t crc, uint8_t byte) {
    uint32_t out;
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2" : "=r"(out) : "r"(crc), "r"((uint32_t)byte));
    return out;
}
#define CRC_STEP8(crc, word) crc_step8(crc, word)
#define CRC_STEP1(crc, byte) crc_step1(crc, byte)
static uint32_t crc_instruction(uint32_t crc, const uint8_t *bytes, size_t size) { CRC_BODY }
#else
static uint32_t crc_instruction(uint32_t crc, const uint8_t *bytes, size_t size) {
    return crc_software(crc, bytes, size);
}
#endif

/* Fills table so that crc_move(table, crc) is crc after `zeros` more bytes of zero: 32 single bits are moved,
 * the rest follow by xor. */
static void crc_make_shift(crc_shift table, size_t zeros) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (size_t i = 0; i < zeros; i++) crc = crc >> 8 ^ crc_slices[0][crc & 0xFF];
        uint32_t *row = table[bit / 8];
        for (uint32_t low = 0, high = 1U << bit % 8; low < high; low++) row[high | low] = row[low] ^ crc;
    }
}

static void crc_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ CRC_POLYNOMIAL : crc >> 1;
        crc_slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_slices[slice - 1][byte];
            crc_slices[slice][byte] = crc >> 8 ^ crc_slices[0][crc & 0xFF];
        }
    }
    crc_make_shift(crc_over_long, CRC_LONG);
    crc_make_shift(crc_over_short, CRC_SHORT);
}

uint32_t fl_crc32c(uint32_t crc, const void *bytes, size_t size) {
    pthread_once(&crc_once, crc_init);
    return ~(fl_cpu_has(FL_CPU_CRC32C) ? crc_instruction(~crc, bytes, size)
                                       : crc_software(~crc, bytes, size));
}
