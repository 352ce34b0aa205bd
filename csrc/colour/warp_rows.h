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
 * ROWS_COLOURS(from, v)  four colours, three bytes each of 16, as vectors of four numbers; or it is not defined
 * ROWS_COLOUR(v), ROWS_NUMBERS(v) four numbers as doubles, and back
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
        out->inside |= (uint64_t)(~ROWS_BITS(outside) & ROWS_ALL) << i;
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
        const uint32_t inside = (uint32_t)(p->inside >> i) & ROWS_ALL;
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
typedef double ROWS(colour) __attribute__((vector_size(32)));
typedef int64_t ROWS(mask) __attribute__((vector_size(32)));
typedef int32_t ROWS(numbers) __attribute__((vector_size(16)));

/* Between four neighbours in a row: what is added up of bytes is exact in any order. */
ROWS_TARGET FL_INLINE void ROWS(cubic_bytes)(const uint8_t *from, double d, ROWS(colour) * out) {
    ROWS(numbers) v[4];
    ROWS_COLOURS(from, v);
    const ROWS(numbers) left = v[0] - v[1], right = v[2] - v[3], p2 = v[2] - v[0], p3 = left + left + right,
                        p4 = -(left + right);
    const ROWS(colour) c1 = ROWS_COLOUR(v[1]), c2 = ROWS_COLOUR(p2), c3 = ROWS_COLOUR(p3),
                       c4 = ROWS_COLOUR(p4);
    *out = c1 + d * (c2 + d * (c3 + d * c4));
}

/* A pixel's three channels together: four neighbours in a row lie in 16 bytes, but at the edges. */
ROWS_TARGET FL_INLINE uint32_t ROWS(cubic_colour)(const source *s, const places *p, uint32_t i) {
    const bool close = p->x[3][i] - p->x[0][i] == 9 && p->y[3][i] + p->x[0][i] <= s->last - 12;
    const double d = p->dy[i];
    ROWS(colour) v[4];
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
        uint8_t around[16];
        const uint8_t *row = s->pixels + p->y[k][i];
        if (!close) {
            memset(around + 12, 0, 4);
            for (int j = 0; j < 4; j++) memcpy(around + 3 * j, row + p->x[j][i], 3);
        }
        ROWS(cubic_bytes)(close ? row + p->x[0][i] : around, p->dx[i], v + k);
    }
    const ROWS(colour) p2 = v[2] - v[0], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = v[1] - v[0] - v[2] + v[3],
                       none = {0}, most = none + 255.0;
    ROWS(colour) made = v[1] + d * (p2 + d * (p3 + d * p4));
    made = (ROWS(colour))((ROWS(mask))made & (ROWS(mask))(made > none));
    const ROWS(mask) over = (ROWS(mask))(made > most);
    made = (ROWS(colour))(((ROWS(mask))most & over) | ((ROWS(mask))made & ~over));
    const ROWS(numbers) bytes = ROWS_NUMBERS(made);
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
}

ROWS_TARGET FL_INLINE void ROWS(cubic_chunk)(const source *s, const places *p, uint32_t count, uint8_t *to) {
    for (uint32_t i = 0; i < count; i++, to += 3)
        if (p->inside >> i & 1) {
            const uint32_t bytes = ROWS(cubic_colour)(s, p, i);
            memcpy(to, &bytes, 3);
        }
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
    for (uint32_t y = 0; y < out.height; y++)
        for (uint32_t x = 0; x < out.width; x += CHUNK) {
            const uint32_t count = out.width - x < CHUNK ? out.width - x : CHUNK;
            uint8_t *to = out.pixels + ((size_t)y * out.width + x) * (size_t)s->step;
            ROWS(mapped)(map, cubes, x, y, s, &p);
            if (!p.inside) continue;
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
#undef ROWS_COLOUR
#undef ROWS_NUMBERS
#undef ROWS_DOUBLES
#undef ROWS_INTS
#undef ROWS_ALL
#endif
