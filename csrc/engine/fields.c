#include "engine/fields.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "engine/objects.h"
#include "engine/polygons.h"
#include "store/edges.h"
#include "store/planes.h"
#include "store/record.h"
#include "store/rle.h"
#include "store/varying.h"

static const fl_buffer_rule RULE = {.least = 1 << 12, .keep = 1 << 22};

/* An item of the record in work. */
typedef struct opened {
    fl_planes planes; /* of a mask */
    fl_varying rows; /* of what has rows */
    fl_boxes boxes; /* of boxes: a copy, which the geometry's steps change */
} opened;

/* Source of the rows and columns of the result: [first, first + count) of them; the rest shows the fill. */
typedef struct axis {
    uint32_t first, count;
    const uint32_t *from; /* [count]; NULL: the source as it is */
    fl_rle_axis runs; /* the same of instances */
} axis;

struct fl_fields {
    const fl_item *items;
    uint32_t count;
    opened opened[FL_ITEMS_MAX];
    fl_buffer boxes, tables, scratch;
    axis columns, rows;
};

fl_code fl_fields_create(fl_fields **out, fl_error *err) {
    *out = calloc(1, sizeof **out);
    return *out ? FL_OK
                : fl_fail(err, FL_ENOMEM, "no memory for the fields of a sample (%zu bytes)", sizeof **out);
}

void fl_fields_free(fl_fields *fields) {
    if (!fields) return;
    fl_buffer_free(&fields->boxes);
    fl_buffer_free(&fields->tables);
    fl_buffer_free(&fields->scratch);
    free(fields);
}

/* Points of one object. */
static uint32_t points_of(const fl_item *item) { return item->unit / (4 * item->columns); }

static bool sound_keypoints(const fl_item *item) {
    if ((item->columns != 2 && item->columns != 3) || item->unit % (4 * item->columns) != 0) return false;
    for (uint32_t k = 0; k < 2 * item->pair_count; k++)
        if (item->pairs[k] >= points_of(item)) return false;
    return true;
}

fl_code fl_fields_check(const fl_item *items, uint32_t count, fl_error *err) {
    if (count > FL_ITEMS_MAX) return fl_fail(err, FL_EARG, "%" PRIu32 " fields beside the image", count);
    for (uint32_t i = 0; i < count; i++) {
        const fl_item *item = &items[i];
        const bool boxes = item->kind == FL_ITEM_BOXES, mask = item->kind == FL_ITEM_MASK;
        bool sound =
            (unsigned)item->kind <= FL_ITEM_POLYGONS && item->unit && (mask || item->counts || item->counted);
        if (mask) sound = sound && item->unit <= 2;
        if (boxes) sound = sound && item->unit == fl_boxes_columns(item->format) * (item->integer ? 8 : 4);
        if (item->kind == FL_ITEM_KEYPOINTS) sound = sound && sound_keypoints(item);
        if (item->kind == FL_ITEM_INSTANCES || item->kind == FL_ITEM_POLYGONS)
            sound = sound && item->unit == 4;
        if (item->of != FL_ITEM_ALONE)
            sound = sound && !boxes && !mask && item->of >= 0 && (uint32_t)item->of < count &&
                    items[item->of].kind == FL_ITEM_BOXES;
        if (!sound)
            return fl_fail(err, FL_EARG,
                           "field %" PRIu32 " of %" PRIu32 " beside the image is of no known form", i, count);
    }
    return FL_OK;
}

/* The failure of one item, with its name in front. */
static fl_code of_item(const fl_item *item, fl_code code, fl_error *err) {
    if (!code || !err) return code;
    char text[FL_TEXT];
    memcpy(text, err->text, sizeof text);
    return fl_fail(err, code, "field '%.100s': %s", item->name, text);
}

static fl_code open_mask(const fl_item *item, const fl_record_field *entry, fl_planes *out, fl_error *err) {
    if (entry->kind != FL_RECORD_KIND_PLANES)
        return fl_fail(err, FL_ERECORD, "it is stored as kind %u, not as planes", entry->kind);
    fl_code code = fl_planes_open(entry->data, out, err);
    if (!code && (out->channels != 1 || out->pixel != item->unit))
        code = fl_fail(err, FL_ERECORD,
                       "its labels have %" PRIu32 " channels, %" PRIu32
                       " bytes together, and not one of %" PRIu32,
                       out->channels, out->pixel, item->unit);
    return code;
}

/* How many rows a sample has, as its column says. */
static fl_code count_of(const fl_item *item, uint64_t index, int32_t *count, fl_error *err) {
    if (!item->counts) return fl_table_sample_row(item->counted, index, count, err);
    *count = item->counts[index];
    return FL_OK;
}

