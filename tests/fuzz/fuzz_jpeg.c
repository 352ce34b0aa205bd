/* Bytes of a file: real JPEGs, mutated segment by segment, held to what jpeg_properties.h says. */
#include "jpeg_mutator.h"
#include "jpeg_properties.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_draws_from_hash(data, size);
    check_jpeg(data, size);
    return 0;
}
