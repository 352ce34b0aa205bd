#include "engine/polygons.h"

#include <string.h>

#include "engine/objects.h"

/* Counts of the objects that are written, and of their parts and points. */
typedef struct counted {
    uint64_t objects, parts, points;
} counted;

static size_t bytes_of(const counted *of) {
    return (size_t)(4 + 4 * of->objects + 4 * of->parts + FL_POLYGONS_POINT * of->points);
}

/* One object: its parts begin at number `part` of all, its points at number `point`. */
typedef struct object {
    uint64_t part, point, parts, points;
} object;

static object next_object(const fl_varying *rows, uint32_t number, const object *before) {
    object out = {before->part + before->parts, before->point + before->points,
                  fl_bytes_le32(rows->lengths[0].bytes + (size_t)number * 4), 0};
    for (uint64_t i = 0; i < out.parts; i++)
        out.points += fl_bytes_le32(rows->lengths[1].bytes + (size_t)(out.part + i) * 4);
    return out;
}

static counted count(const fl_varying *rows, const uint8_t *keep) {
    counted out = {0, 0, 0};
    object at = {0, 0, 0, 0};
    for (uint32_t i = 0; i < rows->rows; i++) {
        at = next_object(rows, i, &at);
        if (!keep || keep[i]) out.objects++, out.parts += at.parts, out.points += at.points;
    }
    return out;
}

static uint8_t *append(uint8_t *to, const uint8_t *from, uint64_t bytes) {
    if (bytes) memcpy(to, from, (size_t)bytes);
    return to + bytes;
}

fl_code fl_polygons_write(const fl_varying *rows, const uint8_t *keep, const fl_geometry *g, uint8_t *to,
                          size_t room, fl_error *err) {
    const counted all = count(rows, keep);
    const size_t bytes = bytes_of(&all);
    if (bytes > room) return fl_fail(err, FL_ERECORD, "its outlines have no room in the batch");
    uint8_t *parts = to + 4, *points = parts + 4 * all.objects, *values = points + 4 * all.parts;
    float *moved = (float *)(void *)values;
    fl_bytes_put_le32(to, (uint32_t)all.objects);
    object at = {0, 0, 0, 0};
    for (uint32_t i = 0; i < rows->rows; i++) {
        at = next_object(rows, i, &at);
        if (keep && !keep[i]) continue;
        parts = append(parts, rows->lengths[0].bytes + (size_t)i * 4, 4);
        points = append(points, rows->lengths[1].bytes + at.part * 4, at.parts * 4);
        values =
            append(values, rows->values.bytes + at.point * FL_POLYGONS_POINT, at.points * FL_POLYGONS_POINT);
    }
    fl_objects_points(g, FL_POINTS_OUTLINE, moved, (size_t)all.points, 2);
    memset(to + bytes, 0, room - bytes);
    return FL_OK;
}
