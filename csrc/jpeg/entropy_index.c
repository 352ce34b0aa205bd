#include "jpeg/entropy_index.h"

#include <string.h>

#include "common/bytes.h"

enum { VERSION = 1, FIRST_ROWS = 2 /* the other version */, HEADER = 10, ROWS = 4 /* bytes */ };
enum { POSITION_MOST = 40 /* bits */, DC_MOST = 17 };
static const uint32_t LAST = (uint32_t)1 << 31; /* in the number of rows */

static uint32_t unfold(uint64_t value) { return (uint32_t)(value >> 1) ^ (0u - (uint32_t)(value & 1)); }

static uint64_t fold(int value) {
    return value < 0 ? (uint64_t)(-(int64_t)value) * 2 - 1 : (uint64_t)value * 2;
}

static uint8_t width_of(uint64_t value) {
    uint8_t width = 0;
    for (; value; value >>= 1) width++;
    return width;
}

static uint64_t total(const uint8_t widths[4]) {
    return (uint64_t)widths[0] + widths[1] + widths[2] + widths[3];
}

/* Bits of all rows, the header not counted. No product here comes near 64 bits: an image has at most 2^14
 * MCUs a side. */
static uint64_t bits_of(const fl_jpeg_index *index) { return (uint64_t)index->row_bits * index->rows; }

static void measure(fl_jpeg_index *index) {
    index->row_bits = (uint32_t)(total(index->first) + (index->across - 1) * total(index->step));
}

bool fl_jpeg_index_open(fl_jpeg_index *index, const uint8_t *bytes, size_t size, uint32_t mcus_across,
                        uint32_t mcus_down) {
    if (size < HEADER || (bytes[0] != VERSION && bytes[0] != FIRST_ROWS) || bytes[1] == 0) return false;
    *index = (fl_jpeg_index){.bytes = bytes,
                             .size = size,
                             .every = bytes[1],
                             .across = (mcus_across - 1) / bytes[1] + 1,
                             .rows = mcus_down,
                             .header = HEADER,
                             .last = true};
    if (bytes[0] == FIRST_ROWS) {
        if (size < HEADER + ROWS) return false;
        const uint32_t told = fl_bytes_be32(bytes + HEADER);
        index->rows = told & ~LAST;
        index->last = (told & LAST) != 0;
        index->header = HEADER + ROWS;
        if (!index->rows || index->rows > mcus_down) return false;
    }
    memcpy(index->first, bytes + 2, 4);
    memcpy(index->step, bytes + 6, 4);
    for (int i = 0; i < 4; i++)
        if (index->first[i] > (i ? DC_MOST : POSITION_MOST) || index->step[i] > (i ? DC_MOST : POSITION_MOST))
            return false;
    measure(index);
    return size == index->header + (bits_of(index) + 7) / 8;
}

uint32_t fl_jpeg_index_rank(const uint8_t *bytes, size_t size) {
    if (size >= HEADER && bytes[0] == VERSION) return UINT32_MAX;
    return size >= HEADER + ROWS && bytes[0] == FIRST_ROWS ? fl_bytes_be32(bytes + HEADER) : 0;
}

/* A number of at most 40 bits. */
static uint64_t take(fl_jpeg_cursor *c, unsigned width) {
    const fl_jpeg_index *index = c->index;
    const size_t byte = (size_t)(c->at / 8);
    uint64_t bits = 0;
    if (!width) return 0;
    if (byte + 8 <= index->size) {
        bits = fl_bytes_be64(index->bytes + byte);
    } else {
        for (size_t i = byte; i < index->size; i++)
            bits |= (uint64_t)index->bytes[i] << (56 - 8 * (i - byte));
    }
    bits = bits << c->at % 8 >> (64 - width);
    c->at += width;
    return bits;
}

