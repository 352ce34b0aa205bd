/* Outlines through a geometry: of random objects those that are kept, in order, with their parts and their
 * points moved by the steps; no byte beside them; the rest of the room is zeros; too small a room is refused.
 * Usage: test_polygons [seed]. */
#include "engine/polygons.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "draws.h"

enum {
    WIDTH = 60,
    HEIGHT = 40,
    OBJECTS = 6,
    PARTS = 4,
    POINTS = 5,
    ENTRY = 4 + 4 * OBJECTS * (1 + PARTS) + 8 * OBJECTS * PARTS * POINTS
};

typedef struct outline {
    uint32_t points;
    float at[POINTS][2];
} outline;

typedef struct object {
    uint32_t parts;
    outline part[PARTS];
} object;

static uint8_t *put32(uint8_t *to, uint32_t value) {
    fl_bytes_put_le32(to, value);
    return to + 4;
}

/* The entry of the objects that are kept; returns its size. */
static size_t put(const object *objects, uint32_t count, const uint8_t *keep, uint8_t *entry) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) kept += keep[i];
    uint8_t *to = put32(entry, kept);
    for (uint32_t i = 0; i < count; i++)
        if (keep[i]) to = put32(to, objects[i].parts);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; keep[i] && k < objects[i].parts; k++) to = put32(to, objects[i].part[k].points);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; keep[i] && k < objects[i].parts; k++) {
            memcpy(to, objects[i].part[k].at, objects[i].part[k].points * 8);
            to += objects[i].part[k].points * 8;
        }
    return (size_t)(to - entry);
}

/* The centre 20 x 10, mirrored, twice as wide. */
static const fl_program PROGRAM = {.count = 3,
                                   .ops = {{.kind = FL_OP_CENTER_CROP, .width = 20, .height = 10},
                                           {.kind = FL_OP_HFLIP, .p = 1},
                                           {.kind = FL_OP_RESIZE, .width = 40, .height = 10}}};

static void move(object *objects, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < objects[i].parts; k++)
            for (uint32_t p = 0; p < objects[i].part[k].points; p++) {
                float *at = objects[i].part[k].at[p];
                at[0] = -(at[0] - 20.0f - 20.0f) * 2, at[1] -= 15;
            }
}

static void test_random(void) {
    object objects[OBJECTS];
    uint8_t keep[OBJECTS], all[OBJECTS];
    _Alignas(8) uint8_t entry[ENTRY], expected[ENTRY], out[ENTRY + 16];
    const uint32_t count = between(0, OBJECTS);
    memset(all, 1, sizeof all);
    for (uint32_t i = 0; i < count; i++) {
        keep[i] = (uint8_t)between(0, 1);
        objects[i].parts = between(0, PARTS);
        for (uint32_t k = 0; k < objects[i].parts; k++) {
            objects[i].part[k].points = between(0, POINTS);
            for (uint32_t p = 0; p < POINTS; p++)
                objects[i].part[k].at[p][0] = (float)between(0, 240) / 4,
                objects[i].part[k].at[p][1] = (float)between(0, 160) / 4;
        }
    }
    fl_varying rows;
    fl_geometry g;
    fl_error err;
    CHECK(fl_varying_open((fl_span){entry, put(objects, count, all, entry)}, 2, FL_POLYGONS_POINT, &rows,
                          &err) == FL_OK);
    CHECK(fl_geometry_resolve(&PROGRAM, WIDTH, HEIGHT, (fl_key){1, 2, 3}, NULL, &g, &err) == FL_OK);
    move(objects, count);
    const bool some = between(0, 1);
    const size_t size = put(objects, count, some ? keep : all, expected), room = size + between(0, 8);
    memset(out, 0xEE, sizeof out);
    CHECK(fl_polygons_write(&rows, some ? keep : NULL, &g, out, room, &err) == FL_OK);
    CHECK(memcmp(out, expected, size) == 0);
    for (size_t at = size; at < sizeof out; at++) CHECK(out[at] == (at < room ? 0 : 0xEE));
    memset(out, 0xEE, sizeof out);
    CHECK(fl_polygons_write(&rows, some ? keep : NULL, &g, out, size - 1, &err) == FL_ERECORD);
    for (size_t at = 0; at < sizeof out; at++) CHECK(out[at] == 0xEE);
}

int main(void) {
    for (check_seed = 1; check_seed < 4000; check_seed++) {
        noise_state = check_seed * 0x9E3779B97F4A7C15u;
        test_random();
    }
    return 0;
}
