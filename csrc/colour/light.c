#include "colour/light.h"

#include "common/cpu.h"

enum { TOGETHER = 4096 }; /* pixels */

FL_INLINE void grey_of(fl_colour_planes *planes, const uint8_t light[FL_COLOUR_BLOCK]) {
    memcpy(planes->r, light, FL_COLOUR_BLOCK);
    memcpy(planes->g, light, FL_COLOUR_BLOCK);
    memcpy(planes->b, light, FL_COLOUR_BLOCK);
}

/* The functions of this file, with a version of the lights of a block. */
#define VERSION(name, attribute, version)                                                                    \
    attribute FL_INLINE void grey_block##version(fl_colour_planes *planes, uint8_t light[FL_COLOUR_BLOCK]) { \
        fl_colour_block_light##version(planes, light);                                                       \
        grey_of(planes, light);                                                                              \
    }                                                                                                        \
    attribute static void lights_##name(const uint8_t *rgb, size_t pixels, uint8_t *out) {                   \
        FL_COLOUR_BYTES(version, rgb, pixels, out, fl_colour_block_light##version, &planes);                 \
    }                                                                                                        \
    attribute static void grey_##name(uint8_t *rgb, size_t pixels) {                                         \
        uint8_t light[FL_COLOUR_BLOCK];                                                                      \
        FL_COLOUR_BLOCKS(version, rgb, pixels, grey_block##version, light);                                  \
    }

VERSION(plain, FL_PLAIN, )
#if defined(__x86_64__)
VERSION(avx2, FL_AVX2, _avx2)
VERSION(avx512, FL_AVX512, _avx512)
#define CHOSEN(name)                                                                                         \
    (fl_cpu_has(FL_CPU_AVX512) ? name##_avx512 : fl_cpu_has(FL_CPU_AVX2) ? name##_avx2 : name##_plain)
#else
#define CHOSEN(name) name##_plain
#endif

void fl_colour_light(const uint8_t *rgb, size_t pixels, uint8_t *out) { CHOSEN(lights)(rgb, pixels, out); }

static uint64_t sum_of(const uint8_t *bytes, size_t count) {
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += bytes[i];
    return sum;
}

uint8_t fl_colour_mean_light(const uint8_t *image, size_t pixels, size_t channels) {
    uint8_t lights[TOGETHER];
    uint64_t sum = 0;
    for (size_t at = 0; at < pixels; at += TOGETHER) {
        const size_t some = pixels - at < TOGETHER ? pixels - at : TOGETHER;
        if (channels == 3) fl_colour_light(image + at * 3, some, lights);
        sum += sum_of(channels == 3 ? lights : image + at, some);
    }
    return pixels ? (uint8_t)(int)((double)sum / (double)pixels + 0.5) : 0;
}

void fl_colour_grey(uint8_t *rgb, size_t pixels) { CHOSEN(grey)(rgb, pixels); }
