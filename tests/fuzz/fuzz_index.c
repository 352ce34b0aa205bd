/* Entropy indices that lie, of JPEGs made by the grammar: what is delivered without an index is delivered
 * whatever an index says, by both kernel sets alike, and nothing is read or written where it must not be. */
#include "jpeg/header.h"
#include "index_liar.h"
#include "jpeg_grammar.h"
#include "jpeg_properties.h"

/* Wrong marks, or rubbish, or another length. */
static uint8_t *lying_index(const uint8_t *bytes, size_t size, size_t *index_size, bool *sound) {
    static fl_jpeg_tables tables;
    fl_jpeg_frame frame;
    uint8_t *index = make_index(bytes, size, index_size, sound);
    if (!index || !fl_jpeg_header_read(&tables, &frame, bytes, size)) return index;
    if (below(3)) {
        uint8_t *other = lie(index, index_size, frame.mcus_across, frame.mcus_down, size);
        free(index);
        return other;
    }
    for (uint32_t i = below(4); i; i--)
        index[below(below(2) ? 10 : (uint32_t)*index_size)] = (uint8_t)below(256);
    if (below(4) == 0) *index_size = below((uint32_t)*index_size + 1);
    return index;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    draws_begin(data, size);
    create_decoders();
    jpeg_out made = make_jpeg(true);
    uint8_t *bytes = fuzz_copy(made.bytes, made.size);
    size_t index_size;
    bool sound;
    uint8_t *lies = lying_index(bytes, made.size, &index_size, &sound), *index = fuzz_copy(lies, index_size);
    uint32_t width, height;
    fuzz_count("inputs");
    for (int i = 0; i < 6 && fl_jpeg_baseline_open(baseline, bytes, made.size, &width, &height); i++) {
        const fl_box box = random_box(width, height);
        const int eighths = 1 << below(4);
        fl_view v;
        const bool without = fl_jpeg_baseline_decode(baseline, &box, eighths, NULL, 0, &v);
        const bool delivered = check_kernels(&box, eighths, index, index_size, &v);
        CHECK(delivered || !without);
        if (!delivered) continue;
        fuzz_count("boxes by a lying index");
        free((void *)(uintptr_t)v.pixels);
    }
    free(lies), free(index), free(bytes), free(made.bytes);
    return 0;
}
