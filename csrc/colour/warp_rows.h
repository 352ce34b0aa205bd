/* colour/warp_rows: warp.c's rows of interpolated pixels, for one instruction set. Included once for each, with
 *
 * ROWS(name)             the name of a function of this set
 * ROWS_TARGET            the attribute of its functions
 * ROWS_WIDE              pixels that are worked on together
 * ROWS_FLOOR(v)          a vector of so many doubles, rounded down
 * ROWS_DOUBLES(v), ROWS_INTS(v) so many int32 as doubles, and doubles, cut off, as int32
 * ROWS_GATHER(s, at, out) the pixel at each of so many offsets, and any byte behind it
 * ROWS_BITS(v)           a bit for each of so many masks
 * ROWS_CHANNEL(words, c) byte c of so many words
 * ROWS_STORE(to, words)  the first three bytes of so many words
 * ROWS_COLOURS           pixels whose three channels are worked on together; or it is not defined
 * ROWS_NEIGHBOURS(from, v) of so many pixels four neighbours in a row, from 16 bytes each: 2^52 and a channel
 * ROWS_SPREAD(from, v)    so many numbers, each for the channels of its pixel
 * ROWS_WORDS(v, to)       the channels as bytes of so many words
 *
 * and empty without them. */

#if defined(ROWS)
#define ROWS_ALL ((1u << ROWS_WIDE) - 1)

typedef double ROWS(doubles) __attribute__((vector_size(8 * ROWS_WIDE)));
typedef int64_t ROWS(longs) __attribute__((vector_size(8 * ROWS_WIDE)));
typedef int32_t ROWS(ints) __attribute__((vector_size(4 * ROWS_WIDE)));
typedef uint32_t ROWS(words) __attribute__((vector_size(4 * ROWS_WIDE)));

/* Of a coordinate, less half a pixel: its whole part, rounded down, and the rest; of NaN 0 and NaN, whose pixels
 * become 0; of one outside of the image, 0. */
ROWS_TARGET FL_INLINE void ROWS(cut)(const ROWS(doubles) * at, const ROWS(longs) * outside, int32_t *whole,
                                     double *part) {
    const ROWS(doubles) moved = (ROWS(doubles))((ROWS(longs)) * at & ~*outside) - 0.5;
    const ROWS(doubles) down = ROWS_FLOOR(moved), rest = moved - down;
    const ROWS(doubles) number = (ROWS(doubles))((ROWS(longs))down & (ROWS(longs))(down == down));
    const ROWS(ints) as_ints = ROWS_INTS(number);
    memcpy(whole, &as_ints, sizeof as_ints);
    memcpy(part, &rest, sizeof rest);
}

/* Places of a chunk's pixels of row y from column x on; `width` and `height` as doubles. NaN, of a perspective's
 * horizon, is inside: Pillow asks what is outside. */
ROWS_TARGET static void ROWS(mapped)(const fl_colour_map *map, bool cubes, uint32_t x, uint32_t y,
                                     const source *s, places *out) {
    const double c0 = map->c[0], c1 = map->c[1], c2 = map->c[2], c3 = map->c[3], c4 = map->c[4],
                 c5 = map->c[5], c6 = map->c[6], c7 = map->c[7], yin = y + 0.5, width = s->width,
                 height = s->height;
    int32_t column[CHUNK], row[CHUNK];
    ROWS(doubles) xin = {0};
    for (uint32_t k = 0; k < ROWS_WIDE; k++) xin[k] = (double)(x + k) + 0.5;
    out->inside = 0;
    for (uint32_t i = 0; i < CHUNK; i += ROWS_WIDE, xin += (double)ROWS_WIDE) {
        ROWS(doubles) u = c0 * xin + c1 * yin + c2, v = c3 * xin + c4 * yin + c5;
        if (map->perspective) {
            const ROWS(doubles) depth = c6 * xin + c7 * yin + 1.0;
            u = u / depth;
            v = v / depth;
        }
        const ROWS(longs) outside = (ROWS(longs))(u < 0.0) | (ROWS(longs))(u >= width) |
                                    (ROWS(longs))(v < 0.0) | (ROWS(longs))(v >= height);
        ROWS(cut)(&u, &outside, column + i, out->dx + i);
        ROWS(cut)(&v, &outside, row + i, out->dy + i);
        out->inside |= (~ROWS_BITS(outside) & ROWS_ALL) << i;
    }
    const int first = cubes ? 0 : 1, beyond = cubes ? 4 : 3;
    for (int k = first; k < beyond; k++)
        for (int i = 0; i < CHUNK; i++) {
            out->x[k][i] = kept(column[i] + k - 1, s->width - 1) * s->step;
            out->y[k][i] = kept(row[i] + k - 1, s->height - 1) * s->row;
        }
    int32_t most = 0;
    for (int i = 0; i < CHUNK; i++) {
        const int32_t at = out->x[beyond - 1][i] + out->y[beyond - 1][i];
        most = at > most ? at : most;
    }
    out->last = most > s->last;
}

