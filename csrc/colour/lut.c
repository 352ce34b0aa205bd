#include "colour/lut.h"

#include "colour/vectors.h"
#include "common/cpu.h"

FL_INLINE void one_by_one(uint8_t *bytes, size_t count, const uint8_t *table) {
    for (size_t i = 0; i < count; i++) bytes[i] = table[bytes[i]];
}

FL_PLAIN static void one_table_plain(uint8_t *bytes, size_t count, const uint8_t table[256]) {
    one_by_one(bytes, count, table);
}

FL_PLAIN static void three_tables_plain(uint8_t *rgb, size_t pixels, const uint8_t tables[3][256]) {
    for (size_t i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) rgb[3 * i + c] = tables[c][rgb[3 * i + c]];
}

#if defined(__x86_64__)
/* Half of a table: a shuffle looks up 16 values by an index's low four bits, and gives 0 where its top bit is
 * set; of eight of them the bits 4 to 6, each moved to the top of its byte, choose one. */
FL_AVX2_INLINE __m256i half_looked_up(__m256i x, const __m256i parts[8]) {
    const __m256i bit4 = _mm256_slli_epi16(x, 3), bit5 = _mm256_slli_epi16(x, 2),
                  bit6 = _mm256_slli_epi16(x, 1);
    __m256i of[4];
    for (int k = 0; k < 4; k++)
        of[k] = _mm256_blendv_epi8(_mm256_shuffle_epi8(parts[2 * k], x),
                                   _mm256_shuffle_epi8(parts[2 * k + 1], x), bit4);
    return _mm256_blendv_epi8(_mm256_blendv_epi8(of[0], of[1], bit5), _mm256_blendv_epi8(of[2], of[3], bit5),
                              bit6);
}

FL_AVX2_INLINE __m256i looked_up(__m256i x, const __m256i parts[16]) {
    return _mm256_or_si256(half_looked_up(x, parts),
                           half_looked_up(_mm256_xor_si256(x, _mm256_set1_epi8(-128)), parts + 8));
}

FL_AVX2 static void one_table_avx2(uint8_t *bytes, size_t count, const uint8_t table[256]) {
    __m256i parts[16];
    for (int k = 0; k < 16; k++)
        parts[k] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table + 16 * k)));
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m256i *at = (__m256i *)(bytes + i);
        _mm256_storeu_si256(at, looked_up(_mm256_loadu_si256(at), parts));
    }
    one_by_one(bytes + i, count - i, table);
}

typedef struct table_parts {
    __m256i of[16];
} table_parts;

FL_AVX2_INLINE void planes_looked_up(fl_colour_planes *planes, const table_parts t[3]) {
    uint8_t *sides[3] = {planes->r, planes->g, planes->b};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < FL_COLOUR_BLOCK; i += 32) {
            __m256i *at = (__m256i *)(sides[c] + i);
            _mm256_storeu_si256(at, looked_up(_mm256_loadu_si256(at), t[c].of));
        }
}

FL_AVX2 static void three_tables_avx2(uint8_t *rgb, size_t pixels, const uint8_t tables[3][256]) {
    table_parts t[3];
    for (int k = 0; k < 48; k++)
        t[k / 16].of[k % 16] =
            _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(tables[k / 16] + 16 * (k % 16))));
    FL_COLOUR_BLOCKS(_avx2, rgb, pixels, planes_looked_up, t);
}

typedef struct wide_table {
    __m512i parts[4];
} wide_table;

FL_AVX512_INLINE void wide_load(wide_table *out, const uint8_t table[256]) {
    for (int k = 0; k < 4; k++) out->parts[k] = _mm512_loadu_si512(table + 64 * k);
}

/* A permutation of two vectors looks up 128 values by an index's low seven bits. */
FL_AVX512_INLINE __m512i wide_looked_up(__m512i x, const wide_table *t) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(x),
                                  _mm512_permutex2var_epi8(t->parts[0], x, t->parts[1]),
                                  _mm512_permutex2var_epi8(t->parts[2], x, t->parts[3]));
}

FL_AVX512 static void one_table_avx512(uint8_t *bytes, size_t count, const uint8_t table[256]) {
    wide_table t;
    wide_load(&t, table);
    size_t i = 0;
    for (; i + 64 <= count; i += 64)
        _mm512_storeu_si512(bytes + i, wide_looked_up(_mm512_loadu_si512(bytes + i), &t));
    one_by_one(bytes + i, count - i, table);
}

