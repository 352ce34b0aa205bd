/* Rows of any number, and run lengths: what passes fl_varying_open and fl_rle_check lies inside, and is used as it was checked. */
#include "store/rle.h"
#include "store/varying.h"
#include "fuzz.h"

enum { MOST = 1 << 14 }; /* pixels of a mask */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    fl_varying found;
    fuzz_draws_from_hash(data, size);
    for (uint32_t levels = 0; levels <= FL_VARYING_LEVELS; levels++) {
        const uint32_t unit = 1 + noise() % 16;
        const fl_code code = fl_varying_open((fl_span){data, size}, levels, levels ? 4 : unit, &found, &err);
        fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
        if (code) continue;
        fuzz_count("entries that hold");
        CHECK(found.values.bytes + found.values.size == data + size && found.values.bytes >= data + 4);
        for (uint32_t i = 0; i < levels; i++) CHECK(found.lengths[i].bytes + found.lengths[i].size <= found.values.bytes);
    }
    if (size < 2) return 0;
    const uint32_t height = 1 + data[0] % 128, width = 1 + data[1] % 128;
    const fl_span counts = {data + 2, (size - 2) / 4 * 4};
    uint8_t out[MOST], cell;
    const fl_code code = fl_rle_sample(counts, height, width, NULL, 0, NULL, 0, out, width, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
    if (code) return 0;
    fuzz_count("run lengths that hold");
    FUZZ_INITIALIZED(out, height * width);
    for (int i = 0; i < 8; i++) {
        const uint32_t y = noise() % height, x = noise() % width;
        CHECK(fl_rle_sample(counts, height, width, &y, 1, &x, 1, &cell, 1, &err) == FL_OK && cell == out[y * width + x]);
    }
    return 0;
}

/* Blind mutations, after which the run lengths mostly sum to the pixels. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    draws_at = draws_end = NULL;
    noise_state = ((uint64_t)seed + 1) * 0x9E3779B97F4A7C15u;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (noise() % 4 == 0 || size < 6) return size;
    uint64_t left = (uint64_t)(1 + data[0] % 128) * (1 + data[1] % 128);
    for (size_t at = 2; at + 4 <= size; at += 4) {
        const uint32_t count = at + 8 <= size ? noise() % (uint32_t)(left + 1) : (uint32_t)left;
        fl_bytes_put_le32(data + at, count);
        left -= count;
    }
    return size;
}