ROWS_TARGET FL_INLINE void ROWS(between)(const ROWS(doubles) v[2], const ROWS(doubles) * part,
                                         ROWS(doubles) * out) {
    *out = v[0] + (v[1] - v[0]) * *part;
}

ROWS_TARGET FL_INLINE void ROWS(cubic)(const ROWS(doubles) v[4], const ROWS(doubles) * d,
                                       ROWS(doubles) * out) {
    const ROWS(doubles) p2 = -v[0] + v[2], p3 = 2 * (v[0] - v[1]) + v[2] - v[3],
                        p4 = -v[0] + v[1] - v[2] + v[3];
    *out = v[1] + *d * (p2 + *d * (p3 + *d * p4));
}

ROWS_TARGET FL_INLINE void ROWS(cut_off)(ROWS(doubles) * v) {
    const ROWS(doubles) most = *v * 0.0 + 255.0;
    const ROWS(doubles) above = (ROWS(doubles))((ROWS(longs)) * v & (ROWS(longs))(*v > 0.0));
    const ROWS(longs) over = (ROWS(longs))(above > most);
    *v = (ROWS(doubles))(((ROWS(longs))most & over) | ((ROWS(longs))above & ~over));
}

/* What is at a place of each of the pixels from i on. */
ROWS_TARGET FL_INLINE void ROWS(gathered)(const source *s, const int32_t *rows, const int32_t *columns,
                                          ROWS(words) * out) {
    ROWS(ints) x, y;
    memcpy(&x, columns, sizeof x);
    memcpy(&y, rows, sizeof y);
    const ROWS(ints) at = x + y;
    ROWS_GATHER(s, at, out);
}

/* Pixels i to i + ROWS_WIDE of a chunk, their channels in the bytes of words, which come as 0. */
ROWS_TARGET FL_INLINE void ROWS(interpolated)(const source *s, const places *p, uint32_t i, bool cubes,
                                              int channels, ROWS(words) * out) {
    const int first = cubes ? 0 : 1, count = cubes ? 4 : 2;
    ROWS(words) found[4][4];
    for (int k = 0; k < count; k++)
        for (int j = 0; j < count; j++)
            ROWS(gathered)(s, p->y[first + k] + i, p->x[first + j] + i, &found[k][j]);
    ROWS(doubles) dx, dy;
    memcpy(&dx, p->dx + i, sizeof dx);
    memcpy(&dy, p->dy + i, sizeof dy);
    for (int c = 0; c < channels; c++) {
        ROWS(doubles) rows[4], made;
        for (int k = 0; k < count; k++) {
            ROWS(doubles) v[4];
            for (int j = 0; j < count; j++) {
                const ROWS(words) bytes = ROWS_CHANNEL(found[k][j], c);
                v[j] = ROWS_DOUBLES(bytes);
            }
            if (cubes) ROWS(cubic)(v, &dx, rows + k);
            else ROWS(between)(v, &dx, rows + k);
        }
        if (cubes) {
            ROWS(cubic)(rows, &dy, &made);
            ROWS(cut_off)(&made);
        } else ROWS(between)(rows, &dy, &made);
        const ROWS(words) bytes = (ROWS(words))ROWS_INTS(made) << 8 * c;
        *out |= bytes;
    }
}

