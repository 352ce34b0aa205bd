/* JPEGs made by the grammar: any Huffman tables, quantisers, samplings, restarts, progressive scripts and
 * coefficients. */
#include "jpeg_grammar.h"
#include "jpeg_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    draws_begin(data, size);
    jpeg_out made = make_jpeg(false);
    uint8_t *bytes = fuzz_copy(made.bytes, made.size);
    check_jpeg(bytes, made.size);
    free(bytes);
    free(made.bytes);
    return 0;
}
