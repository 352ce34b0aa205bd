#include "common/cpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

enum { UNKNOWN = 1 << 30 };

static const struct {
    const char *name;
    unsigned feature;
} FEATURES[] = {{"crc32c", FL_CPU_CRC32C}, {"bmi2", FL_CPU_BMI2}, {"avx2", FL_CPU_AVX2},
                {"fma", FL_CPU_FMA},       {"neon", FL_CPU_NEON}, {"pdep", FL_CPU_PDEP},
                {"avx512", FL_CPU_AVX512}, {"f16c", FL_CPU_F16C}};

enum { COUNT = sizeof FEATURES / sizeof *FEATURES };

static _Atomic unsigned used = UNKNOWN;

#if defined(__x86_64__)
/* AMD before Zen 3, and Hygon, which is Zen 1, have pdep and pext in microcode, at up to 250 cycles each. */
static bool slow_pdep(void) {
    enum { HYGON = 0x6f677948 /* what cpuid calls "HygonGenuine" begins with */ };
    unsigned most, vendor, b, c;
    if (__get_cpuid(0, &most, &vendor, &b, &c) && vendor == HYGON) return true;
    return __builtin_cpu_is("amdfam15h") || __builtin_cpu_is("znver1") || __builtin_cpu_is("znver2");
}

/* clang 14 has no "f16c" in __builtin_cpu_supports. "avx" says that the system saves the registers that F16C
 * works on. */
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
}
#endif

static unsigned detect(void) {
#if defined(__x86_64__)
    unsigned found = 0;
    if (__builtin_cpu_supports("sse4.2")) found |= FL_CPU_CRC32C;
    if (__builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) found |= FL_CPU_BMI2;
    if (__builtin_cpu_supports("avx2")) found |= FL_CPU_AVX2;
    if (__builtin_cpu_supports("fma")) found |= FL_CPU_FMA;
    if (found & FL_CPU_BMI2 && !slow_pdep()) found |= FL_CPU_PDEP;
    if (has_f16c()) found |= FL_CPU_F16C;
    if (has_avx512()) found |= FL_CPU_AVX512;
    return found;
#elif defined(__aarch64__) && defined(__linux__)
    return FL_CPU_NEON | (getauxval(AT_HWCAP) & (1UL << 7) /* HWCAP_CRC32 */ ? FL_CPU_CRC32C : 0u);
#elif defined(__aarch64__)
    return FL_CPU_NEON | FL_CPU_CRC32C; /* every Apple arm64 */
#else
    return 0;
#endif
}

static unsigned features_used(void) {
    unsigned now = atomic_load_explicit(&used, memory_order_relaxed);
    if (__builtin_expect(now != UNKNOWN, 1)) return now;
    const unsigned found = detect();
    atomic_compare_exchange_strong(&used, &now, found); /* unless fl_cpu_use came first */
    return atomic_load_explicit(&used, memory_order_relaxed);
}

bool fl_cpu_has(unsigned features) { return (features_used() & features) == features; }

static unsigned feature_named(const char *name, size_t size) {
    for (int i = 0; i < COUNT; i++)
        if (strlen(FEATURES[i].name) == size && memcmp(FEATURES[i].name, name, size) == 0)
            return FEATURES[i].feature;
    return 0;
}

/* The names of some features, with `between` between them. */
static void join(unsigned features, const char *between, char out[FL_CPU_NAMES]) {
    int size = 0;
    for (int i = 0; i < COUNT; i++)
        if (features & FEATURES[i].feature)
            size += snprintf(out + size, FL_CPU_NAMES - (size_t)size, "%s%s", size ? between : "",
                             FEATURES[i].name);
}

fl_code fl_cpu_use(const char *names, fl_error *err) {
    unsigned allowed = 0;
    if (!names || !*names) allowed = ~0u;
    else if (strcmp(names, "plain") != 0) {
        for (const char *at = names;; at++) {
            const size_t size = strcspn(at, ",");
            const unsigned feature = feature_named(at, size);
            if (!feature) {
                char known[FL_CPU_NAMES];
                join(~0u, ", ", known);
                return fl_fail(err, FL_EARG,
                               "FASTLOAD_CPU='%.60s' is neither plain nor a list of %s; correct or unset it",
                               names, known);
            }
            allowed |= feature;
            at += size;
            if (!*at) break;
        }
    }
    atomic_store_explicit(&used, detect() & allowed, memory_order_relaxed);
    return FL_OK;
}

void fl_cpu_names(char out[FL_CPU_NAMES]) {
    const unsigned now = features_used();
    if (now) join(now, ",", out);
    else memcpy(out, "plain", sizeof "plain");
}