static fl_code open_rows(const fl_item *item, const fl_record_field *entry, uint64_t index, fl_varying *out,
                         fl_error *err) {
    const bool runs = item->kind == FL_ITEM_INSTANCES, outlines = item->kind == FL_ITEM_POLYGONS;
    if (entry->kind != FL_RECORD_KIND_VARYING)
        return fl_fail(err, FL_ERECORD, "it is stored as kind %u, not as rows of any number", entry->kind);
    fl_code code = fl_varying_open(entry->data, outlines ? 2 : runs,
                                   outlines ? FL_POLYGONS_POINT : item->unit, out, err);
    int32_t count = 0;
    if (!code) code = count_of(item, index, &count, err);
    if (!code && (int64_t)out->rows != count)
        code = fl_fail(err, FL_ERECORD, "its record has %" PRIu32 " rows, its column says %" PRId32,
                       out->rows, count);
    return code;
}

static fl_code open_item(const fl_item *item, opened *to, const fl_store *store, uint64_t index,
                         fl_span record, fl_error *err) {
    fl_record_field entry;
    const uint16_t number = item->fields ? item->fields[fl_store_shard_of(store, index)] : item->field;
    fl_code code = fl_record_find(record, number, &entry, err);
    if (code) return code;
    return item->kind == FL_ITEM_MASK ? open_mask(item, &entry, &to->planes, err)
                                      : open_rows(item, &entry, index, &to->rows, err);
}

/* Copies all boxes of the record, each with a flag that it is kept. */
static fl_code copy_boxes(fl_fields *fields, fl_error *err) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->items[i].kind == FL_ITEM_BOXES)
            bytes += ((size_t)fields->opened[i].rows.rows * (fields->items[i].unit + 1) + 7) & ~(size_t)7;
    if (bytes && !fl_buffer_fit(&fields->boxes, bytes, 1, RULE))
        return fl_fail(err, FL_ENOMEM, "no memory for %zu bytes of boxes", bytes);
    uint8_t *at = fields->boxes.bytes;
    for (uint32_t i = 0; i < fields->count; i++) {
        const fl_item *item = &fields->items[i];
        if (item->kind != FL_ITEM_BOXES) continue;
        const fl_varying *rows = &fields->opened[i].rows;
        fields->opened[i].boxes = (fl_boxes){item->format, item->integer, rows->rows, at, NULL};
        if (!rows->rows) continue;
        memcpy(at, rows->values.bytes, rows->values.size);
        fields->opened[i].boxes.keep = at + rows->values.size;
        memset(at + rows->values.size, 1, rows->rows);
        at += (rows->values.size + rows->rows + 7) & ~(size_t)7;
    }
    return FL_OK;
}

/* Rows that are of boxes are as many as those: their flags are looked up by number. */
static fl_code check_of(const fl_fields *fields, const fl_item *item, const opened *found, fl_error *err) {
    if (item->of == FL_ITEM_ALONE) return FL_OK;
    const opened *boxes = &fields->opened[item->of];
    if (found->rows.rows != boxes->rows.rows)
        return fl_fail(err, FL_ERECORD, "its record has %" PRIu32 " rows for %" PRIu32 " of '%.60s'",
                       found->rows.rows, boxes->rows.rows, fields->items[item->of].name);
    return FL_OK;
}

fl_code fl_fields_open(fl_fields *fields, const fl_item *items, uint32_t count, const fl_store *store,
                       uint64_t index, fl_span record, fl_error *err) {
    fl_code code = FL_OK;
    if (count > FL_ITEMS_MAX) return fl_fail(err, FL_EARG, "%" PRIu32 " fields beside the image", count);
    fields->items = items, fields->count = count;
    for (uint32_t i = 0; i < count && !code; i++)
        code = of_item(&items[i], open_item(&items[i], &fields->opened[i], store, index, record, err), err);
    for (uint32_t i = 0; i < count && !code; i++)
        code = of_item(&items[i], check_of(fields, &items[i], &fields->opened[i], err), err);
    if (!code) code = copy_boxes(fields, err);
    if (code) fields->count = 0;
    return code;
}

fl_code fl_fields_renew(fl_fields *fields, fl_error *err) { return copy_boxes(fields, err); }

fl_boxes *fl_fields_boxes(fl_fields *fields) {
    for (uint32_t i = 0; i < fields->count; i++)
        if (fields->items[i].kind == FL_ITEM_BOXES) return &fields->opened[i].boxes;
    return NULL;
}

