#include "jpeg/dct_blocks.h"

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/dct_blocks_avx2.h"
#include "jpeg/dct_blocks_avx512.h"
#include "jpeg/dct_blocks_lanes.h"
#include "jpeg/huffman.h"

/* Significant positions. last is at least 1. */
FL_INLINE uint64_t significant(const uint8_t *at, uint64_t bit, unsigned last) {
    return fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
}

#define COUNT(mask) ((unsigned)__builtin_popcountll(mask))

FL_INLINE uint64_t block(const uint8_t *at, uint64_t bit, unsigned last, const fl_jpeg_dct_orders *orders,
                         int16_t *out) {
    uint8_t place[64], active[64];
    uint16_t u[64];
    const uint64_t sig = significant(at, bit, last);
    const unsigned n = COUNT(sig);
    bit += last - 1;
    const uint64_t more = fl_jpeg_dct_wide(at, bit, n);
    uint64_t sign = fl_jpeg_dct_wide(at, bit + n, n), low[FL_JPEG_DCT_ORDER_MOST] = {0};
    unsigned left = 0, i = 0;
    bit += 2 * n;
    for (uint64_t m = sig; m; m &= m - 1, i++) {
        const unsigned goes_on = more >> i & 1;
        place[i] = (uint8_t)__builtin_ctzll(m);
        u[i] = (uint16_t)(1 - goes_on);
        active[left] = (uint8_t)i;
        left += goes_on;
    }
    for (int j = 0; j < FL_JPEG_DCT_ORDER_MOST; j++) {
        const unsigned count = COUNT(sig & orders->above[j]);
        low[j] = fl_jpeg_dct_wide(at, bit, count);
        bit += count;
    }
    for (unsigned k = 2; left; k++) {
        if (k > FL_JPEG_DCT_BIT_MOST) return FL_JPEG_DCT_DAMAGED;
        uint64_t larger = fl_jpeg_dct_wide(at, bit, left), ones = fl_jpeg_dct_wide(at, bit + left, left);
        bit += 2 * left;
        unsigned next = 0;
        for (unsigned t = 0; t < left; t++, larger >>= 1, ones >>= 1) {
            const unsigned here = active[t], goes_on = larger & 1;
            u[here] |= (uint16_t)((ones & 1) << (k - 2) | (uint64_t)(1 - goes_on) << (k - 1));
            active[next] = (uint8_t)here;
            next += goes_on;
        }
        left = next;
    }
    for (i = 0; i < n; i++, sign >>= 1) {
        const unsigned order = orders->order[place[i]];
        int magnitude = (u[i] - 1) << order, negative = -(int)(sign & 1);
        for (unsigned j = 0; j < FL_JPEG_DCT_ORDER_MOST; j++) {
            const unsigned mine = order > j;
            magnitude |= (int)(low[j] & mine) << j;
            low[j] >>= mine;
        }
        out[fl_jpeg_natural[place[i]]] = (int16_t)(((magnitude + 1) ^ negative) - negative);
    }
    return bit;
}

uint64_t fl_jpeg_dct_block(const uint8_t *at, uint64_t bit, unsigned last, const fl_jpeg_dct_orders *orders,
                           int16_t *out) {
    return block(at, bit, last, orders, out);
}

FL_INLINE void one(fl_jpeg_dct_run *r) {
    const fl_jpeg_dct_next_block b = fl_jpeg_dct_take_block(r);
    memset(b.out, 0, 64 * sizeof *b.out);
    if (b.last) r->bit = block(r->at, r->bit, b.last, r->orders, b.out);
    *b.out = b.dc;
}

