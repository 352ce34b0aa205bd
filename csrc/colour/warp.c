/* NOTE [ warp: Pillow's doubles ]
 *
 * Pillow's generic transform maps the middle of each pixel in double, and interpolates its neighbours in double:
 * here several pixels at a time, by vectors, in the same operations and order, without contraction. A nearest
 * neighbour is found otherwise, see nearest.c. */
#include "colour/warp.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "colour/nearest.h"
#include "colour/vectors.h"
#include "common/cpu.h"

enum {
    CHUNK = 32,    /* pixels whose coordinates are computed together */
    TOGETHER = 8,  /* pixels that are interpolated together */
    AHEAD = 8,     /* rows of the result for which the image's bytes are fetched early */
};

typedef struct source {
    const uint8_t *pixels;
    int32_t last; /* offset of the last byte from which 4 can be read */
    int32_t width, height, step, row;
} source;

/* Of each pixel of a chunk: offsets of the columns and rows of its neighbours, none beyond an edge, and how far it
 * is past the second of four, which is the first of two. */
typedef struct places {
    double dx[CHUNK], dy[CHUNK];
    int32_t x[4][CHUNK], y[4][CHUNK];
    uint32_t inside; /* a bit each */
    bool last;       /* one of them is so near to the image's end that plain C reads it */
} places;

FL_INLINE int32_t kept(int32_t at, int32_t most) { return at < 0 ? 0 : at > most ? most : at; }

/* How far from a pixel's neighbours those of the pixel AHEAD rows below it are, in bytes, where that is the same
 * for all of them; else 0. */
static intptr_t below(const source *s, const fl_colour_map *map) {
    const double x = AHEAD * map->c[1], y = AHEAD * map->c[4];
    if (map->perspective || !(fabs(x) < 1e4 && fabs(y) < 1e4)) return 0;
    return (intptr_t)x * s->step + (intptr_t)y * s->row;
}

/* Asks for a line of the cache: no processor foresees where a rotated row goes on, and images that come from
 * memory took twice the time. The place may lie outside of the image. */
FL_INLINE void fetch(const source *s, intptr_t at) {
    __builtin_prefetch((const void *)((uintptr_t)s->pixels + (uintptr_t)at));
}

