#include "common/rng.h"

#include <string.h>

/* The multipliers and Weyl constants are the paper's. */
void fl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b, c3 = (uint32_t)a;
        c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

fl_rng fl_rng_start(fl_key key, uint16_t stream) {
    fl_rng rng;
    memset(&rng, 0, sizeof rng);
    rng.key[0] = (uint32_t)key.seed, rng.key[1] = (uint32_t)(key.seed >> 32);
    rng.counter[0] = (uint32_t)key.index, rng.counter[1] = (uint32_t)(key.index >> 32);
    rng.counter[2] = key.epoch;
    rng.counter[3] = (uint32_t)stream << 16; /* the low half counts blocks within the stream */
    return rng;
}

uint32_t fl_rng_word(fl_rng *rng) {
    if (!rng->left) {
        fl_philox(rng->counter, rng->key, rng->block);
        rng->counter[3]++;
        rng->left = 4;
    }
    return rng->block[4 - rng->left--];
}

double fl_rng_uniform(fl_rng *rng) {
    uint64_t high = fl_rng_word(rng) >> 5, low = fl_rng_word(rng) >> 6; /* 27 + 26 bits */
    return (double)((high << 26) | low) * 0x1p-53;
}

uint32_t fl_rng_below(fl_rng *rng, uint32_t bound) {
    return (uint32_t)(((uint64_t)fl_rng_word(rng) * bound) >> 32);
}
