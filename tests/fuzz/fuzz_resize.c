/* Resampling: the properties of resize_scenes.h, each on a scene of the fuzzer's. */
#include "resize_scenes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_error err;
    if (!resizer) CHECK(fl_resizer_create(&resizer, &err) == FL_OK, "%s", err.text);
    draws_begin(data, size);
    resize_properties[below(RESIZE_PROPERTIES)]();
    return 0;
}
