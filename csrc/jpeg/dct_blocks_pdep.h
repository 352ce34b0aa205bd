/* jpeg/dct_blocks_pdep: planes as masks, by BMI2: what the kernels that use pdep have in common. */
#ifndef FL_JPEG_DCT_BLOCKS_PDEP_H
#define FL_JPEG_DCT_BLOCKS_PDEP_H

#include "common/simd.h"
#include "jpeg/dct_blocks.h"

#if defined(__x86_64__)

#define FL_JPEG_DCT_PDEP_INLINE __attribute__((target("bmi,bmi2,lzcnt,popcnt"))) FL_INLINE

enum { FL_JPEG_DCT_WINDOW = 57 /* bits that one load has */ };

FL_JPEG_DCT_PDEP_INLINE unsigned fl_jpeg_dct_ones(uint64_t mask) { return (unsigned)_mm_popcnt_u64(mask); }

/* Two planes of `count` bits, one behind the other; the second has rubbish above its bits. */
typedef struct fl_jpeg_dct_planes {
    uint64_t first, second;
} fl_jpeg_dct_planes;

FL_JPEG_DCT_PDEP_INLINE fl_jpeg_dct_planes fl_jpeg_dct_two(const uint8_t *at, uint64_t *bit, unsigned count) {
    const uint64_t window = fl_jpeg_dct_bits(at, *bit);
    fl_jpeg_dct_planes p = {_bzhi_u64(window, count), window >> (count & 63)};
    if (__builtin_expect(2 * count > FL_JPEG_DCT_WINDOW, 0)) {
        p.first = fl_jpeg_dct_wide(at, *bit, count);
        p.second = fl_jpeg_dct_wide(at, *bit + count, count);
    }
    *bit += 2 * count;
    return p;
}

/* One level: of those in `now` (count of them) those that go on, as a mask, and the bits of U. */
typedef struct fl_jpeg_dct_level {
    uint64_t next, bits;
    unsigned count; /* of next */
} fl_jpeg_dct_level;

FL_JPEG_DCT_PDEP_INLINE fl_jpeg_dct_level fl_jpeg_dct_read_level(const uint8_t *at, uint64_t *bit,
                                                                 uint64_t now, unsigned count) {
    const fl_jpeg_dct_planes p = fl_jpeg_dct_two(at, bit, count);
    return (fl_jpeg_dct_level){_pdep_u64(p.first, now), _pdep_u64(p.second, now), fl_jpeg_dct_ones(p.first)};
}

/* Bits 0, 1 and 2 of L, of those in each mask. */
FL_JPEG_DCT_PDEP_INLINE void fl_jpeg_dct_lows(const uint8_t *at, uint64_t *bit, const uint64_t above[3],
                                              uint64_t low[3]) {
    const unsigned n0 = fl_jpeg_dct_ones(above[0]), n1 = fl_jpeg_dct_ones(above[1]),
                   n2 = fl_jpeg_dct_ones(above[2]);
    const uint64_t window = fl_jpeg_dct_bits(at, *bit);
    low[0] = window, low[1] = window >> (n0 & 63), low[2] = window >> ((n0 + n1) & 63);
    if (__builtin_expect(n0 + n1 + n2 > FL_JPEG_DCT_WINDOW, 0)) {
        low[0] = fl_jpeg_dct_wide(at, *bit, n0);
        low[1] = fl_jpeg_dct_wide(at, *bit + n0, n1);
        low[2] = fl_jpeg_dct_wide(at, *bit + n0 + n1, n2);
    }
    *bit += n0 + n1 + n2;
    for (int i = 0; i < 3; i++) low[i] = _pdep_u64(low[i], above[i]);
}

#endif

#endif
