/* Fields of a row: known values through a crop and a flip, rows that go with dropped boxes, records that do
 * not hold, rooms that are too small, and gaps that are closed. What torchvision makes of random ones is
 * compared in Python (tests/dataset/test_native_rows.py). Threads that write the rows of one batch write the
 * same as one. Usage: test_pipeline_fields [seed]. */
#define _GNU_SOURCE
#include "engine/fields.h"

#include "engine/pool.h"
#include "engine/rooms.h"
#include "store/planes.h"
#include "store_shard.h"

enum { WIDTH = 6, HEIGHT = 4, OBJECTS = 3, ITEMS = 5 };
enum { MASK, BOXES, LABELS, POINTS, MASKS };

static int32_t counts[SAMPLES];
static fl_item items[ITEMS] = {
    {.kind = FL_ITEM_MASK, .name = "mask", .field = 1, .unit = 2, .of = FL_ITEM_ALONE},
    {.kind = FL_ITEM_BOXES,
     .name = "boxes",
     .field = 2,
     .counts = counts,
     .unit = 16,
     .format = FL_BOXES_XYXY,
     .of = FL_ITEM_ALONE},
    {.kind = FL_ITEM_ROWS, .name = "labels", .field = 3, .counts = counts, .unit = 8, .of = BOXES},
    {.kind = FL_ITEM_KEYPOINTS,
     .name = "points",
     .field = 4,
     .counts = counts,
     .unit = 8,
     .columns = 2,
     .of = BOXES},
    {.kind = FL_ITEM_INSTANCES, .name = "masks", .field = 5, .counts = counts, .unit = 4, .of = BOXES},
};

/* A record of entries that are put after each other. */
typedef struct made {
    uint8_t bytes[2048];
    uint32_t size, entries;
} made;

