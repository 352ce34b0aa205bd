#include "resize/normalize.h"

#include "common/cpu.h"
#include "common/simd.h"

/* Compiled without contraction: two roundings each. */
FL_INLINE void planar(const float *src, float *dst, size_t n, float mean, float std) {
    for (size_t i = 0; i < n; i++) dst[i] = (src[i] - mean) / std;
}

enum {
    PIXELS = 8,
    MOST = PIXELS * FL_RESIZE_NORMALIZE_CHANNELS
}; /* whole vectors of any number of channels */

/* `means` and `stds` repeat after `period` values. */
FL_INLINE void periods(const float *src, float *dst, size_t n, size_t period, const float *means,
                       const float *stds) {
    size_t at = 0;
    for (; at + period <= n; at += period)
        for (size_t i = 0; i < period; i++) dst[at + i] = (src[at + i] - means[i]) / stds[i];
    for (size_t i = 0; at < n; at++, i++) dst[at] = (src[at] - means[i]) / stds[i];
}

/* Three channels in a loop of their own, whose period the compiler knows. */
FL_INLINE void interleaved(const float *src, float *dst, size_t n, size_t channels, const float *means,
                           const float *stds) {
    if (channels == 3) periods(src, dst, n, 3 * PIXELS, means, stds);
    else periods(src, dst, n, PIXELS * channels, means, stds);
}

#if defined(__x86_64__)
FL_AVX2 static void planar_avx2(const float *src, float *dst, size_t n, float mean, float std) {
    planar(src, dst, n, mean, std);
}

FL_AVX2 static void interleaved_avx2(const float *src, float *dst, size_t n, size_t channels,
                                     const float *means, const float *stds) {
    interleaved(src, dst, n, channels, means, stds);
}
#define HAS_AVX2 fl_cpu_has(FL_CPU_AVX2)
#else
#define planar_avx2 planar
#define interleaved_avx2 interleaved
#define HAS_AVX2 false
#endif

void fl_resize_normalize(const float *src, float *dst, size_t n, float mean, float std) {
    (HAS_AVX2 ? planar_avx2 : planar)(src, dst, n, mean, std);
}

void fl_resize_normalize_interleaved(const float *src, float *dst, size_t n, size_t channels,
                                     const float *mean, const float *std) {
    float means[MOST], stds[MOST];
    for (size_t i = 0; i < PIXELS * channels; i++) means[i] = mean[i % channels], stds[i] = std[i % channels];
    (HAS_AVX2 ? interleaved_avx2 : interleaved)(src, dst, n * channels, channels, means, stds);
}
