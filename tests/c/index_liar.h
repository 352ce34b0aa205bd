/* Indices that lie: of the right size for their image, with marks that are wrong. For test_baseline.c and a
 * fuzz target. */
#ifndef INDEX_LIAR_H
#define INDEX_LIAR_H

#include <stdlib.h>

#include "check.h"
#include "draws.h"
#include "jpeg/entropy_index.h"

/* All marks of an index, row by row. */
static fl_jpeg_mark *marks_of(const fl_jpeg_index *index) {
    fl_jpeg_mark *marks = malloc((size_t)index->across * index->rows * sizeof *marks);
    for (uint32_t row = 0, i = 0; row < index->rows; row++) {
        fl_jpeg_cursor c = fl_jpeg_index_row(index, row);
        do marks[i++] = c.mark;
        while (fl_jpeg_index_next(&c));
        CHECK(i == (row + 1) * index->across);
    }
    return marks;
}

/* An index like this one with other marks, which it frees. */
static uint8_t *with_marks(const fl_jpeg_index *index, fl_jpeg_mark *marks, size_t *size) {
    *size = fl_jpeg_index_write(marks, index->every, index->across, index->rows, 1, NULL);
    uint8_t *out = malloc(*size);
    CHECK(*size && fl_jpeg_index_write(marks, index->every, index->across, index->rows, 1, out) == *size);
    free(marks);
    return out;
}

/* The same of some first rows alone. */
static uint8_t *with_first_marks(const fl_jpeg_index *index, fl_jpeg_mark *marks, size_t *size) {
    const uint32_t rows = 1 + below(index->rows);
    const bool last = below(2);
    *size = fl_jpeg_index_write_first(marks, index->every, index->across, rows, last, 1, NULL);
    uint8_t *out = malloc(*size);
    CHECK(*size &&
          fl_jpeg_index_write_first(marks, index->every, index->across, rows, last, 1, out) == *size);
    free(marks);
    return out;
}

/* An index of this image's size with some marks that are wrong. */
static uint8_t *lie(const uint8_t *bytes, size_t *size, uint32_t across, uint32_t down, size_t file_size) {
    fl_jpeg_index index;
    CHECK(fl_jpeg_index_open(&index, bytes, *size, across, down));
    const size_t count = (size_t)index.across * index.rows;
    fl_jpeg_mark *marks = marks_of(&index);
    for (uint32_t j = 0, lies = 1 + below(4); j < lies; j++) {
        fl_jpeg_mark *mark = &marks[below((uint32_t)count)];
        switch (below(5)) {
        case 0: mark->bit = ((uint64_t)noise() << 8 | noise() % 256) & ((1ull << 40) - 1); break;
        case 1: mark->bit = below(((uint32_t)file_size + 10) * 8); break;
        case 2: mark->bit ^= 1 + below(15); break;
        case 3: mark->dc[below(3)] = (int16_t)noise(); break;
        default: *mark = marks[below((uint32_t)count)];
        }
    }
    for (size_t i = 1; i < count; i++) /* a step back cannot be written */
        if (i % index.across && marks[i].bit < marks[i - 1].bit) marks[i].bit = marks[i - 1].bit;
    return below(3) ? with_marks(&index, marks, size) : with_first_marks(&index, marks, size);
}

#endif
