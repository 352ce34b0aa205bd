#include "jpeg/entropy.h"

#include <stdlib.h>

#include "jpeg/entropy_walk.h"

struct fl_jpeg_entropy {
    fl_jpeg_tables tables;
    fl_jpeg_frame frame;
    fl_jpeg_walk_room room;
    fl_buffer marks; /* of fl_jpeg_mark */
    fl_buffer index;
};

fl_code fl_jpeg_entropy_create(fl_jpeg_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_jpeg_entropy_free(fl_jpeg_entropy *entropy) {
    if (!entropy) return;
    fl_jpeg_walk_free(&entropy->room);
    fl_buffer_free(&entropy->marks);
    fl_buffer_free(&entropy->index);
    free(entropy);
}

static bool walk(fl_jpeg_entropy *e, const uint8_t *bytes, size_t size, fl_jpeg_notes *notes) {
    const fl_jpeg_frame *f = &e->frame;
    fl_jpeg_mcu mcu = {.blocks = f->block_count};
    for (uint32_t i = 0; i < mcu.blocks; i++) {
        mcu.dc[i] = &e->tables.dc[f->block_dc[i]];
        mcu.ac[i] = &e->tables.ac[f->block_ac[i]];
        mcu.luma += f->block_component[i] == 0;
    }
    return fl_jpeg_walk_coded(&e->room, &mcu, f->mcus_across * f->mcus_down, f->interval, bytes + f->data,
                              bytes + size, notes);
}

bool fl_jpeg_entropy_sound(fl_jpeg_entropy *e, const uint8_t *bytes, size_t size) {
    return fl_jpeg_header_read(&e->tables, &e->frame, bytes, size) && walk(e, bytes, size, NULL);
}

/* The densest index of at most `most` bytes. */
static size_t write_index(fl_jpeg_entropy *e, uint32_t every, uint32_t across, size_t most) {
    for (uint32_t thin = 1; (uint64_t)every * thin <= UINT8_MAX; thin++) {
        const size_t size =
            fl_jpeg_index_write(e->marks.bytes, every, across, e->frame.mcus_down, thin, NULL);
        if (!size) return 0;
        if (size > most) continue;
        if (!fl_buffer_fit(&e->index, size, 1, FL_JPEG_WALK_RULE)) return 0;
        return fl_jpeg_index_write(e->marks.bytes, every, across, e->frame.mcus_down, thin, e->index.bytes);
    }
    return 0;
}

bool fl_jpeg_entropy_index(fl_jpeg_entropy *e, const uint8_t *bytes, size_t size, uint32_t every, size_t most,
                           const uint8_t **index, size_t *index_size) {
    const fl_jpeg_frame *f = &e->frame;
    *index_size = 0;
    if (!every || !fl_jpeg_header_read(&e->tables, &e->frame, bytes, size)) return false;
    const uint32_t across = (f->mcus_across - 1) / every + 1;
    if (f->mcus_across * f->mcus_down > FL_JPEG_NOTED_MOST || !fl_jpeg_header_usual(f))
        return walk(e, bytes, size, NULL);
    if (!fl_buffer_fit(&e->marks, (size_t)across * f->mcus_down, sizeof(fl_jpeg_mark), FL_JPEG_WALK_RULE))
        return false;
    fl_jpeg_notes notes = {.next = e->marks.bytes, .every = every, .across = f->mcus_across};
    if (!walk(e, bytes, size, &notes)) return false;
    if (notes.every) *index_size = write_index(e, every, across, most);
    *index = e->index.bytes;
    return true;
}
