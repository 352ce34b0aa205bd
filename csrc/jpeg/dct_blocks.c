#include "jpeg/dct_blocks.h"

#include "common/cpu.h"
#include "common/simd.h"
#include "jpeg/dct_blocks_avx2.h"
#include "jpeg/dct_blocks_avx512.h"
#include "jpeg/huffman.h"

/* Significant positions. last is at least 1. */
FL_INLINE uint64_t significant(const uint8_t *at, uint64_t bit, unsigned last) {
    return fl_jpeg_dct_wide(at, bit, last - 1) << 1 | 1ull << last;
}

FL_INLINE uint64_t block(const uint8_t *at, uint64_t bit, unsigned last, const fl_jpeg_dct_orders *orders, int16_t *out) {
    uint8_t place[64], active[64];
    uint16_t u[64], low[64];
    const uint64_t sig = significant(at, bit, last);
    bit += last - 1;
    unsigned n = 0, left = 0;
    for (uint64_t m = sig; m; m &= m - 1) place[n++] = (uint8_t)__builtin_ctzll(m);
    const uint64_t more = fl_jpeg_dct_wide(at, bit, n), sign = fl_jpeg_dct_wide(at, bit + n, n);
    bit += 2 * n;
    for (unsigned i = 0; i < n; i++) {
        const unsigned goes_on = more >> i & 1;
        u[i] = (uint16_t)(1 - goes_on);
        low[i] = 0;
        active[left] = (uint8_t)i;
        left += goes_on;
    }
    for (int j = 0; j < FL_JPEG_DCT_ORDER_MOST; j++) {
        const uint64_t has = sig & orders->above[j];
        if (!has) break;
        const unsigned count = (unsigned)__builtin_popcountll(has);
        uint64_t bits = fl_jpeg_dct_wide(at, bit, count);
        bit += count;
        for (unsigned i = 0; i < n; i++) {
            const unsigned mine = has >> place[i] & 1;
            low[i] |= (uint16_t)((bits & mine) << j);
            bits >>= mine;
        }
    }
    for (unsigned k = 2; left; k++) {
        if (k > FL_JPEG_DCT_BIT_MOST) return FL_JPEG_DCT_DAMAGED;
        const uint64_t larger = fl_jpeg_dct_wide(at, bit, left), ones = fl_jpeg_dct_wide(at, bit + left, left);
        bit += 2 * left;
        unsigned next = 0;
        for (unsigned t = 0; t < left; t++) {
            const unsigned i = active[t], goes_on = larger >> t & 1;
            u[i] |= (uint16_t)((ones >> t & 1) << (k - 2) | (uint64_t)(1 - goes_on) << (k - 1));
            active[next] = (uint8_t)i;
            next += goes_on;
        }
        left = next;
    }
    for (unsigned i = 0; i < n; i++) {
        const int magnitude = ((u[i] - 1) << orders->order[place[i]]) + low[i] + 1, negative = -(int)(sign >> i & 1);
        out[fl_jpeg_natural[place[i]]] = (int16_t)((magnitude ^ negative) - negative);
    }
    return bit;
}

uint64_t fl_jpeg_dct_block(const uint8_t *at, uint64_t bit, unsigned last, const fl_jpeg_dct_orders *orders, int16_t *out) {
    return block(at, bit, last, orders, out);
}

FL_INLINE void one(fl_jpeg_dct_run *r) {
    const unsigned last = fl_jpeg_dct_last(r->at, r->lasts, r->block++);
    memset(r->coefs, 0, 64 * sizeof *r->coefs);
    if (last) r->bit = block(r->at, r->bit, last, r->orders, r->coefs);
    *r->coefs = *r->dc++;
    r->coefs += 64;
    *r->counts++ = (uint8_t)(last + 1);
    r->count--;
}

static bool make_plain(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }

#define COUNT(mask) ((unsigned)__builtin_popcountll(mask))

FL_INLINE bool pass(fl_jpeg_dct_run *run) {
    fl_jpeg_dct_run r = *run;
    const fl_jpeg_dct_orders *o = r.orders;
    for (; r.count; r.count--) {
        const unsigned last = fl_jpeg_dct_last(r.at, r.lasts, r.block++);
        if (!last) continue;
        const uint64_t sig = significant(r.at, r.bit, last);
        const unsigned n = COUNT(sig);
        unsigned left = COUNT(fl_jpeg_dct_wide(r.at, r.bit + last - 1, n));
        r.bit += last - 1 + 2 * n + COUNT(sig & o->above[0]) + COUNT(sig & o->above[1]) + COUNT(sig & o->above[2]);
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
__attribute__((target("bmi,bmi2,popcnt"))) static bool make_bmi2(fl_jpeg_dct_run *a, fl_jpeg_dct_run *b) { FL_JPEG_DCT_MAKE(one); }
#endif

const fl_jpeg_dct_kernels *fl_jpeg_dct_kernels_best(void) {
    static const fl_jpeg_dct_kernels plain = {make_plain, pass_plain};
#if defined(__x86_64__)
    static const fl_jpeg_dct_kernels bmi2 = {make_bmi2, pass_popcnt}, avx2 = {fl_jpeg_dct_make_avx2, pass_popcnt},
                                     avx512 = {fl_jpeg_dct_make_avx512, pass_popcnt};
    if (fl_cpu_has(FL_CPU_BMI2 | FL_CPU_PDEP | FL_CPU_AVX512)) return &avx512;
    if (fl_cpu_has(FL_CPU_BMI2 | FL_CPU_PDEP | FL_CPU_AVX2)) return &avx2;
    if (fl_cpu_has(FL_CPU_BMI2)) return &bmi2;
#endif
    return &plain;
}