/* The part of a table that shows the source: its places without -1, which lie together, since each step moves
 * an axis as a whole. */
static axis shown(const int32_t *table, int64_t size) {
    uint32_t first = 0, end;
    while (first < size && table[first] < 0) first++;
    for (end = first; end < size && table[end] >= 0;) end++;
    return (axis){first, end - first, (const uint32_t *)table + first, {0}};
}

/* Adds the edges that instances need of an axis. */
static void make_edges(axis *of, uint32_t size, uint32_t *edges) {
    fl_edges_make(of->from, of->count, size, edges);
    of->runs = (fl_rle_axis){of->count, edges};
}

static fl_code make_tables(fl_fields *fields, const fl_geometry *g, const fl_box *image, bool instances,
                           fl_error *err) {
    const uint32_t width = (uint32_t)g->window.width, height = (uint32_t)g->window.height;
    if (!g->step_count) {
        fields->columns = (axis){0, width, NULL, {width, NULL}},
        fields->rows = (axis){0, height, NULL, {height, NULL}};
        return FL_OK;
    }
    const size_t edges = instances ? (size_t)image->width + image->height + 2 : 0;
    if (!fl_buffer_fit(&fields->tables, (size_t)width + height + edges, sizeof(int32_t), RULE))
        return fl_fail(err, FL_ENOMEM,
                       "no memory for the rows and columns of %" PRIu32 " x %" PRIu32 " pixels", width,
                       height);
    int32_t *columns = fields->tables.bytes, *rows = columns + width;
    fl_objects_mask(g, columns, rows);
    fields->columns = shown(columns, width), fields->rows = shown(rows, height);
    if (instances) {
        uint32_t *at = (uint32_t *)rows + height;
        make_edges(&fields->columns, image->width, at);
        make_edges(&fields->rows, image->height, at + image->width + 1);
    }
    return FL_OK;
}

/* Fills what a frame shows beyond its source. Labels of 2 bytes are little-endian, as they are stored. */
static void fill_around(const fl_fields *fields, const fl_sink *sink, uint32_t unit, uint16_t fill,
                        uint8_t *data) {
    const axis *x = &fields->columns, *y = &fields->rows;
    const bool nothing = !y->count || !x->count;
    if (!nothing && x->count == sink->width && y->count == sink->height) return;
    for (uint32_t i = 0; i < sink->height; i++) {
        const bool inside = !nothing && i >= y->first && i < y->first + y->count;
        uint8_t *line = data + i * fl_sink_pitch(sink) * unit;
        for (uint32_t j = 0; j < sink->width; j++) {
            if (inside && j == x->first) j += x->count;
            if (j >= sink->width) break;
            line[(size_t)j * unit] = (uint8_t)fill;
            if (unit == 2) line[(size_t)j * 2 + 1] = (uint8_t)(fill >> 8);
        }
    }
}

static uint8_t *shown_at(const fl_fields *fields, const fl_sink *sink, uint32_t unit, uint8_t *data) {
    return data + (fields->rows.first * fl_sink_pitch(sink) + fields->columns.first) * unit;
}

static fl_code write_mask(fl_fields *fields, const fl_item *item, const fl_planes *planes,
                          const fl_geometry *g, const fl_box *image, const fl_room *room, uint32_t row,
                          fl_error *err) {
    if (planes->width != image->width || planes->height != image->height)
        return fl_fail(err, FL_ERECORD,
                       "its labels are %" PRIu32 " x %" PRIu32 ", its image %" PRIu32 " x %" PRIu32,
                       planes->width, planes->height, image->width, image->height);
    if (item->unit == 1 && g->mask_fill > UINT8_MAX)
        return fl_fail(err, FL_EARG, "mask_fill=%u does not fit labels of 8 bits", g->mask_fill);
    fl_code code =
        fl_target_fit(&room->target, row, (uint32_t)g->window.width, (uint32_t)g->window.height, err);
    if (code) return code;
    fl_target_clear_margin(&room->target, row);
    const fl_sink sink = fl_target_sink(&room->target, row);
    const axis *x = &fields->columns, *y = &fields->rows;
    fill_around(fields, &sink, item->unit, g->mask_fill, sink.data);
    if (!x->count || !y->count) return FL_OK;
    const size_t stride = fl_sink_pitch(&sink) * item->unit;
    if (!y->from)
        return fl_planes_box(planes, (fl_box){0, 0, x->count, y->count}, sink.data, stride, &fields->scratch,
                             err);
    return fl_planes_sample(planes, y->from, y->count, x->from, x->count,
                            shown_at(fields, &sink, item->unit, sink.data), stride, &fields->scratch, err);
}

