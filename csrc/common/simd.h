/* common/simd: attributes of functions in the inner loops, and the few vector idioms that several kernels
 * use.
 *
 * Nothing is built for the machine it is built on: a function for later CPUs says so by its attribute, and is
 * called where common/cpu.h finds the instructions. */
#ifndef FL_COMMON_SIMD_H
#define FL_COMMON_SIMD_H

#define FL_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#include <immintrin.h>

/* Of a function that only CPUs before AVX2 call: small rather than fast. */
#define FL_PLAIN __attribute__((cold))

#define FL_AVX2 __attribute__((target("avx2")))
#define FL_AVX2_INLINE FL_AVX2 FL_INLINE
#define FL_AVX2_FMA __attribute__((target("avx2,fma")))
#define FL_AVX2_FMA_INLINE FL_AVX2_FMA FL_INLINE
#define FL_AVX2_HALF __attribute__((target("avx2,fma,f16c")))
#define FL_AVX2_HALF_INLINE FL_AVX2_HALF FL_INLINE
#define FL_BMI2 __attribute__((target("bmi,bmi2")))
#define FL_AVX2_BMI2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define FL_AVX2_BMI2_INLINE FL_AVX2_BMI2 FL_INLINE
#define FL_AVX512                                                                                            \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,"        \
                          "popcnt")))
#define FL_AVX512_INLINE FL_AVX512 FL_INLINE

/* The same 16 bytes in both lanes of a vector. */
#define FL_AVX2_BOTH(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
#else
#define FL_PLAIN
#endif

#endif
