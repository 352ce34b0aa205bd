/* fl_resize_ramp, fl_resize_half_ramp: float tables that are calculated, bit for bit, where the CPU can, and
 * told from those that are not. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cpu.h"
#include "resize/half_ramp.h"
#include "resize/ramp.h"

#if !defined(__x86_64__)
int main(void) {
    puts("ramp: this CPU looks its values up");
    return 0;
}
#else
#include <immintrin.h>

#include "check.h"

static fl_resize_ramp ramp;
static fl_resize_half_ramp half;
static float table[3][256];
static uint16_t halves[3][256], made[3 * 256];
static const float lines[][2] = {{0.0f, 1.0f},     {0.5f, 0.5f},      {0.485f, 0.229f},      {0.456f, 0.224f},
                                 {0.406f, 0.225f}, {0.4914f, 0.247f}, {0.0f, 1.0f / 255.0f}, {2.0f, -0.003f}};

__attribute__((target("f16c"))) static uint16_t rounded(float value, fl_dtype dtype) {
    uint32_t bits;
    if (dtype == FL_F16) return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static void check_values(fl_dtype dtype) {
    static uint8_t rgb[3 * 256];
    for (int i = 0; i < 3 * 256; i++) rgb[i] = (uint8_t)(i * 91);
    for (size_t n = 0; n <= 256; n += n < 40 ? 1 : 27) {
        memset(made, 0xAB, sizeof made);
        fl_resize_half_ramp_interleaved(&half, rgb, made, n);
        for (size_t i = 0; i < 3 * n; i++) CHECK(made[i] == halves[i % 3][rgb[i]]);
        CHECK(n == 256 || made[3 * n] == 0xABAB);
        for (int c = 0; c < 3; c++) {
            fl_resize_half_ramp_plane(&half, c, rgb, made, n);
            for (size_t i = 0; i < n; i++) CHECK(made[i] == halves[c][rgb[i]]);
        }
    }
    CHECK(fl_resize_half_ramp_of(&half, halves, dtype) == &half);
}

static void test_halves(fl_dtype dtype) {
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) {
        for (int i = 0; i < 3 * 256; i++) {
            const float *line = lines[(n + (size_t)i / 256) % (sizeof lines / sizeof *lines)];
            halves[i / 256][i % 256] = rounded(((float)(i % 256) / 255.0f - line[0]) / line[1], dtype);
        }
        CHECK(fl_resize_half_ramp_of(&half, halves, dtype) == &half);
        check_values(dtype);
        CHECK(fl_resize_half_ramp_of(&half, halves, dtype == FL_F16 ? FL_BF16 : FL_F16) != &half ||
              half.dtype != dtype);
        for (int c = 0; c < 3; c++) {
            const uint16_t kept = halves[c][77];
            halves[c][77] = (uint16_t)(kept + 3);
            CHECK(fl_resize_half_ramp_of(&half, halves, dtype) == NULL);
            halves[c][77] = dtype == FL_F16 ? 0x7E00 : 0x7FC0; /* no number */
            CHECK(fl_resize_half_ramp_of(&half, halves, dtype) == NULL);
            halves[c][77] = kept;
        }
    }
}

int main(void) {
    if (!fl_cpu_has(FL_CPU_AVX2 | FL_CPU_FMA)) {
        puts("ramp: this CPU looks its values up");
        return 0;
    }
    for (size_t n = 0; n < 6; n++) {
        for (int i = 0; i < 3 * 256; i++)
            table[i / 256][i % 256] = ((float)(i % 256) / 255.0f - lines[n][0]) / lines[n][1];
        CHECK(fl_resize_ramp_of(&ramp, table) == &ramp);
        for (int c = 0; c < 3; c++) {
            const float kept = table[c][77];
            table[c][77] = nextafterf(kept, 9.0f); /* one bit */
            CHECK(fl_resize_ramp_of(&ramp, table) == NULL);
            table[c][77] = kept;
        }
        CHECK(fl_resize_ramp_of(&ramp, table) == &ramp);
    }
    for (int i = 0; i < 3 * 256; i++) table[i / 256][i % 256] = i == 300 ? NAN : 1.0f;
    CHECK(fl_resize_ramp_of(&ramp, table) == NULL);
    if (fl_cpu_has(FL_CPU_F16C)) test_halves(FL_F16), test_halves(FL_BF16);
    puts("ramp: ok");
    return 0;
}
#endif