static bool make_plain(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

FL_INLINE bool pass(fl_jpeg_dct_run *run) {
    fl_jpeg_dct_run r = *run;
    const fl_jpeg_dct_orders *o = r.orders;
    for (; r.count; r.count--) {
        const unsigned last = fl_jpeg_dct_last(r.at, r.lasts, r.block++);
        if (!last) continue;
        const uint64_t sig = significant(r.at, r.bit, last);
        const unsigned n = COUNT(sig);
        unsigned left = COUNT(fl_jpeg_dct_wide(r.at, r.bit + last - 1, n));
        r.bit +=
            last - 1 + 2 * n + COUNT(sig & o->above[0]) + COUNT(sig & o->above[1]) + COUNT(sig & o->above[2]);
        for (unsigned k = 2; left; k++) {
            if (k > FL_JPEG_DCT_BIT_MOST) return false;
            const unsigned next = COUNT(fl_jpeg_dct_wide(r.at, r.bit, left));
            r.bit += 2 * left;
            left = next;
        }
        if (r.bit > r.end) return false;
    }
    *run = r;
    return true;
}

static bool pass_plain(fl_jpeg_dct_run *run) { return pass(run); }

#if defined(__x86_64__)
__attribute__((target("bmi,bmi2,popcnt"))) static bool pass_popcnt(fl_jpeg_dct_run *run) { return pass(run); }
__attribute__((target("bmi,bmi2,popcnt"))) static bool make_bmi2(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) {
    FL_JPEG_DCT_MAKE(one);
}
#endif

static void order(const int16_t *natural, int16_t *out) {
    for (int j = 0; j < 64; j++) out[j] = natural[fl_jpeg_natural[j]];
}

static unsigned list(const int16_t *block, uint8_t *places, int16_t *values) {
    uint64_t mask = 0;
    unsigned n = 0;
#if defined(__x86_64__)
    const __m128i zero = _mm_setzero_si128(), *at = (const __m128i *)block;
    for (int j = 0; j < 4; j++) {
        const __m128i low = _mm_cmpeq_epi16(_mm_loadu_si128(at + 2 * j), zero),
                      high = _mm_cmpeq_epi16(_mm_loadu_si128(at + 2 * j + 1), zero);
        mask |= (uint64_t)(~_mm_movemask_epi8(_mm_packs_epi16(low, high)) & 0xFFFF) << 16 * j;
    }
#else
    for (int j = 0; j < 64; j++) mask |= (uint64_t)(block[j] != 0) << j;
#endif
    for (mask &= ~1ull; mask; mask &= mask - 1, n++) {
        places[n] = (uint8_t)__builtin_ctzll(mask);
        values[n] = block[places[n]];
    }
    return n;
}

const fl_jpeg_dct_kernels *fl_jpeg_dct_kernels_best(void) {
    static const fl_jpeg_dct_kernels plain = {make_plain, pass_plain, order, list, NULL};
#if defined(__x86_64__)
    static const fl_jpeg_dct_kernels bmi2 = {make_bmi2, pass_popcnt, order, list, NULL},
                                     lanes = {fl_jpeg_dct_make_lanes, pass_popcnt, order, list, NULL},
                                     avx2 = {fl_jpeg_dct_make_avx2, pass_popcnt, order, list, NULL},
                                     avx512 = {fl_jpeg_dct_make_avx512, pass_popcnt, fl_jpeg_dct_order_avx512,
                                               fl_jpeg_dct_list_avx512, fl_jpeg_dct_put_avx512};
    if (fl_cpu_has(FL_CPU_BMI2 | FL_CPU_PDEP | FL_CPU_AVX512)) return &avx512;
    if (fl_cpu_has(FL_CPU_BMI2 | FL_CPU_PDEP | FL_CPU_AVX2)) return &avx2;
    if (fl_cpu_has(FL_CPU_BMI2 | FL_CPU_AVX2)) return &lanes;
    if (fl_cpu_has(FL_CPU_BMI2)) return &bmi2;
#elif defined(__aarch64__)
    static const fl_jpeg_dct_kernels neon = {fl_jpeg_dct_make_lanes, pass_plain, order, list, NULL};
    if (fl_cpu_has(FL_CPU_NEON)) return &neon;
#endif
    return &plain;
}
