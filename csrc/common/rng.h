/* common/rng: counter-based random numbers. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random
 * Numbers: As Easy as 1, 2, 3", SC'11). A draw is a pure function of (seed, epoch, index, stream, position):
 * no state is shared, so thread, rank, batch and order cannot change it. Plain values; any thread.
 */
#ifndef FL_COMMON_RNG_H
#define FL_COMMON_RNG_H

#include <stdint.h>

typedef struct fl_key {
    uint64_t seed;
    uint32_t epoch;
    uint64_t index; /* of the sample in its dataset */
} fl_key;

/* One stream of one sample. Made by fl_rng_start, advanced by the draws. */
typedef struct fl_rng {
    uint32_t key[2], counter[4];
    uint32_t block[4];
    uint32_t left; /* words of block not yet drawn */
} fl_rng;

/* The ten rounds themselves; the known-answer tests of the paper's library hold for it. */
void fl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

fl_rng fl_rng_start(fl_key key, uint16_t stream);
uint32_t fl_rng_word(fl_rng *rng);
/* Uniform in [0, 1), 53 bits. */
double fl_rng_uniform(fl_rng *rng);
/* Uniform in 0 .. bound-1, unbiased to 2^-32; bound > 0. */
uint32_t fl_rng_below(fl_rng *rng, uint32_t bound);

#endif