/* Every byte by all three tables, of which its place among the channels chooses one: 64 is 1 modulo 3. */
FL_AVX512 static void three_tables_avx512(uint8_t *rgb, size_t pixels, const uint8_t tables[3][256]) {
    const uint64_t thirds = 0x9249249249249249; /* bits 0, 3, ... 63 */
    wide_table t[3];
    for (int c = 0; c < 3; c++) wide_load(t + c, tables[c]);
    size_t at = 0, first = 0; /* first: place of a vector's first byte among the channels */
    for (; at + 64 <= 3 * pixels; at += 64, first = (first + 1) % 3) {
        const __m512i x = _mm512_loadu_si512(rgb + at);
        const __m512i of[3] = {wide_looked_up(x, t), wide_looked_up(x, t + 1), wide_looked_up(x, t + 2)};
        /* a byte's channel is (first + i) modulo 3 */
        const __mmask64 green = first == 0   ? thirds << 1
                                : first == 1 ? thirds
                                             : thirds << 2,
                        blue = first == 0   ? thirds << 2
                               : first == 1 ? thirds << 1
                                            : thirds;
        _mm512_storeu_si512(rgb + at,
                            _mm512_mask_blend_epi8(blue, _mm512_mask_blend_epi8(green, of[0], of[1]), of[2]));
    }
    for (; at < 3 * pixels; at++) rgb[at] = tables[at % 3][rgb[at]];
}

#define CHOSEN(name)                                                                                         \
    (fl_cpu_has(FL_CPU_AVX512) ? name##_avx512 : fl_cpu_has(FL_CPU_AVX2) ? name##_avx2 : name##_plain)
#else
#define CHOSEN(name) name##_plain
#endif

void fl_colour_table(uint8_t *bytes, size_t count, const uint8_t table[256]) {
    CHOSEN(one_table)(bytes, count, table);
}

void fl_colour_tables(uint8_t *rgb, size_t pixels, const uint8_t tables[3][256]) {
    if (memcmp(tables[0], tables[1], 256) == 0 && memcmp(tables[0], tables[2], 256) == 0)
        fl_colour_table(rgb, 3 * pixels, tables[0]);
    else CHOSEN(three_tables)(rgb, pixels, tables);
}

/* Four pixels at a time count in four places: a count that was just written is not waited for. */
FL_INLINE void counted(const uint8_t *bytes, size_t pixels, size_t channels, uint32_t *counts) {
    uint32_t places[4][3 * 256] = {{0}};
    size_t i = 0;
    for (; i + 4 <= pixels; i += 4, bytes += 4 * channels)
        for (size_t k = 0; k < 4; k++)
            for (size_t c = 0; c < channels; c++) places[k][256 * c + bytes[k * channels + c]]++;
    for (; i < pixels; i++, bytes += channels)
        for (size_t c = 0; c < channels; c++) places[0][256 * c + bytes[c]]++;
    for (size_t v = 0; v < 256 * channels; v++)
        counts[v] = places[0][v] + places[1][v] + places[2][v] + places[3][v];
}

void fl_colour_counts(const uint8_t *bytes, size_t pixels, size_t channels, uint32_t *counts) {
    if (channels == 3) counted(bytes, pixels, 3, counts);
    else counted(bytes, pixels, 1, counts);
}

void fl_colour_autocontrast_table(const uint32_t counts[256], uint8_t table[256]) {
    int low = 0, high = 255;
    while (low < 255 && !counts[low]) low++;
    while (high > 0 && !counts[high]) high--;
    const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int i = 0; i < 256; i++) {
        const int value = (int)(i * scale + offset);
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

void fl_colour_equalize_table(const uint32_t counts[256], uint8_t table[256]) {
    int last = 255;
    while (last > 0 && !counts[last]) last--;
    uint64_t below = 0;
    for (int i = 0; i < last; i++) below += counts[i];
    const uint64_t by = below / 255;
    uint64_t n = by / 2;
    for (int i = 0; i < 256; n += counts[i++]) {
        const uint64_t value = by ? n / by : (uint64_t)i;
        table[i] = (uint8_t)(value > 255 ? 255 : value);
    }
}
