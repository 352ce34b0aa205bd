/* A byte lane for each zigzag position, 16 to a vector. What pdep does is done by rank: a lane's rank among
 * the positions that a plane is about, a prefix sum, says which of the plane's bits is its own, and two table
 * lookups fetch that bit. */
#include "jpeg/dct_blocks_lanes.h"

#include "common/simd.h"
#include "jpeg/huffman.h"

#if defined(__x86_64__) || defined(__aarch64__)

enum { VECTORS = 4, BYTE_BITS = 8 /* of U that lanes hold */ };

#if defined(__x86_64__)

#define LANES FL_AVX2_BMI2
#define LANES_INLINE FL_AVX2_BMI2_INLINE
typedef __m128i vector;

LANES_INLINE vector each(int x) { return _mm_set1_epi8((char)x); }
LANES_INLINE vector both(uint64_t low, uint64_t high) {
    return _mm_set_epi64x((long long)high, (long long)low);
}
LANES_INLINE vector and(vector a, vector b) { return _mm_and_si128(a, b); }
LANES_INLINE vector or(vector a, vector b) { return _mm_or_si128(a, b); }
LANES_INLINE vector without(vector a, vector b) { return _mm_andnot_si128(b, a); }
LANES_INLINE vector plus(vector a, vector b) { return _mm_add_epi8(a, b); }
LANES_INLINE vector minus(vector a, vector b) { return _mm_sub_epi8(a, b); }
LANES_INLINE vector equal(vector a, vector b) { return _mm_cmpeq_epi8(a, b); }
/* table[at % 16], at below 128 */
LANES_INLINE vector look(vector table, vector at) { return _mm_shuffle_epi8(table, at); }
LANES_INLINE vector eighth(vector a) { return _mm_and_si128(_mm_srli_epi16(a, 3), _mm_set1_epi8(31)); }
LANES_INLINE vector last_of(vector a) { return _mm_shuffle_epi8(a, _mm_set1_epi8(15)); }
#define UP(a, lanes) _mm_slli_si128(a, lanes)

/* (u * factor + low) of 16 lanes, negated where the mask says so, zero outside `kept`. u is unsigned, the
 * others are signed. */
LANES_INLINE void values(vector u, vector bias, vector low, vector negative, vector kept, int16_t *out) {
    const __m256i one = _mm256_set1_epi16(1), wide_bias = _mm256_cvtepi8_epi16(bias),
                  sign = _mm256_cvtepi8_epi16(negative);
    __m256i x = _mm256_mullo_epi16(_mm256_cvtepu8_epi16(u), _mm256_sub_epi16(one, wide_bias));
    x = _mm256_add_epi16(_mm256_add_epi16(x, wide_bias), _mm256_cvtepi8_epi16(low));
    x = _mm256_sub_epi16(_mm256_xor_si256(x, sign), sign);
    _mm256_storeu_si256((__m256i *)out, _mm256_and_si256(x, _mm256_cvtepi8_epi16(kept)));
}

LANES_INLINE vector load(const void *at) { return _mm_loadu_si128(at); }

#else

#include <arm_neon.h>

#define LANES
#define LANES_INLINE FL_INLINE
typedef uint8x16_t vector;

LANES_INLINE vector each(int x) { return vdupq_n_u8((uint8_t)x); }
LANES_INLINE vector both(uint64_t low, uint64_t high) {
    return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}
LANES_INLINE vector and(vector a, vector b) { return vandq_u8(a, b); }
LANES_INLINE vector or(vector a, vector b) { return vorrq_u8(a, b); }
LANES_INLINE vector without(vector a, vector b) { return vbicq_u8(a, b); }
LANES_INLINE vector plus(vector a, vector b) { return vaddq_u8(a, b); }
LANES_INLINE vector minus(vector a, vector b) { return vsubq_u8(a, b); }
LANES_INLINE vector equal(vector a, vector b) { return vceqq_u8(a, b); }
LANES_INLINE vector look(vector table, vector at) { return vqtbl1q_u8(table, vandq_u8(at, vdupq_n_u8(15))); }
LANES_INLINE vector eighth(vector a) { return vshrq_n_u8(a, 3); }
LANES_INLINE vector last_of(vector a) { return vdupq_laneq_u8(a, 15); }
#define UP(a, lanes) vextq_u8(vdupq_n_u8(0), a, 16 - (lanes))

LANES_INLINE int16x8_t half(uint8x8_t u, uint8x8_t bias, uint8x8_t low, uint8x8_t negative, uint8x8_t kept) {
    const int16x8_t wide_bias = vmovl_s8(vreinterpret_s8_u8(bias)),
                    sign = vmovl_s8(vreinterpret_s8_u8(negative));
    int16x8_t x = vmulq_s16(vreinterpretq_s16_u16(vmovl_u8(u)), vsubq_s16(vdupq_n_s16(1), wide_bias));
    x = vaddq_s16(vaddq_s16(x, wide_bias), vmovl_s8(vreinterpret_s8_u8(low)));
    return vandq_s16(vsubq_s16(veorq_s16(x, sign), sign), vmovl_s8(vreinterpret_s8_u8(kept)));
}

