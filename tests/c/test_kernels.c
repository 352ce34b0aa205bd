/* The SIMD kernels of fl_jpeg_baseline against those in plain C: the same bytes for every input, at every
 * length and alignment, and nothing written or (under the address sanitizer) read beyond the margins that
 * jpeg/baseline_parts.h allows. Needs neither libjpeg nor liblmdb. */
#include "kernel_cases.h"

/* Every Y with every Cb and Cr. */
static void every_colour(void) {
    enum { N = 256 };
    uint8_t *y = allocate(N + FL_JPEG_MARGIN), *cb = allocate(N + FL_JPEG_MARGIN),
            *cr = allocate(N + FL_JPEG_MARGIN);
    uint8_t *slow = allocate(3 * N), *quick = allocate(3 * N + FL_JPEG_SLACK);
    for (int i = 0; i < N + FL_JPEG_MARGIN; i++) y[i] = (uint8_t)i;
    for (int u = 0; u < 256; u++) {
        memset(cb, u, N + FL_JPEG_MARGIN);
        for (int v = 0; v < 256; v++) {
            memset(cr, v, N + FL_JPEG_MARGIN);
            fl_jpeg_kernels_scalar.ycc(y, cb, cr, slow, N);
            fast->ycc(y, cb, cr, quick, N);
            CHECK(memcmp(slow, quick, 3 * N) == 0);
        }
    }
    free(y), free(cb), free(cr), free(slow), free(quick);
}

int main(int argc, char **argv) {
    if (fl_cpu_has(FL_CPU_AVX2)) fast = fl_jpeg_kernels_avx2();
    if (fl_cpu_has(FL_CPU_NEON)) fast = fl_jpeg_kernels_neon();
    if (!fast) {
        puts("no SIMD kernels for this processor: nothing to compare");
        return 0;
    }
    const int rounds = argc > 1 ? atoi(argv[1]) : 1; /* more rounds, and a seed: a longer search */
    if (argc > 2) noise_state = strtoull(argv[2], NULL, 0);
    for (int round = 0; round < rounds; round++) {
        for (int log2 = 0; log2 < 4; log2++)
            for (int i = 0; i < 5000; i++) check_seed = noise_state, inverse_dct(log2);
        for (int which = 0; which < KERNELS; which++) {
            for (size_t n = 1; n <= 200; n++)
                for (int i = 0; i < 12; i++) check_seed = noise_state, row((kernel)which, n);
            for (int i = 0; i < 20; i++) check_seed = noise_state, row((kernel)which, 201 + below(4000));
        }
    }
    every_colour();
    return 0;
}
