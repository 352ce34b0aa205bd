/* Rows of any number, and run lengths: what passes fl_varying_open and fl_rle_check lies inside, and is used
 * as it was checked. */
#include "store/edges.h"
#include "store/rle.h"
#include "store/varying.h"
#include "fuzz.h"

enum { SIDE = 128, MOST = SIDE * SIDE }; /* pixels of a mask, and of a result */

/* Numbers below `size` at even steps, rising or falling. */
static uint32_t shown_of(uint32_t size, uint32_t *from) {
    const uint32_t first = noise() % size, count = 1 + noise() % SIDE, span = 1 + noise() % (size - first),
                   falls = noise() % 2;
    for (uint32_t i = 0; i < count; i++) from[falls ? count - 1 - i : i] = first + i * span / count;
    return count;
}

/* A result of some rows and columns has the pixels of the mask as it is. */
static void check_shown(fl_span counts, uint32_t height, uint32_t width, const uint8_t *mask) {
    fl_error err;
    uint32_t rows[SIDE], columns[SIDE], row_edges[SIDE + 1], column_edges[SIDE + 1];
    uint8_t out[MOST] = {0};
    const fl_rle_axis y = {shown_of(height, rows), row_edges}, x = {shown_of(width, columns), column_edges};
    fl_edges_make(rows, y.count, height, row_edges), fl_edges_make(columns, x.count, width, column_edges);
    CHECK(fl_rle_sample(counts, height, width, &y, &x, out, x.count, &err) == FL_OK);
    for (uint32_t i = 0; i < y.count; i++)
        for (uint32_t j = 0; j < x.count; j++)
            CHECK(out[i * x.count + j] == mask[rows[i] * width + columns[j]]);
}

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
        for (uint32_t i = 0; i < levels; i++)
            CHECK(found.lengths[i].bytes + found.lengths[i].size <= found.values.bytes);
    }
    if (size < 2) return 0;
    const uint32_t height = 1 + data[0] % SIDE, width = 1 + data[1] % SIDE;
    const fl_span counts = {data + 2, (size - 2) / 4 * 4};
    uint8_t out[MOST] = {0};
    const fl_rle_axis rows = {height, NULL}, columns = {width, NULL};
    const fl_code code = fl_rle_sample(counts, height, width, &rows, &columns, out, width, &err);
    fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
    if (code) return 0;
    fuzz_count("run lengths that hold");
    for (int i = 0; i < 4; i++) check_shown(counts, height, width, out);
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