LANES_INLINE void values(vector u, vector bias, vector low, vector negative, vector kept, int16_t *out) {
    vst1q_s16(out, half(vget_low_u8(u), vget_low_u8(bias), vget_low_u8(low), vget_low_u8(negative),
                        vget_low_u8(kept)));
    vst1q_s16(out + 8, half(vget_high_u8(u), vget_high_u8(bias), vget_high_u8(low), vget_high_u8(negative),
                            vget_high_u8(kept)));
}

LANES_INLINE vector load(const void *at) { return vld1q_u8(at); }

#endif

/* Whose bit of a plane is each lane's. */
typedef struct rank {
    vector byte, bit; /* of the plane: its number; the bit in it */
} rank;

/* The ranks of the lanes in `mask` (0 or -1) among themselves, after `before` lanes of earlier vectors, to
 * which these are added. */
LANES_INLINE rank rank_of(vector mask, vector *before) {
    const vector one = and(mask, each(1)), bits = both(0x8040201008040201u, 0x8040201008040201u);
    vector sum = plus(one, UP(one, 1));
    sum = plus(sum, UP(sum, 2));
    sum = plus(sum, UP(sum, 4));
    sum = plus(plus(sum, UP(sum, 8)), *before);
    *before = last_of(sum);
    const vector at = minus(sum, one);
    return (rank){eighth(at), look(bits, at)};
}

/* -1 in lanes whose bit of the plane is set. planes: two of them; second: of which. */
LANES_INLINE vector set_in(vector planes, rank at, bool second) {
    const vector byte = second ? plus(at.byte, each(8)) : at.byte;
    return equal(and(look(planes, byte), at.bit), at.bit);
}

LANES_INLINE unsigned count_of(uint64_t mask) { return (unsigned)__builtin_popcountll(mask); }

LANES_INLINE void one(fl_jpeg_dct_run *r) {
    const uint8_t *at = r->at;
    const fl_jpeg_dct_orders *o = r->orders;
    uint64_t bit = r->bit;
    const fl_jpeg_dct_next_block b = fl_jpeg_dct_take_block(r);
    int16_t *out = b.out;
    const unsigned last = b.last;
    const int16_t dc = b.dc;
    memset(out, 0, 64 * sizeof *out);
    if (__builtin_expect(!last, 0)) {
        *out = dc;
        return;
    }
    const uint64_t sig = fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
    const unsigned vectors = last / 16 + 1, n = count_of(sig);
    bit += last - 1;
    const vector zero = each(0), signs = both(fl_jpeg_dct_wide(at, bit, n), fl_jpeg_dct_wide(at, bit + n, n));
    unsigned left = count_of(fl_jpeg_dct_wide(at, bit, n));
    bit += 2 * n;
    vector kept[VECTORS], active[VECTORS], negative[VECTORS], u[VECTORS], low[VECTORS], before = zero;
    const vector positions = both(sig, 0), bits = both(0x8040201008040201u, 0x8040201008040201u);
    for (unsigned v = 0; v < vectors; v++) {
        const rank own = {both(0x0101010101010101u * (2 * v), 0x0101010101010101u * (2 * v + 1)), bits};
        kept[v] = set_in(positions, own, false);
        const rank among = rank_of(kept[v], &before);
        active[v] = and(set_in(signs, among, false), kept[v]);
        negative[v] = set_in(signs, among, true);
        u[v] = and(without(kept[v], active[v]), each(1));
        low[v] = zero;
    }
    for (int j = 0; j < FL_JPEG_DCT_ORDER_MOST; j++) {
        const uint64_t having = sig & o->above[j];
        if (!having) break;
        const unsigned count = count_of(having);
        const vector plane = both(fl_jpeg_dct_wide(at, bit, count), 0), having_bits = both(having, 0);
        bit += count;
        before = zero;
        for (unsigned v = 0; v < vectors; v++) {
            const rank own = {both(0x0101010101010101u * (2 * v), 0x0101010101010101u * (2 * v + 1)), bits};
            const vector here = set_in(having_bits, own, false);
            low[v] = or(low[v], and(and(set_in(plane, rank_of(here, &before), false), here), each(1 << j)));
        }
    }
    for (unsigned k = 2; left; k++) {
        if (__builtin_expect(k > BYTE_BITS, 0)) { /* U above a byte */
            r->bit = fl_jpeg_dct_block(at, r->bit, last, o, out);
            *out = dc;
            return;
        }
        const uint64_t larger = fl_jpeg_dct_wide(at, bit, left);
        const vector planes = both(larger, fl_jpeg_dct_wide(at, bit + left, left)), own = each(1 << (k - 2)),
                     first = plus(own, own);
        bit += 2 * left;
        left = count_of(larger);
        before = zero;
        for (unsigned v = 0; v < vectors; v++) {
            const rank among = rank_of(active[v], &before);
            const vector goes_on = and(set_in(planes, among, false), active[v]);
            u[v] = or(u[v], and(and(set_in(planes, among, true), active[v]), own));
            u[v] = or(u[v], and(without(active[v], goes_on), first));
            active[v] = goes_on;
        }
    }
    int16_t made[64];
    for (unsigned v = 0; v < vectors; v++)
        values(u[v], load(o->bias + 16 * v), low[v], negative[v], kept[v], made + 16 * v);
    for (unsigned j = 0; j < 16 * vectors; j += 16)
        for (unsigned i = 0; i < 16; i++) out[fl_jpeg_natural[j + i]] = made[j + i];
    *out = dc;
    r->bit = bit;
}

LANES bool fl_jpeg_dct_make_lanes(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

#endif