/* The rows of an item, and which of them are kept (NULL: all). */
typedef struct chosen {
    uint32_t rows, kept;
    const uint8_t *keep;
} chosen;

static chosen choose(const fl_fields *fields, uint32_t number) {
    const fl_item *item = &fields->items[number];
    const fl_boxes *boxes = item->kind == FL_ITEM_BOXES ? &fields->opened[number].boxes
                            : item->of != FL_ITEM_ALONE ? &fields->opened[item->of].boxes
                                                        : NULL;
    chosen out = {fields->opened[number].rows.rows, 0, boxes ? boxes->keep : NULL};
    for (uint32_t i = 0; out.keep && i < out.rows; i++) out.kept += out.keep[i];
    if (!out.keep) out.kept = out.rows;
    return out;
}

static void copy_rows(const uint8_t *from, const chosen *of, size_t unit, uint8_t *to) {
    if (of->kept == of->rows) {
        if (of->rows) memcpy(to, from, of->rows * unit);
        return;
    }
    for (uint32_t i = 0; i < of->rows; i++) {
        if (!of->keep[i]) continue;
        memcpy(to, from + i * unit, unit);
        to += unit;
    }
}

/* One mask as the geometry has it, into a frame of zeros. */
static fl_code write_instance(const fl_fields *fields, fl_span counts, const fl_box *image,
                              const fl_sink *sink, uint8_t *frame, fl_error *err) {
    const axis *x = &fields->columns, *y = &fields->rows;
    memset(frame, 0, fl_sink_plane(sink));
    if (!x->count || !y->count) return fl_rle_check(counts, image->height, image->width, err);
    return fl_rle_sample(counts, image->height, image->width, &y->runs, &x->runs,
                         shown_at(fields, sink, 1, frame), fl_sink_pitch(sink), err);
}

static fl_code write_instances(const fl_fields *fields, const fl_varying *rows, const chosen *of,
                               const fl_box *image, const fl_sink *sink, uint8_t *to, fl_error *err) {
    size_t at = 0;
    fl_code code = FL_OK;
    for (uint32_t i = 0; i < of->rows && !code; i++) {
        const size_t size = (size_t)fl_bytes_le32(rows->lengths[0].bytes + (size_t)i * 4) * 4;
        if (!of->keep || of->keep[i]) {
            code = write_instance(fields, (fl_span){rows->values.bytes + at, size}, image, sink, to, err);
            to += fl_sink_plane(sink);
        }
        at += size;
    }
    return code;
}

static fl_code write_polygons(const fl_fields *fields, uint32_t number, const fl_geometry *g,
                              const fl_room *room, uint32_t row, fl_error *err) {
    const chosen of = choose(fields, number);
    const size_t left = (size_t)(room->start[row + 1] - room->start[row]);
    const fl_code code =
        fl_polygons_write(&fields->opened[number].rows, of.keep, g, room->data + room->start[row], left, err);
    if (!code) room->kept[row] = of.kept;
    return code;
}

static void move_keypoints(const fl_item *item, const fl_geometry *g, float *points, uint32_t objects) {
    const uint32_t count = points_of(item);
    fl_objects_points(g, FL_POINTS_KEYPOINTS, points, (size_t)objects * count, item->columns);
    if (g->exchanged)
        fl_objects_exchange(points, objects, count, item->columns, item->pairs, item->pair_count);
}

static fl_code write_rows(fl_fields *fields, uint32_t number, const fl_geometry *g, const fl_box *image,
                          const fl_room *room, uint32_t row, fl_error *err) {
    const fl_item *item = &fields->items[number];
    const opened *from = &fields->opened[number];
    const chosen of = choose(fields, number);
    const size_t left = (size_t)(room->start[row + 1] - room->start[row]);
    uint8_t *to = room->data + room->start[row];
    size_t unit = item->unit;
    fl_sink sink = {0};
    if (item->kind == FL_ITEM_INSTANCES) {
        fl_code code =
            fl_target_fit(&room->target, row, (uint32_t)g->window.width, (uint32_t)g->window.height, err);
        if (code) return code;
        sink = fl_target_sink(&room->target, row);
        unit = fl_sink_plane(&sink);
    }
    if (of.kept > left / unit)
        return fl_fail(err, FL_ERECORD, "its %" PRIu32 " rows have no room in the batch", of.kept);
    fl_code code = FL_OK;
    if (item->kind == FL_ITEM_INSTANCES)
        code = write_instances(fields, &from->rows, &of, image, &sink, to, err);
    else copy_rows(item->kind == FL_ITEM_BOXES ? from->boxes.values : from->rows.values.bytes, &of, unit, to);
    if (code) return code;
    if (item->kind == FL_ITEM_KEYPOINTS) move_keypoints(item, g, (float *)(void *)to, of.kept);
    memset(to + of.kept * unit, 0, left - of.kept * unit);
    room->kept[row] = of.kept;
    return FL_OK;
}