/* The first `count` pixels of a chunk. */
ROWS_TARGET FL_INLINE void ROWS(chunk)(const source *s, const places *p, uint32_t count, bool cubes,
                                       int channels, uint8_t *to) {
    for (uint32_t i = 0; i < count; i += ROWS_WIDE, to += ROWS_WIDE * channels) {
        const uint32_t inside = p->inside >> i & ROWS_ALL;
        if (!inside) continue;
        ROWS(words) bytes = {0};
        ROWS(interpolated)(s, p, i, cubes, channels, &bytes);
        if (channels == 3 && inside == ROWS_ALL && i + ROWS_WIDE <= count) {
            ROWS_STORE(to, bytes);
            continue;
        }
        uint32_t each[ROWS_WIDE];
        memcpy(each, &bytes, sizeof each);
        for (uint32_t k = 0; k < ROWS_WIDE && i + k < count; k++)
            if (inside >> k & 1) memcpy(to + k * (uint32_t)channels, each + k, (size_t)channels);
    }
}

#if defined(ROWS_COLOURS)
typedef double ROWS(colour) __attribute__((vector_size(32 * ROWS_COLOURS)));
typedef int64_t ROWS(mask) __attribute__((vector_size(32 * ROWS_COLOURS)));

/* Between four neighbours in a row, which come as 2^52 and a byte: what is added up of bytes is exact in any
 * order. */
ROWS_TARGET FL_INLINE void ROWS(cubic_bytes)(const uint8_t *const *from, const ROWS(colour) * d,
                                             ROWS(colour) * out) {
    ROWS(colour) v[4];
    ROWS_NEIGHBOURS(from, v);
    const ROWS(colour) left = v[0] - v[1], right = v[2] - v[3], p2 = v[2] - v[0], less = left + right,
                       p3 = left + less;
    *out = (v[1] - 0x1p52) + *d * (p2 + *d * (p3 - *d * less));
}

/* Where the sixteen neighbours of a pixel lie: in each row twelve of 16 bytes, in the image, or else, at its
 * edges, in `room`. */
ROWS_TARGET FL_INLINE void ROWS(neighbours)(const source *s, const places *p, uint32_t i, uint8_t (*room)[16],
                                            const uint8_t **from) {
    const int32_t left = p->x[0][i];
    if (__builtin_expect(p->x[3][i] - left == 9 && p->y[3][i] + left <= s->last - 12, true)) {
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) from[k * ROWS_COLOURS] =
            s->pixels + left + p->y[k][i];
        return;
    }
    for (int k = 0; k < 4; k++) {
        memset(room[k], 0, 16);
        for (int j = 0; j < 4; j++) memcpy(room[k] + 3 * j, s->pixels + p->y[k][i] + p->x[j][i], 3);
        from[k * ROWS_COLOURS] = room[k];
    }
}

/* Between the four rows, as bytes of words. */
ROWS_TARGET FL_INLINE void ROWS(cubic_column)(const ROWS(colour) v[4], const ROWS(colour) * d, uint32_t *to) {
    const ROWS(colour) p2 = v[2] - v[0], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = v[1] - v[0] - v[2] + v[3],
                       none = {0}, most = none + 255.0;
    ROWS(colour) made = v[1] + *d * (p2 + *d * (p3 + *d * p4));
    made = (ROWS(colour))((ROWS(mask))made & (ROWS(mask))(made > none));
    const ROWS(mask) over = (ROWS(mask))(made > most);
    made = (ROWS(colour))(((ROWS(mask))most & over) | ((ROWS(mask))made & ~over));
    ROWS_WORDS(made, to);
}

