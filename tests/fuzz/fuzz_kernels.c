/* The decoder's kernels: SIMD and plain C give the same bytes for any coefficients, quantisers, lengths and alignments. */
#include "fuzz.h"
#include "kernel_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const fl_decode_kernels *avx2 = fl_decode_avx2();
    fast = avx2 ? avx2 : fl_decode_neon();
    if (!fast) fast = &fl_decode_scalar;
    draws_begin(data, size);
    const uint32_t which = below(4 + KERNELS);
    if (which < 4) inverse_dct((int)which);
    else row((kernel)(which - 4), 1 + below(below(4) ? 200 : 4000));
    fuzz_count("cases by two kernel sets");
    return 0;
}
