/* fl_resize_ramp: float tables that are calculated, bit for bit, where the CPU can, and told from those that are not. */
#include <math.h>
#include <stdio.h>

#include "common/cpu.h"
#include "resize/ramp.h"

#if !defined(__x86_64__)
int main(void) {
    puts("ramp: this CPU looks its values up");
    return 0;
}
#else
#include "check.h"

static fl_resize_ramp ramp;
static float table[3][256];

int main(void) {
    static const float lines[][2] = {{0.0f, 1.0f}, {0.5f, 0.5f}, {0.485f, 0.229f}, {0.456f, 0.224f}, {0.406f, 0.225f}, {0.4914f, 0.247f}};
    if (!fl_cpu_has(FL_CPU_AVX2 | FL_CPU_FMA)) {
        puts("ramp: this CPU looks its values up");
        return 0;
    }
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) {
        for (int i = 0; i < 3 * 256; i++) table[i / 256][i % 256] = ((float)(i % 256) / 255.0f - lines[n][0]) / lines[n][1];
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
    puts("ramp: ok");
    return 0;
}
#endif