/* Between the columns of pixels i to i + ROWS_COLOURS, in each of four rows. */
ROWS_TARGET FL_INLINE void ROWS(cubic_rows)(const source *s, const places *p, uint32_t i, ROWS(colour) v[4]) {
    uint8_t room[ROWS_COLOURS][4][16];
    const uint8_t *from[4 * ROWS_COLOURS];
    ROWS(colour) d;
    _Pragma("GCC unroll 2") for (uint32_t n = 0; n < ROWS_COLOURS; n++)
        ROWS(neighbours)(s, p, i + n, room[n], from + n);
    ROWS_SPREAD(p->dx + i, d);
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) ROWS(cubic_bytes)(from + k * ROWS_COLOURS, &d, v + k);
}

/* All channels of a pixel, or of two, together; some pixels between columns, then the same between rows, since
 * no processor looks as far ahead as the end of one. */
ROWS_TARGET FL_INLINE void ROWS(cubic_chunk)(const source *s, const places *p, uint32_t count, uint8_t *to) {
    uint32_t words[CHUNK], i;
    for (uint32_t first = 0; first < count; first += TOGETHER) {
        ROWS(colour) v[TOGETHER / ROWS_COLOURS][4], d;
        for (i = 0; i < TOGETHER; i += ROWS_COLOURS) ROWS(cubic_rows)(s, p, first + i, v[i / ROWS_COLOURS]);
        for (i = 0; i < TOGETHER; i += ROWS_COLOURS) {
            ROWS_SPREAD(p->dy + first + i, d);
            ROWS(cubic_column)(v[i / ROWS_COLOURS], &d, words + first + i);
        }
    }
    i = 0;
    if (p->inside == UINT32_MAX)
        for (; i + 1 < count; i++) memcpy(to + 3 * i, words + i, 4);
    for (; i < count; i++)
        if (p->inside >> i & 1) memcpy(to + 3 * i, words + i, 3);
}
#endif

/* With what the compiler is to know. */
ROWS_TARGET static void ROWS(pixels)(const source *s, const places *p, uint32_t count, bool cubes,
                                     uint8_t *to) {
    if (s->step == 1) ROWS(chunk)(s, p, count, cubes, 1, to);
#if defined(ROWS_COLOURS)
    else if (cubes) ROWS(cubic_chunk)(s, p, count, to);
#else
    else if (cubes) ROWS(chunk)(s, p, count, true, 3, to);
#endif
    else ROWS(chunk)(s, p, count, false, 3, to);
}

ROWS_TARGET static void ROWS(warp)(const source *s, const fl_colour_map *map, fl_colour_canvas out,
                                   bool cubes) {
    places p;
    const intptr_t ahead = below(s, map);
    for (uint32_t y = 0; y < out.height; y++)
        for (uint32_t x = 0; x < out.width; x += CHUNK) {
            const uint32_t count = out.width - x < CHUNK ? out.width - x : CHUNK;
            uint8_t *to = out.pixels + ((size_t)y * out.width + x) * (size_t)s->step;
            ROWS(mapped)(map, cubes, x, y, s, &p);
            if (!p.inside) continue;
            for (int i = 0; i < CHUNK; i += 4) fetch(s, p.x[1][i] + p.y[1][i] + ahead);
            if (p.last) plain_pixels(s, &p, count, cubes, to);
            else ROWS(pixels)(s, &p, count, cubes, to);
        }
}

#undef ROWS
#undef ROWS_TARGET
#undef ROWS_WIDE
#undef ROWS_FLOOR
#undef ROWS_GATHER
#undef ROWS_BITS
#undef ROWS_CHANNEL
#undef ROWS_STORE
#undef ROWS_COLOURS
#undef ROWS_NEIGHBOURS
#undef ROWS_SPREAD
#undef ROWS_WORDS
#undef ROWS_DOUBLES
#undef ROWS_INTS
#undef ROWS_ALL
#endif