/* The bytes of a pixel, and no other. */
FL_INLINE uint32_t word_of(const source *s, int32_t at) {
    const uint8_t *from = s->pixels + at;
    return s->step == 1 ? *from : (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16;
}

/* NaN, which C leaves open, as 0. */
FL_INLINE int32_t integer(double number) { return number == number ? (int32_t)number : 0; }

#define ROWS(name) plain_##name
#define ROWS_TARGET FL_PLAIN
#define ROWS_WIDE 2
#define ROWS_FLOOR(v) ((plain_doubles){floor((v)[0]), floor((v)[1])})
#define ROWS_GATHER(s, at, out) (*(out) = (plain_words){word_of(s, (at)[0]), word_of(s, (at)[1])})
#define ROWS_BITS(v) ((uint32_t)((v)[0] & 1) | (uint32_t)((v)[1] & 2))
#define ROWS_CHANNEL(words, c) ((words) >> 8 * (c) & 255)
#define ROWS_STORE(to, words)                                                                                \
    do {                                                                                                     \
        memcpy(to, &(words), 3);                                                                             \
        memcpy((to) + 3, (const uint8_t *)&(words) + 4, 3);                                                  \
    } while (0)
#define ROWS_DOUBLES(v) ((plain_doubles){(double)(int32_t)(v)[0], (double)(int32_t)(v)[1]})
#define ROWS_INTS(v) ((plain_ints){integer((v)[0]), integer((v)[1])})
#include "colour/warp_rows.h"

#if defined(__x86_64__)
/* For each of four words its byte c; their first three bytes, close together. */
#define ONE_BYTE(c) _mm_setr_epi8(c, -1, -1, -1, 4 + c, -1, -1, -1, 8 + c, -1, -1, -1, 12 + c, -1, -1, -1)

#define THREE_BYTES _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)

/* Three bytes from `at` on as doubles, with bytes 14 and 15 as their exponent: 2^52 and each. */
#define ONE_COLOUR(at)                                                                                       \
    _mm256_setr_epi8(at, -1, -1, -1, -1, -1, 14, 15, at + 1, -1, -1, -1, -1, -1, 14, 15, at + 2, -1, -1, -1, \
                     -1, -1, 14, 15, -1, -1, -1, -1, -1, -1, 14, 15)
#define EXPONENT 0x4330
#define CLOSE_COLOUR _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)
#define BYTES_OF(from) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(from)))

#define ROWS(name) avx2_##name
#define ROWS_TARGET FL_AVX2
#define ROWS_WIDE 4
#define ROWS_FLOOR(v) ((avx2_doubles)_mm256_floor_pd((__m256d)(v)))
#define ROWS_GATHER(s, at, out)                                                                              \
    (*(out) = (avx2_words)_mm_i32gather_epi32((const int *)(const void *)(s)->pixels, (__m128i)(at), 1))
#define ROWS_BITS(v) ((uint32_t)_mm256_movemask_pd((__m256d)(v)))
#define ROWS_CHANNEL(words, c)                                                                               \
    ((avx2_words)((c) ? _mm_shuffle_epi8((__m128i)(words), ONE_BYTE(c))                                      \
                      : _mm_and_si128((__m128i)(words), _mm_set1_epi32(255))))
#define ROWS_STORE(to, words)                                                                                \
    do {                                                                                                     \
        const __m128i close = _mm_shuffle_epi8((__m128i)(words), THREE_BYTES);                               \
        _mm_storel_epi64((__m128i *)(to), close);                                                            \
        _mm_storeu_si32((to) + 8, _mm_srli_si128(close, 8));                                                 \
    } while (0)
#define ROWS_COLOURS 1
#define ROWS_NEIGHBOURS(from, v)                                                                             \
    do {                                                                                                     \
        const __m256i bytes = _mm256_blend_epi16(BYTES_OF((from)[0]), _mm256_set1_epi16(EXPONENT), 0x80);    \
        (v)[0] = (avx2_colour)_mm256_shuffle_epi8(bytes, ONE_COLOUR(0));                                     \
        (v)[1] = (avx2_colour)_mm256_shuffle_epi8(bytes, ONE_COLOUR(3));                                     \
        (v)[2] = (avx2_colour)_mm256_shuffle_epi8(bytes, ONE_COLOUR(6));                                     \
        (v)[3] = (avx2_colour)_mm256_shuffle_epi8(bytes, ONE_COLOUR(9));                                     \
    } while (0)
#define ROWS_SPREAD(from, v) ((v) = (avx2_colour)_mm256_broadcast_sd(from))
#define ROWS_WORDS(v, to)                                                                                    \
    (*(to) = (uint32_t)_mm_cvtsi128_si32(_mm_shuffle_epi8(_mm256_cvttpd_epi32((__m256d)(v)), CLOSE_COLOUR)))
#define ROWS_DOUBLES(v) ((avx2_doubles)_mm256_cvtepi32_pd((__m128i)(v)))
#define ROWS_INTS(v) ((avx2_ints)_mm256_cvttpd_epi32((__m256d)(v)))
#include "colour/warp_rows.h"

#define ROWS(name) avx512_##name
#define ROWS_TARGET FL_AVX512
#define ROWS_WIDE 8
#define ROWS_FLOOR(v) ((avx512_doubles)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_NEG_INF))
#define ROWS_GATHER(s, at, out)                                                                              \
    (*(out) = (avx512_words)_mm256_i32gather_epi32((const int *)(const void *)(s)->pixels, (__m256i)(at), 1))
#define ROWS_BITS(v) ((uint32_t)_mm512_movepi64_mask((__m512i)(v)))
#define ROWS_CHANNEL(words, c)                                                                               \
    ((avx512_words)((c) ? _mm256_shuffle_epi8((__m256i)(words), _mm256_broadcastsi128_si256(ONE_BYTE(c)))    \
                        : _mm256_and_si256((__m256i)(words), _mm256_set1_epi32(255))))
#define ROWS_STORE(to, words)                                                                                \
    do {                                                                                                     \
        const __m256i close =                                                                                \
            _mm256_shuffle_epi8((__m256i)(words), _mm256_broadcastsi128_si256(THREE_BYTES));                 \
        _mm_mask_storeu_epi8(to, 0xfff, _mm256_castsi256_si128(close));                                      \
        _mm_mask_storeu_epi8((to) + 12, 0xfff, _mm256_extracti128_si256(close, 1));                          \
    } while (0)
#define ROWS_COLOURS 2
#define TWO_COLOURS(at) _mm512_broadcast_i64x4(ONE_COLOUR(at))
#define ROWS_NEIGHBOURS(from, v)                                                                             \
    do {                                                                                                     \
        const __m512i both =                                                                                 \
            _mm512_inserti64x4(_mm512_castsi256_si512(BYTES_OF((from)[0])), BYTES_OF((from)[1]), 1);         \
        const __m512i bytes = _mm512_mask_mov_epi16(both, 0x80808080, _mm512_set1_epi16(EXPONENT));          \
        (v)[0] = (avx512_colour)_mm512_shuffle_epi8(bytes, TWO_COLOURS(0));                                  \
        (v)[1] = (avx512_colour)_mm512_shuffle_epi8(bytes, TWO_COLOURS(3));                                  \
        (v)[2] = (avx512_colour)_mm512_shuffle_epi8(bytes, TWO_COLOURS(6));                                  \
        (v)[3] = (avx512_colour)_mm512_shuffle_epi8(bytes, TWO_COLOURS(9));                                  \
    } while (0)
#define ROWS_SPREAD(from, v)                                                                                 \
    ((v) = (avx512_colour)_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_broadcast_sd(from)),              \
                                             _mm256_broadcast_sd((from) + 1), 1))
