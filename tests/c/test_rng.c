/* Philox gives the known answers of its paper's library (Random123, kat_vectors), and streams do not meet. */
#include "common/rng.h"

#include <string.h>

#include "check.h"

static void known(const uint32_t counter[4], const uint32_t key[2], const uint32_t expected[4]) {
    uint32_t out[4];
    fl_philox(counter, key, out);
    CHECK(memcmp(out, expected, sizeof out) == 0);
}

int main(void) {
    known((uint32_t[]){0, 0, 0, 0}, (uint32_t[]){0, 0},
          (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    known((uint32_t[]){~0u, ~0u, ~0u, ~0u}, (uint32_t[]){~0u, ~0u},
          (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    known((uint32_t[]){0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, (uint32_t[]){0xa4093822, 0x299f31d0},
          (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

    fl_key key = {7, 3, 12345678901ull};
    fl_rng a = fl_rng_start(key, 1), again = fl_rng_start(key, 1), other = fl_rng_start(key, 2);
    int same = 0;
    double sum = 0;
    for (int i = 0; i < 40000; i++) {
        double x = fl_rng_uniform(&a);
        CHECK(x >= 0 && x < 1);
        CHECK(x == fl_rng_uniform(&again));
        same += x == fl_rng_uniform(&other);
        sum += x;
    }
    CHECK(same == 0);
    CHECK(sum / 40000 > 0.49 && sum / 40000 < 0.51);
    for (uint32_t bound = 1; bound < 1000; bound++) CHECK(fl_rng_below(&a, bound) < bound);
    puts("rng: ok");
    return 0;
}
