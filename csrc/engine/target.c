#include "engine/target.h"

#include <string.h>

/* Most rows of a batch: sums of so many stay far below SIZE_MAX. */
static const size_t BYTES_MAX = (size_t)1 << 56;

static fl_code bytes_of(const fl_target *target, uint64_t width, uint64_t height, size_t *bytes,
                        fl_error *err) {
    if (width > FL_IMAGE_SIDE_MAX || height > FL_IMAGE_SIDE_MAX)
        return fl_fail(err, FL_EARG, "an image of %llu x %llu pixels in a batch", (unsigned long long)width,
                       (unsigned long long)height);
    *bytes = width * height * target->unit * target->planes;
    return FL_OK;
}

static fl_code too_many(uint32_t rows, fl_error *err) {
    return fl_fail(err, FL_EARG, "a batch of %u images needs more bytes than there are addresses", rows);
}

/* The sides of a frame for the rows. */
static void frame_of(const fl_target *target, uint32_t rows, uint32_t multiple, uint64_t *width,
                     uint64_t *height) {
    uint64_t w = 0, h = 0;
    for (uint32_t i = 0; i < rows; i++) {
        if (target->places[i].width > w) w = target->places[i].width;
        if (target->places[i].height > h) h = target->places[i].height;
    }
    *width = (w + multiple - 1) / multiple * multiple, *height = (h + multiple - 1) / multiple * multiple;
}

static void set_frame(fl_target *target, uint32_t rows, uint64_t width, uint64_t height, size_t row_bytes) {
    target->row_bytes = row_bytes;
    target->sink.width = target->sink.pitch = (uint32_t)width, target->sink.height = (uint32_t)height;
    target->sink.plane = (size_t)(width * height);
    for (uint32_t i = 0; i < rows; i++)
        target->places[i].at = row_bytes * i, target->places[i].bytes = row_bytes;
}

static fl_code lay_frames(fl_target *target, uint32_t rows, uint32_t multiple, size_t *bytes, fl_error *err) {
    uint64_t width, height;
    size_t row_bytes = 0;
    frame_of(target, rows, multiple, &width, &height);
    fl_code code = bytes_of(target, width, height, &row_bytes, err);
    if (code) return code;
    if (row_bytes > BYTES_MAX / rows) return too_many(rows, err);
    set_frame(target, rows, width, height, row_bytes);
    *bytes = target->row_bytes * rows;
    return FL_OK;
}

/* Each row from a multiple of `step` bytes on. */
static fl_code lay_list(fl_target *target, uint32_t rows, size_t step, size_t *bytes, fl_error *err) {
    target->sink.width = target->sink.height = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < rows; i++) {
        fl_place *place = &target->places[i];
        fl_code code = bytes_of(target, place->width, place->height, &place->bytes, err);
        if (code) return code;
        if (place->bytes > BYTES_MAX - *bytes) return too_many(rows, err);
        place->at = *bytes;
        *bytes += (place->bytes + step - 1) / step * step;
    }
    return FL_OK;
}

fl_code fl_target_lay(fl_target *target, uint32_t rows, fl_lay lay, uint32_t multiple, size_t *bytes,
                      fl_error *err) {
    *bytes = 0;
    if (!rows || !multiple || !target->unit || !target->planes || (lay != FL_LAY_EQUAL && !target->places))
        return fl_fail(err, FL_EARG, "%u rows of %u planes, %u bytes a pixel, to multiples of %u", rows,
                       target->planes, target->unit, multiple);
    if (lay == FL_LAY_PADDED) return lay_frames(target, rows, multiple, bytes, err);
    /* On a cache line of its own: two threads may write neighbours. */
    if (lay == FL_LAY_LIST) return lay_list(target, rows, 64, bytes, err);
    if (lay == FL_LAY_FLAT) return lay_list(target, rows, 1, bytes, err);
    const fl_sink *sink = &target->sink;
    fl_code code = bytes_of(target, sink->width, sink->height, &target->row_bytes, err);
    if (code) return code;
    if (target->row_bytes > BYTES_MAX / rows) return too_many(rows, err);
    *bytes = target->row_bytes * rows;
    return FL_OK;
}

fl_code fl_target_fit(const fl_target *target, uint32_t row, uint32_t width, uint32_t height, fl_error *err) {
    fl_place *place = target->places ? &target->places[row] : NULL;
    if (place && target->bounded && width && height) {
        const bool framed = target->sink.pitch != 0;
        const bool fits = framed ? width <= target->sink.width && height <= target->sink.height
                                 : (size_t)width * height <= place->bytes / target->unit / target->planes;
        if (fits) {
            place->width = width, place->height = height;
            return FL_OK;
        }
    } else if (width == (place ? place->width : target->sink.width) &&
               height == (place ? place->height : target->sink.height)) {
        return FL_OK;
    }
    return fl_fail(err, FL_ERECORD, "its image is of another size than its columns say");
}

void fl_target_clear(const fl_target *target, uint32_t row) {
    fl_place *place = target->places ? &target->places[row] : NULL;
    uint8_t *data = (uint8_t *)target->sink.data + (place ? place->at : target->row_bytes * row);
    memset(data, 0, place ? place->bytes : target->row_bytes);
    if (place && target->bounded) place->width = place->height = 0;
}

void fl_target_clear_margin(const fl_target *target, uint32_t row) {
    const size_t pitch = (size_t)target->sink.pitch * target->unit;
    if (!target->places || !pitch) return;
    const fl_place *place = &target->places[row];
    const size_t used = (size_t)place->width * target->unit;
    uint8_t *data = (uint8_t *)target->sink.data + place->at;
    for (uint32_t p = 0; p < target->planes; p++, data += pitch * target->sink.height) {
        for (uint32_t y = 0; used < pitch && y < place->height; y++)
            memset(data + y * pitch + used, 0, pitch - used);
        memset(data + place->height * pitch, 0, (target->sink.height - place->height) * pitch);
    }
}

uint8_t *fl_target_move_plane(const uint8_t *from, size_t from_pitch, uint8_t *to, size_t to_pitch,
                              size_t lines) {
    for (size_t y = 0; y < lines; y++, to += to_pitch) memmove(to, from + y * from_pitch, to_pitch);
    return to;
}

void fl_target_narrow(fl_target *target, uint32_t rows, uint32_t width, uint32_t height) {
    const size_t from_pitch = (size_t)target->sink.pitch * target->unit,
                 from_plane = from_pitch * target->sink.height;
    const size_t pitch = (size_t)width * target->unit;
    uint8_t *data = target->sink.data, *to = data;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t p = 0; p < target->planes; p++)
            to = fl_target_move_plane(data + target->row_bytes * i + from_plane * p, from_pitch, to, pitch,
                                      height);
    set_frame(target, rows, width, height, pitch * height * target->planes);
}

void fl_target_tighten(fl_target *target, uint32_t rows, uint32_t multiple) {
    if (!target->bounded || !target->places || !target->sink.pitch) return;
    uint64_t width, height;
    frame_of(target, rows, multiple, &width, &height);
    fl_target_narrow(target, rows, (uint32_t)width, (uint32_t)height);
}