#define ROWS_WORDS(v, to)                                                                                    \
    do {                                                                                                     \
        const __m256i close = _mm256_shuffle_epi8(_mm512_cvttpd_epi32((__m512d)(v)),                         \
                                                  _mm256_broadcastsi128_si256(CLOSE_COLOUR));                \
        (to)[0] = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(close));                                \
        (to)[1] = (uint32_t)_mm_cvtsi128_si32(_mm256_extracti128_si256(close, 1));                           \
    } while (0)
#define ROWS_DOUBLES(v) ((avx512_doubles)_mm512_cvtepi32_pd((__m256i)(v)))
#define ROWS_INTS(v) ((avx512_ints)_mm512_cvttpd_epi32((__m512d)(v)))
#include "colour/warp_rows.h"

#define WARP (fl_cpu_has(FL_CPU_AVX512) ? avx512_warp : fl_cpu_has(FL_CPU_AVX2) ? avx2_warp : plain_warp)
#else
#define WARP plain_warp
#endif

void fl_colour_warp(const uint8_t *image, uint32_t width, uint32_t height, uint32_t channels,
                    const fl_colour_map *map, fl_colour_filter filter, fl_colour_canvas out) {
    if (filter == FL_COLOUR_NEAREST) {
        fl_colour_nearest(image, width, height, channels, map, out);
        return;
    }
    const source s = {image,
                      (int32_t)(width * height * channels) - 4,
                      (int32_t)width,
                      (int32_t)height,
                      (int32_t)channels,
                      (int32_t)(width * channels)};
    WARP(&s, map, out, filter == FL_COLOUR_BICUBIC);
}