static void put(made *m, uint16_t field, uint8_t kind, const void *bytes, uint32_t size) {
    uint8_t *entry = m->bytes + FL_RECORD_HEADER + FL_RECORD_ENTRY * m->entries++;
    fl_bytes_put_le16(entry, field);
    entry[2] = kind, entry[3] = 0;
    fl_bytes_put_le32(entry + 4, m->size), fl_bytes_put_le32(entry + 8, size),
        fl_bytes_put_le32(entry + 12, 0);
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_rows(made *m, uint16_t field, uint32_t rows, const void *values, uint32_t size) {
    uint8_t bytes[512];
    fl_bytes_put_le32(bytes, rows);
    memcpy(bytes + 4, values, size);
    put(m, field, FL_RECORD_KIND_VARYING, bytes, 4 + size);
}

/* The labels are 100 * y + x; box k is wide and starts at k; object k's mask is column k. */
static fl_span make_record(made *m, uint32_t rows) {
    memset(m, 0, sizeof *m);
    m->size = FL_RECORD_HEADER + FL_RECORD_ENTRY * ITEMS;
    uint8_t labels[HEIGHT * WIDTH * 2];
    for (uint32_t i = 0; i < HEIGHT * WIDTH; i++)
        fl_bytes_put_le16(labels + 2 * i, 100 * (i / WIDTH) + i % WIDTH);
    fl_buffer planes = {NULL, 0};
    size_t size = 0;
    fl_error err;
    CHECK(fl_planes_encode(labels, HEIGHT, WIDTH, 1, 2, &planes, &size, &err) == FL_OK);
    put(m, 1, FL_RECORD_KIND_PLANES, planes.bytes, (uint32_t)size);
    fl_buffer_free(&planes);
    float boxes[OBJECTS][4], points[OBJECTS][2];
    int64_t numbers[OBJECTS];
    uint32_t runs[OBJECTS + 3 * OBJECTS];
    for (uint32_t k = 0; k < OBJECTS; k++) {
        const float box[4] = {(float)k, 0, (float)k + 1, (float)HEIGHT};
        memcpy(boxes[k], box, sizeof box);
        points[k][0] = (float)k, points[k][1] = 1, numbers[k] = 7 + k;
        runs[k] = 3;
        uint32_t *run = runs + OBJECTS + 3 * k;
        run[0] = k * HEIGHT, run[1] = HEIGHT, run[2] = (WIDTH - k - 1) * HEIGHT;
    }
    put_rows(m, 2, rows, boxes, rows * 16), put_rows(m, 3, rows, numbers, rows * 8),
        put_rows(m, 4, rows, points, rows * 8);
    if (rows < OBJECTS) memmove(runs + rows, runs + OBJECTS, rows * 12);
    put_rows(m, 5, rows, runs, rows * 16);
    fl_bytes_put_le32(m->bytes, FL_RECORD_MAGIC), fl_bytes_put_le16(m->bytes + 4, FL_RECORD_VERSION);
    fl_bytes_put_le16(m->bytes + 6, ITEMS), fl_bytes_put_le32(m->bytes + 8, m->size);
    uint32_t entries;
    CHECK(fl_record_check((fl_span){m->bytes, m->size}, &entries, &err) == FL_OK && entries == ITEMS);
    return (fl_span){m->bytes, m->size};
}

/* Rooms of two rows of images of 4 x 2 pixels. */
typedef struct batch {
    fl_room rooms[ITEMS];
    uint64_t start[ITEMS][3];
    uint32_t kept[ITEMS][2];
    _Alignas(8) uint8_t bytes[ITEMS][512];
} batch;

static void lay(batch *b, uint64_t objects) {
    memset(b, 0, sizeof *b);
    memset(b->bytes, 0xEE, sizeof b->bytes);
    for (int i = 0; i < ITEMS; i++) {
        fl_room *room = &b->rooms[i];
        const uint32_t unit = i == MASK ? 2 : 1;
        room->target = (fl_target){.sink = {.data = b->bytes[i], .width = 4, .height = 2},
                                   .row_bytes = 8 * unit,
                                   .unit = unit,
                                   .planes = 1};
        room->data = b->bytes[i], room->start = b->start[i], room->kept = b->kept[i];
        const uint64_t row = objects * (i == MASKS ? 8 : items[i].unit);
        for (uint64_t k = 0; k < 3; k++) room->start[k] = k * row;
    }
}

static fl_code run(fl_fields *fields, fl_span record, const fl_op *ops, uint32_t count, const batch *b,
                   uint32_t row, fl_error *err) {
    static fl_program program;
    static fl_geometry g;
    program.count = count;
    memcpy(program.ops, ops, count * sizeof *ops);
    fl_code code = fl_fields_open(fields, items, ITEMS, NULL, 0, record, err);
    if (!code)
        code =
            fl_geometry_resolve(&program, WIDTH, HEIGHT, (fl_key){1, 2, 3}, fl_fields_boxes(fields), &g, err);
    return code ? code : fl_fields_write(fields, &g, WIDTH, HEIGHT, b->rooms, row, err);
}

/* The centre 4 x 2, mirrored: source columns 4, 3, 2, 1 and rows 1, 2. Box 0 ends at the crop's edge and is
 * dropped. */
static const fl_op OPS[] = {{.kind = FL_OP_CENTER_CROP, .width = 4, .height = 2},
                            {.kind = FL_OP_HFLIP, .p = 1},
                            {.kind = FL_OP_SANITIZE, .min_size = 1}};

static void check_row(const batch *b, uint32_t row) {
    for (uint32_t y = 0; y < 2; y++)
        for (uint32_t x = 0; x < 4; x++)
            CHECK(fl_bytes_le16(b->bytes[MASK] + row * 16 + 2 * (y * 4 + x)) == 100 * (y + 1) + 4 - x);
    for (int i = BOXES; i < ITEMS; i++) CHECK(b->kept[i][row] == OBJECTS - 1);
    for (uint32_t k = 1; k < OBJECTS; k++) {
        float box[4], point[2];
        int64_t number;
        memcpy(box, b->bytes[BOXES] + b->start[BOXES][row] + 16 * (k - 1), sizeof box);
        CHECK(box[0] == 4 - (float)k && box[1] == 0 && box[2] == 5 - (float)k && box[3] == 2);
        memcpy(&number, b->bytes[LABELS] + b->start[LABELS][row] + 8 * (k - 1), sizeof number);
        CHECK(number == 7 + k);
        memcpy(point, b->bytes[POINTS] + b->start[POINTS][row] + 8 * (k - 1), sizeof point);
        CHECK(point[0] == 4 - (float)k && point[1] == 0);
        for (uint32_t at = 0; at < 8; at++)
            CHECK(b->bytes[MASKS][b->start[MASKS][row] + 8 * (k - 1) + at] == (at % 4 == 4 - k));
    }
}

static void test_known(fl_fields *fields) {
    static made m;
    static batch b;
    fl_error err;
    counts[0] = OBJECTS;
    const fl_span record = make_record(&m, OBJECTS);
    lay(&b, OBJECTS);
    for (uint32_t row = 0; row < 2; row++) CHECK(run(fields, record, OPS, 3, &b, row, &err) == FL_OK);
    for (uint32_t row = 0; row < 2; row++) check_row(&b, row);
    for (uint64_t at = b.start[BOXES][1] - 16; at < b.start[BOXES][1]; at++)
        CHECK(b.bytes[BOXES][at] == 0); /* of the dropped box */
    for (int i = BOXES; i < ITEMS; i++) fl_rooms_compact(&items[i], &b.rooms[i], 2);
    CHECK(b.start[BOXES][1] == 32 && b.start[BOXES][2] == 64 && b.start[MASKS][2] == 32);
    for (uint32_t row = 0; row < 2; row++) check_row(&b, row);
    fl_fields_clear(items, ITEMS, b.rooms, 1);
    check_row(&b, 0);
    for (uint64_t at = b.start[MASKS][1]; at < b.start[MASKS][2]; at++) CHECK(b.bytes[MASKS][at] == 0);
    CHECK(b.kept[BOXES][1] == 0 && fl_bytes_le16(b.bytes[MASK] + 16) == 0);
}

/* Masks and instances in the corner of a larger frame; the rest of it is zeros. Then in the frame that their
 * image turned out to need. */
static void test_frames(fl_fields *fields) {
    static made m;
    static batch b;
    fl_error err;
    const fl_span record = make_record(&m, OBJECTS);
    counts[0] = OBJECTS;
    lay(&b, OBJECTS);
    fl_place places[2] = {{0, 5 * 3 * 2, 4, 2}, {5 * 3 * 2, 5 * 3 * 2, 4, 2}};
    for (int i = MASK; i < ITEMS; i += MASKS) {
        fl_target *target = &b.rooms[i].target;
        target->sink.width = target->sink.pitch = 5, target->sink.height = 3, target->sink.plane = 15;
        target->row_bytes = 15 * target->unit, target->places = places;
    }
    for (uint64_t k = 0; k < 3; k++) b.start[MASKS][k] = k * 15 * OBJECTS;
    CHECK(run(fields, record, OPS, 3, &b, 1, &err) == FL_OK);
    for (uint32_t at = 0; at < 15; at++) {
        const uint32_t x = at % 5, y = at / 5;
        CHECK(fl_bytes_le16(b.bytes[MASK] + 30 + 2 * at) == (x < 4 && y < 2 ? 100 * (y + 1) + 4 - x : 0));
        CHECK(b.bytes[MASKS][b.start[MASKS][1] + at] == (x == 3 && y < 2));
    }
    CHECK(b.bytes[MASK][0] == 0xEE && b.bytes[MASKS][0] == 0xEE); /* the other row */
    const fl_target image = {
        .sink = {.width = 4, .height = 2, .pitch = 4, .plane = 8}, .bounded = true, .places = places};
    for (int i = MASK; i < ITEMS; i++) fl_rooms_narrow(&items[i], &b.rooms[i], 2, &image);
    CHECK(b.start[MASKS][1] == 8 * OBJECTS && b.start[MASKS][2] == 16 * OBJECTS &&
          b.start[BOXES][1] == 16 * OBJECTS);
    CHECK(b.rooms[MASK].target.row_bytes == 16 && places[1].at == 16);
    for (uint32_t at = 0; at < 8; at++) {
        CHECK(fl_bytes_le16(b.bytes[MASK] + 16 + 2 * at) == 100 * (at / 4 + 1) + 4 - at % 4);
        CHECK(b.bytes[MASKS][b.start[MASKS][1] + at] == (at % 4 == 3) &&
              b.bytes[MASKS][b.start[MASKS][1] + 8 + at] == (at % 4 == 2));
    }
    fl_rooms_compact(&items[MASKS], &b.rooms[MASKS], 2);
    CHECK(b.kept[MASKS][0] == 0 && b.start[MASKS][1] == 0 && b.start[MASKS][2] == 8 * (OBJECTS - 1));
    for (uint32_t at = 0; at < 8; at++) CHECK(b.bytes[MASKS][at] == (at % 4 == 3));
}

/* Other numbers of rows than the column says, less room than rows, fills that no label is, other sizes than
 * the image. */
static void test_refused(fl_fields *fields) {
    static made m;
    static batch b;
    fl_error err;
    fl_span record = make_record(&m, OBJECTS);
    lay(&b, 1);
    counts[0] = OBJECTS - 1;
    CHECK(run(fields, record, OPS, 3, &b, 0, &err) == FL_ERECORD && strstr(err.text, "'boxes'") &&
          strstr(err.text, "column says 2"));
    CHECK(fl_fields_boxes(fields) == NULL);
    counts[0] = OBJECTS;
    CHECK(run(fields, record, OPS, 3, &b, 0, &err) == FL_ERECORD && strstr(err.text, "no room"));
    lay(&b, OBJECTS);
    CHECK(run(fields, record, OPS, 1, &b, 0, &err) == FL_OK && b.kept[BOXES][0] == OBJECTS);
    const fl_op larger = {.kind = FL_OP_CENTER_CROP, .width = 5, .height = 2};
    CHECK(run(fields, record, &larger, 1, &b, 0, &err) == FL_ERECORD && strstr(err.text, "another size"));
    const fl_op jitter = {.kind = FL_OP_IOU_CROP,
                          .scale = {0.3, 1},
                          .ratio = {0.5, 2},
                          .options = {0.1},
                          .option_count = 1,
                          .trials = 40};
    const fl_op iou[] = {jitter, {.kind = FL_OP_RESIZE, .width = 4, .height = 2}};
    CHECK(run(fields, record, iou, 2, &b, 0, &err) == FL_OK);
    items[MASK].field = 9;
    CHECK(run(fields, record, OPS, 3, &b, 0, &err) == FL_ERECORD && strstr(err.text, "'mask'"));
    items[MASK].field = 2;
    CHECK(run(fields, record, OPS, 3, &b, 0, &err) == FL_ERECORD && strstr(err.text, "not as planes"));
    items[MASK].field = 1;
    record = make_record(&m, 1);
    counts[0] = 1;
    CHECK(run(fields, record, OPS, 1, &b, 0, &err) == FL_OK && b.kept[MASKS][0] == 1);
    CHECK(fl_fields_check(items, ITEMS, &err) == FL_OK);
    items[LABELS].of = MASK;
    CHECK(fl_fields_check(items, ITEMS, &err) == FL_EARG);
    items[LABELS].of = BOXES;
    const uint32_t pairs[] = {0, 1};
    items[POINTS].pairs = pairs, items[POINTS].pair_count = 1; /* of objects of one point */
    CHECK(fl_fields_check(items, ITEMS, &err) == FL_EARG);
    items[POINTS].pairs = NULL, items[POINTS].pair_count = 0;
}

/* Rotated boxes have no other format: refused of any field of boxes, and not only of the first. */
static void test_rotated_boxes_are_not_converted(fl_fields *fields) {
    static made m;
    static batch b;
    fl_error err;
    const fl_op convert = {.kind = FL_OP_FORMAT, .box_format = FL_BOXES_CXCYWH}, crop = OPS[0];
    const fl_op ops[] = {crop, convert};
    const fl_item labels = items[LABELS];
    const fl_span record = make_record(&m, 0);
    counts[0] = 0;
    lay(&b, OBJECTS);
    items[LABELS] = (fl_item){.kind = FL_ITEM_BOXES,
                              .name = "rotated",
                              .field = 3,
                              .counts = counts,
                              .unit = 20,
                              .format = FL_BOXES_CXCYWHR,
                              .of = FL_ITEM_ALONE};
    CHECK(fl_fields_check(items, ITEMS, &err) == FL_OK);
    CHECK(run(fields, record, &crop, 1, &b, 0, &err) == FL_OK);
    CHECK(run(fields, record, ops, 2, &b, 0, &err) == FL_EUNSUPPORTED && strstr(err.text, "'rotated'"));
    items[LABELS] = labels;
}

/* What a row needs is known of columns, which may say anything. */
static void test_bytes(void) {
    fl_error err;
    fl_store *store;
    uint64_t bytes;
    CHECK(fl_store_create(&store, &err) == FL_OK);
    CHECK(add(store, path, 0, SAMPLES, write_shard(path), &err) == FL_OK);
    const int32_t said[] = {-1, INT32_MAX, 0, 3};
    for (int i = 0; i < 4; i++) {
        counts[7] = said[i];
        const fl_code code = fl_fields_bytes(&items[LABELS], store, 7, 8, &bytes, &err);
        CHECK(i < 2 ? code == FL_ERECORD && bytes == 0 : code == FL_OK && bytes == (uint64_t)said[i] * 8);
    }
    CHECK(fl_fields_bytes(&items[MASKS], store, 7, (uint64_t)1 << 40, &bytes, &err) == FL_ELIMIT);
    CHECK(fl_fields_bytes(&items[LABELS], store, SAMPLES, 8, &bytes, &err) == FL_ENOTFOUND);
    CHECK(fl_store_record_size(store, SAMPLES) == 0);
    fl_store_close(store);
}

enum { ROWS = 64, THREADS = 3, SLOT = 8192 };

/* One batch of many rows, whose objects lie one right after the other. */
typedef struct shared {
    fl_span record;
    fl_room rooms[ITEMS];
    uint64_t start[ITEMS][ROWS + 1];
    uint32_t kept[ITEMS][ROWS];
    _Alignas(8) uint8_t bytes[ITEMS][SLOT];
    _Atomic uint32_t left;
} shared;

static void lay_shared(shared *s, fl_span record) {
    memset(s, 0, sizeof *s);
    s->record = record, s->left = ROWS;
    for (int i = 0; i < ITEMS; i++) {
        const uint32_t unit = i == MASK ? 2 : 1;
        s->rooms[i] = (fl_room){.data = s->bytes[i], .start = s->start[i], .kept = s->kept[i]};
        s->rooms[i].target = (fl_target){.sink = {.data = s->bytes[i], .width = 4, .height = 2},
                                         .row_bytes = 8 * unit,
                                         .unit = unit,
                                         .planes = 1};
        for (uint64_t k = 0; k <= ROWS; k++) s->start[i][k] = k * OBJECTS * (i == MASKS ? 8 : items[i].unit);
        CHECK(i == MASK || s->start[i][ROWS] <= SLOT);
    }
}

static void write_row(void *opaque, uint32_t row, void *fields) {
    shared *s = opaque;
    fl_program program = {.count = 3};
    fl_geometry g;
    fl_error err;
    memcpy(program.ops, OPS, sizeof OPS);
    CHECK(fl_fields_open(fields, items, ITEMS, NULL, 0, s->record, &err) == FL_OK);
    CHECK(fl_geometry_resolve(&program, WIDTH, HEIGHT, (fl_key){1, 2, row}, fl_fields_boxes(fields), &g,
                              &err) == FL_OK);
    CHECK(fl_fields_write(fields, &g, WIDTH, HEIGHT, s->rooms, row, &err) == FL_OK);
    s->left--;
}

static void test_threads(void) {
    static made m;
    static shared one, many;
    fl_fields *fields[THREADS];
    fl_pool *pool;
    fl_error err;
    const fl_span record = make_record(&m, OBJECTS);
    counts[0] = OBJECTS;
    lay_shared(&one, record), lay_shared(&many, record);
    for (int i = 0; i < THREADS; i++) CHECK(fl_fields_create(&fields[i], &err) == FL_OK);
    for (uint32_t row = 0; row < ROWS; row++) write_row(&one, row, fields[0]);
    CHECK(fl_pool_create("fields", THREADS, 4, (void **)fields, &pool, &err) == FL_OK);
    CHECK(fl_pool_submit(pool, write_row, &many, ROWS, &err) == FL_OK);
    while (many.left) usleep(100);
    fl_pool_free(pool);
    for (int i = 0; i < ITEMS; i++)
        CHECK(memcmp(one.bytes[i], many.bytes[i], SLOT) == 0 &&
              memcmp(one.kept[i], many.kept[i], sizeof one.kept[i]) == 0);
    for (int i = 0; i < THREADS; i++) fl_fields_free(fields[i]);
}

int main(int argc, char **argv) {
    fl_fields *fields;
    fl_error err;
    begin(argc, argv);
    CHECK(fl_fields_create(&fields, &err) == FL_OK);
    test_known(fields);
    test_frames(fields);
    test_refused(fields);
    test_rotated_boxes_are_not_converted(fields);
    test_bytes();
    test_threads();
    fl_fields_free(fields);
    fl_fields_free(NULL);
    end("test_pipeline_fields");
    return 0;
}
