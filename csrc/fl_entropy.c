/* fl_entropy.h by the parser of fl_scan.h and the walk of fl_entropy_walk.h. */
#include "fl_entropy.h"

#include <stdlib.h>

#include "fl_entropy_walk.h"

struct fl_entropy {
    fl_tables tables;
    fl_walk_room room;
};

fl_code fl_entropy_create(fl_entropy **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fl_fail(err, FL_ENOMEM, "%zu bytes for Huffman tables", sizeof **out);
    return FL_OK;
}

void fl_entropy_free(fl_entropy *entropy) {
    if (entropy) fl_walk_free(&entropy->room);
    free(entropy);
}

bool fl_entropy_sound(fl_entropy *e, const uint8_t *bytes, size_t size) {
    fl_frame f;
    if (!fl_scan_open(&e->tables, &f, bytes, size)) return false;
    fl_mcu mcu = {.blocks = f.block_count};
    for (uint32_t i = 0; i < mcu.blocks; i++) {
        mcu.dc[i] = &e->tables.dc[f.block_dc[i]];
        mcu.ac[i] = &e->tables.ac[f.block_ac[i]];
    }
    return fl_walk_scan(&e->room, &mcu, f.mcus_across * f.mcus_down, f.interval, bytes + f.data, bytes + size);
}