/* Takes further boxes through the steps that the first ones went through in the resolve, which refused what
 * cannot be done to those. */
static fl_code move_boxes(fl_boxes *boxes, const fl_geometry *g, fl_error *err) {
    fl_code code = fl_boxes_check(boxes, err);
    for (uint32_t k = 0; k < g->step_count && !code; k++) {
        if (g->steps[k].kind == FL_STEP_FORMAT && boxes->format >= FL_BOXES_XYWHR)
            return fl_fail(err, FL_EUNSUPPORTED, "ConvertBoundingBoxFormat of rotated boxes");
        fl_boxes_step(boxes, &g->steps[k]);
    }
    return code;
}

fl_code fl_fields_write(fl_fields *fields, const fl_geometry *g, uint32_t width, uint32_t height,
                        const fl_room *rooms, uint32_t row, fl_error *err) {
    const fl_box image = {0, 0, width, height};
    const fl_boxes *resolved = fl_fields_boxes(fields);
    bool masks = false, instances = false;
    fl_code code = FL_OK;
    for (uint32_t i = 0; i < fields->count && !code; i++) {
        fl_boxes *boxes = &fields->opened[i].boxes;
        masks = masks || fields->items[i].kind == FL_ITEM_MASK;
        instances = instances || fields->items[i].kind == FL_ITEM_INSTANCES;
        if (fields->items[i].kind != FL_ITEM_BOXES || boxes == resolved) continue;
        code = of_item(&fields->items[i], move_boxes(boxes, g, err), err);
    }
    if (!code && (masks || instances)) code = make_tables(fields, g, &image, instances, err);
    for (uint32_t i = 0; i < fields->count && !code; i++) {
        const fl_item *item = &fields->items[i];
        if (item->hidden) continue;
        if (item->kind == FL_ITEM_MASK)
            code = write_mask(fields, item, &fields->opened[i].planes, g, &image, &rooms[i], row, err);
        else if (item->kind == FL_ITEM_POLYGONS) code = write_polygons(fields, i, g, &rooms[i], row, err);
        else code = write_rows(fields, i, g, &image, &rooms[i], row, err);
        code = of_item(item, code, err);
    }
    return code;
}

void fl_fields_clear(const fl_item *items, uint32_t count, const fl_room *rooms, uint32_t row) {
    for (uint32_t i = 0; i < count; i++) {
        if (items[i].hidden) continue;
        if (items[i].kind == FL_ITEM_MASK) {
            fl_target_clear(&rooms[i].target, row);
            continue;
        }
        memset(rooms[i].data + rooms[i].start[row], 0,
               (size_t)(rooms[i].start[row + 1] - rooms[i].start[row]));
        rooms[i].kept[row] = 0;
    }
}

/* Most bytes of one sample in a batch. A detector's thousand masks of 2,000 x 2,000 pixels are as many. */
static const uint64_t ROOM_MOST = (uint64_t)1 << 32;

fl_code fl_fields_bytes(const fl_item *item, const fl_store *store, uint64_t index, uint64_t unit,
                        uint64_t *bytes, fl_error *err) {
    *bytes = 0;
    if (index >= fl_store_count(store))
        return fl_fail(err, FL_ENOTFOUND, "there is no sample %" PRIu64, index);
    int32_t count;
    fl_code code = count_of(item, index, &count, err);
    if (code) return of_item(item, code, err);
    const uint64_t size = fl_store_record_size(store, index);
    if (count < 0 || (uint64_t)count > size / item->unit)
        return of_item(item,
                       fl_fail(err, FL_ERECORD,
                               "its column says %" PRId32 " rows, and its record has %" PRIu64 " bytes",
                               count, size),
                       err);
    if (item->kind == FL_ITEM_POLYGONS) {
        *bytes = (size + 7) & ~(uint64_t)7;
        return FL_OK;
    }
    if (unit && (uint64_t)count > ROOM_MOST / unit)
        return of_item(item,
                       fl_fail(err, FL_ELIMIT,
                               "%" PRId32 " rows of %" PRIu64 " bytes are more than a batch holds", count,
                               unit),
                       err);
    *bytes = (uint64_t)count * unit;
    return FL_OK;
}
