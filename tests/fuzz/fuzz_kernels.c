/* The decoder's kernels: SIMD and plain C give the same bytes for any coefficients, quantisers, lengths and
 * alignments. */
#include "fuzz.h"
#include "kernel_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (fl_cpu_has(FL_CPU_AVX2)) fast = fl_jpeg_kernels_avx2();
    if (fl_cpu_has(FL_CPU_NEON)) fast = fl_jpeg_kernels_neon();
    if (!fast) fast = &fl_jpeg_kernels_scalar;
    draws_begin(data, size);
    const uint32_t which = below(4 + KERNELS);
    if (which < 4) inverse_dct((int)which);
    else row((kernel)(which - 4), 1 + below(below(4) ? 200 : 4000));
    fuzz_count("cases by two kernel sets");
    return 0;
}
