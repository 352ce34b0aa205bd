#include "engine/rooms.h"

#include <string.h>

void fl_rooms_compact(const fl_item *item, const fl_room *room, uint32_t rows) {
    if (item->kind == FL_ITEM_POLYGONS) return;
    uint64_t to = room->start[0];
    for (uint32_t i = 0; i < rows; i++) {
        const fl_sink frame = fl_target_sink(&room->target, i);
        const uint64_t from = room->start[i],
                       unit = item->kind == FL_ITEM_INSTANCES ? fl_sink_plane(&frame) : item->unit;
        const uint64_t size = room->kept[i] * unit;
        if (size && to != from) memmove(room->data + to, room->data + from, (size_t)size);
        room->start[i] = to;
        to += size;
    }
    room->start[rows] = to;
}

/* The frames of a row are moved together, and so are the rows: each has room for as many frames as before. */
static void narrow_instances(fl_room *room, uint32_t rows, uint32_t width, uint32_t height) {
    fl_sink *frame = &room->target.sink;
    const size_t from_pitch = fl_sink_pitch(frame), from_plane = fl_sink_plane(frame);
    uint64_t first = room->start[0];
    uint8_t *to = room->data + first;
    for (uint32_t i = 0; i < rows; i++) {
        const uint64_t end = room->start[i + 1];
        room->start[i] = (uint64_t)(to - room->data);
        for (; from_plane && end - first >= from_plane; first += from_plane)
            to = fl_target_move_plane(room->data + first, from_pitch, to, width, height);
        first = end;
    }
    room->start[rows] = (uint64_t)(to - room->data);
    frame->width = frame->pitch = width, frame->height = height, frame->plane = (size_t)width * height;
    room->target.row_bytes = frame->plane;
}

void fl_rooms_narrow(const fl_item *item, fl_room *room, uint32_t rows, const fl_target *image) {
    if (!image->bounded || !image->places || !room->target.sink.pitch) return;
    if (item->kind == FL_ITEM_MASK)
        fl_target_narrow(&room->target, rows, image->sink.width, image->sink.height);
    if (item->kind == FL_ITEM_INSTANCES) narrow_instances(room, rows, image->sink.width, image->sink.height);
}
