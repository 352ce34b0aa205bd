/* What else of a record goes into its row: records of items, some with bytes changed, are refused, or every
 * byte of the rooms is written, twice alike, and nothing beside them; rows that are of boxes are as many as
 * the boxes. */
#include "engine/fields.h"

#include "common/buffer.h"
#include "store/planes.h"
#include "store/record.h"
#include "fuzz.h"

enum { ITEMS = 6, ROWS = 5, SIDE = 24, ROOM = 1 << 16 };

static fl_item items[ITEMS];
static int32_t counts[ITEMS];
static uint32_t sizes[ITEMS]; /* of the entries */
static uint8_t record[ROOM];
static uint32_t record_size, width, height;

static uint32_t put32(uint32_t at, uint32_t value) {
    fl_bytes_put_le32(record + at, value);
    return at + 4;
}

static uint32_t put_noise(uint32_t at, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) record[at + i] = (uint8_t)noise();
    return at + size;
}

static uint32_t put_mask(uint32_t at, uint32_t unit) {
    static fl_buffer out;
    uint8_t labels[SIDE * SIDE * 2];
    fl_error err;
    size_t size = 0;
    const uint32_t flat = below(2);
    for (size_t i = 0; i < sizeof labels; i++) labels[i] = flat ? (uint8_t)(i / 40) : (uint8_t)noise();
    CHECK(fl_planes_encode(labels, height, width, 1, unit, &out, &size, &err) == FL_OK && at + size < ROOM);
    memcpy(record + at, out.bytes, size);
    return at + (uint32_t)size;
}

/* Runs that sum to the pixels. */
static uint32_t put_instances(uint32_t at, uint32_t rows) {
    const uint32_t lengths = put32(at, rows);
    at = lengths + 4 * rows;
    for (uint32_t k = 0; k < rows; k++) {
        uint32_t left = width * height, runs = 0;
        for (; left; runs++) {
            const uint32_t run = runs < 6 ? noise() % (left + 1) : left;
            at = put32(at, run);
            left -= run;
        }
        put32(lengths + 4 * k, runs);
    }
    return at;
}

/* Objects of few parts, of few points. */
static uint32_t put_polygons(uint32_t at, uint32_t rows) {
    uint32_t parts = 0, points = 0;
    at = put32(at, rows);
    for (uint32_t k = 0; k < rows; k++) {
        const uint32_t own = below(4);
        at = put32(at, own);
        parts += own;
    }
    for (uint32_t k = 0; k < parts; k++) {
        const uint32_t own = below(7);
        at = put32(at, own);
        points += own;
    }
    return put_noise(at, points * 8);
}

static uint32_t put_boxes(uint32_t at, uint32_t rows, uint32_t columns) {
    at = put32(at, rows);
    for (uint32_t i = 0; i < rows * columns; i++, at += 4) {
        const float value = below(16) ? (float)((1.4 * unit() - 0.2) * SIDE) : (float)noise64();
        memcpy(record + at, &value, 4);
    }
    return at;
}

static uint32_t put_item(uint32_t at, uint32_t i, uint32_t objects) {
    static const char *const names[ITEMS] = {"a", "b", "c", "d", "e", "f"};
    fl_item *item = &items[i];
    *item = (fl_item){.kind = (fl_item_kind)below(6),
                      .name = names[i],
                      .field = (uint16_t)i,
                      .counts = &counts[i],
                      .of = FL_ITEM_ALONE};
    item->hidden = below(8) == 0;
    for (uint32_t k = 0; k < i && item->kind > FL_ITEM_BOXES; k++)
        if (items[k].kind == FL_ITEM_BOXES && below(4)) item->of = (int32_t)k;
    uint32_t rows = item->kind == FL_ITEM_BOXES || item->of != FL_ITEM_ALONE ? objects : below(ROWS);
    counts[i] = (int32_t)rows;
    switch (item->kind) {
    case FL_ITEM_MASK: item->unit = 1 + below(2); return put_mask(at, item->unit);
    case FL_ITEM_BOXES:
        item->format = (fl_box_format)below(below(4) ? 3 : 6);
        item->integer = item->format < FL_BOXES_XYWHR && below(4) == 0;
        item->unit = (item->integer ? 8 : 4) * fl_boxes_columns(item->format);
        if (item->integer) return put_noise(put32(at, rows), rows * item->unit);
        return put_boxes(at, rows, fl_boxes_columns(item->format));
    case FL_ITEM_INSTANCES: item->unit = 4; return put_instances(at, rows);
    case FL_ITEM_POLYGONS: item->unit = 4; return put_polygons(at, rows);
    case FL_ITEM_KEYPOINTS:
        item->columns = 2 + below(2), item->unit = 4 * item->columns * (1 + below(3));
        return put_noise(put32(at, rows), rows * item->unit);
    default: item->unit = 1 + below(12); return put_noise(put32(at, rows), rows * item->unit);
    }
}

static void make_record(uint32_t count) {
    const uint32_t objects = below(ROWS);
    uint32_t at = FL_RECORD_HEADER + FL_RECORD_ENTRY * count;
    memset(record, 0, sizeof record);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t start = at, entry = FL_RECORD_HEADER + FL_RECORD_ENTRY * i;
        at = put_item(at, i, objects);
        sizes[i] = at - start;
        fl_bytes_put_le16(record + entry, i);
        record[entry + 2] = items[i].kind == FL_ITEM_MASK ? FL_RECORD_KIND_PLANES : FL_RECORD_KIND_VARYING;
        put32(entry + 4, start), put32(entry + 8, at - start);
    }
    put32(0, FL_RECORD_MAGIC), fl_bytes_put_le16(record + 4, FL_RECORD_VERSION),
        fl_bytes_put_le16(record + 6, count), put32(8, at);
    record_size = at;
}