fl_jpeg_cursor fl_jpeg_index_row(const fl_jpeg_index *index, uint32_t row) {
    fl_jpeg_cursor c = {.index = index, .at = (uint64_t)index->header * 8 + (uint64_t)row * index->row_bits};
    c.mark.bit = take(&c, index->first[0]);
    for (int i = 0; i < 3; i++) c.mark.dc[i] = (int16_t)unfold(take(&c, index->first[i + 1]));
    return c;
}

bool fl_jpeg_index_next(fl_jpeg_cursor *c) {
    const fl_jpeg_index *index = c->index;
    if (c->column / index->every + 1 >= index->across) return false;
    c->column += index->every;
    c->mark.bit += take(c, index->step[0]);
    for (int i = 0; i < 3; i++)
        c->mark.dc[i] = (int16_t)((uint32_t)c->mark.dc[i] + unfold(take(c, index->step[i + 1])));
    return true;
}

/* ---- writing
 * ---------------------------------------------------------------------------------------------------- */

/* A mark as four numbers: itself, or the step to it from the one before it in its row. */
static void numbers(const fl_jpeg_mark *mark, const fl_jpeg_mark *before, uint64_t out[4]) {
    out[0] = mark->bit - (before ? before->bit : 0);
    for (int i = 0; i < 3; i++) out[i + 1] = fold(mark->dc[i] - (before ? before->dc[i] : 0));
}

static void put(uint8_t *out, uint64_t *at, uint64_t value, unsigned width) {
    for (unsigned left = width; left;) {
        const unsigned room = 8 - (unsigned)(*at % 8), now = left < room ? left : room;
        out[*at / 8] |= (uint8_t)((value >> (left - now) & ((1u << now) - 1)) << (room - now));
        left -= now;
        *at += now;
    }
}

static size_t write_index(const fl_jpeg_mark *marks, uint32_t every, uint32_t across, uint32_t rows,
                          const uint32_t *told, uint32_t thin, uint8_t *out) {
    fl_jpeg_index index = {.every = every * thin,
                           .across = (across - 1) / thin + 1,
                           .rows = rows,
                           .header = told ? HEADER + ROWS : HEADER};
    if (index.every > UINT8_MAX) return 0;
    uint64_t most[2][4] = {{0}}, n[4];
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < across; i += thin) {
            const fl_jpeg_mark *mark = marks + (size_t)row * across + i;
            numbers(mark, i ? mark - thin : NULL, n);
            for (int j = 0; j < 4; j++) most[i > 0][j] |= n[j];
        }
    for (int j = 0; j < 4; j++) index.first[j] = width_of(most[0][j]), index.step[j] = width_of(most[1][j]);
    measure(&index);
    const size_t size = (size_t)(index.header + (bits_of(&index) + 7) / 8);
    if (index.first[0] > POSITION_MOST) return 0; /* no step is larger */
    if (!out) return size;
    memset(out, 0, size);
    out[0] = told ? FIRST_ROWS : VERSION, out[1] = (uint8_t)index.every;
    memcpy(out + 2, index.first, 4);
    memcpy(out + 6, index.step, 4);
    uint64_t at = HEADER * 8;
    if (told) put(out, &at, *told, ROWS * 8);
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t i = 0; i < across; i += thin) {
            const fl_jpeg_mark *mark = marks + (size_t)row * across + i;
            numbers(mark, i ? mark - thin : NULL, n);
            for (int j = 0; j < 4; j++) put(out, &at, n[j], i ? index.step[j] : index.first[j]);
        }
    return size;
}

size_t fl_jpeg_index_write(const fl_jpeg_mark *marks, uint32_t every, uint32_t across, uint32_t rows,
                           uint32_t thin, uint8_t *out) {
    return write_index(marks, every, across, rows, NULL, thin, out);
}

size_t fl_jpeg_index_write_first(const fl_jpeg_mark *marks, uint32_t every, uint32_t across, uint32_t rows,
                                 bool last, uint32_t thin, uint8_t *out) {
    const uint32_t told = rows | (last ? LAST : 0);
    return rows ? write_index(marks, every, across, rows, &told, thin, out) : 0;
}