static void make_program(fl_program *program) {
    static const fl_op_kind kinds[] = {FL_OP_RESIZE,    FL_OP_CENTER_CROP, FL_OP_RANDOM_CROP, FL_OP_HFLIP,
                                       FL_OP_VFLIP,     FL_OP_ZOOM_OUT,    FL_OP_IOU_CROP,    FL_OP_SANITIZE,
                                       FL_OP_LETTERBOX, FL_OP_FORMAT};
    program->count = below(5);
    for (uint32_t i = 0; i < program->count; i++) {
        fl_op *op = &program->ops[i];
        *op = (fl_op){.kind = kinds[below(10)],
                      .stream = (uint16_t)i,
                      .width = 1 + below(40),
                      .height = 1 + below(40),
                      .p = unit()};
        op->scale[0] = op->kind == FL_OP_ZOOM_OUT ? 1 : 0.3,
        op->scale[1] = op->kind == FL_OP_ZOOM_OUT ? 2 : 1;
        op->ratio[0] = 0.5, op->ratio[1] = 2, op->option_count = 1, op->trials = 10,
        op->options[0] = 0.2 * unit();
        op->min_size = 3 * unit(), op->pad_if_needed = true, op->mask_fill = (uint16_t)(below(8) ? 255 : 300);
        op->box_format = (fl_box_format)below(3);
    }
}

typedef struct rooms {
    fl_room room[ITEMS];
    uint64_t start[ITEMS][2];
    uint32_t kept[ITEMS];
    uint8_t *memory[ITEMS];
    size_t size[ITEMS];
} rooms;

/* Memory of just the size that the items take, for a sanitizer to watch. */
static void lay(rooms *r, uint32_t count, const fl_geometry *g) {
    memset(r, 0, sizeof *r);
    for (uint32_t i = 0; i < count; i++) {
        const size_t pixels = (size_t)g->window.width * (size_t)g->window.height;
        const uint32_t unit = items[i].kind == FL_ITEM_MASK ? items[i].unit : 1;
        const size_t row = items[i].kind == FL_ITEM_INSTANCES ? pixels : items[i].unit;
        r->size[i] = items[i].kind == FL_ITEM_MASK ? pixels * unit : row * (size_t)counts[i];
        if (items[i].kind == FL_ITEM_POLYGONS) r->size[i] = sizes[i];
        r->memory[i] = fuzz_allocate(r->size[i] ? r->size[i] : 1);
        r->start[i][1] = r->size[i];
        r->room[i] = (fl_room){.data = r->memory[i], .start = r->start[i], .kept = &r->kept[i]};
        r->room[i].target = (fl_target){.row_bytes = pixels * unit, .unit = unit, .planes = 1};
        r->room[i].target.sink.data = r->memory[i];
        r->room[i].target.sink.width = (uint32_t)g->window.width,
        r->room[i].target.sink.height = (uint32_t)g->window.height;
    }
}

static void check_rooms(const rooms *a, const rooms *b, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].hidden) continue;
        FUZZ_INITIALIZED(a->memory[i], a->size[i]);
        CHECK(memcmp(a->memory[i], b->memory[i], a->size[i]) == 0 && a->kept[i] == b->kept[i]);
        if (items[i].kind == FL_ITEM_MASK) continue;
        CHECK(a->kept[i] <= (uint32_t)counts[i]);
        if (items[i].of != FL_ITEM_ALONE && !items[items[i].of].hidden)
            CHECK(a->kept[i] == a->kept[items[i].of]);
        fuzz_count("fields of rows");
    }
}

static void write_twice(fl_fields *fields, const fl_program *program, uint32_t count, fl_span from) {
    static rooms r[2];
    static fl_geometry g;
    fl_error err;
    for (int k = 0; k < 2; k++) {
        fl_code code = fl_fields_open(fields, items, count, NULL, 0, from, &err);
        fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD));
        if (code ||
            fl_geometry_resolve(program, width, height, (fl_key){1, 2, 3}, fl_fields_boxes(fields), &g, &err))
            return;
        lay(&r[k], count, &g);
        code = fl_fields_write(fields, &g, width, height, r[k].room, 0, &err);
        fuzz_known(code, &err, FUZZ_CODE(FL_ERECORD) | FUZZ_CODE(FL_EARG) | FUZZ_CODE(FL_EUNSUPPORTED));
        if (!code) fuzz_count("rows written");
        if (!code && k) check_rooms(&r[0], &r[1], count);
        if (code || k)
            for (int j = 0; j <= k; j++)
                for (uint32_t i = 0; i < count; i++) free(r[j].memory[i]);
        if (code) return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fl_fields *fields;
    static fl_program program;
    fl_error err;
    uint32_t entries;
    draws_begin(data, size);
    if (!fields) CHECK(fl_fields_create(&fields, &err) == FL_OK);
    width = 1 + below(SIDE), height = 1 + below(SIDE);
    const uint32_t count = 1 + below(ITEMS);
    make_record(count);
    CHECK(fl_fields_check(items, count, &err) == FL_OK);
    make_program(&program);
    const uint32_t changes = below(4) ? 0 : 1 + below(6);
    for (uint32_t i = 0; i < changes; i++) record[below(record_size)] = (uint8_t)noise();
    if (below(16) == 0) counts[below(count)]++;
    if (fl_record_check((fl_span){record, record_size}, &entries, &err)) return 0;
    uint8_t *own = fuzz_copy(record, record_size);
    write_twice(fields, &program, count, (fl_span){own, record_size});
    free(own);
    return 0;
}
